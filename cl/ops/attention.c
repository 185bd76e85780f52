/* attention: rows of queries against paged keys and values. */
#include "cl/cl.h"

/* The arguments that every attention kernel takes, in this order. */
static void common(const wf_call *c, cl_launch *l)
{
    const wf_view *q = &c->in[0], *o = &c->out[0];
    const wf_params *p = &c->p;
    wf_cl_act(l, q);
    wf_cl_knob(l, "D", (int32_t)p->head_dim);
    for (int i = 0; i < 7; i++) wf_cl_arg_view(l, &c->in[i]);
    wf_cl_arg_out(l, o);
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
    uint32_t most = 16, keys = 32; /* packed rows a work-group; keys a tile */
    while (most * d > 1024 && most > 1) most /= 2;
    while (keys * d > 2048) keys /= 2;
    if (d % 4 || d > 4 * group || d > 512 || group < WF_MAX(keys, 16)) return false;
    uint32_t heads = WF_MIN(g, most), rows = WF_MAX(most / heads, 1);
    uint32_t packed = 1; /* a power of two: few programs for all numbers of heads */
    if (v->tile[0]) rows = WF_MIN(rows, (uint32_t)v->tile[0]);
    while (packed < rows * heads) packed *= 2;
    common(c, l);
    wf_cl_group_knobs(l, caps, group);
    wf_cl_knob(l, "R", (int32_t)packed);
    wf_cl_knob(l, "TK", (int32_t)keys);
    wf_cl_arg_u32(l, rows);
    wf_cl_arg_u32(l, heads);
    l->groups = (uint64_t)(c->out[0].rows + rows - 1) / rows * p->n_kv_head * ((g + heads - 1) / heads);
    return true;
}
