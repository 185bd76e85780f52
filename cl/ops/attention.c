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

/* Local memory of attention_flash: queries 4 KiB, a tile of keys about 8 KiB, scores 2 KiB. The tile's
 * length follows from the head size alone, so that all plans add in the same order. */
bool wf_cl_plan_flash(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                      cl_launch *l)
{
    const wf_params *p = &c->p;
    uint32_t d = p->head_dim, g = p->n_head / p->n_kv_head, group = wf_cl_group(caps, 64, limit);
    uint32_t most = WF_MIN(1024 / d, 16), keys = 32; /* packed rows a work-group; keys a tile */
    while (keys * d > 2048) keys /= 2;
    if (d % 4 || d > 4 * group || d > 512 || group < WF_MAX(keys, 16)) return false;
    uint32_t heads = WF_MIN(g, most), rows = WF_MAX(most / heads, 1);
    if (v->tile[0]) rows = WF_MIN(rows, (uint32_t)v->tile[0]);
    common(c, l);
    wf_cl_group_knobs(l, caps, group);
    wf_cl_knob(l, "G", (int32_t)g);
    wf_cl_knob(l, "BR", (int32_t)rows);
    wf_cl_knob(l, "HB", (int32_t)heads);
    wf_cl_knob(l, "TK", (int32_t)keys);
    wf_cl_knob(l, "P", (int32_t)p->page_tokens);
    l->groups = (uint64_t)(c->out[0].rows + rows - 1) / rows * p->n_kv_head * ((g + heads - 1) / heads);
    return true;
}
