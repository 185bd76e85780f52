/* ACTIVATE with a vector exponential, F32 only; the soft cap is the reference's. */
#include "cpu/ops/activation.h"

#define SPAN 1024 /* columns of a work item */

WF_INLINE void activate_span(enum wf_activation f, const float *x, float *y, uint32_t n)
{
    uint32_t k = 0;
    for (; k + VL <= n; k += VL) v_store(y + k, activate(f, v_load(x + k)));
    if (k == n) return;
    float last[VL];
    v_store(last, activate(f, v_load_n(x + k, n - k)));
    for (uint32_t i = 0; k + i < n; i++) y[k + i] = last[i];
}

void WF_SIMD(wf_cpu_activate)(const wf_cpu_work *w)
{
    const wf_view *x = &w->call->in[WF_ACTIVATE_X], *y = &w->call->out[WF_ACTIVATE_Y];
    uint32_t begin, end, spans = (y->cols + SPAN - 1) / SPAN;
    wf_cpu_part(w, y->rows * spans, 1, &begin, &end);
    for (uint32_t i = begin; i < end; i++) {
        uint32_t m = i / spans, at = i % spans * SPAN, n = WF_MIN((uint32_t)SPAN, y->cols - at);
        activate_span((enum wf_activation)w->call->p.activation, (const float *)wf_cpu_row(x, m) + at,
                      (float *)wf_cpu_row(y, m) + at, n);
    }
}
