/* rope_kv: rotates q and k by position, writes q out and k, v into their slots of the KV pools.
 *
 * A row of qkv is Hq heads of q, then Hkv of k, then Hkv of v, D elements each. A work-item does VEC
 * pairs of elements of one head: neighbours do neighbouring pairs. Pair i < n_rot / 2, elements 2i and 2i + 1, is
 * rotated by (cos, sin) = table[pos][i]; what lies behind n_rot is copied. Where KV pools have scales, a work-item has
 * the numbers of one.
 *
 * Knobs: VEC 4: D and n_rot are multiples of 8, rows and pages aligned to eight elements; 1: any.
 */
#include "common.clh"
#include "rope.clh"
#include "kv/f16.clh"
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

#if KV_BLOCK > 1
static INLINE void load_rotated(float x[KV_BLOCK], const rope_t *r, const __global act_t *head, uint e, uint n_rot,
                                int at)
{
    const __global float *t = cos_sin(r, at);
    for (uint i = 0; i < KV_BLOCK; i += 2) {
        float a = ACT_LOAD(head, e + i), b = ACT_LOAD(head, e + i + 1), first = a, second = b;
        if (e + i < n_rot) ROTATE(first, second, a, b, t[e + i], t[e + i + 1]);
        x[i] = first, x[i + 1] = second;
    }
}

KERNEL void rope_kv(IN(qkv), OUT_ACT(q), uint M, uint D, uint n_rot, uint qkv_stride, uint q_stride ROPE_ARGS)
{
    rope_t r = ROPE_OF_ARGS;
    FOR_EACH (m, i, M, (Hq + 2 * Hkv) * (D / KV_BLOCK)) {
        uint e = i % (D / KV_BLOCK) * KV_BLOCK, h = i / (D / KV_BLOCK);
        int to = r.slot[m];
        float x[KV_BLOCK];
        load_rotated(x, &r, IN_AT(act_t, qkv) + (ulong)m * qkv_stride + h * D, e, h < Hq + Hkv ? n_rot : 0, r.pos[m]);
        if (h < Hq)
            for (uint k = 0; k < KV_BLOCK; k++) STORE(q, (ulong)m * q_stride + h * D + e + k, x[k])
        else if (has_slot(&r, to))
            kv_store_block(h < Hq + Hkv ? r.kp : r.vp,
                           kv_place((uint)to / P, page_stride, in_page(&r, h, to, D) + e), x);
    }
}
#else
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
#endif
