/* sched_world: thousands of random requests through the scheduler, without a device. All invariants hold at each step.
 *
 * An array simulates the KV cache: each slot holds a hash of the tokens up to its own. Before a row is computed, all
 * slots that it attends to must hold the hashes of its own tokens. So a page that is lost, stale, allocated twice or
 * shared by mistake is found at once.
 *
 * In worlds with a unified pool, each step overwrites all slots that its activations cover.
 *
 * In unlucky worlds the host has often no memory for what the scheduler wants: a request may then have to compute again
 * what it had computed, but it ends as others do.
 *
 * In worlds with windows, only slots within them are compared, and no sequence holds more pages than its windows and a
 * step need. Sequences may have several page tables; what a slot holds then depends on the table.
 *
 * Worlds with tiers have a pool of host memory below, to which pages are copied and from which they come back, each at
 * some time between the begin of the copy and its end, and now and then wrongly, as a device that breaks off copies
 * says.
 *
 * Other worlds draft tokens, rightly or not: what rejected ones leave in slots is never attended to.
 *
 * Asynchronous worlds learn a step's tokens when the next step has been formed; until then the scheduler sees UNKNOWN
 * in their place. The host samples for some sequences: no step has a pending token of them, and one in flight has rows
 * for it. Behind such steps these worlds now and then wait. */
#ifndef SCHED_WORLD_H
#define SCHED_WORLD_H

#include "sched/sched.h"
#include "support/null_device.h"
#include "support/suite.h"
#include "support/wraps.h"

#define PAGE   4
#define LONGEST 64
#define UNKNOWN (-12345)
#define TORN    UINT64_MAX
#define MOST    32 /* sequences of a step, and rows of its logits */
#define TABLES  3

typedef struct sim {
    wf_seq q; /* first, so that it is found from its sequence */
    int32_t tokens[LONGEST + 1], truth[LONGEST + 1]; /* what the scheduler may see; what will have been there */
    bool computed[LONGEST + 1]; /* once at least, or found in the prefix cache */
    uint32_t want;
    int64_t began;
    struct sim *link; /* of all that have not ended */
} sim;

/* A step in flight: its tokens are not known yet. */
typedef struct sim_step {
    struct {
        sim *r; /* NULL: it has ended */
        bool chooses;
    } part[MOST];
    sim *chooser[MOST]; /* by row of the logits */
    int n;
    bool sync, host_rows; /* it is waited for; it has logits for the host */
} sim_step;

typedef struct world {
    wf_sched s;
    wf_batch b;
    bool ahead;
    sim_step now, before;
    uint64_t *kv; /* [pages * PAGE] */
    int *row_at;  /* the same: row of the batch that writes there */
    sim *alive;
    int sent, ended, steps, moved, pending, beside, torn; /* beside: steps behind one whose tokens the host samples */
    /* torn: steps whose activations covered pages that others used */
    uint32_t most_running, most_held, most_used; /* pages of one sequence, and of all */
    uint64_t most_bytes; /* that pages in use and activations took in a step */
    uint64_t again; /* tokens computed again, drafts aside */
    int drafted, accepted;
    bool spacious; /* never short of pages */
    bool unlucky, drafts;
    wf_dev *dev; /* for memory of the host */
    wf_swaps swaps;
    wf_tiers tiers;
    struct sim_copy {
        bool runs, out, early, torn;
        uint32_t n;
        int until;
        wf_page_copy list[WF_MOVE_PAGES];
    } copies[WF_MOVES];
    int n_torn;
    bool faultless;
} world;

static const wf_limits tight = {
    .step_tokens = 24, .logit_rows = 6, .seqs = 5, .seq_pages = LONGEST / PAGE, .pages = 40};
static const wf_limits roomy = {
    .step_tokens = 32, .logit_rows = 32, .seqs = 12, .seq_pages = LONGEST / PAGE, .pages = 12 * LONGEST / PAGE};
/* Far fewer pages than the sequences may want: the prediction is wrong again and again. */
static const wf_limits starved = {
    .step_tokens = 24, .logit_rows = 12, .seqs = 12, .seq_pages = LONGEST / PAGE, .pages = LONGEST / PAGE + 3};

/* As an engine with memory for l's pages beside activations of row and logit_row bytes, pages being of 100. */
static wf_limits sharing(wf_limits l, uint32_t row, uint32_t logit_row)
{
    wf_pool_part all = {.page = 100, .token = row, .logit_row = logit_row};
    all.bytes = l.pages * all.page + wf_pool_part_step_bytes(&all, l.step_tokens, l.logit_rows);
    l.pool = (wf_unified_pool){.parts = {all}, .n = 1};
    l.pages = l.seqs * l.seq_pages * wf_limits_tables(&l);
    l.pages = wf_limits_max_pages(&l, 1);
    return l;
}

/* ---- memory of the host, by the linker's hand ------------------------------------------------------------------ */

static uint64_t n_asked, n_denied;

static bool denied(void)
{
    bool no = wf_random(3, ++n_asked) % 3 == 0;
    n_denied += no;
    return no;
}

/* ---- simulation ---------------------------------------------------------------------------------------------- */

static uint32_t length(const wf_seq *q)
{
    return q->n_tokens + q->n_pending;
}

static uint64_t chain(const sim *r, uint32_t n)
{
    uint64_t h = 0;
    for (uint32_t i = 0; i < n; i++)
        h = wf_random(h, (uint32_t)(i < r->q.n_tokens || !r->q.n_drafts ? r->truth : r->tokens)[i]);
    return h;
}

/* Of a sequence's pages in the table: is this one held? */
static bool holds(const wf_seq *q, uint32_t table, uint32_t page)
{
    return page < q->kv.tables[table].kept || page >= q->kv.tables[table].passed;
}

static void check_seen(const world *w, const sim *r, uint32_t table, uint32_t n)
{
    uint64_t h = 0;
    wf_kv_window own = w->s.p.kv.tables[table];
    uint32_t unseen = own.window && n + 1 > own.window ? n + 1 - own.window : 0;
    for (uint32_t i = 0; i < n; i++) {
        h = wf_random(h, (uint32_t)r->truth[i]);
        if (i < unseen && i >= own.sink) continue;
        assert_true(holds(&r->q, table, i / PAGE));
        assert_int_equal(w->kv[wf_kv_table_of(&r->q.kv, table)[i / PAGE] * PAGE + (int32_t)(i % PAGE)], h + table);
    }
}

/* Pages of preempted sequences are copied at once, as the world has no step in flight while one is formed. Now and then
 * the device takes no copy. */
static weft_status swap_pages(void *user, bool out, const wf_page_copy *list, uint32_t n, uint32_t *ticket)
{
    world *w = user;
    assert_null(ticket);
    if (wf_random((uint64_t)w->steps, (uint64_t)w->moved) % 8 == 0) return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t *page = &w->kv[list[i].page * PAGE], *host = list[i].host;
        memcpy(out ? host : page, out ? page : host, PAGE * sizeof *page);
    }
    w->moved++;
    return WEFT_OK;
}

/* Known tokens are given by id, pending ones by the row of logits that samples them in the previous step. */
static void check_token(world *w, const sim *r, uint32_t pos, int32_t slot)
{
    int32_t token = w->b.in[WF_INPUT_TOKEN][w->row_at[slot]];
    if (pos < r->q.n_tokens + r->q.n_drafts) {
        assert_int_equal(token, (pos < r->q.n_tokens ? r->truth : r->tokens)[pos]);
        return;
    }
    assert_int_equal(pos, r->q.n_tokens + r->q.n_pending - 1);
    assert_false(r->q.sampled_by_host);
    assert_in_range(-1 - token, 0, MOST - 1);
    assert_ptr_equal(w->before.chooser[-1 - token], r);
    w->pending++;
}

static void simulate_tokens(world *w)
{
    for (wf_seq *q = w->s.running; q; q = q->next) {
        sim *r = (sim *)q;
        for (uint32_t t = 0; q->n_scheduled && t < q->kv.n_tables; t++) check_seen(w, r, t, q->n_computed);
        for (uint32_t i = 0; i < q->n_computed; i++) r->computed[i] = true; /* in the prefix cache, say */
        for (uint32_t i = q->n_computed; i < q->n_computed + q->n_scheduled; i++) {
            for (uint32_t t = 0; t < q->kv.n_tables; t++) {
                int32_t page = wf_kv_table_of(&q->kv, t)[i / PAGE];
                /* shared pages are never written, nor copied ones */
                assert_int_equal(w->s.kv.pages.list[page].refs, 1);
                check_token(w, r, i, page * PAGE + (int32_t)(i % PAGE));
                w->kv[page * PAGE + (int32_t)(i % PAGE)] = chain(r, i + 1) + t;
            }
            if (i >= length(q)) continue; /* a draft */
            w->again += r->computed[i];
            r->computed[i] = true;
        }
    }
}

/* One more than the highest page of q. */
static uint32_t top_page(const wf_seq *q)
{
    uint32_t top = 0;
    for (uint32_t t = 0; t < q->kv.n_tables; t++)
        for (uint32_t i = 0; i < q->kv.n_pages; i++)
            top = holds(q, t, i) ? WF_MAX(top, (uint32_t)wf_kv_table_of(&q->kv, t)[i] + 1) : top;
    return top;
}

/* No page in use overlaps the step's activations. */
static void simulate_activations(world *w)
{
    uint32_t left = wf_limits_pages(&w->s.limits, w->b.n_tokens, w->b.n_logits),
             top = wf_limits_guaranteed_pages(&w->s.limits);
    for (const wf_seq *q = w->s.running; q; q = q->next) top = WF_MAX(top, top_page(q));
    for (const struct sim_copy *c = w->copies; c < w->copies + WF_MOVES; c++)
        for (uint32_t i = 0; c->runs && i < c->n; i++) top = WF_MAX(top, (uint32_t)c->list[i].page + 1);
    assert_true(top <= left);
    /* Beside pages in use there is always room for a row of each sequence, and a quarter of the largest step for
     * prompts. */
    uint32_t rows = WF_MIN(w->s.limits.step_tokens, w->s.n_running + w->s.limits.step_tokens / 4);
    assert_true(top <= wf_limits_pages(&w->s.limits, rows, w->s.n_running));
    assert_int_equal(top, wf_pages_high_water(&w->s.kv.pages));
    for (uint32_t i = left * PAGE; i < w->s.limits.pages * PAGE; i++)
        w->torn += w->kv[i] && w->kv[i] != TORN, w->kv[i] = TORN;
    const wf_pool_part *s = w->s.limits.pool.parts;
    w->most_bytes = WF_MAX(w->most_bytes, top * s->page + wf_pool_part_step_bytes(s, w->b.n_tokens, w->b.n_logits));
    w->most_running = WF_MAX(w->most_running, w->s.n_running);
    w->most_used = WF_MAX(w->most_used, wf_pages_in_use(&w->s.kv.pages));
    for (const wf_seq *q = w->s.running; q; q = q->next)
        w->most_held = WF_MAX(w->most_held, wf_kv_held(&q->kv, q->kv.n_pages));
}

/* ---- rules of every step ------------------------------------------------------------------------------------- */

static bool decoding(const wf_seq *q)
{
    return q->n_computed && length(q) - q->n_computed == 1 && length(q) > q->n_prompt;
}

/* It ends with a pending token. */
static bool ending(const wf_seq *q)
{
    return q->n_pending && length(q) >= q->max_tokens;
}

static void check_row(world *w, uint32_t r, uint32_t table, char *used)
{
    const wf_batch *b = &w->b;
    int32_t seq = b->in[WF_INPUT_SEQ][r], pos = b->in[WF_INPUT_POS][r],
            slot = wf_batch_table(b, WF_INPUT_SLOT, table)[r];
    int32_t at = b->in[WF_INPUT_INDPTR][seq] + pos / PAGE;
    assert_true(seq >= 0 && (uint32_t)seq < b->n_seqs && (uint32_t)pos < b->max_kv &&
                at < b->in[WF_INPUT_INDPTR][seq + 1]);
    assert_int_equal(slot, wf_batch_table(b, WF_INPUT_PAGES, table)[at] * PAGE + pos % PAGE);
    assert_false(used[slot]);
    used[slot] = 1;
    w->row_at[slot] = (int)r;
}

static void check_arrays(world *w)
{
    const wf_batch *b = &w->b;
    const wf_limits *l = &w->s.limits;
    assert_true(b->n_tokens <= l->step_tokens && b->n_logits <= l->logit_rows && b->n_seqs <= l->seqs);
    char *used = calloc(l->pages * PAGE, 1);
    for (uint32_t r = 0; r < b->n_tokens; r++)
        for (uint32_t t = 0; t < wf_limits_tables(l); t++) check_row(w, r, t, used);
    for (uint32_t i = 0; i < b->n_logits; i++) assert_in_range(b->in[WF_INPUT_LOGIT_ROWS][i], 0, b->n_tokens - 1);
    free(used);
}

/* Each page has as many references as sequences list it, and no page is lost. */
static void check_pages(const world *w)
{
    const wf_pages *p = &w->s.kv.pages;
    uint32_t *refs = calloc(p->n, sizeof *refs), in_use = 0;
    for (const wf_tier_move *m = w->tiers.moves; m && m < w->tiers.moves + WF_MOVES; m++)
        for (uint32_t i = 0; m->runs && i < m->n; i++) refs[m->page[i]]++;
    for (const wf_seq *q = w->s.running; q; q = q->next)
        for (uint32_t t = 0; t < q->kv.n_tables; t++)
            for (uint32_t i = 0; i < q->kv.n_pages; i++) refs[wf_kv_table_of(&q->kv, t)[i]] += holds(q, t, i);
    for (uint32_t i = 0; i < p->n; i++) {
        assert_int_equal(p->list[i].refs, refs[i]);
        in_use += refs[i] > 0;
    }
    assert_int_equal(in_use, wf_pages_in_use(p));
    assert_int_equal(in_use + wf_pages_available(p, p->n), p->n);
    free(refs);
}

/* A mate and its page know each other, and both are cached. */
static void check_mates(const world *w)
{
    const wf_prefix *x = &w->s.kv.prefix;
    for (int32_t i = 0; x->n_mates && i < (int32_t)w->s.kv.pages.n; i++) {
        int32_t of = x->mate_of[i], listed = 0;
        for (uint32_t t = 1; of >= 0 && t <= x->n_mates; t++) listed += wf_prefix_mate(x, of, t) == i;
        assert_int_equal(listed, of >= 0);
        if (of >= 0)
            assert_true(w->s.kv.pages.list[i].cached && w->s.kv.pages.list[of].cached && x->mate_of[of] < 0 &&
                        x->entries[of].cached);
        for (uint32_t t = 1; t <= x->n_mates; t++)
            assert_true(wf_prefix_mate(x, i, t) < 0 || x->mate_of[wf_prefix_mate(x, i, t)] == i);
    }
}

static void check_turns(world *w)
{
    uint32_t decodes = 0, prefills = 0, left_out = 0;
    int64_t last = INT64_MIN;
    for (const wf_seq *q = w->s.running; q; q = q->next) {
        assert_true(q->order >= last); /* one order */
        last = q->order;
        assert_true(w->ahead ? q->n_computed <= length(q) : q->n_computed < q->n_tokens);
        decodes += decoding(q) && q->n_scheduled;
        prefills += !decoding(q) && q->n_scheduled;
        left_out += decoding(q) && !q->n_scheduled && !ending(q) && !(q->sampled_by_host && w->before.host_rows);
    }
    assert_true(w->s.n_running <= WF_MIN(w->s.limits.step_tokens, w->s.limits.seqs));
    if (w->s.running && !w->before.n && !w->s.kv.tiers) assert_true(w->b.n_tokens > 0);
    if (w->s.p.policy == WF_POLICY_REQUEST) assert_true(!decodes || !prefills);
    else if (w->spacious) assert_int_equal(left_out, 0);
    if (w->s.p.policy == WF_POLICY_SARATHI) assert_true(prefills <= 1);
}

static void check_tiles(world *w)
{
    uint32_t decodes = 0, over = w->b.n_tokens % w->s.p.tile;
    for (const wf_seq *q = w->s.running; q; q = q->next) decodes += decoding(q) ? q->n_scheduled : 0;
    if (w->s.p.policy > WF_POLICY_SARATHI || w->b.n_tokens < w->s.p.tile) return;
    assert_true(!over || over >= w->b.n_tokens - decodes);
}

/* What a client was promised is what its sequences have not computed of their prompts yet; computing it again costs
 * nothing. */
static void check_accounts(const world *w)
{
    for (const wf_client *c = w->s.clients; c; c = c->next) {
        int64_t promised = 0;
        for (const sim *r = w->alive; r; r = r->link) {
            bool active = r->q.state == WF_SEQ_RUNNING || r->q.state == WF_SEQ_PREEMPTED;
            if (active && r->q.client == c) promised += r->q.n_prompt - r->q.n_paid;
        }
        assert_int_equal(c->promised, promised);
    }
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* What is written at a position, by all alike. */
static int32_t answer(uint32_t position)
{
    return (int32_t)(wf_random(7, position) % 1000);
}

static void set_truth(sim *r, uint32_t prompt)
{
    for (uint32_t i = 0; i <= LONGEST; i++) {
        r->truth[i] = i < prompt ? r->tokens[i] : answer(i);
        if (i >= prompt) r->tokens[i] = UNKNOWN;
    }
}

/* Some prompts begin alike, a few are whole repetitions, and some are what others write further on. */
static sim *new_request(world *w, uint64_t seed, uint64_t i)
{
    sim *r = calloc(1, sizeof *r);
    uint32_t prompt = 1 + wf_random(seed, 5 * i) % 40, common = wf_random(seed, 5 * i + 1) % 3 ? prompt : 13;
    for (uint32_t k = 0; k < prompt; k++)
        r->tokens[k] = (int32_t)(k < common ? k + i % 2 : wf_random(seed, 1000 * i + k) % 1000);
    uint32_t from = i % 3 ? 0 : PAGE * (1 + (uint32_t)wf_random(seed, 5 * i + 1) % 10);
    for (uint32_t k = 0; from && k < prompt; k++) r->tokens[k] = answer(from + k);
    set_truth(r, prompt);
    r->want = prompt + wf_random(seed, 5 * i + 2) % (LONGEST - prompt);
    r->q = (wf_seq){.tokens = r->tokens, .n_tokens = prompt,
                    .max_tokens = wf_random(seed, 5 * i + 3) % 2 ? LONGEST : WF_MAX(r->want, prompt + 1)};
    r->q.all_logits = wf_random(seed, 5 * i + 4) % 7 == 0;
    r->q.sampled_by_host = r->q.all_logits || wf_random(seed, 5 * i + 3) / 2 % 3 == 0;
    r->q.client_id = wf_random(~seed, i) % 4;
    r->q.no_logits = r->want == prompt;
    if (r->q.no_logits) r->q.max_tokens = prompt;
    r->q.first_logits = r->q.no_logits && !r->q.all_logits && wf_random(seed, 5 * i + 4) % 2;
    r->began = -1;
    r->link = w->alive;
    w->alive = r;
    return r;
}

static void end_request(world *w, sim *r, bool finished)
{
    sim **at = &w->alive;
    while (*at != r) at = &(*at)->link;
    *at = r->link;
    wf_sched_remove(&w->s, &r->q, finished);
    for (int i = 0; i < w->now.n; i++)
        if (w->now.part[i].r == r) w->now.part[i].r = NULL;
    for (int i = 0; i < w->before.n; i++)
        if (w->before.part[i].r == r) w->before.part[i].r = NULL;
    free(r);
    w->ended++;
}

/* Who has rows in the step just formed. */
static void note_step(world *w)
{
    w->now = (sim_step){.sync = !w->ahead};
    for (wf_seq *q = w->s.running; q; q = q->next) {
        sim *r = (sim *)q;
        if (!q->n_scheduled) continue;
        if (r->began < 0) r->began = w->steps;
        bool chooses = q->n_computed + q->n_scheduled - q->n_drafts == length(q);
        if (q->first_logits) assert_int_equal(q->n_logits, !q->n_computed);
        else if (chooses) assert_int_equal(q->n_logits, q->all_logits ? q->n_scheduled : !q->no_logits + q->n_drafts);
        w->drafted += (int)q->n_drafts;
        w->now.host_rows |= q->sampled_by_host && q->n_logits;
        for (uint32_t k = 0; k < q->n_logits && q->logit0 + k < MOST; k++) w->now.chooser[q->logit0 + k] = r;
        w->now.part[w->now.n].chooses = chooses;
        w->now.part[w->now.n++].r = r;
    }
    assert_false(w->now.host_rows && w->before.host_rows);
    w->beside += w->now.n && w->before.host_rows;
    w->now.sync |= w->now.host_rows && wf_random(w->s.p.kv.shuffle_pages, (uint64_t)w->steps) % 4 == 0;
}

/* Of all sequences that can have some; many are right. */
static void draft_tokens(world *w, uint64_t seed)
{
    for (sim *r = w->alive; r; r = r->link) {
        wf_seq *q = &r->q;
        uint64_t x = wf_random(seed, (uint64_t)w->steps << 20 | r->truth[0] << 8 | q->n_tokens);
        q->n_drafts = q->all_logits || q->n_tokens + 1 >= q->max_tokens ? 0
            : (uint32_t)WF_MIN(x % 6, q->max_tokens - q->n_tokens - 1ull);
        for (uint32_t i = 0; i < q->n_drafts; i++)
            r->tokens[q->n_tokens + i] = r->truth[q->n_tokens + i] + ((x >> 8) % 8 == i);
    }
}

static void complete_step(world *w, sim_step *f)
{
    for (int i = 0; i < f->n; i++) {
        sim *r = f->part[i].r;
        if (!r || !f->part[i].chooses) continue;
        wf_seq *q = &r->q;
        q->n_pending -= q->n_pending > 0;
        uint32_t n = 0, drafts = q->n_drafts;
        for (bool right = true; r && right;) {
            int32_t token = r->truth[q->n_tokens];
            right = n < drafts && r->tokens[q->n_tokens] == token;
            if (q->n_tokens >= r->want) end_request(w, r, true), r = NULL;
            else r->tokens[q->n_tokens++] = token, n += right;
        }
        w->accepted += (int)n;
        if (r && n) wf_sched_accept(q, n);
        for (uint32_t k = 0; r && k < n; k++) r->computed[q->n_computed - 1 - k] = true;
    }
    f->n = 0, f->host_rows = false;
}

/* ---- copies beside steps ---------------------------------------------------------------------------------------- */

static void move_content(world *w, const struct sim_copy *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        uint64_t *page = &w->kv[c->list[i].page * PAGE], *host = c->list[i].host;
        memcpy(c->out ? host : page, c->out ? page : host, PAGE * sizeof *page);
        if (c->torn && i % 2) memset(c->out ? host : page, 0x5a, PAGE * sizeof *page);
    }
}

static weft_status begin_copy(void *user, bool out, const wf_page_copy *list, uint32_t n, uint32_t *ticket)
{
    world *w = user;
    uint32_t at = 0;
    uint64_t x = wf_random(w->s.p.kv.shuffle_pages, (uint64_t)w->steps * 100 + (uint64_t)list[0].page);
    while (w->copies[at].runs) at++;
    if (!w->faultless && w->s.p.kv.shuffle_pages % 3 == 0 && x % 7 == 0) return w->n_torn++, WEFT_ERR_NOMEM;
    struct sim_copy *c = &w->copies[*ticket = at];
    *c = (struct sim_copy){.runs = true, .out = out, .early = x / 7 % 2, .n = n, .until = w->steps + (int)(x / 14 % 6)};
    c->torn = !w->faultless && w->s.p.kv.shuffle_pages % 3 && x / 84 % 5 == 0;
    memcpy(c->list, list, n * sizeof *list);
    if (c->early) move_content(w, c);
    return WEFT_OK;
}

static enum wf_moved poll_copy(void *user, uint32_t ticket)
{
    world *w = user;
    struct sim_copy *c = &w->copies[ticket];
    assert_true(c->runs);
    if (w->steps < c->until) return WF_MOVING;
    if (!c->early) move_content(w, c);
    c->runs = false;
    w->n_torn += c->torn;
    return c->torn ? WF_MOVE_VOID : WF_MOVED;
}

/* disk: NULL, or a file below the pool. */
static inline void open_tiers(world *w, uint32_t slots, bool always, const wf_disk_params *disk)
{
    wf_tiers_params p = {.host_bytes = slots * PAGE * sizeof(uint64_t), .page_bytes = PAGE * sizeof(uint64_t),
                         .page_tokens = PAGE, .always = always, .load_always = true};
    p.passing = disk && slots == 4 * WF_DISK_WAITING;
    if (disk) p.disk = *disk, p.disk.page_bytes = p.page_bytes, p.disk.page_tokens = PAGE;
    assert_ok(wf_tiers_open(w->dev, &p, &(wf_mover){w, begin_copy, poll_copy}, w->s.limits.pages, &w->tiers));
    wf_kv_use_tiers(&w->s.kv, &w->tiers);
    w->spacious = false;
}

static void open_world(world *w, const wf_limits *l, enum wf_policy policy, uint32_t tile, uint64_t seed)
{
    *w = (world){.kv = calloc(l->pages * PAGE, sizeof *w->kv), .row_at = calloc(l->pages * PAGE, sizeof *w->row_at),
                 .spacious = l->pages == l->seqs * l->seq_pages * wf_limits_tables(l)};
    wf_sched_params p = {.policy = policy, .kv.page_tokens = PAGE, .tile = tile, .kv.shuffle_pages = seed,
                         .least_step = seed % 2 ? 2 * tile : 0};
    assert_ok(wf_sched_init(&w->s, l, &p));
    assert_ok(wf_batch_init(&w->b, l));
    assert_ok(wf_dev_open("null", &(wf_open_params){.watchdog_ms = 1}, &w->dev));
    w->swaps = (wf_swaps){.dev = w->dev, .mover = {w, swap_pages}, .page_bytes = PAGE * sizeof *w->kv};
    w->s.kv.swaps = &w->swaps;
}

static void close_world(world *w)
{
    for (int i = 1; w->s.kv.tiers && wf_tiers_busy(&w->tiers); i++) {
        assert_true(i < 10000); /* copies go on without steps */
        if (w->tiers.disk) wf_sleep_ns(30000);
        wf_tiers_poll(&w->tiers, (uint64_t)++w->steps * 1000000);
        wf_tiers_begin(&w->tiers, false);
    }
    assert_int_equal(wf_pages_available(&w->s.kv.pages, w->s.limits.pages), w->s.limits.pages);
    assert_true(!w->s.running && !w->s.n_running && !w->s.n_waiting && !w->alive);
    wf_batch_free(&w->b);
    wf_sched_free(&w->s);
    if (w->tiers.pool.n) wf_tiers_close(&w->tiers);
    wf_swaps_free(&w->swaps);
    wf_dev_close(w->dev);
    free(w->kv);
    free(w->row_at);
}

static void step(world *w)
{
    w->steps++;
    if (w->tiers.disk && wf_disk_busy(w->tiers.disk)) wf_sleep_ns(30000); /* its threads are of this world */
    if (w->drafts) draft_tokens(w, w->s.p.kv.shuffle_pages);
    if (w->s.kv.tiers) wf_tiers_poll(&w->tiers, (uint64_t)w->steps * 1000000);
    test_alloc_denied = w->unlucky ? denied : NULL;
    w->s.host_rows_taken = w->before.host_rows;
    wf_sched_batch(&w->s, &w->b);
    test_alloc_denied = NULL;
    check_arrays(w);
    check_pages(w);
    check_mates(w);
    check_turns(w);
    check_tiles(w);
    note_step(w);
    simulate_activations(w);
    simulate_tokens(w);
    test_alloc_denied = w->unlucky ? denied : NULL;
    wf_sched_advance(&w->s, w->ahead);
    test_alloc_denied = NULL;
    if (w->s.kv.tiers) wf_tiers_begin(&w->tiers, w->b.n_tokens > 0);
    assert_int_equal(w->s.n_recomputed, w->again);
    check_accounts(w);
    complete_step(w, &w->before);
    if (w->now.sync) complete_step(w, &w->now);
    else w->before = w->now;
    w->now = (sim_step){0};
}

/* Now and then a client goes away, wherever its request is. */
static void cancel_one(world *w, uint64_t seed)
{
    uint64_t n = wf_random(seed, 77 + (uint64_t)w->steps);
    sim *r = w->alive;
    if (n % 20) return;
    for (n = n / 20 % 5; r && n; n--) r = r->link;
    if (r) end_request(w, r, false);
}

/* Some come at once. */
static void arrive(world *w, uint64_t seed, int n_requests)
{
    for (; w->sent < n_requests && wf_random(seed, 1000000 + (uint64_t)w->steps * 50 + (uint64_t)w->sent) % 3;
         w->sent++) {
        sim *r = new_request(w, seed, (uint64_t)w->sent);
        test_alloc_denied = w->unlucky ? denied : NULL;
        wf_sched_add(&w->s, &r->q);
        test_alloc_denied = NULL;
    }
}

static void run_requests(world *w, uint64_t seed, int n_requests, bool cancel)
{
    while (w->ended < n_requests) {
        assert_true(w->steps < 200 * n_requests);
        arrive(w, seed, n_requests);
        if (cancel) cancel_one(w, seed);
        step(w);
    }
    assert_true(w->s.prefix_hits <= w->s.prefix_queries);
    assert_true(w->ahead || !w->pending);
    assert_true(w->drafted >= w->accepted);
}

/* The same in worlds that are known to have come to what they are for. */
static inline void run_world(world *w, uint64_t seed, int n_requests, bool cancel)
{
    run_requests(w, seed, n_requests, cancel);
    assert_int_equal(w->pending > 0, w->ahead);
    assert_true(!w->drafts || (w->accepted > 0 && w->drafted > w->accepted));
}

/* Returns how many were preempted. */
static inline int play(const wf_limits *l, enum wf_policy policy, uint32_t tile, uint64_t seed, int n_requests,
                       bool cancel, bool ahead, int *torn)
{
    world w;
    open_world(&w, l, policy, tile, seed);
    w.ahead = ahead, w.drafts = !ahead && seed / 4 % 2;
    run_world(&w, seed, n_requests, cancel);
    assert_int_equal(w.beside > 0, ahead);
    int moved = w.moved;
    *torn += w.torn;
    close_world(&w);
    return moved;
}

#endif
