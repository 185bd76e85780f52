/* probe: what ops take on a device, by themselves and beside each other (NanoFlow, section 4.1.1). See exec.h.
 *
 * A lane launches one op again and again on a queue of its own: that of each layer in turn, as a step does, so that no
 * launch finds its weights in a cache. Lanes wait for nothing. Times are those of the device's events; of two lanes
 * only launches count that ran while the other lane did.
 */
#include "exec/internal.h"
#include "verify/bind.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LAYERS = 512, LEAST_LAUNCHES = 5, MOST_LAUNCHES = 192 };

typedef struct launched {
    const wf_command *command;
    wf_binding binding;
} launched;

typedef struct lane {
    const wf_probe_lane *what;
    wf_queue *q;
    wf_queue *copies; /* of a lane that has copied pages: one that runs no kernels, and a page of the host */
    wf_host host;
    launched *list; /* by layer */
    size_t n_list;
    uint32_t n; /* launches */
    wf_event *starts[MOST_LAUNCHES], *ends[MOST_LAUNCHES];
    uint64_t begin[MOST_LAUNCHES], end[MOST_LAUNCHES];
} lane;

struct wf_probe {
    wf_exec *e;
    lane lanes[WF_PROBE_LANES];
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static weft_status open_lane(wf_probe *p, lane *l)
{
    l->list = wf_calloc(MAX_LAYERS, sizeof *l->list);
    if (!l->list) return WEFT_ERR_NOMEM;
    WF_TRY(wf_queue_create(p->e->dev, &l->q));
    for (size_t i = 0; i < MOST_LAUNCHES; i++) {
        WF_TRY(wf_event_create(p->e->dev, &l->starts[i]));
        WF_TRY(wf_event_create(p->e->dev, &l->ends[i]));
    }
    return WEFT_OK;
}

weft_status wf_probe_open(wf_exec *e, wf_probe **out)
{
    if (!e->dev->params.profile) return wf_fail(WEFT_ERR_ARG, "a probe needs a device that was opened with `profile`");
    wf_probe *p = wf_calloc(1, sizeof *p);
    if (!p) return WEFT_ERR_NOMEM;
    p->e = e;
    weft_status s = WEFT_OK;
    for (lane *l = p->lanes; s == WEFT_OK && l < p->lanes + WF_PROBE_LANES; l++) s = open_lane(p, l);
    if (s == WEFT_OK) *out = p;
    else wf_probe_close(p);
    return s;
}

void wf_probe_close(wf_probe *p)
{
    if (!p) return;
    for (lane *l = p->lanes; l < p->lanes + WF_PROBE_LANES; l++) {
        if (l->q) wf_queue_destroy(l->q);
        if (l->copies) wf_queue_destroy(l->copies);
        for (size_t i = 0; i < MOST_LAUNCHES; i++) {
            if (l->starts[i]) wf_event_destroy(l->starts[i]);
            if (l->ends[i]) wf_event_destroy(l->ends[i]);
        }
        free(l->list);
        if (l->host.data) wf_host_destroy(p->e->dev, &l->host);
    }
    free(p);
}

/* ---- launching --------------------------------------------------------------------------------------------------- */

static const wf_step_shape *last_step(const wf_exec *e)
{
    return &e->in_flight[(e->first - 1) % WF_EXEC_DEPTH].step;
}

static wf_call call_of(const wf_probe *p, const lane *l, const wf_command *c)
{
    wf_call call;
    wf_command_call(&p->e->to, c, last_step(p->e), l->what->rows, &call);
    call.max_groups = l->what->groups;
    call.variant = -1;
    return call;
}

static bool copies_pages(const lane *l)
{
    return !l->what->op;
}

static wf_queue *queue_of(const lane *l)
{
    return copies_pages(l) ? l->copies : l->q;
}

static weft_status bind_lane(wf_probe *p, lane *l)
{
    const wf_program *program = &p->e->programs[0];
    uint64_t scratch = 0;
    l->n_list = 0;
    if (copies_pages(l)) {
        if (!l->what->rows.count) return wf_fail(WEFT_ERR_ARG, "copies of no pages cannot be measured");
        if (!l->copies) WF_TRY(wf_copy_queue_create(p->e->dev, &l->copies));
        return l->host.data ? WEFT_OK : wf_host_create(p->e->dev, wf_exec_page_bytes(p->e), &l->host);
    }
    for (const wf_command *c = program->commands; c < program->commands + program->n && l->n_list < MAX_LAYERS; c++) {
        if (strcmp(c->node->name, l->what->op)) continue;
        launched *x = &l->list[l->n_list++];
        *x = (launched){.command = c};
        if (c->node->kind != WF_NODE_KERNEL) continue;
        wf_call call = call_of(p, l, c);
        WF_TRY(wf_bind(p->e->dev, &call, &x->binding));
    }
    if (!l->n_list) return wf_fail(WEFT_ERR_ARG, "this model has no op '%s'", l->what->op);
    return wf_queue_reserve(l->q, &scratch);
}

static weft_status launch_op(wf_probe *p, lane *l, uint32_t i)
{
    if (copies_pages(l))
        return wf_exec_read_page(p->e, l->copies, (int32_t)(l->what->rows.first + i % l->what->rows.count),
                                 l->host.data, l->ends[i]);
    const launched *x = &l->list[i % l->n_list];
    const wf_node *n = x->command->node;
    if (n->kind != WF_NODE_KERNEL) {
        const wf_view *v = &x->command->call.in[0];
        return wf_transfer(l->q, l->what->rows.count * wf_dtype_bytes(v->dtype, v->cols), NULL, 0, l->ends[i]);
    }
    wf_call call = call_of(p, l, x->command);
    call.started = l->starts[i];
    call.signal = l->ends[i];
    return wf_launch(l->q, &call, &x->binding);
}

/* Lanes in turn, so that all begin at about one time. */
static weft_status run_lanes(wf_probe *p, uint32_t n_lanes)
{
    uint32_t most = 0;
    for (uint32_t k = 0; k < n_lanes; k++) most = WF_MAX(most, p->lanes[k].n);
    for (uint32_t i = 0; i < most; i++)
        for (lane *l = p->lanes; l < p->lanes + n_lanes; l++) {
            if (i < l->n) WF_TRY(launch_op(p, l, i));
            if (i < l->n && i < 2) WF_TRY(wf_flush(queue_of(l)));
        }
    for (lane *l = p->lanes; l < p->lanes + n_lanes; l++) WF_TRY(wf_flush(queue_of(l)));
    for (lane *l = p->lanes; l < p->lanes + n_lanes; l++) WF_TRY(wf_finish(queue_of(l)));
    for (lane *l = p->lanes; l < p->lanes + n_lanes; l++) {
        /* A call in pieces begins where the first does; an event of a start before that is an older one's. */
        for (uint32_t i = 0; i < l->n; i++) {
            uint64_t start, t;
            if (wf_event_times(l->ends[i], &l->begin[i], &l->end[i]))
                return wf_fail(WEFT_ERR_UNSUPPORTED,
                               "%s cannot tell when its commands begin and end, which measuring ops needs",
                               p->e->dev->info.name);
            if (i && !wf_event_times(l->starts[i], &start, &t) && start >= l->end[i - 1] && start < l->begin[i])
                l->begin[i] = start;
        }
    }
    return WEFT_OK;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static int compare_us(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

wf_probe_time wf_probe_summary(double *us, uint32_t n)
{
    qsort(us, n, sizeof *us, compare_us);
    return (wf_probe_time){.us = (us[n / 2] + us[(n - 1) / 2]) / 2, .spread = (us[n * 3 / 4] - us[n / 4]) / 2, .n = n};
}

/* When all other lanes ran. */
static void overlap_with(const wf_probe *p, uint32_t n_lanes, const lane *l, uint64_t *begin, uint64_t *end)
{
    *begin = 0, *end = UINT64_MAX;
    for (const lane *o = p->lanes; o < p->lanes + n_lanes; o++) {
        if (o == l) continue;
        *begin = WF_MAX(*begin, o->begin[0]);
        *end = WF_MIN(*end, o->end[o->n - 1]);
    }
}

/* The first launch finds an idle device. */
static wf_probe_time time_of(const wf_probe *p, uint32_t n_lanes, const lane *l)
{
    double us[MOST_LAUNCHES];
    uint32_t n = 0;
    uint64_t begin, end;
    overlap_with(p, n_lanes, l, &begin, &end);
    for (uint32_t i = n_lanes == 1; i < l->n; i++)
        if (l->begin[i] >= begin && l->end[i] <= end) us[n++] = (double)(l->end[i] - l->begin[i]) / 1e3;
    return n ? wf_probe_summary(us, n) : (wf_probe_time){.us = NAN, .spread = NAN};
}

/* As many launches as last for `us`, and of the slowest lane the least number; *grown: more than have run. */
static weft_status size_lanes(wf_probe *p, uint32_t n_lanes, double us, bool *grown)
{
    double each[WF_PROBE_LANES];
    for (uint32_t k = 0; k < n_lanes; k++) p->lanes[k].n = LEAST_LAUNCHES;
    WF_TRY(run_lanes(p, n_lanes));
    for (uint32_t k = 0; k < n_lanes; k++) {
        const lane *l = &p->lanes[k];
        each[k] = (double)(l->end[l->n - 1] - l->begin[0]) / 1e3 / l->n;
        us = WF_MAX(us, LEAST_LAUNCHES * each[k]);
    }
    *grown = false;
    for (uint32_t k = 0; k < n_lanes; k++) {
        double n = each[k] > 0 ? us / each[k] : LEAST_LAUNCHES;
        p->lanes[k].n = (uint32_t)WF_MIN(WF_MAX(n, (double)LEAST_LAUNCHES), (double)MOST_LAUNCHES);
        *grown |= p->lanes[k].n > LEAST_LAUNCHES;
    }
    return WEFT_OK;
}

static weft_status bind_lanes(wf_probe *p, const wf_probe_lane *lanes, uint32_t n)
{
    if (!n || n > WF_PROBE_LANES) return wf_fail(WEFT_ERR_ARG, "a probe of %u lanes: want 1 to %d", n, WF_PROBE_LANES);
    if (!p->e->first || p->e->n_in_flight)
        return wf_fail(WEFT_ERR_ARG, "a probe follows a step that has ended, whose batch it takes");
    for (uint32_t k = 0; k < n; k++) {
        p->lanes[k].what = &lanes[k];
        WF_TRY(bind_lane(p, &p->lanes[k]));
    }
    return WEFT_OK;
}

weft_status wf_probe_repeat(wf_probe *p, const wf_probe_lane *lane, uint32_t launches)
{
    WF_TRY(bind_lanes(p, lane, 1));
    for (uint32_t n; launches; launches -= n) {
        p->lanes[0].n = n = WF_MIN(launches, (uint32_t)MOST_LAUNCHES);
        WF_TRY(run_lanes(p, 1));
    }
    return WEFT_OK;
}

weft_status wf_probe_run(wf_probe *p, const wf_probe_lane *lanes, uint32_t n, double us, wf_probe_time *out)
{
    bool grown;
    WF_TRY(bind_lanes(p, lanes, n));
    WF_TRY(size_lanes(p, n, us, &grown));
    if (grown) WF_TRY(run_lanes(p, n));
    for (uint32_t k = 0; k < n; k++) out[k] = time_of(p, n, &p->lanes[k]);
    return WEFT_OK;
}
