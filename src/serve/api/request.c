/* request: what the HTTP server calls while a request comes, is answered and ends. The head is checked at once, but an
 * error is sent only after the body has arrived, because many clients do not read while they write. */
#include "serve/api/internal.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MANY_PROMPTS 64    /* sequences that a thread submits */
#define MANY_TOKENS  65536 /* of the prompts of all sequences, likewise */
#define DISCARD_MAX (256u << 20) /* bytes of an oversized body that are read before the reply */

/* ---- may this request be answered? ----------------------------------------------------------------------- */

bool wf_allows(const wf_server *s, const char *what, const char *value)
{
    size_t n = strlen(what);
    for (size_t i = 0; i < s->p.n_allow; i++) {
        const char *word = s->p.allow[i], *is = word + n + 1;
        if (strncmp(word, what, n) || word[n] != (value ? '=' : 0)) continue;
        if (!value || !strcmp(is, "*") || !strcasecmp(is, value)) return true;
    }
    return false;
}

/* host[:port] without the port; a bracketed address keeps its brackets, a name loses the dot behind it. */
static size_t host_len(const char *host)
{
    const char *end = *host == '[' ? strchr(host, ']') : strrchr(host, ':');
    if (*host == '[') return end ? (size_t)(end - host) + 1 : strlen(host);
    size_t n = end ? (size_t)(end - host) : strlen(host);
    return n && host[n - 1] == '.' ? n - 1 : n;
}

/* Against DNS rebinding: any site can let its name resolve to 127.0.0.1, but its pages cannot send another Host. */
static bool check_host(wf_job *j, const char *host)
{
    static const char *const local[] = {"localhost", "[::1]"};
    const char *own = j->server->p.host;
    if (!host || !wf_httpd_is_local(j->server->http)) return true;
    size_t n = host_len(host);
    for (size_t i = 0; i < WF_LEN(local); i++)
        if (n == strlen(local[i]) && !strncasecmp(host, local[i], n)) return true;
    struct in_addr a;
    char text[64];
    wf_copy(text, WF_MIN(n + 1, sizeof text), host);
    if (n < sizeof text && inet_pton(AF_INET, text, &a) == 1 && ntohl(a.s_addr) >> 24 == 127) return true;
    char name[256];
    wf_copy(name, WF_MIN(n + 1, sizeof name), host);
    if (!strcasecmp(name, own) || wf_allows(j->server, "host", name)) return true;
    return wf_refuse(&j->refusal, 403, "",
                     "the Host header names '%.80s', but this server is for this machine only; a name that a proxy "
                     "passes on needs --allowed-host",
                     host);
}

static bool check_origin(wf_job *j, const char *origin, const char *host)
{
    const char *site = origin ? strstr(origin, "://") : NULL;
    if (!origin || (site && host && !strcasecmp(site + 3, host)))
        return true; /* not a browser, or the server's own page */
    if (wf_allows(j->server, "origin", origin)) return true;
    return wf_refuse(&j->refusal, 403, "", "pages of %.100s may not use this server; see --allow-origin", origin);
}

/* Bodies are read as they come: none is unpacked, which is where small ones become large. */
static bool check_encoding(wf_job *j, const wf_httpd_request *r)
{
    for (const char *v = NULL; (v = wf_httpd_field(r, "Content-Encoding", v));)
        if (*v && strcasecmp(v, "identity"))
            return wf_refuse(&j->refusal, 415, "",
                             "the body has the Content-Encoding '%.40s', but only identity is possible: send it "
                             "uncompressed, without this header",
                             v);
    return true;
}

/* A reason of the HTTP server: "STATUS reason". */
static bool refuse_bad(wf_job *j, const char *bad) { return wf_refuse(&j->refusal, atoi(bad), "", "%s", bad + 4); }

static bool check_head(wf_job *j, const wf_httpd_request *r)
{
    wf_http_error none = {0};
    const wf_server *s = j->server;
    const char *host = wf_httpd_field(r, "Host", NULL);
    if (r->bad) return refuse_bad(j, r->bad);
    j->route = wf_route_find(j->path, j->method, &none);
    if (!check_host(j, host) || !check_origin(j, wf_httpd_field(r, "Origin", NULL), host)) return false;
    if (!strcmp(j->method, "OPTIONS")) return true;
    if (s->n_keys && !(j->route && j->route->open) && !wf_key_find(s, r))
        return wf_refuse(&j->refusal, 401, "",
                         "a valid API key is needed: send the header 'Authorization: Bearer KEY'");
    if (!check_encoding(j, r)) return false;
    if (r->length > s->limits.max_body)
        return wf_refuse(&j->refusal, 413, "", "the body has %llu bytes, at most %llu are possible",
                         (unsigned long long)r->length, (unsigned long long)s->limits.max_body);
    if (!j->route) j->refusal = none; /* without a key a client does not learn which routes exist */
    if (!j->route || j->route->early) return j->route != NULL;
    if (!atomic_load(&s->loaded)) return wf_refuse(&j->refusal, 503, "", "Loading model");
    return !atomic_load(&s->stopping) || wf_refuse(&j->refusal, 503, "", "the server is shutting down");
}

/* ---- replies --------------------------------------------------------------------------------------------- */

static void add_field(wf_text *t, const char *name, const char *value)
{
    wf_text_add(t, name, strlen(name));
    wf_text_add(t, ": ", 2);
    wf_text_add(t, value, strlen(value));
    wf_text_add(t, "\r\n", 2);
}

/* For a page of an allowed origin: a preflight allows what it asks for, which is what the page's own program sends. */
static void add_cors(const wf_server *s, const wf_httpd_request *r, wf_text *t)
{
    const char *origin = wf_httpd_field(r, "Origin", NULL),
               *asked = wf_httpd_field(r, "Access-Control-Request-Headers", NULL);
    if (!origin || !wf_allows(s, "origin", origin)) return;
    add_field(t, "Vary", "Origin");
    add_field(t, "Access-Control-Allow-Origin", origin);
    add_field(t, "Access-Control-Allow-Headers", asked ? asked : "Authorization, Content-Type");
    add_field(t, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    add_field(t, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
}

/* Completes and sends it. */
static void send_reply(wf_job *j, int status, const char *type, wf_httpd_reply *reply)
{
    wf_text *t = &reply->fields;
    if (type) add_field(t, "Content-Type", type);
    add_field(t, "X-Request-Id", j->id);
    add_field(t, "X-Content-Type-Options", "nosniff");
    if (j->cors.len) wf_text_add(t, j->cors.data, j->cors.len);
    if (status == 200 && j->route && j->route->fields) j->route->fields(j, t);
    if (j->other_model)
        add_field(t, "Warning", "299 weft \"the answer is of this server's model, not of the one that was asked for\"");
    if (status == 401) add_field(t, "WWW-Authenticate", "Bearer");
    if (status == 503) add_field(t, "Retry-After", "1");
    if (j->refusal.allow) add_field(t, "Allow", j->refusal.allow);
    reply->status = j->status = status;
    reply->close = j->close || atomic_load(&j->server->stopping);
    wf_httpd_send(j->request, reply);
}

/* Takes over the text. */
static void send_text(wf_job *j, int status, const char *type, wf_text text)
{
    static const char lack[] = "{\"error\":{\"message\":\"out of memory for the "
                               "answer\",\"type\":\"server_error\",\"param\":null,\"code\":500}}";
    if (text.failed) {
        free(text.data);
        text = (wf_text){0};
        wf_text_add(&text, lack, sizeof lack - 1);
        status = 500;
        type = "application/json";
    }
    send_reply(j, status, type, &(wf_httpd_reply){.body = text});
}

static void send_refusal(wf_job *j, const wf_http_error *r)
{
    wf_text text = {0};
    (j->route && j->route->api ? j->route->api->put_refusal : wf_refusal_put)(&text, r);
    send_text(j, r->status, "application/json", text);
}

/* An answer, if there is room for it. */
static void send_answer(wf_job *j)
{
    wf_text text = {0};
    const char *type = j->route->content_type;
    bool fits = true, good = j->route->answer(j, &text);
    if (good) {
        pthread_mutex_lock(&j->lock);
        fits = wf_budget_reply(j, j->reply_held + text.len);
        pthread_mutex_unlock(&j->lock);
    }
    if (!fits) wf_budget_refuse_reply(j, &j->refusal);
    if (good && fits) {
        send_text(j, 200, type ? type : "application/json", text);
        return;
    }
    free(text.data);
    send_refusal(j, &j->refusal);
}

/* What has been generated, once all is. made_of: the bytes of that. */
static void send_whole(wf_job *j, size_t made_of)
{
    if (!j->written && made_of > WF_SMALL_REPLY) {
        wf_work_add(j);
        return;
    }
    if (!j->written) wf_reply_write(j);
    wf_text text = j->out;
    j->out = (wf_text){0};
    if (!j->refusal.status) {
        send_text(j, 200, "application/json", text);
        return;
    }
    free(text.data);
    send_refusal(j, &j->refusal);
}

/* What has come of its sequences, once all has. */
static void send_generated(wf_job *j)
{
    wf_http_error failed = {0};
    pthread_mutex_lock(&j->lock);
    bool news = !j->n_pending;
    j->sleeps = !news;
    bool fail = news && wf_job_failed(j, &failed);
    size_t made_of = j->reply_held;
    pthread_mutex_unlock(&j->lock);
    if (fail) send_refusal(j, &failed);
    else if (news) send_whole(j, made_of);
}

/* ---- from the head to the end ---------------------------------------------------------------------------- */

/* A connection without a valid key counts as one that asks for nothing, also where none is needed. */
static void count_request(wf_job *j)
{
    const wf_server *s = j->server;
    bool open = j->route && j->route->open;
    if (j->refusal.status == 401 || (open && s->n_keys)) return;
    if (wf_httpd_count(j->request, j->client, !j->refusal.status) || open || j->refusal.status ||
        wf_httpd_displace(j->request))
        return;
    wf_refuse(&j->refusal, 503, "",
              "the server is busy: %u connections have requests, as many as are possible; try again later",
              wf_httpd_max_connections(s->http));
    j->close = true;
}

static void request_begin(void *server, wf_httpd_request *r)
{
    wf_job *j = wf_job_create(server, r);
    r->user = j;
    if (!j) {
        wf_httpd_drop(r);
        return;
    }
    j->client = wf_client_of(server, r);
    wf_copy(j->method, sizeof j->method, r->method);
    wf_copy(j->path, sizeof j->path, r->path);
    if (strlen(r->path) >= sizeof j->path) wf_mark_cut(j->path, sizeof j->path);
    add_cors(server, r, &j->cors);
    check_head(j, r);
    count_request(j);
    if (j->refusal.status == 413 && (r->expects || r->length > DISCARD_MAX)) send_refusal(j, &j->refusal);
}

static void request_body(wf_httpd_request *r, const char *data, size_t n)
{
    wf_job *j = r->user;
    uint64_t most = j->server->limits.max_body;
    if (!j->refusal.status && j->body.len + n > most)
        wf_refuse(&j->refusal, 413, "", "the body has more than the %llu bytes that are possible",
                  (unsigned long long)most);
    if (!j->refusal.status && !wf_budget_body(j, j->body.len + n)) {
        free(j->body.data);
        j->body = (wf_text){0};
        wf_budget_body(j, 0);
    }
    if (!j->refusal.status) wf_text_add(&j->body, data, n);
    else if ((j->discarded += n) > DISCARD_MAX) wf_httpd_drop(r);
    if (j->body.failed) wf_refuse(&j->refusal, 500, "", "out of memory for the request");
}

/* Its sequences are submitted, or refused. */
static void send_first(wf_job *j)
{
    pthread_mutex_lock(&j->lock);
    if (!j->choices && !j->refusal.status && !wf_job_failed(j, &j->refusal)) /* it was given up before its turn */
        wf_refuse(&j->refusal, 503, "", "the request was given up");
    pthread_mutex_unlock(&j->lock);
    if (j->refusal.status) send_refusal(j, &j->refusal);
    else if (j->params.stream) {
        /* At once: a proxy may give up who is silent while he waits for his turn, or his prompt is computed. */
        wf_httpd_reply reply = {.fill = wf_sse_fill, .beat_ns = j->server->limits.beat_s * 1000000000ull};
        j->sent_ns = wf_now_ns();
        add_field(&reply.fields, "Cache-Control", "no-cache");
        add_field(&reply.fields, "X-Accel-Buffering", "no"); /* tells nginx not to buffer */
        send_reply(j, 200, j->route->api->stream_type, &reply);
    } else send_generated(j);
}

/* Are the sequences, or the tokens of their prompts, many? */
static bool are_many(const wf_params *p)
{
    size_t n = p->n_prompts * (size_t)p->n, tokens = 0;
    for (size_t i = 0; i < p->n_prompts; i++) tokens += p->prompts[i].n * (size_t)p->n;
    return n > MANY_PROMPTS || tokens > MANY_TOKENS;
}

/* What its body, if it has one, asked for. */
static void respond_to_body(wf_job *j)
{
    const wf_route *route = j->route;
    if (j->refusal.status) send_refusal(j, &j->refusal);
    else if (!strcmp(j->method, "OPTIONS")) send_reply(j, 204, NULL, &(wf_httpd_reply){0});
    else if (route->stream) send_reply(j, 200, "application/json", &(wf_httpd_reply){.fill = route->stream});
    else if (route->answer) send_answer(j);
    else if (j->written) send_whole(j, 0);
    else {
        j->running = true;
        wf_job_watch(j);
        /* a grammar is compiled with each sequence: others must not wait for that, nor for very many of them */
        j->submits = j->params.grammar || are_many(&j->params);
        if (j->submits) {
            wf_work_add(j);
            return;
        }
        wf_job_submit(j);
        send_first(j);
    }
}

static void request_whole(wf_httpd_request *r)
{
    wf_job *j = r->user;
    if (r->bad && !j->refusal.status) refuse_bad(j, r->bad);
    pthread_mutex_lock(&j->lock);
    bool working = j->working, aborted = j->abort;
    pthread_mutex_unlock(&j->lock);
    if (working || wf_models_await(j, aborted)) return; /* roused too early */
    pthread_mutex_lock(&j->lock);
    if (j->abort && !j->running) wf_job_failed(j, &j->refusal);
    pthread_mutex_unlock(&j->lock);
    bool reads = !j->read && !j->refusal.status && j->route && j->route->read;
    if (reads && (j->slow || j->body.len > WF_SMALL_BODY)) wf_job_watch(j);
    if (reads) j->until_ns = 0, wf_work_add(j);
    else if (j->submits) j->submits = false, send_first(j);
    else if (j->running) send_generated(j);
    else respond_to_body(j);
}

static void request_late(wf_httpd_request *r) { wf_job_abort(r->user, WF_ABORT_TIMEOUT); }

static void request_end(wf_httpd_request *r)
{
    if (!r->user) return;
    const wf_job *j = r->user;
    if (j->status) wf_metrics_http(j->server, j->route, j->status);
    wf_log_request(r->user);
    wf_job_detach(r->user);
}

const wf_httpd_calls wf_request_calls = {
    .begin = request_begin, .body = request_body, .whole = request_whole, .late = request_late, .end = request_end};
