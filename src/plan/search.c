/* search: from a profile to the best plans. See search.h. */
#include "plan/search.h"

#include "plan/milp.h"
#include "plan/stages.h"
#include "plan/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SMALL 0.04 /* of a layer: ops that take less stand with others */
/* Of the time that joules would need beyond that of a plan, which tells plans apart and hides none. */
#define ENERGY_PART 0.01

typedef struct search {
    const wf_search_params *params;
    wf_pipeline pl;
    wf_search_result *out;
    double sequential; /* us */
    wf_cut cuts[WF_MAX_CUTS];
    size_t n_cuts;
    size_t best_cut; /* by the built-in orders */
    double best_us;
    bool only_tries; /* what is tried is not kept */
    uint64_t end_ns;
    uint32_t done, all; /* of the work, for the progress */
    bool stopped;
} search;

/* ---- results ----------------------------------------------------------------------------------------------------- */

static uint32_t n_kept(const search *s)
{
    return WF_MIN(s->params->keep ? s->params->keep : 4, WF_MAX_FOUND - 1u);
}

static bool same_lines(const wf_plan *a, const wf_plan *b)
{
    if (a->n_lines != b->n_lines) return false;
    for (size_t i = 0; i < a->n_lines; i++) {
        const wf_plan_line *x = &a->lines[i], *y = &b->lines[i];
        if (strcmp(x->name, y->name) || x->where != y->where || x->queue != y->queue || x->groups != y->groups ||
            x->begin.tokens != y->begin.tokens || x->end.tokens != y->end.tokens || x->begin.decode != y->begin.decode)
            return false;
    }
    return true;
}

/* Before those of a higher rank; of equals the first stays in front. */
static weft_status keep_plan(search *s, const wf_plan *plan, double us, const char *how)
{
    wf_search_result *r = s->out;
    size_t at = r->n;
    double joules_us = wf_simulate_energy(s->pl.g, plan, s->pl.profile, &s->params->batch),
           rank = us + ENERGY_PART * WF_MAX(0, joules_us - us);
    for (size_t i = 0; i < r->n; i++)
        if (same_lines(&r->list[i].plan, plan)) return WEFT_OK;
    while (at && r->list[at - 1].rank > rank) at--;
    if (at >= n_kept(s)) return WEFT_OK;
    wf_found f = {.us = us, .rank = rank};
    wf_copy(f.how, sizeof f.how, how);
    weft_status status = wf_plan_copy_lines(plan, &f.plan);
    if (status != WEFT_OK) {
        wf_plan_free(&f.plan);
        return status;
    }
    if (r->n == n_kept(s)) wf_plan_free(&r->list[--r->n].plan);
    memmove(r->list + at + 1, r->list + at, (r->n - at) * sizeof f);
    r->list[at] = f;
    r->n++;
    return WEFT_OK;
}

/* ---- trying plans ------------------------------------------------------------------------------------------------ */

/* Adds nano-operations, buffers and waits to the lines. */
static weft_status finish_plan(const wf_graph *g, wf_plan *p)
{
    WF_TRY(wf_plan_split(g, p));
    WF_TRY(wf_plan_place(g, p, 64));
    return wf_plan_wait(g, p);
}

static weft_status simulate_plan(const search *s, const wf_plan *p, double *us)
{
    return wf_simulate(s->pl.g, p, s->pl.profile, &s->params->batch, NULL, us);
}

static void set_groups(const search *s, wf_plan *p, enum wf_class class, double share)
{
    for (size_t b = 0; b < s->pl.n_blocks; b++) {
        if (s->pl.blocks[b].class != class) continue;
        for (size_t i = 0; i < p->n_lines; i++)
            if (p->lines[i].where != WF_LINE_ONCE && p->lines[i].queue == s->pl.blocks[b].queue)
                p->lines[i].groups = wf_groups_of_share(s->pl.profile, share);
    }
    for (size_t i = 0; i < p->n_nanos; i++) p->nanos[i].groups = p->lines[p->nanos[i].line].groups;
}

/* Of the shares that compute may have, all others taking the rest, and of none at all: the fastest. */
static weft_status try_shares(const search *s, wf_plan *p, double *best_us)
{
    uint32_t steps = wf_share_steps(s->pl.profile), best = steps;
    for (uint32_t r = steps; r > 0; r--) {
        double us, share = (double)r / steps;
        for (size_t c = 0; c < WF_N_CLASSES; c++)
            set_groups(s, p, (enum wf_class)c, r == steps || c == WF_CLASS_COMPUTE ? share : 1 - share);
        WF_TRY(simulate_plan(s, p, &us));
        if (r == steps || us < *best_us) best = r, *best_us = us;
    }
    for (size_t c = 0; c < WF_N_CLASSES; c++)
        set_groups(s, p, (enum wf_class)c,
                   best == steps || c == WF_CLASS_COMPUTE ? (double)best / steps : (double)(steps - best) / steps);
    return WEFT_OK;
}

/* by_class: tries shares by class instead of those of the schedule. A schedule whose plan cannot be is no candidate,
 * and takes for ever. */
static weft_status try_schedule(search *s, const wf_schedule *schedule, bool by_class, const char *how, double *us)
{
    wf_plan plan;
    char text[64];
    *us = INFINITY;
    weft_status status = wf_schedule_plan(&s->pl, schedule, &plan);
    if (status == WEFT_OK) status = finish_plan(s->pl.g, &plan);
    if (status == WEFT_OK) status = by_class ? try_shares(s, &plan, us) : simulate_plan(s, &plan, us);
    uint32_t parts[WF_MAX_BLOCKS] = {0}, least = WF_MAX_PARTS, most = 0;
    for (size_t i = 0; i < schedule->n; i++) parts[schedule->slots[i].block]++;
    for (size_t b = 0; b < s->pl.n_blocks; b++) least = WF_MIN(least, parts[b]), most = WF_MAX(most, parts[b]);
    if (least == most) snprintf(text, sizeof text, "%u nano-batches, %s", most, how);
    else snprintf(text, sizeof text, "%u to %u nano-batches by op, %s", least, most, how);
    /* Not worth more than the rounding of a sum. */
    if (status == WEFT_OK && *us < s->sequential * (1 - 1e-6) && !s->only_tries)
        status = keep_plan(s, &plan, *us, text);
    wf_plan_free(&plan);
    return status == WEFT_ERR_ARG ? WEFT_OK : status;
}

/* ---- cuts -------------------------------------------------------------------------------------------------------- */

/* The boundary of `tiles` tiles, in parts that are multiples of so many. */
static wf_boundary tiles_at(const search *s, uint32_t tiles)
{
    return (wf_boundary){.tokens = tiles * s->pl.profile->tile};
}

/* All cuts of n tiles from `from` on into parts that are multiples of `by` tiles; the equal ones among them. */
static void add_cuts(const search *s, wf_cut *c, uint32_t part, uint32_t from, uint32_t n, uint32_t by, wf_cut *list,
                     size_t *n_list)
{
    if (*n_list > WF_MAX_CUTS) return; /* too many in any case */
    if (part >= WF_MIN(c->parts, (uint32_t)WF_MAX_PARTS)) {
        c->at[part] = (wf_boundary){.end = true};
        if (*n_list < WF_MAX_CUTS) list[*n_list] = *c;
        ++*n_list;
        return;
    }
    for (uint32_t at = from + by; at < n; at += by) {
        c->at[part] = tiles_at(s, at);
        add_cuts(s, c, part + 1, at, n, by, list, n_list);
    }
}

/* ---- built-in orders --------------------------------------------------------------------------------------------- */

/* The compute that a layer begins with. */
static bool block_leads(const wf_pipeline *p, size_t block)
{
    for (size_t b = 0; b <= block; b++)
        if (p->blocks[b].class != WF_CLASS_COMPUTE) return false;
    return true;
}

static weft_status init_built_in(const search *s, const wf_cut *cut, const wf_split *split, bool early,
                                 wf_schedule *out)
{
    wf_schedule_init(&s->pl, cut, split, out);
    /* Blocks up to the last other one for all nano-batches, then the rest. `early`: behind the rest of each nano-batch
     * what the next layer begins with, so that the layers are interleaved. */
    enum { BATCH = 2 * WF_MAX_BLOCKS, REST = BATCH * WF_MAX_PARTS };
    /* The last block before which compute of other nano-batches may run: that of the last op which is not bound by
     * it. */
    size_t middle = 0;
    for (size_t b = 0; b + 1 < s->pl.n_blocks; b++)
        if (s->pl.blocks[b].class != WF_CLASS_COMPUTE) middle = b;
    for (wf_slot *l = out->slots; l < out->slots + out->n; l++) {
        l->next = early && block_leads(&s->pl, l->block);
        l->begin = (l->end - 1) * BATCH + l->block + (l->block <= middle && !l->next ? 0 : REST) +
                   (l->next ? WF_MAX_BLOCKS : 0);
    }
    return wf_schedule_sort(&s->pl, out);
}

/* *best: the faster one. */
static weft_status try_built_in(search *s, const wf_cut *cut, const wf_split *split, double *best)
{
    *best = INFINITY;
    for (int early = 0; early < 2; early++) {
        wf_schedule schedule;
        double us;
        WF_TRY(init_built_in(s, cut, split, early, &schedule));
        WF_TRY(try_schedule(s, &schedule, true,
                            early ? "layers interleaved, shares by class" : "built-in order, shares by class", &us));
        *best = WF_MIN(*best, us);
    }
    return WEFT_OK;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

/* True: it is to end. */
static bool search_step(search *s)
{
    const wf_search_params *p = s->params;
    if (s->stopped) return true;
    if (p->progress) p->progress(p->user, "search", WF_MIN(1.0, (double)s->done++ / s->all));
    if (wf_now_ns() >= s->end_ns || (p->stop && p->stop(p->user))) s->out->cut_short = s->stopped = true;
    return s->stopped;
}

/* No program takes more than a tenth of the time, so that a slow one leaves some to others. */
static wf_stage_limits limits_of(const search *s)
{
    double left = (double)(s->end_ns - WF_MIN(s->end_ns, wf_now_ns())) / 1e9,
           all = s->params->seconds > 0 ? s->params->seconds : 600;
    return (wf_stage_limits){WF_MIN(left, all / 10), s->params->nodes ? s->params->nodes : 2000};
}

static bool has_programs(const search *s)
{
    return !s->params->no_programs && wf_milp_available();
}

static weft_status try_programs(search *s, const wf_split *split)
{
    bool found;
    double us;
    wf_schedule schedule;
    wf_stage_limits l = limits_of(s);
    wf_schedule_init(&s->pl, &s->cuts[0], split, &schedule);
    WF_TRY(wf_stage_order(&s->pl, s->cuts, s->n_cuts, &l, &schedule, &found));
    if (!found) return WEFT_OK;
    WF_TRY(try_schedule(s, &schedule, true, "Stage I, shares by class", &us));
    if (search_step(s)) return WEFT_OK;
    l = limits_of(s);
    WF_TRY(wf_stage_shares(&s->pl, &schedule, wf_share_steps(s->pl.profile), &l, &found));
    return found ? try_schedule(s, &schedule, false, "Stage I and II", &us) : WEFT_OK;
}

/* Another number of parts for one block, if that is faster. */
static weft_status improve_block(search *s, size_t block, wf_split *split, bool *better)
{
    uint32_t most = s->cuts[0].parts, before = split->parts[block], best = before;
    for (uint32_t n = 1; n <= most && !search_step(s); n++) {
        double us;
        if (n == before) continue;
        split->parts[block] = n;
        WF_TRY(try_built_in(s, &s->cuts[s->best_cut], split, &us));
        if (us < s->best_us * (1 - 1e-6)) s->best_us = us, best = n, *better = true;
    }
    split->parts[block] = best;
    return WEFT_OK;
}

static weft_status improve_split(search *s, wf_split *split, bool *any)
{
    for (bool better = true; better && !s->stopped; *any |= better) {
        better = false;
        for (size_t b = 0; b < s->pl.n_blocks && !s->stopped; b++) WF_TRY(improve_block(s, b, split, &better));
    }
    return WEFT_OK;
}

/* Fewer parts for some blocks, one after another as long as that helps: what gains nothing by being cut then costs no
 * more than whole. Only the last of these is kept, or others much like it would take the place of plans that are
 * another idea. */
static weft_status try_splits(search *s)
{
    wf_split split;
    bool any = false;
    double us;
    for (size_t b = 0; b < s->pl.n_blocks; b++) split.parts[b] = s->cuts[0].parts;
    s->only_tries = true;
    WF_TRY(improve_split(s, &split, &any));
    s->only_tries = false;
    if (!any) return WEFT_OK;
    WF_TRY(try_built_in(s, &s->cuts[s->best_cut], &split, &us));
    return !s->stopped && has_programs(s) && !search_step(s) ? try_programs(s, &split) : WEFT_OK;
}

static weft_status try_parts(search *s, uint32_t parts)
{
    /* So coarse that the list holds them; and where decodes end. */
    const wf_sim_batch *b = &s->params->batch;
    uint32_t tiles = (b->tokens + s->pl.profile->tile - 1) / s->pl.profile->tile;
    bool at_decodes = parts == 2 && b->decodes && b->decodes < b->tokens;
    size_t n = WF_MAX_CUTS + 1;
    for (uint32_t by = 1; n > WF_MAX_CUTS - 1; by++) {
        wf_cut c = {.parts = parts};
        n = 0;
        add_cuts(s, &c, 1, 0, tiles, by, s->cuts, &n);
    }
    if (at_decodes) s->cuts[n++] = (wf_cut){2, {{0}, {.decode = true}, {.end = true}}};
    s->n_cuts = n;
    if (!s->n_cuts) return WEFT_OK;
    /* All blocks in as many parts. */
    s->best_us = INFINITY;
    for (size_t i = 0; i < s->n_cuts && !search_step(s); i++) {
        double us;
        WF_TRY(try_built_in(s, &s->cuts[i], NULL, &us));
        if (us < s->best_us) s->best_us = us, s->best_cut = i;
    }
    if (!s->stopped && has_programs(s) && !search_step(s)) WF_TRY(try_programs(s, NULL));
    return s->stopped ? WEFT_OK : try_splits(s);
}

/* More nano-batches while they help (section 4.1.2): smaller ones cost more in sum, since weights are read for each. */
static weft_status try_all(search *s)
{
    uint32_t most = WF_MIN(s->params->max_parts ? s->params->max_parts : WF_MAX_PARTS, (uint32_t)WF_MAX_PARTS);
    double before = s->sequential;
    s->all = (most - 1) * 80;
    for (uint32_t parts = 2; parts <= most && s->pl.n_queues > 1; parts++) {
        WF_TRY(try_parts(s, parts));
        if (s->stopped || (parts > 2 && (!s->out->n || s->out->list[0].us >= before))) break;
        before = s->out->n ? s->out->list[0].us : before;
    }
    return WEFT_OK;
}

static weft_status search_all(search *s)
{
    wf_plan sequential = {0};
    weft_status status = wf_plan_copy_lines(&s->pl.whole, &sequential);
    if (status == WEFT_OK) status = finish_plan(s->pl.g, &sequential);
    if (status == WEFT_OK) status = simulate_plan(s, &sequential, &s->sequential);
    if (status == WEFT_OK) status = try_all(s);
    if (status == WEFT_OK) {
        wf_found *f = &s->out->list[s->out->n];
        *f = (wf_found){.us = s->sequential, .how = "sequential"};
        s->out->n++;
        status = wf_plan_copy_lines(&sequential, &f->plan);
    }
    wf_plan_free(&sequential);
    return status;
}

weft_status wf_search(const wf_graph *g, const wf_op_profile *profile, const wf_search_params *p, wf_search_result *out)
{
    *out = (wf_search_result){0};
    if (!p->batch.tokens || p->batch.decodes > p->batch.tokens)
        return wf_fail(WEFT_ERR_ARG, "a batch of %u tokens, %u of them decodes", p->batch.tokens, p->batch.decodes);
    search *s = wf_calloc(1, sizeof *s);
    if (!s) return WEFT_ERR_NOMEM;
    s->params = p;
    s->out = out;
    s->end_ns = wf_now_ns() + (uint64_t)((p->seconds > 0 ? p->seconds : 600) * 1e9);
    weft_status status = wf_pipeline_init(g, profile, &p->batch, SMALL, &s->pl);
    if (status == WEFT_OK) status = search_all(s);
    wf_pipeline_free(&s->pl);
    free(s);
    return status;
}

void wf_search_free(wf_search_result *r)
{
    for (size_t i = 0; i < r->n; i++) wf_plan_free(&r->list[i].plan);
    r->n = 0;
}

size_t wf_fastest(const wf_search_result *r, double margin, wf_measure_fn measure, void *user)
{
    size_t best = r->n - 1;
    double sequential = measure(user, &r->list[best].plan), least = sequential * (1 - margin);
    for (size_t i = 0; i + 1 < r->n; i++) {
        double us = measure(user, &r->list[i].plan);
        if (us < least || (isnan(sequential) && !isnan(us) && best == r->n - 1)) best = i, least = us;
    }
    return best;
}

static weft_status put_plan(const wf_graph *g, const wf_plan *found, wf_bucket bucket, wf_plans *out)
{
    if (out->n == WF_MAX_PLANS) return wf_fail(WEFT_ERR_ARG, "more than %d plans", WF_MAX_PLANS);
    wf_plan *p = &out->list[out->n++];
    WF_TRY(found ? wf_plan_copy_lines(found, p) : wf_plan_sequential(g, p));
    p->bucket = bucket;
    return WEFT_OK;
}

weft_status wf_found_plans(const wf_graph *g, const wf_load_plan *list, size_t n, wf_plans *out)
{
    *out = (wf_plans){0};
    for (const wf_load_plan *l = list; l < list + n; l++)
        if (l->plan) WF_TRY(put_plan(g, l->plan, l->bucket, out));
    return put_plan(g, NULL, (wf_bucket){0}, out);
}

weft_status wf_found_save(const wf_graph *g, const wf_found *f, const wf_sim_batch *b, const char *path)
{
    wf_plans *file = wf_calloc(1, sizeof *file);
    wf_load_plan l = {strcmp(f->how, "sequential") && b->tokens > 1 ? &f->plan : NULL,
                      {.least_tokens = b->tokens / 2 + 1, .tokens = b->tokens}};
    if (!file) return WEFT_ERR_NOMEM;
    weft_status s = wf_found_plans(g, &l, 1, file);
    if (s == WEFT_OK) s = wf_plans_save(file, path);
    wf_plans_free(file);
    free(file);
    return s;
}
