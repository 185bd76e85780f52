"""The server behind proxies that are configured as documents say: nginx and Caddy by the lines in docs/serving.md, HAProxy, with two replicas, by
examples/haproxy.cfg. One replica dies; only what it was writing is lost."""
import atexit
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

import serve
from serve import Server

HAPROXY, NGINX, CADDY = (shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin") for name in ("haproxy", "nginx", "caddy"))
# So that something runs when its replica dies, however late that is: ENDLESS lasts for minutes, of a context that the model was not made for.
REF = ["WEFT_FORCE=gemm=ref,attention=ref", "-c", 20000]
SLOW = [*REF, "--max-num-seqs", 4]
LONG = {"max_tokens": 80, "ignore_eos": True}
ENDLESS = {**LONG, "max_tokens": 19000}
NAME = {"Host": "its.name"}


def text_of(body):
    """Of a stream, from where it was read."""
    events = [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]
    return "".join(e["choices"][0]["text"] for e in events)


def replace(text, old, new):
    assert text.count(old) == 1, (old, text)
    return text.replace(old, new)


class Proxy(Server):
    """In front of servers of ours, at an address where nobody else takes a port."""

    def __init__(self, *replicas):
        self.host = f"127.1.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
        with socket.create_server((self.host, 0)) as free:
            self.port = free.getsockname()[1]
        self.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(self.folder.name, "config")
        path.write_text(self.config(*(f"127.0.0.1:{r.port}" for r in replicas)), encoding="utf-8")
        self.p = subprocess.Popen([*self.COMMAND, path], stdin=subprocess.DEVNULL, cwd=self.folder.name,
                                  env={**os.environ, "XDG_DATA_HOME": self.folder.name, "XDG_CONFIG_HOME": self.folder.name})
        atexit.register(self.p.kill)
        self.wait(self.listens, "the proxy listens")

    def listens(self):
        assert self.p.poll() is None, self.p.returncode
        with socket.socket() as s:
            return not s.connect_ex((self.host, self.port))

    def end(self, sig=signal.SIGTERM):
        self.p.send_signal(sig)
        self.p.wait(serve.PATIENCE)
        self.folder.cleanup()


class Haproxy(Proxy):
    COMMAND = (HAPROXY, "-q", "-db", "-f")

    def config(self, one, two):
        text = replace(serve.cli.open_text("examples/haproxy.cfg"), "bind :8080", f"bind {self.host}:{self.port}")
        return replace(replace(text, "127.0.0.1:8081", one), "127.0.0.1:8082", two)


def documented(language):
    """The lines in docs/serving.md."""
    (text,) = re.findall(rf"(?ms)^```{language}\n(.*?)^```", serve.cli.open_text("docs/serving.md"))
    return text


class Nginx(Proxy):
    COMMAND = (NGINX, "-p", ".", "-e", "stderr", "-c")

    def config(self, server, _):
        folders = "".join(f"{kind}_temp_path {kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        return (f"daemon off; master_process off; pid pid; error_log stderr; events {{}} http {{ access_log off; {folders}"
                f"server {{ listen {self.host}:{self.port}; {replace(documented('nginx'), '127.0.0.1:8080', server)} }} }}")


class Caddy(Proxy):
    COMMAND = (CADDY, "run", "--adapter", "caddyfile", "--config")

    def config(self, server, _):
        text = replace(documented("caddy"), "its.name {", f"http://its.name:{self.port} {{\nbind {self.host}")
        version = subprocess.run([CADDY, "version"], capture_output=True, text=True, check=True).stdout
        if [int(n) for n in re.findall(r"\d+", version)[:2]] < [2, 7]:
            text = replace(text, "request_buffers 8MiB    # before 2.7: buffer_requests;", "buffer_requests #")
        return "{\nadmin off\nlog {\nlevel ERROR\n}\n}\n" + replace(text, "127.0.0.1:8080", server)


class Clients:
    """Threads that ask one thing after the other until they are told to end; each keeps what became of it."""

    def __init__(self, proxy, want, n=3):
        self.proxy, self.want, self.ended, self.done = proxy, want, threading.Event(), [[] for _ in range(n)]
        self.failed = []  # (replica, what)
        self.threads = [threading.Thread(target=self._work, args=(i,)) for i in range(n)]
        for t in self.threads:
            t.start()

    def _work(self, i):
        while not self.ended.is_set():
            replica = None
            try:
                if i % 2:
                    c, r = self.proxy.open_stream()
                    with contextlib.closing(c), contextlib.closing(r):
                        replica = r.headers["X-Replica"]
                        body = r.read()
                    text = text_of(body) if body.endswith(b"data: [DONE]\n\n") else body
                else:
                    r = self.proxy.complete()
                    replica, text = r.headers["X-Replica"], r.text if r.status == 200 else r.body
                ok = text == self.want
            except (OSError, serve.http.client.HTTPException, ValueError) as e:
                ok, text = False, e
            self.done[i].append(replica)
            if not ok:
                self.failed.append((replica, text))

    def until_each_did(self, more, proxy):
        before = [len(d) for d in self.done]
        proxy.wait(lambda: all(len(d) >= b + more for d, b in zip(self.done, before)), "clients go on")

    def end(self):
        self.ended.set()
        for t in self.threads:
            t.join()


class Passes:
    """What holds behind each proxy."""

    def test_passes_all_on(self):
        """Events as they come, comments of a stream that waits, the largest bodies, a client's leaving and the server's."""
        s = Server(*REF, "--max-num-seqs", 1, "--allowed-host", "its.name", {"beat": 1})
        proxy = self.PROXY(s, s)
        (first, r), (second, waits) = (proxy.open_stream(NAME, **ENDLESS) for _ in range(2))
        self.assertTrue(r.readline().startswith(b"data: "))
        self.assertEqual([waits.readline() for _ in range(4)], [b": waiting\n", b"\n"] * 2)
        for open_one in (first, r):
            open_one.close()
        self.assertTrue(waits.readline().startswith(b"data: "))
        for open_one in (second, waits):
            open_one.close()
        s.until(lambda m: m['request_success_total{finished_reason="abort"}'] == 2, "both end")
        large = json.dumps({"prompt": "One day"}) + " " * (8 << 20)
        self.assertEqual(proxy.post("/tokenize", large[:8 << 20], **NAME).json["count"], 3)
        c, r = proxy.open_stream(NAME, **ENDLESS)
        r.readline()
        s.end(signal.SIGKILL)
        with contextlib.closing(c), contextlib.closing(r), contextlib.suppress(serve.http.client.IncompleteRead):
            self.assertNotIn(b"[DONE]", r.read())
            self.assertIs(self.PROXY, Caddy, "the stream seems whole")  # as Debian's makes it
        self.assertIn(proxy.get("/health", **NAME).status, (502, 503))
        proxy.end()

    def test_names(self):
        """The page works under the proxy's name, where it is allowed, and at a port of its own."""
        s = Server("--allowed-host", "its.name")
        proxy = self.PROXY(s, s)
        host = f"its.name:{proxy.port}"
        self.assertEqual(proxy.get("/", Host=host).status, 200)
        for origin, status in ((f"http://{host}", 200), ("https://evil.example", 403)):
            self.assertEqual(proxy.post("/v1/completions", serve.GOOD, Host=host, Origin=origin).status, status)
        if self.PROXY is not Caddy:  # which has no site of this name
            self.assertEqual(proxy.get("/", Host="evil.example").status, 403)
        self.assertEqual(s.end()[0], 0)
        proxy.end()

    def test_clients_keep_their_addresses(self):
        """They take turns by their own addresses, whatever they write into the header."""
        s = Server(*REF, "--max-num-seqs", 1, "--allowed-host", "its.name", "--trusted-proxy", "127.0.0.1")
        proxy = self.PROXY(s, s)
        queue = serve.Queue(s)
        for address, says in (("127.0.0.9", ""), ("127.0.0.2", "192.0.2.1"), ("127.0.0.2", "192.0.2.2"), ("127.0.0.3", "192.0.2.3")):
            c = serve.http.client.HTTPConnection(proxy.host, proxy.port, timeout=serve.PATIENCE, source_address=(address, 0))
            c.request("POST", "/v1/completions", body=json.dumps({**serve.GOOD, **ENDLESS, "stream": True}),
                      headers={**NAME, **({"X-Forwarded-For": says} if says else {})})
            queue.add(c)
        self.assertEqual(s.metrics()["num_clients_waiting"], 2)
        queue.leave()
        self.assertEqual(s.end()[0], 0)
        proxy.end()


@unittest.skipUnless(NGINX, "nginx is not installed")
class BehindNginx(Passes, unittest.TestCase):
    PROXY = Nginx


@unittest.skipUnless(CADDY, "Caddy is not installed")
class BehindCaddy(Passes, unittest.TestCase):
    PROXY = Caddy


@unittest.skipUnless(HAPROXY, "HAProxy is not installed")
class Replicas(Passes, unittest.TestCase):
    PROXY = Haproxy

    def test_one_dies(self):
        one, two = Server(*SLOW), Server(*SLOW)
        want, want_long = one.complete().text, two.complete(**LONG).text
        proxy = Haproxy(one, two)
        self.assertIn("replica=", proxy.get("/").headers["Set-Cookie"])
        clients = Clients(proxy, want)
        clients.until_each_did(1, proxy)
        streams = {}
        for name, length in (("one", ENDLESS), ("two", LONG)):
            c, r = proxy.open_stream({"Cookie": f"replica={name}"}, **length)
            self.assertEqual((r.status, r.headers["X-Replica"]), (200, name))
            self.assertTrue(r.readline().startswith(b"data: "))  # the first event does not wait for the last
            streams[name] = (c, r)
        one.end(signal.SIGKILL)
        clients.until_each_did(2, proxy)
        clients.end()
        self.assertEqual({replica for replica, _ in clients.failed} - {"one"}, set(), clients.failed)
        self.assertLessEqual(len(clients.failed), 2, clients.failed)  # the streams that it may have been writing
        try:
            lost = streams["one"][1].read()
        except serve.http.client.IncompleteRead as e:
            lost = e.partial
        self.assertNotIn(b"[DONE]", lost)
        kept = streams["two"][1].read()
        self.assertTrue(kept.endswith(b"data: [DONE]\n\n"), kept[-100:])
        self.assertTrue(want_long.endswith(text_of(kept)))
        for c, r in streams.values():
            r.close()
            c.close()
        again = Server("--port", one.port)
        proxy.wait(lambda: proxy.get("/health").headers["X-Replica"] == "one", "the replica is back")
        for s in (again, two):
            self.assertEqual(s.end()[0], 0)
        proxy.end()

    def test_example(self):
        r = subprocess.run([HAPROXY, "-c", "-f", os.path.join(serve.cli.ROOT, "examples", "haproxy.cfg")], capture_output=True, timeout=serve.PATIENCE)
        self.assertEqual((r.returncode, r.stderr), (0, b""))



if __name__ == "__main__":
    serve.main()
