/* rows: see rows.h. */
#include "cli/rows.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- fields ------------------------------------------------------------------------------------------------------ */

void wf_date(const char *format, char *buf, size_t cap)
{
    time_t now = time(NULL);
    struct tm t;
    strftime(buf, cap, format, gmtime_r(&now, &t));
}

static void print_csv_string(FILE *f, const char *value)
{
    value = value ? value : "";
    bool quote = strpbrk(value, ",\"\r\n") != NULL;
    if (quote) putc('"', f);
    for (const char *p = value; *p; p++) {
        if (*p == '"') putc('"', f);
        putc(*p, f);
    }
    if (quote) putc('"', f);
}

void wf_csv_text(FILE *f, const char *value)
{
    print_csv_string(f, value);
    putc(',', f);
}

void wf_json_quote(FILE *f, const char *value)
{
    wf_text t = {0};
    wf_json_put_string(&t, value, value ? strlen(value) : 0);
    fputs(t.data ? t.data : "\"\"", f);
    free(t.data);
}

/* Counts whole, for they may be bytes of a large model. */
static void exact_number(double v, char *buf, size_t cap)
{
    bool whole = v == floor(v) && fabs(v) < 9e15;
    snprintf(buf, cap, whole ? "%.0f" : "%.9g", v);
}

void wf_field_text(const char *key, const char *value)
{
    printf("    \"%s\": ", key);
    wf_json_quote(stdout, value);
    printf(",\n");
}

void wf_field_number(const char *key, double value)
{
    char buf[40] = "null";
    if (isfinite(value)) exact_number(value, buf, sizeof buf);
    printf("    \"%s\": %s,\n", key, buf);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

bool wf_rows_for_people(const wf_rows *r)
{
    return !r->format || !strcmp(r->format, "md");
}

/* Padded to the width by characters, of which some take several bytes. */
static void print_cell(const wf_column *c, const char *text)
{
    int len = 0;
    for (const char *p = text; *p; p++) len += (*p & 0xc0) != 0x80;
    int pad = WF_MAX(abs(c->width) - len, 0);
    if (c->width < 0) printf(" %s%*s |", text, pad, "");
    else printf(" %*s%s |", pad, "", text);
}

static void print_people_row(const wf_rows *r, const wf_cell *cells)
{
    putchar('|');
    for (size_t i = 0; i < r->n_columns; i++) {
        const wf_column *c = &r->columns[i];
        char number[48] = "";
        if (!c->title || r->hidden >> i & 1) continue;
        if (!isnan(cells[i].number)) snprintf(number, sizeof number, "%.*f", c->digits, cells[i].number);
        print_cell(c, c->kind == WF_NUMBER ? number : cells[i].text);
    }
    putchar('\n');
}

static void print_people_head(const wf_rows *r)
{
    putchar('|');
    for (size_t i = 0; i < r->n_columns; i++)
        if (r->columns[i].title && !(r->hidden >> i & 1)) print_cell(&r->columns[i], r->columns[i].title);
    fputs("\n|", stdout);
    for (size_t i = 0; i < r->n_columns; i++) {
        const wf_column *c = &r->columns[i];
        if (!c->title || r->hidden >> i & 1) continue;
        putchar(' ');
        for (int k = abs(c->width) - (c->width > 0); k > 0; k--) putchar('-');
        fputs(c->width > 0 ? ": |" : " |", stdout);
    }
    putchar('\n');
}

/* One field of JSON or CSV, without what stands between them. */
static void print_value(const wf_column *c, const wf_cell *cell, bool json)
{
    char number[40];
    if (c->kind == WF_TRUTH)
        fputs(json ? (cell->number != 0 ? "true" : "false") : cell->number != 0 ? "1" : "0", stdout);
    else if (c->kind == WF_RAW) fputs(cell->text, stdout);
    else if (c->kind == WF_NUMBER && isnan(cell->number)) fputs(json ? "null" : "", stdout);
    else if (c->kind == WF_NUMBER) exact_number(cell->number, number, sizeof number), fputs(number, stdout);
    else if (json) cell->text ? wf_json_quote(stdout, cell->text) : (void)fputs("null", stdout);
    else print_csv_string(stdout, cell->text);
}

void wf_rows_add(wf_rows *r, const wf_cell *cells)
{
    bool first = !r->n++, json = r->format && !strcmp(r->format, "json");
    const char *between = "";
    if (wf_rows_for_people(r)) {
        if (first) print_people_head(r);
        print_people_row(r, cells);
        fflush(stdout);
        return;
    }
    if (first && json) putchar('[');
    for (size_t i = 0; first && !json && i < r->n_columns; i++) {
        if (!r->columns[i].key || r->columns[i].kind == WF_RAW || r->hidden >> i & 1) continue;
        printf("%s%s", between, r->columns[i].key);
        between = ",";
    }
    fputs(json ? first ? "\n  {\n" : ",\n  {\n" : first ? "\n" : "", stdout);
    between = "";
    for (size_t i = 0; i < r->n_columns; i++) {
        const wf_column *c = &r->columns[i];
        if (!c->key || r->hidden >> i & 1 || (c->kind == WF_RAW && !json)) continue;
        if (json) printf("%s    \"%s\": ", between, c->key);
        else fputs(between, stdout);
        print_value(c, &cells[i], json);
        between = json ? ",\n" : ",";
    }
    fputs(json ? "\n  }" : "\n", stdout);
    fflush(stdout);
}

void wf_rows_end(const wf_rows *r)
{
    if (r->n && r->format && !strcmp(r->format, "json")) puts("\n]");
}
