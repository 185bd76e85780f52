/* fair: clients take turns. Admission is the virtual token counter (VTC) of Sheng et al., "Fairness in Serving Large
 * Language Models", OSDI 2024 (algorithm 2): a counter says what each client has been served, in tokens, and the next
 * sequence is the first one of the client with the smallest counter. Who was idle is lifted to the smallest counter of
 * those that compete, so that nobody saves up service.
 *
 * Differences. A prompt is paid for as it is computed; until then it is promised, which counts for admission alone. So
 * among admitted sequences, whose prompts can take many steps, clients take turns as well. A preempted sequence goes
 * first: it is paid for. Prompt tokens found in the prefix cache cost nothing. A client at its limit of running
 * sequences is lifted as if it had been idle when it may run more. A client that has nothing does not wait for
 * one that runs several sequences: one of these is preempted (admit.c).
 *
 * Bounds, without priorities. Let L be the tokens of the longest prompt, A those of the longest answer, K = L + A,
 * and n the sequences that may run at a time. What clients that wait have been served and promised differs by at
 * most L + n * (L + WF_FAIR_OUTPUT * A): one prompt, and what runs already. Before the first sequence of a client
 * that owes nothing, each client that waited when it came has at most one more admitted; so until it is admitted, at
 * most (n + those clients) * K tokens are computed. tests/unit/fair.c checks this. */
#include "sched/internal.h"

#include <stdlib.h>

void wf_fair_init(wf_sched *s)
{
    s->clients = &s->nobody;
}

void wf_fair_free(wf_sched *s)
{
    for (wf_client *c = s->clients, *next; c && c != &s->nobody; c = next) {
        next = c->next;
        free(c);
    }
}

/* ---- counters ------------------------------------------------------------------------------------------------ */

static bool can_admit(const wf_sched *s, const wf_client *c)
{
    return c->waiting && (!s->p.seqs_per_client || c->n_active < s->p.seqs_per_client);
}

static bool competes(const wf_sched *s, const wf_client *c)
{
    return c->promised || can_admit(s, c);
}

/* The smallest counter of the clients that compete. It never falls: a client that begins to compete is lifted to it. */
static int64_t floor_of(const wf_sched *s)
{
    int64_t least = INT64_MAX;
    for (const wf_client *c = s->clients; c; c = c->next)
        if (competes(s, c)) least = WF_MIN(least, c->served);
    return least < INT64_MAX ? least : s->floor;
}

/* What was before a change to c. */
typedef struct before {
    bool competed;
    int64_t floor;
} before;

static before begin_change(const wf_sched *s, const wf_client *c)
{
    return (before){competes(s, c), floor_of(s)};
}

static void end_change(wf_sched *s, wf_client *c, before b)
{
    bool any = false;
    for (const wf_client *x = s->clients; x && !any; x = x->next) any = competes(s, x);
    if (!b.competed && competes(s, c)) c->served = WF_MAX(c->served, b.floor);
    if (b.competed && !any) s->floor = WF_MAX(s->floor, c->served);
}

/* ---- clients ------------------------------------------------------------------------------------------------- */

static void forget_client(wf_sched *s, wf_client *c)
{
    wf_client **at = &s->clients;
    while (*at != c) at = &(*at)->next;
    *at = c->next;
    free(c);
    s->n_clients--;
}

/* Forgets idle clients at the floor: they would be lifted to it. If too many are left, the one least above it goes,
 * too; as somebody new it would get as much. */
static void forget_idle(wf_sched *s)
{
    int64_t floor = floor_of(s);
    wf_client *least = NULL;
    size_t n = 0;
    for (wf_client *c = s->clients, *next; c; c = next) {
        next = c->next;
        if (c->waiting || c->n_active || c == &s->nobody) continue; /* not idle; of idle ones nothing is promised */
        if (c->served <= floor) {
            forget_client(s, c);
            continue;
        }
        n++;
        if (!least || c->served < least->served) least = c;
    }
    if (n >= WF_IDLE_CLIENTS) forget_client(s, least);
}

/* The client of this id. Without memory for one more it is nobody in particular. */
static wf_client *client_of(wf_sched *s, uint64_t id)
{
    for (wf_client *c = s->clients; c; c = c->next)
        if (c->id == id) return c;
    forget_idle(s);
    wf_client *c = wf_calloc(1, sizeof *c);
    if (!c) return &s->nobody;
    *c = (wf_client){.next = s->clients, .id = id};
    s->clients = c;
    s->n_clients++;
    return c;
}

/* ---- sequences ----------------------------------------------------------------------------------------------- */

void wf_fair_arrive(wf_sched *s, wf_seq *q)
{
    wf_client *c = q->client = client_of(s, q->client_id);
    before b = begin_change(s, c);
    wf_sched_insert(&c->waiting, q);
    end_change(s, c, b);
}

void wf_fair_admit(wf_sched *s, wf_seq *q)
{
    wf_client *c = q->client;
    before b = begin_change(s, c);
    wf_sched_unlink(&c->waiting, q);
    c->n_active++;
    c->promised += q->n_prompt - q->n_computed;
    q->n_paid = q->n_computed;
    end_change(s, c, b);
}

static void pay_tokens(wf_sched *s, wf_seq *q, uint32_t n_paid)
{
    before b = begin_change(s, q->client);
    q->client->promised -= n_paid - q->n_paid;
    q->client->served += n_paid - q->n_paid;
    q->n_paid = n_paid;
    end_change(s, q->client, b);
}

void wf_fair_found(wf_sched *s, wf_seq *q)
{
    before b = begin_change(s, q->client);
    uint32_t n = WF_MAX(q->n_paid, WF_MIN(q->n_computed, q->n_prompt));
    q->client->promised -= n - q->n_paid;
    q->n_paid = n;
    end_change(s, q->client, b);
}

void wf_fair_computed(wf_sched *s, wf_seq *q, bool sampled)
{
    uint32_t n = WF_MIN(q->n_computed, q->n_prompt);
    if (n > q->n_paid) pay_tokens(s, q, n);
    if (sampled) q->client->served += WF_FAIR_OUTPUT;
}

void wf_fair_leave(wf_sched *s, wf_seq *q)
{
    wf_client *c = q->client;
    before b = begin_change(s, c);
    if (q->state == WF_SEQ_WAITING) wf_sched_unlink(&c->waiting, q);
    else c->n_active--;
    end_change(s, c, b);
    /* or who cancels would be admitted before others again and again */
    if (q->state != WF_SEQ_WAITING) pay_tokens(s, q, q->n_prompt);
}

/* ---- turns --------------------------------------------------------------------------------------------------- */

/* What q's client has been served, less what its priority is worth. */
static int64_t served_by_priority(const wf_seq *q)
{
    return q->client->served - (int64_t)q->priority * WF_PRIORITY_TOKENS;
}

/* Where x, of q, equals y, of r, it is the one that came first: so however many come, they are behind those who
 * wait. */
static bool is_before(const wf_seq *q, int64_t x, const wf_seq *r, int64_t y)
{
    return x < y || (x == y && q->order < r->order);
}

wf_seq *wf_fair_next(const wf_sched *s, bool first)
{
    wf_seq *next = NULL;
    if (s->preempted && !first) return s->preempted;
    for (const wf_client *c = s->clients; c; c = c->next) {
        wf_seq *q = c->waiting;
        if (!can_admit(s, c) || (first && c->n_active)) continue;
        if (!next || is_before(q, served_by_priority(q) + c->promised, next, served_by_priority(next) +
                               next->client->promised)) next = q;
    }
    return next;
}

static int in_turn(const void *a, const void *b)
{
    const wf_seq *q = *(wf_seq *const *)a, *r = *(wf_seq *const *)b;
    if (q->client == r->client) return q->order < r->order ? -1 : 1;
    q = q->client->prompt, r = r->client->prompt;
    return is_before(q, served_by_priority(q), r, served_by_priority(r)) ? -1 : 1;
}

void wf_fair_sort(wf_seq **list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) list[i]->client->prompt = NULL;
    for (uint32_t i = 0; i < n; i++)
        if (!list[i]->client->prompt) list[i]->client->prompt = list[i];
    qsort(list, n, sizeof *list, in_turn);
}
