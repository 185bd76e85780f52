/* tests: what may follow "is". */
#include "jinja/internal.h"

#include <utf8proc.h>

#define KIND(k) (1 << WF_J##k)
#define SEQUENCES (KIND(STRING) | KIND(LIST) | KIND(TUPLE) | KIND(DICT) | KIND(UNDEFINED))

static wf_jvalue is_kind(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    (void)r;
    return wf_jbool(a->option >> (v.digits ? WF_JINT : v.kind) & 1);
}

static wf_jvalue is_truth(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    (void)r;
    return wf_jbool(v.kind == WF_JBOOL && v.b == a->option);
}

static wf_jvalue is_related(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    return wf_joperate(r, (enum wf_jop)a->option, v, a->v[0]);
}

static wf_jvalue is_sameas(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    wf_jvalue b = a->v[0];
    if (v.kind != b.kind) return wf_jbool(false);
    if (wf_jis_list(v) || v.kind == WF_JDICT) return wf_jbool(v.l == b.l);
    return wf_jbool(wf_jequal(r, v, b));
}

/* option: the rest; without a number by 2. */
static wf_jvalue is_divisible(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    wf_jvalue by = wf_jint(wf_jarg_int(r, a->v[0], 2, "num"));
    return wf_joperate(r, WF_JEQ, wf_joperate(r, WF_JMOD, v, by), wf_jint(a->option));
}

/* str.isupper() and str.islower(): no letter of the other case, and at least one of this. */
wf_jvalue wf_jbuiltin_is_case(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    utf8proc_category_t upper = UTF8PROC_CATEGORY_LU, lower = UTF8PROC_CATEGORY_LL;
    bool up = a->option == WF_JUPPER, found = false, against = false;
    wf_jstr s = wf_jto_str(r, v);
    for (size_t at = 0, n; at < s.len; at += n) {
        utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)wf_jchar(s.p + at, &n));
        found |= k == (up ? upper : lower);
        against |= k == (up ? lower : upper) || k == UTF8PROC_CATEGORY_LT;
    }
    return wf_jbool(found && !against);
}

/* option: of filters, else of tests */
static wf_jvalue is_name(wf_jrun *r, wf_jvalue v, const wf_jargs *a)
{
    wf_jstr name = wf_jarg_str(r, v, a->option ? "a filter" : "a test");
    return wf_jbool((a->option ? wf_jfilter_find : wf_jtest_find)(name) != NULL);
}

static const wf_jbuiltin rows[] = {
    {"defined", is_kind, .option = ~KIND(UNDEFINED)},
    {"undefined", is_kind, .option = KIND(UNDEFINED)},
    {"none", is_kind, .option = KIND(NONE)},
    {"string", is_kind, .option = KIND(STRING)},
    {"mapping", is_kind, .option = KIND(DICT)},
    {"iterable", is_kind, .option = SEQUENCES | KIND(LOOP)},
    {"sequence", is_kind, .option = SEQUENCES},
    {"number", is_kind, .option = KIND(BOOL) | KIND(INT) | KIND(FLOAT)},
    {"integer", is_kind, .option = KIND(INT)},
    {"float", is_kind, .option = KIND(FLOAT)},
    {"boolean", is_kind, .option = KIND(BOOL)},
    {"callable", is_kind, .option = KIND(MACRO) | KIND(FUNCTION) | KIND(METHOD) | KIND(UNDEFINED)},
    {"true", is_truth, .option = true},
    {"false", is_truth, .option = false},
    {"sameas", is_sameas, {"other"}, 1},
    {"eq", is_related, {"b"}, 1, .option = WF_JEQ},
    {"==", is_related, {"b"}, 1, .option = WF_JEQ},
    {"equalto", is_related, {"b"}, 1, .option = WF_JEQ},
    {"ne", is_related, {"b"}, 1, .option = WF_JNE},
    {"!=", is_related, {"b"}, 1, .option = WF_JNE},
    {"lt", is_related, {"b"}, 1, .option = WF_JLT},
    {"<", is_related, {"b"}, 1, .option = WF_JLT},
    {"lessthan", is_related, {"b"}, 1, .option = WF_JLT},
    {"le", is_related, {"b"}, 1, .option = WF_JLE},
    {"<=", is_related, {"b"}, 1, .option = WF_JLE},
    {"gt", is_related, {"b"}, 1, .option = WF_JGT},
    {">", is_related, {"b"}, 1, .option = WF_JGT},
    {"greaterthan", is_related, {"b"}, 1, .option = WF_JGT},
    {"ge", is_related, {"b"}, 1, .option = WF_JGE},
    {">=", is_related, {"b"}, 1, .option = WF_JGE},
    {"in", is_related, {"seq"}, 1, .option = WF_JIN},
    {"odd", is_divisible, .option = 1},
    {"even", is_divisible},
    {"divisibleby", is_divisible, {"num"}, 1},
    {"upper", wf_jbuiltin_is_case, .option = WF_JUPPER},
    {"lower", wf_jbuiltin_is_case, .option = WF_JLOWER},
    {"filter", is_name, .option = true},
    {"test", is_name},
};

const wf_jbuiltin *wf_jtest_find(wf_jstr name) { return wf_jrow_find(rows, WF_LEN(rows), name); }
