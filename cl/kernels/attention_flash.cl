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
 * SPLIT 1: for few rows with many keys. Pass 0: a work-group takes only one chunk of a row's keys (chunk of them, a
 * multiple of TK, from a multiple of chunk on) and leaves sums, their total and maximum in the scratch buffer; pass 1, a
 * second launch, adds the chunks of each row. The result depends on chunk, and on nothing else of the batch.
 *
 * WINDOWS 1: each KV head has a window (attention/mask.clh). Tiles and chunks that no row sees are left out, and KV heads are done
 * in the order of their windows: the longest first, so that the device is full to the end.
 *
 * Knobs: D (head size, a multiple of 4, at most 4 WG), R (at most WG), TK (divides WG). Local memory:
 * R * D + TK * (D + 4) + R * TK + 3 R floats (4 R + 1 with WINDOWS), TK ulongs.
 */
#include "common.clh"
#include "attention/mask.clh"
#ifndef D
#define D 64
#define R 8
#define TK 16
#endif

#ifndef SPLIT
#define SPLIT 0
#endif

#define FIRST 4096 /* floats at the scratch buffer's start that stay as they are */
#define D4    (D / 4)
#define PITCH (D4 + 1) /* of a key in local memory: neighbouring keys in other banks */
#define S_STEP (WG / TK)
#define S_ROWS ((R + S_STEP - 1) / S_STEP)
#define O_STEP (WG / D4)
#define O_ROWS ((R + O_STEP - 1) / O_STEP)

/* What the packed rows see of a run. */
typedef struct rows_sight {
    const __local int *last; /* the last key; -1: none */
#if WINDOWS
    const __local int *after; /* the first key behind the masked range */
    int sink;
#endif
} rows_sight;

#if WINDOWS
/* Does a row at position pos see a key from `from` to stop - 1? */
bool attends_any(int from, int stop, int pos, int after, int sink)
{
    return from <= pos && (from < sink || stop > after);
}

/* The KV head with the rank-th longest window; 0 or less, which is all keys, is the longest. */
void find_head(__local uint *head, const __global int *windows, uint Hkv, uint rank)
{
    for (uint h = get_local_id(0); h < Hkv; h += WG) {
        uint own = (uint)windows[h] - 1, longer = 0;
        for (uint i = 0; i < Hkv; i++) {
            uint other = (uint)windows[i] - 1;
            longer += other > own || (other == own && i < h);
        }
        if (longer == rank) *head = h;
    }
}

/* What packed row r sees. */
bool attends(const rows_sight *s, int key, uint r)
{
    return key <= s->last[r] && (key < s->sink || key >= s->after[r]);
}

bool attends_tile(const rows_sight *s, int k0, uint r)
{
    return attends_any(k0, k0 + TK, s->last[r], s->after[r], s->sink);
}

/* Is key k0 + j, at most the row's last, masked? */
bool masks(const rows_sight *s, int k0, int j, uint r)
{
    return j >= s->sink - k0 && j < s->after[r] - k0;
}

/* The tile that begins at k, or where that lies in the masked range of all rows, the one in which it ends. */
#define TILE_FROM(k)     ((k) < sink ? (k) : max((k), masked_end / TK * TK))
#else
bool attends(const rows_sight *s, int key, uint r)
{
    return key <= s->last[r];
}

bool attends_tile(const rows_sight *s, int k0, uint r)
{
    return k0 <= s->last[r];
}

bool masks(const rows_sight *s, int k0, int j, uint r)
{
    return false;
}

#define TILE_FROM(k)     (k)
#endif

/* Where the keys k0 to k0 + TK - 1 of a sequence begin in the pools; those from end on: NONE. */
void find_tile(__local ulong *at, const __global int *page, int k0, int end, uint kvh, uint P,
               uint page_stride)
{
    uint j = get_local_id(0), key = k0 + j;
    if (j < TK)
        at[j] = (int)key < end ? (ulong)page[key / P] * page_stride + (kvh * P + key % P) * D : NONE;
}

void load_tile(__local float4 *tile, const __global half *pool, __local const ulong *at)
{
    for (uint c = get_local_id(0); c < TK * D4; c += WG) {
        uint j = c / D4, d = c % D4;
        tile[j * PITCH + d] = at[j] == NONE ? (float4)(0) : vloada_half4(0, pool + at[j] + 4 * d);
    }
}

/* The packed rows of Q; padding is zeros. */
void load_q(__local float *qs, const __global act_t *q, uint q_stride, uint m0, uint m_end, uint kvh, uint hb, uint HB, uint G)
{
    for (uint c = get_local_id(0); c < R * D; c += WG) {
        uint r = c / D, m = m0 + r / HB, h = hb * HB + r % HB;
        bool in = m < m_end && h < G;
        const __global act_t *row = q + (ulong)(in ? m : 0) * q_stride;
        qs[c] = in ? ACT_LOAD(row, (kvh * G + (in ? h : 0)) * D + c % D) : 0;
    }
}

/* Scores of the tile of keys that begins at k0. A key that a row does not see is not multiplied. */
void score_tile(__local float *score, const __local float4 *qs, const __local float4 *keys, const rows_sight *seen, int k0, float scale)
{
    uint j = get_local_id(0) % TK, first = get_local_id(0) / TK;
    for (int i = 0; i < S_ROWS; i++) {
        uint r = first + i * S_STEP;
        if (r >= R) continue;
        float x = -INFINITY;
        if (attends(seen, k0 + (int)j, r)) {
            float4 dot4 = (float4)(0);
            for (uint d = 0; d < D4; d++) dot4 = MAD(qs[r * D4 + d], keys[j * PITCH + d], dot4);
            x = (dot4.x + dot4.y + (dot4.z + dot4.w)) * scale;
        }
        score[r * TK + j] = x;
    }
}

/* This work-item's weights, exp(score - maximum), and the maxima with this tile. */
void weigh_tile(float p[S_ROWS], __local float *new_max, const __local float *old_max, const __local float *score, const rows_sight *seen, int k0)
{
    uint j = get_local_id(0) % TK, first = get_local_id(0) / TK;
    for (int i = 0; i < S_ROWS; i++) {
        uint r = first + i * S_STEP;
        if (r >= R) continue;
        float t = old_max[r];
        for (uint n = 0; n < TK; n++) t = fmax(t, score[r * TK + n]);
        p[i] = attends(seen, k0 + (int)j, r) ? exp(score[r * TK + j] - t) : 0;
        if (j == 0) new_max[r] = t;
    }
}

/* O += P V for this work-item's columns. */
void add_values(float4 acc[O_ROWS], float sum[O_ROWS], const __local float *weights, const __local float4 *values, const __local float *old_max,
                const __local float *new_max, const rows_sight *seen, int k0)
{
    uint column = get_local_id(0) % D4, first = get_local_id(0) / D4;
    for (int i = 0; i < O_ROWS; i++) {
        uint r = first + i * O_STEP;
        if (first >= O_STEP || r >= R || !attends_tile(seen, k0, r)) continue;
        float alpha = exp(old_max[r] - new_max[r]);
        int n = min(TK, seen->last[r] - k0 + 1);
        acc[i] *= alpha;
        sum[i] *= alpha;
        for (int j = 0; j < n; j++) {
            if (masks(seen, k0, j, r)) continue;
            float w = weights[r * TK + j];
            acc[i] = MAD((float4)(w), values[j * PITCH + column], acc[i]);
            sum[i] += w;
        }
    }
}

#if SPLIT
#if WINDOWS
#define CHUNK_ARGS   WINDOW_ARGS, uint G
#define CHUNK_VALUES , windows_base, windows_off, sink, Hq / Hkv
#define WRITTEN(c)   attends_any((c) * chunk, (c) + 1 < chunks ? ((c) + 1) * chunk : INT_MAX, pos[m], after, sink)
#else
#define CHUNK_ARGS
#define CHUNK_VALUES
#define WRITTEN(c) true
#endif

/* Part c of row m and query head h: D sums, their total, their maximum. */
__global float *partial_of(__global float *scratch, ulong row_head, uint chunks, uint c)
{
    return scratch + FIRST + (row_head * chunks + c) * (D + 2);
}

/* Pass 1: a work-item four columns of a row and head. */
void add_chunks(__global float *scratch, uint chunk, uint chunks, const __global int *pos, OUT_ACT(o), uint M,
                uint Hq, uint o_stride CHUNK_ARGS)
{
    for (ulong i = get_global_id(0); i < (ulong)M * Hq * D4; i += get_global_size(0)) {
        ulong row_head = i / D4, m = row_head / Hq;
        uint d = i % D4 * 4, n = pos[m] < 0 ? 0 : min(chunks, (uint)pos[m] / chunk + 1);
        float all_max = -INFINITY, total = 0;
        float4 sum = (float4)(0);
#if WINDOWS
        int after = after_masked(pos[m], IN_AT(int, windows)[row_head % Hq / G], sink);
#endif
        for (uint c = 0; c < n; c++)
            if (WRITTEN(c)) all_max = fmax(all_max, partial_of(scratch, row_head, chunks, c)[D + 1]);
        for (uint c = 0; c < n; c++) {
            if (!WRITTEN(c)) continue;
            const __global float *partial = partial_of(scratch, row_head, chunks, c);
            float w = exp(partial[D + 1] - all_max);
            sum = MAD((float4)(w), vload4(0, partial + d), sum);
            total = MAD(w, partial[D], total);
        }
        ulong to = m * o_stride + row_head % Hq * D + d;
        sum = total == 0 ? (float4)(0) : sum / total;
        STORE(o, to, sum.x)
        STORE(o, to + 1, sum.y)
        STORE(o, to + 2, sum.z)
        STORE(o, to + 3, sum.w)
    }
}
#endif

KERNEL void attention_flash(IN(q), IN(kp), IN(vp), IN(seq), IN(pos), IN(indptr), IN(pages),
                            OUT_ACT(o), uint M, uint Hq, uint Hkv, uint P,
                            uint page_stride, uint q_stride, uint o_stride, float scale WINDOW_ARGS, uint BR,
                            uint HB, __global float *scratch, uint chunk, uint chunks, uint pass)
{
#if SPLIT
    if (pass == 1) {
        add_chunks(scratch, chunk, chunks, IN_AT(int, pos), o_base, o_off, o_half, M, Hq, o_stride CHUNK_VALUES);
        return;
    }
#endif
    __local float4 qs[R * D4], tile[TK * PITCH];
    __local ulong at[TK];
    __local float score[R * TK], row_max[2][R]; /* row_max: running maxima before and after the tile */
    __local int last[R];                    /* the last key that a packed row sees; -1: none */
#if WINDOWS
    __local int after[R]; /* the first key behind a packed row's masked range */
    __local uint head;
    const __global int *windows = IN_AT(int, windows);
#endif
#if WINDOWS
    const rows_sight seen = {last, after, sink};
#else
    const rows_sight seen = {last};
#endif
    const __global int *seq = IN_AT(int, seq), *pos = IN_AT(int, pos);
    uint lid = get_local_id(0), sj = lid % TK, sr = lid / TK, od = lid % D4, orow = lid / D4;
    uint G = Hq / Hkv, head_blocks = (G + HB - 1) / HB, blocks = (M + BR - 1) / BR;
    uint works = blocks * Hkv * head_blocks * chunks; /* chunks is 1 unless SPLIT */

    for (uint turn = get_group_id(0); turn < works; turn += get_num_groups(0)) {
        uint work = turn / chunks, c_own = turn % chunks;
        int begin = c_own * chunk, stop = c_own + 1 < chunks ? begin + (int)chunk : INT_MAX; /* keys of the chunk */
#if WINDOWS
        find_head(&head, windows, Hkv, work / head_blocks / blocks);
        barrier(CLK_LOCAL_MEM_FENCE);
        uint hb = work % head_blocks, kvh = head;
        uint m0 = work / head_blocks % blocks * BR, m_end = min(m0 + BR, M);
        int window = windows[kvh];
#else
        uint hb = work % head_blocks, kvh = work / head_blocks % Hkv;
        uint m0 = work / head_blocks / Hkv * BR, m_end = min(m0 + BR, M);
#endif
        float4 acc[O_ROWS];
        float sum[O_ROWS];
        int flip = 0;
        for (int i = 0; i < O_ROWS; i++) acc[i] = (float4)(0), sum[i] = 0;
        load_q((__local float *)qs, IN_AT(act_t, q), q_stride, m0, m_end, kvh, hb, HB, G);
        if (lid < R) row_max[0][lid] = -INFINITY;

        for (uint m = m0; m < m_end;) { /* runs of rows of one sequence */
            int s = seq[m], end = 0;
            uint run = m;
            for (; run < m_end && seq[run] == s; run++) end = max(end, pos[run] + 1);
            const __global int *page = IN_AT(int, pages) + IN_AT(int, indptr)[s];
            if (lid < R) {
                uint row = m0 + lid / HB;
                bool in = row >= m && row < run && hb * HB + lid % HB < G;
                last[lid] = in ? pos[row] : -1;
#if WINDOWS
                after[lid] = after_masked(last[lid], window, sink);
#endif
            }
#if WINDOWS
            int masked_end = INT_MAX;
            for (uint i = m; i < run; i++) masked_end = min(masked_end, after_masked(pos[i], window, sink));
#endif
            end = min(end, stop);
            find_tile(at, page, TILE_FROM(begin), end, kvh, P, page_stride);
            barrier(CLK_LOCAL_MEM_FENCE);

            for (int k0 = TILE_FROM(begin); k0 < end; k0 = TILE_FROM(k0 + TK)) {
                load_tile(tile, IN_AT(half, kp), at);
                barrier(CLK_LOCAL_MEM_FENCE);

                score_tile(score, qs, tile, &seen, k0, scale);
                barrier(CLK_LOCAL_MEM_FENCE);

                load_tile(tile, IN_AT(half, vp), at);
                float p[S_ROWS];
                weigh_tile(p, row_max[1 - flip], row_max[flip], score, &seen, k0);
                barrier(CLK_LOCAL_MEM_FENCE); /* all have read the scores */
                for (int i = 0; i < S_ROWS; i++)
                    if (sr + i * S_STEP < R) score[(sr + i * S_STEP) * TK + sj] = p[i];
                find_tile(at, page, TILE_FROM(k0 + TK), end, kvh, P, page_stride);
                barrier(CLK_LOCAL_MEM_FENCE);

                add_values(acc, sum, score, tile, row_max[flip], row_max[1 - flip], &seen, k0);
                flip = 1 - flip;
                barrier(CLK_LOCAL_MEM_FENCE); /* tile, scores and maxima are written again */
            }
            m = run;
        }
        for (int i = 0; i < O_ROWS; i++) {
            uint r = orow + i * O_STEP, m = m0 + r / HB, h = hb * HB + r % HB;
            if (orow >= O_STEP || r >= R || m >= m_end || h >= G) continue;
#if SPLIT
#if WINDOWS
            if (!attends_any(begin, stop, pos[m], after_masked(pos[m], window, sink), sink)) continue;
#endif
            if (begin > pos[m]) continue; /* no key of this chunk is the row's */
            __global float *partial = partial_of(scratch, (ulong)m * Hq + kvh * G + h, chunks, c_own);
            vstore4(acc[i], od, partial);
            if (od == 0) partial[D] = sum[i], partial[D + 1] = row_max[flip][r];
            continue;
#endif
            ulong to = (ulong)m * o_stride + (kvh * G + h) * D + 4 * od;
            float4 y = sum[i] == 0 ? (float4)(0) : acc[i] / sum[i];
            STORE(o, to, y.x)
            STORE(o, to + 1, y.y)
            STORE(o, to + 2, y.z)
            STORE(o, to + 3, y.w)
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* qs is written again */
    }
}
