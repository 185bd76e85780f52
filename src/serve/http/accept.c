/* accept: the listening socket. */
#include "serve/http/conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NO_SOCKET (-1)
/* Bytes that the system takes beyond what a client's window lets it send; else megabytes of each reply. */
#define UNSENT 65536

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
}

/* A socket bound to this address, not listening yet; NO_SOCKET with errno on error. */
static int take_address(const struct addrinfo *a)
{
    /* "::" is all addresses of the machine, those of IPv4, too. */
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a->ai_addr;
    const int on = 1, only_v6 = a->ai_family == AF_INET6 && !IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return NO_SOCKET;
    if (a->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof only_v6);
    if (!bind(fd, a->ai_addr, a->ai_addrlen)) return fd;
    /* Connections of a server before us may linger. Not from the start: two that may share an address before they
     * listen would both have it. */
    if (errno == EADDRINUSE && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) &&
        !bind(fd, a->ai_addr, a->ai_addrlen))
        return fd;
    int e = errno;
    close(fd);
    errno = e;
    return NO_SOCKET;
}

static bool cannot_listen(const wf_httpd *h)
{
    return !wf_fail(WEFT_ERR_IO, "cannot listen on %s port %u: %s; choose another with --port or --host", h->p.host,
                    h->p.port, strerror(errno));
}

bool wf_accept_bind(wf_httpd *h)
{
    char port[16];
    struct addrinfo *a = NULL, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    snprintf(port, sizeof port, "%u", h->p.port);
    int rc = getaddrinfo(h->p.host, port, &hints, &a);
    if (rc) return !wf_fail(WEFT_ERR_ARG, "--host %s: %s", h->p.host, gai_strerror(rc));
    h->local = is_loopback(a->ai_addr);
    h->listener = take_address(a);
    bool ok = h->listener != NO_SOCKET || cannot_listen(h);
    freeaddrinfo(a);
    return ok;
}

uint32_t wf_httpd_port(const wf_httpd *h)
{
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    if (getsockname(h->listener, (struct sockaddr *)&a, &len)) return h->p.port;
    bool v6 = a.ss_family == AF_INET6;
    return ntohs(v6 ? ((const struct sockaddr_in6 *)&a)->sin6_port : ((const struct sockaddr_in *)&a)->sin_port);
}

bool wf_accept_listen(wf_httpd *h)
{
    const int on = 1;
    setsockopt(h->listener, SOL_SOCKET, SO_REUSEADDR, &on,
               sizeof on); /* connections of this server may linger while its successor starts */
    return !listen(h->listener, SOMAXCONN) || cannot_listen(h);
}

int wf_accept_next(const wf_httpd *h, bool *lacking)
{
    const int on = 1, unsent = UNSENT;
    int fd = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    *lacking = fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
    if (fd < 0) return fd;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* an event of a stream waits for no other */
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
    return fd;
}

void wf_accept_stop(wf_httpd *h)
{
    if (h->listener != NO_SOCKET) close(h->listener);
    h->listener = NO_SOCKET;
}

void wf_accept_address(int fd, unsigned char out[16])
{
    static const unsigned char v4_prefix[12] = {[10] = 0xff, [11] = 0xff};
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    memset(out, 0, 16);
    if (getpeername(fd, (struct sockaddr *)&a, &len)) return;
    if (a.ss_family == AF_INET6) memcpy(out, &((struct sockaddr_in6 *)&a)->sin6_addr, 16);
    if (a.ss_family != AF_INET) return;
    memcpy(out, v4_prefix, sizeof v4_prefix);
    memcpy(out + sizeof v4_prefix, &((struct sockaddr_in *)&a)->sin_addr, 4);
}
