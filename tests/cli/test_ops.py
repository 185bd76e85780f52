"""bench ops and tune: what they print and write can be read by programs, and a written choice is used."""
import csv
import getpass
import io
import json
import os
import pathlib
import re
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
import xml.dom.minidom

import cli

QUICK = ["WEFT_ROTATE=64K", "-r", "1"]
GEMM = ["--shape", "M=3,N=64,K=64"]
COLUMNS = "date,device,driver,commit,op,dtype,shape,variant,median_us,rate,unit,ceiling_pct,peer,peer_rate,ratio".split(",")


def devices():
    """The CPU path, and the first OpenCL device where there is one."""
    listed = re.findall(r"^(opencl:\S+)", cli.weft("--list-devices").text, re.M)
    return ["cpu"] + listed[:1]


def built_once(device):
    """So that an OpenCL device of a CPU compiles each kernel once, not twice; see tests/support/build_once.h."""
    return ["WEFT_NO_KERNEL_CACHE=1"] if device.startswith("opencl") else []


class Folder(cli.TestCase):
    """Each test has a folder of its own, which is also where the user's settings lie."""

    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.folder = temp.name
        self.env = {"XDG_CONFIG_HOME": self.folder, "WEFT_CLBUILD": "none"}

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        pathlib.Path(self.path(name)).write_text(text)
        return self.path(name)

    def ops(self, *args, device="cpu"):
        r = self.ok("bench", "ops", "--device", device, *built_once(device), *QUICK, *args, "-o", "csv", env=self.env)
        return list(csv.DictReader(io.StringIO(r.text)))

    def results(self):
        name, = (n for n in os.listdir(self.folder) if n.endswith(".csv"))
        with open(self.path(name), newline="") as f:
            reader = csv.DictReader(f)
            rows = list(reader)
        self.assertEqual(reader.fieldnames, COLUMNS)
        return rows


class Ops(Folder):
    def test_every_device(self):
        for device in devices():
            rows = self.ops(*GEMM, "--shape", "B=2,L=20", "--shape", "L=9,B=1,H=4,KV=2,D=64", "--shape", "B=2,L=20,S=5", device=device)
            self.assertEqual([(r["op"], r["dtype"], r["shape"]) for r in rows],
                             [("gemm", "F16", "M=3,N=64,K=64")] + [(op, "F16", shape) for op in ("decode_attention", "prefill_attention")
                                                                  for shape in ("B=2,L=20", "B=1,L=9,H=4,KV=2,D=64", "B=2,L=20,S=5")])
            for r in rows:
                self.assertEqual((r["device"], r["picked"]), (device, "1"))
                self.assertGreater(float(r["median_us"]), 0)
                self.assertGreater(float(r["ceiling_pct"]), 0)
                self.assertTrue(r["variant"])
            self.check_rates(rows)

    def check_rates(self, rows):
        """The rate is work over time: the sizes of the shapes, by hand."""
        gemm, decode, _, sparse_decode, prefill, _, sparse_prefill = rows
        self.assertEqual([r["unit"] for r in (gemm, decode, prefill)], ["GB/s", "GB/s", "TFLOP/s"])
        for r, work in ((gemm, 2 * (64 * 64 + 3 * 64 + 3 * 64) / 1e3), (decode, 2 * 2 * 20 * 8 * 128 * 2 / 1e3),
                        (prefill, 4 * 32 * 128 * 2 * (20 * 21 / 2) / 1e6), (sparse_decode, 2 * 2 * 5 * 8 * 128 * 2 / 1e3),
                        (sparse_prefill, 4 * 32 * 128 * 2 * (1 + 2 + 3 + 4 + 16 * 5) / 1e6)):
            self.assertAlmostEqual(float(r["rate"]) * float(r["median_us"]) / work, 1, 2)

    def test_formats_of_weights_and_rows(self):
        rows = self.ops("--op", "gemm", "--shape", "N=32,K=256", "--type", "F32,Q8_0,Q6_K")
        self.assertEqual([(r["dtype"], int(re.match(r"M=(\d+)", r["shape"]).group(1))) for r in rows],
                         [(t, m) for t in ("F32", "Q8_0", "Q6_K") for m in (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)])
        self.assertEqual({r["unit"] for r in rows}, {"GB/s", "TFLOP/s"})

    def test_variants(self):
        every = self.ops(*GEMM, "WEFT_VARIANT=all")
        self.assertGreater(len(every), 1)
        self.assertEqual(len(set(r["variant"] for r in every)), len(every))
        self.assertEqual(sum(r["picked"] == "1" for r in every), 1)
        one, = self.ops(*GEMM, "WEFT_VARIANT=ref")
        self.assertEqual(one["variant"], "ref")

    def test_work_groups(self):
        """The limit reaches kernels: CLBlast, which cannot be given a part of the device, runs only without one."""
        for device in devices()[1:]:
            if not re.search(r"clblast .* yes ", self.ok("kernels", "--device", device).text):
                continue
            self.assertEqual(self.ops(*GEMM, "WEFT_VARIANT=clblast", device=device)[0]["variant"], "clblast")
            r = cli.weft("bench", "ops", "--device", device, *QUICK, *GEMM, "WEFT_VARIANT=clblast", "WEFT_WORK_GROUPS=1", env=self.env)
            self.assertNotEqual(r.code, 0)
            self.assertIn("this variant cannot run it", r.err)
        self.assertEqual(len(self.ops(*GEMM, "WEFT_WORK_GROUPS=1", "--results", self.folder)), 1)
        self.assertEqual([r["shape"] for r in self.results()], ["M=3,N=64,K=64,groups=1"])

    def test_copies(self):
        """Pages of KV to host memory and back, with a row each for the ways alone and both at once."""
        for device in devices():
            rows = self.ops("--op", "kv_copy", device=device)
            self.assertEqual([(r["op"], r["shape"], r["unit"]) for r in rows], [("kv_copy", s, "GB/s") for s in ("up", "down", "both ways")])
            bytes_of = [float(r["rate"]) * float(r["median_us"]) for r in rows]
            self.assertGreater(min(bytes_of), 0)
            self.assertAlmostEqual(bytes_of[2] / (bytes_of[0] + bytes_of[1]), 1, delta=1e-3)

    def test_markdown_and_json(self):
        text = self.ok("bench", "ops", *cli.CPU, *QUICK, *GEMM, env=self.env).text
        self.assertRegex(text.splitlines()[0], r"Ceilings measured now: reading [0-9.e+]+ GB/s, F32 [0-9.]+ TFLOP/s")
        self.assertRegex(text.splitlines()[-1], r"^\| gemm +\| F16 +\| M=3,N=64,K=64 +\| \S+ +\| +[0-9.]+ \| +[0-9.e-]+ GB/s \| +[0-9.]+ % \| #* +\|")
        row, = json.loads(self.ok("bench", "ops", *cli.CPU, *QUICK, *GEMM, "-o", "json", env=self.env).text)
        self.assertEqual((row["op"], row["shape"], row["picked"], row["unit"]), ("gemm", "M=3,N=64,K=64", True, "GB/s"))
        self.assertGreater(row["ceilings"]["read_gb_s"], 0)

    def test_results_and_peers(self):
        peers = self.write("peers", 'op,dtype,shape,peer,rate,unit\n'
                           'gemm,F16,"M=3,N=64,K=64",cublas,0.5,GB/s\n'
                           'gemm,F16,"M=3,N=64,K=64",clblast,0.25,GB/s\n'
                           'gemm,F16,"M=3,N=64,K=64",wrong,1,TFLOP/s\n'
                           'gemm,Q8_0,"M=3,N=64,K=64",other,1,GB/s\n')
        r = self.ok("bench", "ops", *cli.CPU, *QUICK, *GEMM, "--results", self.folder, f"WEFT_PEER={peers}", env=self.env)
        self.assertIn("wrong", r.err)
        self.ops(*GEMM, "--results", self.folder)
        rows = self.results()
        self.assertEqual([(r["peer"], r["peer_rate"]) for r in rows], [("cublas", "0.5"), ("clblast", "0.25"), ("", "")])
        self.assertEqual({(r["op"], r["dtype"], r["shape"]) for r in rows}, {("gemm", "F16", "M=3,N=64,K=64")})
        for r in rows[:2]:
            self.assertAlmostEqual(float(r["ratio"]), float(r["rate"]) / float(r["peer_rate"]), 2)
            self.assertRegex(r["date"], r"^\d{4}-\d\d-\d\d$")

    def test_bad_peers(self):
        for text in ("gemm,F16\n", "gemm,F16,x,p,fast,GB/s\n", "gemm,F16,x,p,-1,GB/s\n", "gemm,F16,x,p,1,GB/s,more\n"):
            self.fails(cli.RUNTIME, "line 1", "bench", "ops", *cli.CPU, *GEMM, f"WEFT_PEER={self.write('peers', text)}")
        self.fails(cli.RUNTIME, "/absent", "bench", "ops", *cli.CPU, *GEMM, "WEFT_PEER=/absent")
        old = self.write("old", "gemm,F16,x,p,1,GB/s\n")
        os.utime(old, (time.time() - 7200,) * 2)
        self.fails(cli.USAGE, "same run", "bench", "ops", *cli.CPU, *GEMM, f"WEFT_PEER={old}")
        for name, why in (("absent", "No such"), ("old", "not a folder")):
            self.fails(cli.RUNTIME, why, "bench", "ops", *cli.CPU, *QUICK, *GEMM, "--results", self.path(name))
            self.fails(cli.RUNTIME, why, "bench", *cli.CPU, "--results", self.path(name))

    def test_bad_options(self):
        self.fails(cli.DEVICE, "no device", "bench", "ops", "--device", "absent", *GEMM)
        r = cli.weft("bench", "ops", *cli.CPU, "--shape", "B=65536,L=1024", env=self.env)
        self.assertEqual((r.code, r.out), (cli.RUNTIME, b""))
        self.assertIn("skipped", r.err)


class Baselines(Folder):
    """The peers' programs and the plot speak the same language as the program."""

    def python(self, script, *args):
        p = subprocess.run([sys.executable, os.path.join(cli.ROOT, "bench", script), *args], capture_output=True, text=True, timeout=240)
        if "is missing" in p.stderr or "cannot open shared object" in p.stderr:
            self.skipTest(p.stderr.splitlines()[-1])
        self.assertEqual(p.returncode, 0, p.stderr)
        return p.stdout

    def test_openblas(self):
        text = self.python("baselines/openblas.py", "--shape", "M=3,N=64,K=64", "--shape", "M=128,N=64,K=64", "--rotate", "1")
        self.assertRegex(text, r"^# OpenBLAS core \w+, \d+ threads\n")
        peers = self.write("peers", text)
        rows = self.ops("--type", "F32", *GEMM, "--shape", "M=128,N=64,K=64", "--shape", "B=1,L=4", f"WEFT_PEER={peers}", "--results", self.folder)
        self.assertEqual([r["peer"] for r in rows], ["openblas", "openblas", "", ""])
        self.assertEqual([r["unit"] for r in rows], ["GB/s", "TFLOP/s", "GB/s", "TFLOP/s"])
        self.check_plot(self.results())

    def check_plot(self, rows):
        name, = (n for n in os.listdir(self.folder) if n.endswith(".csv"))
        plot = xml.dom.minidom.parseString(self.python("roofline.py", self.path(name)))
        titles = [t.firstChild.data for t in plot.getElementsByTagName("title")]
        for r in rows:
            self.assertTrue(any(r["shape"] in t and r["variant"] in t for t in titles), r)
        self.assertEqual(sum("openblas" in t for t in titles), 2)

    def test_clblast(self):
        if not any(d.startswith("opencl") for d in devices()):
            self.skipTest("no OpenCL device")
        text = self.python("baselines/clblast.py", "--shape", "M=3,N=64,K=64", "--rotate", "1")
        self.assertRegex(text, r'\ngemm,F32,"M=3,N=64,K=64",clblast,[0-9.e+-]+,GB/s\n$')


class Tune(Folder):
    def test_every_device(self):
        for device in devices():
            r = self.ok("tune", "--device", device, *built_once(device), *QUICK, "--shape", "N=64,K=64", "--shape", "H=4,KV=2,D=64", "WEFT_TUNE_SIZE=4", env=self.env)
            path = re.search(r"wrote (\S+)", r.err).group(1)
            self.assertTrue(path.startswith(self.folder))
            lines = r.text.splitlines()
            self.assertEqual([line.split()[3] for line in lines[1:4]], ["M=1", "M=2", "M=4"])
            head, *rows = (line for line in pathlib.Path(path).read_text().splitlines() if line[0] != "#")
            self.assertEqual(head, "weft-tuned 1")
            self.assertRegex(rows[4], "^kernels [0-9a-f]{8}$")
            self.assertRegex(rows[5], r"^cost device read=[0-9.]+,f32=[0-9.]+")
            self.assertRegex(rows[6], r"^gemm F16 N=64,K=64 1:\S+( \d:\S+)*$")
            self.assertRegex(rows[7], r"^prefill_attention F16 H=4,KV=2,D=64 1:\S+$")
            # The file is loaded, and gives the kernel that it names, or leaves the choice.
            choice = rows[6].split()[3].split(":")[1]
            row, = self.ops("--shape", "M=1,N=64,K=64", device=device)
            self.assertIn(choice, ("auto", row["variant"]))

    def test_model(self):
        r = self.ok("tune", *cli.CPU, *QUICK, "-m", cli.data("stories260K.gguf"), "WEFT_TUNE_SIZE=2", "-f", self.path("out"))
        self.assertNotIn("dense_batch", r.text)  # 2 rows do not tell
        gemms = {tuple(line.split()[:3]) for line in r.text.splitlines() if line.startswith("gemm")}
        self.assertEqual(gemms, {("gemm", "F32", s) for s in ("N=64,K=64", "N=32,K=64", "N=172,K=64", "N=64,K=172", "N=512,K=64")})
        self.assertIn("H=8,KV=4,D=8", r.text)

    def test_rows_of_other_shapes_stay(self):
        for shape in ("N=64,K=64", "N=32,K=64", "N=64,K=64"):
            self.ok("tune", *cli.CPU, *QUICK, "--shape", shape, "WEFT_TUNE_SIZE=1", "-f", self.path("out"))
        self.assertEqual(re.findall(r"N=\d+,K=\d+", pathlib.Path(self.path("out")).read_text()), ["N=64,K=64", "N=32,K=64"])

    def test_seconds(self):
        """A run that is ended keeps what it has measured, and the next one begins with the rest. A sample takes 50 ms, so that a second is for 7 of the
        shapes at most, and the one under way."""
        shapes = [word for n in range(30) for word in ("--shape", f"N={8 + n},K=64")]
        command = ["tune", *cli.CPU, *QUICK, *shapes, "WEFT_TUNE_SIZE=4", "--seconds", 1, "-f", self.path("out")]
        kept = []
        for _ in range(2):
            r = self.ok(*command)
            with open(self.path("out")) as f:
                now = [line for line in f if line.startswith("gemm")]
            self.assertIn(f"{30 - (len(now) - len(kept))} shapes are left: the same command begins with them", r.err)
            self.assertIn(len(now) - len(kept), range(1, 9))
            self.assertEqual(now[:len(kept)], kept)
            kept = now

    def test_ctrl_c(self):
        """In the copies of operands or later: it ends without harm, says what is left, and keeps the rest for the same command."""
        shapes = [word for n in (256, 512) for word in ("--shape", f"N={n},K=256")]
        p = subprocess.Popen(cli.argv("tune", *cli.CPU, "WEFT_ROTATE=1G", "-r", "64", *shapes, "-f", self.path("out")),
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        cli.await_interrupts(p)
        time.sleep(0.2)
        p.send_signal(signal.SIGINT)
        err = p.communicate(timeout=60)[1]
        self.assertEqual(p.returncode, cli.INTERRUPTED, err)
        self.assertIn("are left: the same command begins with them", err)
        self.assertNotIn("\ncost ", pathlib.Path(self.path("out")).read_text())  # nor are the device's rates measured, which takes seconds

    def test_dense_batch(self):
        path = self.forced("ref", lambda text: text.replace("\ngemm", "\ndense_batch 96\ngemm"))
        load = ["bench", "throughput", *cli.CPU, "--const", "8:1", "--num-prompts", 1, "--policy", "nanoflow", "--max-num-seqs", 4]
        self.assertIn("dense batch 96", self.ok(*load, "--tuned", path).text)
        self.assertIn("dense batch 32", self.ok(*load, "--tuned", path, "--max-num-batched-tokens", 32).text)

    def forced(self, variant, edit=lambda text: text):
        """A tuned file of the CPU that names this variant."""
        self.ok("tune", *cli.CPU, *QUICK, "--shape", "N=64,K=64", "WEFT_TUNE_SIZE=1", "-f", self.path("out"))
        text = pathlib.Path(self.path("out")).read_text()
        return self.write("out", edit(re.sub(r"K=64 .*", f"K=64 1:{variant}", text)))

    def test_choice_is_used(self):
        path = self.forced("ref")
        row, = self.ops(*GEMM, "--tuned", path)
        self.assertEqual((row["variant"], row["picked"]), ("ref", "1"))
        for args in (["--tuned", "none"], ["--tuned", self.forced("gone")]):
            row, = self.ops(*GEMM, *args)
            self.assertNotEqual(row["variant"], "ref")
        row, = self.ops(*GEMM, "--tuned", self.forced("ref"), "WEFT_FORCE=gemm=rows-c")
        self.assertEqual(row["variant"], "rows-c")
        # A model runs with it, too.
        text = self.ok("run", *cli.GREEDY, "-p", "One day", "-n", "3", "--tuned", path).out
        self.assertTrue(text.strip())

    def test_bad_files(self):
        path = self.forced("ref", lambda text: text + "nonsense\n")
        self.fails(cli.USAGE, "line 10", "bench", "ops", *cli.CPU, *GEMM, "--tuned", path)
        foreign = self.forced("ref", lambda text: text.replace("device ", "device other "))
        self.fails(cli.USAGE, "another device", "bench", "ops", *cli.CPU, *GEMM, "--tuned", foreign)
        self.fails(cli.USAGE, "/absent", "run", *cli.GREEDY, "-p", "x", "--tuned", "/absent")
        # The user's own file: a warning, and on it goes.
        r = self.ok("tune", *cli.CPU, *QUICK, "--shape", "N=64,K=64", "WEFT_TUNE_SIZE=1", env=self.env)
        own = re.search(r"wrote (\S+)", r.err).group(1)
        with open(own, "a") as f:
            f.write("nonsense\n")
        r = self.ok("bench", "ops", *cli.CPU, *QUICK, *GEMM, env=self.env)
        self.assertIn("kernel choices are not used", r.err)
        self.assertIn("line 10", r.err)

    CHUNK = ["tune", *cli.CPU, "-r", 1, "--max-num-batched-tokens", 128, "--max-num-seqs", 12]

    def test_dataset(self):
        """Steps of a load, the one that suits it, and its ratio, which the file keeps from then on."""
        model = ["-m", cli.data("stories260K.gguf"), "-f", self.path("out")]
        load = self.write("load.csv", "ContextTokens,GeneratedTokens\n100,10\n200,30\n")
        r = self.ok(*self.CHUNK, *model, "--dataset-path", load)
        self.assertTrue(r.text.startswith("P:D = 7.5, of 2 requests\n"), r.text)
        rows = [line.split() for line in r.text.splitlines() if line.startswith(("sarathi", "nanoflow"))]
        self.assertEqual(sorted({int(row[1]) for row in rows}), [64, 93, 128])  # 11 decodes and 82 tokens of prompts
        for _, tokens, chunk, decodes, ms, rate in rows:
            self.assertLessEqual(int(chunk) + int(decodes), int(tokens))
            self.assertGreater(float(ms) * float(rate), 0)
        policy, tokens = re.search(r"--policy (\w+) --max-num-batched-tokens (\d+)", r.text).groups()
        self.assertIn([policy, tokens], [row[:2] for row in rows])
        r = self.ok(*self.CHUNK, *model, "--dataset-path", load, "--dataset-path", self.write("more.csv", "GeneratedTokens,ContextTokens\n20,0\n"))
        self.assertIn("P:D = 5, of 3 requests", r.text)
        r = self.ok(*self.CHUNK, *model, "--dataset-path", self.write("long.csv", "ContextTokens,GeneratedTokens\n16777216,16777216\n100,20\n"))
        self.assertIn("P:D = 5, of 1 requests", r.text)
        self.assertIn("1 of 2 requests do not fit the context", r.err)
        self.ok("tune", *cli.CPU, *QUICK, "--shape", "N=8,K=32", "WEFT_TUNE_SIZE=1", "-f", self.path("out"))
        self.assertRegex(pathlib.Path(self.path("out")).read_text(), r"\nload 100.0000:20.0000\n(?s:.*)\ngemm F16 N=8,K=32 1:")

    def test_bad_datasets(self):
        model = ["-m", cli.data("stories260K.gguf"), "-f", self.path("out")]
        head = "ContextTokens,GeneratedTokens\n"
        for message, text in (("header line", "a,b\n1,2\n"), ("no requests", head), ("line 2", head + "1,x\n"), ("no ratio", head + "5,0\n"), ("no ratio", head + "0,5\n")):
            r = cli.weft(*self.CHUNK, *model, "--dataset-path", self.write("load.csv", text))
            self.assertIn(r.code, (cli.RUNTIME, cli.USAGE))
            self.assertIn(message, r.err)
        self.fails(cli.RUNTIME, "/absent", *self.CHUNK, *model, "--dataset-path", "/absent")
        load = self.write("load.csv", head + "5,5\n")
        for message, *args in (("conflict", "--overlap"), ("one --shape", "--shape", "a", "--shape", "b")):
            self.fails(cli.USAGE, message, "tune", *cli.CPU, "--dataset-path", load, *args)
        self.fails(cli.USAGE, self.write("text", "not ours\n"), *self.CHUNK, *model[:2], "--dataset-path", load, "-f", self.path("text"))
        self.assertEqual(sorted(os.listdir(self.folder)), ["load.csv", "text"])

    def test_bad_options(self):
        for path in ("/absent/x", self.folder, self.write("text", "not ours\n")):
            self.fails(cli.RUNTIME, path, "tune", *cli.CPU, *QUICK, "--shape", "N=8,K=8", "WEFT_TUNE_SIZE=1", "-f", path)
        self.assertEqual(os.listdir(self.folder), ["text"])


class Report(Folder):
    def report(self, device, *args, **env):
        path = self.path("report.json")
        r = self.ok("report", "--device", device, "-t", 1, "--seconds", 1, "-o", path, "WEFT_QUICK=1", *args, env={**self.env, **env})
        text = pathlib.Path(path).read_text()
        self.assertEqual(r.text.count("\n"), 2)
        self.assertIn(path, r.text)
        for name in (getpass.getuser(), socket.gethostname(), os.path.expanduser("~"), cli.ROOT, self.folder, *env.values()):
            self.assertNotRegex(text, rf"(?<!\w){re.escape(name)}(?!\w)")
        return json.loads(text)

    def test_each_device(self):
        for device in devices():
            with self.subTest(device):
                got = self.report(device, *(["--tier", "base"] if device != "cpu" else []))
                self.assertTrue(got["complete"])
                self.assertIn(got["weft"]["version"], self.ok("version").text)
                about = got["device"]
                self.assertIn(about["name"], self.ok("info").text)
                self.assertTrue(about["memory"] and about["max_group"] and about["compute_units"])
                self.assertEqual(got["failures"], [])
                self.assertEqual(got["checks"]["passed"], sum(op["passed"] for op in got["checks"]["ops"]))
                self.assertGreater(got["checks"]["passed"], 0)
                self.assertEqual((got["checks"]["failed"], got["checks"]["failed_checks"]), (0, []))
                drawn = runpy.run_path(os.path.join(cli.ROOT, "bench", "devices.py"))
                self.assertEqual(len(drawn["row"](got)), len(drawn["HEAD"]))
                tiers = about["tiers"] if device == "cpu" else ["base"]
                self.assertEqual([r["tier"] for r in got["ops"] if "ceilings" in r], tiers)
                ops = [(r["tier"], r["op"]) for r in got["ops"] if "op" in r and r["rate"] > 0 and r["ceiling_pct"] > 0 and r["variant"]]
                self.assertEqual(ops, [(t, op) for t in tiers for op in ("gemm", "decode_attention", "prefill_attention")])
                self.assertEqual([(r["tier"], r["test"]) for r in got["models"] if r["tokens_s"] > 0], [(t, n) for t in tiers for n in ("pp4", "tg2")])

    def test_what_fails_is_in_it(self):
        """Without the path that the message has."""
        got = self.report("cpu", "--tier", "base", WEFT_FORCE="gemm=/home/lily/her kernel", HOME="/home/lily")
        self.assertEqual([f["what"] for f in got["failures"]], ["gemm,decode_attention", "prefill_attention", "model F16"])
        self.assertTrue(got["complete"] and all("no kernel variant" in f["error"] for f in got["failures"]))
        self.assertNotIn("lily", json.dumps(got))

    def test_the_table_is_that_of_the_reports(self):
        subprocess.run([sys.executable, "bench/devices.py", "--check"], cwd=cli.ROOT, check=True)


if __name__ == "__main__":
    cli.main()
