/* RMSNORM, the reference. */
#include <math.h>

#include "cpu/ref/ref.h"

/* Columns from..from + n of row m. */
static void norm_group(const wf_call *c, uint32_t m, uint32_t from, uint32_t n)
{
    const wf_view *y = &c->out[WF_RMSNORM_Y];
    const wf_view *x = &c->in[WF_RMSNORM_X], *residual = &c->in[WF_RMSNORM_RESIDUAL];
    const float *weight = wf_cpu_at(&c->in[WF_RMSNORM_W]);
    double sum = 0;
    for (uint32_t k = from; k < from + n; k++)
        sum += (double)wf_cpu_get(x, wf_cpu_row(x, m), k) * wf_cpu_get(x, wf_cpu_row(x, m), k);
    double r = 1 / sqrt(sum / n + c->p.eps);
    for (uint32_t k = from; k < from + n; k++) {
        double normed = wf_cpu_get(x, wf_cpu_row(x, m), k) * r * weight[k - from];
        wf_cpu_set(y, wf_cpu_row(y, m), k, (float)(normed + wf_cpu_more(residual, m, k)));
    }
}

void wf_cpu_ref_rmsnorm(const wf_cpu_work *w)
{
    const wf_view *y = &w->call->out[WF_RMSNORM_Y], *weight = &w->call->in[WF_RMSNORM_W];
    uint32_t begin, end, n = weight->rows * weight->cols;
    wf_cpu_part(w, y->rows, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++)
        for (uint32_t from = 0; from < y->cols; from += n) norm_group(w->call, m, from, n);
}
