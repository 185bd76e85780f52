"""Where requests begin and end, by RFC 9112: raw bytes, the statuses that come back, and whether the connection goes on.

Every request of a connection is read by the same rules, so most rows stand alone, and the last test puts them behind a good one.
"""
import contextlib
import re
import socket

import serve

H = "Host: localhost\r\n"
GET = "GET /health HTTP/1.1\r\n" + H
TEXT = '{"prompt": "One day"}'
# what an attacker hides in a body
SMUGGLED = "GET /smuggled HTTP/1.1\r\n" + H + "\r\n"
CHUNKED = "POST /tokenize HTTP/1.1\r\n" + H + "Transfer-Encoding: chunked\r\n"
WHOLE = "15\r\n" + TEXT + "\r\n0\r\n\r\n"


def get(*lines, target="/health", method="GET", version="HTTP/1.1", host="localhost"):
    return "".join(f"{line}\r\n" for line in (f"{method} {target} {version}", f"Host: {host}", *lines, ""))


def post(*lines, body=TEXT):
    return "".join(f"{line}\r\n" for line in ("POST /tokenize HTTP/1.1", "Host: localhost", *lines, "")) + body


def length(value, body=TEXT):
    return post(f"Content-Length: {value}", body=body)


def chunks(body, *lines):
    return post("Transfer-Encoding: chunked", *lines, body=body)


# name: bytes, statuses. A last status of 400 or more from REFUSED closes the connection, and what follows counts for nothing.
GOOD = {
    "a plain request": (get(), [200]),
    "two in one piece": (get() + get(), [200, 200]),
    "a body with its length": (length(len(TEXT)), [200]),
    "a body, and a request behind it": (length(len(TEXT)) + get(), [200, 200]),
    "leading zeros": (length(f"000{len(TEXT)}"), [200]),
    "no blank behind the colon": (get("X:y").replace("Host: ", "Host:"), [200]),
    "many blanks around a value": (post(f"Content-Length: \t {len(TEXT)} \t"), [200]),
    "a blank behind the version": (get(version="HTTP/1.1 "), [200]),
    "empty lines before a request": ("\r\n\r\n" + get() + "\r\n" + get(), [200, 200]),
    "an absolute target": (get(target="http://localhost/health"), [200]),
    "an absolute target in capitals, with a port": (get(target="HTTP://LOCALHOST:80/health"), [200]),
    "the host of an absolute target counts": (get(target="http://localhost/health", host="evil.example"), [200]),
    "and not only if it is right": (get(target="http://evil.example/health"), [403]),
    "an absolute target without a path": (get(target="http://localhost"), [200]),
    "a query": (get(target="/health?a=b&c=%20"), [200]),
    "a hundred arguments": (get(target="/health?" + "&".join("a=1" for _ in range(100))), [200]),
    "a host with a dot": (get(host="localhost."), [200]),
    "a host with a dot and a port": (get(host="localhost.:8080"), [200]),
    "an address as host": (get(host="[::1]:8080"), [200]),
    "an empty field": (get("X-Empty:"), [200]),
    "bytes above 127 in a value": (get("X: \xe4\xff"), [200]),
    "odd characters in a name": (get("!#$%&'*+-.^_`|~9: x"), [200]),
    "a hundred headers": (get(*(f"X-{i}: y" for i in range(99))), [200]),
    "a header of 30,000 bytes": (get("X: " + "a" * 30_000), [200]),
    "a hundred cookies": (get("Cookie: " + "; ".join("a=b" for _ in range(100))), [200]),
    "HTTP/1.2 is HTTP/1.1 with more": (get(version="HTTP/1.2"), [200]),
    "HTTP/1.0 with keep-alive": (2 * get("Connection: keep-alive", version="HTTP/1.0"), [200, 200]),
    "chunks": (chunks(WHOLE), [200]),
    "chunks, and a request behind them": (chunks(WHOLE) + get(), [200, 200]),
    "CHUNKED": (chunks(WHOLE).replace("chunked", "CHUNKED"), [200]),
    "an empty element in the list of codings": (chunks(WHOLE).replace("chunked", "chunked ,"), [200]),
    "chunks of one byte": (chunks("".join(f"1\r\n{c}\r\n" for c in TEXT) + "0\r\n\r\n"), [200]),
    "a chunk's size with zeros": (chunks("00015\r\n" + TEXT + "\r\n000\r\n\r\n"), [200]),
    "a chunk with extensions": (chunks("15 ; a=b;c=\"d e\"\r\n" + TEXT + "\r\n0;x\r\n\r\n"), [200]),
    "a trailer": (chunks(WHOLE[:-2] + "X: y\r\nContent-Length: 7\r\n\r\n") + get(), [200, 200]),
    "the server's own field is not the client's": (get("Weft-Refused: 418 tea"), [200]),
    "nor in a trailer": (chunks(WHOLE[:-2] + "Weft-Refused: 418 tea\r\n\r\n"), [200]),
    "an asterisk": (get(target="*", method="OPTIONS"), [204]),
    "an unknown method": (get(method="BREW"), [405]),
    "Expect": (post(f"Content-Length: {len(TEXT)}", "Expect: 100-Continue"), [100, 200]),
}
CLOSING = {
    "close": (get("Connection: close") + SMUGGLED, [200]),
    "close in a list": (get("Connection: x, Close") + SMUGGLED, [200]),
    "HTTP/1.0": (get(version="HTTP/1.0") + SMUGGLED, [200]),
    "HTTP/1.0 without a host": ("GET /health HTTP/1.0\r\n\r\n", [200]),
}
REFUSED = {
    # framing: what is behind the head must not become a request
    "a blank before the colon of a length": (post("Content-Length : 42", body=SMUGGLED), 400),
    "a tab before it": (post("Content-Length\t: 42", body=SMUGGLED), 400),
    "a blank before the colon of a coding": (post("Transfer-Encoding : chunked", body=WHOLE + SMUGGLED), 400),
    "a blank before the name": (get().replace("Host", " Host"), 400),
    "a folded line": (get("X: a\r\n b"), 400),
    "a folded length": (post("Content-Length:\r\n 42", body=SMUGGLED), 400),
    "a length with a sign": (length("+5"), 400),
    "a negative length": (length("-1"), 400),
    "a length in hexadecimal": (length("0x5"), 400),
    "a length twice on a line": (length("5, 5"), 400),
    "a length with a comma": (length("21,"), 400),
    "2^64 + 5": (length(2 ** 64 + 5), 400),
    "2^63": (length(2 ** 63), 400),
    "a length of 500 digits": (length("1" * 500), 400),
    "an empty length": (length(""), 400),
    "a length with a blank inside": (length("2 1"), 400),
    "a length with a fraction": (length("21.0"), 400),
    "two different lengths": (post("Content-Length: 3", f"Content-Length: {len(TEXT)}"), 400),
    "two equal lengths": (post(f"Content-Length: {len(TEXT)}", f"Content-Length: {len(TEXT)}"), 400),
    "a length and chunks": (post(f"Content-Length: {len(WHOLE)}", "Transfer-Encoding: chunked", body=WHOLE + SMUGGLED), 400),
    "chunks and a length": (post("Transfer-Encoding: chunked", "Content-Length: 5", body=WHOLE + SMUGGLED), 400),
    "a length and an empty coding": (post("Content-Length: 21", "Transfer-Encoding:"), 400),
    "gzip, chunked": (chunks(WHOLE).replace("chunked", "gzip, chunked"), 501),
    "xchunked": (chunks(WHOLE).replace("chunked", "xchunked"), 501),
    "chunked in quotes": (chunks(WHOLE).replace("chunked", '"chunked"'), 501),
    "chunked with a parameter": (chunks(WHOLE).replace("chunked", "chunked;a=b"), 501),
    "identity": (chunks(WHOLE).replace("chunked", "identity"), 501),
    "an empty coding": (chunks(WHOLE).replace("chunked", ""), 501),
    "chunked, gzip": (chunks(WHOLE).replace("chunked", "chunked, gzip"), 400),
    "chunked, chunked": (chunks(WHOLE).replace("chunked", "chunked, chunked"), 400),
    "chunked twice": (chunks(WHOLE, "Transfer-Encoding: chunked"), 400),
    "chunked and then another": (chunks(WHOLE, "Transfer-Encoding: x"), 400),
    "a vertical tab before chunked": (chunks(WHOLE).replace("chunked", "\vchunked"), 400),
    "chunks in HTTP/1.0": (chunks(WHOLE).replace("HTTP/1.1", "HTTP/1.0"), 400),
    # chunks
    "no number": (chunks("zz\r\n" + TEXT + SMUGGLED), 400),
    "a negative size": (chunks("-5\r\n" + TEXT + SMUGGLED), 400),
    "a size with 0x": (chunks("0x15\r\n" + TEXT + "\r\n0\r\n\r\n"), 400),
    "a size of 17 digits": (chunks("fffffffffffffffff\r\n" + TEXT), 400),
    "2^64 + 21": (chunks("10000000000000015\r\n" + TEXT + "\r\n0\r\n\r\n"), 400),
    "a blank behind a size": (chunks("15 \r\n" + TEXT + "\r\n0\r\n\r\n"), 400),
    "a blank before a size": (chunks(" 15\r\n" + TEXT + "\r\n0\r\n\r\n"), 400),
    "an empty size": (chunks("\r\n\r\n"), 400),
    "only an extension": (chunks(";a=b\r\n" + TEXT), 400),
    "a chunk longer than its size": (chunks("14\r\n" + TEXT + "\r\n0\r\n\r\n" + SMUGGLED), 400),
    "a bare LF behind a size": (chunks("15\n" + TEXT + "\r\n0\r\n\r\n"), 400),
    "a bare LF behind a chunk": (chunks("15\r\n" + TEXT + "\n0\r\n\r\n"), 400),
    "a bare LF in an extension": (chunks("15;a\n" + TEXT + "\r\n0\r\n\r\n"), 400),
    "a bare CR in an extension": (chunks("15;a\rb\r\n" + TEXT + "\r\n0\r\n\r\n"), 400),
    "a NUL behind a size": (chunks("15\0\r\n" + TEXT + "\r\n0\r\n\r\n"), 400),
    "an extension of 2,000 bytes": (chunks("15;" + "a" * 2000 + "\r\n" + TEXT + "\r\n0\r\n\r\n"), 400),
    "100 KB of extensions": (chunks("".join(f"1;{'a' * 1000}\r\n \r\n" for _ in range(100)) + "0\r\n\r\n"), 431),
    "no trailer but a line": (chunks(WHOLE[:-2] + "GET / HTTP/1.1\r\n\r\n"), 400),
    "101 trailers": (chunks(WHOLE[:-2] + "X: y\r\n" * 101 + "\r\n"), 431),
    "a trailer of 40,000 bytes": (chunks(WHOLE[:-2] + "X: " + "y" * 40_000 + "\r\n\r\n"), 431),
    # lines and characters
    "a bare LF behind the request line": (get().replace("HTTP/1.1\r", "HTTP/1.1"), 400),
    "a bare LF behind a header": (get("X: y\nContent-Length: 7"), 400),
    "a bare LF as the last line": (GET + "\n", 400),
    "only LFs": (get().replace("\r", ""), 400),
    "a bare LF before a request": ("\n" + get(), 400),
    "a bare CR in a value": (get("X: a\rb"), 400),
    "a bare CR in the target": (get(target="/hea\rlth"), 400),
    "CR CR LF": (get("X: y\r"), 400),
    "a NUL in a value": (get("X: a\0b"), 400),
    "a NUL in a length": (length("21\0"), 400),
    "a NUL in a name": (get("X\0: a"), 400),
    "a NUL in the target": (get(target="/health\0"), 400),
    "a control character": (get("X: \x01"), 400),
    "DEL": (get("X: \x7f"), 400),
    "a name in parentheses": (get("(X): a"), 400),
    "a name with a byte above 127": (get("X\xe4: a"), 400),
    "no name": (get(": a"), 400),
    "no colon": (get("Nothing"), 400),
    # the request line
    "no version": ("GET /health\r\n" + H + "\r\n", 400),
    "two blanks before the target": (get(target=" /health"), 400),
    "two blanks behind it": (get(target="/health "), 400),
    "a tab": (get().replace("GET ", "GET\t"), 400),
    "a blank before the method": (" " + get(), 400),
    "a blank in the target": (get(target="/health x"), 400),
    "http in small letters": (get(version="http/1.1"), 400),
    "HTTP/1": (get(version="HTTP/1"), 400),
    "HTTP/1.10": (get(version="HTTP/1.10"), 400),
    "HTTP/01.1": (get(version="HTTP/01.1"), 400),
    "HTTP/2.0": (get(version="HTTP/2.0"), 505),
    "HTTP/9.9": (get(version="HTTP/9.9"), 505),
    "a method with parentheses": (get(method="G(T"), 400),
    "a method of 40 letters": (get(method="G" * 40), 501),
    "a request line of 40,000 bytes": (get(target="/" + "a" * 40_000), 414),
    "a line that does not end": ("G" * 100_000, 414),
    "a fragment": (get(target="/health#x"), 400),
    "a byte above 127 in the target": (get(target="/h\xe4lth"), 400),
    "a percent without digits": (get(target="/%"), 400),
    "a relative target": (get(target="health"), 400),
    "an asterisk with GET": (get(target="*"), 400),
    "a host and port as target": (get(target="localhost:80", method="CONNECT"), 400),
    "another scheme": (get(target="ftp://localhost/health"), 400),
    "an absolute target without a host": (get(target="http:///health"), 400),
    "an absolute target with a name and password": (get(target="http://a:b@localhost/health"), 400),
    "1,000 arguments": (get(target="/health?" + "&".join(f"a{i}=b" for i in range(1000))), 400),
    # headers
    "no host": ("GET /health HTTP/1.1\r\n\r\n", 400),
    "no host, with an absolute target": ("GET http://localhost/health HTTP/1.1\r\n\r\n", 400),
    "two hosts": (get("Host: localhost"), 400),
    "two hosts, with an absolute target": (get("Host: localhost", target="http://localhost/health"), 400),
    "a host with a blank": (get(host="local host"), 400),
    "a host with a path": (get(host="localhost/x"), 400),
    "a host with a name": (get(host="a@localhost"), 400),
    "a host with two ports": (get(host="localhost:80:80"), 400),
    "a host whose port is a word": (get(host="localhost:http"), 400),
    "a bad address": (get(host="[::1"), 400),
    "an address with something behind it": (get(host="[::1]x"), 400),
    "a bad Connection": (get("Connection: a b"), 400),
    "an unknown expectation": (get("Expect: the best"), 417),
    "900 cookies": (get("Cookie: " + "; ".join(f"a{i}=b" for i in range(900))), 431),
    "101 cookies on as many lines": (get(*(2 * ["Cookie: " + "; ".join("a=b" for _ in range(51))])), 431),
    "101 headers": (get(*(f"X-{i}: y" for i in range(100))), 431),
    "10,000 headers": (get(*(f"X-{i}: y" for i in range(10_000))), 431),
    "a header of 40,000 bytes": (get("X: " + "a" * 40_000), 431),
    "a megabyte of header": (get("X: " + "a" * (1 << 20)), 431),
    "a megabyte of empty lines": ("\r\n" * (1 << 19), 414),
}


PATIENCE = 30  # seconds for what comes at once


class Connection:
    """One to a server; sends pieces, and reads responses one after the other by their own framing."""

    def __init__(self, s):
        self.socket = socket.create_connection(("127.0.0.1", s.port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.got = b""
        self.ended = False

    def send(self, *pieces):
        """False: the server closed before it had all, which it may once it has answered."""
        try:
            for piece in pieces:
                self.socket.sendall(piece)
        except ConnectionError:
            return False
        return True

    def _more(self):
        part = b"" if self.ended else self.socket.recv(65536)
        self.ended = not part
        self.got += part
        return part

    def _need_more(self):
        if not self._more():
            raise ConnectionError(f"it ended in the middle of a response: {self.got}")

    def _take(self, n):
        while len(self.got) < n:
            self._need_more()
        taken, self.got = self.got[:n], self.got[n:]
        return taken

    def _until(self, mark):
        while mark not in self.got:
            self._need_more()
        taken, self.got = self.got.split(mark, 1)
        return taken

    def _chunks(self):
        while size := int(self._until(b"\r\n"), 16):
            yield self._take(size)
            assert self._take(2) == b"\r\n"
        assert self._take(2) == b"\r\n"

    def status(self):
        """Of the next response, whose body is read; None: the connection has ended."""
        if not self.got and not self._more():
            return None
        head = self._until(b"\r\n\r\n")
        size = re.search(rb"(?i)^Content-Length: (\d+)\r?$", head, re.M)
        chunked = re.search(rb"(?i)^Transfer-Encoding: chunked\r?$", head, re.M)
        self.body = b"".join(self._chunks()) if chunked else self._take(int(size.group(1)) if size else 0)
        return int(re.match(rb"HTTP/1\.[01] (\d\d\d) ", head).group(1))

    def statuses(self, n):
        return [self.status() for _ in range(n)]

    def close(self):
        self.socket.close()


class Framing(serve.Unharmed):
    ARGS = [{"read_timeout": 1000}]  # nothing here may have to wait for it

    def ask(self, pieces, want, ends):
        """The statuses that come back; if it ends nothing follows, else the connection takes one more request."""
        c = Connection(self.s)
        sent = c.send(*pieces)
        self.assertEqual(c.statuses(len(want)), want)
        if ends:
            self.assertIsNone(c.status())
        else:
            self.assertTrue(sent and c.send(get().encode()))
            self.assertEqual(c.status(), 200)
        c.close()

    def all_of(self, cut):
        """Each row, divided into pieces by `cut`."""
        for rows, ends in ((GOOD, False), (CLOSING, True)):
            for name, (text, want) in rows.items():
                with self.row(name):
                    self.ask(cut(text.encode("latin-1")), want, ends)
        for name, (text, status) in REFUSED.items():
            with self.row(name):
                self.ask(cut(text.encode("latin-1")), [status], True)

    @contextlib.contextmanager
    def row(self, *name):
        """The first row that fails ends the test: where the server fell silent each would take its time."""
        try:
            yield
        except (AssertionError, OSError, AttributeError) as e:
            raise AssertionError(*name, e) from e

    def test_there_are_many(self):
        self.assertGreater(len(REFUSED) + len(GOOD) + len(CLOSING), 100)

    def test_whole(self):
        self.all_of(lambda data: [data])

    def test_byte_by_byte(self):
        """The long ones in larger pieces."""
        self.all_of(lambda data: [data[i:i + 1 + len(data) // 2000] for i in range(0, len(data), 1 + len(data) // 2000)])

    def test_divided_anywhere(self):
        """In two pieces, with every place between them once; the second comes when the first may have been read."""
        for name in ("a trailer", "two in one piece", "Expect"):
            data, want = GOOD[name]
            data = data.encode()
            for i in range(1, len(data)):
                with self.row(name, i):
                    self.ask([data[:i], data[i:]], want, False)
        for name in ("a blank before the colon of a length", "a length and chunks", "a bare LF behind a chunk", "a bare CR in a value"):
            data, status = REFUSED[name]
            data = data.encode()
            for i in range(1, len(data)):
                with self.row(name, i):
                    self.ask([data[:i], data[i:]], [status], True)

    def test_behind_others(self):
        """The rules hold for every request of a connection, and those before a bad one are answered."""
        for name, (text, status) in REFUSED.items():
            with self.row(name):
                c = Connection(self.s)
                c.send((get() + length(len(TEXT)) + chunks(WHOLE) + text).encode("latin-1"))
                self.assertEqual(c.statuses(4), [200, 200, 200, status])
                self.assertIsNone(c.status())
                c.close()

    def test_behind_an_answer(self):
        for name, (text, status) in REFUSED.items():
            with self.row(name):
                c = Connection(self.s)
                for good in (get(), chunks(WHOLE)):
                    c.send(good.encode())
                    self.assertEqual(c.status(), 200)
                c.send(text.encode("latin-1"))
                self.assertEqual(c.status(), status)
                self.assertIsNone(c.status())
                c.close()

    def test_refusals_are_json(self):
        for name, (text, status) in REFUSED.items():
            with self.row(name):
                c = Connection(self.s)
                c.send(text.encode("latin-1"))
                self.assertEqual(c.status(), status)
                error = serve.json.loads(c.body)["error"]
                self.assertEqual(set(error), {"message", "type", "param", "code"})
                self.assertEqual(error["code"], status)
                self.assertGreater(len(error["message"]), 10)
                c.close()


if __name__ == "__main__":
    serve.main()
