/* router_norm: for few rows, the norm of x, the scores of all experts and the choice of T of them, in one launch: y = x
 * / sqrt(mean(x^2) + eps) * norm, and of y W^T the largest. One work-group a row: it reads all of W, which has to be
 * small.
 *
 *            k ->   lane 0   lane 1   ...  lane LANES-1   lane 0 ...
 *   W row e       [ 8 elems | 8 elems |   |   8 elems   | 8 elems | ... ]
 *
 * LANES work-items are a team, which takes ROUTER_ROWS neighbouring rows of W at a time, and from the same loads of x
 * the sum of squares: scores are multiplied by the scale afterwards, so that reading W waits for nothing. Sums of a
 * team are added as a tree in local memory. Then a work-item an expert counts those that come before its own.
 *
 * Scores follow from LANES, VEC and K, whatever the other rows are. They are not those of y rounded to F16.
 *
 * Knobs: LANES, a power of two, at most WG; VEC as in dot.clh, also of y and the norm. At most ROUTER_EXPERTS rows of
 * W.
 */
#include "common.clh"
#include "local_bytes.clh"
#include "norm.clh"
#include "quant/f16.clh"
#include "router.clh"
#ifndef LANES
#define LANES 32
#endif
#ifndef VEC
#define VEC 1
#endif

#define TEAMS (WG / LANES)
#define OUTS  (ROUTER_ROWS + 1) /* sums of a work-item: the last is that of squares */

#include "dot.clh"

#if VEC
#define STORE_VEC(i, v)                                                                            \
    {                                                                                              \
        STORE4(y, (i), (v).lo)                                                                     \
        STORE4(y, (i) + 4, (v).hi)                                                                 \
    }
#else
#define STORE_VEC(i, v) STORE(y, i, v)
#endif

/* What a work-item adds to the sums of rows `first`.. of W, and to that of squares. */
static INLINE void add_rows(float acc[OUTS], const __global uchar *w, ulong w_row_bytes, uint E, uint first,
                            const __global act_t *x, const __global float *norm, uint K, uint lane)
{
    const __global uchar *row[ROUTER_ROWS];
    for (int i = 0; i < OUTS; i++) acc[i] = 0;
    for (int r = 0; r < ROUTER_ROWS; r++) row[r] = w + min(first + r, E - 1) * w_row_bytes;
    for (uint k = lane * STEP; k < K; k += LANES * STEP) {
        vec_t v = X_LOAD(x, k), scale = NORM_LOAD(norm, k);
        w_part weight[ROUTER_ROWS];
        for (int r = 0; r < ROUTER_ROWS; r++) W_LOAD(weight[r], row[r], k);
        acc[ROUTER_ROWS] = dot_add(v, v, acc[ROUTER_ROWS]);
        v *= scale;
        for (int r = 0; r < ROUTER_ROWS; r++) acc[r] = dot_add(W_NUMBERS(weight[r]), v, acc[r]);
    }
}

/* How many scores come before that of expert e in descending order, the lower number first among equals. */
static INLINE uint place_of(const __local float *scores, uint E, uint e)
{
    float own = order_of(scores[e]);
    uint before = 0;
#pragma unroll 8
    for (uint i = 0; i < E; i++) {
        float other = order_of(scores[i]);
        before += other > own || (other == own && i < e);
    }
    return before;
}

KERNEL void router_norm(IN(x), IN(w), IN(norm), OUT(ids), OUT(weights), OUT_ACT(y), uint M, uint E, uint T, uint K,
                        uint x_stride, ulong w_row_bytes, uint ids_stride, uint weights_stride, uint y_stride,
                        uint sigmoid, uint normalise, float scale, float eps)
{
    __local float part[OUTS][WG], scores[ROUTER_EXPERTS], chosen[ROUTER_EXPERTS];
    const uint lid = get_local_id(0), lane = lid % LANES, team = lid / LANES;
    const __global float *norm = IN_AT(float, norm);
    for (uint m = get_group_id(0); m < M; m += get_num_groups(0)) {
        const __global act_t *x = IN_AT(act_t, x) + (ulong)m * x_stride;
        __global int *id = OUT_AT(int, ids) + (ulong)m * ids_stride;
        __global float *weight = OUT_AT(float, weights) + (ulong)m * weights_stride;
        float by = 0;
        for (uint turn = 0; turn < E; turn += TEAMS * ROUTER_ROWS) {
            uint first = turn + team * ROUTER_ROWS;
            float acc[OUTS];
            add_rows(acc, IN_AT(uchar, w), w_row_bytes, E, first, x, norm, K, lane);
            add_teams(part, acc, lid);
            by = rms_scale(part[ROUTER_ROWS][team * LANES], K, eps);
            for (uint r = lane; r < ROUTER_ROWS && first + r < E; r += LANES)
                scores[first + r] = part[r][team * LANES] * by;
            barrier(CLK_LOCAL_MEM_FENCE); /* part is written again */
        }
        for (uint k = lid * STEP; k < K; k += WG * STEP) {
            vec_t v = X_LOAD(x, k) * by * NORM_LOAD(norm, k);
            STORE_VEC((ulong)m * y_stride + k, v)
        }
        for (uint e = lid; e < E; e += WG) {
            uint place = place_of(scores, E, e);
            if (place < T) id[place] = e, chosen[place] = scores[e];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        const float top = order_of(chosen[0]);
        for (uint e = lid; e < E; e += WG) scores[e] = exp(scores[e] - top);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint t = lid; t < T; t += WG) {
            float all = 0, sum = 0;
#pragma unroll 8
            for (uint e = 0; e < E; e++) all += scores[e];
            for (uint i = 0; i < T; i++) sum += weight_of(chosen[i], top, sigmoid);
            weight[t] = weight_of(chosen[t], top, sigmoid) * factor(all, sum, sigmoid, normalise, scale);
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* scores are written again */
    }
}
