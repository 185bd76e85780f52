/* text: see the header. */
#include "answers/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void wf_text_add(wf_text *t, const char *data, size_t len)
{
    if (t->failed) return;
    if (t->len + len + 1 > t->cap) {
        size_t cap = WF_MAX(t->cap * 2, t->len + len + 256);
        char *grown = realloc(t->data, cap);
        if (!grown) {
            t->failed = true;
            return;
        }
        t->data = grown;
        t->cap = cap;
    }
    if (len) memcpy(t->data + t->len, data, len);
    t->data[t->len += len] = 0;
}

void wf_text_print(wf_text *t, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    wf_text_add(t, line, WF_MIN((size_t)WF_MAX(n, 0), sizeof line - 1));
}

json_t *wf_json_string(const char *data, size_t len)
{
    if (wf_utf8_valid(data, len) == len) return json_stringn_nocheck(data, len);
    char *clean = wf_utf8_clean(data, len, &len);
    json_t *out = clean ? json_stringn_nocheck(clean, len) : NULL;
    free(clean);
    return out;
}

static int add_json(const char *data, size_t len, void *text)
{
    wf_text_add(text, data, len);
    return 0;
}

bool wf_text_dump(wf_text *t, const json_t *json, size_t flags)
{
    if (!json || json_dump_callback(json, add_json, t, flags | JSON_COMPACT | JSON_ENCODE_ANY)) t->failed = true;
    return !t->failed;
}

bool wf_text_json(wf_text *t, const json_t *json)
{
    return wf_text_dump(t, json, WF_JSON_FLAGS);
}

void wf_text_string(wf_text *t, wf_slice s)
{
    json_t *string = wf_json_string(s.p, s.n);
    wf_text_json(t, string);
    json_decref(string);
}

/* How many of a real's digits tell it from others: 0.1 has 15, and is not to be 0.10000000000000001. */
static size_t digits_of_real(double x)
{
    char text[40];
    size_t n = 15;
    while (n < 17 && (snprintf(text, sizeof text, "%.*g", (int)n, x), strtod(text, NULL) != x)) n++;
    return n;
}

static size_t digits_of(const json_t *v);

/* The larger one. WF_MAX would count twice, and of what lies 40 levels deep 2^40 times. */
static size_t more_digits(size_t most, const json_t *v)
{
    size_t n = digits_of(v);
    return n > most ? n : most;
}

/* What all reals of a value need. */
static size_t digits_of(const json_t *v)
{
    size_t most = json_is_real(v) ? digits_of_real(json_real_value(v)) : 15;
    const char *name;
    json_t *member;
    for (size_t i = 0; i < json_array_size(v); i++) most = more_digits(most, json_array_get(v, i));
    json_object_foreach((json_t *)v, name, member) most = more_digits(most, member);
    return most;
}

bool wf_text_exact(wf_text *t, const json_t *json)
{
    return wf_text_dump(t, json, JSON_REAL_PRECISION(digits_of(json)));
}
