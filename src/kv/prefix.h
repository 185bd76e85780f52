/* prefix: prefix caching. Finds full KV pages by their content, so that prompts with a common prefix share its pages
 * and a system prompt is computed once (as vLLM's automatic prefix caching and SGLang's RadixAttention do).
 *
 * K and V of a page depend on its tokens and on all tokens before them, for which its key stands (key.h). A lookup
 * compares the key and the page's tokens. Shared pages are never written: a sequence computes its last, partial page
 * in a page of its own.
 *
 * Not thread-safe: the engine's thread is the only user. */
#ifndef WF_PREFIX_H
#define WF_PREFIX_H

#include "kv/key.h"
#include "kv/page.h"

/* Where sequences have several page tables (layout.h), the pages of the first one say which prefixes are cached.
 * Each has mates: those of the other tables with the same tokens, as far as they are cached. They leave with it, or
 * before. */
typedef struct wf_prefix_entry { /* one per page */
    wf_key key;
    int32_t next; /* next page in the hash bucket; -1: the last */
    bool cached;
} wf_prefix_entry;

typedef struct wf_prefix {
    wf_pages *pages;
    uint32_t page_tokens, n_buckets, n_mates; /* n_mates: tables besides the first */
    int32_t *tokens; /* [pages, page_tokens] */
    int32_t *buckets;
    wf_prefix_entry *entries;
    int32_t *mates;  /* [pages, n_mates] of a cached page of the first table; -1: none */
    int32_t *mate_of; /* [pages] of a mate: whose; -1: it is none. Both NULL with one table */
} wf_prefix;

/* Installs itself as on_evict of `pages`, which must outlive it and must not move. */
weft_status wf_prefix_init(wf_prefix *x, wf_pages *pages, uint32_t page_tokens, uint32_t n_tables);
uint64_t wf_prefix_bytes(uint32_t pages, uint32_t page_tokens, uint32_t n_tables); /* of host memory that this takes */
/* The page of this key, whose tokens are these page_tokens; -1: it is not cached. Takes no reference. */
int32_t wf_prefix_find(const wf_prefix *x, const wf_key *key, const int32_t *tokens);
/* The page of the other table with the tokens of a cached page of the first; -1: it is not cached. */
int32_t wf_prefix_mate(const wf_prefix *x, int32_t page, uint32_t table);
/* Caches pages[0], which now holds these tokens. If another page has the same content, that one stays cached, and
 * pages[0] does not. Mates that it does not have yet are taken from pages[1...]; -1: none. Copies key and tokens. */
void wf_prefix_add(wf_prefix *x, const wf_key *key, const int32_t *tokens, const int32_t *pages);
/* The tokens of a page that is cached as this block in this table; NULL: it is not. */
const int32_t *wf_prefix_holds(const wf_prefix *x, int32_t page, const wf_key *key, uint32_t table);
void wf_prefix_free(wf_prefix *x);

#endif
