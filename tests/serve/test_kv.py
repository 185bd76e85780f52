"""Blocks of KV below the cache (--kv-host, --kv-disk) change how long an answer takes, and nothing of it: also after the
server was killed, and never for another tenant."""
import concurrent.futures as futures
import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import serve
from serve import Server, at_once, cli

PAGE, CONTEXT = 16, 256
# Conversations that together need several times the KV cache; each goes on.
STARTS = [f"{name} {serve.PROMPTS[i % 6]} and saw {i} birds. " + "They sang and danced all day long. " * (4 + i % 4)
          for i, name in enumerate("Tom Lily Mia Ben Sue Max Ann Tim Zoe Sam Eve Bob".split())]
ALWAYS = {"WEFT_KV_STORE_ALWAYS": "1", "WEFT_KV_LOAD_ALWAYS": "1"}
COUNTED = ("failed_total", "paused_total", "dropped_total", "evicted_total")
ARGS = ["-c", CONTEXT, "--max-num-seqs", 4, "--kv-memory", "2M", "--deterministic", *serve.ONE_ROUNDING]


def rounds(server, n=2, at_a_time=1, **fields):
    """The answer in each round of each conversation, and how many tokens of its prompt were found, of how many."""
    texts, cached = {}, {}

    def talk(i):
        prompt = STARTS[i]
        for k in range(n):
            r = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True, **fields})
            assert r.status == 200, r.body
            usage = r.json["usage"]
            texts[i, k], cached[i, k] = r.text, (usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"])
            prompt += r.text + " Then they went home."

    if at_a_time == 1:
        for i in range(len(STARTS)):
            talk(i)
    else:
        at_once(len(STARTS), talk)
    return texts, cached


class Below(serve.cli.TestCase):
    @classmethod
    def setUpClass(cls):
        plain = Server(*ARGS, "--no-prefix-cache")
        cls.want = rounds(plain)[0]
        plain.end()

    def test_same_answers(self):
        """Whatever is loaded, one conversation at a time and all at once."""
        server = Server(*ARGS, "--kv-host", "64M", env=ALWAYS)
        try:
            first = server.metrics()  # before its first step
            self.assertEqual({first[f'kv_offload_{what}{{tier="host"}}'] for what in (*COUNTED, "used_bytes")}, {0})
            self.assertFalse([name for name in first if "disk" in name])
            room = first['kv_offload_size_bytes{tier="host"}']
            self.assertIn(room, range(63 << 20, (64 << 20) + 1))
            server.line(r"below the KV cache 6[34]\.\d\d MiB of host memory hold \S+ tokens, and 0 B of disk 0$")
            for at_a_time in (1, 12, 12, 1, 1, 1):
                got, cached = rounds(server, at_a_time=at_a_time)
                self.assertEqual(got, self.want)
                # sooner or later all full blocks of a prompt are known, but that of its last token
                full = {k: ((n - 1) // PAGE * PAGE, n) for k, (_, n) in cached.items()}
                if cached == full:
                    break
            self.assertEqual(cached, full)
            seen = server.metrics()
            self.assertGreater(seen["external_prefix_cache_hits_total"], 500)
            self.assertGreaterEqual(seen["external_prefix_cache_queries_total"], seen["external_prefix_cache_hits_total"])
            self.assertEqual(seen['kv_offload_failed_total{tier="host"}'], 0)
            used, stored = seen['kv_offload_used_bytes{tier="host"}'], seen['kv_offload_total_bytes_total{transfer_type="GPU_to_CPU"}']
            self.assertEqual((used, seen['kv_offload_evicted_total{tier="host"}']), (stored, 0))
            self.assertGreaterEqual(seen["prompt_tokens_cached_total"], sum(n for n, _ in full.values()))
        finally:
            server.end()

    def test_restarts(self):
        """A file of blocks is found again after the server ended, and after it was killed, by who has the same salt."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "kv")
            args = [*ARGS, "--kv-host", "1M", "--kv-disk", f"{path}:64M"]
            for sig in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
                server = Server(*args, env=ALWAYS)
                try:
                    got, cached = rounds(server)
                    self.assertEqual(got, self.want)
                    seen = server.metrics()
                    self.assertGreater(sum(seen[f'kv_offload_total_bytes_total{{transfer_type="{way}"}}'] for way in ("CPU_to_disk", "disk_to_CPU")), 0)
                    self.assertEqual({seen[f'kv_offload_{what}{{tier="{tier}"}}'] for tier in ("host", "disk") for what in ("failed_total", "paused_total")}, {0})
                    self.assertLessEqual(seen['kv_offload_used_bytes{tier="host"}'], 1 << 20)
                    self.assertGreater(seen['kv_offload_evicted_total{tier="host"}'], 0)
                    last = {k: c for k, (c, _) in cached.items()}
                finally:
                    server.end(sig)
            full = {k: (n - 1) // PAGE * PAGE for k, (_, n) in cached.items()}
            self.assertTrue(all(last[k] <= full[k] for k in full), last)
            self.assertGreater(sum(last.values()), 0.8 * sum(full.values()), last)
            self.assertEqual(sorted((f, os.stat(os.path.join(folder, f)).st_mode & 0o777) for f in os.listdir(folder)),
                             [("kv", 0o600), ("kv.secret", 0o600)])
            server = Server(*args, env=ALWAYS)
            try:
                other = subprocess.run(Server.command(*args), stderr=subprocess.PIPE, timeout=serve.PATIENCE)
                self.assertNotEqual(other.returncode, 0)
                self.assertIn(b"another process uses", other.stderr)
                self.fails(cli.USAGE, "another process uses", "kv", path)
                got, cached = rounds(server, 1, cache_salt="another's")
                self.assertEqual({c for c, _ in cached.values()}, {0})
            finally:
                server.end()
            held = json.loads(self.ok("kv", path, "verify", "--json").text)
            self.assertEqual((held["damaged"], held["block_tokens"], len(held["models"])), (0, PAGE, 1), held)
            self.assertIn(f"{held['models'][0]['blocks']} of {held['slots']} slots", self.ok("kv", path).text)
            server = Server(*args, "-c", CONTEXT + 64, env=ALWAYS)  # a setting that K and V may depend on
            try:
                self.assertEqual({c for c, _ in rounds(server, 1)[1].values()}, {0})
            finally:
                server.end()
            self.assertEqual(len(json.loads(self.ok("kv", path, "--json").text)["models"]), 2)
            self.ok("kv", path, "empty")
            self.assertEqual(json.loads(self.ok("kv", path, "list", "--json").text)["models"], [])

    def test_kills(self):
        """Killed at any moment of a load and started again on the same file: whatever it answers is right."""
        kills = 4 * int(os.environ.get("WEFT_KV_ROUNDS", 1))
        draw, answered, found = random.Random(5), [0], [0]

        def talk(server, i):
            prompt = STARTS[i]
            for k in range(2):
                try:
                    r = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True})
                except (OSError, http.client.HTTPException):
                    return  # it was killed
                self.assertEqual(r.text, self.want[i, k])
                answered[0] += 1
                found[0] += r.json["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
                prompt += r.text + " Then they went home."

        with tempfile.TemporaryDirectory() as folder:
            args = [*ARGS, "--kv-host", "1M", "--kv-disk", f"{os.path.join(folder, 'kv')}:4M"]  # in which not all have room
            for _ in range(kills):
                server = Server(*args, env=ALWAYS)
                with futures.ThreadPoolExecutor(4) as pool:
                    talks = [pool.submit(talk, server, i) for i in draw.sample(range(len(STARTS)), len(STARTS))]
                    enough = answered[0] + draw.randrange(2, 9)
                    while answered[0] < enough and not all(t.done() for t in talks):
                        time.sleep(0.002)
                    time.sleep(draw.random() * 0.1)
                    server.end(signal.SIGKILL)
                for t in talks:
                    t.result()
            self.assertEqual(json.loads(self.ok("kv", os.path.join(folder, "kv"), "verify", "--json").text)["block_tokens"], PAGE)
        print(f"{kills} kills, {answered[0]} answers, {found[0]} of them with blocks that were found", file=sys.stderr)
        self.assertGreater(answered[0], kills)
        self.assertGreater(found[0], kills // 2)

    def test_bytes(self):
        """In Q8_0 a block takes half the room, and is not found by who has another format."""
        with tempfile.TemporaryDirectory() as folder:
            disk = ["--kv-disk", f"{os.path.join(folder, 'kv')}:64M"]
            cached = []
            for kv in ("q8_0", "q8_0", "f16"):
                server = Server(*ARGS, "--kv-dtype", kv, *disk, env=ALWAYS)
                try:
                    got, found = rounds(server, 1)
                    cached.append(sum(n for n, _ in found.values()))
                    if kv == "q8_0":
                        want = got if len(cached) == 1 else want
                        self.assertEqual(got, want)
                finally:
                    server.end()
            self.assertGreater(cached[1], cached[0])
            self.assertEqual(cached[2], cached[0])

    def test_other_weights(self):
        """A model that has been trained on has the same name, shapes and settings, and finds nothing of what it was before."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.gguf")
            shutil.copy(cli.data("stories260K.gguf"), path)
            found = []
            for trained in (False, False, True, True):
                if trained and len(found) == 2:
                    with open(path, "r+b") as f:
                        f.seek(-4, os.SEEK_END)  # the lowest bits of the last weight
                        low = f.read(1)[0]
                        f.seek(-4, os.SEEK_END)
                        f.write(bytes([low ^ 1]))
                server = Server("-m", path, "-c", CONTEXT, "--deterministic", "--kv-disk", f"{os.path.join(folder, 'kv')}:16M", env=ALWAYS)
                try:
                    usage = server.post("/v1/completions", {"prompt": STARTS[0], "max_tokens": 1}).json["usage"]
                    found.append(usage["prompt_tokens_details"]["cached_tokens"])
                finally:
                    server.end()
            full = (usage["prompt_tokens"] - 1) // PAGE * PAGE
            self.assertGreater(full, 0)
            self.assertEqual(found, [0, full, 0, full])

    def test_what_cannot_be(self):
        for words, *args in (("no_prefix turns off", "--kv-host", "1M", "--no-prefix-cache"), ("holds no page", "--kv-host", "9"),
                             ("such as /var", "--kv-disk", "/tmp/x"), ("such as /var", "--kv-disk", "/tmp/x:0"), ("/absent/kv", "--kv-disk", "/absent/kv:1G")):
            r = subprocess.run(Server.command(*args), stderr=subprocess.PIPE, timeout=serve.PATIENCE)
            self.assertNotEqual(r.returncode, 0)
            self.assertIn(words.encode(), r.stderr)


if __name__ == "__main__":
    serve.main()
