/* attention_flash: softmax(q . k * scale) v over paged keys, BR rows of one KV head a work-group.
 *
 * HB query heads of a KV head are packed with the rows, BR * HB <= R "packed rows", so that keys and values are read
 * once for all of them. For each tile of TK keys:
 *
 *   Q, K --> local, turned, DK elements at a time    S = Q K^T, RT rows x 4 keys a work-item
 *   weights 2^(S - maximum) --> local, turned        sums of 4 keys' weights, added in the order of the keys
 *   V --> local, VK keys at a time                   O += P V, RT rows x 4 C4 columns a work-item
 *
 * What comes to local memory next is on its way to registers while what is there is multiplied, but where compilers
 * have no registers for it (device/unroll.clh).
 *
 * Four numbers of local memory, read at once, serve 2 RT products or more, as they must where arithmetic is the limit.
 * With a running maximum per packed row: when a larger score comes, O and the sum are scaled down. Rows of a group
 * that belong to several sequences are done as runs, one sequence after another, or by `share` groups in turn. Keys
 * that no row of the block sees become zeros, so that their slots may hold anything; one that only other rows see
 * weighs 0. Tiles begin at multiples of TK from key 0, and what a tile adds to a row that sees none of its keys is 0:
 * a row's bits depend neither on the other rows nor on BR, HB, R, RT, DK, VK, WG.
 *
 * ASYNC 1: scores become weights, 2^(score - base), as they come, without a look at the others, and sums are just
 * added. A row leaves where a score is MOST above base, and then sees no more keys; or at the end, where the largest
 * is not above `least`. Rows that left are counted and computed again in the synchronous way, without the others,
 * which gives the bits of ASYNC 0.
 *
 * WINDOWS 1: each query head has a window (attention/mask.clh). Tiles that no packed row sees are left out, and KV
 * heads are done in the order of the longest windows of their query heads: the longest first, so that the device is
 * full to the end; as are the last rows of a batch, which have most keys.
 *
 * Knobs: D (head size, a multiple of 4); R, TK powers of two, R at most WG, RT (4 or 8) divides R; R / RT * TK / 4 at
 * most WG, a power of two; DK divides D, VK TK, multiples of 4; Q_ALIGNED: to four elements; MOST with ASYNC; UNROLL:
 * lines of four elements, or values of four keys, in a row, as registers allow; 1: as compilers of processors like it.
 * Local memory: FLASH_LOCAL_BYTES (local_bytes.clh).
 */
#include "common.clh"
#include "local_bytes.clh"
#include "device/unroll.clh"
#include "attention/mask.clh"
#include "attention/merge.clh"
#include "kv/f16.clh"
#ifndef D
#define D  64
#define R  16
#define RT 4
#define TK 64
#define DK 16
#define VK 16
#endif
#ifndef Q_ALIGNED
#define Q_ALIGNED 0
#endif
#ifndef ASYNC
#define ASYNC 0
#endif
#ifndef UNROLL
#define UNROLL 2
#endif
#if OVERLAPS && UNROLL > 2
#undef UNROLL
#define UNROLL 2
#endif
#if UNROLL > 1
#define FULLY _Pragma("unroll")
#else
#define FULLY _Pragma("unroll 1")
#endif

#define LOG2E 1.44269504f
#define D4 (D / 4)
#define R4 (R / 4)
#define T4 (RT / 4)
#define RG (R / RT)             /* groups of rows: of a work-item */
#define KG (TK / 4)             /* of keys, for scores */
#define CG (WG / RG)            /* of columns, for sums */
#define C4 ((D4 + CG - 1) / CG) /* fours of columns of a work-item: CG apart */
/* Where the four from x on lie, of n, of the i-th four lines of a turned matrix: so that neither neighbours in a line
 * nor fours of one column meet in a bank. */
#define TURNED(x, i, n) ((x) ^ (4 * ((i) & 7) & ((n)-1)))

typedef struct local_room {
    __local float *q, *keys;  /* [DK][R], [DK][TK] */
    __local float *weights;   /* [TK][R], in their place */
    __local float *values;    /* [VK][D] */
    __local float4 *part;     /* of each group of keys a number of each row */
    __local float *row_max, *row_sum, *alpha; /* of rows; what the last maximum made of their sums */
    __local ulong *at, *q_at; /* where two tiles' keys and rows of q begin */
    __local sight *seen;      /* of the packed rows, in a run */
#if ASYNC
    __local float *most;            /* the largest scores */
    __local uint *left, *some_left; /* which packed rows left the range; did any? */
#endif
} local_room;
#define TOO_LARGE MOST
#include "attention/blocks.clh"

/* What a work-item adds up. */
typedef struct sums {
    float4 acc[RT][C4];
} sums;

/* What is on its way: fours of elements of keys and of rows of Q, or of values. */
#if ACT == 16 && Q_ALIGNED
typedef uint2 q_four;
#define Q_NUMBERS(raw) halves4(raw)
#else
typedef float4 q_four;
#define Q_NUMBERS(raw) (raw)
#endif
#define K_LOADS ((TK * (DK / 4) + WG - 1) / WG)
#define Q_LOADS ((R * (DK / 4) + WG - 1) / WG)
#define V_LOADS ((VK * D4 + WG - 1) / WG)
typedef struct held {
    uint2 k[K_LOADS], v[V_LOADS];
    q_four q[Q_LOADS];
} held;

/* A work-item's rows, keys and columns: the first of each, column in fours. With few rows some have the same keys, and
 * store the same scores (PoCL cannot leave them out), and some only columns that nobody reads. */
typedef struct item_t {
    uint row, key, column;
} item_t;

/* ---- to local memory --------------------------------------------------------------------------------------------- */

/* Where the keys k0 to k0 + TK - 1 of a sequence begin in the pools; those from end on, and those that no row sees:
 * NONE. */
static void find_tile(__local ulong *at, const local_room *l, const call_t *c, const __global int *page, int k0, int end,
                      uint kvh)
{
    for (int j = get_local_id(0); j < TK; j += WG) {
        int key = k0 + j;
        at[j] = key < end && is_seen(l, key) ? place_of(c, page, key, kvh) : NONE;
    }
}

/* Where the packed rows of Q begin; padding: NONE. */
static void find_rows(const local_room *l, const block *b, uint HB, uint q_stride)
{
    for (uint r = get_local_id(0); r < R; r += WG) {
        uint m = b->m0 + r / HB, h = b->hb * HB + r % HB;
        l->q_at[r] = m < b->m_end && h < b->heads ? (ulong)m * q_stride + (b->kvh * b->heads + h) * D : NONE;
    }
}

static q_four q_load4(const __global act_t *q, ulong at)
{
#if !Q_ALIGNED
    return (float4)(ACT_LOAD(q, at), ACT_LOAD(q, at + 1), ACT_LOAD(q, at + 2), ACT_LOAD(q, at + 3));
#else
    return *(const __global q_four *)(q + at);
#endif
}

static void put_turned(__local float *to, uint n, uint line4, uint x, float4 v)
{
    __local float *p = to + 4 * line4 * n + TURNED(x, line4, n);
    p[0] = v.x, p[n] = v.y, p[2 * n] = v.z, p[3 * n] = v.w;
}

/* The work-item's n-th four of elements d0 to d0 + DK - 1 of the keys of a tile, of all packed rows; of the values of
 * keys v0 to v0 + VK - 1. */
static uint2 read_key(const __local ulong *keys, const call_t *c, uint d0, uint n)
{
    uint i = get_local_id(0) + n * WG;
    ulong at = keys[min(i / (DK / 4), (uint)TK - 1)];
    return at == NONE ? (uint2)(0) : kv_read4(c->kp, at + d0 + 4 * (i % (DK / 4)));
}

static q_four read_q(const local_room *l, const __global act_t *q, uint d0, uint n)
{
    uint i = get_local_id(0) + n * WG;
    ulong at = l->q_at[min(i / (DK / 4), (uint)R - 1)];
    return at == NONE ? (q_four)(0) : q_load4(q, at + d0 + 4 * (i % (DK / 4)));
}

static uint2 read_value(const __local ulong *keys, const call_t *c, uint v0, uint n)
{
    uint i = get_local_id(0) + n * WG;
    ulong at = keys[v0 + min(i / D4, (uint)VK - 1)];
    return at == NONE ? (uint2)(0) : kv_read4(c->vp, at + 4 * (i % D4));
}

static void put_key(const local_room *l, uint n, uint2 raw)
{
    uint i = get_local_id(0) + n * WG;
    if (TK * (DK / 4) % WG == 0 || i < TK * (DK / 4))
        put_turned(l->keys, TK, i % (DK / 4), i / (DK / 4), kv_numbers4(raw));
}

static void put_q(const local_room *l, uint n, q_four raw)
{
    uint i = get_local_id(0) + n * WG;
    if (R * (DK / 4) % WG == 0 || i < R * (DK / 4))
        put_turned(l->q, R, i % (DK / 4), i / (DK / 4), Q_NUMBERS(raw));
}

static void put_value(const local_room *l, uint n, uint2 raw)
{
    uint i = get_local_id(0) + n * WG;
    if (VK * D4 % WG == 0 || i < VK * D4) ((__local float4 *)l->values)[i] = kv_numbers4(raw);
}

#if OVERLAPS
#define EACH(n, loads) _Pragma("unroll 2") for (uint n = 0; n < loads; n++)
#define FETCH_ELEMENTS(keys, d0) {}
#define FETCH_VALUES(keys, v0)   {}
#define KEEP_ELEMENTS(keys, d0)                                \
    EACH(n, K_LOADS) put_key(l, n, read_key(keys, c, d0, n));  \
    EACH(n, Q_LOADS) put_q(l, n, read_q(l, q, d0, n));
#define KEEP_VALUES(keys, v0) EACH(n, V_LOADS) put_value(l, n, read_value(keys, c, v0, n));
#else
#define EACH(n, loads) FULLY for (uint n = 0; n < loads; n++)
#define FETCH_ELEMENTS(keys, d0)                               \
    {                                                          \
        EACH(n, K_LOADS) h->k[n] = read_key(keys, c, d0, n);   \
        EACH(n, Q_LOADS) h->q[n] = read_q(l, q, d0, n);        \
    }
#define FETCH_VALUES(keys, v0) EACH(n, V_LOADS) h->v[n] = read_value(keys, c, v0, n);
#define KEEP_ELEMENTS(keys, d0)                                \
    EACH(n, K_LOADS) put_key(l, n, h->k[n]);                   \
    EACH(n, Q_LOADS) put_q(l, n, h->q[n]);
#define KEEP_VALUES(keys, v0) EACH(n, V_LOADS) put_value(l, n, h->v[n]);
#endif

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Four rows from r on, by numbers of each and a vector. */
#define MADS(to, r, of_rows, with, at)                                                                                 \
    {                                                                                                                  \
        (to)[r] at = MAD((float4)((of_rows).x), with, (to)[r] at);                                                     \
        (to)[(r) + 1] at = MAD((float4)((of_rows).y), with, (to)[(r) + 1] at);                                         \
        (to)[(r) + 2] at = MAD((float4)((of_rows).z), with, (to)[(r) + 2] at);                                         \
        (to)[(r) + 3] at = MAD((float4)((of_rows).w), with, (to)[(r) + 3] at);                                         \
    }

static INLINE void multiply_keys(float4 x[RT], const local_room *l, const item_t *i)
{
#pragma unroll UNROLL
    for (uint d4 = 0; d4 < DK / 4; d4++) {
        const __local float *k = l->keys + 4 * d4 * TK + TURNED(i->key, d4, TK), *q = l->q + 4 * d4 * R;
        FULLY
        for (uint d = 0; d < 4; d++) {
            float4 k4 = *(const __local float4 *)(k + d * TK);
            FULLY
            for (uint r = 0; r < RT; r += 4) {
                float4 q4 = *(const __local float4 *)(q + d * R + TURNED(i->row + r, d4, R));
                MADS(x, r, q4, k4, )
            }
        }
    }
}

/* Keys v0 to v0 + VK - 1 of a tile. */
static INLINE void multiply_values(sums *s, const local_room *l, const item_t *i, uint v0)
{
    const __local float4 *v = (const __local float4 *)l->values;
#pragma unroll UNROLL
    for (uint j4 = 0; j4 < VK / 4; j4++) {
        const __local float *p = l->weights + (v0 + 4 * j4) * R;
        FULLY
        for (uint j = 0; j < 4; j++) {
            FULLY
            for (uint n = 0; n < C4; n++) {
                float4 v4 = v[(4 * j4 + j) * D4 + min(i->column + n * CG, (uint)D4 - 1)];
                FULLY
                for (uint r = 0; r < RT; r += 4) {
                    float4 p4 = *(const __local float4 *)(p + j * R + TURNED(i->row + r, v0 / 4 + j4, R));
                    MADS(s->acc, r, p4, v4, [n])
                }
            }
        }
    }
}

/* The same, row by row, only of those that see some key: what other sequences left there does not reach a row, be it
 * NaN. */
static INLINE void multiply_apart(sums *s, const local_room *l, const item_t *i, uint v0)
{
    const __local float4 *v = (const __local float4 *)l->values;
    FULLY
    for (uint r = 0; r < RT; r++) {
        if (l->seen[i->row + r].last < 0) continue;
#pragma unroll 1
        for (uint j = 0; j < VK; j++) {
            float p = l->weights[(v0 + j) * R + TURNED(i->row + r, (v0 + j) / 4, R)];
            FULLY
            for (uint n = 0; n < C4; n++)
                s->acc[r][n] = MAD((float4)(p), v[j * D4 + min(i->column + n * CG, (uint)D4 - 1)], s->acc[r][n]);
        }
    }
}

/* ---- scores and weights ------------------------------------------------------------------------------------------ */

/* A score in powers of two, from a product. */
static float score(const call_t *c, float product, sight seen, int key)
{
    return sees(seen, key) ? capped(&c->mask, product * c->scale) * LOG2E : -INFINITY;
}

static INLINE void score_tile(float4 x[RT], const local_room *l, const call_t *c, const item_t *i, int k0)
{
    int key = k0 + (int)i->key;
    FULLY
    for (uint r = 0; r < RT; r++) {
        const sight seen = l->seen[i->row + r];
        x[r].x = score(c, x[r].x, seen, key), x[r].y = score(c, x[r].y, seen, key + 1);
        x[r].z = score(c, x[r].z, seen, key + 2), x[r].w = score(c, x[r].w, seen, key + 3);
    }
}

/* A number of each of the work-item's rows, beside those of the other groups of keys. */
static INLINE void put_part(const local_room *l, const item_t *i, const float x[RT])
{
    FULLY
    for (uint r = 0; r < T4; r++)
        l->part[i->key / 4 * (R4 + 1) + i->row / 4 + r] =
            (float4)(x[4 * r], x[4 * r + 1], x[4 * r + 2], x[4 * r + 3]);
}

static float part_of(const local_room *l, uint r, uint n)
{
    return ((const __local float *)l->part)[n * (R + 4) + r];
}

/* The largest of a row's parts. */
static float largest_part(const local_room *l, uint r)
{
    float t = -INFINITY;
    for (uint n = 0; n < KG; n++) t = fmax(t, part_of(l, r, n));
    return t;
}

/* Behind put_most: new maxima; or, where they are given, which rows leave. */
static void raise(const bool online, const local_room *l, const call_t *c)
{
    uint r = get_local_id(0);
    if (r >= R) return;
    float old = l->row_max[r], most = largest_part(l, r), new = online ? fmax(old, most) : old;
    l->row_max[r] = new;
    l->alpha[r] = POWER(old - new);
#if ASYNC
    l->most[r] = fmax(l->most[r], most);
    if (!online && most - c->base >= TOO_LARGE) l->left[r] = 1, *l->some_left = 1;
#endif
}

/* Behind put_part of a tile's weights. */
static void add_weights(const local_room *l)
{
    uint r = get_local_id(0);
    float sum = 0;
    if (r >= R) return;
    for (uint n = 0; n < KG; n++) sum += part_of(l, r, n);
    l->row_sum[r] = MAD(l->row_sum[r], l->alpha[r], sum);
}

/* Of each row the largest score of a tile. */
static INLINE void put_most(const float4 x[RT], const local_room *l, const item_t *i)
{
    float most[RT];
    FULLY
    for (uint r = 0; r < RT; r++) most[r] = fmax(fmax(x[r].x, x[r].y), fmax(x[r].z, x[r].w));
    put_part(l, i, most);
}

/* Weights from scores, turned, and what they are together. row_max is what they are relative to. */
static INLINE void weigh(float4 x[RT], const local_room *l, const item_t *i)
{
    float sum[RT];
    FULLY
    for (uint r = 0; r < RT; r++) {
        float4 y = x[r] = POWER(x[r] - l->row_max[i->row + r]);
        sum[r] = (y.x + y.y) + (y.z + y.w);
    }
    put_part(l, i, sum);
    FULLY
    for (uint r = 0; r < RT; r += 4) {
        __local float *to = l->weights + i->key * R + TURNED(i->row + r, i->key / 4, R);
        *(__local float4 *)to = (float4)(x[r].x, x[r + 1].x, x[r + 2].x, x[r + 3].x);
        *(__local float4 *)(to + R) = (float4)(x[r].y, x[r + 1].y, x[r + 2].y, x[r + 3].y);
        *(__local float4 *)(to + 2 * R) = (float4)(x[r].z, x[r + 1].z, x[r + 2].z, x[r + 3].z);
        *(__local float4 *)(to + 3 * R) = (float4)(x[r].w, x[r + 1].w, x[r + 2].w, x[r + 3].w);
    }
}

/* Sums as relative to the maxima with this tile. */
static INLINE void rescale(sums *s, const local_room *l, const item_t *i)
{
    FULLY
    for (uint r = 0; r < RT; r++) {
        float alpha = l->alpha[i->row + r];
        FULLY
        for (uint n = 0; n < C4; n++) s->acc[r][n] *= alpha;
    }
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static INLINE void clear_sums(sums *s, const local_room *l, const call_t *c, bool online)
{
    FULLY
    for (uint r = 0; r < RT; r++)
        FULLY
        for (uint n = 0; n < C4; n++) s->acc[r][n] = (float4)(0);
    uint r = get_local_id(0);
    if (r < R) l->row_max[r] = online ? NO_MAX : c->base, l->row_sum[r] = 0;
}

/* One tile, whose first elements are on their way, as behind it those of the next; alone: all rows are of one
 * sequence. Both ways have the same barriers, since PoCL compiles a branch with barriers four times as long, and little
 * else apart: compilers for GPUs then need more registers. */
static INLINE void attend_tile(const bool online, sums *s, held *h, const local_room *l, const call_t *c,
                               const __global act_t *q, const item_t *i, const __local ulong *at,
                               const __local ulong *next, int k0, int end, bool alone)
{
    float4 x[RT];
    FULLY
    for (uint r = 0; r < RT; r++) x[r] = (float4)(0);
    for (uint d0 = 0; d0 < D; d0 += DK) {
        KEEP_ELEMENTS(at, d0)
        barrier(CLK_LOCAL_MEM_FENCE);
        if (d0 + DK < D) FETCH_ELEMENTS(at, d0 + DK)
        else FETCH_VALUES(at, 0)
        multiply_keys(x, l, i);
        if (d0 + DK == D) {
            score_tile(x, l, c, i, k0);
            put_most(x, l, i);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    raise(online, l, c);
    barrier(CLK_LOCAL_MEM_FENCE);
    weigh(x, l, i);
    rescale(s, l, i);
    if (!online) stop_rows(l);
    for (uint v0 = 0, left = min(end - k0, TK); v0 < left; v0 += VK) {
        KEEP_VALUES(at, v0)
        barrier(CLK_LOCAL_MEM_FENCE);
        if (v0 + VK < left) FETCH_VALUES(at, v0 + VK)
        else FETCH_ELEMENTS(next, 0)
        if (v0 == 0) add_weights(l);
        if (alone) multiply_values(s, l, i, v0);
        else multiply_apart(s, l, i, v0);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

/* Rows of a run that is another work-group's are padding. */
static void leave_rows(const local_room *l, const call_t *c, const block *b, uint m, uint stop)
{
    uint r = get_local_id(0), row = b->m0 + r / c->HB;
    if (r < R && row >= m && row < stop) l->q_at[r] = NONE;
}

/* All keys of a block, by a running maximum or relative to base; left: only for rows that left. */
static INLINE void attend(const bool online, bool left, sums *s, const local_room *l, const call_t *c, const block *b,
                          const __global act_t *q, const item_t *i, uint part, uint share)
{
    __local ulong *at = l->at, *other = l->at + TK;
    held of_item, *h = &of_item;
    clear_sums(s, l, c, online);
    for (uint m = b->m0, run = 0; m < b->m_end; run++) { /* runs of rows of one sequence */
        const __global int *page = c->pages + c->indptr[c->seq[m]];
        sight any;
        const uint first = m;
        barrier(CLK_LOCAL_MEM_FENCE); /* all know where the run before ended */
        m = look_at_run(&any, l, c, b, left, m);
        bool alone = first == b->m0 && m == b->m_end;
        bool own = run % share == part;
        int k0 = next_seen(any, 0, TK), end = own ? any.last + 1 : 0;
        if (!own) leave_rows(l, c, b, first, m);
        barrier(CLK_LOCAL_MEM_FENCE);
        find_tile(at, l, c, page, k0, end, b->kvh);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (k0 < end) FETCH_ELEMENTS(at, 0)
        for (int next; k0 < end; k0 = next) {
            next = next_seen(any, k0 + TK, TK);
            find_tile(other, l, c, page, next, end, b->kvh);
            attend_tile(online, s, h, l, c, q, i, at, other, k0, end, alone);
            if (!online) end = end_of_rows(l, end);
            __local ulong *t = at;
            at = other, other = t;
        }
    }
}

/* Of the rows that left, or of the others. */
static INLINE void write_rows(const sums *s, const local_room *l, const call_t *c, const block *b, const item_t *i,
                              bool left, OUT_ACT(o), uint o_stride)
{
    FULLY
    for (uint n = 0; n < C4; n++) {
        uint column = i->column + n * CG;
        FULLY
        for (uint t = 0; t < RT; t++) {
            uint r = i->row + t, m = b->m0 + r / c->HB, head = b->kvh * b->heads + b->hb * c->HB + r % c->HB;
            if (column >= D4 || l->q_at[r] == NONE || IS_LEFT(l, r) != left) continue;
            write_four(o_base, o_off, o_half, (ulong)m * o_stride + head * D + 4 * column, s->acc[t][n],
                       with_sink(&c->mask, l->row_sum[r], NATURAL(l->row_max[r]), head));
        }
    }
}

#if ASYNC
/* Which rows are to be computed again: also those whose largest score is too small. */
static void judge_rows(const local_room *l, const call_t *c, const block *b)
{
    uint r = get_local_id(0);
    if (r < R && l->q_at[r] != NONE) judge_row(l, c, b, r, l->most[r]);
}

/* A block by the given maximum; then those of its rows that it does not suit by a running one. Whether there are any is
 * read just behind a barrier: PoCL takes the way that the first work-item takes from there for all. */
static INLINE void attend_twice(sums *s, const local_room *l, const call_t *c, const block *b, const __global act_t *q,
                                const item_t *i, uint part, uint share, OUT_ACT(o), uint o_stride, IN(count))
{
    uint ways = 1;
    clear_left(l);
    if (get_local_id(0) < R) l->most[get_local_id(0)] = -INFINITY;
    for (uint again = 0; again < ways; again++) {
        attend(again, again, s, l, c, b, q, i, part, share);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (!again) judge_rows(l, c, b);
        barrier(CLK_LOCAL_MEM_FENCE);
        write_rows(s, l, c, b, i, again, o_base, o_off, o_half, o_stride);
        if (!again) count_left(l, count_base, count_off);
        barrier(CLK_LOCAL_MEM_FENCE); /* the maxima are written again */
        ways = 1 + *l->some_left;
    }
}
#endif

KERNEL void attention_flash(IN(q), IN(kp), IN(vp), IN(seq), IN(pos), IN(indptr), IN(pages),
                            OUT_ACT(o), uint M, uint Hq, uint Hkv, uint P,
                            uint page_stride, uint q_stride, uint o_stride, float scale WINDOW_ARGS, uint BR,
                            uint HB, uint share ASYNC_ARGS)
{
    const call_t c = CALL(BR, 1);
    __local float4 factors[FLASH_FACTORS(R, TK, DK) / 4], values[VK * D4], part[KG * (R4 + 1)];
    __local float of_rows[3 * R];
    __local ulong at[2 * TK], q_at[R];
    __local sight seen[R];
    __local uint longest;
    __local float *q = (__local float *)factors;
#define ROOM                                                                                                           \
    q, q + DK * R, q, (__local float *)values, part, of_rows, of_rows + R, of_rows + 2 * R, at, q_at, seen
#if ASYNC
    __local float most[R];
    __local uint left[R], some_left;
    const local_room l = {ROOM, most, left, &some_left};
#else
    const local_room l = {ROOM};
#endif
    const uint lid = get_local_id(0), heads = Hq / Hkv, head_blocks = (heads + HB - 1) / HB, blocks = (M + BR - 1) / BR;
    const item_t i = {lid / CG * RT, lid % CG % KG * 4, lid % CG};

    for (uint turn = get_group_id(0); turn < blocks * Hkv * head_blocks * share;
         turn += get_num_groups(0)) {
        uint part = turn % share, hb = turn / share % head_blocks, of_block = turn / share / head_blocks;
#if WINDOWS
        find_head(&longest, c.mask.windows, Hkv, heads, of_block / blocks);
        barrier(CLK_LOCAL_MEM_FENCE);
        uint kvh = longest, m0 = (blocks - 1 - of_block % blocks) * BR;
#else
        uint kvh = of_block % Hkv, m0 = (blocks - 1 - of_block / Hkv) * BR;
#endif
        const block b = {m0, min(m0 + BR, M), kvh, hb, heads, 0, 0, INT_MAX};
        sums s;
        find_rows(&l, &b, HB, q_stride);
#if ASYNC
        attend_twice(&s, &l, &c, &b, IN_AT(act_t, q), &i, part, share, o_base, o_off, o_half, o_stride, count_base,
                     count_off);
#else
        attend(true, false, &s, &l, &c, &b, IN_AT(act_t, q), &i, part, share);
        write_rows(&s, &l, &c, &b, &i, false, o_base, o_off, o_half, o_stride);
#endif
        barrier(CLK_LOCAL_MEM_FENCE); /* where rows begin is written again */
    }
}
