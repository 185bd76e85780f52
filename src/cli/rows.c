/* rows: see rows.h. */
#include "cli/rows.h"

#include "base/json.h"
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

void wf_date(const char *format, char *buf, size_t cap)
{
    time_t now = time(NULL);
    struct tm t;
    strftime(buf, cap, format, gmtime_r(&now, &t));
}

void wf_csv_text(FILE *f, const char *value)
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

int wf_print_json(wf_text *o)
{
    bool good = !o->failed && puts(o->data) != EOF;
    free(o->data);
    return good ? WF_EXIT_OK : WF_EXIT_RUNTIME;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

bool wf_rows_for_people(const wf_rows *r) { return !r->format || !strcmp(r->format, "md"); }

/* Padded to the width by characters, of which some take several bytes. */
static void print_cell(const wf_cell *c, const char *text)
{
    int len = 0;
    for (const char *p = text; *p; p++) len += (*p & 0xc0) != 0x80;
    int pad = WF_MAX(abs(c->width) - len, 0);
    if (c->width < 0) printf(" %s%*s |", text, pad, "");
    else printf(" %*s%s |", pad, "", text);
}

static void print_people_row(const wf_cell *cells, size_t n)
{
    putchar('|');
    for (const wf_cell *c = cells; c < cells + n; c++) {
        char number[48] = "";
        if (!c->title || c->hidden) continue;
        if (!isnan(c->number)) snprintf(number, sizeof number, "%.*f", c->digits, c->number);
        print_cell(c, c->kind == WF_NUMBER ? number : c->text);
    }
    putchar('\n');
}

static void print_people_head(const wf_cell *cells, size_t n)
{
    putchar('|');
    for (const wf_cell *c = cells; c < cells + n; c++)
        if (c->title && !c->hidden) print_cell(c, c->title);
    fputs("\n|", stdout);
    for (const wf_cell *c = cells; c < cells + n; c++) {
        if (!c->title || c->hidden) continue;
        putchar(' ');
        for (int k = abs(c->width) - (c->width > 0); k > 0; k--) putchar('-');
        fputs(c->width > 0 ? ": |" : " |", stdout);
    }
    putchar('\n');
}

/* Counts whole, for they may be bytes of a large model. */
static void put_number(wf_text *o, double v)
{
    bool whole = v == floor(v) && fabs(v) < 9e15;
    wf_text_print(o, whole ? "%.0f" : "%.9g", v);
}

static void put_json(wf_text *o, const wf_cell *c)
{
    if (c->kind == WF_TRUTH) wf_json_print(o, "%hhd", c->number != 0);
    else if (c->kind == WF_RAW) wf_text_print(o, "%s", c->text);
    else if (c->kind == WF_TEXT) wf_json_print(o, "%s", c->text);
    else if (isnan(c->number)) wf_text_print(o, "null");
    else put_number(o, c->number);
}

static void print_csv(const wf_cell *c)
{
    wf_text o = {0};
    if (c->kind == WF_TRUTH) putchar(c->number != 0 ? '1' : '0');
    else if (c->kind == WF_TEXT) wf_csv_text(stdout, c->text);
    else if (!isnan(c->number)) put_number(&o, c->number), fputs(o.data ? o.data : "", stdout);
    free(o.data);
}

static void print_csv_row(const wf_cell *cells, size_t n, bool head)
{
    const char *between = "";
    for (const wf_cell *c = cells; c < cells + n; c++) {
        if (!c->key || c->hidden || c->kind == WF_RAW) continue;
        fputs(between, stdout);
        if (head) fputs(c->key, stdout);
        else print_csv(c);
        between = ",";
    }
    putchar('\n');
}

static void print_json_row(const wf_cell *cells, size_t n, bool first)
{
    wf_text o = {0};
    const char *between = first ? "[\n  {\n" : ",\n  {\n";
    for (const wf_cell *c = cells; c < cells + n; c++) {
        if (!c->key || c->hidden) continue;
        wf_text_print(&o, "%s    \"%s\": ", between, c->key);
        put_json(&o, c);
        between = ",\n";
    }
    printf("%s\n  }", o.data ? o.data : "");
    free(o.data);
}

void wf_rows_add(wf_rows *r, const wf_cell *cells, size_t n)
{
    bool first = !r->n++, people = wf_rows_for_people(r);
    if (people && first) print_people_head(cells, n);
    if (people) print_people_row(cells, n);
    else if (!strcmp(r->format, "json")) print_json_row(cells, n, first);
    else {
        if (first) print_csv_row(cells, n, true);
        print_csv_row(cells, n, false);
    }
    fflush(stdout);
}

void wf_rows_end(const wf_rows *r)
{
    if (r->n && r->format && !strcmp(r->format, "json")) puts("\n]");
}
