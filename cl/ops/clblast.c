/* gemm by CLBlast, a library that brings kernels of its own: SGEMM on F32 rows. What is not F32 goes through panels
 * in the queue's scratch memory: X whole, W and Y some columns of Y at a time. It takes no part of a device, allocates
 * at each call, and compiles in this process at the first one: nothing picks it but a file of choices or a name.
 */
#include "cl/cl.h"

#include <clblast_c.h>

/* Its kernels count elements of a buffer in 32 bits with a sign, tiles past the end included. */
#define REACH (1u << 30)

static const wf_view none = {0};

bool wf_cl_has_clblast(void)
{
    return true;
}

/* Which operands need a panel, and where in scratch memory that lies. */
typedef struct panels {
    bool x, w, y;
    uint32_t cols; /* of Y at a time: rows of W */
    uint64_t x_at, w_at, y_at, bytes;
} panels;

static bool fits_as_it_is(const wf_view *v)
{
    return v->dtype == WF_F32 && v->offset / sizeof(float) + (uint64_t)v->rows * v->stride <= REACH;
}

/* Panels of W and Y take a quarter of the room each at most, if a single column does. */
static panels panels_of(const cl_caps *caps, const wf_call *c)
{
    uint64_t m = c->out[0].rows, n = c->out[0].cols, k = c->in[0].cols, f = sizeof(float);
    panels p = {.x = !fits_as_it_is(&c->in[0]), .w = !fits_as_it_is(&c->in[1])};
    p.y = !fits_as_it_is(&c->out[0]) || c->in[2].buf || c->in[3].buf;
    uint64_t most = caps->panels / 4 / f / WF_MAX(WF_MAX(m, k), 1);
    p.cols = (uint32_t)(p.w || p.y ? WF_MIN(n, WF_MAX(most, 1)) : n);
    p.x_at = WF_CL_ZEROED;
    p.w_at = p.x_at + p.x * m * k * f;
    p.y_at = p.w_at + p.w * p.cols * k * f;
    p.bytes = p.y_at + p.y * m * p.cols * f;
    return p;
}

/* The kernel that makes panel `to` of `from`. */
static bool configure_panel(const cl_caps *caps, const wf_view *from, const wf_view *bias, const wf_view *res, const wf_view *to,
                       uint32_t limit, cl_launch *l)
{
    l->wtype = wf_dtypes[from->dtype].name;
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
    return wf_cl_has_format(l->wtype);
}

static weft_status run_call(cl_q *q, const wf_call *c, int variant);

/* The launch is that of the panel of W, the kernel that differs between formats. */
bool wf_cl_configure_clblast(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    const wf_view *w = &c->in[1];
    wf_view panel = {.rows = w->rows, .cols = w->cols, .stride = w->cols, .dtype = WF_F32};
    panels p = panels_of(caps, c);
    if (w->layout != v->layout || wf_is_fused(c) || c->max_groups) return false;
    if (p.bytes > caps->panels || !configure_panel(caps, w, &none, &none, &panel, limit, l)) return false;
    if (!c->out[0].rows) l->groups = 0; /* no work */
    l->run = run_call;
    return true;
}

/* ---- one call ------------------------------------------------------------------------------------------- */

typedef struct product {
    cl_q *q;
    const wf_call *c;
    int variant;
    cl_buf scratch; /* the queue's, as operands are named */
    uint32_t step, steps;
} product;

static cl_dev *dev_of(const product *p)
{
    return (cl_dev *)p->q->base.dev;
}

/* What the next command signals: the last one the call's end, the first of several its beginning. */
static wf_event *next_signal(product *p)
{
    p->step++;
    return p->step == p->steps ? p->c->signal : p->step == 1 ? p->c->started : NULL;
}

static wf_view in_scratch(product *p, uint64_t at, uint32_t rows, uint32_t cols)
{
    return (wf_view){.buf = &p->scratch.base, .offset = at, .rows = rows, .cols = cols, .stride = cols, .dtype = WF_F32};
}

static wf_view some_columns(wf_view v, uint32_t first, uint32_t n)
{
    v.offset += (uint64_t)first * wf_dtypes[v.dtype].block_bytes; /* F32 or F16 */
    v.cols = n;
    return v;
}

static wf_view some_rows(wf_view v, uint32_t first, uint32_t n)
{
    v.offset += first * wf_cl_row_bytes(&v);
    v.rows = n;
    return v;
}

static weft_status run_panel(product *p, const wf_view *from, const wf_view *bias, const wf_view *res, const wf_view *to)
{
    cl_dev *d = dev_of(p);
    cl_launch l = {0};
    cl_kern *kern;
    wf_call part = {.op = p->c->op, .signal = next_signal(p)};
    configure_panel(&d->ref.caps, from, bias, res, to, d->var[WF_OP_GEMM][p->variant].limit, &l);
    WF_TRY(wf_cl_kernel_of(d, WF_OP_GEMM, p->variant, &l, &kern));
    if (!kern) return wf_fail(WEFT_ERR_UNSUPPORTED, "%s: no work-group is small enough for panels", d->ref.info.name);
    return wf_cl_enqueue(p->q, &part, kern->kernel, &l, "panel");
}

/* A device that still ends its work lives on, without this variant. */
static weft_status refused(const product *p, CLBlastStatusCode s, const wf_view *x, const wf_view *y)
{
    cl_dev *d = dev_of(p);
    const char *name = s < -1000 ? "of its own, see clblast_c.h" : wf_cl_error_name((cl_int)s);
    WF_TRY(wf_finish(&p->q->base));
    return wf_fail(WEFT_ERR_UNSUPPORTED, "%s: CLBlastSgemm(%u, %u, %u): status %d (%s); choose another kernel", d->ref.info.name,
                   y->rows, y->cols, x->cols, (int)s, name);
}

static cl_mem mem_of(const wf_view *v)
{
    return ((const cl_buf *)v->buf)->mem;
}

static size_t element(const wf_view *v)
{
    return v->offset / sizeof(float);
}

static weft_status multiply(product *p, const wf_view *x, const wf_view *w, const wf_view *y)
{
    wf_event *signal = next_signal(p);
    cl_event ev = NULL;
    CLBlastStatusCode s = CLBlastSgemm(CLBlastLayoutRowMajor, CLBlastTransposeNo, CLBlastTransposeYes, y->rows, y->cols, x->cols,
                                       1, mem_of(x), element(x), x->stride, mem_of(w), element(w), w->stride,
                                       0, mem_of(y), element(y), y->stride, &p->q->q, signal ? &ev : NULL);
    if (s != CLBlastSuccess) return refused(p, s, x, y);
    wf_cl_arm(signal, p->q, ev);
    return WEFT_OK;
}

/* Columns of Y from `first` on. */
static weft_status run_columns(product *p, const panels *at, const wf_view *x, uint32_t first)
{
    const wf_call *c = p->c;
    uint32_t n = WF_MIN(at->cols, c->out[0].cols - first);
    wf_view w = some_rows(c->in[1], first, n), y = some_columns(c->out[0], first, n);
    wf_view bias = some_columns(c->in[2], first, n), res = some_columns(c->in[3], first, n);
    wf_view w32 = at->w ? in_scratch(p, at->w_at, n, w.cols) : w, y32 = at->y ? in_scratch(p, at->y_at, y.rows, n) : y;
    if (at->w) WF_TRY(run_panel(p, &w, &none, &none, &w32));
    WF_TRY(multiply(p, x, &w32, &y32));
    return at->y ? run_panel(p, &y32, &bias, &res, &y) : WEFT_OK;
}

static weft_status run_call(cl_q *q, const wf_call *c, int variant)
{
    cl_dev *d = (cl_dev *)q->base.dev;
    panels at = panels_of(&d->ref.caps, c);
    product p = {.q = q, .c = c, .variant = variant};
    uint32_t n = c->out[0].cols;
    p.steps = at.x + (n + at.cols - 1) / at.cols * (at.w + 1u + at.y);
    WF_TRY(wf_cl_scratch(q, at.bytes));
    p.scratch.mem = q->scratch.mem;
    d->clblast = true;
    if (c->n_waits) WF_TRY(wf_cl_mark(&q->base, c->waits, c->n_waits, NULL)); /* its commands wait for no events */
    wf_view x = at.x ? in_scratch(&p, at.x_at, c->in[0].rows, c->in[0].cols) : c->in[0];
    if (at.x) WF_TRY(run_panel(&p, &c->in[0], &none, &none, &x));
    for (uint32_t first = 0; first < n; first += at.cols) WF_TRY(run_columns(&p, &at, &x, first));
    return WEFT_OK;
}

void wf_cl_clblast_close(cl_dev *d)
{
    if (d->clblast) CLBlastClearCache(); /* programs, which hold the context: at exit the driver may be gone before them */
}
