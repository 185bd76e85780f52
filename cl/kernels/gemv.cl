/* gemv: Y = X W^T + bias + residual for few rows of X; bound by the reading of W, which happens once.
 *
 *            k ->   lane 0   lane 1   ...  lane LANES-1   lane 0 ...
 * (8 elems: 32 of planes)
 *   W row n       [ 8 elems | 8 elems |   |   8 elems   | 8 elems | ... ]
 *
 * LANES work-items share the K of a pair of rows of W: neighbours read neighbouring 8 elements, and each value of X
 * that was read serves both rows. A work-group holds WG / LANES such teams. The sums of a team are added as a tree in
 * local memory. Every output has the same order of additions whatever MR and WG are: one invariance class per LANES.
 *
 * A pair is two neighbours; with SILU, for Y = silu(gate) * up, the same row of gate and of up; with ROPE, where W
 * holds q, k and v, what turns together: Y is q, rotated, and k and v go to their slots (rope.clh).
 *
 * INT16: weights in planes, X in fixed point, which a work-group puts into local memory first, to have several tiles of
 * W with it; NORM: X is normalised before.
 *
 * Knobs: MR rows of X (at least M), LANES (a power of two, at most WG), VEC 1: rows of X and W are aligned to 8
 * elements and K is a multiple of 8; 0: any K, one element a step; UNROLL steps whose loads are all issued before the
 * first use; INT16 with XK, at least K, and NORM; SILU, ROPE (with HEAD, an even size of heads, of which N_ROT turn);
 * GROUPED 1: experts.clh, a pair of a token with an expert after the other, without INT16 and ROPE. Parts:
 * rows_f32.clh or rows_int16.clh.
 */
#ifndef WG
#define WG 128
#endif
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
#ifndef VEC
#define VEC 1
#endif
#ifndef UNROLL
#define UNROLL 4
#endif
#ifndef NORM
#define NORM 0
#endif
#ifndef INT16
#define INT16 0
#endif
#if NORM
#include "norm.clh"
#endif
#ifndef ROPE
#define ROPE 0
#define ROPE_ARGS
#else
#include "rope.clh"
#endif

#define TEAMS (WG / LANES)
#define OUTS  (2 * MR) /* sums of a work-item */

#include "dot.clh"
#if INT16
#include "rows_int16.clh"
#else
#include "rows_f32.clh"
#endif

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

static INLINE uint pairs_of(uint N)
{
    return SILU ? N : (N + 1) / 2;
}

/* Row r of W, 0 or 1, of a pair. */
static INLINE uint row_of(uint pair, uint r, uint N)
{
    return SILU ? pair + r * N : min(2 * pair + r, N - 1);
}

#if ROPE
static INLINE void finish_two(const epilogue *e, const rope_t *r, uint m, uint pair, float a, float b)
{
    uint head = pair / (HEAD / 2), i = pair % (HEAD / 2);
    float first = a = add_bias(e, 2 * pair, a), second = b = add_bias(e, 2 * pair + 1, b);
    if (head < r->Hq + r->Hkv && 2 * i < N_ROT) {
        const __global float *angle = cos_sin(r, r->pos[m]) + 2 * i;
        ROTATE(first, second, a, b, angle[0], angle[1]);
    }
    if (head < r->Hq) {
        store_y(e, m, 2 * pair, first);
        store_y(e, m, 2 * pair + 1, second);
    } else if (has_slot(r, r->slot[m])) {
        __global half *kv = in_slot(r, head, r->slot[m], HEAD);
        vstore_half(first, 2 * i, kv);
        vstore_half(second, 2 * i + 1, kv);
    }
}
#elif GROUPED
static INLINE void finish_two(const epilogue *e, const experts *g, uint of, int expert, uint pair, float a, float b)
{
#if SILU
    finish_pair(e, g, of, expert, pair, SILU_MUL(a, b));
#else
    finish_pair(e, g, of, expert, 2 * pair, a);
    if (2 * pair + 1 < g->N) finish_pair(e, g, of, expert, 2 * pair + 1, b);
#endif
}
#else
static INLINE void finish_two(const epilogue *e, uint m, uint pair, uint N, float a, float b)
{
#if SILU
    a = add_bias(e, pair, a), b = add_bias(e, N + pair, b);
    store_y(e, m, pair, add_residual(e, m, pair, SILU_MUL(a, b)));
#else
    finish(e, m, 2 * pair, a);
    if (2 * pair + 1 < N) finish(e, m, 2 * pair + 1, b);
#endif
}
#endif

/* Adds the products of n steps from k on, LANES * STEP apart. */
static INLINE void add_steps(float acc[OUTS], const __global uchar *const row[2], const x_place *x, uint k, int n)
{
    w_part w[UNROLL][2];
    for (int u = 0; u < n; u++)
        for (int r = 0; r < 2; r++) W_LOAD(w[u][r], row[r], k + u * LANES * STEP);
    for (int u = 0; u < n; u++) add_step(acc, w[u], x, k + u * LANES * STEP);
}

KERNEL void gemv(IN(x), IN(w), IN(bias), IN(res), OUT_ACT(y), uint M, uint N, uint K, uint x_stride,
                 ulong w_row_bytes, uint res_stride, uint y_stride, IN(norm), float eps ROPE_ARGS EXPERT_ARGS)
{
    __local float part[OUTS][WG];
    uint lid = get_local_id(0), lane = lid % LANES, team = lid / LANES, pairs_n = pairs_of(N);
    uint tiles = (pairs_n + TEAMS - 1) / TEAMS;
    const __global uchar *w = IN_AT(uchar, w);
#if INT16
    X_ROOM
    const x_place x_at = {x_q, x_scale, x_sum};
    keep_rows(x_at, part[0], IN_AT(act_t, x), x_stride, M, K, IN_AT(float, norm), eps, lid);
#else
    x_place x_at = {IN_AT(act_t, x), x_stride, M};
#endif
#if GROUPED
    const experts g = EXPERTS_OF_ARGS;
    for (ulong turn = get_group_id(0); turn < (ulong)tiles * pairs; turn += get_num_groups(0)) {
        uint tile = turn / pairs, of = turn % pairs; /* neighbours may share an expert */
        x_at.x = IN_AT(act_t, x) + x_of(&g, of);
        int expert = expert_of(&g, of);
        w = IN_AT(uchar, w) + w_row_of(&g, expert) * w_row_bytes;
#else
    for (uint tile = get_group_id(0); tile < tiles; tile += get_num_groups(0)) {
#endif
        float acc[OUTS];
        const __global uchar *row[2];
        for (int i = 0; i < OUTS; i++) acc[i] = 0;
        for (int r = 0; r < 2; r++) row[r] = w + row_of(min(tile * TEAMS + team, pairs_n - 1), r, N) * w_row_bytes;
        uint k = lane * STEP;
        for (; k + (UNROLL - 1) * LANES * STEP < K; k += UNROLL * LANES * STEP) add_steps(acc, row, &x_at, k, UNROLL);
        for (; k < K; k += LANES * STEP) add_steps(acc, row, &x_at, k, 1);
        add_teams(part, acc, lid);
        epilogue e = EPILOGUE(bias, res, y, res_stride, y_stride);
#if ROPE
        rope_t rope = ROPE_OF_ARGS;
#endif
        for (uint i = lid; i < MR * TEAMS; i += WG) {
            uint t = i % TEAMS, m = i / TEAMS, pair = tile * TEAMS + t;
            float a = part[2 * m][t * LANES], b = part[2 * m + 1][t * LANES];
            if (m >= M || pair >= pairs_n) continue;
#if ROPE
            finish_two(&e, &rope, m, pair, a, b);
#elif GROUPED
            finish_two(&e, &g, of, expert, pair, a, b);
#else
            finish_two(&e, m, pair, N, a, b);
#endif
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* part is written again */
    }
}
