/* rope_kv: rotates q and k by position, writes q out and k, v into their slots of the KV pools (F16).
 *
 * A row of qkv is Hq heads of q, then Hkv of k, then Hkv of v, D elements each. A work-item does VEC
 * pairs of elements of one head: neighbours do neighbouring pairs. Pair i < n_rot / 2 is rotated by
 * (cos, sin) = table[pos][i]; what lies behind n_rot is copied.
 *
 * Knobs: NEOX 0: pair i is elements 2i, 2i + 1; 1: i, i + n_rot / 2. VEC 4: D and n_rot are multiples of 8, rows
 * and pages aligned to eight elements; 1: any.
 */
#include "common.clh"
#include "rope.clh"
#ifndef NEOX
#define NEOX 0
#define VEC 1
#endif

#if VEC == 4
typedef float4 vec_t;
typedef float8 pairs_t;
#define EVEN(v)     (float4)((v).s0, (v).s2, (v).s4, (v).s6)
#define ODD(v)      (float4)((v).s1, (v).s3, (v).s5, (v).s7)
#define TABLE(t)    vload8(0, t)
#define PAIRS(a, b) (float8)((a).x, (b).x, (a).y, (b).y, (a).z, (b).z, (a).w, (b).w)
#define APART(a, b) JOINED(a, b)
/* Elements e0 .. e0 + VEC and e1 .. e1 + VEC, which lie together unless they are the halves of a NEOX head. */
#define LOAD(v, p, e0, e1)                                                                         \
    if (NEOX && (e1) != (e0) + VEC) {                                                              \
        float4 a_ = ACT_LOAD4(p, e0), b_ = ACT_LOAD4(p, e1);                                       \
        v = JOINED(a_, b_);                                                                        \
    } else v = ACT_LOAD8(p, e0);
#define PUT(dst, e0, e1, v)                                                                        \
    {                                                                                              \
        if (NEOX && (e1) != (e0) + VEC) {                                                          \
            *(__global uint2 *)((dst) + (e0)) = to_halves4((v).lo);                                  \
            *(__global uint2 *)((dst) + (e1)) = to_halves4((v).hi);                                  \
        } else *(__global uint4 *)((dst) + (e0)) = to_halves8(v);                                    \
    }
#define PUT_FLOATS(dst, e0, e1, v)                                                                 \
    {                                                                                              \
        *(__global float4 *)((dst) + (e0)) = (v).lo;                                                 \
        *(__global float4 *)((dst) + (e1)) = (v).hi;                                                 \
    }
#else
typedef float vec_t;
typedef float2 pairs_t;
#define EVEN(v)         (v).x
#define ODD(v)          (v).y
#define TABLE(t)        (float2)((t)[0], (t)[1])
#define PAIRS(a, b)     (float2)(a, b)
#define APART(a, b)     (float2)(a, b)
#define LOAD(v, p, e0, e1) v = (float2)(ACT_LOAD(p, e0), ACT_LOAD(p, e1));
#define PUT(dst, e0, e1, v)                                                                        \
    {                                                                                              \
        vstore_half((v).x, e0, dst);                                                                 \
        vstore_half((v).y, e1, dst);                                                                 \
    }
#define PUT_FLOATS(dst, e0, e1, v)                                                                 \
    {                                                                                              \
        (dst)[e0] = (v).x;                                                                           \
        (dst)[e1] = (v).y;                                                                           \
    }
#endif

#if NEOX /* the first of each pair stand in the lower half */
#define FIRST(v)   (v).lo
#define SECOND(v)  (v).hi
#define MADE(a, b) APART(a, b)
#else
#define FIRST(v)   EVEN(v)
#define SECOND(v)  ODD(v)
#define MADE(a, b) PAIRS(a, b)
#endif

KERNEL void rope_kv(IN(qkv), OUT_ACT(q), uint M, uint D, uint n_rot, uint qkv_stride, uint q_stride ROPE_ARGS)
{
    uint parts = D / (2 * VEC);
    rope_t r = ROPE_OF_ARGS;
    FOR_EACH (m, i, M, (Hq + 2 * Hkv) * parts) {
        uint p = i % parts * VEC, h = i / parts;
        int at = r.pos[m], to = r.slot[m];
        bool turn = p < n_rot / 2, apart = NEOX && turn;
        uint e0 = apart ? p : 2 * p, e1 = apart ? p + n_rot / 2 : 2 * p + VEC;
        const __global act_t *x = IN_AT(act_t, qkv) + (ulong)m * qkv_stride + h * D;
        pairs_t v;
        LOAD(v, x, e0, e1)
        if (turn && h < Hq + Hkv) {
            pairs_t t = TABLE(cos_sin(&r, at) + 2 * p);
            vec_t c = EVEN(t), s = ODD(t), a = FIRST(v), b = SECOND(v), first, second;
            ROTATE(first, second, a, b, c, s);
            v = MADE(first, second);
        }
        if (h < Hq) {
            ulong y = (ulong)m * q_stride + h * D;
            if (q_half) PUT(OUT_AT(half, q) + y, e0, e1, v)
            else PUT_FLOATS(OUT_AT(float, q) + y, e0, e1, v)
        } else if (has_slot(&r, to)) {
            __global half *y = in_slot(&r, h, to, D);
            PUT(y, e0, e1, v)
        }
    }
}
