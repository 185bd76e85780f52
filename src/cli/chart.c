/* chart: see chart.h. An axis is logarithmic or linear; a linear one starts at zero, or below where values are negative. */
#include "cli/chart.h"
#include "cli/svg.h"

#include "base/base.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 820, HEIGHT = 480, LEFT = 80, RIGHT = 260, TOP = 50, BOTTOM = 60 };
enum { INNER_W = WIDTH - LEFT - RIGHT, INNER_H = HEIGHT - TOP - BOTTOM };

enum { RANGES_NAMED = 16, RANGE_ROW = 18, RANGE_THIN = 7, RANGES_GAP = 20 }; /* more than RANGES_NAMED have thin rows, and few names */

#define BAR "#b5e0d2"
#define TICK "#00563f"
#define GRID "stroke=\"#ddd\""
#define AXIS "stroke=\"#333\""

static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                      "#e69f00", "#56b4e9", "#000000", "#999999"};

typedef struct axis {
    bool log;
    double low, high; /* values */
    double from, to;  /* their pixels */
} axis;

typedef struct plot {
    FILE *f;
    const wf_chart *c;
    axis x, y;
    size_t n_bars; /* series that are bars */
} plot;

/* ---- axes --------------------------------------------------------------------------------- */

static double place(const axis *a, double v)
{
    double at = a->log ? log10(WF_MAX(v, 1e-12) / a->low) / log10(a->high / a->low) : (v - a->low) / (a->high - a->low);
    return a->from + (a->to - a->from) * WF_MIN(WF_MAX(at, 0), 1);
}

/* Covers another value. */
static void widen(axis *a, double v)
{
    if (!isfinite(v) || (a->log && v <= 0)) return;
    a->low = isnan(a->low) ? v : WF_MIN(a->low, v);
    a->high = isnan(a->high) ? v : WF_MAX(a->high, v);
}

/* Rounds what was covered to ticks. */
static void end_range(axis *a)
{
    if (isnan(a->low)) a->low = a->high = 1;
    if (a->log) {
        a->low = pow(10, floor(log10(a->low)));
        a->high = wf_svg_step(a->high * 1.2);
        return;
    }
    double below = WF_MIN(a->low, 0), above = WF_MAX(a->high, 0), step = wf_svg_step(WF_MAX(above - below, 1e-12) / 8);
    a->low = floor(below / step) * step;
    a->high = above * 1.05 > a->low ? above * 1.05 : a->low + step;
}

/* The tick after v; NaN: the first one. */
static double next_tick(const axis *a, double v)
{
    double step = a->log ? 0 : wf_svg_step((a->high - a->low) / 8);
    if (isnan(v)) return a->low;
    if (a->log && a->high / a->low > 1e5) return v * 10; /* names would meet */
    return a->log ? wf_svg_step(v * 1.001) : v + step;
}

static void tick_name(const axis *a, double v, char *buf, size_t cap)
{
    snprintf(buf, cap, "%.4g", !a->log && fabs(v) < (a->high - a->low) * 1e-9 ? 0 : v);
}

static int range_row(const wf_chart *c)
{
    return c->n_ranges > RANGES_NAMED ? RANGE_THIN : RANGE_ROW;
}

static int ranges_height(const wf_chart *c)
{
    return c->n_ranges ? RANGES_GAP + (int)c->n_ranges * range_row(c) : 0;
}

static void draw_x(const plot *p)
{
    char label[32];
    double bottom = TOP + INNER_H + ranges_height(p->c);
    for (double v = next_tick(&p->x, NAN); !p->c->ticks && v <= p->x.high * (1 + 1e-9); v = next_tick(&p->x, v)) {
        double x = place(&p->x, v);
        tick_name(&p->x, v, label, sizeof label);
        wf_svg_line(p->f, x, TOP, x, bottom, GRID);
        wf_svg_text(p->f, x, bottom + 20, "middle", "#333", label);
    }
    for (size_t i = 0; i < p->c->n_ticks; i++) /* every other one lower, so that names do not meet */
        wf_svg_text(p->f, place(&p->x, (double)i), bottom + 14 + 13.0 * (double)(p->c->n_ticks > 4 && i % 2), "middle", "#333", p->c->ticks[i]);
    wf_svg_line(p->f, LEFT, bottom, LEFT + INNER_W, bottom, AXIS);
    if (p->c->n_ranges) wf_svg_line(p->f, LEFT, TOP + INNER_H, LEFT + INNER_W, TOP + INNER_H, AXIS);
    wf_svg_text(p->f, LEFT + INNER_W / 2.0, HEIGHT + ranges_height(p->c) - 12, "middle", "#333", p->c->x_title);
}

static void draw_y(const plot *p)
{
    char label[32];
    for (double v = next_tick(&p->y, NAN); v <= p->y.high * (1 + 1e-9); v = next_tick(&p->y, v)) {
        double y = place(&p->y, v);
        tick_name(&p->y, v, label, sizeof label);
        wf_svg_line(p->f, LEFT, y, LEFT + INNER_W, y, GRID);
        wf_svg_text(p->f, LEFT - 8, y + 4, "end", "#333", label);
    }
    wf_svg_line(p->f, LEFT, TOP, LEFT, TOP + INNER_H, AXIS);
    wf_svg_text_up(p->f, 20, TOP + INNER_H / 2.0, "#333", p->c->y_title);
}

static void draw_limit(const plot *p)
{
    double y = place(&p->y, p->c->limit);
    if (p->c->limit <= 0) return;
    wf_svg_line(p->f, LEFT, y, LEFT + INNER_W, y, "stroke=\"#c00\" stroke-dasharray=\"6 4\"");
    wf_svg_text(p->f, LEFT + 6, y - 5, "start", "#c00", p->c->limit_name);
}

static void draw_diagonal(const plot *p)
{
    if (!p->c->diagonal) return;
    wf_svg_line(p->f, place(&p->x, 0), place(&p->y, 0), place(&p->x, 1), place(&p->y, 1), "stroke=\"#777\" stroke-dasharray=\"6 4\"");
    wf_svg_text(p->f, place(&p->x, 0.6) + 8, place(&p->y, 0.55), "start", "#555", p->c->diagonal);
}

static void find_ranges(plot *p)
{
    const wf_chart *c = p->c;
    p->x = (axis){c->log_x, NAN, NAN, LEFT, LEFT + INNER_W};
    p->y = (axis){c->log_y, NAN, NAN, TOP + INNER_H, TOP};
    for (size_t i = 0; i < c->n_series; i++)
        for (size_t k = 0; k < c->series[i].n; k++) {
            const wf_chart_point *q = &c->series[i].points[k];
            widen(&p->x, q->x), widen(&p->y, q->y);
            if (q->low < q->high) widen(&p->y, q->low), widen(&p->y, q->high);
        }
    if (c->limit > 0) widen(&p->y, c->limit);
    if (c->diagonal) widen(&p->x, 1), widen(&p->y, 1);
    end_range(&p->x), end_range(&p->y);
    if (c->ticks) p->x.low = -0.5, p->x.high = (double)c->n_ticks - 0.5;
}

/* ---- series ------------------------------------------------------------------------------- */

/* The place of a series among its kind, which its colour follows: hollow ones agree with filled ones. */
static size_t place_of(const wf_chart *c, size_t at)
{
    size_t n = 0;
    for (size_t i = 0; i < at; i++) n += c->series[i].hollow == c->series[at].hollow;
    return n;
}

static bool is_shown(const plot *p, const wf_chart_point *q)
{
    return isfinite(q->y) && (!p->y.log || q->y > 0);
}

static void draw_spread(const plot *p, const wf_chart_point *q, double x, const char *colour)
{
    char style[64];
    snprintf(style, sizeof style, "stroke=\"%s\"", colour);
    if (q->low < q->high) wf_svg_line(p->f, x, place(&p->y, q->low), x, place(&p->y, q->high), style);
}

static void draw_circle(const plot *p, double x, double y, const char *colour, bool hollow)
{
    fprintf(p->f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"%s\" stroke=\"%s\" stroke-width=\"%d\"/>\n", x, y, hollow ? 5 : 3,
            hollow ? "#fff" : colour, colour, hollow ? 2 : 1);
}

static void draw_line(const plot *p, const wf_chart_series *s, const char *colour)
{
    fprintf(p->f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour);
    for (size_t i = 0; i < s->n; i++)
        if (is_shown(p, &s->points[i])) fprintf(p->f, "%.1f,%.1f ", place(&p->x, s->points[i].x), place(&p->y, s->points[i].y));
    fputs("\"/>\n", p->f);
}

/* Bars of one x take four fifths of its room. */
static double bar_width(const plot *p)
{
    return INNER_W / (double)p->c->n_ticks * 0.8 / (double)WF_MAX(p->n_bars, 1u);
}

/* The left side of a bar. */
static double bar_at(const plot *p, double x, size_t at)
{
    return place(&p->x, x) + bar_width(p) * ((double)at - (double)p->n_bars / 2);
}

/* Points stand over the bar of the same place. */
static void draw_points(const plot *p, const wf_chart_series *s, size_t at, const char *colour)
{
    for (size_t i = 0; i < s->n; i++) {
        const wf_chart_point *q = &s->points[i];
        double x = p->c->ticks && at < p->n_bars ? bar_at(p, q->x, at) + bar_width(p) * 0.45 : place(&p->x, q->x);
        if (!is_shown(p, q)) continue;
        draw_spread(p, q, x, colour);
        draw_circle(p, x, place(&p->y, q->y), colour, s->hollow);
    }
}

static void draw_bars(const plot *p, const wf_chart_series *s, size_t at, const char *colour)
{
    char title[160];
    double width = bar_width(p) * 0.9;
    for (size_t i = 0; i < s->n; i++) {
        const wf_chart_point *q = &s->points[i];
        double x = bar_at(p, q->x, at), y = place(&p->y, q->y);
        if (!is_shown(p, q)) continue;
        snprintf(title, sizeof title, "%.100s: %.4g", s->name, q->y);
        wf_svg_rect(p->f, x, y, width, TOP + INNER_H - y, colour, title);
        draw_spread(p, q, x + width / 2, "#333");
    }
}

static void draw_legend(const plot *p, size_t at, const wf_chart_series *s, const char *colour)
{
    double x = LEFT + INNER_W + 40, y = TOP + 10 + 20.0 * (double)at;
    if (s->hollow) draw_circle(p, x - 18, y - 4, colour, true);
    else wf_svg_rect(p->f, x - 28, y - 6, 20, 4, colour, NULL);
    wf_svg_text(p->f, x, y, "start", "#333", s->name);
}

/* Filled ones first, so that nothing covers the hollow ones. */
static void draw_series(const plot *p, bool hollow)
{
    for (size_t i = 0; i < p->c->n_series; i++) {
        const wf_chart_series *s = &p->c->series[i];
        size_t at = place_of(p->c, i);
        const char *colour = colours[at % WF_LEN(colours)];
        if (s->hollow != hollow) continue;
        if (p->c->ticks && !hollow) draw_bars(p, s, at, colour);
        else if (!hollow) draw_line(p, s, colour), draw_points(p, s, WF_LEN(colours), colour);
        else draw_points(p, s, at, colour);
    }
}

/* ---- ranges ------------------------------------------------------------------------------- */

static bool on_axis(const axis *a, double v)
{
    return v >= a->low && v <= a->high;
}

/* An end that lies on the axis is marked. */
static void draw_end(const plot *p, double v, double y, double half, const char *style)
{
    double x = place(&p->x, v);
    if (on_axis(&p->x, v)) wf_svg_line(p->f, x, y - half, x, y + half, style);
}

static void draw_bar_of(const plot *p, const wf_chart_range *r, double y, double half)
{
    char title[160];
    double x = place(&p->x, r->low);
    if (!(r->low < r->high)) return;
    snprintf(title, sizeof title, "%s: %s", r->name, r->remark);
    wf_svg_rect(p->f, x, y - half, place(&p->x, r->high) - x, 2 * half, BAR, title);
    draw_end(p, r->low, y, half, "stroke=\"" TICK "\"");
    draw_end(p, r->high, y, half, "stroke=\"" TICK "\"");
    draw_end(p, r->at, y, half, "stroke=\"" TICK "\" stroke-width=\"3\"");
}

static void draw_range(const plot *p, size_t i)
{
    const wf_chart_range *r = &p->c->ranges[i];
    bool named = p->c->n_ranges <= RANGES_NAMED;
    double row = range_row(p->c), half = row * 0.36, y = TOP + INNER_H + RANGES_GAP + row * ((double)i + 0.5) - RANGES_GAP / 2.0;
    draw_bar_of(p, r, y, half);
    wf_svg_line(p->f, place(&p->x, r->from), y, place(&p->x, r->to), y, "stroke=\"#d55e00\" stroke-width=\"2\"");
    if (named || i % 8 == 0) wf_svg_text(p->f, LEFT - 8, y + 4, "end", "#333", r->name);
    if (named) wf_svg_text(p->f, LEFT + INNER_W + 8, y + 4, "start", "#333", r->remark);
}

static void draw_range_legend(const plot *p, size_t at)
{
    double x = LEFT + INNER_W + 40, y = TOP + 10 + 20.0 * (double)at;
    wf_svg_rect(p->f, x - 28, y - 10, 20, 12, BAR, NULL);
    wf_svg_text(p->f, x, y, "start", "#333", p->c->bar_name);
    wf_svg_line(p->f, x - 18, y + 10, x - 18, y + 22, "stroke=\"" TICK "\" stroke-width=\"3\"");
    wf_svg_text(p->f, x, y + 20, "start", "#333", p->c->tick_name);
}

static void draw_ranges(const plot *p)
{
    for (size_t i = 0; i < p->c->n_ranges; i++) draw_range(p, i);
    if (p->c->n_ranges) draw_range_legend(p, p->c->n_series);
}

/* A series without points has none, and still keeps its colour. */
static void draw_legends(const plot *p)
{
    for (size_t i = 0, at = 0; i < p->c->n_series; i++)
        if (p->c->series[i].n) draw_legend(p, at++, &p->c->series[i], colours[place_of(p->c, i) % WF_LEN(colours)]);
}

void wf_chart_draw(FILE *f, const wf_chart *c)
{
    plot p = {.f = f, .c = c};
    for (size_t i = 0; i < c->n_series; i++) p.n_bars += !c->series[i].hollow;
    find_ranges(&p);
    wf_svg_begin(f, WIDTH, HEIGHT + ranges_height(c));
    wf_svg_text(f, 16, 28, "start", "#000", c->title);
    draw_x(&p);
    draw_y(&p);
    draw_series(&p, false);
    draw_series(&p, true);
    draw_legends(&p);
    draw_ranges(&p);
    draw_limit(&p);
    draw_diagonal(&p);
    wf_svg_end(f);
}
