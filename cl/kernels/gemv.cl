/* gemv: Y = X W^T + bias + residual for few rows of X; bound by the reading of W, which happens once.
 *
 *            k ->   lane 0   lane 1   ...  lane LANES-1   lane 0 ...
 * (8 elems: 32 of planes)
 *   W row n       [ 8 elems | 8 elems |   |   8 elems   | 8 elems | ... ]
 *
 * LANES work-items share the K of RPL neighbouring rows of W: neighbours read neighbouring 8 elements,
 * and each value of X that was read serves RPL rows. A work-group holds WG / LANES such teams. The sums
 * of a team are added as a tree in local memory. Every output has the same order of additions whatever
 * MR, RPL and WG are: one invariance class per LANES.
 *
 * Knobs: MR rows of X (at least M), LANES (a power of two, at most WG), RPL,
 * VEC 1: rows of X and W are aligned to 8 elements and K is a multiple of 8; 0: any K, one element a
 * step, UNROLL steps whose loads are all issued before the first use; GROUPED 1: experts.clh, a pair after the other.
 */
#include "common.clh"
#include "epilogue.clh"
#include "experts.clh"
#include "quant/f16.clh"
#ifndef MR
#define MR 1
#endif
#ifndef LANES
#define LANES 32
#endif
#ifndef RPL
#define RPL 1
#endif
#ifndef VEC
#define VEC 1
#endif
#ifndef UNROLL
#define UNROLL 4
#endif

#define TEAMS (WG / LANES)
#define OUTS  (RPL * MR) /* sums of a work-item */

#include "dot.clh"

/* Adds the products of n steps from k on, LANES * STEP apart. */
static INLINE void add_steps(float acc[OUTS], const __global uchar *const row[RPL], const __global act_t *x,
                             uint x_stride, uint M, uint k, int n)
{
    w_part w[UNROLL][RPL];
    for (int u = 0; u < n; u++)
        for (int r = 0; r < RPL; r++) W_LOAD(w[u][r], row[r], k + u * LANES * STEP);
    for (int u = 0; u < n; u++)
#pragma unroll
        for (int i = 0; i < PARTS_OF_STEP; i++) {
            vec_t part[RPL];
            for (int r = 0; r < RPL; r++) part[r] = W_PART(w[u][r], i);
            for (int m = 0; m < MR; m++) {
                vec_t v = X_LOAD(x + min((uint)m, M - 1) * (ulong)x_stride, k + u * LANES * STEP + 8 * i);
                for (int r = 0; r < RPL; r++) acc[m * RPL + r] = dot_add(part[r], v, acc[m * RPL + r]);
            }
        }
}

KERNEL void gemv(IN(x), IN(w), IN(bias), IN(res), OUT_ACT(y), uint M, uint N, uint K, uint x_stride,
                 ulong w_row_bytes, uint res_stride, uint y_stride EXPERT_ARGS)
{
    __local float part[OUTS][WG];
    uint lid = get_local_id(0), lane = lid % LANES, team = lid / LANES;
    uint tiles = (N + TEAMS * RPL - 1) / (TEAMS * RPL);
    const __global act_t *x = IN_AT(act_t, x);
    const __global uchar *w = IN_AT(uchar, w);
#if GROUPED
    const experts g = EXPERTS_OF_ARGS;
    for (ulong turn = get_group_id(0); turn < (ulong)tiles * pairs; turn += get_num_groups(0)) {
        uint tile = turn / pairs, pair = turn % pairs; /* neighbours may share an expert */
        x = IN_AT(act_t, x) + x_of(&g, pair);
        int expert = expert_of(&g, pair);
        w = IN_AT(uchar, w) + w_row_of(&g, expert) * w_row_bytes;
#else
    for (uint tile = get_group_id(0); tile < tiles; tile += get_num_groups(0)) {
#endif
        uint first = tile * TEAMS * RPL; /* output column of the group */
        float acc[OUTS];
        const __global uchar *row[RPL];
        for (int i = 0; i < OUTS; i++) acc[i] = 0;
        for (int r = 0; r < RPL; r++) row[r] = w + min(first + team * RPL + r, N - 1) * w_row_bytes;
        uint k = lane * STEP;
        for (; k + (UNROLL - 1) * LANES * STEP < K; k += UNROLL * LANES * STEP)
            add_steps(acc, row, x, x_stride, M, k, UNROLL);
        for (; k < K; k += LANES * STEP) add_steps(acc, row, x, x_stride, M, k, 1);
        add_teams(part, acc, lid);
        epilogue e = EPILOGUE(bias, res, y, res_stride, y_stride);
        for (uint i = lid; i < OUTS * TEAMS; i += WG) {
            uint c = i % (TEAMS * RPL), m = i / (TEAMS * RPL), col = first + c;
            if (m >= M || col >= N) continue;
#if GROUPED
            finish_pair(&e, &g, pair, expert, col, part[c % RPL][c / RPL * LANES]);
#else
            finish(&e, m, col, part[m * RPL + c % RPL][c / RPL * LANES]);
#endif
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* part is written again */
    }
}
