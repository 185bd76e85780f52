/* gemm_tile: Y = X W^T + bias + residual, BM x BN outputs a work-group, TM x TN of them a work-item.
 *
 *                 W^T  BK x BN in local memory
 *                +--------+
 *      X         |        |       For each BK of K: all load a part of both into local memory, [k][row],
 *   BM x BK      +--------+       eight elements of K a load; the next part is already on its way
 *   +----+       +--------+       into registers while this one is multiplied.
 *   |    |       | TM x TN|
 *   |    |       | each   |       Rows and K past the edge are zeros, so any M, N, K is right.
 *   +----+       +--------+
 *
 * Each output is summed serially over K: bit for bit what gemm_naive gives, for all knobs.
 *
 * Knobs: BM, BN, BK, TM, TN, with BM / TM * (BN / TN) = WG, BK a multiple of 8, and
 * (BM + BN) * BK / 8 a multiple of WG; VEC 1: rows of X and W are aligned to 8 elements and K is a
 * multiple of 8.
 * Local memory: (BM + BN) * BK floats.
 */
#ifndef WF_COMMON
#define WG 256
#include "common.clh"
#endif
#ifndef W_BLOCK
#include "quant/f16.clh"
#endif
#ifndef BM
#define BM 64
#define BN 64
#define BK 16
#define TM 4
#define TN 4
#endif
#ifndef VEC
#define VEC 1
#endif

#define LOADS ((BM + BN) * BK / 8 / WG) /* of eight elements, a work-item */

/* Elements k to k + 7 of row i of the pair X, W stacked (W from BM on); 0 outside. */
#define LOAD_PART(out, i, k)                                                                       \
    {                                                                                              \
        bool of_x = (i) < BM;                                                                      \
        uint line = of_x ? m0 + (i) : n0 + (i)-BM;                                                 \
        out = (float8)(0);                                                                         \
        if (line < (of_x ? M : N) && (k) < K)                                                      \
            out = of_x ? x_load8(IN_AT(act_t, x) + (ulong)line * x_stride, k, K)                   \
                       : w_part8(IN_AT(uchar, w) + line * w_row_bytes, k, K);                      \
    }

#if VEC
float8 x_load8(const __global act_t *row, uint k, uint K)
{
    return ACT_LOAD8(row, k);
}

float8 w_part8(const __global uchar *row, uint k, uint K)
{
    return w_load8(row, k);
}
#else
#define EACH8(f)                                                                                   \
    (float8)(f(0), k + 1 < K ? f(1) : 0, k + 2 < K ? f(2) : 0, k + 3 < K ? f(3) : 0,               \
             k + 4 < K ? f(4) : 0, k + 5 < K ? f(5) : 0, k + 6 < K ? f(6) : 0,                     \
             k + 7 < K ? f(7) : 0)
float8 x_load8(const __global act_t *row, uint k, uint K)
{
#define AT(i) ACT_LOAD(row, k + i)
    return EACH8(AT);
#undef AT
}

float8 w_part8(const __global uchar *row, uint k, uint K)
{
#define AT(i) w_load(row, k + i)
    return EACH8(AT);
#undef AT
}
#endif

KERNEL void gemm_tile(IN(x), IN(w), IN(bias), IN(res), OUT_ACT(y), uint M, uint N, uint K,
                      uint x_stride, ulong w_row_bytes, uint res_stride, uint y_stride)
{
    __local float part[BK][BM + BN] __attribute__((aligned(16)));
    uint lid = get_local_id(0), tx = lid % (BN / TN), ty = lid / (BN / TN);
    uint m_tiles = (M + BM - 1) / BM, n_tiles = (N + BN - 1) / BN;
    ulong tiles = (ulong)m_tiles * n_tiles;
    for (ulong tile = get_group_id(0); tile < tiles; tile += get_num_groups(0)) {
        uint m0 = tile % m_tiles * BM, n0 = tile / m_tiles * BN; /* neighbours share W */
        float acc[TM][TN];
        float8 next[LOADS];
        for (int i = 0; i < TM; i++)
            for (int j = 0; j < TN; j++) acc[i][j] = 0;
        for (int l = 0; l < LOADS; l++) {
            uint at = lid + l * WG;
            LOAD_PART(next[l], at % (BM + BN), at / (BM + BN) * 8)
        }
        for (uint k0 = 0; k0 < K; k0 += BK) {
            for (int l = 0; l < LOADS; l++) {
                uint at = lid + l * WG, line = at % (BM + BN), k = at / (BM + BN) * 8;
                part[k][line] = next[l].s0;
                part[k + 1][line] = next[l].s1;
                part[k + 2][line] = next[l].s2;
                part[k + 3][line] = next[l].s3;
                part[k + 4][line] = next[l].s4;
                part[k + 5][line] = next[l].s5;
                part[k + 6][line] = next[l].s6;
                part[k + 7][line] = next[l].s7;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int l = 0; l < LOADS; l++) {
                uint at = lid + l * WG;
                LOAD_PART(next[l], at % (BM + BN), k0 + BK + at / (BM + BN) * 8)
            }
            for (uint k = 0; k < BK; k++) {
                float a[TM], b[TN];
                for (int i = 0; i < TM; i++) a[i] = part[k][ty * TM + i];
                for (int j = 0; j < TN; j++) b[j] = part[k][BM + tx * TN + j];
                for (int i = 0; i < TM; i++)
                    for (int j = 0; j < TN; j++) acc[i][j] = MAD(a[i], b[j], acc[i][j]);
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        for (int i = 0; i < TM; i++)
            for (int j = 0; j < TN; j++) {
                uint m = m0 + ty * TM + i, col = n0 + tx * TN + j;
                if (m >= M || col >= N) continue;
                float sum = acc[i][j];
                if (bias_off != NONE) sum += IN_AT(float, bias)[col];
                if (res_off != NONE) sum += IN_AT(float, res)[(ulong)m * res_stride + col];
                STORE(y, (ulong)m * y_stride + col, sum)
            }
    }
}
