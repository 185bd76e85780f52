/* overlap_plans: the plans that a profile promises much of, run on the device against the sequential one. See
 * overlap.h.
 *
 * Plans take turns, so that a device that grows warm or has other work slows all alike, and the medians of their
 * steps are compared. A plan is taken only if it is faster than the sequential one by more than both vary.
 */
#include "plan/reach.h"
#include "lab/overlap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_GAIN 0.01 /* of the sequential plan's time */
enum { ROUNDS = 9, QUICK_ROUNDS = 3, KEEP = 4 };

typedef struct load { /* without tokens: the engine has none of its kind */
    const wf_load_kind *kind;
    wf_batch batch;
    wf_search_result found;
    size_t first; /* of its plans among all */
    size_t taken; /* in found */
    wf_probe_time time[WF_MAX_FOUND];
    wf_decode_share share;
    wf_bucket steps; /* that the taken plan is for */
} load;

/* ---- loads --------------------------------------------------------------------------------------------------- */

static weft_status fill_batch(const wf_overlap *o, load *l)
{
    return wf_load_of_kind(o->e, l->kind, o->context, &l->share, &l->batch);
}

/* ---- running ------------------------------------------------------------------------------------------------- */

static bool is_sequential(const load *l, size_t plan) { return plan + 1 == l->found.n; }

/* Runs each plan with only[i]. Time that runs out leaves fewer rounds; very few are not enough to know how much they
 * vary: then times are NaN. */
static weft_status run_rounds(wf_overlap *o, const load *l, const wf_batch *b, const bool *only, wf_probe_time *out)
{
    double us[WF_MAX_FOUND][ROUNDS];
    uint32_t rounds = o->p->quick ? QUICK_ROUNDS : ROUNDS, done = 0;
    weft_status s = WEFT_OK;
    for (; s == WEFT_OK && done < rounds && !wf_overlap_ends(o); done++) {
        if (o->p->on_progress) o->p->on_progress(o->p->user, l->kind->name, (double)done / rounds);
        for (size_t i = 0; s == WEFT_OK && i < l->found.n; i++) { /* each once behind another plan and once more */
            if (!only[i]) continue;
            wf_exec_use_plan(o->e->exec, l->first + i);
            s = wf_load_step(o->e, b, NULL);
            if (s == WEFT_OK) s = wf_load_step(o->e, b, &us[i][done]);
        }
    }
    for (size_t i = 0; i < l->found.n; i++)
        out[i] = only[i] && done >= QUICK_ROUNDS ? wf_probe_summary(us[i], done)
            : (wf_probe_time){.us = NAN, .spread = NAN};
    wf_exec_use_plan(o->e->exec, WF_BY_BUCKET);
    return s;
}

static double measured(void *user, const wf_plan *plan)
{
    const load *l = user;
    size_t i = 0;
    while (&l->found.list[i].plan != plan) i++;
    return l->time[i].us + (is_sequential(l, i) ? 0 : 2 * l->time[i].spread);
}

static double margin_of(const wf_probe_time *sequential)
{
    return WF_MAX(LEAST_GAIN, 2 * sequential->spread / sequential->us);
}

/* ---- the steps that a plan is for ---------------------------------------------------------------------------- */

typedef struct trial {
    wf_overlap *o;
    const load *l;
} trial;

/* Is the taken plan the faster one for this step, too? Without time left it is not. */
static weft_status try_step(void *user, const wf_step_kind *step, enum wf_verdict *out)
{
    const trial *t = user;
    wf_step_load x = {step->decodes, step->tokens - step->decodes};
    wf_batch b = {0};
    bool wins = false;
    *out = WF_NO_SUCH_STEP;
    if (!wf_load_fits(t->o->e, x, step->context)) return WEFT_OK;
    weft_status s = wf_batch_init(&b, &t->o->e->layout.limits);
    if (s == WEFT_OK) s = wf_load_batch(t->o->e, x, step->context, &b);
    bool meant = s == WEFT_OK && b.max_kv == step->context; /* the KV cache may hold less */
    if (meant) {
        const load *l = t->l;
        bool only[WF_MAX_FOUND] = {false};
        wf_probe_time time[WF_MAX_FOUND], *sequential = &time[l->found.n - 1], *taken = &time[l->taken];
        only[l->taken] = only[l->found.n - 1] = true;
        s = run_rounds(t->o, l, &b, only, time);
        wins = taken->us + 2 * taken->spread < sequential->us * (1 - WF_REACH_MARGIN * margin_of(sequential));
    }
    wf_batch_free(&b);
    *out = wins ? WF_WINS : WF_LOSES;
    return s;
}

/* ---- comparing ----------------------------------------------------------------------------------------------- */

static weft_status compare_load(wf_overlap *o, load *l)
{
    bool all[WF_MAX_FOUND];
    const wf_batch *b = &l->batch;
    wf_probe_time *sequential = &l->time[l->found.n - 1];
    memset(all, true, sizeof all);
    if (l->found.n <= 1 || !b->n_tokens) return WEFT_OK;
    WF_TRY(run_rounds(o, l, b, all, l->time));
    if (!isnan(sequential->us)) l->taken = wf_fastest(&l->found, margin_of(sequential), measured, l);
    if (is_sequential(l, l->taken)) return WEFT_OK;
    trial t = {o, l};
    return wf_reach_find(&(wf_reach_params){&l->found.list[l->taken].plan, {b->n_tokens, b->n_decodes, b->max_kv},
                                            l->share.least, l->share.most, o->e->layout.context, try_step, &t},
                         &l->steps);
}

/* ---- the result ---------------------------------------------------------------------------------------------- */

static void print_load(const load *l, FILE *f)
{
    size_t n = l->found.n;
    double simulated = l->found.list[n - 1].us, sequential = l->time[n - 1].us;
    fprintf(f, "\n%s: %u tokens, %u of them decodes, contexts of %u\n  %-48s %12s %12s %7s %7s\n", l->kind->name,
            l->batch.n_tokens, l->batch.n_decodes, l->batch.max_kv, "plan", "simulated us", "measured us", "+-",
            "gain");
    for (size_t i = 0; i < n; i++) {
        fprintf(f, "%c %-48s ", i == l->taken ? '*' : ' ', l->found.list[i].how);
        fprintf(f, "%12.1f ", l->found.list[i].us);
        if (l->time[i].us > 0)
            fprintf(f, "%12.1f %7.1f %6.3fx\n", l->time[i].us, l->time[i].spread, sequential / l->time[i].us);
        else fprintf(f, "%12s %7s %6s\n", "-", "-", "-");
    }
    if (l->found.cut_short)
        fputs("  the search ended before it had tried all orders and shares: it does with more --seconds\n", f);
    if (n == 1)
        fputs("  sequential: of all orders and shares that were tried none is faster than the sequential plan by the "
              "measured times of its ops\n",
              f);
    else if (!(sequential > 0)) fputs("  sequential: there was no time to run the plans\n", f);
    else if (is_sequential(l, l->taken))
        fprintf(f,
                "  1.00x: simulation promised %.3fx, but on the device no plan is faster than the sequential one by "
                "more than they vary\n",
                simulated / l->found.list[0].us);
    else
        fprintf(f, "  taken for steps of %u to %u tokens, %.0f to %.0f %% of them decodes, contexts of %u to %u\n",
                l->steps.least_tokens, l->steps.tokens, 100 * (double)l->steps.least_decodes,
                100 * (double)l->steps.decodes, l->steps.least_context, l->steps.context);
}

static weft_status save_plans(const wf_overlap *o, const load *loads, size_t n)
{
    wf_load_plan list[(size_t)WF_N_LOAD_KINDS];
    wf_plans *out = wf_calloc(1, sizeof *out);
    if (!out) return WEFT_ERR_NOMEM;
    size_t n_list = 0;
    for (const load *l = loads; l < loads + n; l++) {
        if (!l->batch.n_tokens) continue;
        const wf_plan *plan = is_sequential(l, l->taken) ? NULL : &l->found.list[l->taken].plan;
        list[n_list++] = (wf_load_plan){plan, l->steps};
    }
    weft_status s = wf_found_plans(&o->e->layout.graph, list, n_list, out);
    if (s == WEFT_OK) s = wf_plans_save(out, o->plan_path);
    wf_plans_free(out);
    free(out);
    return s;
}

/* Kernels of this plan are built already. */
static weft_status return_to_sequential(wf_overlap *o)
{
    wf_plans *plans = wf_calloc(1, sizeof *plans);
    if (!plans) return WEFT_ERR_NOMEM;
    plans->n = 1;
    weft_status s = wf_plan_sequential(&o->e->layout.graph, &plans->list[0]);
    if (s == WEFT_OK) s = wf_engine_replan(o->e, plans);
    wf_plans_free(plans);
    free(plans);
    return s;
}

/* The engine takes the lines of all plans; the loads keep their own. */
static weft_status compare_plans(wf_overlap *o, load *loads, size_t n)
{
    bool in_time = false;
    wf_plans *all = wf_calloc(1, sizeof *all);
    weft_status s = all ? WEFT_OK : WEFT_ERR_NOMEM;
    for (load *l = loads; s == WEFT_OK && l < loads + n; l++) {
        l->first = all->n;
        for (size_t i = 0; s == WEFT_OK && i < l->found.n; i++)
            s = all->n < WF_MAX_PLANS ? wf_plan_copy_lines(&l->found.list[i].plan, &all->list[all->n++])
                                      : wf_fail(WEFT_ERR_INTERNAL, "more than %d plans", WF_MAX_PLANS);
    }
    if (s == WEFT_OK) {
        wf_stopper before = wf_overlap_bound_builds(o);
        s = wf_engine_replan(o->e, all); /* builds their kernels */
        wf_overlap_free_builds(before);
        in_time = s != WEFT_ERR_CANCELLED;
        if (!in_time) s = return_to_sequential(o);
    }
    if (s == WEFT_OK) s = wf_exec_fill_kv(o->e->exec);
    for (size_t i = 0; s == WEFT_OK && i < n; i++) s = fill_batch(o, &loads[i]);
    for (size_t i = 0; s == WEFT_OK && in_time && i < n; i++) s = compare_load(o, &loads[i]);
    if (all) wf_plans_free(all);
    free(all);
    return s;
}

static weft_status choose_plans(wf_overlap *o, load *loads, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        uint64_t now = wf_now_ns();
        double left = now < o->end_ns ? (double)(o->end_ns - now) / 1e9 : 0;
        loads[i].kind = &wf_load_kinds[i];
        WF_TRY(wf_batch_init(&loads[i].batch, &o->e->layout.limits));
        WF_TRY(fill_batch(o, &loads[i]));
        if (!loads[i].batch.n_tokens) continue;
        const wf_batch *b = &loads[i].batch;
        const wf_graph *g = &o->e->layout.graph;
        wf_search_params p = {.batch = {b->n_tokens, b->n_decodes, b->n_logits},
                              .keep = o->p->keep ? o->p->keep : KEEP,
                              .seconds = WF_MAX(0.01, left / (2.0 * (double)(n - i))), .nodes = o->p->quick ? 50 : 0,
                              .max_parts = o->p->quick ? 2 : 0, .stop = o->p->stop, .progress = o->p->on_progress,
                              .user = o->p->user};
        WF_TRY(wf_search(g, &o->profile, &p, &loads[i].found));
        loads[i].taken = loads[i].found.n - 1;
        any |= loads[i].found.n > 1;
    }
    bool ended = wf_overlap_ends(o);
    if (any && !ended) WF_TRY(compare_plans(o, loads, n));
    for (size_t i = 0; i < n; i++) {
        loads[i].found.cut_short &= !o->stopped; /* by the user, who knows */
        if (loads[i].batch.n_tokens) print_load(&loads[i], o->f);
        else fprintf(o->f, "\n%s: %s\n", loads[i].kind->name, WF_NO_SUCH_LOAD);
    }
    return o->stopped ? WEFT_OK : save_plans(o, loads, n);
}

weft_status wf_overlap_choose(wf_overlap *o)
{
    load *loads = wf_calloc((size_t)WF_N_LOAD_KINDS, sizeof *loads);
    if (!loads) return WEFT_ERR_NOMEM;
    weft_status s = choose_plans(o, loads, (size_t)WF_N_LOAD_KINDS);
    for (size_t i = 0; i < (size_t)WF_N_LOAD_KINDS; i++) {
        wf_search_free(&loads[i].found);
        wf_batch_free(&loads[i].batch);
    }
    free(loads);
    return s;
}
