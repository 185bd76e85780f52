/* unified_pool: KV pages and activations in one buffer. Memory that the activations of a small step do not need holds
 * more KV pages (FlashDecoding++Next, section V and fig. 10).
 *
 *   0                pages ascend -->            <-- activations descend      bytes
 *   | page 0 | page 1 | page 2 | ... |             | buffer 1 | buffer 0 |
 *
 * The size of the activations is proportional to the tokens of the step. Rule: when a step begins or ends, no page in
 * use may lie at or beyond wf_unified_pool_pages of that step.
 *
 * This is enough although two steps are in flight. All work of a step, on every queue, runs after all work of the
 * previous step: a step ends on queue 0, which waits for the other queues, and its first command on each other queue
 * waits for the end of the previous step. Swaps are commands of a step, too. So only one step's activations are live at a time:
 * - a page that activations of a step in flight cover may be allocated while the next step is formed: whatever is
 *   written there, K and V or a swap from the host, is written after these activations are dead;
 * - a page that is released while a step in flight reads it may be covered by the activations of the next step.
 * Data that the next step needs from this one (the sampled tokens) and arrays that the host fills lie elsewhere.
 */
#ifndef WF_UNIFIED_POOL_H
#define WF_UNIFIED_POOL_H

#include "base/base.h"

typedef struct wf_unified_pool {
    uint64_t bytes;            /* of the buffer; 0: there is no unified pool, pages and activations are apart */
    uint64_t page;             /* bytes of a page */
    uint64_t token, logit_row; /* bytes of activations per token of a step, and per row of logits */
} wf_unified_pool;

/* Bytes of activations of a step. */
static inline uint64_t wf_unified_pool_step_bytes(const wf_unified_pool *s, uint32_t tokens, uint32_t logits)
{
    return tokens * s->token + logits * s->logit_row;
}

/* Pages that fit below these activations. */
static inline uint64_t wf_unified_pool_pages(const wf_unified_pool *s, uint32_t tokens, uint32_t logits)
{
    uint64_t step = wf_unified_pool_step_bytes(s, tokens, logits);
    return step < s->bytes ? (s->bytes - step) / s->page : 0;
}

#endif
