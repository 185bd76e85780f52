/* fields: the fields of requests that are one value are rows of a table, so that each one is checked and each error
 * names its field. fields.def is the table, also of what other servers know and weft does not. */
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
enum { CHAT = WF_OF_CHAT, TEXT = WF_OF_TEXT, BOTH = CHAT | TEXT, TOKENS = WF_OF_TOKENS, IDS = WF_OF_IDS,
       MESSAGES = WF_OF_MESSAGES, RESPONSES = WF_OF_RESPONSES,
       OLLAMA = WF_OF_OLLAMA, GENERATE = WF_OF_GENERATE, OPTIONS = WF_OF_OPTIONS, SHOW = WF_OF_SHOW,
       INFILL = WF_OF_INFILL, EMBED = WF_OF_EMBED, OLLAMA_EMBED = WF_OF_OLLAMA_EMBED, SCORE = WF_OF_SCORE,
       RERANK = WF_OF_RERANK, POOLED = EMBED | OLLAMA_EMBED | SCORE | RERANK,
       OTHER_APIS = MESSAGES | RESPONSES | OLLAMA };

typedef struct row {
    const char *names; /* the first one is ours */
    enum kind kind;
    unsigned where;
    size_t at;
    double initial, min, max;
    unsigned given; /* its bit, where it makes a difference whether it is given */
} row;

/* One that is no value of its own. */
typedef struct other {
    const char *names;
    unsigned where;
    const char *neutral, *instead; /* JSON; neutral NULL: it is read elsewhere, or any value changes nothing */
} other;

#define FIELD(...)
#define FIELDS(names, where)                    {names, where, NULL, NULL},
#define REFUSED(names, where, neutral, instead) {names, where, "[" neutral "]", instead},
#define ACCEPTED(names, where)                  {names, where, NULL, NULL},
static const other others[] = {
#include "serve/api/fields.def"
};
#undef FIELD
#undef FIELDS
#undef REFUSED
#undef ACCEPTED
#define FIELD(names, kind, where, member, ...) {names, kind, where, offsetof(wf_params, member), __VA_ARGS__},
#define FIELDS(...)
#define REFUSED(...)
#define ACCEPTED(...)
static const row rows[] = {
#include "serve/api/fields.def"
};

static bool is_listed(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (; *names; names += strcspn(names, " "), names += *names == ' ')
        if (strcspn(names, " ") == n && !strncmp(names, name, n)) return true;
    return false;
}

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

/* Ranges hold for the number as it was sent, before any rounding. */
static bool read_value(const wf_json *v, const char *name, const row *w, wf_params *p, wf_http_error *r)
{
    p->given |= w->given;
    if (w->kind == BOOL) {
        if (!wf_json_is(v, WF_JSON_BOOL)) return wf_refuse(r, 400, name, "%s must be true or false", name);
        put(p, w, wf_json_is_true(v), 0);
        return true;
    }
    double x = wf_json_number(v);
    if (!wf_json_is_number(v) || (w->kind >= I32 && !wf_is_whole(v)))
        return wf_refuse(r, 400, name, "%s must be a %s", name, w->kind >= I32 ? "whole number" : "number");
    if (w->kind == SEED) {
        /* What is no real is in range; a number beyond that was rounded to one, perhaps to an end of the range. */
        double value = wf_json_number(v);
        bool exact = v->kind < WF_JSON_BIG;
        if (!exact && (v->kind == WF_JSON_BIG || !(value > w->min && value < w->max)))
            return wf_refuse(r, 400, name, "%s is %.15g, but must be from -2^63 to 2^64-1", name, value);
        if (value == -1) p->given &= ~w->given; /* a new one, as where none is sent */
        put(p, w, value, exact ? (int64_t)v->u : value < 0 ? (int64_t)value : (int64_t)(uint64_t)value);
        return true;
    }
    if (!(x >= w->min && x <= w->max))
        return wf_refuse(r, 400, name, "%s is %.15g, but must be from %.15g to %.15g", name, x, w->min, w->max);
    put(p, w, x, wf_json_is(v, WF_JSON_INT) ? wf_json_int(v) : (int64_t)x);
    return true;
}

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

/* By whichever of its names it was sent. */
static bool read_row(const wf_json *body, const row *w, wf_params *p, wf_http_error *r)
{
    char name[48], sent[48] = "";
    const wf_json *first = NULL;
    for (const char *at = w->names; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        wf_copy(name, n + 1, at);
        at += n;
        const wf_json *v = wf_field(body, name);
        if (v && first && !same_value(first, v))
            return wf_refuse(r, 400, name, "%s is another name of %s: send one of them", name, sent);
        if (v && !read_value(v, name, w, p, r)) return false;
        if (v && !first) first = v, wf_copy(sent, sizeof sent, name);
    }
    return true;
}

static bool read_rows(const wf_served *s, const wf_json *body, wf_params *p, wf_http_error *r)
{
    for (size_t i = 0; i < WF_LEN(rows); i++) put(p, &rows[i], rows[i].initial, (int64_t)rows[i].initial);
    p->sampling = s->sampling;
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        if (rows[i].where & (p->chat ? CHAT : TEXT) && !read_row(body, &rows[i], p, r)) return false;
    }
    return true;
}

enum { MOST_FIELDS = 1000 }; /* each is looked for among all names */

/* ---- what is not read --------------------------------------------------------------------------------------- */

bool wf_is_neutral(const wf_json *v, const char *neutral)
{
    wf_json *values = wf_json_read(neutral, strlen(neutral), NULL, NULL);
    bool found = false;
    WF_JSON_EACH(one, values) found |= same_value(v, one);
    wf_json_free(values);
    return found;
}

static const other *find_other(const char *name, enum wf_where here)
{
    for (size_t i = 0; i < WF_LEN(others); i++)
        if (others[i].where & here && is_listed(others[i].names, name)) return &others[i];
    return NULL;
}

bool wf_fields_refuse(wf_http_error *r, const char *name, const char *why)
{
    wf_refuse(r, 400, name, "%.80s is not supported: %s", name, why);
    r->code = "unsupported_parameter";
    return false;
}

static bool check_unknown(wf_server *s, const char *name, wf_http_error *r)
{
    if (!wf_allows(s, "unknown-fields", NULL))
        return wf_fields_refuse(r, name, "this server does not know it; --allow-unknown-fields would pass over it");
    /* Says it once, as long as there is room to remember it. */
    bool fresh = true;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n_unknown; i++) fresh &= strncmp(s->unknown[i], name, sizeof s->unknown[i] - 1) != 0;
    fresh &= s->n_unknown < WF_LEN(s->unknown);
    if (fresh) wf_copy(s->unknown[s->n_unknown++], sizeof s->unknown[0], name);
    pthread_mutex_unlock(&s->lock);
    if (fresh) wf_log(WEFT_LOG_WARN, "requests have the unknown field '%.47s', which is ignored", name);
    return true;
}

static bool is_row(const char *name, enum wf_where here)
{
    for (size_t i = 0; i < WF_LEN(rows); i++)
        if (rows[i].where & here && is_listed(rows[i].names, name)) return true;
    return false;
}

bool wf_fields_check(wf_server *s, const wf_json *body, enum wf_where here, wf_http_error *r)
{
    const wf_json *options = wf_field(body, "stream_options");
    char path[80];
    if (body->n > MOST_FIELDS || (wf_json_is(options, WF_JSON_OBJECT) && options->n > MOST_FIELDS))
        return wf_refuse(r, 400, "", "a request has at most %d fields", MOST_FIELDS);
    WF_JSON_EACH_MEMBER(m, body) {
        const char *name = m->name.text;
        if (wf_json_absent(&m->value) || is_row(name, here)) continue;
        const other *o = find_other(name, here);
        if (!o && !check_unknown(s, name, r)) return false;
        if (o && o->neutral && !wf_is_neutral(&m->value, o->neutral)) return wf_fields_refuse(r, name, o->instead);
    }
    /* The last of these pads chunks, which is for secrecy and changes no text. */
    WF_JSON_EACH_MEMBER(m, options) {
        snprintf(path, sizeof path, "stream_options.%s", m->name.text);
        if (!is_listed("include_usage continuous_usage_stats include_obfuscation", m->name.text) &&
            !check_unknown(s, path, r))
            return false;
    }
    return true;
}

bool wf_fields_pass(const wf_json *body, enum wf_where here, wf_text *out, wf_http_error *r)
{
    if (body->n > MOST_FIELDS) return wf_refuse(r, 400, "", "a request has at most %d fields", MOST_FIELDS);
    WF_JSON_EACH_MEMBER(m, body) {
        const other *o = wf_json_absent(&m->value) ? NULL : find_other(m->name.text, here);
        if (o && o->neutral && !wf_is_neutral(&m->value, o->neutral))
            return wf_fields_refuse(r, m->name.text, o->instead);
        if (o || wf_json_absent(&m->value)) continue;
        wf_json_put_member(out, m->name.text, &m->value);
    }
    return true;
}

bool wf_fields_read(const wf_served *s, const wf_json *body, wf_params *p, wf_http_error *r)
{
    if (!read_rows(s, body, p, r)) return false;
    const char *name = WF_GIVEN(p, MAX_COMPLETION) ? "max_completion_tokens" : "max_tokens";
    if (WF_GIVEN(p, MAX_COMPLETION)) p->max_tokens = p->max_completion_tokens, p->given |= WF_GIVEN_MAX_TOKENS;
    if (WF_GIVEN(p, MAX_TOKENS) && !p->max_tokens && !p->echo && !p->may_only_cache)
        return wf_refuse(r, 400, name, "%s must be at least 1, or -1 for no limit (0 is possible with echo)", name);
    if (WF_GIVEN(p, BEST_OF) && p->best_of != p->n)
        return wf_refuse(r, WF_UNSUPPORTED, "best_of", "best_of other than n is not supported: leave it out");
    if (p->top_logprobs && !p->chat_logprobs)
        return wf_refuse(r, 400, "top_logprobs", "top_logprobs needs logprobs to be true");
    if (p->max_tokens > 0 && p->min_tokens > p->max_tokens)
        return wf_refuse(r, 400, "min_tokens", "min_tokens is larger than max_tokens");
    return true;
}
