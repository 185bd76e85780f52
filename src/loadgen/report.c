/* report: prints the result in the format of `vllm bench serve`, so that scripts can parse both. */
#include "loadgen/internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define REASONS 5

static void centred(const char *text, char fill)
{
    int n = (int)strlen(text), left = WF_MAX((50 - n) / 2, 0), right = WF_MAX(50 - n - left, 0);
    for (int i = 0; i < left; i++) putchar(fill);
    fputs(text, stdout);
    for (int i = 0; i < right; i++) putchar(fill);
    putchar('\n');
}

static void whole(const char *name, uint64_t v) { printf("%-40s %-10llu\n", name, (unsigned long long)v); }

static void real(const char *name, double v) { printf("%-40s %-10.2f\n", name, v); }

static void metric(const wf_client_params *p, const wf_series *s, const wf_metric_name *m)
{
    char name[64];
    centred(m->title, '-');
    snprintf(name, sizeof name, "Mean %s (ms):", m->name);
    real(name, s->mean);
    snprintf(name, sizeof name, "Median %s (ms):", m->name);
    real(name, wf_percentile(s, 50));
    for (size_t i = 0; i < p->n_percentiles; i++) {
        snprintf(name, sizeof name, "P%g %s (ms):", p->percentiles[i], m->name);
        real(name, wf_percentile(s, p->percentiles[i]));
    }
}

void wf_report_print(const wf_client_params *p, const wf_load_stats *s)
{
    centred(" Serving Benchmark Result ", '=');
    whole("Successful requests:", s->completed);
    whole("Failed requests:", s->failed);
    if (p->max_concurrency) whole("Maximum request concurrency:", p->max_concurrency);
    if (isfinite(p->rate)) real("Request rate configured (RPS):", p->rate);
    real("Benchmark duration (s):", s->seconds);
    whole("Total input tokens:", s->n_in);
    whole("Total generated tokens:", s->n_out);
    double t = s->seconds > 0 ? s->seconds : 1e-9;
    bool limits = false;
    for (int m = 0; m < WF_N_METRICS; m++) limits |= p->limit_ms[m] > 0;
    real("Request throughput (req/s):", (double)s->completed / t);
    if (limits) real("Request goodput (req/s):", (double)s->good / t);
    real("Output token throughput (tok/s):", (double)s->n_out / t);
    real("Peak output token throughput (tok/s):", s->peak_out);
    real("Peak concurrent requests:", (double)s->peak_requests);
    real("Total token throughput (tok/s):", (double)(s->n_in + s->n_out) / t);
    for (int m = 0; m < WF_N_METRICS; m++) metric(p, &s->metric[m], &wf_metric_names[m]);
    centred("", '=');
}

void wf_report_failures(const wf_load_run *r)
{
    const char *reason[REASONS];
    size_t count[REASONS] = {0}, n = 0, rest = 0;
    for (size_t i = 0; i < r->n; i++) {
        const char *e = r->x[i].error;
        size_t k = 0;
        if (!e) continue;
        while (k < n && strcmp(reason[k], e)) k++;
        if (k == REASONS) {
            rest++;
            continue;
        }
        if (k == n) reason[n++] = e;
        count[k]++;
    }
    for (size_t k = 0; k < n; k++) fprintf(stderr, "weft: %zu failed: %s\n", count[k], reason[k]);
    if (rest) fprintf(stderr, "weft: %zu requests failed for other reasons\n", rest);
}
