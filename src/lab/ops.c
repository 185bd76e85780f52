/* ops: `weft bench ops`: chooses shapes and variants and reports a row for each measurement. */
#include "select/select.h"
#include "lab/measure.h"
#include "tensor/kv.h"
#include "verify/bind.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DTYPES 8
#define MAX_SHAPES 512
#define REPEAT     5

typedef struct session {
    const struct weft_op_params *p;
    wf_dev *dev;
    wf_queue *q;
    wf_ceilings top;
    struct weft_ceilings shown;
    bool wanted[WF_N_MEASURED], wants_copies;
    enum wf_dtype kv;
    wf_shape *shape; /* what to measure, grouped by weight matrix */
    size_t n;
} session;

/* ---- which shapes -------------------------------------------------------------------------------------------- */

/* Llama-3-8B: QKV, O, gate and up, down. */
static const uint32_t llama[][2] = {{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}};
static const uint32_t rows[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
static const uint32_t decode[][2] = {{1, 8192}, {8, 4096}, {64, 1024}, {64, 4096}, {256, 1024}};
static const uint32_t prefill[][2] = {{1, 512}, {1, 2048}, {1, 8192}, {4, 2048}};

static weft_status add_shape(session *s, wf_shape shape)
{
    bool all_rows = shape.op == WF_TUNED_GEMM && !shape.m;
    for (size_t i = 0; i < (all_rows ? WF_LEN(rows) : 1); i++) {
        if (all_rows) shape.m = rows[i];
        if (s->n == MAX_SHAPES)
            return wf_fail(WEFT_ERR_ARG, "more than %d combinations of shapes and formats", MAX_SHAPES);
        WF_TRY(wf_shape_check(&shape));
        s->shape[s->n++] = shape;
    }
    return WEFT_OK;
}

static weft_status add_default(session *s, enum wf_tuned_op op, uint8_t dtype)
{
    for (size_t i = 0; op == WF_TUNED_GEMM && i < WF_LEN(llama); i++)
        WF_TRY(add_shape(s, (wf_shape){.op = op, .dtype = dtype, .n = llama[i][0], .k = llama[i][1]}));
    for (size_t i = 0; op != WF_TUNED_GEMM && i < (op == WF_TUNED_DECODE ? WF_LEN(decode) : WF_LEN(prefill)); i++) {
        const uint32_t *bl = op == WF_TUNED_DECODE ? decode[i] : prefill[i];
        WF_TRY(add_shape(s, (wf_shape){.op = op, .async = s->p->async, .dtype = s->kv, .seqs = bl[0], .length = bl[1],
                                       .n_head = 32, .n_kv_head = 8, .head_dim = 128}));
    }
    return WEFT_OK;
}

/* Adds the user's shapes for this op; *any: there were some. */
static weft_status add_given(session *s, enum wf_tuned_op op, uint8_t dtype, bool *any)
{
    for (size_t i = 0; i < s->p->n_shapes; i++) {
        wf_shape shape;
        WF_TRY(wf_shape_parse(s->p->shapes[i], &shape));
        if ((shape.op == WF_TUNED_GEMM) != (op == WF_TUNED_GEMM)) continue;
        *any = true;
        shape.op = op;
        shape.async = s->p->async && op != WF_TUNED_GEMM;
        shape.dtype = op == WF_TUNED_GEMM ? dtype : s->kv;
        if (op != WF_TUNED_GEMM && (!shape.seqs || !shape.length))
            return wf_fail(WEFT_ERR_ARG, "shape '%s': B and L are needed", s->p->shapes[i]);
        WF_TRY(add_shape(s, shape));
    }
    return WEFT_OK;
}

static const char copies_name[] = "kv_copy"; /* of no shape */

static weft_status want_ops(session *s)
{
    for (int i = 0; i < WF_N_MEASURED; i++) s->wanted[i] = !s->p->ops;
    for (const char *p = s->p->ops; p; p++) {
        size_t n = strcspn(p, ","), i = 0;
        bool copies = n == strlen(copies_name) && !strncmp(p, copies_name, n);
        s->wants_copies |= copies;
        while (i < WF_N_MEASURED && (strlen(wf_tuned_kinds[i].name) != n || strncmp(p, wf_tuned_kinds[i].name, n))) i++;
        if (i == WF_N_MEASURED && !copies)
            return wf_fail(WEFT_ERR_ARG,
                           "cannot measure '%.*s': use gemm, decode_attention, prefill_attention or kv_copy", (int)n,
                           p);
        if (!copies) s->wanted[i] = true;
        p += n;
        if (!*p) break;
    }
    return WEFT_OK;
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

static struct weft_op_row row_of(const session *s, const wf_shape *shape, char *text, size_t cap)
{
    wf_shape_text(shape, text, cap);
    bool bytes = wf_shape_counts_bytes(shape);
    return (struct weft_op_row){.device = &s->dev->info, .ceilings = &s->shown, .op = wf_tuned_kinds[shape->op].name,
                                .dtype = wf_dtypes[shape->dtype].name, .shape = text, .message = "", .unit = bytes
                                ? "GB/s" : "TFLOP/s", .ceiling_pct = -1};
}

static void skip_shape(session *s, const wf_shape *shape, const char *why)
{
    char text[96];
    struct weft_op_row r = row_of(s, shape, text, sizeof text);
    r.message = why;
    s->p->on_row(s->p->user, &r);
}

static weft_status measure_variant(session *s, wf_problem *p, int variant, bool picked)
{
    char text[96];
    double ns = 0;
    const wf_shape *shape = &p->shape;
    const wf_clock clock = {.repeat = s->p->repeat ? s->p->repeat : REPEAT, .limit_ns = s->p->limit_ms * 1e6};
    WF_TRY(wf_clock_variant(p, variant, &clock, &ns));
    struct weft_op_row r = row_of(s, shape, text, sizeof text);
    r.variant = wf_variant_at(s->dev, p->call.op, variant)->name;
    r.picked = picked;
    r.median_us = ns * 1e-3;
    double flops = wf_shape_flops(shape), bytes = wf_shape_bytes(shape), ops = s->top.ops[WF_ARITH_F32];
    r.rate = wf_shape_counts_bytes(shape) ? bytes / ns : flops / ns * 1e-3;
    /* The compute ceiling is that of the fastest unit that any variant for these operands uses. */
    const wf_variant *v;
    for (int i = 0; (v = wf_variant_at(s->dev, p->call.op, i)); i++)
        if (v->arith < WF_N_ARITH && s->dev->fns->supports(s->dev, &p->call, i))
            ops = WF_MAX(ops, s->top.ops[v->arith]);
    if (ops > 0 && s->top.read > 0) r.ceiling_pct = 100 * WF_MAX(flops / ops, bytes / s->top.read) * 1e9 / ns;
    s->p->on_row(s->p->user, &r);
    return WEFT_OK;
}

/* Measures the requested variants: one by name, all, or the selected one. */
static weft_status measure_variants(session *s, wf_problem *p)
{
    const char *name = s->p->variant;
    const wf_variant *v;
    int picked = -1, n = 0;
    weft_status st = wf_prepare(s->dev, &p->call, &picked);
    if (st && st != WEFT_ERR_UNSUPPORTED) return st;
    for (int i = 0; (v = wf_variant_at(s->dev, p->call.op, i)); i++) {
        bool usable, all = name && !strcmp(name, "all");
        if (name ? (all ? (v->flags & WF_REFERENCE) && i != picked : strcmp(name, v->name) != 0) : i != picked)
            continue;
        WF_TRY(wf_clock_usable(p, i, &usable));
        if (!usable) continue;
        WF_TRY(measure_variant(s, p, i, i == picked));
        n++;
    }
    if (!n)
        skip_shape(s, &p->shape, name && strcmp(name, "all") ? "this variant cannot run it" : "no kernel can run it");
    return WEFT_OK;
}

static weft_status measure_all(session *s)
{
    wf_problem p = {0};
    uint64_t rotate = s->p->rotate ? s->p->rotate : wf_cache_flush_bytes(s->dev);
    bool have = false;
    weft_status st = s->dev->fns->measure ? s->dev->fns->measure(s->dev, &s->top) : WEFT_OK;
    s->shown = (struct weft_ceilings){s->top.read, s->top.ops[WF_ARITH_F32], s->top.ops[WF_ARITH_F16],
                                      s->top.ops[WF_ARITH_Q8]};
    for (size_t i = 0; !st && i < s->n; i++) {
        const wf_shape *a = &p.shape, *b = &s->shape[i];
        if (s->p->on_progress) s->p->on_progress(s->p->user, "bench", (double)i / (double)s->n);
        if (have && a->op == WF_TUNED_GEMM && b->op == WF_TUNED_GEMM && a->dtype == b->dtype && a->n == b->n &&
            a->k == b->k) {
            st = wf_problem_rows(&p, b->m); /* with the same weights */
        } else {
            if (have) wf_problem_destroy(&p);
            st = wf_problem_create(s->dev, s->q, b, rotate, &p);
            have = st == WEFT_OK;
            if (have) p.call.max_groups = s->p->work_groups;
        }
        bool ready = st == WEFT_OK;
        if (ready) st = measure_variants(s, &p);
        if (st && (s->p->go_on ? !s->dev->lost : !ready && st == WEFT_ERR_NOMEM))
            skip_shape(s, b, wf_error()), st = WEFT_OK;
    }
    if (have) wf_problem_destroy(&p);
    if (!st && s->wants_copies)
        st = wf_bench_copies(s->dev, &s->shown, s->p->repeat ? s->p->repeat : REPEAT, s->p->on_row, s->p->user);
    return st;
}

/* ---- the device ---------------------------------------------------------------------------------------------- */

static weft_status measure_session(session *s)
{
    const struct weft_op_params *p = s->p;
    const char *name = p->variant;
    wf_open_params o = {.threads = p->threads, .force = p->force, .tuned = p->tuned,
                        .no_kernel_cache = p->no_kernel_cache, .deterministic = p->deterministic,
                        .on_progress = p->on_progress, .user = p->user};
    WF_TRY(wf_tier_parse(p->tier, &o.tier));
    uint8_t dtypes[MAX_DTYPES];
    size_t n;
    WF_TRY(want_ops(s));
    WF_TRY(wf_shape_dtypes(s->p->dtypes, dtypes, MAX_DTYPES, &n));
    s->shape = wf_calloc(MAX_SHAPES, sizeof *s->shape);
    if (!s->shape) return WEFT_ERR_NOMEM;
    for (int op = 0; op < WF_N_MEASURED; op++) {
        if (!s->wanted[op]) continue;
        for (size_t t = 0; t < (op == WF_TUNED_GEMM ? n : 1); t++) {
            bool any = false;
            if (s->p->n_shapes) WF_TRY(add_given(s, (enum wf_tuned_op)op, dtypes[t], &any));
            else WF_TRY(add_default(s, (enum wf_tuned_op)op, dtypes[t]));
            if (s->p->n_shapes && s->p->ops && !any)
                return wf_fail(WEFT_ERR_ARG, "no shape for %s (weft_op_params.shapes)", wf_tuned_kinds[op].name);
        }
    }
    WF_TRY(wf_select_open(p->device, &o, &s->dev));
    if (name && strcmp(name, "all") && wf_variant_find(s->dev, WF_OP_GEMM, name) < 0 &&
        wf_variant_find(s->dev, WF_OP_ATTENTION, name) < 0)
        return wf_fail(WEFT_ERR_ARG, "%s has no kernel variant '%s'; `weft kernels` lists them", s->dev->info.id, name);
    if (s->dev->timing_only) return wf_fail(WEFT_ERR_ARG, "%s computes nothing", s->dev->info.id);
    WF_TRY(wf_queue_create(s->dev, &s->q));
    return measure_all(s);
}

weft_status weft_bench_ops(const struct weft_op_params *p)
{
    WF_NOT_NULL_LIST(p->shapes, p->n_shapes);
    session s = {.p = p};
    if (!wf_kv_dtype_named(p->kv_dtype, &s.kv))
        return wf_fail(WEFT_ERR_ARG, "kv_dtype \"%s\": want f16 or q8_0", p->kv_dtype);
    weft_status st = measure_session(&s);
    wf_queue_destroy(s.q);
    if (s.dev) wf_dev_close(s.dev);
    free(s.shape);
    return st;
}

weft_status weft_device_named(const char *device, struct weft_device_info *out)
{
    wf_dev *dev;
    WF_TRY(wf_dev_open(device, NULL, &dev));
    *out = dev->info;
    wf_dev_close(dev);
    return WEFT_OK;
}

void weft_device_file(const struct weft_device_info *d, char *buf, size_t cap)
{
    if (d && buf) wf_device_slug(d, buf, cap);
}
