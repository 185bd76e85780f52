/* filters_text: filters of strings. What is no string is made one first, as jinja2 does. */
#include "jinja/internal.h"

#include <utf8proc.h>

static wf_jvalue filter_trim(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    bool all = !wf_jgiven(a->v[0]) || a->v[0].kind == WF_JNONE;
    wf_jstr chars = all ? wf_jstr_of("") : wf_jarg_str(r, a->v[0], "chars");
    wf_jstr s = wf_jto_str(r, self);
    wf_jstep(r, s.len / 64);
    return wf_jstring(r, wf_jstr_strip(s, all ? NULL : &chars, 3));
}

static wf_jvalue filter_upper(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    (void)a;
    return wf_jstring(r, wf_jstr_case(r, wf_jto_str(r, self), WF_JUPPER));
}

static wf_jvalue filter_lower(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    (void)a;
    return wf_jstring(r, wf_jstr_case(r, wf_jto_str(r, self), WF_JLOWER));
}

static wf_jvalue filter_capitalize(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    (void)a;
    return wf_jstring(r, wf_jstr_case(r, wf_jto_str(r, self), WF_JCAPITALIZE));
}

static wf_jvalue filter_title(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    (void)a;
    return wf_jstring(r, wf_jstr_title(r, wf_jto_str(r, self)));
}

static wf_jvalue filter_replace(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    int64_t count = a->v[2].kind == WF_JNONE ? -1 : wf_jarg_int(r, a->v[2], -1, "count");
    return wf_jstring(r, wf_jstr_replace(r, wf_jto_str(r, self), wf_jto_str(r, a->v[0]), wf_jto_str(r, a->v[1]), count));
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
    for (size_t i = 0; i < a->n_kw; i++) wf_jdict_set(r, args.d, wf_jstring(r, a->kw[i].name->text), a->kw[i].value);
    return wf_jpercent(r, wf_jto_str(r, self), args);
}

static wf_jvalue filter_wordcount(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jstr s = wf_jto_str(r, self);
    int64_t n = 0;
    bool inside = false;
    (void)a;
    wf_jstep(r, s.len / 16);
    for (size_t at = 0, len; at < s.len; at += len) {
        uint32_t c = wf_jchar(s.p + at, &len);
        utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
        bool word = c == '_' || (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) || (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
        n += word && !inside;
        inside = word;
    }
    return wf_jint(n);
}

const wf_jbuiltin wf_jfilters_text[] = {
    {"trim", filter_trim, {"chars"}, 0, false},
    {"upper", filter_upper, {NULL}, 0, false},
    {"lower", filter_lower, {NULL}, 0, false},
    {"capitalize", filter_capitalize, {NULL}, 0, false},
    {"title", filter_title, {NULL}, 0, false},
    {"replace", filter_replace, {"old", "new", "count"}, 2, false},
    {"indent", filter_indent, {"width", "first", "blank"}, 0, false},
    {"format", filter_format, {NULL}, 0, true},
    {"wordcount", filter_wordcount, {NULL}, 0, false},
};
const size_t wf_jn_filters_text = WF_LEN(wf_jfilters_text);
