/* PAGE_COPY, the reference and only variant: memcpy is bound by memory. */
#include <string.h>

#include "cpu/ref/ref.h"

void wf_cpu_ref_page_copy(const wf_cpu_work *w)
{
    const wf_view *from = &w->call->in[WF_PAGE_COPY_FROM], *to = &w->call->out[WF_PAGE_COPY_TO],
                  *ids = &w->call->in[WF_PAGE_COPY_SRC];
    const int32_t *src = wf_cpu_at(ids), *dst = wf_cpu_at(&w->call->in[WF_PAGE_COPY_DST]);
    uint32_t begin, end;
    wf_cpu_part(w, ids->rows * ids->cols, 1, &begin, &end);
    for (uint32_t i = begin; i < end; i++) {
        if ((uint32_t)src[i] >= from->rows || (uint32_t)dst[i] >= to->rows) continue;
        memcpy(wf_cpu_row(to, (uint32_t)dst[i]), wf_cpu_row(from, (uint32_t)src[i]), to->cols * sizeof(uint16_t));
    }
}
