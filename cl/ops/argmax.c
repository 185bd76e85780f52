/* argmax: a work-group a row, on GPUs a large one: for few rows (H200, one sequence of the 8B shape: 0.5 to 0.9 %
 * faster than with 256 and one load at a time). */
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
