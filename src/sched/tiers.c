/* tiers: where the blocks of a prompt are found, on the device or below it (kv/tiers.h), and sequences that wait for
 * theirs. See sched.h. */
#include "sched/internal.h"

#include <stdlib.h>
#include <string.h>

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
static bool has_reached_pages(const wf_sched *s, uint32_t table, const mates *m, uint32_t n)
{
    uint32_t passed = wf_sched_passed(s, table, n * s->p.page_tokens), kept = wf_sched_kept(s, table);
    return m->last >= n - passed && (m->last >= n || m->first >= WF_MIN(kept, n));
}

/* Blocks of a prefix: those on the device alone, and with those below. */
typedef struct known {
    uint32_t device, all;
} known;

/* A block's page in a table, or its place below; -1: neither. */
static int32_t find_block(const wf_sched *s, wf_seq *q, uint32_t i, uint32_t table, bool below)
{
    const int32_t *tokens = q->tokens + (size_t)i * s->p.page_tokens;
    const wf_key *key = wf_sched_key(s, q, i);
    int32_t first = table ? q->pages[i] : -1,
            page = !table ? wf_prefix_find(&s->prefix, key, tokens)
                          : first >= 0 ? wf_prefix_mate(&s->prefix, first, table) : -1,
            slot = page < 0 && below ? wf_tiers_find(s->tiers, key, tokens, table) : -1;
    return slot >= 0 ? BELOW(slot) : page;
}

/* Lists the pages of the longest known prefix of q, up to the last block after which nothing is missing. At least one
 * token is left to compute, because its logits are needed. */
static known find_prefix(const wf_sched *s, wf_seq *q, bool below)
{
    uint32_t most = (q->n_tokens - 1) / s->p.page_tokens;
    mates device[WF_MAX_KV_TABLES] = {{0}}, all[WF_MAX_KV_TABLES] = {{0}};
    known n = {0};
    bool on_device = true;
    for (uint32_t i = 0; i < most; i++) {
        bool device_has = true, all_have = true;
        for (uint32_t t = 0; t < q->n_tables; t++) {
            int32_t page = wf_seq_table(q, t)[i] = find_block(s, q, i, t, below);
            if (!t && page == -1) return n;
            if (!t) on_device = on_device && page >= 0;
            count_mate(&device[t], i, page >= 0);
            count_mate(&all[t], i, page != -1);
            if (!t) continue;
            device_has = device_has && has_reached_pages(s, t, &device[t], i + 1);
            all_have = all_have && has_reached_pages(s, t, &all[t], i + 1);
        }
        if (on_device && device_has) n.device = i + 1;
        if (all_have) n.all = i + 1;
    }
    return n;
}

/* ---- taking it over ------------------------------------------------------------------------------------------- */

/* Blocks of a prefix of n that q's next token reaches in this table. */
static bool is_reached(const wf_sched *s, uint32_t table, uint32_t n, uint32_t i)
{
    return i < wf_sched_kept(s, table) || i >= wf_sched_passed(s, table, n * s->p.page_tokens);
}

/* Refers to the pages of a prefix of n blocks that are on the device. */
static void ref_table(wf_sched *s, wf_seq *q, uint32_t table, uint32_t n)
{
    uint32_t passed = wf_sched_passed(s, table, n * s->p.page_tokens), kept = wf_sched_kept(s, table);
    int32_t *pages = wf_seq_table(q, table);
    for (uint32_t i = 0; i < n; i++) {
        if (!is_reached(s, table, n, i)) pages[i] = 0;
        else if (pages[i] >= 0) wf_pages_ref(&s->pages, pages[i]);
    }
    if (passed > kept) q->tables[table] = (wf_passed){kept, passed};
}

static uint32_t pages_below(const wf_sched *s, const wf_seq *q, uint32_t n, uint32_t *on_disk)
{
    uint32_t count = 0;
    *on_disk = 0;
    for (uint32_t t = 0; t < q->n_tables; t++)
        for (uint32_t i = 0; i < n; i++) {
            int32_t page = wf_seq_table(q, t)[i];
            bool below = page < 0 && is_reached(s, t, n, i);
            count += below;
            *on_disk += below && wf_tiers_is_on_disk(s->tiers, BELOW(page));
        }
    return count;
}

/* Pages in the place of slots; false: there is no memory. */
static bool begin_load(wf_sched *s, wf_seq *q, uint32_t n, uint32_t count, uint32_t tokens)
{
    uint32_t limit = wf_limits_max_pages(&s->limits, s->n_running + 1), at = 0;
    wf_tier_block *blocks = wf_calloc(count, sizeof *blocks);
    int32_t *pages = wf_calloc(count, sizeof *pages);
    bool ok = blocks && pages && wf_pages_alloc(&s->pages, count, limit, pages);
    for (uint32_t t = 0; ok && t < q->n_tables; t++)
        for (uint32_t i = 0; i < n; i++)
            if (wf_seq_table(q, t)[i] < 0)
                blocks[at] = (wf_tier_block){pages[at], BELOW(wf_seq_table(q, t)[i]), false}, at++;
    /* it begins behind two steps at most */
    if (ok && !(q->load = wf_tiers_load(s->tiers, blocks, count, tokens + 2 * s->limits.step_tokens)))
        wf_pages_release(&s->pages, pages, count), ok = false;
    at = 0;
    for (uint32_t t = 0; ok && t < q->n_tables; t++)
        for (uint32_t i = 0; i < n; i++)
            if (wf_seq_table(q, t)[i] < 0) wf_seq_table(q, t)[i] = pages[at++];
    free(blocks);
    free(pages);
    return ok;
}

/* Takes the references of ref_table back. */
static void unref_prefix(wf_sched *s, wf_seq *q, uint32_t n)
{
    for (uint32_t t = 0; t < q->n_tables; t++)
        for (uint32_t i = n; i-- > 0;)
            if (is_reached(s, t, n, i) && wf_seq_table(q, t)[i] >= 0)
                wf_pages_release(&s->pages, &wf_seq_table(q, t)[i], 1);
    memset(q->tables, 0, sizeof q->tables);
}

static bool wait_for_load(wf_sched *s, wf_seq *q, known n)
{
    uint32_t on_disk, count = pages_below(s, q, n.all, &on_disk), tokens = (n.all - n.device) * s->p.page_tokens;
    if (!wf_tiers_worth(s->tiers, count, on_disk, tokens)) return false;
    for (uint32_t t = 0; t < q->n_tables; t++) ref_table(s, q, t, n.all);
    if (!begin_load(s, q, n.all, count, tokens)) return unref_prefix(s, q, n.all), false;
    q->n_pages = n.all;
    return true;
}

/* Of a prompt's tokens, those that were found: once for each sequence, when it is known. */
static void count_hits(wf_sched *s, wf_seq *q, uint32_t device)
{
    if (q->counted || wf_seq_length(q) != q->n_prompt) return;
    q->counted = true;
    q->n_cached = q->n_computed;
    s->prefix_queries += q->n_prompt;
    s->prefix_hits += device;
    s->tier_queries += s->tiers ? q->n_prompt - device : 0;
    s->tier_hits += q->n_computed - device;
}

/* From the end, as in touch_blocks. */
static void offer_prefix(wf_sched *s, wf_seq *q)
{
    uint32_t first = q->n_sighted;
    for (uint32_t i = q->n_registered; i-- > first; q->n_sighted = first) wf_sched_offer(s, q, i);
    q->n_sighted = WF_MAX(first, q->n_registered);
}

void wf_sched_find_prefix(wf_sched *s, wf_seq *q, bool below)
{
    if (s->p.no_prefix || q->private || q->all_logits || q->first_logits) {
        count_hits(s, q, 0);
        return;
    }
    known n = find_prefix(s, q, below && s->tiers);
    q->n_found = n.device;
    if (n.all > n.device && wait_for_load(s, q, n)) return;
    /* what was asked for is no longer known from the lists, which have slots */
    if (n.all > n.device) n = find_prefix(s, q, false);
    for (uint32_t t = 0; t < q->n_tables; t++) ref_table(s, q, t, n.device);
    q->n_registered = q->n_pages = n.device;
    q->n_computed = n.device * s->p.page_tokens;
    count_hits(s, q, q->n_computed);
    offer_prefix(s, q);
    wf_sched_release_passed(s, q);
}

void wf_sched_offer(wf_sched *s, wf_seq *q, uint32_t i)
{
    const wf_key *key = s->tiers && i >= q->n_sighted ? wf_sched_key(s, q, i) : NULL;
    q->n_sighted = WF_MAX(q->n_sighted, i + 1);
    if (!key || !wf_tiers_sighted(s->tiers, key)) return;
    int32_t first = wf_prefix_find(&s->prefix, key, q->tokens + (size_t)i * s->p.page_tokens);
    for (uint32_t t = 0; first >= 0 && t < q->n_tables; t++) {
        int32_t page = t ? wf_prefix_mate(&s->prefix, first, t) : first;
        if (page >= 0) wf_tiers_offer(s->tiers, key, page, t);
    }
}

/* ---- sequences that wait --------------------------------------------------------------------------------------- */

void wf_sched_leave_load(wf_sched *s, wf_seq *q)
{
    if (q->load) wf_tiers_leave(s->tiers, q->load);
    q->load = NULL;
}

static void end_load(wf_sched *s, wf_seq *q, bool ok)
{
    wf_sched_leave_load(s, q);
    if (!ok) {
        wf_sched_release(s, q);
        wf_sched_restart(q);
        wf_sched_find_prefix(s, q, false);
    } else {
        q->n_computed = q->n_pages * s->p.page_tokens;
        count_hits(s, q, q->n_found * s->p.page_tokens);
    }
    wf_fair_found(s, q);
}

void wf_sched_complete_loads(wf_sched *s)
{
    for (wf_seq *q = s->running; q; q = q->next) {
        enum wf_tier_progress progress = q->load ? wf_tiers_progress(s->tiers, q->load) : WF_LOAD_RUNS;
        if (progress != WF_LOAD_RUNS) end_load(s, q, progress == WF_LOAD_DONE);
    }
}
