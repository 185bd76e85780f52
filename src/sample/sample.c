/* sample: samples the next token from logits on the host. Penalties, top-k, top-p, min-p, temperature, in llama.cpp's
 * order (sample/sampler.h). The result depends on the logits, the seed and the position alone, not on the rest of the
 * batch, and equals that of the op SAMPLE on a device. */
#include "sample/sampling.h"

#include <math.h>
#include <string.h>

weft_status wf_sampling_check(const struct weft_sampling *p)
{
    if (!(p->temperature >= 0 && p->temperature <= 100))
        return wf_fail(WEFT_ERR_ARG, "temperature %g: want 0 (greedy) to 100", p->temperature);
    if (p->top_k < 0) return wf_fail(WEFT_ERR_ARG, "top_k %d: want 0 (off) or more", p->top_k);
    if (!(p->top_p >= 0 && p->top_p <= 1)) return wf_fail(WEFT_ERR_ARG, "top_p %g: want 0 (off) to 1", p->top_p);
    if (!(p->min_p >= 0 && p->min_p <= 1)) return wf_fail(WEFT_ERR_ARG, "min_p %g: want 0 (off) to 1", p->min_p);
    /* Logits are divided by it, and must stay finite. */
    if (p->repeat_penalty != 0 && !(p->repeat_penalty >= 1e-3f && p->repeat_penalty <= 100))
        return wf_fail(WEFT_ERR_ARG, "repeat_penalty %g: want 0.001 to 100, where 1 is off, or 0 (off)",
                       p->repeat_penalty);
    if (!(p->presence_penalty >= -100 && p->presence_penalty <= 100))
        return wf_fail(WEFT_ERR_ARG, "presence_penalty %g: want -100 to 100", p->presence_penalty);
    if (!(p->frequency_penalty >= -100 && p->frequency_penalty <= 100))
        return wf_fail(WEFT_ERR_ARG, "frequency_penalty %g: want -100 to 100", p->frequency_penalty);
    return WEFT_OK;
}

static weft_status not_finite(uint32_t token)
{
    return wf_fail(WEFT_ERR_NOT_FINITE,
                   "the model gave a logit that is not a finite number (token %u): broken weights or a faulty device; "
                   "try weft selftest",
                   token);
}

weft_status wf_sample_chosen(int32_t argmax, int32_t *out)
{
    *out = argmax;
    return argmax < 0 ? not_finite((uint32_t)(-1 - argmax)) : WEFT_OK;
}

weft_status wf_sample_check(const float *logits, uint32_t n)
{
    enum { PART = 1024, INFINITE = 0x7f800000 };
    for (uint32_t i = 0; i < n; i += PART) {
        uint32_t end = WF_MIN(i + PART, n);
        int32_t most = 0; /* bits without the sign: a loop over integers runs several at a time */
        for (uint32_t k = i; k < end; k++) {
            int32_t bits;
            memcpy(&bits, &logits[k], sizeof bits);
            bits &= INT32_MAX;
            most = bits > most ? bits : most;
        }
        for (uint32_t k = i; k < end && most >= INFINITE; k++)
            if (!isfinite(logits[k])) return not_finite(k);
    }
    return WEFT_OK;
}

weft_status wf_sample(const struct weft_sampling *p, const wf_logits_processors *processors, const float *logits,
                      uint32_t n_vocab, uint64_t position, wf_token_logit *c, int32_t *out)
{
    WF_TRY(wf_sample_check(logits, n_vocab));
    if (processors) {
        float *z = (float *)(c + n_vocab);
        memcpy(z, logits, n_vocab * sizeof *z);
        wf_logits_processors_apply(processors, z);
        logits = z;
    }
    wf_sampling_params params = {p->temperature, p->top_p, p->min_p, p->top_k, p->seed, position};
    *out = wf_sample_row(&params, logits, n_vocab, c, NULL);
    return WEFT_OK;
}

/* ---- log probabilities: sums are in double, for accuracy over a large vocabulary -------------------------------- */

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
