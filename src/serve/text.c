/* text: growing buffers, JSON strings from any bytes, random ids. */
#include "serve/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

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

/* How many of a real's digits tell it from others: 0.1 has 15, and is not to be 0.10000000000000001. */
static size_t digits_of_real(double x)
{
    char text[40];
    size_t n = 15;
    while (n < 17 && (snprintf(text, sizeof text, "%.*g", (int)n, x), strtod(text, NULL) != x)) n++;
    return n;
}

/* What all reals of a value need. */
static size_t digits_of(const json_t *v)
{
    size_t most = json_is_real(v) ? digits_of_real(json_real_value(v)) : 15;
    const char *name;
    json_t *member;
    for (size_t i = 0; i < json_array_size(v); i++) most = WF_MAX(most, digits_of(json_array_get(v, i)));
    json_object_foreach((json_t *)v, name, member) most = WF_MAX(most, digits_of(member));
    return most;
}

bool wf_text_exact(wf_text *t, const json_t *json)
{
    return wf_text_dump(t, json, JSON_REAL_PRECISION(digits_of(json)));
}

void wf_random_hex(char out[33])
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) {
        static atomic_uint_fast64_t counter; /* the kernel has no entropy yet: unique is enough */
        uint64_t r[2] = {wf_random(wf_now_ns(), atomic_fetch_add(&counter, 1)), wf_now_ns()};
        memcpy(bytes, r, sizeof bytes);
    }
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* ---- refusals -------------------------------------------------------------------------------------------- */

static const char *type_of(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 500:
        return "server_error";
    case 501:
        return "not_supported_error";
    case 503:
        return "unavailable_error";
    case 504:
        return "timeout_error";
    default:
        return "invalid_request_error";
    }
}

static bool refuse(wf_http_error *r, int status, const char *param, const char *fmt, va_list ap)
{
    r->status = status;
    r->type = type_of(status);
    wf_copy(r->param, sizeof r->param, param);
    wf_format(r->message, sizeof r->message, fmt, ap);
    return false;
}

bool wf_refuse(wf_http_error *r, int status, const char *param, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    refuse(r, status, param, fmt, ap);
    va_end(ap);
    return false;
}

bool wf_refuse_unsupported(wf_http_error *r, const char *param, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    refuse(r, 400, param, fmt, ap);
    va_end(ap);
    r->code = "not_supported";
    return false;
}

json_t *wf_refusal_json(const wf_http_error *r)
{
    json_t *message = wf_json_string(r->message, strlen(r->message));
    json_t *param = r->param[0] ? wf_json_string(r->param, strlen(r->param)) : json_null();
    return json_pack("{s:{s:o,s:s,s:o,s:o}}", "error", "message", message, "type", r->type,
                     "param", param, "code",
                     r->code ? json_string(r->code) : json_integer(r->status));
}
