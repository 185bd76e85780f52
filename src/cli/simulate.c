/* simulate: what a cluster of known devices would do with a model and loads, by the real scheduler on simulated clocks.
 */
#include "cli/load_options.h"
#include "cli/rows.h"
#include "loadgen/stats.h"

#include <stdlib.h>

typedef struct simulating {
    const wf_opts *o;
    const struct weft_model *m;
    char label[96];
    wf_rows rows;
    wf_progress bar;
} simulating;

/* One load with one policy, at one rate. */
typedef struct simulated {
    const char *policy, *load;
    double rate; /* requests per second; 0: all at once */
    size_t skipped;
    struct weft_simulation s;
    wf_load_stats stats;
    wf_series bubbles; /* of requests */
} simulated;

/* ---- results ----------------------------------------------------------------------------------------------------- */

static void print_title(const simulating *t, const struct weft_simulation *s)
{
    const wf_opts *o = t->o;
    printf("%s on %u x %s: %u x %u stages x %u devices (replicas, pipeline, tensor parallel). %.4g GB of weights, "
           "%.0f bytes of KV cache a token.\nThe KV pages of a step's sequences hold %.0f whole contexts of %u tokens, "
           "and as many steps are in flight as there are stages.\ntokens/s counts input and output; times are in "
           "ms.\n\n",
           t->label, s->n_devices, s->device, WF_MAX(o->cluster.replicas, 1u), WF_MAX(o->cluster.pp, 1u),
           WF_MAX(o->costs.n_devices, 1u), s->weight_bytes / 1e9, s->kv_bytes_per_token, s->whole_contexts, s->context);
}

static double percentile(const wf_series *s, double percent) { return s->n ? wf_percentile(s, percent) : NAN; }

/* From the least to the most, as a list of JSON. */
static const char *deciles(const wf_series *s, char buf[256])
{
    size_t n = 0;
    for (int i = 0; i <= 10; i++)
        n += (size_t)snprintf(buf + n, 256 - n, "%s%.9g", i ? ", " : "[", s->n ? wf_percentile(s, 10.0 * i) : 0);
    snprintf(buf + n, 256 - n, "]");
    return buf;
}

static void print_row(simulating *t, const simulated *r)
{
    const wf_load_stats *s = &r->stats;
    const struct weft_simulation *x = &r->s;
    const wf_opts *o = t->o;
    double rate = (double)(s->n_in + s->n_out) / s->seconds, stages = WF_MAX(o->cluster.pp, 1u);
    double devices = x->n_devices, all = x->use.seconds * stages * WF_MAX(o->cluster.replicas, 1u);
    char bubbles[256], e2el[256];
    const wf_cell cells[] = {
        WF_TEXT_CELL("build_commit", wf_commit()),
        WF_TEXT_CELL("device_name", x->device),
        WF_TEXT_CELL("model_type", t->label),
        WF_NUMBER_CELL("n_devices", devices),
        WF_NUMBER_CELL("tp", WF_MAX(o->costs.n_devices, 1u)),
        WF_NUMBER_CELL("pp", stages),
        WF_NUMBER_CELL("replicas", WF_MAX(o->cluster.replicas, 1u)),
        WF_TEXT_SHOWN("policy", "policy", -8, r->policy),
        WF_TEXT_SHOWN("load", "load", -12, r->load),
        WF_NUMBER_CELL("context", x->context),
        WF_NUMBER_CELL("whole_contexts", x->whole_contexts),
        WF_NUMBER_SHOWN("n_seqs", "seqs", 5, 0, x->n_seqs),
        WF_NUMBER_SHOWN("dense_batch", "step", 5, 0, x->max_batched_tokens),
        {"rate", "rate", 8, 3, r->rate, .hidden = !o->load.arrivals},
        WF_NUMBER_SHOWN("requests", "requests", 8, 0, s->completed),
        WF_NUMBER_SHOWN("skipped", "skipped", 7, 0, r->skipped),
        WF_NUMBER_SHOWN("input_tokens", "in", 9, 0, s->n_in),
        WF_NUMBER_SHOWN("output_tokens", "out", 9, 0, s->n_out),
        WF_NUMBER_SHOWN("seconds", "time s", 9, 2, s->seconds),
        WF_NUMBER_SHOWN("total_tokens_s", "tokens/s", 10, 1, rate),
        WF_NUMBER_SHOWN("device_tokens_s", "a device", 9, 1, rate / devices),
        WF_NUMBER_SHOWN("requests_s", "req/s", 8, 3, (double)s->completed / s->seconds),
        WF_NUMBER_SHOWN("ttft_p50_ms", "TTFT p50", 10, 2, percentile(&s->metric[WF_TTFT], 50)),
        WF_NUMBER_SHOWN("ttft_p99_ms", "p99", 10, 2, percentile(&s->metric[WF_TTFT], 99)),
        WF_NUMBER_SHOWN("tpot_p50_ms", "TPOT p50", 8, 2, percentile(&s->metric[WF_TPOT], 50)),
        WF_NUMBER_SHOWN("tpot_p99_ms", "p99", 8, 2, percentile(&s->metric[WF_TPOT], 99)),
        WF_NUMBER_SHOWN("bubble_p50_ms", "bubbles p50", 11, 2, percentile(&r->bubbles, 50)),
        WF_NUMBER_SHOWN("bubble_p99_ms", "p99", 10, 2, percentile(&r->bubbles, 99)),
        WF_NUMBER_SHOWN("busy_pct", "busy %", 6, 1, 100 * x->use.busy / all),
        WF_NUMBER_SHOWN("mean_step_tokens", "tok/step", 8, 1, (double)x->use.tokens / (double)x->use.steps),
        WF_NUMBER_SHOWN("preempted", "preempted", 9, 0, x->use.preempted),
        {"bubble_deciles_ms", .text = deciles(&r->bubbles, bubbles), .kind = WF_RAW},
        {"e2el_deciles_ms", .text = deciles(&s->metric[WF_E2EL], e2el), .kind = WF_RAW},
    };
    if (!t->rows.n && wf_rows_for_people(&t->rows)) print_title(t, x);
    wf_rows_add(&t->rows, cells, WF_LEN(cells));
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Times from a second on, for 0 means none. */
static uint64_t ns_of(double seconds) { return (uint64_t)((1 + seconds) * 1e9 + 0.5); }

static weft_status sum_up(const struct weft_sim_request *list, size_t n, simulated *r)
{
    static const double no_limit[WF_N_METRICS];
    wf_request_result *results = wf_calloc(n, sizeof *results);
    r->bubbles.v = wf_calloc(n, sizeof *r->bubbles.v);
    if (!results || !r->bubbles.v) return free(results), WEFT_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct weft_sim_request *q = &list[i];
        results[i] = (wf_request_result){.start_ns = ns_of(q->at), .first_ns = ns_of(q->first), .ok = true,
                                         .last_ns = ns_of(q->last), .n_in = q->n_in, .n_out = q->n_out};
        r->bubbles.v[r->bubbles.n++] = q->bubble * 1e3;
    }
    qsort(r->bubbles.v, n, sizeof *r->bubbles.v, ascending);
    weft_status s = wf_load_stats_make(results, n, r->s.use.seconds, no_limit, &r->stats);
    wf_request_results_free(results, n);
    return s;
}

static weft_status run_requests(simulating *t, const wf_request_specs *specs, const double *at, simulated *r)
{
    const wf_opts *o = t->o;
    struct weft_sim_request *list = wf_calloc(specs->n, sizeof *list);
    if (!list) return WEFT_ERR_NOMEM;
    for (size_t i = 0; i < specs->n; i++)
        list[i] = (struct weft_sim_request){.n_in = WF_MAX(specs->list[i].n_in, 1u), .n_out = specs->list[i].n_out,
                                            .at = at ? at[i] : 0};
    struct weft_simulate_params p = {
        .model = t->m, .on = o->costs.on, .devices = o->costs.devices, .f16_residual = o->engine.f16_residual,
        .kv_dtype = o->engine.kv_dtype, .policy = r->policy, .context = o->engine.context,
        .max_batched_tokens = o->engine.max_batched_tokens, .n_seqs = o->engine.n_seqs,
        .memory_utilization = o->engine.memory_utilization, .tp = o->costs.n_devices, .pp = o->cluster.pp,
        .replicas = o->cluster.replicas, .requests = list, .n = specs->n, .on_progress = wf_on_progress,
        .stop = wf_ask_interrupted, .user = o->quiet ? NULL : &t->bar};
    weft_status s = weft_simulate(&p, &r->s);
    wf_progress_end(&t->bar);
    if (!s) s = sum_up(list, specs->n, r);
    free(list);
    return s;
}

static weft_status run_load(simulating *t, const char *policy, const wf_named_load *l, double rate)
{
    wf_request_specs specs = {0};
    double *at = NULL;
    simulated r = {.policy = policy, .load = l->name, .rate = rate};
    uint32_t context = t->o->engine.context ? t->o->engine.context : UINT32_MAX;
    weft_status s = wf_load_pick(t->o, l, context, 1, &specs, &r.skipped);
    if (!s && t->o->load.arrivals && !(at = wf_load_arrivals(t->o, &specs, &r.rate))) s = WEFT_ERR_NOMEM;
    if (!s) s = run_requests(t, &specs, at, &r);
    if (!s) print_row(t, &r);
    free(at);
    free(specs.list); /* these specs own no text */
    free(r.bubbles.v);
    wf_load_stats_free(&r.stats);
    return s;
}

static int run_policies(simulating *t, const wf_named_loads *loads)
{
    static double at_once;
    const wf_reals rates = t->o->load.rates.n ? t->o->load.rates : (wf_reals){&at_once, 1};
    const char *rest = NULL;
    char policy[16];
    weft_status s = WEFT_OK;
    wf_catch_interrupt();
    while (!s && wf_load_policy(t->o, &rest, policy))
        for (size_t i = 0; i < loads->n && !s; i++)
            for (size_t k = 0; k < rates.n && !s; k++) s = run_load(t, policy, &loads->list[i], rates.v[k]);
    wf_rows_end(&t->rows);
    if (s == WEFT_ERR_CANCELLED) return wf_interrupted_exit();
    return s ? wf_say_error(s) : 0;
}

static int cmd_simulate(const wf_opts *o)
{
    struct weft_model *m = NULL;
    wf_named_loads loads = {0};
    simulating t = {.o = o, .rows.format = o->json ? "json" : NULL};
    if (!o->costs.on) return wf_usage(o->command, "--on NAME is needed: devices of a table, such as dgx-a100");
    int rc = wf_loads_check(o);
    if (!rc) rc = wf_open_model(o, false, &m);
    if (!rc) rc = wf_loads_read(o, o->engine.context ? o->engine.context : weft_model_info(m)->context, &loads);
    if (!rc) t.m = m, wf_model_label(m, t.label, sizeof t.label), rc = run_policies(&t, &loads);
    wf_loads_free(&loads);
    weft_model_close(m);
    return rc;
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static const wf_opt cluster_rows[] = {
    {0, "on", "NAME", "devices of a table with their network: dgx-a100, h200, ... (a wrong name lists them)",
     WF_OPT_TEXT, AT(costs.on)},
    {0, "tp", "N", "tensor parallel: devices that share every matrix (default 1)", WF_OPT_U32, AT(costs.n_devices), 1,
     1024},
    {0, "pp", "N", "pipeline parallel: stages that share the layers (default 1)", WF_OPT_U32, AT(cluster.pp), 1, 1024},
};
static WF_GROUP(cluster_group, "Cluster", cluster_rows);
static const wf_opt batch_rows[] = {
    {'c', "ctx-size", "CONTEXT", "tokens of the longest request; longer ones are skipped (default: the longest)",
     WF_OPT_U32, AT(engine.context), 0, 1 << 24},
    {0, "max-num-seqs", "N",
     "most sequences in a step (default: as many whole contexts as its KV pages hold, at least 64 and at most 256)",
     WF_OPT_U32, AT(engine.n_seqs), 1, 65536},
    {0, "max-num-batched-tokens", "N",
     "most tokens in a step (default 1024; for the policies orca and request the context length)", WF_OPT_U32,
     AT(engine.max_batched_tokens), 1, 65536},
    {0, "gpu-memory-utilization", "PART", "of each device, for weights and KV pages (default 0.9)", WF_OPT_REAL,
     AT(engine.memory_utilization), 0.01, 1},
    {0, "kv-dtype", "auto|f16|q8_0", "keys and values in the KV cache (default auto: f16)", WF_OPT_CHOICE,
     AT(engine.kv_dtype)},
    {0, "json", NULL, "print as JSON", WF_OPT_FLAG, AT(json)},
};
static WF_GROUP(batch_group, "Steps", batch_rows);
static const wf_opt_group *const groups[] = {&wf_group_model, &wf_group_shape,   &cluster_group, &wf_group_load,
                                             &batch_group,    &wf_group_general, NULL};

const wf_command wf_cmd_simulate = {
    .name = "simulate",
    .usage = "[-m FILE | --shape NAME] --on NAME [options]",
    .summary = "Predicts what a cluster of known devices would do with a model and loads. The scheduler is weft's own, "
               "with its policies; what a step takes comes from the cost model (`weft plan --cost`), one op after "
               "another, with the messages of the layout. Neither devices nor weights are needed.",
    .more = "A pipeline has as many steps in flight as stages, each with its own sequences.\n"
            "Bubbles are SARATHI's (section 5.3): how long all stages waited for the steps\n"
            "that a request was part of. Preempted sequences are computed again.\n\n"
            "Example, the pipeline of SARATHI's figure 12:\n"
            "  weft simulate --shape gpt3-175b --on dgx-a100 --tp 8 --pp 8 \\\n"
            "    --policy sarathi --max-num-batched-tokens 256 --const 2048:205\n",
    .groups = groups,
    .run = cmd_simulate,
};
