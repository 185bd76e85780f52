"""weft simulate: what it prints, that it prints the same again, and what it refuses. The numbers are unit cluster's."""
import json
import os
import tempfile

import cli

SMALL = ["simulate", "--shape", "llama3-8b", "--on", "dgx-a100", "--num-prompts", 40]


class Simulate(cli.TestCase):
    def rows(self, *words):
        return json.loads(self.ok(*SMALL, *words, "--json").text)

    def test_table(self):
        text = self.ok(*SMALL, "--tp", 2, "--pp", 4, "--const", "256:16,64:0", "--policy", "sarathi,orca").text
        self.assertIn("llama3-8b F16 on 8 x dgx-a100: 1 x 4 stages x 2 devices", text)
        lines = [[c.strip() for c in line.split("|")[1:4]] for line in text.splitlines() if line.startswith("|")][2:]
        self.assertEqual([line[:2] for line in lines], [["sarathi", "256:16"], ["sarathi", "64:0"], ["orca", "256:16"], ["orca", "64:0"]])

    def test_json(self):
        one, = self.rows("--const", "256:16", "--policy", "orca")
        again, = self.rows("--const", "256:16", "--policy", "orca")
        self.assertEqual(one, again)
        self.assertEqual([one[k] for k in ("n_devices", "requests", "input_tokens", "output_tokens", "bubble_p50_ms")], [1, 40, 10240, 640, 0])
        self.assertEqual(one["e2el_deciles_ms"], sorted(one["e2el_deciles_ms"]))
        self.assertAlmostEqual(one["e2el_deciles_ms"][-1], one["seconds"] * 1e3, delta=1e-3)
        piped, = self.rows("--const", "256:16", "--policy", "orca", "--pp", 2)
        self.assertGreater(piped["bubble_deciles_ms"][-1], 0)
        self.assertGreater(100, piped["busy_pct"])
        copies, = self.rows("--const", "256:16", "--policy", "orca", "WEFT_REPLICAS=4")
        self.assertLess(copies["seconds"], one["seconds"])

    def test_loads(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "load.csv")
            with open(path, "w", encoding="utf-8") as f:
                f.write("ContextTokens,GeneratedTokens\n" + "100,20\n" * 30 + "5000,1\n")
            rows = self.rows("--dataset-path", path, "--arrivals", "poisson", "--request-rate", "1,1000", "-c", 4096, "--policy", "nanoflow")
        self.assertEqual([(r["load"], r["rate"], r["requests"], r["skipped"]) for r in rows], [("load", 1, 30, 1), ("load", 1000, 30, 1)])
        self.assertGreater(rows[0]["seconds"], 5)
        self.assertLessEqual(rows[0]["ttft_p50_ms"], rows[1]["ttft_p50_ms"])


if __name__ == "__main__":
    cli.main()
