"""Tables of figures: text files with tabs between columns, the first line names them. Commands append to them, so long runs can be done in parts."""
import collections
import csv
import fcntl
import os
import re

from serve import cli


def commit():
    """Of the program under test."""
    return re.search(r"\((\w+)", cli.weft("--version").text).group(1)


def append(path, columns, row):
    """One row, whole; several processes may append to one file."""
    with open(path, "a", newline="", encoding="utf-8") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        out = csv.DictWriter(f, columns, delimiter="\t", lineterminator="\n")
        if not os.fstat(f.fileno()).st_size:
            out.writeheader()
        out.writerow(row)


def read(path):
    with open(path, newline="", encoding="utf-8") as f:
        yield from csv.DictReader(f, delimiter="\t")


def by_device(path, counts):
    """Sums of what counts(row) gives, for each device and for all of them, which come last."""
    sums = collections.defaultdict(collections.Counter)
    for row in read(path):
        for device in (row["device"], "all"):
            sums[device].update(counts(row))
    return sorted(sums.items(), key=lambda item: (item[0] == "all", item[0]))
