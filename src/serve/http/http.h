/* serve, http: a strict HTTP/1.1 server. One thread owns all sockets: it accepts connections, says where requests begin
 * and end (frame.h), and sends replies. What a request means is the business of who gives it the calls below, and of
 * nobody here.
 *
 * A connection has one request at a time. Behind it nothing is read before its reply has been sent, so that a client
 * that asks and does not read costs the memory of one request. A stream is asked for its next part when the last one
 * has left for the system's buffers, so that a slow reader holds up only itself. */
#ifndef WF_SERVE_HTTP_H
#define WF_SERVE_HTTP_H

#include "base/text.h"

typedef struct wf_httpd wf_httpd;

/* A request, from its head to the last byte of its reply. */
typedef struct wf_httpd_request {
    /* Until `begin` returns: */
    const char *method, *path; /* the path as it was sent, escapes and all, without the query */
    const char *fields;        /* see wf_httpd_field */
    uint64_t length;           /* of the body; 0 also if it comes in chunks */
    bool expects;              /* the client waits for "100 Continue" before it sends the body */
    unsigned char address[16]; /* of the client, IPv4 as ::ffff:1.2.3.4; zeros: none */
    /* Always: */
    const char *bad; /* "STATUS reason": it breaks the rules, and nothing is read behind it; NULL: it does not */
    void *user;      /* of who answers it */
} wf_httpd_request;

/* The value of the next field of this name behind `last`; NULL behind the last one. last NULL: the first one. The
 * fields of the framing and cookies are left out, and the host is that of the target where it has one. */
const char *wf_httpd_field(const wf_httpd_request *r, const char *name, const char *last);

enum wf_httpd_more {
    WF_HTTP_MORE, /* there is, or may be, more */
    WF_HTTP_WAIT, /* not before wf_httpd_wake */
    WF_HTTP_END,  /* this was the last part */
    WF_HTTP_BREAK /* there is no memory: the connection breaks off */
};

typedef struct wf_httpd_reply {
    int status;
    wf_text fields; /* "Name: value\r\n" each; those of the framing, Date and Connection are added */
    wf_text body;
    /* In place of a body, a stream: gives the next part of it, which stays until the next call. */
    enum wf_httpd_more (*fill)(void *user, wf_slice *part);
    uint64_t beat_ns; /* a stream that waits so long is asked again */
    bool close; /* no request can follow on this connection */
} wf_httpd_reply;

/* What happens, on the thread of the server. */
typedef struct wf_httpd_calls {
    void (*begin)(void *user, wf_httpd_request *r); /* the head is here; a reply now comes before the body has */
    void (*body)(wf_httpd_request *r, const char *data, size_t n); /* some of the body */
    void (*whole)(wf_httpd_request *r); /* all is here: to be answered now, or when called again, after wf_httpd_wake */
    void (*late)(wf_httpd_request *r);  /* its deadline has passed */
    void (*end)(wf_httpd_request *r);   /* the reply is sent, or the client is gone, or it had to make room */
} wf_httpd_calls;

void wf_httpd_send(wf_httpd_request *r, wf_httpd_reply *reply); /* takes over its texts */
/* Goes on with a request that has no reply yet, or with its stream. From any thread, until `end` returns. */
void wf_httpd_wake(wf_httpd_request *r);
/* From now on a client that closes its sending side counts as gone: it looks the same as one that left. */
void wf_httpd_watch(wf_httpd_request *r, uint64_t deadline_ns);
void wf_httpd_drop(wf_httpd_request *r); /* closes the connection, once the call that we are in has returned */

/* Counts a request of this client among those that connections have, until it ends. known: it was admitted, so that its
 * connection makes room for others later. false: there are more than max_connections. */
bool wf_httpd_count(wf_httpd_request *r, uint64_t client, bool known);
/* Ends a connection of a client that has more requests than this one's, whose own has not arrived whole. false: none
 * has. */
bool wf_httpd_displace(const wf_httpd_request *r);

typedef struct wf_httpd_params {
    const char *host; /* address to listen on */
    uint32_t port;    /* 0: any free one */
    uint32_t max_connections; /* with a request */
    uint64_t header_timeout_s; /* until the head of a first request has arrived */
    uint64_t read_timeout_s;   /* until any head has, and until its body has */
    uint64_t send_timeout_s;   /* that a client may take nothing of its reply */
    wf_httpd_calls calls;
} wf_httpd_params;

/* Binds the address, so that a conflict shows early; clients cannot connect before wf_httpd_start. user: for `begin`.
 * NULL: the error is set. */
wf_httpd *wf_httpd_open(const wf_httpd_params *p, void *user);
bool wf_httpd_start(wf_httpd *h); /* false: the error is set */
bool wf_httpd_is_local(const wf_httpd *h); /* bound to a loopback address */
uint32_t wf_httpd_port(const wf_httpd *h);
uint32_t wf_httpd_max_connections(const wf_httpd *h); /* fewer than asked for, if so many files cannot be open */
void wf_httpd_refuse(wf_httpd *h); /* refuses new connections; open ones continue */
void wf_httpd_close(wf_httpd *h);  /* sends what has been given, and ends; NULL is allowed */

#endif
