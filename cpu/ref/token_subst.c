/* TOKEN_SUBST, the reference and only variant: it copies a few integers per step. */
#include "cpu/ref/ref.h"

void wf_cpu_ref_token_subst(const wf_cpu_work *w)
{
    const wf_view *ids = &w->call->in[WF_TOKEN_SUBST_IDS], *from = &w->call->in[WF_TOKEN_SUBST_FROM];
    const int32_t *id = wf_cpu_at(ids), *chosen = wf_cpu_at(from);
    int32_t *y = wf_cpu_at(&w->call->out[WF_TOKEN_SUBST_Y]);
    uint32_t begin, end, n = from->rows * from->cols;
    wf_cpu_part(w, ids->rows * ids->cols, 1, &begin, &end);
    for (uint32_t i = begin; i < end; i++) {
        uint32_t at = ~(uint32_t)id[i]; /* -1 - id */
        y[i] = id[i] >= 0 ? id[i] : at < n ? chosen[at] : -1;
    }
}
