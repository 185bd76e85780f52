"""What the scheduler does with KV memory and steps changes no answer."""
import json
import os
import re
import unittest

import serve
from serve import PROMPTS, Server, at_once


class LittleMemory(serve.TestCase):
    """KV cache for one context and a bit, shared by eight: sequences are preempted, swapped out and swapped in."""
    ARGS = ["--max-num-seqs", 8, "--kv-memory", "800K", "--max-num-batched-tokens", 32, "--no-prefix-cache", "-c", 256, *serve.ONE_ROUNDING]

    def test_answers_are_the_same(self):
        ask = [{"prompt": PROMPTS[i % 6], "max_tokens": 100, "ignore_eos": True, "temperature": 1, "seed": i} for i in range(12)]
        alone = [self.s.complete(**a).text for a in ask]

        def one(i):
            self.assertEqual(self.s.complete(**ask[i]).text, alone[i])

        for i in range(6):
            self.s.complete(prompt=PROMPTS[i], n=8, max_tokens=1)  # so that all seem to be short
        at_once(12, one)
        self.s.until(lambda m: m["kv_cache_usage_perc"] == 0, "all pages are back")
        m = self.s.metrics()
        self.assertGreater(m["num_preemptions_total"], 0)
        out, back = (m[f'kv_swapped_bytes_total{{direction="{d}",tier="host"}}'] for d in ("out", "in"))
        info = self.ok("info", "-m", os.path.join(serve.cli.ROOT, "models", "demo.gguf")).text
        page = 16 * 1024 * float(re.search(r"KV ([\d.]+) KiB a token", info).group(1))
        self.assertGreater(back, 0)
        self.assertLessEqual(back, out)  # a sequence can end while it is swapped out, by a pending token
        self.assertEqual((out % page, back % page), (0, 0))


@unittest.skipUnless(os.environ.get("WEFT_HAS_OPENCL") == "1", "needs a build with OpenCL")
class LittleMemoryOfOpenCL(LittleMemory):
    """The same where pages are copied by a device's queue. No prompt, and no number of sequences, takes another kernel than the others."""
    DEVICE = ["--device", "opencl:0.0", "--deterministic"]


class Policies(unittest.TestCase):
    def test_each_gives_the_same_text(self):
        texts = set()
        for policy in ("nanoflow", "sarathi", "orca", "request"):
            s = Server("--policy", policy, "--max-num-batched-tokens", 8, "--max-num-seqs", 16, *serve.ONE_ROUNDING)
            got = {}

            def one(i):
                got[i] = s.complete(prompt=PROMPTS[i % 6] * (i + 1), max_tokens=20).text

            at_once(10, one)
            texts.add(json.dumps(got, sort_keys=True))
            m = s.metrics()
            self.assertEqual(m['iteration_tokens_total_bucket{le="8"}'], m["iteration_tokens_total_count"])
            self.assertEqual(s.end()[0], 0)
        self.assertEqual(len(texts), 1)


if __name__ == "__main__":
    serve.main()
