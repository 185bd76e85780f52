/* gemm_flat: Y = X W^T + bias + residual for few rows of X on NVIDIA's matrix units (mma.sync m16n8k16, f16 in,
 * f32 sums), W MMA-fragment-major (layout.c). Bound by the reading of W, which happens once.
 *
 *   W is operand A: 16 of its rows a tile, a warp reads tile (block, k) as 512 bytes straight to registers
 *   X is operand B: 8 of its rows a tile, so M is padded to 8 only
 *   the warps of a work-group share K; their sums meet in local memory, added in the order of the warps
 *
 * NORM: X is F32 and normalised first; every work-group does it for itself, while its first weights are under way,
 * and keeps the result as F16 in local memory: rows of X read again with each tile of K would be waited for.
 * SILU: Y = silu(gate) * up. The two blocks of a work-group are the same rows of gate and of up.
 * ROPE: W holds q, k and v; Y is q, rotated, and k and v go to their slots (rope.clh). The two blocks of a work-group hold
 * whole pairs: with NEOX, of which the halves lie apart, a block of first and that of second elements, then the rest of the
 * head by twos. Behind the sums a work-item has one pair; what that needs comes while the weights are under way.
 *
 * Knobs: RB blocks of 16 rows of W a work-group; NT tiles of 8 rows of X (8 * NT >= M); UK tiles of K whose
 * loads are issued together: two such sets are in turn loaded and used; WG = 32 * the warps.
 * K is a multiple of 32, rows of X are F16 aligned to 4 bytes.
 * With NORM NT is 1, XK is K, XROWS >= M, and rows are aligned to four elements; with SILU RB is 2 and the rows of W a multiple of 32.
 * With ROPE RB is 2, WG >= 128 * NT, heads have HEAD elements, of which N_ROT turn; with NEOX both are multiples of 32.
 */
#ifndef WG
#define WG 512
#endif
#include "common.clh"
#include "nvidia.clh"
#ifndef RB
#define RB 1
#define NT 1
#define UK 4
#endif

#ifndef NORM
#define NORM 0
#define SILU 0
#define XK 4096
#define XROWS 1
#endif

#ifndef ROPE
#define ROPE 0
#define ROPE_ARGS
#define NEOX 0
#else
#include "rope.clh"
#endif

#define WARPS (WG / 32)
#define ROWS  (RB * 16)
#define OUTS  (ROWS * NT * 8)

#define LOAD_W(a, p)                                                                               \
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"                        \
                 : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w)                                      \
                 : "l"(p))

/* ---- operands and products -------------------------------------------------------------------------------- */

/* Operands get the tiles first to first + UK of K; zeros from tile `to` on. */
INLINE void load_w(uint4 a[UK][RB], const __global uchar *const w_at[RB], uint first, uint to)
{
#pragma unroll
    for (uint u = 0; u < UK; u++)
#pragma unroll
        for (int r = 0; r < RB; r++) {
            a[u][r] = (uint4)(0);
            if (first + u < to) LOAD_W(a[u][r], w_at[r] + (first + u) * 512ul);
        }
}

#if NORM
/* x: this lane's place in the normalised row of X. */
INLINE void load_x(uint2 b[UK][NT], const __local uint *x, uint first, uint to)
{
#pragma unroll
    for (uint u = 0; u < UK; u++) b[u][0] = first + u < to ? (uint2)(x[(first + u) * 8], x[(first + u) * 8 + 4]) : (uint2)(0);
}
#else
/* x: this lane's place in its row of X of each tile. */
INLINE void load_x(uint2 b[UK][NT], const __global uchar *const x[NT], uint first, uint to)
{
#pragma unroll
    for (uint u = 0; u < UK; u++)
#pragma unroll
        for (int t = 0; t < NT; t++) {
            const __global uint *p = (const __global uint *)(x[t] + (first + u) * 32);
            b[u][t] = first + u < to ? (uint2)(p[0], p[4]) : (uint2)(0);
        }
}
#endif

INLINE void multiply(float acc[RB][NT][4], const uint4 a[UK][RB], const uint2 b[UK][NT])
{
#pragma unroll
    for (int u = 0; u < UK; u++)
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
            for (int r = 0; r < RB; r++) MMA(acc[r][t], a[u][r].x, a[u][r].y, a[u][r].z, a[u][r].w, b[u][t].x, b[u][t].y);
}

INLINE void clear(float acc[RB][NT][4])
{
#pragma unroll
    for (int r = 0; r < RB; r++)
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
            for (int v = 0; v < 4; v++) acc[r][t][v] = 0;
}

/* A warp's accumulators to its part of local memory. */
INLINE void store_sums(__local float *mine, float acc[RB][NT][4], uint lane)
{
#pragma unroll
    for (int r = 0; r < RB; r++)
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
            for (int v = 0; v < 4; v++) mine[(t * 8 + (lane & 3) * 2 + v % 2) * ROWS + r * 16 + (lane >> 2) + v / 2 * 8] = acc[r][t][v];
}

/* ---- in front of the product: the norm ---------------------------------------------------------------------- */

#if NORM
#define XPITCH (XK / 2 + 4)                   /* words from row to row: eight rows in different banks */
#define PER    ((XK / 4 + WG - 1) / WG)       /* float4 of a row that a work-item holds */

/* Sum over the lanes of a warp; every lane gets it. */
float warp_sum(float x)
{
    for (uint n = 16; n > 0; n /= 2) x += lane_xor(x, n);
    return x;
}

/* All rows of X, normalised, to xs as F16. */
INLINE void normalise(__local uint *xs, __local float (*squares)[WARPS], const __global float *x, uint x_stride, const __global float *weights,
                      uint M, uint K, float eps, uint lid)
{
    const __global float4 *w4 = (const __global float4 *)weights;
    float4 w[PER];
#pragma unroll
    for (uint i = 0; i < PER; i++) w[i] = lid + i * WG < XK / 4 ? w4[lid + i * WG] : (float4)(0);
    for (uint m = 0; m < M; m++) {
        const __global float4 *row = (const __global float4 *)(x + m * (ulong)x_stride);
        float sum = 0;
        for (uint k = lid; k < XK / 4; k += WG) sum += dot(row[k], row[k]);
        sum = warp_sum(sum);
        if ((lid & 31) == 0) squares[m][lid >> 5] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint m = 0; m < M; m++) {
        const __global float4 *row = (const __global float4 *)(x + m * (ulong)x_stride);
        float sum = 0;
        for (int i = 0; i < WARPS; i++) sum += squares[m][i];
        float scale = 1.0f / sqrt(sum / K + eps);
#pragma unroll
        for (uint i = 0; i < PER; i++) {
            uint k = lid + i * WG;
            if (k >= XK / 4) continue;
            float4 v = row[k] * scale * w[i];
            *(__local uint2 *)(xs + m * XPITCH + 2 * k) = (uint2)(f16_pair(v.x, v.y), f16_pair(v.z, v.w));
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
#endif

/* ---- behind the product ---------------------------------------------------------------------------------------- */

#if ROPE
#if NEOX
#define IN_HEAD(tile)  ((tile) % (HEAD / 32))
#define BLOCK(tile, r)                                                                             \
    ((tile) / (HEAD / 32) * (HEAD / 16) +                                                          \
     (IN_HEAD(tile) < N_ROT / 32 ? IN_HEAD(tile) + (r) * (N_ROT / 32) : 2 * IN_HEAD(tile) + (r)))
#endif

/* The pair of outputs that work-item lid has of a tile: for row m of X, rows row0 and row1 of the tile, which are elements e0
 * and e1 of a head. */
typedef struct pair_t {
    uint m, row0, row1, head, e0, e1;
} pair_t;

pair_t pair_at(uint lid, uint tile)
{
    pair_t p;
    uint i = lid % 16;
    p.m = lid / 16;
#if NEOX
    p.row0 = i, p.row1 = 16 + i;
    p.head = tile / (HEAD / 32);
    p.e0 = BLOCK(tile, 0) * 16 + i - p.head * HEAD;
    p.e1 = BLOCK(tile, 1) * 16 + i - p.head * HEAD;
#else
    p.row0 = 2 * i, p.row1 = 2 * i + 1;
    p.head = (tile * 32 + p.row0) / HEAD;
    p.e0 = (tile * 32 + p.row0) % HEAD;
    p.e1 = p.e0 + 1;
#endif
    return p;
}
#define PAIR_HERE(p)  ((p).m < M && (p).head < Hq + 2 * Hkv)
#define IS_ROTATED(p) ((p).head < Hq + Hkv && (p).e0 < N_ROT / (NEOX ? 2 : 1))
#endif

/* Output `at` of a tile: the sums of all warps. */
float total(const __local float *partial, uint at)
{
    float sum = 0;
#pragma unroll
    for (int s = 0; s < WARPS; s++) sum += partial[s * OUTS + at];
    return sum;
}

KERNEL void gemm_flat(IN(x), IN(w), IN(bias), IN(res), OUT_ACT(y), uint M, uint N, uint K, uint x_stride,
                      ulong w_row_bytes, uint res_stride, uint y_stride, IN(norm), float eps ROPE_ARGS)
{
    __local float partial[WARPS * OUTS];
    uint lid = get_local_id(0), lane = lid & 31, warp = lid >> 5;
#if SILU
    uint gate = N / 16, blocks = 2 * gate, tiles = gate; /* tile t: blocks t of gate and of up */
#define BLOCK(tile, r) ((tile) + (r)*gate)
#define COLUMNS        16 /* of Y a tile */
#elif NEOX
    uint tiles = N / 32;
#else
    uint blocks = (N + 15) / 16, tiles = (blocks + RB - 1) / RB;
#define BLOCK(tile, r) min((tile)*RB + (r), blocks - 1)
#define COLUMNS        ROWS
#endif
    uint in_k = K / 16;
    uint from = warp * in_k / WARPS, to = (warp + 1) * in_k / WARPS;
    const __global uchar *w_at[RB];
#if NORM
    __local float squares[XROWS][WARPS];
    __local uint xs[XROWS * XPITCH] __attribute__((aligned(16)));
    const __local uint *x_at = xs + min(lane >> 2, M - 1) * XPITCH + (lane & 3);
    bool have_x = false;
#else
    const __global uchar *x_at[NT];
#pragma unroll
    for (int t = 0; t < NT; t++)
        x_at[t] = IN_AT(uchar, x) + min(t * 8 + (lane >> 2), M - 1) * (ulong)x_stride * 2 + (lane & 3) * 4;
#endif

    for (uint tile = get_group_id(0); tile < tiles; tile += get_num_groups(0)) {
        float acc[RB][NT][4];
        uint4 a[2][UK][RB];
        uint2 b[2][UK][NT];
        clear(acc);
#pragma unroll
        for (int r = 0; r < RB; r++) w_at[r] = IN_AT(uchar, w) + (BLOCK(tile, r) * (ulong)in_k * 32 + lane) * 16;
        load_w(a[0], w_at, from, to);
#if ROPE
        pair_t pair = pair_at(opaque(lid), tile);
        bool here = PAIR_HERE(pair);
        int at = here ? IN_AT(int, pos)[pair.m] : 0, into = here ? IN_AT(int, slot)[pair.m] : -1;
#endif
#if NORM
        if (!have_x) {
            normalise(xs, squares, IN_AT(float, x), x_stride, IN_AT(float, norm), M, K, eps, lid);
            have_x = true;
        }
#endif
        load_x(b[0], x_at, from, to);
#if ROPE
        float2 angle = 0;
        if (here && IS_ROTATED(pair)) angle = vload2(pair.e0 / (NEOX ? 1 : 2), COS_SIN(at));
#endif
        for (uint k0 = from; k0 < to; k0 += 2 * UK) {
            load_w(a[1], w_at, k0 + UK, to);
            load_x(b[1], x_at, k0 + UK, to);
            multiply(acc, a[0], b[0]);
            load_w(a[0], w_at, k0 + 2 * UK, to);
            load_x(b[0], x_at, k0 + 2 * UK, to);
            multiply(acc, a[1], b[1]);
        }
        store_sums(partial + warp * OUTS, acc, lane);
        barrier(CLK_LOCAL_MEM_FENCE);
#if ROPE
        pair = pair_at(opaque(lid), tile);
        if (PAIR_HERE(pair)) {
            uint col = pair.head * HEAD;
            float a = total(partial, pair.m * ROWS + pair.row0), b = total(partial, pair.m * ROWS + pair.row1), first, second;
            if (bias_off != NONE) a += IN_AT(float, bias)[col + pair.e0], b += IN_AT(float, bias)[col + pair.e1];
            if (IS_ROTATED(pair)) ROTATE(first, second, a, b, angle.x, angle.y);
            else first = a, second = b;
            if (pair.head < Hq) {
                ulong q = (ulong)pair.m * y_stride + col;
                STORE(y, q + pair.e0, first)
                STORE(y, q + pair.e1, second)
            } else if (HAS_SLOT(into)) {
                __global half *kv = IN_SLOT(pair.head, into, HEAD);
                vstore_half(first, pair.e0, kv);
                vstore_half(second, pair.e1, kv);
            }
        }
#else
        for (uint i = lid; i < COLUMNS * NT * 8; i += WG) {
            uint m = i / COLUMNS, row = i % COLUMNS, col = tile * COLUMNS + row;
            if (m >= M || col >= N) continue;
            float sum = total(partial, m * ROWS + row);
            if (bias_off != NONE) sum += IN_AT(float, bias)[col];
#if SILU
            float up = total(partial, m * ROWS + 16 + row);
            if (bias_off != NONE) up += IN_AT(float, bias)[N + col];
            sum = sum / (1.0f + exp(-sum)) * up;
#endif
            if (res_off != NONE) sum += IN_AT(float, res)[(ulong)m * res_stride + col];
            STORE(y, (ulong)m * y_stride + col, sum)
        }
#endif
        barrier(CLK_LOCAL_MEM_FENCE); /* partial is written again */
    }
}
