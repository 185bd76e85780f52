/* gemm_flat: Y = X W^T + bias + residual for few rows of X on NVIDIA's matrix units (mma.sync m16n8k16, f16 in,
 * f32 sums), W MMA-fragment-major (layout.c). Bound by the reading of W, which happens once.
 *
 *   W is operand A: 16 of its rows a tile (fragments.clh), which a warp reads at once, straight to registers
 *   X is operand B (flat_f16.clh), or with INT16 one row in fixed point (flat_int16.clh)
 *   the warps of a work-group share K, a part each; their sums meet in local memory, added in the order of the parts
 *
 * NORM: X, in F32 or F16 (ACT), is normalised first; every work-group does it for itself, while its first weights are
 * under way, and keeps the result in local memory: rows of X read again with each tile of K would be waited for. SILU:
 * Y = silu(gate) * up. The two blocks of a work-group are the same rows of gate and of up. ROPE: W holds q, k and v; Y
 * is q, rotated, and k and v go to their slots (rope.clh). The two blocks of a work-group hold whole pairs. Behind the
 * sums a work-item has one pair; what that needs comes while the weights are under way.
 *
 * CUT n: K has n parts that begin where those of ../nvidia/gemm.c do, for the bits of its programs with so many; n
 * warps share the K of A_TILES blocks, and the others have blocks of their own. With NORM the norm has the bits of
 * rmsnorm_group.cl, the rotation always those of ../nvidia/gemm_epilogue.c. With KEEP a work-group copies X to local
 * memory first.
 *
 * Knobs: A_TILES blocks of 16 rows of W a work-group, with CUT for n warps; B_TILES tiles of 8 rows of X (8 * B_TILES
 * >= M); UK tiles of W along K whose loads are issued together: two such sets are in turn loaded and used; WG = 32 *
 * the warps. K is a multiple of W_K, with CUT of 64; rows of X are F16 aligned to 4 bytes. With NORM or KEEP B_TILES is
 * 1, XK is K, XROWS >= M, and rows are aligned to four elements; with SILU a work-group has pairs of blocks and the
 * rows of W are a multiple of 32. With ROPE WG is at least half of the rows of X and of W that a work-group has, heads
 * have HEAD elements, of which N_ROT turn. With INT16 M is 1, unless GROUPED, XK is K, the rows are aligned to four
 * elements, and W is quantised. GROUPED 1: experts.clh, without NORM and ROPE; the rows of an expert are a multiple
 * of 16. A work-group has rows of X that go to the same expert, up to 8 * B_TILES; with INT16 one. Parts: flat_f16.clh
 * or flat_int16.clh, fragments.clh, epilogue.clh; with NORM prologue.clh; with ROPE rope.clh; with GROUPED
 * experts_few.clh.
 */
#ifndef WG
#define WG 512
#endif
#include "common.clh"
#include "local_bytes.clh"
#include "nvidia.clh"
#include "epilogue.clh"
#ifndef A_TILES
#define A_TILES 1
#define B_TILES 1
#define UK 4
#endif
#include "fragments.clh"

#define WARPS   (WG / WARP)
#ifndef CUT
#define CUT 0
#endif
#ifndef KEEP
#define KEEP 0
#endif
#define PARTS   (CUT ? CUT : WARPS) /* of K */
#define PART_K  (CUT ? 64 : W_K)    /* they begin at multiples of it */
#define BLOCKS  (A_TILES * (WARPS / PARTS)) /* of a work-group */
#define ROWS    (BLOCKS * 16)

#ifndef NORM
#define NORM 0
#define SILU 0
#define XK 4096
#define XROWS 1
#endif
#ifndef INT16
#define INT16 0
#endif
#if INT16
#include "flat_int16.clh"
#else
#include "flat_f16.clh"
#endif
#if NORM
#include "prologue.clh"
#endif

#include "experts.clh"
#if GROUPED
#include "experts_few.clh"
#endif

#ifndef ROPE
#define ROPE 0
#define ROPE_ARGS
#else
#include "rope.clh"
#endif

#define OUTS    FLAT_OUTS(BLOCKS, X_ROWS)
#define COLUMNS (SILU ? ROWS / 2 : ROWS) /* of Y a tile */

/* ---- operands and products -------------------------------------------------------------------------------- */

/* Operands get the tiles first to first + UK of K; zeros from tile `to` on. */
static INLINE void load_w(w_tile a[UK][A_TILES], const __global uchar *const w_at[A_TILES], uint first, uint to,
                          uint lane)
{
#pragma unroll
    for (uint u = 0; u < UK; u++)
#pragma unroll
        for (int r = 0; r < A_TILES; r++) {
            w_clear(&a[u][r]);
            if (first + u < to) W_READ(&a[u][r], w_at[r] + (first + u) * (ulong)W_BYTES, lane, LD_WORDS);
        }
}

#if KEPT
/* The products of K's tiles from `from` to `to`; the first 2 UK of W are on their way, for while X is normalised memory
 * has nothing else to do. */
static INLINE void multiply_all(sums *acc, w_tile a[2][UK][A_TILES], x_operand b[2],
                                const __global uchar *const w_at[A_TILES], X_PLACE(x_at), uint from, uint to, uint lane)
{
    for (uint k0 = from; k0 < to; k0 += 2 * UK) {
        multiply(acc, a[0], &b[0], x_at, k0, to, lane);
        load_w(a[0], w_at, k0 + 2 * UK, to, lane);
        multiply(acc, a[1], &b[1], x_at, k0 + UK, to, lane);
        load_w(a[1], w_at, k0 + 3 * UK, to, lane);
    }
}
#else
/* The products of K's tiles from `from` to `to`; of both operands the first UK of them are in a[0] and b[0]. */
static INLINE void multiply_all(sums *acc, w_tile a[2][UK][A_TILES], x_operand b[2],
                                const __global uchar *const w_at[A_TILES], X_PLACE(x_at), uint from, uint to, uint lane)
{
    for (uint k0 = from; k0 < to; k0 += 2 * UK) {
        load_w(a[1], w_at, k0 + UK, to, lane);
        load_x(&b[1], x_at, k0 + UK, to);
        multiply(acc, a[0], &b[0], x_at, k0, to, lane);
        load_w(a[0], w_at, k0 + 2 * UK, to, lane);
        load_x(&b[0], x_at, k0 + 2 * UK, to);
        multiply(acc, a[1], &b[1], x_at, k0 + UK, to, lane);
    }
}
#endif

/* ---- which rows of W a work-group has ---------------------------------------------------------------------------- */

static uint tiles_of(uint N)
{
    return ((N + 15) / 16 + COLUMNS / 16 - 1) / (COLUMNS / 16);
}

/* Block r of a tile. With SILU a block of gate, the same of up, and so on. */
static INLINE uint block_of(uint tile, uint r, uint N)
{
#if SILU
    return min(tile * (BLOCKS / 2) + r / 2, N / 16 - 1) + r % 2 * (N / 16);
#else
    return min(tile * BLOCKS + r, (N + 15) / 16 - 1);
#endif
}

/* ---- behind the product ---------------------------------------------------------------------------------------- */

/* In a tile, the row of W of its column: with SILU that of gate, 16 before that of up. */
static INLINE uint row_of(uint column)
{
    return SILU ? column / 16 * 32 + column % 16 : column;
}

/* Output `at` of a tile: the sums of all parts. */
static INLINE float total(const __local float *partial, uint at)
{
    float sum = 0;
#pragma unroll
    for (int s = 0; s < PARTS; s++) sum += partial[s * OUTS + at];
    return sum;
}

#if ROPE
#if CUT /* as ../nvidia/gemm_epilogue.c rounds */
#define TURN(first, second, a, b, c, s) first = fma(a, c, -((b) * (s))), second = fma(b, c, (a) * (s))
#else
#define TURN ROTATE
#endif

/* The pair of outputs that work-item lid has of a tile: for row m of X, row `row` of the tile and the next, which are
 * elements e and e + 1 of a head. */
typedef struct pair_t {
    uint m, row, head, e;
} pair_t;

static INLINE pair_t pair_at(uint lid, uint tile)
{
    pair_t p;
    p.m = lid / (ROWS / 2);
    p.row = lid % (ROWS / 2) * 2;
    p.head = (tile * ROWS + p.row) / HEAD;
    p.e = (tile * ROWS + p.row) % HEAD;
    return p;
}

static INLINE bool is_pair(const pair_t *p, const rope_t *r, uint M)
{
    return p->m < M && p->head < r->Hq + 2 * r->Hkv;
}

static INLINE bool is_rotated(const pair_t *p, const rope_t *r)
{
    return p->head < r->Hq + r->Hkv && p->e < N_ROT;
}

/* Behind the sums: into is the slot of the pair's row, angle its cosine and sine. */
static INLINE void finish_pair(const epilogue *e, const rope_t *r, const pair_t *p, const __local float *partial,
                               int into, float2 angle)
{
    uint col = p->head * HEAD + p->e, at = p->m * ROWS + p->row;
    float a = add_bias(e, col, total(partial, at)), first;
    float b = add_bias(e, col + 1, total(partial, at + 1)), second;
    if (is_rotated(p, r)) TURN(first, second, a, b, angle.x, angle.y);
    else first = a, second = b;
    if (p->head < r->Hq) {
        store_y(e, p->m, col, first);
        store_y(e, p->m, col + 1, second);
    } else if (has_slot(r, into)) {
        __global half *kv = in_slot(r, p->head, into, HEAD);
        vstore_half(first, p->e, kv);
        vstore_half(second, p->e + 1, kv);
    }
}
#elif GROUPED
/* A column of row m of the product, of that pair. */
static INLINE void finish_row(const epilogue *e, const experts *g, uint m, uint pair, int expert,
                              const __local float *partial, uint tile, uint row)
{
    uint col = tile * COLUMNS + row;
    if (col >= g->N) return;
    float sum = total(partial, m * ROWS + row);
#if SILU
    sum = silu_mul(sum, total(partial, m * ROWS + 16 + row));
#endif
    finish_pair(e, g, pair, expert, col, sum);
}
#else
static INLINE void finish_all(const epilogue *e, const __local float *partial, uint tile, uint M, uint N, uint lid)
{
    for (uint i = lid; i < COLUMNS * X_ROWS; i += WG) {
        uint m = i / COLUMNS, col = tile * COLUMNS + i % COLUMNS, row = row_of(i % COLUMNS);
        if (m >= M || col >= N) continue;
        float sum = add_bias(e, col, total(partial, m * ROWS + row));
#if SILU
        sum = silu_mul(sum, add_bias(e, N + col, total(partial, m * ROWS + 16 + row)));
#endif
        store_y(e, m, col, add_residual(e, m, col, sum));
    }
}
#endif

KERNEL void gemm_flat(IN(x), IN(w), IN(bias), IN(res), OUT_ACT(y), uint M, uint N, uint K, uint x_stride,
                      ulong w_row_bytes, uint res_stride, uint y_stride, IN(norm), float eps ROPE_ARGS EXPERT_ARGS)
{
    __local float partial[FLAT_SUMS_BYTES(WG, A_TILES, X_ROWS) / 4];
    uint lid = get_local_id(0), lane = lid & 31, warp = lid >> 5, in_k = K / W_K, tiles = tiles_of(N);
    uint part = warp % PARTS, first_block = warp / PARTS * A_TILES, all = K / PART_K;
    uint from = part * all / PARTS * (PART_K / W_K), to = (part + 1) * all / PARTS * (PART_K / W_K);
    const __global uchar *w_at[A_TILES];
#if NORM || INT16 || KEEP
    X_ROOM
    ulong kept = ULONG_MAX; /* the element of X whose row is in x_at */
#else
    const __global uchar *x_at[B_TILES];
#endif
#if NORM
    __local float squares[XROWS][NORM_SUMS];
#endif
#if GROUPED
#if !INT16
    __local uint pair[WARPS][8 * B_TILES];
#endif
    const experts g = EXPERTS_OF_ARGS;
    uint turns = tiles * pairs;
#elif !NORM && !INT16 && !KEEP
#pragma unroll
    for (int t = 0; t < B_TILES; t++)
        x_at[t] = IN_AT(uchar, x) + min(t * 8 + (lane >> 2), M - 1) * (ulong)x_stride * 2 + (lane & 3) * 4;
#endif

#if GROUPED
    for (uint turn = get_group_id(0); turn < turns; turn += get_num_groups(0)) {
        uint tile = turn % tiles;
        int expert = expert_of(&g, turn / tiles);
        const ulong from_block = w_row_of(&g, expert) / 16;
#if INT16
        const uint one = turn / tiles;
        const ulong row = x_of(&g, one);
#else
        const uint n = find_pairs(pair[warp], 8 * B_TILES, &g, expert, turn / tiles, lane);
        if (!n) continue;
#pragma unroll
        for (int t = 0; t < B_TILES; t++)
            x_at[t] = IN_AT(uchar, x) + x_of(&g, pair[warp][min(t * 8 + (lane >> 2), n - 1)]) * 2 + (lane & 3) * 4;
#endif
#else
    const ulong from_block = 0, row = 0;
    for (uint tile = get_group_id(0); tile < tiles; tile += get_num_groups(0)) {
#endif
        sums acc;
        w_tile a[2][UK][A_TILES];
        x_operand b[2];
        clear_sums(&acc);
#pragma unroll
        for (int r = 0; r < A_TILES; r++)
            w_at[r] = IN_AT(uchar, w) + (from_block + block_of(tile, first_block + r, N)) * in_k * W_BYTES +
                      W_PLACE(lane);
        load_w(a[0], w_at, from, to, lane);
#if KEPT
        load_w(a[1], w_at, from + UK, to, lane);
#endif
#if ROPE /* what the epilogue needs comes while the weights are in flight */
        rope_t rope = ROPE_OF_ARGS;
        pair_t pair = pair_at(opaque(lid), tile);
        bool here = is_pair(&pair, &rope, M);
        int at = here ? rope.pos[pair.m] : 0, into = here ? rope.slot[pair.m] : -1;
#endif
#if NORM
        if (kept != row) normalise(x_at, squares, IN_AT(act_t, x), x_stride, IN_AT(float, norm), M, K, eps, lid);
        kept = row;
#elif INT16
        if (kept != row) keep_x(x_at, IN_AT(uint2, x) + row / 4, lid);
        kept = row;
#elif KEEP
        if (kept != row) keep_x(x_at, IN_AT(uint2, x), x_stride / 4, M, lid);
        kept = row;
#endif
        load_x(&b[0], OWN_X(x_at, lane, M), from, to);
#if ROPE
        float2 angle = 0;
        if (here && is_rotated(&pair, &rope)) angle = vload2(pair.e / 2, cos_sin(&rope, at));
#endif
        multiply_all(&acc, a, b, w_at, OWN_X(x_at, lane, M), from, to, lane);
        store_sums(partial + part * OUTS + first_block * 16, &acc, lane);
        barrier(CLK_LOCAL_MEM_FENCE);
        epilogue e = EPILOGUE(bias, res, y, res_stride, y_stride);
#if ROPE
        pair = pair_at(opaque(lid), tile);
        if (is_pair(&pair, &rope, M)) finish_pair(&e, &rope, &pair, partial, into, angle);
#elif GROUPED
#if INT16
        if (lid < COLUMNS) finish_row(&e, &g, 0, one, expert, partial, tile, lid);
#else
        for (uint i = lid; i < COLUMNS * n; i += WG)
            finish_row(&e, &g, i / COLUMNS, pair[0][i / COLUMNS], expert, partial, tile, i % COLUMNS);
#endif
#else
        finish_all(&e, partial, tile, M, N, lid);
#endif
        barrier(CLK_LOCAL_MEM_FENCE); /* partial is written again */
    }
}
