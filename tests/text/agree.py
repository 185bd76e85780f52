#!/usr/bin/env python3
"""Published vocabularies as GGUF files: the ids of 2,000 odd strings are those of llama.cpp (data/odd.json, written by tests/real/make.py, with its version),
and the same model's tokenizer.json, written here from the vocabulary, gives the same, for bytes that are no UTF-8, too.

    agree.py LIBWEFT SOURCES
"""
import ctypes
import json
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / 'model')]
import many
import odd
from gguf_read import File

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {'llama-bpe': LLAMA3, 'qwen2': LLAMA3.replace('{1,3}', ''), 'gpt-2': None}  # None: ByteLevel's own
CONTROL, USER = 3, 4
# Qwen 2's vocabulary has this as an ordinary token, which text of that form does not become, as with Hugging Face's library; llama.cpp makes it a control token.
LEFT_OUT = {'qwen2': '</s>'}


def strings_for(name):
    return [s for s in odd.strings(2000) if name not in LEFT_OUT or LEFT_OUT[name] not in s]


def byte_level(name, vocab, merges):
    pre = [{'type': 'ByteLevel', 'add_prefix_space': False, 'use_regex': not SPLITS[name]}]
    if SPLITS[name]:
        pre.insert(0, {'type': 'Split', 'pattern': {'Regex': SPLITS[name]}, 'behavior': 'Isolated', 'invert': False})
    return {'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': pre}, 'decoder': {'type': 'ByteLevel'},
            'model': {'type': 'BPE', 'vocab': vocab, 'merges': merges, 'ignore_merges': name == 'llama-bpe'}}


def sentencepiece(vocab, scores):
    """As transformers converts it: a merge for each two tokens that make a third, in the order of the third's score."""
    pairs = [(t[:k], t[k:]) for t in vocab for k in range(1, len(t)) if t[:k] in vocab and t[k:] in vocab]
    pairs.sort(key=lambda p: (-scores[vocab[p[0] + p[1]]], vocab[p[0]], vocab[p[1]]))
    space = {'type': 'Replace', 'pattern': {'String': ' '}, 'content': '▁'}
    return {'normalizer': {'type': 'Sequence', 'normalizers': [{'type': 'Prepend', 'prepend': '▁'}, space]}, 'decoder': {'type': 'ByteFallback'},
            'model': {'type': 'BPE', 'vocab': vocab, 'merges': pairs, 'unk_token': '<unk>', 'byte_fallback': True, 'fuse_unk': True}}


def tokenizer_json(name, meta):
    tokens, types = meta['tokenizer.ggml.tokens'], meta['tokenizer.ggml.token_type']
    added = [{'id': i, 'content': t, 'special': k != USER} for i, (t, k) in enumerate(zip(tokens, types)) if k in (2, CONTROL, USER)]
    vocab = {t: i for i, t in enumerate(tokens) if types[i] not in (CONTROL, USER)}
    if name in SPLITS:
        o = byte_level(name, vocab, meta['tokenizer.ggml.merges'])
    else:
        o = sentencepiece(vocab, meta['tokenizer.ggml.scores'])
    return json.dumps(o | {'added_tokens': added}, ensure_ascii=False)


def count_other(a, b, texts):
    """Strings that get other ids, without BOS, which a tokenizer.json says elsewhere."""
    wrong = [t for t in texts if a.encode(t, many.NO_ADD_SPECIAL) != b.encode(t, many.NO_ADD_SPECIAL)]
    return len(wrong), wrong[:3]


def main():
    lib, failed = ctypes.CDLL(sys.argv[1]), False
    folder = pathlib.Path(os.environ.get('WEFT_TEST_DATA', pathlib.Path(sys.argv[2]) / '..' / 'shared' / 'data')) / 'vocab'
    if not folder.exists():
        print(f'skipped: {folder} is missing: set WEFT_TEST_DATA')
        sys.exit(77)
    for name, want in json.loads((HERE / 'data/odd.json').read_text())['ids'].items():
        file = folder / f'{name}.gguf'
        gguf, strings = many.Weft(lib, file), strings_for(name)
        wrong = sum(a != b for a, b in zip(many.digests(gguf.encode, strings), want, strict=True))
        said = f'{wrong} of {len(want)} digests differ from those of llama.cpp'
        if name != 'deepseek-llm':  # whose file lists letters one by one
            json_too = many.Weft.of_json(lib, tokenizer_json(name, File(file).meta))
            other, some = count_other(gguf, json_too, strings + odd.not_utf8(500))
            said += f', {other} strings get other ids by a tokenizer.json {some or ""}'
            wrong += other
        print(f'{"FAILED" if wrong else "ok":6} {name}: {said}', flush=True)
        failed |= wrong > 0
    sys.exit(failed)


if __name__ == '__main__':
    main()
