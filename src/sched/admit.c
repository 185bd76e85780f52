/* admit: who begins, who must be put aside. Pages are the only thing that runs out. */
#include "sched/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- prediction --------------------------------------------------------------------------------------------- */

/* Tokens that q will still write, if it writes as many as its class does on average. */
static uint32_t remaining(const wf_sched *s, const wf_seq *q)
{
    uint32_t length = wf_seq_length(q), most = q->no_logits ? 0 : q->max_tokens - length, written = length - q->n_prompt;
    double average = s->average[q->class];
    if (average < 0) return most; /* none has ended yet: the worst */
    double rest = average > written ? average - written : average / 2 + 1; /* it outlived the average */
    return rest < most ? (uint32_t)rest : most;
}

static int longest_first(const void *a, const void *b)
{
    const wf_peak *x = a, *y = b;
    return (x->remaining < y->remaining) - (x->remaining > y->remaining);
}

/* Slots left empty in the last pages, when sequences whose lengths are counted by remainder have grown by r. */
static uint64_t padding(const wf_sched *s, uint32_t r)
{
    uint64_t sum = 0;
    uint32_t p = s->p.page_tokens;
    for (uint32_t c = 0; c < p; c++) sum += (uint64_t)s->remainders[c] * ((p - (c + r) % p) % p);
    return sum;
}

/* The peak is at the end of some sequence: until then it and all that outlive it have grown by what it had
 * remaining (sorted, so one pass). */
uint32_t wf_sched_predict(wf_sched *s, const wf_seq *with)
{
    uint64_t p = s->p.page_tokens, tokens = 0, peak = 0, listed = 0;
    size_t n = 0;
    for (const wf_seq *q = s->running; q; q = q->next) {
        s->peaks[n++] = (wf_peak){remaining(s, q), wf_seq_length(q)};
        listed += q->n_pages;
    }
    if (with) s->peaks[n++] = (wf_peak){remaining(s, with), wf_seq_length(with)};
    qsort(s->peaks, n, sizeof *s->peaks, longest_first);
    memset(s->remainders, 0, p * sizeof *s->remainders);
    for (size_t i = 0; i < n; i++) {
        uint32_t r = s->peaks[i].remaining;
        tokens += s->peaks[i].tokens;
        s->remainders[s->peaks[i].tokens % p]++;
        peak = WF_MAX(peak, (tokens + (i + 1) * (uint64_t)r + padding(s, r)) / p);
    }
    uint64_t twice = listed - WF_MIN(listed, wf_pages_held(&s->pages)); /* shared: counted for each holder */
    return (uint32_t)(peak - WF_MIN(peak, twice));
}

/* ---- beginning ------------------------------------------------------------------------------------------------ */

/* Full pages at the start of q's tokens that are there already; at least one token is left to compute, since its
 * logits are wanted. */
static void share_prefix(wf_sched *s, wf_seq *q)
{
    uint32_t p = s->p.page_tokens, most = (q->n_tokens - 1) / p;
    if (s->p.no_prefix || q->all_logits) return;
    uint64_t self = 0;
    for (int32_t page; q->n_pages < most; q->n_pages++) {
        page = wf_prefix_find(&s->prefix, q->prefix, q->tokens + (size_t)q->n_pages * p, &self);
        if (page < 0) break;
        wf_pages_share(&s->pages, page);
        q->pages[q->n_pages] = page;
        q->prefix = self;
    }
    q->n_registered = q->n_pages;
    q->n_done = q->n_pages * p;
}

/* Whether q fits: now, with the pages it comes back to, and later, by prediction. Alone it always does. With one more
 * sequence decodes may need more activations: pages in use may not be in their way. */
static bool fits(wf_sched *s, const wf_seq *q)
{
    uint32_t now = q->aside ? wf_sched_pages_for(s, q->n_done + 1) : 1;
    if (s->n_running >= WF_MIN(s->limits.seqs, s->limits.rows)) return false;
    uint32_t spread = wf_limits_spread(&s->limits, s->n_running + 1);
    if (wf_pages_top(&s->pages) > spread || wf_pages_available(&s->pages, spread) < now) return false;
    return !s->n_running || wf_sched_predict(s, q) <= spread;
}

static bool bring_back(wf_sched *s, wf_seq *q)
{
    uint32_t n = wf_sched_pages_for(s, q->n_done);
    if (!wf_pages_take(&s->pages, n, wf_limits_spread(&s->limits, s->n_running + 1), q->pages)) return false;
    q->n_pages = n;
    if (wf_sched_move(s, q, false, n)) return q->aside = false, true;
    wf_pages_give(&s->pages, q->pages, n);
    q->n_pages = 0;
    return false;
}

static bool begin(wf_sched *s, wf_seq *q)
{
    if (!q->pages && !(q->pages = wf_calloc(s->limits.seq_pages, sizeof *q->pages))) return false; /* tried again next step */
    q->cap_pages = s->limits.seq_pages;
    if (q->aside && !bring_back(s, q)) return false;
    bool first = !q->n_done && wf_seq_length(q) == q->n_prompt;
    if (!q->n_done) share_prefix(s, q);
    if (first) {
        s->prefix_queries += q->n_prompt;
        s->prefix_hits += q->n_cached = q->n_done;
    }
    wf_sched_unlink(&s->waiting, q);
    wf_sched_insert(&s->running, q);
    q->state = WF_SEQ_RUNNING;
    s->n_waiting--;
    s->n_running++;
    return true;
}

/* Who does not fit now stays at the head, and nobody overtakes it. */
void wf_sched_admit(wf_sched *s)
{
    if (s->p.policy == WF_POLICY_REQUEST && s->n_running) return;
    while (s->waiting && fits(s, s->waiting) && begin(s, s->waiting)) {}
}

/* ---- putting aside ---------------------------------------------------------------------------------------------- */

/* Its pages are free at once: the copy is made before the step that writes them. */
static void put_aside(wf_sched *s, wf_seq *q)
{
    uint32_t used = wf_sched_pages_for(s, q->n_done);
    q->aside = used && wf_sched_move(s, q, true, used);
    if (!q->aside) q->n_done = 0; /* computed again */
    wf_pages_give(&s->pages, q->pages, q->n_pages);
    q->n_pages = q->n_registered = 0;
    q->prefix = 0;
    wf_sched_unlink(&s->running, q);
    wf_sched_insert(&s->waiting, q);
    q->state = WF_SEQ_WAITING;
    s->n_running--;
    s->n_waiting++;
    s->n_preempted++;
}

/* The last in order behind q that has pages and no rows in the batch being formed. */
static wf_seq *victim(const wf_seq *q)
{
    wf_seq *last = NULL;
    for (wf_seq *v = q->next; v; v = v->next)
        if (v->n_pages && !v->n_rows) last = v;
    return last;
}

bool wf_sched_preempt(wf_sched *s, const wf_seq *q)
{
    wf_seq *v = victim(q);
    if (v) put_aside(s, v);
    return v;
}
