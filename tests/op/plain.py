"""Kernels of GPUs without matrix units and without NVIDIA's instructions, as plain_texts writes them: compiled for AMD's targets, whose assembly
must have registers for all that is in a loop, and the products of bytes that the device has; to LLVM IR for Intel, which must call
Khronos' function for them.

    plain.py PLAIN_TEXTS
"""
import concurrent.futures
import os
import re
import shutil
import sys
import tempfile

from matrix import CLANG, FAILED, HERE, check, compiled, part, programs, spills_between

TARGETS = ("gfx90a", "gfx1100", "gfx1201", "gfx942")  # CDNA, RDNA, RDNA, CDNA
PRODUCTS = "v_dot4|v_(?:dual_|pk_)?fma"
MOST_REGISTERS = 256  # of 512 that CDNA has: two waves
LOCAL_BYTES = {"0": 32 << 10, "1": 64 << 10}  # by INT16: few devices have more; where it is less, X stays in numbers


def number(text, name):
    return int(re.search(rf"^ +\.{name}: +(\d+)", text, re.M)[1])


def is_twice(p):
    """Does a block keep what it needs to be done again?"""
    return p.knobs.get("ASYNC") == "1"


def on_amd(p, source, target, output):
    options = ["-target", "amdgcn-amd-amdhsa", "-nogpulib", f"-mcpu={target}", "-S"]
    if not compiled(p.options + options, output, source, os.path.join(HERE, "matrix_amd.clh")):
        return check(False, f"{target:8} {p.text}")
    text = open(output).read()
    registers, spilled, private = (number(text, n) for n in ("vgpr_count", "vgpr_spill_count", "private_segment_fixed_size"))
    products, local = len(re.findall("v_dot4", text)), number(text, "group_segment_fixed_size")
    arrays = private > 4 * spilled + 16
    if p.kernel == "gemm_dot" or is_twice(p):  # what is the same for all of K or all keys may wait in memory
        spilled = spills_between(PRODUCTS, text)
    good = not spilled and not arrays and (registers <= MOST_REGISTERS or is_twice(p)) and local <= LOCAL_BYTES[p.knobs.get("INT16", "0")]
    return check(good and (products > 0 or p.knobs.get("DOT") != "3"), f"{target:8} {p.text}: {registers} registers, {spilled} spills, "
                 f"{private} bytes of its own, {local} of local memory, {products} products of bytes")


def targets_of(i, p):
    """One of either kind; kernels that are far from all limits take turns."""
    return () if p.unit != "amd" else TARGETS[i % 4:][:1] if p.kernel in ("gemv", "attention_decode") else TARGETS[i % 2::2]


def on_intel(p, source, output):
    options = ["-target", "spir64", "-emit-llvm", "-S", "-O1"]
    text = open(output).read() if compiled(p.options + options, output, source) else ""
    calls = len(re.findall(r"call spir_func .*dot_4x8packed_ss_int", text))
    check(text and (calls > 0) == (p.knobs.get("DOT") == "1"), f"intel    {p.text}: {calls} calls")


def main():
    if not shutil.which(CLANG):
        print(f"skipped: {CLANG} is missing (setup.sh installs it)")
        return 77
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = []
        for i, p in enumerate(part.mine("cl", programs(sys.argv[1], folder))):
            source = os.path.join(folder, f"{p.unit}-{p.name}-{p.of}.cl")
            jobs += [pool.submit(on_amd, p, source, t, f"{source}-{t}.s") for t in targets_of(i, p)]
            if p.unit == "intel":
                jobs.append(pool.submit(on_intel, p, source, source + ".ll"))
        for job in jobs:
            job.result()
    print(f"{len(FAILED)} failed")
    return 1 if FAILED else 0


sys.exit(main())
