/* router: the experts of each token, of scores; or of the product of their norm, for few tokens. */
#include "cl/cl.h"
#include "cl/kernels/local_bytes.clh"

bool wf_cl_configure_router(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    const wf_view *x = &c->in[WF_ROUTER_X], *ids = &c->out[WF_ROUTER_IDS], *weights = &c->out[WF_ROUTER_WEIGHTS];
    (void)v;
    if (wf_is_fused(c)) return false;
    wf_cl_group_knobs(l, caps, wf_cl_group(caps, 64, limit));
    wf_cl_items(l, x->rows);
    wf_cl_arg_view(l, x);
    wf_cl_arg_view(l, ids);
    wf_cl_arg_view(l, weights);
    const uint32_t numbers[] = {x->rows,     x->cols,         ids->cols,    x->stride,
                                ids->stride, weights->stride, c->p.sigmoid, c->p.normalise};
    for (size_t i = 0; i < WF_LEN(numbers); i++) wf_cl_arg_u32(l, numbers[i]);
    wf_cl_arg_f32(l, c->p.scale);
    return true;
}

/* Work-items that share the K of an expert: of teams there are no more than what all experts keep busy, and none is
 * narrower than a line of memory. */
static uint32_t lanes_of(uint32_t group, uint32_t experts)
{
    enum { LEAST = 32 };
    uint32_t lanes = group;
    while (lanes > LEAST && group / lanes * ROUTER_ROWS < experts) lanes /= 2;
    return lanes;
}

/* One work-group reads all of W for a row, which pays for as much as it reads in the time of the launches that it
 * saves. */
static bool is_small(const cl_caps *caps, const cl_variant *v, const wf_call *c)
{
    const wf_view *w = &c->in[WF_ROUTER_W];
    uint64_t most = (uint64_t)v->tile[1] << (caps->gpu ? 10 : 8);
    return c->in[WF_ROUTER_X].rows <= (uint32_t)v->tile[2] && w->rows <= ROUTER_EXPERTS &&
           w->rows * wf_cl_row_bytes(w) <= most;
}

static void router_norm_args(const wf_call *c, cl_launch *l)
{
    const wf_view *x = &c->in[WF_ROUTER_X], *w = &c->in[WF_ROUTER_W], *ids = &c->out[WF_ROUTER_IDS],
                  *weights = &c->out[WF_ROUTER_WEIGHTS];
    wf_cl_arg_view(l, x);
    wf_cl_arg_view(l, w);
    wf_cl_arg_view(l, &c->in[WF_ROUTER_NORM]);
    wf_cl_arg_view(l, ids);
    wf_cl_arg_view(l, weights);
    wf_cl_arg_out(l, &c->out[WF_ROUTER_Y]);
    const uint32_t sizes[] = {x->rows, w->rows, ids->cols, x->cols, x->stride};
    const uint32_t numbers[] = {ids->stride, weights->stride, c->out[WF_ROUTER_Y].stride, c->p.sigmoid, c->p.normalise};
    for (size_t i = 0; i < WF_LEN(sizes); i++) wf_cl_arg_u32(l, sizes[i]);
    wf_cl_arg_u64(l, wf_cl_row_bytes(w));
    for (size_t i = 0; i < WF_LEN(numbers); i++) wf_cl_arg_u32(l, numbers[i]);
    wf_cl_arg_f32(l, c->p.scale);
    wf_cl_arg_f32(l, c->p.eps);
}

bool wf_cl_configure_router_norm(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                                 cl_launch *l)
{
    const wf_view *w = &c->in[WF_ROUTER_W];
    uint32_t group = wf_cl_group(caps, caps->gpu ? (uint32_t)v->tile[0] : 64, limit);
    if (!wf_is_fused(c) || w->layout != v->layout || !is_small(caps, v, c) ||
        ROUTER_LOCAL_BYTES(group) > caps->local_bytes)
        return false;
    wf_cl_group_knobs(l, caps, group);
    wf_cl_act(l, &c->in[WF_ROUTER_X]);
    wf_cl_knob(l, "LANES", (int32_t)lanes_of(group, w->rows));
    wf_cl_knob(l, "VEC",
               wf_cl_vec8_ok(&c->in[WF_ROUTER_X]) && wf_cl_vec8_ok(w) && wf_cl_vec8_ok(&c->in[WF_ROUTER_NORM]) &&
                   wf_cl_vec8_ok(&c->out[WF_ROUTER_Y]));
    l->wtype = wf_dtypes[w->dtype].name;
    l->groups = c->in[WF_ROUTER_X].rows;
    router_norm_args(c, l);
    return wf_cl_has_format(l->wtype);
}
