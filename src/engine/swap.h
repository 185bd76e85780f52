/* swap: host memory for the KV pages of preempted sequences, pinned where the device has such, and the copies of the next step.
 *
 * Copies of all steps are made in one order, on one queue. So memory may be handed out again at once, while a copy from or to it is still in
 * flight; only to free it, none may be.
 */
#ifndef WF_SWAP_H
#define WF_SWAP_H

#include "exec/exec.h"

typedef struct wf_swap_memory {
    wf_host host; /* data NULL: none */
    uint64_t bytes;
} wf_swap_memory;

typedef struct wf_swaps {
    wf_dev *dev;
    wf_page_copy *list; /* of the next step */
    size_t n, cap;
    wf_swap_memory *free, *done; /* to be taken again; to be free when the next step is submitted */
    size_t n_free, cap_free, n_done, cap_done;
} wf_swaps;

/* At least so many bytes; WEFT_ERR_NOMEM where the host has none. */
weft_status wf_swaps_take(wf_swaps *s, uint64_t bytes, wf_swap_memory *out);
/* Nobody reads it after the copies that are in the list now. */
void wf_swaps_give(wf_swaps *s, wf_swap_memory *m);
weft_status wf_swaps_add(wf_swaps *s, const wf_page_copy *one);
void wf_swaps_submitted(wf_swaps *s); /* empties the list */
void wf_swaps_trim(wf_swaps *s);      /* frees what is free; no step is in flight */
void wf_swaps_free(wf_swaps *s);

#endif
