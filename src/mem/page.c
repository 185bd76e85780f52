/* page: bits of free KV pages, and beside them a list of those whose content may be asked for again. See page.h. */
#include "mem/page.h"

#include <stdlib.h>
#include <string.h>

static void add_free(wf_pages *p, int32_t page)
{
    uint32_t at = p->place[page];
    p->free[at / 64] |= 1ull << at % 64;
    p->first = WF_MIN(p->first, at / 64);
    p->n_free++;
}

static void shuffle_base(wf_pages *p, uint64_t seed)
{
    for (uint32_t i = p->base; seed && i-- > 1;) {
        uint32_t j = (uint32_t)(wf_random(seed, i) % (i + 1));
        int32_t t = p->order[i];
        p->order[i] = p->order[j];
        p->order[j] = t;
    }
    for (uint32_t i = 0; i < p->n; i++) p->place[p->order[i]] = i;
}

/* All are free in the beginning. */
weft_status wf_pages_init(wf_pages *p, uint32_t n, uint32_t base, uint64_t shuffle)
{
    *p = (wf_pages){.n = n, .base = base, .top = base, .oldest = -1, .newest = -1};
    p->list = wf_calloc(n, sizeof *p->list);
    p->free = wf_calloc(n / 64 + 1, sizeof *p->free);
    p->place = wf_calloc(n, sizeof *p->place);
    p->order = wf_calloc(n, sizeof *p->order);
    if (!p->list || !p->free || !p->place || !p->order) return wf_pages_free(p), WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < n; i++) p->order[i] = (int32_t)i;
    shuffle_base(p, shuffle);
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

/* Of places from `from` on. */
static uint32_t count_free(const wf_pages *p, uint32_t from)
{
    if (from >= p->n) return 0;
    uint32_t w = from / 64, n = (uint32_t)__builtin_popcountll(p->free[w] >> from % 64);
    while (++w <= p->n / 64) n += (uint32_t)__builtin_popcountll(p->free[w]);
    return n;
}

uint32_t wf_pages_available(const wf_pages *p, uint32_t below)
{
    return p->n_idle + p->n_free - count_free(p, below);
}

uint32_t wf_pages_held(const wf_pages *p)
{
    return p->n - p->n_free - p->n_idle;
}

uint32_t wf_pages_top(wf_pages *p)
{
    while (p->top > p->base && !p->list[p->top - 1].refs) p->top--;
    return p->top;
}

/* ---- kept and idle: a list from the one unused for longest to the latest -------------------------------- */

static void unlink_idle(wf_pages *p, int32_t page)
{
    wf_page *x = &p->list[page];
    *(x->prev < 0 ? &p->oldest : &p->list[x->prev].next) = x->next;
    *(x->next < 0 ? &p->newest : &p->list[x->next].prev) = x->prev;
    p->n_idle--;
}

static void append_idle(wf_pages *p, int32_t page)
{
    wf_page *x = &p->list[page];
    x->prev = p->newest;
    x->next = -1;
    *(p->newest < 0 ? &p->oldest : &p->list[p->newest].next) = page;
    p->newest = page;
    p->n_idle++;
}

/* Its content is found no more. */
static void drop(wf_pages *p, int32_t page)
{
    p->list[page].kept = false;
    if (p->on_evict) p->on_evict(p->user, page);
}

static int32_t evict(wf_pages *p)
{
    int32_t page = p->oldest;
    unlink_idle(p, page);
    drop(p, page);
    return page;
}

/* The first place that is free; n: none. */
static uint32_t first_free(wf_pages *p)
{
    if (!p->n_free) return p->n;
    while (!p->free[p->first]) p->first++;
    return p->first * 64 + (uint32_t)__builtin_ctzll(p->free[p->first]);
}

static int32_t take_one(wf_pages *p)
{
    uint32_t at = first_free(p);
    if (at >= p->base && p->n_idle) return evict(p);
    p->free[at / 64] &= ~(1ull << at % 64);
    p->n_free--;
    return p->order[at];
}

/* ---- holding ------------------------------------------------------------------------------------------------ */

bool wf_pages_take(wf_pages *p, uint32_t count, uint32_t below, int32_t *out)
{
    if (count > wf_pages_available(p, below)) return false;
    for (uint32_t i = 0; i < count; i++) {
        out[i] = take_one(p);
        p->list[out[i]].refs = 1;
        p->top = WF_MAX(p->top, (uint32_t)out[i] + 1);
    }
    return true;
}

void wf_pages_share(wf_pages *p, int32_t page)
{
    if (!p->list[page].refs++) unlink_idle(p, page); /* only a kept page is found while nobody holds it */
}

void wf_pages_give(wf_pages *p, const int32_t *pages, uint32_t count)
{
    while (count) { /* from the end, so that the start of a text is unused for the shortest time */
        int32_t page = pages[--count];
        if (--p->list[page].refs) continue;
        if (p->list[page].kept && (uint32_t)page < p->base) {
            append_idle(p, page);
            continue;
        }
        if (p->list[page].kept) drop(p, page); /* the next long step writes over it */
        add_free(p, page);
    }
}

void wf_pages_keep(wf_pages *p, int32_t page)
{
    p->list[page].kept = true;
}
