/* argmax: a work-group a row, on GPUs a large one: with few rows the latency of memory is the limit (H200, one row of 128,256 in groups of 256: 39 us). */
#include "cl/cl.h"

bool wf_cl_configure_argmax(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    const wf_view *x = &c->in[WF_ARGMAX_X];
    (void)v;
    wf_cl_group_knobs(l, caps, wf_cl_group(caps, caps->gpu ? 1024 : 256, limit));
    l->groups = x->rows;
    wf_cl_arg_view(l, x);
    wf_cl_arg_view(l, &c->out[WF_ARGMAX_Y]);
    wf_cl_arg_u32(l, x->rows);
    wf_cl_arg_u32(l, x->cols);
    wf_cl_arg_u32(l, x->stride);
    return true;
}
