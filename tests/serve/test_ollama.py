"""Ollama's API: by its official client, and against what a chat of ours is for the same conversation."""
import json

import serve
import test_anthropic
import test_tool_calls as calls
from test_anthropic import ANSWERS, OWN_TOOL

FINE = {"num_predict": 400}


class Ollama(test_anthropic.Case):
    def setUp(self):
        try:
            import ollama
        except ImportError:
            self.skipTest("the Python package ollama is not installed")
        self.error = ollama.ResponseError
        self.client = ollama.Client(host=f"http://127.0.0.1:{self.s.port}")
        self.name = self.client.list().models[0].model

    def check(self, letter, reason, content, thoughts="", tool_calls=(), options=FINE, **fields):
        """What comes of a chat and of a prompt, whole and streamed; what is counted."""
        ask = {"model": self.name, "options": options, **fields}
        turns = [{"role": "user", "content": letter}]
        whole, parts = self.client.chat(messages=turns, **ask), list(self.client.chat(messages=turns, stream=True, **ask))
        for ms in ([whole], parts):
            self.assertEqual(["".join(getattr(m.message, name) or "" for m in ms) for name in ("content", "thinking")], [content, thoughts])
            got = [(c.function.name, c.function.arguments) for m in ms for c in m.message.tool_calls or []]
            self.assertEqual(got, list(tool_calls))
        self.ended(reason, whole, parts)
        if not tool_calls and "tools" not in fields:
            whole, parts = self.client.generate(prompt=letter, **ask), list(self.client.generate(prompt=letter, stream=True, **ask))
            for rs in ([whole], parts):
                self.assertEqual(["".join(getattr(r, name) or "" for r in rs) for name in ("response", "thinking")], [content, thoughts])
            self.ended(reason, whole, parts)

    def ended(self, reason, whole, parts):
        self.assertEqual({p.done for p in parts[:-1]}, {False})
        for r in (whole, parts[-1]):
            self.assertEqual((r.done, r.done_reason, r.model), (True, reason, self.name))
            self.assertEqual((r.prompt_eval_count, r.eval_count), (whole.prompt_eval_count, whole.eval_count))
            self.assertGreater(r.total_duration, r.eval_duration)
            self.assertRegex(r.created_at, r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")

    def test_answers(self):
        f, g = ("f", json.loads(calls.F_CALL[1])), ("g", {})
        self.check("C", "stop", "One, two, three.")
        self.check("C", "length", "One,", options={"num_predict": 1})
        self.check("C", "stop", "One, ", options={"stop": ["two"], "temperature": 0, "seed": 4, "top_k": 3, "min_p": 0.1, "repeat_penalty": 1.0, "num_ctx": 512})
        self.check("A", "stop", "Yes.", "Hm, \u00e9.", keep_alive="5m")
        self.check("B", "stop", "Let me see.\n", tool_calls=[f, g], tools=[OWN_TOOL])
        self.check("L", "stop", "", tool_calls=[("f", {"x": "y\u00e9" * 400})], tools=[OWN_TOOL])
        raw = self.client.generate(model=self.name, prompt="C", raw=True)  # without a limit it ends where the model ends it
        self.assertEqual((raw.response, raw.done_reason, raw.prompt_eval_count), ("One, two, three.", "stop", 2))

    def test_formats(self):
        schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
        self.assertIn(json.loads(self.client.chat(model=self.name, messages=[{"role": "user", "content": "C"}], format=schema).message.content), ({"n": 1}, {"n": 2}))
        self.assertEqual(self.client.generate(model=self.name, prompt="C", format="json", options={"num_predict": 20}).response.lstrip()[0], "{")

    def test_conversations(self):
        """Each becomes what a chat of ours is."""
        user, call = {"role": "user", "content": "C"}, {"function": {"name": "f", "arguments": {"x": "1"}}}
        own = {"type": "function", "function": {"name": "f", "arguments": "{\"x\": \"1\"}"}}
        turns = [user, {"role": "assistant", "content": "So", "thinking": "Hm.", "tool_calls": [call]}, {"role": "tool", "content": "4", "tool_name": "f"}, user]
        own_turns = [user, {"role": "assistant", "content": "So", "reasoning_content": "Hm.", "tool_calls": [own]}, {"role": "tool", "content": "4", "name": "f"}, user]
        for path, fields, chat in (("/api/chat", {"messages": turns, "tools": [OWN_TOOL]}, {"messages": own_turns, "tools": [OWN_TOOL]}),
                                   ("/api/chat", {"messages": [user], "think": False}, {"messages": [user], "enable_thinking": False}),
                                   ("/api/generate", {"prompt": "C", "system": "Be."}, {"messages": [{"role": "system", "content": "Be."}, user]})):
            want = self.s.post("/v1/chat/completions", {"max_tokens": 1, **chat}).json["usage"]["prompt_tokens"]
            got = self.s.post(path, {"stream": False, "options": {"num_predict": 1}, **fields})
            self.assertEqual(got.json["prompt_eval_count"], want, fields)

    def test_model(self):
        (card,) = self.client.ps().models
        self.assertEqual((card.model, card.context_length), (self.name, 2048))
        for name in (self.name, self.name + ":latest"):
            shown = self.client.show(name)
            self.assertEqual((shown.capabilities, shown.template), (["completion", "tools", "thinking"], test_anthropic.TEMPLATE))
            self.assertEqual(shown.modelinfo["llama.context_length"], 2048)
            self.assertEqual(self.client.generate(model=name, prompt="").done_reason, "load")
            self.assertEqual(self.client.chat(model=name).done_reason, "load")
            self.assertEqual(self.client.generate(model=name, prompt="C").model, name)
        self.assertEqual(self.s.get("/api/version").json, self.s.get("/version").json)
        for ask in (lambda: self.client.show("other"), lambda: self.client.chat(model="other"), lambda: self.client.generate(model="other", prompt="C")):
            with self.assertRaises(self.error) as e:
                ask()
            self.assertEqual((e.exception.status_code, e.exception.error), (404, f"the model 'other' does not exist; this server has '{self.name}'"))

    def test_refused(self):
        turns = [{"role": "user", "content": "C"}]
        for path, fields, word in (
                ("/api/chat", {"messages": [{**turns[0], "images": ["AA=="]}]}, "images"), ("/api/generate", {"prompt": "C", "images": ["AA=="]}, "images"),
                ("/api/chat", {"messages": [5]}, "role"), ("/api/chat", {"messages": 5}, "messages"), ("/api/chat", {"messages": turns, "format": "xml"}, "format"),
                ("/api/chat", {"messages": turns, "format": {"uniqueItems": True}}, "uniqueItems"),
                ("/api/chat", {"messages": turns, "options": {"num_ctx": 4096}}, "2048"), ("/api/chat", {"messages": turns, "options": {"frob": 1}}, "frob"),
                ("/api/chat", {"messages": turns, "options": {"mirostat": 1}}, "mirostat"), ("/api/chat", {"messages": turns, "options": 5}, "options"),
                ("/api/chat", {"messages": turns, "options": {"temperature": 1}, "temperature": 1}, "duplicate key 'temperature'"),
                ("/api/chat", {"messages": turns, "stream": 1}, "stream"), ("/api/chat", {"messages": turns, "model": 5}, "model"),
                ("/api/generate", {"prompt": 5}, "prompt"), ("/api/generate", {"prompt": "C", "raw": 1}, "raw"), ("/api/generate", {"prompt": "C", "system": 1}, "system"),
                ("/api/generate", {"prompt": "C", "raw": True, "system": "Be."}, "system"), ("/api/generate", {"prompt": "C", "template": "x"}, "template"),
                ("/api/generate", {"prompt": "C", "context": [1]}, "context"), ("/api/generate", {"prompt": "C", "suffix": "x"}, "fill in the middle")):
            with self.subTest(fields):
                r = self.s.post(path, fields)
                self.assertEqual((r.status, set(r.json)), (400, {"error"}), r.body)
                self.assertIn(word, r.error)


class Waiting(test_anthropic.Waiting):
    PATH, ASK = "/api/chat", {"messages": [{"role": "user", "content": "C"}], "options": {"num_predict": 1}, "stream": False}

    def test_keys(self):
        self.assertEqual(self.post({}).status, 401)
        self.assertEqual(self.post({"Authorization": "Bearer secret"}).json["done_reason"], "length")

    def test_waiting(self):
        """Blanks before a line, which are a part of its JSON."""
        key = {"X-Api-Key": "secret"}
        first, _ = self.s.open_stream(key, **test_anthropic.test_fair.LONG)
        text = self.post(key, stream=True).body.decode()
        first.close()
        self.assertRegex(text, "^ +{.*}\n$")
        self.assertIn("took longer than the 4 s", json.loads(text)["error"])


class NoTemplate(serve.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.s = serve.Server(template=None)

    def test_prompts(self):
        """Of a model without a template they are texts to go on with."""
        for least in (-1, -2):  # without an end of its own, and until the context is full
            r = self.s.post("/api/generate", {"prompt": "One day", "stream": False, "raw": True, "options": {"num_predict": least, "stop": ["."]}})
            self.assertEqual((r.status, r.json["done_reason"]), (200, "stop"), r.body)
        self.assertEqual(self.s.post("/api/generate", {"prompt": "One day", "options": {"num_predict": -3}}).status, 400)
        r = self.s.post("/api/generate", {"prompt": "One day", "stream": False, "options": {"temperature": 0, "num_predict": 12}})
        self.assertEqual(r.json["response"], self.s.complete().text)
        self.assertIn("template", self.s.post("/api/generate", {"prompt": "One day", "system": "Be."}).error)


if __name__ == "__main__":
    serve.main()
