/* ranges_measure: the distribution of attention logits over a text. The engine computes as usual. After each
 * attention op the host reads its queries and keys and multiplies them again, so that no kernel needs to output its
 * logits. See ranges.h. */
#include "kept/ranges.h"
#include "tensor/kv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct collector {
    const wf_ranges_runner *run;
    struct weft_calibration *c;
    void *raw;    /* in the device's format: queries of a call, or a sequence's keys in a layer */
    float *q, *k; /* the same in F32 */
    int32_t *windows; /* [query heads] of a layer; all 0 where it has none */
    uint32_t pages; /* of a piece */
    uint32_t every; /* of so many queries the last is looked at */
    bool broken;  /* a logit was NaN or infinite */
} collector;

/* ---- counting ------------------------------------------------------------------------------------------------ */

static void count_logit(struct weft_logit_histogram *l, double x)
{
    double at = (x - WEFT_LOGIT_LOW) / WEFT_LOGIT_STEP;
    l->bins[at < 0 ? 0 : at < WEFT_LOGIT_BINS ? (size_t)at : WEFT_LOGIT_BINS - 1]++;
    l->min = l->n ? fmin(l->min, x) : x;
    l->max = l->n ? fmax(l->max, x) : x;
    l->sum += x;
    l->n++;
}

/* Eight sums, which compilers vectorise. */
static float dot_product(const float *a, const float *b, uint32_t n)
{
    float sum[8] = {0}, rest = 0;
    uint32_t d = 0;
    for (; d + 8 <= n; d += 8)
        for (int i = 0; i < 8; i++) sum[i] += a[d + i] * b[d + i];
    for (; d < n; d++) rest += a[d] * b[d];
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7])) + rest;
}

/* A query at `pos`, whose sequence's keys are t->k. */
static void count_row(collector *t, struct weft_calibration_layer *l, const wf_op_params *p, int32_t pos,
                      const float *q)
{
    int32_t size = (int32_t)p->page_tokens;
    for (uint32_t h = 0; h < p->n_head; h++) {
        uint32_t kv_head = h / (p->n_head / p->n_kv_head);
        double top = -INFINITY;
        for (int32_t j = 0; j <= pos; j++) {
            if (!wf_attends(t->windows[h], p->sink, pos, j)) continue;
            size_t at = ((size_t)(j / size) * p->n_kv_head + kv_head) * (size_t)size + (size_t)(j % size);
            double x = wf_attention_score(p, dot_product(q + (size_t)h * p->head_dim, t->k + at * p->head_dim,
                                                         p->head_dim));
            if (isfinite(x)) count_logit(&l->all, x);
            else t->broken = true;
            top = fmax(top, x);
        }
        if (isfinite(top)) count_logit(&l->rows, top);
    }
}

/* ---- reading back -------------------------------------------------------------------------------------------- */

/* For pieces of up to n tokens, before the first step: one that failed in a step would take the engine with it. */
static weft_status allocate_collector(collector *t, size_t tokens)
{
    const wf_graph *g = t->run->graph;
    size_t rows = WF_MIN(tokens, t->run->step_tokens), n_q = 1, n_k = 1, heads = 1;
    for (const wf_node *n = g->nodes; n < g->nodes + g->n_nodes; n++) {
        const wf_op_params *p = &n->p;
        if (n->op != WF_OP_ATTENTION) continue;
        t->pages = (uint32_t)WF_MAX(t->pages, (tokens + p->page_tokens - 1) / p->page_tokens);
        n_q = WF_MAX(n_q, rows * p->n_head * p->head_dim);
        n_k = WF_MAX(n_k, (size_t)t->pages * p->page_tokens * p->n_kv_head * p->head_dim);
        heads = WF_MAX(heads, p->n_head);
    }
    t->raw = wf_calloc(WF_MAX(n_q, n_k), sizeof(float));
    t->q = wf_calloc(n_q, sizeof *t->q);
    t->k = wf_calloc(n_k, sizeof *t->k);
    t->windows = wf_calloc(heads, sizeof *t->windows);
    return t->raw && t->q && t->k && t->windows ? WEFT_OK : WEFT_ERR_NOMEM;
}

/* n rows: the first, or those of `which`, where a negative one is none. */
static weft_status fetch_rows(collector *t, wf_queue *q, const wf_view *v, const int32_t *which, uint32_t n, float *out)
{
    uint64_t pitch = wf_dtype_bytes(v->dtype, v->stride), row = wf_dtype_bytes(v->dtype, v->cols);
    for (uint32_t r = 0; r < n; r++) {
        if (which && which[r] < 0) continue;
        uint64_t from = which ? (uint64_t)which[r] : r;
        WF_TRY(wf_read(q, v->buf, v->offset + from * pitch, (uint8_t *)t->raw + r * row, row, NULL, 0, NULL));
    }
    WF_TRY(wf_finish(q));
    for (uint32_t r = 0; v->dtype == WF_Q8_0 && r < n; r++) /* pages, in which bytes and scales lie apart */
        wf_kv_load(WF_Q8_0, (uint8_t *)t->raw + r * row, v->cols, 0, out + (size_t)r * v->cols, v->cols);
    if (v->dtype != WF_Q8_0) wf_dtypes[v->dtype].decode(t->raw, out, (size_t)n * v->cols);
    return WEFT_OK;
}

static weft_status observe_attention(void *user, wf_queue *q, const wf_node *node, const wf_batch *b, uint32_t first,
                                     const wf_call *c)
{
    collector *t = user;
    if (node->op != WF_OP_ATTENTION) return WEFT_OK;
    if (t->run->unwanted(t->run->engine)) return wf_fail(WEFT_ERR_CANCELLED, "cancelled");
    const wf_view *queries = &c->in[WF_ATTENTION_Q];
    const int32_t *seq = b->in[WF_INPUT_SEQ] + first, *pos = b->in[WF_INPUT_POS] + first;
    uint32_t table = wf_kv_table(&t->run->graph->kv, (uint32_t)node->layer);
    WF_TRY(fetch_rows(t, q, queries, NULL, queries->rows, t->q));
    const wf_view *windows = &c->in[WF_ATTENTION_WINDOWS], *pool = &c->in[WF_ATTENTION_K_POOL];
    memset(t->windows, 0, c->p.n_head * sizeof *t->windows);
    if (windows->buf)
        WF_TRY(wf_read(q, windows->buf, windows->offset, t->windows, c->p.n_head * sizeof *t->windows, NULL, 0, NULL));
    if (windows->buf) WF_TRY(wf_finish(q));
    for (uint32_t r = 0; r < queries->rows; r++) {
        /* the pages that a sequence has in that table, one behind the other */
        const int32_t *indptr = b->in[WF_INPUT_INDPTR] + seq[r];
        if (!r || seq[r] != seq[r - 1])
            WF_TRY(fetch_rows(t, q, pool, wf_batch_table(b, WF_INPUT_PAGES, table) + indptr[0],
                              WF_MIN((uint32_t)(indptr[1] - indptr[0]), t->pages), t->k));
        if ((uint32_t)pos[r] % t->every == t->every - 1)
            count_row(t, &t->c->layers[node->layer], &c->p, pos[r], t->q + (size_t)r * queries->cols);
    }
    return WEFT_OK;
}

/* ---- the text ------------------------------------------------------------------------------------------------ */

/* Each piece begins like a text, with BOS if the model uses it: BOS attracts much attention (an attention sink). */
static weft_status run_text(collector *t, const struct weft_calibrate_params *p, const int32_t *ids, size_t n)
{
    size_t context = t->run->context, bos = n && ids[0] == t->run->model->info.bos && context > 1;
    int32_t *piece = wf_calloc(context, sizeof *piece);
    weft_status s = piece ? WEFT_OK : WEFT_ERR_NOMEM;
    for (size_t at = bos; at < WF_MAX(n, bos + 1) && s == WEFT_OK;) {
        size_t take = WF_MIN(n - at, context - bos);
        if (p->stop && p->stop(p->user)) s = wf_fail(WEFT_ERR_CANCELLED, "cancelled");
        if (s != WEFT_OK) break;
        piece[0] = ids[0];
        memcpy(piece + bos, ids + at, take * sizeof *ids);
        s = t->run->compute(t->run->engine, piece, bos + take, p, (double)at / (double)WF_MAX(n, 1u),
                            (double)take / (double)WF_MAX(n, 1u));
        at += WF_MAX(take, (size_t)1);
        t->c->n_tokens += bos + take;
        if (p->on_progress) p->on_progress(p->user, "calibrate", (double)WF_MIN(at, n) / (double)n);
    }
    free(piece);
    if (s == WEFT_OK && t->broken)
        return wf_fail(
            WEFT_ERR_FORMAT,
            "an attention logit is not a finite number: broken weights or a faulty device; try weft selftest");
    return s;
}

static weft_status create_calibration(const wf_ranges_runner *run, struct weft_calibration **out)
{
    struct weft_calibration *c = wf_calloc(1, sizeof *c);
    if (!c) return WEFT_ERR_NOMEM;
    c->n_layers = run->model->hp.n_layer;
    c->context = run->context;
    c->layers = wf_calloc(c->n_layers, sizeof *c->layers);
    bool ok = c->layers;
    for (uint32_t i = 0; ok && i < c->n_layers; i++) {
        c->layers[i].all.bins = wf_calloc(WEFT_LOGIT_BINS, sizeof(uint64_t));
        c->layers[i].rows.bins = wf_calloc(WEFT_LOGIT_BINS, sizeof(uint64_t));
        ok = c->layers[i].all.bins && c->layers[i].rows.bins;
    }
    if (ok) *out = c;
    else weft_calibration_free(c);
    return ok ? WEFT_OK : WEFT_ERR_NOMEM;
}

#define LEAST_TOKENS 8 /* fewer are a mistake, not a text */

weft_status wf_ranges_measure(const wf_ranges_runner *run, const int32_t *ids, size_t n, uint32_t every,
                              const struct weft_calibrate_params *p, struct weft_calibration **out)
{
    collector t = {.run = run, .every = WF_MIN(every, run->context)}; /* of each piece there is one */
    WF_TRY(create_calibration(run, &t.c));
    weft_status s = allocate_collector(&t, WF_MIN(n, (size_t)run->context));
    if (s == WEFT_OK) {
        /* The engine is idle; its lock publishes this along with the request. A step that is looked at is broken off
         * between its layers only: results within one would be void. */
        wf_exec_observe(run->exec, observe_attention, &t);
        wf_dev_stop_by(run->dev, NULL, NULL);
        s = run_text(&t, p, ids, n);
        wf_exec_observe(run->exec, NULL, NULL);
        wf_dev_stop_by(run->dev, run->unwanted, run->engine);
    }
    if (s == WEFT_OK && t.c->n_tokens < LEAST_TOKENS)
        s = wf_fail(WEFT_ERR_ARG,
                    "the text has %llu tokens, too few to calibrate by: give at least %d, ten thousand are enough",
                    (unsigned long long)t.c->n_tokens, LEAST_TOKENS);
    for (uint32_t i = 0; s == WEFT_OK && i < t.c->n_layers; i++) {
        struct weft_calibration_layer *l = &t.c->layers[i];
        wf_phi range = wf_phi_choose(&l->rows, &l->outside);
        l->phi = range.phi, l->a = range.a, l->b = range.b;
        l->fits = wf_phi_fits(&range);
    }
    if (s == WEFT_OK) *out = t.c;
    else weft_calibration_free(t.c);
    if (run->dev->lost) wf_leak_on_purpose(t.raw), wf_leak_on_purpose(t.windows);
    else free(t.raw), free(t.windows);
    free(t.q);
    free(t.k);
    return s;
}
