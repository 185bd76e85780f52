/* SILU_MUL with a vector exponential, F32 only. Columns are distributed over threads too, because rows are wide. */
#include "cpu/ops/ops.h"
#include "cpu/simd/simd.h"

#define SPAN 1024 /* columns of a work item */

/* gate / (1 + 2^(-gate log2 e)) * up. The exponent is clamped, so that the power stays finite.
 */
WF_INLINE vf silu(vf gate, vf up)
{
    vf e = v_mul(gate, v_set(-1.44269504f));
    e = v_exp2(v_sub(v_zero(), v_max(v_set(-126), v_sub(v_zero(), e))));
    return v_mul(v_div(gate, v_add(v_set(1), e)), up);
}

static void span(const float *gate, const float *up, float *y, uint32_t n)
{
    uint32_t k = 0;
    for (; k + VL <= n; k += VL) v_store(y + k, silu(v_load(gate + k), v_load(up + k)));
    if (k == n) return;
    float last[VL];
    v_store(last, silu(v_load_n(gate + k, n - k), v_load_n(up + k, n - k)));
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
        span(in + at, in + y->cols + at, (float *)wf_cpu_row(y, m) + at, n);
    }
}
