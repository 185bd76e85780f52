/* token_subst: a work-item a token. */
#include "cl/cl.h"

bool wf_cl_configure_token_subst(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                                 cl_launch *l)
{
    const wf_view *ids = &c->in[WF_TOKEN_SUBST_IDS], *from = &c->in[WF_TOKEN_SUBST_FROM];
    uint32_t m = ids->rows * ids->cols, group = wf_cl_group(caps, 64, limit);
    (void)v;
    wf_cl_group_knobs(l, caps, group);
    l->groups = (m + group - 1) / group;
    wf_cl_arg_view(l, ids);
    wf_cl_arg_view(l, from);
    wf_cl_arg_view(l, &c->out[WF_TOKEN_SUBST_Y]);
    wf_cl_arg_u32(l, m);
    wf_cl_arg_u32(l, from->rows * from->cols);
    return true;
}
