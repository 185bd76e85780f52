/* prefix: a hash table of cached pages, one entry per page. See prefix.h. */
#include "kv/prefix.h"

#include <stdlib.h>
#include <string.h>

static uint32_t bucket_of(const wf_prefix *x, const wf_key *key)
{
    return (uint32_t)(wf_key_hash(key) % x->n_buckets);
}

static const int32_t *tokens_of(const wf_prefix *x, int32_t page)
{
    return x->tokens + (size_t)page * x->page_tokens;
}

static int32_t *mates_of(const wf_prefix *x, int32_t page)
{
    return x->mates + (size_t)page * x->n_mates;
}

static void lose_mate(wf_prefix *x, int32_t mate)
{
    int32_t *at = mates_of(x, x->mate_of[mate]);
    while (*at != mate) at++;
    *at = x->mate_of[mate] = -1;
}

static void page_evicted(void *user, int32_t page)
{
    wf_prefix *x = user;
    if (x->n_mates && x->mate_of[page] >= 0) {
        lose_mate(x, page);
        return;
    }
    for (uint32_t i = 0; i < x->n_mates; i++)
        if (mates_of(x, page)[i] >= 0) wf_pages_uncache(x->pages, mates_of(x, page)[i]);
    wf_prefix_entry *e = &x->entries[page];
    int32_t *at = &x->buckets[bucket_of(x, &e->key)];
    while (*at != page) at = &x->entries[*at].next;
    *at = e->next;
    e->cached = false;
}

/* Nobody has mates, and nobody is one. */
static weft_status init_mates(wf_prefix *x)
{
    size_t n = (size_t)x->pages->n * x->n_mates;
    if (!x->n_mates) return WEFT_OK;
    x->mates = wf_calloc(n, sizeof *x->mates);
    x->mate_of = wf_calloc(x->pages->n, sizeof *x->mate_of);
    if (!x->mates || !x->mate_of) return WEFT_ERR_NOMEM;
    memset(x->mates, 0xff, n * sizeof *x->mates);
    memset(x->mate_of, 0xff, x->pages->n * sizeof *x->mate_of);
    return WEFT_OK;
}

weft_status wf_prefix_init(wf_prefix *x, wf_pages *pages, uint32_t page_tokens, uint32_t n_tables)
{
    *x = (wf_prefix){
        .pages = pages, .page_tokens = page_tokens, .n_buckets = 2 * pages->n + 1, .n_mates = n_tables - 1};
    x->tokens = wf_calloc((size_t)pages->n * page_tokens, sizeof *x->tokens);
    x->buckets = wf_calloc(x->n_buckets, sizeof *x->buckets);
    x->entries = wf_calloc(pages->n, sizeof *x->entries);
    if (!x->tokens || !x->buckets || !x->entries || init_mates(x) != WEFT_OK) return wf_prefix_free(x), WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < x->n_buckets; i++) x->buckets[i] = -1;
    pages->on_evict = page_evicted;
    pages->user = x;
    return WEFT_OK;
}

uint64_t wf_prefix_bytes(uint32_t pages, uint32_t page_tokens, uint32_t n_tables)
{
    const wf_prefix *x = NULL;
    uint64_t mates = n_tables > 1 ? (n_tables - 1) * sizeof *x->mates + sizeof *x->mate_of : 0;
    return pages * (uint64_t)(page_tokens * sizeof *x->tokens + 2 * sizeof *x->buckets + sizeof *x->entries + mates);
}

void wf_prefix_free(wf_prefix *x)
{
    free(x->tokens);
    free(x->buckets);
    free(x->entries);
    free(x->mates);
    free(x->mate_of);
    *x = (wf_prefix){0};
}

int32_t wf_prefix_find(const wf_prefix *x, const wf_key *key, const int32_t *tokens)
{
    int32_t page = x->buckets[bucket_of(x, key)];
    while (page >= 0 && (!wf_key_same(&x->entries[page].key, key) ||
                         memcmp(tokens_of(x, page), tokens, x->page_tokens * sizeof *tokens)))
        page = x->entries[page].next;
    return page;
}

int32_t wf_prefix_mate(const wf_prefix *x, int32_t page, uint32_t table)
{
    return mates_of(x, page)[table - 1];
}

static void add_mates(wf_prefix *x, int32_t page, const int32_t *mates)
{
    for (uint32_t i = 0; i < x->n_mates; i++) {
        int32_t *at = &mates_of(x, page)[i];
        if (*at >= 0 || mates[i] < 0) continue;
        *at = mates[i];
        x->mate_of[mates[i]] = page;
        wf_pages_cache(x->pages, mates[i]);
    }
}

void wf_prefix_add(wf_prefix *x, const wf_key *key, const int32_t *tokens, const int32_t *pages)
{
    int32_t found = wf_prefix_find(x, key, tokens), page = pages[0];
    add_mates(x, found >= 0 ? found : page, pages + 1);
    if (found >= 0) return;
    int32_t *bucket = &x->buckets[bucket_of(x, key)];
    memcpy(x->tokens + (size_t)page * x->page_tokens, tokens, x->page_tokens * sizeof *tokens);
    x->entries[page] = (wf_prefix_entry){*key, *bucket, true};
    *bucket = page;
    wf_pages_cache(x->pages, page);
}

const int32_t *wf_prefix_holds(const wf_prefix *x, int32_t page, const wf_key *key, uint32_t table)
{
    int32_t first = !table ? page : x->mate_of[page];
    if (first < 0 || (table && wf_prefix_mate(x, first, table) != page)) return NULL;
    return x->entries[first].cached && wf_key_same(&x->entries[first].key, key) ? tokens_of(x, first) : NULL;
}
