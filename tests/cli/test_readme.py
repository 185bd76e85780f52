"""The commands in README.md and docs/ work as they are written there, links lead somewhere, and the chart shows the results."""
import glob
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import cli
import supported

BUILT = "build/src/cli/weft"


def lines():
    for text in cli.documents().values():
        for block in re.findall(r"```sh\n(.*?)```", text, re.S):
            yield from block.splitlines()


class Documents(cli.TestCase):
    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temp.cleanup)
        cls.folder = temp.name  # one line writes a file, another one reads it

    def run_line(self, line):
        """Runs the line with the program under test instead of the one that it names, and a temporary folder for build/."""
        line = re.sub(r"\bbuild/", self.folder + "/", line.replace(BUILT, '"$WEFT"'))
        p = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=cli.ROOT, stdin=subprocess.DEVNULL,
                           capture_output=True, timeout=240, env={**os.environ, "WEFT": cli.WEFT})
        self.assertEqual(p.returncode, 0, f"{line}\n{p.stderr.decode()}")
        return p.stdout

    def test_commands(self):
        run = [line for line in lines() if re.match(rf"(WEFT_\w+=\S+ )*{BUILT}", line)]
        self.assertGreaterEqual(len(run), 10)
        for line in run:
            with self.subTest(line):
                self.assertTrue(self.run_line(line) or ".npy" in line)

    def test_commands_with_a_model_of_ones_own(self):
        model = cli.data("stories260K.gguf")
        run = [line for line in lines() if line.startswith("weft ") and not re.match("weft (bench )?(serve|pull)", line)]  # tests/serve, bench_serve, pull
        self.assertGreaterEqual(len(run), 6)
        for line in run:
            with self.subTest(line):
                line = line.replace("weft ", BUILT + " ", 1).replace("model.gguf", f"'{model}'")
                self.assertTrue(self.run_line(line))

    def test_supported_is_what_the_code_has(self):
        for path in supported.rows():
            text = cli.documents()[path]
            self.assertEqual(text, supported.rewritten(path, text), "tests/cli/supported.py --write makes these rows")

    def test_a_table_that_is_read_wrongly_is_noticed(self):
        text = cli.documents()["README.md"]
        for spoilt in (text.replace("| weights |", "| formats |"), text + "| weights | F32 |\n"):
            with self.assertRaisesRegex(AssertionError, "rows 'weights'"):
                supported.rewritten("README.md", spoilt)
        with self.assertRaisesRegex(AssertionError, "has nothing like"):
            supported.found(r"(?m)^Y\((\w+)\)", "src/model/archs.def")
        with self.assertRaisesRegex(AssertionError, "lacks words for {'rvv'}"):
            supported.in_words(supported.LEVELS, {"c", "rvv"}, "cpu/variants.c")

    def test_scripts_and_links(self):
        for path, text in cli.documents().items():
            for name in re.findall(r"(?m)^\./(\S+)", text):
                self.assertTrue(os.access(os.path.join(cli.ROOT, name), os.X_OK), name)
            for target, anchor in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]+))?\)", text):
                target = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
                self.assertTrue(os.path.exists(os.path.join(cli.ROOT, target)), f"{path}: {target}")
                if anchor:
                    self.assertIn(anchor, self.anchors(target), f"{path}: {target}")

    def anchors(self, path):
        return [re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in re.findall(r"(?m)^#+ (.*)", cli.documents()[path])]

    def test_every_document_is_linked(self):
        for path in cli.documents():
            if path != "README.md":
                self.assertIn(f"({path}", cli.documents()["README.md"])

    def test_named_tests_exist(self):
        """Those of docs/papers.md: files of their folder, or named where it lists its tests; `op opencl` has a test an op."""
        named = re.findall(r"`(unit|op|cli) ([a-z_ ]+)`", cli.documents()["docs/papers.md"])
        self.assertGreater(len(named), 20)
        listed = {kind: pathlib.Path(cli.ROOT, "tests", kind, "meson.build").read_text(encoding="utf-8") for kind in ("unit", "op", "cli")}
        ops = pathlib.Path(cli.ROOT, "src/dev/ops.def").read_text(encoding="utf-8").lower()
        for kind, name in named:
            text = ops if name.startswith("opencl ") else listed[kind]
            self.assertRegex(text, rf"\b{name.split()[-1]}\b", f"{kind} {name}")

    def test_readme_can_be_skimmed(self):
        self.assertLessEqual(cli.documents()["README.md"].count("\n"), 100)

    def test_folders_exist(self):
        text = cli.documents()["docs/architecture.md"]
        folders = re.findall(r"`((?:src/|include/)?\w+/(?:\w+/)?)`", text[text.index("## Folders in reading order"):text.index("## Add one thing")])
        for folder in folders:
            self.assertTrue(os.path.isdir(os.path.join(cli.ROOT, folder)), folder)
        for folder in glob.glob("src/*/", root_dir=cli.ROOT):
            self.assertIn(folder, folders)

    def test_exit_codes_are_those_of_the_help(self):
        codes = set(map(int, re.findall(r"(?m)^  (\d+) ", self.ok("--help").text)))
        text = cli.documents()["docs/command-line.md"]
        text = text[text.index("Exit codes:"):]
        text = text[:text.index("\n\n")]
        self.assertEqual(codes, set(map(int, re.findall(r"\b(\d+) [a-z]", text))))

    def test_figures_are_those_of_the_tables(self):
        text = cli.documents()["docs/reliability.md"]
        commands = re.findall(r"`(tests/serve/\w+\.py) --sum (\S+)`", text)
        self.assertEqual(len(commands), 2)
        for script, table in commands:
            p = subprocess.run([sys.executable, script, "--sum", table], cwd=cli.ROOT, capture_output=True, check=True)
            self.assertIn(p.stdout.decode(), text)

    def test_chart_shows_the_results(self):
        command = re.search(r"(?m)^    chart.py (.*) >(.*)", pathlib.Path(cli.ROOT, "bench", "chart.py").read_text(encoding="utf-8"))
        p = subprocess.run([sys.executable, "bench/chart.py", *command[1].split()], cwd=cli.ROOT, capture_output=True, check=True)
        self.assertEqual(pathlib.Path(cli.ROOT, command[2]).read_bytes(), p.stdout)


if __name__ == "__main__":
    cli.main()
