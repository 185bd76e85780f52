/* ARGMAX with vectors: finds the maximum, then the first column that equals it. */
#include <math.h>

#include "cpu/ops/ops.h"
#include "cpu/ops/simd.h"

/* x * 0 is 0 for every finite x: a NaN or infinity turns the second sum into NaN. */
static float largest_of(const float *x, uint32_t n, bool *finite)
{
    vf top[2] = {v_set(-INFINITY), v_set(-INFINITY)}, zero[2] = {v_zero(), v_zero()};
    uint32_t k = 0;
    for (; k + 2 * VL <= n; k += 2 * VL)
        for (int i = 0; i < 2; i++) {
            vf v = v_load(x + k + i * VL);
            top[i] = v_max(top[i], v);
            zero[i] = v_fma(v, v_zero(), zero[i]);
        }
    float best = v_reduce_max(v_max(top[0], top[1])), rest = v_reduce_add(v_add(zero[0], zero[1]));
    for (; k < n; k++) {
        best = x[k] > best ? x[k] : best;
        rest += x[k] * 0;
    }
    *finite = rest == 0;
    return best;
}

void WF_SIMD(wf_cpu_argmax)(const wf_cpu_work *w)
{
    const wf_view *x = &w->call->in[WF_ARGMAX_X];
    int32_t *y = wf_cpu_at(&w->call->out[WF_ARGMAX_Y]);
    uint32_t begin, end;
    wf_cpu_part(w, x->rows, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++) {
        const float *row = wf_cpu_row(x, m);
        bool finite;
        float best = largest_of(row, x->cols, &finite);
        uint32_t k = 0;
        while (k < x->cols && (finite ? row[k] != best : isfinite(row[k]))) k++;
        y[m] = k == x->cols ? 0 : finite ? (int32_t)k : -1 - (int32_t)k;
    }
}
