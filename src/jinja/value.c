/* value: what holds for all values: truth, equality, order, length, iteration, as Python has them. */
#include "jinja/internal.h"

#include <math.h>

wf_jvalue wf_jstring(wf_jrun *r, wf_jstr s)
{
    wf_jstr *copy = wf_jalloc(r, 1, sizeof *copy);
    *copy = s;
    return WF_JVALUE(WF_JSTRING, s, copy);
}

wf_jvalue wf_jlist_new(wf_jrun *r, enum wf_jkind kind) { return WF_JVALUE(kind, l, wf_jalloc(r, 1, sizeof(wf_jlist))); }

void wf_jpush(wf_jrun *r, wf_jlist *l, wf_jvalue v)
{
    l->v = wf_jgrow(r, l->v, l->n, &l->cap, sizeof *l->v);
    if (l->n % 16 == 15) wf_jstep(r, 0);
    l->v[l->n++] = v;
}

wf_jvalue wf_jpair(wf_jrun *r, wf_jvalue a, wf_jvalue b)
{
    wf_jvalue t = wf_jlist_new(r, WF_JTUPLE);
    wf_jpush(r, t.l, a);
    wf_jpush(r, t.l, b);
    return t;
}

wf_jvalue wf_jbig(wf_jrun *r, double f, const char *digits)
{
    wf_jvalue v = wf_jfloat(f);
    r->digits = wf_jgrow(r, r->digits, r->n_digits, &r->cap_digits, sizeof *r->digits);
    r->digits[r->n_digits++] = digits;
    v.digits = (uint32_t)r->n_digits;
    return v;
}

const char *wf_jtype(wf_jvalue v)
{
    static const char *const names[] = {"undefined", "none",  "bool",     "int",    "float",
                                        "str",       "list",  "tuple",    "dict",   "namespace",
                                        "loop",      "macro", "function", "method", "nothing"};
    return v.digits ? "int" : names[v.kind];
}

void wf_jneed(wf_jrun *r, wf_jvalue v)
{
    if (v.kind == WF_JUNDEFINED) wf_jfail(r, WEFT_ERR_ARG, "'%.100s' is undefined", v.why ? v.why : "value");
}

bool wf_jtrue(wf_jvalue v)
{
    switch (v.kind) {
    case WF_JUNDEFINED: case WF_JNONE: case WF_JABSENT: return false;
    case WF_JBOOL: return v.b;
    case WF_JINT: return v.i != 0;
    case WF_JFLOAT: return v.f != 0;
    case WF_JSTRING: return v.s->len > 0;
    case WF_JLIST: case WF_JTUPLE: return v.l->n > 0;
    case WF_JDICT: return v.d->n > 0;
    default: return true;
    }
}

/* ---- equality and order ----------------------------------------------------------------------------------- */

static bool lists_equal(wf_jrun *r, const wf_jlist *a, const wf_jlist *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++) same = wf_jequal(r, a->v[i], b->v[i]);
    return same;
}

static bool dicts_equal(wf_jrun *r, const wf_jdict *a, const wf_jdict *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++) {
        const wf_jvalue *other = wf_jdict_get(r, b, a->e[i].key);
        same = other && wf_jequal(r, a->e[i].value, *other);
    }
    return same;
}

/* Without rounding: a float holds no integer beyond 2^53 for sure. */
static int compare_int_float(int64_t i, double f)
{
    if (isnan(f)) return 2;
    if (f >= 0x1p63) return -1;
    if (f < -0x1p63) return 1;
    int64_t whole = (int64_t)f;
    if (i != whole) return i < whole ? -1 : 1;
    return (f < (double)whole) - (f > (double)whole);
}

/* 2: one is NaN. */
static int compare_numbers(wf_jvalue a, wf_jvalue b)
{
    if (a.kind == WF_JFLOAT && b.kind == WF_JFLOAT) return isnan(a.f) || isnan(b.f) ? 2 : (a.f > b.f) - (a.f < b.f);
    if (b.kind == WF_JFLOAT) return compare_int_float(wf_jinteger(a), b.f);
    if (a.kind == WF_JFLOAT) {
        int c = compare_int_float(wf_jinteger(b), a.f);
        return c == 2 ? 2 : -c;
    }
    return (wf_jinteger(a) > wf_jinteger(b)) - (wf_jinteger(a) < wf_jinteger(b));
}

bool wf_jequal(wf_jrun *r, wf_jvalue a, wf_jvalue b)
{
    bool same = false;
    wf_jstep(r, 0);
    wf_jenter(r);
    if (wf_jis_number(a) && wf_jis_number(b)) same = !compare_numbers(a, b);
    else if (a.kind != b.kind) same = false;
    else if (a.kind == WF_JSTRING) {
        if (a.s->len == b.s->len) wf_jstep(r, a.s->len / 64);
        same = wf_jstr_eq(*a.s, *b.s);
    }
    else if (wf_jis_list(a)) same = lists_equal(r, a.l, b.l);
    else if (a.kind == WF_JDICT) same = dicts_equal(r, a.d, b.d);
    else same = a.kind == WF_JNONE || a.kind == WF_JUNDEFINED || a.d == b.d;
    wf_jleave(r);
    return same;
}

static int compare_lists(wf_jrun *r, const wf_jlist *a, const wf_jlist *b)
{
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!wf_jequal(r, a->v[i], b->v[i])) return wf_jcompare(r, a->v[i], b->v[i]);
    return (a->n > b->n) - (a->n < b->n);
}

int wf_jcompare(wf_jrun *r, wf_jvalue a, wf_jvalue b)
{
    wf_jneed(r, a);
    wf_jneed(r, b);
    wf_jstep(r, 0);
    if (wf_jis_number(a) && wf_jis_number(b)) return compare_numbers(a, b);
    if (a.kind == WF_JSTRING && b.kind == WF_JSTRING) {
        wf_jstep(r, WF_MIN(a.s->len, b.s->len) / 64);
        return wf_jstr_cmp(*a.s, *b.s);
    }
    if (!wf_jis_list(a) || a.kind != b.kind)
        wf_jfail(r, WEFT_ERR_ARG, "%s and %s have no order", wf_jtype(a), wf_jtype(b));
    wf_jenter(r);
    int c = compare_lists(r, a.l, b.l);
    wf_jleave(r);
    return c;
}

/* ---- containers ----------------------------------------------------------------------------------------------- */

bool wf_jcontains(wf_jrun *r, wf_jvalue all, wf_jvalue one)
{
    if (all.kind == WF_JUNDEFINED) return false;
    if (all.kind == WF_JDICT) return wf_jdict_get(r, all.d, one) != NULL;
    if (all.kind == WF_JSTRING) {
        if (one.kind != WF_JSTRING)
            wf_jfail(r, WEFT_ERR_ARG, "'in' needs a string to look for in a string, not %s", wf_jtype(one));
        wf_jstep(r, all.s->len / 64);
        return wf_jstr_find(*all.s, *one.s, 0) != SIZE_MAX;
    }
    const wf_jlist *l = wf_jiterate(r, all);
    for (size_t i = 0; i < l->n; i++)
        if (wf_jequal(r, l->v[i], one)) return true;
    return false;
}

static wf_jlist *characters(wf_jrun *r, wf_jstr s)
{
    wf_jlist *l = wf_jalloc(r, 1, sizeof *l);
    for (size_t at = 0, n; at < s.len; at += n) {
        wf_jchar(s.p + at, &n);
        wf_jpush(r, l, wf_jstring(r, wf_jstr_sub(s, at, at + n)));
    }
    return l;
}

wf_jlist *wf_jiterate(wf_jrun *r, wf_jvalue v)
{
    if (wf_jis_list(v)) return v.l;
    if (v.kind == WF_JSTRING) return characters(r, *v.s);
    if (v.kind != WF_JDICT && v.kind != WF_JUNDEFINED) wf_jfail(r, WEFT_ERR_ARG, "%s cannot be iterated", wf_jtype(v));
    wf_jlist *keys = wf_jalloc(r, 1, sizeof *keys);
    for (size_t i = 0; v.kind == WF_JDICT && i < v.d->n; i++) wf_jpush(r, keys, v.d->e[i].key);
    return keys;
}

size_t wf_jlength(wf_jrun *r, wf_jvalue v)
{
    if (wf_jis_list(v)) return v.l->n;
    if (v.kind == WF_JDICT) return v.d->n;
    if (v.kind == WF_JUNDEFINED) return 0;
    if (v.kind == WF_JLOOP) return v.loop->items->n;
    if (v.kind != WF_JSTRING) wf_jfail(r, WEFT_ERR_ARG, "%s has no length", wf_jtype(v));
    wf_jstep(r, v.s->len / 64);
    return wf_jstr_count(*v.s);
}

/* ---- sorting -------------------------------------------------------------------------------------------------- */

/* Stable as in Python; by merging, because a comparison may leave the run, which libc's sorts do not expect. */
static void merge(wf_jrun *r, wf_jentry *e, size_t half, size_t n, bool reverse, wf_jentry *out)
{
    for (size_t i = 0, a = 0, b = half; i < n; i++) {
        bool left = b == n;
        if (!left && a < half)
            left = reverse ? wf_jcompare(r, e[a].key, e[b].key) >= 0 : wf_jcompare(r, e[b].key, e[a].key) >= 0;
        out[i] = left ? e[a++] : e[b++];
    }
    memcpy(e, out, n * sizeof *e);
}

static void sort(wf_jrun *r, wf_jentry *e, size_t n, bool reverse, wf_jentry *spare)
{
    if (n < 2) return;
    sort(r, e, n / 2, reverse, spare);
    sort(r, e + n / 2, n - n / 2, reverse, spare);
    merge(r, e, n / 2, n, reverse, spare);
}

void wf_jsort(wf_jrun *r, wf_jentry *e, size_t n, bool reverse) { sort(r, e, n, reverse, wf_jalloc(r, n, sizeof *e)); }
