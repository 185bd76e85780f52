/* tiers: see tiers.h. From top to bottom: the pool and its index; what is seen; loads; copies. */
#include "kv/tiers.h"

#include <stdlib.h>
#include <string.h>

#define SLAB      (1ull << 30) /* bytes of a slab at most: drivers may refuse larger ones */
#define WAYS      8 /* of a set of keys that were seen */
#define GIVE_UP_NS 1000000000ull /* a load that takes so much longer than computing is given up */
#define CLOSE_NS  1000000000ull /* that a disk is waited for */

/* ---- the pool ------------------------------------------------------------------------------------------------ */

static weft_status take_pool(wf_tiers *t)
{
    uint64_t page = t->p.page_bytes, slab = WF_MIN(SLAB, t->dev->max_alloc),
             n = WF_MIN(t->p.host_bytes / page, (uint64_t)WF_STORE_MOST);
    if (!n)
        return wf_fail(WEFT_ERR_ARG, "a host tier of %s holds no page of the KV cache, which takes %s: enlarge it",
                       WF_HUMAN(t->p.host_bytes, true), WF_HUMAN(page, true));
    t->slots_per_slab = (uint32_t)WF_MIN(WF_MAX(slab / page, 1u), n);
    WF_TRY(wf_store_init(&t->pool, (uint32_t)n, t->p.page_tokens));
    t->slabs = wf_calloc((n + t->slots_per_slab - 1) / t->slots_per_slab, sizeof *t->slabs);
    if (!t->slabs) return WEFT_ERR_NOMEM;
    for (uint32_t at = 0; at < n; at += t->slots_per_slab) {
        uint64_t bytes = WF_MIN(t->slots_per_slab, n - at) * page;
        weft_status s = wf_host_create(t->dev, bytes, &t->slabs[t->n_slabs]);
        if (s != WEFT_OK)
            return wf_fail_context(s, "host tier of the KV cache: %s of %s", WF_HUMAN(at * page, true),
                                   WF_HUMAN(t->p.host_bytes, true));
        t->n_slabs++;
    }
    return WEFT_OK;
}

static void *slot_data(const wf_tiers *t, int32_t slot)
{
    uint32_t i = (uint32_t)slot;
    return (uint8_t *)t->slabs[i / t->slots_per_slab].data + i % t->slots_per_slab * t->p.page_bytes;
}

weft_status wf_tiers_open(wf_dev *dev, const wf_tiers_params *p, const wf_mover *mover, uint32_t n_pages,
                          wf_tiers *t)
{
    *t = (wf_tiers){.p = *p, .mover = *mover, .dev = dev, .cap_offers = n_pages};
    weft_status s = take_pool(t);
    if (s == WEFT_OK && p->disk.path) s = wf_disk_open(&p->disk, &t->disk);
    if (t->disk && !(t->unwritten = wf_calloc(t->pool.n, sizeof *t->unwritten))) s = WEFT_ERR_NOMEM;
    t->n_seen = (t->pool.n + n_pages) / 2 + 128;
    if (s == WEFT_OK) {
        t->seen = wf_calloc(t->n_seen, WAYS * sizeof *t->seen);
        t->offers = wf_calloc(t->cap_offers, sizeof *t->offers);
        t->moves = wf_calloc(WF_MOVES, sizeof *t->moves);
        if (!t->seen || !t->offers || !t->moves) s = WEFT_ERR_NOMEM;
    }
    if (s != WEFT_OK) wf_tiers_close(t);
    return s;
}

void wf_tiers_attach(wf_tiers *t, wf_pages *pages, wf_prefix *prefix)
{
    t->pages = pages;
    t->prefix = prefix;
    t->n_offers = 0;
}

static void free_load(wf_tier_load *l)
{
    free(l->blocks);
    free(l);
}

void wf_tiers_close(wf_tiers *t)
{
    wf_disk_close(t->disk, CLOSE_NS); /* which uses the pool */
    for (wf_tier_load *l = t->loads, *next; l; l = next) next = l->next, free_load(l);
    for (uint32_t i = 0; i < t->n_slabs; i++) wf_host_destroy(t->dev, &t->slabs[i]);
    free(t->slabs);
    wf_store_free(&t->pool);
    free(t->unwritten);
    free(t->seen);
    free(t->offers);
    free(t->moves);
    *t = (wf_tiers){0};
}

struct weft_kv_tier_stats wf_tiers_stats(const wf_tiers *t, enum weft_kv_tier tier)
{
    struct weft_kv_tier_stats s = {0};
    if (tier == WEFT_KV_TIER_DISK) {
        if (t->disk) s = wf_disk_stats(t->disk), s.dropped += t->n_unwritten_lost;
        return s;
    }
    s = t->stats;
    s.bytes = t->pool.n * t->p.page_bytes;
    s.used_bytes = t->pool.n_used * t->p.page_bytes;
    s.evicted = t->pool.evicted;
    return s;
}

/* ---- blocks: in the pool, else in the file ------------------------------------------------------------------ */

/* A place in the file, beside those in the pool. */
#define ON_DISK(t, slot) ((int32_t)(t)->pool.n + (slot))

int32_t wf_tiers_find(const wf_tiers *t, const wf_key *key, const int32_t *tokens, uint32_t table)
{
    int32_t slot = wf_store_find(&t->pool, key, tokens, table), below = -1;
    if (slot < 0 && t->disk && !wf_disk_pauses(t->disk))
        below = wf_store_find(wf_disk_store(t->disk), key, tokens, table);
    return below >= 0 ? ON_DISK(t, below) : slot;
}

bool wf_tiers_is_on_disk(const wf_tiers *t, int32_t place)
{
    return place >= ON_DISK(t, 0);
}

void wf_tiers_touch(wf_tiers *t, const wf_key *key, uint32_t table)
{
    wf_store_touch(&t->pool, key, table);
    if (t->disk) wf_store_touch(wf_disk_store(t->disk), key, table);
}

void wf_tiers_forget(wf_tiers *t, const wf_key *key, uint32_t table, bool only_coming)
{
    int32_t slot = wf_store_slot(&t->pool, key, table);
    if (slot >= 0 && (!only_coming || t->pool.slots[slot].state == WF_STORED_COMING)) wf_store_kill(&t->pool, slot);
    if (t->disk && !only_coming) wf_disk_forget(t->disk, key, table); /* what goes there has been stored as a whole */
}

/* ---- what is seen -------------------------------------------------------------------------------------------- */

bool wf_tiers_sighted(wf_tiers *t, const wf_key *key)
{
    uint64_t *set = &t->seen[wf_key_hash(key) % t->n_seen * WAYS], mark = key->word[1] | 1; /* 0: nothing */
    uint32_t i = 0;
    while (i < WAYS - 1 && set[i] != mark) i++;
    bool before = set[i] == mark;
    memmove(set + 1, set, i * sizeof *set);
    *set = mark;
    return before || t->p.always;
}

void wf_tiers_offer(wf_tiers *t, const wf_key *key, int32_t page, uint32_t table)
{
    if (wf_store_slot(&t->pool, key, table) >= 0) {
        wf_tiers_touch(t, key, table);
        return;
    }
    if (t->n_offers == t->cap_offers) {
        t->stats.dropped++;
        return;
    }
    t->offers[(t->first_offer + t->n_offers++) % t->cap_offers] = (wf_tier_offer){*key, page, table};
}

/* ---- loads --------------------------------------------------------------------------------------------------- */

/* Blocks of a load that are in the file alone. */
static uint32_t count_unread(const wf_tiers *t, const wf_tier_load *l)
{
    uint32_t n = 0;
    for (const wf_tier_block *b = l->blocks; b < l->blocks + l->n; b++)
        n += !b->begun && wf_tiers_is_on_disk(t, b->slot);
    return n;
}

bool wf_tiers_worth(wf_tiers *t, uint32_t blocks, uint32_t on_disk, uint32_t tokens)
{
    uint64_t still_ns = t->n_reading ? t->now_ns - t->read_seen_ns : 0; /* be it that the disk gives nothing at all */
    double read_ns = WF_MAX(t->read_ns, (double)still_ns) / WF_DISK_THREADS,
           own_ns = blocks * t->load_ns + on_disk * read_ns, compute_ns = tokens * t->compute_ns;
    uint32_t copies = 0, reads = t->n_reading; /* that are before it */
    for (const wf_tier_load *l = t->loads; l; l = l->next)
        if (l->wanted) copies += l->n_left, reads += count_unread(t, l);
    double queue_ns = copies * t->load_ns + (on_disk ? reads * read_ns : 0);
    if (t->p.load_always || !(t->compute_ns > 0) || own_ns + queue_ns <= compute_ns) return true;
    if (own_ns > compute_ns) t->load_ns *= 0.98, t->read_ns *= 0.98; /* or one slow load would be the last */
    return false;
}

static void pin_place(wf_tiers *t, int32_t place)
{
    if (wf_tiers_is_on_disk(t, place)) wf_store_pin(wf_disk_store(t->disk), place - ON_DISK(t, 0));
    else wf_store_pin(&t->pool, place);
}

static void unpin_place(wf_tiers *t, int32_t place)
{
    if (wf_tiers_is_on_disk(t, place)) wf_store_unpin(wf_disk_store(t->disk), place - ON_DISK(t, 0));
    else wf_store_unpin(&t->pool, place);
}

wf_tier_load *wf_tiers_load(wf_tiers *t, const wf_tier_block *blocks, uint32_t n, uint32_t tokens)
{
    wf_tier_load *l = wf_calloc(1, sizeof *l), **last = &t->loads;
    if (!l || !(l->blocks = wf_calloc(n, sizeof *l->blocks))) return free(l), NULL;
    memcpy(l->blocks, blocks, n * sizeof *blocks);
    l->n = l->n_left = n;
    l->wanted = true;
    l->until_ns = t->p.load_always ? UINT64_MAX : t->now_ns + (uint64_t)(2 * tokens * t->compute_ns) + GIVE_UP_NS;
    for (uint32_t i = 0; i < n; i++) pin_place(t, blocks[i].slot);
    while (*last) last = &(*last)->next;
    return *last = l;
}

enum wf_tier_progress wf_tiers_progress(const wf_tiers *t, const wf_tier_load *l)
{
    if (l->failed || (l->n_left && t->now_ns > l->until_ns)) return WF_LOAD_FAILED;
    return l->n_left ? WF_LOAD_RUNS : WF_LOAD_DONE;
}

/* Once nobody waits for it and nothing of it is in flight. */
static void end_load(wf_tiers *t, wf_tier_load *l)
{
    wf_tier_load **at = &t->loads;
    if (l->wanted || l->n_in_flight) return;
    while (*at != l) at = &(*at)->next;
    *at = l->next;
    free_load(l);
}

void wf_tiers_leave(wf_tiers *t, wf_tier_load *l)
{
    t->stats.failed += !l->failed && wf_tiers_progress(t, l) == WF_LOAD_FAILED; /* what failed has been counted */
    l->wanted = false;
    for (wf_tier_block *b = l->blocks; b < l->blocks + l->n; b++) {
        if (b->begun) continue;
        unpin_place(t, b->slot);
        b->begun = true;
    }
    end_load(t, l);
}

/* ---- copies -------------------------------------------------------------------------------------------------- */

static wf_tier_move *idle_move(wf_tiers *t, bool out)
{
    wf_tier_move *first = t->moves + (out ? 0 : WF_MOVES / 2);
    for (wf_tier_move *m = first; m < first + WF_MOVES / 2; m++)
        if (!m->runs) return *m = (wf_tier_move){.out = out}, m;
    return NULL;
}

/* What has come down goes on to the file, once that has a place for another write. It may make way before, unless the
 * pool is there for the file alone: then it has a pin. */
static void write_later(wf_tiers *t, int32_t slot)
{
    const wf_stored_block *x = &t->pool.slots[slot];
    if (!t->disk || x->state != WF_STORED_READY) return;
    if (t->n_unwritten == t->pool.n) t->first_unwritten = (t->first_unwritten + 1) % t->pool.n, t->n_unwritten_lost++;
    else t->n_unwritten++;
    if (t->p.passing) wf_store_pin(&t->pool, slot);
    t->unwritten[(t->first_unwritten + t->n_unwritten - 1) % t->pool.n] = (wf_tier_unwritten){x->key, slot, x->table};
}

/* One that has made way meanwhile, or was forgotten, is lost to the file. */
static void write_below(wf_tiers *t)
{
    while (t->n_unwritten && wf_disk_has_place(t->disk)) {
        const wf_tier_unwritten *u = &t->unwritten[t->first_unwritten];
        bool there = wf_store_slot(&t->pool, &u->key, u->table) == u->slot &&
            t->pool.slots[u->slot].state == WF_STORED_READY;
        t->first_unwritten = (t->first_unwritten + 1) % t->pool.n;
        t->n_unwritten--;
        t->n_unwritten_lost += !there;
        if (there && !t->p.passing) wf_store_pin(&t->pool, u->slot);
        bool writes = there && wf_disk_write(t->disk, &u->key, wf_store_tokens(&t->pool, u->slot), u->table,
                                             slot_data(t, u->slot), u->slot);
        if (!writes && (there || t->p.passing)) wf_store_unpin(&t->pool, u->slot);
    }
}

/* What the copy held is let go. ok: it was copied as a whole. */
static void finish_move(wf_tiers *t, wf_tier_move *m, bool ok)
{
    for (uint32_t i = 0; i < m->n; i++) {
        int32_t slot = m->slot[i];
        if (m->out && ok) wf_store_ready(&t->pool, slot), write_later(t, slot);
        else if (m->out) wf_store_kill(&t->pool, slot);
        wf_store_unpin(&t->pool, slot);
    }
    wf_pages_release(t->pages, m->page, m->n);
    t->stats.failed += !ok;
    if (ok) *(m->out ? &t->stats.stored_bytes : &t->stats.loaded_bytes) += m->n * t->p.page_bytes;
    wf_tier_load *l = m->load;
    m->runs = false;
    if (!l) return;
    l->n_in_flight--;
    l->failed |= !ok;
    l->n_left -= ok ? m->n : 0;
    end_load(t, l);
}

static void begin_move(wf_tiers *t, wf_tier_move *m)
{
    wf_page_copy list[WF_MOVE_PAGES];
    for (uint32_t i = 0; i < m->n; i++) {
        list[i] = (wf_page_copy){m->page[i], slot_data(t, m->slot[i])};
        wf_pages_ref(t->pages, m->page[i]);
    }
    m->began_ns = t->now_ns, m->behind = t->behind;
    if (m->load) m->load->n_in_flight++;
    m->runs = t->mover.begin(t->mover.user, m->out, list, m->n, &m->ticket) == WEFT_OK;
    if (m->runs) t->n_moves++;
    else finish_move(t, m, false);
}

static void learn(double *average, double now)
{
    *average += (now - *average) / (*average > 0 ? 8 : 1);
}

/* What reading a block takes, as seen lately, whether it was as it should be or not. */
static void learn_read(wf_tiers *t, uint64_t ns)
{
    t->n_reading--;
    t->read_seen_ns = t->now_ns;
    if (ns) learn(&t->read_ns, (double)ns);
}

/* What copying a block takes: of the loads that have ended since the look before, one behind the other. Those behind
 * steps wait for these, but so does computing, and nobody else waits for copies. */
static void learn_load(wf_tiers *t, uint64_t began_ns, uint32_t blocks)
{
    uint64_t from = WF_MAX(began_ns, t->loaded_ns);
    if (blocks && t->now_ns > from) learn(&t->load_ns, (double)(t->now_ns - from) / blocks);
}

static void poll_disk(wf_tiers *t)
{
    for (wf_disk_end end; t->disk && wf_disk_done(t->disk, &end);) {
        if (!end.write) learn_read(t, end.ns);
        if (!end.write && end.ok) wf_store_ready(&t->pool, end.tag);
        else if (!end.write) wf_store_kill(&t->pool, end.tag);
        wf_store_unpin(&t->pool, end.tag);
    }
    write_below(t);
}

void wf_tiers_poll(wf_tiers *t, uint64_t now_ns)
{
    uint64_t first_ns = UINT64_MAX;
    uint32_t blocks = 0;
    bool loaded = false;
    t->now_ns = now_ns;
    for (wf_tier_move *m = t->moves; m < t->moves + WF_MOVES; m++) {
        enum wf_moved moved = m->runs ? t->mover.poll(t->mover.user, m->ticket) : WF_MOVING;
        if (moved == WF_MOVING) continue;
        uint64_t ns = t->now_ns - m->began_ns;
        bool whole = moved == WF_MOVED;
        *(m->out ? &t->stats.store_ns : &t->stats.load_ns) += ns;
        loaded |= !m->out;
        if (!m->out && whole && !m->behind) first_ns = WF_MIN(first_ns, m->began_ns), blocks += m->n;
        t->n_moves--;
        finish_move(t, m, whole);
    }
    learn_load(t, first_ns, blocks);
    if (loaded) t->loaded_ns = t->now_ns;
    poll_disk(t);
}

/* A block in the file gets a slot of the pool; false: later. */
static bool fetch_block(wf_tiers *t, wf_tier_block *b)
{
    wf_store *disk = wf_disk_store(t->disk);
    int32_t below = b->slot - ON_DISK(t, 0);
    const wf_stored_block *x = &disk->slots[below];
    const int32_t *tokens = wf_store_tokens(disk, below);
    int32_t slot = wf_store_find(&t->pool, &x->key, tokens, x->table); /* another load has had it read */
    if (slot < 0 && wf_store_slot(&t->pool, &x->key, x->table) >= 0) return false; /* it is being stored anew */
    if (slot < 0) {
        slot = wf_store_take(&t->pool, &x->key, tokens, x->table, WF_STORED_EXPECTED);
        if (slot < 0) return false;
        if (!wf_disk_read(t->disk, below, slot_data(t, slot), slot)) {
            wf_store_kill(&t->pool, slot), wf_store_unpin(&t->pool, slot);
            return false;
        }
        if (!t->n_reading++) t->read_seen_ns = t->now_ns;
    }
    wf_store_pin(&t->pool, slot);
    wf_store_unpin(disk, below);
    b->slot = slot;
    return true;
}

/* Is the block in the pool, as a whole? */
static bool has_come(wf_tiers *t, wf_tier_load *l, wf_tier_block *b)
{
    bool on_disk = wf_tiers_is_on_disk(t, b->slot);
    l->failed |= on_disk && (wf_disk_pauses(t->disk) || /* or forgotten: */
                             wf_disk_store(t->disk)->slots[b->slot - ON_DISK(t, 0)].state == WF_STORED_DEAD);
    if (on_disk && (l->failed || !fetch_block(t, b))) return false;
    l->failed |= t->pool.slots[b->slot].state == WF_STORED_DEAD; /* it was to be read, and could not be */
    return t->pool.slots[b->slot].state == WF_STORED_READY;
}

static void begin_loads(wf_tiers *t)
{
    wf_tier_move *m = NULL;
    for (wf_tier_load *l = t->loads, *next; l; l = next, m = NULL) {
        next = l->next;
        for (wf_tier_block *b = l->blocks; b < l->blocks + l->n && l->wanted && !l->failed; b++) {
            if (b->begun || !has_come(t, l, b)) continue;
            if (!m && !(m = idle_move(t, false))) return;
            b->begun = true;
            m->load = l;
            m->page[m->n] = b->page;
            m->slot[m->n++] = b->slot;
            if (m->n == WF_MOVE_PAGES) begin_move(t, m), m = NULL;
        }
        if (m) begin_move(t, m);
    }
}

/* An offer is taken if its page still holds that block, which may have had to make way before there was time for it. */
static bool take_offer(wf_tiers *t, wf_tier_move *m)
{
    const wf_tier_offer *o = &t->offers[t->first_offer];
    t->first_offer = (t->first_offer + 1) % t->cap_offers;
    t->n_offers--;
    const int32_t *tokens = wf_prefix_holds(t->prefix, o->page, &o->key, o->table);
    if (wf_store_slot(&t->pool, &o->key, o->table) >= 0) return false;
    int32_t slot = tokens ? wf_store_take(&t->pool, &o->key, tokens, o->table, WF_STORED_COMING) : -1;
    t->stats.dropped += slot < 0;
    if (slot < 0) return false;
    m->page[m->n] = o->page;
    m->slot[m->n++] = slot;
    return true;
}

/* Do stores wait for the file? coming: blocks of copies in flight. */
static bool is_behind(const wf_tiers *t, uint32_t coming)
{
    return t->p.passing && !wf_disk_pauses(t->disk) && t->n_unwritten + coming > t->pool.n / 4;
}

/* A part of the device's pages at most: those that are copied cannot be given to others. */
static void begin_stores(wf_tiers *t)
{
    uint32_t most = WF_MAX(t->pages->guaranteed / 8, 1u), held = 0;
    for (const wf_tier_move *m = t->moves; m < t->moves + WF_MOVES / 2; m++) held += m->runs ? m->n : 0;
    for (wf_tier_move *m; t->n_offers && held < most && !is_behind(t, held) && (m = idle_move(t, true));) {
        while (t->n_offers && m->n < WF_MIN(most - held, (uint32_t)WF_MOVE_PAGES)) take_offer(t, m);
        held += m->n;
        if (m->n) begin_move(t, m);
    }
}

void wf_tiers_end(wf_tiers *t, uint64_t at_ns)
{
    if (!t->end_ns) t->end_ns = at_ns;
}

static bool is_over(const wf_tiers *t)
{
    return t->end_ns && t->now_ns >= t->end_ns;
}

void wf_tiers_begin(wf_tiers *t, bool behind)
{
    if (is_over(t)) return;
    t->behind = behind;
    for (wf_tier_move *m = t->moves; m < t->moves + WF_MOVES; m++) m->behind |= behind; /* or beside */
    begin_loads(t);
    begin_stores(t);
}

bool wf_tiers_busy(const wf_tiers *t)
{
    return t->n_moves || (!is_over(t) && (t->loads || t->n_offers || (t->disk && wf_disk_busy(t->disk))));
}
