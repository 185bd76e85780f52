/* ps: which models a running server has loaded. It asks over a socket of its own, so that builds without libcurl have
 * it, too. */
#include "cli/cli.h"

#include "base/json.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 10
#define REPLY_MAX  ((size_t)4 << 20)

/* ---- the server ------------------------------------------------------------------------------ */

static weft_status connect_to(const char *host, const char *port, int *fd)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    struct addrinfo *list = NULL;
    int bad = getaddrinfo(host, port, &hints, &list);
    if (bad) return wf_fail(WEFT_ERR_IO, "%s: %s", host, gai_strerror(bad));
    *fd = -1;
    for (const struct addrinfo *a = list; a && *fd < 0; a = a->ai_next) {
        *fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (*fd < 0) continue;
        setsockopt(*fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        setsockopt(*fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        if (connect(*fd, a->ai_addr, a->ai_addrlen)) close(*fd), *fd = -1;
    }
    freeaddrinfo(list);
    return *fd >= 0 ? WEFT_OK
                    : wf_fail(WEFT_ERR_IO, "no server answers at %s port %s: %s; --host and --port say where one is",
                              host, port, strerror(errno));
}

/* All that comes until the server closes. */
static weft_status exchange(int fd, const wf_text *request, wf_text *reply)
{
    char part[16384];
    ssize_t n;
    for (size_t at = 0; at < request->len; at += (size_t)n)
        if ((n = send(fd, request->data + at, request->len - at, MSG_NOSIGNAL)) <= 0)
            return wf_fail(WEFT_ERR_IO, "the server takes no request: %s", strerror(errno));
    while ((n = recv(fd, part, sizeof part, 0)) > 0 && reply->len < REPLY_MAX) wf_text_add(reply, part, (size_t)n);
    if (n < 0) return wf_fail(WEFT_ERR_IO, "the server does not answer: %s", strerror(errno));
    return reply->failed ? WEFT_ERR_NOMEM : WEFT_OK;
}

/* What it says of its models; NULL: the error is set. */
static wf_json *read_reply(const wf_text *reply)
{
    int status = 0;
    const char *text = reply->data ? reply->data : "", *body = strstr(text, "\r\n\r\n");
    if (sscanf(text, "HTTP/1.%*d %d", &status) != 1 || !body)
        return wf_fail(WEFT_ERR_IO, "what answers there is no HTTP server"), NULL;
    body += 4;
    wf_json *v = wf_json_read(body, reply->len - (size_t)(body - text), NULL, NULL);
    if (status == 200 && wf_json_is(wf_json_get(v, "models"), WF_JSON_LIST)) return v;
    const char *said = wf_json_text(wf_json_get(v, "error"));
    if (status == 401) said = "it wants an API key: WEFT_API_KEY gives one";
    wf_fail(WEFT_ERR_IO, "the server answers with status %d: %s", status, said ? said : "it has no /api/ps");
    return wf_json_free(v), NULL;
}

static weft_status ask(const char *host, const char *port, wf_json **out)
{
    const char *key = getenv("WEFT_API_KEY");
    wf_text request = {0}, reply = {0};
    int fd = -1;
    bool v6 = strchr(host, ':');
    if (key && key[strcspn(key, "\r\n")]) return wf_fail(WEFT_ERR_ARG, "WEFT_API_KEY has more than one line");
    wf_text_print(&request, "GET /api/ps HTTP/1.0\r\nHost: %s%s%s:%s\r\n", v6 ? "[" : "", host,
                  v6 ? "]" : "", port);
    if (key && *key) wf_text_print(&request, "Authorization: Bearer %s\r\n", key);
    wf_text_add(&request, "\r\n", 2);
    weft_status s = request.failed ? WEFT_ERR_NOMEM : connect_to(host, port, &fd);
    if (!s) s = exchange(fd, &request, &reply);
    if (fd >= 0) close(fd);
    *out = s ? NULL : read_reply(&reply);
    free(request.data);
    free(reply.data);
    return s ? s : *out ? WEFT_OK : WEFT_ERR_IO;
}

/* ---- what is shown --------------------------------------------------------------------------- */

static uint64_t number_of(const wf_json *model, const char *name)
{
    double v = wf_json_number(wf_json_get(model, name));
    return v > 0 && v < 0x1p63 ? (uint64_t)v : 0;
}

/* "5 minutes"; one that never goes expires a day after it is asked for. */
static void until(const wf_json *model, char *out, size_t cap)
{
    const char *text = wf_json_text(wf_json_get(model, "expires_at"));
    struct tm tm = {0};
    if (!text || !strptime(text, "%Y-%m-%dT%H:%M:%S", &tm)) return wf_copy(out, cap, "");
    double s = difftime(timegm(&tm), time(NULL));
    if (s > 86000) wf_copy(out, cap, "forever");
    else if (s > 120) snprintf(out, cap, "%.0f minutes", s / 60);
    else snprintf(out, cap, "%.0f seconds", s > 0 ? s : 0);
}

static void print_model(const wf_json *m)
{
    char name[512], left[32];
    const char *text = wf_json_text(wf_json_get(m, "name"));
    wf_show(name, sizeof name, text ? text : "");
    until(m, left, sizeof left);
    printf("%-40s %12s %9llu %9llu %9llu  %s\n", name, WF_HUMAN(number_of(m, "size_vram"), true),
           (unsigned long long)number_of(m, "context_length"), (unsigned long long)number_of(m, "running"),
           (unsigned long long)number_of(m, "waiting"), left);
}

static int cmd_ps(const wf_opts *o)
{
    char port[16];
    wf_json *reply = NULL;
    snprintf(port, sizeof port, "%u", wf_opts_has(o, "port") ? o->load.port : 8080);
    weft_status s = ask(o->load.host ? o->load.host : "127.0.0.1", port, &reply);
    if (s) return wf_say_error(s);
    const wf_json *models = wf_json_get(reply, "models");
    if (wf_json_count(models))
        printf("%-40s %12s %9s %9s %9s  %s\n", "name", "memory", "context", "running", "waiting", "stays");
    else wf_note(o, "no model is loaded");
    WF_JSON_EACH(m, models) print_model(m);
    wf_json_free(reply);
    return 0;
}

static const wf_opt rows[] = {
    {0, "host", "HOST", "host of the server (default 127.0.0.1)", WF_OPT_TEXT, AT(load.host)},
    {0, "port", "PORT", "port of the server (default 8080)", WF_OPT_U32, AT(load.port), 1, 65535},
};
static const WF_GROUP(group, "Server", rows);
static const wf_opt_group *const groups[] = {&group, &wf_group_general, NULL};

const wf_command wf_cmd_ps = {
    .name = "ps",
    .usage = "[--host HOST] [--port PORT] [options]",
    .summary = "Lists the models that a running server has loaded: their memory, the sequences that run and wait, and how "
               "long they stay without being used.",
    .more = "The server is one of `weft serve`, or another that has /api/ps. WEFT_API_KEY is\n"
            "its key, if it needs one.\n",
    .groups = groups,
    .run = cmd_ps,
};
