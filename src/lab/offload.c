/* offload: see offload.h. */
#include "lab/offload.h"
#include "lab/overlap.h"

#include <stdlib.h>

enum { MOST_HOST = 64 << 20 };

weft_status wf_offload_open(struct weft_engine *e, wf_offload *out)
{
    uint64_t page = wf_exec_page_bytes(e->exec);
    *out = (wf_offload){.e = e, .pages = wf_calloc(e->layout.limits.pages, sizeof *out->pages)};
    if (!out->pages) return WEFT_ERR_NOMEM;
    WF_TRY(wf_copy_queue_create(e->dev, &out->q));
    WF_TRY(wf_event_create(e->dev, &out->first));
    WF_TRY(wf_event_create(e->dev, &out->last));
    return wf_host_create(e->dev, WF_MAX(page, MOST_HOST / page * page), &out->host);
}

void wf_offload_close(wf_offload *o)
{
    if (!o->e) return;
    if (o->q) wf_queue_destroy(o->q);
    if (o->first) wf_event_destroy(o->first);
    if (o->last) wf_event_destroy(o->last);
    if (o->host.data) wf_host_destroy(o->e->dev, &o->host);
    free(o->pages);
    *o = (wf_offload){0};
}

/* Pages that the step leaves alone: of each sequence those before the ones that its tokens go to, and those of
 * nobody. */
void wf_offload_batch(wf_offload *o, const wf_batch *b)
{
    uint32_t page = o->e->sched.p.page_tokens, all = wf_limits_pages(&o->e->layout.limits, b->n_tokens, b->n_logits);
    o->n_pages = 0;
    for (uint32_t s = 0, row = 0; s < b->n_seqs; s++) {
        for (row = 0; row < b->n_tokens && b->in[WF_INPUT_SEQ][row] != (int32_t)s;) row++;
        uint32_t first = row < b->n_tokens ? (uint32_t)b->in[WF_INPUT_POS][row] : 0;
        for (uint32_t t = 0; t < wf_limits_tables(&o->e->layout.limits); t++)
            for (uint32_t i = 0; i < first / page; i++)
                if (wf_load_holds(o->e, t, first, i))
                    o->pages[o->n_pages++] = wf_batch_table(b, WF_INPUT_PAGES, t)[b->in[WF_INPUT_INDPTR][s] +
                                                                                  (int32_t)i];
    }
    for (uint32_t p = wf_load_pages(o->e, b); p < all; p++) o->pages[o->n_pages++] = (int32_t)p;
    o->n_copies = o->n_pages ? (b->n_tokens + page - 1) / page : 0;
}

weft_status wf_offload_step(wf_offload *o, const wf_batch *b, double *us)
{
    double step;
    uint64_t page = wf_exec_page_bytes(o->e->exec), places = WF_MAX((uint64_t)1, MOST_HOST / page), begin = 0, end = 0,
        other;
    WF_TRY(wf_load_submit(o->e, b));
    weft_status s = WEFT_OK;
    for (uint32_t i = 0; s == WEFT_OK && i < o->n_copies; i++) {
        wf_event *ended = !i ? o->first : i + 1 == o->n_copies ? o->last : NULL;
        s = wf_exec_read_page(o->e->exec, o->q, o->pages[i % o->n_pages], (uint8_t *)o->host.data + i % places * page,
                              ended);
    }
    if (s == WEFT_OK) s = wf_flush(o->q);
    weft_status waited = wf_load_wait(o->e, &step);
    if (s == WEFT_OK) s = waited;
    if (s == WEFT_OK) s = wf_finish(o->q);
    if (s == WEFT_OK) s = wf_event_times(o->first, &begin, &end);
    if (s == WEFT_OK && o->n_copies > 1) s = wf_event_times(o->last, &other, &end);
    if (us) *us = WF_MAX(step, (double)(end - begin) / 1e3);
    return s;
}
