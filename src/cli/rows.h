/* rows: what commands measure, as a table for people (Markdown), as JSON and as CSV, all from one list of cells. */
#ifndef WF_CLI_ROWS_H
#define WF_CLI_ROWS_H

#include "base/text.h"

#include <math.h>
#include <stdio.h>

/* Where a column has no number it is a text. A number that is NAN, and a text that is NULL, is unknown: empty, and null
 * in JSON. */
typedef struct wf_cell {
    const char *key;   /* in JSON and CSV; NULL: only for people */
    const char *title; /* for people; NULL: not for them */
    int width;         /* for people; negative: aligned left */
    int digits;        /* of a number for people */
    double number;
    const char *text;
    enum { WF_NUMBER, WF_TEXT, WF_TRUTH, WF_RAW } kind; /* WF_RAW: a text that is JSON, which CSV leaves out */
    bool hidden;                                        /* the column is left out */
} wf_cell;

/* Cells for programs alone, and for both. */
#define WF_TEXT_CELL(key, value) {key, .text = (value), .kind = WF_TEXT}
#define WF_TEXT_SHOWN(key, title, width, value) {key, title, width, .text = (value), .kind = WF_TEXT}
#define WF_NUMBER_CELL(key, value) {key, .number = (double)(value)}
#define WF_NUMBER_SHOWN(key, title, width, digits, value) {key, title, width, digits, (double)(value)}
#define WF_BUILD_CELLS(d)                                                                                              \
    WF_TEXT_CELL("build_commit", wf_commit()), WF_TEXT_CELL("device", (d)->id),                                        \
        WF_TEXT_CELL("device_name", (d)->name), WF_TEXT_CELL("driver", (d)->driver)

typedef struct wf_rows {
    const char *format; /* "md", "json" or "csv"; NULL: md */
    size_t n;           /* rows so far */
} wf_rows;

bool wf_rows_for_people(const wf_rows *r);
/* To standard output, at once; the first row brings the head. All rows have the same columns. */
void wf_rows_add(wf_rows *r, const wf_cell *cells, size_t n);
void wf_rows_end(const wf_rows *r);

void wf_date(const char *format, char *buf, size_t cap); /* now, UTC */
void wf_csv_text(FILE *f, const char *value);            /* quoted if needed */
int wf_print_json(wf_text *o); /* prints and frees it, with a line end; returns an exit code */

#endif
