/* SILU_MUL, the reference. */
#include <math.h>

#include "cpu/ref/ref.h"

/* NaN stays. */
static double clamped_swiglu(double gate, double up)
{
    const double most = WF_SWIGLU_LIMIT;
    gate = gate > most ? most : gate;
    up = up > most ? most : up < -most ? -most : up;
    return gate / (1 + exp(-(double)WF_SWIGLU_ALPHA * gate)) * (up + 1);
}

void wf_cpu_ref_silu_mul(const wf_cpu_work *w)
{
    const wf_view *gu = &w->call->in[WF_SILU_MUL_GU], *y = &w->call->out[WF_SILU_MUL_Y];
    const wf_op_params *p = &w->call->p;
    uint32_t begin, end, each = y->cols / WF_MAX(w->call->p.groups, 1u);
    wf_cpu_part(w, y->rows, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++) {
        const void *in = wf_cpu_row(gu, m);
        void *out = wf_cpu_row(y, m);
        for (uint32_t f = 0; f < y->cols; f++) {
            uint64_t at = (uint64_t)(f / each) * 2 * each + f % each;
            double gate = wf_cpu_get(gu, in, at), up = wf_cpu_get(gu, in, at + each);
            double v = p->activation == WF_CLAMPED_SWIGLU ? clamped_swiglu(gate, up)
                                                          : wf_cpu_ref_activation(p, gate) * up;
            wf_cpu_set(y, out, f, (float)v);
        }
    }
}
