/* store: a hash table and an LRU list over slots. See store.h. */
#include "kv/store.h"

#include <stdlib.h>
#include <string.h>

weft_status wf_store_init(wf_store *b, uint32_t n, uint32_t page_tokens)
{
    *b = (wf_store){.n = n, .n_buckets = 2 * n + 1, .page_tokens = page_tokens, .oldest = -1, .newest = -1};
    b->slots = wf_calloc(n, sizeof *b->slots);
    b->tokens = wf_calloc(n, page_tokens * sizeof *b->tokens);
    b->buckets = wf_calloc(b->n_buckets, sizeof *b->buckets);
    if (!b->slots || !b->tokens || !b->buckets) return wf_store_free(b), WEFT_ERR_NOMEM;
    memset(b->buckets, 0xff, b->n_buckets * sizeof *b->buckets);
    wf_store_list_free(b);
    return WEFT_OK;
}

void wf_store_free(wf_store *b)
{
    free(b->slots);
    free(b->tokens);
    free(b->buckets);
    *b = (wf_store){0};
}

void wf_store_list_free(wf_store *b)
{
    b->free = -1;
    for (int32_t i = (int32_t)b->n; i-- > 0;)
        if (b->slots[i].state == WF_STORED_FREE) b->slots[i].next = b->free, b->free = i;
}

/* ---- the hash table -------------------------------------------------------------------------------------------- */

static int32_t *bucket_of(const wf_store *b, const wf_key *key, uint32_t table)
{
    return &b->buckets[wf_random(wf_key_hash(key), table) % b->n_buckets];
}

int32_t wf_store_slot(const wf_store *b, const wf_key *key, uint32_t table)
{
    int32_t i = *bucket_of(b, key, table);
    while (i >= 0 && (b->slots[i].table != table || !wf_key_same(&b->slots[i].key, key))) i = b->slots[i].next;
    return i;
}

int32_t wf_store_find(const wf_store *b, const wf_key *key, const int32_t *tokens, uint32_t table)
{
    int32_t slot = wf_store_slot(b, key, table);
    if (slot < 0 || (b->slots[slot].state != WF_STORED_READY && b->slots[slot].state != WF_STORED_EXPECTED)) return -1;
    return memcmp(wf_store_tokens(b, slot), tokens, b->page_tokens * sizeof *tokens) ? -1 : slot;
}

static void fill_slot(wf_store *b, int32_t slot, const wf_stored_block *with, const int32_t *tokens)
{
    int32_t *bucket = bucket_of(b, &with->key, with->table);
    b->slots[slot] = *with;
    b->slots[slot].next = *bucket;
    *bucket = slot;
    b->n_used++;
    memcpy(wf_store_tokens(b, slot), tokens, b->page_tokens * sizeof *tokens);
}

/* ---- those that may be taken ----------------------------------------------------------------------------------- */

static void link_newest(wf_store *b, int32_t slot)
{
    wf_stored_block *x = &b->slots[slot];
    x->older = b->newest;
    x->newer = -1;
    *(b->newest < 0 ? &b->oldest : &b->slots[b->newest].newer) = slot;
    b->newest = slot;
}

static void unlink_slot(wf_store *b, int32_t slot)
{
    wf_stored_block *x = &b->slots[slot];
    *(x->older < 0 ? &b->oldest : &b->slots[x->older].newer) = x->newer;
    *(x->newer < 0 ? &b->newest : &b->slots[x->newer].older) = x->older;
}

static void free_slot(wf_store *b, int32_t slot)
{
    b->slots[slot].state = WF_STORED_FREE;
    b->slots[slot].next = b->free;
    b->free = slot;
    b->n_used--;
}

void wf_store_pin(wf_store *b, int32_t slot)
{
    if (!b->slots[slot].pins++ && b->slots[slot].state == WF_STORED_READY) unlink_slot(b, slot);
}

void wf_store_unpin(wf_store *b, int32_t slot)
{
    if (--b->slots[slot].pins) return;
    if (b->slots[slot].state == WF_STORED_READY) link_newest(b, slot);
    else free_slot(b, slot);
}

void wf_store_ready(wf_store *b, int32_t slot)
{
    if (b->slots[slot].state != WF_STORED_DEAD) b->slots[slot].state = WF_STORED_READY;
}

void wf_store_kill(wf_store *b, int32_t slot)
{
    wf_stored_block *x = &b->slots[slot];
    if (x->state == WF_STORED_DEAD) return;
    int32_t *at = bucket_of(b, &x->key, x->table);
    while (*at != slot) at = &b->slots[*at].next;
    *at = x->next;
    bool listed = x->state == WF_STORED_READY && !x->pins;
    x->state = WF_STORED_DEAD;
    if (!listed) return;
    unlink_slot(b, slot);
    free_slot(b, slot);
}

int32_t wf_store_take(wf_store *b, const wf_key *key, const int32_t *tokens, uint32_t table, uint8_t state)
{
    if (b->free < 0 && b->oldest >= 0) wf_store_kill(b, b->oldest), b->evicted++;
    int32_t slot = b->free;
    if (slot < 0) return -1;
    b->free = b->slots[slot].next;
    fill_slot(b, slot, &(wf_stored_block){.key = *key, .table = table, .pins = 1, .state = state}, tokens);
    return slot;
}

void wf_store_restore(wf_store *b, int32_t slot, const wf_key *key, const int32_t *tokens, uint32_t table)
{
    int32_t before = wf_store_slot(b, key, table);
    if (before >= 0) wf_store_kill(b, before);
    fill_slot(b, slot, &(wf_stored_block){.key = *key, .table = table, .state = WF_STORED_READY}, tokens);
    link_newest(b, slot);
}

void wf_store_touch(wf_store *b, const wf_key *key, uint32_t table)
{
    int32_t slot = wf_store_slot(b, key, table);
    if (slot < 0 || b->slots[slot].state != WF_STORED_READY || b->slots[slot].pins) return;
    unlink_slot(b, slot);
    link_newest(b, slot);
}
