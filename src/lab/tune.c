/* tune: `weft tune`. For each shape of a model it finds the sizes at which the fastest kernel changes (the inflection
 * points of FlashDecoding++, section IV) and writes them to the device's tuning file (tuned.h).
 *
 * Where the device's own choice is the fastest, or nearly, the row leaves it to that, which may know sizes that were
 * not measured.
 *
 * A run that is ended early keeps the shapes that it has measured to their end; the next one begins with those that the
 * file lacks.
 *
 * Sizes double from 1. Between two sizes with different winners, bisection finds the point of change. A change must
 * gain 3 %, so that noise does not cause one. */
#include "base/file.h"
#include "dev/roofline.h"
#include "engine/engine.h"
#include "select/select.h"
#include "lab/measure.h"
#include "verify/bind.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_SHAPES   64
#define GAIN         0.97 /* a new winner needs at most this fraction of the old one's time */
#define BEATEN       1.2  /* no samples of a variant whose runs to warm up take so many times the best one's time */
#define MAX_SIZE     2048
#define AUTO         WF_MAX_VARIANTS /* as a variant: the device's own choice, whatever it is for a size */
#define MAX_LOGITS   64 /* most rows of the output matrix: sequences per batch */
#define REPEAT       3
#define SAMPLE_NS    20e6 /* all variants see the same end of a sample, which is an error of 1 % at most */

typedef struct job {
    wf_shape shape;
    uint32_t max_size;
} job;

/* A candidate variant for one shape. */
typedef struct racer {
    bool out;      /* can no longer win */
    uint32_t size; /* last measured size; 0: none */
    double ns;
} racer;

typedef struct tuner {
    const struct weft_tune_params *p;
    wf_dev *dev;
    wf_queue *q;
    job jobs[MAX_SHAPES];
    size_t n_jobs, at;
    uint64_t end_ns;              /* of measuring; 0: never */
    wf_tuned_table table;
    wf_problem problem;
    bool have;                    /* problem is valid */
    bool no_async[WF_N_MEASURED]; /* kinds without asynchronous kernels */
    racer racers[WF_MAX_VARIANTS];
    wf_step_times steps;
} tuner;

/* ---- what to measure ----------------------------------------------------------------------------------------- */

static bool is_same(const wf_shape *a, const wf_shape *b)
{
    return a->op == b->op && a->async == b->async && a->dtype == b->dtype && a->n == b->n && a->k == b->k &&
        a->seqs == b->seqs &&
           a->n_head == b->n_head && a->n_kv_head == b->n_kv_head && a->head_dim == b->head_dim;
}

static weft_status add_job(tuner *t, wf_shape s, uint32_t max_size)
{
    for (size_t i = 0; i < t->n_jobs; i++) {
        job *j = &t->jobs[i];
        if (!is_same(&j->shape, &s)) continue;
        j->max_size = WF_MAX(j->max_size, max_size);
        return WEFT_OK;
    }
    if (t->n_jobs == MAX_SHAPES) return wf_fail(WEFT_ERR_ARG, "more than %d shapes", MAX_SHAPES);
    t->jobs[t->n_jobs++] = (job){s, max_size};
    return WEFT_OK;
}

static uint32_t max_size(const tuner *t) { return t->p->max_size ? t->p->max_size : MAX_SIZE; }

/* Decode attention with few and with many sequences, and prefill attention. */
static weft_status add_attention(tuner *t, uint32_t n_head, uint32_t n_kv_head, uint32_t head_dim)
{
    static const uint32_t seqs[] = {1, 8, 64};
    wf_shape s = {.op = WF_TUNED_PREFILL, .dtype = WF_F16, .seqs = 1, .n_head = n_head, .n_kv_head = n_kv_head,
                  .head_dim = head_dim};
    WF_TRY(add_job(t, s, max_size(t)));
    s.op = WF_TUNED_DECODE;
    for (size_t i = 0; i < 2 * WF_LEN(seqs); i++) {
        s.seqs = seqs[i / 2];
        s.async = i % 2;
        WF_TRY(add_job(t, s, max_size(t)));
    }
    s.op = WF_TUNED_PREFILL;
    s.seqs = 1;
    return add_job(t, s, max_size(t));
}

static weft_status add_nodes(tuner *t, const wf_graph *g, const wf_weights *w)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        const wf_node *n = &g->nodes[i];
        if (n->op == WF_OP_ATTENTION) WF_TRY(add_attention(t, n->p.n_head, n->p.n_kv_head, n->p.head_dim));
        int32_t matrix = n->op == WF_OP_GEMM     ? n->in[WF_GEMM_W].value
                         : n->op == WF_OP_ROUTER ? n->in[WF_ROUTER_W].value /* may be a product of its own */
                                                 : -1;
        if (matrix < 0) continue;
        const wf_weight *m = &w->list[g->values[matrix].id];
        wf_shape s = {.op = WF_TUNED_GEMM, .dtype = m->dtype, .n = m->rows, .k = m->cols};
        WF_TRY(add_job(t, s, n->rows == WF_ROWS_LOGITS ? WF_MIN(max_size(t), MAX_LOGITS) : max_size(t)));
    }
    return WEFT_OK;
}

static weft_status add_model(tuner *t)
{
    const struct weft_model *m = t->p->model;
    wf_layout l = {.model = m, .dev = t->dev, .context = 16, .page_tokens = 16};
    if (!m->arch) return wf_fail(WEFT_ERR_ARG, "%s contains only a vocabulary", m->info.path);
    weft_status s = wf_layout_graph(&l);
    if (!s) s = add_nodes(t, &l.graph, &l.weights);
    wf_layout_free(&l);
    return s;
}

static weft_status add_given(tuner *t)
{
    uint8_t dtypes[8];
    size_t n;
    WF_TRY(wf_shape_dtypes(t->p->dtypes, dtypes, WF_LEN(dtypes), &n));
    for (size_t i = 0; i < t->p->n_shapes; i++) {
        wf_shape s;
        WF_TRY(wf_shape_parse(t->p->shapes[i], &s));
        if (s.m || s.length || s.seqs || s.window)
            return wf_fail(
                WEFT_ERR_ARG,
                "shape '%s': M, B and L are tuned over, and S is not tuned; write N=6144,K=4096 or H=32,KV=8,D=128",
                t->p->shapes[i]);
        if (s.op != WF_TUNED_GEMM) WF_TRY(add_attention(t, s.n_head, s.n_kv_head, s.head_dim));
        for (size_t d = 0; s.op == WF_TUNED_GEMM && d < n; d++) {
            s.dtype = dtypes[d];
            WF_TRY(wf_shape_check(&s));
            WF_TRY(add_job(t, s, max_size(t)));
        }
    }
    return WEFT_OK;
}

/* ---- when to end --------------------------------------------------------------------------------------------- */

static bool is_stopped(const tuner *t) { return t->p->stop && t->p->stop(t->p->user); }

/* The time is over once a shape is done: each run gets on. */
static bool is_over(const tuner *t)
{
    if (is_stopped(t)) return true;
    return t->at && t->end_ns && wf_now_ns() > t->end_ns;
}

/* ---- one size of one shape ----------------------------------------------------------------------------------- */

static weft_status set_size(tuner *t, const wf_shape *shape, uint32_t size)
{
    wf_shape s = *shape;
    if (t->have && s.op == WF_TUNED_GEMM) return wf_problem_rows(&t->problem, size);
    if (t->have) wf_problem_destroy(&t->problem);
    t->have = false;
    *(s.op == WF_TUNED_GEMM ? &s.m : &s.length) = size;
    /* Comparing kernels does not need operands that exceed the cache completely, which saves time. */
    uint64_t rotate = t->p->rotate ? t->p->rotate : WF_MIN(wf_cache_flush_bytes(t->dev), 1ull << 30);
    wf_stopper before = wf_stop_by(t->p->stop, t->p->user);
    weft_status made = wf_problem_create(t->dev, t->q, &s, rotate, &t->problem);
    wf_stop_by(before.fn, before.user);
    t->have = made == WEFT_OK;
    return made;
}

static weft_status clock_variant(tuner *t, int variant, double limit_ns, double *ns)
{
    return wf_clock_variant(&t->problem, variant, &(wf_clock){t->p->repeat ? t->p->repeat : REPEAT, SAMPLE_NS,
                                                              limit_ns}, ns);
}

/* Measures every variant that may win; ns[v] is 0 for the others. */
static weft_status race_variants(tuner *t, uint32_t size, int first, double *ns)
{
    const wf_variant *v;
    enum wf_op op = t->problem.call.op;
    WF_TRY(clock_variant(t, first, 0, &ns[first]));
    double best = ns[first];
    for (int i = 0; (v = wf_variant_at(t->dev, op, i)) && i < WF_MAX_VARIANTS && !is_over(t); i++) {
        bool usable;
        const racer *r = &t->racers[i];
        /* larger sizes are not faster */
        if (i == first || r->out || (v->flags & WF_REFERENCE) || r->ns > best) continue;
        WF_TRY(wf_clock_usable(&t->problem, i, &usable));
        if (usable) WF_TRY(clock_variant(t, i, BEATEN * best, &ns[i]));
        if (usable) best = WF_MIN(best, ns[i]);
    }
    for (int i = 0; i < WF_MAX_VARIANTS; i++) {
        racer *r = &t->racers[i];
        if (!(ns[i] > 0)) continue;
        bool grows = r->size && ns[i] / r->ns > 0.75 * size / r->size; /* a slower one that does cannot catch up */
        *r = (racer){.out = grows && ns[i] > 1.5 * best, .size = size, .ns = ns[i]};
    }
    return WEFT_OK;
}

/* The fastest variant; the default one or the previous stays unless another is clearly faster. */
static int fastest_of(const double *ns, int before, int usual)
{
    int best = usual, stay[] = {usual, before == AUTO ? -1 : before};
    for (int i = 0; i < WF_MAX_VARIANTS; i++)
        if (ns[i] > 0 && ns[i] < ns[best]) best = i;
    for (size_t i = 0; i < WF_LEN(stay); i++)
        if (stay[i] >= 0 && ns[stay[i]] > 0 && ns[best] > ns[stay[i]] * GAIN) return stay[i];
    return best;
}

/* ---- one shape ----------------------------------------------------------------------------------------------- */

/* Is `to` the one to take for the problem as it is? The device's own choice is, unless the other is clearly faster. */
static weft_status is_better(tuner *t, int from, int to, bool *better)
{
    double a = 0, b = 0; /* 0: it cannot run it */
    bool runs_old, runs_new;
    int usual = -1;
    WF_TRY(wf_prepare(t->dev, &t->problem.call, &usual));
    int old = from == AUTO ? usual : from, new = to == AUTO ? usual : to;
    *better = old == new && to == AUTO;
    if (old == new) return WEFT_OK;
    WF_TRY(wf_clock_usable(&t->problem, new, &runs_new));
    if (runs_new) WF_TRY(clock_variant(t, new, 0, &b));
    WF_TRY(wf_clock_usable(&t->problem, old, &runs_old));
    if (runs_old) WF_TRY(clock_variant(t, old, 0, &a));
    *better = b > 0 && (a <= 0 || (to == AUTO ? a >= b * GAIN : b < a * GAIN));
    return WEFT_OK;
}

/* Does any kernel need the asynchronous softmax to run these operands? */
static bool has_async(tuner *t)
{
    wf_call sync = t->problem.call;
    const wf_variant *v;
    sync.p.phi_lo = sync.p.phi_hi = 0;
    for (int i = 0; (v = wf_variant_at(t->dev, sync.op, i)); i++) {
        const wf_dev_fns *f = t->dev->fns;
        if (f->supports(t->dev, &t->problem.call, i) && !f->supports(t->dev, &sync, i)) return true;
    }
    return false;
}

static weft_status tune_size(tuner *t, const wf_shape *shape, uint32_t size, int *before, wf_tuned_row *row)
{
    double ns[WF_MAX_VARIANTS] = {0};
    int usual = -1;
    uint32_t from = row->n_steps ? size : 1;
    WF_TRY(set_size(t, shape, size));
    if (shape->async && !has_async(t)) {
        t->no_async[shape->op] = true;
        return WEFT_OK;
    }
    WF_TRY(wf_prepare(t->dev, &t->problem.call, &usual));
    if (usual >= WF_MAX_VARIANTS) return wf_fail(WEFT_ERR_INTERNAL, "more than %d variants", WF_MAX_VARIANTS);
    WF_TRY(race_variants(t, size, usual, ns));
    if (is_over(t)) return WEFT_OK;
    int best = fastest_of(ns, *before, usual), chosen = best == usual ? AUTO : best;
    enum wf_op op = t->problem.call.op;
    const char *best_name = wf_variant_at(t->dev, op, best)->name;
    char text[64];
    wf_tuned_shape(row, text, sizeof text);
    if (t->p->on_row)
        t->p->on_row(t->p->user, &(struct weft_tune_row){.op = wf_tuned_kinds[row->kind].name,
                                                         .dtype = wf_dtypes[row->dtype].name, .shape = text,
                                                         .size = size, .variant = best_name, .us = ns[best] * 1e-3,
                                                         .default_variant = wf_variant_at(t->dev, op, usual)->name,
                                                         .default_us = ns[usual] * 1e-3});
    /* The size from which it is better than the one before, to within an eighth. */
    for (uint32_t low = size / 2; shape->op == WF_TUNED_GEMM && *before >= 0 && chosen != *before;) {
        if (from - low <= WF_MAX(1, low / 8) || is_over(t)) break;
        uint32_t mid = low + (from - low) / 2;
        bool better;
        WF_TRY(set_size(t, shape, mid));
        WF_TRY(is_better(t, *before, chosen, &better));
        *(better ? &from : &low) = mid;
    }
    const char *name = chosen == AUTO ? WF_TUNED_AUTO : best_name;
    bool same = row->n_steps && !strcmp(row->step[row->n_steps - 1].variant, name);
    if (!same && row->n_steps < WF_TUNED_STEPS) { /* at most one change between two doublings */
        row->step[row->n_steps].from = from;
        wf_copy(row->step[row->n_steps++].variant, sizeof row->step[0].variant, name);
    }
    if (shape->op == WF_TUNED_GEMM && t->jobs[t->at].max_size == max_size(t))
        wf_step_times_add(&t->steps, size, ns[best]);
    *before = chosen;
    return WEFT_OK;
}

static wf_tuned_row row_of(const wf_shape *s)
{
    wf_tuned_row r = {
        .kind = s->op + (s->async ? WF_TUNED_ASYNC : 0), .dtype = s->dtype, .key = {s->n, s->k}};
    if (s->op == WF_TUNED_GEMM) return r;
    r.key[0] = s->n_head, r.key[1] = s->n_kv_head, r.key[2] = s->head_dim;
    r.key[3] = s->op == WF_TUNED_DECODE ? s->seqs : 0;
    return r;
}

/* What all kernels that will race want compiled, side by side: one after another took longer than the races.
 * Attention's are the same for all lengths. Where the largest size does not fit, they are compiled as they come. */
static weft_status compile_ahead(tuner *t, const job *j, uint32_t first)
{
    bool gemm = j->shape.op == WF_TUNED_GEMM;
    wf_call *calls = NULL;
    size_t n = 0, cap = 0;
    if (!t->dev->fns->prebuild) return WEFT_OK;
    weft_status s = set_size(t, &j->shape, gemm ? j->max_size : first);
    if (s) return s == WEFT_ERR_NOMEM ? WEFT_OK : s;
    for (uint32_t size = first; !s && size <= (gemm ? j->max_size : first); size *= 2) {
        wf_call c = t->problem.call;
        const wf_variant *v;
        if (gemm) c.in[WF_GEMM_X].rows = c.out[WF_GEMM_Y].rows = size;
        for (c.variant = 0; !s && (v = wf_variant_at(t->dev, c.op, c.variant)) &&
             c.variant < WF_MAX_VARIANTS; c.variant++) {
            if (v->flags & WF_REFERENCE || !t->dev->fns->supports(t->dev, &c, c.variant)) continue;
            if (wf_grow(&calls, n, &cap, sizeof c)) calls[n++] = c;
            else s = WEFT_ERR_NOMEM;
        }
    }
    if (!s) wf_bind_ahead(t->dev, calls, n);
    free(calls);
    return s;
}

/* Attention starts at 64 keys, because shorter ones are too fast to matter. *done: not ended before its last size,
 * whose choices would be missing. */
static weft_status tune_shape(tuner *t, const job *j, bool *done)
{
    wf_tuned_row row = row_of(&j->shape);
    int before = -1;
    uint32_t first = j->shape.op == WF_TUNED_GEMM ? 1 : WF_MIN(64, j->max_size);
    weft_status s = compile_ahead(t, j, first);
    memset(t->racers, 0, sizeof t->racers);
    for (uint32_t size = first; !s && size <= j->max_size && !(j->shape.async && t->no_async[j->shape.op]) &&
         !is_over(t); size *= 2)
        s = tune_size(t, &j->shape, size, &before, &row);
    *done = !is_over(t);
    if (s == WEFT_ERR_CANCELLED && !*done) s = WEFT_OK;
    if (t->have) wf_problem_destroy(&t->problem);
    t->have = false;
    if (s == WEFT_ERR_NOMEM && !t->dev->lost) {
        char shape[64];
        wf_tuned_shape(&row, shape, sizeof shape);
        wf_log(WEFT_LOG_WARN, "tuned %s %s only for smaller sizes: %s", wf_tuned_kinds[row.kind].name, shape,
               wf_error());
        s = WEFT_OK;
    }
    return s || !row.n_steps || !*done ? s : wf_tuned_put(&t->table, &row);
}

/* ---- the file ------------------------------------------------------------------------------------------------ */

static weft_status tune_device(tuner *t, char *path, size_t cap)
{
    const struct weft_tune_params *p = t->p;
    wf_open_params o = {.threads = p->threads, .tuned = "none", .no_kernel_cache = p->no_kernel_cache,
                        .on_progress = p->on_progress, .user = p->user};
    WF_TRY(wf_tier_parse(p->tier, &o.tier));
    WF_TRY(wf_select_open(p->device, &o, &t->dev));
    if (t->dev->timing_only) return wf_fail(WEFT_ERR_ARG, "%s computes nothing", t->dev->info.id);
    WF_TRY(p->n_shapes ? add_given(t) : add_model(t));
    WF_TRY(wf_keep_path(t->dev, p->path, path, cap));
    WF_TRY(wf_tuned_may_write(path)); /* fail before minutes of measuring, not after */
    WF_TRY(wf_queue_create(t->dev, &t->q));
    /* Shapes that the file lacks come first. */
    wf_tuned_table kept = {0};
    job ordered[MAX_SHAPES];
    size_t n = 0;
    if (access(path, F_OK) || wf_tuned_read(path, &t->dev->info, &kept) || kept.kernels != wf_tuned_kernels(t->dev))
        wf_tuned_free(&kept);
    for (int has = 0; has < 2; has++)
        for (const job *j = t->jobs; j < t->jobs + t->n_jobs; j++) {
            wf_tuned_row row = row_of(&j->shape);
            if (wf_tuned_has(&kept, &row) == has) ordered[n++] = *j;
        }
    memcpy(t->jobs, ordered, n * sizeof *ordered);
    wf_tuned_free(&kept);
    bool done = true;
    t->end_ns = p->seconds ? wf_now_ns() + p->seconds * 1000000000ull : 0;
    for (t->at = 0; t->at < t->n_jobs; t->at++) {
        if (p->on_progress) p->on_progress(p->user, "tune", (double)t->at / (double)t->n_jobs);
        WF_TRY(tune_shape(t, &t->jobs[t->at], &done));
        if (!done) break;
    }
    if (p->left) *p->left = t->n_jobs - t->at;
    /* Keeps rows of other shapes. */
    /* single shapes are not a whole step */
    uint32_t batch = t->p->model && t->at == t->n_jobs ? wf_dense_batch(&t->steps) : 0;
    wf_tuned_table all = {0};
    weft_status s = WEFT_OK;
    wf_kept_choices(t->dev, path, &all);
    if (batch) all.dense_batch = batch;
    for (size_t i = 0; !s && i < t->table.n; i++) s = wf_tuned_put(&all, &t->table.rows[i]);
    if (!s && !is_stopped(t)) s = wf_keep_ceilings(t->dev, &all, NULL);
    if (!s) s = wf_tuned_write(path, &t->dev->info, &all);
    if (t->p->dense_batch) *t->p->dense_batch = batch;
    wf_tuned_free(&all);
    return s;
}

weft_status weft_tune(const struct weft_tune_params *p, char *path, size_t cap)
{
    WF_NOT_NULL_LIST(p->shapes, p->n_shapes);
    char own[1100] = "";
    if (!p->model && !p->n_shapes)
        return wf_fail(WEFT_ERR_ARG, "weft_tune: a model or shapes are required");
    tuner *t = wf_calloc(1, sizeof *t);
    if (!t) return WEFT_ERR_NOMEM;
    t->p = p;
    weft_status s = tune_device(t, own, sizeof own);
    if (path && cap) wf_copy(path, cap, own);
    if (t->have) wf_problem_destroy(&t->problem);
    wf_queue_destroy(t->q);
    if (t->dev) wf_dev_close(t->dev);
    wf_tuned_free(&t->table);
    free(t);
    return s;
}
