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
#ifndef WF_COMMON
#define ACT 16
#define WG 128
#include "common.clh"
#include "nvidia.clh"
#endif
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

#if WINDOWS
/* Tiles of which a row sees nothing; they stand behind those of the sink. */
uint hidden_tiles(int pos, int window, int sink)
{
    return (uint)max(after_masked(pos, window, sink) / 16 - (sink + 15) / 16, 0);
}

/* Length of one item of each KV head of a row. */
uint length_of_row(int pos, const __global int *windows, uint Hkv, int sink)
{
    uint sum = 0;
    for (uint h = 0; h < Hkv; h++) sum += length_of(pos) - hidden_tiles(pos, windows[h], sink);
    return sum;
}

#define ROW_LENGTH(pos) length_of_row(pos, windows, Hkv, sink)
/* The tile of a row that is number t of those that it sees. */
#define TILE_OF_ROW(t) ((t) + ((t) < sink_tiles ? 0 : hidden))
#define UNSEEN(key)    ((key) >= keys || ((key) >= (uint)sink && (key) < after))
#define IN_MASKED(t)      (((t) + 1) * 16 > (uint)sink && (t) * 16 < after) /* a partial of that tile */
#define LOAD_ITEM                                                                            \
    {                                                                                              \
        int window = windows[item / blocks];                                                        \
        hidden = hidden_tiles(row_pos, window, sink);                                                \
        after = (uint)after_masked(row_pos, window, sink);                                              \
        length = length_of(row_pos) - hidden;                                                      \
    }
#else
#define ROW_LENGTH(pos) length_of(pos)
#define TILE_OF_ROW(t)  (t)
#define UNSEEN(key)     ((key) >= keys)
#define IN_MASKED(t)       false
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
    uint sink_tiles = ((uint)sink + 15) / 16, alike = blocks; /* items of one length that follow each other */
#else
    uint alike = items;
#endif

    /* Where in the line this group begins: each lane adds up a run of rows. Where that is one row at most, lanes
     * also keep what all will need of it, rather than wait for it later. */
    const __global int *seq = IN_AT(int, seq), *indptr = IN_AT(int, indptr);
    uint run = (M + 31) / 32, own = 0, kept_page = 0, kept_pos = 0;
    if (run == 1 && lane < M) {
        kept_pos = (uint)pos[lane];
        kept_page = (uint)indptr[seq[lane]];
        own = ROW_LENGTH((int)kept_pos);
    }
    for (uint i = lane * run; run > 1 && i < min(M, (lane + 1) * run); i++) own += ROW_LENGTH(pos[i]);
#define ROW_POS  (run == 1 ? (int)lane_at(kept_pos, m) : pos[m])
#define ROW_PAGE (IN_AT(int, pages) + (run == 1 ? (int)lane_at(kept_page, m) : indptr[seq[m]]))
    uint upto = own;
#pragma unroll
    for (uint n = 1; n < 32; n *= 2) upto += lane_before(upto, n, lane);
    ulong total = (ulong)lane_at(upto, 31) * alike;
    ulong all = (ulong)M * items;
    uint groups = (uint)min((ulong)get_num_groups(0), total <= all * WHOLE ? all : (total + LEAST - 1) / LEAST);
    if (get_group_id(0) >= groups) return;
    ulong at = part_of(get_group_id(0), total, groups), end = part_of(get_group_id(0) + 1, total, groups), begin = at;
    uint in_rows = (uint)part_of(at, 1, alike), before = upto - own;
    uint owner = 31 - clz(lanes_with(in_rows >= before && own)); /* the last one that begins before */
    uint m = lane * run;
    if (lane == owner && run > 1)
        for (uint n; in_rows >= before + (n = ROW_LENGTH(pos[m])); m++) before += n;
    m = lane_at(m, owner);
    ulong row_at = (ulong)lane_at(before, owner) * alike;
    int row_pos = ROW_POS;
#if WINDOWS
    uint keys = (uint)max(row_pos + 1, 0), length, hidden, after, item = 0, first = (uint)(at - row_at);
    for (;; item++) {
        LOAD_ITEM
        if (first < length) break;
        first -= length;
    }
    ulong next_at = at - first; /* where the item begins in the work list, below */
#else
    uint keys = (uint)max(row_pos + 1, 0), length = length_of(row_pos);
    uint item = (uint)(at - row_at) / length, first = (uint)(at - row_at) % length;
#endif
    const __global int *page = ROW_PAGE;

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
        uint a = max(first, START) - START, b = max(last, START) - START;
        bool whole = last - first == length;

        for (;;) {
            float acc[VW][4], seen_max0 = NO_MAX, seen_max1 = NO_MAX, sum0 = 0, sum1 = 0;
            float row_max0 = online ? NO_MAX : base, row_max1 = row_max0; /* what scores are taken relative to */
#pragma unroll
            for (int w = 0; w < VW; w++)
#pragma unroll
                for (int i = 0; i < 4; i++) acc[w][i] = 0;

            uint tile = a + warp;
#define TILE_AT(page_id, t) ((ulong)(uint)(page_id)*page_stride + (kvh * P + (t) % TP * 16) * D)
            uint k0[KW], k1[KW], va[VW], vb[VW], vc[VW], vd[VW];
            ulong off = 0;
            int id = 0;
            if (tile < b) {
                off = TILE_AT(page[TILE_OF_ROW(tile) / TP], TILE_OF_ROW(tile));
                LOAD(KW, k0, IN_AT(half, kp) + off + g * D, quad, 4)
                LOAD(KW, k1, IN_AT(half, kp) + off + (g + 8) * D, quad, 4)
                id = page[TILE_OF_ROW(min(tile + WARPS, b - 1)) / TP];
            }
            for (; tile < b; tile += WARPS) {
                const __global half *v = IN_AT(half, vp) + off + 2 * quad * D;
                LOAD(VW, va, v, g, 8)
                LOAD(VW, vb, v + D, g, 8)
                LOAD(VW, vc, v + 8 * D, g, 8)
                LOAD(VW, vd, v + 9 * D, g, 8)
                uint next = min(tile + WARPS, b - 1);
                off = TILE_AT(id, TILE_OF_ROW(next));
                id = page[TILE_OF_ROW(min(next + WARPS, b - 1)) / TP];

                float s[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}}; /* two chains of sums: less to wait for */
#pragma unroll
                for (int w = 0; w < KW; w += 2)
                    MMA(s[w / 2 & 1], k0[w], k1[w], k0[w + 1], k1[w + 1], qw[w], qw[w + 1]);
                if (tile + WARPS < b) {
                    LOAD(KW, k0, IN_AT(half, kp) + off + g * D, quad, 4)
                    LOAD(KW, k1, IN_AT(half, kp) + off + (g + 8) * D, quad, 4)
                }
                float x0 = (s[0][0] + s[1][0]) * c, x1 = (s[0][1] + s[1][1]) * c;
                float x2 = (s[0][2] + s[1][2]) * c, x3 = (s[0][3] + s[1][3]) * c;
                if ((TILE_OF_ROW(tile) + 1) * 16 > keys || IN_MASKED(TILE_OF_ROW(tile))) { /* slots of others may hold NaN */
                    uint k = TILE_OF_ROW(tile) * 16 + g, v0 = TILE_OF_ROW(tile) * 16 + 2 * quad;
                    if (UNSEEN(k)) x0 = x1 = -INFINITY;
                    if (UNSEEN(k + 8)) x2 = x3 = -INFINITY;
#pragma unroll
                    for (int w = 0; w < VW; w++) {
                        if (UNSEEN(v0)) va[w] = 0;
                        if (UNSEEN(v0 + 1)) vb[w] = 0;
                        if (UNSEEN(v0 + 8)) vc[w] = 0;
                        if (UNSEEN(v0 + 9)) vd[w] = 0;
                    }
                }
                seen_max0 = fmax(seen_max0, fmax(x0, x2));
                seen_max1 = fmax(seen_max1, fmax(x1, x3));
                if (online && lanes_with(seen_max0 > row_max0 + RESCALE_THRESHOLD || seen_max1 > row_max1 + RESCALE_THRESHOLD)) {
                    float t0 = seen_max0, t1 = seen_max1;
#pragma unroll
                    for (uint xor_distance = 4; xor_distance < 32; xor_distance *= 2) {
                        t0 = fmax(t0, lane_xor(t0, xor_distance));
                        t1 = fmax(t1, lane_xor(t1, xor_distance));
                    }
                    t0 = t0 > row_max0 + RESCALE_THRESHOLD ? t0 : row_max0;
                    t1 = t1 > row_max1 + RESCALE_THRESHOLD ? t1 : row_max1;
                    float alpha0 = power_of_two(row_max0 - t0), alpha1 = power_of_two(row_max1 - t1);
                    sum0 *= alpha0;
                    sum1 *= alpha1;
#pragma unroll
                    for (int w = 0; w < VW; w++) {
                        acc[w][0] *= alpha0;
                        acc[w][1] *= alpha1;
                        acc[w][2] *= alpha0;
                        acc[w][3] *= alpha1;
                    }
                    row_max0 = t0;
                    row_max1 = t1;
                }
                x0 = power_of_two(x0 - row_max0);
                x1 = power_of_two(x1 - row_max1);
                x2 = power_of_two(x2 - row_max0);
                x3 = power_of_two(x3 - row_max1);
                sum0 += x0 + x2;
                sum1 += x1 + x3;
                uint p0 = transpose8(f16_pair(x0, x1)), p1 = transpose8(f16_pair(x2, x3));
#pragma unroll
                for (int w = 0; w < VW; w++)
                    MMA(acc[w], permute_bytes(va[w], vb[w], 0x5410), permute_bytes(va[w], vb[w], 0x7632),
                        permute_bytes(vc[w], vd[w], 0x5410), permute_bytes(vc[w], vd[w], 0x7632), p0, p1);
            }

            /* The warps' sums, brought to one maximum. Asynchronous: the maximum only records what was seen. */
#pragma unroll
            for (uint xor_distance = 4; xor_distance < 32; xor_distance *= 2) {
                sum0 += lane_xor(sum0, xor_distance);
                sum1 += lane_xor(sum1, xor_distance);
                if (ASYNC) {
                    seen_max0 = fmax(seen_max0, lane_xor(seen_max0, xor_distance));
                    seen_max1 = fmax(seen_max1, lane_xor(seen_max1, xor_distance));
                }
            }
            if (g == 0) {
                state[warp * 8 + 2 * quad] = (float2)(online ? row_max0 : seen_max0, sum0);
                state[warp * 8 + 2 * quad + 1] = (float2)(online ? row_max1 : seen_max1, sum1);
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            float alpha0 = 1, alpha1 = 1;
            if (online) {
                float t0 = NO_MAX, t1 = NO_MAX;
                for (int i = 0; i < WARPS; i++) {
                    t0 = fmax(t0, state[i * 8 + 2 * quad].x);
                    t1 = fmax(t1, state[i * 8 + 2 * quad + 1].x);
                }
                alpha0 = power_of_two(row_max0 - t0);
                alpha1 = power_of_two(row_max1 - t1);
            }
            __local float *mine = partial + (warp * 8 + 2 * quad) * PITCH;
#pragma unroll
            for (int w = 0; w < VW; w++) {
                uint d = word_at(w, VW, g, 8);
                if (2 * quad < heads) {
                    mine[d] = acc[w][0] * alpha0;
                    mine[d + 1] = acc[w][2] * alpha0;
                }
                if (2 * quad + 1 < heads) {
                    mine[PITCH + d] = acc[w][1] * alpha1;
                    mine[PITCH + d + 1] = acc[w][3] * alpha1;
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);

            /* Four sums a work-item: of this group, then, if it is the last one, of all. */
            uint from = 0, to = 0; /* the groups that share this item */
            if (!whole) {
                from = (uint)part_of((item_at + 1) * groups - 1, 1, total);
                to = (uint)part_of((item_at + length) * groups - 1, 1, total);
                uint index = 2 * get_group_id(0) + (item_at >= begin);
                __global float *put = (__global float *)(scratch + COUNTERS) + (ulong)index * PARTIAL;
                for (uint i = lid; i < heads * (D / 4); i += WG) {
                    uint col = i / (D / 4), d = i % (D / 4) * 4;
                    float4 sum = FOUR(partial, col * PITCH + d);
                    for (int w = 1; w < WARPS; w++) sum += FOUR(partial, (w * 8 + col) * PITCH + d);
                    *(__global float4 *)(put + col * D + d) = sum;
                }
                if (lid < heads) {
                    float t = NO_MAX, sum = 0;
                    for (int i = 0; i < WARPS; i++) t = fmax(t, state[i * 8 + lid].x);
                    for (int i = 0; i < WARPS; i++)
                        sum += state[i * 8 + lid].y * (online ? power_of_two(state[i * 8 + lid].x - t) : 1);
                    ((__global float2 *)(put + 8 * D))[lid] = (float2)(t, sum);
                }
                barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
                if (lid == 0) arrivals = arrive(scratch + from);
                barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
                if (arrivals != to - from) break;
                if (lid == 0) scratch[from] = 0;
            }
            uint redo = 0;
            for (uint i = lid; i < heads * (D / 4); i += WG) {
                uint col = i / (D / 4), d = i % (D / 4) * 4;
                float4 sum = (float4)(0);
                float t = NO_MAX, l = 0;
                if (whole) {
                    for (int w = 0; w < WARPS; w++) {
                        sum += FOUR(partial, (w * 8 + col) * PITCH + d);
                        t = fmax(t, state[w * 8 + col].x);
                    }
                    for (int w = 0; w < WARPS; w++)
                        l += state[w * 8 + col].y * (online ? power_of_two(state[w * 8 + col].x - t) : 1);
                } else {
                    const __global float *parts = (const __global float *)(scratch + COUNTERS);
                    for (uint w = from; w <= to; w += AT_ONCE) {
                        float4 add[AT_ONCE];
                        float2 with[AT_ONCE];
#pragma unroll
                        for (uint i = 0; i < AT_ONCE; i++) {
                            uint u = min(w + i, to);
                            const __global float *get = parts + (ulong)(2 * u + (u == from)) * PARTIAL;
                            LD_SHARED4(add[i], get + col * D + d);
                            LD_SHARED2(with[i], get + 8 * D + 2 * col);
                        }
                        float higher = t;
#pragma unroll
                        for (uint i = 0; i < AT_ONCE; i++) higher = fmax(higher, with[i].x);
                        float old = online ? power_of_two(t - higher) : 1;
                        sum *= old;
                        l *= old;
                        t = higher;
#pragma unroll
                        for (uint i = 0; i < AT_ONCE; i++) {
                            float new = w + i > to ? 0 : online ? power_of_two(with[i].x - t) : 1;
                            sum += add[i] * new;
                            l += with[i].y * new;
                        }
                    }
                }
                if (!(wanted >> col & 1)) continue;
                /* "!(in range)", for a NaN to be seen, too; a row without keys has no maximum */
                if (!online && keys > 0 && !(t - base > low && t - base < 15)) {
                    redo |= 1u << col;
                    continue;
                }
                ulong to_o = (ulong)m * o_stride + (kvh * per_kv + head0 + col) * D + d;
                sum = l == 0 ? (float4)(0) : sum / l;
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
            a = 0;
            b = length - START;
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
            row_pos = ROW_POS;
            keys = (uint)max(row_pos + 1, 0);
#if !WINDOWS
            length = length_of(row_pos);
#endif
            page = ROW_PAGE;
        }
#if WINDOWS
        if (at < end) LOAD_ITEM
#endif
    }
}
