#!/usr/bin/env python3
"""attention_split.cl, attention_rows.cl and attention_prefill.cl without a GPU: compiled by clang-19 for this processor, with nvidia_host.clh in
place of nvidia.clh, and run by split_host, lane by lane.

    split.py SPLIT_HOST KERNELS [NAME...]     these programs alone, and those that they are compared with
"""
import os
import shutil
import subprocess
import sys
import tempfile

CLANG = "clang-19"
HERE = os.path.dirname(os.path.abspath(__file__))


def build(kernels, kernel, options, library):
    headers = [os.path.join(kernels, "common.clh"), os.path.join(HERE, "nvidia_host.clh")]
    if any(o.startswith("-DKV_COLS=") for o in options):  # in place of the format that the kernel names
        headers.append(os.path.join(kernels, "kv", "q8_0.clh"))
    command = [CLANG, "-x", "cl", "-cl-std=CL1.2", "-O1", "-I", kernels, "-Xclang", "-finclude-default-header", "-w", "-shared", "-fPIC"]
    for header in headers:
        command += ["-include", header]
    return subprocess.run([*command, *options, "-o", library, os.path.join(kernels, kernel + ".cl")]).returncode == 0


def check(host, kernels, folder, name, kernel, options):
    """Those that it is compared with, whose names are alike, were built before."""
    return build(kernels, kernel, options, os.path.join(folder, f"{name}.so")) and subprocess.run([host, folder, name]).returncode == 0


def main():
    host, kernels, *names = sys.argv[1:]
    if not shutil.which(CLANG):
        print(f"skipped: {CLANG} is missing (setup.sh installs it)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        rows = [line.split() for line in subprocess.check_output([host, "--knobs"], text=True).splitlines()]
        rows = [row for row in rows if not names or any(row[0] in (name, name + "-alone", name.removesuffix("-async")) for name in names)]
        failed = [name for name, kernel, *options in rows if not check(host, kernels, folder, name, kernel, options)]
    print(f"failed: {failed}" if failed else f"{len(rows)} programs are right")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
