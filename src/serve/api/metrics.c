/* metrics: counters and histograms in Prometheus' text format, under vLLM's names so that its dashboards work. */
#include "serve/api/internal.h"

#include <stdio.h>
#include <stdlib.h>
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
    [WF_HIST_PROMPT] = {"request_prompt_tokens", "Prompt tokens.", TOKENS},
    [WF_HIST_GENERATION] = {"request_generation_tokens", "Generated tokens.", TOKENS},
    [WF_HIST_TTFT] = {"time_to_first_token_seconds", "Time from the arrival of a request to its first token.", SECONDS},
    [WF_HIST_ITL] = {"inter_token_latency_seconds", "Time between two generated tokens.", SECONDS},
    [WF_HIST_E2E] = {"e2e_request_latency_seconds", "Time from the arrival of a request to its last token.", SECONDS},
    [WF_HIST_QUEUE] = {"request_queue_time_seconds", "Time in the queue, before the first step.", SECONDS},
    [WF_HIST_PREFILL] = {"request_prefill_time_seconds", "Time from the first step to the first token.", SECONDS},
    [WF_HIST_DECODE] = {"request_decode_time_seconds", "Time from the first token to the last.", SECONDS},
};
static const char *const finishes[] = {"stop", "length", "abort", "error"};

static void observe_value(wf_metrics *m, enum wf_hist h, double v)
{
    size_t i = 0;
    while (i < WF_HIST_BUCKETS && v > hists[h].bounds[i]) i++;
    m->counts[h][i]++;
    m->sums[h] += v;
}

void wf_metrics_http(wf_server *s, const wf_route *route, int status)
{
    size_t i = 0;
    while (wf_route_at(i) && wf_route_at(i) != route) i++;
    atomic_fetch_add(&s->requests[i][WF_MIN(status / 100, WF_STATUS_CLASSES - 1)], 1);
}

void wf_metrics_started(wf_metrics *m)
{
    pthread_mutex_lock(&m->lock);
    m->started++;
    pthread_mutex_unlock(&m->lock);
}

void wf_metrics_token(wf_metrics *m, double seconds, bool first)
{
    pthread_mutex_lock(&m->lock);
    m->generation_tokens++;
    observe_value(m, first ? WF_HIST_TTFT : WF_HIST_ITL, seconds);
    pthread_mutex_unlock(&m->lock);
}

void wf_metrics_done(wf_metrics *m, const struct weft_event *end, double e2e, bool first)
{
    bool failed = end->status != WEFT_OK && end->status != WEFT_ERR_CANCELLED;
    pthread_mutex_lock(&m->lock);
    m->finished[failed ? 3 : end->finish == WEFT_FINISH_STOP ? 0 : end->finish == WEFT_FINISH_CANCEL ? 2 : 1]++;
    m->corrupted += end->status == WEFT_ERR_NOT_FINITE;
    if (first) m->prompt_tokens += end->n_prompt;
    if (first) observe_value(m, WF_HIST_PROMPT, end->n_prompt);
    observe_value(m, WF_HIST_GENERATION, end->n_generated);
    observe_value(m, WF_HIST_E2E, e2e);
    observe_value(m, WF_HIST_QUEUE, (double)end->queue_ns * 1e-9);
    observe_value(m, WF_HIST_PREFILL, (double)end->prompt_ns * 1e-9);
    observe_value(m, WF_HIST_DECODE, (double)end->decode_ns * 1e-9);
    pthread_mutex_unlock(&m->lock);
}

/* ---- text ---------------------------------------------------------------------------------------------------- */

/* What is printed, by metric: the lines of a metric come together, those of all models. */
typedef struct page {
    wf_server *server;
    wf_served *model; /* whose lines come now; NULL: those of the server, which has several */
    struct metric {
        const char *name;
        wf_text lines;
    } metrics[80];
    size_t n;
    wf_text *lines; /* of the present one */
} page;

/* The lines that follow are of this metric. */
static void print_head(page *p, const char *name, const char *type, const char *help)
{
    const char *prefix = p->server->p.metrics_prefix;
    size_t i = 0;
    while (i < p->n && strcmp(p->metrics[i].name, name)) i++;
    if (i == WF_LEN(p->metrics)) i--; /* there are not so many */
    p->lines = &p->metrics[i].lines;
    if (i < p->n) return;
    p->metrics[p->n++].name = name;
    wf_text_print(p->lines, "# HELP %s%s %s\n# TYPE %s%s %s\n", prefix, name, help, prefix, name, type);
}

/* One sample. label: one more behind the model's name and the engine, as vLLM has them, or NULL. */
static void print_line(page *p, const char *name, const char *tail, const char *label, const char *is, double v)
{
    wf_text_print(p->lines, "%s%s%s{", p->server->p.metrics_prefix, name, tail);
    if (p->model) wf_text_print(p->lines, "model_name=\"%s\",engine=\"0\"", p->model->name);
    if (label) wf_text_print(p->lines, "%s%s=\"%s\"", p->model ? "," : "", label, is);
    wf_text_print(p->lines, "} %.17g\n", v);
}

static void print_one(page *p, const char *name, const char *type, const char *help, double v)
{
    print_head(p, name, type, help);
    print_line(p, name, "", NULL, NULL, v);
}

static void print_hist(page *p, const char *name, const char *help,
                       const double *bounds, size_t n, const uint64_t *counts, double sum)
{
    char bound[32];
    uint64_t total = 0;
    print_head(p, name, "histogram", help);
    for (size_t i = 0; i <= n; i++) {
        snprintf(bound, sizeof bound, "%g", i < n ? bounds[i] : 0);
        total += counts[i];
        print_line(p, name, "_bucket", "le", i < n ? bound : "+Inf", (double)total);
    }
    print_line(p, name, "_count", NULL, NULL, (double)total);
    print_line(p, name, "_sum", NULL, NULL, sum);
}

static void print_step(page *p, const char *class, uint64_t ns, uint64_t n)
{
    const char *label = class ? "class" : NULL;
    print_line(p, "step_seconds", "_sum", label, class, (double)ns * 1e-9);
    print_line(p, "step_seconds", "_count", label, class, (double)n);
}

/* Step times: as a whole, or by class if the engine was opened with `profile` and the device reports times. A device
 * that does not report any has none after the first step. */
static void print_steps(page *p, const struct weft_stats *e)
{
    print_head(p, "step_seconds", "summary",
               "Time of a step; by class: time of its ops, or time that the device waited for the host.");
    if (!p->server->p.profile || (e->steps && !e->busy_ns)) {
        print_step(p, NULL, e->step_ns, e->steps);
        return;
    }
    print_step(p, "compute", e->compute_ns, e->steps);
    print_step(p, "memory", e->memory_ns, e->steps);
    print_step(p, "network", e->network_ns, e->steps);
    print_step(p, "copy", e->copy_ns, e->steps);
    print_step(p, "host", e->idle_ns, e->steps);
    print_one(p, "nano_batch_overlap_ratio", "gauge",
              "Fraction of the device's busy time in which ops of two queues overlapped, since the start.",
              e->busy_ns ? WF_MIN((double)e->overlap_ns / (double)e->busy_ns, 1.0) : 0);
}

static void print_swapped(page *p, const char *direction, uint64_t bytes)
{
    wf_text_print(p->lines,
                  "%skv_swapped_bytes_total{model_name=\"%s\",engine=\"0\",direction=\"%s\",tier=\"host\"} %llu\n",
                  p->server->p.metrics_prefix, p->model->name, direction, (unsigned long long)bytes);
}

static void print_layers(page *p, const char *name, const char *help, const uint32_t *layers,
                         const uint64_t *values, uint32_t n)
{
    char layer[16];
    print_head(p, name, "counter", help);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(layer, sizeof layer, "%u", layers[i]);
        print_line(p, name, "", "layer", layer, (double)values[i]);
    }
}

/* No layer with asynchronous softmax: no such metrics. */
static void print_softmax(page *p)
{
    uint32_t n = weft_engine_softmax(p->model->engine, NULL, NULL, NULL, 0), *layers = wf_calloc(n, sizeof *layers);
    uint64_t *rows = wf_calloc(n, sizeof *rows), *recomputed = wf_calloc(n, sizeof *recomputed);
    if (n && layers && rows && recomputed && weft_engine_softmax(p->model->engine, layers, rows, recomputed, n) == n) {
        print_layers(
            p, "softmax_async_layer_total",
            "Softmax rows (query and head) computed with the asynchronous softmax, of each layer that uses it.", layers,
            rows, n);
        print_layers(p, "softmax_recompute_layer_total",
                     "Softmax rows recomputed, of each layer that uses the asynchronous softmax.", layers, recomputed,
                     n);
    }
    free(layers);
    free(rows);
    free(recomputed);
}

typedef struct tiers {
    struct weft_kv_tier_stats list[WEFT_N_KV_TIERS]; /* bytes 0: there is none */
} tiers;

static uint64_t of_tier(const tiers *t, int tier, size_t field)
{
    uint64_t v;
    memcpy(&v, (const char *)&t->list[tier] + field, sizeof v);
    return v;
}

/* Each tier that there is, both ways. */
static void print_transfers(page *p, const tiers *t, const char *name, const char *help, size_t down, size_t up,
                            double scale)
{
    static const char *const names[WEFT_N_KV_TIERS][2] = {{"GPU_to_CPU", "CPU_to_GPU"}, {"CPU_to_disk", "disk_to_CPU"}};
    print_head(p, name, "counter", help);
    for (int i = 0; i < WEFT_N_KV_TIERS; i++)
        for (int way = 0; t->list[i].bytes && way < 2; way++)
            print_line(p, name, "", "transfer_type", names[i][way], scale * (double)of_tier(t, i, way ? up : down));
}

#define FIELD(name) offsetof(struct weft_kv_tier_stats, name)
static const struct {
    const char *name, *type;
    size_t field;
    const char *help;
} of_tiers[] = {
    {"kv_offload_size_bytes", "gauge", FIELD(bytes), "Size of a tier below the KV cache."},
    {"kv_offload_used_bytes", "gauge", FIELD(used_bytes), "Of that, what holds blocks."},
    {"kv_offload_evicted_total", "counter", FIELD(evicted), "Blocks whose place others took."},
    {"kv_offload_dropped_total", "counter", FIELD(dropped), "Blocks that there was no room or time to store."},
    {"kv_offload_failed_total", "counter", FIELD(failed), "Copies that failed, and loads that were given up."},
    {"kv_offload_paused_total", "counter", FIELD(paused),
     "Times that a tier was left alone for a while, after failures in a row."},
};

/* found: prompt tokens that were found in the KV cache. */
static void print_tiers(page *p, uint64_t found)
{
    tiers t = {0};
    uint64_t queries = 0, hits = 0, bytes = 0;
    for (int i = 0; i < WEFT_N_KV_TIERS; i++) {
        weft_engine_kv_tier_stats(p->model->engine, (enum weft_kv_tier)i, &t.list[i]);
        queries += t.list[i].queries, hits += t.list[i].hits, bytes += t.list[i].bytes;
    }
    print_one(p, "prompt_tokens_cached_total", "counter", "Prompt tokens that were not computed.",
              (double)(found + hits));
    if (!bytes) return;
    print_one(p, "external_prefix_cache_queries_total", "counter",
              "Prompt tokens that were not in the prefix cache, looked up below it.", (double)queries);
    print_one(p, "external_prefix_cache_hits_total", "counter", "Of these, loaded.", (double)hits);
    print_transfers(p, &t, "kv_offload_total_bytes_total", "Bytes of KV copied between tiers.", FIELD(stored_bytes),
                    FIELD(loaded_bytes), 1);
    print_transfers(p, &t, "kv_offload_total_time_total", "Seconds of these copies.", FIELD(store_ns), FIELD(load_ns),
                    1e-9);
    static const char *const names[WEFT_N_KV_TIERS] = {"host", "disk"};
    for (size_t k = 0; k < WF_LEN(of_tiers); k++) {
        print_head(p, of_tiers[k].name, of_tiers[k].type, of_tiers[k].help);
        for (int i = 0; i < WEFT_N_KV_TIERS; i++)
            if (t.list[i].bytes)
                print_line(p, of_tiers[k].name, "", "tier", names[i], (double)of_tier(&t, i, of_tiers[k].field));
    }
}

static void print_engine(page *p)
{
    struct weft_stats e = {0};
    double bounds[WEFT_STEP_TOKENS_BUCKETS];
    uint64_t counts[WEFT_STEP_TOKENS_BUCKETS + 1] = {0};
    weft_engine_stats(p->model->engine, &e);
    memcpy(counts, e.step_tokens_hist, sizeof e.step_tokens_hist);
    for (size_t i = 0; i < WEFT_STEP_TOKENS_BUCKETS; i++) bounds[i] = (double)(1u << i);
    print_one(p, "num_requests_running", "gauge", "Sequences that are running.", e.running);
    print_one(p, "num_requests_waiting", "gauge", "Sequences that are waiting.", e.waiting);
    print_head(p, "num_requests_waiting_by_reason", "gauge",
               "The same: for room in the batch and the KV cache, or put off for another reason.");
    print_line(p, "num_requests_waiting_by_reason", "", "reason", "capacity", e.waiting);
    print_line(p, "num_requests_waiting_by_reason", "", "reason", "deferred", 0);
    print_one(p, "num_clients_waiting", "gauge", "Clients with sequences that have not run yet.",
              e.waiting_clients);
    print_one(p, "longest_wait_seconds", "gauge",
              "How long the sequence that has not run yet and came first has been waiting.",
              (double)e.longest_wait_ns * 1e-9);
    print_one(p, "kv_cache_usage_perc", "gauge", "KV cache usage, 1 is full.",
              e.kv_pages ? (double)e.kv_pages_used / e.kv_pages : 0);
    print_one(p, "num_preemptions_total", "counter", "Sequences preempted because the KV cache was full.",
              (double)e.preempted);
    print_one(p, "recomputed_tokens_total", "counter",
              "Tokens of preempted sequences computed again, because the host had no memory for their KV pages.",
              (double)e.recomputed_tokens);
    print_one(p, "prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.",
              (double)e.prefix_queries);
    print_one(p, "prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.",
              (double)e.prefix_hits);
    print_tiers(p, e.prefix_hits);
    print_one(p, "embeddings_total", "counter", "Embeddings, or scores, that were computed.", (double)e.embeddings);
    print_one(p, "spec_decode_num_draft_tokens_total", "counter", "Draft tokens that steps verified.",
              (double)e.draft_tokens);
    print_one(p, "spec_decode_num_accepted_tokens_total", "counter", "Draft tokens that were accepted.",
              (double)e.draft_accepted);
    print_one(p, "prefill_decode_ratio", "gauge",
              "Prompt tokens computed for each generated token, over about the last 64 requests that finished.",
              e.prefill_decode_ratio);
    print_one(p, "softmax_recompute_total", "counter",
              "Softmax rows (query and head) recomputed because their scores left the calibrated range.",
              (double)e.softmax_recomputed);
    print_softmax(p);
    print_head(p, "kv_swapped_bytes_total", "counter",
               "Bytes of KV cache of preempted sequences: swapped out to another tier, and swapped in.");
    print_swapped(p, "out", e.swapped_out_bytes);
    print_swapped(p, "in", e.swapped_in_bytes);
    print_steps(p, &e);
    print_hist(p, "iteration_tokens_total", "Tokens per step.", bounds, WEFT_STEP_TOKENS_BUCKETS,
               counts, (double)e.step_tokens);
}

/* By the name and with the labels that vLLM's dashboards and most of Python's servers have, whatever the prefix. */
static void print_http(const wf_server *s, wf_text *out)
{
    wf_text_print(out, "# HELP http_requests_total Requests, by path, method and status.\n"
                       "# TYPE http_requests_total counter\n");
    for (size_t i = 0; i < WF_MAX_ROUTES; i++)
        for (int class = 0; class < WF_STATUS_CLASSES; class++) {
            uint64_t n = atomic_load(&s->requests[i][class]);
            const wf_route *r = wf_route_at(i);
            if (n)
                wf_text_print(out, "http_requests_total{handler=\"%s\",method=\"%s\",status=\"%dxx\"} %llu\n",
                              r ? r->path : "none", r ? r->method : "none", class, (unsigned long long)n);
        }
}

static void print_server(page *p)
{
    wf_server *s = p->server;
    print_one(p, "body_memory_bytes", "gauge", "Memory of request bodies and prompts.",
              (double)atomic_load(&s->bodies.used));
    print_one(p, "reply_memory_bytes", "gauge", "Memory of replies.", (double)atomic_load(&s->replies.used));
    print_one(p, "bodies_read_total", "counter", "Large requests that were read.",
              (double)atomic_load(&s->work.n_read));
    print_one(p, "bodies_given_up_total", "counter", "Large requests whose client left while they were read.",
              (double)atomic_load(&s->work.n_given_up));
    print_one(p, "num_bodies_waiting", "gauge", "Large requests that wait to be read.", wf_work_waiting(s));
}

static void print_counts(page *p, const wf_metrics *m)
{
    print_one(p, "prompt_tokens_total", "counter", "Prompt tokens.", (double)m->prompt_tokens);
    print_one(p, "generation_tokens_total", "counter", "Generated tokens.", (double)m->generation_tokens);
    print_one(p, "requests_started_total", "counter",
              "Sequences that were accepted; each ends in request_success_total.", (double)m->started);
    print_one(p, "corrupted_requests_total", "counter",
              "Sequences that failed because the model gave a logit that is not a finite number.",
              (double)m->corrupted);
    print_head(p, "request_success_total", "counter", "Sequences that have ended.");
    for (size_t i = 0; i < WF_LEN(finishes); i++)
        print_line(p, "request_success_total", "", "finished_reason", finishes[i], (double)m->finished[i]);
    for (size_t h = 0; h < WF_N_HISTS; h++)
        print_hist(p, hists[h].name, hists[h].help, hists[h].bounds, WF_HIST_BUCKETS, m->counts[h], m->sums[h]);
}

void wf_metrics_print(wf_server *s, wf_text *out)
{
    page p = {.server = s};
    print_http(s, out);
    while ((p.model = wf_served_next(s, p.model))) {
        bool ready = wf_served_hold(p.model);
        if (ready) print_engine(&p);
        /* What its requests have come to; of one that is not loaded, and never was asked for, there is nothing. */
        wf_metrics *m = &p.model->metrics;
        pthread_mutex_lock(&m->lock);
        bool any = ready || m->started;
        if (any) print_counts(&p, m);
        pthread_mutex_unlock(&m->lock);
        if (ready) wf_served_drop(p.model, false);
    }
    p.model = s->models.several ? NULL : s->models.usual;
    print_server(&p);
    for (size_t i = 0; i < p.n; i++) {
        const wf_text *lines = &p.metrics[i].lines;
        if (!lines->failed) wf_text_add(out, lines->data, lines->len);
        out->failed |= lines->failed;
        free(lines->data);
    }
}
