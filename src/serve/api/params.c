/* params: from the JSON of a request to the engine's parameters: lists, prompts, and what must fit. fields.c has the
 * fields that are one value, messages.c the conversation. */
#include "serve/api/embed.h"
#include "answers/answer.h"
#include "base/blake2b.h"
#include "base/options.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH       64
#define MAX_VALUES      (1u << 20) /* names and values */
#define MAX_STOPS       64
#define MAX_STOP_BYTES  1024
#define MAX_STOP_TOKENS 256
#define MAX_BIASES      1024

/* ---- bodies ---------------------------------------------------------------------------------------------- */

static wf_json *parse_body(const char *text, size_t len, unsigned flags, wf_http_error *r)
{
    wf_json_error e;
    if (!len) return wf_refuse(r, 400, "", "the request has no body: send a JSON object"), NULL;
    const wf_json_rules rules = {.flags = flags, .depth = MAX_DEPTH, .values = MAX_VALUES};
    wf_json *body = wf_json_read(text, len, &rules, &e);
    if (wf_json_is(body, WF_JSON_OBJECT)) return body;
    if (body) wf_refuse(r, 400, "", "the body must be a JSON object");
    else if (e.fault == WF_JSON_NO_MEMORY) wf_refuse(r, 500, "", "out of memory for the request");
    else if (e.fault == WF_JSON_TOO_DEEP || e.fault == WF_JSON_TOO_MANY)
        wf_refuse(r, 400, "", "the JSON is too large: %s", e.text);
    else if (e.fault == WF_JSON_TOO_LARGE)
        wf_refuse(r, 400, e.name, "%s holds a number that is too large (line %zu, column %zu)",
                  *e.name ? e.name : "the body", e.line, e.column);
    else if (e.fault == WF_JSON_ZERO)
        wf_refuse(r, 400, e.name, "%s has a zero byte (\\u0000), which no text here can have (line %zu, column %zu)",
                  *e.name ? e.name : "the body", e.line, e.column);
    else if (flags & WF_JSON_UNIQUE) /* what we wrote is good but for this */
        wf_refuse(r, 400, "", "a field is sent twice, by two names or in two objects (%s): send it once", e.text);
    else wf_refuse(r, 400, "", "the body is not valid JSON: %s (line %zu, column %zu)", e.text, e.line, e.column);
    wf_json_free(body);
    return NULL;
}

wf_json *wf_body_parse(const char *text, size_t len, wf_http_error *r) { return parse_body(text, len, 0, r); }

/* ---- lists ----------------------------------------------------------------------------------------------- */

static bool read_stop(const wf_json *body, wf_params *p, wf_http_error *r)
{
    const wf_json *v = wf_field(body, "stop");
    size_t n = wf_json_is(v, WF_JSON_LIST) ? wf_json_count(v) : v != NULL;
    if (v && !wf_json_is(v, WF_JSON_LIST) && !wf_json_is(v, WF_JSON_STRING))
        return wf_refuse(r, 400, "stop", "stop must be a string or a list of strings");
    if (n > MAX_STOPS) return wf_refuse(r, 400, "stop", "stop has %zu strings, at most %d are possible", n, MAX_STOPS);
    if (n && !(p->stop = wf_calloc(n, sizeof *p->stop))) return wf_refuse(r, 500, "", "out of memory");
    for (; p->n_stop < n; p->n_stop++) {
        const wf_json *s = wf_json_is(v, WF_JSON_LIST) ? wf_json_at(v, p->n_stop) : v;
        if (!wf_json_is(s, WF_JSON_STRING))
            return wf_refuse(r, 400, "stop", "stop must be a string or a list of strings");
        if (!wf_json_bytes(s)) return wf_refuse(r, 400, "stop", "stop holds an empty string");
        if (wf_json_bytes(s) > MAX_STOP_BYTES)
            return wf_refuse(r, 400, "stop", "stop holds a string of more than %d bytes", MAX_STOP_BYTES);
        if (!(p->stop[p->n_stop] = wf_strdup(wf_json_text(s)))) return wf_refuse(r, 500, "", "out of memory");
    }
    return true;
}

static bool read_id(const wf_served *s, const wf_json *v, const char *name, int32_t *out, wf_http_error *r)
{
    uint32_t n_vocab = weft_model_info(s->model)->n_vocab;
    double id = wf_json_number(v);
    if (!wf_is_whole(v)) return wf_refuse(r, 400, name, "%s must hold token ids, which are whole numbers", name);
    if (!(id >= 0 && id < n_vocab))
        return wf_refuse(r, 400, name, "%s holds the token id %.15g; the vocabulary has 0 to %u", name, id,
                         n_vocab - 1);
    *out = (int32_t)id;
    return true;
}

bool wf_ids_read(const wf_served *s, const wf_json *v, const char *name, size_t max, int32_t **out, size_t *n,
                 wf_http_error *r)
{
    size_t count = wf_json_count(v);
    if (!wf_json_is(v, WF_JSON_LIST)) return wf_refuse(r, 400, name, "%s must be a list of token ids", name);
    if (count > max) return wf_refuse(r, 400, name, "%s has %zu token ids, at most %zu are possible", name, count, max);
    if (!(*out = wf_calloc(count + 1, sizeof **out))) return wf_refuse(r, 500, "", "out of memory");
    for (*n = 0; *n < count; ++*n)
        if (!read_id(s, wf_json_at(v, *n), name, *out + *n, r)) return false;
    return true;
}

/* Before the work. */
static bool check_bytes(const wf_served *s, size_t len, const char *name, wf_http_error *r)
{
    uint64_t most;
    if (!wf_exceeds_context(s->model, s->context, len, &most)) return true;
    r->code = "context_length_exceeded";
    return wf_refuse(r, 400, name, "%s has %zu bytes, but at most %llu fit the context of %u tokens", name, len,
                     (unsigned long long)most, s->context);
}

static bool add_bias(const wf_json *v, int32_t id, wf_params *p, wf_http_error *r)
{
    double bias = wf_json_number(v);
    if (!wf_json_is_number(v) || !(bias >= -100 && bias <= 100))
        return wf_refuse(r, 400, "logit_bias", "logit_bias of token %d must be a number from -100 to 100", id);
    if (p->n_bias == MAX_BIASES)
        return wf_refuse(r, 400, "logit_bias", "logit_bias has more than %d tokens", MAX_BIASES);
    p->bias[p->n_bias++] = (struct weft_logit_bias){id, (float)bias};
    return true;
}

/* As llama.cpp has them: an id, or a text whose tokens all get it, and a number, or false: never. */
static bool read_bias_pair(const wf_served *s, const wf_json *pair, wf_params *p, wf_http_error *r)
{
    static const wf_json never = {.kind = WF_JSON_INT, .i = -100};
    const wf_json *which = wf_json_at(pair, 0), *v = wf_json_at(pair, 1);
    int32_t id = 0, *ids = NULL;
    size_t n = 1;
    if (wf_json_count(pair) != 2)
        return wf_refuse(r, 400, "logit_bias", "logit_bias as a list must hold pairs of a token id and a number");
    if (wf_json_is(v, WF_JSON_BOOL) && !v->b) v = &never;
    bool text = wf_json_is(which, WF_JSON_STRING), ok = text || read_id(s, which, "logit_bias", &id, r);
    if (text && !check_bytes(s, wf_json_bytes(which), "logit_bias", r)) return false;
    if (text && weft_tokenize(s->model, wf_json_text(which), wf_json_bytes(which), WEFT_TEXT_NO_ADD_SPECIAL, &ids, &n))
        return wf_refuse(r, 400, "logit_bias", "logit_bias has a text that is no tokens: %s", wf_last_error());
    for (size_t i = 0; ok && i < n; i++) ok = add_bias(v, text ? ids[i] : id, p, r);
    weft_free(ids);
    return ok;
}

static bool read_bias(const wf_served *s, const wf_json *body, wf_params *p, wf_http_error *r)
{
    const wf_json *v = wf_field(body, "logit_bias");
    uint32_t n_vocab = weft_model_info(s->model)->n_vocab;
    if (!v) return true;
    if (!wf_json_is(v, WF_JSON_OBJECT) && !wf_json_is(v, WF_JSON_LIST))
        return wf_refuse(r, 400, "logit_bias", "logit_bias must be an object of token ids and numbers");
    if (v->n > MAX_BIASES) return wf_refuse(r, 400, "logit_bias", "logit_bias has more than %d entries", MAX_BIASES);
    if (!(p->bias = wf_calloc(MAX_BIASES, sizeof *p->bias))) return wf_refuse(r, 500, "", "out of memory");
    WF_JSON_EACH(pair, v)
        if (!read_bias_pair(s, pair, p, r)) return false;
    WF_JSON_EACH_MEMBER (m, v) {
        const char *key = m->name.text;
        size_t digits = strspn(key, "0123456789");
        long id = digits && digits < 10 && !key[digits] && (key[0] != '0' || digits == 1) ? strtol(key, NULL, 10) : -1;
        if (id < 0 || id >= n_vocab)
            return wf_refuse(r, 400, "logit_bias",
                             "logit_bias has the key '%.40s', which is no token id from 0 to %u: /tokenize gives ids",
                             key, n_vocab - 1);
        if (!add_bias(&m->value, (int32_t)id, p, r)) return false;
    }
    return true;
}

/* ---- prompts --------------------------------------------------------------------------------------------- */

/* Do all sequences fit into the server at once? What never fits is not told to come later. */
static bool check_choices(const wf_served *s, const wf_params *p, size_t n_prompts, wf_http_error *r)
{
    size_t most = WF_MIN((size_t)WF_MAX_CHOICES, (size_t)s->max_running + s->max_queue);
    if (n_prompts <= most && n_prompts * (size_t)p->n <= most) return true;
    return wf_refuse(r, 400, p->n > 1 ? "n" : "prompt",
                     "n times the number of prompts is %zu, at most %zu are possible", n_prompts * (size_t)p->n, most);
}

/* Of a prompt that may be cut, what lies far behind the cut is not looked at. */
static bool tokenize(const wf_served *s, const char *text, size_t len, bool cuts, const char *name, wf_prompt *out,
                     wf_http_error *r)
{
    const struct weft_model_info *info = weft_model_info(s->model);
    uint64_t most;
    if (cuts && wf_exceeds_context(s->model, s->context, len, &most)) len = (size_t)most + 1;
    else if (!check_bytes(s, len, name, r)) return false;
    if (weft_tokenize(s->model, text, len, WEFT_TEXT_DEFAULT, &out->ids, &out->n))
        return wf_refuse(r, 400, name, "%s cannot be turned into tokens: %s", name, wf_last_error());
    if (!out->n && info->bos >= 0) { /* an empty prompt, for a model that does not add BOS by default */
        weft_free(out->ids);
        if (!(out->ids = wf_calloc(1, sizeof *out->ids))) return wf_refuse(r, 500, "", "out of memory");
        out->ids[out->n++] = info->bos;
    }
    return out->n ? true : wf_refuse(r, 400, name, "%s is empty", name);
}

static bool read_prompt(const wf_served *s, const wf_json *v, const char *name, bool cuts, wf_prompt *out,
                        wf_http_error *r)
{
    if (wf_json_is(v, WF_JSON_STRING)) {
        out->len = wf_json_bytes(v);
        if (!(out->text = wf_strdup(wf_json_text(v)))) return wf_refuse(r, 500, "", "out of memory");
        return tokenize(s, out->text, out->len, cuts, name, out, r);
    }
    size_t most = cuts ? SIZE_MAX : s->context; /* JSON has its own limit */
    if (wf_json_count(v) > most) r->code = "context_length_exceeded";
    if (!wf_ids_read(s, v, name, most, &out->ids, &out->n, r)) return false;
    if (!out->n) return wf_refuse(r, 400, name, "%s is an empty list", name);
    if (weft_detokenize(s->model, out->ids, out->n, WEFT_TEXT_HIDE_SPECIAL, &out->text, &out->len))
        return wf_refuse(r, 500, "", "%s", wf_last_error());
    return true;
}

bool wf_prompts_read(const wf_served *s, const wf_json *v, const char *name, wf_params *p, wf_http_error *r)
{
    const wf_json *first = wf_json_at(v, 0);
    bool list = wf_json_is(v, WF_JSON_LIST) && !wf_is_whole(first);
    size_t n = list ? wf_json_count(v) : 1;
    if (!v) return wf_refuse(r, 400, name, "%s is missing", name);
    if (!wf_json_is(v, WF_JSON_LIST) && !wf_json_is(v, WF_JSON_STRING))
        return wf_refuse(r, 400, name, "%s must be a string, a list of token ids, or a list of these", name);
    if (!n) return wf_refuse(r, 400, name, "%s is an empty list", name);
    if (!check_choices(s, p, n, r)) return false; /* before the work */
    if (!(p->prompts = wf_calloc(n, sizeof *p->prompts))) return wf_refuse(r, 500, "", "out of memory");
    for (size_t i = 0; i < n; i++) {
        p->n_prompts++;
        if (!read_prompt(s, list ? wf_json_at(v, i) : v, name, p->most_tokens, &p->prompts[i], r)) return false;
        if (p->echo && WF_GIVEN(p, LOGPROBS) && !wf_prompt_offsets(s, &p->prompts[i]))
            return wf_refuse(r, 500, "", "out of memory");
    }
    return true;
}

/* Further variables of the template, which kwargs gets as text. */
static bool read_kwargs(const wf_served *s, const wf_json *body, wf_text *kwargs, wf_http_error *r)
{
    const wf_json *v = wf_field(body, "chat_template_kwargs");
    if (v && !wf_json_is(v, WF_JSON_OBJECT))
        return wf_refuse(r, 400, "chat_template_kwargs", "chat_template_kwargs must be an object");
    wf_text_add(kwargs, "{", 1);
    if (!wf_thinking_read(s, body, v, kwargs, r)) return false;
    WF_JSON_EACH_MEMBER(m, v) {
        wf_json_put_member(kwargs, m->name.text, &m->value);
    }
    wf_text_add(kwargs, "}", 1);
    return !kwargs->failed || wf_refuse(r, 500, "", "out of memory");
}

wf_answer *wf_params_answer(const wf_params *p)
{
    const wf_answer_style style = {.calls = p->calls ? p->calls->calls : NULL,
                                   .thoughts = p->thoughts,
                                   .thinking = p->thinking,
                                   .continues = p->continues,
                                   .required = p->required,
                                   .tool_types = &p->tool_types};
    return wf_answer_new(&style);
}

static weft_status make_prompt(const wf_served *s, const struct weft_chat_params *chat, const wf_params *p)
{
    wf_prompt *to = &p->prompts[0];
    return p->rendered ? weft_chat_render(s->model, chat, &to->text, &to->len)
                       : weft_chat_tokenize(s->model, chat, &to->ids, &to->n);
}

bool wf_chat_read(const wf_served *s, const wf_json *body, wf_params *p, wf_http_error *r)
{
    wf_text messages = {0}, tools = {0}, kwargs = {0};
    size_t bytes = 0;
    if (!(p->prompts = wf_calloc(1, sizeof *p->prompts))) return wf_refuse(r, 500, "", "out of memory");
    p->n_prompts = 1;
    bool ok = wf_tools_read(body, &s->chat, p, &tools, r) &&
              wf_messages_read(body, &s->chat, p, &messages, &bytes, r) && read_kwargs(s, body, &kwargs, r) &&
              check_choices(s, p, 1, r) && check_bytes(s, bytes, "messages", r);
    struct weft_chat_params chat = {.chat_template = s->server->p.chat_template,
                                    .messages_json = messages.data,
                                    .tools_json = s->chat.generic ? NULL : tools.data,
                                    .kwargs_json = kwargs.data,
                                    .no_generation_prompt = p->closed,
                                    .continue_last = p->continues};
    weft_status e = ok ? make_prompt(s, &chat, p) : WEFT_OK;
    if (e == WEFT_ERR_ARG && p->continues && !p->told) { /* the template may not show it */
        chat.continue_last = p->continues = false;
        e = make_prompt(s, &chat, p);
    }
    if (e == WEFT_ERR_UNSUPPORTED) ok = wf_refuse(r, WF_UNSUPPORTED, "messages", "%s", wf_last_error());
    else if (e) ok = wf_refuse(r, 400, "messages", "%s", wf_last_error());
    if (ok && !p->rendered) {
        /* How the answer is read. */
        const wf_chat_style *c = &s->chat;
        p->thoughts = c->thoughts;
        p->thinking = p->thoughts && wf_thoughts_opened(p->thoughts, s->model, p->prompts[0].ids, p->prompts[0].n);
        p->show = c->show.ids;
        p->n_show = p->calls ? c->show.n : c->n_show_thoughts;
    }
    free(messages.data);
    free(tools.data);
    free(kwargs.data);
    return ok;
}

/* ---- what is sent back, and what must fit ------------------------------------------------------------ */

static bool read_stream_options(const wf_json *body, wf_params *p, wf_http_error *r)
{
    const wf_json *v = wf_field(body, "stream_options");
    if (!v) return true;
    if (!p->stream) return wf_refuse(r, 400, "stream_options", "stream_options needs stream to be true");
    if (!wf_json_is(v, WF_JSON_OBJECT)) return wf_refuse(r, 400, "stream_options", "stream_options must be an object");
    const wf_json *usage = wf_field(v, "include_usage"), *always = wf_field(v, "continuous_usage_stats");
    if ((usage && !wf_json_is(usage, WF_JSON_BOOL)) || (always && !wf_json_is(always, WF_JSON_BOOL)))
        return wf_refuse(r, 400, "stream_options", "stream_options must hold true or false");
    p->include_usage = wf_json_is_true(usage);
    p->continuous_usage = p->include_usage && wf_json_is_true(always);
    return true;
}

bool wf_model_check(wf_job *j, const wf_json *body, wf_http_error *r)
{
    const wf_served *m = j->served;
    const wf_json *v = wf_field(body, "model");
    char adapter[sizeof j->params.adapter];
    if (!wf_adapter_read(j, body, r)) return false;
    if (!v) return true;
    if (!wf_json_is(v, WF_JSON_STRING)) return wf_refuse(r, 400, "model", "model must be a string");
    if (!*wf_json_text(v)) return true; /* the one that is served */
    bool known = wf_names_have(m, wf_json_text(v)) || (m->file && !strcmp(m->file, wf_json_text(v)));
    bool adapted = !known && wf_adapter_here(m, wf_json_text(v), adapter);
    if (adapted && !wf_adapter_take(j, adapter, r)) return false;
    known |= adapted;
    j->other_model = !known && wf_allows(j->server, "any-model-name", NULL);
    if (wf_json_bytes(v) < sizeof j->params.model) wf_copy(j->params.model, sizeof j->params.model, wf_json_text(v));
    if (known || j->other_model) return true;
    wf_refuse(r, 404, "model", "the model '%.80s' does not exist; this server has '%s'", wf_json_text(v), m->name);
    r->code = "model_not_found";
    return false;
}

/* fills: an answer may be shorter than max_tokens where the context ends, as in other servers' interfaces. */
static bool check_size(const wf_served *s, bool fills, wf_params *p, wf_http_error *r)
{
    const char *name = p->chat ? "messages" : "prompt";
    size_t longest = 0;
    for (size_t i = 0; i < p->n_prompts; i++) longest = WF_MAX(longest, p->prompts[i].n);
    r->code = "context_length_exceeded"; /* for the next two errors */
    bool answer = !WF_GIVEN(p, MAX_TOKENS) || p->max_tokens;
    if (longest + answer > s->context)
        return wf_refuse(r, 400, name, "%s has %zu tokens, but the context of this server is %u tokens%s", name,
                         longest, s->context, answer ? " and the answer needs at least one" : "");
    if (fills && p->max_tokens > (int64_t)(s->context - longest)) p->max_tokens = -1;
    if (WF_GIVEN(p, MAX_TOKENS) && p->max_tokens > (int64_t)(s->context - longest))
        return wf_refuse(r, 400, "max_tokens",
                         "max_tokens is %lld, but the context of %u tokens leaves %zu behind a prompt of %zu",
                         (long long)p->max_tokens, s->context, s->context - longest, longest);
    r->code = NULL;
    return true;
}

/* The same in every process and after a restart, as blocks of KV on disk are; keys may be listed in another order. */
static void salt_by(wf_params *p, const char *kind, const char *text, size_t len)
{
    wf_blake2b b;
    wf_blake2b_begin(&b, p->n_cache_salt = sizeof p->cache_salt, NULL, 0);
    wf_blake2b_field(&b, kind, strlen(kind));
    wf_blake2b_field(&b, text, len);
    wf_blake2b_end(&b, p->cache_salt);
}

/* Who finds whose prompts in the prefix cache could guess them. So it is each key's own, or of those who know a
 * text. */
bool wf_salt_read(const wf_job *j, const wf_json *body, wf_params *p, wf_http_error *r)
{
    const wf_json *v = wf_field(body, "cache_salt");
    const wf_server *s = j->server;
    if (v && !wf_json_bytes(v)) return wf_refuse(r, 400, "cache_salt", "cache_salt must be a string that is not empty");
    if (v) salt_by(p, "cache_salt", wf_json_text(v), wf_json_bytes(v));
    else if (j->server->n_keys && j->client) salt_by(p, "key", s->keys[j->client - 1], strlen(s->keys[j->client - 1]));
    return true;
}

/* Only echo needs the texts of prompts, which wait as long as their tokens. */
static bool drop_texts(wf_params *p)
{
    for (size_t i = 0; !p->echo && i < p->n_prompts; i++) {
        weft_free(p->prompts[i].text);
        p->prompts[i].text = NULL;
        p->prompts[i].len = 0;
    }
    return true;
}

/* A request of ours. */
static bool read_own(wf_job *j, const wf_json *body)
{
    const wf_served *s = j->served;
    wf_params *p = &j->params;
    wf_http_error *r = &j->refusal;
    const wf_json *ids = wf_field(body, "stop_token_ids");
    if (!wf_model_check(j, body, r) || !wf_fields_check(j->server, body, p->chat ? WF_OF_CHAT : WF_OF_TEXT, r) ||
        !wf_fields_read(s, body, p, r))
        return false;
    if (p->priority && !s->server->p.allow_priority) /* as vLLM does, unless the server was started for it */
        return wf_refuse(r, 400, "priority",
                         "priority other than 0 needs a server with --scheduling-policy priority: leave it out");
    return wf_salt_read(j, body, p, r) && read_stream_options(body, p, r) && wf_format_read(body, p, r) &&
           read_stop(body, p, r) &&
           read_bias(s, body, p, r) &&
           (!ids || wf_ids_read(s, ids, "stop_token_ids", MAX_STOP_TOKENS, &p->stop_ids, &p->n_stop_ids, r)) &&
           (p->chat ? wf_chat_read(s, body, p, r) : wf_prompts_read(s, wf_field(body, "prompt"), "prompt", p, r)) &&
           wf_format_begin(p, r) && check_size(s, j->route->api->translate, p, r) &&
           drop_texts(p);
}

/* What a request of another interface says as one of ours; NULL: the refusal is set, or the reply written. */
static wf_json *translate(wf_job *j, const wf_json *body)
{
    wf_text text = {0};
    wf_json *own = NULL;
    wf_text_add(&text, "{", 1);
    bool ok = j->route->api->translate(j, body, &text);
    wf_text_add(&text, "}", 1);
    if (ok && text.failed) wf_refuse(&j->refusal, 500, "", "out of memory for the request");
    else if (ok && !j->written) own = parse_body(text.data, text.len, WF_JSON_UNIQUE, &j->refusal);
    free(text.data);
    return own;
}

bool wf_params_read(wf_job *j, const wf_json *body)
{
    if (!wf_models_writes(j, body, j->served->name, j->served->pooling)) return false;
    j->params.chat = j->route->chat;
    if (!j->route->api->translate) return read_own(j, body);
    wf_json *own = translate(j, body);
    bool ok = j->written || (own && read_own(j, own));
    wf_json_free(own);
    return ok;
}

bool wf_params_count(wf_job *j, const wf_json *body)
{
    wf_json *own = translate(j, body);
    bool ok = own && wf_model_check(j, own, &j->refusal) && wf_fields_check(j->server, own, WF_OF_CHAT, &j->refusal) &&
              wf_fields_read(j->served, own, &j->params, &j->refusal) &&
              wf_chat_read(j->served, own, &j->params, &j->refusal);
    wf_json_free(own);
    return ok;
}

void wf_params_free(wf_params *p)
{
    for (size_t i = 0; i < p->n_prompts; i++)
        weft_free(p->prompts[i].ids), weft_free(p->prompts[i].text), free(p->prompts[i].offsets);
    for (size_t i = 0; i < p->n_stop; i++) free(p->stop[i]);
    free(p->prompts);
    free(p->stop);
    free(p->stop_ids);
    free(p->bias);
    free(p->tool_types.data);
    free(p->grammar_text.data);
    free(p->echoed.data);
}

struct weft_request_params wf_params_request(const wf_params *p, size_t choice)
{
    const wf_prompt *prompt = wf_prompt_of(p, choice);
    if (p->embed)
        return (struct weft_request_params){.tokens = prompt->ids, .n_tokens = prompt->n, .embed = true,
                                            .embed_raw = p->embed_raw, .second_text = prompt->second,
                                            .cache_salt = (const char *)p->cache_salt,
                                            .cache_salt_len = p->n_cache_salt,
                                            .adapter = *p->adapter ? p->adapter : NULL};
    bool logprobs = p->chat ? p->chat_logprobs : WF_GIVEN(p, LOGPROBS);
    int64_t top = p->chat ? p->top_logprobs : p->logprobs, max = p->max_tokens;
    if (!WF_GIVEN(p, MAX_TOKENS)) max = p->chat ? 0 : 16;
    if (max < 0) max = 0; /* -1: until the end */
    struct weft_sampling sampling = p->sampling;
    sampling.seed = (WF_GIVEN(p, SEED) ? (uint64_t)p->seed : wf_random(wf_now_ns(), choice)) + choice % (size_t)p->n;
    return (struct weft_request_params){.tokens = prompt->ids,
                                        .n_tokens = prompt->n,
                                        .max_tokens = (uint32_t)max,
                                        .priority = -(int32_t)p->priority, /* here lower is earlier */
                                        .prefill_only = WF_GIVEN(p, MAX_TOKENS) && !p->max_tokens,
                                        .sampling = sampling,
                                        .ignore_eos = p->ignore_eos,
                                        .min_tokens = (uint32_t)p->min_tokens,
                                        .stop_ids = p->stop_ids,
                                        .n_stop_ids = p->n_stop_ids,
                                        .stop = (const char *const *)p->stop,
                                        .n_stop = p->n_stop,
                                        .include_stop = p->include_stop,
                                        .no_prefix = !p->cache_prompt,
                                        .bias = p->bias,
                                        .n_bias = p->n_bias,
                                        .grammar = p->grammar,
                                        .grammar_text = p->grammar_text.data,
                                        .grammar_len = p->grammar_text.len,
                                        .grammar_after = p->grammar_after,
                                        .grammar_unless = p->grammar_unless,
                                        .logprobs = logprobs,
                                        .n_top = (uint32_t)(logprobs ? top : 0),
                                        .prompt_logprobs = logprobs && p->echo,
                                        .show_special = !p->skip_special,
                                        .cache_salt = (const char *)p->cache_salt,
                                        .cache_salt_len = p->n_cache_salt,
                                        .adapter = *p->adapter ? p->adapter : NULL,
                                        .show_ids = p->show,
                                        .n_show_ids = p->n_show};
}
