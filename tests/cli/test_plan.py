"""`weft plan`: what a step runs and costs; and plans that cut, interleave and choose by batch write the same text."""
import csv
import io
import itertools
import json
import os
import pathlib
import re
import tempfile
import unittest
import xml.etree.ElementTree as xml

import cli
from cli import CPU, USAGE

DEMO = os.path.join(cli.ROOT, "models", "demo.gguf")
RUN = ["run", *cli.GREEDY, "-p", "One day there was a little girl who", "-n", 24, "-q"]


def cut(text, op, lines):
    """The line of an op replaced by others, given as (where, tokens)."""
    old = re.search(rf"(?m)^layer {op} .*$", text).group(0)
    new = [re.sub(r"^layer( \S+ +)\S+", rf"{where}\g<1>{tokens}", old) for where, tokens in lines]
    return text.replace(old, "\n".join(new))


def number(text, pattern):
    return float(re.search(pattern, text).group(1))


class Cost(cli.TestCase):
    """The arithmetic is tested in tests/unit/step_cost.c; here, that it gets the model, the device and the load that were asked for."""

    def cost(self, *args):
        return self.ok("plan", "--cost", *args, "-q").text

    def test_paper(self):
        """Table 2 and equation 3 of NanoFlow, from the graph that weft runs: the same operations, and bytes with the residual stream in F32."""
        text = self.cost("--shape", "llama2-70b", "--on", "a100-80", "--tp", 8, "--tokens", 2048, "--decodes", 1024, "--const", "683:1365")
        for op, gflop, bound in (("qkv", 27487.8, "compute"), ("attn_out", 21990.2, "compute"), ("gate_up", 153931.6, "compute"), ("down", 76965.8, "compute"),
                                 ("decode_attention", 3665.9, "memory"), ("prefill_attention", 916.3, "compute"), ("all_reduce", 18.8, "network")):
            row = re.search(rf"(?m)^  {op} .*$", text).group(0).split()
            self.assertAlmostEqual(float(row[1]) / gflop, 1, 2)
            self.assertEqual(row[-1], bound)
        self.assertAlmostEqual(number(text, r"all_reduce .* ([\d.]+) +-  network"), 31.33, 1)
        self.assertIn("energy unknown", text)
        self.assertRegex(text, r"bound by compute: at best 11\d\.\d+ ms a step, 17\d\d\d tokens/s, 22\d\d a device")

    def test_energy_bounds_nothing(self):
        text = self.cost("--shape", "llama3-8b", "--on", "h200")
        self.assertAlmostEqual(number(text, r"5  optimum +(\d+) tokens/s"), 47446, delta=10)
        self.assertRegex(text, r"\nbound by (compute|memory): ")
        at_best, joules = number(text, r"at best ([\d.]+) ms"), number(text, r"at the power limit, .* about ([\d.]+) ms a step")
        self.assertLess(at_best, joules)
        self.assertIn("KV cache 131072 bytes a token", text)

    def test_residual_in_f16(self):
        """Which reads and writes less, as in an engine."""
        f32, f16 = (number(self.cost("--shape", "llama3-8b", "--on", "h200", *more), r"(?m)^  down +[\d.]+ +([\d.]+)") for more in ([], ["WEFT_F16_RESIDUAL=1"]))
        self.assertLess(f16, f32)

    def test_keys_and_values_in_bytes(self):
        self.assertIn("KV cache 69632 bytes a token", self.cost("--shape", "llama3-8b", "--on", "h200", "--kv-dtype", "q8_0"))

    def test_formats_and_experts(self):
        """A quantised mixture of experts: what a token needs decides equation 5, all experts the memory."""
        f16, q4 = (self.cost("--shape", "mixtral-8x7b", "--type", t, "--on", "h200") for t in ("F16", "Q4_0"))
        self.assertAlmostEqual(number(f16, r"5  optimum +(\d+)"), 762e12 / 2 / 12.9e9, delta=150)
        self.assertAlmostEqual(number(q4, r"([\d.]+) GB of weights") / number(f16, r"([\d.]+) GB of weights"), 18 / 64, 2)
        self.assertRegex(f16, r"experts_gate")

    def test_gpt_oss(self):
        """Of 20.91 billion weights, as published, those of the experts have 17 bytes for 32."""
        text = self.cost("--shape", "gpt-oss-20b", "--type", "MXFP4", "--on", "h200")
        experts = 24 * 32 * 3 * 2880 * 2880
        self.assertAlmostEqual(number(text, r"([\d.]+) GB of weights"), (experts * 17 / 32 + (20.91e9 - experts) * 34 / 32) / 1e9, 1)
        self.assertRegex(text, r"experts_gate_up")

    def test_given_devices(self):
        with tempfile.TemporaryDirectory() as folder:
            table = os.path.join(folder, "table")
            pathlib.Path(table).write_text("weft-devices 1\ndevice slow memory=1 read=1 f32=0.001\n")
            text = self.cost("--on", "slow", f"WEFT_DEVICE_TABLE={table}", "--tokens", 64)
            self.assertIn("this step: 64 tokens, 43 of them decodes", text)
            c = json.loads(self.cost("--on", "slow", f"WEFT_DEVICE_TABLE={table}", "--tokens", 64, "--json"))
            self.assertEqual((round(c["decodes"]), c["read_bytes_s"], c["compute_flop_s"]), (43, 1e9, 1e9))
            ops = {op["name"]: op for op in c["ops"]}
            self.assertAlmostEqual(ops["down"]["compute_s"], ops["down"]["flops"] / 1e9)
            self.assertEqual((c["ops"][-1]["bound"], c["bound"]), (c["bound"], c["bound"]))
            self.fails(USAGE, "known are: slow", "plan", "--cost", "--on", "fast", f"WEFT_DEVICE_TABLE={table}")

    def test_rates_are_measured_once_and_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            env = {"XDG_CONFIG_HOME": folder}
            first = self.ok("plan", *CPU, "--cost", "WEFT_MEASURE=1", "-q", env=env).text
            kept = [os.path.join(f, n) for f, _, names in os.walk(folder) for n in names]
            self.assertEqual(len(kept), 1)
            self.assertIn("cost device read=", pathlib.Path(kept[0]).read_text())
            self.assertEqual(self.ok("plan", *CPU, "--cost", "-q", env=env).text, first)

    def test_longer_than_trained_for(self):
        """The context follows the requests, as that of an engine follows -c."""
        r = self.ok("plan", "--cost", "--shape", "llama3-8b", "--on", "h200", "--const", "8192:1024")
        self.assertIn("longer than the 8192 tokens", r.err)
        self.assertIn("bound by", r.text)


class Overlap(cli.TestCase):
    """tests/unit/overlap.c and overlap_plans.c have what it measures and keeps; here, that the files fit the commands that read them."""

    def test_profile_and_plan(self):
        with tempfile.TemporaryDirectory() as folder:
            profile, plan = os.path.join(folder, "profile"), os.path.join(folder, "plan")
            said = self.ok("tune", *CPU, "--overlap", "WEFT_QUICK=1", "--seconds", 20, "--max-num-batched-tokens", 64, "--max-num-seqs", 8, "--profile", profile, "-o", plan, "-q").text
            for load in "decode", "prefill", "mixed":
                self.assertIn(f"\n{load}: ", said)
            self.assertIn("decode_attention", self.ok("plan", "--profile", profile).text)
            self.ok("plan", *CPU, "--search", profile, "--tokens", 64, "--seconds", 2, "-q")
            again = cli.weft_unread("tune", *CPU, "--overlap", "WEFT_QUICK=1", "--seconds", 5, "--max-num-batched-tokens", 64, "--max-num-seqs", 8, "--profile", profile, "-o", plan, "-q")
            self.assertEqual((again.code, again.err), (0, ""))
            self.assertEqual(self.ok(*RUN).text, self.ok(*RUN, "--plan", plan).text)
            other = ["tune", *CPU, "--overlap", "WEFT_QUICK=1", "--seconds", 20, "--max-num-batched-tokens", 64, "--deterministic", "--profile", profile, "-o", plan, "-q"]
            self.assertIn("another device", self.fails(USAGE, "WEFT_ANEW=1", *other).err)
            with open(profile, "a") as f:
                f.write("a line of somebody\n")
            self.fails(USAGE, "WEFT_ANEW=1", *other)
            pathlib.Path(profile).write_text("somebody's notes\n")
            self.fails(USAGE, "something else than times of ops", *other, "WEFT_ANEW=1")
            self.assertEqual(pathlib.Path(profile).read_text(), "somebody's notes\n")

    def test_energy_for_the_cost_model(self):
        """Measured with a model on a device, it is of the cost of that model on that device."""
        with tempfile.TemporaryDirectory() as folder:
            env, cost = {"XDG_CACHE_HOME": folder}, ("plan", *CPU, "--cost", "-q")
            self.assertIn("`weft tune --overlap` measures it", self.ok(*cost, env=env).text)
            said = self.ok("tune", *CPU, "--overlap", "WEFT_QUICK=1", "--seconds", 20, "--max-num-batched-tokens", 64, "--max-num-seqs", 8, "-q", env=env).text
            self.assertRegex(said, r"\npower: \w")
            profile = re.search(r", (/\S+\.profile)\n", said)[1]
            with open(profile, "a") as f:
                f.write("power idle 10 static 20 limit 30 flop 900 byte 2000 quick\n")
            told = self.ok(*cost, env=env).text
            self.assertIn("\n  900 pJ a flop, 2e+03 pJ a byte, 20 W static of a limit of 30 W\n", told)
            self.assertRegex(told, r"\nat the power limit, by what ops draw one by one, about [\d.]+ ms a step; steps may take less\n")

    def test_ablation(self):
        sizes = ["--max-num-batched-tokens", 64, "--max-num-seqs", 8, "-r", 3]
        with tempfile.TemporaryDirectory() as folder:
            r = self.ok("bench", "ablation", *CPU, *sizes, "-o", "csv", env={"XDG_CACHE_HOME": folder})
        rows = list(csv.DictReader(io.StringIO(r.text)))
        self.assertEqual([(row["load"], row["plan"]) for row in rows], [(load, plan) for load in ("decode", "prefill", "mixed") for plan in ("no split", "split only", "overlap")])
        for row in rows:
            self.assertAlmostEqual(float(row["tokens_per_second"]), int(row["tokens"]) / float(row["us"]) * 1e6, delta=0.01 * float(row["tokens_per_second"]))
        self.assertIn("no plan of `weft tune --overlap`", r.err)
        self.assertIn("| mixed   |", self.ok("bench", "ablation", *CPU, *sizes, "-q").text)
        one = self.ok("bench", "ablation", *CPU, "--max-num-batched-tokens", 64, "--max-num-seqs", 1, "-r", 3)
        self.assertIn("mixed: left out", one.err)
        self.assertNotIn("| mixed", one.text)
        self.assertIn("| prefill |     64 |       0 ", one.text)

    def test_usage(self):
        self.ok(*RUN, "--nano-batches", "auto")


class Plan(cli.TestCase):
    def test_table(self):
        r = self.ok("plan", *CPU, "--tokens", 64, "--decodes", 8, "--context", 128, "-q")
        for command in ("upload", "0.decode_attention", "0.prefill_attention", "sample", "download"):
            self.assertRegex(r.text, rf"(?m)^ +\d+  {re.escape(command)} ")
        self.assertRegex(r.text, r"0\.decode_attention +0-8 .*attention/")
        self.assertRegex(r.text, r"0\.prefill_attention +8-64 ")
        self.assertRegex(r.text, r"(?m)^ +\d+  sample +0-9 ")  # the prompt has a token sampled, too
        self.assertIn("64 tokens, 8 of them decodes", r.text)

    def test_why_sequential(self):
        with tempfile.TemporaryDirectory() as folder:
            env, never = {"XDG_CACHE_HOME": folder}, "sequential: never measured here (weft tune --overlap)"
            self.assertTrue(self.ok("plan", *CPU, "-q", env=env).text.endswith(f"plans: {never}\n"))
            self.assertRegex(self.ok("info", "-m", DEMO, *CPU, env=env).text, rf"(?m)^steps +{re.escape(never)}$")
            self.assertIn("plans: sequential, as --nano-batches says", self.ok("plan", *CPU, "-q", "--nano-batches", 1).text)

    def test_expected_times(self):
        r = self.ok("plan", *CPU, "--tokens", 8, "--context", 64, "WEFT_MEASURE=1", "-q")
        self.assertRegex(r.text, r"estimated \d+\.\d+ ms one after another")

    def test_plans_of_every_kind_write_the_same(self):
        """Unequal ranges, named ranges, another cut for one op, two layers interleaved, and buckets."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan")
            want = self.ok(*RUN, f"WEFT_DUMP_PLAN={path}").out
            base = pathlib.Path(path).read_text()
            layer = [l.split()[1] for l in base.splitlines() if l.startswith("layer ")]
            self.assertIn("prefill_attention", layer)
            plain = [op for op in layer if "attention" not in op]
            unequal = base
            for op in plain:
                unequal = cut(unequal, op, [("layer", "0-5"), ("layer", "5-end")])
            named = cut(base, plain[0], [("layer", "0-decode"), ("layer", "prefill-end")])
            one = cut(base, plain[-1], [("layer", "0-2"), ("layer", "2-7"), ("layer", "7-end")])
            interleaved = cut(base, plain[0], [("layer", "3-end")])
            first = re.search(rf"(?m)^layer {plain[0]} .*$", interleaved).group(0)
            last = re.search(rf"(?m)^layer {plain[-1]} .*$", interleaved).group(0)
            behind = [last.replace("0-end", "0-3 "), re.sub(r"^layer( \S+ +)\S+", r"next \g<1>0-3", first), last.replace("0-end", "3-end")]
            interleaved = interleaved.replace(last, "\n".join(behind))
            lines = base.split("\n", 1)[1]
            buckets = "weft-plan 2\n" + lines.replace("bucket", "bucket tokens 4", 1) + unequal.split("\n", 1)[1]
            for name, text in (("unequal", unequal), ("named", named), ("one", one), ("interleaved", interleaved), ("buckets", buckets)):
                pathlib.Path(path).write_text(text)
                for more in ([], ["WEFT_CHECK_CALLS=1"]):
                    self.assertEqual(self.ok(*RUN, "--plan", path, *more).out, want, f"{name} {more}\n{text}")

    def test_lines_that_end_as_on_windows(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan")
            want = self.ok(*RUN, f"WEFT_DUMP_PLAN={path}").out
            text = pathlib.Path(path).read_bytes()
            pathlib.Path(path).write_bytes(text.replace(b"\n", b"\r\n"))
            self.assertEqual(self.ok(*RUN, "--plan", path).out, want)

    def test_an_op_of_another_device(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan")
            self.ok(*RUN, f"WEFT_DUMP_PLAN={path}")
            text = pathlib.Path(path).read_text()
            pathlib.Path(path).write_text(text.replace("layer gate ", "layer gate_up "))
            self.fails(USAGE, "no layer op 'gate_up' on this device (WEFT_DUMP_PLAN", *RUN, "--plan", path)

    def test_an_order_that_breaks_a_dependency(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan")
            self.ok(*RUN, f"WEFT_DUMP_PLAN={path}")
            lines = pathlib.Path(path).read_text().splitlines()
            first = next(i for i, l in enumerate(lines) if l.startswith("layer "))
            lines[first], lines[first + 1] = lines[first + 1], lines[first]
            pathlib.Path(path).write_text("\n".join(lines) + "\n")
            self.fails(USAGE, "stands before", *RUN, "--plan", path)

    def write_profile(self, folder, memory):
        """Attention takes as long as products; beside them it has that rate with a fifth of the device."""
        path = os.path.join(folder, "profile")
        with open(path, "w") as f:
            f.write("weft-profile 1\ndevice a test\nmodel demo\ngroups 16\ntile 8\ncontext 128\n")
            for op, kind, us in (("q", "compute", 20), ("attn_out", "compute", 20), ("decode_attention", "memory", 40), ("down", "compute", 30)):
                f.write(f"op {op} {kind}\n" + "".join(f"time {op} tokens {n} share 1 us {us * n / 8} spread 0.1\n" for n in (8, 64)))
            f.write(f"together memory share 0.2 rate {memory} spread 0.02\ntogether memory share 1 rate 1 spread 0\n")
        return path

    def test_search(self):
        with tempfile.TemporaryDirectory() as folder:
            path, batch = os.path.join(folder, "plan"), ["--tokens", 64, "--decodes", 64, "--context", 128]
            search = ["plan", *CPU, *batch, "-q", "--seconds", 2, "-o", path, "WEFT_BEST=2", "--search"]
            r = self.ok(*search, self.write_profile(folder, 0.7))
            gains = [float(gain) for gain in re.findall(r"(?m) (\d\.\d+)x$", r.text)]
            self.assertGreater(gains[0], 1.1, r.text)
            self.assertEqual((gains, gains[-1]), (sorted(gains, reverse=True), 1), r.text)
            self.assertRegex(r.text, r"(?m)^ +\d+ sequential ")
            want = self.ok(*RUN).out
            for found in (path, path + ".2"):
                self.assertEqual(self.ok(*RUN, "--plan", found, "WEFT_CHECK_CALLS=1").out, want)
                self.assertRegex(self.ok("plan", *CPU, *batch, "-q", "--plan", found).text, r"0\.decode_attention .* 1  .* [1-9] +memory")
            self.fails(USAGE, "would overwrite the profile", "plan", *CPU, "-q", "--search", os.path.join(folder, "profile"), "-o", os.path.join(folder, ".", "profile"))
            r = self.ok(*search, self.write_profile(folder, 0.01))
            self.assertIn("no plan is faster than the sequential one", r.text)
            self.assertNotIn("queue 1", pathlib.Path(path).read_text())

    def check_rates(self, folder, path):
        """Figure 5 of NanoFlow: memory keeps 0.7 of its rate where compute loses a fifth, and loses nothing with all of the device."""
        c = json.loads(self.ok("plan", "--profile", path, "--json").text)
        self.assertEqual([(r["class"], r["lost"], r["rate"]) for r in c["rates"]], [("memory", 0.2, 0.7), ("memory", 1, 1)])
        alone = os.path.join(folder, "alone")
        pathlib.Path(alone).write_text("weft-profile 1\nop q compute\ntime q tokens 8 share 1 us 20 spread 0\n")
        self.assertEqual(json.loads(self.ok("plan", "--profile", alone, "--json").text)["rates"], [])

    def check_names(self, folder, path):
        """Whatever a file calls a device commands no terminal and breaks no JSON."""
        named = os.path.join(folder, "named")
        with open(path, "rb") as f, open(named, "wb") as out:
            out.write(f.read() + b"device \x1b[31m\xff&<\n")
        self.assertIn(b"\\x1b[31m\\xff&<", self.ok("plan", "--profile", named).out)
        self.assertEqual(json.loads(self.ok("plan", "--profile", named, "--json").text)["device_name"], "\\x1b[31m\\xff&<")

    def test_profile(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.write_profile(folder, 0.7)
            r = self.ok("plan", "--profile", path)
            self.assertRegex(r.text, r"(?m)^decode_attention +memory +64 +1\.00 +320\.0 +0\.1$")
            self.assertRegex(r.text, r"(?m)^ +0\.20 +0\.70 \+- 0\.02  #{35}$")
            self.check_rates(folder, path)
            self.check_names(folder, path)
            found = os.path.join(folder, "found")
            for args in (["--profile", path], [*CPU, "--search", path, "--tokens", 64, "--seconds", 1, "-o", found]):  # a reader that left is no failure
                r = cli.weft_unread("plan", *args)
                self.assertEqual(r.code, 0, r.err)
                self.assertNotIn("error", r.err)
                with open("/dev/full", "wb") as full:
                    r = cli.weft("plan", *args, stdout=full)
                self.assertEqual((r.code, r.err.count("error"), r.err.count("cannot write to standard output")), (cli.RUNTIME, 1, 1), r.err)
            self.assertIn(f"wrote {found}\n", r.err)
            with open(path, "a") as f:
                f.write("op q fast\n")
            self.fails(USAGE, "class 'fast'", "plan", "--profile", path, "--json")
            self.fails(USAGE, "class 'fast'", "plan", "--profile", path)
            self.fails(USAGE, "class 'fast'", "plan", *CPU, "-q", "--search", path)
            self.fails(USAGE, "-o needs --search", "plan", *CPU, "-q", "-o", path)
            self.fails(USAGE, "--seconds needs --search", "plan", *CPU, "--seconds", 2)

    def test_views(self):
        """One that would not be shown is an error; as a setting it is left out where another one is typed."""
        views = {"--cost": [], "--search": ["x"], "--profile": ["x"], "--plan": ["x"]}
        for one, other in itertools.combinations(views, 2):
            self.fails(USAGE, f"{one} and {other} conflict", "plan", *CPU, other, *views[other], one, *views[one])
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("plan = /absent\nprofile = on\n")
            f.flush()
            env = {"WEFT_CONFIG": f.name}
            self.assertIn("tokens/s", self.ok("plan", "--cost", "--on", "h200", "--shape", "llama3-8b", env=env).text)
            self.fails(USAGE, "cannot open /absent", "plan", *CPU, env=env)


class Picture:
    """What a picture of a step shows, read as XML."""
    SVG = "{http://www.w3.org/2000/svg}"

    def __init__(self, path):
        text = pathlib.Path(path).read_text(encoding="utf-8")
        self.root = xml.fromstring(text)
        self.width, self.height = map(float, self.root.get("viewBox").split()[2:])

    def panels(self, name):
        return [g for g in self.root.iter(self.SVG + "g") if g.get("class") == name]

    def ops(self, panel):
        """(queue, layer, name, begin, end, x, width), by queue and begin."""
        boxes = [r for r in panel.iter(self.SVG + "rect") if r.get("class") == "op"]
        return sorted(((int(r.get("data-queue")), int(r.get("data-layer")), r.get("data-op"), float(r.get("data-begin")), float(r.get("data-end")),
                       float(r.get("x")), float(r.get("width"))) for r in boxes), key=lambda op: (op[0], op[3], op[4]))

    def titles(self, panel):
        return [t.text for t in panel.iter(self.SVG + "title")]

    def curves(self, panel):
        """For each resource its points, as parts of its strip from 0 to 1."""
        strips = [r for r in panel.iter(self.SVG + "rect") if r.get("class") == "strip"]
        lines = [l for l in panel.iter(self.SVG + "polyline") if l.get("class") == "use"]
        curves = {}
        for strip, line in zip(strips, lines, strict=True):
            top, height = float(strip.get("y")), float(strip.get("height"))
            curves[line.get("data-class")] = [(float(x), 1 - (float(y) - top) / height) for x, y in (point.split(",") for point in line.get("points").split())]
        return curves


class Timeline(cli.TestCase):
    BATCH = ["--tokens", 64, "--decodes", 8, "--context", 128]
    # Microseconds of 8 and of 64 tokens, 9 rows of logits are an eighth of the way to 16.
    TIMES = {"q": (20, 100), "attn_out": (30, 90), "decode_attention": (40, 250), "prefill_attention": (16, 100), "down": (50, 210), "logits": (80, 430)}

    def draw(self, folder, *args, name="step.svg", **more):
        path, device = os.path.join(folder, name), [] if "--device" in args else CPU
        r = self.ok("plan", *device, *self.BATCH, "--timeline", path, *args, **more)
        self.assertRegex(r.text, r"\A(?:(?:predicted|measured) [\d.]+ ms, mean use compute \d+ %, memory \d+ %, copy \d+ %, network 0 %\n)+\Z")
        self.assertIn(f"wrote {path}", r.err)
        return Picture(path)

    def write_profile(self, folder):
        path = os.path.join(folder, "profile")
        with open(path, "w") as f:
            f.write("weft-profile 1\ndevice <a> & 'b'\nmodel demo\ngroups 4\ntile 8\ncontext 128\n")
            for op, (few, many) in self.TIMES.items():
                f.write(f"op {op} {'memory' if 'decode' in op else 'compute'}\n")
                f.writelines(f"time {op} tokens {tokens} share 1 us {us} spread 0\n" for tokens, us in ((8, few), (64, many)))
        return path

    def check(self, picture, panel):
        """No box covers another in its queue or leaves the picture, and curves stay between 0 and 100 %."""
        ops = picture.ops(panel)
        for a, b in zip(ops, ops[1:]):
            self.assertTrue(a[0] != b[0] or a[4] <= b[3] + 2e-6, (a, b))
            self.assertTrue(a[0] != b[0] or a[5] + a[6] <= b[5] + 0.32, (a, b))
        for op in ops:
            self.assertTrue(0 <= op[5] and op[5] + op[6] <= picture.width, op)
        curves = picture.curves(panel)
        self.assertEqual(list(curves), ["compute", "memory", "copy", "network"])
        for points in curves.values():
            self.assertTrue(all(-1e-3 <= y <= 1 + 1e-3 for _, y in points))
            self.assertEqual([x for x, _ in points], sorted(x for x, _ in points))
        return ops, curves

    def test_predicted(self):
        """One queue: each op ends where the sum of the times so far says."""
        with tempfile.TemporaryDirectory() as folder:
            picture = self.draw(folder, "--profile", self.write_profile(folder))
            step, = picture.panels("step predicted")
            ops, curves = self.check(picture, step)
            names = [(layer, op) for _, layer, op, *_ in ops]
            self.assertEqual(len(set(names)), len(names))
            in_layer = {"attn_norm", "q", "k", "v", "rope", "decode_attention", "prefill_attention", "attn_out", "ffn_norm", "gate", "up", "silu", "down"}
            layers = max(layer for layer, _ in names) + 1
            self.assertLessEqual({(layer, op) for layer in range(layers) for op in self.TIMES if op != "logits"}, set(names))
            self.assertEqual({op for layer, op in names if layer >= 0} - in_layer - {"qkv", "gate_up", "qk"}, set())
            self.assertLessEqual({"upload", "embed", "final_norm", "logits", "argmax", "download"}, {op for layer, op in names if layer < 0})
            takes = {"q": 100, "attn_out": 90, "decode_attention": 40, "prefill_attention": 16 + 84 * 48 / 56, "down": 210, "logits": 80 + 350 / 56}
            at = 0
            for layer in range(layers):
                at += sum(takes[op] for op in takes if op != "logits")
                end = next(o[4] for o in ops if o[1:3] == (layer, "down"))
                self.assertAlmostEqual(end, at, 3)
            self.assertAlmostEqual(max(o[4] for o in ops), at + takes["logits"], 3)
            self.assertTrue(max(y for _, y in curves["compute"]) > 0.5 and max(y for _, y in curves["memory"]) > 0.5)
            self.assertTrue(any(f"decode_attention, layer 0: {40:.1f} us" in t and "memory; rows 0 to 8; queue 0" in t for t in picture.titles(step)))
            layer, = picture.panels("layer predicted")
            self.check(picture, layer)
            self.assertEqual({o[1] for o in picture.ops(layer)}, {layers // 2})
            self.assertEqual(picture.width, 800)

    def test_two_queues(self):
        with tempfile.TemporaryDirectory() as folder:
            picture = self.draw(folder, "--profile", self.write_profile(folder), "--nano-batches", 2)
            step, = picture.panels("step predicted")
            ops, _ = self.check(picture, step)
            self.assertEqual({o[0] for o in ops}, {0, 1})

    def test_estimated(self):
        with tempfile.TemporaryDirectory() as folder:
            picture = self.draw(folder, env={"XDG_CACHE_HOME": folder})
            step, = picture.panels("step predicted")
            ops, curves = self.check(picture, step)
            self.assertTrue(all(o[4] > o[3] for o in ops if o[2] in ("q", "down", "qkv")))
            self.assertGreater(max(y for _, y in curves["compute"]), 0)

    def test_a_setting_is_for_perfetto(self):
        with tempfile.TemporaryDirectory() as folder:
            path, line = os.path.join(folder, "weft.conf"), os.path.join(folder, "steps.json")
            pathlib.Path(path).write_text(f"timeline = {line}\n")
            self.assertIn("attention", self.ok("plan", *CPU, "-q", env={"WEFT_CONFIG": path}).text)
            self.assertFalse(os.path.exists(line))

    def test_for_perfetto(self):
        """The boxes of the picture as a trace, and what it says of the step in numbers."""
        with tempfile.TemporaryDirectory() as folder:
            profile, path = self.write_profile(folder), os.path.join(folder, "step.json")
            picture = self.draw(folder, "--profile", profile, "--nano-batches", 2)
            self.ok("plan", *CPU, *self.BATCH, "--timeline", path, "--profile", profile, "--nano-batches", 2)
            trace = json.loads(pathlib.Path(path).read_bytes())
            ops = sorted((e["tid"], e["ts"], e["ts"] + e["dur"], e["name"], e["args"]["layer"]) for e in trace["traceEvents"] if e["ph"] == "X")
            boxes = sorted((o[0], o[3], o[4], o[2], o[1]) for o in picture.ops(picture.panels("step predicted")[0]))
            self.assertEqual([(o[0], o[3], o[4]) for o in ops], [(o[0], o[3], o[4]) for o in boxes])
            for o, box in zip(ops, boxes):
                self.assertAlmostEqual(o[1], box[1], delta=0.01)
                self.assertAlmostEqual(o[2], box[2], delta=0.01)
            step = trace["step"]
            self.assertEqual((step["tokens"], step["decodes"], step["context"], step["queues"], "measured" in step), (64, 8, 128, 2, False))
            self.assertTrue(0 < step["predicted"]["compute_pct"] <= 100)
            use = [e["args"]["percent"] for e in trace["traceEvents"] if e["ph"] == "C"]
            self.assertTrue(use and all(0 <= v <= 100 for v in use))

    def measured(self, folder, *device):
        """Both panels, at one scale."""
        picture = self.draw(folder, "--profile", self.write_profile(folder), "WEFT_MEASURE=1", "--nano-batches", 2, *device)
        (predicted,), (step,) = picture.panels("step predicted"), picture.panels("step measured")
        ops, curves = self.check(picture, step)
        self.assertEqual({o[0] for o in ops}, {0, 1})
        self.assertLessEqual({(layer, op) for _, layer, op, *_ in picture.ops(predicted) if op == "down"}, {o[1:3] for o in ops})
        self.assertGreater(max(y for _, y in curves["memory"]), 0)
        boxes = picture.ops(predicted) + ops
        last = max(boxes, key=lambda o: o[3])
        for o in boxes:  # places have two digits, and a step that had to wait may be so long that most boxes are near its beginning
            self.assertAlmostEqual(o[5], 100 + o[3] * (last[5] - 100) / last[3], delta=0.02)
        self.assertEqual([len(picture.panels(f"layer {kind}")) for kind in ("predicted", "measured")], [1, 1])

    def test_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            self.measured(folder)
            alone = self.draw(folder, "WEFT_MEASURE=1", env={"XDG_CACHE_HOME": folder})
            self.assertEqual((len(alone.panels("step predicted")), len(alone.panels("step measured"))), (1, 1))

    @unittest.skipUnless("opencl:" in cli.weft("--list-devices").text, "no OpenCL device")
    def test_measured_on_opencl(self):
        with tempfile.TemporaryDirectory() as folder:
            self.measured(folder, "--device", "opencl")

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            profile = self.write_profile(folder)
            for name in ("step.html", "step", "svg"):
                self.fails(USAGE, "ends in .svg", "plan", *CPU, "-m", "/absent/model", "--timeline", os.path.join(folder, name), "--profile", profile)
            self.fails(cli.RUNTIME, "/absent/step.svg", "plan", *CPU, "-m", "/absent/model", "--timeline", "/absent/step.svg", "--profile", profile)
            self.fails(USAGE, "--timeline and --cost conflict", "plan", *CPU, "--timeline", os.path.join(folder, "step.svg"), "--cost")
            self.assertEqual(sorted(os.listdir(folder)), ["profile", "weft"] if os.path.exists(os.path.join(folder, "weft")) else ["profile"])


if os.environ.get("WEFT_HAS_OPENCL") == "0":
    del Timeline.test_measured_on_opencl

if __name__ == "__main__":
    unittest.main()
