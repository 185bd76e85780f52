/* paper: `weft bench paper`: finds a figure in the tables, runs it, and keeps what it measured until it is printed and written. */
#include "cli/paper.h"

#include "base/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(wf_opts, field)

static const wf_figures *const tables[] = {&wf_figures_sarathi, &wf_figures_nanoflow, &wf_figures_flash};

/* ---- values ------------------------------------------------------------------------------- */

static wf_paper_row *find_row(const wf_paper *p, const char *series, double x)
{
    for (size_t i = 0; i < p->n_rows; i++)
        if (!strcmp(p->rows[i].series, series) && fabs(p->rows[i].x - x) < 1e-9) return &p->rows[i];
    return NULL;
}

const wf_paper_row *wf_paper_find(const wf_paper *p, const char *series, double x)
{
    return find_row(p, series, x);
}

int wf_paper_add(wf_paper *p, const char *series, double x, double paper_x, double value)
{
    wf_paper_row *r = find_row(p, series, x);
    if (!r) {
        if (!wf_grow(&p->rows, p->n_rows, &p->cap_rows, sizeof *p->rows)) return wf_say_error(WEFT_ERR_NOMEM);
        r = &p->rows[p->n_rows++];
        *r = (wf_paper_row){.x = x, .paper_x = paper_x};
        wf_copy(r->series, sizeof r->series, series);
    }
    if (r->n < WF_PAPER_REPEAT) r->v[r->n++] = value;
    return 0;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double wf_paper_median(const wf_paper_row *r)
{
    double v[WF_PAPER_REPEAT];
    memcpy(v, r->v, sizeof v);
    qsort(v, r->n, sizeof *v, compare);
    return r->n % 2 ? v[r->n / 2] : (v[r->n / 2 - 1] + v[r->n / 2]) / 2;
}

void wf_paper_divide(wf_paper *p, const wf_paper_row *by)
{
    double one = by ? wf_paper_median(by) : 1;
    for (size_t i = 0; i < p->n_rows; i++)
        for (size_t k = 0; k < p->rows[i].n; k++) p->rows[i].v[k] /= one;
}

int wf_paper_note(wf_paper *p, const char *fmt, ...)
{
    char text[sizeof *p->notes];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (size_t i = 0; i < p->n_notes; i++)
        if (!strcmp(p->notes[i], text)) return 0;
    if (!wf_grow(&p->notes, p->n_notes, &p->cap_notes, sizeof *p->notes)) return wf_say_error(WEFT_ERR_NOMEM);
    wf_copy(p->notes[p->n_notes++], sizeof *p->notes, text);
    return 0;
}

/* ---- figures ------------------------------------------------------------------------------ */

static const wf_figure *find_figure(const char *id)
{
    for (size_t t = 0; t < WF_LEN(tables); t++)
        for (size_t i = 0; i < tables[t]->n; i++)
            if (!strcmp(tables[t]->rows[i].id, id)) return &tables[t]->rows[i];
    return NULL;
}

static void list(void)
{
    for (size_t t = 0; t < WF_LEN(tables); t++)
        for (size_t i = 0; i < tables[t]->n; i++) {
            const wf_figure *f = &tables[t]->rows[i];
            printf("%-16s %s\n%-16s needs %s; %s\n", f->id, f->title, "", f->needs, f->takes);
        }
}

static int unknown(const wf_opts *o)
{
    char nearest[160];
    const char *names[64];
    size_t n = 0;
    for (size_t t = 0; t < WF_LEN(tables); t++)
        for (size_t i = 0; i < tables[t]->n && n < WF_LEN(names); i++) names[n++] = tables[t]->rows[i].id;
    wf_nearest(nearest, sizeof nearest, "", o->paper.figure, names, n);
    return wf_usage(o->command, "no figure '%s'%s; --list shows them", o->paper.figure, nearest);
}

/* Those that few figures take, and those that some do not, where they are not for all runs. */
static int check_options(const wf_opts *o, const wf_figure *f)
{
    static const char *const own[] = {"dataset", "profile", "max-num-seqs", "policy", "peer"}, *const of_engines[] = {"ctx-size", "calibration", "deterministic", "f16-residual"};
    const char *useless = NULL;
    for (size_t i = 0; i < WF_LEN(own); i++)
        if (wf_opts_has(o, own[i]) && (!f->option || !strstr(f->option, own[i]))) useless = own[i];
    for (size_t i = 0; i < WF_LEN(of_engines); i++)
        if (f->ops && wf_opts_typed(o, of_engines[i])) useless = of_engines[i];
    return useless ? wf_usage(o->command, "%s has no use for --%s: leave it out", f->id, useless) : 0;
}

static int check(const wf_opts *o, const wf_figure **f)
{
    if (!o->paper.figure) return wf_usage(o->command, "which figure? --list shows them");
    *f = find_figure(o->paper.figure);
    if (!*f) return unknown(o);
    if (!(*f)->run) return wf_say_error(wf_fail(WEFT_ERR_NODEVICE, "%s needs %s", (*f)->id, (*f)->needs));
    if ((o->prompt || o->file) && !(*f)->reads_text) return wf_usage(o->command, "%s makes its prompts itself: leave %s out", (*f)->id, o->prompt ? "-p" : "-f");
    if (o->engine.context && o->engine.context < WF_PAPER_SHORTEST) return wf_usage(o->command, "-c %u is too short: want at least %d, or 0 for the model's context", o->engine.context, WF_PAPER_SHORTEST);
    if (o->shape && o->model) return wf_usage(o->command, "--shape and -m conflict: use one of them");
    if (!o->shape && (o->type || o->layers)) return wf_usage(o->command, "--type and --layers are of a model without a file: add --shape NAME");
    int rc = check_options(o, *f);
    if (rc) return rc;
    weft_status s = o->write_to ? wf_paper_check_files(*f, o->write_to) : WEFT_OK;
    return s ? wf_say_error(s) : 0;
}

int wf_paper_calibrate(wf_paper *p, struct weft_engine *e, const char *text, size_t len, struct weft_calibration **out)
{
    struct weft_calibrate_params q = {.text = text, .len = len, .on_progress = wf_on_progress, .user = p->o->quiet ? NULL : &p->bar, .stop = wf_ask_interrupted};
    weft_status s = weft_calibrate(e, &q, out);
    wf_progress_end(&p->bar);
    return wf_interrupted() ? wf_interrupted_exit() : s ? wf_say_error(s) : 0;
}

static int run(wf_paper *p)
{
    wf_catch_interrupt();
    int rc = p->figure->run(p);
    wf_progress_end(&p->bar);
    if (wf_interrupted()) {
        wf_note(p->o, "stopped: %s", p->o->write_to ? "nothing is written of a figure that is not whole" : "the figure is not whole");
        return wf_interrupted_exit();
    }
    if (!rc && p->n_rows) wf_paper_print(p); /* before it is whole, rates may not yet be what the axis says */
    if (!rc && !p->n_rows) rc = wf_say_error(wf_fail(WEFT_ERR_INTERNAL, "all values were lost in what the runs vary: use a quieter machine, or more runs (-r)"));
    weft_status s = !rc && p->o->write_to ? wf_paper_write(p, p->o->write_to) : WEFT_OK;
    return s ? wf_say_error(s) : rc;
}

static int cmd_bench_paper(const wf_opts *o)
{
    wf_paper p = {.o = o};
    if (o->paper.list && o->paper.figure) return wf_usage(o->command, "--list shows all figures: leave '%s' out", o->paper.figure);
    if (o->paper.list) return list(), 0;
    int rc = check(o, &p.figure);
    if (!rc && !p.figure->many) rc = wf_open_model_or_shape(o, false, &p.m);
    if (!rc) rc = run(&p);
    weft_model_close(p.m);
    for (size_t i = 0; i < p.n_steps; i++) weft_timeline_free(p.steps[i]);
    free(p.rows), free(p.notes);
    return rc;
}

/* ---- options ------------------------------------------------------------------------------ */

static const wf_opt rows[] = {
    {0, "list", NULL, "list the figures with what each shows and needs, and exit", WF_OPT_FLAG, AT(paper.list)},
    {0, "figure", "ID", "the figure; --figure itself can be left out", WF_OPT_TEXT, AT(paper.figure)},
    {'o', "output", "FOLDER", "write ID.csv and ID.svg to this folder, in place of those that are there", WF_OPT_TEXT, AT(write_to)},
    {0, "quick", NULL, "shortest lengths, few points, once each: to see that it works", WF_OPT_FLAG, AT(paper.quick)},
    {'r', "repetitions", "N", "runs of each load, whose median and range are reported (default 3, and 1 where loads are long)", WF_OPT_U32, AT(repeat), 1, WF_PAPER_REPEAT},
    {0, "scale", "X", "lengths as a part of the paper's (default: 1, or what the context allows)", WF_OPT_REAL, AT(paper.scale), 1e-3, 1},
    {0, "shape", "NAME", "a model of this shape without a file, with random weights that the device makes: llama3-8b, llama2-13b, ... (a wrong name lists them)", WF_OPT_TEXT, AT(shape)},
    {0, "type", "TYPE", "storage format of --shape, as of `weft convert` (default F16)", WF_OPT_TEXT, AT(type)},
    {0, "max-num-seqs", "N", "nanoflow-fig7, -fig8 and -fig11: sequences at a time (default 64); the KV cache is then as of `weft serve`", WF_OPT_U32, AT(engine.n_seqs), 1, 65536},
    {0, "policy", "request|orca|sarathi|nanoflow", "nanoflow-fig7: this policy alone (default: all)", WF_OPT_CHOICE, AT(engine.policy)},
    {0, "dataset", "FILE", "nanoflow-table4: lengths of requests as CSV, named splitwise, lmsys or sharegpt; repeatable", WF_OPT_WORDS, AT(load.traces)},
    {0, "profile", "PROFILE", "figures of ops beside each other: their times, as `weft tune --overlap` writes them (default: those that it has kept, or else a short measurement)", WF_OPT_TEXT, AT(print_profile)},
    {0, "layers", "N", "layers of --shape (default: as many as the model has)", WF_OPT_U32, AT(layers), 1, 1000},
    {0, "peer", "FILE", "results of another program to compare single ops with, measured within the last hour: lines op,dtype,shape,peer,rate,unit", WF_OPT_TEXT, AT(peer)},
    {'c', "ctx-size", "CONTEXT", "longest sequence in tokens; 0: the model's context (default)", WF_OPT_U32, AT(engine.context), 0, 1 << 24},
};
static const WF_GROUP(group, "Figures", rows);
static const wf_opt_group *const groups[] = {
    &wf_group_model, &group, &wf_group_text, &wf_group_threads, &wf_group_device, &wf_group_kernels, &wf_group_testing, &wf_group_general, NULL,
};

const wf_command wf_cmd_bench_paper = {
    .name = "bench paper",
    .usage = "ID [-m FILE | --shape NAME] [-o FOLDER] [options]",
    .summary = "Measures a figure of the papers on this device and model. Prints what the paper has beside it and what differs, and with -o "
               "writes a CSV file and a drawing with the paper's points hollow. Lengths are scaled down where the context is shorter than the "
               "paper's, and batches where the memory is smaller. The papers are SARATHI (arXiv 2308.16369), NanoFlow (2408.12757) and "
               "FlashDecoding++Next.",
    .more = "Examples:\n"
            "  weft bench paper --list\n"
            "  weft bench paper sarathi-fig9 -m model.gguf -o figures\n"
            "\nA figure that the device cannot show says why, and the exit code is 4.\n",
    .groups = groups,
    .words = {"figure"},
    .run = cmd_bench_paper,
};
