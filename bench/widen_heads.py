#!/usr/bin/env python3
"""Writes a Llama model with wider heads that computes the same: dimensions that are added are zero.

    widen_heads.py IN.gguf OUT.gguf [WIDTH]      (default: 64)

So that a small trained model, whose heads have 8 dimensions, runs on kernels that want 64 or 128: matrix units', the asynchronous
softmax's. Scores are divided by the root of the width, which the queries make up for; and the base of the rotation is raised to
the power WIDTH / old width, so that pair i turns as before. GGUF files of `llama` in F32 with pairs side by side, as converters write them.
"""
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / 'tests' / 'model'))
import gguf_read  # noqa: E402
import gguf_write as gw  # noqa: E402

ARRAYS = {'tokenizer.ggml.scores': gw.F32, 'tokenizer.ggml.token_type': gw.I32}


def widen(name, x, old, new):
    """x [rows, K]: rows of q, k and v, and K of attention's output, are heads of old dimensions."""
    if name.endswith('attn_output.weight'):
        return widen('attn_v.weight', x.T, old, new).T
    if not name.endswith(('attn_q.weight', 'attn_k.weight', 'attn_v.weight')):
        return x
    heads = x.reshape(-1, old, x.shape[-1])
    out = np.zeros((len(heads), new, x.shape[-1]), np.float32)
    out[:, :old] = heads * (np.sqrt(new / old) if name.endswith('attn_q.weight') else 1)
    return out.reshape(-1, x.shape[-1])


def widened_meta(meta, old, new):
    heads = dict.fromkeys(('llama.attention.key_length', 'llama.attention.value_length', 'llama.rope.dimension_count'), new)
    base = float(meta.get('llama.rope.freq_base', 10000.0)) ** (new / old)
    return {**meta, **heads, 'llama.rope.freq_base': base}


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    source, new = gguf_read.File(sys.argv[1]), int(sys.argv[3]) if len(sys.argv) > 3 else 64
    old = source.meta.get('llama.attention.key_length', source.meta['llama.embedding_length'] // source.meta['llama.attention.head_count'])
    w = gw.Writer()
    for key, value in widened_meta(source.meta, old, new).items():
        w.add(key, value, ARRAYS.get(key))
    for name in source.tensors:
        w.tensor(name, np.ascontiguousarray(widen(name, source.weight(name).astype(np.float32), old, new)))
    w.write(sys.argv[2])


if __name__ == '__main__':
    main()
