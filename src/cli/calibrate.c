/* calibrate: measures the ranges of a model's attention logits on a text. */
#include "cli/cli.h"
#include "cli/rows.h"

#include "base/file.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- table ----------------------------------------------------------------------------------- */

static void print_table(const struct weft_calibration *c)
{
    const double all[] = {0.0001, 0.5, 0.9999}, rows[] = {0.001, 0.5, 0.999};
    printf("x: attention logits, q.k * scale\n%-46s  %s\n", "      every x", "  the largest x of a row");
    printf("%5s %8s %7s %7s %7s %7s  %7s %7s %7s %7s %7s  %7s %7s %7s %7s\n", "layer", "min", "0.01%", "50%", "99.99%",
           "max", "min", "0.1%", "50%", "99.9%", "max", "phi", "a", "b", "out");
    for (uint32_t i = 0; i < c->n_layers; i++) {
        const struct weft_calibration_layer *l = &c->layers[i];
        printf("%5u %8.2f", i, l->all.min);
        for (size_t k = 0; k < WF_LEN(all); k++) printf(" %7.2f", weft_logit_quantile(&l->all, all[k]));
        printf(" %7.2f  %7.2f", l->all.max, l->rows.min);
        for (size_t k = 0; k < WF_LEN(rows); k++) printf(" %7.2f", weft_logit_quantile(&l->rows, rows[k]));
        printf(" %7.2f  %7.2f %7.2f %7.2f %6.2f%%%s\n", l->rows.max, l->phi, l->a, l->b, 100 * l->outside,
               l->fits ? "" : "  too wide: synchronous");
    }
}

/* ---- for programs: the ranges of the layers, and the distribution of all in the finest steps --------------------- */

static int print_json(const struct weft_calibration *c, const char *label)
{
    wf_text o = {0};
    wf_json_print(&o, "{'build_commit': %s, 'model_type': %s, 'tokens': %llu, 'context': %u, 'step': %g, 'layers': [",
                  wf_commit(), label, (unsigned long long)c->n_tokens, c->context, (double)WEFT_LOGIT_STEP);
    for (uint32_t i = 0; i < c->n_layers; i++) {
        const struct weft_calibration_layer *l = &c->layers[i];
        wf_json_comma(&o);
        wf_json_print(&o,
                      "\n  {'layer': %u, 'fits': %hhd, 'phi': %.9g, 'a': %.9g, 'b': %.9g, 'outside': %.9g, 'min': "
                      "%.9g, 'max': %.9g, 'row_min': %.9g, 'row_max': %.9g}",
                      i, l->fits, (double)l->phi, (double)l->a, (double)l->b, (double)l->outside, (double)l->all.min,
                      (double)l->all.max, (double)l->rows.min, (double)l->rows.max);
    }
    wf_json_print(&o, "],\n'bins': [");
    for (size_t k = 0; k < WEFT_LOGIT_BINS; k++) {
        uint64_t n = 0, n_rows = 0;
        for (uint32_t i = 0; i < c->n_layers; i++) n += c->layers[i].all.bins[k], n_rows += c->layers[i].rows.bins[k];
        if (!n && !n_rows) continue;
        wf_json_comma(&o);
        wf_json_print(&o, "\n  {'from': %.9g, 'n': %llu, 'n_rows': %llu}",
                      WEFT_LOGIT_LOW + WEFT_LOGIT_STEP * (double)k, (unsigned long long)n, (unsigned long long)n_rows);
    }
    wf_json_print(&o, "]}");
    return wf_print_json(&o);
}

/* ---- command --------------------------------------------------------------------------------- */

/* The output path: -o, or MODEL.calibration. "": none, for the built-in model. */
static int find_path(const wf_opts *o, char *path, size_t cap)
{
    const char *base = o->write_to ? o->write_to : o->model;
    *path = 0;
    if (!base) return 0;
    int n = snprintf(path, cap, "%s%s", base, o->write_to ? "" : WEFT_CALIBRATION_SUFFIX);
    weft_status s = (size_t)n < cap ? wf_output_check(path) : wf_fail(WEFT_ERR_ARG, "the path is too long: %s", base);
    if (s) return wf_say_error(s);
    bool reads = o->file && strcmp(o->file, "-");
    return reads && wf_same_file(path, o->file)
               ? wf_usage(o->command, "%s is the text of -f: name another file to write to", path)
               : 0;
}

static int save_ranges(const wf_opts *o, const struct weft_model *m, const struct weft_calibration *c, const char *path)
{
    if (!*path) {
        wf_note(o, "the built-in model has no path: use -o FILE to write the ranges");
        return 0;
    }
    weft_status s = weft_calibration_save(c, m, path);
    if (s) return wf_say_error(s);
    wf_note(o, "wrote %s, from %llu tokens in chunks of at most %u", path, (unsigned long long)c->n_tokens, c->context);
    return 0;
}

static int collect_ranges(const wf_opts *o, const struct weft_model *m, struct weft_engine *e, const char *text,
                          size_t len, const char *path)
{
    struct weft_calibration *c = NULL;
    wf_progress bar = {0};
    char label[96];
    struct weft_calibrate_params p = {
        .text = text, .len = len, .on_progress = wf_on_progress, .user = o->quiet ? NULL : &bar};
    weft_status s = weft_calibrate(e, &p, &c);
    wf_progress_end(&bar);
    if (s) return wf_say_error(s);
    wf_model_label(m, label, sizeof label);
    int rc = 0;
    if (o->json) rc = print_json(c, label);
    else print_table(c);
    if (!rc) rc = save_ranges(o, m, c, path);
    weft_calibration_free(c);
    return rc;
}

static int cmd_calibrate(const wf_opts *o)
{
    struct weft_model *m = NULL;
    struct weft_engine *e = NULL;
    struct weft_engine_params ep = o->engine;
    char *text = NULL, path[4096];
    size_t len = 0;
    if (!o->prompt && !o->file) return wf_usage(o->command, "no text: use -f FILE");
    int rc = wf_open_model(o, false, &m);
    if (!rc) rc = wf_read_text(o, &text, &len);
    if (!rc) rc = find_path(o, path, sizeof path); /* before minutes of measuring, not after */
    if (!rc) wf_only_calibrated(m, &ep), rc = wf_open_engine(o, m, ep, &e);
    if (!rc) rc = collect_ranges(o, m, e, text, len, path);
    weft_engine_close(e);
    weft_model_close(m);
    free(text);
    return rc;
}

static const wf_opt rows[] = {
    {'o', "output", "FILE", "output file (default: MODEL.calibration)", WF_OPT_TEXT, AT(write_to)},
    {0, "json", NULL, "print the ranges and the whole distribution of the logits as JSON (bench/plot.py draws them)",
     WF_OPT_FLAG, AT(json)},
};
static const WF_GROUP(group, "Output", rows);
static const wf_opt_group *const groups[] = {
    &wf_group_model,   &wf_group_text,    &group, &wf_group_context, &wf_group_device, &wf_group_kernels,
    &wf_group_testing, &wf_group_general, NULL,
};

const wf_command wf_cmd_calibrate = {
    .name = "calibrate",
    .usage = "[-m FILE] (-p TEXT | -f FILE) [options]",
    .summary = "Measures the ranges of attention logits on a text, for the asynchronous softmax of "
               "FlashDecoding++. With them attention kernels subtract one constant per layer instead of each row's "
               "maximum. Rows outside the range are recomputed, so the results stay correct. A layer "
               "whose range is too wide keeps the usual softmax. About ten thousand tokens of typical text are enough, "
               "in chunks of the expected context length (-c).",
    .more = "Written to MODEL" WEFT_CALIBRATION_SUFFIX ", which is read whenever the model is "
            "opened:\n"
            "  phi   is subtracted from every attention logit of the layer\n"
            "  a, b  bounds of a row's largest logit minus phi\n"
            "  out   rows that kernels with half-precision exponentials recompute\n",
    .groups = groups,
    .run = cmd_calibrate,
};
