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
    weft_status st = wf_kv_init(&s->kv, l, &s->p.kv);
    s->peaks = wf_calloc(l->seqs + 1, sizeof *s->peaks);
    s->remainders = wf_calloc(p->kv.page_tokens, sizeof *s->remainders);
    s->prompts = wf_calloc(l->seqs, sizeof *s->prompts);
    if (!s->peaks || !s->remainders || !s->prompts) st = WEFT_ERR_NOMEM;
    if (st != WEFT_OK) wf_sched_free(s);
    return st;
}

void wf_sched_free(wf_sched *s)
{
    free(s->peaks);
    free(s->remainders);
    free(s->prompts);
    wf_fair_free(s);
    wf_kv_free(&s->kv);
    memset(s, 0, sizeof *s);
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
    q->kv.n_tables = wf_limits_tables(&s->limits);
    wf_fair_arrive(s, q);
    s->n_waiting++;
}

/* ---- a step -------------------------------------------------------------------------------------------------- */

/* Pages that are full and computed, and whose tokens are known, are cached. */
static void publish_pages(wf_sched *s, wf_seq *q)
{
    wf_kv_publish(&s->kv, &q->kv, q->tokens, WF_MIN(q->n_computed, q->n_tokens));
}

void wf_sched_advance(wf_sched *s, bool pending)
{
    for (wf_seq *q = s->running; q; q = q->next) {
        uint32_t end = q->n_computed + q->n_scheduled - q->n_drafts;
        if (q->n_scheduled) wf_swap_release(s->kv.swaps, &q->kv.host);
        s->n_recomputed += q->most_computed > q->n_computed ? WF_MIN(end, q->most_computed) - q->n_computed : 0;
        q->n_computed = end;
        q->most_computed = WF_MAX(q->most_computed, end);
        publish_pages(s, q);
        wf_kv_release_passed(&s->kv, &q->kv, q->n_computed);
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

void wf_sched_remove(wf_sched *s, wf_seq *q, bool finished)
{
    if (q->state == WF_SEQ_RUNNING) publish_pages(s, q);
    wf_kv_touch(&s->kv, &q->kv, q->tokens);
    wf_kv_close(&s->kv, &q->kv);
    if (q->state != WF_SEQ_NEW) {
        *(q->state == WF_SEQ_RUNNING ? &s->n_running : &s->n_waiting) -= 1;
        if (q->state != WF_SEQ_WAITING) wf_sched_unlink(q->state == WF_SEQ_RUNNING ? &s->running : &s->preempted, q);
        wf_fair_leave(s, q);
    }
    if (finished && !q->no_logits) learn_lengths(s, q);
    q->state = WF_SEQ_NEW;
}
