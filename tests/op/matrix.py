"""gemm_matrix.cl and attention_matrix.cl without the hardware: compiled by clang-19 for AMD's targets, whose assembly must hold the
matrix instructions and no spill; to LLVM IR for Intel, which must call the extension's function; and for this
processor, where matrix_host and matrix_attention play the units, NVIDIA's too, and compare with the reference.

    matrix.py MATRIX_HOST MATRIX_ATTENTION KERNELS [host|amd|intel]
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import part

CLANG = "clang-19"
HERE = os.path.dirname(os.path.abspath(__file__))
AMD = {  # unit of host.c -> targets, instruction
    "mfma": (["gfx90a", "gfx942"], "v_mfma_f32_16x16x16_?f16"),
    "wmma11": (["gfx1100"], "v_wmma_f32_16x16x16_f16"),
    "wmma12": (["gfx1201"], "v_wmma_f32_16x16x16_f16"),
}
FUNCTION = "intel_sub_group_f16_f16_matrix_mad_k16"
DECLARE = "%s float8 " + FUNCTION + "(%s a, int8 b, float8 c);\n"
PLAYED = "mma"  # NVIDIA's unit: no compiler of it is at hand
DECODED = ("F16", "Q4_0", "planes")  # for it: each way that weights take to local memory; what differs by format was run for the others
SIMPLER = ("plain", "odd")  # programs of matrix_attention that only run: for compilers they are parts of the others
LAST = "matrix_decode_split"  # of the variants of attention
FAILED = []


class Program:
    """A line of --knobs. A product: variant, format of weights; attention: program, variant."""

    def __init__(self, line):
        self.unit, self.kernel, self.name, self.of, *self.options = line.split()
        self.text = f"{self.name} {self.of}"
        self.knobs = dict(o[2:].split("=") for o in self.options if "=" in o)

    def knob(self, name):
        return int(self.knobs[name])

    def library(self, folder):
        return os.path.join(self.libraries(folder), f"{self.of}.so")

    def libraries(self, folder):
        """Where all are that have its unit and program."""
        place = os.path.join(folder, f"{self.unit}-{self.name}")
        os.makedirs(place, exist_ok=True)
        return place

    def products(self):
        """Of a wave, unrolled, on a unit of 16 rows and columns."""
        if self.kernel == "gemm_matrix":
            return self.knob("WM") // 16 * (self.knob("WN") // 16) * (self.knob("BK") // 16 // self.knob("PARTS"))
        d, keys = self.knob("D") // 16, self.knob("TK") // 16
        return d * keys + d // self.knob("WC") * keys


def check(good, what):
    print("ok   " if good else "FAIL ", what, flush=True)
    if not good:
        FAILED.append(what)


def compiled(options, output, source, *headers):
    """Says what clang says where it fails."""
    command = [CLANG, "-x", "cl", "-O3", *(word for h in headers for word in ("-include", h)), *options, "-o", output, source]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(" ".join(command), done.stderr[:2000], sep="\n")
    return done.returncode == 0


def clang(kernels, p, options, output, *includes):
    """Compiles the kernel as prog.c composes it."""
    if p.kernel == "gemm_matrix":
        formats = [f"quant/{p.of.lower()}.clh"]
    else:
        formats = ["kv/q8_0.clh"] if "KV_COLS" in p.knobs else []
    headers = [os.path.join(kernels, h) for h in (*includes, "common.clh", *formats, "matrix.clh")]
    options = ["-cl-std=CL1.2", "-Xclang", "-finclude-default-header", "-I", kernels, *options]
    return compiled(options, output, os.path.join(kernels, p.kernel + ".cl"), *headers)


def run(p, command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout[-2000:] + done.stderr[-2000:])
    check(done.returncode == 0, f"host   {p.unit:7} {p.text}")


def on_host(p, kernels, folder, host):
    header = os.path.join(HERE, "matrix_host.clh")
    macros = [o for o in p.options if o != "-DDPAS"] + ["-U__AMDGCN_WAVEFRONT_SIZE__", "-w"]
    if not clang(kernels, p, macros + ["-shared", "-fPIC"], p.library(folder), header):
        check(False, f"host   {p.unit:7} {p.text}")
    elif p.kernel == "gemm_matrix":
        run(p, [host, p.library(folder), p.unit, p.name, p.of])
    elif p.of == LAST:  # the other variants were built before
        run(p, [host, p.libraries(folder), p.unit, p.name])


def spills_between(instruction, text):
    """Of one block of the program."""
    blocks = [re.split(instruction, b)[1:-1] for b in re.split(r"^\.LBB\w+:|s_barrier", text, flags=re.M)]
    return len(re.findall(r"Folded (?:Spill|Reload)", str(blocks)))


def spills(p, text):
    """Of a product none. Attention keeps addresses through its loop over keys, which may spill, but nothing from one matrix instruction to the next."""
    if p.kernel == "gemm_matrix":
        return sum(int(n) for n in re.findall(r"(?:ScratchSize|vgpr_spill_count): (\d+)", text))
    return spills_between(AMD[p.unit][1], text)


def on_amd(p, kernels, folder):
    for target in AMD[p.unit][0] if p.unit in AMD and p.name not in SIMPLER else []:
        path = os.path.join(folder, f"{target}.s")
        macros = [o for o in p.options if o.split("=")[0] not in ("-D__AMDGCN__", "-D__GFX12__")]
        macros += ["-target", "amdgcn-amd-amdhsa", "-nogpulib", f"-mcpu={target}", "-S"]
        good = clang(kernels, p, macros, path, os.path.join(HERE, "matrix_amd.clh"))
        text = open(path).read() if good else ""
        found = len(re.findall(AMD[p.unit][1], text))
        check(found >= p.products() and not spills(p, text), f"{target:8} {p.text}: {found} instructions, {spills(p, text)} spills")


def on_intel(p, kernels, folder):
    if not p.unit.startswith("dpas") or p.name in SIMPLER:
        return
    header, path = os.path.join(folder, "declare.clh"), os.path.join(folder, "intel.ll")
    with open(header, "w") as f:
        for a in ("short8", "int8"):
            f.write(DECLARE % ("__attribute__((overloadable, convergent))", a))
    good = clang(kernels, p, p.options + ["-target", "spir64", "-emit-llvm", "-S"], path, header)
    text = open(path).read() if good else ""
    a = "Dv8_s" if p.unit == "dpas16" else "Dv8_i"
    calls = len(re.findall(rf"call spir_func .*{FUNCTION}{a}", text))
    size = f"!{{i32 {p.unit[4:]}}}"
    check(calls > 0 and "intel_reqd_sub_group_size" in text and size in text, f"{p.unit:8} {p.text}: {calls} calls")


def programs(host, word="--knobs"):
    return [Program(line) for line in subprocess.check_output([host, word], text=True).splitlines()]


def main():
    gemm, attention, kernels, *only = sys.argv[1:]
    if not shutil.which(CLANG):
        print(f"skipped: {CLANG} is missing (setup.sh installs it)")
        return 77
    # Each format twice, each tile with F16.
    products = part.mine("cl", (p for p in programs(gemm) if p.of == "F16" or p.name in ("matrix64", "matrix128_expand", "matrix256_expand_shares")
                                and (p.unit != PLAYED or p.of in DECODED)))
    rows = programs(attention)
    units = part.mine("cl", sorted({p.unit for p in rows}))  # variants of one unit are compared with each other
    with tempfile.TemporaryDirectory() as folder:
        for host, p in [(gemm, p) for p in products] + [(attention, p) for p in rows if p.unit in units]:
            if not only or "host" in only:
                on_host(p, kernels, folder, host)
            if not only or "amd" in only:
                on_amd(p, kernels, folder)
            if not only or "intel" in only:
                on_intel(p, kernels, folder)
    print(f"{len(FAILED)} failed")
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
