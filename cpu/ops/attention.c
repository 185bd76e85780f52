/* ATTENTION: paged, online softmax, all query heads of a KV head together.
 *
 * A work item is a block of rows of one sequence, times one KV head. It processes keys in tiles of TILE: transposes K
 * as it is, in F16 (so that lanes are keys and scores need no horizontal sums), and computes scores, exponentials and
 * the weighted sum of V for all queries of the block. K, and V for few queries, are converted as they are read. K in
 * Q8_0 is turned as whole numbers of 16 bits; scales apply where numbers are converted. After every SPLIT keys the
 * partial state (row_max, row_sum, sum of V) is merged into the row's state, in order.
 *
 * With few rows and long contexts, splits become separate work items and are merged after a barrier. The arithmetic is
 * the same, so results depend neither on that, nor on the rows that share a block, nor on the number of threads. Scores
 * are in units of log2.
 *
 * With attention windows (ops.def), tiles outside all windows of the block are skipped, and other keys outside a
 * query's window are masked. The boundaries of tiles and splits do not change. KV heads with longer windows come first,
 * so that what is left for the end is short. Sinks are no keys: the last sum takes them in.
 *
 * Asynchronous (ops.def): weights are relative to a given maximum, so no sum waits for a maximum or is rescaled. A row
 * that leaves the range is not weighed any further, and in the end computed again alone, as the synchronous kernel
 * does.
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "cpu/ops/ops.h"
#include "cpu/ops/simd.h"

#define TILE          64u
#define LINE          64u  /* bytes of a cache line */
#define RUN           8u   /* tokens found at once */
#define STEP          4u   /* turns of a loop from one prefetch to the next */
#define SPLIT         512u /* keys; a multiple of TILE */
#define BLOCK_QUERIES 32u  /* rows x heads of a block, unless one row has more heads */
#define CV            4    /* accumulator vectors of a query in registers */
#define CK            (VREGS >= 32 ? 2 : 1) /* vectors of keys in registers, for as many queries as */
#define QK            8    /* queries in registers as scores are computed */
#define QV            (VREGS >= 32 ? 4 : 2) /* queries in registers */
#define QV_DIRECT     (2 * QV) /* queries in registers with half of CV vectors, where V is converted as it is read */
#define SPLIT_ITEMS   16u /* with fewer (block, head) pairs splits are separate work items */
/* Powers of two of the asynchronous softmax's weights, those of calibration.h: the nearer to 0, the fewer digits score
 * - base loses. */
#define MOST          15.0f
#define LEAST         (-80.0f)

typedef struct att {
    const wf_op_params *p;
    const wf_view *q, *k, *v, *o;
    const int32_t *seq, *pos, *indptr, *pages, *windows; /* windows NULL: all keys */
    const float *sinks;           /* of the query heads; NULL: none */
    uint32_t m, group, dim, dim_padded; /* dim_padded: dim rounded up to vectors */
    uint32_t k_dim;               /* dim rounded up to what is transposed at once */
    uint32_t bytes, scales;       /* of an element of K and V; of a token, in Q8_0 */
    uint32_t rows;                /* most rows of a block */
    uint32_t queries;             /* most queries of a block */
    uint32_t items, splits;       /* (block, KV head) pairs; most splits of a block */
    bool split;
    bool async;                   /* weights are relative to base, ... */
    float base, low;              /* which a row's largest score must be above by more than low and less than MOST */
    atomic_uint *recomputed;      /* NULL: nobody counts */
} att;

/* End of the block that starts at row m: rows of one sequence, at most a->rows. */
static uint32_t block_end(const att *a, uint32_t m)
{
    uint32_t end = m + 1;
    while (end < a->m && end - m < a->rows && a->seq[end] == a->seq[m]) end++;
    return end;
}

static uint32_t block_keys(const att *a, uint32_t begin, uint32_t end)
{
    int32_t last = -1;
    for (uint32_t m = begin; m < end; m++) last = WF_MAX(last, a->pos[m]);
    return (uint32_t)(last + 1);
}

static att att_of(const wf_call *c)
{
    att a = {&c->p, &c->in[WF_ATTENTION_Q], &c->in[WF_ATTENTION_K_POOL], &c->in[WF_ATTENTION_V_POOL],
             &c->out[WF_ATTENTION_O]};
    a.seq = wf_cpu_at(&c->in[WF_ATTENTION_SEQ]);
    a.pos = wf_cpu_at(&c->in[WF_ATTENTION_POS]);
    a.indptr = wf_cpu_at(&c->in[WF_ATTENTION_INDPTR]);
    a.pages = wf_cpu_at(&c->in[WF_ATTENTION_PAGES]);
    a.windows = c->in[WF_ATTENTION_WINDOWS].buf ? wf_cpu_at(&c->in[WF_ATTENTION_WINDOWS]) : NULL;
    a.sinks = c->in[WF_ATTENTION_SINKS].buf ? wf_cpu_at(&c->in[WF_ATTENTION_SINKS]) : NULL;
    a.m = c->out[WF_ATTENTION_O].rows;
    a.group = c->p.n_head / c->p.n_kv_head;
    a.dim = c->p.head_dim;
    a.dim_padded = WF_UP(a.dim, VL);
    a.k_dim = WF_UP(a.dim, F16_ELEMS);
    a.bytes = a.k->dtype == WF_Q8_0 ? 1 : 2;
    a.scales = a.bytes == 1 ? a.dim / WF_KV_BLOCK : 0;
    a.rows = WF_MAX(1u, BLOCK_QUERIES / a.group);
    a.queries = WF_UP(a.rows * a.group, VL);
    for (uint32_t m = 0, end; m < a.m; m = end) {
        end = block_end(&a, m);
        a.items += c->p.n_kv_head;
        a.splits = WF_MAX(a.splits, (block_keys(&a, m, end) + SPLIT - 1) / SPLIT);
    }
    a.split = a.splits > 1 && a.items < SPLIT_ITEMS;
    return a;
}

/* A work item. */
typedef struct block {
    uint32_t begin, end; /* rows */
    uint32_t head;       /* KV head */
    uint32_t keys;
    uint32_t after;      /* no row attends to keys between the sink and this one */
} block;

/* The first key after the sink to which a row at pos attends with that window. */
static uint32_t after_gap(const att *a, int32_t window, int32_t pos)
{
    int32_t sink = (int32_t)a->p->sink;
    return (uint32_t)(window > 0 ? WF_MAX(sink, pos - window + 1) : sink);
}

/* The same for a block, if there are windows: by the longest of its heads. */
static uint32_t block_after(const att *a, const block *b)
{
    int32_t window = wf_longest_window(a->p, a->windows, b->head);
    uint32_t after = UINT32_MAX;
    for (uint32_t m = b->begin; m < b->end; m++) after = WF_MIN(after, after_gap(a, window, a->pos[m]));
    return after;
}

/* Does a KV head see farther back than another? */
static bool sees_farther(const att *a, uint32_t head, uint32_t other)
{
    int32_t own = wf_longest_window(a->p, a->windows, head), than = wf_longest_window(a->p, a->windows, other);
    return than && (!own || own > than);
}

/* KV heads in the order in which those of a block are computed: the longest windows first. */
static void order_heads(const att *a, uint32_t *order)
{
    for (uint32_t h = 0; h < a->p->n_kv_head; h++) {
        uint32_t at = h;
        for (; at && a->windows && sees_farther(a, h, order[at - 1]); at--) order[at] = order[at - 1];
        order[at] = h;
    }
}

/* ---- scratch memory -------------------------------------------------------------------------- */

/* Softmax state of the queries. row_max is the largest score so far. */
typedef struct state {
    float *row_max, *row_sum, *sum; /* [queries], [queries], [queries][dim_padded] */
} state;

/* Where tokens (of Q8_0 bytes) and their scales lie: [TILE + RUN] */
typedef struct places {
    const uint16_t **at;
    const uint16_t **scales;
} places;

typedef struct workspace {
    float *q;       /* [queries][dim_padded], scaled */
    float *score;   /* [queries][TILE] */
    float *alpha, *now; /* [queries] */
    float *v;       /* [TILE][dim_padded] */
    uint16_t *k;    /* [TILE / VL][k_dim][VL], F16, of Q8_0 whole numbers */
    float *k_scale, *v_scale; /* [TILE / VL][scales][VL]; [scales][TILE] */
    uint32_t *seen; /* [queries] number of leading keys of the tile that the causal mask allows */
    uint32_t *masked;  /* [queries][2] masked range within them, with windows */
    uint32_t *redo;    /* [queries] did the given maximum not suit it? */
    uint32_t *order;   /* [KV heads] */
    places keys, values;
    state part, whole;
} workspace;

static size_t state_size(const att *a)
{
    return (size_t)a->queries * (a->dim_padded + 2);
}

static size_t workspace_size(const att *a)
{
    return (size_t)a->queries * (a->dim_padded + TILE + 6) + (size_t)TILE * a->dim_padded +
           (size_t)TILE / 2 * a->k_dim + 2 * state_size(a) + a->p->n_kv_head + 2 * (size_t)TILE * a->scales +
           4 * (TILE + RUN) * (sizeof(void *) / sizeof(float));
}

static state state_at(const att *a, float *at)
{
    return (state){at + (size_t)a->queries * a->dim_padded, at + (size_t)a->queries * (a->dim_padded + 1), at};
}

static workspace workspace_at(const att *a, float *at)
{
    workspace r;
    r.q = at;
    r.score = r.q + (size_t)a->queries * a->dim_padded;
    r.v = r.score + (size_t)a->queries * TILE;
    r.alpha = r.v + (size_t)TILE * a->dim_padded;
    r.now = r.alpha + a->queries;
    r.seen = (uint32_t *)(r.now + a->queries);
    r.masked = r.seen + a->queries;
    r.redo = r.masked + 2 * (size_t)a->queries;
    r.part = state_at(a, r.alpha + 6 * (size_t)a->queries);
    r.whole = state_at(a, r.alpha + 6 * (size_t)a->queries + state_size(a));
    r.k_scale = r.whole.sum + state_size(a);
    r.v_scale = r.k_scale + (size_t)TILE * a->scales;
    r.keys.at = (const uint16_t **)(r.v_scale + (size_t)TILE * a->scales); /* aligned: queries are whole vectors */
    r.values.at = r.keys.at + TILE + RUN;
    r.keys.scales = (const uint16_t **)(r.values.at + TILE + RUN);
    r.values.scales = r.keys.scales + TILE + RUN;
    r.k = (uint16_t *)(r.values.scales + TILE + RUN);
    r.order = (uint32_t *)(r.k + (size_t)TILE * a->k_dim);
    order_heads(a, r.order);
    return r;
}

static void clear_state(const att *a, state s)
{
    memset(s.sum, 0, sizeof(float) * a->queries * a->dim_padded);
    for (uint32_t i = 0; i < a->queries; i++) {
        s.row_max[i] = -INFINITY;
        s.row_sum[i] = 0;
    }
}

wf_cpu_scratch_size WF_SIMD(wf_cpu_attention_scratch)(const wf_call *c)
{
    att a = att_of(c);
    wf_cpu_scratch_size size = {.per_thread = workspace_size(&a) * sizeof(float)};
    if (a.split) size.shared = a.items * a.splits * state_size(&a) * sizeof(float);
    return size;
}

/* ---- one tile -------------------------------------------------------------------------------- */

/* Points at tokens first..first+n of one head, n > 0; past them at the first again, so that all of TILE can be
 * prefetched. */
static void find_tokens(const att *a, const places *tokens, const wf_view *pool, const block *b, uint32_t first,
                        uint32_t n)
{
    const int32_t *pages = a->pages + a->indptr[a->seq[b->begin]];
    uint32_t per_page = a->p->page_tokens, page = first / per_page, index = first % per_page, at = 0, dim = a->dim;
    const size_t step = (size_t)dim * a->bytes;
    for (uint32_t run; at < n; index = 0, page++) {
        run = WF_MIN(n - at, per_page - index);
        const uint8_t *in = wf_cpu_row(pool, (uint32_t)pages[page]);
        const size_t from = (size_t)b->head * per_page + index;
        const uint8_t *token = in + from * step;
        for (uint32_t i = 0; i < run; i += RUN, token += RUN * step)
            for (uint32_t k = 0; k < RUN; k++)
                tokens->at[at + i + k] = (const uint16_t *)(token + k * step); /* those past run are overwritten */
        for (uint32_t i = 0; a->scales && i < run; i++)
            tokens->scales[at + i] = wf_kv_scales(in, pool->cols, (from + i) * dim);
        at += run;
    }
    for (uint32_t i = at; a->scales && i < TILE; i++) tokens->scales[i] = tokens->scales[0];
    while (at < TILE) tokens->at[at++] = tokens->at[0];
}

/* What loops prefetch while they compute: K and V that are needed next, little by little, for a core waits for few
 * lines at once. */
typedef struct ahead {
    const uint16_t *const *at, *const *scales; /* [TILE]; scales NULL: F16 */
    uint32_t lines;                            /* of a token */
    uint32_t each, next;                       /* tokens of one step, and the first of them */
} ahead;

/* All tokens in so many steps. */
static ahead ahead_of(const att *a, const places *tokens, uint32_t steps)
{
    return (ahead){tokens->at, a->scales ? tokens->scales : NULL, (a->dim * a->bytes + LINE - 1) / LINE,
                   (TILE + steps - 1) / steps, 0};
}

WF_INLINE void prefetch_ahead(ahead *h)
{
    uint32_t end = WF_MIN(h->next + h->each, TILE);
    for (; h->next < end; h->next++) {
        for (uint32_t i = 0; i < h->lines; i++) __builtin_prefetch((const uint8_t *)h->at[h->next] + i * LINE);
        if (h->scales) __builtin_prefetch(h->scales[h->next]);
    }
}

/* VL elements from d on of V of a token of the tile. */
WF_INLINE vf load_value(const workspace *r, uint32_t token, uint32_t d, const bool bytes)
{
    const uint16_t *v = r->values.at[token];
    if (!bytes) return v_load_f16(v + d);
    return v_mul(v_load_i8((const int8_t *)v + d), v_set(r->v_scale[d / WF_KV_BLOCK * TILE + token]));
}

/* V of n tokens as floats, padded with zeros. */
WF_INLINE void widen_values(const att *a, const workspace *r, uint32_t n, const bool bytes)
{
    float *out = r->v;
    for (uint32_t i = 0; i < n; i++, out += a->dim_padded) {
        uint32_t d = 0;
        for (; d + VL <= a->dim; d += VL) v_store(out + d, load_value(r, i, d, bytes));
        if (d == a->dim_padded) continue;
        uint16_t last[VL] = {0};
        memcpy(last, r->values.at[i] + d, (a->dim - d) * 2);
        v_store(out + d, v_load_f16(last));
    }
}

/* The same scale of VL tokens. */
WF_INLINE vf load_scales(const uint16_t *const *tokens, uint32_t which)
{
    uint16_t scales[VL];
    for (uint32_t i = 0; i < VL; i++) scales[i] = tokens[i][which];
    return v_load_f16(scales);
}

/* Of all values of the tile. */
static void widen_scales(const att *a, const workspace *r)
{
    for (uint32_t s = 0; s < a->scales; s++)
        for (uint32_t j = 0; j < TILE; j += VL)
            v_store(r->v_scale + s * TILE + j, load_scales(r->values.scales + j, s));
}

/* Elements of VL keys from d on as words of 16 bits, turned; and their scales, where a block begins. */
static void load_key_bytes(const att *a, const workspace *r, uint32_t j, uint32_t d, uint16_t *out)
{
    int16_t wide[VL][F16_ELEMS];
    const uint16_t *rows[VL];
    for (uint32_t i = 0; i < VL; i++) {
        const int8_t *key = (const int8_t *)r->keys.at[j + i] + d;
        for (uint32_t k = 0; k < F16_ELEMS; k++) wide[i][k] = key[k];
        rows[i] = (const uint16_t *)wide[i];
    }
    v_transpose_f16(rows, 0, out);
    if (d % WF_KV_BLOCK) return;
    v_store(r->k_scale + (j / VL * a->scales + d / WF_KV_BLOCK) * VL, load_scales(r->keys.scales + j, d / WF_KV_BLOCK));
}

/* Transposes F16_ELEMS elements of keys j..end, from d on, or as many as there are. */
static void load_keys(const att *a, const workspace *r, uint32_t j, uint32_t end, uint32_t d)
{
    for (; d < a->dim && j < end; j += VL) {
        uint16_t *out = r->k + (size_t)j * a->k_dim + (size_t)d * VL;
        if (a->scales) {
            load_key_bytes(a, r, j, d, out);
            continue;
        }
        if (d + F16_ELEMS <= a->dim) {
            v_transpose_f16(r->keys.at + j, d, out);
            continue;
        }
        uint16_t last[VL][F16_ELEMS] = {{0}};
        const uint16_t *rows[VL];
        for (uint32_t i = 0; i < VL; i++)
            rows[i] = memcpy(last[i], r->keys.at[j + i] + d, (a->dim - d) * sizeof **last);
        v_transpose_f16(rows, 0, out);
    }
}

/* How often a tile's keys are converted from F16: each time that queries meet them, or once, by the first of many
 * queries, which leave them in V's workspace [TILE / VL][dim][VL] to the later ones. */
enum passes { EACH, FIRST_OF_MANY, LATER };

/* Computes scores of nq queries with nc vectors of keys from j on, and prefetches. The first queries transpose the
 * keys, a step ahead of the products, so that both are under way. */
WF_INLINE void score(const att *a, const workspace *r, uint32_t i0, uint32_t j, ahead *h, const int nq, const int nc,
                     const enum passes pass, const bool bytes)
{
    const float *q = r->q + (size_t)i0 * a->dim_padded;
    const uint16_t *k = r->k + (size_t)j * a->k_dim;
    float *wide = r->v + (size_t)j * a->dim;
    const float *scales = r->k_scale + (size_t)j * a->scales;
    vf acc[QK][CV], scale[CV];
    for (int c = 0; c < nc; c++) scale[c] = v_zero();
    for (int i = 0; i < nq; i++)
        for (int c = 0; c < nc; c++) acc[i][c] = v_zero();
    if (!i0) load_keys(a, r, j, j + nc * VL, 0);
    for (uint32_t d = 0; d < a->dim; d++) {
        vf kv[CV];
        if (d % STEP == 0) prefetch_ahead(h);
        if (d % F16_ELEMS == 0 && !i0) load_keys(a, r, j, j + nc * VL, d + F16_ELEMS);
        for (int c = 0; c < nc; c++) {
            float *one = wide + ((size_t)c * a->dim + d) * VL;
            const uint16_t *raw = k + ((size_t)c * a->k_dim + d) * VL;
            if (bytes && d % WF_KV_BLOCK == 0) scale[c] = v_load(scales + (c * a->scales + d / WF_KV_BLOCK) * VL);
            kv[c] = pass == LATER ? v_load(one) : bytes ? v_mul(v_load_i16(raw), scale[c]) : v_load_f16(raw);
            if (pass == FIRST_OF_MANY) v_store(one, kv[c]);
        }
        for (int i = 0; i < nq; i++) {
            vf qv = v_set(q[(size_t)i * a->dim_padded + d]);
            for (int c = 0; c < nc; c++) acc[i][c] = v_fma(qv, kv[c], acc[i][c]);
        }
    }
    for (int i = 0; i < nq; i++)
        for (int c = 0; c < nc; c++) v_store(r->score + (size_t)(i0 + i) * TILE + j + c * VL, acc[i][c]);
}

/* The same with n keys; those past n are the first one: their scores are masked later. */
WF_INLINE void scores(const att *a, const workspace *r, uint32_t i, uint32_t n, ahead *h, const int nq, const int nc,
                      const enum passes pass, const bool bytes)
{
    uint32_t j = 0;
    for (; j + (nc - 1) * VL < n; j += nc * VL) score(a, r, i, j, h, nq, nc, pass, bytes);
    for (; j < n; j += VL) score(a, r, i, j, h, nq, 1, pass, bytes);
}

/* Of queries i to nq, as many at a time as registers hold. */
WF_INLINE void scores_from(const att *a, const workspace *r, uint32_t i, uint32_t nq, uint32_t n, ahead *h,
                           const enum passes pass, const bool bytes)
{
    for (; i + QK <= nq; i += QK) scores(a, r, i, n, h, QK, CK, pass, bytes);
    for (; i + 4 <= nq; i += 4) scores(a, r, i, n, h, 4, 2 * CK, pass, bytes);
    for (; i < nq; i++) scores(a, r, i, n, h, 1, CV, pass, bytes);
}

/* sum = sum * alpha + weights * V, for nq queries and nc vectors of the head, from V as it lies in the pages or
 * converted. Prefetches. */
WF_INLINE void weigh(const att *a, const workspace *r, uint32_t first, uint32_t n, ahead *h, const int nq, uint32_t d,
                     const int nc, const bool direct, const bool bytes)
{
    const float *weight = r->score + (size_t)first * TILE, *alpha = r->alpha + first;
    float *sum = r->part.sum + (size_t)first * a->dim_padded + d;
    vf acc[QV_DIRECT][CV];
    for (int i = 0; i < nq; i++)
        for (int c = 0; c < nc; c++)
            acc[i][c] = v_mul(v_load(sum + (size_t)i * a->dim_padded + c * VL), v_set(alpha[i]));
    for (uint32_t j = 0; j < n; j++) {
        vf vv[CV];
        if (j % STEP == 0) prefetch_ahead(h);
        for (int c = 0; c < nc; c++)
            vv[c] = direct ? load_value(r, j, d + c * VL, bytes)
                           : v_load(r->v + (size_t)j * a->dim_padded + d + c * VL);
        for (int i = 0; i < nq; i++) {
            vf pv = v_set(weight[(size_t)i * TILE + j]);
            for (int c = 0; c < nc; c++) acc[i][c] = v_fma(pv, vv[c], acc[i][c]);
        }
    }
    for (int i = 0; i < nq; i++)
        for (int c = 0; c < nc; c++) v_store(sum + (size_t)i * a->dim_padded + c * VL, acc[i][c]);
}

WF_INLINE void weigh_all(const att *a, const workspace *r, uint32_t i, uint32_t n, ahead *h, const int nq, const int nc,
                         const bool direct, const bool bytes)
{
    uint32_t d = 0;
    for (; d + (uint32_t)nc * VL <= a->dim_padded; d += (uint32_t)nc * VL)
        weigh(a, r, i, n, h, nq, d, nc, direct, bytes);
    for (; d < a->dim_padded; d += VL) weigh(a, r, i, n, h, nq, d, 1, direct, bytes);
}

/* Passes over V for nq queries, if it is read directly. */
static uint32_t passes(uint32_t nq)
{
    return nq / QV_DIRECT + nq % QV_DIRECT / QV + nq % QV;
}

WF_INLINE void weigh_queries(const att *a, const workspace *r, uint32_t n, uint32_t nq, ahead *h, const bool direct,
                             const bool bytes)
{
    uint32_t i = 0;
    for (; direct && i + QV_DIRECT <= nq; i += QV_DIRECT) weigh_all(a, r, i, n, h, QV_DIRECT, CV / 2, true, bytes);
    for (; i + QV <= nq; i += QV) weigh_all(a, r, i, n, h, QV, CV, direct, bytes);
    for (; i < nq; i++) weigh_all(a, r, i, n, h, 1, CV, direct, bytes);
}

/* Clears V outside all windows of the block: it may hold NaN, and 0 * NaN is not 0. */
static void clear_unseen(const att *a, const workspace *r, const block *b, uint32_t first, uint32_t n)
{
    int32_t window = a->windows ? wf_longest_window(a->p, a->windows, b->head) : 0;
    for (uint32_t j = 0; a->windows && j < n; j++) {
        bool seen = false;
        for (uint32_t m = b->begin; m < b->end && !seen; m++)
            seen = wf_attends(window, a->p->sink, a->pos[m], (int32_t)(first + j));
        if (!seen) memset(r->v + (size_t)j * a->dim_padded, 0, sizeof(float) * a->dim_padded);
    }
}

/* The soft cap of n scores, which are in units of log2: c tanh(s / c) = c - 2 c / (1 + 2^(2 s log2(e) / c)), with
 * finite powers. */
static void cap_scores(const att *a, float *s, uint32_t n)
{
    float cap = a->p->softcap * 1.44269504f, by = 2 * 1.44269504f / cap;
    for (uint32_t j = 0; a->p->softcap > 0 && j < n; j += VL) {
        vf x = v_max(v_set(-126), v_mul(v_load(s + j), v_set(by)));
        vf power = v_exp2(v_sub(v_zero(), v_max(v_set(-126), v_sub(v_zero(), x))));
        v_store(s + j, v_sub(v_set(cap), v_div(v_set(2 * cap), v_add(v_set(1), power))));
    }
}

/* The largest score of query i so far. Scores that the mask hides become -inf. */
static float max_score(const att *a, const workspace *r, uint32_t i)
{
    float *s = r->score + (size_t)i * TILE;
    vf high = v_set(r->part.row_max[i]);
    if (!r->seen[i]) return r->part.row_max[i];
    cap_scores(a, s, r->seen[i]);
    for (uint32_t j = r->masked[2 * i]; a->windows && j < r->masked[2 * i + 1]; j++) s[j] = -INFINITY;
    for (uint32_t j = r->seen[i]; j < TILE; j++) s[j] = -INFINITY;
    for (uint32_t j = 0; j < TILE; j += VL) high = v_max(high, v_load(s + j));
    return v_reduce_max(high);
}

/* Turns scores into weights relative to base. Returns their sum. */
WF_INLINE float weights_of(float *s, float base)
{
    vf sum = v_zero();
    for (uint32_t j = 0; j < TILE; j += VL) {
        vf e = v_exp2(v_sub(v_load(s + j), v_set(base)));
        v_store(s + j, e);
        sum = v_add(sum, e);
    }
    return v_reduce_add(sum);
}

/* Turns scores into weights, and sets the largest score of each query, and alpha, the factor by which its sums must be
 * rescaled: 0 where there are none yet. Asynchronous: a row above the range has left: its weights would not fit, so it
 * gets none. */
static void turn_to_weights(const att *a, const workspace *r, uint32_t nq)
{
    float *row_max = r->part.row_max;
    for (uint32_t i = 0; i < nq; i++) r->now[i] = max_score(a, r, i);
    for (uint32_t i = 0; i < nq; i += VL) {
        vf now = v_load(r->now + i), alpha = v_exp2(v_max(v_sub(v_load(row_max + i), now), v_set(-127)));
        v_store(r->alpha + i, a->async ? v_set(1) : alpha);
        v_store(row_max + i, now);
    }
    for (uint32_t i = 0; i < nq; i++) {
        float *s = r->score + (size_t)i * TILE, *row_sum = r->part.row_sum + i, base = a->async ? a->base : r->now[i];
        if (r->seen[i] && (!a->async || r->now[i] - base < MOST))
            *row_sum = *row_sum * r->alpha[i] + weights_of(s, base);
        else memset(s, 0, TILE * sizeof *s);
    }
}

/* Finds K of the tile at `first`. */
static void find_keys(const att *a, const workspace *r, const block *b, uint32_t first)
{
    if (first < b->keys) find_tokens(a, &r->keys, a->k, b, first, WF_MIN(TILE, b->keys - first));
}

/* Steps of the loops of scores(), and no more than those of weigh_all(). */
static uint32_t k_steps(const att *a, uint32_t nq)
{
    uint32_t rounds = nq / QK * (TILE / (VL * CK)) + nq % QK / 4 * (TILE / (VL * 2 * CK)) + nq % 4 * (TILE / (VL * CV));
    return rounds * ((a->dim + STEP - 1) / STEP);
}

static uint32_t v_steps(const att *a, uint32_t nq, bool direct)
{
    uint32_t at_once = (direct && nq % QV_DIRECT == 0 ? CV / 2 : CV) * VL;
    return (direct ? passes(nq) : nq / QV + nq % QV) * WF_MAX(1u, a->dim / at_once) * (TILE / STEP);
}

/* Processes keys first..first+n; r->seen and r->masked define the mask of each query. */
WF_INLINE void attend_tile_in(const att *a, const workspace *r, const block *b, uint32_t first, uint32_t n,
                              const bool bytes)
{
    uint32_t nq = (b->end - b->begin) * a->group;
    const bool direct = !a->windows && a->dim == a->dim_padded && passes(nq) <= 2;
    find_tokens(a, &r->values, a->v, b, first, n);
    ahead h = ahead_of(a, &r->values, k_steps(a, nq));
    if (nq > QK) {
        scores(a, r, 0, n, &h, QK, CK, FIRST_OF_MANY, bytes);
        scores_from(a, r, QK, nq, n, &h, LATER, bytes);
    } else {
        scores_from(a, r, 0, nq, n, &h, EACH, bytes);
    }
    turn_to_weights(a, r, nq);
    if (bytes) widen_scales(a, r);
    find_keys(a, r, b, first + n);
    h = ahead_of(a, &r->keys, v_steps(a, nq, direct));
    if (direct) {
        weigh_queries(a, r, n, nq, &h, true, bytes);
        return;
    }
    widen_values(a, r, n, bytes);
    clear_unseen(a, r, b, first, n);
    weigh_queries(a, r, n, nq, &h, false, bytes);
}

static void attend_tile(const att *a, const workspace *r, const block *b, uint32_t first, uint32_t n)
{
    if (a->bytes == 1) attend_tile_in(a, r, b, first, n, true);
    else attend_tile_in(a, r, b, first, n, false);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void load_queries(const att *a, const workspace *r, const block *b)
{
    float scale = a->p->scale * 1.44269504f;
    uint32_t i = 0;
    memset(r->q, 0, sizeof(float) * a->queries * a->dim_padded);
    for (uint32_t m = b->begin; m < b->end; m++)
        for (uint32_t h = 0; h < a->group; h++, i++) {
            const void *row = wf_cpu_row(a->q, m);
            size_t at = ((size_t)b->head * a->group + h) * a->dim;
            for (uint32_t d = 0; d < a->dim; d++)
                r->q[(size_t)i * a->dim_padded + d] = wf_cpu_get(a->q, row, at + d) * scale;
        }
}

/* Sets the mask of query i for the tile at `first`. */
static void set_mask(const att *a, const workspace *r, const block *b, uint32_t first, uint32_t i)
{
    int32_t pos = a->pos[b->begin + i / a->group];
    int64_t seen = (int64_t)pos + 1 - first;
    r->seen[i] = (uint32_t)WF_MAX((int64_t)0, WF_MIN(seen, (int64_t)TILE));
    if (!a->windows) return;
    int32_t window = a->windows[b->head * a->group + i % a->group];
    uint32_t from = WF_MAX(a->p->sink, first), to = WF_MIN(after_gap(a, window, pos), first + r->seen[i]);
    r->masked[2 * i] = from - first;
    r->masked[2 * i + 1] = from < to ? to - first : 0;
    if (from == first && to == first + r->seen[i]) r->seen[i] = 0; /* none */
}

/* Sets the masks of all queries for the tile at `first`. False: no query is left that sees it. */
static bool set_masks(const att *a, const workspace *r, const block *b, uint32_t first)
{
    uint32_t nq = (b->end - b->begin) * a->group, left = 0;
    for (uint32_t i = 0; i < nq; i++) {
        set_mask(a, r, b, first, i);
        if (!a->async || (r->part.row_max[i] - a->base < MOST && r->whole.row_max[i] - a->base < MOST)) continue;
        r->seen[i] = 0; /* a score exceeds the given maximum, in this split or in those merged so far */
        left++;
    }
    return left < nq;
}

/* Computes split s of the block into r->part. */
static void one_split(const att *a, const workspace *r, const block *b, uint32_t s)
{
    uint32_t end = WF_MIN(b->keys, (s + 1) * SPLIT);
    clear_state(a, r->part);
    for (uint32_t first = s * SPLIT, found = UINT32_MAX; first < end; first += TILE) {
        uint32_t n = WF_MIN(TILE, end - first);
        if (a->windows && first >= a->p->sink && first + n <= b->after) continue; /* hidden from all */
        if (!set_masks(a, r, b, first)) return;
        if (found != first) find_keys(a, r, b, first);
        attend_tile(a, r, b, first, n);
        found = first + TILE;
    }
}

/* Merges part into whole; an empty part changes nothing. Sums relative to a given maximum are just added. */
static void merge_state(const att *a, state whole, state part, uint32_t nq)
{
    for (uint32_t i = 0; i < nq; i++) {
        float *to = whole.sum + (size_t)i * a->dim_padded, *from = part.sum + (size_t)i * a->dim_padded;
        if (part.row_sum[i] == 0 && !a->async) continue;
        float row_max = WF_MAX(whole.row_max[i], part.row_max[i]);
        vf x = a->async ? v_set(1) : v_exp2(v_set(whole.row_max[i] - row_max));
        vf y = a->async ? v_set(1) : v_exp2(v_set(part.row_max[i] - row_max));
        float lx[VL], ly[VL];
        v_store(lx, x);
        v_store(ly, y);
        whole.row_max[i] = row_max;
        whole.row_sum[i] = whole.row_sum[i] * lx[0] + part.row_sum[i] * ly[0];
        for (uint32_t d = 0; d < a->dim_padded; d += VL)
            v_store(to + d, v_fma(v_load(from + d), y, v_mul(v_load(to + d), x)));
    }
}

/* Writes the rows and heads of which redo says that this way of computing suits them; NULL: all. */
static void store_block(const att *a, state s, const block *b, const uint32_t *redo)
{
    uint32_t i = 0;
    for (uint32_t m = b->begin; m < b->end; m++)
        for (uint32_t h = 0; h < a->group; h++, i++) {
            void *row = wf_cpu_row(a->o, m);
            uint32_t head = b->head * a->group + h;
            size_t at = (size_t)head * a->dim;
            if (redo && redo[i] == a->async) continue;
            float total = s.row_sum[i];
            if (a->sinks)
                total += exp2f(a->sinks[head] * 1.44269504f -
                               (a->async ? a->base : s.row_max[i])); /* may leave nothing else */
            float inverse = s.row_sum[i] == 0 ? 0 : 1 / total; /* no keys: zeros */
            for (uint32_t d = 0; d < a->dim; d++)
                wf_cpu_set(a->o, row, at + d, s.sum[(size_t)i * a->dim_padded + d] * inverse);
        }
}

/* Computes a whole block in the synchronous or asynchronous way into r->whole. */
static void whole_block(const att *a, const workspace *r, const block *b)
{
    load_queries(a, r, b);
    clear_state(a, r->whole);
    for (uint32_t s = 0; s * SPLIT < b->keys; s++) {
        one_split(a, r, b, s);
        merge_state(a, r->whole, r->part, (b->end - b->begin) * a->group);
    }
}

/* Computes the rows and heads that the given maximum did not suit again, a row at a time. */
static void recompute_rows(const att *a, const workspace *r, const block *b)
{
    att online = *a;
    online.async = false;
    for (uint32_t m = b->begin; m < b->end; m++) {
        const uint32_t *redo = r->redo + (m - b->begin) * a->group;
        uint32_t some = 0;
        for (uint32_t h = 0; h < a->group; h++) some |= redo[h];
        if (!some) continue;
        block row = {.begin = m, .end = m + 1, .head = b->head, .keys = block_keys(a, m, m + 1)};
        if (a->windows) row.after = block_after(a, &row);
        whole_block(&online, r, &row);
        store_block(&online, r->whole, &row, redo);
    }
}

/* Writes the block's results. A row without keys has nothing that the given maximum must suit. */
static void finish_block(const att *a, const workspace *r, const block *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; a->async && i < (b->end - b->begin) * a->group; i++) {
        float above = r->whole.row_max[i] - a->base;
        r->redo[i] = a->pos[b->begin + i / a->group] >= 0 && !(above > a->low && above < MOST);
        n += r->redo[i];
    }
    store_block(a, r->whole, b, a->async ? r->redo : NULL);
    if (!n) return;
    if (a->recomputed) atomic_fetch_add(a->recomputed, n);
    recompute_rows(a, r, b);
}

/* Moves *b from item *at to `item`; items enumerate KV heads, in their order, then blocks. Blocks are found
 * sequentially, so an earlier item, stolen from another thread, restarts the search. */
static void seek_item(const att *a, const workspace *r, block *b, uint32_t *at, uint32_t item)
{
    uint32_t heads = a->p->n_kv_head;
    if (item / heads < *at / heads) {
        *b = (block){.end = block_end(a, 0)};
        *at = 0;
    }
    for (; *at / heads < item / heads; *at = (*at / heads + 1) * heads) {
        b->begin = b->end;
        b->end = block_end(a, b->begin);
    }
    *at = item;
    b->head = r->order[item % heads];
    b->keys = block_keys(a, b->begin, b->end);
    if (a->windows) b->after = block_after(a, b);
}

static void split_items(const wf_cpu_work *w, const att *a, const workspace *r)
{
    block b = {.end = block_end(a, 0)};
    uint32_t at = 0, i, end, begin;
    float *parts = w->shared;
    while (wf_cpu_next(w, a->items * a->splits, 1, &i, &end)) {
        seek_item(a, r, &b, &at, i / a->splits);
        workspace own = *r;
        own.part = state_at(a, parts + i * state_size(a));
        clear_state(a, own.whole);
        load_queries(a, &own, &b);
        one_split(a, &own, &b, i % a->splits);
    }
    wf_cpu_barrier(w);
    b = (block){.end = block_end(a, 0)};
    at = 0;
    wf_cpu_part(w, a->items, 1, &begin, &end);
    for (i = begin; i < end; i++) {
        seek_item(a, r, &b, &at, i);
        clear_state(a, r->whole);
        for (uint32_t s = 0; s < a->splits; s++)
            merge_state(a, r->whole, state_at(a, parts + ((size_t)i * a->splits + s) * state_size(a)),
                  (b.end - b.begin) * a->group);
        finish_block(a, r, &b);
    }
}

static void run_attention(const wf_cpu_work *w, const att *a)
{
    workspace r = workspace_at(a, w->per_thread);
    block b = {.end = block_end(a, 0)};
    uint32_t at = 0, i, end;
    if (a->split) {
        split_items(w, a, &r);
        return;
    }
    while (wf_cpu_next(w, a->items, 1, &i, &end)) {
        seek_item(a, &r, &b, &at, i);
        whole_block(a, &r, &b);
        finish_block(a, &r, &b);
    }
}

void WF_SIMD(wf_cpu_attention)(const wf_cpu_work *w)
{
    att a = att_of(w->call);
    run_attention(w, &a);
}

void WF_SIMD(wf_cpu_attention_async)(const wf_cpu_work *w)
{
    const wf_view *count = &w->call->out[WF_ATTENTION_RECOMPUTED];
    att a = att_of(w->call);
    a.async = wf_attention_base(a.p, MOST, LEAST, &a.base, &a.low);
    a.recomputed = count->buf ? (atomic_uint *)wf_cpu_at(count) : NULL;
    run_attention(w, &a);
}
