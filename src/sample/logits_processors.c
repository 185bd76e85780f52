/* logits_processors: change logits before sampling: logit bias, presence and frequency penalties over the answer, a
 * repetition penalty over the last tokens of prompt and answer, and min_tokens, which forbids the end of generation. */
#include "sample/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static weft_status copy_bias(wf_logits_processors *a, const struct weft_request_params *p, uint32_t n_vocab)
{
    for (size_t i = 0; i < p->n_bias; i++)
        if (p->bias[i].id < 0 || (uint32_t)p->bias[i].id >= n_vocab || !(fabsf(p->bias[i].bias) <= 1e6f))
            return wf_fail(WEFT_ERR_ARG, "logit bias of token %d: want an id from 0 to %u and a bias from -1e6 to 1e6",
                           p->bias[i].id, n_vocab - 1);
    if (!p->n_bias) return WEFT_OK;
    if (!(a->bias = wf_calloc(p->n_bias, sizeof *a->bias))) return WEFT_ERR_NOMEM;
    memcpy(a->bias, p->bias, p->n_bias * sizeof *a->bias);
    a->n_bias = p->n_bias;
    return WEFT_OK;
}

weft_status wf_logits_processors_add_end(wf_logits_processors *a, int32_t id)
{
    if (!wf_grow(&a->ends, a->n_ends, &a->cap_ends, sizeof *a->ends))
        return wf_fail(WEFT_ERR_NOMEM, "out of host memory for a request");
    a->ends[a->n_ends++] = id;
    return WEFT_OK;
}

static weft_status count_prompt(wf_logits_processors *a, int32_t last_n, uint32_t n_vocab, const int32_t *prompt,
                                size_t n)
{
    a->window = last_n > 0 ? (uint32_t)last_n : UINT32_MAX;
    if (!(a->seen = wf_calloc(n_vocab, sizeof *a->seen))) return WEFT_ERR_NOMEM;
    for (size_t i = n - WF_MIN(n, a->window); i < n; i++) a->seen[prompt[i]].recent++;
    return WEFT_OK;
}

weft_status wf_logits_processors_init(wf_logits_processors *a, uint32_t n_vocab, const struct weft_request_params *p,
                                      const int32_t *prompt, size_t n)
{
    const struct weft_sampling *s = &p->sampling;
    bool repeat = s->repeat_penalty > 0 && s->repeat_penalty != 1;
    *a = (wf_logits_processors){0};
    WF_TRY(copy_bias(a, p, n_vocab));
    if (!repeat && s->presence_penalty == 0 && s->frequency_penalty == 0) return WEFT_OK;
    return count_prompt(a, s->repeat_last_n, n_vocab, prompt, n);
}

void wf_logits_processors_free(wf_logits_processors *a)
{
    free(a->bias);
    free(a->seen);
    free(a->ends);
}

void wf_logits_processors_add_token(wf_logits_processors *a, const int32_t *tokens, size_t n)
{
    if (!a->seen) return;
    a->seen[tokens[n - 1]].generated++;
    a->seen[tokens[n - 1]].recent++;
    if (n > a->window) a->seen[tokens[n - 1 - a->window]].recent--;
}

bool wf_logits_processors_active(const wf_logits_processors *a)
{
    return a->n_bias || a->seen || (a->forbid_ends && a->n_ends) || a->allowed;
}

static void penalise(const wf_logits_processors *a, const struct weft_sampling *p, float *z, uint32_t n_vocab)
{
    float repeat = p->repeat_penalty > 0 ? p->repeat_penalty : 1;
    for (uint32_t i = 0; i < n_vocab; i++) {
        uint32_t times = a->seen[i].generated;
        if (a->seen[i].recent) z[i] = z[i] > 0 ? z[i] / repeat : z[i] * repeat;
        if (times) z[i] -= p->presence_penalty + p->frequency_penalty * (float)times;
    }
}

/* Of 32 tokens, which bits of `allowed` stand for, most are all allowed or none is. */
static void forbid_others(const uint32_t *allowed, float value, float *z, uint32_t n_vocab)
{
    for (uint32_t i = 0; i < n_vocab; i += 32) {
        uint32_t bits = allowed[i / 32], n = WF_MIN(n_vocab - i, 32u);
        for (uint32_t k = 0; k < n && bits != UINT32_MAX; k++)
            if (!(bits >> k & 1)) z[i + k] = value;
    }
}

void wf_logits_processors_apply(const wf_logits_processors *a, const struct weft_sampling *p, float *z,
                                uint32_t n_vocab)
{
    if (a->seen) penalise(a, p, z, n_vocab);
    for (size_t i = 0; i < a->n_bias; i++) z[a->bias[i].id] += a->bias[i].bias;
    const float never = -1e30f; /* finite, so that sums of exp do not become NaN */
    for (size_t i = 0; a->forbid_ends && i < a->n_ends; i++) z[a->ends[i]] = never;
    if (a->allowed) forbid_others(a->allowed, 2 * never, z, n_vocab); /* below what bias can do */
}
