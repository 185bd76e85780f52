/* tiers: blocks of KV below the device: in a pool of host memory, and in a file (disk.h). A page that fills is copied
 * down while later steps compute, and a prompt that begins alike gets it back instead of computing it again (NanoFlow,
 * section 4.2.2).
 *
 *   pages of the device  -- store -->  slots of the pool  -- write -->  slots of a file
 *                        <-- load ---                     <-- read ---
 *
 * A block is stored when it is seen for the second time, so that what nobody asks for again costs nothing. The pool is
 * taken at the start and never grows; who comes takes the slot of the block used least recently.
 *
 * No page may ever be wrong:
 * - Copies run behind all steps that were submitted before: a store behind what computes the page, a load behind what
 *   may still read what was there.
 * - What a copy reads or writes stays in place until it has ended: it holds a reference to each page and a pin on each
 *   slot, whatever becomes of sequences meanwhile.
 * - A slot is found once its copy has ended as a whole, by its key and its tokens (key.h). A copy that failed, or that
 *   the device broke off, leaves nothing behind. A load is complete or counts for nothing.
 *
 * Copies wait where there is no room for them; nobody waits for copies but a sequence for its own load, which it may
 * give up. The engine's thread is the only user.
 */
#ifndef WF_TIERS_H
#define WF_TIERS_H

#include "dev/dev.h"
#include "kv/disk.h"
#include "kv/move.h"
#include "kv/prefix.h"

typedef struct wf_tier_block { /* of a load */
    int32_t page, slot; /* slot: its place (wf_tiers_find) */
    bool begun;
} wf_tier_block;
enum wf_tier_progress { WF_LOAD_RUNS, WF_LOAD_DONE, WF_LOAD_FAILED };
typedef struct wf_tier_load {
    struct wf_tier_load *next;
    wf_tier_block *blocks;
    uint32_t n, n_left, n_in_flight; /* n_left: not copied yet */
    uint64_t until_ns;               /* then it is given up */
    bool failed, wanted;             /* wanted: a sequence waits for it */
} wf_tier_load;

typedef struct wf_tier_move {
    bool runs, out, behind; /* behind: see wf_tiers_begin */
    uint32_t ticket, n;
    uint64_t began_ns;
    wf_tier_load *load;
    int32_t page[WF_MOVE_PAGES], slot[WF_MOVE_PAGES];
} wf_tier_move;

typedef struct wf_tier_offer {
    wf_key key;
    int32_t page;
    uint32_t table;
} wf_tier_offer;

typedef struct wf_tier_unwritten { /* a block of the pool that is to go to the file */
    wf_key key;
    int32_t slot;
    uint32_t table;
} wf_tier_unwritten;

typedef struct wf_tiers_params {
    uint64_t host_bytes, page_bytes; /* of the pool, at most; of a page */
    uint32_t page_tokens;
    bool passing;     /* the pool is there for the file alone: blocks wait until they can go on */
    bool always;      /* store a block when it is seen for the first time */
    bool load_always; /* load also where computing is expected to be faster, and however long it takes (tests) */
    wf_disk_params disk; /* path NULL: none */
} wf_tiers_params;

typedef struct wf_tiers {
    wf_tiers_params p;
    wf_mover mover;
    wf_dev *dev;
    wf_pages *pages;   /* of the scheduler, as prefix */
    wf_prefix *prefix;
    wf_host *slabs;    /* of the pool: slots_per_slab slots each */
    uint32_t n_slabs, slots_per_slab;
    wf_store pool;
    wf_disk *disk;     /* or NULL */
    wf_tier_unwritten *unwritten; /* a ring: as many as the pool has slots */
    uint32_t first_unwritten, n_unwritten;
    uint64_t n_unwritten_lost; /* that made way before there was time to write them */
    uint64_t *seen;    /* [n_seen, 8] of keys seen before: later ones take the place of the oldest of their set */
    uint32_t n_seen;
    wf_tier_offer *offers; /* a ring: pages to be stored */
    uint32_t cap_offers, first_offer, n_offers;
    wf_tier_move *moves;   /* [WF_MOVES] */
    wf_tier_load *loads;
    uint32_t n_moves;
    bool behind; /* of moves that begin now */
    uint64_t now_ns, end_ns; /* end_ns: see wf_tiers_end; 0: it goes on */
    /* Of a block to the device, behind no step, and from the file, lately; of a token; 0: unknown. */
    double load_ns, read_ns, compute_ns;
    uint64_t loaded_ns;    /* when the last load that ended was seen */
    uint32_t n_reading;    /* blocks that are read from the file, */
    uint64_t read_seen_ns; /* and since when nothing has come */
    struct weft_kv_tier_stats stats; /* of the pool; copies alone */
} wf_tiers;

/* Takes the pool. n_pages: of the device. WEFT_ERR_ARG: it has no room for a page. */
weft_status wf_tiers_open(wf_dev *dev, const wf_tiers_params *p, const wf_mover *mover, uint32_t n_pages,
                          wf_tiers *out);
/* The pages below which it is; again where the scheduler begins anew, with nothing in flight. */
void wf_tiers_attach(wf_tiers *t, wf_pages *pages, wf_prefix *prefix);
/* With no copy in flight, or with a device that is lost. A disk that hangs is left to itself after a moment. */
void wf_tiers_close(wf_tiers *t);
struct weft_kv_tier_stats wf_tiers_stats(const wf_tiers *t, enum weft_kv_tier tier); /* without queries and hits */
/* It will be closed: from that time on nothing begins, and it is busy with copies only. */
void wf_tiers_end(wf_tiers *t, uint64_t at_ns);
/* Learns which copies have ended: before a step is formed, and now and then while none runs. */
void wf_tiers_poll(wf_tiers *t, uint64_t now_ns);
/* Begins those for which there is room: after the step that was formed last has been submitted, for copies run behind
 * that, which may read what they overwrite. behind: it has not ended, so that how long they, and those in flight, take
 * says nothing of copying. */
void wf_tiers_begin(wf_tiers *t, bool behind);
bool wf_tiers_busy(const wf_tiers *t); /* copies are in flight, or are to begin */

/* ---- for the scheduler --------------------------------------------------------------------------------------- */

/* The place that has, or soon will have, a block in a table: a slot of the pool, or of the file; -1: none. */
int32_t wf_tiers_find(const wf_tiers *t, const wf_key *key, const int32_t *tokens, uint32_t table);
/* A sequence needs or has computed this block. true: it is to be stored, its page of each table (wf_tiers_offer). */
bool wf_tiers_sighted(wf_tiers *t, const wf_key *key);
/* This page, which is cached, holds that block in that table: it will be stored unless it is below already. */
void wf_tiers_offer(wf_tiers *t, const wf_key *key, int32_t page, uint32_t table);
/* The block is as if just used, where it is in the pool. */
void wf_tiers_touch(wf_tiers *t, const wf_key *key, uint32_t table);
/* The block may be wrong: it is nowhere below from now on. only_coming: as far as it is still being stored. */
void wf_tiers_forget(wf_tiers *t, const wf_key *key, uint32_t table, bool only_coming);
bool wf_tiers_is_on_disk(const wf_tiers *t, int32_t place);
/* Is loading so many blocks, some of them from the file, behind the loads that wait, expected to be faster than
 * computing so many tokens? */
bool wf_tiers_worth(wf_tiers *t, uint32_t blocks, uint32_t on_disk, uint32_t tokens);
/* Loads from places, which it holds from now on, to pages, which it holds while they are copied; copies the list.
 * tokens: that need not be computed then. NULL: no memory. */
wf_tier_load *wf_tiers_load(wf_tiers *t, const wf_tier_block *blocks, uint32_t n, uint32_t tokens);
enum wf_tier_progress wf_tiers_progress(const wf_tiers *t, const wf_tier_load *l);
void wf_tiers_leave(wf_tiers *t, wf_tier_load *l); /* nobody waits for it any more; l is gone */

#endif
