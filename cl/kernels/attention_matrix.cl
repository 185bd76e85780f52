/* attention_matrix: softmax(q . k * scale) v over paged keys on any vendor's matrix units (matrix.clh), F16 in,
 * F32 sums: a block of rows a work-group (attention/blocks.clh), which for decoding is one row's query heads of a KV
 * head, padded to the unit's rows. WC waves share MMA_M packed rows: each has a part of their scores, by keys, and a
 * part of their sums, by columns.
 *
 *   page table --> TK keys [TK][D] and values, turned, [D][TK] in local memory, as F16
 *   S = Q K^T               Q stays in registers
 *   P = 2^(S - maximum)     to local memory, as F16: S's layout as a result is not P's as an operand
 *   O += P V                in registers
 *
 * Synchronous: the largest scores of a row meet in local memory, and all wait for them, before weights are known; a
 * running maximum is raised only past 2^RESCALE_THRESHOLD (attention/softmax.clh). ASYNC 1: scores become weights at
 * once, 2^(score - base), with half as many barriers; a row leaves where a score is MOST above base, and sees no more
 * keys from the next tile on; or at the end, where the largest is not above `least`. Rows that left are counted and
 * computed again in the synchronous way, without the others, which gives the bits of ASYNC 0.
 *
 * Keys that no row of the block sees become zeros, so that their slots may hold anything; one that only other rows see
 * weighs 0. Tiles begin at multiples of TK from key 0, and what a tile adds to a row that sees none of its keys is 0: a
 * row's bits depend neither on the other rows nor on R.
 *
 * SPLIT 1: for few rows with many keys: a work-group takes only one chunk of a row's keys, and a second launch merges
 * them (attention/chunk_sums.clh). Those are other bits than SPLIT 0 gives; they do not depend on the other rows
 * either. Not with ASYNC.
 *
 * Knobs: D (head size, a multiple of 16), R (packed rows), TK (keys of a tile), LANES, WC with WG = R / MMA_M * WC *
 * LANES; TK / WC and D / WC are multiples of MMA_N, TK of 16; MOST with ASYNC; CHUNK (a multiple of TK), GROWS with
 * SPLIT. Rows of q are F16 aligned to 16 bytes. Local memory: ATTENTION_MATRIX_LOCAL_BYTES (local_bytes.clh).
 */
#ifndef ACT
#define ACT 16
#endif
#ifndef WG
#define WG 128
#endif
#include "common.clh"
#include "matrix.clh"
#include "attention/mask.clh"
#include "attention/merge.clh"
#include "attention/softmax.clh"
#include "kv/f16.clh"
#ifndef D
#define D  64
#define R  64
#define TK 32
#define WC 1
#endif
#ifndef ASYNC
#define ASYNC 0
#endif
#ifndef SPLIT
#define SPLIT 0
#endif

#define LOG2E     1.44269504f
#define N_SUMS    (MMA_M * MMA_N / LANES)
#define KEYS      (TK / WC) /* of a tile, and columns, that are a wave's */
#define COLUMNS   (D / WC)
#define KEY_TILES (KEYS / MMA_N)
#define SUM_TILES (COLUMNS / MMA_N)
#define PARTS     (WC * MMA_N)     /* partial results of a row: one of each of its lanes */
#define K_PITCH   MATRIX_PITCH(D)  /* of Q as well */
#define P_PITCH   MATRIX_PITCH(TK) /* of values as well */

typedef struct local_room {
    __local ushort *tiles, *p;              /* keys, then values; weights */
    __local ulong *at;
    /* row_max: R running maxima before the tile, R with it; flip tells which is which. */
    __local float *part, *row_max, *factor;
    __local ulong *to;                      /* where results of packed rows go */
    __local sight *seen;                    /* of the packed rows, in a run */
#if ASYNC
    __local uint *left, *some_left;         /* which packed rows left the range; did any? */
#endif
} local_room;
#define TOO_LARGE MOST
#include "attention/blocks.clh"
#if SPLIT
#include "attention/chunk_sums.clh"
#endif

/* Which packed rows, keys and columns this wave begins at. */
typedef struct wave_t {
    uint row, key, column, lane;
} wave_t;

/* What a lane adds up: columns of its rows, of each row weights, and the largest score (ASYNC). */
typedef struct sums {
    frag_c acc[SUM_TILES];
    float sum[N_SUMS], most[N_SUMS];
} sums;

#define EACH_SUM(v)  _Pragma("unroll") for (int v = 0; v < N_SUMS; v++)
#define ROW_OF(w, v) ((w)->row + C_ROW((w)->lane, v))

/* ---- to local memory --------------------------------------------------------------------------------------------- */

/* The packed rows of Q; padding is zeros. */
static void put_q(__local ushort *to, const __global half *q, uint q_stride, const call_t *c, const block *b)
{
    for (uint i = get_local_id(0); i < R * (D / 8); i += WG) {
        uint r = i / (D / 8), d = i % (D / 8) * 8, m = b->m0 + r / c->HB, h = b->hb * c->HB + r % c->HB;
        bool in = m < b->m_end && h < b->heads;
        const __global half *from = q + (in ? (ulong)m * q_stride + (b->kvh * b->heads + h) * D : 0) + d;
        put_a(to, K_PITCH, r, d, in ? *(const __global uint4 *)from : (uint4)(0));
    }
}

/* Where the keys k0 to k0 + TK - 1 of a sequence begin in the pools; those from end on, and those that no row sees:
 * NONE. */
static void find_tile(const local_room *l, const call_t *c, const __global int *page, int k0, int end, uint kvh)
{
    for (int j = get_local_id(0), key; j < TK; j += WG) {
        key = k0 + j;
        l->at[j] = key < end && is_seen(l, key) ? place_of(c, page, key, kvh) : NONE;
    }
}

static void load_keys(const local_room *l, const __global uchar *pool)
{
    for (uint i = get_local_id(0); i < TK * (D / 8); i += WG) {
        uint j = i / (D / 8), d = i % (D / 8) * 8;
        put_b(l->tiles, K_PITCH, j, d, l->at[j] == NONE ? (uint4)(0) : kv_read8(pool, l->at[j] + d));
    }
}

/* Columns d and d + 1 of eight keys at a time. */
static void load_values(const local_room *l, const __global uchar *pool)
{
    __local ushort *to = l->tiles + ATTENTION_KEYS(D, TK);
    for (uint i = get_local_id(0); i < TK / 8 * (D / 2); i += WG) {
        uint j = i / (D / 2) * 8, d = i % (D / 2) * 2, w[8];
#pragma unroll
        for (int k = 0; k < 8; k++) w[k] = l->at[j + k] == NONE ? 0 : kv_halves2(pool, l->at[j + k] + d);
        uint4 a = (uint4)(w[0], w[2], w[4], w[6]), b = (uint4)(w[1], w[3], w[5], w[7]);
        put_b(to, P_PITCH, d, j, (a & 0xFFFF) | b << 16);
        put_b(to, P_PITCH, d + 1, j, a >> 16 | (b & 0xFFFF0000));
    }
}

/* A number of each of the lane's rows. */
static INLINE void put_parts(const local_room *l, const float x[N_SUMS], const wave_t *w)
{
    EACH_SUM(v) l->part[ROW_OF(w, v) * PARTS + w->key / KEYS * MMA_N + C_COL(w->lane, v)] = x[v];
}

/* The largest of those of a row. */
static float largest_part(const local_room *l, uint r)
{
    float t = -INFINITY;
    for (uint i = 0; i < PARTS; i++) t = fmax(t, l->part[r * PARTS + i]);
    return t;
}

/* ---- a tile of keys ---------------------------------------------------------------------------------------------- */

static INLINE void multiply_keys(frag_c x[KEY_TILES], const frag_a q[D / 16], const local_room *l, const wave_t *w)
{
#pragma unroll
    for (int n = 0; n < KEY_TILES; n++) x[n] = (frag_c)(0);
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
        for (int n = 0; n < KEY_TILES; n++)
            x[n] = mma(q[k], load_b(l->tiles, K_PITCH, w->key + n * MMA_N, 16 * k, w->lane), x[n]);
}

/* Scores in powers of two, from products; of each row the lane's largest. k0: the tile's first key. */
static INLINE void score(float most[N_SUMS], frag_c x[KEY_TILES], const local_room *l, const call_t *c, int k0,
                         const wave_t *w)
{
    EACH_SUM(v)
    {
        const sight seen = l->seen[ROW_OF(w, v)];
        most[v] = -INFINITY;
#pragma unroll
        for (int n = 0; n < KEY_TILES; n++) {
            int key = k0 + (int)(w->key + n * MMA_N + C_COL(w->lane, v));
            x[n][v] = sees(seen, key) ? capped(&c->mask, x[n][v] * c->scale) * LOG2E : -INFINITY;
            most[v] = fmax(most[v], x[n][v]);
        }
    }
}

/* Raises the maxima of rows that a score of the tile exceeds by the threshold. */
static void raise(const local_room *l, int flip)
{
    uint r = get_local_id(0);
    if (r < R) l->row_max[(1 - flip) * R + r] = raised(largest_part(l, r), l->row_max[flip * R + r]);
}

static INLINE void rescale(sums *s, const local_room *l, int flip, const wave_t *w)
{
    EACH_SUM(v)
    {
        uint r = ROW_OF(w, v);
        float alpha = exp2(l->row_max[flip * R + r] - l->row_max[(1 - flip) * R + r]);
        if (alpha == 1) continue;
        s->sum[v] *= alpha;
#pragma unroll
        for (int n = 0; n < SUM_TILES; n++) s->acc[n][v] *= alpha;
    }
}

/* Weights relative to the maximum of each row, or to base. */
static INLINE void weigh(const bool online, sums *s, const frag_c x[KEY_TILES], const local_room *l, const call_t *c,
                         int flip, const wave_t *w)
{
    EACH_SUM(v)
    {
        uint r = ROW_OF(w, v);
        float above = online ? l->row_max[(1 - flip) * R + r] : c->base;
#pragma unroll
        for (int n = 0; n < KEY_TILES; n++) {
            float p = exp2(x[n][v] - above);
            s->sum[v] += p;
            put_a_one(l->p, P_PITCH, r, w->key + n * MMA_N + C_COL(w->lane, v), p);
        }
    }
}

#if ASYNC
/* Which rows leave by the lane's scores of a tile. */
static INLINE void note_most(sums *s, const float most[N_SUMS], const local_room *l, const call_t *c, const wave_t *w)
{
    EACH_SUM(v)
    {
        s->most[v] = fmax(s->most[v], most[v]);
        if (most[v] - c->base >= TOO_LARGE) l->left[ROW_OF(w, v)] = 1, *l->some_left = 1;
    }
}
#else
#define note_most(s, most, l, c, w)
#endif

/* alone: all rows of the block are of one sequence. Else those of others keep their sums, for what keys hold that they
 * do not see may be NaN, also times 0. */
static INLINE void add_values(sums *s, const local_room *l, const wave_t *w, bool alone)
{
    frag_a p[TK / 16];
#pragma unroll
    for (int k = 0; k < TK / 16; k++) p[k] = load_a(l->p, P_PITCH, w->row, 16 * k, w->lane);
#pragma unroll
    for (int n = 0; n < SUM_TILES; n++) {
        frag_c sum = s->acc[n];
#pragma unroll
        for (int k = 0; k < TK / 16; k++)
            sum = mma(p[k], load_b(l->tiles + ATTENTION_KEYS(D, TK), P_PITCH, w->column + n * MMA_N, 16 * k, w->lane),
                      sum);
        if (alone) s->acc[n] = sum;
        else EACH_SUM(v) s->acc[n][v] = l->seen[ROW_OF(w, v)].last >= 0 ? sum[v] : s->acc[n][v];
    }
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static INLINE void clear_sums(sums *s)
{
#pragma unroll
    for (int n = 0; n < SUM_TILES; n++) s->acc[n] = (frag_c)(0);
    EACH_SUM(v) s->sum[v] = 0, s->most[v] = -INFINITY;
}

/* A tile that is in local memory, of which the next one's place is found meanwhile. Nobody waits for maxima but with
 * online. */
static INLINE void attend_tile(const bool online, sums *s, const frag_a q[D / 16], const local_room *l, const call_t *c,
                               const block *b, const __global int *page, int k0, int next, int end, int flip,
                               bool alone, const wave_t *w)
{
    frag_c x[KEY_TILES];
    float most[N_SUMS];
    multiply_keys(x, q, l, w);
    score(most, x, l, c, k0, w);
    if (online) {
        put_parts(l, most, w);
        barrier(CLK_LOCAL_MEM_FENCE);
        raise(l, flip);
        barrier(CLK_LOCAL_MEM_FENCE);
        rescale(s, l, flip, w);
    } else {
        note_most(s, most, l, c, w);
    }
    weigh(online, s, x, l, c, flip, w);
    find_tile(l, c, page, next, end, b->kvh);
    barrier(CLK_LOCAL_MEM_FENCE);
    add_values(s, l, w, alone);
    if (!online) stop_rows(l);
}

/* All keys of a block, by a running maximum or relative to base; left: only for rows that left. Returns which half of
 * row_max has the maxima. */
static INLINE int attend(const bool online, bool left, sums *s, const frag_a q[D / 16], const local_room *l,
                         const call_t *c, const block *b, const wave_t *w)
{
    int flip = 0;
    clear_sums(s);
    if (get_local_id(0) < R) l->row_max[get_local_id(0)] = NO_MAX;
    for (uint m = b->m0; m < b->m_end;) { /* runs of rows of one sequence */
        const __global int *page = c->pages + c->indptr[c->seq[m]];
        const uint first = m;
        sight any;
        barrier(CLK_LOCAL_MEM_FENCE); /* all know where the run before ended */
        m = look_at_run(&any, l, c, b, left, m);
        const bool alone = first == b->m0 && m == b->m_end;
        int k0 = next_seen(any, b->begin, TK), end = min(any.last + 1, b->stop);
        barrier(CLK_LOCAL_MEM_FENCE);
        find_tile(l, c, page, k0, end, b->kvh);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int next; k0 < end; k0 = next) {
            next = next_seen(any, k0 + TK, TK);
            load_keys(l, c->kp);
            load_values(l, c->vp);
            barrier(CLK_LOCAL_MEM_FENCE);
            attend_tile(online, s, q, l, c, b, page, k0, next, end, flip, alone, w);
            barrier(CLK_LOCAL_MEM_FENCE); /* tiles, weights and maxima are written again */
            if (online) flip = 1 - flip;
            else end = end_of_rows(l, end);
        }
    }
    return flip;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* What a row's weights are together, behind put_parts. */
static float sum_of_parts(const local_room *l, uint r)
{
    float sum = 0;
    for (uint i = 0; i < PARTS; i++) sum += l->part[r * PARTS + i];
    return sum;
}

static INLINE void write_rows(const sums *s, const local_room *l, const wave_t *w, OUT_ACT(o))
{
    EACH_SUM(v)
    {
        ulong to = l->to[ROW_OF(w, v)];
        float factor = l->factor[ROW_OF(w, v)];
        if (to == NONE) continue;
#pragma unroll
        for (int n = 0; n < SUM_TILES; n++) STORE(o, to + w->column + n * MMA_N + C_COL(w->lane, v), s->acc[n][v] * factor)
    }
}

#if !SPLIT
/* What a row's sums are multiplied by, behind put_parts, and where they go: those of the rows that left, or of the
 * others; NONE: nowhere. Found once for all of a row's lanes, which would keep what they found through the loop over
 * keys. */
static void find_result(const bool online, const local_room *l, const call_t *c, const block *b, bool left, int flip,
                        uint o_stride)
{
    uint r = get_local_id(0), m = b->m0 + r / c->HB, h = b->hb * c->HB + r % c->HB, head = b->kvh * b->heads + h;
    if (r >= R) return;
    l->to[r] = NONE;
    if (m >= b->m_end || h >= b->heads || IS_LEFT(l, r) != left) return;
    float sum = with_sink(&c->mask, sum_of_parts(l, r), NATURAL(online ? l->row_max[flip * R + r] : c->base), head);
    l->factor[r] = sum == 0 ? 0 : 1 / sum;
    l->to[r] = (ulong)m * o_stride + head * D;
}

static INLINE void finish(const bool online, const sums *s, const local_room *l, const call_t *c, const block *b,
                          bool left, int flip, const wave_t *w, OUT_ACT(o), uint o_stride)
{
    put_parts(l, s->sum, w);
    barrier(CLK_LOCAL_MEM_FENCE);
    find_result(online, l, c, b, left, flip, o_stride);
    barrier(CLK_LOCAL_MEM_FENCE);
    write_rows(s, l, w, o_base, o_off, o_half);
}

#if ASYNC
/* Which rows are to be computed again. */
static INLINE void judge_rows(const sums *s, const local_room *l, const call_t *c, const block *b, const wave_t *w)
{
    uint r = get_local_id(0);
    put_parts(l, s->most, w);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (r < R) judge_row(l, c, b, r, largest_part(l, r));
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* A block by the given maximum; then those of its rows that it does not suit by a running one. */
static INLINE void attend_twice(const frag_a q[D / 16], const local_room *l, const call_t *c, const block *b,
                                const wave_t *w, OUT_ACT(o), uint o_stride, IN(count))
{
    sums s;
    clear_left(l);
    attend(false, false, &s, q, l, c, b, w);
    judge_rows(&s, l, c, b, w);
    finish(false, &s, l, c, b, false, 0, w, o_base, o_off, o_half, o_stride);
    if (!*l->some_left) return;
    count_left(l, count_base, count_off);
    barrier(CLK_LOCAL_MEM_FENCE); /* what is in local memory is written again */
    int flip = attend(true, true, &s, q, l, c, b, w);
    finish(true, &s, l, c, b, true, flip, w, o_base, o_off, o_half, o_stride);
}
#endif
#endif

#if SPLIT
/* ---- chunks ------------------------------------------------------------------------------------------------------ */

/* Where the sums of a packed row's chunk go, behind put_parts, and beside them their total and maximum: of rows that
 * see some key of it. */
static void find_partial(const local_room *l, const call_t *c, const block *b, int flip, __global float *scratch)
{
    uint r = get_local_id(0), m = b->m0 + r / c->HB, head = b->kvh * b->heads + b->hb * c->HB + r % c->HB;
    if (r >= R) return;
    l->to[r] = NONE;
    if (!sees_chunk(c, b, r)) return;
    __global float *partial = partial_of(scratch, (ulong)m * c->Hq + head, c->chunks, b->chunk);
    partial[D] = sum_of_parts(l, r);
    partial[D + 1] = l->row_max[flip * R + r];
    l->factor[r] = 1;
    l->to[r] = partial - scratch;
}

/* A chunk of a block to the scratch buffer. */
static INLINE void attend_chunk(const frag_a q[D / 16], const local_room *l, const call_t *c, const block *b,
                                const wave_t *w, __global float *scratch)
{
    sums s;
    int flip = attend(true, false, &s, q, l, c, b, w);
    put_parts(l, s.sum, w);
    barrier(CLK_LOCAL_MEM_FENCE);
    find_partial(l, c, b, flip, scratch);
    barrier(CLK_LOCAL_MEM_FENCE);
    write_rows(&s, l, w, (__global uchar *)scratch, 0, false);
}
#endif

KERNEL SUB_GROUP void attention_matrix(IN(q), IN(kp), IN(vp), IN(seq), IN(pos), IN(indptr), IN(pages), OUT_ACT(o),
                                       uint M, uint Hq, uint Hkv, uint P, uint page_stride, uint q_stride,
                                       uint o_stride, float scale WINDOW_ARGS, uint BR, uint HB,
                                       __global float *scratch, uint chunks ASYNC_ARGS, uint pass)
{
    const call_t c = CALL(BR, chunks);
#if SPLIT
    if (pass == 1) {
        merge_chunks(scratch, &c, o_base, o_off, o_half, o_stride);
        return;
    }
#endif
    __local ushort tiles[ATTENTION_TILES(R, D, TK)] __attribute__((aligned(16))),
        p[R * P_PITCH] __attribute__((aligned(16)));
    __local ulong at[TK], to[R];
    __local float part[R * PARTS], row_max[2 * R], factor[R];
    __local sight seen[R];
    __local uint head;
#if ASYNC
    __local uint left[R], some_left;
    const local_room l = {tiles, p, at, part, row_max, factor, to, seen, left, &some_left};
#else
    const local_room l = {tiles, p, at, part, row_max, factor, to, seen};
#endif
    const wave_t w = {WAVE() / WC * MMA_M, WAVE() % WC * KEYS, WAVE() % WC * COLUMNS, LANE()};
    uint heads = Hq / Hkv, head_blocks = (heads + HB - 1) / HB, blocks = (M + BR - 1) / BR, parts = chunks;

    for (uint turn = get_group_id(0); turn < blocks * Hkv * head_blocks * parts; turn += get_num_groups(0)) {
        uint work = turn / parts, of_block = work / head_blocks;
#if WINDOWS
        find_head(&head, c.mask.windows, Hkv, heads, of_block / blocks);
        barrier(CLK_LOCAL_MEM_FENCE);
        uint kvh = head, m0 = (blocks - 1 - of_block % blocks) * BR;
#else
        uint kvh = of_block % Hkv, m0 = (blocks - 1 - of_block / Hkv) *
                                        BR; /* the longest rows come first, for the device to be full to the end */
#endif
#if SPLIT
        int begin = chunk_begins(turn % parts), stop = begin + chunk_size(begin);
#else
        int begin = 0, stop = INT_MAX;
#endif
        const block b = {m0, min(m0 + BR, M), kvh, work % head_blocks, heads, turn % parts, begin, stop};
        frag_a qs[D / 16];
        put_q(tiles, IN_AT(half, q), q_stride, &c, &b);
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (int k = 0; k < D / 16; k++) qs[k] = load_a(tiles, K_PITCH, w.row, 16 * k, w.lane);
        barrier(CLK_LOCAL_MEM_FENCE);
#if SPLIT
        attend_chunk(qs, &l, &c, &b, &w, scratch);
#elif ASYNC
        attend_twice(qs, &l, &c, &b, &w, o_base, o_off, o_half, o_stride, count_base, count_off);
#else
        sums s;
        int flip = attend(true, false, &s, qs, &l, &c, &b, &w);
        finish(true, &s, &l, &c, &b, false, flip, &w, o_base, o_off, o_half, o_stride);
#endif
        barrier(CLK_LOCAL_MEM_FENCE); /* what is in local memory is written again */
    }
}
