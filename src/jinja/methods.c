/* methods: of strings, dicts, lists and loops, as Python's. Those that would change their object are missing. */
#include "jinja/internal.h"

static const wf_jstr *chars_of(wf_jrun *r, wf_jvalue v, wf_jstr *chars)
{
    if (!wf_jgiven(v) || v.kind == WF_JNONE) return NULL;
    *chars = wf_jarg_str(r, v, "chars");
    return chars;
}

wf_jvalue wf_jbuiltin_strip(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jstr s = wf_jto_str(r, self), chars;
    return wf_jstring(r, wf_jstr_strip(r, s, chars_of(r, a->v[0], &chars), (unsigned)a->option));
}

wf_jvalue wf_jbuiltin_case(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    return wf_jstring(r, wf_jstr_case(r, wf_jto_str(r, self), (enum wf_jcase)a->option));
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
        s = wf_jstr_strip(r, s, NULL, 1);
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

static size_t find_last(wf_jrun *r, wf_jstr s, wf_jstr what)
{
    for (size_t i = what.len <= s.len ? s.len - what.len + 1 : 0; i-- > 0;) {
        if (what.len && s.p[i] != what.p[0]) continue;
        wf_jstep(r, what.len / 64);
        if (!memcmp(s.p + i, what.p, what.len)) return i;
    }
    return SIZE_MAX;
}

static void split_from_end(wf_jrun *r, wf_jstr s, wf_jstr gap, int64_t most, wf_jlist *l)
{
    size_t found;
    wf_jlist back = {0};
    for (; most && (found = find_last(r, s, gap)) != SIZE_MAX; most -= most > 0) {
        push_part(r, &back, s, found + gap.len, s.len);
        s = wf_jstr_sub(s, 0, found);
    }
    push_part(r, &back, s, 0, s.len);
    while (back.n) wf_jpush(r, l, back.v[--back.n]);
}

/* option: from the end */
static wf_jvalue str_split(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jvalue out = wf_jlist_new(r, WF_JLIST);
    wf_jstr gap;
    int64_t most = wf_jarg_int(r, a->v[1], -1, "maxsplit");
    bool words = !chars_of(r, a->v[0], &gap);
    if (!words && !gap.len) wf_jfail(r, WEFT_ERR_ARG, "split needs a separator that is not empty");
    if (words && a->option && most >= 0)
        wf_jfail(r, WEFT_ERR_UNSUPPORTED, "rsplit at white space with a limit is not supported");
    if (words) split_words(r, *self.s, most, out.l);
    else if (a->option) split_from_end(r, *self.s, gap, most, out.l);
    else split_at(r, *self.s, gap, most, out.l);
    return out;
}

static wf_jvalue str_splitlines(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jvalue out = wf_jlist_new(r, WF_JLIST);
    wf_jstr line, end;
    for (size_t at = 0, begin = 0; wf_jstr_line(*self.s, &at, &line, &end); begin = at)
        push_part(r, out.l, *self.s, begin, wf_jarg_true(a->v[0], false) ? at : begin + line.len);
    return out;
}

/* The parts before, of and behind the separator; option: the last one. */
static wf_jvalue str_partition(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jstr s = *self.s, gap = wf_jarg_str(r, a->v[0], "sep");
    wf_jvalue parts = wf_jlist_new(r, WF_JTUPLE);
    if (!gap.len) wf_jfail(r, WEFT_ERR_ARG, "partition needs a separator that is not empty");
    size_t at = a->option ? find_last(r, s, gap) : wf_jstr_find(s, gap, 0), n = gap.len;
    if (at == SIZE_MAX) at = a->option ? 0 : s.len, n = 0;
    push_part(r, parts.l, s, 0, at);
    push_part(r, parts.l, s, at, at + n);
    push_part(r, parts.l, s, at + n, s.len);
    return parts;
}

/* ---- looking for something --------------------------------------------------------------------------------------- */

static bool has_affix(wf_jstr s, wf_jstr x, bool suffix)
{
    return s.len >= x.len && !memcmp(s.p + (suffix ? s.len - x.len : 0), x.p, x.len);
}

/* One text or a tuple of them; from the character start on. option: it is a suffix */
static wf_jvalue str_begins_or_ends(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jvalue bounds[3] = {a->v[1], a->v[2], wf_jnone()};
    wf_jstr s = wf_jgiven(a->v[1]) ? *wf_jslice(r, self, bounds).s : *self.s;
    const wf_jlist one = {a->v, 1, 1}, *all = a->v[0].kind == WF_JTUPLE ? a->v[0].l : &one;
    bool found = false;
    for (size_t i = 0; i < all->n; i++) found |= has_affix(s, wf_jarg_str(r, all->v[i], "prefix or suffix"), a->option);
    return wf_jbool(found);
}

/* option: it is a suffix */
static wf_jvalue str_remove(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jstr s = *self.s, x = wf_jarg_str(r, a->v[0], a->option ? "suffix" : "prefix");
    if (!has_affix(s, x, a->option)) return self;
    return wf_jstring(r, a->option ? wf_jstr_sub(s, 0, s.len - x.len) : wf_jstr_sub(s, x.len, s.len));
}

static int64_t character(wf_jstr s, size_t at)
{
    return at == SIZE_MAX ? -1 : (int64_t)wf_jstr_count(wf_jstr_sub(s, 0, at));
}

/* option: it must be there */
static wf_jvalue str_find(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jstr s = *self.s, what = wf_jarg_str(r, a->v[0], "sub");
    int64_t start = wf_jarg_int(r, a->v[1], 0, "start"), n = (int64_t)wf_jlength(r, self);
    if (start < 0) start = WF_MAX(start + n, 0);
    size_t at = start > n ? SIZE_MAX : wf_jstr_find(s, what, wf_jstr_offset(s, (size_t)start));
    if (at == SIZE_MAX && a->option) wf_jfail(r, WEFT_ERR_ARG, "index: the text is not in the string");
    return wf_jint(character(s, at));
}

static wf_jvalue str_rfind(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    return wf_jint(character(*self.s, find_last(r, *self.s, wf_jarg_str(r, a->v[0], "sub"))));
}

static wf_jvalue str_count(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jstr what = wf_jarg_str(r, a->v[0], "sub");
    int64_t n = 0;
    if (!what.len) return wf_jint((int64_t)wf_jlength(r, self) + 1);
    for (size_t at = 0; (at = wf_jstr_find(*self.s, what, at)) != SIZE_MAX; at += what.len) n++;
    return wf_jint(n);
}

/* Is all of it of these classes? option: enum wf_jclass */
static wf_jvalue str_is(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    bool all = self.s->len;
    (void)r;
    for (size_t at = 0, n; all && at < self.s->len; at += n) all = wf_jchar_is(wf_jchar(self.s->p + at, &n), a->option);
    return wf_jbool(all);
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

/* option: 1 the text is at the left, 2 at the right, 3 in the middle */
wf_jvalue wf_jbuiltin_justify(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jstr s = wf_jto_str(r, self), fill = wf_jgiven(a->v[1]) ? wf_jarg_str(r, a->v[1], "fillchar") : wf_jstr_of(" ");
    int64_t width = WF_MAX(wf_jarg_int(r, a->v[0], 80, "width"), 0), missing = width - (int64_t)wf_jstr_count(s);
    wf_jbuf b = {.r = r};
    if (wf_jstr_count(fill) != 1) wf_jfail(r, WEFT_ERR_ARG, "fillchar must be one character");
    int64_t left = a->option == 1 ? 0 : a->option == 2 ? missing : missing / 2 + (missing & width & 1);
    for (int64_t i = 0; i < missing; i++) {
        if (i == left) wf_jbuf_str(&b, s);
        wf_jbuf_str(&b, fill);
    }
    if (missing <= left || missing <= 0) wf_jbuf_str(&b, s);
    return wf_jstring(r, wf_jbuf_take(&b));
}

static wf_jvalue str_zfill(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    int64_t missing = WF_MAX(wf_jarg_int(r, a->v[0], 0, "width"), 0) - (int64_t)wf_jlength(r, self);
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
    {"strip", wf_jbuiltin_strip, {"chars"}, .option = 3},
    {"lstrip", wf_jbuiltin_strip, {"chars"}, .option = 1},
    {"rstrip", wf_jbuiltin_strip, {"chars"}, .option = 2},
    {"upper", wf_jbuiltin_case, .option = WF_JUPPER},
    {"lower", wf_jbuiltin_case, .option = WF_JLOWER},
    {"title", wf_jbuiltin_case, .option = WF_JTITLE},
    {"capitalize", wf_jbuiltin_case, .option = WF_JCAPITALIZE},
    {"split", str_split, {"sep", "maxsplit"}},
    {"rsplit", str_split, {"sep", "maxsplit"}, .option = true},
    {"splitlines", str_splitlines, {"keepends"}},
    {"partition", str_partition, {"sep"}, 1},
    {"rpartition", str_partition, {"sep"}, 1, .option = true},
    {"startswith", str_begins_or_ends, {"prefix", "start", "end"}, 1},
    {"endswith", str_begins_or_ends, {"suffix", "start", "end"}, 1, .option = true},
    {"removeprefix", str_remove, {"prefix"}, 1},
    {"removesuffix", str_remove, {"suffix"}, 1, .option = true},
    {"find", str_find, {"sub", "start"}, 1},
    {"rfind", str_rfind, {"sub"}, 1},
    {"index", str_find, {"sub", "start"}, 1, .option = true},
    {"count", str_count, {"sub"}, 1},
    {"replace", str_replace, {"old", "new", "count"}, 2},
    {"join", str_join, {"iterable"}, 1},
    {"isdigit", str_is, .option = WF_JDIGIT},
    {"isdecimal", str_is, .option = WF_JDIGIT},
    {"isnumeric", str_is, .option = WF_JDIGIT},
    {"isalpha", str_is, .option = WF_JLETTER},
    {"isalnum", str_is, .option = WF_JLETTER | WF_JNUMBER},
    {"isspace", str_is, .option = WF_JSPACE},
    {"isupper", wf_jbuiltin_is_case, .option = WF_JUPPER},
    {"islower", wf_jbuiltin_is_case, .option = WF_JLOWER},
    {"ljust", wf_jbuiltin_justify, {"width", "fillchar"}, 1, .option = 1},
    {"rjust", wf_jbuiltin_justify, {"width", "fillchar"}, 1, .option = 2},
    {"center", wf_jbuiltin_justify, {"width", "fillchar"}, 1, .option = 3},
    {"zfill", str_zfill, {"width"}, 1},
    {"format", wf_jformat, .any = true},
};
static const wf_jbuiltin of_dicts[] = {
    {"get", dict_get, {"key", "default"}, 1},
    {"keys", wf_jbuiltin_list},
    {"values", wf_jbuiltin_items, .option = true},
    {"items", wf_jbuiltin_items},
    {"copy", copy},
};
static const wf_jbuiltin of_lists[] = {
    {"index", list_index, {"value"}, 1}, {"count", list_count, {"value"}, 1}, {"copy", copy}};
static const wf_jbuiltin of_loops[] = {{"cycle", loop_cycle, .any = true}, {"changed", loop_changed, .any = true}};

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
