/* rope_kv: rotation and the write into the KV pools. */
#include "cl/cl.h"

void wf_cl_arg_rope(cl_launch *l, const wf_view *in, const wf_view *pools, const wf_op_params *p)
{
    for (int i = 0; i < 3; i++) wf_cl_arg_view(l, &in[i]);
    for (int i = 0; i < 2; i++) wf_cl_arg_view(l, &pools[i]);
    wf_cl_arg_u32(l, p->n_head);
    wf_cl_arg_u32(l, p->n_kv_head);
    wf_cl_arg_u32(l, p->page_tokens);
    wf_cl_arg_u32(l, in[0].stride);
    wf_cl_arg_u32(l, in[0].rows);
    wf_cl_arg_u64(l, (uint64_t)pools[0].rows * p->page_tokens);
    wf_cl_arg_u64(l, pools[0].stride);
}

bool wf_cl_configure_rope_kv(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                        cl_launch *l)
{
    const wf_view *qkv = &c->in[WF_ROPE_KV_QKV], *q = &c->out[WF_ROPE_KV_Q];
    const wf_op_params *p = &c->p;
    (void)v;
    if (p->neox || p->head_dim % 2 || p->n_rot % 2 || p->n_rot > p->head_dim) return false;
    wf_cl_act(l, qkv);
    wf_cl_kv(l, &c->out[WF_ROPE_KV_K_POOL]);
    bool eights = p->head_dim % 8 == 0 && p->n_rot % 8 == 0 && wf_cl_vec8_ok(qkv) && wf_cl_vec8_ok(q) &&
                  wf_cl_vec8_ok(&c->out[WF_ROPE_KV_K_POOL]) && wf_cl_vec8_ok(&c->out[WF_ROPE_KV_V_POOL]);
    uint32_t vec = eights ? 4 : 1, block = wf_dtypes[c->out[WF_ROPE_KV_K_POOL].dtype].block;
    wf_cl_knob(l, "VEC", (int32_t)vec);
    wf_cl_group_knobs(l, caps, wf_cl_group(caps, caps->gpu ? 128 : 64, limit));
    wf_cl_columns(l, q->rows, (p->n_head + 2 * p->n_kv_head) * (p->head_dim / (block > 1 ? block : 2 * vec)));
    wf_cl_arg_view(l, qkv);
    wf_cl_arg_out(l, q);
    wf_cl_arg_u32(l, q->rows);
    wf_cl_arg_u32(l, p->head_dim);
    wf_cl_arg_u32(l, p->n_rot);
    wf_cl_arg_u32(l, qkv->stride);
    wf_cl_arg_u32(l, q->stride);
    wf_cl_arg_rope(l, &c->in[WF_ROPE_KV_TABLE], &c->out[WF_ROPE_KV_K_POOL], p);
    return true;
}
