/* batch: forms a step. First it decides how many tokens each sequence gets, then it cuts to whole tiles, then it
 * fills the arrays. */
#include "sched/internal.h"

#include <string.h>

static bool is_decoding(const wf_seq *q)
{
    return q->n_computed > 0 && wf_seq_length(q) - q->n_computed == 1 && wf_seq_length(q) > q->n_prompt;
}

/* Tokens that can be scheduled: none if the pending token is the last of the sequence, or while it waits for a load or
 * for a token. */
static uint32_t tokens_left(const wf_seq *q)
{
    bool waits = q->kv.load || q->awaited || (q->n_pending && wf_seq_length(q) >= q->max_tokens);
    return waits ? 0 : wf_seq_length(q) - q->n_computed;
}

static uint32_t wanted_logits(const wf_seq *q, uint32_t n_tokens)
{
    if (q->all_logits || (q->n_drafts && is_decoding(q))) return n_tokens;
    if (q->first_logits) return n_tokens && !q->n_computed;
    return n_tokens && !q->no_logits && q->n_computed + n_tokens == wf_seq_length(q);
}

/* ---- how many tokens ----------------------------------------------------------------------------------------- */

typedef struct plan {
    uint32_t tokens, logits, decodes;
} plan;

/* Pages that q must still allocate for n tokens, in each of its tables. */
static uint32_t pages_needed(const wf_sched *s, const wf_seq *q, uint32_t n)
{
    uint32_t want = wf_kv_pages_for(&s->kv, q->n_computed + n);
    return want > q->kv.n_pages ? want - q->kv.n_pages : 0;
}

/* Pages that exist in the step if it also computes n tokens of q. */
static uint32_t pages_left(const wf_sched *s, const plan *p, const wf_seq *q, uint32_t n)
{
    return wf_limits_pages(&s->limits, p->tokens + n, p->logits + wanted_logits(q, n));
}

/* Of these, the pages that may stay in use in later steps. */
static uint32_t page_limit(const wf_sched *s, const plan *p, const wf_seq *q, uint32_t n)
{
    return WF_MIN(pages_left(s, p, q, n), wf_limits_max_pages(&s->limits, s->n_running));
}

static bool clears_used_pages(wf_sched *s, const plan *p, const wf_seq *q, uint32_t n)
{
    return wf_pages_high_water(&s->kv.pages) <= pages_left(s, p, q, n);
}

static bool has_pages(wf_sched *s, const plan *p, const wf_seq *q, uint32_t n)
{
    return pages_needed(s, q, n) * q->kv.n_tables <= wf_pages_available(&s->kv.pages, page_limit(s, p, q, n));
}

/* The greatest count of up to n tokens that passes the test. The test is monotonic: fewer tokens never fail. */
static uint32_t most_tokens(wf_sched *s, const plan *p, const wf_seq *q, uint32_t n,
                            bool (*test)(wf_sched *, const plan *, const wf_seq *, uint32_t))
{
    uint32_t yes = 0, no = n;
    if (test(s, p, q, n)) return n;
    while (no - yes > 1) {
        uint32_t middle = yes + (no - yes) / 2;
        *(test(s, p, q, middle) ? &yes : &no) = middle;
    }
    return yes;
}

/* Tokens of q that fit next to those planned so far, with activations above the pages in use. */
static uint32_t chunk_of(wf_sched *s, const plan *p, const wf_seq *q)
{
    uint32_t n = WF_MIN(tokens_left(q), s->limits.step_tokens - p->tokens);
    uint32_t logits = q->sampled_by_host && s->host_rows_taken ? 0 : s->limits.logit_rows - p->logits;
    if (q->all_logits) n = WF_MIN(n, logits);
    else if (n && wanted_logits(q, n) > logits) n = q->first_logits ? 0 : n - 1;
    return most_tokens(s, p, q, n, clears_used_pages);
}

/* Schedules up to n tokens of q, as many as there are pages for. force: preempts the last in order to get pages. */
static void grant_tokens(wf_sched *s, plan *p, wf_seq *q, uint32_t n, bool force)
{
    while (force && !has_pages(s, p, q, n) && wf_sched_preempt(s, q)) {}
    n = most_tokens(s, p, q, n, has_pages);
    if (s->p.whole_prompts && n < tokens_left(q)) n = 0;
    uint32_t pages = pages_needed(s, q, n);
    for (uint32_t t = 0; t < q->kv.n_tables; t++)
        wf_pages_alloc(&s->kv.pages, pages, page_limit(s, p, q, n), wf_kv_table_of(&q->kv, t) + q->kv.n_pages);
    q->kv.n_pages += pages;
    q->n_scheduled = n;
    p->tokens += n;
    p->logits += wanted_logits(q, n);
}

/* Of those that decode, the share of a step: all, or with stages as many as the other steps in flight have. What the
 * host samples is in one of them. */
static uint32_t share_of_decodes(const wf_sched *s)
{
    uint32_t n = 0, stages = WF_MAX(s->p.stages, 1u);
    for (const wf_seq *q = s->running; q; q = q->next) n += !q->sampled_by_host && (q->awaited || is_decoding(q));
    return (n + stages - 1) / stages;
}

static void plan_decodes(wf_sched *s, plan *p)
{
    uint32_t share = share_of_decodes(s);
    for (wf_seq *q = s->running; q; q = q->next) {
        if (!is_decoding(q) || (!share && !q->sampled_by_host) || !chunk_of(s, p, q)) continue;
        grant_tokens(s, p, q, 1, true);
        share -= q->n_scheduled && !q->sampled_by_host;
    }
    p->decodes = p->tokens;
}

/* Decodes that bring drafts take as many as there is room for; nobody is preempted for them. */
static void plan_drafts(wf_sched *s, plan *p, bool prompts)
{
    for (wf_seq *q = s->running; q; q = q->next) {
        uint32_t drafts = q->n_scheduled == 1 && is_decoding(q) && !prompts ? q->n_drafts : 0;
        drafts = WF_MIN(drafts, WF_MIN(s->limits.step_tokens - p->tokens, s->limits.logit_rows - p->logits));
        if (drafts) {
            p->tokens--, p->logits--;
            grant_tokens(s, p, q, most_tokens(s, p, q, 1 + drafts, clears_used_pages), false);
        }
        q->n_drafts = drafts ? q->n_scheduled - 1 : 0;
    }
    p->decodes = p->tokens;
}

static bool cuts_prompts(const wf_sched *s)
{
    return !s->p.whole_prompts && (s->p.policy == WF_POLICY_NANOFLOW || s->p.policy == WF_POLICY_SARATHI);
}

/* Of n prompt tokens: as many as let prompts last as long as decodes do, so that these always find a chunk to ride
 * on. With B - 1 decodes in a step that is the case where P:D = C / (B - 1) (Sarathi, section 5.1.3). The step ends
 * with a whole tile; where many decode and P:D is small a chunk has still a quarter of the least step, or a long
 * prompt would take thousands of them. Without decodes nothing waits for the chunk. */
static uint32_t balanced_chunk(const wf_sched *s, const plan *p, uint32_t n)
{
    double ratio = wf_sched_ratio(s);
    if (s->p.policy != WF_POLICY_SARATHI || !s->p.least_step || !(ratio > 0) || !p->decodes) return n;
    uint32_t chunk = (uint32_t)WF_MIN(p->decodes * ratio, (double)s->limits.step_tokens),
        least = s->p.least_step / 4 + 1;
    uint32_t step = WF_MAX(p->tokens + WF_MAX(chunk, least), s->p.least_step);
    return WF_MIN(n, WF_UP(step, s->p.tile) - p->tokens);
}

static void plan_prefills(wf_sched *s, plan *p)
{
    s->n_prompts = 0;
    for (wf_seq *q = s->running; q; q = q->next)
        if (!is_decoding(q) && tokens_left(q)) s->prompts[s->n_prompts++] = q;
    /* a short prompt does not wait for the many long ones of a client admitted before */
    wf_fair_sort(s->prompts, s->n_prompts);
    for (uint32_t i = 0; i < s->n_prompts; i++) {
        wf_seq *q = s->prompts[i]; /* it may have been preempted since */
        uint32_t n = q->state == WF_SEQ_RUNNING ? chunk_of(s, p, q) : 0, all = tokens_left(q);
        if (!s->p.whole_prompts) n = balanced_chunk(s, p, n);
        if (s->alone && s->n_running == 1 && !s->n_waiting && cuts_prompts(s) && !q->all_logits)
            n = WF_MIN(n, s->alone);
        if (!n || (s->p.whole_prompts && n < all)) continue;
        /* Orca does not cut prompts: one that would fit into an empty step waits until it fits. */
        if (p->tokens && s->p.policy == WF_POLICY_ORCA && n < all && all <= s->limits.step_tokens && !q->all_logits)
            return;
        grant_tokens(s, p, q, n, !p->tokens); /* an empty step must not stay empty */
        if (s->p.policy == WF_POLICY_SARATHI && q->n_scheduled) return;
    }
}

/* Tokens beyond a whole number of tiles cost one more tile. Prefill tokens can wait for the next step. */
static void cut_to_tiles(wf_sched *s, plan *p)
{
    uint32_t over = p->tokens % s->p.tile, prefill = p->tokens - p->decodes;
    if (!cuts_prompts(s) || !over || p->tokens < s->p.tile || over >= prefill) return;
    for (uint32_t i = s->n_prompts; over; i--) {
        wf_seq *last = s->prompts[i - 1];
        uint32_t n = WF_MIN(over, last->n_scheduled);
        last->n_scheduled -= n;
        p->tokens -= n;
        over -= n;
    }
}

/* ---- arrays -------------------------------------------------------------------------------------------------- */

static void add_seq(const wf_sched *s, wf_batch *b, wf_seq *q)
{
    uint32_t p = s->p.kv.page_tokens, n = q->n_scheduled;
    size_t pages = (q->n_computed + n + p - 1) / p;
    for (uint32_t t = 0; t < q->kv.n_tables; t++)
        memcpy(wf_batch_table(b, WF_INPUT_PAGES, t) + b->n_pages, wf_kv_table_of(&q->kv, t), pages * sizeof(int32_t));
    uint32_t first = wf_batch_add_seq(b, p, q->kv.n_tables, q->n_computed, n);
    for (uint32_t pos = q->n_computed, row = first; row < b->n_tokens; pos++, row++) {
        bool known = pos < q->n_tokens + q->n_drafts;
        b->in[WF_INPUT_TOKEN][row] = known ? q->tokens[pos] : -1 - (int32_t)q->pending_logit_row;
        b->n_pending += !known;
        b->in[WF_INPUT_TYPE][row] = q->second_text && pos >= q->second_text;
        b->in[WF_INPUT_ADAPTER][row] = (int32_t)q->adapter;
    }
    b->n_adapted += q->adapter ? n : 0;
    q->logit0 = b->n_logits;
    q->n_logits = wanted_logits(q, n);
    if (!q->first_logits) first += n - q->n_logits;
    for (uint32_t i = 0; i < q->n_logits; i++) b->in[WF_INPUT_LOGIT_ROWS][b->n_logits++] = (int32_t)(first + i);
}

static bool is_decode_row(const wf_seq *q)
{
    return is_decoding(q) && !q->n_drafts;
}

void wf_sched_batch(wf_sched *s, wf_batch *b)
{
    plan p = {0};
    wf_batch_clear(b);
    wf_sched_complete_loads(s);
    wf_sched_admit(s);
    for (wf_seq *q = s->running; q; q = q->next) q->n_scheduled = q->n_logits = 0;
    const wf_seq *prompt = s->running;
    while (prompt && (is_decoding(prompt) || !tokens_left(prompt))) prompt = prompt->next;
    if (s->p.policy != WF_POLICY_REQUEST || !prompt) plan_decodes(s, &p);
    plan_drafts(s, &p, prompt);
    plan_prefills(s, &p);
    cut_to_tiles(s, &p);
    for (wf_seq *q = s->running; q; q = q->next)
        if (q->n_scheduled && is_decode_row(q)) add_seq(s, b, q);
    b->n_decodes = b->n_tokens;
    for (wf_seq *q = s->running; q; q = q->next)
        if (q->n_scheduled && !is_decode_row(q)) add_seq(s, b, q);
}
