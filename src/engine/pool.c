/* pool: a request for an embedding. Its prompt is computed like any other; the rows of its tokens that pooling wants
 * come to the host as logits do, and become one row here: they are few, and a sum of them is no work. */
#include "engine/engine.h"

#include <math.h>
#include <stdlib.h>

weft_status wf_pool_init(struct weft_request *r)
{
    r->pooled.n = wf_layout_output(&r->engine->layout);
    r->pooled.sum = wf_calloc(r->pooled.n, sizeof *r->pooled.sum);
    return r->pooled.sum ? WEFT_OK : WEFT_ERR_NOMEM;
}

/* Rows that are computed again after a preemption do not count again. */
static void take_rows(struct weft_request *r, const float *rows, const wf_step_seq *p)
{
    bool mean = r->engine->pooling == WF_POOLING_MEAN;
    wf_pool_sum *to = &r->pooled;
    for (uint32_t i = 0; rows && i < p->n_logits; i++, rows += to->n) {
        if (mean && p->first + i < r->n_reported) continue;
        for (uint32_t d = 0; d < to->n; d++) to->sum[d] = (mean ? to->sum[d] : 0) + rows[d];
        r->n_reported = p->first + i + 1;
    }
}

static weft_status finish(struct weft_request *r, float *out)
{
    const wf_pool_sum *from = &r->pooled;
    bool scores = r->engine->pooling == WF_POOLING_RANK;
    double length = 0, by = r->engine->pooling == WF_POOLING_MEAN ? r->n_prompt : 1;
    for (uint32_t d = 0; d < from->n; d++) length += from->sum[d] * from->sum[d];
    if (!isfinite(length)) return wf_fail(WEFT_ERR_NOT_FINITE, "the model gave an embedding that is not finite");
    if (!scores && !r->p.embed_raw && length > 0) by = sqrt(length);
    for (uint32_t d = 0; d < from->n; d++) out[d] = (float)(from->sum[d] / by);
    return wf_request_emit(r, (struct weft_event){.kind = WEFT_EVENT_EMBEDDING, .id = -1, .text = "", .message = "",
                                                  .position = r->n_prompt - 1, .embedding = out,
                                                  .n_embedding = from->n});
}

void wf_pool_rows(struct weft_request *r, const float *rows, const wf_step_seq *p)
{
    take_rows(r, rows, p);
    if (!p->samples) return;
    r->first_ns = wf_now_ns();
    float *out = wf_calloc(r->pooled.n, sizeof *out);
    weft_status s = out ? finish(r, out) : WEFT_ERR_NOMEM;
    free(out);
    wf_request_end(r, s == WEFT_OK ? WEFT_FINISH_STOP : WEFT_FINISH_ERROR, s, s == WEFT_OK ? "" : wf_error());
}
