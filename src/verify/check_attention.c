/* check_attention.c: problems for attention: sequences of mixed lengths over shuffled pages. */
#include "verify/gen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct seqs {
    uint32_t *len, *rows, *first; /* keys; rows in this call; start in the page list */
    uint32_t n, m, pages;
} seqs;

/* One key far larger than the others now and then: the softmax must neither overflow nor lose it. Only where products
 * are exact in F16: where two such logits almost tie, rounding a number to F16, which a variant may do, decides between
 * them. So queries are F16, and the large key of pages in Q8_0 has the scale 8 in each block. */
#define KEY 1.7f
#define LARGE_KEY 1000.0f
static float large_key(float x, uint8_t kv, uint32_t d)
{
    if (kv != WF_Q8_0) return x;
    return d % WF_KV_BLOCK ? 8 * rintf(x * (127 / LARGE_KEY)) : 8 * 127;
}

/* Of a query head. */
static int32_t window_of(const wf_check *k, uint32_t head)
{
    return k->in[WF_ATTENTION_WINDOWS].data ? ((const int32_t *)k->in[WF_ATTENTION_WINDOWS].data)[head] : 0;
}

/* Keys of all query heads to which the row at pos attends. */
static double count_seen(const wf_check *k, uint32_t pos)
{
    double n = 0;
    for (uint32_t h = 0; h < k->c.p.n_head; h++) {
        int64_t window = window_of(k, h), hidden = window ? (int64_t)pos + 1 - window - k->c.p.sink : 0;
        n += (double)(pos + 1 - WF_MAX(hidden, 0));
    }
    return n;
}

static void put_head(const wf_check_operand *pool, const wf_op_params *p, uint32_t page, uint64_t at, const float *x)
{
    wf_kv_store(pool->view.dtype, wf_gen_row(pool, page), pool->view.cols, at, x, p->head_dim);
}

/* Of len keys, the last `rows` of which have rows; keys to which none of these attends stay NaN. */
static void fill_sequence(wf_check *k, wf_gen *g, uint32_t len, uint32_t rows, const int32_t *pages, float *numbers)
{
    const wf_op_params *p = &k->c.p;
    uint32_t spike = k->c.in == WF_F16 && !wf_gen_below(g, 4) ? wf_gen_below(g, len) : len;
    if (spike < len) k->amplify = LARGE_KEY / KEY;
    for (uint32_t t = 0; t < len; t++) {
        for (uint32_t h = 0; h < p->n_kv_head; h++) {
            uint64_t at = ((uint64_t)h * p->page_tokens + t % p->page_tokens) * p->head_dim;
            uint32_t page = (uint32_t)pages[t / p->page_tokens];
            /* Does any row attend to key t of a KV head? The first row is at position first, and every later key has a
             * row. */
            uint32_t first = len - rows;
            const int32_t *windows = (const int32_t *)k->in[WF_ATTENTION_WINDOWS].data;
            if (!(t > first || !windows ||
                  wf_attends(wf_longest_window(&k->c.p, windows, h), k->c.p.sink, (int32_t)first, (int32_t)t)))
                continue;
            k->bytes += 2.0 * (double)wf_dtype_bytes(k->in[WF_ATTENTION_K_POOL].view.dtype, p->head_dim);
            for (uint32_t d = 0; d < p->head_dim; d++) {
                numbers[d] = wf_gen_unit(g) * (t == spike ? LARGE_KEY : KEY);
                if (t == spike) numbers[d] = large_key(numbers[d], k->c.kv, d);
                numbers[p->head_dim + d] = wf_gen_unit(g);
            }
            put_head(&k->in[WF_ATTENTION_K_POOL], p, page, at, numbers);
            put_head(&k->in[WF_ATTENTION_V_POOL], p, page, at, numbers + p->head_dim);
        }
    }
}

/* Sometimes rows are shuffled, so that those of a sequence are scattered. */
static void scatter_rows(wf_gen *g, uint32_t m, int32_t *seq, int32_t *pos)
{
    for (uint32_t n = wf_gen_below(g, 3) ? 0 : WF_MIN(m, 24); n; n--) {
        uint32_t a = wf_gen_below(g, m), b = wf_gen_below(g, m);
        int32_t s = seq[a], p = pos[a];
        seq[a] = seq[b], pos[a] = pos[b];
        seq[b] = s, pos[b] = p;
    }
}

/* One of each kind: all keys, fewer than the sink, a page and a bit, more than there are, the row's own key alone,
 * random. */
static weft_status gen_windows(wf_check *k, wf_gen *g)
{
    const wf_op_params *p = &k->c.p;
    int32_t *windows;
    if (k->c.windows == WF_WINDOWS_NONE) return WEFT_OK;
    WF_TRY(wf_gen_ints(&k->in[WF_ATTENTION_WINDOWS], p->n_head, &windows));
    for (uint32_t h = 0, turn = wf_gen_below(g, 6); h < p->n_head; h++, turn++) {
        const uint32_t kinds[] = {0,
                                  1 + wf_gen_below(g, WF_MAX(p->sink, 1u)),
                                  p->page_tokens + 1 + wf_gen_below(g, p->page_tokens),
                                  k->c.max_kv + wf_gen_below(g, 2),
                                  1,
                                  1 + wf_gen_below(g, k->c.max_kv)};
        windows[h] = (int32_t)(k->c.windows == WF_WINDOWS_WIDE ? kinds[turn % 2 * 3] : kinds[turn % 6]);
    }
    return WEFT_OK;
}

static weft_status attention_operands(wf_check *k, wf_gen *g, const seqs *s, const uint32_t *order,
                                      const uint32_t *where, float *numbers)
{
    const wf_case *c = &k->c;
    uint32_t cols = c->p.n_head * c->p.head_dim;
    uint32_t page = c->p.n_kv_head * c->p.page_tokens * c->p.head_dim;
    int32_t *seq, *pos, *indptr, *pages;
    WF_TRY(wf_gen_floats(&k->in[WF_ATTENTION_Q], g, c->in, s->m, cols, c->pad, 3));
    WF_TRY(wf_gen_pool(&k->in[WF_ATTENTION_K_POOL], c, s->pages + 3, page));
    WF_TRY(wf_gen_pool(&k->in[WF_ATTENTION_V_POOL], c, s->pages + 3, page));
    WF_TRY(wf_gen_ints(&k->in[WF_ATTENTION_SEQ], s->m, &seq));
    WF_TRY(wf_gen_ints(&k->in[WF_ATTENTION_POS], s->m, &pos));
    WF_TRY(wf_gen_ints(&k->in[WF_ATTENTION_INDPTR], s->n + 1, &indptr));
    WF_TRY(wf_gen_ints(&k->in[WF_ATTENTION_PAGES], s->pages, &pages));
    WF_TRY(gen_windows(k, g));
    if (c->sinks) WF_TRY(wf_gen_floats(&k->in[WF_ATTENTION_SINKS], g, WF_F32, 1, c->p.n_head, 0, 6));
    for (uint32_t i = 0; i <= s->n; i++) indptr[i] = (int32_t)s->first[i];
    for (uint32_t i = 0; i < s->pages; i++) pages[i] = (int32_t)where[i];
    for (uint32_t i = 0; i < s->n; i++) {
        if (!s->rows[i] || g->shapes_only) continue; /* its pages stay NaN */
        fill_sequence(k, g, s->len[i], s->rows[i], pages + s->first[i], numbers);
        for (uint32_t r = 0; r < s->rows[i]; r++) {
            k->flops += 4.0 * c->p.head_dim * count_seen(k, s->len[i] - 1 - r);
        }
    }
    uint32_t m = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t q = order[i];
        for (uint32_t r = 0; r < s->rows[q]; r++, m++) {
            seq[m] = (int32_t)q;
            pos[m] = (int32_t)(s->len[q] - s->rows[q] + r);
        }
    }
    scatter_rows(g, s->m, seq, pos);
    if (c->windows == WF_WINDOWS_AROUND) {
        int32_t *around;
        WF_TRY(wf_gen_ints(&k->in[WF_ATTENTION_AROUND], s->m, &around));
        for (m = 0; m < s->m; m++) around[m] = pos[m], pos[m] = (int32_t)s->len[seq[m]] - 1;
    }
    return wf_gen_operand(&k->out[WF_ATTENTION_O], c->out, s->m, cols, c->pad);
}

static double largest_score(const wf_check *k, uint32_t m, uint32_t h, float *key)
{
    const wf_op_params *p = &k->c.p;
    uint32_t seq = ((const uint32_t *)k->in[WF_ATTENTION_SEQ].data)[m], kv_head = h / (p->n_head / p->n_kv_head),
             d = p->head_dim;
    const int32_t *pages = (const int32_t *)k->in[WF_ATTENTION_PAGES].data +
                           ((const int32_t *)k->in[WF_ATTENTION_INDPTR].data)[seq];
    int32_t pos = ((const int32_t *)k->in[WF_ATTENTION_POS].data)[m], window = window_of(k, h);
    double top = -INFINITY;
    const int32_t *around = (const int32_t *)k->in[WF_ATTENTION_AROUND].data;
    for (int32_t j = 0; j <= pos; j++) {
        if (!wf_attends_around(window, p->sink, pos, around ? around[m] : pos, j)) continue;
        uint32_t page = (uint32_t)pages[(uint32_t)j / p->page_tokens];
        uint32_t at = (kv_head * p->page_tokens + (uint32_t)j % p->page_tokens) * d;
        double s = 0;
        const wf_check_operand *pool = &k->in[WF_ATTENTION_K_POOL];
        wf_kv_load(pool->view.dtype, wf_gen_row(pool, page), pool->view.cols, at, key, d);
        for (uint32_t i = 0; i < d; i++) s += (double)wf_gen_get(&k->in[WF_ATTENTION_Q], m, h * d + i) * key[i];
        top = fmax(top, wf_attention_score(p, s));
    }
    return top;
}

weft_status wf_gen_attention(wf_check *k, wf_gen *g)
{
    const wf_case *c = &k->c;
    seqs s = {.n = c->n_seqs};
    uint32_t *mem = wf_calloc(3 * (size_t)s.n + 1, sizeof *mem);
    if (!mem) return WEFT_ERR_NOMEM;
    s.len = mem;
    s.rows = mem + s.n;
    s.first = mem + 2 * (size_t)s.n;
    for (uint32_t i = 0; i < s.n; i++) {
        s.len[i] = i ? 1 + wf_gen_below(g, c->max_kv) : c->max_kv;
        uint32_t most = WF_MIN(c->max_q, s.len[i]);
        s.rows[i] = i && wf_gen_below(g, 3) == 0 ? 1 : i ? 1 + wf_gen_below(g, most) : most;
        if (s.n > 2 && i == s.n / 2) s.rows[i] = 0; /* a sequence without rows in this call */
        s.first[i] = s.pages;
        s.pages += (s.len[i] + c->p.page_tokens - 1) / c->p.page_tokens + wf_gen_below(g, 2);
        s.m += s.rows[i];
    }
    s.first[s.n] = s.pages;
    uint32_t *order = wf_gen_permutation(g, s.n), *where = wf_gen_permutation(g, s.pages + 3);
    float *numbers = wf_calloc(2 * (size_t)c->p.head_dim, sizeof *numbers);
    weft_status st = order && where && numbers ? attention_operands(k, g, &s, order, where, numbers) : WEFT_ERR_NOMEM;
    k->c.p.scale = 1 / sqrtf((float)c->p.head_dim);
    k->c.p.max_kv = c->max_kv;
    k->c.p.max_q = c->max_q;
    k->reduce = c->p.head_dim + c->max_kv;
    if (st == WEFT_OK && c->p.phi_lo < c->p.phi_hi) {
        if (!g->shapes_only) {
            /* Counts the rows and heads that leave the range of phi: at least, and at most, since a variant rounds and
             * may represent only the upper 13 of the range. */
            const wf_op_params *p = &k->c.p;
            double low = fmax(p->phi_lo, p->phi_hi - 13.0);
            for (uint32_t m = 0; m < k->out[WF_ATTENTION_O].view.rows; m++) {
                for (uint32_t h = 0; h < p->n_head; h++) {
                    double top = largest_score(k, m, h, numbers), x = top - p->phi, near = 2e-3 + 1e-4 * fabs(top);
                    k->redo_least += x < p->phi_lo - near || x > p->phi_hi + near;
                    k->redo_most += !(x > low + near && x < p->phi_hi - near);
                }
            }
        }
        st = wf_gen_operand(&k->out[WF_ATTENTION_RECOMPUTED], WF_I32, 1, 1, 0);
    }
    free(mem);
    free(numbers);
    free(order);
    free(where);
    return st;
}
