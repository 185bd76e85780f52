"""Random LoRA adapters for a folder's model, as PEFT and as llama.cpp write them, and the folder with one merged.

An adapter is a dictionary: the name of a matrix in the folder, without .weight, to its A [rank, columns] and B [rows, rank].
"""
import json
import os
import re
import shutil

import numpy as np

from gguf_write import Writer
from hf import write_json, write_safetensors

OURS = {'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v', 'self_attn.o_proj': 'attn_output',
        'self_attn.qkv_proj': 'attn_qkv', 'mlp.gate_up_proj': 'ffn_up', 'mlp.gate_proj': 'ffn_gate', 'mlp.up_proj': 'ffn_up',
        'mlp.down_proj': 'ffn_down'}


def read(folder):
    """The tensors of a folder in one file, as float32."""
    with open(os.path.join(folder, 'model.safetensors'), 'rb') as f:
        data = f.read()
    n = 8 + int.from_bytes(data[:8], 'little')
    tensors = {}
    for name, t in json.loads(data[8:n]).items():
        if name == '__metadata__':
            continue
        part = data[n + t['data_offsets'][0]:n + t['data_offsets'][1]]
        if t['dtype'] == 'BF16':
            x = (np.frombuffer(part, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            x = np.frombuffer(part, {'F32': np.float32, 'F16': np.float16}[t['dtype']]).astype(np.float32)
        tensors[name] = x.reshape(t['shape'])
    return tensors


def write(folder, tensors, out, others={}):
    """The folder with these tensors in the place of its own."""
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns('*.safetensors', '*.calibration'))
    write_safetensors(os.path.join(out, 'model.safetensors'), list(tensors.items()), 'F32', others)


def make(tensors, pattern, rank, seed, size=0.7):
    """size: of B A against the matrix that it is added to. F16 holds the numbers."""
    rng, pairs = np.random.default_rng(seed), {}
    for name, w in sorted(tensors.items()):
        if w.ndim == 2 and re.search(pattern, name) and name.endswith('.weight'):
            a = rng.standard_normal((rank, w.shape[1]))
            b = rng.standard_normal((w.shape[0], rank)) * size * w.std() / np.sqrt(rank)
            pairs[name.removesuffix('.weight')] = a.astype(np.float16).astype(np.float32), b.astype(np.float16).astype(np.float32)
    return pairs


def merge(tensors, pairs, scale):
    merged = dict(tensors)
    for name, (a, b) in pairs.items():
        merged[name + '.weight'] = merged[name + '.weight'] + np.float32(scale) * (b @ a)
    return merged


def write_peft(out, pairs, alpha, kind='F32', **config):
    os.makedirs(out)
    rank = len(next(iter(pairs.values()))[0])
    write_json(out, 'adapter_config.json', {
        'peft_type': 'LORA', 'task_type': 'CAUSAL_LM', 'r': rank, 'lora_alpha': alpha, 'bias': 'none', 'use_dora': False, 'use_rslora': False,
        'modules_to_save': None, 'fan_in_fan_out': False, 'rank_pattern': {}, 'target_modules': sorted({n.split('.')[-1] for n in pairs}), **config})
    write_safetensors(os.path.join(out, 'adapter_model.safetensors'), [
        (f'base_model.model.{name}.lora_{which}.weight', x) for name, both in pairs.items() for which, x in zip('AB', both)], kind)
    return out


def interleave(x, heads):
    """Rows of each head from halves to adjacent pairs, as converters to GGUF write those of q and k of `llama`."""
    return x.reshape(heads, 2, -1, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def write_gguf(out, pairs, alpha, arch='llama', heads=None, meta=(), kind='F32'):
    """heads: of q and of k, if their rows are interleaved."""
    w = Writer()
    given = {'general.type': 'adapter', 'general.architecture': arch, 'adapter.type': 'lora', 'adapter.lora.alpha': float(alpha), **dict(meta)}
    for key, value in given.items():
        if value is not None:
            w.add(key, value)
    for name, (a, b) in pairs.items():
        layer, part = re.fullmatch(r'model\.layers\.(\d+)\.(.*)', name).groups()
        if heads and part.split('.')[-1] in ('q_proj', 'k_proj'):
            b = interleave(b, heads[part.endswith('k_proj')])
        for which, x in zip('ab', (a, b)):
            w.tensor(f'blk.{layer}.{OURS[part]}.weight.lora_{which}', x, kind)
    w.write(out)
    return out
