/* admit: admission and preemption. KV pages are the only resource that can run out. */
#include "sched/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- prediction ---------------------------------------------------------------------------------------------- */

/* Tokens that q will still generate if its answer has the average length of its bucket. */
static uint32_t predicted_rest(const wf_sched *s, const wf_seq *q)
{
    uint32_t length = wf_seq_length(q), most = q->no_logits ? 0 : q->max_tokens - length,
        written = length - q->n_prompt;
    double average = s->average[q->length_bucket];
    if (average < 0) return most; /* none has finished yet: assume the worst */
    /* else it is already longer than the average */
    double rest = average > written ? average - written : average / 2 + 1;
    return rest < most ? (uint32_t)rest : most;
}

static int longest_first(const void *a, const void *b)
{
    const wf_peak *x = a, *y = b;
    return (x->remaining < y->remaining) - (x->remaining > y->remaining);
}

/* Of a table of a sequence with this number of tokens: with windows those that one token of it attends to; a window
 * may begin and end within a page. */
static uint64_t most_held(const wf_sched *s, uint32_t table, uint32_t tokens)
{
    uint32_t all = wf_kv_pages_for(&s->kv, tokens), window = s->p.kv.tables[table].window;
    return window ? WF_MIN(all, wf_kv_kept(&s->kv, table) + wf_kv_pages_for(&s->kv, window) + 1ull) : all;
}

/* The peak lies at the end of some sequence. By then this sequence and all that outlive it have grown by its
 * remaining tokens; sorting makes that one pass. */
uint32_t wf_sched_predict(wf_sched *s, const wf_seq *with)
{
    uint64_t p = s->p.kv.page_tokens, tokens = 0, peak = 0, listed = 0;
    size_t n = 0;
    for (const wf_seq *q = s->running; q; q = q->next) {
        s->peaks[n++] = (wf_peak){predicted_rest(s, q), wf_seq_length(q)};
        listed += wf_kv_held(&q->kv, q->kv.n_pages);
    }
    if (with) s->peaks[n++] = (wf_peak){predicted_rest(s, with), wf_seq_length(with)};
    qsort(s->peaks, n, sizeof *s->peaks, longest_first);
    memset(s->remainders, 0, p * sizeof *s->remainders);
    for (size_t i = 0; i < n; i++) {
        uint32_t r = s->peaks[i].remaining;
        tokens += s->peaks[i].tokens;
        s->remainders[s->peaks[i].tokens % p]++;
        /* unused slots in last pages, counted by length modulo page size, once all have grown by r tokens */
        uint64_t padding = 0;
        for (uint32_t c = 0; c < p; c++) padding += s->remainders[c] * ((p - (c + r) % p) % p);
        peak = WF_MAX(peak, (tokens + (i + 1) * (uint64_t)r + padding) / p);
    }
    /* All tables grow alike; with windows, sequences hold at most what they do at their ends, and prompts what a
     * step has. */
    uint64_t all = peak;
    peak = 0;
    for (uint32_t t = 0; t < wf_limits_tables(&s->limits); t++) {
        uint64_t held = wf_kv_pages_for(&s->kv, s->limits.step_tokens);
        for (size_t i = 0; i < n; i++) held += most_held(s, t, s->peaks[i].tokens + s->peaks[i].remaining);
        peak += s->p.kv.tables[t].window ? WF_MIN(all, held) : all;
    }
    /* shared pages are listed once per sequence */
    uint64_t twice = listed - WF_MIN(listed, wf_pages_in_use(&s->kv.pages));
    return (uint32_t)(peak - WF_MIN(peak, twice));
}

/* ---- admission ----------------------------------------------------------------------------------------------- */

/* Does q fit now, with the pages it swaps in, and later, by prediction? A sequence that runs alone always does. One
 * more sequence may need more activations for its decodes: pages in use must leave room for them. */
static bool fits_now(wf_sched *s, const wf_seq *q)
{
    uint32_t now = q->kv.swapped_out ? wf_kv_held(&q->kv, wf_kv_pages_for(&s->kv, q->n_computed + 1)) : q->kv.n_tables;
    if (s->n_running >= WF_MIN(s->limits.seqs, s->limits.step_tokens)) return false;
    uint32_t limit = wf_limits_max_pages(&s->limits, s->n_running + 1);
    if (wf_pages_high_water(&s->kv.pages) > limit || wf_pages_available(&s->kv.pages, limit) < now) return false;
    return !s->n_running || wf_sched_predict(s, q) <= limit;
}

/* false: there are no pages, or q begins anew, since it cannot be moved. */
static bool swap_in(wf_sched *s, wf_seq *q)
{
    uint32_t limit = wf_limits_max_pages(&s->limits, s->n_running + 1);
    if (wf_kv_swap_in(&s->kv, &q->kv, wf_kv_pages_for(&s->kv, q->n_computed), limit)) return true;
    if (!q->kv.swapped_out) q->n_computed = 0;
    return false;
}

static bool admit_seq(wf_sched *s, wf_seq *q)
{
    if (!wf_kv_open(&q->kv, s->limits.seq_pages)) return false; /* retried in the next step */
    if (q->kv.swapped_out && !swap_in(s, q)) return false;
    if (!q->n_computed) wf_sched_find_prefix(s, q, true);
    if (q->state == WF_SEQ_PREEMPTED) wf_sched_unlink(&s->preempted, q);
    else wf_fair_admit(s, q);
    wf_sched_insert(&s->running, q);
    q->state = WF_SEQ_RUNNING;
    s->n_waiting--;
    s->n_running++;
    return true;
}

/* ---- preemption ---------------------------------------------------------------------------------------------- */

static void preempt_seq(wf_sched *s, wf_seq *q)
{
    wf_kv_leave_load(&s->kv, &q->kv);
    if (!wf_kv_swap_out(&s->kv, &q->kv, wf_kv_pages_for(&s->kv, q->n_computed))) q->n_computed = 0; /* again, later */
    wf_sched_unlink(&s->running, q);
    wf_sched_insert(&s->preempted, q);
    q->state = WF_SEQ_PREEMPTED;
    q->n_scheduled = q->n_logits = 0; /* of the step before, where it goes before the next is formed */
    s->n_running--;
    s->n_waiting++;
    s->n_preempted++;
}

/* The youngest sequence of the client that runs the most, unless it is more urgent than q; NULL: nobody runs
 * several. */
static wf_seq *dispensable(wf_sched *s, const wf_seq *q)
{
    wf_seq *last = NULL;
    for (wf_client *c = s->clients; c; c = c->next) c->n_running = 0;
    for (const wf_seq *v = s->running; v; v = v->next) v->client->n_running++;
    for (wf_seq *v = s->running; v; v = v->next)
        if (v->priority <= q->priority && v->client->n_running >= (last ? last->client->n_running : 2)) last = v;
    return last;
}

/* Preempts as many of these as q needs to fit, or none. */
static bool make_room(wf_sched *s, const wf_seq *q)
{
    wf_seq *out = NULL, *v;
    bool fits = fits_now(s, q);
    while (!fits && (v = dispensable(s, q))) {
        wf_sched_unlink(&s->running, v);
        wf_sched_insert(&out, v);
        s->n_running--;
        fits = fits_now(s, q);
    }
    while ((v = out)) {
        wf_sched_unlink(&out, v);
        wf_sched_insert(&s->running, v);
        s->n_running++;
        if (fits) preempt_seq(s, v);
    }
    return fits;
}

/* A sequence that does not fit stays the next, and none overtakes it but the first one of a client that has none: it
 * does not wait for who has several. */
void wf_sched_admit(wf_sched *s)
{
    if (s->p.policy == WF_POLICY_REQUEST && s->n_running) return;
    for (wf_seq *q = wf_fair_next(s, false); q && fits_now(s, q) && admit_seq(s, q);) q = wf_fair_next(s, false);
    for (wf_seq *q; (q = wf_fair_next(s, true)) && make_room(s, q) && admit_seq(s, q);) continue;
}

bool wf_sched_preempt(wf_sched *s, const wf_seq *q)
{
    wf_seq *last = NULL; /* that has pages and no tokens in the batch being formed */
    for (wf_seq *v = q->next; v; v = v->next)
        if (v->kv.n_pages && !v->n_scheduled) last = v;
    if (last) preempt_seq(s, last);
    return last;
}
