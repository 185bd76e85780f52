/* watch: one thread that detects clients that disconnect while the engine works for them, requests that exceed their timeout, and
 * connections on which no request is completed. libmicrohttpd does not poll suspended connections. */
#include "serve/api/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define TICK_MS 200

/* Call with server.lock held. */
static wf_job *find(const wf_server *s, uint64_t serial)
{
    wf_job *j = s->jobs;
    while (j && j->serial != serial) j = j->next;
    return j;
}

static void on_hangup(wf_server *s, uint64_t serial)
{
    pthread_mutex_lock(&s->lock);
    wf_job *j = find(s, serial);
    if (j) wf_job_abort(j, WF_ABORT_GONE);
    pthread_mutex_unlock(&s->lock);
}

/* Has the client disconnected in the middle of a request? libmicrohttpd misses that if the last bytes and the end arrive
 * together, because epoll reports them once. It takes two checks, since the request may just have been completed. */
static bool is_abandoned(wf_conn *c)
{
    char byte;
    bool before = c->ended;
    c->ended = !c->busy && !recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return before && c->ended;
}

/* Has it had its time for a request? Who has not shown that he may ask has little. */
static bool is_late(const wf_server *s, const wf_conn *c, uint64_t now)
{
    uint32_t seconds = s->p.read_timeout_s;
    if (!c->asked && !c->known) seconds = WF_MIN(seconds, s->p.header_timeout_s);
    return !c->busy && now > c->since_ns + seconds * 1000000000ull;
}

/* ---- who makes room ------------------------------------------------------------------------------------- */

/* Does it make room sooner than the other? */
static bool is_sooner(const wf_conn *c, const wf_conn *other)
{
    return !other || c->known < other->known || (c->known == other->known && c->since_ns < other->since_ns);
}

static wf_conn *longest_idle(const wf_server *s)
{
    wf_conn *best = NULL;
    for (wf_conn *c = s->conns; c; c = c->next)
        if (!c->asked && !c->busy && !c->evicted && is_sooner(c, best)) best = c;
    return best;
}

static void count_requests(const wf_server *s, uint32_t n[WF_CLIENT_SLOTS])
{
    memset(n, 0, WF_CLIENT_SLOTS * sizeof *n);
    for (const wf_conn *c = s->conns; c; c = c->next) n[c->client % WF_CLIENT_SLOTS] += c->asked && !c->evicted;
}

/* The oldest whose request has not arrived whole, of the client that has most requests. */
static wf_conn *greediest(const wf_server *s, const uint32_t n[WF_CLIENT_SLOTS])
{
    wf_conn *best = NULL;
    for (wf_conn *c = s->conns; c; c = c->next) {
        if (!c->asked || c->busy || c->evicted) continue;
        uint32_t own = n[c->client % WF_CLIENT_SLOTS], most = best ? n[best->client % WF_CLIENT_SLOTS] : 0;
        if (own > most || (own == most && c->since_ns < best->since_ns)) best = c;
    }
    return best;
}

int wf_conn_evict(wf_server *s)
{
    uint32_t n[WF_CLIENT_SLOTS];
    pthread_mutex_lock(&s->lock);
    wf_conn *c = longest_idle(s);
    if (!c) {
        count_requests(s, n);
        c = greediest(s, n);
    }
    if (c) c->evicted = true;
    int fd = c ? c->fd : -1;
    pthread_mutex_unlock(&s->lock);
    return fd;
}

bool wf_conn_displace(wf_server *s, uint64_t client)
{
    uint32_t n[WF_CLIENT_SLOTS];
    pthread_mutex_lock(&s->lock);
    count_requests(s, n);
    wf_conn *c = greediest(s, n);
    bool any = c && n[c->client % WF_CLIENT_SLOTS] > n[client % WF_CLIENT_SLOTS];
    if (any) {
        c->evicted = true;
        shutdown(c->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&s->lock);
    return any;
}

/* ---- times ---------------------------------------------------------------------------------------------- */

static void check_times(wf_server *s)
{
    uint64_t now = wf_now_ns();
    pthread_mutex_lock(&s->lock);
    for (wf_job *j = s->jobs; j; j = j->next)
        if (now > j->deadline_ns) wf_job_abort(j, WF_ABORT_TIMEOUT);
    for (wf_conn *c = s->conns; c; c = c->next)
        if (is_abandoned(c) || is_late(s, c, now))
            shutdown(c->fd, SHUT_RDWR);
    pthread_mutex_unlock(&s->lock);
}

static void *watch_thread(void *arg)
{
    wf_server *s = arg;
    struct epoll_event events[64];
    uint64_t checked = wf_now_ns();
    for (;;) {
        int n = epoll_wait(s->epoll, events, WF_LEN(events), TICK_MS);
        for (int i = 0; i < n; i++) {
            if (!events[i].data.u64) return NULL; /* the pipe: stop */
            on_hangup(s, events[i].data.u64);
        }
        if (wf_now_ns() - checked < TICK_MS * 1000000ull) continue;
        checked = wf_now_ns();
        check_times(s);
    }
}

bool wf_watch_start(wf_server *s)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 0};
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (s->epoll < 0 || pipe(s->wake) || epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->wake[0], &ev))
        return false;
    s->watching = !pthread_create(&s->watcher, NULL, watch_thread, s);
    return s->watching;
}

void wf_watch_stop(wf_server *s)
{
    if (!s->watching) return;
    while (write(s->wake[1], "", 1) < 0 && errno == EINTR) {
    }
    pthread_join(s->watcher, NULL);
    close(s->wake[0]);
    close(s->wake[1]);
    close(s->epoll);
}

void wf_watch_add(wf_job *j)
{
    wf_server *s = j->server;
    static atomic_uint_fast64_t serials;
    j->serial = atomic_fetch_add(&serials, 1) + 1;
    /* A client that closes only its sending side counts as gone: it looks the same as one that
     * left. */
    struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = j->serial};
    pthread_mutex_lock(&s->lock);
    j->prev = NULL;
    j->next = s->jobs;
    if (s->jobs) s->jobs->prev = j;
    s->jobs = j;
    pthread_mutex_unlock(&s->lock);
    if (j->socket && epoll_ctl(s->epoll, EPOLL_CTL_ADD, j->socket->fd, &ev) && errno == EEXIST)
        epoll_ctl(s->epoll, EPOLL_CTL_MOD, j->socket->fd, &ev);
}

void wf_watch_remove(wf_job *j)
{
    wf_server *s = j->server;
    if (!j->serial) return;
    if (j->socket) epoll_ctl(s->epoll, EPOLL_CTL_DEL, j->socket->fd, NULL);
    pthread_mutex_lock(&s->lock);
    if (j->prev)
        j->prev->next = j->next;
    else
        s->jobs = j->next;
    if (j->next) j->next->prev = j->prev;
    pthread_mutex_unlock(&s->lock);
    j->serial = 0;
}
