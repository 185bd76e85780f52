/* gemm_mma: Y = X W^T + bias of tokens' experts on NVIDIA's matrix units (compute capability 8.0 and up), by inline
 * PTX: mma.sync m16n8k16, f16 in, f32 sums. BM x BN outputs a work-group, WM x WN of them a warp.
 *
 *   part s of K (BK = 32):  BM rows of X, then BN rows of W, 64 bytes each, in local memory
 *        |  16-byte chunk c of row r lies at chunk c ^ (r / 2 % 4), so that the 8 rows that ldmatrix
 *        v  reads at once lie in 8 different groups of banks
 *   ldmatrix --> fragments --> mma --> 4 sums a lane of each 16 x 8 tile
 *
 * STAGES parts are in flight: cp.async brings part k + STAGES - 1 while part k is multiplied. Weights that
 * are not F16 pass through registers, where they are decoded to it. Rows and K past the edge are zeros.
 *
 * Knobs: BM, BN, WM, WN with (BM / WM) * (BN / WN) * 32 = WG, WM a multiple of 16, WN of 16;
 * STAGES >= 2, each of MMA_STAGE_BYTES (local_bytes.clh); W16 1: W holds F16 rows aligned to 16 bytes.
 * K is a multiple of 8, rows of X are F16 aligned to 16 bytes. Parts: mma.clh, expand.clh, epilogue.clh,
 * experts_many.clh.
 */
#ifndef WG
#define WG 128
#endif
#ifndef GROUPED
#define GROUPED 1
#define EXPERTS 8
#endif
#include "common.clh"
#include "local_bytes.clh"
#include "nvidia.clh"
#include "quant/f16.clh"
#define EXPAND_F16
#define TO_HALVES8(f) pairs8(f)
#include "expand.clh"
#include "epilogue.clh"
#ifndef BM
#define BM 128
#define BN 128
#define WM 64
#define WN 64
#endif
#ifndef STAGES
#define STAGES 3
#endif

#define BK        MMA_BK
#define ROW_BYTES (BK * 2)
#define CHUNKS    (ROW_BYTES / 16)
#define X_BYTES   (BM * ROW_BYTES)
#define PART      MMA_STAGE_BYTES(BM, BN, BK)
#define A_TILES   (WM / 16) /* X is operand A, W is B */
#define B_TILES   (WN / 8)
#define W_LOADS   (BN * CHUNKS / WG) /* 16-byte chunks a work-item, when they pass through registers */
#include "mma.clh"
#include "experts_many.clh"

/* ---- parts of X and W to local memory ------------------------------------------------------------------------- */

/* X and W, and where this tile begins in them. */
typedef struct source {
    const __global uchar *x, *w;
    ulong w_row_bytes;
    uint m0, M, n0, N, K, x_stride;
} source;

/* Begins to copy K from k0 on of BM rows of X. */
static INLINE void copy_x(uint to, const source *s, uint k0, uint lid OF_ROWS)
{
    const uint x_stride = s->x_stride;
    for (uint at = lid; at < BM * CHUNKS; at += WG) {
        uint row = s->m0 + at / CHUNKS, k = k0 + at % CHUNKS * 8;
        bool in = row < s->M && k < s->K;
        const __global half *from = (const __global half *)s->x + (in ? ROW(row) + k : 0);
        COPY16(to + chunk_at(at / CHUNKS, at % CHUNKS), from, in ? 16u : 0u);
    }
}

#if W16
/* The same of BN rows of W. */
static INLINE void copy_w(uint to, const source *s, uint k0, uint lid)
{
    for (uint at = lid; at < BN * CHUNKS; at += WG) {
        uint row = s->n0 + at / CHUNKS, k = k0 + at % CHUNKS * 8;
        bool in = row < s->N && k < s->K;
        const __global uchar *from = s->w + (in ? row * s->w_row_bytes + k * 2 : 0);
        COPY16(to + chunk_at(at / CHUNKS, at % CHUNKS), from, in ? 16u : 0u);
    }
}
#else
static uint4 pairs8(float8 f)
{
    return (uint4)(f16_pair(f.s0, f.s1), f16_pair(f.s2, f.s3), f16_pair(f.s4, f.s5), f16_pair(f.s6, f.s7));
}

static INLINE void read_w(w_held held[W_LOADS], const source *s, uint k0, uint lid)
{
    for (int l = 0; l < W_LOADS; l++) {
        uint at = lid + l * WG, row = s->n0 + at / CHUNKS, k = k0 + at % CHUNKS * 8;
        const __global uchar *from = s->w + min(row, s->N - 1) * s->w_row_bytes;
        held[l] = row < s->N && k < s->K ? w_read(from, k, s->K) : (w_held)(0);
    }
}
#endif

/* Begins to bring part p to `to`: W as X, or to registers, from where keep() takes it there. */
static INLINE void fetch(w_held held[W_LOADS], uint to, const source *s, uint p, uint lid OF_ROWS)
{
    copy_x(to, s, p * BK, lid THESE_ROWS);
#if W16
    copy_w(to + X_BYTES, s, p * BK, lid);
#else
    read_w(held, s, p * BK, lid);
#endif
}

static INLINE void keep(uint to, const w_held held[W_LOADS], uint lid)
{
#if !W16
    for (int l = 0; l < W_LOADS; l++) {
        uint at = lid + l * WG;
        STORE_LOCAL4(to + X_BYTES + chunk_at(at / CHUNKS, at % CHUNKS), held[l]);
    }
#endif
}

/* ---- products -------------------------------------------------------------------------------------------------- */

/* Where a warp's outputs begin in the tile, and what this lane gives ldmatrix of the operands. */
typedef struct place {
    uint m, n, x_row, x_chunk, w_row, w_chunk;
} place;

static INLINE place place_of(uint warp, uint lane)
{
    uint m = warp / (BN / WN) * WM, n = warp % (BN / WN) * WN;
    return (place){m, n, m + (lane & 15), lane >> 4, n + b_row(lane), b_chunk(lane)};
}

/* Operands of step k, 16 of K, of the part at `part`. */
static INLINE void load(uint a[A_TILES][4], uint b[B_TILES][2], uint part, const place *at, uint k)
{
#pragma unroll
    for (int i = 0; i < A_TILES; i++)
        LDMATRIX("", a[i][0], a[i][1], a[i][2], a[i][3], part + chunk_at(at->x_row + i * 16, at->x_chunk + k * 2));
#pragma unroll
    for (int j = 0; j < B_TILES; j += 2)
        LDMATRIX("", b[j][0], b[j][1], b[j + 1][0], b[j + 1][1],
                 part + X_BYTES + chunk_at(at->w_row + j * 8, at->w_chunk + k * 2));
}

static INLINE void multiply(float acc[A_TILES][B_TILES][4], uint part, const place *at)
{
#pragma unroll
    for (int k = 0; k < BK / 16; k++) {
        uint a[A_TILES][4], b[B_TILES][2];
        load(a, b, part, at, k);
#pragma unroll
        for (int i = 0; i < A_TILES; i++)
#pragma unroll
            for (int j = 0; j < B_TILES; j++) MMA(acc[i][j], a[i][0], a[i][1], a[i][2], a[i][3], b[j][0], b[j][1]);
    }
}

/* All parts of a tile; STAGES - 1 are on their way before the first is multiplied. here: part p; to: part `next`. */
static INLINE void multiply_tile(float acc[A_TILES][B_TILES][4], const source *s, uint base, const place *at,
                                 uint lid OF_ROWS)
{
    uint n_parts = (s->K + BK - 1) / BK;
    w_held held[W_LOADS];
    for (uint p = 0; p < STAGES - 1; p++) {
        if (p < n_parts) {
            fetch(held, base + p % STAGES * PART, s, p, lid THESE_ROWS);
            keep(base + p % STAGES * PART, held, lid);
        }
        COMMIT();
    }
    uint here = base, to = base + (STAGES - 1) * PART;
    for (uint p = 0; p < n_parts; p++) {
        uint next = p + STAGES - 1;
        WAIT(LATER(STAGES));
        barrier(CLK_LOCAL_MEM_FENCE); /* part p is there; everyone is done with the one that next overwrites */
        if (next < n_parts) fetch(held, to, s, next, lid THESE_ROWS);
        COMMIT();
        multiply(acc, here, at);
        if (next < n_parts) keep(to, held, lid);
        to = here, here = here + PART == base + STAGES * PART ? base : here + PART;
    }
    WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE); /* the next tile overwrites all parts */
}

/* m0, n0: the first outputs of this warp. */
static INLINE void finish_all(const epilogue *e, float acc[A_TILES][B_TILES][4], uint m0, uint M, uint n0, uint N,
                              uint lane OF_ROWS)
{
#pragma unroll
    for (int i = 0; i < A_TILES; i++)
#pragma unroll
        for (int j = 0; j < B_TILES; j++)
#pragma unroll
            for (int v = 0; v < 4; v++) {
                uint m = m0 + i * 16 + (lane >> 2) + v / 2 * 8, col = n0 + j * 8 + (lane & 3) * 2 + v % 2;
                if (m < M && col < N) FINISH(e, m, col, acc[i][j][v]);
            }
}

KERNEL void gemm_mma(IN(x), IN(w), IN(bias), IN(res), OUT_ACT(y), uint M, uint N, uint K, uint x_stride,
                     ulong w_row_bytes, uint res_stride, uint y_stride EXPERT_ARGS)
{
    LOCAL_ROOM(base, STAGES * PART)
    uint lid = get_local_id(0), lane = lid & 31;
    __local expert_room expert_rows;
    const experts g = EXPERTS_OF_ARGS;
    count_pairs(&expert_rows, &g, lid);
    const uint m_tiles = count_tiles(&expert_rows, E);
    uint n_tiles = (N + BN - 1) / BN;
    ulong tiles = (ulong)m_tiles * n_tiles;
    place at = place_of(lid >> 5, lane);
    for (ulong tile = get_group_id(0); tile < tiles; tile += get_num_groups(0)) {
        uint n0 = tile / m_tiles * BN; /* neighbours share W */
        const __global uchar *w = IN_AT(uchar, w);
        const rows_t found = find_rows(&expert_rows, &g, tile % m_tiles, lid), *rows = &found;
        const uint m0 = 0;
        M = rows->n;
        w += w_row_of(&g, rows->expert) * w_row_bytes;
        source s = {IN_AT(uchar, x), w, w_row_bytes, m0, M, n0, N, K, x_stride};
        float acc[A_TILES][B_TILES][4];
        clear(acc);
        multiply_tile(acc, &s, base, &at, lid THESE_ROWS);
        epilogue e = EPILOGUE(bias, res, y, res_stride, y_stride);
        finish_all(&e, acc, m0 + at.m, M, n0 + at.n, N, lane THESE_ROWS);
    }
}
