/* simulate: `weft simulate`: a model, devices of a table and a layout become the numbers that cluster.c runs with. */
#include "engine/engine.h"
#include "lab/cluster.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE_TOKENS = 16, TILE = 128, STEP_TOKENS = 1024, LEAST_SEQS = 64, MOST_SEQS = 256,
       MOST_STEPS = 4096 };

typedef struct simulation {
    const struct weft_simulate_params *p;
    struct weft_simulation *out;
    uint32_t tp, pp, replicas;
    wf_machine one, m; /* a device, and those that share every matrix */
    wf_layout layout;
    wf_stage *stages;  /* [pp] */
    double row;        /* bytes of a row of the residual stream */
    wf_cluster cluster;
} simulation;

/* ---- times ----------------------------------------------------------------------------------------------------- */

static double stage_seconds(const void *user, uint32_t stage, const wf_load *l)
{
    const simulation *s = user;
    return wf_stage_seconds(&s->stages[stage], l, &s->m);
}

/* Each device of a stage sends all rows to its counterpart in the next one. Stages fill hosts in turn. The last one
 * says which tokens it sampled. */
static double send_seconds(const void *user, uint32_t stage, const wf_load *l)
{
    const simulation *s = user;
    uint32_t next = (stage + 1) % s->pp;
    double bytes = next ? wf_load_tokens(l) * s->row : l->logits * sizeof(int32_t), host = s->one.host;
    bool near = host <= 0 || (uint64_t)(stage * s->tp / host) == (uint64_t)(next * s->tp / host);
    return wf_machine_send(&s->m, bytes, near);
}

/* ---- what fits ------------------------------------------------------------------------------------------------- */

static weft_status check_layout(const simulation *s)
{
    const struct weft_model *m = s->p->model;
    if (!m->arch) return wf_fail(WEFT_ERR_ARG, "%s contains only a vocabulary", m->info.path);
    if (m->hp.bidirectional) return wf_fail(WEFT_ERR_ARG, "%s does not generate: it has no decodes", m->info.path);
    if (m->hp.n_head % s->tp)
        return wf_fail(WEFT_ERR_ARG, "%u devices cannot share %u heads evenly", s->tp, m->hp.n_head);
    if (s->pp > m->hp.n_layer)
        return wf_fail(WEFT_ERR_ARG, "a pipeline of %u stages needs as many layers, and there are %u", s->pp,
                       m->hp.n_layer);
    if ((uint64_t)s->pp * s->replicas > MOST_STEPS)
        return wf_fail(WEFT_ERR_ARG, "%u replicas of %u stages: more than %d steps in flight are not simulated",
                       s->replicas, s->pp, MOST_STEPS);
    for (size_t i = 0; i < s->p->n; i++) {
        const struct weft_sim_request *r = &s->p->requests[i];
        if (!r->n_in || (uint64_t)r->n_in + r->n_out > s->out->context)
            return wf_fail(WEFT_ERR_ARG, "a request of %u tokens in and %u out does not fit a context of %u", r->n_in,
                           r->n_out, s->out->context);
    }
    return wf_layout_check_kv_dtype(m, s->p->kv_dtype);
}

static uint32_t longest_request(const struct weft_simulate_params *p)
{
    uint64_t longest = 1;
    for (size_t i = 0; i < p->n; i++) longest = WF_MAX(longest, (uint64_t)p->requests[i].n_in + p->requests[i].n_out);
    return (uint32_t)WF_MIN(longest, UINT32_MAX);
}

/* KV pages of a micro-batch: of the stage with the most layers, since each has its layers of every page. KV heads that
 * are fewer than the devices are copied. */
static weft_status find_pages(simulation *s)
{
    double most = 0, layers = s->layout.graph.n_layers, copies = (double)s->tp / s->p->model->hp.n_kv_head,
           token = s->out->kv_bytes_per_token * WF_MAX(copies, 1),
           part = s->p->memory_utilization > 0 ? s->p->memory_utilization : 0.9, memory = s->m.memory * part;
    wf_limits *l = &s->cluster.limits;
    for (uint32_t i = 0; i < s->pp; i++) most = WF_MAX(most, s->stages[i].n_layers / layers);
    double tokens = (memory - s->out->weight_bytes * most) / (token * most * s->pp);
    l->seq_pages = (s->out->context + PAGE_TOKENS - 1) / PAGE_TOKENS;
    l->pages = (uint32_t)WF_MIN(WF_MAX(tokens / PAGE_TOKENS, 0), INT32_MAX);
    s->out->whole_contexts = l->pages / l->seq_pages;
    if (s->out->whole_contexts >= 1) return WEFT_OK;
    return wf_fail(WEFT_ERR_ARG,
                   "%u x %u devices with %.4g GB for weights and KV pages each do not hold %.4g GB of weights and a "
                   "context of %u tokens for each of %u steps in flight: take more devices, or shorter requests",
                   s->tp, s->pp, s->one.memory * part / 1e9, s->out->weight_bytes / 1e9, s->out->context, s->pp);
}

static weft_status find_limits(simulation *s)
{
    const struct weft_simulate_params *p = s->p;
    wf_limits *l = &s->cluster.limits;
    WF_TRY(find_pages(s));
    WF_TRY(wf_policy_parse(p->policy, &s->cluster.sched.policy));
    bool whole = s->cluster.sched.policy == WF_POLICY_ORCA || s->cluster.sched.policy == WF_POLICY_REQUEST;
    uint32_t contexts = (uint32_t)WF_MIN(s->out->whole_contexts, MOST_SEQS);
    uint32_t usual = whole ? WF_MAX(s->out->context, STEP_TOKENS) : STEP_TOKENS;
    l->step_tokens = p->max_batched_tokens ? p->max_batched_tokens : usual;
    l->seqs = WF_MIN(p->n_seqs ? p->n_seqs : WF_MAX(contexts, LEAST_SEQS), l->step_tokens);
    l->logit_rows = l->step_tokens;
    l->pages = (uint32_t)WF_MIN(l->pages, (uint64_t)l->seqs * l->seq_pages); /* they use no more */
    s->cluster.sched.kv.page_tokens = PAGE_TOKENS, s->cluster.sched.tile = TILE, s->cluster.sched.kv.no_prefix = true;
    s->out->n_seqs = l->seqs, s->out->max_batched_tokens = l->step_tokens;
    return WEFT_OK;
}

static weft_status make_stages(simulation *s)
{
    const wf_graph *g = &s->layout.graph;
    s->stages = wf_calloc(s->pp, sizeof *s->stages);
    if (!s->stages) return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < s->pp; i++) WF_TRY(wf_stage_make(g, i, s->pp, &s->stages[i]));
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == WF_OP_GET_ROWS) {
            const wf_value *x = &g->values[g->nodes[i].out[WF_GET_ROWS_Y].value];
            s->row = (double)wf_dtype_bytes(x->dtype, x->cols);
            return WEFT_OK;
        }
    return WEFT_OK;
}

static weft_status run_simulation(simulation *s)
{
    const struct weft_simulate_params *p = s->p;
    WF_TRY(wf_machine_find(p->devices, p->on, &s->one));
    s->m = wf_machine_times(&s->one, s->tp);
    if (s->tp * s->pp > 1 && s->one.network <= 0)
        wf_log(WEFT_LOG_WARN, "the network of %s is unknown: messages take no time", s->one.name);
    s->out->context = p->context ? p->context : longest_request(p);
    WF_TRY(check_layout(s));
    s->layout = (wf_layout){.model = p->model, .params = {.f16_residual = p->f16_residual, .kv_dtype = p->kv_dtype},
                            .context = s->out->context, .page_tokens = PAGE_TOKENS};
    WF_TRY(wf_layout_graph(&s->layout));
    wf_copy(s->out->device, sizeof s->out->device, s->one.name);
    s->out->n_devices = s->tp * s->pp * s->replicas;
    s->out->weight_bytes = (double)p->model->info.weight_bytes;
    s->out->kv_bytes_per_token = wf_kv_bytes(&s->layout.graph, 1, 0);
    s->cluster = (wf_cluster){.replicas = s->replicas, .stages = s->pp, .window = p->model->hp.window,
                              .stage = stage_seconds, .send = send_seconds, .user = s,
                              .on_progress = p->on_progress, .stop = p->stop, .progress_user = p->user};
    WF_TRY(make_stages(s));
    WF_TRY(find_limits(s));
    return wf_cluster_run(&s->cluster, p->requests, p->n, &s->out->use);
}

weft_status weft_simulate(const struct weft_simulate_params *p, struct weft_simulation *out)
{
    *out = (struct weft_simulation){0};
    simulation s = {.p = p, .out = out, .tp = p->tp ? p->tp : 1, .pp = p->pp ? p->pp : 1,
                    .replicas = p->replicas ? p->replicas : 1};
    weft_status st = run_simulation(&s);
    for (uint32_t i = 0; s.stages && i < s.pp; i++) wf_stage_free(&s.stages[i]);
    free(s.stages);
    wf_layout_free(&s.layout);
    return st;
}
