/* layout: which layers share pages. Keys that no layer attends to any more need no memory: where layers have
 * windows, pages that these have passed serve others. So layers of different windows have page tables of their own (as
 * vLLM's hybrid KV cache has them):
 *
 *   layers, longest window first     a a | b b | b b | b      a: attend to all keys, b: to the last ones
 *   page tables of a sequence         0     1     2    3
 *
 * A page holds the keys and values of some tokens in n_slots layers, those of one table, and serves any table: all draw
 * on one pool of pages, so that nothing is divided beforehand. A sequence takes a page of each of its tables for these
 * tokens, and keeps it while the table's layers need it.
 */
#ifndef WF_KV_LAYOUT_H
#define WF_KV_LAYOUT_H

#include "base/base.h"

enum { WF_MAX_KV_TABLES = 8 };

/* What a layer attends to at most: the last keys, a token's own included, and the first ones. window 0: all keys. */
typedef struct wf_kv_window {
    uint32_t window, sink;
} wf_kv_window;

typedef struct wf_kv_layout {
    uint32_t n_tables, n_slots;            /* n_tables 0 or 1: all layers share a table, layer i in slot i */
    wf_kv_window tables[WF_MAX_KV_TABLES]; /* the longest of their layers */
    uint32_t *rank; /* [layers]: a layer has slot rank % n_slots of table rank / n_slots; NULL with one table */
} wf_kv_layout;

/* How sequences grow. */
typedef struct wf_kv_growth {
    /* Tokens of a page, most of a step, and most pages of a sequence in a table. */
    uint32_t page_tokens, step_tokens, seq_pages;
} wf_kv_growth;

/* Most pages that a sequence holds for such a window at the same time: a step computes some tokens beside those that
 * the first of them attends to; both may begin and end within a page. */
uint32_t wf_kv_window_pages(wf_kv_window w, const wf_kv_growth *g);
/* The same for all tables, n_tables 0 being one. */
uint32_t wf_kv_layout_pages(const wf_kv_layout *l, const wf_kv_growth *g);
/* The layout with which sequences take least memory, one table where others save little. windows: of each layer. */
weft_status wf_kv_layout_choose(const wf_kv_window *windows, uint32_t n_layers, const wf_kv_growth *g,
                                wf_kv_layout *out);
void wf_kv_layout_free(wf_kv_layout *l);

static inline uint32_t wf_kv_layout_tables(const wf_kv_layout *l)
{
    return WF_MAX(l->n_tables, 1u);
}
static inline uint32_t wf_kv_table(const wf_kv_layout *l, uint32_t layer)
{
    return l->rank ? l->rank[layer] / l->n_slots : 0;
}
static inline uint32_t wf_kv_slot(const wf_kv_layout *l, uint32_t layer)
{
    return l->rank ? l->rank[layer] % l->n_slots : layer;
}

#endif
