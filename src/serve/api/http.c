/* http: libmicrohttpd's callbacks. The headers of a request are checked at once, but an error is sent only after its body has
 * arrived, because many clients do not read while they write. A connection that waits for the engine is suspended and costs
 * no thread. */
#include "serve/http/frame.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>

#define HTTP_THREADS  4
#define HEADER_MEMORY 65536 /* per connection: request line, headers, and the response buffer */
#define SPARE_FILES   96    /* file descriptors for models, devices and the server itself */
#define DISCARD_MAX   (256u << 20) /* bytes of an oversized body that are read before the response */

static const char *header(const wf_job *j, const char *name)
{
    return MHD_lookup_connection_value(j->conn, MHD_HEADER_KIND, name);
}

/* ---- may this request be answered? ----------------------------------------------------------------------- */

/* host[:port] without the port; a bracketed address keeps its brackets, a name loses the dot behind it. */
static size_t host_len(const char *host)
{
    const char *end = *host == '[' ? strchr(host, ']') : strrchr(host, ':');
    if (*host == '[') return end ? (size_t)(end - host) + 1 : strlen(host);
    size_t n = end ? (size_t)(end - host) : strlen(host);
    return n && host[n - 1] == '.' ? n - 1 : n;
}

/* Against DNS rebinding: any site can let its name resolve to 127.0.0.1, but its pages cannot send another Host. */
static bool check_host(wf_job *j)
{
    static const char *const local[] = {"localhost", "[::1]"};
    const char *host = header(j, "Host"), *own = j->server->p.host;
    if (!j->server->loopback || !host) return true;
    size_t n = host_len(host);
    for (size_t i = 0; i < WF_LEN(local); i++)
        if (n == strlen(local[i]) && !strncasecmp(host, local[i], n)) return true;
    struct in_addr a;
    char text[64];
    wf_copy(text, WF_MIN(n + 1, sizeof text), host);
    if (n < sizeof text && inet_pton(AF_INET, text, &a) == 1 && ntohl(a.s_addr) >> 24 == 127)
        return true;
    if (n == strlen(own) && !strncasecmp(host, own, n)) return true;
    return wf_refuse(&j->refusal, 403, "",
                     "the Host header names '%.80s', but this server is for this machine only",
                     host);
}

static bool check_origin(wf_job *j)
{
    const char *origin = header(j, "Origin"), *host = header(j, "Host"),
               *allowed = j->server->p.allow_origin;
    const char *site = origin ? strstr(origin, "://") : NULL;
    if (!origin || (site && host && !strcasecmp(site + 3, host)))
        return true; /* not a browser, or the server's own page */
    if (allowed && (!strcmp(allowed, "*") || !strcmp(allowed, origin))) return true;
    return wf_refuse(&j->refusal, 403, "",
                     "pages of %.100s may not use this server; see --allow-origin", origin);
}

static bool check_key(wf_job *j)
{
    if (!j->server->n_keys || (j->route && j->route->open) || wf_key_find(j->server, header(j, "Authorization"))) return true;
    return wf_refuse(&j->refusal, 401, "",
                     "a valid API key is needed: send the header 'Authorization: Bearer KEY'");
}

static bool check_length(wf_job *j)
{
    const char *length = header(j, "Content-Length");
    if (!length || strtoull(length, NULL, 10) <= j->server->p.max_body) return true;
    return wf_refuse(&j->refusal, 413, "", "the body has %.20s bytes, at most %llu are possible",
                     length, (unsigned long long)j->server->p.max_body);
}

/* frame.c says in a field, or in a trailer of a body, why it refuses a request: "STATUS reason". */
static bool check_frame(wf_job *j, enum MHD_ValueKind kind)
{
    const char *why = MHD_lookup_connection_value(j->conn, kind, WF_FRAME_REFUSED);
    if (!why) return true;
    j->close = true;
    return j->refusal.status || wf_refuse(&j->refusal, atoi(why), "", "%s", why + 4);
}

static bool check_headers(wf_job *j)
{
    wf_http_error none = {0};
    if (!check_frame(j, MHD_HEADER_KIND)) return false;
    j->route = wf_route_find(j->path, j->method, &none);
    if (!check_host(j) || !check_origin(j)) return false;
    if (!strcmp(j->method, "OPTIONS")) return true;
    if (!check_key(j) || !check_length(j)) return false;
    if (!j->route) j->refusal = none; /* without a key a client does not learn which routes exist */
    if (!j->route || j->route->early) return j->route != NULL;
    if (!atomic_load(&j->server->loaded)) return wf_refuse(&j->refusal, 503, "", "Loading model");
    if (atomic_load(&j->server->stopping))
        return wf_refuse(&j->refusal, 503, "", "the server is shutting down");
    return true;
}

/* ---- answers --------------------------------------------------------------------------------------------- */

static void add_headers(const wf_job *j, struct MHD_Response *r, int status)
{
    const char *allowed = j->server->p.allow_origin;
    MHD_add_response_header(r, "X-Request-Id", j->id);
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    if (allowed) {
        MHD_add_response_header(r, "Access-Control-Allow-Origin", allowed);
        MHD_add_response_header(r, "Access-Control-Allow-Headers", "Authorization, Content-Type");
        MHD_add_response_header(r, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
        MHD_add_response_header(r, "Vary", "Origin");
    }
    if (status == 200 && j->route && j->route->headers) j->route->headers(j, r);
    if (status == 401) MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    if (status == 503) MHD_add_response_header(r, "Retry-After", "1");
    if (j->refusal.allow) MHD_add_response_header(r, "Allow", j->refusal.allow);
    if (j->close || atomic_load(&j->server->stopping)) MHD_add_response_header(r, "Connection", "close");
}

static wf_mhd queue(wf_job *j, int status, struct MHD_Response *r)
{
    if (!r) return MHD_NO;
    add_headers(j, r, status);
    j->status = status;
    wf_mhd ok = MHD_queue_response(j->conn, (unsigned)status, r);
    MHD_destroy_response(r);
    return ok;
}

static bool hold_reply(wf_job *j, size_t len)
{
    pthread_mutex_lock(&j->lock);
    bool fits = wf_budget_reply(j, j->reply_held + len);
    pthread_mutex_unlock(&j->lock);
    return fits;
}

static wf_mhd send_refusal(wf_job *j, const wf_http_error *r);

/* Out of memory for what was to be sent. */
static wf_mhd send_lack(wf_job *j)
{
    static char text[] = "{\"error\":{\"message\":\"out of memory for the answer\",\"type\":\"server_error\",\"param\":null,\"code\":500}}";
    struct MHD_Response *r = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_PERSISTENT);
    if (r) MHD_add_response_header(r, "Content-Type", "application/json");
    return queue(j, 500, r);
}

/* Takes ownership of text, which malloc allocated. */
static wf_mhd send_held(wf_job *j, int status, char *text, size_t len, const char *type)
{
    if (!text) return send_lack(j);
    struct MHD_Response *r = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
    if (!r)
        free(text);
    else
        MHD_add_response_header(r, "Content-Type", type);
    return queue(j, status, r);
}

/* The same; if it is an answer there must be room for it. */
static wf_mhd send_text(wf_job *j, int status, char *text, size_t len, const char *type)
{
    if (status != 200 || !text || hold_reply(j, len)) return send_held(j, status, text, len, type);
    free(text);
    wf_budget_refuse_reply(j, &j->refusal);
    return send_refusal(j, &j->refusal);
}

static wf_mhd send_json(wf_job *j, int status, json_t *json)
{
    wf_text text = {0};
    bool ok = wf_text_json(&text, json);
    json_decref(json);
    if (!ok) free(text.data);
    return send_text(j, status, ok ? text.data : NULL, text.len, "application/json");
}

static wf_mhd send_refusal(wf_job *j, const wf_http_error *r)
{
    return send_json(j, r->status, wf_refusal_json(r));
}

static wf_mhd send_answer(wf_job *j)
{
    json_t *json = NULL;
    wf_text text = {0};
    if (j->route->answer(j, &json, &text))
        return j->route->content_type
                   ? send_text(j, 200, text.data, text.len, j->route->content_type)
                   : send_json(j, 200, json);
    free(text.data);
    return send_refusal(j, &j->refusal);
}

static wf_mhd send_whole(wf_job *j, size_t made_of, bool gone)
{
    if (!j->written && made_of > WF_SMALL_REPLY) {
        if (!gone) wf_work_add(j);
        return gone ? MHD_NO : MHD_YES;
    }
    if (!j->written) wf_reply_write(j);
    if (j->refusal.status) return send_refusal(j, &j->refusal);
    wf_text text = j->out;
    j->out = (wf_text){0};
    if (text.failed) free(text.data);
    return send_held(j, 200, text.failed ? NULL : text.data, text.len, "application/json");
}

/* A stream starts with its first event, so that an early failure gets its own HTTP status. */
static wf_mhd send_generated(wf_job *j)
{
    wf_http_error failed = {0};
    pthread_mutex_lock(&j->lock);
    bool news = !j->n_pending;
    for (size_t i = 0; j->params.stream && i < j->n_choices; i++)
        news |= j->choices[i].n_tokens > 0;
    if (!news) wf_job_sleep(j);
    bool fail = news && wf_job_failed(j, &failed), gone = j->abort == WF_ABORT_GONE;
    size_t made_of = j->reply_held;
    pthread_mutex_unlock(&j->lock);
    if (!news) return MHD_YES;
    if (fail) return send_refusal(j, &failed);
    if (!j->params.stream) return send_whole(j, made_of, gone);
    struct MHD_Response *stream = wf_sse_response(j);
    return stream ? queue(j, 200, stream) : send_lack(j);
}

static wf_mhd generate(wf_job *j)
{
    j->running = true;
    wf_job_watch(j);
    if (!wf_job_submit(j)) return send_refusal(j, &j->refusal);
    return send_generated(j);
}

static wf_mhd send_preflight(wf_job *j)
{
    return queue(j, 204, MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT));
}

/* ---- from the first header to the last byte -------------------------------------------------------------- */

/* A connection without a valid key counts as one that asks for nothing, also where none is needed. */
static void count_request(wf_job *j)
{
    wf_server *s = j->server;
    bool open = j->route && j->route->open;
    if (!j->socket || j->refusal.status == 401 || (open && s->n_keys)) return;
    pthread_mutex_lock(&s->lock);
    j->socket->asked = true;
    j->socket->client = j->client;
    j->socket->since_ns = wf_now_ns(); /* its body has as much time as its head had */
    j->socket->known |= !j->refusal.status;
    bool over = ++s->n_asked > s->p.max_connections;
    pthread_mutex_unlock(&s->lock);
    if (!over || open || j->refusal.status || wf_conn_displace(s, j->client)) return;
    wf_refuse(&j->refusal, 503, "", "the server is busy: %u connections have requests, as many as are possible; try again later",
              s->p.max_connections);
    j->close = true;
}

static void uncount_request(wf_job *j)
{
    wf_server *s = j->server;
    if (!j->socket) return;
    pthread_mutex_lock(&s->lock);
    s->n_asked -= j->socket->asked;
    j->socket->asked = j->socket->busy = false;
    j->socket->since_ns = wf_now_ns();
    pthread_mutex_unlock(&s->lock);
}

static wf_mhd begin(wf_server *s, struct MHD_Connection *conn, const char *path, const char *method,
                    void **job)
{
    wf_job *j = wf_job_create(s, conn);
    if (!j) return MHD_NO;
    *job = j;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    j->socket = info ? info->socket_context : NULL;
    j->client = wf_client_of(j);
    wf_copy(j->method, sizeof j->method, method);
    wf_copy(j->path, sizeof j->path, path);
    if (strlen(path) >= sizeof j->path) wf_mark_cut(j->path, sizeof j->path);
    check_headers(j);
    count_request(j);
    const char *expect = header(j, "Expect"), *length = header(j, "Content-Length");
    bool huge = j->refusal.status == 413 && (expect || strtoull(length, NULL, 10) > DISCARD_MAX);
    return huge ? send_refusal(j, &j->refusal) : MHD_YES;
}

static void drop_body(wf_job *j)
{
    free(j->body.data);
    j->body = (wf_text){0};
    wf_budget_body(j, 0);
}

static wf_mhd take_body(wf_job *j, const char *data, size_t *size)
{
    if (!j->refusal.status && j->body.len + *size > j->server->p.max_body)
        wf_refuse(&j->refusal, 413, "", "the body has more than the %llu bytes that are possible",
                  (unsigned long long)j->server->p.max_body);
    if (!j->refusal.status && !wf_budget_body(j, j->body.len + *size)) drop_body(j);
    if (j->refusal.status)
        j->discarded += *size;
    else
        wf_text_add(&j->body, data, *size);
    *size = 0;
    if (j->body.failed) wf_refuse(&j->refusal, 500, "", "out of memory for the request");
    return j->discarded > DISCARD_MAX ? MHD_NO : MHD_YES;
}

/* What its body asked for. */
static wf_mhd respond(wf_job *j)
{
    if (j->refusal.status) return send_refusal(j, &j->refusal);
    if (j->route->stream) return queue(j, 200, j->route->stream(j));
    return j->route->answer ? send_answer(j) : generate(j);
}

static wf_mhd respond_unless_aborted(wf_job *j)
{
    pthread_mutex_lock(&j->lock);
    bool gone = j->abort == WF_ABORT_GONE;
    if (j->abort) wf_job_failed(j, &j->refusal);
    pthread_mutex_unlock(&j->lock);
    return gone ? MHD_NO : respond(j);
}

/* A large body goes to another thread. Afterwards libmicrohttpd comes here again. */
static wf_mhd read_body(wf_job *j)
{
    if (j->body.len <= WF_SMALL_BODY) {
        wf_job_read(j);
        return respond(j);
    }
    wf_job_watch(j);
    wf_work_add(j);
    return MHD_YES;
}

static void set_busy(wf_job *j)
{
    if (!j->socket) return;
    pthread_mutex_lock(&j->server->lock);
    j->socket->busy = true;
    pthread_mutex_unlock(&j->server->lock);
}

static wf_mhd finish(wf_job *j)
{
    if (j->read) return respond_unless_aborted(j);
    set_busy(j);
    check_frame(j, MHD_FOOTER_KIND);
    if (j->refusal.status) return send_refusal(j, &j->refusal);
    if (!strcmp(j->method, "OPTIONS")) return send_preflight(j);
    return j->route->read ? read_body(j) : respond(j);
}

static wf_mhd on_request(void *cls, struct MHD_Connection *conn, const char *path,
                         const char *method, const char *version, const char *data, size_t *size,
                         void **job)
{
    (void)version;
    wf_job *j = *job;
    if (!j) return begin(cls, conn, path, method, job);
    if (*size) return take_body(j, data, size);
    return j->running ? send_generated(j) : finish(j);
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **job,
                         enum MHD_RequestTerminationCode why)
{
    wf_job *j = *job;
    (void)cls, (void)conn, (void)why;
    if (!j) return;
    *job = NULL;
    wf_watch_remove(j);
    uncount_request(j);
    wf_log_request(j);
    wf_job_detach(j);
}

/* ---- connections ----------------------------------------------------------------------------------------- */

static void open_conn(wf_server *s, struct MHD_Connection *conn, void **context)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    wf_conn *c = info ? wf_calloc(1, sizeof *c) : NULL;
    *context = c;
    if (!c) return; /* served without a read timeout */
    c->fd = info->connect_fd;
    c->since_ns = wf_now_ns();
    pthread_mutex_lock(&s->lock);
    c->next = s->conns;
    if (s->conns) s->conns->prev = c;
    s->conns = c;
    pthread_mutex_unlock(&s->lock);
}

static void close_conn(wf_server *s, void **context)
{
    wf_conn *c = *context;
    if (!c) return;
    pthread_mutex_lock(&s->lock);
    if (c->prev)
        c->prev->next = c->next;
    else
        s->conns = c->next;
    if (c->next) c->next->prev = c->prev;
    pthread_mutex_unlock(&s->lock);
    free(c);
    *context = NULL;
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        open_conn(cls, conn, context);
    } else {
        close_conn(cls, context);
    }
}

/* Paths are compared without unescaping: no route needs an escape, and %00 must not end a path. */
static size_t keep_escapes(void *cls, struct MHD_Connection *conn, char *text)
{
    (void)cls, (void)conn;
    return strlen(text);
}

static void on_log(void *cls, const char *fmt, va_list ap)
{
    char line[512];
    (void)cls;
    wf_format(line, sizeof line, fmt, ap);
    size_t n = strlen(line);
    while (n && line[n - 1] == '\n') line[--n] = 0;
    wf_log(WEFT_LOG_DEBUG, "http: %s", line);
}

/* ---- daemon ---------------------------------------------------------------------------------------------- */

/* Each connection takes file descriptors, so the limit of connections respects RLIMIT_NOFILE. At that limit new connections wait;
 * without descriptors devices would fail. */
static void fit_file_limit(wf_server *s)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l)) return;
    l.rlim_cur = l.rlim_max;
    setrlimit(RLIMIT_NOFILE, &l);
    rlim_t fit = l.rlim_cur > SPARE_FILES ? (l.rlim_cur - SPARE_FILES) / WF_FILES_PER_CONNECTION : 0;
    if (l.rlim_cur == RLIM_INFINITY || fit >= s->p.max_connections) return;
    s->p.max_connections = (uint32_t)WF_MAX(fit, HTTP_THREADS);
    wf_log(WEFT_LOG_WARN,
           "%llu files may be open, so there can be %u connections; ulimit -Hn allows more",
           (unsigned long long)l.rlim_cur, s->p.max_connections);
}

/* front.c counts the connections, and it and watch.c have all deadlines. The daemon's own limit, an equal part of it for each thread, must never be reached: it does not
 * see connections that a thread has not begun to serve, and at the limit version 0.9.75 keeps a lock. */
static struct MHD_Daemon *start(wf_server *s)
{
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    return MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL,
        MHD_OPTION_THREAD_POOL_SIZE, (unsigned)HTTP_THREADS, MHD_OPTION_CONNECTION_LIMIT,
        2 * HTTP_THREADS * (unsigned)s->p.max_connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_MEMORY,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, s, MHD_OPTION_END);
}

bool wf_http_start(wf_server *s)
{
    fit_file_limit(s);
    s->daemon = start(s);
    if (!s->daemon) wf_fail(WEFT_ERR_IO, "cannot start the HTTP server; too few threads or files? See ulimit -a");
    return s->daemon && wf_front_start(s);
}

void wf_http_stop(wf_server *s)
{
    wf_front_refuse(s);
    if (s->daemon) MHD_stop_daemon(s->daemon);
    s->daemon = NULL;
    wf_front_stop(s);
}
