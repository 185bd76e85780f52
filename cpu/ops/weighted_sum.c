/* WEIGHTED_SUM, F32 only. Columns are distributed over threads too, because rows are wide. */
#include "cpu/ops/ops.h"
#include "cpu/ops/simd.h"

#define SPAN 1024 /* columns of a work item */

/* The parts of x lie `step` apart. */
WF_INLINE vf sum_parts(vf sum, const float *x, uint32_t step, const float *by, uint32_t parts)
{
    for (uint32_t t = 0; t < parts; t++, x += step)
        sum = by ? v_fma(v_set(by[t]), v_load(x), sum) : v_add(sum, v_load(x));
    return sum;
}

WF_INLINE float sum_one(float sum, const float *x, uint32_t step, const float *by, uint32_t parts)
{
    for (uint32_t t = 0; t < parts; t++, x += step) sum += by ? by[t] * *x : *x;
    return sum;
}

void WF_SIMD(wf_cpu_weighted_sum)(const wf_cpu_work *w)
{
    const wf_view *x = &w->call->in[WF_WEIGHTED_SUM_X], *weights = &w->call->in[WF_WEIGHTED_SUM_WEIGHTS];
    const wf_view *residual = &w->call->in[WF_WEIGHTED_SUM_RESIDUAL], *y = &w->call->out[WF_WEIGHTED_SUM_Y];
    uint32_t begin, end, spans = (y->cols + SPAN - 1) / SPAN, parts = x->cols / y->cols;
    wf_cpu_part(w, y->rows * spans, 1, &begin, &end);
    for (uint32_t i = begin; i < end; i++) {
        uint32_t m = i / spans, at = i % spans * SPAN, n = WF_MIN((uint32_t)SPAN, y->cols - at), k = 0;
        const float *in = (const float *)wf_cpu_row(x, m) + at, *by = weights->buf ? wf_cpu_row(weights, m) : NULL;
        const float *more = residual->buf ? (const float *)wf_cpu_row(residual, m) + at : NULL;
        float *out = (float *)wf_cpu_row(y, m) + at;
        for (; k + VL <= n; k += VL)
            v_store(out + k, sum_parts(more ? v_load(more + k) : v_zero(), in + k, y->cols, by, parts));
        for (; k < n; k++) out[k] = sum_one(more ? more[k] : 0, in + k, y->cols, by, parts);
    }
}
