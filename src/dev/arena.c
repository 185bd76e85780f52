/* arena: slabs of device memory. See arena.h. */
#include "dev/arena.h"

#include <stdlib.h>
#include <string.h>

void wf_arena_init(wf_arena *a, wf_dev *dev, const char *what, const char *remedy)
{
    *a = (wf_arena){.dev = dev, .what = what, .remedy = remedy};
}

static weft_status too_large(const wf_arena *a, uint64_t bytes)
{
    return wf_fail(WEFT_ERR_NOMEM,
                   "%s: one tensor needs %s, but the largest buffer on %s is %s%s: %s, or choose another device",
                   a->what, WF_HUMAN(bytes, true), a->dev->info.name, WF_HUMAN(a->dev->max_alloc, true),
                   a->dev->max_alloc == a->dev->params.max_alloc ? " (max_alloc)" : "", a->remedy);
}

weft_status wf_arena_reserve(wf_arena *a, uint64_t bytes, wf_region *out)
{
    uint64_t limit = a->dev->max_alloc;
    bytes = WF_UP(WF_MAX(bytes, 1), (uint64_t)a->dev->align);
    if (bytes > limit) return too_large(a, bytes);
    wf_slab *last = a->n_slabs ? &a->slabs[a->n_slabs - 1] : NULL;
    if (!last || last->size + bytes > limit) {
        if (!wf_grow(&a->slabs, a->n_slabs, &a->cap_slabs, sizeof *a->slabs)) return WEFT_ERR_NOMEM;
        last = &a->slabs[a->n_slabs++];
        *last = (wf_slab){NULL, 0};
    }
    *out = (wf_region){(uint32_t)(last - a->slabs), last->size};
    last->size += bytes;
    return WEFT_OK;
}

uint64_t wf_arena_bytes(const wf_arena *a)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < a->n_slabs; i++) sum += a->slabs[i].size;
    return sum;
}

weft_status wf_arena_commit(wf_arena *a)
{
    uint64_t memory = a->dev->info.memory;
    if (memory && wf_arena_bytes(a) > memory)
        return wf_fail(WEFT_ERR_NOMEM,
                       "%s: need %.2f GiB, %s has %.2f GiB in all; use a smaller model, format or context "
                       "(weft_engine_params.context)",
                       a->what, wf_arena_bytes(a) / 0x1p30, a->dev->info.name, memory / 0x1p30);
    for (size_t i = 0; i < a->n_slabs; i++) {
        weft_status s = wf_buf_create(a->dev, a->slabs[i].size, &a->slabs[i].buf);
        if (s == WEFT_ERR_NOMEM)
            return wf_fail_context(s, "%s: %.2f GiB in %zu slabs, of which %zu fit (device memory %.2f GiB)", a->what,
                                wf_arena_bytes(a) / 0x1p30, a->n_slabs, i, memory / 0x1p30);
        if (s != WEFT_OK) return wf_fail_context(s, "%s", a->what);
    }
    return WEFT_OK;
}

wf_buf *wf_arena_buf(const wf_arena *a, wf_region r)
{
    return a->slabs[r.slab].buf;
}

void wf_arena_free(wf_arena *a)
{
    for (size_t i = 0; i < a->n_slabs; i++)
        if (a->slabs[i].buf) wf_buf_destroy(a->slabs[i].buf);
    free(a->slabs);
    *a = (wf_arena){0};
}
