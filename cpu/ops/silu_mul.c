/* SILU_MUL with a vector exponential, F32 only. Columns are distributed over threads too, because rows are wide. */
#include "cpu/ops/ops.h"
#include "cpu/simd/simd.h"

#define SPAN 1024 /* columns of a work item */

/* gate / (1 + 2^(-z log2 e)) * up, where SiLU's z is the gate, and that of GELU by tanh twice what tanh takes. The exponent is clamped,
 * so that the power stays finite. */
WF_INLINE vf gated(vf gate, vf up, const bool gelu)
{
    const float slope = 1.59576912f; /* 2 sqrt(2 / pi) */
    vf z = gelu ? v_mul(gate, v_fma(v_mul(gate, gate), v_set(slope * 0.044715f), v_set(slope))) : gate;
    vf e = v_mul(z, v_set(-1.44269504f));
    e = v_exp2(v_sub(v_zero(), v_max(v_set(-126), v_sub(v_zero(), e))));
    return v_mul(v_div(gate, v_add(v_set(1), e)), up);
}

WF_INLINE void span(const float *gate, const float *up, float *y, uint32_t n, const bool gelu)
{
    uint32_t k = 0;
    for (; k + VL <= n; k += VL) v_store(y + k, gated(v_load(gate + k), v_load(up + k), gelu));
    if (k == n) return;
    float last[VL];
    v_store(last, gated(v_load_n(gate + k, n - k), v_load_n(up + k, n - k), gelu));
    for (uint32_t i = 0; k + i < n; i++) y[k + i] = last[i];
}

void WF_SIMD(wf_cpu_silu_mul)(const wf_cpu_work *w)
{
    const wf_view *gu = &w->call->in[WF_SILU_MUL_GU], *y = &w->call->out[WF_SILU_MUL_Y];
    uint32_t begin, end, spans = (y->cols + SPAN - 1) / SPAN;
    wf_cpu_part(w, y->rows * spans, 1, &begin, &end);
    for (uint32_t i = begin; i < end; i++) {
        uint32_t m = i / spans, at = i % spans * SPAN, n = WF_MIN((uint32_t)SPAN, y->cols - at);
        const float *in = wf_cpu_row(gu, m);
        float *out = (float *)wf_cpu_row(y, m) + at;
        if (w->call->p.activation == WF_GELU_TANH) span(in + at, in + y->cols + at, out, n, true);
        else span(in + at, in + y->cols + at, out, n, false);
    }
}
