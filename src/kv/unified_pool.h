/* unified_pool: KV pages and activations in one space. Memory that the activations of a small step do not need holds
 * more KV pages (FlashDecoding++Next, section V and fig. 10).
 *
 *   0                pages ascend -->            <-- activations descend      bytes
 *   | page 0 | page 1 | page 2 | ... |             | buffer 1 | buffer 0 |
 *
 * Where that is larger than a buffer of the device may be, it has several parts. Each holds some layers of all pages,
 * since a kernel takes K or V from one buffer, and some of the activation buffers; and its size goes by its share of a
 * page, so that all hold as many pages.
 *
 * The size of the activations is proportional to the tokens of the step. Rule: when a step begins or ends, no page in
 * use may lie at or beyond wf_unified_pool_pages of that step.
 *
 * This is enough although two steps are in flight. All work of a step, on every queue, runs after all work of the
 * previous step: a step ends on queue 0, which waits for the other queues, and its first command on each other queue
 * waits for the end of the previous step, as moves do that the next one waits for (move.h). So only one step's
 * activations are live at a time:
 * - a page that activations of a step in flight cover may be allocated while the next step is formed: whatever is
 *   written there, K and V or a page from the host, is written after these activations are dead;
 * - a page that is released while a step in flight reads it may be covered by the activations of the next step.
 * Data that the next step needs from this one (the sampled tokens) and arrays that the host fills lie elsewhere.
 */
#ifndef WF_UNIFIED_POOL_H
#define WF_UNIFIED_POOL_H

#include "base/base.h"

enum { WF_MAX_POOL_PARTS = 8 };
typedef struct wf_pool_part {
    uint64_t bytes;
    uint64_t page;             /* bytes of its layers of a page */
    uint64_t token, logit_row; /* bytes of its activations per token of a step, and per row of logits */
} wf_pool_part;

typedef struct wf_unified_pool {
    wf_pool_part parts[WF_MAX_POOL_PARTS];
    uint32_t n; /* 0: there is no unified pool, pages and activations are apart */
} wf_unified_pool;

/* Bytes of activations of a step. */
static inline uint64_t wf_pool_part_step_bytes(const wf_pool_part *s, uint32_t tokens, uint32_t logits)
{
    return tokens * s->token + logits * s->logit_row;
}

static inline uint64_t wf_unified_pool_bytes(const wf_unified_pool *s)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < s->n; i++) bytes += s->parts[i].bytes;
    return bytes;
}

/* Pages that fit below these activations, in every part. */
static inline uint64_t wf_unified_pool_pages(const wf_unified_pool *s, uint32_t tokens, uint32_t logits)
{
    uint64_t pages = UINT64_MAX;
    for (const wf_pool_part *p = s->parts; p < s->parts + s->n; p++) {
        uint64_t step = wf_pool_part_step_bytes(p, tokens, logits);
        pages = WF_MIN(pages, step < p->bytes ? (p->bytes - step) / p->page : 0);
    }
    return pages;
}

#endif
