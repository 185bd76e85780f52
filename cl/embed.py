#!/usr/bin/env python3
"""Writes the kernel sources as a C table: embed.py OUT.c OUT.d LIBEXECDIR FOLDER...

All of the folders: kernels, the parts that they include, formats, their lists of numbers. A name is the path below its folder. OUT.d names
for ninja what was read, folders too, for a new file counts as well. An `#include` of what is not there is an error here, not at the first
use of the kernel, and so is one that brings nothing because the part stands in an `#if` above (cl/source.c). Texts are byte arrays: string
literals have a portable limit of 4095 characters.
"""
import pathlib
import re
import sys


def read(folders):
    """The path of each file by name."""
    files = [(folder, p) for folder in folders for p in sorted(folder.rglob("*")) if p.suffix in (".cl", ".clh", ".def")]
    return {p.relative_to(folder).as_posix(): p for folder, p in files}


def missing(texts):
    includes = [(name, part.decode()) for name, text in texts.items() for part in re.findall(rb'^#include "(.*)"', text, re.M)]
    return [f"{name} includes {part}, which is not there" for name, part in includes if part not in texts]


def included(texts, name, depth=0):
    """(part, conditions around it) of each `#include` of a file and of its parts, in order; guards are no conditions."""
    conditions = []
    for line in texts.get(name, b"").decode().splitlines():
        if re.match(r"# *if", line):
            conditions.append(not line.startswith("#ifndef WF_"))
        elif re.match(r"# *endif", line):
            conditions.pop()
        elif part := re.match(r'#include "(.*)"', line):
            here = depth + sum(conditions)
            yield part[1], here
            yield from included(texts, part[1], here)


def hidden(texts):
    for kernel in (name for name in texts if name.endswith(".cl")):
        first = {}
        for part, depth in included(texts, kernel):
            if first.setdefault(part, depth) > depth == 0:
                yield f"{kernel}: the first #include of {part} stands in an #if: include it above"


def table(texts, libexec):
    lines = ['/* generated from cl/kernels */', '#include "cl/cl.h"']
    lines += [f"static const char s{i}[] = {{{','.join(map(str, text + bytes(1)))}}};" for i, text in enumerate(texts.values())]
    lines += ["const cl_source wf_cl_sources[] = {", *(f'    {{"{name}", s{i}}},' for i, name in enumerate(texts)), "    {NULL, NULL},", "};"]
    return lines + [f'const char wf_cl_libexec[] = "{libexec}";', ""]


def depfile(out, folders, files):
    folders = [p for folder in folders for p in (folder, *folder.rglob("*")) if p.is_dir()]
    return f"{out}: " + " ".join(str(p).replace(" ", "\\ ") for p in [*folders, *files]) + "\n"


def main(out, dep, libexec, *folders):
    folders = [pathlib.Path(folder).resolve() for folder in folders]
    files = read(folders)
    texts = {name: p.read_bytes() for name, p in files.items()}
    wrong = missing(texts) or [*hidden(texts)]
    if wrong:
        sys.exit("\n".join(wrong))
    pathlib.Path(out).write_text("\n".join(table(texts, libexec)))
    pathlib.Path(dep).write_text(depfile(out, folders, files.values()))


main(*sys.argv[1:])
