/* trace: what `weft bench trace` measures, and how it is shown — rows, tables, and a plot. */
#ifndef WF_CLI_TRACE_H
#define WF_CLI_TRACE_H

#include "cli/bench.h"
#include "load/stats.h"

#define WF_SLO_NORM_MS 200 /* NanoFlow's limit on the mean normalised latency */

/* One load with one policy, at one rate. */
typedef struct wf_trace_row {
    const char *load, *policy;
    double rate;    /* requests a second; 0: all at once */
    size_t skipped; /* longer than the context */
    wf_load_stats stats;
    double total_rate; /* input and output tokens a second: NanoFlow's total throughput */
    double mean_step_tokens;  /* of a step */
    uint64_t preempted, busy_ns, idle_ns;
    double optimum; /* tokens a second by NanoFlow's equation 5; 0: unknown */
} wf_trace_row;
double wf_trace_pct(const wf_trace_row *r); /* of the optimum; < 0: unknown */

/* What holds for all rows. */
typedef struct wf_trace_head {
    const struct weft_model *model;
    const struct weft_device_info *device; /* a copy's address: it outlives the engine */
    uint32_t context, n_seqs, batch;
    double peak_flops; /* 0: unknown */
    bool arrivals;     /* rows have rates and normalised latencies */
    bool profile;      /* rows have the device's idle share */
} wf_trace_head;

typedef struct wf_trace_format {
    const char *name;
    void (*head)(FILE *f, const wf_trace_head *h);
    void (*row)(FILE *f, const wf_trace_head *h, const wf_trace_row *r, bool first);
    void (*foot)(FILE *f, const wf_trace_head *h, const wf_trace_row *rows, size_t n);
} wf_trace_format;
const wf_trace_format *wf_trace_format_find(const char *name); /* NULL: md */

/* ---- plot.c: normalised latency against rate as SVG ----------------------------------------- */

weft_status wf_trace_plot(FILE *f, const char *path, const wf_trace_head *h,
                          const wf_trace_row *rows, size_t n);

#endif
