/* GROUPED_GEMM, the reference: decodes one row of an expert at a time to F32 and multiplies it with the rows of X that
 * chose the expert, summing in double. */
#include <math.h>

#include "cpu/ref/ref.h"

wf_cpu_scratch_size wf_cpu_ref_grouped_gemm_scratch(const wf_call *c)
{
    return (wf_cpu_scratch_size){.per_thread = sizeof(float) * c->in[WF_GROUPED_GEMM_W].cols +
                                               sizeof(float) * c->in[WF_GROUPED_GEMM_X].cols};
}

/* Output n of row m's t-th expert. */
static void write_output(const wf_cpu_work *w, uint32_t m, uint32_t t, uint32_t n)
{
    const wf_view *x = &w->call->in[WF_GROUPED_GEMM_X], *weight = &w->call->in[WF_GROUPED_GEMM_W],
                  *bias = &w->call->in[WF_GROUPED_GEMM_BIAS];
    const wf_view *ids = &w->call->in[WF_GROUPED_GEMM_IDS], *y = &w->call->out[WF_GROUPED_GEMM_Y];
    uint32_t k_size = weight->cols, each = y->cols / ids->cols;
    float *w_row = w->per_thread, *x_row = w_row + k_size;
    int32_t e = ((const int32_t *)wf_cpu_row(ids, m))[t];
    double sum = NAN;
    if (e >= 0 && (uint32_t)e < weight->rows / each) {
        uint64_t row = (uint64_t)e * each + n;
        wf_dtypes[weight->dtype].decode(wf_cpu_row(weight, row), w_row, k_size);
        wf_dtypes[x->dtype].decode(wf_cpu_row(x, m), x_row, x->cols);
        sum = wf_cpu_ref_dot(x_row + (x->cols > k_size ? (size_t)t * k_size : 0), w_row, k_size);
        if (wf_cpu_has(bias)) sum += ((const float *)wf_cpu_at(bias))[row];
    }
    wf_cpu_set(y, wf_cpu_row(y, m), (uint64_t)t * each + n, (float)sum);
}

void wf_cpu_ref_grouped_gemm(const wf_cpu_work *w)
{
    const wf_view *ids = &w->call->in[WF_GROUPED_GEMM_IDS], *y = &w->call->out[WF_GROUPED_GEMM_Y];
    uint32_t begin, end, each = y->cols / ids->cols;
    wf_cpu_part(w, each, 1, &begin, &end);
    for (uint32_t n = begin; n < end; n++)
        for (uint32_t m = 0; m < y->rows; m++)
            for (uint32_t t = 0; t < ids->cols; t++) write_output(w, m, t, n);
}
