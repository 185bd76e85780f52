"""More clients than fit: a thousand that ask, ten thousand that do not, and few files to open for them."""
import asyncio
import json
import random
import resource
import socket
import tempfile
import time
import unittest
from concurrent import futures

import serve
from serve import PROMPTS

CLIENTS, IDLE = 1000, 10_000
ASK = {"max_tokens": 4, "temperature": 0}


def open_files(n):
    """Lets this process open so many; how many it really may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = max(soft, n if hard == resource.RLIM_INFINITY else min(n, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def request(prompt, **fields):
    body = json.dumps({"prompt": prompt, **ASK, **fields})
    return f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


class Crowd(serve.Unharmed):
    ARGS = ["--max-num-seqs", 16, "--max-queue", 2 * CLIENTS, *serve.ONE_ROUNDING]

    def test_a_third_of_a_thousand_leaves(self):
        """All are there before the first asks; each one that stays gets its answer."""
        if open_files(3 * CLIENTS + 200) < 3 * CLIENTS + 100:  # the server takes three a connection
            self.skipTest(serve.cli.NEEDS_HARDWARE + "ulimit -Hn is too low for a thousand clients")
        want = {p: self.s.post("/v1/completions", {"prompt": p, **ASK}).text for p in PROMPTS}
        got, left = [], []

        async def one(i, streams):
            reader, writer = streams
            rng, prompt = random.Random(i), PROMPTS[i % len(PROMPTS)]
            leaves = rng.random() < 1 / 3
            data = request(prompt, **({"max_tokens": 100, "ignore_eos": True, "stream": rng.random() < 0.5} if leaves else {}))
            writer.write(data[:rng.randrange(len(data))] if leaves and rng.random() < 0.2 else data)
            await writer.drain()
            if leaves:
                try:
                    await asyncio.wait_for(reader.read(rng.randrange(1, 500)), rng.random() / 2)
                except asyncio.TimeoutError:
                    pass
                left.append(i)
            else:
                head, body = (await reader.read()).split(b"\r\n\r\n", 1)
                self.assertTrue(head.startswith(b"HTTP/1.1 200 "), head)
                self.assertEqual(json.loads(body)["choices"][0]["text"], want[prompt])
                got.append(i)
            writer.close()

        async def all_of_them():
            streams = [await asyncio.open_connection("127.0.0.1", self.s.port) for _ in range(CLIENTS)]
            self.s.wait(lambda: self.s.sockets() == CLIENTS, "all are connected")
            await asyncio.wait_for(asyncio.gather(*(one(i, s) for i, s in enumerate(streams))), serve.PATIENCE)

        asyncio.run(all_of_them())
        self.assertEqual(len(got) + len(left), CLIENTS)
        self.assertGreater(len(left), CLIENTS / 4)
        self.s.idle()
        self.s.wait(lambda: self.s.sockets() == 0, "nobody is left")


class Costly(unittest.TestCase):
    def test_small_bodies_that_take_long(self):
        """They go behind, where bodies of many megabytes are: others do not wait, and who sent them gets his answer."""
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
            f.write("{% for m in messages %}{% for x in range(300) %}{% set y = x * 2 %}{% endfor %}{{ m.content }}{% endfor %}Hello")
            f.flush()
            s = serve.Server(template=f.name)
            chat = {"messages": [{"role": "user", "content": ""}] * 1000, "max_tokens": 2, "temperature": 0}
            want = s.post("/v1/chat/completions", chat)
            self.assertEqual(want.status, 200)
            with futures.ThreadPoolExecutor(32) as pool:
                many = [pool.submit(s.post, "/v1/chat/completions", chat) for _ in range(64)]
                slowest = 0
                for _ in range(5):
                    start = time.monotonic()
                    self.assertEqual((s.get("/health").status, s.complete().status), (200, 200))
                    slowest = max(slowest, time.monotonic() - start)
                self.assertFalse(all(m.done() for m in many))
                self.assertEqual({m.result().json["choices"][0]["message"]["content"] for m in many}, {want.json["choices"][0]["message"]["content"]})
            self.assertLess(slowest, 2)
            self.assertEqual(s.end()[0], 0)


class Limits(serve.Unharmed):
    """With few connections the rest waits; who does not ask in time makes room."""
    ARGS = [{"connections": 8, "read_timeout": 2}]

    def test_idle_ones_make_room(self):
        idle = [socket.create_connection(("127.0.0.1", self.s.port)) for _ in range(20)]
        self.assertEqual(self.s.complete().text, self.want)
        for c in idle:
            c.close()

    def test_ten_thousand(self):
        n = min(IDLE, open_files(IDLE + 100) - 100)
        conns = []
        for _ in range(n):
            c = socket.socket()
            c.setblocking(False)
            c.connect_ex(("127.0.0.1", self.s.port))
            conns.append(c)
        self.assertIsNone(self.s.p.poll())
        for c in conns:
            c.close()


class Full(serve.Unharmed):
    """No time limit helps here: who asks for nothing makes room at once, the oldest first, and /health has room when all ask."""
    ARGS = [{"connections": 8, "read_timeout": 1000, "header_timeout": 1000, "max_body": 1 << 20}]

    def connect(self, data=b""):
        c = socket.create_connection(("127.0.0.1", self.s.port), timeout=serve.PATIENCE)
        c.sendall(data)
        return c

    def test_idle_and_one_byte(self):
        """Of forty at most sixteen stay: eight, and eight for /health."""
        for data in (b"", b"G", b"GET /health HTTP/1.1\r\nHost: local"):
            conns = [self.connect(data) for _ in range(40)]
            self.assertEqual(self.s.complete().text, self.want)
            self.s.wait(lambda: self.s.sockets() <= 16, "the others are closed")
            for c in conns:
                c.close()

    def test_oldest_first(self):
        self.s.wait(lambda: self.s.sockets() == 0, "nobody else is there")
        idle = [self.s.connect() for _ in range(16)]
        for c in idle:
            c.request("GET", "/health")
            self.assertEqual(c.getresponse().read(), b'{"status":"ok"}')
        self.assertEqual(self.s.complete().text, self.want)
        self.assertEqual(self.ended(idle[0].sock), b"")
        for c in idle[1:]:
            c.request("GET", "/health")
            self.assertEqual(c.getresponse().status, 200)
        for c in idle:
            c.close()

    @staticmethod
    def ended(c):
        try:
            return c.recv(100)
        except ConnectionResetError:
            return b""

    def test_health_while_all_ask(self):
        """Eight bodies are on their way: their connections stay, and only /health is answered on others."""
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n"
        body = json.dumps(serve.GOOD).encode()
        self.s.wait(lambda: self.s.sockets() == 0, "nobody else asks")
        conns = []
        for _ in range(8):
            conns.append(self.connect(head % len(body)))
            self.assertIn(b" 100 Continue", conns[-1].recv(1000))
        for _ in range(20):
            self.assertEqual(self.s.get("/health").status, 200)
            r = self.s.complete()
            self.refused(r, 503)
            self.assertEqual((r.headers["Retry-After"], r.headers["Connection"]), ("1", "close"))
        for c in conns:
            c.sendall(body)
            self.assertIn(b" 200 OK", c.recv(1000))
            c.close()
        self.s.wait(lambda: self.s.complete().status == 200, "there is room again")

    def fill(self, s, head, n=16, address="127.0.0.9"):
        """So many connections of one client that begin a request each; s is full of them."""
        conns = []
        for _ in range(n):
            c = socket.create_connection(("127.0.0.1", s.port), timeout=serve.PATIENCE, source_address=(address, 0))
            c.sendall(head)
            conns.append(c)
        return conns

    def test_one_client_begins_all(self):
        """Bodies that never come make room, too: for /health, and for the requests of others as long as they have fewer."""
        self.s.wait(lambda: self.s.sockets() == 0, "nobody else asks")
        for head in (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n",
                     b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"):
            conns = self.fill(self.s, head)
            for _ in range(3):
                self.assertEqual(self.s.get("/health").status, 200)
                self.assertEqual(self.s.complete().text, self.want)
            for c in conns:
                c.close()
            self.s.wait(lambda: self.s.sockets() == 0, "they have gone")

    def test_all_begin_without_a_key(self):
        """What needs no key gives no claim to a place, nor time for a body."""
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("secret\n")
            keys.flush()
            s = serve.Server("--api-key-file", keys.name, {"connections": 8, "read_timeout": 1000, "header_timeout": 2})
            head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"
            conns = self.fill(s, head, 24)
            self.assertEqual(s.get("/health").status, 200)
            c = s.connect()
            c.request("GET", "/v1/models", headers={"Authorization": "Bearer secret"})
            self.assertEqual(c.getresponse().status, 200)
            c.close()
            for c in conns:
                self.assertEqual(self.ended(c), b"")
                c.close()
            self.assertEqual(s.end()[0], 0)

    def test_header_time(self):
        """With keys to be shown a connection has little time for it, and an idle one that showed its key has more."""
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("secret\n")
            keys.flush()
            s = serve.Server("--api-key-file", keys.name, {"header_timeout": 1, "read_timeout": 1000})
            good = s.connect()
            good.request("GET", "/v1/models", headers={"Authorization": "Bearer secret"})
            self.assertEqual(good.getresponse().read()[:1], b"{")
            late = [socket.create_connection(("127.0.0.1", s.port), timeout=serve.PATIENCE) for _ in range(4)]
            for c, data in zip(late, (b"", b"G", b"GET /v1/models HTTP/1.1\r\nHost: l\r\nAuthor",
                                      b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")):
                c.sendall(data)
            for c in late:
                self.assertEqual(self.ended(c), b"")
                c.close()
            good.request("GET", "/v1/models", headers={"Authorization": "Bearer secret"})
            self.assertEqual(good.getresponse().status, 200)
            good.close()
            self.assertEqual(s.end()[0], 0)


class FewFiles(serve.Unharmed):
    """A process that may open few files promises fewer connections, and keeps some for itself."""

    @classmethod
    def setUpClass(cls):
        few = serve.Server({"read_timeout": 2}, wrapper=["sh", "-c", "ulimit -n 128 && exec \"$@\"", "sh"])
        cls.s, cls.want = few, few.complete().text

    def test_more_than_there_are_files(self):
        self.s.line("128 files may be open, so there can be 32 connections")
        conns = [socket.create_connection(("127.0.0.1", self.s.port)) for _ in range(90)]
        self.assertEqual(self.s.complete().text, self.want)
        self.assertNotIn("error", "\n".join(self.s.lines))
        for c in conns:
            c.close()


if __name__ == "__main__":
    serve.main()
