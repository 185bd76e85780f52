"""The file of the model changes under a server."""
import os
import shutil
import tempfile
import unittest

import serve
from serve import Server, cli

TEXT = "One day, a little girl named Lily found a needle in her room."


class ModelFile(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "model.gguf")
        shutil.copy(cli.data("stories260K.gguf"), self.path)

    def start(self, copied):
        """copied: a file of more than a huge page is copied into memory; a small one is read in place."""
        if copied:
            with open(self.path, "ab") as f:
                f.write(bytes(4 << 20))
        s = Server("-m", self.path)
        self.ids = s.post("/tokenize", {"prompt": TEXT}).json["tokens"]
        self.text = s.complete().text
        return s

    def overwrite(self):
        """Other bytes in the same file, of the same size."""
        with open(self.path, "r+b") as f:
            f.write(bytes(os.path.getsize(self.path)))

    def check_tokens(self, s):
        self.assertEqual(s.post("/tokenize", {"prompt": TEXT}).json["tokens"], self.ids)
        self.assertEqual(s.post("/detokenize", {"tokens": self.ids[1:]}).json["content"], TEXT)

    def test_touched_or_replaced(self):
        for copied in (False, True):
            s = self.start(copied)
            os.utime(self.path)
            self.assertEqual(s.complete().text, self.text)
            os.rename(self.path, self.path + ".old")
            with open(self.path, "wb") as f:
                f.write(b"another file")
            self.check_tokens(s)
            self.assertEqual(s.complete().text, self.text)
            self.assertEqual(s.end()[0], 0)
            os.rename(self.path + ".old", self.path)

    def test_weights_in_memory_do_not_mind(self):
        s = self.start(copied=True)
        for change in (self.overwrite, lambda: os.truncate(self.path, 0)):
            change()
            self.check_tokens(s)
            self.assertEqual(s.complete().text, self.text)
            self.assertEqual(s.get("/health").status, 200)
        self.assertEqual(s.end()[0], 0)

    def test_weights_in_the_file_do(self):
        """No token of other weights is sent; the server says why and ends."""
        for change in (self.overwrite, lambda: os.truncate(self.path, 0), lambda: os.truncate(self.path, 5000)):
            shutil.copy(cli.data("stories260K.gguf"), self.path)
            s = self.start(copied=False)
            change()
            self.check_tokens(s)
            r = s.complete()
            self.assertEqual(r.status, 500, r.body)
            self.assertIn("changed on disk", r.error["message"])
            code, log = s.end()
            self.assertEqual(code, 5, log)
            self.assertIn("changed on disk", log)


if __name__ == "__main__":
    serve.main()
