/* page: which KV pages are free. Pages are numbered alike in the pools of every layer. One owner (the
 * engine's thread); no locks. */
#ifndef WF_PAGE_H
#define WF_PAGE_H

#include "base/base.h"

typedef struct wf_pages {
    int32_t *free; /* a stack */
    uint32_t n, n_free;
} wf_pages;

/* shuffle: 0 hands pages out in order; else in an order drawn from this seed. */
weft_status wf_pages_init(wf_pages *p, uint32_t n, uint64_t shuffle);
/* All of `count` or none: false if fewer are free. */
bool wf_pages_take(wf_pages *p, uint32_t count, int32_t *out);
void wf_pages_give(wf_pages *p, const int32_t *pages, uint32_t count);
void wf_pages_free(wf_pages *p);

#endif
