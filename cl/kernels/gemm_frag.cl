/* gemm_frag: Y = X W^T + bias + residual on NVIDIA's matrix units (mma.sync m16n8k16), W in fragments (layout.c).
 * BN outputs of each of BM rows of X a work-group; a warp multiplies WN rows of W with WM rows of X.
 *
 *   W: operand A, from device memory straight to registers, one part of K ahead
 *   X: operand B, in parts of 32 of K through local memory: rows of 64 bytes, the 16-byte chunk c of row r at
 *      c ^ (r / 2 % 4), so that the 8 rows that ldmatrix reads at once lie in 8 different groups of banks
 *
 * STAGES parts of X are in flight (cp.async). Knobs: BM, BN, WM, WN with (BM / WM) * (BN / WN) * 32 = WG; WM a
 * multiple of 16, WN of 16. K is a multiple of 32, rows of X are F16 aligned to 16 bytes.
 */
#ifndef WF_COMMON
#define ACT 16
#define WG 256
#include "common.clh"
#include "nvidia.clh"
#endif
#ifndef BM
#define BM 128
#define BN 256
#define WM 64
#define WN 64
#define STAGES 4
#endif

#define PART (BM * 64) /* bytes of a stage */
#define AHEAD_L2 8     /* parts that W is fetched into L2 ahead of its loads, by one of the tiles that read it */
#define RB   (WN / 16)
#define NT   (WM / 8)

#define LOAD_W(a, p)                                                                               \
    asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"                                        \
                 : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w)                                      \
                 : "l"(p))
#define LOAD_X(p)                                                                                  \
    for (uint at = lid; at < BM * 4; at += WG) {                                                   \
        uint r = at >> 2, c = at & 3;                                                              \
        bool in = m0 + r < M;                                                                      \
        const __global half *from = IN_AT(half, x) + (in ? (ulong)(m0 + r) * x_stride + (p)*32 + c * 8 : 0); \
        uint to = base + (p) % STAGES * PART + r * 64 + ((c ^ (r >> 1 & 3)) << 4), bytes = in ? 16 : 0;      \
        COPY16(to, from, bytes);                                                                   \
    }
/* The two tiles of part p of K of each block; behind the end the last part again. */
#define LOAD_A(s, p)                                                                               \
    _Pragma("unroll") for (int r = 0; r < RB; r++)                                                 \
        _Pragma("unroll") for (int k = 0; k < 2; k++)                                              \
            LOAD_W(a[s][r][k], w_at[r] + min((uint)(p), parts - 1) * 1024ul + k * 512);

/* Multiplies part p with fragments s, after part p + STAGES - 1 of X was asked for. */
#define STEP(s, p)                                                                                 \
    {                                                                                              \
        WAIT(LATER(STAGES));                                                                               \
        barrier(CLK_LOCAL_MEM_FENCE); /* part p is there; nobody reads any more what next overwrites */ \
        uint next = (p) + STAGES - 1, here = base + (p) % STAGES * PART;                           \
        if (next < parts) LOAD_X(next)                                                             \
        COMMIT();                                                                                  \
        LOAD_A(1 - s, (p) + 1)                                                                     \
        if (fetches && (p) + AHEAD_L2 < parts) PREFETCH_L2(line + ((p) + AHEAD_L2) * 1024ul);      \
        _Pragma("unroll") for (int k = 0; k < 2; k++)                                              \
        {                                                                                          \
            uint b[NT][2];                                                                         \
            _Pragma("unroll") for (int j = 0; j < NT; j += 2)                                      \
            {                                                                                      \
                uint r = x_row + j * 8, c = x_chunk + k * 2;                                       \
                LDMATRIX("", b[j][0], b[j][1], b[j + 1][0], b[j + 1][1], here + r * 64 + ((c ^ (r >> 1 & 3)) << 4)); \
            }                                                                                      \
            _Pragma("unroll") for (int r = 0; r < RB; r++)                                         \
                _Pragma("unroll") for (int j = 0; j < NT; j++) \
                    MMA(acc[r][j], a[s][r][k].x, a[s][r][k].y, a[s][r][k].z, a[s][r][k].w, b[j][0], b[j][1]); \
        }                                                                                          \
    }

KERNEL void gemm_frag(IN(x), IN(w), IN(bias), IN(res), OUT_ACT(y), uint M, uint N, uint K, uint x_stride,
                      ulong w_row_bytes, uint res_stride, uint y_stride)
{
    __local uchar stages[STAGES * PART] __attribute__((aligned(128)));
    uint lid = get_local_id(0), lane = lid & 31, warp = lid >> 5, base = (uint)(ulong)stages;
    uint wm = warp / (BN / WN) * WM, wn = warp % (BN / WN) * WN; /* of this warp in the tile */
    uint m_tiles = (M + BM - 1) / BM, n_tiles = (N + BN - 1) / BN, blocks = (N + 15) / 16, parts = K / 32;
    /* What this lane gives ldmatrix: rows 0 to 7 of X at two chunks of K, then rows 8 to 15. */
    uint x_row = wm + (lane & 7) + (lane >> 4 << 3), x_chunk = lane >> 3 & 1;

    for (uint tile = get_group_id(0); tile < m_tiles * n_tiles; tile += get_num_groups(0)) {
        uint m0 = tile % m_tiles * BM, n0 = tile / m_tiles * BN; /* neighbours share W */
        const __global uchar *w_at[RB];
        uint4 a[2][RB][2];
        float acc[RB][NT][4];
#pragma unroll
        for (int r = 0; r < RB; r++) {
            uint block = min((n0 + wn) / 16 + r, blocks - 1);
            w_at[r] = IN_AT(uchar, w) + ((ulong)block * (K / 16) * 32 + lane) * 16;
#pragma unroll
            for (int j = 0; j < NT; j++)
#pragma unroll
                for (int v = 0; v < 4; v++) acc[r][j][v] = 0;
        }
        for (uint p = 0; p < STAGES - 1; p++) {
            if (p < parts) LOAD_X(p)
            COMMIT();
        }
        /* A line of 128 bytes a lane: eight are a part of a block. */
        bool fetches = m0 == 0 && wm == 0 && lane < RB * 8;
        const __global uchar *line = IN_AT(uchar, w) + (ulong)min((n0 + wn) / 16 + lane / 8, blocks - 1) * (K / 16) * 512 + lane % 8 * 128;
        LOAD_A(0, 0)
        for (uint p = 0; p < parts; p += 2) {
            STEP(0, p)
            if (p + 1 < parts) STEP(1, p + 1)
        }
        WAIT("0");
        barrier(CLK_LOCAL_MEM_FENCE); /* the next tile overwrites all parts */
#pragma unroll
        for (int r = 0; r < RB; r++)
#pragma unroll
            for (int j = 0; j < NT; j++)
#pragma unroll
                for (int v = 0; v < 4; v++) {
                    uint m = m0 + wm + j * 8 + (lane & 3) * 2 + v % 2;
                    uint col = n0 + wn + r * 16 + (lane >> 2) + v / 2 * 8;
                    if (m >= M || col >= N) continue;
                    float sum = acc[r][j][v];
                    if (bias_off != NONE) sum += IN_AT(float, bias)[col];
                    if (res_off != NONE) sum += IN_AT(float, res)[(ulong)m * res_stride + col];
                    STORE(y, (ulong)m * y_stride + col, sum)
                }
    }
}
