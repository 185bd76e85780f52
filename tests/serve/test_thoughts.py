"""Thoughts in answers, between markers and in channels, whole and streamed, by a model that says what the test wants."""
import os
import subprocess
import tempfile

import answers
import serve
import test_tool_calls as calls
from serve import Server

THINK, THOUGHT = "<think>", "</think>"
START, CHANNEL, MESSAGE, END, CALL, RETURN = (f"<|{word}|>" for word in ("start", "channel", "message", "end", "call", "return"))
ANSWERS = {  # of a token only one other follows, so each control token is in one answer; elsewhere it is spelt out
    "A": [THINK, "\nHm, \u00e9.\n", THOUGHT, "\n\nYes."],
    "B": ["Yes. " + THINK],
    "\t": ["Hm" + THOUGHT + "Yes."],  # behind a prompt that opens thoughts
    "C": [f"{THINK}So: {calls.OPEN}\n{THOUGHT}\n{calls.OPEN}{calls.F}{calls.SHUT}"],
    "E": [CHANNEL, "analysis", MESSAGE, "Hm, \u00e9.", END, START, f"assistant{CHANNEL}final{MESSAGE}Yes.", RETURN],
    "F": [f"{CHANNEL}analysis{MESSAGE}Hm, \u00e9.{END}{START}assistant to=functions.f{CHANNEL}commentary ", "<|constrain|>", f"json{MESSAGE}" + '{"x": 1}', CALL],
}
OPENED, CLOSED, SEP = "<|open|>", "<|close|>", "<|sep|>"
ANSWERS["K"] = [f"{OPENED}think{SEP}Hm, \u00e9.{CLOSED}think{SEP}{OPENED}response{SEP}Yes.{CLOSED}response{SEP}{CLOSED}message{SEP}"]
CONTROL = (THINK, THOUGHT, START, CHANNEL, MESSAGE, "<|constrain|>", END, CALL, RETURN)
TURNS = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.thinking }}{{ m.content }}{% endfor %}{% if open %}<think>\t{% endif %}"


def streamed(events):
    """The message that a client makes of a stream, and how often thoughts come behind anything else."""
    out, late = {}, 0
    for e in events:
        for c in e["choices"]:
            assert c["delta"].get("reasoning") == c["delta"].get("reasoning_content")
            for name in ("reasoning_content", "content"):
                if c["delta"].get(name):
                    late += name == "reasoning_content" and "content" in out
                    out[name] = out.get(name, "") + c["delta"][name]
    return out.get("reasoning_content"), out.get("content"), late


class Case(serve.TestCase):
    OPTIONS, SIGNS = (), ""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path, template = (os.path.join(cls.folder.name, name) for name in ("answers.gguf", "t.jinja"))
        answers.write(cls.path, ANSWERS, control=CONTROL)
        with open(template, "w", encoding="utf-8") as f:
            f.write("{# " + cls.SIGNS + " #}" + TURNS)
        cls.s = Server("-m", cls.path, *cls.OPTIONS, template=template)

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def check(self, letter, thoughts, content, finish="stop", **fields):
        ask = {"max_tokens": 200, **fields}
        r = self.s.chat(letter, **ask)
        self.assertEqual(r.status, 200, r.body)
        choice = r.json["choices"][0]
        message = choice["message"]
        self.assertEqual(message.get("reasoning"), message.get("reasoning_content"))
        self.assertEqual((message.get("reasoning_content"), message["content"], choice["finish_reason"]), (thoughts, content, finish))
        events = self.s.stream("/v1/chat/completions", messages=[{"role": "user", "content": letter}], stream_options={"include_usage": True}, **ask)
        self.assertEqual(streamed(events), (thoughts, content or None, 0))
        self.assertEqual(events[-1]["usage"].get("completion_tokens_details"), r.json["usage"].get("completion_tokens_details"))
        message["reasoning_tokens"] = r.json["usage"].get("completion_tokens_details", {}).get("reasoning_tokens")
        return message


class Framed(Case):
    """What stands around messages is no part of them, with tools or without."""
    SIGNS = "<|open|>"

    def test_thoughts(self):
        self.check("K", "Hm, \u00e9.", "Yes.")
        self.check("K", "Hm, \u00e9.", "Yes.", tools=calls.TOOLS)
        self.check("B", None, "Yes. " + THINK)


class Marked(Case):
    SIGNS = "<tool_call> </think>"

    def test_thoughts(self):
        self.check("A", "Hm, \u00e9.", "Yes.")
        self.check("B", None, "Yes. " + THINK)
        self.assertNotIn("reasoning_content", self.s.chat("B", max_tokens=200).json["choices"][0]["message"])

    def test_counted(self):
        """With their markers, which are tokens of their own or are spelt out."""
        for letter, fields in (("A", {}), ("A", {"chat_template_kwargs": {"open": True}})):
            r = self.s.chat(letter, max_tokens=200, logprobs=True, **fields).json
            tokens = [t["token"] for t in r["choices"][0]["logprobs"]["content"]]
            want = next(i for i in range(len(tokens)) if THOUGHT in "".join(tokens[:i + 1])) + 1
            self.assertEqual(r["usage"]["completion_tokens_details"], {"reasoning_tokens": want}, tokens)
            if not fields:
                r = self.s.post("/v1/responses", {"input": letter, "max_output_tokens": 200}).json
                self.assertEqual(r["usage"]["output_tokens_details"], {"reasoning_tokens": want})
        self.assertEqual(self.s.chat("B", max_tokens=200).json["usage"]["completion_tokens_details"], {"reasoning_tokens": 0})

    def test_cut(self):
        self.assertEqual(self.check("A", "Hm", "", finish="length", max_tokens=2)["reasoning_tokens"], 2)

    def test_opened(self):
        """The prompt begins the thoughts, so the answer does not."""
        self.check("\t", None, "Hm</think>Yes.")
        self.check("A", "Hm", "Yes.", chat_template_kwargs={"open": True})

    def test_calls(self):
        message = self.check("C", "So: " + calls.OPEN, None, finish="tool_calls", tools=calls.TOOLS)
        self.assertEqual(calls.plain(message), (None, [calls.F_CALL]))
        self.check("C", "So: " + calls.OPEN, calls.OPEN + calls.F + calls.SHUT)  # without tools

    def test_history(self):
        """Thoughts of earlier turns come to the template under the name that it knows."""
        used = [self.s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x", **more}, {"role": "user", "content": "B"}]}).json["usage"]["prompt_tokens"]
                for more in ({}, {"reasoning_content": "\u00e9\u00e9\u00e9"})]
        self.assertEqual(used[1] - used[0], 6)

    def test_completions(self):
        """A text to continue is not taken apart."""
        r = self.s.post("/v1/completions", {"prompt": "\t", "max_tokens": 20})
        self.assertEqual(r.json["choices"][0]["text"], "Hm</think>Yes.")


class Channels(Case):
    SIGNS = CHANNEL + "analysis"

    def test_answers(self):
        self.assertGreater(self.check("E", "Hm, \u00e9.", "Yes.")["reasoning_tokens"], 2)
        message = self.check("F", "Hm, \u00e9.", None, finish="tool_calls", tools=calls.TOOLS)
        self.assertEqual(calls.plain(message), (None, [("f", '{"x": 1}')]))
        self.check("F", "Hm, \u00e9.", '{"x": 1}')  # without tools


class Off(Case):
    OPTIONS, SIGNS = ("--reasoning-parser", "none"), "</think>"

    def test_text(self):
        self.assertIsNone(self.check("A", None, "\nHm, \u00e9.\n\n\nYes.")["reasoning_tokens"])  # control tokens are hidden, as ever

    def test_unknown_name(self):
        p = subprocess.run(Server.command("-m", self.path, "--reasoning-parser", "frob"), capture_output=True, text=True, timeout=serve.PATIENCE)
        self.assertEqual(p.returncode, 1)
        self.assertIn("mistral, cohere, apriel", p.stderr)


if __name__ == "__main__":
    serve.main()
