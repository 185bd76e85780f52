"""bench/paper.py: a figure of each kind runs on the built-in model, and its table and file agree with each other and with the paper's points."""
import csv
import os
import pathlib
import subprocess
import sys
import tempfile

import cli

QUICK = [*cli.CPU, "-t", 1, "--quick"]


class Paper(cli.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.folder = temp.name

    def run_paper(self, *args):
        words = [sys.executable, os.path.join(cli.ROOT, "bench", "paper.py"), "--weft", cli.WEFT, *map(str, args)]
        return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        pathlib.Path(path).write_text(text)
        return path

    def measure(self, name, *args):
        """The rows of a figure, those that were measured by (series, x), after checking them against what is printed."""
        path = os.path.join(self.folder, "rows.csv")
        p = self.run_paper(name, *args, "--results", path)
        self.assertEqual(p.returncode, cli.OK, p.stderr)
        with open(path, newline="") as f:
            rows = list(csv.DictReader(f))
        self.assertEqual({r["figure"] for r in rows}, {name})
        measured = [r for r in rows if r["median"]]
        cells = [[c.strip() for c in line.split("|")] for line in p.stdout.splitlines() if line.startswith("| ")][2:]
        for shown, written in zip((c[3] for c in cells if c[3]), (r["median"] for r in measured), strict=True):
            self.assertAlmostEqual(float(shown), float(written), delta=abs(float(written)) / 1e3)
        for r in rows:
            self.assertTrue(r["median"] or r["paper"], r)
        for r in measured:
            self.assertLessEqual(float(r["lowest"]), float(r["median"]))
            self.assertLessEqual(float(r["median"]), float(r["highest"]))
        self.assertIn("What differs:", p.stdout)
        return {(r["series"], r["x"]): float(r["median"]) for r in measured}, rows, p.stdout

    def refuse(self, code, text, *args):
        p = self.run_paper(*args)
        self.assertEqual((p.returncode, p.stdout), (code, ""), p.stderr)
        self.assertIn(text, p.stderr)

    def test_list(self):
        p = self.run_paper("--list")
        names = [line.split()[0] for line in p.stdout.splitlines() if not line.startswith(" ")]
        self.assertEqual(len(set(names)), len(names))
        for name in ("sarathi-fig9", "nanoflow-fig7", "flash-fig12"):
            self.assertIn(name, names)

    def test_wrong_usage(self):
        self.refuse(cli.USAGE, "did you mean sarathi-fig9", "sarathi-fg9")
        self.refuse(cli.USAGE, "--list", "-q")
        self.refuse(cli.DEVICE, "needs an AMD GPU", "flash-fig13")
        self.refuse(cli.USAGE, "sarathi-fig9 has no use for --policy", "sarathi-fig9", "--policy", "orca")
        self.refuse(cli.USAGE, "use -f FILE", "flash-fig5", *QUICK)
        self.refuse(cli.USAGE, "-c 513", "sarathi-fig7", *QUICK, "-c", 64)
        self.refuse(cli.MODEL, "absent.gguf", "sarathi-fig9", "-m", "absent.gguf", "-q")
        self.refuse(cli.DEVICE, "no device", "flash-fig18", "--device", "nope", "--quick")
        self.refuse(cli.RUNTIME, "not a folder", "sarathi-fig9", "-o", "/proc/absent")

    def test_loads(self):
        """Lengths are scaled, and each load runs as often as was asked for."""
        measured, rows, text = self.measure("sarathi-fig13b", *cli.CPU, "--scale", 0.125, "-r", 2)
        self.assertIn("lengths are 0.125 of the paper's, the longest 128 tokens instead of 1024\n", text)
        self.assertEqual([(r["x"], r["paper_x"], r["runs"]) for r in rows if r["median"]],
                         [("8", "64", "2"), ("16", "128", "2"), ("32", "256", "2"), ("40", "320", "2"), ("64", "512", "2")])
        self.assertTrue(all(v > 0 for v in measured.values()))

    def test_share_of_the_optimum(self):
        measured, _, text = self.measure("nanoflow-fig7", *QUICK, "--policy", "nanoflow", "--max-num-seqs", 2)
        self.assertEqual({s for s, _ in measured}, {"nanoflow"})
        self.assertIn("- 2 sequences at a time", text)

    def test_steps(self):
        measured, _, _ = self.measure("sarathi-fig10", *QUICK)
        self.assertEqual({x for _, x in measured}, {"preproj", "attention", "postproj", "ffn", "others"})

    def test_single_ops(self):
        peer = self.write("peer.csv", 'op,dtype,shape,peer,rate,unit\ngemm,F16,"M=1,N=256,K=256",blas,1e-5,GB/s\n')
        measured, _, _ = self.measure("flash-fig18", *QUICK, "--peer", peer)
        self.assertEqual(list(measured), [("N=256,K=256 over blas", "1")])
        self.assertGreater(measured["N=256,K=256 over blas", "1"], 1)

    def test_cost_model(self):
        """From the paper's sizes and constants: to the rounding of its table; decode attention, whose lengths are chosen by it, within half a percent."""
        _, rows, _ = self.measure("nanoflow-table2", *QUICK)
        both = [r for r in rows if r["median"] and r["paper"]]
        self.assertEqual(len(both), 7)
        for r in both:
            self.assertAlmostEqual(float(r["median"]), float(r["paper"]), delta=0.1 if r["x"] == "DecAttn" else 0.02)

    def test_simulation(self):
        """Of fewer requests than the study has: batches fit as in the paper, and what differs is said in percent."""
        measured, _, text = self.measure("sarathi-fig12a", "--quick")
        self.assertEqual(measured["Orca", "50"], 1)
        self.assertLess(measured["SARATHI", "50"], 0.2)
        for what in ("27 sequences in a step (27 fit)", "11 sequences in a step (11 fit)", "6.29 in the paper: +"):
            self.assertIn(what, text)

    def test_heat_map(self):
        """A load is bound by memory where T_mem / T_compute exceeds 1: only long answers of the small model."""
        measured, _, _ = self.measure("nanoflow-fig3", "--quick")
        self.assertEqual(len(measured), 30)
        self.assertEqual([k for k, v in measured.items() if v > 1], [("llama3-8b", "512:1024")])

    def test_profile(self):
        """Beside compute that loses a fifth of its rate, ops of memory keep 0.7 of theirs."""
        times = "".join(f"op {op} {kind}\ntime {op} tokens 8 share 1 us 20 spread 0.1\n" for op, kind in (("q", "compute"), ("decode_attention", "memory")))
        profile = self.write("times", "weft-profile 1\ndevice a test\nmodel demo\ngroups 16\ntile 8\ncontext 128\n" + times +
                             "together memory share 0.2 rate 0.7 spread 0.02\ntogether memory share 0.9 rate 0.96 spread 0\n")
        measured, rows, _ = self.measure("nanoflow-fig5", "--profile", profile)
        self.assertEqual(measured, {("compute", "1"): 0.8, ("memory", "1"): 0.7, ("compute", "2"): 0.1, ("memory", "2"): 0.96})
        self.assertEqual({(r["device"], r["model"]) for r in rows}, {("a test", "demo")})

    def test_dataset(self):
        path = self.write("splitwise.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nXXX,10,5\nXXX,30,15\n")
        measured, _, _ = self.measure("nanoflow-table4", "--dataset", path)
        self.assertEqual(measured, {("prompt, mean", "Splitwise"): 20, ("prompt, deviation", "Splitwise"): 10, ("output, mean", "Splitwise"): 10,
                                    ("output, deviation", "Splitwise"): 5})

    def test_text(self):
        """The built-in model's logits on a text: shares of all units are 100 %."""
        measured, _, _ = self.measure("flash-fig5", *cli.CPU, "-t", 1, "-f", self.write("text", "Once upon a time there was a little cat. " * 9))
        self.assertAlmostEqual(sum(v for (s, _), v in measured.items() if s == "all layers"), 100, delta=0.01)

    def test_shared_memory_of_a_shape(self):
        """Computed, so for a model of any size: sharing gains the more, the larger steps are. What is written goes behind the rows that are there."""
        measured, _, _ = self.measure("flash-fig19", "--shape", "llama3-8b")
        gains = [measured["shared", str(x)] / measured["apart", str(x)] for x in (4096, 8192, 16384, 32768, 65536)]
        self.assertEqual(gains, sorted(gains))
        again, rows, _ = self.measure_again("flash-fig19", "--shape", "llama3-8b")
        self.assertEqual((again, len(rows)), (measured, 2 * len({(r["series"], r["x"]) for r in rows})))

    def measure_again(self, name, *args):
        p = self.run_paper(name, *args, "--results", os.path.join(self.folder, "rows.csv"), "-o", self.folder)
        self.assertEqual(p.returncode, cli.OK, p.stderr)
        self.assertIn(f"{name}.csv", p.stderr)
        with open(os.path.join(self.folder, "rows.csv"), newline="") as f:
            rows = list(csv.DictReader(f))
        return {(r["series"], r["x"]): float(r["median"]) for r in rows if r["median"]}, rows, p.stdout


if __name__ == "__main__":
    cli.main()
