/* What a schema says, as conjunctions: each keyword, and the complement of each, where it has one. */
#include "grammar/internal.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    uint8_t types;
} type_names[] = {{"null", T_NULL},     {"boolean", T_FALSE | T_TRUE}, {"integer", T_INT}, {"number", T_INT | T_FRAC},
                  {"string", T_STRING}, {"array", T_ARRAY},            {"object", T_OBJECT}};

static uint8_t type_bits(wf_grammar *g, const wf_json *v)
{
    if (v->kind == WF_JSON_LIST) {
        uint8_t all = 0;
        WF_JSON_EACH(one, v) all |= type_bits(g, one);
        return all;
    }
    for (size_t i = 0; i < WF_LEN(type_names); i++)
        if (wf_json_text(v) && !strcmp(v->text, type_names[i].name)) return type_names[i].types;
    if (wf_json_text(v) && !strcmp(v->text, "any")) return T_ANY;
    grammar_fail(g, "type with an unknown name");
}

/* A count such as maxItems; beyond what it can count it is the largest. */
static uint32_t count_of(wf_grammar *g, const wf_json *s, const char *key, uint32_t otherwise)
{
    const wf_json *v = wf_json_get(s, key);
    if (!v) return otherwise;
    double d = wf_json_number(v);
    if (wf_json_is_number(v) && d >= RE_MANY) return RE_MANY;
    if (!wf_json_is_number(v) || !(d >= 0) || d != (double)(uint32_t)d) grammar_fail(g, "%s that is no count", key);
    return (uint32_t)d;
}

/* The keywords that count, and where a conjunction has their counts. */
static const struct {
    uint8_t type;
    const char *min_key, *max_key;
    size_t min, max;
} counts[] = {
    {T_STRING, "minLength", "maxLength", offsetof(conj, min_length), offsetof(conj, max_length)},
    {T_ARRAY, "minItems", "maxItems", offsetof(conj, min_items), offsetof(conj, max_items)},
    {T_OBJECT, "minProperties", "maxProperties", offsetof(conj, min_keys), offsetof(conj, max_keys)},
};

static uint32_t *count_in(conj *c, size_t offset) { return (uint32_t *)((char *)c + offset); }

/* Too few, or too many. */
static conj_list not_counts(wf_grammar *g, const wf_json *s)
{
    conj_list out = NULL;
    for (size_t i = 0; i < WF_LEN(counts); i++) {
        uint32_t min = count_of(g, s, counts[i].min_key, 0), max = count_of(g, s, counts[i].max_key, RE_MANY);
        conj *few = min ? conj_new(g, counts[i].type) : NULL;
        conj *many = max != RE_MANY ? conj_new(g, counts[i].type) : NULL;
        if (few) *count_in(few, counts[i].max) = min - 1, out = conj_either(g, few, out);
        if (many) *count_in(many, counts[i].min) = max + 1, out = conj_either(g, many, out);
    }
    return out;
}

static bool is_empty_schema(const wf_json *v) { return wf_json_is_true(v) || (wf_json_is(v, WF_JSON_OBJECT) && !v->n); }
static bool is_false(const wf_json *v) { return wf_json_is(v, WF_JSON_BOOL) && !v->b; }

/* Refuses by name what is not kept, and keywords that would say nothing since they are of the wrong kind. */
static void refuse(wf_grammar *g, const wf_json *s)
{
    static const char *const never[] = {"$dynamicRef", "$recursiveRef", "extends", "disallow"};
    static const struct {
        const char *key, *what;
        enum wf_json_kind kind;
    } kinds[] = {{"$ref", "string", WF_JSON_STRING},
                 {"required", "list", WF_JSON_LIST},
                 {"enum", "list", WF_JSON_LIST},
                 {"allOf", "list", WF_JSON_LIST},
                 {"anyOf", "list", WF_JSON_LIST},
                 {"oneOf", "list", WF_JSON_LIST},
                 {"dependencies", "object", WF_JSON_OBJECT},
                 {"dependentRequired", "object", WF_JSON_OBJECT},
                 {"dependentSchemas", "object", WF_JSON_OBJECT},
                 {"uniqueItems", "boolean", WF_JSON_BOOL}};
    for (size_t i = 0; i < WF_LEN(never); i++)
        if (wf_json_get(s, never[i])) grammar_fail(g, "the keyword %s", never[i]);
    for (size_t i = 0; i < WF_LEN(kinds); i++) {
        const wf_json *v = wf_json_get(s, kinds[i].key);
        if (v && !wf_json_is(v, kinds[i].kind)) grammar_fail(g, "%s that is no %s", kinds[i].key, kinds[i].what);
    }
}

/* What unevaluatedItems or unevaluatedProperties says as additionalItems and additionalProperties do, where no other
 * keyword of the schema evaluates some of them; NULL: nothing. */
static const wf_json *unevaluated(wf_grammar *g, const wf_json *s, const char *key)
{
    static const char *const others[] = {"$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies",
                                         "contains"};
    const wf_json *v = wf_json_get(s, key);
    if (!v || is_empty_schema(v)) return NULL;
    if (g->old_refs) grammar_fail(g, "the keyword %s, which is newer than the schema's draft", key);
    for (size_t i = 0; i < WF_LEN(others); i++)
        if (wf_json_get(s, others[i])) grammar_fail(g, "the keyword %s beside %s", key, others[i]);
    return v;
}

/* ---- numbers and strings -------------------------------------------------------------------------------- */

/* Calls back for each bound: a keyword's number, whether it is a lower bound, and whether it is excluded itself. */
typedef void (*bound_fn)(wf_grammar *, void *user, const dec *, bool low, bool open);

static void each_bound(wf_grammar *g, const wf_json *s, bound_fn fn, void *user)
{
    static const char *const names[2][2] = {{"maximum", "exclusiveMaximum"}, {"minimum", "exclusiveMinimum"}};
    for (int low = 0; low < 2; low++) {
        const wf_json *v = wf_json_get(s, names[low][0]), *open = wf_json_get(s, names[low][1]);
        if (v && !wf_json_is_number(v)) grammar_fail(g, "%s that is no number", names[low][0]);
        if (v) {
            dec d = dec_of_json(g, v);
            fn(g, user, &d, low, wf_json_is_true(open)); /* Draft 4 has a boolean there */
        }
        if (!wf_json_is_number(open)) continue;
        dec d = dec_of_json(g, open);
        fn(g, user, &d, low, true);
    }
}

static void bound_add(wf_grammar *g, void *user, const dec *d, bool low, bool open)
{
    (void)g;
    if (low) number_low(user, d, open);
    else number_high(user, d, open);
}

static void bound_outside(wf_grammar *g, void *user, const dec *d, bool low, bool open)
{
    conj *c = conj_new(g, T_INT | T_FRAC);
    if (low) number_high(&c->number, d, !open);
    else number_low(&c->number, d, !open);
    conj_list *out = user;
    *out = conj_either(g, c, *out);
}

static re string_pattern(wf_grammar *g, const wf_json *s)
{
    re out = RE_ALL;
    const wf_json *pattern = wf_json_get(s, "pattern"), *format = wf_json_get(s, "format");
    if (pattern && !wf_json_text(pattern)) grammar_fail(g, "pattern that is no string");
    if (pattern) out = re_parse(g->pool, pattern->text, pattern->n, false);
    if (wf_json_text(format)) out = re_and(g->pool, out, format_pattern(g, format->text));
    return out;
}

re conj_strings(wf_grammar *g, const conj *c)
{
    re out = c->pattern;
    if (!(c->types & T_STRING)) return RE_NONE;
    if (c->min_length || c->max_length != RE_MANY)
        out = re_and(g->pool, out, re_lengths(g->pool, c->min_length, c->max_length));
    if (!c->texts) return out;
    re list = RE_NONE;
    for (uint32_t i = 0; i < c->n_texts; i++)
        list = re_alt(g->pool, list, re_literal(g->pool, c->texts[i].text, c->texts[i].n));
    return re_and(g->pool, list, out);
}

re part_strings(wf_grammar *g, part p)
{
    re out = RE_NONE;
    for (conj_list c = part_conjs(g, p); c; c = c->next) out = re_alt(g->pool, out, conj_strings(g, c));
    return out;
}

/* ---- arrays and objects --------------------------------------------------------------------------------- */

static array_rule array_parts(wf_grammar *g, const wf_json *s)
{
    array_rule a = {.prefix = wf_json_get(s, "prefixItems"), .items = wf_json_get(s, "items")};
    if (wf_json_is(a.items, WF_JSON_LIST)) a.prefix = a.items, a.items = wf_json_get(s, "additionalItems");
    if (a.prefix && a.prefix->kind != WF_JSON_LIST) grammar_fail(g, "prefixItems that is no list");
    if (!a.items) a.items = unevaluated(g, s, "unevaluatedItems");
    return a;
}

static object_rule object_parts(wf_grammar *g, const wf_json *s)
{
    object_rule o = {.properties = wf_json_get(s, "properties"),
                     .patterns = wf_json_get(s, "patternProperties"),
                     .additional = wf_json_get(s, "additionalProperties")};
    if (o.properties && o.properties->kind != WF_JSON_OBJECT) grammar_fail(g, "properties that is no object");
    if (o.patterns && o.patterns->kind != WF_JSON_OBJECT) grammar_fail(g, "patternProperties that is no object");
    if (!o.additional) o.additional = unevaluated(g, s, "unevaluatedProperties");
    if ((o.open = is_empty_schema(o.additional))) o.additional = NULL;
    return o;
}

static void conj_containing(wf_grammar *g, conj *c, const wf_json *schema, uint32_t min, uint32_t max)
{
    contains_rule *rule = grammar_take(g, sizeof *rule);
    *rule = (contains_rule){schema, min, max, NULL};
    c->contains = rule;
    if (min > max) c->types &= (uint8_t)~T_ARRAY;
}

/* How many items contains asks for, which older drafts do not say; false: there is none. */
static bool contains_counts(wf_grammar *g, const wf_json *s, uint32_t *min, uint32_t *max)
{
    *min = g->old_refs ? 1 : count_of(g, s, "minContains", 1);
    *max = g->old_refs ? RE_MANY : count_of(g, s, "maxContains", RE_MANY);
    return wf_json_get(s, "contains") && (*min || *max != RE_MANY);
}

static void conj_arrays(wf_grammar *g, const wf_json *s, conj *c)
{
    uint32_t min, max;
    if (contains_counts(g, s, &min, &max)) conj_containing(g, c, wf_json_get(s, "contains"), min, max);
    c->unique = wf_json_is_true(wf_json_get(s, "uniqueItems"));
    array_rule a = array_parts(g, s);
    if (a.prefix || a.items) {
        array_rule *rule = grammar_take(g, sizeof *rule);
        *rule = a;
        c->arrays = rule;
    }
}

static conj *conj_requiring(wf_grammar *g, conj *c, const wf_json *name)
{
    if (!wf_json_text(name)) grammar_fail(g, "required with what is no string");
    required_list *r = grammar_take(g, sizeof *r);
    *r = (required_list){{name->text, name->n}, c->required};
    c->required = r;
    return c;
}

static conj *conj_with_key(wf_grammar *g, conj *c, const wf_json *name, part of)
{
    key_rule *k = grammar_take(g, sizeof *k);
    *k = (key_rule){{name->text, name->n}, of, c->keys};
    c->keys = k;
    return c;
}

static const wf_json never_schema = {.kind = WF_JSON_BOOL, .b = false};

static conj *conj_without(wf_grammar *g, const wf_json *name)
{
    return conj_with_key(g, conj_new(g, T_OBJECT), name, part_of(g, &never_schema, false));
}

static void conj_objects(wf_grammar *g, const wf_json *s, conj *c)
{
    object_rule o = object_parts(g, s);
    if (o.properties || o.patterns || o.additional || o.open) {
        object_rule *rule = grammar_take(g, sizeof *rule);
        *rule = o;
        c->objects = rule;
    }
    WF_JSON_EACH(name, wf_json_get(s, "required")) conj_requiring(g, c, name);
    const wf_json *names = wf_json_get(s, "propertyNames");
    if (names) c->names = part_strings(g, part_of(g, names, false));
}

/* ---- keywords that take schemas ------------------------------------------------------------------------- */

static conj_list of(wf_grammar *g, const wf_json *schema, bool negative)
{
    return part_conjs(g, part_of(g, schema, negative));
}

static bool overlap(wf_grammar *g, conj_list a, conj_list b)
{
    for (conj_list c = conj_both(g, a, b); c; c = c->next) {
        conj one = *c;
        one.next = NULL;
        if (conj_nodes(g, &one)) return true;
    }
    return false;
}

/* Exactly one: each, and none of those that it overlaps with. */
static conj_list one_of(wf_grammar *g, const wf_json *list)
{
    conj_list out = NULL;
    size_t n = wf_json_count(list);
    for (size_t i = 0; i < n; i++) {
        conj_list all = of(g, &list->list[i], false), alone = all;
        for (size_t k = 0; k < n; k++)
            if (k != i && overlap(g, all, of(g, &list->list[k], false)))
                alone = conj_both(g, alone, of(g, &list->list[k], true));
        out = conj_either(g, alone, out);
    }
    return out;
}

static conj_list any_of(wf_grammar *g, const wf_json *list, bool negative)
{
    conj_list out = NULL;
    WF_JSON_EACH(one, list) out = conj_either(g, of(g, one, negative), out);
    return out;
}

static conj_list all_of(wf_grammar *g, const wf_json *list, bool negative)
{
    conj_list out = &conj_any;
    WF_JSON_EACH(one, list) out = conj_both(g, out, of(g, one, negative));
    return out;
}

/* (if and then) or (not if and else) */
static conj_list if_then(wf_grammar *g, const wf_json *s, bool negative)
{
    const wf_json *cond = wf_json_get(s, "if"), *then = wf_json_get(s, "then"), *otherwise = wf_json_get(s, "else");
    if (!cond || (!then && !otherwise)) return negative ? NULL : &conj_any;
    conj_list a = of(g, cond, false), b = of(g, cond, true);
    if (then || negative) a = then ? conj_both(g, a, of(g, then, negative)) : NULL;
    if (otherwise || negative) b = otherwise ? conj_both(g, b, of(g, otherwise, negative)) : NULL;
    return conj_either(g, a, b);
}

/* A key that asks for more where it is there: no such key, or all of it; not an object at all also does. */
static conj_list dependency(wf_grammar *g, const wf_json *name, const wf_json *what)
{
    conj *with = conj_requiring(g, conj_new(g, T_OBJECT), name);
    conj_list more = with;
    if (what->kind == WF_JSON_LIST) {
        WF_JSON_EACH(one, what) conj_requiring(g, with, one);
    } else if (what->kind == WF_JSON_STRING) conj_requiring(g, with, what);
    else more = conj_both(g, with, of(g, what, false));
    conj_list without = conj_either(g, conj_without(g, name), conj_new(g, T_ANY & ~T_OBJECT));
    return conj_either(g, without, more);
}

static conj_list positive(wf_grammar *g, const wf_json *s)
{
    const wf_json *ref = wf_json_get(s, "$ref"), *v;
    conj_list out = &conj_any;
    if (wf_json_text(ref)) out = of(g, refs_find(g, s, ref->text, ref->n), false);
    if (wf_json_text(ref) && g->old_refs) return out;
    refuse(g, s);
    conj *c = conj_new(g, T_ANY);
    if ((v = wf_json_get(s, "type"))) c->types = type_bits(g, v);
    each_bound(g, s, bound_add, &c->number);
    if ((v = wf_json_get(s, "multipleOf"))) number_multiple(g, &c->number, v);
    c->pattern = c->types & T_STRING ? string_pattern(g, s) : RE_ALL;
    for (size_t i = 0; i < WF_LEN(counts); i++) {
        *count_in(c, counts[i].min) = count_of(g, s, counts[i].min_key, 0);
        *count_in(c, counts[i].max) = count_of(g, s, counts[i].max_key, RE_MANY);
    }
    conj_arrays(g, s, c);
    conj_objects(g, s, c);
    out = conj_both(g, out, c);
    if ((v = wf_json_get(s, "const"))) {
        wf_json *one = grammar_take(g, sizeof *one);
        *one = (wf_json){.kind = WF_JSON_LIST, .n = 1, .list = v};
        out = conj_both(g, out, texts_conj(g, one));
    }
    if ((v = wf_json_get(s, "enum"))) out = conj_both(g, out, texts_conj(g, v));
    if ((v = wf_json_get(s, "allOf"))) out = conj_both(g, out, all_of(g, v, false));
    if ((v = wf_json_get(s, "anyOf"))) out = conj_both(g, out, any_of(g, v, false));
    if ((v = wf_json_get(s, "oneOf"))) out = conj_both(g, out, one_of(g, v));
    if ((v = wf_json_get(s, "not"))) out = conj_both(g, out, of(g, v, true));
    out = conj_both(g, out, if_then(g, s, false));
    static const char *const dependencies[] = {"dependencies", "dependentRequired", "dependentSchemas"};
    for (size_t i = 0; i < WF_LEN(dependencies); i++)
        WF_JSON_EACH_MEMBER(m, wf_json_get(s, dependencies[i]))
            out = conj_both(g, out, dependency(g, &m->name, &m->value));
    return out;
}

/* ---- complements: what breaks one keyword at least ------------------------------------------------------ */

#define NO_COMPLEMENT "not, or oneOf that overlaps, with the keyword %s"

static conj_list not_values(wf_grammar *g, const wf_json *list)
{
    conj *c = conj_new(g, T_ANY & ~(T_INT | T_FRAC));
    conj_list numbers = conj_new(g, T_INT | T_FRAC);
    re texts = RE_NONE;
    WF_JSON_EACH(v, list) {
        if (v->kind == WF_JSON_NULL) c->types &= (uint8_t)~T_NULL;
        else if (v->kind == WF_JSON_BOOL) c->types &= (uint8_t)~(v->b ? T_TRUE : T_FALSE);
        else if (v->kind == WF_JSON_STRING) texts = re_alt(g->pool, texts, re_literal(g->pool, v->text, v->n));
        else if (wf_json_is_number(v)) {
            dec d = dec_of_json(g, v);
            conj_list outside = NULL;
            bound_outside(g, &outside, &d, true, false), bound_outside(g, &outside, &d, false, false);
            numbers = conj_both(g, numbers, outside);
        } else grammar_fail(g, "not with a list or an object as a constant");
    }
    if (texts != RE_NONE) c->pattern = re_texts_but(g->pool, texts);
    return conj_either(g, numbers, c);
}

static conj_list not_string(wf_grammar *g, const wf_json *s)
{
    re pattern = string_pattern(g, s);
    if (pattern == RE_ALL) return NULL;
    conj *c = conj_new(g, T_STRING);
    c->pattern = re_texts_but(g->pool, pattern);
    return c;
}

static conj_list not_array(wf_grammar *g, const wf_json *s)
{
    conj_list out = NULL;
    array_rule a = array_parts(g, s);
    conj *c;
    uint32_t i = 0;
    WF_JSON_EACH(one, a.prefix) {
        key_rule *k = grammar_take(g, sizeof *k);
        *k = (key_rule){{NULL, i++}, part_of(g, one, true), NULL};
        (c = conj_new(g, T_ARRAY))->min_items = i, c->items = k, out = conj_either(g, c, out);
    }
    uint32_t min, max;
    if (contains_counts(g, s, &min, &max)) {
        const wf_json *schema = wf_json_get(s, "contains");
        if (min) conj_containing(g, c = conj_new(g, T_ARRAY), schema, 0, min - 1), out = conj_either(g, c, out);
        if (max != RE_MANY)
            conj_containing(g, c = conj_new(g, T_ARRAY), schema, max + 1, RE_MANY), out = conj_either(g, c, out);
    }
    if (wf_json_is_true(wf_json_get(s, "uniqueItems"))) grammar_fail(g, NO_COMPLEMENT, "uniqueItems");
    if (is_false(a.items)) (c = conj_new(g, T_ARRAY))->min_items = i + 1, out = conj_either(g, c, out);
    else if (a.items && !is_empty_schema(a.items)) grammar_fail(g, NO_COMPLEMENT, "items");
    return out;
}

static conj_list not_object(wf_grammar *g, const wf_json *s)
{
    conj_list out = NULL;
    object_rule o = object_parts(g, s);
    conj *c;
    if (o.additional || (o.patterns && o.patterns->n))
        grammar_fail(g, NO_COMPLEMENT, o.additional ? "additionalProperties" : "patternProperties");
    WF_JSON_EACH(name, wf_json_get(s, "required")) out = conj_either(g, conj_without(g, name), out);
    WF_JSON_EACH_MEMBER(m, o.properties) {
        if (is_empty_schema(&m->value)) continue;
        c = conj_requiring(g, conj_new(g, T_OBJECT), &m->name);
        out = conj_either(g, conj_with_key(g, c, &m->name, part_of(g, &m->value, true)), out);
    }
    return out;
}

static conj_list negative(wf_grammar *g, const wf_json *s)
{
    static const char *const never[] = {"dependencies", "dependentRequired", "dependentSchemas", "multipleOf",
                                        "propertyNames"};
    const wf_json *ref = wf_json_get(s, "$ref"), *v;
    conj_list out = NULL;
    if (wf_json_text(ref)) out = of(g, refs_find(g, s, ref->text, ref->n), true);
    if (wf_json_text(ref) && g->old_refs) return out;
    refuse(g, s);
    for (size_t i = 0; i < WF_LEN(never); i++)
        if (wf_json_get(s, never[i])) grammar_fail(g, NO_COMPLEMENT, never[i]);
    if ((v = wf_json_get(s, "type"))) out = conj_either(g, conj_new(g, (uint8_t)(T_ANY & ~type_bits(g, v))), out);
    each_bound(g, s, bound_outside, &out);
    out = conj_either(g, not_counts(g, s), out);
    out = conj_either(g, not_string(g, s), out);
    out = conj_either(g, not_array(g, s), out);
    out = conj_either(g, not_object(g, s), out);
    if ((v = wf_json_get(s, "const"))) {
        wf_json one = {.kind = WF_JSON_LIST, .n = 1, .list = v};
        out = conj_either(g, not_values(g, &one), out);
    }
    if ((v = wf_json_get(s, "enum"))) out = conj_either(g, not_values(g, v), out);
    if ((v = wf_json_get(s, "allOf"))) out = conj_either(g, any_of(g, v, true), out);
    if ((v = wf_json_get(s, "anyOf"))) out = conj_either(g, all_of(g, v, true), out);
    if ((v = wf_json_get(s, "oneOf"))) {
        conj_list none = all_of(g, v, true);
        for (size_t i = 0; i < wf_json_count(v); i++)
            for (size_t k = 0; k < i; k++)
                none = conj_either(g, conj_both(g, of(g, &v->list[i], false), of(g, &v->list[k], false)), none);
        out = conj_either(g, none, out);
    }
    if ((v = wf_json_get(s, "not"))) out = conj_either(g, of(g, v, false), out);
    return conj_either(g, if_then(g, s, true), out);
}

/* ---- parts and sets of them ----------------------------------------------------------------------------- */

part part_of(wf_grammar *g, const wf_json *schema, bool negative_of)
{
    size_t at = ((uintptr_t)schema / 16 * 2 + negative_of) * 0x9E3779B97F4A7C15u >> 52;
    for (uint32_t i = g->part_first[at]; i; i = g->parts[i - 1].next)
        if (g->parts[i - 1].schema == schema && g->parts[i - 1].negative == negative_of) return i - 1;
    grammar_grow(g, &g->parts, g->n_parts, &g->cap_parts, sizeof *g->parts);
    g->parts[g->n_parts++] = (struct part_entry){.schema = schema, .negative = negative_of, .next = g->part_first[at]};
    g->part_first[at] = (uint32_t)g->n_parts;
    return (part)g->n_parts - 1;
}

conj_list part_conjs(wf_grammar *g, part p)
{
    const wf_json *s = g->parts[p].schema;
    bool of_not = g->parts[p].negative;
    if (g->parts[p].known) return g->parts[p].conjs;
    if (g->parts[p].busy) grammar_fail(g, "a schema that refers to itself");
    g->parts[p].busy = true;
    grammar_deeper(g);
    conj_list out = NULL;
    if (wf_json_is(s, WF_JSON_BOOL)) out = s->b != of_not ? &conj_any : NULL;
    else if (!wf_json_is(s, WF_JSON_OBJECT)) grammar_fail(g, "a schema that is neither an object nor true nor false");
    else out = of_not ? negative(g, s) : positive(g, s);
    grammar_shallower(g);
    g->parts[p].busy = false, g->parts[p].known = true;
    return g->parts[p].conjs = out;
}

static int part_order(const void *a, const void *b)
{
    const part *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

cset cset_of(wf_grammar *g, const part_list *list)
{
    uint32_t n = 0, used = 0, kept = 0;
    for (const part_list *p = list; p; p = p->next) n++;
    grammar_work(g, 1 + n / 8);
    part *parts = grammar_hold(g, n * sizeof *parts);
    for (; list; list = list->next) parts[used++] = list->of;
    if (n) qsort(parts, n, sizeof *parts, part_order);
    for (uint32_t i = 0; i < n; i++)
        if (!kept || parts[i] != parts[kept - 1]) parts[kept++] = parts[i];
    uint64_t hash = kept;
    for (uint32_t i = 0; i < kept; i++) hash = (hash ^ parts[i]) * 0x9E3779B97F4A7C15u;
    cset found = g->cset_first[hash >> 52];
    while (found && (g->csets[found - 1].n != kept || memcmp(g->csets[found - 1].parts, parts, kept * sizeof *parts)))
        found = g->csets[found - 1].next;
    if (!found) {
        part *copy = grammar_take(g, kept * sizeof *copy);
        memcpy(copy, parts, kept * sizeof *copy);
        grammar_grow(g, &g->csets, g->n_csets, &g->cap_csets, sizeof *g->csets);
        g->csets[g->n_csets++] = (struct cset_entry){.parts = copy, .n = kept, .next = g->cset_first[hash >> 52]};
        g->cset_first[hash >> 52] = found = (cset)g->n_csets;
    }
    found--;
    grammar_release(g, parts);
    return found;
}

cset cset_of_one(wf_grammar *g, part p) { return cset_of(g, &(part_list){.of = p}); }

conj_list cset_conjs(wf_grammar *g, cset c)
{
    conj_list out = &conj_any;
    for (uint32_t i = 0; i < g->csets[c].n; i++) out = conj_both(g, out, part_conjs(g, g->csets[c].parts[i]));
    return out;
}
