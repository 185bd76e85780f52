#!/usr/bin/env python3
"""Writes a GGUF model with a SentencePiece vocabulary as a folder of Hugging Face's layout: config.json, tokenizer.json,
tokenizer_config.json and model.safetensors, or shards with their index.

    hf.py FILE.gguf OUT [--type F32|F16|BF16] [--shards 3] [--set KEY=JSON]... [--unset KEY]... [--drop TENSOR]... [--pad 5]

--set and --unset change config.json; --pad appends rows without tokens to the embedding and output matrices. F32 tensors of one dimension get
the type, too, as in the files that people have.
"""
import argparse
import json
import os

import numpy as np

from gguf_write import quantize
from reference import File

CLASSES = {'llama': 'LlamaForCausalLM', 'qwen2': 'Qwen2ForCausalLM', 'qwen3': 'Qwen3ForCausalLM', 'qwen3moe': 'Qwen3MoeForCausalLM'}
KEYS = {
    'block_count': 'num_hidden_layers',
    'embedding_length': 'hidden_size',
    'feed_forward_length': 'intermediate_size',
    'attention.head_count': 'num_attention_heads',
    'attention.head_count_kv': 'num_key_value_heads',
    'attention.key_length': 'head_dim',
    'attention.layer_norm_rms_epsilon': 'rms_norm_eps',
    'rope.freq_base': 'rope_theta',
    'context_length': 'max_position_embeddings',
}
NAMES = {
    'attn_norm': 'input_layernorm',
    'attn_q': 'self_attn.q_proj',
    'attn_k': 'self_attn.k_proj',
    'attn_v': 'self_attn.v_proj',
    'attn_output': 'self_attn.o_proj',
    'attn_q_norm': 'self_attn.q_norm',
    'attn_k_norm': 'self_attn.k_norm',
    'ffn_norm': 'post_attention_layernorm',
    'ffn_gate': 'mlp.gate_proj',
    'ffn_up': 'mlp.up_proj',
    'ffn_down': 'mlp.down_proj',
}
EXPERTS = {  # architecture: keys of config.json, names of the router and of an expert's matrices
    'llama': ({'expert_count': 'num_local_experts'}, 'block_sparse_moe', ('w1', 'w3', 'w2')),
    'qwen3moe': ({'expert_count': 'num_experts', 'expert_feed_forward_length': 'moe_intermediate_size'}, 'mlp', ('gate_proj', 'up_proj', 'down_proj')),
}
TOP = {'token_embd': 'model.embed_tokens', 'output_norm': 'model.norm', 'output': 'lm_head'}
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)


def config_of(f):
    arch = f.meta['general.architecture']
    c = {'architectures': [CLASSES[arch]], 'model_type': arch, 'hidden_act': 'silu', 'torch_dtype': 'float32'}
    c.update({theirs: f.meta[f'{arch}.{ours}'] for ours, theirs in KEYS.items() if f'{arch}.{ours}' in f.meta})
    if f.meta.get(f'{arch}.expert_count'):
        keys = dict(EXPERTS[arch][0], expert_used_count='num_experts_per_tok')
        c.update({theirs: f.meta[f'{arch}.{ours}'] for ours, theirs in keys.items()})
        c.update({'norm_topk_prob': True} if arch == 'qwen3moe' else {'architectures': ['MixtralForCausalLM']})
    c['vocab_size'] = f.tensors['token_embd.weight'][0][1]
    c['tie_word_embeddings'] = 'output.weight' not in f.tensors
    if 'blk.0.attn_q.bias' in f.tensors:
        c['attention_bias'] = True
    if f.meta.get(f'{arch}.rope.scaling.type') == 'linear':
        c['rope_scaling'] = {'type': 'linear', 'factor': f.meta[f'{arch}.rope.scaling.factor']}
    return c


def split_halves(x, heads):
    """Rows of each head from adjacent pairs, as GGUF's `llama` has them, to halves."""
    return x.reshape(heads, -1, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def experts_of(layer, part, x, arch):
    _, module, names = EXPERTS[arch]
    if part == 'ffn_gate_inp':
        yield f'{layer}.{module}.gate.weight', x
        return
    name = dict(zip(('ffn_gate_exps', 'ffn_up_exps', 'ffn_down_exps'), names))[part]
    for e, matrix in enumerate(x):
        yield f'{layer}.{module}.experts.{e}.{name}.weight', matrix


def tensors_of(f, config):
    for name in f.tensors:
        if name == 'rope_freqs.weight':
            continue
        stem, _, last = name.rpartition('.')
        x = f.weight(name).astype(np.float32)
        if stem.startswith('blk.'):
            _, layer, part = stem.split('.')
            heads = {'attn_q': 'num_attention_heads', 'attn_k': 'num_key_value_heads'}.get(part)
            if heads and config['model_type'] == 'llama':
                x = split_halves(x, config[heads])
            if part.endswith('_exps') or part == 'ffn_gate_inp':
                yield from experts_of(f'model.layers.{layer}', part, x, config['model_type'])
                continue
            stem = f'model.layers.{layer}.{NAMES[part]}'
        else:
            stem = TOP[stem]
        yield f'{stem}.{last}', x


def write_safetensors(path, tensors, kind, others={}):
    """tensors: (name, float32 array); quantize() rounds to nearest even. others: kinds by name."""
    header, data, at = {'__metadata__': {'format': 'pt'}}, [], 0
    for name, x in tensors:
        data.append(quantize(others.get(name, kind), x).tobytes())
        header[name] = {'dtype': others.get(name, kind), 'shape': list(x.shape), 'data_offsets': [at, at + len(data[-1])]}
        at += len(data[-1])
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as out:
        out.write(len(text).to_bytes(8, 'little') + text + b''.join(data))


def write_weights(folder, tensors, kind, shards):
    if shards == 1:
        write_safetensors(os.path.join(folder, 'model.safetensors'), tensors, kind)
        return
    index = {'metadata': {}, 'weight_map': {}}
    for i in range(shards):
        name = f'model-{i + 1:05}-of-{shards:05}.safetensors'
        write_safetensors(os.path.join(folder, name), tensors[i::shards], kind)
        index['weight_map'].update({t: name for t, _ in tensors[i::shards]})
    write_json(folder, 'model.safetensors.index.json', index)


def write_json(folder, name, value):
    with open(os.path.join(folder, name), 'w', encoding='utf-8') as out:
        json.dump(value, out, ensure_ascii=False, indent=1)


def merges_of(tokens, scores, types):
    """SentencePiece merges whatever forms the piece with the best score: every cut of every piece, in that order."""
    ids = {t: i for i, t in enumerate(tokens) if types[i] in (NORMAL, USER)}
    rows = []
    for piece, i in ids.items():
        cuts = [(piece[:k], piece[k:]) for k in range(1, len(piece))]
        rows += [(-scores[i], ids[a], ids[b], a, b) for a, b in cuts if a in ids and b in ids]
    return [[a, b] for *_, a, b in sorted(rows, key=lambda r: r[:3])]


def write_tokenizer(folder, meta):
    tokens, scores, types = (meta[f'tokenizer.ggml.{k}'] for k in ('tokens', 'scores', 'token_type'))
    bos, eos, unk = (meta[f'tokenizer.ggml.{k}_token_id'] for k in ('bos', 'eos', 'unknown'))
    added = [
        {'id': i, 'content': t, 'single_word': False, 'lstrip': False, 'rstrip': False, 'normalized': False, 'special': True}
        for i, t in enumerate(tokens)
        if types[i] in (CONTROL, UNKNOWN)
    ]
    model = {'type': 'BPE', 'dropout': None, 'unk_token': tokens[unk], 'continuing_subword_prefix': None, 'end_of_word_suffix': None,
             'fuse_unk': True, 'byte_fallback': True, 'vocab': {t: i for i, t in enumerate(tokens)}, 'merges': merges_of(tokens, scores, types)}
    start = {'SpecialToken': {'id': tokens[bos], 'type_id': 0}}
    write_json(folder, 'tokenizer.json', {
        'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': added,
        'normalizer': {'type': 'Sequence', 'normalizers': [{'type': 'Prepend', 'prepend': '▁'}, {'type': 'Replace', 'pattern': {'String': ' '}, 'content': '▁'}]},
        'pre_tokenizer': None,
        'post_processor': {'type': 'TemplateProcessing', 'single': [start, {'Sequence': {'id': 'A', 'type_id': 0}}],
                           'pair': [start, {'Sequence': {'id': 'A', 'type_id': 0}}, start, {'Sequence': {'id': 'B', 'type_id': 1}}],
                           'special_tokens': {tokens[bos]: {'id': tokens[bos], 'ids': [bos], 'tokens': [tokens[bos]]}}},
        'decoder': {'type': 'Sequence', 'decoders': [{'type': 'Replace', 'pattern': {'String': '▁'}, 'content': ' '}, {'type': 'ByteFallback'},
                                                     {'type': 'Fuse'}, {'type': 'Strip', 'content': ' ', 'start': 1, 'stop': 0}]},
        'model': model})
    write_json(folder, 'tokenizer_config.json', {'tokenizer_class': 'LlamaTokenizer', 'add_bos_token': True, 'add_eos_token': False,
                                                 'bos_token': tokens[bos], 'eos_token': tokens[eos], 'unk_token': tokens[unk], 'model_max_length': 10 ** 30})


def pair(text):
    key, _, value = text.partition('=')
    return key, json.loads(value)


def main(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('file')
    p.add_argument('out')
    p.add_argument('--type', choices=['F32', 'F16', 'BF16'], default='F32')
    p.add_argument('--shards', type=int, default=1)
    p.add_argument('--pad', type=int, default=0)
    p.add_argument('--set', type=pair, action='append', default=[])
    p.add_argument('--unset', action='append', default=[])
    p.add_argument('--drop', action='append', default=[])
    a = p.parse_args(argv)
    f = File(a.file)
    config = config_of(f)
    tensors = [(n, x) for n, x in tensors_of(f, config) if n not in a.drop]
    tensors = [(n, np.pad(x, ((0, a.pad), (0, 0))) if n in ('model.embed_tokens.weight', 'lm_head.weight') else x) for n, x in tensors]
    config['vocab_size'] += a.pad
    config.update(a.set)
    for key in a.unset:
        config.pop(key, None)
    os.makedirs(a.out, exist_ok=True)
    write_json(a.out, 'config.json', config)
    write_weights(a.out, tensors, a.type, a.shards)
    write_tokenizer(a.out, f.meta)


if __name__ == '__main__':
    main()
