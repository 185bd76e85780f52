/* token: the ends of a step — which token each row of logits gives, and how the step after reads it. It owns room
 * for ids that stay on the device between two steps.
 */
#ifndef WF_TOKEN_H
#define WF_TOKEN_H

#include "sampling/sampler.h"
#include "mem/arena.h"

typedef struct wf_tokens {
    wf_dev *dev;
    wf_arena *arena;
    wf_region ids, p, z; /* [rows] I32, [rows] F32, [sampled, vocabulary] F32 */
    uint32_t rows, sampled, n_vocab;
    bool cannot_sample;    /* no kernel of SAMPLE is any good here */
} wf_tokens;

#define WF_SAMPLING_FLOATS 3 /* a row of SAMPLE's params, and of its key */
#define WF_SAMPLING_INTS   5

/* Reserves; the arena is committed by its owner. rows: most logits of a step; seqs: most that are sampled at once. */
weft_status wf_tokens_reserve(wf_tokens *t, wf_dev *dev, wf_arena *arena, uint32_t rows, uint32_t seqs, uint32_t n_vocab);
uint64_t wf_tokens_bytes(uint32_t rows, uint32_t seqs, uint32_t n_vocab); /* what that takes */
/* Builds and checks the kernels for these logits. */
weft_status wf_tokens_prepare(wf_tokens *t, const wf_view *logits, const wf_view *tokens);
/* tokens[m] = the id that row -1 - tokens[m] of the logits before gave, where it is negative. */
weft_status wf_tokens_subst(const wf_tokens *t, wf_queue *q, const wf_view *tokens);
/* ids from logits: the likeliest; or sampled as params [rows, 3] F32 and key [rows, 5] I32 say. */
weft_status wf_tokens_argmax(const wf_tokens *t, wf_queue *q, const wf_view *logits);
weft_status wf_tokens_sample(const wf_tokens *t, wf_queue *q, const wf_view *logits, const wf_view *params, const wf_view *key);
weft_status wf_tokens_read(const wf_tokens *t, wf_queue *q, uint32_t n, int32_t *ids); /* as wf_read */
/* As SAMPLE reads it. */
void wf_sampling_pack(const wf_sampling_params *c, float params[WF_SAMPLING_FLOATS], int32_t key[WF_SAMPLING_INTS]);

#endif
