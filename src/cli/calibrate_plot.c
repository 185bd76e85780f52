/* calibrate_plot: the distribution of attention logits (FlashDecoding++Next, figure 5) as a picture, and below it the range that was chosen for
 * each layer's asynchronous softmax, and where the largest logits of its rows lie. */
#include "base/file.h"
#include "cli/calibrate.h"
#include "cli/chart.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct shares {
    wf_chart_point points[WF_LOGIT_LINES + 1];
    size_t n;
} shares;

/* Each line of the histogram, over its middle. */
static void fill_shares(shares *s, const wf_logit_lines *h, const double *lines, double n)
{
    for (size_t i = 0; i <= WF_LOGIT_LINES; i++)
        if (lines[i]) s->points[s->n++] = (wf_chart_point){.x = h->low + h->step * ((double)i + 0.5), .y = 100 * lines[i] / n};
}

static void fill_range(wf_chart_range *r, uint32_t layer, const struct weft_calibration_layer *l)
{
    *r = (wf_chart_range){.at = l->phi, .from = l->rows.min, .to = l->rows.max};
    snprintf(r->name, sizeof r->name, "layer %u", layer);
    snprintf(r->remark, sizeof r->remark, "too wide: synchronous");
    if (!l->fits) return;
    r->low = l->phi + l->a, r->high = l->phi + l->b;
    snprintf(r->remark, sizeof r->remark, "phi %.2f, a %.2f, b %.2f", l->phi, l->a, l->b);
}

static void draw(const wf_chart_range *ranges, size_t n, const wf_logit_lines *h, const char *label, FILE *f)
{
    char title[160], y_title[64];
    shares all = {.n = 0}, rows = {.n = 0};
    fill_shares(&all, h, h->all, h->n_all);
    fill_shares(&rows, h, h->rows, h->n_rows);
    snprintf(title, sizeof title, "Attention logits of %s, and the ranges of the asynchronous softmax", label);
    snprintf(y_title, sizeof y_title, "share in steps of %g, %%", h->step);
    const wf_chart_series series[] = {{"every x", all.points, all.n, false}, {"the largest x of a row", rows.points, rows.n, false}};
    wf_chart_draw(f, &(wf_chart){.title = title, .x_title = "attention logit x = q.k * scale", .y_title = y_title, .log_y = true, .series = series,
                                 .n_series = WF_LEN(series), .ranges = ranges, .n_ranges = n, .bar_name = "phi + a to phi + b", .tick_name = "phi"});
}

weft_status wf_calibrate_plot(const struct weft_calibration *c, const wf_logit_lines *h, const char *label, const char *path)
{
    wf_output o;
    wf_chart_range *ranges = wf_calloc(c->n_layers, sizeof *ranges);
    weft_status s = ranges ? wf_output_open(path, &o) : WEFT_ERR_NOMEM;
    for (uint32_t i = 0; s == WEFT_OK && i < c->n_layers; i++) fill_range(&ranges[i], i, &c->layers[i]);
    if (s == WEFT_OK) draw(ranges, c->n_layers, h, label, o.f);
    free(ranges);
    return s == WEFT_OK ? wf_output_end(&o, true) : s;
}
