"""Two replicas behind HAProxy, as examples/haproxy.cfg has it. One dies; only what it was writing is lost."""
import atexit
import contextlib
import json
import os
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

EXAMPLE = os.path.join(serve.cli.ROOT, "examples", "haproxy.cfg")
HAPROXY = shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin")
# So that something runs when its replica dies, however late that is: ENDLESS lasts for minutes, of a context that the model was not made for.
REF = ["WEFT_FORCE=gemm=ref,attention=ref", "-c", 20000]
SLOW = [*REF, "--max-num-seqs", 4]
LONG = {"max_tokens": 80, "ignore_eos": True}
ENDLESS = {**LONG, "max_tokens": 19000}


def text_of(body):
    """Of a stream, from where it was read."""
    events = [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]
    return "".join(e["choices"][0]["text"] for e in events)


class Proxy(Server):
    """The example on a socket of ours, in front of servers of ours."""

    def __init__(self, *replicas):
        with open(EXAMPLE, encoding="utf-8") as f:
            text = f.read()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        text = text.replace("bind :8080", f"bind fd@{self.socket.fileno()}", 1)
        for port, replica in zip((8081, 8082), replicas):
            text, n = re.subn(rf"\b127\.0\.0\.1:{port}\b", f"127.0.0.1:{replica.port}", text)
            assert n == 1, port
        self.file = tempfile.NamedTemporaryFile("w", suffix=".cfg")
        self.file.write(text)
        self.file.flush()
        self.p = subprocess.Popen([HAPROXY, "-q", "-db", "-f", self.file.name], stdin=subprocess.DEVNULL, pass_fds=[self.socket.fileno()])
        atexit.register(self.p.kill)

    def end(self, sig=signal.SIGTERM):
        self.p.send_signal(sig)
        self.p.wait(serve.PATIENCE)
        self.socket.close()
        self.file.close()


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


@unittest.skipUnless(HAPROXY, "HAProxy is not installed")
class Replicas(unittest.TestCase):
    def test_one_dies(self):
        one, two = Server(*SLOW), Server(*SLOW)
        want, want_long = one.complete().text, two.complete(**LONG).text
        proxy = Proxy(one, two)
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

    def test_leaving_and_pages(self):
        """A client that leaves the proxy leaves the replica; the page works under the proxy's name, where it is allowed."""
        s = Server(*SLOW, "--allowed-host", "weft.example")
        proxy = Proxy(s, s)
        c, r = proxy.open_stream(**ENDLESS)
        r.readline()
        r.close()
        c.close()
        s.until(lambda m: m['request_success_total{finished_reason="abort"}'] == 1, "it ends")
        r = proxy.get("/", Host="weft.example")
        self.assertEqual(r.status, 200)
        self.assertIn("replica=", r.headers["Set-Cookie"])
        self.assertEqual(proxy.get("/", Host="evil.example").status, 403)
        for origin, status in (("https://weft.example", 200), ("https://evil.example", 403)):
            self.assertEqual(proxy.post("/v1/completions", serve.GOOD, Host="weft.example", Origin=origin).status, status)
        self.assertEqual(s.end()[0], 0)
        self.assertEqual(proxy.get("/health").status, 503)
        proxy.end()

    def test_clients_keep_their_addresses(self):
        """They take turns by their own addresses, whatever they write into the header."""
        s = Server(*REF, "--max-num-seqs", 1, "--trusted-proxy", "127.0.0.1")
        proxy = Proxy(s, s)
        queue = serve.Queue(s)
        for address, says in (("127.0.0.9", ""), ("127.0.0.2", "192.0.2.1"), ("127.0.0.2", "192.0.2.2"), ("127.0.0.3", "192.0.2.1")):
            c = serve.http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=serve.PATIENCE, source_address=(address, 0))
            c.request("POST", "/v1/completions", body=json.dumps({**serve.GOOD, **ENDLESS, "stream": True}),
                      headers={"X-Forwarded-For": says} if says else {})
            queue.add(c)
        self.assertEqual(s.metrics()["num_clients_waiting"], 2)
        queue.leave()
        self.assertEqual(s.end()[0], 0)
        proxy.end()

    def test_example(self):
        r = subprocess.run([HAPROXY, "-c", "-f", EXAMPLE], capture_output=True, timeout=serve.PATIENCE)
        self.assertEqual((r.returncode, r.stderr), (0, b""))


if __name__ == "__main__":
    serve.main()
