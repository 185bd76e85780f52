#!/usr/bin/env python3
"""Writes the kernel sources as a C table: embed.py OUT.c LIBEXECDIR FILE...

A name is the path below kernels/. Texts are byte arrays: string literals have a portable limit of
4095 characters.
"""
import pathlib
import sys


def main(out, libexec, files):
    lines = ['/* generated from cl/kernels */', '#include "cl/cl.h"']
    rows = []
    for i, path in enumerate(map(pathlib.Path, files)):
        parts = path.parts
        name = "/".join(parts[len(parts) - parts[::-1].index("kernels"):])
        data = path.read_bytes() + b"\0"
        lines.append(f"static const char s{i}[] = {{{','.join(map(str, data))}}};")
        rows.append(f'    {{"{name}", s{i}}},')
    lines += ["const cl_source wf_cl_sources[] = {", *rows, "    {NULL, NULL},", "};",
              f'const char wf_cl_libexec[] = "{libexec}";', ""]
    pathlib.Path(out).write_text("\n".join(lines))


main(sys.argv[1], sys.argv[2], sys.argv[3:])
