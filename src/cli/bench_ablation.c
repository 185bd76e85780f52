/* bench ablation: steps whole, in nano-batches, and with nano-batches that overlap, in one run. */
#include "cli/bench.h"

#include <stdio.h>
#include <string.h>
#include <weft/tune.h>

#define AT(field) offsetof(wf_opts, field)

typedef struct ablation {
    const wf_opts *o;
    const struct weft_device_info *device;
    wf_progress bar;
    size_t n;   /* rows so far */
    bool tuned; /* one of them is of a kept plan */
} ablation;

static double tokens_per_second(const struct weft_ablation_row *r)
{
    return r->tokens / r->us * 1e6;
}

/* ---- tables ---------------------------------------------------------------------------------------------------------- */

static void md_row(const ablation *a, const struct weft_ablation_row *r)
{
    char us[48], watts[24] = "not readable", joules[24] = "-";
    if (!a->n) printf("| load    | tokens | decodes | context | plan              |             us a step | tokens/s | speedup |        watts |  J/token |\n"
                      "| ------- | -----: | ------: | ------: | ----------------- | --------------------: | -------: | ------: | -----------: | -------: |\n");
    snprintf(us, sizeof us, "%.1f ± %.1f", r->us, r->spread_us);
    if (r->watts > 0) snprintf(watts, sizeof watts, "%.1f", r->watts), snprintf(joules, sizeof joules, "%.4g", r->joules_per_token);
    printf("| %-7s | %6u | %7u | %7u | %-17s | %22s | %8.0f | %6.3fx | %12s | %8s |\n", r->load, r->tokens, r->decodes, r->context, r->plan, us, tokens_per_second(r), r->speedup, watts,
           joules);
}

static void csv_row(const ablation *a, const struct weft_ablation_row *r)
{
    if (!a->n) printf("build_commit,device,device_name,driver,load,tokens,decodes,context,plan,us,spread_us,tokens_per_second,speedup,watts,joules_per_token,power_source\n");
    const char *const texts[] = {wf_commit(), a->device->id, a->device->name, a->device->driver, r->load};
    for (size_t i = 0; i < WF_LEN(texts); i++) wf_csv_text(stdout, texts[i]);
    printf("%u,%u,%u,", r->tokens, r->decodes, r->context);
    wf_csv_text(stdout, r->plan);
    printf("%.1f,%.1f,%.1f,%.4f,", r->us, r->spread_us, tokens_per_second(r), r->speedup);
    if (r->watts > 0) printf("%.2f,%.6g", r->watts, r->joules_per_token);
    else fputc(',', stdout);
    printf(",%s\n", r->power_source);
}

static void on_row(void *user, const struct weft_ablation_row *r)
{
    ablation *a = user;
    wf_progress_hide(&a->bar);
    (a->o->output && !strcmp(a->o->output, "csv") ? csv_row : md_row)(a, r);
    fflush(stdout);
    a->tuned |= !strcmp(r->plan, "tuned");
    a->n++;
}

/* ---- running --------------------------------------------------------------------------------------------------------- */

static void on_progress(void *user, const char *what, double fraction)
{
    ablation *a = user;
    if (!a->o->quiet) wf_progress_update(&a->bar, what, fraction);
}

static int run(ablation *a, struct weft_engine *e)
{
    const wf_opts *o = a->o;
    struct weft_ablation_params p = {.n_parts = o->ablation.n_parts, .rounds = o->repeat, .context = o->ablation.context, .on_row = on_row, .on_progress = on_progress, .stop = wf_ask_interrupted, .user = a};
    wf_catch_interrupt();
    weft_status s = weft_ablation(e, &p);
    wf_progress_end(&a->bar);
    if (s == WEFT_ERR_CANCELLED) return wf_interrupted_exit();
    if (s) return wf_say_error(s);
    if (!a->tuned) wf_note(o, "no plan of `weft tune --overlap` for this device and model is kept, so none ran");
    return 0;
}

static int cmd_bench_ablation(const wf_opts *o)
{
    struct weft_model *m = NULL;
    struct weft_engine *e = NULL;
    int rc = wf_open_model_or_shape(o, false, &m);
    if (!rc) rc = wf_open_profiled(o, m, &e);
    ablation a = {.o = o, .device = e ? weft_engine_device(e) : NULL};
    if (!rc) rc = run(&a, e);
    weft_engine_close(e);
    weft_model_close(m);
    return rc;
}

static const wf_opt rows[] = {
    {0, "parts", "N", "nano-batches of a step (default 2)", WF_OPT_U32, AT(ablation.n_parts), 2, 64},
    {'r', "repetitions", "N", "rounds, in each of which all plans run; medians are reported (default 9)", WF_OPT_U32, AT(repeat), 3, 99},
    {0, "context-measured", "N", "keys of the sequences (default 1024)", WF_OPT_U32, AT(ablation.context), 1, 1 << 24},
    {0, "max-num-seqs", "N", "most sequences in a batch (default: as of `weft serve`)", WF_OPT_U32, AT(engine.n_seqs), 1, 65536},
    {0, "max-num-batched-tokens", "N", "most tokens in a step, as of `weft serve`", WF_OPT_U32, AT(engine.max_batched_tokens), 1, 65536},
    {0, "kv-memory", "SIZE", "size of the KV cache (default: as much as the sequences take with the keys that are measured, and 8 of full context length at least, where that fits)", WF_OPT_SIZE, AT(engine.kv_memory), 1, 0x1p63},
    {0, "deterministic", NULL, "batch-invariant kernels", WF_OPT_FLAG, AT(engine.deterministic)},
    {'o', "output", "md|csv", "format of the table (default md)", WF_OPT_CHOICE, AT(output)},
};
static const WF_GROUP(group, "Ablation", rows);
static const wf_opt_group *const groups[] = {&wf_group_model, &wf_group_shape, &group, &wf_group_context, &wf_group_device, &wf_group_kernels, &wf_group_general, NULL};

const wf_command wf_cmd_bench_ablation = {
    .name = "bench ablation",
    .usage = "[-m FILE | --shape NAME] [options]",
    .summary = "Measures what splitting steps into nano-batches costs and what overlapping them gains. It times steps of decodes, of a prompt and of both: whole on one "
               "queue (no split), in nano-batches one after another (split only), with the attention of one beside the other ops of another (overlap), the same beside copies "
               "of KV pages to the host (overlap + offload; where copies have a queue of their own), and with the plan that `weft tune --overlap` has kept (tuned). All "
               "take turns. Where power can be read each then runs for a second, for watts and joules a token.",
    .groups = groups,
    .run = cmd_bench_ablation,
};
