/* plot: a chart of normalised latency against request rate, one line per policy and load. The latency axis is logarithmic, because
 * latency grows without bound once a policy cannot keep up. */
#include "cli/chart.h"
#include "cli/throughput.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct plot {
    wf_chart_point *points; /* of all rows */
    wf_chart_series *series;
    char (*names)[160];
    size_t n;
} plot;

static bool same_line(const wf_throughput_row *a, const wf_throughput_row *b)
{
    return !strcmp(a->policy, b->policy) && !strcmp(a->load, b->load);
}

/* Rows of one policy and load come one after another, ordered by rate. */
static void fill(plot *p, const wf_throughput_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const wf_series *norm = &rows[i].stats.metric[WF_NORM];
        if (!i || !same_line(&rows[i], &rows[i - 1])) {
            snprintf(p->names[p->n], sizeof *p->names, "%s, %s", rows[i].policy, rows[i].load);
            p->series[p->n] = (wf_chart_series){.name = p->names[p->n], .points = &p->points[i]};
            p->n++;
        }
        p->points[i] = (wf_chart_point){.x = rows[i].rate, .y = norm->n ? norm->mean : 0};
        p->series[p->n - 1].n++;
    }
}

static void draw(const plot *p, FILE *f, const wf_throughput_head *h)
{
    char label[96], title[256], limit[32];
    wf_model_label(h->model, label, sizeof label);
    snprintf(limit, sizeof limit, "%d ms", WF_SLO_NORM_MS);
    snprintf(title, sizeof title, "%s on %s, %u sequences, dense batch %u", label, h->device->name, h->n_seqs, h->batch);
    wf_chart_draw(f, &(wf_chart){.title = title,
                                 .x_title = "requests per second",
                                 .y_title = "mean normalised latency, ms per token",
                                 .log_y = true,
                                 .series = p->series,
                                 .n_series = p->n,
                                 .limit = WF_SLO_NORM_MS,
                                 .limit_name = limit});
}

weft_status wf_throughput_plot(FILE *f, const char *path, const wf_throughput_head *h,
                          const wf_throughput_row *rows, size_t n)
{
    plot p = {wf_calloc(n, sizeof *p.points), wf_calloc(n, sizeof *p.series), wf_calloc(n, sizeof *p.names), 0};
    bool room = p.points && p.series && p.names;
    if (room) fill(&p, rows, n), draw(&p, f, h);
    free(p.points), free(p.series), free(p.names);
    if (!room) return WEFT_ERR_NOMEM;
    return fflush(f) ? wf_fail(WEFT_ERR_IO, "cannot write %s: %s", path, strerror(errno)) : WEFT_OK;
}
