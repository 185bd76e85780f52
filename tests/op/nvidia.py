#!/usr/bin/env python3
"""Runs the kernels that use NVIDIA's assembly (gemm_flat.cl, gemm_frag.cl) on any OpenCL device: in place of
nvidia.clh stands plain OpenCL C that does what the PTX ISA says, lanes meeting in local memory. Wrong index maths, wild
reads and names that hide each other show here, without a GPU. All warps must take equally many steps: K is chosen so.

  nvidia.py KERNEL-FOLDER      exit code 77: no pyopencl or no device
"""
import re
import sys

try:
    import numpy as np
    import pyopencl as cl
    QUEUE = cl.CommandQueue(cl.Context([p.get_devices()[0] for p in cl.get_platforms() if p.get_devices()][:1]))
except Exception as e:  # not installed, or a loader without drivers
    print("skipped: no pyopencl or no OpenCL device:", e)
    sys.exit(77)

FLAGS = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
NONE = np.uint64(2**64 - 1)

EMULATED = r"""
#define EMU_ROOM __local uint4 emu_a[WG]; __local uint2 emu_b[WG]; __local uint emu_at[WG]; __local float emu_f[WG];
#define EMU_MMA(c, a, b0, b1)                                                                 \
    {                                                                                         \
        uint me = get_local_id(0);                                                            \
        emu_a[me] = a, emu_b[me] = (uint2)(b0, b1);                                           \
        barrier(CLK_LOCAL_MEM_FENCE);                                                         \
        emu_mma(c, emu_a + (me & ~31u), emu_b + (me & ~31u), me & 31);                        \
        barrier(CLK_LOCAL_MEM_FENCE);                                                         \
    }
float emu_half(uint pair, uint e)
{
    ushort h = (ushort)(e ? pair >> 16 : pair & 0xffff);
    return vload_half(0, (__private half *)&h);
}
uint emu_pair(float lo, float hi)
{
    ushort a, b;
    vstore_half(lo, 0, (__private half *)&a);
    vstore_half(hi, 0, (__private half *)&b);
    return a | (uint)b << 16;
}
/* m16n8k16: A in (row l/4, k 2(l%4)), row + 8, k + 8, both; B in (k 2(l%4), column l/4), k + 8; C as A of 8 columns. */
void emu_mma(float *c, __local uint4 *A, __local uint2 *B, uint lane)
{
    for (uint v = 0; v < 4; v++)
        for (uint k = 0; k < 16; k++) {
            uint row = lane / 4 + v / 2 * 8, col = lane % 4 * 2 + v % 2;
            uint4 a = A[row % 8 * 4 + k % 8 / 2];
            uint2 b = B[col * 4 + k % 8 / 2];
            uint pair = row < 8 ? (k < 8 ? a.x : a.z) : (k < 8 ? a.y : a.w);
            c[v] += emu_half(pair, k & 1) * emu_half(k < 8 ? b.x : b.y, k & 1);
        }
}
float emu_lane(float x, uint from, __local float *f)
{
    barrier(CLK_LOCAL_MEM_FENCE);
    f[get_local_id(0)] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    return f[from];
}
"""

# nvidia.clh as far as these kernels use it.
EMULATED += r"""
#define MMA(c, a0, a1, a2, a3, b0, b1) EMU_MMA(c, (uint4)(a0, a1, a2, a3), b0, b1)
#define f16_pair(low, high) emu_pair(low, high)
#define lane_xor(x, mask) emu_lane(x, get_local_id(0) ^ (mask), emu_f)
#define LOCAL_ROOM(at, bytes) __local uchar room[bytes] __attribute__((aligned(128))); uint at = 0;
#define LOAD_LOCAL4(r, from) r = *(__local uint4 *)(room + (from))
#define STORE_LOCAL(to, word) *(__local uint *)(room + (to)) = (word)
#define MEET_WARP() barrier(CLK_LOCAL_MEM_FENCE)
#define COPY16(to, from, bytes) *(__local uint4 *)(room + (to)) = (bytes) ? *(const __global uint4 *)(from) : (uint4)(0)
#define COMMIT()
#define WAIT(n)
#define LDMATRIX(trans, r0, r1, r2, r3, from)                                                 \
    {                                                                                         \
        uint me = get_local_id(0), w = me & ~31u, i = me & 31;                                \
        emu_at[me] = (from);                                                                  \
        barrier(CLK_LOCAL_MEM_FENCE);                                                         \
        __local uchar *s = room + i % 4 * 4;                                                  \
        r0 = *(__local uint *)(s + emu_at[w + i / 4]);                                        \
        r1 = *(__local uint *)(s + emu_at[w + 8 + i / 4]);                                    \
        r2 = *(__local uint *)(s + emu_at[w + 16 + i / 4]);                                   \
        r3 = *(__local uint *)(s + emu_at[w + 24 + i / 4]);                                   \
        barrier(CLK_LOCAL_MEM_FENCE);                                                         \
    }
"""


def emulated(source):
    """The kernel without assembly; fails if some is left."""
    body = source.split("*/", 1)[1]
    body = re.sub(r"#define LOAD_W\((?:[^\n]*\\\n)*[^\n]*\n", lambda _: "#define LOAD_W(a, p) a = *(const __global uint4 *)(p)\n", body)
    body = re.sub(r"(float warp_sum\()float x\)", r"\1float x, __local float *emu_f)", body).replace("warp_sum(sum)", "warp_sum(sum, emu_f)")
    body = re.sub(r"(KERNEL void [^{]*\{\n)", r"\1    EMU_ROOM\n", body)
    assert "asm" not in body, [line for line in body.split("\n") if "asm" in line]
    return EMULATED + body


def fragments(w):
    """As layout.c packs, written from the ISA's table."""
    n, k = w.shape
    rows = np.zeros(((n + 15) // 16 * 16, k), np.float16)
    rows[:n] = w
    tiles = rows.reshape(-1, 16, k // 16, 16)
    out = np.zeros((tiles.shape[0], k // 16, 32, 4, 2), np.float16)
    for lane in range(32):
        for r in range(4):
            for e in range(2):
                out[:, :, lane, r, e] = tiles[:, lane // 4 + r % 2 * 8, :, lane % 4 * 2 + e + r // 2 * 8]
    return out


def buffer(a):
    return cl.Buffer(QUEUE.context, FLAGS, hostbuf=np.ascontiguousarray(a))


def check(folder, family, group, knobs, m, n, k, bias=False, residual=False, norm=False, silu=False, half=False):
    source = open(f"{folder}/common.clh").read() + "\n#define WF_NVIDIA\n" + emulated(open(f"{folder}/{family}.cl").read())
    options = ["-cl-std=CL1.2", "-DACT=16", f"-DWG={group}"] + [f"-D{a}={b}" for a, b in knobs.items()]
    kernel = getattr(cl.Program(QUEUE.context, source).build(options), family)
    g = np.random.default_rng(m * 131 + n * 7 + k)
    cols = n // 2 if silu else n
    x = g.standard_normal((m, k)).astype(np.float32 if norm else np.float16)
    w = (g.standard_normal((n, k)) / np.sqrt(k)).astype(np.float16)
    b, res, scale = (g.standard_normal(s).astype(np.float32) for s in (n, (m, cols), k))
    y = np.full((m, cols), np.nan, np.float16 if half else np.float32)
    out, zero = buffer(y), np.uint64(0)
    args = [buffer(x), zero, buffer(fragments(w)), zero, buffer(b), zero if bias else NONE, buffer(res), zero if residual else NONE,
            out, zero, np.uint32(half), np.uint32(m), np.uint32(cols), np.uint32(k), np.uint32(k), np.uint64(2 * k),
            np.uint32(cols), np.uint32(cols)]
    if family == "gemm_flat":
        args += [buffer(scale), zero if norm else NONE, np.float32(1e-5)]
    kernel(QUEUE, (3 * group,), (group,), *args)
    cl.enqueue_copy(QUEUE, y, out)
    want = x.astype(np.float64)
    if norm:
        want = want / np.sqrt((want**2).mean(1, keepdims=True) + 1e-5) * scale
    want = want @ w.astype(np.float64).T + (b if bias else 0)
    if silu:
        want = want[:, :cols] / (1 + np.exp(-want[:, :cols])) * want[:, cols:]
    want = want + (res if residual else 0)
    error = np.abs(y - want).max() / np.abs(want).max()
    good = bool(error < 2e-3)
    print("ok  " if good else "FAIL", family, knobs, f"M {m} N {n} K {k}", f"error {error:.1e}", flush=True)
    return good


def main(folder):
    def flat(rb, nt, uk, norm=0, silu=0, xk=32, xrows=1):
        return {"RB": rb, "NT": nt, "UK": uk, "NORM": norm, "SILU": silu, "XK": xk, "XROWS": xrows}

    def frag(bm, bn, wm, wn, pk, stages, vec):
        return {"BM": bm, "BN": bn, "WM": wm, "WN": wn, "PK": pk, "STAGES": stages, "VEC": vec}

    good = [  # few warps and little unrolling: CPU drivers compile each meeting of lanes slowly
        check(folder, "gemm_flat", 64, flat(2, 2, 1), 13, 90, 128, bias=True, residual=True, half=True),
        check(folder, "gemm_flat", 64, flat(2, 1, 2, norm=1, silu=1, xk=256, xrows=4), 3, 128, 256, bias=True, norm=True, silu=True),
        check(folder, "gemm_frag", 64, frag(32, 16, 16, 16, 64, 3, 1), 45, 40, 320, bias=True, residual=True, half=True),
        check(folder, "gemm_frag", 64, frag(16, 64, 16, 32, 32, 2, 0), 21, 74, 96, bias=True, residual=True),
    ]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
