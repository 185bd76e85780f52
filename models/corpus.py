#!/usr/bin/env python3
"""Writes the demo model's corpus: simple English stories, one after another, from the grammar in
plots.txt, grammar.py and words.py. Nothing else goes in; story n of seed s is always the same.

    corpus.py --count 160000 stories.txt     a story a block, blocks parted by a line with ===
    corpus.py --count 5 --first 7 -          to look at some
    corpus.py --count 5000 --check -         counts slips that a machine can see; exit 1 if any
"""

import argparse
import collections
import multiprocessing
import re
import sys

import grammar

BREAK = "\n===\n"
PLOTS = grammar.read_plots()
SLIPS = {
    "article": r"\ba [aeiou]|\ban (?!hour)[^aeiou]|\b[Aa] an? ",
    "mark left over": r"[\[\]{}|]|<.*?>|None",
    "spaces": r"  |^ | $| [.,!?]|\n\n\n",
    "small letter after a full stop": r"(?:[.!?] |\.\" |^|\n)\"?[a-z]",
    "word twice": r"\b(\w+) \1\b",
    "speech without an end": r"\"[^\"\n]*(?:\n|$)",
    "no full stop": r"[^.!?\"\n](?:\n|$)",
}
ALLOWED = {"word twice": {"One two"}}


def story(number, seed=1):
    return str(grammar.Story(PLOTS, f"{seed}/{number}"))


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read().removesuffix("\n").split(BREAK)


def slips(text):
    """Names of the slips in a story, with where."""
    for name, pattern in SLIPS.items():
        for m in re.finditer(pattern, text):
            if name == "speech without an end" and text[: m.start()].count('"') % 2:
                continue  # that was a closing mark
            if m.group(0) not in ALLOWED.get(name, ()):
                yield name, text[max(0, m.start() - 30) : m.end() + 30].replace("\n", "/")


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--count", type=int, default=160000)
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--check", action="store_true")
    p.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    p.add_argument("out")
    a = p.parse_args()
    with multiprocessing.Pool(a.jobs) as pool:
        stories = pool.map(story, range(a.first, a.first + a.count), 256)
    if a.check:
        found = collections.Counter(s for text in stories for s in slips(text))
        for (name, where), n in found.most_common(40):
            print(f"{n:6}  {name}: {where}")
        lengths = sorted(len(text.split()) for text in stories)
        print(
            f"{a.count} stories, {len(set(stories))} different, {sum(found.values())} slips; "
            "words a story: "
            f"{lengths[0]} to {lengths[-1]}, median {lengths[len(lengths) // 2]}, "
            f"{len({w for t in stories for w in re.findall('[A-Za-z]+', t)})} different words"
        )
        sys.exit(bool(found))
    out = sys.stdout if a.out == "-" else open(a.out, "w", encoding="utf-8")
    out.write(BREAK.join(stories) + "\n")


if __name__ == "__main__":
    main()
