#!/usr/bin/env python3
"""Makes the demo model's vocabulary from the corpus, and encodes text as engines do with it.

    tokenizer.py --size 2048 stories.txt vocab.txt     one piece a line, most valuable first

The vocabulary is of SentencePiece's kind: <unk> <s> </s>, 256 byte tokens, then pieces whose score
is minus their rank. Pieces come from byte-pair merges inside of words ("\u2581" stands for a space
and opens a word), so merging the pair of highest score first, as engines do, finds them again.
"""

import argparse
import collections
import re

BOS, EOS, FIRST_PIECE = 1, 2, 259
SPACE = "\u2581"
WORD = re.compile(f"\n|{SPACE}?[A-Za-z]+|{SPACE}?[^\nA-Za-z{SPACE}]+|{SPACE}")
CHARS = SPACE + "".join(chr(c) for c in range(33, 127))


def split(text):
    return WORD.findall(SPACE + text.replace(" ", SPACE))


def train(texts, size):
    """The pieces in order of score: merges by falling count, then single characters."""
    counts = collections.Counter(w for t in texts for w in split(t) if w != "\n")
    words = [(list(w), n) for w, n in sorted(counts.items()) if all(c in CHARS for c in w)]
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for i, (symbols, n) in enumerate(words):
        for pair in zip(symbols, symbols[1:]):
            pairs[pair] += n
            where[pair].add(i)
    merges = []
    while len(merges) < size - FIRST_PIECE - len(CHARS):
        best = max(pairs, key=lambda p: (pairs[p], p))
        if pairs[best] < 2:
            raise SystemExit(f"the corpus is too small for {size} pieces")
        if "".join(best) not in merges:
            merges.append("".join(best))
        for i in where.pop(best):
            merge_word(words[i], i, best, pairs, where)
        del pairs[best]
    return merges + list(CHARS)


def merge_word(word, index, best, pairs, where):
    """Joins a pair in one word and moves the word's pairs in the counts."""
    symbols, n = word
    for pair in zip(symbols, symbols[1:]):
        pairs[pair] -= n
    i = 0
    while i + 1 < len(symbols):
        if (symbols[i], symbols[i + 1]) == best:
            symbols[i : i + 2] = ["".join(best)]
        i += 1
    for pair in zip(symbols, symbols[1:]):
        pairs[pair] += n
        where[pair].add(index)


class Tokenizer:
    def __init__(self, pieces):
        self.ids = {p: FIRST_PIECE + i for i, p in enumerate(pieces)}
        self.texts = {i: p for p, i in self.ids.items()}
        self.size, self.cache = FIRST_PIECE + len(pieces), {}

    @classmethod
    def load(cls, path):
        with open(path, encoding="utf-8") as f:
            return cls(f.read().split("\n")[:-1])

    def word(self, word):
        """Joins the neighbours that make the piece of lowest id (highest score) till none do."""
        if word not in self.cache:
            s = list(word)
            while True:
                joins = [
                    (self.ids[a + b], i)
                    for i, (a, b) in enumerate(zip(s, s[1:]))
                    if a + b in self.ids
                ]
                if not joins:
                    break
                _, i = min(joins)
                s[i : i + 2] = [s[i] + s[i + 1]]
            self.cache[word] = [
                t
                for p in s
                for t in ([self.ids[p]] if p in self.ids else [3 + b for b in p.encode()])
            ]
        return self.cache[word]

    def encode(self, text):
        """Without <s> and </s>."""
        return [t for w in split(text) for t in self.word(w)]

    def decode(self, ids):
        raw = b"".join(
            bytes([i - 3]) if 3 <= i < FIRST_PIECE else self.texts.get(i, "").encode() for i in ids
        )
        return raw.decode("utf-8", "replace").replace(SPACE, " ").removeprefix(" ")


def main():
    import corpus

    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--size", type=int, default=2048)
    p.add_argument("--stories", type=int, default=20000, help="how many of the corpus to read")
    p.add_argument("corpus")
    p.add_argument("out")
    a = p.parse_args()
    texts = corpus.read(a.corpus)[: a.stories]
    pieces = train(texts, a.size)
    with open(a.out, "w", encoding="utf-8") as f:
        f.write("".join(piece + "\n" for piece in pieces))
    tok = Tokenizer(pieces)
    ids = [len(tok.encode(t)) for t in texts[:1000]]
    print(
        f"{tok.size} tokens; "
        f"{sum(len(t.split()) for t in texts[:1000]) / sum(ids):.3f} words a token; "
        f"longest story {max(ids)} tokens, mean {sum(ids) / len(ids):.0f}"
    )


if __name__ == "__main__":
    main()
