/* sampler: the rule that samples a token from a row of logits, on the host. The reference of SAMPLE, the engine and the
 * op checks share it; dev/ops.def describes it under SAMPLE. */
#ifndef WF_SAMPLER_H
#define WF_SAMPLER_H

#include "base/base.h"

/* Of one row, all resolved; struct weft_sampling (weft.h) is what a request asks for. */
typedef struct wf_sampling_params {
    float temperature, top_p, min_p; /* 0: greedy; 0 or 1: off; 0: off */
    int32_t top_k;                   /* 0: off */
    uint64_t seed, counter;
} wf_sampling_params;

typedef struct wf_token_logit {
    float logit;
    int32_t id;
} wf_token_logit;

/* z: n > 0 finite logits. scratch: n entries. *margin (or NULL): how far the nearest other
 * outcome is, in probability; where it is tiny, rounding decides. */
int32_t wf_sample_row(const wf_sampling_params *params, const float *z, uint32_t n, wf_token_logit *scratch,
                      double *margin);

/* Changes a logit; again: in place of `after` where a later entry names the same one. */
typedef struct wf_adjust {
    float repeat, after, again;
} wf_adjust;
static inline float wf_adjusted_logit(float x, float repeat, float after)
{
    return (x > 0 ? x / repeat : x * repeat) + after;
}
/* z by n entries, tokens being [n_tokens]. */
void wf_adjust_row(const int32_t *ids, const wf_adjust *list, uint32_t n, const int32_t *tokens, uint32_t n_tokens,
                   float *z, uint32_t n_vocab);

/* z of those whose bit is not set becomes -2e30: below what bias can do, and finite, so that sums are. */
void wf_allow_row(const uint32_t *allowed, float *z, uint32_t n_vocab);

/* Philox4x32-10 (Salmon et al. 2011): the same counter and key give the same words everywhere. */
void wf_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* Its first 24 bits as a number in [0, 1). */
float wf_philox_unit(uint64_t seed, uint64_t counter);

#endif
