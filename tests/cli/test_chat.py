"""Chat on a pseudo-terminal: line editing, Ctrl-C, Ctrl-D, Ctrl-Z, the plain loop of models without a template."""
import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

import cli
from cli import INTERRUPTED

TEMPLATE = ["--chat-template", cli.CHATML]
PATIENCE = 120  # seconds; a slow machine may take them, a right program ends its tests at once


class Terminal:
    """weft on a pseudo-terminal. stdout and stderr can go elsewhere."""

    def __init__(self, *args, stdout=None, stderr=None, env=None, shell=(), columns=80):
        self.fd, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
        self.seen = b""
        env = {**os.environ, "TERM": "vt100", "LC_ALL": "C.UTF-8", "WEFT_HISTORY": "", **(env or {})}
        self.p = subprocess.Popen([*shell, *cli.argv(*args)], stdin=child, stdout=stdout or child, stderr=stderr or child,
                                  start_new_session=True, preexec_fn=self.take_terminal,
                                  env={name: value for name, value in env.items() if value is not None})
        os.close(child)

    @staticmethod
    def take_terminal():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C becomes a signal

    def until(self, pattern, what=None):
        """Reads until the pattern comes behind what was read before; returns the text up to its end."""
        end = time.monotonic() + PATIENCE
        while True:
            m = re.search(pattern, self.seen)
            if m:
                text, self.seen = self.seen[:m.end()], self.seen[m.end():]
                return text.decode("utf-8", "replace")
            if time.monotonic() > end or not self.read():
                raise AssertionError(f"{what or pattern} did not come; there is {self.seen[-2000:]!r}")

    def read(self):
        if not select.select([self.fd], [], [], 1)[0]:
            return True
        try:
            got = os.read(self.fd, 65536)
        except OSError:
            return False
        self.seen += got
        return bool(got)

    def answer(self):
        """Reads an answer up to the next prompt; returns what it says with its statistics."""
        text = self.until(STATS)
        self.until(rb"> ")
        return text

    def type(self, text):
        """Keys. Wait for the prompt first: a key that comes while the terminal changes its mode may be lost."""
        os.write(self.fd, text.encode())

    def end(self):
        """The exit code; what is still printed is in .seen."""
        end = time.monotonic() + PATIENCE
        while self.read():
            if time.monotonic() > end:
                raise AssertionError(f"the program does not end; there is {self.seen[-2000:]!r}")
            if self.p.poll() is not None and not select.select([self.fd], [], [], 0)[0]:
                break
        code = self.p.wait(timeout=PATIENCE)
        os.close(self.fd)
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.p.poll() is None:
            self.p.kill()
            self.p.wait()


@contextlib.contextmanager
def chat(*args, **more):
    """A chat behind its first prompt, which ends well with Ctrl-D when it stands at a prompt again."""
    with Terminal("run", *cli.GREEDY, *args, **more) as t:
        t.until(rb"Ctrl-D exits[^>]*> ")
        yield t
        t.type("\x04")
        assert t.end() == 0


def large_model():
    """0.2 billion zeros."""
    return cli.model_of_holes(dict(width=2048, layers=3, heads=16, kv_heads=16, head_dim=128, ffn=8192, vocab=259, context=2048))


@contextlib.contextmanager
def slowed(p):
    """Lets the process run a tenth of the time only, so that its work takes long on any machine."""
    done = threading.Event()

    def slow():
        while not done.is_set() and p.poll() is None:
            p.send_signal(signal.SIGSTOP)
            time.sleep(0.2)
            p.send_signal(signal.SIGCONT)
            time.sleep(0.02)
    thread = threading.Thread(target=slow)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


# What a shell with jobs does: the program in a group of its own that has the terminal, which goes on when a line is typed after a stop.
SHELL = """
import os, signal, subprocess, sys, termios
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
def start():
    os.setpgrp()
    os.tcsetpgrp(0, os.getpgrp())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
p = subprocess.Popen(sys.argv[1:], preexec_fn=start)
while os.WIFSTOPPED(status := os.waitpid(p.pid, os.WUNTRACED)[1]):
    os.tcsetpgrp(0, os.getpgrp())
    print("stopped", p.pid, flush=True)
    sys.stdin.readline()
    os.tcsetpgrp(0, p.pid)
    os.killpg(p.pid, signal.SIGCONT)
sys.exit(os.waitstatus_to_exitcode(status))
"""
STATS = rb"tokens/s; on [^\r\n]*\r\n"


class Chat(cli.TestCase):
    def test_two_turns_and_end(self):
        with Terminal("run", *cli.GREEDY, *TEMPLATE, "-n", 12) as t:
            t.until(rb"Ctrl-D exits[^>]*> ", "the first prompt")
            t.type("Hello\n")
            first = t.until(STATS)
            self.assertIn("prompt ", first)
            t.until(rb"> ")
            t.type("And then?\n")
            second = t.until(STATS)
            n = [int(re.search(r"prompt (\d+) tokens", s).group(1)) for s in (first, second)]
            self.assertGreater(n[1], n[0] + 12)  # the second turn holds the first one and its answer
            t.until(rb"> ")
            t.type("/clear\n")
            t.until(rb"> ")
            t.type("Hello\n")
            self.assertIn(f"prompt {n[0]} tokens", t.answer())
            t.type("\x04")
            self.assertEqual(t.end(), 0)

    def test_interrupt_stops_the_answer_only(self):
        with chat(*TEMPLATE, "--ignore-eos", "-c", 20000) as t:
            for _ in range(2):
                t.type("Tell me\n")
                t.until(rb"Tell me\r\n")
                t.until(rb"\w+\W+\w+\W+\w+")  # words of the answer, not the end of an escape sequence
                t.type("\x03")
                self.assertIn("stopped", t.answer())

    def test_interrupt_within_a_long_step(self):
        """It is answered at once and the chat goes on, however long the step takes; a second one changes nothing."""
        message = "Tell me more of it. " * 50
        with large_model() as f:
            slow = ["-m", f.name, "WEFT_FORCE=gemm=ref", "-t", 1]  # half a minute a step
            with chat(*TEMPLATE, *slow, "-n", 4) as t:
                t.type("\x1b[200~" + message + "\x1b[201~\n")
                t.until(rb"prompt \[", "the progress of the prompt")
                t.type("\x03")
                t.until("stopping…\r\n".encode())
                t.type("\x03")
                self.assertNotIn("tokens/s", t.until(rb"weft: stopped\r\n(?:weft: prompt [^\r]*\r\n)?weft: the message is left out of the conversation\r\n[^>]*> "))
                t.type("/info\n")
                t.until(rb"conversation: 0 messages(?s:.*)> ")
            with Terminal("run", *cli.GREEDY, *slow, "-p", message) as t:
                t.until(rb"prompt \[")
                t.type("\x03")
                self.assertNotIn("tokens/s", t.until("stopping…\r\n(?s:.*)stopped\r\n".encode()))
                self.assertEqual(t.end(), INTERRUPTED)

    def test_interrupt_in_the_prompt_counts_what_is_done(self):
        """The bar has moved by then: a step that takes longer than half a second is not waited for and not counted."""
        with large_model() as f:
            done, whole = self.stopped_in_the_prompt(f.name)
        self.assertTrue(0 < int(done) < int(whole), (done, whole))

    def stopped_in_the_prompt(self, model):
        with Terminal("run", *cli.GREEDY, "-m", model, "-t", 1, "-c", 2048, "-n", 4, "-p", "Tell me more of it. " * 60) as t:
            t.until(rb"prompt \[#", "progress of the prompt")
            t.type("\x03")
            text = t.until(rb"weft: stopped\r\n")
            self.assertEqual(t.end(), INTERRUPTED)
            text += t.seen.decode()
            self.assertNotIn("tokens/s", text)
            return re.search(r"prompt (\d+) of (\d+) tokens; on ", text).groups()

    def test_interrupt_ends_the_step(self):
        """A prompt comes in steps of a fifth of a second, as fast as the processor is, so little is left to wait for."""
        message = "Tell me more of it. " * 40
        with large_model() as f, tempfile.TemporaryDirectory() as folder:
            line = os.path.join(folder, "timeline")
            run = ["run", *cli.GREEDY, "-m", f.name, "-t", 1, "-c", 2048, "-p", message, "-n", 1, "--timeline", line]
            self.ok(*run)
            steps = [e for e in json.loads(pathlib.Path(line).read_bytes()) if e.get("name") == "submit"]
            pieces = [e["args"]["tokens"] for e in steps]
            self.assertGreater(len(pieces), 4, pieces)
            self.assertLess(max(pieces), 512, pieces)  # the dense batch
            self.assertEqual(pieces[0], 64)

    def test_second_interrupt_does_not_end_the_program(self):
        with chat(*TEMPLATE, "--ignore-eos", "-c", 20000) as t:
            t.type("Tell me\n")
            t.until(rb"Tell me\r\n")
            t.until(rb"\w+\W+\w+\W+\w+")
            t.p.send_signal(signal.SIGINT)
            t.p.send_signal(signal.SIGINT)
            self.assertIn("stopped", t.answer())

    def test_interrupt_at_the_prompt_drops_the_line(self):
        with chat(*TEMPLATE, "-n", 4) as t:
            t.type("a very long and quite mistaken question")
            t.until(rb"mistaken question")
            t.type("\x03")
            t.until(rb"(?s)\^C.*> ")
            t.type("Hello\n")
            text = t.until(STATS)
            with chat(*TEMPLATE, "-n", 4) as u:
                u.type("Hello\n")
                want = re.search(r"prompt \d+ tokens", u.answer()).group()
            self.assertIn(want, text)
            t.until(rb"> ")

    def test_editing(self):
        """Backspace, cursor keys and history change what is sent; characters may be wide."""
        with chat("-n", 2) as t:
            for keys in ("One dat\x7fy\n", "ne day\x01O\n", "\x1b[A\n"):
                t.type(keys)
                self.assertIn("prompt 3 tokens", t.answer(), repr(keys))
            wide = len(self.ok("tokenize", "-p", "Zürich").text.split())
            t.type("Züü\x7frich\n")
            self.assertIn(f"prompt {wide} tokens", t.answer())

    def test_model_without_template_continues_lines(self):
        want = self.ok("run", *cli.GREEDY, "-p", "One day", "-n", 12).text
        with Terminal("run", *cli.GREEDY, "-n", 12) as t:
            hello = t.until(rb"Ctrl-D exits[^>]*> ")
            self.assertEqual(hello.count("no chat template"), 1)
            for _ in range(2):
                t.type("One day\n")
                text = t.until(STATS).replace("\r\n", "\n").replace("\x1b[?2004l", "")
                self.assertIn("One day\n" + want, text)
                self.assertNotIn("no chat template", text)
                t.until(rb"> ")
            t.type("\x04")
            self.assertEqual(t.end(), 0)

    def test_stop_and_go_on(self):
        """Ctrl-Z, and the signal from elsewhere, leave the terminal as it was; then the prompt and the line come back, in raw mode."""
        with Terminal("run", *cli.GREEDY, *TEMPLATE, "-n", 1, shell=[sys.executable, "-c", SHELL]) as t:
            before = termios.tcgetattr(t.fd)
            t.until(rb"Ctrl-D exits[^>]*> ")
            editing = termios.tcgetattr(t.fd)
            self.assertNotEqual(editing, before)
            pid = self.stopped(t, "One \x1a", before)
            for sig in (signal.SIGTSTP, signal.SIGSTOP):
                t.type("fg\n")
                t.until(rb"\x1b\[\?2004h(?s:.*)> One day" if sig == signal.SIGSTOP else rb"\x1b\[\?2004h(?s:.*)> One ")
                self.assertEqual(termios.tcgetattr(t.fd), editing)
                if sig == signal.SIGTSTP:
                    t.type("day")
                    t.until(rb"day")
                os.kill(pid, sig)
                self.stopped(t, "", before if sig == signal.SIGTSTP else None)
            termios.tcsetattr(t.fd, termios.TCSANOW, before)  # as shells do for themselves
            t.type("fg\n")
            t.until(rb"> One day")
            self.assertEqual(termios.tcgetattr(t.fd), editing)
            t.type("\n")
            want = self.ok("run", *cli.GREEDY, *TEMPLATE, "-n", 1, "-p", "One day").err
            self.assertIn(re.search(r"prompt \d+ tokens", want).group(), t.answer())
            t.type("\x04")
            self.assertEqual(t.end(), 0)

    def stopped(self, t, keys, mode):
        t.type(keys)
        text = t.until(rb"stopped \d+\r\n")
        if mode:
            self.assertEqual(termios.tcgetattr(t.fd), mode)
            self.assertIn("\x1b[?2004l", text)
        return int(re.search(r"stopped (\d+)", text).group(1))

    def test_stop_during_an_answer(self):
        with chat(*TEMPLATE, "--ignore-eos", "-c", 20000, shell=[sys.executable, "-c", SHELL]) as t:
            t.type("Tell me\n")
            t.until(rb"\w+\W+\w+\W+\w+")
            t.type("\x1a")
            t.until(rb"stopped \d+\r\n")
            t.type("fg\n")
            t.until(rb"\w+\W+\w+\W+\w+")
            t.type("\x03")
            t.answer()

    def test_model_whose_template_cannot_be_used(self):
        with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
            cli.write_with_template(f, "{% for x in %}")
            with Terminal("run", *cli.GREEDY, "-m", f.name, "-n", 1) as t:
                text = t.until(rb"Ctrl-D exits[^>]*> ")
                self.assertIn("the chat template cannot be used (the model's chat template, line 1, column 13: expected an expression, found the end of the tag), so each line", text)
                self.assertIn("; set another one with --chat-template FILE\r\n", text)
                self.assertNotIn("no chat template", text)
                t.type("/exit\n")
                self.assertEqual(t.end(), 0)

    def test_system_message_without_template(self):
        with chat("-n", 1) as t:
            for line in ("/system Be brief.", "/set system Be brief."):
                t.type(line + "\n")
                self.assertIn("the model does not see the system message, which is only kept for /save: without a chat template", t.until(rb"FILE\r\n(?s:.)*> "))
            t.type("/system none\n")
            self.assertNotIn("does not see", t.until(rb"none\r\n(?s:.)*> "))

    def test_refused_message_on_a_terminal(self):
        """Who types has seen that, so the chat ends well."""
        with chat(*TEMPLATE, "-n", 1, "-c", 64) as t:
            t.type("word " * 200 + "\n")
            t.until(rb"the line is ignored(?s:.*)> ")

    def test_stdout_holds_the_answers_only(self):
        want = self.ok("run", *cli.GREEDY, "-p", "One day", "-n", 12).out
        with tempfile.TemporaryFile() as out:
            with chat("-n", 12, stdout=out) as t:
                t.type("One day\n")
                t.answer()
            out.seek(0)
            self.assertEqual(out.read(), want)

    def test_stderr_elsewhere(self):
        """The prompt and the echo are on the terminal, where lines are edited as ever, and messages are where stderr is."""
        want = self.ok("run", *cli.GREEDY, *TEMPLATE, "-p", "One day", "-n", 4).text
        for stdout in (False, True):
            with tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as out:
                with Terminal("run", *cli.GREEDY, *TEMPLATE, "-n", 4, stderr=err, stdout=out if stdout else None) as t:
                    t.until(rb"> ")
                    t.type("One\x03")
                    t.until(rb"(?s)\^C.*> ")
                    t.type("One dat\x7fy\n")
                    t.until(b"> " if stdout else b"(?s)" + re.escape(want.rstrip("\n").encode()) + b".*> ")
                    t.type("\x04")
                    self.assertEqual(t.end(), 0)
                err.seek(0)
                self.assertRegex(err.read(), STATS.replace(rb"\r", b""))


class Lines(cli.TestCase):
    """Messages of several lines, and what is kept of them."""

    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.folder = temp.name

    def tokens(self, message):
        path = os.path.join(self.folder, "message")
        pathlib.Path(path).write_text(message + "\n", encoding="utf-8")
        return re.search(r"prompt (\d+) tokens", self.ok("run", *cli.GREEDY, *TEMPLATE, "-n", 1, "-f", path).err).group(1)

    def chat(self, turns, env=None):
        """Types the keys of each turn at a prompt and compares the length of the prompt with that of the first message alone."""
        with chat(*TEMPLATE, "-n", 1, env=env) as t:
            for keys, message in turns:
                for part in keys:
                    t.type(part)
                    t.until(rb"\n")
                if message is not None:
                    self.assertIn(f"prompt {self.tokens(message)} tokens", t.answer(), repr(keys))
                    t.type("/clear\n")
                t.until(rb"> ")

    def test_backslash(self):
        self.chat([(["One\\\n", "day\n"], "One\nday"), (["a\\\n", "\\\n", "b\n"], "a\n\nb")])

    def test_interrupt_drops_all_lines(self):
        with chat(*TEMPLATE, "-n", 1) as t:
            t.type("One\\\n")
            t.until(rb"\n[^>]*\. ")
            t.type("two\x03")
            t.until(rb"(?s)\^C.*> ")
            t.type("day\n")
            self.assertIn(f"prompt {self.tokens('day')} tokens", t.answer())

    def test_bracketed_paste(self):
        """Pasted line ends are text; nothing is sent before Enter, and nothing pasted commands the terminal or the chat."""
        self.chat([(["\x1b[200~One\rday\x1b[201~\n"], "One\nday"), (["a \x1b[200~b\nc\x1b[201~ d\n"], "a b\nc d"),
                   (["\x1b[200~x\x03\x04y\x1b[201~\n"], "xy"), (["\x1b[200~z\u00fcz\x1b[201~\n"], "z\u00fcz")])

    def test_pasted_slashes_are_text(self):
        """Also when it comes back from the history. A command that is typed after the paste is gone is one."""
        history = {"WEFT_HISTORY": os.path.join(self.folder, "own")}
        self.chat([(["\x1b[200~/usr/bin/env\x1b[201~\n"], "/usr/bin/env"), (["\x1b[200~/help\x1b[201~\n"], "/help"),
                   (["\x1b[200~/* a\nb */\x1b[201~\n"], "/* a\nb */"), (["\x1b[200~// x\x1b[201~ y\n"], "// x y"),
                   (["a\\\n", "\x1b[200~/b\x1b[201~\n"], "a\n/b"), (["\x1b[200~/usr\x1b[201~\x15/clear\n"], None),
                   (["\x1b[200~/usr/bin\x1b[201~\n"], "/usr/bin"), (["\x1b[A\x1b[A\n"], "/usr/bin")], history)

    def test_interrupt_leaves_a_paste_without_end(self):
        with chat(*TEMPLATE, "-n", 1) as t:
            t.type("\x1b[200~lost")
            time.sleep(0.5)
            t.type("\x03")
            t.until(rb"(?s)\^C.*> ")
            t.type("day\n")
            self.assertIn(f"prompt {self.tokens('day')} tokens", t.answer())

    def test_history_needs_a_regular_file(self):
        """Neither the mode nor the content of anything else is changed, and a FIFO does not block."""
        fifo = os.path.join(self.folder, "fifo")
        os.mkfifo(fifo, 0o644)
        os.chmod(fifo, 0o644)
        for path in [fifo, self.folder]:
            mode = os.stat(path).st_mode
            self.chat([(["day\n"], "day")], {"WEFT_HISTORY": path})
            self.assertEqual(os.stat(path).st_mode, mode)
        mode = os.stat("/dev/null").st_mode
        with Terminal("run", *cli.GREEDY, "-n", 1, env={"WEFT_HISTORY": "/dev/null"}) as t:
            self.assertNotIn("history", t.until(rb"Ctrl-D exits[^>]*> "))
            t.type("\x04")
            self.assertEqual(t.end(), 0)
        now = os.stat("/dev/null").st_mode
        if now != mode:
            os.chmod("/dev/null", mode)  # others need it
        self.assertEqual(now, mode)

    def test_history_spares_other_files(self):
        """What is no history keeps its content and its mode, however large it is, and that is said; so is a file that cannot be made."""
        path = os.path.join(self.folder, "mine")
        for content in (b"#!/bin/sh\necho mine\n", b"x" * (2 << 20)):
            pathlib.Path(path).write_bytes(content)
            os.chmod(path, 0o755)
            self.no_history(path, "mine: something else wrote it")
            self.assertEqual(pathlib.Path(path).read_bytes(), content)
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o755)
        self.no_history(os.path.join(self.folder, "absent", "x"), "absent/x: No such file")

    def no_history(self, path, told):
        with Terminal("run", *cli.GREEDY, *TEMPLATE, "-n", 1, env={"WEFT_HISTORY": path}) as t:
            self.assertIn(told, t.until(rb"Ctrl-D exits[^>]*> "))
            t.type("day\n")
            t.answer()
            t.type("\x04")
            self.assertEqual(t.end(), 0)

    def test_history(self):
        state = {"XDG_STATE_HOME": os.path.join(self.folder, "state"), "HOME": self.folder}
        path = os.path.join(self.folder, "state", "weft", "history")
        with Terminal("run", *cli.GREEDY, "-n", 1, env=state) as t:  # WEFT_HISTORY= keeps none
            t.until(rb"Ctrl-D exits[^>]*> ")
            t.type("secret\n")
            t.answer()
            t.type("\x04")
            self.assertEqual(t.end(), 0)
        self.assertFalse(os.path.exists(path))
        own = os.path.join(self.folder, "own")
        for env, path in ((dict(state), path), ({"WEFT_HISTORY": own}, own)):
            if "WEFT_HISTORY" not in env:
                env["WEFT_HISTORY"] = None
            self.chat([(["One\\\n", "day\n"], "One\nday")], env)
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
            self.chat([(["\x1b[A\x1b[A\n"], "One\nday")], env)  # the last one is /clear
        with open(own) as f:  # each line once, in the order in which they were typed
            self.assertEqual(f.read().splitlines(), ["_HiStOrY_V2_", "One\\012day", "/clear", "One\\012day", "/clear"])


    def ended_by(self, sig, at_prompt, env):
        """Ends a chat by the signal; the mode of the terminal before and after, and what was printed last."""
        with Terminal("run", *cli.GREEDY, *TEMPLATE, "--ignore-eos", *(["-n", 1] if at_prompt else ["-c", 20000]), env=env) as t:
            before = termios.tcgetattr(t.fd)
            t.until(rb"Ctrl-D exits[^>]*> ")
            t.type(f"day {sig}\n")
            t.until(STATS if at_prompt else rb"\w+\W+\w+\W+\w+")
            if at_prompt:
                t.until(rb"\x1b\[\?2004h")
                t.type("half a li")
                t.until(rb"half a li")
                self.assertNotEqual(termios.tcgetattr(t.fd), before)
            os.kill(t.p.pid, sig)
            self.assertEqual(t.p.wait(timeout=PATIENCE), -sig)
            after = termios.tcgetattr(t.fd)
            t.end()
            return before, after, t.seen

    def test_signals_leave_terminal_and_history_in_order(self):
        path = os.path.join(self.folder, "own")
        for sig in (signal.SIGTERM, signal.SIGHUP):
            for at_prompt in (True, False):
                with self.subTest(sig=sig, at_prompt=at_prompt):
                    before, after, seen = self.ended_by(sig, at_prompt, {"WEFT_HISTORY": path})
                    self.assertEqual(after, before)
                    self.assertEqual(re.findall(rb"\x1b\[\?2004[hl]", seen)[-1:], [b"\x1b[?2004l"])
                    self.assertEqual(pathlib.Path(path).read_text().splitlines()[-1], f"day\\040{sig}")

    def test_closed_terminal_ends_the_chat(self):
        path = os.path.join(self.folder, "own")
        with Terminal("run", *cli.GREEDY, *TEMPLATE, "-n", 1, env={"WEFT_HISTORY": path}) as t:
            t.until(rb"Ctrl-D exits[^>]*> ")
            t.type("One day\n")
            t.answer()
            os.close(t.fd)
            self.assertEqual(t.p.wait(timeout=PATIENCE), -signal.SIGHUP)
        self.assertEqual(pathlib.Path(path).read_text().splitlines()[-1], "One\\040day")

    def test_history_does_not_grow_without_end(self):
        path = os.path.join(self.folder, "own")
        with open(path, "w") as f:
            f.write("_HiStOrY_V2_\n" + "".join(f"line\\040{i}\\040{'x' * 600}\n" for i in range(2000)) + "One\\040day\n")
        self.assertGreater(os.path.getsize(path), 1 << 20)
        self.chat([(["\x1b[A\n"], "One day")], {"WEFT_HISTORY": path})
        self.assertLess(os.path.getsize(path), 500 * 700)
        self.chat([(["\x1b[A\x1b[A\n"], "One day")], {"WEFT_HISTORY": path})  # the last one is /clear


class Commands(cli.TestCase):
    def test_commands_on_a_terminal(self):
        with Terminal("run", *cli.GREEDY, *TEMPLATE, "-n", 4) as t:
            t.until(rb"/help lists commands, Ctrl-D exits[^>]*> ")
            t.type("/help\n")
            text = t.until(rb"> ")
            for name in ("/help", "/exit bye", "/clear", "/system", "/set", "/retry", "/save FILE", "/save! FILE", "/load FILE", "/info"):
                self.assertIn(f"  {name}", text)
            t.type("/sve x\n")
            self.assertIn("there is no /sve; did you mean /save?", t.until(rb"> "))
            t.type("/bye\n")
            self.assertEqual(t.end(), 0)


class Run(cli.TestCase):
    def test_progress_in_narrow_terminals(self):
        """The line is never longer than the terminal is wide: its parts go one by one."""
        with large_model() as f:
            for columns, line in ((120, rb"prompt \[[#.]{30}\] +\d+ %(, .*)?"), (30, rb"prompt( \[[#.]{5,14}\])? +\d+ %(, .*)?"), (10, rb"pro +\d+ %")):
                with Terminal("run", *cli.GREEDY, "-m", f.name, "WEFT_FORCE=gemm=ref", "-t", 1, "-n", 4, "-p", "Tell me more of it. " * 50, columns=columns) as t:
                    drawn = re.search(r"\x1b\[K(pro[^\r]+)\r", t.until(rb"\x1b\[Kpro[^\r]+\r")).group(1)
                    self.assertRegex(drawn.encode(), rb"^" + line + rb"$")
                    self.assertLess(len(drawn), columns)
                    t.type("\x03")
                    self.assertEqual(t.end(), INTERRUPTED)

    def test_progress_of_a_conversion(self):
        """On a terminal, unless it is to be quiet; elsewhere nothing."""
        with large_model() as f, tempfile.TemporaryDirectory() as folder:
            convert = ["convert", "-m", f.name, "-o", os.path.join(folder, "x.gguf"), "--type", "Q2_K", "-t", 1]
            with Terminal(*convert) as t:
                with slowed(t.p):
                    t.until(rb"\x1b\[Kconvert \[[#.]{30}\] +\d+ %")
                    t.type("\x03")
                self.assertEqual(t.end(), INTERRUPTED)
                self.assertRegex(t.seen, rb"\x1b\[K(weft: |$)")  # the line is cleared
            with tempfile.TemporaryFile() as err:
                for options, stderr in ((["-q"], None), ([], err)):
                    with Terminal(*convert, *options, stderr=stderr) as t:
                        self.works_for(2, t, folder)
                        self.assertEqual(t.end(), INTERRUPTED)
                        self.assertNotIn(b"\x1b", t.seen)
                err.seek(0)
                self.assertNotRegex(err.read(), rb"[\r\x1b]")
            self.assertEqual(os.listdir(folder), [])

    def works_for(self, seconds, t, folder):
        """A bar would have come then; ends it."""
        p = t.p
        with slowed(p):
            end = time.monotonic() + PATIENCE
            while not os.listdir(folder):
                self.assertLess(time.monotonic(), end, "no file is written")
                time.sleep(0.01)
            time.sleep(seconds)
            self.assertIsNone(p.poll(), "it was ready too soon for a bar")
            t.type("\x03")

    def test_interrupt(self):
        begin = self.ok("run", *cli.GREEDY, "-p", "One day", "-n", 4).out
        with Terminal("run", *cli.GREEDY, "-p", "One day", "--ignore-eos", "-c", 20000) as t:
            t.until(re.escape(begin.rstrip(b"\n")))
            t.type("\x03")
            text = t.until(STATS)
            self.assertIn("stopped", text)
            self.assertEqual(t.end(), INTERRUPTED)

    def test_text_ends_with_a_line_end_on_a_terminal(self):
        with Terminal("run", *cli.GREEDY, "-q", "-p", "One day", "-n", 5) as t:
            self.assertEqual(t.end(), 0)
            self.assertTrue(t.seen.endswith(b"\r\n"))


if __name__ == "__main__":
    cli.main()
