"""weft bench paper: every figure of the list runs, and its table, file and drawing agree with each other and with the paper's points."""
import csv
import os
import re
import signal
import subprocess
import tempfile
import unittest
from unittest import mock
import xml.etree.ElementTree as xml

import cli
from test_chat import Terminal

NS = "{http://www.w3.org/2000/svg}"
QUICK = [*cli.CPU, "-t", 1, "--quick"]
MORE = {"flash-fig5": ["-p", "Once upon a time there was a little cat."],  # what a figure needs besides the built-in model
        "flash-tokens": ["-f", os.path.join(cli.ROOT, "README.md")],
        "sarathi-fig8": ["-r", 3]}  # small differences of times, some of which get lost
PROFILE = ("nanoflow-fig5", "nanoflow-table3", "nanoflow-fig6")  # figures of ops beside each other, whose times the test brings
STEPS = {"nanoflow-fig6": ("one after another, predicted", "found, predicted"),  # drawn as steps, under these heads
         "nanoflow-fig10": ("one after another, measured", "overlapped, measured")}

TWINS = ("sarathi-fig11b", "flash-fig15")  # other rows of the code behind sarathi-fig9 and flash-fig16


def figures():
    """Of the list: id and what it needs."""
    return re.findall(r"(?m)^(\S+) +\S.*\n +needs ([^;]+);", cli.weft("bench", "paper", "--list").text)


class Usage(cli.TestCase):
    def test_text_of_a_figure_that_takes_none(self):
        for letter in ("-f", "-p"):
            self.fails(cli.USAGE, f"sarathi-fig9 makes its prompts itself: leave {letter} out", "bench", "paper", "sarathi-fig9", letter, "x")


    def test_text_that_has_no_prompts(self):
        self.fails(cli.USAGE, "prompts are cut from it, so give it thousands (-f)", "bench", "paper", "flash-tokens", *QUICK, "-p", "x")
        self.fails(cli.USAGE, "flash-tokens needs a text: use -f FILE", "bench", "paper", "flash-tokens", *QUICK)


class Paper(cli.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.folder = temp.name
        self.profile, self.dataset = os.path.join(self.folder, "times"), os.path.join(self.folder, "splitwise.csv")

    def write_inputs(self):
        """Beside compute that loses a fifth of its rate, ops of memory keep 0.7 of theirs; and requests of 10 to 30 tokens."""
        with open(self.profile, "w") as f:
            f.write("weft-profile 1\ndevice a test\nmodel demo\ngroups 16\ntile 8\ncontext 128\n")
            for op, kind, us in (("q", "compute", 20), ("attn_out", "compute", 20), ("decode_attention", "memory", 40), ("down", "compute", 30)):
                f.write(f"op {op} {kind}\n" + "".join(f"time {op} tokens {n} share 1 us {us * n / 8} spread 0.1\n" for n in (8, 64)))
            f.write("together memory share 0.2 rate 0.7 spread 0.02\ntogether memory share 0.9 rate 0.96 spread 0\n")
        with open(self.dataset, "w") as f:
            f.write("TIMESTAMP,ContextTokens,GeneratedTokens\nXXX,10,5\nXXX,30,15\n")

    def more(self, name):
        return ["--profile", self.profile] if name in PROFILE else ["--dataset", self.dataset] if name == "nanoflow-table4" else MORE.get(name, [])

    def rows(self, name):
        with open(os.path.join(self.folder, name + ".csv"), newline="") as f:
            return list(csv.DictReader(f))

    def check_csv(self, name):
        rows = self.rows(name)
        measured = [r for r in rows if r["median"]]
        self.assertTrue(measured)
        for r in measured:
            self.assertEqual(r["figure"], name)
            self.assertLessEqual(float(r["lowest"]), float(r["median"]))
            self.assertLessEqual(float(r["median"]), float(r["highest"]))
            self.assertGreaterEqual(int(r["runs"]), 1)
        for r in rows:
            self.assertTrue(r["median"] or r["paper"], r)
        return rows

    def check_svg(self, name, rows):
        """Each of the paper's points is one hollow circle, but for those in the legend; what was measured is in filled ones or bars."""
        svg = xml.parse(os.path.join(self.folder, name + ".svg")).getroot()
        words = [t.text for t in svg.iter(NS + "text")]
        if name in STEPS:
            for head in STEPS[name]:
                self.assertTrue(any(w.startswith(head) for w in words), words)
            self.assertEqual(sum(1 for g in svg.iter(NS + "g") if g.get("class", "").split(" ")[0] in ("step", "layer")), len(STEPS[name]))
            return
        hollow = [c for c in svg.iter(NS + "circle") if c.get("fill") == "#fff"]
        self.assertEqual(len(hollow), sum(1 for r in rows if r["paper"]) + sum(1 for w in words if w.startswith("paper: ")))
        for r in rows:
            if r["median"]:
                self.assertIn(r["series"], words)
            if r["paper"]:
                self.assertIn("paper: " + r["series"], words)
        filled = len(list(svg.iter(NS + "circle"))) - len(hollow) + len(list(svg.iter(NS + "title")))
        self.assertEqual(filled, sum(1 for r in rows if r["median"] and float(r["median"]) > 0))

    def check_figure(self, name):
        text = self.ok("bench", "paper", name, *QUICK, *self.more(name), "-o", self.folder).text
        self.assertEqual(sorted(n for n in os.listdir(self.folder) if n.startswith(name + ".")), [name + ".csv", name + ".svg"])
        rows = self.check_csv(name)
        self.check_svg(name, rows)
        cells = [[c.strip() for c in line.split("|")] for line in text.splitlines() if line.startswith("| ")][2:]
        for shown, written in zip(sorted(float(c[3]) for c in cells if c[3]), sorted(float(r["median"]) for r in rows if r["median"]), strict=True):
            self.assertAlmostEqual(shown, written, delta=abs(written) / 1e3)
        self.assertIn("What differs:", text)
        more = getattr(self, "check_" + name.replace("-", "_"), None)
        if more:
            more(text, [(r["x"], float(r["median"]), float(r["paper"])) for r in rows if r["median"] and r["paper"]])

    def check_nanoflow_table1(self, text, both):
        self.assertEqual(len(both), 24)
        for _, ours, paper in both:
            self.assertAlmostEqual(ours, paper, delta=1)

    def check_nanoflow_table2(self, text, both):
        """The cost model, from the paper's sizes and constants: to the rounding of its table; decode attention, whose lengths are chosen by it, within half a percent."""
        self.assertIn("2048 tokens a step, 1024 of them decodes", text)
        self.assertEqual(len(both), 7)
        for op, ours, paper in both:
            self.assertAlmostEqual(ours, paper, delta=0.1 if op == "DecAttn" else 0.02)

    def series(self, name):
        """What was measured: by series and x."""
        return {(r["series"], r["x"]): float(r["median"]) for r in self.rows(name) if r["median"]}

    def check_nanoflow_fig5(self, text, both):
        """Pairs, from what costs compute the least on."""
        self.assertEqual(self.series("nanoflow-fig5"), {("compute", "1"): 0.8, ("memory", "1"): 0.7, ("compute", "2"): 0.1, ("memory", "2"): 0.96})

    def check_nanoflow_table3(self, text, both):
        self.assertEqual(both, [("0.2", 0.7, 0.3), ("0.9", 0.96, 0.95)])

    def check_nanoflow_table4(self, text, both):
        self.assertEqual({kind: n for (kind, of), n in self.series("nanoflow-table4").items() if of == "Splitwise"},
                         {"prompt, mean": 20, "prompt, deviation": 10, "output, mean": 10, "output, deviation": 5})
        self.assertEqual(len(both), 4)

    def check_nanoflow_fig6(self, text, both):
        """A step of 64 tokens, by the times of the profile: 160 us for q, and 40 for seven decodes as for eight."""
        apart = {x: us for (series, x), us in self.series("nanoflow-fig6").items() if series == "one after another"}
        self.assertEqual(apart, {"KQV": 160, "O": 160, "D": 240, "DecAttn": 40, "the layer": 600})
        self.assertIn("; this is demo on a test", text)
        self.assertEqual({(r["device"], r["driver"], r["model"]) for r in self.rows("nanoflow-fig6") if r["median"]}, {("a test", "", "demo")})

    def check_nanoflow_fig10(self, text, both):
        for (_, resource), use in self.series("nanoflow-fig10").items():
            self.assertLessEqual(use, 100)
            if resource in ("compute", "memory", "network"):
                self.assertEqual(use > 0, resource != "network")
        self.assertIn("64 tokens, 7 of them decodes", text)

    def check_sarathi_fig10(self, text, both):
        self.assertEqual({x for _, x in self.series("sarathi-fig10")}, {"preproj", "attention", "postproj", "ffn", "others"})

    def check_sarathi_fig12a(self, text, both):
        """Chunks of one length leave a small part of the bubbles."""
        bubbles = self.series("sarathi-fig12a")
        for policy in ("Orca", "SARATHI"):
            by_rank = [bubbles[policy, str(percent)] for percent in range(10, 100, 10)]
            self.assertEqual(by_rank, sorted(by_rank))
        self.assertEqual(bubbles["Orca", "50"], 1)
        self.assertLess(bubbles["SARATHI", "50"], 1 / 6.29)

    def check_nanoflow_fig9(self, text, both):
        """Each load with each plan, of which none is kept here, and the paper's numbers beside those that it has."""
        rows = [(r["series"], r["x"]) for r in self.rows("nanoflow-fig9") if r["median"]]
        self.assertEqual(sorted(rows), sorted((plan, load) for load in ("decode", "prefill", "mixed") for plan in ("no split", "split only", "overlap")))
        self.assertEqual(sorted(paper for _, _, paper in both), [0.868, 1.07, 1.17])
        self.assertIn("mixed: 64 tokens a step, 7 of them decodes", text)

    def check_nanoflow_fig5(self, text, both):
        """The times are of the model that the file names, whatever model is open."""
        self.assertIn("; this is demo on a test", text)
        self.assertEqual({(r["device"], r["model"]) for r in self.rows("nanoflow-fig5")}, {("a test", "demo")})

    def check_flash_fig7(self, text, both):
        """Of each width one kernel is the best, and others are measured by it, not by the next one."""
        rows = [(r["x"], float(r["median"])) for r in self.rows("flash-fig7") if r["median"]]
        for x in {x for x, _ in rows}:
            rates = [rate for at, rate in rows if at == x]
            self.assertEqual(max(rates), 1)
            self.assertGreater(len(rates), 2)
            self.assertLess(rates.count(1), len(rates) / 2)

    def check_flash_table2(self, text, both):
        self.assertEqual({kind for kind, _ in self.series("flash-table2")}, {"full", "without flat products"})
        self.assertRegex(text, r"sequences fit with it, \d+ without")

    def check_flash_fig16(self, text, both):
        """The synchronous kernel's rate is 1, and some other one has the asynchronous softmax."""
        rows = {r["series"]: float(r["median"]) for r in self.rows("flash-fig16") if r["median"]}
        self.assertEqual(rows["synchronous"], 1)
        self.assertGreater(rows["asynchronous"], 0)

    def test_every_figure(self):
        no_plans = mock.patch.dict(os.environ, {"XDG_CACHE_HOME": os.path.join(self.folder, "cache")})  # `weft tune --overlap` has kept none there
        no_plans.start()
        self.addCleanup(no_plans.stop)
        self.write_inputs()
        known = figures()
        self.assertEqual(len({name for name, _ in known}), len(known))
        for name, needs in (row for row in known if row[0] not in TWINS):
            with self.subTest(name):
                if needs.startswith("an AMD GPU"):
                    self.fails(cli.DEVICE, "needs an AMD GPU", "bench", "paper", name, *QUICK)
                else:
                    self.check_figure(name)

    def test_flat_products_over_another_library(self):
        """Its rate is a hundredth of a GFLOP/s for one token, and unknown for 16."""
        peer = os.path.join(self.folder, "peer.csv")
        with open(peer, "w") as f:
            f.write('op,dtype,shape,peer,rate,unit\ngemm,F16,"M=1,N=256,K=256",blas,1e-5,TFLOP/s\ngemm,F16,"M=1,N=256,K=256",blas,1e-5,GB/s\n')
        self.ok("bench", "paper", "flash-fig18", *QUICK, "--peer", peer, "-o", self.folder)
        gains = self.series("flash-fig18")
        self.assertEqual(list(gains), [("N=256,K=256 over blas", "1")])
        self.assertGreater(gains["N=256,K=256 over blas", "1"], 1)
        with open(peer, "w") as f:
            f.write('op,dtype,shape,peer,rate,unit\ngemm,F16,"M=1,N=8,K=8",blas,1e-5,TFLOP/s\n')
        self.fails(cli.USAGE, "has none of these products", "bench", "paper", "flash-fig18", *QUICK, "--peer", peer)

    def test_scale_and_repetitions(self):
        text = self.ok("bench", "paper", "sarathi-fig13b", *cli.CPU, "--scale", 0.125, "-r", 2, "-o", self.folder).text
        self.assertIn("lengths are 0.125 of the paper's, the longest 128 tokens instead of 1024\n", text)
        rows = [r for r in self.rows("sarathi-fig13b") if r["median"]]
        self.assertEqual([(r["x"], r["paper_x"], r["runs"]) for r in rows],
                         [("8", "64", "2"), ("16", "128", "2"), ("32", "256", "2"), ("40", "320", "2"), ("64", "512", "2")])
        text = self.ok("bench", "paper", "sarathi-fig13b", *cli.CPU, "-c", 64, "-r", 1).text
        self.assertIn("instead of 1024: the context has no more", text)

    def test_shared_memory_of_a_shape(self):
        """Computed, so for a model of any size: sharing gains the more, the larger steps are."""
        self.ok("bench", "paper", "flash-fig19", "--shape", "llama3-8b", "-o", self.folder)
        tokens = {(r["series"], int(r["x"])): float(r["median"]) for r in self.rows("flash-fig19") if r["median"]}
        gains = [tokens["shared", x] / tokens["apart", x] for x in (4096, 8192, 16384, 32768, 65536)]
        self.assertEqual(gains, sorted(gains))
        self.assertGreater(gains[-1], 1.05)

    def test_columns_are_as_wide_as_their_words(self):
        text = self.ok("bench", "paper", "sarathi-fig9", *QUICK).text
        self.assertIn("prompt tokens / generated tokens |", text)
        table = [line for line in text.splitlines() if line.startswith("|")]
        self.assertEqual(len({len(line) for line in table}), 1, text)

    def test_where_it_writes(self):
        """Among other files, in place of its own; what it cannot write there it says before it measures."""
        computed = ["bench", "paper", "flash-fig19", "--shape", "llama3-8b", "-o"]
        for name in ("mine", "flash-fig19.csv"):
            with open(os.path.join(self.folder, name), "w") as f:
                f.write("mine")
        self.ok(*computed, self.folder)
        self.check_csv("flash-fig19")
        self.assertEqual(sorted(os.listdir(self.folder)), ["flash-fig19.csv", "flash-fig19.svg", "mine"])
        path = os.path.join(self.folder, "mine")
        os.chmod(path, 0o755)
        self.fails(cli.RUNTIME, "not a folder", *computed, path)
        with open(path) as f:
            self.assertEqual(f.read(), "mine")
        os.remove(os.path.join(self.folder, "flash-fig19.svg"))
        os.makedirs(os.path.join(self.folder, "flash-fig19.svg"))
        self.fails(cli.RUNTIME, "flash-fig19.svg", *computed, self.folder)

    def test_sequences_at_a_time(self):
        self.assertIn("- 6 sequences at a time", self.ok("bench", "paper", "nanoflow-fig7", *QUICK, "--max-num-seqs", 6).text)
        one = self.ok("bench", "paper", "nanoflow-fig7", *QUICK, "--policy", "orca").text
        self.assertIn("| orca ", one)
        self.assertNotIn("| sarathi ", one)
        self.fails(cli.USAGE, "nanoflow-fig8 has no use for --policy", "bench", "paper", "nanoflow-fig8", *QUICK, "--policy", "orca")
        self.fails(cli.USAGE, "sarathi-fig9 has no use for --max-num-seqs", "bench", "paper", "sarathi-fig9", *QUICK, "--max-num-seqs", 6)

    def test_too_little_memory(self):
        self.fails(cli.RUNTIME, "--scale", "bench", "paper", "sarathi-table2", *QUICK, "--max-alloc", "1K")

    def test_ctrl_c_leaves_no_file(self):
        p = subprocess.Popen([cli.WEFT, "bench", "paper", "sarathi-fig8", *cli.CPU, "-r", "16", "-o", self.folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        cli.await_interrupts(p)
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, cli.INTERRUPTED, err)
        self.assertEqual(os.listdir(self.folder), [])

    def test_ctrl_c_ends_calibration(self):
        """Of a text that would take minutes."""
        text = os.path.join(self.folder, "text")
        with open(text, "w") as f:
            f.write("One day a cat went out to play with a little red ball. " * 50000)
        with Terminal("bench", "paper", "flash-fig5", *cli.CPU, "-f", text) as t:
            t.until(b"calibrate")
            t.type("\x03")
            self.assertEqual(t.end(), cli.INTERRUPTED)

    def test_no_room_for_the_file(self):
        """Where files may not grow it says so, and leaves none."""
        p = subprocess.run(["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", cli.WEFT, "bench", "paper", "sarathi-fig12a", "-o", self.folder],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.assertEqual(p.returncode, cli.RUNTIME, p.stderr)
        self.assertIn("sarathi-fig12a", p.stderr)
        self.assertEqual(os.listdir(self.folder), [])

    def test_wrong_usage(self):
        self.fails(cli.USAGE, "--list", "bench", "paper")
        self.fails(cli.USAGE, "leave 'sarathi-fig9' out", "bench", "paper", "--list", "sarathi-fig9")
        self.fails(cli.USAGE, "leave 'EXTRA' out", "bench", "paper", "EXTRA", "--list")
        for figure in ("flash-fig15", "flash-fig16"):
            for option, *value in (("--ctx-size", 64), ("--calibration", "none"), ("--deterministic",)):
                self.fails(cli.USAGE, f"{figure} has no use for {option}: leave it out", "bench", "paper", figure, *QUICK, option, *value)
        self.fails(cli.USAGE, "did you mean sarathi-fig9", "bench", "paper", "sarathi-fg9")
        self.fails(cli.USAGE, "conflict", "bench", "paper", "sarathi-fig9", "--shape", "llama3-8b", "-m", "x.gguf")
        self.fails(cli.USAGE, "add --shape", "bench", "paper", "sarathi-fig9", "--type", "Q8_0")
        self.fails(cli.USAGE, "-f FILE", "bench", "paper", "flash-fig5", *QUICK)
        self.fails(cli.DEVICE, "no device", "bench", "paper", "nanoflow-fig7", "--device", "nope", "--quick")
        self.fails(cli.USAGE, "nanoflow-fig7 has no use for --dataset", "bench", "paper", "nanoflow-fig7", *QUICK, "--dataset", "x.csv")
        self.fails(cli.RUNTIME, "absent.csv", "bench", "paper", "nanoflow-table4", "--dataset", "absent.csv")
        self.fails(cli.USAGE, "use --dataset FILE.csv", "bench", "paper", "nanoflow-table4")
        self.fails(cli.USAGE, "'nope' is no shape", "bench", "paper", "nanoflow-fig11", *QUICK, "--shape", "nope,llama3-8b")
        self.fails(cli.USAGE, "at least 8", "bench", "paper", "sarathi-fig13b", *QUICK, "-c", 7)
        self.fails(cli.USAGE, "-c 513", "bench", "paper", "sarathi-fig7", *QUICK, "-c", 64)
        self.fails(cli.RUNTIME, "/proc/absent", "bench", "paper", "sarathi-fig9", "-o", "/proc/absent")
        self.fails(cli.MODEL, "absent.gguf", "bench", "paper", "sarathi-fig9", "-m", "absent.gguf")


if __name__ == "__main__":
    cli.main()
