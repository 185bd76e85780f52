/* serve, conn: the connections of a server, which only its thread touches, but for what `lock` guards. */
#ifndef WF_SERVE_CONN_H
#define WF_SERVE_CONN_H

#include "serve/http/frame.h"
#include "serve/http/http.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/uio.h>

#define WF_HTTP_BLOCK 16384 /* bytes that are read at once */
#define WF_HTTP_TICK_MS 100
#define WF_HTTP_LINGER_NS 2000000000ull /* for a client to read the last reply before the connection is reset */

typedef struct wf_conn {
    wf_httpd_request request; /* the first member: calls get its address */
    wf_httpd *http;
    struct wf_conn *prev, *next, *next_awake; /* the last one, and `awake` (it is in that list), under lock */
    bool awake;
    int fd;
    uint32_t armed; /* the events that epoll reports */
    wf_frame frame;
    wf_text in;      /* bytes from in_at on came behind the request in progress */
    size_t in_at;
    enum { WF_CONN_READS, WF_CONN_WAITS, WF_CONN_SENDS } state; /* a request, if any; for its reply; the reply */
    bool open, last; /* `begin` has been called, and `end` not yet; the connection ends with this request */
    bool old, headless, chunked; /* its client speaks HTTP/1.0; its reply has no body; or one in chunks */
    /* The reply: what is left of it now, and where more of it comes from. */
    wf_text head;    /* and the size of a chunk */
    wf_text body;
    struct iovec left[4];
    int n_left;
    enum wf_httpd_more (*fill)(void *user, wf_slice *part);
    uint64_t beat_ns, asked_ns; /* see wf_httpd_reply; when it was asked for a part */
    bool dry, blocked; /* it has nothing before it is woken; the system takes no more bytes for the client */
    int unsent;      /* bytes that the system had for the client when send_by was set */
    uint64_t send_by; /* closed by then; 0: no deadline */
    bool lingers;    /* everything is sent; what still comes is thrown away */
    bool watched, hung_up; /* see wf_httpd_watch; the client has closed its sending side, bytes may be unread */
    bool dropped, dead;    /* to be closed when its call has returned; closed, and freed after this round of events */
    uint64_t deadline_ns; /* of the request; 0: none */
    /* Who makes room (room.c): */
    uint64_t client;    /* who asked last */
    bool asked, known;  /* a head that counts has arrived and is not answered yet; a request was admitted */
    uint64_t since_ns; /* when it was opened, its last reply ended, or the head of its request came */
} wf_conn;

struct wf_httpd {
    wf_httpd_params p;
    void *user;
    int listener, epoll, wake; /* -1: none */
    bool local;
    pthread_t thread;
    bool started;
    sem_t refused; /* the listening socket is closed */
    atomic_bool refusing, stopping;
    uint64_t retry_ns; /* there are no files or no memory for one more connection: no attempt before; 0: there are */
    uint64_t stop_ns;
    wf_conn *conns, *dead;
    uint32_t n_conns, n_asked;
    time_t date_s; /* of `date` */
    char date[32];
    char block[WF_HTTP_BLOCK];
    pthread_mutex_t lock;
    wf_conn *awake, **awake_end; /* under lock: those that were woken, or have more to do; they take turns */
    size_t n_awake;
    bool asleep; /* under lock: the thread waits for sockets, and has to be roused */
};

/* ---- conn.c ---------------------------------------------------------------------------------------------- */

bool wf_conn_open(wf_httpd *h, int fd); /* takes the socket; false: there was no memory for it */
void wf_conn_drop(wf_conn *c);         /* its `end` is called; freed later */
void wf_conn_event(wf_conn *c, uint32_t what);
void wf_conn_awake(wf_conn *c); /* its turn */
void wf_conn_check(wf_conn *c, uint64_t now); /* its times */

/* ---- room.c ---------------------------------------------------------------------------------------------- */

bool wf_room_make(wf_httpd *h); /* ends a connection; false: all are needed */
void wf_room_uncount(wf_conn *c); /* its request has ended */

/* ---- accept.c -------------------------------------------------------------------------------------------- */

bool wf_accept_bind(wf_httpd *h); /* false: the error is set */
bool wf_accept_listen(wf_httpd *h);
/* The next connection; negative: there is none, and *lacking says that the system had no files or memory for one. */
int wf_accept_next(const wf_httpd *h, bool *lacking);
void wf_accept_stop(wf_httpd *h); /* closes the listening socket, if there is one */
void wf_accept_address(int fd, unsigned char out[16]); /* of the client, as wf_httpd_request has it */

#endif
