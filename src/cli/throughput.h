/* throughput: result rows of `weft bench throughput`, their tables and plot. */
#ifndef WF_CLI_THROUGHPUT_H
#define WF_CLI_THROUGHPUT_H

#include "cli/bench.h"
#include "loadgen/dataset.h"
#include "loadgen/stats.h"

#define WF_COST_HERE "here"
#define WF_SLO_NORM_MS 200 /* NanoFlow's limit on the mean normalised latency */

/* One load with one policy, at one rate. */
typedef struct wf_throughput_row {
    const char *load, *policy;
    double rate;    /* requests per second; 0: all at once */
    size_t skipped; /* requests that do not fit the context */
    wf_load_stats stats;
    double total_rate; /* input and output tokens per second: NanoFlow's total throughput */
    double mean_step_tokens;  /* of a step */
    uint64_t preempted, busy_ns, idle_ns;
    double optimum; /* tokens per second by NanoFlow's equation 5; 0: unknown */
    double at_best; /* the same by the cost model (weft_cost), with memory and energy, of such requests in a steady state; 0: unknown */
} wf_throughput_row;
double wf_throughput_pct(const wf_throughput_row *r); /* of the optimum; < 0: unknown */

/* Shared by all rows. */
typedef struct wf_throughput_head {
    const struct weft_model *model;
    const struct weft_device_info *device; /* a copy, which outlives the engine */
    uint32_t context, n_seqs, batch;
    double peak_flops; /* 0: unknown */
    char cost_on[32];  /* device of the cost model, WF_COST_HERE: this one, as it was measured; "": it does not know this one */
    bool arrivals;     /* rows include rates and normalised latencies */
    bool profile;      /* rows include the device's idle share */
} wf_throughput_head;

typedef struct wf_throughput_format {
    const char *name;
    void (*head)(FILE *f, const wf_throughput_head *h);
    void (*row)(FILE *f, const wf_throughput_head *h, const wf_throughput_row *r, bool first);
    void (*foot)(FILE *f, const wf_throughput_head *h, const wf_throughput_row *rows, size_t n);
} wf_throughput_format;
const wf_throughput_format *wf_throughput_format_find(const char *name); /* NULL: md */

/* ---- load.c: one load on an engine ---------------------------------------------------------- */

typedef struct wf_load {
    struct weft_engine *engine;
    const struct weft_model *model;
    const wf_request_specs *specs; /* each fits the engine's context */
    const double *at;              /* arrival times; NULL: all at once, */
    size_t window;                 /* and at most so many submitted; 0: all */
    bool together;                 /* as in wf_replay_params */
    uint64_t seed;                 /* of prompts */
    double peak_flops;             /* 0: unknown */
    const struct weft_cost_params *cost; /* the device of the cost model, and the model; NULL: unknown */
    const char *what;              /* shown before */
    wf_progress *bar;              /* NULL: none */
} wf_load;
/* Fills the row but for load, policy, rate and skipped. Ctrl-C ends it with what was done. The caller frees row->stats. */
weft_status wf_load_run(const wf_load *l, wf_throughput_row *row);
/* The compute ceiling that `weft bench ops` measures, in operations per second; 0: unknown, also after a failure. */
weft_status wf_probe_peak(const wf_opts *o, const struct weft_model *m, double *peak);

/* The device of the cost model's table whose name is a word of this one ("NVIDIA H200": h200); "": there is none. */
void wf_known_device(const struct weft_model *m, const char *device, char *on, size_t cap);

/* ---- plot.c: normalised latency against rate as SVG ----------------------------------------- */

weft_status wf_throughput_plot(FILE *f, const char *path, const wf_throughput_head *h,
                          const wf_throughput_row *rows, size_t n);

#endif
