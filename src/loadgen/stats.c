/* stats: computes metrics from request results. See stats.h. */
#include "loadgen/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const wf_metric_name wf_metric_names[WF_N_METRICS] = {
    [WF_TTFT] = {"ttft", "TTFT", "Time to First Token"},
    [WF_TPOT] = {"tpot", "TPOT", "Time per Output Token (excl. 1st token)"},
    [WF_ITL] = {"itl", "ITL", "Inter-token Latency"},
    [WF_E2EL] = {"e2el", "E2EL", "End-to-end Latency"},
    [WF_NORM] = {"norm", "NORM", "Normalised Latency"},
};

int wf_metric_find(const char *key, size_t len)
{
    for (int i = 0; i < WF_N_METRICS; i++)
        if (strlen(wf_metric_names[i].key) == len && !strncmp(wf_metric_names[i].key, key, len)) return i;
    return -1;
}

/* ---- results ------------------------------------------------------------------------------ */

void wf_request_result_token(wf_request_result *a, uint64_t now_ns)
{
    if (!a->first_ns) a->first_ns = now_ns;
    else if (wf_grow(&a->gaps, a->n_gaps, &a->cap_gaps, sizeof *a->gaps))
        a->gaps[a->n_gaps++] = (float)((double)(now_ns - a->last_ns) * 1e-9);
    a->last_ns = now_ns;
}

void wf_request_results_free(wf_request_result *a, size_t n)
{
    for (size_t i = 0; a && i < n; i++) free(a[i].gaps);
    free(a);
}

static double ms(uint64_t from_ns, uint64_t to_ns) { return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-6 : 0; }

/* Computes a metric of one request; returns false if it is undefined. */
static bool value_of(const wf_request_result *a, enum wf_metric m, double *out)
{
    double e2el = ms(a->start_ns, a->last_ns), ttft = ms(a->start_ns, a->first_ns);
    switch (m) {
    case WF_TTFT: return *out = ttft, true;
    case WF_TPOT: return *out = a->n_out > 1 ? (e2el - ttft) / (a->n_out - 1) : 0, a->n_out > 1;
    case WF_E2EL: return *out = e2el, true;
    case WF_NORM: return *out = a->n_out ? e2el / a->n_out : 0, a->n_out > 0;
    default: return false;
    }
}

/* ---- series ------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double wf_percentile(const wf_series *s, double percent)
{
    if (!s->n) return 0;
    double at = percent / 100 * (double)(s->n - 1);
    size_t low = (size_t)WF_MIN(WF_MAX(at, 0), (double)(s->n - 1)), high = WF_MIN(low + 1, s->n - 1);
    return s->v[low] + (at - (double)low) * (s->v[high] - s->v[low]);
}

static weft_status fill(const wf_request_result *a, size_t n, enum wf_metric m, wf_series *s)
{
    size_t most = n;
    for (size_t i = 0; m == WF_ITL && i < n; i++) most += a[i].n_gaps;
    if (!(s->v = wf_calloc(most, sizeof *s->v))) return WEFT_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        if (!a[i].ok) continue;
        for (size_t g = 0; m == WF_ITL && g < a[i].n_gaps; g++) s->v[s->n++] = a[i].gaps[g] * 1e3;
        if (m != WF_ITL) s->n += value_of(&a[i], m, &s->v[s->n]);
    }
    /* v and n are filled, v in any order. */
    double sum = 0, squares = 0;
    if (s->n) qsort(s->v, s->n, sizeof *s->v, by_size);
    for (size_t i = 0; i < s->n; i++) sum += s->v[i];
    s->mean = s->n ? sum / (double)s->n : 0;
    for (size_t i = 0; i < s->n; i++) squares += (s->v[i] - s->mean) * (s->v[i] - s->mean);
    s->stddev = s->n ? sqrt(squares / (double)s->n) : 0;
    return WEFT_OK;
}

/* A single token has no TPOT and meets any limit on it. */
static bool is_good(const wf_request_result *a, const double limit_ms[WF_N_METRICS])
{
    for (int m = 0; m < WF_N_METRICS; m++) {
        double v;
        if (limit_ms[m] > 0 && value_of(a, m, &v) && v > limit_ms[m]) return false;
    }
    return true;
}

/* A change in the number of running requests: +1 at a start, -1 at an end. */
typedef struct edge {
    uint64_t ns;
    int change;
} edge;

static int by_time(const void *a, const void *b)
{
    const edge *x = a, *y = b;
    if (x->ns != y->ns) return x->ns < y->ns ? -1 : 1;
    return x->change - y->change; /* ends before starts */
}

static weft_status find_peak_requests(const wf_request_result *a, size_t n, size_t *out)
{
    edge *e = wf_calloc(2 * n, sizeof *e);
    size_t k = 0;
    long now = 0, most = 0;
    if (!e) return WEFT_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        if (!a[i].ok) continue;
        e[k++] = (edge){a[i].start_ns, 1};
        e[k++] = (edge){a[i].last_ns, -1};
    }
    qsort(e, k, sizeof *e, by_time);
    for (size_t i = 0; i < k; i++) now += e[i].change, most = WF_MAX(most, now);
    free(e);
    *out = (size_t)most;
    return WEFT_OK;
}

/* Counts tokens in one-second bins from the first start, as vLLM does. Tokens that arrived together are spread evenly
 * over the events. */
static weft_status find_peak_out(const wf_request_result *a, size_t n, double seconds, double *out)
{
    uint64_t begin = UINT64_MAX;
    size_t bins = (size_t)WF_MIN(WF_MAX(seconds, 0), 1e7) + 2;
    double *bin = wf_calloc(bins, sizeof *bin);
    if (!bin) return WEFT_ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        if (a[i].ok) begin = WF_MIN(begin, a[i].start_ns);
    for (size_t i = 0; i < n; i++) {
        if (!a[i].ok || !a[i].first_ns) continue;
        double at = (double)(a[i].first_ns - begin) * 1e-9, each = (double)a[i].n_out / (double)(a[i].n_gaps + 1);
        bin[WF_MIN((size_t)at, bins - 1)] += each;
        for (size_t g = 0; g < a[i].n_gaps; g++) {
            at += a[i].gaps[g];
            bin[WF_MIN((size_t)at, bins - 1)] += each;
        }
    }
    for (size_t i = 0; i < bins; i++) *out = WF_MAX(*out, bin[i]);
    free(bin);
    return WEFT_OK;
}

weft_status wf_load_stats_make(const wf_request_result *a, size_t n, double seconds,
                               const double limit_ms[WF_N_METRICS], wf_load_stats *out)
{
    *out = (wf_load_stats){.seconds = seconds};
    for (size_t i = 0; i < n; i++) {
        *(a[i].ok ? &out->completed : &out->failed) += 1;
        if (!a[i].ok) continue;
        out->good += is_good(&a[i], limit_ms);
        out->n_in += a[i].n_in;
        out->n_out += a[i].n_out;
    }
    weft_status s = find_peak_requests(a, n, &out->peak_requests);
    if (!s) s = find_peak_out(a, n, seconds, &out->peak_out);
    if (seconds > 0)
        out->peak_out = WF_MAX(
            out->peak_out, (double)out->n_out / seconds); /* a run that ends within a bin: its mean is a lower bound */
    for (int m = 0; m < WF_N_METRICS && !s; m++) s = fill(a, n, m, &out->metric[m]);
    if (s) wf_load_stats_free(out);
    return s;
}

void wf_load_stats_free(wf_load_stats *s)
{
    for (int m = 0; m < WF_N_METRICS; m++) free(s->metric[m].v);
    *s = (wf_load_stats){0};
}
