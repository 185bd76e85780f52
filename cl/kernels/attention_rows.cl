/* attention_rows: softmax(q . k * scale) v over paged keys for many rows of a sequence, on NVIDIA's matrix units, with
 * the bits that attention_split has by chunks at absolute positions: a row's result is the same whether it is decoded
 * or part of a prompt.
 *
 * It is that kernel with more columns. A work-group has a block: some rows of a sequence times query heads of one KV
 * head, a column each. Every four warps are a team, which has 8 NT columns and all keys, so that a warp reads a tile of
 * keys and values once for all of its columns, and the others' read finds it in the first cache. A column's products,
 * its softmax and its chunks are as there; tiles that only later rows see weigh 0 and change nothing. No work-group
 * shares a block with others. Blocks with the longest rows come first.
 *
 * Rows of a block that belong to several sequences are done one sequence after another. Queries wait in local memory:
 * registers hold sums, of as many columns as they can, for what is read of keys and values is the limit.
 *
 * Knobs: D (head size, a multiple of 16, at most 128), TP (16-token tiles a page), CHUNK, GROWS (as of
 * attention_split), NT. WG: 128 for each team. Pools are aligned to 16 bytes, q is F16.
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
#ifndef CHUNK
#define CHUNK 16
#define GROWS 2048
#endif
#ifndef NT
#define NT 3
#endif
#define ASYNC 0

#undef LD /* other warps read the same */
#define LD "ld.global.nc.L2::128B"
#define WARPS 4 /* of a team: as attention_split has */
#define TEAMS (WG / 32 / WARPS)
#define ALL   (TEAMS * NT) /* times 8 columns */
#define TEAM_SUMS (WARPS * WARP_SUMS)
#define KW (D / 8)  /* words of a key that a lane holds: 4 lanes a key */
#define VW (D / 16) /* words of a value that a lane holds: 8 lanes a value */
#define PAIR (2 * D + 4) /* of two columns in local memory: so far apart that lanes write to other banks */
#define WARP_SUMS (4 * PAIR)
#define BUFFERS 1 /* for each team, of 8 columns */
#define PER_ITEM ((2 * D + WG - 1) / WG) /* times 4 sums of 8 columns that a work-item adds up */
#define FOUR(floats, i) (*(__local const float4 *)((floats) + (i)))
#define PARTIAL 0
#define BURST   1
#define INLINE __attribute__((always_inline))
#include "attention/split_costs.clh"
#include "attention/chunks.clh"
#include "attention/split_list.clh"
#include "attention/split_items.clh"
#include "attention/split_tiles.clh"

/* A block: rows m0 to m_end - 1 by `heads` heads from head0 on; first_head: of the KV head. */
typedef struct block {
    uint m0, m_end, kvh, head0, heads, columns;
} block;

/* Rows m to end - 1 of a block, of one sequence, and the positions of the first and the last to end. */
typedef struct run {
    uint m, end;
    int least, most;
} run;

INLINE run find_run(const block *b, uint m, const __global int *seq, const __global int *pos)
{
    run r = {m, m, INT_MAX, -1};
    for (; r.end < b->m_end && seq[r.end] == seq[m]; r.end++) {
        r.least = min(r.least, pos[r.end]);
        r.most = max(r.most, pos[r.end]);
    }
    return r;
}

INLINE uint row_of(const block *b, uint column)
{
    return b->m0 + column / b->heads;
}

/* Is the column's row of the run? */
INLINE bool is_in(const block *b, const run *r, uint column)
{
    uint m = row_of(b, column);
    return column < b->columns && m >= r->m && m < r->end;
}

/* How many columns the n-th 8 have. */
INLINE uint columns_of(const block *b, uint n)
{
    return b->columns > 8 * n ? min(b->columns - 8 * n, 8u) : 0;
}

/* The last key that each of the lane's columns sees: none in other runs. */
INLINE void look_at_columns(int last[NT][2], const block *b, const run *r, const __global int *pos, uint team,
                            uint quad)
{
#pragma unroll
    for (uint n = 0; n < NT; n++)
#pragma unroll
        for (uint i = 0; i < 2; i++) {
            uint column = 8 * (team * NT + n) + 2 * quad + i;
            last[n][i] = is_in(b, r, column) ? pos[row_of(b, column)] : -1;
        }
}

/* Queries wait in local memory, for registers hold sums: of each 8 columns the pairs of words of a lane, as all warps
 * of a team read them. */
INLINE void share_queries(__local uint2 *pairs, const block *b, const __global half *q, uint q_stride, uint team,
                          const lane_t *me)
{
    bool aligned = (((ulong)q | (ulong)q_stride * 2) & 7) == 0;
    barrier(CLK_LOCAL_MEM_FENCE); /* the block before is done */
    for (uint n = me->warp; n < NT; n += WARPS) {
        uint column = min(8 * (team * NT + n) + me->g, b->columns - 1), words[KW];
        load_q(words, q + (ulong)row_of(b, column) * q_stride + (b->head0 + column % b->heads) * D, me->quad, aligned);
#pragma unroll
        for (uint w = 0; w < KW; w += 2) pairs[(n * KW + w) * 16] = (uint2)(words[w], words[w + 1]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* As multiply_keys() of attention_split, for one 8 columns. */
INLINE void multiply_shared(float x[4], const keys_t *k, const __local uint2 *pairs)
{
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = 0;
#pragma unroll
    for (int w = 0; w < KW; w += 2) {
        uint2 q = pairs[w * 16];
        MMA(x, KEY(k->k0, w), KEY(k->k1, w), KEY(k->k0, w + 1), KEY(k->k1, w + 1), q.x, q.y);
    }
}

/* Scores of keys that a column does not see. */
INLINE void mask_columns(float x[4], const int last[2], uint tile, uint g)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        if ((int)(tile * 16 + g) + i / 2 * 8 > last[i % 2]) x[i] = -INFINITY;
}

/* Values that no row of the run sees become zeros: such slots may hold NaN. */
INLINE void clear_unseen(values_t *v, int most, uint tile, uint quad)
{
    int first = (int)(tile * 16 + 2 * quad);
    if (first > most) KV_CLEAR(VW, v->a, 8)
    if (first + 1 > most) KV_CLEAR(VW, v->b, 8)
    if (first + 8 > most) KV_CLEAR(VW, v->c, 8)
    if (first + 9 > most) KV_CLEAR(VW, v->d, 8)
}

/* Scores of one tile, in all columns. */
INLINE void score_all(sums_t sums[NT], float x[NT][4], const stream *s, uint tile, const __local uint2 *pairs,
                      const int last[NT][2], const run *r, float scale, const lane_t *me)
{
#pragma unroll
    for (int n = 0; n < NT; n++) {
        multiply_shared(x[n], s->keys, pairs + n * KW * 16);
        if ((int)(tile * 16 + 15) > r->least) mask_columns(x[n], last[n], tile, me->g);
        note_scores(&sums[n], x[n], scale);
    }
}

/* And its values. */
INLINE void add_all(sums_t sums[NT], float x[NT][4], values_t *v, uint tile, const run *r, float scale,
                    const lane_t *me)
{
    if ((int)(tile * 16 + 15) > r->most) clear_unseen(v, r->most, tile, me->quad);
#pragma unroll
    for (int j = 0; j < NT; j++) {
        uint p[2];
        weigh(&sums[j], p, x[j], scale);
        add_values(&sums[j], p, v, me->g);
    }
}

/* The warp's tiles before `end`, as attend() of attention_split, for all columns. */
INLINE void attend_all(sums_t sums[NT], stream *s, const tiles *of, const item_sight *seen, const __local uint2 *pairs,
                       const int last[NT][2], const run *r, float scale, uint end, const lane_t *me)
{
    while (s->t < end) {
        values_t v;
        float x[STEP][NT][4];
        step_t step = step_of(s, of, seen, end);
#pragma unroll
        for (uint i = 0; i < STEP; i++) {
            if (i) load_step_keys(s->keys, s, of, seen, i, i + 1, me);
            if (i < step.n) score_all(sums, x[i], s, step.t + i * WARPS, pairs, last, r, scale, me);
        }
        load_step_values(&v, s, of, seen, 0, 1, me);
        step.next_page = page_of_lane(of, seen, step.t + step.n * WARPS, me);
#pragma unroll
        for (int j = 0; j < NT; j++) raise(&sums[j]);
#pragma unroll
        for (uint i = 0; i < STEP; i++) {
            if (i) load_step_values(&v, s, of, seen, i, i + 1, me);
            if (i < step.n) add_all(sums, x[i], &v, step.t + i * WARPS, r, scale, me);
        }
        advance(s, &step, of, seen, me);
    }
}

/* A chunk's sums of all columns join the totals, eight columns of each team at a time. */
INLINE void take_all(total_t total[ALL], sums_t sums[NT], __local float *room, __local float2 *states, const block *b,
                     uint team, const lane_t *me)
{
#pragma unroll
    for (uint n = 0; n < NT; n++) {
        shared_sums mine = {room + team * TEAM_SUMS, states + team * WARPS * 8};
        share_sums(&mine, &sums[n], columns_of(b, team * NT + n), true, me);
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (uint t = 0; t < TEAMS; t++) {
            shared_sums from = {room + t * TEAM_SUMS, states + t * WARPS * 8};
            take_chunk(&total[t * NT + n], 0, &from, columns_of(b, t * NT + n), true, me);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

/* The sums of all columns over the keys of the run, chunk by chunk. */
INLINE void sum_run(total_t total[ALL], __local float *room, __local float2 *states, const tiles *of,
                    const __local uint2 *pairs, const int last[NT][2], const block *b, const run *r, float scale,
                    uint team, const lane_t *me)
{
    const item_sight seen = {{r->most}};
    stream s;
#pragma unroll
    for (int n = 0; n < ALL; n++) clear_total(&total[n]);
    start_stream(&s, of, &seen, me);
    for (uint from = 0; from < of->to;) {
        uint end = chunk_end(&seen, from, of->to);
        sums_t sums[NT];
#pragma unroll
        for (int n = 0; n < NT; n++) clear_sums(&sums[n], NO_MAX);
        attend_all(sums, &s, of, &seen, pairs, last, r, scale, end, me);
        take_all(total, sums, room, states, b, team, me);
        from = end;
    }
}

INLINE void write_run(const total_t total[ALL], const block *b, const run *r, OUT_ACT(o), uint o_stride,
                      const lane_t *me)
{
#pragma unroll
    for (uint t = 0; t < ALL; t++)
        EACH_PART(n, col, d, columns_of(b, t), me->lid)
        {
            uint column = 8 * t + col;
            if (!is_in(b, r, column)) continue;
            ulong to = (ulong)row_of(b, column) * o_stride + (b->head0 + column % b->heads) * D + d;
            float4 y = total[t].sum[n] * reciprocal_or_0(total[t].state[n].y);
            STORE(o, to, y.x)
            STORE(o, to + 1, y.y)
            STORE(o, to + 2, y.z)
            STORE(o, to + 3, y.w)
        }
}

KERNEL void attention_rows(IN(q), IN(kp), IN(vp), IN(seq), IN(pos), IN(indptr), IN(pages), OUT_ACT(o), uint M, uint Hq,
                           uint Hkv, uint P, uint page_stride, uint q_stride, uint o_stride, float scale)
{
    __local float room[TEAMS * TEAM_SUMS] __attribute__((aligned(16)));
    __local float2 states[TEAMS * WARPS * 8];
    __local uint2 queries[TEAMS * NT * KW * 16];
    uint lid = get_local_id(0), lane_id = lid & 31, team = lid / (32 * WARPS);
    uint per_kv = Hq / Hkv, most = min(per_kv, 8u * ALL), parts = (per_kv + most - 1) / most;
    uint rows = 8 * ALL / most, blocks = (M + rows - 1) / rows, columns = Hkv * parts;
    const lane_t me = {lid, lid / 32 % WARPS, lane_id >> 2, lane_id & 3};
    __local uint2 *pairs = queries + team * NT * KW * 16 + lane_id;

    for (uint item = (uint)get_group_id(0); item < blocks * columns; item += (uint)get_num_groups(0)) {
        uint part = item % columns, m0 = (blocks - 1 - item / columns) * rows, m_end = min(M, m0 + rows),
             head = part % parts * most;
        block b = {m0, m_end, part / parts, part / parts * per_kv + head, min(most, per_kv - head), 0};
        b.columns = (m_end - m0) * b.heads;
        share_queries(pairs, &b, IN_AT(half, q), q_stride, team, &me);
        for (uint m = m0; m < m_end;) { /* runs of rows of one sequence */
            run r = find_run(&b, m, IN_AT(int, seq), IN_AT(int, pos));
            const __global int *page = IN_AT(int, pages) + IN_AT(int, indptr)[IN_AT(int, seq)[m]];
            tiles of = {
                IN_AT(half, kp), IN_AT(half, vp), page, page_stride, b.kvh, P, 0, (uint)max(r.most + 16, 0) >> 4};
            int last[NT][2];
            total_t total[ALL];
            look_at_columns(last, &b, &r, IN_AT(int, pos), team, me.quad);
            sum_run(total, room, states, &of, pairs, last, &b, &r, scale * 1.44269504f, team, &me);
            write_run(total, &b, &r, o_base, o_off, o_half, o_stride, &me);
            m = r.end;
        }
    }
}
