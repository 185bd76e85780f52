"""Who may ask, what the options do, and the end of the server."""
import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import serve
from serve import Server, at_once, cli
from test_front import ASK, WORDS, small_window

# So that something still runs when it is looked at, however late that is: minutes for LONG, of a context that the model was not made for.
SLOW = ["WEFT_FORCE=gemm=ref,attention=ref", "-c", 20000]
LONG = {"max_tokens": 19000, "ignore_eos": True}


class Keys(unittest.TestCase):
    def test_keys(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
            f.write("# ours\n\n  first-key \t\r\n \r\n\tsecond-key\n  # third-key\n")
            f.flush()
            s = Server("--api-key-file", f.name)
            for key, status in ((None, 401), ("", 401), ("first-ke", 401), ("first-key2", 401), ("x" * 20_000, 401), ("first-keyfirst-key", 401),
                                ("# third-key", 401), ("third-key", 401), ("first-key", 200), ("second-key", 200)):
                headers = {} if key is None else {"Authorization": f"Bearer {key}"}
                self.assertEqual(s.post("/v1/completions", serve.GOOD, **headers).status, status, str(key)[:30])
                self.assertEqual(s.get("/metrics", **({} if key is None else {"X-Api-Key": key})).status, status)
                self.assertEqual(s.get("/metrics", **headers).status, status)
                self.assertEqual(s.get("/nowhere", **headers).status, 404 if status == 200 else 401)
            self.assertEqual(s.get("/health").status, 200)
            self.assertEqual(s.get("/").status, 200)
            self.assertEqual(s.get("/", Authorization="Bearer " + "x" * 200_000).status, 431)
            self.assertEqual(s.end()[0], 0)

    def test_keys_of_the_command_line(self):
        """They work, as one of a variable does, and are not in the list of processes."""
        for args, env, good, bad in ((["--api-key", "sesame-1", "--api-key=sesame-2"], {"WEFT_API_KEY": "sesame-3"}, ["sesame-1", "sesame-2", "sesame-3"], ["sesame-4"]),
                                     ([], {"WEFT_API_KEY": " sesame-3\n"}, ["sesame-3"], ["sesame-1"]),
                                     ([], {}, ["whatever"], [])):
            s = Server(*args, env=env)
            for key, status in [(k, 200) for k in good] + [(k, 401) for k in bad]:
                self.assertEqual(s.get("/v1/models", Authorization=f"Bearer {key}").status, status, key)
            for what in ("cmdline", "environ"):
                with open(f"/proc/{s.p.pid}/{what}", "rb") as f:
                    text = f.read()
                self.assertIn({"cmdline": b"serve", "environ": b"WEFT_API_KEY=" if env else b"PATH="}[what], text)
                self.assertNotIn(b"sesame", text)
            self.assertEqual(s.end()[0], 0)
        shown = cli.weft("config", env={"WEFT_API_KEY": "sesame-3"}).text
        self.assertIn("api-key = (not shown)  # $WEFT_API_KEY", shown)

    def test_an_empty_key_is_a_mistake(self):
        """Who means to have a key does not get a server that is open to everybody."""
        for empty in ("", " ", "\r\n"):
            r = cli.weft("serve", "--port", 0, "--api-key", empty)
            self.assertEqual(r.code, cli.RUNTIME)
            self.assertIn("--api-key is empty", r.err)
            for more in ((), ("--api-key", "sesame")):
                r = cli.weft("serve", "--port", 0, *more, env={"WEFT_API_KEY": empty})
                self.assertEqual(r.code, cli.USAGE)
                self.assertIn("WEFT_API_KEY is set, but empty", r.err)
                self.assertIn("unset it", r.err)
        self.assertEqual(cli.weft("config", env={"WEFT_API_KEY": ""}).code, 0)

    def test_no_keys_in_the_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
            f.write("# none\n \r\n\n")
            f.flush()
            for path in ("/dev/null", "/absent", f.name):
                r = cli.weft("serve", "--port", 0, "--api-key-file", path)
                self.assertEqual(r.code, cli.RUNTIME)
                self.assertIn(path, r.err)

    def test_keys_from_a_pipe(self):
        """Who waits for them can be ended."""
        with tempfile.TemporaryDirectory() as folder:
            fifo = os.path.join(folder, "fifo")
            os.mkfifo(fifo)
            p = subprocess.Popen([cli.WEFT, "serve", "--port", "0", "--api-key-file", fifo], stderr=subprocess.DEVNULL)
            with open(fifo, "w"):  # as soon as it reads
                p.terminate()
                self.assertEqual(p.wait(serve.PATIENCE), -signal.SIGTERM)


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
        s = Server("--allow-origin", "http://page.example", "--allowed-host", "proxy.example", "--allow=host=other.example")
        r = s.request("OPTIONS", "/v1/chat/completions", headers={"Origin": "http://page.example"})
        self.assertEqual((r.status, r.headers["Access-Control-Allow-Origin"]), (204, "http://page.example"))
        asked = "authorization, content-type, x-stainless-lang, x-stainless-retry-count"
        r = s.request("OPTIONS", "/v1/chat/completions", headers={"Origin": "http://page.example", "Access-Control-Request-Headers": asked})
        self.assertEqual((r.status, r.headers["Access-Control-Allow-Headers"]), (204, asked))
        for host, status in (("proxy.example", 200), ("Proxy.example:80", 200), ("other.example.", 200), ("third.example", 403)):
            self.assertEqual(s.get("/health", Host=host).status, status, host)
        self.assertIn("--allowed-host", s.get("/health", Host="third.example").error["message"])
        self.assertEqual(s.get("/health", Origin="http://page.example").status, 200)
        self.assertEqual(s.get("/health", Origin="http://evil.example").status, 403)
        self.assertEqual(s.end()[0], 0)


    def test_any(self):
        s = Server("--allowed-host", "*", "--allow-origin", "*")
        self.assertEqual(s.get("/health", Host="any.example").status, 200)
        self.assertEqual(s.get("/health", Origin="http://any.example").headers["Access-Control-Allow-Origin"], "http://any.example")
        self.assertEqual(s.end()[0], 0)


class Ends(unittest.TestCase):
    def test_sigterm_loses_no_request(self):
        s = Server("--max-num-seqs", 4, "--shutdown-timeout", 300, *SLOW)
        ask = {"max_tokens": 60, "ignore_eos": True}  # eight seconds for all
        got = []

        def one(i):
            if i == 8:
                s.until(lambda m: m["requests_started_total"] == 8, "all are in")
                s.p.send_signal(signal.SIGTERM)
            elif i % 2:
                got.append(s.complete(**ask).json["usage"]["completion_tokens"])
            else:
                got.append(60 if s.stream(**ask)[-1]["choices"][0]["finish_reason"] == "length" else 0)

        at_once(9, one)
        self.assertEqual(got, [60] * 8)
        code, log = s.end()
        self.assertEqual(code, 0, log)
        self.assertIn("ending: ", log)

    def test_sigterm_under_load(self):
        """Each of many that asked before it gets its whole answer, or is told that there will be none."""
        s = Server("--max-num-seqs", 8, "--shutdown-timeout", 300, *SLOW)
        ask = {**serve.GOOD, "max_tokens": 6}
        want = s.complete(max_tokens=6).text
        told, gate, statuses = threading.Event(), threading.Lock(), []

        def check(r, stream):
            body = r.read()
            statuses.append(r.status)
            if r.status == 503:
                self.assertIn(b"shutting down", body)
            elif stream:
                self.assertTrue(body.endswith(b"data: [DONE]\n\n"), body)
            else:
                self.assertEqual(json.loads(body)["choices"][0]["text"], want)
            return r.status == 200 and r.headers["Connection"] != "close"

        def client(stream):
            """Asks on one connection until it is told that this ends; nothing is sent after the signal."""
            with contextlib.closing(s.connect()) as c:
                while True:
                    with gate:
                        if told.is_set():
                            break
                        c.request("POST", "/v1/completions", body=json.dumps({**ask, "stream": stream}))
                    if not check(c.getresponse(), stream):
                        break

        def one(i):
            if i < 16:
                return client(stream=i % 2 == 0)
            s.wait(lambda: len(statuses) >= 16, "each has asked about once")
            s.until(lambda m: m["num_requests_running"] + m["num_requests_waiting"] >= 10, "many ask")
            with gate:
                s.p.send_signal(signal.SIGTERM)
                return told.set()

        at_once(17, one)
        self.assertLessEqual(set(statuses), {200, 503})
        self.assertGreaterEqual(statuses.count(200), 16)
        self.assertEqual(s.end()[0], 0)

    def test_after_sigterm_nobody_gets_in(self):
        """While it writes what it has begun, here a reply that nobody reads yet."""
        s = Server(*SLOW)
        late = small_window(s)
        late.send(f"{ASK}\r\n{WORDS}".encode())
        s.until(lambda m: m["bodies_read_total"] == 1, "its reply is there")
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
        self.assertEqual(late.status(), 200)
        self.assertEqual(json.loads(late.body)["count"], len(json.loads(late.body)["tokens"]))
        for each in (c, kept, late):
            each.close()
        self.assertEqual(s.end()[0], 0)

    def test_shutdown_timeout(self):
        s = Server(*SLOW, "--shutdown-timeout", 1)
        c, r = s.open_stream(**LONG)
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
        c, r = s.open_stream(**LONG)
        s.p.send_signal(signal.SIGINT)
        s.line("ending")
        s.p.send_signal(signal.SIGINT)
        self.assertIn(b"shutting down", r.read())
        c.close()
        self.assertEqual(s.end()[0], 0)

    def test_port_in_use(self):
        s = Server()
        with tempfile.TemporaryDirectory() as folder:  # found out before files are written
            r = cli.weft("serve", "--port", s.port, *cli.CPU, "WEFT_DUMP_PLAN=" + os.path.join(folder, "plan"))
            self.assertEqual((r.code, os.listdir(folder)), (cli.RUNTIME, []), r.err)
        self.assertIn("--port", r.err)
        self.assertEqual(s.end()[0], 0)

    def test_bad_files(self):
        """What can be known to be wrong is said before the port is open."""
        for code, option, path in ((cli.USAGE, "--calibration", "/absent"), (cli.USAGE, "--plan", "/absent"), (cli.USAGE, "--tuned", "/absent"),
                                   (cli.USAGE, "--attention-windows", __file__), (cli.RUNTIME, "--timeline", "/absent/x"), (cli.MODEL, "-m", "/absent"), (cli.USAGE, "--kv-memory", "1"),
                                   (cli.DEVICE, "--device", "absent")):
            r = cli.weft("serve", "--port", 0, *cli.CPU, option, path)
            self.assertEqual(r.code, code, r.err)
            self.assertEqual(len(r.err.splitlines()), 1, r.err)
            self.assertIn("error", r.err)

    def test_bad_model_and_options(self):
        r = cli.weft("serve", "--port", 0, "-m", "/absent")
        self.assertEqual(r.code, cli.MODEL)
        r = cli.weft("serve", "--port", 0, "--chat-template", "frob")
        self.assertEqual(r.code, cli.USAGE)
        r = cli.weft("serve", "--port", 0, "--host", "no.such.host.invalid")
        self.assertEqual(r.code, cli.RUNTIME)

    def test_log_of_long_paths(self):
        """The line says that the path is cut, and the rest of it is there."""
        for option, line in (("-v", r"GET /\S+… 404, 0 tokens"), ("--log-json", r'"path":"/[^"]+…","status":404')):
            s = Server(option)
            s.get("/" + "a%C3%A9" * 300)
            s.line(line)
            self.assertEqual(s.end()[0], 0)

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
