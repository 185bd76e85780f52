/* attention_split: softmax(q . k * scale) v over paged keys for few rows of many sequences, on NVIDIA's matrix
 * units. All keys of all rows form one work list of tiles, which is cut evenly: each work-group gets the same amount,
 * however lengths are mixed, and one long sequence uses the whole device.
 *
 *   row 0, KV head 0 | row 0, KV head 1 | ... | row 1, KV head 0 | ...      a (row, KV head) item: 16 keys a tile
 *   |--- work-group 0 ---|--- work-group 1 ---|--- work-group 2 ---|
 *
 * Up to 8 query heads of a KV head are the columns of one product, so that keys and values are read once:
 *
 *   S^T [16 keys, 8] = K Q^T      K is the left operand as it lies in memory: 16 bytes of a key a lane, the
 *                                 order of D within the sum being free as long as Q has the same
 *   P^T [16 keys, 8]              in f16, transposed between lanes by movmatrix
 *   O^T [D, 8] += V^T P^T         V^T from 16 bytes of a value a lane, two keys' halves joined by prmt
 *
 * so that only sums pass through local memory; the next tile's keys are loaded while this one is multiplied.
 *
 * The warps compute a chunk of an item from empty sums, bring these to one maximum and fold them into the item's total. Of an
 * item that several work-groups share, the one that begins it leaves its total in the scratch buffer, the others each chunk's
 * sums, and the last group to arrive (a counter tells) folds them in the order of the keys.
 *
 *   CHUNK 0: a chunk is what a group has of an item; groups begin where the work list is cut. The same call gives the same bits;
 *            another batch cuts elsewhere, so a row's last bits may depend on it.
 *   CHUNK n: chunks begin at multiples of n tiles from key 0 (further on, of more: chunk_size), and groups at chunks. A row's bits
 *            depend neither on the number of work-groups nor on the batch.
 *
 * WINDOWS 1: each KV head has a window (attention/mask.clh), and the work list holds only tiles of which the row sees some key: of each
 * row and KV head those of the sink and of the window. Other kernels order the heads by length to balance the work-groups;
 * cutting the work list evenly makes that unnecessary.
 *
 * Maximum of a row: synchronous, it is raised when a score exceeds it by 2^RESCALE_THRESHOLD, and sums are rescaled.
 * ASYNC 1: it is given (base: such that the largest admissible score gives 2^15) and sums are just added. A row
 * whose largest score leaves (low, 15), relative to base, is computed again in the synchronous way, by
 * the group that finds out; count, if there is one, is raised by 1 for each such row and head.
 *
 * Scratch: counters (COUNTERS of them, 0 between launches), then partial results, each 8 * D sums and 8 pairs (maximum, sum):
 * one for each group, of the item that it begins and does not end, then `slots` for each group, of chunks.
 *
 * Knobs: D (head size, a multiple of 16), TP (16-token tiles a page), ASYNC, WINDOWS, CHUNK (0, or tiles, a power of two, at least
 * WARPS), GROWS (tiles, CHUNK times a power of two). WG: a multiple of 32. Pools are aligned to 16 bytes, q is F16.
 */
#ifndef WG
#define WG 128
#endif
#include "common.clh"
#include "nvidia.clh"
#include "attention/mask.clh"
#include "attention/merge.clh"
#include "attention/softmax.clh"
#include "kv/f16.clh"
#ifndef D
#define D 128
#endif
#ifndef TP
#define TP 1
#endif
#ifndef ASYNC
#define ASYNC 0
#endif
#ifndef CHUNK
#define CHUNK 16
#define GROWS 2048
#endif

#define WARPS (WG / 32)
#define KW (D / 8)  /* words of a key that a lane holds: 4 lanes a key */
#define VW (D / 16) /* words of a value that a lane holds: 8 lanes a value */
#define PAIR (2 * D + 4) /* of two heads in local memory: so far apart that lanes write to other banks */
#define WARP_SUMS (4 * PAIR)
#define BUFFERS (2 * WARPS * (WARP_SUMS + 16) * 4 > 48 << 10 ? 1 : 2)
#define PER_ITEM ((2 * D + WG - 1) / WG) /* times 4 sums of an item that a work-item adds up */
#define FOUR(floats, i) (*(__local const float4 *)((floats) + (i)))
#define COUNTERS 4096
#define PARTIAL (8 * (D + 2)) /* floats */
#define START 4u /* tiles that would take as long as the start and the end of an item */
#define LEAST (START + WARPS) /* length that a group is worth starting for */
#define WHOLE 20u /* up to this length on average each group has a whole item: sharing one takes longer than computing it */
#define INLINE __attribute__((always_inline))
#define AT_ONCE 12 /* partial results read before they are added */

/* Length of a row's items in the work list: its tiles, after as many as its start and end cost. */
uint length_of(int pos)
{
    return START + ((uint)max(pos + 16, 0) >> 4);
}

/* What the row of an item sees. */
typedef struct item_sight {
    sight row;
#if WINDOWS
    uint sink_tiles, hidden; /* tiles that every row sees; tiles of which this one sees nothing, behind those */
#endif
} item_sight;

#if WINDOWS
uint hidden_tiles(sight row)
{
    return (uint)max(row.after / 16 - (row.sink + 15) / 16, 0);
}

/* The tile of the row that is number t of those that it sees. */
uint tile_of_row(const item_sight *s, uint t)
{
    return t + (t < s->sink_tiles ? 0 : s->hidden);
}
#else
uint tile_of_row(const item_sight *s, uint t)
{
    return t;
}
#endif

/* ---- chunks ------------------------------------------------------------------------------------------------------ */

/* Here t, from, to, ... are numbers of tiles among those that a row sees. A place is one in the length of an item. */

#if !CHUNK
/* Where the chunk ends in which t lies, of so many tiles. */
uint chunk_end(const item_sight *s, uint t, uint tiles)
{
    return tiles;
}

/* Which tile is at a place. */
uint cut_at(const item_sight *s, uint place, uint tiles)
{
    return min(max(place, START) - START, tiles);
}

/* The first place of an item that has tiles: whose it is begins the item. */
uint first_place(const item_sight *s, uint tiles)
{
    return START;
}
#else
/* Tiles of the chunk in which a tile lies; chunks begin at multiples of it. Further on they are wider, so that there are
 * not too many partial results of a long row. */
uint chunk_size(uint tile)
{
    uint size = CHUNK;
    for (uint until = GROWS; tile >= until; until *= 4) size *= 2;
    return size;
}

/* Chunks of a row before the one in which a tile lies. */
uint chunks_before(uint tile)
{
    uint n = 0, size = CHUNK, from = 0;
    for (uint until = GROWS; tile >= until; until *= 4) {
        n += (until - from) / size;
        from = until;
        size *= 2;
    }
    return n + (tile - from) / size;
}

#if WINDOWS
/* Those before a tile of the row. */
uint seen_before(const item_sight *s, uint tile)
{
    return tile <= s->sink_tiles ? tile : (uint)max((int)s->sink_tiles, (int)(tile - s->hidden));
}

/* Chunks, of those that the row sees, before the one in which t lies. */
uint chunk_number(const item_sight *s, uint t)
{
    uint n = chunks_before(tile_of_row(s, t));
    if (t < s->sink_tiles) return n;
    uint seen = s->sink_tiles ? chunks_before(s->sink_tiles - 1) + 1 : 0, behind = chunks_before(s->sink_tiles + s->hidden);
    return n - (uint)max((int)(behind - seen), 0);
}
#else
uint seen_before(const item_sight *s, uint tile)
{
    return tile;
}

uint chunk_number(const item_sight *s, uint t)
{
    return chunks_before(t);
}
#endif

/* Where the chunk begins in which t lies, and where it ends in a row of so many tiles. */
uint chunk_begin(const item_sight *s, uint t)
{
    uint tile = tile_of_row(s, t);
    return seen_before(s, tile & -chunk_size(tile));
}

uint chunk_end(const item_sight *s, uint t, uint tiles)
{
    uint tile = tile_of_row(s, t), size = chunk_size(tile);
    return min(tiles, seen_before(s, (tile & -size) + size));
}

/* The place of a chunk: the work-group that has it computes the chunk. */
uint chunk_place(uint from, uint to)
{
    return START - 1 + (from + to + 1) / 2;
}

/* Where the chunks begin whose place is `place` or a later one; tiles: nowhere. */
uint cut_at(const item_sight *s, uint place, uint tiles)
{
    if (place >= START + tiles) return tiles;
    uint t = max(place, START) - START, from = chunk_begin(s, t), to = chunk_end(s, t, tiles);
    return chunk_place(from, to) >= place ? from : to;
}

uint first_place(const item_sight *s, uint tiles)
{
    return chunk_place(0, chunk_end(s, 0, tiles));
}
#endif

/* x * y / z; most calls are small enough for 32 bits. */
ulong part_of(ulong x, ulong y, ulong z)
{
    ulong xy = x * y;
    return xy < 1ul << 32 ? (uint)xy / (uint)z : xy / z;
}

/* A work-item: its warp, and which row and which columns of a fragment it has. */
typedef struct lane_t {
    uint lid, warp, g, quad;
} lane_t;

/* An item's queries, as the lanes hold them. */
typedef struct query {
    uint words[KW], heads;
    float scale; /* for scores in powers of two */
} query;

/* Columns of Q for the lane that holds row i % 32 / 4 of a fragment: the words of one head. */
void load_q(uint *words, const __global half *q, uint lane4, bool aligned)
{
    if (aligned) {
#pragma unroll
        for (uint w = 0; w < KW; w += 2) {
            uint2 pair = *(const __global uint2 *)(q + kv_word_at(w, KW, lane4, 4));
            words[w] = pair.x;
            words[w + 1] = pair.y;
        }
    } else {
        const __global ushort *h = (const __global ushort *)q;
#pragma unroll
        for (uint w = 0; w < KW; w++) {
            uint at = kv_word_at(w, KW, lane4, 4);
            words[w] = h[at] | (uint)h[at + 1] << 16;
        }
    }
}

/* ---- rows ----------------------------------------------------------------------------------------------------- */

/* Each lane stands for a run of rows. Where that is one row at most, lanes keep what all will need of it, rather than wait for it
 * later. */
typedef struct rows_t {
    const __global int *pos, *seq, *indptr, *pages;
    uint M, run, kept_pos, kept_page;
    mask_t mask;
    uint Hkv;
} rows_t;

/* Of one item of a row at pos; with windows, of one of each KV head. */
uint row_length(const rows_t *r, int pos)
{
#if WINDOWS
    uint sum = 0;
    for (uint h = 0; h < r->Hkv; h++) sum += length_of(pos) - hidden_tiles(sight_of(&r->mask, pos, h));
    return sum;
#else
    return length_of(pos);
#endif
}

/* Length of the lane's rows. */
INLINE uint lane_length(rows_t *r, uint lane)
{
    uint own = 0;
    if (r->run == 1 && lane < r->M) {
        r->kept_pos = (uint)r->pos[lane];
        r->kept_page = (uint)r->indptr[r->seq[lane]];
        own = row_length(r, (int)r->kept_pos);
    }
    for (uint i = lane * r->run; r->run > 1 && i < min(r->M, (lane + 1) * r->run); i++) own += row_length(r, r->pos[i]);
    return own;
}

/* The row in which the work list is at `at`, in items of one KV head; *before: where that row begins. own, upto: length of the lane's
 * rows, and of all up to them. */
INLINE uint find_row(const rows_t *r, uint at, uint own, uint upto, uint lane, uint *before)
{
    uint m = lane * r->run, begin = upto - own;
    uint owner = 31 - clz(lanes_with(at >= begin && own)); /* the last one that begins before */
    if (lane == owner && r->run > 1)
        for (uint n; at >= begin + (n = row_length(r, r->pos[m])); m++) begin += n;
    *before = lane_at(begin, owner);
    return lane_at(m, owner);
}

INLINE int row_pos_of(const rows_t *r, uint m)
{
    return r->run == 1 ? (int)lane_at(r->kept_pos, m) : r->pos[m];
}

INLINE const __global int *row_page_of(const rows_t *r, uint m)
{
    return r->pages + (r->run == 1 ? (int)lane_at(r->kept_page, m) : r->indptr[r->seq[m]]);
}

/* ---- one warp, the tiles of an item ------------------------------------------------------------------------ */

/* Where the tiles of an item lie. */
typedef struct tiles {
    const __global half *k, *v;
    const __global int *page; /* of the row's sequence */
    uint page_stride, kvh, P;
    uint from, to; /* of this work-group */
} tiles;

/* Keys and values of a tile, as the lanes hold them: keys g and g + 8; values 2 quad, the next, and both 8 further. */
typedef struct keys_t {
    uint k0[KW], k1[KW];
} keys_t;
typedef struct values_t {
    uint a[VW], b[VW], c[VW], d[VW];
} values_t;

/* A warp's sums over its tiles. Of each pair, column 2 quad, then the next. */
typedef struct sums_t {
    float acc[VW][4];
    float seen_max[2], sum[2];
    float row_max[2]; /* what scores are taken relative to */
} sums_t;

ulong tile_at(const tiles *t, int page, uint tile)
{
    return (ulong)(uint)page * t->page_stride + (t->kvh * t->P + tile % TP * 16) * D;
}

int page_of(const tiles *t, uint tile)
{
    return t->page[tile / TP];
}

INLINE void load_keys(keys_t *r, const __global half *from, uint g, uint quad)
{
    KV_LOAD(KW, r->k0, from + g * D, quad, 4)
    KV_LOAD(KW, r->k1, from + (g + 8) * D, quad, 4)
}

INLINE void load_values(values_t *r, const __global half *from, uint g)
{
    KV_LOAD(VW, r->a, from, g, 8)
    KV_LOAD(VW, r->b, from + D, g, 8)
    KV_LOAD(VW, r->c, from + 8 * D, g, 8)
    KV_LOAD(VW, r->d, from + 9 * D, g, 8)
}

INLINE void clear_sums(sums_t *s, float row_max)
{
#pragma unroll
    for (int w = 0; w < VW; w++)
#pragma unroll
        for (int i = 0; i < 4; i++) s->acc[w][i] = 0;
    s->seen_max[0] = s->seen_max[1] = NO_MAX;
    s->row_max[0] = s->row_max[1] = row_max;
    s->sum[0] = s->sum[1] = 0;
}

/* S^T = K Q^T in two chains of sums: less to wait for. */
INLINE void multiply_keys(float s[2][4], const keys_t *k, const uint *qw)
{
#pragma unroll
    for (int i = 0; i < 4; i++) s[0][i] = s[1][i] = 0;
#pragma unroll
    for (int w = 0; w < KW; w += 2) MMA(s[w / 2 & 1], k->k0[w], k->k1[w], k->k0[w + 1], k->k1[w + 1], qw[w], qw[w + 1]);
}

/* Slots of others may hold NaN: their values become zeros. tile: of the row. */
INLINE void mask(float x[4], values_t *v, const item_sight *seen, uint tile, uint g, uint quad)
{
    int k = (int)(tile * 16 + g), v0 = (int)(tile * 16 + 2 * quad);
    if (!sees(seen->row, k)) x[0] = x[1] = -INFINITY;
    if (!sees(seen->row, k + 8)) x[2] = x[3] = -INFINITY;
#pragma unroll
    for (int w = 0; w < VW; w++) {
        if (!sees(seen->row, v0)) v->a[w] = 0;
        if (!sees(seen->row, v0 + 1)) v->b[w] = 0;
        if (!sees(seen->row, v0 + 8)) v->c[w] = 0;
        if (!sees(seen->row, v0 + 9)) v->d[w] = 0;
    }
}

/* The larger of both in all lanes of a column. */
INLINE float column_max(float x)
{
#pragma unroll
    for (uint xor_distance = 4; xor_distance < 32; xor_distance *= 2) x = fmax(x, lane_xor(x, xor_distance));
    return x;
}

/* Raises row maxima that a score exceeds by the threshold, and rescales. */
INLINE void raise(sums_t *s)
{
    float alpha[2];
    if (!lanes_with(exceeds(s->seen_max[0], s->row_max[0]) || exceeds(s->seen_max[1], s->row_max[1]))) return;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = raised(column_max(s->seen_max[i]), s->row_max[i]);
        alpha[i] = power_of_two(s->row_max[i] - top);
        s->sum[i] *= alpha[i];
        s->row_max[i] = top;
    }
#pragma unroll
    for (int w = 0; w < VW; w++)
#pragma unroll
        for (int i = 0; i < 4; i++) s->acc[w][i] *= alpha[i % 2];
}

/* O^T += V^T P^T, with P = 2^(x - maximum). */
INLINE void add_values(sums_t *s, float x[4], const values_t *v)
{
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = power_of_two(x[i] - s->row_max[i % 2]);
    s->sum[0] += x[0] + x[2];
    s->sum[1] += x[1] + x[3];
    uint p0 = transpose8(f16_pair(x[0], x[1])), p1 = transpose8(f16_pair(x[2], x[3]));
#pragma unroll
    for (int w = 0; w < VW; w++)
        MMA(s->acc[w], permute_bytes(v->a[w], v->b[w], 0x5410), permute_bytes(v->a[w], v->b[w], 0x7632),
            permute_bytes(v->c[w], v->d[w], 0x5410), permute_bytes(v->c[w], v->d[w], 0x7632), p0, p1);
}

/* A warp's way through the tiles of an item, one of WARPS: what was loaded of the next one. */
typedef struct stream {
    keys_t keys;
    ulong off; /* of the tile in the pools */
    int page;  /* of the tile after it */
    uint t;
} stream;

INLINE int page_seen(const tiles *of, const item_sight *seen, uint t)
{
    return page_of(of, tile_of_row(seen, min(t, of->to - 1)));
}

INLINE void start_stream(stream *s, const tiles *of, const item_sight *seen, const lane_t *me)
{
    s->t = of->from + ((me->warp - of->from) & (WARPS - 1));
    s->off = 0;
    s->page = 0;
    if (s->t >= of->to) return;
    s->off = tile_at(of, page_seen(of, seen, s->t), tile_of_row(seen, s->t));
    load_keys(&s->keys, of->k + s->off, me->g, me->quad);
    s->page = page_seen(of, seen, s->t + WARPS);
}

/* Goes on to the next tile, of which s->keys are still to be loaded. */
INLINE void advance(stream *s, const tiles *of, const item_sight *seen)
{
    s->t += WARPS;
    s->off = tile_at(of, s->page, tile_of_row(seen, min(s->t, of->to - 1)));
    s->page = page_seen(of, seen, s->t + WARPS);
}

/* The warp's tiles before `end`. Keys and page ids of the next tile are loaded while this one is multiplied. */
INLINE void attend(sums_t *sums, stream *s, const tiles *of, const item_sight *seen, const query *q, bool online, uint end, const lane_t *me)
{
    while (s->t < end) {
        values_t values;
        float products[2][4], x[4];
        uint tile = tile_of_row(seen, s->t);
        load_values(&values, of->v + s->off + 2 * me->quad * D, me->g);
        advance(s, of, seen);
        multiply_keys(products, &s->keys, q->words);
        if (s->t < of->to) load_keys(&s->keys, of->k + s->off, me->g, me->quad);
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = (products[0][i] + products[1][i]) * q->scale;
        if (!sees_all(seen->row, (int)tile * 16, (int)tile * 16 + 16)) mask(x, &values, seen, tile, me->g, me->quad);
        sums->seen_max[0] = fmax(sums->seen_max[0], fmax(x[0], x[2]));
        sums->seen_max[1] = fmax(sums->seen_max[1], fmax(x[1], x[3]));
        if (online) raise(sums);
        add_values(sums, x, &values);
    }
}

/* ---- a chunk's sums, and an item's total ------------------------------------------------------------------------- */

/* Sums of the warps: of each column, D of them and (maximum, sum); asynchronous: the largest score seen in place of the maximum. */
typedef struct shared_sums {
    __local float *sums; /* WARP_SUMS of each warp */
    __local float2 *state;
} shared_sums;

/* What a work-item adds up of an item's total, or of a chunk: four sums of a head, and the head's (maximum, sum), PER_ITEM times. */
typedef struct total_t {
    float4 sum[PER_ITEM];
    float2 state[PER_ITEM];
} total_t;

#define EACH_PART(n, col, d, heads, lid)                                                                                                   \
    _Pragma("unroll") for (uint n = 0; n < PER_ITEM; n++)                                                                                  \
        for (uint i_ = (lid) + n * WG, col = i_ / (D / 4), d = i_ % (D / 4) * 4, once_ = 1; once_ && col < (heads); once_ = 0)

uint column_at(uint col)
{
    return col / 2 * PAIR + col % 2 * D;
}

INLINE void clear_total(total_t *t)
{
#pragma unroll
    for (int n = 0; n < PER_ITEM; n++) {
        t->sum[n] = (float4)(0);
        t->state[n] = (float2)(NO_MAX, 0);
    }
}

/* A warp's sums to local memory. */
INLINE void share_sums(const shared_sums *to, sums_t *s, uint heads, bool online, const lane_t *me)
{
    __local float *mine = to->sums + me->warp * WARP_SUMS + me->quad * PAIR;
#pragma unroll
    for (uint xor_distance = 4; xor_distance < 32; xor_distance *= 2) {
        s->sum[0] += lane_xor(s->sum[0], xor_distance);
        s->sum[1] += lane_xor(s->sum[1], xor_distance);
    }
    if (ASYNC) {
        s->seen_max[0] = column_max(s->seen_max[0]);
        s->seen_max[1] = column_max(s->seen_max[1]);
    }
    if (me->g == 0) {
        to->state[me->warp * 8 + 2 * me->quad] = (float2)(online ? s->row_max[0] : s->seen_max[0], s->sum[0]);
        to->state[me->warp * 8 + 2 * me->quad + 1] = (float2)(online ? s->row_max[1] : s->seen_max[1], s->sum[1]);
    }
#pragma unroll
    for (int w = 0; w < VW; w++) {
        uint d = kv_word_at(w, VW, me->g, 8);
        if (2 * me->quad < heads) *(__local float2 *)(mine + d) = (float2)(s->acc[w][0], s->acc[w][2]);
        if (2 * me->quad + 1 < heads) *(__local float2 *)(mine + D + d) = (float2)(s->acc[w][1], s->acc[w][3]);
    }
}

/* Four sums of a head over the warps, and the head's maximum and sum. */
INLINE float4 add_warps(const shared_sums *from, uint col, uint d, bool online, float2 *state)
{
    float4 sum = (float4)(0);
    float top = NO_MAX, total = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) top = fmax(top, from->state[w * 8 + col].x);
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        float2 of_warp = from->state[w * 8 + col];
        float weight = online ? power_of_two(of_warp.x - top) : 1;
        sum += FOUR(from->sums, w * WARP_SUMS + column_at(col) + d) * weight;
        total += of_warp.y * weight;
    }
    *state = (float2)(top, total);
    return sum;
}

INLINE void write_partial(__global float *to, uint col, uint d, float4 sum, float2 state)
{
    *(__global float4 *)(to + col * D + d) = sum;
    if (d == 0) *(__global float2 *)(to + 8 * D + 2 * col) = state;
}

/* Folds the chunk into the total, or where its sums are kept apart, writes them there. */
INLINE void take_chunk(total_t *total, __global float *apart, const shared_sums *from, uint heads, bool online, const lane_t *me)
{
    EACH_PART(n, col, d, heads, me->lid)
    {
        float2 state;
        float4 sum = add_warps(from, col, d, online, &state);
        if (apart) write_partial(apart, col, d, sum, state);
        else merge(&total->sum[n], &total->state[n], sum, state, online);
    }
}

/* The tiles of the item that are this work-group's, chunk by chunk. turn: chunks so far, of all items. */
INLINE void sum_chunks(total_t *total, __global float *apart, uint *turn, const shared_sums *room, stream *s, const tiles *of, const item_sight *seen,
                       const query *q, float row_max, bool online, const lane_t *me)
{
    clear_total(total);
    for (uint from = of->from; from < of->to; ++*turn) {
        uint end = chunk_end(seen, from, of->to), buffer = *turn % BUFFERS * WARPS;
        shared_sums now = {room->sums + buffer * WARP_SUMS, room->state + buffer * 8};
        sums_t sums;
        clear_sums(&sums, row_max);
        attend(&sums, s, of, seen, q, online, end, me);
        share_sums(&now, &sums, q->heads, online, me);
        barrier(CLK_LOCAL_MEM_FENCE); /* with two buffers one is enough: all have read what the next chunk but one overwrites */
        take_chunk(total, apart, &now, q->heads, online, me);
        if (BUFFERS == 1) barrier(CLK_LOCAL_MEM_FENCE);
        if (apart) apart += PARTIAL;
        from = end;
    }
}

/* What all items have in common. */
typedef struct call_t {
    const __global half *q, *k, *v;
    uint q_stride, o_stride, page_stride, P, per_kv, blocks, items, slots;
    float scale, base, low;
    __global uint *counters;
} call_t;

/* An item: 8 heads at most of one row and one KV head. */
typedef struct item_t {
    uint m, number, length;
    ulong at; /* where it begins in the work list */
    int pos;
    const __global int *page;
    item_sight seen;
} item_t;

/* ---- items that several work-groups share --------------------------------------------------------------------- */

/* Where the work list is cut: how long it is, for how many groups. */
typedef struct list_t {
    ulong length;
    uint groups;
} list_t;

/* Where a group's part of the work list begins, and which group has the place. */
INLINE ulong begin_of(const list_t *l, uint group)
{
    return part_of(group, l->length, l->groups);
}

INLINE uint group_at(const list_t *l, ulong place)
{
    return (uint)part_of((place + 1) * l->groups - 1, 1, l->length);
}

/* Partial results of a shared item: the total of its first group, then the chunks that others compute. */
typedef struct partials {
    uint first; /* the group that begins the item */
    uint cut;   /* the first tile of the others */
    __global float *total, *chunks;
} partials;

INLINE partials find_partials(const list_t *l, const call_t *c, const item_t *it)
{
    partials p;
    uint tiles = it->length - START;
    __global float *all = (__global float *)(c->counters + COUNTERS);
    p.first = group_at(l, it->at + first_place(&it->seen, tiles));
    p.cut = CHUNK ? cut_at(&it->seen, (uint)(begin_of(l, p.first + 1) - it->at), tiles) : 0;
    p.total = all + (ulong)p.first * PARTIAL;
    p.chunks = all + (l->groups + (ulong)p.first * c->slots) * PARTIAL;
    return p;
}

/* Where the sums of this group's first chunk go, which begins at tile `from`. */
INLINE __global float *chunk_partial(const partials *p, const item_sight *seen, uint from)
{
#if CHUNK
    return p->chunks + (ulong)(chunk_number(seen, from) - chunk_number(seen, p->cut)) * PARTIAL;
#else
    return p->chunks + (ulong)(get_group_id(0) - p->first - 1) * PARTIAL;
#endif
}

/* How many chunks others have computed. */
INLINE uint count_chunks(const list_t *l, const partials *p, const item_t *it)
{
#if CHUNK
    return chunk_number(&it->seen, it->length - START - 1) + 1 - chunk_number(&it->seen, p->cut);
#else
    return group_at(l, it->at + it->length - 1) - p->first;
#endif
}

INLINE void write_total(__global float *to, const total_t *t, uint heads, const lane_t *me)
{
    EACH_PART(n, col, d, heads, me->lid) write_partial(to, col, d, t->sum[n], t->state[n]);
}

/* Four sums of a head of the item: the total of its first group, then n chunks. */
INLINE float4 add_partials(const partials *p, uint n, uint col, uint d, bool online, float2 *state)
{
    float4 sum;
    LD_SHARED4(sum, p->total + col * D + d);
    LD_SHARED2(*state, p->total + 8 * D + 2 * col);
    for (uint c = 0; c < n; c += AT_ONCE) {
        float4 add[AT_ONCE];
        float2 with[AT_ONCE];
#pragma unroll
        for (uint i = 0; i < AT_ONCE; i++) {
            const __global float *get = p->chunks + (ulong)min(c + i, n - 1) * PARTIAL;
            LD_SHARED4(add[i], get + col * D + d);
            LD_SHARED2(with[i], get + 8 * D + 2 * col);
        }
#pragma unroll
        for (uint i = 0; i < AT_ONCE; i++) { /* past the last one what changes nothing: a branch would hold up the others */
            bool is = c + i < n;
            merge(&sum, state, is ? add[i] : (float4)(-0.0f), is ? with[i] : (float2)(NO_MAX, -0.0f), online);
        }
    }
    return sum;
}

INLINE void gather(total_t *t, const partials *p, uint chunks, uint heads, bool online, const lane_t *me)
{
    EACH_PART(n, col, d, heads, me->lid) t->sum[n] = add_partials(p, chunks, col, d, online, &t->state[n]);
}

/* So many tiles of the item are done. Are they all, and is this the group to fold the chunks? */
INLINE bool is_last(__global uint *counter, __local uint *arrivals, uint done, uint tiles, uint lid)
{
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (lid == 0) *arrivals = arrive(counter, done);
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (*arrivals + done != tiles) return false;
    if (lid == 0) *counter = 0;
    return true;
}

/* ---- a row's result -------------------------------------------------------------------------------------------- */

/* Writes the heads of `wanted` at element `at` of o and on. Returns a bit for each that the given maximum did not suit: it is not
 * written. */
INLINE uint write_heads(const total_t *t, uint wanted, const query *q, bool online, float base, float low, OUT_ACT(o), ulong at, const lane_t *me)
{
    uint redo = 0;
    EACH_PART(n, col, d, q->heads, me->lid)
    {
        if (!(wanted >> col & 1)) continue;
        if (!online && !suits_given(t->state[n].x - base, low)) {
            redo |= 1u << col;
            continue;
        }
        ulong to = at + col * D + d;
        float4 y = t->state[n].y == 0 ? (float4)(0) : t->sum[n] / t->state[n].y;
        STORE(o, to, y.x)
        STORE(o, to + 1, y.y)
        STORE(o, to + 2, y.z)
        STORE(o, to + 3, y.w)
    }
    return redo;
}

/* The bits of all work-items. */
INLINE uint any_of(uint bits, __local uint *all, uint lid)
{
    if (lid == 0) *all = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (bits) atomic_or(all, bits);
    barrier(CLK_LOCAL_MEM_FENCE);
    return *all;
}

/* ---- items ------------------------------------------------------------------------------------------------------ */

/* Those heads: the KV head, the first of its query heads, and how many. */
INLINE uint kv_head_of(const call_t *c, const item_t *it)
{
    return it->number / c->blocks;
}

INLINE uint first_head_of(const call_t *c, const item_t *it)
{
    return kv_head_of(c, it) * c->per_kv + it->number % c->blocks * 8;
}

INLINE uint heads_of(const call_t *c, const item_t *it)
{
    return min(8u, c->per_kv - it->number % c->blocks * 8);
}

/* Its KV head gives what the row sees; the item's length follows. */
INLINE void look_at_item(item_t *it, const call_t *c, const rows_t *rows)
{
    it->seen.row = sight_of(&rows->mask, it->pos, kv_head_of(c, it));
    it->length = length_of(it->pos);
#if WINDOWS
    it->seen.sink_tiles = ((uint)rows->mask.sink + 15) / 16;
    it->seen.hidden = hidden_tiles(it->seen.row);
    it->length -= it->seen.hidden;
#endif
}

INLINE void look_at_row(item_t *it, const call_t *c, const rows_t *rows)
{
    it->pos = row_pos_of(rows, it->m);
    it->page = row_page_of(rows, it->m);
    look_at_item(it, c, rows);
}

/* The item in which a place of the work list lies. own, upto: as in find_row. alike: items of one length that follow each other. */
INLINE item_t find_item(const call_t *c, const rows_t *rows, ulong place, uint alike, uint own, uint upto, uint lane)
{
    item_t it;
    uint before;
    it.m = find_row(rows, (uint)part_of(place, 1, alike), own, upto, lane, &before);
    it.at = (ulong)before * alike;
    it.number = 0;
    look_at_row(&it, c, rows);
#if WINDOWS
    for (; place - it.at >= it.length; look_at_item(&it, c, rows)) it.number++, it.at += it.length;
#else
    it.number = (uint)(place - it.at) / it.length;
    it.at += (ulong)it.number * it.length;
#endif
    return it;
}

INLINE void next_item(item_t *it, const call_t *c, const rows_t *rows)
{
    it->at += it->length;
    if (++it->number == c->items) {
        it->number = 0;
        it->m++;
        look_at_row(it, c, rows);
    } else if (WINDOWS) {
        look_at_item(it, c, rows);
    }
}

INLINE void find_query(query *q, const call_t *c, const item_t *it, const lane_t *me)
{
    const __global half *row = c->q + (ulong)it->m * c->q_stride;
    bool aligned = (((ulong)row | (ulong)c->q_stride * 2) & 7) == 0;
    q->heads = heads_of(c, it);
    q->scale = c->scale * 1.44269504f;
    load_q(q->words, row + (first_head_of(c, it) + min(me->g, q->heads - 1)) * D, me->quad, aligned);
}

/* Tiles first to last - 1 of an item, and where they are not all and this group is the last to arrive, the others' part. */
INLINE void do_item(const call_t *c, const list_t *list, const item_t *it, uint first, uint last, uint *turn, const shared_sums *room,
                    __local uint *arrivals, __local uint *redo_mask, OUT_ACT(o), IN(count), const lane_t *me)
{
    uint all = it->length - START, wanted = ~0u;
    bool shared = last - first < all;
    partials others;
    query q;
    tiles of = {c->k, c->v, it->page, c->page_stride, kv_head_of(c, it), c->P, first, last};
    find_query(&q, c, it, me);
    for (bool online = !ASYNC;; online = true) { /* once more for heads that the given maximum did not suit */
        total_t total;
        stream s;
        __global float *apart = 0;
        start_stream(&s, &of, &it->seen, me);
        if (CHUNK && shared) { /* looked up while the first keys are loaded; where there is one chunk, later: it takes registers */
            others = find_partials(list, c, it);
            if (first) apart = chunk_partial(&others, &it->seen, first);
        }
        sum_chunks(&total, apart, turn, room, &s, &of, &it->seen, &q, online ? NO_MAX : c->base, online, me);
        if (shared) {
            if (!CHUNK) others = find_partials(list, c, it);
            if (!apart) write_total(first ? chunk_partial(&others, &it->seen, first) : others.total, &total, q.heads, me);
            if (!is_last(c->counters + others.first, arrivals, last - first, all, me->lid)) return;
            gather(&total, &others, count_chunks(list, &others, it), q.heads, online, me);
        }
        ulong to = (ulong)it->m * c->o_stride + first_head_of(c, it) * D;
        uint redo = write_heads(&total, wanted, &q, online || !all, c->base, c->low, o_base, o_off, o_half, to, me);
        if (online || !all) return;
        wanted = any_of(redo, redo_mask, me->lid);
        if (!wanted) return;
        if (me->lid == 0 && count_off != NONE) atomic_add((volatile __global uint *)(count_base + count_off), popcount(wanted));
        of.from = 0, of.to = all;
        shared = false;
    }
}

/* How many groups share the work. */
INLINE uint groups_for(ulong length, ulong items)
{
    return (uint)min((ulong)get_num_groups(0), length <= items * WHOLE ? items : (length + LEAST - 1) / LEAST);
}

KERNEL void attention_split(IN(q), IN(kp), IN(vp), IN(seq), IN(pos), IN(indptr), IN(pages),
                            OUT_ACT(o), uint M, uint Hq, uint Hkv, uint P,
                            uint page_stride, uint q_stride, uint o_stride, float scale WINDOW_ARGS,
                            __global uint *scratch, uint slots, IN(count), float base, float low)
{
    __local float sums[BUFFERS * WARPS * WARP_SUMS] __attribute__((aligned(16)));
    __local float2 states[BUFFERS * WARPS * 8];
    __local uint arrivals, redo_mask;
    const shared_sums room = {sums, states};
    uint lid = get_local_id(0), lane_id = lid & 31, per_kv = Hq / Hkv, blocks = (per_kv + 7) / 8, items = Hkv * blocks, turn = 0;
    const lane_t me = {lid, lid >> 5, lane_id >> 2, lane_id & 3};
    const call_t c = {IN_AT(half, q), IN_AT(half, kp), IN_AT(half, vp), q_stride, o_stride, page_stride, P, per_kv, blocks, items, slots,
                      scale, base, low, scratch};
    rows_t rows = {IN_AT(int, pos), IN_AT(int, seq), IN_AT(int, indptr), IN_AT(int, pages), M, (M + 31) / 32, 0, 0, MASK, Hkv};
    uint alike = WINDOWS ? blocks : items; /* items of one length that follow each other */

    uint own = lane_length(&rows, lane_id), upto = own;
#pragma unroll
    for (uint n = 1; n < 32; n *= 2) upto += lane_before(upto, n, lane_id);
    list_t list = {(ulong)lane_at(upto, 31) * alike, 0};
    list.groups = groups_for(list.length, (ulong)M * items);
    if (get_group_id(0) >= list.groups) return;

    ulong begin = begin_of(&list, get_group_id(0)), end = begin_of(&list, get_group_id(0) + 1);
    item_t it = find_item(&c, &rows, begin, alike, own, upto, lane_id);
    for (;;) {
        uint all = it.length - START;
        uint first = begin > it.at ? cut_at(&it.seen, (uint)(begin - it.at), all) : 0;
        uint last = end < it.at + it.length ? cut_at(&it.seen, (uint)(end - it.at), all) : all;
        bool empty = !all && end >= it.at + START; /* a row that sees nothing: this group writes the zeros */
        if (first < last || empty)
            do_item(&c, &list, &it, first, last, &turn, &room, &arrivals, &redo_mask, o_base, o_off, o_half, count_base, count_off, &me);
        if (it.at + it.length >= end) break;
        next_item(&it, &c, &rows);
    }
}
