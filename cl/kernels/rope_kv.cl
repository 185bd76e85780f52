/* rope_kv: rotates q and k by position, writes q out and k, v into their slots of the KV pools (F16).
 *
 * A row of qkv is Hq heads of q, then Hkv of k, then Hkv of v, D elements each. A work-item does VEC
 * pairs of elements of one head: neighbours do neighbouring pairs. Pair i < n_rot / 2 is rotated by
 * (cos, sin) = table[pos][i]; what lies behind n_rot is copied.
 *
 * Knobs: NEOX 0: pair i is elements 2i, 2i + 1; 1: i, i + n_rot / 2. VEC 4: D and n_rot are multiples of 8, rows
 * and pages aligned to eight elements; 1: any.
 */
#ifndef WF_COMMON
#include "common.clh"
#endif
#ifndef NEOX
#define NEOX 0
#define VEC 1
#endif

#if VEC == 4
typedef float4 vec_t;
typedef float8 pairs_t;
#define EVEN(v)    (v).even
#define ODD(v)     (v).odd
#define TABLE(t)   vload8(0, t)
/* Elements e0 .. e0 + VEC and e1 .. e1 + VEC, which lie together unless they are the halves of a NEOX head. */
#define LOAD(p, e0, e1)                                                                            \
    (NEOX && (e1) != (e0) + VEC ? (float8)(ACT_LOAD4(p, e0), ACT_LOAD4(p, e1)) : ACT_LOAD8(p, e0))
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
#define LOAD(p, e0, e1) (float2)(ACT_LOAD(p, e0), ACT_LOAD(p, e1))
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

/* (a, b) of each pair to (a cos - b sin, a sin + b cos). In NEOX order the a stand in the lower half. */
pairs_t rotated(pairs_t v, pairs_t t)
{
    pairs_t r;
    vec_t c = EVEN(t), s = ODD(t);
#if NEOX
    r.lo = v.lo * c - v.hi * s;
    r.hi = v.lo * s + v.hi * c;
#else
    EVEN(r) = EVEN(v) * c - ODD(v) * s;
    ODD(r) = EVEN(v) * s + ODD(v) * c;
#endif
    return r;
}

KERNEL void rope_kv(IN(qkv), IN(table), IN(pos), IN(slot), OUT_ACT(q), OUT(kp), OUT(vp), uint M,
                    uint Hq, uint Hkv, uint D, uint n_rot, uint P, uint qkv_stride, uint q_stride,
                    uint table_stride, uint positions, ulong slots, ulong page_stride)
{
    uint parts = D / (2 * VEC);
    FOR_EACH (m, i, M, (Hq + 2 * Hkv) * parts) {
        uint p = i % parts * VEC, h = i / parts;
        int at = IN_AT(int, pos)[m], to = IN_AT(int, slot)[m];
        bool turn = p < n_rot / 2, apart = NEOX && turn;
        uint e0 = apart ? p : 2 * p, e1 = apart ? p + n_rot / 2 : 2 * p + VEC;
        const __global act_t *x = IN_AT(act_t, qkv) + (ulong)m * qkv_stride + h * D;
        pairs_t v = LOAD(x, e0, e1);
        if (turn && h < Hq + Hkv) {
            at = clamp(at, 0, (int)positions - 1);
            v = rotated(v, TABLE(IN_AT(float, table) + (ulong)at * table_stride + 2 * p));
        }
        if (h < Hq) {
            ulong y = (ulong)m * q_stride + h * D;
            if (q_half) PUT(OUT_AT(half, q) + y, e0, e1, v)
            else PUT_FLOATS(OUT_AT(float, q) + y, e0, e1, v)
        } else if (to >= 0 && (ulong)to < slots) {
            bool is_k = h < Hq + Hkv;
            uint page = (uint)to / P, kvh = h - Hq - (is_k ? 0 : Hkv);
            __global half *y = is_k ? OUT_AT(half, kp) : OUT_AT(half, vp);
            y += page * page_stride + (kvh * P + (uint)to % P) * D;
            PUT(y, e0, e1, v)
        }
    }
}
