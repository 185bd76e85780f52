/* replay: submits requests to an engine and records when tokens arrive. See replay.h. */
#include "loadgen/replay.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOK_NS 100000000u /* longest sleep of the submitting thread */

struct replay;
typedef struct slot { /* a request's user pointer */
    struct replay *replay;
    wf_request_result *result;
    struct weft_request *request;
    int32_t *ids;      /* of a conversation: its prompt and answer; NULL before, and once the next round has them */
    uint32_t n_ids;
    uint64_t ended_ns; /* guarded by lock; 0: it runs, or has not begun */
} slot;

typedef struct replay {
    struct weft_engine *e;
    const wf_replay_params *p;
    slot *slots;
    uint64_t start_ns;
    size_t next;     /* first request not yet submitted */
    size_t n_freed;  /* of ended, by the submitting thread */
    int32_t *prompt; /* scratch of the submitting thread */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    slot **ended; /* n_ended; guarded by lock */
    size_t n_ended;
    weft_status status; /* first failure; guarded by lock */
    char message[512];
} replay;

/* ---- the engine's thread ------------------------------------------------------------------- */

static void on_event(void *user, const struct weft_event *ev)
{
    slot *s = user;
    uint64_t now = wf_now_ns();
    if (ev->kind == WEFT_EVENT_TOKEN && ev->id >= 0) {
        wf_request_result_token(s->result, now);
        if (s->ids) s->ids[s->n_ids++] = ev->id;
    }
    if (ev->kind == WEFT_EVENT_DONE) {
        replay *r = s->replay;
        s->result->n_in = ev->n_prompt;
        s->result->n_out = ev->n_generated;
        s->result->ok = ev->status == WEFT_OK;
        if (!s->result->first_ns) s->result->first_ns = s->result->last_ns = now; /* prefill only */
        pthread_mutex_lock(&r->lock);
        s->ended_ns = now;
        if (ev->status && !r->status) {
            r->status = ev->status;
            wf_copy(r->message, sizeof r->message, ev->message);
        }
        r->ended[r->n_ended++] = s;
        pthread_cond_signal(&r->wake);
        pthread_mutex_unlock(&r->lock);
    }
}

/* ---- submitting thread --------------------------------------------------------------------- */

static uint64_t arrival_ns(const replay *r, size_t i) { return r->start_ns + (uint64_t)(r->p->at[i] * 1e9); }

/* What request i goes on with; NULL: nothing. */
static slot *round_before(const replay *r, size_t i)
{
    return r->p->conversations && i >= r->p->conversations ? &r->slots[i - r->p->conversations] : NULL;
}

/* When it may go on; UINT64_MAX: not yet. */
static uint64_t goes_on_ns(replay *r, const slot *before)
{
    pthread_mutex_lock(&r->lock);
    uint64_t ended = before->ended_ns;
    pthread_mutex_unlock(&r->lock);
    return ended ? ended + (uint64_t)(r->p->think_s * 1e9) : UINT64_MAX;
}

/* Takes over what was said before, into the prompt, and makes room for what will be. */
static weft_status go_on(replay *r, size_t i, uint32_t *n_in)
{
    slot *before = round_before(r, i), *s = &r->slots[i];
    uint32_t n = before ? before->n_ids : 0, total = n + *n_in;
    if (!(s->ids = wf_calloc(total + r->p->specs[i].n_out + 1, sizeof *s->ids))) return WEFT_ERR_NOMEM;
    if (before) memcpy(s->ids, before->ids, n * sizeof *s->ids);
    memcpy(s->ids + n, r->prompt, *n_in * sizeof *s->ids);
    if (before) free(before->ids), before->ids = NULL;
    *n_in = s->n_ids = total;
    return WEFT_OK;
}

static weft_status submit(replay *r, size_t i)
{
    const wf_request_spec *spec = &r->p->specs[i];
    slot *s = &r->slots[i], *before = round_before(r, i);
    uint32_t n_in = WF_MAX(spec->n_in, 1u);
    for (uint32_t k = 0; k < n_in; k++) r->prompt[k] = (int32_t)(wf_random(r->p->seed + i, k) % r->p->n_vocab);
    if (r->p->conversations) WF_TRY(go_on(r, i, &n_in));
    struct weft_request_params rp = {.tokens = s->ids ? s->ids : r->prompt,
                                     .n_tokens = n_in,
                                     .max_tokens = spec->n_out,
                                     .prefill_only = !spec->n_out,
                                     .ignore_eos = true,
                                     .on_event = on_event,
                                     .user = s};
    s->result->start_ns = before ? goes_on_ns(r, before) : r->p->at ? arrival_ns(r, i) : r->start_ns;
    return weft_submit(r->e, &rp, &s->request);
}

/* May the next request be submitted now? */
static bool is_due(replay *r)
{
    if (r->next >= r->p->n) return false;
    const slot *before = round_before(r, r->next);
    if (before) return wf_now_ns() >= goes_on_ns(r, before);
    if (r->p->at) return wf_now_ns() >= arrival_ns(r, r->next);
    return !r->p->window || r->next - r->n_freed < r->p->window;
}

/* Frees ended requests, so that memory does not grow during a long run. */
static weft_status collect(replay *r)
{
    pthread_mutex_lock(&r->lock);
    size_t n = r->n_ended;
    weft_status s = r->status;
    if (s) wf_fail(s, "%s", r->message);
    pthread_mutex_unlock(&r->lock);
    for (; r->n_freed < n; r->n_freed++) {
        slot *ended = r->ended[r->n_freed];
        weft_request_free(ended->request);
        ended->request = NULL;
    }
    return s;
}

static weft_status submit_due(replay *r)
{
    for (; is_due(r); r->next++) WF_TRY(submit(r, r->next));
    return WEFT_OK;
}

/* ---- a start in one moment ------------------------------------------------------------------- */

/* Between two steps of the engine, which sees what came once this returns. */
static void on_gate(void *user, const struct weft_event *ev)
{
    replay *r = user;
    if (ev->kind != WEFT_EVENT_DONE) return;
    r->start_ns = wf_now_ns();
    weft_status s = ev->status ? ev->status : submit_due(r);
    pthread_mutex_lock(&r->lock);
    if (s && !r->status) {
        r->status = s;
        wf_copy(r->message, sizeof r->message, ev->status ? ev->message : wf_error());
    }
    pthread_mutex_unlock(&r->lock);
}

/* ---- the run ----------------------------------------------------------------------------------- */

static weft_status feed(replay *r)
{
    if (r->p->together) {
        /* A prompt of one token runs before, and its end submits the others. */
        struct weft_request *gate = NULL;
        struct weft_request_params rp = {
            .tokens = r->prompt, .n_tokens = 1, .prefill_only = true, .on_event = on_gate, .user = r};
        WF_TRY(weft_submit(r->e, &rp, &gate));
        weft_wait(gate, 0);
        weft_request_free(gate); /* waits for the callback */
        WF_TRY(collect(r));
    }
    while (r->n_freed < r->p->n) {
        WF_TRY(submit_due(r));
        /* Sleeps until a request ends, the next one arrives, or LOOK_NS have passed. */
        uint64_t until = wf_now_ns() + LOOK_NS;
        const slot *before = r->next < r->p->n ? round_before(r, r->next) : NULL;
        if (before) until = WF_MIN(until, goes_on_ns(r, before));
        else if (r->p->at && r->next < r->p->n) until = WF_MIN(until, arrival_ns(r, r->next));
        struct timespec t = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
        pthread_mutex_lock(&r->lock);
        if (r->n_ended == r->n_freed) pthread_cond_timedwait(&r->wake, &r->lock, &t);
        pthread_mutex_unlock(&r->lock);
        WF_TRY(collect(r));
        if (r->p->on_progress) r->p->on_progress(r->p->user, r->n_freed);
        if (r->p->stop && r->p->stop()) return WEFT_OK;
    }
    return WEFT_OK;
}

/* ---- setting up ---------------------------------------------------------------------------- */

/* Allocates everything that the callback writes to. */
static weft_status prepare(replay *r, wf_request_result *results)
{
    const wf_replay_params *p = r->p;
    uint32_t longest = 1;
    for (size_t i = 0; i < p->n; i++) longest = WF_MAX(longest, p->specs[i].n_in);
    r->prompt = wf_calloc(longest, sizeof *r->prompt);
    r->slots = wf_calloc(p->n, sizeof *r->slots);
    r->ended = wf_calloc(p->n, sizeof *r->ended);
    if (!r->prompt || !r->slots || !r->ended) return WEFT_ERR_NOMEM;
    for (size_t i = 0; i < p->n; i++) {
        r->slots[i] = (slot){.replay = r, .result = &results[i]};
        results[i].cap_gaps = p->specs[i].n_out;
        results[i].gaps = wf_calloc(results[i].cap_gaps, sizeof *results[i].gaps);
        if (!results[i].gaps) return WEFT_ERR_NOMEM;
    }
    return WEFT_OK;
}

weft_status wf_replay(struct weft_engine *e, const wf_replay_params *p, wf_request_result *results, double *seconds)
{
    replay r = {.e = e, .p = p};
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&r.lock, NULL);
    pthread_cond_init(&r.wake, &attr);
    pthread_condattr_destroy(&attr);
    weft_status s = prepare(&r, results);
    r.start_ns = wf_now_ns();
    if (!s) s = feed(&r);
    *seconds = (double)(wf_now_ns() - r.start_ns) * 1e-9;
    for (size_t i = 0; i < r.next; i++)
        if (r.slots[i].request) weft_cancel(r.slots[i].request);
    for (size_t i = 0; i < r.next; i++) weft_request_free(r.slots[i].request);
    for (size_t i = 0; r.slots && i < p->n; i++) free(r.slots[i].ids);
    pthread_cond_destroy(&r.wake);
    pthread_mutex_destroy(&r.lock);
    free(r.prompt);
    free(r.slots);
    free(r.ended);
    return s;
}
