"""cl/embed.py: every kernel and part is in the table; what is included and missing fails; ninja hears of all that was read."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

EMBED = sys.argv.pop(1)


class Embed(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.top = pathlib.Path(held.name).resolve()
        self.kernels, self.lists = self.top / "a kernels", self.top / "lists"
        self.put("one.cl", '#include "common.clh"\n#include "deep/part.clh"\n')
        self.put("common.clh", "\n")
        self.put("deep/part.clh", "int part;\n")
        self.put("README.md", "not a kernel\n")
        self.put("a/few.def", "1, 2,\n", self.lists)
        self.put("few.c", "not a list\n", self.lists)

    def put(self, name, text, folder=None):
        path = (folder or self.kernels) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def embed(self):
        return subprocess.run([sys.executable, EMBED, "out.c", "out.d", "/usr/libexec", str(self.kernels), str(self.lists)], cwd=self.top, capture_output=True, text=True)

    def test_all_are_there(self):
        self.assertEqual(self.embed().stderr, "")
        text = (self.top / "out.c").read_text()
        for name in ("one.cl", "common.clh", "deep/part.clh", "a/few.def"):
            self.assertEqual(text.count(f'{{"{name}", s'), 1, text)
        self.assertNotIn("README", text)
        self.assertNotIn("few.c", text)
        self.assertIn(f"{{{','.join(map(str, b'int part;'))},10,0}}", text)

    def test_what_is_missing_fails(self):
        self.put("deep/part.clh", '#include "deep/other.clh"\n')
        r = self.embed()
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("deep/part.clh includes deep/other.clh", r.stderr)
        self.assertFalse((self.top / "out.c").exists())

    def test_what_a_condition_hides_fails(self):
        self.put("deep/part.clh", '#ifndef WF_PART\n#include "common.clh"\n#endif\n')
        self.put("one.cl", '#if SOME\n#include "deep/part.clh"\n#endif\n#include "common.clh"\n')
        r = self.embed()
        self.assertEqual(r.stderr, "one.cl: the first #include of common.clh stands in an #if: include it above\n")
        self.put("one.cl", '#include "common.clh"\n#if SOME\n#include "deep/part.clh"\n#endif\n')
        self.assertEqual(self.embed().stderr, "")

    def test_depfile(self):
        self.embed()
        out, read = (self.top / "out.d").read_text().split(": ")
        self.assertEqual(out, "out.c")
        paths = [self.kernels, *(self.kernels / name for name in ("deep", "one.cl", "common.clh", "deep/part.clh")),
                 *(self.lists / name for name in ("", "a", "a/few.def"))]
        self.assertEqual(sorted(read.split("\n")[0].replace("\\ ", "?").split(" ")), sorted(str(p).replace(" ", "?") for p in paths))


unittest.main(verbosity=2)
