/* attention_flash: softmax(q . k * scale) v over paged keys, BR rows of one KV head a work-group.
 *
 * HB query heads of a KV head are packed with the rows, BR * HB <= R "packed rows", so that keys and
 * values are read once for all of them. For each tile of TK keys:
 *
 *   K tile -> local | scores R x TK | V tile -> local, scores -> exp(score - maximum) | O += P V
 *
 * with a running maximum per packed row: when a larger score comes, O and the sum are scaled down. Rows
 * of a group that belong to several sequences are done as runs, one sequence after another. A key past a
 * row's position is never multiplied, so it may hold anything. Tiles begin at multiples of TK from key 0:
 * the result of a row does not depend on BR, HB, R, WG, or on the other rows.
 *
 *   scores: work-item -> key lid % TK,           packed rows lid / TK, + WG / TK, ...
 *   O:      work-item -> columns 4 (lid % (D/4)), packed rows lid / (D/4), + WG / (D/4), ...
 *
 * SPLIT 1: for few rows with many keys: a work-group takes only one chunk of a row's keys, and a second launch merges
 * them (attention/chunk_sums.clh). That makes other bits than SPLIT 0 does, but they do not depend on the other rows
 * either.
 *
 * ASYNC 1: scores become weights, exp(score - base), as they come, without a look at the others, and sums are just
 * added. A row leaves where a score is MOST powers of two above base, and then sees no more keys; or at the end, where
 * the largest is not above `least`. Rows that left are counted and computed again in the synchronous way, without the
 * others, which gives the bits of ASYNC 0. Not with SPLIT.
 *
 * WINDOWS 1: each query head has a window (attention/mask.clh). Tiles and chunks that no packed row sees are left out,
 * and KV heads are done in the order of the longest windows of their query heads: the longest first, so that the device
 * is full to the end.
 *
 * Knobs: D (head size, a multiple of 4, at most 4 WG), R (at most WG), TK (divides WG and CHUNK); CHUNK, GROWS with
 * SPLIT; MOST with ASYNC; UNROLL: as many packed rows in a row where it is not for the products, 1 or R: all. Local
 * memory: R * D + TK * (D + 4) + R * TK + 3 R floats (5 R + 1 with WINDOWS, R + 1 more with ASYNC), TK ulongs.
 */
#include "common.clh"
#include "attention/mask.clh"
#include "kv/f16.clh"
#ifndef D
#define D 64
#define R 8
#define TK 16
#endif
#ifndef UNROLL
#define UNROLL R
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#ifndef ASYNC
#define ASYNC 0
#endif

#define D4    (D / 4)
#define PITCH (D4 + 1) /* of a key in local memory: neighbouring keys in other banks */
#define S_STEP (WG / TK)
#define S_ROWS ((R + S_STEP - 1) / S_STEP)
#define O_STEP (WG / D4)
#define O_ROWS ((R + O_STEP - 1) / O_STEP)

typedef struct local_room {
    __local float4 *qs, *tile;
    __local ulong *at;
    __local float *score,
        *row_max; /* row_max: R running maxima before the tile, R with it; flip tells which is which */
    __local sight *seen;            /* of the packed rows, in a run */
#if ASYNC
    __local uint *left, *some_left; /* which packed rows left the range; did any? */
#endif
} local_room;
#define TOO_LARGE (MOST * 0.69314718f) /* above base, in natural logarithms */
#include "attention/blocks.clh"
#if SPLIT
#include "attention/chunk_sums.clh"
#endif

/* What a work-item adds up: four columns of packed rows, and their weights. */
typedef struct sums {
    float4 acc[O_ROWS];
    float sum[O_ROWS];
} sums;
/* ---- a tile of keys ---------------------------------------------------------------------------------------------- */

/* Where the keys k0 to k0 + TK - 1 of a sequence begin in the pools; those from end on: NONE. */
void find_tile(__local ulong *at, const call_t *c, const __global int *page, int k0, int end, uint kvh)
{
    uint j = get_local_id(0), key = k0 + j;
    if (j < TK)
        at[j] = (int)key < end ? place_of(c, page, key, kvh) : NONE;
}

void load_tile(__local float4 *tile, const __global uchar *pool, __local const ulong *at)
{
    for (uint c = get_local_id(0); c < TK * D4; c += WG) {
        uint j = c / D4, d = c % D4;
        tile[j * PITCH + d] = at[j] == NONE ? (float4)(0) : kv_load4(pool, at[j] + 4 * d);
    }
}

/* The packed rows of Q; padding is zeros. */
void load_q(__local float *qs, const __global act_t *q, uint q_stride, const block *b, uint HB)
{
    for (uint c = get_local_id(0); c < R * D; c += WG) {
        uint r = c / D, m = b->m0 + r / HB, h = b->hb * HB + r % HB;
        bool in = m < b->m_end && h < b->heads;
        const __global act_t *row = q + (ulong)(in ? m : 0) * q_stride;
        qs[c] = in ? ACT_LOAD(row, (b->kvh * b->heads + (in ? h : 0)) * D + c % D) : 0;
    }
}

/* The score of a packed row and a key of the tile that begins at k0. A key that the row does not see is not multiplied.
 */
float score(const local_room *l, int k0, const call_t *c, uint r, uint j)
{
    float4 dot4 = (float4)(0);
    if (!sees(l->seen[r], k0 + (int)j)) return -INFINITY;
    for (uint d = 0; d < D4; d++) dot4 = MAD(l->qs[r * D4 + d], l->tile[j * PITCH + d], dot4);
    return capped(&c->mask, (dot4.x + dot4.y + (dot4.z + dot4.w)) * c->scale);
}

/* Scores of a tile; or weights relative to base, and into most the largest scores that this work-item has seen of its
 * rows. */
void score_tile(const bool online, float most[S_ROWS], const local_room *l, int k0, const call_t *c)
{
    uint j = get_local_id(0) % TK, first = get_local_id(0) / TK;
#pragma unroll UNROLL
    for (int i = 0; i < S_ROWS; i++) {
        uint r = first + i * S_STEP;
        if (r >= R) continue;
        float x = score(l, k0, c, r, j);
#if ASYNC
        if (!online) {
            most[i] = fmax(most[i], x);
            x -= c->base;
            if (x >= TOO_LARGE) l->left[r] = 1, *l->some_left = 1;
            x = exp(x);
        }
#endif
        l->score[r * TK + j] = x;
    }
}

/* This work-item's weights, exp(score - maximum), and the maxima with this tile. */
void weigh_tile(float p[S_ROWS], const local_room *l, int flip, int k0)
{
    uint j = get_local_id(0) % TK, first = get_local_id(0) / TK;
#pragma unroll UNROLL
    for (int i = 0; i < S_ROWS; i++) {
        uint r = first + i * S_STEP;
        if (r >= R) continue;
        float t = l->row_max[flip * R + r];
        for (uint n = 0; n < TK; n++) t = fmax(t, l->score[r * TK + n]);
        p[i] = sees(l->seen[r], k0 + (int)j) ? exp(l->score[r * TK + j] - t) : 0;
        if (j == 0) l->row_max[(1 - flip) * R + r] = t;
    }
}

void store_weights(__local float *score, const float p[S_ROWS])
{
    uint j = get_local_id(0) % TK, first = get_local_id(0) / TK;
#pragma unroll UNROLL
    for (int i = 0; i < S_ROWS; i++)
        if (first + i * S_STEP < R) score[(first + i * S_STEP) * TK + j] = p[i];
}

/* O += P V for this work-item's columns. */
void add_values(const bool online, sums *s, const local_room *l, int flip, int k0)
{
    uint column = get_local_id(0) % D4, first = get_local_id(0) / D4;
#pragma unroll
    for (int i = 0; i < O_ROWS; i++) {
        uint r = first + i * O_STEP;
        if (first >= O_STEP || r >= R || !sees_any(l->seen[r], k0, k0 + TK)) continue;
        const sight seen = l->seen[r];
        int n = min(TK, seen.last - k0 + 1);
        if (online) {
            float alpha = exp(l->row_max[flip * R + r] - l->row_max[(1 - flip) * R + r]);
            s->acc[i] *= alpha;
            s->sum[i] *= alpha;
        }
        for (int j = 0; j < n; j++) {
            if (is_masked(seen, k0 + j)) continue;
            float w = l->score[r * TK + j];
            s->acc[i] = MAD((float4)(w), l->tile[j * PITCH + column], s->acc[i]);
            s->sum[i] += w;
        }
    }
}

#if ASYNC
/* ---- asynchronous softmax ---------------------------------------------------------------------------------------- */

/* A row's largest score, behind store_most. */
float most_of(const local_room *l, uint r)
{
    float t = -INFINITY;
    for (uint n = 0; n < TK; n++) t = fmax(t, l->score[r * TK + n]);
    return t;
}

/* Which rows are to be computed again: also those whose largest score is too small. Into row_max goes what the weights
 * are relative to. */
void judge_rows(const local_room *l, const call_t *c, const block *b)
{
    uint r = get_local_id(0);
    if (r >= R) return;
    judge_row(l, c, b, r, most_of(l, r));
    l->row_max[r] = c->base;
}

/* The largest scores in place of weights. */
void store_most(const float most[S_ROWS], const local_room *l)
{
    uint j = get_local_id(0) % TK, first = get_local_id(0) / TK;
#pragma unroll UNROLL
    for (int i = 0; i < S_ROWS; i++)
        if (first + i * S_STEP < R) l->score[(first + i * S_STEP) * TK + j] = most[i];
}

#endif

/* ---- results ----------------------------------------------------------------------------------------------------- */

void clear_sums(sums *s)
{
#pragma unroll
    for (int i = 0; i < O_ROWS; i++) s->acc[i] = (float4)(0), s->sum[i] = 0;
}

/* Of the rows that left, or of the others. */
void write_rows(const sums *s, const local_room *l, const call_t *c, const block *b, bool left, int flip, OUT_ACT(o),
                uint o_stride)
{
    uint column = get_local_id(0) % D4, first = get_local_id(0) / D4;
#pragma unroll UNROLL
    for (int i = 0; i < O_ROWS; i++) {
        uint r = first + i * O_STEP, m = b->m0 + r / c->HB, h = b->hb * c->HB + r % c->HB;
        if (first >= O_STEP || r >= R || m >= b->m_end || h >= b->heads || IS_LEFT(l, r) != left) continue;
        uint head = b->kvh * b->heads + h;
        float sum = with_sink(&c->mask, s->sum[i], l->row_max[flip * R + r], head);
        write_four(o_base, o_off, o_half, (ulong)m * o_stride + head * D + 4 * column, s->acc[i], sum);
    }
}

#if SPLIT
/* Of the rows that see some key of the chunk, to the scratch buffer. */
void write_chunk(__global float *scratch, const sums *s, const local_room *l, const call_t *c, const block *b, int flip)
{
    uint column = get_local_id(0) % D4, first = get_local_id(0) / D4;
#pragma unroll UNROLL
    for (int i = 0; i < O_ROWS; i++) {
        uint r = first + i * O_STEP, m = b->m0 + r / c->HB, h = b->hb * c->HB + r % c->HB;
        if (first >= O_STEP || r >= R || !sees_chunk(c, b, r)) continue;
        __global float *partial = partial_of(scratch, (ulong)m * c->Hq + b->kvh * b->heads + h, c->chunks, b->chunk);
        vstore4(s->acc[i], column, partial);
        if (column == 0) partial[D] = s->sum[i], partial[D + 1] = l->row_max[flip * R + r];
    }
}
#endif

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* All keys of a block, by a running maximum or relative to base; left: only for rows that left. Returns which half of
 * row_max has the maxima. Both ways have the same barriers: PoCL compiles a branch with barriers four times as long. */
INLINE int attend(const bool online, bool left, sums *s, float most[S_ROWS], const local_room *l, const call_t *c,
                  const block *b)
{
    int flip = 0;
    clear_sums(s);
    if (get_local_id(0) < R) l->row_max[get_local_id(0)] = -INFINITY;
    for (uint m = b->m0; m < b->m_end;) { /* runs of rows of one sequence */
        const __global int *page = c->pages + c->indptr[c->seq[m]];
        sight any;
        m = look_at_run(&any, l, c, b, left, m);
        int k0 = next_seen(any, b->begin, TK), end = min(any.last + 1, b->stop);
        find_tile(l->at, c, page, k0, end, b->kvh);
        barrier(CLK_LOCAL_MEM_FENCE);

        for (int next; k0 < end; k0 = next) {
            float p[S_ROWS];
            next = next_seen(any, k0 + TK, TK);
            load_tile(l->tile, c->kp, l->at);
            barrier(CLK_LOCAL_MEM_FENCE);

            score_tile(online, most, l, k0, c);
            barrier(CLK_LOCAL_MEM_FENCE);

            load_tile(l->tile, c->vp, l->at);
            if (online) weigh_tile(p, l, flip, k0);
            else stop_rows(l);
            barrier(CLK_LOCAL_MEM_FENCE); /* all have read the scores */
            if (online) store_weights(l->score, p);
            find_tile(l->at, c, page, next, end, b->kvh);
            barrier(CLK_LOCAL_MEM_FENCE);

            add_values(online, s, l, flip, k0);
            if (online) flip = 1 - flip;
            else end = end_of_rows(l, end);
            barrier(CLK_LOCAL_MEM_FENCE); /* tile, scores and maxima are written again */
        }
    }
    return flip;
}

#if ASYNC
/* A block by the given maximum; then those of its rows that it does not suit by a running one. Whether there are any is
 * read just behind a barrier: PoCL takes the way that the first work-item takes from there for all. */
INLINE void attend_twice(sums *s, const local_room *l, const call_t *c, const block *b, OUT_ACT(o), uint o_stride,
                         IN(count))
{
    float most[S_ROWS];
    uint ways = 1;
#pragma unroll
    for (int i = 0; i < S_ROWS; i++) most[i] = -INFINITY;
    clear_left(l);
    for (uint again = 0; again < ways; again++) {
        int flip = attend(again, again, s, most, l, c, b);
        if (!again) store_most(most, l);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (!again) judge_rows(l, c, b);
        barrier(CLK_LOCAL_MEM_FENCE);
        write_rows(s, l, c, b, again, flip, o_base, o_off, o_half, o_stride);
        if (!again) count_left(l, count_base, count_off);
        barrier(CLK_LOCAL_MEM_FENCE); /* the maxima are written again */
        ways = 1 + *l->some_left;
    }
}
#endif

KERNEL void attention_flash(IN(q), IN(kp), IN(vp), IN(seq), IN(pos), IN(indptr), IN(pages),
                            OUT_ACT(o), uint M, uint Hq, uint Hkv, uint P,
                            uint page_stride, uint q_stride, uint o_stride, float scale WINDOW_ARGS, uint BR,
                            uint HB, __global float *scratch, uint chunks ASYNC_ARGS, uint pass)
{
    const call_t c = {IN_AT(int, seq),
                      IN_AT(int, pos),
                      IN_AT(int, indptr),
                      IN_AT(int, pages),
                      IN_AT(uchar, kp),
                      IN_AT(uchar, vp),
                      M,
                      Hq,
                      Hkv,
                      P,
                      page_stride,
                      BR,
                      HB,
                      chunks,
                      scale,
                      MASK,
                      RANGE};
#if SPLIT
    if (pass == 1) {
        merge_chunks(scratch, &c, o_base, o_off, o_half, o_stride);
        return;
    }
#endif
    __local float4 qs[R * D4], tile[TK * PITCH];
    __local ulong at[TK];
    __local float score[R * TK], row_max[2 * R];
    __local sight seen[R];
    __local uint head;
#if ASYNC
    __local uint left[R], some_left;
    const local_room l = {qs, tile, at, score, row_max, seen, left, &some_left};
#else
    const local_room l = {qs, tile, at, score, row_max, seen};
#endif
    uint heads = Hq / Hkv, head_blocks = (heads + HB - 1) / HB, blocks = (M + BR - 1) / BR, parts = chunks;

    for (uint turn = get_group_id(0); turn < blocks * Hkv * head_blocks * parts; turn += get_num_groups(0)) {
        uint work = turn / parts, of_block = work / head_blocks;
#if WINDOWS
        find_head(&head, c.mask.windows, Hkv, heads, of_block / blocks);
        barrier(CLK_LOCAL_MEM_FENCE);
        uint kvh = head, m0 = of_block % blocks * BR;
#else
        uint kvh = of_block % Hkv, m0 = of_block / Hkv * BR;
#endif
#if SPLIT
        int begin = chunk_begins(turn % parts), stop = begin + chunk_size(begin);
#else
        int begin = 0, stop = INT_MAX;
#endif
        const block b = {m0, min(m0 + BR, M), kvh, work % head_blocks, heads, turn % parts, begin, stop};
        sums s;
        load_q((__local float *)qs, IN_AT(act_t, q), q_stride, &b, HB);
#if ASYNC
        attend_twice(&s, &l, &c, &b, o_base, o_off, o_half, o_stride, count_base, count_off);
#else
        int flip = attend(true, false, &s, 0, &l, &c, &b);
#endif
#if SPLIT
        write_chunk(scratch, &s, &l, &c, &b, flip);
#elif !ASYNC
        write_rows(&s, &l, &c, &b, false, flip, o_base, o_off, o_half, o_stride);
#endif
        barrier(CLK_LOCAL_MEM_FENCE); /* qs is written again */
    }
}
