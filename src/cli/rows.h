/* rows: what commands measure, as a table for people (Markdown), as JSON and as CSV, all from one description of the
 * columns. */
#ifndef WF_CLI_ROWS_H
#define WF_CLI_ROWS_H

#include "base/base.h"

#include <weft/weft.h>

#include <math.h>
#include <stdio.h>

typedef struct wf_column {
    const char *key;   /* in JSON and CSV; NULL: only for people */
    const char *title; /* for people; NULL: not for them */
    int width;         /* for people; negative: aligned left */
    int digits;        /* of a number for people */
    enum { WF_NUMBER, WF_TEXT, WF_TRUTH, WF_RAW } kind; /* WF_RAW: a text that is JSON, which CSV leaves out */
} wf_column;

/* One of the two. A number that is NAN is unknown: empty, and null in JSON. */
typedef struct wf_cell {
    const char *text;
    double number;
} wf_cell;

#define WF_BUILD_COLUMNS                                                                                               \
    {"build_commit", .kind = WF_TEXT}, {"device", .kind = WF_TEXT}, {"device_name", .kind = WF_TEXT},                  \
        {"driver", .kind = WF_TEXT}
#define WF_BUILD_CELLS(d) {wf_commit()}, {(d)->id}, {(d)->name}, {(d)->driver}

typedef struct wf_rows {
    const char *format; /* "md", "json" or "csv"; NULL: md */
    const wf_column *columns;
    size_t n_columns;
    uint64_t hidden; /* a bit for each column that is left out */
    size_t n;        /* rows so far */
} wf_rows;
#define WF_ROWS(name, list) ((wf_rows){.format = (name), .columns = (list), .n_columns = WF_LEN(list)})

bool wf_rows_for_people(const wf_rows *r);
void wf_rows_add(wf_rows *r, const wf_cell *cells); /* to standard output, at once; the first row brings the head */
void wf_rows_end(const wf_rows *r);

/* ---- single fields --------------------------------------------------------------------------------------------- */

void wf_date(const char *format, char *buf, size_t cap); /* now, UTC */
void wf_csv_text(FILE *f, const char *value);            /* quoted if needed, and a comma */
void wf_json_quote(FILE *f, const char *value);         /* in quotes */
/* Members of a JSON object on standard output, each on a line with a comma behind it. */
void wf_field_text(const char *key, const char *value);
void wf_field_number(const char *key, double value);

#endif
