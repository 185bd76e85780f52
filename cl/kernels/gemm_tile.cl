/* gemm_tile: Y = X W^T + bias + residual, BM x BN outputs a work-group, TM x TN of them a work-item.
 *
 *                 W^T  BK x BN in local memory
 *                +--------+
 *      X         |        |       For each BK of K: all load a part of both into local memory, [k][row],
 *   BM x BK      +--------+       16 bytes of a row a load. The next part is on its way into registers
 *   +----+       +--------+       while this one is multiplied, and goes to the other half of local memory
 *   |    |       | TM x TN|       (BUFS 2), so that a part costs one barrier.
 *   |    |       | each   |
 *   +----+       +--------+       Rows past the edge repeat the last one; K past it is zeros.
 *
 * Parts: expand.clh, tile.clh, epilogue.clh, experts_many.clh.
 *
 * In local memory row r of the pair W, X stacked lies, for a k, at r ^ SWZ(k): those who write the k of one
 * load for some rows and those who read four rows of one k all meet different banks. Fewer than 32 rows of X that do
 * not fill up the last 32 of the pair stay where they are.
 *
 * Each output is summed serially over K: bit for bit what gemm_naive gives, for all knobs but PARTS.
 *
 * Flat products, whose few rows of X make few tiles: PARTS teams share each BK, PARTS of K that lie side by side; at
 * the end their sums meet in local memory and are added in the order of the parts. What an output is depends on BK and
 * PARTS alone.
 *
 * SHARES: or several work-groups share the K of a tile (shares.clh).
 *
 * Knobs: BM, BN, BK, TM, TN, PARTS, with BM / TM * (BN / TN) * PARTS = WG, BM + BN or BN a multiple of 32, BK 8, 16 or
 * 32; BUFS 1 (a barrier more a part) or 2; UNROLL steps of k in a row; UNROLL_END: as many of a work-item's TM rows of
 * outputs end in a row; VEC 1: rows of X and W are aligned to 8 elements and K is a multiple of 8; GROUPED 1:
 * experts_many.clh. Local memory: BUFS * TILE_BUFFER_BYTES (local_bytes.clh).
 */
#ifndef WG
#define WG 128
#endif
#include "common.clh"
#include "local_bytes.clh"
#include "device/unroll.clh"
#include "quant/f16.clh"
#include "expand.clh"
#include "epilogue.clh"
#include "experts_many.clh"
#ifndef BM
#define BM 64
#define BN 64
#define BK 16
#define TM 8
#define TN 4
#endif
#ifndef BUFS
#define BUFS 2
#endif
#ifndef UNROLL
#define UNROLL BK
#endif
#if OVERLAPS
#undef UNROLL
#define UNROLL 8
#endif
#ifndef UNROLL_END
#define UNROLL_END TM
#endif

#ifndef PARTS
#define PARTS 1
#endif

#ifndef SHARES
#define SHARES 0
#endif
#if SHARES
#include "shares.clh"
#define SHARE_ARGS , __global float *scratch, uint shares
#else
#define SHARE_ARGS
#endif

#define LD      (BM + BN)
#define SWZ(k)  ((k) / 4 * (128 / BK))
#define SWZ_X(k) (LD % 32 ? 0 : SWZ(k))
#define BUFFER  (TILE_BUFFER_BYTES(BM, BN, BK) / 4) /* floats */
#define MX      (BM / TM) /* work-items along M and N */
#define NX      (BN / TN)
#define TEAM    (MX * NX)
#define PART_K  (BK / PARTS)

/* ---- tiles in local memory ---------------------------------------------------------------------------------- */

typedef float local_t;

/* Elements k, k + 1, ... of row r of the pair go to local memory. */
static INLINE void put4(__local float *part, uint r, uint k, float4 v)
{
    __local float *to = part + k * LD + (r ^ (r < BN ? SWZ(k) : SWZ_X(k)));
    to[0] = v.x, to[LD] = v.y, to[2 * LD] = v.z, to[3 * LD] = v.w;
}

static INLINE void put8(__local float *part, uint r, uint k, float8 v)
{
    put4(part, r, k, v.lo);
    put4(part, r, k + 4, v.hi);
}

#if !VEC
#define X_VEC 8
typedef float8 x_held;
static x_held x_read(const __global act_t *row, uint k, uint K)
{
#define AT(i) ACT_LOAD(row, k + i)
    return EACH8(AT);
#undef AT
}
#define put_x(part, r, k, held) put8(part, BN + (r), k, held)
#define LAST(vec)               ((K - 1) / vec * vec)
#else
#if ACT == 16
#define X_VEC 8
typedef uint4 x_held;
#define put_x(part, r, k, held) put8(part, BN + (r), k, halves8(held))
#else
#define X_VEC 4
typedef float4 x_held;
#define put_x(part, r, k, held) put4(part, BN + (r), k, held)
#endif
#define x_read(row, k, K) (*(const __global x_held *)((row) + (k)))
#define LAST(vec)         (K - vec)
#endif
#if W_VEC == 4
#define put_w(part, r, k, held) put4(part, r, k, w_numbers(held))
#else
#define put_w(part, r, k, held) put8(part, r, k, w_numbers(held))
#endif
#include "tile.clh"

/* ---- products ------------------------------------------------------------------------------------------------ */

/* Element i of the T that work-item t of n has of a row: fours that lie n fours apart, then single ones. */
static uint place(uint i, uint t, uint n, uint T)
{
    return i < T / 4 * 4 ? (i / 4 * n + t) * 4 + i % 4 : i * n + t;
}

/* Those T values of a row of local memory in which the operand begins at first. No function: PoCL optimises one for any
 * T before it inlines it, and tile16 takes 1.6 times as long. */
#define TAKE(out, T, row, first, t, n, swz)                                                        \
    {                                                                                              \
        _Pragma("unroll") for (int i = 0; i < T / 4; i++) {                                        \
            float4 v = *(const __local float4 *)((row) + (((first) + (i * (n) + (t)) * 4) ^ (swz))); \
            out[4 * i] = v.x, out[4 * i + 1] = v.y, out[4 * i + 2] = v.z, out[4 * i + 3] = v.w;    \
        }                                                                                          \
        _Pragma("unroll") for (int i = T / 4 * 4; i < T; i++)                                      \
            out[i] = (row)[((first) + i * (n) + (t)) ^ (swz)];                                     \
    }

/* The products of PART_K of K from `first` on. */
static INLINE void multiply(float acc[TM][TN], const __local float *now, uint first, uint tx, uint ty)
{
#pragma unroll UNROLL
    for (int k = first; k < first + PART_K; k++) {
        float a[TM], b[TN];
        TAKE(a, TM, now + k * LD, BN, ty, MX, SWZ_X(k))
        TAKE(b, TN, now + k * LD, 0, tx, NX, SWZ(k))
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) acc[i][j] = MAD(a[i], b[j], acc[i][j]);
    }
}

static INLINE void clear(float acc[TM][TN])
{
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) acc[i][j] = 0;
}

#if PARTS > 1
#if BM * BN * PARTS > BUFS * BUFFER
#error the sums of the parts do not fit the buffers
#endif
/* The outputs of the tile at (m0, n0); sums: BM x BN of each part. All work-items call together. */
static INLINE void finish_parts(const epilogue *e, __local float *sums, float acc[TM][TN], uint m0, uint M, uint n0,
                                uint N, uint tx, uint ty, uint lid OF_ROWS)
{
    __local float *mine = sums + lid / TEAM * BM * BN;
    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++) mine[place(i, ty, MX, TM) * BN + place(j, tx, NX, TN)] = acc[i][j];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint at = lid; at < BM * BN; at += WG) {
        float sum = sums[at];
        for (int p = 1; p < PARTS; p++) sum += sums[p * BM * BN + at];
        if (m0 + at / BN < M && n0 + at % BN < N) FINISH(e, m0 + at / BN, n0 + at % BN, sum);
    }
    barrier(CLK_LOCAL_MEM_FENCE); /* of the next tile parts come there */
}
#else
/* Of the tile at (m0, n0), the outputs of work-item (ty, tx). */
static INLINE void finish_all(const epilogue *e, float acc[TM][TN], uint m0, uint M, uint n0, uint N, uint tx,
                              uint ty OF_ROWS)
{
#pragma unroll UNROLL_END
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) {
            uint m = m0 + place(i, ty, MX, TM), col = n0 + place(j, tx, NX, TN);
            if (m < M && col < N) FINISH(e, m, col, acc[i][j]);
        }
}
#endif

/* What a product reads. */
typedef struct factors {
    const __global act_t *x;
    const __global uchar *w;
    uint x_stride, M, N, K;
    ulong w_row_bytes;
} factors;

/* The products of parts p to end - 1 of K for the tile at (m0, n0), through local memory. All work-items call
 * together. */
static INLINE void add_products(float acc[TM][TN], __local float *part, const factors *f, uint m0, uint n0, uint p,
                                uint end, uint first, uint tx, uint ty, uint lid OF_ROWS)
{
    x_held xs[X_LOADS];
    w_held ws[W_LOADS];
    clear(acc);
    fetch_x(xs, f->x, f->x_stride, m0, f->M, p * BK, f->K, lid THESE_ROWS);
    fetch_w(ws, f->w, f->w_row_bytes, n0, f->N, p * BK, f->K, lid);
    keep_x(part, xs, p * BK, f->K, lid);
    keep_w(part, ws, p * BK, f->K, lid);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint turn = 0; p < end; p++, turn++) {
        __local float *now = part + turn % BUFS * BUFFER, *next = part + (turn + 1) % BUFS * BUFFER;
        uint k0 = (p + 1) * BK; /* of the next part */
        fetch_x(xs, f->x, f->x_stride, m0, f->M, k0, f->K, lid THESE_ROWS);
        fetch_w(ws, f->w, f->w_row_bytes, n0, f->N, k0, f->K, lid);
        multiply(acc, now, first, tx, ty);
#if BUFS == 1
        barrier(CLK_LOCAL_MEM_FENCE);
#endif
        keep_x(next, xs, k0, f->K, lid);
        keep_w(next, ws, k0, f->K, lid);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

#if SHARES
static INLINE void put_share(__global float *to, float acc[TM][TN], uint tx, uint ty)
{
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
            __global float *four = to + place(i, ty, MX, TM) * BN + place(j, tx, NX, TN);
            *(__global float4 *)four = (float4)(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
        }
}
#endif

#define TILE_ARGS                                                                                                      \
    IN(x), IN(w), IN(bias), IN(res), OUT_ACT(y), uint M, uint N, uint K, uint x_stride, ulong w_row_bytes,             \
        uint res_stride, uint y_stride EXPERT_ARGS SHARE_ARGS

#if SHARES
KERNEL void gemm_tile_after(TILE_ARGS)
{
    const epilogue e = EPILOGUE(bias, res, y, res_stride, y_stride);
    const shares_t s = shares_of(scratch + SCRATCH_AT / 4, shares, (K + BK - 1) / BK, (M + BM - 1) / BM,
                                 (N + BN - 1) / BN);
    add_shares(&s, &e, M, N, get_local_id(0));
}
#endif

KERNEL void gemm_tile(TILE_ARGS)
{
    __local float part[BUFS * BUFFER] __attribute__((aligned(16)));
#if PARTS > 1
    uint lid = get_local_id(0), tx = lid % NX, ty = lid % TEAM / NX, first = lid / TEAM * PART_K;
#else
    uint lid = get_local_id(0), tx = lid % NX, ty = lid / NX, first = 0;
#endif
#if GROUPED
    __local expert_room expert_rows;
    const experts g = EXPERTS_OF_ARGS;
    count_pairs(&expert_rows, &g, lid);
    uint m_tiles = count_tiles(&expert_rows, E);
#else
    uint m_tiles = (M + BM - 1) / BM;
#endif
    uint n_tiles = (N + BN - 1) / BN, n_parts = (K + BK - 1) / BK;
    factors f = {IN_AT(act_t, x), IN_AT(uchar, w), x_stride, M, N, K, w_row_bytes};
#if SHARES
    const shares_t s = shares_of(scratch + SCRATCH_AT / 4, shares, n_parts, m_tiles, n_tiles);
    for (uint turn = get_group_id(0); turn < m_tiles * shares; turn += get_num_groups(0)) {
        const uint m_tile = turn % m_tiles, share = turn / m_tiles, begin = share_begins(&s, share),
                   end = share_begins(&s, share + 1);
        for (uint at = begin, n; at < end; at += n) {
            const uint n_tile = at / n_parts, p = at % n_parts;
            float acc[TM][TN];
            n = min(n_parts - p, end - at);
            add_products(acc, part, &f, m_tile * BM, n_tile * BN, p, p + n, 0, tx, ty, lid);
            if (n == n_parts) {
                const epilogue e = EPILOGUE(bias, res, y, res_stride, y_stride);
                finish_all(&e, acc, m_tile * BM, M, n_tile * BN, N, tx, ty);
            } else put_share(share_sums(&s, m_tile, share, at == begin), acc, tx, ty);
        }
    }
#else
    ulong tiles = (ulong)m_tiles * n_tiles;
    for (ulong tile = get_group_id(0); tile < tiles; tile += get_num_groups(0)) {
        uint n0 = tile / m_tiles * BN; /* neighbours share W */
#if GROUPED
        const rows_t found = find_rows(&expert_rows, &g, tile % m_tiles, lid), *rows = &found;
        const uint m0 = 0;
        f.M = M = rows->n;
        f.w = IN_AT(uchar, w) + w_row_of(&g, rows->expert) * w_row_bytes;
#else
        uint m0 = tile % m_tiles * BM;
#endif
        float acc[TM][TN];
        add_products(acc, part, &f, m0, n0, 0, n_parts, first, tx, ty, lid THESE_ROWS);
        epilogue e = EPILOGUE(bias, res, y, res_stride, y_stride);
#if PARTS > 1
        finish_parts(&e, part, acc, m0, M, n0, N, tx, ty, lid THESE_ROWS);
#else
        finish_all(&e, acc, m0, M, n0, N, tx, ty THESE_ROWS);
#endif
    }
#endif
}
