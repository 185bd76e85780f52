"""--models: a folder of models that are loaded when a request names them, and that go again."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import serve
from serve import Server, at_once, cli
from test_life import LONG, SLOW

DEMO = os.path.join(cli.ROOT, "models", "demo.gguf")
TINY = os.path.join(cli.ROOT, "tests", "model", "tiny.py")


class Folder(Server):
    """A server of a folder of its own, which has these models: copies of the demo model unless they say otherwise."""

    def __init__(self, *args, names=("alpha", "beta"), tiny=False, first=(), **kwargs):
        self.folder = tempfile.TemporaryDirectory()
        for name in names:
            shutil.copy(DEMO, self.path(name + ".gguf"))
        if tiny:
            subprocess.run([sys.executable, TINY, self.path("tiny.gguf")], check=True)
            with open(DEMO, "rb") as f, open(self.path("broken.gguf"), "wb") as out:
                out.write(f.read(3000))
        super().__init__(*first, "--models", *args, wait=False, env={"WEFT_MODELS": self.folder.name}, **kwargs)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def states(self):
        return {m["id"]: m["status"]["value"] for m in self.get("/v1/models").json["data"]}

    def until_states(self, want):
        self.wait(lambda: self.states() == want, want)

    def loads(self, name):
        return sum(line.endswith(f"{name} is being loaded") for line in self.lines)

    def end(self, sig=signal.SIGTERM):
        out = super().end(sig)
        self.folder.cleanup()
        return out


class Gate:
    """A pipe in place of the file of --tuned: each load waits until it is opened."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "tuned")
        os.mkfifo(self.path)
        text = subprocess.run(cli.argv("info"), stdout=subprocess.PIPE, check=True).stdout.decode()
        cpu = text[text.index("\ncpu\n"):] if not text.startswith("cpu\n") else text
        self.args = ["--tuned", self.path]
        one = [re.search(rf"(?m)^  {name} +(.*)$", cpu).group(1) for name in ("name", "platform", "compute units")]
        self.text = "weft-tuned 1\ndevice {}\nplatform {}\nunits {}\n".format(*one).encode()

    def reached(self):
        """A load waits for it; what comes back opens it."""
        end = time.monotonic() + serve.PATIENCE
        while time.monotonic() < end:
            try:
                return os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # nobody reads yet
                time.sleep(0.002)
        raise AssertionError("nobody loads")

    def open(self, fd):
        os.write(fd, self.text)
        os.close(fd)


class OnDemand(serve.TestCase):
    """One server, of which each test uses models of its own."""

    @classmethod
    def setUpClass(cls):
        cls.s = Folder("--allow", "loading", names=("alpha", "beta", "gamma", "delta", 'odd "name"'), tiny=True)
        cls.alone = Server()
        cls.want = cls.alone.complete().text
        cls.alone.end()

    def states(self, *names):
        states = self.s.states()
        return [states[n] for n in names]

    def test_a_request_loads_its_model(self):
        r = self.s.complete(model="alpha")
        self.assertEqual((r.status, r.text, r.json["model"]), (200, self.want, "alpha"))
        self.assertEqual(self.states("alpha"), ["loaded"])
        self.assertEqual(self.s.stream(model="alpha.gguf")[0]["model"], "alpha.gguf")
        self.assertEqual(self.s.post("/api/generate", {"model": "alpha:latest", "prompt": "One day", "stream": False}).status, 200)
        self.assertEqual(self.s.loads("alpha"), 1)
        card = self.s.get("/v1/models/alpha").json
        self.assertEqual((card["id"], card["max_model_len"], card["status"]), ("alpha", 512, {"value": "loaded"}))
        for path, body in (("/tokenize", {"prompt": "One day"}), ("/detokenize", {"tokens": [5]}),
                           ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "Hi"}]}),
                           ("/apply-template", {"messages": [{"role": "user", "content": "Hi"}]})):
            self.assertEqual(self.s.post(path, {"model": "alpha", **body}).status, 200, path)
            self.refused(self.s.post(path, {"model": "none", **body}), 404) if "messages" not in path else None

    def test_several_at_once(self):
        """Each has the answer of its own model, and its own numbers."""
        tiny = self.s.complete(model="tiny", prompt=[5, 6], max_tokens=4).json
        self.assertEqual(tiny["usage"]["completion_tokens"], 4)

        def ask(i):
            name = ("gamma", "beta", "tiny")[i % 3]
            r = self.s.complete(model=name, prompt=[5, 6] if name == "tiny" else "One day", max_tokens=4 if name == "tiny" else 12)
            self.assertEqual((r.status, r.json.get("model")), (200, name), r.body)
            self.assertEqual(r.text, tiny["choices"][0]["text"] if name == "tiny" else self.want)

        at_once(9, ask)
        text = self.s.get("/metrics").body.decode()
        for name, n in (("gamma", 36), ("beta", 36), ("tiny", 16)):
            self.assertIn(f'weft:generation_tokens_total{{model_name="{name}",engine="0"}} {n}\n', text)
        self.assertEqual(text.count("# TYPE weft:generation_tokens_total "), 1)
        self.assertIn("\nweft:body_memory_bytes{} ", text)
        self.assertFalse('model_name="broken"' in text)  # nobody has had it

    def test_a_broken_one_harms_no_other(self):
        for _ in range(2):
            error = self.refused(self.s.complete(model="broken"), 500, "model", "model_not_loaded")
            self.assertIn("the model 'broken' cannot be loaded: broken.gguf: ", error["message"])
            self.assertNotIn(self.s.folder.name, error["message"])
        self.assertEqual(self.s.complete(model="alpha").text, self.want)
        status = self.s.get("/v1/models/broken").json["status"]
        self.assertEqual((status["value"], status["failed"]), ("unloaded", True))
        self.assertEqual(self.s.post("/api/show", {"model": "broken"}).status, 500)
        self.assertEqual(self.s.get("/health").status, 200)

    def test_names_stay_in_the_folder(self):
        """Only what the folder has is there, whatever a client sends; none of it is opened as a path."""
        outside = tempfile.NamedTemporaryFile(suffix=".gguf", dir=os.path.dirname(self.s.folder.name))
        self.addCleanup(outside.close)
        shutil.copy(DEMO, outside.name)
        here = os.path.basename(self.s.folder.name)
        for name in ("../" + os.path.basename(outside.name), outside.name, f"../{here}/alpha", f"../{here}/alpha.gguf", "./alpha", "alpha/", "/alpha",
                     "..", ".", "alpha\0x", "ALPHA", " alpha", "alpha.gguf.gguf", "%61lpha", "builtin:demo", "hf:a/b", "x" * 5000, "\ud800"):
            for path, more in (("/v1/completions", {"prompt": "x"}), ("/api/show", {}), ("/models/load", {}), ("/api/generate", {"keep_alive": 0})):
                r = self.s.post(path, json.dumps({"model": name, **more}))
                self.assertIn(r.status, (404, 400) if name in ("\ud800", "alpha\0x") else (404,), (path, name, r.body))
        error = self.refused(self.s.complete(model="none"), 404, "model", "model_not_found")
        self.assertIn("/v1/models lists what is", error["message"])
        for model in (5, [], {}, True):
            self.refused(self.s.complete(model=model), 400, "model")
        for fields in ({}, {"model": None}, {"model": ""}):
            self.assertIn("model is missing", self.refused(self.s.complete(**fields), 400, "model")["message"])
        self.refused(self.s.get("/v1/models/..%2Falpha"), 404)
        self.assertEqual(self.s.complete(model="odd--name-").text, self.want)

    def test_a_model_that_comes_and_goes(self):
        self.refused(self.s.complete(model="new"), 404)
        shutil.copy(DEMO, self.s.path("new.gguf"))
        self.s.wait(lambda: self.s.complete(model="new").status == 200, "it is found")
        shutil.copy(DEMO, self.s.path("new.tmp"))
        os.utime(self.s.path("new.tmp"), (1, 1))
        os.replace(self.s.path("new.tmp"), self.s.path("new.gguf"))  # another file: what is loaded is out of date
        self.s.wait(lambda: self.states("new") == ["unloaded"], "it is out of date")
        self.assertEqual(self.s.complete(model="new").text, self.want)
        os.remove(self.s.path("new.gguf"))
        self.assertEqual(self.s.complete(model="new").text, self.want)  # it is loaded still
        self.s.post("/models/unload", {"model": "new"})
        self.s.wait(lambda: "new" not in self.s.states(), "it is gone")

    def test_by_request(self):
        self.assertEqual(self.s.post("/models/load", {"model": "delta"}).json, {"success": True})
        self.s.wait(lambda: self.states("delta") == ["loaded"], "it is loaded")
        rows = {m["name"]: m for m in self.s.get("/api/ps").json["models"]}
        self.assertEqual((rows["delta"]["running"], rows["delta"]["context_length"]), (0, 512))
        shown = cli.weft("ps", "--port", self.s.port)
        self.assertEqual(shown.code, 0, shown.err)
        self.assertRegex(shown.text, r"(?m)^name +memory +context .*\n(.*\n)*delta +[\d.]+ MiB +512 +0 +0  forever$")
        self.assertEqual(self.s.post("/models/unload", {"model": "delta"}).json, {"success": True})
        self.s.wait(lambda: self.states("delta") == ["unloaded"], "it is unloaded")
        self.assertEqual({m["id"]: m["status"] for m in self.s.get("/health").json["models"]}["delta"], {"value": "unloaded"})
        self.refused(self.s.post("/models/load", {}), 400, "model")
        self.refused(self.s.post("/models/load", [1]), 400)

    def test_as_ollama_does(self):
        """An empty prompt loads, keep_alive 0 unloads, and tells how long one stays."""
        def ask(path="/api/generate", **fields):
            return self.s.post(path, {"model": "delta", **({} if "show" in path else {"stream": False}), **fields})

        self.assertIn("delta", [m["name"] for m in self.s.get("/api/tags").json["models"]])
        self.assertEqual(ask("/api/show").json["model_info"]["llama.context_length"], 512)
        self.assertNotEqual(self.states("delta"), ["loaded"])  # to show it, it need not be
        self.assertEqual(ask().json["done_reason"], "load")
        self.assertEqual(self.states("delta"), ["loaded"])
        for keep in (0, "0", "0s"):
            self.assertEqual(ask(keep_alive=keep).json["done_reason"], "unload")
        self.s.wait(lambda: self.states("delta") == ["unloaded"], "it is unloaded")
        self.assertEqual(ask("/api/chat", messages=[{"role": "user", "content": "Hi"}], options={"num_predict": 2}, keep_alive="0m").status, 200)
        self.s.wait(lambda: self.states("delta") == ["unloaded"], "it is unloaded behind the answer")
        self.assertEqual(ask(prompt="One day", options={"num_predict": 2}, keep_alive="1h30m").status, 200)
        until = {m["name"]: m for m in self.s.get("/api/ps").json["models"]}["delta"]["expires_at"]
        self.assertAlmostEqual(time.mktime(time.strptime(until, "%Y-%m-%dT%H:%M:%SZ")) - time.mktime(time.gmtime()), 5400, delta=120)
        for keep in ("soon", "5x", {}, "--1", "1e999h"):
            self.assertEqual(ask(prompt="One day", keep_alive=keep).status, 400, keep)
        self.assertEqual(ask(keep_alive=-1).json["done_reason"], "load")
        self.assertEqual(self.s.get("/props").json["role"], "router")


class Memory(unittest.TestCase):
    def test_the_least_recently_used_goes(self):
        """Room for two; what a request holds stays, and those that come later do not starve who waits for room."""
        s = Folder({"models": 200_000_000}, *SLOW, "--kv-memory", "60M", names=("a", "b", "c"))
        for name in ("a", "b", "a", "c"):
            self.assertEqual(s.complete(model=name, max_tokens=2).status, 200)
        self.assertEqual(s.states(), {"a": "loaded", "b": "unloaded", "c": "loaded"})
        conns = [s.open_stream(model=name, **LONG) for name in ("a", "c")]
        waits = threading.Thread(target=lambda: self.assertEqual(s.complete(model="b", max_tokens=2).status, 200))
        waits.start()
        s.until_states({"a": "loaded", "b": "loading", "c": "loaded"})
        conns[0][0].close()
        waits.join()
        self.assertEqual(s.states(), {"a": "unloaded", "b": "loaded", "c": "loaded"})
        self.assertTrue(conns[1][1].read(1))  # it went on
        conns[1][0].close()
        self.assertEqual(s.end()[0], 0)

    def test_one_that_is_too_large(self):
        s = Folder({"models": 20_000_000}, names=("a",), tiny=True)
        self.assertEqual(s.complete(model="tiny", prompt=[5], max_tokens=1).status, 200)
        r = s.complete(model="a", max_tokens=1)
        self.assertEqual((r.status, r.error["code"]), (503, "model_not_loaded"), r.body)
        self.assertIn("may take", r.error["message"])
        self.assertEqual(s.states()["tiny"], "loaded")  # nothing went for it
        self.assertEqual(s.end()[0], 0)

    def test_one_whose_engine_fails(self):
        """Its weights are written to while they are used: it fails, as a server of it alone would, and is loaded again; the other goes on."""
        s = Folder()
        shutil.copy(cli.data("stories260K.gguf"), s.path("small.gguf"))
        s.wait(lambda: s.complete(model="small").status == 200, "it is found")
        want = [s.complete(model=name).text for name in ("small", "beta")]
        with open(s.path("small.gguf"), "r+b") as f:
            byte = f.read(1)
            f.seek(0)
            f.write(byte)
        statuses = [s.complete(model="small").status]
        s.wait(lambda: statuses.append(s.complete(model="small").status) or statuses[-1] == 200, "it is loaded again")
        self.assertIn(500, statuses)
        self.assertEqual([s.complete(model=name).text for name in ("small", "beta")], want)
        self.assertEqual((s.loads("small"), s.loads("beta"), s.end()[0]), (2, 1, 0))

    def test_idle_ones_sleep(self):
        s = Folder("--sleep-idle", 1, first=("beta",))
        s.until_states({"alpha": "unloaded", "beta": "loaded"})  # at the start
        self.assertEqual(s.complete().json["model"], "beta")     # and where none is named
        s.until_states({"alpha": "unloaded", "beta": "unloaded"})
        self.assertEqual(s.complete(model="beta").status, 200)
        for path, body in (("/models/unload", {"model": "beta"}), ("/models/load", {"model": "alpha"}), ("/api/generate", {"model": "beta", "keep_alive": 0})):
            r = s.post(path, body)
            self.assertEqual(r.status, 403, path)
            self.assertIn(b"--allow loading", r.body)
        self.assertEqual(s.end()[0], 0)


class WhileItLoads(unittest.TestCase):
    def setUp(self):
        self.gate = Gate()
        self.addCleanup(self.gate.folder.cleanup)

    def ask(self, s, out, **fields):
        def run():
            out.append(s.complete(model="alpha", **fields))
        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def waiting(self, s, n):
        s.wait(lambda: s.get("/v1/models/alpha").json["status"]["waiting"] == n, f"{n} wait")

    def test_requests_wait(self):
        """Those whose clients leave, or that take too long, are gone; others get their answers, and the queue has its end."""
        s = Folder(*self.gate.args, "--max-queue", 3, "--request-timeout", 30)
        out, gone = [], s.connect()
        gone.request("POST", "/v1/completions", json.dumps({**serve.GOOD, "model": "alpha"}))
        gate = self.gate.reached()
        threads = [self.ask(s, out) for _ in range(2)]
        self.waiting(s, 3)
        self.assertEqual(s.complete(model="alpha").status, 503)  # the queue is full
        gone.close()
        self.waiting(s, 2)
        self.assertEqual(s.get("/health").json["models"][0]["status"]["value"], "loading")
        self.assertEqual(s.get("/metrics").status, 200)
        self.gate.open(gate)
        for t in threads:
            t.join()
        self.assertEqual([r.status for r in out], [200, 200])
        self.assertEqual((s.loads("alpha"), s.end()[0]), (1, 0))

    def test_a_timeout(self):
        s = Folder(*self.gate.args, "--request-timeout", 1)
        out = []
        thread = self.ask(s, out)
        gate = self.gate.reached()
        self.assertEqual(s.get("/v1/models/alpha").json["status"]["value"], "loading")
        thread.join()
        self.assertEqual(out[0].status, 504, out[0].body)
        self.waiting(s, 0)
        self.gate.open(gate)
        s.until_states({"alpha": "loaded", "beta": "unloaded"})  # for who asks next
        self.assertEqual(s.end()[0], 0)

    def test_the_end_without_anybody(self):
        """Nobody waits: loading is given up, or left where it is."""
        s = Folder(*self.gate.args, "--allow", "loading")
        s.post("/models/load", {"model": "alpha"})
        gate = self.gate.reached()
        self.assertEqual(s.end()[0], 0)
        os.close(gate)

    def test_the_end_with_requests(self):
        """They were accepted, so they get their answers; a second signal cancels them."""
        for signals, status in ((1, 200), (2, 503)):
            s = Folder(*self.gate.args)
            out = []
            thread = self.ask(s, out)
            gate = self.gate.reached()
            self.waiting(s, 1)
            s.p.send_signal(signal.SIGTERM)
            s.line("1 requests may still run")
            if signals == 2:
                s.p.send_signal(signal.SIGTERM)
                thread.join()
            self.gate.open(gate)
            thread.join()
            self.assertEqual((out[0].status, s.end()[0]), (status, 0), out[0].body)


class CommandLine(cli.TestCase):
    def test_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            env = {"WEFT_MODELS": folder}
            for args, said in (((), "is not in the folder of models"), (("--served-model-name", "x"), "conflict")):
                model = [] if args else ["-m", DEMO]
                r = cli.weft("serve", "--models", *model, *args, env=env)
                self.assertNotEqual(r.code, 0)
                self.assertIn(said, r.err)
        self.assertIn("needs --models", cli.weft("serve", "--sleep-idle", "5").err)
        self.assertIn("WEFT_MODELS", cli.weft("serve", "--models", env={"WEFT_MODELS": DEMO}).err)

    def test_ps_without_a_server(self):
        for answer, said in ((None, "no server answers"), (b"hello\r\n", "no HTTP server"), (b"HTTP/1.1 200 OK\r\n\r\n{}", "status 200"),
                             (b"HTTP/1.1 401 No\r\n\r\n", "WEFT_API_KEY"), (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100000, "status 200")):
            with socket.socket() as one:
                one.bind(("127.0.0.1", 0))
                if answer:
                    one.listen()
                    threading.Thread(target=lambda: [c := one.accept()[0], c.recv(4096), c.sendall(answer), c.close()], daemon=True).start()
                r = cli.weft("ps", "--port", one.getsockname()[1])
            self.assertEqual((r.code, r.text), (cli.RUNTIME, ""), r.err)
            self.assertIn(said, r.err)


if __name__ == "__main__":
    serve.main()
