#!/usr/bin/env python3
"""Trains small tokenizers of every kind that tokenizer.json knows, with Hugging Face's library, and writes each as tests/text/data/NAME.json
with NAME.ids beside it: strings, and the ids that the library gives them. Needs the package tokenizers and a text to train on:

    make_tokenizers.py TEXT                   writes the fixtures anew
    make_tokenizers.py TEXT --many            of the fixtures that are there, writes what many.py compares: 10,000 strings and digests of their ids
    make_tokenizers.py TEXT --first           writes data/first.json: which piece is the first one, by prepend_scheme "first", behind steps that move text
    make_tokenizers.py TEXT --compare LIBWEFT [--strings 10000] [--seed 1] [--only NAME] [--vocab FOLDER]
                                              compares ids over that many random strings a tokenizer, and text back from ids for plain ones;
                                              --vocab: GGUF vocabularies of real models, written as tokenizer.json, as well

What was made here: the first line of each .ids file has the library's version.
"""
import argparse
import base64
import ctypes
import gzip
import json
import os
import pathlib
import random
import sys
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / 'model')]
import many

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace('{1,3}', '')
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SIZE = 600
BYTES = [f'<0x{b:02X}>' for b in range(256)]
ADDED = [  # every combination of rules, special and not
    AddedToken('<|bos|>', special=True, normalized=False),
    AddedToken('<|end|>', special=True, normalized=False),
    AddedToken('<|left|>', lstrip=True, special=True, normalized=False),
    AddedToken('<|right|>', rstrip=True, special=True, normalized=False),
    AddedToken('<|both|>', lstrip=True, rstrip=True, special=False, normalized=False),
    AddedToken('<|alone|>', single_word=True, special=True, normalized=False),
    AddedToken('mono', single_word=True, special=False, normalized=False),
    AddedToken('Größe', special=False, normalized=True),
    AddedToken('two words', special=False, normalized=True),
    AddedToken('<raw>', special=False, normalized=False),
    AddedToken('    ', special=False, normalized=False),
]


def split(pattern, behaviour='isolated', invert=False):
    return pre_tokenizers.Split(Regex(pattern), behaviour, invert)


def bytes_only():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def byte_level(pre, normaliser=None, **options):
    return dict(model=lambda: models.BPE(**options), pre=pre, normaliser=normaliser, decoder=decoders.ByteLevel(),
                trainer=trainers.BpeTrainer(vocab_size=SIZE, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))


def fallback(pre, normaliser, decoder):
    return dict(model=lambda: models.BPE(unk_token='<unk>', fuse_unk=True, byte_fallback=True), pre=pre, normaliser=normaliser, decoder=decoder,
                trainer=trainers.BpeTrainer(vocab_size=SIZE + 256, special_tokens=['<unk>'] + BYTES, show_progress=False, max_token_length=12))


def unigram(pre, normaliser, byte_fallback=False):
    special = ['<unk>'] + (BYTES if byte_fallback else [])
    return dict(model=lambda: models.Unigram(), pre=pre, normaliser=normaliser, decoder=decoders.Metaspace(), byte_fallback=byte_fallback,
                trainer=trainers.UnigramTrainer(vocab_size=SIZE + len(special), special_tokens=special, unk_token='<unk>', show_progress=False))


SPACES = [('▁', ' ')]
LEGACY = normalizers.Sequence([normalizers.Prepend('▁'), normalizers.Replace(' ', '▁')])
STRIPPING = decoders.Sequence([decoders.Replace('▁', ' '), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(' ', 1, 0)])
PLAIN = decoders.Sequence([decoders.Replace('▁', ' '), decoders.ByteFallback(), decoders.Fuse()])
Seq = pre_tokenizers.Sequence
KINDS = {
    'llama3': byte_level(Seq([split(LLAMA3), bytes_only()]), ignore_merges=True),
    'qwen2': byte_level(Seq([split(QWEN2), bytes_only()]), normalizers.NFC()),
    'gpt4o': byte_level(Seq([split(GPT4O), bytes_only()])),
    'gpt2': byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    'starcoder': byte_level(Seq([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])),
    'falcon': byte_level(Seq([pre_tokenizers.Punctuation('contiguous'), pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Digits(),
                              split('[0-9][0-9][0-9]')])),
    'deepseek': byte_level(Seq([split(r'[\r\n]'), split(r'\s?\p{L}+'), split(r'\s?\p{P}+'), split('[一-龥ࠀ-一가-퟿]+'),
                                pre_tokenizers.Digits(individual_digits=True), bytes_only()]), normalizers.Sequence([])),
    'word': byte_level(Seq([split(r'\w+|[^\w\s]+', 'contiguous'), split(r'\s+$', 'merged_with_previous'), bytes_only()])),
    'llama2': fallback(None, LEGACY, STRIPPING),
    'mistral': fallback(pre_tokenizers.Metaspace(prepend_scheme='first', split=False), None, STRIPPING),
    'gemma': fallback(split(' ', 'merged_with_previous'), normalizers.Replace(' ', '▁'), PLAIN),
    'merging': fallback(Seq([split(r'[aeiou]+', 'merged_with_next'), split('x*', 'isolated'), split(r'[ \n]', 'removed')]), normalizers.NFKD(), PLAIN),
    'unigram': unigram(pre_tokenizers.Metaspace(prepend_scheme='always'), normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(' {2,}'), ' ')])),
    'unigram_bytes': unigram(pre_tokenizers.Metaspace(prepend_scheme='never'), None, True),
    'plain': unigram(Seq([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation('merged_with_previous')]),
                     normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()])),
}


def describe(kind, text):
    """The tokenizer.json as an object. Byte tokens are of the vocabulary, not added to it."""
    k = KINDS[kind]
    t = Tokenizer(k['model']())
    if k['normaliser']:
        t.normalizer = k['normaliser']
    if k['pre']:
        t.pre_tokenizer = k['pre']
    t.train_from_iterator(text, k['trainer'])
    t.decoder = k['decoder']
    t.add_tokens(ADDED)
    bos = t.token_to_id('<|bos|>')
    t.post_processor = processors.TemplateProcessing(single='<|bos|> $A', special_tokens=[('<|bos|>', bos)])
    o = json.loads(t.to_str())
    o['added_tokens'] = [a for a in o['added_tokens'] if a['content'] not in BYTES]
    if k.get('byte_fallback'):
        o['model']['byte_fallback'] = True
    return o


# ---- strings --------------------------------------------------------------------------------------


def settled(c):
    """Does the library class and normalise the character as today's Unicode does? Its tables are of several versions, Unicode 8 among them."""
    kind = unicodedata.category(c)
    if kind in ('Cn', 'Cs', 'Co'):
        return False
    punctuation = kind[0] == 'P' or c in '$+<=>^`|~'
    return ((normalizers.StripAccents().normalize_str(c) == '') == (kind[0] == 'M') and (len(pre_tokenizers.Punctuation().pre_tokenize_str(f'a{c}a')) == 3) == punctuation
            and all(normalizers.__dict__[f]().normalize_str(c) == unicodedata.normalize(f, c) for f in ('NFC', 'NFD', 'NFKC', 'NFKD')))


CHARS = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ('Cn', 'Cs', 'Co')]
ASSIGNED = [c for c in CHARS if settled(c)]
SETTLED = set(ASSIGNED)
BLOCKS = [(0x20, 0x7f), (0xa0, 0x250), (0x300, 0x370), (0x370, 0x590), (0x590, 0x700), (0x900, 0xdff), (0x1e00, 0x2070), (0x2070, 0x2c00), (0x3000, 0x3100),
          (0x4e00, 0x9fa5), (0xac00, 0xd7a4), (0xf900, 0xffef), (0x1f300, 0x1f6ff), (0x1f900, 0x1f9ff)]
FIXED = ['\n', '\n\n', '\r\n', '\t', ' ', '  ', '   ', '\u00a0', '\u3000', '\u200d', '\u200b', '\u2028', '▁', "'s", "'S", "'LL", "'\u017f", "don't", '👩\u200d👩\u200d👧', '🇩🇪', '👍🏽',
         'e\u0301', 'ﬁ', 'İ', 'ß', 'Ω', 'ǆ', '１２', '①', 'Ⅷ', '½', '٣', '...', '/*', '=>', '_x_', '<0x41>', '<unk>', '<', '|>', '\x00', '\x1f', '\x85', '\u180e']


def assigned(rng, low, high):
    while True:
        c = chr(rng.randrange(low, high))
        if c in SETTLED:
            return c


def part(rng, words):
    k = rng.randrange(8)
    if k < 2:
        return rng.choice(words)
    if k == 2:
        return ' ' + rng.choice(words).capitalize()
    if k == 3:
        return str(rng.randrange(10 ** rng.randrange(1, 9)))
    if k == 4:
        return rng.choice(FIXED)
    if k == 5:
        low, high = rng.choice(BLOCKS)
        return ''.join(assigned(rng, low, high) for _ in range(rng.randrange(1, 5)))
    if k == 6:
        return rng.choice(ASSIGNED)
    return rng.choice(ADDED).content if rng.random() < 0.4 else ' ' * rng.randrange(1, 6)


def strings(seed, n, words):
    rng = random.Random(seed)
    for _ in range(n):
        yield ''.join(part(rng, words) for _ in range(rng.randrange(12)))


# ---- weft -------------------------------------------------------------------------------------------


def compare(lib, name, o, seed, n, words):
    text = json.dumps(o, ensure_ascii=False)
    theirs = Tokenizer.from_str(text)
    ours = many.Weft.of_json(lib, text)
    wrong = tokens = 0
    for s in strings(seed, n, words):
        want = theirs.encode(s).ids
        got = ours.encode(s)
        tokens += len(want)
        wrong += got != want
        if got != want and wrong <= 5:
            print(f'{name}: {s!r}\n  want {want}\n  got  {got}')
    print(f'{name}: {n} strings, {tokens} ids, {wrong} strings differ', flush=True)
    return wrong


def write_many(words):
    """What many.py reads."""
    some = list(strings(1, 10000, words))
    many.STRINGS.write_bytes(gzip.compress(json.dumps(some, ensure_ascii=False).encode(), mtime=0))
    ids = {}
    for kind in KINDS:
        t = Tokenizer.from_file(str(HERE / 'data' / f'{kind}.json'))
        ids[kind] = many.digests(lambda s: t.encode(s).ids, some)
    rows = ',\n'.join(f'  {json.dumps(kind)}: {json.dumps(row)}' for kind, row in ids.items())
    many.DIGESTS.write_text(f'{{"tokenizers": {json.dumps(tokenizers.__version__)},\n "ids": {{\n{rows}}}}}\n')


# ---- prepend_scheme "first" ---------------------------------------------------------------------------

FIRST_TEXTS = ['', 'a', ' a', '  a', 'a a', ' a a', 'b', ' b', '.', '.a', 'a.', ' .', 'ba', 'ab', 'bb', 'aba', 'bab', 'b a', '▁', '▁a', ' ▁a', 'éa', 'éb', 'e\u0301a', '\u0301a', 'Áa',
               '<x>', '<x>a', 'a<x>', 'a<x>a', '<x> a<y>a', '<x><x>a', '<x>ba', ' <x>a', '<y>a', ' <y>a', 'a<y>a<x>', 'b<y>a', '<y> a', '<z>a', ' <z> a', 'a <z> a', '<z><y>a',
               '\xada', '\xad a', '\xad', 'a\xada', '\xad\xad\u2026', '\u2026a', '\u3000a', 'a\u2026', 'e\u0301\u0302a', 'e\u0301\xad']
FIRST_ADDED = [AddedToken('<x>', special=True, normalized=False), AddedToken('<y>', special=False, normalized=True), AddedToken('<z>', special=True, normalized=False, lstrip=True, rstrip=True)]


def write_first():
    vocab = {c: i for i, c in enumerate(['▁', 'a', 'b', '.', 'e', 'é', '\u0301', '▁a', 'ab'])}
    first = pre_tokenizers.Metaspace(prepend_scheme='first')
    table = json.loads((HERE.parent / 'model/embeddings/xlm-roberta/tokenizer.json').read_text(encoding='utf-8'))['normalizer']['normalizers'][0]['precompiled_charsmap']
    normal = [None, normalizers.Precompiled(base64.b64decode(table)), normalizers.Strip(right=False), normalizers.NFC(), normalizers.NFD(), normalizers.Prepend('b'), normalizers.Replace('b', ''), normalizers.Replace(' ', 'b'),
              normalizers.Replace(Regex('ba?'), 'e'), normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])]
    pre = [first, pre_tokenizers.Metaspace(prepend_scheme='first', split=False), Seq([pre_tokenizers.Punctuation(), first]), Seq([split('b', 'removed'), first]),
           Seq([first, pre_tokenizers.Punctuation(), first]), Seq([first, split('▁', 'removed'), first])]
    rows = []
    for n, p in [(n, pre[0]) for n in normal] + [(None, p) for p in pre[1:]]:
        t = Tokenizer(models.BPE(vocab=vocab, merges=[('▁', 'a'), ('a', 'b')]))
        t.pre_tokenizer = p
        if n:
            t.normalizer = n
        t.add_tokens(FIRST_ADDED)
        ids = ',\n    '.join(json.dumps([s, t.encode(s).ids], separators=(',', ':')) for s in FIRST_TEXTS)
        rows.append(f'  {{"tokenizer": {json.dumps(json.loads(t.to_str()), separators=(",", ":"))},\n   "ids": [\n    {ids}]}}')
    (HERE / 'data' / 'first.json').write_text(f'{{"tokenizers": "{tokenizers.__version__}", "rows": [\n' + ',\n'.join(rows) + ']}\n')


def real(folder):
    """tokenizer.json of the GGUF vocabularies that are there, with the patterns of their models."""
    from reference import File
    specs = {'llama-bpe': (Seq([split(LLAMA3), bytes_only()]), None, True), 'qwen2': (Seq([split(QWEN2), bytes_only()]), normalizers.NFC(), False),
             'gpt-2': (pre_tokenizers.ByteLevel(add_prefix_space=False), None, False)}
    for name, (pre, normaliser, ignore) in specs.items():
        path = os.path.join(folder, name + '.gguf')
        if not os.path.exists(path):
            print(f'{path} is not there')
            continue
        m = File(path).meta
        tokens, types = m['tokenizer.ggml.tokens'], m['tokenizer.ggml.token_type']
        added = [i for i, k in enumerate(types) if k in (3, 4)]
        vocab = {t: i for i, t in enumerate(tokens) if types[i] not in (3, 4)}
        t = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(x.split(' ', 1)) for x in m['tokenizer.ggml.merges']], ignore_merges=ignore))
        t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
        if normaliser:
            t.normalizer = normaliser
        o = json.loads(t.to_str())
        o['added_tokens'] = [{'id': i, 'content': tokens[i], 'single_word': False, 'lstrip': False, 'rstrip': False, 'normalized': False, 'special': types[i] == 3} for i in added]
        yield name, o


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('text')
    p.add_argument('--compare')
    p.add_argument('--many', action='store_true')
    p.add_argument('--first', action='store_true')
    p.add_argument('--strings', type=int, default=10000)
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--only')
    p.add_argument('--vocab')
    a = p.parse_args()
    text = pathlib.Path(a.text).read_text(encoding='utf-8')[:200000].split('\n') + ['Größe über naïve café', '日本語のテキスト', 'привет мир', 'price: 1234.56 €', "it's don't we'll"] * 20
    words = sorted({w for line in text for w in line.split()})
    lib = ctypes.CDLL(a.compare) if a.compare else None
    wrong = 0
    print(f'{len(CHARS) - len(ASSIGNED)} of {len(CHARS)} characters are left out, whose classes changed between versions of Unicode')
    if a.many:
        return write_many(words)
    if a.first:
        return write_first()
    for kind in KINDS:
        if a.only and kind not in a.only.split(','):
            continue
        if lib:
            o = json.loads((HERE / 'data' / f'{kind}.json').read_text(encoding='utf-8'))
            wrong += compare(lib, kind, o, a.seed, a.strings, words)
            continue
        o = describe(kind, text)
        dumped = json.dumps(o, ensure_ascii=False, separators=(',', ':'))
        (HERE / 'data').mkdir(exist_ok=True)
        (HERE / 'data' / f'{kind}.json').write_text(dumped + '\n', encoding='utf-8')
        t = Tokenizer.from_str(dumped)
        rows = [json.dumps([s, t.encode(s).ids], separators=(',', ':')) for s in strings(7, 150, words)]
        (HERE / 'data' / f'{kind}.ids').write_text(f'# tokenizers {tokenizers.__version__}\n' + '\n'.join(rows) + '\n', encoding='utf-8')
    for name, o in real(a.vocab) if a.vocab else ():
        if not a.only or name in a.only.split(','):
            wrong += compare(lib, name, o, a.seed, a.strings, words)
    sys.exit(wrong > 0)


if __name__ == '__main__':
    main()
