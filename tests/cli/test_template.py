"""weft template: what a chat template makes of a conversation."""
import json
import os
import pathlib
import tempfile

import cli
from cli import MODEL, RUNTIME, USAGE

TURNS = json.dumps([{"role": "user", "content": "Hi"}]).encode()


class Template(cli.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.folder.cleanup()

    def file(self, name, text):
        path = os.path.join(self.folder.name, name)
        pathlib.Path(path).write_text(text, encoding="utf-8")
        return path

    def rendered(self, text, *args, stdin=TURNS):
        return self.ok("template", "--chat-template", self.file("t.jinja", text), "--messages", "-", *args, stdin=stdin).text

    def test_chatml(self):
        chat = ["template", "--chat-template", cli.CHATML, "--messages", "-"]
        self.assertEqual(self.ok(*chat, stdin=TURNS).text, "<|im_start|>user\nHi<|im_end|>\n")
        self.assertEqual(self.ok(*chat, "--add-generation-prompt", stdin=TURNS).text, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")

    def test_variables(self):
        self.assertEqual(self.rendered("{{ bos_token }}{{ eos_token }}{{ x }}{{ strftime_now('%d %b %Y') }}", "WEFT_BOS=<a>", "WEFT_EOS=<b>", "--kwargs", '{"x": 1.0}',
                                       "WEFT_NOW=2024-07-26"), "<a><b>1.026 Jul 2024")
        tools = self.file("tools.json", '[{"b": 1, "a": "é"}]')
        self.assertEqual(self.rendered("{{ tools | tojson }}", "--tools", tools), '[{"b": 1, "a": "é"}]')
        self.assertEqual(self.rendered("{{ tools is none }}"), "True")

    def test_of_the_model(self):
        self.fails(MODEL, "--chat-template FILE", "template", "--messages", "-", stdin=TURNS)  # the built-in model has none
        self.assertEqual(self.ok("template", "--messages", "-", "--chat-template", self.file("t", "{{ bos_token }}"), "-m",
                                 cli.data("vocab/llama-bpe.gguf"), stdin=TURNS).text, "<|begin_of_text|>")

    def test_named(self):
        """Of several templates in a folder, tool_use is for conversations with tools; files come before tokenizer_config.json."""
        config = [{"name": n, "template": "{{ tools | length if tools else 'no tools' }} " + n} for n in ("default", "tool_use", "rag")]
        self.file("tokenizer.json", '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
        self.file("tokenizer_config.json", json.dumps({"chat_template": config}))
        tools, ask = self.file("tools.json", '[{"a": 1}]'), ["template", "-m", self.folder.name, "--messages", "-"]
        self.assertEqual([self.ok(*ask, *more, stdin=TURNS).text for more in ([], ["--tools", tools])], ["no tools default", "1 tool_use"])
        self.assertRegex(self.ok("info", "-m", self.folder.name).text, r"(?m)^chat template +53 bytes, for tools 54 bytes$")
        self.file("chat_template.jinja", "a file")
        self.assertEqual(self.ok(*ask, "--tools", tools, stdin=TURNS).text, "a file")
        os.mkdir(os.path.join(self.folder.name, "additional_chat_templates"))
        self.file("additional_chat_templates/tool_use.jinja", "tools in a file")
        self.file("additional_chat_templates/notes.txt", "no template")
        self.assertEqual([self.ok(*ask, *more, stdin=TURNS).text for more in ([], ["--tools", tools])], ["a file", "tools in a file"])

    def test_errors(self):
        t = ["template", "--chat-template", self.file("t.jinja", "{{ messages[0].x.y }}")]
        self.fails(USAGE, "--messages FILE", *t)
        self.fails(USAGE, "$WEFT_NOW", *t, "--messages", "-", "WEFT_NOW=today", stdin=TURNS)
        self.fails(RUNTIME, "/absent", *t, "--messages", "/absent")
        self.fails(USAGE, "messages: bad JSON in line 2, column 2", *t, "--messages", "-", stdin=b"[\n x")
        self.fails(USAGE, "line 1, column 17: 'x of dict' is undefined", *t, "--messages", "-", stdin=TURNS)
        self.fails(USAGE, "line 1, column 4: expected an expression", "template", "--chat-template", self.file("bad", "{{ }}"), "--messages", "-", stdin=TURNS)


if __name__ == "__main__":
    cli.main()
