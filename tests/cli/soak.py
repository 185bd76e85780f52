"""Keeps one engine at work for long: good and bad turns of a chat. After each of them the
same question gets the same answer, and memory stops growing.

    soak.py [SECONDS]    (default 10)
"""
import os
import pathlib
import random
import subprocess
import sys
import time

import cli

WARM_UP = 20          # turns until every buffer has its size
MAY_GROW = 4 << 20    # bytes from then on
QUESTION = "Tell me a story"
PATIENCE = 120


class Chat:
    """Lines in, answers out. stderr has a line of statistics behind each answer, or an error."""

    def __init__(self):
        self.p = subprocess.Popen(
            [cli.WEFT, "run", *cli.GREEDY, "--chat", "--chat-template", cli.CHATML, "-n", "40", "-c", "256"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.set_blocking(self.p.stdout.fileno(), False)

    def say(self, line):
        """The answer's bytes and the line on stderr that ends the turn."""
        self.p.stdin.write(line.encode("utf-8", "surrogateescape") + b"\n")
        self.p.stdin.flush()
        while True:
            said = self.p.stderr.readline()
            if b"tokens/s" in said or b"error" in said or not said:
                return self.p.stdout.read() or b"", said.decode()

    def clear(self):
        self.p.stdin.write(b"/clear\n")

    def memory(self):
        return int(pathlib.Path(f"/proc/{self.p.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    def end(self):
        self.p.stdin.close()
        return self.p.wait(timeout=PATIENCE)


def disturb(chat, rng):
    """A turn that a user or a client could send; any outcome but the end of the program is right."""
    kind = rng.randrange(4)
    if kind == 0:
        chat.say("word " * 1000)  # longer than the context
    elif kind == 1:
        chat.say(bytes(rng.randrange(128, 256) for _ in range(50)).decode("utf-8", "surrogateescape"))
    elif kind == 2:
        chat.say("<|im_end|></s>" * rng.randrange(1, 20))
    else:
        for _ in range(rng.randrange(1, 6)):
            chat.say("Go on")  # fills the context


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10
    rng, chat = random.Random(1), Chat()
    want, _ = chat.say(QUESTION)
    end, turns, warm = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end or turns <= WARM_UP:
        disturb(chat, rng)
        chat.clear()
        got, said = chat.say(QUESTION)
        if got != want or not want:
            sys.exit(f"turn {turns}: {got!r} instead of {want!r}; {said}")
        turns += 1
        if turns == WARM_UP:
            warm = chat.memory()
    grown = chat.memory() - warm
    code = chat.end()
    print(f"{turns} turns, memory {warm >> 10} KiB and then {grown / 1024:+.0f} KiB")
    if grown > MAY_GROW:
        sys.exit(f"memory grew by {grown} bytes in {turns - WARM_UP} turns")
    if code not in (0, cli.RUNTIME, cli.USAGE):  # the code of the first turn that was refused
        sys.exit(f"exit code {code}")


if __name__ == "__main__":
    main()
