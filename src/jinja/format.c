/* format: "%s %d" % values, and "{} {name:>8}".format(values). */
#include "jinja/internal.h"

#include <math.h>
#include <stdio.h>

#define MAX_WIDTH 10000

typedef struct spec {
    char fill[5];
    char align, sign, type; /* 0: not given */
    bool alternate, grouped;
    int width, precision;   /* precision -1: not given */
} spec;

static _Noreturn void bad(wf_jrun *r, const char *what) { wf_jfail(r, WEFT_ERR_ARG, "format: %s", what); }

/* ---- one value --------------------------------------------------------------------------------------------------- */

static wf_jstr with_sign(wf_jrun *r, const spec *s, bool negative, const char *digits, bool data)
{
    wf_jbuf b = {.r = r};
    char sign = negative ? '-' : s->sign == '+' || s->sign == ' ' ? s->sign : 0;
    if (sign) wf_jbuf_add(&b, &sign, 1, data);
    wf_jbuf_add(&b, digits, strlen(digits), data);
    return wf_jbuf_take(&b);
}

static wf_jstr integer_text(wf_jrun *r, const spec *s, wf_jvalue v)
{
    char digits[96], plain[40];
    int64_t i = wf_jinteger(v);
    uint64_t u = i < 0 ? -(uint64_t)i : (uint64_t)i;
    if (s->type == 'x') snprintf(digits, sizeof digits, s->alternate ? "0x%llx" : "%llx", (unsigned long long)u);
    else if (s->type == 'X') snprintf(digits, sizeof digits, s->alternate ? "0X%llX" : "%llX", (unsigned long long)u);
    else if (s->type == 'o') snprintf(digits, sizeof digits, s->alternate ? "0o%llo" : "%llo", (unsigned long long)u);
    else {
        size_t n = (size_t)snprintf(plain, sizeof plain, "%llu", (unsigned long long)u), k = 0;
        for (size_t at = 0; at < n; at++) {
            if (s->grouped && at && (n - at) % 3 == 0) digits[k++] = ',';
            digits[k++] = plain[at];
        }
        digits[k] = 0;
    }
    return with_sign(r, s, i < 0, digits, v.data);
}

static wf_jstr value_text(wf_jrun *r, const spec *s, wf_jvalue v)
{
    wf_jbuf b = {.r = r};
    if (s->type && strchr("dixXou", s->type)) {
        if (v.digits && strchr("diu", s->type)) return wf_jto_str(r, v);
        if (v.kind == WF_JFLOAT && s->type != 'x' && fabs(v.f) < 0x1p63) v.i = (int64_t)v.f, v.kind = WF_JINT;
        if (!wf_jis_integer(v)) bad(r, "an integer is wanted");
        return integer_text(r, s, v);
    }
    if (s->type && strchr("eEfFgG%", s->type)) {
        if (!wf_jis_number(v)) bad(r, "a number is wanted");
        char digits[480], pattern[16];
        double f = wf_jreal(v);
        int precision = s->precision < 0 ? 6 : WF_MIN(s->precision, 100);
        if (s->type == '%') f *= 100;
        snprintf(pattern, sizeof pattern, "%%.*%c", s->type == '%' ? 'f' : s->type);
        snprintf(digits, sizeof digits - 2, pattern, precision, fabs(f));
        if (s->type == '%') strcat(digits, "%");
        return with_sign(r, s, signbit(f) && !isnan(f), digits, v.data);
    }
    if (s->type == 'r') return wf_jrepr(&b, v), wf_jbuf_take(&b);
    if ((s->grouped || s->sign) && v.kind == WF_JINT) return integer_text(r, s, v);
    wf_jstr text = wf_jto_str(r, v);
    return s->precision >= 0 && v.kind == WF_JSTRING ? wf_jstr_sub(text, 0, wf_jstr_offset(text, (size_t)s->precision))
                                                     : text;
}

static void put(wf_jbuf *b, const spec *s, wf_jvalue v)
{
    wf_jstr text = value_text(b->r, s, v);
    int64_t missing = s->width - (int64_t)wf_jstr_count(text);
    char align = s->align ? s->align : wf_jis_number(v) && v.kind != WF_JBOOL ? '>' : '<';
    size_t sign = align == '=' && text.len && strchr("+- ", text.p[0]) ? 1 : 0;
    wf_jbuf_str(b, wf_jstr_sub(text, 0, sign));
    int64_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
    for (int64_t i = 0; i < before; i++) wf_jbuf_text(b, s->fill);
    wf_jbuf_str(b, wf_jstr_sub(text, sign, text.len));
    for (int64_t i = before; i < missing; i++) wf_jbuf_text(b, s->fill);
}

static int number(wf_jrun *r, wf_jstr s, size_t *at)
{
    int n = 0;
    for (; *at < s.len && s.p[*at] >= '0' && s.p[*at] <= '9'; ++*at)
        if ((n = n * 10 + s.p[*at] - '0') > MAX_WIDTH) bad(r, "a width is too large");
    return n;
}

/* ---- % ----------------------------------------------------------------------------------------------------------- */

typedef struct arguments {
    wf_jvalue v;
    size_t next;
} arguments;

static wf_jvalue next_argument(wf_jrun *r, arguments *a)
{
    bool tuple = a->v.kind == WF_JTUPLE;
    if (a->next >= (tuple ? a->v.l->n : 1)) bad(r, "there are too few values");
    return tuple ? a->v.l->v[a->next++] : (a->next++, a->v);
}

static void percent_flags(wf_jstr f, size_t *at, spec *s)
{
    for (; *at < f.len && f.p[*at] && strchr("-+ 0#", f.p[*at]); ++*at) {
        if (f.p[*at] == '-') s->align = '<', wf_copy(s->fill, sizeof s->fill, " ");
        else if (f.p[*at] == '0' && s->align != '<') s->align = '=', wf_copy(s->fill, sizeof s->fill, "0");
        else if (f.p[*at] == '#') s->alternate = true;
        else if (s->sign != '+') s->sign = f.p[*at];
    }
}

/* Behind a %. */
static void percent_one(wf_jrun *r, wf_jbuf *b, wf_jstr f, size_t *at, arguments *args)
{
    spec s = {.fill = " ", .precision = -1};
    const wf_jvalue *named = NULL;
    if (*at < f.len && f.p[*at] == '(') {
        size_t end = wf_jstr_find(f, wf_jstr_of(")"), *at);
        if (end == SIZE_MAX || args->v.kind != WF_JDICT) bad(r, "a name needs ) and a dict");
        named = wf_jdict_find(r, args->v.d, wf_jstr_sub(f, *at + 1, end));
        if (!named) bad(r, "a name is not in the dict");
        *at = end + 1;
    }
    percent_flags(f, at, &s);
    s.width = number(r, f, at);
    if (*at < f.len && f.p[*at] == '.') ++*at, s.precision = number(r, f, at);
    if (*at >= f.len || !f.p[*at] || !strchr("sdixXofFeEgGru%", f.p[*at]))
        bad(r, "what follows % is incomplete or not supported");
    s.type = f.p[(*at)++];
    if (s.type == '%') {
        wf_jbuf_text(b, "%");
        return;
    }
    wf_jvalue v = named ? *named : next_argument(r, args);
    if (s.align == '=' && !strchr("dixXofFeEgGu", s.type)) s.align = '>', wf_copy(s.fill, sizeof s.fill, " ");
    if (!s.align) s.align = '>';
    if (s.type == 's') s.type = 0, s.sign = 0;
    put(b, &s, v);
}

wf_jvalue wf_jpercent(wf_jrun *r, wf_jstr f, wf_jvalue v)
{
    wf_jbuf b = {.r = r};
    arguments args = {v, 0};
    for (size_t at = 0; at < f.len;) {
        size_t found = wf_jstr_find(f, wf_jstr_of("%"), at);
        wf_jbuf_str(&b, wf_jstr_sub(f, at, WF_MIN(found, f.len)));
        at = found == SIZE_MAX ? f.len : found + 1;
        if (found != SIZE_MAX) percent_one(r, &b, f, &at, &args);
    }
    bool left = v.kind == WF_JTUPLE ? args.next < v.l->n
                                    : !args.next && v.kind != WF_JDICT && v.kind != WF_JUNDEFINED && !wf_jis_list(v);
    if (left) bad(r, "there are too many values");
    return wf_jstring(r, wf_jbuf_take(&b));
}

/* ---- str.format -------------------------------------------------------------------------------------------------- */

static spec brace_spec(wf_jrun *r, wf_jstr f)
{
    spec s = {.fill = " ", .precision = -1};
    size_t at = 0, n = 0;
    if (f.len) wf_jchar(f.p, &n);
    if (f.len > n && strchr("<>^=", f.p[n]) && f.p[n])
        memcpy(s.fill, f.p, n), s.fill[n] = 0, s.align = f.p[n], at = n + 1;
    else if (f.len && f.p[0] && strchr("<>^=", f.p[0])) s.align = f.p[0], at = 1;
    if (at < f.len && f.p[at] && strchr("+- ", f.p[at])) s.sign = f.p[at++];
    if (at < f.len && f.p[at] == '#') s.alternate = true, at++;
    if (at < f.len && f.p[at] == '0' && !s.align) s.align = '=', wf_copy(s.fill, sizeof s.fill, "0");
    s.width = number(r, f, &at);
    if (at < f.len && f.p[at] == ',') s.grouped = true, at++;
    if (at < f.len && f.p[at] == '.') at++, s.precision = number(r, f, &at);
    if (at < f.len && f.p[at] && strchr("sdxXofFeEgG%", f.p[at])) s.type = f.p[at++];
    if (at < f.len) bad(r, "a specification behind ':' is not supported");
    if (s.type == 's') s.type = 0;
    return s;
}

/* "", "0", "name", and .member or [item] behind it. */
static wf_jvalue field(wf_jrun *r, const wf_jargs *a, wf_jstr f, size_t *next)
{
    size_t end = 0, at = 0;
    while (end < f.len && f.p[end] != '.' && f.p[end] != '[') end++;
    wf_jstr head = wf_jstr_sub(f, 0, end);
    size_t i = head.len ? (size_t)number(r, head, &at) : (*next)++;
    bool numbered = at == head.len;
    if (numbered && i >= a->n) bad(r, "there are too few values");
    wf_jvalue v = {.kind = WF_JABSENT};
    if (numbered) v = a->v[i];
    for (size_t k = 0; k < a->n_kw && !numbered; k++)
        if (wf_jstr_eq(a->kw[k].name->text, head)) v = a->kw[k].value;
    if (!wf_jgiven(v)) bad(r, "a name in { } is not given");
    for (at = end; at < f.len; at = end) {
        bool item = f.p[at++] == '[';
        for (end = at; end < f.len && (item ? f.p[end] != ']' : f.p[end] != '.' && f.p[end] != '[');) end++;
        wf_jstr part = wf_jstr_sub(f, at, end);
        size_t digits = 0;
        int k = item ? number(r, part, &digits) : 0;
        v = !item                          ? wf_jattr(r, v, part)
            : digits && digits == part.len ? wf_jitem(r, v, wf_jint(k))
                                           : wf_jitem(r, v, wf_jstring(r, part));
        end += item;
    }
    return v;
}

wf_jvalue wf_jformat(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jbuf b = {.r = r};
    wf_jstr f = *self.s;
    size_t next = 0;
    for (size_t at = 0; at < f.len;) {
        char c = f.p[at];
        bool brace = c == '{' || c == '}', twice = brace && at + 1 < f.len && f.p[at + 1] == c;
        size_t end = at + 1;
        if (!brace) while (end < f.len && f.p[end] != '{' && f.p[end] != '}') end++;
        if (!brace || twice) {
            wf_jbuf_str(&b, wf_jstr_sub(f, at, end));
            at = end + twice;
            continue;
        }
        end = wf_jstr_find(f, wf_jstr_of("}"), at);
        if (c == '}' || end == SIZE_MAX) bad(r, "a brace has no other");
        wf_jstr inside = wf_jstr_sub(f, at + 1, end);
        size_t colon = wf_jstr_find(inside, wf_jstr_of(":"), 0);
        wf_jstr name = wf_jstr_sub(inside, 0, WF_MIN(colon, inside.len));
        spec s = brace_spec(r, colon == SIZE_MAX ? wf_jstr_of("") : wf_jstr_sub(inside, colon + 1, inside.len));
        size_t mark = wf_jstr_find(name, wf_jstr_of("!"), 0);
        if (mark != SIZE_MAX && wf_jstr_is(wf_jstr_sub(name, mark, name.len), "!r")) s.type = 'r';
        else if (mark != SIZE_MAX && !wf_jstr_is(wf_jstr_sub(name, mark, name.len), "!s"))
            bad(r, "only !r and !s are supported");
        put(&b, &s, field(r, a, wf_jstr_sub(name, 0, WF_MIN(mark, name.len)), &next));
        at = end + 1;
    }
    return wf_jstring(r, wf_jbuf_take(&b));
}
