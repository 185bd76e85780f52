/* front: the thread between clients and libmicrohttpd. It accepts connections, reads what clients send through a wf_frame
 * (frame.h says why), and gives the library what comes out of it over a pair of sockets; answers go back as they are. So the
 * library meets well-formed requests only, and only the library writes responses.
 *
 * A connection has memory for one line of a head, the head, and what one side has not taken yet; in between it has none. An event
 * of a stream costs 8 us of this thread's processor time (40,000 tokens in 32 streams on an EPYC: 0.32 s beside 4 s of the engine).
 * A few more are accepted than may have requests, so that /health is always answered. When there is no room the oldest that
 * asks for nothing is dropped; if all ask, others wait in the queue of the listening socket. The library could accept them itself, but its threads
 * share that socket, each takes it out of its epoll set at its limit, and version 0.9.75 aborts the process when
 * MHD_quiesce_daemon meets a thread that does so. */
#include "serve/http/frame.h"

#include <errno.h>
#include <linux/sockios.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BLOCK       16384 /* bytes that are read at once */
#define PAIR_BUFFER 32768 /* bytes in flight between us and the library; the kernel doubles it */
#define TICK_MS     100
#define RESERVE     8 /* connections above the limit, for /health */
#define LINGER_NS   2000000000ull /* for a client to read the last response before the connection is reset */

typedef struct end {
    int fd;
    uint32_t armed;    /* the events it waits for */
    bool listed;       /* in the epoll set */
    struct relay *relay; /* NULL: the listening socket, or the eventfd */
} end;

typedef struct relay { /* a connection */
    struct relay *prev, *next;
    end client, library;
    int peer;             /* the library's end, which is the name of its wf_conn */
    wf_frame frame;
    wf_text up, down;     /* bytes that the library or the client has not taken yet */
    size_t up_at, down_at;
    bool client_ended;    /* it sends no more */
    bool library_ended;   /* it has closed; its last bytes may be on their way */
    bool up_closed;       /* the library has been told that no more comes, or it is gone */
    bool lingers;         /* everything is sent; what still comes is thrown away */
    bool dead;            /* is freed after this round of events */
    uint64_t deadline_ns; /* closed by then; 0: no deadline */
    int unsent;           /* bytes that the system had for the client when the deadline was set */
} relay;

struct wf_front {
    wf_server *server;
    int epoll;
    end listener, wake;
    pthread_t thread;
    sem_t refused; /* the listening socket is closed */
    atomic_bool refusing, stopping;
    uint64_t retry_ns; /* there is no room, or no files or memory, for one more connection: no attempt before; 0: there is */
    uint64_t stop_ns;
    relay *relays, *dead;
    uint32_t n_relays, n_deadlines;
    char block[BLOCK];
};
typedef struct wf_front front;

/* ---- epoll ----------------------------------------------------------------------------------------------- */

/* Only changes cost a system call. Without events it still reports EPOLLHUP and EPOLLERR. */
static bool arm(const front *f, end *e, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = e};
    if (e->listed && e->armed == events) return true;
    bool ok = !epoll_ctl(f->epoll, e->listed ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, e->fd, &ev);
    e->listed |= ok;
    e->armed = events;
    return ok;
}

static void disarm(const front *f, end *e)
{
    if (e->listed) epoll_ctl(f->epoll, EPOLL_CTL_DEL, e->fd, NULL);
    e->listed = false;
}

/* ---- life of a connection -------------------------------------------------------------------------------- */

static void set_deadline(front *f, relay *r, uint64_t ns)
{
    if (!r->deadline_ns) f->n_deadlines++;
    r->deadline_ns = wf_now_ns() + ns;
}

static void clear_deadline(front *f, relay *r)
{
    if (r->deadline_ns) f->n_deadlines--;
    r->deadline_ns = 0;
}

static void text_clear(wf_text *t, size_t *at)
{
    free(t->data);
    *t = (wf_text){0};
    *at = 0;
}

/* Events of this round may still refer to it, so it is freed later. */
static void drop(front *f, relay *r)
{
    if (r->dead) return;
    if (r->prev)
        r->prev->next = r->next;
    else
        f->relays = r->next;
    if (r->next) r->next->prev = r->prev;
    close(r->client.fd);
    close(r->library.fd);
    wf_frame_free(&r->frame);
    text_clear(&r->up, &r->up_at);
    text_clear(&r->down, &r->down_at);
    clear_deadline(f, r);
    f->n_relays--;
    r->dead = true;
    r->next = f->dead;
    f->dead = r;
}

static void free_dead(front *f)
{
    for (relay *r; (r = f->dead);) {
        f->dead = r->next;
        free(r);
    }
}

/* The library takes one end of the pair. Both are closed on error. */
static bool connect_library(const front *f, relay *r, int pair[2])
{
    struct sockaddr_un a = {.sun_family = AF_UNIX}; /* not the client's: the library would take the socket for TCP */
    const int size = PAIR_BUFFER;
    wf_client_address(r->client.fd, a.sun_path);
    for (int i = 0; i < 2; i++) setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    r->library.fd = pair[0];
    if (MHD_add_connection(f->server->daemon, pair[1], (struct sockaddr *)&a, sizeof a) == MHD_YES) return true; /* it closes pair[1] on error */
    close(pair[0]);
    return false;
}

static relay *connect_client(const front *f, int fd)
{
    int pair[2];
    relay *r = wf_calloc(1, sizeof *r);
    if (!r || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair)) {
        free(r);
        return NULL;
    }
    r->client = (end){.fd = fd, .relay = r};
    r->library = (end){.relay = r};
    r->peer = pair[1];
    if (connect_library(f, r, pair)) return r;
    free(r);
    return NULL;
}

static bool let_in(front *f, int fd)
{
    relay *r = connect_client(f, fd);
    if (!r) {
        close(fd);
        return false;
    }
    r->next = f->relays;
    if (f->relays) f->relays->prev = r;
    f->relays = r;
    f->n_relays++;
    if (!arm(f, &r->client, EPOLLIN) || !arm(f, &r->library, EPOLLIN)) drop(f, r);
    return true;
}

/* Ends one that only lingers, or else the oldest that asks for nothing; the newest relay of a peer is the one that lives. */
static bool evict(front *f)
{
    relay *r = f->relays;
    while (r && !r->lingers) r = r->next;
    int peer = r ? -1 : wf_conn_evict(f->server);
    if (peer >= 0)
        for (r = f->relays; r && r->peer != peer;) r = r->next;
    if (r) drop(f, r);
    return r;
}

static bool is_full(const front *f)
{
    return f->n_relays >= f->server->p.max_connections + RESERVE;
}

static void accept_some(front *f)
{
    bool lacking = is_full(f) && !evict(f); /* the event says that one waits */
    while (!lacking && !is_full(f)) {
        int fd = wf_accept_next(f->server, &lacking);
        if (fd < 0) break;
        lacking = !let_in(f, fd);
    }
    if (lacking) f->retry_ns = wf_now_ns() + TICK_MS * 1000000ull;
}

/* ---- from the client to the library ---------------------------------------------------------------------- */

static bool would_block(void)
{
    return errno == EAGAIN || errno == EINTR;
}

/* What the library does not take now, it gets when there is room. One that has closed needs no more. */
static void send_up(relay *r)
{
    while (r->up_at < r->up.len) {
        ssize_t n = send(r->library.fd, r->up.data + r->up_at, r->up.len - r->up_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && would_block()) return;
        r->up_at = n < 0 ? r->up.len : r->up_at + (size_t)n;
        r->up_closed |= n < 0;
    }
    text_clear(&r->up, &r->up_at);
    if (!r->client_ended || r->up_closed) return;
    shutdown(r->library.fd, SHUT_WR);
    r->up_closed = true;
}

static void on_client_bytes(front *f, relay *r)
{
    ssize_t n = recv(r->client.fd, f->block, BLOCK, MSG_DONTWAIT);
    if (n < 0 && would_block()) return;
    if (n < 0 || (!n && r->lingers)) {
        drop(f, r);
        return;
    }
    if (!n) r->client_ended = true;
    if (n && !r->lingers) wf_frame_feed(&r->frame, f->block, (size_t)n, &r->up);
    if (r->up.failed)
        drop(f, r);
    else if (!r->lingers)
        send_up(r);
}

/* Behind the last request nothing is read, but the end of the connection counts. */
static void on_client_end(relay *r)
{
    r->client_ended = true;
    send_up(r);
}

/* ---- from the library to the client ---------------------------------------------------------------------- */

/* May bytes of the client be unread? Closing a socket with unread bytes resets the connection, and the client would lose
 * the response (RFC 9112, 9.6). */
static bool may_have_unread(const relay *r)
{
    return !r->client_ended && (r->frame.state != WF_FRAME_REQUEST || r->frame.line.len || r->up.len);
}

/* The library has closed, and the client has everything. */
static void end_relay(front *f, relay *r)
{
    if (!may_have_unread(r) || atomic_load(&f->stopping) || shutdown(r->client.fd, SHUT_WR)) {
        drop(f, r);
        return;
    }
    r->lingers = true;
    disarm(f, &r->library);
    text_clear(&r->up, &r->up_at);
    set_deadline(f, r, LINGER_NS);
}

/* Bytes that the system has for the client: it says that there is room only when many of them are gone. */
static int count_unsent(const relay *r)
{
    int n = 0;
    return ioctl(r->client.fd, SIOCOUTQ, &n) ? 0 : n;
}

/* It may take its time, but not stand still. */
static void await_client(front *f, relay *r)
{
    r->unsent = count_unsent(r);
    set_deadline(f, r, f->server->p.send_timeout_s * 1000000000ull);
}

static void send_down(front *f, relay *r)
{
    while (r->down_at < r->down.len) {
        ssize_t n = send(r->client.fd, r->down.data + r->down_at, r->down.len - r->down_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && would_block()) return;
        if (n < 0) {
            drop(f, r);
            return;
        }
        r->down_at += (size_t)n;
        await_client(f, r);
    }
    text_clear(&r->down, &r->down_at);
    clear_deadline(f, r);
}

/* Most of the time the client takes all at once. */
static void pass_down(front *f, relay *r, const char *data, size_t n)
{
    ssize_t sent = send(r->client.fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && !would_block()) {
        drop(f, r);
        return;
    }
    size_t done = (size_t)WF_MAX(sent, 0);
    if (done == n) return;
    wf_text_add(&r->down, data + done, n - done);
    await_client(f, r);
    if (r->down.failed) drop(f, r);
}

/* While the client has bytes to take, all that counts is that the library has closed. */
static void on_library_bytes(front *f, relay *r)
{
    if (r->down.len) {
        r->library_ended = true;
        disarm(f, &r->library);
        return;
    }
    ssize_t n = recv(r->library.fd, f->block, BLOCK, MSG_DONTWAIT);
    if (n < 0 && would_block()) return;
    if (n > 0)
        pass_down(f, r, f->block, (size_t)n);
    else
        end_relay(f, r);
}

/* ---- events ---------------------------------------------------------------------------------------------- */

static uint32_t client_events(const relay *r)
{
    bool full = r->up.len > 0, last = r->frame.state == WF_FRAME_END && !r->lingers;
    uint32_t in = r->client_ended || full ? 0 : last ? EPOLLRDHUP : EPOLLIN;
    return in | (r->down.len ? EPOLLOUT : 0);
}

static uint32_t library_events(const relay *r)
{
    return (r->down.len ? 0 : EPOLLIN) | (r->up.len ? EPOLLOUT : 0);
}

static void rearm(const front *f, relay *r)
{
    arm(f, &r->client, client_events(r));
    if (!r->lingers && !(r->library_ended && r->down.len)) arm(f, &r->library, library_events(r));
}

static void on_client(front *f, relay *r, uint32_t what)
{
    if (what & (EPOLLHUP | EPOLLERR))
        drop(f, r);
    else if (what & EPOLLIN)
        on_client_bytes(f, r);
    else if (what & EPOLLRDHUP)
        on_client_end(r);
    if (!r->dead && what & EPOLLOUT) send_down(f, r);
}

static void on_library(front *f, relay *r, uint32_t what)
{
    if (what & EPOLLOUT) send_up(r);
    if (what & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_library_bytes(f, r);
}

static void on_event(front *f, end *e, uint32_t what)
{
    uint64_t count;
    relay *r = e->relay;
    if (e == &f->listener)
        accept_some(f);
    else if (!r)
        (void)!read(e->fd, &count, sizeof count);
    else if (!r->dead) {
        (e == &r->client ? on_client : on_library)(f, r, what);
        if (!r->dead) rearm(f, r);
    }
}

/* ---- the thread ------------------------------------------------------------------------------------------ */

static void check_deadlines(front *f, bool all)
{
    uint64_t now = wf_now_ns();
    for (relay *r = f->relays, *next; r; r = next) {
        next = r->next;
        bool late = r->deadline_ns && now > r->deadline_ns;
        if (late && r->down.len && count_unsent(r) < r->unsent)
            await_client(f, r);
        else if (all || late)
            drop(f, r);
    }
}

static void refuse(front *f)
{
    disarm(f, &f->listener);
    wf_accept_stop(f->server);
    f->listener.fd = MHD_INVALID_SOCKET;
    sem_post(&f->refused);
}

static bool has_room(const front *f)
{
    return !f->retry_ns;
}

/* What happens beside events. Returns whether the thread goes on. */
static bool tick(front *f)
{
    free_dead(f);
    if (f->retry_ns && wf_now_ns() > f->retry_ns) f->retry_ns = 0;
    if (atomic_load(&f->refusing) && f->listener.fd != MHD_INVALID_SOCKET) refuse(f);
    if (f->listener.fd != MHD_INVALID_SOCKET) arm(f, &f->listener, has_room(f) ? EPOLLIN : 0);
    if (!atomic_load(&f->stopping)) return true;
    if (!f->stop_ns) f->stop_ns = wf_now_ns() + LINGER_NS;
    if (wf_now_ns() > f->stop_ns) check_deadlines(f, true);
    return f->relays;
}

static void *front_thread(void *arg)
{
    front *f = arg;
    struct epoll_event events[64];
    uint64_t checked = 0;
    while (tick(f)) {
        bool timed = f->n_deadlines || f->retry_ns || atomic_load(&f->stopping);
        int n = epoll_wait(f->epoll, events, WF_LEN(events), timed ? TICK_MS : -1);
        for (int i = 0; i < n; i++) on_event(f, events[i].data.ptr, events[i].events);
        if (!f->n_deadlines || wf_now_ns() - checked < TICK_MS * 1000000ull) continue;
        checked = wf_now_ns();
        check_deadlines(f, false);
    }
    return NULL;
}

static bool listen_to(front *f, int wake)
{
    f->listener = (end){.fd = f->server->listener};
    f->wake = (end){.fd = wake};
    return f->epoll >= 0 && wake >= 0 && arm(f, &f->wake, EPOLLIN);
}

static void front_free(front *f)
{
    if (f->epoll >= 0) close(f->epoll);
    if (f->wake.fd >= 0) close(f->wake.fd);
    sem_destroy(&f->refused);
    free(f);
}

bool wf_front_start(wf_server *s)
{
    if (!wf_accept_listen(s)) return false;
    front *f = wf_calloc(1, sizeof *f);
    if (!f) return wf_fail(WEFT_ERR_NOMEM, "no memory for the thread that accepts connections") == WEFT_OK;
    sem_init(&f->refused, 0, 0);
    f->server = s;
    f->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (listen_to(f, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) && !pthread_create(&f->thread, NULL, front_thread, f)) {
        s->front = f;
        return true;
    }
    front_free(f);
    wf_fail(WEFT_ERR_IO, "cannot start a thread that accepts connections; see ulimit -u");
    return false;
}

static void rouse(const front *f)
{
    const uint64_t one = 1;
    (void)!write(f->wake.fd, &one, sizeof one);
}

void wf_front_refuse(wf_server *s)
{
    front *f = s->front;
    if (!f || atomic_exchange(&f->refusing, true)) {
        if (!f) wf_accept_stop(s);
        return;
    }
    rouse(f);
    while (sem_wait(&f->refused) && errno == EINTR) {
    }
}

void wf_front_stop(wf_server *s)
{
    front *f = s->front;
    if (!f) return;
    atomic_store(&f->stopping, true);
    rouse(f);
    pthread_join(f->thread, NULL);
    s->front = NULL;
    front_free(f);
}
