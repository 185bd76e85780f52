/* bind.c: see bind.h. Owns a device's self-test cache: each distinct kernel (variant, dtypes, operands present, head
 * shape) is built and compared with the reference on a small problem, once, unless it passed at an earlier start
 * (kept.h); a wrong one is dropped and the next one tried. */
#include "verify/bind.h"
#include "dev/front.h"
#include "verify/check.h"
#include "verify/kept.h"

#include <stdlib.h>
#include <string.h>

/* What tells kernels apart. Compared as bytes: always zeroed first. */
typedef struct key {
    uint32_t op, variant, rows_class, decode;
    uint8_t in[WF_MAX_IN], out[WF_MAX_OUT]; /* 1 + dtype; 0: absent */
    uint32_t layout, in_place, silu, activation, capped;
    uint32_t n_head, n_kv_head, head_dim, n_rot, neox, page_tokens;
} key;

typedef struct selftest_cache {
    wf_verifier base;
    key *passed;
    size_t n, cap;
    wf_dev *ref; /* the CPU backend, opened at first need */
    wf_queue *q; /* of the device itself */
} selftest_cache;

static void close_cache(wf_dev *dev)
{
    selftest_cache *v = (selftest_cache *)dev->verifier;
    wf_queue_destroy(v->q);
    wf_dev_close(v->ref);
    free(v->passed);
    free(v);
    dev->verifier = NULL;
}

static weft_status cache_of(wf_dev *dev, selftest_cache **out)
{
    selftest_cache *v = (selftest_cache *)dev->verifier;
    if (!v) {
        if (!(v = wf_calloc(1, sizeof *v))) return WEFT_ERR_NOMEM;
        v->base.close = close_cache;
        dev->verifier = &v->base;
    }
    *out = v;
    return WEFT_OK;
}

static bool is_product(uint32_t op)
{
    return op == WF_OP_GEMM || op == WF_OP_GROUPED_GEMM;
}

/* Kernels for products are often chosen by the number of rows. */
static uint32_t rows_class(uint32_t m)
{
    return m > 64 ? 3 : m > 8 ? 2 : m > 1;
}

static bool in_place(const wf_call *c)
{
    int i = wf_op_input(c->op, WF_OPERAND_SHARED);
    return i >= 0 && c->in[i].buf && c->in[i].buf == c->out[0].buf && c->in[i].offset == c->out[0].offset;
}

static key key_of(const wf_call *c, int variant)
{
    const wf_op_params *p = &c->p;
    key k;
    memset(&k, 0, sizeof k);
    if (c->op == WF_OP_ACTIVATE || c->op == WF_OP_SILU_MUL || p->silu) k.activation = p->activation;
    k.op = c->op;
    k.variant = (uint32_t)variant;
    int weight = wf_op_input(c->op, WF_OPERAND_WEIGHT);
    k.layout = weight >= 0 ? c->in[weight].layout : 0;
    k.in_place = in_place(c);
    if (is_product(c->op)) k.rows_class = rows_class(c->in[0].rows), k.silu = p->silu;
    for (int i = 0; i < WF_MAX_IN; i++) k.in[i] = c->in[i].buf ? 1 + c->in[i].dtype : 0;
    for (int i = 0; i < WF_MAX_OUT; i++) k.out[i] = c->out[i].buf ? 1 + c->out[i].dtype : 0;
    if (c->op != WF_OP_ROPE_KV && c->op != WF_OP_ATTENTION && !(c->op == WF_OP_GEMM && p->rope)) return k;
    k.decode = c->op == WF_OP_ATTENTION && p->max_q == 1;
    k.capped = c->op == WF_OP_ATTENTION && p->softcap > 0;
    k.n_head = p->n_head, k.n_kv_head = p->n_kv_head, k.head_dim = p->head_dim;
    k.n_rot = p->n_rot, k.neox = p->neox, k.page_tokens = p->page_tokens;
    return k;
}

static bool has_passed(const selftest_cache *v, const key *k)
{
    for (size_t i = 0; i < v->n; i++) {
        if (!memcmp(&v->passed[i], k, sizeof *k)) return true;
    }
    return false;
}

/* ---- a small problem of the same kind ------------------------------------------------------------------ */

static wf_case case_of(const wf_call *c)
{
    enum { PAGE = 1 << 16 }; /* at least what a KV page has */
    const wf_view *x = &c->in[0];
    wf_case k = {.op = c->op, .seed = 1, .in = x->dtype, .weight = c->in[1].dtype,
                 .out = c->out[0].dtype, .m = c->out[0].rows, .k = x->cols, .p = c->p};
    int weight = wf_op_input(c->op, WF_OPERAND_WEIGHT);
    k.file_layout = weight >= 0 && !c->in[weight].layout;
    if (c->op == WF_OP_GET_ROWS) k.weight = x->dtype, k.n = x->rows, k.residual = c->in[WF_GET_ROWS_ADD].buf;
    if (c->op == WF_OP_GEMM) {
        k.n = c->in[WF_GEMM_W].rows;
        k.in_place = in_place(c);
        k.bias = c->in[WF_GEMM_BIAS].buf;
        k.residual = c->in[WF_GEMM_RESIDUAL].buf;
        k.norm = c->in[WF_GEMM_NORM].buf;
    }
    if (c->op == WF_OP_GROUPED_GEMM) {
        k.used = c->in[WF_GROUPED_GEMM_IDS].cols, k.n = wf_expert_rows(&c->p, c->out[WF_GROUPED_GEMM_Y].cols, k.used),
        k.k = c->in[WF_GROUPED_GEMM_W].cols;
        k.n_experts = c->in[WF_GROUPED_GEMM_W].rows / k.n;
        k.one_x = x->cols == k.k;
        k.bias = c->in[WF_GROUPED_GEMM_BIAS].buf;
    }
    if (c->op == WF_OP_ROUTER) {
        k.used = c->out[WF_ROUTER_IDS].cols;
        k.norm = wf_is_fused(c);
        if (k.norm) k.n = c->in[WF_ROUTER_W].rows, k.out = c->out[WF_ROUTER_Y].dtype;
    }
    if (c->op == WF_OP_WEIGHTED_SUM) {
        k.k = c->out[WF_WEIGHTED_SUM_Y].cols, k.used = x->cols / k.k;
        k.bias = c->in[WF_WEIGHTED_SUM_WEIGHTS].buf;
        k.residual = c->in[WF_WEIGHTED_SUM_RESIDUAL].buf;
        k.in_place = in_place(c);
    }
    if (c->op == WF_OP_RMSNORM) {
        k.k = c->in[WF_RMSNORM_W].rows * c->in[WF_RMSNORM_W].cols, k.n = x->cols / k.k;
        k.residual = c->in[WF_RMSNORM_RESIDUAL].buf;
        k.in_place = in_place(c);
    }
    if (c->op == WF_OP_ARGMAX) k.m = x->rows;
    if (c->op == WF_OP_PAGE_COPY) {
        k.m = (uint32_t)WF_MIN((uint64_t)c->in[WF_PAGE_COPY_SRC].rows * c->in[WF_PAGE_COPY_SRC].cols, 1u << 20);
        k.n = x->rows;
        k.k = WF_MIN(k.k, PAGE + k.k % 8); /* larger pages are copied alike */
        k.in_place = in_place(c);
    }
    if (c->op == WF_OP_TOKEN_SUBST) {
        k.m = x->rows * x->cols;
        k.k = c->in[WF_TOKEN_SUBST_FROM].rows * c->in[WF_TOKEN_SUBST_FROM].cols;
        k.in_place = in_place(c);
    }
    if (c->op == WF_OP_SILU_MUL) k.k = c->out[WF_SILU_MUL_Y].cols, k.in_place = in_place(c);
    if (c->op == WF_OP_ACTIVATE) k.in_place = in_place(c);
    if (c->op == WF_OP_ROPE_KV) k.n = 32;
    k.sinks = c->op == WF_OP_ATTENTION && c->in[WF_ATTENTION_SINKS].buf;
    if (c->op == WF_OP_ATTENTION)
        k.windows = c->in[WF_ATTENTION_AROUND].buf    ? WF_WINDOWS_AROUND
                    : c->in[WF_ATTENTION_WINDOWS].buf ? WF_WINDOWS_MIXED
                                                      : WF_WINDOWS_NONE;
    const wf_view *pool = c->op == WF_OP_ROPE_KV             ? &c->out[WF_ROPE_KV_K_POOL]
                          : c->op == WF_OP_ATTENTION         ? &c->in[WF_ATTENTION_K_POOL]
                          : c->op == WF_OP_GEMM && c->p.rope ? &c->out[WF_GEMM_K_POOL]
                                                             : NULL;
    if (pool && pool->stride > pool->cols) k.pad = 8;
    if (pool) k.kv = pool->dtype;
    k.max_kv = c->p.max_kv ? c->p.max_kv : UINT32_MAX;
    k.max_q = c->p.max_q ? c->p.max_q : UINT32_MAX;
    k.n_seqs = 3;
    return k;
}

/* Sizes to try, small ones first: a variant may need more rows or columns than the least. */
enum { STEPS = 4 };
static wf_case shrink_case(const wf_case *from, int step)
{
    static const uint32_t rows[] = {1, 5, 33, 70};
    /* A K of 512 is twice around the four slots of cl/nvidia/gemm.c, 300 keys are more tiles than cl/nvidia/attention.c
     * has under way. */
    static const uint32_t sizes[STEPS][3] = {{48, 512, 300}, {128, 512, 300}, {256, 512, 600}, {2048, 2048, 1100}};
    wf_case c = *from;
    if (c.op != WF_OP_ROUTER) c.n = WF_MIN(c.n, sizes[step][0]); /* who may have chosen more */
    c.m = WF_MIN(c.m, is_product(c.op) ? rows[rows_class(c.m)] : 7);
    if (is_product(c.op)) c.k = WF_MIN(c.k, sizes[step][1]);
    c.n_experts = WF_MIN(c.n_experts, WF_MAX(c.used, 4u));
    if (c.op == WF_OP_GEMM && c.p.rope) {
        /* q, k and v of two KV heads at most. */
        wf_op_params *p = &c.p;
        uint32_t queries = p->n_head / p->n_kv_head;
        p->n_kv_head = WF_MIN(p->n_kv_head, 2u);
        p->n_head = p->n_kv_head * queries;
        c.n = (p->n_head + 2 * p->n_kv_head) * p->head_dim;
    }
    c.max_kv = WF_MIN(c.max_kv, sizes[step][2]);
    c.max_q = WF_MIN(c.max_q, WF_MIN(c.max_kv, 20u << step));
    return c;
}

/* *out->supported false: no small problem suits this variant. */
static weft_status run_test(wf_dev *dev, const wf_case *from, int variant, wf_check_result *out)
{
    selftest_cache *v = (selftest_cache *)dev->verifier;
    /* Few threads, for the problems are small; opening is cheap, so most programs never pay for it. */
    wf_open_params p = {.tier = WF_TIER_BASE, .threads = 1};
    if (!v->ref) WF_TRY(wf_dev_open("cpu", &p, &v->ref));
    WF_TRY(v->q ? WEFT_OK : wf_queue_create(dev, &v->q));
    for (int step = 0; step < STEPS && !out->supported; step++) {
        wf_case c = shrink_case(from, step);
        wf_check *k;
        WF_TRY(wf_stop_now());
        WF_TRY(wf_check_new(v->ref, &c, &k));
        weft_status s = wf_check_run(k, dev, v->q, variant, false, out);
        wf_check_free(k);
        WF_TRY(s);
    }
    dev->kernel_work.tested++;
    return WEFT_OK;
}

/* The largest problem stands for all steps: they follow from it. */
static weft_status self_test(wf_dev *dev, const wf_call *call, const wf_bound *b, wf_check_result *out)
{
    uint64_t began = wf_now_ns();
    wf_case from = case_of(call), largest = shrink_case(&from, STEPS - 1);
    wf_kept kept = wf_kept_find(dev, &largest, b);
    weft_status s = WEFT_OK;
    memset(out, 0, sizeof *out);
    if (!kept.passed) {
        s = run_test(dev, &from, (int)b->variant, out);
        wf_kept_update(&kept, dev, !s && out->supported && out->ok);
    }
    dev->kernel_work.tested_before += kept.passed;
    dev->kernel_work.tested_ns += wf_now_ns() - began;
    wf_kept_free(&kept);
    return s;
}

/* ---- building, testing, dropping ------------------------------------------------------------------------- */

enum outcome { GOOD, NOT_HERE /* the build showed that it cannot run these operands */, BAD };

static void warn_of_kernel(wf_dev *dev, const char *op, const char *name, const char *what, const char *why)
{
    wf_log(WEFT_LOG_WARN, "%s (%s): %s kernel %s %s, it is not used: %s", dev->info.id, dev->info.name, op,
           name, what, why);
}

static weft_status bind_variant(wf_dev *dev, const wf_call *c, int variant, wf_bound *out)
{
    *out = (wf_bound){.variant = variant};
    return dev->fns->bind ? dev->fns->bind(dev, c, variant, out) : WEFT_OK;
}

/* Says nothing about the kernel. */
static bool is_foreign(const wf_dev *dev, weft_status s)
{
    return s && (dev->lost || s == WEFT_ERR_NOMEM || s == WEFT_ERR_CANCELLED);
}

/* Builds the variant for this very call, and tests it where none of its kind was tested. */
static weft_status try_variant(wf_dev *dev, const wf_call *c, int variant, bool tested, wf_bound *out,
                               enum outcome *outcome)
{
    const char *op = wf_ops[c->op].name, *name = wf_variant_at(dev, c->op, variant)->name;
    wf_check_result r = {0};
    *outcome = BAD;
    weft_status s = bind_variant(dev, c, variant, out);
    bool built = !s;
    if (!s && !tested) s = self_test(dev, c, out, &r);
    if (is_foreign(dev, s)) return wf_fail_context(s, "%s kernel %s", op, name);
    if (s == WEFT_ERR_UNSUPPORTED && !dev->fns->supports(dev, c, variant)) *outcome = NOT_HERE;
    else if (s) warn_of_kernel(dev, op, name, built ? "cannot run" : "does not build", wf_error());
    else if (r.supported && !r.ok) warn_of_kernel(dev, op, name, "computes wrong results", r.message);
    else *outcome = GOOD;
    return WEFT_OK;
}

static weft_status remember_pass(selftest_cache *v, const key *k)
{
    if (!wf_grow(&v->passed, v->n, &v->cap, sizeof *k)) return WEFT_ERR_NOMEM;
    v->passed[v->n++] = *k;
    return WEFT_OK;
}

/* The call's own variant, if it can run it, else the selector's. */
static int first_pick(wf_dev *dev, const wf_call *c)
{
    return c->variant >= 0 && wf_can_use(dev, c, c->variant) ? c->variant : wf_pick(dev, c);
}

/* One kernel for the call as it is. Each that fails is dropped, so that the next is another one. */
static weft_status bind_kernel(wf_dev *dev, selftest_cache *v, const wf_call *c, wf_bound *out)
{
    int pick = first_pick(dev, c);
    for (int last = -1;; last = pick, pick = wf_pick(dev, c)) {
        if (pick < 0 || pick == last) {
            if (last < 0) {
                return wf_fail(WEFT_ERR_UNSUPPORTED, "%s (%s) has no kernel for %s with these operands",
                               dev->info.id, dev->info.name, wf_ops[c->op].name);
            }
            return wf_fail(WEFT_ERR_DEVICE, "%s (%s): every kernel for %s failed to build, cannot run or computed "
                           "wrong results; use another device or update its driver", dev->info.id, dev->info.name,
                           wf_ops[c->op].name);
        }
        key k = key_of(c, pick);
        enum outcome outcome;
        if (dev->timing_only) return bind_variant(dev, c, pick, out);
        bool tested = has_passed(v, &k);
        WF_TRY(try_variant(dev, c, pick, tested, out, &outcome));
        if (outcome == GOOD) return tested ? WEFT_OK : remember_pass(v, &k);
        if (outcome == BAD) wf_drop(dev, c, pick);
    }
}

/* *again: a fused kernel was dropped, which leaves smaller pieces. */
static weft_status bind_pieces(wf_dev *dev, selftest_cache *v, const wf_call *c, wf_binding *out, bool *again)
{
    enum wf_piece piece[WF_MAX_PIECES];
    out->n = (uint8_t)wf_pieces(dev, c, piece);
    for (uint8_t i = 0; i < out->n; i++) {
        wf_call part = wf_piece_of(c, piece[i]);
        out->part[i].piece = (uint8_t)piece[i], out->part[i].op = (uint8_t)part.op;
        weft_status s = bind_kernel(dev, v, &part, &out->part[i].b);
        *again = s && !is_foreign(dev, s) && !wf_has_fused_kernel(dev, &part);
        WF_TRY(s);
    }
    return WEFT_OK;
}

weft_status wf_bind(wf_dev *dev, const wf_call *c, wf_binding *out)
{
    selftest_cache *v;
    bool again = false;
    memset(out, 0, sizeof *out);
    WF_TRY(wf_stop_now());
    WF_TRY(wf_dev_usable(dev, "bind"));
    WF_TRY(cache_of(dev, &v));
    for (;;) {
        WF_TRY(wf_call_check(dev, c));
        weft_status s = bind_pieces(dev, v, c, out, &again);
        if (!again) return s;
    }
}

/* ---- what will be built -------------------------------------------------------------------------------- */

typedef struct foresight {
    wf_dev *dev;
    selftest_cache *v, seen; /* passed; whose self-tests are among the calls */
    wf_buf stand_in;         /* for operands of self-tests */
    wf_call *calls;
    size_t n, cap;
} foresight;

static void foresee_call(foresight *f, const wf_call *c)
{
    if (wf_grow(&f->calls, f->n, &f->cap, sizeof *c)) f->calls[f->n++] = *c;
}

/* As run_test() will. */
static void foresee_test(foresight *f, const wf_call *call)
{
    key k = key_of(call, call->variant);
    wf_case from = case_of(call);
    bool found = has_passed(f->v, &k) || has_passed(&f->seen, &k) || remember_pass(&f->seen, &k);
    for (int step = 0; step < STEPS && !found; step++) {
        wf_case c = shrink_case(&from, step);
        wf_check *check;
        wf_call test;
        if (wf_check_new(NULL, &c, &check)) return;
        found = wf_check_supported_call(check, f->dev, call->variant, &f->stand_in, &test);
        wf_check_free(check);
        if (found) foresee_call(f, &test);
    }
}

static void foresee_pieces(foresight *f, const wf_call *c)
{
    enum wf_piece piece[WF_MAX_PIECES];
    size_t n = wf_pieces(f->dev, c, piece);
    for (size_t i = 0; i < n; i++) {
        wf_call part = wf_piece_of(c, piece[i]);
        part.variant = first_pick(f->dev, &part);
        if (part.variant < 0) continue;
        foresee_call(f, &part);
        foresee_test(f, &part);
    }
}

void wf_bind_ahead(wf_dev *dev, const wf_call *calls, size_t n)
{
    foresight f = {.dev = dev, .stand_in = {dev, UINT64_MAX, NULL}};
    if (!dev->fns->prebuild || dev->lost || cache_of(dev, &f.v)) return;
    for (size_t i = 0; i < n && wf_stop_now() == WEFT_OK; i++)
        if (wf_call_check(dev, &calls[i]) == WEFT_OK) foresee_pieces(&f, &calls[i]);
    dev->fns->prebuild(dev, f.calls, f.n);
    if (dev->selector) dev->selector->forget(dev);
    free(f.seen.passed);
    free(f.calls);
}

weft_status wf_prepare(wf_dev *dev, const wf_call *c, int *variant)
{
    wf_binding b;
    WF_TRY(wf_bind(dev, c, &b));
    for (uint8_t i = 0; i < b.n; i++)
        if (b.part[i].op == c->op) *variant = b.part[i].b.variant;
    return WEFT_OK;
}
