/* attention: rows of queries against paged keys and values. */
#include "cl/cl.h"

/* The arguments that every attention kernel takes, in this order. */
static void common(const wf_call *c, cl_launch *l)
{
    const wf_view *q = &c->in[0], *o = &c->out[0];
    const wf_params *p = &c->p;
    wf_cl_act(l, q, o);
    wf_cl_knob(l, "D", (int32_t)p->head_dim);
    for (int i = 0; i < 7; i++) wf_cl_arg_view(l, &c->in[i]);
    wf_cl_arg_view(l, o);
    wf_cl_arg_u32(l, o->rows);
    wf_cl_arg_u32(l, p->n_head);
    wf_cl_arg_u32(l, p->n_kv_head);
    wf_cl_arg_u32(l, p->page_tokens);
    wf_cl_arg_u32(l, q->stride);
    wf_cl_arg_u32(l, o->stride);
    wf_cl_arg_f32(l, p->scale);
}

bool wf_cl_plan_attention(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                          cl_launch *l)
{
    (void)v;
    wf_cl_group_knobs(l, caps, wf_cl_group(caps, 64, limit));
    wf_cl_items(l, (uint64_t)c->out[0].rows * c->p.n_head);
    common(c, l);
    return true;
}
