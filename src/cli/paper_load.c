/* paper_load: engines and loads of figures, at sizes that the model's context and the device's memory allow. */
#include "cli/paper.h"

#include <stdlib.h>
#include <string.h>

#define QUICK_LONGEST 64 /* tokens, of --quick */
#define MOST_WARM     64 /* requests */

/* ---- sizes -------------------------------------------------------------------------------- */

static uint32_t longest_context(const wf_paper *p)
{
    return p->o->engine.context ? p->o->engine.context : weft_model_info(p->m)->context;
}

int wf_paper_fit(wf_paper *p, uint32_t longest)
{
    double most = (double)longest_context(p) / longest;
    p->scale = WF_MIN(p->o->paper.scale > 0 ? (double)p->o->paper.scale : 1, most);
    if (p->o->paper.quick) p->scale = WF_MIN(p->scale, (double)QUICK_LONGEST / longest);
    if (p->scale == 1) return 0;
    return wf_paper_note(p, "lengths are %.3g of the paper's, the longest %u tokens instead of %u%s", p->scale, wf_paper_length(p, longest), longest,
                         p->scale == most ? ": the context has no more" : "");
}

uint32_t wf_paper_length(const wf_paper *p, uint32_t length)
{
    return WF_MAX((uint32_t)(length * p->scale + 1e-6), WF_PAPER_SHORTEST);
}

uint32_t wf_paper_repeat(const wf_paper *p)
{
    const uint32_t usual = p->figure->runs ? p->figure->runs : 3;
    return p->o->repeat ? p->o->repeat : p->o->paper.quick ? 1 : usual;
}

/* ---- engines ------------------------------------------------------------------------------ */

static int give_up(void)
{
    return wf_say_error(wf_fail_context(WEFT_ERR_NOMEM, "not even one sequence fits (a smaller -c or --scale may)"));
}

/* Keeps what the first engine says of the device; the others have the same. */
static int opened(wf_paper *p, wf_paper_engine *out, uint32_t wanted)
{
    const struct weft_device_info *d = weft_engine_device(out->e);
    wf_copy(p->device, sizeof p->device, d->name);
    wf_copy(p->driver, sizeof p->driver, d->driver);
    out->batch = weft_engine_max_batched_tokens(out->e);
    if (out->n_seqs == wanted) return 0;
    return wf_paper_note(p, "%u sequences of %u tokens instead of %u: the memory holds no more", out->n_seqs, out->context, wanted);
}

/* Memory of as many whole contexts; with a number of sequences that was asked for what a server takes, since few of them reach the longest context. */
static void take_seqs(const wf_paper *p, struct weft_engine_params *e, uint32_t n_seqs)
{
    e->n_seqs = n_seqs;
    if (p->o->engine.n_seqs) wf_batching_defaults(p->o, p->m, e);
    else e->kv_seqs = n_seqs;
}

int wf_paper_open(wf_paper *p, const char *policy, uint32_t n_seqs, uint32_t context, uint32_t batch, wf_paper_engine *out)
{
    struct weft_engine_params e = p->o->engine;
    *out = (wf_paper_engine){.policy = policy, .n_seqs = n_seqs, .context = context};
    e.policy = policy, e.context = context, e.max_batched_tokens = batch;
    if (p->calibration) e.calibration = p->calibration;
    wf_only_calibrated(p->m, &e);
    e.no_prefix = true; /* every run must compute its prompts */
    if (p->timed) e.profile = true, e.nano_batches = p->plan ? 0 : WF_MAX(p->nano_batches, 1u), e.plan = p->plan;
    e.on_progress = wf_on_progress, e.user = p->o->quiet ? NULL : &p->bar;
    for (;; out->n_seqs = (out->n_seqs + 1) / 2) {
        take_seqs(p, &e, out->n_seqs);
        weft_status s = wf_try_engine(p->o, p->m, e, &out->e);
        wf_progress_end(&p->bar);
        if (!s) return opened(p, out, n_seqs);
        if (s == WEFT_ERR_CANCELLED) return wf_interrupted_exit();
        if (s != WEFT_ERR_NOMEM) return wf_say_error(s);
        if (out->n_seqs == 1) return give_up();
    }
}

/* ---- loads -------------------------------------------------------------------------------- */

int wf_paper_run_once(wf_paper *p, const wf_paper_engine *e, const wf_request_specs *specs, const double *at, double peak, wf_throughput_row *row)
{
    wf_load l = {.engine = e->e, .model = p->m, .specs = specs, .at = at, .window = 2 * (size_t)e->n_seqs, .together = !at, .seed = p->n_runs++ << 32,
                 .peak_flops = peak, .what = e->policy, .bar = p->o->quiet ? NULL : &p->bar};
    *row = (wf_throughput_row){.policy = e->policy};
    weft_status s = wf_load_run(&l, row);
    if (s) return wf_say_error(s);
    if (wf_interrupted()) wf_load_stats_free(&row->stats);
    return wf_interrupted() ? wf_interrupted_exit() : 0;
}

static int run_one(wf_paper *p, const wf_paper_engine *e, const wf_request_specs *specs, double *seconds)
{
    wf_throughput_row row;
    int rc = wf_paper_run_once(p, e, specs, NULL, 0, &row);
    if (rc) return rc;
    *seconds = row.stats.seconds;
    wf_load_stats_free(&row.stats);
    return 0;
}

/* As many requests as run at once, or some of them, on an engine that has run none: what follows is not the first of anything. */
static int warm_up(wf_paper *p, wf_paper_engine *e, const wf_request_specs *specs, size_t n)
{
    double seconds;
    int rc = 0;
    for (size_t k = 0; k < n && !rc && !e->warm; k++) {
        wf_request_specs first = {specs[k].list, WF_MIN(specs[k].n, WF_MIN(e->n_seqs, MOST_WARM)), 0};
        rc = run_one(p, e, &first, &seconds);
    }
    e->warm = true;
    return rc;
}

int wf_paper_run_specs(wf_paper *p, wf_paper_engine *e, const wf_request_specs *specs, size_t n, wf_paper_times *times)
{
    int rc = warm_up(p, e, specs, n);
    for (size_t k = 0; k < n; k++) times[k].n = 0;
    for (uint32_t i = 0; i < wf_paper_repeat(p) && !rc; i++)
        for (size_t k = 0; k < n && !rc; k++) {
            rc = run_one(p, e, &specs[k], &times[k].v[i]);
            if (!rc) times[k].n++;
        }
    return rc;
}

weft_status wf_paper_equal(size_t n, uint32_t in, uint32_t out, wf_request_specs *specs)
{
    for (size_t i = 0; i < n; i++) WF_TRY(wf_request_specs_add(specs, (wf_request_spec){.n_in = in, .n_out = out, .at = -1}));
    return WEFT_OK;
}

int wf_paper_run(wf_paper *p, wf_paper_engine *e, size_t n, uint32_t in, uint32_t out, wf_paper_times *times)
{
    wf_request_specs specs = {0};
    weft_status s = wf_paper_equal(n, in, out, &specs);
    times->n = 0;
    int rc = s ? wf_say_error(s) : wf_paper_run_specs(p, e, &specs, 1, times);
    wf_request_specs_free(&specs);
    return rc;
}
