"""Odd strings, the same for each seed: words, numbers, blanks in rows, control characters and NUL, U+2581, marks, emoji, texts that look like tokens, and
characters from everywhere. random.random() alone is promised to give the same numbers in each version of Python.
"""
import random

FIXED = ['\n', '\n\n', '\n\n\n', '\r\n', '\r', '\t', '\t\t', ' ', '  ', '   ', '     ', ' ' * 17, '\u00a0', '\u3000', '\u200d', '\u200b', '\u2028', '\ufeff', '▁', '▁▁', ' ▁', '▁ ',
         "'s", "'S", "'LL", "don't", 'don’t', "'\u017f", '👩\u200d👩\u200d👧', '🇩🇪', '👍🏽', '🦙', 'e\u0301', 'é', 'ﬁ', 'İ', 'ß', 'Ω', 'ǆ', '１２', '①', '½', '٣', '२', '...', '…', '/*', '=>', '_x_',
         '<0x41>', '<0x0A>', '<unk>', '</s>', '<s>', '<bos>', '<eos>', '<|im_end|>', '<|im_start|>', '<|endoftext|>', '<start_of_turn>', '<end_of_turn>', '<div>', '</table>', '<|', '|>',
         '[INST]', '\x00', '\x01', '\x04', '\x1f', '\x7f', '\x80', '\x85', '\u180e', 'a\x04b', 'x▁y', '你好', '世界', 'こんにちは', '한국어', 'привет', 'مرحبا', 'שלום', 'नमस्ते', 'ไทย', '\U0001d54f',
         '\U0010ffff', '\ue000', '\ufffd', '\ufffe', '1234567', '3.14', '0x1F', 'http://a.b/c?d=1', 'CamelCaseWORDS', 'snake_case']
WORDS = ('the of and a to in is you that it he was for on are as with his they I at be this have from or one had by word but not what all were we when your can said there use an each '
         'which she do how their if will up other about out many then them these so some her would make like him into time has look two more write go see number no way could people').split()
BLOCKS = [(0x20, 0x7f), (0, 0x20), (0x7f, 0x250), (0x300, 0x370), (0x370, 0x590), (0x590, 0x700), (0x900, 0xdff), (0x1e00, 0x2070), (0x2070, 0x2c00), (0x3000, 0x3100), (0x4e00, 0x9fa5),
          (0xac00, 0xd7a4), (0xf900, 0xffef), (0x1f300, 0x1f6ff), (0x1f900, 0x1f9ff), (0x10000, 0x110000)]


def below(rng, n):
    return int(rng.random() * n)


def pick(rng, some):
    return some[below(rng, len(some))]


def part(rng):
    k = below(rng, 8)
    if k < 2:
        return pick(rng, WORDS)
    if k == 2:
        return ' ' + pick(rng, WORDS).capitalize()
    if k == 3:
        return str(below(rng, 10 ** (1 + below(rng, 8))))
    if k < 6:
        return pick(rng, FIXED)
    if k == 6:
        low, high = pick(rng, BLOCKS)
        return ''.join(chr(low + below(rng, high - low)) for _ in range(1 + below(rng, 4)))
    return ' ' * (1 + below(rng, 5)) + pick(rng, WORDS)


def strings(n, seed=1):
    rng = random.Random(seed)
    return [''.join(part(rng) for _ in range(below(rng, 12))) for _ in range(n)]


def not_utf8(n, seed=1):
    """Bytes, most of them ASCII."""
    rng = random.Random(seed)
    return [bytes(below(rng, 256 if below(rng, 3) == 0 else 128) for _ in range(below(rng, 24))) for _ in range(n)]
