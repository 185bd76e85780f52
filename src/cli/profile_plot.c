/* profile_plot: what ops keep of their rate beside compute that loses a part of its own, from a profile, as NanoFlow's figure 5 and table 3 have it. */
#include "base/file.h"
#include "cli/chart.h"
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

typedef struct lines {
    wf_chart_point *points; /* of all series */
    wf_chart_series series[WEFT_N_CLASSES];
    size_t n;
} lines;

/* Shares go in order, and so does what compute loses by them. */
static void fill(const struct weft_profile *p, lines *l)
{
    for (size_t i = 0; i < p->n_rates; i++) {
        const struct weft_profile_rate *r = &p->rates[i];
        if (!i || r->op_class != p->rates[i - 1].op_class) l->series[l->n++] = (wf_chart_series){.name = weft_class_name(r->op_class), .points = &l->points[i]};
        l->points[i] = (wf_chart_point){r->lost, r->rate, WF_MAX(r->rate - r->spread, 0), WF_MIN(r->rate + r->spread, 1)};
        l->series[l->n - 1].n++;
    }
}

static weft_status draw(const struct weft_profile *p, const char *path)
{
    char title[200];
    wf_output out;
    lines l = {.points = wf_calloc(p->n_rates, sizeof *l.points)};
    if (!l.points) return WEFT_ERR_NOMEM;
    fill(p, &l);
    snprintf(title, sizeof title, "%s on %s, contexts of %u: ops beside compute", *p->model ? p->model : "a model", *p->device ? p->device : "a device",
             p->context);
    weft_status s = wf_output_open(path, &out);
    if (!s) {
        wf_chart_draw(out.f, &(wf_chart){.title = title, .x_title = "R: part of its rate that compute loses",
                                         .y_title = "P: part of their rate that the others keep",
                                         .series = l.series, .n_series = l.n, .diagonal = "P = R: nothing gained"});
        s = wf_output_end(&out, true);
    }
    free(l.points);
    return s;
}

static weft_status check_rates(const wf_opts *o, const struct weft_profile *p)
{
    if (p->n_rates) return WEFT_OK;
    return wf_fail(WEFT_ERR_FORMAT, "%s has no ops beside each other to be drawn: `weft tune --overlap` measures them on devices whose kernels can leave a share "
                   "to others", o->print_profile);
}

int wf_plot_profile(const wf_opts *o)
{
    struct weft_profile *p = NULL;
    if (!wf_ends_in(o->load.plot, ".svg")) return wf_usage(o->command, "--plot %s: the picture is a file that ends in .svg", o->load.plot);
    weft_status s = wf_output_check(o->load.plot);
    if (!s) s = weft_profile_read(o->print_profile, &p);
    if (!s) s = check_rates(o, p);
    if (!s) s = draw(p, o->load.plot);
    weft_profile_free(p);
    if (s) return wf_say_error(s);
    wf_note(o, "wrote %s", o->load.plot);
    return 0;
}
