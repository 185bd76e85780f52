/* rope_kv: rotates q and k by position, writes q out and k, v into their slots of the KV pools (F16).
 *
 * A row of qkv is Hq heads of q, then Hkv of k, then Hkv of v, D elements each. A work-item does VEC
 * pairs of elements of one head: neighbours do neighbouring pairs. Pair i < n_rot / 2 is rotated by
 * (cos, sin) = table[pos][i]; what lies behind n_rot is copied.
 *
 * Knobs: NEOX 0: pair i is elements 2i, 2i + 1; 1: i, i + n_rot / 2. VEC 4: D and n_rot are multiples of 8, rows
 * and pages aligned to four elements; 1: any.
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
#define LOAD(p, i) ACT_LOAD4(p, i)
#define STORE_Q(i, v)                                                                              \
    {                                                                                              \
        if (q_half) vstorea_half4((v), 0, OUT_AT(half, q) + (i));                                  \
        else *(__global float4 *)(OUT_AT(float, q) + (i)) = (v);                                   \
    }
#define STORE_KV(y, i, v) vstorea_half4((v), 0, (y) + (i))
/* Words in the order of memory to first and second of each pair, and back. */
#define PAIR(a, b)   {vec_t a_ = a, b_ = b; a = (vec_t)(a_.even, b_.even); b = (vec_t)(a_.odd, b_.odd);}
#define UNPAIR(a, b) {vec_t a_ = a, b_ = b; a = (vec_t)(a_.s0, b_.s0, a_.s1, b_.s1); b = (vec_t)(a_.s2, b_.s2, a_.s3, b_.s3);}
#else
typedef float vec_t;
#define LOAD(p, i)        ACT_LOAD(p, i)
#define STORE_Q(i, v)     STORE(q, i, v)
#define STORE_KV(y, i, v) vstore_half((v), (i), (y))
#define PAIR(a, b) {}
#define UNPAIR(a, b) {}
#endif

KERNEL void rope_kv(IN(qkv), IN(table), IN(pos), IN(slot), OUT_ACT(q), OUT(kp), OUT(vp), uint M,
                    uint Hq, uint Hkv, uint D, uint n_rot, uint P, uint qkv_stride, uint q_stride,
                    uint table_stride, uint positions, ulong slots, ulong page_stride)
{
    const __global int *pos = IN_AT(int, pos), *slot = IN_AT(int, slot);
    uint parts = D / (2 * VEC);
    FOR_EACH (m, i, M, (Hq + 2 * Hkv) * parts) {
        uint p = i % parts * VEC, h = i / parts;
        bool turn = p < n_rot / 2 && h < Hq + Hkv, apart = NEOX && p < n_rot / 2;
        uint e0 = apart ? p : 2 * p, e1 = apart ? p + n_rot / 2 : 2 * p + VEC;
        const __global act_t *x = IN_AT(act_t, qkv) + (ulong)m * qkv_stride + (ulong)h * D;
        vec_t a = LOAD(x, e0), b = LOAD(x, e1);
        if (turn) {
            int at = clamp(pos[m], 0, (int)positions - 1);
            const __global float *t = IN_AT(float, table) + (ulong)at * table_stride + 2 * p;
#if VEC == 4
            float8 cs = vload8(0, t);
            vec_t c = cs.even, s = cs.odd;
#else
            float c = t[0], s = t[1];
#endif
            if (!NEOX) PAIR(a, b)
            vec_t r = a;
            a = r * c - b * s;
            b = r * s + b * c;
            if (!NEOX) UNPAIR(a, b)
        }
        if (h < Hq) {
            ulong at = (ulong)m * q_stride + (ulong)h * D;
            STORE_Q(at + e0, a)
            STORE_Q(at + e1, b)
        } else if (slot[m] >= 0 && (ulong)slot[m] < slots) {
            bool is_k = h < Hq + Hkv;
            uint page = (uint)slot[m] / P, at = (uint)slot[m] % P, kvh = h - Hq - (is_k ? 0 : Hkv);
            __global half *y = is_k ? OUT_AT(half, kp) : OUT_AT(half, vp);
            y += page * page_stride + ((ulong)kvh * P + at) * D;
            STORE_KV(y, e0, a);
            STORE_KV(y, e1, b);
        }
    }
}
