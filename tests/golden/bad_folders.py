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

from common import rows
import hf

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

        for options, name in rows('bad_folders.txt', 2):
            make(options.split())
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

        for name, change, want in rows('bad_folders.txt', 3):
            copy(name, json.loads(change))
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
    print(f'{failed} failed')
    sys.exit(failed > 0)


if __name__ == '__main__':
    main()
