#!/usr/bin/env python3
"""The scripts around the tests, with programs of ours in place of those that they call: no package is installed, nothing is built.

    harness_self.py SOURCES BUILD
"""
import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

# Says what it was called with; the first call that updates finds its lock taken.
APT = """#!/bin/sh
echo "$*" >>"$CALLS"
case $* in *update) [ -e "$CALLS.waited" ] || { : >"$CALLS.waited"; echo "E: Could not get lock /var/lib/apt/lists/lock"; exit 100; } ;; esac
"""
# Of meson: makes a build folder, and logs a test that was skipped; tests last until the build $UNTIL is made, or for two minutes.
MESON = """#!/bin/sh
echo "meson $*" >>"$CALLS"
case $1 in
setup) mkdir -p "$2" && : >"$2/build.ninja" ;;
test)
    case " $* " in *" --list "*) printf 'weft / %s\\n' "unit weights" "unit engine" "unit weights" "unit log" layers; exit ;; esac
    for _ in $(seq 1200); do grep -q "^meson setup .*${UNTIL:-}" "$CALLS" && break; sleep 0.1; done
    echo "tested $3" >>"$CALLS"
    mkdir -p "$3/meson-logs" && cp "$SKIPPED" "$3/meson-logs/testlog.json"
    ;;
esac
"""
NOTHING = "#!/bin/sh\n"
WRONG = "#!/bin/sh\necho \"the wrong $(basename \"$0\")\" >&2\nexit 99\n"


def numbers(path):
    with open(path, encoding="utf-8") as f:
        return [int(line) for line in f]


def ends(pid):
    """Whether the process does within a minute: nobody may be there who waits for it."""
    for _ in range(600):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                if f.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.1)
    return False


class Scripts(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.folder, self.calls = temp.name, os.path.join(temp.name, "calls")
        self.bin = os.path.join(self.folder, "bin")
        os.mkdir(self.bin)
        for name in ("python", "python3", "pip"):
            self.program(name, WRONG)

    def program(self, name, text):
        path = os.path.join(self.bin, name)
        pathlib.Path(path).write_text(text, encoding="utf-8")
        os.chmod(path, 0o755)

    def env(self, ci=False, **env):
        base = {k: v for k, v in os.environ.items() if k != "CI"}
        return {**base, "PATH": self.bin + ":" + os.environ["PATH"], "CALLS": self.calls, **({"CI": "true"} if ci else {}), **env}

    def run_script(self, *command, **env):
        return subprocess.run(command, cwd=self.folder, env=self.env(**env), capture_output=True, text=True, stdin=subprocess.DEVNULL)

    def said(self):
        return pathlib.Path(self.calls).read_text(encoding="utf-8").splitlines()

    # --- setup.sh ----------------------------------------------------------------------------------------

    def setup(self, *args):
        self.program("dpkg-query", "#!/bin/sh\nexit 1\n")
        self.program("sudo", "#!/bin/sh\nexec \"$@\"\n")
        self.program("apt-get", APT)
        self.program("sleep", NOTHING)
        p = self.run_script(os.path.join(SOURCES, "setup.sh"), *args)
        self.assertEqual(p.returncode, 0, p.stderr)
        return self.said()

    def test_setup_waits_for_locks(self):
        calls = self.setup("--test")
        self.assertEqual([line.split()[-1] for line in calls[:2]], ["update", "update"])
        for line in calls:
            self.assertIn("-o DPkg::Lock::Timeout=600", line)
        self.assertIn("oclgrind", calls[2])
        self.assertNotIn("aarch64", " ".join(calls))

    def test_the_longer_tier_has_a_cross_compiler(self):
        self.assertIn(" gcc-aarch64-linux-gnu ", " ".join(self.setup("--test", "--more")))

    def without_root(self, *absent):
        """setup.sh --test of a user without sudo, where these packages are absent."""
        self.program("dpkg-query", "#!/bin/sh\nfor package; do :; done\ncase $package in " + "|".join(absent) +
                     ") exit 1 ;; esac\necho 'install ok installed'\n")
        self.program("id", "#!/bin/sh\necho 1000\n")
        os.symlink(shutil.which("sh"), os.path.join(self.bin, "sh"))
        return self.run_script(os.path.join(SOURCES, "setup.sh"), "--test", PATH=self.bin)  # no sudo there

    def test_setup_without_root(self):
        p = self.without_root("gcc", "haproxy")
        self.assertEqual(p.returncode, 1)
        self.assertIn("need root to install: gcc haproxy\n", p.stderr)

    def test_setup_without_root_leaves_out_what_tests_skip(self):
        p = self.without_root("haproxy")
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertIn("need root to install: haproxy\n", p.stderr)

    def test_setup_refuses_what_it_does_not_know(self):
        self.assertEqual(self.run_script(os.path.join(SOURCES, "setup.sh"), "--more").returncode, 2)

    def test_setup_helps(self):
        """Nothing is installed, whatever stands behind."""
        for words in (["--help"], ["-h"], ["--test", "--help", "--frob"]):
            p = self.run_script(os.path.join(SOURCES, "setup.sh"), *words)
            self.assertEqual((p.returncode, p.stderr), (0, ""))
            for option in ("--test", "--more", "--dry-run"):
                self.assertIn(f"\n  {option} ", p.stdout)
            self.assertFalse(os.path.exists(self.calls))

    def dry_run(self, release, *args):
        """setup.sh --dry-run where nothing is installed, on the system that says this of itself."""
        for name in ("dpkg-query", "rpm", "pacman"):
            self.program(name, "#!/bin/sh\nexit 1\n")
        path = os.path.join(self.folder, "os-release")
        pathlib.Path(path).write_text(release, encoding="utf-8")
        return self.run_script(os.path.join(SOURCES, "setup.sh"), *args, WEFT_OS_RELEASE=path)

    def test_setup_knows_other_systems(self):
        for release, command, package in (("ID=debian\n", "apt-get install", "libpcre2-dev"), ("ID=ubuntu\nID_LIKE=debian\n", "apt-get install", "libpcre2-dev"),
                                          ("NAME=Debian\r\n\r\nID=debian\r\n", "apt-get install", "libpcre2-dev"),
                                          ('NAME="Fedora Linux"\nID=fedora\n', "dnf install", "pcre2-devel"), ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install", "pcre2-devel"),
                                          ("ID=arch\n", "pacman -S", "pcre2"), ("ID=manjaro\nID_LIKE=arch\n", "pacman -S", "pcre2")):
            p = self.dry_run(release, "--dry-run")
            self.assertEqual((p.returncode, p.stderr), (0, ""), release)
            self.assertTrue(p.stdout.startswith(command), p.stdout)
            self.assertIn(package, p.stdout.split(), release)
            self.assertEqual(p.stdout.count("\n"), 1)
            self.assertFalse(os.path.exists(self.calls), "a dry run calls no program")

    def test_setup_installs_nothing_where_it_was_not_tried(self):
        for program in ("dnf", "pacman"):
            self.program(program, WRONG)
        p = self.dry_run("ID=fedora\n")
        self.assertEqual((p.returncode, p.stdout), (1, ""))
        self.assertIn("    dnf install -y gcc ", p.stderr)
        self.program("rpm", NOTHING)  # all is there
        self.assertEqual(self.run_script(os.path.join(SOURCES, "setup.sh"), WEFT_OS_RELEASE=os.path.join(self.folder, "os-release")).returncode, 0)

    def test_setup_says_what_is_needed_elsewhere(self):
        for release in ("ID=slackware\n", ""):
            p = self.dry_run(release, "--dry-run")
            self.assertEqual((p.returncode, p.stdout), (1, ""))
            for text in ("are not known", "PCRE2\n", "meson setup build"):
                self.assertIn(text, p.stderr)

    def test_shell_scripts(self):
        if not shutil.which("shellcheck"):
            self.skipTest("shellcheck is missing: ./setup.sh --test installs it")
        scripts = ["setup.sh", "demo.sh", "debian/tests/program", "debian/tests/library", *glob.glob("tests/packages/*.sh", root_dir=SOURCES)]
        p = subprocess.run(["shellcheck", "-x", *scripts], cwd=SOURCES, capture_output=True, text=True)
        self.assertEqual((p.returncode, p.stdout), (0, ""))

    # --- demo.sh -----------------------------------------------------------------------------------------

    def test_demo_helps_and_refuses_what_it_does_not_know(self):
        """Nothing is installed or built."""
        shutil.copy(os.path.join(SOURCES, "demo.sh"), self.folder)
        self.program(os.path.join(self.folder, "setup.sh"), "#!/bin/sh\necho setup >>\"$CALLS\"\nexit 1\n")
        for words, code in (["--help"], 0), (["-h"], 0), (["--frob"], 2):
            p = self.run_script("./demo.sh", *words)
            self.assertEqual((p.returncode, bool(p.stdout), bool(p.stderr)), (code, code == 0, code == 2))
            self.assertFalse(os.path.exists(self.calls))
        self.assertEqual(self.run_script("./demo.sh").returncode, 1)
        self.assertEqual(self.said(), ["setup"])

    # --- test.sh -----------------------------------------------------------------------------------------

    def copy_sources(self, meson, ninja):
        os.makedirs(os.path.join(self.folder, "tests"))
        shutil.copy(os.path.join(SOURCES, "test.sh"), self.folder)
        shutil.copy(os.path.join(SOURCES, "tests", "count.py"), os.path.join(self.folder, "tests"))
        pathlib.Path(self.folder, "setup.sh").write_text("#!/bin/sh\necho \"setup.sh $*\" >>\"$CALLS\"\n", encoding="utf-8")
        os.chmod(os.path.join(self.folder, "setup.sh"), 0o755)
        os.makedirs(os.path.join(self.folder, "build-test", "site", "ollama"))  # as if the clients had been installed
        self.program("meson", meson)
        self.program("ninja", ninja)

    def stage(self, *args, reason, ci, ninja=NOTHING, until="", turn=""):
        """Stages in a copy of the sources, all of whose tests are skipped for that reason."""
        self.copy_sources(MESON, ninja)
        log = os.path.join(self.folder, "log.json")
        with open(log, "w", encoding="utf-8") as f:
            f.write(json.dumps({"name": "unit engine", "result": "SKIP", "stdout": f"skipped: {reason}\n"}))
        for run_by_itself in ("src/cli/weft", "tests/op/op_test"):
            path = os.path.join(self.folder, "build-test", "tsan", run_by_itself)
            os.makedirs(os.path.dirname(path))
            self.program(path, NOTHING)
        p = self.run_script("./test.sh", *args, ci=ci, SKIPPED=log, UNTIL=until, **({"WEFT_TEST_TURN": turn} if turn else {}))
        return p.returncode, p.stdout.splitlines()

    def test_a_skip_fails_where_ci_is_set(self):
        code, out = self.stage("tsan", reason="a program is missing", ci=True)
        self.assertEqual((code, out[-1]), (1, "3 passed, 1 failed, 0 skipped"))
        self.assertIn("unit engine (skipped where CI is set: a program is missing)", "\n".join(out))
        again = out[out.index("failed:"):]  # for who sees only the end
        self.assertEqual([line.strip() for line in again[1:3]], ["unit engine (skipped where CI is set: a program is missing), "
                                                                 "concurrency with the thread sanitizer, and what is without OpenCL and CBC:",
                                                                 "skipped: a program is missing"])

    def test_a_skip_is_counted_elsewhere(self):
        code, out = self.stage("tsan", reason="a program is missing", ci=False)
        self.assertEqual((code, out[-1]), (0, "3 passed, 0 failed, 1 skipped"))
        self.assertIn("unit engine: a program is missing", "\n".join(out))

    def test_what_needs_other_hardware_is_named(self):
        code, out = self.stage("tsan", reason="needs other hardware: a moon", ci=True)
        self.assertEqual((code, out[-1]), (0, "3 passed, 0 failed, 1 skipped"))
        self.assertIn("unit engine: needs other hardware: a moon", "\n".join(out))

    def test_tests_keep_the_order_of_meson(self):
        """Which is that of their lengths; meson runs those that are named in the order of their names."""
        self.stage("tsan", reason="", ci=False)
        run, = (line for line in self.said() if "--print-errorlogs" in line)
        self.assertTrue(run.endswith(" unit weights unit engine"), run)

    def test_the_next_stage_is_built_beside_tests(self):
        self.stage("tsan", "fuzz", reason="", ci=False, until="/fuzz ")
        begun, = (i for i, line in enumerate(self.said()) if line.startswith("meson setup ") and "/fuzz " in line)
        ended, = (i for i, line in enumerate(self.said()) if line.startswith("tested ") and line.endswith("/tsan"))
        self.assertLess(begun, ended)

    def test_nothing_runs_of_a_build_that_failed(self):
        code, out = self.stage("tsan", reason="", ci=False, ninja=WRONG)
        self.assertEqual((code, out[-1]), (1, "0 passed, 1 failed, 0 skipped"))
        self.assertIn("      the wrong ninja", out)

    def ended_by(self, number, pids):
        """Sends test.sh a signal while tests of a stage and the build of the next one run, whose processes add their ids to that file."""
        def heed():  # what started this test may have them ignored, as nohup does
            signal.signal(number, signal.SIG_DFL)

        with subprocess.Popen(["./test.sh", "plain", "fuzz"], cwd=self.folder, env=self.env(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              preexec_fn=heed) as p:
            while not os.path.exists(pids) or len(ids := numbers(pids)) < 2:
                self.assertIsNone(p.poll())
                time.sleep(0.05)
            p.send_signal(number)
            return p.wait(), ids

    def test_a_signal_ends_all_that_runs(self):
        """At once, not when the tests in front have ended."""
        pids = os.path.join(self.folder, "pids")
        stay = f'echo $$ >>"{pids}"; exec sleep 600'
        self.copy_sources(meson=f'#!/bin/sh\ncase "$*" in setup*) mkdir -p "$2" ;; *--list*) echo "weft / layers" ;; test*) {stay} ;; esac\n',
                          ninja=f'#!/bin/sh\ncase "$*" in *fuzz*) {stay} ;; esac\n')
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            code, ids = self.ended_by(number, pids)
            self.assertEqual(code, 128 + number)
            self.assertTrue(all(ends(pid) for pid in ids))
            os.remove(pids)

    def ran(self):
        run, = (line for line in self.said() if "--print-errorlogs" in line)
        return run.partition(" -t 5 ")[2]

    def test_each_test_runs_in_one_build(self):
        """Which one is that of those that sanitizers watch changes by turns."""
        plain = []
        for turn in ("2", "3"):
            runs = {}
            for name in ("plain", "asan"):
                self.setUp()
                self.stage(name, reason="", ci=False, turn=turn)
                self.assertEqual(self.said()[0], "setup.sh --test --more")
                runs[name] = self.ran()
            self.assertNotIn("layers", runs["asan"])
            self.assertIn("layers", runs["plain"])
            for unit in ("unit weights", "unit engine", "unit log"):
                self.assertNotEqual(unit in runs["plain"], unit in runs["asan"], f"{unit} at turn {turn}")
            plain += [runs["plain"]]
        self.assertEqual(["unit weights" in run for run in plain], [False, True])

    def test_parts_follow_from_the_commit(self):
        def git(*words):
            subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words], cwd=self.folder, check=True, capture_output=True)

        def chosen():
            return next(line for line in self.run_script("./test.sh", "tsan", CI="").stdout.splitlines() if line.startswith("turn "))

        self.copy_sources(MESON, WRONG)
        os.mkdir(os.path.join(self.folder, "cl"))
        git("init", "-q")
        for name in ("cl/kernel.cl", "README.md"):
            pathlib.Path(self.folder, name).write_text("text\n", encoding="utf-8")
            git("add", "cl", "tests", "setup.sh", name)
            git("commit", "-qm", name)
        first = chosen()
        for part in ("cl=", "cpu=", "model=", "packages=1/3"):
            self.assertIn(part, first)
        self.assertEqual(chosen(), first)
        with open(os.path.join(self.folder, "cl", "kernel.cl"), "a", encoding="utf-8") as f:
            f.write("more\n")
        self.assertNotIn("cl=", chosen())
        self.assertIn("cpu=", chosen())

    def test_quick(self):
        """It builds once, and runs what has the word."""
        code, out = self.stage("quick", "weig", reason="a program is missing", ci=False)
        self.assertEqual((code, out[-1]), (0, "0 passed, 0 failed, 1 skipped"))
        self.assertTrue(self.ran().endswith("unit weights"), self.said())
        self.assertNotIn("engine", self.ran())
        self.assertFalse(any(line.startswith("setup.sh") for line in self.said()))
        self.assertEqual(self.run_script("./test.sh", "quick", "nothing of that name").returncode, 2)

    def test_integration_sets_ci_and_runs_both_tiers(self):
        os.mkdir(os.path.join(self.folder, ".ci"))
        shutil.copy(os.path.join(SOURCES, ".ci", "run"), os.path.join(self.folder, ".ci"))
        pathlib.Path(self.folder, "test.sh").write_text("#!/bin/sh\necho \"CI=$CI $*\"\nexit 3\n", encoding="utf-8")
        os.chmod(os.path.join(self.folder, "test.sh"), 0o755)
        p = self.run_script("bash", ".ci/run")
        self.assertEqual((p.returncode, p.stdout), (3, "CI=true --all\n"))


class Environment(unittest.TestCase):
    @unittest.skipUnless(shutil.which("meson"), "no meson to call")
    def test_nothing_from_outside(self):
        env = {**os.environ, "OPENBLAS_CORETYPE": "Haswell", "WEFT_CLBUILD": "none"}
        p = subprocess.run(["meson", "test", "-C", BUILD, "--no-rebuild", "--logbase", "inner", "environment"], env=env, capture_output=True, text=True)
        self.assertEqual(p.returncode, 0, p.stdout)


class Interpreter(unittest.TestCase):
    def test_every_test_has_this_one(self):
        with open(os.path.join(BUILD, "meson-info", "intro-tests.json"), encoding="utf-8") as f:
            scripts = [t for t in json.load(f) if any(word.endswith(".py") for word in t["cmd"])]
        self.assertGreater(len(scripts), 20)
        for t in scripts:
            self.assertEqual(t["cmd"][0], sys.executable, t["name"])


if __name__ == "__main__":
    BUILD, SOURCES = (sys.argv.pop() for _ in range(2))
    unittest.main()
