"""Counts the tests in a log of meson for the last line of test.sh: `passed failed skipped` in the first line, then a line for each
that failed, `failed NAME (WHY)`, and the end of what it said, `said LINE`; and for each that was skipped, `skipped NAME: WHY`.

    count.py testlog.json

A program of tests counts once as passed or failed. What is skipped inside of one that passed, or that was skipped as a
whole, is counted one by one. It says so itself in lines `skipped: ...`; what unittest and cmocka count beyond these lines
is skipped without a reason.

Where CI is set, setup.sh has installed all that tests ask for: a program that skips anything has failed then, unless each
reason says that it needs other hardware.
"""
import json
import os
import re
import sys

SUMMARY = re.compile(r"^OK \(.*\bskipped=(\d+).*\)$|^\[  SKIPPED \] (\d+) test\(s\)", re.M)
REASON = re.compile(r"^skipped: (.+)$", re.M)
HARDWARE = "needs other hardware"
LAST = 12  # lines of a test that failed


def skips_of(test):
    """The reason of each test that was skipped inside, or of the whole."""
    said = test.get("stdout", "") + "\n" + test.get("stderr", "")
    reasons = REASON.findall(said)
    count = sum(int(a or b) for a, b in SUMMARY.findall(said))
    count = max(count, test["result"] == "SKIP")
    return reasons + ["it does not say why"] * (count - len(reasons))


def end_of(test):
    """What is worth reading again at the end of a long log."""
    said = test.get("stdout", "") + "\n" + test.get("stderr", "")
    return [line for line in said.splitlines() if line.strip()][-LAST:]


def judge(test):
    """Why it counts as failed, or None; and what it skipped."""
    if test["result"] not in ("OK", "EXPECTEDFAIL", "SKIP"):
        return test["result"], []
    skips = skips_of(test)
    if os.environ.get("CI") and not all(HARDWARE in s for s in skips):
        return "skipped where CI is set: " + "; ".join(s for s in skips if HARDWARE not in s), []
    return None, skips


def main():
    ok, failed, skipped = 0, [], []
    with open(sys.argv[1], encoding="utf-8") as f:
        for test in map(json.loads, f):
            name = test["name"].rpartition(" / ")[2]  # without its suite
            why, skips = judge(test)
            skipped += [f"{name}: {s}" for s in skips]
            if why:
                failed.append((f"{name} ({why})", end_of(test)))
            elif test["result"] != "SKIP":
                ok += 1
    print(ok, len(failed), len(skipped))
    for name, said in failed:
        print(f"failed {name}", *said, sep="\nsaid ")
    for name in skipped:
        print("skipped", name)


main()
