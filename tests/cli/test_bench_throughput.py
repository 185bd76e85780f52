"""weft bench throughput: what it prints follows from the load, in each format and with each policy."""
import csv
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile

import cli

POLICIES = ["request", "orca", "sarathi", "nanoflow"]
TRACE = ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00.0,10,6\n2023-11-16 18:00:10.0,60,10\n"
         "2023-11-16 18:00:20.0,3,4\n2023-11-16 18:00:40.0,400,400\n2023-11-16 18:01:00.0,7,1\n")


def throughput(*args):
    return ["bench", "throughput", *cli.CPU, "WEFT_PEAK_TFLOPS=0.001", *args]


class Throughput(cli.TestCase):
    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temp.cleanup)
        cls.folder = temp.name
        cls.csv = os.path.join(cls.folder, "lengths.csv")
        pathlib.Path(cls.csv).write_text(TRACE)

    def rows(self, *args):
        return json.loads(self.ok(*throughput("-o", "json", *args)).text)

    @staticmethod
    def saved(folder):
        name, = (n for n in os.listdir(folder) if n.startswith("weft-cpu"))
        with open(os.path.join(folder, name), newline="") as f:
            return list(csv.DictReader(f))

    def test_share_of_the_cost_model(self):
        """What `weft plan --cost` prints for the same device and lengths; loads without answers have none."""
        rows = self.rows("--const", "20:8,30:0", "--num-prompts", 2, "--policy", "nanoflow", "--on", "h200")
        cost = self.ok("plan", "--cost", "-m", os.path.join(cli.ROOT, "models", "demo.gguf"), "--on", "h200", "--const", "20:8").text
        best = float(re.search(r"ms a step, (\d+) tokens/s", cost).group(1))
        self.assertAlmostEqual(rows[0]["total_tokens_s"] * 100 / rows[0]["model_pct"] / best, 1, 3)
        self.assertIsNone(rows[1]["model_pct"])
        self.assertIn("weft plan --cost --on h200", self.ok(*throughput("--const", "20:8", "--num-prompts", 1, "--policy", "nanoflow", "--on", "h200")).text)
        self.fails(cli.USAGE, "h200", *throughput("--const", "20:8", "--on", "h2000"))

    def test_share_of_the_cost_model_of_this_device(self):
        """By the rates that `weft plan --cost` measured and kept."""
        with tempfile.TemporaryDirectory() as folder:
            env = {"XDG_CONFIG_HOME": folder}
            cost = self.ok("plan", "--cost", *cli.CPU, "--const", "20:8", env=env).text
            best = float(re.search(r"ms a step, (\d+) tokens/s", cost).group(1))
            loads = throughput("--const", "20:8", "--num-prompts", 2, "--policy", "nanoflow", "--on", "here")
            row, = json.loads(self.ok(*loads, "-o", "json", env=env).text)
            self.assertAlmostEqual(row["total_tokens_s"] * 100 / row["model_pct"] / best, 1, 2)
            self.assertIn("The model is `weft plan --cost`, with memory", self.ok(*loads, env=env).text)

    def test_every_policy_and_load(self):
        rows = self.rows("--const", "20:8,30:0", "--dataset-path", self.csv, "--num-prompts", 4, "--max-num-seqs", 2, "--max-num-batched-tokens", 16)
        self.assertEqual([(r["policy"], r["load"]) for r in rows], [(p, w) for p in POLICIES for w in ("20:8", "30:0", "lengths")])
        n_params = None
        for r in rows:
            want = {"20:8": (4, 0, 80, 32), "30:0": (4, 0, 120, 0), "lengths": (4, 1, 80, 21)}[r["load"]]
            self.assertEqual((r["requests"], r["skipped"], r["input_tokens"], r["output_tokens"]), want)
            tokens = r["input_tokens"] + r["output_tokens"]
            self.assertAlmostEqual(r["total_tokens_s"] * r["seconds"] / tokens, 1, 5)
            self.assertAlmostEqual(r["requests_s"] * r["seconds"] / r["requests"], 1, 5)
            # Equation 5: peak / (2 x parameters), the same for all.
            optimum = r["total_tokens_s"] * 100 / r["optimum_pct"]
            n_params = n_params or 0.001e12 / optimum / 2
            self.assertAlmostEqual(0.001e12 / (2 * n_params) / optimum, 1, 5)
            self.assertLessEqual(r["mean_step_tokens"], 16)
            self.assertLessEqual(0, r["ttft_p50_ms"])
            self.assertLessEqual(r["ttft_p50_ms"], r["ttft_p99_ms"])
            self.assertLessEqual(r["ttft_p99_ms"], r["seconds"] * 1e3)
            self.assertEqual(r["itl_p99_ms"] is None, r["load"] == "30:0")
            self.assertNotIn("rate", r)
            self.assertNotIn("model_pct", r)
        info = self.ok("info", "-m", os.path.join(cli.ROOT, "models", "demo.gguf")).text
        self.assertAlmostEqual(n_params / int(re.search(r"\((\d+)\)", info).group(1)), 1, 4)

    def test_a_shape_without_a_file(self):
        folder = os.path.join(self.folder, "shapes")
        os.mkdir(folder)
        rows = self.rows("--shape", "llama-1.1b", "WEFT_LAYERS=1", "--type", "Q4_0", "--const", "8:2", "--num-prompts", 2, "--policy", "orca", "-c", 64, "--results", folder)
        self.assertEqual([(r["load"], r["requests"], r["output_tokens"]) for r in rows], [("8:2", 2, 4)])
        self.assertEqual({r["shape"].partition(",L=")[2] for r in self.saved(folder)}, {"1,llama-1.1b"})
        self.fails(cli.USAGE, "--shape", *throughput("--type", "Q4_0"))

    def test_arrivals(self):
        load = ["--arrivals", "poisson", "--request-rate", "100,400", "--const", "8:4", "--num-prompts", 20]
        rows = list(csv.DictReader(io.StringIO(self.ok(*throughput(*load, "--policy", "orca,nanoflow", "-o", "csv")).text)))
        self.assertEqual([(r["policy"], float(r["rate"])) for r in rows], [(p, v) for p in ("orca", "nanoflow") for v in (100, 400)])
        for r in rows:
            self.assertEqual((int(r["requests"]), int(r["output_tokens"])), (20, 80))
            self.assertGreater(float(r["norm_p99_ms"]), 0)
        for r in rows:  # the last of this seed comes after 18.3 mean gaps, however slow the machine is
            self.assertGreater(float(r["seconds"]), 18 / float(r["rate"]))
        text = self.ok(*throughput(*load, "--policy", "orca")).text
        self.assertEqual(len(re.findall(r"(?m)^\| orca ", text)), 2)
        self.assertEqual(len(re.findall("measured rate within 200 ms|no measured rate", text)), 1)

    def test_rounds(self):
        """Conversations go on with all that was said; what a round need not compute comes from the KV cache and from below it."""
        r = self.ok(*throughput("--policy", "nanoflow", "--const", "40:8", "--num-prompts", 6, "-c", 256, "--max-num-seqs", 2, "--kv-memory", "1M",
                                "--kv-host", "16M", "WEFT_ROUNDS=3", "WEFT_THINK_TIME=0.02", "WEFT_KV_STORE_ALWAYS=1", "WEFT_KV_LOAD_ALWAYS=1"))
        self.assertRegex(r.text, r"\| 40:8 +\| +18 \| +0 \| +1584 \| +144 \|")
        *counts, part = re.search(r"3 rounds: (\d+) of (\d+) prompt tokens were in the KV cache, (\d+) below it, together ([0-9.]+) %", r.err).groups()
        found, prompts, below = map(int, counts)
        self.assertEqual(prompts, 1584 + 1)
        most = 6 * (32 + 80)  # whole pages of 48 and 96 tokens, the last of which was not computed; a page may go before it is stored
        self.assertIn(found + below, range(most // 2, most + 1))
        self.assertGreater(below, 0)
        self.assertAlmostEqual(float(part), 100 * (found + below) / most, delta=0.06)
        self.fails(cli.RUNTIME, "no request fits", *throughput("--const", "40:8", "-c", 143, "WEFT_ROUNDS=3"))
        short = ["--policy", "nanoflow", "--const", "40:8", "--num-prompts", 2, "WEFT_ROUNDS=3", "WEFT_ROUND_TOKENS=4"]
        r = self.ok(*throughput(*short, "-c", 72))  # prompts of 40, 52 and 64 tokens
        self.assertRegex(r.text, r"\| 40:8 +\| +6 \| +0 \| +312 \| +48 \|")
        self.assertRegex(r.err, r" 160 of 313 prompt .* together 100.0 % .* TTFT p50 [0-9.]+ ms in the first round, [0-9.]+ ms in the last")
        self.fails(cli.RUNTIME, "no request fits", *throughput(*short, "-c", 71))

    def test_arrivals_of_the_trace(self):
        """Its four requests that fit come within 60 s, so 1 in 20 s; a thousand times as fast when that rate is asked for."""
        row, = self.rows("--dataset-path", self.csv, "--arrivals", "trace", "--request-rate", 50, "--policy", "nanoflow")
        self.assertEqual((row["rate"], row["requests"], row["skipped"]), (50, 4, 1))
        self.assertGreaterEqual(row["seconds"], 0.06)

    def test_deterministic_rows_say_so(self):
        self.ok(*throughput("--const", "8:2", "--num-prompts", 1, "--policy", "orca", "--deterministic", "WEFT_F16_RESIDUAL=1", "--kv-dtype", "q8_0", "--results", self.folder))
        self.assertEqual({r["variant"] for r in self.saved(self.folder)}, {"orca-deterministic-f16-residual-kv-q8_0"})

    def test_results_and_csv(self):
        text = self.ok(*throughput("--const", "16:4", "--num-prompts", 3, "--policy", "sarathi", "-o", "csv", "--profile", "--results", self.folder)).text
        row, = csv.DictReader(io.StringIO(text))
        self.assertTrue(row["idle_pct"] == "" or 0 <= float(row["idle_pct"]) <= 100)
        saved = {r["op"]: r for r in self.saved(self.folder)}
        self.assertEqual(set(saved), {"throughput_total", "throughput_itl_p99"})
        total = saved["throughput_total"]
        self.assertEqual((total["variant"], total["shape"]), ("sarathi", "16:4,R=3,B=64,C=512,rows=512"))
        self.assertAlmostEqual(float(total["rate"]) / float(row["total_tokens_s"]), 1, 4)
        self.assertAlmostEqual(float(total["ceiling_pct"]), float(row["optimum_pct"]), delta=0.06)

    def test_ctrl_c(self):
        """What was measured is printed; nothing was asked for that ends by itself within minutes."""
        p = subprocess.Popen(cli.argv(*throughput("--arrivals", "poisson", "--request-rate", "0.000001", "--const", "8:4", "--policy", "nanoflow")),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        cli.await_interrupts(p)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, cli.INTERRUPTED, err)

    def test_wrong_usage(self):
        for message, *args in (("INPUT:OUTPUT", "--const", "5"), ("INPUT:OUTPUT", "--const", "0:5"), ("INPUT:OUTPUT", "--const", "5:5,"),
                               ("INPUT:OUTPUT", "--const", "-5:5"), ("--policy", "--policy", "best"), ("--policy", "--policy", "orca,"),
                               ("--request-rate", "--arrivals", "poisson"), ("--arrivals", "--request-rate", "5"),
                               ("--dataset-path", "--arrivals", "trace"), ("--request-rate", "--arrivals", "poisson", "--request-rate", "0")):
            self.fails(cli.USAGE, message, *throughput(*args))
        bad = os.path.join(self.folder, "bad.csv")
        pathlib.Path(bad).write_text("ContextTokens,GeneratedTokens\n5,x\n")
        self.fails(cli.RUNTIME, "line 2", *throughput("--dataset-path", bad))
        self.fails(cli.RUNTIME, "/absent", *throughput("--dataset-path", "/absent"))
        self.fails(cli.RUNTIME, "fits the context", *throughput("--const", "600:600"))

    def test_too_little_memory(self):
        self.fails(cli.RUNTIME, "the largest buffer on", *throughput("WEFT_MAX_ALLOC=1K", "--arrivals", "poisson", "--request-rate", "5"))

    def test_trace_without_times(self):
        no_times = os.path.join(self.folder, "no_times.csv")
        pathlib.Path(no_times).write_text("TIMESTAMP,ContextTokens,GeneratedTokens\nXXX,5,5\n")
        self.fails(cli.USAGE, "no times", *throughput("--dataset-path", no_times, "--arrivals", "trace"))


if __name__ == "__main__":
    cli.main()
