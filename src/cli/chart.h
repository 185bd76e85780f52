/* chart: lines or bars over two axes as an SVG. What was measured is filled; what others reported is hollow. */
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

typedef struct wf_chart {
    const char *title, *x_title, *y_title;
    bool log_x, log_y;
    const char *const *ticks; /* names of x = 0, 1, ...: series are bars side by side; NULL: x is a number */
    size_t n_ticks;
    const wf_chart_series *series;
    size_t n_series;
    double limit; /* of y, drawn as a dashed line; 0: none */
    const char *limit_name;
    const char *diagonal; /* name of y = x, drawn as a dashed line where both reach 1; NULL: none */
} wf_chart;

void wf_chart_draw(FILE *f, const wf_chart *c);

#endif
