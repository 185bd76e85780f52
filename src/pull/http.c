/* http: requests by libcurl. Redirects are followed here and not by libcurl, so that each hop is checked: TLS stays
 * TLS, and the token of the hub goes to the endpoint alone. */
#include "pull/internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HUB        "https://huggingface.co"
#define MAX_HOPS   10
#define MAX_TEXT   ((size_t)16 << 20) /* of the hub's lists */
#define MAX_TOKEN  4096
#define CONNECT_S  30
#define MAX_WAIT_S 300 /* longer ones are not waited for */

/* ---- endpoint and token ------------------------------------------------------------------------ */

static const char *variable_of(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static char *read_token(void)
{
    char path[PATH_MAX], *text = NULL;
    size_t len;
    const char *value = variable_of("HF_TOKEN");
    if (value) return wf_strdup(value);
    /* Where the hub's own tools keep it. */
    const char *own = variable_of("HF_TOKEN_PATH"), *home = variable_of("HF_HOME"),
               *cache = variable_of("XDG_CACHE_HOME"), *user = variable_of("HOME");
    if (own) wf_copy(path, sizeof path, own);
    else if (home) snprintf(path, sizeof path, "%s/token", home);
    else if (cache) snprintf(path, sizeof path, "%s/huggingface/token", cache);
    else snprintf(path, sizeof path, "%s/.cache/huggingface/token", user ? user : "");
    FILE *f = fopen(path, "re");
    if (!f) return NULL;
    weft_status s = wf_read_fd(fileno(f), path, MAX_TOKEN, &text, &len);
    fclose(f);
    return s ? NULL : text;
}

/* Blanks around it are none of it; what would end a header line is refused. */
static weft_status set_token(wf_http *h)
{
    size_t n = 0;
    h->token = read_token();
    if (!h->token) return WEFT_OK;
    while (h->token[n] && !isspace((unsigned char)h->token[n])) n++;
    bool whole = h->token[n + strspn(h->token + n, " \t\r\n")] == 0;
    h->token[n] = 0;
    for (const char *p = h->token; *p; p++)
        if (*p < 33 || *p > 126) whole = false;
    if (whole && n) return WEFT_OK;
    free(h->token);
    h->token = NULL;
    return n || !whole
               ? wf_fail(WEFT_ERR_ARG,
                         "the token of the hub (HF_TOKEN, or the file token) is not one word of printable characters")
               : WEFT_OK;
}

static weft_status set_endpoint(wf_http *h)
{
    const char *own = variable_of("HF_ENDPOINT");
    char *text = wf_strdup(own ? own : HUB);
    if (!text) return WEFT_ERR_NOMEM;
    for (size_t n = strlen(text); n && text[n - 1] == '/';) text[--n] = 0;
    h->endpoint = text;
    if (!strncasecmp(text, "http://", 7) || !strncasecmp(text, "https://", 8)) return WEFT_OK;
    return wf_fail(WEFT_ERR_ARG, "HF_ENDPOINT: '%s' is no address that begins with https://", text);
}

weft_status wf_http_open(wf_http *h, const wf_pull_params *p)
{
    *h = (wf_http){.p = p};
    if (curl_global_init(CURL_GLOBAL_DEFAULT) || !(h->curl = curl_easy_init()))
        return wf_fail(WEFT_ERR_NOMEM, "cannot initialise libcurl");
    WF_TRY(set_endpoint(h));
    return set_token(h);
}

void wf_http_close(wf_http *h)
{
    curl_easy_cleanup(h->curl);
    curl_global_cleanup();
    free((char *)h->endpoint);
    free(h->token);
    *h = (wf_http){0};
}

bool wf_http_stopped(const wf_http *h) { return h->p->stop && h->p->stop(); }

/* ---- addresses --------------------------------------------------------------------------------- */

/* scheme://host:port, which is what decides where a token goes. */
static bool origin_of(const char *url, char *out, size_t cap)
{
    CURLU *u = curl_url();
    char *scheme = NULL, *host = NULL, *port = NULL;
    bool ok = u && !curl_url_set(u, CURLUPART_URL, url, 0) && !curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) &&
              !curl_url_get(u, CURLUPART_HOST, &host, 0) && !curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT);
    if (ok) ok = snprintf(out, cap, "%s://%s:%s", scheme, host, port) < (int)cap;
    for (char *c = out; ok && *c; c++) *c = (char)tolower((unsigned char)*c);
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_url_cleanup(u);
    if (!ok) *out = 0;
    return ok;
}

static bool is_same_origin(const char *a, const char *b)
{
    char one[512], two[512];
    return origin_of(a, one, sizeof one) && origin_of(b, two, sizeof two) && !strcmp(one, two);
}

static bool is_tls(const char *url) { return !strncasecmp(url, "https://", 8); }

/* ---- one hop ------------------------------------------------------------------------------------ */

typedef struct hop {
    wf_http *h;
    const wf_request *q;
    wf_reply *r;
    weft_status failed; /* by the receiver of the bytes */
    bool begun, silent;
    curl_off_t bytes; /* of the body so far, the last of which were heard then */
    uint64_t heard_ns;
    char error[CURL_ERROR_SIZE];
} hop;

/* The value of a header of that name; NULL: it is another one. */
static const char *value_of(const char *line, const char *name)
{
    size_t n = strlen(name);
    return !strncasecmp(line, name, n) && line[n] == ':' ? line + n + 1 + strspn(line + n + 1, " \t") : NULL;
}

static size_t on_header(char *bytes, size_t size, size_t n, void *user)
{
    wf_reply *r = ((hop *)user)->r;
    char line[4096];
    const char *v, *end;
    unsigned long long from = 0, to, total;
    n *= size;
    wf_copy(line, WF_MIN(n + 1, sizeof line), bytes); /* libcurl ends them with a NUL, but does not promise it */
    line[strcspn(line, "\r\n")] = 0;
    if (!strncmp(line, "HTTP/", 5)) r->etag[0] = r->next[0] = 0, r->has_range = false;
    if ((v = value_of(line, "ETag"))) wf_copy(r->etag, sizeof r->etag, v);
    if ((v = value_of(line, "X-Linked-ETag"))) { /* without its quotes */
        wf_copy(r->linked_etag, sizeof r->linked_etag, v + (*v == '"'));
        r->linked_etag[strcspn(r->linked_etag, "\"")] = 0;
    }
    if ((v = value_of(line, "X-Error-Code"))) wf_copy(r->code, sizeof r->code, v);
    /* bytes 5-9/10, or bytes * /10 where nothing could be sent. */
    if ((v = value_of(line, "Content-Range")) &&
        (sscanf(v, "bytes %llu-%llu/%llu", &from, &to, &total) == 3 || sscanf(v, "bytes */%llu", &total) == 1))
        r->range_from = from, r->range_total = total, r->has_range = true;
    if ((v = value_of(line, "Link")) && *v == '<' && (end = strchr(v, '>')) && strstr(end, "rel=\"next\"") &&
        (size_t)(end - v) < sizeof r->next)
        wf_copy(r->next, (size_t)(end - v), v + 1);
    return n;
}

static bool is_good(long status) { return status == 200 || status == 206; }

/* Status and length are known once the first bytes are there, or the end. */
static bool begin_reply(hop *p)
{
    curl_off_t length = -1;
    curl_easy_getinfo(p->h->curl, CURLINFO_RESPONSE_CODE, &p->r->status);
    curl_easy_getinfo(p->h->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    p->r->length = length;
    if (p->begun || !is_good(p->r->status)) return true;
    p->begun = true;
    if (p->q->begin) p->failed = p->q->begin(p->q->user);
    return !p->failed;
}

static size_t on_bytes(char *bytes, size_t size, size_t n, void *user)
{
    hop *p = user;
    n *= size;
    if (!begin_reply(p)) return 0;
    if (is_good(p->r->status)) p->failed = p->q->sink(p->q->user, bytes, n);
    return p->failed ? 0 : n; /* what an error page says is not read */
}

/* Comes about every second also when nothing else does. libcurl's own limit counts averages over several seconds. */
static int on_time(void *user, curl_off_t a, curl_off_t bytes, curl_off_t c, curl_off_t d)
{
    hop *p = user;
    uint64_t now = wf_now_ns();
    (void)a, (void)c, (void)d;
    if (bytes != p->bytes || !p->heard_ns) p->bytes = bytes, p->heard_ns = now;
    p->silent = now - p->heard_ns > p->h->p->stall_s * (uint64_t)1000000000;
    return p->silent || wf_http_stopped(p->h);
}

static bool add_line(struct curl_slist **list, const char *name, const char *value)
{
    char line[MAX_TOKEN + 64];
    snprintf(line, sizeof line, "%s: %s", name, value);
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (longer) *list = longer;
    return longer;
}

/* ---- what went wrong ---------------------------------------------------------------------------- */

static const char *host_of(const char *url, char *buf, size_t cap)
{
    return origin_of(url, buf, cap) ? buf : "the server";
}

static weft_status refused_reply(hop *p, const char *url)
{
    long status = p->r->status;
    curl_off_t wait = 0;
    char host[512];
    curl_easy_getinfo(p->h->curl, CURLINFO_RETRY_AFTER, &wait);
    p->r->wait_s = wait > 0 ? (uint64_t)wait : 0;
    p->r->again = status == 408 || status == 429 || status >= 500;
    if ((status == 401 || status == 403) && *p->h->page && is_same_origin(url, p->h->endpoint))
        return wf_fail(WEFT_ERR_IO,
                       "%ld, no access to %s: it is gated or private%s. Accept its licence on that page, and set "
                       "HF_TOKEN to a token of %s/settings/tokens",
                       status, p->h->page, p->h->token ? ", or the token may not read it" : "", p->h->endpoint);
    const char *why = status == 429                    ? ", too many requests"
                      : status == 404                  ? ", not found"
                      : status == 401 || status == 403 ? ", no access"
                                                       : "";
    return wf_fail(WEFT_ERR_IO, "%s answers %ld%s", host_of(url, host, sizeof host), status, why);
}

static weft_status result_of(hop *p, CURLcode rc, const char *url)
{
    if (wf_http_stopped(p->h)) return wf_fail(WEFT_ERR_CANCELLED, "stopped");
    if (!rc) begin_reply(p); /* a reply without a body */
    if (p->failed) return p->failed;
    if (rc) {
        static const CURLcode final[] = {
            CURLE_URL_MALFORMAT,      CURLE_UNSUPPORTED_PROTOCOL, CURLE_PEER_FAILED_VERIFICATION,
            CURLE_SSL_CACERT_BADFILE, CURLE_TOO_MANY_REDIRECTS,   CURLE_OUT_OF_MEMORY};
        char host[512];
        p->r->again = true;
        for (size_t i = 0; i < WF_LEN(final); i++)
            if (rc == final[i]) p->r->again = false;
        host_of(url, host, sizeof host);
        if (p->silent) return wf_fail(WEFT_ERR_IO, "%s has sent nothing for %u s", host, p->h->p->stall_s);
        return wf_fail(WEFT_ERR_IO, "cannot fetch from %s: %s", host, *p->error ? p->error : curl_easy_strerror(rc));
    }
    if (is_good(p->r->status) || (p->r->status == 416 && p->q->from)) return WEFT_OK;
    return refused_reply(p, url);
}

/* ---- redirects ---------------------------------------------------------------------------------- */

/* Where the reply points to, or NULL; the caller frees it. */
static weft_status next_hop(hop *p, const char *from, bool plain, char **next)
{
    char host[512];
    const char *to = NULL;
    curl_easy_getinfo(p->h->curl, CURLINFO_RESPONSE_CODE, &p->r->status);
    bool redirect = p->r->status == 301 || p->r->status == 302 || p->r->status == 303 || p->r->status == 307 ||
                    p->r->status == 308;
    if (redirect) curl_easy_getinfo(p->h->curl, CURLINFO_REDIRECT_URL, &to);
    if (!to) return WEFT_OK;
    if (!is_tls(to) && (!plain || strncasecmp(to, "http://", 7)))
        return wf_fail(WEFT_ERR_IO, "%s redirects to an address that is not https: refused",
                       host_of(from, host, sizeof host));
    *next = wf_strdup(to);
    return *next ? WEFT_OK : WEFT_ERR_NOMEM;
}

static weft_status get_hop(hop *p, const char *url, bool plain, char **next)
{
    struct curl_slist *list = NULL;
    CURL *c = p->h->curl;
    const char *ca = variable_of("CURL_CA_BUNDLE"); /* as curl itself takes it; the library does not */
    if (!ca) ca = variable_of("SSL_CERT_FILE");
    curl_easy_reset(c); /* connections are kept */
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, plain ? "http,https" : "https");
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "weft/" WF_VERSION);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, p->error);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, p);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, p);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_time);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, p);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    if (ca) curl_easy_setopt(c, CURLOPT_CAINFO, ca);
    if (p->q->head) curl_easy_setopt(c, CURLOPT_NOBODY, 1L);
    char range[48];
    bool ok = true, hub = is_same_origin(url, p->h->endpoint);
    snprintf(range, sizeof range, "bytes=%llu-", (unsigned long long)p->q->from);
    if (p->h->token && hub) {
        char value[MAX_TOKEN + 16];
        snprintf(value, sizeof value, "Bearer %s", p->h->token);
        ok = add_line(&list, "Authorization", value);
    }
    if (ok && p->q->from) ok = add_line(&list, "Range", range);
    if (ok && p->q->from && p->q->if_range) ok = add_line(&list, "If-Range", p->q->if_range);
    curl_easy_setopt(p->h->curl, CURLOPT_HTTPHEADER, list);
    CURLcode rc = ok ? curl_easy_perform(p->h->curl) : CURLE_OUT_OF_MEMORY;
    curl_slist_free_all(list);
    weft_status s = rc ? WEFT_OK : next_hop(p, url, plain, next);
    return s || *next ? s : result_of(p, rc, url);
}

weft_status wf_http_get(wf_http *h, const wf_request *q, wf_reply *r)
{
    bool plain = !is_tls(q->url); /* who types http:// wants it */
    char *url = wf_strdup(q->url), host[512];
    weft_status s = url ? WEFT_OK : WEFT_ERR_NOMEM;
    *r = (wf_reply){.length = -1};
    for (int n = 0; !s; n++) {
        hop p = {.h = h, .q = q, .r = r};
        char *next = NULL;
        if (n > MAX_HOPS)
            s = wf_fail(WEFT_ERR_IO, "%s redirects more than %d times", host_of(q->url, host, sizeof host), MAX_HOPS);
        if (!s) s = get_hop(&p, url, plain, &next);
        if (!next) break;
        plain = plain && !is_tls(next);
        free(url);
        url = next;
    }
    free(url);
    return s;
}

/* ---- retries ------------------------------------------------------------------------------------ */

weft_status wf_http_retry(wf_http *h, const wf_reply *r, uint32_t n, const char *what)
{
    char why[512];
    double wait = h->p->retry_s * (double)(1u << WF_MIN(n, 6u));
    wf_copy(why, sizeof why, weft_last_error());
    if (!r->again) return WEFT_ERR_IO;
    if (r->wait_s > MAX_WAIT_S)
        return wf_fail(WEFT_ERR_IO, "%s; it asks to wait for %llu s: try again then", why,
                       (unsigned long long)r->wait_s);
    if (n >= h->p->retries) return wf_fail(WEFT_ERR_IO, "%s; tried %u times", why, n + 1);
    wait = WF_MAX(wait, (double)r->wait_s);
    wf_log(WEFT_LOG_WARN, "%s: %s; trying again in %.3g s", what, why, wait);
    for (uint64_t end = wf_now_ns() + (uint64_t)(wait * 1e9); wf_now_ns() < end && !wf_http_stopped(h);)
        wf_sleep_ns(20000000);
    return wf_http_stopped(h) ? wf_fail(WEFT_ERR_CANCELLED, "stopped") : WEFT_OK;
}

static weft_status keep_bytes(void *user, const char *bytes, size_t n)
{
    wf_text *t = user;
    if (t->len + n >= MAX_TEXT)
        return wf_fail(WEFT_ERR_IO, "the hub's answer has more than %zu MiB: refused", MAX_TEXT >> 20);
    wf_text_add(t, bytes, n);
    return t->failed ? wf_fail(WEFT_ERR_NOMEM, "out of host memory") : WEFT_OK;
}

weft_status wf_http_text(wf_http *h, const char *url, wf_text *text, wf_reply *r)
{
    weft_status s = WEFT_OK;
    for (uint32_t n = 0; !s; n++) {
        *text = (wf_text){0};
        wf_request q = {.url = url, .sink = keep_bytes, .user = text};
        weft_status failed = wf_http_get(h, &q, r);
        if (!failed) return WEFT_OK;
        free(text->data);
        *text = (wf_text){0};
        s = failed == WEFT_ERR_IO ? wf_http_retry(h, r, n, "the hub's list") : failed;
    }
    return s;
}
