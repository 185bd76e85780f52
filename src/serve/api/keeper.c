/* keeper: the thread that loads models and unloads them, one after another, so that each knows what memory is left. */
#include "serve/api/internal.h"
#include "base/options.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define TICK_NS   100000000u /* how late an idle model goes at most */
#define GIVE_UP_NS 350000000ull /* loading that takes longer to stop is left where it is */

typedef struct task { /* what is loaded now */
    wf_opening opening; /* the first member: its calls get its address */
    wf_served *model;
    bool too_large; /* for all memory that there is */
} task;

/* Call these with the lock held. */
static void await_news(wf_models *ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += TICK_NS;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_cond_timedwait(&ms->news, &ms->lock, &until);
}

static bool has_failed(const wf_served *m)
{
    struct weft_stats e;
    weft_engine_stats(m->engine, &e);
    return e.failed;
}

static void unload(wf_models *ms, wf_served *m)
{
    wf_served old = {.engine = m->engine, .model = m->model};
    m->state = WF_SERVED_AWAY;
    m->engine = NULL;
    m->model = NULL;
    m->bytes = 0;
    m->leaves = m->closed = false;
    m->keep_ns = wf_models_keep_usual(m->server); /* what a request asked for holds as long as it is loaded */
    pthread_mutex_unlock(&ms->lock);
    wf_served_free(&old);
    wf_say(m->server, "%s is unloaded", m->name);
    pthread_mutex_lock(&ms->lock);
}

/* One that nobody holds and whose time has come. One whose engine has failed lets nobody more in. */
static wf_served *find_leaving(wf_models *ms)
{
    uint64_t now = wf_now_ns();
    for (wf_served *m = ms->first; m; m = m->next) {
        if (m->state != WF_SERVED_READY) continue;
        if (!m->closed && has_failed(m)) m->leaves = m->closed = true;
        if (!m->n_users && (m->leaves || m->closed || now - m->used_ns >= m->keep_ns)) return m;
    }
    return NULL;
}

static wf_served *find_next(wf_models *ms)
{
    wf_served *next = NULL;
    for (wf_served *m = ms->first; m; m = m->next) {
        bool wanted = atomic_load(&m->n_waiting) || (m->asked && !atomic_load(&m->server->stopping));
        if (m->state != WF_SERVED_AWAY) continue;
        if (!wanted) m->turn = 0;
        else if (!next || m->turn < next->turn) next = m;
    }
    return next;
}

/* ---- room ------------------------------------------------------------------------------------------------ */

/* The least recently used one that is still open to requests; idle: that nobody holds. */
static wf_served *find_oldest(wf_models *ms, bool idle)
{
    wf_served *oldest = NULL;
    for (wf_served *m = ms->first; m; m = m->next)
        if (m->state == WF_SERVED_READY && !m->closed && (!idle || !m->n_users) &&
            (!oldest || m->used_ns < oldest->used_ns))
            oldest = m;
    return oldest;
}

/* Bytes of all that are loaded, without those that leave if closing is false. */
static uint64_t sum_bytes(const wf_models *ms, bool closing)
{
    uint64_t sum = 0;
    for (const wf_served *m = ms->first; m; m = m->next)
        if (m->state == WF_SERVED_READY && (closing || !m->closed)) sum += m->bytes;
    return sum;
}

static bool is_unwanted(const wf_opening *o)
{
    const task *t = (const task *)o;
    wf_server *s = t->model->server;
    return atomic_load(&s->models.ending) || (atomic_load(&s->stopping) && !atomic_load(&t->model->n_waiting));
}

static bool nobody_waits(const task *t) { return !atomic_load(&t->model->n_waiting) && !t->model->asked; }

/* Takes one away: an idle one at once; else one that answers is closed, whose requests come to their end. */
static void make_some(wf_models *ms, bool more)
{
    wf_served *m = find_leaving(ms);
    if (!m && more) m = find_oldest(ms, true);
    if (m) unload(ms, m);
    else if (more && (m = find_oldest(ms, false))) m->closed = true;
    else await_news(ms);
}

/* What was closed, and is not needed, goes on. */
static void open_again(wf_models *ms)
{
    for (wf_served *m = ms->first; m; m = m->next) {
        if (m->state != WF_SERVED_READY || !m->closed || m->leaves) continue;
        m->closed = false;
        wf_served_admit(m);
    }
}

static bool make_room(wf_opening *o, uint64_t bytes, uint64_t limit)
{
    task *t = (task *)o;
    wf_server *s = t->model->server;
    wf_models *ms = &s->models;
    if (s->limits.models) limit = s->limits.models;
    o->status = WEFT_OK;
    t->too_large = limit && bytes > limit;
    if (t->too_large)
        o->status = wf_fail(WEFT_ERR_NOMEM, "it needs %.2f GiB of memory, and the models of this server may take %.2f "
                            "GiB together", (double)bytes / 0x1p30, (double)limit / 0x1p30);
    pthread_mutex_lock(&ms->lock);
    while (!o->status && limit && sum_bytes(ms, true) + bytes > limit) {
        if (is_unwanted(o) || nobody_waits(t)) o->status = wf_fail(WEFT_ERR_CANCELLED, "nobody waits for it");
        else make_some(ms, sum_bytes(ms, false) + bytes > limit);
    }
    open_again(ms);
    pthread_mutex_unlock(&ms->lock);
    return !o->status;
}

/* The device has no memory for it: one more has to go. false: there is no other. */
static bool make_more(task *t)
{
    wf_models *ms = &t->model->server->models;
    pthread_mutex_lock(&ms->lock);
    uint64_t all = sum_bytes(ms, true);
    bool can = all > 0;
    while (can && sum_bytes(ms, true) == all && !is_unwanted(&t->opening) && !nobody_waits(t))
        make_some(ms, sum_bytes(ms, false) == all);
    bool made = sum_bytes(ms, true) < all;
    open_again(ms);
    pthread_mutex_unlock(&ms->lock);
    return made;
}

/* ---- loading --------------------------------------------------------------------------------------------- */

static void on_progress(wf_opening *o, const char *what, double fraction)
{
    (void)what;
    atomic_store(&((task *)o)->model->progress, (unsigned)(WF_MIN(WF_MAX(fraction, 0.0), 1.0) * 1e3));
}

void wf_keeper_path(const wf_served *m, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s", m->server->models.folder, m->file) >= PATH_MAX) *path = 0;
}

const char *wf_keeper_reason(const wf_server *s)
{
    static _Thread_local char reason[400];
    size_t n = strlen(s->models.folder), at = 0;
    for (const char *p = wf_last_error(); *p && at + 1 < sizeof reason;) {
        if (!strncmp(p, s->models.folder, n) && p[n] == '/') p += n + 1;
        else reason[at++] = *p++;
    }
    reason[at] = 0;
    return reason;
}

/* Call it with the lock held. */
static void refuse_all(wf_served *m, weft_status s)
{
    m->turn = 0;
    m->asked = false;
    for (wf_job *j; (j = m->waiting); wf_job_wake(j)) {
        m->waiting = j->next_waiting;
        j->waits = false;
        wf_refuse(&j->refusal, s == WEFT_ERR_NOMEM ? 503 : 500, "model", "the model '%.80s' cannot be loaded: %s",
                  m->name, m->failure);
        j->refusal.code = "model_not_loaded";
    }
    atomic_store(&m->n_waiting, 0);
}

/* What nobody waited for any more is as before: those that have come meanwhile wait for the next time. */
static void end_failed(wf_served *m, weft_status s)
{
    wf_models *ms = &m->server->models;
    const char *reason = wf_keeper_reason(m->server);
    bool given_up = s == WEFT_ERR_CANCELLED;
    if (!given_up) wf_say(m->server, "%s cannot be loaded: %s", m->name, reason);
    pthread_mutex_lock(&ms->lock);
    m->state = WF_SERVED_AWAY;
    m->leaves = false;
    if (!given_up) {
        wf_copy(m->failure, sizeof m->failure, reason);
        refuse_all(m, s);
    }
    pthread_mutex_unlock(&ms->lock);
}

/* Call it without the lock. */
static void load(wf_server *s, wf_served *m)
{
    char path[PATH_MAX];
    task t = {.model = m};
    const wf_opening begin = {.path = path, .on_progress = on_progress, .room = make_room, .stop = is_unwanted};
    int rc;
    wf_keeper_path(m, path);
    wf_say(s, "%s is being loaded", m->name);
    do {
        t.opening = begin;
        rc = s->p.open(s->p.user, &t.opening);
    } while (rc && t.opening.status == WEFT_ERR_NOMEM && !t.too_large && make_more(&t));
    if (rc) end_failed(m, t.opening.status);
    else wf_served_publish(m, &t.opening);
}

static void *keeper_thread(void *arg)
{
    wf_server *s = arg;
    wf_models *ms = &s->models;
    pthread_mutex_lock(&ms->lock);
    while (!atomic_load(&ms->ending)) {
        wf_served *leaving = find_leaving(ms), *next = leaving ? NULL : find_next(ms);
        if (leaving) unload(ms, leaving);
        else if (!next) await_news(ms);
        else {
            next->state = WF_SERVED_LOADING;
            atomic_store(&next->progress, 0);
            pthread_mutex_unlock(&ms->lock);
            load(s, next);
            pthread_mutex_lock(&ms->lock);
        }
    }
    pthread_mutex_unlock(&ms->lock);
    atomic_store(&ms->ended, true);
    return NULL;
}

bool wf_keeper_start(wf_server *s)
{
    s->models.started = !pthread_create(&s->models.keeper, NULL, keeper_thread, s);
    return s->models.started || !wf_fail(WEFT_ERR_IO, "cannot start the thread that loads models; see ulimit -u");
}

bool wf_keeper_end(wf_server *s)
{
    wf_models *ms = &s->models;
    uint64_t end = wf_now_ns() + GIVE_UP_NS;
    if (!ms->started) return true;
    atomic_store(&ms->ending, true);
    pthread_mutex_lock(&ms->lock);
    pthread_cond_signal(&ms->news);
    pthread_mutex_unlock(&ms->lock);
    while (!atomic_load(&ms->ended) && wf_now_ns() < end) wf_sleep_ns(1000000);
    if (!atomic_load(&ms->ended)) return false;
    pthread_join(ms->keeper, NULL);
    for (wf_served *m = ms->first; m; m = m->next) wf_served_free(m);
    return true;
}
