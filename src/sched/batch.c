/* batch: the rows of a step. First how many rows each sequence gets, then the cut to whole tiles, then the arrays. */
#include "sched/internal.h"

#include <string.h>

static bool decoding(const wf_seq *q)
{
    return q->n_done > 0 && wf_seq_length(q) - q->n_done == 1 && wf_seq_length(q) > q->n_prompt;
}

/* Rows still to be computed: none of a sequence that ends with the token which is under way. */
static uint32_t left(const wf_seq *q)
{
    return q->n_ahead && wf_seq_length(q) >= q->max_tokens ? 0 : wf_seq_length(q) - q->n_done;
}

static uint32_t wanted_logits(const wf_seq *q, uint32_t n_rows)
{
    if (q->all_logits) return n_rows;
    return n_rows && !q->no_logits && q->n_done + n_rows == wf_seq_length(q);
}

/* ---- how many rows ------------------------------------------------------------------------------------------ */

typedef struct plan {
    uint32_t rows, logits, decodes;
} plan;

/* Pages that q has still to take for n rows. */
static uint32_t need(const wf_sched *s, const wf_seq *q, uint32_t n)
{
    uint32_t want = wf_sched_pages_for(s, q->n_done + n);
    return want > q->n_pages ? want - q->n_pages : 0;
}

/* Pages that the step leaves with n rows of q. */
static uint32_t left_by(const wf_sched *s, const plan *p, const wf_seq *q, uint32_t n)
{
    return wf_limits_pages(&s->limits, p->rows + n, p->logits + wanted_logits(q, n));
}

/* Of these, what the steps to come leave, too. */
static uint32_t below(const wf_sched *s, const plan *p, const wf_seq *q, uint32_t n)
{
    return WF_MIN(left_by(s, p, q, n), wf_limits_spread(&s->limits, s->n_running));
}

static bool clears_pages(wf_sched *s, const plan *p, const wf_seq *q, uint32_t n)
{
    return wf_pages_top(&s->pages) <= left_by(s, p, q, n);
}

static bool finds_pages(wf_sched *s, const plan *p, const wf_seq *q, uint32_t n)
{
    return need(s, q, n) <= wf_pages_available(&s->pages, below(s, p, q, n));
}

/* The most of n rows for which it is so: fewer rows are never worse. */
static uint32_t most(wf_sched *s, const plan *p, const wf_seq *q, uint32_t n, bool (*so)(wf_sched *, const plan *, const wf_seq *, uint32_t))
{
    uint32_t yes = 0, no = n;
    if (so(s, p, q, n)) return n;
    while (no - yes > 1) {
        uint32_t middle = yes + (no - yes) / 2;
        *(so(s, p, q, middle) ? &yes : &no) = middle;
    }
    return yes;
}

/* Rows of q that fit beside those planned, and above the pages in use. */
static uint32_t chunk(wf_sched *s, const plan *p, const wf_seq *q)
{
    uint32_t n = WF_MIN(left(q), s->limits.rows - p->rows), logits = s->limits.logit_rows - p->logits;
    if (q->all_logits) n = WF_MIN(n, logits);
    else if (n && wanted_logits(q, n) > logits) n--;
    return most(s, p, q, n, clears_pages);
}

/* Gives q up to n rows, as many as there are pages for; with `force` the last in order are put aside for them. */
static void grant(wf_sched *s, plan *p, wf_seq *q, uint32_t n, bool force)
{
    while (force && !finds_pages(s, p, q, n) && wf_sched_preempt(s, q)) {}
    n = most(s, p, q, n, finds_pages);
    uint32_t pages = need(s, q, n);
    wf_pages_take(&s->pages, pages, below(s, p, q, n), q->pages + q->n_pages);
    q->n_pages += pages;
    q->n_rows = n;
    p->rows += n;
    p->logits += wanted_logits(q, n);
}

static void plan_decodes(wf_sched *s, plan *p)
{
    for (wf_seq *q = s->running; q; q = q->next)
        if (decoding(q) && chunk(s, p, q)) grant(s, p, q, 1, true);
    p->decodes = p->rows;
}

/* Orca takes prompts whole: one that would fit into an empty step waits until it fits. */
static bool waits_for_room(const wf_sched *s, const wf_seq *q, uint32_t n)
{
    uint32_t all = left(q);
    return s->p.policy == WF_POLICY_ORCA && n < all && all <= s->limits.rows && !q->all_logits;
}

static void plan_prefills(wf_sched *s, plan *p)
{
    for (wf_seq *q = s->running; q; q = q->next) {
        uint32_t n = decoding(q) ? 0 : chunk(s, p, q);
        if (!n) continue;
        if (p->rows && waits_for_room(s, q, n)) return;
        grant(s, p, q, n, !p->rows); /* an empty step must not stay empty */
        if (s->p.policy == WF_POLICY_SARATHI && q->n_rows) return;
    }
}

static bool prefilling(const wf_sched *s)
{
    const wf_seq *q = s->running;
    while (q && (decoding(q) || !left(q))) q = q->next;
    return q != NULL;
}

/* Rows beyond a whole number of tiles cost a tile more; those of prefill can wait for the next step. */
static void cut_to_tiles(wf_sched *s, plan *p)
{
    uint32_t over = p->rows % s->p.tile, prefill = p->rows - p->decodes;
    bool cuts = s->p.policy == WF_POLICY_NANOFLOW || s->p.policy == WF_POLICY_SARATHI;
    if (!cuts || !over || p->rows < s->p.tile || over >= prefill) return;
    while (over) { /* the list is linked one way: its end is found anew for each */
        wf_seq *last = NULL;
        for (wf_seq *q = s->running; q; q = q->next)
            if (q->n_rows && !decoding(q)) last = q;
        uint32_t n = WF_MIN(over, last->n_rows);
        last->n_rows -= n;
        p->rows -= n;
        over -= n;
    }
}

/* ---- arrays --------------------------------------------------------------------------------------------------- */

static void add_rows(const wf_sched *s, wf_batch *b, wf_seq *q)
{
    uint32_t seq = b->n_seqs++, first = b->n_rows, p = s->p.page_tokens, n = q->n_rows;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t pos = q->n_done + i, row = b->n_rows++;
        bool known = pos < q->n_tokens;
        b->in[WF_INPUT_TOKEN][row] = known ? q->tokens[pos] : -1 - (int32_t)q->fed;
        b->n_fed += !known;
        b->in[WF_INPUT_POS][row] = (int32_t)pos;
        b->in[WF_INPUT_SEQ][row] = (int32_t)seq;
        b->in[WF_INPUT_SLOT][row] = q->pages[pos / p] * (int32_t)p + (int32_t)(pos % p);
    }
    uint32_t kv = q->n_done + n, pages = (kv + p - 1) / p;
    memcpy(b->in[WF_INPUT_PAGES] + b->n_pages, q->pages, pages * sizeof(int32_t));
    b->n_pages += pages;
    b->in[WF_INPUT_INDPTR][seq + 1] = (int32_t)b->n_pages;
    q->logit0 = b->n_logits;
    q->n_logits = wanted_logits(q, n);
    for (uint32_t i = n - q->n_logits; i < n; i++) b->in[WF_INPUT_LOGIT_ROWS][b->n_logits++] = (int32_t)(first + i);
    b->max_kv = WF_MAX(b->max_kv, kv);
    b->max_q = WF_MAX(b->max_q, n);
}

void wf_sched_batch(wf_sched *s, wf_batch *b)
{
    plan p = {0};
    b->n_rows = b->n_seqs = b->n_pages = b->n_logits = b->n_fed = b->n_decodes = b->max_kv = b->max_q = 0;
    b->in[WF_INPUT_INDPTR][0] = 0;
    wf_sched_clear_moves(s);
    wf_sched_admit(s);
    for (wf_seq *q = s->running; q; q = q->next) q->n_rows = q->n_logits = 0;
    if (s->p.policy != WF_POLICY_REQUEST || !prefilling(s)) plan_decodes(s, &p);
    plan_prefills(s, &p);
    cut_to_tiles(s, &p);
    for (wf_seq *q = s->running; q; q = q->next)
        if (q->n_rows && decoding(q)) add_rows(s, b, q);
    b->n_decodes = b->n_rows;
    for (wf_seq *q = s->running; q; q = q->next)
        if (q->n_rows && !decoding(q)) add_rows(s, b, q);
}
