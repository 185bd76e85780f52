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
 * In local memory row r of the pair X, W stacked lies, for a k, at r ^ SWZ(k): those who write the k of one
 * load for some rows and those who read four rows of one k all meet different banks.
 *
 * Each output is summed serially over K: bit for bit what gemm_naive gives, for all knobs.
 *
 * Knobs: BM, BN, BK, TM, TN, with BM / TM * (BN / TN) = WG, BM + BN a multiple of 32, BK 8, 16 or 32;
 * BUFS 1 (a barrier more a part) or 2; UNROLL steps of k in a row; VEC 1: rows of X and W are aligned to 8
 * elements and K is a multiple of 8.
 * Local memory: BUFS * (BM + BN) * BK floats.
 */
#ifndef WG
#define WG 128
#endif
#include "common.clh"
#include "quant/f16.clh"
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
#ifndef VEC
#define VEC 1
#endif

#define LD      (BM + BN)
#define SWZ(k)  ((k) / 4 * (128 / BK))
#define X_LOADS ((BM * BK / XE + WG - 1) / WG) /* of XE elements, a work-item */
#define W_LOADS ((BN * BK / WE + WG - 1) / WG)
#define MX      (BM / TM) /* work-items along M and N */
#define NX      (BN / TN)

/* Elements k, k + 1, ... of row r go to local memory. */
#define PUT4(part, r, k, v)                                                                        \
    {                                                                                              \
        __local float *to = (part) + (k)*LD + ((r) ^ SWZ(k));                                      \
        to[0] = (v).s0, to[LD] = (v).s1, to[2 * LD] = (v).s2, to[3 * LD] = (v).s3;                 \
    }
#define PUT8(part, r, k, v)                                                                        \
    {                                                                                              \
        float8 f = v;                                                                              \
        PUT4(part, r, k, f.lo)                                                                     \
        PUT4(part, r, (k) + 4, f.hi)                                                               \
    }

/* What is held of the next part. F16 stays as it is until it goes to local memory, for a conversion right
 * behind the load would wait for it. */
#if VEC
#if ACT == 16
#define XE 8
#define X_PUT(part, r, k, held) PUT8(part, r, k, halves8(held))
#define X_FETCH(row, k) (*(const __global uint4 *)((row) + (k)))
typedef uint4 x_held;
#else
#define XE 4
#define X_PUT PUT4
#define X_FETCH(row, k) (*(const __global float4 *)((row) + (k)))
typedef float4 x_held;
#endif
#ifdef W_RAW4
#define WE 4
#define W_PUT PUT4
#define W_FETCH w_raw4
typedef W_RAW4 w_held;
#elif defined(W_RAW8)
#define WE 8
#define W_PUT(part, r, k, held) PUT8(part, r, k, w_value8(held))
#define W_FETCH w_raw8
typedef W_RAW8 w_held;
#else
#define WE 8
#define W_PUT PUT8
#define W_FETCH w_load8
typedef float8 w_held;
#endif
#define LAST(E) (K - E)
#else
typedef float8 x_held, w_held;
#define EACH8(f)                                                                                   \
    (float8)(f(0), k + 1 < K ? f(1) : 0, k + 2 < K ? f(2) : 0, k + 3 < K ? f(3) : 0,               \
             k + 4 < K ? f(4) : 0, k + 5 < K ? f(5) : 0, k + 6 < K ? f(6) : 0,                     \
             k + 7 < K ? f(7) : 0)
float8 x_part8(const __global act_t *row, uint k, uint K)
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
#define XE 8
#define WE 8
#define X_FETCH(row, k) x_part8(row, k, K)
#define W_FETCH(row, k) w_part8(row, k, K)
#define X_PUT PUT8
#define W_PUT PUT8
#define LAST(E) ((K - 1) / E * E)
#endif

/* Element i of the T that work-item t of n has of a row: fours that lie n fours apart, then single ones. */
uint place(uint i, uint t, uint n, uint T)
{
    return i < T / 4 * 4 ? (i / 4 * n + t) * 4 + i % 4 : i * n + t;
}

/* Those T values of a row of local memory in which the operand begins at first. */
#define TAKE(out, T, row, first, t, n, swz)                                                        \
    {                                                                                              \
        _Pragma("unroll") for (int i = 0; i < T / 4; i++) {                                        \
            float4 v = *(const __local float4 *)((row) + (((first) + (i * (n) + (t)) * 4) ^ (swz)));     \
            out[4 * i] = v.x, out[4 * i + 1] = v.y, out[4 * i + 2] = v.z, out[4 * i + 3] = v.w;    \
        }                                                                                          \
        _Pragma("unroll") for (int i = T / 4 * 4; i < T; i++)                                      \
            out[i] = (row)[((first) + i * (n) + (t)) ^ (swz)];                                     \
    }

/* Load l of this work-item, of E elements: its row in the tile, and its k in the part. */
#define ROW(E) ((lid + l * WG) / (BK / E))
#define AT_K(E) ((lid + l * WG) % (BK / E) * E)

/* Part p of a row begins at p * BK; the fetch of one past the end reads the last elements again. */
#define FETCH(p)                                                                                   \
    {                                                                                              \
        _Pragma("unroll") for (int l = 0; l < X_LOADS; l++) {                                      \
            uint line = min(m0 + ROW(XE), M - 1), k = min((p) * BK + AT_K(XE), LAST(XE));          \
            xs[l] = X_FETCH(IN_AT(act_t, x) + (ulong)line * x_stride, k);                          \
        }                                                                                          \
        _Pragma("unroll") for (int l = 0; l < W_LOADS; l++) {                                      \
            uint line = min(n0 + ROW(WE), N - 1), k = min((p) * BK + AT_K(WE), LAST(WE));          \
            ws[l] = W_FETCH(IN_AT(uchar, w) + line * w_row_bytes, k);                              \
        }                                                                                          \
    }

#define KEEP_ALL(p, PUT, E, first, lines, loads, held, type)                                       \
    _Pragma("unroll") for (int l = 0; l < loads; l++) {                                            \
        type in = (p) * BK + AT_K(E) < K ? held[l] : (type)(0);                                    \
        if ((lines) * BK / E % WG == 0 || lid + l * WG < (lines) * BK / E)                         \
            PUT(part + (p) % BUFS * (BK * LD), (first) + ROW(E), AT_K(E), in)                      \
    }
#define KEEP(p)                                                                                    \
    {                                                                                              \
        KEEP_ALL(p, X_PUT, XE, 0, BM, X_LOADS, xs, x_held)                                         \
        KEEP_ALL(p, W_PUT, WE, BM, BN, W_LOADS, ws, w_held)                                        \
    }

KERNEL void gemm_tile(IN(x), IN(w), IN(bias), IN(res), OUT_ACT(y), uint M, uint N, uint K,
                      uint x_stride, ulong w_row_bytes, uint res_stride, uint y_stride)
{
    __local float part[BUFS * BK * LD] __attribute__((aligned(16)));
    uint lid = get_local_id(0), tx = lid % NX, ty = lid / NX;
    uint m_tiles = (M + BM - 1) / BM, n_tiles = (N + BN - 1) / BN, n_parts = (K + BK - 1) / BK;
    ulong tiles = (ulong)m_tiles * n_tiles;
    for (ulong tile = get_group_id(0); tile < tiles; tile += get_num_groups(0)) {
        uint m0 = tile % m_tiles * BM, n0 = tile / m_tiles * BN; /* neighbours share W */
        float acc[TM][TN];
        x_held xs[X_LOADS];
        w_held ws[W_LOADS];
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) acc[i][j] = 0;
        FETCH(0)
        KEEP(0)
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint p = 0; p < n_parts; p++) {
            FETCH(p + 1)
            const __local float *now = part + p % BUFS * (BK * LD);
#pragma unroll UNROLL
            for (int k = 0; k < BK; k++) {
                float a[TM], b[TN];
                TAKE(a, TM, now + k * LD, 0, ty, MX, SWZ(k))
                TAKE(b, TN, now + k * LD, BM, tx, NX, SWZ(k))
#pragma unroll
                for (int i = 0; i < TM; i++)
#pragma unroll
                    for (int j = 0; j < TN; j++) acc[i][j] = MAD(a[i], b[j], acc[i][j]);
            }
#if BUFS == 1
            barrier(CLK_LOCAL_MEM_FENCE);
#endif
            KEEP(p + 1)
            barrier(CLK_LOCAL_MEM_FENCE);
        }
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) {
                uint m = m0 + place(i, ty, MX, TM), col = n0 + place(j, tx, NX, TN);
                if (m >= M || col >= N) continue;
                float sum = acc[i][j];
                if (bias_off != NONE) sum += IN_AT(float, bias)[col];
                if (res_off != NONE) sum += IN_AT(float, res)[(ulong)m * res_stride + col];
                STORE(y, (ulong)m * y_stride + col, sum)
            }
    }
}
