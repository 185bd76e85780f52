#!/usr/bin/env python3
"""Runs the kernels that use NVIDIA's assembly (gemm_flat.cl, gemm_frag.cl, gemm_mma.cl) on any OpenCL device: in place of
nvidia.clh stands plain OpenCL C that does what the PTX ISA says, lanes meeting in local memory. Wrong index maths, wild
reads and names that hide each other show here, without a GPU. All warps must take equally many steps: K is chosen so.

  nvidia.py KERNEL-FOLDER WGMMA_PTX      the tool packs quantised weights; exit code 77: no pyopencl or no device
"""
import functools
import os
import re
import subprocess
import sys

import wgmma
from wgmma import formats_of, fragments, quantised, turned

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
os.environ["PYOPENCL_NO_CACHE"] = "1"  # which asks for binaries, and PoCL compiles these for work-groups of any size, twice as long as what runs
try:
    import numpy as np
    import pyopencl as cl
    QUEUE = cl.CommandQueue(cl.Context([p.get_devices()[0] for p in cl.get_platforms() if p.get_devices()][:1]))
except Exception as e:  # not installed, or a loader without drivers
    print("skipped: no pyopencl or no OpenCL device:", e)
    sys.exit(77)

import part
import tolerances  # needs numpy

FLAGS = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
NONE = np.uint64(2**64 - 1)

EMULATED = r"""
#define EMU_ROOM __local uint4 emu_a[WG]; __local uint2 emu_b[WG]; __local uint emu_at[WG]; __local float emu_f[WG];
#define EMU_PARAMS __local uint4 *emu_a, __local uint2 *emu_b, __local uint *emu_at, __local float *emu_f, __local uchar *room
#define EMU_ARGS emu_a, emu_b, emu_at, emu_f, room
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
uint emu_fma(uint a, uint b, uint c)
{
    return emu_pair(fma(emu_half(a, 0), emu_half(b, 0), emu_half(c, 0)), fma(emu_half(a, 1), emu_half(b, 1), emu_half(c, 1)));
}
uint emu_permute(uint a, uint b, uint how)
{
    ulong both = (ulong)b << 32 | a;
    uint r = 0;
    for (uint i = 0; i < 4; i++) {
        uint place = how >> 4 * i, byte = (uint)(both >> (place & 7) * 8 & 255);
        r |= (place & 8 ? (byte >> 7) * 255 : byte) << 8 * i;
    }
    return r;
}
int emu_dot(uint a, uint b, int sum)
{
    for (uint i = 0; i < 32; i += 8) sum += (int)(a >> i & 255) * (char)(b >> i & 255);
    return sum;
}
/* m16n8k16: A in (row l/4, k 2(l%4)), row + 8, k + 8, both; B in (k 2(l%4), column l/4), k + 8; C as A of 8 columns. */
void emu_mma(float *c, __local uint4 *A, __local uint2 *B, uint lane)
{
    for (uint v = 0; v < 4; v++) {
        float sum = 0; /* of 16 products, then one addition: wgmma.py does the same */
        for (uint k = 0; k < 16; k++) {
            uint row = lane / 4 + v / 2 * 8, col = lane % 4 * 2 + v % 2;
            uint4 a = A[row % 8 * 4 + k % 8 / 2];
            uint2 b = B[col * 4 + k % 8 / 2];
            uint pair = row < 8 ? (k < 8 ? a.x : a.z) : (k < 8 ? a.y : a.w);
            sum += emu_half(pair, k & 1) * emu_half(k < 8 ? b.x : b.y, k & 1);
        }
        c[v] += sum;
    }
}
uint emu_ballot(uint yes, __local uint *at)
{
    barrier(CLK_LOCAL_MEM_FENCE);
    at[get_local_id(0)] = yes;
    barrier(CLK_LOCAL_MEM_FENCE);
    uint r = 0;
    for (uint i = 0; i < 32; i++) r |= (at[(get_local_id(0) & ~31u) + i] ? 1u : 0u) << i;
    barrier(CLK_LOCAL_MEM_FENCE);
    return r;
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
#define opaque(x) (x)
#define silu_mul(gate, up) ((gate) / (1.0f + exp2((gate) * -1.44269504f)) * (up))
#define lane_xor(x, mask) emu_lane(x, get_local_id(0) ^ (mask), emu_f)
#define lanes_with(yes) emu_ballot(yes, emu_at)
#define LOCAL_ROOM(at, bytes) __local uchar room[bytes] __attribute__((aligned(128))); uint at = 0;
#define LOAD_LOCAL4(r, from) r = *(__local uint4 *)(room + (from))
#define EMU_WORDS(n, r, i, p) { for (int w_ = 0; w_ < n; w_++) (r)[(i) + w_] = (p)[w_]; }
#define LD_WORDS4(r, i, from) EMU_WORDS(4, r, i, (const __global uint *)(from))
#define LD_WORDS2(r, i, from) EMU_WORDS(2, r, i, (const __global uint *)(from))
#define LD_WORDS1(r, i, from) EMU_WORDS(1, r, i, (const __global uint *)(from))
#define LOCAL_WORDS4(r, i, from) EMU_WORDS(4, r, i, (const __local uint *)(room + (from)))
#define LOCAL_WORDS2(r, i, from) EMU_WORDS(2, r, i, (const __local uint *)(room + (from)))
#define LOCAL_WORDS1(r, i, from) EMU_WORDS(1, r, i, (const __local uint *)(room + (from)))
#define bits_with(x, mask, bits) ((x) & (mask) | (bits))
#define sub_pairs(a, b) emu_fma(a, 0x3c003c00u, (b) ^ 0x80008000u)
#define mul_pairs(a, b) emu_fma(a, b, 0x80008000u)
#define fma_pairs(a, b, c) emu_fma(a, b, c)
#define permute_bytes(a, b, how) emu_permute(a, b, how)
#define half_of(pair, upper) emu_half(pair, upper)
#define dot_bytes(a, b, sum) emu_dot(a, b, sum)
#define STORE_LOCAL(to, word) *(__local uint *)(room + (to)) = (word)
#define STORE_LOCAL4(to, words) *(__local uint4 *)(room + (to)) = (words)
#define SYNCWARP() barrier(CLK_LOCAL_MEM_FENCE)
#define COPY16(to, from, bytes) *(__local uint4 *)(room + (to)) = (bytes) ? *(const __global uint4 *)(from) : (uint4)(0)
#define COMMIT()
#define WAIT(n)
#define LATER(stages) 0
#define LDMATRIX(trans, r0, r1, r2, r3, from)                                                 \
    {                                                                                         \
        uint from_ = (from), me_ = get_local_id(0), w_ = me_ & ~31u, i_ = me_ & 31;           \
        emu_at[me_] = from_;                                                                  \
        barrier(CLK_LOCAL_MEM_FENCE);                                                         \
        __local uchar *s_ = room + i_ % 4 * 4;                                                \
        r0 = *(__local uint *)(s_ + emu_at[w_ + i_ / 4]);                                     \
        r1 = *(__local uint *)(s_ + emu_at[w_ + 8 + i_ / 4]);                                 \
        r2 = *(__local uint *)(s_ + emu_at[w_ + 16 + i_ / 4]);                                \
        r3 = *(__local uint *)(s_ + emu_at[w_ + 24 + i_ / 4]);                                \
        barrier(CLK_LOCAL_MEM_FENCE);                                                         \
    }
"""


def emulated(source):
    """The kernel without assembly; fails if some is left."""
    body = source.replace("__attribute__((always_inline))", "")
    for name in set(re.findall(r"^(?!KERNEL|typedef)\w[\w *]*?\b(\w+)\([^;]*?\)\n\{", body, re.M)):
        body = re.sub(rf"\b{name}\(", f"{name}(EMU_ARGS, ", body)
        body = re.sub(rf"^((?:INLINE )?[\w *]*?\b{name}\()EMU_ARGS, ([^;]*?\)\n\{{)", r"\1EMU_PARAMS, \2", body, flags=re.M)
    body = re.sub(r"(KERNEL void [^{]*\{\n)", r"\1    EMU_ROOM\n" + ("" if "LOCAL_ROOM(" in body else "    __local uchar room[16];\n"), body)
    assert "asm" not in body, [line for line in body.split("\n") if "asm" in line]
    return EMULATED + body


def q8_0(w):
    """Blocks of 32 as bytes, and what they stand for."""
    blocks = w.astype(np.float32).reshape(len(w), -1, 32)
    d = (np.abs(blocks).max(2, keepdims=True) / 127).astype(np.float16)
    q = np.rint(blocks / d).astype(np.int8)
    return np.concatenate([d.view(np.int8), q], 2).reshape(len(w), -1), (d * q.astype(np.float32)).reshape(w.shape)


def gapped(a):
    """The rows with 16 bytes between them that are NaN as F16 and as F32: who reads past the end of a row meets them."""
    rows = np.ascontiguousarray(a).view(np.uint8)
    return np.pad(rows, ((0, 0), (0, 16)), constant_values=255)


def buffer(a):
    return cl.Buffer(QUEUE.context, FLAGS, hostbuf=np.ascontiguousarray(a))


def composed(folder, name, seen, w_type):
    """The text of a file with those that it includes and that were not seen before, each once."""
    seen.add(name)
    text = open(f"{folder}/{name}").read().split("*/", 1)[1]

    def part(m):
        name = re.sub("^quant/.*", f"quant/{w_type}.clh", m[1])
        return "" if name in seen else composed(folder, name, seen, w_type)

    return re.sub(r'^#include "(.*)"\n', part, text, flags=re.M)


def built(folder, family, group, knobs, w_type="f16"):
    seen = {"nvidia.clh"}
    source = composed(folder, "common.clh", seen, w_type) + "#define WF_NVIDIA\n"
    source += emulated(composed(folder, f"{family}.cl", seen, w_type))
    knobs = {"ACT": 32 if knobs.get("NORM") else 16, **knobs}
    options = ["-cl-std=CL1.2", f"-DWG={group}"] + [f"-D{a}={b}" for a, b in knobs.items()]
    return getattr(cl.Program(QUEUE.context, source).build(options), family)


def told(family, knobs, m, n, k, good, error):
    print("ok  " if good else "FAIL", family, knobs, f"M {m} N {n} K {k}", f"{error:.2g} of its tolerance", flush=True)
    return good


def check(folder, family, group, knobs, m, n, k, bias=False, residual=False, norm=False, silu=False, half=False, w_type="f16", tool=None, act=32):
    """W is MMA-fragment-major, with a tool in format w_type, else in F16. act: bits of X where it is normalised."""
    knobs = {**knobs, "ACT": act} if norm else knobs
    kernel = built(folder, family, group, {**knobs, **(formats_of(tool)[w_type] if tool else {})}, "f16" if tool else w_type)
    g = np.random.default_rng(m * 131 + n * 7 + k)
    cols = n // 2 if silu else n
    x = g.standard_normal((m, k)).astype(np.float32 if norm and act == 32 else np.float16)
    w = (g.standard_normal((n, k)) / np.sqrt(k)).astype(np.float16)
    b, res, scale = (g.standard_normal(s).astype(np.float32) for s in (n, (m, cols), k))
    y = np.full((m, cols), np.nan, np.float16 if half else np.float32)
    res = res.astype(y.dtype)
    out, zero = buffer(y), np.uint64(0)
    if tool:
        w, packed = quantised(tool, w_type, n, k)
    else:
        packed = fragments(w)
    args = [buffer(gapped(x)), zero, buffer(packed), zero, buffer(b), zero if bias else NONE, buffer(res), zero if residual else NONE,
            out, zero, np.uint32(half), np.uint32(m), np.uint32(cols), np.uint32(k),
            np.uint32(k + 16 // x.itemsize), np.uint64(2 * k), np.uint32(cols), np.uint32(cols)]
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
    error = tolerances.op_error("GEMM", y, want)
    return told(family, knobs, m, n, k, bool(error <= 1), error)


def one_a_step(m, k):
    """X with one element in each 16 of K, so that their products have one sum, whatever its order; sums over K are rounded."""
    g = np.random.default_rng(m * k)
    x = np.zeros((m, k // 16, 16), np.float16)
    at = np.arange(m)[:, None], np.arange(k // 16)[None], g.integers(0, 16, (m, k // 16))
    x[at] = g.integers(1, 5, at[2].shape) * 2.0 ** g.integers(-8, 1, at[2].shape)
    return x.reshape(m, k)


def check_class(folder, tool, w_type, warps, uk, m, n, k, parts=1):
    """Few rows: the bits of the programs by wgmma with as many parts of K, and not of those with others. With more than one X is copied first."""
    group, knobs = 32 * warps, {**flat_knobs(1, 1, uk, xk=k, xrows=8), "CUT": parts, "KEEP": int(parts > 1), **formats_of(tool)[w_type]}
    x, zero = one_a_step(m, k), np.uint64(0)
    packed = quantised(tool, w_type, n, k)[1] if w_type != "F16" else fragments(np.random.default_rng(n).standard_normal((n, k)).astype(np.float16))
    y = np.full((m, n), np.nan, np.float32)
    out = buffer(y)
    sizes = [np.uint32(a) for a in (m, n, k, k + 8)]
    built(folder, "gemm_flat", group, knobs)(QUEUE, (3 * group,), (group,), buffer(gapped(x)), zero, buffer(packed), zero, out, NONE, out, NONE, out, zero,
                                            np.uint32(0), *sizes, np.uint64(2 * k), np.uint32(n), np.uint32(n), out, NONE, np.float32(0))
    cl.enqueue_copy(QUEUE, y, out)
    good = True
    for cut in (1, 2, -4):
        program = wgmma.Program(subprocess.check_output([tool, "narrow16", str(cut), w_type], text=True))
        want = np.zeros((m, n), np.float32)
        wgmma.call(program, 64, 16, cut, (m, n, k), {"x": wgmma.bytes_of(x), "w": wgmma.bytes_of(packed), "y": want.reshape(-1).view(np.uint8)}, False, False)
        same = np.array_equal(want.view(np.uint32), y.view(np.uint32))
        good &= same == (abs(cut) == parts)
    print("ok  " if good else "FAIL", "gemm_flat", knobs, f"M {m} N {n} K {k}", "has the bits of its class" if good else "has other bits than its class", flush=True)
    return good


def normalised(folder, items, x, scale):
    """Rows of F32 in F16, as the kernel of norms alone leaves them."""
    m, k = x.shape
    y, zero = np.zeros((m, k), np.float16), np.uint64(0)
    out, res = buffer(y), buffer(y)
    sizes = [np.uint32(a) for a in (m, 1, k, k, k, k)]
    built(folder, "rmsnorm_group", items, {"ACT": 32, "VEC": 4, "PER": -(-k // (4 * items))})(
        QUEUE, (items * m,), (items,), buffer(x), zero, buffer(scale), zero, res, NONE, out, zero, np.uint32(1), *sizes, np.float32(1e-5))
    cl.enqueue_copy(QUEUE, y, out)
    return y


def check_normalised_class(folder, tool, w_type, cut, warps, uk, items, m, n, k, silu=False, heads=None):
    """With the norm in front, and SiLU or the rotation of heads of HEAD elements behind, the bits of a norm and of the programs by wgmma with so many parts."""
    group, cols, rows = 32 * warps, n // 2 if silu else n, 1
    while rows < m:
        rows *= 2
    knobs = {**flat_knobs(1, 1, uk, norm=1, silu=int(silu), xk=k, xrows=rows), "CUT": cut, "NORM_ITEMS": items, **formats_of(tool)[w_type]}
    g = np.random.default_rng(n + k)
    x, zero = g.uniform(0.5, 2, (m, k)).astype(np.float32), np.uint64(0)  # of F16, W has one element in each 16 of K: then all of X shows in Y
    x *= one_a_step(m, k) if w_type != "F16" else g.standard_normal((m, k)).astype(np.float32)
    scale, bias = g.standard_normal(k).astype(np.float32), g.standard_normal(n).astype(np.float32)
    if w_type == "F16":  # row 0 becomes numbers between two of F16, which are rounded by the last bit of the sum
        scale = ((1 + 2**-11) / x[0] * np.sqrt(np.mean(x[0].astype(np.float64) ** 2) + 1e-5)).astype(np.float32)
    packed = quantised(tool, w_type, n, k)[1] if w_type != "F16" else fragments(one_a_step(n, k))
    more, sources, how = [], {}, ["silu"] if silu else []
    page, pages, params = 4, 3, {}
    pools = np.zeros((2, pages, 1 if heads is None else heads[1] * page * heads[2]), np.float16)
    if heads:
        q, kv, head, n_rot = heads
        cols, how, sources = q * head, [str(head), str(n_rot)], {}
        table, pos, slot = g.standard_normal((9, n_rot)).astype(np.float32), g.integers(0, 9, m).astype(np.int32), g.permutation(pages * page)[:m].astype(np.int32)
        knobs |= {"ROPE": 1, "HEAD": head, "N_ROT": n_rot}
        into = [buffer(p) for p in pools]
        for a in (buffer(table), buffer(pos), buffer(slot), *into):
            more += [a, zero]
        more += [np.uint32(a) for a in (q, kv, page, n_rot, 9)] + [np.uint64(pages * page), np.uint64(kv * page * head)]
        sources = {"table": wgmma.bytes_of(table), "pos": wgmma.bytes_of(pos), "slot": wgmma.bytes_of(slot)}
        params = {"y_stride": cols, "Hq": q, "Hkv": kv, "P": page, "table_stride": n_rot, "positions": 9, "slots": pages * page, "page_stride": kv * page * head}
    y = np.full((m, cols), np.nan, np.float32)
    out = buffer(y)
    sizes = [np.uint32(a) for a in (m, n if heads else cols, k, k)]
    built(folder, "gemm_flat", group, knobs)(QUEUE, (3 * group,), (group,), buffer(x), zero, buffer(packed), zero, buffer(bias), zero, out, NONE, out, zero,
                                            np.uint32(0), *sizes, np.uint64(2 * k), np.uint32(cols), np.uint32(cols), buffer(scale), zero, np.float32(1e-5), *more)
    cl.enqueue_copy(QUEUE, y, out)
    got = [y]
    if heads:
        got += [np.empty_like(p) for p in pools]
        for p, b in zip(got[1:], into):
            cl.enqueue_copy(QUEUE, p, b)
    h, good = normalised(folder, items, x, scale), True
    for parts in (cut, 3 - cut):
        program = wgmma.Program(subprocess.check_output([tool, "narrow16", str(parts), w_type, *how], text=True))
        want = [np.zeros((m, cols), np.float32)] + [np.zeros_like(p) for p in pools]
        sinks = {name: w.reshape(-1).view(np.uint8) for name, w in zip(("y", "kp", "vp") if heads else ("y",), want)}
        wgmma.call(program, 64, 16, parts, (m, n, k), {"x": wgmma.bytes_of(h), "w": wgmma.bytes_of(packed), "bias": wgmma.bytes_of(bias), **sources, **sinks}, False,
                   silu, params)
        close = silu and parts == cut and tolerances.op_error("GEMM", y, want[0].astype(np.float64)) <= 1  # numpy's exp2 has other last bits
        same = close or all(np.array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8)) for a, b in zip(got, want))
        good &= same == (parts == cut)
    print("ok  " if good else "FAIL", "gemm_flat", knobs, f"M {m} N {n} K {k}", "has the bits of a norm and its class" if good else "has other bits than a norm and its class", flush=True)
    return good


def check_experts(folder, family, group, knobs, tokens, used, experts, n, k, one_x=False, bias=False, silu=False, half=False, w_type="f16", tool=None):
    """Rows by experts that ids name; the second token names one that nobody has, and the last expert has no token. silu: n counts gate and up."""
    kernel = built(folder, family, group, {**knobs, "GROUPED": 1, "EXPERTS": 8, **(formats_of(tool)[w_type] if tool else {})}, "f16" if tool else w_type)
    g = np.random.default_rng(tokens * 131 + n * 7 + k)
    parts = 1 if one_x else used
    x = g.standard_normal((tokens, parts * k)).astype(np.float16)
    if tool:
        w, packed = quantised(tool, w_type, experts * n, k)
    else:
        w = (g.standard_normal((experts * n, k)) / np.sqrt(k)).astype(np.float16)
        packed, w = q8_0(w) if w_type == "q8_0" else (w, w)
        packed = gapped(packed) if family == "gemm_mma" else fragments(w)
    b = g.standard_normal(experts * n).astype(np.float32)
    ids = np.array([g.permutation(experts - 1)[:used] for _ in range(tokens)], np.int32)
    ids[1:2, 0] = experts
    cols = n // 2 if silu else n
    y = np.full((tokens, used * cols + 4), 7, np.float16 if half else np.float32)
    out, zero, pairs = buffer(y), np.uint64(0), tokens * used
    args = [buffer(gapped(x)), zero, buffer(packed), zero, buffer(b), zero if bias else NONE, out, NONE, out, zero, np.uint32(half),
            np.uint32(1), np.uint32(cols), np.uint32(k), np.uint32(parts * k + 8), np.uint64(packed.nbytes // (experts * n) if family == "gemm_mma" else 2 * k),
            np.uint32(0), np.uint32(used * cols + 4)]
    if family == "gemm_flat":
        args += [out, NONE, np.float32(0)]
    args += [buffer(np.pad(ids, ((0, 0), (0, 3)), constant_values=-1)), zero]
    args += [np.uint32(a) for a in (pairs, used, experts, 0 if one_x else k, used + 3)]
    kernel(QUEUE, (3 * group,), (group,), *args)
    cl.enqueue_copy(QUEUE, y, out)
    want = np.full((tokens, used, n), np.nan)
    w, xs = w.astype(np.float64).reshape(experts, n, k), x.astype(np.float64).reshape(tokens, parts, k)
    for m in range(tokens):
        for t in range(used):
            if ids[m, t] < experts:
                want[m, t] = w[ids[m, t]] @ xs[m, t % parts] + (b.reshape(experts, n)[ids[m, t]] if bias else 0)
    if silu:
        want = want[..., :cols] / (1 + np.exp(-want[..., :cols])) * want[..., cols:]
    got, want = y[:, :-4].astype(np.float64), want.reshape(tokens, -1)
    alike = np.array_equal(np.isnan(got), np.isnan(want)) and (y[:, -4:] == 7).all()
    error = tolerances.op_error("GEMM", np.nan_to_num(got).astype(y.dtype), np.nan_to_num(want))
    return told(family, knobs, f"{tokens} x {used} of {experts}", n, k, bool(alike and error <= 1), error)


def check_rope(folder, group, knobs, m, k, heads, kv_heads, bias=False, half=False, page=4, positions=9):
    """q goes out, k and v into pools of pages with gaps between them, of which all else stays as it was."""
    d, n_rot = knobs["HEAD"], knobs["N_ROT"]
    n, size = (heads + 2 * kv_heads) * d, kv_heads * page * d
    kernel = built(folder, "gemm_flat", group, knobs)
    g = np.random.default_rng(m * 131 + n * 7 + k)
    x = g.standard_normal((m, k)).astype(np.float32 if knobs["NORM"] else np.float16)
    w = (g.standard_normal((n, k)) / np.sqrt(k)).astype(np.float16)
    b, scale = (g.standard_normal(s).astype(np.float32) for s in (n, k))
    table = g.standard_normal((positions, n_rot + 2)).astype(np.float32)
    pos = g.integers(0, positions, m).astype(np.int32)
    pages = m // page + 2
    slot = g.permutation(pages * page)[:m].astype(np.int32)
    slot[-1:] = -1
    y, empty = np.full((m, heads * d), np.nan, np.float16 if half else np.float32), np.full((pages, size + 8), 7, np.float16)
    out, pools, zero = buffer(y), [buffer(empty), buffer(empty)], np.uint64(0)
    args = [buffer(x), zero, buffer(fragments(w)), zero, buffer(b), zero if bias else NONE, out, NONE, out, zero, np.uint32(half)]
    args += [np.uint32(m), np.uint32(n), np.uint32(k), np.uint32(k), np.uint64(2 * k), np.uint32(0), np.uint32(heads * d)]
    args += [buffer(scale), zero if knobs["NORM"] else NONE, np.float32(1e-5)]
    for a in (buffer(table), buffer(pos), buffer(slot), *pools):
        args += [a, zero]
    args += [np.uint32(a) for a in (heads, kv_heads, page, n_rot + 2, positions)] + [np.uint64(pages * page), np.uint64(size + 8)]
    kernel(QUEUE, (3 * group,), (group,), *args)
    want = x.astype(np.float64)
    if knobs["NORM"]:
        want = want / np.sqrt((want**2).mean(1, keepdims=True) + 1e-5) * scale
    q, *kv = turned(want @ w.astype(np.float64).T + (b if bias else 0), (heads, kv_heads), n_rot, table, pos)
    cl.enqueue_copy(QUEUE, y, out)
    rms = np.sqrt(np.mean(np.concatenate([q, *kv], axis=1) ** 2))
    error = tolerances.op_error("GEMM", y, q.reshape(m, -1), rms)
    for i, pool in enumerate(pools):
        got, expect = np.empty_like(empty), empty.astype(np.float64)
        cl.enqueue_copy(QUEUE, got, pool)
        for row in range(m - 1):
            cells = expect[slot[row] // page, :size].reshape(kv_heads, page, d)
            cells[:, slot[row] % page] = kv[i][row]
        error = max(error, tolerances.op_error("GEMM", got, expect, rms))
    return told("gemm_flat", knobs, m, n, k, bool(error <= 1), error)


def flat_knobs(rb, nt, uk, norm=0, silu=0, xk=32, xrows=1):
    return {"A_TILES": rb, "B_TILES": nt, "UK": uk, "NORM": norm, "SILU": silu, "XK": xk, "XROWS": xrows}


def main(folder, tool):
    flat = flat_knobs

    def row(blocks, k, **more):
        return {**flat(blocks, 1, 1, xk=k, **more), "INT16": 1}

    def rope(head, n_rot, **more):
        return {**flat(2, 1, 1, **more), "ROPE": 1, "HEAD": head, "N_ROT": n_rot}

    def frag(bm, bn, wm, wn, pk, stages, vec):
        return {"BM": bm, "BN": bn, "WM": wm, "WN": wn, "PK": pk, "STAGES": stages, "VEC": vec}

    def mma(bm, bn, wm, wn, stages, w16):
        return {"BM": bm, "BN": bn, "WM": wm, "WN": wn, "STAGES": stages, "W16": w16}

    product, experts, of_class, of_normalised, of_rope = (
        functools.partial(functools.partial, f) for f in (check, check_experts, check_class, check_normalised_class, check_rope))
    cases = [  # few warps and little unrolling: CPU drivers compile each meeting of lanes slowly
        product(folder, "gemm_flat", 64, flat(2, 2, 1), 13, 90, 128, bias=True, residual=True, half=True),
        product(folder, "gemm_flat", 64, flat(2, 1, 2, norm=1, silu=1, xk=256, xrows=4), 3, 128, 256, bias=True, norm=True, silu=True),
        product(folder, "gemm_flat", 64, flat(2, 1, 2, norm=1, silu=0, xk=256, xrows=4), 3, 96, 256, residual=True, norm=True, half=True, act=16),
        experts(folder, "gemm_flat", 64, flat(2, 1, 1), 21, 2, 4, 48, 128, bias=True, half=True),
        experts(folder, "gemm_flat", 64, flat(1, 1, 1), 1, 2, 8, 32, 256, one_x=True, w_type="Q4_K", tool=tool),
        experts(folder, "gemm_flat", 64, row(2, 256), 1, 2, 8, 48, 256, bias=True, half=True, w_type="Q4_K", tool=tool),
        experts(folder, "gemm_frag", 64, frag(32, 16, 16, 16, 64, 3, 1), 45, 2, 4, 32, 320, bias=True, half=True),
        experts(folder, "gemm_frag", 64, frag(16, 32, 16, 16, 64, 2, 0), 21, 3, 6, 48, 256, one_x=True, w_type="Q4_K", tool=tool),
        experts(folder, "gemm_flat", 64, flat(2, 1, 1, silu=1), 21, 2, 4, 96, 128, silu=True, half=True),
        experts(folder, "gemm_flat", 64, flat(2, 1, 1, silu=1), 1, 2, 8, 64, 256, one_x=True, silu=True, w_type="Q4_K", tool=tool),
        experts(folder, "gemm_flat", 64, row(2, 256, silu=1), 1, 2, 8, 96, 256, silu=True, half=True, w_type="Q4_K", tool=tool),
        experts(folder, "gemm_frag", 64, {**frag(32, 64, 16, 64, 64, 3, 1), "SILU": 1}, 45, 2, 4, 96, 320, silu=True, half=True),
        experts(folder, "gemm_frag", 64, {**frag(16, 64, 16, 32, 64, 2, 1), "SILU": 1}, 21, 3, 6, 64, 256, one_x=True, silu=True, w_type="Q4_K",
                      tool=tool),
        experts(folder, "gemm_mma", 64, mma(32, 16, 16, 16, 3, 1), 45, 2, 4, 40, 328, bias=True),
        experts(folder, "gemm_mma", 64, mma(16, 32, 16, 16, 2, 0), 21, 3, 6, 43, 160, one_x=True, half=True, w_type="q8_0"),
        of_class(folder, tool, "F16", 3, 6, 5, 44, 7 * 64),
        of_class(folder, tool, "Q4_K", 2, 2, 8, 92, 16 * 64),
        of_class(folder, tool, "Q8_0", 1, 1, 3, 32, 16 * 64),
        of_class(folder, tool, "Q4_0", 8, 1, 3, 44, 16 * 64, parts=4),
        of_normalised(folder, tool, "F16", 1, 3, 4, 256, 3, 92, 18 * 64),
        of_normalised(folder, tool, "Q4_K", 2, 4, 1, 64, 1, 92, 4 * 256),
        of_normalised(folder, tool, "Q8_0", 1, 6, 2, 128, 2, 96, 16 * 64, silu=True),
        of_normalised(folder, tool, "Q6_K", 2, 6, 1, 64, 2, 5 * 32, 4 * 256, heads=(3, 1, 32, 24)),
        product(folder, "gemm_flat", 128, {**flat(1, 1, 1, silu=1), "CUT": 1}, 3, 96, 256, bias=True, silu=True, half=True, w_type="Q4_K", tool=tool),
        of_rope(folder, 128, rope(64, 64), 8, 256, 2, 1, bias=True, half=True),
        of_rope(folder, 128, rope(128, 64, norm=1, xk=256, xrows=4), 3, 256, 2, 2, bias=True),
        product(folder, "gemm_frag", 64, frag(32, 16, 16, 16, 64, 3, 1), 45, 40, 320, bias=True, residual=True, half=True),
        product(folder, "gemm_frag", 64, frag(16, 64, 16, 32, 32, 2, 0), 21, 74, 96, bias=True, residual=True),
        product(folder, "gemm_frag", 64, {**frag(16, 128, 16, 64, 32, 2, 1), "SILU": 1}, 21, 160, 96, silu=True, half=True),
        product(folder, "gemm_flat", 64, flat(1, 1, 1), 5, 44, 256, bias=True, w_type="Q4_0", tool=tool),
        product(folder, "gemm_flat", 64, flat(1, 1, 1), 3, 32, 256, w_type="Q4_1", tool=tool),
        *(product(folder, "gemm_flat", 64, flat(1, 1, 1), 3, 32, 256, w_type=t, tool=tool) for t in ("Q8_0", "K8")),
        product(folder, "gemm_flat", 64, flat(2, 1, 1, norm=1, silu=1, xk=512, xrows=4), 3, 64, 512, norm=True, silu=True, w_type="Q6_K", tool=tool),
        *(product(folder, "gemm_flat", 64, row(1, 256), 1, 44, 256, bias=True, residual=True, half=True, w_type=t, tool=tool) for t in ("Q4_0", "Q5_1", "Q8_0", "K8")),
        *(product(folder, "gemm_flat", 64, row(2, 512, norm=1, silu=1), 1, 64, 512, norm=True, silu=True, w_type=t, tool=tool) for t in ("Q5_0", "Q4_K", "Q6_K")),
        product(folder, "gemm_frag", 64, frag(16, 32, 16, 16, 64, 2, 1), 21, 44, 512, residual=True, w_type="Q6_K", tool=tool),
        product(folder, "gemm_frag", 64, frag(16, 64, 16, 32, 64, 2, 1), 21, 64, 256, half=True, w_type="Q4_0", tool=tool),
        product(folder, "gemm_flat", 64, flat(1, 1, 1), 5, 44, 256, residual=True, w_type="IQ4_XS", tool=tool),
        *(product(folder, "gemm_flat", 64, row(1, 256), 1, 44, 256, bias=True, half=True, w_type=t, tool=tool) for t in ("IQ4_NL", "IQ2_XS", "IQ3_S", "Q2_K", "Q3_K")),
        *(product(folder, "gemm_naive", 64, {"FRAG": 1}, 3, 44, 256, w_type=t, tool=tool) for t in ("MXFP4", "IQ2_XXS", "IQ3_XXS", "Q2_K", "Q3_K")),
        product(folder, "gemm_frag", 64, frag(16, 64, 16, 32, 64, 2, 1), 21, 64, 256, bias=True, w_type="MXFP4", tool=tool),
        *(product(folder, "gemm_frag", 64, frag(16, 32, 16, 16, 64, 2, 1), 21, 44, 512, residual=True, w_type=t, tool=tool) for t in ("IQ2_S", "Q2_K")),
        experts(folder, "gemm_flat", 64, row(2, 256), 1, 2, 8, 48, 256, bias=True, half=True, w_type="MXFP4", tool=tool),
    ]
    good = [case() for case in part.mine("cl", cases)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
