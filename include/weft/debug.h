/* weft/debug.h: what only tests and debugging want of an engine. Same conventions as <weft/weft.h>. */
#ifndef WEFT_DEBUG_H
#define WEFT_DEBUG_H

#include <weft/weft.h>

/* weft_engine_params.debug. Zero is the default. */
struct weft_debug {
    const char *force;      /* kernel variants by op, "gemm=ref,attention=ref"; weft_kernels lists them */
    uint64_t max_alloc;     /* upper limit of a device buffer in bytes; 0: the device's limit */
    uint64_t shuffle_pages; /* seed of a random order of KV pages; 0: ascending order */
    bool poison;            /* fill KV pages with NaN before use */
    bool check_calls;       /* check operands and shapes of each call of each step, not only at start-up */
    bool draft_always;      /* verify drafts (weft_engine_params.draft_tokens) also where that is slower */
    bool kv_store_always;   /* KV blocks go to the tier below when they are computed, not when they are seen again */
    bool kv_load_always;    /* and come back also where computing them is expected to be faster */
    bool beside_always;       /* steps run beside those whose tokens the host samples also where that is slower */
    uint64_t reserved[8];
};

#endif
