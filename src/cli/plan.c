/* plan: what a step of a batch runs on a device, as a database explains a query, and what it costs at least. */
#include "base/options.h"
#include "cli/cli.h"

#include <stdio.h>

#define MAX_SEQS 65536u
#define AT(field) offsetof(wf_opts, field)

static weft_status explain_step(struct weft_engine *e, const struct weft_explain_params *p)
{
    weft_status s = weft_explain(e, p, stdout);
    char from[640];
    wf_name_options(from, sizeof from, weft_engine_plan_source(e));
    if (!s) printf("plans: %s\n", from);
    return s;
}

static int explain(const wf_opts *o, const struct weft_model *m)
{
    struct weft_engine *e = NULL;
    struct weft_engine_params ep = o->engine;
    struct weft_explain_params p = o->explain;
    if (!ep.max_batched_tokens) ep.max_batched_tokens = p.tokens;
    if (!ep.n_seqs) ep.n_seqs = WF_MIN(p.decodes + (p.tokens != p.decodes), MAX_SEQS);
    ep.context = wf_context_of(o, m);
    if (!ep.context) ep.context = p.context;
    ep.timeline = NULL; /* here it is the picture of one step */
    ep.profile = o->engine.timeline && o->costs.measure;
    int rc = wf_open_engine(o, m, ep, &e);
    if (rc) return rc;
    weft_status s = WEFT_OK;
    if (o->search.profile) rc = wf_search_plans(o, e);
    else if (o->engine.timeline) rc = wf_plan_timeline(o, m, e);
    else s = explain_step(e, &p);
    weft_engine_close(e);
    return s ? wf_say_print_error(s) : rc;
}

/* The first two show something else than the others; a picture of a step is drawn by what --profile, --times and --plan say. */
static int check_views(const wf_opts *o)
{
    enum { COST, SEARCH, TIMELINE, PROFILE };
    static const char *const views[] = {"cost", "search", "timeline", "profile", "times", "plan"};
    const char *view = NULL;
    for (size_t i = 0; i < WF_LEN(views); i++) {
        if (!wf_opts_has(o, views[i])) continue;
        if (view) return wf_usage(o->command, "--%s and --%s are two views: use one of them", view, views[i]);
        if (i <= SEARCH || (i == PROFILE && !o->engine.timeline)) view = views[i];
    }
    return 0;
}

/* Each option belongs to one of the views. */
static int check(const wf_opts *o)
{
    static const char *const of_cost[] = {"on", "devices", "n-devices", "input-len", "output-len"};
    for (size_t i = 0; !o->cost && i < WF_LEN(of_cost); i++)
        if (wf_opts_has(o, of_cost[i])) return wf_usage(o->command, "--%s belongs to --cost", of_cost[i]);
    if (o->json && !o->cost && (!o->print_profile || o->engine.timeline)) return wf_usage(o->command, "--json belongs to --cost and --profile");
    if (o->costs.measure && !o->cost && !o->engine.timeline) return wf_usage(o->command, "--measure belongs to --cost and --timeline");
    if (o->costs.on && (wf_opts_has(o, "device") || o->costs.measure)) return wf_usage(o->command, "--on takes constants from a table, so --device and --measure do not go with it");
    if (o->costs.devices && !o->costs.on) return wf_usage(o->command, "--devices needs --on: the name of a device in the table");
    if (o->search.plan && !o->search.profile) return wf_usage(o->command, "-o needs --search PROFILE");
    if ((o->search.keep || o->search.seconds) && !o->search.profile) return wf_usage(o->command, "--%s needs --search PROFILE", o->search.keep ? "best" : "seconds");
    if (!o->cost && o->explain.tokens && o->explain.decodes > o->explain.tokens)
        return wf_usage(o->command, "--decodes %u of --tokens %u: each decode is one of these tokens", o->explain.decodes, o->explain.tokens);
    if (o->cost && o->explain.decodes && !o->explain.tokens) return wf_usage(o->command, "--decodes needs --tokens");
    return 0;
}

static int plan(const wf_opts *o)
{
    struct weft_model *m = NULL;
    int rc = check_views(o);
    if (!rc) rc = check(o);
    if (!rc && o->print_profile && !o->engine.timeline) return wf_print_profile(o);
    if (!rc && o->engine.timeline) rc = wf_timeline_check(o);
    if (!rc && o->search.profile) rc = wf_search_check(o);
    if (!rc) rc = wf_open_model_or_shape(o, false, &m);
    if (!rc) rc = o->cost ? wf_plan_cost(o, m) : explain(o, m);
    weft_model_close(m);
    return rc;
}

static const wf_opt rows[] = {
    {0, "max-num-seqs", "N", "most sequences in a batch (default: those of this batch)", WF_OPT_U32, AT(engine.n_seqs), 1, MAX_SEQS},
    {0, "max-num-batched-tokens", "N", "tokens of the largest step (default: --tokens; without that, as `weft serve`)", WF_OPT_U32,
     AT(engine.max_batched_tokens), 1, 65536},
    {0, "tokens", "N", "tokens of the batch (default: the largest step)", WF_OPT_U32, AT(explain.tokens), 1, 65536},
    {0, "decodes", "N", "how many of these tokens are decodes, one per sequence; the rest is one prompt (default 0)", WF_OPT_U32, AT(explain.decodes), 0, 65536},
    {0, "context", "N", "tokens of the longest sequence (default: the context length, -c)", WF_OPT_U32, AT(explain.context), 1, 1 << 24},
    {0, "times", NULL, "measure the peak rates of the device, for about a second, and estimate the time of each command from them; with --timeline, draw by these estimates", WF_OPT_FLAG, AT(explain.measure)},
};
static const wf_opt cost_rows[] = {
    {0, "cost", NULL, "print what bounds a load of requests on a device and how many tokens per second are possible, instead of commands", WF_OPT_FLAG, AT(cost)},
    {0, "on", "NAME", "take the constants of a known device from a table: h200, a100-80, ... (a wrong name lists them)", WF_OPT_TEXT, AT(costs.on)},
    {0, "devices", "FILE", "table for --on (default: the one that weft was built with, src/plan/devices.txt)", WF_OPT_TEXT, AT(costs.devices)},
    {0, "measure", NULL, "measure the rates of the present device anew (default: once; they are kept as those of `weft tune`); with --timeline, run the step and draw it, too", WF_OPT_FLAG, AT(costs.measure)},
    {0, "n-devices", "N", "devices that share every matrix (tensor parallelism), in this estimate only (default 1)", WF_OPT_U32, AT(costs.n_devices), 1, 1024},
    {0, "input-len", "N", "prompt tokens of a request on average (default 512)", WF_OPT_U32, AT(load.input_len), 1, 1 << 24},
    {0, "output-len", "N", "generated tokens of a request on average (default 1024)", WF_OPT_U32, AT(load.output_len), 1, 1 << 24},
    {0, "shape", "NAME", "a model of this shape, without a file: llama3-8b, llama3-70b, ... (a wrong name lists them)", WF_OPT_TEXT, AT(shape), .words = wf_shape_names},
    {0, "type", "TYPE", "storage format of --shape, as of `weft convert` (default F16)", WF_OPT_TEXT, AT(type), .words = wf_file_types},
    {0, "json", NULL, "print as JSON; with --profile, what ops of memory, copies and network keep beside compute that loses a part of its rate (bench/plot.py draws both)", WF_OPT_FLAG, AT(json)},
};
static const WF_GROUP(cost_group, "Cost", cost_rows);
static const WF_GROUP(group, "Batch", rows);
static const wf_opt_group *const groups[] = {&wf_group_model, &group, &cost_group, &wf_group_search, &wf_group_context, &wf_group_device, &wf_group_kernels, &wf_group_testing, &wf_group_general, NULL};

const wf_command wf_cmd_plan = {
    .name = "plan",
    .usage = "[-m FILE] [--tokens N] [--cost | --timeline FILE] [options]",
    .summary = "Shows what one step of a batch runs. Prints one line per command: its tokens, queue, the commands it waits for, its share of the "
               "device in work-groups, what bounds it, the least MB and Gflop it needs, the estimated time in microseconds (with --times), and its kernels. Of the "
               "layers only the first and the last are printed. --dump-plan FILE writes the plan to edit, --plan FILE shows an edited one. --search PROFILE finds plans that overlap ops (docs/plans.md). "
               "--timeline FILE.svg draws, and FILE.json writes for Perfetto, when each op runs and how much of the device's compute, memory bandwidth, copies and network it uses, as the simulator "
               "predicts it by the times that `weft tune --overlap` has kept, by --profile PROFILE, or by --times; with --measure also as the device runs it. "
               "With --cost it prints the cost model instead: by op and in total, how long compute, memory, network and energy take by themselves, which of "
               "them bounds the load, and the tokens per second that are possible. It needs no weights, and with --on no device.",
    .groups = groups,
    .run = plan,
};
