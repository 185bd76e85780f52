/* weighted_sum: what a token's experts gave, or the devices of a group, becomes one row. */
#include "cl/cl.h"

bool wf_cl_configure_weighted_sum(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                                  cl_launch *l)
{
    const wf_view *x = &c->in[WF_WEIGHTED_SUM_X], *weights = &c->in[WF_WEIGHTED_SUM_WEIGHTS];
    const wf_view *res = &c->in[WF_WEIGHTED_SUM_RESIDUAL], *y = &c->out[WF_WEIGHTED_SUM_Y];
    (void)v;
    bool fours = wf_cl_vec4_ok(x) && wf_cl_vec4_ok(y) && wf_cl_vec4_ok(res) && y->cols % 4 == 0;
    wf_cl_act(l, x);
    wf_cl_knob(l, "VEC", fours ? 4 : 1);
    wf_cl_group_knobs(l, caps, wf_cl_group(caps, caps->gpu ? 256 : 64, limit));
    wf_cl_columns(l, y->rows, fours ? y->cols / 4 : y->cols);
    wf_cl_arg_view(l, x);
    wf_cl_arg_view(l, weights);
    wf_cl_arg_view(l, res);
    wf_cl_arg_out(l, y);
    const uint32_t numbers[] = {y->rows,         y->cols,     x->cols / y->cols, x->stride,
                                weights->stride, res->stride, y->stride};
    for (size_t i = 0; i < WF_LEN(numbers); i++) wf_cl_arg_u32(l, numbers[i]);
    return true;
}
