/* table: see table.h. From top to bottom: all pages; a sequence's begin and end; the longest known prefix, and taking
 * it over; pages that fill, and that go; the host. */
#include "kv/table.h"

#include <stdlib.h>
#include <string.h>

weft_status wf_kv_init(wf_kv *k, const wf_limits *l, const wf_kv_params *p)
{
    *k = (wf_kv){.p = p};
    WF_TRY(wf_pages_init(&k->pages, l->pages, wf_limits_guaranteed_pages(l), p->shuffle_pages));
    return wf_prefix_init(&k->prefix, &k->pages, p->page_tokens, wf_limits_tables(l));
}

void wf_kv_free(wf_kv *k)
{
    wf_prefix_free(&k->prefix);
    wf_pages_free(&k->pages);
}

uint64_t wf_kv_host_bytes(const wf_limits *l, uint32_t page_tokens)
{
    return wf_pages_bytes(l->pages) + wf_prefix_bytes(l->pages, page_tokens, wf_limits_tables(l));
}

void wf_kv_use_tiers(wf_kv *k, wf_tiers *tiers)
{
    k->tiers = tiers;
    if (tiers) wf_tiers_attach(tiers, &k->pages, &k->prefix);
}

uint32_t wf_kv_pages_for(const wf_kv *k, uint32_t tokens)
{
    return (tokens + k->p->page_tokens - 1) / k->p->page_tokens;
}

/* The next token attends to the keys from n_computed + 1 - window on. */
uint32_t wf_kv_passed(const wf_kv *k, uint32_t table, uint32_t n_computed)
{
    uint32_t next = n_computed + 1, window = k->p->tables[table].window;
    return window && next > window ? (next - window) / k->p->page_tokens : 0;
}

uint32_t wf_kv_kept(const wf_kv *k, uint32_t table)
{
    return wf_kv_pages_for(k, k->p->tables[table].sink);
}

/* ---- begin and end ------------------------------------------------------------------------------------------- */

bool wf_kv_open(wf_kv_seq *q, uint32_t seq_pages)
{
    size_t most = seq_pages;
    if (!q->keys && !(q->keys = wf_calloc(most, sizeof *q->keys))) return false;
    if (!q->pages && !(q->pages = wf_calloc(q->n_tables * most, sizeof *q->pages))) return false;
    q->cap_pages = seq_pages;
    return true;
}

void wf_kv_close(wf_kv *k, wf_kv_seq *q)
{
    wf_kv_leave_load(k, q);
    wf_kv_release(k, q);
    wf_swap_release(k->swaps, &q->host);
    free(q->pages);
    free(q->keys);
    q->pages = NULL, q->keys = NULL;
    q->cap_pages = q->n_keys = 0;
    memset(q->tables, 0, sizeof q->tables);
    q->swapped_out = false;
}

/* Of q's block i, all tokens of which are known. */
static const wf_key *block_key(const wf_kv *k, wf_kv_seq *q, const int32_t *tokens, uint32_t i)
{
    uint32_t p = k->p->page_tokens;
    for (uint32_t n; n = q->n_keys, n <= i; q->n_keys++)
        q->keys[n] = wf_key_next(n ? &q->keys[n - 1] : &q->root, tokens + (size_t)n * p, p);
    return &q->keys[i];
}

/* Block i, all of whose pages q holds or has passed, is cached: may it be stored? */
static void offer_block(wf_kv *k, wf_kv_seq *q, const int32_t *tokens, uint32_t i)
{
    const wf_key *key = k->tiers && i >= q->n_sighted ? block_key(k, q, tokens, i) : NULL;
    q->n_sighted = WF_MAX(q->n_sighted, i + 1);
    if (!key || !wf_tiers_sighted(k->tiers, key)) return;
    int32_t first = wf_prefix_find(&k->prefix, key, tokens + (size_t)i * k->p->page_tokens);
    for (uint32_t t = 0; first >= 0 && t < q->n_tables; t++) {
        int32_t page = t ? wf_prefix_mate(&k->prefix, first, t) : first;
        if (page >= 0) wf_tiers_offer(k->tiers, key, page, t);
    }
}

/* ---- the longest known prefix --------------------------------------------------------------------------------- */

/* While blocks are looked up, a page that is not on the device has the place of its slot below. */
#define BELOW(slot) (-2 - (slot))

/* Of the first page of each block, as far as they are known: how many of the last ones, and of the first, have mates in
 * a table. */
typedef struct mates {
    uint32_t first, last;
} mates;

static void count_mate(mates *m, uint32_t i, bool there)
{
    m->first += there && m->first == i;
    m->last = there ? m->last + 1 : 0;
}

/* Are the pages of the table there that the token after n pages reaches? */
static bool has_reached_pages(const wf_kv *k, uint32_t table, const mates *m, uint32_t n)
{
    uint32_t passed = wf_kv_passed(k, table, n * k->p->page_tokens), kept = wf_kv_kept(k, table);
    return m->last >= n - passed && (m->last >= n || m->first >= WF_MIN(kept, n));
}

/* A block's page in a table, or its place below; -1: neither. */
static int32_t find_block(const wf_kv *k, wf_kv_seq *q, const int32_t *all, uint32_t i, uint32_t table, bool below)
{
    const int32_t *tokens = all + (size_t)i * k->p->page_tokens;
    const wf_key *key = block_key(k, q, all, i);
    int32_t first = table ? q->pages[i] : -1,
            page = !table ? wf_prefix_find(&k->prefix, key, tokens)
                          : first >= 0 ? wf_prefix_mate(&k->prefix, first, table) : -1,
            slot = page < 0 && below ? wf_tiers_find(k->tiers, key, tokens, table) : -1;
    return slot >= 0 ? BELOW(slot) : page;
}

/* Lists the pages up to the last block after which nothing is missing. */
wf_kv_known wf_kv_find(const wf_kv *k, wf_kv_seq *q, const int32_t *tokens, uint32_t n_tokens, bool below)
{
    uint32_t most = (n_tokens - 1) / k->p->page_tokens;
    mates device[WF_MAX_KV_TABLES] = {{0}}, all[WF_MAX_KV_TABLES] = {{0}};
    wf_kv_known n = {0};
    bool on_device = true;
    for (uint32_t i = 0; i < most; i++) {
        bool device_has = true, all_have = true;
        for (uint32_t t = 0; t < q->n_tables; t++) {
            int32_t page = wf_kv_table_of(q, t)[i] = find_block(k, q, tokens, i, t, below);
            if (!t && page == -1) return n;
            if (!t) on_device = on_device && page >= 0;
            count_mate(&device[t], i, page >= 0);
            count_mate(&all[t], i, page != -1);
            if (!t) continue;
            device_has = device_has && has_reached_pages(k, t, &device[t], i + 1);
            all_have = all_have && has_reached_pages(k, t, &all[t], i + 1);
        }
        if (on_device && device_has) n.device = i + 1;
        if (all_have) n.all = i + 1;
    }
    return n;
}

/* ---- taking it over ------------------------------------------------------------------------------------------- */

/* Blocks of a prefix of n that q's next token reaches in this table. */
static bool is_reached(const wf_kv *k, uint32_t table, uint32_t n, uint32_t i)
{
    return i < wf_kv_kept(k, table) || i >= wf_kv_passed(k, table, n * k->p->page_tokens);
}

/* Refers to the pages of a prefix of n blocks that are on the device. */
static void ref_table(wf_kv *k, wf_kv_seq *q, uint32_t table, uint32_t n)
{
    uint32_t passed = wf_kv_passed(k, table, n * k->p->page_tokens), kept = wf_kv_kept(k, table);
    int32_t *pages = wf_kv_table_of(q, table);
    for (uint32_t i = 0; i < n; i++) {
        if (!is_reached(k, table, n, i)) pages[i] = 0;
        else if (pages[i] >= 0) wf_pages_ref(&k->pages, pages[i]);
    }
    if (passed > kept) q->tables[table] = (wf_passed){kept, passed};
}

static uint32_t pages_below(const wf_kv *k, const wf_kv_seq *q, uint32_t n, uint32_t *on_disk)
{
    uint32_t count = 0;
    *on_disk = 0;
    for (uint32_t t = 0; t < q->n_tables; t++)
        for (uint32_t i = 0; i < n; i++) {
            int32_t page = wf_kv_table_of(q, t)[i];
            bool below = page < 0 && is_reached(k, t, n, i);
            count += below;
            *on_disk += below && wf_tiers_is_on_disk(k->tiers, BELOW(page));
        }
    return count;
}

/* Pages in the place of slots; false: there is no memory. */
static bool begin_load(wf_kv *k, wf_kv_seq *q, uint32_t n, uint32_t count, uint32_t limit, uint32_t tokens)
{
    uint32_t at = 0;
    wf_tier_block *blocks = wf_calloc(count, sizeof *blocks);
    int32_t *pages = wf_calloc(count, sizeof *pages);
    bool ok = blocks && pages && wf_pages_alloc(&k->pages, count, limit, pages);
    for (uint32_t t = 0; ok && t < q->n_tables; t++)
        for (uint32_t i = 0; i < n; i++)
            if (wf_kv_table_of(q, t)[i] < 0)
                blocks[at] = (wf_tier_block){pages[at], BELOW(wf_kv_table_of(q, t)[i]), false}, at++;
    if (ok && !(q->load = wf_tiers_load(k->tiers, blocks, count, tokens)))
        wf_pages_release(&k->pages, pages, count), ok = false;
    at = 0;
    for (uint32_t t = 0; ok && t < q->n_tables; t++)
        for (uint32_t i = 0; i < n; i++)
            if (wf_kv_table_of(q, t)[i] < 0) wf_kv_table_of(q, t)[i] = pages[at++];
    free(blocks);
    free(pages);
    return ok;
}

/* Takes the references of ref_table back. */
static void unref_prefix(wf_kv *k, wf_kv_seq *q, uint32_t n)
{
    for (uint32_t t = 0; t < q->n_tables; t++)
        for (uint32_t i = n; i-- > 0;)
            if (is_reached(k, t, n, i) && wf_kv_table_of(q, t)[i] >= 0)
                wf_pages_release(&k->pages, &wf_kv_table_of(q, t)[i], 1);
    memset(q->tables, 0, sizeof q->tables);
}

bool wf_kv_begin_load(wf_kv *k, wf_kv_seq *q, wf_kv_known n, uint32_t limit, uint32_t late)
{
    uint32_t on_disk, count = pages_below(k, q, n.all, &on_disk), tokens = (n.all - n.device) * k->p->page_tokens;
    if (!wf_tiers_worth(k->tiers, count, on_disk, tokens)) return false;
    for (uint32_t t = 0; t < q->n_tables; t++) ref_table(k, q, t, n.all);
    if (!begin_load(k, q, n.all, count, limit, tokens + late)) return unref_prefix(k, q, n.all), false;
    q->n_pages = n.all;
    return true;
}

/* Offers are made from the end, as in wf_kv_touch. */
void wf_kv_take(wf_kv *k, wf_kv_seq *q, const int32_t *tokens, uint32_t n)
{
    uint32_t first = q->n_sighted;
    for (uint32_t t = 0; t < q->n_tables; t++) ref_table(k, q, t, n);
    q->n_registered = q->n_pages = n;
    for (uint32_t i = n; i-- > first; q->n_sighted = first) offer_block(k, q, tokens, i);
    q->n_sighted = WF_MAX(first, n);
    wf_kv_release_passed(k, q, n * k->p->page_tokens);
}

void wf_kv_leave_load(wf_kv *k, wf_kv_seq *q)
{
    if (q->load) wf_tiers_leave(k->tiers, q->load);
    q->load = NULL;
}

/* ---- pages that fill, and that go ---------------------------------------------------------------------------- */

void wf_kv_publish(wf_kv *k, wf_kv_seq *q, const int32_t *tokens, uint32_t n)
{
    uint32_t p = k->p->page_tokens;
    int32_t pages[WF_MAX_KV_TABLES];
    if (k->p->no_prefix || q->private) return;
    for (uint32_t i; i = q->n_registered, (i + 1) * p <= n; q->n_registered++) {
        for (uint32_t t = 0; t < q->n_tables; t++)
            pages[t] = i < q->tables[t].kept || i >= q->tables[t].passed ? wf_kv_table_of(q, t)[i] : -1;
        if (pages[0] < 0) continue; /* loaded without what windows have passed */
        wf_prefix_add(&k->prefix, block_key(k, q, tokens, i), tokens + (size_t)i * p, pages);
        offer_block(k, q, tokens, i);
    }
}

void wf_kv_release_passed(wf_kv *k, wf_kv_seq *q, uint32_t n_computed)
{
    for (uint32_t t = 0; t < q->n_tables; t++) {
        uint32_t passed = wf_kv_passed(k, t, n_computed), kept = wf_kv_kept(k, t),
            from = WF_MAX(q->tables[t].passed, kept);
        int32_t *pages = wf_kv_table_of(q, t);
        if (!k->p->no_prefix && !q->private) passed = WF_MIN(passed, q->n_registered);
        if (passed <= from) continue;
        wf_pages_release(&k->pages, pages + from, passed - from);
        memset(pages + from, 0, (passed - from) * sizeof *pages);
        q->tables[t] = (wf_passed){kept, passed};
        if (k->swaps) wf_swap_release(k->swaps, &q->host); /* what lies there has other pages */
    }
}

void wf_kv_release(wf_kv *k, wf_kv_seq *q)
{
    for (uint32_t t = 0; t < q->n_tables && q->n_pages; t++) {
        wf_passed own = q->tables[t];
        wf_pages_release(&k->pages, wf_kv_table_of(q, t) + own.passed, q->n_pages - own.passed);
        wf_pages_release(&k->pages, wf_kv_table_of(q, t), own.kept);
    }
    q->n_pages = 0;
}

void wf_kv_restart(wf_kv_seq *q)
{
    q->n_registered = 0;
    q->came_back = false;
    memset(q->tables, 0, sizeof q->tables);
}

void wf_kv_forget(wf_kv *k, wf_kv_seq *q, const int32_t *tokens, uint32_t n_tokens, uint32_t from, bool only_coming)
{
    uint32_t p = k->p->page_tokens, n = q->keys ? n_tokens / p : 0;
    q->private = true;
    for (uint32_t i = from / p; i < n; i++) {
        int32_t page = wf_prefix_find(&k->prefix, block_key(k, q, tokens, i), tokens + (size_t)i * p);
        if (page >= 0) wf_pages_uncache(&k->pages, page);
        for (uint32_t t = 0; k->tiers && t < q->n_tables; t++)
            wf_tiers_forget(k->tiers, block_key(k, q, tokens, i), t, only_coming);
    }
}

/* From the end, so that the start of a text goes last. */
void wf_kv_touch(wf_kv *k, wf_kv_seq *q, const int32_t *tokens)
{
    if (!k->tiers || q->private) return;
    for (uint32_t i = q->n_registered; i-- > 0;)
        for (uint32_t t = 0; t < q->n_tables; t++) wf_tiers_touch(k->tiers, block_key(k, q, tokens, i), t);
}

/* ---- the host -------------------------------------------------------------------------------------------------- */

/* The pages that q holds of its first n of each table. */
static bool swap_pages(wf_kv *k, wf_kv_seq *q, bool out, uint32_t n)
{
    weft_status st = out ? wf_swap_alloc(k->swaps, wf_kv_held(q, n), &q->host) : WEFT_OK;
    for (uint32_t t = 0, at = 0; t < q->n_tables && st == WEFT_OK; t++) {
        uint32_t kept = q->tables[t].kept, passed = q->tables[t].passed;
        st = wf_swap_move(k->swaps, out, wf_kv_table_of(q, t), kept, &q->host, &at);
        if (st == WEFT_OK) st = wf_swap_move(k->swaps, out, wf_kv_table_of(q, t) + passed, n - passed, &q->host, &at);
    }
    if (st != WEFT_OK) wf_swap_release(k->swaps, &q->host);
    return st == WEFT_OK;
}

bool wf_kv_swap_out(wf_kv *k, wf_kv_seq *q, uint32_t n)
{
    q->swapped_out = q->host.host.data || (k->swaps && n && swap_pages(k, q, true, n));
    wf_kv_release(k, q);
    if (!q->swapped_out) wf_kv_restart(q);
    if (!q->tables[0].passed) q->n_registered = 0;
    return q->swapped_out;
}

bool wf_kv_swap_in(wf_kv *k, wf_kv_seq *q, uint32_t n, uint32_t limit)
{
    if (wf_pages_available(&k->pages, limit) < wf_kv_held(q, n)) return false;
    for (uint32_t t = 0; t < q->n_tables; t++) {
        wf_pages_alloc(&k->pages, q->tables[t].kept, limit, wf_kv_table_of(q, t));
        wf_pages_alloc(&k->pages, n - q->tables[t].passed, limit, wf_kv_table_of(q, t) + q->tables[t].passed);
    }
    q->n_pages = n;
    q->swapped_out = false;
    if (swap_pages(k, q, false, n)) return q->came_back = true;
    wf_kv_release(k, q);
    wf_kv_restart(q);
    return false;
}
