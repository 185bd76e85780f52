/* router: of each row of scores the T largest, in descending order, and their weights. A work-item a row, which looks
 * for one after the other: the experts chosen so far are those before the last one in that order, so nothing has to be
 * kept.
 */
#include "router.clh"

/* The largest that comes behind (last, at) in descending order, the lower number first among equals. */
static int next_expert(const __global float *x, uint E, float last, int at)
{
    int best = -1;
    float most = 0;
#pragma unroll 8
    for (int e = 0; e < (int)E; e++) {
        float v = order_of(x[e]);
        bool behind = at < 0 || v < last || (v == last && e > at);
        if (behind && (best < 0 || v > most)) best = e, most = v;
    }
    return best;
}

static float sum_all(const __global float *x, uint E, float top)
{
    float all = 0;
#pragma unroll 8
    for (uint e = 0; e < E; e++) all += exp(x[e] - top);
    return all;
}

KERNEL void router(IN(x), OUT(ids), OUT(weights), uint M, uint E, uint T, uint x_stride, uint ids_stride,
                   uint weights_stride, uint sigmoid, uint normalise, float scale)
{
    for (uint m = get_global_id(0); m < M; m += get_global_size(0)) {
        const __global float *row = IN_AT(float, x) + (ulong)m * x_stride;
        __global int *id = OUT_AT(int, ids) + (ulong)m * ids_stride;
        __global float *weight = OUT_AT(float, weights) + (ulong)m * weights_stride;
        float top = 0, last = 0, sum = 0;
        int at = -1;
        for (uint t = 0; t < T; t++) {
            at = next_expert(row, E, last, at);
            last = order_of(row[at]);
            if (t == 0) top = last;
            id[t] = at;
            sum += weight_of(row[at], top, sigmoid);
        }
        const float by = factor(sum_all(row, E, top), sum, sigmoid, normalise, scale);
        for (uint t = 0; t < T; t++) weight[t] = weight_of(row[id[t]], top, sigmoid) * by;
    }
}
