/* conn: one connection: it reads a request through a wf_frame, has it answered, and sends the reply; then the next one.
 */
#include "serve/http/conn.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* ---- life ------------------------------------------------------------------------------------------------ */

static void text_free(wf_text *t)
{
    free(t->data);
    *t = (wf_text){0};
}

static uint32_t wanted_events(const wf_conn *c)
{
    bool reads = c->lingers || (c->state == WF_CONN_READS && !c->in.len);
    return (reads ? EPOLLIN | EPOLLRDHUP : c->hung_up ? 0 : EPOLLRDHUP) | (c->blocked ? EPOLLOUT : 0);
}

/* Only changes cost a system call; EPOLLHUP and EPOLLERR are always reported. */
static bool arm_conn(wf_conn *c, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = c};
    if (c->armed == events) return true;
    bool ok = !epoll_ctl(c->http->epoll, EPOLL_CTL_MOD, c->fd, &ev);
    c->armed = events;
    return ok;
}

bool wf_conn_open(wf_httpd *h, int fd)
{
    wf_conn *c = wf_calloc(1, sizeof *c);
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = c};
    if (!c || epoll_ctl(h->epoll, EPOLL_CTL_ADD, fd, &ev)) {
        close(fd);
        free(c);
        return false;
    }
    *c = (wf_conn){.http = h, .fd = fd, .armed = ev.events, .since_ns = wf_now_ns(), .next = h->conns};
    wf_accept_address(fd, c->request.address);
    if (h->conns) h->conns->prev = c;
    h->conns = c;
    h->n_conns++;
    return true;
}

static void end_request(wf_conn *c)
{
    if (c->open) c->http->p.calls.end(&c->request);
    wf_room_uncount(c);
    text_free(&c->body);
    text_free(&c->head);
    c->open = c->watched = c->dry = false;
    c->deadline_ns = 0;
    c->request.user = NULL;
    c->request.bad = NULL;
}

/* It may be on its way to wake up. */
static void forget_awake(wf_conn *c)
{
    wf_httpd *h = c->http;
    pthread_mutex_lock(&h->lock);
    for (wf_conn **at = &h->awake; c->awake; at = &(*at)->next_awake) {
        if (*at != c) continue;
        *at = c->next_awake;
        if (!*at) h->awake_end = at;
        h->n_awake--;
        c->awake = false;
        break;
    }
    pthread_mutex_unlock(&h->lock);
}

void wf_conn_drop(wf_conn *c)
{
    wf_httpd *h = c->http;
    if (c->dead) return;
    c->dead = true;
    end_request(c);
    forget_awake(c);
    if (c->prev) c->prev->next = c->next;
    else h->conns = c->next;
    if (c->next) c->next->prev = c->prev;
    close(c->fd);
    wf_frame_free(&c->frame);
    text_free(&c->in);
    h->n_conns--;
    c->next = h->dead;
    h->dead = c;
}

/* Closing a socket with unread bytes resets the connection, and the client would lose the reply (RFC 9112, 9.6). */
static void linger_conn(wf_conn *c)
{
    if (atomic_load(&c->http->stopping) || shutdown(c->fd, SHUT_WR)) {
        wf_conn_drop(c);
        return;
    }
    c->lingers = true;
    c->send_by = wf_now_ns() + WF_HTTP_LINGER_NS;
    text_free(&c->in);
}

void wf_httpd_drop(wf_httpd_request *r) { ((wf_conn *)r)->dropped = true; }

void wf_httpd_watch(wf_httpd_request *r, uint64_t deadline_ns)
{
    wf_conn *c = (wf_conn *)r;
    c->watched = true;
    c->dropped |= c->hung_up;
    c->deadline_ns = deadline_ns;
}

const char *wf_httpd_field(const wf_httpd_request *r, const char *name, const char *last)
{
    const char *at = last ? last + strlen(last) + 1 : r->fields;
    while (at && *at) {
        const char *value = at + strlen(at) + 1;
        if (!strcasecmp(at, name)) return value;
        at = value + strlen(value) + 1;
    }
    return NULL;
}

/* ---- the reply ------------------------------------------------------------------------------------------- */

static void add_left(wf_conn *c, const char *data, size_t n)
{
    if (n) c->left[c->n_left++] = (struct iovec){.iov_base = (char *)(uintptr_t)data, .iov_len = n};
}

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } all[] = {{200, "OK"}, {204, "No Content"}, {400, "Bad Request"}, {401, "Unauthorized"}, {403, "Forbidden"},
               {404, "Not Found"}, {405, "Method Not Allowed"}, {413, "Content Too Large"}, {414, "URI Too Long"},
               {415, "Unsupported Media Type"}, {417, "Expectation Failed"}, {431, "Request Header Fields Too Large"}, {500, "Internal Server Error"},
               {501, "Not Implemented"}, {503, "Service Unavailable"}, {504, "Gateway Timeout"},
               {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < WF_LEN(all); i++)
        if (all[i].status == status) return all[i].reason;
    return "";
}

/* As RFC 9110 wants it (5.6.7), in no locale's words. */
static const char *date_now(wf_httpd *h)
{
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t now = time(NULL);
    struct tm t;
    if (now == h->date_s || !gmtime_r(&now, &t)) return h->date;
    h->date_s = now;
    snprintf(h->date, sizeof h->date, "%.3s, %02u %.3s %04u %02u:%02u:%02u GMT", days + 3 * t.tm_wday,
             (unsigned)t.tm_mday % 100, months + 3 * t.tm_mon, (unsigned)(t.tm_year + 1900) % 10000,
             (unsigned)t.tm_hour % 100, (unsigned)t.tm_min % 100, (unsigned)t.tm_sec % 100);
    return h->date;
}

static void write_head(wf_conn *c, const wf_httpd_reply *p)
{
    wf_text *t = &c->head;
    wf_text_print(t, "HTTP/1.1 %d %s\r\nDate: %s\r\n", p->status, reason_of(p->status), date_now(c->http));
    wf_text_add(t, p->fields.data, p->fields.len);
    if (c->chunked) wf_text_print(t, "Transfer-Encoding: chunked\r\n");
    else if (!p->fill && p->status != 204) wf_text_print(t, "Content-Length: %zu\r\n", p->body.len);
    if (c->last) wf_text_print(t, "Connection: close\r\n");
    else if (c->old) wf_text_print(t, "Connection: keep-alive\r\n");
    wf_text_add(t, "\r\n", 2);
    t->failed |= p->fields.failed || p->body.failed;
}

void wf_httpd_send(wf_httpd_request *r, wf_httpd_reply *p)
{
    wf_conn *c = (wf_conn *)r;
    c->last |= p->close || c->state == WF_CONN_READS; /* there, bytes of its body would be read as a request */
    c->last |= p->fill && c->old;                     /* only the end of the connection tells its end */
    c->chunked = p->fill && !c->old;
    c->fill = p->fill;
    c->beat_ns = p->beat_ns;
    c->body = p->body;
    c->dry = false;
    c->state = WF_CONN_SENDS;
    write_head(c, p);
    c->dropped |= c->head.failed;
    add_left(c, c->head.data, c->head.len);
    if (!c->headless) add_left(c, c->body.data, c->body.len);
    text_free(&p->fields);
    p->body = (wf_text){0};
}

/* Asks the stream for more. false: it has nothing. */
static bool fill_left(wf_conn *c)
{
    wf_slice part = {0};
    c->asked_ns = wf_now_ns();
    enum wf_httpd_more more = c->fill(c->request.user, &part);
    c->dry = more == WF_HTTP_WAIT;
    c->dropped |= more == WF_HTTP_BREAK;
    c->head.len = 0;
    if (part.n && c->chunked) {
        wf_text_print(&c->head, "%zx\r\n", part.n);
        add_left(c, c->head.data, c->head.len);
    }
    add_left(c, part.p, part.n);
    bool end = more == WF_HTTP_END;
    if (end) c->fill = NULL;
    if (c->chunked && (part.n || end)) {
        static const char tail[] = "\r\n0\r\n\r\n"; /* the end of a chunk, and the last one */
        size_t from = part.n ? 0 : 2, to = end ? sizeof tail - 1 : 2;
        add_left(c, tail + from, to - from);
    }
    return c->n_left > 0;
}

/* Bytes that the system has for the client: it says that there is room only when many of them are gone. */
static int count_unsent(const wf_conn *c)
{
    int n = 0;
    return ioctl(c->fd, SIOCOUTQ, &n) ? 0 : n;
}

/* The client may take its time, but not stand still. */
static void await_client(wf_conn *c)
{
    c->blocked = true;
    c->unsent = count_unsent(c);
    c->send_by = wf_now_ns() + c->http->p.send_timeout_s * 1000000000ull;
}

/* Writes what is left now. false: the client does not take it all. */
static bool write_left(wf_conn *c)
{
    while (c->n_left) {
        struct msghdr m = {.msg_iov = c->left, .msg_iovlen = (size_t)c->n_left};
        ssize_t n = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) await_client(c);
        else if (n < 0) wf_conn_drop(c);
        if (n < 0) return false;
        int done = 0;
        for (; done < c->n_left && (size_t)n >= c->left[done].iov_len; done++) n -= (ssize_t)c->left[done].iov_len;
        c->n_left -= done;
        memmove(c->left, c->left + done, (size_t)c->n_left * sizeof *c->left);
        if (c->n_left) c->left[0] = (struct iovec){(char *)c->left[0].iov_base + n, c->left[0].iov_len - (size_t)n};
    }
    c->blocked = false;
    c->send_by = 0;
    return true;
}

/* The reply is sent; the rest of what has been read gets its turn. */
static void finish_reply(wf_conn *c)
{
    end_request(c);
    c->state = WF_CONN_READS;
    c->since_ns = wf_now_ns();
    if (c->last) linger_conn(c);
    else if (c->in.len) wf_httpd_wake(&c->request);
}

/* Sends as much of the reply as there is and the client takes; of a stream, one part a turn. */
static void send_reply(wf_conn *c)
{
    if (c->dropped || c->blocked || !write_left(c)) return;
    bool filled = c->fill && !c->dry && fill_left(c);
    if (c->dropped || (filled && !write_left(c))) return;
    if (!c->fill) finish_reply(c);
    else if (!c->dry) wf_httpd_wake(&c->request);
}

/* ---- the request ----------------------------------------------------------------------------------------- */

static void begin_request(wf_conn *c, const char *bad)
{
    const wf_frame *f = &c->frame;
    static const char none[] = "BAD\0/\0";
    const char *head = bad ? none : f->head.data;
    wf_httpd_request *r = &c->request;
    r->method = head;
    r->path = head + strlen(head) + 1;
    r->fields = r->path + strlen(r->path) + 1;
    r->length = f->length;
    r->expects = f->expects;
    r->bad = bad;
    c->last = f->close || bad;
    c->old = f->old && !bad;
    c->headless = !strcmp(head, "HEAD");
    c->open = true;
    c->http->p.calls.begin(c->http->user, r);
    r->method = r->path = r->fields = NULL;
    if (c->dropped || c->state != WF_CONN_READS || !f->expects || !(f->length || f->chunked)) return;
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    add_left(c, go_on, sizeof go_on - 1);
    write_left(c);
}

static void complete_request(wf_conn *c)
{
    c->state = WF_CONN_WAITS;
    c->http->p.calls.whole(&c->request);
}

/* Takes bytes until the end of a request, or all. */
static void take_bytes(wf_conn *c, wf_slice *from)
{
    wf_slice part;
    enum wf_frame_news news = WF_FRAME_HEAD;
    while (news != WF_FRAME_MORE && c->state == WF_CONN_READS && !c->dropped && !c->dead) {
        news = wf_frame_next(&c->frame, from, &part);
        if (news == WF_FRAME_HEAD) begin_request(c, NULL);
        else if (news == WF_FRAME_PART) c->http->p.calls.body(&c->request, part.p, part.n);
        else if (news == WF_FRAME_WHOLE) complete_request(c);
        else if (news == WF_FRAME_BAD) {
            if (!c->open) begin_request(c, c->frame.bad);
            c->request.bad = c->frame.bad;
            c->last = true;
            if (c->state == WF_CONN_READS && !c->dropped) complete_request(c);
        }
        c->dropped |= news == WF_FRAME_LACK;
    }
}

static void read_bytes(wf_conn *c)
{
    char *block = c->http->block;
    ssize_t n = recv(c->fd, block, WF_HTTP_BLOCK, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        wf_conn_drop(c);
        return;
    }
    if (c->lingers) return;
    wf_slice from = {block, (size_t)n};
    take_bytes(c, &from);
    if (from.n && !c->dead) wf_text_add(&c->in, from.p, from.n);
    c->dropped |= c->in.failed;
}

static void read_kept(wf_conn *c)
{
    wf_slice from = {c->in.data + c->in_at, c->in.len - c->in_at};
    take_bytes(c, &from);
    c->in_at = c->in.len - from.n;
    if (from.n) return;
    text_free(&c->in);
    c->in_at = 0;
}

/* ---- events ---------------------------------------------------------------------------------------------- */

/* What a call has left to do, and the events that count from now on. reported: those that came. */
static void settle_conn(wf_conn *c, uint32_t reported)
{
    if (!c->dead && c->state == WF_CONN_SENDS && !c->lingers) send_reply(c);
    if (c->dropped) wf_conn_drop(c);
    if (c->dead) return;
    uint32_t want = wanted_events(c);
    bool needless = reported & ~(want | EPOLLOUT) & (EPOLLIN | EPOLLRDHUP);
    if ((needless || want & ~c->armed || (c->armed & ~want & EPOLLOUT)) && !arm_conn(c, want)) wf_conn_drop(c);
}

void wf_conn_event(wf_conn *c, uint32_t what)
{
    bool reads = wanted_events(c) & EPOLLIN;
    if (what & (EPOLLHUP | EPOLLERR)) {
        wf_conn_drop(c);
        return;
    }
    if (what & EPOLLOUT) {
        c->blocked = false;
        if (c->state == WF_CONN_READS) write_left(c);
        if (c->dead) return;
    }
    if (what & (EPOLLIN | EPOLLRDHUP) && reads) read_bytes(c);
    else if (what & EPOLLRDHUP) {
        c->hung_up = true;
        c->dropped |= c->watched;
    }
    settle_conn(c, what);
}

void wf_conn_awake(wf_conn *c)
{
    if (c->lingers || c->dead) return;
    if (c->state == WF_CONN_READS && c->in.len) read_kept(c);
    else if (c->state == WF_CONN_WAITS) c->http->p.calls.whole(&c->request);
    else if (c->state == WF_CONN_SENDS) c->dry = false;
    settle_conn(c, 0);
}

void wf_conn_check(wf_conn *c, uint64_t now)
{
    const wf_httpd_params *p = &c->http->p;
    uint64_t seconds = p->read_timeout_s; /* for a request; who has not shown that he may ask has little */
    if (!c->asked && !c->known) seconds = WF_MIN(seconds, p->header_timeout_s);
    bool stalled = c->send_by && now > c->send_by;
    bool late = c->state == WF_CONN_READS && !c->lingers && now > c->since_ns + seconds * 1000000000ull;
    if (stalled && c->blocked && count_unsent(c) < c->unsent) await_client(c);
    else if (stalled || late) wf_conn_drop(c);
    if (c->dead) return;
    bool over = c->deadline_ns && now > c->deadline_ns;
    if (over) c->deadline_ns = 0, c->http->p.calls.late(&c->request);
    bool beat = c->beat_ns && c->fill && c->dry && now > c->asked_ns + c->beat_ns;
    if (beat) c->dry = false;
    if (over || beat) settle_conn(c, 0);
}
