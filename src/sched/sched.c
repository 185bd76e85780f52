/* sched: admission and batch formation. See sched.h. */
#include "sched/sched.h"

#include <stdlib.h>
#include <string.h>

weft_status wf_sched_init(wf_sched *s, const wf_limits *l, uint32_t page_tokens, uint64_t shuffle_pages)
{
    *s = (wf_sched){.limits = *l, .page_tokens = page_tokens};
    return wf_pages_init(&s->pages, l->pages, shuffle_pages);
}

void wf_sched_free(wf_sched *s)
{
    wf_pages_free(&s->pages);
    memset(s, 0, sizeof *s);
}

/* ---- lists --------------------------------------------------------------------------------------------- */

static void append(wf_seq **list, wf_seq *q)
{
    while (*list) list = &(*list)->next;
    q->next = NULL;
    *list = q;
}

static void unlink_seq(wf_seq **list, wf_seq *q)
{
    while (*list && *list != q) list = &(*list)->next;
    if (*list) *list = q->next;
    q->next = NULL;
}

void wf_sched_add(wf_sched *s, wf_seq *q)
{
    append(&s->waiting, q);
    s->n_waiting++;
}

void wf_sched_remove(wf_sched *s, wf_seq *q)
{
    unlink_seq(q->running ? &s->running : &s->waiting, q);
    *(q->running ? &s->n_running : &s->n_waiting) -= 1;
    wf_pages_give(&s->pages, q->pages, q->n_pages);
    free(q->pages);
    q->pages = NULL;
    q->n_pages = 0;
    q->running = false;
}

/* ---- admission ----------------------------------------------------------------------------------------- */

/* False: not enough pages or memory now; it stays at the head of the queue, so that nobody starves. */
static bool admit(wf_sched *s, wf_seq *q)
{
    uint32_t n = (q->max_tokens + s->page_tokens - 1) / s->page_tokens;
    if (s->n_running == s->limits.seqs || n > s->pages.n_free) return false;
    q->pages = wf_calloc(n, sizeof *q->pages);
    if (!q->pages) return false;
    wf_pages_take(&s->pages, n, q->pages);
    q->n_pages = n;
    unlink_seq(&s->waiting, q);
    append(&s->running, q);
    q->running = true;
    s->n_waiting--;
    s->n_running++;
    return true;
}

/* ---- batch --------------------------------------------------------------------------------------------- */

static uint32_t wanted_logits(const wf_seq *q, uint32_t n_rows)
{
    if (q->all_logits) return n_rows;
    return !q->no_logits && q->n_done + n_rows == q->n_tokens;
}

/* Rows of q that fit beside what b holds. */
static uint32_t chunk(const wf_sched *s, const wf_batch *b, const wf_seq *q)
{
    uint32_t n = WF_MIN(q->n_tokens - q->n_done, s->limits.rows - b->n_rows);
    uint32_t logits = s->limits.logit_rows - b->n_logits;
    if (q->all_logits) return WF_MIN(n, logits);
    return n && wanted_logits(q, n) > logits ? n - 1 : n;
}

static void add_rows(const wf_sched *s, wf_batch *b, wf_seq *q, uint32_t n)
{
    uint32_t seq = b->n_seqs++, first = b->n_rows, p = s->page_tokens;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t pos = q->n_done + i, row = b->n_rows++;
        b->in[WF_INPUT_TOKEN][row] = q->tokens[pos];
        b->in[WF_INPUT_POS][row] = (int32_t)pos;
        b->in[WF_INPUT_SEQ][row] = (int32_t)seq;
        b->in[WF_INPUT_SLOT][row] = q->pages[pos / p] * (int32_t)p + (int32_t)(pos % p);
    }
    uint32_t kv = q->n_done + n, pages = (kv + p - 1) / p;
    memcpy(b->in[WF_INPUT_PAGES] + b->n_pages, q->pages, pages * sizeof(int32_t));
    b->n_pages += pages;
    b->in[WF_INPUT_INDPTR][seq + 1] = (int32_t)b->n_pages;
    q->n_rows = n;
    q->logit0 = b->n_logits;
    q->n_logits = wanted_logits(q, n);
    for (uint32_t i = n - q->n_logits; i < n; i++) b->in[WF_INPUT_LOGIT_ROWS][b->n_logits++] = (int32_t)(first + i);
    b->max_kv = WF_MAX(b->max_kv, kv);
    b->max_q = WF_MAX(b->max_q, n);
}

static bool decoding(const wf_seq *q)
{
    return q->n_done > 0 && q->n_tokens - q->n_done == 1;
}

void wf_sched_batch(wf_sched *s, wf_batch *b)
{
    while (s->waiting && admit(s, s->waiting)) {}
    b->n_rows = b->n_seqs = b->n_pages = b->n_logits = b->max_kv = b->max_q = 0;
    b->in[WF_INPUT_INDPTR][0] = 0;
    for (wf_seq *q = s->running; q; q = q->next) q->n_rows = q->n_logits = 0;
    for (int prefill = 0; prefill < 2; prefill++)
        for (wf_seq *q = s->running; q; q = q->next) {
            if (decoding(q) == (bool)prefill) continue;
            uint32_t n = chunk(s, b, q);
            if (n) add_rows(s, b, q, n);
        }
}

void wf_sched_advance(wf_sched *s)
{
    for (wf_seq *q = s->running; q; q = q->next) q->n_done += q->n_rows;
}
