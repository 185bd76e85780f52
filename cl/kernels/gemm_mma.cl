/* gemm_mma: Y = X W^T + bias + residual on NVIDIA's matrix units (compute capability 8.0 and up), by inline PTX:
 * mma.sync m16n8k16, f16 in, f32 sums. BM x BN outputs a work-group, WM x WN of them a warp.
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
 * K is a multiple of 8, rows of X are F16 aligned to 16 bytes.
 */
#ifndef WG
#define WG 128
#endif
#include "common.clh"
#include "local_bytes.clh"
#include "nvidia.clh"
#include "quant/f16.clh"
#ifndef BM
#define BM 128
#define BN 128
#define WM 64
#define WN 64
#endif
#ifndef STAGES
#define STAGES 3
#endif
#ifndef W16
#define W16 1
#endif

#define BK MMA_BK
#define PART MMA_STAGE_BYTES(BM, BN, BK)
#define MT (WM / 16)
#define NT (WN / 8)
#define W_LOADS (BN * 4 / WG) /* 16-byte chunks a work-item, when they pass through registers */

/* Byte of chunk c of row r inside a matrix of 64-byte rows. */
uint place(uint r, uint c)
{
    return r * 64 + ((c ^ (r >> 1 & 3)) << 4);
}

#if !W16
/* Eight weights as F16, or zeros. */
uint4 w_halves(const __global uchar *row, uint k, bool inside)
{
    if (!inside) return (uint4)(0);
    float8 f = w_load8(row, k);
    return (uint4)(f16_pair(f.s0, f.s1), f16_pair(f.s2, f.s3), f16_pair(f.s4, f.s5), f16_pair(f.s6, f.s7));
}
#endif

KERNEL void gemm_mma(IN(x), IN(w), IN(bias), IN(res), OUT_ACT(y), uint M, uint N, uint K, uint x_stride,
                     ulong w_row_bytes, uint res_stride, uint y_stride)
{
    __local uchar parts[STAGES * PART] __attribute__((aligned(128)));
    uint lid = get_local_id(0), lane = lid & 31, warp = lid >> 5;
    uint wm = warp / (BN / WN) * WM, wn = warp % (BN / WN) * WN; /* of this warp in the tile */
    uint base = (uint)(ulong)parts;
    uint m_tiles = (M + BM - 1) / BM, n_tiles = (N + BN - 1) / BN;
    ulong tiles = (ulong)m_tiles * n_tiles;
    uint n_parts = (K + BK - 1) / BK;
    /* What this lane gives ldmatrix: rows 0 to 15 of X at two chunks of K; of W rows 0 to 7 twice, then 8 to 15. */
    uint x_row = wm + (lane & 15), x_chunk = lane >> 4;
    uint w_row = wn + (lane & 7) + (lane >> 4 << 3), w_chunk = lane >> 3 & 1;

    for (ulong tile = get_group_id(0); tile < tiles; tile += get_num_groups(0)) {
        uint m0 = tile % m_tiles * BM, n0 = tile / m_tiles * BN; /* neighbours share W */
        float acc[MT][NT][4];
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int j = 0; j < NT; j++)
#pragma unroll
                for (int v = 0; v < 4; v++) acc[i][j][v] = 0;

#define LOAD_X(p)                                                                                  \
    for (uint at = lid; at < BM * 4; at += WG) {                                                   \
        uint r = at >> 2, k = (p)*BK + (at & 3) * 8;                                               \
        bool in = m0 + r < M && k < K;                                                             \
        const __global half *from = IN_AT(half, x) + (in ? (ulong)(m0 + r) * x_stride + k : 0);    \
        uint to = base + (p) % STAGES * PART + place(r, at & 3), bytes = in ? 16 : 0;              \
        COPY16(to, from, bytes);                                                                   \
    }
#if W16
#define LOAD_W(p)                                                                                  \
    for (uint at = lid; at < BN * 4; at += WG) {                                                   \
        uint r = at >> 2, k = (p)*BK + (at & 3) * 8;                                               \
        bool in = n0 + r < N && k < K;                                                             \
        const __global uchar *from = IN_AT(uchar, w) + (in ? (n0 + r) * w_row_bytes + k * 2 : 0);  \
        uint to = base + (p) % STAGES * PART + BM * 64 + place(r, at & 3), bytes = in ? 16 : 0;    \
        COPY16(to, from, bytes);                                                                   \
    }
#define STORE_W(p)
#else
        uint4 held[W_LOADS];
#define LOAD_W(p)                                                                                  \
    for (int l = 0; l < W_LOADS; l++) {                                                            \
        uint at = lid + l * WG, r = at >> 2, k = (p)*BK + (at & 3) * 8;                            \
        uint line = min(n0 + r, N - 1);                                                            \
        held[l] = w_halves(IN_AT(uchar, w) + line * w_row_bytes, k, n0 + r < N && k < K);          \
    }
#define STORE_W(p)                                                                                 \
    for (int l = 0; l < W_LOADS; l++) {                                                            \
        uint at = lid + l * WG;                                                                    \
        *(__local uint4 *)(parts + (p) % STAGES * PART + BM * 64 + place(at >> 2, at & 3)) =       \
            held[l];                                                                               \
    }
#endif
        for (uint p = 0; p < STAGES - 1; p++) {
            if (p < n_parts) {
                LOAD_X(p)
                LOAD_W(p)
                STORE_W(p)
            }
            COMMIT();
        }
        for (uint p = 0; p < n_parts; p++) {
            uint next = p + STAGES - 1;
            WAIT(LATER(STAGES));
            barrier(CLK_LOCAL_MEM_FENCE); /* part p is there; everyone is done with the one that next overwrites */
            if (next < n_parts) {
                LOAD_X(next)
                LOAD_W(next)
            }
            COMMIT();
            uint x_base = base + p % STAGES * PART, w_base = x_base + BM * 64;
#pragma unroll
            for (int k = 0; k < 2; k++) { /* 16 of K each */
                uint a[MT][4], b[NT][2];
#pragma unroll
                for (int i = 0; i < MT; i++)
                    LDMATRIX("", a[i][0], a[i][1], a[i][2], a[i][3], x_base + place(x_row + i * 16, x_chunk + k * 2));
#pragma unroll
                for (int j = 0; j < NT; j += 2)
                    LDMATRIX("", b[j][0], b[j][1], b[j + 1][0], b[j + 1][1],
                             w_base + place(w_row + j * 8, w_chunk + k * 2));
#pragma unroll
                for (int i = 0; i < MT; i++)
#pragma unroll
                    for (int j = 0; j < NT; j++) MMA(acc[i][j], a[i][0], a[i][1], a[i][2], a[i][3], b[j][0], b[j][1]);
            }
            if (next < n_parts) {
                STORE_W(next)
            }
        }
        WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE); /* the next tile overwrites all parts */
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int j = 0; j < NT; j++)
#pragma unroll
                for (int v = 0; v < 4; v++) {
                    uint m = m0 + wm + i * 16 + (lane >> 2) + v / 2 * 8;
                    uint col = n0 + wn + j * 8 + (lane & 3) * 2 + v % 2;
                    if (m >= M || col >= N) continue;
                    float sum = acc[i][j][v];
                    if (bias_off != NONE) sum += IN_AT(float, bias)[col];
                    if (res_off != NONE) sum += IN_AT(float, res)[(ulong)m * res_stride + col];
                    STORE(y, (ulong)m * y_stride + col, sum)
                }
    }
}
