"""A server whose devices are in processes of mpirun: one that ends, or hangs, takes requests with it and nothing else, and clients are told."""
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time

import serve
from serve import Server, cli

SILENT = "WEFT_WATCHDOG=4000"  # after which a process counts as lost
HOSTS = "WEFT_HOSTS=localhost,localhost"


def children(pid):
    return [int(c) for c in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ranks(pid):
    """Its processes of weft by their rank."""
    found = {}
    for p in children(pid):
        variables = pathlib.Path(f"/proc/{p}/environ").read_bytes().split(b"\0")
        found.update({int(v[21:]): p for v in variables if v.startswith(b"OMPI_COMM_WORLD_RANK=")} or ranks(p))
    return found


class Load:
    """Clients that wait for long answers: streams, and whole ones."""

    def __init__(self, server, n=6, tokens=400):
        self.ends = []
        self.threads = [threading.Thread(target=self.ask, args=(server, tokens, i % 2 == 0)) for i in range(n)]
        for t in self.threads:
            t.start()

    def ask(self, server, tokens, streams):
        try:
            r = server.post("/v1/completions", {**serve.GOOD, "max_tokens": tokens, "ignore_eos": True, "stream": streams, "n": 4})
            self.ends.append((r.status, "error" in r.body.decode()))
        except (serve.http.client.HTTPException, ConnectionError) as e:
            self.ends.append((0, repr(e)))

    def join(self, test):
        for t in self.threads:
            t.join(60)
        test.assertEqual(len(self.ends), len(self.threads), "a client still waits")


class Hosts(cli.TestCase):
    def setUp(self):
        cli.mpirun(2)  # or it is skipped

    def lose(self, s, victim, how):
        """Kills or stops a process under load. Returns how requests ended."""
        load = Load(s)
        s.until(lambda m: m["num_requests_running"] + m["num_requests_waiting"] == 24, "all are there")
        os.kill(ranks(s.p.pid)[victim], how)
        load.join(self)
        return load.ends

    def test_answers(self):
        """As of one process; SIGTERM lets requests end."""
        one = Server(SILENT, "--deterministic")
        want = one.complete().text
        one.end()
        for layout in ("--tp", 2), ("--pp", 2):
            with self.subTest(layout=layout):
                s = Server(SILENT, HOSTS, "--deterministic", *layout)
                self.assertEqual(len(ranks(s.p.pid)), 2)
                self.assertEqual([s.complete().text for _ in range(3)], 3 * [want])
                load = Load(s, 2, 80)
                s.until(lambda m: m["num_requests_running"] + m["num_requests_waiting"] == 8, "all are there")
                code, log = s.end()
                load.join(self)
                self.assertEqual(load.ends, [(200, False)] * 2, log)
                self.assertEqual(code, 0, log)

    def test_a_process_is_lost(self):
        """Each client gets an error, health says so or nobody is there any more, and the code is that of a lost device."""
        for how in signal.SIGKILL, signal.SIGSTOP:
            with self.subTest(how=how):
                s = Server(SILENT, HOSTS, "--tp", 2)
                kept = s.watch()
                follower = ranks(s.p.pid)[1]
                self.assertEqual([error for _, error in self.lose(s, 1, how)], 6 * [True])
                self.assertTrue(serve.told_that_it_ends(kept))
                code, log = s.end(0)
                self.assertEqual(code, cli.LOST, log)
                self.assertIn("process 1 of the group gave no sign of life for 3000 ms", log)
                s.wait(lambda: not os.path.exists(f"/proc/{follower}"), "nobody stays behind")

    def test_lost_while_nothing_runs(self):
        s = Server(SILENT, HOSTS, "--pp", 2)
        os.kill(ranks(s.p.pid)[1], signal.SIGKILL)
        code, log = s.end(0)
        self.assertEqual(code, cli.LOST, log)

    def test_the_server_is_lost(self):
        """Nobody stays behind."""
        s = Server(SILENT, HOSTS, "--tp", 2)
        follower = ranks(s.p.pid)[1]
        self.assertEqual([status for status, _ in self.lose(s, 0, signal.SIGKILL)], [0] * 3 + [0] * 3)
        code, log = s.end(0)
        self.assertEqual(code, cli.LOST, log)
        s.wait(lambda: not os.path.exists(f"/proc/{follower}"), "nobody stays behind")

    def test_by_mpirun(self):
        """Which ends all by itself when one is killed."""
        s = Server(SILENT, "--tp", 2, wrapper=cli.mpirun(2, None)[:-1])
        self.assertEqual(s.complete().status, 200)
        for _, end in self.lose(s, 1, signal.SIGKILL):
            self.assertTrue(end)
        code, log = s.end(0)
        self.assertNotEqual(code, 0, log)

    def test_mistakes(self):
        for words, args in (("say --tp or --pp", []), ("use --api-key-file", ["--tp", 2, "--api-key", "x"]),
                            ("3 hosts for 2 devices", ["--tp", 2, "WEFT_HOSTS=a,b,c"])):
            with self.subTest(args=args):
                self.fails(cli.USAGE, words, "serve", HOSTS, *args)
        r = cli.weft("serve", "--tp", 2, env={"WEFT_HOSTS": "a,b"}, program=["env", "PATH=/nowhere", cli.WEFT])
        self.assertEqual(r.code, cli.RUNTIME)
        self.assertIn("install Open MPI", r.err)
        self.fails(cli.USAGE, "mpirun --bind-to none --host localhost,localhost weft run", "run", HOSTS, "--tp", 2, "-p", "x")

    def by(self, script, folder):
        """The command with another mpirun, and its folder for temporary files."""
        path = pathlib.Path(folder, "mpirun")
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "WEFT_HOSTS": "a,b", "TMPDIR": folder}

    def test_mpirun_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            r = cli.weft("serve", "--tp", 2, env=self.by("exit 1", folder))
            self.assertEqual(r.code, cli.RUNTIME, r.err)
            self.assertIn("mpirun did not start the server", r.err)
            self.assertEqual(os.listdir(folder), ["mpirun"])

    def test_settings(self):
        """Other hosts may not have them: mpirun's command has what devices share."""
        with tempfile.TemporaryDirectory() as folder:
            env = self.by('echo "$@"; exit 1', folder)
            config = pathlib.Path(folder, "config")
            config.write_text("tp = 2\n")
            r = cli.weft("serve", "--pp", 3, "-q", env={**env, "WEFT_CONFIG": str(config)})
            self.assertRegex(r.text, r"-n 6 \S+ serve --tp 2 --pp 3 -q\n", r.err)

    def test_mpirun_stays(self):
        """It is killed some seconds after it was told to end."""
        with tempfile.TemporaryDirectory() as folder:
            env = self.by('trap "" TERM; touch "$TMPDIR/begun"; while :; do sleep 0.1; done', folder)
            p = subprocess.Popen([cli.WEFT, "serve", "--tp", "2"], env=env)
            while not os.path.exists(os.path.join(folder, "begun")):
                time.sleep(0.01)
            p.terminate()
            self.assertEqual(p.wait(20), 0)
            self.assertEqual(sorted(os.listdir(folder)), ["begun", "mpirun"])


if __name__ == "__main__":
    cli.main()
