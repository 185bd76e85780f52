#!/usr/bin/env python3
"""Logits of a GGUF model in float64: the truth that every backend is compared with.

Independent on purpose: it shares no code with weft nor with gguf_write.py, reads the file by itself
and computes everything in plain numpy, in double precision, over the dequantised weights. Of weft it takes
only the lists of numbers of IQ2 and IQ3 (src/tensor/quant/grids).

    reference.py FILE --tokens 1,2,3 OUT.npy       logits [tokens, vocabulary]; of experts also how close a choice was
    reference.py FILE --tokens 1 --generate 20     greedy ids, one a line

--attention-windows FILE: sparse attention as that file says (src/engine/attention_windows.h).
"""

import argparse
import functools
import mmap
import pathlib
import re
import struct
import sys

import numpy as np

SCALARS = {
    0: '<B',
    1: '<b',
    2: '<H',
    3: '<h',
    4: '<I',
    5: '<i',
    6: '<f',
    7: '<?',
    10: '<Q',
    11: '<q',
    12: '<d',
}


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


class Model:
    def __init__(self, path):
        f = self.file = File(path)
        arch = f.meta['general.architecture']
        if arch not in ('llama', 'qwen2', 'qwen3', 'qwen3moe'):
            sys.exit(f'architecture {arch} is not supported')
        get = lambda key, default=None: f.meta.get(f'{arch}.{key}', default)
        self.neox = arch != 'llama'
        self.layers, self.heads = get('block_count'), get('attention.head_count')
        self.kv_heads = get('attention.head_count_kv', self.heads)
        self.head_dim = get('attention.key_length', get('embedding_length') // self.heads)
        self.eps = get('attention.layer_norm_rms_epsilon')
        self.n_rot = get('rope.dimension_count', self.head_dim)
        kind = get('rope.scaling.type', 'linear' if get('rope.scale_linear') else 'none')
        if kind not in ('none', 'linear', 'yarn'):
            sys.exit(f'rope scaling {kind} is not supported')
        factor = (
            get('rope.scaling.factor', get('rope.scale_linear', 1.0)) if kind == 'linear' else 1.0
        )
        i = np.arange(self.n_rot // 2)
        self.freq = get('rope.freq_base', 10000.0) ** (-2.0 * i / self.n_rot) / (factor or 1.0)
        self.gain = 1.0
        if kind == 'yarn':
            self.yarn(get('rope.scaling.factor'), get('rope.scaling.original_context_length'))
        self.window, self.period = get('attention.sliding_window', 0), get('attention.sliding_window_pattern', 0)
        self.softcaps = get('attn_logit_softcapping'), get('final_logit_softcapping')
        stretch = f.weight('rope_freqs.weight', optional=True)
        if stretch is not None:
            self.freq = self.freq / stretch
        self.embd = f.weight('token_embd.weight')
        self.out = f.weight('output.weight', optional=True)
        self.out = self.embd if self.out is None else self.out
        self.norm = f.weight('output_norm.weight')
        names = (
            'attn_norm',
            'attn_q',
            'attn_k',
            'attn_v',
            'attn_output',
            'ffn_norm',
            'ffn_gate',
            'ffn_up',
            'ffn_down',
        )
        self.experts = get('expert_count', 0)
        self.used, self.sigmoid = get('expert_used_count'), get('expert_gating_func', 1) == 2
        self.normalise, self.scale = get('expert_weights_norm', True), get('expert_weights_scale', 1.0)
        self.gap = np.inf  # of all tokens so far, the least between the last expert that was chosen and the next
        if self.experts:
            names = names[:-3] + ('ffn_gate_inp',)
        if arch in ('qwen3', 'qwen3moe'):
            names += ('attn_q_norm', 'attn_k_norm')
        self.blocks = [
            {
                n: (f.weight(f'blk.{b}.{n}.weight'), f.weight(f'blk.{b}.{n}.bias', optional=True))
                for n in names
            }
            for b in range(self.layers)
        ]
        for i, b in enumerate(self.blocks if self.experts else []):
            b['experts'] = [self.stack(f'blk.{i}.ffn_{part}') for part in ('gate', 'up', 'down')]

        self.windows = None  # or what read_windows gives

    def stack(self, name):
        """[experts, rows, K]"""
        one = self.file.weight(f'{name}_exps.weight', optional=True)
        return np.stack([self.file.weight(f'{name}.{e}.weight') for e in range(self.experts)]) if one is None else one

    @staticmethod
    def operand(x):
        """As a product takes it; tests of rounding have others."""
        return x

    def product(self, x, w):
        return self.operand(x) @ self.operand(w).T

    def mixture(self, y, b):
        """Of each token the experts with the largest scores, by their weights."""
        gate, up, down = b['experts']
        out = np.zeros_like(y)
        for row, x in enumerate(y):
            scores = self.product(x, b['ffn_gate_inp'][0])
            best = np.argsort(-scores, kind='stable')
            if self.used < self.experts:
                self.gap = min(self.gap, scores[best[self.used - 1]] - scores[best[self.used]])
            share = 1 / (1 + np.exp(-scores)) if self.sigmoid else np.exp(scores) / np.exp(scores).sum()
            whole = share[best[: self.used]].sum() if self.normalise else 1
            for e in best[: self.used]:
                g = self.product(x, gate[e])
                out[row] += share[e] / whole * self.scale * self.product(g / (1 + np.exp(-g)) * self.product(x, up[e]), down[e])
        return out

    def yarn(self, factor, context, fast=32, slow=1):
        """Pairs that turn `fast` times within the context stay, those that turn less than `slow` times are slowed down."""
        turns = context * self.freq / (2 * np.pi)
        span = np.log(turns[0] / turns[1])  # of neighbours
        low, high = (np.log(turns[0] / n) / span for n in (fast, slow))
        low, high = max(np.floor(low), 0), min(np.ceil(high), self.n_rot - 1)
        part = np.clip((np.arange(len(turns)) - low) / max(high - low, 1e-3), 0, 1)
        self.freq = self.freq * (1 - part + part / factor)
        self.gain = 1 + 0.1 * np.log(factor)

    @staticmethod
    def capped(x, cap):
        return cap * np.tanh(x / cap) if cap else x

    def rms(self, x, w):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * w

    def rope(self, x):
        """x [tokens, heads, head size]; the first n_rot of each head turn."""
        angle = np.arange(len(x))[:, None, None] * self.freq
        cos, sin = self.gain * np.cos(angle), self.gain * np.sin(angle)
        half, n = self.n_rot // 2, self.n_rot
        a, b = (
            (np.s_[..., :half], np.s_[..., half:n])
            if self.neox
            else (np.s_[..., 0:n:2], np.s_[..., 1:n:2])
        )
        y = x.copy()
        y[a] = x[a] * cos - x[b] * sin
        y[b] = x[a] * sin + x[b] * cos
        return y

    def hidden(self, t, head):
        """[t, t] of each row and key: does the row not see the key?"""
        pos, key = np.arange(t)[:, None], np.arange(t)
        sink, windows = self.windows or (0, None)
        local = self.window if not self.period or (self.layer + 1) % self.period else 0
        own = windows[self.layer] if windows else [local]  # of the query heads, or of the KV heads that they share
        window = own[head * len(own) // self.heads]
        return (key > pos) | ((window > 0) & (key >= sink) & (key <= pos - window))

    def attention(self, q, k, v):
        t, rep = len(q), self.heads // self.kv_heads
        out = np.empty_like(q)
        for h in range(self.heads):
            s = self.capped(self.product(q[:, h], k[:, h // rep]) / np.sqrt(self.head_dim), self.softcaps[0])
            s[self.hidden(t, h)] = -np.inf
            p = np.exp(s - s.max(1, keepdims=True))
            out[:, h] = self.product(p / p.sum(1, keepdims=True), v[:, h // rep].T)
        return out

    def block(self, x, b):
        def linear(y, name):
            w, bias = b[name]
            return self.product(y, w) + (0 if bias is None else bias)

        t = len(x)
        y = self.rms(x, b['attn_norm'][0])
        q = linear(y, 'attn_q').reshape(t, self.heads, self.head_dim)
        k = linear(y, 'attn_k').reshape(t, self.kv_heads, self.head_dim)
        v = linear(y, 'attn_v').reshape(t, self.kv_heads, self.head_dim)
        if 'attn_q_norm' in b:
            q, k = self.rms(q, b['attn_q_norm'][0]), self.rms(k, b['attn_k_norm'][0])
        x = x + linear(self.attention(self.rope(q), self.rope(k), v).reshape(t, -1), 'attn_output')
        y = self.rms(x, b['ffn_norm'][0])
        if self.experts:
            return x + self.mixture(y, b)
        gate = linear(y, 'ffn_gate')
        return x + linear(gate / (1 + np.exp(-gate)) * linear(y, 'ffn_up'), 'ffn_down')

    def logits(self, tokens):
        x = self.embd[tokens]
        for self.layer, b in enumerate(self.blocks):
            x = self.block(x, b)
        return self.capped(self.product(self.rms(x, self.norm), self.out), self.softcaps[1])


def read_windows(path):
    """The sink, and a list of windows for each layer."""
    sink, layers = 0, {}
    with open(path, encoding='utf-8') as f:
        rows = [line.split('#')[0].split() for line in f][1:]
    for kind, first, *windows in filter(None, rows):
        if kind == 'sink':
            sink = int(first)
        else:
            layers[int(first)] = [int(s) for s in windows]
    return sink, layers


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument('file')
    p.add_argument('--tokens', required=True, type=lambda s: [int(t) for t in s.split(',')])
    p.add_argument('--generate', type=int, default=0)
    p.add_argument('--attention-windows')
    p.add_argument('out', nargs='?')
    a = p.parse_intermixed_args()
    m = Model(a.file)
    m.windows = read_windows(a.attention_windows) if a.attention_windows else None
    tokens = list(a.tokens)
    for _ in range(a.generate):
        tokens.append(int(m.logits(tokens)[-1].argmax()))
        print(tokens[-1])
    if a.out:
        np.save(a.out, m.logits(a.tokens))
    if a.out and m.experts:
        print('router gap', m.gap)


if __name__ == '__main__':
    main()
