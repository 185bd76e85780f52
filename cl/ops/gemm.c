/* gemm: Y = X W^T + bias + residual. */
#include "cl/cl.h"

#include <string.h>

/* The arguments that every gemm kernel takes, in this order. */
static bool common(const wf_call *c, cl_launch *l)
{
    const wf_view *x = &c->in[0], *w = &c->in[1], *res = &c->in[3], *y = &c->out[0];
    if (w->layout != 0) return false;
    l->wtype = wf_dtypes[w->dtype].name;
    wf_cl_act(l, x, y);
    for (int i = 0; i < 4; i++) wf_cl_arg_view(l, &c->in[i]);
    wf_cl_arg_view(l, y);
    wf_cl_arg_u32(l, y->rows);
    wf_cl_arg_u32(l, y->cols);
    wf_cl_arg_u32(l, x->cols);
    wf_cl_arg_u32(l, x->stride);
    wf_cl_arg_u64(l, wf_cl_row_bytes(w));
    wf_cl_arg_u32(l, res->stride);
    wf_cl_arg_u32(l, y->stride);
    return wf_cl_has_format(l->wtype);
}

bool wf_cl_plan_gemm(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                     cl_launch *l)
{
    (void)v;
    wf_cl_group_knobs(l, caps, wf_cl_group(caps, 64, limit));
    wf_cl_items(l, (uint64_t)c->out[0].rows * c->out[0].cols);
    return common(c, l);
}
