/* chart: lines or bars over two axes as an SVG. What was measured is filled; what others reported is hollow. Below them may lie ranges of x. */
#ifndef WF_CHART_H
#define WF_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct wf_chart_point {
    double x, y, low, high; /* low < high: the spread of y */
} wf_chart_point;

typedef struct wf_chart_series {
    const char *name;
    const wf_chart_point *points;
    size_t n;
    bool hollow; /* circles without a line */
} wf_chart_series;

/* A bar over x in a row of its own, cut off where the axis ends, with a thin line and a tick on it. */
typedef struct wf_chart_range {
    char name[32], remark[64];
    double low, high; /* low = high: no bar and no tick */
    double at;
    double from, to;  /* the thin line, in the colour of series 1 */
} wf_chart_range;

typedef struct wf_chart {
    const char *title, *x_title, *y_title;
    bool log_x, log_y;
    const char *const *ticks; /* names of x = 0, 1, ...: series are bars side by side; NULL: x is a number */
    size_t n_ticks;
    const wf_chart_series *series;
    size_t n_series;
    double limit; /* of y, plotted as a dashed line; 0: none */
    const char *limit_name;
    const wf_chart_range *ranges; /* of x as a number */
    size_t n_ranges;
    const char *bar_name, *tick_name; /* of theirs */
    const char *diagonal; /* name of y = x, plotted as a dashed line where both reach 1; NULL: none */
} wf_chart;

void wf_chart_draw(FILE *f, const wf_chart *c);

#endif
