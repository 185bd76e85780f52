/* step: one iteration of the engine. Start reading here.
 *
 *   requests -> sched -> batch -> exec (graph, plan, queues) -> logits -> sample -> detokenizer -> callback
 *
 * Two steps are in flight (NanoFlow, section 4.2.1): while one runs, the next is formed and submitted, and reads the
 * tokens of the first on the device. So the engine sees the end of a sequence one step late, and drops the surplus
 * token. What a grammar allows behind a token is found while the next step computes, which waits for it before it
 * samples. Sequences that the host samples from logits are in the next step but one, or the step is waited for
 * (beside.c).
 *
 * Steps of which every request was cancelled are broken off where the device can (wf_dev_stop_by): they count as never
 * submitted.
 */
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

#define DRAIN_NS 1000000000ull /* that tiers of an engine that stops have for what was to be stored */

bool wf_engine_busy(const struct weft_engine *e)
{
    return e->live != NULL || e->n_in_flight || wf_tiers_busy(&e->tiers);
}

/* Takes the requests that arrived since the last step. After a failure reap_requests() ends them at once. */
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
    for (; r; r = r->next) {
        r->seq.sampled_by_host = wf_request_needs_logits(r);
        wf_sched_add(&e->sched, &r->seq);
    }
}

static bool is_stopping(struct weft_engine *e)
{
    pthread_mutex_lock(&e->lock);
    bool stop = e->stop;
    pthread_mutex_unlock(&e->lock);
    return stop;
}

/* Ends cancelled requests; all requests if the engine stops or its device is lost. */
static void reap_requests(struct weft_engine *e)
{
    bool stop = is_stopping(e);
    if (stop) wf_tiers_end(&e->tiers, wf_now_ns() + DRAIN_NS);
    for (struct weft_request *r = e->live, *next; r; r = next) {
        next = r->next;
        if (e->failed) wf_request_end(r, WEFT_FINISH_ERROR, e->failed, e->failure);
        else if (stop || atomic_load(&r->cancel))
            wf_request_end(r, WEFT_FINISH_CANCEL, WEFT_ERR_CANCELLED, "cancelled");
    }
}

static wf_step *in_flight(struct weft_engine *e, uint32_t i)
{
    return &e->steps[(e->oldest_step + i) % e->depth];
}

bool wf_engine_unwanted(void *engine)
{
    struct weft_engine *e = engine;
    if (!e->n_in_flight) return false;
    /* one that ended by itself may have left KV pages in the prefix cache that are still computed */
    for (uint32_t i = 0; i < e->n_in_flight; i++) {
        const wf_step *step = in_flight(e, i);
        for (const wf_step_seq *p = step->seqs; p < step->seqs + step->n_seqs; p++)
            if (!p->r && !p->cancelled) return false;
    }
    if (is_stopping(e)) return true;
    for (const struct weft_request *r = e->live; r; r = r->next) {
        /* is something of it in flight, or do its KV pages depend on that: shared pages, and copies to the host? */
        const wf_seq *q = &r->seq;
        bool runs = q->state == WF_SEQ_PREEMPTED ||
            (q->state == WF_SEQ_RUNNING && (q->n_computed || q->n_scheduled || q->kv.load));
        if (!atomic_load(&r->cancel) && runs) return false;
    }
    return true;
}

static struct weft_request *request_of(wf_seq *q)
{
    return (struct weft_request *)((char *)q - offsetof(struct weft_request, seq));
}

static void fail_all(struct weft_engine *e, weft_status s)
{
    pthread_mutex_lock(&e->lock);
    e->failed = s;
    snprintf(e->failure, sizeof e->failure, "%s", wf_error());
    pthread_mutex_unlock(&e->lock);
    wf_log(WEFT_LOG_ERROR, "%s", wf_error());
    reap_requests(e);
    for (; e->n_in_flight; e->n_in_flight--) wf_ranks_wait(e); /* their results are dropped */
}

/* The device has its own clock: align them by the end of the step, which is now. */
static void trace_step(const struct weft_engine *e, const wf_step *step, const wf_exec_stats *device, uint64_t now)
{
    if (!e->timeline || !device->last_ns) return;
    wf_timeline_span(e->timeline, WF_TRACK_DEVICE, "step", now - device->last_ns, now, step->number, step->n_tokens);
    for (const wf_op_span *s = device->ops.spans; s < device->ops.spans + device->ops.n_spans; s++)
        wf_timeline_span(e->timeline, WF_TRACK_QUEUES + s->queue, s->name, now - (device->ended_ns - s->begin),
                         now - (device->ended_ns - s->end), step->number, step->n_tokens);
}

static void count_device(struct weft_engine *e, const wf_exec_stats *device)
{
    struct weft_stats *s = &e->stats;
    s->busy_ns = device->busy_ns;
    s->idle_ns = device->idle_ns;
    s->compute_ns = device->ops.class_ns[WF_CLASS_COMPUTE];
    s->memory_ns = device->ops.class_ns[WF_CLASS_MEMORY];
    s->network_ns = device->ops.class_ns[WF_CLASS_NETWORK];
    s->copy_ns = device->ops.class_ns[WF_CLASS_COPY];
    s->overlap_ns = s->compute_ns + s->memory_ns + s->network_ns + s->copy_ns - device->ops.covered_ns;
    s->softmax_recomputed = 0;
    for (int32_t i = 0; i < e->layout.graph.n_layers; i++) {
        e->softmax[i] = device->softmax[i];
        s->softmax_recomputed += device->softmax[i].recomputed;
    }
}

/* Is it a piece of the prompt of a sequence that runs alone? */
static bool is_piece(const struct weft_engine *e, const wf_step *step)
{
    return e->step_ms && step->n_seqs == 1 && step->n_tokens >= WF_ALONE_LEAST;
}

static void count_step(struct weft_engine *e, const wf_step *step)
{
    uint64_t now = wf_now_ns(), start = WF_MAX(step->start_ns, e->completed_ns);
    const wf_exec_stats *device = e->ranks.n ? NULL : wf_exec_stats_of(e->exec); /* its thread may write to them */
    if (device) trace_step(e, step, device, now);
    pthread_mutex_lock(&e->lock);
    if (device) count_device(e, device);
    e->stats.steps++;
    e->stats.step_ns += now - start; /* overlapping steps count once */
    e->stats.step_tokens += step->n_tokens;
    uint32_t bucket = 0;
    while (bucket + 1 < WEFT_STEP_TOKENS_BUCKETS && (1u << bucket) < step->n_tokens) bucket++;
    e->stats.step_tokens_hist[bucket]++;
    pthread_mutex_unlock(&e->lock);
    wf_startup_step(&e->startup, step->start_ns, step->n_tokens);
    wf_beside_ended(e, step, now - e->completed_ns);
    if (!step->decodes) wf_engine_learn_compute(e, step->n_tokens, now - start);
    else {
        bool alone = e->n_in_flight == 1 && step->start_ns >= e->completed_ns;
        wf_draft_timed(e, step->n_tokens, alone, now - start);
    }
    e->completed_ns = now;
    if (!is_piece(e, step)) return;
    enum { WHOLE = 32 }; /* the next piece is cut so that it takes step_ms at the rate of this one */
    uint64_t fits = step->n_tokens * (e->step_ms * 1000000ull) / WF_MAX(now - start, 1u) / WHOLE * WHOLE;
    e->sched.alone = (uint32_t)WF_MIN(WF_MAX(fits, (uint64_t)WF_ALONE_LEAST), (uint64_t)e->layout.limits.step_tokens);
}

/* When the sequence that waits for longest was submitted; 0: none waits. */
static uint64_t oldest_wait(const wf_sched *s, uint32_t *clients)
{
    uint64_t since = 0;
    *clients = 0;
    for (const wf_client *c = s->clients; c; c = c->next) {
        *clients += c->waiting != NULL;
        for (wf_seq *q = c->waiting; q; q = q->next) {
            uint64_t ns = request_of(q)->submit_ns;
            since = since ? WF_MIN(since, ns) : ns;
        }
    }
    return since;
}

void wf_engine_count(struct weft_engine *e)
{
    uint32_t clients;
    uint64_t oldest_ns = oldest_wait(&e->sched, &clients);
    pthread_mutex_lock(&e->lock);
    struct weft_stats *s = &e->stats;
    s->running = e->sched.n_running;
    s->waiting = e->sched.n_waiting;
    s->waiting_clients = clients;
    e->oldest_ns = oldest_ns;
    s->kv_pages_used = wf_pages_in_use(&e->sched.kv.pages);
    s->preempted = e->sched.n_preempted;
    s->swapped_out_bytes = e->swaps.out_bytes;
    s->swapped_in_bytes = e->swaps.in_bytes;
    s->recomputed_tokens = e->sched.n_recomputed;
    s->prefix_queries = e->sched.prefix_queries;
    s->prefix_hits = e->sched.prefix_hits;
    s->prefill_decode_ratio = wf_sched_ratio(&e->sched);
    wf_engine_count_tiers(e);
    pthread_mutex_unlock(&e->lock);
}

/* What is in flight has been broken off. */
static void drop_steps(struct weft_engine *e)
{
    reap_requests(e);
    e->oldest_step += e->n_in_flight;
    e->n_in_flight = 0;
}

/* ---- submission ---------------------------------------------------------------------------------------------- */

static void note_seqs(struct weft_engine *e, wf_step *step)
{
    step->n_seqs = 0;
    step->n_tokens = e->batch.n_tokens;
    step->have_logits = step->have_drafts = step->waits = false;
    step->decodes = true;
    for (struct weft_request *r = e->live; r; r = r->next) {
        const wf_seq *q = &r->seq;
        if (!q->n_scheduled) continue;
        step->seqs[step->n_seqs++] = (wf_step_seq){r, q->n_computed, q->n_scheduled, q->logit0, q->n_logits,
                                                   q->n_computed + q->n_scheduled - q->n_drafts == wf_seq_length(q),
                                                   q->n_drafts, false, 0, 0};
        step->have_drafts |= q->n_drafts > 0;
        step->decodes &= q->n_scheduled == 1 + q->n_drafts;
        step->have_logits |= q->n_logits && q->sampled_by_host;
        if (!r->start_ns) r->start_ns = wf_now_ns();
    }
}

/* How the device samples. A step that only takes the largest logits stays greedy, and has no rows for it. */
static void note_sampling(struct weft_engine *e, wf_step *step)
{
    const wf_sampling_params greedy = {0};
    wf_batch *b = &e->batch;
    for (wf_step_seq *p = step->seqs; p < step->seqs + step->n_seqs; p++) {
        if (!p->n_logits || p->r->seq.sampled_by_host) continue;
        uint32_t row = p->logit0 + p->n_logits - 1 - p->n_drafts;
        uint32_t n = wf_request_adjust(p->r, (uint32_t)b->in[WF_INPUT_LOGIT_ROWS][row],
                                       b->in[WF_INPUT_ADJUST_IDS] + b->n_adjusted,
                                       (wf_adjust *)b->in[WF_INPUT_ADJUST] + b->n_adjusted);
        const wf_constraint *kept = &p->r->constraint;
        if (p->samples && kept->grammar && !kept->is_free)
            p->n_words = e->layout.limits.mask_words, p->word = b->n_allowed;
        step->waits |= p->n_words;
        if (!n && !p->n_words && p->r->p.sampling.temperature == 0) continue;
        for (uint32_t k = 0; k < b->n_logits && !b->sampled; k++) wf_batch_sample(b, k, &greedy, 0, 0);
        for (uint32_t i = 0; i <= p->n_drafts; i++) {
            wf_sampling_params params = wf_request_sampling(p->r, i);
            wf_batch_sample(b, row + i, &params, i ? 0 : n, i ? 0 : p->n_words);
        }
    }
}

/* The rows of logits that requests need on the host; NULL: none. */
static const bool *wanted_logits(struct weft_engine *e, const wf_step *step)
{
    if (!step->have_logits) return NULL;
    memset(e->wanted, 0, e->batch.n_logits * sizeof *e->wanted);
    for (const wf_step_seq *p = step->seqs; p < step->seqs + step->n_seqs; p++)
        if (p->r->seq.sampled_by_host) memset(e->wanted + p->logit0, true, p->n_logits * sizeof *e->wanted);
    return e->wanted;
}

/* Which tokens come next, where a grammar says it and the host samples: found out while the device computes. */
static void prepare_masks(const wf_step *step)
{
    for (const wf_step_seq *p = step->seqs; p < step->seqs + step->n_seqs && step->have_logits; p++)
        if (p->r && p->samples && !p->n_words && wf_constraint_begun(&p->r->constraint))
            wf_constraint_mask(&p->r->constraint);
}

static void fail_submission(struct weft_engine *e, weft_status s)
{
    if (s == WEFT_ERR_CANCELLED) { /* who looks at a step has broken it off, since nobody wants it */
        for (uint32_t i = 0; i < e->n_in_flight; i++) wf_exec_wait(e->exec);
        drop_steps(e);
    } else fail_all(e, s);
}

/* The same where the device samples: it computes the oldest step, whose tokens before this one are all known. Errors
 * come with the token. */
static void send_masks(struct weft_engine *e)
{
    wf_step *step = in_flight(e, 0);
    if (!step->waits) return;
    step->waits = false;
    for (const wf_step_seq *p = step->seqs; p < step->seqs + step->n_seqs; p++) {
        if (!p->r || !p->n_words || !wf_constraint_begun(&p->r->constraint)) continue;
        if (wf_constraint_mask(&p->r->constraint) != WEFT_OK) continue;
        memcpy(e->batch.in[WF_INPUT_ALLOWED] + p->word, p->r->constraint.allowed, p->n_words * sizeof(uint32_t));
    }
    weft_status s = wf_exec_submit_rest(e->exec);
    if (s != WEFT_OK) fail_submission(e, s);
}

static bool logits_in_flight(struct weft_engine *e)
{
    bool any = false;
    for (uint32_t i = 0; i < e->n_in_flight; i++) any |= in_flight(e, i)->have_logits;
    return any;
}

/* false: there is nothing to compute now. */
static bool submit_step(struct weft_engine *e)
{
    wf_draft_choose(e);
    e->sched.host_rows_taken = logits_in_flight(e);
    wf_sched_batch(&e->sched, &e->batch);
    if (!e->batch.n_tokens) return wf_beside_rests(e), false;
    e->n_in_flight++;
    wf_step *step = in_flight(e, e->n_in_flight - 1);
    note_seqs(e, step);
    note_sampling(e, step);
    step->number = e->n_submitted++;
    step->start_ns = wf_now_ns();
    wf_step_io io = {.ids = step->ids.data, .logits = step->have_logits ? e->logits.data : NULL,
                     .wanted = wanted_logits(e, step)};
    weft_status s = wf_ranks_submit(e, &e->batch, &io);
    if (s != WEFT_OK) fail_submission(e, s);
    else wf_sched_advance(&e->sched, !step->have_drafts && !e->ranks.n); /* of several devices one knows the tokens */
    wf_timeline_span(e->timeline, WF_TRACK_ENGINE, "submit", step->start_ns, wf_now_ns(), step->number, step->n_tokens);
    if (s == WEFT_OK) prepare_masks(step);
    if (s == WEFT_OK && e->n_in_flight == 1) send_masks(e);
    return true;
}

/* ---- completion ---------------------------------------------------------------------------------------------- */

uint32_t wf_engine_drop(struct weft_engine *e, const struct weft_request *r, bool cancelled)
{
    uint32_t first = UINT32_MAX;
    for (uint32_t i = 0; i < e->n_in_flight; i++) {
        wf_step *step = in_flight(e, i);
        for (wf_step_seq *p = step->seqs; p < step->seqs + step->n_seqs; p++) {
            if (p->r != r) continue;
            first = WF_MIN(first, p->first);
            p->r = NULL, p->cancelled = cancelled;
        }
    }
    return first;
}

static void count_drafts(struct weft_engine *e, uint32_t n, uint32_t accepted)
{
    pthread_mutex_lock(&e->lock);
    e->stats.draft_tokens += n;
    e->stats.draft_accepted += accepted;
    pthread_mutex_unlock(&e->lock);
}

/* The tokens that a step gives p's request: one, and one for each draft before it that is accepted. */
static void deliver_tokens(struct weft_engine *e, const wf_step_seq *p, const float *logits, const int32_t *ids)
{
    struct weft_request *r = p->r;
    size_t n_vocab = e->model->hp.n_vocab;
    uint32_t row = p->n_logits - 1 - p->n_drafts, n = 0;
    for (bool same = true; same; row++) {
        uint32_t at = r->seq.n_tokens;
        int32_t draft = r->tokens[at];
        same = wf_request_token(r, logits ? logits + row * n_vocab : NULL, ids[row]) == draft && n < p->n_drafts;
        if (!p->r) {
            n += same; /* with it the answer has ended */
            break;
        }
        if (n < r->draft.n) wf_draft_compared(r, r->tokens[at] == draft);
        same = same && !atomic_load(&r->cancel);
        n += same;
    }
    if (p->n_drafts) count_drafts(e, p->n_drafts, n);
    if (!p->r) return;
    wf_sched_accept(&r->seq, n);
    wf_draft_look_up(e, r);
}

/* Hands logits, or a token, to their request, which may end with them. */
static void deliver_results(struct weft_engine *e, const wf_step *step, const wf_step_seq *p)
{
    struct weft_request *r = p->r;
    size_t n_out = wf_layout_output(&e->layout);
    const float *logits = step->have_logits && r->seq.sampled_by_host
        ? (const float *)e->logits.data + p->logit0 * n_out : NULL;
    if (r->p.embed) {
        wf_pool_rows(r, logits, p);
        return;
    }
    if (r->seq.all_logits && !wf_request_prompt_logits(r, logits, p->n_logits, p->first)) return;
    if (!p->samples) return;
    if (r->p.prefill_only) {
        wf_request_end(r, WEFT_FINISH_LENGTH, WEFT_OK, "");
        return;
    }
    r->seq.n_pending -= r->seq.n_pending > 0;
    r->seq.awaited = false;
    deliver_tokens(e, p, logits, (const int32_t *)step->ids.data + p->logit0);
}

static void complete_step(struct weft_engine *e)
{
    wf_step *step = in_flight(e, 0);
    uint64_t start = wf_now_ns();
    weft_status s = wf_ranks_wait(e);
    wf_timeline_span(e->timeline, WF_TRACK_ENGINE, "wait", start, wf_now_ns(), step->number, step->n_tokens);
    if (s == WEFT_ERR_CANCELLED) {
        drop_steps(e);
        return;
    }
    if (s == WEFT_OK && e->layout.weights.in_file && wf_gguf_broken(e->model->file))
        s = wf_fail(WEFT_ERR_IO, "%s changed on disk while it was in use: restart to load it again",
                    e->model->info.path);
    if (s == WEFT_OK) s = wf_timeline_flush(e->timeline);
    count_step(e, step);
    if (s != WEFT_OK) {
        fail_all(e, s);
        return;
    }
    for (uint32_t i = 0; i < step->n_seqs; i++)
        if (step->seqs[i].r) deliver_results(e, step, &step->seqs[i]); /* a callback may end other requests */
    wf_timeline_span(e->timeline, WF_TRACK_ENGINE, "deliver", e->completed_ns, wf_now_ns(), step->number,
                     step->n_tokens);
    e->oldest_step++;
    e->n_in_flight--;
    if (e->n_in_flight) send_masks(e);
    if (!e->live) wf_beside_rests(e);
}

void wf_engine_step(struct weft_engine *e)
{
    take_inbox(e);
    reap_requests(e);
    while (wf_engine_unwanted(e)) complete_step(e); /* nothing waits behind it */
    if (e->tiers.pool.n) wf_tiers_poll(&e->tiers, wf_now_ns());
    bool can_submit = !e->n_in_flight;
    if (e->n_in_flight && e->n_in_flight < e->depth) {
        const wf_step *newest = in_flight(e, e->n_in_flight - 1);
        /* Behind a piece that is short so that it can be cancelled soon, no other one waits. */
        bool ends_soon = is_piece(e, newest) && e->sched.alone && e->sched.alone < e->layout.limits.step_tokens;
        can_submit = !newest->have_drafts && !ends_soon && !wf_draft_pays(e) &&
            (!logits_in_flight(e) || wf_beside_pays(e));
    }
    bool submitted = !wf_engine_adapter_job(e) && can_submit && submit_step(e);
    /* A copy waits for the end of the newest step, which is submitted with its masks. */
    bool whole = !e->n_in_flight || !in_flight(e, e->n_in_flight - 1)->waits;
    if (e->tiers.pool.n && whole) wf_tiers_begin(&e->tiers, e->n_in_flight > 0);
    wf_engine_count(e);
    if (e->n_in_flight && (!submitted || e->n_in_flight == e->depth)) {
        complete_step(e);
        if (e->tiers.pool.n && !whole) wf_tiers_begin(&e->tiers, e->n_in_flight > 0);
    } else if (!submitted && wf_tiers_busy(&e->tiers)) wf_engine_pause(e);
    wf_engine_count(e);
}
