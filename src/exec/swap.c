/* swap: lists of host memory and copies. See swap.h. */
#include "exec/swap.h"

#include <stdlib.h>

weft_status wf_swaps_alloc(wf_swaps *s, uint64_t bytes, wf_swap_memory *out)
{
    for (size_t i = 0; i < s->n_free; i++) {
        if (s->free[i].bytes < bytes) continue;
        *out = s->free[i];
        s->free[i] = s->free[--s->n_free];
        return WEFT_OK;
    }
    *out = (wf_swap_memory){.bytes = bytes};
    return wf_host_create(s->dev, bytes, &out->host);
}

void wf_swaps_release(wf_swaps *s, wf_swap_memory *m)
{
    if (!m->host.data) return;
    if (wf_grow(&s->done, s->n_done, &s->cap_done, sizeof *m)) s->done[s->n_done++] = *m;
    else wf_leak_on_purpose(m->host.data); /* a copy may be in flight */
    *m = (wf_swap_memory){0};
}

weft_status wf_swaps_add(wf_swaps *s, const wf_page_copy *one)
{
    if (!wf_grow(&s->list, s->n, &s->cap, sizeof *one)) return WEFT_ERR_NOMEM;
    s->list[s->n++] = *one;
    return WEFT_OK;
}

void wf_swaps_submitted(wf_swaps *s)
{
    s->n = 0;
    while (s->n_done && wf_grow(&s->free, s->n_free, &s->cap_free, sizeof *s->free))
        s->free[s->n_free++] = s->done[--s->n_done];
}

void wf_swaps_trim(wf_swaps *s)
{
    while (s->n_free) wf_host_destroy(s->dev, &s->free[--s->n_free].host);
    while (s->n_done) wf_host_destroy(s->dev, &s->done[--s->n_done].host);
}

void wf_swaps_free(wf_swaps *s)
{
    if (s->dev) wf_swaps_trim(s);
    free(s->list);
    free(s->free);
    free(s->done);
}
