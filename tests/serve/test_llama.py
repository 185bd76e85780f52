"""What clients of llama.cpp's server ask for: the middle of a text, a chat as text, and what the server says of itself."""
import json
import os
import tempfile

import answers
import serve

MARKS = PREFIX, SUFFIX, MIDDLE, REPOSITORY, FILE = [f"<|{word}|>" for word in ("fim_prefix", "fim_suffix", "fim_middle", "repo_name", "file_sep")]
BEFORE, BEHIND = "def add(a, b):\n" * 4, "\n    return c\n" * 4


class Infill(serve.TestCase):
    KIND = 3  # of the marks in the vocabulary: control tokens

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "answers.gguf")
            answers.write(model, {"C": ["One, two, three."]}, control=MARKS, size=4, kind=cls.KIND)
            cls.s = serve.Server("-m", model)

    def same(self, reply, prompt):
        """The tokens that are those of this text, by whose pages the cache has them."""
        self.assertEqual(reply.status, 200, reply.body)
        r = self.s.post("/v1/completions", {"prompt": prompt, "max_tokens": 1}).json["usage"]
        self.assertEqual(reply.json.get("tokens_evaluated", reply.json.get("prompt_eval_count")), r["prompt_tokens"])
        self.assertGreaterEqual(r["prompt_tokens_details"]["cached_tokens"], r["prompt_tokens"] - 16)

    def test_middle(self):
        ask = {"input_prefix": BEFORE, "input_suffix": BEHIND, "prompt": "C"}
        hints = {"samplers": ["top_k", "top_p", "infill"], "t_max_predict_ms": 500, "t_max_prompt_ms": 500, "n_indent": 4, "response_fields": ["content"], "cache_prompt": True}
        whole = f"{PREFIX}{BEFORE}{SUFFIX}{BEHIND}{MIDDLE}C"
        r = self.s.post("/infill", {**ask, **hints})
        self.assertEqual([r.json[k] for k in ("content", "stop", "stop_type", "truncated")], ["One, two, three.", True, "eos", False])
        self.same(r, whole)
        r = self.s.post("/infill", {**ask, "n_predict": 1}).json
        self.assertEqual((r["content"], r["stop_type"], r["tokens_predicted"]), ("One,", "limit", 1))
        r = self.s.post("/infill", {**ask, "input_suffix": BEHIND * 3, "n_predict": 0}).json
        self.assertEqual((r["content"], r["tokens_predicted"]), ("", 0))
        self.assertGreater(self.s.post("/infill", {**ask, "input_suffix": BEHIND * 3}).json["tokens_cached"], 16)
        r = self.s.post("/infill", {**ask, "stop": ["two"]}).json
        self.assertEqual((r["content"], r["stop_type"], r["stopping_word"]), ("One, ", "word", "two"))
        events = [json.loads(e[6:]) for e in self.s.post("/infill", {**ask, "stream": True}).body.decode().split("\n\n")[:-1]]
        self.assertEqual(("".join(e["content"] for e in events), [e["stop"] for e in events[:-1]], events[-1]["stop_type"]),
                         ("One, two, three.", [False] * (len(events) - 1), "eos"))
        files = [{"filename": "a.py", "text": BEFORE}, {"text": BEHIND}]
        self.same(self.s.post("/infill", {**ask, "input_extra": files}),
                  f"{REPOSITORY}repository\n{FILE}a.py\n{BEFORE}{FILE}file\n{BEHIND}{FILE}this\n{whole}")
        self.same(self.s.post("/infill", {**ask, "input_prefix": "", "input_extra": []}), f"{PREFIX}{SUFFIX}{BEHIND}{MIDDLE}C")
        self.same(self.s.post("/api/generate", {"prompt": BEFORE, "suffix": BEHIND, "stream": False}), whole[:-1])

    def test_texts_are_texts(self):
        """A control token in one of them is none."""
        for word in (SUFFIX, "</s>"):
            n = [self.s.post("/infill", {"input_prefix": text, "input_suffix": "b", "prompt": "C"}).json["tokens_evaluated"] for text in ("", word * 5)]
            self.assertGreaterEqual(n[1] - n[0], 5 * len(word) // 3)

    def test_refused(self):
        for fields, word in (({"input_prefix": 5}, "input_prefix must"), ({"input_suffix": []}, "input_suffix must"), ({"prompt": 5}, "prompt must"),
                             ({"input_extra": 5}, "input_extra must"), ({"input_extra": [5]}, "input_extra must"), ({"input_extra": [{"text": 5}]}, "text must"),
                             ({"input_extra": [{"text": "a", "filename": 5}]}, "filename must"), ({"input_prefix": "a" * 900_000}, "context"),
                             ({"n": 2}, "n is not"), ({"frob": 2}, "frob"), ({"mirostat": 1}, "mirostat"), ({"messages": [1]}, "messages")):
            with self.subTest(fields):
                self.assertIn(word, self.refused(self.s.post("/infill", {"input_suffix": "b", **fields}), 400)["message"])


class Added(Infill):
    """Marks that the vocabulary has as words of the user, as folders of Qwen 2.5 Coder do: tokenizers find them in any text."""
    KIND = 4


class Others(serve.TestCase):
    def test_no_tokens(self):
        """A model without those tokens says so."""
        self.refused(self.s.post("/infill", {"input_prefix": "a"}), 400, "suffix", "not_supported")
        self.assertIn("no tokens", self.s.post("/api/generate", {"prompt": "a", "suffix": "b"}).error)

    def test_template(self):
        turns = [{"role": "user", "content": "Hi"}]
        r = self.s.post("/apply-template", {"messages": turns})
        self.assertEqual(r.json, {"prompt": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"})
        r = self.s.post("/apply-template", {"messages": turns, "add_generation_prompt": False})
        self.assertEqual(r.json, {"prompt": "<|im_start|>user\nHi<|im_end|>\n"})
        for body in ({}, {"messages": 5}, {"messages": turns, "add_generation_prompt": 1}, {"messages": turns, "frob": 1}):
            self.refused(self.s.post("/apply-template", body), 400)

    def test_props(self):
        r = self.s.get("/props").json
        self.assertEqual((r["default_generation_settings"]["n_ctx"], r["model_alias"]), (512, self.s.get("/v1/models").json["data"][0]["id"]))
        self.assertIn("im_start", r["chat_template"])
        self.assertTrue(r["eos_token"])


if __name__ == "__main__":
    serve.main()
