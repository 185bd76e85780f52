/* fields: the fields of requests that are one value are rows of a table, so that each one is checked and each error names its field.
 * Unknown fields are ignored, as in other servers, and logged once. */
#include "serve/internal.h"

#include <math.h>
#include <string.h>

json_t *wf_field(const json_t *body, const char *name)
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
    unsigned given; /* its bit, where it makes a difference whether it is given */
} row;

#define AT(member) offsetof(wf_params, member)
#define MANY       2147483647.0

static const row rows[] = {
    {"temperature", REAL, BOTH, AT(temperature), 1, 0, 100},
    {"top_p", REAL, BOTH, AT(top_p), 1, 0, 1},
    {"min_p", REAL, BOTH, AT(min_p), 0, 0, 1},
    {"top_k", WHOLE, BOTH, AT(top_k), 0, -1, MANY},
    {"presence_penalty", REAL, BOTH, AT(presence_penalty), 0, -2, 2},
    {"frequency_penalty", REAL, BOTH, AT(frequency_penalty), 0, -2, 2},
    {"repetition_penalty", REAL, BOTH, AT(repetition_penalty), 1, 1e-3, 2},
    {"n", WHOLE, BOTH, AT(n), 1, 1, 128},
    {"priority", WHOLE, BOTH, AT(priority), 0, -1000, 1000},
    {"best_of", WHOLE, TEXT, AT(best_of), 0, 1, 128, WF_GIVEN_BEST_OF},
    {"max_tokens", WHOLE, BOTH, AT(max_tokens), 0, 0, MANY, WF_GIVEN_MAX_TOKENS},
    {"max_completion_tokens", WHOLE, CHAT, AT(max_completion_tokens), 0, 1, MANY, WF_GIVEN_MAX_COMPLETION},
    {"min_tokens", WHOLE, BOTH, AT(min_tokens), 0, 0, MANY},
    {"seed", WHOLE, BOTH, AT(seed), 0, -0x1p63, 0x1p63, WF_GIVEN_SEED},
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
    if (w->kind == REAL)
        memcpy(at, &v, sizeof v);
    else if (w->kind == WHOLE)
        memcpy(at, &whole, sizeof whole);
    else
        *(bool *)at = v != 0;
}

/* Ranges hold for the number as it was sent, before any rounding. */
static bool read_row(const json_t *body, const row *w, wf_params *p, wf_http_error *r)
{
    json_t *v = wf_field(body, w->name);
    if (!v) return true;
    p->given |= w->given;
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

static bool check_together(wf_params *p, wf_http_error *r)
{
    if (WF_GIVEN(p, MAX_COMPLETION)) p->max_tokens = p->max_completion_tokens, p->given |= WF_GIVEN_MAX_TOKENS;
    if (WF_GIVEN(p, MAX_TOKENS) && !p->max_tokens && !p->echo)
        return wf_refuse(r, 400, "max_tokens",
                         "max_tokens must be at least 1 (0 is possible with echo)");
    if (p->top_p == 0) return wf_refuse(r, 400, "top_p", "top_p must be above 0 and at most 1");
    if (WF_GIVEN(p, BEST_OF) && p->best_of != p->n)
        return wf_refuse(r, 501, "best_of", "best_of other than n is not supported: leave it out");
    if (p->top_logprobs && !p->chat_logprobs)
        return wf_refuse(r, 400, "top_logprobs", "top_logprobs needs logprobs to be true");
    if (WF_GIVEN(p, MAX_TOKENS) && p->max_tokens && p->min_tokens > p->max_tokens)
        return wf_refuse(r, 400, "min_tokens", "min_tokens is larger than max_tokens");
    return true;
}

bool wf_fields_read(const json_t *body, wf_params *p, wf_http_error *r)
{
    return read_rows(body, p, r) && check_together(p, r);
}

/* ---- unknown fields -------------------------------------------------------------------------------------- */

/* Those that are more than one value, and those that may be ignored in silence. */
static const struct {
    const char *name;
    enum where where;
} others[] = {
    {"model", BOTH}, {"prompt", TEXT}, {"messages", CHAT}, {"stop", BOTH}, {"stop_token_ids", BOTH}, {"logit_bias", BOTH}, {"stream_options", BOTH},
    {"suffix", BOTH}, {"tools", BOTH}, {"tool_choice", BOTH}, {"parallel_tool_calls", CHAT}, {"response_format", BOTH}, {"chat_template_kwargs", CHAT}, {"user", BOTH},
};

static bool is_known(const char *name, bool chat)
{
    enum where not_here = chat ? TEXT : CHAT;
    for (size_t i = 0; i < WF_LEN(rows); i++)
        if (rows[i].where != not_here && !strcmp(rows[i].name, name)) return true;
    for (size_t i = 0; i < WF_LEN(others); i++)
        if (others[i].where != not_here && !strcmp(others[i].name, name)) return true;
    return false;
}

/* Is it new, and is there room to remember it? */
static bool remember(wf_server *s, const char *name)
{
    bool fresh = true;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n_unknown; i++) fresh &= strncmp(s->unknown[i], name, sizeof s->unknown[i] - 1) != 0;
    fresh &= s->n_unknown < WF_LEN(s->unknown);
    if (fresh) wf_copy(s->unknown[s->n_unknown++], sizeof s->unknown[0], name);
    pthread_mutex_unlock(&s->lock);
    return fresh;
}

void wf_fields_unknown(wf_server *s, const json_t *body, bool chat)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)body, name, value)
        if (!is_known(name, chat) && remember(s, name)) wf_log(WEFT_LOG_WARN, "requests have the unknown field '%.47s', which is ignored", name);
}
