/* request: its life from submission to the last event. engine.h says which thread may touch what. */
#include "engine/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- submission (any thread) --------------------------------------------------------------------------------- */

static weft_status prompt_ids(const struct weft_engine *e, const struct weft_request_params *p, int32_t **ids,
                              size_t *n)
{
    const struct weft_model *m = e->model;
    size_t len = !p->prompt ? 0 : p->prompt_len ? p->prompt_len : strlen(p->prompt);
    if (p->chat) return weft_chat_tokenize(m, p->chat, ids, n);
    if (len) return wf_tokenize(m->tokenizer, p->prompt, len, WEFT_TEXT_DEFAULT, ids, n);
    size_t count = p->n_tokens ? p->n_tokens : 1;
    if (!p->n_tokens && m->info.bos < 0)
        return wf_fail(WEFT_ERR_ARG, "the prompt is empty and this model has no BOS token to start from");
    if (!(*ids = wf_calloc(count, sizeof **ids))) return WEFT_ERR_NOMEM;
    if (p->n_tokens) memcpy(*ids, p->tokens, count * sizeof **ids);
    else (*ids)[0] = m->info.bos;
    *n = count;
    return WEFT_OK;
}

/* Requests with prompts of similar length are assumed to have answers of similar length. */
static uint8_t length_bucket(uint32_t n_prompt)
{
    uint8_t bucket = 0;
    while (bucket + 1 < WF_LENGTH_BUCKETS && n_prompt >> (4 + bucket)) bucket++;
    return bucket;
}

/* Allocates the token array for the greatest possible length. */
static weft_status set_tokens(struct weft_request *r, const struct weft_request_params *p, const int32_t *ids, size_t n)
{
    const struct weft_engine *e = r->engine;
    wf_key base;
    uint64_t want = r->p.prefill_only || r->p.embed ? n
        : r->p.max_tokens                           ? n + (uint64_t)r->p.max_tokens
                                                    : e->layout.context;
    r->seq.max_tokens = (uint32_t)WF_MIN(want, (uint64_t)e->layout.context);
    r->tokens = wf_calloc((size_t)r->seq.max_tokens + 1, sizeof *r->tokens);
    if (!r->tokens) return WEFT_ERR_NOMEM;
    memcpy(r->tokens, ids, n * sizeof *ids);
    r->seq.tokens = r->tokens;
    r->seq.n_tokens = r->seq.n_prompt = r->n_prompt = (uint32_t)n;
    r->seq.priority = r->p.priority;
    r->seq.client_id = r->p.client;
    WF_TRY(wf_engine_take_adapter(r->engine, r, p->adapter, &base));
    r->seq.kv.root = wf_key_root(&base, p->cache_salt, p->cache_salt_len);
    r->seq.length_bucket = length_bucket((uint32_t)n);
    r->seq.all_logits = r->p.want_logits || r->p.prompt_logprobs || (r->p.embed && e->pooling == WF_POOLING_MEAN);
    r->seq.first_logits = r->p.embed && (e->pooling == WF_POOLING_CLS || e->pooling == WF_POOLING_RANK);
    r->seq.second_text = e->model->hp.n_types > 1 ? r->p.second_text : 0;
    r->seq.no_logits = r->p.prefill_only;
    r->seq.kv.private = r->p.no_prefix;
    return WEFT_OK;
}

static weft_status check_params(const struct weft_request_params *p, bool owned)
{
    const struct {
        const char *name;
        size_t n;
        const void *list;
    } lists[] = {{"prompt", p->prompt_len, p->prompt}, {"tokens", p->n_tokens, p->tokens},
                 {"stop_ids", p->n_stop_ids, p->stop_ids},
                 {"stop", p->n_stop, p->stop}, {"bias", p->n_bias, p->bias}, {"show_ids", p->n_show_ids, p->show_ids},
                 {"cache_salt", p->cache_salt_len, p->cache_salt}};
    WF_TRY(WF_UNUSED(p));
    for (size_t i = 0; i < WF_LEN(lists); i++)
        if (lists[i].n && !lists[i].list)
            return wf_fail(WEFT_ERR_ARG, "the length of %s is %zu, but %s is NULL", lists[i].name, lists[i].n,
                           lists[i].name);
    WF_TRY(WF_UNUSED(&p->sampling));
    WF_TRY(wf_sampling_check(&p->sampling));
    if ((p->prompt != NULL) + (p->n_tokens > 0) + (p->chat != NULL) > 1)
        return wf_fail(WEFT_ERR_ARG, "prompt, tokens and chat exclude each other: set one of them");
    if (p->priority < -1000 || p->priority > 1000)
        return wf_fail(WEFT_ERR_ARG, "priority %d: want -1000 to 1000", p->priority);
    if (p->n_top > WEFT_MAX_TOP)
        return wf_fail(WEFT_ERR_ARG, "n_top %u is too many: at most %u", p->n_top, WEFT_MAX_TOP);
    if (p->pull && p->on_event)
        return wf_fail(WEFT_ERR_ARG, "pull and on_event exclude each other: events go to one of them");
    if (p->pull && !owned)
        return wf_fail(WEFT_ERR_ARG, "pull needs the request in *out: without it nobody could take its events");
    return WEFT_OK;
}

/* Copies everything that the request needs after the call. */
static weft_status copy_params(struct weft_request *r, const struct weft_request_params *p, const int32_t *ids,
                               size_t n)
{
    const wf_tokenizer *t = r->engine->model->tokenizer;
    for (size_t i = 0; i < p->n_stop_ids; i++)
        if (p->stop_ids[i] < 0 || (uint32_t)p->stop_ids[i] >= r->engine->model->hp.n_vocab)
            return wf_fail(WEFT_ERR_ARG, "stop token %d is not in the vocabulary (0 to %u)", p->stop_ids[i],
                           r->engine->model->hp.n_vocab - 1);
    r->p = *p;
    r->p.prompt = NULL, r->p.tokens = NULL, r->p.stop = NULL, r->p.stop_ids = NULL, r->p.bias = NULL,
        r->p.show_ids = NULL, r->p.chat = NULL, r->p.grammar_text = NULL, r->p.grammar_after = NULL,
        r->p.grammar_unless = NULL, r->p.cache_salt = NULL, r->p.adapter = NULL;
    r->p.ignore_eos &= !p->grammar; /* what is complete ends */
    WF_TRY(wf_constraint_init(&r->constraint, r->engine->model, p));
    if (p->pull) WF_TRY(wf_events_create(&r->events));
    WF_TRY(wf_detokenizer_show(&r->detokenizer, p->show_ids, p->n_show_ids));
    WF_TRY(wf_stop_init(&r->stop, p->stop, p->n_stop, p->include_stop));
    WF_TRY(wf_logits_processors_init(&r->processors, wf_token_count(t), p, ids, n));
    for (uint32_t id = 0; p->min_tokens && id < wf_token_count(t); id++)
        if (!p->ignore_eos && wf_token_is_eog(t, (int32_t)id))
            WF_TRY(wf_logits_processors_add_end(&r->processors, (int32_t)id));
    for (size_t i = 0; p->min_tokens && i < p->n_stop_ids; i++)
        WF_TRY(wf_logits_processors_add_end(&r->processors, p->stop_ids[i]));
    if (!p->n_stop_ids) return WEFT_OK;
    if (!(r->stop_ids = wf_calloc(p->n_stop_ids, sizeof *r->stop_ids))) return WEFT_ERR_NOMEM;
    memcpy(r->stop_ids, p->stop_ids, p->n_stop_ids * sizeof *r->stop_ids);
    return WEFT_OK;
}

/* What an engine gives is fixed when it is opened. */
static weft_status check_kind(const struct weft_engine *e, const struct weft_request_params *p)
{
    if (!p->embed && (!p->prefill_only || p->want_logits || p->prompt_logprobs) && e->pooling)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s gives %s, no text", e->model->info.path,
                       e->pooling == WF_POOLING_RANK ? "scores" : "embeddings");
    if (!p->embed) return WEFT_OK;
    if (!e->pooling)
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "this engine generates text: open it for embeddings (weft_engine_params.pooling)");
    if (p->want_logits || p->prompt_logprobs || p->logprobs || p->prefill_only || p->grammar || p->n_stop || p->n_bias)
        return wf_fail(WEFT_ERR_ARG, "embed excludes what is about a text that is generated, and logits");
    return WEFT_OK;
}

static weft_status create_request(struct weft_engine *e, const struct weft_request_params *p, struct weft_request **out)
{
    int32_t *ids = NULL;
    size_t n = 0;
    weft_status s = check_kind(e, p);
    if (s == WEFT_OK) s = prompt_ids(e, p, &ids, &n);
    if (s == WEFT_OK && !n) s = wf_fail(WEFT_ERR_ARG, "the prompt gives no tokens");
    if (s == WEFT_OK && n > e->layout.context)
        s = wf_fail(
            WEFT_ERR_FULL,
            "the prompt has %zu tokens, the context %u: shorten it or enlarge the context (weft_engine_params.context)",
            n, e->layout.context);
    for (size_t i = 0; s == WEFT_OK && i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= e->model->hp.n_vocab)
            s = wf_fail(WEFT_ERR_ARG, "prompt token %zu is %d, the vocabulary has 0 to %u", i, ids[i],
                        e->model->hp.n_vocab - 1);
    struct weft_request *r = s == WEFT_OK ? wf_calloc(1, sizeof *r) : NULL;
    if (s == WEFT_OK && !r) s = WEFT_ERR_NOMEM;
    if (s == WEFT_OK) {
        r->engine = e;
        r->end_id = -1;
        r->draft.coverage = 0.5f, r->draft.acceptance = e->drafter ? 0.8f : 0.5f; /* until it is seen */
        atomic_fetch_add(&e->users, 1);
        r->submit_ns = wf_now_ns();
        wf_detokenizer_init(&r->detokenizer, e->model->tokenizer, p->show_special ? 0 : WEFT_TEXT_HIDE_SPECIAL);
        r->detokenizer.drop_space = n == 1 && ids[0] == e->model->info.bos && wf_token_adds_space(e->model->tokenizer);
        s = copy_params(r, p, ids, n);
        if (s == WEFT_OK) s = set_tokens(r, p, ids, n);
        if (s == WEFT_OK && p->embed) s = wf_pool_init(r);
    }
    free(ids);
    if (s == WEFT_OK) *out = r;
    else wf_request_destroy(r);
    return s;
}

/* Fails if the engine takes no more requests. */
static weft_status enqueue_request(struct weft_engine *e, struct weft_request *r)
{
    weft_status s = WEFT_OK;
    pthread_mutex_lock(&e->lock);
    if (e->failed) s = wf_fail(e->failed, "the engine has failed: %s", e->failure);
    else if (e->stop) s = wf_fail(WEFT_ERR_CANCELLED, "the engine is closing");
    if (s == WEFT_OK) {
        *(e->inbox ? &e->inbox_last->next : &e->inbox) = r;
        e->inbox_last = r;
    }
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    return s;
}

weft_status weft_submit(struct weft_engine *e, const struct weft_request_params *p, struct weft_request **out)
{
    if (out) *out = NULL;
    WF_NOT_NULL(e);
    WF_NOT_NULL(p);
    struct weft_request *r = NULL;
    WF_TRY(check_params(p, out != NULL));
    WF_TRY(create_request(e, p, &r));
    r->owned = out != NULL;
    if (out) *out = r; /* before a callback that uses it can run */
    weft_status s = enqueue_request(e, r);
    if (s != WEFT_OK) {
        if (out) *out = NULL;
        wf_request_destroy(r);
    }
    return s;
}

void wf_request_destroy(struct weft_request *r)
{
    if (!r) return;
    if (r->seq.adapter) { /* it was not taken into the queue */
        pthread_mutex_lock(&r->engine->lock);
        wf_engine_leave_adapter(r->engine, r);
        pthread_mutex_unlock(&r->engine->lock);
    }
    wf_detokenizer_free(&r->detokenizer);
    wf_stop_free(&r->stop);
    wf_logits_processors_free(&r->processors);
    wf_constraint_free(&r->constraint);
    wf_events_free(r->events);
    free(r->stop_ids);
    free(r->pooled.sum);
    free(r->tokens);
    wf_engine_release(r->engine);
    free(r);
}

void weft_cancel(struct weft_request *r)
{
    if (!r) return;
    atomic_store(&r->cancel, true);
    pthread_mutex_lock(&r->engine->lock);
    pthread_cond_signal(&r->engine->wake);
    pthread_mutex_unlock(&r->engine->lock);
}

weft_status weft_wait(struct weft_request *r, uint32_t ms)
{
    WF_NOT_NULL(r);
    struct weft_engine *e = r->engine;
    struct timespec until;
    wf_deadline(&until, ms);
    int late = 0;
    pthread_mutex_lock(&e->lock);
    while (r->state != WF_REQUEST_DONE && !late)
        late = ms ? pthread_cond_timedwait(&e->ended, &e->lock, &until) == ETIMEDOUT
            : pthread_cond_wait(&e->ended, &e->lock);
    bool done = r->state == WF_REQUEST_DONE;
    weft_status s = done ? r->status : WEFT_ERR_TIMEOUT;
    char message[sizeof r->message];
    memcpy(message, r->message, sizeof message);
    pthread_mutex_unlock(&e->lock);
    if (s == WEFT_OK) return WEFT_OK;
    return done ? wf_fail(s, "%s", message) : wf_fail(s, "the request has not ended within %u ms", ms);
}

uint64_t wf_step_tokens(struct weft_engine *e)
{
    struct weft_stats now;
    weft_engine_stats(e, &now);
    return now.step_tokens;
}

weft_status wf_wait_watched(struct weft_request *r, const wf_watch *w)
{
    enum { LOOK_MS = 50 };
    while ((w->stop || w->on_progress) && weft_wait(r, LOOK_MS) == WEFT_ERR_TIMEOUT) {
        pthread_mutex_lock(&r->engine->lock);
        bool ended = r->state == WF_REQUEST_DONE;
        pthread_mutex_unlock(&r->engine->lock);
        if (ended) break; /* with that status */
        if (w->stop && w->stop(w->user)) weft_cancel(r);
        double now = (double)(wf_step_tokens(r->engine) - w->before) / (double)w->tokens;
        if (w->on_progress) w->on_progress(w->user, w->what, w->done + w->part * WF_MIN(now, 1.0));
    }
    return weft_wait(r, 0);
}

void weft_request_free(struct weft_request *r)
{
    if (!r) return;
    struct weft_engine *e = r->engine;
    bool inside = pthread_equal(pthread_self(), e->thread);
    weft_cancel(r);
    pthread_mutex_lock(&e->lock);
    if (inside) r->detached = true; /* only the engine's thread reads or writes it */
    while (!inside && r->state != WF_REQUEST_DONE) pthread_cond_wait(&e->ended, &e->lock);
    bool last = r->state == WF_REQUEST_DONE;
    r->owned = false;
    pthread_mutex_unlock(&e->lock);
    if (last) wf_request_destroy(r);
}

/* ---- pulling (any thread) ------------------------------------------------------------------------------------ */

static weft_status check_pulls(const struct weft_request *r, const char *call)
{
    if (!r) return wf_fail(WEFT_ERR_ARG, "%s: r must not be NULL", call);
    return r->events ? WEFT_OK : wf_fail(WEFT_ERR_ARG, "%s: the request was not submitted with pull", call);
}

weft_status weft_next(struct weft_request *r, int32_t timeout_ms, const struct weft_event **ev)
{
    WF_NOT_NULL(ev);
    *ev = NULL;
    WF_TRY(check_pulls(r, "weft_next"));
    bool inside = pthread_equal(pthread_self(), r->engine->thread); /* which would wait for itself */
    return wf_events_next(r->events, inside ? 0 : timeout_ms, ev);
}

int weft_request_fd(struct weft_request *r)
{
    return check_pulls(r, "weft_request_fd") ? -1 : wf_events_fd(r->events);
}

/* ---- on the engine's thread ---------------------------------------------------------------------------------- */

/* Fails only where an event that is to be pulled finds no memory. */
weft_status wf_request_emit(struct weft_request *r, struct weft_event ev)
{
    ev.request = r;
    if (r->events) return wf_events_add(r->events, &ev, r->engine->model->hp.n_vocab);
    if (r->p.on_event && !r->detached) r->p.on_event(r->p.user, &ev);
    return WEFT_OK;
}

/* The PROMPT event at `position`. logits: of the position before; NULL: this is the first. */
static weft_status emit_prompt_token(struct weft_request *r, const float *logits, uint32_t position)
{
    struct weft_logprob top[WEFT_MAX_TOP];
    uint32_t n_vocab = r->engine->model->hp.n_vocab;
    struct weft_event ev = {.kind = WEFT_EVENT_PROMPT, .id = r->tokens[position], .position = position, .text = "",
                            .message = ""};
    if (logits)
        ev.n_top = WF_MIN(r->p.n_top, n_vocab), ev.top = top,
            ev.logprob = wf_logprob(logits, n_vocab, ev.id, ev.n_top, top);
    return wf_request_emit(r, ev);
}

/* Each position gives its logits, and the PROMPT event of the next one. */
bool wf_request_prompt_logits(struct weft_request *r, const float *logits, uint32_t n, uint32_t first)
{
    weft_status s = r->p.prompt_logprobs && first == 0 && !r->n_reported ? emit_prompt_token(r, NULL, 0) : WEFT_OK;
    uint32_t n_vocab = r->engine->model->hp.n_vocab;
    for (uint32_t at = first; s == WEFT_OK && at < first + n && at < r->n_prompt; at++, logits += n_vocab) {
        if (at < r->n_reported) continue; /* it was computed again after a preemption */
        s = wf_sample_check(logits, n_vocab);
        if (s != WEFT_OK) break;
        r->n_reported = at + 1;
        if (r->p.want_logits)
            s = wf_request_emit(r, (struct weft_event){.kind = WEFT_EVENT_LOGITS, .id = r->tokens[at], .position = at,
                                                  .text = "", .message = "", .logits = logits});
        if (s == WEFT_OK && r->p.prompt_logprobs && at + 1 < r->n_prompt) s = emit_prompt_token(r, logits, at + 1);
    }
    if (s != WEFT_OK) wf_request_end(r, WEFT_FINISH_ERROR, s, wf_error());
    return s == WEFT_OK;
}

bool wf_request_needs_logits(const struct weft_request *r)
{
    uint64_t adjusted = wf_logits_processors_most(&r->processors, r->seq.max_tokens - r->n_prompt);
    /* behind drafts a step has many rows of a sequence */
    const struct weft_engine *e = r->engine;
    bool by_device = wf_exec_can_sample(e->exec) && adjusted <= WF_MOST_ADJUSTED && !e->draft_tokens;
    bool masked = by_device && e->layout.limits.mask_words;
    return r->seq.all_logits || r->p.embed || r->p.logprobs || (r->constraint.grammar && !masked) ||
        (adjusted && !by_device) || (r->p.sampling.temperature != 0 && !wf_exec_can_sample(e->exec));
}

static bool forbids_ends(const struct weft_request *r, uint32_t length)
{
    return length - r->n_prompt < r->p.min_tokens;
}

uint32_t wf_request_adjust(struct weft_request *r, uint32_t row, int32_t *ids, wf_adjust *adjust)
{
    r->processors.forbid_ends = forbids_ends(r, wf_seq_length(&r->seq));
    return wf_logits_processors_list(&r->processors, r->tokens, r->seq.n_tokens, r->seq.n_pending, row, ids, adjust);
}

wf_sampling_params wf_request_sampling(const struct weft_request *r, uint32_t drafts)
{
    const struct weft_sampling *s = &r->p.sampling;
    uint64_t position = wf_seq_length(&r->seq) + drafts;
    return (wf_sampling_params){s->temperature, s->top_p, s->min_p, s->top_k, s->seed, position};
}

static bool is_end(const struct weft_request *r, int32_t id)
{
    for (size_t i = 0; i < r->p.n_stop_ids; i++)
        if (r->stop_ids[i] == id) return true;
    return !r->p.ignore_eos && wf_token_is_eog(r->engine->model->tokenizer, id);
}

/* The event of the token that was just appended. */
static weft_status emit_token(struct weft_request *r, int32_t id, const float *logits)
{
    struct weft_logprob top[WEFT_MAX_TOP];
    uint32_t n_vocab = r->engine->model->hp.n_vocab, n_new = r->seq.n_tokens - r->n_prompt;
    struct weft_event ev = {.kind = WEFT_EVENT_TOKEN, .id = id, .position = r->seq.n_tokens - 1, .message = ""};
    if (r->p.logprobs)
        ev.n_top = WF_MIN(r->p.n_top, n_vocab), ev.top = top,
            ev.logprob = wf_logprob(logits, n_vocab, id, ev.n_top, top);
    WF_TRY(wf_detokenizer_add(&r->detokenizer, id, &ev.text, &ev.text_len));
    WF_TRY(wf_stop_add(&r->stop, n_new >= r->p.min_tokens, ev.text, ev.text_len, &ev.text, &ev.text_len));
    return wf_request_emit(r, ev);
}

int32_t wf_request_token(struct weft_request *r, const float *logits, int32_t sampled)
{
    wf_seq *q = &r->seq;
    int32_t id = -1;
    if (!r->first_ns) r->first_ns = wf_now_ns();
    if (q->n_tokens == r->engine->layout.context) {
        wf_request_end(r, WEFT_FINISH_CONTEXT, WEFT_OK, "the context is full");
        return id;
    }
    weft_status s;
    if (logits) {
        wf_logits_processors *a = &r->processors;
        a->forbid_ends = forbids_ends(r, q->n_tokens);
        a->allowed = wf_constraint_begun(&r->constraint) ? r->constraint.allowed : NULL;
        s = a->allowed ? wf_constraint_mask(&r->constraint) : WEFT_OK; /* it may be there */
        if (s == WEFT_OK)
            s = wf_sample(&r->p.sampling, wf_logits_processors_active(a) ? a : NULL, logits,
                          r->engine->model->hp.n_vocab, q->n_tokens, r->engine->scratch, &id);
    } else {
        s = wf_constraint_begun(&r->constraint) ? wf_constraint_mask(&r->constraint) : WEFT_OK;
        if (s == WEFT_OK) s = wf_sample_chosen(sampled, &id);
    }
    if (s == WEFT_OK && is_end(r, id)) {
        r->end_id = id;
        wf_request_end(r, WEFT_FINISH_STOP, WEFT_OK, "");
        return id;
    }
    if (s == WEFT_OK) r->tokens[q->n_tokens++] = id;
    if (s == WEFT_OK) s = wf_logits_processors_add_token(&r->processors, r->tokens, q->n_tokens);
    if (s == WEFT_OK && r->constraint.grammar) s = wf_constraint_token(&r->constraint, id);
    if (s == WEFT_OK) s = emit_token(r, id, logits);
    if (s != WEFT_OK) wf_request_end(r, WEFT_FINISH_ERROR, s, wf_error());
    else if (r->stop.found || wf_constraint_over(&r->constraint))
        wf_request_end(r, WEFT_FINISH_STOP, WEFT_OK, "");
    else if (r->p.max_tokens && q->n_tokens - r->n_prompt == r->p.max_tokens)
        wf_request_end(r, WEFT_FINISH_LENGTH, WEFT_OK, "");
    else if (q->n_tokens == r->engine->layout.context)
        wf_request_end(r, WEFT_FINISH_CONTEXT, WEFT_OK, "the context is full");
    return id;
}

void wf_request_end(struct weft_request *r, enum weft_finish finish, weft_status status, const char *message)
{
    struct weft_engine *e = r->engine;
    char text[sizeof r->message]; /* a copy: message may be this thread's error text, which callbacks can change */
    snprintf(text, sizeof text, "%s", message);
    struct weft_request **at = &e->live;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    r->next = NULL;
    uint32_t in_flight = wf_engine_drop(e, r, status == WEFT_ERR_CANCELLED);
    wf_kv_seq *kv = &r->seq.kv;
    bool cancelled = status == WEFT_ERR_CANCELLED && (in_flight != UINT32_MAX || kv->came_back);
    bool broken = status != WEFT_OK && status != WEFT_ERR_CANCELLED; /* as may be what it has computed */
    if (broken || cancelled)
        wf_kv_forget(&e->sched.kv, kv, r->tokens, r->seq.n_tokens, cancelled && !kv->came_back ? in_flight : 0,
                     cancelled);
    wf_sched_remove(&e->sched, &r->seq, status == WEFT_OK);
    pthread_mutex_lock(&e->lock);
    wf_engine_leave_adapter(e, r); /* before DONE, whose reader may unload it */
    pthread_mutex_unlock(&e->lock);
    wf_engine_count(e); /* so that a callback of DONE sees up-to-date statistics */
    weft_status tail = WEFT_OK;
    for (int part = 0; part < 2 && tail == WEFT_OK && !r->stop.found; part++) {
        /* What could have become a stop text, then an incomplete character: both were held back. */
        struct weft_event ev = {.kind = WEFT_EVENT_TOKEN, .id = -1, .position = r->seq.n_tokens - 1, .message = ""};
        ev.text_len = part ? wf_detokenizer_end(&r->detokenizer, &ev.text) : wf_stop_end(&r->stop, &ev.text);
        if (ev.text_len) tail = wf_request_emit(r, ev);
    }
    if (tail != WEFT_OK && status == WEFT_OK)
        finish = WEFT_FINISH_ERROR, status = tail, snprintf(text, sizeof text, "%s", wf_error());
    uint64_t now = wf_now_ns(), start = r->start_ns ? r->start_ns : now, first = r->first_ns ? r->first_ns : now;
    wf_request_emit(r, (struct weft_event){.kind = WEFT_EVENT_DONE, .id = r->end_id, .text = "", .finish = finish,
                                      .status = status, .message = text, .position = r->seq.n_tokens - 1,
                                      .n_prompt = r->n_prompt, .n_generated = r->seq.n_tokens - r->n_prompt,
                                      .n_cached = r->seq.n_cached, .queue_ns = start - r->submit_ns,
                                      .prompt_ns = first - start, .decode_ns = now - first,
                                      .stop_text = (uint32_t)r->stop.found});
    pthread_mutex_lock(&e->lock);
    r->state = WF_REQUEST_DONE;
    r->status = status;
    memcpy(r->message, text, sizeof text);
    e->stats.embeddings += r->p.embed && status == WEFT_OK;
    e->stats.prompt_tokens += r->n_prompt;
    e->stats.generated_tokens += r->seq.n_tokens - r->n_prompt;
    *(status == WEFT_OK || status == WEFT_ERR_CANCELLED ? &e->stats.requests_done : &e->stats.requests_failed) += 1;
    bool last = !r->owned;
    pthread_cond_broadcast(&e->ended);
    pthread_mutex_unlock(&e->lock);
    if (last) wf_request_destroy(r);
}
