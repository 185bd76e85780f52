/* bench ops: time, rate and fraction of the device's ceiling for single ops. */
#include "cli/bench.h"

#include <string.h>

#define AT(field) offsetof(wf_opts, field)

struct ops_format;
struct ops {
    const wf_opts *o;
    const struct ops_format *format;
    wf_peers peers;
    wf_progress bar;
    size_t n; /* rows printed */
    weft_status failed;
};
struct ops_format {
    const char *name;
    void (*head)(const struct weft_op_row *r);
    void (*row)(const struct weft_op_row *r, const wf_peer *peer, bool first);
    void (*foot)(void);
};

static double ratio(const struct weft_op_row *r, const wf_peer *peer)
{
    return r->rate / peer->rate;
}

/* ---- Markdown ----------------------------------------------------------------------------- */

static void md_ceiling(const char *name, double v, double unit, const char *text)
{
    if (v > 0) printf(", %s %.4g %s", name, v / unit, text);
}

static void md_head(const struct weft_op_row *r)
{
    const struct weft_ceilings *c = r->ceilings;
    printf("%s (%s, driver %s). Ceilings measured now: reading %.4g GB/s", r->device->name,
           r->device->id, *r->device->driver ? r->device->driver : "none", c->read / 1e9);
    md_ceiling("F32", c->f32, 1e12, "TFLOP/s");
    md_ceiling("F16 matrix", c->f16, 1e12, "TFLOP/s");
    md_ceiling("int8", c->q8, 1e12, "TOP/s");
    printf("\n\n| op                | dtype | shape                   | variant          |    time "
           "us |            rate | "
           "ceiling |                      | peer            |\n"
           "| ----------------- | ----- | ----------------------- | ---------------- | ---------: "
           "| --------------: | "
           "------: | -------------------- | --------------- |\n");
}

static void md_row(const struct weft_op_row *r, const wf_peer *peer, bool first)
{
    char rate[32], pct[16] = "", bar[21] = "", other[64] = "";
    (void)first;
    snprintf(rate, sizeof rate, "%.4g %s", r->rate, r->unit);
    if (r->ceiling_pct >= 0) {
        size_t full = (size_t)WF_MIN(r->ceiling_pct / 5 + 0.5, 20.0);
        snprintf(pct, sizeof pct, "%.1f %%", r->ceiling_pct);
        memset(bar, '#', full);
        bar[full] = 0;
    }
    if (peer) snprintf(other, sizeof other, "%.2f x %.40s", ratio(r, peer), peer->peer);
    printf("| %-17s | %-5s | %-23s | %-16s | %10.1f | %15s | %7s | %-20s | %-15s |\n", r->op,
           r->dtype, r->shape, r->variant, r->median_us, rate, pct, bar, other);
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void json_head(const struct weft_op_row *r)
{
    (void)r;
    printf("[");
}

static void json_row(const struct weft_op_row *r, const wf_peer *peer, bool first)
{
    const struct weft_ceilings *c = r->ceilings;
    printf("%s\n  {\n", first ? "" : ",");
    wf_json_text("build_commit", wf_commit());
    wf_json_text("device", r->device->id);
    wf_json_text("device_name", r->device->name);
    wf_json_text("driver", r->device->driver);
    wf_json_text("op", r->op);
    wf_json_text("dtype", r->dtype);
    wf_json_text("shape", r->shape);
    wf_json_text("variant", r->variant);
    wf_json_text("unit", r->unit);
    if (peer) wf_json_text("peer", peer->peer);
    if (peer)
        printf("    \"peer_rate\": %.6g,\n    \"ratio\": %.4f,\n", peer->rate, ratio(r, peer));
    if (r->ceiling_pct >= 0) printf("    \"ceiling_pct\": %.2f,\n", r->ceiling_pct);
    printf("    \"picked\": %s,\n    \"median_us\": %.3f,\n    \"rate\": %.6g,\n",
           r->picked ? "true" : "false", r->median_us, r->rate);
    printf("    \"ceilings\": {\"read_gb_s\": %.1f, \"f32_tflop_s\": %.4g, \"f16_tflop_s\": %.4g, "
           "\"int8_top_s\": %.4g}\n  }",
           c->read / 1e9, c->f32 / 1e12, c->f16 / 1e12, c->q8 / 1e12);
}

static void json_foot(void)
{
    printf("\n]\n");
}

/* ---- CSV ---------------------------------------------------------------------------------- */

static void csv_head(const struct weft_op_row *r)
{
    (void)r;
    printf("build_commit,device,device_name,driver,op,dtype,shape,variant,picked,median_us,rate,"
           "unit,ceiling_pct,peer,peer_rate,ratio\n");
}

static void csv_row(const struct weft_op_row *r, const wf_peer *peer, bool first)
{
    (void)first;
    const char *const texts[] = {wf_commit(), r->device->id, r->device->name, r->device->driver,
                                 r->op,       r->dtype,      r->shape,        r->variant};
    for (size_t i = 0; i < WF_LEN(texts); i++) wf_csv_text(stdout, texts[i]);
    printf("%d,%.3f,%.6g,%s,", r->picked, r->median_us, r->rate, r->unit);
    if (r->ceiling_pct >= 0) printf("%.2f", r->ceiling_pct);
    putchar(',');
    wf_csv_text(stdout, peer ? peer->peer : "");
    if (peer)
        printf("%.6g,%.4f\n", peer->rate, ratio(r, peer));
    else
        printf(",\n");
}

static const struct ops_format formats[] = {
    {"md", md_head, md_row, NULL},
    {"json", json_head, json_row, json_foot},
    {"csv", csv_head, csv_row, NULL},
};

/* ---- running ------------------------------------------------------------------------------ */

static void print_row(struct ops *b, const struct weft_op_row *r, const wf_result *result)
{
    size_t at = 0;
    const wf_peer *peer = wf_peer_of(&b->peers, result, &at);
    if (!b->n) b->format->head(r);
    do b->format->row(r, peer, b->n++ == 0);
    while (peer && (peer = wf_peer_of(&b->peers, result, &at)));
    fflush(stdout);
}

/* Rows of results name the share of the device: they are not comparable with others of the shape. */
static weft_status keep(const struct ops *b, const wf_result *r)
{
    char shape[96];
    wf_result with_share = *r;
    if (b->o->work_groups) {
        snprintf(shape, sizeof shape, "%s,groups=%u", r->shape, b->o->work_groups);
        with_share.shape = shape;
    }
    return wf_results_append(b->o->results, &with_share, &b->peers);
}

static void on_row(void *user, const struct weft_op_row *r)
{
    struct ops *b = user;
    wf_progress_hide(&b->bar);
    if (!r->variant) {
        wf_note(b->o, "skipped %s %s %s: %s", r->op, r->dtype, r->shape, r->message);
        return;
    }
    wf_result result = {r->device,    r->op,   r->dtype,       r->shape, r->variant,
                        r->median_us, r->rate, r->ceiling_pct, r->unit};
    print_row(b, r, &result);
    if (!b->o->results || b->failed) return;
    b->failed = keep(b, &result);
    if (b->failed) wf_say_error(b->failed);
}

static void on_progress(void *user, const char *what, double fraction)
{
    struct ops *b = user;
    if (!b->o->quiet) wf_progress_update(&b->bar, what, fraction);
}

static int measure_ops(struct ops *b)
{
    const wf_opts *o = b->o;
    struct weft_op_params p = wf_op_params(o, o->dtypes, o->shapes.v, o->shapes.n);
    p.ops = o->ops;
    p.variant = o->all_variants ? "all" : o->variant;
    p.repeat = o->repeat;
    p.rotate = o->rotate;
    p.async = o->async;
    p.work_groups = o->work_groups;
    p.on_row = on_row;
    p.on_progress = on_progress;
    p.user = b;
    weft_status s = weft_bench_ops(&p);
    wf_progress_end(&b->bar);
    if (b->n && b->format->foot) b->format->foot();
    if (s) return wf_say_error(s);
    if (b->failed) return WF_EXIT_RUNTIME;
    return b->n ? 0
                : (fprintf(stderr, "weft: error: no op could be measured\n"), WF_EXIT_RUNTIME);
}

static int cmd_bench_ops(const wf_opts *o)
{
    struct ops b = {.o = o, .format = &formats[0]};
    for (size_t i = 0; o->output && i < WF_LEN(formats); i++)
        if (!strcmp(formats[i].name, o->output)) b.format = &formats[i];
    if (o->variant && o->all_variants)
        return wf_usage(o->command, "--variant and --variants conflict: use one of them");
    if (wf_opts_typed(o, "f16-residual")) return wf_usage(o->command, "--f16-residual is of models, not of single ops: leave it out");
    weft_status s = o->results ? wf_results_check(o->results) : WEFT_OK;
    if (s) return wf_say_error(s);
    s = o->peer ? wf_peers_read(o->peer, &b.peers) : WEFT_OK;
    int rc = s ? wf_say_error(s) : measure_ops(&b);
    wf_peers_free(&b.peers);
    return rc;
}

static const wf_opt rows[] = {
    {0, "op", "OP,...",
     "gemm, decode_attention, prefill_attention (default: those of the shapes, or all)",
     WF_OPT_TEXT, AT(ops), .words = "gemm decode_attention prefill_attention"},
    {0, "shape", "SHAPE",
     "M=8,N=6144,K=4096: a GEMM of M tokens with N x K weights (without M: 1 to 2048); or B=64,L=4096: attention of B sequences "
     "with L keys each (also H=32,KV=8,D=128: heads, KV heads, head size; S=1024: a window of the last 1024 keys); repeatable "
     "(default: those of Llama-3-8B)",
     WF_OPT_WORDS, AT(shapes)},
    {0, "dtype", "TYPE,...",
     "weight formats, such as F16,Q4_0 (default F16)", WF_OPT_TEXT,
     AT(dtypes), .words = wf_weight_types},
    {0, "variant", "NAME", "measure this kernel variant instead of the selected one",
     WF_OPT_TEXT, AT(variant)},
    {0, "variants", NULL, "measure all kernel variants except the references", WF_OPT_FLAG, AT(all_variants)},
    {0, "async", NULL, "allow the asynchronous softmax in attention, as for a calibrated model",
     WF_OPT_FLAG, AT(async)},
    {0, "work-groups", "N", "work-groups, on the CPU threads, that a launch uses at most: an op with a share of the device (default: all)", WF_OPT_U32,
     AT(work_groups), 1, UINT32_MAX},
    {'r', "repetitions", "N", "samples of at least 50 ms, whose median is reported (default 5)",
     WF_OPT_U32, AT(repeat), 1, 64},
    {0, "rotate", "SIZE",
     "total size of the copies of the operands that launches cycle through, so that none is cached, e.g. 4G (default: on GPUs 4G, else more than twice the last-level cache)", WF_OPT_SIZE,
     AT(rotate), 1, 0x1p63},
    {'o', "output", "md|json|csv", "format of the table (default md)", WF_OPT_CHOICE, AT(output)},
};
static const WF_GROUP(group, "Ops", rows);
static const wf_opt testing[] = {
    {0, "force", "OP=VARIANT,...", "use these kernel variants; `weft kernels` lists them", WF_OPT_TEXT, AT(debug.force)},
    {0, "no-kernel-cache", NULL, "do not use the cache of compiled kernels and passed self-tests: compile and test anew", WF_OPT_FLAG,
     AT(engine.no_kernel_cache)},
};
static const WF_GROUP(testing_group, "Testing", testing);
static const wf_opt_group *const groups[] = {&group, &wf_group_threads, &wf_group_results, &wf_group_device, &wf_group_kernels,
                                             &testing_group, &wf_group_general, NULL};

const wf_command wf_cmd_bench_ops = {
    .name = "bench ops",
    .usage = "[--op OP,...] [--shape SHAPE]... [options]",
    .summary = "Measures single ops. Prints the kernel variant, time, rate, and the fraction of the device's "
               "ceiling, which is "
               "measured first. Rates are GB/s of minimal memory traffic for decode attention "
               "and for gemm with fewer than 128 rows, otherwise "
               "TFLOP/s.",
    .groups = groups,
    .run = cmd_bench_ops,
};
