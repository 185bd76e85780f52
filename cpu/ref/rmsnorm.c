/* RMSNORM, the reference. */
#include <math.h>

#include "cpu/ref/ref.h"

void wf_cpu_ref_rmsnorm(const wf_cpu_work *w)
{
    const wf_view *x = &w->call->in[0], *y = &w->call->out[0];
    const float *weight = wf_cpu_at(&w->call->in[1]);
    uint32_t begin, end;
    wf_cpu_part(w, y->rows, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++) {
        const float *in = wf_cpu_row(x, m);
        void *out = wf_cpu_row(y, m);
        double sum = 0;
        for (uint32_t k = 0; k < y->cols; k++) sum += (double)in[k] * in[k];
        double r = 1 / sqrt(sum / y->cols + w->call->p.eps);
        for (uint32_t k = 0; k < y->cols; k++)
            wf_cpu_put(y, out, k, (float)(in[k] * r * weight[k]));
    }
}
