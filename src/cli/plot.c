/* plot: an SVG of normalised latency against request rate, one line per policy and load. The latency axis is logarithmic, because
 * latency grows without bound once a policy cannot keep up. */
#include "cli/throughput.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { WIDTH = 760, HEIGHT = 480, LEFT = 80, RIGHT = 200, TOP = 50, BOTTOM = 60 };
enum { INNER_W = WIDTH - LEFT - RIGHT, INNER_H = HEIGHT - TOP - BOTTOM };

static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                      "#e69f00", "#56b4e9", "#000000", "#999999"};

typedef struct plot {
    FILE *f;
    double x_max, log_low, log_high; /* y from 10^low to 10^high ms */
} plot;

static double x_of(const plot *p, double rate)
{
    return LEFT + INNER_W * rate / p->x_max;
}

static double y_of(const plot *p, double ms)
{
    double at = (log10(WF_MAX(ms, 1e-6)) - p->log_low) / (p->log_high - p->log_low);
    return TOP + INNER_H * (1 - WF_MIN(WF_MAX(at, 0), 1));
}

static double latency(const wf_throughput_row *r)
{
    return r->stats.metric[WF_NORM].mean;
}

static bool is_shown(const wf_throughput_row *r)
{
    return r->stats.metric[WF_NORM].n && latency(r) > 0;
}

/* The smallest of 1, 2, 5, 10, ... above v. */
static double round_up(double v)
{
    double ten = pow(10, floor(log10(v))), m = v / ten;
    return ten * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
}

/* From the latencies and the limit, out to the next of 1, 2, 5. */
static void find_range(plot *p, const wf_throughput_row *rows, size_t n)
{
    double low = WF_SLO_NORM_MS, high = WF_SLO_NORM_MS, most = 0;
    for (size_t i = 0; i < n; i++) {
        most = WF_MAX(most, rows[i].rate);
        if (!is_shown(&rows[i])) continue;
        low = WF_MIN(low, latency(&rows[i]));
        high = WF_MAX(high, latency(&rows[i]));
    }
    p->x_max = most > 0 ? most * 1.05 : 1;
    p->log_low = floor(log10(low));
    p->log_high = log10(round_up(high * 1.2));
}

/* ---- axes --------------------------------------------------------------------------------- */

static void text(const plot *p, double x, double y, const char *anchor, const char *colour,
                 const char *words)
{
    fprintf(p->f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">", x, y, anchor,
            colour);
    for (; *words; words++) {
        if (*words == '<')
            fputs("&lt;", p->f);
        else if (*words == '&')
            fputs("&amp;", p->f);
        else
            fputc((unsigned char)*words < 32 ? ' ' : *words, p->f);
    }
    fputs("</text>\n", p->f);
}

static void line(const plot *p, double x0, double y0, double x1, double y1, const char *style)
{
    fprintf(p->f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x0, y0, x1, y1,
            style);
}

#define GRID "stroke=\"#ddd\""
#define AXIS "stroke=\"#333\""

static void x_axis(const plot *p)
{
    char label[32];
    double step = round_up(p->x_max / 8), bottom = TOP + INNER_H;
    for (double v = 0; v <= p->x_max; v += step) {
        snprintf(label, sizeof label, "%.4g", v);
        line(p, x_of(p, v), TOP, x_of(p, v), bottom, GRID);
        text(p, x_of(p, v), bottom + 20, "middle", "#333", label);
    }
    line(p, LEFT, bottom, LEFT + INNER_W, bottom, AXIS);
    text(p, LEFT + INNER_W / 2.0, HEIGHT - 15, "middle", "#333", "requests per second");
}

static void y_axis(const plot *p)
{
    static const int steps[] = {1, 2, 5};
    char label[32];
    for (double ten = pow(10, p->log_low); log10(ten) <= p->log_high + 1e-9; ten *= 10)
        for (size_t i = 0; i < WF_LEN(steps); i++) {
            double v = ten * steps[i];
            if (log10(v) > p->log_high + 1e-9) break;
            snprintf(label, sizeof label, "%.4g", v);
            line(p, LEFT, y_of(p, v), LEFT + INNER_W, y_of(p, v), GRID);
            text(p, LEFT - 8, y_of(p, v) + 4, "end", "#333", label);
        }
    line(p, LEFT, TOP, LEFT, TOP + INNER_H, AXIS);
    fprintf(
        p->f,
        "<text transform=\"translate(20,%.1f) rotate(-90)\" text-anchor=\"middle\" fill=\"#333\">"
        "mean normalised latency, ms per token</text>\n",
        TOP + INNER_H / 2.0);
}

static void limit(const plot *p)
{
    char label[32];
    snprintf(label, sizeof label, "%d ms", WF_SLO_NORM_MS);
    double y = y_of(p, WF_SLO_NORM_MS);
    line(p, LEFT, y, LEFT + INNER_W, y, "stroke=\"#c00\" stroke-dasharray=\"6 4\"");
    text(p, LEFT + 6, y - 5, "start", "#c00", label);
}

/* ---- lines -------------------------------------------------------------------------------- */

/* Rows of one policy and load, ordered by rate. */
static void curve(const plot *p, const wf_throughput_row *rows, size_t n, const char *colour)
{
    fprintf(p->f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour);
    for (size_t i = 0; i < n; i++)
        if (is_shown(&rows[i]))
            fprintf(p->f, "%.1f,%.1f ", x_of(p, rows[i].rate), y_of(p, latency(&rows[i])));
    fputs("\"/>\n", p->f);
    for (size_t i = 0; i < n; i++)
        if (is_shown(&rows[i]))
            fprintf(p->f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                    x_of(p, rows[i].rate), y_of(p, latency(&rows[i])), colour);
}

static void legend(const plot *p, size_t at, const wf_throughput_row *r, const char *colour)
{
    char name[160];
    double x = LEFT + INNER_W + 36, y = TOP + 10 + 20.0 * (double)at;
    snprintf(name, sizeof name, "%s, %s", r->policy, r->load);
    fprintf(p->f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"20\" height=\"4\" fill=\"%s\"/>\n", x - 26,
            y - 6, colour);
    text(p, x, y, "start", "#333", name);
}

static void curves(const plot *p, const wf_throughput_row *rows, size_t n)
{
    for (size_t i = 0, k, at = 0; i < n; i = k, at++) {
        const char *colour = colours[at % WF_LEN(colours)];
        for (k = i + 1; k < n; k++)
            if (strcmp(rows[i].policy, rows[k].policy) || strcmp(rows[i].load, rows[k].load)) break;
        curve(p, rows + i, k - i, colour);
        legend(p, at, &rows[i], colour);
    }
}

weft_status wf_throughput_plot(FILE *f, const char *path, const wf_throughput_head *h,
                          const wf_throughput_row *rows, size_t n)
{
    char label[96], title[256];
    plot p = {.f = f};
    find_range(&p, rows, n);
    wf_model_label(h->model, label, sizeof label);
    snprintf(title, sizeof title, "%s on %s, %u sequences, dense batch %u", label, h->device->name,
             h->n_seqs, h->batch);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" "
            "font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT);
    text(&p, LEFT, 28, "start", "#000", title);
    x_axis(&p);
    y_axis(&p);
    curves(&p, rows, n);
    limit(&p);
    fputs("</svg>\n", f);
    return fflush(f) ? wf_fail(WEFT_ERR_IO, "cannot write %s: %s", path, strerror(errno)) : WEFT_OK;
}
