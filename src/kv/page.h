/* page: the allocator of KV pages. It counts references, because sequences with a common prefix share pages.
 *
 * A page is free, in use (refs > 0), or evictable: nobody refers to it, but it is cached, so its K and V can still be
 * found by prefix (prefix.h). Free pages go first, the lowest first; then evictable ones, the least recently used
 * first.
 *
 * Pages [0, guaranteed) exist in every step. Pages from `guaranteed` on share their memory with activations
 * (unified_pool.h) and exist only in steps with few tokens; so callers of wf_pages_alloc pass a limit, and these pages
 * lose their cached content with their last reference.
 *
 * Not thread-safe: the engine's thread is the only user. */
#ifndef WF_KV_PAGE_H
#define WF_KV_PAGE_H

#include "base/base.h"

typedef struct wf_page {
    uint32_t refs;
    bool cached;        /* its content can be found by prefix */
    int32_t prev, next; /* in the LRU list of evictable pages; -1: end of the list */
} wf_page;

typedef struct wf_pages {
    wf_page *list;
    uint64_t *free;         /* bitmap of free pages, indexed by place: the order of allocation */
    uint32_t *place;        /* [page] -> place */
    int32_t *order;         /* [place] -> page */
    uint32_t n, guaranteed, n_free, n_evictable;
    uint32_t first;         /* all words of `free` before this one are zero */
    uint32_t high_water;    /* all pages in use are below it; may be stale, see wf_pages_high_water */
    int32_t oldest, newest; /* ends of the LRU list */
    void (*on_evict)(void *user, int32_t page); /* a cached page loses its content */
    void *user;
} wf_pages;

/* n pages, all free. shuffle 0: allocated in ascending order; otherwise the guaranteed pages come in a random order
 * that this seed determines (tests). */
weft_status wf_pages_init(wf_pages *p, uint32_t n, uint32_t guaranteed, uint64_t shuffle);
uint64_t wf_pages_bytes(uint32_t n); /* of host memory that this takes */
/* Allocates `count` pages below `limit` (at least `guaranteed`), each with one reference. All or nothing: false if
 * fewer are available. */
bool wf_pages_alloc(wf_pages *p, uint32_t count, uint32_t limit, int32_t *out);
void wf_pages_ref(wf_pages *p, int32_t page);   /* adds a reference to a page that is in use or evictable */
void wf_pages_release(wf_pages *p, const int32_t *pages, uint32_t count); /* drops one reference of each */
void wf_pages_cache(wf_pages *p, int32_t page); /* the page stays evictable, not free, after its last reference */
void wf_pages_uncache(wf_pages *p, int32_t page); /* a cached page loses its content */
uint32_t wf_pages_available(const wf_pages *p, uint32_t limit); /* free or evictable pages below limit */
uint32_t wf_pages_in_use(const wf_pages *p);
/* One more than the highest page in use, and at least `guaranteed`. */
uint32_t wf_pages_high_water(wf_pages *p);
void wf_pages_free(wf_pages *p);

#endif
