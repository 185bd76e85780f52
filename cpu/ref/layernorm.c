/* LAYERNORM, the reference. */
#include <math.h>

#include "cpu/ref/ref.h"

static void row(const wf_call *c, uint32_t m)
{
    const wf_view *y = &c->out[WF_LAYERNORM_Y];
    const float *x = wf_cpu_row(&c->in[WF_LAYERNORM_X], m);
    const float *w = wf_cpu_at(&c->in[WF_LAYERNORM_W]), *b = wf_cpu_at(&c->in[WF_LAYERNORM_B]);
    double sum = 0, squares = 0;
    for (uint32_t k = 0; k < y->cols; k++) sum += x[k];
    double mean = sum / y->cols;
    for (uint32_t k = 0; k < y->cols; k++) squares += (x[k] - mean) * (x[k] - mean);
    double r = 1 / sqrt(squares / y->cols + c->p.eps);
    for (uint32_t k = 0; k < y->cols; k++) wf_cpu_set(y, wf_cpu_row(y, m), k, (float)((x[k] - mean) * r * w[k] + b[k]));
}

void wf_cpu_ref_layernorm(const wf_cpu_work *w)
{
    uint32_t begin, end;
    wf_cpu_part(w, w->call->out[WF_LAYERNORM_Y].rows, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++) row(w->call, m);
}
