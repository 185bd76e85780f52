/* job: one HTTP request and its sequences. It has three owners: the request, the engine until the last choice is done,
 * and a thread that reads its body or writes its reply. The last one frees it. */
#include "serve/api/internal.h"
#include "base/options.h"
#include "serve/api/places.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#define LARGE_BODY (1u << 20) /* reading it takes far longer than giving its memory back */

void wf_random_hex(char out[33])
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) {
        static atomic_uint_fast64_t counter; /* the kernel has no entropy yet: unique is enough */
        uint64_t r[2] = {wf_random(wf_now_ns(), atomic_fetch_add(&counter, 1)), wf_now_ns()};
        memcpy(bytes, r, sizeof bytes);
    }
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

wf_job *wf_job_create(wf_server *s, wf_httpd_request *r)
{
    wf_job *j = wf_calloc(1, sizeof *j);
    if (!j) return NULL;
    j->server = s;
    if (!s->models.several) j->served = s->models.usual;
    j->request = r;
    j->attached = true;
    j->start_ns = wf_now_ns();
    j->created = (int64_t)time(NULL);
    pthread_mutex_init(&j->lock, NULL);
    wf_random_hex(j->id);
    return j;
}

static void job_free(wf_job *j)
{
    for (size_t i = 0; i < j->n_choices; i++) {
        wf_choice *c = &j->choices[i];
        weft_request_free(c->req);
        free(c->text);
        free(c->tokens);
        free(c->top);
        free(c->embedding);
        wf_blocks_free(c);
    }
    wf_budget_end(j);
    if (j->served && j->server->models.several) wf_served_drop(j->served, true);
    free(j->choices);
    free(j->body.data);
    free(j->cors.data);
    free(j->out.data);
    weft_free(j->tokens.ids);
    wf_params_free(&j->params);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

/* ---- from the engine's thread ---------------------------------------------------------------------------- */

/* Makes space for n more elements after the first `used`. */
static bool make_room(void *array, size_t used, size_t n, size_t *cap, size_t size)
{
    void **p = array;
    if (used + n <= *cap) return true;
    size_t want = WF_MAX(*cap * 2, used + n + 16);
    void *grown = realloc(*p, want * size);
    if (!grown) return false;
    *p = grown;
    *cap = want;
    return true;
}

static size_t bytes_of_choice(const wf_choice *c)
{
    return c->cap_text + c->cap_top * sizeof *c->top + c->cap_tokens * sizeof *c->tokens +
           c->n_embedding * sizeof *c->embedding;
}

static bool append_event(wf_choice *c, const struct weft_event *ev)
{
    if (ev->kind == WEFT_EVENT_EMBEDDING) {
        if (!(c->embedding = wf_calloc(ev->n_embedding, sizeof *c->embedding))) return false;
        memcpy(c->embedding, ev->embedding, ev->n_embedding * sizeof *c->embedding);
        c->n_embedding = ev->n_embedding;
        return true;
    }
    if (!make_room(&c->text, c->n_text, ev->text_len, &c->cap_text, 1) ||
        !make_room(&c->top, c->n_top, ev->n_top, &c->cap_top, sizeof *c->top) ||
        !make_room(&c->tokens, c->n_tokens, 1, &c->cap_tokens, sizeof *c->tokens))
        return false;
    if (ev->text_len) memcpy(c->text + c->n_text, ev->text, ev->text_len);
    c->n_text += ev->text_len;
    if (ev->id < 0) return true; /* text without a token: it was held back before */
    if (ev->n_top) memcpy(c->top + c->n_top, ev->top, ev->n_top * sizeof *c->top);
    c->tokens[c->n_tokens++] = (wf_token){ev->id,   ev->logprob, c->n_text,
                                          c->n_top, ev->n_top,   ev->kind == WEFT_EVENT_PROMPT};
    c->n_top += ev->n_top;
    return true;
}

static void cancel_all(wf_job *j)
{
    for (size_t i = 0; i < j->n_choices; i++)
        if (j->choices[i].req && !j->choices[i].done) weft_cancel(j->choices[i].req);
}

/* Keeps what the event brings, as long as there is memory for it. */
static void take_event(wf_choice *c, const struct weft_event *ev)
{
    wf_job *j = c->job;
    size_t before = bytes_of_choice(c);
    j->lost = !append_event(c, ev);
    j->crowded = !wf_budget_reply(j, j->reply_held + bytes_of_choice(c) - before);
    if (j->crowded) cancel_all(j);
}

static void record_latency(wf_choice *c, const struct weft_event *ev)
{
    wf_job *j = c->job;
    uint64_t now = wf_now_ns();
    if (ev->kind == WEFT_EVENT_TOKEN && ev->id >= 0) {
        bool first = !c->last_ns;
        wf_metrics_token(&j->served->metrics, (double)(now - (first ? j->start_ns : c->last_ns)) * 1e-9, first);
        c->last_ns = now;
    }
    if (ev->kind == WEFT_EVENT_DONE)
        wf_metrics_done(&j->served->metrics, ev, (double)(now - j->start_ns) * 1e-9,
                        c->index % (uint32_t)j->params.n == 0);
}

static void leave_places(wf_job *j, size_t n)
{
    atomic_fetch_sub(&j->places, (unsigned)n);
    atomic_fetch_sub(&j->served->in_flight, (unsigned)n);
    atomic_fetch_sub(&j->server->in_flight, (unsigned)n);
}

static void end_choice(wf_choice *c, const struct weft_event *ev)
{
    c->done = true;
    c->end = *ev;
    c->end.text = c->end.message = NULL; /* valid only during the event */
    wf_copy(c->message, sizeof c->message, ev->message ? ev->message : "");
    c->job->n_pending--;
    leave_places(c->job, 1);
}

/* Call it with job.lock held. A thread that works on it wakes it at its end. */
static void wake_job(wf_job *j)
{
    if (j->working) return;
    if (j->sleeps && j->attached) wf_httpd_wake(j->request);
    j->sleeps = false;
}

/* The same. Returns whether nobody has the job any more. */
static bool is_orphan(const wf_job *j) { return !j->attached && !j->n_pending && !j->working; }

static void on_event(void *user, const struct weft_event *ev)
{
    wf_choice *c = user;
    wf_job *j = c->job;
    record_latency(c, ev);
    pthread_mutex_lock(&j->lock);
    if (ev->kind == WEFT_EVENT_DONE) end_choice(c, ev);
    else if (!j->lost && !j->crowded && j->attached) take_event(c, ev);
    if (j->params.stream || !j->n_pending) wake_job(j);
    bool last = is_orphan(j);
    pthread_mutex_unlock(&j->lock);
    if (last) job_free(j);
}

/* ---- from the loop and the threads of work.c --------------------------------------------------------------------- */

/* The allocator keeps what a large body took, in each thread that has read one. */
static void give_memory_back(size_t body)
{
#ifdef __GLIBC__
    if (body >= LARGE_BODY) malloc_trim(0);
#else
    (void)body;
#endif
}

static bool is_aborted(void *job)
{
    wf_job *j = job;
    pthread_mutex_lock(&j->lock);
    bool aborted = j->abort != WF_ABORT_NONE;
    pthread_mutex_unlock(&j->lock);
    return aborted;
}

static bool is_given_up(void *job)
{
    wf_job *j = job;
    /* what is still being read is no request that runs: when the server ends it has half a second */
    if (atomic_load(&j->server->stopping)) {
        if (!j->last_ns) j->last_ns = wf_now_ns() + 500000000u;
        pthread_mutex_lock(&j->lock);
        if (wf_now_ns() > j->last_ns && !j->abort) j->abort = WF_ABORT_SHUTDOWN;
        pthread_mutex_unlock(&j->lock);
    }
    j->slow |= j->until_ns && wf_now_ns() > j->until_ns;
    return j->slow ? j->until_ns || is_aborted(j) : is_aborted(j);
}

/* Back to where nothing had been read. */
static void forget_body(wf_job *j)
{
    weft_free(j->tokens.ids);
    free(j->out.data);
    wf_params_free(&j->params);
    j->tokens = (wf_token_list){0};
    j->out = (wf_text){0};
    j->params = (wf_params){0};
    j->refusal = (wf_http_error){0};
}

void wf_job_read(wf_job *j)
{
    wf_work *w = &j->server->work;
    size_t len = j->body.len;
    bool wanted = !is_aborted(j);
    j->until_ns = j->slow || len > WF_SMALL_BODY ? 0 : wf_now_ns() + WF_SMALL_NS;
    wf_json *body = wanted ? wf_body_parse(j->body.data, len, &j->refusal) : NULL;
    bool ended = !body || is_aborted(j); /* well or badly; false: it is given up in the middle */
    if (!ended) {
        wf_stop_by(is_given_up, j);
        ended = wf_models_take(j, body) && j->route->read(j, body);
        wf_stop_by(NULL, NULL);
        ended = ended || !is_aborted(j);
    }
    wf_json_free(body);
    if (j->awaits) {
        j->last_ns = 0; /* a request that runs, as it were */
        return;
    }
    if (j->slow && j->until_ns) {
        forget_body(j);
        return;
    }
    free(j->body.data);
    j->body = (wf_text){0};
    if (j->refusal.status || !wf_budget_prompts(j)) wf_budget_body(j, 0);
    j->read = true;
    if (wanted && len > WF_SMALL_BODY) atomic_fetch_add(ended ? &w->n_read : &w->n_given_up, 1);
    give_memory_back(len);
}

void wf_job_wake(wf_job *j)
{
    pthread_mutex_lock(&j->lock);
    wake_job(j);
    pthread_mutex_unlock(&j->lock);
}

void wf_job_worked(wf_job *j)
{
    pthread_mutex_lock(&j->lock);
    j->read = !(j->slow && j->until_ns) && !j->awaits;
    j->working = false;
    wake_job(j);
    bool last = is_orphan(j);
    pthread_mutex_unlock(&j->lock);
    if (last) job_free(j);
}

void wf_job_watch(wf_job *j)
{
    wf_server *s = j->server;
    if (j->listed) return;
    j->listed = true;
    wf_httpd_watch(j->request, j->start_ns + s->p.request_timeout_s * 1000000000ull);
    pthread_mutex_lock(&s->lock);
    j->next = s->jobs;
    if (s->jobs) s->jobs->prev = j;
    s->jobs = j;
    pthread_mutex_unlock(&s->lock);
    j->admitted = !atomic_load(&s->stopping); /* in this order: shutdown waits for those that it sees */
}

static void unlist_job(wf_job *j)
{
    wf_server *s = j->server;
    if (!j->listed) return;
    pthread_mutex_lock(&s->lock);
    if (j->prev) j->prev->next = j->next;
    else s->jobs = j->next;
    if (j->next) j->next->prev = j->prev;
    pthread_mutex_unlock(&s->lock);
}

/* Reserves n places of those that may run or wait for this model: one client has as many as the options say, all
 * together twice that. */
static bool reserve_places(wf_job *j, size_t n)
{
    wf_server *s = j->server;
    size_t places = 2 * ((size_t)j->served->max_running + j->served->max_queue);
    pthread_mutex_lock(&s->lock);
    unsigned used = atomic_load(&j->served->in_flight), own = 0;
    for (wf_job *other = s->jobs; other; other = other->next)
        if (other->client == j->client && other->served == j->served) own += atomic_load(&other->places);
    bool fits = wf_places_allow(places, used, own, n);
    if (fits) {
        atomic_fetch_add(&s->in_flight, (unsigned)n);
        atomic_fetch_add(&j->served->in_flight, (unsigned)n);
        atomic_fetch_add(&j->places, (unsigned)n);
    }
    pthread_mutex_unlock(&s->lock);
    if (!fits)
        return wf_refuse(&j->refusal, 503, "",
                         "the server is busy: %u sequences run or wait, %u of them of this client; try again later",
                         used, own);
    if (j->admitted) return true;
    leave_places(j, n);
    return wf_refuse(&j->refusal, 503, "", "the server is shutting down");
}

static bool submit_choice(wf_job *j, size_t i)
{
    wf_choice *c = &j->choices[i];
    struct weft_request *req;
    struct weft_request_params rp = wf_params_request(&j->params, i);
    rp.client = j->client;
    rp.on_event = on_event;
    rp.user = c;
    pthread_mutex_lock(&j->lock);
    j->n_pending++; /* before the engine can finish it */
    pthread_mutex_unlock(&j->lock);
    weft_status s = weft_submit(j->served->engine, &rp, &req);
    pthread_mutex_lock(&j->lock);
    if (s == WEFT_OK) c->req = req;
    else j->n_pending--;
    if (s == WEFT_OK && (j->abort || j->crowded) && !c->done) weft_cancel(req); /* it has been given up already */
    pthread_mutex_unlock(&j->lock);
    if (s == WEFT_ERR_ARG && !wf_adapter_stays(j)) return false;
    if (s != WEFT_OK)
        return wf_refuse(&j->refusal,
                         s == WEFT_ERR_UNSUPPORTED                                             ? WF_UNSUPPORTED
                         : s == WEFT_ERR_ARG || s == WEFT_ERR_FULL || s == WEFT_ERR_FORMAT ? 400
                                                                                             : 503,
                         j->params.grammar && (s == WEFT_ERR_UNSUPPORTED || s == WEFT_ERR_FORMAT)
                             ? j->params.grammar_field : "", "%s", wf_last_error());
    wf_metrics_started(&j->served->metrics);
    return true;
}

bool wf_job_submit(wf_job *j)
{
    size_t n = j->params.n_prompts * (size_t)j->params.n, i = 0;
    if (!reserve_places(j, n)) return false;
    wf_choice *choices = wf_calloc(n, sizeof *choices);
    if (!choices) {
        leave_places(j, n);
        return wf_refuse(&j->refusal, 500, "", "out of memory");
    }
    for (size_t k = 0; k < n; k++) choices[k].job = j, choices[k].index = (uint32_t)k;
    pthread_mutex_lock(&j->lock);
    j->choices = choices;
    j->n_choices = n;
    pthread_mutex_unlock(&j->lock);
    while (i < n && !is_aborted(j) && submit_choice(j, i)) i++;
    if (i == n) return true;
    leave_places(j, n - i);
    wf_job_abort(j, WF_ABORT_SHUTDOWN);
    return false;
}

void wf_job_abort(wf_job *j, enum wf_abort why)
{
    pthread_mutex_lock(&j->lock);
    if (!j->abort) j->abort = why;
    cancel_all(j);
    bool working = j->working;
    pthread_mutex_unlock(&j->lock);
    if (working) wf_work_remove(j);
    wf_models_forget(j);
}

void wf_job_detach(wf_job *j)
{
    unlist_job(j);
    wf_job_abort(j, WF_ABORT_GONE); /* nobody will read the rest */
    pthread_mutex_lock(&j->lock);
    j->attached = false;
    bool last = is_orphan(j);
    pthread_mutex_unlock(&j->lock);
    if (last) job_free(j);
}

bool wf_job_failed(wf_job *j, wf_http_error *r)
{
    if (j->abort == WF_ABORT_TIMEOUT)
        return !wf_refuse(r, 504, "", "the request took longer than the %u s that this server allows",
                          j->server->p.request_timeout_s);
    if (j->abort == WF_ABORT_SHUTDOWN) return !wf_refuse(r, 503, "", "the server is shutting down");
    if (j->crowded) {
        wf_budget_refuse_reply(j, r);
        return true;
    }
    if (j->lost) return !wf_refuse(r, 500, "", "out of memory for the answer");
    for (size_t i = 0; i < j->n_choices; i++) {
        const wf_choice *c = &j->choices[i];
        if (!c->done || c->end.status == WEFT_OK || c->end.status == WEFT_ERR_CANCELLED) continue;
        bool format = j->params.grammar && c->end.status == WEFT_ERR_UNSUPPORTED; /* it takes too much work to keep */
        wf_refuse(r, format ? WF_UNSUPPORTED : 500, format ? j->params.grammar_field : "", "%s", c->message);
        if (c->end.status == WEFT_ERR_NOT_FINITE) r->code = "logits_not_finite";
        return true;
    }
    return false;
}
