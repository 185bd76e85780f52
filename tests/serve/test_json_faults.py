"""The JSON library lacks memory at each place in turn: the answer is the whole one or an error, never a part. Its reader has none from the
system at all, whatever the body."""
import mmap
import os
import struct
import sys
import tempfile
import unittest

import serve
from serve import Server

LIBRARY = sys.argv.pop(1)
PARTS = ("choices", "usage", "data", "status", "content", "prompt", "tokens", "object", "model")


def counted(part):
    """Usage without what the prefix cache has."""
    return {**part, "prompt_tokens_details": {}} if part and "prompt_tokens_details" in part else part


class Faults(serve.cli.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "left")
        with open(path, "w+b") as f:
            f.write(bytes(8))
            f.flush()
            self.left = mmap.mmap(f.fileno(), 8)
        self.addCleanup(self.left.close)
        self.s = Server(env={"LD_PRELOAD": LIBRARY, "JSON_FAULTS": path})

    def every_fault(self, ask, what):
        """Whatever of ask's allocations fails. Their number."""
        want = ask()
        self.assertEqual(want[0], 200, want)
        for k in range(1, 3000):
            self.left[:] = struct.pack("<q", k)
            got = ask()
            reached = struct.unpack("<q", self.left[:])[0] <= 0
            self.left[:] = bytes(8)
            if not reached:
                self.assertEqual(got, want)
                self.assertGreater(k, 5, what)
                self.assertEqual(ask(), want)
                return
            if got[0] == 200:
                self.assertEqual(got, want, f"{what}: allocation {k}")
            else:
                self.assertIn(got[0], (500, "cut"), f"{what}: allocation {k}: {got}")
        self.fail("it asks for ever")

    def plain(self, method, path, body=None):
        def ask():
            try:
                r = self.s.request(method, path, body)
            except (serve.http.client.IncompleteRead, ValueError):  # Python's reader of chunks at the end of a cut list
                return ("cut",)
            if r.status != 200:
                self.assertGreater(len(r.error["message"]), 5)
            return r.status, {k: counted(r.json.get(k)) for k in PARTS}
        return ask

    def streamed(self, path, body):
        def ask():
            try:
                r = self.s.request("POST", path, {**body, "stream": True})
            except (serve.http.client.IncompleteRead, ValueError):
                return ("cut",)
            if r.status != 200:
                return r.status, r.error["message"]
            events = [e[6:] for e in r.body.decode().split("\n\n") if e.startswith("data: ")]
            if events[-1] != "[DONE]":
                return ("cut",)
            parts = [serve.json.loads(e) for e in events[:-1]]
            if any("error" in p for p in parts):
                return 500, "in the stream"
            text = "".join(c.get("text") or c.get("delta", {}).get("content") or "" for p in parts for c in p["choices"])
            logprobs = [c["logprobs"] for p in parts for c in p["choices"] if c["logprobs"]]
            tokens = sum(len(lp.get("tokens", lp.get("content"))) for lp in logprobs)
            return 200, text, tokens, [counted(p["usage"]) for p in parts if p.get("usage")], all(set(p) >= {"id", "choices", "model"} for p in parts)
        return ask

    def test_reader(self):
        """Bodies of every form at the limits: each is read as if there were memory, or refused for what it is."""
        good = '"prompt":"One day","max_tokens":2,"temperature":0'
        names = ",".join(f'"{i:x}":{i}' for i in range(500_000))
        for form, status in (('{%s}', 200), ('{%s,"x":"' + "a" * 8_000_000 + '"}', 200), ('{%s,"x":"' + "\\u00e9" * 1_000_000 + '"}', 200),
                             ('{%s,"' + "n" * 4_000_000 + '":1}', 200), ('{%s,"x":[' + "0," * 1_000_000 + '0]}', 200),
                             ('{%s,"x":[' + "{}," * 65_000 + '0]}', 200), ('{%s,"x":[' + "[1,2,3,4,5,6,7,8,9]," * 65_000 + '0]}', 200),
                             ('{%s,"x":[' + '{"a":"b"},' * 65_000 + '0]}', 200), ('{%s,"x":{' + names + '}}', 200),
                             ('{%s,"x":[' + '"abcdefgh",' * 500_000 + '0]}', 200), ('{%s,"x":[' + "1.5e10," * 900_000 + '0]}', 200),
                             ('{%s,"seed":18446744073709551615}', 200), ('{%s,"seed":18446744073709551616}', 400), ('{%s,"x":[1,}', 400), ('{%s', 400),
                             ('{%s,"x":' + "[" * 64 + '}', 400)):
            r = self.s.request("POST", "/v1/completions", form % good)
            self.assertEqual(r.status, status, (form[:30], r.body[:200]))
        self.assertEqual(self.s.end()[0], 0)

    def test_all(self):
        text = {"prompt": "One day", "max_tokens": 2, "temperature": 0, "logprobs": 2}
        chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "temperature": 0, "logprobs": True, "top_logprobs": 1}
        usage = {"stream_options": {"include_usage": True}}
        for method, path, body in (("GET", "/health", None), ("GET", "/v1/models", None), ("POST", "/detokenize", {"tokens": [5, 6]}),
                                   ("POST", "/tokenize", {"prompt": "One day", "with_pieces": True}),
                                   ("POST", "/v1/completions", text), ("POST", "/v1/chat/completions", chat)):
            with self.subTest(path):
                self.every_fault(self.plain(method, path, body), path)
        self.every_fault(self.streamed("/v1/completions", {**text, **usage}), "stream")
        self.every_fault(self.streamed("/v1/chat/completions", {**chat, **usage}), "stream of chat")
        self.assertEqual(self.s.end()[0], 0)


if __name__ == "__main__":
    serve.main()
