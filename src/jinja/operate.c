/* operate: the binary operators, as Python has them for numbers, strings and lists. */
#include "jinja/internal.h"

#include <math.h>

static const char *const signs[] = {"+",  "-",  "*", "/",  "//", "%",  "**", "~",
                                    "==", "!=", "<", "<=", ">",  ">=", "in", "not in"};

static _Noreturn void no_operator(wf_jrun *r, enum wf_jop op, wf_jvalue a, wf_jvalue b)
{
    wf_jneed(r, a);
    wf_jneed(r, b);
    wf_jfail(r, WEFT_ERR_ARG, "%s %s %s is not possible", wf_jtype(a), signs[op], wf_jtype(b));
}

static _Noreturn void too_large(wf_jrun *r) { wf_jfail(r, WEFT_ERR_ARG, "an integer needs more than 64 bits"); }

/* ---- numbers ---------------------------------------------------------------------------------------------- */

static int64_t int_power(wf_jrun *r, int64_t a, int64_t n)
{
    int64_t x = 1;
    for (; n; n >>= 1) {
        if (n & 1 && __builtin_mul_overflow(x, a, &x)) too_large(r);
        if (n > 1 && __builtin_mul_overflow(a, a, &a)) too_large(r);
    }
    return x;
}

static int64_t floor_div(wf_jrun *r, int64_t a, int64_t b)
{
    if (a == INT64_MIN && b == -1) too_large(r);
    return a / b - (a % b && (a < 0) != (b < 0));
}

/* Its sign is that of b. No step overflows: the rest is smaller than b, and they are only added where their signs
 * differ. */
static int64_t floor_mod(int64_t a, int64_t b)
{
    int64_t rest = b == -1 ? 0 : a % b;
    return rest && (rest < 0) != (b < 0) ? rest + b : rest;
}

static wf_jvalue on_integers(wf_jrun *r, enum wf_jop op, int64_t a, int64_t b)
{
    int64_t x = 0;
    bool over = false;
    switch (op) {
    case WF_JADD: over = __builtin_add_overflow(a, b, &x); break;
    case WF_JSUB: over = __builtin_sub_overflow(a, b, &x); break;
    case WF_JMUL: over = __builtin_mul_overflow(a, b, &x); break;
    case WF_JFLOORDIV: x = floor_div(r, a, b); break;
    case WF_JMOD: x = floor_mod(a, b); break;
    default: x = int_power(r, a, b); break;
    }
    if (over) too_large(r);
    return wf_jint(x);
}

static double float_mod(double a, double b)
{
    double m = fmod(a, b);
    if (m) return (b < 0) != (m < 0) ? m + b : m;
    return copysign(0, b);
}

static double float_floor_div(double a, double b)
{
    double d = (a - float_mod(a, b)) / b, f = floor(d);
    return d ? (d - f > 0.5 ? f + 1 : f) : copysign(0, a / b);
}

static wf_jvalue on_floats(wf_jrun *r, enum wf_jop op, double a, double b)
{
    switch (op) {
    case WF_JADD: return wf_jfloat(a + b);
    case WF_JSUB: return wf_jfloat(a - b);
    case WF_JMUL: return wf_jfloat(a * b);
    case WF_JDIV: return wf_jfloat(a / b);
    case WF_JFLOORDIV: return wf_jfloat(float_floor_div(a, b));
    case WF_JMOD: return wf_jfloat(float_mod(a, b));
    default: break;
    }
    double x = pow(a, b);
    if (isnan(x) || isinf(x)) wf_jfail(r, WEFT_ERR_ARG, "a power is no finite number");
    return wf_jfloat(x);
}

static wf_jvalue on_numbers(wf_jrun *r, enum wf_jop op, wf_jvalue a, wf_jvalue b)
{
    bool divides = op == WF_JDIV || op == WF_JFLOORDIV || op == WF_JMOD,
         integers = wf_jis_integer(a) && wf_jis_integer(b);
    bool real = op == WF_JDIV || !integers || (op == WF_JPOW && wf_jinteger(b) < 0);
    if (divides && !wf_jreal(b)) wf_jfail(r, WEFT_ERR_ARG, "division by zero");
    wf_jvalue v = real ? on_floats(r, op, wf_jreal(a), wf_jreal(b))
                       : on_integers(r, op, wf_jinteger(a), wf_jinteger(b));
    v.data = a.data || b.data;
    return v;
}

/* ---- strings and lists ---------------------------------------------------------------------------------------- */

static wf_jvalue repeat(wf_jrun *r, wf_jvalue v, int64_t n)
{
    wf_jbuf b = {.r = r};
    wf_jvalue l = wf_jlist_new(r, v.kind == WF_JTUPLE ? WF_JTUPLE : WF_JLIST);
    bool empty = v.kind == WF_JSTRING ? !v.s->len : !v.l->n;
    for (int64_t i = 0; i < n && !empty; i++) {
        wf_jstep(r, 0);
        if (v.kind == WF_JSTRING) wf_jbuf_str(&b, *v.s);
        else for (size_t k = 0; k < v.l->n; k++) wf_jpush(r, l.l, v.l->v[k]);
    }
    return v.kind == WF_JSTRING ? wf_jstring(r, wf_jbuf_take(&b)) : l;
}

static bool repeats(wf_jvalue a, wf_jvalue b) { return (a.kind == WF_JSTRING || wf_jis_list(a)) && wf_jis_integer(b); }

static wf_jvalue concat(wf_jrun *r, wf_jvalue a, wf_jvalue b)
{
    wf_jbuf buf = {.r = r};
    wf_jprint(&buf, a);
    wf_jprint(&buf, b);
    return wf_jstring(r, wf_jbuf_take(&buf));
}

wf_jvalue wf_joperate(wf_jrun *r, enum wf_jop op, wf_jvalue a, wf_jvalue b)
{
    if (op >= WF_JEQ) {
        if (op == WF_JEQ || op == WF_JNE) return wf_jbool(wf_jequal(r, a, b) == (op == WF_JEQ));
        if (op == WF_JIN || op == WF_JNOT_IN) return wf_jbool(wf_jcontains(r, b, a) == (op == WF_JIN));
        int c = wf_jcompare(r, a, b);
        if (c == 2) return wf_jbool(false);
        return wf_jbool(op == WF_JLT ? c < 0 : op == WF_JLE ? c <= 0 : op == WF_JGT ? c > 0 : c >= 0);
    }
    if (op == WF_JCONCAT) return concat(r, a, b);
    if (wf_jis_number(a) && wf_jis_number(b)) return on_numbers(r, op, a, b);
    if (op == WF_JADD && a.kind == WF_JSTRING && b.kind == WF_JSTRING) return b.s->len ? concat(r, a, b) : a;
    if (op == WF_JADD && wf_jis_list(a) && a.kind == b.kind) {
        wf_jvalue v = wf_jlist_new(r, a.kind);
        for (size_t i = 0; i < a.l->n; i++) wf_jpush(r, v.l, a.l->v[i]);
        for (size_t i = 0; i < b.l->n; i++) wf_jpush(r, v.l, b.l->v[i]);
        v.data = a.data && b.data;
        return v;
    }
    if (op == WF_JMUL && repeats(a, b)) return repeat(r, a, wf_jinteger(b));
    if (op == WF_JMUL && repeats(b, a)) return repeat(r, b, wf_jinteger(a));
    if (op == WF_JMOD && a.kind == WF_JSTRING) return wf_jpercent(r, *a.s, b);
    no_operator(r, op, a, b);
}
