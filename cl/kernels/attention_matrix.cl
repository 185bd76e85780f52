/* attention_matrix: softmax(q . k * scale) v over paged keys on any vendor's matrix units (matrix.clh), F16 in, F32
 * sums; keys and values in 8 bits become F16 on their way to local memory. A block of rows a work-group
 * (attention/blocks.clh), which for decoding is one row's query heads of a KV head, padded to the unit's rows. MMA_M
 * packed rows are a wave's, with all keys of a tile, so that what belongs to a row stays in the lanes that hold it; WC
 * waves have the same scores where registers hold only a part of the columns of their sums each.
 *
 *   page table --> TK keys [TK][D] and values in local memory: in that order (COPIES), or turned, [D][TK]
 *   S = Q K^T               Q stays in registers; meanwhile the tile's values are fetched
 *   P = 2^(S - maximum)     in registers
 *   O += P V                in registers; meanwhile the next tile's keys are fetched
 *
 * Synchronous: where a score of some row exceeds its running maximum by 2^RESCALE_THRESHOLD (attention/softmax.clh),
 * the maximum is raised. ASYNC 1: scores become weights at once, 2^(score - base); a row leaves where a score is MOST
 * above base, and what it sees is no reason for another tile; or at the end, where the largest is not above `least`.
 * Rows that left are counted and computed again in the synchronous way, without the others, which gives the bits of
 * ASYNC 0.
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
 * LANES; TK and D / WC are multiples of MMA_N, TK of 16; COPIES (device/copies.clh); MOST with ASYNC; CHUNK (a multiple
 * of TK), GROWS with SPLIT. Rows of q are F16 aligned to 16 bytes, scale > 0. Local memory:
 * ATTENTION_MATRIX_LOCAL_BYTES (local_bytes.clh).
 */
#ifndef ACT
#define ACT 16
#endif
#ifndef WG
#define WG 128
#endif
#include "common.clh"
#include "device/copies.clh"
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
#define COLUMNS   (D / WC) /* that are a wave's */
#define KEY_TILES (TK / MMA_N)
#define SUM_TILES (COLUMNS / MMA_N)
#define K_PITCH   ATTENTION_PITCH(D, COPIES) /* of Q as well */
#define T_PITCH   MATRIX_PITCH(TK)           /* of weights, and of values that are turned */

typedef struct local_room {
    __local ushort *keys, *values, *weights; /* weights: the wave's own */
    __local ulong *places;                   /* of the keys of two tiles in the pools */
    __local sight *seen;                     /* of the packed rows, in a run */
#if ASYNC
    __local uint *left, *some_left;          /* which packed rows left the range; did any? */
#endif
} local_room;
#define TOO_LARGE MOST
#include "attention/blocks.clh"
#if SPLIT
#include "attention/chunk_sums.clh"
#endif

/* Which packed rows and columns this wave begins at. */
typedef struct wave_t {
    uint row, column, lane;
} wave_t;

/* What a lane adds up: columns of its rows; of each row weights, the running maximum, and the largest score (ASYNC). */
typedef struct sums {
    frag_c acc[SUM_TILES];
    float sum[C_ROWS], top[C_ROWS], most[C_ROWS];
} sums;

#define EACH_SUM(v)  _Pragma("unroll") for (uint v = 0; v < N_SUMS; v++)
#define EACH_ROW(i)  _Pragma("unroll") for (uint i = 0; i < C_ROWS; i++)
#define ROW_OF(w, i) ((w)->row + C_ROW((w)->lane, C_FIRST(i))) /* the lane's i-th row */

/* ---- keys and values to local memory ----------------------------------------------------------------------------- */

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

#define PLACES ((TK + WG - 1) / WG)
#define IS_COPIED (COPIES && KV_BLOCK == 1) /* as they lie in the pools */
#if IS_COPIED
#define PLACE_UNIT 2 /* places in local memory are counted in bytes; that of none is negative */
#else
#define PLACE_UNIT 1
#endif

/* Where this work-item's keys of a tile begin in the pools; NONE: past the end, or no row sees it. */
static INLINE void find_places(ulong own[PLACES], const local_room *l, const call_t *c, const __global int *page,
                               int k0, int end, uint kvh, uint lid)
{
#pragma unroll
    for (uint i = 0; i < PLACES; i++) {
        const int key = k0 + (int)(lid + i * WG);
        own[i] = lid + i * WG < TK && key < end && is_seen(l, key) ? place_of(c, page, key, kvh) : NONE;
    }
}

static INLINE void put_places(__local ulong *to, const ulong own[PLACES], uint lid)
{
#pragma unroll
    for (uint i = 0; i < PLACES; i++)
        if (lid + i * WG < TK) to[lid + i * WG] = own[i] * PLACE_UNIT;
}

/* A tile comes in pieces: of keys, and of values as they lie, 8 elements; of values that are turned, columns d and
 * d + 1 of 8 keys. Those of a work-item are as many rows apart where a row's pieces divide the work-group. */
#define PIECES(rows, of_row)    (((rows) * (of_row) + WG - 1) / WG)
#define PIECE_ROW(i, of_row)    (WG % (of_row) ? (lid + (i) * WG) / (of_row) : lid / (of_row) + (i) * (WG / (of_row)))
#define PIECE_COLUMN(i, of_row) (WG % (of_row) ? (lid + (i) * WG) % (of_row) : lid % (of_row))
#define IS_PIECE(i, rows, of_row) \
    ((rows) * (of_row) % WG == 0 || lid + (i) * WG < (rows) * (of_row))

#if IS_COPIED
typedef uint held_keys, held_values; /* nothing */

/* Where piece i goes: as A_AT, with constants apart where rows ALIKE pieces on are exchanged as this one's. */
#define STEP  (WG / (D / 8))
#define ALIKE (STEP < 8 ? 8 / STEP : 1)
#if WG % (D / 8) == 0 && (STEP == 2 || STEP == 4 || STEP % 8 == 0)
#define ROW_AT(to, i, j, d) \
    (A_AT(to, K_PITCH, PIECE_ROW((i) % ALIKE, D / 8), d) + (i) / ALIKE * (ALIKE * STEP * K_PITCH))
#else
#define ROW_AT(to, i, j, d) A_AT(to, K_PITCH, j, d)
#endif

/* Begins to copy the rows of a tile. */
static INLINE void copy_tile(__local ushort *to, const __global uchar *pool, const __local ulong *places, uint lid)
{
#pragma unroll 8
    for (uint i = 0; i < PIECES(TK, D / 8); i++) {
        const uint j = PIECE_ROW(i, D / 8), d = PIECE_COLUMN(i, D / 8) * 8;
        if (!IS_PIECE(i, TK, D / 8)) continue;
        const ulong place = places[j];
        begin_copy(ROW_AT(to, i, j, d), pool + d * 2 + place, (long)place >= 0);
    }
    end_copies();
}
#define begin_keys(held, l, pool, places, lid)   copy_tile((l)->keys, pool, places, lid)
#define begin_values(held, l, pool, places, lid) copy_tile((l)->values, pool, places, lid)
#define end_keys(held, l, pool, places, lid)     await_copies(0)
#define end_values(held, l, pool, places, lid)   await_copies(0)
#else
/* So many pieces are fetched while the tile before is multiplied; what a small work-group has more, behind that. */
#define KEY_PIECES PIECES(TK, D / 8)
#define KEYS_HELD  (KEY_PIECES < 8 ? KEY_PIECES : 8)
typedef uint4 held_keys[KEYS_HELD];

static INLINE uint4 fetch_keys(uint i, const __global uchar *pool, const __local ulong *places, uint lid)
{
    const ulong place = IS_PIECE(i, TK, D / 8) ? places[PIECE_ROW(i, D / 8)] : NONE;
    return place == NONE ? (uint4)(0) : kv_read8(pool, place + PIECE_COLUMN(i, D / 8) * 8);
}

static INLINE void put_rows(uint i, __local ushort *to, uint4 piece, uint lid)
{
    if (IS_PIECE(i, TK, D / 8)) put_b(to, K_PITCH, PIECE_ROW(i, D / 8), PIECE_COLUMN(i, D / 8) * 8, kv_halves8(piece));
}
#define put_keys(i, l, piece, lid) put_rows(i, (l)->keys, piece, lid)

#if COPIES
#define VALUE_PIECES KEY_PIECES
#define VALUES_HELD  KEYS_HELD
typedef held_keys held_values;
#define fetch_values                 fetch_keys
#define put_values(i, l, piece, lid) put_rows(i, (l)->values, piece, lid)
#else
#define VALUE_PIECES PIECES(TK / 8, D / 2)
#define VALUES_HELD  (VALUE_PIECES < 4 ? VALUE_PIECES : 4)
typedef uint8 held_values[VALUES_HELD];

static INLINE uint8 fetch_values(uint i, const __global uchar *pool, const __local ulong *places, uint lid)
{
    const uint j = PIECE_ROW(i, D / 2) * 8, d = PIECE_COLUMN(i, D / 2) * 2;
    uint w[8];
#pragma unroll
    for (uint k = 0; k < 8; k++) {
        const ulong place = IS_PIECE(i, TK / 8, D / 2) ? places[j + k] : NONE;
        w[k] = place == NONE ? 0 : kv_read2(pool, place + d);
    }
    return (uint8)(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]);
}

static INLINE uint8 halves_of_values(uint8 w)
{
    return (uint8)(kv_halves2(w.s0), kv_halves2(w.s1), kv_halves2(w.s2), kv_halves2(w.s3), kv_halves2(w.s4),
                   kv_halves2(w.s5), kv_halves2(w.s6), kv_halves2(w.s7));
}

static INLINE void put_values(uint i, const local_room *l, uint8 raw, uint lid)
{
    const uint j = PIECE_ROW(i, D / 2) * 8, d = PIECE_COLUMN(i, D / 2) * 2;
    const uint8 w = halves_of_values(raw);
    if (!IS_PIECE(i, TK / 8, D / 2)) return;
    put_b(l->values, T_PITCH, d, j, (w.even & 0xFFFF) | w.odd << 16);
    put_b(l->values, T_PITCH, d + 1, j, w.even >> 16 | (w.odd & 0xFFFF0000));
}
#endif

#define BEGIN_PIECES(n, held, fetch, pool, places, lid)                                                                \
    {                                                                                                                  \
        const uint lid_ = lid;                                                                                         \
        _Pragma("unroll") for (uint i_ = 0; i_ < n; i_++)(*(held))[i_] = fetch(i_, pool, places, lid_);                \
    }
#define END_PIECES(n, all, held, fetch, put, l, pool, places, lid)                                                     \
    {                                                                                                                  \
        const uint lid_ = lid;                                                                                         \
        _Pragma("unroll") for (uint i_ = 0; i_ < n; i_++) put(i_, l, (*(held))[i_], lid_);                             \
        _Pragma("unroll 1") for (uint i_ = n; i_ < all; i_++) put(i_, l, fetch(i_, pool, places, lid_), lid_);         \
    }
#define begin_keys(held, l, pool, places, lid)   BEGIN_PIECES(KEYS_HELD, held, fetch_keys, pool, places, lid)
#define begin_values(held, l, pool, places, lid) BEGIN_PIECES(VALUES_HELD, held, fetch_values, pool, places, lid)
#define end_keys(held, l, pool, places, lid) \
    END_PIECES(KEYS_HELD, KEY_PIECES, held, fetch_keys, put_keys, l, pool, places, lid)
#define end_values(held, l, pool, places, lid) \
    END_PIECES(VALUES_HELD, VALUE_PIECES, held, fetch_values, put_values, l, pool, places, lid)
#endif

/* ---- a tile of keys ---------------------------------------------------------------------------------------------- */

static INLINE void multiply_keys(frag_c x[KEY_TILES], const frag_a q[D / 16], const local_room *l, const wave_t *w)
{
    const uint lane = HERE(w->lane);
#pragma unroll
    for (uint n = 0; n < KEY_TILES; n++) x[n] = (frag_c)(0);
#pragma unroll
    for (uint k = 0; k < D / 16; k++)
#pragma unroll
        for (uint n = 0; n < KEY_TILES; n++)
            x[n] = mma(q[k], load_b(l->keys, K_PITCH, n * MMA_N, 16 * k, lane), x[n]);
}

static INLINE void cap_scores(frag_c x[KEY_TILES], const call_t *c)
{
#pragma unroll
    for (uint n = 0; n < KEY_TILES; n++)
        EACH_SUM(v) x[n][v] = capped(&c->mask, x[n][v] * c->scale);
}

/* What all of the lane's rows see. */
static INLINE void see_together(sight *each, const local_room *l, const wave_t *w)
{
    *each = l->seen[ROW_OF(w, 0)];
    EACH_ROW(i)
    {
        const sight s = l->seen[ROW_OF(w, i)];
        each->last = min(each->last, s.last);
#if WINDOWS
        each->after = max(each->after, s.after);
#endif
    }
}

/* Scores of keys that a row does not see. k0: the tile's first key. */
static INLINE void mask_scores(frag_c x[KEY_TILES], const local_room *l, int k0, const wave_t *w)
{
    const int first = k0 + (int)C_COL(w->lane, 0);
    EACH_ROW(i)
    {
        sight s = l->seen[ROW_OF(w, i)];
        s.last -= first;
#if WINDOWS
        s.after -= first, s.sink -= first;
#endif
#pragma unroll
        for (uint n = 0; n < KEY_TILES; n++)
            EACH_SUM(v)
            {
                const int key = (int)(n * MMA_N + C_COL(w->lane, v) - C_COL(w->lane, 0));
                if (C_PART(v) == i && !sees(s, key)) x[n][v] = -INFINITY;
            }
    }
}

/* Of each row the lane's largest score, in powers of two, of which unit is one. */
static INLINE void find_most(float most[C_ROWS], const frag_c x[KEY_TILES], float unit)
{
    EACH_ROW(i) most[i] = -INFINITY;
#pragma unroll
    for (uint n = 0; n < KEY_TILES; n++)
        EACH_SUM(v) most[C_PART(v)] = fmax(most[C_PART(v)], x[n][v]);
    EACH_ROW(i) most[i] *= unit;
}

/* Raises the maxima of rows that a score of the tile exceeds by the threshold. */
static INLINE void raise(sums *s, const float most[C_ROWS])
{
    bool some = false;
    EACH_ROW(i) some |= exceeds(most[i], s->top[i]);
    if (!any_lane(some)) return;
    EACH_ROW(i)
    {
        const float top = raised(row_max(most[i]), s->top[i]), alpha = power_of_2(s->top[i] - top);
        s->top[i] = top;
        s->sum[i] *= alpha;
#pragma unroll
        for (uint n = 0; n < SUM_TILES; n++)
            EACH_SUM(v) if (C_PART(v) == i) s->acc[n][v] *= alpha;
    }
}

#if ASYNC
/* Which rows leave by the lane's scores of a tile. */
static INLINE void note_most(sums *s, const float most[C_ROWS], const local_room *l, const call_t *c, const wave_t *w)
{
    EACH_ROW(i)
    {
        s->most[i] = fmax(s->most[i], most[i]);
        if (most[i] - c->base >= TOO_LARGE) l->left[ROW_OF(w, i)] = 1, *l->some_left = 1;
    }
}
#else
#define note_most(s, most, l, c, w)
#endif

/* Scores become weights, relative to the maximum of each row or to base. */
static INLINE void weigh(const bool online, sums *s, frag_c x[KEY_TILES], float unit, float base)
{
#pragma unroll
    for (uint n = 0; n < KEY_TILES; n++)
        EACH_SUM(v)
        {
            x[n][v] = power_of_2(MAD(x[n][v], unit, -(online ? s->top[C_PART(v)] : base)));
            s->sum[C_PART(v)] += x[n][v];
        }
}

static INLINE void add_values(sums *s, const frag_a p[TK / 16], const local_room *l, const wave_t *w)
{
    const uint lane = HERE(w->lane);
#pragma unroll
    for (uint k = 0; k < TK / 16; k++)
#pragma unroll
        for (uint n = 0; n < SUM_TILES; n++) {
#if COPIES
            const frag_b v = load_bt(l->values, K_PITCH, 16 * k, w->column + n * MMA_N, lane);
#else
            const frag_b v = load_b(l->values, T_PITCH, w->column + n * MMA_N, 16 * k, lane);
#endif
            s->acc[n] = mma(p[k], v, s->acc[n]);
        }
}

/* Weights of a tile whose keys are in local memory. k0: the first of them. */
static INLINE void attend_keys(const bool online, frag_a p[TK / 16], sums *s, const frag_a q[D / 16],
                               const local_room *l, const call_t *c, sight each, int k0, const wave_t *w)
{
    const float unit = SOFTCAP ? LOG2E : c->scale * LOG2E;
    frag_c x[KEY_TILES];
    float most[C_ROWS];
    multiply_keys(x, q, l, w);
    if (SOFTCAP) cap_scores(x, c);
    if (!sees_all(each, k0, k0 + TK)) mask_scores(x, l, k0, w);
    find_most(most, x, unit);
    if (online) raise(s, most);
    else note_most(s, most, l, c, w);
    weigh(online, s, x, unit, c->base);
    a_of_c(p, x, KEY_TILES, l->weights, T_PITCH, w->lane);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* Where results go: rows of o; chunks of SPLIT to the scratch buffer. */
typedef struct result_t {
    __global uchar *o_base;
    ulong o_off;
    uint o_half, o_stride;
    __global float *scratch;
} result_t;

/* The lane's i-th row. */
static INLINE void write_row(const sums *s, uint i, const wave_t *w, ulong to, float factor, OUT_ACT(o))
{
#pragma unroll
    for (uint n = 0; n < SUM_TILES; n++)
        EACH_SUM(v)
            if (C_PART(v) == i) STORE(o, to + w->column + n * MMA_N + C_COL(w->lane, v), s->acc[n][v] * factor)
}

#if SPLIT
/* A row's chunk, if it sees some key of it, with its total and maximum beside it. */
static INLINE void finish_row(const sums *s, uint i, float sum, const call_t *c, const block *b, uint r, uint m,
                              uint head, const wave_t *w, const result_t *to)
{
    if (!sees_chunk(c, b, r)) return;
    __global float *partial = partial_of(to->scratch, (ulong)m * c->Hq + head, c->chunks, b->chunk);
    partial[D] = sum;
    partial[D + 1] = s->top[i];
    write_row(s, i, w, partial - to->scratch, 1, (__global uchar *)to->scratch, 0, false);
}
#define finish_row(online, s, i, sum, c, b, r, m, head, w, to) finish_row(s, i, sum, c, b, r, m, head, w, to)
#else
static INLINE void finish_row(const bool online, const sums *s, uint i, float sum, const call_t *c, const block *b,
                              uint r, uint m, uint head, const wave_t *w, const result_t *to)
{
    sum = with_sink(&c->mask, sum, NATURAL(online ? s->top[i] : c->base), head);
    write_row(s, i, w, (ulong)m * to->o_stride + head * D, sum == 0 ? 0 : 1 / sum, to->o_base, to->o_off, to->o_half);
}
#endif

/* Is a row to be computed again, of which the lanes know the largest score? */
static INLINE bool leaves(const sums *s, uint i, const local_room *l, const call_t *c, uint r, uint m)
{
#if ASYNC
    if (c->pos[m] < 0 || !(l->left[r] || is_outside(c, s->most[i]))) return false;
    l->left[r] = 1, *l->some_left = 1;
    return true;
#else
    return false;
#endif
}

/* Rows first to end - 1 of a block, but for those that leave; left: those that left, alone. */
static INLINE void finish_run(const bool online, bool left, sums *s, const local_room *l, const call_t *c,
                              const block *b, uint first, uint end, const wave_t *w, const result_t *to)
{
    EACH_ROW(i)
    {
        const uint r = ROW_OF(w, i), m = b->m0 + r / c->HB, h = b->hb * c->HB + r % c->HB;
        const float sum = row_sum(s->sum[i]);
        if (!online) s->most[i] = row_max(s->most[i]);
        if (m < first || m >= end || h >= b->heads || !is_wanted(l, left, r)) continue;
        if (!online && leaves(s, i, l, c, r, m)) continue;
        finish_row(online, s, i, sum, c, b, r, m, b->kvh * b->heads + h, w, to);
    }
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static INLINE void clear_sums(sums *s)
{
#pragma unroll
    for (uint n = 0; n < SUM_TILES; n++) s->acc[n] = (frag_c)(0);
    EACH_ROW(i) s->sum[i] = 0, s->top[i] = NO_MAX, s->most[i] = -INFINITY;
}

/* Keys k0 to end - 1, of which *any sees the last, for the rows of a run. */
static INLINE void attend_run(const bool online, sums *s, const frag_a q[D / 16], const local_room *l, const call_t *c,
                              const block *b, const __global int *page, sight any, int k0, int end, const wave_t *w)
{
    const uint lid = get_local_id(0);
    __local ulong *now = l->places, *then = l->places + TK;
    sight each;
    held_keys keys;
    ulong own[PLACES];
    find_places(own, l, c, page, k0, end, b->kvh, lid);
    put_places(now, own, lid);
    clear_sums(s);
    see_together(&each, l, w);
    barrier(CLK_LOCAL_MEM_FENCE);
    begin_keys(&keys, l, c->kp, now, lid);
    end_keys(&keys, l, c->kp, now, lid);
    for (int next; true; k0 = next) {
        frag_a p[TK / 16];
        held_values values;
        barrier(CLK_LOCAL_MEM_FENCE); /* the tile's keys are there, the values before were used */
        if (!online) end = end_of_rows(l, end);
        if (k0 >= end) break;
        begin_values(&values, l, c->vp, now, HERE(lid));
        next = next_seen(any, k0 + TK, TK);
        find_places(own, l, c, page, next, end, b->kvh, lid);
        attend_keys(online, p, s, q, l, c, each, k0, w);
        put_places(then, own, lid);
        end_values(&values, l, c->vp, now, HERE(lid));
        barrier(CLK_LOCAL_MEM_FENCE); /* the values are there, the keys were used */
        if (next < end) begin_keys(&keys, l, c->kp, then, HERE(lid));
        add_values(s, p, l, w);
        if (!online) stop_rows(l);
        if (next < end) end_keys(&keys, l, c->kp, then, HERE(lid));
        __local ulong *free = now;
        now = then, then = free;
    }
}

/* All keys of a block, by a running maximum or relative to base; left: only for rows that left. */
static INLINE void attend(const bool online, bool left, const frag_a q[D / 16], const local_room *l, const call_t *c,
                          const block *b, const wave_t *w, const result_t *to)
{
    for (uint m = b->m0; m < b->m_end;) { /* runs of rows of one sequence */
        const __global int *page = c->pages + c->indptr[c->seq[m]];
        const uint first = m;
        sight any;
        sums s;
        barrier(CLK_LOCAL_MEM_FENCE); /* nobody looks at the run before */
        m = look_at_run(&any, l, c, b, left, m);
        barrier(CLK_LOCAL_MEM_FENCE);
        attend_run(online, &s, q, l, c, b, page, any, next_seen(any, b->begin, TK), min(any.last + 1, b->stop), w);
        finish_run(online, left, &s, l, c, b, first, m, w, to);
    }
}

#if ASYNC
/* A block by the given maximum; then those of its rows that it does not suit by a running one. */
static INLINE void attend_twice(const frag_a q[D / 16], const local_room *l, const call_t *c, const block *b,
                                const wave_t *w, const result_t *to, IN(count))
{
    clear_left(l);
    attend(false, false, q, l, c, b, w, to);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (!*l->some_left) return;
    count_left(l, count_base, count_off);
    attend(true, true, q, l, c, b, w, to);
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
    __local ushort tiles[ATTENTION_TILES(R, D, TK, COPIES)] __attribute__((aligned(128)));
    __local ulong places[2 * TK];
    __local sight seen[R];
    __local uint head;
    const wave_t w = {WAVE() / WC * MMA_M, WAVE() % WC * COLUMNS, LANE()};
#ifdef MEET_IN_WAVE
    __local ushort all_weights[ATTENTION_WEIGHTS(R, TK, WC, 0)] __attribute__((aligned(16))),
        *weights = all_weights + WAVE() * MMA_M * T_PITCH;
#else
    __local ushort *weights = 0;
#endif
#if ASYNC
    __local uint left[R], some_left;
    const local_room l = {tiles, tiles + ATTENTION_KEYS(D, TK, COPIES), weights, places, seen, left, &some_left};
#else
    const local_room l = {tiles, tiles + ATTENTION_KEYS(D, TK, COPIES), weights, places, seen};
#endif
    const result_t to = {o_base, o_off, o_half, o_stride, scratch};
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
        for (uint k = 0; k < D / 16; k++) qs[k] = load_a(tiles, K_PITCH, w.row, 16 * k, w.lane);
        barrier(CLK_LOCAL_MEM_FENCE);
#if ASYNC
        attend_twice(qs, &l, &c, &b, &w, &to, count_base, count_off);
#else
        attend(true, false, qs, &l, &c, &b, &w, &to);
#endif
        barrier(CLK_LOCAL_MEM_FENCE); /* what is in local memory is written again */
    }
}
