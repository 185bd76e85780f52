/* router: the experts of each token. */
#include "cl/cl.h"

bool wf_cl_configure_router(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    const wf_view *x = &c->in[WF_ROUTER_X], *ids = &c->out[WF_ROUTER_IDS], *weights = &c->out[WF_ROUTER_WEIGHTS];
    (void)v;
    wf_cl_group_knobs(l, caps, wf_cl_group(caps, 64, limit));
    wf_cl_items(l, x->rows);
    wf_cl_arg_view(l, x);
    wf_cl_arg_view(l, ids);
    wf_cl_arg_view(l, weights);
    const uint32_t numbers[] = {x->rows, x->cols, ids->cols, x->stride, ids->stride, weights->stride, c->p.sigmoid, c->p.normalise};
    for (size_t i = 0; i < WF_LEN(numbers); i++) wf_cl_arg_u32(l, numbers[i]);
    wf_cl_arg_f32(l, c->p.scale);
    return true;
}
