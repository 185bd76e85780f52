/* sampling: what a request asks for, on the host: changes to logits, the next token, and log probabilities. The rule by
 * which a token is sampled is sampler.h's. */
#ifndef WF_SAMPLING_H
#define WF_SAMPLING_H

#include "sample/sampler.h"
#include <weft/weft.h>

/* logits_processors.c: changes to logits before sampling: logit bias, penalties, min_tokens. Zero: none. */
typedef struct wf_changed { /* what is to be known of a token whose logit may change */
    int32_t id;
    uint32_t recent, generated; /* how often it is among those that the repetition penalty covers, and in the answer */
    float bias;
    bool ends;                  /* an end-of-generation or stop token, which min_tokens forbids at first */
} wf_changed;
typedef struct wf_logits_processors {
    float repeat, presence, frequency; /* 1, 0 and 0: off */
    uint32_t window;            /* the last tokens that `repeat` covers */
    uint32_t n_vocab;
    wf_changed *list;
    size_t n, cap;
    uint32_t *place;            /* [n_vocab]: where a token is in the list, from 1; 0: nowhere */
    bool forbid_ends;
    const uint32_t *allowed;    /* bits of the tokens that may come; NULL: all */
} wf_logits_processors;
weft_status wf_logits_processors_init(wf_logits_processors *a, uint32_t n_vocab, const struct weft_request_params *p,
                                      const int32_t *prompt, size_t n);
weft_status wf_logits_processors_add_end(wf_logits_processors *a, int32_t id);
/* The last of all n was generated. */
weft_status wf_logits_processors_add_token(wf_logits_processors *a, const int32_t *tokens, size_t n);
/* The most logits that they ever change, in an answer of so many tokens, grammars aside; 0: they change none. */
uint64_t wf_logits_processors_most(const wf_logits_processors *a, uint32_t answer);
bool wf_logits_processors_active(const wf_logits_processors *a);
void wf_logits_processors_free(wf_logits_processors *a);

/* z: [n_vocab], changed in place */
void wf_logits_processors_apply(const wf_logits_processors *a, float *z);
/* The same for SAMPLE behind tokens[0 .. n): writes its entries and returns how many. pending: behind these is a token
 * that only the device knows, token `row` of the step. */
uint32_t wf_logits_processors_list(const wf_logits_processors *a, const int32_t *tokens, size_t n, bool pending,
                                   uint32_t row, int32_t *ids, wf_adjust *adjust);
/* sample.c: samples on the host. processors: NULL for none. scratch: 2 * n_vocab entries, reused between
 * calls: processed logits, then workspace. WEFT_ERR_NOT_FINITE if a logit is not. */
weft_status wf_sample(const struct weft_sampling *p, const wf_logits_processors *processors, const float *logits,
                      uint32_t n_vocab, uint64_t position, wf_token_logit *scratch, int32_t *out);
/* Returns the log probability of id (-1: none), and fills the n_top most likely tokens in descending order. */
float wf_logprob(const float *logits, uint32_t n_vocab, int32_t id, uint32_t n_top, struct weft_logprob *top);
weft_status wf_sample_check(const float *logits, uint32_t n); /* WEFT_ERR_NOT_FINITE if one is not */
/* The token that the device's ARGMAX chose; WEFT_ERR_NOT_FINITE if it found that a logit is not finite. */
weft_status wf_sample_chosen(int32_t argmax, int32_t *out);
weft_status wf_sampling_check(const struct weft_sampling *p);

#endif
