/* gemm_matrix: Y = X W^T + bias + residual on any vendor's matrix units (matrix.clh), f16 in, f32
 * sums. BM x BN outputs a work-group, WM x WN of them a wave of LANES work-items.
 *
 *   part p of K (BK):  BM rows of X, then BN rows of W, as F16 in local memory
 *        |
 *        v  load_a, load_b --> fragments --> mma --> N_SUMS sums a lane of each MMA_M x MMA_N tile
 *
 * Part p + 1 comes into registers while part p is multiplied, and goes to the other half of local memory.
 * Weights that are not F16 are decoded to it on the way. Rows past the edge repeat the last one, K past it
 * is zeros.
 *
 * Flat products: PARTS waves share each BK, 16 or more of K each; at the end their sums meet in local memory and are
 * added in the order of the parts. X is padded to the rows of the unit: 8 on Intel's, 16 on others.
 *
 * Knobs: BM, BN, BK, WM, WN, PARTS, LANES with (BM / WM) * (BN / WN) * PARTS * LANES = WG, WM a multiple of MMA_M, WN
 * of MMA_N, BK of 16 * PARTS; W16 1: W holds F16 rows aligned to 16 bytes. K is a multiple of 8, rows of X are F16
 * aligned to 16 bytes. Parts: matrix.clh, expand.clh, tile.clh, epilogue.clh.
 * Local memory: MATRIX_LOCAL_BYTES (local_bytes.clh).
 */
#ifndef ACT
#define ACT 16
#endif
#ifndef WG
#define WG 128
#endif
#ifndef BM
#define BM 64
#define BK 32
#endif
#include "common.clh"
#include "quant/f16.clh"
#include "matrix.clh"
#define EXPAND_F16
#include "expand.clh"
#include "epilogue.clh"
#ifndef BN
#define BN 64
#define WM 32
#define WN 32
#endif

#ifndef PARTS
#define PARTS 1
#endif

#define PITCH  MATRIX_PITCH(BK)
#define PART   (MATRIX_LOCAL_BYTES(BM, BN, BK) / 4) /* halves */
#define MT     (WM / MMA_M)
#define NT     (WN / MMA_N)
#define N_SUMS (MMA_M * MMA_N / LANES)
#define SHARES ((BM / WM) * (BN / WN)) /* waves of a part of K */
#define PART_K (BK / PARTS)

#define X_VEC 8
typedef uint4 x_held;
typedef ushort local_t;
#define x_read(row, k, K)     (*(const __global uint4 *)((row) + (k)))
#define put_x(to, r, k, held) put_a(to, PITCH, r, k, held)
#define put_w(to, r, k, held) put_b((to) + BM * PITCH, PITCH, r, k, held)
#define LAST(vec)             (K - vec)
#include "tile.clh"

static INLINE void clear(frag_c acc[MT][NT])
{
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++) acc[i][j] = (frag_c)(0);
}

/* wm, wn: where this wave's outputs begin in the tile; first: its K. */
static INLINE void multiply(frag_c acc[MT][NT], const __local ushort *x, const __local ushort *w, uint wm, uint wn,
                            uint first, uint lane)
{
#pragma unroll
    for (uint k = first; k < first + PART_K; k += 16) {
        frag_a a[MT];
#pragma unroll
        for (int i = 0; i < MT; i++) a[i] = load_a(x, PITCH, wm + i * MMA_M, k, lane);
#pragma unroll
        for (int j = 0; j < NT; j++) {
            frag_b b = load_b(w, PITCH, wn + j * MMA_N, k, lane);
#pragma unroll
            for (int i = 0; i < MT; i++) acc[i][j] = mma(a[i], b, acc[i][j]);
        }
    }
}

#if PARTS > 1
#if BM * BN * PARTS * 4 > 2 * PART * 2
#error the sums of the parts do not fit the tiles
#endif
/* The sums of a wave go to its part's BM x BN; wm, wn: where they begin. */
static INLINE void store_sums(__local float *mine, frag_c acc[MT][NT], uint wm, uint wn, uint lane)
{
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int v = 0; v < N_SUMS; v++)
                mine[(wm + i * MMA_M + C_ROW(lane, v)) * BN + wn + j * MMA_N + C_COL(lane, v)] = acc[i][j][v];
}

static INLINE void finish_parts(const epilogue *e, const __local float *sums, uint m0, uint M, uint n0, uint N,
                                uint lid)
{
    for (uint at = lid; at < BM * BN; at += WG) {
        float sum = sums[at];
        for (int p = 1; p < PARTS; p++) sum += sums[p * BM * BN + at];
        if (m0 + at / BN < M && n0 + at % BN < N) finish(e, m0 + at / BN, n0 + at % BN, sum);
    }
}
#else
/* m0, n0: the first outputs of this wave. */
static INLINE void finish_all(const epilogue *e, frag_c acc[MT][NT], uint m0, uint M, uint n0, uint N, uint lane)
{
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int v = 0; v < N_SUMS; v++) {
                uint m = m0 + i * MMA_M + C_ROW(lane, v), col = n0 + j * MMA_N + C_COL(lane, v);
                if (m < M && col < N) finish(e, m, col, acc[i][j][v]);
            }
}
#endif

KERNEL SUB_GROUP void gemm_matrix(IN(x), IN(w), IN(bias), IN(res), OUT_ACT(y), uint M, uint N, uint K,
                                  uint x_stride, ulong w_row_bytes, uint res_stride, uint y_stride)
{
    __local ushort parts[2 * PART] __attribute__((aligned(16)));
    uint lid = get_local_id(0), lane = LANE(), wave = WAVE();
    uint share = wave % SHARES, part = wave / SHARES;
    uint wm = share / (BN / WN) * WM, wn = share % (BN / WN) * WN; /* of this wave in the tile */
    uint m_tiles = (M + BM - 1) / BM, n_tiles = (N + BN - 1) / BN, n_parts = (K + BK - 1) / BK;
    ulong tiles = (ulong)m_tiles * n_tiles;
    for (ulong tile = get_group_id(0); tile < tiles; tile += get_num_groups(0)) {
        uint m0 = tile % m_tiles * BM, n0 = tile / m_tiles * BN; /* neighbours share W */
        x_held xs[X_LOADS];
        w_held ws[W_LOADS];
        frag_c acc[MT][NT];
        clear(acc);
        fetch_x(xs, IN_AT(act_t, x), x_stride, m0, M, 0, K, lid);
        fetch_w(ws, IN_AT(uchar, w), w_row_bytes, n0, N, 0, K, lid);
        keep_x(parts, xs, 0, K, lid);
        keep_w(parts, ws, 0, K, lid);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint p = 0; p < n_parts; p++) {
            __local ushort *now = parts + p % 2 * PART, *next = parts + (p + 1) % 2 * PART;
            uint k0 = (p + 1) * BK; /* of the next part */
            fetch_x(xs, IN_AT(act_t, x), x_stride, m0, M, k0, K, lid);
            fetch_w(ws, IN_AT(uchar, w), w_row_bytes, n0, N, k0, K, lid);
            multiply(acc, now, now + BM * PITCH, wm, wn, part * PART_K, lane);
            keep_x(next, xs, k0, K, lid);
            keep_w(next, ws, k0, K, lid);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        epilogue e = EPILOGUE(bias, res, y, res_stride, y_stride);
#if PARTS > 1
        __local float *sums = (__local float *)parts;
        store_sums(sums + part * BM * BN, acc, wm, wn, lane);
        barrier(CLK_LOCAL_MEM_FENCE);
        finish_parts(&e, sums, m0, M, n0, N, lid);
        barrier(CLK_LOCAL_MEM_FENCE); /* of the next tile parts come there */
#else
        finish_all(&e, acc, m0 + wm, M, n0 + wn, N, lane);
#endif
    }
}
