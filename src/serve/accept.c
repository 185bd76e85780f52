/* accept: the listening socket, and the thread that accepts its connections and hands them to libmicrohttpd. Connections above the limit
 * wait in the socket's queue until others end. libmicrohttpd could do this too, but its threads share the listening socket, each takes
 * it out of its epoll set at its limit, and version 0.9.75 aborts the process when MHD_quiesce_daemon meets a thread that does so. */
#include "serve/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NO_SOCKET MHD_INVALID_SOCKET
#define NAP_NS    10000000 /* until the next attempt, when the system lacks files or memory */

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
}

/* A socket bound to this address, not listening yet; NO_SOCKET with errno on error. */
static int take_address(const struct addrinfo *a)
{
    const int on = 1;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return NO_SOCKET;
    if (a->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (!bind(fd, a->ai_addr, a->ai_addrlen)) return fd;
    /* Connections of a server before us may linger. Not from the start: two that may share an address before they
     * listen would both have it. */
    if (errno == EADDRINUSE && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) && !bind(fd, a->ai_addr, a->ai_addrlen)) return fd;
    int e = errno;
    close(fd);
    errno = e;
    return NO_SOCKET;
}

static bool cannot_listen(const wf_server *s)
{
    wf_fail(WEFT_ERR_IO, "cannot listen on %s port %u: %s; choose another with --port or --host", s->p.host, s->p.port,
            strerror(errno));
    return false;
}

bool wf_accept_bind(wf_server *s)
{
    char port[16];
    struct addrinfo *a = NULL, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    snprintf(port, sizeof port, "%u", s->p.port);
    int rc = getaddrinfo(s->p.host, port, &hints, &a);
    if (rc) {
        wf_fail(WEFT_ERR_ARG, "--host %s: %s", s->p.host, gai_strerror(rc));
        return false;
    }
    s->loopback = is_loopback(a->ai_addr);
    s->listener = take_address(a);
    bool ok = s->listener != NO_SOCKET || cannot_listen(s);
    freeaddrinfo(a);
    return ok;
}

uint32_t wf_accept_port(const wf_server *s)
{
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    if (getsockname(s->listener, (struct sockaddr *)&a, &len)) return s->p.port;
    bool v6 = a.ss_family == AF_INET6;
    return ntohs(v6 ? ((const struct sockaddr_in6 *)&a)->sin6_port : ((const struct sockaddr_in *)&a)->sin_port);
}

/* Waits until one more connection is allowed; false: no more at all. */
static bool wait_for_room(wf_server *s)
{
    pthread_mutex_lock(&s->lock);
    while (!s->refusing && s->n_conns >= s->p.max_connections) pthread_cond_wait(&s->room, &s->lock);
    bool room = !s->refusing;
    s->n_conns += room;
    pthread_mutex_unlock(&s->lock);
    return room;
}

void wf_accept_closed(wf_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->n_conns--;
    pthread_cond_signal(&s->room);
    pthread_mutex_unlock(&s->lock);
}

static bool is_transient(int error)
{
    return error == EAGAIN || error == EINTR || error == ECONNABORTED;
}

/* Accepts one connection if there is one; false: there was none, or the daemon did not take it. One that the daemon takes and then drops
 * for want of memory, before it says that it has begun, stays counted. */
static bool accept_one(wf_server *s)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof a;
    struct pollfd p = {.fd = s->listener, .events = POLLIN};
    poll(&p, 1, -1);
    int fd = accept4(s->listener, (struct sockaddr *)&a, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) return MHD_add_connection(s->daemon, fd, (struct sockaddr *)&a, len) == MHD_YES; /* it closes fd on error */
    if (!is_transient(errno)) wf_sleep_ns(NAP_NS);
    return false;
}

static void *accept_thread(void *arg)
{
    wf_server *s = arg;
    while (wait_for_room(s))
        if (!accept_one(s)) wf_accept_closed(s);
    return NULL;
}

bool wf_accept_start(wf_server *s)
{
    const int on = 1;
    setsockopt(s->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); /* connections of this server may linger while its successor starts */
    if (listen(s->listener, SOMAXCONN)) return cannot_listen(s);
    s->accepting = !pthread_create(&s->acceptor, NULL, accept_thread, s);
    if (!s->accepting) wf_fail(WEFT_ERR_IO, "cannot start a thread that accepts connections; see ulimit -u");
    return s->accepting;
}

void wf_accept_stop(wf_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->refusing = true;
    pthread_cond_signal(&s->room);
    pthread_mutex_unlock(&s->lock);
    if (s->listener != NO_SOCKET) shutdown(s->listener, SHUT_RDWR); /* ends the thread's poll */
    if (s->accepting) pthread_join(s->acceptor, NULL);
    if (s->listener != NO_SOCKET) close(s->listener);
    s->accepting = false;
    s->listener = NO_SOCKET;
}
