/* calibration: what measuring the ranges of the asynchronous softmax gives (ranges.h), also for those who only print
 * it.
 */
#ifndef WF_CALIBRATION_H
#define WF_CALIBRATION_H

#include <weft/weft.h>

#define WEFT_CALIBRATION_SUFFIX ".calibration" /* of the file that engines look for beside a model */

/* A histogram of attention logits x = q.k * scale. Values outside the bins count in the outermost ones. */
#define WEFT_LOGIT_BINS 16384
#define WEFT_LOGIT_LOW  (-256.0)  /* lower edge of the first bin */
#define WEFT_LOGIT_STEP 0.03125   /* width of a bin */
struct weft_logit_histogram {
    uint64_t n;
    double min, max, sum;
    uint64_t *bins; /* [WEFT_LOGIT_BINS] */
};
struct weft_calibration_layer {
    struct weft_logit_histogram all;  /* every x that entered a softmax */
    struct weft_logit_histogram rows; /* the largest x of each softmax row (query and head) */
    float phi, a, b; /* the unified maximum, and the range that a row's largest x - phi must lie in: a to b */
    bool fits;       /* false: the maxima vary too much for any phi; a = b = 0, and the softmax stays synchronous */
    double outside;  /* fraction of rows that kernels with exponentials in F16 compute again */
};
struct weft_calibration {
    uint32_t n_layers, context; /* the text was computed in pieces of at most `context` tokens */
    uint64_t n_tokens;
    struct weft_calibration_layer *layers;
};
void weft_calibration_free(struct weft_calibration *c); /* NULL is allowed */

struct weft_calibrate_params {
    const char *text; /* UTF-8, tokenised with the default flags */
    size_t len;
    weft_progress_fn on_progress;
    void *user;        /* for both */
    weft_stop_fn stop; /* true: end with WEFT_ERR_CANCELLED; may be NULL */
};

#endif
