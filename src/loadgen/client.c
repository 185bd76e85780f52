/* client: runs one benchmark from its parameters to its result. See client.h. */
#include "loadgen/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { EXIT_SOME = 0, EXIT_NONE = 1, EXIT_STOPPED = 130 };

static int say_error(void)
{
    fprintf(stderr, "weft: error: %s\n", weft_last_error());
    return EXIT_NONE;
}

static void note(const wf_client_params *p, const char *text)
{
    if (!p->quiet) fprintf(stderr, "weft: %s\n", text);
}

static bool stopped(const wf_client_params *p)
{
    return p->stop && p->stop();
}

/* Sends the first requests once before the measured run. */
static weft_status warm_up(const wf_target *t, const wf_request_specs *specs)
{
    wf_client_params p = *t->p;
    wf_target quiet = *t;
    wf_load_run r = {0};
    wf_request_specs few = {specs->list, WF_MIN(p.n_warmups, specs->n), 0};
    if (!few.n) return WEFT_OK;
    p.no_bar = true;
    p.rate = HUGE_VAL;
    p.seed ^= 0x5eed; /* different prompts, so that the prefix cache does not hold the measured ones */
    quiet.p = &p;
    weft_status s = wf_load_run_init(&r, &quiet, &few);
    if (!s) s = wf_load_run_execute(&r, &quiet, p.max_concurrency);
    wf_load_run_free(&r);
    return s;
}

/* Counts finished requests only: after Ctrl-C the result of the others is unknown. */
static weft_status summarise(const wf_target *t, const wf_load_run *r, wf_load_stats *out)
{
    wf_request_result *ended = wf_calloc(r->n, sizeof *ended);
    size_t n = 0;
    if (!ended) return WEFT_ERR_NOMEM;
    for (size_t i = 0; i < r->n; i++)
        if (r->x[i].ended) ended[n++] = r->result[i];
    weft_status s = wf_load_stats_make(ended, n, r->seconds, t->p->limit_ms, out);
    free(ended); /* r owns the gaps */
    return s;
}

/* Runs the load while n_large clients send large bodies. */
static weft_status run_beside(const wf_target *t, wf_load_run *r, size_t n_large, wf_beside_result *out)
{
    wf_beside *b = wf_beside_start(t, n_large);
    if (!b) return wf_fail(WEFT_ERR_NOMEM, "out of memory or threads for WEFT_LARGE_BODIES");
    weft_status s = wf_load_run_execute(r, t, t->p->max_concurrency);
    wf_beside_end(b, out);
    wf_beside_free(b);
    return s;
}

/* The load without large bodies, with other prompts: none that the server may have kept. */
static weft_status run_without(const wf_target *t, const wf_request_specs *specs, wf_waits *out)
{
    wf_client_params p = *t->p;
    wf_target other = *t;
    wf_load_run r = {0};
    p.seed ^= 0x1a49e;
    other.p = &p;
    weft_status s = wf_load_run_init(&r, &other, specs);
    if (!s) s = run_beside(&other, &r, 0, &out->beside);
    if (!s) s = summarise(&other, &r, &out->load);
    wf_load_run_free(&r);
    return s;
}

static weft_status run_both(const wf_target *t, const wf_request_specs *specs, wf_load_run *r, wf_waits *without,
                            wf_waits *with)
{
    weft_status s = run_without(t, specs, without);
    return s ? s : run_beside(t, r, t->p->n_large, &with->beside);
}

static int report(const wf_target *t, const wf_load_run *r, const wf_waits *without, wf_waits *with)
{
    if (summarise(t, r, &with->load)) return say_error();
    wf_report_print(t->p, &with->load);
    if (t->p->n_large) wf_report_waits(t->p, without, with);
    wf_report_failures(r);
    bool lost = t->p->save && wf_result_json_save(t, r, &with->load);
    int rc = lost ? say_error() : with->load.completed ? EXIT_SOME : EXIT_NONE;
    return stopped(t->p) ? EXIT_STOPPED : rc;
}

static void waits_free(wf_waits *w)
{
    free(w->beside.health.v);
    wf_load_stats_free(&w->load);
}

static int run_benchmark(wf_target *t)
{
    const wf_client_params *p = t->p;
    wf_request_specs specs = {0};
    wf_load_run r = {0};
    wf_waits without = {0}, with = {0};
    weft_status s = wf_prompts_make(t, p->n, &specs);
    if (!s) s = warm_up(t, &specs);
    if (!s) s = wf_load_run_init(&r, t, &specs);
    if (!s)
        s = p->n_large ? run_both(t, &specs, &r, &without, &with) : wf_load_run_execute(&r, t, p->max_concurrency);
    int rc = s ? say_error() : report(t, &r, &without, &with);
    waits_free(&without);
    waits_free(&with);
    wf_load_run_free(&r);
    wf_request_specs_free(&specs);
    return rc;
}

int wf_client_run(const wf_client_params *p)
{
    wf_target t;
    if (curl_global_init(CURL_GLOBAL_DEFAULT))
        return fprintf(stderr, "weft: error: cannot initialise libcurl\n"), EXIT_NONE;
    weft_status s = wf_target_open(p, &t);
    if (!s && t.unreachable[0])
        s = wf_fail(
            WEFT_ERR_IO,
            "no server answers at %s: %s; `weft serve MODEL` starts one, and --port, --host or --base-url name another",
            p->base_url, t.unreachable);
    if (!s && p->save) s = wf_result_json_check(&t); /* fail before minutes of measuring, not after */
    bool random = p->dataset == WF_DATASET_RANDOM;
    if (!s && random && !t.pool && !p->chat && p->prompts == WF_PROMPTS_AUTO)
        note(p, "the server has no /tokenize endpoint: prompts are made of words, and their lengths in tokens "
                "are approximate");
    int rc = s ? say_error() : run_benchmark(&t);
    wf_target_close(&t);
    curl_global_cleanup();
    return rc;
}
