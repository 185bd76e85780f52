/* ranges_find: the ranges of a model that is opened: of a file, kept, or measured now. See ranges.h. */
#include "kept/ranges.h"

#include "base/file.h"
#include "exec/workspace.h"
#include "select/select.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Several kinds of text, since ranges are of all that a model may read. Other words are another calibration. */
static const char text[] =
    "The ferry left the harbour at six in the morning, before the fog had lifted. Most of the passengers slept on the "
    "benches below; two students stood at the rail "
    "and counted the buoys aloud. \"Nine,\" said one of them, \"and there should be ten.\" The captain, who had sailed "
    "this route for twenty-three years, heard it and slowed the engine. Nobody complained.\n\n"
    "## How to store grain\n\n"
    "1. Dry it until it holds less than 14 % of water.\n2. Keep it cool: between 5 and 15 degrees.\n3. Look for "
    "insects every week; throw away what smells of mould.\n\n"
    "Q: Why does bread go stale faster in a refrigerator than on a table?\nA: Because the starch crystallises sooner "
    "at about 4 \u00b0C than at 20 \u00b0C. Freezing stops it.\n\n"
    "```python\ndef mean(values):\n    total = 0.0\n    for v in values:\n        total += v\n    return total / "
    "len(values) if values else None\n```\n\n"
    "| city | people | area |\n|---|---|---|\n| Bergen | 291,940 | 465.3 |\n| Porto | 231,800 | 41.4 |\n\n"
    "{\"id\": 7041, \"name\": \"lamp\", \"price\": 19.95, \"tags\": [\"home\", \"light\"], \"sold\": false}\n\n"
    "Die Br\u00fccke ist seit gestern gesperrt. Le train de nuit arrive \u00e0 huit heures. El mercado abre los "
    "s\u00e1bados.\n\n"
    "In 1854 a physician marked each case of cholera on a map of the district, and most of the marks lay around a "
    "single pump. The theory of the time blamed bad air; "
    "the map suggested water. When the handle of the pump was taken off, fewer people fell ill, although the epidemic "
    "may already have been past its peak. If f(x) = 3x^2 - 2x + 1, then f'(x) = 6x - 2, which is zero at x = 1/3.";

/* With 128 tokens the same layers have ranges as with 256, and somewhat more rows leave them; with 64 layers get one
 * in which more rows leave than may (docs/tuning.md). */
enum { TOKENS = 256, FEW_TOKENS = 128, LEAST_TOKENS = 64 /* of a vocabulary that hardly knows text */ };
#define USUAL_SECONDS 1.0  /* above, fewer tokens will do */
#define MOST_SECONDS  10.0 /* at a model's first start */
/* Multiply-adds per second of the host's part, logits counted (one core of an AMD EPYC, November 2026: 1.4 to 1.6). */
#define HOST_RATE 1.5e9

/* Of the host, which multiplies one of `every` queries with all its keys. */
static double host_seconds(const wf_hparams *hp, size_t n_ids, uint32_t every)
{
    return (double)hp->n_layer * hp->n_head * hp->head_dim * (double)n_ids * (double)n_ids / 2 / every / HOST_RATE;
}

/* Neighbours differ little. In a large model more heads and layers make up for queries that are left out. */
static uint32_t queries_apart(const wf_hparams *hp, size_t n_ids)
{
    uint32_t every = 4;
    while (every < 16 && host_seconds(hp, n_ids, every) > USUAL_SECONDS / 2) every *= 2;
    return every;
}

/* ---- would it be used? --------------------------------------------------------------------------------------- */

static bool picks_async(wf_dev *dev, const wf_graph *g, const wf_node *n, uint32_t rows, uint32_t keys, bool decodes)
{
    wf_call c = wf_node_call(dev, g, n, rows);
    c.p.phi_lo = WF_PHI_A, c.p.phi_hi = WF_PHI_B;
    c.p.max_q = decodes ? 1 : rows;
    c.p.max_kv = WF_MAX(keys, c.p.max_q);
    c.in[WF_ATTENTION_INDPTR].rows = (decodes ? rows : 1) + 1;
    c.out[WF_ATTENTION_RECOMPUTED] = (wf_view){.buf = (wf_buf *)dev, .rows = 1, .cols = 1, .stride = 1,
                                               .dtype = WF_I32};
    int v = dev->selector->pick(dev, &c);
    return v >= 0 && wf_variant_at(dev, WF_OP_ATTENTION, v)->flags & WF_ASYNC_SOFTMAX;
}

/* For each length of context at which binding asks again (wf_context_class). */
static bool rows_would_use(wf_dev *dev, const wf_graph *g, const wf_node *n, uint32_t rows, uint32_t context)
{
    uint64_t most = 512;
    bool last;
    do {
        last = most >= context;
        uint32_t keys = last ? context : (uint32_t)most;
        if (n->rows != WF_ROWS_PREFILL && picks_async(dev, g, n, rows, keys, true)) return true;
        if (n->rows != WF_ROWS_DECODE && picks_async(dev, g, n, rows, keys, false)) return true;
        most *= 4;
    } while (!last);
    return false;
}

/* A layer whose attention has the same parameters as the last one that was looked at gives the same answer. */
static bool would_use(wf_dev *dev, const wf_graph *g, uint32_t max_rows, uint32_t context)
{
    const wf_node *last[WF_ROWS_WHOLE + 1] = {0};
    for (const wf_node *n = g->nodes; n < g->nodes + g->n_nodes; n++) {
        if (n->op != WF_OP_ATTENTION || (last[n->rows] && !memcmp(&last[n->rows]->p, &n->p, sizeof n->p))) continue;
        for (uint32_t rows = 1; rows <= max_rows; rows = wf_next_probe(rows, max_rows))
            if (rows_would_use(dev, g, n, rows, context)) return true;
        last[n->rows] = n;
    }
    return false;
}

/* A plan names every op, and one of a model with ranges also that which reads how many rows were computed again. */
static bool is_for_ranges(const char *plan)
{
    enum { MOST = 64 << 20 };
    char *lines = NULL;
    size_t n = 0;
    bool is = !wf_need_regular(plan) && !wf_read_file(plan, MOST, &lines, &n) && strstr(lines, "download_counts");
    free(lines);
    return is;
}

/* Why there is nothing to measure; NULL: there is. */
static const char *reason_against(const struct weft_model *m, const struct weft_engine_params *p, wf_dev *dev,
                                  const wf_graph *g, uint32_t rows)
{
    if (p->deterministic) return "a deterministic engine takes it from a file only";
    if (!wf_gguf_is_file(m->file) || m->file->random) return "a model that is no file is not measured";
    if (p->plan && !is_for_ranges(p->plan)) return "the plan is of a model without ranges";
    if (dev->timing_only) return "this device computes nothing";
    return would_use(dev, g, rows, p->context) ? NULL : "no kernel that would run here uses it";
}

/* ---- what is kept -------------------------------------------------------------------------------------------- */

static void print_hex(FILE *f, const void *bytes, size_t n)
{
    for (const uint8_t *b = bytes; b < (const uint8_t *)bytes + n; b++) fprintf(f, "%02x", *b);
    fputc('\n', f);
}

/* Parameters of an op are 32 bits each, so that they have no padding. */
static void print_model(const wf_gguf *file, const wf_graph *g, FILE *f)
{
    enum { SAMPLE = 64 };
    for (const wf_node *n = g->nodes; n < g->nodes + g->n_nodes; n++) {
        fprintf(f, "%d %d ", n->layer, n->op);
        print_hex(f, &n->p, sizeof n->p);
    }
    for (const wf_gguf_tensor *t = file->tensors; t < file->tensors + file->n_tensors; t++) {
        fprintf(f, "%.*s %u %llu ", (int)t->name.len, t->name.data, t->ggml_type, (unsigned long long)t->bytes);
        print_hex(f, t->data ? t->data + t->bytes / 2 : NULL, t->data
                  ? WF_MIN(t->bytes - t->bytes / 2, (uint64_t)SAMPLE) : 0);
    }
}

/* What the ranges depend on, apart from the device. */
static char *describe(const struct weft_model *m, const struct weft_engine_params *p, const wf_graph *g,
                      const wf_ranges *a)
{
    char *all = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&all, &len);
    if (!f) return NULL;
    print_model(m->file, g, f);
    print_hex(f, a->ids, a->n_ids * sizeof *a->ids);
    fprintf(f, "every %u context %u residual %d\n", queries_apart(&m->hp, a->n_ids),
            (uint32_t)WF_MIN((size_t)p->context, a->n_ids), p->f16_residual);
    enum { MOST = 16 << 20 };
    char *windows = NULL;
    size_t n = 0;
    bool ok = !p->attention_windows || !wf_read_file(p->attention_windows, MOST, &windows, &n);
    if (ok) print_hex(f, windows, n);
    free(windows);
    if (!fclose(f) && ok) return all;
    free(all);
    return NULL;
}

static void find_place(const struct weft_model *m, const struct weft_engine_params *p, const wf_dev *dev,
                       const wf_graph *g, wf_ranges *a)
{
    char folder[480];
    if (p->no_kernel_cache || !*wf_build_id() || wf_cache_dir(folder, sizeof folder)) return;
    snprintf(a->dir, sizeof a->dir, "%s/calibrations", folder);
    char *description = describe(m, p, g, a);
    const struct weft_device_info *i = &dev->info;
    wf_cache_key of_model = description ? wf_cache_key_of("%s", description) : (wf_cache_key){0};
    if (of_model.text)
        a->key = wf_cache_key_of("calibration\n%s\n%s\n%s\n%s\n%s\ntier %d\n%s", i->platform, i->name, i->driver,
                                 i->version, i->features, dev->params.tier, of_model.name);
    free(of_model.text);
    free(description);
}

/* An entry: the build that measured it, and the ranges of all layers. */
static bool take_kept(const wf_ranges *a, uint32_t n_layers, wf_phi *out)
{
    size_t size = 0, id = strlen(wf_build_id());
    uint8_t *entry = a->key.text ? wf_cache_get(a->dir, &a->key, &size) : NULL;
    bool ok = entry && size == id + n_layers * sizeof *out && !memcmp(entry, wf_build_id(), id);
    if (ok) memcpy(out, entry + id, n_layers * sizeof *out);
    free(entry);
    return ok;
}

static void keep_ranges(const wf_ranges *a, uint32_t n_layers, const wf_phi *ranges)
{
    size_t id = strlen(wf_build_id()), size = id + n_layers * sizeof *ranges;
    uint8_t *entry = a->key.text ? wf_calloc(size, 1) : NULL;
    if (!entry) return;
    memcpy(entry, wf_build_id(), id);
    memcpy(entry + id, ranges, n_layers * sizeof *ranges);
    wf_cache_put(a->dir, &a->key, entry, size);
    free(entry);
}

/* ---- finding ------------------------------------------------------------------------------------------------- */

static weft_status find_kept(const struct weft_model *m, const struct weft_engine_params *p, wf_dev *dev, wf_graph *g,
                             wf_ranges *a)
{
    weft_status s = weft_tokenize(m, text, sizeof text - 1, WEFT_TEXT_DEFAULT, &a->ids, &a->n_ids);
    a->n_ids = s == WEFT_OK ? WF_MIN(a->n_ids, (size_t)TOKENS) : 0;
    if (s != WEFT_ERR_NOMEM && a->n_ids < LEAST_TOKENS) { /* vocabularies of no text, such as music */
        wf_log(
            WEFT_LOG_INFO,
            "calibration: none, the softmax is synchronous: the vocabulary has only %zu tokens for the built-in text",
            a->n_ids);
        return WEFT_OK;
    }
    wf_phi *ranges = s == WEFT_OK ? wf_calloc(m->hp.n_layer, sizeof *ranges) : NULL;
    if (!ranges) { /* they make a model faster, and are no reason not to open it */
        wf_log(WEFT_LOG_WARN, "calibration: none, the softmax is synchronous: %s", wf_error());
        return WEFT_OK;
    }
    find_place(m, p, dev, g, a);
    a->missing = !take_kept(a, m->hp.n_layer, ranges);
    a->stand_ins = a->missing && (p->plan || dev->selector->forced(dev, WF_OP_ATTENTION) >= 0);
    /* Rows that leave a range are computed again, so that any will do to run with. */
    for (wf_node *n = g->nodes; a->stand_ins && n < g->nodes + g->n_nodes; n++)
        if (n->op == WF_OP_ATTENTION) n->p.phi_lo = WF_PHI_A, n->p.phi_hi = WF_PHI_B;
    if (!a->missing) {
        wf_log(WEFT_LOG_INFO, "calibration: as measured at an earlier start");
        wf_ranges_set(ranges, g);
    }
    free(ranges);
    return WEFT_OK;
}

weft_status wf_ranges_find(const struct weft_model *m, const struct weft_engine_params *p, wf_dev *dev, wf_graph *g,
                           uint32_t step_tokens, wf_ranges *out)
{
    bool found;
    *out = (wf_ranges){0};
    WF_TRY(wf_calibration_use(m, p->calibration, g, &found));
    if (found) return WEFT_OK;
    const char *why = reason_against(m, p, dev, g, step_tokens);
    if (!why) return find_kept(m, p, dev, g, out);
    wf_log(WEFT_LOG_INFO, "calibration: none, the softmax is synchronous: %s", why);
    return WEFT_OK;
}

void wf_ranges_free(wf_ranges *a)
{
    free(a->key.text);
    free(a->ids);
    *a = (wf_ranges){0};
}

/* ---- measuring ----------------------------------------------------------------------------------------------- */

/* Of the device, for all steps of the text one after another, and of the host. */
static double expected_seconds(const wf_ranges_runner *run, size_t n_ids)
{
    const wf_hparams *hp = &run->model->hp;
    wf_ceilings top;
    wf_select_expected_ceilings(run->dev, &top);
    uint32_t tokens = (uint32_t)WF_MIN(WF_MIN(n_ids, (size_t)run->context), (size_t)run->step_tokens);
    wf_explain x = {.tokens = tokens, .context = tokens, .byte_rate = top.read};
    for (size_t i = 0; i < WF_N_ARITH; i++) x.flops_rate = WF_MAX(x.flops_rate, top.ops[i]);
    double device = wf_exec_step_seconds(run->exec, &x) * (double)((n_ids + tokens - 1) / tokens); /* 0: unknown */
    return device > 0 ? device + host_seconds(hp, n_ids, queries_apart(hp, n_ids)) : INFINITY;
}

weft_status wf_ranges_measure_missing(const wf_ranges_runner *run, const struct weft_engine_params *p,
                                      const wf_ranges *r, wf_phi *out, bool *ran)
{
    uint64_t began = wf_now_ns();
    size_t n = expected_seconds(run, r->n_ids) <= USUAL_SECONDS ? r->n_ids : WF_MIN(r->n_ids, (size_t)FEW_TOKENS);
    double seconds = expected_seconds(run, n);
    *ran = seconds <= MOST_SECONDS;
    if (!*ran) {
        wf_log(WEFT_LOG_INFO,
               "calibration: none, the softmax is synchronous: measuring it takes an estimated %.1f s, and more than "
               "%.0f s are left to weft calibrate",
               seconds, MOST_SECONDS);
        return WEFT_OK;
    }
    struct weft_calibration *c = NULL;
    const struct weft_calibrate_params q = {.on_progress = p->on_progress, .stop = p->stop, .user = p->user};
    WF_TRY(wf_ranges_measure(run, r->ids, n, queries_apart(&run->model->hp, n), &q, &c));
    for (uint32_t i = 0; i < c->n_layers; i++) out[i] = (wf_phi){c->layers[i].phi, c->layers[i].a, c->layers[i].b};
    weft_calibration_free(c);
    keep_ranges(r, run->model->hp.n_layer, out);
    wf_log(WEFT_LOG_INFO, "calibration: measured on %zu tokens in %.2f s", n, (double)(wf_now_ns() - began) / 1e9);
    return WEFT_OK;
}
