"""Thoughts of reasoning models in chats of `weft run`, by a model that says what the test wants."""
import json
import os
import sys
import tempfile

import cli
from test_chat import Terminal

sys.path.insert(0, os.path.join(cli.ROOT, "tests", "serve"))
import answers  # noqa: E402

THINK, THOUGHT = "<think>", "</think>"
START, CHANNEL, MESSAGE, END, RETURN = (f"<|{word}|>" for word in ("start", "channel", "message", "end", "return"))
ANSWERS = {  # of a token only one other follows, so each control token is in one answer; elsewhere it is spelt out
    "A": [THINK, "\nHm, \u00e9.\n", THOUGHT, "\n\nYes."],
    "B": ["Just text."],
    "\t": ["So" + THOUGHT + "No."],  # behind a prompt that opens thoughts
    "D": [f"{THINK}\n\n{THOUGHT}\n\nAt once."],
    "L": [THINK + "long " * 200],
    "E": [CHANNEL, "analysis", MESSAGE, "Hm, \u00e9.", END, START, f"assistant{CHANNEL}final{MESSAGE}Yes.", RETURN],
}
CONTROL = (THINK, THOUGHT, START, CHANNEL, MESSAGE, END, RETURN, "<|call|>")
TURNS = "{% for m in messages %}{{ m.content }}{% endfor %}"
SHOWN = "[Start thinking]\nHm, \u00e9.\n[End thinking]\n\nYes.\n"
DIM, PLAIN = "\x1b[2m", "\x1b[0m"


class Thoughts(cli.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder, cls.path = folder.name, os.path.join(folder.name, "answers.gguf")
        answers.write(cls.path, ANSWERS, control=CONTROL)

    def chat(self, sign=THOUGHT, open=""):
        path = os.path.join(self.folder, "t.jinja")
        with open_file(path) as f:
            f.write("{# " + sign + " #}" + TURNS + open)
        return ["run", *cli.GREEDY, "-m", self.path, "--chat-template", path]

    def says(self, want, *args, **more):
        r = self.ok(*args, **more)
        self.assertEqual(r.text, want)
        return r

    def test_marked(self):
        self.says(SHOWN, *self.chat(), "-p", "A")
        self.says("Just text.\n", *self.chat(), "-p", "B")
        self.says("At once.\n", *self.chat(), "-p", "D")
        self.says("[Start thinking]\nSo\n[End thinking]\n\nNo.\n", *self.chat(open="<think>\t"), "-p", "x")

    def test_channels(self):
        self.says(SHOWN, *self.chat(CHANNEL + "analysis"), "-p", "E")

    def test_hidden(self):
        for sign, letter in ((THOUGHT, "A"), (CHANNEL + "analysis", "E")):
            self.says("Yes.\n", *self.chat(sign), "-p", letter, "--hide-thoughts")
        self.says("\n", *self.chat(), "-p", "L", "-n", 20, "--hide-thoughts")  # an empty answer is seen as such
        self.says("Yes.\n", *self.chat(), "-p", "A", "--hidethinking")  # as Ollama has it

    def test_cut(self):
        self.says("[Start thinking]\nHm\n[End thinking]\n", *self.chat(), "-p", "A", "-n", 2)

    def test_templates_without_thoughts(self):
        self.says("\nHm, \u00e9.\n\n\nYes.\n", *self.chat("none"), "-p", "A")  # control tokens are hidden, as ever

    def test_texts_are_not_taken_apart(self):
        self.says("So</think>No.\n", "run", *cli.GREEDY, "-m", self.path, "-p", "\t")

    def test_a_model_with_a_template_chats(self):
        """From arguments, files and standard input, but for --raw; an empty answer says why it is empty."""
        path, none = os.path.join(self.folder, "chats.gguf"), os.path.join(self.folder, "none.gguf")
        for file, meta in ((path, {"tokenizer.chat_template": TURNS + "{{ messages|length if messages[0].content != 'Z' else '' }}"}), (none, {})):
            answers.write(file, {"1": ["Once."], "3": ["Twice."], "Q": [THINK], "Z": []}, control=CONTROL, meta=meta)
        run = ["run", *cli.GREEDY, "-m", path]
        self.says("Once.\n", *run, "-p", "Q")
        self.says("Once.\n", *run, stdin=b"Q\nQ\n")
        self.says("Once.\nTwice.\n", *run, "--chat", stdin=b"Q\nQ\n")
        self.says("Once.\n", *run, "--raw", "-p", "1")
        self.fails(cli.USAGE, "standard input is empty, so there is nothing to answer", *run)
        for model, args, text, why in ((path, [], "Z", "the model ended it at once\n"), (path, ["--raw"], "Z", "ended it at once; without --raw it would chat"),
                                       (none, [], "Z", "ended it at once; it has no chat template"), (path, ["--raw"], "Q", "1 tokens, all control tokens")):
            r = self.ok("run", *cli.GREEDY, "-m", model, *args, "-p", text)
            self.assertEqual((r.text.strip(), r.err.count("the answer is empty: ")), ("", 1), r.err)
            self.assertIn(why, r.err)
        self.assertNotIn("is empty", self.ok(*run, "-p", "Q", "-n", 0).err)

    def test_later_turns_are_without_them(self):
        path = os.path.join(self.folder, "saved.json")
        self.says(SHOWN + "Just text.\n", *self.chat(), "--chat", stdin=f"A\nB\n/save {path}\n".encode())
        with open_file(path, "r") as f:
            self.assertEqual([m["content"] for m in json.load(f)], ["A", "Yes.", "B", "Just text."])

    def test_dimmed_on_a_terminal(self):
        with Terminal(*self.chat(), "-p", "A", "-q") as t:
            self.assertEqual(t.end(), 0)
            seen = t.seen.decode().replace("\r\n", "\n")
        pieces = seen.replace(PLAIN + DIM, "")  # however the answer was cut
        self.assertEqual(pieces, DIM + "[Start thinking]\nHm, \u00e9." + PLAIN + "\n" + DIM + "[End thinking]" + PLAIN + "\n\nYes.\n")

    def test_text_commands_no_terminal(self):
        """Escape sequences, C1 and marks that turn the direction of text are written out there; a pipe has them as they are."""
        path, text = os.path.join(self.folder, "hostile.gguf"), "a\x1b]0;x\x07b\u009b2J\u202ec\u2066\u061c\r\td\u200d\u05d0"
        answers.write(path, {"Q": [text], "R": [THINK + "\x1b[2J" + THOUGHT + "e"]}, size=100, meta={"tokenizer.chat_template": "{# " + THOUGHT + " #}" + TURNS})
        run = ["run", *cli.GREEDY, "-q", "-m", path]
        for more in ([], ["--raw"]):
            self.assertEqual(self.ok(*run, *more, "-p", "Q").text, text + "\n")
            with Terminal(*run, *more, "-p", "Q") as t:
                self.assertEqual(t.end(), 0)
                self.assertEqual(t.seen.decode(), "a\\x1b]0;x\\x07b\\xc2\\x9b2J\\xe2\\x80\\xaec\\xe2\\x81\\xa6\\xd8\\x9c\\x0d\td\u200d\u05d0\r\n")
        with Terminal(*run, "-p", "R") as t:
            self.assertEqual(t.end(), 0)
            self.assertIn("\\x1b[2J", t.seen.decode().replace(PLAIN + DIM, ""))

    def test_plain_without_colours(self):
        for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": None}):
            with Terminal(*self.chat(), "-p", "A", "-q", env=env) as t:
                self.assertEqual(t.end(), 0)
                self.assertEqual(t.seen.decode().replace("\r\n", "\n"), SHOWN, env)

    def test_stopped_within(self):
        """What was thought is no answer: the message is left out, and the terminal is as it was."""
        slow = ["WEFT_FORCE=gemm=ref,attention=ref"]
        with Terminal(*self.chat(), "--chat", "--ignore-eos", *slow) as t:
            t.until(rb"Ctrl-D exits[^>]*> ")
            t.type("L\n")
            t.until(rb"thinking\]\W+0m\W+2mlo")
            t.type("\x03")
            text = t.until(rb"left out of the conversation")
            self.assertIn("[End thinking]" + PLAIN, text)
            self.assertIn("stopping", text)
            t.until(rb"> ")
            t.type("\x04")
            self.assertEqual(t.end(), 0)


def open_file(path, mode="w"):
    return open(path, mode, encoding="utf-8")


if __name__ == "__main__":
    cli.main()
