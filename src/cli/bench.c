/* bench: tokens per second of whole models, prefill and decode separately, like llama-bench. */
#include "cli/bench.h"
#include "cli/rows.h"

#include <stdio.h>

struct bench {
    const wf_opts *o;
    const struct weft_model *m;
    wf_rows rows;
    wf_peers peers;
    bool closed;
};

/* One of n_prompt and n_gen is 0. */
static void print_test(struct bench *b, const struct weft_device_info *d, uint32_t threads, uint32_t n_prompt,
                       uint32_t n_gen, const struct weft_bench_result *r)
{
    char label[96], date[40], test[32], cores[16], speed[48], seqs[16] = "";
    const struct weft_model_info *i = weft_model_info(b->m);
    wf_model_label(b->m, label, sizeof label);
    wf_date("%Y-%m-%dT%H:%M:%SZ", date, sizeof date);
    snprintf(cores, sizeof cores, threads ? "%u" : "all", threads);
    if (b->o->n_seqs > 1) snprintf(seqs, sizeof seqs, "x%u", b->o->n_seqs);
    snprintf(test, sizeof test, "%s%u%s", n_prompt ? "pp" : "tg", n_prompt ? n_prompt : n_gen, seqs);
    snprintf(speed, sizeof speed, "%.2f ± %.2f", r->mean, r->stddev);
    const wf_cell cells[] = {
        WF_TEXT_CELL("build_commit", wf_commit()),
        WF_TEXT_CELL("build_version", weft_version()),
        WF_TEXT_CELL("device", d->id),
        WF_TEXT_CELL("device_name", d->name),
        WF_TEXT_CELL("driver", d->driver),
        WF_TEXT_CELL("model_filename", i->path ? i->path : ""),
        WF_TEXT_SHOWN("model_type", "model", -30, label),
        WF_TEXT_SHOWN(NULL, "size", 10, WF_HUMAN(i->weight_bytes, true)),
        WF_TEXT_SHOWN(NULL, "params", 10, WF_HUMAN(i->n_params, false)),
        WF_TEXT_SHOWN(NULL, "device", -12, d->id),
        WF_TEXT_SHOWN(NULL, "threads", 7, cores),
        WF_TEXT_SHOWN(NULL, "test", 8, test),
        WF_TEXT_SHOWN(NULL, "t/s", 20, speed),
        WF_NUMBER_CELL("model_size", i->weight_bytes),
        WF_NUMBER_CELL("model_n_params", i->n_params),
        WF_NUMBER_CELL("n_threads", threads),
        WF_NUMBER_CELL("n_prompt", n_prompt),
        WF_NUMBER_CELL("n_gen", n_gen),
        WF_NUMBER_CELL("n_seqs", b->o->n_seqs),
        WF_NUMBER_CELL("repeat", r->repeat),
        WF_TEXT_CELL("test_time", date),
        WF_NUMBER_CELL("avg_ts", r->mean),
        WF_NUMBER_CELL("stddev_ts", r->stddev),
        WF_NUMBER_CELL("median_ts", r->median),
    };
    wf_rows_add(&b->rows, cells, WF_LEN(cells));
    if (fflush(stdout)) b->closed = true;
}

/* Results name what was measured P=512 and B=64, and of a model without a file also which. */
static weft_status append_test(const struct bench *b, const struct weft_device_info *d, uint32_t n_prompt,
                               uint32_t n_gen, double rate)
{
    char shape[96], seqs[16] = "", which[64];
    uint32_t n = n_prompt ? n_prompt : n_gen;
    if (b->o->n_seqs > 1) snprintf(seqs, sizeof seqs, ",B=%u", b->o->n_seqs);
    wf_shape_suffix(b->o, which, sizeof which);
    snprintf(shape, sizeof shape, "%c=%u%s%s", n_prompt ? 'P' : 'N', n, seqs, which);
    wf_result r = {d,
                   n_prompt ? "model_prompt" : "model_decode",
                   wf_weight_type(b->m),
                   shape,
                   wf_engine_variant(&b->o->engine),
                   rate > 0 ? (double)n * b->o->n_seqs * 1e6 / rate : 0,
                   rate,
                   -1,
                   "tokens/s"};
    return wf_results_append(b->o->results, &r, &b->peers);
}

static int run_test(struct bench *b, struct weft_engine *e, uint32_t threads, uint32_t n_prompt, uint32_t n_gen)
{
    wf_progress bar = {0};
    struct weft_bench_result r;
    struct weft_bench_params p = {.n_prompt = n_prompt, .n_gen = n_gen, .n_seqs = b->o->n_seqs, .repeat = b->o->repeat,
                                  .on_progress = wf_on_progress, .user = b->o->quiet ? NULL : &bar};
    weft_status s = weft_bench(e, &p, &r);
    wf_progress_end(&bar);
    if (s) return wf_say_error(s);
    print_test(b, weft_engine_device(e), threads, n_prompt, n_gen, &r);
    s = b->o->results ? append_test(b, weft_engine_device(e), n_prompt, n_gen, r.median) : WEFT_OK;
    return s ? wf_say_error(s) : 0;
}

static int run_tests(const wf_opts *o, const struct weft_model *m)
{
    struct bench b = {.o = o, .m = m, .rows.format = o->output};
    weft_status s = o->results ? wf_results_check(o->results) : WEFT_OK;
    if (!s && o->peer) s = wf_peers_read(o->peer, &b.peers);
    int rc = s ? wf_say_error(s) : 0;
    uint32_t longest = 16; /* sequence of all tests; decode tests start with a BOS */
    for (size_t i = 0; i < o->n_prompt.n; i++) longest = WF_MAX(longest, o->n_prompt.v[i]);
    for (size_t i = 0; i < o->n_gen.n; i++) longest = WF_MAX(longest, o->n_gen.v[i] + 1);
    for (size_t i = 0; i < o->threads.n && !rc && !b.closed; i++) {
        struct weft_engine *e = NULL;
        struct weft_engine_params ep = o->engine;
        ep.threads = o->threads.v[i];
        ep.context = longest;
        ep.n_seqs = o->n_seqs;
        ep.no_prefix = true; /* every repetition must compute its prompt */
        rc = wf_open_engine(o, m, ep, &e);
        for (size_t k = 0; k < o->n_prompt.n && !rc && !b.closed; k++)
            if (o->n_prompt.v[k]) rc = run_test(&b, e, ep.threads, o->n_prompt.v[k], 0);
        for (size_t k = 0; k < o->n_gen.n && !rc && !b.closed; k++)
            if (o->n_gen.v[k]) rc = run_test(&b, e, ep.threads, 0, o->n_gen.v[k]);
        weft_engine_close(e);
    }
    wf_rows_end(&b.rows);
    if (b.rows.n && wf_rows_for_people(&b.rows)) printf("\nbuild: weft %s (%s)\n", weft_version(), wf_commit());
    wf_peers_free(&b.peers);
    return rc;
}

static int cmd_bench(const wf_opts *given)
{
    static uint32_t prompt[] = {512}, gen[] = {128}, threads[] = {0};
    struct weft_model *m = NULL;
    wf_opts o = *given; /* borrows the lists */
    if (!o.n_prompt.n) o.n_prompt = (wf_list){prompt, 1};
    if (!o.n_gen.n) o.n_gen = (wf_list){gen, 1};
    if (!o.threads.n) o.threads = (wf_list){threads, 1};
    if (!o.n_seqs) o.n_seqs = 1;
    uint32_t any = 0;
    for (size_t i = 0; i < o.n_prompt.n; i++) any |= o.n_prompt.v[i];
    for (size_t i = 0; i < o.n_gen.n; i++) any |= o.n_gen.v[i];
    if (!any) return wf_usage(o.command, "-p 0 and -n 0 leave nothing to measure");
    int rc = wf_open_model(&o, false, &m);
    if (!rc) rc = run_tests(&o, m);
    weft_model_close(m);
    return rc;
}

static const wf_opt rows[] = {
    {'p', "n-prompt", "N,...", "prompt lengths (default 512; 0: none)", WF_OPT_LIST, AT(n_prompt), 0, 16777216},
    {'n', "n-gen", "N,...", "tokens to generate (default 128; 0: none)", WF_OPT_LIST, AT(n_gen), 0, 16777216},
    {'s', "max-num-seqs", "N", "batch size in sequences (default 1)", WF_OPT_U32, AT(n_seqs), 1, 4096},
    {'r', "repetitions", "N", "runs of each test after a warm-up (default 5)", WF_OPT_U32, AT(repeat), 1, 100000},
    {'t', "threads", "N,...", "CPU threads (default: one per core, one less from 16 cores on)", WF_OPT_LIST,
     AT(threads), 1, 4096},
    {'o', "output", "md|json|csv", "format of the table (default md)", WF_OPT_CHOICE, AT(output)},
};
static const WF_GROUP(group, "Tests", rows);
static const wf_opt_group *const groups[] = {
    &wf_group_model, &wf_group_shape, &group, &wf_group_results, &wf_group_device, &wf_group_parallel,
    &wf_group_kernels, &wf_group_testing, &wf_group_general, NULL,
};

const wf_command wf_cmd_bench = {
    .name = "bench",
    .usage = "[-m FILE | --shape NAME] [-p N,...] [-n N,...] [options]",
    .summary =
        "Measures prefill and decode speed in tokens per second, like llama-bench. pp512 is a prompt of 512 random "
        "tokens, tg128 generates 128 tokens, and tg128x16 does so in a batch of 16 sequences. Results are "
        "mean ± standard deviation. `weft bench ops` measures single ops, `weft bench throughput` whole loads in this "
        "process and `weft bench serve` a server.",
    .groups = groups,
    .run = cmd_bench,
};
