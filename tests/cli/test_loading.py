"""Ctrl-C and SIGTERM while a model loads. Loading waits for a pipe, so it is certainly under way when the signal comes."""
import os
import signal
import subprocess
import tempfile
import termios
import time

import cli
from test_chat import Terminal

PATIENCE = 60  # seconds; a slow machine may take them, a right program ends its tests at once
SAID = "weft: stopping…\n"
# Commands that open an engine, and what a signal to end makes of each: servers are ended that way.
COMMANDS = [(["run", "-p", "One day"], False), (["serve", "--port", 0], True), (["bench", "-p", 4, "-n", 0], False),
            (["bench", "--shape", "llama-1.1b", "WEFT_LAYERS=1"], False), (["bench", "throughput", "--const", "8:4", "WEFT_PEAK_TFLOPS=1"], False),
            (["perplexity", "-p", "One day " * 300], False), (["plan"], False), (["calibrate", "-p", "One day"], False)]


class Loading(cli.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.pipe = folder.name, os.path.join(folder.name, "pipe")
        os.mkfifo(self.pipe)

    def until_it_loads(self, p):
        """Opens the pipe that it reads; while that stays open it waits."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and p.poll() is None:
            try:
                return os.open(self.pipe, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # nobody reads yet
                time.sleep(0.001)
        self.fail(f"it does not read the pipe; its code is {p.poll()}")

    def start(self, *args):
        p = subprocess.Popen(cli.argv(*args, *cli.CPU, "--tuned", self.pipe, program=os.path.abspath(cli.WEFT)), cwd=self.folder,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(p.kill)
        return p

    def ends(self, args, number, served, hangs, said=SAID):
        p = self.start(*args)
        pipe = self.until_it_loads(p)
        p.send_signal(number)
        first = b"" if hangs else p.stderr.readline()
        if not hangs:
            os.close(pipe)
        out, err = p.communicate(timeout=PATIENCE)
        if hangs:
            os.close(pipe)
        self.assertEqual((p.returncode, out, (first + err).decode()), (0 if served else 128 + number, b"", said), args)
        self.assertEqual(os.listdir(self.folder), ["pipe"])

    def test_loading_is_given_up(self):
        for args, served in COMMANDS:
            self.ends(args, signal.SIGINT, served, hangs=False)

    def test_what_hangs_is_left(self):
        """Within a long call of the system nobody asks whether to stop."""
        for args, served in COMMANDS[:3]:
            for number in (signal.SIGINT, signal.SIGTERM):
                self.ends(args, number, served, hangs=True)

    def test_quietly(self):
        self.ends(["run", "-q", "-p", "One day"], signal.SIGTERM, False, hangs=True, said="")

    def test_an_ignored_signal_stays_ignored(self):
        """As shells start what is in the background of a script."""
        run = [cli.WEFT, "run", *cli.CPU, "-q", "-p", "One day", "-n", "0", "--tuned", self.pipe]
        p = subprocess.Popen(["sh", "-c", 'trap "" INT; exec "$@"', "sh", *run], stderr=subprocess.PIPE)
        self.addCleanup(p.kill)
        pipe = self.until_it_loads(p)
        p.send_signal(signal.SIGINT)
        os.close(pipe)
        self.assertNotIn(b"stopping", p.communicate(timeout=PATIENCE)[1])
        self.assertEqual(p.returncode, cli.USAGE)  # the file is empty

    def test_on_a_terminal(self):
        for args in (["run"], ["bench"], ["serve", "--port", 0]):
            with Terminal(*args, *cli.CPU, "--tuned", self.pipe) as t:
                before = termios.tcgetattr(t.fd)
                pipe = self.until_it_loads(t.p)
                t.type("\x03")
                t.until("stopping…\r\n".encode())
                os.close(pipe)
                t.p.wait(timeout=PATIENCE)
                self.assertEqual(termios.tcgetattr(t.fd), before)
                self.assertEqual(t.end(), 0 if args[0] == "serve" else cli.INTERRUPTED)


if __name__ == "__main__":
    cli.main()
