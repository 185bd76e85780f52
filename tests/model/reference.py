#!/usr/bin/env python3
"""Logits of a GGUF model in float64: the truth that every backend is compared with.

Independent on purpose: it shares no code with weft, and computes everything in plain numpy, in double precision, over the weights
that gguf_read.py decodes. Written from the definitions in transformers; the test `architectures` holds it to logits that transformers
computed, of each architecture.

    reference.py FILE --tokens 1,2,3 OUT.npy       logits [tokens, vocabulary]; of experts also how close a choice was
    reference.py FILE --tokens 1 --generate 20     greedy ids, one a line

--attention-windows FILE: sparse attention as that file says (src/model/weights/attention_windows.h).
"""

import argparse
import math
import sys

import numpy as np

from gguf_read import File

LAYER_NORM = ['command-r', 'falcon', 'gpt2', 'opt', 'starcoder2']
HALVES = ['falcon', 'gemma2', 'gemma3', 'gpt-oss', 'olmo2', 'phi3', 'qwen2', 'qwen2moe', 'qwen3', 'qwen3moe', 'starcoder2']  # pairs of RoPE are half a head apart
PARALLEL = ['command-r', 'falcon']  # attention and feed-forward read the same
LIMIT, SLOPE = 7, 1.702  # of the gate of gpt-oss


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_tanh(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS = {'falcon': gelu, 'gemma2': gelu_tanh, 'gemma3': gelu_tanh, 'gpt2': gelu_tanh, 'opt': lambda x: np.maximum(x, 0), 'starcoder2': gelu_tanh}


class Model:
    def __init__(self, path):
        f = self.file = File(path)
        self.arch = f.meta['general.architecture']
        self.layers, self.heads, width = self.get('block_count'), self.get('attention.head_count'), self.get('embedding_length')
        self.kv_heads = self.get('attention.head_count_kv', self.heads)
        self.head_dim = self.get('attention.key_length', width // self.heads)
        self.n_rot, self.neox = self.get('rope.dimension_count', self.head_dim), self.arch in HALVES
        self.eps = self.get('attention.layer_norm_epsilon') or self.get('attention.layer_norm_rms_epsilon')
        self.window, self.period = self.get('attention.sliding_window', 0), self.get('attention.sliding_window_pattern', 0)
        self.softcaps = self.get('attn_logit_softcapping'), self.get('final_logit_softcapping')
        self.experts, self.used, self.sigmoid = self.get('expert_count', 0), self.get('expert_used_count'), self.get('expert_gating_func', 1) == 2
        self.normalise, self.scale = self.get('expert_weights_norm', True), self.get('expert_weights_scale', 1.0)
        self.activation = ACTIVATIONS.get(self.arch, silu)
        self.embedding_scale = width**0.5 if self.arch.startswith('gemma') else self.get('embedding_scale', 1)
        self.top = {name: self.pair(name) for name in ('token_embd', 'output', 'output_norm', 'position_embd') if name + '.weight' in f.tensors}
        self.blocks = [self.layer_of(f'blk.{i}.') for i in range(self.layers)]
        self.gap = np.inf  # of all tokens so far, the least between the last expert that was chosen and the next
        self.windows = None  # or what read_windows gives

    def get(self, key, default=None):
        return self.file.meta.get(f'{self.arch}.{key}', default)

    def pair(self, name):
        return self.file.weight(f'{name}.weight'), self.file.weight(f'{name}.bias', optional=True)

    def layer_of(self, prefix):
        """By name, of the layer."""
        names = [n[len(prefix):].removesuffix('.weight') for n in self.file.tensors if n.startswith(prefix) and n.endswith('.weight')]
        b = {name: self.pair(prefix + name) for name in names}
        if self.arch == 'gpt-oss':
            b['ffn_norm'] = b.pop('post_attention_norm')
        for part in ('ffn_gate', 'ffn_up', 'ffn_down') if 'ffn_up.0' in b else ():  # older files: each expert has a tensor
            b[part + '_exps'] = np.stack([b[f'{part}.{e}'][0] for e in range(self.experts)]), None
        return b

    # ---- products and norms ----

    @staticmethod
    def operand(x):
        """As a product takes it; tests of rounding have others."""
        return x

    def product(self, x, w):
        return self.operand(x) @ self.operand(w).T

    def linear(self, y, b, name):
        w, bias = b[name]
        return self.product(y, w) + (0 if bias is None else bias)

    @staticmethod
    def capped(x, cap):
        return cap * np.tanh(x / cap) if cap else x

    def rms(self, x, w):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * w

    def normed(self, x, b, name):
        """As it is where there is no such norm."""
        if name not in b:
            return x
        w, bias = b[name]
        if self.arch not in LAYER_NORM:
            return self.rms(x, w)
        x = x - x.mean(-1, keepdims=True)
        return self.rms(x, w) + (0 if bias is None else bias)

    # ---- RoPE ----

    def rotation(self, t):
        """How far the pairs of this layer turn, and by what they grow, among t tokens."""
        self.gain, local = 1.0, self.arch == 'gemma3' and (self.layer + 1) % self.period
        base = self.get('rope.freq_base_swa') if local else self.get('rope.freq_base', 10000.0)
        self.freq = base ** (-2.0 * np.arange(self.n_rot // 2) / self.n_rot)
        if (self.layer + 1) % self.get('rope.unrotated_step', self.layers + 1) == 0:
            self.freq = self.freq * 0
        elif not local:
            self.scale_rotation(t)

    def scale_rotation(self, t):
        kind, context = self.get('rope.scaling.type', 'none'), self.get('rope.scaling.original_context_length', 0)
        factor = self.get('rope.scaling.factor', self.get('rope.scale_linear', 1.0))
        if kind == 'linear' or self.get('rope.scale_linear'):
            self.freq = self.freq / factor
        elif kind == 'yarn':
            self.yarn(factor, context, self.get('rope.scaling.yarn_beta_fast', 32), whole=self.get('rope.scaling.yarn_truncate', self.arch != 'gpt-oss'))
        elif kind != 'none':
            sys.exit(f'rope scaling {kind} is not supported')
        for name in ('rope_freqs', f'rope_factors_{"long" if t > context else "short"}'):
            stretch = self.file.weight(f'{name}.weight', optional=True)
            self.freq = self.freq if stretch is None else self.freq / stretch
        self.gain *= self.get('rope.scaling.attn_factor', 1)

    def yarn(self, factor, context, fast=32, slow=1, whole=True):
        """Pairs that turn `fast` times within the context stay, those that turn less than `slow` times are slowed down; whole: from a pair, not between."""
        turns = context * self.freq / (2 * np.pi)
        span = np.log(turns[0] / turns[1])  # of neighbours
        low, high = (np.log(turns[0] / n) / span for n in (fast, slow))
        if whole:
            low, high = np.floor(low), np.ceil(high)
        low, high = max(low, 0), min(high, self.n_rot - 1)
        part = np.clip((np.arange(len(turns)) - low) / max(high - low, 1e-3), 0, 1)
        self.freq = self.freq * (1 - part + part / factor)
        self.gain = 1 + 0.1 * np.log(factor)

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

    # ---- attention ----

    def hidden(self, t, head):
        """[t, t] of each row and key: does the row not see the key?"""
        pos, key = np.arange(t)[:, None], np.arange(t)
        sink, windows = self.windows or (0, None)
        local = self.window if not self.period or (self.layer + 1) % self.period else 0
        own = windows[self.layer] if windows else [local]  # of the query heads, or of the KV heads that they share
        window = own[head * len(own) // self.heads]
        return (key > pos) | ((window > 0) & (key >= sink) & (key <= pos - window))

    def attention(self, q, k, v, sinks=None):
        """sinks: of each head the score of a key without a value."""
        t, rep = len(q), self.heads // self.kv_heads
        out = np.empty_like(q)
        for h in range(self.heads):
            s = self.capped(self.product(q[:, h], k[:, h // rep]) * self.get('attention.scale', self.head_dim**-0.5), self.softcaps[0])
            s[self.hidden(t, h)] = -np.inf
            most = s.max(1, keepdims=True)
            p = np.exp(s - most)
            rest = 0 if sinks is None else np.exp(sinks[h] - most)
            out[:, h] = self.product(p / (p.sum(1, keepdims=True) + rest), v[:, h // rep].T)
        return out

    def heads_of(self, y, b, name):
        """Normalised head by head or all of them together, as long as the norm's weights are."""
        norm = b.get(name + '_norm')
        if norm:
            y = self.rms(y.reshape(len(y), -1, len(norm[0])), norm[0])
        return y.reshape(len(y), -1, self.head_dim)

    def attend(self, x, b):
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        if 'attn_qkv' in b:
            parts = np.split(self.linear(x, b, 'attn_qkv'), [q, q + kv], axis=1)
        else:
            parts = [self.linear(x, b, f'attn_{n}') for n in 'qkv']
        q, k, v = (self.heads_of(y, b, f'attn_{n}') for n, y in zip('qkv', parts))
        if 'position_embd' not in self.top:
            self.rotation(len(x))
            q, k = self.rope(q), self.rope(k)
        return self.linear(self.attention(q, k, v, b.get('attn_sinks', (None,))[0]).reshape(len(x), -1), b, 'attn_output')

    # ---- feed-forward ----

    def gated(self, y, b, more=''):
        up = self.linear(y, b, f'ffn_up{more}')
        if self.arch == 'phi3':
            gate, up = np.split(up, 2, axis=1)
        else:
            gate = self.linear(y, b, f'ffn_gate{more}') if f'ffn_gate{more}' in b else None
        return self.linear(self.activation(up) if gate is None else self.activation(gate) * up, b, f'ffn_down{more}')

    def expert(self, x, b, e):
        def of(name, y):
            w, bias = b[f'ffn_{name}_exps']
            return self.product(y, w[e]) + (0 if bias is None else bias[e])
        gate, up = of('gate', x), of('up', x)
        if self.arch == 'gpt-oss':
            gate, up = np.minimum(gate, LIMIT), np.clip(up, -LIMIT, LIMIT)
            return of('down', gate / (1 + np.exp(-SLOPE * gate)) * (up + 1))
        return of('down', silu(gate) * up)

    def mixture(self, y, b):
        """Of each token the experts with the largest scores, by their weights."""
        out = np.zeros_like(y)
        for row, x in enumerate(y):
            scores = self.linear(x, b, 'ffn_gate_inp')
            best = np.argsort(-scores, kind='stable')
            if self.used < self.experts:
                self.gap = min(self.gap, scores[best[self.used - 1]] - scores[best[self.used]])
            share = 1 / (1 + np.exp(-scores)) if self.sigmoid else np.exp(scores) / np.exp(scores).sum()
            whole = share[best[: self.used]].sum() if self.normalise else 1
            for e in best[: self.used]:
                out[row] += share[e] / whole * self.scale * self.expert(x, b, e)
        return out

    def feed(self, y, b):
        if not self.experts:
            return self.gated(y, b)
        shared = 0
        if 'ffn_gate_inp_shexp' in b:
            shared = self.gated(y, b, '_shexp') / (1 + np.exp(-self.linear(y, b, 'ffn_gate_inp_shexp')))
        return self.mixture(y, b) + shared

    # ---- the whole ----

    def block(self, x, b):
        share = self.get('residual_scale', 1)
        h = self.normed(x, b, 'attn_norm')
        if self.arch in PARALLEL:
            return x + self.attend(self.normed(x, b, 'attn_norm_2') if 'attn_norm_2' in b else h, b) + self.feed(h, b)
        x = x + share * self.normed(self.attend(h, b), b, 'post_attention_norm')
        return x + share * self.normed(self.feed(self.normed(x, b, 'ffn_norm'), b), b, 'post_ffw_norm')

    def logits(self, tokens):
        x = self.top['token_embd'][0][tokens] * self.embedding_scale
        if 'position_embd' in self.top:
            x = x + self.top['position_embd'][0][:len(tokens)]
        for self.layer, b in enumerate(self.blocks):
            x = self.block(x, b)
        y = self.product(self.normed(x, self.top, 'output_norm'), self.top.get('output', self.top['token_embd'])[0])
        scale = self.get('logit_scale', 1)
        return self.capped(y / scale if self.arch == 'granite' else y * scale, self.softcaps[1])


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
