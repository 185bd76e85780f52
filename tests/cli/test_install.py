#!/usr/bin/env python3
"""`meson install` into an empty folder: what lies where, the programs of examples/ built by what pkg-config says, the installed program with
the kernel choices that are installed, and the systemd unit of examples/.

    test_install.py BUILD
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import cli

BUILD = os.path.abspath(sys.argv.pop(1))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HAVE_PAGES = os.path.isdir(os.path.join(BUILD, "src", "cli", "pages", "man1"))
PROGRAM = """#include <weft/weft.h>
#include <stdio.h>
int main(void)
{
    struct weft_model *m = NULL;
    if (weft_model_open(&(struct weft_model_params){.path = WEFT_DEMO}, &m)) return 1;
    printf("%s %u\\n", weft_version(), (unsigned)weft_model_info(m)->n_layer);
    weft_model_close(m);
    return 0;
}
"""


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **more)


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temp.cleanup)
        cls.dest = temp.name
        done = run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", cls.dest)
        assert done.returncode == 0, done.stdout + done.stderr
        pc, = (os.path.join(where, "weft.pc") for where, _, names in os.walk(cls.dest) if "weft.pc" in names)
        cls.prefix = re.search(r"^prefix=(.*)$", pathlib.Path(pc).read_text(encoding="utf-8"), re.M).group(1)
        cls.env = {**os.environ, "PKG_CONFIG_LIBDIR": os.path.dirname(pc), "PKG_CONFIG_SYSROOT_DIR": cls.dest}

    def ok(self, *command, **more):
        done = run(*command, **more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def installed(self, *path):
        path = os.path.join(self.dest + self.prefix, *path)
        self.assertTrue(os.path.exists(path), path)
        return path

    def test_files(self):
        for path in ("include/weft/weft.h", "include/weft/debug.h", "bin/weft"):
            self.installed(*path.split("/"))
        shipped = {n for n in os.listdir(os.path.join(ROOT, "tuned")) if n.endswith(".tune")}
        self.assertTrue(shipped)
        self.assertEqual(shipped | {"plans"}, set(os.listdir(self.installed("share", "weft", "tuned"))))
        self.assertEqual(set(os.listdir(os.path.join(ROOT, "tuned", "plans"))), set(os.listdir(self.installed("share", "weft", "tuned", "plans"))))

    def test_documents_and_unit(self):
        for path in ("README.md", "LICENSE", "docs/serving.md", "examples/haproxy.cfg", "examples/stream.c", "examples/several.py"):
            self.installed("share", "doc", "weft", *path.split("/"))
        with open(self.installed("lib", "systemd", "system", "weft@.service"), encoding="utf-8") as f:
            self.assertIn(f"\nExecStart={self.prefix}/bin/weft serve ", f.read())

    def test_documents_link_to_what_is_installed(self):
        """But for files of the sources, which say what they are by their folder."""
        sources = {"src", "cl", "cpu", "bench", "tests", "tuned", "models", "CONTRIBUTING.md"}
        top = self.installed("share", "doc", "weft")
        for where, _, names in os.walk(top):
            for name in (name for name in names if name.endswith(".md")):
                targets = re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", pathlib.Path(where, name).read_text(encoding="utf-8"))
                for target in targets:
                    path = os.path.relpath(os.path.normpath(os.path.join(where, target)), top)
                    if path.split("/")[0] not in sources:
                        self.assertTrue(os.path.exists(os.path.join(top, path)), f"{name}: {target} is not installed")

    @unittest.skipUnless(HAVE_PAGES, "needs other hardware: manual pages are made where the program runs without a sanitizer")
    def test_pages_and_completions(self):
        for path in ("man/man1/weft.1", "man/man1/weft-bench-ops.1", "bash-completion/completions/weft", "zsh/site-functions/_weft", "fish/vendor_completions.d/weft.fish"):
            self.installed("share", *path.split("/"))

    def test_no_folder_is_empty(self):
        self.assertEqual([where for where, folders, names in os.walk(self.dest) if not folders + names], [])

    def test_a_program_by_pkg_config(self):
        source = os.path.join(self.dest, "p.c")
        pathlib.Path(source).write_text(PROGRAM, encoding="utf-8")
        said = self.built(source).stdout.split()
        self.assertEqual(said[0], self.ok("pkg-config", "--modversion", "weft", env=self.env).strip())
        self.assertGreater(int(said[1]), 0)

    def built(self, source, *words, **more):
        """Runs a program that was built by what pkg-config says."""
        flags = self.ok("pkg-config", "--cflags", "--libs", "weft", env=self.env).split()
        libraries, = {f[2:] for f in flags if f.startswith("-L")}
        program = os.path.join(self.dest, os.path.basename(source)[:-2])
        self.ok("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", source, "-o", program, *flags)
        return run(program, *words, env={**os.environ, "LD_LIBRARY_PATH": libraries}, **more)

    def example(self, name, *words, **more):
        done = self.built(os.path.join(ROOT, "examples", name + ".c"), *words, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_stream(self):
        done = self.example("stream")
        self.assertGreater(len(done.stdout.split()), 20, done.stdout)
        self.assertRegex(done.stderr, r"[1-9]\d* tokens in, [1-9]\d* out")
        done = self.built(os.path.join(ROOT, "examples", "stream.c"), "/nowhere.gguf")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere.gguf", done.stderr)

    def test_batch(self):
        """Each answer is the one that its prompt gets alone."""
        prompts = ["One day a cat", "The sun was"]
        alone = [self.example("batch", "builtin:demo", prompt).stdout for prompt in prompts]
        self.assertEqual(self.example("batch", "builtin:demo", *prompts).stdout, "".join(alone))
        self.assertTrue(all(len(text) > 60 for text in alone), alone)

    def test_chat(self):
        said = self.example("chat", input="One day a cat\nThen it\n").stdout
        self.assertGreater(len(said.split()), 20, said)
        self.assertNotEqual(said, self.example("chat", input="Then it\n").stdout)

    def test_the_program(self):
        weft = self.installed("bin", "weft")
        self.assertIn("weft", self.ok(weft, "--version"))
        text = self.ok(weft, "run", "--device", "cpu", "-t", "1", "-q", "--greedy", "-p", "One day", "-n", "8")
        self.assertGreater(len(text.split()), 4, text)


class Unit(unittest.TestCase):
    """The unit file with the program that was built: systemd knows all that it says, and calls nothing in it unsafe."""

    def setUp(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is missing: ./setup.sh --test installs it")
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.path = os.path.join(temp.name, "weft@.service")
        self.text = pathlib.Path(ROOT, "examples", "weft@.service").read_text(encoding="utf-8")

    def verify(self, text):
        pathlib.Path(self.path).write_text(text, encoding="utf-8")
        return run("systemd-analyze", "verify", "--man=no", self.path)

    def test_verify(self):
        text = self.text.replace("/usr/local/bin/weft", os.path.join(BUILD, "src", "cli", "weft"))
        self.assertNotEqual(text, self.text)
        done = self.verify(text)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
        done = self.verify(text.replace("ProtectSystem=strict", "ProtectSystem=strikt"))
        self.assertIn("strikt", done.stdout + done.stderr, "a mistake is seen")

    def test_options(self):
        """Each option of its command line is one of `weft serve`."""
        command = re.search(r"^ExecStart=((?:.*\\\n)*.*)$", self.text, re.M).group(1)
        known = run(os.path.join(BUILD, "src", "cli", "weft"), "serve", "--help").stdout
        options = re.findall(r"(?<=\s)--[a-z-]+", command)
        self.assertGreater(len(options), 3)
        for option in options:
            self.assertIn(option + " ", known.replace("\n", " ") + " ")


if __name__ == "__main__":
    cli.main()
