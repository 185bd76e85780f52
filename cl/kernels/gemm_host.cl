/* gemm_host: Y = X W^T + bias + residual on processors, where work-items are loops on a core: a work-group is one
 * work-item, without a barrier, and has BM rows of X by BN rows of W.
 *
 *   for each KB of K:  NR rows of W --> F32 in local memory, which is the core's first cache
 *                      MR x NR outputs at a time in registers, LANES of K in each of them
 *
 * What a register's lanes hold is added up at the end of each KB, to the sums of the tile. An output is the same
 * whatever the tile: lanes by K, then the parts of K in order.
 *
 * Knobs: BM, BN, a multiple of NR; MR: 1, or 0: as many as registers allow. K is a multiple of 8, and rows are aligned
 * to eight elements; the last lanes of a K that is no multiple of LANES are zeros.
 */
#ifndef WG
#define WG 1
#endif
#include "host.clh"
#include "epilogue.clh"
#include "quant/f16.clh"
#ifndef BM
#define BM 64
#define BN 16
#define MR 0
#endif
#if MR == 0
#undef MR
#define MR (LANES == 16 ? 6 : 3)
#endif
#define NR 4
#define KB 512
#define PITCH (KB + 16) /* of a row in local memory: no two at the same place of a page */

/* n of K of a row of W from k on; zeros up to whole lanes. */
static INLINE void decode_row(__local float *to, const __global uchar *row, uint k, uint n)
{
    uint i = 0;
#ifdef W_DECODE_BLOCK
    for (; i < n; i += W_BLOCK) decode_block(to + i, row, k + i, min(n - i, (uint)W_BLOCK));
#else
#if LANES == 16
    /* Written as wide as it is read soon after: halves would have to reach the cache first. */
    for (; i + 64 <= n; i += 64)
#pragma unroll
        for (uint u = i; u < i + 64; u += 16)
            *(__local float16 *)(to + u) = (float16)(w_load8(row, k + u), w_load8(row, k + u + 8));
#endif
    for (; i < n; i += 8) *(__local float8 *)(to + i) = w_load8(row, k + i);
    for (; i % LANES; i += 8) *(__local float8 *)(to + i) = (float8)(0);
#endif
}

static INLINE lanes_t x_lanes(const __global act_t *x, uint k)
{
#if LANES == 16 && ACT == 32
    return vload16(0, x + k);
#elif LANES == 16
    float8 a = ACT_LOAD8(x, k), b = ACT_LOAD8(x, k + 8);
    return (float16)(a, b);
#else
    return ACT_LOAD8(x, k);
#endif
}

/* The last ones, of which eight are there. */
static INLINE lanes_t x_last(const __global act_t *x, uint k)
{
#if LANES == 16
    return (float16)(ACT_LOAD8(x, k), (float8)(0));
#else
    return ACT_LOAD8(x, k);
#endif
}

/* Adds the products of n of K of MR rows of X with NR rows of W to their sums. */
static INLINE void multiply(__local float *sums, const __global act_t *const x[MR], const __local float *w, uint k,
                            uint n)
{
    lanes_t acc[MR][NR];
#pragma unroll
    for (int i = 0; i < MR; i++)
#pragma unroll
        for (int j = 0; j < NR; j++) acc[i][j] = (lanes_t)(0);
    uint at = 0;
    for (; at + LANES <= n; at += LANES) {
        lanes_t a[MR];
#pragma unroll
        for (int i = 0; i < MR; i++) a[i] = x_lanes(x[i], k + at);
#pragma unroll
        for (int j = 0; j < NR; j++) {
            lanes_t b = *(const __local lanes_t *)(w + j * PITCH + at);
#pragma unroll
            for (int i = 0; i < MR; i++) acc[i][j] = FUSED(a[i], b, acc[i][j]);
        }
    }
    if (at < n)
#pragma unroll
        for (int j = 0; j < NR; j++)
#pragma unroll
            for (int i = 0; i < MR; i++)
                acc[i][j] = FUSED(x_last(x[i], k + at), *(const __local lanes_t *)(w + j * PITCH + at), acc[i][j]);
#pragma unroll
    for (int i = 0; i < MR; i++)
#pragma unroll
        for (int j = 0; j < NR; j++) sums[i * BN + j] += sum_of_lanes(acc[i][j]);
}

KERNEL void gemm_host(IN(x), IN(w), IN(bias), IN(res), OUT_ACT(y), uint M, uint N, uint K, uint x_stride,
                      ulong w_row_bytes, uint res_stride, uint y_stride)
{
    __local float rows[NR * PITCH] __attribute__((aligned(64)));
    __local float sums[(BM + MR) * BN];
    uint m_tiles = (M + BM - 1) / BM, n_tiles = (N + BN - 1) / BN;
    for (uint tile = get_group_id(0); tile < m_tiles * n_tiles; tile += get_num_groups(0)) {
        uint m0 = tile % m_tiles * BM, n0 = tile / m_tiles * BN, m_end = min(M - m0, (uint)BM);
        for (uint i = 0; i < m_end * BN; i++) sums[i] = 0;
        const __global uchar *w = IN_AT(uchar, w);
        const uint parts = (K + KB - 1) / KB, turns = parts * (BN / NR);
        for (uint turn = 0; turn < turns; turn++) {
            /* One row of X is bound by memory, which rows of W read from end to end suit best; of more, what was read
             * of X serves all rows of W. */
            uint j = MR == 1 ? turn / parts * NR : turn % (BN / NR) * NR,
                 k = (MR == 1 ? turn % parts : turn / (BN / NR)) * KB, n = min(K - k, (uint)KB);
            for (uint r = 0; r < NR; r++)
                decode_row(rows + r * PITCH, w + min(n0 + j + r, N - 1) * w_row_bytes, k, n);
            for (uint m = 0; m < m_end; m += MR) {
                const __global act_t *x[MR];
#pragma unroll
                for (int i = 0; i < MR; i++) x[i] = IN_AT(act_t, x) + (ulong)min(m0 + m + i, M - 1) * x_stride;
                multiply(sums + m * BN + j, x, rows, k, n);
            }
        }
        epilogue e = EPILOGUE(bias, res, y, res_stride, y_stride);
        for (uint m = 0; m < m_end; m++)
            for (uint j = 0; j < BN && n0 + j < N; j++) finish(&e, m0 + m, n0 + j, sums[m * BN + j]);
    }
}
