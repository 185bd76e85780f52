"""Keeps one server at work for long with clients of all kinds, good and bad, many at once (clients.py). Between them good requests
get the same answers to the bit, every response that begins ends properly, the counters of /metrics add up, and memory, file descriptors
and threads stop growing.

A long soak is done in segments, each with a server of its own; --log adds a row for each to a file, and --sum adds up such files.
With the address sanitizer, which keeps what is freed, memory is not looked at.
"""
import argparse
import collections
import contextlib
import json
import os
import random
import sys
import threading
import time

import rows
import serve
from clients import DEVICES, SERVER, Clients, seeded

MAY_GROW = 4 << 20  # bytes after the first third
# With an arena for each thread glibc keeps up to 70 MiB that nobody uses, which come over the first thousands of requests and would
# hide a leak; with one arena 2,400 requests after the first 80 were seen to add 0.8 MiB.
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}
COLUMNS = ["commit", "device", "seconds", "requests", "kinds", "sequences", "aborted", "preempted", "turned_away", "memory_third_kib",
           "memory_end_kib", "files_third", "files_end", "threads_third", "threads_end", "lost_or_wrong", "result"]
ENDS = ("stop", "length", "abort", "error")


class Soak:
    def __init__(self, device):
        self.s = serve.Server(*SERVER, device=DEVICES[device], env=ONE_ARENA)
        self.clients = Clients(self.s)
        self.failures, self.lock = [], threading.Lock()

    def one(self, rng):
        try:
            self.clients.one(rng)
        except Exception as e:  # noqa: BLE001 -- counted; the others go on
            self.fail(e)

    def fail(self, e):
        """Says it at once: the end may be an hour away."""
        text = f"{type(e).__name__}: {str(e)[:3000]}"
        print(text, file=sys.stderr, flush=True)
        with self.lock:
            self.failures.append(text)

    def round(self, rng):
        """Up to 24 at once; how many they were."""
        seeds = seeded(rng, rng.randrange(1, 25))
        serve.at_once(len(seeds), lambda i: self.one(seeds[i]))
        return len(seeds)

    def run(self, seconds, rate):
        """Rounds; the sizes after a third and at the end."""
        rng, began, done, sizes = random.Random(), time.monotonic(), 0, []
        while (now := time.monotonic() - began) < seconds or done < 100:
            done += self.round(rng)
            if not sizes and now > seconds / 3:
                sizes.append(self.size())
            time.sleep(max(0, min(done / rate, seconds) - (time.monotonic() - began)))
        return (sizes or [self.size()])[0], self.size()

    # --- what must be as before when nothing runs ------------------------------------------------------

    def size(self):
        """Memory of its own, open files, threads. Behind a large body the allocator gives back what it has kept."""
        self.s.post("/tokenize", b" " * (2 << 20))
        self.s.idle()
        self.s.wait(lambda: sum(name.startswith("socket:") for name in self.files()) == 1, "only the socket that listens is open")
        return self.s.own_memory(), len(self.files()), len(os.listdir(f"/proc/{self.s.p.pid}/task"))

    def files(self):
        """What the server's descriptors are. One of a connection that was reset is open for a while after the kernel forgot it."""
        folder = f"/proc/{self.s.p.pid}/fd"
        names = []
        for fd in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                names.append(os.readlink(os.path.join(folder, fd)))
        return names

    def counters(self):
        """Those of /metrics, which must add up: each sequence that started has ended once, those of good answers among them, and nothing
        is held."""
        ended = [f'request_success_total{{finished_reason="{reason}"}}' for reason in ENDS]
        self.s.until(lambda m: sum(m[e] for e in ended) == m["requests_started_total"] == m["e2e_request_latency_seconds_count"], "all ended once")
        m = self.s.metrics()
        held = {k: m[k] for k in ("num_requests_running", "num_requests_waiting", "num_clients_waiting", "kv_cache_usage_perc", "body_memory_bytes",
                                  "reply_memory_bytes", "num_bodies_waiting", "corrupted_requests_total", ended[3]) if m[k]}
        assert not held, held
        assert m[ended[0]] + m[ended[1]] >= self.clients.count["sequences"], (m, self.clients.count)
        return m

    def is_sanitized(self):
        with open(f"/proc/{self.s.p.pid}/maps", encoding="utf-8") as f:
            return "libasan" in f.read()

    # --- a segment ----------------------------------------------------------------------------------------

    def faults(self, third, end, sanitized):
        """After the server's end: what was not as it must be."""
        code, log = self.s.end()
        found = list(self.failures)
        if code or any(word in log for word in ("Sanitizer", "runtime error")):
            found.append(f"exit code {code}:\n{log}")
        if end[1:] != third[1:]:
            found.append(f"files or threads are left behind: {third[1:]} and then {end[1:]}")
        if not sanitized and end[0] - third[0] > MAY_GROW:
            found.append(f"memory grew by {end[0] - third[0]} bytes")
        return found

    def segment(self, seconds, rate):
        """A row, and what went wrong."""
        began, none = time.monotonic(), (0, 0, 0)
        third, end, m, sanitized = none, none, collections.Counter(), self.is_sanitized()
        try:
            third, end = self.run(seconds, rate)
            m = self.counters()
        except Exception as e:  # noqa: BLE001 -- a row is written all the same
            self.fail(e)
        took, lost = time.monotonic() - began, len(self.failures)
        found = self.faults(third, end, sanitized)
        return self.row(took, third, end, m, lost, found), found

    def row(self, took, third, end, m, lost, found):
        kinds = self.clients.count.copy()
        sequences, away = kinds.pop("sequences", 0), kinds.pop("turned_away", 0)
        return {"seconds": round(took), "requests": sum(kinds.values()), "kinds": json.dumps(kinds, sort_keys=True).replace('"', "").strip("{}"),
                "sequences": f"{sequences} good of {m['requests_started_total']:.0f}", "turned_away": away, "lost_or_wrong": lost,
                "aborted": round(m['request_success_total{finished_reason="abort"}']), "preempted": round(m["num_preemptions_total"]),
                "memory_third_kib": third[0] >> 10, "memory_end_kib": end[0] >> 10, "files_third": third[1], "files_end": end[1],
                "threads_third": third[2], "threads_end": end[2], "result": "failed" if found else "ok"}


def total(path):
    """A table: one line a device, and one for all."""
    sums = rows.by_device(path, lambda row: {
        "segments": 1, "seconds": int(row["seconds"]), "requests": int(row["requests"]), "lost": int(row["lost_or_wrong"]),
        "failed": int(row["result"] != "ok"), "sequences": int(row["sequences"].split()[-1])})
    grew = max(int(row["memory_end_kib"]) - int(row["memory_third_kib"]) for row in rows.read(path)) / 1024
    changed = sum(row[f"{what}_third"] != row[f"{what}_end"] for row in rows.read(path) for what in ("files", "threads"))
    yield "| device | segments | hours | requests | sequences | lost or wrong | segments that failed |"
    yield "|---|---|---|---|---|---|---|"
    for device, c in sums:
        yield (f"| {device} | {c['segments']} | {c['seconds'] / 3600:.1f} | {c['requests']:,} | {c['sequences']:,} | {c['lost']} | {c['failed']} |")
    yield f"\nMost growth of memory in the last two thirds of a segment: {grew:.1f} MiB. Numbers of files or threads that changed: {changed}."


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--segment", type=float, default=10, metavar="SECONDS", help="how long (default 10)")
    p.add_argument("--rate", type=float, default=float("inf"), metavar="R", help="requests per second at most (default: as many as go)")
    p.add_argument("--device", choices=sorted(DEVICES), default="cpu", help="default cpu")
    p.add_argument("--log", metavar="FILE", help="append a row to this file, also of a segment that fails")
    p.add_argument("--sum", metavar="FILE", help="add up such a file as docs/reliability.md has it, and do nothing else")
    a = p.parse_args()
    if a.sum:
        return print(*total(a.sum), sep="\n")
    commit = rows.commit()
    row, found = Soak(a.device).segment(a.segment, a.rate)
    row.update(commit=commit, device=a.device)
    print("\n".join(f"{c}: {row[c]}" for c in COLUMNS))
    if a.log:
        rows.append(a.log, COLUMNS, row)
    return sys.exit("\n".join(found)) if found else None


if __name__ == "__main__":
    main()
