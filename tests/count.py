"""Counts the tests in a log of meson for the last line of test.sh: passed, failed, skipped, and the names of those that failed.

    count.py testlog.json

A program of tests counts once as passed or failed. What is skipped inside of one that passed, or that was skipped as a
whole, is counted one by one, by what unittest and cmocka say at their end.
"""
import json
import re
import sys

INSIDE = re.compile(r"^OK \(.*\bskipped=(\d+).*\)$|^\[  SKIPPED \] (\d+) test\(s\)", re.M)


def skipped_inside(test):
    said = test.get("stdout", "") + "\n" + test.get("stderr", "")
    return sum(int(a or b) for a, b in INSIDE.findall(said))


def main():
    ok = bad = skip = 0
    names = []
    with open(sys.argv[1], encoding="utf-8") as f:
        for test in map(json.loads, f):
            if test["result"] in ("OK", "EXPECTEDFAIL"):
                ok += 1
                skip += skipped_inside(test)
            elif test["result"] == "SKIP":
                skip += max(1, skipped_inside(test))
            else:
                bad += 1
                names.append(f'{test["name"]} ({test["result"]})')
    print(ok, bad, skip, "; ".join(names))


main()
