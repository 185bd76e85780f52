/* ACTIVATE, the reference. */
#include <math.h>

#include "cpu/ref/ref.h"

double wf_cpu_ref_activation(const wf_op_params *p, double x)
{
    switch ((enum wf_activation)p->activation) {
    case WF_SOFTCAP: return p->softcap * tanh(x / p->softcap);
    case WF_RELU: return x < 0 ? 0 : x; /* NaN stays */
    case WF_GELU: return x * 0.5 * erfc(-x * M_SQRT1_2);
    case WF_GELU_TANH: return x / (1 + exp(-2 * sqrt(M_2_PI) * (x + 0.044715 * x * x * x)));
    default: return x / (1 + exp(-x));
    }
}

void wf_cpu_ref_activate(const wf_cpu_work *w)
{
    const wf_view *x = &w->call->in[WF_ACTIVATE_X], *y = &w->call->out[WF_ACTIVATE_Y];
    uint32_t begin, end;
    wf_cpu_part(w, y->rows, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++) {
        const void *in = wf_cpu_row(x, m);
        void *out = wf_cpu_row(y, m);
        for (uint32_t k = 0; k < y->cols; k++)
            wf_cpu_set(y, out, k, (float)wf_cpu_ref_activation(&w->call->p, wf_cpu_get(x, in, k)));
    }
}
