/* filters_list: filters of lists and dicts. What jinja2 gives one by one is a list here. */
#include "jinja/internal.h"

/* ---- attributes ------------------------------------------------------------------------------------------------- */

/* The part of "a.b.0" from *at on, as name or number. */
static wf_jvalue next_part(wf_jrun *r, wf_jstr path, size_t *at)
{
    size_t begin = *at, end = wf_jstr_find(path, wf_jstr_of("."), begin);
    int64_t n = 0;
    if (end == SIZE_MAX) end = path.len;
    *at = end + 1;
    wf_jstr part = wf_jstr_sub(path, begin, end);
    for (size_t i = 0; i < part.len; i++) {
        if (part.p[i] < '0' || part.p[i] > '9' || i > 8) return wf_jstring(r, part);
        n = n * 10 + part.p[i] - '0';
    }
    return part.len ? wf_jint(n) : wf_jstring(r, part);
}

/* attribute: absent or none: the value itself. */
static wf_jvalue member(wf_jrun *r, wf_jvalue v, wf_jvalue attribute, wf_jvalue otherwise)
{
    if (!wf_jgiven(attribute) || attribute.kind == WF_JNONE) return v;
    wf_jstr path = wf_jis_integer(attribute) ? wf_jstr_of("") : wf_jarg_str(r, attribute, "attribute");
    for (size_t at = 0; at <= path.len;) {
        wf_jvalue part = next_part(r, path, &at);
        v = wf_jitem(r, v, wf_jis_integer(attribute) ? attribute : part);
        if (v.kind == WF_JUNDEFINED && wf_jgiven(otherwise)) v = otherwise;
    }
    return v;
}

static wf_jvalue attribute(wf_jrun *r, wf_jvalue v, wf_jvalue name)
{
    return member(r, v, name, (wf_jvalue){.kind = WF_JABSENT});
}

/* What is compared where case does not matter. */
static wf_jvalue folded(wf_jrun *r, wf_jvalue v, bool case_sensitive)
{
    return v.kind == WF_JSTRING && !case_sensitive ? wf_jstring(r, wf_jstr_case(r, *v.s, WF_JLOWER)) : v;
}

/* ---- the order --------------------------------------------------------------------------------------------------- */

static wf_jvalue values_of(wf_jrun *r, const wf_jentry *e, size_t n)
{
    wf_jvalue out = wf_jlist_new(r, WF_JLIST);
    for (size_t i = 0; i < n; i++) wf_jpush(r, out.l, e[i].value);
    return out;
}

/* "a,b": by a, then by b. */
static wf_jvalue sort_key(wf_jrun *r, wf_jvalue v, wf_jvalue name, bool case_sensitive)
{
    if (name.kind != WF_JSTRING || wf_jstr_find(*name.s, wf_jstr_of(","), 0) == SIZE_MAX)
        return folded(r, attribute(r, v, name), case_sensitive);
    wf_jvalue key = wf_jlist_new(r, WF_JLIST);
    for (size_t at = 0, end; at <= name.s->len; at = end + 1) {
        end = wf_jstr_find(*name.s, wf_jstr_of(","), at);
        if (end == SIZE_MAX) end = name.s->len;
        wf_jpush(r, key.l, folded(r, attribute(r, v, wf_jstring(r, wf_jstr_sub(*name.s, at, end))), case_sensitive));
    }
    return key;
}

static wf_jvalue filter_sort(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    const wf_jlist *l = wf_jiterate(r, self);
    wf_jentry *e = wf_jalloc(r, l->n, sizeof *e);
    for (size_t i = 0; i < l->n; i++)
        e[i] = (wf_jentry){sort_key(r, l->v[i], a->v[2], wf_jarg_true(a->v[1], false)), l->v[i]};
    wf_jsort(r, e, l->n, wf_jarg_true(a->v[0], false));
    return values_of(r, e, l->n);
}

/* Pairs of a value of the attribute and the list of what has it, in the order of these values. */
static wf_jvalue filter_groupby(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    const wf_jlist *l = wf_jiterate(r, self);
    wf_jentry *e = wf_jalloc(r, l->n, sizeof *e);
    wf_jvalue out = wf_jlist_new(r, WF_JLIST), group = out;
    bool exact = wf_jarg_true(a->v[2], false);
    for (size_t i = 0; i < l->n; i++)
        e[i] = (wf_jentry){folded(r, member(r, l->v[i], a->v[0], a->v[1]), exact), l->v[i]};
    wf_jsort(r, e, l->n, false);
    for (size_t i = 0; i < l->n; i++) {
        if (!i || !wf_jequal(r, e[i].key, e[i - 1].key)) {
            group = wf_jlist_new(r, WF_JLIST);
            wf_jvalue pair = wf_jpair(r, member(r, e[i].value, a->v[0], a->v[1]), group);
            pair.l->group = true;
            wf_jpush(r, out.l, pair);
        }
        wf_jpush(r, group.l, e[i].value);
    }
    return out;
}

static wf_jvalue filter_dictsort(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    bool by_value = wf_jgiven(a->v[1]) && wf_jstr_is(wf_jarg_str(r, a->v[1], "by"), "value");
    wf_jneed(r, self);
    if (self.kind != WF_JDICT) wf_jfail(r, WEFT_ERR_ARG, "dictsort needs a dict, not %s", wf_jtype(self));
    wf_jentry *e = wf_jalloc(r, self.d->n, sizeof *e);
    for (size_t i = 0; i < self.d->n; i++) {
        const wf_jentry *x = &self.d->e[i];
        e[i] = (wf_jentry){folded(r, by_value ? x->value : x->key, wf_jarg_true(a->v[0], false)),
                           wf_jpair(r, x->key, x->value)};
    }
    wf_jsort(r, e, self.d->n, wf_jarg_true(a->v[2], false));
    return values_of(r, e, self.d->n);
}

/* option: the sign of a comparison with all others */
static wf_jvalue filter_extreme(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    const wf_jlist *l = wf_jiterate(r, self);
    wf_jvalue best = wf_jundefined("the largest or smallest of nothing"), best_key = best;
    for (size_t i = 0; i < l->n; i++) {
        wf_jvalue key = folded(r, attribute(r, l->v[i], a->v[1]), wf_jarg_true(a->v[0], false));
        if (!i || wf_jcompare(r, key, best_key) == a->option) best = l->v[i], best_key = key;
    }
    return best;
}

static wf_jvalue filter_reverse(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jbuf b = {.r = r};
    wf_jvalue out = wf_jlist_new(r, WF_JLIST);
    const wf_jlist *l = wf_jiterate(r, self);
    (void)a;
    for (size_t i = l->n; i-- > 0;) {
        if (self.kind == WF_JSTRING) wf_jbuf_str(&b, *l->v[i].s);
        else wf_jpush(r, out.l, l->v[i]);
    }
    return self.kind == WF_JSTRING ? wf_jstring(r, wf_jbuf_take(&b)) : out;
}

/* ---- a part of it ------------------------------------------------------------------------------------------------ */

/* option: the last one */
static wf_jvalue filter_end(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    const wf_jlist *l = wf_jiterate(r, self);
    if (!l->n) return wf_jundefined(a->option ? "the last of nothing" : "the first of nothing");
    return l->v[a->option ? l->n - 1 : 0];
}

static wf_jvalue filter_unique(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    const wf_jlist *l = wf_jiterate(r, self);
    wf_jvalue out = wf_jlist_new(r, WF_JLIST), seen = wf_jdict_new(r);
    for (size_t i = 0; i < l->n; i++) {
        wf_jvalue key = folded(r, attribute(r, l->v[i], a->v[1]), wf_jarg_true(a->v[0], false));
        if (key.kind == WF_JUNDEFINED) key = wf_jpair(r, wf_jnone(), wf_jnone());
        if (!wf_jdict_get(r, seen.d, key)) wf_jpush(r, out.l, l->v[i]);
        wf_jdict_set(r, seen.d, key, wf_jbool(true));
    }
    return out;
}

static wf_jvalue filter_batch(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    const wf_jlist *l = wf_jiterate(r, self);
    int64_t n = wf_jarg_int(r, a->v[0], 1, "linecount");
    wf_jvalue out = wf_jlist_new(r, WF_JLIST), line = {0};
    if (n < 1) wf_jfail(r, WEFT_ERR_ARG, "batch needs lines of at least one");
    for (size_t i = 0; i < l->n; i++) {
        if (!(i % (uint64_t)n)) wf_jpush(r, out.l, line = wf_jlist_new(r, WF_JLIST));
        wf_jpush(r, line.l, l->v[i]);
    }
    while (l->n && wf_jgiven(a->v[1]) && a->v[1].kind != WF_JNONE && line.l->n < (uint64_t)n)
        wf_jpush(r, line.l, a->v[1]);
    return out;
}

static wf_jvalue filter_slice(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    const wf_jlist *l = wf_jiterate(r, self);
    int64_t n = wf_jarg_int(r, a->v[0], 1, "slices"), at = 0;
    wf_jvalue out = wf_jlist_new(r, WF_JLIST);
    if (n < 1) wf_jfail(r, WEFT_ERR_ARG, "slice needs at least one");
    bool fills = wf_jgiven(a->v[1]) && a->v[1].kind != WF_JNONE;
    int64_t each = (int64_t)l->n / n, longer = (int64_t)l->n % n;
    for (int64_t i = 0; i < n; i++) {
        wf_jvalue part = wf_jlist_new(r, WF_JLIST);
        wf_jstep(r, 0);
        for (int64_t k = each + (i < longer); k > 0; k--) wf_jpush(r, part.l, l->v[at++]);
        if (fills && i >= longer) wf_jpush(r, part.l, a->v[1]);
        wf_jpush(r, out.l, part);
    }
    return out;
}

/* ---- each element ------------------------------------------------------------------------------------------------ */

/* jinja2 asks some filters' sequence first whether it is true, so that none and 0 have no elements. */
static const wf_jlist *elements(wf_jrun *r, wf_jvalue v)
{
    static const wf_jlist none;
    return wf_jtrue(v) ? wf_jiterate(r, v) : &none;
}

static wf_jargs rest_of(const wf_jargs *a, size_t n)
{
    wf_jargs rest = *a;
    rest.v = a->n > n ? a->v + n : NULL;
    rest.n = a->n > n ? a->n - n : 0;
    return rest;
}

/* map(attribute=..., default=...), or map(filter, its arguments). */
static wf_jvalue filter_map(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    const wf_jlist *l = elements(r, self);
    wf_jvalue out = wf_jlist_new(r, WF_JLIST), name = wf_jkeyword(a, "attribute"),
              otherwise = wf_jkeyword(a, "default");
    wf_jargs rest = rest_of(a, 1);
    if (!a->n && !wf_jgiven(name)) wf_jfail(r, WEFT_ERR_ARG, "map needs the name of a filter or an attribute");
    for (size_t i = 0; i < l->n; i++)
        wf_jpush(r, out.l,
                 a->n ? wf_jcall_filter(r, wf_jarg_str(r, a->v[0], "a filter"), l->v[i], &rest)
                      : member(r, l->v[i], name, otherwise));
    return out;
}

/* ATTR: the first argument is an attribute. Then a test with its arguments; none: truth. */
enum { ATTR = 1, WANTED = 2 };
static wf_jvalue filter_pick(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    bool attr = a->option & ATTR, wanted = a->option & WANTED;
    const wf_jlist *l = elements(r, self);
    wf_jvalue out = wf_jlist_new(r, WF_JLIST);
    wf_jargs rest = rest_of(a, 1 + attr);
    if (attr && !a->n) wf_jfail(r, WEFT_ERR_ARG, "an attribute is missing");
    for (size_t i = 0; i < l->n; i++) {
        wf_jvalue v = attr ? attribute(r, l->v[i], a->v[0]) : l->v[i];
        bool is = a->n > attr ? wf_jcall_test(r, wf_jarg_str(r, a->v[attr], "a test"), v, &rest) : wf_jtrue(v);
        if (is == wanted) wf_jpush(r, out.l, l->v[i]);
    }
    return out;
}

static wf_jvalue filter_join(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    const wf_jlist *l = wf_jiterate(r, self);
    wf_jbuf b = {.r = r};
    wf_jstr gap = wf_jgiven(a->v[0]) ? wf_jto_str(r, a->v[0]) : wf_jstr_of("");
    for (size_t i = 0; i < l->n; i++) {
        if (i) wf_jbuf_str(&b, gap);
        wf_jprint(&b, attribute(r, l->v[i], a->v[1]));
    }
    return wf_jstring(r, wf_jbuf_take(&b));
}

static wf_jvalue filter_sum(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    const wf_jlist *l = wf_jiterate(r, self);
    wf_jvalue sum = wf_jgiven(a->v[1]) ? a->v[1] : wf_jint(0);
    for (size_t i = 0; i < l->n; i++) sum = wf_joperate(r, WF_JADD, sum, attribute(r, l->v[i], a->v[0]));
    return sum;
}

wf_jvalue wf_jbuiltin_list(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    (void)a;
    return WF_JVALUE(WF_JLIST, l, wf_jiterate(r, self));
}

wf_jvalue wf_jbuiltin_items(wf_jrun *r, wf_jvalue self, const wf_jargs *a)
{
    wf_jvalue out = wf_jlist_new(r, WF_JLIST);
    if (self.kind != WF_JDICT && self.kind != WF_JUNDEFINED)
        wf_jfail(r, WEFT_ERR_ARG, "items needs a dict, not %s", wf_jtype(self));
    for (size_t i = 0; self.kind == WF_JDICT && i < self.d->n; i++) {
        const wf_jentry *e = &self.d->e[i];
        wf_jpush(r, out.l, a->option ? e->value : wf_jpair(r, e->key, e->value));
    }
    return out;
}

const wf_jbuiltin wf_jfilters_list[] = {
    {"sort", filter_sort, {"reverse", "case_sensitive", "attribute"}},
    {"groupby", filter_groupby, {"attribute", "default", "case_sensitive"}, 1},
    {"dictsort", filter_dictsort, {"case_sensitive", "by", "reverse"}},
    {"max", filter_extreme, {"case_sensitive", "attribute"}, .option = 1},
    {"min", filter_extreme, {"case_sensitive", "attribute"}, .option = -1},
    {"reverse", filter_reverse},
    {"first", filter_end},
    {"last", filter_end, .option = true},
    {"unique", filter_unique, {"case_sensitive", "attribute"}},
    {"batch", filter_batch, {"linecount", "fill_with"}, 1},
    {"slice", filter_slice, {"slices", "fill_with"}, 1},
    {"map", filter_map, .any = true},
    {"select", filter_pick, .any = true, .option = WANTED},
    {"reject", filter_pick, .any = true},
    {"selectattr", filter_pick, .any = true, .option = ATTR | WANTED},
    {"rejectattr", filter_pick, .any = true, .option = ATTR},
    {"join", filter_join, {"d", "attribute"}},
    {"sum", filter_sum, {"attribute", "start"}},
    {"list", wf_jbuiltin_list},
    {"items", wf_jbuiltin_items},
};
const size_t wf_jn_filters_list = WF_LEN(wf_jfilters_list);
