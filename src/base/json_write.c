/* json_write: writes JSON at the end of a text. See json.h. */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_raw(wf_text *t, const char *s) { wf_text_add(t, s, strlen(s)); }

void wf_json_put_string(wf_text *t, const char *data, size_t len)
{
    static const char plain[] = "\"\\\n\r\t\f\b", names[] = "\"\\nrtfb";
    size_t from = 0, n;
    if (!len) data = "";
    wf_text_add(t, "\"", 1);
    for (size_t at = 0; at < len; at += n) {
        unsigned char c = (unsigned char)data[at];
        char escape[8];
        n = c < 0x80 ? 1 : wf_utf8_len(data + at, len - at);
        if (n && c >= 0x20 && c != '"' && c != '\\') continue;
        wf_text_add(t, data + from, at - from);
        const char *named = n && c ? strchr(plain, c) : NULL;
        if (!n) n = 1, snprintf(escape, sizeof escape, "\xEF\xBF\xBD");
        else if (named) snprintf(escape, sizeof escape, "\\%c", names[named - plain]);
        else snprintf(escape, sizeof escape, "\\u%04x", c);
        put_raw(t, escape);
        from = at + n;
    }
    wf_text_add(t, data + from, len - from);
    wf_text_add(t, "\"", 1);
}

/* 0.1 has 15 digits and is not to be 0.10000000000000001; a few numbers need 17. A real stays one: 1 becomes 1.0. */
static void put_real(wf_text *t, double x, int digits)
{
    char text[40];
    if (!isfinite(x)) {
        put_raw(t, "null");
        return;
    }
    for (int n = digits ? digits : 15;; n++) {
        snprintf(text, sizeof text, "%.*g", n, x);
        if (digits || n == 17 || strtod(text, NULL) == x) break;
    }
    char *comma = strchr(text, ','); /* of a locale */
    if (comma) *comma = '.';
    if (!strpbrk(text, ".e")) wf_copy(text + strlen(text), 3, ".0");
    put_raw(t, text);
}

void wf_json_comma(wf_text *t)
{
    char last = t->len ? t->data[t->len - 1] : '[';
    if (last != '[' && last != '{') wf_text_add(t, ",", 1);
}

void wf_json_put_name(wf_text *t, const char *name)
{
    wf_json_comma(t);
    wf_json_put_string(t, name, strlen(name));
    wf_text_add(t, ":", 1);
}

void wf_json_put_member(wf_text *t, const char *name, const wf_json *v)
{
    wf_json_put_name(t, name);
    wf_json_put(t, v);
}

/* What stands behind % up to the letter that ends it. Returns the letter's place. */
static const char *put_argument(wf_text *t, const char *spec, va_list *ap)
{
    size_t n = strspn(spec, ".0123456789*lhz");
    char c = spec[n];
    if (c == 's') {
        size_t len = *spec == '.' ? (size_t)va_arg(*ap, int) : SIZE_MAX;
        const char *s = va_arg(*ap, const char *);
        if (s) wf_json_put_string(t, s, len == SIZE_MAX ? strlen(s) : len);
        else put_raw(t, "null");
    } else if (c == 'g') put_real(t, va_arg(*ap, double), *spec == '.' ? atoi(spec + 1) : 0);
    else if (*spec == 'h') put_raw(t, va_arg(*ap, int) ? "true" : "false");
    else if (c == 'u')
        wf_text_print(t, "%llu",
                      *spec == 'z'     ? va_arg(*ap, size_t)
                      : *spec != 'l'   ? va_arg(*ap, unsigned)
                      : spec[1] != 'l' ? va_arg(*ap, unsigned long)
                                       : va_arg(*ap, unsigned long long));
    else
        wf_text_print(t, "%lld",
                      *spec != 'l'     ? va_arg(*ap, int)
                      : spec[1] != 'l' ? va_arg(*ap, long)
                                       : va_arg(*ap, long long));
    return spec + n;
}

void wf_json_print(wf_text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    for (const char *p = fmt; *p; p++) {
        size_t n = strcspn(p, "'%");
        wf_text_add(t, p, n);
        p += n;
        if (!*p) break;
        if (*p == '\'') wf_text_add(t, "\"", 1);
        else p = put_argument(t, p + 1, &ap);
    }
    va_end(ap);
}

void wf_json_put(wf_text *t, const wf_json *v)
{
    switch (v ? (enum wf_json_kind)v->kind : WF_JSON_NULL) {
    case WF_JSON_NULL: put_raw(t, "null"); break;
    case WF_JSON_BOOL: put_raw(t, v->b ? "true" : "false"); break;
    case WF_JSON_INT: wf_text_print(t, "%lld", (long long)v->i); break;
    case WF_JSON_UINT: wf_text_print(t, "%llu", (unsigned long long)v->u); break;
    case WF_JSON_BIG: put_raw(t, v->text); break;
    case WF_JSON_REAL: put_real(t, v->real, 0); break;
    case WF_JSON_STRING: wf_json_put_string(t, v->text, v->n); break;
    case WF_JSON_LIST:
        wf_text_add(t, "[", 1);
        for (size_t i = 0; i < v->n; i++) wf_json_comma(t), wf_json_put(t, &v->list[i]);
        wf_text_add(t, "]", 1);
        break;
    case WF_JSON_OBJECT:
        wf_text_add(t, "{", 1);
        for (size_t i = 0; i < v->n; i++) {
            wf_json_comma(t);
            wf_json_put_string(t, v->members[i].name.text, v->members[i].name.n);
            wf_text_add(t, ":", 1);
            wf_json_put(t, &v->members[i].value);
        }
        wf_text_add(t, "}", 1);
        break;
    }
}
