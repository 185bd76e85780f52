/* prefix: finds full KV pages by what is in them, so that texts with an equal start share its pages and a system
 * prompt is computed once.
 *
 * K and V of a page depend on its tokens and on all tokens before. So a page is known by its own tokens and by the
 * page before it, as a number that was given to that content once and is never given again; both are compared
 * whole, a hash only leads to them. Shared pages are never written: a sequence computes its last, unfinished page
 * in one of its own (copy on write, with nothing to copy). One owner; no locks.
 */
#ifndef WF_PREFIX_H
#define WF_PREFIX_H

#include "mem/page.h"

typedef struct wf_prefix_entry { /* by page */
    uint64_t parent, self; /* contents; self 0: this page has none that can be found */
    int32_t next;          /* in its bucket; -1: the last */
} wf_prefix_entry;

typedef struct wf_prefix {
    wf_pages *pages;
    uint32_t page_tokens, n_buckets;
    int32_t *tokens; /* [pages, page_tokens] */
    int32_t *buckets;
    wf_prefix_entry *entries;
    uint64_t last; /* content number */
} wf_prefix;

/* Becomes the on_evict of pages, which must outlive it and may not move. */
weft_status wf_prefix_init(wf_prefix *x, wf_pages *pages, uint32_t page_tokens);
/* The page with these page_tokens tokens behind content `parent` (0: at the start), -1 if there is none;
 * *self: its content. */
int32_t wf_prefix_find(const wf_prefix *x, uint64_t parent, const int32_t *tokens, uint64_t *self);
/* `page` now holds these tokens. Returns the content: that of another page, which stays the one that is found,
 * where the same is there already. */
uint64_t wf_prefix_add(wf_prefix *x, uint64_t parent, const int32_t *tokens, int32_t page);
void wf_prefix_free(wf_prefix *x);

#endif
