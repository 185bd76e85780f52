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
 * so nothing passes through local memory but the sums of the warps at an item's end; the next tile's keys
 * are loaded while this one is multiplied. The tiles of an item are dealt to the warps of a group one by one. An
 * item that several groups share leaves partial sums in the scratch buffer, and the last group to arrive
 * (a counter tells) adds them in the order of the groups: the same call gives the same bits. Another batch
 * cuts the work list elsewhere, so a row's last bits may depend on it.
 *
 * WINDOWS 1: each KV head has a window (windows.clh), and the work list holds only tiles of which the row sees some key: of each
 * row and KV head those of the sink and of the window. Other kernels order the heads by length to balance the work-groups;
 * cutting the work list evenly makes that unnecessary.
 *
 * Maximum of a row: synchronous, it is raised when a score exceeds it by 2^RESCALE_THRESHOLD, and sums are rescaled.
 * ASYNC 1: it is given (base: such that the largest admissible score gives 2^15) and sums are just added. A row
 * whose largest score leaves (low, 15), relative to base, is computed again in the synchronous way, by
 * the group that finds out; count, if there is one, is raised by 1 for each such row and head.
 *
 * Scratch: counters (COUNTERS of them, 0 between launches), then for each group two partial results, of its first
 * item and of its last, each 8 * D sums and 8 pairs (maximum, sum).
 *
 * Knobs: D (head size, a multiple of 16), TP (16-token tiles a page), ASYNC, WINDOWS. WG: a multiple of 32. Pools are
 * aligned to 16 bytes, q is F16.
 */
#ifndef WG
#define WG 128
#endif
#include "common.clh"
#include "nvidia.clh"
#ifndef D
#define D 128
#endif
#ifndef TP
#define TP 1
#endif
#ifndef ASYNC
#define ASYNC 0
#endif
#ifndef WINDOWS
#define WINDOWS 0
#define WINDOW_ARGS
#else
#include "windows.clh"
#endif

#define WARPS (WG / 32)
#define KW (D / 8)  /* words of a key that a lane holds: 4 lanes a key */
#define VW (D / 16) /* words of a value that a lane holds: 8 lanes a value */
#define PITCH (D + 4)
#define FOUR(floats, i) (*(__local const float4 *)((floats) + (i)))
#define COUNTERS 4096
#define PARTIAL (8 * (D + 2)) /* floats */
#define START 4u /* tiles that would take as long as the start and the end of an item */
#define LEAST (START + WARPS) /* length that a group is worth starting for */
#define WHOLE 20u /* up to this length on average each group has a whole item: sharing one takes longer than computing it */
#define INLINE __attribute__((always_inline))
#define AT_ONCE 12 /* partial results read before they are added */

/* Words are read by 4, then by 2, then one: the element at which word w of lane i of n begins. */
uint word_at(uint w, uint words, uint i, uint n)
{
    uint from = w & ~3u, by = 4;
    if (from + 4 > words) {
        by = from + 2 <= words && w < from + 2 ? 2 : 1;
        if (by == 1) from = words - 1;
    }
    return 2 * (n * from + by * i + (w - from));
}

#define LOAD(words, r, from, i, n)                                                                 \
    {                                                                                              \
        _Pragma("unroll") for (uint w_ = 0; w_ + 4 <= words; w_ += 4)                              \
            LD_WORDS4(r, w_, (from) + word_at(w_, words, i, n));                                   \
        if (words & 2) LD_WORDS2(r, (words & ~3), (from) + word_at(words & ~3, words, i, n));      \
        if (words & 1) LD_WORDS1(r, words - 1, (from) + word_at(words - 1, words, i, n));          \
    }

/* Length of a row's items in the work list: its tiles, after as many as its start and end cost. */
uint length_of(int pos)
{
    return START + ((uint)max(pos + 16, 0) >> 4);
}

/* What the row of an item sees. */
typedef struct sight {
    uint keys; /* keys of the row, the row's own among them */
#if WINDOWS
    uint sink, sink_tiles; /* keys and tiles that every row sees */
    uint hidden, after;    /* tiles of which the row sees nothing, behind those of the sink; the first key behind the masked range */
#endif
} sight;

#if WINDOWS
uint hidden_tiles(int pos, int window, int sink)
{
    return (uint)max(after_masked(pos, window, sink) / 16 - (sink + 15) / 16, 0);
}

/* The tile of the row that is number t of those that it sees. */
uint tile_of_row(const sight *s, uint t)
{
    return t + (t < s->sink_tiles ? 0 : s->hidden);
}

bool unseen(const sight *s, uint key)
{
    return key >= s->keys || (key >= s->sink && key < s->after);
}

/* Is a part of the row's tile t masked? */
bool has_unseen(const sight *s, uint t)
{
    return (t + 1) * 16 > s->keys || ((t + 1) * 16 > s->sink && t * 16 < s->after);
}

/* For the item of a KV head; returns its length. */
uint look_at_item(sight *s, int pos, int window)
{
    s->hidden = hidden_tiles(pos, window, (int)s->sink);
    s->after = (uint)after_masked(pos, window, (int)s->sink);
    return length_of(pos) - s->hidden;
}
#else
uint tile_of_row(const sight *s, uint t)
{
    return t;
}

bool unseen(const sight *s, uint key)
{
    return key >= s->keys;
}

bool has_unseen(const sight *s, uint t)
{
    return (t + 1) * 16 > s->keys;
}
#endif

/* x * y / z; most calls are small enough for 32 bits. */
ulong part_of(ulong x, ulong y, ulong z)
{
    ulong xy = x * y;
    return xy < 1ul << 32 ? (uint)xy / (uint)z : xy / z;
}

/* Columns of Q for the lane that holds row i % 32 / 4 of a fragment: the words of one head. */
void load_q(uint *words, const __global half *q, uint lane4, bool aligned)
{
    if (aligned) {
#pragma unroll
        for (uint w = 0; w < KW; w += 2) {
            uint2 pair = *(const __global uint2 *)(q + word_at(w, KW, lane4, 4));
            words[w] = pair.x;
            words[w + 1] = pair.y;
        }
    } else {
        const __global ushort *h = (const __global ushort *)q;
#pragma unroll
        for (uint w = 0; w < KW; w++) {
            uint at = word_at(w, KW, lane4, 4);
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
#if WINDOWS
    const __global int *windows;
    uint Hkv;
    int sink;
#endif
} rows_t;

/* Of one item of a row at pos; with windows, of one of each KV head. */
uint row_length(const rows_t *r, int pos)
{
#if WINDOWS
    uint sum = 0;
    for (uint h = 0; h < r->Hkv; h++) sum += length_of(pos) - hidden_tiles(pos, r->windows[h], r->sink);
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
    uint from, to; /* numbers among those that the row sees, of this work-group */
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
    LOAD(KW, r->k0, from + g * D, quad, 4)
    LOAD(KW, r->k1, from + (g + 8) * D, quad, 4)
}

INLINE void load_values(values_t *r, const __global half *from, uint g)
{
    LOAD(VW, r->a, from, g, 8)
    LOAD(VW, r->b, from + D, g, 8)
    LOAD(VW, r->c, from + 8 * D, g, 8)
    LOAD(VW, r->d, from + 9 * D, g, 8)
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
INLINE void mask(float x[4], values_t *v, const sight *seen, uint tile, uint g, uint quad)
{
    uint k = tile * 16 + g, v0 = tile * 16 + 2 * quad;
    if (unseen(seen, k)) x[0] = x[1] = -INFINITY;
    if (unseen(seen, k + 8)) x[2] = x[3] = -INFINITY;
#pragma unroll
    for (int w = 0; w < VW; w++) {
        if (unseen(seen, v0)) v->a[w] = 0;
        if (unseen(seen, v0 + 1)) v->b[w] = 0;
        if (unseen(seen, v0 + 8)) v->c[w] = 0;
        if (unseen(seen, v0 + 9)) v->d[w] = 0;
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
    if (!lanes_with(s->seen_max[0] > s->row_max[0] + RESCALE_THRESHOLD || s->seen_max[1] > s->row_max[1] + RESCALE_THRESHOLD)) return;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = column_max(s->seen_max[i]);
        top = top > s->row_max[i] + RESCALE_THRESHOLD ? top : s->row_max[i];
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

/* This warp's tiles of an item, one of WARPS. Keys and page ids of the next tile are loaded while this one is multiplied. */
INLINE void attend(sums_t *sums, const tiles *t, const sight *seen, const uint *qw, float c, bool online, uint warp, uint g, uint quad)
{
    keys_t keys;
    values_t values;
    ulong off = 0;
    int id = 0;
    uint tile = t->from + warp;
    if (tile < t->to) {
        off = tile_at(t, page_of(t, tile_of_row(seen, tile)), tile_of_row(seen, tile));
        load_keys(&keys, t->k + off, g, quad);
        id = page_of(t, tile_of_row(seen, min(tile + WARPS, t->to - 1)));
    }
    for (; tile < t->to; tile += WARPS) {
        load_values(&values, t->v + off + 2 * quad * D, g);
        uint next = min(tile + WARPS, t->to - 1);
        off = tile_at(t, id, tile_of_row(seen, next));
        id = page_of(t, tile_of_row(seen, min(next + WARPS, t->to - 1)));
        float s[2][4], x[4];
        multiply_keys(s, &keys, qw);
        if (tile + WARPS < t->to) load_keys(&keys, t->k + off, g, quad);
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = (s[0][i] + s[1][i]) * c;
        if (has_unseen(seen, tile_of_row(seen, tile))) mask(x, &values, seen, tile_of_row(seen, tile), g, quad);
        sums->seen_max[0] = fmax(sums->seen_max[0], fmax(x[0], x[2]));
        sums->seen_max[1] = fmax(sums->seen_max[1], fmax(x[1], x[3]));
        if (online) raise(sums);
        add_values(sums, x, &values);
    }
}

/* ---- the work-group's sums of an item ------------------------------------------------------------------------ */

/* Of the warps' columns: maximum (asynchronous: the largest score seen) and sum. All lanes of a column get the sums. */
INLINE void share_states(__local float2 *state, sums_t *s, bool online, uint warp, uint g, uint quad)
{
#pragma unroll
    for (uint xor_distance = 4; xor_distance < 32; xor_distance *= 2) {
        s->sum[0] += lane_xor(s->sum[0], xor_distance);
        s->sum[1] += lane_xor(s->sum[1], xor_distance);
    }
    if (ASYNC) {
        s->seen_max[0] = column_max(s->seen_max[0]);
        s->seen_max[1] = column_max(s->seen_max[1]);
    }
    if (g) return;
    state[warp * 8 + 2 * quad] = (float2)(online ? s->row_max[0] : s->seen_max[0], s->sum[0]);
    state[warp * 8 + 2 * quad + 1] = (float2)(online ? s->row_max[1] : s->seen_max[1], s->sum[1]);
}

/* Brought to one maximum. */
INLINE void share_sums(__local float *partial, const __local float2 *state, const sums_t *s, uint heads, bool online, uint warp, uint g, uint quad)
{
    float alpha0 = 1, alpha1 = 1;
    if (online) {
        float t0 = NO_MAX, t1 = NO_MAX;
        for (int i = 0; i < WARPS; i++) {
            t0 = fmax(t0, state[i * 8 + 2 * quad].x);
            t1 = fmax(t1, state[i * 8 + 2 * quad + 1].x);
        }
        alpha0 = power_of_two(s->row_max[0] - t0);
        alpha1 = power_of_two(s->row_max[1] - t1);
    }
    __local float *mine = partial + (warp * 8 + 2 * quad) * PITCH;
#pragma unroll
    for (int w = 0; w < VW; w++) {
        uint d = word_at(w, VW, g, 8);
        if (2 * quad < heads) {
            mine[d] = s->acc[w][0] * alpha0;
            mine[d + 1] = s->acc[w][2] * alpha0;
        }
        if (2 * quad + 1 < heads) {
            mine[PITCH + d] = s->acc[w][1] * alpha1;
            mine[PITCH + d + 1] = s->acc[w][3] * alpha1;
        }
    }
}

/* Maximum and sum of column col over the warps. */
float2 column_state(const __local float2 *state, uint col, bool online)
{
    float t = NO_MAX, sum = 0;
    for (int i = 0; i < WARPS; i++) t = fmax(t, state[i * 8 + col].x);
    for (int i = 0; i < WARPS; i++) sum += state[i * 8 + col].y * (online ? power_of_two(state[i * 8 + col].x - t) : 1);
    return (float2)(t, sum);
}

/* Columns d to d + 3 of D of head col, over the warps. */
float4 column_sum(const __local float *partial, uint col, uint d)
{
    float4 sum = FOUR(partial, col * PITCH + d);
    for (int w = 1; w < WARPS; w++) sum += FOUR(partial, (w * 8 + col) * PITCH + d);
    return sum;
}

/* ---- items that several work-groups share --------------------------------------------------------------------- */

/* A work-group's partial result. */
INLINE void write_partial(__global float *to, const __local float *partial, const __local float2 *state, uint heads, bool online, uint lid)
{
    for (uint i = lid; i < heads * (D / 4); i += WG) {
        uint col = i / (D / 4), d = i % (D / 4) * 4;
        *(__global float4 *)(to + col * D + d) = column_sum(partial, col, d);
    }
    if (lid < heads) ((__global float2 *)(to + 8 * D))[lid] = column_state(state, lid, online);
}

/* Four sums of head col over the partial results of the groups from to `to`, and the head's maximum and sum. */
INLINE float4 add_partials(const __global float *partials, uint from, uint to, uint col, uint d, bool online, float2 *of_row)
{
    float4 sum = (float4)(0);
    float t = NO_MAX, l = 0;
    for (uint w = from; w <= to; w += AT_ONCE) {
        float4 add[AT_ONCE];
        float2 with[AT_ONCE];
#pragma unroll
        for (uint i = 0; i < AT_ONCE; i++) {
            uint u = min(w + i, to);
            const __global float *get = partials + (ulong)(2 * u + (u == from)) * PARTIAL;
            LD_SHARED4(add[i], get + col * D + d);
            LD_SHARED2(with[i], get + 8 * D + 2 * col);
        }
        float higher = t;
#pragma unroll
        for (uint i = 0; i < AT_ONCE; i++) higher = fmax(higher, with[i].x);
        float alpha = online ? power_of_two(t - higher) : 1;
        sum *= alpha;
        l *= alpha;
        t = higher;
#pragma unroll
        for (uint i = 0; i < AT_ONCE; i++) {
            float weight = w + i > to ? 0 : online ? power_of_two(with[i].x - t) : 1;
            sum += add[i] * weight;
            l += with[i].y * weight;
        }
    }
    *of_row = (float2)(t, l);
    return sum;
}

KERNEL void attention_split(IN(q), IN(kp), IN(vp), IN(seq), IN(pos), IN(indptr), IN(pages),
                            OUT_ACT(o), uint M, uint Hq, uint Hkv, uint P,
                            uint page_stride, uint q_stride, uint o_stride, float scale WINDOW_ARGS,
                            __global uint *scratch, IN(count), float base, float low)
{
    __local float partial[WARPS * 8 * PITCH] __attribute__((aligned(16)));
    __local float2 state[WARPS * 8]; /* maximum and sum of each warp's columns */
    __local uint arrivals, redo_mask; /* arrivals before this one; columns to be computed again */
    uint lid = get_local_id(0), lane = lid & 31, warp = lid >> 5, g = lane >> 2, quad = lane & 3;
    uint per_kv = Hq / Hkv, blocks = (per_kv + 7) / 8, items = Hkv * blocks;
    const __global int *pos = IN_AT(int, pos);
    float c = scale * 1.44269504f;
#if WINDOWS
    const __global int *windows = IN_AT(int, windows);
    uint alike = blocks; /* items of one length that follow each other */
#else
    uint alike = items;
#endif

    /* Where in the work list this group begins. */
#if WINDOWS
    rows_t rows = {pos, IN_AT(int, seq), IN_AT(int, indptr), IN_AT(int, pages), M, (M + 31) / 32, 0, 0, windows, Hkv, sink};
#else
    rows_t rows = {pos, IN_AT(int, seq), IN_AT(int, indptr), IN_AT(int, pages), M, (M + 31) / 32, 0, 0};
#endif
    uint own = lane_length(&rows, lane);
    uint upto = own;
#pragma unroll
    for (uint n = 1; n < 32; n *= 2) upto += lane_before(upto, n, lane);
    ulong total = (ulong)lane_at(upto, 31) * alike;
    ulong all = (ulong)M * items;
    uint groups = (uint)min((ulong)get_num_groups(0), total <= all * WHOLE ? all : (total + LEAST - 1) / LEAST);
    if (get_group_id(0) >= groups) return;
    ulong at = part_of(get_group_id(0), total, groups), end = part_of(get_group_id(0) + 1, total, groups), begin = at;
    uint before, m = find_row(&rows, (uint)part_of(at, 1, alike), own, upto, lane, &before);
    ulong row_at = (ulong)before * alike;
    int row_pos = row_pos_of(&rows, m);
#if WINDOWS
    sight seen = {(uint)max(row_pos + 1, 0), (uint)sink, ((uint)sink + 15) / 16, 0, 0};
    uint length, item = 0, first = (uint)(at - row_at);
    while (first >= (length = look_at_item(&seen, row_pos, windows[item / blocks]))) item++, first -= length;
    ulong next_at = at - first; /* where the item begins in the work list, below */
#else
    sight seen = {(uint)max(row_pos + 1, 0)};
    uint length = length_of(row_pos);
    uint item = (uint)(at - row_at) / length, first = (uint)(at - row_at) % length;
#endif
    const __global int *page = row_page_of(&rows, m);

    while (at < end) {
        uint last = (uint)min((ulong)length, first + (end - at));
#if WINDOWS
        ulong item_at = next_at;
        next_at += length;
#else
        ulong item_at = row_at + (ulong)item * length;
#endif
        uint kvh = item / blocks, head0 = item % blocks * 8, heads = min(8u, per_kv - head0);
        const __global half *qp = IN_AT(half, q) + (ulong)m * q_stride;
        bool aligned = (((ulong)qp | (ulong)q_stride * 2) & 7) == 0;
        uint qw[KW];
        load_q(qw, qp + (kvh * per_kv + head0 + min(g, heads - 1)) * D, quad, aligned);
        bool online = !ASYNC;
        uint wanted = (1u << heads) - 1; /* columns to be written */
        bool whole = last - first == length;

        tiles of = {IN_AT(half, kp), IN_AT(half, vp), page, page_stride, kvh, P, max(first, START) - START, max(last, START) - START};

        for (;;) { /* once more for rows that the given maximum did not suit */
            sums_t sums;
            clear_sums(&sums, online ? NO_MAX : base);
            attend(&sums, &of, &seen, qw, c, online, warp, g, quad);
            share_states(state, &sums, online, warp, g, quad);
            barrier(CLK_LOCAL_MEM_FENCE);
            share_sums(partial, state, &sums, heads, online, warp, g, quad);
            barrier(CLK_LOCAL_MEM_FENCE);

            /* Four sums a work-item: of this group, then, if it is the last one, of all. */
            uint from = 0, to = 0; /* the groups that share this item */
            if (!whole) {
                from = (uint)part_of((item_at + 1) * groups - 1, 1, total);
                to = (uint)part_of((item_at + length) * groups - 1, 1, total);
                uint index = 2 * get_group_id(0) + (item_at >= begin);
                write_partial((__global float *)(scratch + COUNTERS) + (ulong)index * PARTIAL, partial, state, heads, online, lid);
                barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
                if (lid == 0) arrivals = arrive(scratch + from);
                barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
                if (arrivals != to - from) break;
                if (lid == 0) scratch[from] = 0;
            }
            uint redo = 0;
            for (uint i = lid; i < heads * (D / 4); i += WG) {
                uint col = i / (D / 4), d = i % (D / 4) * 4;
                float2 of_row; /* maximum, sum */
                float4 sum;
                if (whole) sum = column_sum(partial, col, d), of_row = column_state(state, col, online);
                else sum = add_partials((const __global float *)(scratch + COUNTERS), from, to, col, d, online, &of_row);
                if (!(wanted >> col & 1)) continue;
                /* "!(in range)", for a NaN to be seen, too; a row without keys has no maximum */
                if (!online && seen.keys > 0 && !(of_row.x - base > low && of_row.x - base < 15)) {
                    redo |= 1u << col;
                    continue;
                }
                ulong to_o = (ulong)m * o_stride + (kvh * per_kv + head0 + col) * D + d;
                sum = of_row.y == 0 ? (float4)(0) : sum / of_row.y;
                STORE(o, to_o, sum.x)
                STORE(o, to_o + 1, sum.y)
                STORE(o, to_o + 2, sum.z)
                STORE(o, to_o + 3, sum.w)
            }
            if (online) break;
            if (lid == 0) redo_mask = 0;
            barrier(CLK_LOCAL_MEM_FENCE);
            if (redo) atomic_or(&redo_mask, redo);
            barrier(CLK_LOCAL_MEM_FENCE);
            wanted = redo_mask;
            if (!wanted) break;
            if (lid == 0 && count_off != NONE) atomic_add((volatile __global uint *)(count_base + count_off), popcount(wanted));
            online = true;
            whole = true;
            of.from = 0;
            of.to = length - START;
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* partial and state are written again */
        at += last - first;
        first = 0;
        if (++item == items && at < end) {
#if !WINDOWS
            row_at += (ulong)items * length;
#endif
            item = 0;
            m++;
            row_pos = row_pos_of(&rows, m);
            seen.keys = (uint)max(row_pos + 1, 0);
#if !WINDOWS
            length = length_of(row_pos);
#endif
            page = row_page_of(&rows, m);
        }
#if WINDOWS
        if (at < end) length = look_at_item(&seen, row_pos, windows[item / blocks]);
#endif
    }
}
