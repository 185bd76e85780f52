/* bench ablation: steps whole, in nano-batches, and with nano-batches that overlap, in one run. */
#include "cli/bench.h"
#include "cli/rows.h"

#include <stdio.h>
#include <string.h>

typedef struct ablation {
    wf_measuring view;
    const struct weft_device_info *device;
    wf_rows rows;
    bool tuned; /* one of the rows is of a kept plan */
} ablation;

static void on_row(void *user, const struct weft_ablation_row *r)
{
    ablation *a = user;
    bool power = r->watts > 0;
    char us[48], speedup[24], watts[24] = "not readable";
    snprintf(us, sizeof us, "%.1f ± %.1f", r->us, r->spread_us);
    snprintf(speedup, sizeof speedup, "%.3fx", r->speedup);
    if (power) snprintf(watts, sizeof watts, "%.1f", r->watts);
    const wf_cell cells[] = {
        WF_BUILD_CELLS(a->device),
        WF_TEXT_SHOWN("load", "load", -7, r->load),
        WF_NUMBER_SHOWN("tokens", "tokens", 6, 0, r->tokens),
        WF_NUMBER_SHOWN("decodes", "decodes", 7, 0, r->decodes),
        WF_NUMBER_SHOWN("context", "context", 7, 0, r->context),
        WF_TEXT_SHOWN("plan", "plan", -17, r->plan),
        WF_TEXT_SHOWN(NULL, "us a step", 21, us),
        WF_NUMBER_CELL("us", r->us),
        WF_NUMBER_CELL("spread_us", r->spread_us),
        WF_NUMBER_SHOWN("tokens_per_second", "tokens/s", 8, 0, r->tokens / r->us * 1e6),
        WF_NUMBER_CELL("speedup", r->speedup),
        WF_TEXT_SHOWN(NULL, "speedup", 7, speedup),
        WF_TEXT_SHOWN(NULL, "watts", 12, watts),
        WF_NUMBER_CELL("watts", power ? r->watts : NAN),
        WF_NUMBER_SHOWN("joules_per_token", "J/token", 8, 4, power ? r->joules_per_token : NAN),
        WF_TEXT_CELL("power_source", r->power_source),
    };
    wf_progress_hide(&a->view.bar);
    wf_rows_add(&a->rows, cells, WF_LEN(cells));
    a->tuned |= !strcmp(r->plan, "tuned");
}

static int run_ablation(ablation *a, struct weft_engine *e)
{
    const wf_opts *o = a->view.o;
    struct weft_ablation_params p = {.n_parts = o->ablation.n_parts,
                                     .rounds = o->repeat,
                                     .context = o->ablation.context,
                                     .on_row = on_row,
                                     .on_progress = wf_on_measuring,
                                     .stop = wf_ask_interrupted,
                                     .user = a};
    wf_catch_interrupt();
    weft_status s = weft_ablation(e, &p);
    wf_progress_end(&a->view.bar);
    wf_rows_end(&a->rows);
    if (s == WEFT_ERR_CANCELLED) return wf_interrupted_exit();
    if (s) return wf_say_error(s);
    if (!a->tuned) wf_note(o, "no plan of `weft tune --overlap` for this device and model is kept, so none ran");
    return 0;
}

static int cmd_bench_ablation(const wf_opts *o)
{
    struct weft_model *m = NULL;
    struct weft_engine *e = NULL;
    int rc = wf_open_model(o, false, &m);
    if (!rc) rc = wf_open_profiled(o, m, &e);
    ablation a = {.view.o = o, .rows.format = o->output, .device = e ? weft_engine_device(e) : NULL};
    if (!rc) rc = run_ablation(&a, e);
    weft_engine_close(e);
    weft_model_close(m);
    return rc;
}

static const wf_opt rows[] = {
    {0, "nano-batches", "N", "nano-batches of a step (default 2)", WF_OPT_U32, AT(ablation.n_parts), 2, 64},
    {'r', "repetitions", "N", "rounds, in each of which all plans run; medians are reported (default 9)", WF_OPT_U32,
     AT(repeat), 3, 99},
    {0, "context", "N", "keys of the sequences (default 1024)", WF_OPT_U32, AT(ablation.context), 1, 1 << 24},
    {0, "max-num-seqs", "N", "most sequences in a batch (default: as of `weft serve`)", WF_OPT_U32, AT(engine.n_seqs),
     1, 65536},
    {0, "max-num-batched-tokens", "N", "most tokens in a step, as of `weft serve`", WF_OPT_U32,
     AT(engine.max_batched_tokens), 1, 65536},
    {0, "kv-memory", "SIZE",
     "size of the KV cache (default: as much as the sequences take with the keys that are measured, and 8 of full "
     "context length at least, where that fits)",
     WF_OPT_SIZE, AT(engine.kv_memory), 1, 0x1p63},
    {0, "deterministic", NULL, "batch-invariant kernels", WF_OPT_FLAG, AT(engine.deterministic)},
    {'o', "output", "md|json|csv", "format of the table (default md)", WF_OPT_CHOICE, AT(output)},
};
static const WF_GROUP(group, "Ablation", rows);
static const wf_opt_group *const groups[] = {
    &wf_group_model,   &wf_group_shape,   &group, &wf_group_context, &wf_group_device,
    &wf_group_kernels, &wf_group_general, NULL};

const wf_command wf_cmd_bench_ablation = {
    .name = "bench ablation",
    .usage = "[-m FILE | --shape NAME] [options]",
    .summary = "Measures what splitting steps into nano-batches costs and what overlapping them gains. It times steps "
               "of decodes, of a prompt and of both: whole on one queue (no split), in nano-batches one after another "
               "(split only), with the attention of one beside the other ops of another (overlap), the same beside "
               "copies of KV pages to the host (overlap + offload; where copies have a queue of their own), and with "
               "the plan that `weft tune --overlap` has kept (tuned). All take turns. Where power can be read each "
               "then runs for a second, for watts and joules a token.",
    .groups = groups,
    .run = cmd_bench_ablation,
};
