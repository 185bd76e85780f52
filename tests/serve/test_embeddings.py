"""Embeddings: by the official clients, against what sentence-transformers has for the same texts (tests/model/embeddings)."""
import base64
import json
import math
import os
import shutil
import struct

import serve
import test_fields
from serve import Server, cli
from test_models import Folder

MODELS = os.path.join(cli.ROOT, "tests", "model", "embeddings")


def rows_of(name):
    with open(os.path.join(MODELS, name, "expected.json"), encoding="utf-8") as f:
        return json.load(f)["texts"]


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b))
    return dot / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5


def length(a):
    return sum(x * x for x in a) ** 0.5


class Embeddings(serve.TestCase):
    MODEL = "qwen3"

    @classmethod
    def setUpClass(cls):
        cls.s = Server("-m", os.path.join(MODELS, cls.MODEL), template=None)
        cls.rows = rows_of(cls.MODEL)
        cls.texts = [r["text"] for r in cls.rows]

    def near(self, got, want, where=1e-3):
        self.assertEqual(len(got), len(want))
        self.assertGreater(cosine(got, want), 1 - where)

    def ask(self, **fields):
        r = self.s.post("/v1/embeddings", {"input": self.texts, **fields})
        self.assertEqual(r.status, 200, r.body)
        return r.json

    def test_openai(self):
        try:
            import openai
        except ImportError:
            self.skipTest("the Python package openai is not installed")
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.s.port}/v1", api_key="none")
        name = client.models.list().data[0].id
        for more in ({}, {"encoding_format": "float"}):  # what it asks for by itself is base64
            r = client.embeddings.create(model=name, input=self.texts, **more)
            self.assertEqual((r.object, r.model, [d.index for d in r.data]), ("list", name, list(range(len(self.texts)))))
            self.assertEqual(r.usage.prompt_tokens, sum(len(row["ids"]) for row in self.rows))
            self.assertEqual(r.usage.total_tokens, r.usage.prompt_tokens)
            for d, row in zip(r.data, self.rows):
                self.near(d.embedding, row["embedding"])
                self.assertAlmostEqual(length(d.embedding), 1, places=5)
        (one,) = client.embeddings.create(model=name, input=self.texts[0], dimensions=5).data
        self.near(one.embedding, self.rows[0]["embedding"][:5])
        self.assertAlmostEqual(length(one.embedding), 1, places=5)
        with self.assertRaises(openai.BadRequestError) as e:
            client.chat.completions.create(model=name, messages=[{"role": "user", "content": "a"}])
        self.assertIn("embeddings", str(e.exception))

    def test_inputs(self):
        """A text, token ids, and lists of either; floats as bytes."""
        ids = [r["ids"] for r in self.rows]
        for given, n in ((self.texts[0], 1), (ids[0], 1), (ids, len(ids)), ([ids[0], self.texts[1]], 2)):
            data = self.ask(input=given)["data"]
            self.assertEqual(len(data), n)
            for d, row in zip(data, self.rows):
                self.near(d["embedding"], row["embedding"])
        floats, coded = (self.ask(encoding_format=f)["data"] for f in ("float", "base64"))
        for a, b in zip(floats, coded):
            raw = base64.b64decode(b["embedding"], validate=True)
            for x, y in zip(struct.unpack(f"<{len(raw) // 4}f", raw), a["embedding"]):
                self.assertAlmostEqual(x, y, places=6)

    def test_many(self):
        """More than a server of texts would let wait."""
        data = self.ask(input=[self.texts[i % len(self.texts)] for i in range(700)])["data"]
        for i, d in enumerate(data):
            self.near(d["embedding"], self.rows[i % len(self.rows)]["embedding"])
        self.assertIn("embeddings_total", self.s.get("/metrics").body.decode())

    def test_ollama(self):
        try:
            import ollama
        except ImportError:
            self.skipTest("the Python package ollama is not installed")
        client = ollama.Client(host=f"http://127.0.0.1:{self.s.port}")
        name = client.list().models[0].model
        for given, n in ((self.texts, len(self.texts)), (self.texts[0], 1)):
            r = client.embed(model=name, input=given)
            self.assertEqual((len(r.embeddings), r.model), (n, name))
            for e, row in zip(r.embeddings, self.rows):
                self.near(e, row["embedding"])
        self.assertEqual(len(client.embed(model=name, input="a", dimensions=3).embeddings[0]), 3)
        older = client.embeddings(model=name, prompt=self.texts[0]).embedding  # as the model gives it
        self.near(older, self.rows[0]["embedding"])
        self.assertNotAlmostEqual(length(older), 1, places=2)
        self.assertEqual(client.show(name).capabilities, ["embedding"])

    def test_too_long(self):
        context = self.s.get("/v1/models").json["data"][0]["max_model_len"]
        for given in (["a " * context], [self.rows[0]["ids"] * context]):
            r = self.s.post("/v1/embeddings", {"input": given})
            self.assertEqual((r.status, r.error["code"]), (400, "context_length_exceeded"))
            self.assertIn(str(context), r.error["message"])
        end = self.rows[0]["ids"][-1]
        for cut, n in ((-1, context), (5, 5)):
            got = self.ask(input="a" * 3 * context, truncate_prompt_tokens=cut)
            self.assertEqual(got["usage"]["prompt_tokens"], n)
            whole = self.s.post("/tokenize", {"prompt": "a" * 3 * context}).json["tokens"]
            self.near(got["data"][0]["embedding"], self.ask(input=whole[: n - 1] + [end])["data"][0]["embedding"], 1e-5)
        self.assertEqual(self.s.post("/api/embed", {"input": "a" * 3 * context}).json["prompt_eval_count"], context)
        self.assertEqual(self.s.post("/api/embed", {"input": "a" * 3 * context, "truncate": False}).status, 400)

    def test_fields(self):
        test_fields.check_rows(self, {"EMBED": ("/v1/embeddings", {"input": "a"}, lambda r: r["data"]), "OLLAMA_EMBED": ("/api/embed", {"input": "a"}, lambda r: r["embeddings"])},
                               {"POOLED": ("EMBED", "OLLAMA_EMBED")})

    def test_refused(self):
        for path, fields, word in (
                ("/v1/score", {"text_1": "a", "text_2": "b"}, "no head"), ("/v1/rerank", {"query": "a", "documents": ["b"]}, "no head"), ("/v1/embeddings", {}, "input"), ("/v1/embeddings", {"input": []}, "input"), ("/v1/embeddings", {"input": 5}, "input"),
                ("/v1/embeddings", {"input": ["a", 5]}, "input"), ("/v1/embeddings", {"input": [1 << 40]}, "input"), ("/v1/embeddings", {"input": [[]]}, "input"),
                ("/v1/embeddings", {"input": "a", "encoding_format": "int8"}, "encoding_format"), ("/v1/embeddings", {"input": "a", "dimensions": 0}, "dimensions"),
                ("/v1/embeddings", {"input": "a", "dimensions": 1e9}, "dimensions"), ("/v1/embeddings", {"input": "a", "dimensions": "x"}, "dimensions"),
                ("/v1/embeddings", {"input": "a", "temperature": 1}, "temperature"), ("/v1/embeddings", {"input": "a", "stream": True}, "stream"),
                ("/v1/embeddings", {"messages": []}, "input"), ("/v1/embeddings", {"input": "a", "frob": 1}, "frob"),
                ("/v1/embeddings", {"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"), ("/v1/embeddings", {"input": ["a"] * 5000}, "at most"),
                ("/api/embed", {"input": "a", "truncate": 1}, "truncate"), ("/api/embeddings", {"prompt": ["a"]}, "prompt"), ("/api/embed", {"input": 5}, "input"),
                ("/v1/completions", {"prompt": "a"}, "embeddings"), ("/api/chat", {"messages": [{"role": "user", "content": "a"}]}, "embeddings"), ("/infill", {}, "embeddings")):
            with self.subTest(f"{path} {fields}"):
                r = self.s.post(path, fields)
                self.assertEqual(r.status, 400, r.body)
                self.assertIn(word, r.error if path.startswith("/api") else r.error["message"])
        self.assertEqual(self.s.post("/v1/embeddings", {"input": "a", "model": "other"}).status, 404)


class Encoder(serve.TestCase):
    """A prompt is computed whole, beside others."""

    def test_steps(self):
        rows = rows_of("bert")
        s = Server("-m", os.path.join(MODELS, "bert"), "--max-num-batched-tokens", "64", template=None)
        context = s.get("/v1/models").json["data"][0]["max_model_len"]
        self.assertEqual(context, 64)
        texts = [rows[i % len(rows)] for i in range(60)]
        data = s.post("/v1/embeddings", {"input": [t["text"] for t in texts]}).json["data"]
        for d, t in zip(data, texts):
            self.assertGreater(cosine(d["embedding"], t["embedding"]), 1 - 1e-3)
        self.assertEqual(s.post("/v1/embeddings", {"input": "a " * 70}).status, 400)
        self.assertEqual(s.post("/v1/embeddings", {"input": "a " * 70, "truncate_prompt_tokens": -1}).status, 200)
        self.assertIn("no text", s.post("/v1/chat/completions", {"messages": []}).error["message"])
        s.end()


class Scores(serve.TestCase):
    MODEL = "xlm-roberta-rank"

    @classmethod
    def setUpClass(cls):
        cls.s = Server("-m", os.path.join(MODELS, cls.MODEL), template=None)
        with open(os.path.join(MODELS, cls.MODEL, "expected.json"), encoding="utf-8") as f:
            cls.pairs = json.load(f)["pairs"]
        cls.want = [p["scores"][0] for p in cls.pairs]

    def near(self, got, want):
        self.assertEqual(len(got), len(want))
        for x, y in zip(got, want):
            self.assertAlmostEqual(x, y, delta=0.01)

    def test_score(self):
        first, second = ([p["texts"][i] for p in self.pairs] for i in (0, 1))
        for activation, change in ((False, lambda x: x), (None, lambda x: 1 / (1 + math.exp(-x)))):
            r = self.s.post("/v1/score", {"text_1": first, "text_2": second, "use_activation": activation})
            self.assertEqual(r.status, 200, r.body)
            self.assertEqual([(d["index"], d["object"]) for d in r.json["data"]], [(i, "score") for i in range(len(first))])
            self.near([d["score"] for d in r.json["data"]], [change(x) for x in self.want])
            self.assertEqual(r.json["usage"]["prompt_tokens"], sum(len(p["ids"]) for p in self.pairs))
        r = self.s.post("/v1/score", {"text_1": first[0], "text_2": second[:2], "use_activation": False})
        self.near([d["score"] for d in r.json["data"]], self.want[:2])

    def test_rerank(self):
        query, texts = self.pairs[0]["texts"][0], [p["texts"][1] for p in self.pairs[:2]]
        documents = [{"text": texts[0]}, texts[1]] * 2
        for path in ("/v1/rerank", "/rerank"):
            r = self.s.post(path, {"query": query, "documents": documents, "return_documents": True})
            self.assertEqual(r.status, 200, r.body)
            results = r.json["results"]
            order = sorted(range(4), key=lambda i: (-self.want[i % 2], i))
            self.assertEqual([x["index"] for x in results], order)
            self.assertEqual([x["document"] for x in results], [{"text": texts[i % 2]} for i in order])
            self.near([x["relevance_score"] for x in results], [1 / (1 + math.exp(-self.want[i % 2])) for i in order])
        (best,) = self.s.post("/rerank", {"query": query, "documents": documents, "top_n": 1}).json["results"]
        self.assertEqual((best["index"], set(best)), (order[0], {"index", "relevance_score"}))

    def test_fields(self):
        test_fields.check_rows(self, {"SCORE": ("/v1/score", {"text_1": "a", "text_2": "b"}, lambda r: r["data"]),
                                      "RERANK": ("/v1/rerank", {"query": "a", "documents": ["b"]}, lambda r: r["results"])}, {"POOLED": ("SCORE", "RERANK")})

    def test_refused(self):
        for path, fields, word in (
                ("/v1/score", {}, "text_1"), ("/v1/score", {"text_1": "a"}, "text_2"), ("/v1/score", {"text_1": ["a"] * 2, "text_2": ["b"] * 3}, "as many"),
                ("/v1/score", {"text_1": [], "text_2": "b"}, "empty"), ("/v1/score", {"text_1": 5, "text_2": "b"}, "text_1"), ("/v1/score", {"text_1": "a b " * 999, "text_2": "b"}, "context"),
                ("/v1/score", {"text_1": "a", "text_2": "b a " * 999}, "context"), ("/v1/rerank", {"query": "b", "documents": ["a", "b a " * 999]}, "context"), ("/v1/score", {"text_1": "a", "text_2": "b", "use_activation": 1}, "use_activation"),
                ("/v1/rerank", {"query": "a"}, "documents"), ("/v1/rerank", {"documents": ["a"]}, "query"), ("/v1/rerank", {"query": "a", "documents": []}, "documents"),
                ("/v1/rerank", {"query": "a", "documents": [{"text": 5}]}, "documents"), ("/v1/rerank", {"query": "a", "documents": ["b"], "top_n": 0}, "top_n"),
                ("/v1/rerank", {"query": "a", "documents": ["b"] * 5000}, "at most"), ("/v1/embeddings", {"input": "a"}, "/v1/score"), ("/v1/completions", {"prompt": "a"}, "/v1/score")):
            with self.subTest(f"{path} {list(fields)}"):
                r = self.s.post(path, fields)
                self.assertEqual(r.status, 400, r.body)
                self.assertIn(word, r.error["message"])

    def test_one_text_beside_many(self):
        """Counts with each of them."""
        r = self.s.post("/v1/score", {"text_1": "a " * 10000, "text_2": ["b"] * 500})
        self.assertEqual(r.status, 413, r.body)
        self.assertIn("10000500 bytes", r.error["message"])


class Types(Scores):
    """Tokens of the second text are of another type."""
    MODEL = "bert-rank"


class AnyModel(serve.TestCase):
    """Of a model that generates text."""

    def test_pooling(self):
        plain = Server()
        for path in ("/v1/embeddings", "/api/embed", "/api/embeddings"):
            r = plain.post(path, {"input": "a", "prompt": "a"} if "v1" not in path else {"input": "a"})
            self.assertEqual(r.status, 400)
            self.assertIn("WEFT_POOLING", str(r.error))
        plain.end()
        texts = ["One day", "A dog and a cat " * 30]
        rows = {}
        for pooling in ("last", "mean", "cls"):
            s = Server("--max-num-batched-tokens", "32", env={"WEFT_POOLING": pooling})  # prompts come in several steps
            ids = [s.post("/tokenize", {"prompt": t}).json["tokens"] for t in texts]
            rows[pooling] = [[d["embedding"] for d in s.post("/v1/embeddings", {"input": given}).json["data"]] for given in (texts, [i[:n] for i in ids for n in (1, 2)])]
            s.end()
        first, second = rows["cls"][1][0], rows["last"][1][1]
        both = [x + y for x, y in zip(first, second)]
        self.assertGreater(cosine(rows["last"][1][0], first), 1 - 1e-5)  # of one token all are the same
        self.assertGreater(cosine(rows["cls"][0][1], first), 1 - 1e-5)   # and the first knows nothing of what follows
        self.assertGreater(cosine(rows["mean"][1][1], both), 0.95)      # rows of about one length
        self.assertLess(cosine(rows["mean"][0][1], rows["last"][0][1]), 0.99)


class InFolder(serve.TestCase):
    """Of a folder that has models of each kind, with a tier below the KV cache that encoders have no use for."""

    def test_each_kind(self):
        s = Folder("--allow", "loading", "--kv-host", "16M", names=("text",))
        for name in ("bert", "bert-rank"):
            shutil.copytree(os.path.join(MODELS, name), s.path(name))
        s.wait(lambda: len(s.states()) == 3, "seen")
        chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
        pair = {"text_1": "a", "text_2": "b"}
        for show, want in (("bert", ["embedding"]), ("text", ["completion"])):  # of one that is not loaded
            self.assertEqual(s.post("/api/show", {"model": show}).json["capabilities"][:1], want)
        row = rows_of("bert")[0]
        r = s.post("/v1/embeddings", {"model": "bert", "input": row["text"]})
        self.assertEqual((r.status, r.json["model"]), (200, "bert"))
        self.assertGreater(cosine(r.json["data"][0]["embedding"], row["embedding"]), 1 - 1e-3)
        self.assertEqual(s.post("/v1/chat/completions", {"model": "text", **chat}).status, 200)
        self.assertEqual(s.post("/v1/score", {"model": "bert-rank", **pair}).status, 200)
        self.assertEqual(s.post("/api/embed", {"model": "bert", "input": ["a", "b"], "keep_alive": -1}).status, 200)
        for path, name, body, word in (("/v1/chat/completions", "bert", chat, "gives embeddings, no text"),
                                       ("/api/chat", "bert", {"messages": chat["messages"]}, "gives embeddings, no text"),
                                       ("/v1/completions", "bert-rank", {"prompt": "a"}, "gives scores, no text"),
                                       ("/api/generate", "bert", {"prompt": "a"}, "gives embeddings, no text"),
                                       ("/v1/embeddings", "text", {"input": "a"}, "generates text"),
                                       ("/v1/embeddings", "bert-rank", {"input": "a"}, "it gives no embeddings"),
                                       ("/v1/score", "bert", pair, "no head"), ("/v1/rerank", "text", {"query": "a", "documents": ["b"]}, "generates text")):
            with self.subTest(f"{path} {name}"):
                r = s.post(path, {"model": name, **body})
                self.assertEqual(r.status, 400, r.body)
                self.assertIn(f"the model '{name}' ", str(r.json["error"]))
                self.assertIn(word, str(r.json["error"]))
        self.assertEqual(s.post("/api/generate", {"model": "bert"}).json["done_reason"], "load")
        kinds = {m["id"]: m["capabilities"][0] for m in s.get("/v1/models").json["data"]}
        self.assertEqual(kinds, {"bert": "embedding", "bert-rank": "score", "text": "completion"})
        tiers = [x for x in s.get("/metrics").body.decode().splitlines() if "transfer_type=" in x]
        self.assertTrue(tiers and all('model_name="text"' in x for x in tiers), tiers)
        s.post("/models/unload", {"model": "bert"})
        s.wait(lambda: s.states()["bert"] == "unloaded", "unloaded")
        loads = s.loads("bert")
        r = s.post("/v1/chat/completions", {"model": "bert", **chat})  # is known without loading it again
        self.assertEqual((r.status, s.loads("bert"), s.states()["bert"]), (400, loads, "unloaded"), r.body)
        self.assertIn("gives embeddings, no text", r.error["message"])
        tags = {m["name"]: m["details"] for m in s.get("/api/tags").json["models"]}
        self.assertEqual({n: (d["format"], d["family"]) for n, d in tags.items()}, {"bert": ("safetensors", "bert"), "bert-rank": ("safetensors", "bert"), "text": ("gguf", "llama")})
        for details in tags.values():
            self.assertRegex(details["parameter_size"], r"^\d+\.\d[MB]$")
            self.assertTrue(details["quantization_level"])
        self.assertEqual(s.post("/v1/embeddings", {"model": "bert", "input": ["a"] * 600}).status, 200)  # more than wait of others
        s.end()


if __name__ == "__main__":
    serve.main()
