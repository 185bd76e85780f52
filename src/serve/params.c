/* params: from the JSON of a request to the engine's parameters. Fields are rows of a table, so that each one is checked and each
 * error names its field. Unknown fields are ignored, as in other servers. */
#include "serve/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PROMPTS     64
#define MAX_STOPS       64
#define MAX_STOP_BYTES  1024
#define MAX_STOP_TOKENS 256
#define MAX_BIASES      1024

/* A field that is present and not null. */
static json_t *field(const json_t *body, const char *name)
{
    json_t *v = json_object_get(body, name);
    return v && !json_is_null(v) ? v : NULL;
}

/* ---- fields that are one value --------------------------------------------------------------------------- */

enum kind { REAL, WHOLE, BOOL };
enum where { BOTH, CHAT, TEXT };

typedef struct row {
    const char *name;
    enum kind kind;
    enum where where;
    size_t at;
    double initial, min, max;
} row;

#define AT(member) offsetof(wf_params, member)
#define NONE       (-1e18) /* a number that is not given */
#define MANY       2147483647.0

static const row rows[] = {
    {"temperature", REAL, BOTH, AT(temperature), 1, 0, 2},
    {"top_p", REAL, BOTH, AT(top_p), 1, 0, 1},
    {"min_p", REAL, BOTH, AT(min_p), 0, 0, 1},
    {"top_k", WHOLE, BOTH, AT(top_k), 0, -1, MANY},
    {"presence_penalty", REAL, BOTH, AT(presence_penalty), 0, -2, 2},
    {"frequency_penalty", REAL, BOTH, AT(frequency_penalty), 0, -2, 2},
    {"repetition_penalty", REAL, BOTH, AT(repetition_penalty), 1, 0, 2},
    {"n", WHOLE, BOTH, AT(n), 1, 1, 128},
    {"priority", WHOLE, BOTH, AT(priority), 0, -1000, 1000},
    {"best_of", WHOLE, TEXT, AT(best_of), NONE, 1, 128},
    {"max_tokens", WHOLE, BOTH, AT(max_tokens), NONE, 0, MANY},
    {"max_completion_tokens", WHOLE, CHAT, AT(max_completion_tokens), NONE, 1, MANY},
    {"min_tokens", WHOLE, BOTH, AT(min_tokens), 0, 0, MANY},
    {"seed", WHOLE, BOTH, AT(seed), NONE, -0x1p63, 0x1p63},
    {"logprobs", WHOLE, TEXT, AT(logprobs), NONE, 0, WEFT_MAX_TOP},
    {"logprobs", BOOL, CHAT, AT(chat_logprobs), 0, 0, 0},
    {"top_logprobs", WHOLE, CHAT, AT(top_logprobs), NONE, 0, WEFT_MAX_TOP},
    {"stream", BOOL, BOTH, AT(stream), 0, 0, 0},
    {"echo", BOOL, TEXT, AT(echo), 0, 0, 0},
    {"ignore_eos", BOOL, BOTH, AT(ignore_eos), 0, 0, 0},
    {"include_stop_str_in_output", BOOL, BOTH, AT(include_stop), 0, 0, 0},
    {"skip_special_tokens", BOOL, BOTH, AT(skip_special), 1, 0, 0},
};

static void put(wf_params *p, const row *w, double v, int64_t whole)
{
    char *at = (char *)p + w->at;
    if (w->kind == REAL)
        memcpy(at, &v, sizeof v);
    else if (w->kind == WHOLE)
        memcpy(at, &whole, sizeof whole);
    else
        *(bool *)at = v != 0;
}

static bool read_row(const json_t *body, const row *w, wf_params *p, wf_http_error *r)
{
    json_t *v = field(body, w->name);
    if (!v) return true;
    if (w->kind == BOOL) {
        if (!json_is_boolean(v))
            return wf_refuse(r, 400, w->name, "%s must be true or false", w->name);
        put(p, w, json_is_true(v), 0);
        return true;
    }
    double x = json_number_value(v);
    bool whole = json_is_integer(v) || (json_is_real(v) && fabs(x) < 0x1p53 && x == floor(x));
    if (!json_is_number(v) || (w->kind == WHOLE && !whole))
        return wf_refuse(r, 400, w->name, "%s must be a %s", w->name,
                         w->kind == WHOLE ? "whole number" : "number");
    if (!(x >= w->min && x <= w->max))
        return wf_refuse(r, 400, w->name, "%s is %.15g, but must be from %.15g to %.15g", w->name, x, w->min,
                         w->max);
    put(p, w, x, json_is_integer(v) ? json_integer_value(v) : (int64_t)x);
    return true;
}

static bool read_rows(const json_t *body, wf_params *p, wf_http_error *r)
{
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        put(p, &rows[i], rows[i].initial, (int64_t)rows[i].initial);
        if (rows[i].where != (p->chat ? TEXT : CHAT) && !read_row(body, &rows[i], p, r))
            return false;
    }
    return true;
}

#define GIVEN(x) ((x) != (int64_t)NONE)

static bool check_together(wf_params *p, wf_http_error *r)
{
    if (GIVEN(p->max_completion_tokens)) p->max_tokens = p->max_completion_tokens;
    if (p->max_tokens == 0 && !p->echo)
        return wf_refuse(r, 400, "max_tokens",
                         "max_tokens must be at least 1 (0 is possible with echo)");
    if (p->top_p == 0) return wf_refuse(r, 400, "top_p", "top_p must be above 0 and at most 1");
    if (p->repetition_penalty == 0)
        return wf_refuse(r, 400, "repetition_penalty",
                         "repetition_penalty must be above 0 and at most 2");
    if (GIVEN(p->best_of) && p->best_of != p->n)
        return wf_refuse(r, 501, "best_of", "best_of other than n is not supported: leave it out");
    if (p->chat && GIVEN(p->top_logprobs) && !p->chat_logprobs)
        return wf_refuse(r, 400, "top_logprobs", "top_logprobs needs logprobs to be true");
    if (GIVEN(p->max_tokens) && p->max_tokens && p->min_tokens > p->max_tokens)
        return wf_refuse(r, 400, "min_tokens", "min_tokens is larger than max_tokens");
    return true;
}

/* As vLLM does, unless the server was started for it. */
static bool check_priority(const wf_server *s, const wf_params *p, wf_http_error *r)
{
    if (!p->priority || s->p.allow_priority) return true;
    return wf_refuse(r, 400, "priority", "priority other than 0 needs a server with --scheduling-policy priority: leave it out");
}

/* ---- lists ----------------------------------------------------------------------------------------------- */

static bool read_stop(const json_t *body, wf_params *p, wf_http_error *r)
{
    json_t *v = field(body, "stop");
    size_t n = json_is_array(v) ? json_array_size(v) : v != NULL;
    if (v && !json_is_array(v) && !json_is_string(v))
        return wf_refuse(r, 400, "stop", "stop must be a string or a list of strings");
    if (n > MAX_STOPS)
        return wf_refuse(r, 400, "stop", "stop has %zu strings, at most %d are possible", n,
                         MAX_STOPS);
    if (n && !(p->stop = wf_calloc(n, sizeof *p->stop)))
        return wf_refuse(r, 500, "", "out of memory");
    for (; p->n_stop < n; p->n_stop++) {
        json_t *s = json_is_array(v) ? json_array_get(v, p->n_stop) : v;
        if (!json_is_string(s))
            return wf_refuse(r, 400, "stop", "stop must be a string or a list of strings");
        if (!json_string_length(s)) return wf_refuse(r, 400, "stop", "stop holds an empty string");
        if (json_string_length(s) > MAX_STOP_BYTES)
            return wf_refuse(r, 400, "stop", "stop holds a string of more than %d bytes",
                             MAX_STOP_BYTES);
        if (!(p->stop[p->n_stop] = wf_strdup(json_string_value(s))))
            return wf_refuse(r, 500, "", "out of memory");
    }
    return true;
}

static bool read_id(const wf_server *s, const json_t *v, const char *name, int32_t *out,
                    wf_http_error *r)
{
    uint32_t n_vocab = weft_model_info(s->model)->n_vocab;
    if (!json_is_integer(v))
        return wf_refuse(r, 400, name, "%s must hold token ids, which are whole numbers", name);
    json_int_t id = json_integer_value(v);
    if (id < 0 || id >= n_vocab)
        return wf_refuse(r, 400, name, "%s holds the token id %lld; the vocabulary has 0 to %u",
                         name, (long long)id, n_vocab - 1);
    *out = (int32_t)id;
    return true;
}

static bool read_ids(const wf_server *s, const json_t *v, const char *name, size_t max,
                     int32_t **out, size_t *n, wf_http_error *r)
{
    size_t count = json_array_size(v);
    if (!json_is_array(v)) return wf_refuse(r, 400, name, "%s must be a list of token ids", name);
    if (count > max)
        return wf_refuse(r, 400, name, "%s has %zu token ids, at most %zu are possible", name,
                         count, max);
    if (!(*out = wf_calloc(count + 1, sizeof **out))) return wf_refuse(r, 500, "", "out of memory");
    for (*n = 0; *n < count; ++*n)
        if (!read_id(s, json_array_get(v, *n), name, *out + *n, r)) return false;
    return true;
}

static bool read_bias(const wf_server *s, const json_t *body, wf_params *p, wf_http_error *r)
{
    json_t *v = field(body, "logit_bias"), *value;
    const char *key;
    uint32_t n_vocab = weft_model_info(s->model)->n_vocab;
    if (!v) return true;
    if (!json_is_object(v))
        return wf_refuse(r, 400, "logit_bias",
                         "logit_bias must be an object of token ids and numbers");
    if (json_object_size(v) > MAX_BIASES)
        return wf_refuse(r, 400, "logit_bias", "logit_bias has more than %d entries", MAX_BIASES);
    if (!(p->bias = wf_calloc(json_object_size(v) + 1, sizeof *p->bias)))
        return wf_refuse(r, 500, "", "out of memory");
    json_object_foreach(v, key, value)
    {
        char *end;
        long id = strtol(key, &end, 10);
        if (!*key || *end || id < 0 || id >= n_vocab)
            return wf_refuse(r, 400, "logit_bias",
                             "logit_bias has the key '%.40s', which is no token id from 0 to %u",
                             key, n_vocab - 1);
        double bias = json_number_value(value);
        if (!json_is_number(value) || !(bias >= -100 && bias <= 100))
            return wf_refuse(r, 400, "logit_bias",
                             "logit_bias of token %ld must be a number from -100 to 100", id);
        p->bias[p->n_bias++] = (struct weft_logit_bias){(int32_t)id, (float)bias};
    }
    return true;
}

/* ---- prompts --------------------------------------------------------------------------------------------- */

/* Before the work: does this text have more tokens than the context, however it is cut? */
static bool check_bytes(const wf_server *s, size_t len, const char *name, wf_http_error *r)
{
    uint64_t most = (uint64_t)s->context * weft_model_info(s->model)->longest_token;
    if (!most || len <= most) return true;
    r->code = "context_length_exceeded";
    return wf_refuse(r, 400, name, "%s has %zu bytes, but at most %llu fit the context of %u tokens", name, len, (unsigned long long)most,
                     s->context);
}

static bool tokenize(const wf_server *s, const char *text, size_t len, unsigned flags,
                     const char *name, wf_prompt *out, wf_http_error *r)
{
    const struct weft_model_info *info = weft_model_info(s->model);
    if (!check_bytes(s, len, name, r)) return false;
    if (weft_tokenize(s->model, text, len, flags, &out->ids, &out->n))
        return wf_refuse(r, 400, name, "%s cannot be turned into tokens: %s", name,
                         weft_last_error());
    if (!out->n && info->bos >= 0) { /* an empty prompt, for a model that does not add BOS by default */
        weft_free(out->ids);
        if (!(out->ids = wf_calloc(1, sizeof *out->ids)))
            return wf_refuse(r, 500, "", "out of memory");
        out->ids[out->n++] = info->bos;
    }
    return out->n ? true : wf_refuse(r, 400, name, "%s is empty", name);
}

static bool read_prompt(const wf_server *s, const json_t *v, wf_prompt *out, wf_http_error *r)
{
    if (json_is_string(v)) {
        out->len = json_string_length(v);
        if (!(out->text = wf_strdup(json_string_value(v))))
            return wf_refuse(r, 500, "", "out of memory");
        return tokenize(s, out->text, out->len, WEFT_TEXT_DEFAULT, "prompt", out, r);
    }
    if (!read_ids(s, v, "prompt", s->context, &out->ids, &out->n, r)) return false;
    if (!out->n) return wf_refuse(r, 400, "prompt", "prompt is an empty list");
    if (weft_detokenize(s->model, out->ids, out->n, WEFT_TEXT_HIDE_SPECIAL, &out->text, &out->len))
        return wf_refuse(r, 500, "", "%s", weft_last_error());
    return true;
}

/* A string, token ids, or a list of either. */
static bool read_prompts(const wf_server *s, const json_t *body, wf_params *p, wf_http_error *r)
{
    json_t *v = field(body, "prompt"), *first = json_array_get(v, 0);
    bool list = json_is_array(v) && !json_is_integer(first);
    size_t n = list ? json_array_size(v) : 1;
    if (!v) return wf_refuse(r, 400, "prompt", "prompt is missing");
    if (!json_is_array(v) && !json_is_string(v))
        return wf_refuse(r, 400, "prompt",
                         "prompt must be a string, a list of token ids, or a list of these");
    if (!n) return wf_refuse(r, 400, "prompt", "prompt is an empty list");
    if (n > MAX_PROMPTS)
        return wf_refuse(r, 400, "prompt", "prompt has %zu prompts, at most %d are possible", n,
                         MAX_PROMPTS);
    if (!(p->prompts = wf_calloc(n, sizeof *p->prompts)))
        return wf_refuse(r, 500, "", "out of memory");
    for (size_t i = 0; i < n; i++) {
        p->n_prompts++;
        if (!read_prompt(s, list ? json_array_get(v, i) : v, &p->prompts[i], r)) return false;
    }
    return true;
}

/* The text of a message: a string, or a list of text parts. */
static bool read_content(const json_t *v, wf_text *out, wf_http_error *r)
{
    if (!v || json_is_null(v)) return wf_text_add(out, "", 0), true;
    if (json_is_string(v))
        return wf_text_add(out, json_string_value(v), json_string_length(v)), true;
    if (!json_is_array(v))
        return wf_refuse(r, 400, "messages",
                         "content of a message must be a string or a list of parts");
    wf_text_add(out, "", 0);
    for (size_t i = 0; i < json_array_size(v); i++) {
        json_t *part = json_array_get(v, i), *text = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!type)
            return wf_refuse(r, 400, "messages",
                             "a part of a message's content must be an object with a type");
        if (strcmp(type, "text"))
            return wf_refuse(r, 501, "messages",
                             "content of type '%.40s' is not supported, only text", type);
        if (!json_is_string(text))
            return wf_refuse(r, 400, "messages", "a part of type text must have a text");
        wf_text_add(out, json_string_value(text), json_string_length(text));
    }
    return true;
}

static bool read_message(const json_t *v, struct weft_message *out, wf_http_error *r)
{
    wf_text content = {0};
    const char *role = json_string_value(json_object_get(v, "role"));
    if (!json_is_object(v) || !role)
        return wf_refuse(r, 400, "messages", "each of messages must be an object with a role");
    if (!strcmp(role, "developer")) role = "system";
    if (!strcmp(role, "function")) role = "tool"; /* its former name */
    if (strcmp(role, "system") && strcmp(role, "user") && strcmp(role, "assistant") && strcmp(role, "tool"))
        return wf_refuse(r, 400, "messages", "unknown role '%.40s'; want system, user, assistant or tool",
                         role);
    out->role = role;
    bool ok = read_content(json_object_get(v, "content"), &content, r);
    out->content = content.data;
    return ok && content.failed ? wf_refuse(r, 500, "", "out of memory") : ok;
}

static bool render(const wf_server *s, const struct weft_message *m, size_t n, wf_prompt *out, wf_http_error *r)
{
    weft_status e = weft_chat_tokenize(s->model, s->p.chat_template, m, n, &out->ids, &out->n);
    return e ? wf_refuse(r, e == WEFT_ERR_UNSUPPORTED ? 501 : 400, "messages", "%s", weft_last_error()) : true;
}

static bool read_messages(const wf_server *s, const json_t *body, wf_params *p, wf_http_error *r)
{
    json_t *v = field(body, "messages");
    size_t n = json_array_size(v), i = 0;
    if (!json_is_array(v) || !n)
        return wf_refuse(r, 400, "messages", "messages must be a list of at least one message");
    struct weft_message *m = wf_calloc(n, sizeof *m);
    p->prompts = wf_calloc(1, sizeof *p->prompts);
    if (!m || !p->prompts) {
        free(m);
        return wf_refuse(r, 500, "", "out of memory");
    }
    p->n_prompts = 1;
    bool ok = true;
    for (; ok && i < n; i++) ok = read_message(json_array_get(v, i), &m[i], r);
    if (ok) ok = render(s, m, n, &p->prompts[0], r);
    for (size_t k = 0; k < i; k++) free((char *)m[k].content);
    free(m);
    return ok;
}

/* ---- what is not supported, and what must fit ------------------------------------------------------------ */

static bool read_stream_options(const json_t *body, wf_params *p, wf_http_error *r)
{
    json_t *v = field(body, "stream_options");
    if (!v) return true;
    if (!p->stream)
        return wf_refuse(r, 400, "stream_options", "stream_options needs stream to be true");
    if (!json_is_object(v))
        return wf_refuse(r, 400, "stream_options", "stream_options must be an object");
    json_t *usage = field(v, "include_usage"), *always = field(v, "continuous_usage_stats");
    if ((usage && !json_is_boolean(usage)) || (always && !json_is_boolean(always)))
        return wf_refuse(r, 400, "stream_options", "stream_options must hold true or false");
    p->include_usage = json_is_true(usage);
    p->continuous_usage = p->include_usage && json_is_true(always);
    return true;
}

static bool check_unsupported(const json_t *body, wf_http_error *r)
{
    json_t *tools = field(body, "tools"), *choice = field(body, "tool_choice"),
           *format = field(body, "response_format");
    if (field(body, "suffix")) return wf_refuse(r, 400, "suffix", "suffix is not supported: leave it out");
    if (tools && !json_is_array(tools)) return wf_refuse(r, 400, "tools", "tools must be a list");
    bool none = json_is_string(choice) && !strcmp(json_string_value(choice), "none");
    if (json_array_size(tools) && !none)
        return wf_refuse(r, 501, "tools",
                         "tools are not supported: leave them out, or send tool_choice \"none\"");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (format && !type)
        return wf_refuse(r, 400, "response_format",
                         "response_format must be an object with a type");
    if (format && strcmp(type, "text"))
        return wf_refuse(r, 501, "response_format",
                         "response_format %.40s is not supported: leave it out or send text, and "
                         "ask for the format in the prompt",
                         type);
    return true;
}

static bool check_model(const wf_server *s, const json_t *body, wf_http_error *r)
{
    json_t *v = field(body, "model");
    if (!v) return true;
    if (!json_is_string(v)) return wf_refuse(r, 400, "model", "model must be a string");
    if (!strcmp(json_string_value(v), s->name)) return true;
    wf_refuse(r, 404, "model", "the model '%.80s' does not exist; this server has '%s'",
              json_string_value(v), s->name);
    r->code = "model_not_found";
    return false;
}

static bool check_size(const wf_server *s, wf_params *p, wf_http_error *r)
{
    const char *name = p->chat ? "messages" : "prompt";
    size_t longest = 0;
    for (size_t i = 0; i < p->n_prompts; i++) longest = WF_MAX(longest, p->prompts[i].n);
    r->code = "context_length_exceeded"; /* for the next two errors */
    if (longest >= s->context)
        return wf_refuse(r, 400, name,
                         "%s has %zu tokens, but the context of this server is %u tokens and the "
                         "answer needs at least one",
                         name, longest, s->context);
    if (GIVEN(p->max_tokens) && p->max_tokens > (int64_t)(s->context - longest))
        return wf_refuse(
            r, 400, "max_tokens",
            "max_tokens is %lld, but the context of %u tokens leaves %zu behind a prompt of %zu",
            (long long)p->max_tokens, s->context, s->context - longest, longest);
    r->code = NULL;
    size_t most = WF_MIN((size_t)WF_MAX_CHOICES, (size_t)s->p.max_running + s->p.max_queue);
    if (p->n_prompts * (size_t)p->n > most)
        return wf_refuse(r, 400, "n",
                         "n times the number of prompts is %zu, at most %zu are possible",
                         p->n_prompts * (size_t)p->n, most);
    return true;
}

bool wf_params_read(wf_job *j, const json_t *body)
{
    const wf_server *s = j->server;
    wf_params *p = &j->params;
    wf_http_error *r = &j->refusal;
    json_t *ids = field(body, "stop_token_ids");
    p->chat = j->route->chat;
    return check_model(s, body, r) && read_rows(body, p, r) && check_together(p, r) && check_priority(s, p, r) &&
           read_stream_options(body, p, r) && check_unsupported(body, r) && read_stop(body, p, r) &&
           read_bias(s, body, p, r) &&
           (!ids ||
            read_ids(s, ids, "stop_token_ids", MAX_STOP_TOKENS, &p->stop_ids, &p->n_stop_ids, r)) &&
           (p->chat ? read_messages(s, body, p, r) : read_prompts(s, body, p, r)) &&
           check_size(s, p, r);
}

void wf_params_free(wf_params *p)
{
    for (size_t i = 0; i < p->n_prompts; i++)
        weft_free(p->prompts[i].ids), weft_free(p->prompts[i].text);
    for (size_t i = 0; i < p->n_stop; i++) free(p->stop[i]);
    free(p->prompts);
    free(p->stop);
    free(p->stop_ids);
    free(p->bias);
}

struct weft_request_params wf_params_request(const wf_params *p, size_t choice)
{
    const wf_prompt *prompt = &p->prompts[choice / (size_t)p->n];
    bool logprobs = p->chat ? p->chat_logprobs : GIVEN(p->logprobs);
    int64_t top = p->chat ? p->top_logprobs : p->logprobs, max = p->max_tokens;
    if (!GIVEN(max)) max = p->chat ? 0 : 16;
    uint64_t seed = GIVEN(p->seed) ? (uint64_t)p->seed : wf_random(wf_now_ns(), choice);
    return (struct weft_request_params){
        .tokens = prompt->ids,
        .n_tokens = prompt->n,
        .max_tokens = (uint32_t)max,
        .priority = -(int32_t)p->priority, /* here lower is earlier */
        .prefill_only = p->max_tokens == 0,
        .sampling = {.temperature = (float)p->temperature,
                     .top_k = (int32_t)WF_MAX(p->top_k, 0),
                     .top_p = (float)p->top_p,
                     .min_p = (float)p->min_p,
                     .repeat_penalty = (float)p->repetition_penalty,
                     .repeat_all = true,
                     .presence_penalty = (float)p->presence_penalty,
                     .frequency_penalty = (float)p->frequency_penalty,
                     .seed = seed + choice % (size_t)p->n},
        .ignore_eos = p->ignore_eos,
        .min_tokens = (uint32_t)p->min_tokens,
        .stop_ids = p->stop_ids,
        .n_stop_ids = p->n_stop_ids,
        .stop = (const char *const *)p->stop,
        .n_stop = p->n_stop,
        .include_stop = p->include_stop,
        .bias = p->bias,
        .n_bias = p->n_bias,
        .logprobs = logprobs,
        .n_top = (uint32_t)(logprobs && GIVEN(top) ? top : 0),
        .prompt_logprobs = logprobs && p->echo,
        .show_special = !p->skip_special};
}
