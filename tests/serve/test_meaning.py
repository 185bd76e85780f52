"""What options, metrics and stops mean, told by counting."""
import os
import re
import tempfile
import threading
import unittest

import serve
from serve import Server, at_once, cli


class Stops(serve.TestCase):
    def test_every_substring_stops_exactly_there(self):
        """Streamed and not; one byte less or more of the stop string would show."""
        whole = self.s.complete(max_tokens=14, ignore_eos=True).text
        data = whole.encode()
        cases = sorted({data[i:j] for i in range(len(data)) for j in (i + 1, i + 2, i + 3, i + 7, len(data)) if j <= len(data)})
        texts = [c.decode() for c in cases if len(c.decode(errors="ignore").encode()) == len(c)]
        self.assertGreater(len(texts), 60)

        def one(k):
            for stop in texts[k::4]:
                want = whole[:whole.index(stop)]
                r = self.s.complete(max_tokens=14, ignore_eos=True, stop=stop).json["choices"][0]
                self.assertEqual((r["text"], r["finish_reason"]), (want, "stop"), stop)
                events = self.s.stream(max_tokens=14, ignore_eos=True, stop=stop)
                self.assertEqual("".join(e["choices"][0]["text"] for e in events), want, stop)
                self.assertEqual(events[-1]["choices"][0]["finish_reason"], "stop")
                never = self.s.complete(max_tokens=14, ignore_eos=True, stop=stop + "\u2603").json["choices"][0]
                self.assertEqual((never["text"], never["finish_reason"]), (whole, "length"), stop)

        at_once(4, one)

    def test_skip_special_tokens(self):
        eos = {"logit_bias": {"2": 100}, "ignore_eos": True, "max_tokens": 3}
        self.assertEqual(self.s.complete(**eos).text, "")
        self.assertEqual(self.s.complete(**eos, skip_special_tokens=False).text, "</s></s></s>")
        self.assertEqual("".join(e["choices"][0]["text"] for e in self.s.stream(**eos, skip_special_tokens=False)), "</s></s></s>")


class Metrics(unittest.TestCase):
    def test_prefix(self):
        """Each name has it, and none is lost or named twice."""
        names = []
        for prefix in ("weft:", "vllm:", "my_"):
            s = Server("--metrics-prefix", prefix)
            text = s.get("/metrics").body.decode()
            self.assertEqual(s.end()[0], 0)
            lines = [line for line in text.splitlines() if not line.startswith("#")]
            self.assertEqual([line for line in lines if not line.startswith(prefix)], [])
            helped = re.findall(r"^# HELP (\S+) \S", text, re.M)
            self.assertEqual(helped, re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram|summary)$", text, re.M))
            self.assertEqual(len(helped), len(set(helped)))
            names.append([name.removeprefix(prefix) for name in helped])
        self.assertEqual(names[0], names[1])
        self.assertEqual(names[0], names[2])

    def test_times_add_up(self):
        """Of one request alone: what it waits, computes and writes is its whole time; of a second one behind it, it waits for the first. Which
        part is the longest is looked at until the machine did not stand still in another one."""
        s = Server("--max-num-seqs", 1)
        s.wait(lambda: self.times_add_up(s), "most of the time is in the 199 steps behind the first, or in waiting for them")
        self.assertEqual(s.end()[0], 0)

    def times_add_up(self, s):
        began = s.metrics()
        s.complete(max_tokens=200, ignore_eos=True)
        m = s.metrics()

        def grown(name, a, b):
            return b[name] - a[name]

        queue, prefill, decode, e2e, first = (grown(n + "_sum", began, m) for n in (
            "request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds", "e2e_request_latency_seconds",
            "time_to_first_token_seconds"))
        self.assertGreater(min(prefill, decode, first), 0)
        self.assertLessEqual(queue + prefill + decode, e2e)
        self.assertLessEqual(queue + prefill, first)
        longest = decode > prefill
        self.assertLessEqual(grown("inter_token_latency_seconds_sum", began, m), e2e)
        for name in ("request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds"):
            self.assertEqual(grown(name + "_count", began, m), 1)
        s.complete(n=2, max_tokens=200, ignore_eos=True)  # one place: the second waits while the first runs
        after = s.metrics()
        self.assertEqual(grown("request_queue_time_seconds_count", m, after), 2)
        return longest and grown("request_queue_time_seconds_sum", m, after) > grown("request_decode_time_seconds_sum", m, after) / 20

    def test_a_prompt_asked_twice(self):
        """Its whole pages but for the last token are found the second time, and only the rest is computed."""
        s, prompt = Server(), [5 + i % 40 for i in range(50)]
        began = s.metrics()
        for _ in range(2):
            self.assertEqual(s.complete(prompt=prompt, max_tokens=5, ignore_eos=True).status, 200)
        held = ("num_requests_running", "num_requests_waiting", "num_clients_waiting", "longest_wait_seconds", "kv_cache_usage_perc",
                "body_memory_bytes", "reply_memory_bytes", "num_bodies_waiting")
        s.until(lambda m: not any(m[name] for name in held), "nothing is held any more")
        m = s.metrics()
        want = {"prompt_tokens_total": 100, "generation_tokens_total": 10, "prefix_cache_queries_total": 100, "prefix_cache_hits_total": 48,
                "request_prompt_tokens_sum": 100, "request_prompt_tokens_count": 2, "request_generation_tokens_sum": 10,
                "request_generation_tokens_count": 2, "iteration_tokens_total_sum": 50 + 4 + 2 + 4, "iteration_tokens_total_count": 10,
                "time_to_first_token_seconds_count": 2, "inter_token_latency_seconds_count": 8, "e2e_request_latency_seconds_count": 2,
                "num_preemptions_total": 0, "corrupted_requests_total": 0, 'request_success_total{finished_reason="length"}': 2}
        self.assertEqual({name: m[name] - began[name] for name in want}, want)
        self.assertEqual(m["prefill_decode_ratio"], (50 - (50 - 2) / 64) / 5)
        self.assertEqual(s.end()[0], 0)

    def test_softmax_by_layer(self):
        """Rows count in each layer that computes them with the asynchronous softmax, and those that leave the range of one layer count there alone as
        recomputed. Layers of the synchronous softmax, and servers without others, count nothing."""
        series = ("softmax_async_layer_total", "softmax_recompute_layer_total")
        wide, narrow, synchronous = ("phi 2 a -55 b 40", "phi 50 a -1 b 1", "phi 0 a 0 b 0")
        size = os.path.getsize(os.path.join(cli.ROOT, "models", "demo.gguf"))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "calibration")
            with open(path, "w") as f:
                f.write(f"weft-calibration 1\nmodel {size} bytes\n")
                for i, line in enumerate((wide, synchronous, narrow, wide, wide)):
                    f.write(f"layer {i} {line}\n")
            s = Server("--calibration", path)
        began, heads, rows = s.metrics(), 8, 0
        for prompt in (list(range(5, 45)), list(range(50, 80))):
            self.assertEqual(s.complete(prompt=prompt, max_tokens=1).status, 200)
            rows += heads * len(prompt)
        s.until(lambda m: m["softmax_recompute_total"] >= rows, "the steps were counted")

        def by_layer(m):
            return [{i: m[f'{name}{{layer="{i}"}}'] for i in range(5) if f'{name}{{layer="{i}"}}' in m} for name in series]

        m = s.metrics()
        self.assertEqual(by_layer(began), [dict.fromkeys((0, 2, 3, 4), 0)] * 2)
        self.assertEqual(by_layer(m), [dict.fromkeys((0, 2, 3, 4), rows), {i: rows * (i == 2) for i in (0, 2, 3, 4)}])
        self.assertEqual(m["softmax_recompute_total"], rows)
        self.assertEqual(s.end()[0], 0)
        s = Server()
        for name in series:
            self.assertNotIn(name, s.get("/metrics").body.decode())
        self.assertEqual(s.end()[0], 0)

    def test_the_line_of_statistics(self):
        s = Server("WEFT_FORCE=gemm=ref,attention=ref")
        stop = threading.Event()

        def ask():
            while not stop.is_set():
                s.complete(max_tokens=50, ignore_eos=True)

        t = threading.Thread(target=ask)
        t.start()
        line = s.line(r"prompt ([\d.]+) tokens/s, generation ([\d.]+) tokens/s, running (\d+), waiting (\d+), KV cache ([\d.]+) %")
        stop.set()
        t.join()
        prompt, generation, running, waiting, kv = map(float, line.groups())
        self.assertGreater(generation, prompt)  # 3 tokens of a prompt for 50 that are generated
        self.assertGreater(prompt, 0)
        self.assertLessEqual(running, 1)
        self.assertEqual(waiting, 0)
        self.assertLessEqual(kv, 100)
        self.assertEqual(s.end()[0], 0)


class Started(serve.TestCase):
    def test_adds_up(self):
        """Each sequence that starts ends once, whatever its end is."""
        def one(i):
            if i % 4 == 0:
                c, r = self.s.open_stream(n=2, max_tokens=400, ignore_eos=True)
                r.close()
                c.close()
            elif i % 4 == 1:
                self.assertEqual(self.s.complete(prompt="a " * 2000).status, 400)
            else:
                self.assertEqual(self.s.complete(n=3).status, 200)

        at_once(12, one)
        reasons = [f'request_success_total{{finished_reason="{r}"}}' for r in ("stop", "length", "abort", "error")]
        self.s.until(lambda m: sum(m[r] for r in reasons) == m["requests_started_total"] == 24, "24 have started and ended")
        self.assertEqual(self.s.metrics()["e2e_request_latency_seconds_count"], 24)


def opencl():
    return "\nopencl:0.0" in "\n" + cli.weft("info").text


class Loading(unittest.TestCase):
    @unittest.skipUnless(opencl(), "no OpenCL device is installed")
    def test_health_while_loading(self):
        """While kernels are compiled the server says that it loads."""
        seen = 0
        for _ in range(5):
            s = Server("WEFT_NO_KERNEL_CACHE=1", device=("--device", "opencl:0.0"), wait=False)
            r, models = s.get("/v1/health"), s.get("/v1/models")
            if r.status == 503:
                self.assertEqual((r.json["error"]["message"], r.json["error"]["type"]), ("Loading model", "unavailable_error"))
                self.assertEqual(r.headers["Retry-After"], "1")
                seen += 1
            self.assertIn(models.status, (200, 503))
            s.line("is ready on")
            self.assertEqual(s.get("/health").json, {"status": "ok"})
            self.assertEqual(s.end()[0], 0)
            if seen:
                return
        self.fail("it is never seen loading")


if __name__ == "__main__":
    serve.main()
