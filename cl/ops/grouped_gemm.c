/* grouped_gemm: products with the experts that each token chose. */
#include "cl/cl.h"

/* The arguments that every grouped kernel takes, in this order. */
static bool common(const cl_variant *v, const wf_call *c, cl_launch *l)
{
    const wf_view *x = &c->in[WF_GROUPED_GEMM_X], *w = &c->in[WF_GROUPED_GEMM_W], *ids = &c->in[WF_GROUPED_GEMM_IDS], *y = &c->out[WF_GROUPED_GEMM_Y];
    uint32_t each = y->cols / ids->cols;
    if (w->layout != v->layout) return false;
    l->wtype = wf_dtypes[w->dtype].name;
    wf_cl_act(l, x);
    for (int i = 0; i < 4; i++) wf_cl_arg_view(l, &c->in[i]);
    wf_cl_arg_out(l, y);
    const uint32_t numbers[] = {y->rows, ids->cols, each, w->cols, w->rows / each, x->stride, x->cols > w->cols ? w->cols : 0, ids->stride};
    for (size_t i = 0; i < WF_LEN(numbers); i++) wf_cl_arg_u32(l, numbers[i]);
    wf_cl_arg_u64(l, wf_cl_row_bytes(w));
    wf_cl_arg_u32(l, y->stride);
    return wf_cl_has_format(l->wtype);
}

bool wf_cl_configure_grouped_gemm(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    wf_cl_group_knobs(l, caps, wf_cl_group(caps, 64, limit));
    wf_cl_items(l, (uint64_t)c->out[WF_GROUPED_GEMM_Y].rows * c->out[WF_GROUPED_GEMM_Y].cols);
    return common(v, c, l);
}
