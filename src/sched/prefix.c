/* prefix: what a sequence need not compute: prefixes that are found, on the device or below it, and sequences that wait
 * for theirs. See sched.h. */
#include "sched/internal.h"

/* Of a prompt's tokens, those that were found: once for each sequence, when it is known. */
static void count_hits(wf_sched *s, wf_seq *q, uint32_t device)
{
    if (q->counted || wf_seq_length(q) != q->n_prompt) return;
    q->counted = true;
    q->n_cached = q->n_computed;
    s->prefix_queries += q->n_prompt;
    s->prefix_hits += device;
    s->tier_queries += s->kv.tiers ? q->n_prompt - device : 0;
    s->tier_hits += q->n_computed - device;
}

void wf_sched_find_prefix(wf_sched *s, wf_seq *q, bool below)
{
    if (s->p.kv.no_prefix || q->kv.private || q->all_logits || q->first_logits) {
        count_hits(s, q, 0);
        return;
    }
    uint32_t limit = wf_limits_max_pages(&s->limits, s->n_running + 1);
    wf_kv_known n = wf_kv_find(&s->kv, &q->kv, q->tokens, q->n_tokens, below && s->kv.tiers);
    q->kv.n_found = n.device;
    if (n.all > n.device) { /* a load begins behind two steps at most */
        if (wf_kv_begin_load(&s->kv, &q->kv, n, limit, 2 * s->limits.step_tokens)) return;
        n = wf_kv_find(&s->kv, &q->kv, q->tokens, q->n_tokens, false);
    }
    wf_kv_take(&s->kv, &q->kv, q->tokens, n.device);
    q->n_computed = n.device * s->p.kv.page_tokens;
    count_hits(s, q, q->n_computed);
}

static void end_load(wf_sched *s, wf_seq *q, bool ok)
{
    wf_kv_leave_load(&s->kv, &q->kv);
    if (!ok) {
        wf_kv_release(&s->kv, &q->kv);
        wf_kv_restart(&q->kv);
        q->n_computed = 0;
        wf_sched_find_prefix(s, q, false);
    } else {
        q->n_computed = q->kv.n_pages * s->p.kv.page_tokens;
        count_hits(s, q, q->kv.n_found * s->p.kv.page_tokens);
    }
    wf_fair_found(s, q);
}

void wf_sched_complete_loads(wf_sched *s)
{
    for (wf_seq *q = s->running; q; q = q->next) {
        enum wf_tier_progress progress = q->kv.load ? wf_tiers_progress(s->kv.tiers, q->kv.load) : WF_LOAD_RUNS;
        if (progress != WF_LOAD_RUNS) end_load(s, q, progress == WF_LOAD_DONE);
    }
}
