/* timeline: `weft plan --timeline`: when each op of a step runs, and what it uses of the device (NanoFlow, figure 10),
 * as a picture or for Perfetto.
 *
 * A panel is a step, or a layer of it: a row for each queue with its ops as boxes, below them the use of each resource.
 * Panels of predicted and measured times have one scale. Boxes have their times as attributes, for programs.
 */
#include "base/json.h"
#include "base/file.h"
#include "cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 800, LEFT = 100, RIGHT = 52, INNER = WIDTH - LEFT - RIGHT };
enum { HEAD = 84, PANEL_HEAD = 24, ROW = 78, STRIP = 42, GAP = 8, AXIS = 52, FOOT = 44 };
enum { FEW_LAYERS = 2, MOST_PANELS = 4 };

#define TEXT "#222"
#define FAINT "stroke=\"#e4e4e4\""
#define EDGE "stroke=\"#999\""

typedef struct look {
    enum weft_class class;
    const char *name, *box, *line; /* of the resource; colours */
} look;
/* Colours that people who see few of them can tell apart; boxes are light, for their names are dark. */
static const look looks[] = {
    {WEFT_CLASS_COMPUTE, "compute", "#a6cee8", "#0072b2"},
    {WEFT_CLASS_MEMORY, "memory", "#f7d98f", "#b87700"},
    {WEFT_CLASS_COPY, "copy", "#e8c2d9", "#a8457f"},
    {WEFT_CLASS_NETWORK, "network", "#9fdcc6", "#00785a"},
};

typedef struct panel {
    const struct weft_timeline *of;
    const struct weft_timeline_step *step;
    const char *kind; /* "predicted", "measured" */
    int32_t layer;    /* -1: the whole step */
    double from, until, us; /* what is drawn, and how much time the width of the picture is */
} panel;

typedef struct sheet {
    FILE *f;
    const struct weft_timeline *t; /* the first */
    panel panels[MOST_PANELS];
    size_t n_panels;
} sheet;

/* ---- SVG ---------------------------------------------------------------------------------------------------- */

static void svg_words(FILE *f, const char *words)
{
    for (; *words; words++) {
        if (*words == '<') fputs("&lt;", f);
        else if (*words == '>') fputs("&gt;", f);
        else if (*words == '&') fputs("&amp;", f);
        else fputc((unsigned char)*words < 32 ? ' ' : *words, f);
    }
}

static void svg_text(FILE *f, double x, double y, const char *anchor, const char *colour, const char *words)
{
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">", x, y, anchor, colour);
    svg_words(f, words);
    fputs("</text>\n", f);
}

static void svg_line(FILE *f, double x0, double y0, double x1, double y1, const char *style)
{
    fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x0, y0, x1, y1, style);
}

static void svg_box(FILE *f, double x, double y, double width, double height, const char *style, const char *title)
{
    fprintf(f, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" %s", x, y, width, height, style);
    if (!title) {
        fputs("/>\n", f);
        return;
    }
    fputs("><title>", f);
    svg_words(f, title);
    fputs("</title></rect>\n", f);
}

/* 1, 2 or 5 times a power of ten that is not less. */
static double round_up(double v)
{
    double ten = pow(10, floor(log10(v))), m = v / ten;
    return ten * (m <= 1 + 1e-9 ? 1 : m <= 2 + 1e-9 ? 2 : m <= 5 + 1e-9 ? 5 : 10);
}

/* ---- panels -------------------------------------------------------------------------------- */

static void add_panels(sheet *sh, const struct weft_timeline *t, int32_t layer)
{
    if (t->predicted.n_ops)
        sh->panels[sh->n_panels++] = (panel){.of = t, .step = &t->predicted, .kind = "predicted", .layer = layer};
    if (t->measured.n_ops)
        sh->panels[sh->n_panels++] = (panel){.of = t, .step = &t->measured, .kind = "measured", .layer = layer};
}

/* From the first of these on they have the scale of the longest. */
static void share_scale(sheet *sh, size_t first)
{
    double most = 0;
    for (size_t i = first; i < sh->n_panels; i++) {
        /* The ops of a layer from the first to the last; without one, the whole. */
        panel *p = &sh->panels[i];
        double begin = INFINITY, end = 0;
        const struct weft_timeline_step *s = p->step;
        for (const struct weft_timeline_op *op = s->ops; op < s->ops + s->n_ops; op++)
            if (op->layer == p->layer && p->layer >= 0)
                begin = WF_MIN(begin, op->begin_us), end = WF_MAX(end, op->end_us);
        p->from = end > begin ? begin : 0;
        p->until = end > begin ? end : s->us;
        most = WF_MAX(most, sh->panels[i].until - sh->panels[i].from);
    }
    for (size_t i = first; i < sh->n_panels; i++) sh->panels[i].us = most > 0 ? most : 1;
}

static double place_of(const panel *p, double us)
{
    return LEFT + INNER * WF_MIN(WF_MAX((us - p->from) / p->us, 0), 1);
}

static double panel_height(const panel *p)
{
    return PANEL_HEAD + p->of->n_queues * (double)(ROW + GAP) + (double)WF_LEN(looks) * (STRIP + GAP) + AXIS;
}

/* ---- boxes --------------------------------------------------------------------------------- */

static const look *look_of(enum weft_class c)
{
    for (size_t i = 0; i < WF_LEN(looks); i++)
        if (looks[i].class == c) return &looks[i];
    return &looks[0];
}

static void draw_op(FILE *f, const panel *p, const struct weft_timeline_op *op, double y)
{
    char style[320], title[256];
    const look *l = look_of(op->op_class);
    double x = place_of(p, op->begin_us),
           width = place_of(p, p->layer < 0 ? op->end_us : WF_MIN(op->end_us, p->until)) - x;
    char layer[24] = "";
    if (op->layer >= 0) snprintf(layer, sizeof layer, ", layer %d", op->layer);
    snprintf(title, sizeof title, "%s%s: %.1f us, from %.1f to %.1f; %s; rows %u to %u; queue %u", op->name, layer,
             op->end_us - op->begin_us, op->begin_us, op->end_us, weft_class_name(op->op_class), op->begin, op->end,
             op->queue);
    snprintf(style, sizeof style,
             "class=\"op\" data-op=\"%s\" data-layer=\"%d\" data-queue=\"%u\" data-begin=\"%.6f\" data-end=\"%.6f\" "
             "fill=\"%s\" stroke=\"%s\" stroke-width=\"%s\"",
             op->name, op->layer, op->queue, op->begin_us, op->end_us, l->box, width < 1 ? l->line : "#fff",
             width < 1   ? "0.2"
             : width < 4 ? "0.3"
                         : "1");
    svg_box(f, x, y, WF_MAX(width, 0.3), ROW, style, title);
    /* Along the box, or up in it; where it is too long, its beginning. */
    enum { CHAR = 6, UP = (ROW - 4) / CHAR };
    char text[64];
    int len = (int)strlen(op->name), along = WF_MAX((int)(width - 4), 0) / CHAR;
    bool up = along < len && along < UP;
    int fits = up ? UP : along;
    if (width < 11 && up) return;
    snprintf(text, sizeof text, len > fits ? "%.*s\xe2\x80\xa6" : "%.*s", len > fits ? fits - 1 : fits, op->name);
    if (up) {
        fprintf(f, "<g transform=\"translate(%.1f,%.1f) rotate(-90)\">\n", x + width / 2 + 4, y + ROW / 2.0);
        svg_text(f, 0, 0, "middle", TEXT, text);
        fputs("</g>\n", f);
    } else svg_text(f, x + width / 2, y + ROW / 2.0 + 4, "middle", TEXT, text);
}

static bool is_in(const panel *p, const struct weft_timeline_op *op)
{
    return p->layer < 0 || (op->begin_us < p->until && op->end_us > p->from);
}

/* ---- use ------------------------------------------------------------------------------------ */

static double mean_use(const struct weft_timeline_step *s, double from, double until, enum weft_class c)
{
    double sum = 0, us = 0;
    for (const struct weft_timeline_use *u = s->uses; u < s->uses + s->n_uses; u++) {
        double part = WF_MIN(u->end_us, until) - WF_MAX(u->begin_us, from);
        if (part > 0) sum += part * u->use[c], us += part;
    }
    return us > 0 ? sum / us : 0;
}

static void draw_strip(const sheet *sh, const panel *p, const look *l, double y)
{
    char mean[24];
    svg_box(sh->f, LEFT, y, INNER, STRIP, "class=\"strip\" fill=\"#fbfbfb\"", NULL);
    svg_line(sh->f, LEFT, y, LEFT + INNER, y, FAINT);
    svg_line(sh->f, LEFT, y + STRIP / 2.0, LEFT + INNER, y + STRIP / 2.0, FAINT);
    /* Filled down to zero, so that the area is the mean. */
    double bottom = y + STRIP, at = bottom, last = LEFT;
    fprintf(sh->f,
            "<polyline class=\"use\" data-class=\"%s\" fill=\"%s\" stroke=\"%s\" stroke-width=\"1.2\" "
            "stroke-linejoin=\"round\" points=\"%d,%.2f",
            l->name, l->box, l->line, LEFT, bottom);
    for (const struct weft_timeline_use *u = p->step->uses; u < p->step->uses + p->step->n_uses; u++) {
        if (u->end_us <= p->from || u->begin_us >= p->until) continue;
        double up = bottom - STRIP * u->use[l->class];
        if (fabs(up - at) > 0.005)
            fprintf(sh->f, " %.2f,%.2f %.2f,%.2f", place_of(p, u->begin_us), at, place_of(p, u->begin_us), up);
        at = up, last = place_of(p, WF_MIN(u->end_us, p->until));
    }
    fprintf(sh->f, " %.2f,%.2f %.2f,%.2f\"/>\n", last, at, last, bottom);
    svg_line(sh->f, LEFT, y + STRIP, LEFT + INNER, y + STRIP, EDGE);
    svg_text(sh->f, LEFT - 34, y + STRIP / 2.0 + 4, "end", l->line, l->name);
    fputs("<g font-size=\"9\">\n", sh->f);
    svg_text(sh->f, LEFT - 5, y + 6, "end", "#555", "100 %");
    svg_text(sh->f, LEFT - 5, y + STRIP, "end", "#555", "0");
    fputs("</g>\n", sh->f);
    snprintf(mean, sizeof mean, "%.0f %%", 100 * mean_use(p->step, p->from, p->until, l->class));
    svg_text(sh->f, LEFT + INNER + 8, y + STRIP / 2.0 + 4, "start", TEXT, mean);
}

static void draw_axis(const sheet *sh, const panel *p, double top, double y)
{
    bool ms = p->us >= 2000;
    double step = round_up(p->us / 9), unit = ms ? 1000 : 1;
    for (double us = WF_MAX(ceil(p->from / step - 1e-9), 0) * step; us <= (p->from + p->us) * (1 + 1e-9); us += step) {
        char label[24];
        double x = place_of(p, us);
        snprintf(label, sizeof label, "%.6g", us / unit);
        svg_line(sh->f, x, top, x, y + 4, "stroke=\"#000\" stroke-opacity=\"0.12\"");
        svg_text(sh->f, x, y + 16, "middle", TEXT, label);
    }
    svg_text(sh->f, LEFT + INNER + 8, y + 16, "start", TEXT, ms ? "ms" : "\xc2\xb5s");
}

static void draw_panel(const sheet *sh, const panel *p, double y)
{
    fprintf(sh->f, "<g class=\"%s %s\">\n", p->layer < 0 ? "step" : "layer", p->kind);
    char words[240], from[160] = "the device's clock, the median of five steps";
    const char *slash = strrchr(p->of->profile, '/'), *name = slash ? slash + 1 : p->of->profile;
    if (p->step == &p->of->predicted)
        snprintf(from, sizeof from, p->of->estimated ? "estimates from peak rates" : "the profile %.100s", name);
    if (p->layer >= 0)
        snprintf(words, sizeof words, "%s, layer %d (of 0 to %u)", p->kind, p->layer, p->of->n_layers - 1);
    else snprintf(words, sizeof words, "%s: %.3f ms, by %s", p->kind, p->step->us / 1e3, from);
    fputs("<g font-weight=\"bold\">\n", sh->f);
    svg_text(sh->f, 16, y + 12, "start", TEXT, words);
    fputs("</g>\n", sh->f);
    y += PANEL_HEAD;
    double top = y;
    for (uint32_t q = 0; q < p->of->n_queues; q++, y += ROW + GAP) {
        char name[24];
        snprintf(name, sizeof name, "queue %u", q);
        svg_text(sh->f, LEFT - 8, y + ROW / 2.0 + 4, "end", TEXT, name);
        svg_box(sh->f, LEFT, y, INNER, ROW, "fill=\"#f6f6f6\"", NULL);
        fputs("<g font-size=\"10\">\n", sh->f);
        for (const struct weft_timeline_op *op = p->step->ops; op < p->step->ops + p->step->n_ops; op++)
            if (op->queue == q && is_in(p, op)) draw_op(sh->f, p, op, y);
        fputs("</g>\n", sh->f);
    }
    svg_text(sh->f, LEFT + INNER + 8, y - GAP / 2.0, "start", "#555", "mean");
    for (size_t i = 0; i < WF_LEN(looks); i++, y += STRIP + GAP) draw_strip(sh, p, &looks[i], y);
    draw_axis(sh, p, top, y - GAP);
    fputs("</g>\n", sh->f);
}

static void draw_peak(const sheet *sh, const char *of, const struct weft_timeline_step *s, double y)
{
    char words[240];
    snprintf(words, sizeof words, "100 %%%s: %.4g GFLOP/s and %.4g GB/s, %s; copy and network: one is under way", of,
             s->compute / 1e9, s->read / 1e9,
             s->peak_of_ops ? "the highest of the ops that the profile has" : "as measured on this device");
    svg_text(sh->f, 16, y, "start", "#555", words);
}

/* What 100 % are, which is not the same where the profile is of another device. */
static void draw_foot(const sheet *sh, double y)
{
    const struct weft_timeline_step *p = &sh->t->predicted, *m = &sh->t->measured;
    bool differ = p->n_ops && m->n_ops && p->peak_of_ops != m->peak_of_ops;
    if (p->n_ops) draw_peak(sh, differ ? " of what is predicted" : "", p, y);
    if (m->n_ops && (differ || !p->n_ops)) draw_peak(sh, differ ? " of what is measured" : "", m, differ ? y + 16 : y);
}

static void draw_sheet(sheet *sh, const char *title)
{
    char batch[160];
    const struct weft_timeline *t = sh->t;
    double y = HEAD;
    for (size_t i = 0; i < sh->n_panels; i++) y += panel_height(&sh->panels[i]);
    fprintf(sh->f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n",
            WIDTH, (int)y + FOOT);
    svg_box(sh->f, 0, 0, WIDTH, (int)y + FOOT, "fill=\"#fff\"", NULL);
    fputs("<g font-size=\"15\">\n", sh->f);
    svg_text(sh->f, 16, 26, "start", "#000", title);
    fputs("</g>\n", sh->f);
    snprintf(batch, sizeof batch, "a step of %u tokens, %u of them decodes, contexts of %u", t->tokens, t->decodes,
             t->context);
    svg_text(sh->f, 16, 45, "start", "#555", batch);
    double x = 84;
    svg_text(sh->f, 16, 66, "start", TEXT, "bound by");
    for (size_t i = 0; i < WF_LEN(looks); i++, x += 100) {
        char style[64];
        snprintf(style, sizeof style, "fill=\"%s\" stroke=\"%s\"", looks[i].box, looks[i].line);
        svg_box(sh->f, x, 56, 14, 12, style, NULL);
        svg_text(sh->f, x + 20, 66, "start", TEXT, looks[i].name);
    }
    svg_text(sh->f, WIDTH - 16, 66, "end", "#555", "curves: 0 to 100 % of the device's peak");
    draw_foot(sh, y + 8);
    y = HEAD;
    for (size_t i = 0; i < sh->n_panels; y += panel_height(&sh->panels[i++])) draw_panel(sh, &sh->panels[i], y);
    fputs("</svg>\n", sh->f);
}

/* ---- for Perfetto -------------------------------------------------------------------------------------------- */

/* Times are in microseconds from the step's begin; a process is what was predicted or measured, a thread a queue.
 * Perfetto passes over `step`, which says in numbers what the step was. */
static void trace_step(FILE *f, const struct weft_timeline_step *s, int pid, const char *kind)
{
    if (!s->n_ops) return;
    fprintf(f, ",\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"%s\"}}", pid, kind);
    for (const struct weft_timeline_op *op = s->ops; op < s->ops + s->n_ops; op++)
        fprintf(f,
                ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%u,\"name\":\"%s\",\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"layer\":%"
                "d,\"class\":\"%s\",\"begin\":%u,\"end\":%u}}",
                pid, op->queue, op->name, op->begin_us, op->end_us - op->begin_us, op->layer,
                weft_class_name(op->op_class), op->begin, op->end);
    for (const struct weft_timeline_use *u = s->uses; u < s->uses + s->n_uses; u++)
        for (size_t i = 0; i < WF_LEN(looks); i++)
            fprintf(f, ",\n{\"ph\":\"C\",\"pid\":%d,\"name\":\"%s\",\"ts\":%.3f,\"args\":{\"percent\":%.2f}}", pid,
                    looks[i].name, u->begin_us, 100 * u->use[looks[i].class]);
}

static void trace_summary(FILE *f, const struct weft_timeline_step *s, const char *kind)
{
    if (!s->n_ops) return;
    fprintf(f, ",\"%s\":{\"us\":%.3f", kind, s->us);
    for (size_t i = 0; i < WF_LEN(looks); i++)
        fprintf(f, ",\"%s_pct\":%.3f", looks[i].name, 100 * mean_use(s, 0, s->us, looks[i].class));
    fputc('}', f);
}

static void write_trace(FILE *f, const struct weft_timeline *t, const char *label)
{
    wf_text head = {0};
    wf_json_print(&head,
                  "{'step':{'build_commit':%s,'device_name':%s,'model_type':%s,'profile':%s,'tokens':%u,"
                  "'decodes':%u,'context':%u,'layers':%u,'queues':%u",
                  wf_commit(), t->device, label, t->profile, t->tokens, t->decodes, t->context, t->n_layers,
                  t->n_queues);
    if (head.data) fputs(head.data, f);
    free(head.data);
    trace_summary(f, &t->predicted, "predicted");
    trace_summary(f, &t->measured, "measured");
    fputs("},\n\"traceEvents\":[{\"ph\":\"M\",\"pid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"weft\"}}", f);
    trace_step(f, &t->predicted, 1, "predicted");
    trace_step(f, &t->measured, 2, "measured");
    fputs("]}\n", f);
}

/* The same in a line. */
static void print_step(const struct weft_timeline_step *s, const char *kind)
{
    if (!s->n_ops) return;
    printf("%s %.3f ms, mean use", kind, s->us / 1e3);
    for (size_t i = 0; i < WF_LEN(looks); i++)
        printf("%s %s %.0f %%", i ? "," : "", looks[i].name, 100 * mean_use(s, 0, s->us, looks[i].class));
    putchar('\n');
}

/* ---- the command ---------------------------------------------------------------------------- */

int wf_timeline_check(const wf_opts *o)
{
    const char *path = o->engine.timeline;
    if (!wf_ends_in(path, ".svg") && !wf_ends_in(path, ".json"))
        return wf_usage(o->command,
                        "--timeline %s: a step is drawn to a file that ends in .svg, or written for Perfetto to one "
                        "that ends in .json",
                        path);
    weft_status s = wf_output_check(path);
    return s ? wf_say_error(s) : 0;
}

static weft_status write_timeline(const wf_opts *o, const struct weft_model *m, const struct weft_timeline *t)
{
    char title[320], label[96];
    wf_output out;
    wf_model_label(m, label, sizeof label);
    snprintf(title, sizeof title, "%s on %s", label, t->device);
    WF_TRY(wf_output_open(o->engine.timeline, &out));
    if (wf_ends_in(o->engine.timeline, ".svg")) {
        FILE *f = out.f;
        sheet sh = {.f = f, .t = t};
        add_panels(&sh, t, -1);
        share_scale(&sh, 0);
        size_t first = sh.n_panels;
        if (t->n_layers > FEW_LAYERS) add_panels(&sh, t, (int32_t)t->n_layers / 2), share_scale(&sh, first);
        draw_sheet(&sh, title);
    } else write_trace(out.f, t, label);
    return wf_output_end(&out, true);
}

int wf_plan_timeline(const wf_opts *o, const struct weft_model *m, struct weft_engine *e)
{
    wf_progress bar = {0};
    struct weft_timeline *t = NULL;
    struct weft_timeline_params p = {.tokens = o->explain.tokens,
                                     .decodes = o->explain.decodes,
                                     .context = o->explain.context,
                                     .profile = o->print_profile,
                                     .estimate = true,
                                     .measure = o->costs.measure,
                                     .on_progress = wf_on_progress,
                                     .user = o->quiet ? NULL : &bar};
    weft_status s = weft_timeline(e, &p, &t);
    wf_progress_end(&bar);
    if (!s) s = write_timeline(o, m, t);
    if (!s) print_step(&t->predicted, "predicted"), print_step(&t->measured, "measured");
    if (!s && !t->predicted.n_ops)
        wf_note(o,
                "nothing is predicted, for how long these ops take was never measured here: run `weft tune --overlap`");
    weft_timeline_free(t);
    if (s) return wf_say_error(s);
    wf_note(o, "wrote %s", o->engine.timeline);
    return 0;
}
