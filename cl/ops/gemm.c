/* gemm: Y = X W^T + bias + residual. */
#include "cl/cl.h"

#include <string.h>

/* The arguments that every gemm kernel takes, in this order. */
static bool common(const wf_call *c, cl_launch *l)
{
    const wf_view *x = &c->in[0], *w = &c->in[1], *res = &c->in[3], *y = &c->out[0];
    if (w->layout != 0) return false;
    l->wtype = wf_dtypes[w->dtype].name;
    wf_cl_act(l, x);
    for (int i = 0; i < 4; i++) wf_cl_arg_view(l, &c->in[i]);
    wf_cl_arg_out(l, y);
    wf_cl_arg_u32(l, y->rows);
    wf_cl_arg_u32(l, y->cols);
    wf_cl_arg_u32(l, x->cols);
    wf_cl_arg_u32(l, x->stride);
    wf_cl_arg_u64(l, wf_cl_row_bytes(w));
    wf_cl_arg_u32(l, res->stride);
    wf_cl_arg_u32(l, y->stride);
    return wf_cl_has_format(l->wtype);
}

bool wf_cl_plan_gemm(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                     cl_launch *l)
{
    (void)v;
    wf_cl_group_knobs(l, caps, wf_cl_group(caps, 64, limit));
    wf_cl_items(l, (uint64_t)c->out[0].rows * c->out[0].cols);
    return common(c, l);
}

/* Can rows be read eight elements at a time? */
static bool in_eights(const wf_view *v)
{
    const wf_dtype_info *t = &wf_dtypes[v->dtype];
    if (t->block > 1) return true;
    return v->cols % 8 == 0 && v->stride * t->block_bytes % 16 == 0 && v->offset % 16 == 0;
}

static bool vectors(const wf_call *c)
{
    return in_eights(&c->in[0]) && in_eights(&c->in[1]);
}

/* Outputs do not depend on MR and RPL, only speed does: the more rows of X, the more rows of W share
 * what was read of X. */
bool wf_cl_plan_gemv(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                     cl_launch *l)
{
    uint32_t m = c->out[0].rows, n = c->out[0].cols, lanes = (uint32_t)v->tile[0];
    bool eights = vectors(c); /* odd shapes are slow anyway: one program for all M */
    uint32_t rows = !eights || m > 4 ? 8 : m > 1 ? 4 : 1;
    uint32_t per_lane = rows >= 4 ? 4 : 2, group = wf_cl_group(caps, 128, limit);
    if (m > 8 || group < lanes) return false;
    wf_cl_group_knobs(l, caps, group);
    wf_cl_knob(l, "MR", (int32_t)rows);
    wf_cl_knob(l, "RPL", (int32_t)per_lane);
    wf_cl_knob(l, "LANES", (int32_t)lanes);
    wf_cl_knob(l, "VEC", eights);
    wf_cl_knob(l, "UNROLL", rows > 1 ? 2 : 4);
    uint32_t outputs = group / lanes * per_lane;
    l->groups = (n + outputs - 1) / outputs;
    return common(c, l);
}

bool wf_cl_plan_tile(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                     cl_launch *l)
{
    enum { BASE_LOCAL = 16 << 10 };
    const int32_t *t = v->tile;
    uint64_t bm = (uint64_t)t[0], bn = (uint64_t)t[1];
    uint32_t group = (uint32_t)(t[0] / t[2] * (t[1] / t[3]));
    uint32_t bk = 16, part = (uint32_t)(bm + bn) * bk * 4;
    if (t[2] * t[3] > 64 && !caps->registers) return false;
    /* So short a sum is no work for tiles, and PoCL 5.0 miscompiles the part of eight before their loop. */
    if (c->in[0].cols < 8 || wf_cl_group(caps, group, limit) < group) return false;
    if (bm * bn > 64 * 64 && !vectors(c)) return false; /* odd shapes: tile64 is enough */
    wf_cl_group_knobs(l, caps, group);
    wf_cl_knob(l, "BM", t[0]);
    wf_cl_knob(l, "BN", t[1]);
    wf_cl_knob(l, "BK", (int32_t)bk);
    wf_cl_knob(l, "TM", t[2]);
    wf_cl_knob(l, "TN", t[3]);
    wf_cl_knob(l, "BUFS", 2 * part <= BASE_LOCAL ? 2 : 1); /* on an H200 two are slower where they are large */
    wf_cl_knob(l, "UNROLL", caps->gpu ? (int32_t)bk : 4); /* CPUs gain nothing, and compile for long */
    wf_cl_knob(l, "VEC", vectors(c));
    l->groups = (c->out[0].rows + bm - 1) / bm * ((c->out[0].cols + bn - 1) / bn);
    return common(c, l);
}

bool wf_cl_plan_mma(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    enum { LOCAL_BYTES = 48 << 10, WARP = 32 };
    const wf_view *x = &c->in[0], *w = &c->in[1];
    const int32_t *t = v->tile;
    uint32_t group = (uint32_t)(t[0] / t[2] * (t[1] / t[3])) * WARP, part = (uint32_t)(t[0] + t[1]) * 64;
    if (!caps->nv_mma || x->dtype != WF_F16 || !vectors(c)) return false;
    if (wf_cl_group(caps, group, limit) < group) return false;
    /* F32 and BF16 weights would lose bits or overflow as F16; blocks lose a 4096th, which arith says. */
    bool blocks = wf_dtypes[w->dtype].block > 1;
    if (!blocks && w->dtype != WF_F16) return false;
    wf_cl_group_knobs(l, caps, group);
    wf_cl_knob(l, "BM", t[0]);
    wf_cl_knob(l, "BN", t[1]);
    wf_cl_knob(l, "WM", t[2]);
    wf_cl_knob(l, "WN", t[3]);
    wf_cl_knob(l, "STAGES", (int32_t)WF_MIN(4u, LOCAL_BYTES / part));
    wf_cl_knob(l, "W16", !blocks);
    l->groups = (uint64_t)((c->out[0].rows + t[0] - 1) / t[0]) * (uint64_t)((c->out[0].cols + t[1] - 1) / t[1]);
    return common(c, l);
}

/* Rows and columns of a wave's share of a tile: as square as a power of two allows. */
static void wave_share(int32_t outputs, int32_t rows, int32_t *wm, int32_t *wn)
{
    *wm = 1;
    while (4 * *wm * *wm <= outputs && *wm < rows) *wm *= 2;
    *wn = outputs / *wm;
}

bool wf_cl_plan_matrix(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    enum { BK = 32, PITCH = BK + 8 };
    const int32_t *t = v->tile;
    uint32_t group = (uint32_t)t[2], lanes = caps->lanes;
    const wf_dtype_info *w = &wf_dtypes[c->in[1].dtype];
    int32_t wm, wn;
    if (!lanes || c->in[0].dtype != WF_F16 || !vectors(c)) return false;
    if (w->block == 1 && c->in[1].dtype != WF_F16) return false; /* as wf_cl_plan_mma */
    if (wf_cl_group(caps, group, limit) < group) return false;
    if (4u * (uint32_t)(t[0] + t[1]) * PITCH > caps->local_bytes) return false;
    wave_share(t[0] * t[1] / (int32_t)(group / lanes), t[0], &wm, &wn);
    wf_cl_group_knobs(l, caps, group);
    wf_cl_knob(l, "LANES", (int32_t)lanes);
    wf_cl_knob(l, "BM", t[0]);
    wf_cl_knob(l, "BN", t[1]);
    wf_cl_knob(l, "BK", BK);
    wf_cl_knob(l, "WM", wm);
    wf_cl_knob(l, "WN", wn);
    wf_cl_knob(l, "W16", w->block == 1);
    l->prelude = "matrix.clh";
    l->groups = (uint64_t)((c->out[0].rows + t[0] - 1) / t[0]) * (uint64_t)((c->out[0].cols + t[1] - 1) / t[1]);
    return common(c, l);
}
