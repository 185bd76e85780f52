/* activate: a function of each element. */
#include "cl/cl.h"

bool wf_cl_configure_activate(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    const wf_view *x = &c->in[WF_ACTIVATE_X], *y = &c->out[WF_ACTIVATE_Y];
    (void)v;
    bool fours = wf_cl_vec4_ok(x) && wf_cl_vec4_ok(y);
    wf_cl_act(l, x);
    wf_cl_knob(l, "VEC", fours ? 4 : 1);
    wf_cl_knob(l, "ACTIVATION", (int32_t)c->p.activation);
    wf_cl_group_knobs(l, caps, wf_cl_group(caps, caps->gpu ? 256 : 64, limit));
    wf_cl_columns(l, y->rows, fours ? y->cols / 4 : y->cols);
    wf_cl_arg_view(l, x);
    wf_cl_arg_out(l, y);
    wf_cl_arg_u32(l, y->rows);
    wf_cl_arg_u32(l, y->cols);
    wf_cl_arg_u32(l, x->stride);
    wf_cl_arg_u32(l, y->stride);
    wf_cl_arg_f32(l, c->p.softcap);
    return true;
}
