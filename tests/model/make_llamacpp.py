#!/usr/bin/env python3
"""Makes tests/model/data/llamacpp.json: of each model of tests/model/data that llama.cpp knows, converted to a GGUF file of F32 by weft, what llama.cpp
writes greedily after its prompt, and the perplexity of prompt and answer together. Where the model has what GGUF has no key for, its config.json is
changed to what llama.cpp assumes; the change stands beside the numbers, and a hash of the names in the file, for what has other names llama.cpp has not read.

Needs the package llama-cpp-python.

    make_llamacpp.py WEFT
"""
import json
import pathlib
import sys
import tempfile

import llama_cpp
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / 'support'))
import changed
import tolerances

# llama.cpp knows neither OPT nor biases in Falcon, and it ignores the windows of the other three, which are like models that are here without them.
LEFT_OUT = ['falcon40b', 'mistral-window', 'opt', 'phi3', 'starcoder2-window']
HEAD = {'query_pre_attn_scalar': 32}  # the size of a head
GPT_OSS_ROPE = json.loads((HERE / 'data/gpt-oss/config.json').read_text())['rope_parameters']
CHANGES = {'gemma2': HEAD, 'gemma3': HEAD, 'gemma3-short': HEAD, 'gemma3-vision': HEAD, 'gpt-oss': {'rope_parameters': {**GPT_OSS_ROPE, 'truncate': True}}}
GENERATED = 16
FLOAT = 0  # ggml's number of F32, for keys and values


def run(path, prompt):
    llm = llama_cpp.Llama(str(path), n_ctx=512, n_batch=64, n_threads=1, logits_all=True, type_k=FLOAT, type_v=FLOAT, verbose=False)
    ids = []
    llm.eval(prompt)
    while len(ids) < GENERATED:
        ids.append(int(llm.scores[llm.n_tokens - 1].argmax()))
        llm.eval(ids[-1:])
    logits = llm.scores[: llm.n_tokens].astype(np.float64)
    llm.close()
    return ids, logits


def is_clear(logits):
    """Are the two largest of each position too far apart for rounding to choose the other?"""
    best = np.sort(logits, axis=1)
    return (best[:, -1] - best[:, -2]).min() > 4 * tolerances.rows('MODEL')['logits'][0] * (logits.max() - logits.min())


def main():
    made = {}
    for folder in sorted(p.parent for p in (HERE / 'data').glob('*/ids.json') if p.parent.name not in LEFT_OUT):
        prompt, change = json.loads((folder / 'ids.json').read_text())['prompt'], CHANGES.get(folder.name, {})
        with tempfile.TemporaryDirectory() as top:
            file = changed.convert(sys.argv[1], folder, change, top)
            (ids, logits), names = run(file, prompt), changed.names(file)
        assert is_clear(logits[len(prompt) - 1 : -1]), folder.name
        made[folder.name] = {'change': change, 'ids': ids, 'perplexity': changed.perplexity(logits, prompt + ids), 'names': names}
        print(folder.name, made[folder.name])
    versions = {m.__name__: m.__version__ for m in (llama_cpp, np)}
    rows = ',\n'.join(f'  {json.dumps(name)}: {json.dumps(one)}' for name, one in made.items())
    (HERE / 'data/llamacpp.json').write_text(f'{{"versions": {json.dumps(versions)},\n "models": {{\n{rows}}}}}\n')


if __name__ == '__main__':
    main()
