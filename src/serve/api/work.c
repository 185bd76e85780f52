/* work: threads that read bodies, compile grammars and write large replies. To parse and tokenise a body, or to write
 * thousands of log probabilities as JSON, takes up to a second, in which the loop would serve no connection. Half of
 * the threads take small bodies only, as they come; the others go last where processors are short, since all wait for
 * the small ones. What a small body costs shows as it is read: one that takes longer than WF_SMALL_NS is given up
 * there, and is read again among the large ones. The request may be aborted meanwhile. */
#include "serve/api/internal.h"
#include "serve/api/places.h"

#include <sys/resource.h>

#define MAX_WAITING 256 /* of one client; of all twice as many (places.h) */
#define SHORT                                                                                                          \
    (1u << 20) /* one thread takes only bodies of this length, so that they do not wait for those of many megabytes */
#define NICE        10

static bool is_small(const wf_job *j) { return !j->read && !j->slow && j->body.len <= WF_SMALL_BODY; }
/* Its work is done; what is to be submitted may have a grammar to compile. */
static bool is_reply(const wf_job *j) { return j->read && !j->submits; }

/* Takes j, which `at` points to, out of its list. Call these with work.lock held. */
static void unlink_body(wf_work *w, wf_job **at)
{
    wf_job *j = *at;
    *at = j->next_body;
    w->n_waiting -= !is_small(j);
}

/* Takes the first body that this thread may read; NULL: there is none. */
static wf_job *take_body(wf_work *w, size_t most)
{
    wf_job **at = most <= WF_SMALL_BODY ? &w->small : &w->first;
    while (*at && !(*at)->read && !(*at)->slow && (*at)->body.len > most) at = &(*at)->next_body;
    wf_job *j = *at;
    if (j) unlink_body(w, at);
    return j;
}

/* How many bodies of this client wait in a list. Its next turn is behind them, or, if there are none, that of the body
 * which comes next. */
static unsigned waiting_of(const wf_job *first, const wf_job *j, unsigned *turn)
{
    unsigned n = 0;
    while (first && is_reply(first)) first = first->next_body;
    *turn = first ? first->turn : 0;
    for (const wf_job *other = first; other; other = other->next_body) {
        if (other->client != j->client) continue;
        *turn = other->turn + 1;
        n++;
    }
    return n;
}

/* Clients take turns; a reply comes before all bodies. false: there is no room. */
static bool insert_body(wf_work *w, wf_job *j)
{
    bool small = is_small(j), turns = !is_reply(j);
    wf_job **at = small ? &w->small : &w->first;
    unsigned own = waiting_of(*at, j, &j->turn);
    if (w->ending || (turns && !small && !wf_places_allow(2 * MAX_WAITING, w->n_waiting, own, 1))) return false;
    while (*at && (is_reply(*at) || (turns && (*at)->turn <= j->turn))) at = &(*at)->next_body;
    j->next_body = *at;
    *at = j;
    w->n_waiting += !small;
    return true;
}

static wf_job *next_body(wf_work *w, size_t most)
{
    wf_job *j;
    pthread_mutex_lock(&w->lock);
    while (!(j = take_body(w, most)) && !w->ending)
        pthread_cond_wait(most <= WF_SMALL_BODY ? &w->more_small : &w->more, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return j;
}

static void *work_thread(void *arg)
{
    wf_work_thread *t = arg;
    if (t->most > WF_SMALL_BODY) setpriority(PRIO_PROCESS, 0, NICE); /* on Linux, of this thread */
    for (wf_job *j; (j = next_body(t->work, t->most)); wf_job_worked(j)) {
        if (j->submits) wf_job_submit(j);
        else if (j->read) wf_reply_write(j);
        else wf_job_read(j);
    }
    return NULL;
}

bool wf_work_start(wf_server *s)
{
    static const size_t most[WF_WORKERS] = {WF_SMALL_BODY, WF_SMALL_BODY, SHORT, SIZE_MAX};
    wf_work *w = &s->work;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->more, NULL);
    pthread_cond_init(&w->more_small, NULL);
    for (; w->n_threads < WF_WORKERS; w->n_threads++) {
        wf_work_thread *t = &w->threads[w->n_threads];
        *t = (wf_work_thread){.work = w, .most = most[w->n_threads]};
        if (pthread_create(&t->thread, NULL, work_thread, t))
            return !wf_fail(WEFT_ERR_IO, "cannot start threads that read requests; see ulimit -u");
    }
    return true;
}

void wf_work_stop(wf_server *s)
{
    wf_work *w = &s->work;
    if (!w->n_threads) return;
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_cond_broadcast(&w->more);
    pthread_cond_broadcast(&w->more_small);
    pthread_mutex_unlock(&w->lock);
    while (w->n_threads) pthread_join(w->threads[--w->n_threads].thread, NULL);
}

void wf_work_add(wf_job *j)
{
    wf_work *w = &j->server->work;
    pthread_mutex_lock(&j->lock);
    j->sleeps = j->working = true;
    pthread_mutex_unlock(&j->lock);
    pthread_mutex_lock(&w->lock);
    bool room = insert_body(w, j), ending = w->ending;
    if (room && is_small(j)) pthread_cond_signal(&w->more_small);
    else pthread_cond_broadcast(&w->more); /* not every thread takes it */
    pthread_mutex_unlock(&w->lock);
    if (room) return;
    if (j->submits && ending) wf_refuse(&j->refusal, 503, "", "the server is shutting down");
    else if (!is_reply(j))
        wf_refuse(&j->refusal, 503, "",
                  "the server is busy: as many large requests wait to be read as one client, or all, may have; try "
                  "again later");
    else wf_reply_write(j); /* the server ends, and its threads have */
    wf_job_worked(j);
}

void wf_work_remove(wf_job *j)
{
    wf_work *w = &j->server->work;
    bool found = false;
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < 2 && !found; i++) {
        wf_job **at = i ? &w->first : &w->small;
        while (*at && *at != j) at = &(*at)->next_body;
        found = *at;
        if (found) unlink_body(w, at);
    }
    pthread_mutex_unlock(&w->lock);
    if (found) wf_job_worked(j);
}

unsigned wf_work_waiting(wf_server *s)
{
    pthread_mutex_lock(&s->work.lock);
    unsigned n = s->work.n_waiting;
    pthread_mutex_unlock(&s->work.lock);
    return n;
}
