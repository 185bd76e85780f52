/* tune: finds the fastest kernel for each shape of a model on a device and saves the choices. */
#include "cli/cli.h"
#include "loadgen/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct tune {
    wf_measuring view;
    size_t n;
};

static void on_row(void *user, const struct weft_tune_row *r)
{
    struct tune *t = user;
    bool gemm = !strcmp(r->op, "gemm");
    char size[24];
    wf_progress_hide(&t->view.bar);
    if (!t->n++)
        printf("%-17s %-5s %-22s %9s  %-16s %10s  %-16s %10s %6s\n", "op", "dtype", "shape", "size",
               "fastest", "us", "default", "us", "gain");
    snprintf(size, sizeof size, "%c=%u", gemm ? 'M' : 'L', r->size);
    printf("%-17s %-5s %-22s %9s  %-16s %10.1f  %-16s %10.1f %5.2fx\n", r->op, r->dtype, r->shape,
           size, r->variant, r->us, r->default_variant, r->default_us, r->default_us / r->us);
    fflush(stdout);
}

static int tune_kernels(const wf_opts *o, const struct weft_model *m)
{
    char path[1100] = "";
    struct tune t = {.view.o = o};
    uint32_t batch = 0;
    uint64_t left = 0;
    struct weft_tune_params p = {.device = o->engine.device,
                                 .tier = o->engine.tier,
                                 .threads = o->engine.threads,
                                 .no_kernel_cache = o->engine.no_kernel_cache,
                                 .model = m,
                                 .shapes = o->shapes.v,
                                 .n_shapes = o->shapes.n,
                                 .dtypes = o->dtypes,
                                 .max_size = o->max_size,
                                 .repeat = o->repeat,
                                 .rotate = o->rotate,
                                 .path = o->file,
                                 .dense_batch = &batch,
                                 .on_row = on_row,
                                 .on_progress = wf_on_measuring,
                                 .user = &t,
                                 .seconds = o->overlaps.seconds,
                                 .stop = wf_ask_interrupted,
                                 .left = &left};
    wf_catch_interrupt();
    weft_status s = weft_tune(&p, path, sizeof path);
    wf_progress_end(&t.view.bar);
    if (s) return wf_say_error(s);
    if (batch)
        printf("%-17s %-5s %-22s %9u  tokens per step, above which throughput hardly grows\n", "dense_batch", "", "",
               batch);
    wf_note(o, "wrote %s", path);
    if (left) wf_note(o, "%llu shapes are left: the same command begins with them", (unsigned long long)left);
    return left && wf_interrupted() ? wf_interrupted_exit() : 0;
}

/* ---- steps of a model, whose --shape names one ------------------------------------------------ */

static int with_model(const wf_opts *given, int (*use)(const wf_opts *, const struct weft_model *))
{
    wf_opts o = *given;
    struct weft_model *m = NULL;
    if (o.shapes.n > 1)
        return wf_usage(o.command, "%s takes one --shape NAME, such as llama3-8b",
                        o.overlap ? "--overlap" : "--dataset-path");
    if (o.shapes.n) o.shape = o.shapes.v[0], o.type = o.dtypes;
    int rc = wf_open_model(&o, false, &m);
    if (!rc) rc = use(&o, m);
    weft_model_close(m);
    return rc;
}

/* ---- overlap -------------------------------------------------------------------------------- */

static int tune_overlap(const wf_opts *o, const struct weft_model *m)
{
    struct weft_engine *e = NULL;
    struct weft_overlap_params p = o->overlaps;
    p.keep = WF_MIN(o->search.keep, 4u);
    wf_progress bar = {0};
    bool stopped = false;
    int rc = wf_open_profiled(o, m, &e);
    if (rc) return rc;
    p.on_progress = wf_on_progress;
    p.stop = wf_ask_interrupted;
    p.user = o->quiet ? NULL : &bar;
    wf_catch_interrupt();
    weft_status s = weft_tune_overlap(e, &p, stdout, &stopped);
    wf_progress_end(&bar);
    if (s) rc = wf_say_print_error(s);
    weft_engine_close(e);
    if (stopped) wf_note(o, "stopped: what was measured is kept, and the same command goes on from there");
    return rc ? rc : stopped ? wf_interrupted_exit() : 0;
}

/* ---- the chunk for a load ------------------------------------------------------------------- */

enum { MOST_TOKENS = 2048 };

typedef struct lengths {
    uint32_t *prompts, *generated;
    size_t n;
} lengths;

typedef struct chunk_view {
    wf_measuring view;
    double ratio;
    size_t n_requests, n_rows;
    uint32_t last_tokens;
    struct weft_chunk_row chosen;
} chunk_view;

static void on_chunk(void *user, const struct weft_chunk_row *r)
{
    chunk_view *v = user;
    wf_progress_hide(&v->view.bar);
    if (!v->n_rows++)
        printf("P:D = %.3g, of %zu requests\n\n%-9s %7s %7s %8s %10s %10s\n", v->ratio, v->n_requests, "policy",
               "tokens", "chunk", "decodes", "ms", "tokens/s");
    printf("%-9s %7u %7u %8u %10.2f %10.1f\n", r->policy, r->tokens, r->chunk, r->decodes, r->us / 1e3, r->rate);
    v->last_tokens = r->tokens;
    if (r->chosen) v->chosen = *r;
}

/* Of the requests that fit the context, as `weft bench throughput` takes them. */
static weft_status keep_fitting(const wf_opts *o, uint32_t context, lengths *l)
{
    size_t n = 0, all = l->n;
    for (size_t i = 0; i < all; i++)
        if ((uint64_t)WF_MAX(l->prompts[i], 1u) + l->generated[i] <= context)
            l->prompts[n] = l->prompts[i], l->generated[n] = l->generated[i], n++;
    l->n = n;
    if (!n && all)
        return wf_fail(WEFT_ERR_ARG, "no request fits the context of %u tokens; use a larger one (-c)", context);
    if (n < all)
        wf_note(o, "%zu of %zu requests do not fit the context of %u tokens (-c), and do not count", all - n, all,
                context);
    return WEFT_OK;
}

static int tune_chunk(const wf_opts *o, struct weft_engine *e, lengths *l)
{
    char path[1100] = "";
    weft_status fit = keep_fitting(o, weft_engine_context(e), l);
    if (fit) return wf_say_error(fit);
    chunk_view v = {.view.o = o, .n_requests = l->n};
    struct weft_chunk_params p = {.prompts = l->prompts,
                                  .generated = l->generated,
                                  .n = l->n,
                                  .path = o->file,
                                  .seconds = o->overlaps.seconds,
                                  .repeat = o->repeat,
                                  .ratio = &v.ratio,
                                  .on_row = on_chunk,
                                  .on_progress = wf_on_measuring,
                                  .stop = wf_ask_interrupted,
                                  .user = &v};
    time_t began = time(NULL);
    wf_catch_interrupt();
    weft_status s = weft_tune_chunk(e, &p, path, sizeof path);
    wf_progress_end(&v.view.bar);
    if (s) return wf_say_error(s);
    if (v.chosen.policy)
        printf("\nserve such a load with --policy %s --max-num-batched-tokens %u, the smallest step that is expected "
               "to give nearly as much as the best\n",
               v.chosen.policy, v.chosen.tokens);
    if (wf_interrupted() || (p.seconds && (uint64_t)(time(NULL) - began) >= p.seconds))
        wf_note(o, "stopped: steps of more than %u tokens may be missing", v.last_tokens);
    wf_note(o, "wrote %s: with it policy sarathi begins with this ratio", path);
    return wf_interrupted() ? wf_interrupted_exit() : 0;
}

static int tune_steps(const wf_opts *o, const struct weft_model *m)
{
    lengths l = {0};
    struct weft_engine *e = NULL;
    struct weft_engine_params p = o->engine;
    struct stat st;
    wf_batching_defaults(o, m, &p);
    uint64_t all = p.n_seqs && p.context ? (uint64_t)p.n_seqs * p.context : MOST_TOKENS;
    if (!p.max_batched_tokens) p.max_batched_tokens = (uint32_t)WF_MIN((uint64_t)MOST_TOKENS, all);
    if (o->file && !stat(o->file, &st) && S_ISREG(st.st_mode))
        p.tuned = o->file; /* with the kernels of the file that is written; another kind of file may never open */
    p.policy = "sarathi";
    /* Of the requests of all files. */
    wf_request_specs specs = {0};
    weft_status s = WEFT_OK;
    for (size_t i = 0; i < o->load.traces.n && !s; i++) s = wf_trace_read(o->load.traces.v[i], &specs);
    l = (lengths){wf_calloc(specs.n, sizeof *l.prompts), wf_calloc(specs.n, sizeof *l.generated), specs.n};
    if (!s && (!l.prompts || !l.generated)) s = WEFT_ERR_NOMEM;
    for (size_t i = 0; i < specs.n && !s; i++)
        l.prompts[i] = specs.list[i].n_in, l.generated[i] = specs.list[i].n_out;
    wf_request_specs_free(&specs);
    int rc = s ? wf_say_error(s) : wf_open_engine(o, m, p, &e);
    if (!rc) rc = tune_chunk(o, e, &l);
    weft_engine_close(e);
    free(l.prompts), free(l.generated);
    return rc;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int cmd_tune(const wf_opts *o)
{
    struct weft_model *m = NULL;
    if (o->overlap) return with_model(o, tune_overlap);
    if (o->load.traces.n) return with_model(o, tune_steps);
    int rc = o->shapes.n ? 0 : wf_open_model(o, false, &m);
    if (!rc) rc = tune_kernels(o, m);
    if (m) weft_model_close(m);
    return rc;
}

static const wf_opt rows[] = {
    {0, "shape", "SHAPE",
     "N=6144,K=4096 for matrices or H=32,KV=8,D=128 for attention, instead of a model's shapes; "
     "repeatable. With --overlap and --dataset-path the name of one model's shape, such as llama3-8b",
     WF_OPT_WORDS, AT(shapes)},
    {0, "type", "TYPE,...", "formats of the matrices, such as F16,Q4_0 (default F16)", WF_OPT_TEXT, AT(dtypes),
     .words = wf_weight_types},
    {'r', "repetitions", "N", "samples of at least 20 ms, whose median is used (default 3)", WF_OPT_U32, AT(repeat), 1,
     64},
    {0, "seconds", "N",
     "about the most time that measuring takes, without opening the model (default: no limit, and 300 with --overlap, "
     "where the search is in it, but not building kernels for the plans that are found, nor the step that runs when it "
     "is over); the same command goes on from there",
     WF_OPT_U32, AT(overlaps.seconds), 1, 86400},
    {'f', "file", "FILE", "output file (default: ~/.config/weft/tuned/DEVICE.tune)", WF_OPT_TEXT, AT(file)},
    {0, "dataset-path", "FILE",
     "instead of kernels measure steps, and find the chunk for a load: lengths of its requests as CSV, as of `weft "
     "bench throughput`; repeatable. Its ratio P:D of prompt tokens to generated ones is kept, and --policy sarathi "
     "begins with it",
     WF_OPT_WORDS, AT(load.traces)},
};
static const wf_opt overlap_rows[] = {
    {0, "overlap", NULL,
     "measure ops alone and beside each other, and find plans that overlap them, instead of kernels (docs/plans.md)",
     WF_OPT_FLAG, AT(overlap)},
    {0, "context", "N", "keys of the sequences that attention is measured with (default 1024)", WF_OPT_U32,
     AT(overlaps.context), 1, 1 << 24},
    {0, "profile", "PROFILE",
     "file for the times of ops, which `weft plan --search` reads (default: one of this device and model in the cache "
     "folder)",
     WF_OPT_TEXT, AT(overlaps.profile)},
    {'o', "output", "FILE",
     "file for the plans, for --plan (default: one in the cache folder, which --nano-batches auto takes)", WF_OPT_TEXT,
     AT(overlaps.plan)},
};
static const WF_GROUP(group, "Tuning", rows);
static const wf_opt step_rows[] = {
    {0, "max-num-seqs", "N", "most sequences in a batch (default: as of `weft serve`)", WF_OPT_U32, AT(engine.n_seqs),
     1, 65536},
    {0, "max-num-batched-tokens", "N", "most tokens in a step, as of `weft serve` (default with --dataset-path 2048)",
     WF_OPT_U32, AT(engine.max_batched_tokens), 1, 65536},
    {0, "kv-memory", "SIZE",
     "size of the KV cache (default: as of `weft serve`; with --overlap as much as the sequences take with the keys "
     "that are measured, and 8 of full context length at least, where that fits)",
     WF_OPT_SIZE, AT(engine.kv_memory), 1, 0x1p63},
    {0, "deterministic", NULL, "measure batch-invariant kernels, for engines with --deterministic", WF_OPT_FLAG,
     AT(engine.deterministic)},
    {0, "kv-dtype", "auto|f16|q8_0", "measure with such a KV cache, for engines with the same", WF_OPT_CHOICE,
     AT(engine.kv_dtype)},
};
static const WF_GROUP(overlap_group, "Overlap", overlap_rows);
static const WF_GROUP(step_group, "Steps, of --overlap and --dataset-path", step_rows);
static const wf_opt_group *const groups[] = {&wf_group_model,   &group,           &overlap_group,    &step_group,
                                             &wf_group_context, &wf_group_device, &wf_group_general, NULL};

const wf_command wf_cmd_tune = {
    .name = "tune",
    .usage = "[-m FILE | --shape SHAPE...] [options]",
    .summary = "Finds the fastest kernels for a model on a device. For each shape it measures which kernel is the "
               "fastest at each batch size, and how many tokens a step should have. The choices are saved in "
               "$XDG_CONFIG_HOME/weft/tuned (~/.config/weft/tuned), and later runs on the same device load them. "
               "Without such a file weft goes by default costs. With --dataset-path it finds which steps suit a load.",
    .explicit_model = true,
    .groups = groups,
    .run = cmd_tune,
};
