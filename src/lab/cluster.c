/* cluster: see cluster.h. */
#include "lab/cluster.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Who forms one micro-batch after another. */
typedef struct lane {
    wf_sched s;
    wf_batch b;
    double *free;        /* [stages], of its replica: when each has done what came before */
    double end, since;   /* of its step; when it got something to run, having had nothing */
    double bubble;       /* of its step, in all stages */
    uint32_t n;          /* requests */
    bool runs;
} lane;

typedef struct sim_seq {
    wf_seq q; /* first, so that it is found from its sequence */
    struct weft_sim_request *r;
} sim_seq;

typedef struct cluster {
    const wf_cluster *p;
    lane *lanes;
    size_t n_lanes;
    double *free;     /* [replicas, stages] */
    int32_t *zeros;   /* tokens of all requests: their ids mean nothing */
    struct weft_sim_request **queue; /* in the order of their arrivals */
    size_t n, next, done;
    double now;
    struct weft_sim_use *use;
} cluster;

/* ---- requests -------------------------------------------------------------------------------------------------- */

static int earlier_first(const void *a, const void *b)
{
    const struct weft_sim_request *x = *(struct weft_sim_request *const *)a, *y = *(struct weft_sim_request *const *)b;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at) : (x > y) - (x < y);
}

/* The one with the fewest requests that may have more; NULL: none. */
static lane *emptiest(const cluster *c)
{
    lane *best = NULL;
    for (lane *l = c->lanes; l < c->lanes + c->n_lanes; l++)
        if (l->n < c->p->limits.seqs && (!best || l->n < best->n)) best = l;
    return best;
}

/* ---- steps ----------------------------------------------------------------------------------------------------- */

static wf_load load_of(const wf_batch *b, double window)
{
    const int32_t *pos = b->in[WF_INPUT_POS];
    double decodes = b->n_decodes, prefill = b->n_tokens - b->n_decodes, keys[2] = {0, 0};
    for (uint32_t i = 0; i < b->n_tokens; i++) keys[i >= b->n_decodes] += pos[i] + 1;
    return (wf_load){decodes, decodes > 0 ? keys[0] / decodes : 0, prefill, prefill > 0 ? keys[1] / prefill : 0,
                     b->n_logits, window};
}

static void begin_step(cluster *c, lane *l)
{
    wf_sched_batch(&l->s, &l->b);
    l->runs = l->b.n_tokens > 0;
    if (l->runs) {
        /* Through all stages, each of which takes the micro-batches in the order in which the first one did. */
        const wf_cluster *p = c->p;
        wf_load load = load_of(&l->b, p->window);
        double at = c->now;
        l->bubble = 0;
        for (uint32_t s = 0; s < p->stages; s++) {
            double begin = WF_MAX(at, l->free[s]), took = p->stage(p->user, s, &load);
            l->bubble += WF_MAX(begin - WF_MAX(l->free[s], l->since), 0);
            c->use->busy += took;
            l->free[s] = begin + took;
            at = l->free[s] + (p->stages > 1 ? p->send(p->user, s, &load) : 0);
        }
        l->end = at;
        l->since = 0;
        c->use->bubbles += l->bubble;
        c->use->steps++, c->use->tokens += l->b.n_tokens;
    }
}

/* What a sequence has after a step that it was part of; true: it has ended. */
static bool advance_seq(const cluster *c, const lane *l, sim_seq *a)
{
    wf_seq *q = &a->q;
    a->r->bubble += l->bubble;
    if (q->n_computed < q->n_tokens) return false;
    if (!a->r->n_out || q->n_tokens == q->n_prompt) a->r->first = c->now;
    a->r->last = c->now;
    if (a->r->n_out) q->n_tokens++;
    return q->n_tokens == q->max_tokens;
}

/* ---- the clock ------------------------------------------------------------------------------------------------- */

static weft_status run_clock(cluster *c)
{
    const wf_cluster *p = c->p;
    for (uint64_t n = 0; c->done < c->n; n++) {
        for (lane *l; c->next < c->n && c->queue[c->next]->at <= c->now && (l = emptiest(c)); c->next++) {
            struct weft_sim_request *r = c->queue[c->next];
            sim_seq *a = wf_calloc(1, sizeof *a);
            if (!a) return WEFT_ERR_NOMEM;
            a->r = r;
            a->q = (wf_seq){
                .tokens = c->zeros, .n_tokens = r->n_in, .max_tokens = r->n_in + r->n_out, .no_logits = !r->n_out};
            if (!l->n++) l->since = c->now;
            wf_sched_add(&l->s, &a->q);
        }
        for (lane *l = c->lanes; l < c->lanes + c->n_lanes; l++)
            if (!l->runs && l->n) begin_step(c, l);
        double t = c->next < c->n && emptiest(c) ? c->queue[c->next]->at : INFINITY;
        for (const lane *l = c->lanes; l < c->lanes + c->n_lanes; l++)
            if (l->runs) t = WF_MIN(t, l->end);
        if (!(t < INFINITY)) return wf_fail(WEFT_ERR_INTERNAL, "the simulation of a cluster stands still");
        c->now = WF_MAX(c->now, t);
        for (lane *l = c->lanes; l < c->lanes + c->n_lanes; l++)
            if (l->runs && l->end <= c->now) {
                l->runs = false;
                wf_sched_advance(&l->s, false);
                for (wf_seq *q = l->s.running, *next; q; q = next) {
                    next = q->next;
                    if (!q->n_scheduled || !advance_seq(c, l, (sim_seq *)q)) continue;
                    wf_sched_remove(&l->s, q, true);
                    free(q);
                    l->n--, c->done++;
                }
            }
        if (n % 256) continue;
        if (p->stop && p->stop(p->progress_user)) return wf_fail(WEFT_ERR_CANCELLED, "stopped");
        if (p->on_progress) p->on_progress(p->progress_user, "simulate", (double)c->done / (double)c->n);
    }
    return WEFT_OK;
}

/* ---- begin and end --------------------------------------------------------------------------------------------- */

static weft_status begin_cluster(cluster *c, struct weft_sim_request *requests)
{
    uint32_t longest = 0;
    for (size_t i = 0; i < c->n; i++) longest = WF_MAX(longest, requests[i].n_in + requests[i].n_out);
    c->lanes = wf_calloc(c->n_lanes, sizeof *c->lanes);
    c->free = wf_calloc(c->n_lanes, sizeof *c->free);
    c->zeros = wf_calloc((size_t)longest + 1, sizeof *c->zeros);
    c->queue = wf_calloc(c->n + 1, sizeof *c->queue);
    if (!c->lanes || !c->free || !c->zeros || !c->queue) return WEFT_ERR_NOMEM;
    for (size_t i = 0; i < c->n; i++) c->queue[i] = &requests[i];
    qsort(c->queue, c->n, sizeof *c->queue, earlier_first);
    c->now = c->n ? c->queue[0]->at : 0;
    for (size_t i = 0; i < c->n_lanes; i++) c->free[i] = c->now;
    const wf_cluster *p = c->p;
    for (size_t i = 0; i < c->n_lanes; i++) {
        lane *l = &c->lanes[i];
        l->free = c->free + i % p->replicas * p->stages; /* so that the first requests go to all replicas */
        WF_TRY(wf_sched_init(&l->s, &p->limits, &p->sched));
        WF_TRY(wf_batch_init(&l->b, &p->limits));
    }
    return WEFT_OK;
}

static void end_list(wf_sched *s, wf_seq **list)
{
    for (wf_seq *q; (q = *list); free(q)) wf_sched_remove(s, q, false);
}

weft_status wf_cluster_run(const wf_cluster *p, struct weft_sim_request *requests, size_t n, struct weft_sim_use *out)
{
    *out = (struct weft_sim_use){0};
    cluster c = {.p = p, .n_lanes = (size_t)p->replicas * p->stages, .n = n, .use = out};
    for (size_t i = 0; i < n; i++) requests[i].first = requests[i].last = requests[i].bubble = 0;
    weft_status s = begin_cluster(&c, requests);
    double began = c.now;
    if (!s) s = run_clock(&c);
    out->seconds = c.now - began;
    for (size_t i = 0; c.lanes && i < c.n_lanes; i++) {
        lane *l = &c.lanes[i];
        if (l->s.clients) {
            end_list(&l->s, &l->s.running), end_list(&l->s, &l->s.preempted), end_list(&l->s, &l->s.nobody.waiting);
            c.use->preempted += l->s.n_preempted, c.use->recomputed += l->s.n_recomputed;
            wf_sched_free(&l->s);
        }
        wf_batch_free(&l->b);
    }
    free(c.lanes), free(c.free), free(c.zeros), free(c.queue);
    return s;
}
