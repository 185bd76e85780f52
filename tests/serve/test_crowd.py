"""More clients than fit: a thousand that ask, ten thousand that do not, and few files to open for them."""
import asyncio
import json
import random
import resource
import socket

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


class Limits(serve.Unharmed):
    """With few connections the rest waits; who does not ask in time makes room."""
    ARGS = ["--max-connections", 8, "--read-timeout", 2]

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


class FewFiles(serve.Unharmed):
    """A process that may open few files promises fewer connections, and keeps some for itself."""

    @classmethod
    def setUpClass(cls):
        few = serve.Server("--read-timeout", 2, wrapper=["sh", "-c", "ulimit -n 128 && exec \"$@\"", "sh"])
        cls.s, cls.want = few, few.complete().text

    def test_more_than_there_are_files(self):
        self.s.line("128 files may be open, so there can be 10 connections")
        conns = [socket.create_connection(("127.0.0.1", self.s.port)) for _ in range(90)]
        self.assertEqual(self.s.complete().text, self.want)
        self.assertNotIn("error", "\n".join(self.s.lines))
        for c in conns:
            c.close()


if __name__ == "__main__":
    serve.main()
