"""Devices in several processes, which mpirun starts: what ranks exchange, and that commands give what they give in one process."""
import os
import pathlib
import re
import sys
import tempfile
import unittest

import cli

# What Open MPI never frees was allocated in modules that it unloads, so that no suppression names them.
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"

UNIT = sys.argv.pop(1) if len(sys.argv) > 1 else None
RUN = ["run", *cli.CPU, "-p", "One day", "-n", 24, "--temp", 0, "-q", "--deterministic"]
BREAKING = {"one_fails_for_all": 2, "lengths_are_equal": 3, "nobody_waits_for_ever": 3}  # what breaks a group, with the ranks that it takes


class Mpi(cli.TestCase):
    def together(self, n, *args, **more):
        return cli.weft(*args, program=cli.mpirun(n, cli.WEFT), **more)

    def test_comm(self):
        """Each process passes the cases of tests/unit/comm.c, also those after which the group is broken."""
        for n in 2, 3, 4:
            for case in ("each_has_what_all_gave", "messages_keep_their_order", "one_engine_at_a_time", *BREAKING):
                if {**BREAKING, "one_engine_at_a_time": 2}.get(case, n) != n:
                    continue
                with self.subTest(processes=n, case=case):
                    r = cli.weft("comm", case, program=cli.mpirun(n, UNIT, "--enable-recovery"))
                    said = r.text + r.err
                    self.assertEqual(len(re.findall(r"PASSED  \] 1 test", said)), n, said)
                    if case not in BREAKING:
                        self.assertEqual(r.code, 0, said)

    def test_texts(self):
        """As with as many devices in one process, bit for bit."""
        for n, *layout in (2, "--tp", 2), (2, "--pp", 2), (4, "--tp", 2, "--pp", 2), (2, "--tp", 2, "--nano-batches", 2):
            with self.subTest(layout=layout):
                want = cli.weft(*RUN, *layout, "--device", ",".join(n * ["cpu"]))
                got = self.together(n, *RUN, *layout)
                self.assertEqual((want.code, got.code), (0, 0), got.err)
                self.assertEqual(got.text, want.text)
                self.assertEqual(got.text, cli.weft(*RUN).text)

    def test_devices(self):
        """One for all, or one for each."""
        self.assertEqual(self.together(2, *RUN, "--pp", 2, "--device", "cpu,cpu").text, cli.weft(*RUN).text)
        r = self.together(2, *RUN, "--pp", 2, "--device", "none-such,cpu")  # the first layers are of the last process
        self.assertEqual(r.code, cli.DEVICE, r.err)
        self.assertRegex(r.err, 'weft: error: process 1 on .*: no device "none-such"')

    def test_several_engines(self):
        """A benchmark opens one after the other; of those that are away the next one is opened when the last one is closed."""
        r = self.together(2, "bench", "throughput", *cli.CPU, "--tp", 2, "--const", "32:8", "--num-prompts", 6, "-c", 64)
        self.assertEqual(r.code, 0, r.err)
        self.assertEqual(len(re.findall(r"(?m)^\| (?:request|orca|sarathi|nanoflow) .* 6 \|", r.text)), 4, r.text)

    def test_mistakes(self):
        for code, words, args in ((cli.USAGE, "mpirun started 2 processes", [*RUN, "--tp", 3]),
                                  (cli.MODEL, "/none-such", [*RUN, "--tp", 2, "-m", "/none-such"]),
                                  (cli.OK, "", ["--version"])):
            with self.subTest(args=args):
                r = self.together(2, *args)
                self.assertEqual(r.code, code, r.err)
                self.assertIn(words, r.err)

    def test_one_device(self):
        """Each process is on its own, as often as a script wants."""
        one = cli.weft(*RUN).text
        r = cli.weft("-c", '"$@"; "$@"', "sh", cli.WEFT, *RUN, program=cli.mpirun(2, "sh"))
        self.assertEqual((r.code, sorted(r.text)), (0, sorted(4 * one)), r.err)  # they write at the same time

    def test_a_second_command(self):
        """MPI would end it."""
        r = cli.weft("-c", '"$@" && "$@"', "sh", cli.WEFT, *RUN, "--tp", 2, program=cli.mpirun(2, "sh"))
        self.assertEqual((r.code, r.text), (cli.MODEL, cli.weft(*RUN).text), r.err)
        self.assertIn("start each by an mpirun of its own", r.err)

    def test_another_model(self):
        """Files of one name and size in two folders, of which one differs in a bit."""
        model = pathlib.Path(cli.ROOT, "models", "demo.gguf").read_bytes()
        with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
            for folder, bit in (a, 0), (b, 4):
                pathlib.Path(folder, "m.gguf").write_bytes(model[:-100] + bytes([model[-100] ^ bit]) + model[-99:])
            for second, code in (a, cli.OK), (b, cli.MODEL):
                words = [*RUN, "--tp", 2, "-m", "m.gguf"]
                r = cli.weft(*words, ":", "-n", 1, "-wdir", second, cli.WEFT, *words, program=cli.mpirun(1, cli.WEFT, "-wdir", a))
                self.assertEqual(r.code, code, r.err)
                self.assertEqual("m.gguf is another model than in process 0" in r.err, second == b, r.err)

    def test_a_process_does_not_come(self):
        """The first one says so after a while; another one ends when it is told to."""
        r = cli.weft("WEFT_WATCHDOG=1000", *RUN, "--tp", 2, ":", "-n", 1, "sleep", 60, program=cli.mpirun(1))
        self.assertEqual(r.code, cli.LOST, r.err)
        self.assertIn("only some of 2 processes came within 6 s: is weft installed on each host", r.err)
        end = ["sh", "-c", '"$@" & sleep 3; kill $!; wait $!; echo code $?', "sh", cli.WEFT, *RUN, "--tp", 2]
        r = cli.weft("-n", 1, *end, program=[*cli.mpirun(1, "sleep", "--enable-recovery"), "6", ":"])
        self.assertEqual(r.text, "code 143\n", r.err)

    def test_without_the_library(self):
        """It is named, with what to install."""
        with tempfile.TemporaryDirectory() as folder:
            open(os.path.join(folder, "libmpi.so.40"), "w").close()
            r = cli.weft(*RUN, "--tp", 2, env={"LD_LIBRARY_PATH": folder, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"})
        self.assertEqual(r.code, cli.MODEL)
        self.assertRegex(r.err, "MPI cannot be used: .*libmpi.so.40.*: install Open MPI")


if __name__ == "__main__":
    cli.main()
