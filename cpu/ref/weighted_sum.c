/* WEIGHTED_SUM, the reference. */
#include "cpu/ref/ref.h"

void wf_cpu_ref_weighted_sum(const wf_cpu_work *w)
{
    const wf_view *x = &w->call->in[WF_WEIGHTED_SUM_X], *weights = &w->call->in[WF_WEIGHTED_SUM_WEIGHTS];
    const wf_view *residual = &w->call->in[WF_WEIGHTED_SUM_RESIDUAL], *y = &w->call->out[WF_WEIGHTED_SUM_Y];
    uint32_t begin, end;
    wf_cpu_part(w, y->rows, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++) {
        const float *by = weights->buf ? wf_cpu_row(weights, m) : NULL;
        for (uint32_t n = 0; n < y->cols; n++) {
            double sum = wf_cpu_more(residual, m, n);
            for (uint32_t t = 0; t < x->cols / y->cols; t++)
                sum += (by ? (double)by[t] : 1) * wf_cpu_get(x, wf_cpu_row(x, m), (uint64_t)t * y->cols + n);
            wf_cpu_set(y, wf_cpu_row(y, m), n, (float)sum);
        }
    }
}
