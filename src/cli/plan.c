/* plan: what a step of a batch runs on a device, as a database explains a query, and what it costs at least. */
#include "base/file.h"
#include "base/json.h"
#include "base/options.h"
#include "cli/cli.h"
#include "cli/rows.h"

#include <stdio.h>

#define MAX_SEQS 65536u

/* ---- views -------------------------------------------------------------------------------------- */

static int search_plans(const wf_opts *o, struct weft_engine *e)
{
    wf_progress bar = {0};
    bool stopped = false;
    struct weft_search_params p = o->search;
    p.tokens = o->explain.tokens;
    p.decodes = o->explain.decodes;
    p.on_progress = wf_on_progress;
    p.stop = wf_ask_interrupted;
    p.user = o->quiet ? NULL : &bar;
    wf_catch_interrupt();
    weft_status s = weft_search(e, &p, stdout, &stopped);
    wf_progress_end(&bar);
    int rc = s ? wf_say_print_error(s) : 0;
    if (rc) return rc;
    if (p.plan) wf_note(o, "wrote %s", p.plan);
    return stopped ? wf_interrupted_exit() : 0;
}

/* What ops keep of their rate beside compute that loses a part of its own: NanoFlow's figure 5 and table 3. */
static weft_status print_rates(const char *path)
{
    wf_text o = {0};
    struct weft_profile *p = NULL;
    WF_TRY(weft_profile_read(path, &p));
    char device[4 * sizeof p->device], model[4 * sizeof p->model]; /* whatever the file calls them */
    wf_show(device, sizeof device, p->device);
    wf_show(model, sizeof model, p->model);
    wf_json_print(&o, "{'device_name': %s, 'model_type': %s, 'context': %u, 'rates': [", device, model, p->context);
    for (const struct weft_profile_rate *r = p->rates; r < p->rates + p->n_rates; r++) {
        wf_json_comma(&o);
        wf_json_print(&o, "\n  {'class': %s, 'share': %.9g, 'lost': %.9g, 'rate': %.9g, 'spread': %.9g}",
                      weft_class_name(r->op_class), r->share, r->lost, r->rate, r->spread);
    }
    wf_json_print(&o, "]}");
    weft_profile_free(p);
    wf_print_json(&o);
    return WEFT_OK;
}

static int print_profile(const wf_opts *o)
{
    weft_status s = o->json ? print_rates(o->print_profile) : weft_profile_print(o->print_profile, stdout);
    return s ? wf_say_print_error(s) : 0;
}

static int explain_batch(const wf_opts *o, const struct weft_model *m)
{
    struct weft_engine *e = NULL;
    struct weft_engine_params ep = o->engine;
    struct weft_explain_params p = o->explain;
    p.measure = o->costs.measure;
    if (!ep.max_batched_tokens) ep.max_batched_tokens = p.tokens;
    if (!ep.n_seqs) ep.n_seqs = WF_MIN(p.decodes + (p.tokens != p.decodes), MAX_SEQS);
    ep.context = wf_context_of(o, m);
    if (!ep.context) ep.context = p.context;
    ep.timeline = NULL; /* here it is the picture of one step */
    ep.profile = o->engine.timeline && o->costs.measure;
    int rc = wf_open_engine(o, m, ep, &e);
    if (rc) return rc;
    weft_status s = WEFT_OK;
    if (o->search.profile) rc = search_plans(o, e);
    else if (o->engine.timeline) rc = wf_plan_timeline(o, m, e);
    else if (!(s = weft_explain(e, &p, stdout))) {
        char from[640];
        wf_name_options(from, sizeof from, weft_engine_plan_source(e));
        printf("plans: %s\n", from);
    }
    weft_engine_close(e);
    return s ? wf_say_print_error(s) : rc;
}

/* ---- the command ---------------------------------------------------------------------------------- */

static int check_options(const wf_opts *o)
{
    if (o->print_profile && o->engine.plan && !o->engine.timeline)
        return wf_usage(o->command, "--profile and --plan conflict without --timeline: use one of them");
    if (o->costs.on && o->costs.measure)
        return wf_usage(o->command, "--on takes constants from a table, so WEFT_MEASURE does not go with it");
    if (!o->cost && o->explain.tokens && o->explain.decodes > o->explain.tokens)
        return wf_usage(o->command, "--decodes %u of --tokens %u: each decode is one of these tokens",
                        o->explain.decodes, o->explain.tokens);
    if (o->cost && o->explain.decodes && !o->explain.tokens) return wf_usage(o->command, "--decodes needs --tokens");
    return 0;
}

/* Of what a search reads and writes, before a model is opened, which takes long. */
static int check_search(const wf_opts *o)
{
    struct weft_profile *p = NULL;
    weft_status s = weft_profile_read(o->search.profile, &p);
    weft_profile_free(p);
    if (!s && o->search.plan && wf_same_file(o->search.profile, o->search.plan))
        return wf_usage(o->command, "-o %s would overwrite the profile that is searched: name another file",
                        o->search.plan);
    if (!s && o->search.plan) s = wf_output_check(o->search.plan);
    return s ? wf_say_error(s) : 0;
}

static int cmd_plan(const wf_opts *o)
{
    struct weft_model *m = NULL;
    int rc = check_options(o);
    if (!rc && o->print_profile && !o->engine.timeline) return print_profile(o);
    if (!rc && o->engine.timeline) rc = wf_timeline_check(o);
    if (!rc && o->search.profile) rc = check_search(o);
    if (!rc) rc = wf_open_model(o, false, &m);
    if (!rc) rc = o->cost ? wf_plan_cost(o, m) : explain_batch(o, m);
    weft_model_close(m);
    return rc;
}

static const wf_opt rows[] = {
    {0, "max-num-seqs", "N", "most sequences in a batch (default: those of this batch)", WF_OPT_U32, AT(engine.n_seqs),
     1, MAX_SEQS},
    {0, "max-num-batched-tokens", "N", "tokens of the largest step (default: --tokens; without that, as `weft serve`)",
     WF_OPT_U32, AT(engine.max_batched_tokens), 1, 65536},
    {0, "tokens", "N", "tokens of the batch (default: the largest step)", WF_OPT_U32, AT(explain.tokens), 1, 65536},
    {0, "decodes", "N", "how many of these tokens are decodes, one per sequence; the rest is one prompt (default 0)",
     WF_OPT_U32, AT(explain.decodes), 0, 65536},
    {0, "context", "N", "tokens of the longest sequence (default: the context length, -c)", WF_OPT_U32,
     AT(explain.context), 1, 1 << 24},
};
static const wf_opt cost_rows[] = {
    {0, "cost", NULL,
     "print what bounds a load of requests on a device and how many tokens per second are possible, instead of "
     "commands",
     WF_OPT_FLAG, AT(cost)},
    {0, "on", "NAME", "take the constants of a known device from a table: h200, a100-80, ... (a wrong name lists them)",
     WF_OPT_TEXT, AT(costs.on)},
    {0, "tp", "N", "tensor parallel: devices that share every matrix (default 1)", WF_OPT_U32, AT(costs.n_devices), 1,
     1024},
    {0, "const", "IN:OUT", "prompt and generated tokens of a request on average (default 512:1024)", WF_OPT_TEXT,
     AT(load.lengths)},
    {0, "json", NULL,
     "print as JSON; with --profile, what ops of memory, copies and network keep beside compute that loses a part of "
     "its rate (bench/plot.py draws both)",
     WF_OPT_FLAG, AT(json)},
};
static const wf_opt search_rows[] = {
    {0, "search", "PROFILE",
     "search plans that overlap ops of this batch, by simulation from the times in this file; Ctrl-C ends it with the "
     "best so far",
     WF_OPT_TEXT, AT(search.profile)},
    {'o', "output", "FILE", "write the best plan to this file, for --plan; without a faster one, the sequential plan",
     WF_OPT_TEXT, AT(search.plan)},
    {0, "seconds", "N", "most seconds to search (default 600)", WF_OPT_U32, AT(search.seconds), 1, 86400},
    {0, "profile", "PROFILE",
     "print the times in this file and nothing else; with --timeline, draw by them; with --json, what ops keep of "
     "their rates beside compute",
     WF_OPT_TEXT, AT(print_profile)},
};
static const WF_GROUP(search_group, "Search", search_rows);
static const WF_GROUP(cost_group, "Cost", cost_rows);
static const WF_GROUP(group, "Batch", rows);
static const wf_opt_group *const groups[] = {
    &wf_group_model,  &group,           &wf_group_shape,   &cost_group,       &search_group,     &wf_group_context,
    &wf_group_device, &wf_group_kernels, &wf_group_testing, &wf_group_general, NULL};

const wf_command wf_cmd_plan = {
    .name = "plan",
    .usage = "[-m FILE] [--tokens N] [--cost | --timeline FILE] [options]",
    .summary = "Shows what one step of a batch runs. Prints one line per command: its tokens, queue, the commands it "
               "waits for, its share of the device in work-groups, what bounds it, the least MB and Gflop it needs, "
               "the estimated time in microseconds (with WEFT_MEASURE=1), and its kernels. Of the layers only the "
               "first and the last are printed. WEFT_DUMP_PLAN=FILE writes the plan to edit, --plan FILE shows an "
               "edited one. --search PROFILE finds plans that overlap ops (docs/plans.md). --timeline FILE.svg draws, "
               "and FILE.json writes for Perfetto, when each op runs and how much of the device's compute, memory "
               "bandwidth, copies and network it uses, as the simulator predicts it by the times that "
               "`weft tune --overlap` has kept, by --profile PROFILE, or by estimates from peak rates; with "
               "WEFT_MEASURE=1 also as the device runs it. "
               "With --cost it prints the cost model instead: by op and in total, how long compute, memory, network "
               "and energy take by themselves, which of them bounds the load, and the tokens per second that are "
               "possible. It needs no weights, and with --on no device.",
    .groups = groups,
    .run = cmd_plan,
};
