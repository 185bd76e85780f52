"""Start, load, many clients at once, and the end of the server."""
import json
import os
import random
import signal
import socket
import tempfile
import threading
import time
import unittest

import serve
from serve import Server, cli

SLOW = ["--force", "gemm=ref,attention=ref"]  # so that something still runs when it is looked at
PROMPTS = ["One day", "The sun was", "Tom had a big", "There was a little", "A cat and a dog", "Mia went to the"]


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


class Many(serve.TestCase):
    ARGS = ["--max-num-seqs", 16, "-c", 256]

    def test_answers_do_not_mix(self):
        """Sixteen streams interleave, and each gets what it gets alone."""
        fields = [{"prompt": PROMPTS[i % len(PROMPTS)], "temperature": 1, "seed": i, "max_tokens": 40, "ignore_eos": True} for i in range(16)]
        alone = [self.s.complete(**f).text for f in fields]
        before = self.s.metrics()
        firsts, lasts = {}, {}

        def one(i):
            c, r = self.s.open_stream(**fields[i])
            text = ""
            for line in r:
                if line.startswith(b"data: {"):
                    firsts.setdefault(i, time.monotonic())
                    text += json.loads(line[6:])["choices"][0]["text"]
                    lasts[i] = time.monotonic()
            c.close()
            self.assertEqual(text, alone[i])

        at_once(16, one)
        self.assertLess(max(firsts.values()), min(lasts.values()), "they ran one after the other")
        after = self.s.metrics()
        steps = after["iteration_tokens_total_count"] - before["iteration_tokens_total_count"]
        rows = after["iteration_tokens_total_sum"] - before["iteration_tokens_total_sum"]
        self.assertGreater(rows, 4 * steps)

    def test_clients_of_which_a_third_leaves(self):
        want = {p: self.s.complete(prompt=p).text for p in PROMPTS}
        left = []

        def one(i):
            rng = random.Random(i)
            prompt = PROMPTS[i % len(PROMPTS)]
            if rng.random() < 1 / 3:
                left.append(i)
                c, r = self.s.open_stream(prompt=prompt, max_tokens=200, ignore_eos=True)
                r.fp.read1(rng.randrange(1, 2000))
                r.close()
                c.close()
            elif rng.random() < 0.5:
                self.assertEqual(self.s.complete(prompt=prompt).text, want[prompt])
            else:
                self.assertEqual("".join(e["choices"][0]["text"] for e in self.s.stream(prompt=prompt)), want[prompt])

        at_once(150, one)
        self.assertGreater(len(left), 20)
        self.s.idle()

    def test_slow_readers_hold_up_nobody(self):
        socks = []
        body = json.dumps({"prompt": "One day", "max_tokens": 200, "ignore_eos": True, "stream": True, "n": 2, "logprobs": 20})
        for _ in range(6):
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            s.connect(("127.0.0.1", self.s.port))
            s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            socks.append(s)
        self.s.idle()  # the engine ends them, though nobody reads
        self.assertEqual(self.s.complete().status, 200)
        got = b""
        while b"[DONE]" not in got:
            part = socks[0].recv(65536)
            self.assertTrue(part)
            got += part
        for s in socks:
            s.close()

    def test_memory_stays(self):
        def round_of():
            at_once(8, lambda i: self.s.complete(n=2, logprobs=5, echo=True, max_tokens=20))
            at_once(8, lambda i: self.s.complete(prompt="word " * 2000))
            self.s.idle()

        for _ in range(3):
            round_of()
        warm = self.s.memory()
        for _ in range(5):
            round_of()
        if not os.environ.get("ASAN_OPTIONS") and not os.environ.get("TSAN_OPTIONS"):  # they keep what is freed
            self.assertLess(self.s.memory() - warm, 8 << 20)


class LittleMemory(serve.TestCase):
    """KV cache for one context and a bit, shared by eight: sequences are put aside and come back."""
    ARGS = ["--max-num-seqs", 8, "--kv-memory", "2M", "--no-prefix-cache", "-c", 256]

    def test_answers_are_the_same(self):
        ask = [{"prompt": PROMPTS[i % 6], "max_tokens": 150, "ignore_eos": True, "temperature": 1, "seed": i} for i in range(24)]
        alone = [self.s.complete(**a).text for a in ask]

        def one(i):
            self.assertEqual(self.s.complete(**ask[i]).text, alone[i])

        for _ in range(2):
            for i in range(6):
                self.s.complete(prompt=PROMPTS[i], n=8, max_tokens=1)  # so that all seem to be short
            at_once(24, one)
        self.assertGreater(self.s.metrics()["num_preemptions_total"], 0)
        self.assertEqual(self.s.metrics()["kv_cache_usage_perc"], 0)


class Policies(unittest.TestCase):
    def test_each_gives_the_same_text(self):
        texts = set()
        for policy in ("nanoflow", "sarathi", "orca", "request"):
            s = Server("--policy", policy, "--dense-batch", 24, "--max-num-seqs", 4)
            got = {}

            def one(i):
                got[i] = s.complete(prompt=PROMPTS[i % 6] * (i + 1), max_tokens=20).text

            at_once(10, one)
            texts.add(json.dumps(got, sort_keys=True))
            self.assertEqual(s.end()[0], 0)
        self.assertEqual(len(texts), 1)


class Keys(unittest.TestCase):
    def test_keys(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
            f.write("first-key\nsecond-key\n")
            f.flush()
            s = Server("--api-key-file", f.name)
            for key, status in ((None, 401), ("", 401), ("first-ke", 401), ("first-key2", 401), ("x" * 20_000, 401), ("first-keyfirst-key", 401),
                                ("first-key", 200), ("second-key", 200)):
                headers = {} if key is None else {"Authorization": f"Bearer {key}"}
                self.assertEqual(s.post("/v1/completions", serve.GOOD, **headers).status, status, str(key)[:30])
                self.assertEqual(s.get("/metrics", **headers).status, status)
                self.assertEqual(s.get("/nowhere", **headers).status, 404 if status == 200 else 401)
            self.assertEqual(s.get("/health").status, 200)
            self.assertEqual(s.end()[0], 0)

    def test_no_keys_in_the_file(self):
        for path in ("/dev/null", "/absent"):
            r = cli.weft("serve", "--port", 0, "--api-key-file", path)
            self.assertEqual(r.code, cli.RUNTIME)
            self.assertIn(path, r.err)


class Browsers(unittest.TestCase):
    def test_host_and_origin(self):
        s = Server()
        own = f"127.0.0.1:{s.port}"
        for host, status in ((own, 200), ("localhost", 200), ("[::1]:80", 200), ("127.1.2.3", 200), ("evil.example", 403),
                             ("127.0.0.1.evil.example:80", 403), ("localhost.evil.example", 403), ("", 403)):
            self.assertEqual(s.get("/health", Host=host).status, status, host)
        for origin, status in ((f"http://{own}", 200), ("http://evil.example", 403), ("null", 403)):
            r = s.get("/health", Origin=origin)
            self.assertEqual(r.status, status, origin)
            self.assertNotIn("Access-Control-Allow-Origin", r.headers)
        self.assertEqual(s.end()[0], 0)

    def test_cors(self):
        s = Server("--allow-origin", "http://page.example")
        r = s.request("OPTIONS", "/v1/chat/completions", headers={"Origin": "http://page.example"})
        self.assertEqual((r.status, r.headers["Access-Control-Allow-Origin"]), (204, "http://page.example"))
        self.assertEqual(s.get("/health", Origin="http://page.example").status, 200)
        self.assertEqual(s.get("/health", Origin="http://evil.example").status, 403)
        self.assertEqual(s.end()[0], 0)


class Ends(unittest.TestCase):
    def test_sigterm_loses_no_request(self):
        s = Server("--max-num-seqs", 4, *SLOW)
        ask = {"max_tokens": 40, "ignore_eos": True}
        got = []

        def one(i):
            if i == 8:
                s.until(lambda m: m["num_requests_running"] + m["num_requests_waiting"] == 8, "all are in")
                s.p.send_signal(signal.SIGTERM)
            elif i % 2:
                got.append(s.complete(**ask).json["usage"]["completion_tokens"])
            else:
                got.append(40 if s.stream(**ask)[-1]["choices"][0]["finish_reason"] == "length" else 0)

        at_once(9, one)
        self.assertEqual(got, [40] * 8)
        code, log = s.end()
        self.assertEqual(code, 0, log)
        self.assertIn("ending: ", log)

    def test_after_sigterm_nobody_gets_in(self):
        s = Server(*SLOW)
        kept = s.connect()
        kept.request("GET", "/health")
        self.assertEqual(kept.getresponse().read(), b'{"status":"ok"}')
        c, r = s.open_stream(max_tokens=60, ignore_eos=True)
        s.p.send_signal(signal.SIGTERM)
        s.line("ending")
        with self.assertRaises(ConnectionError):
            s.get("/health")
        kept.request("GET", "/health")
        r2 = kept.getresponse()
        self.assertEqual(r2.status, 503)
        r2.read()
        self.assertIn(b"[DONE]", r.read())
        c.close()
        kept.close()
        self.assertEqual(s.end()[0], 0)

    def test_shutdown_timeout(self):
        s = Server(*SLOW, "--shutdown-timeout", 1)
        c, r = s.open_stream(max_tokens=500, ignore_eos=True)
        began = time.monotonic()
        s.p.send_signal(signal.SIGTERM)
        text = r.read()
        c.close()
        self.assertIn(b"shutting down", text)
        code, log = s.end()
        self.assertEqual(code, 0, log)
        self.assertLess(time.monotonic() - began, 60)

    def test_second_signal_cancels(self):
        s = Server(*SLOW)
        c, r = s.open_stream(max_tokens=500, ignore_eos=True)
        s.p.send_signal(signal.SIGINT)
        s.line("ending")
        s.p.send_signal(signal.SIGINT)
        self.assertIn(b"shutting down", r.read())
        c.close()
        self.assertEqual(s.end()[0], 0)

    def test_port_in_use(self):
        s = Server()
        r = cli.weft("serve", "--port", s.port, *cli.CPU)
        self.assertEqual(r.code, cli.RUNTIME)
        self.assertIn("--port", r.err)
        self.assertEqual(s.end()[0], 0)

    def test_bad_model_and_options(self):
        r = cli.weft("serve", "--port", 0, "-m", "/absent")
        self.assertEqual(r.code, cli.MODEL)
        r = cli.weft("serve", "--port", 0, "--chat-template", "frob")
        self.assertEqual(r.code, cli.USAGE)
        r = cli.weft("serve", "--port", 0, "--host", "no.such.host.invalid")
        self.assertEqual(r.code, cli.RUNTIME)

    def test_json_log(self):
        s = Server("--log-json", wait=False)
        s.line('"message":"listening')
        s.line("is ready on")
        s.complete()
        s.line('"path":"/v1/completions"')
        code, log = s.end()
        self.assertEqual(code, 0)
        lines = [json.loads(line) for line in log.splitlines() if line != "(end)"]
        (done,) = [x for x in lines if x.get("path")]
        self.assertEqual((done["status"], done["generated_tokens"]), (200, 12))


if __name__ == "__main__":
    serve.main()
