/* store: which slots of a store (host memory, a file) hold which blocks of KV: by key and table, by use, and by what
 * still needs them.
 *
 * A slot that is ready and has no pins may be taken for another block, the one used least recently first. Pins are of
 * those that read or write it; a slot that dies meanwhile is free once the last one is gone. Not thread-safe.
 */
#ifndef WF_STORE_H
#define WF_STORE_H

#include "kv/key.h"

#define WF_STORE_MOST (INT32_MAX / 4) /* slots: sums of those of two stores are numbers, too */

enum wf_stored_state {
    WF_STORED_FREE,
    WF_STORED_COMING,   /* its content is written: not found yet */
    WF_STORED_EXPECTED, /* the same, but who finds it waits for it */
    WF_STORED_READY,
    WF_STORED_DEAD,     /* nobody finds it */
};

typedef struct wf_stored_block {
    wf_key key;
    uint32_t table, pins;
    int32_t next;         /* in its bucket, or of the free ones; -1: the last; of a dead one its user's */
    int32_t older, newer; /* of those that may be taken; -1: the end */
    uint8_t state;
} wf_stored_block;

typedef struct wf_store {
    wf_stored_block *slots;
    int32_t *tokens; /* [n, page_tokens] */
    int32_t *buckets, free, oldest, newest;
    uint32_t n, n_used, n_buckets, page_tokens;
    uint64_t evicted;
} wf_store;

weft_status wf_store_init(wf_store *b, uint32_t n, uint32_t page_tokens); /* all free */
void wf_store_free(wf_store *b);
/* The slot of a block, whatever its state; -1: none. */
int32_t wf_store_slot(const wf_store *b, const wf_key *key, uint32_t table);
/* The same of one that is ready or expected, and has these tokens. */
int32_t wf_store_find(const wf_store *b, const wf_key *key, const int32_t *tokens, uint32_t table);
/* A slot for a block that has none, with one pin; -1: all are needed. */
int32_t wf_store_take(wf_store *b, const wf_key *key, const int32_t *tokens, uint32_t table, uint8_t state);
void wf_store_pin(wf_store *b, int32_t slot);
void wf_store_unpin(wf_store *b, int32_t slot);
void wf_store_ready(wf_store *b, int32_t slot); /* its content is whole, unless it has died */
void wf_store_kill(wf_store *b, int32_t slot);
void wf_store_touch(wf_store *b, const wf_key *key, uint32_t table); /* as if just used */
/* Fills a free slot at the start, ready and the one used last, in the place of one that has the block; in the end
 * wf_store_list_free lists those that are free. */
void wf_store_restore(wf_store *b, int32_t slot, const wf_key *key, const int32_t *tokens, uint32_t table);
void wf_store_list_free(wf_store *b);

static inline int32_t *wf_store_tokens(const wf_store *b, int32_t slot)
{
    return b->tokens + (size_t)slot * b->page_tokens;
}

#endif
