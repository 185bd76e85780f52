"""Keeps one server at work for long with clients of all kinds, good and bad, many at once. Between them good requests
get the same answers, and memory, file descriptors and threads stop growing.

    soak.py [SECONDS [REQUESTS-PER-SECOND]]    (default 10, and as many as go)

The address sanitizer keeps what is freed, so with it memory is not looked at.
"""
import collections
import contextlib
import json
import os
import random
import socket
import sys
import time

import serve
from serve import PROMPTS, at_once

MAY_GROW = 8 << 20  # bytes after the first third
BAD_BODIES = [b"", b"{", b"[" * 1000, b"{\"prompt\": 5}", b"{\"prompt\": \"\xff\"}", b"{\"prompt\": \"\\ud800\"}", b"\0" * 50,
              b"{\"prompt\": \"a\", \"max_tokens\": -1}", b"{\"prompt\": \"a\", \"n\": 1000000}", b"{\"prompt\": \"a\", \"temperature\": 1e999}"]
BAD_BYTES = [b"GET", b"\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\n",
             b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", b"GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n",
             b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"]


class Soak:
    def __init__(self):
        self.s = serve.Server("--max-num-seqs", 8, "--max-queue", 200, *serve.ONE_ROUNDING)
        self.want = {p: self.s.complete(prompt=p).text for p in PROMPTS}
        self.want_chat = self.answer(self.s.chat())
        self.count = collections.Counter()

    @staticmethod
    def answer(r):
        return r.json["choices"][0]["message"]["content"]

    # --- what clients do; each raises when what comes back is not right --------------------------------

    def complete(self, rng):
        prompt = rng.choice(PROMPTS)
        r = self.s.complete(prompt=prompt, n=2, logprobs=rng.choice([None, 3]))
        assert [c["text"] for c in r.json["choices"]] == [self.want[prompt]] * 2, r.body

    def chat(self, rng):
        r = self.s.chat()
        assert self.answer(r) == self.want_chat, r.body

    def stream(self, rng):
        prompt = rng.choice(PROMPTS)
        text = "".join(e["choices"][0]["text"] for e in self.s.stream(prompt=prompt))
        assert text == self.want[prompt], text

    def leave(self, rng):
        """In the middle of an answer, or before it, or while the request is still on its way."""
        body = json.dumps({"prompt": rng.choice(PROMPTS), "max_tokens": 200, "ignore_eos": True, "stream": rng.random() < 0.7,
                           "n": rng.randrange(1, 4), "temperature": 1})
        request = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        with socket.create_connection(("127.0.0.1", self.s.port), timeout=serve.PATIENCE) as c:
            if rng.random() < 0.2:
                c.sendall(request[:rng.randrange(len(request))])
                return
            c.sendall(request)
            c.settimeout(rng.random() * 0.3)
            try:
                c.recv(rng.randrange(1, 3000))
            except socket.timeout:
                pass

    def bad_request(self, rng):
        path = rng.choice(["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"])
        r = self.s.post(path, rng.choice(BAD_BODIES))
        assert r.status in ((400,) if "completions" in path else (200, 400)), (r.status, r.body)

    def bad_bytes(self, rng):
        with socket.create_connection(("127.0.0.1", self.s.port), timeout=serve.PATIENCE) as c:
            c.sendall(rng.choice(BAD_BYTES))
            if rng.random() < 0.5:
                c.shutdown(socket.SHUT_WR)

    def tokens(self, rng):
        text = "".join(chr(rng.choice([rng.randrange(32, 127), rng.randrange(0xA0, 0xD800), rng.randrange(0x10000, 0x10FFFF)])) for _ in range(40))
        ids = self.s.post("/tokenize", {"content": text}).json["tokens"]
        got = self.s.post("/detokenize", {"tokens": ids}).json["content"]
        assert got == text.replace("\u2581", " "), (text, got)  # SentencePiece's own sign for a space

    def look(self, rng):
        path = rng.choice(["/metrics", "/health", "/", "/v1/models", "/version", "/nowhere"])
        r = self.s.get(path)
        assert r.status == (404 if path == "/nowhere" else 200), (path, r.status)

    CLIENTS = [(complete, 3), (chat, 2), (stream, 3), (leave, 4), (bad_request, 3), (bad_bytes, 2), (tokens, 2), (look, 2)]

    # --- rounds -------------------------------------------------------------------------------------------

    def one(self, rng):
        (client,) = rng.choices([c for c, _ in self.CLIENTS], [w for _, w in self.CLIENTS])
        client(self, rng)
        self.count[client.__name__] += 1

    def round(self, rng):
        """Up to 24 at once; how many they were."""
        seeds = [rng.random() for _ in range(rng.randrange(1, 25))]
        at_once(len(seeds), lambda i: self.one(random.Random(seeds[i])))
        return len(seeds)

    def size(self):
        """Memory, open files, threads; when nothing runs."""
        self.s.idle()
        self.s.wait(lambda: sum(name.startswith("socket:") for name in self.files()) == 1, "only the socket that listens is open")
        return self.s.memory(), len(self.files()), len(os.listdir(f"/proc/{self.s.p.pid}/task"))

    def files(self):
        """What the server's descriptors are. One of a connection that was reset is open for a while after the kernel forgot it."""
        folder = f"/proc/{self.s.p.pid}/fd"
        names = []
        for fd in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                names.append(os.readlink(os.path.join(folder, fd)))
        return names

    def is_sanitized(self):
        with open(f"/proc/{self.s.p.pid}/maps", encoding="utf-8") as f:
            return "libasan" in f.read()


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10
    rate = float(sys.argv[2]) if len(sys.argv) > 2 else float("inf")
    rng, soak = random.Random(1), Soak()
    began, done, warm = time.monotonic(), 0, None
    while (now := time.monotonic() - began) < seconds or done < 100:
        done += soak.round(rng)
        if warm is None and now > seconds / 3:
            warm = soak.size()
        time.sleep(max(0, min(done / rate, seconds) - (time.monotonic() - began)))
    end, sanitized = soak.size(), soak.is_sanitized()
    code, log = soak.s.end()
    print(f"{done} requests: {dict(soak.count)}")
    if warm:
        print(f"memory {warm[0] >> 10} KiB and then {(end[0] - warm[0]) >> 10:+d} KiB, files {warm[1]} and {end[1]}, threads {warm[2]} and {end[2]}")
    if code or any(word in log for word in ("Sanitizer", "runtime error")):
        sys.exit(f"exit code {code}:\n{log}")
    if warm and end[1:] != warm[1:]:
        sys.exit("files or threads are left behind")
    if warm and not sanitized and end[0] - warm[0] > MAY_GROW:
        sys.exit(f"memory grew by {end[0] - warm[0]} bytes")


if __name__ == "__main__":
    main()
