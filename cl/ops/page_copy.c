/* page_copy: pages from pool to pool. */
#include "cl/cl.h"

bool wf_cl_configure_page_copy(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    const wf_view *from = &c->in[WF_PAGE_COPY_FROM], *to = &c->out[WF_PAGE_COPY_TO], *src = &c->in[WF_PAGE_COPY_SRC];
    bool wide = (to->cols | from->stride | to->stride) % 8 == 0 && (from->offset | to->offset) % 16 == 0;
    uint32_t m = src->rows * src->cols, of = wide ? 8 : 1, n = to->cols / of;
    (void)v;
    wf_cl_group_knobs(l, caps, wf_cl_group(caps, 64, limit));
    wf_cl_knob(l, "WIDE", wide);
    wf_cl_columns(l, m, n);
    for (int i = 0; i < 3; i++) wf_cl_arg_view(l, &c->in[i]);
    wf_cl_arg_view(l, to);
    wf_cl_arg_u32(l, m);
    wf_cl_arg_u32(l, n);
    wf_cl_arg_u32(l, from->rows);
    wf_cl_arg_u32(l, to->rows);
    wf_cl_arg_u32(l, from->stride / of);
    wf_cl_arg_u32(l, to->stride / of);
    return true;
}
