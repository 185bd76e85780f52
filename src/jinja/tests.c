/* tests: what may follow "is". */
#include "jinja/internal.h"

#include <utf8proc.h>

static wf_jvalue is_defined(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    (void)r, (void)a;
    return wf_jbool(v.kind != WF_JUNDEFINED);
}
static wf_jvalue is_undefined(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    (void)r, (void)a;
    return wf_jbool(v.kind == WF_JUNDEFINED);
}
static wf_jvalue is_none(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    (void)r, (void)a;
    return wf_jbool(v.kind == WF_JNONE);
}
static wf_jvalue is_string(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    (void)r, (void)a;
    return wf_jbool(v.kind == WF_JSTRING);
}
static wf_jvalue is_mapping(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    (void)r, (void)a;
    return wf_jbool(v.kind == WF_JDICT);
}
static wf_jvalue is_number(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    (void)r, (void)a;
    return wf_jbool(wf_jis_number(v));
}
static wf_jvalue is_integer(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    (void)r, (void)a;
    return wf_jbool(v.kind == WF_JINT);
}
static wf_jvalue is_float(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    (void)r, (void)a;
    return wf_jbool(v.kind == WF_JFLOAT);
}
static wf_jvalue is_boolean(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    (void)r, (void)a;
    return wf_jbool(v.kind == WF_JBOOL);
}
static wf_jvalue is_true(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    (void)r, (void)a;
    return wf_jbool(v.kind == WF_JBOOL && v.b);
}
static wf_jvalue is_false(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    (void)r, (void)a;
    return wf_jbool(v.kind == WF_JBOOL && !v.b);
}

static wf_jvalue is_iterable(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    (void)r, (void)a;
    return wf_jbool(v.kind == WF_JSTRING || wf_jis_list(v) || v.kind == WF_JDICT || v.kind == WF_JUNDEFINED ||
                    v.kind == WF_JLOOP);
}

static wf_jvalue is_sequence(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    (void)r, (void)a;
    return wf_jbool(v.kind == WF_JSTRING || wf_jis_list(v) || v.kind == WF_JDICT || v.kind == WF_JUNDEFINED);
}

static wf_jvalue is_callable(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    (void)r, (void)a;
    return wf_jbool(v.kind == WF_JMACRO || v.kind == WF_JFUNCTION || v.kind == WF_JMETHOD || v.kind == WF_JUNDEFINED);
}

static wf_jvalue is_eq(wf_jrun *r, wf_jvalue v, const wf_jargs *a) { return wf_joperate(r, WF_JEQ, v, a->v[0]); }
static wf_jvalue is_ne(wf_jrun *r, wf_jvalue v, const wf_jargs *a) { return wf_joperate(r, WF_JNE, v, a->v[0]); }
static wf_jvalue is_lt(wf_jrun *r, wf_jvalue v, const wf_jargs *a) { return wf_joperate(r, WF_JLT, v, a->v[0]); }
static wf_jvalue is_le(wf_jrun *r, wf_jvalue v, const wf_jargs *a) { return wf_joperate(r, WF_JLE, v, a->v[0]); }
static wf_jvalue is_gt(wf_jrun *r, wf_jvalue v, const wf_jargs *a) { return wf_joperate(r, WF_JGT, v, a->v[0]); }
static wf_jvalue is_ge(wf_jrun *r, wf_jvalue v, const wf_jargs *a) { return wf_joperate(r, WF_JGE, v, a->v[0]); }
static wf_jvalue is_in(wf_jrun *r, wf_jvalue v, const wf_jargs *a) { return wf_joperate(r, WF_JIN, v, a->v[0]); }

static wf_jvalue is_sameas(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    wf_jvalue b = a->v[0];
    if (v.kind != b.kind) return wf_jbool(false);
    if (wf_jis_list(v) || v.kind == WF_JDICT) return wf_jbool(v.l == b.l);
    return wf_jbool(wf_jequal(r, v, b));
}

static wf_jvalue divisible(wf_jrun *r, wf_jvalue v, int64_t by, int64_t rest)
{
    return wf_joperate(r, WF_JEQ, wf_joperate(r, WF_JMOD, v, wf_jint(by)), wf_jint(rest));
}

static wf_jvalue is_odd(wf_jrun *r, wf_jvalue v, const wf_jargs *a) { (void)a; return divisible(r, v, 2, 1); }
static wf_jvalue is_even(wf_jrun *r, wf_jvalue v, const wf_jargs *a) { (void)a; return divisible(r, v, 2, 0); }
static wf_jvalue is_divisibleby(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    return divisible(r, v, wf_jarg_int(r, a->v[0], 1, "num"), 0);
}

/* str.isupper() and str.islower(): no letter of the other case, and at least one of this. */
static wf_jvalue all_case(wf_jrun *r, wf_jvalue v, utf8proc_category_t wanted, utf8proc_category_t other)
{
    wf_jstr s = wf_jto_str(r, v);
    bool found = false, against = false;
    wf_jstep(r, s.len / 16);
    for (size_t at = 0, n; at < s.len; at += n) {
        utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)wf_jchar(s.p + at, &n));
        found |= k == wanted;
        against |= k == other || k == UTF8PROC_CATEGORY_LT;
    }
    return wf_jbool(found && !against);
}

static wf_jvalue is_upper(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    (void)a;
    return all_case(r, v, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL);
}
static wf_jvalue is_lower(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    (void)a;
    return all_case(r, v, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LU);
}

static wf_jvalue is_filter(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    (void)a;
    return wf_jbool(wf_jfilter_find(wf_jarg_str(r, v, "a filter")) != NULL);
}
static wf_jvalue is_test(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    (void)a;
    return wf_jbool(wf_jtest_find(wf_jarg_str(r, v, "a test")) != NULL);
}

static const wf_jbuiltin rows[] = {
    {"defined", is_defined, {NULL}, 0, false},
    {"undefined", is_undefined, {NULL}, 0, false},
    {"none", is_none, {NULL}, 0, false},
    {"string", is_string, {NULL}, 0, false},
    {"mapping", is_mapping, {NULL}, 0, false},
    {"iterable", is_iterable, {NULL}, 0, false},
    {"sequence", is_sequence, {NULL}, 0, false},
    {"number", is_number, {NULL}, 0, false},
    {"integer", is_integer, {NULL}, 0, false},
    {"float", is_float, {NULL}, 0, false},
    {"boolean", is_boolean, {NULL}, 0, false},
    {"true", is_true, {NULL}, 0, false},
    {"false", is_false, {NULL}, 0, false},
    {"callable", is_callable, {NULL}, 0, false},
    {"sameas", is_sameas, {"other"}, 1, false},
    {"eq", is_eq, {"b"}, 1, false},
    {"==", is_eq, {"b"}, 1, false},
    {"equalto", is_eq, {"b"}, 1, false},
    {"ne", is_ne, {"b"}, 1, false},
    {"!=", is_ne, {"b"}, 1, false},
    {"lt", is_lt, {"b"}, 1, false},
    {"<", is_lt, {"b"}, 1, false},
    {"lessthan", is_lt, {"b"}, 1, false},
    {"le", is_le, {"b"}, 1, false},
    {"<=", is_le, {"b"}, 1, false},
    {"gt", is_gt, {"b"}, 1, false},
    {">", is_gt, {"b"}, 1, false},
    {"greaterthan", is_gt, {"b"}, 1, false},
    {"ge", is_ge, {"b"}, 1, false},
    {">=", is_ge, {"b"}, 1, false},
    {"in", is_in, {"seq"}, 1, false},
    {"odd", is_odd, {NULL}, 0, false},
    {"even", is_even, {NULL}, 0, false},
    {"divisibleby", is_divisibleby, {"num"}, 1, false},
    {"upper", is_upper, {NULL}, 0, false},
    {"lower", is_lower, {NULL}, 0, false},
    {"filter", is_filter, {NULL}, 0, false},
    {"test", is_test, {NULL}, 0, false},
};

const wf_jbuiltin *wf_jtest_find(wf_jstr name)
{
    return wf_jrow_find(rows, WF_LEN(rows), name);
}
