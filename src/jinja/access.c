/* access: members, items and slices of values. Methods that would change a list or a dict are undefined, as in jinja2's
 * immutable sandbox. */
#include "jinja/internal.h"

#include <stdio.h>

static wf_jvalue missing(wf_jrun *r, wf_jvalue v, wf_jstr name)
{
    char *why = wf_jalloc(r, 1, 160);
    char shown[128];
    wf_copy(shown, WF_MIN(sizeof shown, name.len + 1), name.p);
    snprintf(why, 160, "%s of %s", shown, wf_jtype(v));
    return wf_jundefined(why);
}

static wf_jvalue loop_member(wf_jrun *r, wf_jvalue v, wf_jstr name)
{
    const wf_jloop *l = v.loop;
    const struct { const char *name; int64_t i;
    } numbers[] = {
        {"index", (int64_t)l->index + 1},
        {"index0", (int64_t)l->index},
        {"length", (int64_t)l->items->n},
        {"revindex", (int64_t)(l->items->n - l->index)},
        {"revindex0", (int64_t)(l->items->n - l->index) - 1},
        {"depth", l->depth},
        {"depth0", (int64_t)l->depth - 1},
    };
    for (size_t i = 0; i < WF_LEN(numbers); i++)
        if (wf_jstr_is(name, numbers[i].name)) return wf_jint(numbers[i].i);
    if (wf_jstr_is(name, "first")) return wf_jbool(!l->index);
    if (wf_jstr_is(name, "last")) return wf_jbool(l->index + 1 == l->items->n);
    if (wf_jstr_is(name, "previtem")) return l->index ? l->items->v[l->index - 1] : wf_jundefined("loop.previtem");
    if (wf_jstr_is(name, "nextitem"))
        return l->index + 1 < l->items->n ? l->items->v[l->index + 1] : wf_jundefined("loop.nextitem");
    return missing(r, v, name);
}

static wf_jvalue method(wf_jrun *r, wf_jvalue v, wf_jstr name)
{
    bool group = v.kind == WF_JTUPLE && v.l->group;
    if (group && (wf_jstr_is(name, "grouper") || wf_jstr_is(name, "list"))) return v.l->v[name.len == 4];
    const wf_jbuiltin *fn = wf_jmethod_find(v, name);
    if (!fn) return v.kind == WF_JLOOP ? loop_member(r, v, name) : missing(r, v, name);
    wf_jmethod *m = wf_jalloc(r, 1, sizeof *m);
    *m = (wf_jmethod){v, fn};
    return WF_JVALUE(WF_JMETHOD, method, m);
}

/* An own member comes before an entry of the same name. */
wf_jvalue wf_jattr(wf_jrun *r, wf_jvalue v, wf_jstr name)
{
    wf_jneed(r, v);
    if (v.kind == WF_JNAMESPACE) {
        const wf_jvalue *x = wf_jdict_find(r, v.d, name);
        return x ? *x : missing(r, v, name);
    }
    wf_jvalue own = method(r, v, name);
    const wf_jvalue *entry = v.kind == WF_JDICT && own.kind == WF_JUNDEFINED ? wf_jdict_find(r, v.d, name) : NULL;
    return entry ? *entry : own;
}

static bool index_of(wf_jvalue key, size_t n, size_t *at)
{
    if (!wf_jis_integer(key)) return false;
    int64_t i = wf_jinteger(key);
    if (i < 0) i += (int64_t)n;
    *at = (size_t)i;
    return i >= 0 && (uint64_t)i < n;
}

wf_jvalue wf_jitem(wf_jrun *r, wf_jvalue v, wf_jvalue key)
{
    size_t at;
    wf_jneed(r, v);
    if (v.kind == WF_JDICT) {
        const wf_jvalue *x = wf_jdict_get(r, v.d, key);
        if (x) return *x;
    }
    if (wf_jis_list(v) && wf_jis_integer(key))
        return index_of(key, v.l->n, &at) ? v.l->v[at] : wf_jundefined("an element of the list");
    if (v.kind == WF_JSTRING && wf_jis_integer(key)) {
        if (!index_of(key, wf_jlength(r, v), &at)) return wf_jundefined("a character of the string");
        return wf_jstring(r, wf_jstr_sub(*v.s, wf_jstr_offset(*v.s, at), wf_jstr_offset(*v.s, at + 1)));
    }
    if (key.kind == WF_JSTRING) return v.kind == WF_JNAMESPACE ? wf_jattr(r, v, *key.s) : method(r, v, *key.s);
    return wf_jundefined("an item");
}

static int64_t bound(wf_jrun *r, wf_jvalue v, int64_t absent)
{
    if (v.kind == WF_JNONE || v.kind == WF_JABSENT) return absent;
    wf_jneed(r, v);
    if (!wf_jis_integer(v)) wf_jfail(r, WEFT_ERR_ARG, "a slice needs integers, not %s", wf_jtype(v));
    return wf_jinteger(v);
}

/* slice.indices() of Python. */
static int64_t clamp(int64_t i, int64_t n, int64_t step)
{
    if (i < 0) i = i < -n ? -1 : i + n;
    else if (i > n) i = n;
    if (i < 0) return step < 0 ? -1 : 0;
    return step < 0 && i >= n ? n - 1 : i;
}

static wf_jvalue characters_of(wf_jrun *r, wf_jstr s, const wf_jlist *chars, int64_t first, int64_t last, int64_t step)
{
    wf_jbuf b = {.r = r};
    if (step == 1)
        return wf_jstring(
            r, wf_jstr_sub(s, wf_jstr_offset(s, (size_t)first), wf_jstr_offset(s, (size_t)WF_MAX(first, last))));
    for (int64_t i = first; step > 0 ? i < last : i > last; i += step) wf_jbuf_str(&b, *chars->v[i].s);
    return wf_jstring(r, wf_jbuf_take(&b));
}

wf_jvalue wf_jslice(wf_jrun *r, wf_jvalue v, const wf_jvalue bounds[3])
{
    wf_jneed(r, v);
    bool string = v.kind == WF_JSTRING;
    if (!string && !wf_jis_list(v)) wf_jfail(r, WEFT_ERR_ARG, "%s has no slices", wf_jtype(v));
    int64_t step = bound(r, bounds[2], 1), n = (int64_t)wf_jlength(r, v);
    if (!step) wf_jfail(r, WEFT_ERR_ARG, "the step of a slice is 0");
    step = WF_MAX(WF_MIN(step, n + 1), -n - 1); /* no overflow */
    int64_t first = clamp(bound(r, bounds[0], step < 0 ? n : 0), n, step);
    int64_t last = step < 0 && !(bounds[1].kind != WF_JNONE && bounds[1].kind != WF_JABSENT)
                       ? -1
                       : clamp(bound(r, bounds[1], n), n, step);
    if (string) return characters_of(r, *v.s, step == 1 ? NULL : wf_jiterate(r, v), first, last, step);
    wf_jvalue out = wf_jlist_new(r, v.kind);
    for (int64_t i = first; step > 0 ? i < last : i > last; i += step) wf_jpush(r, out.l, v.l->v[i]);
    return out;
}
