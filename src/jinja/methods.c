/* methods: of strings, dicts, lists and loops, as Python's. Those that would change their object are missing. */
#include "jinja/internal.h"

#include <utf8proc.h>

static const wf_jstr *chars_of(wf_jrun *r, wf_jvalue v, wf_jstr *chars)
{
    if (!wf_jgiven(v) || v.kind == WF_JNONE) return NULL;
    *chars = wf_jarg_str(r, v, "chars");
    return chars;
}

static wf_jvalue strip(wf_jrun *r, wf_jvalue self, const wf_jargs *a, unsigned sides)
{
    wf_jstr chars;
    wf_jstep(r, self.s->len / 64);
    return wf_jstring(r, wf_jstr_strip(*self.s, chars_of(r, a->v[0], &chars), sides));
}

static wf_jvalue str_strip(wf_jrun *r, wf_jvalue self, const wf_jargs *a) { return strip(r, self, a, 3); }
static wf_jvalue str_lstrip(wf_jrun *r, wf_jvalue self, const wf_jargs *a) { return strip(r, self, a, 1); }
static wf_jvalue str_rstrip(wf_jrun *r, wf_jvalue self, const wf_jargs *a) { return strip(r, self, a, 2); }
static wf_jvalue str_upper(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    (void)a;
    return wf_jstring(r, wf_jstr_case(r, *self.s, WF_JUPPER));
}
static wf_jvalue str_lower(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    (void)a;
    return wf_jstring(r, wf_jstr_case(r, *self.s, WF_JLOWER));
}
static wf_jvalue str_title(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    (void)a;
    return wf_jstring(r, wf_jstr_case(r, *self.s, WF_JTITLE));
}
static wf_jvalue str_capitalize(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    (void)a;
    return wf_jstring(r, wf_jstr_case(r, *self.s, WF_JCAPITALIZE));
}

/* ---- splitting --------------------------------------------------------------------------------------------------- */

static void push_part(wf_jrun *r, wf_jlist *l, wf_jstr s, size_t begin, size_t end)
{
    wf_jstep(r, (end - begin) / 64);
    wf_jpush(r, l, wf_jstring(r, wf_jstr_sub(s, begin, end)));
}

/* At white space. most < 0: no limit. */
static void split_words(wf_jrun *r, wf_jstr s, int64_t most, wf_jlist *l)
{
    for (;; most -= most > 0) {
        s = wf_jstr_strip(s, NULL, 1);
        if (!s.len) return;
        size_t end = 0, n;
        if (!most) end = s.len;
        for (; most && end < s.len && !wf_jspace(wf_jchar(s.p + end, &n)); end += n) {}
        push_part(r, l, s, 0, end);
        s = wf_jstr_sub(s, most ? end : s.len, s.len);
    }
}

static void split_at(wf_jrun *r, wf_jstr s, wf_jstr gap, int64_t most, wf_jlist *l)
{
    size_t at = 0, found;
    for (; most && (found = wf_jstr_find(s, gap, at)) != SIZE_MAX; most -= most > 0) {
        push_part(r, l, s, at, found);
        at = found + gap.len;
    }
    push_part(r, l, s, at, s.len);
}

static size_t find_last(wf_jstr s, wf_jstr what)
{
    for (size_t i = what.len <= s.len ? s.len - what.len + 1 : 0; i-- > 0;)
        if (!memcmp(s.p + i, what.p, what.len)) return i;
    return SIZE_MAX;
}

static void split_from_end(wf_jrun *r, wf_jstr s, wf_jstr gap, int64_t most, wf_jlist *l)
{
    size_t found;
    wf_jlist back = {0};
    for (; most && (found = find_last(s, gap)) != SIZE_MAX; most -= most > 0) {
        push_part(r, &back, s, found + gap.len, s.len);
        s = wf_jstr_sub(s, 0, found);
    }
    push_part(r, &back, s, 0, s.len);
    while (back.n) wf_jpush(r, l, back.v[--back.n]);
}

static wf_jvalue split(wf_jrun *r, wf_jvalue self, const wf_jargs *a, bool from_end)
{
    wf_jvalue out = wf_jlist_new(r, WF_JLIST);
    wf_jstr gap;
    int64_t most = wf_jarg_int(r, a->v[1], -1, "maxsplit");
    bool words = !chars_of(r, a->v[0], &gap);
    if (!words && !gap.len) wf_jfail(r, WEFT_ERR_ARG, "split needs a separator that is not empty");
    if (words && from_end && most >= 0)
        wf_jfail(r, WEFT_ERR_UNSUPPORTED, "rsplit at white space with a limit is not supported");
    if (words) split_words(r, *self.s, most, out.l);
    else if (from_end) split_from_end(r, *self.s, gap, most, out.l);
    else split_at(r, *self.s, gap, most, out.l);
    return out;
}

static wf_jvalue str_split(wf_jrun *r, wf_jvalue self, const wf_jargs *a) { return split(r, self, a, false); }
static wf_jvalue str_rsplit(wf_jrun *r, wf_jvalue self, const wf_jargs *a) { return split(r, self, a, true); }

static wf_jvalue str_splitlines(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jvalue out = wf_jlist_new(r, WF_JLIST);
    wf_jstr line, end;
    for (size_t at = 0, begin = 0; wf_jstr_line(*self.s, &at, &line, &end); begin = at)
        push_part(r, out.l, *self.s, begin, wf_jarg_true(a->v[0], false) ? at : begin + line.len);
    return out;
}

static wf_jvalue three_parts(wf_jrun *r, wf_jstr s, size_t found, size_t n, bool from_end)
{
    wf_jvalue t = wf_jlist_new(r, WF_JTUPLE);
    bool none = found == SIZE_MAX;
    push_part(r, t.l, s, 0, none ? (from_end ? 0 : s.len) : found);
    push_part(r, t.l, s, none ? 0 : found, none ? 0 : found + n);
    push_part(r, t.l, s, none ? (from_end ? 0 : s.len) : found + n, s.len);
    return t;
}

static wf_jvalue partition(wf_jrun *r, wf_jvalue self, const wf_jargs *a, bool from_end)
{
    wf_jstr gap = wf_jarg_str(r, a->v[0], "sep");
    if (!gap.len) wf_jfail(r, WEFT_ERR_ARG, "partition needs a separator that is not empty");
    return three_parts(r, *self.s, from_end ? find_last(*self.s, gap) : wf_jstr_find(*self.s, gap, 0), gap.len,
                       from_end);
}

static wf_jvalue str_partition(wf_jrun *r, wf_jvalue self, const wf_jargs *a) { return partition(r, self, a, false); }
static wf_jvalue str_rpartition(wf_jrun *r, wf_jvalue self, const wf_jargs *a) { return partition(r, self, a, true); }

/* ---- looking for something --------------------------------------------------------------------------------------- */

static bool begins(wf_jstr s, wf_jstr with) { return s.len >= with.len && !memcmp(s.p, with.p, with.len); }
static bool ends(wf_jstr s, wf_jstr with)
{
    return s.len >= with.len && !memcmp(s.p + s.len - with.len, with.p, with.len);
}

/* One text or a tuple of them; from the character start on. */
static wf_jvalue affix(wf_jrun *r, wf_jvalue self, const wf_jargs *a, bool (*has)(wf_jstr, wf_jstr))
{
    wf_jvalue bounds[3] = {a->v[1], a->v[2], wf_jnone()};
    wf_jstr s = wf_jgiven(a->v[1]) ? *wf_jslice(r, self, bounds).s : *self.s;
    bool found = false;
    if (a->v[0].kind != WF_JTUPLE) return wf_jbool(has(s, wf_jarg_str(r, a->v[0], "prefix or suffix")));
    for (size_t i = 0; i < a->v[0].l->n; i++) found |= has(s, wf_jarg_str(r, a->v[0].l->v[i], "prefix or suffix"));
    return wf_jbool(found);
}

static wf_jvalue str_startswith(wf_jrun *r, wf_jvalue self, const wf_jargs *a) { return affix(r, self, a, begins); }
static wf_jvalue str_endswith(wf_jrun *r, wf_jvalue self, const wf_jargs *a) { return affix(r, self, a, ends); }

static wf_jvalue str_removeprefix(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jstr x = wf_jarg_str(r, a->v[0], "prefix");
    return begins(*self.s, x) ? wf_jstring(r, wf_jstr_sub(*self.s, x.len, self.s->len)) : self;
}

static wf_jvalue str_removesuffix(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jstr x = wf_jarg_str(r, a->v[0], "suffix");
    return ends(*self.s, x) ? wf_jstring(r, wf_jstr_sub(*self.s, 0, self.s->len - x.len)) : self;
}

static int64_t character(wf_jstr s, size_t at)
{
    return at == SIZE_MAX ? -1 : (int64_t)wf_jstr_count(wf_jstr_sub(s, 0, at));
}

static wf_jvalue str_find(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    int64_t start = wf_jarg_int(r, a->v[1], 0, "start"), n = (int64_t)wf_jlength(r, self);
    if (start < 0) start = WF_MAX(start + n, 0);
    if (start > n) return wf_jint(-1);
    return wf_jint(character(
        *self.s, wf_jstr_find(*self.s, wf_jarg_str(r, a->v[0], "sub"), wf_jstr_offset(*self.s, (size_t)start))));
}

static wf_jvalue str_rfind(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jstep(r, self.s->len / 16);
    return wf_jint(character(*self.s, find_last(*self.s, wf_jarg_str(r, a->v[0], "sub"))));
}

static wf_jvalue str_index(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jvalue v = str_find(r, self, a);
    if (v.i < 0) wf_jfail(r, WEFT_ERR_ARG, "index: the text is not in the string");
    return v;
}

static wf_jvalue str_count(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jstr what = wf_jarg_str(r, a->v[0], "sub");
    int64_t n = 0;
    if (!what.len) return wf_jint((int64_t)wf_jlength(r, self) + 1);
    wf_jstep(r, self.s->len / 16);
    for (size_t at = 0; (at = wf_jstr_find(*self.s, what, at)) != SIZE_MAX; at += what.len) n++;
    return wf_jint(n);
}

/* ---- classes of characters --------------------------------------------------------------------------------------- */

static bool is_letter(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

static bool is_digit(uint32_t c) { return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND; }

static bool is_letter_or_number(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return is_letter(c) || (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
}

static wf_jvalue all_are(wf_jrun *r, wf_jstr s, bool (*is)(uint32_t))
{
    bool all = s.len;
    wf_jstep(r, s.len / 16);
    for (size_t at = 0, n; all && at < s.len; at += n) all = is(wf_jchar(s.p + at, &n));
    return wf_jbool(all);
}

static wf_jvalue str_isdigit(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    (void)a;
    return all_are(r, *self.s, is_digit);
}
static wf_jvalue str_isalpha(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    (void)a;
    return all_are(r, *self.s, is_letter);
}
static wf_jvalue str_isalnum(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    (void)a;
    return all_are(r, *self.s, is_letter_or_number);
}
static wf_jvalue str_isspace(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    (void)a;
    return all_are(r, *self.s, wf_jspace);
}

static wf_jvalue str_isupper(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    return wf_jbool(wf_jcall_test(r, wf_jstr_of("upper"), self, &(wf_jargs){.frame = a->frame}));
}
static wf_jvalue str_islower(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    return wf_jbool(wf_jcall_test(r, wf_jstr_of("lower"), self, &(wf_jargs){.frame = a->frame}));
}

/* ---- other strings ----------------------------------------------------------------------------------------------- */

static wf_jvalue str_replace(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    int64_t count = wf_jarg_int(r, a->v[2], -1, "count");
    return wf_jstring(
        r, wf_jstr_replace(r, *self.s, wf_jarg_str(r, a->v[0], "old"), wf_jarg_str(r, a->v[1], "new"), count));
}

static wf_jvalue str_join(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jneed(r, a->v[0]);
    const wf_jlist *l = wf_jiterate(r, a->v[0]);
    wf_jbuf b = {.r = r};
    for (size_t i = 0; i < l->n; i++) {
        if (i) wf_jbuf_str(&b, *self.s);
        wf_jbuf_str(&b, wf_jarg_str(r, l->v[i], "each of what is joined"));
    }
    return wf_jstring(r, wf_jbuf_take(&b));
}

/* side: 1 the text is at the left, 2 at the right. */
static wf_jvalue justify(wf_jrun *r, wf_jvalue self, const wf_jargs *a, unsigned side)
{
    wf_jstr fill = wf_jgiven(a->v[1]) ? wf_jarg_str(r, a->v[1], "fillchar") : wf_jstr_of(" ");
    int64_t width = wf_jarg_int(r, a->v[0], 0, "width"), missing = width - (int64_t)wf_jlength(r, self);
    wf_jbuf b = {.r = r};
    if (wf_jstr_count(fill) != 1) wf_jfail(r, WEFT_ERR_ARG, "fillchar must be one character");
    int64_t left = side == 1 ? 0 : side == 2 ? missing : missing / 2 + (missing & width & 1);
    for (int64_t i = 0; i < missing; i++) {
        if (i == left) wf_jbuf_str(&b, *self.s);
        wf_jbuf_str(&b, fill);
    }
    if (missing <= left || missing <= 0) wf_jbuf_str(&b, *self.s);
    return wf_jstring(r, wf_jbuf_take(&b));
}

static wf_jvalue str_ljust(wf_jrun *r, wf_jvalue self, const wf_jargs *a) { return justify(r, self, a, 1); }
static wf_jvalue str_rjust(wf_jrun *r, wf_jvalue self, const wf_jargs *a) { return justify(r, self, a, 2); }
static wf_jvalue str_center(wf_jrun *r, wf_jvalue self, const wf_jargs *a) { return justify(r, self, a, 3); }

static wf_jvalue str_zfill(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    int64_t missing = wf_jarg_int(r, a->v[0], 0, "width") - (int64_t)wf_jlength(r, self);
    size_t sign = self.s->len && strchr("+-", self.s->p[0]) && self.s->p[0];
    wf_jbuf b = {.r = r};
    wf_jbuf_str(&b, wf_jstr_sub(*self.s, 0, sign));
    for (; missing > 0; missing--) wf_jbuf_text(&b, "0");
    wf_jbuf_str(&b, wf_jstr_sub(*self.s, sign, self.s->len));
    return wf_jstring(r, wf_jbuf_take(&b));
}

/* ---- dicts, lists, loops ----------------------------------------------------------------------------------------- */

static wf_jvalue dict_get(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    const wf_jvalue *v = wf_jdict_get(r, self.d, a->v[0]);
    return v ? *v : wf_jgiven(a->v[1]) ? a->v[1] : wf_jnone();
}

static wf_jvalue dict_keys(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    (void)a;
    return WF_JVALUE(WF_JLIST, l, wf_jiterate(r, self));
}

static wf_jvalue dict_values(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jvalue out = wf_jlist_new(r, WF_JLIST);
    (void)a;
    for (size_t i = 0; i < self.d->n; i++) wf_jpush(r, out.l, self.d->e[i].value);
    return out;
}

static wf_jvalue dict_items(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    return wf_jcall_filter(r, wf_jstr_of("items"), self, &(wf_jargs){.frame = a->frame});
}

static wf_jvalue copy(wf_jrun *r, wf_jvalue self, const wf_jargs *a) { (void)r, (void)a; return self; }

static wf_jvalue list_index(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    for (size_t i = 0; i < self.l->n; i++)
        if (wf_jequal(r, self.l->v[i], a->v[0])) return wf_jint((int64_t)i);
    wf_jfail(r, WEFT_ERR_ARG, "index: the value is not in the list");
}

static wf_jvalue list_count(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    int64_t n = 0;
    for (size_t i = 0; i < self.l->n; i++) n += wf_jequal(r, self.l->v[i], a->v[0]);
    return wf_jint(n);
}

static wf_jvalue loop_cycle(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    if (!a->n) wf_jfail(r, WEFT_ERR_ARG, "cycle needs values");
    return a->v[self.loop->index % a->n];
}

static wf_jvalue loop_changed(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jvalue now = wf_jlist_new(r, WF_JTUPLE);
    for (size_t i = 0; i < a->n; i++) wf_jpush(r, now.l, a->v[i]);
    bool same = wf_jgiven(self.loop->changed) && wf_jequal(r, now, self.loop->changed);
    self.loop->changed = now;
    return wf_jbool(!same);
}

static const wf_jbuiltin of_strings[] = {
    {"strip", str_strip, {"chars"}, 0, false},
    {"lstrip", str_lstrip, {"chars"}, 0, false},
    {"rstrip", str_rstrip, {"chars"}, 0, false},
    {"upper", str_upper, {NULL}, 0, false},
    {"lower", str_lower, {NULL}, 0, false},
    {"title", str_title, {NULL}, 0, false},
    {"capitalize", str_capitalize, {NULL}, 0, false},
    {"split", str_split, {"sep", "maxsplit"}, 0, false},
    {"rsplit", str_rsplit, {"sep", "maxsplit"}, 0, false},
    {"splitlines", str_splitlines, {"keepends"}, 0, false},
    {"partition", str_partition, {"sep"}, 1, false},
    {"rpartition", str_rpartition, {"sep"}, 1, false},
    {"startswith", str_startswith, {"prefix", "start", "end"}, 1, false},
    {"endswith", str_endswith, {"suffix", "start", "end"}, 1, false},
    {"removeprefix", str_removeprefix, {"prefix"}, 1, false},
    {"removesuffix", str_removesuffix, {"suffix"}, 1, false},
    {"find", str_find, {"sub", "start"}, 1, false},
    {"rfind", str_rfind, {"sub"}, 1, false},
    {"index", str_index, {"sub", "start"}, 1, false},
    {"count", str_count, {"sub"}, 1, false},
    {"replace", str_replace, {"old", "new", "count"}, 2, false},
    {"join", str_join, {"iterable"}, 1, false},
    {"isdigit", str_isdigit, {NULL}, 0, false},
    {"isdecimal", str_isdigit, {NULL}, 0, false},
    {"isnumeric", str_isdigit, {NULL}, 0, false},
    {"isalpha", str_isalpha, {NULL}, 0, false},
    {"isalnum", str_isalnum, {NULL}, 0, false},
    {"isspace", str_isspace, {NULL}, 0, false},
    {"isupper", str_isupper, {NULL}, 0, false},
    {"islower", str_islower, {NULL}, 0, false},
    {"ljust", str_ljust, {"width", "fillchar"}, 1, false},
    {"rjust", str_rjust, {"width", "fillchar"}, 1, false},
    {"center", str_center, {"width", "fillchar"}, 1, false},
    {"zfill", str_zfill, {"width"}, 1, false},
    {"format", wf_jformat, {NULL}, 0, true},
};
static const wf_jbuiltin of_dicts[] = {
    {"get", dict_get, {"key", "default"}, 1, false},
    {"keys", dict_keys, {NULL}, 0, false},
    {"values", dict_values, {NULL}, 0, false},
    {"items", dict_items, {NULL}, 0, false},
    {"copy", copy, {NULL}, 0, false},
};
static const wf_jbuiltin of_lists[] = {{"index", list_index, {"value"}, 1, false},
                                       {"count", list_count, {"value"}, 1, false},
                                       {"copy", copy, {NULL}, 0, false}};
static const wf_jbuiltin of_loops[] = {{"cycle", loop_cycle, {NULL}, 0, true},
                                       {"changed", loop_changed, {NULL}, 0, true}};

const wf_jbuiltin *wf_jmethod_find(wf_jvalue self, wf_jstr name)
{
    switch (self.kind) {
    case WF_JSTRING: return wf_jrow_find(of_strings, WF_LEN(of_strings), name);
    case WF_JDICT: return wf_jrow_find(of_dicts, WF_LEN(of_dicts), name);
    case WF_JLIST: return wf_jrow_find(of_lists, WF_LEN(of_lists), name);
    case WF_JTUPLE: return wf_jrow_find(of_lists, 2, name);
    case WF_JLOOP: return wf_jrow_find(of_loops, WF_LEN(of_loops), name);
    default: return NULL;
    }
}
