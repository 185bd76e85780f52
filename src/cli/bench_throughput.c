/* bench throughput: runs loads on an engine in this process. Measures the throughput of constant lengths and of traces
 * for each scheduling policy, or latency against the arrival rate. */
#include "base/options.h"
#include "cli/bench.h"
#include "cli/load_options.h"
#include "cli/rows.h"
#include "loadgen/replay.h"
#include "loadgen/stats.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { NORM_LIMIT_MS = 200 /* NanoFlow's limit on the mean normalised latency */, PAGE_TOKENS = 16 };
static const char cost_here[] = "here"; /* the device of the cost model is the one that runs */

/* The highest rate of a policy and a load within the latency limit. */
typedef struct limit_line {
    char policy[16];
    const wf_named_load *load;
    double best; /* 0: none */
} limit_line;

typedef struct throughput {
    const wf_opts *o;
    const struct weft_model *m;
    struct weft_device_info device; /* a copy, which outlives the engine */
    uint32_t context, n_seqs, batch; /* of the engine */
    double peak_flops;              /* 0: unknown */
    char cost_on[32];               /* the device of the cost model; "": it does not know this one */
    wf_named_loads loads;
    limit_line *lines;
    size_t n_lines, cap_lines;
    wf_rows rows;
    wf_progress bar;
    uint64_t n_runs; /* of this engine: each has prompts that the ones before did not leave in its KV pages */
} throughput;

/* One load with one policy, at one rate. */
typedef struct run_row {
    const char *policy;
    const wf_named_load *load;
    double rate;    /* requests per second; 0: all at once */
    size_t skipped; /* requests that do not fit the context */
    wf_load_stats stats;
    struct weft_stats before, after; /* of the engine */
    double total_rate, optimum_pct;  /* tokens per second, input and output; percent of equation 5's optimum, or NAN */
    uint32_t rounds; /* of conversations; 0 or 1: requests stand alone */
    uint64_t reusable;            /* prompt tokens that earlier rounds had computed, as whole pages */
    double first_ms, last_ms;     /* median TTFT of the first and of the last round */
    struct weft_kv_tier_stats tiers[WEFT_N_KV_TIERS]; /* before */
} run_row;

/* ---- the ceilings ---------------------------------------------------------------------------------------------- */

static void keep_peak(void *user, const struct weft_op_row *r)
{
    const struct weft_ceilings *c = r->ceilings;
    bool eight = !strncmp(r->dtype, "Q8", 2) || !strncmp(r->dtype, "Q4", 2);
    *(double *)user = WF_MAX(WF_MAX(c->f32, c->f16), eight ? c->q8 : 0);
}

/* The compute ceiling that `weft bench ops` measures, for NanoFlow's equation 5. */
static void find_peak(throughput *t)
{
    static const char *const shape[] = {"M=8,N=256,K=256"};
    struct weft_op_params p = wf_op_params(t->o, wf_main_dtype(t->m), shape, 1);
    t->peak_flops = t->o->load.peak_tflops * 1e12;
    if (t->peak_flops > 0 || t->o->engine.tensor_parallel > 1 || t->o->engine.pipeline_parallel > 1) return;
    p.repeat = p.rotate = 1;
    p.on_row = keep_peak;
    p.user = &t->peak_flops;
    if (weft_bench_ops(&p)) wf_note(t->o, "cannot measure the peak for NanoFlow's optimum: %s", wf_last_error());
}

static struct weft_cost_params cost_params(const throughput *t)
{
    const struct weft_engine_params *e = &t->o->engine;
    if (strcmp(t->cost_on, cost_here))
        return (struct weft_cost_params){.model = t->m, .on = t->cost_on, .f16_residual = e->f16_residual,
                                         .kv_dtype = e->kv_dtype};
    return (struct weft_cost_params){.model = t->m, .device = e->device, .tier = e->tier, .threads = e->threads,
                                     .f16_residual = e->f16_residual, .kv_dtype = e->kv_dtype};
}

/* --on: a name that is none is said before all runs, and what has to be measured is measured before. */
static weft_status take_cost_on(throughput *t)
{
    struct weft_cost *c = NULL;
    if (!t->o->load.cost_on) return WEFT_OK;
    wf_copy(t->cost_on, sizeof t->cost_on, t->o->load.cost_on);
    struct weft_cost_params p = cost_params(t);
    p.on_progress = wf_on_progress, p.user = t->o->quiet ? NULL : &t->bar;
    weft_status s = weft_cost(&p, &c);
    wf_progress_end(&t->bar);
    weft_cost_free(c);
    return s;
}

/* Without it, the device of the cost model's table whose name is a word of this one's ("NVIDIA H200": h200). */
static void guess_cost_on(throughput *t)
{
    size_t n;
    for (const char *word = t->device.name; *(word += strspn(word, " ")); word += n) {
        struct weft_cost *c;
        n = strcspn(word, " ");
        snprintf(t->cost_on, sizeof t->cost_on, "%.*s", (int)n, word);
        for (char *a = t->cost_on; *a; a++) *a = (char)tolower((unsigned char)*a);
        if (weft_cost(&(struct weft_cost_params){.model = t->m, .on = t->cost_on}, &c)) continue;
        weft_cost_free(c);
        return;
    }
    *t->cost_on = 0;
}

/* Tokens per second that the cost model says are possible with requests as long as these on average; 0: unknown.
 * Without answers no load is steady. */
static double possible_rate(const throughput *t, const wf_load_stats *s)
{
    struct weft_cost *c;
    if (!*t->cost_on || !s->completed || !s->n_in || !s->n_out) return 0;
    struct weft_cost_params p = cost_params(t);
    p.input_len = (double)s->n_in / (double)s->completed, p.output_len = (double)s->n_out / (double)s->completed;
    if (weft_cost(&p, &c)) return 0;
    double optimum = c->optimum;
    weft_cost_free(c);
    return optimum;
}

/* ---- results ---------------------------------------------------------------------------------------------------- */

static double percentile(const run_row *r, enum wf_metric m, double percent)
{
    return r->stats.metric[m].n ? wf_percentile(&r->stats.metric[m], percent) : NAN;
}

static double norm_mean(const run_row *r) { return r->stats.metric[WF_NORM].n ? r->stats.metric[WF_NORM].mean : NAN; }

static void print_title(const throughput *t, const char *label)
{
    bool here = !strcmp(t->cost_on, cost_here);
    double params = (double)weft_model_info(t->m)->n_active;
    printf(
        "%s on %s (%s): context %u, %u sequences, dense batch %u. tokens/s counts input and output; times are in ms.\n",
        label, t->device.name, t->device.id, t->context, t->n_seqs, t->batch);
    if (t->peak_flops > 0)
        printf("The optimum is NanoFlow's equation 5: %.4g TFLOP/s / (2 x %.4g parameters) = %.0f tokens/s.\n",
               t->peak_flops / 1e12, params, t->peak_flops / (2 * params));
    if (*t->cost_on)
        printf("The model is `weft plan --cost%s%s`, with memory, for requests of these lengths.\n",
               here ? "" : " --on ", here ? "" : t->cost_on);
    putchar('\n');
}

static void print_run(throughput *t, const run_row *r)
{
    char label[96];
    const wf_load_stats *s = &r->stats;
    double steps = (double)(r->after.steps - r->before.steps),
           tokens = (double)(r->after.step_tokens - r->before.step_tokens);
    double idle = (double)(r->after.idle_ns - r->before.idle_ns),
           all = idle + (double)(r->after.busy_ns - r->before.busy_ns);
    double possible = possible_rate(t, s);
    wf_model_label(t->m, label, sizeof label);
    bool at_once = !t->o->load.arrivals;
    const wf_cell cells[] = {
        WF_BUILD_CELLS(&t->device),
        WF_TEXT_CELL("model_type", label),
        WF_TEXT_SHOWN("policy", "policy", -8, r->policy),
        WF_TEXT_SHOWN("load", "load", -12, r->load->name),
        WF_NUMBER_CELL("context", t->context),
        WF_NUMBER_CELL("n_seqs", t->n_seqs),
        WF_NUMBER_CELL("dense_batch", t->batch),
        {"rate", "rate", 8, 3, r->rate, .hidden = at_once},
        WF_NUMBER_SHOWN("requests", "requests", 8, 0, s->completed),
        WF_NUMBER_SHOWN("skipped", "skipped", 7, 0, r->skipped),
        WF_NUMBER_SHOWN("input_tokens", "in", 8, 0, s->n_in),
        WF_NUMBER_SHOWN("output_tokens", "out", 8, 0, s->n_out),
        WF_NUMBER_SHOWN("seconds", "time s", 8, 2, s->seconds),
        WF_NUMBER_SHOWN("total_tokens_s", "tokens/s", 9, 1, r->total_rate),
        WF_NUMBER_SHOWN("requests_s", "req/s", 8, 3, (double)s->completed / s->seconds),
        WF_NUMBER_SHOWN("ttft_p50_ms", "TTFT p50", 9, 2, percentile(r, WF_TTFT, 50)),
        WF_NUMBER_SHOWN("ttft_p99_ms", "p99", 9, 2, percentile(r, WF_TTFT, 99)),
        WF_NUMBER_SHOWN("itl_p50_ms", "ITL p50", 8, 2, percentile(r, WF_ITL, 50)),
        WF_NUMBER_SHOWN("itl_p99_ms", "p99", 8, 2, percentile(r, WF_ITL, 99)),
        {"norm_mean_ms", "norm. mean", 10, 2, norm_mean(r), .hidden = at_once},
        {"norm_p99_ms", "p99", 9, 2, percentile(r, WF_NORM, 99), .hidden = at_once},
        WF_NUMBER_SHOWN("mean_step_tokens", "tok/step", 8, 1, steps > 0 ? tokens / steps : 0),
        WF_NUMBER_SHOWN("preempted", "preempted", 9, 0, r->after.preempted - r->before.preempted),
        {"idle_pct", "idle %", 7, 2, all > 0 ? 100 * idle / all : NAN, .hidden = !t->o->engine.profile},
        WF_NUMBER_SHOWN("optimum_pct", "% of opt.", 9, 2, r->optimum_pct),
        {"model_pct", "% of model", 10, 2, possible > 0 ? 100 * r->total_rate / possible : NAN, .hidden = !*t->cost_on},
    };
    if (!t->rows.n && wf_rows_for_people(&t->rows)) print_title(t, label);
    wf_rows_add(&t->rows, cells, WF_LEN(cells));
}

static weft_status append_result(const throughput *t, const run_row *r, const char *op, double median_us, double value,
                                 double pct, const char *unit)
{
    static const wf_peers none;
    char shape[224], rate[32] = "", threads[16] = "", which[64], variant[80];
    if (r->rate > 0) snprintf(rate, sizeof rate, ",rate=%g", r->rate);
    if (t->o->engine.threads) snprintf(threads, sizeof threads, ",T=%u", t->o->engine.threads);
    wf_shape_suffix(t->o, which, sizeof which);
    snprintf(shape, sizeof shape, "%s,R=%zu,B=%u,C=%u,rows=%u%s%s%s", r->load->name, r->stats.completed, t->n_seqs,
             t->context, t->batch, threads, rate, which);
    const char *engine = wf_engine_variant(&t->o->engine);
    snprintf(variant, sizeof variant, "%s%s%s", r->policy, *engine ? "-" : "", engine);
    return wf_results_append(
        t->o->results, &(wf_result){&t->device, op, wf_weight_type(t->m), shape, variant, median_us, value, pct, unit},
        &none);
}

static weft_status append_results(const throughput *t, const run_row *r)
{
    double pct = isnan(r->optimum_pct) ? -1 : r->optimum_pct, itl = percentile(r, WF_ITL, 99), norm = norm_mean(r);
    WF_TRY(append_result(t, r, "throughput_total", r->stats.seconds * 1e6, r->total_rate, pct, "tokens/s"));
    if (!isnan(itl)) WF_TRY(append_result(t, r, "throughput_itl_p99", percentile(r, WF_ITL, 50) * 1e3, itl, -1, "ms"));
    if (!isnan(norm) && r->rate > 0)
        WF_TRY(append_result(t, r, "throughput_norm_mean", percentile(r, WF_NORM, 50) * 1e3, norm, -1, "ms"));
    return WEFT_OK;
}

/* Rates of one policy and load come one after another. */
static weft_status note_limit(throughput *t, const run_row *r)
{
    limit_line *last = t->n_lines ? &t->lines[t->n_lines - 1] : NULL;
    if (!last || strcmp(last->policy, r->policy) || last->load != r->load) {
        if (!wf_grow(&t->lines, t->n_lines, &t->cap_lines, sizeof *t->lines)) return WEFT_ERR_NOMEM;
        last = &t->lines[t->n_lines++];
        *last = (limit_line){.load = r->load};
        wf_copy(last->policy, sizeof last->policy, r->policy);
    }
    if (r->stats.completed && norm_mean(r) <= NORM_LIMIT_MS) last->best = WF_MAX(last->best, r->rate);
    return WEFT_OK;
}

static void print_foot(const throughput *t)
{
    putchar('\n');
    for (size_t i = 0; t->o->load.arrivals && i < t->n_lines; i++) {
        const limit_line *l = &t->lines[i];
        printf("%s, %s: ", l->policy, l->load->name);
        if (l->best > 0)
            printf("%g requests/s is the highest measured rate within %d ms per token.\n", l->best, NORM_LIMIT_MS);
        else printf("no measured rate is within %d ms per token.\n", NORM_LIMIT_MS);
    }
    printf("build: weft %s (%s)\n", weft_version(), wf_commit());
}

/* ---- running ---------------------------------------------------------------------------------------------------- */

typedef struct replay_view {
    throughput *t;
    const char *policy;
    size_t n;
} replay_view;

static void on_replay_progress(void *user, size_t done)
{
    const replay_view *v = user;
    if (v->t->o->quiet) return;
    wf_progress_note(&v->t->bar, "%zu of %zu requests", done, v->n);
    wf_progress_update(&v->t->bar, v->policy, (double)done / (double)v->n);
}

/* What the pages of earlier rounds hold, of which the last token was not computed, and what finding them is worth. */
static weft_status take_rounds(const throughput *t, const wf_request_result *a, size_t n, run_row *row)
{
    static const double no_limit[WF_N_METRICS];
    uint32_t page = t->o->engine.page_tokens ? t->o->engine.page_tokens : PAGE_TOKENS;
    size_t each = n / row->rounds;
    for (size_t i = 0; i < n - each; i++)
        if (a[i].ok && a[i + each].ok) row->reusable += (a[i].n_in + a[i].n_out - 1) / page * page;
    for (int last = 0; last < 2; last++) {
        wf_load_stats one = {0};
        WF_TRY(wf_load_stats_make(last ? a + n - each : a, each, 1, no_limit, &one));
        *(last ? &row->last_ms : &row->first_ms) = wf_percentile(&one.metric[WF_TTFT], 50);
        wf_load_stats_free(&one);
    }
    return WEFT_OK;
}

/* Runs requests, each of which fits the engine's context; at: when they arrive, NULL: all at once. Ctrl-C ends it with
 * what was done. The caller frees row->stats. */
static weft_status run_requests(throughput *t, struct weft_engine *e, const wf_request_specs *specs, const double *at,
                                run_row *row)
{
    static const double no_limit[WF_N_METRICS];
    replay_view view = {t, row->policy, specs->n};
    wf_replay_params p = {.specs = specs->list,
                          .n = specs->n,
                          .at = at,
                          .window = 2 * (size_t)t->n_seqs,
                          .together = !at,
                          .conversations = row->rounds > 1 ? specs->n / row->rounds : 0,
                          .think_s = t->o->load.think_s,
                          .n_vocab = weft_model_info(t->m)->n_vocab,
                          .seed = t->o->seed + (t->n_runs++ << 32),
                          .stop = wf_interrupted,
                          .on_progress = on_replay_progress,
                          .user = &view};
    wf_request_result *results = wf_calloc(p.n, sizeof *results);
    double seconds;
    if (!results) return WEFT_ERR_NOMEM;
    weft_engine_stats(e, &row->before);
    for (int i = 0; i < WEFT_N_KV_TIERS; i++) weft_engine_kv_tier_stats(e, (enum weft_kv_tier)i, &row->tiers[i]);
    weft_status s = wf_replay(e, &p, results, &seconds);
    weft_engine_stats(e, &row->after);
    wf_progress_end(&t->bar);
    if (!s) s = wf_load_stats_make(results, p.n, seconds, no_limit, &row->stats);
    if (!s && row->rounds > 1) s = take_rounds(t, results, p.n, row);
    wf_request_results_free(results, p.n);
    if (s) return s;
    row->total_rate = (double)(row->stats.n_in + row->stats.n_out) / seconds;
    row->optimum_pct =
        t->peak_flops > 0 ? 200 * row->total_rate * (double)weft_model_info(t->m)->n_active / t->peak_flops : NAN;
    return WEFT_OK;
}

/* What conversations found, and what was moved for that (NanoFlow, figure 9 and section 4.2.2). */
static void print_reuse(const throughput *t, struct weft_engine *e, const run_row *row)
{
    const struct weft_stats *a = &row->before, *b = &row->after;
    uint64_t up[WEFT_N_KV_TIERS], down[WEFT_N_KV_TIERS], hits = 0, failed = 0, dropped = 0,
        found = b->prefix_hits - a->prefix_hits;
    for (int i = 0; i < WEFT_N_KV_TIERS; i++) {
        struct weft_kv_tier_stats now = {0};
        weft_engine_kv_tier_stats(e, (enum weft_kv_tier)i, &now);
        hits += now.hits - row->tiers[i].hits;
        failed += now.failed - row->tiers[i].failed, dropped += now.dropped - row->tiers[i].dropped;
        up[i] = now.loaded_bytes - row->tiers[i].loaded_bytes, down[i] = now.stored_bytes - row->tiers[i].stored_bytes;
    }
    if (row->rounds < 2 || !wf_rows_for_people(&t->rows)) return;
    fprintf(stderr,
            "%u rounds: %llu of %llu prompt tokens were in the KV cache, %llu below it, together %.1f %% of what "
            "earlier rounds computed; down %s to the host, %s to disk, up %s and %s, %llu failed, %llu dropped; TTFT "
            "p50 %.1f ms in the first round, %.1f ms in the last\n",
            row->rounds, (unsigned long long)found, (unsigned long long)(b->prefix_queries - a->prefix_queries),
            (unsigned long long)hits, 100.0 * (double)(found + hits) / (double)WF_MAX(row->reusable, 1u),
            WF_HUMAN(down[WEFT_KV_TIER_HOST], true), WF_HUMAN(down[WEFT_KV_TIER_DISK], true),
            WF_HUMAN(up[WEFT_KV_TIER_HOST], true), WF_HUMAN(up[WEFT_KV_TIER_DISK], true), (unsigned long long)failed,
            (unsigned long long)dropped, row->first_ms, row->last_ms);
}

/* Every request is the first round of a conversation. */
static weft_status add_rounds(const wf_opts *o, wf_request_specs *specs, uint32_t rounds)
{
    for (size_t i = 0, n = specs->n; i < (rounds - 1) * n; i++) {
        wf_request_spec one = specs->list[i];
        if (i < n) one.n_in = wf_load_round_tokens(o, &one);
        WF_TRY(wf_request_specs_add(specs, one));
    }
    return WEFT_OK;
}

/* A few tokens, so that one-time costs are not measured. */
static weft_status warm_up(throughput *t, struct weft_engine *e, const char *policy)
{
    run_row row = {.policy = policy};
    uint32_t n = WF_MAX(WF_MIN(t->context / 2, 64u), 1u);
    wf_request_spec few[] = {{n, WF_MIN(n, 8u), -1, NULL}, {n, WF_MIN(n, 8u), -1, NULL}};
    weft_status s = run_requests(t, e, &(wf_request_specs){few, WF_LEN(few), 0}, NULL, &row);
    wf_load_stats_free(&row.stats);
    return s;
}

static uint32_t rounds_of(const throughput *t)
{
    return WF_MAX(t->o->load.rounds, 1u);
}

static weft_status run_load(throughput *t, struct weft_engine *e, const char *policy, const wf_named_load *l,
                            double rate)
{
    wf_request_specs specs = {0};
    double *at = NULL;
    run_row row = {.policy = policy, .load = l, .rate = rate, .rounds = rounds_of(t)};
    weft_status s = wf_load_pick(t->o, l, t->context, row.rounds, &specs, &row.skipped);
    if (!s && t->o->load.arrivals && !(at = wf_load_arrivals(t->o, &specs, &row.rate))) s = WEFT_ERR_NOMEM;
    if (!s) s = add_rounds(t->o, &specs, row.rounds);
    if (!s) s = run_requests(t, e, &specs, at, &row);
    if (!s) print_reuse(t, e, &row);
    if (!s) print_run(t, &row), s = note_limit(t, &row);
    if (!s && t->o->results && !wf_interrupted()) s = append_results(t, &row);
    free(at);
    free(specs.list); /* these specs own no text */
    wf_load_stats_free(&row.stats);
    return s;
}

static int run_policy(throughput *t, const char *policy)
{
    static double at_once;
    const wf_reals rates = t->o->load.rates.n ? t->o->load.rates : (wf_reals){&at_once, 1};
    struct weft_engine *e = NULL;
    struct weft_engine_params p = t->o->engine;
    struct weft_budget b = {0};
    wf_batching_defaults(t->o, t->m, &p);
    p.policy = policy;
    t->n_runs = 0; /* each policy gets the same prompts */
    int rc = wf_open_engine(t->o, t->m, p, &e);
    if (rc) return rc;
    t->device = *weft_engine_device(e);
    if (!*t->cost_on) guess_cost_on(t);
    weft_status s = weft_engine_budget(e, &b);
    t->context = weft_engine_context(e), t->n_seqs = b.n_seqs, t->batch = weft_engine_max_batched_tokens(e);
    if (!s) s = warm_up(t, e, policy);
    for (size_t i = 0; i < t->loads.n && !s; i++)
        for (size_t k = 0; k < rates.n && !s && !wf_interrupted(); k++)
            s = run_load(t, e, policy, &t->loads.list[i], rates.v[k]);
    weft_engine_close(e);
    return s ? wf_say_error(s) : 0;
}

static int run_policies(throughput *t)
{
    const char *rest = NULL;
    char policy[16];
    weft_status s = t->o->results ? wf_results_check(t->o->results)
                                  : WEFT_OK; /* fails before minutes of measuring, not after */
    if (!s) s = take_cost_on(t);
    if (s) return wf_say_error(s);
    find_peak(t);
    wf_catch_interrupt();
    int rc = 0;
    while (!rc && !wf_interrupted() && wf_load_policy(t->o, &rest, policy)) rc = run_policy(t, policy);
    if (t->rows.n && wf_rows_for_people(&t->rows)) print_foot(t);
    wf_rows_end(&t->rows);
    return wf_interrupted() ? wf_interrupted_exit() : rc;
}

static int cmd_bench_throughput(const wf_opts *o)
{
    struct weft_model *m = NULL;
    throughput t = {.o = o, .rows.format = o->output};
    int rc = wf_loads_check(o);
    if (!rc) rc = wf_open_model(o, false, &m);
    t.m = m;
    uint32_t context = o->engine.context ? o->engine.context : rc ? 0 : weft_model_info(m)->context;
    if (!rc) rc = wf_loads_read(o, context, &t.loads);
    if (!rc) rc = run_policies(&t);
    wf_loads_free(&t.loads);
    free(t.lines);
    weft_model_close(m);
    return rc;
}

static const wf_opt rows[] = {
    {0, "on", "NAME",
     "compare with what the cost model says is possible on this device (`weft plan --cost --on`; here: the one that "
     "runs, as it was measured; default: the one whose name is part of the device's)",
     WF_OPT_TEXT, AT(load.cost_on)},
};
static const WF_GROUP(group, "Cost model", rows);
static const wf_opt output_rows[] = {
    {'o', "output", "md|json|csv", "format of the table (default md)", WF_OPT_CHOICE, AT(output)},
    {0, "results", "FOLDER", "also append the results to FOLDER/<device>.csv", WF_OPT_TEXT, AT(results)},
};
static const WF_GROUP(output_group, "Output", output_rows);
static const wf_opt_group *const groups[] = {
    &wf_group_model,   &wf_group_shape,    &wf_group_load,    &group,           &output_group,
    &wf_group_profile, &wf_group_batching, &wf_group_draft,   &wf_group_context, &wf_group_device,
    &wf_group_parallel, &wf_group_kernels, &wf_group_testing, &wf_group_general, NULL,
};

const wf_command wf_cmd_bench_throughput = {
    .name = "bench throughput",
    .usage = "[-m FILE | --shape NAME] [options]",
    .summary = "Measures throughput and latencies of whole loads for each scheduling policy. Runs in this process, "
               "without a server. Prompts are random tokens, and EOS is ignored. Requests that do not fit the "
               "context (-c) are skipped and counted.",
    .more = "tokens/s counts input and output tokens (NanoFlow's total throughput). Its\n"
            "optimum is NanoFlow's equation 5: peak operations per second / (2 x parameters).\n"
            "For known devices (--on) \"% of model\" is the share of the cost model's\n"
            "optimum for requests of these lengths, which counts memory, too.\n"
            "TTFT counts from the arrival and includes queueing. ITL is the time between two\n"
            "tokens of a request. With --arrivals, the normalised latency is the end-to-end\n"
            "time of a request divided by its output tokens.\n\n"
            "Examples:\n"
            "  weft bench throughput -m model.gguf --const 512:512,1024:512 -c 2048\n"
            "  weft bench throughput -m model.gguf --dataset-path sharegpt.csv -c 4096\n"
            "  weft bench throughput --shape llama3-8b --type Q4_K_M --policy nanoflow\n"
            "  weft bench throughput -m model.gguf --dataset-path sharegpt.csv \\\n"
            "    --arrivals poisson --request-rate 1,2,4,8 --policy orca,nanoflow\n",
    .groups = groups,
    .run = cmd_bench_throughput,
};
