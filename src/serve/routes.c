/* routes: the table of routes, and the responses that need no generation. */
#include "serve/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- state ----------------------------------------------------------------------------------------------- */

static bool health(wf_job *j, json_t **out, wf_text *text)
{
    wf_server *s = j->server;
    struct weft_stats stats = {0};
    (void)text;
    if (atomic_load(&s->stopping)) return wf_refuse(&j->refusal, 503, "", "shutting down");
    if (!atomic_load(&s->loaded)) return wf_refuse(&j->refusal, 503, "", "Loading model");
    weft_engine_stats(s->engine, &stats);
    if (stats.failed)
        return wf_refuse(&j->refusal, 503, "", "the device failed (%s)",
                         weft_status_name(stats.failed));
    *out = json_pack("{s:s}", "status", "ok");
    return true;
}

static bool version(wf_job *j, json_t **out, wf_text *text)
{
    (void)j, (void)text;
    *out = json_pack("{s:s}", "version", weft_version());
    return true;
}

static bool models(wf_job *j, json_t **out, wf_text *text)
{
    const wf_server *s = j->server;
    bool chat = s->p.chat_template || weft_model_info(s->model)->chat_name;
    (void)text;
    *out = json_pack("{s:s,s:[{s:s,s:s,s:I,s:s,s:s,s:i,s:[s,s*]}]}", "object", "list", "data", "id",
                     s->name, "object", "model", "created", (json_int_t)s->started, "owned_by",
                     "weft", "root", s->name, "max_model_len", (int)s->context, "capabilities",
                     "completion", chat ? "chat" : NULL);
    return true;
}

static bool metrics(wf_job *j, json_t **out, wf_text *text)
{
    (void)out;
    wf_metrics_print(j->server, text);
    return true;
}

/* ---- tokens ---------------------------------------------------------------------------------------------- */

static json_t *pieces(const wf_server *s, const int32_t *ids, size_t n, bool objects)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        char buf[1024];
        size_t len = WF_MIN(weft_token_text(s->model, ids[i], 0, buf, sizeof buf), sizeof buf);
        json_t *piece = wf_json_string(buf, len);
        json_array_append_new(list, objects ? json_pack("{s:i,s:o}", "id", ids[i], "piece", piece)
                                            : piece);
    }
    return list;
}

static json_t *id_list(const int32_t *ids, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer(ids[i]));
    return list;
}

/* A boolean field; sets *ok to false if it is something else. */
static bool flag(wf_job *j, const json_t *body, const char *name, bool otherwise, bool *ok)
{
    json_t *v = json_object_get(body, name);
    if (!v || json_is_null(v)) return otherwise;
    if (!json_is_boolean(v))
        *ok = wf_refuse(&j->refusal, 400, name, "%s must be true or false", name);
    return json_is_true(v);
}

static bool tokenize_body(wf_job *j, const json_t *body, json_t **out)
{
    wf_server *s = j->server;
    bool ok = true;
    json_t *v = json_object_get(body, "content");
    if (!v) v = json_object_get(body, "prompt");
    if (!json_is_string(v))
        return wf_refuse(&j->refusal, 400, "prompt", "prompt (or content) must be a string");
    /* the name in llama.cpp, with default false, and in vLLM, with default true */
    bool special = flag(j, body, "add_special", json_object_get(body, "content") == NULL, &ok);
    special = flag(j, body, "add_special_tokens", special, &ok);
    bool parse = flag(j, body, "parse_special", true, &ok);
    bool objects = flag(j, body, "with_pieces", false, &ok),
         strings = flag(j, body, "return_token_strs", false, &ok);
    if (!ok) return false;
    int32_t *ids = NULL;
    size_t n = 0;
    unsigned flags =
        (special ? 0 : WEFT_TEXT_NO_ADD_SPECIAL) | (parse ? 0 : WEFT_TEXT_NO_PARSE_SPECIAL);
    if (weft_tokenize(s->model, json_string_value(v), json_string_length(v), flags, &ids, &n))
        return wf_refuse(&j->refusal, 400, "prompt", "%s", weft_last_error());
    *out = json_pack("{s:o,s:I,s:i}", "tokens", objects ? pieces(s, ids, n, true) : id_list(ids, n),
                     "count", (json_int_t)n, "max_model_len", (int)s->context);
    if (strings) json_object_set_new(*out, "token_strs", pieces(s, ids, n, false));
    weft_free(ids);
    return true;
}

static bool detokenize_body(wf_job *j, const json_t *body, json_t **out)
{
    json_t *v = json_object_get(body, "tokens");
    if (!json_is_array(v))
        return wf_refuse(&j->refusal, 400, "tokens", "tokens must be a list of token ids");
    size_t n = json_array_size(v), len = 0;
    int32_t *ids = wf_calloc(n + 1, sizeof *ids);
    char *text = NULL;
    bool ok = ids || wf_refuse(&j->refusal, 500, "", "out of memory");
    for (size_t i = 0; ok && i < n; i++) {
        json_t *id = json_array_get(v, i);
        json_int_t x = json_integer_value(id);
        if (!json_is_integer(id) || x < 0 || x > INT32_MAX)
            ok = wf_refuse(&j->refusal, 400, "tokens", "tokens[%zu] is no token id", i);
        else
            ids[i] = (int32_t)x;
    }
    if (ok && weft_detokenize(j->server->model, ids, n, WEFT_TEXT_DEFAULT, &text, &len))
        ok = wf_refuse(&j->refusal, 400, "tokens", "%s", weft_last_error());
    if (ok)
        *out = json_pack("{s:o?,s:o?}", "content", wf_json_string(text, len), "prompt",
                         wf_json_string(text, len));
    weft_free(text);
    free(ids);
    return ok;
}

static bool with_body(wf_job *j, json_t **out, bool (*answer)(wf_job *, const json_t *, json_t **))
{
    json_t *body = wf_json_parse(j->body.data, j->body.len, &j->refusal);
    bool ok = body && answer(j, body, out);
    json_decref(body);
    return ok;
}

static bool tokenize(wf_job *j, json_t **out, wf_text *text)
{
    (void)text;
    return with_body(j, out, tokenize_body);
}

static bool detokenize(wf_job *j, json_t **out, wf_text *text)
{
    (void)text;
    return with_body(j, out, detokenize_body);
}

/* ---- table ----------------------------------------------------------------------------------------------- */

static const wf_route routes[] = {
    {.path = "/",
     .method = "GET",
     .open = true,
     .early = true,
     .answer = wf_webui_print,
     .content_type = "text/html; charset=utf-8",
     .headers = wf_webui_headers},
    {.path = "/health", .method = "GET", .open = true, .early = true, .answer = health},
    {.path = "/v1/health", .method = "GET", .open = true, .early = true, .answer = health},
    {.path = "/version", .method = "GET", .early = true, .answer = version},
    {.path = "/metrics",
     .method = "GET",
     .answer = metrics,
     .content_type = "text/plain; version=0.0.4; charset=utf-8"},
    {.path = "/v1/models", .method = "GET", .answer = models},
    {.path = "/v1/completions", .method = "POST"},
    {.path = "/v1/chat/completions", .method = "POST", .chat = true},
    {.path = "/tokenize", .method = "POST", .answer = tokenize},
    {.path = "/detokenize", .method = "POST", .answer = detokenize},
};

const wf_route *wf_route_find(const char *path, const char *method, wf_http_error *r)
{
    if (!strcmp(method, "HEAD")) method = "GET";
    for (size_t i = 0; i < WF_LEN(routes); i++) {
        if (strcmp(routes[i].path, path)) continue;
        if (!strcmp(routes[i].method, method)) return &routes[i];
        wf_refuse(r, 405, "", "%s does not take %.10s, only %s", path, method, routes[i].method);
        return NULL;
    }
    wf_refuse(r, 404, "", "there is no %.100s here", path);
    return NULL;
}
