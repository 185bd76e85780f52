#!/usr/bin/env python3
"""Tiny models of each architecture that llama.cpp knows, as GGUF files that weft makes of folders: what weft writes greedily, and its perplexity, are
llama.cpp's of the same files (tests/model/make_llamacpp.py, with its version in tests/model/data/llamacpp.json).

    llamacpp.py WEFT SOURCES

The logarithm of the perplexity, a mean of differences of logits, may be off by as much as a logit may.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from common import end, np, say
import changed
import tolerances

weft, data = sys.argv[1], pathlib.Path(sys.argv[2]) / 'tests/model/data'
MOST = tolerances.rows('MODEL')['logits'][0]


def compare(name, want):
    """What differs, in words; '' if nothing does."""
    prompt = json.loads((data / name / 'ids.json').read_text())['prompt']
    with tempfile.TemporaryDirectory() as top:
        file, out = changed.convert(weft, data / name, want['change'], top), f'{top}/logits.npy'
        if changed.names(file) != want['names']:
            return 'keys or tensors have other names than the file that llama.cpp read: run make_llamacpp.py'
        tokens = ','.join(map(str, prompt + want['ids']))
        subprocess.run([weft, 'perplexity', '-m', file, '--tokens', tokens, '--logits', out, '--device', 'cpu'], check=True, capture_output=True)
        logits = np.load(out)
    ids, got = logits[len(prompt) - 1 : -1].argmax(1).tolist(), changed.perplexity(logits, prompt + want['ids'])
    if ids != want['ids']:
        return f'ids {ids}, not {want["ids"]}'
    close = abs(np.log(got / want['perplexity'])) <= MOST * (logits.max() - logits.min())  # NaN is not
    return '' if close else f'perplexity {got:.4f}, not {want["perplexity"]:.4f}'


for name, want in json.loads((data / 'llamacpp.json').read_text())['models'].items():
    wrong = compare(name, want)
    say(name, not wrong, wrong or 'ids and perplexity of llama.cpp')
end()
