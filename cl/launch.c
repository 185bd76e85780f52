/* The small steps that every configure function is made of. */
#include "cl/cl.h"

#include <string.h>

void wf_cl_knob(cl_launch *l, const char *name, int32_t value)
{
    l->knob[l->n_knobs++] = (cl_knob){name, value};
}

void wf_cl_act(cl_launch *l, const wf_view *in)
{
    wf_cl_knob(l, "ACT", in->dtype == WF_F16 ? 16 : 32);
}

void wf_cl_kv(cl_launch *l, const wf_view *pool)
{
    l->wtype = wf_dtypes[pool->dtype].name;
    if (pool->dtype != WF_F16) wf_cl_knob(l, "KV_COLS", (int32_t)pool->cols);
}

uint64_t wf_cl_row_bytes(const wf_view *v)
{
    const wf_dtype_info *t = &wf_dtypes[v->dtype];
    if (v->layout == WF_CL_PLANES) return wf_cl_plane_bytes(v->dtype, v->cols);
    return (uint64_t)v->stride / t->block * t->block_bytes;
}

void wf_cl_number_knobs(cl_launch *l, const wf_numbers *f)
{
    wf_cl_knob(l, "W_BITS", f->bits);
    wf_cl_knob(l, "W_GROUP", f->group);
    wf_cl_knob(l, "W_MIN", f->min);
    wf_cl_knob(l, "W_ZERO", f->zero);
    wf_cl_knob(l, "W_CODES", f->codes);
}

bool wf_cl_weight_format(cl_launch *l, const wf_view *w)
{
    const wf_numbers *f = w->layout == WF_CL_PLANES ? wf_numbers_of(w->dtype) : NULL;
    l->wtype = f ? "planes" : wf_dtypes[w->dtype].name;
    if (f) wf_cl_number_knobs(l, f), wf_cl_knob(l, "W_PARTS", f->parts);
    return wf_cl_has_format(l->wtype);
}

void wf_cl_group_knobs(cl_launch *l, const cl_caps *caps, uint32_t group)
{
    l->group = group;
    wf_cl_knob(l, "WG", (int32_t)group);
    wf_cl_knob(l, "FMA", caps->fma);
}

void wf_cl_items(cl_launch *l, uint64_t items)
{
    /* enough to fill any device; beyond that a work-item loops */
    l->groups = WF_MIN((items + l->group - 1) / l->group, 1u << 20);
}

void wf_cl_columns(cl_launch *l, uint32_t rows, uint32_t n)
{
    l->groups = WF_MIN((uint64_t)rows * ((n + l->group - 1) / l->group), 1u << 20);
}

bool wf_cl_vec4_ok(const wf_view *v)
{
    uint32_t bytes = wf_dtypes[v->dtype].block_bytes * 4;
    return !v->buf || (v->cols % 4 == 0 && v->stride % 4 == 0 && v->offset % bytes == 0);
}

bool wf_cl_vec8_ok(const wf_view *v)
{
    const wf_dtype_info *t = &wf_dtypes[v->dtype];
    if (t->block > 1) return true;
    return v->cols % 8 == 0 && v->stride * t->block_bytes % 16 == 0 && v->offset % 16 == 0;
}

void wf_cl_arg_view(cl_launch *l, const wf_view *v)
{
    /* Kernels test the offset, not the pointer; some drivers do not take a NULL buffer, so the first
     * argument stands in. */
    const cl_buf *buf = v->buf ? (const cl_buf *)v->buf : l->n_args ? l->arg[0].buf : NULL;
    l->arg[l->n_args++] = (cl_arg){.size = 0, .buf = buf};
    l->arg[l->n_args++] = (cl_arg){.size = 8, .u64 = v->buf ? v->offset : UINT64_MAX};
}

void wf_cl_arg_out(cl_launch *l, const wf_view *v)
{
    wf_cl_arg_view(l, v);
    wf_cl_arg_u32(l, v->dtype == WF_F16);
}

void wf_cl_arg_u32(cl_launch *l, uint32_t x)
{
    l->arg[l->n_args++] = (cl_arg){.size = 4, .u32 = x};
}

void wf_cl_arg_u64(cl_launch *l, uint64_t x)
{
    l->arg[l->n_args++] = (cl_arg){.size = 8, .u64 = x};
}

void wf_cl_arg_f32(cl_launch *l, float x)
{
    l->arg[l->n_args++] = (cl_arg){.size = 4, .f32 = x};
}

void wf_cl_arg_scratch(cl_launch *l, uint64_t bytes)
{
    l->scratch = WF_MAX(bytes, WF_CL_ZEROED);
    l->arg[l->n_args++] = (cl_arg){.size = 0, .buf = NULL};
}

void wf_cl_arg_zeroed(cl_launch *l, uint64_t bytes)
{
    l->zeroed = bytes;
    l->arg[l->n_args++] = (cl_arg){.size = 0, .zeroed = true, .buf = NULL};
}

uint32_t wf_cl_group(const cl_caps *caps, uint32_t want, uint32_t limit)
{
    uint32_t most = caps->max_group;
    if (limit) most = WF_MIN(most, limit);
    while (want > most) want /= 2;
    return want ? want : 1;
}
