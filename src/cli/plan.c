/* plan: what a step of a batch runs on a device, as a database explains a query. */
#include "cli/cli.h"

#include <stdio.h>

#define MAX_SEQS 65536u
#define AT(field) offsetof(wf_opts, field)

static int explain(const wf_opts *o, const struct weft_model *m)
{
    struct weft_engine *e = NULL;
    struct weft_engine_params ep = o->engine;
    struct weft_explain_params p = o->explain;
    if (!ep.max_batched_tokens) ep.max_batched_tokens = p.tokens;
    if (!ep.n_seqs) ep.n_seqs = WF_MIN(p.decodes + (p.tokens != p.decodes), MAX_SEQS);
    if (!ep.context) ep.context = p.context;
    int rc = wf_open_engine(o, m, ep, &e);
    if (rc) return rc;
    weft_status s = weft_explain(e, &p, stdout);
    weft_engine_close(e);
    return s ? wf_say_error(s) : 0;
}

static int plan(const wf_opts *o)
{
    struct weft_model *m = NULL;
    int rc = wf_open_model(o, false, &m);
    if (!rc) rc = explain(o, m);
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
    {0, "cost", NULL, "measure the peak rates of the device, for about a second, and estimate the time of each command from them", WF_OPT_FLAG, AT(explain.measure)},
};
static const WF_GROUP(group, "Batch", rows);
static const wf_opt_group *const groups[] = {&wf_group_model, &group, &wf_group_context, &wf_group_device, &wf_group_kernels, &wf_group_testing, &wf_group_general, NULL};

const wf_command wf_cmd_plan = {
    .name = "plan",
    .usage = "[-m FILE] [--tokens N] [--decodes N] [--context N] [options]",
    .summary = "Shows what one step of a batch runs. Prints one line per command: its tokens, queue, the commands it waits for, its share of the "
               "device in work-groups, what bounds it, the least MB and Gflop it needs, the estimated time in microseconds (with --cost), and its kernels. Of the "
               "layers only the first and the last are printed. --dump-plan FILE writes the plan to edit, --plan FILE shows an edited one.",
    .groups = groups,
    .run = plan,
};
