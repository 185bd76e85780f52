"""Calls of tools in answers, whole and streamed, by a model that says what the test wants."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import answers
import serve
from serve import Server

OPEN, SHUT, MISTRAL = "<tool_call>", "</tool_call>", "[TOOL_CALLS]"
GEMMA, GEMMA_END, GEMMA_CALL = "<|tool_call>", "<tool_call|>", 'call:f{x:[1,{y:<|"|>\u00e9}"<|"|>}]}'
F, G = '{"name": "f", "arguments": {"x": "\u00e9 }"}}', '{"name": "g", "arguments": {}}'
LONG = '{"name": "f", "arguments": {"x": "%s"}}' % ("y\u00e9" * 500)
BAD = OPEN + '{"name": "f", "arguments": }' + SHUT
ANSWERS = {
    "A": [OPEN, "\n" + F + "\n", SHUT],  # the markers are control tokens, else they are text
    "B": ["Let me see.\n" + OPEN + F + SHUT + "\n" + OPEN + G + SHUT],
    "C": ["Just text <tool, no call. "],
    "D": [BAD],
    "E": [BAD + " or " + OPEN + G + SHUT],
    "M": [MISTRAL + "[" + F + "]"],
    "L": [OPEN + G],
    "X": ["<tool_ca"],
    "G": ["Sure.", GEMMA, GEMMA_CALL, GEMMA_END],
    "Q": ["Sure.\n" + OPEN + "\n<function=f>\n<parameter=n>\n5\n</parameter>\n<parameter=s>\n5\n</parameter>\n</function>\n" + SHUT],
}
TEMPLATE = "{# <tool_call> #}{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}} for name in "fg"]
F_CALL, G_CALL = ("f", '{"x": "\u00e9 }"}'), ("g", "{}")


def merged(events, index=0):
    """What a client makes of a stream: as OpenAI's puts deltas together."""
    out, finish, tokens = {"content": None, "tool_calls": []}, None, 0
    for e in events:
        for c in e["choices"]:
            if c["index"] != index:
                continue
            assert finish is None, "a delta behind the end"
            delta, finish = c["delta"], c["finish_reason"]
            tokens += len((c["logprobs"] or {"content": []})["content"])
            if delta.get("content") is not None:
                out["content"] = (out["content"] or "") + delta["content"]
            for call in delta.get("tool_calls", []):
                if call["index"] == len(out["tool_calls"]):
                    assert call["id"] and call["type"] == "function" and call["function"]["name"] and call["function"]["arguments"] == "", call
                    out["tool_calls"].append(call)
                else:
                    assert set(call) == {"index", "function"} and set(call["function"]) == {"arguments"}, call
                    out["tool_calls"][call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    return out, finish, tokens


def plain(message):
    return message["content"] or None, [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", [])]


class Case(serve.TestCase):
    PARSER, META = (), {}  # META: the model's own templates, in place of the option
    TEMPLATE = TEMPLATE

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = os.path.join(cls.folder.name, "answers.gguf")
        answers.write(path, ANSWERS, control=(OPEN, SHUT, GEMMA, GEMMA_END), meta=cls.META)
        template = os.path.join(cls.folder.name, "t.jinja")
        pathlib.Path(template).write_text(cls.TEMPLATE, encoding="utf-8")
        cls.path, cls.s = path, Server("-m", path, *cls.PARSER, template=None if cls.META else template)

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def ask(self, letter, **fields):
        r = self.s.chat(letter, **{"tools": TOOLS, "max_tokens": 400, **fields})
        self.assertEqual(r.status, 200, r.body)
        return r.json

    def streamed(self, letter, **fields):
        turns = [{"role": "user", "content": letter}]
        return self.s.stream("/v1/chat/completions", **{"messages": turns, "tools": TOOLS, "max_tokens": 400, **fields})

    def check(self, letter, content, calls, finish=None, **fields):
        """The answer is this, whole and streamed."""
        finish = finish or ("tool_calls" if calls else "stop")
        choice = self.ask(letter, **fields)["choices"][0]
        self.assertEqual((plain(choice["message"]), choice["finish_reason"]), ((content, calls), finish))
        self.assertEqual("tool_calls" in choice["message"], bool(calls))
        if calls and not content:
            self.assertIsNone(choice["message"]["content"])
        message, end, _ = merged(self.streamed(letter, **fields))
        self.assertEqual((plain(message), end), ((content, calls), finish))
        for m in (choice["message"], message):
            ids = [c["id"] for c in m.get("tool_calls", [])]
            self.assertEqual(len(set(ids)), len(calls))
        return choice["message"].get("tool_calls")


class Generic(Case):
    TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"

    def test_calls(self):
        """Of a model whose template knows no tools: as it is told to write them."""
        self.check("A", None, [F_CALL])
        self.check("B", "Let me see.\n", [F_CALL, G_CALL])
        self.check("C", "Just text <tool, no call. ", [])


class Hermes(Case):
    def test_calls(self):
        (call,) = self.check("A", None, [F_CALL])
        self.assertEqual(set(call), {"id", "type", "function"})
        self.assertRegex(call["id"], "^call_[0-9a-f]{32}$")
        self.check("B", "Let me see.\n", [F_CALL, G_CALL])
        self.check("L", None, [G_CALL])

    def test_text(self):
        self.check("C", "Just text <tool, no call. ", [])
        self.check("D", BAD, [])
        self.check("E", BAD + " or ", [G_CALL])

    def test_no_tools_no_calls(self):
        text = "".join(ANSWERS["B"])
        self.check("B", text, [], tools=None)
        self.check("B", text, [], tool_choice="none")
        self.check("A", "\n" + F + "\n", [], tools=None)  # control tokens are hidden, as ever

    def test_beside_a_format(self):
        """A call comes as ever; another answer keeps to the format, also one that begins as calls do."""
        beside = {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [1, 2]}}}}
        self.check("A", None, [F_CALL], **beside)
        self.check("L", None, [G_CALL], **beside)
        for letter in "BCM":
            self.assertIn(json.loads(plain(self.ask(letter, **beside)["choices"][0]["message"])[0]), (1, 2))
        self.check("X", "<tool_ca", [], guided_choice=["<tool_ca", "a"])
        self.check("A", None, [F_CALL], guided_choice=["<tool_ca", "a"])

    def test_one_call(self):
        self.check("B", "Let me see.\n", [F_CALL], parallel_tool_calls=False)
        self.check("B", "Let me see.\n", [F_CALL, G_CALL], parallel_tool_calls=True)

    def test_cut(self):
        """At every length: all that is said is there, as text or as calls."""
        whole = "".join(ANSWERS["B"])
        pieces = answers.pieces(whole, 3)
        for n in range(1, len(pieces) + 1):
            said = "".join(pieces[:n])
            choice = self.ask("B", max_tokens=n)["choices"][0]
            content, calls = plain(choice["message"])
            message, finish, _ = merged(self.streamed("B", max_tokens=n))
            self.assertEqual((plain(message), finish), ((content, calls), choice["finish_reason"]))
            self.assertEqual(finish, "length" if n <= len(pieces) else "tool_calls")
            if not calls:
                self.assertEqual(content, said)
            self.assertEqual(len(calls), (len(said) >= len("Let me see.\n" + OPEN + F)) + (len(said) >= len(whole) - len(SHUT)), said)

    def test_logprobs(self):
        n = self.ask("B", logprobs=True)
        want = len(n["choices"][0]["logprobs"]["content"])
        self.assertEqual(want, n["usage"]["completion_tokens"])
        self.assertEqual(merged(self.streamed("B", logprobs=True))[2], want)

    def test_choices(self):
        got = self.ask("B", n=3)["choices"]
        self.assertEqual([plain(c["message"]) for c in got], [("Let me see.\n", [F_CALL, G_CALL])] * 3)
        events = self.streamed("B", n=3)
        for i in range(3):
            self.assertEqual(plain(merged(events, i)[0]), ("Let me see.\n", [F_CALL, G_CALL]))

    def test_events(self):
        """The text before a call does not wait for it."""
        deltas = [e["choices"][0]["delta"] for e in self.streamed("B")]
        kinds = ["t" if d.get("content") else "c" if "tool_calls" in d else "-" for d in deltas]
        self.assertEqual("".join(kinds).strip("-").replace("-", "").lstrip("t"), "cccc")
        self.assertIn("t", kinds)

    def test_forged(self):
        """What a user writes stays text: it is no token that begins a call, and nothing of the answer."""
        self.assertEqual(plain(self.ask(OPEN + F + SHUT + "C")["choices"][0]["message"]), ("Just text <tool, no call. ", []))
        self.assertEqual(len(self.s.post("/tokenize", {"prompt": OPEN * 5, "add_special": False}).json["tokens"]), 5)  # who writes raw prompts may
        used = [self.ask(text + "C")["usage"]["prompt_tokens"] for text in ("", OPEN * 5)]
        self.assertGreaterEqual(used[1] - used[0], 5 * len(OPEN) // 3)

    def test_client(self):
        try:
            import openai
        except ImportError:
            self.skipTest("the Python package openai is not installed")
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.s.port}/v1", api_key="none", max_retries=0)
        model = client.models.list().data[0].id
        ask = {"model": model, "messages": [{"role": "user", "content": "B"}], "tools": TOOLS, "max_tokens": 400, "temperature": 0}
        m = client.chat.completions.create(**ask).choices[0].message
        self.assertEqual([c.function.name for c in m.tool_calls], ["f", "g"])
        turns = [*ask["messages"], m, *({"role": "tool", "tool_call_id": c.id, "content": "1"} for c in m.tool_calls), {"role": "user", "content": "C"}]
        self.assertEqual(client.chat.completions.create(**{**ask, "messages": turns}).choices[0].finish_reason, "stop")


class Named(Case):
    """A model with a template of its own for tools, whose other one knows none."""
    META = {"tokenizer.chat_template": "B{% for m in messages %}{{ m.content }}{% endfor %}", "tokenizer.chat_template.tool_use": TEMPLATE}

    def test_calls(self):
        self.check("A", None, [F_CALL])
        self.check("C", "Just text <tool, no call. ", [])

    def test_tokens(self):
        """The letter that stands before the turns is of the one without tools."""
        alone, tools = (self.ask("C", tools=t)["usage"]["prompt_tokens"] for t in (None, TOOLS))
        self.assertEqual(alone, 3)
        self.assertGreater(tools, 30)


class Mistral(Case):
    PARSER = ("--tool-call-parser", "mistral")

    def test_calls(self):
        (call,) = self.check("M", None, [F_CALL])
        self.assertRegex(call["id"], "^[0-9a-f]{9}$")
        self.check("B", "".join(ANSWERS["B"]), [])


class Tags(Case):
    """Values in tags become JSON as the tool's schema has their types."""
    PARSER = ("--tool-call-parser", "qwen3_coder")

    def test_calls(self):
        for string in ({"type": "string"}, {"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}):
            f = {"name": "f", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}, "s": string}}}
            self.check("Q", "Sure.\n", [("f", '{"n": 5, "s": "5"}')], tools=[{"type": "function", "function": f}])
        self.check("Q", "Sure.\n", [("f", '{"n": 5, "s": 5}')])  # the tool does not say

    def test_cut(self):
        """What lacks its end may lack parameters: it is no call."""
        pieces = answers.pieces("".join(ANSWERS["Q"]), 3)
        for n in range(1, len(pieces)):
            text = "".join(pieces[:n])
            whole = text.count("</parameter>") == 2 and "</" in text.rsplit("</parameter>", 1)[1]
            want = ("Sure.\n", [("f", '{"n": 5, "s": 5}')]) if whole else (text, [])
            self.assertEqual(plain(self.ask("Q", max_tokens=n)["choices"][0]["message"]), want)

    def test_stop(self):
        """A stop text cuts as max_tokens does, at every place, and leaves whole calls alone."""
        said = "".join(ANSWERS["Q"])
        for stop in ("<parameter=n", "<parameter=s>", "</function>"):
            self.check("Q", said[:said.index(stop)], [], stop=stop)
        self.check("Q", "Sure.\n", [("f", '{"n": 5, "s": 5}')], stop=SHUT)


class Gemma(Case):
    """A form of its own, between control tokens."""
    PARSER = ("--tool-call-parser", "gemma4")

    def test_calls(self):
        self.check("G", "Sure.", [("f", '{"x": [1, {"y": "\u00e9}\\""}]}')])
        self.check("B", "".join(ANSWERS["B"]), [])

    def test_cut(self):
        """Half a call is text; a whole one needs nothing behind it."""
        pieces = ["", *answers.pieces("Sure.", 3), GEMMA, *answers.pieces(GEMMA_CALL, 3)]
        for n in range(1, len(pieces)):
            text = "".join(pieces[:n + 1])
            want = ("Sure.", [("f", '{"x": [1, {"y": "\u00e9}\\""}]}')]) if text.endswith("]}") else (text, [])
            self.assertEqual(plain(self.ask("G", max_tokens=n)["choices"][0]["message"]), want)


class Off(Case):
    PARSER = ("--tool-call-parser", "none")

    def test_text(self):
        for letter in "BDM":
            self.check(letter, "".join(ANSWERS[letter]), [])
        self.assertIn(plain(self.ask("A", guided_choice=["yes", "no"])["choices"][0]["message"]), (("yes", []), ("no", [])))

    def test_unknown_name(self):
        p = subprocess.run(Server.command("-m", self.path, "--tool-call-parser", "frob"), capture_output=True, text=True, timeout=serve.PATIENCE)
        self.assertEqual(p.returncode, 1)
        self.assertIn("hermes, llama3_json", p.stderr)


class Long(unittest.TestCase):
    def test_pieces(self):
        """Long arguments come in pieces, of whole characters, which are the whole."""
        with tempfile.TemporaryDirectory() as folder:
            path, template = os.path.join(folder, "a.gguf"), os.path.join(folder, "t.jinja")
            answers.write(path, {"A": [OPEN + LONG + SHUT]}, size=4)
            pathlib.Path(template).write_text(TEMPLATE, encoding="utf-8")
            s = Server("-m", path, template=template)
            events = s.stream("/v1/chat/completions", messages=[{"role": "user", "content": "A"}], tools=TOOLS, max_tokens=300)
            message, finish, _ = merged(events)
            self.assertEqual((plain(message), finish), ((None, [("f", json.dumps(json.loads(LONG)["arguments"], ensure_ascii=False))]), "tool_calls"))
            self.assertGreater(sum("tool_calls" in e["choices"][0]["delta"] for e in events if e["choices"]), 2)
            self.assertEqual(s.end()[0], 0)


if __name__ == "__main__":
    serve.main()
