/* bench: the two measurements of llama-bench, prompt processing and generation, through the engine itself. */
#include "engine/engine.h"
#include "lab/lab.h"

#include <math.h>
#include <stdlib.h>

static void on_done(void *user, const struct weft_event *ev)
{
    if (ev->kind == WEFT_EVENT_DONE) *(uint64_t *)user = ev->prompt_ns + ev->decode_ns;
}

typedef struct run {
    struct weft_request *r;
    uint64_t ns;
} run;

/* Seconds of the longest of the concurrent requests, without its time in the queue. */
static weft_status run_once(struct weft_engine *e, const struct weft_bench_params *p, const int32_t *tokens,
                            double done, double part, double *seconds)
{
    uint32_t n = WF_MAX(p->n_seqs, 1u);
    const wf_watch w = {.what = "bench", .on_progress = p->on_progress, .user = p->user, .done = done, .part = part,
                        .before = wf_step_tokens(e), .tokens = n * ((uint64_t)p->n_prompt + p->n_gen)};
    run *runs = wf_calloc(n, sizeof *runs);
    weft_status s = runs ? WEFT_OK : WEFT_ERR_NOMEM;
    *seconds = 0;
    for (uint32_t i = 0; i < n && s == WEFT_OK; i++) {
        struct weft_request_params rp = {.tokens = tokens, .n_tokens = p->n_prompt, .max_tokens = p->n_gen,
                                         .ignore_eos = true, .prefill_only = !p->n_gen, .on_event = on_done,
                                         .user = &runs[i].ns};
        s = weft_submit(e, &rp, &runs[i].r);
    }
    for (uint32_t i = 0; runs && i < n && runs[i].r; i++) {
        weft_status end = wf_wait_watched(runs[i].r, &w);
        if (s == WEFT_OK) s = end;
        *seconds = WF_MAX(*seconds, (double)runs[i].ns * 1e-9);
        weft_request_free(runs[i].r);
    }
    free(runs);
    return s;
}

static int compare_rates(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

weft_status weft_bench(struct weft_engine *e, const struct weft_bench_params *p, struct weft_bench_result *out)
{
    if (!p->n_prompt && !p->n_gen) return wf_fail(WEFT_ERR_ARG, "weft_bench: want n_prompt or n_gen");
    uint32_t n = p->repeat ? p->repeat : 5;
    if (p->n_prompt && !e->sched.p.kv.no_prefix)
        return wf_fail(WEFT_ERR_ARG,
                       "weft_bench: want an engine with no_prefix: otherwise equal prompts are computed once");
    if (p->n_gen && (uint64_t)p->n_prompt + p->n_gen + 1 > e->layout.context)
        return wf_fail(WEFT_ERR_FULL, "%u + %u tokens do not fit the context of %u", p->n_prompt, p->n_gen,
                       e->layout.context);
    int32_t *tokens = wf_calloc((size_t)p->n_prompt + 1, sizeof *tokens);
    double *rates = wf_calloc(n, sizeof *rates);
    for (uint32_t i = 0; tokens && i < p->n_prompt; i++) tokens[i] = (int32_t)(wf_random(1, i) % e->model->hp.n_vocab);
    weft_status s = tokens && rates ? WEFT_OK : WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i <= n && s == WEFT_OK; i++) { /* the first run is a warm-up */
        double seconds = 0, part = 1.0 / (n + 1);
        s = run_once(e, p, tokens, i * part, part, &seconds);
        if (i) rates[i - 1] = (double)WF_MAX(p->n_seqs, 1u) * (p->n_gen ? p->n_gen : p->n_prompt) / seconds;
        if (s == WEFT_OK && p->on_progress) p->on_progress(p->user, "bench", (double)(i + 1) / (n + 1));
    }
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < n && s == WEFT_OK; i++) sum += rates[i];
    for (uint32_t i = 0; i < n && s == WEFT_OK; i++) squares += (rates[i] - sum / n) * (rates[i] - sum / n);
    if (s == WEFT_OK) {
        qsort(rates, n, sizeof *rates, compare_rates);
        *out = (struct weft_bench_result){.mean = sum / n, .stddev = n > 1 ? sqrt(squares / (n - 1)) : 0, .repeat = n,
                                          .median = (rates[n / 2] + rates[(n - 1) / 2]) / 2};
    }
    free(tokens);
    free(rates);
    return s;
}
