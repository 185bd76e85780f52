/* paper: figures of the papers that weft builds on, each a row of a table and a function that measures what it shows. paper.c has the command,
 * paper_out.c what is printed and written, paper_load.c times of loads, paper_step.c those of single steps; paper_tokens.c compares answers;
 * paper_sarathi.c, paper_nanoflow.c and paper_flash.c have the rows, paper_overlap.c what NanoFlow's say of ops beside each other,
 * paper_pipeline.c a pipeline of stages, paper_datasets.c lengths of requests, paper_batches.c throughput by batch. */
#ifndef WF_CLI_PAPER_H
#define WF_CLI_PAPER_H

#include "cli/chart.h"
#include "cli/cli.h"
#include "cli/throughput.h"

#define WF_PAPER_REPEAT   16 /* most values of a point */
#define WF_PAPER_SHORTEST 8  /* tokens of a length, however it is scaled */
#define WF_PAPER_STEPS    2  /* most steps in a picture */

typedef struct wf_paper_point {
    const char *series;
    double x, y;
} wf_paper_point;

struct wf_paper;
typedef struct wf_figure {
    const char *id, *title;
    const char *needs, *takes; /* what it needs, and roughly how much it computes at the paper's sizes */
    const char *of;            /* model and device of the paper */
    const char *says;          /* what the paper says where it gives no points, or NULL */
    const char *x, *y;         /* axes with units */
    bool log_x, log_y;
    const char *const *ticks; /* names of x = 0, 1, ...: plotted as bars; NULL: x is a number */
    size_t n_ticks;
    const wf_paper_point *points; /* of the paper */
    size_t n_points;
    bool reads_text;    /* -p or -f */
    const char *option; /* others of its own, with a space between; NULL: none */
    bool ops;           /* measures single ops: no engine has options */
    bool many;          /* opens its models itself, by a list of --shape */
    uint32_t runs;      /* of each load without -r; 0: 3 */
    double limit; /* these three as in wf_chart */
    const char *limit_name, *diagonal;
    int (*run)(struct wf_paper *p); /* returns an exit code, WF_EXIT_DEVICE if the device cannot show it; NULL: no device can */
} wf_figure;

typedef struct wf_figures {
    const wf_figure *rows;
    size_t n;
} wf_figures;
extern const wf_figures wf_figures_sarathi, wf_figures_nanoflow, wf_figures_flash;

/* What was measured at one x. */
typedef struct wf_paper_row {
    char series[64];
    double x, paper_x; /* paper_x: where the paper has it, if sizes are scaled */
    double v[WF_PAPER_REPEAT];
    size_t n;
} wf_paper_row;

typedef struct wf_paper {
    const wf_opts *o;
    const wf_figure *figure;
    struct weft_model *m;
    char device[128], driver[64]; /* of the last engine; "": none was opened */
    char model[96];               /* of the times in a file; "": it is m */
    wf_paper_row *rows;
    size_t n_rows, cap_rows;
    char (*notes)[256]; /* what differs from the paper */
    size_t n_notes, cap_notes;
    const char *calibration; /* of engines; NULL: as the options say */
    double scale; /* of lengths; 0: not chosen yet */
    wf_progress bar;
    uint64_t n_runs; /* of loads: each has other prompts */
    bool timed;      /* engines tell times of their ops, which run one after another, or in so many nano-batches: */
    uint32_t nano_batches;
    const char *plan; /* of engines, in place of nano-batches; NULL: none */
    struct weft_timeline *steps[WF_PAPER_STEPS]; /* the picture, in place of a chart of the rows; freed with the rest */
    const char *step_names[WF_PAPER_STEPS];
    size_t n_steps;
} wf_paper;

/* ---- paper.c --------------------------------------------------------------------------------------- */

/* Return an exit code. A point that is added again gets one more value. */
int wf_paper_add(wf_paper *p, const char *series, double x, double paper_x, double value);
int wf_paper_note(wf_paper *p, const char *fmt, ...) WF_PRINTF(2, 3); /* one that is there already is not repeated */
/* Divides all values by the median of this point. */
void wf_paper_divide(wf_paper *p, const wf_paper_row *by);
const wf_paper_row *wf_paper_find(const wf_paper *p, const char *series, double x); /* NULL: none */
double wf_paper_median(const wf_paper_row *r);

/* ---- paper_out.c ----------------------------------------------------------------------------------- */

void wf_paper_print(const wf_paper *p);
weft_status wf_paper_write(const wf_paper *p, const char *folder); /* ID.csv and ID.svg */
weft_status wf_paper_check_files(const wf_figure *f, const char *folder); /* before all is measured: can they be written? */
/* An empty file of a name that is new, which the caller removes. */
int wf_paper_temporary(char *path, size_t cap);
/* Attention's logits on a text, which Ctrl-C ends. */
int wf_paper_calibrate(wf_paper *p, struct weft_engine *e, const char *text, size_t len, struct weft_calibration **out);

/* ---- paper_load.c ---------------------------------------------------------------------------------- */

/* A length of the paper at the scale of this run, and the context of the model. */
uint32_t wf_paper_length(const wf_paper *p, uint32_t length);
/* Chooses the scale by the longest length, and says so. */
int wf_paper_fit(wf_paper *p, uint32_t longest);
uint32_t wf_paper_repeat(const wf_paper *p);

typedef struct wf_paper_engine {
    struct weft_engine *e;
    const char *policy; /* NULL: as engines have it, for what runs no loads */
    uint32_t n_seqs, context, batch;
    bool warm; /* a load has run */
} wf_paper_engine;
/* Opens an engine for n_seqs sequences of context tokens, or for as many as the memory holds; batch: tokens of a step, 0: as the policy does. */
int wf_paper_open(wf_paper *p, const char *policy, uint32_t n_seqs, uint32_t context, uint32_t batch, wf_paper_engine *out);

typedef struct wf_paper_times {
    double v[WF_PAPER_REPEAT]; /* seconds */
    size_t n;
} wf_paper_times;
/* Runs n equal requests at once, again and again; out 0: prompts only. */
int wf_paper_run(wf_paper *p, wf_paper_engine *e, size_t n, uint32_t in, uint32_t out, wf_paper_times *times);
/* The same of n loads of any lengths in turns, so that what else the machine does meets all of them. */
int wf_paper_run_specs(wf_paper *p, wf_paper_engine *e, const wf_request_specs *specs, size_t n, wf_paper_times *times);
weft_status wf_paper_equal(size_t n, uint32_t in, uint32_t out, wf_request_specs *specs); /* adds n requests */
/* One load, once, with arrival times and all that is measured. The caller frees row->stats. */
int wf_paper_run_once(wf_paper *p, const wf_paper_engine *e, const wf_request_specs *specs, const double *at, double peak, wf_throughput_row *row);

/* ---- paper_step.c ---------------------------------------------------------------------------------- */

/* When the ops of a step run, as measured or predicted, on an engine that tells times (wf_paper.timed). The caller frees *t, */
int wf_paper_step(wf_paper *p, const wf_paper_engine *e, struct weft_timeline_params q, struct weft_timeline **t);
/* or leaves it to the picture. */
void wf_paper_show_step(wf_paper *p, const char *name, struct weft_timeline *t);
int wf_paper_breakdown(wf_paper *p); /* SARATHI, figure 10 */
int wf_paper_chunked_attention(wf_paper *p); /* and 13a */

/* ---- paper_sarathi.c, paper_pipeline.c -------------------------------------------------------------- */

weft_status wf_paper_zipf(const wf_paper *p, size_t n, wf_request_specs *out); /* n requests of 1K to 4K tokens at the scale of this run, P:D = 10 */
int wf_paper_bubbles(wf_paper *p); /* SARATHI, figure 12a */

/* ---- paper_overlap.c: NanoFlow's figures 5, 6 and 10, and table 3 ----------------------------------- */

int wf_paper_pairs(wf_paper *p);
int wf_paper_exchange(wf_paper *p);
int wf_paper_pipeline(wf_paper *p);
int wf_paper_usage(wf_paper *p);

/* ---- paper_nanoflow.c ------------------------------------------------------------------------------- */

enum { WF_PAPER_OPS = 7 };
size_t wf_paper_op(const char *name); /* its place in NanoFlow's table 2; WF_PAPER_OPS: none */

int wf_paper_datasets(wf_paper *p); /* paper_datasets.c: NanoFlow's table 4 */

/* ---- paper_batches.c: FlashDecoding++Next's figures 11 and 12, and table 2 --------------------------- */

int wf_paper_largest_batch(wf_paper *p);
int wf_paper_batches(wf_paper *p);
int wf_paper_without_flat(wf_paper *p);

/* ---- paper_tokens.c -------------------------------------------------------------------------------- */

#define WF_PAPER_ASYNC  "asynchronous"
#define WF_PAPER_ANSWER 64 /* tokens of an answer */
/* Compares greedy answers to prompts that are cut from a text. */
int wf_paper_tokens(wf_paper *p, const char *text, size_t len);

#endif
