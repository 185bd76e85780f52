/* timeline: when each op of a step runs and what it uses of the device meanwhile, as a profile and the simulator
 * predict it and as the device tells it (NanoFlow, figure 10).
 *
 *   batch, plan --> profile --> wf_simulate --> pieces --> steps of use
 *                   device  --> spans       ----^
 */
#include "plan/cost.h"
#include "plan/simulate.h"
#include "plan/step_cost.h"
#include "lab/measure.h"
#include "lab/overlap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 5 };

typedef struct view {
    struct weft_engine *e;
    const struct weft_timeline_params *p;
    wf_batch batch;
    size_t choice; /* the plan */
    const wf_plan *plan;
    wf_sim_batch sim;
    wf_op_profile profile;
    struct weft_timeline *out;
} view;

const char *weft_class_name(enum weft_class c)
{
    _Static_assert((int)WEFT_N_CLASSES == (int)WF_N_CLASSES && (int)WEFT_CLASS_COPY == (int)WF_CLASS_COPY,
                   "the same classes inside and outside");
    return c >= 0 && c < WEFT_N_CLASSES ? wf_class_name((enum wf_class)c) : "unknown";
}

/* ---- nano-operations ----------------------------------------------------------------------------------------- */

static const wf_node *node_of(const view *v, size_t i) { return &v->e->layout.graph.nodes[v->plan->nanos[i].node]; }

/* Those that a greedy step has. */
static wf_range rows_of(const view *v, size_t i)
{
    const wf_node *n = node_of(v, i);
    return !wf_node_is_usual(n) ? (wf_range){0} : wf_nano_range(n, &v->plan->nanos[i], v->sim.decodes, v->sim.tokens,
                                                                v->sim.logits);
}

/* That a row attends to on average. */
static double keys_of(const wf_node *n, double context) { return n->rows == WF_ROWS_PREFILL ? context / 2 : context; }

static enum wf_class class_of(const view *v, size_t i)
{
    const wf_node *n = node_of(v, i);
    const wf_op_times *op = wf_op_profile_find(&v->profile, n->name);
    return op ? op->class : wf_node_class(&v->e->layout.graph, n, rows_of(v, i).count, keys_of(n, v->batch.max_kv),
                                          wf_ridge(v->e->dev->info.type));
}

static void add_op(const view *v, struct weft_timeline_step *s, size_t i, double begin_us, double end_us)
{
    wf_range r = rows_of(v, i);
    struct weft_timeline_op *op = &s->ops[s->n_ops++];
    *op = (struct weft_timeline_op){.layer = node_of(v, i)->layer, .op_class = (enum weft_class)class_of(v, i),
                                    .queue = v->plan->nanos[i].queue, .begin = r.first, .end = r.first + r.count,
                                    .begin_us = begin_us, .end_us = end_us};
    wf_copy(op->name, sizeof op->name, node_of(v, i)->name);
}

/* ---- use over time ------------------------------------------------------------------------------------------- */

typedef struct change { /* of the use, from a time on */
    double us, by[WEFT_N_CLASSES];
} change;

typedef struct curve {
    change *list;
    size_t n, cap;
} curve;

static weft_status add_change(curve *c, double us, const double *use, double sign)
{
    if (!wf_grow(&c->list, c->n, &c->cap, sizeof *c->list)) return WEFT_ERR_NOMEM;
    c->list[c->n] = (change){.us = us};
    for (size_t k = 0; k < WEFT_N_CLASSES; k++) c->list[c->n].by[k] = sign * use[k];
    c->n++;
    return WEFT_OK;
}

/* A part of the work of a nano-operation, done from one time to another. What copies and networks could do at most
 * is not measured. */
static weft_status add_use(const view *v, curve *c, const wf_machine *m, size_t i, double begin_us, double end_us,
                           double done)
{
    const wf_node *n = node_of(v, i);
    double use[WEFT_N_CLASSES] = {0}, us = end_us - begin_us;
    enum wf_class class = class_of(v, i);
    if (us <= 0) return WEFT_OK;
    if (class == WF_CLASS_COPY || class == WF_CLASS_NETWORK) use[class] = 1;
    else {
        wf_op_cost cost = wf_node_cost(&v->e->layout.graph, n, rows_of(v, i).count, keys_of(n, v->batch.max_kv), m);
        use[WEFT_CLASS_COMPUTE] = cost.seconds[WF_LIMIT_COMPUTE] * 1e6 * done / us;
        use[WEFT_CLASS_MEMORY] = cost.seconds[WF_LIMIT_MEMORY] * 1e6 * done / us;
    }
    WF_TRY(add_change(c, begin_us, use, 1));
    return add_change(c, end_us, use, -1);
}

static int by_time(const void *a, const void *b)
{
    double x = ((const change *)a)->us, y = ((const change *)b)->us;
    return (x > y) - (x < y);
}

/* What caches give is more than memory does, and counts as all of it. */
static weft_status make_uses(curve *c, struct weft_timeline_step *s)
{
    double sum[WEFT_N_CLASSES] = {0}, at = 0;
    s->uses = wf_calloc(c->n + 1, sizeof *s->uses);
    if (!s->uses) return WEFT_ERR_NOMEM;
    qsort(c->list, c->n, sizeof *c->list, by_time);
    for (size_t i = 0; i <= c->n; i++) {
        double us = i < c->n ? WF_MIN(c->list[i].us, s->us) : s->us;
        if (us > at) {
            struct weft_timeline_use *u = &s->uses[s->n_uses++];
            *u = (struct weft_timeline_use){.begin_us = at, .end_us = us};
            for (size_t k = 0; k < WEFT_N_CLASSES; k++) u->use[k] = sum[k] < 1e-9 ? 0 : WF_MIN(sum[k], 1);
        }
        for (size_t k = 0; i < c->n && k < WEFT_N_CLASSES; k++) sum[k] += c->list[i].by[k];
        at = us;
    }
    return WEFT_OK;
}

/* ---- the peak ------------------------------------------------------------------------------------------------ */

static weft_status this_device(const view *v, wf_machine *m)
{
    wf_machine *known = &v->e->machine;
    wf_rates_params q = {.threads = v->e->dev->params.threads, .on_progress = v->p->on_progress, .user = v->p->user};
    if (!wf_machine_has_rates(known)) WF_TRY(wf_device_machine(v->e->dev, &q, known));
    *m = *known;
    return WEFT_OK;
}

/* Times of another device say nothing of this one's peak: then the highest rates of ops with the whole device count,
 * which are at most the peak. */
static weft_status predicted_machine(const view *v, struct weft_timeline_step *s, wf_machine *m)
{
    char name[sizeof v->profile.device];
    wf_copy(name, sizeof name, v->e->dev->info.name);
    s->peak_of_ops = strcmp(v->profile.device, name);
    if (!s->peak_of_ops) WF_TRY(this_device(v, m));
    if (!s->peak_of_ops && wf_machine_has_rates(m)) return WEFT_OK;
    s->peak_of_ops = true;
    *m = (wf_machine){.n_devices = 1};
    const wf_graph *g = &v->e->layout.graph;
    for (const wf_node *n = g->nodes; n < g->nodes + g->n_nodes; n++) {
        const wf_op_times *op = n->kind == WF_NODE_KERNEL ? wf_op_profile_find(&v->profile, n->name) : NULL;
        for (const wf_op_time *t = op ? op->times : NULL; op && t < op->times + op->n && t->share >= 1; t++) {
            wf_work w = wf_node_work(g, n, t->tokens, keys_of(n, v->profile.context));
            for (size_t k = 0; k < WF_N_ARITH; k++) m->ops[k] = WF_MAX(m->ops[k], w.flops / t->us * 1e6);
            m->read = WF_MAX(m->read, w.bytes / t->us * 1e6);
        }
    }
    return WEFT_OK;
}

/* Of the ops that compute most, whose format decides. */
static void put_peak(const view *v, const wf_machine *m, struct weft_timeline_step *s)
{
    double most = 0;
    s->read = m->read;
    for (size_t i = 0; i < v->plan->n_nanos; i++) {
        const wf_node *n = node_of(v, i);
        wf_op_cost c = wf_node_cost(&v->e->layout.graph, n, rows_of(v, i).count, keys_of(n, v->batch.max_kv), m);
        if (n->kind != WF_NODE_KERNEL || c.flops <= most || c.seconds[WF_LIMIT_COMPUTE] <= 0) continue;
        most = c.flops;
        s->compute = c.flops / c.seconds[WF_LIMIT_COMPUTE];
    }
}

/* ---- predicted ----------------------------------------------------------------------------------------------- */

static weft_status predict_step(const view *v, struct weft_timeline_step *s)
{
    wf_sim_pieces pieces = {0};
    wf_machine m = {0};
    WF_TRY(predicted_machine(v, s, &m));
    put_peak(v, &m, s);
    wf_sim_span *spans = wf_calloc(v->plan->n_nanos, sizeof *spans);
    if (!spans) return WEFT_ERR_NOMEM;
    weft_status st = wf_simulate_pieces(&v->e->layout.graph, v->plan, &v->profile, &v->sim, spans, &pieces, &s->us);
    curve c = {0};
    if (!st && !(s->ops = wf_calloc(v->plan->n_nanos, sizeof *s->ops))) st = WEFT_ERR_NOMEM;
    for (size_t i = 0; !st && i < v->plan->n_nanos; i++)
        if (rows_of(v, i).count) add_op(v, s, i, spans[i].begin, spans[i].end);
    for (const wf_sim_piece *x = pieces.list; !st && x < pieces.list + pieces.n; x++)
        st = add_use(v, &c, &m, x->nano, x->begin, x->end, x->done);
    if (!st) st = make_uses(&c, s);
    free(c.list);
    free(spans);
    free(pieces.list);
    return st;
}

/* ---- times --------------------------------------------------------------------------------------------------- */

static weft_status estimate_times(view *v)
{
    const struct weft_device_info *d = &v->e->dev->info;
    wf_explain x = {.tokens = v->batch.n_tokens, .decodes = v->batch.n_decodes, .context = v->batch.max_kv};
    v->profile = (wf_op_profile){.groups = WF_MAX(1u, d->compute_units), .tile = 1, .context = x.context};
    wf_copy(v->profile.device, sizeof v->profile.device, d->name);
    v->out->estimated = true;
    if (v->p->on_progress) v->p->on_progress(v->p->user, "measure", 0);
    WF_TRY(wf_explain_rates(v->e, &x));
    double *seconds = wf_calloc(v->plan->n_nanos, sizeof *seconds);
    if (!seconds) return WEFT_ERR_NOMEM;
    weft_status s = wf_exec_expected(v->e->exec, &x, v->choice, seconds);
    for (size_t i = 0; !s && i < v->plan->n_nanos; i++) { /* as a profile of what this plan runs */
        uint32_t rows = rows_of(v, i).count;
        const char *name = node_of(v, i)->name;
        if (rows && seconds[i] > 0 && !wf_op_profile_has_time(&v->profile, name, rows, 1))
            s = wf_op_profile_add_time(&v->profile, name, class_of(v, i), &(wf_op_time){rows, 1, seconds[i] * 1e6, 0});
    }
    free(seconds);
    return s;
}

static weft_status find_times(view *v)
{
    char stored[512];
    const char *path = v->p->profile ? v->p->profile : stored;
    if (!v->p->profile && v->p->estimate) return estimate_times(v);
    if (!v->p->profile) WF_TRY(wf_stored_path(v->e->dev, &v->e->layout.graph, "profile", stored, sizeof stored));
    bool known = v->p->profile || !access(path, F_OK);
    if (!known && v->p->measure) return WEFT_OK;
    if (!known)
        return wf_fail(WEFT_ERR_ARG,
                       "how long the ops of this model take on %s was never measured: run `weft tune --overlap`, or "
                       "ask for estimates (weft_timeline_params.estimate) or for a measured step "
                       "(weft_timeline_params.measure)",
                       v->e->dev->info.name);
    wf_copy(v->out->profile, sizeof v->out->profile, path);
    weft_status s = wf_fail_param(wf_op_profile_load(path, &v->profile), "profile");
    if (s != WEFT_OK)
        return v->p->profile ? s
            : wf_fail_context(s, "these are the times that were kept: `weft tune --overlap` measures them anew");
    return wf_stored_fits(v->e, &v->profile, path, "the predicted times");
}

/* ---- measured ------------------------------------------------------------------------------------------------ */

typedef struct taken { /* the times of a step that was run */
    wf_op_span *spans;
    size_t n;
    uint64_t begin, end;
} taken;

static weft_status take_step(const view *v, taken *out)
{
    WF_TRY(wf_load_step(v->e, &v->batch, NULL));
    const wf_exec_stats *st = wf_exec_stats_of(v->e->exec);
    if (!st->ops.n_spans)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s does not tell when its ops run", v->e->dev->info.name);
    out->spans = wf_calloc(st->ops.n_spans, sizeof *out->spans);
    if (!out->spans) return WEFT_ERR_NOMEM;
    memcpy(out->spans, st->ops.spans, st->ops.n_spans * sizeof *out->spans);
    out->n = st->ops.n_spans, out->begin = out->spans[0].begin, out->end = st->ended_ns;
    return WEFT_OK;
}

static int by_length(const void *a, const void *b)
{
    uint64_t x = ((const taken *)a)->end - ((const taken *)a)->begin,
        y = ((const taken *)b)->end - ((const taken *)b)->begin;
    return (x > y) - (x < y);
}

/* Clocks that are read by two threads may put the end of one op behind the begin of the next. */
static weft_status put_taken(const view *v, const taken *t, const wf_machine *m, struct weft_timeline_step *s)
{
    double until[WF_MAX_QUEUES] = {0};
    curve c = {0};
    s->us = (double)(t->end - t->begin) / 1e3;
    s->ops = wf_calloc(v->plan->n_nanos, sizeof *s->ops);
    weft_status st = s->ops ? WEFT_OK : WEFT_ERR_NOMEM;
    for (const wf_op_span *x = t->spans; !st && x < t->spans + t->n; x++) {
        double begin = WF_MAX((double)(x->begin - t->begin) / 1e3, until[x->queue]),
            end = WF_MAX((double)(x->end - t->begin) / 1e3, begin);
        if (!rows_of(v, x->command).count) continue;
        until[x->queue] = end;
        add_op(v, s, x->command, begin, end);
        st = add_use(v, &c, m, x->command, begin, end, 1);
    }
    if (!st) st = make_uses(&c, s);
    free(c.list);
    return st;
}

static weft_status measure_step(const view *v, struct weft_timeline_step *s)
{
    taken list[ROUNDS] = {0};
    wf_machine m = {0};
    WF_TRY(this_device(v, &m));
    put_peak(v, &m, s);
    weft_status st = wf_exec_fill_kv(v->e->exec);
    if (!st) st = wf_load_step(v->e, &v->batch, NULL);
    for (size_t i = 0; !st && i < ROUNDS; i++) {
        if (v->p->on_progress) v->p->on_progress(v->p->user, "steps", (double)i / ROUNDS);
        st = take_step(v, &list[i]);
    }
    if (!st) qsort(list, ROUNDS, sizeof *list, by_length);
    if (!st) st = put_taken(v, &list[ROUNDS / 2], &m, s);
    for (size_t i = 0; i < ROUNDS; i++) free(list[i].spans);
    return st;
}

static weft_status make_timeline(view *v)
{
    const struct weft_timeline_params *p = v->p;
    const wf_layout *l = &v->e->layout;
    struct weft_timeline *t = v->out;
    wf_batch *b = &v->batch;
    uint32_t tokens = p->tokens ? p->tokens : l->limits.step_tokens;
    if (p->context > l->context)
        return wf_fail(WEFT_ERR_ARG, "context %u: this engine holds %u tokens a sequence (weft_engine_params.context)",
                       p->context, l->context);
    if (p->decodes > tokens)
        return wf_fail(WEFT_ERR_ARG, "%u decodes do not fit a step of %u tokens", p->decodes, tokens);
    WF_TRY(wf_batch_init(b, &l->limits));
    WF_TRY(wf_load_batch(v->e, (wf_step_load){.decodes = p->decodes, .prefill = tokens - p->decodes}, p->context
                         ? p->context : l->context, b));
    v->choice = wf_plans_choose(&l->plans, b->n_tokens, b->n_decodes, b->max_kv);
    v->plan = &l->plans.list[v->choice];
    v->sim = (wf_sim_batch){b->n_tokens, b->n_decodes, b->n_logits};
    wf_copy(t->device, sizeof t->device, v->e->dev->info.name);
    t->tokens = b->n_tokens, t->decodes = b->n_decodes, t->context = b->max_kv;
    t->n_queues = v->plan->n_queues, t->n_layers = (uint32_t)l->graph.n_layers;
    WF_TRY(find_times(v));
    if (!v->profile.n_ops && !p->measure)
        return wf_fail(
            WEFT_ERR_UNSUPPORTED,
            "the peak rates of %s cannot be measured, so nothing can be estimated: run `weft tune --overlap`",
            t->device);
    if (v->profile.n_ops) WF_TRY(predict_step(v, &t->predicted));
    return p->measure ? measure_step(v, &t->measured) : WEFT_OK;
}

weft_status weft_timeline(struct weft_engine *e, const struct weft_timeline_params *p, struct weft_timeline **out)
{
    *out = NULL;
    if (p->measure && !e->dev->params.profile)
        return wf_fail(WEFT_ERR_ARG, "weft_timeline: to measure want an engine that was opened with `profile`");
    view v = {.e = e, .p = p, .out = wf_calloc(1, sizeof *v.out)};
    wf_engine_lend(e);
    weft_status s = v.out ? make_timeline(&v) : WEFT_ERR_NOMEM;
    wf_engine_return(e);
    wf_batch_free(&v.batch);
    wf_op_profile_free(&v.profile);
    if (s) return weft_timeline_free(v.out), s;
    *out = v.out;
    return WEFT_OK;
}

void weft_timeline_free(struct weft_timeline *t)
{
    if (!t) return;
    free(t->predicted.ops), free(t->predicted.uses);
    free(t->measured.ops), free(t->measured.uses);
    free(t);
}
