/* attention_decode: softmax(q . k * scale) v over paged keys, of few rows of each sequence: a work-group takes one
 * row's query heads of a KV head, H = R at most, and one chunk of its keys, and a second launch merges the chunks
 * (attention/chunk_sums.clh). Where chunks end depends on the row alone, and so do its bits.
 *
 * Keys and values go from memory to registers, E elements a work-item: T work-items have a key, S keys are read at
 * once, and U of each work-item's are on their way together. For each tile of TK keys:
 *
 *   products of E elements --> local; keys of the next tile are read
 *   their sums, scores, and the largest of each work-item's --> local
 *   weights 2^(score - maximum) --> local
 *   H heads' sums += weight * value; values of the next tile are read
 *
 * with a running maximum per head. At the end the sums that S work-items have of the same columns are added. Keys that
 * no head sees are not read; one that only other heads see weighs 0.
 *
 * WINDOWS 1: each query head has a window (attention/mask.clh). Tiles that no head sees are left out, and KV heads are
 * done in the order of the longest windows of their query heads: the longest first, so that the device is full to the
 * end.
 *
 * Knobs: D (head size); E (8 or 4, divides D; keys and values are aligned to as many); R (a power of two, at most WG /
 * 4); TK (a power of two, divides CHUNK); CHUNK, GROWS. T = D / E work-items at most WG. Local memory:
 * DECODE_LOCAL_BYTES (local_bytes.clh).
 */
#include "common.clh"
#include "local_bytes.clh"
#include "attention/mask.clh"
#include "kv/f16.clh"
#ifndef D
#define D     64
#define E     8
#define R     4
#define TK    64
#define CHUNK 64
#define GROWS 1024
#endif
#ifndef UNROLL
#define UNROLL 1
#endif
#if UNROLL
#define FULLY _Pragma("unroll")
#else
#define FULLY _Pragma("unroll 1")
#endif

#define ASYNC 0
#define H     R
#define LOG2E 1.44269504f
#define T     (D / E)
#define S     (WG / T)
#define U     ((TK + S - 1) / S)
#define KEYS  (S * U)    /* with those behind the tile, which nobody sees */
#define BLOCK DECODE_BLOCK(TK, WG)
#define ROOM  (BLOCK + KEYS - TK)
#define PITCH DECODE_PITCH(T)
#define SHARE (WG / H)   /* work-items of a head, for scores */
#define OWN   ((KEYS + SHARE - 1) / SHARE)
#define AT_A_TIME (H < 2 ? H : 2) /* heads whose sums meet */

#if E == 8
typedef uint4 raw_t;
typedef float8 some_t;
#define READ(pool, at) kv_read8(pool, at)
#define NUMBERS(raw)   kv_numbers8(raw)
#define PRODUCT(a, b)                                                                                              \
    MAD((a).s7, (b).s7, MAD((a).s6, (b).s6, MAD((a).s5, (b).s5, MAD((a).s4, (b).s4, PRODUCT4(a, b)))))
#else
typedef uint2 raw_t;
typedef float4 some_t;
#define READ(pool, at) kv_read4(pool, at)
#define NUMBERS(raw)   kv_numbers4(raw)
#define PRODUCT(a, b)  PRODUCT4(a, b)
#endif
#define PRODUCT4(a, b) MAD((a).s3, (b).s3, MAD((a).s2, (b).s2, MAD((a).s1, (b).s1, (a).s0 * (b).s0)))

typedef struct local_room {
    __local float *products; /* [KEYS][H][PITCH]; at the end sums, [AT_A_TIME][S][D] */
    __local float *weights;  /* [KEYS][H] */
    __local float *most;     /* [H][SHARE]; at the end sums of weights */
    __local float *alpha;    /* of heads: what the last maximum made of their sums */
    __local ulong *at;       /* where keys begin, of two blocks of tiles, known long before they are read */
    __local sight *seen;
} local_room;
#include "attention/blocks.clh"
#include "attention/chunk_sums.clh"

/* A work-item's keys of a tile, the first of S apart, and its elements; its head, for scores, and the first of its
 * keys, SHARE apart. What is over of a work-group has the keys of others, and stores the same. */
typedef struct item_t {
    uint key, part, head, own;
} item_t;

/* What a work-item adds up: some columns of H heads; weights of its own head, and their maximum. */
typedef struct sums {
    some_t acc[H];
    float sum, most;
} sums;

/* Where the keys k0 to k0 + ROOM - 1 of a sequence begin in the pools; of those that no head sees, whose weight is 0:
 * where the last one does that it sees. */
static void find_keys(__local ulong *at, const call_t *c, const __global int *page, sight any, int k0, int end,
                      uint kvh)
{
    for (int j = get_local_id(0); j < ROOM; j += WG) {
        int key = k0 + j;
        at[j] = place_of(c, page, key < end && sees(any, key) ? key : any.last, kvh);
    }
}

static INLINE void read_tile(raw_t raw[U], const __global uchar *pool, const __local ulong *at, const item_t *i)
{
    FULLY
    for (uint u = 0; u < U; u++) raw[u] = READ(pool, at[i->key + u * S] + i->part * E);
}

static some_t read_q(const __global act_t *q)
{
#if E == 8
    return (some_t)(ACT_LOAD(q, 0), ACT_LOAD(q, 1), ACT_LOAD(q, 2), ACT_LOAD(q, 3), ACT_LOAD(q, 4), ACT_LOAD(q, 5),
                    ACT_LOAD(q, 6), ACT_LOAD(q, 7));
#else
    return (some_t)(ACT_LOAD(q, 0), ACT_LOAD(q, 1), ACT_LOAD(q, 2), ACT_LOAD(q, 3));
#endif
}

/* The row's heads; padding repeats the last. */
static INLINE void load_q(some_t q[H], const __global act_t *rows, uint q_stride, const call_t *c, const block *b,
                          const item_t *i)
{
    FULLY
    for (uint h = 0; h < H; h++) {
        uint head = b->kvh * b->heads + min(b->hb * c->HB + h, b->heads - 1);
        q[h] = read_q(rows + (ulong)b->m0 * q_stride + head * D + i->part * E);
    }
}

static INLINE void multiply_keys(const local_room *l, const some_t q[H], const raw_t raw[U], const item_t *i)
{
    FULLY
    for (uint u = 0; u < U; u++) {
        some_t k = NUMBERS(raw[u]);
        __local float *to = l->products + (i->key + u * S) * (H * PITCH) + i->part;
        FULLY
        for (uint h = 0; h < H; h++) to[h * PITCH] = PRODUCT(q[h], k);
    }
}

/* The score of the work-item's head and a key of the tile that begins at k0. */
static float score(const local_room *l, const call_t *c, sight seen, const item_t *i, int k0, uint j)
{
    const __local float *p = l->products + (j * H + i->head) * PITCH;
    float x = 0;
#if T % 4
#pragma unroll
    for (uint t = 0; t < T; t++) x += p[t];
#else
    float4 sum = (float4)(0);
#pragma unroll
    for (uint t = 0; t < T; t += 4) sum += *(const __local float4 *)(p + t);
    x = (sum.x + sum.y) + (sum.z + sum.w);
#endif
    return j < TK && sees(seen, k0 + (int)j) ? capped(&c->mask, x * c->scale) * LOG2E : -INFINITY;
}

static INLINE void score_tile(float x[OWN], const local_room *l, const call_t *c, sight seen, const item_t *i, int k0)
{
    float most = -INFINITY;
    FULLY
    for (uint n = 0; n < OWN; n++) {
        uint j = i->own + n * SHARE;
        x[n] = -INFINITY;
        if (j < KEYS) x[n] = score(l, c, seen, i, k0, j);
        most = fmax(most, x[n]);
    }
    l->most[i->head * SHARE + i->own] = most;
}

/* The work-item's weights, and the maximum with this tile. */
static INLINE void weigh_tile(sums *s, float x[OWN], const local_room *l, const item_t *i)
{
    float most = s->most, sum = 0;
    const __local float4 *others = (const __local float4 *)(l->most + i->head * SHARE);
#pragma unroll
    for (uint n = 0; n < SHARE / 4; n++) {
        float4 m = others[n];
        most = fmax(fmax(fmax(most, m.x), fmax(m.y, m.z)), m.w);
    }
    float alpha = POWER(s->most - most);
    FULLY
    for (uint n = 0; n < OWN; n++) {
        uint j = i->own + n * SHARE;
        float p = POWER(x[n] - most);
        sum += p;
        if (j < KEYS) l->weights[j * H + i->head] = p;
    }
    s->sum = MAD(s->sum, alpha, sum);
    s->most = most;
    if (i->own == 0) l->alpha[i->head] = alpha;
}

static INLINE void weights_of(float w[H], const __local float *from)
{
#if H % 4 == 0
    FULLY
    for (uint h = 0; h < H; h += 4) {
        float4 w4 = *(const __local float4 *)(from + h);
        w[h] = w4.x, w[h + 1] = w4.y, w[h + 2] = w4.z, w[h + 3] = w4.w;
    }
#else
    for (uint h = 0; h < H; h++) w[h] = from[h];
#endif
}

static INLINE void add_values(sums *s, const local_room *l, const raw_t raw[U], const item_t *i)
{
    float w[H];
    bool same = true;
    weights_of(w, l->alpha);
    FULLY
    for (uint h = 0; h < H; h++) same = same && w[h] == 1;
    if (!same) /* which maxima soon are, for good */
        FULLY
        for (uint h = 0; h < H; h++) s->acc[h] *= w[h];
    FULLY
    for (uint u = 0; u < U; u++) {
        some_t v = NUMBERS(raw[u]);
        weights_of(w, l->weights + (i->key + u * S) * H);
        FULLY
        for (uint h = 0; h < H; h++) s->acc[h] = MAD((some_t)(w[h]), v, s->acc[h]);
    }
}

/* The keys of a chunk that the row sees. */
static INLINE void attend(sums *s, const local_room *l, const call_t *c, const block *b, sight any, sight seen,
                          const some_t q[H], const item_t *i)
{
    const __global int *page = c->pages + c->indptr[c->seq[b->m0]];
    int k0 = next_seen(any, b->begin, TK), end = min(any.last + 1, b->stop);
    __local ulong *found = l->at, *at = found;
    raw_t keys[U], values[U];
    int found_at = k0, next = next_seen(any, k0 + TK, TK);
    FULLY
    for (uint h = 0; h < H; h++) s->acc[h] = (some_t)(0);
    s->sum = 0, s->most = NO_MAX;
    if (k0 >= end) return;
#define FIND(key)                                                                                  \
    if ((key) < end && (key) >= found_at + BLOCK) {                                                \
        found = found == l->at ? l->at + ROOM : l->at, found_at = (key);                           \
        find_keys(found, c, page, any, found_at, end, b->kvh);                                     \
    }
    find_keys(found, c, page, any, k0, end, b->kvh);
    FIND(next)
    barrier(CLK_LOCAL_MEM_FENCE);
    read_tile(keys, c->kp, at, i);
    read_tile(values, c->vp, at, i);
    at = found + (next - found_at);
    for (int after; k0 < end; k0 = next, next = after) {
        float x[OWN];
        multiply_keys(l, q, keys, i);
        if (next < end) read_tile(keys, c->kp, at, i);
        barrier(CLK_LOCAL_MEM_FENCE);
        after = next_seen(any, next + TK, TK);
        FIND(after)
        score_tile(x, l, c, seen, i, k0);
        barrier(CLK_LOCAL_MEM_FENCE);
        weigh_tile(s, x, l, i);
        barrier(CLK_LOCAL_MEM_FENCE);
        add_values(s, l, values, i);
        if (next < end) read_tile(values, c->vp, at, i);
        at = found + (after - found_at);
    }
#undef FIND
}

/* Sums of heads h0 to h0 + AT_A_TIME - 1, which S work-items have of the same columns. */
static INLINE void put_sums(const local_room *l, const sums *s, uint h0, const item_t *i)
{
    FULLY
    for (uint h = 0; h < H; h++) {
        if (h / AT_A_TIME * AT_A_TIME != h0) continue;
        __local float4 *to = (__local float4 *)(l->products + ((h % AT_A_TIME * S + i->key) * D + i->part * E));
#if E == 8
        to[0] = s->acc[h].lo, to[1] = s->acc[h].hi;
#else
        to[0] = s->acc[h];
#endif
    }
}

/* To the scratch buffer, behind put_sums of all. */
static void write_sums(__global float *scratch, const local_room *l, const call_t *c, const block *b, uint h0)
{
    for (uint n = get_local_id(0); n < AT_A_TIME * (D / 4); n += WG) {
        uint h = n / (D / 4), d4 = n % (D / 4), head = b->hb * c->HB + h0 + h;
        const __local float4 *from = (const __local float4 *)l->products + h * (S * (D / 4)) + d4;
        float4 sum = from[0];
        for (uint k = 1; k < S; k++) sum += from[k * (D / 4)];
        if (h0 + h >= c->HB || head >= b->heads) continue;
        __global float4 *to = (__global float4 *)partial_of(scratch, (ulong)b->m0 * c->Hq + b->kvh * b->heads + head,
                                                            c->chunks, b->chunk);
        to[d4] = sum;
    }
}

/* A head's weights together and their maximum, behind all sums in l->most. */
static void write_state(__global float *scratch, const local_room *l, const call_t *c, const block *b, const sums *s,
                        const item_t *i)
{
    uint head = b->hb * c->HB + i->head;
    float sum = 0;
    if (i->own || i->head >= c->HB || head >= b->heads) return;
    for (uint n = 0; n < SHARE; n++) sum += l->most[i->head * SHARE + n];
    __global float *to =
        partial_of(scratch, (ulong)b->m0 * c->Hq + b->kvh * b->heads + head, c->chunks, b->chunk) + D;
    to[0] = sum, to[1] = s->most;
}

/* Not of a chunk whose keys no head sees: nobody reads its sums. */
static INLINE void write_chunk(__global float *scratch, const local_room *l, const call_t *c, const block *b,
                               const sums *s, const item_t *i, bool some)
{
    for (uint h0 = 0; h0 < (some ? H : 0); h0 += AT_A_TIME) {
        put_sums(l, s, h0, i);
        if (h0 == 0) l->most[i->head * SHARE + i->own] = s->sum;
        barrier(CLK_LOCAL_MEM_FENCE);
        write_sums(scratch, l, c, b, h0);
        if (h0 == 0) write_state(scratch, l, c, b, s, i);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

KERNEL void attention_decode(IN(q), IN(kp), IN(vp), IN(seq), IN(pos), IN(indptr), IN(pages),
                             OUT_ACT(o), uint M, uint Hq, uint Hkv, uint P,
                             uint page_stride, uint q_stride, uint o_stride, float scale WINDOW_ARGS, uint HB,
                             __global float *scratch, uint chunks, uint pass)
{
    const call_t c = CALL(1, chunks);
    if (pass == 1) {
        merge_chunks(scratch, &c, o_base, o_off, o_half, o_stride);
        return;
    }
    __local float4 products[DECODE_PRODUCTS(D, E, H, KEYS, WG) / 4 + 1], weights[(KEYS * H + 3) / 4];
    __local float4 alpha[(H + 3) / 4], most[WG / 4];
    __local ulong at[2 * ROOM];
    __local sight seen[R];
    __local uint longest;
    const local_room l = {
        (__local float *)products, (__local float *)weights, (__local float *)most, (__local float *)alpha, at, seen};
    const uint lid = get_local_id(0), heads = Hq / Hkv, head_blocks = (heads + HB - 1) / HB;
    const item_t i = {min(lid / T, (uint)S - 1), lid % T, lid % H, lid / H};

    for (uint turn = get_group_id(0); turn < M * Hkv * head_blocks * chunks; turn += get_num_groups(0)) {
        uint work = turn / chunks, of_block = work / head_blocks;
#if WINDOWS
        find_head(&longest, c.mask.windows, Hkv, heads, of_block / M);
        barrier(CLK_LOCAL_MEM_FENCE);
        uint kvh = longest, m = of_block % M;
#else
        uint kvh = of_block % Hkv, m = of_block / Hkv;
#endif
        int begin = chunk_begins(turn % chunks), stop = begin + chunk_size(begin);
        const block b = {m, m + 1, kvh, work % head_blocks, heads, turn % chunks, begin, stop};
        sight any;
        some_t own[H];
        sums s;
        see_by_block(&c, &b, c.pos[m], &any);
        load_q(own, IN_AT(act_t, q), q_stride, &c, &b, &i);
        attend(&s, &l, &c, &b, any, sight_of(&c.mask, c.pos[m], kvh * heads + min(b.hb * HB + i.head, heads - 1)), own,
               &i);
        write_chunk(scratch, &l, &c, &b, &s, &i, sees_any(any, begin, stop));
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
