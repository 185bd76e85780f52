/* limits: how many tokens, sequences and KV pages an engine has, and how many of the pages a step leaves to them.
 */
#ifndef WF_LIMITS_H
#define WF_LIMITS_H

#include "kv/unified_pool.h"

/* Logits of a sequence that are adjusted in a step. */
#define WF_MOST_ADJUSTED 1024

typedef struct wf_limits {
    uint32_t step_tokens, logit_rows, seqs; /* of the largest step */
    uint32_t seq_pages;                     /* most pages of one sequence in a page table */
    uint32_t tables;                        /* page tables of a sequence (layout.h); 0: one */
    /* Most pages of a sequence at the same time, in all of them, where windows let some go; 0: all. */
    uint32_t held_pages;
    uint32_t mask_words;                    /* of the bits of all tokens that may come next; 0: no step has such */
    uint32_t pages;                         /* all KV pages; large steps may have fewer */
    wf_unified_pool pool;                   /* zero: no unified pool, every step has all pages */
} wf_limits;

/* Pages that exist in a step with this many tokens and rows of logits. */
static inline uint32_t wf_limits_pages(const wf_limits *l, uint32_t tokens, uint32_t logits)
{
    return l->pool.n ? (uint32_t)WF_MIN(wf_unified_pool_pages(&l->pool, tokens, logits), l->pages) : l->pages;
}

static inline uint32_t wf_limits_tables(const wf_limits *l)
{
    return WF_MAX(l->tables, 1u);
}

static inline uint32_t wf_limits_held_pages(const wf_limits *l)
{
    return l->held_pages ? l->held_pages : l->seq_pages * wf_limits_tables(l);
}

/* Pages that exist in every step. */
static inline uint32_t wf_limits_guaranteed_pages(const wf_limits *l)
{
    return wf_limits_pages(l, l->step_tokens, l->logit_rows);
}

/* Tokens of a step for which there is always memory while this many sequences run: one for each decode, and a quarter
 * of the largest step for prefill, which would starve if pages in use took everything. */
static inline uint32_t wf_limits_steady_tokens(const wf_limits *l, uint32_t seqs)
{
    return WF_MIN(l->step_tokens, seqs + l->step_tokens / 4);
}

/* Most pages in use while this many sequences run: those that exist in a step with wf_limits_steady_tokens. */
static inline uint32_t wf_limits_max_pages(const wf_limits *l, uint32_t seqs)
{
    return wf_limits_pages(l, wf_limits_steady_tokens(l, seqs), seqs);
}

#endif
