#!/usr/bin/env python3
"""Folders of Hugging Face's layout that make no sense, or ask for what weft does not compute: each ends in an error that names the file
and the key or tensor, never in a crash.

    bad_folders.py WEFT SOURCES
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import common  # noqa: F401  it says where hf lies
import hf

ROPE = 'rope_scaling={"rope_type":"llama3","factor":8,"low_freq_factor":%s,"high_freq_factor":%s,"original_max_position_embeddings":%s}'
# options of hf.py, what the message must name
CASES = [
    (['--set', 'architectures=["MambaForCausalLM"]'], "'MambaForCausalLM' is not supported"),
    (['--set', 'architectures=["Llama"]'], "'Llama' is not supported"),
    (['--set', 'architectures=[""]'], 'is not supported'),
    (['--set', 'architectures=[7]'], "'architectures'"),
    (['--set', 'architectures="LlamaForCausalLM"'], "'architectures' is not an array"),
    (['--unset', 'architectures'], "'architectures'"),
    (['--set', 'quantization_config={"quant_method":"gptq","bits":4}'], 'gptq'),
    (['--set', 'quantization_config={"quant_method":"awq"}'], 'awq'),
    (['--set', 'quantization_config={"quant_method":"fp8"}'], 'fp8'),
    (['--set', 'quantization_config={}'], 'quantised'),
    (['--set', 'quantization_config={"quant_method":"compressed-tensors"}'], 'weft convert'),
    (['--set', 'quantization_config={"load_in_4bit":true}'], 'bitsandbytes'),
    (['--set', 'quantization_config={"quant_method":"bitsandbytes","load_in_8bit":true}'], 'bitsandbytes'),
    (['--set', 'compression_config={"quant_method":"compressed-tensors"}'], 'compressed-tensors'),
    (['--set', 'hidden_act="gelu"'], 'gelu'),
    (['--set', 'hidden_act=1'], 'hidden_act'),
    (['--set', 'num_hidden_layers=18446744073709551616'], 'num_hidden_layers'),
    (['--set', 'partial_rotary_factor=0.5'], 'partial_rotary_factor'),
    (['--set', 'rope_scaling={"type":"dynamic","factor":4}'], 'dynamic'),
    (['--set', 'rope_scaling={"type":"yarn"}'], "'factor'"),
    (['--set', 'rope_scaling={"type":"yarn","factor":4}'], "'original_max_position_embeddings'"),
    (['--set', 'rope_scaling={"type":"yarn","factor":4,"original_max_position_embeddings":64,"truncate":"no"}'], "'truncate'"),
    (['--set', 'quantization_config={"quant_method":"mxfp4"}'], 'mxfp4'),
    (['--set', 'rope_parameters={"rope_type":"longrope"}'], "'original_max_position_embeddings'"),
    (['--set', 'rope_scaling={"type":"longrope","original_max_position_embeddings":64,"long_factor":[1]}'], "'long_factor'"),
    (['--set', 'rope_parameters={"rope_type":"default","partial_rotary_factor":0.5}'], 'partial_rotary_factor'),
    (['--set', 'rope_scaling={"type":"linear"}'], "'factor'"),
    (['--set', 'rope_scaling={"type":"dynamic"}', '--set', 'rope_parameters={"rope_type":"default","rope_theta":10000}'], 'dynamic'),
    (['--set', 'rope_scaling={"type":"linear","factor":-2}'], "'factor'"),
    (['--set', 'rope_scaling={"type":7}'], "'type'"),
    (['--set', 'rope_scaling="linear"'], "'rope_scaling' is not an object"),
    (['--set', ROPE % (4, 1, 64)], 'low_freq_factor'),
    (['--set', ROPE % (1, 4, 0)], 'original_max_position_embeddings'),
    (['--set', ROPE % (1, 'null', 64)], 'high_freq_factor'),
    (['--set', 'rope_theta=0'], 'rope_theta'),
    (['--set', 'rope_theta="10000"'], 'rope_theta'),
    (['--set', 'num_hidden_layers=-1'], 'num_hidden_layers'),
    (['--set', 'num_hidden_layers=4294967296'], 'num_hidden_layers'),
    (['--set', 'num_hidden_layers=2.5'], 'num_hidden_layers'),
    (['--unset', 'num_hidden_layers'], "'num_hidden_layers' is missing"),
    (['--unset', 'rms_norm_eps'], "'rms_norm_eps' is missing"),
    (['--set', 'max_position_embeddings=0'], 'max_position_embeddings'),
    (['--set', 'tie_word_embeddings="no"'], 'tie_word_embeddings'),
    (['--drop', 'lm_head.weight'], 'lm_head.weight'),
    (['--set', 'num_hidden_layers=4'], 'blk.3'),
    (['--set', 'num_hidden_layers=2'], 'blk.2'),
    (['--set', 'num_attention_heads=0'], 'head_count'),
    (['--set', 'num_key_value_heads=3'], 'head_count'),
    (['--set', 'hidden_size=255'], 'embedding'),
    (['--set', 'head_dim=63'], 'dimension_count'),
    (['--set', 'rms_norm_eps=-1'], 'epsilon'),
    (['--drop', 'model.norm.weight'], 'output_norm.weight'),
    (['--drop', 'model.layers.1.mlp.up_proj.weight'], 'blk.1.ffn_up.weight\' (model.layers.1.mlp.up_proj.weight) is missing'),
    (['--drop', 'model.embed_tokens.weight'], 'token_embd.weight'),
]
TENSOR = '{"%s":{"dtype":"%s","shape":%s,"data_offsets":[0,%d]}}'


def one_tensor(folder, name, kind='F32', shape='[4]', size=16):
    """Replaces the weights by one tensor."""
    header = (TENSOR % (name, kind, shape, size)).encode()
    with open(os.path.join(folder, 'model.safetensors'), 'wb') as f:
        f.write(len(header).to_bytes(8, 'little') + header + bytes(min(size, 64)))


def write(folder, name, data):
    pathlib.Path(os.path.join(folder, name)).write_bytes(data)


def remove(name):
    return lambda folder: os.remove(os.path.join(folder, name))


def weights(name):
    """In place of model.safetensors."""
    def edit(folder):
        os.remove(os.path.join(folder, 'model.safetensors'))
        write(folder, name, b'PK')
    return edit


def alone(change):
    """In place of everything."""
    def edit(folder):
        shutil.rmtree(folder)
        os.mkdir(folder)
        change(folder)
    return edit


def tokenizer(change):
    def edit(folder):
        path = os.path.join(folder, 'tokenizer.json')
        o = json.loads(pathlib.Path(path).read_bytes())
        change(o)
        hf.write_json(folder, 'tokenizer.json', o)
    return edit


FILES = [  # what happens to the folder, what the message must name
    (remove('config.json'), 'config.json'),
    (remove('tokenizer.json'), 'there is no tokenizer.json'),
    (lambda f: write(f, 'tokenizer.json', b'{'), 'tokenizer.json: bad JSON'),
    (lambda f: write(f, 'tokenizer_config.json', b'{'), 'tokenizer_config.json: bad JSON'),
    (lambda f: write(f, 'generation_config.json', b'[]'), 'generation_config.json is no JSON object'),
    (lambda f: write(f, 'chat_template.jinja', b' ' * (17 << 20)), 'chat_template.jinja has more than'),
    (tokenizer(lambda o: o['model'].update(type='WordLevel')), 'WordLevel'),
    (tokenizer(lambda o: o['model']['vocab'].update(more=307)), '307'),
    (lambda f: write(f, 'config.json', b''), 'config.json: bad JSON'),
    (lambda f: write(f, 'config.json', b'[1]'), 'config.json is no JSON object'),
    (lambda f: write(f, 'config.json', b'{"a":1,"a":2}'), 'duplicate'),
    (lambda f: write(f, 'config.json', b'{"a":' * 100000), 'nested deeper'),
    (lambda f: write(f, 'config.json', b' ' * (9 << 20)), 'more than'),
    (lambda f: write(f, 'model.safetensors', b'\0' * 7 + b'\x80'), 'model.safetensors'),
    (lambda f: one_tensor(f, 'lm_head.weight', 'F8_E4M3', '[4]', 4), 'F8_E4M3'),
    (lambda f: one_tensor(f, 'lm_head.weight', 'F32', '[1,1,1,1,1]', 4), '5 dimensions'),
    (lambda f: one_tensor(f, 'lm_head.weight', 'F32', '[]', 4), '0 dimensions'),
    (lambda f: one_tensor(f, 'model.layers.0.mlp.experts.0.up_proj.weight'), 'lm_head.weight'),
    (lambda f: one_tensor(f, 'lm_head.weight', size=2 ** 64), "'data_offsets' holds a value that is no integer"),
    (weights('pytorch_model-00001-of-00002.bin'), 'holds its weights as pytorch_model-00001-of-00002.bin'),
    (weights('pytorch_model.bin'), 'save_pretrained'),
    (weights('consolidated.safetensors'), 'holds its weights as consolidated.safetensors'),
    (weights('model-00001-of-00002.safetensors'), 'no model.safetensors.index.json'),
    (alone(lambda f: None), 'holds no model'),
    (alone(lambda f: os.makedirs(os.path.join(f, 'snapshots', 'abc1'))), 'snapshots/abc1'),
    (alone(lambda f: write(f, 'm.gguf', b'GGUF')), 'model/m.gguf'),
]


MADE = [  # folder of tests/model/data, change of its config.json, what the message must name
    ('llama3', {'attention_bias': False}, "'attention_bias' is not true"),
    ('llama3', {'attention_bias': None}, 'self_attn.k_proj.bias'),
    ('llama3', {'architectures': ['MistralForCausalLM']}, "k_proj.bias' is there, but transformers' MistralForCausalLM has no such biases"),
    ('llama3', {'architectures': ['MixtralForCausalLM'], 'num_local_experts': 4}, "transformers' MixtralForCausalLM has no such biases"),
    ('llama3', {'architectures': ['Qwen2ForCausalLM']}, "self_attn.o_proj.bias' is there, but transformers' Qwen2ForCausalLM"),
    ('qwen2moe', {'qkv_bias': False}, "'qkv_bias' is not true"),
    ('starcoder2', {'use_bias': False}, "'use_bias' is not true"),
    ('starcoder2', {'architectures': ['CohereForCausalLM'], 'attention_bias': True, 'hidden_act': 'silu'}, "input_layernorm.bias' is there, but transformers' CohereForCausalLM"),
    ('opt', {'enable_bias': False}, "'enable_bias' is not true"),
    ('falcon40b', {'bias': None}, "'bias' is not true"),
    ('gpt-oss', {'attention_bias': False}, "'attention_bias' is not true"),
    ('gpt-oss', {'layer_types': ['full_attention']}, "'layer_types' has 1 entries for 3 layers"),
    ('gemma3', {'layer_types': []}, "'layer_types' has 0 entries"),
    ('gpt2', {'activation_function': 'relu'}, "'activation_function' is 'relu'"),
    ('gpt2', {'scale_attn_by_inverse_layer_idx': True}, 'scale_attn_by_inverse_layer_idx'),
    ('gpt2', {'n_inner': 100}, 'ffn_up'),
    ('gpt2', {'n_positions': 500}, 'position_embd'),
    ('gpt2', {'n_layer': None}, "'n_layer' is missing"),
    ('gpt2', {'layer_norm_epsilon': 'small'}, 'layer_norm_epsilon'),
    ('opt', {'do_layer_norm_before': False}, 'do_layer_norm_before'),
    ('opt', {'word_embed_proj_dim': 32}, 'word_embed_proj_dim'),
    ('opt', {'max_position_embeddings': 514}, '(model.decoder.embed_positions.weight) is'),
    ('falcon', {'alibi': True}, 'alibi'),
    ('falcon', {'parallel_attn': False}, 'parallel_attn'),
    ('falcon', {'num_attention_heads': 0}, '0 heads'),
    ('falcon40b', {'num_kv_heads': 3}, 'query_key_value'),
    ('falcon40b', {'num_kv_heads': 0}, 'query_key_value'),
    ('command-r', {'logit_scale': -1}, 'logit_scale'),
    ('gpt-oss', {'swiglu_limit': 6.0}, "'swiglu_limit' is 6"),
    ('gpt-oss', {'swiglu_alpha': 1.0}, "'swiglu_alpha' 1"),
    ('gpt-oss', {'rope_parameters': None}, 'rope_scaling'),
    ('gpt-oss', {'num_local_experts': None}, "'num_local_experts' is missing"),
    ('gpt-oss', {'num_local_experts': 4}, 'ffn_gate_inp'),
    ('gpt-oss', {'num_attention_heads': 2}, 'attn_'),
    ('gpt-oss', {'quantization_config': {'quant_method': 'gptq'}}, 'gptq'),
    ('command-r', {'use_qk_norm': True}, "'use_qk_norm' is true"),
    ('gemma3', {'use_bidirectional_attention': True}, 'use_bidirectional_attention'),
    ('gemma3', {'rope_parameters': {'full_attention': {'rope_theta': 1e6}, 'sliding_attention': {'rope_type': 'linear', 'factor': 2}}}, "'linear' of 'sliding_attention'"),
    ('command-r', {'rope_parameters': None}, "'rope_theta' is missing"),
    ('qwen3moe', {'mlp_only_layers': [1]}, 'mlp_only_layers'),
    ('qwen3moe', {'decoder_sparse_step': 2}, "'decoder_sparse_step' is 2"),
    ('qwen2moe', {'decoder_sparse_step': 2}, "'decoder_sparse_step' is 2"),
    ('granite', {'residual_multiplier': 0}, 'residual_scale'),
    ('phi3', {'partial_rotary_factor': 1.5, 'rope_parameters': None}, 'partial_rotary_factor'),
    ('smollm3', {'no_rope_layers': [1, 0, 1, 1]}, 'no_rope_layers'),
    ('smollm3', {'no_rope_layers': [1]}, 'no_rope_layers'),
    ('smollm3', {'no_rope_layers': 'all'}, 'no_rope_layers'),
]


def main():
    weft, sources = sys.argv[1:3]
    tools = os.path.join(sources, 'tests', 'model')
    failed = 0
    with tempfile.TemporaryDirectory() as top:
        gguf, folder = os.path.join(top, 'm.gguf'), os.path.join(top, 'model')
        subprocess.run([sys.executable, os.path.join(tools, 'tiny.py'), gguf], check=True)

        def make(options):
            shutil.rmtree(folder, ignore_errors=True)
            hf.main([*options, gguf, folder])

        def refused(what, name):
            nonlocal failed
            done = subprocess.run([weft, 'info', '-m', folder], capture_output=True, text=True, timeout=120)
            described = done.stdout.startswith(f'folder           {folder} (safetensors, ')  # what can be read before weights that cannot be computed
            if done.returncode != 3 or name not in done.stderr or folder not in done.stderr or (done.stdout and not described):
                failed += 1
                print(f'FAILED {what}: exit {done.returncode}, {done.stderr[-400:]!r} lacks {name!r}')

        for options, name in CASES:
            make(options)
            refused(options, name)
        for change, name in FILES:
            make([])
            change(folder)
            refused(name, name)
        def copy(name, change):
            shutil.rmtree(folder)
            shutil.copytree(os.path.join(tools, 'data', name), folder)
            config = json.loads(pathlib.Path(os.path.join(folder, 'config.json')).read_bytes())
            hf.write_json(folder, 'config.json', config | change)

        for name, change, want in MADE:
            copy(name, change)
            refused((name, change), want)
        long_contexts = [('gpt2', {}, 513, 'learned 512 positions')]  # folder, change, -c, what the message must name
        for name in ('qwen2', 'smollm3'):
            long_contexts.append((name, {'use_sliding_window': True, 'sliding_window': 16, 'max_window_layers': 1, 'layer_types': None}, 17, 'the last 16 tokens'))
        for name, change, context, want in long_contexts:
            copy(name, change)
            for length, code in ((context, 2), (context - 1, 0)):
                done = subprocess.run([weft, 'perplexity', '-m', folder, '--tokens', '1,2,3', '--logits', os.path.join(top, 'l.npy'), '-c', str(length), '--device', 'cpu'], capture_output=True, text=True)
                if done.returncode != code or (code and want not in done.stderr):
                    failed += 1
                    print(f'FAILED {name} -c {length}: exit {done.returncode}, {done.stderr[-400:]!r}')
        copy('llama3', {'attention_bias': False})  # its weights are refused, and its tokenizer is not
        for command, code, want in ((['tokenize', '-p', 'a'], 0, ''), (['info'], 3, "'attention_bias' is not true")):
            done = subprocess.run([weft, command[0], '-m', folder, *command[1:]], capture_output=True, text=True)
            if done.returncode != code or not done.stdout or want not in done.stderr:
                failed += 1
                print(f'FAILED {command[0]} without weights: exit {done.returncode}, {done.stdout[-400:]!r} {done.stderr[-400:]!r}')
        make([])
        os.remove(os.path.join(folder, 'model.safetensors'))
        for command, path, want in ((['run', '-p', 'a'], folder, 'weights are missing'), (['convert', '-o', os.path.join(top, 'o.gguf'), '--type', 'F16'], folder, 'weights are missing'),
                                    (['info'], os.path.join(folder, 'config.json'), 'pass the folder')):
            done = subprocess.run([weft, command[0], '-m', path, *command[1:]], capture_output=True, text=True)
            if not done.returncode or want not in done.stderr or done.stderr.split('\n')[0].count(folder) != 1:  # the second line has the command that helps
                failed += 1
                print(f'FAILED {command[0]} {path}: exit {done.returncode}, {done.stderr[-400:]!r}')
    print(f'{len(CASES) + len(FILES) + len(MADE)} folders, {failed} failed')
    sys.exit(failed > 0)


if __name__ == '__main__':
    main()
