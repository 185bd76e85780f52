/* SILU_MUL with a vector exponential, F32 only. Columns are distributed over threads too, because rows are wide. */
#include "cpu/ops/activation.h"

#define SPAN 1024 /* columns of a work item */

WF_INLINE void gate_span(const enum wf_activation f, const float *gate, const float *up, float *y, uint32_t n)
{
    uint32_t k = 0;
    for (; k + VL <= n; k += VL) v_store(y + k, gated_by(f, v_load(gate + k), v_load(up + k)));
    if (k == n) return;
    float last[VL];
    v_store(last, gated_by(f, v_load_n(gate + k, n - k), v_load_n(up + k, n - k)));
    for (uint32_t i = 0; k + i < n; i++) y[k + i] = last[i];
}

void WF_SIMD(wf_cpu_silu_mul)(const wf_cpu_work *w)
{
    const wf_view *gu = &w->call->in[WF_SILU_MUL_GU], *y = &w->call->out[WF_SILU_MUL_Y];
    uint32_t begin, end, groups = WF_MAX(w->call->p.groups, 1u), each = y->cols / groups,
                         spans = (each + SPAN - 1) / SPAN;
    wf_cpu_part(w, y->rows * groups * spans, 1, &begin, &end);
    for (uint32_t i = begin; i < end; i++) {
        uint32_t m = i / spans / groups, group = i / spans % groups, at = i % spans * SPAN,
                 n = WF_MIN((uint32_t)SPAN, each - at);
        const float *in = (const float *)wf_cpu_row(gu, m) + (size_t)group * 2 * each;
        float *out = (float *)wf_cpu_row(y, m) + (size_t)group * each + at;
        switch (w->call->p.activation) {
        case WF_GELU_TANH: gate_span(WF_GELU_TANH, in + at, in + each + at, out, n); break;
        case WF_CLAMPED_SWIGLU: gate_span(WF_CLAMPED_SWIGLU, in + at, in + each + at, out, n); break;
        default: gate_span(WF_SILU, in + at, in + each + at, out, n);
        }
    }
}
