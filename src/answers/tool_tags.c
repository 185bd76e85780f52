/* tool_tags: see the header. A value ends where its end tag is followed by another parameter or by what closes the
 * call, so values may have any tags in them, also such as these. Models leave end tags out: then a value ends before
 * the line that opens a parameter or a call that is known, unless what it opens is closed within the value. */
#include "answers/tool_tags.h"
#include "answers/tool_forms.h"
#include "answers/tool_types.h"

#include <string.h>

#define MAX_NAME 256 /* bytes of a parameter's */
#define MAX_TYPE 16
#define MAX_CUTS 16 /* each looks through what may be most of the text */

/* ---- where parameters begin and end ---------------------------------------------------------------------- */

/* Does a call of a known tool begin there? */
static enum wf_found opens_call(const wf_tag_call *c, wf_slice text, size_t at)
{
    enum wf_found wrap = c->wrap[0] ? wf_pass(text, &at, c->wrap[0]) : WF_NO, f = wf_pass(text, &at, c->open);
    if (f != WF_YES) return f == WF_NO && wrap == WF_PARTLY ? wrap : f;
    size_t from = wf_skip_blanks(text, at), p = from;
    while (p < text.n && wf_tool_name_good(text.p + from, p + 1 - from)) p++;
    if (p == text.n) return WF_PARTLY;
    if (!wf_tool_strings(c->types, (wf_slice){text.p + from, p - from})) return WF_NO;
    return c->behind_name ? wf_pass(text, &p, c->behind_name) : WF_YES;
}

/* Does what closes the call stand there? At the end of the answer a part of it will do, if it cannot be the beginning
 * of a parameter. */
static enum wf_found pass_close(const wf_tag_scan *s, const char *close, wf_slice text, size_t *at)
{
    enum wf_found f = wf_pass(text, at, close);
    size_t left = text.n - wf_skip_blanks(text, *at);
    if (f != WF_PARTLY || !s->ended) return f;
    *at = text.n;
    return left >= 2 || (!left && !s->cut) ? WF_YES : WF_NO;
}

/* The same where that is missing: all calls are closed, and then the answer ends or another call begins; or a line
 * begins one. */
static enum wf_found lacks_close(const wf_tag_scan *s, const wf_tag_call *c, wf_slice text, size_t at)
{
    size_t line = wf_skip_blanks(text, at);
    enum wf_found f = c->wrap[1] ? pass_close(s, c->wrap[1], text, &at) : WF_NO;
    if (f == WF_PARTLY || (f == WF_YES && wf_skip_blanks(text, at) == text.n && s->ended)) return f;
    if (f == WF_NO && (!line || text.p[line - 1] != '\n')) return WF_NO;
    f = opens_call(c, text, at);
    return f == WF_PARTLY && s->ended ? WF_NO : f;
}

/* *end: behind it. */
static enum wf_found closes(const wf_tag_scan *s, const wf_tag_call *c, wf_slice text, size_t at, size_t *end)
{
    *end = at;
    enum wf_found f = pass_close(s, c->close, text, end), lack = WF_NO;
    if (f == WF_YES || (!s->n && at == s->at)) return f; /* without parameters there is nothing to repair */
    lack = lacks_close(s, c, text, at);
    if (lack == WF_YES) *end = at;
    return WF_MAX(f, lack);
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
static enum wf_found pass_end(const wf_tags *t, const wf_tag_call *c, wf_slice text, const wf_tag_scan *s, bool raw,
                              size_t *at)
{
    size_t p = *at, end;
    enum wf_found f = wf_look(text, p, raw ? t->raw[1] : t->end);
    if (f != WF_YES) return f;
    p += strlen(raw ? t->raw[1] : t->end);
    f = raw ? wf_pass(text, &p, t->end) : WF_YES;
    if (f != WF_YES) return f;
    *at = p;
    enum wf_found more = wf_pass(text, &p, t->key), last = closes(s, c, text, *at, &end);
    return WF_MAX(more, last);
}

/* ---- end tags that are missing --------------------------------------------------------------------------- */

static bool opens_parameter(const wf_tags *t, const char *known, wf_slice text, size_t at)
{
    wf_tag_parameter p;
    return pass_key(t, text, &at, &p) == WF_YES &&
           wf_tool_declares(known, (wf_slice){text.p + p.name, p.n_name});
}

/* The first line in a value that opens what is not closed in it, or the end of the value. *call: it opens a call. */
static size_t find_opened(const wf_tags *t, const wf_tag_call *c, wf_slice text, size_t from, size_t end, bool *call)
{
    const wf_slice value = {text.p, end};
    const char *known = wf_tool_strings(c->types, c->tool);
    size_t first = end;
    unsigned depth = 0;
    for (size_t at = from; at < end; at++) {
        bool line = at > from && text.p[at - 1] == '\n', tag = text.p[at] == *t->end || text.p[at] == *c->close;
        bool closed = tag && (wf_look(value, at, t->end) == WF_YES || wf_look(value, at, c->close) == WF_YES);
        if (closed && depth && !--depth) first = end;
        if (!line || closed) continue;
        bool calls = opens_call(c, value, at) == WF_YES;
        if (!calls && !opens_parameter(t, known, value, at)) continue;
        if (!depth++) first = at, *call = calls;
    }
    return first;
}

/* Where the text ends without this marker behind it, and blanks. */
static size_t without(wf_slice text, size_t end, const char *marker)
{
    size_t n = marker ? strlen(marker) : 0, p = end;
    while (p && wf_is_blank(text.p[p - 1])) p--;
    return n && p >= n && wf_look(text, p - n, marker) == WF_YES ? p - n : end;
}

/* A value that seems to reach up to `end`, behind which *at is, ends where a line begins what is not of it. */
static void cut_value(const wf_tags *t, const wf_tag_call *c, wf_slice text, wf_tag_scan *s, size_t end, size_t *at,
                      wf_tag_parameter *out)
{
    bool call = false;
    for (; s->n_cut < MAX_CUTS; s->n_cut++) {
        size_t first = find_opened(t, c, text, out->value, end, &call);
        if (first == end) break;
        *at = call ? without(text, without(text, first, c->wrap[1]), c->close) : first;
        end = *at = WF_MAX(*at, out->value);
        if (!t->lines && end > out->value && text.p[end - 1] == '\n') end--;
    }
    out->n_value = end - out->value;
}

/* The answer has ended without an end tag of its last value: a line that closes the call ends that, too. */
static enum wf_found end_value(const wf_tags *t, const wf_tag_call *c, wf_slice text, wf_tag_scan *s, size_t *at,
                               wf_tag_parameter *out)
{
    size_t end = without(text, text.n, c->wrap[1]), close = without(text, end, c->close);
    if (close == end || close <= out->value || text.p[close - 1] != '\n') return WF_PARTLY;
    *at = close;
    cut_value(t, c, text, s, close, at, out);
    return WF_YES;
}

static enum wf_found pass_value(const wf_tags *t, const wf_tag_call *c, wf_slice text, wf_tag_scan *s, size_t *at,
                                wf_tag_parameter *out)
{
    enum wf_found f = t->raw[0] ? wf_pass(text, at, t->raw[0]) : WF_NO;
    if (f == WF_PARTLY && !s->ended) return f;
    out->raw = f == WF_YES;
    out->value = *at;
    s->search = WF_MAX(s->search, *at);
    for (f = WF_NO; s->search < text.n; s->search++) {
        *at = s->search;
        if ((f = pass_end(t, c, text, s, out->raw, at)) != WF_NO) break;
    }
    out->n_value = s->search - out->value;
    if (f == WF_YES && !out->raw) cut_value(t, c, text, s, s->search, at, out);
    if (f == WF_YES) return f;
    return s->ended && !s->cut && !out->raw ? end_value(t, c, text, s, at, out) : WF_PARTLY;
}

static enum wf_found pass_parameter(const wf_tags *t, const wf_tag_call *c, wf_slice text, wf_tag_scan *s)
{
    size_t at = s->at;
    wf_tag_parameter p;
    enum wf_found f = s->n < WF_MAX_PARAMETERS ? pass_key(t, text, &at, &p) : WF_NO;
    if (f == WF_YES) f = pass_value(t, c, text, s, &at, &p);
    if (f != WF_YES) return f;
    s->of[s->n++] = p;
    s->at = at;
    s->search = 0;
    return f;
}

enum wf_found wf_tags_scan(const wf_tags *t, const wf_tag_call *c, wf_slice text, wf_tag_scan *s)
{
    enum wf_found end, f = WF_YES;
    while ((end = closes(s, c, text, s->at, &s->end)) != WF_YES && f == WF_YES) f = pass_parameter(t, c, text, s);
    return end == WF_YES ? end : WF_MAX(end, f);
}

/* ---- as JSON --------------------------------------------------------------------------------------------- */

static bool same(wf_slice a, wf_slice b) { return a.n == b.n && !memcmp(a.p, b.p, a.n); }

void wf_tag_value(wf_slice value, bool string, wf_text *out)
{
    if (string) wf_json_put_string(out, value.p, value.n);
    else {
        /* As JSON, also where Python's words and lists stand for its own; else as a string. */
        wf_slice bare = wf_trim(value);
        bool python = bare.n && *bare.p && strchr("[{TFN", *bare.p);
        if (wf_json_whole(bare.p, bare.n)) wf_text_add(out, bare.p, bare.n);
        else if (!python || !wf_python_json(bare, out)) wf_json_put_string(out, value.p, value.n);
    }
}

static wf_slice name_of(wf_slice text, const wf_tag_parameter *p) { return (wf_slice){text.p + p->name, p->n_name}; }

static bool comes_again(wf_slice text, const wf_tag_scan *s, unsigned i)
{
    for (unsigned k = i + 1; k < s->n; k++)
        if (same(name_of(text, &s->of[i]), name_of(text, &s->of[k]))) return true;
    return false;
}

void wf_tags_json(const wf_tags *t, const wf_tag_call *c, wf_slice text, const wf_tag_scan *s, wf_text *out)
{
    const char *strings = wf_tool_strings(c->types, c->tool);
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
