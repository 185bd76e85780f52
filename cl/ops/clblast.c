/* gemm by CLBlast, a library that brings kernels of its own: SGEMM on F32 rows. What is not F32 goes through panels in
 * the queue's scratch memory: X whole, W and Y some columns of Y at a time. It takes no part of a device, allocates at
 * each call, and compiles in this process at the first one: nothing picks it but a file of choices or a name.
 * clblast_run.c runs it. */
#include "cl/ops/clblast.h"

/* Its kernels count elements of a buffer in 32 bits with a sign, tiles past the end included. */
#define REACH (1u << 30)

static const wf_view none = {0};

bool wf_cl_has_clblast(void)
{
    return true;
}

static bool fits_as_it_is(const wf_view *v)
{
    return v->dtype == WF_F32 && v->offset / sizeof(float) + (uint64_t)v->rows * v->stride <= REACH;
}

/* Panels of W and Y take a quarter of the room each at most, if a single column does. */
cl_panels wf_cl_panels(const cl_caps *caps, const wf_call *c)
{
    uint64_t m = c->out[WF_GEMM_Y].rows, n = c->out[WF_GEMM_Y].cols, k = c->in[WF_GEMM_X].cols, f = sizeof(float);
    cl_panels p = {.x = !fits_as_it_is(&c->in[WF_GEMM_X]), .w = !fits_as_it_is(&c->in[WF_GEMM_W])};
    p.y = !fits_as_it_is(&c->out[WF_GEMM_Y]) || c->in[WF_GEMM_BIAS].buf || c->in[WF_GEMM_RESIDUAL].buf;
    uint64_t most = caps->panels / 4 / f / WF_MAX(WF_MAX(m, k), 1);
    p.cols = (uint32_t)(p.w || p.y ? WF_MIN(n, WF_MAX(most, 1)) : n);
    p.x_at = WF_CL_ZEROED;
    p.w_at = p.x_at + p.x * m * k * f;
    p.y_at = p.w_at + p.w * p.cols * k * f;
    p.bytes = p.y_at + p.y * m * p.cols * f;
    return p;
}

bool wf_cl_configure_panel(const cl_caps *caps, const wf_view *from, const wf_view *bias, const wf_view *res,
                           const wf_view *to, uint32_t limit, cl_launch *l)
{
    wf_cl_group_knobs(l, caps, wf_cl_group(caps, 64, limit));
    wf_cl_columns(l, to->rows, to->cols);
    wf_cl_arg_view(l, from);
    wf_cl_arg_view(l, bias);
    wf_cl_arg_view(l, res);
    wf_cl_arg_out(l, to);
    wf_cl_arg_u32(l, to->rows);
    wf_cl_arg_u32(l, to->cols);
    wf_cl_arg_u64(l, wf_cl_row_bytes(from));
    wf_cl_arg_u32(l, res->stride);
    wf_cl_arg_u32(l, to->stride);
    return wf_cl_weight_format(l, from);
}

/* The launch is that of the panel of W, the kernel that differs between formats. */
bool wf_cl_configure_clblast(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    const wf_view *w = &c->in[WF_GEMM_W];
    wf_view panel = {.rows = w->rows, .cols = w->cols, .stride = w->cols, .dtype = WF_F32};
    cl_panels p = wf_cl_panels(caps, c);
    if ((w->layout != v->layout && w->layout != WF_CL_PLANES) || wf_is_fused(c) || c->max_groups) return false;
    if (p.bytes > caps->panels || !wf_cl_configure_panel(caps, w, &none, &none, &panel, limit, l)) return false;
    if (!c->out[WF_GEMM_Y].rows) l->groups = 0; /* no work */
    l->library = true;
    return true;
}
