/* GEMM, the reference: decodes one weight row at a time to F32 and multiplies it with every activation row, summing in double. */
#include "cpu/ref/ref.h"

wf_cpu_scratch_size wf_cpu_ref_gemm_scratch(const wf_call *c)
{
    return (wf_cpu_scratch_size){.per_thread = sizeof(float) * c->in[WF_GEMM_X].cols * 2};
}

static double dot(const float *a, const float *b, uint32_t n)
{
    double sum = 0;
    for (uint32_t k = 0; k < n; k++) sum += (double)a[k] * b[k];
    return sum;
}

void wf_cpu_ref_gemm(const wf_cpu_work *w)
{
    const wf_view *x = &w->call->in[WF_GEMM_X], *weight = &w->call->in[WF_GEMM_W], *bias = &w->call->in[WF_GEMM_BIAS];
    const wf_view *residual = &w->call->in[WF_GEMM_RESIDUAL], *y = &w->call->out[WF_GEMM_Y];
    uint32_t begin, end, k_size = x->cols;
    float *w_row = w->per_thread, *x_row = w_row + k_size;
    wf_cpu_part(w, y->cols, 1, &begin, &end);
    for (uint32_t n = begin; n < end; n++) {
        if (weight->layout)
            wf_cpu_q8_0x16_row(weight, n, w_row);
        else
            wf_dtypes[weight->dtype].decode(wf_cpu_row(weight, n), w_row, k_size);
        for (uint32_t m = 0; m < y->rows; m++) {
            wf_dtypes[x->dtype].decode(wf_cpu_row(x, m), x_row, k_size);
            double sum = dot(x_row, w_row, k_size);
            if (wf_cpu_has(bias)) sum += ((const float *)wf_cpu_at(bias))[n];
            if (wf_cpu_has(residual)) sum += ((const float *)wf_cpu_row(residual, m))[n];
            wf_cpu_set(y, wf_cpu_row(y, m), n, (float)sum);
        }
    }
}
