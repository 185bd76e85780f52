"""What the tests of the server share: starting one, talking to it, ending it.

The server takes a free port and says which; it runs the built-in model on the CPU path with the chatml
template. Environment as in tests/cli/cli.py.
"""
import atexit
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import cli  # noqa: E402

PATIENCE = 180  # seconds; sanitizers on a busy machine take most of a minute for the longest answers
PROMPTS = ["One day", "The sun was", "Tom had a big", "There was a little", "A cat and a dog", "Mia went to the"]
# Kernels of the matrix tier (AMX) round otherwise than those for few rows, so there a drawn token may depend on how
# many rows a step has; where answers are compared across batches they stay out.
ONE_ROUNDING = ["--tier", "simd"]
ON_CPU = ("--device", "cpu", "-t", "1")
GOOD = {"prompt": "One day", "max_tokens": 12, "temperature": 0}


class Reply:
    def __init__(self, r):
        self.status, self.headers, self.body = r.status, r.headers, r.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    @property
    def text(self):
        return self.json["choices"][0]["text"]


def told_that_it_ends(kept):
    """On a connection of watch(): 503, or it has ended already."""
    try:
        kept.request("GET", "/health")
        return kept.getresponse().status == 503
    except (http.client.HTTPException, ConnectionError):
        return True
    finally:
        kept.close()


class Server:
    host = "127.0.0.1"

    def __init__(self, *args, device=ON_CPU, template=cli.CHATML, wait=True, env=None, wrapper=()):
        """A dictionary among the arguments: limits that have no option."""
        self.lines = []
        limits = " ".join(f"{k}={v}" for a in args if isinstance(a, dict) for k, v in a.items())
        self.p = subprocess.Popen([*wrapper, *self.command(*args, device=device, template=template)],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  env={**os.environ, "WEFT_SERVE_LIMITS": limits, **(env or {})})
        atexit.register(self.p.kill)  # when a test fails; one that ended does not mind
        self.told = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.port = int(self.line(r"listening on http://[^\s\"]+:(\d+)").group(1))
        if wait:
            self.line("is ready on")

    @staticmethod
    def command(*args, device=ON_CPU, template=cli.CHATML):
        return cli.argv("serve", "--port", "0", *(["--chat-template", template] if template else []), *device,
                        *(a for a in args if not isinstance(a, dict)))

    def _read(self):
        for line in self.p.stderr:
            with self.told:
                self.lines.append(line.decode("utf-8", "replace").rstrip())
                self.told.notify_all()
        with self.told:
            self.lines.append("(end)")
            self.told.notify_all()

    def line(self, pattern):
        """The first line of its log that fits, when it comes."""
        end, seen = time.monotonic() + PATIENCE, 0
        with self.told:
            while time.monotonic() < end:
                for line in self.lines[seen:]:
                    if m := re.search(pattern, line):
                        return m
                    if line == "(end)":
                        raise AssertionError("the server ended:\n" + "\n".join(self.lines))
                seen = len(self.lines)
                self.told.wait(1)
        raise AssertionError(f"no line {pattern}:\n" + "\n".join(self.lines))

    def connect(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)

    def watch(self):
        """A connection that the server keeps, on which /health says that all is well."""
        kept = self.connect()
        kept.request("GET", "/health")
        assert kept.getresponse().read() == b'{"status":"ok"}'
        return kept

    def request(self, method, path, body=None, headers=None):
        c = self.connect()
        try:
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            c.request(method, path, body=body.encode() if isinstance(body, str) else body, headers=headers or {})
            return Reply(c.getresponse())
        finally:
            c.close()

    def get(self, path, **headers):
        return self.request("GET", path, headers=headers)

    def post(self, path, body, **headers):
        return self.request("POST", path, body, headers)

    def complete(self, **fields):
        return self.post("/v1/completions", {**GOOD, **fields})

    def chat(self, content="Hello", **fields):
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], "temperature": 0,
                                                  "max_tokens": 12, **fields})

    def open_stream(self, headers=None, **fields):
        """A connection that has asked for a stream, and its response."""
        c = self.connect()
        c.request("POST", "/v1/completions", body=json.dumps({**GOOD, "stream": True, **fields}), headers=headers or {})
        return c, c.getresponse()

    def stream(self, path="/v1/completions", **fields):
        """The events of a stream as JSON, without [DONE], which must be there."""
        r = self.post(path, {**({"prompt": "One day"} if "chat" not in path else {}), "temperature": 0, "max_tokens": 12,
                             "stream": True, **fields})
        assert r.status == 200, r.body
        assert r.headers["Content-Type"].startswith("text/event-stream"), r.headers
        events = [e for e in r.body.decode("utf-8").split("\n\n") if not e.startswith(":")]  # comments where nothing came for long
        assert events[-2:] == ["data: [DONE]", ""], events[-3:]
        assert all(e.startswith("data: ") for e in events[:-1])
        return [json.loads(e[6:]) for e in events[:-2]]

    def raw(self, data, enough=None, silence=PATIENCE):
        """Bytes as they are; what comes back until the server closes. Where it waits for more: until `enough` has come, or nothing for so many
        seconds."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as s:
            got = b""
            try:
                s.sendall(data)
                s.settimeout(silence)
                while (not enough or enough not in got) and (part := s.recv(65536)):
                    got += part
            except (ConnectionError, socket.timeout):
                pass
            return got

    def metrics(self):
        """Values by name with labels other than the model's."""
        out = {}
        for line in self.get("/metrics").body.decode().splitlines():
            if m := re.fullmatch(r'(?:weft:)?(\w+)\{(?:model_name="[^"]*",engine="0")?,?(.*)\} (\S+)', line):
                out[m.group(1) + (f"{{{m.group(2)}}}" if m.group(2) else "")] = float(m.group(3))
            elif not line.startswith("# "):
                raise AssertionError(line)
        return out

    @staticmethod
    def wait(check, what):
        end = time.monotonic() + PATIENCE
        while not check():
            if time.monotonic() > end:
                raise AssertionError(f"not in time: {what}")
            time.sleep(0.02)

    def until(self, check, what):
        self.wait(lambda: check(self.metrics()), what)

    def idle(self):
        self.until(lambda m: not m["num_requests_running"] and not m["num_requests_waiting"], "idle")

    def memory(self):
        return int(pathlib.Path(f"/proc/{self.p.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    def own_memory(self):
        """Bytes that are no pages of files: those come and go with what else the machine reads."""
        with open(f"/proc/{self.p.pid}/status", encoding="ascii") as f:
            return int(re.search(r"RssAnon:\s+(\d+) kB", f.read()).group(1)) << 10

    def peak(self):
        """The most memory since the last forget_peak()."""
        with open(f"/proc/{self.p.pid}/status", encoding="ascii") as f:
            return int(re.search(r"VmHWM:\s+(\d+) kB", f.read()).group(1)) << 10

    def forget_peak(self):
        pathlib.Path(f"/proc/{self.p.pid}/clear_refs").write_text("5")  # proc_pid_clear_refs(5, encoding="ascii")

    def sockets(self):
        """Connections that it has open, by the kernel's table, which may show one twice where it changes meanwhile."""
        with open(f"/proc/{self.p.pid}/net/tcp", encoding="ascii") as f:
            rows = [line.split() for line in f.readlines()[1:]]
        ours = {row[2] for row in rows if row[1].endswith(f":{self.port:04X}") and row[3] in ("01", "08")}  # established, half closed
        return len(ours)

    def end(self, sig=signal.SIGTERM):
        """Its exit code and its log."""
        if self.p.poll() is None:
            self.p.send_signal(sig)
        code = self.p.wait(PATIENCE)
        self.reader.join(PATIENCE)
        self.p.stderr.close()
        return code, "\n".join(self.lines)


class Queue:
    """Streams that wait for their turn; the headers say which client each is of. To close one cancels it."""

    def __init__(self, server):
        self.s, self.conns = server, []

    def send(self, headers=None, **fields):
        c = self.s.connect()
        c.request("POST", "/v1/completions", body=json.dumps({**GOOD, "stream": True, **fields}), headers=headers or {})
        self.conns.append(c)

    def add(self, conn):
        """A request sent by other means, where one sequence runs at a time: all before it wait."""
        self.conns.append(conn)
        self.s.until(lambda m: m["num_requests_running"] == 1 and m["num_requests_waiting"] == len(self.conns) - 1, "it is there")

    def close(self):
        for c in self.conns:
            c.close()

    def leave(self):
        self.close()
        self.s.idle()


class TestCase(cli.TestCase):
    """One server for all tests of a class; it must live through them and end well."""
    ARGS = ()
    DEVICE = ON_CPU

    @classmethod
    def setUpClass(cls):
        cls.s = Server(*cls.ARGS, device=cls.DEVICE)

    @classmethod
    def tearDownClass(cls):
        code, log = cls.s.end()
        if code:
            raise AssertionError(f"exit code {code}:\n{log}")
        for word in ("ERROR: AddressSanitizer", "WARNING: ThreadSanitizer", "runtime error"):
            if word in log:
                raise AssertionError(log)

    def refused(self, reply, status, param=None, code=None):
        self.assertEqual(reply.status, status, reply.body)
        self.assertEqual(set(reply.error), {"message", "type", "param", "code"})
        self.assertGreater(len(reply.error["message"]), 10)
        if param is not None:
            self.assertEqual(reply.error["param"], param, reply.body)
        if code is not None:
            self.assertEqual(reply.error["code"], code, reply.body)
        return reply.error


class Unharmed(TestCase):
    """Whatever a test sends: behind it a good request gets the same answer as before."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.want = cls.s.complete().text

    def tearDown(self):
        self.assertEqual(self.s.complete().text, self.want)


def at_once(n, work):
    """Runs work(0) .. work(n - 1) in threads; the first failure is raised."""
    errors = []

    def one(i):
        try:
            work(i)
        except Exception as e:  # noqa: BLE001 -- told by the main thread
            errors.append(e)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


main = cli.main
