/* bench throughput: runs loads on an engine in this process. Measures the throughput of constant lengths and of traces for each
 * scheduling policy, or latency against the arrival rate. */
#include "cli/throughput.h"
#include "base/options.h"

#include "base/file.h"
#include <weft/tune.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AT(field)        offsetof(wf_opts, field)
#define MANY             2147483647.0
#define DEFAULT_REQUESTS 100

typedef struct load {
    char name[64];
    wf_request_specs specs;
} load;

typedef struct throughput {
    const wf_opts *o;
    const struct weft_model *m;
    const wf_throughput_format *format, *csv;
    wf_throughput_head head;
    struct weft_device_info device;
    load *loads;
    size_t n_loads, cap_loads;
    char (*policies)[16];
    size_t n_policies, cap_policies;
    wf_throughput_row *rows;
    size_t n_rows, cap_rows;
    const char *policy; /* that runs */
    FILE *csv_file; /* opened at the first row */
    wf_progress bar;
    uint64_t n_runs; /* of this engine: each has prompts that the ones before did not leave in its
                        KV pages */
} throughput;

/* ---- what to run -------------------------------------------------------------------------- */

static load *add_load(throughput *t)
{
    if (!wf_grow(&t->loads, t->n_loads, &t->cap_loads, sizeof *t->loads)) return NULL;
    t->loads[t->n_loads] = (load){0};
    return &t->loads[t->n_loads++];
}

/* Parses IN:OUT,... */
static int add_constants(throughput *t, const char *text)
{
    for (const char *p = text;; p++) {
        unsigned in, out;
        int len = 0;
        bool ok = sscanf(p, "%8u:%8u%n", &in, &out, &len) == 2 && (!p[len] || p[len] == ',');
        if (!ok || !in || strpbrk(text, "+- "))
            return wf_usage(t->o->command,
                            "--const: expected INPUT:OUTPUT tokens such as 512:512,1024:0, got '%s'",
                            text);
        load *l = add_load(t);
        if (!l || wf_request_specs_random(t->o->load.n_requests, in, out, 0, 0, &l->specs))
            return wf_say_error(WEFT_ERR_NOMEM);
        if (!out)
            for (size_t i = 0; i < l->specs.n; i++) l->specs.list[i].n_out = 0;
        snprintf(l->name, sizeof l->name, "%u:%u", in, out);
        p += len;
        if (!*p) return 0;
    }
}

static int add_trace(throughput *t, const char *path)
{
    load *l = add_load(t);
    const char *name = strrchr(path, '/');
    if (!l) return wf_say_error(WEFT_ERR_NOMEM);
    name = name ? name + 1 : path;
    snprintf(l->name, sizeof l->name, "%.*s", (int)WF_MIN(strcspn(name, "."), sizeof l->name - 1),
             name);
    weft_status s = wf_trace_read(path, &l->specs);
    if (s) return wf_say_error(s);
    if (t->o->load.arrivals && !strcmp(t->o->load.arrivals, "trace") &&
        l->specs.list[l->specs.n - 1].at < 0)
        return wf_usage(
            t->o->command,
            "--arrivals trace: %s has no times in its column TIMESTAMP; use --arrivals poisson", path);
    return 0;
}

static int read_loads(throughput *t)
{
    const wf_load_opts *l = &t->o->load;
    int rc = 0;
    char usual[24];
    uint32_t own = weft_model_info(t->m)->context, half = (t->o->engine.context ? t->o->engine.context : own) / 2;
    snprintf(usual, sizeof usual, "%u:%u", WF_MIN(512u, half), WF_MIN(512u, half));
    if (l->lengths || !l->traces.n) rc = add_constants(t, l->lengths ? l->lengths : usual);
    for (size_t i = 0; i < l->traces.n && !rc; i++) rc = add_trace(t, l->traces.v[i]);
    return rc;
}

static int read_policies(throughput *t)
{
    static const char *const known[] = {"request", "orca", "sarathi", "nanoflow"};
    const char *text = t->o->load.policies ? t->o->load.policies : "request,orca,sarathi,nanoflow";
    for (const char *p = text;; p++) {
        size_t len = strcspn(p, ","), k = 0;
        while (k < WF_LEN(known) && (strlen(known[k]) != len || strncmp(known[k], p, len))) k++;
        if (k == WF_LEN(known))
            return wf_usage(t->o->command,
                            "--policy: expected some of request,orca,sarathi,nanoflow, got '%s'", text);
        if (!wf_grow(&t->policies, t->n_policies, &t->cap_policies, sizeof *t->policies))
            return wf_say_error(WEFT_ERR_NOMEM);
        wf_copy(t->policies[t->n_policies++], sizeof *t->policies, known[k]);
        p += len;
        if (!*p) return 0;
    }
}

static int check(const throughput *t)
{
    const wf_load_opts *l = &t->o->load;
    bool poisson = l->arrivals && !strcmp(l->arrivals, "poisson");
    if (poisson && !l->rates.n) return wf_usage(t->o->command, "--arrivals poisson needs --rate");
    if (!l->arrivals && l->rates.n) return wf_usage(t->o->command, "--rate needs --arrivals");
    if (!l->arrivals && l->plot)
        return wf_usage(t->o->command, "--plot shows latency against rate and needs --arrivals");
    if (l->arrivals && !poisson && (l->lengths || !l->traces.n))
        return wf_usage(t->o->command, "--arrivals trace needs a --dataset");
    return 0;
}

/* Fails before minutes of measuring, not after. */
static int check_outputs(const throughput *t)
{
    const wf_load_opts *l = &t->o->load;
    weft_status s = t->o->results ? wf_results_check(t->o->results) : WEFT_OK;
    if (!s && l->csv) s = wf_output_check(l->csv);
    if (!s && l->plot) s = wf_output_check(l->plot);
    return s ? wf_say_error(s) : 0;
}

/* ---- one run ------------------------------------------------------------------------------ */

/* Takes the first requests that fit the context. */
static weft_status pick(const throughput *t, const load *l, wf_request_specs *out, size_t *skipped)
{
    *skipped = 0;
    for (size_t i = 0; i < l->specs.n && out->n < t->o->load.n_requests; i++) {
        const wf_request_spec *a = &l->specs.list[i];
        bool fits = (uint64_t)WF_MAX(a->n_in, 1u) + a->n_out <= t->head.context;
        if (fits)
            WF_TRY(wf_request_specs_add(out, *a));
        else
            ++*skipped;
    }
    if (out->n) return WEFT_OK;
    return wf_fail(WEFT_ERR_FULL,
                   "%s: no request fits the context of %u tokens; use a larger one (-c)",
                   l->name, t->head.context);
}

/* Makes arrival times: random, or those of the trace, scaled to *rate if that is set. *rate: the resulting rate. */
static double *arrival_times(const throughput *t, const wf_request_specs *a, double *rate)
{
    double *at = wf_calloc(a->n, sizeof *at);
    if (!at) return NULL;
    if (!strcmp(t->o->load.arrivals, "poisson"))
        return wf_arrivals(*rate, 1, t->o->seed, a->n, at), at;
    double first = a->list[0].at, last = a->list[a->n - 1].at;
    double told = last > first ? (double)(a->n - 1) / (last - first) : 0;
    double scale = *rate > 0 && told > 0 ? told / *rate : 1;
    for (size_t i = 0; i < a->n; i++) at[i] = WF_MAX(a->list[i].at - first, 0) * scale;
    *rate = *rate > 0 && told > 0 ? *rate : told;
    return at;
}

static struct weft_cost_params cost_params(const throughput *t)
{
    const struct weft_engine_params *e = &t->o->engine;
    if (strcmp(t->head.cost_on, WF_COST_HERE)) return (struct weft_cost_params){.model = t->m, .on = t->head.cost_on};
    return (struct weft_cost_params){.model = t->m, .device = e->device, .tier = e->tier, .threads = e->threads};
}

static weft_status replay(throughput *t, struct weft_engine *e, const wf_request_specs *specs, const double *at,
                          wf_throughput_row *row)
{
    struct weft_cost_params cost = cost_params(t);
    return wf_load_run(&(wf_load){.engine = e,
                                  .model = t->m,
                                  .specs = specs,
                                  .at = at,
                                  .window = 2 * (size_t)t->head.n_seqs,
                                  .seed = t->o->seed + (t->n_runs++ << 32),
                                  .peak_flops = t->head.peak_flops,
                                  .cost = *t->head.cost_on ? &cost : NULL,
                                  .what = t->policy,
                                  .bar = t->o->quiet ? NULL : &t->bar},
                       row);
}

/* Runs a few tokens, so that one-time costs are not measured. */
static weft_status warm_up(throughput *t, struct weft_engine *e)
{
    wf_throughput_row row = {0};
    uint32_t n = WF_MAX(WF_MIN(t->head.context / 2, 64u), 1u);
    wf_request_spec few[] = {{n, WF_MIN(n, 8u), -1, NULL}, {n, WF_MIN(n, 8u), -1, NULL}};
    wf_request_specs specs = {few, WF_LEN(few), 0};
    weft_status s = replay(t, e, &specs, NULL, &row);
    wf_load_stats_free(&row.stats);
    return s;
}

/* ---- results ------------------------------------------------------------------------------ */

static weft_status append(const throughput *t, const wf_throughput_row *r, const char *op, double median_us,
                          double value, double pct, const char *unit)
{
    static const wf_peers none;
    char shape[224], rate[32] = "", threads[16] = "", which[64], variant[48];
    if (r->rate > 0) snprintf(rate, sizeof rate, ",rate=%g", r->rate);
    if (t->o->engine.threads) snprintf(threads, sizeof threads, ",T=%u", t->o->engine.threads);
    wf_shape_suffix(t->o, which, sizeof which);
    snprintf(shape, sizeof shape, "%s,R=%zu,B=%u,C=%u,rows=%u%s%s%s", r->load, r->stats.completed,
             t->head.n_seqs, t->head.context, t->head.batch, threads, rate, which);
    const char *engine = wf_engine_variant(&t->o->engine);
    snprintf(variant, sizeof variant, "%s%s%s", r->policy, *engine ? "-" : "", engine);
    wf_result result = {&t->device, op, wf_weight_type(t->m), shape, variant, median_us, value, pct, unit};
    return wf_results_append(t->o->results, &result, &none);
}

static weft_status append_all(const throughput *t, const wf_throughput_row *r)
{
    const wf_series *itl = &r->stats.metric[WF_ITL], *norm = &r->stats.metric[WF_NORM];
    double p50 = wf_percentile(itl, 50), p99 = wf_percentile(itl, 99);
    WF_TRY(append(t, r, "throughput_total", r->stats.seconds * 1e6, r->total_rate, wf_throughput_pct(r),
                  "tokens/s"));
    if (itl->n) WF_TRY(append(t, r, "throughput_itl_p99", p50 * 1e3, p99, -1, "ms"));
    if (norm->n && r->rate > 0)
        WF_TRY(
            append(t, r, "throughput_norm_mean", wf_percentile(norm, 50) * 1e3, norm->mean, -1, "ms"));
    return WEFT_OK;
}

/* ---- all ---------------------------------------------------------------------------------- */

static weft_status write_csv(throughput *t, const wf_throughput_row *r)
{
    const char *path = t->o->load.csv;
    bool first = !t->csv_file;
    if (first) t->csv_file = fopen(path, "w");
    if (t->csv_file && first) t->csv->head(t->csv_file, &t->head);
    if (t->csv_file) t->csv->row(t->csv_file, &t->head, r, false);
    if (t->csv_file && !fflush(t->csv_file)) return WEFT_OK;
    return wf_fail(WEFT_ERR_IO, "cannot write %s: %s", path, strerror(errno));
}

static weft_status draw_plot(const throughput *t)
{
    const char *path = t->o->load.plot;
    wf_output out;
    WF_TRY(wf_output_open(path, &out));
    weft_status s = wf_throughput_plot(out.f, path, &t->head, t->rows, t->n_rows);
    weft_status end = wf_output_end(&out, !s);
    return s ? s : end;
}

static weft_status show(throughput *t)
{
    const wf_throughput_row *r = &t->rows[t->n_rows];
    if (!t->n_rows) t->format->head(stdout, &t->head);
    t->format->row(stdout, &t->head, r, !t->n_rows);
    fflush(stdout);
    t->n_rows++;
    if (t->o->load.csv) WF_TRY(write_csv(t, r));
    return t->o->results && !wf_interrupted() ? append_all(t, r) : WEFT_OK;
}

static weft_status run_once(throughput *t, struct weft_engine *e, const load *l, double rate)
{
    wf_request_specs specs = {0};
    double *at = NULL;
    if (!wf_grow(&t->rows, t->n_rows, &t->cap_rows, sizeof *t->rows)) return WEFT_ERR_NOMEM;
    wf_throughput_row *row = &t->rows[t->n_rows];
    *row = (wf_throughput_row){.load = l->name, .policy = t->policy, .rate = rate};
    weft_status s = pick(t, l, &specs, &row->skipped);
    if (!s && t->head.arrivals && !(at = arrival_times(t, &specs, &row->rate))) s = WEFT_ERR_NOMEM;
    if (!s) s = replay(t, e, &specs, at, row);
    if (!s) s = show(t);
    free(at);
    free(specs.list); /* these specs own no text */
    return s;
}

static weft_status run_loads(throughput *t, struct weft_engine *e)
{
    static double zero;
    wf_reals rates = t->o->load.rates.n ? t->o->load.rates : (wf_reals){&zero, 1};
    for (size_t i = 0; i < t->n_loads; i++)
        for (size_t k = 0; k < rates.n && !wf_interrupted(); k++)
            WF_TRY(run_once(t, e, &t->loads[i], rates.v[k]));
    return WEFT_OK;
}

static int run_policy(throughput *t, const char *policy)
{
    struct weft_engine *e = NULL;
    struct weft_engine_params p = t->o->engine;
    wf_batching_defaults(t->o, t->m, &p);
    p.policy = policy;
    t->n_runs = 0; /* each policy gets the same prompts */
    int rc = wf_open_engine(t->o, t->m, p, &e);
    if (rc) return rc;
    t->device = *weft_engine_device(e);
    if (!*t->head.cost_on) wf_known_device(t->m, t->device.name, t->head.cost_on, sizeof t->head.cost_on);
    t->head.context = weft_engine_context(e);
    struct weft_budget b = {0};
    if (weft_engine_budget(e, &b)) return weft_engine_close(e), wf_say_error(WEFT_ERR_ARG);
    t->head.n_seqs = b.n_seqs;
    t->head.batch = weft_engine_max_batched_tokens(e);
    t->policy = policy;
    weft_status s = warm_up(t, e);
    if (!s && !wf_interrupted()) s = run_loads(t, e);
    weft_engine_close(e);
    return s ? wf_say_error(s) : 0;
}

/* A name that is none is said before all runs, and what has to be measured is measured before. */
static weft_status take_cost_on(throughput *t)
{
    struct weft_cost *c = NULL;
    if (!t->o->load.cost_on) return WEFT_OK;
    wf_copy(t->head.cost_on, sizeof t->head.cost_on, t->o->load.cost_on);
    struct weft_cost_params p = cost_params(t);
    p.on_progress = wf_on_progress, p.user = t->o->quiet ? NULL : &t->bar;
    weft_status s = weft_cost(&p, &c);
    wf_progress_end(&t->bar);
    weft_cost_free(c);
    return s;
}

static int run_all(throughput *t)
{
    const wf_opts *o = t->o;
    t->head = (wf_throughput_head){.model = t->m,
                              .device = &t->device,
                              .arrivals = o->load.arrivals != NULL,
                              .profile = o->engine.profile};
    weft_status s = take_cost_on(t);
    if (s) return wf_say_error(s);
    bool given = o->load.peak_tflops > 0;
    if (given) t->head.peak_flops = o->load.peak_tflops * 1e12;
    else if (wf_probe_peak(o, t->m, &t->head.peak_flops)) wf_note(o, "cannot measure the peak for NanoFlow's optimum: %s", wf_last_error());
    wf_catch_interrupt();
    int rc = 0;
    for (size_t i = 0; i < t->n_policies && !rc && !wf_interrupted(); i++)
        rc = run_policy(t, t->policies[i]);
    if (t->n_rows && t->format->foot) t->format->foot(stdout, &t->head, t->rows, t->n_rows);
    if (o->load.plot && t->n_rows && draw_plot(t)) rc = wf_say_error(WEFT_ERR_IO);
    return wf_interrupted() ? wf_interrupted_exit() : rc;
}

static void free_all(throughput *t)
{
    for (size_t i = 0; i < t->n_loads; i++) wf_request_specs_free(&t->loads[i].specs);
    for (size_t i = 0; i < t->n_rows; i++) wf_load_stats_free(&t->rows[i].stats);
    free(t->loads), free(t->policies), free(t->rows);
    if (t->csv_file) fclose(t->csv_file);
}

static int cmd_bench_throughput(const wf_opts *given)
{
    struct weft_model *m = NULL;
    wf_opts o = *given; /* borrows the lists */
    if (!o.load.n_requests) o.load.n_requests = DEFAULT_REQUESTS;
    throughput t = {
        .o = &o, .format = wf_throughput_format_find(o.output), .csv = wf_throughput_format_find("csv")};
    int rc = check(&t);
    if (!rc) rc = read_policies(&t);
    if (!rc) rc = wf_open_model_or_shape(&o, false, &m);
    t.m = m;
    if (!rc) rc = read_loads(&t);
    if (!rc) rc = check_outputs(&t);
    if (!rc) rc = run_all(&t);
    free_all(&t);
    weft_model_close(m);
    return rc;
}

static const wf_opt rows[] = {
    {0, "const", "IN:OUT,...",
     "loads of constant input and output lengths; OUT 0: prefill only (default without --dataset: 512:512, or half "
     "the context each if that is less)",
     WF_OPT_TEXT, AT(load.lengths)},
    {0, "dataset", "FILE",
     "CSV file with input and output lengths in the columns ContextTokens and GeneratedTokens; "
     "repeatable",
     WF_OPT_WORDS, AT(load.traces)},
    {0, "num-requests", "N", "requests per load (default 100)", WF_OPT_U32,
     AT(load.n_requests), 1, 1e7},
    {0, "policy", "NAME,...", "scheduling policies to run: request, orca, sarathi, nanoflow (default: all)",
     WF_OPT_TEXT, AT(load.policies), .words = "request orca sarathi nanoflow"},
    {0, "arrivals", "poisson|trace",
     "requests arrive over time: at random, or at the TIMESTAMP of the dataset (default: all at "
     "once)",
     WF_OPT_CHOICE, AT(load.arrivals)},
    {0, "rate", "R,...", "average arrivals per second; one run for each value", WF_OPT_REALS,
     AT(load.rates), 1e-6, 1e6},
    {0, "seed", "SEED", "random seed of prompts and arrivals (default 0)", WF_OPT_U64,
     AT(seed), 0, 0x1p64},
    {0, "cost-on", "NAME",
     "compare with what the cost model says is possible on this device (`weft plan --cost --on`; here: the one that runs, as it was measured; default: the one whose name is part of the device's)",
     WF_OPT_TEXT, AT(load.cost_on)},
    {0, "peak-tflops", "T",
     "peak compute of the device for NanoFlow's optimum (default: measured, as by `weft bench ops`)",
     WF_OPT_REAL, AT(load.peak_tflops), 1e-6, 1e9},
};
static const WF_GROUP(group, "Load", rows);
static const wf_opt output_rows[] = {
    {'o', "output", "md|json|csv", "format of the table (default md)", WF_OPT_CHOICE, AT(output)},
    {0, "csv", "FILE", "also write the results to this file", WF_OPT_TEXT, AT(load.csv)},
    {0, "plot", "FILE.svg", "plot mean normalised latency against rate", WF_OPT_TEXT,
     AT(load.plot)},
    {0, "results", "FOLDER", "also append the results to FOLDER/<device>.csv", WF_OPT_TEXT,
     AT(results)},
};
static const WF_GROUP(output_group, "Output", output_rows);
static const wf_opt_group *const groups[] = {
    &wf_group_model,
    &wf_group_shape,
    &group,
    &output_group,
    &wf_group_profile,
    &wf_group_batching,
    &wf_group_context,
    &wf_group_device,
    &wf_group_kernels,
    &wf_group_testing,
    &wf_group_general,
    NULL,
};

const wf_command wf_cmd_bench_throughput = {
    .name = "bench throughput",
    .usage = "[-m FILE | --shape NAME] [--dataset FILE] [options]",
    .summary = "Measures throughput and latencies of whole loads for each scheduling policy. "
               "Runs in this "
               "process, without a server. Prompts are random tokens, and EOS is ignored. "
               "Requests that do not fit the context (-c) are skipped and counted.",
    .more = "tokens/s counts input and output tokens (NanoFlow's total throughput). Its\n"
            "optimum is NanoFlow's equation 5: peak operations per second / (2 x parameters).\n"
            "For known devices (--cost-on) \"% of model\" is the share of the cost model's\n"
            "optimum for requests of these lengths, which counts memory and energy, too.\n"
            "TTFT counts from the arrival and includes queueing. ITL is the time between two\n"
            "tokens of a request. With --arrivals, the normalised latency is the end-to-end\n"
            "time of a request divided by its output tokens.\n\n"
            "Examples:\n"
            "  weft bench throughput -m model.gguf --const 512:512,1024:512 -c 2048\n"
            "  weft bench throughput -m model.gguf --dataset sharegpt.csv -c 4096\n"
            "  weft bench throughput --shape llama3-8b --type Q4_K_M --policy nanoflow\n"
            "  weft bench throughput -m model.gguf --dataset sharegpt.csv \\\n"
            "    --arrivals poisson --rate 1,2,4,8 --policy orca,nanoflow --plot latency.svg\n",
    .groups = groups,
    .run = cmd_bench_throughput,
};
