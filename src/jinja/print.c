/* print: values as text, as Python's str(), repr() and, with the settings of transformers, json.dumps write them. */
#include "jinja/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

typedef struct writer {
    wf_jbuf *b;
    const wf_jjson_style *style; /* of JSON; NULL: repr() */
    size_t level;
} writer;

static void put_value(writer *w, wf_jvalue v);

/* ---- numbers, words, strings ------------------------------------------------------------------------------------- */

/* The fewest digits that read back as the same number; with an exponent below 1e-4 and from 1e16 on. */
static void float_text(double f, char out[40])
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

static void put_escaped(writer *w, uint32_t c, bool data)
{
    static const char plain[] = "\"\\\n\r\t\f\b", names[] = "\"\\nrtfb";
    char text[16];
    const char *named = c && c < 128 ? strchr(plain, (int)c) : NULL;
    if (named) snprintf(text, sizeof text, "\\%c", names[named - plain]);
    else if (c < 0x10000) snprintf(text, sizeof text, "\\u%04x", c);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + ((c - 0x10000) & 0x3FF));
    wf_jbuf_add(w->b, text, strlen(text), data);
}

static void json_string(writer *w, wf_jstr s)
{
    bool data = s.marks ? s.marks[0] : s.data;
    size_t from = 0, at = 0;
    wf_jbuf_add(w->b, "\"", 1, data);
    for (size_t n; at < s.len; at += n) {
        uint32_t c = wf_jchar(s.p + at, &n);
        bool escaped = c < 0x20 || c == '"' || c == '\\' || (w->style->ensure_ascii && c > 126);
        if (!escaped) continue;
        wf_jbuf_str(w->b, wf_jstr_sub(s, from, at));
        put_escaped(w, c, s.marks ? s.marks[at] : s.data);
        from = at + n;
    }
    wf_jbuf_str(w->b, wf_jstr_sub(s, from, at));
    wf_jbuf_add(w->b, "\"", 1, data);
}

static void put_scalar(writer *w, wf_jvalue v)
{
    const char *digits = v.digits ? w->b->r->digits[v.digits - 1] : NULL;
    if (digits) {
        wf_jbuf_add(w->b, digits, strlen(digits), v.data);
        return;
    }
    bool json = w->style;
    char text[64];
    switch (v.kind) {
    case WF_JNONE: snprintf(text, sizeof text, json ? "null" : "None"); break;
    case WF_JBOOL: snprintf(text, sizeof text, "%s", json ? (v.b ? "true" : "false") : v.b ? "True" : "False"); break;
    case WF_JINT: snprintf(text, sizeof text, "%lld", (long long)v.i); break;
    case WF_JFLOAT:
        float_text(v.f, text);
        if (json && (isnan(v.f) || isinf(v.f)))
            snprintf(text, sizeof text, isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity");
        break;
    default:
        if (json) wf_jneed(w->b->r, v), wf_jfail(w->b->r, WEFT_ERR_ARG, "%s has no JSON", wf_jtype(v));
        bool undefined = v.kind == WF_JUNDEFINED || v.kind == WF_JABSENT;
        snprintf(text, sizeof text, undefined ? "Undefined" : "<%s>", wf_jtype(v));
        break;
    }
    wf_jbuf_add(w->b, text, strlen(text), v.data);
}

/* ---- lists and dicts --------------------------------------------------------------------------------------------- */

/* What stands between the members of data is data. */
static void put_gap(writer *w, wf_jstr gap, bool data)
{
    if (data) wf_jbuf_add(w->b, gap.p, gap.len, true);
    else wf_jbuf_str(w->b, gap);
}

static void put_break(writer *w, bool data)
{
    if (!w->style || !w->style->indent) return;
    wf_jbuf_add(w->b, "\n", 1, data);
    for (size_t i = 0; i < w->level; i++) put_gap(w, *w->style->indent, data);
}

/* Before the i-th member. */
static void put_comma(writer *w, size_t i, bool data)
{
    if (i) put_gap(w, w->style ? w->style->comma : wf_jstr_of(", "), data);
    put_break(w, data);
}

static void put_list(writer *w, wf_jvalue v)
{
    bool tuple = v.kind == WF_JTUPLE && !w->style;
    wf_jbuf_add(w->b, tuple ? "(" : "[", 1, v.data);
    w->level++;
    for (size_t i = 0; i < v.l->n; i++) {
        put_comma(w, i, v.data);
        put_value(w, v.l->v[i]);
    }
    w->level--;
    if (v.l->n) put_break(w, v.data);
    if (tuple && v.l->n == 1) wf_jbuf_add(w->b, ",", 1, v.data);
    wf_jbuf_add(w->b, tuple ? ")" : "]", 1, v.data);
}

/* In JSON, numbers, booleans and none are keys as they are written. */
static void put_key(writer *w, wf_jvalue key)
{
    if (!w->style || key.kind == WF_JSTRING) {
        put_value(w, key);
        return;
    }
    wf_jbuf_add(w->b, "\"", 1, key.data);
    put_scalar(w, key);
    wf_jbuf_add(w->b, "\"", 1, key.data);
}

static const wf_jentry *members(writer *w, const wf_jdict *d)
{
    if (!w->style || !w->style->sort_keys) return d->e;
    wf_jentry *e = wf_jalloc(w->b->r, d->n, sizeof *e);
    if (d->n) memcpy(e, d->e, d->n * sizeof *e);
    wf_jsort(w->b->r, e, d->n, false);
    return e;
}

static void put_dict(writer *w, wf_jvalue v)
{
    const wf_jentry *e = members(w, v.d);
    wf_jbuf_add(w->b, "{", 1, v.data);
    w->level++;
    for (size_t i = 0; i < v.d->n; i++) {
        put_comma(w, i, v.data);
        put_key(w, e[i].key);
        put_gap(w, w->style ? w->style->colon : wf_jstr_of(": "), v.data);
        put_value(w, e[i].value);
    }
    w->level--;
    if (v.d->n) put_break(w, v.data);
    wf_jbuf_add(w->b, "}", 1, v.data);
}

static void put_value(writer *w, wf_jvalue v)
{
    wf_jstep(w->b->r, 0);
    wf_jenter(w->b->r);
    if (v.kind == WF_JSTRING && w->style) json_string(w, *v.s);
    else if (v.kind == WF_JSTRING) repr_string(w->b, *v.s);
    else if (wf_jis_list(v)) put_list(w, v);
    else if (v.kind == WF_JDICT) put_dict(w, v);
    else put_scalar(w, v);
    wf_jleave(w->b->r);
}

wf_jvalue wf_jjson_write(wf_jrun *r, wf_jvalue v, const wf_jjson_style *style)
{
    wf_jbuf b = {.r = r};
    put_value(&(writer){.b = &b, .style = style}, v);
    return wf_jstring(r, wf_jbuf_take(&b));
}

void wf_jrepr(wf_jbuf *b, wf_jvalue v) { put_value(&(writer){.b = b}, v); }

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
