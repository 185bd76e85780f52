"""GGUF files: metadata, and tensors decoded to float64. Independent on purpose: it shares no code with weft nor with gguf_write.py. Of weft it takes
only the lists of numbers of IQ2 and IQ3 (src/tensor/quant/grids).
"""
import functools
import mmap
import pathlib
import re
import struct
import sys

import numpy as np

SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), '<B <b <H <h <I <i <f <? <Q <q <d'.split()))


class File:
    """Metadata as a dict; tensors decoded when asked for."""

    def __init__(self, path):
        with open(path, 'rb') as f:
            self.buf = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        self.at = 4
        if self.buf[:4] != b'GGUF' or self.one('<I') not in (2, 3):
            sys.exit(f'{path}: not a GGUF file of version 2 or 3')
        n_tensors, n_meta = self.one('<Q'), self.one('<Q')
        self.meta = {}
        for _ in range(n_meta):
            key = self.text()
            self.meta[key] = self.value(self.one('<I'))
        self.end_of_meta = self.at
        self.tensors = {}
        for _ in range(n_tensors):
            name = self.text()
            dims = [self.one('<Q') for _ in range(self.one('<I'))]
            self.tensors[name] = dims, self.one('<I'), self.one('<Q')
        a = self.meta.get('general.alignment', 32)
        self.data = (self.at + a - 1) // a * a

    def one(self, fmt):
        (v,) = struct.unpack_from(fmt, self.buf, self.at)
        self.at += struct.calcsize(fmt)
        return v

    def text(self):
        n = self.one('<Q')
        self.at += n
        return self.buf[self.at - n : self.at].decode('utf-8', 'replace')

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            item, n = self.one('<I'), self.one('<Q')
            return [self.value(item) for _ in range(n)]
        return self.one(SCALARS[kind])

    def weight(self, name, optional=False):
        """[rows, K] or [K], float64."""
        if name not in self.tensors:
            if optional:
                return None
            sys.exit(f'tensor {name} is missing')
        dims, kind, offset = self.tensors[name]
        n = int(np.prod(dims))
        return decode(kind, self.buf, self.data + offset, n).reshape(dims[::-1])


def decode(kind, buf, at, n):
    if kind == 0:
        return np.frombuffer(buf, '<f4', n, at).astype(np.float64)
    if kind == 1:
        return np.frombuffer(buf, '<f2', n, at).astype(np.float64)
    if kind == 30:
        bits = np.frombuffer(buf, '<u2', n, at).astype('<u4') << 16
        return bits.view('<f4').astype(np.float64)
    if kind == 8:
        b = np.frombuffer(buf, [('d', '<f2'), ('q', 'i1', 32)], n // 32, at)
        return b['d'].astype(np.float64)[:, None] * b['q']
    if kind == 2:
        b = np.frombuffer(buf, [('d', '<f2'), ('q', 'u1', 16)], n // 32, at)
        q = np.concatenate([b['q'] & 15, b['q'] >> 4], 1).astype(np.float64)
        return b['d'].astype(np.float64)[:, None] * (q - 8)
    if kind == 3:
        b = np.frombuffer(buf, [('d', '<f2'), ('m', '<f2'), ('q', 'u1', 16)], n // 32, at)
        q = np.concatenate([b['q'] & 15, b['q'] >> 4], 1).astype(np.float64)
        return b['d'].astype(np.float64)[:, None] * q + b['m'].astype(np.float64)[:, None]
    if kind in BLOCKS:
        fields, block, decoder = BLOCKS[kind]
        return decoder(np.frombuffer(buf, fields, n // block, at))
    sys.exit(f'tensor type {kind} is not supported')


# Block formats straight from the layouts' definition (ggml-common.h), element by element: an element's
# number is `e`, its value computed for all blocks at once.

IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float64)
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def f64(x):
    return x.astype(np.float64)


def each(n, b, value):
    """[blocks, n]: value(b, e) for each e."""
    return np.stack([value(b, e) for e in range(n)], 1)


def nibble(q, e):
    """Of blocks of 32: element e + 16 shares the byte of element e."""
    return q[:, e] & 15 if e < 16 else q[:, e - 16] >> 4


def q5_0(b, e):
    return f64(b['d']) * (f64(nibble(b['qs'], e) | (b['qh'] >> e & 1) << 4) - 16)


def q5_1(b, e):
    return f64(b['d']) * f64(nibble(b['qs'], e) | (b['qh'] >> e & 1) << 4) + f64(b['m'])


def two_bits(qs, e):
    half, rest = divmod(e, 128)
    return qs[:, 32 * half + rest % 32] >> 2 * (rest // 32) & 3


def q2_k(b, e):
    s = b['scales'][:, e // 16]
    return f64(b['d']) * (s & 15) * f64(two_bits(b['qs'], e)) - f64(b['dmin']) * (s >> 4)


def q3_k(b, e):
    g, s = e // 16, b['scales']
    low = s[:, g] & 15 if g < 8 else s[:, g - 8] >> 4
    scale = f64(low | (s[:, 8 + g % 4] >> 2 * (g // 4) & 3) << 4) - 32
    high = b['hmask'][:, e % 32] >> e // 32 & 1
    return f64(b['d']) * scale * (f64(two_bits(b['qs'], e)) - 4 * (1 - f64(high)))


def scale_min(s, j):
    if j < 4:
        return s[:, j] & 63, s[:, j + 4] & 63
    return s[:, j + 4] & 15 | (s[:, j - 4] >> 6) << 4, s[:, j + 4] >> 4 | (s[:, j] >> 6) << 4


def four_bits(qs, e):
    chunk, rest = divmod(e, 64)
    return qs[:, 32 * chunk + rest] & 15 if rest < 32 else qs[:, 32 * chunk + rest - 32] >> 4


def q4_k(b, e):
    scale, least = scale_min(b['scales'], e // 32)
    return f64(b['d']) * scale * f64(four_bits(b['qs'], e)) - f64(b['dmin']) * least


def q5_k(b, e):
    scale, least = scale_min(b['scales'], e // 32)
    q = four_bits(b['qs'], e) | (b['qh'][:, e % 32] >> e // 32 & 1) << 4
    return f64(b['d']) * scale * f64(q) - f64(b['dmin']) * least


def q6_k(b, e):
    half, rest = divmod(e, 128)
    quarter, at = divmod(rest, 32)
    low = b['ql'][:, 64 * half + at + (32 if quarter in (1, 3) else 0)]
    low = low & 15 if quarter < 2 else low >> 4
    high = b['qh'][:, 32 * half + at] >> 2 * quarter & 3
    return f64(b['d']) * b['scales'][:, e // 16] * (f64(low | high << 4) - 32)


def iq4_nl(b, e):
    return f64(b['d']) * IQ4[nibble(b['qs'], e)]


def iq4_xs(b, e):
    g = e // 32
    low = b['scales_l'][:, g // 2] >> 4 * (g % 2) & 15
    scale = f64(low) + 16 * f64(b['scales_h'] >> 2 * g & 3) - 32
    return f64(b['d']) * scale * IQ4[nibble(b['qs'][:, 16 * g : 16 * g + 16], e % 32)]


GRIDS = pathlib.Path(__file__).resolve().parents[2] / 'src/tensor/quant/grids'
EIGHTS = np.array([8, 25, 43, 0], np.float64)
FOURS = {'iq3_xxs': np.array([4, 12, 20, 28, 36, 44, 52, 62], np.float64), 'iq3_s': np.arange(1, 16, 2, np.float64)}


@functools.cache
def grid(name):
    """[entries, weights of an entry]."""
    text = (GRIDS / f'{name}.def').read_text(encoding='utf-8')
    entries = np.array([int(e, 16) for e in re.findall('0x[0-9a-f]{4}', text)])[:, None]
    if name in FOURS:
        return FOURS[name][entries >> 4 * np.arange(4) & 7]
    return EIGHTS[entries >> 2 * np.arange(8) & 3]


def sign(bits, i):
    return 1 - 2 * f64(bits >> i & 1)


def seven_signs(bits, i):
    """Bit 7 makes the number of minuses even."""
    return sign(bits, i) if i < 7 else 1 - 2 * f64(sum(bits >> k & 1 for k in range(7)) % 2)


def odd(scale):
    return 2 * f64(scale) + 1


def iq2_xxs(b, e):
    group, at = divmod(e, 32)
    word = b['groups']['word'][:, group]
    weight = grid('iq2_xxs')[b['groups']['q'][:, group, at // 8], at % 8] * seven_signs(word >> 7 * (at // 8) & 127, at % 8)
    return f64(b['d']) / 8 * odd(word >> 28) * weight


def iq2_xs(b, e):
    q = b['qs'][:, e // 8]
    weight = grid('iq2_xs')[q & 511, e % 8] * seven_signs(q >> 9, e % 8)
    return f64(b['d']) / 8 * odd(nibble_of(b['scales'], e // 16)) * weight


def iq2_s(b, e):
    i = e // 8
    entry = b['qs'][:, i] | (b['qh'][:, i // 4].astype(int) >> 2 * (i % 4) & 3) << 8
    weight = grid('iq2_s')[entry, e % 8] * sign(b['signs'][:, i], e % 8)
    return f64(b['d']) / 8 * odd(nibble_of(b['scales'], e // 16)) * weight


def iq3_xxs(b, e):
    word = b['words'][:, e // 32]
    weight = grid('iq3_xxs')[b['qs'][:, e // 4], e % 4] * seven_signs(word >> 7 * (e % 32 // 8) & 127, e % 8)
    return f64(b['d']) / 4 * odd(word >> 28) * weight


def iq3_s(b, e):
    i = e // 4
    entry = b['qs'][:, i] | (b['qh'][:, i // 8].astype(int) >> i % 8 & 1) << 8
    weight = grid('iq3_s')[entry, e % 4] * sign(b['signs'][:, e // 8], e % 8)
    return f64(b['d']) * odd(nibble_of(b['scales'], e // 32)) * weight


def nibble_of(scales, i):
    return scales[:, i // 2] >> 4 * (i % 2) & 15


def mxfp4(b, e):
    return np.exp2(f64(b['e']) - 127) * FP4[nibble(b['qs'], e)]


def blocks(n, value, *fields):
    return list(fields), n, lambda b: each(n, b, value)


D, DMIN = ('d', '<f2'), ('dmin', '<f2')
BLOCKS = {
    6: blocks(32, q5_0, D, ('qh', '<u4'), ('qs', 'u1', 16)),
    7: blocks(32, q5_1, D, ('m', '<f2'), ('qh', '<u4'), ('qs', 'u1', 16)),
    10: blocks(256, q2_k, ('scales', 'u1', 16), ('qs', 'u1', 64), D, DMIN),
    11: blocks(256, q3_k, ('hmask', 'u1', 32), ('qs', 'u1', 64), ('scales', 'u1', 12), D),
    12: blocks(256, q4_k, D, DMIN, ('scales', 'u1', 12), ('qs', 'u1', 128)),
    13: blocks(256, q5_k, D, DMIN, ('scales', 'u1', 12), ('qh', 'u1', 32), ('qs', 'u1', 128)),
    14: blocks(256, q6_k, ('ql', 'u1', 128), ('qh', 'u1', 64), ('scales', 'i1', 16), D),
    16: blocks(256, iq2_xxs, D, ('groups', [('q', 'u1', 4), ('word', '<u4')], 8)),
    17: blocks(256, iq2_xs, D, ('qs', '<u2', 32), ('scales', 'u1', 8)),
    18: blocks(256, iq3_xxs, D, ('qs', 'u1', 64), ('words', '<u4', 8)),
    20: blocks(32, iq4_nl, D, ('qs', 'u1', 16)),
    21: blocks(256, iq3_s, D, ('qs', 'u1', 64), ('qh', 'u1', 8), ('signs', 'u1', 32), ('scales', 'u1', 4)),
    22: blocks(256, iq2_s, D, ('qs', 'u1', 32), ('signs', 'u1', 32), ('qh', 'u1', 8), ('scales', 'u1', 8)),
    23: blocks(256, iq4_xs, D, ('scales_h', '<u2'), ('scales_l', 'u1', 4), ('qs', 'u1', 128)),
    39: blocks(32, mxfp4, ('e', 'u1'), ('qs', 'u1', 16)),
}
