/* loop: the thread of a server, and how others reach it. It waits for sockets, and for connections that another thread
 * woke: the engine's events come in bursts, of which the first one costs a system call.
 *
 * A few more connections are accepted than may have requests, so that /health is always answered. When there is no
 * room, one that can be spared ends (room.c); if none can, others wait in the queue of the listening socket. */
#include "serve/http/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#define RESERVE     8  /* connections above the limit, for /health */
#define SPARE_FILES 96 /* file descriptors for models, devices and the server itself */
#define LEAST       4  /* connections */

/* ---- from other threads ---------------------------------------------------------------------------------- */

static void rouse_loop(const wf_httpd *h)
{
    const uint64_t one = 1;
    (void)!write(h->wake, &one, sizeof one);
}

void wf_httpd_wake(wf_httpd_request *r)
{
    wf_conn *c = (wf_conn *)r;
    wf_httpd *h = c->http;
    pthread_mutex_lock(&h->lock);
    bool asleep = h->asleep;
    h->asleep = false;
    if (!c->awake) {
        c->awake = true;
        c->next_awake = NULL;
        *h->awake_end = c;
        h->awake_end = &c->next_awake;
        h->n_awake++;
    }
    pthread_mutex_unlock(&h->lock);
    if (asleep) rouse_loop(h);
}

/* ---- the thread ------------------------------------------------------------------------------------------ */

static bool is_full(const wf_httpd *h) { return h->n_conns >= h->p.max_connections + RESERVE; }

static void arm_listener(wf_httpd *h)
{
    struct epoll_event ev = {.events = h->retry_ns ? 0 : EPOLLIN, .data.ptr = &h->listener};
    if (h->listener >= 0) epoll_ctl(h->epoll, EPOLL_CTL_MOD, h->listener, &ev);
}

static wf_conn *next_awake(wf_httpd *h)
{
    pthread_mutex_lock(&h->lock);
    wf_conn *c = h->awake;
    if (c) {
        h->awake = c->next_awake;
        if (!h->awake) h->awake_end = &h->awake;
        h->n_awake--;
        c->awake = false;
    }
    pthread_mutex_unlock(&h->lock);
    return c;
}

/* How many are awake; none: whoever wakes one from now on has to rouse this thread, if it sleeps then. */
static size_t count_awake(wf_httpd *h, bool sleeps)
{
    pthread_mutex_lock(&h->lock);
    size_t n = h->n_awake;
    h->asleep = sleeps && !n;
    pthread_mutex_unlock(&h->lock);
    return n;
}

static void handle_event(wf_httpd *h, const struct epoll_event *e)
{
    uint64_t count;
    wf_conn *c = e->data.ptr;
    if (e->data.ptr == &h->listener) {
        bool lacking = is_full(h) && !wf_room_make(h); /* the event says that one waits */
        while (!lacking && !is_full(h)) {
            int fd = wf_accept_next(h, &lacking);
            if (fd < 0) break;
            lacking = !wf_conn_open(h, fd);
        }
        if (lacking) {
            h->retry_ns = wf_now_ns() + WF_HTTP_TICK_MS * 1000000ull;
            arm_listener(h);
        }
    } else if (e->data.ptr == &h->wake) (void)!read(h->wake, &count, sizeof count);
    else if (!c->dead) wf_conn_event(c, e->events);
}

/* Sends what has been given, for a while, and reads no more. false: nothing is left to do. */
static bool end_some(wf_httpd *h)
{
    if (!h->stop_ns) h->stop_ns = wf_now_ns() + WF_HTTP_LINGER_NS;
    bool late = wf_now_ns() > h->stop_ns;
    for (wf_conn *c = h->conns, *next; c; c = next) {
        next = c->next;
        if (late || c->state == WF_CONN_READS) wf_conn_drop(c);
    }
    return h->conns;
}

/* What happens beside events. false: the thread ends. */
static bool tick_loop(wf_httpd *h, uint64_t *checked)
{
    uint64_t now = wf_now_ns();
    for (wf_conn *c; (c = h->dead);) {
        h->dead = c->next;
        free(c);
    }
    if (h->retry_ns && now > h->retry_ns) {
        h->retry_ns = 0;
        arm_listener(h);
    }
    if (atomic_load(&h->refusing) && h->listener >= 0) {
        wf_accept_stop(h);
        sem_post(&h->refused);
    }
    bool due = now - *checked > WF_HTTP_TICK_MS * 1000000ull;
    if (due) *checked = now;
    for (wf_conn *c = due ? h->conns : NULL, *next; c; c = next) {
        next = c->next;
        wf_conn_check(c, now);
    }
    return !atomic_load(&h->stopping) || end_some(h);
}

static void *http_thread(void *arg)
{
    wf_httpd *h = arg;
    struct epoll_event events[64];
    uint64_t checked = 0;
    while (tick_loop(h, &checked)) {
        bool timed = h->conns || h->retry_ns;
        int n = epoll_wait(h->epoll, events, WF_LEN(events), count_awake(h, true) ? 0 : timed ? WF_HTTP_TICK_MS : -1);
        size_t turns = count_awake(h, false);
        for (int i = 0; i < n; i++) handle_event(h, &events[i]);
        for (wf_conn *c; turns-- && (c = next_awake(h));) wf_conn_awake(c);
    }
    return NULL;
}

/* ---- start and end --------------------------------------------------------------------------------------- */

/* Each connection takes a file descriptor, so the limit of connections respects RLIMIT_NOFILE. At that limit new
 * connections wait; without descriptors devices would fail. */
static void fit_file_limit(wf_httpd *h)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l)) return;
    l.rlim_cur = l.rlim_max;
    setrlimit(RLIMIT_NOFILE, &l);
    rlim_t fit = l.rlim_cur > SPARE_FILES ? l.rlim_cur - SPARE_FILES : 0;
    if (l.rlim_cur == RLIM_INFINITY || fit >= h->p.max_connections) return;
    h->p.max_connections = (uint32_t)WF_MAX(fit, LEAST);
    wf_log(WEFT_LOG_WARN, "%llu files may be open, so there can be %u connections; ulimit -Hn allows more",
           (unsigned long long)l.rlim_cur, h->p.max_connections);
}

wf_httpd *wf_httpd_open(const wf_httpd_params *p, void *user)
{
    wf_httpd *h = wf_calloc(1, sizeof *h);
    if (!h) return NULL;
    h->p = *p;
    h->user = user;
    h->listener = h->epoll = h->wake = -1;
    h->awake_end = &h->awake;
    sem_init(&h->refused, 0, 0);
    pthread_mutex_init(&h->lock, NULL);
    if (wf_accept_bind(h)) return h;
    wf_httpd_close(h);
    return NULL;
}

bool wf_httpd_start(wf_httpd *h)
{
    struct epoll_event wake = {.events = EPOLLIN, .data.ptr = &h->wake},
                       listener = {.events = EPOLLIN, .data.ptr = &h->listener};
    fit_file_limit(h);
    if (!wf_accept_listen(h)) return false;
    h->epoll = epoll_create1(EPOLL_CLOEXEC);
    h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    h->started = h->epoll >= 0 && h->wake >= 0 && !epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->wake, &wake) &&
                 !epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->listener, &listener) &&
                 !pthread_create(&h->thread, NULL, http_thread, h);
    if (!h->started) wf_fail(WEFT_ERR_IO, "cannot start the HTTP server; too few threads or files? See ulimit -a");
    return h->started;
}

bool wf_httpd_is_local(const wf_httpd *h) { return h->local; }

uint32_t wf_httpd_max_connections(const wf_httpd *h) { return h->p.max_connections; }

void wf_httpd_refuse(wf_httpd *h)
{
    if (!h->started) wf_accept_stop(h);
    if (!h->started || atomic_exchange(&h->refusing, true)) return;
    rouse_loop(h);
    while (sem_wait(&h->refused) && errno == EINTR) {}
}

void wf_httpd_close(wf_httpd *h)
{
    if (!h) return;
    wf_httpd_refuse(h);
    atomic_store(&h->stopping, true);
    if (h->started) {
        rouse_loop(h);
        pthread_join(h->thread, NULL);
    }
    for (wf_conn *c; (c = h->dead); free(c)) h->dead = c->next;
    if (h->epoll >= 0) close(h->epoll);
    if (h->wake >= 0) close(h->wake);
    sem_destroy(&h->refused);
    pthread_mutex_destroy(&h->lock);
    free(h);
}
