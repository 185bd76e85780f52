/* table: the pages of a sequence, from the prefix that it finds to its end. The scheduler says when; what then becomes
 * of pages is decided here: which are found, on the device or below it, which are held, passed by windows, cached,
 * stored, and moved to the host and back.
 *
 * A sequence has a page table for each set of layers of similar windows (layout.h), and a page in each for some tokens.
 * Pages that windows have passed are released as it grows, and stay cached as those of ended sequences do. A prefix is
 * found as far as every table has the pages that its windows reach from there.
 *
 * Not thread-safe: the engine's thread is the only user. */
#ifndef WF_KV_TABLE_H
#define WF_KV_TABLE_H

#include "kv/layout.h"
#include "kv/limits.h"
#include "kv/swap.h"
#include "kv/tiers.h"

typedef struct wf_kv_params {
    uint32_t page_tokens;
    uint64_t shuffle_pages; /* see wf_pages_init */
    bool no_prefix;         /* no prefix caching */
    /* no layer of a page table attends to more than these; window 0: some attend to all */
    wf_kv_window tables[WF_MAX_KV_TABLES];
} wf_kv_params;

/* All pages of an engine. */
typedef struct wf_kv {
    const wf_kv_params *p;
    wf_pages pages;
    wf_prefix prefix;
    wf_tiers *tiers; /* NULL: none; see wf_kv_use_tiers */
    wf_swaps *swaps; /* the caller sets it. NULL: preempted sequences are computed again */
} wf_kv;

/* Pages of a table from `kept` to `passed` have been passed by windows: released, and page 0 stands in their place,
 * which nobody reads there. */
typedef struct wf_passed {
    uint32_t kept, passed;
} wf_passed;

/* Of a sequence, whose tokens are its owner's. */
typedef struct wf_kv_seq {
    wf_key root;         /* what its first block follows: sequences of equal roots share pages */
    bool private;        /* it neither finds pages in the prefix cache nor puts its own there */
    int32_t *pages;      /* [n_tables, cap_pages] */
    uint32_t n_pages, cap_pages, n_tables; /* n_pages: of each table */
    wf_passed tables[WF_MAX_KV_TABLES];
    wf_key *keys;        /* [cap_pages], of its first n_keys blocks */
    uint32_t n_keys;
    uint32_t n_registered; /* leading pages of each table that are in the prefix cache */
    uint32_t n_sighted;  /* blocks that the tiers have been told of: once, however often they are computed */
    uint32_t n_found;    /* blocks that were on the device when its load began */
    wf_tier_load *load;  /* that it waits for: of some of its pages, none of which counts as computed; NULL: none */
    bool swapped_out;    /* preempted, with its K and V on the host */
    bool came_back;      /* from there, by a move that may be broken off with the step behind it */
    wf_swap_memory host; /* where; it stays until the sequence computes more */
} wf_kv_seq;

static inline int32_t *wf_kv_table_of(const wf_kv_seq *q, uint32_t table)
{
    return q->pages + (size_t)table * q->cap_pages;
}

/* Pages that q holds of its first n of each table. */
static inline uint32_t wf_kv_held(const wf_kv_seq *q, uint32_t n)
{
    uint32_t held = 0;
    for (uint32_t t = 0; t < q->n_tables; t++) held += q->tables[t].kept + n - q->tables[t].passed;
    return held;
}

/* p outlives it, and neither moves. */
weft_status wf_kv_init(wf_kv *k, const wf_limits *l, const wf_kv_params *p);
void wf_kv_free(wf_kv *k);
uint64_t wf_kv_host_bytes(const wf_limits *l, uint32_t page_tokens); /* of host memory for tables of pages */
/* From now on; they outlive it, or the next call. NULL: none. */
void wf_kv_use_tiers(wf_kv *k, wf_tiers *tiers);
uint32_t wf_kv_pages_for(const wf_kv *k, uint32_t tokens); /* of one table */
/* Leading pages of a table that the windows of the next token have passed, and of these those that they never pass. */
uint32_t wf_kv_passed(const wf_kv *k, uint32_t table, uint32_t n_computed);
uint32_t wf_kv_kept(const wf_kv *k, uint32_t table);

bool wf_kv_open(wf_kv_seq *q, uint32_t seq_pages); /* room for lists, once; false: no memory */
void wf_kv_close(wf_kv *k, wf_kv_seq *q);          /* releases all that q has */
/* Blocks of a prefix: those on the device alone, and with those below. */
typedef struct wf_kv_known {
    uint32_t device, all;
} wf_kv_known;
/* The longest known prefix of n tokens, at least one of which is left; q has nothing yet. below: also what has to be
 * loaded. */
wf_kv_known wf_kv_find(const wf_kv *k, wf_kv_seq *q, const int32_t *tokens, uint32_t n, bool below);
/* Takes over the first n blocks found, all on the device. */
void wf_kv_take(wf_kv *k, wf_kv_seq *q, const int32_t *tokens, uint32_t n);
/* Takes over all, and loads those below to pages below `limit`, if that is worth it. late: tokens that are computed
 * before it begins, at most. false: nothing has happened, but the lists of wf_kv_find are gone. */
bool wf_kv_begin_load(wf_kv *k, wf_kv_seq *q, wf_kv_known n, uint32_t limit, uint32_t late);
void wf_kv_leave_load(wf_kv *k, wf_kv_seq *q); /* if it waits for one */
/* So many tokens are computed: puts pages that are full into the prefix cache. */
void wf_kv_publish(wf_kv *k, wf_kv_seq *q, const int32_t *tokens, uint32_t n);
/* Releases the pages that the windows have passed. Each of them has been offered to the prefix cache. */
void wf_kv_release_passed(wf_kv *k, wf_kv_seq *q, uint32_t n_computed);
void wf_kv_release(wf_kv *k, wf_kv_seq *q); /* those that q holds */
void wf_kv_restart(wf_kv_seq *q);           /* K and V of q are gone: it begins anew */
/* Moves the first n pages of each table to the host; they are free at once, as whatever overwrites them waits for their
 * move. One that has computed nothing since it came back is still there. Pages that windows have passed were cached
 * before. false: it begins anew. */
bool wf_kv_swap_out(wf_kv *k, wf_kv_seq *q, uint32_t n);
/* The way back, to pages below `limit`. false: there are none; or it begins anew, and swapped_out no longer holds. */
bool wf_kv_swap_in(wf_kv *k, wf_kv_seq *q, uint32_t n, uint32_t limit);
/* The K and V of q may be wrong, or may never be computed (only_coming), from position `from` on: no page of these
 * stays in the prefix cache, or all who begin alike would fail, too; nor below, where what was stored before stays if
 * they were only never computed. */
void wf_kv_forget(wf_kv *k, wf_kv_seq *q, const int32_t *tokens, uint32_t n, uint32_t from, bool only_coming);
void wf_kv_touch(wf_kv *k, wf_kv_seq *q, const int32_t *tokens); /* its blocks below are as if just used */

#endif
