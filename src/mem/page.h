/* page: which KV pages are free, and how many sequences hold each. The lowest free page is handed out first, so that
 * activations can use the memory of those at the end (space.h): pages from `base` on are there in some steps only, and
 * whoever takes pages says below which. A page below base that nobody holds may still carry content that others can
 * find (src/mem/prefix.h): those are handed out after the free ones below base, the one unused for longest first. Pages
 * from base on lose their content with their last holder. One owner (the engine's thread); no locks. */
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
    uint64_t *free;     /* a bit for each that has no content, in the order of handing out: by place */
    uint32_t *place;    /* by page */
    int32_t *order;     /* by place: the page */
    uint32_t n, base, n_free, n_idle;
    uint32_t first;     /* no word of free before this one has a bit */
    uint32_t top;       /* no page from this one on is held */
    int32_t oldest, newest; /* of the kept and idle */
    void (*on_evict)(void *user, int32_t page); /* a kept page is about to be handed out */
    void *user;
} wf_pages;

/* shuffle: 0 hands pages out in order; else those below base in an order drawn from this seed. */
weft_status wf_pages_init(wf_pages *p, uint32_t n, uint32_t base, uint64_t shuffle);
/* All of `count`, of the pages below `below` (at least base), or none: false if fewer are held by nobody. Each is then
 * held once. */
bool wf_pages_take(wf_pages *p, uint32_t count, uint32_t below, int32_t *out);
void wf_pages_share(wf_pages *p, int32_t page); /* held once more */
void wf_pages_give(wf_pages *p, const int32_t *pages, uint32_t count);
void wf_pages_keep(wf_pages *p, int32_t page);  /* its content can be found from now on */
uint32_t wf_pages_available(const wf_pages *p, uint32_t below); /* of those below, held by nobody */
uint32_t wf_pages_held(const wf_pages *p);
uint32_t wf_pages_top(wf_pages *p); /* behind the last page that is held; at least base */
void wf_pages_free(wf_pages *p);

#endif
