/* print: values as text, as Python's str() and repr() write them. */
#include "jinja/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

/* The fewest digits that read back as the same number; with an exponent below 1e-4 and from 1e16 on. */
void wf_jfloat_text(double f, char out[40])
{
    char digits[32];
    int precision = 1, exponent;
    if (isnan(f) || isinf(f)) {
        snprintf(out, 40, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    do snprintf(digits, sizeof digits, "%.*e", precision - 1, f);
    while (strtod(digits, NULL) != f && precision++ < 17);
    exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent >= 16 || exponent < -4) {
        *strchr(digits, 'e') = 0;
        snprintf(out, 40, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent) % 1000);
        return;
    }
    int decimals = WF_MAX(precision - 1 - exponent, 1);
    snprintf(out, 40, "%.*f", WF_MIN(decimals, 25), f);
}

static bool printable(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL: case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return c == ' ';
    default: return true;
    }
}

static void repr_char(wf_jbuf *b, wf_jstr s, size_t at, size_t n, char quote)
{
    char text[16];
    size_t bytes;
    bool data = s.marks ? s.marks[at] : s.data;
    uint32_t c = wf_jchar(s.p + at, &bytes);
    const char *named = c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : c == '\\' ? "\\\\" : NULL;
    if (named) snprintf(text, sizeof text, "%s", named);
    else if (c == (uint8_t)quote) snprintf(text, sizeof text, "\\%c", quote);
    else if (printable(c)) snprintf(text, sizeof text, "%.*s", (int)n, s.p + at);
    else snprintf(text, sizeof text, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    wf_jbuf_add(b, text, strlen(text), data);
}

static void repr_string(wf_jbuf *b, wf_jstr s)
{
    bool data = s.marks ? s.marks[0] : s.data;
    char quote = memchr(s.p, '\'', s.len) && !memchr(s.p, '"', s.len) ? '"' : '\'';
    wf_jbuf_add(b, &quote, 1, data);
    for (size_t at = 0, n; at < s.len; at += n) {
        wf_jchar(s.p + at, &n);
        repr_char(b, s, at, n, quote);
    }
    wf_jbuf_add(b, &quote, 1, data);
}

static void repr_list(wf_jbuf *b, wf_jvalue v)
{
    bool tuple = v.kind == WF_JTUPLE;
    wf_jbuf_add(b, tuple ? "(" : "[", 1, v.data);
    for (size_t i = 0; i < v.l->n; i++) {
        if (i) wf_jbuf_add(b, ", ", 2, v.data);
        wf_jrepr(b, v.l->v[i]);
    }
    if (tuple && v.l->n == 1) wf_jbuf_add(b, ",", 1, v.data);
    wf_jbuf_add(b, tuple ? ")" : "]", 1, v.data);
}

static void repr_dict(wf_jbuf *b, wf_jvalue v)
{
    wf_jbuf_add(b, "{", 1, v.data);
    for (size_t i = 0; i < v.d->n; i++) {
        if (i) wf_jbuf_add(b, ", ", 2, v.data);
        wf_jrepr(b, v.d->e[i].key);
        wf_jbuf_add(b, ": ", 2, v.data);
        wf_jrepr(b, v.d->e[i].value);
    }
    wf_jbuf_add(b, "}", 1, v.data);
}

static void repr_scalar(wf_jbuf *b, wf_jvalue v)
{
    char text[64] = "";
    switch (v.kind) {
    case WF_JNONE: snprintf(text, sizeof text, "None"); break;
    case WF_JBOOL: snprintf(text, sizeof text, v.b ? "True" : "False"); break;
    case WF_JINT: snprintf(text, sizeof text, "%lld", (long long)v.i); break;
    case WF_JFLOAT: wf_jfloat_text(v.f, text); break;
    case WF_JUNDEFINED: case WF_JABSENT: snprintf(text, sizeof text, "Undefined"); break;
    default: snprintf(text, sizeof text, "<%s>", wf_jtype(v)); break;
    }
    wf_jbuf_add(b, text, strlen(text), v.data);
}

void wf_jrepr(wf_jbuf *b, wf_jvalue v)
{
    wf_jstep(b->r, 0);
    wf_jenter(b->r);
    if (v.kind == WF_JSTRING) repr_string(b, *v.s);
    else if (wf_jis_list(v)) repr_list(b, v);
    else if (v.kind == WF_JDICT) repr_dict(b, v);
    else repr_scalar(b, v);
    wf_jleave(b->r);
}

void wf_jprint(wf_jbuf *b, wf_jvalue v)
{
    if (v.kind == WF_JSTRING) wf_jbuf_str(b, *v.s);
    else if (v.kind != WF_JUNDEFINED) wf_jrepr(b, v);
}

wf_jstr wf_jto_str(wf_jrun *r, wf_jvalue v)
{
    wf_jbuf b = {.r = r};
    if (v.kind == WF_JSTRING) return *v.s;
    wf_jprint(&b, v);
    return wf_jbuf_take(&b);
}
