/* silu_mul: gate and up to one. */
#include "cl/cl.h"

bool wf_cl_configure_silu_mul(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                         cl_launch *l)
{
    const wf_view *gu = &c->in[WF_SILU_MUL_GU], *y = &c->out[WF_SILU_MUL_Y];
    uint32_t each = y->cols / WF_MAX(c->p.groups, 1u);
    (void)v;
    bool fours = wf_cl_vec4_ok(gu) && wf_cl_vec4_ok(y) && each % 4 == 0;
    wf_cl_act(l, gu);
    wf_cl_knob(l, "VEC", fours ? 4 : 1);
    if (c->p.activation == WF_GELU_TANH) wf_cl_knob(l, "GELU", 1);
    if (c->p.activation == WF_CLAMPED_SWIGLU) wf_cl_knob(l, "CLAMPED", 1);
    wf_cl_group_knobs(l, caps, wf_cl_group(caps, caps->gpu ? 256 : 64, limit));
    wf_cl_columns(l, y->rows, fours ? y->cols / 4 : y->cols);
    wf_cl_arg_view(l, gu);
    wf_cl_arg_out(l, y);
    wf_cl_arg_u32(l, y->rows);
    wf_cl_arg_u32(l, y->cols);
    wf_cl_arg_u32(l, gu->stride);
    wf_cl_arg_u32(l, y->stride);
    wf_cl_arg_u32(l, each);
    return true;
}
