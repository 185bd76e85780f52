/* limits: how many tokens, sequences and KV pages an engine has, and how many of the pages a step leaves to them.
 */
#ifndef WF_LIMITS_H
#define WF_LIMITS_H

#include "mem/unified_pool.h"

typedef struct wf_limits {
    uint32_t step_tokens, logit_rows, seqs; /* of one step, at most */
    uint32_t seq_pages;                     /* pages of one sequence */
    uint32_t pages;                         /* of all, at most */
    wf_unified_pool pool;                   /* zero: every step has all pages */
} wf_limits;

/* Pages that steps of so many rows leave. */
static inline uint32_t wf_limits_pages(const wf_limits *l, uint32_t rows, uint32_t logits)
{
    return l->pool.bytes ? (uint32_t)WF_MIN(wf_unified_pool_pages(&l->pool, rows, logits), l->pages) : l->pages;
}

/* Pages that every step leaves. */
static inline uint32_t wf_limits_guaranteed_pages(const wf_limits *l)
{
    return wf_limits_pages(l, l->step_tokens, l->logit_rows);
}

/* Rows for which there is always room beside the pages in use while so many sequences run: one of each, and a quarter
 * of the largest step for prompts, which would creep once answers have spread. */
static inline uint32_t wf_limits_steady_tokens(const wf_limits *l, uint32_t seqs)
{
    return WF_MIN(l->step_tokens, seqs + l->step_tokens / 4);
}

/* Pages that may be in use meanwhile. */
static inline uint32_t wf_limits_max_pages(const wf_limits *l, uint32_t seqs)
{
    return wf_limits_pages(l, wf_limits_steady_tokens(l, seqs), seqs);
}

#endif
