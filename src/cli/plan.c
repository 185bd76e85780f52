/* plan: what a step of a batch runs on a device, as a database explains a query. */
#include "cli/cli.h"

#include <stdio.h>

#define AT(field) offsetof(wf_opts, field)

static int explain(const wf_opts *o, const struct weft_model *m)
{
    struct weft_engine *e = NULL;
    struct weft_engine_params ep = o->engine;
    struct weft_explain_params p = o->explain;
    if (!ep.max_batched_tokens) ep.max_batched_tokens = p.tokens;
    if (!ep.n_seqs) ep.n_seqs = WF_MAX(p.decodes, 1u);
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
    {0, "tokens", "N", "tokens of the batch (default: the largest step)", WF_OPT_U32, AT(explain.tokens), 1, 65536},
    {0, "decodes", "N", "of these, so many are the next token of a sequence each; the rest is one prompt (default 0)", WF_OPT_U32, AT(explain.decodes), 0, 65536},
    {0, "context", "N", "tokens of the longest sequence (default: -c)", WF_OPT_U32, AT(explain.context), 1, 1 << 24},
    {0, "cost", NULL, "measure what the device reaches, for a second, and expect times by that", WF_OPT_FLAG, AT(explain.measure)},
};
static const WF_GROUP(group, "Batch", rows);
static const wf_opt_group *const groups[] = {&wf_group_model, &group, &wf_group_context, &wf_group_batching, &wf_group_device, &wf_group_testing, &wf_group_general, NULL};

const wf_command wf_cmd_plan = {
    .name = "plan",
    .usage = "[-m FILE] [--tokens N] [--decodes N] [--context N] [options]",
    .summary = "Shows what a step of a batch runs. One line a command: tokens, queue, what it waits for, share of the device, class of work, bytes, "
               "flops, the time that its kernels are expected to take (with --cost), and the kernels. Of the layers it prints the first and the last. "
               "`weft run --dump-plan FILE` writes a plan to edit, --plan FILE runs it.",
    .groups = groups,
    .run = plan,
};
