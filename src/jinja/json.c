/* json: values as JSON, as Python's json.dumps writes them with the settings of transformers. */
#include "jinja/internal.h"

#include <math.h>
#include <stdio.h>

typedef struct writer {
    wf_jbuf b;
    const wf_jjson_style *style;
    size_t level;
} writer;

static void put_value(writer *w, wf_jvalue v);

static void put_escaped(writer *w, uint32_t c, bool data)
{
    static const char plain[] = "\"\\\n\r\t\f\b", names[] = "\"\\nrtfb";
    char text[16];
    const char *named = c && c < 128 ? strchr(plain, (int)c) : NULL;
    if (named) snprintf(text, sizeof text, "\\%c", names[named - plain]);
    else if (c < 0x10000) snprintf(text, sizeof text, "\\u%04x", c);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + ((c - 0x10000) & 0x3FF));
    wf_jbuf_add(&w->b, text, strlen(text), data);
}

static void put_string(writer *w, wf_jstr s)
{
    bool data = s.marks ? s.marks[0] : s.data;
    size_t from = 0, at = 0;
    wf_jbuf_add(&w->b, "\"", 1, data);
    for (size_t n; at < s.len; at += n) {
        uint32_t c = wf_jchar(s.p + at, &n);
        bool escaped = c < 0x20 || c == '"' || c == '\\' || (w->style->ensure_ascii && c > 126);
        if (!escaped) continue;
        wf_jbuf_str(&w->b, wf_jstr_sub(s, from, at));
        put_escaped(w, c, s.marks ? s.marks[at] : s.data);
        from = at + n;
    }
    wf_jbuf_str(&w->b, wf_jstr_sub(s, from, at));
    wf_jbuf_add(&w->b, "\"", 1, data);
}

static void put_scalar(writer *w, wf_jvalue v)
{
    char text[40];
    switch (v.kind) {
    case WF_JNONE: snprintf(text, sizeof text, "null"); break;
    case WF_JBOOL: snprintf(text, sizeof text, v.b ? "true" : "false"); break;
    case WF_JINT: snprintf(text, sizeof text, "%lld", (long long)v.i); break;
    case WF_JFLOAT:
        wf_jfloat_text(v.f, text);
        if (isnan(v.f) || isinf(v.f))
            snprintf(text, sizeof text, isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity");
        break;
    default: wf_jneed(w->b.r, v); wf_jfail(w->b.r, WEFT_ERR_ARG, "%s has no JSON", wf_jtype(v));
    }
    wf_jbuf_add(&w->b, text, strlen(text), v.data);
}

/* What stands between the members of data is data. */
static void put_gap(writer *w, wf_jstr gap, bool data)
{
    if (data) wf_jbuf_add(&w->b, gap.p, gap.len, true);
    else wf_jbuf_str(&w->b, gap);
}

static void put_break(writer *w, bool data)
{
    if (!w->style->indent) return;
    wf_jbuf_add(&w->b, "\n", 1, data);
    for (size_t i = 0; i < w->level; i++) put_gap(w, *w->style->indent, data);
}

static void put_list(writer *w, wf_jvalue v)
{
    wf_jbuf_add(&w->b, "[", 1, v.data);
    w->level++;
    for (size_t i = 0; i < v.l->n; i++) {
        if (i) put_gap(w, w->style->comma, v.data);
        put_break(w, v.data);
        put_value(w, v.l->v[i]);
    }
    w->level--;
    if (v.l->n) put_break(w, v.data);
    wf_jbuf_add(&w->b, "]", 1, v.data);
}

/* Numbers, booleans and none are keys as they are written. */
static void put_key(writer *w, wf_jvalue key)
{
    if (key.kind == WF_JSTRING) {
        put_string(w, *key.s);
        return;
    }
    wf_jbuf_add(&w->b, "\"", 1, key.data);
    put_scalar(w, key);
    wf_jbuf_add(&w->b, "\"", 1, key.data);
}

static const wf_jentry *members(writer *w, const wf_jdict *d)
{
    if (!w->style->sort_keys) return d->e;
    wf_jentry *e = wf_jalloc(w->b.r, d->n, sizeof *e);
    if (d->n) memcpy(e, d->e, d->n * sizeof *e);
    wf_jsort(w->b.r, e, d->n, false);
    return e;
}

static void put_dict(writer *w, wf_jvalue v)
{
    const wf_jentry *e = members(w, v.d);
    wf_jbuf_add(&w->b, "{", 1, v.data);
    w->level++;
    for (size_t i = 0; i < v.d->n; i++) {
        if (i) put_gap(w, w->style->comma, v.data);
        put_break(w, v.data);
        put_key(w, e[i].key);
        put_gap(w, w->style->colon, v.data);
        put_value(w, e[i].value);
    }
    w->level--;
    if (v.d->n) put_break(w, v.data);
    wf_jbuf_add(&w->b, "}", 1, v.data);
}

static void put_value(writer *w, wf_jvalue v)
{
    wf_jstep(w->b.r, 0);
    wf_jenter(w->b.r);
    if (v.kind == WF_JSTRING) put_string(w, *v.s);
    else if (wf_jis_list(v)) put_list(w, v);
    else if (v.kind == WF_JDICT) put_dict(w, v);
    else put_scalar(w, v);
    wf_jleave(w->b.r);
}

wf_jvalue wf_jjson_write(wf_jrun *r, wf_jvalue v, const wf_jjson_style *style)
{
    writer w = {.b = {.r = r}, .style = style};
    put_value(&w, v);
    return wf_jstring(r, wf_jbuf_take(&w.b));
}
