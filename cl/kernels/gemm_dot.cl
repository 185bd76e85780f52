/* gemm_dot: Y = X W^T + bias + residual in products of bytes, for quantised weights in planes.
 *
 *   pass 0   X --> bytes, 32 neighbours of a row by one scale, with their sums     xq[K / 32][8][rows], scales and sums
 *   pass 1   BM x BN outputs a work-group, TM x TN of them a work-item: for each CH * 32 of K all load words of X and W
 *            to local memory, [4 of K][row], and multiply four of K by an instruction (device/dot4.clh)
 *
 * Of 32 of K (of 16, if the format's groups have so many) an output is
 *   scale(x) (scale(w) sum of products + min(w) sum(x)),
 * where the sums are exact, and added in F32 in the order of K. X loses what 127 steps of its largest of 32 leave.
 *
 * PARTS teams share the chunks of a stage, CH of them; at the end their sums are added in order, so that an output
 * depends on PARTS and the shape of W alone.
 *
 * Rows of X past M, up to a whole tile, are packed as zeros; rows of W past N repeat the last one.
 *
 * Knobs: UNROLL, fours of K in a row; BM, BN, TM, TN, multiples of 4; PARTS, which divides CH, with
 * BM / TM * (BN / TN) * PARTS = WG; those of quant/planes.clh. Local memory: CH times DOT_CHUNK_WORDS
 * (local_bytes.clh).
 */
#ifndef WG
#define WG 256
#endif
#include "common.clh"
#include "local_bytes.clh"
#include "device/dot4.clh"
#include "device/unroll.clh"
#include "epilogue.clh"
#include "quant/planes.clh"
#ifndef BM
#define BM 128
#define BN 128
#define TM 8
#define TN 8
#define CH 2
#define PARTS 1
#endif
#ifndef UNROLL
#define UNROLL 8
#endif

#define MX   (BM / TM) /* work-items along M and N */
#define NX   (BN / TN)
#define TEAM (MX * NX)
#define SUM_GROUPS (CHUNK_MIN ? GROUPS : 0) /* sums of X that a product wants of each 32 */
#if OVERLAPS
#define EACH_GROUP _Pragma("unroll 1")
#else
#define EACH_GROUP _Pragma("unroll")
#endif

/* ---- X ----------------------------------------------------------------------------------------------------------- */

/* What X becomes: words of four bytes, [K / 4][rows]; scales, [K / 32][rows]; sums of a group of W times the scale,
 * [K / W_GROUP][rows]. */
typedef struct packed_x {
    __global uint *q;
    __global float *scale, *sum;
    uint rows;
} packed_x;

static INLINE packed_x packed_at(__global uchar *scratch, uint M, uint K)
{
    packed_x p;
    p.rows = (M + BM - 1) / BM * BM;
    p.q = (__global uint *)(scratch + SCRATCH_AT);
    p.scale = (__global float *)(p.q + (ulong)p.rows * (K / 4));
    p.sum = p.scale + (ulong)p.rows * (K / 32);
    return p;
}

/* A work-item takes 32 neighbours of a row; neighbours have neighbouring rows. */
static INLINE void pack_x(packed_x to, const __global act_t *x, uint x_stride, uint M, uint K)
{
    for (ulong at = get_global_id(0); at < (ulong)to.rows * (K / 32); at += get_global_size(0)) {
        uint row = at % to.rows, chunk = at / to.rows;
        const __global act_t *from = x + (ulong)min(row, M - 1) * x_stride + chunk * 32;
        float8 v[4];
        float8 most = (float8)(0), whole = most;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[i] = row < M ? ACT_LOAD8(from, 8 * i) : (float8)(0);
            most = fmax(most, fabs(v[i]));
            whole += fabs(v[i]);
        }
        float4 m4 = fmax(most.lo, most.hi), w4 = whole.lo + whole.hi;
        float w = w4.x + w4.y + (w4.z + w4.w);
        float m = OR_INFINITY(fmax(fmax(m4.x, m4.y), fmax(m4.z, m4.w)), w);
        float scale = m / 127.0f, inverse = m > 0 ? 127.0f / m : 0;
        to.scale[(ulong)chunk * to.rows + row] = scale;
        int sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            char8 q = convert_char8_sat_rte(v[i] * inverse);
            uint a = as_uint(q.lo), b = as_uint(q.hi);
            to.q[((ulong)chunk * 8 + 2 * i) * to.rows + row] = a;
            to.q[((ulong)chunk * 8 + 2 * i + 1) * to.rows + row] = b;
            sum = dot4(b, 0x01010101u, dot4(a, 0x01010101u, sum));
            if ((i + 1) % (4 / GROUPS)) continue;
            to.sum[((ulong)chunk * GROUPS + i / (4 / GROUPS)) * to.rows + row] = scale * (float)sum;
            sum = 0;
        }
    }
}

/* ---- stages ------------------------------------------------------------------------------------------------------ */

/* In local memory, of each chunk: words of X and of W; scales of X, sums, scales and minimums of W. */
#define X_WORDS (8 * BM)
#define W_WORDS (8 * BN)
#define STAGE   DOT_CHUNK_WORDS(BM, BN, W_GROUP, CHUNK_MIN)
#define X_SCALES (X_WORDS + W_WORDS)
#define X_SUMS   (X_SCALES + BM)
#define W_SCALES (X_SUMS + SUM_GROUPS * BM)
#define W_MINS   (W_SCALES + GROUPS * BN)

#define X_LOADS ((CH * X_WORDS / 4 + WG - 1) / WG) /* uint4 a work-item */
#define N_X_FLOATS (CH * (1 + SUM_GROUPS) * BM)
#define F_LOADS ((N_X_FLOATS + WG - 1) / WG)
#define W_LOADS ((CH * BN + WG - 1) / WG) /* chunks a work-item */

typedef struct held {
    uint4 x[X_LOADS];
    float f[F_LOADS];
    chunk w[W_LOADS];
} held;

/* Scale or sum `what` of a chunk of X. */
static INLINE float x_number(const packed_x *x, uint chunk, uint what, uint row)
{
    if (what == 0) return x->scale[(ulong)chunk * x->rows + row];
    return x->sum[((ulong)chunk * GROUPS + what - 1) * x->rows + row];
}

static INLINE void fetch(held *h, const packed_x *x, const __global uchar *w, ulong row_bytes, uint m0, uint n0, uint N,
                         uint c0, uint chunks, uint lid)
{
#pragma unroll
    for (int l = 0; l < X_LOADS; l++) {
        uint at = lid + l * WG, word = at / (BM / 4), c = min(c0 + word / 8, chunks - 1);
        h->x[l] = *(const __global uint4 *)(x->q + (c * 8ul + word % 8) * x->rows + m0 + at % (BM / 4) * 4);
    }
#pragma unroll
    for (int l = 0; l < F_LOADS; l++) {
        uint at = lid + l * WG, what = at / BM % (1 + SUM_GROUPS),
             c = min(c0 + at / (BM * (1 + SUM_GROUPS)), chunks - 1);
        h->f[l] = x_number(x, c, what, m0 + at % BM);
    }
#pragma unroll
    for (int l = 0; l < W_LOADS; l++) {
        uint at = lid + l * WG;
        load_chunk(&h->w[l], w + min(n0 + at % BN, N - 1) * row_bytes, min(c0 + at / BN, chunks - 1) * 32);
    }
}

/* Chunks past the last one have a scale and sums of 0. */
static INLINE void keep(__local uint *stage, const held *h, uint c0, uint chunks, uint lid)
{
    __local float *numbers = (__local float *)stage;
#pragma unroll
    for (int l = 0; l < X_LOADS; l++) {
        uint at = lid + l * WG, word = at / (BM / 4);
        if (CH * X_WORDS / 4 % WG == 0 || at < CH * X_WORDS / 4)
            *(__local uint4 *)(stage + word / 8 * STAGE + word % 8 * BM + at % (BM / 4) * 4) = h->x[l];
    }
#pragma unroll
    for (int l = 0; l < F_LOADS; l++) {
        uint at = lid + l * WG, c = at / (BM * (1 + SUM_GROUPS)), rest = at % (BM * (1 + SUM_GROUPS));
        if (N_X_FLOATS % WG == 0 || at < N_X_FLOATS)
            numbers[c * STAGE + X_SCALES + rest] = c0 + c < chunks ? h->f[l] : 0;
    }
#pragma unroll
    for (int l = 0; l < W_LOADS; l++) {
        uint at = lid + l * WG, row = at % BN;
        if (CH * BN % WG && at >= CH * BN) continue;
        __local uint *to = stage + at / BN * STAGE + X_WORDS + row;
        __local float *scales = numbers + at / BN * STAGE + W_SCALES + row;
#pragma unroll
        for (int i = 0; i < 8; i++) to[i * BN] = chunk_word(&h->w[l], i);
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            scales[g * BN] = chunk_scale(&h->w[l], g);
            if (CHUNK_MIN) scales[(GROUPS + g) * BN] = chunk_min(&h->w[l], g);
        }
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* The T neighbours by four of a row of local memory that work-item t of n has. */
#define TAKE(type, out, T, from, t, n)                                                             \
    _Pragma("unroll") for (int i_ = 0; i_ < T / 4; i_++) {                                         \
        type##4 v_ = *(const __local type##4 *)((from) + (i_ * (n) + (t)) * 4);                    \
        out[4 * i_] = v_.x, out[4 * i_ + 1] = v_.y, out[4 * i_ + 2] = v_.z, out[4 * i_ + 3] = v_.w; \
    }

/* Adds the products of a chunk. */
static INLINE void multiply(float acc[TM][TN], const __local uint *stage, uint tx, uint ty)
{
    const __local float *numbers = (const __local float *)stage;
    EACH_GROUP
    for (int g = 0; g < GROUPS; g++) {
        int sum[TM][TN];
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) sum[i][j] = 0;
#pragma unroll UNROLL
        for (int k = g * 8 / GROUPS; k < (g + 1) * 8 / GROUPS; k++) {
            uint a[TM], b[TN];
            TAKE(uint, a, TM, stage + k * BM, ty, MX)
            TAKE(uint, b, TN, stage + X_WORDS + k * BN, tx, NX)
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++) sum[i][j] = dot4(a[i], b[j], sum[i][j]);
        }
        float xs[TM], ws[TN];
        TAKE(float, xs, TM, numbers + X_SCALES, ty, MX)
        TAKE(float, ws, TN, numbers + W_SCALES + g * BN, tx, NX)
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) acc[i][j] = MAD(xs[i] * ws[j], (float)sum[i][j], acc[i][j]);
#if CHUNK_MIN
        float sx[TM], wm[TN];
        TAKE(float, sx, TM, numbers + X_SUMS + g * BM, ty, MX)
        TAKE(float, wm, TN, numbers + W_MINS + g * BN, tx, NX)
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) acc[i][j] = MAD(sx[i], wm[j], acc[i][j]);
#endif
    }
}

#if PARTS > 1
#if BM * BN > CH * STAGE
#error the sums of a team do not fit the stage
#endif
/* Adds up what the teams have, to the first of them. */
static INLINE void add_parts(__local float *room, float acc[TM][TN], uint lid)
{
    __local float *mine = room + lid % TEAM;
    for (uint p = 1; p < PARTS; p++) {
        if (lid / TEAM == p)
#pragma unroll
            for (int i = 0; i < TM * TN; i++) mine[i * TEAM] = acc[i / TN][i % TN];
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lid / TEAM == 0)
#pragma unroll
            for (int i = 0; i < TM * TN; i++) acc[i / TN][i % TN] += mine[i * TEAM];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
#endif

/* What a product reads. */
typedef struct factors {
    packed_x x;
    const __global uchar *w;
    uint M, N, chunks;
    ulong w_row_bytes;
} factors;

/* The products of chunks c0 to end - 1, the first of a stage, for the tile at (m0, n0). All work-items call together. */
static INLINE void add_products(float acc[TM][TN], __local uint *stage, const factors *f, uint m0, uint n0, uint c0,
                                uint end, uint tx, uint ty, uint team, uint lid)
{
    held h;
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) acc[i][j] = 0;
    fetch(&h, &f->x, f->w, f->w_row_bytes, m0, n0, f->N, c0, f->chunks, lid);
    for (; c0 < end; c0 += CH) {
        keep(stage, &h, c0, f->chunks, lid);
        barrier(CLK_LOCAL_MEM_FENCE);
        fetch(&h, &f->x, f->w, f->w_row_bytes, m0, n0, f->N, min(c0 + CH, f->chunks - 1), f->chunks, lid);
        for (uint c = team; c < CH; c += PARTS) multiply(acc, stage + c * STAGE, tx, ty);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

/* Row or column i of a work-item's outputs, whose fours lie n fours apart. */
#define PLACE(i, t, n) (((i) / 4 * (n) + (t)) * 4 + (i) % 4)

static INLINE void finish_all(const epilogue *e, float acc[TM][TN], uint m0, uint M, uint n0, uint N, uint tx, uint ty)
{
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) {
            uint m = m0 + PLACE(i, ty, MX), col = n0 + PLACE(j, tx, NX);
            if (m < M && col < N) finish(e, m, col, acc[i][j]);
        }
}

KERNEL void gemm_dot(IN(x), IN(w), IN(bias), IN(res), OUT_ACT(y), uint M, uint N, uint K, uint x_stride,
                     ulong w_row_bytes, uint res_stride, uint y_stride, __global uchar *scratch, uint pass)
{
    __local uint stage[CH * STAGE] __attribute__((aligned(16)));
    const factors f = {packed_at(scratch, M, K), IN_AT(uchar, w), M, N, K / 32, w_row_bytes};
    if (pass == 0) {
        pack_x(f.x, IN_AT(act_t, x), x_stride, M, K);
        return;
    }
    uint lid = get_local_id(0), tx = lid % NX, ty = lid % TEAM / NX, team = lid / TEAM;
    uint m_tiles = (M + BM - 1) / BM, n_tiles = (N + BN - 1) / BN;
    for (uint tile = get_group_id(0); tile < m_tiles * n_tiles; tile += get_num_groups(0)) {
        uint m0 = tile % m_tiles * BM, n0 = tile / m_tiles * BN; /* neighbours share W */
        float acc[TM][TN];
        add_products(acc, stage, &f, m0, n0, 0, f.chunks, tx, ty, team, lid);
#if PARTS > 1
        add_parts((__local float *)stage, acc, lid);
#endif
        const epilogue e = EPILOGUE(bias, res, y, res_stride, y_stride);
        if (team == 0) finish_all(&e, acc, m0, M, n0, N, tx, ty);
        barrier(CLK_LOCAL_MEM_FENCE); /* the stage is written again */
    }
}
