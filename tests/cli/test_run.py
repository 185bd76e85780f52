"""run without a terminal: what goes to stdout, how an answer ends, signals, closed pipes."""
import json
import os
import re
import signal
import subprocess
import tempfile
import unittest

import cli
from cli import INTERRUPTED, RUNTIME, weft

RUN = ["run", *cli.CPU]


class Text(cli.TestCase):
    def test_golden(self):
        """The story that llama.cpp writes with the same file, greedily, from BOS alone."""
        with open(cli.data("stories260K.txt"), "rb") as f:
            want = f.read()
        with open(cli.data("stories260K.tokens.txt")) as f:
            n = len(f.read().split())
        model = ["-m", cli.data("stories260K.gguf")]
        self.assertEqual(self.ok(*RUN, *model, "-p", "", "-n", n).out, want)
        self.assertEqual(self.ok(*RUN, *model, "-n", n).out, want)  # no -p, no terminal

    def test_only_text_on_stdout(self):
        loud = self.ok(*RUN, "-p", "One day", "-n", 20, "-v")
        quiet = self.ok(*RUN, "-p", "One day", "-n", 20, "-q")
        self.assertEqual(loud.out, quiet.out)
        self.assertTrue(quiet.out)
        self.assertNotIn("One day", quiet.text)
        self.assertEqual(quiet.err, "")
        self.assertRegex(loud.err, r"generated 20 tokens, [0-9.]+ tokens/s")
        self.assertNotIn("\r", loud.err)  # no progress bar where stderr is no terminal

    def test_verbose_says_where_the_start_went(self):
        loud = self.ok(*RUN, "-p", "One day", "-n", 2, "-v").err
        parts = re.search(r"start: model file [\d.]+ s, then ([\d.]+) s: device ([\d.]+), graph and plan ([\d.]+), weights ([\d.]+), memory ([\d.]+), kernels ([\d.]+)", loud)
        self.assertTrue(parts, loud)
        whole, *rest = map(float, parts.groups())
        self.assertLessEqual(abs(whole - sum(rest)), 0.1 + whole / 10)  # nothing long is left out
        self.assertRegex(loud, r"start, kernels: \d+ built in [\d.]+ s, \d+ from the kernel cache in [\d.]+ s, [1-9]\d* self-tests")
        self.assertRegex(loud, r"start, weights: [\d.]+ GiB")
        self.assertEqual(loud.count("start: first step"), 1)
        self.assertNotIn("start: ", self.ok(*RUN, "-p", "One day", "-n", 2).err)

    def test_lengths(self):
        self.assertEqual(self.ok(*RUN, "-p", "One day", "-n", 0).out, b"")
        short = self.ok(*RUN, "-p", "One day", "-n", 5).out
        long = self.ok(*RUN, "-p", "One day", "-n", 15).out
        self.assertTrue(long.startswith(short) and len(long) > len(short))

    def test_file(self):
        want = self.ok(*RUN, "-p", "One day", "-n", 10).out
        with tempfile.NamedTemporaryFile() as f:
            for text in (b"One day", b"One day\n"):
                f.seek(0)
                f.truncate()
                f.write(text)
                f.flush()
                self.assertEqual(self.ok(*RUN, "-f", f.name, "-n", 10).out, want)

    def test_seed(self):
        draw = [*RUN, "-p", "One day", "-n", 30, "--temp", "1.5"]
        a = self.ok(*draw, "--seed", 1).out
        self.assertEqual(self.ok(*draw, "--seed", 1).out, a)
        self.assertNotEqual(self.ok(*draw, "--seed", 2).out, a)
        told = self.ok(*draw)
        seed = told.err.split("seed ")[1].split()[0]
        self.assertEqual(self.ok(*draw, "--seed", seed).out, told.out)
        greedy = self.ok(*RUN, "-p", "One day", "-n", 30).out
        self.assertEqual(self.ok(*draw, "--top-k", 1).out, greedy)

    def test_full_context(self):
        r = self.ok(*RUN, "-p", "One day", "-c", 32, "--ignore-eos")
        self.assertIn("context is full after 32 tokens", r.err)
        self.assertTrue(r.out)
        r = self.fails(RUNTIME, "context", *RUN, "-p", "One day " * 50, "-c", 32)

    def test_testing_options_do_not_change_the_text(self):
        args = [*RUN, "-p", "One day", "-n", 40]
        want = self.ok(*args).out
        for more in (["--page-tokens", 1], ["--shuffle-pages", 7], ["--poison"], ["--max-alloc", "4M"],
                     ["--no-kernel-cache"], ["--watchdog", 30000]):
            self.assertEqual(self.ok(*args, *more).out, want, more)

    def test_plan_file(self):
        args = [*RUN, "-p", "One day", "-n", 10]
        with tempfile.TemporaryDirectory() as folder:
            plan = os.path.join(folder, "plan")
            want = self.ok(*args, "--dump-plan", plan).out
            self.assertGreater(os.path.getsize(plan), 0)
            self.assertEqual(self.ok(*args, "--plan", plan).out, want)
            with open(plan) as f:
                good = f.read()
            bad = plan + ".bad"
            with open(bad, "w") as f:
                f.write(good.replace("kernel auto", "kernel absent", 1))
            self.fails(cli.USAGE, "has no kernel 'absent'", *args, "--plan", bad, "--dump-plan", plan)
            with open(plan) as f:
                self.assertEqual(f.read(), good, "replaced by a plan that cannot run")

    def test_bad_attention_windows_file(self):
        """The file itself: tests/unit/attention_windows.c, and what it does: tests/golden/attention_windows.py."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "windows")
            with open(path, "w") as f:
                f.write("weft-attention-windows 1\nlayer 0 1 2 3\n")
            for command in (RUN, ["bench", *cli.CPU, "-p", 4, "-n", 0], ["perplexity", *cli.CPU, "-f", __file__],
                            ["bench", "throughput", *cli.CPU, "--const", "8:1", "--num-requests", 1]):
                self.fails(cli.USAGE, f"{path}: line 2: layer 0 has 3 windows: want 4, one for each KV head", *command, "--attention-windows", path)
            self.fails(cli.USAGE, "/absent", *RUN, "--attention-windows", "/absent")

    def test_trace(self):
        """A step is submitted before the tokens of the one before are read; where the host draws from logits, after."""
        for args, ahead in ((["--temp", 0], True), (["--temp", 0, "--repeat-penalty", 1.1], False)):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "timeline.json")
                self.ok(*RUN, "-p", "One day", "-n", 10, "--ignore-eos", *args, "--timeline", path)
                with open(path) as f:
                    events = json.load(f)
            spans = [(e["name"], e["args"]["step"]) for e in events if e["ph"] == "X" and e["tid"] == 1]
            self.assertEqual(spans.count(("submit", 0)), 1)
            for step in range(9):
                self.assertEqual(spans.index(("submit", step + 1)) < spans.index(("wait", step)), ahead, spans)
            times = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["tid"] == 1)
            for (_, end), (begin, _) in zip(times, times[1:]):
                self.assertLessEqual(end, begin + 0.01, "one thread does one thing after the other, in microseconds")


    def test_trace_of_a_failed_run(self):
        with tempfile.TemporaryDirectory() as folder:
            self.fails(RUNTIME, "use a file with smaller weights", *RUN, "-p", "x", "--timeline", os.path.join(folder, "timeline.json"), "--max-alloc", "1K")
            self.assertEqual(os.listdir(folder), [])

    def test_trace_of_two_queues(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "timeline.json")
            self.ok(*RUN, "-p", "One day", "-n", 3, "--nano-batches", 2, "--timeline", path)
            with open(path) as f:
                events = json.load(f)
        names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
        self.assertEqual(names, {1: "engine", 2: "device", 3: "queue 0", 4: "queue 1"})

    def test_bad_files(self):
        """What an option names and cannot be used is wrong usage, whatever is wrong with it, and the message names the option as it was typed."""
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("nonsense\n")
            f.flush()
            for option in ("--plan", "--calibration", "--tuned", "--attention-windows"):
                for path in (f.name, "/absent", "/"):
                    r = self.fails(cli.USAGE, path, *RUN, "-p", "x", "-n", 1, option, path)
                    self.assertIn(f"weft: error: {option}: ", r.err)
        self.fails(cli.USAGE, 'weft: error: --force: "gemm=none"', *RUN, "-p", "x", "-n", 1, "--force", "gemm=none")
        self.fails(cli.USAGE, "weft: error: --force: kernel 'ref' cannot run 'layernorm'", *RUN, "-p", "x", "-n", 1, "--force", "layernorm=ref")
        self.fails(RUNTIME, "/absent/x", *RUN, "-p", "x", "-n", 1, "--timeline", "/absent/x")


class Chat(cli.TestCase):
    """Chats whose lines come from a pipe; the built-in model has no template of its own."""

    def test_needs_a_template(self):
        self.fails(cli.USAGE, "--chat-template FILE", *RUN, "--chat", "-p", "Hello")
        self.fails(cli.USAGE, "frob", *RUN, "--chat-template", "frob", "-p", "Hello")
        with tempfile.NamedTemporaryFile() as f:
            f.write(b"a\n{% if x %}{{ x | }}")
            f.flush()
            self.fails(cli.USAGE, "line 2, column 18: expected a name", *RUN, "--chat-template", f.name, "-p", "Hello")

    def test_once(self):
        chat = [*RUN, "--chat-template", cli.CHATML, "-n", 8]
        self.assertTrue(self.ok(*chat, "-p", "Hello").out.endswith(b"\n"))
        self.assertNotEqual(self.ok(*chat, "-p", "Hello", "--system", "You write stories about a dog.").out,
                            self.ok(*chat, "-p", "Hello").out)

    def test_lines(self):
        chat = [*RUN, "--chat-template", cli.CHATML, "--chat", "-n", 8]
        one = self.ok(*chat, stdin=b"Hello\n")
        self.assertEqual(one.err.count("generated"), 1)
        self.assertEqual(self.ok(*chat, stdin=b"Hello\n/clear\nHello\n").out, one.out * 2)
        self.assertEqual(self.ok(*chat, stdin=b"\n\nHello").out, one.out)  # empty lines do nothing

    def test_long_lines_leave_the_chat_working(self):
        """One that the context does not hold, and one that would fill the memory if it never ended."""
        chat = [*RUN, "--chat-template", cli.CHATML, "--chat", "-n", 8, "-c", 128]
        one = self.ok(*chat, stdin=b"Hello\n").out
        long, endless = b"word " * 500, b"x" * (9 << 20)
        for lines, told in (([long, b"Hello"], ["context", "the line is ignored\n"]),
                            ([b"Hello", long], ["context", "the line is ignored; /clear starts a new conversation\n"]),
                            ([endless, b"Hello"], ["more than 8388608 bytes"]), ([b"Hello", endless], ["more than 8388608 bytes"])):
            r = self.ok(*chat, stdin=b"\n".join(lines))
            for words in told:
                self.assertIn(words, r.err)
            self.assertEqual(r.out, one)


class Ends(cli.TestCase):
    # Minutes of text, so that it is certainly running when something happens to it.
    ENDLESS = [*RUN, "-q", "-p", "One day", "--ignore-eos", "-c", 20000]

    def start(self, *args):
        return subprocess.Popen([cli.WEFT, *map(str, args)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def test_interrupt(self):
        """Ctrl-C ends the answer, and the statistics still come."""
        p = self.start(*[w for w in self.ENDLESS if w != "-q"])
        first = p.stdout.read(1)
        p.send_signal(signal.SIGINT)
        rest, err = p.communicate(timeout=120)
        err = err.decode()
        self.assertEqual(p.returncode, INTERRUPTED, err)
        self.assertTrue(first + rest)
        self.assertIn("stopped", err)
        self.assertIn("tokens/s", err)

    def test_closed_pipe(self):
        p = self.start(*self.ENDLESS)
        p.stdout.read(1)
        p.stdout.close()
        err = p.stderr.read()
        self.assertEqual(p.wait(timeout=120), 0, err)
        self.assertNotIn(b"error", err)
        p.stderr.close()

    def test_closed_from_the_start(self):
        for command in ([*RUN, "-p", "One day", "-n", 5], ["--help"], ["info"], ["run", "--help"]):
            p = subprocess.run(["sh", "-c", '"$@" >&-', "sh", cli.WEFT, *map(str, command)],
                               stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=120)
            self.assertEqual(p.returncode, 0, p.stderr)

    def test_output_file_does_not_take_closed_stdout(self):
        """A file that weft writes must not get text meant for a closed stdout."""
        with tempfile.TemporaryDirectory() as folder:
            p = subprocess.run(["sh", "-c", '"$@" >&-', "sh", cli.WEFT, "bench", *cli.CPU, "-p", "4", "-n", "0",
                                "-r", "1", "--results", folder], stderr=subprocess.PIPE, timeout=120)
            self.assertEqual(p.returncode, 0, p.stderr)
            (name,) = os.listdir(folder)
            with open(os.path.join(folder, name)) as f:
                self.assertEqual(len(f.read().splitlines()), 2)


if __name__ == "__main__":
    cli.main()
