#!/usr/bin/env python3
"""A build of the static library without the demo model: programs link it by what pkg-config says, and whoever asks for the model learns what
to do instead.

    test_static.py SOURCE MESON
"""
import os
import subprocess
import sys
import tempfile
import unittest

import cli

ROOT = os.path.abspath(sys.argv.pop(1))
MESON = sys.argv.pop(1).split()
OPTIONS = ["-Ddefault_library=static", "-Ddemo=false", "-Dopencl=disabled", "-Dcurl=disabled", "-Dbuildtype=plain"]


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, **more)


def ok(*command, **more):
    done = run(*command, **more)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


class Static(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temp.cleanup)
        build, cls.dest = (os.path.join(temp.name, name) for name in ("build", "dest"))
        said = ok(*MESON, "setup", build, ROOT, "--prefix=" + cls.dest, *OPTIONS)
        assert "the tests are not built" in said, said
        ok("ninja", "-C", build)
        ok(*MESON, "install", "-C", build, "--no-rebuild")
        cls.files = {name: os.path.join(where, name) for where, _, names in os.walk(cls.dest) for name in names}

    def program(self):
        """examples/stream.c."""
        places = ok("pkg-config", "--variable", "pc_path", "pkg-config").strip()
        env = {**os.environ, "PKG_CONFIG_LIBDIR": f"{os.path.dirname(self.files['weft.pc'])}:{places}"}
        flags = ok("pkg-config", "--static", "--cflags", "--libs", "weft", env=env).split()
        program = os.path.join(self.dest, "stream")
        ok("cc", "-std=c11", os.path.join(ROOT, "examples", "stream.c"), "-o", program, *flags)
        return program

    def test_library(self):
        self.assertIn("libweft.a", self.files)
        self.assertEqual([name for name in self.files if name.startswith("libweft.so")], [])

    def test_program(self):
        program = self.program()
        done = run(program, os.path.join(ROOT, "models", "demo.gguf"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(len(done.stdout.split()), 20, done.stdout)
        done = run(program)
        self.assertEqual(done.returncode, 1)
        self.assertIn("-Ddemo=false", done.stderr)

    def test_weft(self):
        done = run(self.files["weft"], "run", "-p", "a")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("-m FILE", done.stderr)
        done = run(self.files["weft"], "run", "--device", "cpu", "-q", "-m", os.path.join(ROOT, "models", "demo.gguf"), "-p", "One day", "-n", "8")
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    cli.main()
