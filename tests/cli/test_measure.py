"""perplexity, bench, info of a file, selftest: what they print can be read by programs."""
import csv
import glob
import io
import json
import math
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

import cli

SHORT = ["-p", "4,9", "-n", "3", "-r", "2"]
TEXT = "One day, a little girl named Lily found a needle in her room. "


def read_npy(path):
    """Shape and rows of a float32 file in NumPy's format 1.0."""
    with open(path, "rb") as f:
        magic, length = f.read(8), struct.unpack("<H", f.read(2))[0]
        head = eval(f.read(length), {}, {})  # a literal that the test itself had written
        raw = f.read()
    assert magic == b"\x93NUMPY\x01\x00" and (10 + length) % 64 == 0
    assert head["descr"] == "<f4" and head["fortran_order"] is False
    rows, columns = head["shape"]
    assert len(raw) == rows * columns * 4
    values = struct.unpack(f"<{rows * columns}f", raw)
    return [values[i * columns:(i + 1) * columns] for i in range(rows)]


def minus_log_p(row, token):
    top = max(row)
    return top + math.log(sum(math.exp(v - top) for v in row)) - row[token]


def size_of(path):
    """0: it is there no more, or not yet."""
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


class Perplexity(cli.TestCase):
    def logits(self, ids, *more):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.npy")
            r = self.ok("perplexity", *cli.CPU, "--tokens", ",".join(map(str, ids)), "--logits", path, *more)
            self.assertEqual(r.out, b"")
            return read_npy(path)

    def test_logits(self):
        ids = list(map(int, self.ok("tokenize", "-p", "One day").text.split()))
        rows = self.logits(ids)
        n_vocab = int(re.search(r"(\d+) tokens, BOS", self.model_info()).group(1))
        self.assertEqual([len(rows), len(rows[0])], [len(ids), n_vocab])
        self.assertTrue(all(map(math.isfinite, (v for row in rows for v in row))))
        self.assertEqual(len(set(rows)), len(rows))
        # No BOS is added, and a row depends on what stands before it only.
        self.assertNotEqual(self.logits(ids[1:])[0], rows[1])
        self.assertEqual(self.logits(ids[:1]), rows[:1])
        # Greedy text begins with the likeliest token behind the last one.
        best = max(range(n_vocab), key=rows[-1].__getitem__)
        first = self.ok("run", *cli.GREEDY, "-p", "One day", "-n", 1).out
        self.assertEqual(self.ok("detokenize", best).out.strip(), first.strip())

    def model_info(self):
        return self.ok("info", "-m", os.path.join(cli.ROOT, "models", "demo.gguf")).text

    def test_text(self):
        """The final number is the one computed here from the logits, by the definition in the help."""
        context = 32
        with tempfile.NamedTemporaryFile("w") as f:
            f.write(TEXT * 6)
            f.flush()
            ids = list(map(int, self.ok("tokenize", "-f", f.name).text.split()))
            r = self.ok("perplexity", *cli.CPU, "-f", f.name, "-c", context)
        bos, nll = ids[0], []
        for at in range(0, len(ids) // context * context, context):
            chunk = ids[at:at + context]
            rows = self.logits([bos] + chunk[1:])
            nll += [minus_log_p(rows[j], chunk[j + 1]) for j in range(context // 2, context - 1)]
        mean = sum(nll) / len(nll)
        error = math.exp(mean) * math.sqrt((sum(v * v for v in nll) / len(nll) - mean ** 2) / (len(nll) - 1))
        lines = r.text.splitlines()
        self.assertEqual(len(lines), len(ids) // context + 1)
        got = re.fullmatch(r"Final estimate: PPL = ([0-9.]+) \+/- ([0-9.]+)", lines[-1])
        self.assertAlmostEqual(float(got.group(1)) / math.exp(mean), 1, 3)
        self.assertAlmostEqual(float(got.group(2)) / error, 1, 2)
        self.assertTrue(lines[-2].startswith(f"[{len(lines) - 1}] {got.group(1)} "))

    def test_chunks(self):
        r = self.ok("perplexity", *cli.CPU, "-p", TEXT * 6, "-c", 32, "--chunks", 2)
        self.assertEqual(len(r.text.splitlines()), 3)

    def test_bad_tokens(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.npy")
            self.fails(cli.USAGE, "99999", "perplexity", *cli.CPU, "--tokens", "1,99999", "--logits", path)
            self.assertFalse(os.path.exists(path))
            self.fails(cli.RUNTIME, "/absent/", "perplexity", *cli.CPU, "--tokens", "1", "--logits", "/absent/x.npy")

    def test_ctrl_c(self):
        """What was there stays, and nothing is left beside it."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.npy")
            pathlib.Path(path).write_text("old")
            p = subprocess.Popen(cli.argv("perplexity", *cli.CPU, "WEFT_FORCE=gemm=ref,attention=ref", "--tokens", "1" + ",2" * 9999, "--logits", path),
                                 stderr=subprocess.PIPE)
            while not any(map(size_of, glob.glob(path + ".*"))):  # it has not begun to write
                self.assertIsNone(p.poll())
                time.sleep(0.01)
            p.send_signal(signal.SIGINT)
            self.assertEqual(p.communicate(timeout=60)[1].count(b"wrote"), 0)
            self.assertEqual(p.returncode, cli.INTERRUPTED)
            self.assertEqual(os.listdir(folder), ["out.npy"])
            self.assertEqual(pathlib.Path(path).read_text(), "old")

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full")
    def test_full_disk(self):
        r = self.fails(cli.RUNTIME, "No space left", "perplexity", *cli.CPU, "--tokens", "1,2,3", "--logits", "/dev/full")
        self.assertNotIn("wrote", r.err)


class Bench(cli.TestCase):
    def test_markdown(self):
        lines = self.ok("bench", *cli.CPU, *SHORT).text.splitlines()
        self.assertEqual([w.strip() for w in lines[0].split("|")[1:-1]],
                         ["model", "size", "params", "device", "threads", "test", "t/s"])
        self.assertRegex(lines[1], r"^[| :-]+$")
        self.assertEqual([re.search(r"(pp4|pp9|tg3) \| +[0-9.]+ ± [0-9.]+ \|$", line).group(1) for line in lines[2:5]],
                         ["pp4", "pp9", "tg3"])

    def test_json(self):
        rows = json.loads(self.ok("bench", *cli.CPU, *SHORT, "-o", "json", "-t", "1,2").text)
        self.assertEqual([(r["n_threads"], r["n_prompt"], r["n_gen"]) for r in rows],
                         [(t, p, n) for t in (1, 2) for p, n in ((4, 0), (9, 0), (0, 3))])
        for r in rows:
            self.assertGreater(r["avg_ts"], 0)
            self.assertGreaterEqual(r["stddev_ts"], 0)
            self.assertEqual(r["device"], "cpu")

    def test_csv(self):
        rows = list(csv.DictReader(io.StringIO(self.ok("bench", *cli.CPU, *SHORT, "-o", "csv").text)))
        self.assertEqual([(r["n_prompt"], r["n_gen"]) for r in rows], [("4", "0"), ("9", "0"), ("0", "3")])
        self.assertTrue(all(float(r["avg_ts"]) > 0 and None not in r for r in rows))

    def test_names_of_files_are_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'a "b", c\\d.gguf')
            os.symlink(os.path.join(cli.ROOT, "models", "demo.gguf"), path)
            tiny = ["bench", *cli.CPU, "-m", path, "-p", 1, "-n", 0, "-r", 1]
            row, = csv.DictReader(io.StringIO(self.ok(*tiny, "-o", "csv").text))
            self.assertEqual(row["model_filename"], path)
            row, = json.loads(self.ok(*tiny, "-o", "json").text)
            self.assertEqual(row["model_filename"], path)

    def test_results_file(self):
        columns = ("date,device,driver,commit,op,dtype,shape,variant,median_us,rate,unit,ceiling_pct,peer,"
                   "peer_rate,ratio").split(",")
        with tempfile.TemporaryDirectory() as folder:
            peers = os.path.join(folder, "peers.txt")
            pathlib.Path(peers).write_text("model_prompt,F32,P=4,other,2,tokens/s\n")
            for more in ([], [f"WEFT_PEER={peers}"], ["--deterministic"], ["WEFT_F16_RESIDUAL=1"]):
                self.ok("bench", *cli.CPU, *SHORT, "-m", cli.data("stories260K.gguf"), "--results", folder, *more)
            name, = (n for n in os.listdir(folder) if n.endswith(".csv"))
            self.assertRegex(name, r"^weft-cpu-[a-z0-9-]+\.csv$")
            with open(os.path.join(folder, name), newline="") as f:
                reader = csv.DictReader(f)
                rows = list(reader)
        self.assertEqual(reader.fieldnames, columns)
        self.assertEqual([(r["op"], r["shape"]) for r in rows],
                         [("model_prompt", "P=4"), ("model_prompt", "P=9"), ("model_decode", "N=3")] * 4)
        self.assertEqual([r["variant"] for r in rows], [""] * 6 + ["deterministic"] * 3 + ["f16-residual"] * 3)
        for r in rows:
            self.assertRegex(r["date"], r"^\d{4}-\d\d-\d\d$")
            self.assertEqual(r["unit"], "tokens/s")
            n = int(r["shape"][2:])
            self.assertAlmostEqual(float(r["rate"]) * float(r["median_us"]) / 1e6 / n, 1, 2)
            self.assertEqual(r["ceiling_pct"], "")
        self.assertEqual([r["peer"] for r in rows], ["", "", "", "other", *[""] * 8])
        self.assertAlmostEqual(float(rows[3]["ratio"]) / (float(rows[3]["rate"]) / 2), 1, 2)

    def test_types_are_those_of_files(self):
        """A mix is called as the file calls it; the format of most bytes where it says nothing, nonsense, or what weft does not write."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "model.gguf")
            self.ok("convert", "-m", os.path.join(cli.ROOT, "models", "demo.gguf"), "-o", path, "--type", "Q4_K_M")
            key, whole = b"general.file_type" + struct.pack("<I", 4), path.read_bytes()
            self.assertIn(key + struct.pack("<I", 15), whole)
            for number, want in ((15, "Q4_K_M"), (14, "Q4_K_S"), (11, "Q3_K_S"), (4, "Q4_K"), (2 ** 32 - 1, "Q4_K")):
                path.write_bytes(whole.replace(key + struct.pack("<I", 15), key + struct.pack("<I", number)))
                row, = csv.DictReader(io.StringIO(self.ok(*self.TINY, "-m", path, "-o", "csv", "--results", folder).text))
                self.assertEqual(row["model_type"].split()[-1], want)
                self.assertEqual(self.dtypes(folder)[-1], want)
            path.write_bytes(whole.replace(key, key[:-4] + struct.pack("<I", 6)))  # a float
            row, = csv.DictReader(io.StringIO(self.ok(*self.TINY, "-m", path, "-o", "csv").text))
            self.assertEqual(row["model_type"].split()[-1], "Q4_K")

    TINY = ["bench", *cli.CPU, "-p", 1, "-n", 0, "-r", 1]

    def dtypes(self, folder):
        with open(glob.glob(os.path.join(folder, "*.csv"))[0], newline="") as f:
            return [r["dtype"] for r in csv.DictReader(f)]


class Calibrate(cli.TestCase):
    """The numbers themselves are compared in tests/golden/calibration.py."""

    def test_built_in_model(self):
        r = self.ok("calibrate", *cli.CPU, "-p", TEXT * 4)
        self.assertIn("use -o FILE", r.err)
        layers = re.findall(r"(?m)^ +(\d+) +-?\d+\.\d\d .*", r.text)
        self.assertEqual(layers, [str(i) for i in range(len(layers))])
        self.assertGreater(len(layers), 1)

    def test_first_start(self):
        """It measures and generates what later ones do, whatever the temperature; commands whose digits are compared do not."""
        with tempfile.TemporaryDirectory() as folder:
            model, env = os.path.join(folder, "m.gguf"), {"XDG_CACHE_HOME": folder}
            with open(os.path.join(cli.ROOT, "models", "demo.gguf"), "rb") as a, open(model, "wb") as b:
                b.write(a.read())
            story = ["run", *cli.CPU, "--temp", 1, "--seed", 7, "-m", model, "-p", TEXT, "-n", 40, "-v"]
            plain = self.ok("perplexity", *cli.CPU, "-m", model, "-p", TEXT * 4, "-c", 64, "-v", env=env)
            self.assertNotIn("calibration", plain.err)
            first, second = (self.ok(*story, env=env) for _ in range(2))
            self.assertRegex(first.err, r"calibration: measured on 256 tokens in \d+\.\d\d s")
            self.assertIn("calibration: as measured at an earlier start", second.err)
            for r in (first, second):
                self.assertRegex(r.err, r"calibration: asynchronous softmax in [1-5] of 5 layers")
            self.assertEqual(first.out, second.out)
            self.assertEqual(plain.out, self.ok("perplexity", *cli.CPU, "-m", model, "-p", TEXT * 4, "-c", 64, "--calibration", "none", env=env).out)

    def test_beside_the_model(self):
        """The file is found by the next start; the text that is written stays the same."""
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "m.gguf")
            with open(os.path.join(cli.ROOT, "models", "demo.gguf"), "rb") as a, open(model, "wb") as b:
                b.write(a.read())
            story = ["run", *cli.GREEDY, "-m", model, "-p", "One day", "-n", 20]
            before = self.ok(*story, "-v", "--calibration", "none")
            self.assertNotIn("calibration", before.err)
            self.assertIn(f"wrote {model}.calibration", self.ok("calibrate", *cli.CPU, "-m", model, "-p", TEXT).err)
            after = self.ok(*story, "-v")
            self.assertRegex(after.err, r"calibration: asynchronous softmax in \d+ of \d+ layers")
            self.assertEqual(after.out, before.out)
            with open(model + ".calibration", "a") as f:
                f.write("layer 0 phi x\n")
            broken = self.ok(*story)
            self.assertIn("m.gguf.calibration: line ", broken.err)
            self.assertIn("ignored", broken.err)
            self.assertEqual(broken.out, before.out)

    def test_json(self):
        """What is printed for programs is what is printed for people, and the distribution has all of it: from the least logit to the largest one."""
        args = ["calibrate", *cli.CPU, "-p", TEXT * 4]
        text, c = self.ok(*args).text, json.loads(self.ok(*args, "--json").text)
        bins, step = c["bins"], c["step"]
        self.assertEqual([b["from"] for b in bins], sorted(b["from"] for b in bins))
        for low, high, key in (("min", "max", "n"), ("row_min", "row_max", "n_rows")):
            found = [b["from"] for b in bins if b[key]]
            for bound, at in ((min(layer[low] for layer in c["layers"]), found[0]), (max(layer[high] for layer in c["layers"]), found[-1])):
                self.assertTrue(at - 1e-6 <= bound <= at + step + 1e-6, (bound, at))
        n, n_rows = (sum(b[key] for b in bins) for key in ("n", "n_rows"))
        self.assertTrue(n > n_rows > 0 and n_rows % (c["tokens"] * len(c["layers"])) == 0, (n, n_rows))
        rows = [row.split()[1:] for row in re.findall(r"(?m)^ +\d+ +-?\d+\.\d\d .*", text)]
        for row, layer in zip(rows, c["layers"], strict=True):
            for printed, key in zip(row[10:13], ("phi", "a", "b")):
                self.assertAlmostEqual(float(printed), layer[key], delta=0.006)
            self.assertEqual(layer["fits"], layer["a"] < layer["b"])

    def test_place_of_the_file(self):
        """Said before anything is measured; what fails later leaves nothing there."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x")
            for bad in ("/absent/x", folder):
                self.fails(cli.RUNTIME, f"cannot write {bad}", "calibrate", *cli.CPU, "-p", TEXT, "-o", bad)
            text = os.path.join(folder, "text")
            pathlib.Path(text).write_text(TEXT)
            self.fails(cli.USAGE, "is the text of -f", "calibrate", *cli.CPU, "-f", text, "-o", text)
            self.fails(cli.USAGE, "is a model", "calibrate", *cli.CPU, "-p", TEXT, "-o", os.path.join(cli.ROOT, "models", "demo.gguf"))
            self.fails(cli.RUNTIME, "the largest buffer on", "calibrate", *cli.CPU, "WEFT_MAX_ALLOC=1K", "-p", TEXT, "-o", path)
            self.assertEqual(os.listdir(folder), ["text"])


class Shapes(cli.TestCase):
    """Models without a file."""

    def test_bench(self):
        """Of one layer, whose output is most of it."""
        for shape, kind, params in (("llama-1.1b", "Q4_K_M", "175M"), ("qwen2.5-0.5b", "F16", "151M")):
            text = self.ok("bench", "--shape", shape, "--type", kind, "WEFT_LAYERS=1", "-p", 8, "-n", 2, "-r", 1, *cli.CPU).text
            self.assertRegex(text, rf"(?m)^\| {shape} {kind} .*\| +{params} .*\| +pp8 \| +[0-9.]+ ")
            self.assertRegex(text, r"(?m)\| +tg2 \| +[0-9.]+ ")


class Info(cli.TestCase):
    def test_file(self):
        text = self.ok("info", "-m", cli.data("stories260K.gguf"), "-v").text
        for pattern in (r"architecture +llama", r"layers +5", r"heads +8, 4 KV heads, head size 8", r"hidden size +64, intermediate size 172",
                        r"context +512 tokens", r"formats +F32", r"memory need +[0-9.]+ MiB with a context of 512",
                        r"memory budget +weights [0-9.]+ .iB, activations", r"  on cpu +fits, with room for a KV cache of [0-9.]+. tokens$",
                        r"token_embd.weight +F32 +64 x 512 +131072", r"general.architecture +llama"):
            self.assertRegex(text, rf"(?m)^{pattern}")
        refused = self.ok("info", "-m", cli.data("stories260K.gguf"), "--kv-dtype", "q8_0").text
        self.assertIn("no multiple of 32", refused)
        self.assertNotIn("memory need", refused)
        self.fails(cli.USAGE, "--kv-dtype", "info", "--kv-dtype", "q8_0")
        more = self.ok("info", "-m", cli.data("stories260K.gguf"), "-c", 100).text
        self.assertRegex(more, r"with a context of 100 tokens")
        self.assertNotIn("token_embd", more)
        self.fits_a_screen(more)

    def fits_a_screen(self, text):
        lines = text.splitlines()
        lines[0] = ""  # a path has any length
        self.assertLessEqual(len(lines), 24, text)
        self.assertLessEqual(max(map(len, lines)), 80, text)

    def test_a_large_model_fits_a_screen(self):
        """A mixture of experts of three formats, with templates, sampling of its own and a context beyond the default; its weights are a hole."""
        shape = dict(width=2048, layers=48, heads=32, kv_heads=4, head_dim=128, ffn=6144, vocab=151936, context=262144, rope_base=1e7, experts=128, experts_used=8,
                     expert_ffn=768)

        def change(w):
            for key, value in (("temp", 0.7), ("top_k", 20), ("top_p", 0.8), ("min_p", 0.0), ("penalty_repeat", 1.05)):
                w.add(f"general.sampling.{key}", value)
            for name in ("", ".tool_use"):
                w.add("tokenizer.chat_template" + name, "{{ messages }}" * 300)

        with cli.model_of_holes(shape, "Q4_K_M", "qwen3moe", "Qwen3 30B A3B Instruct 2507", change=change, head_norms=True) as f:
            text = self.ok("info", f.name).text
        self.fits_a_screen(text)
        for line in ("experts +128, 8 of them for a token", "model's sampling temp 0.7, top-k 20, top-p 0.8, min-p 0, repeat-penalty 1.05$",
                     "memory need .* with a context of 4096 tokens, .* with 262144"):
            self.assertRegex(text, f"(?m)^{line}")

    def test_info_of_files_of_older_converters(self):
        """Linear scaling without its type, as llama.cpp reads it, and numbers of layers where all have the same."""
        shape = dict(width=64, layers=2, heads=4, kv_heads=2, head_dim=16, ffn=64, vocab=300, context=64)
        scaling, linear, kind, kv = "llama.rope.scaling.factor", "llama.rope.scale_linear", "llama.rope.scaling.type", "llama.attention.head_count_kv"
        for keys, scale in (({}, 1), ({scaling: 4.0}, 4), ({linear: 2.0}, 2), ({scaling: 4.0, linear: 2.0}, 4), ({scaling: 0.0}, 1), ({scaling: 4.0, kind: "none"}, 1),
                            ({scaling: 4.0, kind: "linear"}, 4), ({kind: "linear"}, 1), ({kv: [2, 2]}, 1), ({kv: [2, 1]}, None), ({kv: [2.0, 2.0]}, None)):
            def change(w):
                w.meta = [row for row in w.meta if row[0] not in keys]
                for key, value in keys.items():
                    w.add(key, value)

            with cli.model_of_holes(shape, "F32", change=change) as f:
                if scale is None:
                    self.fails(cli.MODEL, "head_count_kv", "info", f.name)
                else:
                    self.assertRegex(self.ok("info", f.name).text, rf"4, 2 KV heads, (.*\n){{2}}context .* scale {scale}, ")

    def test_info_of_odd_folders(self):
        """Frequencies among the weights are passed over; a stray file beside an index is told of."""
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(os.path.join(cli.ROOT, "tests", "model", "data", "llama"), folder, dirs_exist_ok=True)
            path = pathlib.Path(folder, "model.safetensors")
            data = path.read_bytes()
            size = int.from_bytes(data[:8], "little")
            head, rest = json.loads(data[8:8 + size]), data[8 + size:]
            want = self.ok("run", "-m", folder, *cli.GREEDY, "-p", "One", "-n", 4).out
            head["model.rotary_emb.inv_freq"] = {"dtype": "F32", "shape": [4], "data_offsets": [len(rest), len(rest) + 16]}
            text = json.dumps(head).encode()
            path.write_bytes(len(text).to_bytes(8, "little") + text + rest + bytes(16))
            pathlib.Path(folder, "model.safetensors.index.json").write_text("{}")
            r = self.ok("run", "-m", folder, *cli.GREEDY, "-p", "One", "-n", 4)
            self.assertEqual(r.out, want)
            self.assertIn("there is model.safetensors beside model.safetensors.index.json", r.err)

    def test_info_of_windows(self):
        """And the rotation of layers that have one."""
        for folder, want in (("gemma3", "windows          64 tokens, but all in every layer of 3; rope base 10000\n"), ("mistral-window", "windows          9 tokens\n"),
                             ("gemma2", "windows          8 tokens, but all in every layer of 2\n"), ("llama", None)):
            text = self.ok("info", os.path.join(cli.ROOT, "tests", "model", "data", folder)).text
            self.assertEqual("windows  " in text, want is not None)
            self.assertIn(want or "", text)

    def test_memory_is_checked_against_what_is_available(self):
        """Before anything is loaded, and not against what is built in."""
        need = 2560 << 24  # bytes of the longest context, 2.5 KiB a token
        available = 1024 * int(re.search(r"MemAvailable: +(\d+)", pathlib.Path("/proc/meminfo").read_text()).group(1))
        if available * 1.1 > need:
            self.skipTest(cli.NEEDS_HARDWARE + "less than 40 GB of free memory")
        context = min(int(available * 1.1 / 2560), 1 << 24)
        r = self.fails(cli.RUNTIME, "of memory are available: use a smaller context (-c)", "run", *cli.GREEDY, "-p", "x", "-n", 1, "-c", context)
        self.assertRegex(r.err, r"the KV cache needs [\d.]+ GiB, activations [\d.]+ GiB and tables of positions and pages (?!0.00)[\d.]+ GiB, but only [\d.]+ GiB")
        self.assertRegex(self.ok("info").text, r"(?m)^  memory +[\d.]+ GiB, [\d.]+ .iB available, [\d.]+ GiB in one buffer$")

    def test_memory_of_an_opencl_device_that_is_the_hosts(self):
        """PoCL computes in the memory of the host: what is there is what the host has left, and weights are copied."""
        pocl = next(d for d in self.ok("info").text.split("\n\n")[0].split("opencl:")[1:] if "Portable" in d)
        self.assertRegex(pocl, r"(?m)^  memory +[\d.]+ GiB, [\d.]+ .iB available")
        r = self.fails(cli.RUNTIME, "available beside the weights: use a smaller context", "run", "--device", "opencl:" + pocl.split("\n")[0], "-p", "x", "-n", 1, "-c", 1 << 24)
        self.assertIn("the KV cache needs", r.err)

    def test_a_shorter_context_than_the_models_is_said(self):
        demo = pathlib.Path(cli.ROOT, "models", "demo.gguf").read_bytes()
        key = b"llama.context_length\x04\0\0\0"
        self.assertEqual(demo.count(key + (512).to_bytes(4, "little")), 1)
        with tempfile.NamedTemporaryFile() as f:
            f.write(demo.replace(key + (512).to_bytes(4, "little"), key + (8192).to_bytes(4, "little")))
            f.flush()
            run = ["run", f.name, "x", "-n", 1, *cli.CPU]
            self.assertIn("the context is 4096 tokens; the model's own, 8192, and others are set with -c", self.ok(*run).err)
            self.assertNotIn("the model's own", self.ok(*run, "-c", 4096).err + self.ok("run", "-p", "x", "-n", 1, *cli.CPU).err)

    def described(self, shape, kind, *options):
        """What `weft info` says of a model whose weights are a hole."""
        with cli.model_of_holes(shape, kind) as f:
            return self.ok("info", "-m", f.name, *options).text

    def test_windows_take_less(self):
        """Of 24 layers 20 attend to the last 1,024 tokens: they keep these and a step of 512, in one page more at most, of contexts of 32,768."""
        shape = dict(width=256, layers=24, heads=4, kv_heads=2, head_dim=64, ffn=512, vocab=259, context=32768)
        all_keys, few = (self.described({**shape, **w}, "F16", "-c", 32768, "--max-num-batched-tokens", 512, "--kv-memory", "768M") for w in ({}, {"window": 1024, "period": 6}))
        contexts = [int(re.search(r"\((\d+) contexts of 32768(?: with attention windows)?\)", t).group(1)) for t in (all_keys, few)]
        self.assertEqual(contexts, [2, 9])
        memory = self.described({**shape, "window": 1024, "period": 6}, "F16", "-c", 32768, "--max-num-batched-tokens", 512, "--device", "cpu")
        mib = float(re.search(r"KV 12.00 KiB a token,\s+([0-9.]+) MiB for 32768 tokens", memory).group(1))
        self.assertAlmostEqual(mib, 4 * 16 + 20 * 97 / 128, delta=0.01) # 128 pages of 16 tokens are 1 MiB of a layer

    def test_what_fits_no_device(self):
        """A file with holes of 1.6 TB is described without reading it."""
        text = self.described(dict(width=16384, layers=126, heads=128, kv_heads=8, head_dim=128, ffn=53248, vocab=259, context=2048), "F32")
        self.assertRegex(text, r"memory budget +weights 1\.\d+ TiB")
        self.assertRegex(text, r"(?m)^  on cpu +does not fit: 2048 tokens need 1\.\d+ TiB, [0-9.]+ .iB are free$")
        self.assertNotIn("fits, with", text)

    def sequences(self, context, kv, *options):
        """Those that a server would run at the same time."""
        text = self.ok("info", "-m", cli.data("stories260K.gguf"), "-c", context, "--kv-memory", kv, *options).text
        return int(re.search(r"a server with (\d+) sequences", text).group(1))

    def test_budget(self):
        """5 layers of 4 KV heads, 8 wide: 640 bytes a token."""
        def holds(*options):
            text = self.ok("info", "-m", cli.data("stories260K.gguf"), *options).text
            found = re.search(r"KV cache of \S+ .iB holds (\S+) tokens \((\d+) contexts of (\d+)\),\s+and (\S+) while steps have at most (\d+)", text)
            return found.groups()

        fit, contexts, context, more, short = holds("-c", 100)
        # 8 contexts of 7 pages of 16 tokens each.
        self.assertEqual((fit, contexts, context, short), ("896", "8", "100", str(64 + 128)))
        self.assertGreater(float(more.removesuffix("K")), 2) # 320 rows' activations, each at least 4 rows of the width, and logits
        self.assertEqual(holds("-c", 100, "--kv-memory", 71680)[:3], ("112", "1", "100"))
        self.assertEqual(holds("-c", 100, "--kv-memory", 71680, "--max-num-seqs", 1)[3], "112") # no more than it may want
        self.assertEqual(holds("--max-num-batched-tokens", 64, "--max-num-seqs", 4)[4], "20")
        self.assertEqual(self.sequences(100, "5M"), 73)  # contexts of 7 pages, 71680 bytes
        self.assertEqual(self.sequences(0, "30M"), 96)  # the model's own context, 512
        self.assertEqual(self.sequences(100, "1M"), 64)
        self.assertEqual(self.sequences(100, "30M"), 256)
        self.assertEqual(self.sequences(100, "5M", "--max-num-batched-tokens", 70), 70)  # each has a token in a step
        self.assertEqual(self.sequences(100, "5M", "--max-num-seqs", 9), 9)
        self.assertEqual(holds("-c", 100, "WEFT_PAGE_TOKENS=32")[0], "1.0K") # 8 contexts of 4 pages
        self.assertEqual(holds("-c", 1000, "--max-num-seqs", 4)[4], "132")
        self.assertEqual(holds("-c", 1000, "--max-num-seqs", 4, "--policy", "orca")[4], "254") # a whole prompt is one step
        self.assertIn("does not hold one context", self.ok("info", "-m", cli.data("stories260K.gguf"), "--kv-memory", "100K").text)
        below = r"(?m)^ +below it (\S+ .iB) of host memory hold (\S+) tokens\n +and (\S+ .iB) of disk (\S+) tokens$"
        more = self.ok("info", "-m", cli.data("stories260K.gguf"), "--kv-host", "10M", "--kv-disk", "/absent/kv:100M").text
        self.assertEqual(re.search(below, more).groups(), ("10.00 MiB", "16K", "100.00 MiB", "164K"))
        self.assertNotIn("below it", self.ok("info", "-m", cli.data("stories260K.gguf")).text)  # none unless it is asked for


    def test_memory_use(self):
        """With F32 activations of Llama-3-8B, nothing fused: the residual stream, gate and up, over which their product is written, and what goes in or
        comes out; without reuse all that a layer has."""
        def use(*options):
            text = self.ok("info", *options, "--device", "cpu").text
            rows = {row: (int(reused), int(apart)) for row, reused, apart in re.findall(r"(?m)^  (activations|longest context|largest batch) +(\d+) +(\d+)  ", text)}
            return rows["activations"], rows["longest context"], rows["largest batch"], text

        acts, *_ = use("--shape", "llama3-8b")
        self.assertEqual(acts, (4 * (2 * 4096 + 2 * 14336), 4 * (7 * 4096 + 6144 + 3 * 14336)))
        halved, *_ = use("--shape", "llama3-8b", "WEFT_F16_RESIDUAL=1")
        self.assertEqual((acts[0] - halved[0], acts[1] - halved[1]), (2 * 4096, 3 * 2 * 4096)) # the stream, and apart each of its three values
        _, longest, batch, _ = use("--shape", "llama-1.1b", "-c", 512)
        self.assertGreaterEqual(longest[0], longest[1])
        self.assertGreaterEqual(batch[0], batch[1])
        self.assertLessEqual(batch[0], longest[0] // 512 + 1)
        self.assertGreaterEqual(batch[0], 0.9 * longest[0] // 512) # rows of logits are beside
        model = ("-m", cli.data("stories260K.gguf"))
        acts, longest, _, text = use(*model)
        self.assertRegex(text, r"weights [0-9.]+ .iB, sampling [0-9.]+ .iB, KV 640 B a token")
        self.assertGreater(longest[0], longest[1])
        whole = use(*model, "--policy", "orca")[1] # all tokens of a context in one step
        self.assertAlmostEqual(whole[0] / whole[1], (640 + acts[1]) / (640 + acts[0]), delta=0.01)

    def test_memory_that_windows_save(self):
        """Layers all of whose heads have windows keep the longest window and a step of a context."""
        def estimate(*options):
            text = self.ok("info", "--shape", "llama-1.1b", "-c", 512, "--max-num-batched-tokens", 64, "--max-num-seqs", 64, "--device", "cpu",
                           *options).text
            return re.search(r"holds (\S+) tokens \((\d+) contexts", text).groups(), int(re.search(r"largest batch +(\d+)", text)[1])

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "windows")

            def write(whole): # one head of that many layers sees all keys
                with open(path, "w") as f:
                    f.write("weft-attention-windows 1\n" + "".join(f"layer {i} 16 9 1 {0 if i < whole else 16}\n" for i in range(22)))
                return "--attention-windows", path

            held, fit = estimate()
            held_with, fit_with = estimate(*write(0))
            self.assertEqual((held, held_with), (("4.1K", "8"), ("768", "8")))  # 32 pages of a context, or 6
            held_some, fit_some = estimate(*write(1))
            self.assertEqual(held_some, ("4.5K", "27"))  # as much memory, for contexts of 32 + 7 x 6 pages of 3 layers each
            self.assertTrue(1.5 * fit < fit_some < fit_with / 1.2, (fit, fit_some, fit_with))  # of the memory that is free right now
            self.assertEqual(estimate(*write(22))[0], held)
            self.fails(cli.USAGE, "needs -m FILE|FOLDER or --shape NAME", "info", "--attention-windows", path)


class Selftest(cli.TestCase):
    def test_cpu(self):
        r = self.ok("selftest", *cli.CPU)
        self.assertRegex(r.text, r"(?m)^gemm +(\d+) of \1 passed$")
        self.assertRegex(r.text, r"(?m)^\d+ checks, 0 failed$")
        verbose = self.ok("selftest", *cli.CPU, "-v", "--seed", 3).text
        self.assertGreater(verbose.count("\nok "), 20)


if os.environ.get("WEFT_HAS_OPENCL") == "0":
    del Info.test_memory_of_an_opencl_device_that_is_the_hosts  # this build has no OpenCL


if __name__ == "__main__":
    cli.main()
