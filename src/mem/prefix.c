/* prefix: a hash table of cached pages, one entry per page. See prefix.h. */
#include "mem/prefix.h"

#include <stdlib.h>
#include <string.h>

static uint32_t bucket_of(const wf_prefix *x, uint64_t parent, const int32_t *tokens)
{
    uint64_t h = wf_random(wf_hash_seed(), parent);
    for (uint32_t i = 0; i < x->page_tokens; i++) h = wf_random(h, (uint32_t)tokens[i]);
    return (uint32_t)(h % x->n_buckets);
}

static const int32_t *tokens_of(const wf_prefix *x, int32_t page)
{
    return x->tokens + (size_t)page * x->page_tokens;
}

static void evicted(void *user, int32_t page)
{
    wf_prefix *x = user;
    wf_prefix_entry *e = &x->entries[page];
    int32_t *at = &x->buckets[bucket_of(x, e->parent, tokens_of(x, page))];
    while (*at != page) at = &x->entries[*at].next;
    *at = e->next;
    e->block = 0;
}

weft_status wf_prefix_init(wf_prefix *x, wf_pages *pages, uint32_t page_tokens)
{
    *x = (wf_prefix){.pages = pages, .page_tokens = page_tokens, .n_buckets = 2 * pages->n + 1};
    x->tokens = wf_calloc((size_t)pages->n * page_tokens, sizeof *x->tokens);
    x->buckets = wf_calloc(x->n_buckets, sizeof *x->buckets);
    x->entries = wf_calloc(pages->n, sizeof *x->entries);
    if (!x->tokens || !x->buckets || !x->entries) return wf_prefix_free(x), WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < x->n_buckets; i++) x->buckets[i] = -1;
    pages->on_evict = evicted;
    pages->user = x;
    return WEFT_OK;
}

uint64_t wf_prefix_bytes(uint32_t pages, uint32_t page_tokens)
{
    const wf_prefix *x = NULL;
    return pages * (uint64_t)(page_tokens * sizeof *x->tokens + 2 * sizeof *x->buckets + sizeof *x->entries);
}

void wf_prefix_free(wf_prefix *x)
{
    free(x->tokens);
    free(x->buckets);
    free(x->entries);
    *x = (wf_prefix){0};
}

int32_t wf_prefix_find(const wf_prefix *x, uint64_t parent, const int32_t *tokens, uint64_t *block)
{
    int32_t page = x->buckets[bucket_of(x, parent, tokens)];
    while (page >= 0 && (x->entries[page].parent != parent || memcmp(tokens_of(x, page), tokens, x->page_tokens * sizeof *tokens)))
        page = x->entries[page].next;
    if (page >= 0) *block = x->entries[page].block;
    return page;
}

uint64_t wf_prefix_add(wf_prefix *x, uint64_t parent, const int32_t *tokens, int32_t page)
{
    uint64_t block = 0;
    if (wf_prefix_find(x, parent, tokens, &block) >= 0) return block;
    int32_t *bucket = &x->buckets[bucket_of(x, parent, tokens)];
    memcpy(x->tokens + (size_t)page * x->page_tokens, tokens, x->page_tokens * sizeof *tokens);
    x->entries[page] = (wf_prefix_entry){parent, ++x->last, *bucket};
    *bucket = page;
    wf_pages_cache(x->pages, page);
    return x->last;
}
