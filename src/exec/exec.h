/* exec: runs programs on a device, asynchronously: a step is formed and submitted while the one before runs (NanoFlow,
 * section 4.2.1). It owns the queues and all memory that changes (memory.h). One thread at a time.
 */
#ifndef WF_EXEC_H
#define WF_EXEC_H

#include "dist/comm.h"
#include "exec/memory.h"
#include "exec/profile.h"
#include "exec/program.h"
#include "kv/move.h"

typedef struct wf_exec wf_exec;

/* views: of each weight, as wf_value.id numbers them. graph, plans (finished) and views outlive it. Errors name sizes.
 */
weft_status wf_exec_create(wf_dev *dev, const wf_graph *g, const wf_plans *p, const wf_view *views, const wf_limits *l,
                           wf_exec **out);
/* With whom a device of a group exchanges what the nodes of its graph say; comms stay the caller's. */
typedef struct wf_exec_group {
    wf_comm *layer;   /* those that compute each layer together: ALL_GATHER, GATHER. NULL: it does alone */
    wf_comm *all;     /* SEND and RECEIVE: all devices; NULL: its graph has no such nodes */
    uint32_t from, to; /* of these: who has the layers before, and behind */
} wf_exec_group;
/* This device is one of a group from now on: a step is submitted while the others submit theirs. Takes pinned memory
 * for what they exchange. Before wf_exec_bind. */
weft_status wf_exec_join(wf_exec *e, const wf_exec_group *g);
/* Chooses, builds and checks the kernels of every step that there may be (program.h), and takes the scratch memory that
 * they need. */
weft_status wf_exec_bind(wf_exec *e, weft_progress_fn progress, void *user);
/* Steps that may be in flight at one time: one runs while the next one is formed and submitted. */
#define WF_EXEC_DEPTH 2

/* Further inputs of a step, and its results. Memory for results belongs to the device until
 * wf_exec_wait has returned for this step; wf_exec_submit copies all else. */
typedef struct wf_step_io {
    /* [b->n_logits], the sampled token of each, or NULL; 4 bytes per row to read back instead of a row of logits. */
    int32_t *ids;
    float *logits;        /* [b->n_logits, vocabulary], or NULL */
    const bool *wanted;   /* [b->n_logits], the rows of logits that come to the host; NULL: all */
} wf_step_io;
/* Submits a step behind those in flight and returns; at most WF_EXEC_DEPTH may be in flight. After an error nothing of
 * the step is in flight, or the device is lost; its results are undefined. */
weft_status wf_exec_submit(wf_exec *e, const wf_batch *b, const wf_step_io *io);
/* A step whose batch has words of ALLOWED (sched/inputs.def) begins when it is submitted, and samples once these are
 * known: the batch stays as it is until then, but for them. To be called before another step is submitted; a step that
 * is waited for before has what the batch says. With nothing to submit it does nothing. Errors as for wf_exec_submit.
 * While the device waits the step counts as running. */
weft_status wf_exec_submit_rest(wf_exec *e);
/* Could WEFT_FORCE have this variant run something of a step? */
bool wf_exec_can_run(const wf_exec *e, enum wf_op op, int variant);
bool wf_exec_can_sample(const wf_exec *e); /* else no batch may be `sampled`: no kernel of SAMPLE works on the device */
/* Waits for the oldest step in flight; none: nothing. */
weft_status wf_exec_wait(wf_exec *e);
/* A layer's asynchronous softmax. */
typedef struct wf_exec_softmax {
    bool async;          /* kernels that use it are bound to the layer's attention */
    uint64_t rows;       /* rows (query and head) that such kernels were given, in steps submitted */
    uint64_t recomputed; /* those whose scores left its range */
} wf_exec_softmax;
/* Of completed steps. Times are measured by the device if it was opened with `profile`, else 0. */
typedef struct wf_exec_stats {
    uint64_t busy_ns, idle_ns, last_ns; /* in steps, between steps, in the last step */
    wf_profile ops;
    uint64_t ended_ns;                  /* of the last step, on the clock of ops */
    wf_exec_softmax *softmax;           /* by layer */
} wf_exec_stats;
const wf_exec_stats *wf_exec_stats_of(const wf_exec *e);
/* There is nothing to do: the time to the next step is not the device's idle time. */
void wf_exec_mark_idle(wf_exec *e);
/* Called after each kernel of a step has ended and before the next one begins, so that nothing has overwritten
 * its operands yet. The call's first row is row `first` of the batch. An error ends the step. */
typedef weft_status (*wf_exec_observer)(void *user, wf_queue *q, const wf_node *node, const wf_batch *b, uint32_t first,
                                        const wf_call *c);
/* For calibration: waits for each op, so steps are slow. fn NULL: off. Call it between steps only. */
void wf_exec_observe(wf_exec *e, wf_exec_observer fn, void *user);
uint64_t wf_exec_page_bytes(const wf_exec *e);
/* Copies a KV page to host memory on a queue of the caller's, beside steps, which must not write to the page meanwhile.
 * end: NULL, or of the last part. */
weft_status wf_exec_read_page(wf_exec *e, wf_queue *q, int32_t page, void *host, wf_event *end);
/* moves.c: copies of pages, for wf_mover, while no part of a step is to come. Queues for them are there once they are
 * opened. */
weft_status wf_exec_open_moves(wf_exec *e);
weft_status wf_exec_move(wf_exec *e, bool out, const wf_page_copy *list, uint32_t n, uint32_t *ticket);
enum wf_moved wf_exec_moved(wf_exec *e, uint32_t ticket);
void wf_exec_finish_moves(wf_exec *e); /* waits for those that steps wait for, where none has done so */
uint32_t wf_exec_queues(const wf_exec *e); /* how many it has, those aside */
/* Fills all KV pages with NaN (tests), or with small numbers, for measurements: untouched memory may be one page of
 * zeros, which caches hold. */
weft_status wf_exec_poison(wf_exec *e);
weft_status wf_exec_fill_kv(wf_exec *e);
/* From the next step on this plan runs, whatever its bucket; WF_BY_BUCKET: the plan whose bucket fits. */
#define WF_BY_BUCKET SIZE_MAX
void wf_exec_use_plan(wf_exec *e, size_t plan);

/* probe.c: times of ops on the batch of the last step, which must have ended. What they write to means nothing until
 * the next step. The device was opened with `profile`. */
enum { WF_PROBE_LANES = 2 };
typedef struct wf_probe wf_probe;
typedef struct wf_probe_lane { /* runs on a queue of its own */
    const char *op;  /* name of its nodes: a kernel or a transfer; NULL: it copies one KV page to the host */
    wf_range rows;   /* lanes with rows in common may write to the same memory; of copies the pages */
    uint32_t groups; /* as in wf_call.max_groups */
} wf_probe_lane;
/* Of one launch: the median, and half the distance of the quartiles; NaN: none ran beside all other lanes. */
typedef struct wf_probe_time {
    double us, spread;
    uint32_t n;
} wf_probe_time;
weft_status wf_probe_open(wf_exec *e, wf_probe **out);
/* Runs all n lanes at one time for at least so many microseconds. */
weft_status wf_probe_run(wf_probe *p, const wf_probe_lane *lanes, uint32_t n, double us, wf_probe_time *out);
/* Launches it so often, one behind the other; for who measures something else than times. */
weft_status wf_probe_repeat(wf_probe *p, const wf_probe_lane *lane, uint32_t launches);
wf_probe_time wf_probe_summary(double *us, uint32_t n); /* sorts them; n > 0 */
void wf_probe_close(wf_probe *p); /* NULL is allowed; before the exec is destroyed */
uint64_t wf_exec_kv_bytes(const wf_exec *e);
uint64_t wf_exec_activation_bytes(const wf_exec *e);
uint64_t wf_exec_scratch_bytes(const wf_exec *e); /* of kernels, once they are bound */
/* The commands of a step of that shape, as a readable table (explain.c). */
typedef struct wf_explain {
    uint32_t tokens, decodes, context; /* of the batch; tokens of the longest sequence */
    double flops_rate, byte_rate;      /* peak rates of the device, per second; 0: unknown, and no times are printed */
} wf_explain;
weft_status wf_exec_explain(const wf_exec *e, const wf_explain *x, FILE *f);
/* The same estimates as numbers, in seconds, by the nano-operations of a plan: out: [n_nanos]; 0: unknown, or no work.
 */
weft_status wf_exec_expected(const wf_exec *e, const wf_explain *x, size_t plan, double *out);
/* The same in total, one after another, of a greedy step of that shape, which must be one that the engine takes. */
double wf_exec_step_seconds(const wf_exec *e, const wf_explain *x);
void wf_exec_destroy(wf_exec *e); /* NULL is allowed */

/* Bytes of a batch's arrays: once on the device, and for each step in flight on the host. */
uint64_t wf_inputs_bytes(const wf_limits *l, uint64_t align);
/* Bytes of the state that stays on the device from step to step. */
uint64_t wf_states_bytes(const wf_limits *l, uint32_t n_vocab, uint32_t n_layers);

#endif
