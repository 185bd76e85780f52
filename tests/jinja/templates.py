#!/usr/bin/env python3
"""Renders real chat templates with many conversations, by the program of the first argument and by Python's jinja2: the same text, or both fail."""
import glob
import os
import sys

from conversations import CONVERSATIONS, TOOLS, answer, user
from reference import expected, rendered

FOLDER = os.path.join(os.environ.get("WEFT_TEST_DATA", os.path.join("..", "shared", "data")), "templates")


def main(program):
    files = sorted(glob.glob(os.path.join(FOLDER, "*.jinja")))
    if not files:
        print(f"skipped: templates: {FOLDER} has none: set WEFT_TEST_DATA")
        sys.exit(77)
    texts = {os.path.basename(f): open(f, encoding="utf-8", newline="").read() for f in files}
    cases = [(f, name, (t, *c)) for f, t in texts.items() for name, c in CONVERSATIONS.items()]
    bad = same = refused = 0
    for (file, name, case), (text, error, _) in zip(cases, rendered(program, [c for _, _, c in cases])):
        want = expected(*case)
        want = want if want is None else want.encode("utf-8", "surrogatepass")
        same += want is not None and want == text
        refused += want is None and text is None
        if want is None and "generator is not JSON" in expected.why:
            continue  # a list here
        if want != text:
            bad += 1
            print(f"{file}, {name}:\n  want {expected.why if want is None else want}\n  got  {error if text is None else text}")
    # Who leaves is not waited for, however much there is to write: the renderer itself fails if it is long silent.
    much = [user("a" * 300000), *[m for i in range(1500) for m in (answer(f"{i}"), user(" x" * 100))]]
    rendered(program, [(t, much, TOOLS * 20, None, True) for t in texts.values()])
    print(f"{len(texts)} templates, {same} texts equal, {refused} refused by both, {bad} differ")
    if bad or same < 20 * len(texts):
        sys.exit("differences, or too few texts")


if __name__ == "__main__":
    main(sys.argv[1])
