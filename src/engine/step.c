/* step: one iteration of the engine, the table of contents of weft.
 *
 *   requests -> sched -> batch -> exec (graph, plan, queues) -> logits -> sample -> stream -> callback
 */
#include "engine/engine.h"

#include <stdio.h>

bool wf_engine_busy(const struct weft_engine *e)
{
    return e->live != NULL;
}

/* Requests that arrived since the last step. After a failure they only pass through to their end. */
static void take_inbox(struct weft_engine *e)
{
    pthread_mutex_lock(&e->lock);
    struct weft_request *r = e->inbox;
    e->inbox = NULL;
    for (struct weft_request *i = r; i; i = i->next) i->state = WF_REQUEST_LIVE;
    pthread_mutex_unlock(&e->lock);
    struct weft_request **last = &e->live;
    while (*last) last = &(*last)->next;
    *last = r;
    for (; r; r = r->next) wf_sched_add(&e->sched, &r->seq);
}

/* Ends those that are cancelled, or all when the engine stops or its device is gone. */
static void reap(struct weft_engine *e)
{
    pthread_mutex_lock(&e->lock);
    bool stop = e->stop;
    pthread_mutex_unlock(&e->lock);
    for (struct weft_request *r = e->live, *next; r; r = next) {
        next = r->next;
        if (e->failed) wf_request_end(r, WEFT_FINISH_ERROR, e->failed, e->failure);
        else if (stop || atomic_load(&r->cancel)) wf_request_end(r, WEFT_FINISH_CANCEL, WEFT_ERR_CANCELLED, "cancelled");
    }
}

static void start_new(struct weft_engine *e)
{
    for (struct weft_request *r = e->live; r; r = r->next)
        if (r->seq.n_rows && !r->start_ns) wf_request_start(r);
}

/* False: the device chooses the tokens of this step, and no logits come to the host. */
static bool needs_logits(const struct weft_engine *e)
{
    for (const struct weft_request *r = e->live; r; r = r->next)
        if (r->seq.n_logits && wf_request_needs_logits(r)) return true;
    return false;
}

/* Logits, or tokens, go to the requests whose rows they are; a request may end on them. */
static void deliver(struct weft_engine *e, bool have_logits)
{
    uint32_t n_vocab = e->model->hp.n_vocab;
    for (struct weft_request *r = e->live, *next; r; r = next) {
        next = r->next;
        wf_seq *q = &r->seq;
        const float *logits = e->logits + (size_t)q->logit0 * n_vocab;
        uint32_t last = q->n_logits - 1;
        bool complete = q->n_rows && q->n_done == q->n_tokens;
        uint32_t n_rows = q->n_rows;
        q->n_rows = 0;
        if (q->all_logits && n_rows) wf_request_prompt_logits(r, logits, q->n_logits, q->n_done - n_rows);
        if (complete && r->p.prefill_only) wf_request_end(r, WEFT_FINISH_LENGTH, WEFT_OK, "");
        else if (complete) wf_request_token(r, have_logits ? logits + (size_t)last * n_vocab : NULL, e->ids[q->logit0 + last]);
    }
}

static weft_status move_pages(struct weft_engine *e)
{
    for (size_t i = 0; i < e->sched.n_moves; i++) {
        const wf_move *m = &e->sched.moves[i];
        WF_TRY(wf_request_move((struct weft_request *)((char *)m->q - offsetof(struct weft_request, seq)), m));
    }
    return WEFT_OK;
}

static void fail_all(struct weft_engine *e, weft_status s)
{
    pthread_mutex_lock(&e->lock);
    e->failed = s;
    snprintf(e->failure, sizeof e->failure, "%s", wf_error());
    pthread_mutex_unlock(&e->lock);
    wf_log(WEFT_LOG_ERROR, "%s", wf_error());
    reap(e);
}

static uint32_t bucket(uint32_t rows)
{
    uint32_t i = 0;
    while (i + 1 < WEFT_ROWS_BUCKETS && (1u << i) < rows) i++;
    return i;
}

static void count(struct weft_engine *e, uint64_t ns)
{
    pthread_mutex_lock(&e->lock);
    struct weft_stats *s = &e->stats;
    s->steps += ns > 0;
    s->step_ns += ns;
    if (ns) s->rows += e->batch.n_rows, s->rows_hist[bucket(e->batch.n_rows)]++;
    s->running = e->sched.n_running;
    s->waiting = e->sched.n_waiting;
    s->kv_pages_used = e->sched.pages.n - wf_pages_available(&e->sched.pages);
    s->preempted = e->sched.n_preempted;
    s->prefix_queries = e->sched.prefix_queries;
    s->prefix_hits = e->sched.prefix_hits;
    pthread_mutex_unlock(&e->lock);
}

void wf_engine_step(struct weft_engine *e)
{
    take_inbox(e);
    reap(e);
    wf_sched_batch(&e->sched, &e->batch);
    if (!e->batch.n_rows) {
        count(e, 0);
        return;
    }
    start_new(e);
    uint64_t start = wf_now_ns();
    bool logits = needs_logits(e);
    weft_status s = move_pages(e);
    if (s == WEFT_OK) s = wf_exec_run(e->exec, &e->batch, logits ? e->logits : NULL, logits ? NULL : e->ids);
    if (s == WEFT_OK && wf_map_broken(&e->model->file->map))
        s = wf_fail(WEFT_ERR_IO, "%s changed on disk while it was in use: restart to load it again", e->model->info.path);
    count(e, wf_now_ns() - start);
    if (s != WEFT_OK) {
        fail_all(e, s);
        return;
    }
    wf_sched_advance(&e->sched);
    deliver(e, logits);
    count(e, 0);
}
