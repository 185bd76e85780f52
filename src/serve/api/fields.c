/* fields: the fields of requests that are one value are rows of a table, so that each one is checked and each error
 * names its field. What other servers know and weft does not is in fields.def. Unknown fields are ignored, as in other
 * servers, and logged once. */
#include "serve/api/internal.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const wf_json *wf_field(const wf_json *body, const char *name)
{
    const wf_json *v = wf_json_get(body, name);
    return wf_json_absent(v) ? NULL : v;
}

/* ---- fields that are one value --------------------------------------------------------------------------- */

enum kind { REAL, SHARE, I32, WHOLE, SEED, BOOL }; /* SHARE: a REAL above 0; SEED: 64 bits, with a sign or without */
enum where { BOTH, CHAT, TEXT };

static bool is_here(enum where where, bool chat) { return where != (chat ? TEXT : CHAT); }

typedef struct row {
    const char *name;
    enum kind kind;
    enum where where;
    size_t at;
    double initial, min, max;
    unsigned given; /* its bit, where it makes a difference whether it is given */
} row;

#define AT(member) offsetof(wf_params, member)
#define MANY       2147483647.0

static const row rows[] = {
    {"temperature", REAL, BOTH, AT(sampling.temperature), 0, 0,
     100}, /* those in `sampling` begin as the server's defaults */
    {"top_p", SHARE, BOTH, AT(sampling.top_p), 0, 0, 1},
    {"min_p", REAL, BOTH, AT(sampling.min_p), 0, 0, 1},
    {"top_k", I32, BOTH, AT(sampling.top_k), 0, -1, MANY},
    {"presence_penalty", REAL, BOTH, AT(sampling.presence_penalty), 0, -2, 2},
    {"frequency_penalty", REAL, BOTH, AT(sampling.frequency_penalty), 0, -2, 2},
    {"repetition_penalty", REAL, BOTH, AT(sampling.repeat_penalty), 0, 1e-3, 2, WF_GIVEN_REPETITION_PENALTY},
    {"repeat_penalty", REAL, BOTH, AT(sampling.repeat_penalty), 0, 1e-3, 2,
     WF_GIVEN_REPEAT_PENALTY}, /* as llama.cpp calls it */
    {"repeat_last_n", I32, BOTH, AT(sampling.repeat_last_n), 0, -1, MANY},
    {"n", WHOLE, BOTH, AT(n), 1, 1, 128},
    {"priority", WHOLE, BOTH, AT(priority), 0, -1000, 1000},
    {"best_of", WHOLE, TEXT, AT(best_of), 0, 1, 128, WF_GIVEN_BEST_OF},
    {"max_tokens", WHOLE, BOTH, AT(max_tokens), 0, 0, MANY, WF_GIVEN_MAX_TOKENS},
    {"max_completion_tokens", WHOLE, BOTH, AT(max_completion_tokens), 0, 1, MANY, WF_GIVEN_MAX_COMPLETION},
    {"min_tokens", WHOLE, BOTH, AT(min_tokens), 0, 0, MANY},
    {"seed", SEED, BOTH, AT(seed), 0, -0x1p63, 0x1p64, WF_GIVEN_SEED},
    {"logprobs", WHOLE, TEXT, AT(logprobs), 0, 0, WEFT_MAX_TOP, WF_GIVEN_LOGPROBS},
    {"logprobs", BOOL, CHAT, AT(chat_logprobs), 0, 0, 0},
    {"top_logprobs", WHOLE, CHAT, AT(top_logprobs), 0, 0, WEFT_MAX_TOP},
    {"stream", BOOL, BOTH, AT(stream), 0, 0, 0},
    {"echo", BOOL, TEXT, AT(echo), 0, 0, 0},
    {"ignore_eos", BOOL, BOTH, AT(ignore_eos), 0, 0, 0},
    {"include_stop_str_in_output", BOOL, BOTH, AT(include_stop), 0, 0, 0},
    {"skip_special_tokens", BOOL, BOTH, AT(skip_special), 1, 0, 0},
};

static void put(wf_params *p, const row *w, double v, int64_t whole)
{
    char *at = (char *)p + w->at;
    if (w->kind == REAL) memcpy(at, &(float){(float)v}, sizeof(float));
    else if (w->kind == SHARE)
        memcpy(at, &(float){(float)WF_MAX(v, (double)FLT_MIN)}, sizeof(float)); /* rounded to 0 it would mean "off" */
    else if (w->kind == I32)
        memcpy(at, &(int32_t){(int32_t)WF_MAX(whole, 0)}, sizeof(int32_t)); /* -1 is off, or all, in other servers */
    else if (w->kind != BOOL) memcpy(at, &whole, sizeof whole);
    else *(bool *)at = v != 0;
}

bool wf_is_whole(const wf_json *v)
{
    return wf_json_is_number(v) && (v->kind != WF_JSON_REAL || floor(v->real) == v->real);
}

/* What is no real is in range; a number beyond that was rounded to one, perhaps to an end of the range. */
static bool read_seed(const wf_json *v, const row *w, wf_params *p, wf_http_error *r)
{
    double x = wf_json_number(v);
    bool exact = v->kind < WF_JSON_BIG;
    if (!exact && (v->kind == WF_JSON_BIG || !(x > w->min && x < w->max)))
        return wf_refuse(r, 400, w->name, "%s is %.15g, but must be from -2^63 to 2^64-1", w->name, x);
    put(p, w, x, exact ? (int64_t)v->u : x < 0 ? (int64_t)x : (int64_t)(uint64_t)x);
    return true;
}

/* Ranges hold for the number as it was sent, before any rounding. */
static bool read_row(const wf_json *body, const row *w, wf_params *p, wf_http_error *r)
{
    const wf_json *v = wf_field(body, w->name);
    if (!v) return true;
    p->given |= w->given;
    if (w->kind == BOOL) {
        if (!wf_json_is(v, WF_JSON_BOOL)) return wf_refuse(r, 400, w->name, "%s must be true or false", w->name);
        put(p, w, wf_json_is_true(v), 0);
        return true;
    }
    double x = wf_json_number(v);
    if (!wf_json_is_number(v) || (w->kind >= I32 && !wf_is_whole(v)))
        return wf_refuse(r, 400, w->name, "%s must be a %s", w->name, w->kind >= I32 ? "whole number" : "number");
    if (w->kind == SEED) return read_seed(v, w, p, r);
    if (w->kind == SHARE && x == 0)
        return wf_refuse(r, 400, w->name, "%s must be above 0 and at most %g", w->name, w->max);
    if (!(x >= w->min && x <= w->max))
        return wf_refuse(r, 400, w->name, "%s is %.15g, but must be from %.15g to %.15g", w->name, x, w->min, w->max);
    put(p, w, x, wf_json_is(v, WF_JSON_INT) ? wf_json_int(v) : (int64_t)x);
    return true;
}

static bool read_rows(const wf_server *s, const wf_json *body, wf_params *p, wf_http_error *r)
{
    for (size_t i = 0; i < WF_LEN(rows); i++) put(p, &rows[i], rows[i].initial, (int64_t)rows[i].initial);
    p->sampling = s->sampling;
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        if (is_here(rows[i].where, p->chat) && !read_row(body, &rows[i], p, r)) return false;
    }
    return true;
}

static bool check_together(wf_params *p, wf_http_error *r)
{
    if (WF_GIVEN(p, MAX_COMPLETION)) p->max_tokens = p->max_completion_tokens, p->given |= WF_GIVEN_MAX_TOKENS;
    if (WF_GIVEN(p, MAX_TOKENS) && !p->max_tokens && !p->echo)
        return wf_refuse(r, 400, "max_tokens", "max_tokens must be at least 1 (0 is possible with echo)");
    if (WF_GIVEN(p, REPEAT_PENALTY) && WF_GIVEN(p, REPETITION_PENALTY))
        return wf_refuse(r, 400, "repeat_penalty",
                         "repeat_penalty is another name of repetition_penalty: send one of them");
    if (WF_GIVEN(p, BEST_OF) && p->best_of != p->n)
        return wf_refuse(r, WF_UNSUPPORTED, "best_of", "best_of other than n is not supported: leave it out");
    if (p->top_logprobs && !p->chat_logprobs)
        return wf_refuse(r, 400, "top_logprobs", "top_logprobs needs logprobs to be true");
    if (WF_GIVEN(p, MAX_TOKENS) && p->max_tokens && p->min_tokens > p->max_tokens)
        return wf_refuse(r, 400, "min_tokens", "min_tokens is larger than max_tokens");
    return true;
}

/* ---- what is not read: see fields.def -------------------------------------------------------------------- */

static const struct unread {
    const char *names;
    enum where where;
    const char *neutral, *instead; /* JSON; NULL: any value changes nothing */
} unread[] = {
#define REFUSED(names, where, neutral, instead) {names, where, "[" neutral "]", instead},
#define ACCEPTED(names, where)                  {names, where, NULL, NULL},
#include "serve/api/fields.def"
};

/* The table has no objects with members. */
static bool same_value(const wf_json *a, const wf_json *b)
{
    if (wf_json_is_number(a) && wf_json_is_number(b)) return wf_json_number(a) == wf_json_number(b);
    if (a->kind != b->kind) return false;
    if (a->kind == WF_JSON_STRING) return !strcmp(a->text, b->text);
    if (a->kind == WF_JSON_BOOL) return a->b == b->b;
    bool same = a->n == b->n && (a->kind == WF_JSON_LIST || !a->n);
    for (size_t i = 0; same && i < a->n; i++) same = same_value(&a->list[i], &b->list[i]);
    return same;
}

static bool is_neutral(const wf_json *v, const char *neutral)
{
    wf_json *values = wf_json_read(neutral, strlen(neutral), NULL, NULL);
    bool found = false;
    WF_JSON_EACH(one, values) found |= same_value(v, one);
    wf_json_free(values);
    return found;
}

static bool is_listed(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (; *names; names += strcspn(names, " "), names += *names == ' ')
        if (strcspn(names, " ") == n && !strncmp(names, name, n)) return true;
    return false;
}

static const struct unread *find_unread(const char *name, bool chat)
{
    for (size_t i = 0; i < WF_LEN(unread); i++)
        if (is_here(unread[i].where, chat) && is_listed(unread[i].names, name)) return &unread[i];
    return NULL;
}

static bool check_unread(const wf_json *body, bool chat, wf_http_error *r)
{
    WF_JSON_EACH_MEMBER(m, body) {
        const struct unread *u = wf_json_absent(&m->value) ? NULL : find_unread(m->name.text, chat);
        if (u && u->neutral && !is_neutral(&m->value, u->neutral))
            return wf_refuse(r, WF_UNSUPPORTED, m->name.text, "%s is not supported: %s", m->name.text, u->instead);
    }
    return true;
}

bool wf_fields_read(const wf_server *s, const wf_json *body, wf_params *p, wf_http_error *r)
{
    return read_rows(s, body, p, r) && check_unread(body, p->chat, r) && check_together(p, r);
}

/* ---- unknown fields -------------------------------------------------------------------------------------- */

/* Those that are more than one value. */
static const char others[] = "model stop stop_token_ids logit_bias stream_options parallel_tool_calls response_format "
                             "cache_salt",
                  of_text[] = "prompt", of_chat[] = "messages tools tool_choice chat_template_kwargs "
                              "continue_final_message add_generation_prompt";

static bool is_known(const char *name, bool chat)
{
    for (size_t i = 0; i < WF_LEN(rows); i++)
        if (is_here(rows[i].where, chat) && !strcmp(rows[i].name, name)) return true;
    return is_listed(others, name) || is_listed(chat ? of_chat : of_text, name) || find_unread(name, chat);
}

/* Says it once, as long as there is room to remember it. */
static void log_once(wf_server *s, const char *name)
{
    bool fresh = true;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n_unknown; i++) fresh &= strncmp(s->unknown[i], name, sizeof s->unknown[i] - 1) != 0;
    fresh &= s->n_unknown < WF_LEN(s->unknown);
    if (fresh) wf_copy(s->unknown[s->n_unknown++], sizeof s->unknown[0], name);
    pthread_mutex_unlock(&s->lock);
    if (fresh) wf_log(WEFT_LOG_WARN, "requests have the unknown field '%.47s', which is ignored", name);
}

void wf_fields_unknown(wf_server *s, const wf_json *body, bool chat)
{
    const wf_json *options = wf_field(body, "stream_options");
    char path[80];
    WF_JSON_EACH_MEMBER(m, body)
        if (!is_known(m->name.text, chat)) log_once(s, m->name.text);
    /* The last of these pads chunks, which is for secrecy and changes no text. */
    WF_JSON_EACH_MEMBER(m, options)
        if (!is_listed("include_usage continuous_usage_stats include_obfuscation", m->name.text))
            snprintf(path, sizeof path, "stream_options.%s", m->name.text), log_once(s, path);
}
