/* RMSNORM, the reference. */
#include <math.h>

#include "cpu/ref/ref.h"

/* Columns from..from + n of row m. */
static void group(const wf_call *c, uint32_t m, uint32_t from, uint32_t n)
{
    const wf_view *y = &c->out[WF_RMSNORM_Y];
    const float *in = (const float *)wf_cpu_row(&c->in[WF_RMSNORM_X], m) + from, *weight = wf_cpu_at(&c->in[WF_RMSNORM_W]);
    const wf_view *residual = &c->in[WF_RMSNORM_RESIDUAL];
    const float *add = wf_cpu_has(residual) ? (const float *)wf_cpu_row(residual, m) + from : NULL;
    double sum = 0;
    for (uint32_t k = 0; k < n; k++) sum += (double)in[k] * in[k];
    double r = 1 / sqrt(sum / n + c->p.eps);
    for (uint32_t k = 0; k < n; k++) wf_cpu_set(y, wf_cpu_row(y, m), from + k, (float)(in[k] * r * weight[k] + (add ? add[k] : 0)));
}

void wf_cpu_ref_rmsnorm(const wf_cpu_work *w)
{
    const wf_view *y = &w->call->out[WF_RMSNORM_Y], *weight = &w->call->in[WF_RMSNORM_W];
    uint32_t begin, end, n = weight->rows * weight->cols;
    wf_cpu_part(w, y->rows, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++)
        for (uint32_t from = 0; from < y->cols; from += n) group(w->call, m, from, n);
}
