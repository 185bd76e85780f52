#!/usr/bin/env python3
"""Models that give embeddings: tests/model/embeddings, which sentence-transformers made and ran (make_embeddings.py), by their texts: token ids, and the
angle between its embedding and ours. On the CPU also as GGUF files that are named as llama.cpp's converter does.

    embeddings.py WEFT SOURCES DEVICE
"""
import base64
import json
import pathlib
import re
import shutil
import sys
import tempfile

from common import build_once, end, np, resolve, run, say, told
import gguf_write as gw

NEAR = 1e-3  # of the cosine; weights and KV pages are rounded to 16 bits


LAYER = {'attention.self.query': 'attn_q', 'attention.self.key': 'attn_k', 'attention.self.value': 'attn_v', 'attention.output.dense': 'attn_output',
         'attention.output.LayerNorm': 'attn_output_norm', 'intermediate.dense': 'ffn_up', 'output.dense': 'ffn_down', 'output.LayerNorm': 'layer_output_norm'}
TOP = {'word_embeddings': 'token_embd', 'position_embeddings': 'position_embd', 'token_type_embeddings': 'token_types', 'LayerNorm': 'token_embd_norm'}
MEAN, CLS = 1, 2


def add_tensors(w, folder, skipped):
    data = (folder / 'model.safetensors').read_bytes()
    start = 8 + int.from_bytes(data[:8], 'little')
    for name, t in json.loads(data[8:start]).items():
        if name == '__metadata__' or name.startswith('pooler.'):
            continue
        x = np.frombuffer(data, '<u2', offset=start + t['data_offsets'][0], count=np.prod(t['shape'])).astype('<u4') << 16
        x = x.view('<f4').reshape(t['shape'])
        stem, _, last = name.rpartition('.')
        part = stem.split('.')
        ours = TOP[part[1]] if part[0] == 'embeddings' else f"blk.{part[2]}.{LAYER['.'.join(part[3:])]}"
        w.tensor(f'{ours}.{last}', x[skipped:] if ours == 'position_embd' else x)


def add_word_pieces(w, vocab, config):
    names = sorted(vocab, key=vocab.get)
    w.add('tokenizer.ggml.model', 'bert')
    w.add('tokenizer.ggml.tokens', [n if n[0] == '[' else n[2:] if n[:2] == '##' and len(n) > 2 else '\u2581' + n for n in names])
    w.add('tokenizer.ggml.token_type', [3 if n[0] == '[' else 1 for n in names], gw.I32)
    for key, name in (('cls', '[CLS]'), ('seperator', '[SEP]'), ('unknown', '[UNK]')):
        w.add(f'tokenizer.ggml.{key}_token_id', vocab[name])


def add_unigram(w, model, tokenizer):
    pieces = [p for p, _ in model['vocab']]
    w.add('tokenizer.ggml.model', 't5')
    w.add('tokenizer.ggml.tokens', pieces)
    w.add('tokenizer.ggml.scores', [float(s) for _, s in model['vocab']], gw.F32)
    w.add('tokenizer.ggml.token_type', [2 if p == '<unk>' else 3 if p[0] == '<' else 1 for p in pieces], gw.I32)
    for key, name in (('bos', '<s>'), ('eos', '</s>'), ('unknown', '<unk>')):
        w.add(f'tokenizer.ggml.{key}_token_id', pieces.index(name))
    w.add('tokenizer.ggml.precompiled_charsmap', list(base64.b64decode(tokenizer['normalizer']['normalizers'][0]['precompiled_charsmap'])), gw.U8)
    for key in ('add_bos_token', 'add_eos_token', 'add_space_prefix', 'remove_extra_whitespaces'):
        w.add(f'tokenizer.ggml.{key}', True)


def write_gguf(folder, path, pooling):
    config, tokenizer = (json.loads((folder / f'{name}.json').read_text(encoding='utf-8')) for name in ('config', 'tokenizer'))
    w = gw.Writer()
    skipped = config['pad_token_id'] + 1 if config['model_type'] != 'bert' else 0
    w.add('general.architecture', 'bert')
    for key, value in (('block_count', config['num_hidden_layers']), ('context_length', config['max_position_embeddings'] - skipped), ('embedding_length', config['hidden_size']),
                       ('feed_forward_length', config['intermediate_size']), ('attention.head_count', config['num_attention_heads']), ('pooling_type', pooling)):
        w.add(f'bert.{key}', value)
    w.add('bert.attention.layer_norm_epsilon', config['layer_norm_eps'], gw.F32)
    w.add('bert.attention.causal', False)
    model = tokenizer['model']
    if model['type'] == 'WordPiece':
        add_word_pieces(w, model['vocab'], config)
    else:
        add_unigram(w, model, tokenizer)
    add_tensors(w, folder, skipped)
    w.write(path)


def compare(what, weft, model, rows, *options):
    text = run(weft, 'embed', '-m', model, *options, *(row['text'] for row in rows)).decode()
    got = np.array([[float(x) for x in line.split()] for line in text.splitlines()])
    want = np.array([row['embedding'] for row in rows])
    cosines = (got * want).sum(1) / np.linalg.norm(want, axis=1)  # ours have the length 1
    say(f'{what} embeddings', got.shape == want.shape and abs(cosines - 1).max() <= NEAR and abs(np.linalg.norm(got, axis=1) - 1).max() <= NEAR,
        f'{(1 - cosines).max():.1e} from the cosine of the same')


# config.json as others write it, or without what is a default, means the same
CHANGED = {'xlm-roberta': {'pad_token_id': None, 'model_type': None, 'layer_norm_eps': None},
           'modern-bert': {'hidden_activation': 'gelu_pytorch_tanh', 'rope_parameters': None, 'global_rope_theta': 160000.0, 'local_rope_theta': 10000.0, 'layer_types': None},
           'nomic-bert': {'num_hidden_layers': None, 'n_layer': 2, 'hidden_size': None, 'n_embd': 32, 'num_attention_heads': None, 'n_head': 2, 'intermediate_size': None, 'n_inner': 48,
                          'rope_parameters': None, 'rotary_emb_base': 1000, 'layer_norm_eps': None, 'layer_norm_epsilon': 1e-12, 'max_position_embeddings': None, 'n_positions': 128,
                          'head_dim': None, 'hidden_act': None, 'activation_function': 'swiglu', 'rotary_emb_fraction': 1.0, 'rotary_emb_interleaved': False, 'causal': False}}


def write_changed(folder, path):
    shutil.copytree(folder, path)
    config = json.loads((folder / 'config.json').read_text(encoding='utf-8'))
    (path / 'config.json').write_text(json.dumps(config | CHANGED[folder.name]), encoding='utf-8')


def main(weft, sources, device):
    device = resolve(weft, device)
    once = build_once(weft, device)
    for folder in sorted((pathlib.Path(sources) / 'tests/model/embeddings').iterdir()):
        facts = json.loads((folder / 'expected.json').read_text(encoding='utf-8'))
        rows = facts.get('texts', [])
        for row in rows if device == 'cpu' else []:
            ids = [int(i) for i in told(weft, 'tokenize', '-m', folder, '-p', row['text']).split()]
            say(f'{folder.name} tokens of {row["text"]!r}', ids == row['ids'], str(ids))
        if rows:
            compare(folder.name, weft, folder, rows, '--device', device, *once)
        if device == 'cpu' and folder.name in ('bert', 'xlm-roberta'):
            with tempfile.TemporaryDirectory() as top:
                path = pathlib.Path(top) / 'model.gguf'
                write_gguf(folder, path, CLS if folder.name == 'bert' else MEAN)
                compare(f'{folder.name} as GGUF', weft, path, [row for row in rows if row['text'] == row['text'].strip()], '--device', device)
        if device == 'cpu' and folder.name in CHANGED:
            with tempfile.TemporaryDirectory() as top:
                path = pathlib.Path(top) / folder.name
                write_changed(folder, path)
                compare(f'{folder.name} with another config.json', weft, path, rows, '--device', device)
                contexts = [re.search(r'context +(\d+)', told(weft, 'info', '-m', p))[1] for p in (folder, path)]
                say(f'{folder.name} context', len(set(contexts)) == 1, str(contexts))
    end()


main(*sys.argv[1:])
