/* layout: see layout.h. */
#include "kv/layout.h"

#include <stdlib.h>

uint32_t wf_kv_window_pages(wf_kv_window w, const wf_kv_growth *g)
{
    uint64_t page = g->page_tokens,
             most = (w.sink + page - 1) / page + ((uint64_t)w.window + g->step_tokens + page - 1) / page + 1;
    return w.window && most < g->seq_pages ? (uint32_t)most : g->seq_pages;
}

uint32_t wf_kv_layout_pages(const wf_kv_layout *l, const wf_kv_growth *g)
{
    uint64_t pages = 0;
    for (uint32_t t = 0; t < wf_kv_layout_tables(l); t++) pages += wf_kv_window_pages(l->tables[t], g);
    return (uint32_t)WF_MIN(pages, (uint64_t)INT32_MAX);
}

static bool is_shorter(wf_kv_window a, wf_kv_window b)
{
    uint32_t x = a.window - 1, y = b.window - 1; /* all keys are the most */
    return x < y || (x == y && a.sink < b.sink);
}

/* Of the layers from the first on, which has the longest window; but another may have a larger sink. */
static wf_kv_window longest_window(const wf_kv_window *windows, const uint32_t *order, uint32_t n)
{
    wf_kv_window w = windows[order[0]];
    for (uint32_t i = 1; i < n; i++) w.sink = WF_MAX(w.sink, windows[order[i]].sink);
    return w;
}

static void cut_layers(const wf_kv_window *windows, const uint32_t *order, uint32_t n, uint32_t slots,
                       wf_kv_layout *out)
{
    *out = (wf_kv_layout){.n_slots = slots};
    for (uint32_t i = 0; i < n; i += slots)
        out->tables[out->n_tables++] = longest_window(windows, order + i, WF_MIN(slots, n - i));
}

/* Of a sequence, in layers of a page. */
static uint64_t layout_cost(const wf_kv_layout *l, const wf_kv_growth *g)
{
    return (uint64_t)l->n_slots * wf_kv_layout_pages(l, g);
}

weft_status wf_kv_layout_choose(const wf_kv_window *windows, uint32_t n, const wf_kv_growth *g, wf_kv_layout *out)
{
    enum { WORTH_IT = 16 /* that part less memory */ };
    uint32_t *order = wf_calloc(n + 1, sizeof *order);
    if (!order) return WEFT_ERR_NOMEM;
    wf_kv_layout one, best, l;
    /* Layers in the order of their windows, the longest first; equal ones stay as they are. */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at && is_shorter(windows[order[at - 1]], windows[i]); at--) order[at] = order[at - 1];
        order[at] = i;
    }
    cut_layers(windows, order, n, n, &one);
    best = one;
    for (uint32_t slots = n; slots && (n + slots - 1) / slots <= WF_MAX_KV_TABLES; slots--)
        if (cut_layers(windows, order, n, slots, &l), layout_cost(&l, g) < layout_cost(&best, g)) best = l;
    bool several = best.n_tables > 1 && layout_cost(&best, g) <= layout_cost(&one, g) - layout_cost(&one, g) / WORTH_IT;
    *out = several ? best : one;
    if (several) out->rank = wf_calloc(n, sizeof *out->rank);
    for (uint32_t i = 0; i < n && out->rank; i++) out->rank[order[i]] = i;
    free(order);
    return !several || out->rank ? WEFT_OK : WEFT_ERR_NOMEM;
}

void wf_kv_layout_free(wf_kv_layout *l)
{
    free(l->rank);
    *l = (wf_kv_layout){0};
}
