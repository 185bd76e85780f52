/* swap: host memory for the KV pages of preempted sequences (NanoFlow, section 4.2.2), pinned if the device has pinned
 * memory, and the copies of the next step. The engine's thread is the only user.
 *
 * The copies of all steps run in order, on one queue. So memory may be reused at once, while a copy from or to it is
 * still in flight. It may be freed only when none is.
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
    wf_page_copy *list; /* copies of the next step */
    size_t n, cap;
    wf_swap_memory *free, *done; /* free to reuse; free after the next step is submitted */
    size_t n_free, cap_free, n_done, cap_done;
} wf_swaps;

/* Allocates at least this many bytes; WEFT_ERR_NOMEM if the host has none. */
weft_status wf_swaps_alloc(wf_swaps *s, uint64_t bytes, wf_swap_memory *out);
/* Releases it: unused after the copies that are in the list now. */
void wf_swaps_release(wf_swaps *s, wf_swap_memory *m);
weft_status wf_swaps_add(wf_swaps *s, const wf_page_copy *one);
void wf_swaps_submitted(wf_swaps *s); /* empties the list */
void wf_swaps_trim(wf_swaps *s);      /* frees unused memory; call it with no step in flight */
void wf_swaps_free(wf_swaps *s);

#endif
