/* ARGMAX, the reference. */
#include <math.h>

#include "cpu/ref/ref.h"

static int32_t first_largest(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t k = 0; k < n; k++) {
        if (!isfinite(x[k])) return -1 - (int32_t)k;
        if (x[k] > x[best]) best = k;
    }
    return (int32_t)best;
}

void wf_cpu_ref_argmax(const wf_cpu_work *w)
{
    const wf_view *x = &w->call->in[WF_ARGMAX_X];
    int32_t *y = wf_cpu_at(&w->call->out[WF_ARGMAX_Y]);
    uint32_t begin, end;
    wf_cpu_part(w, x->rows, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++) y[m] = first_largest(wf_cpu_row(x, m), x->cols);
}
