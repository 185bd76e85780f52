/* simulate: a plan on a clock that a profile drives. See simulate.h. */
#include "plan/simulate.h"
#include "plan/cost.h"

#include <stdlib.h>

uint32_t wf_groups_of_share(const wf_op_profile *p, double share)
{
    return share >= 1 ? 0 : WF_MAX(1u, (uint32_t)(share * p->groups + 1e-9));
}

double wf_share_of_groups(const wf_op_profile *p, uint32_t groups)
{
    return groups && groups < p->groups ? (double)groups / p->groups : 1;
}

/* What a nano-operation does in this batch. */
typedef struct job {
    const wf_op_times *op;
    uint32_t rows, next; /* next: the one behind it in its queue, from 1 */
    double us, share;
    bool ended;
} job;

typedef struct sim {
    const wf_graph *g;
    const wf_plan *p;
    const wf_op_profile *profile;
    job *jobs;
    uint32_t head[WF_MAX_QUEUES]; /* of each queue: the first that has not ended, from 1; 0: none */
    double left[WF_MAX_QUEUES];   /* of its work, if it runs */
    bool runs[WF_MAX_QUEUES];
    double now;
    wf_sim_span *spans;
    wf_sim_pieces *pieces; /* or NULL */
} sim;

static void list_jobs(sim *s, const wf_sim_batch *b)
{
    uint32_t last[WF_MAX_QUEUES] = {0};
    for (uint32_t i = 0; i < s->p->n_nanos; i++) {
        const wf_nano *n = &s->p->nanos[i];
        const wf_node *node = &s->g->nodes[n->node];
        const wf_op_times *op = wf_op_profile_find(s->profile, node->name);
        uint32_t rows = wf_nano_range(node, n, b->decodes, b->tokens, b->logits).count;
        bool copies = op && op->class == WF_CLASS_COPY;
        s->jobs[i] = (job){.op = op,
                           .rows = rows,
                           .us = wf_op_us(op, rows),
                           .share = copies ? 0 : wf_share_of_groups(s->profile, n->groups)};
        *(last[n->queue] ? &s->jobs[last[n->queue] - 1].next : &s->head[n->queue]) = i + 1;
        last[n->queue] = i + 1;
    }
}

static bool may_start(const sim *s, const wf_nano *n)
{
    for (uint32_t w = 0; w < n->n_waits; w++)
        if (!s->jobs[s->p->waits[n->wait + w]].ended) return false;
    return true;
}

static void end_head(sim *s, uint32_t q)
{
    uint32_t i = s->head[q] - 1;
    s->runs[q] = false;
    s->jobs[i].ended = true;
    if (s->spans) s->spans[i].end = s->now;
    s->head[q] = s->jobs[i].next;
}

/* What has no work ends as it starts. True: something started. */
static bool start_heads(sim *s)
{
    bool any = false;
    for (uint32_t q = 0; q < s->p->n_queues; q++) {
        if (s->runs[q] || !s->head[q] || !may_start(s, &s->p->nanos[s->head[q] - 1])) continue;
        any = s->runs[q] = true;
        s->left[q] = 1;
        if (s->spans) s->spans[s->head[q] - 1].begin = s->now;
        if (s->jobs[s->head[q] - 1].us <= 0) end_head(s, q);
    }
    return any;
}

/* Work of the running one of a queue done in a microsecond. */
static double speed_of(const sim *s, uint32_t q, double shares, uint32_t n_running)
{
    const job *j = &s->jobs[s->head[q] - 1];
    if (j->op->class == WF_CLASS_COPY && n_running == 1) return 1 / j->us;
    double share = j->share / WF_MAX(1, shares), rate = wf_op_rate(s->profile, j->op, j->rows, share, n_running == 1);
    return (shares > 1 + 1e-9 ? WF_MIN(rate, WF_MAX(share, 1e-3)) : rate) / j->us;
}

static weft_status add_piece(sim *s, uint32_t q, double us, double done)
{
    wf_sim_pieces *p = s->pieces;
    if (!p || us <= 0) return WEFT_OK;
    if (!wf_grow(&p->list, p->n, &p->cap, sizeof *p->list)) return WEFT_ERR_NOMEM;
    p->list[p->n++] = (wf_sim_piece){s->head[q] - 1, s->now, s->now + us, done};
    return WEFT_OK;
}

/* Runs to when the first of those that run ends; *any false: none runs. */
static weft_status advance_clock(sim *s, bool *any)
{
    double shares = 0, speed[WF_MAX_QUEUES], first = 0;
    uint32_t n = 0;
    for (uint32_t q = 0; q < s->p->n_queues; q++)
        if (s->runs[q]) shares += s->jobs[s->head[q] - 1].share, n++;
    for (uint32_t q = 0, seen = 0; q < s->p->n_queues; q++) {
        if (!s->runs[q]) continue;
        speed[q] = speed_of(s, q, shares, n);
        if (!seen++ || s->left[q] / speed[q] < first) first = s->left[q] / speed[q];
    }
    for (uint32_t q = 0; n && q < s->p->n_queues; q++)
        if (s->runs[q]) WF_TRY(add_piece(s, q, first, first * speed[q]));
    s->now += first;
    for (uint32_t q = 0; n && q < s->p->n_queues; q++) {
        if (!s->runs[q]) continue;
        s->left[q] -= first * speed[q];
        if (s->left[q] < 1e-9) end_head(s, q);
    }
    *any = n;
    return WEFT_OK;
}

static weft_status run_queues(sim *s)
{
    for (bool any = true; any;) {
        while (start_heads(s));
        WF_TRY(advance_clock(s, &any));
    }
    for (uint32_t q = 0; q < s->p->n_queues; q++)
        if (s->head[q])
            return wf_fail(WEFT_ERR_ARG, "plan: '%s' waits for ever",
                           s->g->nodes[s->p->nanos[s->head[q] - 1].node].name);
    return WEFT_OK;
}

weft_status wf_simulate_pieces(const wf_graph *g, const wf_plan *p, const wf_op_profile *profile, const wf_sim_batch *b,
                               wf_sim_span *spans, wf_sim_pieces *pieces, double *us)
{
    sim s = {.g = g,
             .p = p,
             .profile = profile,
             .spans = spans,
             .pieces = pieces,
             .jobs = wf_calloc(p->n_nanos, sizeof *s.jobs)};
    if (!s.jobs) return WEFT_ERR_NOMEM;
    list_jobs(&s, b);
    weft_status status = run_queues(&s);
    *us = s.now;
    free(s.jobs);
    return status;
}

weft_status wf_simulate(const wf_graph *g, const wf_plan *p, const wf_op_profile *profile, const wf_sim_batch *b,
                        wf_sim_span *spans, double *us)
{
    return wf_simulate_pieces(g, p, profile, b, spans, NULL, us);
}

/* Prompts' rows see half of the keys. */
double wf_simulate_energy(const wf_graph *g, const wf_plan *p, const wf_op_profile *profile, const wf_sim_batch *b)
{
    wf_work all = {0, 0};
    for (const wf_nano *x = p->nanos; x < p->nanos + p->n_nanos; x++) {
        const wf_node *n = &g->nodes[x->node];
        double keys = n->rows == WF_ROWS_PREFILL ? profile->context / 2.0 : profile->context;
        if (n->kind != WF_NODE_KERNEL || !wf_op_profile_find(profile, n->name)) continue;
        wf_work w = wf_node_work(g, n, wf_nano_range(n, x, b->decodes, b->tokens, b->logits).count, keys);
        all.flops += w.flops, all.bytes += w.bytes;
    }
    return profile->energy.flop > 0 ? 1e6 * wf_energy_seconds(&profile->energy, all.flops, all.bytes) : 0;
}
