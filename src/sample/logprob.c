/* logprob: log probabilities from the model's logits. Sums are in double, for accuracy over a large vocabulary. */
#include "sample/sampling.h"

#include <math.h>

/* Keeps `top` sorted in descending order; equal values by ascending id. */
static void insert(struct weft_logprob *top, uint32_t n, uint32_t cap, int32_t id, float logit)
{
    uint32_t at = n < cap ? n : cap - 1;
    for (; at > 0 && top[at - 1].logprob < logit; at--) top[at] = top[at - 1];
    top[at] = (struct weft_logprob){id, logit};
}

float wf_logprob(const float *logits, uint32_t n_vocab, int32_t id, uint32_t n_top, struct weft_logprob *top)
{
    float most = logits[0];
    double sum = 0;
    for (uint32_t i = 1; i < n_vocab; i++) most = WF_MAX(most, logits[i]);
    for (uint32_t i = 0; i < n_vocab; i++) {
        sum += exp((double)logits[i] - most);
        if (n_top && (i < n_top || logits[i] > top[n_top - 1].logprob))
            insert(top, WF_MIN(i, n_top), n_top, (int32_t)i, logits[i]);
    }
    double norm = most + log(sum);
    for (uint32_t i = 0; i < n_top; i++) top[i].logprob = (float)(top[i].logprob - norm);
    return id < 0 ? 0 : (float)(logits[id] - norm);
}
