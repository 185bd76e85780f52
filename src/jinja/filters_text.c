/* filters_text: filters of strings. What is no string is made one first, as jinja2 does. */
#include "jinja/internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static wf_jvalue filter_replace(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    int64_t count = a->v[2].kind == WF_JNONE ? -1 : wf_jarg_int(r, a->v[2], -1, "count");
    return wf_jstring(r,
                      wf_jstr_replace(r, wf_jto_str(r, self), wf_jto_str(r, a->v[0]), wf_jto_str(r, a->v[1]), count));
}

static wf_jvalue filter_indent(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jbuf b = {.r = r}, gap = {.r = r};
    wf_jstr s = wf_jto_str(r, self), line, end;
    bool string = a->v[0].kind == WF_JSTRING, blank = wf_jarg_true(a->v[2], false);
    for (int64_t i = string ? 0 : wf_jarg_int(r, a->v[0], 4, "width"); i > 0; i--) wf_jbuf_text(&gap, " ");
    wf_jstr step = string ? *a->v[0].s : wf_jbuf_take(&gap);
    size_t at = 0, n = 0;
    if (wf_jarg_true(a->v[1], false)) wf_jbuf_str(&b, step);
    for (; wf_jstr_line(s, &at, &line, &end); n++) {
        if (n) wf_jbuf_text(&b, "\n");
        if (n && (line.len || blank)) wf_jbuf_str(&b, step);
        wf_jbuf_str(&b, line);
    }
    bool ended = n && end.len; /* one more line, which is empty */
    if (ended) wf_jbuf_text(&b, "\n");
    if (ended && blank) wf_jbuf_str(&b, step);
    return wf_jstring(r, wf_jbuf_take(&b));
}

static wf_jvalue filter_format(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jlist l = {.v = a->v, .n = a->n};
    wf_jvalue args = WF_JVALUE(WF_JTUPLE, l, &l);
    if (a->n && a->n_kw) wf_jfail(r, WEFT_ERR_ARG, "format takes either names or none");
    if (a->n_kw) args = wf_jdict_new(r);
    for (size_t i = 0; i < a->n_kw; i++) wf_jdict_set(r, args.d, wf_jarg_name(r, &a->kw[i]), a->kw[i].value);
    return wf_jpercent(r, wf_jto_str(r, self), args);
}

static wf_jvalue filter_wordcount(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jstr s = wf_jto_str(r, self);
    int64_t n = 0;
    bool inside = false;
    (void)a;
    for (size_t at = 0, len; at < s.len; at += len) {
        uint32_t c = wf_jchar(s.p + at, &len);
        bool word = c == '_' || wf_jchar_is(c, WF_JLETTER | WF_JNUMBER);
        n += word && !inside;
        inside = word;
    }
    return wf_jint(n);
}

/* Cut at a space, unless killwords, where it is longer than length by more than leeway. */
static wf_jvalue filter_truncate(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jstr s = wf_jto_str(r, self), end = wf_jgiven(a->v[2]) ? wf_jarg_str(r, a->v[2], "end") : wf_jstr_of("...");
    bool fixed = wf_jgiven(a->v[3]) && a->v[3].kind != WF_JNONE;
    int64_t length = wf_jarg_int(r, a->v[0], 255, "length"), leeway = fixed ? wf_jarg_int(r, a->v[3], 5, "leeway") : 5,
            of_end = (int64_t)wf_jstr_count(end);
    if (length < of_end || leeway < 0)
        wf_jfail(r, WEFT_ERR_ARG, "truncate needs a length of at least that of its end, and a leeway of at least 0");
    if ((int64_t)wf_jstr_count(s) <= length || (int64_t)wf_jstr_count(s) - length <= leeway) return wf_jstring(r, s);
    size_t cut = wf_jstr_offset(s, (size_t)(length - of_end)), space = cut;
    while (space && s.p[space - 1] != ' ') space--;
    if (space && !wf_jarg_true(a->v[1], false)) cut = space - 1;
    wf_jbuf b = {.r = r};
    wf_jbuf_str(&b, wf_jstr_sub(s, 0, cut));
    wf_jbuf_str(&b, end);
    return wf_jstring(r, wf_jbuf_take(&b));
}

/* Text in place of a byte, with the byte's origin. */
static void put_for(wf_jbuf *b, wf_jstr s, size_t at, const char *text)
{
    wf_jbuf_add(b, text, strlen(text), s.marks ? s.marks[at] : s.data);
}

/* The result is a plain string: jinja2's is of a kind that escapes what is added to it. */
static wf_jvalue filter_escape(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    static const char marks[] = "&<>\"'", *const names[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    wf_jstr s = wf_jto_str(r, self);
    wf_jbuf b = {.r = r};
    (void)a;
    for (size_t at = 0; at < s.len; at++) {
        const char *mark = s.p[at] ? strchr(marks, s.p[at]) : NULL;
        if (mark) put_for(&b, s, at, names[mark - marks]);
        else wf_jbuf_str(&b, wf_jstr_sub(s, at, at + 1));
    }
    return wf_jstring(r, wf_jbuf_take(&b));
}

/* Without what stands between `open` and `close`, each time that both are there. */
static wf_jstr without(wf_jrun *r, wf_jstr s, const char *open, const char *close)
{
    wf_jbuf b = {.r = r};
    size_t at = 0, begin, end;
    while ((begin = wf_jstr_find(s, wf_jstr_of(open), at)) != SIZE_MAX &&
           (end = wf_jstr_find(s, wf_jstr_of(close), begin)) != SIZE_MAX) {
        wf_jbuf_str(&b, wf_jstr_sub(s, at, begin));
        at = end + strlen(close);
    }
    wf_jbuf_str(&b, wf_jstr_sub(s, at, s.len));
    return wf_jbuf_take(&b);
}

/* The text between comments and tags, its words with one space between; of entities, those that escape writes. */
static wf_jvalue filter_striptags(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    static const char *const entities[][2] = {
        {"&lt;", "<"}, {"&gt;", ">"}, {"&#34;", "\""}, {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}};
    wf_jstr s = without(r, without(r, wf_jto_str(r, self), "<!--", "-->"), "<", ">");
    wf_jbuf b = {.r = r};
    (void)a;
    for (size_t at = 0, n = 0, end; s = wf_jstr_strip(NULL, wf_jstr_sub(s, at, s.len), NULL, 1), s.len; at = end) {
        for (end = 0; end < s.len && !wf_jspace(wf_jchar(s.p + end, &n)); end += n) {}
        if (b.len) wf_jbuf_text(&b, " ");
        wf_jbuf_str(&b, wf_jstr_sub(s, 0, end));
    }
    s = wf_jbuf_take(&b);
    for (size_t i = 0; i < WF_LEN(entities); i++)
        s = wf_jstr_replace(r, s, wf_jstr_of(entities[i][0]), wf_jstr_of(entities[i][1]), -1);
    return wf_jstring(r, s);
}

/* Of a path; an entry's key or value has %2F for a slash and + for a space. */
static void put_quoted(wf_jbuf *b, wf_jstr s, bool entry)
{
    char code[4];
    for (size_t at = 0; at < s.len; at++) {
        uint8_t c = (uint8_t)s.p[at];
        bool plain = c < 128 && (isalnum(c) || (c && strchr("_.-~", c)) || (c == '/' && !entry));
        snprintf(code, sizeof code, "%%%02X", c);
        if (plain) wf_jbuf_str(b, wf_jstr_sub(s, at, at + 1));
        else put_for(b, s, at, entry && c == ' ' ? "+" : code);
    }
}

static wf_jvalue filter_urlencode(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jbuf b = {.r = r};
    (void)a;
    if (wf_jis_list(self)) wf_jfail(r, WEFT_ERR_ARG, "urlencode needs a text or a dictionary");
    if (self.kind != WF_JDICT) return put_quoted(&b, wf_jto_str(r, self), false), wf_jstring(r, wf_jbuf_take(&b));
    const wf_jlist *keys = wf_jiterate(r, self);
    for (size_t i = 0; i < keys->n; i++) {
        if (i) wf_jbuf_text(&b, "&");
        put_quoted(&b, wf_jto_str(r, keys->v[i]), true);
        wf_jbuf_text(&b, "=");
        put_quoted(&b, wf_jto_str(r, wf_jitem(r, self, keys->v[i])), true);
    }
    return wf_jstring(r, wf_jbuf_take(&b));
}

const wf_jbuiltin wf_jfilters_text[] = {
    {"trim", wf_jbuiltin_strip, {"chars"}, .option = 3},
    {"upper", wf_jbuiltin_case, .option = WF_JUPPER},
    {"lower", wf_jbuiltin_case, .option = WF_JLOWER},
    {"capitalize", wf_jbuiltin_case, .option = WF_JCAPITALIZE},
    {"title", wf_jbuiltin_case, .option = WF_JWORDS},
    {"replace", filter_replace, {"old", "new", "count"}, 2},
    {"indent", filter_indent, {"width", "first", "blank"}},
    {"format", filter_format, .any = true},
    {"center", wf_jbuiltin_justify, {"width"}, .option = 3},
    {"truncate", filter_truncate, {"length", "killwords", "end", "leeway"}},
    {"escape", filter_escape},
    {"e", filter_escape},
    {"striptags", filter_striptags},
    {"urlencode", filter_urlencode},
    {"wordcount", filter_wordcount},
};
const size_t wf_jn_filters_text = WF_LEN(wf_jfilters_text);
