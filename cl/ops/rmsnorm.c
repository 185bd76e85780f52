/* rmsnorm: by work-item (tile[0] = 1) or by work-group. */
#include "cl/cl.h"

bool wf_cl_plan_rmsnorm(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                        cl_launch *l)
{
    const wf_view *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    bool one_item = v->tile[0] == 1;
    wf_cl_act(l, x);
    wf_cl_group_knobs(l, caps, wf_cl_group(caps, one_item ? 64 : 256, limit));
    if (one_item) wf_cl_items(l, y->rows);
    else l->groups = y->rows;
    wf_cl_arg_view(l, x);
    wf_cl_arg_view(l, w);
    wf_cl_arg_out(l, y);
    wf_cl_arg_u32(l, y->rows);
    wf_cl_arg_u32(l, y->cols);
    wf_cl_arg_u32(l, x->stride);
    wf_cl_arg_u32(l, y->stride);
    wf_cl_arg_f32(l, c->p.eps);
    return true;
}
