"""A model in which one token breaks the numbers: requests that meet it fail, and say why; those beside them get their answers."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import serve
from serve import Server, at_once

TINY = os.path.join(serve.cli.ROOT, "tests", "model", "tiny.py")
VOCAB = 307


class Broken(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = os.path.join(cls.folder.name, "broken.gguf")
        subprocess.run([sys.executable, TINY, "--fill", "token_embd.weight=inf", path], check=True)
        cls.s = Server("-m", path, "--max-num-seqs", 8, *serve.ONE_ROUNDING)
        scan = [cls.s.complete(prompt=[i], max_tokens=1) for i in range(VOCAB)]
        cls.bad, = (i for i, r in enumerate(scan) if r.status != 200)
        cls.reply = scan[cls.bad]

    @classmethod
    def tearDownClass(cls):
        code, log = cls.s.end()
        cls.folder.cleanup()
        if code:
            raise AssertionError(f"exit code {code}:\n{log}")

    def check_error(self, error):
        self.assertEqual((error["type"], error["code"]), ("server_error", "logits_not_finite"))
        self.assertIn("not a finite number", error["message"])

    def test_says_why(self):
        self.assertEqual(self.reply.status, 500)
        self.check_error(self.reply.error)
        for fields in ({"logprobs": 2}, {"max_tokens": 0, "echo": True, "logprobs": 2}, {"temperature": 1}, {"presence_penalty": 1}):
            r = self.s.complete(prompt=[5, self.bad, 6], **fields)
            self.assertEqual(r.status, 500, (fields, r.body))
            self.check_error(r.error)

    def check_stream(self, r):
        """The error is the last event, or the whole answer if it came before the first event was written."""
        if r.status == 500:
            return self.check_error(r.error)
        self.assertEqual(r.status, 200)
        events = [json.loads(e[6:]) for e in r.body.decode().split("\n\n") if e.startswith("data: {")]
        self.assertEqual(["choices" in e for e in events], [True] * (len(events) - 1) + [False])
        return self.check_error(events[-1]["error"])

    def test_stream_that_has_begun(self):
        """The broken prompt waits until one of eight long ones has ended; by then events have been written, if the server's threads took turns."""
        self.too_early = 0
        self.s.wait(self.stream_has_begun, "a stream that begins before its error")

    def stream_has_begun(self):
        c, r = self.s.open_stream(prompt=[[10 + i] for i in range(8)] + [[self.bad]], max_tokens=300, ignore_eos=True, logit_bias={str(self.bad): -100})
        if r.status == 500:
            self.too_early += 1
            self.assertLess(self.too_early, 10)
            return c.close()
        self.assertEqual(r.status, 200)
        lines = [line for line in r.read().split(b"\n") if line.startswith(b"data: {")]
        self.assertIn(b"choices", lines[0])
        self.check_error(json.loads(lines[-1][6:])["error"])
        r.close()
        c.close()
        return True

    def test_others_beside_it(self):
        """The broken ones are counted, and fail in the middle of a stream, too; the others answer as they do alone."""
        ask = {"max_tokens": 30, "ignore_eos": True, "logit_bias": {str(self.bad): -100}}
        prompts = [[10 + 2 * i, 11] for i in range(8)]
        want = [self.s.complete(prompt=p, **ask).text for p in prompts]
        before = self.s.metrics()["corrupted_requests_total"]

        def one(i):
            if i % 3 == 0:
                self.assertEqual(self.s.complete(prompt=prompts[i // 3], **ask).text, want[i // 3])
            elif i % 3 == 1:
                self.assertEqual(self.s.complete(prompt=[12, self.bad], **ask).status, 500)
            else:  # it writes the token, and meets it in the next step
                r = self.s.complete(prompt=prompts[0], max_tokens=30, stream=True, ignore_eos=True, logit_bias={str(self.bad): 100})
                self.check_stream(r)

        at_once(24, one)
        self.assertEqual(self.s.metrics()["corrupted_requests_total"] - before, 16)
        self.assertEqual(self.s.get("/health").status, 200)


if __name__ == "__main__":
    serve.main()
