/* swap: pages of preempted sequences, which wait in host memory until these go on (NanoFlow, section 4.2.2): all that
 * they hold, also pages that are not full and so have no key. The memory is pinned if the device has such.
 *
 * Moves in the order in which pages change hands, each before the next step (move.h). So pages are free to use, and
 * host memory likewise, once the move of it has begun. The engine's thread is the only user.
 */
#ifndef WF_SWAP_H
#define WF_SWAP_H

#include "dev/dev.h"
#include "kv/move.h"

typedef struct wf_swap_memory {
    wf_host host; /* data NULL: none */
    uint64_t bytes;
} wf_swap_memory;

typedef struct wf_swaps {
    wf_dev *dev;
    wf_mover mover;
    uint64_t page_bytes;
    wf_swap_memory *free; /* to use again; with room for all n that there are */
    size_t n, n_free, cap_free;
    uint64_t out_bytes, in_bytes; /* that were moved */
} wf_swaps;

/* Memory for so many pages; WEFT_ERR_NOMEM if the host has none. */
weft_status wf_swap_alloc(wf_swaps *s, uint32_t pages, wf_swap_memory *out);
/* Moves n pages out to the memory, or back, from its page *at on, and adds n to that. */
weft_status wf_swap_move(wf_swaps *s, bool out, const int32_t *pages, uint32_t n, const wf_swap_memory *m,
                         uint32_t *at);
void wf_swap_release(wf_swaps *s, wf_swap_memory *m); /* s may be NULL if there is none */
void wf_swaps_trim(wf_swaps *s); /* frees unused memory, with nothing of it in flight */
void wf_swaps_free(wf_swaps *s);

#endif
