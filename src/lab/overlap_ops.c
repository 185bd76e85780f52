/* overlap_ops: what each op of a model takes by itself, by tokens and shares of the device, and what ops of two
 * classes lose beside each other. See overlap.h. */
#include "plan/cost.h"
#include "plan/stages.h"
#include "lab/overlap.h"

#include <math.h>
#include <string.h>

enum { EVERY = 128, LEAST_SIZES = 8, MOST_SIZES = 32, MAX_TASKS = 192,
       TOP = 3 /* shares of an op alone, besides all of the device */ };
#define LEAST_PART 0.05 /* of a step's time: ops that take less have no joules measured */

/* One batch, and what is measured with it: each op alone with a share, its time or its joules; or two with the rest
 * for each other. */
typedef struct task {
    bool joules;
    bool decodes;          /* its tokens are decodes */
    uint32_t tokens;
    double share;
    enum wf_class beside;  /* compute has the share, this class the rest; compute itself: each op alone */
} task;

typedef struct tasks {
    task list[MAX_TASKS];
    size_t n;
} tasks;

static void add_task(tasks *t, task x)
{
    if (t->n < MAX_TASKS && x.tokens) t->list[t->n++] = x;
}

/* ---- what is to be measured ---------------------------------------------------------------------------------- */

static uint32_t most_decodes(const wf_overlap *o)
{
    return WF_MIN(o->e->layout.limits.seqs, o->e->layout.limits.logit_rows);
}

/* The largest first, which says what bounds an op; then smaller ones, evenly down to a part of it, in multiples of
 * the tile: nano-batches are small. */
static void add_sizes(const wf_overlap *o, tasks *t, double share, uint32_t n_sizes)
{
    uint32_t dense = o->e->layout.limits.step_tokens, tile = o->profile.tile,
        step = WF_UP((dense + n_sizes - 1) / n_sizes, tile), decodes = most_decodes(o);
    for (uint32_t i = 0; i < n_sizes && i * step < dense; i++)
        add_task(t, (task){false, false, dense - i * step, share, WF_CLASS_COMPUTE});
    for (uint32_t n = decodes, i = 0; n && i < n_sizes; n /= 2, i++)
        add_task(t, (task){false, true, n, share, WF_CLASS_COMPUTE});
}

/* Most important first: time may run out. A device that is one piece has no shares. */
static void list_tasks(const wf_overlap *o, tasks *t)
{
    uint32_t steps = o->profile.groups > 1 ? wf_share_steps(&o->profile) : 1;
    /* Every 128 tokens to the dense batch (NanoFlow, section 4.1.1), of small batches more often, of those above
     * 4,096 less. */
    uint32_t dense = o->e->layout.limits.step_tokens;
    uint32_t sizes = WF_MIN(WF_MAX((dense + EVERY - 1) / EVERY, (uint32_t)LEAST_SIZES), (uint32_t)MOST_SIZES);
    add_sizes(o, t, 1, o->p->quick ? sizes / 2 : sizes);
    /* With half of the device it draws as many joules for the work, and for twice as long what it draws whatever it
     * does. */
    for (uint32_t i = 0; o->power && i < (steps > 1 ? 2u : 1u); i++) {
        double share = i ? (double)(steps / 2) / steps : 1;
        add_task(t, (task){true, false, dense, share, WF_CLASS_COMPUTE});
        add_task(t, (task){true, true, most_decodes(o), share, WF_CLASS_COMPUTE});
    }
    for (enum wf_class c = WF_CLASS_MEMORY; c <= WF_CLASS_NETWORK; c++)
        for (uint32_t r = steps - 1; r > 0; r--) add_task(t, (task){false, false, dense, (double)r / steps, c});
    if (wf_has_copy_queue(&o->e->dev->info)) add_task(t, (task){false, false, dense, 1, WF_CLASS_COPY});
    for (uint32_t i = TOP; i > 0; i--) {
        double share = floor((double)steps * i / (TOP + 1)) / steps;
        bool twice = i < TOP && share == floor((double)steps * (i + 1) / (TOP + 1)) / steps;
        if (share > 0 && !twice) add_sizes(o, t, share, 1);
    }
}

/* ---- ops ----------------------------------------------------------------------------------------------------- */

static bool is_transfer(const wf_node *n) { return n->kind >= WF_NODE_SEND && n->kind < WF_N_NODE_KINDS; }

/* The first of its name stands for those of all layers. */
static bool is_first(const wf_graph *g, const wf_node *n)
{
    for (const wf_node *x = g->nodes; x < n; x++)
        if (!strcmp(x->name, n->name)) return false;
    return (n->kind == WF_NODE_KERNEL && wf_node_is_usual(n)) || is_transfer(n);
}

static wf_range rows_of(const wf_node *n, const wf_batch *b)
{
    static const wf_nano whole = {.end = {.end = true}};
    return wf_nano_range(n, &whole, b->n_decodes, b->n_tokens, b->n_logits);
}

/* Rows of logits come with decodes, one each. */
static bool belongs(const wf_node *n, bool decodes)
{
    return decodes == (n->rows == WF_ROWS_DECODE || n->rows == WF_ROWS_LOGITS);
}

/* What the clock cannot tell from nothing is nothing, which is what a profile without the op says. */
static weft_status measure_op(wf_overlap *o, wf_probe *probe, const wf_node *n, wf_range rows, double share)
{
    wf_probe_time t;
    if (!rows.count || wf_op_profile_has_time(&o->profile, n->name, rows.count, share)) return WEFT_OK;
    const wf_op_times *op = wf_op_profile_find(&o->profile, n->name);
    enum wf_class class = op               ? op->class
                          : is_transfer(n) ? WF_CLASS_NETWORK
                                           : wf_node_class(&o->e->layout.graph, n, rows.count, o->context,
                                                           wf_ridge(o->e->dev->info.type));
    wf_probe_lane lane = {n->name, rows, wf_groups_of_share(&o->profile, share)};
    WF_TRY(wf_probe_run(probe, &lane, 1, o->probe_us, &t));
    if (!(t.us > 0)) return WEFT_OK;
    return wf_op_profile_add_time(&o->profile, n->name, class,
                                  &(wf_op_time){rows.count, share, t.us, t.spread, o->p->quick});
}

static weft_status measure_alone(wf_overlap *o, wf_probe *probe, const task *t, const wf_batch *b)
{
    const wf_graph *g = &o->e->layout.graph;
    for (const wf_node *n = g->nodes; n < g->nodes + g->n_nodes; n++)
        if (is_first(g, n) && belongs(n, t->decodes)) WF_TRY(measure_op(o, probe, n, rows_of(n, b), t->share));
    return WEFT_OK;
}

/* ---- joules -------------------------------------------------------------------------------------------------- */

static double us_in_step(const wf_overlap *o, const wf_node *n, const wf_batch *b)
{
    return wf_op_us(wf_op_profile_find(&o->profile, n->name), rows_of(n, b).count) * (n->layer < 0 ? 1
            : o->e->layout.graph.n_layers);
}

/* Does it take a part of the step that is worth it? Transfers draw next to nothing. */
static bool counts(const wf_overlap *o, const task *t, const wf_node *n, const wf_batch *b)
{
    const wf_graph *g = &o->e->layout.graph;
    double all = 0;
    for (const wf_node *x = g->nodes; x < g->nodes + g->n_nodes; x++)
        if (is_first(g, x) && belongs(x, t->decodes)) all += us_in_step(o, x, b);
    return is_first(g, n) && belongs(n, t->decodes) && n->kind == WF_NODE_KERNEL &&
        us_in_step(o, n, b) > LEAST_PART * all;
}

static weft_status measure_energies(wf_overlap *o, wf_probe *probe, const task *t, const wf_batch *b)
{
    const wf_graph *g = &o->e->layout.graph;
    wf_overlap_begin_energy(o);
    for (const wf_node *n = g->nodes; n < g->nodes + g->n_nodes && !wf_overlap_ends(o); n++) {
        wf_range rows = rows_of(n, b);
        if (counts(o, t, n, b) && !wf_op_profile_has_energy(&o->profile, n->name, rows.count, t->share))
            WF_TRY(wf_overlap_measure_energy(o, probe, n, rows, t->share, b));
    }
    wf_op_profile_fit_energy(&o->profile);
    return WEFT_OK;
}

static bool has_energies(const wf_overlap *o, const task *t, const wf_batch *b)
{
    const wf_graph *g = &o->e->layout.graph;
    for (const wf_node *n = g->nodes; n < g->nodes + g->n_nodes; n++)
        if (counts(o, t, n, b) && !wf_op_profile_has_energy(&o->profile, n->name, rows_of(n, b).count, t->share))
            return false;
    return true;
}

/* ---- pairs --------------------------------------------------------------------------------------------------- */

/* The op of a class that takes longest in a step, and can run on a part of the rows: compute on those of prompts,
 * others on those of decodes. */
static const wf_node *longest_of(const wf_overlap *o, enum wf_class class)
{
    const wf_graph *g = &o->e->layout.graph;
    const wf_node *longest = NULL;
    double most = 0;
    for (const wf_node *n = g->nodes; n < g->nodes + g->n_nodes; n++) {
        const wf_op_times *op = wf_op_profile_find(&o->profile, n->name);
        bool cuts = n->rows == WF_ROWS_BATCH || n->rows == (class == WF_CLASS_COMPUTE ? WF_ROWS_PREFILL
                                                            : WF_ROWS_DECODE);
        if (!op || op->class != class || !cuts || n->layer < 0 || !is_first(g, n)) continue;
        double us = wf_op_us(op, o->e->layout.limits.step_tokens);
        if (us > most) most = us, longest = n;
    }
    return longest;
}

static weft_status add_rate(wf_overlap *o, enum wf_class class, double share, const wf_probe_time *alone,
                            const wf_probe_time *beside)
{
    double rate = alone->us / beside->us;
    if (!(rate > 0) || wf_op_profile_has_rate(&o->profile, class, share)) return WEFT_OK;
    rate = WF_MIN(rate, 1);
    return wf_op_profile_add_rate(&o->profile, class,
                                  &(wf_share_rate){share, rate,
                                                   rate * (beside->spread / beside->us + alone->spread / alone->us),
                                                   o->p->quick});
}

/* Each alone with all of the device, then both at one time. Copies of KV pages to the host share nothing with kernels
 * but memory, so that they have none of the device and leave all of it. */
static weft_status measure_pair(wf_overlap *o, wf_probe *probe, const task *t, const wf_batch *b)
{
    bool copies = t->beside == WF_CLASS_COPY;
    const wf_node *compute = longest_of(o, WF_CLASS_COMPUTE), *other = copies ? NULL : longest_of(o, t->beside);
    wf_probe_lane lanes[2];
    wf_probe_time alone[2], beside[2];
    if (!compute || (!other && !copies)) return WEFT_OK;
    lanes[0] = (wf_probe_lane){compute->name, {b->n_decodes, b->n_tokens - b->n_decodes}, 0};
    lanes[1] = (wf_probe_lane){other ? other->name : NULL, {0, copies ? b->n_pages : b->n_decodes}, 0};
    for (size_t i = 0; i < 2; i++) WF_TRY(wf_probe_run(probe, &lanes[i], 1, o->probe_us, &alone[i]));
    lanes[0].groups = wf_groups_of_share(&o->profile, t->share);
    lanes[1].groups = copies ? 0 : wf_groups_of_share(&o->profile, 1 - t->share);
    WF_TRY(wf_probe_run(probe, lanes, 2, o->probe_us, beside));
    WF_TRY(add_rate(o, WF_CLASS_COMPUTE, t->share, &alone[0], &beside[0]));
    return add_rate(o, t->beside, 1 - t->share, &alone[1], &beside[1]);
}

static bool has_alone(const wf_overlap *o, const task *t, const wf_batch *b)
{
    const wf_graph *g = &o->e->layout.graph;
    for (const wf_node *n = g->nodes; n < g->nodes + g->n_nodes; n++) {
        wf_range rows = rows_of(n, b);
        if (is_first(g, n) && belongs(n, t->decodes) && rows.count &&
            !wf_op_profile_has_time(&o->profile, n->name, rows.count, t->share)) return false;
    }
    return true;
}

static weft_status run_task(wf_overlap *o, wf_probe *probe, const task *t, wf_batch *b)
{
    bool pair = t->beside != WF_CLASS_COMPUTE;
    uint32_t decodes = t->decodes ? t->tokens : pair ? WF_MIN(most_decodes(o) - 1, t->tokens / 2) : 0;
    if (pair && !decodes) return WEFT_OK;
    wf_step_load x = wf_load_fit(o->e, (wf_step_load){decodes, t->tokens - decodes}, o->context);
    if (!x.decodes && !x.prefill) return WEFT_OK; /* this engine can run nothing of it */
    WF_TRY(wf_load_batch(o->e, x, o->context, b));
    bool known = t->joules ? has_energies(o, t, b)
                 : !pair   ? has_alone(o, t, b)
                           : wf_op_profile_has_rate(&o->profile, t->beside, 1 - t->share) ||
                               (t->beside != WF_CLASS_COPY && !longest_of(o, t->beside)) ||
                               !longest_of(o, WF_CLASS_COMPUTE);
    if (known) return WEFT_OK;
    wf_stopper before = wf_overlap_bound_builds(o);
    weft_status s = wf_load_step(o->e, b, NULL);
    if (s == WEFT_OK)
        s = t->joules ? measure_energies(o, probe, t, b) : !pair ? measure_alone(o, probe, t, b)
            : measure_pair(o, probe, t, b);
    wf_overlap_free_builds(before);
    if (s != WEFT_OK && s != WEFT_ERR_CANCELLED) return s;
    return o->profile.n_ops ? wf_op_profile_save(&o->profile, o->profile_path) : WEFT_OK;
}

weft_status wf_overlap_measure(wf_overlap *o, bool *all)
{
    tasks t = {0};
    wf_probe *probe = NULL;
    wf_batch b = {0};
    list_tasks(o, &t);
    weft_status s = wf_batch_init(&b, &o->e->layout.limits);
    if (s == WEFT_OK) s = wf_probe_open(o->e->exec, &probe);
    for (size_t i = 0; s == WEFT_OK && i < t.n; i++) {
        if (o->p->on_progress) o->p->on_progress(o->p->user, "ops", (double)i / (double)t.n);
        if (wf_overlap_ends(o)) break;
        s = run_task(o, probe, &t.list[i], &b);
    }
    *all = s == WEFT_OK && !wf_overlap_ends(o); /* the last may have been cut short */
    wf_probe_close(probe);
    wf_batch_free(&b);
    return s;
}
