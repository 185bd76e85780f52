#!/usr/bin/env python3
"""Writes format_blocks.def: blocks of random bytes with the FNV-1a of the values that ggml's own Python package gives them.

    python3 format_blocks.py > format_blocks.def        needs numpy and gguf (made with gguf 0.19.0, numpy 2.4)

The F16 scales of a block are set to small numbers; the rest is random.
"""

import gguf
import numpy as np

HALVES = {  # where a block's F16 scales lie
    'Q8_0': [0], 'Q4_0': [0], 'Q4_1': [0, 2], 'Q5_0': [0], 'Q5_1': [0, 2],
    'Q2_K': [80, 82], 'Q3_K': [108], 'Q4_K': [0, 2], 'Q5_K': [0, 2], 'Q6_K': [208],
    'IQ2_XXS': [0], 'IQ2_XS': [0], 'IQ2_S': [0], 'IQ3_XXS': [0], 'IQ3_S': [0], 'IQ4_NL': [0], 'IQ4_XS': [0], 'MXFP4': [],
}  # fmt: skip


def blocks(name, rng):
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    b = rng.integers(0, 256, (256 // block, size), dtype=np.uint8)
    for at in HALVES[name]:
        b[:, at : at + 2] = rng.normal(0, 0.02, len(b)).astype('<f2').view(np.uint8).reshape(-1, 2)
    if name == 'MXFP4':
        b[:, 0] = [0, 1, 2, 100, 127, 130, 254, 255]
    return b


def text(data):
    h = data.hex()
    return '\n'.join(f'  "{h[i : i + 112]}"' for i in range(0, len(h), 112))


def fnv(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


def main():
    rng = np.random.default_rng(11)
    print('/* X(format, bytes of 256 weights, FNV-1a of their values as F32), made by format_blocks.py. */')
    for name in HALVES:
        b = blocks(name, rng)
        x = gguf.dequantize(b, gguf.GGMLQuantizationType[name]).astype('<f4')
        print(f'X({name},\n{text(b.tobytes())}, 0x{fnv(x.tobytes()):016x}u)')


if __name__ == '__main__':
    main()
