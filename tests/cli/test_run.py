"""run without a terminal: what goes to stdout, how an answer ends, signals, closed pipes."""
import contextlib
import fcntl
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import tempfile

import cli
from cli import INTERRUPTED, RUNTIME

RUN = ["run", *cli.GREEDY]
DEMO = os.path.join(cli.ROOT, "models", "demo.gguf")
BUILD_ID = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"  # what stands before it in a program


def another_build(folder):
    """The program with another build id: a copy in the folder."""
    path = shutil.copy(cli.WEFT, os.path.join(folder, "weft-other"))
    with open(path, "r+b") as f:
        at = f.read().index(BUILD_ID) + len(BUILD_ID)
        f.seek(at)
        f.write(b"\x5a" * 20)
    return path


def model_with_a_long_token():
    """Its context may hold 128 MiB of text for all that is known before the text is tokens."""
    return cli.model_of_holes(dict(width=32, layers=1, heads=1, kv_heads=1, head_dim=32, ffn=32, vocab=260, context=2048), pieces=["y" * 65536])


def interrupted_behind(line, *args, **more):
    """Runs it, with Ctrl-C as soon as it has said the line. Returns the exit code and what it says behind the line."""
    p = subprocess.Popen(cli.argv(*args), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **more)
    with p:
        while line not in (said := p.stderr.readline()):
            assert said, f"{line} did not come"
        p.send_signal(signal.SIGINT)
        rest = p.stderr.read()
    return p.returncode, rest


def fill(pipe):
    """Whoever writes to the pipe, which is empty, waits until it is read."""
    fd = os.open(f"/proc/self/fd/{pipe.fileno()}", os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(fd, b"\n")
    os.close(fd)


class Text(cli.TestCase):
    def test_golden(self):
        """The story that llama.cpp writes with the same file, greedily, from BOS alone."""
        want = pathlib.Path(cli.data("stories260K.txt")).read_bytes()
        n = len(pathlib.Path(cli.data("stories260K.tokens.txt")).read_text().split())
        model = ["-m", cli.data("stories260K.gguf")]
        cpus = ["--device", "cpu,cpu"]
        for devices in ([], [*cpus, "--tp", 2], [*cpus, "--pp", 2]):
            self.assertEqual(self.ok(*RUN, *model, *devices, "-p", "", "-n", n).out, want + b"\n")

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
        """Its parts are the whole, if the machine did not stand still between two of them."""
        for _ in range(20):
            loud, whole, rest = self.verbose_start()
            if abs(whole - sum(rest)) <= 0.1 + whole / 10:
                break
        else:
            self.fail(f"something long is left out of {whole} s: {rest}")
        self.assertRegex(loud, r"start, kernels: \d+ built side by side in [\d.]+ s and \d+ one by one in [\d.]+ s, \d+ from the kernel cache in [\d.]+ s, \d+ self-tests in [\d.]+ s with what they built, \d+ passed")
        self.assertRegex(loud, r"start, weights: [\d.]+ GiB")
        self.assertEqual(loud.count("start: first step"), 1)
        self.assertNotIn("start: ", self.ok(*RUN, "-p", "One day", "-n", 2).err)

    def verbose_start(self):
        loud = self.ok(*RUN, "-p", "One day", "-n", 2, "-v").err
        parts = re.search(r"start: model file [\d.]+ s, then ([\d.]+) s: device ([\d.]+), graph and plan ([\d.]+), weights ([\d.]+), memory ([\d.]+), kernels ([\d.]+)", loud)
        self.assertTrue(parts, loud)
        whole, *rest = map(float, parts.groups())
        return loud, whole, rest

    def test_self_tests_that_passed_are_kept(self):
        """Until the program is another one. What else makes them run again: tests/unit/verify_kept.c."""
        def start(*more, **how):
            r = self.ok(*RUN, "-p", "One day", "-n", 2, "-v", *more, env={"XDG_CACHE_HOME": folder}, **how)
            return tuple(map(int, re.search(r"(\d+) self-tests in [\d.]+ s with what they built, (\d+) passed", r.err).groups()))
        with tempfile.TemporaryDirectory() as folder:
            first, before = start()
            self.assertTrue(first > 0 and before == 0, (first, before))
            self.assertEqual(start(), (0, first))
            self.assertEqual(start("WEFT_NO_KERNEL_CACHE=1"), (first, 0))
            self.assertEqual(start(program=another_build(folder)), (first, 0))

    def test_lengths(self):
        self.assertEqual(self.ok(*RUN, "-p", "One day", "-n", 0).out, b"")
        short = self.ok(*RUN, "-p", "One day", "-n", 5).out
        long = self.ok(*RUN, "-p", "One day", "-n", 15).out
        self.assertTrue(long.startswith(short.rstrip(b"\n")) and len(long) > len(short))

    def test_file(self):
        want = self.ok(*RUN, "-p", "One day", "-n", 10).out
        with tempfile.NamedTemporaryFile() as f:
            for text in (b"One day", b"One day\n"):
                f.seek(0)
                f.truncate()
                f.write(text)
                f.flush()
                self.assertEqual(self.ok(*RUN, "-f", f.name, "-n", 10).out, want)

    def test_standard_input_is_the_prompt(self):
        want = self.ok(*RUN, "-p", "One day", "-n", 10)
        for more, text in ((["-f", "-"], b"One day\n"), ([], b"One day\n"), ([], b"One day")):
            r = self.ok(*RUN, "-n", 10, *more, stdin=text)
            self.assertEqual(r.out, want.out)
            self.assertIn("prompt 3 tokens", r.err)
        self.assertEqual(self.ok(*RUN, "-p", "One day", "-n", 10, stdin=b"something else").out, want.out)
        two = self.ok(*RUN, "-n", 1, stdin=b"One day\n\n")  # one newline is taken off, not all
        self.assertIn(f"prompt {len(self.ok('tokenize', stdin=b'One day' + bytes([10])).text.split())} tokens", two.err)

    def test_empty_input(self):
        want = self.ok(*RUN, "-p", "", "-n", 10)
        self.assertNotIn("BOS", want.err)
        for more, what in (([], "standard input"), (["-f", "/dev/null"], "/dev/null")):
            r = self.ok(*RUN, "-n", 10, *more)
            self.assertEqual(r.out, want.out)
            self.assertIn(f"{what} is empty: generation starts from BOS", r.err)

    def test_output_ends_with_a_newline(self):
        self.assertRegex(self.ok(*RUN, "-p", "One day", "-n", 3).out, rb"[^\n]\n\Z")
        whole = self.ok(*RUN, "-p", "One day", "-n", 400).out  # a model may write one itself
        self.assertTrue(whole.endswith(b"\n"))

    def test_words(self):
        """A model and a text need no -m and -p, and stand for what the options have not said."""
        model = os.path.join(cli.ROOT, "models", "demo.gguf")
        want = self.ok(*RUN, "-p", "One day", "-n", 5).out
        for words in ([model, "One day"], ["-m", model, "One day"], [model, "-p", "One day"], ["One day", "-m", model], ["--", model, "One day"]):
            self.assertEqual(self.ok("run", "-n", 5, *cli.GREEDY, *words).out, want, words)
        self.assertEqual(self.ok("run", model, "-n", 5, *cli.GREEDY, stdin=b"One day").out, want)

    def test_seed(self):
        draw = ["run", *cli.CPU, "-p", "One day", "-n", 30, "--temp", "1.5"]
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
        for more in (["WEFT_PAGE_TOKENS=1"], ["WEFT_SHUFFLE_PAGES=7"], ["WEFT_POISON=1"], ["WEFT_MAX_ALLOC=4M"],
                     ["WEFT_NO_KERNEL_CACHE=1"], ["WEFT_WATCHDOG=30000"]):
            self.assertEqual(self.ok(*args, *more).out, want, more)

    def test_plan_file(self):
        args = [*RUN, "-p", "One day", "-n", 10]
        with tempfile.TemporaryDirectory() as folder:
            plan = os.path.join(folder, "plan")
            want = self.ok(*args, f"WEFT_DUMP_PLAN={plan}").out
            self.assertGreater(os.path.getsize(plan), 0)
            self.assertEqual(self.ok(*args, "--plan", plan).out, want)
            good = pathlib.Path(plan).read_text()
            bad = plan + ".bad"
            pathlib.Path(bad).write_text(good.replace("kernel auto", "kernel absent", 1))
            self.fails(cli.USAGE, "has no kernel 'absent'", *args, "--plan", bad, f"WEFT_DUMP_PLAN={plan}")
            self.assertEqual(pathlib.Path(plan).read_text(), good, "replaced by a plan that cannot run")

    def test_bad_attention_windows_file(self):
        """The file itself: tests/unit/attention_windows.c, and what it does: tests/golden/attention_windows.py."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "windows")
            pathlib.Path(path).write_text("weft-attention-windows 1\nlayer 0 1 2 3\n")
            for command in (RUN, ["bench", *cli.CPU, "-p", 4, "-n", 0], ["perplexity", *cli.CPU, "-f", __file__],
                            ["bench", "throughput", *cli.CPU, "--const", "8:1", "--num-prompts", 1]):
                self.fails(cli.USAGE, f"{path}: line 2: layer 0 has 3 windows: want 8, one for each query head, or 4, one for each KV head", *command, "--attention-windows", path)
            self.fails(cli.USAGE, "/absent", *RUN, "--attention-windows", "/absent")

    def test_trace(self):
        """A step is submitted before the tokens of the one before are read, also where these say what may come next."""
        for args in ([], ["--repeat-penalty", 1.1], ["--regex", "[a-z ]{60}"]):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "timeline.json")
                self.ok(*RUN, "-p", "One day", "-n", 10, "--ignore-eos", "--temp", 0, *args, "--timeline", path)
                events = json.loads(pathlib.Path(path).read_bytes())
            spans = [(e["name"], e["args"]["step"]) for e in events if e["ph"] == "X" and e["tid"] == 1]
            self.assertEqual(spans.count(("submit", 0)), 1)
            for step in range(9):
                self.assertLess(spans.index(("submit", step + 1)), spans.index(("wait", step)), spans)
            times = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["tid"] == 1)
            for (_, end), (begin, _) in zip(times, times[1:]):
                self.assertLessEqual(end, begin + 0.01, "one thread does one thing after the other, in microseconds")


    def test_trace_of_a_failed_run(self):
        with tempfile.TemporaryDirectory() as folder:
            self.fails(RUNTIME, "use a file with smaller weights", *RUN, "-p", "x", "--timeline", os.path.join(folder, "timeline.json"), "WEFT_MAX_ALLOC=1K")
            self.assertEqual(os.listdir(folder), [])

    def test_trace_of_two_queues(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "timeline.json")
            self.ok(*RUN, "-p", "One day", "-n", 3, "--nano-batches", 2, "--timeline", path)
            events = json.loads(pathlib.Path(path).read_bytes())
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

    def test_formats(self):
        """Of one answer, of each line of a chat, and refused before a model is opened."""
        schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
        with tempfile.NamedTemporaryFile("w") as f, tempfile.NamedTemporaryFile("w") as template, tempfile.NamedTemporaryFile("w") as rules:
            json.dump(schema, f)
            rules.write('root ::= "(" (root | [a-z]) ")"')
            template.write("{% for m in messages %}{{ m.content }}{% endfor %}")
            f.flush(), template.flush(), rules.flush()
            drawn = ["run", *cli.CPU, "--temp", 1, "--seed", 3]
            self.assertIn(json.loads(self.ok(*drawn, "-p", "One day", "--json-schema", f.name).text), ({"n": 1}, {"n": 2}))
            self.assertRegex(self.ok(*drawn, "-p", "One day", "--raw", "--grammar-file", rules.name).text, r"^\(+[a-z]\)+\n$")
            r = self.ok(*drawn, "--chat", "--chat-template", template.name, "--regex", "[ab]{3}", stdin=b"One\ntwo\n")
            self.assertRegex(r.text, r"^[ab]{3}\n[ab]{3}\n$")
        for args, why in ((["--json-schema", "/absent"], "/absent"), (["--json-schema", os.devnull], os.devnull), (["--grammar", os.devnull], "no rule root"), (["--regex", "(a"], "group")):
            r = self.fails(cli.USAGE, why, *RUN, "-m", "/no/model", "-p", "x", *args)
            self.assertIn(f"weft: error: {args[0]}: ", r.err)


class Chat(cli.TestCase):
    """Chats whose lines come from a pipe; the built-in model has no template of its own."""

    def test_needs_a_template(self):
        self.assertNotIn("--chat:", self.fails(cli.USAGE, "no chat template", *RUN, "--system", "x", "-p", "Hello").err)
        with tempfile.NamedTemporaryFile() as f:
            f.write(b"a\n{% if x %}{{ x | }}")
            f.flush()
            self.fails(cli.USAGE, "line 2, column 18: expected a name", *RUN, "--chat-template", f.name, "-p", "Hello")

    def test_model_whose_template_cannot_be_used(self):
        """It completes; a chat says why it cannot be, and what helps."""
        with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
            cli.write_with_template(f, "{% for x in %}")
            self.ok(*RUN, "-m", f.name, "-p", "One day", "-n", 2)
            for more in (["--chat"], ["--system", "x"]):
                r = self.fails(cli.USAGE, "error: the model's chat template, line 1, column 13: expected an expression", *RUN, "-m", f.name, "-p", "x", *more)
                self.assertIn("; --chat-template FILE sets another one\n", r.err)

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

    def sent(self, line):
        """The message that the line becomes."""
        with tempfile.TemporaryDirectory() as folder:
            self.said([line, f"/save {folder}/chat"])
            return json.loads(pathlib.Path(folder, "chat").read_bytes())[0]["content"]

    def messages(self, path):
        return json.loads(pathlib.Path(path).read_bytes())

    def said(self, lines, *more, code=cli.OK):
        how = cli.CPU if "--temp" in more else cli.GREEDY
        r = cli.weft("run", *how, "--chat-template", cli.CHATML, "--chat", "-n", 8, *more, stdin="\n".join(lines).encode())
        self.assertEqual(r.code, code, f"{lines} {more}: {r.err}")
        return r

    def test_exit_code_of_refused_messages(self):
        """It is that of the first one, as the message alone has it, and the lines behind it are answered."""
        long = "word " * 500
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("{% if messages[0].content == 'bad' %}{{ raise_exception('no') }}{% endif %}x")
            f.flush()
            for how, bad, code in ((["--chat-template", cli.CHATML, "-c", 128], long, RUNTIME), (["--chat-template", f.name], "bad", cli.USAGE)):
                chat = [*RUN, *how, "--chat", "-n", 2, "--context-shift", "off"]
                good = self.ok(*chat, stdin=b"Hello").out
                self.assertEqual(cli.weft(*chat, "-p", bad).code, code)
                for lines in ([bad], [bad, "Hello"], [bad, "Hello", "/exit"], [bad, "Hello", "/clear", bad]):
                    r = cli.weft(*chat, stdin="\n".join(lines).encode())
                    self.assertEqual((r.code, r.out), (code, good if "Hello" in lines else b""), r.err)

    def test_names_of_commands_as_messages(self):
        for word in ("help", "exit", "save!"):
            self.assertIn(f"'{word}' is a message; the command is /{word}\n", self.said([word]).err)
        self.assertNotIn("is a message", self.said(["help me", "Help", "/help", "hlp"]).err)

    def test_unknown_commands_do_not_reach_the_model(self):
        one = self.said(["Hello"])
        for line, told in (("/frob", "there is no /frob; /help lists"), ("/etc/passwd", "there is no /etc/passwd; "), ("/retyr", "did you mean /retry?"), ("/", "there is no /; "),
                           ("/usr", "//TEXT sends /TEXT")):
            r = self.said([line, "Hello"], code=RUNTIME)
            self.assertIn(told, r.err)
            self.assertEqual(r.out, one.out)
            self.assertEqual(r.err.count("generated"), 1)
        for line, message in (("//clear", "/clear"), ("///x", "//x"), (" /clear", " /clear")):
            self.assertEqual(self.sent(line), message)
        for word in ("/exit", "/bye", "/quit"):
            self.assertEqual(self.said([word, "Hello"]).out, b"")

    def test_commands_that_take_nothing(self):
        r = self.said(["Hello", "/clear all", "/retry it", "/info x", "/exit now", "/help me", "/info"], code=RUNTIME)
        for name, text in (("clear", "all"), ("retry", "it"), ("exit", "now"), ("help", "me")):
            self.assertIn(f"/{name} takes no text; //{name} {text} sends it as a message\n", r.err)
        self.assertIn("conversation: 2 messages", r.err)
        self.assertEqual(r.out, self.said(["Hello"]).out)

    def test_system(self):
        want = self.said(["Hello"], "--system", "You write stories about a dog.").out
        self.assertEqual(self.said(["/system You write stories about a dog.", "Hello"]).out, want)
        self.assertEqual(self.said(["/set system You write stories about a dog.", "Hello"]).out, want)
        r = self.said(["/system", "/system none", "/system", "Hello"], "--system", "You write stories about a dog.")
        self.assertIn("system message: You write stories about a dog.\n", r.err)
        self.assertIn("system message: none\n", r.err)
        self.assertEqual(r.out, self.said(["Hello"]).out)
        self.assertEqual(self.said(["x", "/clear", "Hello"], "--system", "You write stories about a dog.").out.splitlines()[-1:], want.splitlines()[-1:])

    def test_set(self):
        want = self.said(["Hello"], "--temp", 1.5, "--seed", 3, "-n", 12).out
        for lines in (["/set temp 1.5", "/set seed 3", "/set n-predict 12"], ["/set parameter temperature 1.5", "/set seed 3", "/set num_predict 12"]):
            self.assertEqual(self.said([*lines, "Hello"]).out, want)
        r = self.said(["/set tmp 1", "/set zzz 1", "/set temp x", "/set temp 999", "/set top-k 1.5", "/set seed -2", "/set seed 18446744073709551616", "/set model x", "/set port 1", "/set jinja", "/set mirostat 2", "Hello"], code=RUNTIME)
        for told in ("/set has no 'tmp'; did you mean temp?", "/set has no 'zzz'; alone it shows all", "/set temp: expected a number from 0 to 100, got 'x'", "got '999'",
                     "/set top-k: expected an integer from 0 to 2147483647, got '1.5'", "/set seed: expected an integer from -1 to 18446744073709551615, got '-2'\n",
                     "/set model: it holds for a whole chat; start one with `weft run --model`\n", "/set port: it is an option of `weft serve`, `weft bench serve`, `weft ps`, not of chats\n",
                     "/set seed: expected an integer from -1 to 18446744073709551615, got '18446744073709551616'\n", "/set mirostat: weft samples with",
                     "/set jinja: weft always does it\n"):
            self.assertIn(told, r.err)
        self.assertNotIn("--help", r.err)
        self.assertEqual(r.out, self.said(["Hello"]).out)

    def test_repeat_last_n(self):
        """The penalty covers all tokens, or as many as is said; a chat sets it as the command line does."""
        lines, narrow = ["Hello", "Tell me more of it."], ["--repeat-penalty", 1.5, "--repeat-last-n", 4, "-n", 40]
        want = self.said(lines, *narrow).out
        self.assertEqual(self.said(["/set repeat-penalty 1.5", "/set repeat_last_n 4", "/set n-predict 40", *lines]).out, want)
        whole = self.said(lines, "--repetition-penalty", 1.5, "-n", 40).out
        self.assertNotEqual(whole, want)
        for n in (0, -1, 4000):
            self.assertEqual(self.said(lines, *narrow, "--repeat-last-n", n).out, whole)

    def test_set_shows(self):
        """All settings or one, each with its value and what it may be; the help names no other way."""
        r = self.said(["/set"], "--top-k", 7, "--system", "Be brief.")
        shown = dict(re.findall(r"^  ([a-z-]+) +(\S+) +an? (?:integer|number) from \S+ to \S+$", r.err, re.M))
        self.assertEqual(set(shown), {"temp", "top-k", "top-p", "min-p", "repeat-penalty", "repeat-last-n", "presence-penalty",
                                      "frequency-penalty", "seed", "n-predict"})
        self.assertEqual((shown["temp"], shown["top-k"], shown["top-p"], shown["n-predict"]), ("0", "7", "0.95", "8"))
        self.assertIn("system message: Be brief.", r.err)
        for line, told in (("/set temp", r"  temp +0 +a number from 0 to 100\n"), ("/set temperature", r"  temp +0 "), ("/set parameter top_p", r"  top-p +0.95 "),
                           ("/set seed", r"  seed +0 +an integer"), ("/set system", "system message: none"), ("/set temp=0.5\n/set temp", r"  temp +0.5 ")):
            self.assertRegex(self.said([line]).err, told)
        self.assertEqual(self.said(["/set temp 1", "/set temp 0", "Hello"]).out, self.said(["Hello"]).out)

    def test_retry(self):
        one = self.said(["Hello"])
        r = self.said(["/retry", "Hello", "/retry"])
        self.assertIn("there is no answer yet", r.err)
        self.assertIn("greedy sampling gives the same answer", r.err)
        self.assertEqual(r.out, one.out * 2)
        self.assertEqual(len(set(re.findall(r"prompt (\d+) tokens", r.err))), 1)
        drawn = self.said(["Hello", "/retry", "/retry"], "--temp", 2, "--seed", 1)
        self.assertEqual(drawn.err.count("seed "), 2)
        seed = re.findall(r"seed (\d+)", drawn.err)[-1]
        self.assertTrue(drawn.out.endswith(self.said(["Hello"], "--temp", 2, "--seed", seed).out))

    def test_failed_retry_keeps_the_turn(self):
        with tempfile.TemporaryDirectory() as folder:
            before, after = (os.path.join(folder, n) for n in ("before", "after"))
            r = self.said(["One", "Hello", f"/save {before}", "/system " + "x y " * 400, "/retry", "/system none", f"/save {after}"], "-c", 256, "--context-shift", "off", code=RUNTIME)
            self.assertIn("the line is ignored", r.err)
            with open(before) as f, open(after) as g:
                messages = json.load(f)
                self.assertEqual([m["role"] for m in messages], ["user", "assistant"] * 2)
                self.assertEqual(json.load(g), messages)

    def test_answers_that_are_no_utf8(self):
        """A character that -n cuts off is U+FFFD in the conversation, and the chat goes on."""
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(100):
                path = os.path.join(folder, str(seed))
                r = self.said(["Hello", f"/save {path}", "And then?"], "--temp", 100, "--top-k", 0, "--top-p", 1, "--min-p", 0, "--seed", seed)
                self.assertEqual(r.err.count("generated"), 2, r.err)
                answer = self.messages(path)[1]["content"]
                if "\N{REPLACEMENT CHARACTER}" in answer:
                    break
            self.assertRaises(UnicodeDecodeError, r.out.decode)
            self.assertEqual(r.out[:40].decode(errors="replace")[:8], answer[:8])

    def test_planted_names(self):
        """What lies where a file is written first is no way to another file, nor in the way, but for what is being written there."""
        with tempfile.TemporaryDirectory() as folder:
            path, victim = os.path.join(folder, "chat"), pathlib.Path(folder, "victim")
            part = path + ".new.part"
            victim.write_text("mine")
            for plant in (lambda: os.symlink(victim, part), lambda: os.link(victim, part), lambda: os.mkfifo(part), lambda: pathlib.Path(part).write_text("of one that was killed")):
                plant()
                self.said(["Hello", f"/save {path}"])
                self.assertEqual((victim.read_text(), sorted(os.listdir(folder)), len(self.messages(path))), ("mine", ["chat", "victim"], 2))
                os.unlink(path)
            with open(part, "w") as f:
                fcntl.flock(f, fcntl.LOCK_EX)
                self.assertIn("busy", self.said([f"/save {path}"], code=RUNTIME).err)
            os.mkfifo(path)
            self.assertIn("is a FIFO", self.said([f"/load {path}"], code=RUNTIME).err)

    def test_names_in_hints_are_quoted(self):
        for name, shown in (("hf:a/b", "hf:a/b"), ("hf:a b", "'hf:a b'"), ("hf:a$(x)", "'hf:a$(x)'"), ("hf:it's", "'hf:it'\\''s'")):
            self.assertIn(f"`weft pull {shown}` fetches it", self.fails(cli.MODEL, "", "run", "-m", name, "-p", "x").err)

    def test_save_says_what_is_no_utf8(self):
        with tempfile.TemporaryDirectory() as folder:
            r = self.said([f"/save {folder}/x"], "--system", os.fsdecode(b"\xff"), code=RUNTIME)
            self.assertIn("message 0 is no valid UTF-8, so it cannot be saved", r.err)
            self.assertEqual(os.listdir(folder), [])

    def test_save_spares_models_and_is_private(self):
        with tempfile.TemporaryDirectory() as folder:
            model, path = os.path.join(folder, "model.gguf"), os.path.join(folder, "chat")
            shutil.copyfile(DEMO, model)
            for there in (False, True):
                if there:
                    os.chmod(path, 0o644)
                self.said(["Hello", f"/save{'!' * there} {path}"])
                self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
            self.assertIn(f"{model} is there and no saved conversation", self.said(["Hello", f"/save! {model}", "/save /dev/null"], "-m", model, code=RUNTIME).err)
            with open(model, "rb") as f, open(DEMO, "rb") as g:
                self.assertEqual(f.read(), g.read())

    def test_save_spares_what_is_there(self):
        """Only a saved conversation is replaced, and only by /save!"""
        own = '[{"role": "user", "content": "old"}]'
        spared = (b"int main;\n", b"", b"\x10\0\0\0\0\0\0\0{}", b"[1, 2]", b'{"messages": %s}' % own.encode(), b'[{"role": "user", "content": "x", "name": "me"}]')
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "there")
            for content, command, told in (*((c, cmd, "is there and no saved conversation, so it is left as it is") for c in spared for cmd in ("/save", "/save!")),
                                           (own.encode(), "/save", "has a saved conversation: /save! FILE replaces it")):
                pathlib.Path(path).write_bytes(content)
                self.assertIn(f"{path} {told}", self.said([f"{command} {path}"], code=RUNTIME).err)
                self.assertEqual(pathlib.Path(path).read_bytes(), content)
            self.said(["Hello", f"/save! {path}"])
            self.assertEqual(json.loads(pathlib.Path(path).read_bytes())[0]["content"], "Hello")

    def test_save_and_load(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "my chat.json")
            whole = self.said(["Hello", f"/save {path}", "And then?"], "--system", "Be brief.")
            self.assertIn(f"3 messages are in {path}", whole.err)
            messages = json.loads(pathlib.Path(path).read_bytes())
            self.assertEqual([m["role"] for m in messages], ["system", "user", "assistant"])
            self.assertEqual(messages[1]["content"], "Hello")
            self.assertEqual(messages[2]["content"], self.said(["Hello"], "--system", "Be brief.").text.removesuffix("\n"))
            again = self.said(["forgotten", f"/load {path} ", "And then?"])
            self.assertEqual(again.text.splitlines()[-1], whole.text.splitlines()[-1])
            self.assertEqual(self.ok("template", "--chat-template", cli.CHATML, "--messages", path).out.count(b"Be brief."), 1)
            for content, told in (("{", "line 1, "), ("{}", "no list of messages"), ('[{"role": "user"}]', "message 0 has no role"), ('[{"role": "x", "content": "y"}]', "'x' is no role")):
                pathlib.Path(path).write_text(content)
                r = self.said(["Hello", f"/load {path}", "And then?"], code=RUNTIME)
                self.assertIn(told, r.err)
                self.assertEqual(r.out, self.said(["Hello", "And then?"]).out)  # the conversation is as it was
            r = self.said(["/save", "/load", f"/load {folder}/absent", f"/save {folder}/absent/x", "Hello"], code=RUNTIME)
            for told in ("/save needs the name of a file", "/load needs the name of a file", "cannot open", "cannot write"):
                self.assertIn(told, r.err)

    def test_rates_are_of_computed_tokens(self):
        """What the prefix cache has is said apart."""
        r = self.said(["Tell me a story of a girl who lives by the sea.", "And then?"])
        first, second = re.findall(r"prompt (\d+) tokens(.*?), [\d.]+ tokens/s; generated", r.err)
        self.assertEqual(first[1], "")
        cached = int(re.fullmatch(r" \((\d+) of them from the prefix cache\)", second[1]).group(1))
        self.assertTrue(16 <= cached <= int(first[0]) + 8, (first, second))

    def test_info(self):
        r = self.said(["Hello", "/info"], "-c", 200)
        n = int(re.search(r"prompt (\d+) tokens", r.err).group(1))
        used = re.search(r"conversation: 2 messages, (\d+) of 200 tokens", r.err)
        self.assertGreater(int(used.group(1)), n)
        self.assertIn("model: built in (llama ", r.err)

    def test_full_context_drops_the_oldest_turns(self):
        lines = ["Tell me more of it, please."] * 12
        r = self.said(lines, "-c", 160, "--system", "Be brief.")
        self.assertEqual(r.err.count("generated 8 tokens"), 12)
        self.assertIn("the context of 160 tokens is full: the oldest 2 messages are left out", r.err)
        self.assertLessEqual(max(map(int, re.findall(r"prompt (\d+) tokens", r.err))), 160 - 8)
        off = self.said(lines, "-c", 160, "--system", "Be brief.", "--context-shift", "off", code=RUNTIME)
        self.assertLess(off.err.count("generated 8 tokens"), 12)
        self.assertIn("the line is ignored; /clear starts a new conversation", off.err)
        self.assertNotIn("oldest", off.err)

    def test_long_lines_leave_the_chat_working(self):
        """One that the context does not hold, and one that would fill the memory if it never ended."""
        chat = [*RUN, "--chat-template", cli.CHATML, "--chat", "-n", 8, "-c", 128]
        one = self.ok(*chat, stdin=b"Hello\n").out
        long, endless = b"word " * 500, b"x" * (9 << 20)
        for lines, told in (([long, b"Hello"], ["context", "the line is ignored\n"]),
                            ([b"Hello", long], ["context", "the line is ignored; /clear starts a new conversation\n"]),
                            ([endless, b"Hello"], ["more than 8388608 bytes"]), ([b"Hello", endless], ["more than 8388608 bytes"])):
            r = cli.weft(*chat, stdin=b"\n".join(lines))
            self.assertEqual(r.code, RUNTIME)
            for words in told:
                self.assertIn(words, r.err)
            self.assertEqual(r.out, one)


    def test_zero_bytes_are_no_message(self):
        """A message would end there in silence. Texts without a template take any bytes."""
        chat = [*RUN, "--chat-template", cli.CHATML, "--chat", "-n", 2]
        with tempfile.NamedTemporaryFile() as f:
            f.write(b"Hello\0and more\n")
            f.flush()
            self.fails(cli.USAGE, "the message has a zero byte behind 5 others", *chat, "-f", f.name)
            self.assertIn("generated 2 tokens", self.ok(*RUN, "-n", 2, "-f", f.name).err)
        r = cli.weft(*chat, stdin=b"Hello\0and more\nHello\n")
        self.assertIn("ignored a line that has a zero byte", r.err)
        self.assertEqual((r.code, r.out), (RUNTIME, self.ok(*chat, stdin=b"Hello\n").out))

    def conversation(self, folder, n):
        path = os.path.join(folder, "long.json")
        with open(path, "w") as f:
            json.dump([{"role": role, "content": f"{i} " + "tell me more " * 60} for i in range(n) for role in ("user", "assistant")], f)
        return path

    def test_full_context_of_many_turns(self):
        """What fits is searched for, not tried turn by turn, which would take many minutes here."""
        with tempfile.TemporaryDirectory() as folder:
            long, short = self.conversation(folder, 2000), os.path.join(folder, "short")
            r = self.said([f"/load {long}", "Hello", f"/save {short}"], "-c", 2048)
            left = self.messages(short)
            self.assertIn(f"the oldest {4000 + 2 - len(left)} messages are left out", r.err)
            n = int(re.search(r"prompt (\d+) tokens", r.err).group(1))
            turn = n // (len(left) // 2)
            self.assertTrue(2048 - 8 - 2 * turn < n <= 2048 - 8, (n, turn))  # another turn would not fit

    def test_interrupt_while_turns_are_dropped(self):
        """The whole conversation becomes tokens first, and only behind that is the interrupt seen: no turn is dropped, and no answer is printed.
        The signal comes while the program waits to say that it begins, so none is too fast for it."""
        with tempfile.TemporaryDirectory() as folder:
            path = self.conversation(folder, 300)
            p = subprocess.Popen(cli.argv(*RUN, "--chat-template", cli.CHATML, "--chat", "-c", 256), text=True, bufsize=1,
                                 stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            with p:
                p.stdin.write(f"/load {path}\n")
                while "600 messages" not in (said := p.stderr.readline()):
                    self.assertTrue(said)
                fill(p.stderr)
                self.assertFalse(cli.catches_interrupts(p))
                p.stdin.write("/retry\n/info\n")
                p.stdin.close()
                cli.await_interrupts(p)
                p.send_signal(signal.SIGINT)
                said = p.stderr.read()
        self.assertEqual(p.returncode, 0)
        self.assertRegex(said, r"gives the same answer again.*\nweft: stopping…\nweft: the old answer stays\n")
        self.assertNotIn("left out", said)
        self.assertIn("conversation: 600 messages", said)


class Prompts(cli.TestCase):
    def test_more_bytes_than_fit_are_not_tokenised(self):
        """The longest token of the built-in model says how many bytes its context may hold."""
        r = cli.weft(*RUN, stdin=b"tell me more " * 1000)
        self.assertEqual(r.code, RUNTIME)
        self.assertRegex(r.err, r"the prompt has 13000 bytes, but at most \d+ fit the context of 512 tokens: shorten it or enlarge the context \(-c\)")

    def test_interrupt_while_a_prompt_becomes_tokens(self):
        """Again if that was done before this program sent the signal."""
        with tempfile.TemporaryDirectory() as folder, model_with_a_long_token() as model:
            path = os.path.join(folder, "prompt")
            pathlib.Path(path).write_bytes(b"tell me more " * 2_000_000)
            for how in ([], ["--chat-template", cli.CHATML]):
                for _ in range(20):
                    code, said = interrupted_behind("seed ", "run", *cli.CPU, "-m", model.name, "-f", path, *how)
                    if "shorten it" not in said:
                        break
                self.assertEqual((code, said), (INTERRUPTED, "weft: stopping…\n"))


class Ends(cli.TestCase):
    # Minutes of text, so that it is certainly running when something happens to it.
    ENDLESS = [*RUN, "-q", "-p", "One day", "--ignore-eos", "-c", 20000]

    def start(self, *args):
        return subprocess.Popen(cli.argv(*args), stdin=subprocess.DEVNULL,
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
        """What has nothing to write does not need it."""
        for command in ([*RUN, "-p", "One day", "-n", 5], ["--help"], ["version"], ["info"], ["run", "--help"], ["tokenize", "x"], ["config"], ["run", "-q", *RUN[1:], "-p", "x", "-n", 3], ["bench", *cli.CPU, "-p", 4, "-n", 0, "-r", 1], ["kernels", *cli.CPU]):
            p = subprocess.run(["sh", "-c", '"$@" >&-', "sh", cli.WEFT, *map(str, command)],
                               stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=120)
            self.assertEqual((p.returncode, p.stderr.count(b"cannot write to standard output: it is closed")), (1, 1), (command, p.stderr))
        p = subprocess.run(["sh", "-c", '"$0" run --frob >&-', cli.WEFT], stderr=subprocess.PIPE, timeout=120)
        self.assertEqual((p.returncode, p.stderr.count(b"standard output")), (cli.USAGE, 0), p.stderr)

    def test_output_file_does_not_take_closed_stdout(self):
        """A file that weft writes must not get text meant for a closed stdout."""
        with tempfile.TemporaryDirectory() as folder:
            p = subprocess.run(["sh", "-c", '"$@" >&-', "sh", cli.WEFT, "bench", *cli.CPU, "-p", "4", "-n", "0",
                                "-r", "1", "--results", folder], stderr=subprocess.PIPE, timeout=120)
            self.assertEqual(p.returncode, cli.RUNTIME, p.stderr)
            (name,) = os.listdir(folder)
            self.assertEqual(len(pathlib.Path(folder, name).read_text().splitlines()), 2)


class AddressSpace(cli.TestCase):
    """Under ulimit -v OpenBLAS has no room for its threads, which it is told not to start."""
    def test_products_are_wefts_own(self):
        limit = resource.getrlimit(resource.RLIMIT_AS)[1]
        for megabytes, args in ((300, ["kernels"]), (1000, ["kernels"]), (1000, ["run", "-q", "-t", 2, "-p", "One day " * 80, "-n", 2])):
            r = self.ok(*args, *cli.CPU, timeout=60, env={"OPENBLAS_NUM_THREADS": "1"},
                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, limit)))
            if args == ["kernels"]:
                self.assertRegex(r.text, r"(?m)^gemm +blas .* no +cpu/blas.c")


if cli.sanitized():
    del AddressSpace  # a sanitizer takes all of the address space


if __name__ == "__main__":
    cli.main()
