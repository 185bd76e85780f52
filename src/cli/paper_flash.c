/* paper_flash: figures of FlashDecoding++Next: attention logits, flat products, the asynchronous softmax, attention windows, and memory that activations
 * and the KV cache share. */
#include "cli/bench.h"
#include "cli/paper.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- figure 5: attention logits --------------------------------------------------------------- */

#define WITHIN "99.99 % lie between"
#define WITHIN_Y 0.01 /* where the two points are plotted */

/* All layers together. */
static bool sum_layers(const struct weft_calibration *c, struct weft_logit_histogram *sum)
{
    *sum = (struct weft_logit_histogram){.min = INFINITY, .max = -INFINITY, .bins = wf_calloc(WEFT_LOGIT_BINS, sizeof *sum->bins)};
    for (uint32_t i = 0; sum->bins && i < c->n_layers; i++) {
        const struct weft_logit_histogram *l = &c->layers[i].all;
        for (size_t k = 0; k < WEFT_LOGIT_BINS; k++) sum->bins[k] += l->bins[k];
        sum->n += l->n, sum->sum += l->sum;
        sum->min = WF_MIN(sum->min, l->min), sum->max = WF_MAX(sum->max, l->max);
    }
    return sum->bins != NULL;
}

static int add_histogram(wf_paper *p, const struct weft_logit_histogram *l)
{
    const size_t whole = (size_t)(1 / WEFT_LOGIT_STEP); /* bins of one unit */
    int rc = 0;
    for (size_t i = 0; i < WEFT_LOGIT_BINS && !rc; i += whole) {
        uint64_t n = 0;
        double x = WEFT_LOGIT_LOW + WEFT_LOGIT_STEP * (double)i + 0.5;
        for (size_t k = i; k < i + whole; k++) n += l->bins[k];
        if (n) rc = wf_paper_add(p, "all layers", x, x, 100 * (double)n / (double)l->n);
    }
    if (!rc) rc = wf_paper_add(p, WITHIN, weft_logit_quantile(l, 0.00005), -16.8, WITHIN_Y);
    return rc ? rc : wf_paper_add(p, WITHIN, weft_logit_quantile(l, 0.99995), 6.5, WITHIN_Y);
}

static int calibrate(wf_paper *p, struct weft_engine *e, const char *text, size_t len)
{
    struct weft_calibration *c = NULL;
    struct weft_logit_histogram sum;
    int rc = wf_paper_calibrate(p, e, text, len, &c);
    if (rc) return weft_calibration_free(c), rc;
    rc = sum_layers(c, &sum) ? add_histogram(p, &sum) : wf_say_error(WEFT_ERR_NOMEM);
    if (!rc) rc = wf_paper_note(p, "%llu tokens of your text in chunks of at most %u", (unsigned long long)c->n_tokens, c->context);
    free(sum.bins);
    weft_calibration_free(c);
    return rc;
}

static int logits_of(wf_paper *p, const char *text, size_t len)
{
    struct weft_engine *e = NULL;
    struct weft_engine_params ep = p->o->engine;
    wf_only_calibrated(p->m, &ep);
    int rc = wf_open_engine(p->o, p->m, ep, &e);
    if (!rc) wf_copy(p->device, sizeof p->device, weft_engine_device(e)->name);
    if (!rc) rc = calibrate(p, e, text, len);
    weft_engine_close(e);
    return rc;
}

/* Hands on the text of -p or -f. */
static int with_text(wf_paper *p, int (*run)(wf_paper *p, const char *text, size_t len))
{
    char *text = NULL;
    size_t len = 0;
    if (!p->o->prompt && !p->o->file) return wf_usage(p->o->command, "%s needs a text: use -f FILE", p->figure->id);
    int rc = wf_read_text(p->o, &text, &len);
    if (!rc) rc = run(p, text, len);
    free(text);
    return rc;
}

static int fig5(wf_paper *p)
{
    return with_text(p, logits_of);
}

static int tokens(wf_paper *p)
{
    return with_text(p, wf_paper_tokens);
}

/* ---- single ops --------------------------------------------------------------------------------- */

enum { MOST_LENGTHS = 6 };

typedef struct op_run {
    wf_paper *p;
    wf_peers peers;
    const char *axis; /* what of the shape is x: "N=" */
    const char *series;
    size_t n_rows; /* of attention in this run */
    int rc;
} op_run;

static double x_of(const op_run *r, const char *shape)
{
    const char *at = strstr(shape, r->axis);
    return at ? strtod(at + strlen(r->axis), NULL) : 0;
}

static void on_op_progress(void *user, const char *what, double fraction)
{
    op_run *r = user;
    if (!r->p->o->quiet) wf_progress_update(&r->p->bar, what, fraction);
}

static int measure(op_run *r, const char *op, const char *variant, bool async, const char *const *shapes, size_t n, weft_op_fn on_row)
{
    const wf_opts *o = r->p->o;
    struct weft_op_params q = wf_op_params(o, "F16", shapes, n);
    q.ops = op, q.variant = variant, q.async = async;
    q.repeat = wf_paper_repeat(r->p), q.rotate = o->paper.quick ? 1 : 0;
    q.on_row = on_row, q.on_progress = on_op_progress, q.user = r;
    weft_status s = weft_bench_ops(&q);
    wf_progress_end(&r->p->bar);
    if (s) return wf_say_error(s);
    return wf_interrupted() ? wf_interrupted_exit() : r->rc;
}

/* ---- figure 7: flat products --------------------------------------------------------------------- */

#define WIDTH_SERIES "B_N = "

/* The sweep's kernel has a name for each width of a work-group but the one that is used by default. */
static const char *width_series(const char *variant)
{
    static const struct {
        const char *variant, *series;
    } all[] = {{"flat8_n16", WIDTH_SERIES "16"}, {"flat8", WIDTH_SERIES "32"}, {"flat8_n64", WIDTH_SERIES "64"}, {"flat8_n128", WIDTH_SERIES "128"}};
    for (size_t i = 0; i < WF_LEN(all); i++)
        if (!strcmp(variant, all[i].variant)) return all[i].series;
    return variant;
}

static void on_product(void *user, const struct weft_op_row *row)
{
    op_run *r = user;
    wf_copy(r->p->device, sizeof r->p->device, row->device->name);
    double n = x_of(r, row->shape);
    if (row->variant && !r->rc) r->rc = wf_paper_add(r->p, width_series(row->variant), n, n, row->rate);
}

static bool is_width(const wf_paper_row *r)
{
    return !strncmp(r->series, WIDTH_SERIES, strlen(WIDTH_SERIES));
}

/* Where the device has the sweep's kernel, other kernels do not belong to the figure. Returns whether it has. */
static bool keep_widths(wf_paper *p)
{
    size_t kept = 0;
    for (size_t i = 0; i < p->n_rows; i++)
        if (is_width(&p->rows[i])) p->rows[kept++] = p->rows[i];
    if (kept) p->n_rows = kept;
    return kept;
}

static void normalise_at(wf_paper *p, double x)
{
    double best = 0;
    for (size_t i = 0; i < p->n_rows; i++)
        if (p->rows[i].x == x) best = WF_MAX(best, p->rows[i].v[0]);
    for (size_t i = 0; i < p->n_rows; i++)
        if (p->rows[i].x == x) p->rows[i].v[0] /= -best; /* negative: done */
}

/* Each width by its best kernel. */
static void normalise(wf_paper *p)
{
    for (size_t i = 0; i < p->n_rows; i++)
        if (p->rows[i].v[0] > 0) normalise_at(p, p->rows[i].x);
    for (size_t i = 0; i < p->n_rows; i++) p->rows[i].v[0] = fabs(p->rows[i].v[0]);
}

static int fig7(wf_paper *p)
{
    static const char *const all[] = {"M=8,N=1024,K=4096", "M=8,N=2048,K=4096", "M=8,N=4096,K=4096", "M=8,N=8192,K=4096", "M=8,N=16384,K=4096", "M=8,N=32768,K=4096"};
    static const char *const few[] = {"M=8,N=128,K=256", "M=8,N=512,K=256"};
    op_run r = {.p = p, .axis = "N="};
    int rc = p->o->paper.quick ? measure(&r, "gemm", "all", false, few, WF_LEN(few), on_product) : measure(&r, "gemm", "all", false, all, WF_LEN(all), on_product);
    bool swept = keep_widths(p);
    normalise(p);
    if (rc) return rc;
    return swept ? wf_paper_note(p, "K = 4096, shared by the eight warps of a work-group") : wf_paper_note(p, "the kernels that weft has here, with tiles of their own, and K = 4096");
}

/* ---- figures 15 and 16: the asynchronous softmax ---------------------------------------------------- */

#define SYNC "synchronous"
#define ASYNC WF_PAPER_ASYNC

/* The best of several kernels. */
static int put_best(wf_paper *p, const char *series, double n, double rate)
{
    for (wf_paper_row *r = p->rows; r < p->rows + p->n_rows; r++)
        if (r->x == n && !strcmp(r->series, series)) return r->v[0] = WF_MAX(r->v[0], rate), 0;
    return wf_paper_add(p, series, n, n, rate);
}

/* All kernels with the asynchronous softmax, which have it in their names, are measured: selection may have found them slower. */
static void on_attention(void *user, const struct weft_op_row *row)
{
    op_run *r = user;
    wf_paper *p = r->p;
    size_t at = 0;
    double n = x_of(r, row->shape);
    wf_copy(p->device, sizeof p->device, row->device->name);
    if (!row->variant || r->rc || (!strcmp(r->series, ASYNC) && !strstr(row->variant, "async"))) return;
    r->n_rows++;
    wf_result as = {row->device, row->op, row->dtype, row->shape, row->variant, row->median_us, row->rate, -1, row->unit};
    r->rc = put_best(p, r->series, n, row->rate);
    for (const wf_peer *q; !r->rc && (q = wf_peer_of(&r->peers, &as, &at));) {
        char name[64];
        snprintf(name, sizeof name, "%s over %.44s", r->series, q->peer);
        r->rc = put_best(p, name, n, row->rate / q->rate);
    }
}

/* Rates become gains over the synchronous softmax, which is 1. */
static void gains(wf_paper *p)
{
    for (size_t i = 0; i < p->n_rows; i++) {
        const wf_paper_row *base = wf_paper_find(p, SYNC, p->rows[i].x);
        if (!strcmp(p->rows[i].series, ASYNC) && base) p->rows[i].v[0] /= base->v[0];
    }
    for (size_t i = 0; i < p->n_rows; i++)
        if (!strcmp(p->rows[i].series, SYNC)) p->rows[i].v[0] = 1;
}

static int no_async(wf_paper *p)
{
    p->n_rows = 0;
    return wf_say_error(wf_fail(WEFT_ERR_NODEVICE, "%s has no kernel with the asynchronous softmax for these shapes; `weft kernels` lists what it has, --device takes another", p->device));
}

static int attention(wf_paper *p, const char *op, uint32_t n_seqs)
{
    static const uint32_t lens[MOST_LENGTHS] = {256, 512, 1024, 2048, 4096, 8192};
    const struct weft_model_info *m = weft_model_info(p->m);
    char text[MOST_LENGTHS][96];
    const char *shapes[MOST_LENGTHS];
    op_run r = {.p = p, .axis = "L=", .series = SYNC};
    size_t n = p->o->paper.quick ? 1 : MOST_LENGTHS;
    weft_status s = p->o->peer ? wf_peers_read(p->o->peer, &r.peers) : WEFT_OK;
    if (s) return wf_say_error(s);
    for (size_t i = 0; i < n; i++) {
        snprintf(text[i], sizeof text[i], "B=%u,L=%u,H=%u,KV=%u,D=%u", p->o->paper.quick ? 1 : n_seqs, p->o->paper.quick ? 64 : lens[i], m->n_head, m->n_kv_head, m->head_dim);
        shapes[i] = text[i];
    }
    int rc = measure(&r, op, NULL, false, shapes, n, on_attention);
    r.series = ASYNC, r.n_rows = 0;
    if (!rc) rc = measure(&r, op, "all", true, shapes, n, on_attention);
    wf_peers_free(&r.peers);
    if (!rc && !r.n_rows) rc = no_async(p);
    if (!rc) gains(p);
    return rc ? rc : wf_paper_note(p, "%u heads of %u, %u of K and V; other programs only from --peer", m->n_head, m->head_dim, m->n_kv_head);
}

static int fig15(wf_paper *p)
{
    return attention(p, "prefill_attention", 1);
}

static int fig16(wf_paper *p)
{
    return attention(p, "decode_attention", 16);
}

/* ---- figure 17: attention windows ------------------------------------------------------------------- */

#define WINDOWED "windows of half the keys"

/* Of the time with and without windows only; rates are of fewer bytes. */
static void on_window(void *user, const struct weft_op_row *row)
{
    op_run *r = user;
    wf_paper *p = r->p;
    size_t at = 0;
    double n = x_of(r, row->shape), us = row->median_us;
    wf_copy(p->device, sizeof p->device, row->device->name);
    if (!row->variant || r->rc) return;
    r->n_rows++;
    if (strcmp(r->series, SYNC)) {
        for (wf_paper_row *q = p->rows; q < p->rows + p->n_rows; q++)
            if (q->x == n) q->v[0] /= us;
        return;
    }
    wf_result as = {row->device, row->op, row->dtype, row->shape, row->variant, us, row->rate, -1, row->unit};
    r->rc = wf_paper_add(p, WINDOWED, n, n, us);
    for (const wf_peer *q; !r->rc && (q = wf_peer_of(&r->peers, &as, &at));) {
        char name[64];
        snprintf(name, sizeof name, "over %.44s", q->peer);
        r->rc = wf_paper_add(p, name, n, n, us * row->rate / q->rate);
    }
}

/* A window of a half of the keys for all heads: MoA has such an average, of heads with different ones. */
static int fig17(wf_paper *p)
{
    static const uint32_t lens[MOST_LENGTHS] = {1024, 2048, 4096, 8192, 16384, 32768};
    const struct weft_model_info *m = weft_model_info(p->m);
    char text[2][MOST_LENGTHS][96];
    const char *shapes[2][MOST_LENGTHS];
    op_run r = {.p = p, .axis = "L=", .series = SYNC};
    size_t n = p->o->paper.quick ? 1 : MOST_LENGTHS;
    weft_status s = p->o->peer ? wf_peers_read(p->o->peer, &r.peers) : WEFT_OK;
    if (s) return wf_say_error(s);
    for (size_t i = 0; i < n; i++) {
        uint32_t len = p->o->paper.quick ? 256 : lens[i];
        snprintf(text[0][i], sizeof text[0][i], "B=%u,L=%u,H=%u,KV=%u,D=%u", p->o->paper.quick ? 1 : 16, len, m->n_head, m->n_kv_head, m->head_dim);
        snprintf(text[1][i], sizeof text[1][i], "%.70s,S=%u", text[0][i], len / 2);
        shapes[0][i] = text[0][i], shapes[1][i] = text[1][i];
    }
    int rc = measure(&r, "decode_attention", NULL, false, shapes[0], n, on_window);
    r.series = WINDOWED;
    if (!rc) rc = measure(&r, "decode_attention", NULL, false, shapes[1], n, on_window);
    wf_peers_free(&r.peers);
    return rc ? rc : wf_paper_note(p, "16 sequences, all heads with one window of half the keys; the paper's heads have several, and FlashDecoding as the base (--peer), here the same kernels without windows");
}

/* ---- figure 18: flat products and another library -------------------------------------------------- */

static void on_flat(void *user, const struct weft_op_row *row)
{
    op_run *r = user;
    wf_paper *p = r->p;
    char name[64];
    size_t at = 0;
    double m = x_of(r, row->shape);
    const char *weights = strchr(row->shape, ',');
    wf_copy(p->device, sizeof p->device, row->device->name);
    if (!row->variant || !weights || r->rc) return;
    wf_result as = {row->device, row->op, row->dtype, row->shape, row->variant, row->median_us, row->rate, -1, row->unit};
    for (const wf_peer *q; !r->rc && (q = wf_peer_of(&r->peers, &as, &at)); r->n_rows++) {
        snprintf(name, sizeof name, "%.24s over %.32s", weights + 1, q->peer);
        r->rc = wf_paper_add(p, name, m, m, row->rate / q->rate);
    }
    snprintf(name, sizeof name, "%.24s over the roofline", weights + 1);
    if (!r->rc && !r->peers.n && row->ceiling_pct >= 0) r->rc = wf_paper_add(p, name, m, m, row->ceiling_pct / 100);
}

/* Weights of Llama-3-8B and Llama-2-13B. */
static int fig18(wf_paper *p)
{
    static const char *const weights[] = {"N=6144,K=4096", "N=4096,K=4096", "N=28672,K=4096", "N=4096,K=14336", "N=15360,K=5120", "N=5120,K=5120", "N=27648,K=5120", "N=5120,K=13824"};
    static const uint32_t tokens[] = {1, 2, 4, 8, 16};
    char text[WF_LEN(weights) * WF_LEN(tokens)][48];
    const char *shapes[WF_LEN(text)];
    size_t n = 0;
    op_run r = {.p = p, .axis = "M="};
    weft_status s = p->o->peer ? wf_peers_read(p->o->peer, &r.peers) : WEFT_OK;
    if (s) return wf_say_error(s);
    for (size_t i = 0; i < (p->o->paper.quick ? 1 : WF_LEN(weights)); i++)
        for (size_t k = 0; k < WF_LEN(tokens); k += p->o->paper.quick ? WF_LEN(tokens) - 1 : 1, n++) {
            snprintf(text[n], sizeof text[n], "M=%u,%s", tokens[k], p->o->paper.quick ? "N=256,K=256" : weights[i]);
            shapes[n] = text[n];
        }
    int rc = measure(&r, "gemm", NULL, false, shapes, n, on_flat);
    if (!rc && r.peers.n && !r.n_rows) rc = wf_usage(p->o->command, "%s has none of these products: gemm of F16, such as M=8,%s", p->o->peer, weights[0]);
    if (!rc && !r.peers.n) rc = wf_paper_note(p, "no results of another library (--peer): over the roofline, the shortest time that the device's measured rates allow");
    wf_peers_free(&r.peers);
    return rc;
}

/* ---- figure 19: shared memory ------------------------------------------------------------------------ */

#define MEMORY 80e9 /* of the paper's device */
enum { DECODING = 256 };

/* Tokens of the KV cache that MEMORY holds beside steps of `step` tokens. */
static int add_capacity(wf_paper *p, uint32_t step)
{
    struct weft_budget b;
    struct weft_engine_params e = {.context = weft_model_info(p->m)->context, .n_seqs = DECODING, .max_batched_tokens = step};
    if (weft_model_budget(p->m, &e, &b)) return wf_say_error(WEFT_ERR_ARG);
    double left = MEMORY - (double)b.weights - (double)b.activations;
    if (left < (double)b.kv_bytes_per_token * e.context) return wf_paper_note(p, "steps of %u tokens leave less than one context of 80 GB", step);
    e.kv_memory = (uint64_t)left;
    if (weft_model_budget(p->m, &e, &b)) return wf_say_error(WEFT_ERR_ARG);
    int rc = wf_paper_add(p, "apart", step, step, (double)b.kv_tokens / 1e3);
    if (!rc && b.kv_tokens >= (uint64_t)DECODING * e.context) rc = wf_paper_note(p, "the %u sequences never need more than their contexts, which fit whatever a step has", DECODING);
    return rc ? rc : wf_paper_add(p, "shared", step, step, (double)b.steady_kv_tokens / 1e3);
}

static int fig19(wf_paper *p)
{
    int rc = 0;
    for (uint32_t step = 4096; step <= 65536 && !rc; step *= 2) rc = add_capacity(p, step);
    if (!rc) rc = wf_paper_note(p, "computed for 80 GB, as the paper's device has, without a device; shared: while %u sequences decode", DECODING);
    return rc ? rc : wf_paper_note(p, "the paper computes a prompt in one step, so its longest context is also its largest step; weft cuts prompts, which leaves less to share");
}

/* ---- the figures -------------------------------------------------------------------------------------- */

static const wf_paper_point points5[] = {{WITHIN, -16.8, WITHIN_Y}, {WITHIN, 6.5, WITHIN_Y}};
static const wf_paper_point points_tokens[] = {{WF_PAPER_ASYNC, WF_PAPER_ANSWER, 91.55}};
static const wf_paper_point points_table2[] = {
    {"full", 1, 100.2}, {"full", 8, 609.3}, {"full", 16, 1076.2}, {"full", 32, 1446.4}, {"full", 64, 1946.6}, {"full", 128, 2158},
    {"without memory", 1, 99.6}, {"without memory", 8, 592.47}, {"without memory", 16, 985.3}, {"without memory", 32, 1388}, {"without memory", 64, 1811.1},
    {"without memory, flat products", 1, 92.5}, {"without memory, flat products", 8, 582.6}, {"without memory, flat products", 16, 969.6},
    {"without memory, flat products", 32, 1389.7}, {"without memory, flat products", 64, 1812.2},
};
static const wf_paper_point points17[] = {{WINDOWED, 4096, 1.98}};
static const wf_paper_point points19[] = {{"apart", 320000, 320}, {"shared", 502000, 502}};

#define POINTS(p) .points = p, .n_points = WF_LEN(p)

static const wf_figure rows[] = {
    {.id = "flash-fig5", .title = "distribution of attention logits", .needs = "a model and a text (-f)", .takes = "as many tokens as the text", .of = "Llama2-7B",
     .says = "more than 99.99 % lie between -16.8 and 6.5 (Llama2-7B), 99 % between -0.25 and 17.6 (CodeLlama-7B), and -0.8 and 9.8 (Vicuna-7B).", .x = "attention logit",
     .y = "share of logits in a unit, %", .log_y = true, POINTS(points5), .reads_text = true, .run = fig5},
    {.id = "flash-fig7", .title = "flat products of 8 rows by the width of a tile", .needs = "a device", .takes = "a minute or two", .of = "an A100, one kernel with tiles of several widths",
     .says = "narrow products want many small tiles (N / B_N of 128 or 256), wide ones are bound by memory.", .x = "N, K = 4096", .y = "rate / of the best width",
     .log_x = true, .ops = true, .run = fig7},
    {.id = "flash-fig15", .title = "the asynchronous softmax in prefill attention", .needs = "a model, for its heads, and kernels with the asynchronous softmax", .takes = "a minute or two", .of = "NVIDIA GPUs",
     .says = "1.52 times xformers and 1.19 times FlashAttention-2 on average.", .x = "tokens of a prompt", .y = "speedup", .log_x = true, .option = "peer", .ops = true, .run = fig15},
    {.id = "flash-fig16", .title = "the asynchronous softmax in decode attention, 16 sequences", .needs = "a model, for its heads, and kernels with the asynchronous softmax", .takes = "a minute or two",
     .of = "NVIDIA GPUs", .says = "up to 2.02 times FlashDecoding with long caches.", .x = "keys of a sequence", .y = "speedup", .log_x = true, .option = "peer", .ops = true, .run = fig16},
    {.id = "flash-fig11", .title = "throughput at the largest batch by prompt length", .needs = "a model", .takes = "about 2 million tokens", .runs = 1, .of = "Llama3 and Qwen1.5, 7B to 72B, on A100 80 GB",
     .says = "1.25 times vLLM and 1.46 times TensorRT-LLM on average, up to 68.88 times HuggingFace.", .x = "tokens of a prompt", .y = "generated tokens/s", .log_x = true, .run = wf_paper_largest_batch},
    {.id = "flash-fig12", .title = "throughput by batch", .needs = "a model", .takes = "about 1.5 million tokens", .runs = 1, .of = "Llama3 and Qwen1.5, 7B to 72B, on A100 80 GB",
     .says = "about that of TensorRT-LLM at the same batch, which runs out of memory first, and more than vLLM's.", .x = "sequences at once", .y = "generated tokens/s", .log_x = true, .log_y = true,
     .run = wf_paper_batches},
    {.id = "flash-fig13", .title = "decode speedup on a Radeon RX 7900 XTX", .needs = "an AMD GPU (flash-fig12 is the same of any device)",
     .takes = "up to 2.41 times HuggingFace in the paper", .of = "Llama2-7B, Llama2-13B and OPT-6.7B"},
    {.id = "flash-fig14", .title = "decode speedup on an Instinct MI210", .needs = "an AMD GPU (flash-fig12 is the same of any device)",
     .takes = "up to 4.35 times HuggingFace in the paper", .of = "Llama2-7B, Llama2-13B and OPT-6.7B"},
    {.id = "flash-fig17", .title = "decode attention with windows of half the keys, 16 sequences", .needs = "a model, for its heads", .takes = "a minute or two", .of = "NVIDIA GPUs, MoA's windows",
     .says = "1.98 times FlashDecoding on average; the point is that.", .x = "keys of a sequence", .y = "speedup", .log_x = true, POINTS(points17), .option = "peer", .ops = true, .run = fig17},
    {.id = "flash-fig18", .title = "flat products of 1 to 16 tokens over another library (--peer)", .needs = "a device", .takes = "a minute or two",
     .of = "eight products on an A100 and an RTX 3090",
     .says = "1.07 times cuBLAS on average on the A100, 1.17 (up to 1.52) on the RTX 3090.", .x = "tokens (M)", .y = "rate / that of the other", .log_x = true, .option = "peer", .ops = true, .run = fig18},
    {.id = "flash-table2", .title = "throughput by batch with and without flat products", .needs = "a model", .takes = "about 0.6 million tokens", .runs = 1, .of = "Qwen1.5-7B on an A100 80 GB",
     .says = "flat products gain up to 1.11 times, at small batches; memory lets twice the batch fit, which gains 1.11 times.", .x = "sequences at once", .y = "generated tokens/s", .log_x = true, .log_y = true,
     POINTS(points_table2), .run = wf_paper_without_flat},
    {.id = "flash-tokens", .title = "prompts with the same greedy tokens as without the asynchronous softmax", .needs = "a model and a text (-f)", .takes = "0.6 million tokens", .of = "a Llama model that it does not name",
     .says = "91.55 % of the prompts have the tokens of the official Llama implementation; 91.36 % with HuggingFace, 92.31 % with vLLM.", .x = "first tokens of the answer",
     .y = "prompts with the same, %", .log_x = true, POINTS(points_tokens), .reads_text = true, .run = tokens},
    {.id = "flash-fig19", .title = "KV cache in 80 GB, apart from activations and sharing their memory", .needs = "a model", .takes = "no time", .of = "Llama3-8B on an A100 80 GB",
     .says = "the longest context grows from 320k to 502k (Llama3-8B) and from 110k to 128k tokens (Qwen1.5-7B).", .x = "tokens of the largest step",
     .y = "thousand tokens of KV cache", .log_x = true, .log_y = true, POINTS(points19), .run = fig19},
};
const wf_figures wf_figures_flash = {rows, WF_LEN(rows)};
