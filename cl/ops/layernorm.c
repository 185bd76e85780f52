/* layernorm: a row by work-item (tile[0] = 1) or by work-group. */
#include "cl/cl.h"

/* A work-group whose work-items hold all of a row, at most MOST elements each. */
static bool layernorm_group_knobs(const cl_caps *caps, const wf_call *c, uint32_t limit, cl_launch *l)
{
    enum { PARTS = 4, MOST = 32 };
    uint32_t k = c->in[WF_LAYERNORM_X].cols, want = 64;
    while (want < (caps->gpu ? 1024 : 256) && want * PARTS < k) want *= 2;
    uint32_t group = wf_cl_group(caps, want, limit), per = (k + group - 1) / group;
    wf_cl_group_knobs(l, caps, group);
    wf_cl_knob(l, "PER", (int32_t)per);
    l->groups = c->out[WF_LAYERNORM_Y].rows;
    return per <= MOST;
}

bool wf_cl_configure_layernorm(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    const wf_view *x = &c->in[WF_LAYERNORM_X], *y = &c->out[WF_LAYERNORM_Y];
    wf_cl_act(l, x);
    if (v->tile[0] == 1) {
        wf_cl_group_knobs(l, caps, wf_cl_group(caps, 64, limit));
        wf_cl_items(l, y->rows);
    } else if (!layernorm_group_knobs(caps, c, limit, l)) return false;
    for (int i = 0; i < WF_N_LAYERNORM_IN; i++) wf_cl_arg_view(l, &c->in[i]);
    wf_cl_arg_out(l, y);
    wf_cl_arg_u32(l, y->rows);
    wf_cl_arg_u32(l, y->cols);
    wf_cl_arg_u32(l, x->stride);
    wf_cl_arg_u32(l, y->stride);
    wf_cl_arg_f32(l, c->p.eps);
    return true;
}
