/* prefix: prefix caching. Finds full KV pages by their content, so that prompts with a common prefix share its pages and
 * a system prompt is computed once (as vLLM's automatic prefix caching and SGLang's RadixAttention do).
 *
 * K and V of a page depend on its tokens and on all tokens before them. A block id stands for "these tokens after that
 * parent block"; ids are never reused. A lookup hashes (parent id, tokens) and then compares both in full, so a hash
 * collision cannot return a wrong page. Shared pages are never written: a sequence computes its last, partial page in
 * a page of its own.
 *
 * Not thread-safe: the engine's thread is the only user. */
#ifndef WF_PREFIX_H
#define WF_PREFIX_H

#include "mem/kv_page.h"

typedef struct wf_prefix_entry { /* one per page */
    uint64_t parent, block; /* block ids; block 0: the page is not cached */
    int32_t next;           /* next page in the hash bucket; -1: the last */
} wf_prefix_entry;

typedef struct wf_prefix {
    wf_pages *pages;
    uint32_t page_tokens, n_buckets;
    int32_t *tokens; /* [pages, page_tokens] */
    int32_t *buckets;
    wf_prefix_entry *entries;
    uint64_t last;   /* block id */
} wf_prefix;

/* Installs itself as on_evict of `pages`, which must outlive it and must not move. */
weft_status wf_prefix_init(wf_prefix *x, wf_pages *pages, uint32_t page_tokens);
uint64_t wf_prefix_bytes(uint32_t pages, uint32_t page_tokens); /* of host memory that this takes */
/* Finds the page with these page_tokens tokens after block `parent` (0: at the start of the sequence) and sets *block to
 * its id; -1 if it is not cached. Takes no reference. */
int32_t wf_prefix_find(const wf_prefix *x, uint64_t parent, const int32_t *tokens, uint64_t *block);
/* Caches `page`, which now holds these tokens, and returns the block id. If another page has the same content, that one
 * stays cached, `page` does not, and the id is the same. Copies the tokens. */
uint64_t wf_prefix_add(wf_prefix *x, uint64_t parent, const int32_t *tokens, int32_t page);
void wf_prefix_free(wf_prefix *x);

#endif
