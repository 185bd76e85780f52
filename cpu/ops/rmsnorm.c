/* RMSNORM with vectors: F32 rows of any length. */
#include <math.h>

#include "cpu/ops/ops.h"
#include "cpu/ops/simd.h"

static float sum_of_squares(const float *x, uint32_t n)
{
    vf sum[4] = {v_zero(), v_zero(), v_zero(), v_zero()};
    uint32_t k = 0;
    for (; k + 4 * VL <= n; k += 4 * VL)
        for (int i = 0; i < 4; i++) {
            vf v = v_load(x + k + i * VL);
            sum[i] = v_fma(v, v, sum[i]);
        }
    for (; k < n; k += VL) {
        vf v = k + VL <= n ? v_load(x + k) : v_load_n(x + k, n - k);
        sum[0] = v_fma(v, v, sum[0]);
    }
    return v_reduce_add(v_add(v_add(sum[0], sum[1]), v_add(sum[2], sum[3])));
}

/* Columns from..from + n of row m. */
static void norm_group(const wf_call *c, uint32_t m, uint32_t from, uint32_t n)
{
    const wf_view *y = &c->out[WF_RMSNORM_Y];
    const float *in = (const float *)wf_cpu_row(&c->in[WF_RMSNORM_X], m) + from,
                *weight = wf_cpu_at(&c->in[WF_RMSNORM_W]);
    const wf_view *residual = &c->in[WF_RMSNORM_RESIDUAL];
    const float *add = wf_cpu_has(residual) ? (const float *)wf_cpu_row(residual, m) + from : NULL;
    float *out = (float *)wf_cpu_row(y, m) + from;
    float r = (float)(1 / sqrt((double)sum_of_squares(in, n) / n + c->p.eps));
    uint32_t k = 0;
    for (; k + VL <= n; k += VL) {
        vf v = v_mul(v_mul(v_load(in + k), v_set(r)), v_load(weight + k));
        if (add) v = v_add(v, v_load(add + k));
        v_store(out + k, v);
    }
    for (; k < n; k++) out[k] = in[k] * r * weight[k] + (add ? add[k] : 0);
}

void WF_SIMD(wf_cpu_rmsnorm)(const wf_cpu_work *w)
{
    const wf_view *y = &w->call->out[WF_RMSNORM_Y], *weight = &w->call->in[WF_RMSNORM_W];
    uint32_t begin, end, n = weight->rows * weight->cols;
    wf_cpu_part(w, y->rows, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++)
        for (uint32_t from = 0; from < y->cols; from += n) norm_group(w->call, m, from, n);
}
