/* attention_host: softmax(q . k * scale) v over paged keys on processors, where work-items are loops on a core: a
 * work-group is one work-item, without a barrier, and has BR rows by HB query heads of a KV head, "packed rows".
 *
 *   for each TK keys:  keys --> F32, [element][key], values --> F32, [key][element], in the core's cache
 *                      scores of RT packed rows by TK keys in registers; online softmax; RT rows += P V
 *
 * Rows of a block that belong to several sequences are done as runs, whose packed rows are neighbours. Tiles begin at
 * multiples of TK from key 0, so that a row's result does not depend on the other rows. What no row of a run sees is
 * not read: it may hold anything.
 *
 * Knobs: D, a multiple of 8; R, at least BR * HB.
 */
#ifndef WG
#define WG 1
#endif
#include "host.clh"
#include "attention/mask.clh"
#include "kv/f16.clh"
#ifndef D
#define D 64
#define R 32
#endif
#define TK (2 * LANES)
#define RT 4 /* packed rows in registers */

/* Elements of a head at a time. */
#if D % LANES == 0
#define STEP_D LANES
typedef lanes_t step_t;
#else
#define STEP_D 8
typedef float8 step_t;
#endif

/* What is in the core's cache. */
typedef struct room {
    __local float *q, *keys, *values, *weights, *out; /* R x D, D x TK, TK x D, R x TK, R x D */
    __local float *most, *sum;                        /* of R rows */
    __local sight *seen;
} room;

/* What all blocks have in common. */
typedef struct call_t {
    const __global int *seq, *pos, *indptr, *pages;
    const __global uchar *kp, *vp;
    uint M, Hq, Hkv, P, page_stride;
    float scale;
    mask_t mask;
} call_t;

/* Keys k0 to k0 + TK - 1, those up to n of which some row sees; zeros for the others. */
static INLINE void load_keys(const room *l, const call_t *c, const __global int *page, sight any, uint k0, uint kvh)
{
    for (uint j = 0; j < TK; j++) {
        uint key = k0 + j;
        bool in = sees(any, (int)key);
        ulong at = in ? kv_place(page[key / c->P], c->page_stride, (kvh * c->P + key % c->P) * D) : 0;
        __local float *value = l->values + j * D, *of_key = l->keys + j;
        for (uint d = 0; d < D; d += 8) {
            float8 v = in ? kv_load8(c->vp, at + d) : (float8)(0);
            float8 k = in ? kv_load8(c->kp, at + d) : (float8)(0);
            *(__local float8 *)(value + d) = v;
            __local float *to = of_key + d * TK;
            to[0] = k.s0, to[TK] = k.s1, to[2 * TK] = k.s2, to[3 * TK] = k.s3;
            to[4 * TK] = k.s4, to[5 * TK] = k.s5, to[6 * TK] = k.s6, to[7 * TK] = k.s7;
        }
    }
}

/* Scores of packed rows r to r + n - 1, n at most RT, which is a constant. */
static INLINE void score_rows(const room *l, const call_t *c, uint r, const int n)
{
    lanes_t a[RT], b[RT];
#pragma unroll
    for (int i = 0; i < n; i++) a[i] = b[i] = (lanes_t)(0);
    for (uint d = 0; d < D; d++) {
        const __local lanes_t *k = (const __local lanes_t *)(l->keys + d * TK);
        lanes_t first = k[0], second = k[1];
#pragma unroll
        for (int i = 0; i < n; i++) {
            lanes_t q = (lanes_t)(l->q[(r + i) * D + d]);
            a[i] = FUSED(q, first, a[i]), b[i] = FUSED(q, second, b[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < n; i++) {
        __local lanes_t *to = (__local lanes_t *)(l->weights + (r + i) * TK);
        to[0] = a[i] * c->scale, to[1] = b[i] * c->scale;
    }
}

/* Scores of a packed row become weights, and what it has so far is scaled to the new maximum. */
static INLINE void weigh_row(const room *l, const call_t *c, uint r, int k0)
{
    __local float *w = l->weights + r * TK;
    const sight seen = l->seen[r];
    if (!sees_any(seen, k0, k0 + TK)) {
        for (int j = 0; j < TK; j++) w[j] = 0;
        return;
    }
    if (SOFTCAP || !sees_all(seen, k0, k0 + TK))
        for (int j = 0; j < TK; j++) w[j] = sees(seen, k0 + j) ? capped(&c->mask, w[j]) : -INFINITY;
    __local lanes_t *v = (__local lanes_t *)w;
    float before = l->most[r], most = fmax(before, max_of_lanes(fmax(v[0], v[1])));
    lanes_t a = exp(v[0] - most), b = exp(v[1] - most);
    if (most == -INFINITY) a = b = (lanes_t)(0);
    v[0] = a, v[1] = b;
    float scale = before == -INFINITY ? 0 : exp(before - most);
    l->most[r] = most;
    l->sum[r] = l->sum[r] * scale + sum_of_lanes(a + b);
    if (scale == 1) return;
    for (uint d = 0; d < D; d += STEP_D) *(__local step_t *)(l->out + r * D + d) *= scale;
}

static INLINE void add_values(const room *l, uint r, uint keys, const int n)
{
    for (uint d = 0; d < D; d += STEP_D) {
        step_t acc[RT];
#pragma unroll
        for (int i = 0; i < n; i++) acc[i] = *(__local step_t *)(l->out + (r + i) * D + d);
        for (uint j = 0; j < keys; j++) {
            step_t v = *(const __local step_t *)(l->values + j * D + d);
#pragma unroll
            for (int i = 0; i < n; i++) acc[i] = FUSED((step_t)(l->weights[(r + i) * TK + j]), v, acc[i]);
        }
#pragma unroll
        for (int i = 0; i < n; i++) *(__local step_t *)(l->out + (r + i) * D + d) = acc[i];
    }
}

/* Packed rows from `first` to `stop`, which are of one sequence, with all of their keys. */
static INLINE void attend(const room *l, const call_t *c, const __global int *page, sight any, uint kvh, uint first,
                          uint stop)
{
    for (int k0 = next_seen(any, 0, TK); k0 <= any.last; k0 = next_seen(any, k0 + TK, TK)) {
        uint keys = min(any.last + 1 - k0, TK), r;
        load_keys(l, c, page, any, (uint)k0, kvh);
        for (r = first; r + RT <= stop; r += RT) score_rows(l, c, r, RT);
        for (; r < stop; r++) score_rows(l, c, r, 1);
        for (r = first; r < stop; r++) weigh_row(l, c, r, k0);
        for (r = first; r + RT <= stop; r += RT) add_values(l, r, keys, RT);
        for (; r < stop; r++) add_values(l, r, keys, 1);
    }
}

KERNEL void attention_host(IN(q), IN(kp), IN(vp), IN(seq), IN(pos), IN(indptr), IN(pages), OUT_ACT(o), uint M, uint Hq,
                           uint Hkv, uint P, uint page_stride, uint q_stride, uint o_stride, float scale WINDOW_ARGS,
                           uint BR, uint HB)
{
    const call_t c = {IN_AT(int, seq), IN_AT(int, pos), IN_AT(int, indptr), IN_AT(int, pages), IN_AT(uchar, kp),
                      IN_AT(uchar, vp), M, Hq, Hkv, P, page_stride, scale, MASK};
    __local float queries[R * D] __attribute__((aligned(64))), keys[D * TK] __attribute__((aligned(64)));
    __local float values[TK * D] __attribute__((aligned(64))), weights[R * TK] __attribute__((aligned(64)));
    __local float out[R * D] __attribute__((aligned(64))), most[R], sum[R];
    __local sight seen[R];
    const room l = {queries, keys, values, weights, out, most, sum, seen};
    uint heads = Hq / Hkv, head_blocks = (heads + HB - 1) / HB, blocks = (M + BR - 1) / BR;

    for (uint turn = get_group_id(0); turn < blocks * Hkv * head_blocks; turn += get_num_groups(0)) {
        uint kvh = turn % Hkv, h0 = turn / Hkv % head_blocks * HB, n = min(HB, heads - h0),
             m0 = turn / Hkv / head_blocks * BR, m_end = min(m0 + BR, M), head = kvh * heads + h0;
        for (uint r = 0; r < (m_end - m0) * n; r++) {
            const __global act_t *row = IN_AT(act_t, q) + (ulong)(m0 + r / n) * q_stride + (head + r % n) * D;
            for (uint d = 0; d < D; d++) queries[r * D + d] = ACT_LOAD(row, d), out[r * D + d] = 0;
            most[r] = -INFINITY, sum[r] = 0;
            seen[r] = sight_of(&c.mask, c.pos[m0 + r / n], head + r % n);
        }
        for (uint m = m0, run; m < m_end; m = run) {
            sight any;
            see_by_any(&c.mask, c.pos[m], head, n, &any);
            for (run = m + 1; run < m_end && c.seq[run] == c.seq[m]; run++) {
                sight of_row;
                see_by_any(&c.mask, c.pos[run], head, n, &of_row);
                any.last = max(any.last, of_row.last);
#if WINDOWS
                any.after = min(any.after, of_row.after);
#endif
            }
            attend(&l, &c, c.pages + c.indptr[c.seq[m]], any, kvh, (m - m0) * n, (run - m0) * n);
        }
        for (uint r = 0; r < (m_end - m0) * n; r++) {
            float all = with_sink(&c.mask, sum[r], most[r], head + r % n);
            ulong to = (ulong)(m0 + r / n) * o_stride + (head + r % n) * D;
            for (uint d = 0; d < D; d++) STORE(o, to + d, sum[r] == 0 ? 0 : out[r * D + d] / all)
        }
    }
}
