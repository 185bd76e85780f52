/* rope_kv: rotates q and k by position, writes q out and k, v into their slots of the KV pools (F16).
 *
 * A row of qkv is Hq heads of q, then Hkv of k, then Hkv of v, D elements each. A work-item does one
 * pair of elements of one head: neighbours do neighbouring pairs. Pair i < n_rot / 2 is rotated by
 * (cos, sin) = table[pos][i]; what lies behind n_rot is copied.
 *
 * Knob: NEOX 0: pair i is elements 2i, 2i + 1; 1: i, i + n_rot / 2.
 */
#ifndef WF_COMMON
#include "common.clh"
#endif
#ifndef NEOX
#define NEOX 0
#endif

KERNEL void rope_kv(IN(qkv), IN(table), IN(pos), IN(slot), OUT_ACT(q), OUT(kp), OUT(vp), uint M,
                    uint Hq, uint Hkv, uint D, uint n_rot, uint P, uint qkv_stride, uint q_stride,
                    uint table_stride, uint positions, ulong slots)
{
    const __global int *pos = IN_AT(int, pos), *slot = IN_AT(int, slot);
    uint pairs = D / 2;
    FOR_EACH (m, i, M, (Hq + 2 * Hkv) * pairs) {
        uint p = i % pairs, h = i / pairs;
        bool turn = p < n_rot / 2 && h < Hq + Hkv;
        uint e0 = 2 * p, e1 = 2 * p + 1;
        if (NEOX && p < n_rot / 2) e0 = p, e1 = p + n_rot / 2;
        const __global act_t *x = IN_AT(act_t, qkv) + (ulong)m * qkv_stride + (ulong)h * D;
        float a = ACT_LOAD(x, e0), b = ACT_LOAD(x, e1);
        if (turn) {
            int at = clamp(pos[m], 0, (int)positions - 1);
            const __global float *t = IN_AT(float, table) + (ulong)at * table_stride + 2 * p;
            float c = t[0], s = t[1], r = a;
            a = r * c - b * s;
            b = r * s + b * c;
        }
        if (h < Hq) {
            ulong at = (ulong)m * q_stride + (ulong)h * D;
            STORE(q, at + e0, a)
            STORE(q, at + e1, b)
        } else if (slot[m] >= 0 && (ulong)slot[m] < slots) {
            bool is_k = h < Hq + Hkv;
            uint page = (uint)slot[m] / P, at = (uint)slot[m] % P, kvh = h - Hq - (is_k ? 0 : Hkv);
            __global half *y = is_k ? OUT_AT(half, kp) : OUT_AT(half, vp);
            y += (((ulong)page * Hkv + kvh) * P + at) * D;
            vstore_half(a, e0, y);
            vstore_half(b, e1, y);
        }
    }
}
