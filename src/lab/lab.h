/* lab: benchmarks, tuning, calibration, plans, costs and the self-test: what measures, for the program's commands.
 * Not in the library. Conventions are those of <weft/weft.h>, but NULL is only for what a comment says. Functions
 * block until they are done. They are not meant to run at the same time as other work on the device, which would
 * falsify the times. */
#ifndef WF_LAB_H
#define WF_LAB_H

#include "kept/calibration.h"

#include <stdio.h>
#include <weft/weft.h>

/* One row of `weft bench`: a prompt of n_prompt random tokens, or n_gen generated tokens after BOS, in each of
 * n_seqs sequences that run at the same time. */
struct weft_bench_params {
    uint32_t n_prompt, n_gen; /* either may be 0, not both */
    uint32_t n_seqs;          /* at most the engine's; 0: 1 */
    uint32_t repeat;          /* measured runs, after one warm-up run; 0: 5 */
    weft_progress_fn on_progress; /* may be NULL */
    void *user;
};
struct weft_bench_result {
    double mean, stddev, median; /* tokens per second, all sequences together */
    uint32_t repeat;
};
/* If n_prompt > 0 the engine must have been opened with no_prefix: otherwise equal prompts would be computed once.
 * WEFT_ERR_ARG otherwise; WEFT_ERR_FULL: n_prompt + n_gen tokens do not fit the context. */
enum weft_status weft_bench(struct weft_engine *e, const struct weft_bench_params *p, struct weft_bench_result *out);

/* The measured peak rates of a device, as for a roofline. 0: the device has no such unit, or it was not measured. */
struct weft_ceilings {
    double read;         /* bytes per second, by a kernel that only reads */
    double f32, f16, q8; /* operations per second (a multiply-add is two): F32, matrix units on F16, int8 products */
};
/* The device that a name means, as in weft_engine_params. */
enum weft_status weft_device_named(const char *device, struct weft_device_info *out);
/* A name for files about a device, e.g. "nvidia-h200": at most cap bytes with the NUL. */
void weft_device_file(const struct weft_device_info *d, char *buf, size_t cap);

/* One row of `weft bench ops`. Valid during the callback only. */
struct weft_op_row {
    const struct weft_device_info *device;
    const struct weft_ceilings *ceilings;
    const char *op, *dtype, *shape; /* "gemm", "F16", "M=8,N=6144,K=4096" */
    const char *variant;            /* NULL: nothing was measured; message says why */
    const char *message;
    bool picked;                    /* the variant that a model would run with */
    double median_us;
    double rate;                    /* in `unit`: TFLOP/s, or GB/s of the bytes that must be read and written */
    const char *unit;
    /* the shortest time that the ceilings allow (roofline), as a percentage of the measured time; < 0: unknown */
    double ceiling_pct;
};
typedef void (*weft_op_fn)(void *user, const struct weft_op_row *row);

/* Measures single ops. Time is wall time over back-to-back launches. Weights and KV pages hold random numbers;
 * launches rotate over more memory than twice the last-level cache, so that none finds its operands there. */
struct weft_op_params {
    const char *device, *tier, *tuned; /* these as in weft_engine_params */
    uint32_t threads;
    bool no_kernel_cache, deterministic;
    const char *force;         /* as in weft_debug */
    /* a list of gemm,decode_attention,prefill_attention, and kv_copy: pages of KV to host memory and back; NULL: all
     * that the shapes fit */
    const char *ops;
    const char *dtypes;        /* of weights: "F16,Q8_0"; NULL: F16 */
    const char *kv_dtype;      /* as in weft_engine_params */
    /* "M=8,N=6144,K=4096": a GEMM of M tokens with N x K weights (no M: 1 to 2048); "B=64,L=4096": attention of B
     * sequences with L keys each (also H=32,KV=8,D=128: heads, KV heads, head size; S=1024: attention window). */
    const char *const *shapes;
    size_t n_shapes;           /* 0: the shapes of Llama-3-8B */
    const char *variant;       /* NULL: the one that a model would use; "all": each except the references; or a name */
    uint32_t repeat;           /* samples, of which the median is reported; 0: 5 */
    /* Bytes of all copies of the operands, which launches cycle through; 0: 4 GiB on a GPU, else more than twice the
     * last-level cache. */
    uint64_t rotate;
    bool async;                /* let attention use the asynchronous softmax, as after calibration */
    bool go_on;                /* a shape that fails is a row with a message, and the next ones are measured */
    double limit_ms;           /* a run that takes longer is measured once; 0: no limit */
    weft_op_fn on_row;         /* required; called on the caller's thread */
    weft_progress_fn on_progress; /* may be NULL */
    void *user;                /* for both */
    /* work-groups (on the CPU threads) that a launch uses at most: a share of the device; 0: all */
    uint32_t work_groups;
};
enum weft_status weft_bench_ops(const struct weft_op_params *p);

/* One row of `weft tune`: the fastest kernel of a shape from this size on. Valid during the callback only. */
struct weft_tune_row {
    const char *op, *dtype, *shape;        /* "gemm", "F16", "N=6144,K=4096" */
    /* tokens of a GEMM; of attention: keys per sequence (decode) or tokens per sequence (prefill) */
    uint32_t size;
    const char *variant, *default_variant; /* the fastest, and the choice without a file */
    double us, default_us;
};
typedef void (*weft_tune_fn)(void *user, const struct weft_tune_row *row);

/* Measures every kernel over the sizes of each shape and writes the choices to a file, which engines on this device
 * then load. Entries of other shapes in the file are kept. */
struct weft_tune_params {
    const char *device, *tier;      /* these four as in weft_engine_params */
    uint32_t threads;
    bool no_kernel_cache;
    const struct weft_model *model; /* tune its shapes; or */
    const char *const *shapes;      /* "N=6144,K=4096", "H=32,KV=8,D=128" */
    size_t n_shapes;
    const char *dtypes;             /* of weights for shapes; NULL: F16 */
    uint32_t max_size;              /* largest number of tokens or keys to measure; 0: 2048 */
    uint32_t repeat;                /* samples, of which the median counts; 0: 3 */
    uint64_t rotate;                /* as in weft_op_params */
    const char *path;               /* the file to write; NULL: the user's own */
    /* Out, may be NULL: the dense batch (NanoFlow), i.e. the tokens per step from which the products of this model gain
     * little; 0: unknown, max_size was too small. */
    uint32_t *dense_batch;
    weft_tune_fn on_row;            /* these two may be NULL */
    weft_progress_fn on_progress;
    void *user;                     /* for both, and for stop */
    /* about the most time that measuring takes, but one shape is measured; 0: no limit */
    uint64_t seconds;
    weft_stop_fn stop;              /* true: end. May be NULL */
    /* Out, may be NULL: shapes that `seconds` or `stop` left out. The file keeps the others, without dense_batch, and a
     * call begins with the shapes that the file lacks. */
    uint64_t *left;
};
/* path (may be NULL): gets the path of the file, at most cap bytes with the NUL. WEFT_ERR_ARG: neither a model nor
 * shapes, or a path that must not be replaced. */
enum weft_status weft_tune(const struct weft_tune_params *p, char *path, size_t cap);

/* --- the chunk for a load (SARATHI, section 4.4) --------------------------------------------- */

/* The throughput that is expected of a load with steps of so many tokens at most. Valid during the callback only. */
struct weft_chunk_row {
    /* "sarathi": a chunk of one prompt; "nanoflow": of as many as fill the step. Only where prompts are shorter than
     * a chunk */
    const char *policy;
    uint32_t tokens;         /* most of a step: weft_engine_params.max_batched_tokens */
    uint32_t chunk, decodes; /* tokens of a step that has a chunk: of prompts, and of sequences that decode */
    double us;               /* that such a step takes, the median */
    double rate;             /* tokens per second, of prompts and generated */
    bool chosen;             /* the smallest step that gives nearly as much as the best */
};
typedef void (*weft_chunk_fn)(void *user, const struct weft_chunk_row *row);
struct weft_chunk_params {
    const uint32_t *prompts, *generated; /* required: tokens of each request */
    size_t n;
    const char *path;         /* the file of weft_tune that keeps the ratio, for later engines; NULL: the user's own */
    uint64_t seconds;         /* about the most time that it takes; 0: no limit */
    uint32_t repeat;          /* steps of each kind, of which the median counts, after one more; 0: 3 */
    double *ratio;            /* out, may be NULL: P:D, prompt tokens for each generated one */
    weft_chunk_fn on_row;     /* at the end, smallest steps first. These three may be NULL */
    weft_progress_fn on_progress;
    weft_stop_fn stop;        /* true: end with what is measured */
    void *user;               /* for all three */
};
/* Measures steps of several sizes, up to those of e, each with as many decodes as P:D of the load gives work for,
 * and keeps P:D: policy sarathi begins with it. e is of no use afterwards but to be closed. path (may be NULL): gets
 * the path of the file. WEFT_ERR_ARG: a load without prompts or without generated tokens, or with millions of them a
 * request; or a path that must not be replaced. */
enum weft_status weft_tune_chunk(struct weft_engine *e, const struct weft_chunk_params *p, char *path, size_t cap);

/* --- calibration of the asynchronous softmax (kept/ranges.h) --------------------------------------- */

/* Computes the text in pieces of the engine's context, and collects each layer's attention logits on the host. No
 * other request may use the engine meanwhile. WEFT_ERR_ARG: a text of fewer than 8 tokens; ten thousand are enough. */
enum weft_status weft_calibrate(struct weft_engine *e, const struct weft_calibrate_params *p,
                                struct weft_calibration **out);
/* Writes phi, a and b of each layer as text. Engines read the file at the model's path + WEFT_CALIBRATION_SUFFIX,
 * unless weft_engine_params.calibration says otherwise; they ignore, with a warning, a file that is damaged or
 * belongs to another model. */
enum weft_status weft_calibration_save(const struct weft_calibration *c, const struct weft_model *m, const char *path);
/* The quantile `part` (0 to 1), accurate to one bin. NaN if the histogram is empty. */
double weft_logit_quantile(const struct weft_logit_histogram *l, double part);

/* --- memory --------------------------------------------------------------------------------------- */

/* Activations, and what fits beside them. */
struct weft_memory_use {
    uint64_t token_bytes, logit_row_bytes; /* of activations, for each token of a step, and for each row of logits */
    uint64_t longest_context;              /* tokens of one sequence that fit */
    /* sequences that fit, each with a whole context, or what attention windows hold of one */
    uint64_t largest_batch;
};
struct weft_memory {
    struct weft_device_info device;
    /* bytes that are there for all of this: those available, or where the device does not say them all that it has */
    uint64_t memory;
    uint64_t weights, workspace; /* bytes; workspace: of sampling */
    uint64_t kv_bytes_per_token;
    uint32_t context, max_batched_tokens;
    /* buffers are reused, and share a space with KV pages: what an engine does (FlashDecoding++Next, section V) */
    struct weft_memory_use reused;
    /* for comparison: each result of a layer has a buffer of its own, and KV pages theirs (figure 19) */
    struct weft_memory_use apart;
    /* less than context * kv_bytes_per_token where layers have attention windows: the KV cache keeps only what they
     * reach */
    uint64_t kv_bytes_per_context;
};
/* Computes what fits p->device, from its kernels and memory; loads nothing. Scratch memory of kernels is not
 * counted: some ask for it when they are built. WEFT_ERR_ARG for a file with a vocabulary only. Thread-safe. */
enum weft_status weft_memory(const struct weft_model *m, const struct weft_engine_params *p, struct weft_memory *out);

/* --- plan ----------------------------------------------------------------------------------------- */

/* A batch, to see what a step with it runs. */
struct weft_explain_params {
    uint32_t tokens;  /* of the batch; 0: the engine's largest step */
    uint32_t decodes; /* how many of them are decodes, one per sequence; the rest is one prompt */
    uint32_t context; /* tokens of the longest sequence; 0: the engine's context */
    /* Measure the device's peak rates, for about a second, and estimate times from them: of a kernel by its backend's
     * cost model if it has one, else the least time that its bytes and flops take (docs/tuning.md). */
    bool measure;
};
/* Prints the commands of such a step, one per line, as EXPLAIN does for a query: tokens, queue, waits, share of the
 * device, what bounds it, MB, Gflop, estimated time and kernels. f stays open. No request may run meanwhile.
 * WEFT_ERR_ARG: a batch that the engine does not take; WEFT_ERR_IO: writing to f failed. */
enum weft_status weft_explain(struct weft_engine *e, const struct weft_explain_params *p, FILE *f);

/* Where the plans of an engine come from, or why its steps are sequential: "sequential: never measured here (weft
 * tune --overlap)". Valid until the engine is closed. */
const char *weft_engine_plan_source(const struct weft_engine *e);
/* The same of an engine with these parameters, which is not opened; opens the device for a moment. out: gets at most
 * cap bytes with the NUL. WEFT_ERR_ARG for a file with a vocabulary only. Thread-safe. */
enum weft_status weft_plan_source(const struct weft_model *m, const struct weft_engine_params *p, char *out,
                                  size_t cap);

/* --- timeline of a step --------------------------------------------------------------------------- */

/* What bounds an op, and what it uses. */
enum weft_class { WEFT_CLASS_COMPUTE, WEFT_CLASS_MEMORY, WEFT_CLASS_NETWORK, WEFT_CLASS_COPY, WEFT_CLASS_HOST,
                  WEFT_N_CLASSES };
const char *weft_class_name(enum weft_class c); /* "unknown" for none of these */

struct weft_timeline_params {
    uint32_t tokens, decodes, context; /* as in weft_explain_params */
    /* times of the model's ops (docs/plans.md); NULL: what weft_tune_overlap has kept for this device and model */
    const char *profile;
    /* without a profile: times as weft_explain estimates them, for which it measures peak rates */
    bool estimate;
    /* also run the step on the device. The engine must have been opened with `profile` */
    bool measure;
    weft_progress_fn on_progress;      /* of measuring; may be NULL */
    void *user;
};
/* A nano-operation of the plan that has work. Where nothing is known of its time it ends as it begins. */
struct weft_timeline_op {
    char name[24];
    int32_t layer;       /* -1: runs once, outside the layers */
    enum weft_class op_class;
    uint32_t queue;
    uint32_t begin, end; /* its tokens, or rows of logits */
    double begin_us, end_us;
};
/* What is used from one time to the next, as a part of the device's peak, from 0 to 1; of copies and network: 1
 * while any runs. */
struct weft_timeline_use {
    double begin_us, end_us;
    double use[WEFT_N_CLASSES];
};
struct weft_timeline_step {
    double us;                       /* from its first op to its end */
    struct weft_timeline_op *ops;    /* in the order of the plan; those of a queue do not overlap */
    size_t n_ops;                    /* 0: there is no such step */
    struct weft_timeline_use *uses;  /* without gaps, from 0 to `us` */
    size_t n_uses;
    /* the peak: operations per second of the ops that need most of them, bytes of memory per second; 0: unknown */
    double compute, read;
    bool peak_of_ops;                /* the peak is the highest rate of an op, for the times are of another device */
};
/* Owned by the caller; free it with weft_timeline_free. */
struct weft_timeline {
    char device[128];
    uint32_t tokens, decodes, context, n_queues, n_layers;
    char profile[600];                     /* that the predicted times come from, cut to fit; "": from none */
    /* they are estimates. Neither: nothing is predicted, for no times are known */
    bool estimated;
    struct weft_timeline_step predicted;   /* by simulation of the engine's plan */
    struct weft_timeline_step measured;    /* the median of five steps */
};
/* When each op of such a step runs, and what it uses of the device meanwhile (NanoFlow, figure 10). No request may
 * run meanwhile, and with `measure` the engine is of no use afterwards but to be closed. WEFT_ERR_ARG: a batch that
 * does not fit the engine, or without `measure` no known times; WEFT_ERR_UNSUPPORTED: the device does not tell
 * times, or nothing that estimates could go by. */
enum weft_status weft_timeline(struct weft_engine *e, const struct weft_timeline_params *p, struct weft_timeline **out);
void weft_timeline_free(struct weft_timeline *t); /* NULL is allowed */

/* --- cost ----------------------------------------------------------------------------------------- */

/* What bounds work: an op, or a step as a whole. */
enum weft_limit { WEFT_LIMIT_COMPUTE, WEFT_LIMIT_MEMORY, WEFT_LIMIT_NETWORK, WEFT_LIMIT_ENERGY, WEFT_N_LIMITS };
const char *weft_limit_name(enum weft_limit l); /* "unknown" for none of these */

struct weft_cost_params {
    const struct weft_model *model; /* required */
    /* A device of a table of constants, such as "h200"; NULL: `device`, by what was measured there. The message for one
     * that does not exist lists them. */
    const char *on;
    const char *devices; /* file with such a table; NULL: the one that weft was built with */
    const char *device, *tier; /* these three as in weft_engine_params; not with `on` */
    uint32_t threads;
    bool f16_residual;   /* as in weft_engine_params, and so is the next */
    const char *kv_dtype;
    /* measure the device's peak rates, for about a second, also if some are kept; what is measured is kept as by
     * weft_tune */
    bool measure;
    uint32_t n_devices;  /* that share every matrix (tensor parallelism); 0: 1. weft itself computes on one */
    /* tokens of a request on average; 0: 512 and 1024, or less where the context is shorter */
    double input_len, output_len;
    uint32_t tokens;     /* of a step; 0: the most whose KV cache the memory holds */
    uint32_t decodes;    /* how many of `tokens` are decodes; 0: as in a steady load of such requests */
    weft_progress_fn on_progress; /* of measuring; may be NULL */
    void *user;
};
/* A row of NanoFlow's table 2: an op in all layers together, or a whole step. */
struct weft_cost_op {
    char name[24];
    double flops, bytes, network_bytes; /* bytes: of memory */
    double seconds[WEFT_N_LIMITS];      /* that each limit takes by itself; 0: none, or unknown */
    double alone;                       /* by these limits, when nothing runs beside it */
    enum weft_limit bound;              /* what takes the longest; never energy, which is an estimate */
};
/* Owned by the caller; free it with weft_cost_free. Rates, bytes and watts are of all devices together; 0: unknown. */
struct weft_cost {
    char device[128];
    uint32_t n_devices;
    /* bytes, bytes/s, bytes/s one way, operations/s for the format of most weights */
    double memory, read, network, compute;
    double flop_energy, byte_energy, static_power, power_limit; /* joules, watts */
    bool given; /* constants come from a table; else they were measured */
    const char *format;                     /* of most weights */
    double params, weight_bytes;            /* params: that a token is multiplied with */
    double kv_bytes_per_token, keys;        /* keys: of a decoding sequence on average */
    double input_len, output_len;
    /* the largest dense batch that the memory holds (NanoFlow, section 4.1.1) */
    double most_decodes, most_tokens;
    double decodes, prefill;                /* tokens of the step that the rest is about */
    double t_mem, t_compute, t_net, t_r, eq5; /* equations 1 to 4 of the paper, seconds; 5: tokens per second */
    struct weft_cost_op *ops;
    size_t n_ops;
    struct weft_cost_op total;              /* alone: one op after another */
    double optimum, sequential;             /* tokens per second if everything overlaps, and if nothing does */
};
/* The cost model: equations 1 to 5 of the NanoFlow paper, its table 2 and the bounds of a step of a model on a
 * device. Opens no engine and loads no weights. WEFT_ERR_ARG: no such device, or a model that does not fit. */
enum weft_status weft_cost(const struct weft_cost_params *p, struct weft_cost **out);
void weft_cost_free(struct weft_cost *c); /* NULL is allowed */

/* --- simulation of a cluster ------------------------------------------------------------------------ */

struct weft_sim_request {
    uint32_t n_in, n_out; /* tokens; n_in 1 or more; n_out 0: prefill only */
    double at;            /* its arrival, as the next two in seconds */
    /* out: its first and last token, or the end of its prefill; and for how long stages of the pipeline waited for
     * steps that it was part of (SARATHI, section 5.3) */
    double first, last, bubble;
};
struct weft_simulate_params {
    const struct weft_model *model;   /* required; only its shape counts */
    const char *on, *devices;         /* as in weft_cost_params; `on` is required */
    bool f16_residual;                /* this and what follows up to memory_utilization as in weft_engine_params */
    const char *kv_dtype, *policy;
    uint32_t context;                 /* 0: the longest request */
    uint32_t max_batched_tokens;      /* 0: 1024; for policies that do not cut prompts the context */
    uint32_t n_seqs;                  /* of a step; 0: as many whole contexts as its KV pages hold, from 64 to 256 */
    float memory_utilization;         /* of each device, for weights and KV pages; 0: 0.9 */
    /* devices that share every matrix, stages of a pipeline that share the layers, and copies of all that; 0: 1 */
    uint32_t tp, pp, replicas;
    struct weft_sim_request *requests; /* required; a request is at most `context` tokens long */
    size_t n;
    weft_progress_fn on_progress;     /* these two may be NULL */
    weft_stop_fn stop;
    void *user;                       /* for both */
};
/* What a simulation took. */
struct weft_sim_use {
    double seconds;         /* from the first arrival to the end */
    uint64_t steps, tokens; /* of all steps */
    double busy, bubbles;   /* seconds of all stages of all replicas: computing, and waiting for steps */
    uint64_t preempted, recomputed; /* sequences; tokens that these had computed before */
};
struct weft_simulation {
    struct weft_sim_use use;
    char device[128];
    uint32_t n_devices, context, n_seqs, max_batched_tokens; /* n_seqs: of a step; there are pp of these in flight */
    double whole_contexts;  /* that the KV pages of a step's sequences hold: B of SARATHI, section 4.3.1 */
    double kv_bytes_per_token, weight_bytes;
};
/* Runs the requests with the real scheduler on a cluster of devices that need not exist, by the cost model: each step
 * takes what weft_cost says of one op after another, and its messages. Of a pipeline's steps as many are in flight as
 * it has stages, each with other sequences. WEFT_ERR_ARG: no such device, or a model or context that does not fit
 * these; WEFT_ERR_CANCELLED: `stop` said so. */
enum weft_status weft_simulate(const struct weft_simulate_params *p, struct weft_simulation *out);

/* --- search for plans ----------------------------------------------------------------------------- */

/* Prints a profile (docs/plans.md) as a table: times of ops by tokens and shares of the device, and rates side by
 * side. */
enum weft_status weft_profile_print(const char *path, FILE *f);
/* What ops of a class still reach beside compute: a point of the table R -> P (NanoFlow, section 4.1.1). */
struct weft_profile_rate {
    enum weft_class op_class;
    double share;               /* of the device that they have; compute has the rest */
    /* R: the part of its rate that compute loses by that, 0 to 1; without a measurement, the share */
    double lost;
    double rate, spread;        /* P: the part of their rate alone that they keep, 0 to 1 */
};
/* Owned by the caller; free it with weft_profile_free. */
struct weft_profile {
    char device[80], model[80]; /* "": unknown */
    uint32_t groups, context;   /* work-groups that are the whole device; keys of a sequence */
    struct weft_profile_rate *rates; /* by class, then by share; none of compute itself */
    size_t n_rates;
};
/* Reads a profile. WEFT_ERR_ARG: it cannot be read; the message has file and line. */
enum weft_status weft_profile_read(const char *path, struct weft_profile **out);
void weft_profile_free(struct weft_profile *p); /* NULL is allowed */
struct weft_search_params {
    const char *profile; /* times of the model's ops on this device */
    const char *plan;    /* file for the best plan; the next ones get names that end in .2, .3 and so on; NULL: none */
    uint32_t tokens, decodes; /* as in weft_explain_params */
    uint32_t keep;            /* plans to write, up to 15; 0: 1 */
    uint32_t seconds;         /* the most that it takes; 0: 600 */
    weft_progress_fn on_progress;
    weft_stop_fn stop;        /* true: the plans so far are the result. These two may be NULL */
    void *user;               /* for both */
};
/* Searches plans that overlap compute with memory, network and copies, by simulation from the profile, and prints to
 * f what each would take beside the sequential plan; none that is slower is a result. Where nothing is faster the
 * sequential plan is written. The same profile gives the same plans unless time ran out. *stopped, unless NULL: stop
 * ended it. */
enum weft_status weft_search(struct weft_engine *e, const struct weft_search_params *p, FILE *f, bool *stopped);

/* --- overlap ---------------------------------------------------------------------------------------- */

struct weft_overlap_params {
    const char *profile, *plan; /* files; NULL: those that engines look for by themselves, in the cache folder */
    /* the most that measuring and searching take, about; kernels that plans need, and a step under way, may take
     * longer; 0: 300 */
    uint32_t seconds;
    uint32_t context;           /* keys of a sequence, at most the engine's; 0: 1024 */
    uint32_t keep;              /* plans of a load that are run, up to 4; 0: 4 */
    /* fewer sizes, shares and repetitions: a trial of everything, whose numbers vary much */
    bool quick;
    bool anew;                  /* measure also what was measured before */
    weft_progress_fn on_progress;
    /* true: end; what was measured is kept, and the next call goes on from there. These two may be NULL */
    weft_stop_fn stop;
    void *user;                 /* for both */
};
/* Measures the ops of a model on a device, alone and beside each other, searches plans that overlap them, runs the
 * best and the sequential plan in turns, for loads of decodes, of prompts and of both, and keeps the fastest of each
 * for later engines (nano_batches 0). A plan that is not faster than the sequential one by more than both vary is
 * not kept. Prints to f what was compared. The engine must have been opened with `profile` and nano_batches 1, must
 * be idle, and is of no use afterwards but to be closed. *stopped, unless NULL: stop ended it. */
enum weft_status weft_tune_overlap(struct weft_engine *e, const struct weft_overlap_params *p, FILE *f, bool *stopped);

/* --- ablation --------------------------------------------------------------------------------------- */

/* A step of a kind of load ("decode", "prefill", "mixed") with one plan. Valid during the callback only. */
struct weft_ablation_row {
    const char *load, *plan;           /* plan: "no split", "split only", "overlap", "overlap + offload", "tuned" */
    uint32_t tokens, decodes, context; /* of the step; keys of the longest sequence */
    /* on the device: the median of all rounds, and half the distance of the quartiles */
    double us, spread_us;
    double speedup;                    /* over "no split" */
    double watts, joules_per_token;    /* medians, all that the device draws; 0: unknown */
    const char *power_source;          /* "not readable", or what tells power, such as "NVML" */
};
typedef void (*weft_ablation_fn)(void *user, const struct weft_ablation_row *row);
struct weft_ablation_params {
    uint32_t n_parts; /* nano-batches; 0: 2 */
    uint32_t rounds;  /* in each of which all plans run; 3 to 99; 0: 9 */
    uint32_t context; /* keys of a sequence, at most the engine's; 0: 1024 */
    weft_ablation_fn on_row;
    weft_progress_fn on_progress;
    weft_stop_fn stop; /* true: end with WEFT_ERR_CANCELLED. These two may be NULL */
    void *user;        /* for all three */
};
/* Runs steps whole on one queue, in nano-batches on one queue, and with the attention of one beside the other ops of
 * another, in turns (NanoFlow, figure 9); the last also beside copies to the host of as many KV pages as a step
 * fills, where copies have a queue of their own and there are pages that the step leaves alone; and with the plan
 * that weft_tune_overlap has kept ("tuned"), if it has. The engine must have been opened with `profile` and
 * nano_batches 1, must be idle, and is of no use afterwards but to be closed. A load that such an engine cannot run
 * has no rows, and a warning is logged. WEFT_ERR_UNSUPPORTED: the device does not tell times. */
enum weft_status weft_ablation(struct weft_engine *e, const struct weft_ablation_params *p);

/* --- self-test ------------------------------------------------------------------------------------ */

/* One row of `weft selftest`: an op with one dtype, shape and kernel variant. Valid during the callback only. */
struct weft_selftest_row {
    const char *op, *dtype, *shape, *variant;
    double error, limit; /* largest error in units of the tolerance; passes if error <= limit */
    bool ok;
    const char *message; /* "", or why it could not run */
    double done;         /* part of all problems, this one included: for a progress bar */
};
typedef void (*weft_selftest_fn)(void *user, const struct weft_selftest_row *row);
/* Compares every kernel variant of the device with the reference, on small random shapes that `seed` determines.
 * device and tier as in weft_engine_params. WEFT_OK if all agree; WEFT_ERR_DEVICE otherwise; WEFT_ERR_CANCELLED: what
 * the thread asks (wf_stop_by) said so. fn may be NULL. */
enum weft_status weft_selftest(const char *device, const char *tier, uint64_t seed, weft_selftest_fn fn, void *user);

/* --- kernels ------------------------------------------------------------------------------------ */

/* One row of `weft kernels`: a variant of an op. Valid during the callback only. */
struct weft_kernel {
    const char *op, *name, *tier;
    const char *layout;     /* of the weights that it reads */
    const char *invariance; /* its invariance class: two variants of one class give bit-identical rows */
    bool batch_dependent;   /* the bits of a row depend on what else is in the batch */
    const char *needs;      /* of a device, in words; "": nothing */
    const char *file;       /* of its source */
    bool runs;              /* the device can run it */
};
typedef void (*weft_kernel_fn)(void *user, const struct weft_kernel *k);
/* Lists the variants of all ops that the device's backend has, also those that this device cannot run. device and
 * tier as in weft_engine_params. */
enum weft_status weft_kernels(const char *device, const char *tier, weft_kernel_fn fn, void *user);
/* The same for the device of an engine, whose `runs` says more: some step of this engine has a call that the variant
 * can run, so that weft_debug.force may name it. Only while the engine has no requests. */
enum weft_status weft_engine_kernels(const struct weft_engine *e, weft_kernel_fn fn, void *user);
/* A variant that the device offers for a shape. Valid during the callback only. */
struct weft_candidate {
    const char *op, *name;
    double us;   /* estimated microseconds (docs/tuning.md); 0: unknown */
    bool chosen; /* the one that runs such calls */
};
typedef void (*weft_candidate_fn)(void *user, const struct weft_candidate *k);
/* Lists them in the backend's order of preference. device and tier as in weft_engine_params; shape:
 * "M=8,N=6144,K=4096" for a GEMM or "B=64,L=4096" for decode attention; dtype: of the weights, NULL: F16.
 * WEFT_ERR_ARG describes what is wrong with them. */
enum weft_status weft_candidates(const char *device, const char *tier, const char *shape, const char *dtype,
                                 weft_candidate_fn fn, void *user);
/* The text that the device's compiler gets for a variant, "name" or "op/name", on one of the self-test's problems:
 * OpenCL C, or PTX. For a variant that the device cannot run, what another device's would get. Free *text with
 * weft_free. WEFT_ERR_ARG: no such variant, or one that is compiled with weft (the message names its file). device
 * as in weft_engine_params. */
enum weft_status weft_kernel_source(const char *device, const char *name, char **text);

/* --- a file of blocks of KV ---------------------------------------------------------------------- */

struct weft_kv_model { /* blocks of one model with the settings of one engine */
    uint8_t identity[32];
    uint64_t blocks;
};
struct weft_kv_file {
    uint64_t slots, block_bytes, damaged;
    uint32_t block_tokens;
    struct weft_kv_model *models;
    size_t n_models;
};
enum weft_kv_action { WEFT_KV_LIST, WEFT_KV_VERIFY, WEFT_KV_EMPTY };
/* What a file of weft_engine_params.kv_disk holds. LIST reads what slots say, VERIFY also K and V; EMPTY removes all
 * blocks before. WEFT_ERR_ARG: a process uses it, others may read it, or it is something else. Free it with
 * weft_kv_file_free. */
enum weft_status weft_kv_file(const char *path, enum weft_kv_action what, struct weft_kv_file *out);
void weft_kv_file_free(struct weft_kv_file *f);

#endif
