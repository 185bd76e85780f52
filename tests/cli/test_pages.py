#!/usr/bin/env python3
"""Manual pages and completions, made from the tables: each command and option of --help is there, man and mandoc have nothing to say about
the pages, and real shells complete.

    test_pages.py FOLDER
"""
import glob
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import cli

FOLDER = os.path.abspath(sys.argv.pop(1))
BASH, ZSH, FISH = (os.path.join(FOLDER, name) for name in ("weft", "_weft", "weft.fish"))
PATH = os.path.dirname(cli.WEFT) + ":" + os.environ["PATH"]


def needs(program):
    if not shutil.which(program):
        raise unittest.SkipTest(f"{program} is missing: ./setup.sh --test installs it")
    return program


def read(path):
    return pathlib.Path(path).read_text(encoding="utf-8")


def run(*command, **more):
    env = {**os.environ, "PATH": PATH, "LC_ALL": "C.UTF-8", **more.pop("env", {})}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env, **more)
    return done.returncode, done.stdout, done.stderr


def commands():
    return re.findall(r"(?m)^  ([a-z]+(?: [a-z]+)?) +[A-Z]", cli.weft("--help").text)


def options(command):
    """Spellings of each option, as --help has them."""
    for letter, name in re.findall(r"(?m)^  (?:-(\w), )?--([\w-]+)", cli.weft(*command.split(), "--help").text):
        yield ([f"-{letter}"] if letter else []) + [f"--{name}"]


class Tables(cli.TestCase):
    """What --help says is everywhere."""

    def everywhere(self, command):
        page = read(os.path.join(FOLDER, "man1", f"weft-{command.replace(' ', '-')}.1"))
        bash = re.search(rf"(?ms)^    '{command}'\)\n(.*?)^        ;;", read(BASH)).group(1)
        zsh = re.search(rf"(?ms)^_weft_{command.replace(' ', '_')}\(\) {{\n(.*?)^}}", read(ZSH)).group(1)
        fish = "\n".join(re.findall(rf"(?m)^complete -c weft -n '__weft_command {command}' .*", read(FISH)))
        return page, bash, zsh, fish

    def test_commands_and_options(self):
        self.assertGreaterEqual(len(commands()), 20)
        for command in commands():
            page, bash, zsh, fish = self.everywhere(command)
            self.assertIn(f".BR weft\\-{command.replace(' ', chr(92) + '-')} (1)\n", read(os.path.join(FOLDER, "man1", "weft.1")))
            found = list(options(command))
            self.assertIn(["-h", "--help"], found)
            for spellings in found:
                with self.subTest(command=command, option=spellings):
                    self.assertIn(", ".join(f"\\fB{s}\\fR" for s in spellings).replace("-", "\\-"), page)
                    words = re.search("options='(.*)'", bash).group(1).split()
                    flags = " ".join(f"-l {s[2:]}" if s[1] == "-" else f"-s {s[1:]}" for s in spellings)
                    self.assertRegex(fish + "\n", rf"{flags}\s")
                    for spelling in spellings:
                        self.assertIn(spelling, words)
                        self.assertRegex(zsh, rf"[)*]{spelling}=?\[")

    def test_no_more_pages_than_commands(self):
        expected = {"weft.1", *(f"weft-{command.replace(' ', '-')}.1" for command in commands())}
        self.assertEqual(set(os.listdir(os.path.join(FOLDER, "man1"))), expected)

    def test_the_program_itself(self):
        page = read(os.path.join(FOLDER, "man1", "weft.1"))
        for text in (".SH VARIABLES", "WEFT_MODEL", ".SH EXIT CODES", "\\fB130\\fR", "\\fB\\-\\-list\\-devices\\fR", "\\fB\\-h, \\-\\-help\\fR"):
            self.assertIn(text, page)


    def test_values_that_completions_offer_are_all_there_are(self):
        """The messages about a wrong one list them."""
        demo = os.path.join(cli.ROOT, "models", "demo.gguf")
        for command, option, wrong in (("convert", "--type", ["-m", demo, "-o", "/absent/x", "--type", "x"]), ("bench", "--type", ["--shape", "llama3-8b", "WEFT_LAYERS=1", "--type", "x"]),
                                       ("plan", "--shape", ["--shape", "x"]), ("kernels", "--type", ["--shape", "M=1,N=64,K=64", "--type", "x"]),
                                       ("tune", "--type", ["--shape", "N=64,K=64", "--type", "x"]), ("bench ops", "--type", ["--type", "x"]),
                                       ("bench ops", "--op", ["--op", "x"]), ("bench throughput", "--policy", ["--policy", "x"])):
            with self.subTest(command=command, option=option):
                said = cli.weft(*command.split(), *cli.CPU[:2 * (command != "convert")], *wrong).err
                listed = re.search(r"(?:choose one of|use|it knows|some of) (.*?)(?:, got .*)?\n", said)
                bash = self.everywhere(command)[1]
                kind = re.search(rf"(?m)^ +(?:\S+ \| )*{option}(?: \| \S+)*\) kind='(.*)'", bash)
                self.assertEqual(kind[1].split(), re.findall(r"[\w.-]+", listed[1].replace(" or ", " ")), said)


class Pages(unittest.TestCase):
    def pages(self):
        pages = sorted(glob.glob(os.path.join(FOLDER, "man1", "*.1")))
        self.assertGreater(len(pages), 10)
        return pages

    def test_mandoc(self):
        needs("mandoc")
        for page in self.pages():
            code, out, err = run("mandoc", "-T", "lint", "-W", "style", page)
            self.assertEqual((code, out + err), (0, ""), page)
        with tempfile.NamedTemporaryFile("w", suffix=".1") as f:
            f.write(read(page).replace(".SH NAME", ".SN NAME"))
            f.flush()
            self.assertIn("SN", run("mandoc", "-T", "lint", f.name)[1], "a mistake is seen")

    def test_man(self):
        needs("man")
        for page in self.pages():
            code, out, err = run("man", "--warnings", "-l", page, env={"MANWIDTH": "80"})
            self.assertEqual((code, err), (0, ""), page)
            self.assertIn("SYNOPSIS", out)


class Terminal:
    """An interactive shell that has loaded a completion."""

    def __init__(self, *command, folder):
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.chdir(folder)
            os.execvpe(command[0], command, {"PATH": PATH, "TERM": "dumb", "HOME": folder, "LC_ALL": "C.UTF-8", "PS1": "> ", "INPUTRC": "/dev/null", "WEFT_CONFIG": ""})

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)

    def type(self, text):
        os.write(self.fd, text.encode())

    def until(self, wanted, seconds=60):
        """What is on the terminal when all of it has come; fails with it otherwise."""
        said, end = "", time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.fd], [], [], 0.5)[0]:
                said += os.read(self.fd, 65536).decode("utf-8", "replace")
            if all(word in said for word in wanted):
                return said
        raise AssertionError(f"{wanted} did not come: {said!r}")


class Shells(cli.TestCase):
    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temp.cleanup)
        cls.folder = temp.name
        for name in ("small.gguf", "large.gguf"):
            with open(os.path.join(cls.folder, name), "w", encoding="utf-8"):
                pass
        os.mkdir(os.path.join(cls.folder, "results"))

    # What is typed, what has to be offered, and what must not be.
    CASES = (
        ("weft ", ["run", "serve", "help", "--version"], ["bench ops", "--temp"]),
        ("weft be", ["bench"], ["run"]),
        ("weft bench ", ["ops", "throughput", "serve", "ablation"], ["run"]),
        ("weft help se", ["serve", "selftest"], ["run"]),
        ("weft run --de", ["--device", "--deterministic"], ["--temp"]),
        ("weft bench ops --ty", ["--type"], ["--device"]),
        ("weft run --device ", ["auto", "cpu", "gpu"], ["small.gguf"]),
        ("weft run --tier s", ["simd"], ["base"]),
        ("weft run --tier=s", ["simd"], ["base"]),
        ("weft run -m s", ["small.gguf"], ["large.gguf"]),
        ("weft run -n 4 s", ["small.gguf"], ["large.gguf", "serve"]),
        ("weft serve --policy ", ["nanoflow", "sarathi"], ["small.gguf"]),
        ("weft bench --results r", ["results"], ["small.gguf"]),
        ("weft run -n ", [], ["small.gguf"]),
        ("weft convert --type Q4", ["Q4_0", "Q4_K_M"], ["Q8_0", "small.gguf"]),
        ("weft kernels --type I", ["IQ2_XXS", "IQ4_NL"], ["I32", "F16"]),
        ("weft bench --shape llama3", ["llama3-8b", "llama3.2-1b"], ["llama2-7b", "small.gguf"]),
        ("weft bench throughput --policy ", ["orca", "nanoflow"], ["small.gguf"]),
    )

    def check(self, offered, but=()):
        for line, there, absent in self.CASES:
            if line in but:
                continue
            with self.subTest(line):
                words = offered(line)
                for word in there:
                    self.assertIn(word, words)
                for word in absent:
                    self.assertNotIn(word, words)

    def bash(self, line):
        """Calls the function as bash does, and prints what it offers."""
        script = 'source "$0"; COMP_LINE=$1; COMP_POINT=${#1}; _weft weft; printf "%s\\n" "${COMPREPLY[@]}"'
        code, out, err = run("bash", "--norc", "-c", script, BASH, line, cwd=self.folder)
        self.assertEqual((code, re.sub(".*compopt.*", "", err).strip()), (0, ""), line)
        return out.split("\n")

    def test_bash_offers(self):
        self.check(self.bash)
        self.assertEqual(self.bash("weft run --device opencl:9"), ["", ""])

    def test_bash_devices_have_colons(self):
        """A program in place of weft, whose device is then that of every machine."""
        with tempfile.TemporaryDirectory() as folder:
            weft = os.path.join(folder, "weft")
            pathlib.Path(weft).write_text("#!/bin/sh\necho 'opencl:3.1   GPU  80 GiB  One'\n", encoding="utf-8")
            os.chmod(weft, 0o755)
            script = 'source "$0"; COMP_LINE=$1; COMP_POINT=${#1}; _weft "$2"; echo "${COMPREPLY[*]}"'
            for line, offered in (("weft run --device o", "opencl:3.1"), ("weft run --device opencl:", "3.1"), ("weft run --device=opencl:3", "3.1")):
                self.assertEqual(run("bash", "--norc", "-c", script, BASH, line, weft)[1].strip(), offered, line)

    def test_fish_offers(self):
        needs("fish")
        self.assertEqual(run("fish", "--no-execute", FISH), (0, "", ""))
        with tempfile.TemporaryDirectory() as home:
            env = {"HOME": home, "XDG_CONFIG_HOME": home, "XDG_DATA_HOME": home}

            def offered(line):
                out = run("fish", "-N", "-c", "source $argv[1]; complete -C $argv[2]", FISH, line, cwd=self.folder, env=env)[1]
                return [word.removeprefix("--tier=").rstrip("/") for word in re.split(r"[\t\n]", out)]

            self.check(offered, but=["weft "])  # without a dash fish offers no options
            self.assertIn("run", offered("weft "))

    def interactive(self, shell, *first):
        terminal = Terminal(*shell, folder=self.folder)
        try:
            for line in first:
                terminal.type(line + "\n")
            terminal.type("echo rea''dy\n")
            terminal.until(["ready"])
            terminal.type("weft run --determ\t")
            terminal.until(["--deterministic"])
            terminal.type("-m sm\t")
            terminal.until(["small.gguf"])
            terminal.type("--tier \t\t")
            terminal.until(["neutral", "matrix"])
            terminal.type("\x15weft bench \t\t")
            terminal.until(["throughput", "serve"])
            terminal.type("\x15exit\n")
        finally:
            terminal.close()

    def test_bash_on_a_terminal(self):
        self.interactive(["bash", "--norc", "-i"], f"source {BASH}")

    def test_zsh_on_a_terminal(self):
        needs("zsh")
        self.assertEqual(run("zsh", "-n", ZSH), (0, "", ""))
        self.interactive(["zsh", "-f", "-i"], f"fpath=({FOLDER} $fpath); autoload -Uz compinit; compinit -u -d {self.folder}/dump")


if __name__ == "__main__":
    cli.main()
