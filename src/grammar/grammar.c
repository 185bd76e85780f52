/* Grammars from schemas, patterns and lists of texts; and nodes: what a value may be, an alternative for each type. */
#include "grammar/internal.h"
#include "grammar/regex_pool.h"

#include <stdlib.h>
#include <string.h>

/* ---- nodes ---------------------------------------------------------------------------------------------- */

static alternative *alternative_new(wf_grammar *g, uint8_t type, node next)
{
    alternative *a = grammar_take(g, sizeof *a);
    a->type = type, a->next = next, a->pattern = RE_ALL, a->others = RE_ALL, a->max = RE_MANY;
    return a;
}

static node node_number(wf_grammar *g, const conj *c, node next)
{
    if (!(c->types & T_INT)) grammar_fail(g, "not with the type integer");
    const number_rule *r = &c->number;
    bool units = r->multiple || !(c->types & T_FRAC), far = (r->has_low && !r->low.negative && r->low.point > 29) ||
                                                            (r->has_high && r->high.negative && r->high.point > 29);
    if (units && far) grammar_fail(g, "a bound of more than 29 digits");
    alternative *a = alternative_new(g, c->types & T_FRAC, next);
    if (!a->type) a->type = T_INT;
    a->number = c->number;
    a->bounded = c->number.has_low || c->number.has_high || c->number.multiple;
    return a;
}

static node node_string(wf_grammar *g, const conj *c, node next)
{
    alternative *a = alternative_new(g, T_STRING, next);
    if (c->texts) {
        a->texts = c->texts, a->n_texts = c->n_texts;
        return c->n_texts ? a : next;
    }
    if (c->pattern == RE_ALL) {
        a->min = c->min_length, a->max = c->max_length;
        return a;
    }
    a->pattern = conj_strings(g, c);
    return re_state(g->pool, a->pattern) < 0 ? next : a;
}

/* more: what else it has to be; PART_NONE: nothing. */
static cset item_cset(wf_grammar *g, const conj *c, uint32_t i, part more)
{
    part_list *all = NULL;
    if (more != PART_NONE) {
        all = grammar_take(g, sizeof *all);
        *all = (part_list){.of = more};
    }
    for (const array_rule *r = c->arrays; r; r = r->next) {
        const wf_json *s = i < wf_json_count(r->prefix) ? &r->prefix->list[i] : r->items;
        if (!s) continue;
        part_list *p = grammar_take(g, sizeof *p);
        *p = (part_list){part_of(g, s, false), all};
        all = p;
    }
    for (const key_rule *k = c->items; k; k = k->next) {
        if (k->key.n != i) continue;
        part_list *p = grammar_take(g, sizeof *p);
        *p = (part_list){k->of, all};
        all = p;
    }
    return cset_of(g, all);
}

/* Items that differ have to be strings, which are told apart: by what is left of a pattern, or among those that came if
 * each beginning goes on without end. false: there are too few. */
static bool node_unique(wf_grammar *g, alternative *a)
{
    enum { MANY_TEXTS = 2 }; /* characters that make more texts than an array has items */
    if (g->csets[a->items].state == 1) grammar_fail(g, "the keyword uniqueItems of items that contain themselves");
    node items = cset_node(g, a->items);
    uint32_t n = 0, n_texts = 0;
    bool free = true, finite = false;
    if (a->n_prefix || a->counted)
        grammar_fail(g, "the keyword uniqueItems beside %s", a->counted ? "contains" : "prefixItems");
    alternative *one = alternative_new(g, T_STRING, NULL);
    re all = RE_NONE;
    for (node x = items; x; x = x->next, n++) {
        if (x->type != T_STRING) grammar_fail(g, "the keyword uniqueItems of items that are not strings");
        re own = x->pattern;
        if (alternative_free(x)) own = re_lengths(g->pool, x->min, x->max);
        for (uint32_t i = 0; x->texts && i < x->n_texts; i++)
            own = re_alt(g->pool, i ? own : RE_NONE, re_literal(g->pool, x->texts[i].text, x->texts[i].n));
        free &= alternative_free(x) && x->max == RE_MANY;
        finite |= alternative_free(x) ? x->max < MANY_TEXTS : !x->texts && re_finite(g->pool, own);
        n_texts += x->n_texts;
        all = re_alt(g->pool, all, own);
        one->min = n ? WF_MIN(one->min, x->min) : x->min;
    }
    bool listed = n == 1 && items->texts;
    if (!free && !listed && (finite || n_texts) && a->min > 1) grammar_fail(g, "the keyword uniqueItems with minItems");
    if (!free) one->pattern = all;
    a->others = one->pattern;
    a->unique = one;
    return !listed || a->min <= n_texts;
}

bool array_ends(wf_grammar *g, const alternative *a, uint32_t at, uint32_t counted,
                bool (*possible)(wf_grammar *, cset))
{
    uint32_t low = counted, high = counted; /* at least and at most so many count of the items up to here */
    uint32_t min = a->counted ? a->min_counted : 0, max = a->counted ? a->max_counted : RE_MANY;
    for (;; at++) {
        if (at >= a->min && low <= max && high >= min) return at <= a->max;
        uint32_t i = WF_MIN(at, a->n_prefix);
        cset item = i < a->n_prefix ? a->prefix[i] : a->items;
        bool of = a->counted && possible(g, a->counted[i].of);
        bool not_of = possible(g, a->counted ? a->counted[i].not_of : item);
        if (at >= a->max || (!of && !not_of)) return false;
        if (i == a->n_prefix) { /* all that follow are the same: as few as there have to be */
            uint32_t n = at < a->min ? a->min - at : 0;
            if (high < min) n = WF_MAX(n, min - high);
            return low <= max && (of || high >= min) && n <= a->max - at && (not_of || n <= max - low);
        }
        low += !not_of, high += of;
    }
}

static node node_array(wf_grammar *g, const conj *c, node next)
{
    alternative *a = alternative_new(g, T_ARRAY, next);
    a->min = c->min_items, a->max = c->max_items;
    for (const array_rule *r = c->arrays; r; r = r->next)
        a->n_prefix = WF_MAX(a->n_prefix, (uint32_t)wf_json_count(r->prefix));
    for (const key_rule *k = c->items; k; k = k->next) a->n_prefix = WF_MAX(a->n_prefix, k->key.n + 1);
    cset *prefix = grammar_take(g, a->n_prefix * sizeof *prefix);
    for (uint32_t i = 0; i < a->n_prefix; i++) prefix[i] = item_cset(g, c, i, PART_NONE);
    a->prefix = prefix;
    a->items = item_cset(g, c, UINT32_MAX, PART_NONE);
    /* What items are that contains counts. Where it has no upper bound those that do not count may be any. */
    const contains_rule *r = c->contains;
    if (r) {
        a->min_counted = r->min, a->max_counted = r->max;
        for (const contains_rule *x = r->next; x; x = x->next) {
            if (x->schema != r->schema) grammar_fail(g, "more than one contains for the same array");
            a->min_counted = WF_MAX(a->min_counted, x->min), a->max_counted = WF_MIN(a->max_counted, x->max);
        }
        struct counted_items *items = grammar_take(g, (a->n_prefix + 1) * sizeof *items);
        part no = a->max_counted == RE_MANY ? PART_NONE : part_of(g, r->schema, true);
        for (uint32_t i = 0; i <= a->n_prefix; i++) {
            uint32_t at = i < a->n_prefix ? i : UINT32_MAX;
            items[i] =
                (struct counted_items){item_cset(g, c, at, part_of(g, r->schema, false)), item_cset(g, c, at, no)};
        }
        a->counted = items;
    }
    if (c->unique && a->max > 1 && !node_unique(g, a)) return next;
    return array_ends(g, a, 0, 0, cset_possible) ? a : next;
}

/* ---- objects */

static int key_order(const void *a, const void *b)
{
    const key_entry *x = a, *y = b;
    int c = memcmp(x->key.text, y->key.text, WF_MIN(x->key.n, y->key.n));
    return c ? c : (x->key.n > y->key.n) - (x->key.n < y->key.n);
}

static bool text_matches(wf_grammar *g, re pattern, const char *text, uint32_t n)
{
    if (pattern == RE_ALL) return true;
    int32_t s = re_state(g->pool, pattern);
    grammar_work(g, n / 16 + 1);
    for (uint32_t i = 0; i < n && s >= 0; i++) s = re_step(g->pool, s, (unsigned char)text[i]);
    return re_accepts(g->pool, s);
}

static void patterns_of(wf_grammar *g, const conj *c, alternative *a)
{
    uint32_t n = 0;
    for (const object_rule *r = c->objects; r; r = r->next) {
        n += (uint32_t)wf_json_size(r->patterns);
        a->n_rules++;
    }
    pattern_entry *patterns = grammar_take(g, n * sizeof *patterns);
    a->additional_of = grammar_take(g, a->n_rules * sizeof *a->additional_of);
    uint32_t rule = 0;
    for (const object_rule *r = c->objects; r; r = r->next, rule++) {
        WF_JSON_EACH_MEMBER(m, r->patterns)
            patterns[a->n_patterns++] = (pattern_entry){re_parse(g->pool, m->name.text, m->name.n, false),
                                                        part_of(g, &m->value, false), rule};
        a->additional_of[rule] = r->additional ? part_of(g, r->additional, false) : PART_NONE;
    }
    a->patterns = patterns;
}

static const wf_json nothing = {.kind = WF_JSON_BOOL, .b = false};

/* What the value of a key has to be. matched: of each pattern, whether the key has it. */
static cset key_cset(wf_grammar *g, const conj *c, const alternative *a, text_list key)
{
    part_list *all = NULL;
    uint32_t rule = 0;
#define ADD(what)                                                                                                      \
    do {                                                                                                               \
        part_list *add_ = grammar_take(g, sizeof *add_);                                                               \
        *add_ = (part_list){what, all};                                                                                \
        all = add_;                                                                                                    \
    } while (0)
    for (const object_rule *r = c->objects; r; r = r->next, rule++) {
        grammar_work(g, 1 + (key.n + a->n_patterns) / 16);
        const wf_json *s = wf_json_find(r->properties, key.text, key.n);
        bool named = s;
        if (s) ADD(part_of(g, s, false));
        for (uint32_t i = 0; i < a->n_patterns; i++)
            if (a->patterns[i].rule == rule && text_matches(g, a->patterns[i].pattern, key.text, key.n)) {
                named = true;
                ADD(a->patterns[i].value);
            }
        if (!named && a->additional_of[rule] != PART_NONE) ADD(a->additional_of[rule]);
    }
    for (const key_rule *k = c->keys; k; k = k->next, grammar_work(g, 1))
        if (k->key.n == key.n && !memcmp(k->key.text, key.text, key.n)) ADD(k->of);
    if (!text_matches(g, c->names, key.text, key.n)) ADD(part_of(g, &nothing, false));
#undef ADD
    return cset_of(g, all);
}

static re patterns_united(wf_grammar *g, const alternative *a, uint32_t rule)
{
    re out = RE_NONE;
    for (uint32_t i = 0; i < a->n_patterns; i++)
        if (rule == a->patterns[i].rule || rule == UINT32_MAX) out = re_alt(g->pool, out, a->patterns[i].pattern);
    return out;
}

/* Are other keys than those that are named left out, though the schema does not say so? */
static bool is_closed(const wf_grammar *g, const conj *c)
{
    bool named = false, open = false;
    for (const object_rule *r = c->objects; r; r = r->next) {
        named |= r->properties != NULL;
        open |= r->open || r->additional;
    }
    return g->closed && named && !open;
}

/* The keys that are possible without being declared: all that have a value, so that none is begun that cannot end. */
static void others_of(wf_grammar *g, const conj *c, alternative *a, bool closed)
{
    re_pool *p = g->pool;
    re others = closed ? re_and(p, c->names, patterns_united(g, a, UINT32_MAX)) : c->names;
    for (uint32_t r = 0; r < a->n_rules; r++)
        if (a->additional_of[r] != PART_NONE && cset_empty(g, cset_of_one(g, a->additional_of[r])))
            others = re_and(p, others, patterns_united(g, a, r));
    if (cset_empty(g, other_key_value(g, a, NULL))) others = re_and(p, others, patterns_united(g, a, UINT32_MAX));
    for (uint32_t i = 0; i < a->n_patterns; i++)
        if (cset_empty(g, cset_of_one(g, a->patterns[i].value)))
            others = re_and(p, others, re_texts_but(p, a->patterns[i].pattern));
    a->finite = others != RE_ALL && re_finite(p, others);
    for (uint32_t i = 0; a->finite && i < a->n_keys; i++) {
        const text_list *key = &a->keys[i].key;
        if (text_matches(g, others, key->text, key->n))
            others = re_and(p, others, re_texts_but(p, re_literal(p, key->text, key->n)));
    }
    a->others = others;
}

static node node_object(wf_grammar *g, const conj *c, node next)
{
    alternative *a = alternative_new(g, T_OBJECT, next);
    /* All keys that any rule names, sorted. */
    uint32_t most = 0, used = 0, kept = 0;
    for (const object_rule *r = c->objects; r; r = r->next) most += (uint32_t)wf_json_size(r->properties);
    for (const key_rule *k = c->keys; k; k = k->next) most++;
    for (const required_list *r = c->required; r; r = r->next) most++;
    key_entry *keys = grammar_take(g, most * sizeof *keys);
    for (const object_rule *r = c->objects; r; r = r->next)
        WF_JSON_EACH_MEMBER(m, r->properties) keys[used++].key = (text_list){m->name.text, m->name.n};
    for (const key_rule *k = c->keys; k; k = k->next) keys[used++].key = k->key;
    for (const required_list *r = c->required; r; r = r->next) keys[used].required = true, keys[used++].key = r->key;
    qsort(keys, used, sizeof *keys, key_order);
    for (uint32_t i = 0; i < used; i++) {
        if (kept && !key_order(&keys[i], &keys[kept - 1])) keys[kept - 1].required |= keys[i].required;
        else keys[kept++] = keys[i];
    }
    a->n_keys = kept;
    a->min = c->min_keys, a->max = c->max_keys;
    patterns_of(g, c, a);
    for (uint32_t i = 0; i < a->n_keys; i++) {
        keys[i].value = key_cset(g, c, a, keys[i].key);
        if (!keys[i].required) continue;
        a->n_required++;
        if (cset_empty(g, keys[i].value)) return next;
    }
    a->keys = keys;
    if (a->n_required > a->max) return next;
    uint32_t possible = a->n_required; /* are there enough keys? */
    for (uint32_t i = 0; a->min > a->n_required && i < a->n_keys; i++)
        possible += !keys[i].required && !cset_empty(g, keys[i].value);
    others_of(g, c, a, possible >= a->min && is_closed(g, c));
    return possible < a->min && !re_some(g->pool, a->others) ? next : a;
}

node conj_nodes(wf_grammar *g, const conj *c)
{
    static const uint8_t words[] = {T_NULL, T_FALSE, T_TRUE};
    node out = NULL;
    size_t n = 0;
    for (; c; c = c->next) {
        grammar_work(g, 10);
        if (++n > MAX_THREADS) grammar_fail(g, "more than %d alternatives in one place", MAX_THREADS);
        for (size_t i = 0; i < WF_LEN(words); i++) {
            bool there = !(c->types & words[i]);
            for (node n = out; n && !there; n = n->next) there = n->type == words[i];
            if (!there) out = alternative_new(g, words[i], out);
        }
        if (c->types & (T_INT | T_FRAC)) out = node_number(g, c, out);
        if (c->types & T_STRING) out = node_string(g, c, out);
        if (c->types & T_ARRAY) out = node_array(g, c, out);
        if (c->types & T_OBJECT) out = node_object(g, c, out);
    }
    return out;
}

bool cset_possible(wf_grammar *g, cset c) { return !cset_empty(g, c); }

static bool cset_ends(wf_grammar *g, cset c) { return g->csets[c].ends; }

/* Is there a value without end alone? As far as is known. */
static bool alternative_ends(wf_grammar *g, const alternative *a)
{
    grammar_work(g, 1 + a->n_keys / 8);
    if (a->type == T_ARRAY) return array_ends(g, a, 0, 0, cset_ends);
    if (a->type != T_OBJECT) return true;
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_keys; i++) {
        bool ends = cset_ends(g, a->keys[i].value);
        if (a->keys[i].required && !ends) return false;
        n += ends;
    }
    if (n >= a->min || !re_some(g->pool, a->others)) return n >= a->min;
    bool ends = !a->n_rules && !a->n_patterns;
    for (uint32_t i = 0; i < a->n_patterns; i++) ends |= cset_ends(g, cset_of_one(g, a->patterns[i].value));
    for (uint32_t r = 0; r < a->n_rules; r++)
        ends |= a->additional_of[r] == PART_NONE || cset_ends(g, cset_of_one(g, a->additional_of[r]));
    return ends;
}

/* Finds the sets that have no value that ends, such as objects that need one of their own kind. */
static bool csets_find_endless(wf_grammar *g)
{
    bool found = false;
    for (bool more = true; more;) {
        more = false;
        for (size_t c = g->n_csets; c-- > 0;)
            for (node a = g->csets[c].ends ? NULL : g->csets[c].made; a && !g->csets[c].ends; a = a->next)
                if (alternative_ends(g, a)) g->csets[c].ends = more = true;
    }
    for (size_t c = 0; c < g->n_csets; c++) {
        if (!g->csets[c].made || g->csets[c].ends) continue;
        g->csets[c].never = found = true;
        g->csets[c].made = NULL;
    }
    return found;
}

node cset_node(wf_grammar *g, cset c)
{
    if (g->csets[c].state == 2) return g->csets[c].made;
    g->csets[c].state = 1;
    grammar_deeper(g);
    node made = conj_nodes(g, cset_conjs(g, c));
    grammar_shallower(g);
    g->csets[c].made = made, g->csets[c].state = 2;
    return made;
}

/* A set that is being looked at already is taken to have a value: without one it would have to contain itself. */
bool cset_empty(wf_grammar *g, cset c) { return g->csets[c].state != 1 && !cset_node(g, c); }

/* ---- grammars ------------------------------------------------------------------------------------------- */

weft_status grammar_new(wf_grammar **out)
{
    wf_grammar *g = *out = wf_calloc(1, sizeof *g);
    if (!g || !(g->pool = re_pool_new(g))) {
        wf_grammar_free(g);
        *out = NULL;
        return wf_fail(WEFT_ERR_NOMEM, "out of host memory for a grammar");
    }
    return WEFT_OK;
}

void wf_grammar_free(wf_grammar *g)
{
    if (!g) return;
    grammar_uncount(g, g->bytes);
    masks_free(g);
    re_pool_free(g->pool);
    arena_free(&g->kept);
    arena_free(&g->held);
    for (size_t i = 0; i < g->n_docs; i++) wf_json_free(g->docs[i]);
    free(g->docs);
    free(g->parts);
    free(g->csets);
    free(g->ids);
    free(g->scopes);
    free(g->rules);
    free(g);
}

weft_status grammar_made(wf_grammar *g, const char *what, wf_grammar **out)
{
    if (g->status == WEFT_OK) {
        *out = g;
        return WEFT_OK;
    }
    weft_status s = g->status == WEFT_ERR_NOMEM ? wf_fail(g->status, "%s", g->message)
                                                : wf_fail(g->status, "%s is not supported: %s", what, g->message);
    wf_grammar_free(g);
    return s;
}

static void schema_compile(wf_grammar *g)
{
    const wf_json *draft = wf_json_get(g->docs[0], "$schema");
    re_begin(g->pool);
    g->old_refs = wf_json_text(draft) && (strstr(draft->text, "draft-03") || strstr(draft->text, "draft-04") ||
                                          strstr(draft->text, "draft-06") || strstr(draft->text, "draft-07"));
    refs_begin(g);
    cset_of(g, NULL); /* CSET_ANY */
    cset root = cset_of_one(g, part_of(g, g->docs[0], false));
    if (root != 1) grammar_fail(g, "the schema");
    for (;;) { /* again without what has no end, which others have been made with */
        if (g->csets[root].never) grammar_fail(g, "a schema whose values have no end");
        if (cset_empty(g, root)) grammar_fail(g, "a schema that no value satisfies");
        /* What comes later is made as answers need it, but refused now. */
        for (cset c = 0; c < g->n_csets; c++) {
            node n = cset_node(g, c);
            for (; n; n = n->next) {
                for (uint32_t i = 0; i < n->n_patterns; i++) cset_of_one(g, n->patterns[i].value);
                for (uint32_t r = 0; r < n->n_rules; r++)
                    if (n->additional_of[r] != PART_NONE) cset_of_one(g, n->additional_of[r]);
            }
        }
        if (!csets_find_endless(g)) return;
        for (cset c = 0; c < g->n_csets; c++)
            if (!g->csets[c].never) g->csets[c].state = 0, g->csets[c].made = NULL, g->csets[c].ends = false;
    }
}

weft_status wf_grammar_schema(const char *schema, size_t n, bool closed, wf_grammar **out)
{
    wf_grammar *g;
    *out = NULL;
    WF_TRY(grammar_new(&g));
    wf_json *doc = NULL;
    weft_status s = wf_json_load(schema, n, "the schema", WF_JSON_LOOSE, &doc);
    if (s == WEFT_OK && !wf_grow(&g->docs, 0, &g->cap_docs, sizeof *g->docs)) s = WEFT_ERR_NOMEM;
    if (s != WEFT_OK) {
        wf_json_free(doc);
        wf_grammar_free(g);
        return s;
    }
    g->docs[g->n_docs++] = doc;
    g->closed = closed;
    GRAMMAR_ENTER(g, schema_compile(g));
    return grammar_made(g, "the schema", out);
}

void raw_begin(wf_grammar *g)
{
    g->raw = true;
    re_begin(g->pool);
}

static void raw_check(wf_grammar *g)
{
    g->raw_begin = re_state(g->pool, g->raw_pattern), g->raw_end = re_state(g->pool, re_byte(g->pool, RE_END));
    if (g->raw_begin < 0) grammar_fail(g, "a pattern that no text has");
}

weft_status wf_grammar_regex(const char *pattern, size_t n, wf_grammar **out)
{
    wf_grammar *g;
    *out = NULL;
    WF_TRY(grammar_new(&g));
    GRAMMAR_ENTER(g, {
        raw_begin(g);
        g->raw_pattern = re_parse(g->pool, pattern, n, true);
        raw_check(g);
    });
    return grammar_made(g, "the pattern", out);
}

weft_status wf_grammar_choice(const wf_slice *texts, size_t n, wf_grammar **out)
{
    wf_grammar *g;
    *out = NULL;
    WF_TRY(grammar_new(&g));
    GRAMMAR_ENTER(g, {
        raw_begin(g);
        for (size_t i = 0; i < n; i++) {
            if (wf_utf8_valid(texts[i].p, texts[i].n) != texts[i].n) grammar_fail(g, "a text that is not UTF-8");
            g->raw_pattern = re_alt(g->pool, g->raw_pattern, re_literal(g->pool, texts[i].p, texts[i].n));
        }
        raw_check(g);
    });
    return grammar_made(g, "the choice", out);
}

/* ---- of a request -------------------------------------------------------------------------------------- */

/* A list of texts, in JSON. */
static weft_status grammar_choice_list(const char *text, size_t n, wf_grammar **out)
{
    wf_json *list = NULL;
    WF_TRY(wf_json_load(text, n, "the choice", WF_JSON_LOOSE, &list));
    size_t count = wf_json_count(list);
    wf_slice *texts = wf_calloc(count + 1, sizeof *texts);
    weft_status s = texts ? WEFT_OK : WEFT_ERR_NOMEM;
    if (s == WEFT_OK && !count) s = wf_fail(WEFT_ERR_ARG, "the choice must be a list of texts that is not empty");
    for (size_t i = 0; s == WEFT_OK && i < count; i++) {
        const wf_json *v = &list->list[i];
        if (v->kind != WF_JSON_STRING) s = wf_fail(WEFT_ERR_ARG, "the choice must be a list of texts alone");
        else texts[i] = (wf_slice){v->text, v->n};
    }
    if (s == WEFT_OK) s = wf_grammar_choice(texts, count, out);
    free(texts);
    wf_json_free(list);
    return s;
}

weft_status wf_grammar_compile(enum weft_grammar kind, const char *text, size_t n, wf_grammar **out)
{
    static const char any_object[] = "{\"type\":\"object\"}";
    *out = NULL;
    switch (kind) {
    case WEFT_GRAMMAR_NONE: return WEFT_OK;
    case WEFT_GRAMMAR_OBJECT: return wf_grammar_schema(any_object, sizeof any_object - 1, false, out);
    case WEFT_GRAMMAR_SCHEMA: return wf_grammar_schema(text, n, true, out);
    case WEFT_GRAMMAR_REGEX: return wf_grammar_regex(text, n, out);
    case WEFT_GRAMMAR_CHOICE: return grammar_choice_list(text, n, out);
    case WEFT_GRAMMAR_GBNF: return wf_grammar_gbnf(text, n, out);
    }
    return wf_fail(WEFT_ERR_ARG, "grammar %d is unknown", (int)kind);
}
