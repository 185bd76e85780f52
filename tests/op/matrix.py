"""gemm_matrix.cl without the hardware: compiled by clang-19 for AMD's targets, whose assembly must hold the
matrix instructions and no spill; to LLVM IR for Intel, which must call the extension's function; and for this
processor, where matrix_host plays the units and compares with the reference.

    matrix.py MATRIX_HOST KERNELS [host|amd|intel]
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

CLANG = "clang-19"
HERE = os.path.dirname(os.path.abspath(__file__))
AMD = {  # unit of matrix_host -> targets, instruction
    "mfma": (["gfx90a", "gfx942"], "v_mfma_f32_16x16x16_?f16"),
    "wmma11": (["gfx1100"], "v_wmma_f32_16x16x16_f16"),
    "wmma12": (["gfx1201"], "v_wmma_f32_16x16x16_f16"),
}
FUNCTION = "intel_sub_group_f16_f16_matrix_mad_k16"
DECLARE = "%s float8 " + FUNCTION + "(%s a, int8 b, float8 c);\n"
FAILED = []


def check(good, what):
    print("ok   " if good else "FAIL ", what, flush=True)
    if not good:
        FAILED.append(what)


def clang(kernels, fmt, options, output, *includes):
    """Compiles the kernel as prog.c composes it; returns what clang says, None on failure."""
    command = [CLANG, "-x", "cl", "-cl-std=CL1.2", "-O3", "-Xclang", "-finclude-default-header", "-I", kernels]
    for header in (*includes, "common.clh", f"quant/{fmt.lower()}.clh", "matrix.clh"):
        command += ["-include", os.path.join(kernels, header)]
    command += [*options, "-o", output, os.path.join(kernels, "gemm_matrix.cl")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(" ".join(command), done.stderr[:2000], sep="\n")
    return done.returncode == 0


def on_host(row, kernels, folder, host):
    unit, variant, fmt, *options = row
    library = os.path.join(folder, f"{unit}-{variant}-{fmt}.so")
    header = os.path.join(HERE, "matrix_host.clh")
    macros = [o for o in options if o != "-DDPAS"] + ["-U__AMDGCN_WAVEFRONT_SIZE__", "-w"]
    built = clang(kernels, fmt, macros + ["-shared", "-fPIC"], library, header)
    done = subprocess.run([host, library, unit, variant, fmt], capture_output=True, text=True) if built else None
    if done is None or done.returncode:
        print(done.stdout[-2000:] + done.stderr[-2000:] if done else "")
    check(done is not None and done.returncode == 0, f"host   {unit:7} {variant} {fmt}")


def on_amd(row, kernels, folder):
    unit, variant, fmt, *options = row
    for target in AMD[unit][0] if unit in AMD else []:
        path = os.path.join(folder, f"{target}.s")
        macros = [o for o in options if o.split("=")[0] not in ("-D__AMDGCN__", "-D__GFX12__")]
        macros += ["-target", "amdgcn-amd-amdhsa", "-nogpulib", f"-mcpu={target}", "-S"]
        good = clang(kernels, fmt, macros, path, os.path.join(HERE, "matrix_amd.clh"))
        text = open(path).read() if good else ""
        found, knob = len(re.findall(AMD[unit][1], text)), dict(o[2:].split("=") for o in options if "=" in o)
        least = int(knob["WM"]) // 16 * int(knob["WN"]) // 16 * int(knob["BK"]) // 16  # all unrolled
        spilled = [int(n) for n in re.findall(r"(?:ScratchSize|vgpr_spill_count): (\d+)", text)]
        check(found >= least and sum(spilled) == 0, f"{target:8} {variant} {fmt}: {found} instructions, spills {spilled}")


def on_intel(row, kernels, folder):
    unit, variant, fmt, *options = row
    if not unit.startswith("dpas"):
        return
    header, path = os.path.join(folder, "declare.clh"), os.path.join(folder, "intel.ll")
    with open(header, "w") as f:
        for a in ("short8", "int8"):
            f.write(DECLARE % ("__attribute__((overloadable, convergent))", a))
    good = clang(kernels, fmt, options + ["-target", "spir64", "-emit-llvm", "-S"], path, header)
    text = open(path).read() if good else ""
    a = "Dv8_s" if unit == "dpas16" else "Dv8_i"
    calls = len(re.findall(rf"call spir_func .*{FUNCTION}{a}", text))
    size = f"!{{i32 {unit[4:]}}}"
    check(calls > 0 and "intel_reqd_sub_group_size" in text and size in text, f"{unit:8} {variant} {fmt}: {calls} calls")


def main():
    host, kernels, *only = sys.argv[1:]
    if not shutil.which(CLANG):
        print(f"skipped: {CLANG} is missing (setup.sh installs it)")
        return 77
    rows = [line.split() for line in subprocess.check_output([host, "--knobs"], text=True).splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            if row[2] != "F16" and row[1] != "matrix64":
                continue  # each format once, each tile with F16
            if not only or "host" in only:
                on_host(row, kernels, folder, host)
            if not only or "amd" in only:
                on_amd(row, kernels, folder)
            if not only or "intel" in only:
                on_intel(row, kernels, folder)
    print(f"{len(FAILED)} failed")
    return 1 if FAILED else 0


sys.exit(main())
