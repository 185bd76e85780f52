#!/usr/bin/env python3
"""Checks the demo model against llama.cpp (package llama_cpp) and writes demo.expected.json.

    check.py demo.gguf vocab.txt [--expected demo.expected.json]

Token ids of 200 stories must be those of tokenizer.py. The greedy ids of three prompts go into the
expected file; --reference also compares them with tests/model/reference.py, plain numpy in float64,
and says how near the second best token ever came: that gap keeps the ids equal everywhere.
"""

import argparse
import importlib.metadata
import json
import pathlib
import sys

import llama_cpp
import numpy as np

import corpus
import tokenizer

HERE = pathlib.Path(__file__).parent
PROMPTS = ["Once upon a time", "It was raining", "Lina was a clever girl"]


def ids_of(model, text):
    return model.tokenize(text.encode(), add_bos=True, special=False)


def greedy(model, prompt, limit):
    """Prompt ids and the ids that follow, the end of the story included."""
    ids = ids_of(model, prompt)
    n = len(ids)
    model.reset()
    model.eval(ids)
    while len(ids) < limit:
        ids.append(int(np.argmax(model.scores[model.n_tokens - 1])))
        if ids[-1] == model.token_eos():
            break
        model.eval(ids[-1:])
    return ids[:n], ids[n:]


def same_ids(model, tok):
    """Stories, and what corpora do not have: other characters, spaces in a row, line ends."""
    texts = [corpus.story(n) for n in range(10**6, 10**6 + 200)]
    texts += [
        "",
        " ",
        "  two  spaces ",
        "caf\u00e9 \u96ea \U0001f600",
        "a\n\n\nb\tc",
        "zq QX 123 4.5 <s> </s> <0x41>",
        "ONCE UPON",
        "\u2581 x",
    ]
    wrong = [t for t in texts if ids_of(model, t) != [tokenizer.BOS] + (tok.encode(t) if t else [])]
    print(
        f"{len(texts) - len(wrong)} of {len(texts)} texts have the same ids "
        "in llama.cpp and tokenizer.py"
    )
    for t in wrong[:5]:
        print(f"  {t[:60]!r}\n  {ids_of(model, t)[:20]}\n  {tok.encode(t)[:20]}")
    return not wrong


def same_as_reference(path, cases):
    """Every greedy choice in float64, and the smallest gap to the second best."""
    sys.path.insert(0, str(HERE.parent / "tests" / "model"))
    import reference

    model, good = reference.Model(path), True
    for c in cases:
        n, ids = len(c["prompt_ids"]), c["prompt_ids"] + c["ids"]
        logits = model.logits(ids[:-1])[n - 1 :]
        top = np.sort(logits, 1)[:, -2:]
        same = (logits.argmax(1) == c["ids"]).all()
        print(
            f"{c['prompt']!r}: float64 {'agrees' if same else 'DIFFERS'}, smallest gap "
            f"{(top[:, 1] - top[:, 0]).min():.4f}"
        )
        good = good and same
    return good


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--expected", type=pathlib.Path)
    p.add_argument("--reference", action="store_true")
    p.add_argument(
        "--prompt", action="append", help="shows what these continue to, instead of the usual three"
    )
    p.add_argument("model")
    p.add_argument("vocab")
    a = p.parse_args()
    model = llama_cpp.Llama(a.model, n_ctx=512, logits_all=True, verbose=False, n_threads=2)
    good = same_ids(model, tokenizer.Tokenizer.load(a.vocab))
    cases = []
    for prompt in a.prompt or PROMPTS:
        before, after = greedy(model, prompt, 512)
        text = model.detokenize(before + after).decode().removeprefix(" ")
        print(
            f"--- {prompt!r}: {len(after)} ids, "
            f"{'ends' if after[-1] == tokenizer.EOS else 'DOES NOT END'}\n{text}"
        )
        cases.append(dict(prompt=prompt, prompt_ids=before, ids=after, text=text))
    if a.reference:
        good = same_as_reference(a.model, cases) and good
    if a.expected:
        made = (
            f"llama.cpp (llama_cpp_python {importlib.metadata.version('llama_cpp_python')}), greedy"
        )
        rows = ",\n".join("  " + json.dumps(c) for c in cases)
        a.expected.write_text(f'{{"made_by": {json.dumps(made)},\n "cases": [\n{rows}\n]}}\n')
    sys.exit(not good)


if __name__ == "__main__":
    main()
