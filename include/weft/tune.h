/* weft/tune.h: benchmarks, tuning, calibration and the self-test. Same conventions as <weft/weft.h>. Functions here block until
 * they are done. They are not meant to run at the same time as other work on the device, which would falsify the times. */
#ifndef WEFT_TUNE_H
#define WEFT_TUNE_H

#include <stdio.h>
#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One row of `weft bench`: a prompt of n_prompt random tokens, or n_gen generated tokens after BOS, in each of n_seqs sequences
 * that run at the same time. */
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
/* If n_prompt > 0 the engine must have been opened with no_prefix: otherwise equal prompts would be computed once. WEFT_ERR_ARG
 * otherwise; WEFT_ERR_FULL: n_prompt + n_gen tokens do not fit the context. */
WEFT_API enum weft_status weft_bench(struct weft_engine *e, const struct weft_bench_params *p,
                                     struct weft_bench_result *out);

/* The measured peak rates of a device, as for a roofline. 0: the device has no such unit, or it was not measured. */
struct weft_ceilings {
    double read;         /* bytes per second, by a kernel that only reads */
    double f32, f16, q8; /* operations per second (a multiply-add is two): F32, matrix units on F16, int8 products */
};
/* A name for files about a device, e.g. "nvidia-h200": at most cap bytes with the NUL. */
WEFT_API void weft_device_file(const struct weft_device_info *d, char *buf, size_t cap);

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
    double ceiling_pct;             /* the shortest time that the ceilings allow (roofline), as a percentage of the measured time; < 0: unknown */
};
typedef void (*weft_op_fn)(void *user, const struct weft_op_row *row);

/* Measures single ops. Time is wall time over back-to-back launches. Weights and KV pages hold random numbers; launches rotate
 * over more memory than twice the last-level cache, so that none finds its operands there. */
struct weft_op_params {
    const char *device, *tier, *force, *tuned; /* these six as in weft_engine_params */
    uint32_t threads;
    bool no_kernel_cache, deterministic;
    const char *ops;           /* a list of gemm,decode_attention,prefill_attention; NULL: all that the shapes fit */
    const char *dtypes;        /* of weights: "F16,Q8_0"; NULL: F16. K and V are always F16 */
    const char *const *shapes; /* "M=8,N=6144,K=4096": a GEMM of M tokens with N x K weights (no M: 1 to 2048); "B=64,L=4096": attention of B
                                  sequences with L keys each (also H=32,KV=8,D=128: heads, KV heads, head size; S=1024: attention window) */
    size_t n_shapes;           /* 0: the shapes of Llama-3-8B */
    const char *variant;       /* NULL: the one that a model would use; "all": each except the references; or a name */
    uint32_t repeat;           /* samples, of which the median is reported; 0: 5 */
    uint64_t rotate;           /* bytes of all copies of the operands, which launches cycle through; 0: 4 GiB on a GPU, else more than twice
                                  the last-level cache */
    bool async;                /* let attention use the asynchronous softmax, as after calibration */
    weft_op_fn on_row;            /* required; called on the caller's thread */
    weft_progress_fn on_progress; /* may be NULL */
    void *user;                   /* for both */
};
WEFT_API enum weft_status weft_bench_ops(const struct weft_op_params *p);

/* One row of `weft tune`: the fastest kernel of a shape from this size on. Valid during the callback only. */
struct weft_tune_row {
    const char *op, *dtype, *shape;        /* "gemm", "F16", "N=6144,K=4096" */
    uint32_t size;                         /* tokens of a GEMM; of attention: keys per sequence (decode) or tokens per sequence (prefill) */
    const char *variant, *default_variant; /* the fastest, and the choice without a file */
    double us, default_us;
};
typedef void (*weft_tune_fn)(void *user, const struct weft_tune_row *row);

/* Measures every kernel over the sizes of each shape and writes the choices to a file, which engines on this device then load.
 * Entries of other shapes in the file are kept. */
struct weft_tune_params {
    const char *device, *tier; /* these four as in weft_engine_params */
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
    uint32_t *dense_batch;          /* out, may be NULL: the dense batch (NanoFlow), i.e. the tokens per step from which the
                                       products of this model gain little; 0: unknown, max_size was too small */
    weft_tune_fn on_row;            /* these two may be NULL */
    weft_progress_fn on_progress;
    void *user;                     /* for both */
};
/* path (may be NULL): gets the path of the file, at most cap bytes with the NUL. WEFT_ERR_ARG: neither a model nor shapes, or a
 * path that must not be replaced. */
WEFT_API enum weft_status weft_tune(const struct weft_tune_params *p, char *path, size_t cap);

/* --- calibration of the asynchronous softmax (FlashDecoding++Next, section III) -------------- */

/* A histogram of attention logits x = q.k * scale. Values outside the bins count in the outermost ones. */
#define WEFT_LOGIT_BINS 16384
#define WEFT_LOGIT_LOW  (-256.0)  /* lower edge of the first bin */
#define WEFT_LOGIT_STEP 0.03125   /* width of a bin */
struct weft_logit_histogram {
    uint64_t n;
    double min, max, sum;
    uint64_t *bins; /* [WEFT_LOGIT_BINS] */
};
/* The quantile `part` (0 to 1), accurate to one bin. NaN if the histogram is empty. */
WEFT_API double weft_logit_quantile(const struct weft_logit_histogram *l, double part);

struct weft_calibration_layer {
    struct weft_logit_histogram all;  /* every x that entered a softmax */
    struct weft_logit_histogram rows; /* the largest x of each softmax row (query and head) */
    float phi, a, b; /* the unified maximum, and the range that a row's largest x - phi must lie in: a to b */
    bool fits;       /* false: the maxima vary too much for any phi; a = b = 0, and the softmax stays synchronous */
    double outside;  /* fraction of rows that kernels with exponentials in F16 recompute */
};
/* Owned by the caller; free it with weft_calibration_free. */
struct weft_calibration {
    uint32_t n_layers, context; /* the text was computed in pieces of at most `context` tokens */
    uint64_t n_tokens;
    struct weft_calibration_layer *layers;
};
struct weft_calibrate_params {
    const char *text; /* UTF-8, tokenised with the default flags */
    size_t len;
    weft_progress_fn on_progress;
    void *user;
};
/* Computes the text in pieces of the engine's context, and collects each layer's attention logits on the host. No other
 * request may use the engine meanwhile. WEFT_ERR_ARG: a text of fewer than 8 tokens; ten thousand are enough. */
WEFT_API enum weft_status weft_calibrate(struct weft_engine *e, const struct weft_calibrate_params *p,
                                         struct weft_calibration **out);
/* Writes phi, a and b of each layer as text. Engines read the file at the model's path + WEFT_CALIBRATION_SUFFIX; they ignore,
 * with a warning, a file that is damaged or belongs to another model. */
#define WEFT_CALIBRATION_SUFFIX ".calibration"
WEFT_API enum weft_status weft_calibration_save(const struct weft_calibration *c, const struct weft_model *m,
                                                const char *path);
WEFT_API void weft_calibration_free(struct weft_calibration *c); /* NULL is allowed */

/* --- plan ----------------------------------------------------------------------------------------- */

/* A batch, to see what a step with it runs. */
struct weft_explain_params {
    uint32_t tokens;  /* of the batch; 0: the engine's largest step */
    uint32_t decodes; /* how many of them are decodes, one per sequence; the rest is one prompt */
    uint32_t context; /* tokens of the longest sequence; 0: the engine's context */
    bool measure;     /* measure the device's peak rates, for about a second, and estimate times from them: of a kernel by its backend's
                         cost model if it has one, else the least time that its bytes and flops take (docs/tuning.md) */
};
/* Prints the commands of such a step, one per line, as EXPLAIN does for a query: tokens, queue, waits, share of the device, what
 * bounds it, MB, Gflop, estimated time and kernels. f stays open. No request may run meanwhile. WEFT_ERR_ARG: a batch that the
 * engine does not take; WEFT_ERR_IO: writing to f failed. */
WEFT_API enum weft_status weft_explain(struct weft_engine *e, const struct weft_explain_params *p, FILE *f);

/* --- self-test ------------------------------------------------------------------------------------ */

/* One row of `weft selftest`: an op with one dtype, shape and kernel variant. Valid during the callback only. */
struct weft_selftest_row {
    const char *op, *dtype, *shape, *variant;
    double error, limit; /* largest error in units of the tolerance; passes if error <= limit */
    bool ok;
    const char *message; /* "", or why it could not run */
};
typedef void (*weft_selftest_fn)(void *user, const struct weft_selftest_row *row);
/* Compares every kernel variant of the device with the reference, on small random shapes that `seed` determines. device and tier
 * as in weft_engine_params. WEFT_OK if all agree; WEFT_ERR_DEVICE otherwise. fn may be NULL. */
WEFT_API enum weft_status weft_selftest(const char *device, const char *tier, uint64_t seed,
                                        weft_selftest_fn fn, void *user);

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
/* Lists the variants of all ops that the device's backend has, also those that this device cannot run. device and tier as in
 * weft_engine_params. */
WEFT_API enum weft_status weft_kernels(const char *device, const char *tier, weft_kernel_fn fn, void *user);
/* The same for the device of an engine, whose `runs` says more: some step of this engine has a call that the variant can run, so that
 * weft_engine_params.force may name it. Only while the engine has no requests. */
WEFT_API enum weft_status weft_engine_kernels(const struct weft_engine *e, weft_kernel_fn fn, void *user);
/* A variant that the device offers for a shape. Valid during the callback only. */
struct weft_candidate {
    const char *op, *name;
    double us;   /* estimated microseconds (docs/tuning.md); 0: unknown */
    bool chosen; /* the one that runs such calls */
};
typedef void (*weft_candidate_fn)(void *user, const struct weft_candidate *k);
/* Lists them in the backend's order of preference. device and tier as in weft_engine_params; shape: "M=8,N=6144,K=4096" for a GEMM or
 * "B=64,L=4096" for decode attention; dtype: of the weights, NULL: F16. WEFT_ERR_ARG describes what is wrong with them. */
WEFT_API enum weft_status weft_candidates(const char *device, const char *tier, const char *shape, const char *dtype, weft_candidate_fn fn, void *user);
/* The text that the device's compiler gets for a variant, "name" or "op/name", on one of the self-test's problems: OpenCL C,
 * or PTX. For a variant that the device cannot run, what another device's would get. Free *text with weft_free. WEFT_ERR_ARG:
 * no such variant, or one that is compiled with weft (the message names its file). */
WEFT_API enum weft_status weft_kernel_source(const char *device, const char *name, char **text);

#ifdef __cplusplus
}
#endif
#endif
