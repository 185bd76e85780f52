/* bench: tokens per second of whole models, prefill and decode separately, like llama-bench. */
#include "cli/bench.h"

#include <stdio.h>
#include <string.h>

#define AT(field) offsetof(wf_opts, field)

struct bench {
    const wf_opts *o;
    const struct weft_model *m;
    const wf_bench_format *format;
    wf_peers peers;
    bool first; /* no row printed yet */
    bool closed;
};

/* What was measured, as results name it: P=512 and B=64, of a model without a file also which. */
static void shape_name(const wf_opts *o, const wf_bench_row *row, char *buf, size_t cap)
{
    char seqs[16] = "", which[64];
    if (row->n_seqs > 1) snprintf(seqs, sizeof seqs, ",B=%u", row->n_seqs);
    wf_shape_suffix(o, which, sizeof which);
    snprintf(buf, cap, "%c=%u%s%s", row->n_prompt ? 'P' : 'N', row->n_prompt ? row->n_prompt : row->n_gen, seqs, which);
}

static weft_status append(const struct bench *b, const wf_bench_row *row)
{
    char shape[96];
    uint32_t n = row->n_prompt ? row->n_prompt : row->n_gen;
    double rate = row->r.median;
    shape_name(b->o, row, shape, sizeof shape);
    wf_result r = {row->device, row->n_prompt ? "model_prompt" : "model_decode", wf_weight_type(row->model), shape, wf_engine_variant(&b->o->engine),
                   rate > 0 ? (double)n * row->n_seqs * 1e6 / rate : 0, rate, -1, "tokens/s"};
    return wf_results_append(b->o->results, &r, &b->peers);
}

static int run_test(struct bench *b, struct weft_engine *e, uint32_t threads, uint32_t n_prompt,
                   uint32_t n_gen)
{
    wf_progress bar = {0};
    wf_bench_row row = {.model = b->m,
                        .device = weft_engine_device(e),
                        .threads = threads,
                        .n_seqs = b->o->n_seqs,
                        .n_prompt = n_prompt,
                        .n_gen = n_gen};
    struct weft_bench_params p = {.n_prompt = n_prompt,
                                  .n_gen = n_gen,
                                  .n_seqs = b->o->n_seqs,
                                  .repeat = b->o->repeat,
                                  .on_progress = wf_on_progress,
                                  .user = b->o->quiet ? NULL : &bar};
    weft_status s = weft_bench(e, &p, &row.r);
    wf_progress_end(&bar);
    if (s) return wf_say_error(s);
    b->format->row(&row, b->first);
    b->first = false;
    if (fflush(stdout)) b->closed = true;
    s = b->o->results ? append(b, &row) : WEFT_OK;
    return s ? wf_say_error(s) : 0;
}

static int run_tests(struct bench *b, struct weft_engine *e, uint32_t threads)
{
    int rc = 0;
    for (size_t i = 0; i < b->o->n_prompt.n && !rc && !b->closed; i++)
        if (b->o->n_prompt.v[i]) rc = run_test(b, e, threads, b->o->n_prompt.v[i], 0);
    for (size_t i = 0; i < b->o->n_gen.n && !rc && !b->closed; i++)
        if (b->o->n_gen.v[i]) rc = run_test(b, e, threads, 0, b->o->n_gen.v[i]);
    return rc;
}

/* The longest sequence of all tests; decode tests start with a BOS. */
static uint32_t context_needed(const wf_opts *o)
{
    uint32_t n = 16;
    for (size_t i = 0; i < o->n_prompt.n; i++) n = WF_MAX(n, o->n_prompt.v[i]);
    for (size_t i = 0; i < o->n_gen.n; i++) n = WF_MAX(n, o->n_gen.v[i] + 1);
    return n;
}

static int bench(const wf_opts *o, const struct weft_model *m)
{
    struct bench b = {.o = o, .m = m, .format = wf_bench_format_find(o->output), .first = true};
    int rc = 0;
    weft_status s = o->results ? wf_results_check(o->results) : WEFT_OK;
    if (!s && o->peer) s = wf_peers_read(o->peer, &b.peers);
    if (s) rc = wf_say_error(s);
    for (size_t i = 0; i < o->threads.n && !rc && !b.closed; i++) {
        struct weft_engine *e = NULL;
        struct weft_engine_params ep = o->engine;
        ep.threads = o->threads.v[i];
        ep.context = context_needed(o);
        ep.n_seqs = o->n_seqs;
        ep.no_prefix = true; /* every repetition must compute its prompt */
        rc = wf_open_engine(o, m, ep, &e);
        if (!rc && i == 0 && b.format->head) b.format->head();
        if (!rc) rc = run_tests(&b, e, ep.threads);
        weft_engine_close(e);
    }
    if (!b.first && b.format->foot) b.format->foot();
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
    if (o.peer && !o.results) return wf_usage(o.command, "--peer needs --results, which stores the ratio");
    if (!any) return wf_usage(o.command, "-p 0 and -n 0 leave nothing to measure");
    int rc = wf_open_model_or_shape(&o, false, &m);
    if (!rc) rc = bench(&o, m);
    weft_model_close(m);
    return rc;
}

static const wf_opt rows[] = {
    {'p', "n-prompt", "N,...", "prompt lengths (default 512; 0: none)", WF_OPT_LIST,
     AT(n_prompt), 0, 16777216},
    {'n', "n-gen", "N,...", "tokens to generate (default 128; 0: none)", WF_OPT_LIST, AT(n_gen), 0,
     16777216},
    {'s', "sequences", "N", "batch size in sequences (default 1)", WF_OPT_U32, AT(n_seqs), 1, 4096},
    {'r', "repetitions", "N", "runs of each test after a warm-up (default 5)",
     WF_OPT_U32, AT(repeat), 1, 100000},
    {'t', "threads", "N,...", "CPU threads (default: one per core, one less from 16 cores on)", WF_OPT_LIST, AT(threads), 1,
     4096},
    {'o', "output", "md|json|csv", "format of the table (default md)", WF_OPT_CHOICE, AT(output)},
};
static const WF_GROUP(group, "Tests", rows);
static const wf_opt_group *const groups[] = {
    &wf_group_model, &wf_group_shape, &group, &wf_group_results, &wf_group_device, &wf_group_kernels, &wf_group_testing, &wf_group_general, NULL,
};

const wf_command wf_cmd_bench = {
    .name = "bench",
    .usage = "[-m FILE | --shape NAME] [-p N,...] [-n N,...] [options]",
    .summary =
        "Measures prefill and decode speed in tokens per second, like llama-bench. pp512 is a prompt of 512 random "
        "tokens, tg128 generates 128 tokens, and tg128x16 does so in a batch of 16 sequences. Results are "
        "mean ± standard deviation. `weft bench ops` measures single ops, `weft bench throughput` whole loads in this process, "
        "`weft bench serve` a server, and `weft bench paper` figures of papers.",
    .groups = groups,
    .run = cmd_bench,
};
