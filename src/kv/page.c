/* page: a bitmap of free KV pages, and an LRU list of evictable ones. See page.h. */
#include "kv/page.h"

#include <stdlib.h>
#include <string.h>

static void add_free(wf_pages *p, int32_t page)
{
    uint32_t at = p->place[page];
    p->free[at / 64] |= 1ull << at % 64;
    p->first = WF_MIN(p->first, at / 64);
    p->n_free++;
}

weft_status wf_pages_init(wf_pages *p, uint32_t n, uint32_t guaranteed, uint64_t shuffle)
{
    *p = (wf_pages){.n = n, .guaranteed = guaranteed, .high_water = guaranteed, .oldest = -1, .newest = -1};
    p->list = wf_calloc(n, sizeof *p->list);
    p->free = wf_calloc(n / 64 + 1, sizeof *p->free);
    p->place = wf_calloc(n, sizeof *p->place);
    p->order = wf_calloc(n, sizeof *p->order);
    if (!p->list || !p->free || !p->place || !p->order) return wf_pages_free(p), WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < n; i++) p->order[i] = (int32_t)i;
    for (uint32_t i = p->guaranteed; shuffle && i-- > 1;) {
        uint32_t j = (uint32_t)(wf_random(shuffle, i) % (i + 1));
        int32_t t = p->order[i];
        p->order[i] = p->order[j];
        p->order[j] = t;
    }
    for (uint32_t i = 0; i < p->n; i++) p->place[p->order[i]] = i;
    for (uint32_t i = 0; i < n; i++) add_free(p, (int32_t)i);
    return WEFT_OK;
}

void wf_pages_free(wf_pages *p)
{
    free(p->list);
    free(p->free);
    free(p->place);
    free(p->order);
    *p = (wf_pages){0};
}

uint64_t wf_pages_bytes(uint32_t n)
{
    const wf_pages *p = NULL;
    return n * (uint64_t)(sizeof *p->list + sizeof *p->place + sizeof *p->order) + n / 8;
}

/* Free pages among the places from `from` on. */
static uint32_t count_free(const wf_pages *p, uint32_t from)
{
    if (from >= p->n) return 0;
    uint32_t w = from / 64, n = (uint32_t)__builtin_popcountll(p->free[w] >> from % 64);
    while (++w <= p->n / 64) n += (uint32_t)__builtin_popcountll(p->free[w]);
    return n;
}

uint32_t wf_pages_available(const wf_pages *p, uint32_t limit)
{
    return p->n_evictable + p->n_free - count_free(p, limit);
}

uint32_t wf_pages_in_use(const wf_pages *p)
{
    return p->n - p->n_free - p->n_evictable;
}

uint32_t wf_pages_high_water(wf_pages *p)
{
    while (p->high_water > p->guaranteed && !p->list[p->high_water - 1].refs) p->high_water--;
    return p->high_water;
}

/* ---- evictable pages: an LRU list ------------------------------------------------------------------------ */

static void unlink_evictable(wf_pages *p, int32_t page)
{
    wf_page *x = &p->list[page];
    *(x->prev < 0 ? &p->oldest : &p->list[x->prev].next) = x->next;
    *(x->next < 0 ? &p->newest : &p->list[x->next].prev) = x->prev;
    p->n_evictable--;
}

/* Its content can no longer be found. */
static void uncache_page(wf_pages *p, int32_t page)
{
    p->list[page].cached = false;
    if (p->on_evict) p->on_evict(p->user, page);
}

/* The lowest free place; n if no page is free. */
static uint32_t first_free(wf_pages *p)
{
    if (!p->n_free) return p->n;
    while (!p->free[p->first]) p->first++;
    return p->first * 64 + (uint32_t)__builtin_ctzll(p->free[p->first]);
}

static int32_t alloc_one(wf_pages *p)
{
    uint32_t at = first_free(p);
    if (at >= p->guaranteed && p->n_evictable) {
        int32_t page = p->oldest;
        unlink_evictable(p, page);
        uncache_page(p, page);
        return page;
    }
    p->free[at / 64] &= ~(1ull << at % 64);
    p->n_free--;
    return p->order[at];
}

/* ---- references ---------------------------------------------------------------------------------------------- */

bool wf_pages_alloc(wf_pages *p, uint32_t count, uint32_t limit, int32_t *out)
{
    if (count > wf_pages_available(p, limit)) return false;
    for (uint32_t i = 0; i < count; i++) {
        out[i] = alloc_one(p);
        p->list[out[i]].refs = 1;
        p->high_water = WF_MAX(p->high_water, (uint32_t)out[i] + 1);
    }
    return true;
}

void wf_pages_ref(wf_pages *p, int32_t page)
{
    if (!p->list[page].refs++)
        unlink_evictable(p, page); /* a page without references can only be found if it is cached */
}

void wf_pages_release(wf_pages *p, const int32_t *pages, uint32_t count)
{
    while (count) { /* from the end, so that the start of a prompt is evicted last */
        int32_t page = pages[--count];
        if (--p->list[page].refs) continue;
        if (p->list[page].cached && (uint32_t)page < p->guaranteed) {
            wf_page *x = &p->list[page];
            x->prev = p->newest;
            x->next = -1;
            *(p->newest < 0 ? &p->oldest : &p->list[p->newest].next) = page;
            p->newest = page;
            p->n_evictable++;
            continue;
        }
        if (p->list[page].cached) uncache_page(p, page); /* the next large step overwrites it */
        add_free(p, page);
    }
}

void wf_pages_cache(wf_pages *p, int32_t page)
{
    p->list[page].cached = true;
}

void wf_pages_uncache(wf_pages *p, int32_t page)
{
    bool evictable = !p->list[page].refs;
    if (evictable) unlink_evictable(p, page);
    uncache_page(p, page);
    if (evictable) add_free(p, page);
}
