/* page: a stack of free KV pages, and behind it a list of those whose content may be asked for again. See page.h. */
#include "mem/page.h"

#include <stdlib.h>
#include <string.h>

weft_status wf_pages_init(wf_pages *p, uint32_t n, uint64_t shuffle)
{
    *p = (wf_pages){.list = wf_calloc(n, sizeof(wf_page)), .free = wf_calloc(n, sizeof(int32_t)), .n = n, .n_stack = n, .oldest = -1, .newest = -1};
    if (!p->free || !p->list) return wf_pages_free(p), WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < n; i++) p->free[i] = (int32_t)(n - 1 - i);
    for (uint32_t i = n; shuffle && i-- > 1;) {
        uint32_t j = (uint32_t)(wf_random(shuffle, i) % (i + 1));
        int32_t t = p->free[i];
        p->free[i] = p->free[j];
        p->free[j] = t;
    }
    return WEFT_OK;
}

void wf_pages_free(wf_pages *p)
{
    free(p->list);
    free(p->free);
    *p = (wf_pages){0};
}

uint32_t wf_pages_available(const wf_pages *p)
{
    return p->n_stack + p->n_idle;
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

static int32_t evict(wf_pages *p)
{
    int32_t page = p->oldest;
    unlink_idle(p, page);
    p->list[page].kept = false;
    if (p->on_evict) p->on_evict(p->user, page);
    return page;
}

/* ---- holding ------------------------------------------------------------------------------------------------ */

bool wf_pages_take(wf_pages *p, uint32_t count, int32_t *out)
{
    if (count > wf_pages_available(p)) return false;
    for (uint32_t i = 0; i < count; i++) {
        out[i] = p->n_stack ? p->free[--p->n_stack] : evict(p);
        p->list[out[i]].refs = 1;
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
        if (p->list[page].kept) append_idle(p, page);
        else p->free[p->n_stack++] = page;
    }
}

void wf_pages_keep(wf_pages *p, int32_t page)
{
    p->list[page].kept = true;
}
