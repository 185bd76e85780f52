#!/usr/bin/env python3
"""Plants the bugs of tests/bugs.txt, one at a time, and looks whether the test that should notice each fails.

    tests/mutate.py                all bugs, an hour or so
    tests/mutate.py NAME...        only these
    tests/mutate.py --jobs N ...   N at a time (default 2)
    tests/mutate.py --times N ...  each has to be caught N times in a row, for a test that may be lucky
    tests/mutate.py --resume       all that the last run, ended or not, has not seen caught
    tests/mutate.py --list         names, tests and bugs
    tests/mutate.py --check BUILD  fast: every bug can be planted once, and names a test of that build
    tests/mutate.py --mend         where a function was renamed or merged, names the one that has the expression now

The last line is `N caught, N missed, N errors`; the exit code is 0 only if all are caught.

A bug is a paragraph of tests/bugs.txt:

    name: fair_ties
    test: unit fair          the test that has to fail
    args: --op gemm          words for its program, which choose the part that is meant; optional
    bug: what it breaks, in one line
    in: wf_fair_next         the function that has the bug, wherever it stands, or a file without functions (variants.def)
    replace: a < b           an expression that stands there once; blanks and line ends do not count
    with: a <= b             nothing: the expression is deleted

Verdicts are kept in build-mutate/verdicts, logs in build-mutate/NAME.log. Each job has a copy of the sources and a build there, which the next
run brings up to date. A test must pass without the bug first, else its failure would mean nothing. One that is skipped or runs into
the time limit has not noticed anything.
"""
import argparse
import concurrent.futures
import fcntl
import filecmp
import json
import os
import pathlib
import queue
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "build-mutate"
LIMIT_S = int(os.environ.get("MUTATE_LIMIT", 300))  # for a test
CODE = (".c", ".h", ".cl", ".clh", ".S")


# --- the list ----------------------------------------------------------------------------------------

def read_bugs():
    bugs = {}
    for paragraph in (ROOT / "tests/bugs.txt").read_text(encoding="utf-8").split("\n\n"):
        bug = dict(re.match(r"(\w+): ?(.*)", line).groups() for line in paragraph.splitlines() if line and line[0] != "#")
        if bug:
            bugs[bug["name"]] = bug
    return bugs


def sources():
    names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in names.stdout.split("\0") if name and (ROOT / name).is_file()]


def functions(text):
    """(header, begin, end) of each function: its brace stands in the first column, as its end does."""
    for brace in re.finditer(r"^\{.*$", text, re.M):
        begin = max(text.rfind(mark, 0, brace.start()) for mark in ("\n\n", "\n}\n", ";\n", "*/\n", "\n#")) + 1
        end = text.find("\n}", brace.end())
        yield text[begin:brace.start()], begin, end + 2 if end >= 0 else len(text)


def pattern(expression):
    """The expression with any blanks between its tokens."""
    tokens = [re.escape(token) for token in re.findall(r"\w+|[^\w\s]", expression)]
    edge = [r"\b" if re.match(r"\w", expression[at]) else "" for at in (0, -1)]
    return re.compile(edge[0] + r"\s*".join(tokens) + edge[1])


class Tree:
    """The sources as they are now, read once."""

    def __init__(self):
        self.text = {}
        for name in sources():
            if name.startswith(("src/", "cl/", "cpu/", "include/", "examples/", "bench/")) or "/" not in name:
                try:
                    self.text[name] = (ROOT / name).read_text(encoding="utf-8")
                except UnicodeDecodeError:
                    pass

    def places(self, bug):
        """(file, begin, end) of what the bug replaces: right is one."""
        found, wanted = [], pattern(bug["replace"])
        for name, text in self.text.items():
            if name.rsplit("/", 1)[-1] == bug["in"]:
                scopes = [(0, len(text))]
            elif name.endswith(CODE):
                named = re.compile(r"\b%s\s*\(" % re.escape(bug["in"]))
                scopes = [(begin, end) for header, begin, end in functions(text) if named.search(header)]
            else:
                continue
            for begin, end in scopes:
                found += [(name, *m.span()) for m in wanted.finditer(text, begin, end)]
        return found

    def homes(self, bug):
        """Names of the functions that have the expression."""
        wanted, homes = pattern(bug["replace"]), set()
        for name, text in self.text.items():
            if name.endswith(CODE) and wanted.search(text):
                for header, begin, end in functions(text):
                    called = re.findall(r"\b(\w+)\s*\(", re.sub(r"__attribute__\s*\(\(.*?\)\)", "", header))
                    if called and wanted.search(text, begin, end):
                        homes.add(called[0])
        return sorted(homes)


def check(bugs, build):
    tests = {test["name"] for test in json.loads((pathlib.Path(build) / "meson-info/intro-tests.json").read_text())}
    tree, flaws = Tree(), []
    for bug in bugs.values():
        missing = [key for key in ("test", "bug", "in", "replace", "with") if key not in bug]
        if missing:
            flaws.append(f"{bug['name']}: has no line {missing[0]}")
            continue
        if bug["test"] not in tests:
            flaws.append(f"{bug['name']}: the build has no test \"{bug['test']}\"")
        n = len(tree.places(bug))
        if n != 1:
            flaws.append(f"{bug['name']}: {bug['in']} has the expression {n} times; functions that have it: {', '.join(tree.homes(bug)) or 'none'}")
    print("\n".join(flaws) or f"{len(bugs)} bugs can be planted")
    return not flaws


def mend(bugs):
    tree, path = Tree(), ROOT / "tests/bugs.txt"
    text = path.read_text(encoding="utf-8")
    for bug in bugs.values():
        homes = tree.homes(bug)
        if len(tree.places(bug)) != 1 and len(homes) == 1 and len(tree.places(bug | {"in": homes[0]})) == 1:
            print(f"{bug['name']}: {bug['in']} -> {homes[0]}")
            text = re.sub(r"(?m)(^name: %s\n(?:.+\n)*?in: ).*" % re.escape(bug["name"]), lambda m: m.group(1) + homes[0], text)
    path.write_text(text, encoding="utf-8")


# --- planting ----------------------------------------------------------------------------------------

def copy_sources(tree):
    """Only what differs is written, with the time of now: a file whose bug was taken back may be older than objects that still have it."""
    listed, names = tree.with_suffix(".names"), sources()
    for gone in set(listed.read_text().splitlines() if listed.exists() else []) - set(names):
        (tree / gone).unlink(missing_ok=True)
    for name in names:
        at = tree / name
        if not at.exists() or not filecmp.cmp(ROOT / name, at, shallow=False):
            at.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, at)
            shutil.copymode(ROOT / name, at)
    listed.write_text("\n".join(names))
    shared = ROOT.parent / "shared"  # tests look for their data beside the sources
    if shared.exists() and not (OUT / "shared").exists():
        (OUT / "shared").symlink_to(shared.resolve())


class Job:
    def __init__(self, number, threads):
        self.tree, self.log, self.passed = OUT / str(number), OUT / f"{number}.log", {}
        self.threads, self.ready = threads, False

    def command(self, *words):
        env = {**os.environ, "XDG_CACHE_HOME": str(OUT / "cache"), "CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1"}
        with open(self.log, "a", encoding="utf-8") as log:
            return subprocess.run(words, cwd=self.tree, env=env, stdout=log, stderr=subprocess.STDOUT).returncode

    def prepare(self):
        copy_sources(self.tree)
        if not (self.tree / "build/build.ninja").exists() and self.command("meson", "setup", "build"):
            raise OSError(f"no build could be set up; see {self.log}")
        if self.command("ninja", "-C", "build", f"-j{self.threads}"):
            raise OSError(f"the sources do not build; see {self.log}")
        self.ready = True

    def verdict(self, bug):
        """passed, failed, skipped, no end, did not run, or does not build"""
        log = self.tree / "build/meson-logs/testlog.json"
        log.unlink(missing_ok=True)
        args = [f"--test-args={bug['args']}"] if bug.get("args") else []
        rc = self.command("meson", "test", "-C", "build", "--print-errorlogs", "--timeout-multiplier", str(LIMIT_S / 600), *args, bug["test"])
        if rc == 125:
            return "does not build"
        words = {"OK": "passed", "SKIP": "skipped", "TIMEOUT": "no end"}
        results = [words.get(json.loads(line)["result"], "failed") for line in open(log, encoding="utf-8")] if log.exists() else []
        return results[0] if results else "did not run"

    def plant(self, bug, times):
        self.log.unlink(missing_ok=True)
        if not self.ready:
            self.prepare()
        key = bug["test"], bug.get("args")
        if key not in self.passed:
            self.passed[key] = self.verdict(bug)
        if self.passed[key] != "passed":
            return f"ERROR {bug['name']}: \"{bug['test']}\" does not pass without the bug ({self.passed[key]})"
        places = Tree().places(bug)
        if len(places) != 1:
            return f"ERROR {bug['name']}: can be planted {len(places)} times; see --check"
        name, begin, end = places[0]
        path, began = self.tree / name, time.monotonic()
        text = path.read_text(encoding="utf-8")
        path.write_text(text[:begin] + bug["with"] + text[end:], encoding="utf-8")
        try:
            said = "failed"
            for _ in range(times):
                said = said if said != "failed" else self.verdict(bug)
        finally:
            path.write_text(text, encoding="utf-8")
            shutil.copyfile(self.log, OUT / f"{bug['name']}.log")
        if said == "does not build":
            return f"ERROR {bug['name']}: does not build; see {OUT / bug['name']}.log"
        return f"{'caught' if said == 'failed' else 'MISSED'} {bug['name']} ({bug['test']}: {said}, {time.monotonic() - began:.0f} s)"


def plant_all(bugs, jobs, times, resume):
    OUT.mkdir(exist_ok=True)
    running = open(OUT / "running", "w")
    try:
        fcntl.flock(running, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"mutate.py: another run uses {OUT}")
    verdicts = OUT / "verdicts"
    lines = [line for line in verdicts.read_text().splitlines() if line.startswith("caught ")] if resume and verdicts.exists() else []
    caught = {line.split()[1] for line in lines}
    verdicts.write_text("".join(line + "\n" for line in lines))
    left = [bug for bug in bugs if bug["name"] not in caught]
    idle = queue.Queue()
    for number in range(jobs):
        idle.put(Job(number, -(-os.cpu_count() // jobs)))

    def one(bug):
        job = idle.get()
        try:
            return job.plant(bug, times)
        except OSError as error:
            return f"ERROR {bug['name']}: {error}"
        finally:
            idle.put(job)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for i, future in enumerate(concurrent.futures.as_completed([pool.submit(one, bug) for bug in left]), 1):
            print(f"[{i} of {len(left)}] {future.result()}", flush=True)
            lines.append(future.result())
            with open(verdicts, "a", encoding="utf-8") as out:
                out.write(lines[-1] + "\n")
    n = {word: sum(line.startswith(word + " ") for line in lines) for word in ("caught", "MISSED", "ERROR")}
    print(f"{n['caught']} caught, {n['MISSED']} missed, {n['ERROR']} errors")
    return n["MISSED"] + n["ERROR"] == 0


def main():
    p = argparse.ArgumentParser(prog="tests/mutate.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="NAME")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--times", type=int, default=1)
    p.add_argument("--resume", action="store_true")
    p.add_argument("--list", action="store_true")
    p.add_argument("--check", metavar="BUILD")
    p.add_argument("--mend", action="store_true")
    o = p.parse_args()
    bugs = read_bugs()
    unknown = [name for name in o.names if name not in bugs]
    if unknown:
        p.error(f"there is no bug {unknown[0]}; see --list")
    if o.list:
        for bug in bugs.values():
            print(f"{bug['name']:32} {bug['test']:24} {bug['bug']}")
    elif o.check:
        sys.exit(not check(bugs, o.check))
    elif o.mend:
        mend(bugs)
    else:
        for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_NUM_THREADS", "OCL_ICD_VENDORS", "WEFT", "WEFT_CLBUILD", "PYTHONPATH", "PYTHONHOME"):
            os.environ.pop(name, None)  # nothing from outside changes what the tests see
        sys.exit(not plant_all([bugs[name] for name in o.names or bugs], o.jobs, o.times, o.resume))


if __name__ == "__main__":
    main()
