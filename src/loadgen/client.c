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

/* Sends the first requests once before the measured run. */
static weft_status warm_up(const wf_target *t, const wf_request_specs *specs)
{
    wf_client_params p = *t->p;
    wf_target quiet = *t;
    wf_load_run r = {0};
    wf_request_specs few = {specs->list, WF_MIN((size_t)p.n_warmups, specs->n), 0};
    if (!few.n) return WEFT_OK;
    p.quiet = true;
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

static int report(const wf_target *t, const wf_load_run *r)
{
    wf_load_stats stats = {0};
    if (summarise(t, r, &stats)) return say_error();
    wf_report_print(t->p, &stats);
    wf_report_failures(r);
    bool lost = t->p->save && wf_result_json_save(t, r, &stats);
    int rc = lost ? say_error() : stats.completed ? EXIT_SOME : EXIT_NONE;
    wf_load_stats_free(&stats);
    return t->p->stop && t->p->stop() ? EXIT_STOPPED : rc;
}

static int run_benchmark(wf_target *t)
{
    wf_request_specs specs = {0};
    wf_load_run r = {0};
    weft_status s = wf_prompts_make(t, t->p->n, &specs);
    if (!s) s = warm_up(t, &specs);
    if (!s) s = wf_load_run_init(&r, t, &specs);
    if (!s) s = wf_load_run_execute(&r, t, t->p->max_concurrency);
    int rc = s ? say_error() : report(t, &r);
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
    if (!s && !p->quiet && random && !t.pool && !p->chat && p->prompts == WF_PROMPTS_AUTO)
        fprintf(stderr, "weft: the server has no /tokenize endpoint: prompts are made of words, and their lengths in "
                        "tokens are approximate\n");
    int rc = s ? say_error() : run_benchmark(&t);
    wf_target_close(&t);
    curl_global_cleanup();
    return rc;
}
