/* A call of CLBlast: panels, products, and what follows them. */
#include "cl/ops/clblast.h"

#include <clblast_c.h>

static const wf_view none = {0};

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
    return (wf_view){
        .buf = &p->scratch.base, .offset = at, .rows = rows, .cols = cols, .stride = cols, .dtype = WF_F32};
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

static weft_status run_panel(product *p, const wf_view *from, const wf_view *bias, const wf_view *res,
                             const wf_view *to)
{
    cl_dev *d = dev_of(p);
    cl_launch l = {0};
    cl_kern *kern;
    wf_call part = {.op = p->c->op, .signal = next_signal(p)};
    wf_cl_configure_panel(&d->ref.caps, from, bias, res, to, d->var[WF_OP_GEMM][p->variant].limit, &l);
    WF_TRY(wf_cl_kernel_of(d, WF_OP_GEMM, p->variant, &l, &kern));
    if (!kern) return wf_fail(WEFT_ERR_UNSUPPORTED, "%s: no work-group is small enough for panels", d->ref.info.name);
    return wf_cl_enqueue(p->q, &part, kern, &l, "panel");
}

/* A device that still ends its work lives on, without this variant. */
static weft_status refused(const product *p, CLBlastStatusCode s, const wf_view *x, const wf_view *y)
{
    cl_dev *d = dev_of(p);
    const char *name = s < -1000 ? "of its own, see clblast_c.h" : wf_cl_error_name((cl_int)s);
    WF_TRY(wf_finish(&p->q->base));
    return wf_fail(WEFT_ERR_UNSUPPORTED, "%s: CLBlastSgemm(%u, %u, %u): status %d (%s); choose another kernel",
                   d->ref.info.name, y->rows, y->cols, x->cols, (int)s, name);
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
    CLBlastStatusCode s = CLBlastSgemm(CLBlastLayoutRowMajor, CLBlastTransposeNo, CLBlastTransposeYes, y->rows, y->cols,
                                       x->cols, 1, mem_of(x), element(x), x->stride, mem_of(w), element(w), w->stride,
                                       0, mem_of(y), element(y), y->stride, &p->q->q, signal ? &ev : NULL);
    if (s != CLBlastSuccess) return refused(p, s, x, y);
    wf_cl_arm(signal, p->q, ev);
    return WEFT_OK;
}

/* Columns of Y from `first` on. */
static weft_status run_columns(product *p, const cl_panels *at, const wf_view *x, uint32_t first)
{
    const wf_call *c = p->c;
    uint32_t n = WF_MIN(at->cols, c->out[WF_GEMM_Y].cols - first);
    wf_view w = some_rows(c->in[WF_GEMM_W], first, n), y = some_columns(c->out[WF_GEMM_Y], first, n);
    wf_view bias = some_columns(c->in[WF_GEMM_BIAS], first, n), res = some_columns(c->in[WF_GEMM_RESIDUAL], first, n);
    wf_view w32 = at->w ? in_scratch(p, at->w_at, n, w.cols) : w, y32 = at->y ? in_scratch(p, at->y_at, y.rows, n) : y;
    if (at->w) WF_TRY(run_panel(p, &w, &none, &none, &w32));
    WF_TRY(multiply(p, x, &w32, &y32));
    return at->y ? run_panel(p, &y32, &bias, &res, &y) : WEFT_OK;
}

weft_status wf_cl_clblast_run(cl_q *q, const wf_call *c, int variant)
{
    cl_dev *d = (cl_dev *)q->base.dev;
    cl_panels at = wf_cl_panels(&d->ref.caps, c);
    product p = {.q = q, .c = c, .variant = variant};
    uint32_t n = c->out[WF_GEMM_Y].cols;
    p.steps = at.x + (n + at.cols - 1) / at.cols * (at.w + 1u + at.y);
    WF_TRY(wf_cl_scratch(q, at.bytes));
    p.scratch.mem = q->scratch.mem;
    d->clblast = true;
    if (c->n_waits) WF_TRY(wf_cl_mark(&q->base, c->waits, c->n_waits, NULL)); /* its commands wait for no events */
    wf_view x = at.x ? in_scratch(&p, at.x_at, c->in[WF_GEMM_X].rows, c->in[WF_GEMM_X].cols) : c->in[WF_GEMM_X];
    if (at.x) WF_TRY(run_panel(&p, &c->in[WF_GEMM_X], &none, &none, &x));
    for (uint32_t first = 0; first < n; first += at.cols) WF_TRY(run_columns(&p, &at, &x, first));
    return WEFT_OK;
}

void wf_cl_clblast_close(cl_dev *d)
{
    /* programs, which hold the context: at exit the driver may be gone before them */
    if (d->clblast) CLBlastClearCache();
}
