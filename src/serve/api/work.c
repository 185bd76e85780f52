/* work: threads that read large bodies and write large replies. To parse and tokenise a body, or to write thousands of log
 * probabilities as JSON, takes up to a second, during which an HTTP thread would serve none of its other connections. The request's own
 * connection is suspended meanwhile, and the request may be aborted. */
#include "serve/api/internal.h"
#include "serve/api/places.h"

#include <sys/resource.h>

#define MAX_WAITING 256 /* of one client; of all twice as many (places.h) */
#define SHORT       (1u << 20) /* one thread takes only bodies of this length, so that they do not wait for those of many megabytes */
#define NICE        10         /* threads that serve everybody go first */

/* Takes the first body that this thread may read; NULL: there is none. Call it with work.lock held. */
static wf_job *take(wf_work *w, bool any)
{
    wf_job **at = &w->first;
    while (*at && !any && !(*at)->read && (*at)->body.len > SHORT) at = &(*at)->next_body;
    wf_job *j = *at;
    if (!j) return NULL;
    *at = j->next_body;
    w->n_waiting--;
    return j;
}

/* How many bodies of this client wait. Its next turn is behind them, or, if there are none, that of the body which comes next. */
static unsigned waiting_of(const wf_work *w, const wf_job *j, unsigned *turn)
{
    unsigned n = 0;
    const wf_job *first = w->first;
    while (first && first->read) first = first->next_body;
    *turn = first ? first->turn : 0;
    for (const wf_job *other = first; other; other = other->next_body) {
        if (other->client != j->client) continue;
        *turn = other->turn + 1;
        n++;
    }
    return n;
}

/* Clients take turns; a reply comes before all bodies, since its work is done. */
static bool insert(wf_work *w, wf_job *j)
{
    unsigned own = waiting_of(w, j, &j->turn);
    if (w->ending || (!j->read && !wf_places_allow(2 * MAX_WAITING, w->n_waiting, own, 1))) return false;
    wf_job **at = &w->first;
    while (*at && ((*at)->read || (!j->read && (*at)->turn <= j->turn))) at = &(*at)->next_body;
    j->next_body = *at;
    *at = j;
    w->n_waiting++;
    return true;
}

static wf_job *next(wf_work *w, bool any)
{
    wf_job *j;
    pthread_mutex_lock(&w->lock);
    while (!(j = take(w, any)) && !w->ending) pthread_cond_wait(&w->more, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return j;
}

static void work_on(wf_job *j)
{
    if (j->read)
        wf_reply_write(j);
    else
        wf_job_read(j);
}

static void *work_thread(void *arg)
{
    wf_work_thread *t = arg;
    setpriority(PRIO_PROCESS, 0, NICE); /* on Linux, of this thread */
    for (wf_job *j; (j = next(t->work, t->any));) {
        work_on(j);
        wf_job_wake(j);
    }
    return NULL;
}

bool wf_work_start(wf_server *s)
{
    wf_work *w = &s->work;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->more, NULL);
    for (; w->n_threads < WF_WORKERS; w->n_threads++) {
        wf_work_thread *t = &w->threads[w->n_threads];
        *t = (wf_work_thread){.work = w, .any = w->n_threads > 0};
        if (pthread_create(&t->thread, NULL, work_thread, t))
            return !wf_fail(WEFT_ERR_IO, "cannot start threads that read large requests; see ulimit -u");
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
    pthread_mutex_unlock(&w->lock);
    while (w->n_threads) pthread_join(w->threads[--w->n_threads].thread, NULL);
}

void wf_work_add(wf_job *j)
{
    wf_work *w = &j->server->work;
    pthread_mutex_lock(&j->lock);
    wf_job_sleep(j);
    pthread_mutex_unlock(&j->lock);
    pthread_mutex_lock(&w->lock);
    bool room = insert(w, j);
    pthread_cond_broadcast(&w->more); /* not every thread takes it */
    pthread_mutex_unlock(&w->lock);
    if (room) return;
    if (j->read)
        wf_reply_write(j); /* the server ends, and its threads have */
    else
        wf_refuse(&j->refusal, 503, "", "the server is busy: as many large requests wait to be read as one client, or all, may have; try again later");
    wf_job_wake(j);
}

void wf_work_remove(wf_job *j)
{
    wf_work *w = &j->server->work;
    pthread_mutex_lock(&w->lock);
    wf_job **at = &w->first;
    while (*at && *at != j) at = &(*at)->next_body;
    bool found = *at;
    if (found) *at = j->next_body, w->n_waiting--;
    pthread_mutex_unlock(&w->lock);
    if (found) wf_job_wake(j);
}

unsigned wf_work_waiting(wf_server *s)
{
    pthread_mutex_lock(&s->work.lock);
    unsigned n = s->work.n_waiting;
    pthread_mutex_unlock(&s->work.lock);
    return n;
}
