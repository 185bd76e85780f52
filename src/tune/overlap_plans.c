/* overlap_plans: the plans that a profile promises much of, run on the device against the sequential one. See overlap.h.
 *
 * Plans take turns, so that a device that grows warm or has other work slows all alike, and the medians of their steps are compared. A plan is taken only if it
 * is faster than the sequential one by more than both vary.
 */
#include "plan/reach.h"
#include "tune/overlap.h"

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

/* ---- loads ------------------------------------------------------------------------------------------------------------- */

static weft_status search(const wf_overlap *o, load *l, double seconds)
{
    const wf_batch *b = &l->batch;
    wf_search_params p = {.batch = {b->n_tokens, b->n_decodes, b->n_logits}, .copy_queue = wf_engine_copy_queue(o->e), .keep = o->p->keep ? o->p->keep : KEEP, .seconds = seconds,
                          .nodes = o->p->quick ? 50 : 0, .max_parts = o->p->quick ? 2 : 0, .stop = o->p->stop, .progress = o->p->on_progress, .user = o->p->user};
    return wf_search(&o->e->graph, &o->profile, &p, &l->found);
}

static weft_status fill(const wf_overlap *o, load *l)
{
    return wf_load_of_kind(o->e, l->kind, o->context, &l->share, &l->batch);
}

/* ---- running ----------------------------------------------------------------------------------------------------------- */

/* The lines of a load's plans, for the engine; the loads keep their own. */
static weft_status add_plans(load *l, wf_plans *all)
{
    l->first = all->n;
    for (size_t i = 0; i < l->found.n; i++) {
        if (all->n == WF_MAX_PLANS) return wf_fail(WEFT_ERR_INTERNAL, "more than %d plans", WF_MAX_PLANS);
        WF_TRY(wf_plan_copy_lines(&l->found.list[i].plan, &all->list[all->n++]));
    }
    return WEFT_OK;
}

static bool is_sequential(const load *l, size_t plan)
{
    return plan + 1 == l->found.n;
}

/* Each plan with only[i], once behind another plan and once more. */
static weft_status run_round(wf_overlap *o, const load *l, const wf_batch *b, const bool *only, uint32_t round, double (*us)[ROUNDS])
{
    for (size_t i = 0; i < l->found.n; i++) {
        if (!only[i]) continue;
        wf_exec_use_plan(o->e->exec, l->first + i);
        WF_TRY(wf_load_step(o->e, b, NULL));
        WF_TRY(wf_load_step(o->e, b, &us[i][round]));
    }
    return WEFT_OK;
}

/* Time that runs out leaves fewer rounds; very few are not enough to know how much they vary: then times are NaN. */
static weft_status run_rounds(wf_overlap *o, const load *l, const wf_batch *b, const bool *only, wf_probe_time *out)
{
    double us[WF_MAX_FOUND][ROUNDS];
    uint32_t rounds = o->p->quick ? QUICK_ROUNDS : ROUNDS, done = 0;
    weft_status s = WEFT_OK;
    for (; s == WEFT_OK && done < rounds && !wf_overlap_ends(o); done++) {
        if (o->p->on_progress) o->p->on_progress(o->p->user, l->kind->name, (double)done / rounds);
        s = run_round(o, l, b, only, done, us);
    }
    for (size_t i = 0; i < l->found.n; i++)
        out[i] = only[i] && done >= QUICK_ROUNDS ? wf_probe_summary(us[i], done) : (wf_probe_time){.us = NAN, .spread = NAN};
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

/* ---- the steps that a plan is for -------------------------------------------------------------------------------------- */

typedef struct trial {
    wf_overlap *o;
    const load *l;
} trial;

/* Is the taken plan the faster one for this step, too? Without time left it is not. */
static weft_status wins_with(wf_overlap *o, const load *l, const wf_batch *b, bool *wins)
{
    bool only[WF_MAX_FOUND] = {false};
    wf_probe_time time[WF_MAX_FOUND], *sequential = &time[l->found.n - 1], *taken = &time[l->taken];
    only[l->taken] = only[l->found.n - 1] = true;
    WF_TRY(run_rounds(o, l, b, only, time));
    *wins = taken->us + 2 * taken->spread < sequential->us * (1 - WF_REACH_MARGIN * margin_of(sequential));
    return WEFT_OK;
}

static weft_status try_step(void *user, const wf_step_kind *step, enum wf_verdict *out)
{
    const trial *t = user;
    wf_step_load x = {step->decodes, step->tokens - step->decodes};
    wf_batch b = {0};
    bool wins = false;
    *out = WF_NO_SUCH_STEP;
    if (!wf_load_fits(t->o->e, x, step->context)) return WEFT_OK;
    weft_status s = wf_batch_init(&b, &t->o->e->limits);
    if (s == WEFT_OK) s = wf_load_batch(t->o->e, x, step->context, &b);
    bool meant = s == WEFT_OK && b.max_kv == step->context; /* the KV cache may hold less */
    if (meant) s = wins_with(t->o, t->l, &b, &wins);
    wf_batch_free(&b);
    *out = wins ? WF_WINS : WF_LOSES;
    return s;
}

static weft_status find_steps(wf_overlap *o, load *l)
{
    const wf_batch *b = &l->batch;
    trial t = {o, l};
    return wf_reach_find(&(wf_reach_params){&l->found.list[l->taken].plan, {b->n_tokens, b->n_decodes, b->max_kv}, l->share.least, l->share.most, o->e->context, try_step, &t}, &l->steps);
}

/* ---- comparing --------------------------------------------------------------------------------------------------------- */

static weft_status compare(wf_overlap *o, load *l)
{
    bool all[WF_MAX_FOUND];
    wf_probe_time *sequential = &l->time[l->found.n - 1];
    memset(all, true, sizeof all);
    if (l->found.n <= 1 || !l->batch.n_tokens) return WEFT_OK;
    WF_TRY(run_rounds(o, l, &l->batch, all, l->time));
    if (!isnan(sequential->us)) l->taken = wf_fastest(&l->found, margin_of(sequential), measured, l);
    return is_sequential(l, l->taken) ? WEFT_OK : find_steps(o, l);
}

/* ---- the result -------------------------------------------------------------------------------------------------------- */

static void print_left_out(const load *l, FILE *f)
{
    fprintf(f, "\n%s: %s\n", l->kind->name, WF_NO_SUCH_LOAD);
}

static void print_us(double us, FILE *f)
{
    if (isnan(us)) fprintf(f, "%12s ", "-");
    else fprintf(f, "%12.1f ", us);
}

static void print_load(const load *l, FILE *f)
{
    size_t n = l->found.n;
    double simulated = l->found.list[n - 1].us, sequential = l->time[n - 1].us;
    fprintf(f, "\n%s: %u tokens, %u of them decodes, contexts of %u\n  %-48s %12s %12s %7s %7s\n", l->kind->name, l->batch.n_tokens, l->batch.n_decodes, l->batch.max_kv, "plan",
            "simulated us", "measured us", "+-", "gain");
    for (size_t i = 0; i < n; i++) {
        fprintf(f, "%c %-48s ", i == l->taken ? '*' : ' ', l->found.list[i].how);
        print_us(l->found.list[i].us, f);
        if (l->time[i].us > 0) fprintf(f, "%12.1f %7.1f %6.3fx\n", l->time[i].us, l->time[i].spread, sequential / l->time[i].us);
        else fprintf(f, "%12s %7s %6s\n", "-", "-", "-");
    }
    if (l->found.cut_short) fputs("  the search ended before it had tried all orders and shares: it does with more --seconds\n", f);
    if (n == 1) fputs("  sequential: of all orders and shares that were tried none is faster than the sequential plan by the measured times of its ops\n", f);
    else if (!(sequential > 0)) fputs("  sequential: there was no time to run the plans\n", f);
    else if (is_sequential(l, l->taken) && isnan(l->found.list[0].us)) fputs("  1.00x: on the device no plan is faster than the sequential one by more than they vary\n", f);
    else if (is_sequential(l, l->taken))
        fprintf(f, "  1.00x: simulation promised %.3fx, but on the device no plan is faster than the sequential one by more than they vary\n", simulated / l->found.list[0].us);
    else
        fprintf(f, "  taken for steps of %u to %u tokens, %.0f to %.0f %% of them decodes, contexts of %u to %u\n", l->steps.least_tokens, l->steps.tokens,
                100 * (double)l->steps.least_decodes, 100 * (double)l->steps.decodes, l->steps.least_context, l->steps.context);
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
    weft_status s = wf_found_plans(&o->e->graph, wf_engine_copy_queue(o->e), list, n_list, out);
    if (s == WEFT_OK) s = wf_plans_save(out, o->plan_path);
    wf_plans_free(out);
    free(out);
    return s;
}

/* ---- all --------------------------------------------------------------------------------------------------------------- */

/* Kernels of this plan are built already. */
static weft_status return_to_sequential(wf_overlap *o)
{
    wf_plans *plans = wf_calloc(1, sizeof *plans);
    if (!plans) return WEFT_ERR_NOMEM;
    plans->n = 1;
    weft_status s = wf_plan_sequential(&o->e->graph, wf_engine_copy_queue(o->e), &plans->list[0]);
    if (s == WEFT_OK) s = wf_engine_replan(o->e, plans);
    wf_plans_free(plans);
    free(plans);
    return s;
}

/* Builds their kernels. False in *in_time: it was time to end before they were there. */
static weft_status give_plans(wf_overlap *o, wf_plans *all, bool *in_time)
{
    wf_stopper before = wf_overlap_bound_builds(o);
    weft_status s = wf_engine_replan(o->e, all);
    wf_overlap_free_builds(before);
    *in_time = s != WEFT_ERR_CANCELLED;
    return *in_time ? s : return_to_sequential(o);
}

static weft_status compare_plans(wf_overlap *o, load *loads, size_t n)
{
    bool in_time = false;
    wf_plans *all = wf_calloc(1, sizeof *all);
    weft_status s = all ? WEFT_OK : WEFT_ERR_NOMEM;
    for (size_t i = 0; s == WEFT_OK && i < n; i++) s = add_plans(&loads[i], all);
    if (s == WEFT_OK) s = give_plans(o, all, &in_time);
    if (s == WEFT_OK) s = wf_exec_fill_kv(o->e->exec);
    for (size_t i = 0; s == WEFT_OK && i < n; i++) s = fill(o, &loads[i]);
    for (size_t i = 0; s == WEFT_OK && in_time && i < n; i++) s = compare(o, &loads[i]);
    if (all) wf_plans_free(all);
    free(all);
    return s;
}

static weft_status choose(wf_overlap *o, load *loads, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        uint64_t now = wf_now_ns();
        double left = now < o->end_ns ? (double)(o->end_ns - now) / 1e9 : 0;
        loads[i].kind = &wf_load_kinds[i];
        WF_TRY(wf_batch_init(&loads[i].batch, &o->e->limits));
        WF_TRY(fill(o, &loads[i]));
        if (!loads[i].batch.n_tokens) continue;
        WF_TRY(search(o, &loads[i], WF_MAX(0.01, left / (2.0 * (double)(n - i)))));
        loads[i].taken = loads[i].found.n - 1;
        any |= loads[i].found.n > 1;
    }
    bool ended = wf_overlap_ends(o);
    if (any && !ended) WF_TRY(compare_plans(o, loads, n));
    for (size_t i = 0; i < n; i++) {
        loads[i].found.cut_short &= !o->stopped; /* by the user, who knows */
        (loads[i].batch.n_tokens ? print_load : print_left_out)(&loads[i], o->f);
    }
    return o->stopped ? WEFT_OK : save_plans(o, loads, n);
}

weft_status wf_overlap_choose(wf_overlap *o)
{
    load *loads = wf_calloc((size_t)WF_N_LOAD_KINDS, sizeof *loads);
    if (!loads) return WEFT_ERR_NOMEM;
    weft_status s = choose(o, loads, (size_t)WF_N_LOAD_KINDS);
    for (size_t i = 0; i < (size_t)WF_N_LOAD_KINDS; i++) {
        wf_search_free(&loads[i].found);
        wf_batch_free(&loads[i].batch);
    }
    free(loads);
    return s;
}
