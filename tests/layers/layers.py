#!/usr/bin/env python3
"""Reads every #include of the source and fails on one that points left.

A folder includes only itself and names to its right in ORDER; cl and cpu see only dev and what is to its right,
and nothing includes them. cli, serve and loadgen include only themselves and those of them to their right,
<weft/...> and base. Project headers are always written "folder/file.h".
"""
import os
import re
import sys

ORDER = "cli serve loadgen tune engine text sched model exec plan mem dist verify select dev sampling tensor base".split()
ABOVE_ALL = {"cli", "serve", "loadgen"}     # users of the public API
BACKENDS = {"cl", "cpu"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
SOURCE = (".c", ".h", ".def", ".inc", ".S")


def allowed(folder):
    if folder in BACKENDS:
        return {folder} | set(ORDER[ORDER.index("dev"):])
    if folder in ABOVE_ALL:
        return set(ORDER[ORDER.index(folder):ORDER.index("tune")]) | {"base"}
    return set(ORDER[ORDER.index(folder):])


def folder_of(path):
    parts = path.split(os.sep)
    return parts[1] if parts[0] == "src" else parts[0]


def complaints(root, path):
    folder = folder_of(path)
    if folder not in ORDER and folder not in BACKENDS:
        yield f"{path}: folder {folder} has no place in the order"
        return
    with open(os.path.join(root, path), encoding="utf-8") as f:
        text = f.read()
    for kind, name in INCLUDE.findall(text):
        first = name.split("/")[0]
        if kind == "<":
            if first in ORDER or first in BACKENDS:
                yield f"{path}: <{name}> is a project header: write it in quotes"
            continue
        if os.path.exists(os.path.join(root, os.path.dirname(path), name + ".in")):
            continue  # made by the build from a file beside this one
        if "/" not in name or name.startswith("."):
            yield f'{path}: "{name}" is not "folder/file.h"'
        elif first not in allowed(folder):
            yield f'{path}: {folder} must not include "{name}"'


def sources(root):
    for top in ("src", "cl", "cpu"):
        for at, _, files in os.walk(os.path.join(root, top)):
            for name in sorted(files):
                if name.endswith(SOURCE):
                    yield os.path.relpath(os.path.join(at, name), root)


def main():
    root = sys.argv[1]
    files = list(sources(root))
    wrong = [c for path in files for c in complaints(root, path)]
    print("\n".join(wrong) if wrong else f"{len(files)} files point right")
    return 1 if wrong or not files else 0


sys.exit(main())
