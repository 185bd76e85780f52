/* ablation: `weft bench ablation`: what splitting steps costs and what overlapping their parts gains (NanoFlow, figure
 * 9), in one run.
 *
 * The plans take turns, as in overlap_plans.c, and each load has a plan of each side: all ops whole on one queue;
 * the nano-batches of `overlap`, one after another on one queue; the same with attention on a second queue; these
 * beside copies of KV pages to the host, where copies have a queue of their own; and what `weft tune --overlap` has
 * kept, if it has. Where something tells what the device draws, each side then runs for a while by itself: counters
 * of energy are renewed too seldom for single steps.
 */
#include "lab/overlap.h"

#include <stdlib.h>

/* Copies of KV pages to the host beside a step that does not write to them, as many as the step writes itself: what
 * keeping the KV cache of running sequences on the host as well costs (NanoFlow, section 4.2.2), if pages go there
 * during later steps than those that fill them. */
typedef struct offload {
    struct weft_engine *e;
    wf_queue *q;
    wf_host host; /* which copies go to again and again, but not one behind the other */
    wf_event *first, *last;
    int32_t *pages; /* that the step of the batch does not write to */
    uint32_t n_pages, n_copies;
} offload;
enum { MOST_HOST = 64 << 20 };

static weft_status offload_open(struct weft_engine *e, offload *out)
{
    uint64_t page = wf_exec_page_bytes(e->exec);
    *out = (offload){.e = e, .pages = wf_calloc(e->layout.limits.pages, sizeof *out->pages)};
    if (!out->pages) return WEFT_ERR_NOMEM;
    WF_TRY(wf_copy_queue_create(e->dev, &out->q));
    WF_TRY(wf_event_create(e->dev, &out->first));
    WF_TRY(wf_event_create(e->dev, &out->last));
    return wf_host_create(e->dev, WF_MAX(page, MOST_HOST / page * page), &out->host);
}

/* Also after a failure; before the engine's exec is destroyed. */
static void offload_close(offload *o)
{
    if (!o->e) return;
    if (o->q) wf_queue_destroy(o->q);
    if (o->first) wf_event_destroy(o->first);
    if (o->last) wf_event_destroy(o->last);
    if (o->host.data) wf_host_destroy(o->e->dev, &o->host);
    free(o->pages);
    *o = (offload){0};
}

/* Pages that the step leaves alone: of each sequence those before the ones that its tokens go to, and those of
 * nobody; without any there are no copies. */
static void offload_batch(offload *o, const wf_batch *b)
{
    uint32_t page = o->e->sched.p.kv.page_tokens, all = wf_limits_pages(&o->e->layout.limits, b->n_tokens, b->n_logits);
    o->n_pages = 0;
    for (uint32_t s = 0, row = 0; s < b->n_seqs; s++) {
        for (row = 0; row < b->n_tokens && b->in[WF_INPUT_SEQ][row] != (int32_t)s;) row++;
        uint32_t first = row < b->n_tokens ? (uint32_t)b->in[WF_INPUT_POS][row] : 0;
        for (uint32_t t = 0; t < wf_limits_tables(&o->e->layout.limits); t++)
            for (uint32_t i = 0; i < first / page; i++)
                if (wf_load_holds(o->e, t, first, i))
                    o->pages[o->n_pages++] = wf_batch_table(b, WF_INPUT_PAGES, t)[b->in[WF_INPUT_INDPTR][s] +
                                                                                  (int32_t)i];
    }
    for (uint32_t p = wf_load_pages(o->e, b); p < all; p++) o->pages[o->n_pages++] = (int32_t)p;
    o->n_copies = o->n_pages ? (b->n_tokens + page - 1) / page : 0;
}

/* As wf_load_step; *us: until both the step and the copies have ended. */
static weft_status offload_step(offload *o, const wf_batch *b, double *us)
{
    double step;
    uint64_t page = wf_exec_page_bytes(o->e->exec), places = WF_MAX((uint64_t)1, MOST_HOST / page), begin = 0, end = 0,
        other;
    WF_TRY(wf_load_submit(o->e, b));
    weft_status s = WEFT_OK;
    for (uint32_t i = 0; s == WEFT_OK && i < o->n_copies; i++) {
        wf_event *ended = !i ? o->first : i + 1 == o->n_copies ? o->last : NULL;
        s = wf_exec_read_page(o->e->exec, o->q, o->pages[i % o->n_pages], (uint8_t *)o->host.data + i % places * page,
                              ended);
    }
    if (s == WEFT_OK) s = wf_flush(o->q);
    weft_status waited = wf_load_wait(o->e, &step);
    if (s == WEFT_OK) s = waited;
    if (s == WEFT_OK) s = wf_finish(o->q);
    if (s == WEFT_OK) s = wf_event_times(o->first, &begin, &end);
    if (s == WEFT_OK && o->n_copies > 1) s = wf_event_times(o->last, &other, &end);
    if (us) *us = WF_MAX(step, (double)(end - begin) / 1e3);
    return s;
}

/* ---- the sides -------------------------------------------------------------------------------------------------- */

enum side { WHOLE, SPLIT, OVERLAP, OFFLOAD, TUNED, N_SIDES };
enum { ROUNDS = 9, MOST_ROUNDS = 99, LEAST_ROUNDS = 3, CONTEXT = 1024, WINDOWS = 3 /* in which energy is read */ };
#define WINDOW_S 0.3

static const char *const names[N_SIDES] = {"no split", "split only", "overlap", "overlap + offload", "tuned"};

typedef struct ablation {
    struct weft_engine *e;
    const struct weft_ablation_params *p;
    uint32_t context, rounds;
    wf_plans sides[N_SIDES]; /* without plans: there is no such side */
    wf_plans all;            /* those that run */
    size_t at[WF_N_LOAD_KINDS][N_SIDES];
    wf_batch batches[WF_N_LOAD_KINDS];
    double us[N_SIDES][MOST_ROUNDS];
    offload offload;
    wf_power *power; /* NULL: not readable */
    double watts[N_SIDES][WINDOWS], joules[N_SIDES][WINDOWS]; /* joules: of a token */
} ablation;

/* Copies run beside the plan of another side, where there are any. */
static bool has_side(const ablation *a, size_t s) { return s == OFFLOAD ? a->offload.n_copies > 0 : a->sides[s].n > 0; }

/* ---- plans --------------------------------------------------------------------------------------------------- */

static void one_queue(wf_plans *plans)
{
    for (wf_plan *p = plans->list; p < plans->list + plans->n; p++) {
        for (wf_plan_line *l = p->lines; l < p->lines + p->n_lines; l++) l->queue = 0;
        p->n_queues = 1;
    }
}

static weft_status make_sides(ablation *a)
{
    const wf_graph *g = &a->e->layout.graph;
    uint32_t parts = a->p->n_parts ? a->p->n_parts : 2, tokens = a->e->layout.limits.step_tokens,
        tile = a->e->sched.p.tile;
    a->sides[WHOLE].n = 1;
    WF_TRY(wf_plan_sequential(g, &a->sides[WHOLE].list[0]));
    WF_TRY(wf_plans_overlap(g, parts, tokens, tile, &a->sides[SPLIT]));
    one_queue(&a->sides[SPLIT]);
    WF_TRY(wf_plans_overlap(g, parts, tokens, tile, &a->sides[OVERLAP]));
    char path[600]; /* of a plan that engines would not take, either */
    if (wf_stored_plans(a->e->dev, g, &a->sides[TUNED], path, sizeof path))
        wf_log(WEFT_LOG_WARN, "%s: left out", wf_error());
    return WEFT_OK;
}

/* Of each side the plan whose bucket a load fits. */
static weft_status choose_plans(ablation *a, size_t load)
{
    const wf_batch *b = &a->batches[load];
    for (size_t s = 0; s < N_SIDES; s++) {
        const wf_plans *side = &a->sides[s];
        if (!side->n) continue;
        a->at[load][s] = a->all.n;
        WF_TRY(wf_plan_copy_lines(&side->list[wf_plans_choose(side, b->n_tokens, b->n_decodes, b->max_kv)],
                                  &a->all.list[a->all.n++]));
    }
    return WEFT_OK;
}

/* Once for the choice of plans, and once more with the KV pages that they leave. */
static weft_status fill_batches(ablation *a)
{
    wf_decode_share share;
    for (size_t i = 0; i < WF_N_LOAD_KINDS; i++)
        WF_TRY(wf_load_of_kind(a->e, &wf_load_kinds[i], a->context, &share, &a->batches[i]));
    return WEFT_OK;
}

static weft_status prepare_sides(ablation *a)
{
    _Static_assert(WF_N_LOAD_KINDS * N_SIDES <= WF_MAX_PLANS, "a plan for each");
    WF_TRY(make_sides(a));
    for (size_t i = 0; i < WF_N_LOAD_KINDS; i++) WF_TRY(wf_batch_init(&a->batches[i], &a->e->layout.limits));
    WF_TRY(fill_batches(a));
    for (size_t i = 0; i < WF_N_LOAD_KINDS; i++)
        if (a->batches[i].n_tokens) WF_TRY(choose_plans(a, i));
    WF_TRY(wf_engine_replan(a->e, &a->all));
    WF_TRY(fill_batches(a));
    for (size_t i = 0; i < WF_N_LOAD_KINDS; i++) a->at[i][OFFLOAD] = a->at[i][OVERLAP];
    if (wf_has_copy_queue(&a->e->dev->info) && offload_open(a->e, &a->offload) != WEFT_OK) {
        wf_log(WEFT_LOG_WARN, "%s: left out: %s", names[OFFLOAD], wf_error()); /* no room for what is copied */
        offload_close(&a->offload);
    }
    return wf_exec_fill_kv(a->e->exec);
}

/* ---- running ------------------------------------------------------------------------------------------------- */

static bool is_stopped(const ablation *a) { return a->p->stop && a->p->stop(a->p->user); }

static weft_status run_step(ablation *a, size_t load, size_t side, double *us)
{
    const wf_batch *b = &a->batches[load];
    return side == OFFLOAD ? offload_step(&a->offload, b, us) : wf_load_step(a->e, b, us);
}

/* Each side once behind another one, and once more. */
static weft_status run_round(ablation *a, size_t load, uint32_t round)
{
    for (size_t s = 0; s < N_SIDES; s++) {
        if (!has_side(a, s)) continue;
        wf_exec_use_plan(a->e->exec, a->at[load][s]);
        WF_TRY(run_step(a, load, s, NULL));
        WF_TRY(run_step(a, load, s, &a->us[s][round]));
    }
    return WEFT_OK;
}

/* A source that has gone leaves 0, which is unknown. */
static weft_status run_window(ablation *a, size_t load, size_t side, uint32_t window)
{
    wf_power_reading begin = {0}, end = {0};
    uint64_t tokens = 0;
    wf_exec_use_plan(a->e->exec, a->at[load][side]);
    WF_TRY(run_step(a, load, side, NULL));
    bool read = wf_power_read(a->power, &begin);
    while (read && end.seconds - begin.seconds < WINDOW_S && !is_stopped(a)) {
        WF_TRY(run_step(a, load, side, NULL));
        tokens += a->batches[load].n_tokens;
        read = wf_power_read(a->power, &end);
    }
    double joules = end.joules - begin.joules, seconds = end.seconds - begin.seconds;
    bool known = read && joules > 0 && seconds > 0;
    a->watts[side][window] = known ? joules / seconds : 0;
    a->joules[side][window] = known ? joules / (double)tokens : 0;
    return WEFT_OK;
}

static weft_status run_windows(ablation *a, size_t load)
{
    for (uint32_t w = 0; a->power && w < WINDOWS; w++)
        for (size_t s = 0; s < N_SIDES; s++) {
            if (is_stopped(a)) return wf_fail(WEFT_ERR_CANCELLED, "cancelled");
            if (has_side(a, s)) WF_TRY(run_window(a, load, s, w));
        }
    return WEFT_OK;
}

static void report_load(ablation *a, size_t load)
{
    const wf_batch *b = &a->batches[load];
    double whole = 0;
    for (size_t s = 0; s < N_SIDES; s++) {
        if (!has_side(a, s)) continue;
        wf_probe_time t = wf_probe_summary(a->us[s], a->rounds);
        if (s == WHOLE) whole = t.us;
        struct weft_ablation_row row = {.load = wf_load_kinds[load].name, .plan = names[s], .tokens = b->n_tokens,
                                        .decodes = b->n_decodes, .context = b->max_kv, .us = t.us,
                                        .spread_us = t.spread, .speedup = whole / t.us,
                                        .power_source = wf_power_source(a->power)};
        if (a->power)
            row.watts = wf_probe_summary(a->watts[s], WINDOWS).us, row.joules_per_token =
                wf_probe_summary(a->joules[s], WINDOWS).us;
        a->p->on_row(a->p->user, &row);
    }
}

static weft_status run_load(ablation *a, size_t load)
{
    if (!a->batches[load].n_tokens)
        return wf_log(WEFT_LOG_WARN, "%s: %s", wf_load_kinds[load].name, WF_NO_SUCH_LOAD), WEFT_OK;
    if (a->offload.e) offload_batch(&a->offload, &a->batches[load]);
    for (uint32_t round = 0; round < a->rounds; round++) {
        if (is_stopped(a)) return wf_fail(WEFT_ERR_CANCELLED, "cancelled");
        if (a->p->on_progress) a->p->on_progress(a->p->user, wf_load_kinds[load].name, (double)round / a->rounds);
        WF_TRY(run_round(a, load, round));
    }
    if (a->us[WHOLE][0] <= 0)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s does not tell when its work began and ended", a->e->dev->info.name);
    WF_TRY(run_windows(a, load));
    report_load(a, load);
    return WEFT_OK;
}

weft_status weft_ablation(struct weft_engine *e, const struct weft_ablation_params *p)
{
    if (p->rounds && (p->rounds < LEAST_ROUNDS || p->rounds > MOST_ROUNDS))
        return wf_fail(WEFT_ERR_ARG, "weft_ablation_params.rounds: want %d to %d", LEAST_ROUNDS, MOST_ROUNDS);
    if (!e->dev->params.profile)
        return wf_fail(WEFT_ERR_ARG, "weft_ablation: want an engine that was opened with `profile`");
    if (e->layout.plans.n != 1 || e->layout.plans.list[0].n_queues > 2)
        return wf_fail(WEFT_ERR_ARG, "weft_ablation: want an engine that was opened with nano_batches 1");
    ablation *a = wf_calloc(1, sizeof *a);
    if (!a) return WEFT_ERR_NOMEM;
    a->e = e, a->p = p;
    a->context = WF_MIN(p->context ? p->context : CONTEXT, e->layout.context);
    a->rounds = p->rounds ? p->rounds : ROUNDS;
    a->power = wf_power_open(e->dev);
    wf_engine_lend(e);
    weft_status s = prepare_sides(a);
    for (size_t i = 0; i < WF_N_LOAD_KINDS && s == WEFT_OK; i++) s = run_load(a, i);
    offload_close(&a->offload);
    wf_engine_return(e);
    wf_power_close(a->power);
    wf_plans_free(&a->all);
    for (size_t i = 0; i < N_SIDES; i++) wf_plans_free(&a->sides[i]);
    for (size_t i = 0; i < WF_N_LOAD_KINDS; i++) wf_batch_free(&a->batches[i]);
    free(a);
    return s;
}
