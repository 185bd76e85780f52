/* target: the server under test: its address, the headers of each request, its model's name and valid token ids. Name
 * and ids are queried; a server that does not support that can still be measured. */
#include "loadgen/internal.h"

#include <stdlib.h>
#include <string.h>

#define QUERY_S     10          /* timeout of a query before the load */
#define QUERY_BYTES (16u << 20) /* largest response to it */
#define CONNECT_S 30
#define FEW_IDS   8 /* fewer are not enough to sample from */

/* ---- queries ------------------------------------------------------------------------------ */

static size_t on_bytes(char *bytes, size_t size, size_t n, void *user)
{
    wf_text *t = user;
    if (t->len + n * size > QUERY_BYTES) return 0;
    wf_text_add(t, bytes, n * size);
    return t->failed ? 0 : n * size;
}

/* The URL of a path below base, for free(); NULL: out of memory. */
static char *join_url(const char *base, const char *path)
{
    size_t n = strlen(base);
    while (n && base[n - 1] == '/') n--;
    char *url = wf_calloc(n + strlen(path) + 2, 1);
    if (url) sprintf(url, "%.*s%s%s", (int)n, base, *path == '/' ? "" : "/", path);
    return url;
}

static bool is_unreachable(CURLcode c)
{
    return c == CURLE_COULDNT_CONNECT || c == CURLE_COULDNT_RESOLVE_HOST ||
           c == CURLE_URL_MALFORMAT || c == CURLE_UNSUPPORTED_PROTOCOL;
}

static bool wants_key(long status) { return status == 401 || status == 403; }

bool wf_target_refuses(long status) { return wants_key(status) || status == 404 || status == 405; }

weft_status wf_target_refused(const wf_target *t, const char *url, long status, const char *text)
{
    const char *key =
        t->p->key ? "the server does not take the API key: OPENAI_API_KEY or --api-key-file FILE gives another one"
                  : "the server wants an API key, which OPENAI_API_KEY or --api-key-file FILE gives";
    if (wants_key(status)) return wf_fail(WEFT_ERR_IO, "%s: %s; %s", url, text, key);
    return wf_fail(WEFT_ERR_IO, "%s: %s; --base-url and --endpoint set the path, and -m the model (now %s)", url, text,
                   t->model ? t->model : "none");
}

/* Returns the JSON body of a 200 response; NULL: anything else. body NULL: GET. */
static wf_json *query(wf_target *t, const char *path, const char *body)
{
    char *url = join_url(t->p->base_url, path), error[CURL_ERROR_SIZE] = "";
    CURL *c = url && !t->unreachable[0] ? curl_easy_init() : NULL;
    wf_text b = {0};
    wf_json *out = NULL;
    long status = 0;
    if (c) {
        wf_target_setup(t, c, url);
        curl_easy_setopt(c, CURLOPT_TIMEOUT, (long)QUERY_S);
        curl_easy_setopt(c, CURLOPT_ERRORBUFFER, error);
        curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_bytes);
        curl_easy_setopt(c, CURLOPT_WRITEDATA, &b);
        if (body) curl_easy_setopt(c, CURLOPT_POSTFIELDS, body);
        CURLcode rc = curl_easy_perform(c);
        curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
        t->status = rc ? 0 : status;
        if (is_unreachable(rc)) wf_copy(t->unreachable, sizeof t->unreachable, error);
        if (!rc && status == 200 && b.len) out = wf_json_read(b.data, b.len, NULL, NULL);
    }
    curl_easy_cleanup(c);
    free(b.data);
    free(url);
    return out;
}

/* ---- its model ---------------------------------------------------------------------------- */

static weft_status find_model(wf_target *t)
{
    wf_json *list = t->p->model ? NULL : query(t, "/v1/models", NULL);
    if (wants_key(t->status))
        return wf_target_refused(t, "/v1/models", t->status, t->status == 401 ? "HTTP 401" : "HTTP 403");
    const char *name =
        t->p->model ? t->p->model : wf_json_text(wf_json_get(wf_json_at(wf_json_get(list, "data"), 0), "id"));
    t->model = name ? wf_strdup(name) : NULL;
    wf_json_free(list);
    return name && !t->model ? WEFT_ERR_NOMEM : WEFT_OK;
}

/* ---- its tokens --------------------------------------------------------------------------- */

/* Returns the reply, whose "tokens" are them. llama.cpp reads content and add_special, vLLM prompt and
 * add_special_tokens, weft both. A server that fails once is not queried again: each failure may take QUERY_S, and
 * there may be many texts. */
static wf_json *tokenize(wf_target *t, const char *text)
{
    wf_text body = {0};
    if (t->no_tokenize || (t->p->stop && t->p->stop())) return NULL;
    wf_json_print(&body, "{'prompt':%s,'content':%s,'add_special':false,'add_special_tokens':false", text, text);
    if (t->model) wf_json_print(&body, ",'model':%s", t->model);
    wf_json_print(&body, "}");
    wf_json *reply = body.failed ? NULL : query(t, "/tokenize", body.data);
    t->no_tokenize = !wf_json_get(reply, "tokens");
    free(body.data);
    return reply;
}

uint32_t wf_target_count(void *user, const char *text)
{
    wf_json *reply = tokenize(user, text);
    uint32_t n = (uint32_t)wf_json_count(wf_json_get(reply, "tokens"));
    wf_json_free(reply);
    return n;
}

static bool has(const int32_t *list, size_t n, int32_t v)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == v) return true;
    return false;
}

/* Collects the ids of common words. They are valid in any vocabulary, whatever its size. */
static weft_status find_ids(wf_target *t)
{
    char text[8 * WF_PROMPT_WORDS] = "";
    for (size_t i = 0, at = 0; i < WF_PROMPT_WORDS; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, " %s", wf_prompt_words[i]);
    wf_json *reply = tokenize(t, text);
    const wf_json *ids = wf_json_get(reply, "tokens");
    size_t n = wf_json_count(ids);
    t->pool = wf_calloc(n, sizeof *t->pool);
    for (size_t i = 0; t->pool && i < n; i++) {
        int64_t id = wf_json_int(wf_json_at(ids, i));
        bool fits = wf_json_is(wf_json_at(ids, i), WF_JSON_INT) && id >= 0 && id <= INT32_MAX;
        if (fits && !has(t->pool, t->n_pool, (int32_t)id)) t->pool[t->n_pool++] = (int32_t)id;
    }
    wf_json_free(reply);
    if (!t->pool) return WEFT_ERR_NOMEM;
    if (t->n_pool >= FEW_IDS) return WEFT_OK;
    t->n_pool = 0;
    free(t->pool);
    t->pool = NULL;
    if (t->p->prompts != WF_PROMPTS_IDS || t->unreachable[0]) return WEFT_OK;
    return wf_fail(WEFT_ERR_UNSUPPORTED, "the server's /tokenize returns no token ids: use WEFT_RANDOM_PROMPTS=words");
}

/* ---- headers of each request -------------------------------------------------------------- */

static bool add_header(wf_target *t, const char *name, const char *value)
{
    wf_text line = {0};
    wf_text_add(&line, name, strlen(name));
    wf_text_add(&line, value, strlen(value));
    struct curl_slist *more = line.failed ? NULL : curl_slist_append(t->headers, line.data);
    if (more) t->headers = more;
    free(line.data);
    return more != NULL;
}

static weft_status read_extra(wf_target *t)
{
    wf_json_error e;
    if (!t->p->extra_body) return WEFT_OK;
    t->extra = wf_json_read(t->p->extra_body, strlen(t->p->extra_body), NULL, &e);
    if (wf_json_is(t->extra, WF_JSON_OBJECT)) return WEFT_OK;
    return wf_fail(WEFT_ERR_ARG, "--extra-body is not a JSON object: %s", t->extra ? t->p->extra_body : e.text);
}

/* Ignores proxies from the environment. */
static bool is_loopback(const char *url)
{
    static const char *const names[] = {"://127.", "://localhost", "://[::1]"};
    for (size_t i = 0; i < WF_LEN(names); i++)
        if (strstr(url, names[i])) return true;
    return false;
}

void wf_target_setup(const wf_target *t, CURL *c, const char *url)
{
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, t->headers);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)WF_MIN(t->p->timeout_s, CONNECT_S));
    curl_easy_setopt(c, CURLOPT_TIMEOUT, (long)t->p->timeout_s);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "weft-bench/" WF_VERSION);
    if (is_loopback(url)) curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
    if (t->p->insecure)
        curl_easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 0L), curl_easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 0L);
}

weft_status wf_target_open(const wf_client_params *p, wf_target *t)
{
    *t = (wf_target){.p = p};
    if (!(t->url = join_url(p->base_url, p->endpoint))) return WEFT_ERR_NOMEM;
    WF_TRY(read_extra(t));
    bool ok = add_header(t, "Content-Type: application/json", "") &&
              add_header(t, "Expect:", ""); /* do not wait for 100 Continue */
    if (ok && t->p->key) ok = add_header(t, "Authorization: Bearer ", t->p->key);
    for (size_t i = 0; i < t->p->n_headers && ok; i++) ok = add_header(t, t->p->headers[i], "");
    WF_TRY(ok ? WEFT_OK : wf_fail(WEFT_ERR_NOMEM, "out of memory for headers"));
    WF_TRY(find_model(t));
    bool ids = p->dataset != WF_DATASET_CUSTOM && p->prompts != WF_PROMPTS_WORDS && !p->chat;
    if (ids) return find_ids(t);
    if (p->model) wf_json_free(query(t, "/health", NULL)); /* nobody has been asked yet: is there anybody? */
    return WEFT_OK;
}

void wf_target_close(wf_target *t)
{
    curl_slist_free_all(t->headers);
    wf_json_free(t->extra);
    free(t->url);
    free(t->model);
    free(t->pool);
}
