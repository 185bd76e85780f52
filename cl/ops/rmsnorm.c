/* rmsnorm: a group of columns by work-item, tile[0] of them a work-group, or (tile[0] = 0) by work-group. */
#include "cl/cl.h"

/* As many work-items as have something to hold, a few parts each. */
uint32_t wf_cl_norm_items(uint32_t k, uint32_t vec)
{
    enum { PARTS = 4, LEAST = 64, MOST = 1024 };
    uint32_t items = LEAST;
    while (items < MOST && items * PARTS * vec < k) items *= 2;
    return items;
}

/* What a work-group is follows from K alone, so that a row has the same sum whatever the batch. */
static bool rmsnorm_group_knobs(const cl_caps *caps, const wf_call *c, uint32_t k, uint32_t limit, cl_launch *l)
{
    enum { MOST = 32 };
    bool fours = wf_cl_vec4_ok(&c->in[WF_RMSNORM_X]) && wf_cl_vec4_ok(&c->in[WF_RMSNORM_W]) &&
                 wf_cl_vec4_ok(&c->in[WF_RMSNORM_RESIDUAL]) && wf_cl_vec4_ok(&c->out[WF_RMSNORM_Y]);
    uint32_t vec = fours ? 4 : 1, want = wf_cl_norm_items(k, vec);
    uint32_t group = wf_cl_group(caps, caps->gpu ? want : WF_MIN(want, 256u), limit);
    uint32_t per = (k + group * vec - 1) / (group * vec);
    wf_cl_group_knobs(l, caps, group);
    wf_cl_knob(l, "VEC", (int32_t)vec);
    wf_cl_knob(l, "PER", (int32_t)per);
    l->groups = WF_MIN((uint64_t)c->out[WF_RMSNORM_Y].rows * (c->out[WF_RMSNORM_Y].cols / k), 1u << 20);
    return per <= MOST;
}

bool wf_cl_configure_rmsnorm(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                        cl_launch *l)
{
    const wf_view *x = &c->in[WF_RMSNORM_X], *w = &c->in[WF_RMSNORM_W], *residual = &c->in[WF_RMSNORM_RESIDUAL],
                  *y = &c->out[WF_RMSNORM_Y];
    uint32_t k = w->rows * w->cols, groups = y->cols / k;
    wf_cl_act(l, x);
    if (v->tile[0]) {
        wf_cl_group_knobs(l, caps, wf_cl_group(caps, (uint32_t)v->tile[0], limit));
        wf_cl_items(l, (uint64_t)y->rows * groups);
    } else if (!rmsnorm_group_knobs(caps, c, k, limit, l)) return false;
    wf_cl_arg_view(l, x);
    wf_cl_arg_view(l, w);
    wf_cl_arg_view(l, residual);
    wf_cl_arg_out(l, y);
    wf_cl_arg_u32(l, y->rows);
    wf_cl_arg_u32(l, groups);
    wf_cl_arg_u32(l, k);
    wf_cl_arg_u32(l, x->stride);
    wf_cl_arg_u32(l, residual->stride);
    wf_cl_arg_u32(l, y->stride);
    wf_cl_arg_f32(l, c->p.eps);
    return (uint64_t)y->rows * groups <= UINT32_MAX;
}
