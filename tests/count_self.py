#!/usr/bin/env python3
"""The counting of test.sh: real programs of tests, of which some are skipped, and what meson would log of them.

    count_self.py count.py
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = """
import sys, unittest
sys.path.insert(0, {cli!r})
import cli
class T(unittest.TestCase):
    def test_runs(self):
        self.assertTrue({runs})
    def test_skips(self):
        self.skipTest("OK (skipped=50)")
    @unittest.skip("no reason")
    def test_skips_too(self):
        pass
@unittest.skip(cli.NEEDS_HARDWARE + "none of them")
class U(unittest.TestCase):
    def test_one(self):
        pass
cli.main()
"""
CMOCKA = "[==========] Running 3 test(s).\n[  SKIPPED ] absent\n[==========] 3 test(s) run.\n[  SKIPPED ] 2 test(s), listed below:\n[  SKIPPED ] absent\n"
SILENT = "it does not say why"


def run(text):
    """Its exit code and what it said, as meson logs them."""
    p = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    return {"result": {0: "OK", 77: "SKIP"}.get(p.returncode, "FAIL"), "stdout": p.stdout, "stderr": p.stderr}


def program(runs, *args):
    cli = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cli")
    text = PROGRAM.format(cli=cli, runs=runs)
    return run(text.replace("cli.main()", f"sys.argv[1:] = {list(args)}\ncli.main()"))


class Count(unittest.TestCase):
    def count(self, *tests, ci=False):
        env = {k: v for k, v in os.environ.items() if k != "CI"}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            for i, t in enumerate(tests):
                f.write(json.dumps({"name": f"weft:more / t{i}", **t}) + "\n")
            f.flush()
            p = subprocess.run([sys.executable, COUNT, f.name], capture_output=True, text=True, check=True, env={**env, **({"CI": "true"} if ci else {})})
        return p.stdout.splitlines()

    def test_python(self):
        self.assertEqual(self.count(program(True)), ["1 0 3", "skipped t0: T.test_skips: OK (skipped=50)", "skipped t0: T.test_skips_too: no reason",
                                                     "skipped t0: U.test_one: needs other hardware: none of them"])
        self.assertEqual(self.count(program(True, "T.test_runs")), ["1 0 0"])
        self.assertEqual(self.count(program(True, "T.test_skips", "U"))[0], "0 0 2")
        lines = self.count(program(False))
        self.assertEqual(lines[:2], ["0 1 0", "failed t0 (FAIL)"])
        self.assertIn("said AssertionError: False is not true", lines)

    def test_others(self):
        passed, gone = {"result": "OK", "stdout": "skipped=4\n", "stderr": ""}, {"result": "SKIP"}
        self.assertEqual(self.count(passed, gone, {"result": "OK", "stdout": CMOCKA}, {"result": "TIMEOUT"}, {"result": "ERROR"}),
                         ["2 2 3", "failed t3 (TIMEOUT)", "failed t4 (ERROR)", *(f"skipped t{i}: {SILENT}" for i in (1, 2, 2))])

    def test_a_skip_in_ci_is_a_failure(self):
        gone = {"result": "SKIP", "stdout": "skipped: oclgrind is missing\n"}
        self.assertEqual(self.count(gone, ci=True), ["0 1 0", "failed t0 (skipped where CI is set: oclgrind is missing)", "said skipped: oclgrind is missing"])
        self.assertEqual(self.count({"result": "SKIP"}, ci=True), ["0 1 0", f"failed t0 (skipped where CI is set: {SILENT})"])
        self.assertEqual(self.count({"result": "OK", "stdout": CMOCKA}, ci=True)[0], "0 1 0")
        self.assertEqual(self.count(program(True), ci=True)[:2], ["0 1 0", "failed t0 (skipped where CI is set: T.test_skips: OK (skipped=50); "
                                                                          "T.test_skips_too: no reason)"])

    def test_other_hardware_may_be_absent_in_ci(self):
        self.assertEqual(self.count(program(True, "T.test_runs", "U"), ci=True), ["1 0 1", "skipped t0: U.test_one: needs other hardware: none of them"])
        self.assertEqual(self.count({"result": "SKIP", "stdout": "skipped: needs other hardware: a moon\n"}, ci=True)[0], "0 0 1")


if __name__ == "__main__":
    COUNT = sys.argv.pop(1)
    unittest.main()
