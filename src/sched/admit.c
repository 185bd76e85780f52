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
    uint32_t all = wf_sched_pages_for(s, tokens), window = s->p.tables[table].window;
    return window ? WF_MIN(all, wf_sched_kept(s, table) + wf_sched_pages_for(s, window) + 1ull) : all;
}

/* The peak lies at the end of some sequence. By then this sequence and all that outlive it have grown by its
 * remaining tokens; sorting makes that one pass. */
uint32_t wf_sched_predict(wf_sched *s, const wf_seq *with)
{
    uint64_t p = s->p.page_tokens, tokens = 0, peak = 0, listed = 0;
    size_t n = 0;
    for (const wf_seq *q = s->running; q; q = q->next) {
        s->peaks[n++] = (wf_peak){predicted_rest(s, q), wf_seq_length(q)};
        listed += wf_seq_held(q, q->n_pages);
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
        uint64_t held = wf_sched_pages_for(s, s->limits.step_tokens);
        for (size_t i = 0; i < n; i++) held += most_held(s, t, s->peaks[i].tokens + s->peaks[i].remaining);
        peak += s->p.tables[t].window ? WF_MIN(all, held) : all;
    }
    /* shared pages are listed once per sequence */
    uint64_t twice = listed - WF_MIN(listed, wf_pages_in_use(&s->pages));
    return (uint32_t)(peak - WF_MIN(peak, twice));
}

/* ---- admission ----------------------------------------------------------------------------------------------- */

/* Does q fit now, with the pages it swaps in, and later, by prediction? A sequence that runs alone always does. One
 * more sequence may need more activations for its decodes: pages in use must leave room for them. */
static bool fits_now(wf_sched *s, const wf_seq *q)
{
    uint32_t now = q->swapped_out ? wf_seq_held(q, wf_sched_pages_for(s, q->n_computed + 1)) : q->n_tables;
    if (s->n_running >= WF_MIN(s->limits.seqs, s->limits.step_tokens)) return false;
    uint32_t limit = wf_limits_max_pages(&s->limits, s->n_running + 1);
    if (wf_pages_high_water(&s->pages) > limit || wf_pages_available(&s->pages, limit) < now) return false;
    return !s->n_running || wf_sched_predict(s, q) <= limit;
}

/* The pages that q holds of its first n of each table. */
static bool swap_pages(wf_sched *s, wf_seq *q, bool out, uint32_t n)
{
    weft_status st = out ? wf_swap_alloc(s->swaps, wf_seq_held(q, n), &q->host) : WEFT_OK;
    for (uint32_t t = 0, at = 0; t < q->n_tables && st == WEFT_OK; t++) {
        uint32_t kept = q->tables[t].kept, passed = q->tables[t].passed;
        st = wf_swap_move(s->swaps, out, wf_seq_table(q, t), kept, &q->host, &at);
        if (st == WEFT_OK) st = wf_swap_move(s->swaps, out, wf_seq_table(q, t) + passed, n - passed, &q->host, &at);
    }
    if (st != WEFT_OK) wf_swap_release(s->swaps, &q->host);
    return st == WEFT_OK;
}

/* false: there are no pages, or q begins anew, since it cannot be moved. */
static bool swap_in(wf_sched *s, wf_seq *q)
{
    uint32_t all = wf_sched_pages_for(s, q->n_computed), limit = wf_limits_max_pages(&s->limits, s->n_running + 1);
    if (wf_pages_available(&s->pages, limit) < wf_seq_held(q, all)) return false;
    for (uint32_t t = 0; t < q->n_tables; t++) {
        wf_pages_alloc(&s->pages, q->tables[t].kept, limit, wf_seq_table(q, t));
        wf_pages_alloc(&s->pages, all - q->tables[t].passed, limit, wf_seq_table(q, t) + q->tables[t].passed);
    }
    q->n_pages = all;
    q->swapped_out = false;
    if (swap_pages(s, q, false, all)) return true;
    wf_sched_release(s, q);
    wf_sched_restart(q);
    return false;
}

static bool admit_seq(wf_sched *s, wf_seq *q)
{
    size_t most = s->limits.seq_pages;
    /* retried in the next step */
    if (!q->keys && !(q->keys = wf_calloc(most, sizeof *q->keys))) return false;
    if (!q->pages && !(q->pages = wf_calloc(q->n_tables * most, sizeof *q->pages))) return false;
    q->cap_pages = s->limits.seq_pages;
    if (q->swapped_out && !swap_in(s, q)) return false;
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

/* Its pages are free at once: whatever overwrites them waits for their move. One that has computed nothing since it came
 * back is still on the host. Pages that windows have passed were registered before. */
static void preempt_seq(wf_sched *s, wf_seq *q)
{
    uint32_t used = wf_sched_pages_for(s, q->n_computed);
    wf_sched_leave_load(s, q);
    q->swapped_out = q->host.host.data || (s->swaps && used && swap_pages(s, q, true, used));
    wf_sched_release(s, q);
    if (!q->swapped_out) wf_sched_restart(q); /* recomputed later */
    if (!q->tables[0].passed) q->n_registered = 0;
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
        if (v->n_pages && !v->n_scheduled) last = v;
    if (last) preempt_seq(s, last);
    return last;
}
