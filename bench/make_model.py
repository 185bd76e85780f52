#!/usr/bin/env python3
"""Writes a model of a well-known shape with random weights, to measure speed without a download.

    make_model.py --shape llama3-8b --type F16 OUT.gguf

Every matrix is put together from random slices of one pool of encoded weights, so memory stays
far under 1 GB and time goes into writing the file.
"""

import argparse
import ast
import math
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / 'tests' / 'model'))
import gguf_write as gw  # noqa: E402

TABLE = Path(__file__).resolve().parent.parent / 'src' / 'model' / 'shapes.def'
FIELDS = 'name arch layers width heads kv_heads head_dim ffn vocab context rope_base eps experts experts_used parts'.split()
PARTS = {'T': 'tied', 'B': 'bias', 'F': 'freqs', 'N': 'head_norms'}


def shapes():
    """weft's own table, as `weft bench --shape` has it."""
    for row in re.findall(r'^X\((.*)\)$', TABLE.read_text(), re.M):
        s = {k: v for k, v in zip(FIELDS, ast.literal_eval(f'({row})')) if v != 0}
        if not set(s['parts']) <= set(PARTS):
            continue  # that weft alone makes
        s.update({PARTS[c]: True for c in s['parts']}, rope_base=float(s['rope_base']))
        yield s.pop('name'), s


SHAPES = dict(shapes())
POOL = 1 << 23  # elements, a multiple of every block
CHUNK = 1 << 21  # elements written at once


class Pool:
    """Encoded N(0, 1 / K) weights of one type; slices start at any block."""

    def __init__(self, kind, k, base):
        _, self.block, self.size = gw.TYPES[kind]
        x = base / np.float32(k) ** np.float32(0.5)
        with ThreadPoolExecutor() as ex:  # numpy lets go of the interpreter in most steps
            parts = list(ex.map(lambda p: gw.quantize(kind, p), np.split(x, 16)))
        self.data = memoryview(np.concatenate(parts))

    def write(self, fd, offset, n, rng):
        while n:
            m = min(n, CHUNK)
            start = int(rng.integers((POOL - m) // self.block + 1)) * self.size
            left = self.data[start : start + m // self.block * self.size]
            n -= m
            while left:
                done = os.pwrite(fd, left, offset)
                offset += done
                left = left[done:]


def small(name, shape, rng):
    if name == 'rope_freqs.weight':
        return np.geomspace(1, 8, shape[0])
    return (0.1 if name.endswith('.bias') else 1) + 0.1 * rng.standard_normal(shape)


def write_model(path, s, kind, seed, threads):
    rng = np.random.default_rng(seed)
    w = gw.Writer()
    gw.add_model(w, s['arch'], f'random {s["name"]}', s, kind)
    gw.add_vocab(w, [], s['vocab'])
    for name, shape, t in gw.model_tensors(s, kind, s.get('tied'), s.get('bias'), s.get('freqs'), s.get('head_norms')):
        if len(shape) == 1:
            w.tensor(name, small(name, shape, rng).astype(np.float32), t)
        else:
            w.reserve(name, shape, t)
    head, offsets, size = w.layout()
    base = rng.standard_normal(POOL, np.float32)
    pools = {
        p: Pool(*p, base) for p in {(t, shape[-1]) for _, shape, t, d in w.tensors if d is None}
    }
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.ftruncate(fd, size)
    os.pwrite(fd, head, 0)

    def one(i):
        name, shape, t, data = w.tensors[i]
        if data is not None:
            os.pwrite(fd, data, offsets[i])
        else:
            pools[t, shape[-1]].write(
                fd, offsets[i], math.prod(shape), np.random.default_rng([seed, i])
            )

    with ThreadPoolExecutor(threads) as ex:
        list(ex.map(one, range(len(w.tensors))))
    os.close(fd)
    return size


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument('--shape', choices=list(SHAPES), required=True)
    p.add_argument('--type', choices=[*gw.TYPES, *gw.MIXES], default='F16')
    p.add_argument('--layers', type=int, help='fewer layers than the original')
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--threads', type=int, default=min(16, os.cpu_count()))
    p.add_argument('out')
    a = p.parse_args()
    s = dict(SHAPES[a.shape], name=a.shape)
    s['layers'] = a.layers or s['layers']
    block = gw.TYPES[gw.base_kind(a.type)][1]
    if s['width'] % block or s['ffn'] % block:
        sys.exit(
            f'make_model.py: {a.shape} has rows that are no multiple of {block} ({a.type})'
        )
    start = time.time()
    size = write_model(a.out, s, a.type, a.seed, a.threads)
    print(f'{a.out}: {size / 1e9:.2f} GB in {time.time() - start:.1f} s')


if __name__ == '__main__':
    main()
