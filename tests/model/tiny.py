#!/usr/bin/env python3
"""Writes a small model with random weights that loads completely; or one broken on purpose.

tiny.py --arch llama --type Q4_0 --variant tied,linear OUT.gguf
tiny.py --set llama.attention.head_count=0 OUT.gguf          a wrong value (type kept), or
tiny.py --set llama.attention.head_count=str:four OUT.gguf   of a wrong type
tiny.py --drop blk.1.ffn_up.weight --shape output.weight=307,128 OUT.gguf
    tiny.py --fill output_norm.weight=nan OUT.gguf               one weight, anywhere in the tensor
tiny.py --resize tokenizer.ggml.scores=5 OUT.gguf            an array cut or filled to 5
"""

import argparse
import sys

import numpy as np

import gguf_write as gw

SHAPE = dict(width=256, layers=3, heads=4, kv_heads=2, head_dim=64, ffn=512, vocab=307, context=512)
VARIANTS = {  # changes of the shape, options of model_tensors
    'gqa': ({}, {}),
    'mha': ({'kv_heads': 4}, {}),
    'tied': ({}, {'tied': True}),
    'headdim': ({'head_dim': 128}, {}),
    'rope_freqs': ({'rope_base': 500000.0}, {'freqs': True}),
    'linear': ({'rope_factor': 4.0}, {}),
    'partial-rope': ({'rope_dim': 32}, {}),
    'bias': ({}, {'bias': True}),
    'experts': ({'experts': 6, 'experts_used': 2, 'ffn': 256}, {}),
    'experts-apart': ({'experts': 4, 'experts_used': 2, 'ffn': 256}, {'experts_apart': True}),
    'sigmoid': ({'expert_gating': 2, 'expert_norm': False, 'expert_scale': 1.5}, {}),
    'yarn': ({'yarn': (4.0, 64)}, {}),
    'window': ({'window': 7, 'period': 2}, {}),
    'softcap': ({'attn_softcap': 2.0, 'logit_softcap': 5.0}, {}),
}
SHAPES = {'qwen3moe': {'experts': 8, 'experts_used': 3, 'expert_ffn': 256}}  # of architectures that differ
ARCHS = {'llama': {}, 'qwen2': {'bias': True}, 'qwen3': {'head_norms': True}, 'qwen3moe': {'head_norms': True}}  # options of model_tensors
# Merges in order of score: each is made of two that are there.
PIECES = '▁t he ▁a in ▁the re ▁s on nd ▁w er ▁and it ▁b ed'.split() + list(
    '▁etaoinshrdlucmfwygpbvkxjqz.,!?'
)


def weights(name, shape, rng, tied):
    """Scaled so that activations stay around 1 and logits around 2."""
    if name == 'rope_freqs.weight':
        return np.geomspace(1, 8, shape[0])  # as Llama 3.1: low frequencies are stretched
    if 'norm' in name:
        return 1 + 0.1 * rng.standard_normal(shape)
    if name.endswith('.bias'):
        return 0.3 * rng.standard_normal(shape)
    if name == 'token_embd.weight' and not tied:
        return 0.5 * rng.standard_normal(shape)
    gain = 1
    if name in ('token_embd.weight', 'output.weight'):
        gain = 2
    elif '_q.' in name or '_k.' in name:
        gain = 1.5
    return gain * rng.standard_normal(shape) / shape[-1] ** 0.5


def fill(x, what, rng):
    x = np.array(x, np.float32)
    x.flat[rng.integers(x.size)] = float(what)
    return x


def build(a):
    s, options = {**SHAPE, **SHAPES.get(a.arch, {})}, dict(ARCHS[a.arch])
    for v in a.variant.split(','):
        s.update(VARIANTS[v][0])
        options.update(VARIANTS[v][1])
    w = gw.Writer(a.version, a.alignment)
    gw.add_model(w, a.arch, f'tiny {a.arch} {a.variant}', s, a.type)
    gw.add_vocab(w, PIECES, s['vocab'])
    rng = np.random.default_rng(a.seed)
    shapes, fills = dict(a.shape), dict(a.fill)
    for name, shape, kind in gw.model_tensors(s, a.type, **options):
        x = weights(name, shape, rng, options.get('tied')).astype(np.float32)
        if name in shapes:
            x = np.resize(x, [int(n) for n in shapes[name].split(',')])
        if '_q.' in name or '_k.' in name:
            x *= np.float32(a.scale)
        if name in fills:
            x = fill(x, fills[name], rng)
        if name not in a.drop:
            w.tensor(name, x, kind)
    return w


def typed(text, kind):
    """Kind and value of '--set KEY=text'; text may begin with the name of a type."""
    head, colon, rest = text.partition(':')
    if colon and head in gw.KINDS:
        kind, text = gw.KINDS[head], rest
    if kind == gw.STRING:
        return kind, text
    if kind == gw.BOOL:
        return kind, text == 'true'
    return kind, float(text) if kind in (gw.F32, gw.F64) else int(text)


def edit(w, a):
    """Metadata after the fact. A key that --set does not find is added, as u32 unless typed."""
    rows = {m[0]: m for m in w.meta}
    for key, text in a.set:
        if key not in rows:
            rows[key] = [key, gw.U32, 0]
            w.meta.append(rows[key])
        row = rows[key]
        row[1:] = typed(text, gw.kind_of(row[2]) if row[1] is None else row[1])
    for key, n in a.resize:
        row = rows[key]
        row[1] = gw.kind_of(row[2][0]) if row[1] is None else row[1]
        row[2] = (row[2] * (int(n) // len(row[2]) + 1))[: int(n)]
    w.meta = [m for m in w.meta if m[0] not in a.unset]


def pair(text):
    key, _, value = text.partition('=')
    return key, value


def main(words=None):
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument('--arch', choices=list(ARCHS), default='llama')
    p.add_argument('--type', choices=[*gw.TYPES, *gw.MIXES], default='F32')
    p.add_argument('--variant', default='gqa', help='one or more of ' + ','.join(VARIANTS))
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--version', type=int, default=3)
    p.add_argument('--alignment', type=int)
    p.add_argument('--set', type=pair, action='append', default=[], metavar='KEY=[TYPE:]VALUE')
    p.add_argument('--unset', action='append', default=[], metavar='KEY')
    p.add_argument('--resize', type=pair, action='append', default=[], metavar='KEY=COUNT')
    p.add_argument('--drop', action='append', default=[], metavar='TENSOR')
    p.add_argument('--shape', type=pair, action='append', default=[], metavar='TENSOR=ROWS,COLS')
    p.add_argument('--fill', type=pair, action='append', default=[], metavar='TENSOR=nan|inf')
    p.add_argument('--scale', type=float, default=1, help='queries and keys that much larger')
    p.add_argument('--split', type=int, help='write that many files, OUT-00001-of-0000N.gguf and so on')
    p.add_argument('out')
    a = p.parse_args(words)
    unknown = set(a.variant.split(',')) - set(VARIANTS)
    if unknown:
        sys.exit(f'tiny.py: unknown variant {", ".join(unknown)}; there are {", ".join(VARIANTS)}')
    w = build(a)
    edit(w, a)
    w.write_split(a.out, a.split) if a.split else w.write(a.out)


if __name__ == '__main__':
    main()
