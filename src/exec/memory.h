/* memory: places everything that changes on the device: pages of the KV cache, activations, and the arrays of a step.
 * Nothing is allocated after start-up.
 *
 * A page holds K and V of all layers, or of as many as share a page table (kv/layout.h), one after the other, so
 * that one copy moves it; the pool of a layer is a view of the whole with an offset and a stride. Pages and activations
 * share one space (kv/unified_pool.h), in as few buffers as the device needs. Where it needs so many that activations
 * cannot be shared out among them, each buffer holds the pages of a group of layers, since a kernel takes K or V from
 * one buffer, and activations have buffers of their own: a page needs its part in every buffer, so free memory next to
 * the activations in one would be useless without as much in all others.
 */
#ifndef WF_MEMORY_H
#define WF_MEMORY_H

#include "dev/arena.h"
#include "kv/limits.h"
#include "plan/plan.h"

/* Bytes of a KV page: K and V of all layers, or of those that share a page table. */
uint64_t wf_page_bytes(const wf_graph *g);
/* Bytes of all activation buffers, for this many tokens and rows of logits. */
uint64_t wf_activation_bytes(const wf_plan *p, uint32_t rows, uint32_t logit_rows);
/* Unifies the memory of KV pages and activations, if a few buffers can hold both: sets l->pool, and raises l->pages, at
 * first the capacity of the KV cache, by the pages that fit next to the activations of small steps, as far as sequences
 * can use them. l->pages does not change if the gain would be small, because more pages in use make steps smaller. p is
 * placed; align and max_alloc are the device's. */
void wf_limits_unify_pool(wf_limits *l, const wf_graph *g, const wf_plan *p, uint64_t align, uint64_t max_alloc);

typedef struct wf_pool {
    uint32_t group;
    uint64_t offset; /* in a page of its group */
} wf_pool;

typedef struct wf_group {
    wf_region at;
    uint64_t page; /* bytes of a page's part */
} wf_group;

/* Where an activation buffer is: in the unified pool it begins so many bytes before `end` as a step has tokens and rows
 * of logits. */
typedef struct wf_buffer_place {
    wf_region at;
    uint64_t end, token, logit_row;
} wf_buffer_place;

typedef struct wf_memory {
    const wf_graph *g;
    const wf_plan *p;
    wf_limits limits;
    wf_arena steps, kv; /* arrays and activation buffers; pages, and with a unified pool the activation buffers, too */
    wf_buffer_place *buffers; /* by activation buffer */
    wf_pool *pools;       /* by K or V of the layers of a page */
    wf_group *groups;
    size_t n_pools, n_groups;
} wf_memory;

/* Reserves; the caller may reserve more in ->steps, then commits. g and p outlive it. */
weft_status wf_memory_init(wf_memory *m, wf_dev *dev, const wf_graph *g, const wf_plan *p, const wf_limits *l);
weft_status wf_memory_commit(wf_memory *m);
void wf_memory_free(wf_memory *m);
/* The start of an activation buffer in a step of that many tokens and rows of logits; the caller sets shape and dtype.
 */
wf_view wf_memory_buffer(const wf_memory *m, int32_t buffer, uint32_t rows, uint32_t logits);
/* K or V of a layer in such a step: the pages next to its activations. */
wf_view wf_memory_pool(const wf_memory *m, const wf_value *v, uint32_t rows, uint32_t logits);
/* Copies a page to the host or back. end: of the last part, or NULL. */
weft_status wf_memory_copy(const wf_memory *m, wf_queue *q, int32_t page, bool out, uint8_t *host, wf_event *end);
/* All pages; with a unified pool the activations as well. */
weft_status wf_memory_fill(const wf_memory *m, wf_queue *q, uint32_t pattern);
uint64_t wf_memory_kv(const wf_memory *m);          /* bytes of the guaranteed pages */
uint64_t wf_memory_activations(const wf_memory *m); /* of everything else */

#endif
