/* swap: host memory and moves of preempted sequences. See swap.h. */
#include "kv/swap.h"

#include <stdlib.h>

/* The smallest block that has room; up to an eighth more than it takes, so that a sequence that grows finds the same
 * one again. */
weft_status wf_swap_alloc(wf_swaps *s, uint32_t pages, wf_swap_memory *out)
{
    uint64_t step = 1;
    while (16 * step <= pages) step *= 2;
    uint64_t bytes = WF_UP(pages, step) * s->page_bytes;
    wf_swap_memory *best = NULL;
    for (wf_swap_memory *m = s->free; m < s->free + s->n_free; m++)
        if (m->bytes >= bytes && (!best || m->bytes < best->bytes)) best = m;
    if (best) {
        *out = *best;
        *best = s->free[--s->n_free];
        return WEFT_OK;
    }
    *out = (wf_swap_memory){.bytes = bytes};
    if (!wf_grow(&s->free, s->n, &s->cap_free, sizeof *out)) return WEFT_ERR_NOMEM;
    WF_TRY(wf_host_create(s->dev, bytes, &out->host));
    s->n++;
    return WEFT_OK;
}

weft_status wf_swap_move(wf_swaps *s, bool out, const int32_t *pages, uint32_t n, const wf_swap_memory *m,
                         uint32_t *at)
{
    wf_page_copy list[WF_MOVE_PAGES];
    for (uint32_t k; n; n -= k, pages += k) {
        k = WF_MIN(n, (uint32_t)WF_MOVE_PAGES);
        for (uint32_t i = 0; i < k; i++)
            list[i] = (wf_page_copy){pages[i], (uint8_t *)m->host.data + (*at)++ * s->page_bytes};
        WF_TRY(s->mover.begin(s->mover.user, out, list, k, NULL));
        *(out ? &s->out_bytes : &s->in_bytes) += k * s->page_bytes;
    }
    return WEFT_OK;
}

void wf_swap_release(wf_swaps *s, wf_swap_memory *m)
{
    if (!m->host.data) return;
    s->free[s->n_free++] = *m;
    *m = (wf_swap_memory){0};
}

void wf_swaps_trim(wf_swaps *s)
{
    for (; s->n_free; s->n--) wf_host_destroy(s->dev, &s->free[--s->n_free].host);
}

void wf_swaps_free(wf_swaps *s)
{
    if (s->dev) wf_swaps_trim(s);
    free(s->free);
}
