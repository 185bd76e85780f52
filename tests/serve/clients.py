"""Clients of all kinds, good and bad, as one mix. The good ones know their answers, to the bit, from when nobody else was there; every
response that begins must end properly, whoever asked for it.

A good client that is turned away (status 503, or closed before any byte of a response) asks again; that is counted, no failure.
"""
import collections
import http.client
import json
import random
import socket
import threading
import time

import serve
import test_framing
from serve import GOOD, PROMPTS
from test_bad import post
from test_front import small_window
from test_large import words

MIB = 1 << 20
DEVICES = {"cpu": (*serve.ON_CPU, *serve.ONE_ROUNDING), "opencl": ("--device", "opencl:0.0", "--deterministic")}
SEND_TIMEOUT = 5
# Little of all that clients can take, so that they meet each limit: pages are swapped, bodies refused, idle connections closed.
SERVER = ["-c", 512, "--max-num-seqs", 8, "--max-queue", 200, "--kv-memory", "3M", "--max-num-batched-tokens", 64, "--scheduling-policy", "priority",
          "--trusted-proxy", "127.0.0.1",
          {"header_timeout": 5, "read_timeout": 10, "send_timeout": SEND_TIMEOUT, "bodies": 24 << 20, "connections": 64}]
LONG_WAIT = 2  # seconds that a client who does nothing stays
# What the good ones ask for: drawn, stopped, biased, with numbers, with fields that nobody knows, with several answers.
ASKS = [
    *({"prompt": p} for p in PROMPTS),
    {"prompt": PROMPTS[0], "n": 2, "temperature": 1, "seed": (1 << 64) - 1, "max_tokens": 30},
    {"prompt": PROMPTS[1], "temperature": 1, "seed": -(1 << 63), "top_p": 0.9, "top_k": 40, "max_tokens": 20},
    {"prompt": PROMPTS[2], "temperature": 3.5, "seed": 0, "min_p": 0.05, "max_tokens": 20},
    {"prompt": PROMPTS[3], "stop": [".", "was"], "max_tokens": 40},
    {"prompt": PROMPTS[4], "logprobs": 3, "include_stop_str_in_output": True, "stop": "the"},
    {"prompt": PROMPTS[5], "presence_penalty": 1, "frequency_penalty": 0.5, "repetition_penalty": 1.2, "max_tokens": 30},
    {"prompt": PROMPTS[:3], "n": 2, "logit_bias": {"300": 5, "2": -100}, "min_tokens": 3},
    {"prompt": [1, 400, 17, 280], "echo": True, "logprobs": 1, "suffix": ""},
    {"prompt": "", "ignore_eos": True, "max_tokens": 60, "metadata": [{"deep": [1, 2, {}]}], "user": "somebody", "model": ""},
]
TURNS = [{"role": "user", "content": "Hello"}]
OTHER_APIS = [("/v1/messages", {"messages": TURNS, "max_tokens": 12, "temperature": 0}, lambda r: r["content"][0]["text"]),
         ("/v1/responses", {"input": "Hello", "max_output_tokens": 12, "temperature": 0}, lambda r: r["output"][0]["content"][0]["text"]),
         ("/api/chat", {"messages": TURNS, "options": {"num_predict": 12, "temperature": 0}, "stream": False}, lambda r: r["message"]["content"])]
PATHS = ["/metrics", "/health", "/", "/v1/models", "/version", "/nowhere"]
BAD_BODIES = [b"", b"{", b"[" * 1000, b"{\"prompt\": 5}", b"{\"prompt\": \"\xff\"}", b"{\"prompt\": \"\\ud800\"}", b"\0" * 50,
              b"{\"prompt\": \"a\", \"max_tokens\": -2}", b"{\"prompt\": \"a\", \"n\": 1000000}", b"{\"prompt\": \"a\", \"temperature\": 1e999}",
              b"{\"prompt\": \"\xc3\x28\"}", b"\xef\xbb\xbf{\"prompt\": 7}", b"{\"prompt\": \"a\", \"seed\": 18446744073709551616}",
              b"{\"prompt\": \"a\", \"top_p\": -1}", b"{\"prompt\": \"a\", \"priority\": 1001}", b"{\"prompt\": \"a\", \"stop\": [\"\"]}"]
# As rows of test_framing; what takes the longest is left to it.
FRAMES = [(name, text, want if isinstance(want, list) else [want])
          for rows in (test_framing.GOOD, test_framing.CLOSING, test_framing.REFUSED) for name, (text, want) in rows.items() if len(text) < 200_000]


class TurnedAway(Exception):
    """The server has no room for this request now; nothing of an answer was sent."""


class Clients:
    """Of one server. Thread-safe: each call is one client."""

    def __init__(self, server):
        self.s = server
        self.count = collections.Counter()  # by kind; and turned_away, sequences (of good answers)
        self.lock = threading.Lock()
        self.want = [self.choices(server.complete(**ask).json) for ask in ASKS]
        self.want_chat = self.choices(server.chat().json)
        self.with_pieces = {"prompt": words(100_000), "with_pieces": True}
        self.want_pieces = server.post("/tokenize", self.with_pieces).json
        self.many_empty = b'{"prompt": [' + b"{}," * (8 * MIB // 3 - 20) + b"0]}"
        self.too_long = json.dumps({"prompt": words(4 * MIB)}).encode()
        self.not_short = json.dumps({"prompt": words(3000), "max_tokens": 1}).encode()

    def add(self, name, n=1):
        with self.lock:
            self.count[name] += n

    # --- what good ones share -------------------------------------------------------------------------

    @staticmethod
    def choices(answer):
        """All that must be the same each time."""
        assert "choices" in answer, answer
        return [{k: c[k] for k in ("index", "text", "message", "finish_reason", "logprobs") if k in c} for c in answer["choices"]]

    @staticmethod
    def headers(rng):
        """One of five clients."""
        return {"X-Forwarded-For": f"192.0.2.{rng.randrange(5)}"}

    def once(self, path, body, headers):
        """Status and bytes of a whole response. Raises TurnedAway, or IncompleteRead and the like where a response breaks off."""
        c = self.s.connect()
        try:
            try:
                c.request("POST", path, body=body, headers=headers)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it may say why
            try:
                r = c.getresponse()
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as e:
                raise TurnedAway from e
            data = r.read()
            if r.status == 503:
                assert r.headers["Retry-After"], data
                raise TurnedAway
            return r.status, data
        finally:
            c.close()

    def ask(self, rng, path, fields):
        """Until it is answered."""
        more = {"priority": rng.randrange(-1000, 1001)} if "completions" in path else {}
        body, end = json.dumps({**fields, **more}), time.monotonic() + serve.PATIENCE
        while True:
            try:
                status, data = self.once(path, body, self.headers(rng))
                assert status == 200, data
                return data
            except TurnedAway:
                self.add("turned_away")
                assert time.monotonic() < end, "turned away again and again"
                time.sleep(0.2)

    def same(self, got, want):
        assert got == want, f"wrong answer: {got} in place of {want}"
        self.add("sequences", len(got))

    # --- good ones ----------------------------------------------------------------------------------------

    def complete(self, rng):
        i = rng.randrange(len(ASKS))
        self.same(self.choices(json.loads(self.ask(rng, "/v1/completions", {**GOOD, **ASKS[i]}))), self.want[i])

    def chat(self, rng):
        fields = {"messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 12}
        self.same(self.choices(json.loads(self.ask(rng, "/v1/chat/completions", fields))), self.want_chat)

    def other_api(self, rng):
        """The same chat by another interface."""
        path, fields, text = rng.choice(OTHER_APIS)
        self.same([text(json.loads(self.ask(rng, path, fields)))], [c["message"]["content"] for c in self.want_chat])

    def stream(self, rng):
        i = rng.randrange(len(ASKS))
        data = self.ask(rng, "/v1/completions", {**GOOD, **ASKS[i], "stream": True})
        events = data.decode().split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""], f"the stream is cut: {events[-3:]}"
        parts = [json.loads(e[6:]) for e in events[:-2]]
        got = [{"index": w["index"], "text": "", "finish_reason": None} for w in self.want[i]]
        for part in parts:
            for c in self.choices(part):
                got[c["index"]]["text"] += c["text"]
                got[c["index"]]["finish_reason"] = c["finish_reason"] or got[c["index"]]["finish_reason"]
        self.same(got, [{k: w[k] for k in ("index", "text", "finish_reason")} for w in self.want[i]])

    def tokens(self, rng):
        text = "".join(chr(rng.choice([rng.randrange(32, 127), rng.randrange(0xA0, 0xD800), rng.randrange(0x10000, 0x10FFFF)])) for _ in range(40))
        ids = json.loads(self.ask(rng, "/tokenize", {"content": text}))["tokens"]
        got = json.loads(self.ask(rng, "/detokenize", {"tokens": ids}))["content"]
        assert plain(got) == plain(text), (text, got)

    def many_pieces(self, rng):
        assert json.loads(self.ask(rng, "/tokenize", self.with_pieces)) == self.want_pieces, "wrong pieces"

    def look(self, rng):
        path = rng.choice(PATHS)
        try:
            r = self.s.get(path)
        except (http.client.RemoteDisconnected, ConnectionResetError):
            return self.add("turned_away")
        assert r.status == (404 if path == "/nowhere" else 200) or r.status == 503, (path, r.status)

    # --- those that leave -----------------------------------------------------------------------------

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.s.port), timeout=serve.PATIENCE)

    def leave(self, rng):
        """While the request is on its way, before its answer, or in the middle of it."""
        body = json.dumps({"prompt": rng.choice(PROMPTS), "max_tokens": rng.randrange(1, 200), "ignore_eos": True, "stream": rng.random() < 0.7,
                           "n": rng.randrange(1, 4), "temperature": 1, "priority": rng.randrange(-1000, 1001)}).encode()
        request = post(body, *(f"{k}: {v}" for k, v in self.headers(rng).items()))
        with self.connect() as c:
            if rng.random() < 0.2:
                c.sendall(request[:rng.randrange(len(request))])
                return
            c.sendall(request)
            c.settimeout(rng.random() * 0.3)
            try:
                c.recv(rng.randrange(1, 3000))
            except (socket.timeout, ConnectionResetError):
                pass
            if rng.random() < 0.3:
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset in place of an end

    def slow(self, rng):
        """A good request in small pieces."""
        body = json.dumps(GOOD).encode()
        request, at = post(body, "Connection: close"), 0
        with self.connect() as c:
            try:
                while at < len(request):
                    n = rng.randrange(1, 30)
                    c.sendall(request[at:at + n])
                    at += n
                    time.sleep(rng.random() * 0.05)
                got = b""
                while part := c.recv(65536):
                    got += part
            except (ConnectionResetError, BrokenPipeError):
                got = b""
        if not got or got.startswith(b"HTTP/1.1 503"):
            return self.add("turned_away")
        head, _, rest = got.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        self.same(self.choices(json.loads(rest)), self.want[0])

    def idle(self, rng):
        """More connections than there can be, that say nothing or one byte."""
        conns = []
        try:
            for _ in range(rng.randrange(1, 100)):
                c = self.connect()
                conns.append(c)
                if rng.random() < 0.5:
                    c.sendall(b"G")
            time.sleep(rng.random() * LONG_WAIT)
        except (ConnectionResetError, BrokenPipeError):
            pass
        for c in conns:
            c.close()

    def deaf(self, rng):
        """Asks for much and reads nothing of it."""
        c = small_window(self.s)
        fields = rng.choice([self.with_pieces, {**GOOD, "n": 4, "max_tokens": 300, "ignore_eos": True, "stream": True, "logprobs": 5}])
        c.send(post(json.dumps(fields).encode(), path="/v1/completions" if "n" in fields else "/tokenize"))
        time.sleep(rng.random() * LONG_WAIT if rng.random() < 0.8 else SEND_TIMEOUT + 1)
        c.close()

    def hoard(self, rng):
        """A large body that never ends."""
        with self.connect() as c:
            try:
                c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7000000\r\n\r\n" + b" " * rng.randrange(1_000_000))
                time.sleep(rng.random() * LONG_WAIT)
            except (ConnectionResetError, BrokenPipeError):
                pass

    # --- those that talk nonsense ---------------------------------------------------------------------

    def refused(self, path, body, statuses):
        try:
            status, data = self.once(path, body, {})
        except TurnedAway:
            return self.add("turned_away")
        assert status in statuses, (status, data)
        assert status == 200 or json.loads(data)["error"], data

    def bad_request(self, rng):
        path = rng.choice(["/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/generate", "/tokenize", "/detokenize"])
        self.refused(path, rng.choice(BAD_BODIES), (400,) if path.startswith("/v1/") else (200, 400))

    def bad_bytes(self, rng):
        """None of them is a request, and most are not even refused before their sender goes."""
        with self.connect() as c:
            try:
                c.sendall(rng.choice([b"GET", b"\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"POST /v1/completions HTTP/1.1\r\n",
                                      rng.randbytes(rng.randrange(1, 2000))]))
                if rng.random() < 0.5:
                    c.shutdown(socket.SHUT_WR)
            except OSError:  # reset; then it is not connected any more either, which is an error of its own
                pass

    def frame(self, rng):
        name, text, want = rng.choice(FRAMES)
        data = text.encode("latin-1")
        cut = sorted(rng.randrange(len(data)) for _ in range(rng.randrange(4)))
        c = test_framing.Connection(self.s)
        try:
            c.send(*(data[i:j] for i, j in zip([0, *cut], [*cut, len(data)])))
            got = []
            while len(got) < len(want) and (status := c.status()) is not None:
                got.append(status)
            if got and got == want[:len(got)] != want:  # as in the middle of a response: the server may have been killed
                raise ConnectionError(f"frame {name!r}: it ended behind {got}, before {want}")
        except ConnectionResetError:
            got = []
        finally:
            c.close()
        if not got or got[-1] == 503:
            return self.add("turned_away")
        assert got == want, f"frame {name!r}: {got} in place of {want}"

    def large(self, rng):
        """Of 4 to 8 MB, or tokens for more than the context."""
        path, body = "/v1/completions", rng.choice([self.many_empty, self.too_long, self.not_short, self.not_short])
        self.refused(path, body, (400,))

    GOOD_ONES = [(complete, 6), (chat, 2), (other_api, 2), (stream, 6), (tokens, 2), (look, 2)]
    MIX = [*GOOD_ONES, (many_pieces, 1), (leave, 6), (slow, 1), (idle, 1), (deaf, 1), (hoard, 1), (bad_request, 4), (bad_bytes, 2), (frame, 4), (large, 1)]

    def one(self, rng, mix=MIX):
        """One client, drawn by weight."""
        (kind,) = rng.choices([k for k, _ in mix], [w for _, w in mix])
        self.add(kind.__name__)
        kind(self, rng)


def plain(text):
    """Without SentencePiece's own sign for a space, and the space that it puts before a text."""
    return text.replace("\u2581", " ").strip()


def seeded(rng, n):
    return [random.Random(rng.random()) for _ in range(n)]
