/* routes: the table of routes, and the responses that need neither a body nor generation. */
#include "serve/api/embed.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- state ----------------------------------------------------------------------------------------------- */

/* What is loaded, and how far what is being loaded is. */
static void put_states(wf_server *s, wf_text *out)
{
    wf_served *m = NULL;
    wf_json_print(out, ",'models':[");
    while ((m = wf_served_next(s, m))) {
        wf_json_comma(out);
        wf_json_print(out, "{'id':%s,", m->name);
        wf_served_put_status(m, out);
        wf_text_add(out, "}", 1);
    }
    wf_text_add(out, "]", 1);
}

static bool health_answer(wf_job *j, wf_text *out)
{
    wf_server *s = j->server;
    struct weft_stats stats = {0};
    bool loaded = atomic_load(&s->loaded);
    if (loaded && !s->models.several) weft_engine_stats(s->models.usual->engine, &stats);
    if (stats.failed) /* first: the server ends for this reason */
        return wf_refuse(&j->refusal, 503, "", "the device failed (%s)", weft_status_name(stats.failed));
    if (atomic_load(&s->stopping)) return wf_refuse(&j->refusal, 503, "", "shutting down");
    if (!loaded) return wf_refuse(&j->refusal, 503, "", "Loading model");
    wf_json_print(out, "{'status':'ok'");
    if (s->models.several && !s->n_keys) put_states(s, out); /* for everybody to see */
    wf_text_add(out, "}", 1);
    return true;
}

static bool version_answer(wf_job *j, wf_text *out)
{
    (void)j;
    wf_json_print(out, "{'version':%s}", weft_version());
    return true;
}

/* What is known of one that is loaded. With six digits: 0.95, not 0.949999988. */
static void put_loaded(const wf_served *s, wf_text *out)
{
    const struct weft_sampling *d = &s->sampling;
    wf_json_print(out, ",'root':%s,'max_model_len':%u,", s->name, s->context);
    if (s->pooling) wf_json_print(out, "'capabilities':[%s],", wf_served_ranks(s) ? "score" : "embedding");
    else
        wf_json_print(out, s->chat.usable ? "'capabilities':['completion','chat']," : "'capabilities':['completion'],");
    wf_json_print(out, "'default_sampling':{'temperature':%.6g,'top_k':%d,'top_p':%.6g,'min_p':%.6g,",
                  (double)d->temperature, d->top_k, (double)d->top_p, (double)d->min_p);
    wf_json_print(
        out, "'repetition_penalty':%.6g,'repeat_last_n':%d,'presence_penalty':%.6g,'frequency_penalty':%.6g}",
        (double)d->repeat_penalty, d->repeat_last_n, (double)d->presence_penalty, (double)d->frequency_penalty);
}

static void put_model_card(wf_served *m, const char *name, wf_text *out)
{
    bool ready = wf_served_hold(m);
    wf_json_print(out, "{'id':%s,'object':'model','created':%lld,'owned_by':'weft'", name,
                  (long long)(m->file ? m->changed : m->server->started));
    if (ready) put_loaded(m, out), wf_served_drop(m, false);
    if (m->file) wf_text_add(out, ",", 1), wf_served_put_status(m, out);
    wf_text_add(out, "}", 1);
}

static bool models_answer(wf_job *j, wf_text *out)
{
    wf_served *m = NULL;
    wf_models_scan(j->server);
    wf_json_print(out, "{'object':'list','data':[");
    while ((m = wf_served_next(j->server, m))) {
        for (size_t i = 0; i < m->n_names; i++) wf_json_comma(out), put_model_card(m, m->names[i], out);
        wf_adapters_put(m, NULL, out);
    }
    wf_text_add(out, "]}", 2);
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

static bool model_answer(wf_job *j, wf_text *out)
{
    char name[sizeof j->path], adapter[128];
    size_t n = 0;
    for (const char *p = j->path + strlen(j->route->path); *p;) name[n++] = (char)next_byte(&p);
    name[n] = 0;
    wf_served *m = n == strlen(name) ? wf_served_named(j->server, name) : NULL, *usual = j->server->models.usual;
    if (m) return put_model_card(m, name, out), true;
    if (!j->server->models.several && usual && wf_adapter_here(usual, name, adapter)) /* the only model stays */
        return wf_adapters_put(usual, adapter, out), true;
    wf_refuse(&j->refusal, 404, "model", "there is no such model; this server has %s%s%s", usual ? "'" : "",
              usual ? usual->name : "those of /v1/models", usual ? "'" : "");
    j->refusal.code = "model_not_found";
    return false;
}

static bool metrics_answer(wf_job *j, wf_text *out)
{
    wf_metrics_print(j->server, out);
    return true;
}

/* ---- table ----------------------------------------------------------------------------------------------- */

static const wf_route routes[] = {
    {.path = "/", .method = "GET", .open = true, .early = true, .answer = wf_webui_print,
     .content_type = "text/html; charset=utf-8", .fields = wf_webui_fields},
    {.path = "/health", .method = "GET", .open = true, .early = true, .answer = health_answer},
    {.path = "/v1/health", .method = "GET", .open = true, .early = true, .answer = health_answer},
    {.path = "/version", .method = "GET", .early = true, .answer = version_answer},
    {.path = "/metrics", .method = "GET", .answer = metrics_answer,
     .content_type = "text/plain; version=0.0.4; charset=utf-8"},
    {.path = "/v1/models", .method = "GET", .answer = models_answer},
    {.path = "/models", .method = "GET", .answer = models_answer},
    {.path = "/models/load", .method = "POST", .any_model = true, .read = wf_models_load_read,
     .answer = wf_models_answer},
    {.path = "/models/unload", .method = "POST", .any_model = true, .read = wf_models_unload_read,
     .answer = wf_models_answer},
    {.path = "/v1/load_lora_adapter", .method = "POST", .read = wf_adapter_load_read, .answer = wf_adapter_load_answer,
     .content_type = "text/plain; charset=utf-8"},
    {.path = "/v1/unload_lora_adapter", .method = "POST", .read = wf_adapter_unload_read,
     .answer = wf_adapter_unload_answer, .content_type = "text/plain; charset=utf-8"},
    {.path = "/v1/models/", .method = "GET", .prefix = true, .answer = model_answer},
    {.path = "/v1/completions", .method = "POST", .read = wf_params_read, .api = &wf_api_openai},
    {.path = "/v1/chat/completions", .method = "POST", .read = wf_params_read, .chat = true, .api = &wf_api_openai},
    {.path = "/v1/embeddings", .method = "POST", .read = wf_embed_read, .api = &wf_api_embeddings},
    {.path = "/v1/score", .method = "POST", .read = wf_score_read, .api = &wf_api_score},
    {.path = "/v1/rerank", .method = "POST", .read = wf_rerank_read, .api = &wf_api_rerank},
    {.path = "/rerank", .method = "POST", .read = wf_rerank_read, .api = &wf_api_rerank},
    {.path = "/v1/messages", .method = "POST", .read = wf_params_read, .chat = true, .api = &wf_api_anthropic},
    {.path = "/v1/messages/count_tokens", .method = "POST", .read = wf_params_count, .answer = wf_anthropic_count,
     .chat = true, .api = &wf_api_anthropic},
    {.path = "/v1/responses", .method = "POST", .read = wf_params_read, .chat = true, .api = &wf_api_responses},
    {.path = "/api/chat", .method = "POST", .read = wf_params_read, .chat = true, .api = &wf_api_ollama},
    {.path = "/api/generate", .method = "POST", .read = wf_params_read, .api = &wf_api_ollama},
    {.path = "/api/embed", .method = "POST", .read = wf_ollama_embed_read, .api = &wf_api_ollama_embed},
    {.path = "/api/embeddings", .method = "POST", .read = wf_ollama_embed_read, .api = &wf_api_ollama_embed},
    {.path = "/api/show", .method = "POST", .file_only = true, .read = wf_ollama_show_read, .answer = wf_ollama_show,
     .api = &wf_api_ollama},
    {.path = "/api/tags", .method = "GET", .answer = wf_ollama_tags, .api = &wf_api_ollama},
    {.path = "/api/ps", .method = "GET", .answer = wf_ollama_ps, .api = &wf_api_ollama},
    {.path = "/api/version", .method = "GET", .early = true, .answer = version_answer, .api = &wf_api_ollama},
    {.path = "/infill", .method = "POST", .read = wf_params_read, .api = &wf_api_infill},
    {.path = "/props", .method = "GET", .answer = wf_llama_props},
    {.path = "/apply-template", .method = "POST", .read = wf_template_read, .answer = wf_detokenize_answer,
     .content_type = "application/json"},
    {.path = "/tokenize", .method = "POST", .read = wf_tokenize_read, .stream = wf_tokenize_fill},
    {.path = "/detokenize", .method = "POST", .read = wf_detokenize_read, .answer = wf_detokenize_answer,
     .content_type = "application/json"},
};

_Static_assert(WF_LEN(routes) < WF_MAX_ROUTES, "metrics count the requests of each");

const wf_route *wf_route_at(size_t i) { return i < WF_LEN(routes) ? &routes[i] : NULL; }

/* Clients leave /v1 out, have it twice, or end with a slash: the path ends as that of a route does, or the other way
 * round. NULL: none. */
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
    char all[480];
    size_t len = 0;
    const char *near = meant(path);
    bool base = near && !strncmp(near, "/v1/", 4);
    if (near)
        return wf_refuse(r, 404, "", "there is no %.100s here; did you mean %s?%s", path, near,
                         !base                              ? ""
                         : strncmp(near, "/v1/messages", 12) ? " The base URL of OpenAI's clients ends with /v1"
                                                             : " The base URL of Anthropic's clients ends without /v1");
    for (size_t i = 0; i < WF_LEN(routes) && len < sizeof all; i++)
        if (!routes[i].prefix)
            len += (size_t)snprintf(all + len, sizeof all - len, "%s%s", len ? ", " : "", routes[i].path);
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
