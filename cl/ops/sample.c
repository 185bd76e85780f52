/* sample: a work-group a row. */
#include "cl/cl.h"

bool wf_cl_configure_sample(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    const wf_view *x = &c->in[WF_SAMPLE_X];
    (void)v;
    wf_cl_group_knobs(l, caps, wf_cl_group(caps, 256, limit));
    l->groups = x->rows;
    for (int i = 0; i < 7; i++) wf_cl_arg_view(l, &c->in[i]);
    for (int i = 0; i < 2; i++) wf_cl_arg_view(l, &c->out[i]);
    wf_cl_arg_u32(l, x->rows);
    wf_cl_arg_u32(l, x->cols);
    wf_cl_arg_u32(l, x->stride);
    wf_cl_arg_u32(l, c->out[WF_SAMPLE_Z].stride);
    return true;
}
