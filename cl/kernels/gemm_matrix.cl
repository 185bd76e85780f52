/* gemm_matrix: Y = X W^T + bias + residual on any vendor's matrix units (matrix.clh), f16 in, f32
 * sums. BM x BN outputs a work-group, WM x WN of them a wave of LANES work-items.
 *
 *   part p of K (BK):  BM rows of X, then BN rows of W, as F16 in local memory
 *        |
 *        v  load_a, load_b --> fragments --> mma --> N_SUMS sums a lane of each MMA_M x MMA_N tile
 *
 * STAGES parts lie in local memory: while part p is multiplied, part p + STAGES - 1 is copied (device/copies.clh), or
 * comes into registers and from there to local memory. Weights that are not F16 are decoded to it on the way. Rows past
 * the edge repeat the last one or are zeros, K past it is zeros.
 *
 * Flat products: PARTS waves share each BK, 16 or more of K each; at the end their sums meet in local memory and are
 * added in the order of the parts. X is padded to the rows of the unit: 8 on Intel's, 16 on others. SHARES: work-groups
 * share the K of tiles, too (shares.clh); a kernel behind it adds.
 *
 * EXPAND 1: a kernel in front decodes all of W to F16 in scratch memory, once for all rows of X.
 *
 * Knobs: BM, BN, BK, WM, WN, PARTS, LANES with (BM / WM) * (BN / WN) * PARTS * LANES = WG, WM a multiple of MMA_M, WN
 * of MMA_N, BK of 16 * PARTS; STAGES of MATRIX_STAGE_BYTES (local_bytes.clh), 2 without COPIES; W16 1: W holds F16 rows
 * aligned to 16 bytes; Y_FOURS 1: columns, strides and offsets of Y, bias and residual are multiples of four. K is a
 * multiple of 8, rows of X are F16 aligned to 16 bytes. Parts: matrix.clh, expand.clh, tile.clh, device/copies.clh,
 * shares.clh, epilogue.clh.
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
#include "device/copies.clh"
#include "quant/f16.clh"
#include "matrix.clh"
#ifndef EXPAND
#define EXPAND 0
#endif
#define EXPAND_F16
#define EXPAND_CHUNKS
#include "expand.clh"
#include "epilogue.clh"
#include "experts_many.clh"
#ifndef BN
#define BN 64
#define WM 32
#define WN 32
#endif

#ifndef PARTS
#define PARTS 1
#endif
#ifndef STAGES
#define STAGES 2
#endif
#ifndef SHARES
#define SHARES 0
#endif
#if SHARES
#include "shares.clh"
#define SCRATCH_ARGS , __global uchar *scratch, uint shares
#elif EXPAND
#define SCRATCH_ARGS , __global uchar *scratch
#else
#define SCRATCH_ARGS
#endif

#define PITCH   (COPIES ? BK : MATRIX_PITCH(BK))
#define STAGE   (MATRIX_STAGE_BYTES(BM, BN, BK, COPIES) / 2) /* halves */
#define MT      (WM / MMA_M)
#define NT      (WN / MMA_N)
#define N_SUMS  (MMA_M * MMA_N / LANES)
#define WAVES   ((BM / WM) * (BN / WN)) /* of a part of K */
#define PART_K  (BK / PARTS)
#define COPY_W  (COPIES && W16)

#define X_VEC 8
typedef uint4 x_held;
typedef ushort local_t;
#define x_read(row, k, K)     (*(const __global uint4 *)((row) + (k)))
#define put_x(to, r, k, held) put_a(to, PITCH, r, k, held)
#ifdef W_WHOLE
#define put_w(to, r, k, held)                                                                      \
    _Pragma("unroll") for (int i_ = 0; i_ < 4; i_++)                                               \
        put_b((to) + BM * PITCH, PITCH, r, (k) + 8 * i_, chunk_eight(&(held), i_))
#else
#define put_w(to, r, k, held) put_b((to) + BM * PITCH, PITCH, r, k, held)
#endif
#define LAST(vec)             (K - vec)
#include "tile.clh"

/* ---- parts of X and W to local memory ------------------------------------------------------------------------- */

/* What a product reads. */
typedef struct factors {
    const __global act_t *x;
    const __global uchar *w;
    uint x_stride, M, N, K;
    ulong w_row_bytes;
} factors;

/* Of a part, what comes by way of registers. */
typedef struct part_held {
    x_held x[X_LOADS];
    w_held w[W_LOADS];
} part_held;

#if COPIES
/* Begins to copy BK of K, from k0 on, of n rows of `rows` in F16, from row `first` on. */
static INLINE void copy_rows(__local ushort *to, uint n, const __global uchar *from, ulong row_bytes, uint first,
                             uint rows, uint k0, uint K, uint lid)
{
#pragma unroll
    for (uint l = 0; l < (n * (BK / 8) + WG - 1) / WG; l++) {
        const uint at = lid + l * WG, row = at / (BK / 8), k = at % (BK / 8) * 8;
        const bool in = first + row < rows && k0 + k < K;
        if (n * (BK / 8) % WG == 0 || at < n * (BK / 8))
            begin_copy(A_AT(to, PITCH, row, k), in ? from + (first + row) * row_bytes + (k0 + k) * 2 : from, in);
    }
}
#endif

/* The part from k0 on begins to come to `to`. */
static INLINE void begin_part(part_held *held, __local ushort *to, const factors *f, uint m0, uint n0, uint k0,
                              uint lid)
{
#if COPIES
    copy_rows(to, BM, (const __global uchar *)f->x, f->x_stride * 2ul, m0, f->M, k0, f->K, lid);
#else
    fetch_x(held->x, f->x, f->x_stride, m0, f->M, k0, f->K, lid);
#endif
#if COPY_W
    copy_rows(to + BM * PITCH, BN, f->w, f->w_row_bytes, n0, f->N, k0, f->K, lid);
#else
    fetch_w(held->w, f->w, f->w_row_bytes, n0, f->N, k0, f->K, lid);
#endif
}

/* What of it is in registers comes there. */
static INLINE void end_part(const part_held *held, __local ushort *to, uint k0, uint K, uint lid)
{
#if !COPIES
    keep_x(to, held->x, k0, K, lid);
#endif
#if !COPY_W
    keep_w(to, held->w, k0, K, lid);
#endif
}

/* ---- products -------------------------------------------------------------------------------------------------- */

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
    for (uint step = 0; step < PART_K / 16; step++) {
        const uint k = first + step * 16;
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

/* Where the outputs of a wave begin in the tile, and its K in a part; its lane. */
typedef struct place {
    uint wm, wn, first, lane;
} place;

/* The products of parts p to end - 1 of K for the tile at (m0, n0). All work-items call together. */
static INLINE void add_products(frag_c acc[MT][NT], __local ushort *parts, const factors *f, uint m0, uint n0, uint p,
                                uint end, const place *at, uint lid)
{
    part_held held;
    clear(acc);
#pragma unroll
    for (uint s = 0; s < STAGES - 1; s++) {
        if (p + s < end) {
            begin_part(&held, parts + s * STAGE, f, m0, n0, (p + s) * BK, lid);
            end_part(&held, parts + s * STAGE, (p + s) * BK, f->K, lid);
        }
        end_copies();
    }
    __local ushort *now = parts, *to = parts + (STAGES - 1) * STAGE;
    for (; p < end; p++) {
        const uint next = p + STAGES - 1;
        await_copies(STAGES - 2);
        barrier(CLK_LOCAL_MEM_FENCE); /* part p is there, and everyone is done with the one that `next` overwrites */
        if (next < end) begin_part(&held, to, f, m0, n0, next * BK, lid);
        end_copies();
        multiply(acc, now, now + BM * PITCH, at->wm, at->wn, at->first, at->lane);
        if (next < end) end_part(&held, to, next * BK, f->K, lid);
        to = now, now = now + STAGE == parts + STAGES * STAGE ? parts : now + STAGE;
    }
    await_copies(0);
    barrier(CLK_LOCAL_MEM_FENCE); /* what follows overwrites all parts */
}

#if PARTS > 1
/* The sums of a wave go to its part's BM x BN in local memory; wm, wn: where they begin. */
static INLINE void put_sums(__local float *to, frag_c acc[MT][NT], uint wm, uint wn, uint lane)
{
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int v = 0; v < N_SUMS; v++)
                to[(wm + i * MMA_M + C_ROW(lane, v)) * BN + wn + j * MMA_N + C_COL(lane, v)] = acc[i][j][v];
}

#if BM * BN * PARTS * 4 > STAGES * STAGE * 2
#error the sums of the parts do not fit the tiles
#endif
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
#define STRIP MATRIX_STRIP(WN)
#if MATRIX_STRIPS_BYTES(WG / LANES, MMA_M, WN) > STAGES * STAGE * 2
#error the sums of MMA_M rows of all waves do not fit the tiles
#endif

/* A wave's sums to whole lines of Y, or of `share`, BM x BN sums in scratch memory, by way of `mine` in local memory,
 * MMA_M rows at once. m0, n0: the first outputs of the tile. All work-items call together. */
static INLINE void finish_all(const epilogue *e, __global float *share, frag_c acc[MT][NT], __local float *mine,
                              uint m0, uint M, uint n0, uint N, const place *at)
{
#pragma unroll
    for (int i = 0; i < MT; i++) {
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int v = 0; v < N_SUMS; v++)
                mine[C_ROW(at->lane, v) * STRIP + j * MMA_N + C_COL(at->lane, v)] = acc[i][j][v];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint four = at->lane; four < MMA_M * WN / 4; four += LANES) {
            const uint r = four / (WN / 4), c = four % (WN / 4) * 4, row = at->wm + i * MMA_M + r, col = at->wn + c;
            const float4 sum = *(const __local float4 *)(mine + r * STRIP + c);
            if (share) *(__global float4 *)(share + row * BN + col) = sum;
            else if (m0 + row < M && n0 + col < N) finish_columns(e, m0 + row, n0 + col, N, sum);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
#endif

#define MATRIX_ARGS                                                                                                    \
    IN(x), IN(w), IN(bias), IN(res), OUT_ACT(y), uint M, uint N, uint K, uint x_stride, ulong w_row_bytes,             \
        uint res_stride, uint y_stride SCRATCH_ARGS
/* In scratch memory, behind W. */
#define SUMS_AT (SCRATCH_AT + (EXPAND ? ((ulong)N * K * 2 + 127) / 128 * 128 : 0))

#if EXPAND
/* All of W to F16, eight neighbours at once. */
KERNEL void gemm_matrix_before(MATRIX_ARGS)
{
    enum { AT_ONCE = 8 }; /* of a work-item, so that it waits for memory once */
    __global uint4 *to = (__global uint4 *)(scratch + SCRATCH_AT);
    const uint n = N * (K / 8), each = get_global_size(0);
    for (uint first = get_global_id(0); first < n; first += AT_ONCE * each) {
        float8 eight[AT_ONCE];
#pragma unroll
        for (uint j = 0; j < AT_ONCE; j++) {
            const uint at = min(first + j * each, n - 1);
            eight[j] = w_load8(IN_AT(uchar, w) + at / (K / 8) * w_row_bytes, at % (K / 8) * 8);
        }
#pragma unroll
        for (uint j = 0; j < AT_ONCE; j++)
            if (first + j * each < n) to[first + j * each] = TO_HALVES8(eight[j]);
    }
}
#endif

#if SHARES
KERNEL void gemm_matrix_after(MATRIX_ARGS)
{
    const epilogue e = EPILOGUE(bias, res, y, res_stride, y_stride);
    const shares_t s = shares_of((__global float *)(scratch + SUMS_AT), shares, (K + BK - 1) / BK, (M + BM - 1) / BM,
                                 (N + BN - 1) / BN);
    add_shares(&s, &e, M, N, get_local_id(0));
}
#endif

KERNEL SUB_GROUP void gemm_matrix(MATRIX_ARGS)
{
    LOCAL_HALVES(parts, STAGES * STAGE)
    const uint lid = get_local_id(0), wave = WAVE(), of_part = wave % WAVES;
    const place at = {of_part / (BN / WN) * WM, of_part % (BN / WN) * WN, PARTS > 1 ? wave / WAVES * PART_K : 0,
                      LANE()};
    const uint m_tiles = (M + BM - 1) / BM, n_tiles = (N + BN - 1) / BN, n_parts = (K + BK - 1) / BK;
#if PARTS == 1
    __local float *mine = (__local float *)parts + wave * MMA_M * STRIP;
#endif
#if EXPAND
    const factors f = {IN_AT(act_t, x), scratch + SCRATCH_AT, x_stride, M, N, K, 2 * (ulong)K};
#else
    const factors f = {IN_AT(act_t, x), IN_AT(uchar, w), x_stride, M, N, K, w_row_bytes};
#endif
#if SHARES
    const shares_t s = shares_of((__global float *)(scratch + SUMS_AT), shares, n_parts, m_tiles, n_tiles);
    for (uint turn = get_group_id(0); turn < m_tiles * shares; turn += get_num_groups(0)) {
        const uint m_tile = turn % m_tiles, share = turn / m_tiles, begin = share_begins(&s, share),
                   end = share_begins(&s, share + 1);
        for (uint step = begin, n; step < end; step += n) {
            const uint n_tile = step / n_parts, p = step % n_parts;
            frag_c acc[MT][NT];
            n = min(n_parts - p, end - step);
            add_products(acc, parts, &f, m_tile * BM, n_tile * BN, p, p + n, &at, lid);
            const epilogue e = EPILOGUE(bias, res, y, res_stride, y_stride);
            finish_all(&e, n == n_parts ? 0 : share_sums(&s, m_tile, share, step == begin), acc, mine, m_tile * BM, M,
                       n_tile * BN, N, &at);
        }
    }
#else
    const ulong tiles = (ulong)m_tiles * n_tiles;
    for (ulong tile = get_group_id(0); tile < tiles; tile += get_num_groups(0)) {
        const uint m0 = tile % m_tiles * BM, n0 = tile / m_tiles * BN; /* neighbours share W */
        frag_c acc[MT][NT];
        add_products(acc, parts, &f, m0, n0, 0, n_parts, &at, lid);
        epilogue e = EPILOGUE(bias, res, y, res_stride, y_stride);
#if PARTS > 1
        __local float *sums = (__local float *)parts;
        put_sums(sums + wave / WAVES * BM * BN, acc, at.wm, at.wn, at.lane);
        barrier(CLK_LOCAL_MEM_FENCE);
        finish_parts(&e, sums, m0, M, n0, N, lid);
        barrier(CLK_LOCAL_MEM_FENCE); /* of the next tile parts come there */
#else
        finish_all(&e, 0, acc, mine, m0, M, n0, N, &at);
#endif
    }
#endif
}
