#!/usr/bin/env python3
"""Reads the tests and fails on a tolerance of their own: results are judged by src/verify/tolerances.def alone.

    tolerances.py SOURCES

A tolerance is a comparison with a small number, or a function that takes one. Tests of the command line and the server compare what is
printed, with its digits; the files in OTHERS compare what is no result of a kernel or a model, and each says what.
"""
import os
import re
import sys

NUMBER = r"(?:\d*\.?\d+e-\d+|0x1p-\d+|0?\.0\d*)f?"
SMALL = re.compile(rf"(?:[<>]=?\s*{NUMBER})|(?:{NUMBER}\s*\*?\s*[\w.>\[\]-]*\s*[<>]=?\s)|isclose\(|allclose\(|approx\(|assert_(?:float|double)_equal|assertAlmostEqual")
FOLDERS = ("fault", "golden", "model", "op", "support", "unit")
OTHERS = {
    "tests/golden/calibration.py": "quantiles of histograms",
    "tests/unit/calibration.c": "quantiles of histograms",
    "tests/unit/cluster.c": "times of a simulated clock",
    "tests/unit/dev_roofline.c": "sums in double precision against themselves",
    "tests/unit/loadgen.c": "statistics",
    "tests/unit/overlap.c": "times of a simulated clock",
    "tests/unit/overlap_plans.c": "times of a simulated clock",
    "tests/unit/plan_profile.c": "times read from a table",
    "tests/unit/plan_search.c": "how close a solver comes to the best of all",
    "tests/unit/plan_simulate.c": "sums of times",
    "tests/unit/sample.c": "how close a draw is to the boundary of two tokens",
    "tests/unit/verify_check.c": "errors that it plants, and must see judged",
}


def complaints(root):
    for folder in FOLDERS:
        for name in sorted(os.listdir(os.path.join(root, "tests", folder))):
            path = f"tests/{folder}/{name}"
            if not name.endswith((".c", ".h", ".clh", ".py")) or path in OTHERS:
                continue
            with open(os.path.join(root, path), encoding="utf-8") as f:
                for i, line in enumerate(f, 1):
                    if SMALL.search(line):
                        yield f"{path}:{i}: a tolerance of its own, which belongs into src/verify/tolerances.def: {line.strip()}"


def main():
    found = list(complaints(sys.argv[1]))
    missing = [path for path in OTHERS if not os.path.exists(os.path.join(sys.argv[1], path))]
    print("\n".join(found + [f"{path} is gone: take it off the list" for path in missing]))
    sys.exit(bool(found or missing))


if __name__ == "__main__":
    main()
