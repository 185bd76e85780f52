/* LAYERNORM with vectors: F32 rows of any length, read three times, which the cache serves. */
#include <math.h>

#include "cpu/ops/ops.h"
#include "cpu/ops/simd.h"

/* Of x - shift, or of its square. */
static float sum_of(const float *x, uint32_t n, float shift, bool square)
{
    vf sum[2] = {v_zero(), v_zero()}, s = v_set(shift);
    uint32_t k = 0;
    for (; k + 2 * VL <= n; k += 2 * VL)
        for (int i = 0; i < 2; i++) {
            vf v = v_sub(v_load(x + k + i * VL), s);
            sum[i] = square ? v_fma(v, v, sum[i]) : v_add(sum[i], v);
        }
    float rest = 0;
    for (; k < n; k++) rest += square ? (x[k] - shift) * (x[k] - shift) : x[k] - shift;
    return v_reduce_add(v_add(sum[0], sum[1])) + rest;
}

static void norm_row(const wf_call *c, uint32_t m)
{
    const wf_view *y = &c->out[WF_LAYERNORM_Y];
    const float *x = wf_cpu_row(&c->in[WF_LAYERNORM_X], m);
    const float *w = wf_cpu_at(&c->in[WF_LAYERNORM_W]), *b = wf_cpu_at(&c->in[WF_LAYERNORM_B]);
    float *out = wf_cpu_row(y, m);
    uint32_t n = y->cols, k = 0;
    float mean = sum_of(x, n, 0, false) / (float)n;
    float r = (float)(1 / sqrt((double)sum_of(x, n, mean, true) / n + c->p.eps));
    for (; k + VL <= n; k += VL) {
        v_store(out + k, v_fma(v_mul(v_sub(v_load(x + k), v_set(mean)), v_set(r)), v_load(w + k), v_load(b + k)));
    }
    for (; k < n; k++) out[k] = (x[k] - mean) * r * w[k] + b[k];
}

void WF_SIMD(wf_cpu_layernorm)(const wf_cpu_work *w)
{
    uint32_t begin, end;
    wf_cpu_part(w, w->call->out[WF_LAYERNORM_Y].rows, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++) norm_row(w->call, m);
}
