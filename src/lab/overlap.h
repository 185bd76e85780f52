/* overlap: `weft tune --overlap`: measures what a plan can gain on a device, searches plans by that, runs the best of
 * them, and keeps the fastest.
 *
 *   load (decodes, prefill) --> batch --> steps and probes --> profile --> search --> rounds of real steps --> plans
 *
 * loads.c makes batches, for ablation.c as well; overlap_ops.c measures ops, overlap_energy.c their joules;
 * overlap_plans.c searches and compares plans; overlap.c is the whole.
 */
#ifndef WF_OVERLAP_H
#define WF_OVERLAP_H

#include "engine/engine.h"
#include "kept/plans.h"
#include "lab/lab.h"
#include "lab/power.h"
#include "plan/search.h"

/* explain.c: measures the peak rates of the device, which estimates then go by. */
weft_status wf_explain_rates(struct weft_engine *e, wf_explain *x);
/* search.c: for what needs no device, or may be of another one, which a warning says: `what` is of that one.
 * WEFT_ERR_ARG: the profile is of another model. One that was written by hand says of neither what it is made for. */
weft_status wf_stored_fits(const struct weft_engine *e, const wf_op_profile *p, const char *path, const char *what);

typedef struct wf_overlap {
    struct weft_engine *e;
    const struct weft_overlap_params *p;
    wf_op_profile profile;
    char profile_path[600], plan_path[600];
    uint32_t context;  /* keys of a sequence */
    uint64_t end_ns;   /* when measuring, and then when comparing has to end */
    bool out_of_time, stopped;
    double probe_us;   /* that a probe lasts for at least */
    wf_power *power;   /* NULL: not readable */
    FILE *f;
} wf_overlap;

/* ---- loads.c ------------------------------------------------------------------------------------------------- */

enum { WF_LOAD_DECODE, WF_LOAD_PREFILL, WF_LOAD_MIXED, WF_N_LOAD_KINDS };
typedef struct wf_load_kind { /* whose steps get a plan each */
    const char *name;
    bool full;     /* a step holds as many tokens as it may; else only decodes */
    /* at most such a part of the tokens of a step that counts as this kind; of the measured step half of it; 0: no
     * such limit */
    float decodes;
} wf_load_kind;
extern const wf_load_kind wf_load_kinds[WF_N_LOAD_KINDS];

typedef struct wf_step_load { /* of a step: sequences that decode, and tokens of prompts */
    uint32_t decodes, prefill;
} wf_step_load;
/* The most of a load that this engine can run, at least one token of each that is wanted; of several the one with
 * the most decodes. {0}: none. At most step_tokens may be wanted. */
wf_step_load wf_load_fit(const struct weft_engine *e, wf_step_load wanted, uint32_t context);
bool wf_load_fits(const struct weft_engine *e, wf_step_load x, uint32_t context);
/* A batch with contexts of at most `context` keys, less where the KV cache holds less. WEFT_ERR_ARG: the engine cannot
 * run it.
 *
 * Here and below: wf_batch_init has made b, whose arrays have room for any plans, since step_tokens, seqs, seq_pages
 * and logit_rows are of the model and the parameters. How many KV pages a step has is of the plans: after
 * wf_engine_replan a batch must be filled again. */
weft_status wf_load_batch(const struct weft_engine *e, wf_step_load x, uint32_t context, wf_batch *b);
typedef struct wf_decode_share { /* parts of the tokens of a step */
    float least, most;
} wf_decode_share;
/* The largest step of a kind. *share: that of steps which count as this kind, and as no other. n_tokens 0: the
 * engine has no such step. */
weft_status wf_load_of_kind(const struct weft_engine *e, const wf_load_kind *k, uint32_t context,
                            wf_decode_share *share, wf_batch *b);
#define WF_NO_SUCH_LOAD                                                                                                \
    "left out: this engine has no such step (--max-num-seqs, --max-num-batched-tokens, --kv-memory, "                  \
    "--context-measured)"
/* Runs one step, and waits for it; *us: what it took on the device. */
weft_status wf_load_step(struct weft_engine *e, const wf_batch *b, double *us);
/* Has a sequence whose tokens of the step begin at position `first` this one of its pages of the table, or have
 * windows passed it? */
bool wf_load_holds(const struct weft_engine *e, uint32_t table, uint32_t first, uint32_t page);
uint32_t wf_load_pages(const struct weft_engine *e, const wf_batch *b); /* how many it has, which are the first ones */
/* The two halves of wf_load_step. */
weft_status wf_load_submit(struct weft_engine *e, const wf_batch *b);
weft_status wf_load_wait(struct weft_engine *e, double *us);

/* ---- overlap_ops.c ------------------------------------------------------------------------------------------- */

/* Adds to the profile what it lacks, and saves it after each batch. False in *all: time or stop left some out. */
weft_status wf_overlap_measure(wf_overlap *o, bool *all);

/* ---- overlap_energy.c ---------------------------------------------------------------------------------------- */

/* Before the first op: the device's limit, and what it draws without work. */
void wf_overlap_begin_energy(wf_overlap *o);
/* Adds the joules of an op whose time is known, on rows of the batch of the last step; nothing where power cannot be
 * read any more. */
weft_status wf_overlap_measure_energy(wf_overlap *o, wf_probe *probe, const wf_node *n, wf_range rows, double share,
                                      const wf_batch *b);
void wf_overlap_print_energy(const wf_overlap *o);

/* ---- overlap_plans.c ----------------------------------------------------------------------------------------- */

/* Searches and compares plans for each load, and saves the fastest; prints what each takes. */
weft_status wf_overlap_choose(wf_overlap *o);

/* Is it time to end? */
bool wf_overlap_ends(wf_overlap *o);
/* Between these two kernels are not built, and their builds end, when it is time: what needed one fails with
 * WEFT_ERR_CANCELLED. */
wf_stopper wf_overlap_bound_builds(wf_overlap *o);
void wf_overlap_free_builds(wf_stopper before);

/* Copies of KV pages run beside kernels, except where the same cores would copy. */
#define wf_has_copy_queue(device) ((device)->type != WEFT_DEVICE_CPU)

#endif
