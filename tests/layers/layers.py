#!/usr/bin/env python3
"""Reads every #include of the source and fails on one that points left.

A folder includes only itself and names to its right in ORDER; cl and cpu see only dev and what is to its right,
and nothing includes them. cli, serve, loadgen, pull and answers include only themselves and those of them to their right,
<weft/...> and base, cli also lab, and src/serve/http nothing else of serve; tables (.def), which are words and no code, may be of any folder. Project headers are always written "folder/file.h".

Messages of the library name its parameters, which the program knows to be its options (src/base/options.c), and no options: other programs have none.

Files of cl and of src/dev have an order, too: no file uses, by itself or through others, what uses it.
"""
import os
import pathlib
import re
import sys

ORDER = "cli serve loadgen pull answers lab convert engine kept text jinja model exec dist plan sched kv verify select grammar dev sample tensor base".split()
ABOVE_ALL = {"cli", "serve", "loadgen", "pull", "answers"}  # users of the public API
BACKENDS = {"cl", "cpu"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
SOURCE = (".c", ".h", ".def", ".inc", ".S")


def allowed(folder):
    if folder in BACKENDS:
        return {folder} | set(ORDER[ORDER.index("dev"):])
    if folder in ABOVE_ALL:
        return set(ORDER[ORDER.index(folder):ORDER.index("lab")]) | {"base"} | ({"lab", "grammar"} if folder == "cli" else set())
    return set(ORDER[ORDER.index(folder):])


def folder_of(path):
    parts = path.split(os.sep)
    return parts[1] if parts[0] == "src" else parts[0]


def complaints(root, path):
    folder = folder_of(path)
    below_api = path.startswith(os.path.join("src", "serve", "http"))
    if folder not in ORDER and folder not in BACKENDS:
        yield f"{path}: folder {folder} has no place in the order"
        return
    text = pathlib.Path(os.path.join(root, path)).read_text(encoding="utf-8")
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
        elif first not in allowed(folder) and not (folder in ABOVE_ALL and name.endswith(".def")):
            yield f'{path}: {folder} must not include "{name}"'
        elif below_api and first == "serve" and not name.startswith("serve/http/"):
            yield f'{path}: the HTTP server knows nothing of what it serves, so it must not include "{name}"'


FAILURE = re.compile(r"\bwf_j?fail(?:_\w+)?\((?:[^;\"]|\"(?:\\\\.|[^\"\\\\])*\")*;")
COMMAND = re.compile(r"`[^`]*`|weft \w+ --[\w-]+")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+|\(-[a-z]\b|pass -[a-z]\b")


def options_named(root, path):
    if folder_of(path) in ABOVE_ALL or path == os.path.join("src", "base", "options.c"):
        return
    text = pathlib.Path(os.path.join(root, path)).read_text(encoding="utf-8")
    for call in FAILURE.findall(text):
        for literal in re.findall(r'"(?:\\.|[^"\\])*"', call):
            for option in OPTION.findall(COMMAND.sub("", literal)):
                yield f"{path}: a message names the option {option}: name the parameter, with a line in src/base/options.c"


def sources(root):
    for top in ("src", "cl", "cpu"):
        for at, _, files in os.walk(os.path.join(root, top)):
            for name in sorted(files):
                if name.endswith(SOURCE):
                    yield os.path.relpath(os.path.join(at, name), root)


STRICT = ("cl" + os.sep, os.path.join("src", "dev", ""))  # the folders whose files have an order
STAND_INS = ("_none.c", "stub.c")  # built in place of others
DEFINITION = re.compile(r"^(?!static\b|extern\b|typedef\b)\w[\w *]*?\b(wf_\w+)(?:\([^;{]*\)\s*\{|(?:\[\])? =)", re.M)
PASTED = re.compile(r"\b(wf_\w+)##\w")


def stripped(text):
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', " ", text, flags=re.S)


def names_of(root, path):
    """(defined, used) of a .c file: public names. Those that a macro pastes from a table, wf_x_##row, count as used."""
    text = pathlib.Path(os.path.join(root, path)).read_text(encoding="utf-8")
    code, used = stripped(text), set()
    tables = [name for _, name in INCLUDE.findall(text) if name.endswith(".def") and os.path.exists(os.path.join(root, name))]
    for table in tables:
        words = set(re.findall(r"\w+", stripped(pathlib.Path(os.path.join(root, table)).read_text(encoding="utf-8"))))
        used.update(prefix + word for prefix in PASTED.findall(code) for word in words)
    defined = set(DEFINITION.findall(code))
    return defined, (used | set(re.findall(r"\bwf_\w+", code))) - defined


def circles(root, files):
    """Files of STRICT in the order of use, each circle once."""
    names = {path: names_of(root, path) for path in files
             if path.startswith(STRICT) and path.endswith(".c") and not path.endswith(STAND_INS)}
    owner = {name: path for path, (defined, _) in names.items() for name in defined}
    uses = {path: sorted({owner[name] for name in used if name in owner}) for path, (_, used) in names.items()}
    done, trail = set(), []

    def walk(path):
        if path in trail:
            yield f"circle: {' uses '.join(trail[trail.index(path):] + [path])}"
        elif path not in done:
            trail.append(path)
            for other in uses[path]:
                yield from walk(other)
            trail.pop()
            done.add(path)

    for path in sorted(uses):
        yield from walk(path)


def main():
    root = sys.argv[1]
    files = list(sources(root))
    wrong = [c for path in files for check in (complaints, options_named) for c in check(root, path)] + list(circles(root, files))
    print("\n".join(wrong) if wrong else f"{len(files)} files point right")
    return 1 if wrong or not files else 0


sys.exit(main())
