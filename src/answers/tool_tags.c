/* tool_tags: see the header. A value ends where its end tag is followed by another parameter or by what closes the
 * call, so values may have any tags in them, also such as these. */
#include "answers/tool_tags.h"
#include "answers/tool_forms.h"
#include "answers/tool_types.h"

#include <string.h>

#define MAX_NAME 256 /* bytes of a parameter's */
#define MAX_TYPE 16

/* ---- where parameters begin and end ---------------------------------------------------------------------- */

/* Does what closes the call stand there? At the end of the answer a part of it will do, if it cannot be the beginning
 * of a parameter. */
static enum wf_found closes(const wf_tag_scan *s, const char *close, wf_slice text, size_t at)
{
    enum wf_found f = wf_pass(text, &at, close);
    size_t left = text.n - wf_skip_blanks(text, at);
    if (f != WF_PARTLY || !s->ended) return f;
    return left >= 2 || (!left && !s->cut) ? WF_YES : WF_NO;
}

static enum wf_found pass_type(const wf_tags *t, wf_slice text, size_t *at, wf_tag_parameter *out)
{
    size_t p = *at;
    while (p < text.n && p - *at <= MAX_TYPE && text.p[p] >= 'a' && text.p[p] <= 'z') p++;
    if (p == text.n) return WF_PARTLY;
    if (p == *at || p - *at > MAX_TYPE) return WF_NO;
    out->type = wf_slice_is((wf_slice){text.p + *at, p - *at}, t->string) ? WF_TAG_STRING : WF_TAG_JSON;
    *at = p;
    return WF_YES;
}

/* The name, and *at moves to the value. */
static enum wf_found pass_key(const wf_tags *t, wf_slice text, size_t *at, wf_tag_parameter *out)
{
    size_t p = *at;
    enum wf_found f = wf_pass(text, &p, t->key);
    if (f != WF_YES) return f;
    size_t from = p;
    for (f = WF_NO; p < text.n && p - from <= MAX_NAME && (f = wf_look(text, p, t->behind_key)) == WF_NO;) p++;
    if (p - from > MAX_NAME || (f == WF_YES && p == from)) return WF_NO;
    if (f != WF_YES) return WF_PARTLY;
    out->name = from, out->n_name = p - from;
    p += strlen(t->behind_key);
    out->type = WF_TAG_UNTYPED;
    if (t->string) f = pass_type(t, text, &p, out);
    if (f == WF_YES && t->value) f = wf_pass(text, &p, t->value);
    if (f == WF_YES) *at = p;
    return f;
}

/* Is this the end of a value? *at moves behind it. */
static enum wf_found pass_end(const wf_tags *t, const char *close, wf_slice text, const wf_tag_scan *s, bool raw,
                              size_t *at)
{
    size_t p = *at;
    enum wf_found f = wf_look(text, p, raw ? t->raw[1] : t->end);
    if (f != WF_YES) return f;
    p += strlen(raw ? t->raw[1] : t->end);
    f = raw ? wf_pass(text, &p, t->end) : WF_YES;
    if (f != WF_YES) return f;
    *at = p;
    enum wf_found more = wf_pass(text, &p, t->key), last = closes(s, close, text, *at);
    return WF_MAX(more, last);
}

static enum wf_found pass_value(const wf_tags *t, const char *close, wf_slice text, wf_tag_scan *s, size_t *at,
                                wf_tag_parameter *out)
{
    enum wf_found f = t->raw[0] ? wf_pass(text, at, t->raw[0]) : WF_NO;
    if (f == WF_PARTLY && !s->ended) return f;
    out->raw = f == WF_YES;
    out->value = *at;
    s->search = WF_MAX(s->search, *at);
    for (f = WF_NO; s->search < text.n; s->search++) {
        *at = s->search;
        if ((f = pass_end(t, close, text, s, out->raw, at)) != WF_NO) break;
    }
    out->n_value = s->search - out->value;
    return f == WF_YES ? f : WF_PARTLY;
}

static enum wf_found pass_parameter(const wf_tags *t, const char *close, wf_slice text, wf_tag_scan *s)
{
    size_t at = s->at;
    wf_tag_parameter p;
    enum wf_found f = s->n < WF_MAX_PARAMETERS ? pass_key(t, text, &at, &p) : WF_NO;
    if (f == WF_YES) f = pass_value(t, close, text, s, &at, &p);
    if (f != WF_YES) return f;
    s->of[s->n++] = p;
    s->at = at;
    s->search = 0;
    return f;
}

enum wf_found wf_tags_scan(const wf_tags *t, const char *close, wf_slice text, wf_tag_scan *s)
{
    enum wf_found end, f = WF_YES;
    while ((end = closes(s, close, text, s->at)) != WF_YES && f == WF_YES) f = pass_parameter(t, close, text, s);
    return end == WF_YES ? end : WF_MAX(end, f);
}

/* ---- as JSON --------------------------------------------------------------------------------------------- */

static bool same(wf_slice a, wf_slice b) { return a.n == b.n && !memcmp(a.p, b.p, a.n); }

/* As JSON, also where Python's words and lists stand for its own; else as a string. */
static void put_value(wf_text *out, wf_slice value)
{
    wf_slice bare = wf_trim(value);
    bool python = bare.n && *bare.p && strchr("[{TFN", *bare.p);
    if (wf_json_whole(bare.p, bare.n)) wf_text_add(out, bare.p, bare.n);
    else if (!python || !wf_python_json(bare, out)) wf_json_put_string(out, value.p, value.n);
}

void wf_tag_value(wf_slice value, bool string, wf_text *out)
{
    if (string) wf_json_put_string(out, value.p, value.n);
    else put_value(out, value);
}

static wf_slice name_of(wf_slice text, const wf_tag_parameter *p) { return (wf_slice){text.p + p->name, p->n_name}; }

static bool comes_again(wf_slice text, const wf_tag_scan *s, unsigned i)
{
    for (unsigned k = i + 1; k < s->n; k++)
        if (same(name_of(text, &s->of[i]), name_of(text, &s->of[k]))) return true;
    return false;
}

void wf_tags_json(const wf_tags *t, wf_slice text, const wf_tag_scan *s, wf_slice tool, const wf_text *types,
                  wf_text *out)
{
    const char *strings = wf_tool_strings(types, tool);
    wf_text_add(out, "{", 1);
    for (unsigned i = 0; i < s->n; i++) {
        const wf_tag_parameter *p = &s->of[i];
        wf_slice name = name_of(text, p), value = {text.p + p->value, p->n_value};
        if (comes_again(text, s, i)) continue;
        bool lines = t->lines && !p->raw;
        if (lines && value.n && *value.p == '\n') value.p++, value.n--;
        if (lines && value.n && value.p[value.n - 1] == '\n') value.n--;
        if (out->len > 1) wf_text_add(out, ", ", 2);
        wf_json_print(out, "%.*s: ", (int)name.n, name.p);
        wf_tag_value(value, p->type == WF_TAG_STRING || (p->type == WF_TAG_UNTYPED && wf_tool_string_in(strings, name)),
                     out);
    }
    wf_text_add(out, "}", 1);
}
