/* bench ops: time, rate and fraction of the device's ceiling for single ops. */
#include "cli/bench.h"
#include "cli/rows.h"

#include <string.h>

struct ops {
    wf_measuring view;
    wf_rows rows;
    wf_peers peers;
    weft_status failed;
};

static void print_ceilings(const struct weft_op_row *r)
{
    const struct weft_ceilings *c = r->ceilings;
    printf("%s (%s, driver %s). Ceilings measured now: reading %.4g GB/s", r->device->name, r->device->id,
           *r->device->driver ? r->device->driver : "none", c->read / 1e9);
    if (c->f32 > 0) printf(", F32 %.4g TFLOP/s", c->f32 / 1e12);
    if (c->f16 > 0) printf(", F16 matrix %.4g TFLOP/s", c->f16 / 1e12);
    if (c->q8 > 0) printf(", int8 %.4g TOP/s", c->q8 / 1e12);
    printf("\n\n");
}

static void print_op(struct ops *b, const struct weft_op_row *r, const wf_peer *peer)
{
    bool known = r->ceiling_pct >= 0;
    char ceilings[200], rate[32], pct[16] = "", bar[21] = "", other[64] = "";
    wf_ceilings_json(r->ceilings, ceilings, sizeof ceilings);
    snprintf(rate, sizeof rate, "%.4g %s", r->rate, r->unit);
    if (known) snprintf(pct, sizeof pct, "%.1f %%", r->ceiling_pct);
    if (known) memset(bar, '#', (size_t)WF_MIN(r->ceiling_pct / 5 + 0.5, 20.0));
    if (peer) snprintf(other, sizeof other, "%.2f x %.40s", r->rate / peer->rate, peer->peer);
    const wf_cell cells[] = {
        WF_BUILD_CELLS(r->device),
        WF_TEXT_SHOWN("op", "op", -17, r->op),
        WF_TEXT_SHOWN("dtype", "dtype", -5, r->dtype),
        WF_TEXT_SHOWN("shape", "shape", -23, r->shape),
        WF_TEXT_SHOWN("variant", "variant", -16, r->variant),
        {"picked", .number = r->picked, .kind = WF_TRUTH},
        WF_NUMBER_SHOWN("median_us", "time us", 10, 1, r->median_us),
        WF_NUMBER_CELL("rate", r->rate),
        WF_TEXT_CELL("unit", r->unit),
        WF_NUMBER_CELL("ceiling_pct", known ? r->ceiling_pct : NAN),
        WF_TEXT_CELL("peer", peer ? peer->peer : NULL),
        WF_NUMBER_CELL("peer_rate", peer ? peer->rate : NAN),
        WF_NUMBER_CELL("ratio", peer ? r->rate / peer->rate : NAN),
        {"ceilings", .text = ceilings, .kind = WF_RAW},
        WF_TEXT_SHOWN(NULL, "rate", 15, rate),
        WF_TEXT_SHOWN(NULL, "ceiling", 7, pct),
        WF_TEXT_SHOWN(NULL, "", -20, bar),
        WF_TEXT_SHOWN(NULL, "peer", -15, other),
    };
    if (!b->rows.n && wf_rows_for_people(&b->rows)) print_ceilings(r);
    wf_rows_add(&b->rows, cells, WF_LEN(cells));
}

/* Rows of results name the share of the device: they are not comparable with others of the shape. */
static weft_status append_op(const struct ops *b, const wf_result *r)
{
    char shape[96];
    wf_result with_share = *r;
    if (b->view.o->work_groups) {
        snprintf(shape, sizeof shape, "%s,groups=%u", r->shape, b->view.o->work_groups);
        with_share.shape = shape;
    }
    return wf_results_append(b->view.o->results, &with_share, &b->peers);
}

static void on_row(void *user, const struct weft_op_row *r)
{
    struct ops *b = user;
    wf_progress_hide(&b->view.bar);
    if (!r->variant) {
        wf_note(b->view.o, "skipped %s %s %s: %s", r->op, r->dtype, r->shape, r->message);
        return;
    }
    wf_result result = {r->device,    r->op,   r->dtype,       r->shape, r->variant,
                        r->median_us, r->rate, r->ceiling_pct, r->unit};
    size_t at = 0;
    const wf_peer *peer = wf_peer_of(&b->peers, &result, &at);
    do print_op(b, r, peer);
    while (peer && (peer = wf_peer_of(&b->peers, &result, &at)));
    if (!b->view.o->results || b->failed) return;
    b->failed = append_op(b, &result);
    if (b->failed) wf_say_error(b->failed);
}

static int measure_ops(struct ops *b)
{
    const wf_opts *o = b->view.o;
    struct weft_op_params p = wf_op_params(o, o->dtypes, o->shapes.v, o->shapes.n);
    p.ops = o->ops;
    p.variant = o->variant;
    p.repeat = o->repeat;
    p.rotate = o->rotate;
    p.async = o->async;
    p.work_groups = o->work_groups;
    p.on_row = on_row;
    p.on_progress = wf_on_measuring;
    p.user = b;
    weft_status s = weft_bench_ops(&p);
    wf_progress_end(&b->view.bar);
    wf_rows_end(&b->rows);
    if (s) return wf_say_error(s);
    if (b->failed) return WF_EXIT_RUNTIME;
    return b->rows.n ? 0 : (fprintf(stderr, "weft: error: no op could be measured\n"), WF_EXIT_RUNTIME);
}

static int cmd_bench_ops(const wf_opts *o)
{
    struct ops b = {.view.o = o, .rows.format = o->output};
    weft_status s = o->results ? wf_results_check(o->results) : WEFT_OK;
    if (s) return wf_say_error(s);
    s = o->peer ? wf_peers_read(o->peer, &b.peers) : WEFT_OK;
    int rc = s ? wf_say_error(s) : measure_ops(&b);
    wf_peers_free(&b.peers);
    return rc;
}

static const wf_opt rows[] = {
    {0, "op", "OP,...",
     "gemm, decode_attention, prefill_attention (default: those of the shapes, or all); kv_copy: pages of KV from and "
     "to host memory, and both at once",
     WF_OPT_TEXT, AT(ops), .words = "gemm decode_attention prefill_attention kv_copy"},
    {0, "shape", "SHAPE",
     "M=8,N=6144,K=4096: a GEMM of M tokens with N x K weights (without M: 1 to 2048); or B=64,L=4096: attention of B "
     "sequences with L keys each (also H=32,KV=8,D=128: heads, KV heads, head size; S=1024: a window of the last "
     "1024 keys); repeatable (default: those of Llama-3-8B)",
     WF_OPT_WORDS, AT(shapes)},
    {0, "type", "TYPE,...", "weight formats, such as F16,Q4_0 (default F16)", WF_OPT_TEXT, AT(dtypes),
     .words = wf_weight_types},
    {'r', "repetitions", "N", "samples of at least 50 ms, whose median is reported (default 5)", WF_OPT_U32, AT(repeat),
     1, 64},
    {'o', "output", "md|json|csv", "format of the table (default md)", WF_OPT_CHOICE, AT(output)},
};
static const WF_GROUP(group, "Ops", rows);
static const wf_opt_group *const groups[] = {
    &group, &wf_group_threads, &wf_group_results, &wf_group_device, &wf_group_kernels, &wf_group_general, NULL};

const wf_command wf_cmd_bench_ops = {
    .name = "bench ops",
    .usage = "[--op OP,...] [--shape SHAPE]... [options]",
    .summary = "Measures single ops. Prints the kernel variant, time, rate, and the fraction of the device's "
               "ceiling, which is measured first. Rates are GB/s of minimal memory traffic for decode attention "
               "and for gemm with fewer than 128 rows, otherwise TFLOP/s.",
    .groups = groups,
    .run = cmd_bench_ops,
};
