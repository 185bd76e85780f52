/* ATTENTION, the reference: all scores of one row and head, softmax in double, then the sum of V.
 */
#include <math.h>

#include "cpu/ref/ref.h"

wf_cpu_scratch_size wf_cpu_ref_attention_scratch(const wf_call *c)
{
    const int32_t *pos = wf_cpu_at(&c->in[WF_ATTENTION_POS]);
    int32_t last = 0;
    for (uint32_t m = 0; m < c->out[WF_ATTENTION_O].rows; m++) last = WF_MAX(last, pos[m]);
    return (wf_cpu_scratch_size){.per_thread = sizeof(double) * ((size_t)last + 1 + 3 * c->p.head_dim)};
}

static void one_head(const wf_call *c, uint32_t m, uint32_t h, double *score)
{
    const wf_op_params *p = &c->p;
    const wf_view *q = &c->in[WF_ATTENTION_Q], *o = &c->out[WF_ATTENTION_O];
    int32_t seq = ((const int32_t *)wf_cpu_at(&c->in[WF_ATTENTION_SEQ]))[m];
    int32_t pos = ((const int32_t *)wf_cpu_at(&c->in[WF_ATTENTION_POS]))[m];
    const int32_t *windows = c->in[WF_ATTENTION_WINDOWS].buf ? wf_cpu_at(&c->in[WF_ATTENTION_WINDOWS]) : NULL;
    const int32_t *indptr = wf_cpu_at(&c->in[WF_ATTENTION_INDPTR]);
    const int32_t *pages = (const int32_t *)wf_cpu_at(&c->in[WF_ATTENTION_PAGES]) + indptr[seq];
    uint32_t dim = p->head_dim, kv_head = h / (p->n_head / p->n_kv_head), n = (uint32_t)(pos + 1);
    const float *sinks = c->in[WF_ATTENTION_SINKS].buf ? wf_cpu_at(&c->in[WF_ATTENTION_SINKS]) : NULL;
    double *sum = score + n, *query = sum + dim, top = sinks ? sinks[h] : -INFINITY, total = 0;
    float *kv = (float *)(query + dim);
    int32_t window = windows ? windows[h] : 0;
    const wf_view *around = &c->in[WF_ATTENTION_AROUND];
    int32_t at = around->buf ? ((const int32_t *)wf_cpu_at(around))[m] : pos;

    for (uint32_t d = 0; d < dim; d++) query[d] = wf_cpu_get(q, wf_cpu_row(q, m), (uint64_t)h * dim + d);
    for (uint32_t j = 0; j < n; j++) {
        if (!wf_attends_around(window, p->sink, pos, at, (int32_t)j)) continue;
        const uint32_t slot = (uint32_t)pages[j / p->page_tokens] * p->page_tokens + j % p->page_tokens;
        double s = 0;
        wf_cpu_load_kv(&c->in[WF_ATTENTION_K_POOL], p, slot, kv_head, kv);
        for (uint32_t d = 0; d < dim; d++) s += query[d] * kv[d];
        score[j] = wf_attention_score(p, s);
        top = WF_MAX(top, score[j]);
    }
    for (uint32_t d = 0; d < dim; d++) sum[d] = 0;
    if (sinks) total = exp(sinks[h] - top);
    for (uint32_t j = 0; j < n; j++) {
        if (!wf_attends_around(window, p->sink, pos, at, (int32_t)j)) continue;
        const uint32_t slot = (uint32_t)pages[j / p->page_tokens] * p->page_tokens + j % p->page_tokens;
        wf_cpu_load_kv(&c->in[WF_ATTENTION_V_POOL], p, slot, kv_head, kv);
        double e = exp(score[j] - top);
        total += e;
        for (uint32_t d = 0; d < dim; d++) sum[d] += e * kv[d];
    }
    for (uint32_t d = 0; d < dim; d++)
        wf_cpu_set(o, wf_cpu_row(o, m), (uint64_t)h * dim + d, n ? (float)(sum[d] / total) : 0);
}

void wf_cpu_ref_attention(const wf_cpu_work *w)
{
    const wf_call *c = w->call;
    uint32_t begin, end;
    wf_cpu_part(w, c->out[WF_ATTENTION_O].rows * c->p.n_head, 1, &begin, &end);
    for (uint32_t i = begin; i < end; i++) one_head(c, i / c->p.n_head, i % c->p.n_head, w->per_thread);
}
