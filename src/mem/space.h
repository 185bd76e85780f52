/* space: KV pages and activations in one piece of memory, where what a step's activations do not need is room for
 * pages (flashdecoding-next §V, fig. 10).
 *
 *   0                pages ascend -->            <-- activations descend      bytes
 *   | page 0 | page 1 | page 2 | ... |                 | slot 1 | slot 0 |
 *
 * Activations of a step are as large as its rows. Rule: of the pages that hold something when a step begins or
 * ends, whoever's they are, none may lie beyond wf_space_pages of that step.
 *
 * That is all, though two steps are under way at a time. All work of a step, on every queue, comes behind all work
 * of the one before: its first command is on queue 0, which the other queues wait for, and its last waits for them.
 * Copies of pages to and from the host are on queue 0 between the two. So the activations of only one step are alive:
 * - a page that activations of a step in flight cover may be handed out while the next one is formed: what is written
 *   there, rows or a copy from the host, is written when they are dead;
 * - a page that is given back while a step in flight reads it may be covered by the next one's activations.
 * What the next step needs of the one before (the tokens that it chose), and arrays that the host fills, lie elsewhere.
 */
#ifndef WF_SPACE_H
#define WF_SPACE_H

#include "base/base.h"

typedef struct wf_space {
    uint64_t bytes;          /* 0: there is none; pages and activations lie apart */
    uint64_t page;           /* bytes of a page */
    uint64_t row, logit_row; /* bytes of activations for a row of a step, for a row of its logits */
} wf_space;

/* Bytes of a step's activations. */
static inline uint64_t wf_space_step(const wf_space *s, uint32_t rows, uint32_t logits)
{
    return rows * s->row + logits * s->logit_row;
}

/* Pages below them. */
static inline uint64_t wf_space_pages(const wf_space *s, uint32_t rows, uint32_t logits)
{
    uint64_t step = wf_space_step(s, rows, logits);
    return step < s->bytes ? (s->bytes - step) / s->page : 0;
}

#endif
