/* arena: device memory that is allocated once, in slabs no larger than the device's largest buffer.
 *
 * Use: reserve every region, then commit. Nothing is allocated afterwards. A region never spans two slabs. Not
 * thread-safe.
 */
#ifndef WF_ARENA_H
#define WF_ARENA_H

#include "dev/dev.h"

typedef struct wf_region {
    uint32_t slab;
    uint64_t offset; /* bytes in the slab */
} wf_region;

typedef struct wf_slab {
    wf_buf *buf; /* NULL until commit */
    uint64_t size;
} wf_slab;

typedef struct wf_arena {
    wf_dev *dev;
    const char *what, *remedy; /* for messages: "weights", "KV cache"; and what to do if a region is too large */
    wf_slab *slabs;
    size_t n_slabs, cap_slabs;
} wf_arena;

void wf_arena_init(wf_arena *a, wf_dev *dev, const char *what, const char *remedy);
/* Reserves `bytes` with the device's alignment. WEFT_ERR_NOMEM, with the sizes, if they exceed the largest buffer. */
weft_status wf_arena_reserve(wf_arena *a, uint64_t bytes, wf_region *out);
/* Allocates all slabs. WEFT_ERR_NOMEM, with the sizes, if the device has less memory. */
weft_status wf_arena_commit(wf_arena *a);
uint64_t wf_arena_bytes(const wf_arena *a);
wf_buf *wf_arena_buf(const wf_arena *a, wf_region r);
void wf_arena_free(wf_arena *a);

#endif
