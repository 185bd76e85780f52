"""Help, and what happens when the command line or a file is wrong."""
import os
import re
import tempfile
import unittest

import cli
from cli import DEVICE, MODEL, RUNTIME, USAGE, weft

COMMANDS = ["run", "serve", "info", "convert", "tokenize", "detokenize", "template", "perplexity", "bench", "bench ops", "bench throughput", "bench serve", "tune", "calibrate", "plan", "selftest", "kernels"]


class Help(cli.TestCase):
    def test_top(self):
        for word in ("--help", "-h"):
            r = self.ok(word)
            for name in COMMANDS:
                self.assertRegex(r.text, rf"(?m)^  {name} ")
            for code in (0, 1, 2, 3, 4, 5, 130):
                self.assertRegex(r.text, rf"(?m)^  {code}\s")
            self.assertEqual(r.err, "")

    def test_every_command(self):
        for name in COMMANDS:
            for word in ("--help", "-h"):
                r = self.ok(*name.split(), word)
                self.assertTrue(r.text.startswith(f"Usage: weft {name} "), r.text)
                self.assertIn("--help", r.text)
                self.assertLessEqual(max(map(len, r.text.splitlines())), 80)

    def test_help_as_a_command(self):
        self.assertEqual(self.ok("help").text, self.ok("--help").text)
        for name in COMMANDS:
            self.assertEqual(self.ok("help", *name.split()).text, self.ok(*name.split(), "--help").text)
        self.fails(USAGE, "'frobnicate'", "help", "frobnicate")

    def test_every_documented_option_is_known(self):
        for name in COMMANDS:
            for option in re.findall(r"(?m)^  (?:-\w, )?(--[\w-]+)", self.ok(*name.split(), "--help").text):
                r = weft(*name.split(), option, "--help", "--help")  # a value, or help at once
                self.assertNotIn("unknown option", r.err, f"{name} {option}")

    def test_testing_options_have_their_heading(self):
        text = self.ok("run", "--help").text
        testing = text[text.index("\nAdvanced and testing:"):]
        for option in ("--max-alloc", "--nano-batches", "--plan", "--dump-plan", "--timeline", "--calibration", "--attention-windows", "--force", "--page-tokens", "--shuffle-pages",
                       "--poison", "--no-kernel-cache", "--watchdog"):
            self.assertIn(f"  {option}", testing)

    def test_version(self):
        self.assertRegex(self.ok("--version").text, r"^weft \d+\.\d+\.\d+ \(\S+\)\n$")

    def test_list_devices(self):
        for args in (["--list-devices"], ["run", "--list-devices"], ["bench", "--list-devices"]):
            self.assertRegex(self.ok(*args).text, r"(?m)^cpu ")

    def test_info_devices(self):
        text = self.ok("info").text
        self.assertRegex(text, r"(?m)^cpu$")
        self.assertRegex(text, r"(?m)^  tiers +base")


    def test_verbose_says_why_there_is_no_opencl(self):
        nowhere = {"OCL_ICD_VENDORS": "/nonexistent"}
        r = self.ok("info", "-v", env=nowhere)
        self.assertEqual(len(re.findall("no OpenCL platform|this build of weft has no OpenCL", r.err)), 1, r.err)
        self.assertEqual(self.ok("info", env=nowhere).err, "")


class Wrong(cli.TestCase):
    def usage(self, message, *args):
        r = self.fails(USAGE, message, *args)
        self.assertIn("--help`", r.err)

    def test_commands(self):
        self.fails(USAGE, "Usage")
        self.usage("'frobnicate'", "frobnicate")
        self.usage("'--frobnicate'", "--frobnicate")

    def test_options(self):
        self.usage("--frobnicate", "run", "--frobnicate")
        self.usage("-z", "run", "-z")
        self.usage("-p", "run", "-p")
        self.usage("--temp", "run", "-p", "x", "--temp")
        self.usage("--poison", "run", "--poison=yes")
        self.usage("'word'", "run", "word")
        self.usage("conflict", "run", "-p", "x", "-f", "y")
        self.usage("conflict", "tokenize", "-p", "x", "-f", "y")
        self.usage("base|simd|fp16|subgroup|matrix", "run", "--tier", "best")
        self.usage("md|json|csv", "bench", "-o", "xml")
        self.usage("--metrics-prefix", "serve", "--metrics-prefix", "a b{")
        self.usage("need a model", "info", "--kv-memory", "1G")

    def test_numbers(self):
        for option in ("-n", "-c", "-t", "--top-k", "--seed", "--page-tokens", "--watchdog", "--shuffle-pages"):
            for value in ("", "x", "1x", "1.5", "99999999999999999999999", " 1", "0x10"):
                self.fails(USAGE, "--", "run", option, value)
        for option in ("--temp", "--top-p", "--min-p", "--repeat-penalty"):
            for value in ("", "x", "1x", "nan", "inf", "-1", "1e999"):
                self.fails(USAGE, option, "run", option, value)
        for option, value in (("-c", "0"), ("-c", "-1"), ("-t", "0"), ("-n", "-2"), ("--top-p", "1.1"), ("--seed", "-1"),
                              ("--seed", "18446744073709551616"), ("--top-k", "-1"), ("--temp", "99999")):
            self.fails(USAGE, "--", "run", option, value)
        for value in ("", "x", "0", "1X", "1KK", "-1", "99999999999T"):
            self.fails(USAGE, "--max-alloc", "run", "--max-alloc", value)
        for value in ("", ",", "1,", "1,,2", "-1", "1;2", "4294967296"):
            self.fails(USAGE, "--n-prompt", "bench", "-p", value)

    def test_perplexity(self):
        self.usage("-f FILE", "perplexity")
        self.usage("must be used together", "perplexity", "--tokens", "1,2")
        self.usage("must be used together", "perplexity", "--logits", "x.npy")
        self.usage("conflicts", "perplexity", "--tokens", "1", "--logits", "x.npy", "-f", "y")
        self.usage("-c 2", "perplexity", "--tokens", "1,2,3", "--logits", "x.npy", "-c", "2")

    def test_detokenize(self):
        for word in ("x", "1.5", "99999999999"):
            self.usage(f"'{word}'", "detokenize", word)
        self.fails(USAGE, "conflict", "detokenize", "1", "-p", "2")
        self.fails(USAGE, "999999", "detokenize", "999999")


class Files(cli.TestCase):
    def test_model_files(self):
        with tempfile.TemporaryDirectory() as folder:
            empty, text, fifo = (os.path.join(folder, n) for n in ("empty", "text", "fifo"))
            open(empty, "w").close()
            with open(text, "w") as f:
                f.write("this is no model\n" * 100)
            os.mkfifo(fifo)
            for path in (empty, text, fifo, folder, "/dev/zero", os.path.join(folder, "absent")):
                for command in (["run", "-p", "x"], ["info"], ["tokenize", "-p", "x"], ["detokenize", "1"],
                                ["bench"], ["perplexity", "-p", "x"]):
                    self.fails(MODEL, path, *command, "-m", path)

    def test_vocabulary_only(self):
        path = cli.data("vocab/llama-spm.gguf")
        self.fails(MODEL, "", "run", "-p", "x", "-m", path, *cli.CPU)
        self.assertIn("only a vocabulary", self.ok("info", "-m", path).text)

    def test_text_files(self):
        self.fails(RUNTIME, "/absent", "tokenize", "-f", "/absent")
        self.fails(RUNTIME, "/absent", "run", "-f", "/absent")

    def test_devices(self):
        self.fails(DEVICE, "no-such-device", "run", "-p", "x", "--device", "no-such-device")
        self.fails(DEVICE, "opencl:99.0", "run", "-p", "x", "--device", "opencl:99.0")
        self.fails(DEVICE, "no-such-device", "selftest", "--device", "no-such-device")

    def test_full_disk(self):
        with open("/dev/full", "wb") as full:
            r = weft("run", "-p", "One day", "-n", 5, *cli.CPU, stdout=full)
        self.assertEqual(r.code, RUNTIME)
        self.assertIn("standard output", r.err)


if __name__ == "__main__":
    cli.main()
