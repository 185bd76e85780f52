#!/usr/bin/env python3
"""Writes what llama.cpp makes of published models and vocabularies: figures.json here, and tests/text/data/odd.json. Needs the package xllamacpp, the models
of real.py, which it fetches into FOLDER, and a folder of vocabularies.

    make.py FOLDER VOCABULARIES

A model of figures.json has: `ids`, digests of the ids of odd strings; `greedy`, of each prompt the tokens that follow, and at each how far behind the second
best token was; `chat`, of each message the ids of the prompt that the template makes, and the same; `perplexity` of the ids of text.txt from HALF to twice as many, as llama.cpp has it and as the float64 reference
of tests/model has it.
"""
import importlib.metadata
import json
import pathlib
import sys
import tempfile
import urllib.request

import numpy as np
import real
import xllamacpp

sys.path[:0] = [str(real.HERE.parent / part) for part in ('model', 'text')]
import agree
import gguf_write
import many
import odd
import reference

FORCE = 1e3  # what is added to a logit to have its token chosen; log probabilities are those before


class Llama:
    def __init__(self, path, context=4096):
        p = xllamacpp.CommonParams()
        p.model.path, p.n_ctx, p.n_parallel, p.port, p.warmup = str(path), context, 1, 18765, False
        p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1  # more of them wait for each other, and take the processor while they do
        self.server = xllamacpp.Server(p)

    def post(self, path, **fields):
        r = urllib.request.Request(self.server.listening_address + path, json.dumps(fields).encode(), {'Content-Type': 'application/json'})
        return json.load(urllib.request.urlopen(r, timeout=600))

    def encode(self, text):
        return self.post('/tokenize', content=text, add_special=True, parse_special=True)['tokens']

    def complete(self, prompt, n, **more):
        return self.post('/completion', prompt=prompt, n_predict=n, temperature=0, return_tokens=True, cache_prompt=True, **more)

    def greedy(self, prompt):
        return {'prompt': prompt, **answer(self.complete(prompt, real.GENERATED, n_probs=2)['completion_probabilities'])}

    def log_probability(self, before, token):
        return self.complete(before, 1, n_probs=1, logit_bias=[[token, FORCE]])['completion_probabilities'][0]['logprob']

    def chat(self, text):
        messages = [{'role': 'user', 'content': text}]
        r = self.post('/v1/chat/completions', messages=messages, temperature=0, max_tokens=real.GENERATED, logprobs=True, top_logprobs=2)
        return {'prompt_ids': self.encode(self.post('/apply-template', messages=messages)['prompt']), **answer(r['choices'][0]['logprobs']['content'])}


def answer(tokens):
    gaps = [round(t[0]['logprob'] - t[1]['logprob'], 3) for t in (one['top_logprobs'] for one in tokens)]
    return {'tokens': [one['token'] for one in tokens], 'gaps': gaps}


def perplexity_of(path, ids):
    """By the reference, of the second half."""
    m = reference.Model(path)
    m.period = m.period or 6  # what Gemma 3's files do not say
    m.file.meta.setdefault('gemma3.rope.freq_base_swa', 10000.0)
    logits = m.logits(ids)[real.HALF : -1]
    picked = logits[np.arange(len(logits)), ids[real.HALF + 1 :]]
    most = logits.max(1)
    return float(np.exp(np.mean(np.log(np.exp(logits - most[:, None]).sum(1)) + most - picked)))


def figures(name, path):
    llama = Llama(path)
    ids = llama.encode(real.TEXT.read_text(encoding='utf-8'))[: 2 * real.HALF]
    assert len(ids) == 2 * real.HALF, len(ids)
    mean = np.mean([-llama.log_probability(ids[:i], ids[i]) for i in range(real.HALF + 1, len(ids))])
    return {'ids': many.digests(llama.encode, odd.strings(2000)), 'greedy': [llama.greedy(p) for p in real.PROMPTS],
            'chat': {p: llama.chat(p) for p in real.MESSAGES} if name in real.CHATS else {},
            'perplexity': {'llama.cpp': float(np.exp(mean)), 'reference': perplexity_of(path, ids)}}


def with_vocabulary(meta, out):
    """A tiny model of zeros, since the server opens no vocabulary alone."""
    shape = dict(context=256, width=32, layers=1, ffn=32, heads=1, kv_heads=1, head_dim=32, vocab=len(meta['tokenizer.ggml.tokens']))
    w = gguf_write.Writer()
    gguf_write.add_model(w, 'llama', 'vocabulary', shape, 'F32')
    for key, value in meta.items():
        kind = gguf_write.I32 if key.endswith('token_type') else gguf_write.F32 if key.endswith('scores') else None
        if key.startswith('tokenizer.ggml.'):
            w.add(key, value, kind)
    for tensor, rows, kind in gguf_write.model_tensors(shape, 'F32', tied=True):
        w.tensor(tensor, np.zeros(rows, np.float32), kind)
    w.write(out)


def vocabulary(path):
    with tempfile.NamedTemporaryFile(suffix='.gguf') as f:
        with_vocabulary(agree.File(path).meta, f.name)
        return many.digests(Llama(f.name, 256).encode, agree.strings_for(path.stem))


def write(path, version, key, rows):
    """One line a member."""
    lines = ',\n'.join(f'  {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}' for k, v in rows.items())
    path.write_text(f'{{"xllamacpp": "{version}", "{key}": {{\n{lines}}}}}\n', encoding='utf-8')


def main():
    folder, version = pathlib.Path(sys.argv[1]), importlib.metadata.version('xllamacpp')
    write(real.FIGURES, version, 'models', {name: figures(name, real.fetch(name, folder)) for name in real.MODELS})
    vocabularies = sorted(p for p in pathlib.Path(sys.argv[2]).glob('*.gguf'))
    write(real.HERE.parent / 'text/data/odd.json', version, 'ids', {p.stem: vocabulary(p) for p in vocabularies})


if __name__ == '__main__':
    main()
