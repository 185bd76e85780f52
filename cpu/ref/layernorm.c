/* LAYERNORM, the reference. */
#include <math.h>

#include "cpu/ref/ref.h"

static void norm_row(const wf_call *c, uint32_t m)
{
    const wf_view *in = &c->in[WF_LAYERNORM_X], *y = &c->out[WF_LAYERNORM_Y];
    const void *x = wf_cpu_row(in, m);
    const float *w = wf_cpu_at(&c->in[WF_LAYERNORM_W]), *b = wf_cpu_at(&c->in[WF_LAYERNORM_B]);
    double sum = 0, squares = 0;
    for (uint32_t k = 0; k < y->cols; k++) sum += wf_cpu_get(in, x, k);
    double mean = sum / y->cols;
    for (uint32_t k = 0; k < y->cols; k++) squares += pow(wf_cpu_get(in, x, k) - mean, 2);
    double r = 1 / sqrt(squares / y->cols + c->p.eps);
    for (uint32_t k = 0; k < y->cols; k++)
        wf_cpu_set(y, wf_cpu_row(y, m), k, (float)((wf_cpu_get(in, x, k) - mean) * r * w[k] + b[k]));
}

void wf_cpu_ref_layernorm(const wf_cpu_work *w)
{
    uint32_t begin, end;
    wf_cpu_part(w, w->call->out[WF_LAYERNORM_Y].rows, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++) norm_row(w->call, m);
}
