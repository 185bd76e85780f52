/* load: runs one load on an engine and turns its times into a row; and the peak that the optimum is taken from. */
#include "cli/throughput.h"
#include "base/options.h"
#include "loadgen/replay.h"
#include <weft/tune.h>

#include <ctype.h>
#include <string.h>

/* ---- the ceiling of equation 5 ------------------------------------------------------------ */

static void on_op(void *user, const struct weft_op_row *r)
{
    const struct weft_ceilings *c = r->ceilings;
    bool eight = !strncmp(r->dtype, "Q8", 2) || !strncmp(r->dtype, "Q4", 2);
    *(double *)user = WF_MAX(WF_MAX(c->f32, c->f16), eight ? c->q8 : 0);
}

weft_status wf_probe_peak(const wf_opts *o, const struct weft_model *m, double *peak)
{
    static const char *const shape[] = {"M=8,N=256,K=256"};
    struct weft_op_params p = wf_op_params(o, wf_main_dtype(m), shape, 1);
    p.repeat = p.rotate = 1;
    p.on_row = on_op;
    p.user = peak;
    *peak = 0;
    return weft_bench_ops(&p);
}

/* ---- the cost model ------------------------------------------------------------------------ */

void wf_known_device(const struct weft_model *m, const char *device, char *on, size_t cap)
{
    for (size_t n; *(device += strspn(device, " ")); device += n) {
        struct weft_cost *c;
        n = strcspn(device, " ");
        snprintf(on, cap, "%.*s", (int)n, device);
        for (char *a = on; *a; a++) *a = (char)tolower((unsigned char)*a);
        if (weft_cost(&(struct weft_cost_params){.model = m, .on = on}, &c)) continue;
        weft_cost_free(c);
        return;
    }
    *on = 0;
}

/* Of requests as long as these on average. Without answers no load is steady. */
static double at_best(const wf_load *l, const wf_load_stats *s)
{
    struct weft_cost *c;
    if (!l->cost || !s->completed || !s->n_in || !s->n_out) return 0;
    struct weft_cost_params p = *l->cost;
    p.input_len = (double)s->n_in / (double)s->completed, p.output_len = (double)s->n_out / (double)s->completed;
    if (weft_cost(&p, &c)) return 0;
    double optimum = c->optimum;
    weft_cost_free(c);
    return optimum;
}

/* ---- one run ------------------------------------------------------------------------------ */

static void on_progress(void *user, size_t done)
{
    const wf_load *l = user;
    if (!l->bar) return;
    wf_progress_note(l->bar, "%zu of %zu requests", done, l->specs->n);
    wf_progress_update(l->bar, l->what, (double)done / (double)l->specs->n);
}

static void fill_row(const wf_load *l, wf_throughput_row *r, const struct weft_stats *before, const struct weft_stats *after)
{
    uint64_t steps = after->steps - before->steps;
    double params = (double)weft_model_info(l->model)->n_active;
    r->total_rate = (double)(r->stats.n_in + r->stats.n_out) / r->stats.seconds;
    r->mean_step_tokens = steps ? (double)(after->step_tokens - before->step_tokens) / (double)steps : 0;
    r->preempted = after->preempted - before->preempted;
    r->busy_ns = after->busy_ns - before->busy_ns;
    r->idle_ns = after->idle_ns - before->idle_ns;
    r->optimum = l->peak_flops / (2 * params);
    r->at_best = at_best(l, &r->stats);
}

weft_status wf_load_run(const wf_load *l, wf_throughput_row *row)
{
    static const double no_limit[WF_N_METRICS];
    struct weft_stats before, after;
    wf_replay_params p = {.specs = l->specs->list,
                          .n = l->specs->n,
                          .at = l->at,
                          .window = l->window,
                          .together = l->together,
                          .n_vocab = weft_model_info(l->model)->n_vocab,
                          .seed = l->seed,
                          .stop = wf_interrupted,
                          .on_progress = on_progress,
                          .user = (void *)l};
    wf_request_result *results = wf_calloc(p.n, sizeof *results);
    double seconds;
    if (!results) return WEFT_ERR_NOMEM;
    weft_engine_stats(l->engine, &before);
    weft_status s = wf_replay(l->engine, &p, results, &seconds);
    weft_engine_stats(l->engine, &after);
    if (l->bar) wf_progress_end(l->bar);
    if (!s) s = wf_load_stats_make(results, p.n, seconds, no_limit, &row->stats);
    if (!s) fill_row(l, row, &before, &after);
    wf_request_results_free(results, p.n);
    return s;
}
