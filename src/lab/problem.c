/* problem: a shape's operands on a device, with enough copies of the weights or KV pages to exceed every cache.
 * Contents are random: one pool of random numbers is written repeatedly. */
#include "lab/measure.h"
#include "tensor/kv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POOL_VALUES (1u << 20)
#define PAGE_TOKENS 16
#define MAX_COPIES  65536
/* q.k * scale of numbers in [-1, 1) has a standard deviation of 1/3: no row exceeds this. */
#define PHI 6.5f

/* ---- random contents ----------------------------------------------------------------------------------------- */

typedef struct pool {
    uint8_t *data;
    uint64_t bytes;
} pool;

/* Encoded numbers in [-amplitude, amplitude). */
static weft_status make_pool(uint8_t dtype, uint64_t n, float amplitude, pool *out)
{
    const wf_dtype_info *t = &wf_dtypes[dtype];
    n = WF_UP(WF_MIN(n, (uint64_t)POOL_VALUES), (uint64_t)t->block);
    float *values = wf_calloc(n, sizeof *values);
    out->bytes = wf_dtype_bytes(dtype, n);
    out->data = wf_calloc(out->bytes, 1);
    for (uint64_t i = 0; values && i < n; i++) values[i] = amplitude * (float)(2 * wf_random_unit(dtype, i) - 1);
    if (values && out->data) t->encode(values, out->data, n);
    free(values);
    return values && out->data ? WEFT_OK : WEFT_ERR_NOMEM;
}

/* Completes writes, also those before a failure, before their source and their targets are freed; a lost device may
 * still read it. */
static void settle_writes(wf_problem *p, weft_status *s, void *mem)
{
    weft_status end = wf_finish(p->q);
    if (!*s) *s = end;
    if (end) wf_leak_on_purpose(mem);
    else free(mem);
}

static uint64_t size_of(const wf_view *v) { return wf_dtype_bytes(v->dtype, (uint64_t)v->rows * v->stride); }

/* Writes the pool to `bytes` of each of n views, again and again, and frees it. */
static weft_status write_all(wf_problem *p, const wf_view *v, uint32_t n, uint64_t bytes, weft_status s, const pool *r)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint64_t at = 0; !s && at < bytes; at += r->bytes) {
            s = wf_stop_now(); /* all copies together may be gigabytes */
            uint64_t n_bytes = WF_MIN(r->bytes, bytes - at);
            if (!s) s = wf_write(p->q, v[i].buf, v[i].offset + at, r->data, n_bytes, NULL, 0, NULL);
        }
    settle_writes(p, &s, r->data);
    return s;
}

static weft_status fill_all(wf_problem *p, const wf_view *v, uint32_t n, uint64_t bytes, float amplitude)
{
    pool r = {0};
    weft_status s = make_pool(v->dtype, (uint64_t)v->rows * v->cols, amplitude, &r);
    return write_all(p, v, n, bytes, s, &r);
}

static weft_status fill_one(wf_problem *p, const wf_view *v, float amplitude)
{
    return fill_all(p, v, 1, size_of(v), amplitude);
}

/* Pages of keys or values, all alike where they are no rows of blocks. */
static weft_status fill_pages(wf_problem *p, const wf_view *v)
{
    if (v->dtype == WF_F16) return fill_one(p, v, 1);
    pool r = {.bytes = wf_dtype_bytes(v->dtype, v->cols)};
    float *x = wf_calloc(v->cols, sizeof *x);
    r.data = wf_calloc(r.bytes, 1);
    for (uint32_t i = 0; x && i < v->cols; i++) x[i] = (float)(2 * wf_random_unit(v->dtype, i) - 1);
    if (x && r.data) wf_kv_store(v->dtype, r.data, v->cols, 0, x, v->cols);
    weft_status s = write_all(p, v, 1, size_of(v), x && r.data ? WEFT_OK : WEFT_ERR_NOMEM, &r);
    free(x);
    return s;
}

/* ---- regions ------------------------------------------------------------------------------------------------- */

static wf_view view_of(uint8_t dtype, uint32_t rows, uint32_t cols)
{
    return (wf_view){.rows = rows, .cols = cols, .stride = cols, .dtype = dtype};
}

static void bind_view(const wf_arena *a, wf_region r, wf_view *v)
{
    v->buf = wf_arena_buf(a, r);
    v->offset = r.offset;
}

/* Allocates the views in one arena. */
static weft_status place_views(wf_arena *a, wf_view *const *views, size_t n)
{
    wf_region r[8];
    for (size_t i = 0; i < n; i++) WF_TRY(wf_arena_reserve(a, size_of(views[i]), &r[i]));
    WF_TRY(wf_arena_commit(a));
    for (size_t i = 0; i < n; i++) bind_view(a, r[i], views[i]);
    return WEFT_OK;
}

static weft_status write_ints(wf_problem *p, const wf_view *v, int32_t *values)
{
    weft_status s = wf_write(p->q, v->buf, v->offset, values, size_of(v), NULL, 0, NULL);
    settle_writes(p, &s, values);
    return s;
}

/* The number of copies of `bytes` each that cover `rotate`, within half of the memory. */
static weft_status count_copies(wf_problem *p, uint64_t bytes, uint64_t rotate)
{
    uint64_t most = p->dev->info.memory / 2;
    if (bytes > most)
        return wf_fail(WEFT_ERR_NOMEM, "needs %.1f GB of the %.1f GB of %s", (double)bytes * 1e-9,
                       (double)p->dev->info.memory * 1e-9, p->dev->info.id);
    uint64_t n = WF_MIN(WF_MAX(rotate / bytes + 1, 2), WF_MAX(most / bytes, 1));
    p->copies = (uint32_t)WF_MIN(n, MAX_COPIES);
    p->copy = wf_calloc(p->copies, sizeof *p->copy);
    return p->copy ? WEFT_OK : WEFT_ERR_NOMEM;
}

/* ---- gemm ---------------------------------------------------------------------------------------------------- */

static weft_status pack_weights(wf_problem *p, const wf_view *w, uint64_t bytes)
{
    uint64_t raw = size_of(w);
    pool r = {0};
    uint8_t *rows = wf_calloc(raw, 1), *packed = wf_calloc(bytes, 1);
    weft_status s = rows && packed ? make_pool(w->dtype, POOL_VALUES, 1 / sqrtf((float)w->cols), &r) : WEFT_ERR_NOMEM;
    for (uint64_t at = 0; !s && at < raw; at += r.bytes) memcpy(rows + at, r.data, WF_MIN(r.bytes, raw - at));
    if (!s) p->dev->fns->weight_pack(p->dev, w->layout, w->dtype, w->rows, w->cols, rows, packed);
    for (uint32_t i = 0; !s && i < p->copies; i++) {
        s = wf_stop_now();
        if (!s) s = wf_write(p->q, p->copy[i].buf, p->copy[i].offset, packed, bytes, NULL, 0, NULL);
    }
    settle_writes(p, &s, packed);
    free(rows);
    free(r.data);
    return s;
}

static weft_status make_weights(wf_problem *p, uint64_t rotate)
{
    const wf_shape *s = &p->shape;
    const wf_dev_fns *fns = p->dev->fns;
    wf_view w = view_of(s->dtype, s->n, s->k);
    w.layout = wf_weight_layout(p->dev, WF_OP_GEMM, s->dtype, s->n, s->k);
    uint64_t bytes = w.layout ? fns->weight_bytes(p->dev, w.layout, s->dtype, s->n, s->k) : size_of(&w);
    WF_TRY(count_copies(p, bytes, rotate));
    wf_region *r = wf_calloc(p->copies, sizeof *r);
    weft_status st = r ? WEFT_OK : WEFT_ERR_NOMEM;
    for (uint32_t i = 0; !st && i < p->copies; i++) st = wf_arena_reserve(&p->big, bytes, &r[i]);
    if (!st) st = wf_arena_commit(&p->big);
    for (uint32_t i = 0; !st && i < p->copies; i++) {
        p->copy[i] = w;
        bind_view(&p->big, r[i], &p->copy[i]);
    }
    free(r);
    if (st) return st;
    return w.layout ? pack_weights(p, &w, bytes) : fill_all(p, p->copy, p->copies, bytes, 1 / sqrtf((float)s->k));
}

weft_status wf_problem_rows(wf_problem *p, uint32_t m)
{
    wf_call *c = &p->call;
    uint8_t act = p->dev->act;
    p->shape.m = m;
    wf_arena_free(&p->small);
    wf_arena_init(&p->small, p->dev, "activations", "use smaller shapes");
    *c = (wf_call){.op = WF_OP_GEMM, .variant = -1};
    c->in[WF_GEMM_X] = view_of(act, m, p->shape.k);
    c->in[WF_GEMM_W] = p->copy[0];
    c->out[WF_GEMM_Y] = view_of(act, m, p->shape.n);
    p->rotated = 1;
    WF_TRY(place_views(&p->small, (wf_view *const[]){&c->in[WF_GEMM_X], &c->out[WF_GEMM_Y]}, 2));
    return fill_one(p, &c->in[WF_GEMM_X], 1);
}

/* ---- attention ----------------------------------------------------------------------------------------------- */

/* Sequences of one length; all rows of a prompt, or the last one; and the windows of all heads. */
static weft_status write_rows(wf_problem *p)
{
    const wf_shape *s = &p->shape;
    const wf_view *in = p->call.in;
    uint32_t rows = s->op == WF_TUNED_DECODE ? 1 : s->length, all = s->seqs * rows,
        pages = (s->length + PAGE_TOKENS - 1) / PAGE_TOKENS;
    int32_t *seq = wf_calloc(all, sizeof *seq), *pos = wf_calloc(all, sizeof *pos),
        *indptr = wf_calloc((size_t)s->seqs + 1, sizeof *indptr);
    int32_t *windows = wf_calloc(s->n_head, sizeof *windows);
    if (!seq || !pos || !indptr || !windows) {
        free(seq), free(pos), free(indptr), free(windows);
        return WEFT_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < all; i++) {
        seq[i] = (int32_t)(i / rows);
        pos[i] = (int32_t)(s->length - rows + i % rows);
    }
    for (uint32_t i = 0; i <= s->seqs; i++) indptr[i] = (int32_t)(i * pages);
    for (uint32_t h = 0; h < s->n_head; h++) windows[h] = (int32_t)s->window;
    weft_status st[] = {write_ints(p, &in[WF_ATTENTION_SEQ], seq), write_ints(p, &in[WF_ATTENTION_POS], pos),
                        write_ints(p, &in[WF_ATTENTION_INDPTR], indptr), WEFT_OK};
    if (s->window) st[3] = write_ints(p, &in[WF_ATTENTION_WINDOWS], windows);
    else free(windows);
    for (size_t i = 0; i < WF_LEN(st); i++) WF_TRY(st[i]);
    return WEFT_OK;
}

/* Assigns each copy its pages in random order. */
static weft_status write_pages(wf_problem *p, uint32_t n)
{
    for (uint32_t i = 0; i < p->copies; i++) {
        int32_t *pages = wf_calloc(n, sizeof *pages);
        if (!pages) return WEFT_ERR_NOMEM;
        for (uint32_t k = 0; k < n; k++) {
            uint32_t at = (uint32_t)(wf_random(i, k) % (k + 1)); /* inside-out shuffle */
            pages[k] = pages[at];
            pages[at] = (int32_t)(i * n + k);
        }
        WF_TRY(write_ints(p, &p->copy[i], pages));
    }
    return WEFT_OK;
}

static weft_status place_pages(wf_problem *p, uint32_t n)
{
    wf_call *c = &p->call;
    wf_view *const views[] = {&c->in[WF_ATTENTION_Q], &c->in[WF_ATTENTION_SEQ], &c->in[WF_ATTENTION_POS],
                              &c->in[WF_ATTENTION_INDPTR], &c->out[WF_ATTENTION_O], &c->in[WF_ATTENTION_WINDOWS]};
    wf_region *r = wf_calloc(p->copies, sizeof *r);
    weft_status s = r ? WEFT_OK : WEFT_ERR_NOMEM;
    for (uint32_t i = 0; !s && i < p->copies; i++) {
        p->copy[i] = view_of(WF_I32, 1, n);
        s = wf_arena_reserve(&p->small, size_of(&p->copy[i]), &r[i]);
    }
    if (!s) s = place_views(&p->small, views, WF_LEN(views) - !p->shape.window);
    for (uint32_t i = 0; !s && i < p->copies; i++) bind_view(&p->small, r[i], &p->copy[i]);
    if (!s) c->in[WF_ATTENTION_PAGES] = p->copy[0];
    free(r);
    return s;
}

static weft_status make_attention(wf_problem *p, uint64_t rotate)
{
    const wf_shape *s = &p->shape;
    wf_call *c = &p->call;
    bool decode = s->op == WF_TUNED_DECODE;
    uint32_t rows = s->seqs * (decode ? 1 : s->length), cols = s->n_head * s->head_dim;
    uint32_t pages = s->seqs * ((s->length + PAGE_TOKENS - 1) / PAGE_TOKENS),
        page = s->n_kv_head * PAGE_TOKENS * s->head_dim;
    uint64_t bytes = 2 * pages * wf_dtype_bytes(s->dtype, page);
    WF_TRY(count_copies(p, bytes, rotate));
    p->copies = (uint32_t)WF_MIN(p->copies, WF_MAX(p->dev->max_alloc / (bytes / 2), 1)); /* each pool is one buffer */
    *c = (wf_call){.op = WF_OP_ATTENTION, .variant = -1};
    c->p = (wf_op_params){.scale = 1 / sqrtf((float)s->head_dim), .n_head = s->n_head, .n_kv_head = s->n_kv_head,
                          .head_dim = s->head_dim, .page_tokens = PAGE_TOKENS, .max_kv = s->length, .max_q = decode ? 1
                          : s->length};
    if (s->async) c->p.phi_lo = -PHI, c->p.phi_hi = PHI;
    c->in[WF_ATTENTION_Q] = c->out[WF_ATTENTION_O] = view_of(p->dev->act, rows, cols);
    c->in[WF_ATTENTION_K_POOL] = c->in[WF_ATTENTION_V_POOL] = view_of(s->dtype, p->copies * pages, page);
    c->in[WF_ATTENTION_SEQ] = c->in[WF_ATTENTION_POS] = view_of(WF_I32, 1, rows);
    c->in[WF_ATTENTION_INDPTR] = view_of(WF_I32, 1, s->seqs + 1);
    if (s->window) c->in[WF_ATTENTION_WINDOWS] = view_of(WF_I32, 1, s->n_head);
    p->rotated = 6;
    WF_TRY(place_views(&p->big, (wf_view *const[]){&c->in[WF_ATTENTION_K_POOL], &c->in[WF_ATTENTION_V_POOL]}, 2));
    WF_TRY(place_pages(p, pages));
    WF_TRY(fill_one(p, &c->in[WF_ATTENTION_Q], 1));
    WF_TRY(fill_pages(p, &c->in[WF_ATTENTION_K_POOL]));
    WF_TRY(fill_pages(p, &c->in[WF_ATTENTION_V_POOL]));
    WF_TRY(write_rows(p));
    return write_pages(p, pages);
}

weft_status wf_problem_create(wf_dev *dev, wf_queue *q, const wf_shape *s, uint64_t rotate, wf_problem *out)
{
    WF_TRY(wf_shape_check(s));
    *out = (wf_problem){.dev = dev, .q = q, .shape = *s};
    wf_arena_init(&out->big, dev, s->op == WF_TUNED_GEMM ? "weights" : "KV pages", "use smaller shapes");
    wf_arena_init(&out->small, dev, "activations", "use smaller shapes");
    weft_status st = s->op == WF_TUNED_GEMM ? make_weights(out, rotate) : make_attention(out, rotate);
    if (!st && s->op == WF_TUNED_GEMM) st = wf_problem_rows(out, s->m ? s->m : 1);
    if (st) wf_problem_destroy(out);
    return st;
}

void wf_problem_destroy(wf_problem *p)
{
    wf_arena_free(&p->big);
    wf_arena_free(&p->small);
    free(p->copy);
    p->copy = NULL;
}
