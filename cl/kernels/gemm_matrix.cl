/* gemm_matrix: Y = X W^T + bias + residual on the matrix units of AMD and Intel (matrix.clh), f16 in, f32
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
 * Knobs: BM, BN, BK, WM, WN, LANES with (BM / WM) * (BN / WN) * LANES = WG, WM a multiple of MMA_M, WN of
 * MMA_N; W16 1: W holds F16 rows aligned to 16 bytes. K is a multiple of 8, rows of X are F16 aligned to
 * 16 bytes.
 * Local memory: 4 * (BM + BN) * PITCH bytes.
 */
#ifndef WG
#define WG 128
#endif
#include "common.clh"
#include "quant/f16.clh"
#include "matrix.clh"
#ifndef BN
#define BN 64
#define WM 32
#define WN 32
#endif
#ifndef W16
#define W16 1
#endif

#define EIGHTS  (BK / 8)
#define PART    ((BM + BN) * PITCH) /* halves */
#define MT      (WM / MMA_M)
#define NT      (WN / MMA_N)
#define N_SUMS  (MMA_M * MMA_N / LANES)
#define X_LOADS ((BM * EIGHTS + WG - 1) / WG) /* of eight elements, a work-item */
#define W_LOADS ((BN * EIGHTS + WG - 1) / WG)

#if W16
#define W_HALVES(row, k) (*(const __global uint4 *)((row) + 2 * (k)))
#else
#define W_HALVES(row, k) as_uint4(convert_half8(w_load8(row, k)))
#endif

/* The fetch of a part past the end reads the last eight again. */
#define FETCH(p)                                                                                   \
    {                                                                                              \
        _Pragma("unroll") for (int l = 0; l < X_LOADS; l++) {                                      \
            uint at = lid + l * WG, line = min(m0 + at / EIGHTS, M - 1);                           \
            uint k = min((p) * BK + at % EIGHTS * 8, K - 8);                                       \
            xs[l] = *(const __global uint4 *)(IN_AT(half, x) + (ulong)line * x_stride + k);        \
        }                                                                                          \
        _Pragma("unroll") for (int l = 0; l < W_LOADS; l++) {                                      \
            uint at = lid + l * WG, line = min(n0 + at / EIGHTS, N - 1);                           \
            uint k = min((p) * BK + at % EIGHTS * 8, K - 8);                                       \
            ws[l] = W_HALVES(IN_AT(uchar, w) + line * w_row_bytes, k);                             \
        }                                                                                          \
    }
#define KEEP_ALL(p, put, to, lines, n, held)                                                       \
    _Pragma("unroll") for (int l = 0; l < n; l++) {                                                \
        uint at = lid + l * WG, k = at % EIGHTS * 8;                                               \
        if ((lines) * EIGHTS % WG == 0 || at < (lines) * EIGHTS)                                   \
            put(to, at / EIGHTS, k, (p) * BK + k < K ? held[l] : (uint4)(0));                      \
    }
#define KEEP(p)                                                                                    \
    {                                                                                              \
        __local ushort *to = parts + (p) % 2 * PART;                                               \
        KEEP_ALL(p, put_a, to, BM, X_LOADS, xs)                                                    \
        KEEP_ALL(p, put_b, to + BM * PITCH, BN, W_LOADS, ws)                                       \
    }

KERNEL SUB_GROUP void gemm_matrix(IN(x), IN(w), IN(bias), IN(res), OUT_ACT(y), uint M, uint N, uint K,
                                  uint x_stride, ulong w_row_bytes, uint res_stride, uint y_stride)
{
    __local ushort parts[2 * PART] __attribute__((aligned(16)));
    uint lid = get_local_id(0), lane = LANE(), wave = WAVE();
    uint wm = wave / (BN / WN) * WM, wn = wave % (BN / WN) * WN; /* of this wave in the tile */
    uint m_tiles = (M + BM - 1) / BM, n_tiles = (N + BN - 1) / BN, n_parts = (K + BK - 1) / BK;
    ulong tiles = (ulong)m_tiles * n_tiles;
    for (ulong tile = get_group_id(0); tile < tiles; tile += get_num_groups(0)) {
        uint m0 = tile % m_tiles * BM, n0 = tile / m_tiles * BN; /* neighbours share W */
        uint4 xs[X_LOADS], ws[W_LOADS];
        frag_c acc[MT][NT];
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int j = 0; j < NT; j++) acc[i][j] = (frag_c)(0);
        FETCH(0)
        KEEP(0)
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint p = 0; p < n_parts; p++) {
            FETCH(p + 1)
            const __local ushort *x_now = parts + p % 2 * PART, *w_now = x_now + BM * PITCH;
#pragma unroll
            for (int k = 0; k < BK; k += 16) {
                frag_a a[MT];
#pragma unroll
                for (int i = 0; i < MT; i++) a[i] = load_a(x_now, wm + i * MMA_M, k, lane);
#pragma unroll
                for (int j = 0; j < NT; j++) {
                    frag_b b = load_b(w_now, wn + j * MMA_N, k, lane);
#pragma unroll
                    for (int i = 0; i < MT; i++) acc[i][j] = mma(a[i], b, acc[i][j]);
                }
            }
            KEEP(p + 1)
            barrier(CLK_LOCAL_MEM_FENCE);
        }
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int j = 0; j < NT; j++)
#pragma unroll
                for (int v = 0; v < N_SUMS; v++) {
                    uint m = m0 + wm + i * MMA_M + C_ROW(lane, v), col = n0 + wn + j * MMA_N + C_COL(lane);
                    if (m >= M || col >= N) continue;
                    float sum = acc[i][j][v];
                    if (bias_off != NONE) sum += IN_AT(float, bias)[col];
                    if (res_off != NONE) sum += IN_AT(float, res)[(ulong)m * res_stride + col];
                    STORE(y, (ulong)m * y_stride + col, sum)
                }
    }
}
