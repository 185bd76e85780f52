#!/usr/bin/env python3
"""The tolerance of matrix units (MATRIX of src/verify/tolerances.def) is neither too tight nor too loose, without a GPU: the reference's own
products take operands rounded to F16, weights made of scales and minimums in F16 as in cl/kernels/fragments.clh, and stay within it.
Operands in BF16, such as a faulty kernel could take, do not.

    rounding.py
"""
import os
import subprocess
import sys
import tempfile

from common import end, np, say
TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
import gguf_read
import reference
import tolerances

CASES = [('llama', 'F16', 'gqa'), ('llama', 'Q4_0', 'gqa'), ('llama', 'Q4_K', 'gqa'), ('llama', 'Q5_K', 'bias'), ('qwen3', 'Q4_K', 'gqa'),
         ('llama', 'Q4_K', 'experts')]
SEEDS = {'llama Q4_K experts': 30}  # choices of experts that are clear, as in logits.py; 12 for others
TOKENS = [1, 15, 200, 77, 3, 3, 290, 42, 128, 64, 31, 7, 99, 250, 181, 12, 55, 301, 222, 9]


def f16(x):
    return np.asarray(x, np.float16).astype(np.float64)


def bf16(x):
    bits = np.asarray(x, np.float32).view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


def with_minimum(bits):
    """Q4_K, Q5_K: scales and minimums of a group are products of two numbers, rounded."""

    def value(b, e):
        scale, least = gguf_read.scale_min(b['scales'], e // 32)
        high = (b['qh'][:, e % 32] >> e // 32 & 1) << 4 if bits == 5 else 0
        q = gguf_read.four_bits(b['qs'], e) | high
        return f16(b['d'].astype(np.float64) * scale) * q - f16(b['dmin'].astype(np.float64) * least)

    return value


def decoders():
    """Those of the reference, but of formats whose scales are rounded."""
    found = dict(gguf_read.BLOCKS)
    for kind, bits in ((12, 4), (13, 5)):
        fields, block, _ = found[kind]
        found[kind] = fields, block, lambda b, value=with_minimum(bits): gguf_read.each(256, b, value)
    return found


def logits(path, operand, blocks=None):
    plain = gguf_read.BLOCKS
    gguf_read.BLOCKS = blocks or plain
    model = reference.Model(path)
    gguf_read.BLOCKS = plain
    model.operand = operand
    return model.logits(TOKENS), model


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'm.gguf')
        for case in CASES:
            arch, fmt, variant = case
            seed = str(SEEDS.get(' '.join(case), 12))
            tiny = [sys.executable, os.path.join(TESTS, 'model', 'tiny.py'), '--arch', arch, '--type', fmt, '--variant', variant]
            subprocess.run([*tiny, '--seed', seed, path], check=True)
            want, model = logits(path, lambda x: x)
            errors = [tolerances.matrix_error('logits', got, want, model.layers) for got in (logits(path, f16, decoders())[0], logits(path, bf16)[0])]
            say(' '.join(case), errors[0] <= 1 < errors[1], f'operands in F16 {errors[0]:.2f} of the tolerance, in BF16 {errors[1]:.2f}')
    end()


if __name__ == '__main__':
    main()
