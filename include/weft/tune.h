/* weft/tune.h: measuring and checking. Same conventions as <weft/weft.h>. */
#ifndef WEFT_TUNE_H
#define WEFT_TUNE_H

#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One row of `weft bench`: a prompt of n_prompt random tokens, or n_gen tokens after BOS alone, in each of
 * n_seqs sequences at once. */
struct weft_bench_params {
    uint32_t n_prompt, n_gen; /* one of them may be 0 */
    uint32_t n_seqs;          /* 0: 1; at most the engine's */
    uint32_t repeat;          /* 0: 5; one more run goes first and is not counted */
    weft_progress_fn on_progress;
    void *user;
};
struct weft_bench_result {
    double mean, stddev, median; /* tokens a second, of all sequences together */
    uint32_t repeat;
};
/* With n_prompt the engine must have been opened with no_prefix. */
WEFT_API enum weft_status weft_bench(struct weft_engine *e, const struct weft_bench_params *p,
                                     struct weft_bench_result *out);

/* What a device can at most do, measured; 0: has no such unit, or none that was measured. */
struct weft_ceilings {
    double read;         /* bytes a second, by a kernel that only reads */
    double f32, f16, q8; /* operations a second: F32 multiply-adds, matrix units on F16, int8 products */
};
/* A name for files about a device: "nvidia-h200". */
WEFT_API void weft_device_file(const struct weft_device_info *d, char *buf, size_t cap);

/* One row of `weft bench ops`. */
struct weft_op_row {
    const struct weft_device_info *device;
    const struct weft_ceilings *ceilings;
    const char *op, *dtype, *shape; /* "gemm", "F16", "M=8,N=6144,K=4096" */
    const char *variant;            /* NULL: nothing was measured, message says why */
    const char *message;
    bool picked;                    /* the one that a model would run with */
    double median_us;
    double rate;                    /* in unit: TFLOP/s, or GB/s of what must be read and written */
    const char *unit;
    double ceiling_pct;             /* the least time that the ceilings allow, in per cent of the time; < 0: unknown */
};
typedef void (*weft_op_fn)(void *user, const struct weft_op_row *row);

/* Measures single ops. Time is wall time over launches back to back; weights and KV pages come from memory
 * of more than twice the last-level cache in turn and hold random numbers. */
struct weft_op_params {
    const char *device, *tier, *force, *tuned; /* as in weft_engine_params */
    uint32_t threads;
    bool no_kernel_cache;
    const char *ops;           /* of gemm,decode_attention,prefill_attention; NULL: all that the shapes are for */
    const char *dtypes;        /* of weights: "F16,Q8_0"; NULL: F16. KV is always F16 */
    const char *const *shapes; /* "M=8,N=6144,K=4096" (no M: 1 to 2048), "B=64,L=4096" (H=32,KV=8,D=128,S=1024) */
    size_t n_shapes;           /* 0: those of Llama-3-8B */
    const char *variant;       /* NULL: the picked one; "all": each but the references; or a name */
    uint32_t repeat;           /* samples, of which the median counts; 0: 5 */
    uint64_t rotate;           /* bytes to go over in turn; 0: more than twice the last-level cache */
    bool async;                /* attention may use the asynchronous softmax, as after calibration */
    weft_op_fn on_row;
    weft_progress_fn on_progress;
    void *user;
};
WEFT_API enum weft_status weft_bench_ops(const struct weft_op_params *p);

/* One size of one shape in `weft tune`: the fastest kernel from there on. */
struct weft_tune_row {
    const char *op, *dtype, *shape;        /* "gemm", "F16", "N=6144,K=4096" */
    uint32_t size;                         /* rows of X; keys or rows of a sequence for attention */
    const char *variant, *default_variant; /* the fastest, and what would be picked without a file */
    double us, default_us;
};
typedef void (*weft_tune_fn)(void *user, const struct weft_tune_row *row);

/* Measures every kernel over the sizes of each shape and writes the choices to a file, which later runs on
 * this device load. Rows of other shapes that the file has are kept. */
struct weft_tune_params {
    const char *device, *tier; /* as in weft_engine_params */
    uint32_t threads;
    bool no_kernel_cache;
    const struct weft_model *model; /* its shapes; or */
    const char *const *shapes;      /* "N=6144,K=4096", "H=32,KV=8,D=128" */
    size_t n_shapes;
    const char *dtypes;             /* of weights for shapes; NULL: F16 */
    uint32_t max_size;              /* largest number of rows or keys to measure; 0: 2048 */
    uint32_t repeat;                /* 0: 3 */
    uint64_t rotate;                /* as in weft_op_params */
    const char *path;               /* the file; NULL: the user's own */
    uint32_t *dense_batch;          /* or NULL; gets the rows of a step that the file names for this model, 0: none,
                                       for max_size was too small to tell */
    weft_tune_fn on_row;
    weft_progress_fn on_progress;
    void *user;
};
/* path (may be NULL) gets where the file lies. */
WEFT_API enum weft_status weft_tune(const struct weft_tune_params *p, char *path, size_t cap);
/* --- calibration of the asynchronous softmax (flashdecoding-next, section III) ------------------ */

/* A distribution of attention logits x = q.k * scale. What lies outside the bins counts in the outermost. */
#define WEFT_LOGIT_BINS 16384
#define WEFT_LOGIT_LOW  (-256.0)  /* where the first bin begins */
#define WEFT_LOGIT_STEP 0.03125   /* width of a bin */
struct weft_logits {
    uint64_t n;
    double min, max, sum;
    uint64_t *bins; /* [WEFT_LOGIT_BINS] */
};
/* The value below which that part (0 to 1) of them lies, to within a bin. NaN when there are none. */
WEFT_API double weft_logits_quantile(const struct weft_logits *l, double part);

struct weft_calibration_layer {
    struct weft_logits all;  /* every x that a softmax saw */
    struct weft_logits rows; /* the largest x of each row of each head */
    float phi, a, b; /* the unified maximum, and what a row's largest x - phi may be: between a and b */
    bool fits;       /* false: the rows range too widely for any phi: a = b = 0, the layer stays synchronous */
    double outside;  /* share of rows that kernels with exponentials in F16 compute twice */
};
struct weft_calibration {
    uint32_t n_layers, context; /* the text was cut into pieces of at most `context` tokens */
    uint64_t n_tokens;
    struct weft_calibration_layer *layers;
};
struct weft_calibrate_params {
    const char *text; /* UTF-8, tokenised with the default flags */
    size_t len;
    weft_progress_fn on_progress;
    void *user;
};
/* Takes the text through the model, in pieces of the engine's context, and collects each layer's attention
 * logits on the host. Nobody else may use the engine meanwhile. */
WEFT_API enum weft_status weft_calibrate(struct weft_engine *e, const struct weft_calibrate_params *p,
                                         struct weft_calibration **out);
/* Writes phi, a and b of each layer as text. Engines read the file whose name is the model's path and
 * WEFT_CALIBRATION_SUFFIX; one that is damaged or of another model is ignored, with a warning. */
#define WEFT_CALIBRATION_SUFFIX ".calibration"
WEFT_API enum weft_status weft_calibration_save(const struct weft_calibration *c, const struct weft_model *m,
                                                const char *path);
WEFT_API void weft_calibration_free(struct weft_calibration *c); /* NULL is allowed */

/* One row of `weft selftest`: an op on one dtype and shape with one kernel variant. */
struct weft_selftest_row {
    const char *op, *dtype, *shape, *variant;
    double error, limit; /* largest error over its tolerance's unit; passes when error <= limit */
    bool ok;
    const char *message; /* "" or why it could not run */
};
typedef void (*weft_selftest_fn)(void *user, const struct weft_selftest_row *row);
/* Compares every kernel variant that the device offers with the reference on small shapes drawn
 * from seed. WEFT_OK when all agree. */
WEFT_API enum weft_status weft_selftest(const char *device, const char *tier, uint64_t seed,
                                        weft_selftest_fn fn, void *user);

#ifdef __cplusplus
}
#endif
#endif
