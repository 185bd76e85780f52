#!/usr/bin/env python3
"""Logits of tiny models in every format and architecture, against an independent float64 forward pass.

    logits.py WEFT SOURCES DEVICE [--force OP=VARIANT]

The largest error may be 1e-3 of the range of the reference's logits, on every device and in every format.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np

from device import build_once, resolve

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'model'))
from gguf_write import TYPES as FORMATS
from tiny import ARCHS

VARIANTS = ['gqa', 'mha', 'tied', 'headdim', 'rope_freqs', 'linear', 'partial-rope', 'bias']
LIMIT = 1e-3
WINDOWS = """weft-attention-windows 1
sink 2
layer 0 5 0
layer 1 0 0  # as without
layer 2 1 9
"""
TOKENS = '1,15,200,77,3,3,290,42,128,64,31,7,99,250,181,12,55,301,222,9'


def cases():
    """Architecture, format, variant and whether there are windows."""
    for case in plain_cases():
        yield *case, False
    yield 'llama', 'F16', 'gqa', True


def plain_cases():
    for arch in ARCHS:
        for fmt in FORMATS:
            yield arch, fmt, 'gqa'
    for variant in VARIANTS[1:]:
        yield 'llama', 'F32', variant
    yield 'qwen2', 'Q4_0', 'tied'
    yield 'qwen3', 'F16', 'headdim,tied'


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f'{" ".join(command)}: exit {done.returncode}: {done.stderr.strip()[-500:]}')


def worst_error(args, folder, arch, fmt, variant, windows, seed):
    model, want, got, file = (os.path.join(folder, n) for n in ('m.gguf', 'want.npy', 'got.npy', 'windows'))
    with open(file, 'w', encoding='utf-8') as f:
        f.write(WINDOWS)
    more = ['--attention-windows', file] if windows else []
    tools = os.path.join(args.sources, 'tests', 'model')
    run(sys.executable, os.path.join(tools, 'tiny.py'), '--arch', arch, '--type', fmt, '--variant', variant, '--seed', seed, model)
    run(sys.executable, os.path.join(tools, 'reference.py'), model, '--tokens', TOKENS, *more, want)
    force = ['--force', args.force] if args.force else []
    run(args.weft, 'perplexity', '-m', model, '--tokens', TOKENS, '--logits', got, '--device', args.device, *args.once, *force, *more)
    a, b = np.load(want), np.load(got)
    assert a.shape == b.shape and b.dtype == np.float32, (a.shape, b.shape, b.dtype)
    return np.abs(a - b).max() / (a.max() - a.min())


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('weft')
    p.add_argument('sources')
    p.add_argument('device')
    p.add_argument('--force', default='')
    args = p.parse_args()
    args.device = resolve(args.weft, args.device)
    args.once = build_once(args.weft, args.device)
    seed = str(int.from_bytes(os.urandom(3), 'little'))
    print(f'seed {seed}')
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for arch, fmt, variant, windows in cases():
            error = worst_error(args, folder, arch, fmt, variant, windows, seed)
            ok = error <= LIMIT  # NaN is not
            failed += not ok
            print(f'{"ok" if ok else "FAILED":6} {args.device} {args.force} {arch} {fmt} {variant}{" windows" if windows else ""}: {error:.2e} of the range, limit {LIMIT:g}', flush=True)
    sys.exit(failed > 0)


if __name__ == '__main__':
    main()
