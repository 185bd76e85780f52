"""weft bench serve: against `weft serve`, and against a server that misbehaves in every way it can."""
import http.server
import json
import math
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

import cli

sys.path.insert(0, os.path.join(cli.ROOT, "tests", "serve"))
import serve  # noqa: E402

if "this build cannot measure servers" in cli.weft("bench", "serve", "--base-url", "http://127.0.0.1:1", "--num-prompts", 1).err:
    print("skipped: this build has no bench serve")
    sys.exit(77)

METRICS = ["Time to First Token", "Time per Output Token (excl. 1st token)", "Inter-token Latency", "End-to-end Latency",
           "Normalised Latency"]


def bench(*args, env=None, **more):
    """Whatever proxy the environment names, loopback is reached directly."""
    return cli.weft("bench", "serve", *args, env={"http_proxy": "http://127.0.0.1:1", "OPENAI_API_KEY": "", **(env or {})}, **more)


def values(text):
    """The numbers of the printed result by what stands before them."""
    return {name: float(v) for name, v in re.findall(r"(?m)^([A-Z].*?:) +(-?[\d.]+) *$", text)}


def percentile(v, p):
    """numpy's, by its definition: linear between neighbours."""
    v = sorted(v)
    at = (len(v) - 1) * p / 100
    low = math.floor(at)
    return v[low] + (at - low) * (v[min(low + 1, len(v) - 1)] - v[low])


class Fake(http.server.BaseHTTPRequestHandler):
    """What it does is the path; what it was asked is kept."""
    protocol_version = "HTTP/1.1"
    asked = []
    lock = threading.Lock()
    go_on = threading.Event()     # what hangs waits for it
    third = threading.Event()     # a third request has come to /two
    n_two = 0

    def log_message(self, *args):
        pass

    def setup(self):
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def reply(self, status, text, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def begin(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, text="a", finish=None, **more):
        choice = {"index": 0, "text": text, "finish_reason": finish}
        self.wfile.write(b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n")

    def end(self, n=None):
        if n is not None:
            self.wfile.write(b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":%d}}\n\n' % n)
        self.wfile.write(b"data: [DONE]\n\n")

    def do_GET(self):
        if self.path.startswith("/closed"):
            return self.reply(401, b"")
        self.reply(200, b'{"data":[{"id":"first/model"},{"id":"second"}]}')

    def do_POST(self):
        body = self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.lock:
            Fake.asked.append((self.path, dict(self.headers), body))
        try:
            getattr(self, "do" + self.path.replace("/", "_"))()
        except ConnectionError:
            pass

    def do_good(self):
        self.begin()
        for _ in range(4):
            self.event()
        self.event("b", "length")
        self.end(5)

    def do_chat(self):
        self.begin()
        for delta in ({"role": "assistant", "content": ""}, {"content": "Hi"}, {"content": " you"}, {}):
            reason = None if delta else "stop"
            self.wfile.write(b"data: %s\n\n" % json.dumps({"choices": [{"delta": delta, "finish_reason": reason}]}).encode())
        self.end()

    def do_bytes(self):
        """Every byte by itself, with comments, \\r\\n and no space; no usage."""
        self.begin()
        for c in b': hello\r\ndata:{"choices":[{"text":"\xc3\xa9"}]}\r\n\r\ndata:{"choices":[{"text":"","finish_reason":"stop"}]}\r\n\r\n':
            self.wfile.write(bytes([c]))
            self.wfile.flush()

    def do_500(self):
        self.reply(500, b'{"error":{"message":"no luck\\u001b[31m today","code":500}}')

    def do_503(self):
        self.reply(503, b"busy", "text/plain")

    def do_401(self):
        self.reply(401, b'{"error":{"message":"no key"}}')

    def do_404(self):
        self.reply(404, b'{"error":{"message":"no such thing"}}')

    def do_hangup(self):
        self.close_connection = True

    def do_page(self):
        self.reply(200, b"<html>hello</html>", "text/html")

    def do_nothing(self):
        self.reply(200, b"")

    def do_malformed(self):
        self.begin()
        self.event()
        self.wfile.write(b"data: {broken\n\n")

    def do_list(self):
        self.begin()
        self.wfile.write(b"data: [1, 2]\n\n")
        self.end()

    def do_error(self):
        self.begin()
        self.event()
        self.wfile.write(b'data: {"error":{"message":"the device failed"}}\n\n')
        self.end()

    def do_cut(self):
        self.begin()
        self.event()

    def do_empty(self):
        self.begin()
        self.end(0)

    def do_endless(self):
        self.begin()
        self.wfile.write(b"data: " + b"x" * (2 << 20))

    def do_reset(self):
        self.begin()
        self.event()
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def do_slow(self):
        self.begin()
        self.event()
        self.wfile.flush()
        self.go_on.wait(60)

    def do_tokenize(self):
        self.reply(200, b'{"tokens":[7,11,13,17,19,23,29,31,7],"count":9}')

    def do_two(self):
        with self.lock:
            Fake.n_two += 1
            n = Fake.n_two
        if n <= 2:
            return self.do_good()
        self.third.set()
        return self.do_slow()


class Misbehaving(cli.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Fake)
        cls.server.daemon_threads = True
        cls.url = f"http://127.0.0.1:{cls.server.server_port}"
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()

    @classmethod
    def tearDownClass(cls):
        Fake.go_on.set()
        cls.server.shutdown()
        cls.server.server_close()

    def bench(self, path, *args, n=3, **more):
        Fake.asked.clear()
        return bench("--base-url", self.url + "/", "--endpoint", path, "--num-prompts", n, *args, **more)

    def requests(self, path):
        return [(headers, body) for p, headers, body in Fake.asked if p == path]

    def failed(self, path, reason, *args):
        r = self.bench(path, *args)
        self.assertEqual(r.code, cli.RUNTIME, r.err)
        v = values(r.text)
        self.assertEqual((v["Successful requests:"], v["Failed requests:"]), (0, 3), path)
        self.assertEqual(sum(map(int, re.findall(rf"(?m)^weft: (\d) failed: .*(?:{reason})", r.err))), 3, r.err)
        self.assertNotIn("\x1b", r.err)

    def test_everything_that_fails(self):
        for path, reason in (("/500", "HTTP 500: no luck .31m today"), ("/503", "HTTP 503: busy"), ("/hangup", "[Ee]mpty reply|closed"),
                             ("/page", "not an event stream: <html>"), ("/nothing", "not an event stream"),
                             ("/malformed", r"invalid JSON in the stream: \{broken"), ("/list", "invalid JSON"), ("/error", "the device failed"),
                             ("/cut", "ended before the response was complete"), ("/empty", "contains no token"), ("/endless", "longer than"),
                             ("/reset", "reset|closed")):
            with self.subTest(path):
                self.failed(path, reason)

    def test_refused(self):
        """What every request would get ends the load at once, without a table, and the message says what helps."""
        for path, more, env, told in (("/401", [], {}, "HTTP 401: no key; the server wants an API key, which OPENAI_API_KEY or --api-key-file FILE gives"),
                                      ("/401", [], {"OPENAI_API_KEY": "x"}, "HTTP 401: no key; the server does not take the API key: OPENAI_API_KEY or --api-key-file"),
                                      ("/404", [], {}, "HTTP 404: no such thing; --base-url and --endpoint set the path, and -m the model (now first/model)"),
                                      ("/404", ["-m", "mine"], {}, "and -m the model (now mine)")):
            r = self.bench(path, "--max-concurrency", 1, *more, env=env, n=50)
            self.assertEqual((r.code, r.text, len(self.requests(path))), (cli.RUNTIME, "", 1), r.err)
            self.assertIn(f"weft: error: {self.url}{path}: HTTP ", r.err)
            self.assertIn(told, r.err)
        r = bench("--base-url", self.url + "/closed")
        self.assertEqual((r.code, r.text), (cli.RUNTIME, ""))
        self.assertIn("/v1/models: HTTP 401; the server wants an API key", r.err)

    def test_slow(self):
        self.failed("/slow", "--request-timeout", "--request-timeout", 1)

    def test_nobody_listens(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))  # taken, and nobody listens
            port = s.getsockname()[1]
            for more in ([], ["-m", "x", "WEFT_RANDOM_PROMPTS=words"]):
                r = bench("--port", port, "--num-prompts", 3, *more)
                self.assertEqual((r.code, r.text), (cli.RUNTIME, ""))  # no table of zeros
                self.assertRegex(r.err, rf"no server answers at http://127.0.0.1:{port}: .*`weft serve MODEL` starts one, and --port")

    def test_dies_in_the_middle(self):
        """It answers whether it is there, and two, and is gone: those count, and the others have failed."""
        listener = socket.create_server(("127.0.0.1", 0))

        def two():
            for _ in range(3):
                c, _ = listener.accept()
                with c, c.makefile("rb") as f:  # what is not read would make a reset of the end
                    head = b"".join(iter(lambda: f.readline().strip(), b"")).lower()
                    f.read(int((re.search(rb"content-length: *(\d+)", head) or [0, 0])[1]))
                    c.sendall(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ndata: {"choices":[{"text":"x","finish_reason":"stop"}]}\n\n'
                              b'data: [DONE]\n\n')
            listener.close()

        t = threading.Thread(target=two)
        t.start()
        r = bench("--port", listener.getsockname()[1], "-m", "x", "WEFT_RANDOM_PROMPTS=words", "--num-prompts", 6, "--max-concurrency", 1)
        t.join()
        v = values(r.text)
        self.assertEqual((r.code, v["Successful requests:"], v["Failed requests:"]), (0, 2, 4), r.err)

    def test_interrupt(self):
        Fake.n_two = 0
        Fake.third.clear()
        p = subprocess.Popen([cli.WEFT, "bench", "serve", "--base-url", self.url, "--endpoint", "/two", "--num-prompts", "9",
                              "--max-concurrency", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertTrue(Fake.third.wait(60))
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
        v = values(out.decode())
        self.assertEqual((p.returncode, v["Successful requests:"], v["Failed requests:"]), (cli.INTERRUPTED, 2, 0), err)

    def test_what_is_sent(self):
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("secret\r\nother\n")
            f.flush()
            r = self.bench("/good", "--api-key-file", f.name, "--header", "X-Team: loom", "--extra-body", '{"top_k": 3}',
                           "--random-input-len", 12, "--random-output-len", 6, "WEFT_RANDOM_PREFIX_LEN=5", "--ignore-eos", "--seed", 4,
                           env={"OPENAI_API_KEY": "wrong"})
        self.assertEqual(r.code, 0, r.err)
        asked = self.requests("/good")
        self.assertEqual(len(asked), 3)
        for headers, body in asked:
            self.assertEqual((headers["Authorization"], headers["X-Team"]), ("Bearer secret", "loom"))
            prompt = body.pop("prompt")
            self.assertEqual(body, {"model": "first/model", "max_tokens": 6, "temperature": 0, "ignore_eos": True, "stream": True,
                                    "stream_options": {"include_usage": True}, "top_k": 3})
            self.assertEqual(len(prompt), 17)
            self.assertLessEqual(set(prompt), {7, 11, 13, 17, 19, 23, 29, 31})
        prompts = [tuple(b["prompt"]) for _, b in self._again(4)]
        self.assertEqual(len({p[:5] for p in prompts}), 1)
        self.assertEqual(len({p[5:] for p in prompts}), 3)
        self.assertEqual(prompts, [tuple(b["prompt"]) for _, b in self._again(4)])
        self.assertNotEqual(prompts, [tuple(b["prompt"]) for _, b in self._again(5)])

    def _again(self, seed):
        self.bench("/good", "--seed", seed, "--random-input-len", 12, "WEFT_RANDOM_PREFIX_LEN=5", "--max-concurrency", 1)
        return self.requests("/good")

    def test_key_and_model_of_the_environment(self):
        self.bench("/good", "-m", "mine", "WEFT_RANDOM_PROMPTS=words", "--random-input-len", 9, env={"OPENAI_API_KEY": "k"})
        self.assertEqual({p for p, _, _ in Fake.asked}, {"/good"})
        for headers, body in self.requests("/good"):
            self.assertEqual((headers["Authorization"], body["model"], len(body["prompt"].split())), ("Bearer k", "mine", 9))

    def test_chat(self):
        r = self.bench("/chat", "--backend", "openai-chat", "--random-input-len", 7, "--random-output-len", 3)
        v = values(r.text)
        self.assertEqual((v["Successful requests:"], v["Total generated tokens:"]), (3, 6), r.err)  # neither role nor end is a token
        message, = self.requests("/chat")[0][1]["messages"]
        self.assertEqual((message["role"], len(message["content"].split())), ("user", 7))

    def test_bytes_one_by_one(self):
        v = values(self.bench("/bytes").text)
        self.assertEqual((v["Successful requests:"], v["Total generated tokens:"]), (3, 3))

    def test_datasets(self):
        def run(text, name, *more):
            with tempfile.NamedTemporaryFile("w") as f:
                f.write(text)
                f.flush()
                r = self.bench("/good", "--dataset-name", name, "--dataset-path", f.name, "--max-concurrency", 1, *more)
            return r, [body for _, body in self.requests("/good")]

        talk = [{"conversations": [{"from": "human", "value": p}, {"from": "gpt", "value": "fine"}]} for p in ("How are you?", "And she?")]
        r, bodies = run(json.dumps([{"conversations": []}, *talk, {"other": 1}]), "sharegpt")
        self.assertEqual(r.code, 0, r.err)
        self.assertEqual({b["prompt"] for b in bodies}, {"How are you?", "And she?"})  # and one once more: three are wanted
        self.assertEqual({b["max_tokens"] for b in bodies}, {9})  # as many as /tokenize counts in "fine"
        _, bodies = run(json.dumps(talk), "sharegpt", "--random-output-len", 4)
        self.assertEqual({b["max_tokens"] for b in bodies}, {4})
        _, bodies = run("TIMESTAMP,ContextTokens,GeneratedTokens\nXXX,3,8\nXXX,5,2\nXXX,4,1\nXXX,9,9\n", "sharegpt")
        self.assertEqual([(len(b["prompt"]), b["max_tokens"]) for b in bodies], [(3, 8), (5, 2), (4, 1)])
        _, bodies = run('{"prompt": "a", "output_tokens": 5}\n\n{"prompt": "b"}\n', "custom")
        self.assertEqual([(b["prompt"], b["max_tokens"]) for b in bodies], [("a", 5), ("b", 256), ("a", 5)])
        for text, name, says in (("[1, 2", "sharegpt", "line 1"), ("[]", "sharegpt", "no conversation"), ("x,y\n", "sharegpt", "ContextTokens"),
                                 ('{"prompt": "a"}\n{"x": 1}\n', "custom", "line 2"), ("", "custom", "no requests")):
            r, bodies = run(text, name)
            self.assertEqual((r.code, bodies, r.out), (cli.RUNTIME, [], b""))
            self.assertIn(says, r.err)
        with tempfile.TemporaryDirectory() as folder:  # it would have to be read twice
            fifo = os.path.join(folder, "fifo")
            os.mkfifo(fifo)
            self.assertIn("is a FIFO", self.bench("/good", "--dataset-name", "sharegpt", "--dataset-path", fifo).err)

    def test_wrong_usage(self):
        for message, *args in (("unexpected argument", "word"), ("ttft:MS", "--goodput", "ttft:x"), ("ttft:MS", "--goodput", "ttft:5", "itl:4"),
                               ("--request-rate", "--request-rate", "0"), ("--request-rate", "--request-rate", "1,2"),
                               ("--dataset-path", "--dataset-name", "custom"), ("--dataset-path", "--dataset-path", "x"),
                               ("--base-url and --port conflict", "--base-url", "x", "--port", "1"), ("--header", "--header", "x"),
                               ("--metric-percentiles", "--metric-percentiles", "101")):
            self.fails(cli.USAGE, message, "bench", "serve", *args)


class Serving(unittest.TestCase):
    """Against our own server."""

    @classmethod
    def setUpClass(cls):
        cls.s = serve.Server("--max-num-seqs", 4)

    @classmethod
    def tearDownClass(cls):
        assert cls.s.end()[0] == 0

    def bench(self, *args):
        r = bench("--port", self.s.port, *args)
        self.assertEqual(r.code, 0, r.err)
        return r

    def test_result_that_cannot_be_written(self):
        """Said before anything is measured."""
        for args in (["--result-filename", "/absent/r.json"], ["--result-filename", "/proc"]):
            r = bench("--port", self.s.port, "--num-prompts", 1, "--save-result", *args)
            self.assertEqual((r.code, r.out), (cli.RUNTIME, b""), r.err)
            self.assertIn("cannot write /", r.err)

    def test_result(self):
        """What is printed and saved follows from the times of the single requests."""
        with tempfile.TemporaryDirectory() as folder:
            r = self.bench("--num-prompts", 6, "--random-input-len", 20, "--random-output-len", 8, "--ignore-eos", "--max-concurrency", 3,
                           "--request-rate", 500, "--metric-percentiles", "25,99.9", "--goodput", "ttft:60000", "e2el:60000",
                           "WEFT_SAVE_DETAILED=1", "--result-filename", folder, "WEFT_LABEL=r", "WEFT_NUM_WARMUPS=1")
            saved = json.loads(next(pathlib.Path(folder).glob("r-500qps-*.json")).read_bytes())
        lines = r.text.splitlines()
        self.assertEqual(lines[0], "============ Serving Benchmark Result ============")
        self.assertEqual(lines[-1], "=" * 50)
        self.assertEqual([line.strip("-") for line in lines if line.startswith("--")], METRICS)
        self.assertTrue(all(len(line) == 50 for line in lines if line[0] in "-="))
        v = values(r.text)
        self.assertEqual((v["Successful requests:"], v["Failed requests:"], v["Maximum request concurrency:"]), (6, 0, 3))
        self.assertEqual((v["Total input tokens:"], v["Total generated tokens:"]), (120, 48))
        self.assertEqual((saved["input_lens"], saved["output_lens"], saved["errors"]), ([20] * 6, [8] * 6, [""] * 6))
        self.assertLessEqual(v["Peak concurrent requests:"], 3)
        e2el = [1e3 * (t + sum(g)) for t, g in zip(saved["ttfts"], saved["itls"])]
        series = {"ttft": [1e3 * t for t in saved["ttfts"]], "tpot": [1e3 * sum(g) / 7 for g in saved["itls"]],
                  "itl": [1e3 * x for g in saved["itls"] for x in g], "e2el": e2el}
        for key, v_ms in series.items():
            self.assertTrue(v_ms)
            for name, printed, want in (("mean", "Mean", sum(v_ms) / len(v_ms)), ("median", "Median", percentile(v_ms, 50)),
                                        ("p25", "P25", percentile(v_ms, 25)), ("p99.9", "P99.9", percentile(v_ms, 99.9))):
                self.assertAlmostEqual(saved[f"{name}_{key}_ms"], want, delta=1e-3 * max(want, 1))
                self.assertAlmostEqual(v[f"{printed} {key.upper()} (ms):"], want, delta=1e-3 * max(want, 1) + 0.006)
        t = saved["duration"]
        self.assertAlmostEqual(saved["request_throughput"] * t, 6, 3)
        self.assertAlmostEqual(saved["request_goodput"] * t, 6, 3)
        self.assertAlmostEqual(saved["output_throughput"] * t, 48, 3)
        self.assertAlmostEqual(saved["total_token_throughput"] * t, 168, 3)
        self.assertGreaterEqual(1e3 * t, max(e2el))

    def test_goodput_within_nothing(self):
        v = values(self.bench("--num-prompts", 2, "--random-input-len", 4, "--random-output-len", 4, "--goodput", "ttft:0.0001,tpot:9").text)
        self.assertEqual(v["Request goodput (req/s):"], 0)

    def test_refused_lengths(self):
        r = bench("--port", self.s.port, "--num-prompts", 2, "--random-input-len", 5000)
        self.assertEqual(r.code, cli.RUNTIME)
        self.assertIn("2 failed: HTTP 400: ", r.err)

    def test_chat(self):
        v = values(self.bench("--backend", "openai-chat", "--num-prompts", 2, "--random-input-len", 6, "--random-output-len", 5,
                              "--ignore-eos").text)
        self.assertEqual((v["Successful requests:"], v["Total generated tokens:"]), (2, 10))

    def test_readme(self):
        """The documents' lines, on this server's port, with less to do: sanitizers make it ten times slower."""
        lines = [line for text in cli.documents().values() for line in re.findall(r"(?m)^weft bench serve .*", text)]
        self.assertTrue(lines)
        for line in lines:
            for option, most in (("port", self.s.port), ("num-prompts", 12), ("random-output-len", 40)):
                line = re.sub(rf"(--{option}) \d+", rf"\1 {most}", line)
            r = bench(*line.split()[3:])
            self.assertEqual((r.code, values(r.text)["Failed requests:"]), (0, 0), r.err)


if __name__ == "__main__":
    cli.main()
