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
 * SLOTS n, compute capability 9.0: keys and values come through a ring in local memory instead
 * (attention/split_ring.clh), 200 KiB of them on their way, for work-groups on few multiprocessors. COLS: query heads
 * of a KV head that have room for sums, an even number.
 *
 * The warps compute a chunk of an item from empty sums, bring these to one maximum and fold them into the item's total.
 * Of an item that several work-groups share, the one that begins it leaves its total in the scratch buffer, the others
 * each chunk's sums, and the last group to arrive (a counter tells) folds them in the order of the keys.
 *
 *   CHUNK 0  a chunk is what a group has of an item; groups begin where the work list is cut. The same call gives the
 *            same bits; another batch cuts elsewhere, so a row's last bits may depend on it.
 *   CHUNK n  chunks begin at absolute positions (attention/chunks.clh, in tiles), and groups at chunks. A row's bits
 *            depend neither on the number of work-groups nor on the batch.
 *
 * WINDOWS 1: each query head has a window (attention/mask.clh), and the work list holds only tiles of which the row
 * sees some key: of each row and KV head those of the sink and of its longest window, in which scores of query heads
 * with shorter ones are masked. Other kernels order the heads by length to balance the work-groups; cutting the work
 * list evenly makes that unnecessary.
 *
 * Maximum of a row: synchronous, it is raised when a score exceeds it by 2^RESCALE_THRESHOLD, and sums are rescaled.
 * ASYNC 1: it is given (base: such that the largest admissible score gives 2^15) and sums are just added. A row of a
 * head whose largest score leaves (low, 15), relative to base, is computed again in the synchronous way, by the group
 * that finds out, which adds what each group had of the item as these would have: it has the synchronous bits. count,
 * if there is one, is raised by 1 for each such row and head. A group's warps stop at an item when each of its heads
 * has left above, whichever of them saw that.
 *
 * Scratch: counters (COUNTERS of them, 0 between launches), then partial results, each 8 * D sums and 8 pairs (maximum,
 * sum): one for each group, of the item that it begins and does not end, then `slots` for each group, of chunks.
 *
 * Knobs: D (head size, a multiple of 16), TP (16-token tiles a page), ASYNC, WINDOWS, CHUNK (0, or at least WARPS),
 * GROWS, SLOTS, COLS. WG: a multiple of 32. Pools are aligned to 16 bytes, q is F16. ASYNC: CHUNK is 0. SLOTS: neither
 * ASYNC nor WINDOWS; D is 64 or 128, and q is aligned to 8 bytes.
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
#ifndef SLOTS
#define SLOTS 0
#define COLS 8
#endif

#define WARPS (WG / 32)
#define KW (D / 8)  /* words of a key that a lane holds: 4 lanes a key */
#define VW (D / 16) /* words of a value that a lane holds: 8 lanes a value */
#define PAIR (2 * D + 4) /* of two heads in local memory: so far apart that lanes write to other banks */
#define WARP_SUMS (COLS / 2 * PAIR)
#define BUFFERS (SLOTS || 2 * WARPS * (WARP_SUMS + 16) * 4 > 48 << 10 ? 1 : 2)
#define PER_ITEM ((2 * D + WG - 1) / WG) /* times 4 sums of an item that a work-item adds up */
#define FOUR(floats, i) (*(__local const float4 *)((floats) + (i)))
#define COUNTERS 4096
#define PARTIAL (8 * (D + 2)) /* floats */
#define LEAST (START + WARPS) /* length that a group is worth starting for */
#define INLINE __attribute__((always_inline))
#define AT_ONCE 12 /* partial results read before they are added */
#include "attention/split_costs.clh"
#if CHUNK
#include "attention/chunks.clh"
#endif
#include "attention/split_list.clh"
#include "attention/split_items.clh"
#if SLOTS
#include "attention/split_ring.clh"
#endif
#include "attention/split_tiles.clh"

/* ---- items that several work-groups share --------------------------------------------------------------------- */

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
        for (uint i = 0; i < AT_ONCE;
             i++) { /* past the last one what changes nothing: a branch would hold up the others */
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

/* Writes the heads of `wanted` at element `at` of o and on. Returns a bit for each that the given maximum did not suit:
 * it is not written. */
INLINE uint write_heads(const total_t *t, uint wanted, const query *q, bool online, float base, float low, OUT_ACT(o),
                        ulong at, const lane_t *me)
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
        float4 y = t->sum[n] * reciprocal_or_0(t->state[n].y);
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

#if WINDOWS
INLINE void look_at_columns(query *q, const call_t *c, const rows_t *rows, const item_t *it, uint quad)
{
#pragma unroll
    for (uint i = 0; i < 2; i++)
        q->column[i] = sight_of(&rows->mask, it->pos, first_head_of(c, it) + min(2 * quad + i, q->heads - 1));
}
#else
#define look_at_columns(q, c, rows, it, quad)
#endif

INLINE void find_query(query *q, const call_t *c, const item_t *it, const lane_t *me)
{
    const __global half *row = c->q + (ulong)it->m * c->q_stride;
    bool aligned = SLOTS || (((ulong)row | (ulong)c->q_stride * 2) & 7) == 0;
    q->heads = heads_of(c, it);
    q->scale = c->scale * 1.44269504f;
    load_q(q->words, row + (first_head_of(c, it) + min(me->g, q->heads - 1)) * D, me->quad, aligned);
}

/* That of the item behind, where there is one. */
INLINE void find_next_query(query *q, const call_t *c, const item_t *it, bool is, const lane_t *me)
{
    item_t next = *it;
    if (is && ++next.number == c->items) next.number = 0, next.m++;
    find_query(q, c, &next, me);
}

/* Tiles first to last - 1 of an item, and where they are not all and this group is the last to arrive, the others'
 * part. */
INLINE void do_item(const call_t *c, const list_t *list, const rows_t *rows, const item_t *it, uint2 part, query *q,
                    stream *s, uint *turn, const shared_sums *room, __local uint *arrivals, __local uint *redo_mask,
                    OUT_ACT(o), IN(count), const lane_t *me)
{
    uint all = it->length - START, wanted = ~0u, first = part.x, last = part.y;
    bool shared = last - first < all;
    partials others;
    tiles of = tiles_of(c, it, part);
    if (!SLOTS) find_query(q, c, it, me);
    look_at_columns(q, c, rows, it, me->quad);
    for (bool online = !ASYNC;; online = true) { /* once more for heads that the given maximum did not suit */
        total_t total;
        __global float *apart = 0;
        start_stream(s, &of, &it->seen, me);
        /* Looked up while the first keys are loaded; where there is one chunk, later: it takes registers. */
        if (CHUNK && shared) {
            others = find_partials(list, c, it);
            if (first) apart = chunk_partial(&others, &it->seen, first);
        }
        sum_chunks(&total, apart, turn, room, s, &of, it, list, q, online ? NO_MAX : c->base, online, c, rows, me);
        if (shared) {
            if (!CHUNK) others = find_partials(list, c, it);
            if (!apart)
                write_total(first ? chunk_partial(&others, &it->seen, first) : others.total, &total, q->heads, me);
            if (!is_last(c->counters + others.first, arrivals, last - first, all, me->lid)) return;
            gather(&total, &others, count_chunks(list, &others, it), q->heads, online, me);
        }
        ulong to = (ulong)it->m * c->o_stride + first_head_of(c, it) * D;
        uint redo = write_heads(&total, wanted, q, online || !all, c->base, c->low, o_base, o_off, o_half, to, me);
        if (online || !all) return;
        wanted = any_of(redo, redo_mask, me->lid);
        if (!wanted) return;
        if (me->lid == 0 && count_off != NONE)
            atomic_add((volatile __global uint *)(count_base + count_off), popcount(wanted));
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
    __local uint arrivals, redo_mask, left[2];
    const shared_sums room = {sums, states, left};
    uint lid = get_local_id(0), lane_id = lid & 31, per_kv = Hq / Hkv, blocks = (per_kv + 7) / 8, items = Hkv * blocks,
         turn = 0;
    const lane_t me = {lid, lid >> 5, lane_id >> 2, lane_id & 3};
    const call_t c = {IN_AT(half, q), IN_AT(half, kp), IN_AT(half, vp), q_stride, o_stride, page_stride, P,      per_kv,
                      blocks,         items,           slots,           scale,    base,     low,         scratch};
    rows_t rows = {
        IN_AT(int, pos), IN_AT(int, seq), IN_AT(int, indptr), IN_AT(int, pages), M, (M + 31) / 32, 0, 0, MASK, Hkv,
        per_kv};
    uint alike = WINDOWS ? blocks : items; /* items of one length that follow each other */

    if (ASYNC) {
        if (lid == 0) left[0] = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    uint own = lane_length(&rows, lane_id), upto = own;
#pragma unroll
    for (uint n = 1; n < 32; n *= 2) upto += lane_before(upto, n, lane_id);
    list_t list = {(ulong)lane_at(upto, 31) * alike, 0};
    list.groups = groups_for(list.length, (ulong)M * items);
    if (get_group_id(0) >= list.groups) return;

    ulong begin = begin_of(&list, get_group_id(0)), end = begin_of(&list, get_group_id(0) + 1);
    item_t it = find_item(&c, &rows, begin, alike, own, upto, lane_id);
    query q;
    stream s;
#if SLOTS
    LOCAL_ROOM(ring_room, WARPS * SLOTS * (SLOT_BYTES + 8))
    start_ring(&s.ahead, ring_room, ring_room + WARPS * SLOTS * SLOT_BYTES, &it, begin, end, &c, &rows, me.warp,
               lane_id);
#endif
    if (SLOTS) find_query(&q, &c, &it, &me);
    for (;;) {
        uint2 part = part_of_item(&it, begin, end);
#if SLOTS
        query next_q;
        find_next_query(&next_q, &c, &it, it.at + it.length < end, &me); /* it comes while this item is computed */
#endif
        bool empty = it.length == START &&
                     end >= it.at + START; /* a row that sees nothing: this group writes the zeros */
        if (part.x < part.y || empty)
            do_item(&c, &list, &rows, &it, part, &q, &s, &turn, &room, &arrivals, &redo_mask, o_base, o_off, o_half,
                    count_base, count_off, &me);
        if (it.at + it.length >= end) break;
#if SLOTS
        q = next_q;
#endif
        next_item(&it, &c, &rows);
    }
}
