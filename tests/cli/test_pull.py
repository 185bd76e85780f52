"""weft pull: against a hub on loopback that breaks off, lies and misbehaves in other ways, and what is left in the folder of models then."""
import hashlib
import json
import os
import pathlib
import pty
import re
import resource
import signal
import subprocess
import tempfile
import threading
import time
import sys

import cli
import hub
from cli import MODEL, OK, RUNTIME, USAGE

DEMO = os.path.join(cli.ROOT, "models", "demo.gguf")
FAST = ["WEFT_PULL_DELAY=0.02"]
TOKEN = "hf_secretsecretsecret"

if "this build cannot fetch models" in cli.weft("pull", "http://127.0.0.1:1/x.gguf", "WEFT_PULL_RETRIES=0").err:
    print("skipped: this build has no pull")
    sys.exit(77)


def gguf(n, seed=0):
    return (b"GGUF" + hashlib.shake_128(bytes([seed])).digest(n))[:n]


class TestCase(cli.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.home, self.models = temp.name, os.path.join(temp.name, "models")
        self.hub = hub.Hub()
        self.addCleanup(self.hub.close)
        self.env = {"HOME": self.home, "WEFT_MODELS": self.models, "HF_ENDPOINT": self.hub.url, "no_proxy": "*", "NO_PROXY": "*",
                    **dict.fromkeys(("HF_TOKEN", "HF_TOKEN_PATH", "HF_HOME", "XDG_CACHE_HOME", "CURL_CA_BUNDLE", "SSL_CERT_FILE"), "")}

    def pull(self, *words, code=OK, says="", env=None, **more):
        r = cli.weft("pull", *words, *FAST, env={**self.env, **(env or {})}, timeout=60, **more)
        self.assertEqual(r.code, code, r.err)
        self.assertIn(says, r.err)
        self.assertNotIn(TOKEN, r.err + r.text)
        return r

    def there(self):
        """Files below the folder of models, by their paths there."""
        out = {}
        for folder, _, names in os.walk(self.models):
            for name in names:
                path = os.path.join(folder, name)
                out[os.path.relpath(path, self.models)] = pathlib.Path(path).read_bytes()
        return out

    def begin(self, *words, size):
        """A call whose server stalls after `size` bytes; returns once they are there."""
        self.hub.stall, self.hub.cuts = threading.Event(), [size]
        p = subprocess.Popen(cli.argv("pull", *words, *FAST), env={**os.environ, **self.env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(p.communicate)
        self.addCleanup(p.kill)
        end = time.monotonic() + hub.STALL - 20
        while not any(name.endswith(".part") and len(content) == size for name, content in self.there().items()):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        return p

    def asked_from(self):
        """Where the requests for contents began."""
        return [headers.get("Range", "bytes=0-").removeprefix("bytes=") for _, path, headers in self.hub.log if "/cdn/" in path or path.endswith(".gguf") and "/resolve/" not in path]


class Whole(TestCase):
    def test_by_type_then_run_by_name(self):
        demo = pathlib.Path(DEMO).read_bytes()
        self.hub.repos["org/Story-GGUF"] = {"README.md": b"x", "story-Q4_K_M.gguf": demo, "story-Q8_0.gguf": gguf(2000), "mmproj-story-Q4_K_M.gguf": gguf(9)}
        r = self.pull("hf:org/Story-GGUF", says="story-Q4_K_M.gguf is fetched, and its checksum is right: `weft run story-Q4_K_M`")
        self.assertEqual(r.out, b"")
        self.assertEqual(self.there(), {"story-Q4_K_M.gguf": demo})
        want = self.ok("run", *cli.GREEDY, "-p", "One day", "-n", 5).out
        self.assertEqual(self.ok("run", "story-Q4_K_M", "One day", "-n", 5, *cli.GREEDY, env=self.env).out, want)
        self.assertRegex(self.ok("list", env=self.env).text, rf"(?m)^story-Q4_K_M +GGUF .* {self.hub.url}/org/Story-GGUF$")
        self.hub.log.clear()
        self.pull("org/Story-GGUF", says="story-Q4_K_M.gguf is there already, and its checksum is right")
        self.assertEqual(self.asked_from(), [])

    def test_run_by_its_place(self):
        """-hf fetches what is not there, and runs it."""
        self.hub.repos["org/Story-GGUF"] = {"story-Q4_K_M.gguf": pathlib.Path(DEMO).read_bytes(), "story-Q8_0.gguf": gguf(2000)}
        want = self.ok("run", *cli.GREEDY, "-p", "One day", "-n", 5).out
        url = f"{self.hub.url}/org/Story-GGUF/resolve/main/story-Q4_K_M.gguf"
        for words, times in ((["-hf", "org/Story-GGUF"], 1), (["-hf", "org/Story-GGUF:Q4_K_M"], 0), (["--hf-repo", "hf:org/Story-GGUF"], 0), (["-mu", url], 0)):
            self.hub.log.clear()
            r = self.ok("run", *words, "-p", "One day", "-n", 5, *cli.GREEDY, *FAST, env=self.env)
            self.assertEqual((r.out, len(self.asked_from())), (want, times), words)
        self.assertEqual(list(self.there()), ["story-Q4_K_M.gguf"])
        r = cli.weft("run", "-hf", "org/None", "-p", "x", *FAST, env=self.env)
        self.assertEqual((r.code, r.out), (RUNTIME, b""), r.err)

    def test_served_by_its_place(self):
        """--models -hf fetches it into the folder that is served, and loads it at the start."""
        self.hub.repos["org/Story-GGUF"] = {"story-Q4_K_M.gguf": pathlib.Path(DEMO).read_bytes()}
        p = subprocess.Popen(cli.argv("serve", "--models", "-hf", "org/Story-GGUF", "--port", 0, *cli.CPU, *FAST), env={**os.environ, **self.env},
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(p.communicate)
        self.addCleanup(p.kill)
        lines = []
        while not lines or "is ready on" not in lines[-1]:
            lines.append(p.stderr.readline().decode())
            self.assertTrue(lines[-1], lines)
        self.assertIn("story-Q4_K_M is ready on", lines[-1])
        port = re.search(r"http://127.0.0.1:(\d+)", "".join(lines)).group(1)
        self.assertRegex(self.ok("ps", "--port", port).text, r"(?m)^story-Q4_K_M +[\d.]+ MiB ")
        p.send_signal(signal.SIGTERM)
        self.assertEqual(p.wait(60), 0)

    def test_as_people_type_it(self):
        q4, q8, deep = gguf(3000, 1), gguf(2000, 2), gguf(1000, 3)
        self.hub.repos["org/repo"] = {"m.Q4_K_M.gguf": q4, "m.q8_0.gguf": q8, "sub dir/m-UD-IQ2_M.gguf": deep}
        page = f"{self.hub.url}/org/repo"
        for typed, name in (("org/repo", "m.Q4_K_M"), ("hf:org/repo:Q8_0", "m.q8_0"), ("hf.co/org/repo:q8_0", "m.q8_0"), ("https://huggingface.co/org/repo", "m.Q4_K_M"),
                            ("huggingface.co/org/repo:UD-IQ2_M", "m-UD-IQ2_M"), ("hf://org/repo:iq2_m", "m-UD-IQ2_M"), ("org/repo:m.q8_0.gguf", "m.q8_0"), (page, "m.Q4_K_M"), (page + "/tree/main", "m.Q4_K_M"),
                            (page + "/blob/main/m.q8_0.gguf", "m.q8_0"), (page + "/resolve/main/sub%20dir/m-UD-IQ2_M.gguf?download=true", "m-UD-IQ2_M")):
            with self.subTest(typed):
                self.assertIn(f"/{name}.gguf", self.pull(typed, "--dry-run").err)
        self.pull("org/repo:IQ2_M", "-o", "deep")
        self.assertEqual(self.there(), {"deep.gguf": deep})
        for typed in ("org", "a/b/c", "hf:", "hf:org/", "hf:org/repo:", "../x", "org/repo:../x", "ftp://host/x.gguf", "file:///etc/passwd", "hf:org/re%2fpo", "hf:org/repo/blob", "hf:org/repo/settings", "", "https://"):
            with self.subTest(typed):
                self.pull(typed, code=USAGE)
        self.assertNotIn("/etc", str(self.hub.log))

    def test_revision(self):
        self.hub.repos["org/repo"] = {"m.gguf": gguf(100)}
        self.pull(f"{self.hub.url}/org/repo/tree/v1.0")
        self.assertTrue(all("main" not in path for _, path, _ in self.hub.log))
        self.assertIn("/org/repo/resolve/v1.0/m.gguf", [path for _, path, _ in self.hub.log])

    def test_types(self):
        self.hub.repos["org/repo"] = {"m-Q8_0.gguf": gguf(9), "m-F16-00001-of-00002.gguf": gguf(9), "m-F16-00002-of-00002.gguf": gguf(9)}
        self.pull("org/repo", code=RUNTIME, says="org/repo has no Q4_K_M; it has Q8_0, F16: name one, as in hf:org/repo:TYPE")
        self.pull("org/repo:Q5_K_M", code=RUNTIME, says="org/repo has no type 'Q5_K_M'; it has Q8_0, F16\n")
        self.pull(f"{self.hub.url}/org/repo/blob/main/m-Q8.gguf", code=RUNTIME, says="org/repo has no file m-Q8.gguf; did you mean m-Q8_0.gguf?")
        self.hub.repos["org/repo"] = {"a-Q8_0.gguf": gguf(9), "b-Q8_0.gguf": gguf(9)}
        self.pull("org/repo:Q8_0", code=RUNTIME, says="several files of type Q8_0, such as a-Q8_0.gguf and b-Q8_0.gguf: name one, as in hf:org/repo:b-Q8_0.gguf")
        self.hub.repos["org/repo"] = {"README.md": b"x", "model.bin": b"x"}
        self.pull("org/repo", code=RUNTIME, says="org/repo has neither a GGUF file nor safetensors")
        self.assertEqual(self.there(), {})

    def test_split(self):
        parts = {f"BF16/big-BF16-0000{i}-of-00003.gguf": gguf(500 + i, i) for i in (1, 2, 3)}
        self.hub.repos["org/big"] = {**parts, "big-Q8_0.gguf": gguf(99)}
        self.pull("org/big:BF16", says="`weft run big-BF16-00001-of-00003`")
        self.assertEqual(self.there(), {os.path.basename(p): c for p, c in parts.items()})
        self.pull("org/big:BF16", "-o", "own", says="`weft run own-00001-of-00003`")
        self.assertEqual(sum(name.startswith("own-0000") for name in self.there()), 3)
        del self.hub.repos["org/big"]["BF16/big-BF16-00002-of-00003.gguf"]
        self.pull("org/big:BF16", "-o", "third", code=RUNTIME, says="part 2 of 3 of big-BF16-00001-of-00003.gguf is not there")

    def test_folder(self):
        files = {"config.json": b"{}", "tokenizer.json": b"[1]", "tokenizer_config.json": b"{}", "chat_template.jinja": b"x", "generation_config.json": b"{}", "model.safetensors.index.json": b"{}",
                 "model-00001-of-00002.safetensors": gguf(700, 1), "model-00002-of-00002.safetensors": gguf(800, 2)}
        beside = {"README.md": b"x", "pytorch_model.bin": b"x", "consolidated.safetensors": b"x", "onnx/model.safetensors": b"x", "original/config.json": b"x"}
        self.hub.repos["org/Llama"] = {**files, **beside}
        self.hub.cuts = [3, None, None, 100]  # the first file is broken off, and then the second shard
        self.pull("hf:org/Llama", "WEFT_PULL_RETRIES=0", code=RUNTIME)
        self.assertIn("Llama.part/model-00001-of-00002.safetensors.part", self.there())
        self.assertRegex(self.ok("list", env=self.env).text, r"(?m)^Llama +unfinished ")
        self.pull("hf:org/Llama", says="Llama is fetched, and its checksum is right: `weft run Llama`")
        self.assertEqual(self.there(), {"Llama/" + name: c for name, c in files.items()})
        self.assertRegex(self.ok("list", env=self.env).text, r"(?m)^Llama +safetensors .*/org/Llama$")
        self.pull("hf:org/Llama", says="Llama is there already")
        self.hub.repos["org/Llama"]["config.json"] = b"{ }"
        self.pull("hf:org/Llama", code=RUNTIME, says="-o NAME gives this one another name, or remove that one with rm -r")
        self.pull("hf:org/Llama", "-o", "Newer")
        self.assertEqual(self.there()["Newer/config.json"], b"{ }")

    def test_address(self):
        content, parts = gguf(4000), {f"/x/p-0000{i}-of-00002.gguf": gguf(50 + i, i) for i in (1, 2)}
        self.hub.routes = {"/x/m q.gguf": lambda h: self.hub.send_file(h, content), "/x/get": lambda h: self.hub.send_file(h, content),
                           **{path: lambda h, c=c: self.hub.send_file(h, c) for path, c in parts.items()}}
        at = f"http://user:pass@127.0.0.1:{self.hub.port}/x"
        r = self.pull(f"{at}/m%20q.gguf?sig=abc#f", says="m q.gguf is fetched: `weft run m q`")
        self.assertEqual(self.there(), {"m q.gguf": content})
        text = self.ok("list", env=self.env).text
        self.assertRegex(text, rf"(?m)^m q .* http://127.0.0.1:{self.hub.port}/x/m%20q.gguf$")
        self.assertNotIn("pass", text + r.err)
        self.pull(f"{at}/get", code=USAGE, says="give one with -o NAME")
        self.pull(f"{at}/get", "-o", "got.gguf")
        self.assertEqual(self.there()["got.gguf"], content)
        self.pull(f"{at}/p-00001-of-00002.gguf")
        self.assertEqual({os.path.join("/x", n) for n in self.there() if n.startswith("p-")}, set(parts))
        self.pull(f"{at}/absent.gguf", code=RUNTIME, says="answers 404, not found")

    def test_dry_run(self):
        self.hub.repos["org/repo"] = {"m-00001-of-00002.gguf": gguf(2048), "m-00002-of-00002.gguf": gguf(1024)}
        r = self.pull("org/repo", "--dry-run", says=f"3.00 KiB from {self.hub.url}/org/repo, for {self.models}/m-00001-of-00002.gguf")
        self.assertEqual([line.split() for line in r.text.splitlines()], [["m-00001-of-00002.gguf", "2.00", "KiB"], ["m-00002-of-00002.gguf", "1.00", "KiB"]])
        self.hub.routes["/x.gguf"] = lambda h: self.hub.send_file(h, gguf(5000))
        self.assertRegex(self.pull(self.hub.url + "/x.gguf", "--dry-run").text, r"x.gguf +4.88 KiB")
        self.assertEqual(self.hub.log[-1][0], "HEAD")
        self.assertFalse(os.path.exists(self.models))

    def test_commands_of_the_documents(self):
        """They name repositories that this hub then has."""
        self.env["WEFT_MODELS"] = self.models
        lines = [line.split() for text in [*cli.documents().values(), self.ok("pull", "--help").text] for line in re.findall(r"(?m)^ *weft pull ([^#\n]*)", text) if "SOURCE" not in line]
        self.assertGreaterEqual(len(lines), 4)
        for words in lines:
            repo = re.match(r"(?:hf:)?([\w.-]+/[\w.-]+)", words[0])
            if not words[0].startswith("http"):
                self.hub.repos[repo[1]] = {"m-Q4_K_M.gguf": gguf(9), "m-Q8_0.gguf": gguf(9)}
                self.pull(*words, "--dry-run")


class BrokenOff(TestCase):
    def setUp(self):
        super().setUp()
        self.content = gguf(100000)
        self.hub.repos["org/repo"] = {"m.gguf": self.content}

    def whole(self):
        self.assertEqual(self.there(), {"m.gguf": self.content})

    def test_several_times_in_one_call(self):
        self.hub.cuts = [1000, 0, 20000, 5]
        r = self.pull("org/repo", says="m.gguf is fetched, and its checksum is right")
        self.assertEqual(self.asked_from(), ["0-", "1000-", "1000-", "21000-", "21005-"])
        self.assertEqual(r.err.count("trying again in"), 4)
        self.whole()

    def test_over_several_calls(self):
        for have, cut in ((0, 1000), (1000, 30000), (31000, 1)):
            self.hub.log.clear()
            self.hub.cuts = [cut]
            self.pull("org/repo", "WEFT_PULL_RETRIES=0", code=RUNTIME)
            self.assertEqual(self.asked_from(), [f"{have}-"])
            self.assertEqual(len(self.there()["m.gguf.part"]), have + cut)
        self.assertRegex(self.ok("list", env=self.env).text, r"(?m)^m.gguf +unfinished +30.27 KiB")
        self.pull("org/repo", says="fetching m.gguf (97.66 KiB), goes on behind 30.27 KiB")
        self.whole()

    def test_gives_up(self):
        self.hub.cuts = [10] * 9
        self.pull("org/repo", "WEFT_PULL_RETRIES=3", code=RUNTIME, says="tried 4 times")
        self.assertEqual(len(self.asked_from()), 4)

    def test_without_etag_the_checksum_decides(self):
        self.hub.etags = False
        self.hub.cuts = [1000]
        self.pull("org/repo")
        self.assertEqual(self.asked_from(), ["0-", "1000-"])
        self.whole()

    def test_server_without_range(self):
        self.hub.ranges, self.hub.cuts = False, [1000]
        self.pull("org/repo", says="m.gguf: the server does not go on, or the file has changed there: it is fetched from the start")
        self.whole()

    def test_changed_between_calls(self):
        self.hub.cuts = [1000]
        self.pull("org/repo", "WEFT_PULL_RETRIES=0", code=RUNTIME)
        self.content = self.hub.repos["org/repo"]["m.gguf"] = gguf(90000, 7)
        self.pull("org/repo", says="it has changed since: it is fetched from the start")
        self.whole()

    def test_changed_between_tries(self):
        """Of an address: only the ETag tells."""
        contents = [gguf(50000, 1), gguf(50000, 2)]
        for weak in ("", "W/"):
            left = list(contents)

            def send(h):
                content = left.pop(0) if len(left) > 1 else left[0]
                self.hub.send_file(h, content, weak + hub.etag_of(content))
            self.hub.routes["/m.gguf"] = send
            self.hub.cuts = [1000]
            self.pull(f"{self.hub.url}/m.gguf", "--force", says="it is fetched from the start")
            self.assertEqual(self.there(), {"m.gguf": contents[1]})

    def test_an_address_that_says_nothing_is_fetched_anew(self):
        self.hub.etags, self.hub.cuts = False, [1000]
        self.hub.routes["/m.gguf"] = lambda h: self.hub.send_file(h, self.content)
        self.pull(f"{self.hub.url}/m.gguf", "WEFT_PULL_RETRIES=0", code=RUNTIME)
        self.pull(f"{self.hub.url}/m.gguf", says="nothing by which to know that it is still the same file: it is fetched from the start")
        self.whole()

    def test_killed(self):
        p = self.begin("org/repo", size=40000)
        p.kill()
        p.wait()
        self.hub.stall, self.hub.log = None, []
        self.pull("org/repo")
        self.assertEqual(self.asked_from(), ["40000-"])
        self.whole()

    def test_all_was_there_but_the_name(self):
        self.hub.cuts = [100]
        self.pull("org/repo", "WEFT_PULL_RETRIES=0", code=RUNTIME)
        pathlib.Path(self.models, "m.gguf.part").write_bytes(self.content)
        self.hub.log.clear()
        self.pull("org/repo")
        self.assertEqual(self.asked_from(), [])
        self.whole()

    def test_all_of_an_address_was_there(self):
        """Its length is known only from the answer that nothing is behind it."""
        self.hub.routes["/m.gguf"] = lambda h: self.hub.send_file(h, self.content)
        for left, told in ((self.content, "is fetched"), (self.content + b"more", "it is fetched from the start")):
            self.hub.cuts = [100]
            self.pull(f"{self.hub.url}/m.gguf", "--force", "WEFT_PULL_RETRIES=0", code=RUNTIME)
            pathlib.Path(self.models, "m.gguf.part").write_bytes(left)
            self.hub.log.clear()
            self.pull(f"{self.hub.url}/m.gguf", "--force", says=told)
            self.assertEqual(self.asked_from()[0], f"{len(left)}-")
            self.whole()

    def test_length_that_is_not_said(self):
        self.hub.length = False
        self.hub.routes["/m.gguf"] = lambda h: self.hub.send_file(h, self.content)
        self.pull(f"{self.hub.url}/m.gguf")
        self.whole()

    def test_signals(self):
        for sig, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            p = self.begin("org/repo", "WEFT_PULL_STALL=1000", size=40000)
            p.send_signal(sig)
            err = p.communicate(timeout=hub.STALL - 20)[1].decode()  # before the hub lets it go on
            self.assertEqual(p.returncode, code)
            self.assertIn("stopped: 39.06 KiB of m.gguf are there, and the same command goes on from there", err)
            self.hub.stall, self.hub.log = None, []
            self.pull("org/repo")
            self.assertEqual(self.asked_from(), ["40000-"])
            self.whole()
            os.remove(os.path.join(self.models, "m.gguf"))

    def test_two_at_once(self):
        p = self.begin("org/repo", size=1000)
        self.pull("org/repo", code=RUNTIME, says="another weft is fetching m.gguf")
        self.hub.stall.set()
        p.communicate(timeout=hub.STALL)
        self.assertEqual(p.returncode, 0)
        self.whole()

    def test_stalled(self):
        """Again if the hub, which is this program, was silent for a second before it sent anything."""
        for _ in range(20):
            self.hub.stall, self.hub.cuts = threading.Event(), [1000]
            said = self.pull("org/repo", "WEFT_PULL_STALL=1", "WEFT_PULL_RETRIES=0", code=RUNTIME, says="has sent nothing for 1 s").err
            self.hub.stall.set()
            if f"http://localhost:{self.hub.port} has" in said:
                return
        self.fail(said)

    def test_disk_full(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (50000, 50000))
        self.pull("org/repo", code=RUNTIME, says="with more room the same command goes on from there", preexec_fn=limit)
        self.pull("org/repo")
        self.assertEqual(self.asked_from()[-1], "50000-")
        self.whole()

    def test_room_is_checked_before(self):
        self.hub.lie["m.gguf"] = {"lfs": {"oid": "0" * 64, "size": 1 << 60}}
        self.pull("org/repo", code=RUNTIME, says="make room, or name another folder by WEFT_MODELS")
        self.assertEqual(self.asked_from(), [])

    def test_terminal(self):
        """A bar with rate and time left, which the result replaces."""
        pieces = [self.content[i:i + 5000] for i in range(0, len(self.content), 5000)]

        def slow(h):
            h.send_response(200)
            h.send_header("Content-Length", str(len(self.content)))
            h.end_headers()
            for piece in pieces:
                h.wfile.write(piece)
                time.sleep(0.14)
        self.hub.routes["/cdn/org/repo/m.gguf"] = slow
        ours, theirs = pty.openpty()
        p = subprocess.Popen([cli.WEFT, "pull", "org/repo"], env={**os.environ, **self.env}, stderr=theirs)
        os.close(theirs)
        text = b""
        while True:
            try:
                text += os.read(ours, 4096)
            except OSError:
                break
        os.close(ours)
        self.assertEqual(p.wait(), 0)
        self.assertRegex(text.decode(), r"fetching \[#+\.+\] +\d+ %, [\d.]+ KiB of 97.66 KiB, [\d.]+ KiB/s, \d+ s left")
        self.assertRegex(text.decode(), r"\r\x1b\[Kweft: m.gguf is fetched")


class Lies(TestCase):
    def setUp(self):
        super().setUp()
        self.content = gguf(50000)
        self.hub.repos["org/repo"] = {"m.gguf": self.content}

    def refused(self, says, *words, source="org/repo", **more):
        r = self.pull(source, "WEFT_PULL_RETRIES=1", *words, code=RUNTIME, says=says, **more)
        self.assertEqual(self.there(), {})
        return r

    def test_checksum(self):
        self.hub.routes["/cdn/org/repo/m.gguf"] = lambda h: self.hub.send_file(h, self.content[:-1] + b"!")
        self.refused("the checksum is ")
        self.hub.cuts = [20000]  # also where it is computed in two pieces
        self.refused("the file is removed; fetch it again")

    def test_checksum_of_a_small_file(self):
        files = self.hub.repos["org/repo"] = {"model.safetensors": gguf(10), "config.json": b"{}"}
        self.hub.routes["/org/repo/resolve/main/config.json"] = lambda h: self.hub.send_file(h, b"[]")
        self.pull("org/repo", code=RUNTIME, says="config.json: the checksum is ")
        self.assertEqual(self.there(), {"repo.part/model.safetensors": files["model.safetensors"]})

    def test_checksum_behind_an_address(self):
        """An address that redirects as the hub does names the checksum on the way."""
        self.hub.routes["/m.gguf"] = lambda h: self.hub.send(h, 302, Location=f"{self.hub.url}/cdn/org/repo/m.gguf", X_Linked_ETag=f'"{"0" * 64}"')
        self.refused("but should be 0000", source=f"{self.hub.other}/m.gguf")

    def test_length(self):
        self.hub.lie["m.gguf"] = {"lfs": {"oid": "0" * 64, "size": 40000}}
        self.refused("the server sends 50000 bytes, where it should have 40000")

    def test_more_bytes_than_said(self):
        self.hub.length = False
        self.hub.lie["m.gguf"] = {"lfs": {"oid": "0" * 64, "size": 40000}}
        r = self.pull("org/repo", "WEFT_PULL_RETRIES=0", code=RUNTIME, says="more bytes than it has said: refused")
        self.assertTrue(all(len(content) <= 40000 for content in self.there().values()), r.err)

    def test_fewer_bytes_than_said(self):
        self.hub.length = False
        self.hub.cuts = [10000] * 9
        self.pull("org/repo", "WEFT_PULL_RETRIES=1", code=RUNTIME, says="the server has broken off; tried 2 times")
        self.pull("org/repo")
        self.assertEqual(self.there(), {"m.gguf": self.content})

    def test_other_range_than_asked_for(self):
        def shifted(h):
            if "Range" not in h.headers:
                return self.hub.send_file(h, self.content)
            body = self.content[500:]
            self.hub.send(h, 206, body, Content_Range=f"bytes 500-{len(self.content) - 1}/{len(self.content)}")
        self.hub.routes["/cdn/org/repo/m.gguf"] = shifted
        self.hub.cuts = [1000]
        self.pull("org/repo", says="the server answers with other bytes than asked for")
        self.assertEqual(self.there(), {"m.gguf": self.content})

    def test_web_page(self):
        self.hub.routes["/x.gguf"] = lambda h: self.hub.send(h, 200, b"<!doctype html>log in")
        self.refused("what the server sent for x.gguf is no GGUF file", source=self.hub.url + "/x.gguf")

    def test_names(self):
        for path in ("../m.gguf", "a/../../m.gguf", "/etc/m.gguf", ".m.gguf", "..\\m.gguf", "C:m.gguf", "m\x1b[31m.gguf", "m\n.gguf", "x/.ssh/m.gguf", "m" * 300 + ".gguf"):
            with self.subTest(path):
                self.hub.repos["org/repo"] = {path: self.content}
                r = self.refused("which cannot be a name here: refused")
                self.assertNotIn("\x1b", r.err)
        self.assertEqual(os.listdir(self.home), ["models"] if os.path.exists(self.models) else [])
        self.hub.repos["org/repo"] = {"m.gguf": self.content}
        for name in ("..", "a/b", ".x", "a\\b", "x.part", "", "m" * 250):
            with self.subTest(name):
                self.pull("org/repo", "-o", name, code=USAGE, says="is no name in the folder of models")

    def test_nul_in_a_name(self):
        self.hub.routes["/api/models/org/repo/tree/main"] = lambda h: self.hub.send(h, 200, b'[{"type": "file", "size": 1, "path": "m.gguf\\u0000.sh"}]')
        self.refused("bad JSON")

    def test_json(self):
        tree = "/api/models/org/repo/tree/main"
        for body, says in ((b"[" * 100000, "bad JSON"), (b"{}", "is no list"), (b"", "bad JSON"), (b"[1, null, {}, {\"path\": 3}, {\"type\": \"file\", \"path\": \"m.gguf\", \"size\": -1}]", "neither a GGUF file"),
                           (b" " * (17 << 20), "has more than 16 MiB: refused")):
            self.hub.routes[tree] = lambda h: self.hub.send(h, 200, body)
            self.refused(says)

    def test_pages(self):
        entries = [self.hub.entry("m.gguf", self.content)]
        tree, page = "/api/models/org/repo/tree/main", f"{self.hub.url}/page2"
        self.hub.routes[tree] = lambda h: self.hub.send(h, 200, b"[]", Link=f'<{page}>; rel="next"')
        self.hub.routes["/page2"] = lambda h: self.hub.send(h, 200, json.dumps(entries).encode())
        self.pull("org/repo")
        self.assertEqual(self.there(), {"m.gguf": self.content})
        os.remove(os.path.join(self.models, "m.gguf"))
        self.hub.routes["/page2"] = lambda h: self.hub.send(h, 200, b"[]", Link=f'<{page}>; rel="next"')
        self.refused("has more files than 20 pages")
        page = f"{self.hub.other}/page2"
        self.refused("goes on elsewhere: refused")

    def test_redirects(self):
        self.hub.routes["/cdn/org/repo/m.gguf"] = lambda h: self.hub.send(h, 302, Location="/cdn/org/repo/m.gguf")
        self.refused("redirects more than 10 times")
        for to in ("file:///etc/passwd", "ftp://localhost/x", "gopher://localhost/"):
            self.hub.routes["/cdn/org/repo/m.gguf"] = lambda h: self.hub.send(h, 302, Location=to)
            self.refused("redirects to an address that is not https: refused")

    def test_token_goes_to_the_hub_alone(self):
        path = os.path.join(self.home, "token")
        pathlib.Path(path).write_text(TOKEN + "\n")
        os.makedirs(os.path.join(self.home, ".cache/huggingface"))
        os.link(path, os.path.join(self.home, ".cache/huggingface/token"))
        for env in ({"HF_TOKEN": TOKEN}, {"HF_TOKEN_PATH": path}, {"HF_HOME": self.home}, {}):
            self.hub.log.clear()
            self.pull("org/repo", "--force", "-o", "m%d" % len(env) + "".join(env), env=env)
            kinds = {("/cdn/" in path, "Authorization" in headers) for _, path, headers in self.hub.log}
            self.assertEqual(kinds, {(False, True), (True, False)})
            self.assertEqual({h["Authorization"] for _, _, h in self.hub.log if "Authorization" in h}, {"Bearer " + TOKEN})
        self.hub.log.clear()
        self.hub.routes["/x.gguf"] = lambda h: self.hub.send_file(h, self.content)
        self.pull(f"{self.hub.other}/x.gguf")
        self.assertNotIn(TOKEN, str(self.hub.log))
        self.pull("org/repo", code=USAGE, says="the token of the hub", env={"HF_TOKEN": TOKEN + "\nX-Evil: 1"})

    def test_no_access(self):
        for status in (401, 403):
            self.hub.routes["/org/repo/resolve/main/m.gguf"] = lambda h: self.hub.send(h, status, X_Error_Code="GatedRepo")
            self.refused(f"{status}, no access to {self.hub.url}/org/repo: it is gated or private. Accept its licence on that page, and set HF_TOKEN")
            self.refused("or the token may not read it", env={"HF_TOKEN": TOKEN})

    def test_no_repository(self):
        self.refused("the hub has no repository org/rpeo that can be seen without a token (HF_TOKEN); did you mean org/repo?", source="org/rpeo")
        self.hub.routes["/api/models/org/rpeo/tree/main"] = lambda h: self.hub.send(h, 401, X_Error_Code="RepoNotFound")
        self.refused("did you mean org/repo?", source="org/rpeo")
        self.hub.routes["/api/models/org/repo/tree/v2"] = lambda h: self.hub.send(h, 404, X_Error_Code="RevisionNotFound")
        self.refused("org/repo has no revision 'v2'", source=f"{self.hub.url}/org/repo/tree/v2")

    def test_busy(self):
        answers = [lambda h: self.hub.send(h, 429, Retry_After="1"), lambda h: self.hub.send(h, 503)]
        self.hub.routes["/cdn/org/repo/m.gguf"] = lambda h: answers.pop(0)(h) if answers else self.hub.send_file(h, self.content)
        r = self.pull("org/repo", says="answers 429, too many requests; trying again in 1 s")
        self.assertIn("answers 503; trying again in ", r.err)
        os.remove(os.path.join(self.models, "m.gguf"))
        answers[:] = [lambda h: self.hub.send(h, 429, Retry_After="100000")]
        self.refused("it asks to wait for 100000 s: try again then")

    def test_nobody_there(self):
        self.refused("cannot fetch from http://127.0.0.1:1: ", env={"HF_ENDPOINT": "http://127.0.0.1:1"})

    def test_tls_is_verified_and_kept(self):
        key, cert = (os.path.join(self.home, name) for name in ("key", "cert"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert, "-subj", "/CN=x",
                        "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        safe = hub.Hub(cert, key)
        self.addCleanup(safe.close)
        trusted, at = {"SSL_CERT_FILE": cert}, f"{safe.url}/x.gguf"
        safe.routes["/x.gguf"] = lambda h: safe.send_file(h, self.content)
        self.refused("certificate", source=at)
        self.refused("certificate", source=at.replace("127.0.0.1", "localhost"), env=trusted)
        self.assertEqual(safe.log, [])
        self.hub.routes["/x.gguf"] = lambda h: self.hub.send_file(h, self.content)
        safe.routes["/x.gguf"] = lambda h: safe.send(h, 302, Location=f"{self.hub.url}/x.gguf")
        self.refused("redirects to an address that is not https: refused", source=at, env=trusted)
        self.assertEqual(self.hub.log, [])
        safe.routes["/x.gguf"] = lambda h: safe.send_file(h, self.content)
        self.hub.routes["/x.gguf"] = lambda h: self.hub.send(h, 302, Location=at)
        self.pull(f"{self.hub.url}/x.gguf", env=trusted)
        self.assertEqual(self.there(), {"x.gguf": self.content})


class Others(TestCase):
    def test_files_that_are_there(self):
        self.hub.repos["org/repo"] = {"m.gguf": gguf(1000)}
        os.mkdir(self.models)
        path = os.path.join(self.models, "m.gguf")
        for content in (b"mine", gguf(1000, 5)):
            pathlib.Path(path).write_bytes(content)
            self.pull("org/repo", code=RUNTIME, says=f"{path} is there, and may be another file: -o NAME gives this one another name, --force replaces that one")
            self.assertEqual(self.there(), {"m.gguf": content})
        self.pull("org/repo", "--force")
        self.assertEqual(self.there(), {"m.gguf": gguf(1000)})

    def test_links_are_not_followed(self):
        self.hub.repos["org/repo"] = {"m.gguf": gguf(1000)}
        os.mkdir(self.models)
        mine = os.path.join(self.home, "mine")
        pathlib.Path(mine).write_text("mine")
        for name in ("m.gguf.part", "m.gguf.pull"):
            os.symlink(mine, os.path.join(self.models, name))
            self.pull("org/repo", code=RUNTIME, says="cannot write")
            for left in os.listdir(self.models):
                os.remove(os.path.join(self.models, left))
        self.assertEqual(pathlib.Path(mine).read_text(), "mine")

    def test_folder_that_cannot_be_written(self):
        self.hub.repos["org/repo"] = {"m.gguf": gguf(1000)}
        self.pull("org/repo", code=RUNTIME, says="cannot write to /dev/null/x", env={"WEFT_MODELS": "/dev/null/x"})

    def test_quiet(self):
        self.hub.repos["org/repo"] = {"m.gguf": gguf(1000)}
        self.assertEqual(self.pull("org/repo", "-q").err, "")

    def test_words(self):
        self.pull(code=USAGE, says="what to fetch is missing")
        self.pull("org/repo", "more", code=USAGE, says="unexpected argument 'more'")

    def test_nothing_else_fetches(self):
        """Other commands name the one that does, and open no connection."""
        self.hub.repos["org/repo"] = {"m-Q4_K_M.gguf": gguf(1000)}
        for word in ("hf:org/repo", f"{self.hub.url}/org/repo", "hf.co/org/repo:Q8_0"):
            for command in (["run"], ["serve", "--port", 0], ["info"]):
                self.fails(MODEL, f"nothing is fetched unless you ask: `weft pull {word}` fetches it", *command, "-m", word, env=self.env)
        self.fails(MODEL, "if it is a repository of the hub, `weft pull org/repo:Q4_K_M` fetches it", "run", "org/repo:Q4_K_M", env=self.env)
        self.assertNotIn("weft pull", self.fails(MODEL, "", "run", "./org/repo", env=self.env).err)
        self.ok("list", env=self.env)
        self.assertEqual(self.hub.log, [])


if __name__ == "__main__":
    cli.main()
