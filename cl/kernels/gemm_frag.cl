/* gemm_frag: Y = X W^T + bias + residual on NVIDIA's matrix units (mma.sync m16n8k16), W MMA-fragment-major (layout.c).
 * BN outputs of each of BM rows of X a work-group; a warp multiplies WN rows of W with WM rows of X.
 *
 *   W, X: device memory --> local memory (cp.async), in parts of PK of K; STAGES parts are there or on their way
 *             |  for each 16 of K, one ahead: W by loads of 16 bytes a lane, X by ldmatrix
 *             v
 *         registers, operands A and B --> sums --> local memory, a warp by itself --> whole lines of Y
 *
 * A part of W is a row of whole tiles (fragments.clh), which stay quantised until they are operands; of X, rows of PK
 * elements whose 16-byte chunks are swizzled so that the 8 rows which ldmatrix reads at once lie in 8 different groups
 * of banks. Local memory is the limit: warps of 64 x 64 read 128 bytes a product, smaller ones more.
 *
 * SILU: Y = silu(gate) * up. Half of the blocks of a warp are gate, and half the same of up, so that a lane has both.
 *
 * Knobs: BM, BN, WM, WN with (BM / WM) * (BN / WN) * 32 = WG; WM a multiple of 16, WN 16, 32, 64 or 128. PK 32 or 64,
 * of which K is a multiple. STAGES from 2 on. Y_FOURS 1: columns, strides and offsets of what is added and written are
 * multiples of four. Rows of X are F16 aligned to 16 bytes. With SILU WN is 32 or more, the rows of W are a multiple of
 * 32, and nothing is added. With quantised weights PK is 64. GROUPED 1: experts_many.clh; the rows of an expert are a
 * multiple of 16, and X has less than 2^31 elements. Parts: mma.clh, fragments.clh, epilogue.clh, experts_many.clh.
 */
#ifndef WG
#define WG 256
#endif
#include "common.clh"
#include "local_bytes.clh"
#include "nvidia.clh"
#include "epilogue.clh"
#ifndef BM
#define BM 128
#define BN 256
#define WM 64
#define WN 64
#define PK 64
#define STAGES 3
#define Y_FOURS 1
#endif

#ifndef SILU
#define SILU 0
#endif

#include "fragments.clh"
#include "experts_many.clh"

#define STEPS     (PK / 16) /* of a part */
#define W_PART    (PK / W_K * W_BYTES) /* bytes of 16 rows of W in a part */
#define ROW_BYTES (PK * 2)  /* of X in a part */
#define CHUNKS    (ROW_BYTES / 16)
#define X_BYTES   (BM * ROW_BYTES)
#define PART      FRAG_STAGE_BYTES(BM, BN, PK, W_PART)
#define A_TILES   (WN / 16) /* W is operand A, X is B */
#define B_TILES   (WM / 8)
#define YB        (A_TILES >> SILU) /* blocks of Y that a warp has */
#define YN        (WN >> SILU)
#define X_COPIES  (BM * CHUNKS / WG) /* of 16 bytes, of each work-item for a part */
#define W_CHUNKS  (BN / 16 * W_PART / 16)
#define W_COPIES  ((W_CHUNKS + WG - 1) / WG)
#include "mma.clh"

/* What a warp leaves of its sums at a time: 16 rows of Y, so far apart that the lanes of a store hit 32 banks. */
#define PITCH ((YN + 4) * 4)
#define SUMS  (WG / 32 * 16 * PITCH)

/* ---- parts of W and X to local memory ------------------------------------------------------------------------- */

/* What this work-item copies of each part, and where to. */
typedef struct copier {
    const __global uchar *x_from, *w_from;
    uint x_to, w_to, x_end;
    /* From the first copy; bytes: 0 for rows past the last. */
    uint x_skip[X_COPIES], x_bytes[X_COPIES], w_skip[W_COPIES];
    bool w_last; /* does this work-item have a last copy of W? */
} copier;

/* Block b of a tile whose blocks of Y begin at y0; with SiLU gate, or behind the rest of gate up. Behind the last block
 * it comes again. */
uint w_block(uint b, uint y0, uint last)
{
#if SILU
    return min(y0 + b / A_TILES * YB + b % YB, last) + (b % A_TILES < YB ? 0 : last + 1);
#else
    return min(y0 + b, last);
#endif
}

static INLINE void place_copies(copier *c, const __global half *x, const __global uchar *w, uint base, uint m0, uint y0,
                                uint last, uint M, uint K, uint x_stride, uint lid OF_ROWS)
{
    uint row = lid / CHUNKS, chunk = lid % CHUNKS;
    c->x_from = (const __global uchar *)(x + (GROUPED ? 0 : (ulong)m0 * x_stride) + chunk * 8);
    c->w_from = w + (ulong)y0 * (K / W_K) * W_BYTES;
    c->x_to = base + chunk_at(row, chunk);
    c->x_end = c->x_to + STAGES * PART;
    c->w_to = base + X_BYTES + lid * 16;
    c->w_last = lid + (W_COPIES - 1) * WG < W_CHUNKS;
#pragma unroll
    for (int i = 0; i < X_COPIES; i++) {
        uint r = row + i * (WG / CHUNKS);
        bool in = m0 + r < M;
        c->x_skip[i] = in ? ROW(r) * 2 : 0;
        c->x_bytes[i] = in ? 16 : 0;
    }
#pragma unroll
    for (int i = 0; i < W_COPIES; i++) {
        uint at = min(lid + i * WG, W_CHUNKS - 1u);
        c->w_skip[i] = (w_block(at / (W_PART / 16), y0, last) - y0) * (K / W_K) * W_BYTES + at % (W_PART / 16) * 16;
    }
}

/* Begins to copy the next part. */
static INLINE void fetch(copier *c)
{
#pragma unroll
    for (int i = 0; i < X_COPIES; i++)
        COPY16(c->x_to + i * (WG / CHUNKS) * ROW_BYTES, c->x_from + c->x_skip[i], c->x_bytes[i]);
#pragma unroll
    for (int i = 0; i < W_COPIES; i++)
        if (W_CHUNKS % WG == 0 || i + 1 < W_COPIES || c->w_last)
            COPY16(c->w_to + i * WG * 16, c->w_from + c->w_skip[i], 16u);
    c->x_from += ROW_BYTES, c->w_from += W_PART, c->x_to += PART, c->w_to += PART;
    if (c->x_to >= c->x_end) c->x_to -= STAGES * PART, c->w_to -= STAGES * PART;
}

/* ---- products -------------------------------------------------------------------------------------------------- */

/* What a warp has of W: all of a part where it is quantised, else one step. */
typedef w_tile held_t[A_TILES];

/* Operands of step k of a part: w_at and x_at are this lane's places of the part. */
static INLINE void load(held_t w, uint4 a[A_TILES], uint b[B_TILES][2], uint w_at, uint x_at, uint k, uint lane)
{
#pragma unroll
    for (int r = 0; r < A_TILES; r++) {
        if (k % W_STEPS == 0) W_READ(&w[r], w_at + r * W_PART + k / W_STEPS * W_BYTES, lane, LOCAL_WORDS);
        a[r] = w_fragment(&w[r], k % W_STEPS);
    }
#pragma unroll
    for (int j = 0; j < B_TILES; j += 2)
        LDMATRIX("", b[j][0], b[j][1], b[j + 1][0], b[j + 1][1], x_at + j * 8 * ROW_BYTES);
}

/* There and back over X: neighbours share an operand, which registers near the unit keep. */
static INLINE void multiply(float acc[A_TILES][B_TILES][4], const uint4 a[A_TILES], uint b[B_TILES][2])
{
#pragma unroll
    for (int r = 0; r < A_TILES; r++)
#pragma unroll
        for (int i = 0; i < B_TILES; i++) {
            int j = r % 2 ? B_TILES - 1 - i : i;
            MMA(acc[r][j], a[r].x, a[r].y, a[r].z, a[r].w, b[j][0], b[j][1]);
        }
}

/* All parts of a tile: the copies of the first are begun here, and the operands of each step are loaded while the one
 * before is multiplied. w_at, x_at: what this lane loads of a part. */
static INLINE void multiply_tile(float acc[A_TILES][B_TILES][4], copier *copy, uint base, uint w_at,
                                 const uint x_at[STEPS], uint parts, uint lane)
{
    held_t w;
    uint4 a[2][A_TILES];
    uint b[2][B_TILES][2];
    for (uint p = 0; p < STAGES; p++) {
        if (p < parts) fetch(copy);
        COMMIT();
    }
    WAIT(STAGES - 1);
    barrier(CLK_LOCAL_MEM_FENCE);
    uint here = base;
    load(w, a[0], b[0], here + w_at, here + x_at[0], 0, lane);
    for (uint p = 0; p < parts; p++) {
#pragma unroll
        for (int k = 0; k < STEPS - 1; k++) {
            load(w, a[1 - k % 2], b[1 - k % 2], here + w_at, here + x_at[k + 1], k + 1, lane);
            multiply(acc, a[k % 2], b[k % 2]);
        }
        WAIT(STAGES - 2);
        barrier(CLK_LOCAL_MEM_FENCE); /* the next part is there, and nobody reads any more what fetch overwrites */
        here = here + PART == base + STAGES * PART ? base : here + PART;
        load(w, a[0], b[0], here + w_at, here + x_at[0], 0,
             lane); /* after the last part anything, which is not multiplied */
        if (p + STAGES < parts) fetch(copy);
        COMMIT();
        multiply(acc, a[1], b[1]);
    }
    WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE); /* sums overwrite the parts */
}

/* ---- behind the products ----------------------------------------------------------------------------------------- */

#if SILU
static INLINE void silu(float acc[A_TILES][B_TILES][4])
{
#pragma unroll
    for (int r = 0; r < YB; r++)
#pragma unroll
        for (int j = 0; j < B_TILES; j++)
#pragma unroll
            for (int v = 0; v < 4; v++) acc[r][j][v] = SILU_MUL(acc[r][j][v], acc[r + YB][j][v]);
}
#endif

/* 16 rows of Y, from tile j of 8 on, to this warp's local memory. */
static INLINE void store_rows(uint to, float acc[A_TILES][B_TILES][4], int j, uint lane)
{
#pragma unroll
    for (int r = 0; r < YB; r++)
#pragma unroll
        for (int v = 0; v < 8; v++) {
            uint m = v / 4 * 8 + (lane & 3) * 2 + v % 2, n = r * 16 + (lane >> 2) + v % 4 / 2 * 8;
            STORE_LOCAL(to + m * PITCH + n * 4, as_uint(acc[r][j + v / 4][v % 4]));
        }
}

/* A warp's sums to whole lines of Y by way of `mine` in local memory; m0, n0: its first outputs. */
static INLINE void finish_all(const epilogue *e, float acc[A_TILES][B_TILES][4], uint mine, uint m0, uint M, uint n0,
                              uint N, uint lane OF_ROWS)
{
#pragma unroll
    for (int j = 0; j < B_TILES; j += 2) {
        store_rows(mine, acc, j, lane);
        SYNCWARP();
#pragma unroll
        for (int i = 0; i < YN / 8; i++) {
            uint at = i * 128 + lane * 4, m = m0 + j * 8 + at / YN, col = n0 + at % YN;
            uint4 bits;
            LOAD_LOCAL4(bits, mine + at / YN * PITCH + at % YN * 4);
            if (m < M && col < N) finish_columns(e, m, col, N, as_float4(bits) THESE_ROWS);
        }
        SYNCWARP(); /* the next rows overwrite these */
    }
}

KERNEL void gemm_frag(IN(x), IN(w), IN(bias), IN(res), OUT_ACT(y), uint M, uint N, uint K, uint x_stride,
                      ulong w_row_bytes, uint res_stride, uint y_stride EXPERT_ARGS)
{
    LOCAL_ROOM(base, STAGES * PART > SUMS ? STAGES * PART : SUMS)
    uint lid = get_local_id(0), lane = lid & 31, warp = lid >> 5;
    uint wm = warp / (BN / WN) * WM, wn = warp % (BN / WN) * WN; /* of this warp in the tile */
#if GROUPED
    __local expert_room expert_rows;
    const experts g = EXPERTS_OF_ARGS;
    count_pairs(&expert_rows, &g, lid);
    uint m_tiles = count_tiles(&expert_rows, E);
#else
    uint m_tiles = (M + BM - 1) / BM;
#endif
    uint n_tiles = (N + (BN >> SILU) - 1) / (BN >> SILU), last = (N + 15) / 16 - 1, parts = K / PK;
    uint w_at = X_BYTES + wn / 16 * W_PART + W_PLACE(lane), x_at[STEPS];
#pragma unroll
    for (int k = 0; k < STEPS; k++) x_at[k] = chunk_at(wm + b_row(lane), b_chunk(lane) + k * 2);

    for (uint tile = get_group_id(0); tile < m_tiles * n_tiles; tile += get_num_groups(0)) {
        uint n0 = tile / m_tiles * (BN >> SILU), y0 = n0 / 16; /* neighbours share W */
        const __global uchar *w = IN_AT(uchar, w);
#if GROUPED
        const rows_t found = find_rows(&expert_rows, &g, tile % m_tiles, lid), *rows = &found;
        const uint m0 = 0;
        M = rows->n;
        w += w_row_of(&g, rows->expert) / 16 * (K / W_K) * W_BYTES;
#else
        uint m0 = tile % m_tiles * BM;
#endif
        float acc[A_TILES][B_TILES][4];
        copier copy;
        clear(acc);
        place_copies(&copy, IN_AT(half, x), w, base, m0, y0, last, M, K, x_stride, lid THESE_ROWS);
        multiply_tile(acc, &copy, base, w_at, x_at, parts, lane);
#if SILU
        silu(acc);
#endif
        epilogue e = EPILOGUE(bias, res, y, res_stride, y_stride);
        finish_all(&e, acc, base + warp * 16 * PITCH, m0 + wm, M, n0 + (wn >> SILU), N, lane THESE_ROWS);
        barrier(CLK_LOCAL_MEM_FENCE); /* the next tile overwrites all of it */
    }
}
