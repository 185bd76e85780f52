"""The commands in README.md work as they are written there, and its links lead somewhere."""
import os
import re
import subprocess
import tempfile
import unittest

import cli

with open(os.path.join(cli.ROOT, "README.md"), encoding="utf-8") as f:
    README = f.read()
BUILT = "build/src/cli/weft"


def lines():
    for block in re.findall(r"```sh\n(.*?)```", README, re.S):
        yield from block.splitlines()


class Readme(cli.TestCase):
    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temp.cleanup)
        cls.folder = temp.name  # one line writes a file, another one reads it

    def run_line(self, line):
        """With the program under test in place of the one that the line names, and a folder of ours for build/."""
        line = re.sub(r"\bbuild/", self.folder + "/", line.replace(BUILT, '"$WEFT"'))
        p = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=cli.ROOT, stdin=subprocess.DEVNULL,
                           capture_output=True, timeout=240, env={**os.environ, "WEFT": cli.WEFT})
        self.assertEqual(p.returncode, 0, f"{line}\n{p.stderr.decode()}")
        return p.stdout

    def test_commands(self):
        run = [line for line in lines() if line.startswith(BUILT)]
        self.assertGreaterEqual(len(run), 6)
        for line in run:
            with self.subTest(line):
                self.assertTrue(self.run_line(line) or ".npy" in line)

    def test_commands_with_a_model_of_ones_own(self):
        model = cli.data("stories260K.gguf")
        run = [line for line in lines() if line.startswith("weft ") and not re.match("weft (bench )?serve", line)]  # tests/serve, bench_serve
        self.assertGreaterEqual(len(run), 4)
        for line in run:
            with self.subTest(line):
                line = line.replace("weft ", BUILT + " ", 1).replace("model.gguf", f"'{model}'")
                self.assertTrue(self.run_line(line))

    def test_scripts_and_links(self):
        for name in re.findall(r"(?m)^\./(\S+)", README):
            self.assertTrue(os.access(os.path.join(cli.ROOT, name), os.X_OK), name)
        for target in re.findall(r"\]\(([^)#]+)\)", README):
            self.assertTrue(os.path.exists(os.path.join(cli.ROOT, target)), target)

    def test_folders_exist(self):
        table = README[README.index("## Folders in reading order"):README.index("## Add one thing")]
        for folder in re.findall(r"`((?:src/|include/)?\w+/(?:\w+/)?)`", table):
            self.assertTrue(os.path.isdir(os.path.join(cli.ROOT, folder)), folder)

    def test_exit_codes_are_those_of_the_help(self):
        codes = set(map(int, re.findall(r"(?m)^  (\d+) ", self.ok("--help").text)))
        text = README[README.index("Exit codes:"):]
        text = text[:text.index("\n\n")]
        self.assertEqual(codes, set(map(int, re.findall(r"\b(\d+) [a-z]", text))))


if __name__ == "__main__":
    cli.main()
