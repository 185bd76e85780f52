"""tokenize and detokenize with vocabulary-only files, against ids that llama.cpp made."""
import pathlib
import tempfile

import cli

SEPARATOR = "\n__ggml_vocab_test__\n"


def cases(name):
    """Texts and their ids: pairs of <name>.gguf.inp and <name>.gguf.out."""
    with open(cli.data(f"vocab/{name}.gguf.inp"), encoding="utf-8", newline="") as f:
        texts = f.read().split(SEPARATOR)
    ids = [line.split() for line in pathlib.Path(cli.data(f"vocab/{name}.gguf.out")).read_text().split("\n")]
    return list(zip(texts, ids[:len(texts)]))


class Vocabularies(cli.TestCase):
    """Some texts of each; unit text_data has all."""

    def check(self, name):
        model = ["-m", cli.data(f"vocab/{name}.gguf")]
        pairs = cases(name)
        self.assertGreater(len(pairs), 40)
        for text, ids in pairs[::16]:
            r = self.ok("tokenize", *model, "--no-add-special", "WEFT_NO_PARSE_SPECIAL=1", stdin=text.encode())
            self.assertEqual(r.text, " ".join(ids) + "\n", repr(text))
            self.assertEqual(r.err, "")
            r = self.ok("detokenize", *model, stdin=" ".join(ids).encode())
            self.assertEqual(r.out, text.encode(), repr(text))

    def test_spm(self):
        self.check("llama-spm")

    def test_gpt2(self):
        self.check("gpt-2")

    def test_deepseek(self):
        self.check("deepseek-llm")


class Input(cli.TestCase):
    """The ways to give a text are the same; the built-in model has a vocabulary too."""

    def test_sources(self):
        text = "One day, a girl"
        want = self.ok("tokenize", "-p", text).out
        self.assertEqual(self.ok("tokenize", text).out, want)
        self.assertEqual(self.ok("tokenize", stdin=text.encode()).out, want)
        self.assertEqual(self.ok("tokenize", "-f", "-", stdin=text.encode()).out, want)
        with tempfile.NamedTemporaryFile() as f:
            f.write(text.encode())
            f.flush()
            self.assertEqual(self.ok("tokenize", "-f", f.name).out, want)
            self.assertEqual(self.ok("tokenize", f"--file={f.name}").out, want)

    def test_special(self):
        model = ["-m", cli.data("vocab/llama-spm.gguf")]
        with_bos = self.ok("tokenize", *model, "-p", "Hi").text.split()
        without = self.ok("tokenize", *model, "-p", "Hi", "--no-add-special").text.split()
        self.assertEqual(with_bos, ["1"] + without)
        self.assertEqual(self.ok("tokenize", *model, "-p", "</s>", "--no-add-special").text, "2\n")
        self.assertNotIn("2", self.ok("tokenize", *model, "-p", "</s>", "--no-add-special",
                                      "WEFT_NO_PARSE_SPECIAL=1").text.split())
        self.assertEqual(self.ok("detokenize", *model, "2", "WEFT_HIDE_SPECIAL=1").out, b"")
        self.assertEqual(self.ok("tokenize", *model, "--no-add-special").text, "\n")

    def test_bytes(self):
        """Any bytes come back as they were: NUL, invalid UTF-8, lone continuation bytes."""
        model = ["-m", cli.data("vocab/gpt-2.gguf")]
        for raw in (b"a\0b", b"\xff\xfe", b"\x80abc\xc3", bytes(range(256)), b"\xed\xa0\x80"):
            ids = self.ok("tokenize", *model, "--no-add-special", stdin=raw).out
            self.assertEqual(self.ok("detokenize", *model, stdin=ids).out, raw)

    def test_id_separators(self):
        want = self.ok("detokenize", "300 301 302").out
        for words in (["300", "301", "302"], ["300,301,302"], ["-p", "300, 301\n302\n"]):
            self.assertEqual(self.ok("detokenize", *words).out, want)


if __name__ == "__main__":
    cli.main()
