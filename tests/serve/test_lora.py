"""LoRA adapters give what the model gives with them merged: alone, in batches with others, whatever is in the prefix cache, and loaded while
it serves. What is no adapter of the model is refused, and harms nobody."""
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "model"))
import numpy as np  # noqa: E402

import lora  # noqa: E402
import serve  # noqa: E402
from gguf_write import TYPES, quantize  # noqa: E402
from serve import Server, at_once, cli  # noqa: E402

DATA = os.path.join(cli.ROOT, "tests", "model", "data")
ALL = r"_proj\.weight"
HEADS = (4, 2)
PROMPT = [256, *(33 + i * 7 % 90 for i in range(39))]  # two full pages of the prefix cache
ARGS = ["-c", 256, "--calibration", "none"]


class World:
    """Folders of a model, of adapters a and b, and of the model with each merged."""

    def __init__(self, name, pattern=ALL, tensors=None, others={}):
        self.folder = tempfile.TemporaryDirectory()
        self.source = os.path.join(DATA, name)
        self.tensors = lora.read(self.source) if tensors is None else tensors
        self.pairs = {"a": lora.make(self.tensors, pattern, 4, 1), "b": lora.make(self.tensors, pattern, 16, 2)}
        lora.write(self.source, self.tensors, self.path("base"), others)
        for which, pairs in self.pairs.items():
            lora.write(self.source, lora.merge(self.tensors, pairs, 2), self.path("merged-" + which))
        self.a = lora.write_peft(self.path("a"), self.pairs["a"], 8)
        self.b = lora.write_peft(self.path("b"), self.pairs["b"], 8, kind="F16", use_rslora=True)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def server(self, *args, model="base", device=serve.ON_CPU, **kwargs):
        rounding = serve.ONE_ROUNDING if device is serve.ON_CPU else []
        return Server("-m", self.path(model), *ARGS, *args, *rounding, device=device, template=None, **kwargs)

    def convert(self, kind):
        subprocess.run(cli.argv("convert", "-q", "-m", self.path("base"), "-o", self.path("base.gguf"), "--type", kind), check=True)
        return "base.gguf"

    def want(self, ask=None, **kwargs):
        """The answers of the model itself, and with each adapter merged."""
        found = {}
        for which in ("", "a", "b"):
            with ending(self.server(model="merged-" + which if which else "base", **kwargs)) as s:
                found[which] = (ask or answer)(s)
        return found

    def end(self):
        self.folder.cleanup()


@contextlib.contextmanager
def ending(s):
    try:
        yield s
    finally:
        s.end()


def answer(s, model="", prompt=PROMPT, **fields):
    """Tokens and their logarithms of probability."""
    r = s.post("/v1/completions", {"prompt": prompt, "max_tokens": 24, "temperature": 0, "logprobs": 1, "ignore_eos": True,
                                   **({"model": model} if model else {}), **fields})
    assert r.status == 200, r.body
    found = r.json["choices"][0]["logprobs"]
    return found["tokens"], np.array([p for p in found["token_logprobs"] if p is not None])


def cached(s, model):
    r = s.complete(prompt=PROMPT, **({"model": model} if model else {}))
    return r.json["usage"]["prompt_tokens_details"]["cached_tokens"]


class TestCase(serve.TestCase):
    @classmethod
    def setUpClass(cls):
        pass  # each has servers of its own

    tearDownClass = setUpClass

    def same(self, got, want, within=0.01):
        self.assertEqual(got[0], want[0])
        self.assertLess(np.abs(got[1] - want[1]).max(), within)

    def mixed(self, s, want, times=3, exact=False):
        """One after another, then all at the same time. exact: to the bit as alone."""
        alone = {which: answer(s, which) for which in want}
        for which in want:
            self.same(alone[which], want[which])
        names = list(want) * times
        at_once(len(names), lambda i: self.same(answer(s, names[i]), alone[names[i]], 1e-9 if exact else 0.01))

    def of_model(self, name, pattern, *args, **kwargs):
        with ending(World(name, pattern)) as world:
            with ending(world.server("--lora", f"a={world.a},b={world.b}", *args, **kwargs)) as s:
                self.mixed(s, world.want(**kwargs), exact="--deterministic" in args)


class Models(TestCase):
    def test_one_matrix_for_several(self):
        """Phi 3 has one for q, k and v, and one for gate and up."""
        self.of_model("phi3", ALL)

    def test_nano_batches(self):
        self.of_model("llama", r"(q|v|down)_proj\.weight", "--nano-batches", 2)

    def test_plan(self):
        """Made without adapters, for layers of different products and different matrices in them."""
        device = serve.ON_CPU if os.environ.get("WEFT_HAS_OPENCL") == "0" else ("--device", "opencl")
        tensors, v = lora.read(os.path.join(DATA, "llama")), "model.layers.1.self_attn.v_proj.weight"
        tensors[v] = tensors[v].astype(np.float16).astype(np.float32)
        world = World("llama", r"(0\.self_attn\.[qv]|1\.self_attn\.[qkv]|0\.mlp\.up|1\.mlp\.gate|down)_proj\.weight", tensors, {v: "F16"})
        with tempfile.NamedTemporaryFile(suffix=".plan") as plan, ending(world):
            world.server("--nano-batches", 2, device=device, env={"WEFT_DUMP_PLAN": plan.name}).end()
            with ending(world.server("--lora", f"a={world.a},b={world.b}", "--plan", plan.name, device=device)) as s:
                self.mixed(s, world.want(device=device))

    def test_experts(self):
        """Beside those of experts, whose own matrices no adapter may change."""
        self.of_model("qwen2moe", r"(self_attn|shared_expert\.).*_proj\.weight", "--deterministic")

    def test_opencl(self):
        if os.environ.get("WEFT_HAS_OPENCL") == "0":
            self.skipTest("built without OpenCL")
        for pattern in (ALL, r"(q|v|up)_proj\.weight"):  # of matrices that are one here
            self.of_model("llama", pattern, device=("--device", "opencl"), env={"WEFT_CHECK_CALLS": "1", "WEFT_POISON": "1"})

    def test_interleaved_and_quantised(self):
        """A GGUF file has rows of q and k in another order than PEFT."""
        q8 = {}
        for name, x in lora.read(os.path.join(DATA, "llama")).items():
            if x.ndim == 2:
                blocks = np.frombuffer(quantize("Q8_0", x).tobytes(), np.uint8).reshape(-1, TYPES["Q8_0"][2])
                x = (blocks[:, 2:].view(np.int8) * blocks[:, :2].copy().view(np.float16).astype(np.float32)).reshape(x.shape)
            q8[name] = x
        world = World("llama", tensors=q8)
        self.addCleanup(world.end)
        gguf = lora.write_gguf(world.path("b.gguf"), world.pairs["b"], 32, heads=HEADS)

        def ask(s, which=""):
            return answer(s, which, echo=True, max_tokens=1)

        want = world.want(ask)
        for kind, within in (("F32", 0.01), ("Q8_0", 0.3)):
            with ending(world.server("--lora", f"a={world.a},b={gguf}", model=world.convert(kind))) as s:
                for which in want:
                    tokens, logs = ask(s, which)
                    n = len(PROMPT)
                    self.assertEqual(tokens[:n], want[which][0][:n])
                    self.assertLess(np.abs(logs[:n - 1] - want[which][1][:n - 1]).max(), within, (kind, which))
            os.remove(world.path("base.gguf"))


class Adapters(TestCase):
    """One server, which loads more."""

    @classmethod
    def setUpClass(cls):
        cls.world = World("llama")
        cls.want = cls.world.want()
        cls.s = cls.world.server("--lora", f"a={cls.world.a}", "--lora-modules", f"b={cls.world.b}", "--allow", "lora",
                                 "--max-lora-rank", 64)

    @classmethod
    def tearDownClass(cls):
        super(TestCase, cls).tearDownClass()
        cls.world.end()

    def load(self, name, path):
        return self.s.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": path})

    def unload(self, name):
        return self.s.post("/v1/unload_lora_adapter", {"lora_name": name})

    def names(self):
        return {m["id"]: m.get("parent") for m in self.s.get("/v1/models").json["data"]}

    def test_named(self):
        self.assertEqual(self.names(), {"base": None, "a": "base", "b": "base"})
        self.assertEqual(self.s.get("/v1/models/a").json["parent"], "base")
        r = self.s.complete(model="a", prompt=PROMPT)
        self.assertEqual((r.status, r.json["model"]), (200, "a"))
        self.same(answer(self.s, lora="b"), self.want["b"])
        self.same(answer(self.s, "base"), self.want[""])
        self.same(answer(self.s, "a:latest", lora="a"), self.want["a"])
        for nothing in ([], "", False, {}, None):
            self.assertEqual(self.s.complete(lora=nothing).status, 200)
        self.refused(self.s.complete(model="a", lora="b"), 400, "lora")
        self.refused(self.s.complete(model="c"), 404, "model", "model_not_found")
        self.refused(self.s.complete(lora="c"), 404, "lora", "model_not_found")
        self.refused(self.s.complete(lora=[{"id": 0, "scale": 1}]), 400, "lora")

    def test_defaults(self):
        """An alpha that is not given is 8."""
        self.assertEqual(self.load("plain", lora.write_peft(self.world.path("plain"), self.world.pairs["a"], None)).status, 200)
        self.same(answer(self.s, "plain"), self.want["a"])
        self.assertEqual(self.unload("plain:latest").status, 200)

    def test_preempted(self):
        long = {"max_tokens": 120}
        want = self.world.want(lambda s: answer(s, **long))
        little = self.world.server("--lora", f"a={self.world.a},b={self.world.b}", "--kv-memory", "80K", "--max-num-seqs", 8,
                                   "--max-num-batched-tokens", 32, "--no-prefix-cache")
        with ending(little) as s:
            for _ in range(4):
                s.complete(prompt=PROMPT, n=8, max_tokens=1)  # so that all seem to be short
            names = list(want) * 4
            at_once(len(names), lambda i: self.same(answer(s, names[i], **long), want[names[i]]))
            self.assertGreater(s.metrics()["num_preemptions_total"], 0)

    def test_prefix_cache(self):
        """Equal prompts of different adapters share no page."""
        alone = self.world.server("--lora", f"a={self.world.a},b={self.world.b}", "--allow", "lora", "--kv-host", "16M", "--kv-memory", "72K",
                                  env={"WEFT_KV_STORE_ALWAYS": "1", "WEFT_KV_LOAD_ALWAYS": "1"})
        self.addCleanup(alone.end)
        self.assertEqual([cached(alone, m) for m in ("", "a", "b", "", "a", "b")], [0, 0, 0, 32, 32, 32])
        for i in range(3):
            for which in self.want:
                alone.complete(prompt=[100 + i, *PROMPT * 5])  # so that pages of others have to go to the host
                self.same(answer(alone, which), self.want[which])
        self.assertEqual(alone.post("/v1/unload_lora_adapter", {"lora_name": "a"}).status, 200)
        self.assertEqual(alone.post("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": self.world.b}).status, 200)
        self.same(answer(alone, "a"), self.want["b"])

    def test_loaded_later(self):
        """While others run, and again and again in the same places."""
        stop, failures = threading.Event(), []

        def busy():
            while not stop.is_set() and not failures:
                try:
                    self.same(answer(self.s, "a"), self.want["a"])
                except AssertionError as e:
                    failures.append(e)

        other = threading.Thread(target=busy)
        other.start()
        for i in range(6):
            names = [f"n{i}-{k}" for k in range(2)]
            for name, path in zip(names, (self.world.a, self.world.b)):
                self.assertEqual(self.load(name, path).status, 200)
            for name, which in zip(names, "ab"):
                self.same(answer(self.s, name), self.want[which])
                self.assertEqual(self.unload(name).status, 200)
        stop.set()
        other.join()
        self.assertEqual(failures, [])
        self.refused(self.s.complete(model="n0-0"), 404)
        self.refused(self.unload("n0-0"), 404)

    def test_in_use(self):
        self.assertEqual(self.load("used", self.world.a).status, 200)
        c, r = self.s.open_stream(model="used", prompt=PROMPT, max_tokens=200, ignore_eos=True)
        r.read(20)
        self.refused(self.unload("used"), 409)
        r.read()
        c.close()
        self.assertEqual(self.unload("used").status, 200)

    def test_full(self):
        names = [f"full{i}" for i in range(8)]
        for name in names:
            self.assertEqual(self.load(name, self.world.a).status, 200)
        self.refused(self.load("more", self.world.a), 400)
        for name in names:
            self.assertEqual(self.unload(name).status, 200)

    def test_bad(self):
        pairs, path = self.world.pairs["a"], self.world.path
        first = next(iter(pairs))
        a, b = pairs[first]
        huge = {first: (np.zeros((5000, a.shape[1]), np.float32), np.zeros((len(b), 5000), np.float32))}
        bad = {
            "nowhere": (path("nothing"), "nothing"),
            "model": (path("base"), "adapter_config"),
            "dora": (lora.write_peft(path("dora"), pairs, 8, use_dora=True), "use_dora"),
            "bias": (lora.write_peft(path("bias"), pairs, 8, bias="all"), "bias"),
            "saved": (lora.write_peft(path("saved"), pairs, 8, modules_to_save=["lm_head"]), "modules_to_save"),
            "fan": (lora.write_peft(path("fan"), pairs, 8, fan_in_fan_out=True), "fan_in_fan_out"),
            "r0": (lora.write_peft(path("r0"), pairs, 8, r=0), "rank 'r' is 0"),
            "r9": (lora.write_peft(path("r9"), pairs, 8, r=9), "adapter_config.json has 9"),
            "embeddings": (lora.write_peft(path("embeddings"), {"model.embed_tokens": pairs[first]}, 8), "token_embd"),
            "head": (lora.write_peft(path("head"), {"lm_head": (a, np.zeros((264, 4), np.float32))}, 8), "output"),
            "unknown": (lora.write_peft(path("unknown"), {"model.layers.0.mlp.other": pairs[first]}, 8), "has no place"),
            "layer": (lora.write_peft(path("layer"), {first.replace("layers.0", "layers.7"): pairs[first]}, 8), "does not have"),
            "shape": (lora.write_peft(path("shape"), {first: (a[:, 1:].copy(), b)}, 8), "are for a matrix"),
            "rows": (lora.write_peft(path("rows"), {first: (a, b[1:].copy())}, 8), "are for a matrix"),
            "ranks": (lora.write_peft(path("ranks"), {first: (a, b[:, 1:].copy())}, 8), "of rank"),
            "big": (lora.write_peft(path("big"), {n: (np.tile(x, (30, 1)), np.tile(y, 30)) for n, (x, y) in pairs.items()}, 8), "its rank is 120"),
            "nan": (lora.write_peft(path("nan"), {first: (a * np.nan, b)}, 8), "not finite"),
            "large": (lora.write_peft(path("large"), {first: (a, b + 60000)}, 80), "too large"),
            "huge": (lora.write_gguf(path("huge.gguf"), huge, 8), "want 1 to 4096"),
            "alpha": (lora.write_gguf(path("alpha.gguf"), pairs, float("nan")), "adapter.lora.alpha"),
            "arch": (lora.write_gguf(path("arch.gguf"), pairs, 8, arch="qwen2"), "architecture"),
            "kind": (lora.write_gguf(path("kind.gguf"), pairs, 8, meta={"adapter.type": "ia3"}), "ia3"),
            "no type": (lora.write_gguf(path("type.gguf"), pairs, 8, meta={"general.type": "model"}), "no adapter"),
            "no alpha": (lora.write_gguf(path("none.gguf"), pairs, 8, meta={"adapter.lora.alpha": None}), "alpha"),
        }
        for name, size in (("a/adapter_model.safetensors", 700), ("a/adapter_config.json", 40), ("alpha.gguf", 3000)):
            cut = path("cut-" + name.split("/")[0])
            source = path(name)
            if "/" in name:
                os.makedirs(cut, exist_ok=True)
                for file in os.listdir(path("a")):
                    with open(os.path.join(path("a"), file), "rb") as f, open(os.path.join(cut, file), "wb") as out:
                        out.write(f.read(size if source.endswith(file) else -1))
            else:
                with open(source, "rb") as f, open(cut, "wb") as out:
                    out.write(f.read(size))
            bad["cut " + name] = cut, ""
        before = self.names()
        for name, (where, says) in bad.items():
            e = self.refused(self.load("bad-" + name.replace(" ", "-"), where), 400, "lora_path")
            self.assertIn("is no adapter that this model can use; the server's log says why", e["message"])
            self.s.line(f"adapter bad-{re.escape(name.replace(' ', '-'))} is not loaded: .*{re.escape(says)}")
        for name in ("", "a", "base", 'x"', "x y", "x\n", "a" * 200):
            self.refused(self.load(name, self.world.a), 400)
        self.refused(self.s.post("/v1/load_lora_adapter", {"lora_name": 5}), 400)
        self.assertEqual(self.names(), before)
        self.mixed(self.s, self.want, times=1)


class Alone(TestCase):
    def test_not_allowed(self):
        world = World("llama")
        self.addCleanup(world.end)
        s = world.server("--lora", world.a + "/")
        self.addCleanup(s.end)
        self.assertEqual([m["id"] for m in s.get("/v1/models").json["data"]], ["base", "a"])
        self.refused(s.post("/v1/load_lora_adapter", {"lora_name": "b", "lora_path": world.b}), 403)
        self.refused(s.post("/v1/unload_lora_adapter", {"lora_name": "a"}), 403)

    def test_name_of_the_model(self):
        world = World("llama")
        self.addCleanup(world.end)
        out = subprocess.run(Server.command("-m", world.path("base"), *ARGS, "--lora", f"base={world.a}", template=None),
                             stderr=subprocess.PIPE, timeout=60)
        self.assertNotEqual(out.returncode, cli.OK)
        self.assertIn(b"adapter 'base' has the name of the model: give it another", out.stderr)

    def test_run(self):
        world = World("llama")
        self.addCleanup(world.end)

        def run(*args):
            out = subprocess.run(cli.argv("run", "-q", "--device", "cpu", "--raw", "--temp", "0", "-p", "One day", "-n", "20", *args),
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            return out.returncode, out.stdout

        self.assertEqual(run("-m", world.path("base"), "--lora", world.a), run("-m", world.path("merged-a")))
        self.assertNotEqual(run("-m", world.path("base"), "--lora", world.a), run("-m", world.path("base")))
        self.assertEqual(run("-m", "/nowhere", "--lora", f"x={world.a},y={world.b}")[0], cli.USAGE)
        self.assertNotEqual(run("-m", world.path("base"), "--lora", "x=/nowhere")[0], cli.OK)


if __name__ == "__main__":
    serve.main()
