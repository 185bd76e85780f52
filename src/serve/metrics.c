/* metrics: counts and histograms in Prometheus' text format, under vLLM's names so that its
 * dashboards fit. */
#include "serve/internal.h"

#include <string.h>

#define SECONDS                                                                                    \
    {                                                                                              \
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30,  \
            60, 120, 600                                                                           \
    }
#define TOKENS                                                                                     \
    {                                                                                              \
        1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6  \
    }

static const struct {
    const char *name, *help;
    double bounds[WF_HIST_BUCKETS];
} hists[WF_N_HISTS] = {
    [WF_HIST_PROMPT] = {"request_prompt_tokens", "Tokens of prompts.", TOKENS},
    [WF_HIST_GENERATION] = {"request_generation_tokens", "Tokens of answers.", TOKENS},
    [WF_HIST_TTFT] = {"time_to_first_token_seconds", "From a request's arrival to its first token.",
                      SECONDS},
    [WF_HIST_ITL] = {"inter_token_latency_seconds", "From one token of an answer to the next.",
                     SECONDS},
    [WF_HIST_E2E] = {"e2e_request_latency_seconds", "From a request's arrival to its last token.",
                     SECONDS},
    [WF_HIST_QUEUE] = {"request_queue_time_seconds", "Waiting for the first step.", SECONDS},
    [WF_HIST_PREFILL] = {"request_prefill_time_seconds", "From the first step to the first token.",
                         SECONDS},
    [WF_HIST_DECODE] = {"request_decode_time_seconds", "From the first token to the last.",
                        SECONDS},
};
static const char *const finishes[] = {"stop", "length", "abort", "error"};

static void observe(wf_metrics *m, enum wf_hist h, double v)
{
    size_t i = 0;
    while (i < WF_HIST_BUCKETS && v > hists[h].bounds[i]) i++;
    m->counts[h][i]++;
    m->sums[h] += v;
}

void wf_metrics_token(wf_metrics *m, double seconds, bool first)
{
    pthread_mutex_lock(&m->lock);
    m->generation_tokens++;
    observe(m, first ? WF_HIST_TTFT : WF_HIST_ITL, seconds);
    pthread_mutex_unlock(&m->lock);
}

static size_t finish_of(const struct weft_event *end)
{
    if (end->status != WEFT_OK && end->status != WEFT_ERR_CANCELLED) return 3;
    return end->finish == WEFT_FINISH_STOP ? 0 : end->finish == WEFT_FINISH_CANCEL ? 2 : 1;
}

void wf_metrics_done(wf_metrics *m, const struct weft_event *end, double e2e)
{
    pthread_mutex_lock(&m->lock);
    m->finished[finish_of(end)]++;
    m->prompt_tokens += end->n_prompt;
    observe(m, WF_HIST_PROMPT, end->n_prompt);
    observe(m, WF_HIST_GENERATION, end->n_generated);
    observe(m, WF_HIST_E2E, e2e);
    observe(m, WF_HIST_QUEUE, (double)end->queue_ns * 1e-9);
    observe(m, WF_HIST_PREFILL, (double)end->prompt_ns * 1e-9);
    observe(m, WF_HIST_DECODE, (double)end->decode_ns * 1e-9);
    pthread_mutex_unlock(&m->lock);
}

/* ---- text
 * -----------------------------------------------------------------------------------------------------
 */

static const char *prefix_of(const wf_server *s)
{
    return s->p.metrics_prefix;
}

static void print_one(const wf_server *s, wf_text *out, const char *name, const char *type,
                      const char *help, double v)
{
    const char *p = prefix_of(s);
    wf_text_print(out, "# HELP %s%s %s\n# TYPE %s%s %s\n", p, name, help, p, name, type);
    wf_text_print(out, "%s%s{model_name=\"%s\"} %.17g\n", p, name, s->name, v);
}

static void print_hist(const wf_server *s, wf_text *out, const char *name, const char *help,
                       const double *bounds, size_t n, const uint64_t *counts, double sum)
{
    const char *p = prefix_of(s);
    uint64_t total = 0;
    wf_text_print(out, "# HELP %s%s %s\n# TYPE %s%s histogram\n", p, name, help, p, name);
    for (size_t i = 0; i < n; i++) {
        total += counts[i];
        wf_text_print(out, "%s%s_bucket{model_name=\"%s\",le=\"%g\"} %llu\n", p, name, s->name,
                      bounds[i], (unsigned long long)total);
    }
    total += counts[n];
    wf_text_print(out, "%s%s_bucket{model_name=\"%s\",le=\"+Inf\"} %llu\n", p, name, s->name,
                  (unsigned long long)total);
    wf_text_print(out, "%s%s_count{model_name=\"%s\"} %llu\n", p, name, s->name,
                  (unsigned long long)total);
    wf_text_print(out, "%s%s_sum{model_name=\"%s\"} %.17g\n", p, name, s->name, sum);
}

static void print_steps(const wf_server *s, wf_text *out, const struct weft_stats *e)
{
    const char *p = prefix_of(s);
    wf_text_print(out, "# HELP %sstep_seconds Time of a step.\n# TYPE %sstep_seconds summary\n", p, p);
    wf_text_print(out, "%sstep_seconds_sum{model_name=\"%s\"} %.9f\n", p, s->name,
                  (double)e->step_ns * 1e-9);
    wf_text_print(out, "%sstep_seconds_count{model_name=\"%s\"} %llu\n", p, s->name,
                  (unsigned long long)e->steps);
}

static void print_engine(wf_server *s, wf_text *out)
{
    struct weft_stats e = {0};
    double bounds[WEFT_ROWS_BUCKETS];
    uint64_t counts[WEFT_ROWS_BUCKETS + 1] = {0};
    weft_engine_stats(s->engine, &e);
    memcpy(counts, e.rows_hist, sizeof e.rows_hist);
    for (size_t i = 0; i < WEFT_ROWS_BUCKETS; i++) bounds[i] = (double)(1u << i);
    print_one(s, out, "num_requests_running", "gauge", "Sequences that run.", e.running);
    print_one(s, out, "num_requests_waiting", "gauge", "Sequences that wait.", e.waiting);
    print_one(s, out, "kv_cache_usage_perc", "gauge", "Used part of the KV cache, 1 is all.",
              e.kv_pages ? (double)e.kv_pages_used / e.kv_pages : 0);
    print_one(s, out, "num_preemptions_total", "counter", "Sequences put aside for lack of KV cache.",
              (double)e.preempted);
    print_one(s, out, "prefix_cache_queries_total", "counter", "Prompt tokens looked for in the KV cache.",
              (double)e.prefix_queries);
    print_one(s, out, "prefix_cache_hits_total", "counter", "Prompt tokens found there.", (double)e.prefix_hits);
    print_one(s, out, "softmax_recompute_total", "counter", "Attention rows and heads whose scores left the calibrated range.",
              (double)e.softmax_recomputed);
    print_steps(s, out, &e);
    print_hist(s, out, "iteration_tokens_total", "Tokens of a step.", bounds, WEFT_ROWS_BUCKETS,
               counts, (double)e.rows);
}

void wf_metrics_print(wf_server *s, wf_text *out)
{
    wf_metrics *m = &s->metrics;
    const char *p = prefix_of(s);
    print_engine(s, out);
    pthread_mutex_lock(&m->lock);
    print_one(s, out, "prompt_tokens_total", "counter", "Tokens of prompts.",
              (double)m->prompt_tokens);
    print_one(s, out, "generation_tokens_total", "counter", "Tokens of answers.",
              (double)m->generation_tokens);
    wf_text_print(out,
                  "# HELP %srequest_success_total Sequences that ended.\n# TYPE "
                  "%srequest_success_total counter\n",
                  p, p);
    for (size_t i = 0; i < WF_LEN(finishes); i++)
        wf_text_print(out,
                      "%srequest_success_total{model_name=\"%s\",finished_reason=\"%s\"} %llu\n", p,
                      s->name, finishes[i], (unsigned long long)m->finished[i]);
    for (size_t h = 0; h < WF_N_HISTS; h++)
        print_hist(s, out, hists[h].name, hists[h].help, hists[h].bounds, WF_HIST_BUCKETS,
                   m->counts[h], m->sums[h]);
    pthread_mutex_unlock(&m->lock);
}
