"""Connections: bytes that a client does not take, how they end, and what the server keeps of them."""
import contextlib
import json
import os
import socket
import time

import serve
from test_framing import CHUNKED, H, TEXT, Connection, get

# Its tokens are 12 MB, more than sockets hold.
WORDS = json.dumps({"prompt": "a b " * 200_000, "with_pieces": True, "return_token_strs": True})
ASK = f"POST /tokenize HTTP/1.1\r\n{H}Content-Length: {len(WORDS)}\r\n"


def small_window(s):
    """A connection whose client has little room for what it does not read."""
    c = Connection.__new__(Connection)
    c.socket, c.got, c.ended = socket.socket(), b"", False
    c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.socket.settimeout(serve.PATIENCE)
    c.socket.connect(("127.0.0.1", s.port))
    return c


class Front(serve.Unharmed):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.s.wait(lambda: cls.s.sockets() == 0, "the first request's connection is closed")
        cls.before = cls.files()

    @classmethod
    def files(cls):
        return len(os.listdir(f"/proc/{cls.s.p.pid}/fd"))

    def all_closed(self, what):
        """Those that only the kernel still knows do not count."""
        self.s.wait(lambda: self.files() <= self.before, what)


class Pressure(Front):
    ARGS = [{"read_timeout": 1000}]

    def test_many_requests_before_the_first_answer_is_read(self):
        """Until nothing more can be sent, and that for a while; each gets its answer all the same, whose order the bodies tell."""
        c, n, rest = Connection(self.s), 0, b""
        asks = [(get() if i % 3 else f"POST /tokenize HTTP/1.1\r\n{H}Content-Length: {len(TEXT)}\r\n\r\n{TEXT}").encode() for i in range(6)]
        c.socket.settimeout(3)
        try:
            while n < 200_000:
                rest = asks[n % 6]
                n += 1
                while rest:
                    rest = rest[c.socket.send(rest):]
        except socket.timeout:
            pass
        self.assertGreater(n, 100)
        self.assertLess(n, 200_000, "the server keeps what is sent to it without an end")
        c.socket.settimeout(serve.PATIENCE)
        for i in range(n - bool(rest)):
            self.assertEqual(c.status(), 200)
            self.assertIn("count" if i % 3 == 0 else "status", json.loads(c.body))
        c.close()

    def test_a_response_that_is_read_late(self):
        want = self.s.post("/tokenize", WORDS).body
        self.assertGreater(len(want), 10_000_000)
        for last in ("", "Connection: close\r\n"):
            c = small_window(self.s)
            c.send(f"{ASK}{last}\r\n{WORDS}".encode())
            self.assertEqual(self.s.complete().text, self.want)  # the server has had time to write what fits
            self.assertEqual(c.status(), 200)
            self.assertEqual(c.body, want)
            if last:
                self.assertIsNone(c.status())
            c.close()

    def test_a_large_body_behind_a_bad_head(self):
        """The client may write all of it, and then reads why it was refused."""
        for head in (f"POST /tokenize HTTP/1.1\r\n{H}Content-Length : 8000000\r\n\r\n", CHUNKED + "\r\n5\r\n"):
            c = Connection(self.s)
            self.assertTrue(c.send(head.encode(), b"a" * 8_000_000))
            self.assertEqual(c.status(), 400)
            self.assertIsNone(c.status())
            c.close()
        self.all_closed("who is refused and leaves is gone")

    def test_nothing_is_left_of_many(self):
        """Heads and bodies that break off anywhere, from clients that leave with and without reading."""
        data = (get() + f"{CHUNKED}\r\n15\r\n{TEXT}\r\n0\r\nX: y\r\n\r\n" + get("X y")).encode()
        for i in range(0, len(data), 3):
            c = Connection(self.s)
            c.send(data[:i])
            if i % 2:
                c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset in place of an end
            c.close()
        self.all_closed("no file of theirs is open")


class Unread(Front):
    """Responses that do not fit the sockets, of which a client takes nothing."""
    ARGS = [{"send_timeout": 2, "read_timeout": 1000}, "--max-num-seqs", 16]

    def gone(self, c):
        self.all_closed("it is closed")
        self.s.idle()
        self.s.until(lambda m: not m["reply_memory_bytes"] and not m["body_memory_bytes"], "its memory is free")
        c.close()

    def test_list(self):
        """Whether the server would keep the connection or not."""
        for last in ("", "Connection: close\r\n"):
            c = small_window(self.s)
            c.send(f"{ASK}{last}\r\n{WORDS}".encode())
            self.gone(c)

    def test_stream_and_whole_answer(self):
        for stream in (True, False):
            body = json.dumps({**serve.GOOD, "n": 16, "max_tokens": 480, "ignore_eos": True, "logprobs": 20, "stream": stream})
            c = small_window(self.s)
            c.send(f"POST /v1/completions HTTP/1.1\r\n{H}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            self.s.until(lambda m: m["reply_memory_bytes"] > 0, "it has a reply")
            self.gone(c)

    def test_who_takes_his_time(self):
        """A little now and then, so that nothing more can be written for longer than the deadline; in the end everything comes. Again if it
        did not because this program itself stood still."""
        for _ in range(10):
            got, longest = self.take_slowly()
            if got > 10_000_000 or longest < 1:
                break
        self.assertGreater(got, 10_000_000)

    def take_slowly(self):
        """The bytes that came, and the longest time between two of them."""
        c = small_window(self.s)
        c.send(f"{ASK}Connection: close\r\n\r\n{WORDS}".encode())
        got, longest, last, end = 0, 0, time.monotonic(), time.monotonic() + 8
        with contextlib.suppress(ConnectionError):
            while part := c.socket.recv(1024 if last < end else 1 << 20):
                got += len(part)
                time.sleep(0.2 if last < end else 0)
                now = time.monotonic()
                longest, last = max(longest, now - last), now
                if now > end:
                    c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        c.close()
        return got, longest


class Timeouts(Front):
    ARGS = [{"read_timeout": 1}]

    def test_who_stays_behind_a_refusal(self):
        c = Connection(self.s)
        c.send(get("X y").encode())
        self.assertEqual(c.status(), 400)
        self.all_closed("it is closed, though the client is not")
        c.close()

    def test_half_a_head(self):
        for text in ("G", "\r\n", get()[:-2], get() + "GET", f"{CHUNKED}\r\n15\r\n{TEXT}"):
            c = Connection(self.s)
            c.send(text.encode())
            self.all_closed("it is closed")
            c.close()


if __name__ == "__main__":
    serve.main()
