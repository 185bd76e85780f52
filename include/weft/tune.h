/* weft/tune.h: measuring and checking. Same conventions as <weft/weft.h>. */
#ifndef WEFT_TUNE_H
#define WEFT_TUNE_H

#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One row of `weft bench`: a prompt of n_prompt random tokens, or n_gen tokens after BOS alone. */
struct weft_bench_params {
    uint32_t n_prompt, n_gen; /* one of them may be 0 */
    uint32_t repeat;          /* 0: 5; one more run goes first and is not counted */
    weft_progress_fn on_progress;
    void *user;
};
struct weft_bench_result {
    double mean, stddev, median; /* tokens a second */
    uint32_t repeat;
};
WEFT_API enum weft_status weft_bench(struct weft_engine *e, const struct weft_bench_params *p,
                                     struct weft_bench_result *out);

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
