/* paper_nanoflow: tables and figures of NanoFlow (arXiv 2408.12757). The tables come from the cost model of `weft plan --cost`, for the paper's setting
 * and for the model and device at hand. */
#include "cli/paper.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LLAMA70B "LLaMA-2-70B on 8 A100 80 GB"
#define HERE "this model and device"
#define THERE "the paper's, by weft's cost model"

/* ---- the cost model ------------------------------------------------------------------------- */

typedef int (*use_cost)(wf_paper *p, const struct weft_cost *c, const char *series);

/* Costs of p->m; on NULL: on the device at hand. */
static int with_cost(wf_paper *p, struct weft_cost_params cp, use_cost use, const char *series)
{
    struct weft_cost *c = NULL;
    if (!cp.on) cp.device = p->o->engine.device, cp.tier = p->o->engine.tier, cp.threads = p->o->engine.threads;
    cp.on_progress = wf_on_progress, cp.user = p->o->quiet ? NULL : &p->bar;
    weft_status s = weft_cost(&cp, &c);
    wf_progress_end(&p->bar);
    int rc = s ? wf_say_error(s) : use(p, c, series);
    if (!rc && !cp.on) wf_copy(p->device, sizeof p->device, c->device);
    weft_cost_free(c);
    return rc;
}

static int cost_here(wf_paper *p, use_cost use)
{
    return with_cost(p, (struct weft_cost_params){.model = p->m}, use, HERE);
}

/* LLaMA-2-70B on eight A100, as in section 3.4: 1,024 decodes and as many prompt tokens. The paper does not say how long
 * requests are there: decodes of these lengths, which are to each other as its 512 and 1,024, read the bytes of table 2, so that decode attention is no prediction. */
static int cost_there(wf_paper *p, use_cost use)
{
    struct weft_model *m = NULL;
    weft_status s = weft_model_open(&(struct weft_model_params){.shape = "llama2-70b"}, &m);
    if (s) return wf_say_error(s);
    int rc = with_cost(p, (struct weft_cost_params){.model = m, .on = "a100-80", .n_devices = 8, .input_len = 683, .output_len = 1365, .tokens = 2048, .decodes = 1024}, use, THERE);
    weft_model_close(m);
    return rc;
}

/* ---- table 1 -------------------------------------------------------------------------------- */

static const char *const devices[] = {"v100", "a100-40", "a100-80", "h100", "b100", "b200", "mi250", "mi300", "mi325x", "gaudi2", "gaudi3", "ada6000", "here"};

static int add_device(wf_paper *p, double at, const struct weft_cost *c)
{
    if (c->compute <= 0 || c->read <= 0) return wf_paper_note(p, "%s: its peak rates are unknown; `weft plan --cost --measure` measures them", c->device);
    int rc = wf_paper_add(p, "compute / read, flop a byte", at, at, c->compute / c->read);
    return rc ? rc : wf_paper_add(p, "memory / read, ms", at, at, c->memory / c->read * 1e3);
}

static int add_known(wf_paper *p, const struct weft_cost *c, const char *name)
{
    for (size_t i = 0; i < WF_LEN(devices); i++)
        if (!strcmp(devices[i], name)) return add_device(p, (double)i, c);
    return 0;
}

static int add_here(wf_paper *p, const struct weft_cost *c, const char *series)
{
    (void)series;
    int rc = add_device(p, (double)WF_LEN(devices) - 1, c);
    return rc ? rc : wf_paper_note(p, "'here' is %s, measured; the others are the constants of the table of `weft plan --cost --on`", c->device);
}

static int table1(wf_paper *p)
{
    struct weft_model *m = NULL; /* ratios of F16 whatever the model is */
    weft_status s = weft_model_open(&(struct weft_model_params){.shape = "llama-1.1b"}, &m);
    int rc = s ? wf_say_error(s) : 0;
    for (size_t i = 0; i + 1 < WF_LEN(devices) && !rc; i++) rc = with_cost(p, (struct weft_cost_params){.model = m, .on = devices[i]}, add_known, devices[i]);
    weft_model_close(m);
    return rc ? rc : cost_here(p, add_here);
}

/* ---- table 2 -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t at; /* in the paper's table */
} ops[] = {{"qkv", 0},     {"q", 0},          {"k", 0},        {"v", 0},    {"attn_out", 1},     {"gate_up", 2},           {"gate", 2}, {"up", 2},
           {"experts_gate_up", 2}, {"experts_gate", 2}, {"experts_up", 2}, {"down", 3}, {"experts_down", 3}, {"decode_attention", 4}, {"prefill_attention", 5},
           {"all_reduce", 6}};

size_t wf_paper_op(const char *name)
{
    for (size_t k = 0; k < WF_LEN(ops); k++)
        if (!strcmp(name, ops[k].name)) return ops[k].at;
    return WF_PAPER_OPS;
}

static int add_ops(wf_paper *p, const struct weft_cost *c, const char *series)
{
    double ms[WF_PAPER_OPS + 1] = {0};
    int rc = 0;
    for (size_t i = 0; i < c->n_ops; i++) ms[wf_paper_op(c->ops[i].name)] += c->ops[i].seconds[c->ops[i].bound] * 1e3;
    for (size_t i = 0; i < WF_PAPER_OPS && !rc; i++)
        if (ms[i] > 0) rc = wf_paper_add(p, series, (double)i, (double)i, ms[i]);
    return rc ? rc : wf_paper_note(p, "%s: %.0f tokens a step, %.0f of them decodes of %.0f keys, bound by %s", series, c->decodes + c->prefill, c->decodes, c->keys,
                                   weft_limit_name(c->total.bound));
}

static int table2(wf_paper *p)
{
    int rc = cost_there(p, add_ops);
    return rc ? rc : cost_here(p, add_ops);
}

/* ---- equation 5 ----------------------------------------------------------------------------- */

static int add_optimum(wf_paper *p, const struct weft_cost *c, const char *series)
{
    double each = c->n_devices;
    int rc = wf_paper_add(p, series, 0, 0, c->eq5 / each);
    if (!rc) rc = wf_paper_add(p, series, 1, 1, c->optimum / each);
    if (!rc) rc = wf_paper_add(p, series, 2, 2, c->sequential / each);
    return rc ? rc : wf_paper_note(p, "%s: %.4g TFLOP/s a device and %.4g parameters", series, c->compute / each / 1e12, c->params);
}

static int optimum(wf_paper *p)
{
    int rc = cost_there(p, add_optimum);
    if (!rc) rc = cost_here(p, add_optimum);
    return rc ? rc : wf_paper_note(p, "the paper's optimum is of 280 TFLOP/s, which it measured; the table has the nominal 312");
}

/* ---- loads ---------------------------------------------------------------------------------- */

/* Constant lengths, or those of a data set: table 4 gives means and deviations, of which log-normal lengths are sampled. */
typedef struct load {
    const char *name;
    uint32_t in, out;
    double in_dev, out_dev; /* 0: constant */
} load;

static const load loads[] = {{"512:512", 512, 512, 0, 0}, {"1024:512", 1024, 512, 0, 0}, {"512:1024", 512, 1024, 0, 0},
                             {"Splitwise", 1155, 211, 1109, 163}, {"LMSYS-Chat", 102, 222, 169, 210}, {"ShareGPT", 246, 322, 547, 244}};
enum { FIRST_DATASET = 3, LONGEST = 4096 };

/* One number of a log-normal distribution of this mean and deviation. */
static double sample_log_normal(double mean, double dev, uint64_t seed, uint64_t i)
{
    double s2 = log(1 + dev * dev / (mean * mean)), u = 1 - wf_random_unit(seed, 2 * i), v = wf_random_unit(seed, 2 * i + 1);
    return exp(log(mean) - s2 / 2 + sqrt(s2) * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

static uint32_t length(const wf_paper *p, double mean, double dev, uint64_t seed, uint64_t i)
{
    double v = (dev > 0 ? sample_log_normal(mean, dev, seed, i) : mean) * p->scale;
    return (uint32_t)WF_MIN(WF_MAX(v + 0.5, 2), LONGEST * p->scale / 2);
}

static weft_status make(const wf_paper *p, const load *l, size_t n, wf_request_specs *out)
{
    for (size_t i = 0; i < n; i++)
        WF_TRY(wf_request_specs_add(out, (wf_request_spec){.n_in = length(p, l->in, l->in_dev, 1, i), .n_out = length(p, l->out, l->out_dev, 2, i), .at = -1}));
    return WEFT_OK;
}

/* A steady state needs several times as many requests as run at once. */
static uint32_t seqs_of(const wf_paper *p)
{
    return p->o->engine.n_seqs ? p->o->engine.n_seqs : p->o->paper.quick ? 4 : 64;
}

static int notes(wf_paper *p)
{
    int rc = wf_paper_note(p, "lengths of data sets are log-normal with the mean and the deviation of the paper's table 4, at most %.0f tokens", LONGEST * p->scale / 2);
    return rc ? rc : wf_paper_note(p, "%u sequences at a time, the dense batch is weft's default or what `weft tune` found, instead of 2048 tokens", seqs_of(p));
}

/* ---- figure 7 ------------------------------------------------------------------------------- */

/* So many times as many requests as run at once. */
static int add_offline(wf_paper *p, const wf_paper_engine *e, const load *l, size_t waves, double at, double peak)
{
    wf_request_specs specs = {0};
    weft_status s = make(p, l, (size_t)seqs_of(p) * waves, &specs);
    int rc = s ? wf_say_error(s) : 0;
    for (uint32_t i = 0; i <= wf_paper_repeat(p) && !rc; i++) { /* the first one, of as many as run at once, warms up */
        wf_throughput_row row;
        wf_request_specs some = specs;
        if (!i) some.n /= waves;
        rc = wf_paper_run_once(p, e, &some, NULL, peak, &row);
        if (!rc && i) rc = wf_paper_add(p, e->policy, at, at, wf_throughput_pct(&row));
        if (!rc) wf_load_stats_free(&row.stats);
    }
    wf_request_specs_free(&specs);
    return rc;
}

static int offline(wf_paper *p, const char *policy, double peak)
{
    wf_paper_engine e;
    int rc = wf_paper_open(p, policy, seqs_of(p), wf_paper_length(p, LONGEST), 0, &e);
    if (rc) return rc;
    for (size_t i = 0; i < WF_LEN(loads) && !rc; i = p->o->paper.quick && i + 1 < WF_LEN(loads) ? WF_LEN(loads) - 1 : i + 1) rc = add_offline(p, &e, &loads[i], p->o->paper.quick ? 2 : 4, (double)i, peak);
    weft_engine_close(e.e);
    return rc;
}

static int known_peak(wf_paper *p, double *peak)
{
    weft_status s = wf_probe_peak(p->o, p->m, peak);
    if (s) return wf_say_error(s);
    if (*peak > 0) return wf_paper_note(p, "the optimum is %.4g TFLOP/s, as `weft bench ops` measures it, / (2 x %.4g parameters)", *peak / 1e12, (double)weft_model_info(p->m)->n_active);
    return wf_say_error(wf_fail(WEFT_ERR_NODEVICE, "the peak of this device is unknown, and so is the optimum"));
}

static int fig7(wf_paper *p)
{
    static const char *const policies[] = {"request", "orca", "sarathi", "nanoflow"};
    double peak = 0;
    int rc = wf_paper_fit(p, LONGEST);
    if (!rc) rc = known_peak(p, &peak);
    const char *only = p->o->engine.policy;
    for (size_t i = p->o->paper.quick && !only ? 2 : 0; i < WF_LEN(policies) && !rc; i++)
        if (!only || !strcmp(only, policies[i])) rc = offline(p, policies[i], peak);
    if (!rc) rc = wf_paper_note(p, "weft's policies on one device instead of other engines; each is named by the paper it follows");
    return rc ? rc : notes(p);
}

/* ---- figure 11 ------------------------------------------------------------------------------ */

static const char *const models[] = {"llama3-8b", "llama3-70b", "qwen2.5-7b", "qwen3-8b", "qwen3-32b", "mixtral-8x7b", "another"};
enum { FIG11_LOAD = 1, FIG11_CONTEXT = 1024 + 512 };

static size_t place_of(const char *shape)
{
    size_t i = 0;
    while (i + 1 < WF_LEN(models) && (!shape || strcmp(models[i], shape))) i++;
    return i;
}

static int add_model(wf_paper *p, size_t at, double peak)
{
    wf_paper_engine e;
    int rc = wf_paper_open(p, "nanoflow", seqs_of(p), wf_paper_length(p, FIG11_CONTEXT), 0, &e);
    if (rc) return rc;
    rc = add_offline(p, &e, &loads[FIG11_LOAD], 2, (double)at, peak);
    weft_engine_close(e.e);
    return rc;
}

/* shape NULL: as the options say. */
static int with_model(wf_paper *p, const char *shape)
{
    wf_opts o = *p->o;
    double peak = 0;
    char label[96];
    if (shape) o.shape = shape;
    weft_model_close(p->m), p->m = NULL;
    int rc = wf_open_model_or_shape(&o, false, &p->m);
    if (!rc) rc = wf_paper_fit(p, FIG11_CONTEXT);
    if (!rc) rc = known_peak(p, &peak);
    if (rc) return rc;
    rc = add_model(p, place_of(shape), peak);
    wf_model_label(p->m, label, sizeof label);
    return rc ? rc : wf_paper_note(p, "'%s' is %s", models[place_of(shape)], label);
}

static int fig11(wf_paper *p)
{
    static const char usual[] = "llama3-8b,qwen2.5-7b,qwen3-8b";
    char list[256], *rest = list;
    int rc = 0;
    const char *named = p->o->shape ? p->o->shape : p->o->model || p->o->paper.quick ? NULL : usual;
    if (!named) return with_model(p, NULL);
    if (strlen(named) >= sizeof list) return wf_usage(p->o->command, "--shape: the list is too long");
    wf_copy(list, sizeof list, named);
    for (const char *shape; !rc && (shape = strtok_r(rest, ",", &rest));) rc = with_model(p, shape);
    return rc ? rc : wf_paper_note(p, "%u sequences at a time; models of random weights", seqs_of(p));
}

/* ---- figure 8 ------------------------------------------------------------------------------- */

/* Requests per second of a load that comes at once. */
static int most_rate(wf_paper *p, const wf_paper_engine *e, const wf_request_specs *specs, double *rate)
{
    wf_throughput_row row;
    int rc = 0;
    for (int i = 0; i < 2 && !rc; i++) { /* the first one warms up */
        rc = wf_paper_run_once(p, e, specs, NULL, 0, &row);
        if (!rc) *rate = (double)row.stats.completed / row.stats.seconds, wf_load_stats_free(&row.stats);
    }
    return rc;
}

static int add_latency(wf_paper *p, const wf_paper_engine *e, const char *series, const wf_request_specs *specs, double rate)
{
    double *at = wf_calloc(specs->n, sizeof *at);
    wf_throughput_row row;
    if (!at) return wf_say_error(WEFT_ERR_NOMEM);
    wf_arrivals(rate, 1, 1, specs->n, at);
    int rc = wf_paper_run_once(p, e, specs, at, 0, &row);
    if (!rc) rc = wf_paper_add(p, series, rate, rate, row.stats.metric[WF_NORM].mean);
    if (!rc) wf_load_stats_free(&row.stats);
    free(at);
    return rc;
}

/* The same rates for all policies: parts of what the first one reaches. */
static int latencies(wf_paper *p, const char *policy, const load *l, double *most)
{
    static const double parts[] = {0.25, 0.5, 0.75, 0.9, 1.1};
    wf_paper_engine e;
    wf_request_specs specs = {0};
    char name[64];
    int rc = wf_paper_open(p, policy, seqs_of(p), wf_paper_length(p, LONGEST), 0, &e);
    if (rc) return rc;
    snprintf(name, sizeof name, "%s, %s", policy, l->name);
    weft_status s = make(p, l, (size_t)seqs_of(p) * (p->o->paper.quick ? 2 : 4), &specs);
    if (s) rc = wf_say_error(s);
    if (!rc && *most <= 0) rc = most_rate(p, &e, &specs, most);
    for (size_t i = 0; i < WF_LEN(parts) && !rc; i = p->o->paper.quick && i + 1 < WF_LEN(parts) ? WF_LEN(parts) - 1 : i + 1)
        for (uint32_t k = 0; k < WF_MAX(p->o->repeat, 1u) && !rc; k++) rc = add_latency(p, &e, name, &specs, parts[i] * *most);
    wf_request_specs_free(&specs);
    weft_engine_close(e.e);
    return rc;
}

static int fig8(wf_paper *p)
{
    static const char *const policies[] = {"nanoflow", "sarathi", "orca"};
    int rc = wf_paper_fit(p, LONGEST);
    for (size_t l = FIRST_DATASET; l < WF_LEN(loads) && !rc; l = p->o->paper.quick ? WF_LEN(loads) : l + 1) {
        double most = 0;
        for (size_t i = 0; i < WF_LEN(policies) && !rc; i++) rc = latencies(p, policies[i], &loads[l], &most);
    }
    if (!rc) rc = wf_paper_note(p, "%u requests a rate instead of five minutes of them; rates are parts of what nanoflow reaches with all at once", seqs_of(p) * (p->o->paper.quick ? 2 : 4));
    return rc ? rc : notes(p);
}

/* ---- figure 9 ------------------------------------------------------------------------------- */

static const char *const load_kinds[] = {"decode", "prefill", "mixed"};

typedef struct ablation {
    wf_paper *p;
    bool there[WF_LEN(load_kinds)];
    int rc;
} ablation;

static void add_speedup(void *user, const struct weft_ablation_row *r)
{
    ablation *a = user;
    for (size_t i = 0; i < WF_LEN(load_kinds) && !a->rc; i++) {
        if (strcmp(load_kinds[i], r->load)) continue;
        if (!a->there[i]) a->rc = wf_paper_note(a->p, "%s: %u tokens a step, %u of them decodes, contexts of %u", r->load, r->tokens, r->decodes, r->context);
        a->there[i] = true;
        if (!a->rc) a->rc = wf_paper_add(a->p, r->plan, (double)i, (double)i, r->speedup);
    }
}

static void on_ablation_progress(void *user, const char *what, double fraction)
{
    const ablation *a = user;
    if (!a->p->o->quiet) wf_progress_update(&a->p->bar, what, fraction);
}

static int ablate(wf_paper *p, struct weft_engine *e)
{
    ablation a = {.p = p};
    uint32_t rounds = p->o->paper.quick ? 3 : p->o->repeat ? WF_MAX(p->o->repeat, 3u) : 0;
    struct weft_ablation_params q = {.rounds = rounds, .on_row = add_speedup, .on_progress = on_ablation_progress, .stop = wf_ask_interrupted, .user = &a};
    weft_status s = weft_ablation(e, &q);
    if (s == WEFT_ERR_CANCELLED) return WF_EXIT_INTERRUPTED;
    if (s) return wf_say_error(s == WEFT_ERR_UNSUPPORTED ? WEFT_ERR_NODEVICE : s); /* it does not tell times */
    for (size_t i = 0; i < WF_LEN(load_kinds) && !a.rc; i++)
        if (!a.there[i]) a.rc = wf_paper_note(p, "%s: left out, for this engine has no such step", load_kinds[i]);
    return a.rc;
}

static int fig9(wf_paper *p)
{
    wf_opts o = *p->o;
    struct weft_engine *e = NULL;
    if (o.paper.quick) o.engine.n_seqs = 8, o.engine.max_batched_tokens = 64;
    int rc = wf_open_profiled(&o, p->m, &e);
    if (rc) return rc;
    wf_copy(p->device, sizeof p->device, weft_engine_device(e)->name);
    wf_copy(p->driver, sizeof p->driver, weft_engine_device(e)->driver);
    rc = ablate(p, e);
    weft_engine_close(e);
    if (!rc) rc = wf_paper_note(p, "medians of single steps in turns, instead of a served load of 512 tokens in and none (prefill) or 1024 (mixed) out; in the paper offloading the KV cache costs the overlapped pipeline 3.0 %%");
    return rc ? rc : wf_paper_note(p, "one device has no network to overlap with; the paper's gain of prefill is of that alone");
}

/* ---- the figures ---------------------------------------------------------------------------- */

static const char *const op_names[] = {"KQV", "O", "UG", "D", "DecAttn", "PfAttn", "Net", "the layer"}, *const bounds[] = {"equation 5", "all overlaps", "one by one"};
static const char *const class_names[] = {"compute", "memory", "network", "copy"};
static const char *const datasets[] = {"Splitwise", "LMSYS-Chat", "ShareGPT", "another"};
static const char *const load_names[] = {"512:512", "1024:512", "512:1024", "Splitwise", "LMSYS-Chat", "ShareGPT", "the paper"};

#define RATIO "compute / read, flop a byte"
#define PART "memory / read, ms"
static const wf_paper_point points_table1[] = {
    {RATIO, 0, 139}, {RATIO, 1, 200}, {RATIO, 2, 156}, {RATIO, 3, 295}, {RATIO, 4, 225}, {RATIO, 5, 281}, {RATIO, 6, 107}, {RATIO, 7, 246}, {RATIO, 8, 218},
    {RATIO, 9, 417}, {RATIO, 10, 486}, {RATIO, 11, 190}, {PART, 0, 18}, {PART, 1, 26}, {PART, 2, 40}, {PART, 3, 24}, {PART, 4, 15}, {PART, 5, 15},
    {PART, 6, 38}, {PART, 7, 36}, {PART, 8, 43}, {PART, 9, 40}, {PART, 10, 35}, {PART, 11, 50},
};
static const wf_paper_point points_table2[] = {
    {THERE, 0, 11.01}, {THERE, 1, 8.81}, {THERE, 2, 61.67}, {THERE, 3, 30.84}, {THERE, 4, 28.89}, {THERE, 5, 0.37}, {THERE, 6, 31.33},
    {"measured there", 0, 16.08}, {"measured there", 1, 16.01}, {"measured there", 2, 69.92}, {"measured there", 3, 34.96}, {"measured there", 4, 35.6},
    {"measured there", 5, 4.56}, {"measured there", 6, 47.92},
};
static const wf_paper_point points_optimum[] = {{THERE, 0, 1857}};
static const wf_paper_point points7[] = {{"nanoflow", 6, 68.5}, {"TensorRT-LLM", 6, 37.8}, {"DeepSpeed-FastGen", 6, 22.9}, {"vLLM", 6, 22}};

static const wf_paper_point points9[] = {{"split only", 2, 1 - 0.132}, {"overlap", 1, 1.07}, {"overlap", 2, 1.17}};
static const wf_paper_point points_table3[] = {
    {"memory", 0, 0}, {"memory", 0.1, 0.2}, {"memory", 0.2, 0.3}, {"memory", 0.8, 0.85}, {"memory", 0.9, 0.95}, {"memory", 1, 1},
    {"network", 0, 0}, {"network", 0.1, 0.3}, {"network", 0.2, 0.5}, {"network", 0.8, 0.9}, {"network", 0.9, 1}, {"network", 1, 1},
};
static const wf_paper_point points_table4[] = {
    {"prompt, mean", 0, 1155}, {"prompt, deviation", 0, 1109}, {"output, mean", 0, 211}, {"output, deviation", 0, 163},
    {"prompt, mean", 1, 102}, {"prompt, deviation", 1, 169}, {"output, mean", 1, 222}, {"output, deviation", 1, 210},
    {"prompt, mean", 2, 246}, {"prompt, deviation", 2, 547}, {"output, mean", 2, 322}, {"output, deviation", 2, 244},
};
static const wf_paper_point points10[] = {{"overlapped", 0, 68.5}};

#define POINTS(p) .points = p, .n_points = WF_LEN(p)
#define TICKS(t) .ticks = t, .n_ticks = WF_LEN(t)

static const wf_figure rows[] = {
    {.id = "nanoflow-table1", .title = "devices: compute, memory and its rate", .needs = "a model, for its storage format", .takes = "a second, to measure this device's rates",
     .of = "12 devices by their data sheets", .x = "devices", .y = "ratios", .log_y = true, TICKS(devices), POINTS(points_table1), .run = table1},
    {.id = "nanoflow-table2", .title = "time of ops by the cost model", .needs = "a model", .takes = "a second, to measure this device's rates", .of = LLAMA70B,
     .x = "ops, all layers together", .y = "the longest of compute, memory and network, ms", .log_y = true, .ticks = op_names, .n_ticks = WF_PAPER_OPS, POINTS(points_table2), .run = table2},
    {.id = "nanoflow-optimum", .title = "most tokens per second of a device", .needs = "a model", .takes = "a second, to measure this device's rates", .of = LLAMA70B,
     .x = "bounds", .y = "tokens/s of a device", .log_y = true, TICKS(bounds), POINTS(points_optimum), .run = optimum},
    {.id = "nanoflow-fig7", .title = "offline throughput", .needs = "a model", .takes = "about 21 million tokens", .of = LLAMA70B,
     .says = "NanoFlow reaches 68.5 % in the best case, and 1.91 times TensorRT-LLM on the data sets; the others' numbers are of section 3.6.",
     .x = "prompt:output, and data sets", .y = "input and output tokens/s, % of the optimum", TICKS(load_names), POINTS(points7), .option = "max-num-seqs policy", .run = fig7},
    {.id = "nanoflow-fig8", .title = "latency by request rate", .needs = "a model", .takes = "about 10 million tokens, most of the time waiting for arrivals", .of = LLAMA70B,
     .says = "NanoFlow takes 1.64 times the rate of TensorRT-LLM within 200 ms on LMSYS-Chat.", .x = "requests per second, Poisson",
     .y = "mean normalised latency, ms per token", .log_y = true, .limit = WF_SLO_NORM_MS, .limit_name = "200 ms", .option = "max-num-seqs", .run = fig8},
    {.id = "nanoflow-fig9", .title = "ablation: what splitting steps costs and overlapping them gains", .needs = "a model", .takes = "about 250 steps, most of them full",
     .of = LLAMA70B,
     .says = "nano-batches alone cost 13.2 %; overlapping network gains 1.07 times (512 in, 0 out), network and memory 1.17 times (512 in, 1024 out).",
     .x = "steps", .y = "speedup over steps that are not split", TICKS(load_kinds), POINTS(points9), .run = fig9},
    {.id = "nanoflow-fig5", .title = "interference: what compute and an op of memory keep of their rates beside each other",
     .needs = "a device whose kernels can leave a share to others", .takes = "up to two minutes, unless `weft tune --overlap` has run",
     .of = "products of 384 x 4096 x 4096 and 384 sequences of 1024 keys on an A100, about 100 pairs of kernels",
     .says = "a rate of 0.3 for decode attention costs compute 0.2 of its own.", .x = "pairs, by what compute keeps", .y = "P: rate / alone", .option = "profile", .run = wf_paper_pairs},
    {.id = "nanoflow-table3", .title = "exchange rate R -> P of compute against memory and network", .needs = "a device whose kernels can leave a share to others", .takes = "up to two minutes, unless `weft tune --overlap` has run",
     .of = "8 A100 80 GB", .says = "the same for all products and models within 5 %.", .x = "R: what compute loses of its rate", .y = "P: rate / alone", POINTS(points_table3),
     .option = "profile", .diagonal = "P = R: nothing gained", .run = wf_paper_exchange},
    {.id = "nanoflow-table4", .title = "lengths of the requests of the data sets", .needs = "their lengths (--dataset)", .takes = "no time",
     .of = "the whole trace of Splitwise and 50,000 requests of each of the others",
     .x = "data sets", .y = "tokens", TICKS(datasets), POINTS(points_table4), .option = "dataset", .run = wf_paper_datasets},
    {.id = "nanoflow-fig6", .title = "the pipeline that the search finds for a layer", .needs = "a model", .takes = "half a minute, after up to two unless `weft tune --overlap` has run", .of = LLAMA70B,
     .says = "nano-batches of 768 and 1280 tokens, four nano-operations for KQV; decode attention beside products reaches 0.8 of its rate and takes 0.4 of theirs.",
     .x = "ops of a layer", .y = "time, us", .ticks = op_names, .n_ticks = WF_PAPER_OPS + 1, .option = "profile", .run = wf_paper_pipeline},
    {.id = "nanoflow-fig10", .title = "use of compute, memory and network over a layer, one op after another and overlapped", .needs = "a model", .takes = "a few steps", .of = LLAMA70B,
     .says = "the overlapped pipeline uses 68.5 % of compute on average.", .x = "resources", .y = "mean use over the step, %", TICKS(class_names), POINTS(points10),
     .option = "profile", .run = wf_paper_usage},
    {.id = "nanoflow-fig11", .title = "offline throughput of several models, 1024 tokens in and 512 out", .needs = "the devices of its models (--shape NAME,...)", .takes = "about 0.5 million tokens a model",
     .of = "six models, Llama-3-8B on one A100 80 GB and the others on eight",
     .says = "50 to 72 % of the optimum, up to 78.5 %.", .x = "models", .y = "input and output tokens/s, % of the optimum", TICKS(models), .option = "max-num-seqs", .many = true, .runs = 2, .run = fig11},
};
const wf_figures wf_figures_nanoflow = {rows, WF_LEN(rows)};
