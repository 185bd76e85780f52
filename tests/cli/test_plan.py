"""`weft plan`: what a step runs; and plans that cut, interleave and choose by batch write the same text."""
import os
import re
import tempfile
import unittest

import cli
from cli import CPU, USAGE

RUN = ["run", *CPU, "-p", "One day there was a little girl who", "-n", 24, "-q"]


def cut(text, op, lines):
    """The line of an op replaced by others, given as (where, tokens)."""
    old = re.search(rf"(?m)^layer {op} .*$", text).group(0)
    new = [re.sub(r"^layer( \S+ +)\S+", rf"{where}\g<1>{tokens}", old) for where, tokens in lines]
    return text.replace(old, "\n".join(new))


class Plan(cli.TestCase):
    def test_table(self):
        r = self.ok("plan", *CPU, "--tokens", 64, "--decodes", 8, "--context", 128, "-q")
        for command in ("upload", "0.decode_attention", "0.prefill_attention", "sample", "download"):
            self.assertRegex(r.text, rf"(?m)^ +\d+  {re.escape(command)} ")
        self.assertRegex(r.text, r"0\.decode_attention +0-8 .*attention/")
        self.assertRegex(r.text, r"0\.prefill_attention +8-64 ")
        self.assertRegex(r.text, r"(?m)^ +\d+  sample +0-9 ")  # the prompt has a token sampled, too
        self.assertIn("64 tokens, 8 of them decodes", r.text)

    def test_expected_times(self):
        r = self.ok("plan", *CPU, "--tokens", 8, "--context", 64, "--cost", "-q")
        self.assertRegex(r.text, r"estimated \d+\.\d+ ms one after another")

    def test_batches_that_do_not_fit(self):
        self.fails(USAGE, "1 to 16 tokens", "plan", *CPU, "--tokens", 17, "--max-num-batched-tokens", 16, "-q")
        self.fails(USAGE, "decodes", "plan", *CPU, "--tokens", 4, "--decodes", 5, "-q")
        self.fails(USAGE, "at most 2 sequences", "plan", *CPU, "--tokens", 4, "--decodes", 2, "--max-num-seqs", 2, "-q")

    def test_plans_of_every_kind_write_the_same(self):
        """Unequal ranges, named ranges, another cut for one op, two layers interleaved, and buckets."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan")
            want = self.ok(*RUN, "--dump-plan", path).out
            with open(path) as f:
                base = f.read()
            layer = [l.split()[1] for l in base.splitlines() if l.startswith("layer ")]
            self.assertIn("prefill_attention", layer)
            plain = [op for op in layer if "attention" not in op]
            unequal = base
            for op in plain:
                unequal = cut(unequal, op, [("layer", "0-5"), ("layer", "5-end")])
            named = cut(base, plain[0], [("layer", "0-decode"), ("layer", "prefill-end")])
            one = cut(base, plain[-1], [("layer", "0-2"), ("layer", "2-7"), ("layer", "7-end")])
            interleaved = cut(base, plain[0], [("layer", "3-end")])
            first = re.search(rf"(?m)^layer {plain[0]} .*$", interleaved).group(0)
            last = re.search(rf"(?m)^layer {plain[-1]} .*$", interleaved).group(0)
            behind = [last.replace("0-end", "0-3 "), re.sub(r"^layer( \S+ +)\S+", r"next \g<1>0-3", first), last.replace("0-end", "3-end")]
            interleaved = interleaved.replace(last, "\n".join(behind))
            lines = base.split("\n", 1)[1]
            buckets = "weft-plan 2\n" + lines.replace("bucket", "bucket tokens 4", 1) + unequal.split("\n", 1)[1]
            for name, text in (("unequal", unequal), ("named", named), ("one", one), ("interleaved", interleaved), ("buckets", buckets)):
                with open(path, "w") as f:
                    f.write(text)
                for more in ([], ["--check-calls"]):
                    self.assertEqual(self.ok(*RUN, "--plan", path, *more).out, want, f"{name} {more}\n{text}")

    def test_lines_that_end_as_on_windows(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan")
            want = self.ok(*RUN, "--dump-plan", path).out
            with open(path, "rb") as f:
                text = f.read()
            with open(path, "wb") as f:
                f.write(text.replace(b"\n", b"\r\n"))
            self.assertEqual(self.ok(*RUN, "--plan", path).out, want)

    def test_an_op_of_another_device(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan")
            self.ok(*RUN, "--dump-plan", path)
            with open(path) as f:
                text = f.read()
            with open(path, "w") as f:
                f.write(text.replace("layer gate ", "layer gate_up "))
            self.fails(USAGE, "no layer op 'gate_up' on this device (--dump-plan", *RUN, "--plan", path)

    def test_an_order_that_breaks_a_dependency(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan")
            self.ok(*RUN, "--dump-plan", path)
            with open(path) as f:
                lines = f.read().splitlines()
            first = next(i for i, l in enumerate(lines) if l.startswith("layer "))
            lines[first], lines[first + 1] = lines[first + 1], lines[first]
            with open(path, "w") as f:
                f.write("\n".join(lines) + "\n")
            self.fails(USAGE, "stands before", *RUN, "--plan", path)


if __name__ == "__main__":
    unittest.main()
