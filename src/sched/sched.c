/* sched: the lists of sequences, and what happens to them after a step and at their end. See sched.h. */
#include "sched/internal.h"

#include <stdlib.h>
#include <string.h>

static const char *const policies[] = {[WF_POLICY_NANOFLOW] = "nanoflow", [WF_POLICY_SARATHI] = "sarathi",
                                       [WF_POLICY_ORCA] = "orca",
                                       [WF_POLICY_REQUEST] = "request"};

weft_status wf_policy_parse(const char *name, enum wf_policy *out)
{
    for (size_t i = 0; i < WF_LEN(policies); i++)
        if (!name || !strcmp(name, policies[i])) return *out = (enum wf_policy)i, WEFT_OK;
    return wf_fail(WEFT_ERR_ARG, "policy '%s' does not exist; want nanoflow, sarathi, orca or request", name);
}

weft_status wf_sched_init(wf_sched *s, const wf_limits *l, const wf_sched_params *p)
{
    *s = (wf_sched){.limits = *l, .p = *p, .prefill = p->prefill, .decode = p->decode};
    if (!s->p.tile) s->p.tile = 1;
    wf_fair_init(s);
    for (size_t i = 0; i < WF_LENGTH_BUCKETS; i++) s->average[i] = -1;
    weft_status st = wf_pages_init(&s->pages, l->pages, wf_limits_guaranteed_pages(l), p->shuffle_pages);
    if (st == WEFT_OK) st = wf_prefix_init(&s->prefix, &s->pages, p->page_tokens, wf_limits_tables(l));
    s->peaks = wf_calloc(l->seqs + 1, sizeof *s->peaks);
    s->remainders = wf_calloc(p->page_tokens, sizeof *s->remainders);
    s->prompts = wf_calloc(l->seqs, sizeof *s->prompts);
    if (!s->peaks || !s->remainders || !s->prompts) st = WEFT_ERR_NOMEM;
    if (st != WEFT_OK) wf_sched_free(s);
    return st;
}

void wf_sched_use_tiers(wf_sched *s, wf_tiers *tiers)
{
    s->tiers = tiers;
    if (tiers) wf_tiers_attach(tiers, &s->pages, &s->prefix);
}

uint64_t wf_sched_bytes(const wf_limits *l, uint32_t page_tokens)
{
    return wf_pages_bytes(l->pages) + wf_prefix_bytes(l->pages, page_tokens, wf_limits_tables(l));
}

void wf_sched_free(wf_sched *s)
{
    free(s->peaks);
    free(s->remainders);
    free(s->prompts);
    wf_fair_free(s);
    wf_prefix_free(&s->prefix);
    wf_pages_free(&s->pages);
    memset(s, 0, sizeof *s);
}

uint32_t wf_sched_pages_for(const wf_sched *s, uint32_t tokens)
{
    return (tokens + s->p.page_tokens - 1) / s->p.page_tokens;
}

/* ---- lists --------------------------------------------------------------------------------------------------- */

void wf_sched_insert(wf_seq **list, wf_seq *q)
{
    while (*list && (*list)->order <= q->order) list = &(*list)->next;
    q->next = *list;
    *list = q;
}

void wf_sched_unlink(wf_seq **list, wf_seq *q)
{
    while (*list && *list != q) list = &(*list)->next;
    if (*list) *list = q->next;
    q->next = NULL;
}

void wf_sched_add(wf_sched *s, wf_seq *q)
{
    if (!q->n_prompt) q->n_prompt = q->n_tokens;
    q->order = (s->step - (int64_t)q->priority * WF_PRIORITY_STEPS) * (1 << 24) + (s->arrivals++ & 0xffffff);
    q->state = WF_SEQ_WAITING;
    q->n_tables = wf_limits_tables(&s->limits);
    wf_fair_arrive(s, q);
    s->n_waiting++;
}

/* ---- pages that go back -------------------------------------------------------------------------------------- */

/* The next token attends to the keys from n_computed + 1 - window on. */
uint32_t wf_sched_passed(const wf_sched *s, uint32_t table, uint32_t n_computed)
{
    uint32_t next = n_computed + 1, window = s->p.tables[table].window;
    return window && next > window ? (next - window) / s->p.page_tokens : 0;
}

uint32_t wf_sched_kept(const wf_sched *s, uint32_t table)
{
    return wf_sched_pages_for(s, s->p.tables[table].sink);
}

void wf_sched_release_passed(wf_sched *s, wf_seq *q)
{
    for (uint32_t t = 0; t < q->n_tables; t++) {
        uint32_t passed = wf_sched_passed(s, t, q->n_computed), kept = wf_sched_kept(s, t),
            from = WF_MAX(q->tables[t].passed, kept);
        int32_t *pages = wf_seq_table(q, t);
        if (!s->p.no_prefix && !q->private) passed = WF_MIN(passed, q->n_registered);
        if (passed <= from) continue;
        wf_pages_release(&s->pages, pages + from, passed - from);
        memset(pages + from, 0, (passed - from) * sizeof *pages);
        q->tables[t] = (wf_passed){kept, passed};
    }
}

void wf_sched_release(wf_sched *s, wf_seq *q)
{
    for (uint32_t t = 0; t < q->n_tables && q->n_pages; t++) {
        wf_passed own = q->tables[t];
        wf_pages_release(&s->pages, wf_seq_table(q, t) + own.passed, q->n_pages - own.passed);
        wf_pages_release(&s->pages, wf_seq_table(q, t), own.kept);
    }
    q->n_pages = 0;
}

void wf_sched_restart(wf_seq *q)
{
    q->n_computed = q->n_registered = 0;
    memset(q->tables, 0, sizeof q->tables);
}

/* ---- a step -------------------------------------------------------------------------------------------------- */

const wf_key *wf_sched_key(const wf_sched *s, wf_seq *q, uint32_t i)
{
    uint32_t p = s->p.page_tokens;
    for (uint32_t n; n = q->n_keys, n <= i; q->n_keys++)
        q->keys[n] = wf_key_next(n ? &q->keys[n - 1] : &q->root, q->tokens + (size_t)n * p, p);
    return &q->keys[i];
}

/* Puts pages that are full and computed, and whose tokens are known, into the prefix cache. */
static void publish_pages(wf_sched *s, wf_seq *q)
{
    uint32_t p = s->p.page_tokens, n = WF_MIN(q->n_computed, q->n_tokens);
    int32_t pages[WF_MAX_KV_TABLES];
    if (s->p.no_prefix || q->private) return;
    for (uint32_t i; i = q->n_registered, (i + 1) * p <= n; q->n_registered++) {
        for (uint32_t t = 0; t < q->n_tables; t++)
            pages[t] = i < q->tables[t].kept || i >= q->tables[t].passed ? wf_seq_table(q, t)[i] : -1;
        if (pages[0] < 0) continue; /* loaded without what windows have passed */
        wf_prefix_add(&s->prefix, wf_sched_key(s, q, i), q->tokens + (size_t)i * p, pages);
        wf_sched_offer(s, q, i);
    }
}

void wf_sched_advance(wf_sched *s, bool pending)
{
    for (wf_seq *q = s->running; q; q = q->next) {
        uint32_t end = q->n_computed + q->n_scheduled - q->n_drafts;
        if (q->n_scheduled) wf_swap_release(s->swaps, &q->host);
        s->n_recomputed += q->most_computed > q->n_computed ? WF_MIN(end, q->most_computed) - q->n_computed : 0;
        q->n_computed = end;
        q->most_computed = WF_MAX(q->most_computed, end);
        publish_pages(s, q);
        wf_sched_release_passed(s, q);
        bool sampled = q->n_scheduled && q->n_logits && !q->no_logits && end == wf_seq_length(q) && end < q->max_tokens;
        wf_fair_computed(s, q, sampled);
        q->awaited |= s->p.stages > 1 && sampled;
        if (!pending || !sampled || q->n_drafts) continue;
        q->n_pending++;
        q->pending_logit_row = q->logit0 + q->n_logits - 1;
    }
    s->step++;
}

void wf_sched_accept(wf_seq *q, uint32_t n)
{
    q->n_computed += n;
    q->most_computed = WF_MAX(q->most_computed, q->n_computed);
    q->client->served += (int64_t)n * WF_FAIR_OUTPUT;
}

/* ---- the end ------------------------------------------------------------------------------------------------- */

/* Moving averages: of decode lengths over about the last 16 sequences of a bucket, and of what all give to do. */
static void learn_lengths(wf_sched *s, const wf_seq *q)
{
    double length = q->n_tokens - q->n_prompt, *a = &s->average[q->length_bucket], prefill = q->n_prompt - q->n_cached;
    bool first = s->prefill + s->decode == 0;
    *a = *a < 0 ? length : *a + (length - *a) / 16;
    s->prefill += (prefill - s->prefill) / (first ? 1 : WF_RATIO_SEQS);
    s->decode += (length - s->decode) / (first ? 1 : WF_RATIO_SEQS);
}

double wf_sched_ratio(const wf_sched *s)
{
    return s->prefill / WF_MAX(s->decode, 1);
}

void wf_sched_forget(wf_sched *s, wf_seq *q, uint32_t from, bool only_coming)
{
    uint32_t p = s->p.page_tokens, n = q->keys ? q->n_tokens / p : 0;
    q->private = true;
    for (uint32_t i = from / p; i < n; i++) {
        int32_t page = wf_prefix_find(&s->prefix, wf_sched_key(s, q, i), q->tokens + (size_t)i * p);
        if (page >= 0) wf_pages_uncache(&s->pages, page);
        for (uint32_t t = 0; s->tiers && t < q->n_tables; t++)
            wf_tiers_forget(s->tiers, wf_sched_key(s, q, i), t, only_coming);
    }
}

/* From the end, so that the start of a text goes last. */
static void touch_blocks(wf_sched *s, wf_seq *q)
{
    if (!s->tiers || q->private) return;
    for (uint32_t i = q->n_registered; i-- > 0;)
        for (uint32_t t = 0; t < q->n_tables; t++) wf_tiers_touch(s->tiers, wf_sched_key(s, q, i), t);
}

void wf_sched_remove(wf_sched *s, wf_seq *q, bool finished)
{
    if (q->state == WF_SEQ_RUNNING) publish_pages(s, q);
    touch_blocks(s, q);
    wf_sched_leave_load(s, q);
    if (q->state != WF_SEQ_NEW) {
        *(q->state == WF_SEQ_RUNNING ? &s->n_running : &s->n_waiting) -= 1;
        if (q->state != WF_SEQ_WAITING) wf_sched_unlink(q->state == WF_SEQ_RUNNING ? &s->running : &s->preempted, q);
        wf_fair_leave(s, q);
    }
    if (finished && !q->no_logits) learn_lengths(s, q);
    wf_sched_release(s, q);
    wf_swap_release(s->swaps, &q->host);
    free(q->pages);
    free(q->keys);
    q->pages = NULL, q->keys = NULL;
    q->cap_pages = q->n_keys = 0;
    memset(q->tables, 0, sizeof q->tables);
    q->swapped_out = false;
    q->state = WF_SEQ_NEW;
}
