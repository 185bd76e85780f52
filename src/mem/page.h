/* page: which KV pages are free, and how many sequences hold each. Pages are numbered alike in the pools of every
 * layer. A page that nobody holds may still carry content that others can find (src/mem/prefix.h): those are
 * handed out last, the one unused for longest first. One owner (the engine's thread); no locks. */
#ifndef WF_PAGE_H
#define WF_PAGE_H

#include "base/base.h"

typedef struct wf_page {
    uint32_t refs;
    bool kept;          /* has content that can be found */
    int32_t prev, next; /* in the list of those that are kept and held by nobody; -1: none */
} wf_page;

typedef struct wf_pages {
    wf_page *list;
    int32_t *free;      /* a stack of those without content */
    uint32_t n, n_stack, n_idle;
    int32_t oldest, newest; /* of the kept and idle */
    void (*on_evict)(void *user, int32_t page); /* a kept page is about to be handed out */
    void *user;
} wf_pages;

/* shuffle: 0 hands pages out in order; else in an order drawn from this seed. */
weft_status wf_pages_init(wf_pages *p, uint32_t n, uint64_t shuffle);
/* All of `count` or none: false if fewer are free. Each is then held once. */
bool wf_pages_take(wf_pages *p, uint32_t count, int32_t *out);
void wf_pages_share(wf_pages *p, int32_t page); /* held once more */
void wf_pages_give(wf_pages *p, const int32_t *pages, uint32_t count);
void wf_pages_keep(wf_pages *p, int32_t page);  /* its content can be found from now on */
uint32_t wf_pages_available(const wf_pages *p); /* held by nobody */
void wf_pages_free(wf_pages *p);

#endif
