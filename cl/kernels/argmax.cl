/* argmax, one work-group a row: y[m] = the first column that holds the largest x; -1 - k for the first x[m, k]
 * that is no finite number.
 *
 * Work-item i looks at columns i, i + WG, ..., of which it loads AHEAD together; the WG bests become one as a tree in
 * local memory. Of what is no number the lowest column wins, of equal numbers too. WG is a power of two.
 */
#include "common.clh"
#ifndef AHEAD
#define AHEAD 8
#endif

/* Is (v, k) to be kept rather than (w, j)? Broken columns count as above every number. */
bool before(float v, uint k, float w, uint j)
{
    return v > w || (v == w && k < j);
}

KERNEL void argmax(IN(x), OUT(y), uint M, uint K, uint x_stride)
{
    __local float top[WG];
    __local uint at[WG];
    uint lid = get_local_id(0);
    for (uint m = get_group_id(0); m < M; m += get_num_groups(0)) {
        const __global float *x = IN_AT(float, x) + (ulong)m * x_stride;
        float best = -INFINITY;
        uint where = UINT_MAX;
        for (uint first = lid; first < K; first += WG * AHEAD) {
            float v[AHEAD];
#pragma unroll
            for (uint i = 0; i < AHEAD; i++)
                v[i] = x[min(first + i * WG, K - 1)]; /* the last column may come again: it changes nothing */
#pragma unroll
            for (uint i = 0; i < AHEAD; i++) {
                uint k = min(first + i * WG, K - 1);
                float w = isfinite(v[i]) ? v[i] : INFINITY;
                if (before(w, k, best, where)) best = w, where = k;
            }
        }
        top[lid] = best;
        at[lid] = where;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint half_ = WG / 2; half_ > 0; half_ /= 2) {
            if (lid < half_ && before(top[lid + half_], at[lid + half_], top[lid], at[lid])) {
                top[lid] = top[lid + half_];
                at[lid] = at[lid + half_];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (lid == 0) OUT_AT(int, y)[m] = top[0] == INFINITY ? -1 - (int)at[0] : (int)at[0];
        barrier(CLK_LOCAL_MEM_FENCE); /* top and at are written again */
    }
}
