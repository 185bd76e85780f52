"""Kills a server with SIGKILL again and again: while it answers a mixed load, and while it starts, compiles kernels and writes its cache.
After each kill it must come up again on the same port with the same caches, give the known answers to the bit, and leave behind
no file of its own and no process.

    kill.py 100 --device opencl --log kills.tsv    a batch, which adds a row to a file
    kill.py --sum kills.tsv                        adds up
"""
import argparse
import collections
import contextlib
import ctypes
import glob
import http.client
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

import rows
import serve
from clients import DEVICES, SERVER, Clients, seeded

WORKERS = 6
LOAD = 1.0    # seconds under load, at most
COLD = 8      # each so many rounds the caches of an OpenCL device have lost some of what they had
serve.PATIENCE = 600  # kernels may have to be compiled
HEADER = struct.Struct("=8sQQQ")  # of an entry of the cache: magic, bytes of key and data, checksum
KEPT = "cl", "self-tests", "calibrations"  # folders of entries
COLUMNS = ["commit", "device", "model", "kills", "under_load", "in_start", "cold", "seconds", "starts", "slowest_start_s", "requests",
           "cut_by_kill", "lost_or_wrong", "left_behind", "result"]
MIX = [*Clients.GOOD_ONES, (Clients.leave, 4), (Clients.frame, 2), (Clients.many_pieces, 1), (Clients.large, 1)]


def free_port():
    """One that no outgoing connection takes meanwhile."""
    while True:
        port = random.randrange(15_000, 30_000)
        with contextlib.suppress(OSError), socket.socket() as s:
            s.bind(("127.0.0.1", port))
            return port


def adopt_orphans():
    """Processes whose parent is killed become ours, so that they are seen: prctl(PR_SET_CHILD_SUBREAPER)."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


class Batch:
    def __init__(self, device, model, folder):
        self.device, self.model, self.folder = device, model, folder
        self.args = ["--port", free_port(), *(["-m", model] if model else []), *SERVER]
        self.env = {"XDG_CACHE_HOME": f"{folder}/cache", "POCL_CACHE_DIR": f"{folder}/pocl", "TMPDIR": f"{folder}/tmp"}
        self.rng, self.count, self.failures, self.lock = random.Random(), collections.Counter(), [], threading.Lock()
        self.slowest, self.usual, self.clients = 0, 1, None
        for path in self.env.values():
            os.makedirs(path, exist_ok=True)

    def fail(self, what, text):
        with self.lock:
            self.count[what] += 1
            self.failures.append(f"{what}: {text}")
        print(self.failures[-1], file=sys.stderr, flush=True)

    # --- starts -------------------------------------------------------------------------------------------

    def start(self):
        """A server that is ready, and was found as it must be."""
        began = time.monotonic()
        s = serve.Server(*self.args, device=DEVICES[self.device], env=self.env)
        self.usual = time.monotonic() - began
        self.slowest = max(self.slowest, self.usual)
        self.count["starts"] += 1
        if not self.clients:
            self.clients = Clients(s)
        self.clients.s = s
        for i in range(3):
            self.try_one(lambda: self.clients.complete(random.Random(i)))
        self.look_at_files()
        return s

    def look_at_files(self):
        """Of weft's cache: all are entries, and whole."""
        for path in (path for kept in KEPT for path in glob.glob(f"{self.folder}/cache/weft/{kept}/*")):
            with open(path, "rb") as f:
                head, size = f.read(HEADER.size), os.fstat(f.fileno()).st_size
            if not path.endswith(".bin"):
                self.fail("left_behind", path)
            elif len(head) < HEADER.size or size != HEADER.size + sum(HEADER.unpack(head)[1:3]):
                self.fail("left_behind", f"{path} is not whole")
        for name in os.listdir(f"{self.folder}/tmp"):
            if "weft" in name:
                self.fail("left_behind", name)

    def forget_some(self):
        """A part of the entries of both caches, weft's and the driver's."""
        for path, part in (*((f"{self.folder}/cache/weft/{kept}", 1 / 4) for kept in KEPT), (f"{self.folder}/pocl", 1 / 8)):
            for name in os.listdir(path) if os.path.isdir(path) else []:
                if self.rng.random() < part:
                    whole = os.path.join(path, name)
                    (shutil.rmtree if os.path.isdir(whole) else os.remove)(whole)
        self.count["cold"] += 1

    # --- kills --------------------------------------------------------------------------------------------

    def kill(self, p, where):
        p.send_signal(signal.SIGKILL)
        p.wait()
        self.count["kills"] += 1
        self.count[where] += 1
        end = time.monotonic() + serve.PATIENCE
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0] or time.monotonic() < end:
                time.sleep(0.01)
            self.fail("left_behind", "a process that the server had started")

    def kill_in_start(self):
        p = subprocess.Popen(serve.Server.command(*self.args, device=DEVICES[self.device]), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, env={**os.environ, **self.env})
        time.sleep(self.rng.random() * 1.2 * self.usual)
        self.kill(p, "in_start")

    def try_one(self, work):
        """Before the kill each answer must come, and after it a part of one is no answer."""
        try:
            work()
            self.count["requests"] += 1
        except AssertionError as e:
            self.fail("lost_or_wrong", str(e)[:1000])
        except (OSError, http.client.HTTPException) as e:
            if self.killed:
                self.count["cut_by_kill"] += 1
            else:
                self.fail("lost_or_wrong", f"{type(e).__name__} before the kill: {e}")

    killed = False

    def kill_under_load(self, s):
        def client(rng):
            while not self.killed:
                self.try_one(lambda: self.clients.one(rng, MIX))

        threads = [threading.Thread(target=client, args=(rng,)) for rng in seeded(self.rng, WORKERS)]
        for t in threads:
            t.start()
        time.sleep(self.rng.random() * LOAD)
        self.killed = True
        self.kill(s.p, "under_load")
        for t in threads:
            t.join()
        s.end()
        self.killed = False

    def round(self, i):
        """One kill under load, and now and then some in the starts behind it."""
        self.kill_under_load(self.start())
        cold = self.device == "opencl" and i % COLD == COLD - 1
        if cold:
            self.forget_some()
            self.usual *= 5
        for _ in range(4 if cold else self.rng.randrange(2)):
            self.kill_in_start()

    def run(self, n):
        began, i = time.monotonic(), 0
        try:
            while self.count["kills"] < n:
                self.round(i)
                i += 1
            self.start().end()  # after the last kill, too
        except Exception as e:  # noqa: BLE001 -- a row is written all the same
            self.fail("lost_or_wrong", f"{type(e).__name__}: {str(e)[:3000]}")
        return {**{c: self.count[c] for c in COLUMNS}, "commit": rows.commit(), "device": self.device,
                "model": f"{os.path.getsize(self.model) >> 20} MiB" if self.model else "built in", "seconds": round(time.monotonic() - began),
                "slowest_start_s": f"{self.slowest:.1f}", "result": "failed" if self.failures else "ok"}


def total(path):
    """A table: one line a device, and one for all."""
    counts = ["kills", "under_load", "in_start", "starts", "requests", "lost_or_wrong", "left_behind"]
    yield f"| device | {' | '.join(c.replace('_', ' ') for c in counts)} |"
    yield "|---" * (len(counts) + 1) + "|"
    for device, c in rows.by_device(path, lambda row: {c: int(row[c]) for c in counts}):
        yield f"| {device} | {' | '.join(f'{c[k]:,}' for k in counts)} |"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("kills", type=int, nargs="?", default=20, metavar="N", help="how many (default 20)")
    p.add_argument("--device", choices=sorted(DEVICES), default="cpu", help="default cpu")
    p.add_argument("--model", metavar="FILE", help="a model that takes a while to load, e.g. from bench/make_model.py (default: the built-in one)")
    p.add_argument("--folder", help="where caches are kept from one batch to the next (default: of this batch alone)")
    p.add_argument("--log", metavar="FILE", help="append a row to this file, also of a batch that fails")
    p.add_argument("--sum", metavar="FILE", help="add up such a file as docs/reliability.md has it, and do nothing else")
    a = p.parse_args()
    if a.sum:
        return print(*total(a.sum), sep="\n")
    adopt_orphans()
    with tempfile.TemporaryDirectory() as folder:
        batch = Batch(a.device, a.model, os.path.abspath(a.folder or folder))
        row = batch.run(a.kills)
    print("\n".join(f"{c}: {row[c]}" for c in COLUMNS))
    if a.log:
        rows.append(a.log, COLUMNS, row)
    return sys.exit(f"{len(batch.failures)} failures") if batch.failures else None


if __name__ == "__main__":
    main()
