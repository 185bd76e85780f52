/* stats: per-request timings and the metrics computed from them. `weft bench serve` (over HTTP) and `weft bench
 * throughput` (in the process) fill request_results and read metrics.
 *
 * Definitions follow `vllm bench serve`: TTFT is the time from the start of a request to its first token, E2EL to its
 * last one; TPOT is (E2EL - TTFT) / (output tokens - 1); ITL is each gap between two tokens. NORM is NanoFlow's
 * normalised latency, E2EL / output tokens. Percentiles are interpolated like numpy's. */
#ifndef WF_LOADGEN_STATS_H
#define WF_LOADGEN_STATS_H

#include "base/base.h"

typedef struct wf_request_result {
    uint64_t start_ns, first_ns, last_ns; /* wf_now_ns; first and last token, 0: none */
    uint32_t n_in, n_out;                 /* tokens */
    bool ok;                              /* complete */
    float *gaps;                          /* seconds between tokens */
    size_t n_gaps, cap_gaps;
} wf_request_result;
/* Records a token. Its gap is dropped if memory is short. */
void wf_request_result_token(wf_request_result *a, uint64_t now_ns);
void wf_request_results_free(wf_request_result *a, size_t n); /* frees the array too */

enum wf_metric { WF_TTFT, WF_TPOT, WF_ITL, WF_E2EL, WF_NORM, WF_N_METRICS };
typedef struct wf_metric_name {
    const char *key, *name, *title; /* "ttft", "TTFT", "Time to First Token" */
} wf_metric_name;
extern const wf_metric_name wf_metric_names[WF_N_METRICS];
int wf_metric_find(const char *key, size_t len); /* -1: no such metric */

typedef struct wf_series {
    double *v; /* ms, ascending */
    size_t n;
    double mean, stddev;
} wf_series;
double wf_percentile(const wf_series *s, double percent); /* 0 when empty */

typedef struct wf_load_stats {
    size_t completed, failed;
    size_t good;          /* met every limit */
    uint64_t n_in, n_out; /* tokens of completed requests */
    double seconds;
    double peak_out;      /* peak tokens per second: of whole seconds and, where it is more, of the whole run */
    size_t peak_requests; /* peak concurrency */
    wf_series metric[WF_N_METRICS];
} wf_load_stats;

/* limit_ms: for each metric, 0: none. WEFT_ERR_NOMEM. */
weft_status wf_load_stats_make(const wf_request_result *a, size_t n, double seconds,
                               const double limit_ms[WF_N_METRICS], wf_load_stats *out);
void wf_load_stats_free(wf_load_stats *s);

#endif
