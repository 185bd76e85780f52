/* sched: sequences and their lists. See sched.h. */
#include "sched/internal.h"

#include <stdlib.h>
#include <string.h>

static const char *const policies[] = {[WF_POLICY_NANOFLOW] = "nanoflow", [WF_POLICY_SARATHI] = "sarathi", [WF_POLICY_ORCA] = "orca",
                                       [WF_POLICY_REQUEST] = "request"};

weft_status wf_policy_parse(const char *name, enum wf_policy *out)
{
    for (size_t i = 0; i < WF_LEN(policies); i++)
        if (!name || !strcmp(name, policies[i])) return *out = (enum wf_policy)i, WEFT_OK;
    return wf_fail(WEFT_ERR_ARG, "policy '%s' does not exist; want nanoflow, sarathi, orca or request", name);
}

weft_status wf_sched_init(wf_sched *s, const wf_limits *l, const wf_sched_params *p)
{
    *s = (wf_sched){.limits = *l, .p = *p};
    if (!s->p.tile) s->p.tile = 1;
    for (size_t i = 0; i < WF_CLASSES; i++) s->average[i] = -1;
    weft_status st = wf_pages_init(&s->pages, l->pages, wf_limits_base(l), p->shuffle_pages);
    if (st == WEFT_OK) st = wf_prefix_init(&s->prefix, &s->pages, p->page_tokens);
    s->peaks = wf_calloc(l->seqs + 1, sizeof *s->peaks);
    s->remainders = wf_calloc(p->page_tokens, sizeof *s->remainders);
    if (!s->peaks || !s->remainders) st = WEFT_ERR_NOMEM;
    if (st != WEFT_OK) wf_sched_free(s);
    return st;
}

void wf_sched_clear_moves(wf_sched *s)
{
    while (s->n_moves) free(s->moves[--s->n_moves].pages);
}

void wf_sched_free(wf_sched *s)
{
    wf_sched_clear_moves(s);
    free(s->moves);
    free(s->peaks);
    free(s->remainders);
    wf_prefix_free(&s->prefix);
    wf_pages_free(&s->pages);
    memset(s, 0, sizeof *s);
}

uint32_t wf_sched_pages_for(const wf_sched *s, uint32_t tokens)
{
    return (tokens + s->p.page_tokens - 1) / s->p.page_tokens;
}

/* ---- lists --------------------------------------------------------------------------------------------- */

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
    wf_sched_insert(&s->waiting, q);
    s->n_waiting++;
}

/* ---- copies ---------------------------------------------------------------------------------------------- */

bool wf_sched_move(wf_sched *s, wf_seq *q, bool out, uint32_t n)
{
    int32_t *pages = wf_calloc(n + 1, sizeof *pages);
    if (!pages || !wf_grow(&s->moves, s->n_moves, &s->cap_moves, sizeof *s->moves)) return free(pages), false;
    memcpy(pages, q->pages, n * sizeof *pages);
    s->moves[s->n_moves++] = (wf_move){q, out, pages, n};
    return true;
}

/* ---- a step ------------------------------------------------------------------------------------------------- */

/* Pages that are full, computed, and of known tokens can be found by others from now on. */
static void publish(wf_sched *s, wf_seq *q)
{
    uint32_t p = s->p.page_tokens, n = WF_MIN(q->n_done, q->n_tokens);
    if (s->p.no_prefix) return;
    for (; (q->n_registered + 1) * p <= n; q->n_registered++)
        q->prefix = wf_prefix_add(&s->prefix, q->prefix, q->tokens + (size_t)q->n_registered * p, q->pages[q->n_registered]);
}

static bool chooses(const wf_seq *q)
{
    return q->n_logits && !q->no_logits && q->n_done == wf_seq_length(q) && q->n_done < q->max_tokens;
}

void wf_sched_advance(wf_sched *s, bool ahead)
{
    for (wf_seq *q = s->running; q; q = q->next) {
        q->n_done += q->n_rows;
        publish(s, q);
        if (!q->n_rows || !ahead || !chooses(q)) continue;
        q->n_ahead++;
        q->fed = q->logit0 + q->n_logits - 1;
    }
    wf_sched_clear_moves(s);
    s->step++;
}

/* ---- the end ------------------------------------------------------------------------------------------------ */

/* Moving average of decode lengths, over about the last 16. */
static void learn(wf_sched *s, const wf_seq *q)
{
    double length = q->n_tokens - q->n_prompt, *a = &s->average[q->class];
    *a = *a < 0 ? length : *a + (length - *a) / 16;
}

void wf_sched_remove(wf_sched *s, wf_seq *q, bool finished)
{
    bool running = q->state == WF_SEQ_RUNNING;
    if (running) publish(s, q);
    if (q->state != WF_SEQ_NEW) {
        wf_sched_unlink(running ? &s->running : &s->waiting, q);
        *(running ? &s->n_running : &s->n_waiting) -= 1;
    }
    if (finished && !q->no_logits) learn(s, q);
    wf_pages_give(&s->pages, q->pages, q->n_pages);
    free(q->pages);
    q->pages = NULL;
    q->n_pages = q->cap_pages = 0;
    q->aside = false;
    q->state = WF_SEQ_NEW;
}

void wf_sched_forget(wf_sched *s, wf_seq *q)
{
    (void)s;
    q->aside = false;
    q->n_done = 0;
}
