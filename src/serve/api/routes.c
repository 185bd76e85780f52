/* routes: the table of routes, and the responses that need neither a body nor generation. */
#include "serve/api/internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- state ----------------------------------------------------------------------------------------------- */

static bool health_answer(wf_job *j, json_t **out, wf_text *text)
{
    wf_server *s = j->server;
    struct weft_stats stats = {0};
    (void)text;
    bool loaded = atomic_load(&s->loaded);
    if (loaded) weft_engine_stats(s->engine, &stats);
    if (stats.failed) /* first: the server ends for this reason */
        return wf_refuse(&j->refusal, 503, "", "the device failed (%s)", weft_status_name(stats.failed));
    if (atomic_load(&s->stopping)) return wf_refuse(&j->refusal, 503, "", "shutting down");
    if (!loaded) return wf_refuse(&j->refusal, 503, "", "Loading model");
    *out = json_pack("{s:s}", "status", "ok");
    return true;
}

static bool version_answer(wf_job *j, json_t **out, wf_text *text)
{
    (void)j, (void)text;
    *out = json_pack("{s:s}", "version", weft_version());
    return true;
}

/* 0.95, not 0.949999988. */
static json_t *short_real(float v)
{
    char text[32];
    snprintf(text, sizeof text, "%g", (double)v);
    return json_real(strtod(text, NULL));
}

static json_t *default_sampling(const wf_server *s)
{
    const struct weft_sampling *d = &s->sampling;
    return json_pack("{s:o,s:i,s:o,s:o,s:o,s:i,s:o,s:o}", "temperature", short_real(d->temperature), "top_k", d->top_k, "top_p", short_real(d->top_p), "min_p",
                     short_real(d->min_p), "repetition_penalty", short_real(d->repeat_penalty), "repeat_last_n", d->repeat_last_n, "presence_penalty", short_real(d->presence_penalty),
                     "frequency_penalty", short_real(d->frequency_penalty));
}

static json_t *model_card(const wf_server *s)
{
    json_t *can = s->chat.usable ? json_pack("[s,s]", "completion", "chat") : json_pack("[s]", "completion");
    return json_pack("{s:s,s:s,s:I,s:s,s:s,s:i,s:o,s:o}", "id", s->name, "object", "model", "created", (json_int_t)s->started, "owned_by", "weft", "root",
                     s->name, "max_model_len", (int)s->context, "capabilities", can, "default_sampling", default_sampling(s));
}

static bool models_answer(wf_job *j, json_t **out, wf_text *text)
{
    (void)text;
    *out = json_pack("{s:s,s:[o]}", "object", "list", "data", model_card(j->server));
    return true;
}

/* The byte at *p of a path with escapes; *p advances. */
static int next_byte(const char **p)
{
    const char *at = *p;
    bool escaped = at[0] == '%' && isxdigit((unsigned char)at[1]) && isxdigit((unsigned char)at[2]);
    char digits[3] = {escaped ? at[1] : '0', escaped ? at[2] : '0'};
    *p += escaped ? 3 : 1;
    return escaped ? (int)strtol(digits, NULL, 16) : (unsigned char)at[0];
}

static bool model_answer(wf_job *j, json_t **out, wf_text *text)
{
    const char *p = j->path + strlen(j->route->path), *name = j->server->name;
    bool same = true;
    (void)text;
    for (; same && *p && *name; name++) same = next_byte(&p) == (unsigned char)*name;
    *out = same && !*p && !*name ? model_card(j->server) : NULL;
    if (same && !*p && !*name) return true;
    wf_refuse(&j->refusal, 404, "model", "there is no such model; this server has '%s'", j->server->name);
    j->refusal.code = "model_not_found";
    return false;
}

static bool metrics_answer(wf_job *j, json_t **out, wf_text *text)
{
    (void)out;
    wf_metrics_print(j->server, text);
    return true;
}

/* ---- table ----------------------------------------------------------------------------------------------- */

static const wf_route routes[] = {
    {.path = "/",
     .method = "GET",
     .open = true,
     .early = true,
     .answer = wf_webui_print,
     .content_type = "text/html; charset=utf-8",
     .fields = wf_webui_fields},
    {.path = "/health", .method = "GET", .open = true, .early = true, .answer = health_answer},
    {.path = "/v1/health", .method = "GET", .open = true, .early = true, .answer = health_answer},
    {.path = "/version", .method = "GET", .early = true, .answer = version_answer},
    {.path = "/metrics",
     .method = "GET",
     .answer = metrics_answer,
     .content_type = "text/plain; version=0.0.4; charset=utf-8"},
    {.path = "/v1/models", .method = "GET", .answer = models_answer},
    {.path = "/v1/models/", .method = "GET", .prefix = true, .answer = model_answer},
    {.path = "/v1/completions", .method = "POST", .read = wf_params_read},
    {.path = "/v1/chat/completions", .method = "POST", .read = wf_params_read, .chat = true},
    {.path = "/tokenize", .method = "POST", .read = wf_tokenize_read, .stream = wf_tokenize_fill},
    {.path = "/detokenize",
     .method = "POST",
     .read = wf_detokenize_read,
     .answer = wf_detokenize_answer,
     .content_type = "application/json"},
};

/* Clients leave /v1 out, have it twice, or end with a slash: the path ends as that of a route does, or the other way round. NULL: none. */
static const char *meant(const char *path)
{
    size_t len = strlen(path);
    while (len && path[len - 1] == '/') len--;
    for (size_t i = 0; i < WF_LEN(routes) && len; i++) {
        const char *own = routes[i].path;
        size_t n = strlen(own), both = WF_MIN(n, len);
        if (n > 1 && !routes[i].prefix && !strncmp(own + n - both, path + len - both, both)) return own;
    }
    return NULL;
}

static bool no_route(const char *path, wf_http_error *r)
{
    char all[200];
    size_t len = 0;
    const char *near = meant(path);
    bool base = near && !strncmp(near, "/v1/", 4);
    if (near) return wf_refuse(r, 404, "", "there is no %.100s here; did you mean %s?%s", path, near, base ? " The base URL of OpenAI's clients ends with /v1" : "");
    for (size_t i = 0; i < WF_LEN(routes) && len < sizeof all; i++)
        if (!routes[i].prefix) len += (size_t)snprintf(all + len, sizeof all - len, "%s%s", len ? ", " : "", routes[i].path);
    return wf_refuse(r, 404, "", "there is no %.100s here, only %s", path, all);
}

const wf_route *wf_route_find(const char *path, const char *method, wf_http_error *r)
{
    const char *own = strcmp(method, "HEAD") ? method : "GET"; /* the HTTP server leaves out the body */
    for (size_t i = 0; i < WF_LEN(routes); i++) {
        size_t n = strlen(routes[i].path) + !routes[i].prefix; /* with the end of the text */
        if (strncmp(routes[i].path, path, n)) continue;
        if (!strcmp(routes[i].method, own)) return &routes[i];
        wf_refuse(r, 405, "", "%s does not take %.10s, only %s", path, method, routes[i].method);
        r->allow = strcmp(routes[i].method, "GET") ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
        return NULL;
    }
    no_route(path, r);
    return NULL;
}
