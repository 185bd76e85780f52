/* paper_out: a figure as a table, as CSV and as a drawing: what was measured beside what the paper has. */
#include "cli/paper.h"

#include "base/file.h"
#include "cli/timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of the model that was measured. */
static void model_label(const wf_paper *p, char *buf, size_t cap)
{
    if (*p->model) wf_copy(buf, cap, p->model);
    else wf_model_label(p->m, buf, cap);
}

/* ---- rows --------------------------------------------------------------------------------- */

static double lowest(const wf_paper_row *r)
{
    double v = r->v[0];
    for (size_t i = 1; i < r->n; i++) v = WF_MIN(v, r->v[i]);
    return v;
}

static double highest(const wf_paper_row *r)
{
    double v = r->v[0];
    for (size_t i = 1; i < r->n; i++) v = WF_MAX(v, r->v[i]);
    return v;
}

static bool same(const wf_paper_row *r, const wf_paper_point *q)
{
    return !strcmp(r->series, q->series) && fabs(r->paper_x - q->x) < 1e-9;
}

static const wf_paper_point *point_of(const wf_figure *f, const wf_paper_row *r)
{
    for (size_t i = 0; i < f->n_points; i++)
        if (same(r, &f->points[i])) return &f->points[i];
    return NULL;
}

static bool is_measured(const wf_paper *p, const wf_paper_point *q)
{
    for (size_t i = 0; i < p->n_rows; i++)
        if (same(&p->rows[i], q)) return true;
    return false;
}

static bool first_of(const wf_paper *p, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (!strcmp(p->rows[i].series, p->rows[at].series)) return false;
    return true;
}

static const char *number(double v, char *buf, size_t cap)
{
    snprintf(buf, cap, "%.4g", v);
    return buf;
}

/* The name of an x: of a bar, or the number. */
static const char *x_name(const wf_figure *f, double x, char *buf, size_t cap)
{
    if (f->ticks && x >= 0 && x < (double)f->n_ticks) return f->ticks[(size_t)x];
    snprintf(buf, cap, "%.6g", x);
    return buf;
}

/* ---- the table ---------------------------------------------------------------------------- */

/* The first two columns are as wide as what is in them. */
typedef struct widths {
    int series, x;
} widths;

static void widen(widths *w, const char *series, const char *x)
{
    w->series = WF_MAX(w->series, (int)strlen(series));
    w->x = WF_MAX(w->x, (int)strlen(x));
}

/* The x of a row, and that of the paper, if sizes are scaled. */
static const char *row_x(const wf_figure *f, const wf_paper_row *r, char buf[96])
{
    if (fabs(r->x - r->paper_x) <= 1e-9) return x_name(f, r->x, buf, 96);
    snprintf(buf, 96, "%.5g for %.5g", r->x, r->paper_x);
    return buf;
}

static widths widths_of(const wf_paper *p)
{
    const wf_figure *f = p->figure;
    char x[96];
    widths w = {0};
    widen(&w, "", f->ticks ? "" : f->x);
    for (size_t i = 0; i < p->n_rows; i++) widen(&w, p->rows[i].series, row_x(f, &p->rows[i], x));
    for (size_t i = 0; i < f->n_points; i++) widen(&w, f->points[i].series, x_name(f, f->points[i].x, x, sizeof x));
    return w;
}

static void print_line(widths w, const char *series, const char *x, const char *median, const char *range, const char *paper)
{
    printf("| %-*s | %*s | %10s | %22s | %10s |\n", w.series, series, w.x, x, median, range, paper);
}

static void print_dashes(int n, const char *end)
{
    putchar('|'), putchar(' ');
    while (n-- > 0) putchar('-');
    fputs(end, stdout);
}

static void print_row(const wf_figure *f, widths w, const wf_paper_row *r)
{
    char x[96], median[32], range[72] = "", paper[32] = "";
    const wf_paper_point *q = point_of(f, r);
    if (r->n > 1) snprintf(range, sizeof range, "%.4g to %.4g", lowest(r), highest(r));
    if (q) number(q->y, paper, sizeof paper);
    print_line(w, r->series, row_x(f, r, x), number(wf_paper_median(r), median, sizeof median), range, paper);
}

static void print_series(const wf_paper *p, widths w, const char *series)
{
    for (size_t i = 0; i < p->n_rows; i++)
        if (!strcmp(p->rows[i].series, series)) print_row(p->figure, w, &p->rows[i]);
}

/* What only the paper has. */
static void print_point(const wf_figure *f, widths w, const wf_paper_point *q)
{
    char x[32], y[32];
    print_line(w, q->series, x_name(f, q->x, x, sizeof x), "", "", number(q->y, y, sizeof y));
}

static void print_differences(const wf_paper *p)
{
    const wf_figure *f = p->figure;
    char label[96];
    model_label(p, label, sizeof label);
    if (f->says) printf("\nThe paper: %s\n", f->says);
    printf("\nWhat differs:\n- the paper has %s; this is %s", f->of, label);
    printf(*p->device ? " on %s\n" : "%s\n", p->device);
    for (size_t i = 0; i < p->n_notes; i++) printf("- %s\n", p->notes[i]);
}

void wf_paper_print(const wf_paper *p)
{
    const wf_figure *f = p->figure;
    widths w = widths_of(p);
    printf("%s: %s\ny: %s\n\n", f->id, f->title, f->y);
    print_line(w, "", f->ticks ? "" : f->x, "weft", "range", "paper");
    print_dashes(w.series, " ");
    print_dashes(w.x - 1, ": | ---------: | ---------------------: | ---------: |\n");
    for (size_t i = 0; i < p->n_rows; i++)
        if (first_of(p, i)) print_series(p, w, p->rows[i].series);
    for (size_t i = 0; i < f->n_points; i++)
        if (!is_measured(p, &f->points[i])) print_point(f, w, &f->points[i]);
    print_differences(p);
}

/* ---- CSV ---------------------------------------------------------------------------------- */

static void csv_texts(const wf_paper *p, FILE *f)
{
    char label[96], date[24];
    model_label(p, label, sizeof label);
    wf_date("%Y-%m-%d", date, sizeof date);
    const char *const texts[] = {date, wf_commit(), p->device, p->driver, label, p->figure->id};
    for (size_t i = 0; i < WF_LEN(texts); i++) wf_csv_text(f, texts[i]);
}

static void csv_x(const wf_figure *f, const char *series, double x, FILE *out)
{
    char buf[32];
    wf_csv_text(out, series);
    wf_csv_text(out, x_name(f, x, buf, sizeof buf));
}

static void write_csv(const wf_paper *p, FILE *f)
{
    char x[32];
    fputs("date,commit,device,driver,model,figure,series,x,paper_x,median,lowest,highest,runs,paper\n", f);
    for (size_t i = 0; i < p->n_rows; i++) {
        const wf_paper_row *r = &p->rows[i];
        const wf_paper_point *q = point_of(p->figure, r);
        csv_texts(p, f);
        csv_x(p->figure, r->series, r->x, f);
        wf_csv_text(f, x_name(p->figure, r->paper_x, x, sizeof x));
        fprintf(f, "%.9g,%.9g,%.9g,%zu,", wf_paper_median(r), lowest(r), highest(r), r->n);
        if (q) fprintf(f, "%.6g", q->y);
        fputc('\n', f);
    }
    for (size_t i = 0; i < p->figure->n_points; i++) {
        const wf_paper_point *q = &p->figure->points[i];
        if (is_measured(p, q)) continue;
        csv_texts(p, f);
        csv_x(p->figure, q->series, q->x, f);
        wf_csv_text(f, x_name(p->figure, q->x, x, sizeof x));
        fprintf(f, ",,,0,%.6g\n", q->y);
    }
}

/* ---- the drawing -------------------------------------------------------------------------- */

/* Series one after another, first those measured and then those of the paper. */
typedef struct drawing {
    wf_chart_point *points;
    wf_chart_series *series;
    char (*names)[96];
    size_t n_points, n_series;
} drawing;

static wf_chart_series *begin_series(drawing *d, const char *before, const char *name, bool hollow)
{
    wf_chart_series *s = &d->series[d->n_series];
    snprintf(d->names[d->n_series], sizeof *d->names, "%s%s", before, name);
    *s = (wf_chart_series){.name = d->names[d->n_series++], .points = d->points + d->n_points, .hollow = hollow};
    return s;
}

static void add_measured(drawing *d, const wf_paper *p, const char *series)
{
    wf_chart_series *s = begin_series(d, "", series, false);
    for (size_t i = 0; i < p->n_rows; i++) {
        const wf_paper_row *r = &p->rows[i];
        if (strcmp(r->series, series)) continue;
        d->points[d->n_points++] = (wf_chart_point){r->x, wf_paper_median(r), lowest(r), highest(r)};
        s->n++;
    }
}

/* Without points it still takes its colour, so that those of one name agree. */
static void add_paper(drawing *d, const wf_figure *f, const char *series)
{
    wf_chart_series *s = begin_series(d, "paper: ", series, true);
    for (size_t i = 0; i < f->n_points; i++) {
        if (strcmp(f->points[i].series, series)) continue;
        d->points[d->n_points++] = (wf_chart_point){.x = f->points[i].x, .y = f->points[i].y};
        s->n++;
    }
}

static bool paper_only(const wf_paper *p, size_t at)
{
    const wf_figure *f = p->figure;
    for (size_t i = 0; i < p->n_rows; i++)
        if (!strcmp(p->rows[i].series, f->points[at].series)) return false;
    for (size_t i = 0; i < at; i++)
        if (!strcmp(f->points[i].series, f->points[at].series)) return false;
    return true;
}

static void fill(drawing *d, const wf_paper *p)
{
    for (size_t i = 0; i < p->n_rows; i++)
        if (first_of(p, i)) add_measured(d, p, p->rows[i].series);
    for (size_t i = 0; i < p->n_rows; i++)
        if (first_of(p, i)) add_paper(d, p->figure, p->rows[i].series);
    for (size_t i = 0; i < p->figure->n_points; i++)
        if (paper_only(p, i)) add_paper(d, p->figure, p->figure->points[i].series);
}

static void make_title(const wf_paper *p, char *title, size_t cap)
{
    char label[96];
    model_label(p, label, sizeof label);
    snprintf(title, cap, "%s: %s (%s%s%s)", p->figure->id, p->figure->title, label, *p->device ? ", " : "", p->device);
}

static void draw(const drawing *d, const wf_paper *p, FILE *out)
{
    const wf_figure *f = p->figure;
    char title[320];
    make_title(p, title, sizeof title);
    wf_chart_draw(out, &(wf_chart){.title = title, .x_title = f->x, .y_title = f->y, .log_x = f->log_x, .log_y = f->log_y, .ticks = f->ticks,
                                   .n_ticks = f->n_ticks, .series = d->series, .n_series = d->n_series, .limit = f->limit, .limit_name = f->limit_name, .diagonal = f->diagonal});
}

static weft_status write_steps(const wf_paper *p, FILE *f)
{
    char title[320];
    make_title(p, title, sizeof title);
    wf_timeline_compare(f, p->steps, p->step_names, p->n_steps, title);
    return WEFT_OK;
}

static weft_status write_svg(const wf_paper *p, FILE *f)
{
    if (p->n_steps) return write_steps(p, f);
    size_t most = p->n_rows + p->figure->n_points, series = 2 * p->n_rows + p->figure->n_points;
    drawing d = {wf_calloc(most, sizeof *d.points), wf_calloc(series, sizeof *d.series), wf_calloc(series, sizeof *d.names), 0, 0};
    bool room = d.points && d.series && d.names;
    if (room) fill(&d, p), draw(&d, p, f);
    free(d.points), free(d.series), free(d.names);
    return room ? WEFT_OK : WEFT_ERR_NOMEM;
}

/* ---- files -------------------------------------------------------------------------------- */

static weft_status find_path(const wf_figure *f, const char *folder, const char *end, char path[PATH_MAX])
{
    int n = snprintf(path, PATH_MAX, "%s/%s%s", folder, f->id, end);
    return n < PATH_MAX ? WEFT_OK : wf_fail(WEFT_ERR_ARG, "the path is too long: %s", folder);
}

weft_status wf_paper_check_files(const wf_figure *f, const char *folder)
{
    static const char *const ends[] = {".csv", ".svg"};
    WF_TRY(wf_folder_check(folder));
    for (size_t i = 0; i < WF_LEN(ends); i++) {
        char path[PATH_MAX];
        WF_TRY(find_path(f, folder, ends[i], path));
        WF_TRY(wf_output_check(path));
    }
    return WEFT_OK;
}

static weft_status write_file(const wf_paper *p, const char *folder, const char *end, bool csv)
{
    char path[PATH_MAX];
    wf_output o;
    weft_status s = WEFT_OK;
    WF_TRY(find_path(p->figure, folder, end, path));
    WF_TRY(wf_output_open(path, &o));
    if (csv) write_csv(p, o.f);
    else s = write_svg(p, o.f);
    weft_status ended = wf_output_end(&o, !s);
    if (!s && !ended) wf_note(p->o, "wrote %s", path);
    return s ? s : ended;
}

weft_status wf_paper_write(const wf_paper *p, const char *folder)
{
    WF_TRY(write_file(p, folder, ".csv", true));
    return write_file(p, folder, ".svg", false);
}

int wf_paper_temporary(char *path, size_t cap)
{
    const char *folder = getenv("TMPDIR");
    int n = snprintf(path, cap, "%s/weft-paper-XXXXXX", folder && strlen(folder) < cap / 2 ? folder : "/tmp");
    int fd = n < (int)cap ? mkstemp(path) : -1;
    if (fd < 0) return *path = 0, wf_say_error(wf_fail(WEFT_ERR_IO, "cannot make a file in %s: set TMPDIR to a folder that can be written", folder ? folder : "/tmp"));
    close(fd);
    return 0;
}
