/* GEMM, the reference: decodes a few weight rows at a time to F32 and multiplies them with every activation row,
 * summing in double. */
#include "cpu/ref/ref.h"

enum { FEW = 16 }; /* rows of the weight, for which a row of X is decoded once */

wf_cpu_scratch_size wf_cpu_ref_gemm_scratch(const wf_call *c)
{
    return (wf_cpu_scratch_size){.per_thread = sizeof(float) * c->in[WF_GEMM_X].cols * (FEW + 1)};
}

/* Both rows are the thread's own copies: sanitizers have seen how they were written, as far as they are read here, and
 * would check two reads a product. */
__attribute__((no_sanitize("thread", "address", "undefined"))) double wf_cpu_ref_dot(const float *a, const float *b,
                                                                                     uint32_t n)
{
    double sums[4] = {0}; /* that wait for each other a quarter as often */
    uint32_t k = 0;
    for (; k + 4 <= n; k += 4)
        for (int i = 0; i < 4; i++) sums[i] += (double)a[k + i] * b[k + i];
    for (; k < n; k++) sums[0] += (double)a[k] * b[k];
    return sums[0] + sums[1] + sums[2] + sums[3];
}

void wf_cpu_ref_gemm(const wf_cpu_work *w)
{
    const wf_view *x = &w->call->in[WF_GEMM_X], *weight = &w->call->in[WF_GEMM_W], *y = &w->call->out[WF_GEMM_Y];
    const wf_view *bias = &w->call->in[WF_GEMM_BIAS], *residual = &w->call->in[WF_GEMM_RESIDUAL];
    uint32_t begin, end, k_size = x->cols;
    float *x_row = w->per_thread, *w_rows = x_row + k_size;
    wf_cpu_part(w, y->cols, 1, &begin, &end);
    for (uint32_t n = begin, few; n < end; n += few) {
        few = WF_MIN(FEW, end - n);
        for (uint32_t i = 0; i < few; i++)
            if (weight->layout) wf_cpu_q8_0x16_row(weight, n + i, w_rows + (size_t)i * k_size);
            else wf_dtypes[weight->dtype].decode(wf_cpu_row(weight, n + i), w_rows + (size_t)i * k_size, k_size);
        for (uint32_t m = 0; m < y->rows; m++) {
            wf_dtypes[x->dtype].decode(wf_cpu_row(x, m), x_row, k_size);
            for (uint32_t i = 0; i < few; i++) {
                double sum = wf_cpu_ref_dot(x_row, w_rows + (size_t)i * k_size, k_size);
                if (wf_cpu_has(bias)) sum += ((const float *)wf_cpu_at(bias))[n + i];
                wf_cpu_set(y, wf_cpu_row(y, m), n + i, (float)(sum + wf_cpu_more(residual, m, n + i)));
            }
        }
    }
}
