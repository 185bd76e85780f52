/* rope_kv: rotates q and k by position, writes q out and k, v into their slots of the KV pools (F16).
 *
 * A row of qkv is Hq heads of q, then Hkv of k, then Hkv of v, D elements each. A work-item does VEC
 * pairs of elements of one head: neighbours do neighbouring pairs. Pair i < n_rot / 2, elements 2i and 2i + 1, is
 * rotated by (cos, sin) = table[pos][i]; what lies behind n_rot is copied.
 *
 * Knobs: VEC 4: D and n_rot are multiples of 8, rows and pages aligned to eight elements; 1: any.
 */
#include "common.clh"
#include "rope.clh"
#ifndef VEC
#define VEC 1
#endif

#if VEC == 4
typedef float4 vec_t;
typedef float8 pairs_t;
#define FIRST(v)    (float4)((v).s0, (v).s2, (v).s4, (v).s6)
#define SECOND(v)   (float4)((v).s1, (v).s3, (v).s5, (v).s7)
#define TABLE(t)    vload8(0, t)
#define PAIRS(a, b) (float8)((a).x, (b).x, (a).y, (b).y, (a).z, (b).z, (a).w, (b).w)
#define LOAD(p, e)  ACT_LOAD8(p, e)
#define PUT(dst, v) { *(__global uint4 *)(dst) = to_halves8(v); }
#define PUT_FLOATS(dst, v)                                                                         \
    {                                                                                              \
        *(__global float4 *)(dst) = (v).lo;                                                        \
        *(__global float4 *)((dst) + 4) = (v).hi;                                                  \
    }
#else
typedef float vec_t;
typedef float2 pairs_t;
#define FIRST(v)    (v).x
#define SECOND(v)   (v).y
#define TABLE(t)    (float2)((t)[0], (t)[1])
#define PAIRS(a, b) (float2)(a, b)
#define LOAD(p, e)  (float2)(ACT_LOAD(p, e), ACT_LOAD(p, (e) + 1))
#define PUT(dst, v)                                                                                \
    {                                                                                              \
        vstore_half((v).x, 0, dst);                                                                \
        vstore_half((v).y, 1, dst);                                                                \
    }
#define PUT_FLOATS(dst, v)                                                                         \
    {                                                                                              \
        (dst)[0] = (v).x;                                                                          \
        (dst)[1] = (v).y;                                                                          \
    }
#endif

KERNEL void rope_kv(IN(qkv), OUT_ACT(q), uint M, uint D, uint n_rot, uint qkv_stride, uint q_stride ROPE_ARGS)
{
    uint parts = D / (2 * VEC);
    rope_t r = ROPE_OF_ARGS;
    FOR_EACH (m, i, M, (Hq + 2 * Hkv) * parts) {
        uint e = i % parts * 2 * VEC, h = i / parts;
        int at = r.pos[m], to = r.slot[m];
        pairs_t v = LOAD(IN_AT(act_t, qkv) + (ulong)m * qkv_stride + h * D, e);
        if (e < n_rot && h < Hq + Hkv) {
            pairs_t t = TABLE(cos_sin(&r, at) + e);
            vec_t c = FIRST(t), s = SECOND(t), a = FIRST(v), b = SECOND(v), first, second;
            ROTATE(first, second, a, b, c, s);
            v = PAIRS(first, second);
        }
        if (h < Hq) {
            ulong y = (ulong)m * q_stride + h * D + e;
            if (q_half) PUT(OUT_AT(half, q) + y, v)
            else PUT_FLOATS(OUT_AT(float, q) + y, v)
        } else if (has_slot(&r, to)) {
            __global half *y = in_slot(&r, h, to, D) + e;
            PUT(y, v)
        }
    }
}
