#!/usr/bin/env python3
"""Figures and tables of the papers that weft builds on, each by one command, on your device and model.

    bench/paper.py --list
    bench/paper.py sarathi-fig9 -m model.gguf --device gpu -o figures
    bench/paper.py nanoflow-fig7 --shape llama3-8b --results rows.csv -- --deterministic

Runs weft's own commands (`weft bench throughput`, `weft bench ops`, `weft plan`, ...) and computes the figure from what they print as
JSON. Prints what was measured beside what the paper has, and what differs. What stands behind -- goes to the commands that open an engine.
The papers are SARATHI (arXiv 2308.16369), NanoFlow (2408.12757) and FlashDecoding++Next. Needs nothing but Python; drawing needs matplotlib.
"""
import argparse
import concurrent.futures
import csv
import datetime
import difflib
import http.client
import json
import math
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SHORTEST, QUICK_LONGEST, MOST_WARM = 8, 64, 64  # tokens of a length, the longest with --quick, requests of a warm-up
RUNTIME, USAGE, DEVICE = 1, 2, 4                # exit codes, as weft's
COLUMNS = "date commit device driver model figure series x paper_x median lowest highest runs paper".split()

# ---- what the papers have: points are (series, x, y); a tick's x is its place --------------------------------------------

LLAMA13B, LLAMA70B = "LLaMA-13B on an A6000", "LLaMA-2-70B on 8 A100 80 GB"
HERE, THERE = "this model and device", "the paper's, by weft's cost model"
AS_LOADS = "decodes take the time of a load less that of its prompts alone, instead of timed iterations"
DEVICES = "v100 a100-40 a100-80 h100 b100 b200 mi250 mi300 mi325x gaudi2 gaudi3 ada6000 here".split()
OPS = "KQV O UG D DecAttn PfAttn Net".split()  # of NanoFlow's table 2
OP_OF = {"qkv": 0, "q": 0, "k": 0, "v": 0, "attn_out": 1, "gate_up": 2, "gate": 2, "up": 2, "experts_gate_up": 2, "experts_gate": 2,
         "experts_up": 2, "down": 3, "experts_down": 3, "decode_attention": 4, "prefill_attention": 5, "all_reduce": 6}
GROUPS = {"preproj": [0], "attention": [4, 5], "postproj": [1], "ffn": [2, 3], "others": [6, 7]}  # of SARATHI's table 1
RATIO, PART = "compute / read, flop a byte", "memory / read, ms"
# Constant lengths, or those of a data set by the means and deviations of NanoFlow's table 4.
LOADS = [("512:512", 512, 512, 0, 0), ("1024:512", 1024, 512, 0, 0), ("512:1024", 512, 1024, 0, 0),
         ("Splitwise", 1155, 211, 1109, 163), ("LMSYS-Chat", 102, 222, 169, 210), ("ShareGPT", 246, 322, 547, 244)]
FIG11_MODELS = "llama3-8b llama3-70b qwen2.5-7b qwen3-8b qwen3-32b mixtral-8x7b another".split()
LENGTHS = ["1K", "2K", "3K"]
RIDING = [("chunks of 256", 14, 1.27), ("chunks of 512", 28, 1.23)]
WITHIN, ASYNC, SYNC, WINDOWED = "99.99 % lie between", "asynchronous", "synchronous", "windows of half the keys"
ALONE = "Orca, 8 devices and replicas"
OF_REQUEST, A_STEP, GENERATED_S = "throughput / of request-level batching", "tokens of a step", "generated tokens/s"


def series(name, *points):
    return [(name, x, y) for x, y in points]


FIGURES = {}


def figure(name, title, run, needs="a model", takes="", of="", says="", x="", y="", log="", ticks=None, points=(), takes_options="", runs=3,
           limit=None, diagonal=False):
    """takes_options: which of --file, --peer, ... it has a use for; log: axes; run None: no device here can show it."""
    FIGURES[name] = argparse.Namespace(name=name, title=title, run=run, needs=needs, takes=takes, of=of, says=says, x=x, y=y, log=log,
                                       ticks=ticks, points=list(points), options=takes_options.split(), runs=runs, limit=limit, diagonal=diagonal)


class Refused(Exception):
    """A message and an exit code."""
    def __init__(self, text, code=USAGE):
        super().__init__(text)
        self.code = code


# ---- the driver ------------------------------------------------------------------------------------------------------------


class Run:
    """A figure while it is measured."""
    def __init__(self, figure, args, folder):
        self.figure, self.args, self.folder = figure, args, folder
        self.rows, self.notes = {}, []  # (series, x): [paper_x, values]
        self.scale, self.n_commands = None, 0
        self.commit = self.device = self.driver = self.model = ""
        self.known = {}

    # -- what was measured --

    def add(self, series, x, value, paper_x=None):
        self.rows.setdefault((series, x), [x if paper_x is None else paper_x, []])[1].append(value)

    def add_all(self, series, x, values, paper_x=None):
        for v in values:
            if v > 0:
                self.add(series, x, v, paper_x)
            else:
                self.note(f"{series} at {paper_x or x:g}: decodes cost less than the runs vary, so a value is left out")

    def add_gain(self, series, x, was, now, paper_x=None):
        """How many times as fast it is."""
        self.add_all(series, x, [a / b if a > 0 and b > 0 else 0 for a, b in zip(was, now)], paper_x)

    def median(self, series, x):
        return statistics.median(self.rows[series, x][1]) if (series, x) in self.rows else None

    def divide(self, by):
        for row in self.rows.values():
            row[1] = [v / by for v in row[1]] if by else row[1]

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)

    # -- running weft --

    def weft(self, *words):
        """What a command prints; what it says goes to the terminal only where it fails. Words such as WEFT_QUICK=1 are variables, as in a shell."""
        words = [str(w) for w in words]
        variables = dict(w.split("=", 1) for w in words if w.startswith("WEFT_"))
        words = [w for w in words if not w.startswith("WEFT_")]
        self.n_commands += 1
        if not self.args.quiet:
            print(f"[{self.n_commands}] weft {' '.join(words)}"[:160], file=sys.stderr)
        p = subprocess.run([self.args.weft, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **variables})
        if p.returncode:
            raise Refused(p.stderr.strip() or f"weft {words[0]} ended with {p.returncode}", p.returncode if p.returncode > 0 else RUNTIME)
        return p.stdout

    def json(self, *words):
        text = self.weft(*words)
        data = json.loads(text) if text.strip() else []
        head = data[0] if isinstance(data, list) and data else data if isinstance(data, dict) else {}
        self.commit = head.get("build_commit") or self.commit
        if head.get("device_name"):
            self.device, self.driver = head["device_name"], head.get("driver", self.driver)
        self.model = head.get("model_type") or self.model
        return data

    @property
    def which(self):
        a = self.args
        words = ["-m", a.model] if a.model else ["--shape", a.shape] if a.shape else []
        return words + (["--type", a.type] if a.type else []) + ([f"WEFT_LAYERS={a.layers}"] if a.layers else [])

    @property
    def where(self):
        a = self.args
        return (["--device", a.device] if a.device else []) + (["--tier", a.tier] if a.tier else [])

    @property
    def threads(self):
        return ["-t", self.args.threads] if self.args.threads else []

    @property
    def plain_engine(self):
        return self.which + self.where + self.threads + self.args.more

    @property
    def engine(self):
        """Options of an engine. Only ranges beside the model count: none are measured at its first start."""
        own = self.args.model and os.path.exists(self.args.model + ".calibration")
        return self.plain_engine + ([] if own or "--calibration" in self.args.more else ["--calibration", "none"])

    def info(self, *words):
        key = ("info", *words, tuple(self.which))
        if key not in self.known:
            self.known[key] = self.json("info", *self.which, "--json", *words)
        return self.known[key]

    # -- sizes --

    @property
    def context(self):
        return self.args.ctx_size or self.info()["model_context"]

    def fit(self, longest):
        """Chooses the scale by the longest length, and says so."""
        most = self.context / longest
        self.scale = min(self.args.scale, most)
        if self.args.quick:
            self.scale = min(self.scale, QUICK_LONGEST / longest)
        if self.scale != 1:
            self.note(f"lengths are {self.scale:.3g} of the paper's, the longest {self.length(longest)} tokens instead of {longest}"
                      f"{': the context has no more' if self.scale == most else ''}")

    def length(self, n):
        return max(int(n * self.scale + 1e-6), SHORTEST)

    @property
    def repeat(self):
        return self.args.repetitions or (1 if self.args.quick else self.figure.runs)

    def some(self, items):
        """All, or with --quick the first and the last one."""
        items = list(items)
        return [items[0], *items[-1:]] if self.args.quick and len(items) > 1 else items

    # -- loads --

    def trace(self, requests):
        """A file with lengths of requests, named after them."""
        text = "ContextTokens,GeneratedTokens\n" + "".join(f"{i},{o}\n" for i, o in requests)
        path = self.known.setdefault(text, os.path.join(self.folder, f"load{len(self.known)}.csv"))
        with open(path, "w") as f:
            f.write(text)
        return path

    def with_memory(self, n_seqs, use):
        """use(n_seqs), with half as many sequences until the memory holds them."""
        n = n_seqs
        while True:
            try:
                out = use(n)
                if n != n_seqs:
                    self.note(f"{n} sequences instead of {n_seqs}: the memory holds no more")
                return out, n
            except Refused as e:
                if e.code != RUNTIME or not re.search("memory|buffer", str(e)):
                    raise
                if n == 1:
                    raise Refused(f"{e}\nnot even one sequence fits (a smaller -c or --scale may)", RUNTIME) from e
                n = (n + 1) // 2

    def throughput(self, policy, n_seqs, context, batch, loads, *words):
        """Rows of `weft bench throughput` for each load, a list of (in, out) with all its requests at once unless words say otherwise, or for those
        that loads gives for so many sequences; and how many these were. Each kind of load runs once before, to warm up. The KV cache has whole contexts for
        all sequences, unless --max-num-seqs is given."""
        def run(n):
            wanted = loads(n) if callable(loads) else loads
            distinct = [list(k) for k in dict.fromkeys(tuple(load) for load in wanted)]
            warm = [] if "--arrivals" in words else [load[:min(n, MOST_WARM)] for load in distinct]
            files = [self.trace(load) for load in warm + wanted]
            kv = [] if self.args.max_num_seqs else ["--kv-memory", math.ceil((context / 16 + 2) * 16 * self.info()["kv_bytes_per_token"]) * n]
            data = self.json("bench", "throughput", *self.engine, "-o", "json", "-c", context, "--policy", policy, "--max-num-seqs", n,
                             *(["--max-num-batched-tokens", batch] if batch else []), *kv, "--no-prefix-cache",
                             *(f"--dataset-path={f}" for f in files), "--num-prompts", max(len(load) for load in warm + wanted),
                             "WEFT_PEAK_TFLOPS=1", *words)
            return data[len(warm):]
        return self.with_memory(n_seqs, run)

    def times(self, policy, n_seqs, context, batch, loads, *words):
        """Seconds of each load, in turns, so that what else the machine does meets all of them; and how many sequences there were."""
        rows, n = self.throughput(policy, n_seqs, context, batch, lambda n: (loads(n) if callable(loads) else loads) * self.repeat, *words)
        each = len(rows) // self.repeat
        return [[r["seconds"] for r in rows[k::each]] for k in range(each)], n

    def costs(self, policy, n_seqs, context, batch, n, lengths):
        """Of n requests: seconds of the load, of a prompt token and of a generated one."""
        i, o = lengths
        (both, prompts), _ = self.times(policy, n_seqs, context, batch, [[(i, o)] * n, [(i, 0)] * n])
        return both, [t / (n * i) for t in prompts], [(a - b) / (n * (o - 1)) for a, b in zip(both, prompts)]  # the prompt gives the first token

    # -- steps, whose ops the device times --

    def step(self, tokens, decodes, context, n_seqs, engine_context, batch, *words, measure=True):
        """The trace of a step and what it says in numbers; the same step is run once."""
        key = ("step", tokens, decodes, context, n_seqs, engine_context, batch, words, measure)
        if key not in self.known:
            path = os.path.join(self.folder, "step.json")
            self.weft("plan", *self.engine, "-c", engine_context, "--max-num-seqs", n_seqs, "--timeline", path, "--context", context,
                      "--decodes", decodes, *(["--tokens", tokens] if tokens else []), *(["--max-num-batched-tokens", batch] if batch else []),
                      *([] if "--nano-batches" in words or "--plan" in words else ["--nano-batches", 1]), *(["WEFT_MEASURE=1"] if measure else []), *words)
            with open(path) as f:
                self.known[key] = json.load(f)
        t = self.known[key]
        self.commit, self.device, self.model = t["step"]["build_commit"], t["step"]["device_name"], t["step"]["model_type"]
        return t

    def op_times(self, *step):
        """Microseconds by group of ops."""
        us = dict.fromkeys(GROUPS, 0.0)
        for e in self.step(*step)["traceEvents"]:
            if e["ph"] == "X":
                us[next(g for g, ops in GROUPS.items() if OP_OF.get(e["name"], 7) in ops)] += e["dur"]
        return us

    # -- single ops --

    def ops(self, op, shapes, *words):
        peer = [f"WEFT_PEER={self.args.peer}"] if self.args.peer else []
        data = self.json("bench", "ops", *self.where, *self.threads, "-o", "json", "--op", op, "-r", self.repeat, *(f"--shape={s}" for s in shapes), *(["WEFT_ROTATE=1"] if self.args.quick else []),
                         *(["--results", self.folder, *peer] if peer else []), *words, *self.args.more)
        self.info()
        return data


def size_of(shape, letter):
    return int(dict(part.split("=") for part in shape.split(","))[letter])


# ---- SARATHI: the baseline is request-level batching. What a decode costs is its marginal time ------------------------------


def split(tokens, ratio):
    """By the ratio of prompts to decodes."""
    out = min(max(round(tokens / (1 + ratio)), 2), tokens - 1)
    return tokens - out, out


def chunk_of(p, chunk, n_seqs):
    """A chunk of the paper, which must have room for prompts beside n_seqs - 1 decodes."""
    scaled, least = p.length(chunk), 2 * n_seqs
    if scaled < least:
        p.note(f"chunks of {least} tokens for {chunk}, not {scaled}: two for each of the {n_seqs} sequences")
    return max(scaled, least)


def waves(p, n_seqs):
    """Several waves of sequences, so that decodes of one meet prompts of the next."""
    return n_seqs * (2 if p.args.quick else 4)


def sarathi_fig3(p):
    p.fit(1024)
    for n in p.some([1, 2, 4, 8, 12, 18]):
        _, prefill, decode = p.costs("request", n, p.length(1024), 0, n, split(p.length(1024), 31))
        p.add_all("prefill", n, prefill)
        p.add_all("decode", n, decode)
    p.divide(p.median("prefill", 1))
    p.note(f"{AS_LOADS}; single ops are not timed")


def sarathi_fig4(p):
    p.fit(2048)
    lengths = p.some([32, 64, 128, 256, 512, 1024, 2048])
    times, _ = p.times("request", 1, p.length(2048), p.length(2048), [[(p.length(n), 0)] * 4 for n in lengths])
    for n, t in zip(lengths, times):
        p.add_all("prefill", p.length(n), [4 * p.length(n) / s for s in t], n)
    best = max(p.median(*key) for key in p.rows)
    for n in [1, 2, 4, 8, 18, 32, 64, 128, 256][::4 if p.args.quick else 1]:
        _, _, decode = p.costs("request", n, p.length(1024), 0, n, split(p.length(1024), 31))
        p.add_all("decode", n, [1 / t if t > 0 else 0 for t in decode])
    p.divide(best)
    p.note(f"the paper times one layer, this is the whole model; {AS_LOADS}")


def sarathi_table2(p):
    p.fit(1024)
    n = p.length(1024)
    for at, (policy, batch) in enumerate([("request", 0), ("sarathi", n)]):  # three steps of decodes for the prompts of the three others
        _, prefill, decode = p.costs(policy, 4, n, batch, 16, (n - 4, 4))
        p.add_all("prefill", at, [1e3 * t for t in prefill])
        p.add_all("decode", at, [1e3 * t for t in decode])
    p.note(AS_LOADS)


def sarathi_fig7(p):
    tokens = [64, 128, 129, 192, 256, 257, 320, 384, 385, 448, 512, 513]
    if 0 < p.args.ctx_size < tokens[-1]:
        raise Refused(f"{p.figure.name} needs -c {tokens[-1]} or more, for tiles do not scale with the context")
    if p.args.quick:
        tokens = [64, 128, 513]
        p.note("only the first and the last length")
    times, _ = p.times("request", 1, 513, 513, [[(n, 0)] * 8 for n in tokens])
    for n, t in zip(tokens, times):
        p.add_all("one step", n, t)
    p.divide(p.median("one step", 128))


def both_policies(p, n_seqs, tokens, ratio=None):
    """One load with both policies; without a ratio the one at which chunks carry all decodes."""
    chunk = chunk_of(p, 256, n_seqs)
    lengths = split(tokens, ratio or chunk / (n_seqs - 1))
    n = waves(p, n_seqs)
    return p.costs("request", n_seqs, tokens, 0, n, lengths), p.costs("sarathi", n_seqs, tokens, chunk, n, lengths)


def sarathi_fig8(p):
    p.fit(3072)
    for n, most in p.some([(1024, 18), (2048, 10), (3072, 6)]):
        for seqs in [s for s in (2, 6, 10, 18) if s <= most][::2 if p.args.quick else 1]:
            base, riding = both_policies(p, seqs, p.length(n))
            p.add_gain(f"sequences of {n // 1024}K", seqs, base[2], riding[2])
    p.note(AS_LOADS)


def sarathi_table4(p):
    p.fit(3072)
    for at in p.some(range(3)):
        base, riding = both_policies(p, 6, p.length(1024 * (at + 1)), 50)
        p.add_gain("decode speedup", at, base[2], riding[2])
        p.add_gain("throughput gain", at, base[0], riding[0])
    p.note(AS_LOADS)


def by_ratio(p, *schemes):
    """Gains of schemes (name, policy, chunk) over request-level batching by the ratio of prompts to decodes."""
    p.fit(1024)
    n, ratios = p.length(1024), p.some([5, 14, 28, 50, 200])
    loads = [[split(n, r)] * waves(p, 18) for r in ratios]
    base, _ = p.times("request", 18, n, 0, loads)
    for name, policy, chunk in schemes:
        times, _ = p.times(policy, 18, n, chunk_of(p, chunk, 18) if chunk else 0, loads)
        for ratio, was, now in zip(ratios, base, times):
            p.add_gain(name, ratio, was, now)


def sarathi_fig9(p):
    by_ratio(p, *((f"chunks of {n}", "sarathi", n) for n in (128, 256, 512)))


def sarathi_fig11b(p):
    by_ratio(p, ("Orca, best case", "orca", 0), ("chunks of 256", "sarathi", 256), ("chunks of 512", "sarathi", 512))
    p.note("Orca takes whole prompts, about one a step, as they come: its best case")


def sarathi_fig10(p):
    """Steps of each kind, counted as often as the loads take them: apart, prompts one by one and then all decodes together; riding, chunks of
    which each carries a decode of every other sequence, and what is left of the decodes together."""
    settings = [(1024, 6, 256), (1024, 18, 256), (2048, 10, 256), (3072, 6, 256), (1024, 18, 512)]
    p.fit(3072)
    longest = p.length(3072)
    for tokens, seqs, chunk in settings[:1] if p.args.quick else settings:
        n, piece = p.length(tokens), max(p.length(chunk), 2 * seqs)
        out = int(max(n / (1 + piece / (seqs - 1)), 2))
        prompt, decodes, chunks = n - out, out - 1, seqs * (n - out) / (piece - seqs + 1)
        most = seqs if p.args.quick else 18

        def step(tokens, decodes, context):
            us, _ = p.with_memory(most, lambda n_seqs: p.op_times(tokens, decodes, context, n_seqs, longest, longest))
            return us
        alone, together, hybrid = step(prompt, 0, prompt), step(seqs, seqs, n), step(piece, seqs - 1, n)
        left = max(decodes - chunks * (seqs - 1) / seqs, 0)
        name = f"{seqs} of {tokens}, chunks of {chunk}: "
        for at, g in enumerate(GROUPS):
            p.add(name + "apart", at, (seqs * alone[g] + decodes * together[g]) / 1e3 / seqs)
            p.add(name + "riding", at, (chunks * hybrid[g] + left * together[g]) / 1e3 / seqs)
    p.note("each kind of step is measured once more than it is timed, and counted as often as the loads take it; chunks as at the end of a prompt")


def sarathi_fig11a(p):
    p.fit(3072)
    for at, seqs in p.some(enumerate([18, 10, 6])):
        n, chunk, requests = p.length(1024 * (at + 1)), chunk_of(p, 256, seqs), waves(p, seqs)
        lengths = split(n, chunk / (seqs - 1))
        load = [[lengths] * requests]
        (base,), _ = p.times("request", seqs, n, 0, load)
        (worst,), _ = p.times("orca", seqs, n, min(seqs * n, 65536), [[lengths] * seqs])  # all prompts in one step, and all decodes after it
        p.add_gain("Orca, worst case", at, base, [t * requests / seqs for t in worst])
        for name, policy, batch in [("Orca, best case", "orca", 0), ("SARATHI", "sarathi", chunk)]:
            p.add_gain(name, at, base, p.times(policy, seqs, n, batch, load)[0][0])
    p.note("Orca's worst case: all prompts in one step of up to 65536 tokens, then all decodes")


def zipf(p, n):
    """Requests of 1K to 4K tokens at the scale of this run, of which the shorter ones are more frequent; P:D = 10."""
    low, theta, draw = p.length(1024), 0.4, random.Random(12)
    span = p.length(4096) - low + 1
    return [split(int(low + (1 + draw.random() * (span ** (1 - theta) - 1)) ** (1 / (1 - theta)) - 1), 10) for _ in range(n)]


PIPELINE, REPLICAS = "8 stages of 8 devices", "8 replicas of 8 devices"


def pipelines(p):
    """The simulated study of section 5.3, by `weft simulate`: GPT-3 on eight servers of eight A100, 10,000 requests at once. Orca's best case is a whole
    prompt beside the decodes of a step, SARATHI's steps have 256 tokens. Batches are those of the paper, and what fits is as much."""
    p.scale, n = 1, 500 if p.args.quick else 10000
    path, rows = p.trace(zipf(p, n)), {}
    for name, layout, seqs, words in (("Orca", PIPELINE, 27, ["orca", "--pp", 8]), (ALONE, REPLICAS, 11, ["orca", "WEFT_REPLICAS=8"]),
                                      ("SARATHI", PIPELINE, 27, ["sarathi", "--pp", 8, "--max-num-batched-tokens", 256])):
        rows[name], = p.json("simulate", "--shape", "gpt3-175b", "WEFT_F16_RESIDUAL=1", "--on", "dgx-a100", "--tp", 8, "--policy", *words, "--max-num-seqs", seqs,
                             "--dataset-path", path, "--num-prompts", n, "-c", 4096, "--json", "-q")
        p.note(f"{name}: {layout}, {seqs} sequences in a step ({rows[name]['whole_contexts']} fit), stages busy {rows[name]['busy_pct']:.0f} % of the time")
    p.device, p.driver = "simulated dgx-a100", ""
    p.note(f"{n} requests; times are weft's cost model of nominal rates, one op after another, instead of profiles of kernels")
    return rows


def compare(p, what, got, paper):
    p.note(f"{what}: {got:.3g} times, {paper} in the paper: {100 * (got / paper - 1):+.0f} %")


def sarathi_fig12a(p):
    rows = pipelines(p)
    for name in "Orca", "SARATHI":
        for at, ms in enumerate(rows[name]["bubble_deciles_ms"]):
            p.add(name, 10 * at, ms / rows["Orca"]["bubble_p50_ms"])
    compare(p, "median bubbles of Orca over SARATHI's", rows["Orca"]["bubble_p50_ms"] / rows["SARATHI"]["bubble_p50_ms"], 6.29)


def sarathi_fig12b(p):
    rows = pipelines(p)
    seconds = {name: r["seconds"] for name, r in rows.items()}
    for name, r in rows.items():
        for at, ms in enumerate(r["e2el_deciles_ms"][1:], 1):
            p.add(name, at / 10, ms / 1e3 / seconds["Orca"])
    compare(p, "SARATHI over Orca", seconds["Orca"] / seconds["SARATHI"], 1.91)
    compare(p, "SARATHI over replicas", seconds[ALONE] / seconds["SARATHI"], 1.48)
    compare(p, "replicas over Orca", seconds["Orca"] / seconds[ALONE], 1.28)


def sarathi_fig13a(p):
    p.fit(1024)
    n = p.length(1024)

    def pieces(chunk):
        us = dict.fromkeys(GROUPS, 0.0)
        for at in range(0, n, chunk):
            size = min(chunk, n - at)
            for g, t in p.op_times(size, 0, at + size, 1, n, n).items():
                us[g] += t
        return us["attention"], sum(us.values())
    whole = pieces(n)
    for chunk in p.some([64, 128, 256, 320, 512]):
        attention, everything = pieces(p.length(chunk))
        p.add("attention", p.length(chunk), attention / whole[0], chunk)
        p.add("all ops", p.length(chunk), everything / whole[1], chunk)


def sarathi_fig13b(p):
    p.fit(1024)
    n, load = p.length(1024), [[(p.length(1024), 0)] * 4]
    (whole,), _ = p.times("sarathi", 1, n, n, load)
    for chunk in p.some([64, 128, 256, 320, 512]) if not p.args.quick else [512]:
        (t,), _ = p.times("sarathi", 1, n, p.length(chunk), load)
        for a, b in zip(t, whole):
            p.add("prefill of 1K", p.length(chunk), a / b, chunk)


figure("sarathi-fig3", "cost of a token by batch size, sequences of 1K", sarathi_fig3, takes="about 0.4 million tokens", of=LLAMA13B,
       says="prefill costs almost the same at all batch sizes.", x="sequences", y="time of a token / of a prompt token of one sequence", log="xy",
       points=series("decode", (1, 200), (2, 100), (18, 16.7)))
figure("sarathi-fig4", "throughput by tokens of a step", sarathi_fig4, takes="about 4 million tokens", of=LLAMA13B + " (one layer)",
       says="prefill saturates at 512 tokens with about 180 tokens/ms; a chunk of 256 has 12.5 % less; decodes saturate at 256 sequences.",
       x=A_STEP, y="throughput / the most of prefill", log="xy", points=series("prefill", (256, 0.875), (512, 1)))
figure("sarathi-table2", "cost of decodes that ride on a prompt", sarathi_table2, takes="about 0.3 million tokens", of=LLAMA13B, x="batches",
       y="time of a token, ms", log="y", ticks=["apart", "decode-maximal"],
       points=series("prefill", (0, 0.229), (1, 0.229)) + series("decode", (0, 12.49), (1, 1.2)))
figure("sarathi-fig7", "time of a step by tokens, around multiples of the tile", sarathi_fig7, takes="about 0.1 million tokens", of=LLAMA13B,
       x=A_STEP, y="time / that of 128 tokens", points=series("one step", (128, 1), (256, 69.8 / 55), (257, 92.33 / 55)))
figure("sarathi-fig8", "decode speedup by batch and length, chunks of 256", sarathi_fig8, takes="about 2 million tokens", runs=1, of=LLAMA13B,
       says="2.8 to 10 times over all batches; the points are of table 4, at P:D = 50.", x="sequences",
       y="decode speedup over request-level batching", points=[(f"sequences of {k}K", 6, v) for k, v in ((1, 5.45), (2, 3.26), (3, 2.51))])
figure("sarathi-table4", "gains by sequence length, six sequences, P:D = 50, chunks of 256", sarathi_table4, takes="about 2 million tokens",
       of=LLAMA13B, x="tokens of a sequence", y="times as fast as request-level batching", ticks=LENGTHS,
       points=series("decode speedup", (0, 5.45), (1, 3.26), (2, 2.51)) + series("throughput gain", (0, 1.33), (1, 1.26), (2, 1.22)))
figure("sarathi-fig9", "throughput gain by P:D ratio and chunk, 18 sequences of 1K", sarathi_fig9, takes="about 2 million tokens", runs=1,
       of=LLAMA13B, x="prompt tokens / generated tokens", y=OF_REQUEST, log="x", points=RIDING)
figure("sarathi-fig10", "time by ops, prompts and decodes apart and decodes riding on chunks", sarathi_fig10, takes="about 120 steps", of=LLAMA13B,
       says="ffn takes 1.3 to 1.6 times less, preproj and postproj 1.05 to 1.38 times.", x="ops (sequences of n tokens)", y="ms of a sequence",
       log="y", ticks=list(GROUPS))
figure("sarathi-fig11a", "Orca's worst and best case and SARATHI by sequence length", sarathi_fig11a, takes="about 3 million tokens", of=LLAMA13B,
       says="Orca's best case falls to the baseline for longer sequences.", x="tokens of a sequence (18, 10, 6 sequences)", y=OF_REQUEST,
       ticks=LENGTHS, points=[("Orca, worst case", 0, 1), ("Orca, best case", 0, 1.11)] + series("SARATHI", (0, 1.27), (1, 1.25), (2, 1.23)))
figure("sarathi-fig11b", "Orca's best case and SARATHI by P:D ratio, 18 sequences of 1K", sarathi_fig11b, takes="about 2 million tokens", runs=1,
       of=LLAMA13B, says="Orca gains at most 1.11, at a high ratio.", x="prompt tokens / generated tokens", y=OF_REQUEST, log="x", points=RIDING)
figure("sarathi-fig12a", "bubbles in a pipeline of 8 stages that a request meets", sarathi_fig12a, needs="nothing: it is simulated",
       takes="seconds", of="GPT-3 on 64 A100 in simulation", says="the median is 6.29 times less.", x="requests with less, %",
       y="bubble time / Orca's median", log="y", points=[("Orca", 50, 1), ("SARATHI", 50, 1 / 6.29)])
figure("sarathi-fig12b", "completion of requests whose lengths follow Zipf's law (0.4), 1K to 4K", sarathi_fig12b, takes="seconds",
       needs="nothing: it is simulated", of="GPT-3 on 64 A100 in simulation, a pipeline of 8 stages", x="part of the requests", y="time / Orca's for all",
       points=[("Orca", 1, 1), ("SARATHI", 1, 1 / 1.91), (ALONE, 1, 1 / 1.28)])
figure("sarathi-fig13a", "what chunks cost the attention of a prompt of 1K", sarathi_fig13a, takes="about 200 steps", of=LLAMA13B,
       x="tokens of a chunk", y="time / in one piece", points=[("attention", 64, 3)] + series("all ops", (64, 5), (256, 1.2), (512, 1.1)))
figure("sarathi-fig13b", "what chunks cost a prompt of 1K", sarathi_fig13b, takes="about 0.1 million tokens", of=LLAMA13B,
       says="chunks of 128 take more than twice as long.", x="tokens of a chunk", y="time of prefill / in one piece",
       points=series("prefill of 1K", (64, 5), (256, 1.2), (512, 1.1)))


# ---- NanoFlow: tables by the cost model of `weft plan --cost`, for the paper's setting and for the model and device at hand --


def cost(p, *words):
    return p.json("plan", "--cost", "--json", *words)


def cost_here(p):
    c = cost(p, *p.which, *p.where, *p.threads)
    return c, c["device_name"], c["model_type"]


def cost_there(p):
    """LLaMA-2-70B on eight A100, as in section 3.4: 1,024 decodes and as many prompt tokens. The paper does not say how long requests are there:
    decodes of these lengths, which are to each other as its 512 and 1,024, read the bytes of table 2, so that decode attention is no prediction."""
    return cost(p, "--shape", "llama2-70b", "--on", "a100-80", "--tp", 8, "--const", "683:1365", "--tokens", 2048, "--decodes", 1024)


HEAT = [("llama3-8b", 1), ("mixtral-8x7b", 8), ("llama2-70b", 8), ("llama3-70b", 8), ("qwen2-72b", 8)]


def nanoflow_fig2(p):
    """Equation 3 over equation 2: below 1 a load is bound by compute. Eight devices of each kind."""
    for model, _ in HEAT[1:]:
        for at, on in enumerate(DEVICES[:-1]):
            try:
                c = cost(p, "--shape", model, "--on", on, "--tp", 8, "--tokens", 2048, "--decodes", 1024)
                p.add(model, at, c["t_net_s"] / c["t_compute_s"])
            except Refused as e:
                p.note(f"{model} on {on}: {e}")
    p.device, p.model = "table", "several"
    p.note("eight devices of each kind; the paper shows colours and no numbers; the network counts one way, as in its table 2")


def nanoflow_fig3(p):
    """Equation 4 at the largest dense batch that the memory holds: below 1 a load is bound by compute."""
    for model, n in HEAT:
        for at, load in enumerate(LOADS):
            c = cost(p, "--shape", model, "--on", "a100-80", "--tp", n, "--const", f"{load[1]}:{load[2]}")
            p.add(model, at, c["t_mem_s"] / c["t_compute_s"])
    p.model = "several"
    p.note("on eight A100 80 GB, llama3-8b on one; the paper shows colours and no numbers; data sets by their mean lengths")


def with_costs(p, use):
    use(cost_there(p), THERE)
    here, p.device, p.model = cost_here(p)
    p.driver = ""
    use(here, HERE)


def nanoflow_table1(p):
    def add(at, c):
        if c["compute_flop_s"] <= 0 or c["read_bytes_s"] <= 0:
            return p.note(f"{c['device_name']}: its peak rates are unknown; `WEFT_MEASURE=1 weft plan --cost` measures them")
        p.add(RATIO, at, c["compute_flop_s"] / c["read_bytes_s"])
        return p.add(PART, at, c["memory_bytes"] / c["read_bytes_s"] * 1e3)
    for at, name in enumerate(DEVICES[:-1]):  # ratios of F16 whatever the model is
        add(at, cost(p, "--shape", "llama-1.1b", "--on", name))
    c, p.device, p.model = cost_here(p)
    add(len(DEVICES) - 1, c)
    p.note(f"'here' is {p.device}, measured; the others are the constants of the table of `weft plan --cost --on`")


def nanoflow_table2(p):
    def use(c, name):
        ms = [0.0] * (len(OPS) + 1)
        for op in c["ops"][:-1]:
            ms[OP_OF.get(op["name"], len(OPS))] += 1e3 * max(op[k] for k in ("compute_s", "memory_s", "network_s", "energy_s"))
        for at, v in enumerate(ms[:-1]):
            if v > 0:
                p.add(name, at, v)
        p.note(f"{name}: {c['decodes'] + c['prefill']:.0f} tokens a step, {c['decodes']:.0f} of them decodes of {c['keys']:.0f} keys, bound by {c['bound']}")
    with_costs(p, use)


def nanoflow_optimum(p):
    def use(c, name):
        n = c["n_devices"]
        for at, key in enumerate(["eq5_tokens_s", "optimum_tokens_s", "sequential_tokens_s"]):
            p.add(name, at, c[key] / n)
        p.note(f"{name}: {c['compute_flop_s'] / n / 1e12:.4g} TFLOP/s a device and {c['params']:.4g} parameters")
    with_costs(p, use)
    p.note("the paper's optimum is of 280 TFLOP/s, which it measured; the table has the nominal 312")


LONGEST, ABREAST = 4096, 64


def seqs_of(p):
    return p.args.max_num_seqs or (4 if p.args.quick else ABREAST)


def make_load(p, load, n):
    """Constant lengths, or log-normal ones of this mean and deviation, at the scale of this run."""
    def draw(mean, deviation, source):
        v = mean
        if deviation:
            s2 = math.log(1 + (deviation / mean) ** 2)
            v = source.lognormvariate(math.log(mean) - s2 / 2, math.sqrt(s2))
        return int(min(max(v * p.scale + 0.5, 2), LONGEST * p.scale / 2))
    _, i, o, i_dev, o_dev = load
    first, second = random.Random(1), random.Random(2)
    return [(draw(i, i_dev, first), draw(o, o_dev, second)) for _ in range(n)]


def say_loads(p):
    p.note(f"lengths of data sets are log-normal with the mean and the deviation of the paper's table 4, at most {LONGEST * p.scale / 2:.0f} tokens")
    p.note(f"{seqs_of(p)} sequences at a time, the dense batch is weft's default or what `weft tune` found, instead of 2048 tokens")


def peak(p):
    """TFLOP/s as `weft bench ops` measures them, of the optimum by equation 5."""
    c = p.json("bench", "ops", *p.where, *p.threads, "-o", "json", "--shape=M=8,N=256,K=256", "-r", 1, "WEFT_ROTATE=1")[0]["ceilings"]
    info = p.info()
    t = max(c["f32_tflop_s"], c["f16_tflop_s"], c["int8_top_s"] if re.search(r" Q[48]", info["model_type"]) else 0)
    if t <= 0:
        raise Refused("the peak of this device is unknown, and so is the optimum", DEVICE)
    p.note(f"the optimum is {t:.4g} TFLOP/s, as `weft bench ops` measures it, / (2 x {info['active_params']:.4g} parameters)")
    return t


def nanoflow_fig7(p):
    p.fit(LONGEST)
    tflops, n = peak(p), seqs_of(p) * (2 if p.args.quick else 4)  # a steady state needs several times as many requests as run at once
    policies = [p.args.policy] if p.args.policy else ["sarathi", "nanoflow"] if p.args.quick else ["request", "orca", "sarathi", "nanoflow"]
    for policy in policies:
        chosen = p.some(enumerate(LOADS))
        rows, _ = p.throughput(policy, seqs_of(p), p.length(LONGEST), 0, [make_load(p, load, n) for _, load in chosen for _ in range(p.repeat)],
                               f"WEFT_PEAK_TFLOPS={tflops}")
        for k, r in enumerate(rows):
            p.add(policy, chosen[k // p.repeat][0], r["optimum_pct"])
    p.note("weft's policies on one device instead of other engines; each is named by the paper it follows")
    say_loads(p)


def nanoflow_fig8(p):
    """The same rates for all policies: parts of what the first one reaches."""
    p.fit(LONGEST)
    n = seqs_of(p) * (2 if p.args.quick else 4)
    for load in LOADS[3:4] if p.args.quick else LOADS[3:]:
        requests, most = make_load(p, load, n), None
        for policy in ["nanoflow", "sarathi", "orca"]:
            if not most:
                most = p.throughput(policy, seqs_of(p), p.length(LONGEST), 0, [requests])[0][0]["requests_s"]
            rates = [f"{part * most:.6g}" for part in p.some([0.25, 0.5, 0.75, 0.9, 1.1]) for _ in range(p.args.repetitions or 1)]
            rows, _ = p.throughput(policy, seqs_of(p), p.length(LONGEST), 0, [requests], "--arrivals", "poisson", "--request-rate", ",".join(rates))
            for r in rows:
                p.add(f"{policy}, {load[0]}", float(f"{r['rate']:.6g}"), r["norm_mean_ms"])
    p.note(f"{n} requests a rate instead of five minutes of them; rates are parts of what nanoflow reaches with all at once")
    say_loads(p)


def nanoflow_fig9(p):
    rounds = 3 if p.args.quick else p.args.repetitions and max(p.args.repetitions, 3)
    kinds = ["decode", "prefill", "mixed"]
    rows = p.json("bench", "ablation", *p.engine, "-o", "json", *(["-r", rounds] if rounds else []), *(["-c", p.args.ctx_size] if p.args.ctx_size else []),
                  *(["--max-num-seqs", 8, "--max-num-batched-tokens", 64] if p.args.quick else []))
    for r in rows:
        p.note(f"{r['load']}: {r['tokens']} tokens a step, {r['decodes']} of them decodes, contexts of {r['context']}")
        p.add(r["plan"], kinds.index(r["load"]), r["speedup"])
    for kind in kinds:
        if not any(r["load"] == kind for r in rows):
            p.note(f"{kind}: left out, for this engine has no such step")
    p.note("medians of single steps in turns, instead of a served load of 512 tokens in and none (prefill) or 1024 (mixed) out; in the paper offloading "
           "the KV cache costs the overlapped pipeline 3.0 %")
    p.note("one device has no network to overlap with; the paper's gain of prefill is of that alone")


def steps_of(p):
    """Half of a step decodes, as in the paper, where the device holds as many: sequences, context, tokens of a step (0: the device's), decodes."""
    p.fit(1024)
    n = 8 if p.args.quick else 256
    batch = 64 if p.args.quick else p.info("--device", p.args.device or "auto")["device_max_num_batched_tokens"]
    return n, p.length(1024), batch, min(n - 1, batch // 2)


def times_of_ops(p):
    """The profile of --profile, what `weft tune --overlap` has kept, or one measured now, in files of its own, so that no other run takes it."""
    if p.args.profile:
        return p.args.profile
    n, context, batch, decodes = steps_of(p)
    step, n = p.with_memory(n, lambda k: p.step(batch, min(decodes, max(k - 1, 1)), context, k, context, batch, measure=False)["step"])
    if step.get("profile"):
        return step["profile"]
    path = os.path.join(p.folder, "times")
    p.weft("tune", "--overlap", *p.plain_engine, "WEFT_QUICK=1", "--seconds", 90, "--profile", path, "-o", path + ".plan", "--max-num-seqs", n,
           "--max-num-batched-tokens", batch, "-c", context)
    p.note("ops were measured in haste, for at most 90 s: `weft tune --overlap` takes its time")
    return path


def rates(p):
    c = p.json("plan", "--profile", times_of_ops(p), "--json")
    if not c["rates"]:
        raise Refused("no ops were measured beside each other: the kernels of this device leave no share to others, or have one thread to share", DEVICE)
    p.driver = ""
    p.note(f"measured with {c['model_type'] or 'a model without a name'}, contexts of {c['context']}")
    return c["rates"]


def nanoflow_fig5(p):
    for at, r in enumerate(sorted((r for r in rates(p) if r["class"] == "memory"), key=lambda r: r["lost"]), 1):
        p.add("compute", at, 1 - r["lost"])
        p.add("memory", at, r["rate"])
    p.note("pairs differ in the share of the device that the op of memory gets, not in their kernels")


def nanoflow_table3(p):
    for r in rates(p):
        p.add(r["class"], r["lost"], r["rate"])


def nanoflow_fig6(p):
    profile, plan = times_of_ops(p), os.path.join(p.folder, "plan")
    n, context, batch, decodes = steps_of(p)

    def layer(name, *words):
        t, _ = p.with_memory(n, lambda k: p.step(batch, min(decodes, max(k - 1, 1)), context, k, context, batch, "--profile", profile, *words, measure=False))
        ops = [e for e in t["traceEvents"] if e["ph"] == "X" and e["args"]["layer"] == t["step"]["layers"] // 2]
        us = [0.0] * (len(OPS) + 1)
        for e in ops:
            us[OP_OF.get(e["name"], len(OPS))] += e["dur"]
        us[-1] = max(e["ts"] + e["dur"] for e in ops) - min(e["ts"] for e in ops)
        for at, v in enumerate(us):
            if v > 0:
                p.add(name, at, v)
        return any(e["tid"] for e in t["traceEvents"] if e["ph"] == "X")
    layer("one after another")
    p.weft("plan", *p.engine, "-c", context, "--max-num-seqs", n, "--max-num-batched-tokens", batch, "--nano-batches", 1, "--search", profile, "-o", plan,
           "--tokens", batch, "--decodes", decodes, "--seconds", 1 if p.args.quick else 20)
    if not layer("found", "--plan", plan):
        p.note("no plan that is faster was found: `found` is the sequential one")
    c = p.json("plan", "--profile", profile, "--json")
    p.note(f"measured with {c['model_type'] or 'a model without a name'}, contexts of {c['context']}")
    p.driver = ""
    p.note("as the simulator predicts it from the times of ops; one device has no network, so that only attention and copies are beside products")


def nanoflow_fig10(p):
    n, context, batch, decodes = steps_of(p)
    for name, parts in ("one after another", 1), ("overlapped", 2):
        t, _ = p.with_memory(n, lambda k: p.step(batch, min(decodes, max(k - 1, 1)), context, k, context, batch, "--nano-batches", parts,
                                                 *(["--profile", p.args.profile] if p.args.profile else [])))
        s = t["step"]
        for at, kind in enumerate(["compute", "memory", "network", "copy"]):
            p.add(name, at, s["measured"][kind + "_pct"])
        p.note(f"{name}: {s['measured']['us'] / 1e3:.3f} ms for {s['tokens']} tokens, {s['decodes']} of them decodes, contexts of {s['context']}")
    p.note("overlapped: two nano-batches, the attention of one beside the products of the other; one device has no network")


def nanoflow_fig11(p):
    own = p.args.shape or p.args.model or p.args.quick
    for shape in (p.args.shape or "").split(",") if own else FIG11_MODELS[:1] + FIG11_MODELS[2:4]:
        p.args.shape = shape
        p.fit(1536)
        at = FIG11_MODELS.index(shape) if shape in FIG11_MODELS else len(FIG11_MODELS) - 1
        load = make_load(p, LOADS[1], seqs_of(p) * 2)
        rows, _ = p.throughput("nanoflow", seqs_of(p), p.length(1536), 0, [load] * p.repeat, f"WEFT_PEAK_TFLOPS={peak(p)}")
        for r in rows:
            p.add("nanoflow", at, r["optimum_pct"])
        p.note(f"'{FIG11_MODELS[at]}' is {p.model}")
    p.note(f"{seqs_of(p)} sequences at a time; models of random weights")


def nanoflow_table4(p):
    names = ["splitwise", "lmsys", "sharegpt"]
    if not p.args.dataset:
        raise Refused(f"{p.figure.name} needs lengths of requests: use --dataset FILE.csv")
    for path in p.args.dataset:
        at = next((i for i, n in enumerate(names) if os.path.basename(path).startswith(n)), len(names))
        try:
            with open(path, newline="") as f:
                rows = list(csv.DictReader(f))
            for of, column in ("prompt", "ContextTokens"), ("output", "GeneratedTokens"):
                v = [int(r[column]) for r in rows]
                p.add(f"{of}, mean", at, statistics.fmean(v))
                p.add(f"{of}, deviation", at, statistics.pstdev(v))
        except (OSError, KeyError, ValueError, statistics.StatisticsError) as e:
            raise Refused(f"{path}: {e}", RUNTIME) from e
        p.note(f"{p.figure.ticks[at]}: {len(rows)} requests of {path}")


MEASURED_THERE = [16.08, 16.01, 69.92, 34.96, 35.6, 4.56, 47.92]
A_SECOND, UP_TO_TWO = "a second, to measure this device's rates", "up to two minutes, unless `weft tune --overlap` has run"
figure("nanoflow-fig2", "network time / compute time (equations 3 and 2)", nanoflow_fig2, needs="nothing: it is computed", takes="seconds",
       of="models on eight devices", says="compute takes more time with large models in data centers.", x="devices", y="T_net / T_compute", log="y",
       ticks=DEVICES[:-1])
figure("nanoflow-fig3", "memory time / compute time (equation 4)", nanoflow_fig3, needs="nothing: it is computed", takes="seconds",
       of="models on A100 80 GB", says="loads are bound by compute, but long answers of llama3-8b, where the ratio is about 1.", x="load", y="T_mem / T_compute",
       ticks=[load[0] for load in LOADS], points=[("llama3-8b", 2, 1)])
figure("nanoflow-table1", "devices: compute, memory and its rate", nanoflow_table1, needs="a model, for its storage format", takes=A_SECOND,
       of="12 devices by their data sheets", x="devices", y="ratios", log="y", ticks=DEVICES,
       points=[(RATIO, i, v) for i, v in enumerate([139, 200, 156, 295, 225, 281, 107, 246, 218, 417, 486, 190])] +
              [(PART, i, v) for i, v in enumerate([18, 26, 40, 24, 15, 15, 38, 36, 43, 40, 35, 50])])
figure("nanoflow-table2", "time of ops by the cost model", nanoflow_table2, takes=A_SECOND, of=LLAMA70B, x="ops, all layers together",
       y="the longest of compute, memory and network, ms", log="y", ticks=OPS,
       points=[(THERE, i, v) for i, v in enumerate([11.01, 8.81, 61.67, 30.84, 28.89, 0.37, 31.33])] +
              [("measured there", i, v) for i, v in enumerate(MEASURED_THERE)])
figure("nanoflow-optimum", "most tokens per second of a device", nanoflow_optimum, takes=A_SECOND, of=LLAMA70B, x="bounds", y="tokens/s of a device",
       log="y", ticks=["equation 5", "all overlaps", "one by one"], points=[(THERE, 0, 1857)])
figure("nanoflow-fig7", "offline throughput", nanoflow_fig7, takes="about 21 million tokens", of=LLAMA70B,
       says="NanoFlow reaches 68.5 % in the best case, and 1.91 times TensorRT-LLM on the data sets; the others' numbers are of section 3.6.",
       x="prompt:output, and data sets", y="input and output tokens/s, % of the optimum", ticks=[load[0] for load in LOADS] + ["the paper"],
       points=[("nanoflow", 6, 68.5), ("TensorRT-LLM", 6, 37.8), ("DeepSpeed-FastGen", 6, 22.9), ("vLLM", 6, 22)], takes_options="max_num_seqs policy")
figure("nanoflow-fig8", "latency by request rate", nanoflow_fig8, takes="about 10 million tokens, most of the time waiting for arrivals", of=LLAMA70B,
       says="NanoFlow takes 1.64 times the rate of TensorRT-LLM within 200 ms on LMSYS-Chat.", x="requests per second, Poisson",
       y="mean normalised latency, ms per token", log="y", limit=200, takes_options="max_num_seqs")
figure("nanoflow-fig9", "ablation: what splitting steps costs and overlapping them gains", nanoflow_fig9, takes="about 250 steps, most of them full",
       of=LLAMA70B, says="nano-batches alone cost 13.2 %; overlapping network gains 1.07 times (512 in, 0 out), network and memory 1.17 times (512 in, 1024 out).",
       x="steps", y="speedup over steps that are not split", ticks=["decode", "prefill", "mixed"],
       points=[("split only", 2, 1 - 0.132), ("overlap", 1, 1.07), ("overlap", 2, 1.17)])
figure("nanoflow-fig5", "interference: what compute and an op of memory keep of their rates beside each other", nanoflow_fig5,
       needs="a device whose kernels can leave a share to others", takes=UP_TO_TWO,
       of="products of 384 x 4096 x 4096 and 384 sequences of 1024 keys on an A100, about 100 pairs of kernels",
       says="a rate of 0.3 for decode attention costs compute 0.2 of its own.", x="pairs, by what compute keeps", y="P: rate / alone", takes_options="profile")
figure("nanoflow-table3", "exchange rate R -> P of compute against memory and network", nanoflow_table3,
       needs="a device whose kernels can leave a share to others", takes=UP_TO_TWO, of="8 A100 80 GB", says="the same for all products and models within 5 %.",
       x="R: what compute loses of its rate", y="P: rate / alone", diagonal=True, takes_options="profile",
       points=series("memory", (0, 0), (0.1, 0.2), (0.2, 0.3), (0.8, 0.85), (0.9, 0.95), (1, 1)) +
              series("network", (0, 0), (0.1, 0.3), (0.2, 0.5), (0.8, 0.9), (0.9, 1), (1, 1)))
figure("nanoflow-table4", "lengths of the requests of the data sets", nanoflow_table4, needs="their lengths (--dataset)", takes="no time",
       of="the whole trace of Splitwise and 50,000 requests of each of the others", x="data sets", y="tokens",
       ticks=["Splitwise", "LMSYS-Chat", "ShareGPT", "another"], takes_options="dataset",
       points=[(name, at, v) for at, of in enumerate([(1155, 1109, 211, 163), (102, 169, 222, 210), (246, 547, 322, 244)])
               for name, v in zip(["prompt, mean", "prompt, deviation", "output, mean", "output, deviation"], of)])
figure("nanoflow-fig6", "the pipeline that the search finds for a layer", nanoflow_fig6,
       takes="half a minute, after up to two unless `weft tune --overlap` has run", of=LLAMA70B,
       says="nano-batches of 768 and 1280 tokens, four nano-operations for KQV; decode attention beside products reaches 0.8 of its rate and takes 0.4 of theirs.",
       x="ops of a layer", y="time, us", ticks=OPS + ["the layer"], takes_options="profile")
figure("nanoflow-fig10", "use of compute, memory and network over a layer, one op after another and overlapped", nanoflow_fig10, takes="a few steps",
       of=LLAMA70B, says="the overlapped pipeline uses 68.5 % of compute on average.", x="resources", y="mean use over the step, %",
       ticks=["compute", "memory", "network", "copy"], points=[("overlapped", 0, 68.5)], takes_options="profile")
figure("nanoflow-fig11", "offline throughput of several models, 1024 tokens in and 512 out", nanoflow_fig11, needs="the devices of its models (--shape NAME,...)",
       takes="about 0.5 million tokens a model", of="six models, Llama-3-8B on one A100 80 GB and the others on eight",
       says="50 to 72 % of the optimum, up to 78.5 %.", x="models", y="input and output tokens/s, % of the optimum", ticks=FIG11_MODELS, runs=2,
       takes_options="max_num_seqs")


# ---- FlashDecoding++Next ------------------------------------------------------------------------------------------------------

GENERATED, MOST_SEQS, BATCHES = 128, 256, [1, 8, 16, 32, 64, 128]
FLAT_WEIGHTS = ["N=6144,K=4096", "N=4096,K=4096", "N=28672,K=4096", "N=4096,K=14336", "N=15360,K=5120", "N=5120,K=5120", "N=27648,K=5120", "N=5120,K=13824"]


def need_text(p):
    if not p.args.file:
        raise Refused(f"{p.figure.name} needs a text: use -f FILE")


def flash_fig5(p):
    need_text(p)
    c = p.json("calibrate", *p.plain_engine, "-f", p.args.file, "-o", os.path.join(p.folder, "ranges"), "--json",
               *(["-c", p.args.ctx_size] if p.args.ctx_size else []))
    total, units = sum(b["n"] for b in c["bins"]), {}
    for b in c["bins"]:
        units[math.floor(b["from"])] = units.get(math.floor(b["from"]), 0) + b["n"]
    for low, n in units.items():
        if n:
            p.add("all layers", low + 0.5, 100 * n / total)

    def quantile(part):
        seen = 0
        for b in c["bins"]:
            seen += b["n"]
            if seen >= part * total:
                return b["from"] + c["step"] / 2
        return c["bins"][-1]["from"]
    p.add(WITHIN, quantile(0.00005), 0.01, -16.8)
    p.add(WITHIN, quantile(0.99995), 0.01, 6.5)
    p.note(f"{c['tokens']} tokens of your text in chunks of at most {c['context']}")


def flash_fig7(p):
    shapes = ["M=8,N=128,K=256", "M=8,N=512,K=256"] if p.args.quick else [f"M=8,N={2 ** n},K=4096" for n in range(10, 16)]
    rows = [r for r in p.ops("gemm", shapes, "--type", "F16", "WEFT_VARIANT=all") if r["rate"]]
    for n in sorted({size_of(r["shape"], "N") for r in rows}):
        here = [r for r in rows if size_of(r["shape"], "N") == n]
        for r in here:
            p.add(r["variant"], n, r["rate"] / max(q["rate"] for q in here))
    p.note("the kernels that weft has here, with tiles of their own, and K = 4096")


def attention_shapes(p, n_seqs, lengths, quick):
    i = p.info()
    p.note(f"{i['heads']} heads of {i['head_dim']}, {i['kv_heads']} of K and V; other programs only from --peer")
    return [f"B={1 if p.args.quick else n_seqs},L={n},H={i['heads']},KV={i['kv_heads']},D={i['head_dim']}" for n in ([quick] if p.args.quick else lengths)]


def best_rates(rows):
    """The best of several kernels by length, and of it over each peer."""
    best, over = {}, {}
    for r in rows:
        n = size_of(r["shape"], "L")
        best[n] = max(best.get(n, 0), r["rate"])
        if r["peer"]:
            over[r["peer"], n] = max(over.get((r["peer"], n), 0), r["rate"] / r["peer_rate"])
    return best, over


def asynchronous(p, op, n_seqs):
    """All kernels with the asynchronous softmax, which have it in their names, are measured: selection may have found them slower."""
    shapes = attention_shapes(p, n_seqs, [256 << k for k in range(6)], 64)
    sync, sync_over = best_rates(p.ops(op, shapes))
    rows = [r for r in p.ops(op, shapes, "WEFT_VARIANT=all", "WEFT_ASYNC=1") if "async" in r["variant"]]
    if not rows:
        raise Refused(f"{p.device} has no kernel with the asynchronous softmax for these shapes; `weft kernels` lists what it has, --device takes another", DEVICE)
    fast, fast_over = best_rates(rows)
    for n in sync:
        p.add(SYNC, n, 1)
        if n in fast:
            p.add(ASYNC, n, fast[n] / sync[n])
    for kind, over in (SYNC, sync_over), (ASYNC, fast_over):
        for (peer, n), v in over.items():
            p.add(f"{kind} over {peer}", n, v)


def flash_fig15(p):
    asynchronous(p, "prefill_attention", 1)


def flash_fig16(p):
    asynchronous(p, "decode_attention", 16)


def flash_fig17(p):
    """By time: rates are of fewer bytes. A window of half of the keys for all heads: MoA has such an average, of heads with different ones."""
    shapes = attention_shapes(p, 16, [1024 << k for k in range(6)], 256)
    whole = {size_of(r["shape"], "L"): r for r in p.ops("decode_attention", shapes)}
    for r in p.ops("decode_attention", [f"{s},S={size_of(s, 'L') // 2}" for s in shapes]):
        n = size_of(r["shape"], "L")
        base = whole[n]
        p.add(WINDOWED, n, base["median_us"] / r["median_us"])
        if base["peer"]:
            p.add(f"over {base['peer']}", n, base["median_us"] * base["rate"] / base["peer_rate"] / r["median_us"])
    p.note("16 sequences, all heads with one window of half the keys; the paper's heads have several, and FlashDecoding as the base (--peer), here the same "
           "kernels without windows")


def flash_fig18(p):
    weights = ["N=256,K=256"] if p.args.quick else FLAT_WEIGHTS
    tokens = [1, 16] if p.args.quick else [1, 2, 4, 8, 16]
    rows = p.ops("gemm", [f"M={m},{w}" for w in weights for m in tokens], "--type", "F16")
    for r in rows:
        weight = r["shape"].split(",", 1)[1]
        if p.args.peer and r["peer"]:
            p.add(f"{weight} over {r['peer']}", size_of(r["shape"], "M"), r["rate"] / r["peer_rate"])
        elif not p.args.peer and r["ceiling_pct"]:
            p.add(f"{weight} over the roofline", size_of(r["shape"], "M"), r["ceiling_pct"] / 100)
    if p.args.peer and not p.rows:
        raise Refused(f"{p.args.peer} has none of these products: gemm of F16, such as M=8,{weights[0]}")
    if not p.args.peer:
        p.note("no results of another library (--peer): over the roofline, the shortest time that the device's measured rates allow")


def flash_tokens(p):
    """How many prompts get the same greedy tokens with the asynchronous softmax as with the synchronous one, by two servers; a second synchronous run
    tells how much of the difference is not its doing."""
    need_text(p)
    prompt, answer, at_once = 128, 64, 64
    p.fit(prompt + answer)
    with open(p.args.file, errors="replace") as f:
        text = f.read()
    ids = [int(w) for w in p.weft("tokenize", *(["-m", p.args.model] if p.args.model else []), "--no-add-special", "-f", p.args.file).split()]
    if len(ids) < 8:
        raise Refused(f"the text has {len(ids)} tokens: prompts are cut from it, so give it thousands (-f)")
    n_in, n_out = min(p.length(prompt), len(ids) // 2), p.length(answer)
    n = min(4 if p.args.quick else 1000, len(ids) - n_in + 1)
    prompts = [ids[i * (len(ids) - n_in) // max(n - 1, 1):][:n_in] for i in range(n)]
    piece, ranges = os.path.join(p.folder, "text"), os.path.join(p.folder, "ranges")
    with open(piece, "w") as f:
        f.write(text[:64 << 10])  # ten thousand tokens are enough
    c = p.json("calibrate", *p.plain_engine, "-f", piece, "-o", ranges, "--json", "-c", n_in + n_out)
    layers = sum(layer["fits"] for layer in c["layers"])
    if not layers:
        raise Refused("the logits of this model vary too much for an asynchronous softmax: no layer has a range", RUNTIME)

    def serve(calibration, names):
        words = [p.args.weft, "serve", "--port", "0", *p.which, *p.where, *p.threads, "--calibration", calibration, "-c", n_in + n_out, "--max-num-seqs",
                 min(n, at_once), "--no-prefix-cache", *p.args.more]
        server = subprocess.Popen([str(w) for w in words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        port, said = None, []
        try:
            for line in server.stderr:
                said.append(line)
                found = re.search(r"listening on http://[^\s\"]+:(\d+)", line)
                if found:
                    port = int(found.group(1))
                    break
            if not port:
                raise Refused("".join(said).strip(), server.wait() or RUNTIME)
            drain = concurrent.futures.ThreadPoolExecutor(1)
            drain.submit(server.stderr.read)

            def post(tokens):
                c = http.client.HTTPConnection("127.0.0.1", port, timeout=3600)
                c.request("POST", "/v1/completions", json.dumps({"prompt": tokens, "max_tokens": n_out, "temperature": 0, "logprobs": 0}),
                          {"Content-Type": "application/json"})
                r = c.getresponse()
                body = r.read()
                if r.status != 200:
                    raise Refused(body.decode(errors="replace"), RUNTIME)
                return json.loads(body)["choices"][0]["logprobs"]["tokens"]
            out = []
            for name in names:
                if not p.args.quiet:
                    print(f"[{name}] {n} prompts", file=sys.stderr)
                with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
                    out.append(list(pool.map(post, prompts)))
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            c.request("GET", "/metrics")
            metrics = c.getresponse().read().decode()
            return out, metrics
        finally:
            server.terminate()
            server.wait()
    (sync, again), _ = serve("none", ["synchronous", "again"])
    (fast,), metrics = serve(ranges, ["asynchronous"])
    for name, other in (ASYNC, fast), ("synchronous again", again):
        first = 1
        while True:
            p.add(name, first, 100 * sum(a[:first] == b[:first] for a, b in zip(sync, other)) / n, answer if first == n_out else first)
            if first == n_out:
                break
            first = min(2 * first, n_out)
    recomputed = sum(float(v) for v in re.findall(r"(?m)^\S*softmax_recompute_layer_total\S* ([0-9.e+]+)$", metrics))
    p.note(f"asynchronous in {layers} of {len(c['layers'])} layers, where a step picks such a kernel; {recomputed:.0f} rows were computed again")
    p.note(f"{n} prompts of {n_in} tokens from your text, {n_out} generated; the paper compares with the official Llama implementation, ShareGPT prompts")


def rates_by_batch(p, name, batches, n_in, *words):
    """Generated tokens a second of n equal requests at once, prompts included, as far as the memory reaches."""
    tokens, out = p.length(n_in), p.length(GENERATED)
    batches = [n for n in batches if n <= 8] if p.args.quick else batches
    times, _ = p.times("nanoflow", batches[-1], tokens + out, 0, lambda most: [[(tokens, out)] * n for n in batches if n <= most], *words)
    for n, t in zip(batches, times):
        p.add_all(name, n, [n * out / s for s in t])


def flash_fig12(p):
    p.fit(4096 + GENERATED)
    for n, batches in [(1024, BATCHES), (4096, BATCHES[:-1])][:1 if p.args.quick else 2]:
        rates_by_batch(p, f"prompts of {n // 1024}K", batches, n)
    p.note(f"generated tokens per second of the whole load with its prompts, {p.length(GENERATED)} for each; other engines are not run")


def flash_fig11(p):
    p.fit(4096 + GENERATED)
    for n in [1024] if p.args.quick else [1024, 2048, 4096]:
        tokens, out = p.length(n), p.length(GENERATED)
        (times,), k = p.times("nanoflow", 8 if p.args.quick else MOST_SEQS, tokens + out, 0, lambda most: [[(tokens, out)] * most])
        p.add_all("weft", tokens, [k * out / s for s in times])
        p.note(f"prompts of {tokens} tokens: {k} sequences at once")
    p.note(f"at most {MOST_SEQS} sequences at once, halved until the memory holds them; other engines are not run, so rates are not over HuggingFace's")


def flash_table2(p):
    p.fit(1024 + GENERATED)
    rates_by_batch(p, "full", BATCHES, 1024)
    width = 256 if p.args.quick else 4096
    rows = p.weft("kernels", *p.where, "--shape", f"M=64,N={width},K={width}").splitlines()
    chosen = next((r.split()[1] for r in rows if r.rstrip().endswith("chosen")), None)  # for 64 tokens: libraries pad to as many
    if chosen and "WEFT_FORCE" not in os.environ:
        rates_by_batch(p, "without flat products", BATCHES[:-1], 1024, f"WEFT_FORCE=gemm={chosen}")
        p.note(f"without flat products: all products with the kernel for 64 tokens, {chosen}")
    else:
        p.note("without flat products: left out, for no kernel is chosen for 64 tokens, or WEFT_FORCE says which")
    context = p.length(1024 + GENERATED)
    i = p.info("-c", context, "--device", p.args.device or "auto")
    p.note(f"the memory optimization has no switch, for buffers are always reused: of {context} tokens {i['largest_batch']} sequences fit with it, "
           f"{i['largest_batch_without_reuse']} without")


def flash_fig19(p):
    memory, decoding = 80e9, 256  # bytes of the paper's device
    context = p.info()["model_context"]
    for step in [4096 << k for k in range(5)]:
        words = ["-c", context, "--max-num-seqs", decoding, "--max-num-batched-tokens", step]
        i = p.info(*words)
        left = memory - i["weight_bytes"] - i["activation_bytes"]
        if left < i["kv_bytes_per_token"] * context:
            p.note(f"steps of {step} tokens leave less than one context of 80 GB")
            continue
        i = p.info(*words, "--kv-memory", int(left))
        p.add("apart", step, i["kv_tokens"] / 1e3)
        p.add("shared", step, i["steady_kv_tokens"] / 1e3)
        if i["kv_tokens"] >= decoding * context:
            p.note(f"the {decoding} sequences never need more than their contexts, which fit whatever a step has")
    p.note(f"computed for 80 GB, as the paper's device has, without a device; shared: while {decoding} sequences decode")
    p.note("the paper computes a prompt in one step, so its longest context is also its largest step; weft cuts prompts, which leaves less to share")


TWO_MINUTES, KERNELS = "a minute or two", "a model, for its heads, and kernels with the asynchronous softmax"
AMD, MODELS_A100 = "an AMD GPU (flash-fig12 is the same of any device)", "Llama3 and Qwen1.5, 7B to 72B, on A100 80 GB"
TABLE2 = {"full": [100.2, 609.3, 1076.2, 1446.4, 1946.6, 2158], "without memory": [99.6, 592.47, 985.3, 1388, 1811.1],
          "without memory, flat products": [92.5, 582.6, 969.6, 1389.7, 1812.2]}
figure("flash-fig5", "distribution of attention logits", flash_fig5, needs="a model and a text (-f)", takes="as many tokens as the text", of="Llama2-7B",
       says="more than 99.99 % lie between -16.8 and 6.5 (Llama2-7B), 99 % between -0.25 and 17.6 (CodeLlama-7B), and -0.8 and 9.8 (Vicuna-7B).",
       x="attention logit", y="share of logits in a unit, %", log="y", points=series(WITHIN, (-16.8, 0.01), (6.5, 0.01)), takes_options="file")
figure("flash-fig7", "flat products of 8 rows by the width of a tile", flash_fig7, needs="a device", takes=TWO_MINUTES,
       of="an A100, one kernel with tiles of several widths",
       says="narrow products want many small tiles (N / B_N of 128 or 256), wide ones are bound by memory.", x="N, K = 4096", y="rate / of the best width",
       log="x", runs=5)
figure("flash-fig15", "the asynchronous softmax in prefill attention", flash_fig15, needs=KERNELS, takes=TWO_MINUTES, of="NVIDIA GPUs",
       says="1.52 times xformers and 1.19 times FlashAttention-2 on average.", x="tokens of a prompt", y="speedup", log="x", takes_options="peer")
figure("flash-fig16", "the asynchronous softmax in decode attention, 16 sequences", flash_fig16, needs=KERNELS, takes=TWO_MINUTES, of="NVIDIA GPUs",
       says="up to 2.02 times FlashDecoding with long caches.", x="keys of a sequence", y="speedup", log="x", takes_options="peer")
figure("flash-fig11", "throughput at the largest batch by prompt length", flash_fig11, takes="about 2 million tokens", runs=1, of=MODELS_A100,
       says="1.25 times vLLM and 1.46 times TensorRT-LLM on average, up to 68.88 times HuggingFace.", x="tokens of a prompt", y=GENERATED_S, log="x")
figure("flash-fig12", "throughput by batch", flash_fig12, takes="about 1.5 million tokens", runs=1, of=MODELS_A100,
       says="about that of TensorRT-LLM at the same batch, which runs out of memory first, and more than vLLM's.", x="sequences at once", y=GENERATED_S, log="xy")
figure("flash-fig13", "decode speedup on a Radeon RX 7900 XTX", None, needs=AMD, takes="up to 2.41 times HuggingFace in the paper",
       of="Llama2-7B, Llama2-13B and OPT-6.7B")
figure("flash-fig14", "decode speedup on an Instinct MI210", None, needs=AMD, takes="up to 4.35 times HuggingFace in the paper",
       of="Llama2-7B, Llama2-13B and OPT-6.7B")
figure("flash-fig17", "decode attention with windows of half the keys, 16 sequences", flash_fig17, needs="a model, for its heads", takes=TWO_MINUTES,
       of="NVIDIA GPUs, MoA's windows", says="1.98 times FlashDecoding on average; the point is that.", x="keys of a sequence", y="speedup", log="x",
       points=[(WINDOWED, 4096, 1.98)], takes_options="peer")
figure("flash-fig18", "flat products of 1 to 16 tokens over another library (--peer)", flash_fig18, needs="a device", takes=TWO_MINUTES,
       of="eight products on an A100 and an RTX 3090", says="1.07 times cuBLAS on average on the A100, 1.17 (up to 1.52) on the RTX 3090.", x="tokens (M)",
       y="rate / that of the other", log="x", takes_options="peer")
figure("flash-table2", "throughput by batch with and without flat products", flash_table2, takes="about 0.6 million tokens", runs=1,
       of="Qwen1.5-7B on an A100 80 GB",
       says="flat products gain up to 1.11 times, at small batches; memory lets twice the batch fit, which gains 1.11 times.", x="sequences at once",
       y=GENERATED_S, log="xy", points=[(name, n, v) for name, of in TABLE2.items() for n, v in zip(BATCHES, of)])
figure("flash-tokens", "prompts with the same greedy tokens as without the asynchronous softmax", flash_tokens, needs="a model and a text (-f)",
       takes="0.6 million tokens", of="a Llama model that it does not name",
       says="91.55 % of the prompts have the tokens of the official Llama implementation; 91.36 % with HuggingFace, 92.31 % with vLLM.",
       x="first tokens of the answer", y="prompts with the same, %", log="x", points=[(ASYNC, 64, 91.55)], takes_options="file")
figure("flash-fig19", "KV cache in 80 GB, apart from activations and sharing their memory", flash_fig19, takes="no time", of="Llama3-8B on an A100 80 GB",
       says="the longest context grows from 320k to 502k (Llama3-8B) and from 110k to 128k tokens (Qwen1.5-7B).", x="tokens of the largest step",
       y="thousand tokens of KV cache", log="xy", points=[("apart", 320000, 320), ("shared", 502000, 502)])


# ---- what comes out -----------------------------------------------------------------------------------------------------------


def x_name(f, x):
    return f.ticks[int(x)] if f.ticks and 0 <= x < len(f.ticks) else f"{x:.6g}"


def lines_of(p):
    """Rows by series: (series, x, paper_x, values, the paper's or None); last those that only the paper has."""
    paper, out = {(s, x): y for s, x, y in p.figure.points}, []
    for name in dict.fromkeys(s for s, _ in p.rows):
        for (s, x), (paper_x, values) in p.rows.items():
            if s == name:
                out.append((s, x, paper_x, values, paper.pop((s, paper_x), None)))
    return out + [(s, x, x, [], y) for (s, x), y in paper.items()]


def show(p):
    f, table = p.figure, [["", "" if p.figure.ticks else p.figure.x, "weft", "range", "paper"]]
    for s, x, paper_x, values, paper in lines_of(p):
        at = x_name(f, x) if x == paper_x else f"{x:.5g} for {paper_x:.5g}"
        table.append([s, at, f"{statistics.median(values):.4g}" if values else "", f"{min(values):.4g} to {max(values):.4g}" if len(values) > 1 else "",
                      "" if paper is None else f"{paper:.4g}"])
    widths = [max(len(row[k]) for row in table) for k in range(5)]
    table.insert(1, ["-" * widths[0]] + ["-" * (w - 1) + ":" for w in widths[1:]])
    print(f"{f.name}: {f.title}\ny: {f.y}\n")
    for row in table:
        print("| " + " | ".join(c.rjust(w) if k else c.ljust(w) for k, (c, w) in enumerate(zip(row, widths))) + " |")
    if f.says:
        print(f"\nThe paper: {f.says}")
    print(f"\nWhat differs:\n- the paper has {f.of}; this is {p.model}{' on ' + p.device if p.device else ''}")
    for note in p.notes:
        print(f"- {note}")


def write_rows(p, out, head):
    w = csv.writer(out, lineterminator="\n")
    if head:
        w.writerow(COLUMNS)
    today = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    for s, x, paper_x, values, paper in lines_of(p):
        numbers = [f"{v:.9g}" for v in (statistics.median(values), min(values), max(values))] if values else [""] * 3
        w.writerow([today, p.commit, p.device, p.driver, p.model, p.figure.name, s, x_name(p.figure, x), x_name(p.figure, paper_x), *numbers, len(values),
                    "" if paper is None else f"{paper:.6g}"])


def draw(p, path):
    """What was measured filled, what the paper has hollow. Returns whether there is a picture."""
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return False
    f, lines = p.figure, lines_of(p)
    names = list(dict.fromkeys(row[0] for row in lines))
    fig, ax = pyplot.subplots(figsize=(9, 5.5))
    measured = [n for n in names if any(row[0] == n and row[3] for row in lines)]
    for k, name in enumerate(names):
        colour, own = f"C{k % 10}", [row for row in lines if row[0] == name and row[3]]
        xs, ys = [row[1] for row in own], [statistics.median(row[3]) for row in own]
        if own and f.ticks:
            width = 0.8 / len(measured)
            ax.bar([x + (measured.index(name) + 0.5) * width - 0.4 for x in xs], ys, width, color=colour, label=name)
        elif own:
            order = sorted(range(len(xs)), key=lambda i: xs[i])
            low = [ys[i] - min(own[i][3]) for i in order]
            high = [max(own[i][3]) - ys[i] for i in order]
            ax.errorbar([xs[i] for i in order], [ys[i] for i in order], yerr=[low, high], marker="o", color=colour, label=name, capsize=2)
        theirs = [(row[2], row[4]) for row in lines if row[0] == name and row[4] is not None]
        if theirs:
            ax.plot([x for x, _ in theirs], [y for _, y in theirs], "o", markerfacecolor="none", color=colour, label=f"paper: {name}")
    if f.ticks:
        ax.set_xticks(range(len(f.ticks)), f.ticks, rotation=20 if len(f.ticks) > 6 else 0)
    if "x" in f.log:
        ax.set_xscale("log", base=2)
    if "y" in f.log:
        ax.set_yscale("log")
    if f.limit:
        ax.axhline(f.limit, linestyle="--", color="0.5", label=f"limit: {f.limit}")
    if f.diagonal:
        ax.plot([0, 1], [0, 1], ":", color="0.5", label="P = R: nothing gained")
    ax.set(xlabel=f.x, ylabel=f.y)
    ax.set_title(f"{f.name}: {f.title}\n{p.model}{', ' + p.device if p.device else ''}", fontsize=10)
    ax.legend(fontsize=8)
    ax.grid(alpha=0.3)
    fig.tight_layout()
    fig.savefig(path)
    pyplot.close(fig)
    return True


def find_weft():
    built = os.path.join(ROOT, "build", "src", "cli", "weft")
    return os.environ.get("WEFT") or (built if os.path.exists(built) else shutil.which("weft")) or built


def parse():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("figure", nargs="?", metavar="ID")
    a.add_argument("--list", action="store_true", help="list the figures with what each shows and needs")
    a.add_argument("-m", "--model", metavar="FILE")
    a.add_argument("--shape", metavar="NAME", help="a model of this shape without a file, with random weights: llama3-8b, ...")
    a.add_argument("--type", metavar="TYPE", help="storage format of --shape (default F16)")
    a.add_argument("--layers", type=int, metavar="N", help="layers of --shape")
    a.add_argument("-c", "--ctx-size", type=int, default=0, metavar="N", help="longest sequence (default: the model's context)")
    a.add_argument("--device", metavar="DEVICE")
    a.add_argument("--tier", metavar="TIER")
    a.add_argument("-t", "--threads", type=int, metavar="N")
    a.add_argument("-f", "--file", metavar="FILE", help="the text of flash-fig5 and flash-tokens")
    a.add_argument("-r", "--repetitions", type=int, default=0, metavar="N", help="runs of each load (default 3, and 1 where loads are long)")
    a.add_argument("--scale", type=float, default=1, metavar="X", help="lengths as a part of the paper's (default 1, or what the context allows)")
    a.add_argument("--quick", action="store_true", help="shortest lengths, few points, once each: to see that it works")
    a.add_argument("--max-num-seqs", type=int, metavar="N", help="nanoflow-fig7, -fig8 and -fig11: sequences at a time (default 64)")
    a.add_argument("--policy", choices=["request", "orca", "sarathi", "nanoflow"], help="nanoflow-fig7: this policy alone")
    a.add_argument("--dataset", action="append", metavar="FILE", help="nanoflow-table4: lengths of requests as CSV, named splitwise, lmsys or sharegpt")
    a.add_argument("--profile", metavar="PROFILE", help="nanoflow-fig5, -table3, -fig6 and -fig10: times of ops, as `weft tune --overlap` writes them")
    a.add_argument("--peer", metavar="FILE", help="results of another program to compare single ops with (bench/README.md)")
    a.add_argument("-o", "--output", metavar="FOLDER", help="write ID.csv and the picture ID.svg to this folder")
    a.add_argument("--results", metavar="FILE", help="append the rows to this CSV file")
    a.add_argument("--weft", default=find_weft(), metavar="PROGRAM", help="the program (default: $WEFT, the one in build/, or the one that is installed)")
    a.add_argument("-q", "--quiet", action="store_true", help="do not say which commands run")
    words = sys.argv[1:]
    more = words[words.index("--") + 1:] if "--" in words else []
    args = a.parse_args(words[:words.index("--")] if "--" in words else words)
    args.more = more
    return args


def check(args):
    if not args.figure:
        raise Refused("which figure? --list shows them")
    f = FIGURES.get(args.figure)
    if not f:
        near = difflib.get_close_matches(args.figure, FIGURES, 3)
        raise Refused(f"no figure '{args.figure}'{'; did you mean ' + ' or '.join(near) + '?' if near else ''}; --list shows them")
    if not f.run:
        raise Refused(f"{f.name} needs {f.needs}", DEVICE)
    for name in ("file", "max_num_seqs", "policy", "dataset", "profile", "peer"):
        if getattr(args, name) and name not in f.options:
            raise Refused(f"{f.name} has no use for --{name.replace('_', '-')}: leave it out")
    if args.shape and args.model:
        raise Refused("--shape and -m conflict: use one of them")
    if (args.type or args.layers) and not args.shape:
        raise Refused("--type and --layers are of a model without a file: add --shape NAME")
    if args.ctx_size and args.ctx_size < SHORTEST:
        raise Refused(f"-c {args.ctx_size} is too short: want at least {SHORTEST}, or 0 for the model's context")
    for path in [args.output, args.results and os.path.dirname(os.path.abspath(args.results))]:  # before minutes of measuring, not after
        if path and not os.path.isdir(path):
            raise Refused(f"{path} is not a folder", RUNTIME)
    return f


def main():
    args = parse()
    if args.list:
        for f in FIGURES.values():
            print(f"{f.name:<16} {f.title}\n{'':<16} needs {f.needs}; {f.takes}")
        return 0
    f = check(args)
    with tempfile.TemporaryDirectory(prefix="weft-paper-") as folder:
        p = Run(f, args, folder)
        f.run(p)
    if not p.rows:
        raise Refused("all values were lost in what the runs vary: use a quieter machine, or more runs (-r)", RUNTIME)
    show(p)
    if args.results:
        there = os.path.exists(args.results) and os.path.getsize(args.results) > 0
        with open(args.results, "a", newline="") as out:
            write_rows(p, out, not there)
    if args.output:
        path = os.path.join(args.output, f.name)
        with open(path + ".csv", "w", newline="") as out:
            write_rows(p, out, True)
        drawn = draw(p, path + ".svg")
        print(f"wrote {path}.csv{f' and {path}.svg' if drawn else '; there is no picture, for matplotlib is not installed'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Refused as e:
        print(f"paper.py: {e}", file=sys.stderr)
        sys.exit(e.code)
    except KeyboardInterrupt:
        print("paper.py: stopped: nothing is printed or written of a figure that is not whole", file=sys.stderr)
        sys.exit(130)
