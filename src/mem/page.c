/* page: a stack of free KV pages. See page.h. */
#include "mem/page.h"

#include <stdlib.h>
#include <string.h>

weft_status wf_pages_init(wf_pages *p, uint32_t n, uint64_t shuffle)
{
    *p = (wf_pages){wf_calloc(n, sizeof(int32_t)), n, n};
    if (!p->free) return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < n; i++) p->free[i] = (int32_t)(n - 1 - i);
    for (uint32_t i = n; shuffle && i-- > 1;) {
        uint32_t j = (uint32_t)(wf_random(shuffle, i) % (i + 1));
        int32_t t = p->free[i];
        p->free[i] = p->free[j];
        p->free[j] = t;
    }
    return WEFT_OK;
}

bool wf_pages_take(wf_pages *p, uint32_t count, int32_t *out)
{
    if (count > p->n_free) return false;
    for (uint32_t i = 0; i < count; i++) out[i] = p->free[--p->n_free];
    return true;
}

void wf_pages_give(wf_pages *p, const int32_t *pages, uint32_t count)
{
    while (count) p->free[p->n_free++] = pages[--count];
}

void wf_pages_free(wf_pages *p)
{
    free(p->free);
    *p = (wf_pages){0};
}
