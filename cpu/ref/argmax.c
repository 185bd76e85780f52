/* ARGMAX, the reference. */
#include <math.h>

#include "cpu/ref/ref.h"

void wf_cpu_ref_argmax(const wf_cpu_work *w)
{
    const wf_view *x = &w->call->in[WF_ARGMAX_X];
    int32_t *y = wf_cpu_at(&w->call->out[WF_ARGMAX_Y]);
    uint32_t begin, end;
    wf_cpu_part(w, x->rows, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++) {
        const float *row = wf_cpu_row(x, m);
        y[m] = 0;
        for (uint32_t k = 0; k < x->cols && y[m] >= 0; k++)
            if (!isfinite(row[k])) y[m] = -1 - (int32_t)k;
            else if (row[k] > row[y[m]]) y[m] = (int32_t)k;
    }
}
