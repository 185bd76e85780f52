/* What the device can at most do: the best of a few samples of kernels that do one thing only. */
#include "cl/cl.h"

#include <string.h>

#define SAMPLES   6   /* of which the fastest counts; the first one warms up */
#define SAMPLE_NS 4e7 /* that one should last: far longer than it takes to see that it has ended */
#define GROW_NS   2e6 /* a launch should last, where its work can be chosen */

typedef struct probe {
    cl_dev *d;
    cl_kern *kern;
    cl_launch l;
    uint32_t n_arg; /* the argument that says how much to do */
} probe;

/* Nanoseconds of one of several launches of n units of work. */
static weft_status timed(probe *p, uint32_t n, uint32_t launches, double *ns)
{
    wf_call c = {0};
    p->l.arg[p->n_arg].u32 = n;
    uint64_t start = wf_now_ns();
    for (uint32_t i = 0; i < launches; i++)
        WF_TRY(wf_cl_enqueue(p->d->own, &c, p->kern, &p->l, "probe"));
    WF_TRY(wf_finish(&p->d->own->base));
    *ns = (double)(wf_now_ns() - start) / launches;
    return WEFT_OK;
}

/* Units of work per second. grow: enlarge the work until it takes long enough to measure. */
static weft_status fastest(probe *p, uint32_t n, bool grow, double *per_second)
{
    double ns;
    WF_TRY(timed(p, n, 1, &ns));
    for (; grow && n < 1u << 24 && ns < GROW_NS; n *= 2) WF_TRY(timed(p, n * 2, 1, &ns));
    uint32_t launches = (uint32_t)WF_MIN(SAMPLE_NS / ns + 1, 1000.0);
    *per_second = 0;
    for (int i = 0; i < SAMPLES; i++) {
        WF_TRY(timed(p, n, launches, &ns));
        *per_second = WF_MAX(*per_second, n / (ns * 1e-9));
    }
    return WEFT_OK;
}

static weft_status build(probe *p, const char *family, uint32_t group)
{
    cl_variant v = {.op = WF_OP_GET_ROWS, .name = family, .family = family};
    wf_cl_group_knobs(&p->l, &p->d->ref.caps, wf_cl_group(&p->d->ref.caps, group, 0));
    return wf_cl_kernel_alone(p->d, &v, &p->l, &p->kern);
}

/* Memory far larger than any cache. */
static weft_status measure_read(cl_dev *d, wf_buf *y, wf_ceilings *out)
{
    enum { DEPTH = 8, CHUNK = 16 };
    probe p = {.d = d, .n_arg = 4};
    wf_buf *x = NULL;
    uint64_t bytes = WF_MIN(wf_cache_flush_bytes(&d->base), d->base.max_alloc);
    bool gpu = d->ref.caps.gpu;
    wf_cl_knob(&p.l, "OWN", !gpu);
    WF_TRY(build(&p, "probe_read", gpu ? 256 : 1));
    uint64_t unit = (uint64_t)p.l.group * DEPTH * CHUNK;
    bytes = bytes / unit * unit;
    p.l.groups = WF_MIN(bytes / unit, d->base.info.compute_units * (gpu ? 16ull : 1ull));
    weft_status s = wf_cl_buf_create(&d->base, bytes, &x);
    if (!s) s = wf_cl_fill(&d->own->base, x, 0, bytes, 0x9E3779B9u);
    if (!s) s = wf_finish(&d->own->base);
    wf_view in = {.buf = x}, to = {.buf = y};
    wf_cl_arg_view(&p.l, &in);
    wf_cl_arg_view(&p.l, &to);
    wf_cl_arg_u32(&p.l, 0);
    double chunks = 0;
    if (!s) s = fastest(&p, (uint32_t)(bytes / CHUNK), false, &chunks);
    out->read = chunks * CHUNK;
    if (x) wf_cl_buf_destroy(&d->base, x);
    wf_cl_kernel_free(d, p.kern);
    return s;
}

/* ops: operations of a work-item in one round. */
static weft_status measure_ops(cl_dev *d, wf_buf *y, const char *family, uint32_t group, double ops,
                               double *out)
{
    probe p = {.d = d, .n_arg = 2};
    wf_view to = {.buf = y};
    double rounds = 0;
    WF_TRY(build(&p, family, group));
    p.l.groups = (uint64_t)d->base.info.compute_units * (d->ref.caps.gpu ? 16 : 1);
    wf_cl_arg_view(&p.l, &to);
    wf_cl_arg_u32(&p.l, 0);
    wf_cl_arg_f32(&p.l, 0.999f);
    wf_cl_arg_f32(&p.l, 0.001f);
    weft_status s = fastest(&p, 256, true, &rounds);
    *out = rounds * ops * p.l.group * (double)p.l.groups;
    wf_cl_kernel_free(d, p.kern);
    return s;
}

weft_status wf_cl_measure(wf_dev *base, wf_ceilings *out)
{
    cl_dev *d = (cl_dev *)base;
    wf_buf *y = NULL;
    memset(out, 0, sizeof *out);
    WF_TRY(wf_cl_check_lost(d));
    WF_TRY(wf_cl_buf_create(base, 64, &y));
    weft_status s = measure_read(d, y, out);
    if (!s) s = measure_ops(d, y, "probe_fma", 256, 4 * 16 * 2.0, &out->ops[WF_ARITH_F32]);
    bool mma = d->ref.caps.nv_mma && base->params.tier >= WF_TIER_NEUTRAL;
    if (!s && mma)
        s = measure_ops(d, y, "probe_mma", 256, 8 * 16 * 8 * 16 * 2.0 / 32,
                        &out->ops[WF_ARITH_F16]);
    wf_cl_buf_destroy(base, y);
    return s;
}
