"""Chat on a pseudo-terminal: line editing, Ctrl-C, Ctrl-D, the plain loop of models without a template."""
import os
import pty
import re
import select
import subprocess
import tempfile
import time
import unittest

import cli
from cli import INTERRUPTED

TEMPLATE = ["--chat-template", cli.CHATML]
PATIENCE = 120  # seconds; a slow machine may take them, a right program ends its tests at once


class Terminal:
    """weft on a pseudo-terminal. stdout can go elsewhere, then only stderr is on the terminal."""

    def __init__(self, *args, stdout=None):
        self.fd, child = pty.openpty()
        self.seen = b""
        self.p = subprocess.Popen([cli.WEFT, *map(str, args)], stdin=child, stdout=stdout or child, stderr=child,
                                  start_new_session=True, preexec_fn=self.take_terminal,
                                  env={**os.environ, "TERM": "vt100", "LC_ALL": "C.UTF-8"})
        os.close(child)

    @staticmethod
    def take_terminal():
        import fcntl
        import termios
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


STATS = rb"tokens/s; on [^\r\n]*\r\n"


class Chat(cli.TestCase):
    def test_two_turns_and_end(self):
        with Terminal("run", *cli.CPU, *TEMPLATE, "-n", 12) as t:
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
            self.assertIn(f"prompt {n[0]} tokens", t.until(STATS))
            t.until(rb"> ")
            t.type("\x04")
            self.assertEqual(t.end(), 0)

    def test_interrupt_stops_the_answer_only(self):
        with Terminal("run", *cli.CPU, *TEMPLATE, "--ignore-eos", "-c", 20000) as t:
            t.until(rb"Ctrl-D exits[^>]*> ")
            for _ in range(2):
                t.type("Tell me\n")
                t.until(rb"Tell me\r\n")
                t.until(rb"\w+\W+\w+\W+\w+")  # words of the answer, not the end of an escape sequence
                t.type("\x03")
                self.assertIn("stopped", t.until(STATS))
                t.until(rb"> ")
            t.type("\x04")
            self.assertEqual(t.end(), 0)

    def test_interrupt_at_the_prompt_drops_the_line(self):
        with Terminal("run", *cli.CPU, *TEMPLATE, "-n", 4) as t:
            t.until(rb"Ctrl-D exits[^>]*> ")
            t.type("a very long and quite mistaken question")
            t.until(rb"mistaken question")
            t.type("\x03")
            t.until(rb"(?s)\^C.*> ")
            t.type("Hello\n")
            text = t.until(STATS)
            with Terminal("run", *cli.CPU, *TEMPLATE, "-n", 4) as u:
                u.until(rb"Ctrl-D exits[^>]*> ")
                u.type("Hello\n")
                want = re.search(r"prompt \d+ tokens", u.until(STATS)).group()
                u.until(rb"> ")
                u.type("\x04")
                self.assertEqual(u.end(), 0)
            self.assertIn(want, text)
            t.until(rb"> ")
            t.type("\x04")
            self.assertEqual(t.end(), 0)

    def test_editing(self):
        """Backspace, cursor keys and history change what is sent; characters may be wide."""
        with Terminal("run", *cli.CPU, "-n", 2) as t:
            t.until(rb"Ctrl-D exits[^>]*> ")
            for keys in ("One dat\x7fy\n", "ne day\x01O\n", "\x1b[A\n"):
                t.type(keys)
                self.assertIn("prompt 3 tokens", t.until(STATS), repr(keys))
                t.until(rb"> ")
            wide = len(self.ok("tokenize", "-p", "Zürich").text.split())
            t.type("Züü\x7frich\n")
            self.assertIn(f"prompt {wide} tokens", t.until(STATS))
            t.until(rb"> ")
            t.type("\x04")
            self.assertEqual(t.end(), 0)

    def test_model_without_template_continues_lines(self):
        want = self.ok("run", *cli.CPU, "-p", "One day", "-n", 12).text
        with Terminal("run", *cli.CPU, "-n", 12) as t:
            hello = t.until(rb"Ctrl-D exits[^>]*> ")
            self.assertEqual(hello.count("no chat template"), 1)
            for _ in range(2):
                t.type("One day\n")
                text = t.until(STATS).replace("\r\n", "\n")
                self.assertIn("One day\n" + want, text)
                self.assertNotIn("no chat template", text)
                t.until(rb"> ")
            t.type("\x04")
            self.assertEqual(t.end(), 0)

    def test_stdout_holds_the_answers_only(self):
        want = self.ok("run", *cli.CPU, "-p", "One day", "-n", 12).out
        with tempfile.TemporaryFile() as out:
            with Terminal("run", *cli.CPU, "-n", 12, stdout=out) as t:
                t.until(rb"Ctrl-D exits[^>]*> ")
                t.type("One day\n")
                t.until(STATS)
                t.until(rb"> ")
                t.type("\x04")
                self.assertEqual(t.end(), 0)
            out.seek(0)
            self.assertEqual(out.read(), want + b"\n")


class Run(cli.TestCase):
    def test_interrupt(self):
        begin = self.ok("run", *cli.CPU, "-p", "One day", "-n", 4).out
        with Terminal("run", *cli.CPU, "-p", "One day", "--ignore-eos", "-c", 20000) as t:
            t.until(re.escape(begin))
            t.type("\x03")
            text = t.until(STATS)
            self.assertIn("stopped", text)
            self.assertEqual(t.end(), INTERRUPTED)

    def test_text_ends_with_a_line_end_on_a_terminal(self):
        with Terminal("run", *cli.CPU, "-q", "-p", "One day", "-n", 5) as t:
            self.assertEqual(t.end(), 0)
            self.assertTrue(t.seen.endswith(b"\r\n"))


if __name__ == "__main__":
    cli.main()
