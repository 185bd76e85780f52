/* Conjunctions, and lists of them: what a value may be in disjunctive normal form. */
#include "grammar/internal.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_CONJS = 3000 };

const conj conj_any = {.types = T_ANY,
                       .pattern = RE_ALL,
                       .max_length = RE_MANY,
                       .max_items = RE_MANY,
                       .max_keys = RE_MANY,
                       .names = RE_ALL};

conj *conj_new(wf_grammar *g, uint8_t types)
{
    conj *c = grammar_take(g, sizeof *c);
    *c = conj_any;
    c->types = types;
    return c;
}

/* Lists that are joined share the end of the second. */
#define JOIN(g, type, a, b)                                                                                            \
    __extension__({                                                                                                    \
        const type *join_to_ = (b), *join_all_ = (b), **join_at_ = &join_all_;                                         \
        for (const type *x_ = (a); x_; x_ = x_->next) {                                                                \
            type *join_copy_ = grammar_take(g, sizeof *join_copy_);                                                    \
            *join_copy_ = *x_;                                                                                         \
            join_copy_->next = join_to_;                                                                               \
            *join_at_ = join_copy_;                                                                                    \
            join_at_ = &join_copy_->next;                                                                              \
        }                                                                                                              \
        join_all_;                                                                                                     \
    })

static int text_order(const void *a, const void *b)
{
    const text_list *x = a, *y = b;
    int c = memcmp(x->text, y->text, WF_MIN(x->n, y->n));
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

static void texts_both(wf_grammar *g, conj *c, const text_list *more, uint32_t n_more)
{
    text_list *kept = grammar_take(g, c->n_texts * sizeof *kept);
    uint32_t n = 0;
    for (uint32_t i = 0, k = 0; i < c->n_texts && k < n_more;) {
        int order = text_order(&c->texts[i], &more[k]);
        if (!order) kept[n++] = c->texts[i];
        i += order <= 0;
        k += order >= 0;
    }
    c->texts = kept, c->n_texts = n;
}

/* Takes types away of which surely nothing is left. */
static void conj_tidy(wf_grammar *g, conj *c)
{
    if (c->types & T_STRING) {
        if (c->texts && (c->pattern != RE_ALL || c->min_length || c->max_length != RE_MANY)) {
            /* Those of texts that pattern accepts. */
            re pattern = re_and(g->pool, c->pattern, re_lengths(g->pool, c->min_length, c->max_length));
            text_list *kept = grammar_take(g, c->n_texts * sizeof *kept);
            uint32_t n = 0;
            for (uint32_t i = 0; i < c->n_texts; i++) {
                int32_t state = re_state(g->pool, pattern);
                grammar_work(g, c->texts[i].n / 16 + 1);
                for (uint32_t k = 0; k < c->texts[i].n && state >= 0; k++)
                    state = re_step(g->pool, state, (unsigned char)c->texts[i].text[k]);
                if (re_accepts(g->pool, state)) kept[n++] = c->texts[i];
            }
            c->texts = kept, c->n_texts = n;
            c->pattern = RE_ALL, c->min_length = 0, c->max_length = RE_MANY;
        }
        if ((c->texts && !c->n_texts) || c->min_length > c->max_length || c->pattern == RE_NONE)
            c->types &= (uint8_t)~T_STRING;
    }
    if (c->types & T_FRAC && number_none(&c->number, false)) c->types &= (uint8_t)~(T_INT | T_FRAC);
    if ((c->types & (T_INT | T_FRAC)) == T_INT && number_none(&c->number, true)) c->types &= (uint8_t)~T_INT;
    if (c->min_items > c->max_items) c->types &= (uint8_t)~T_ARRAY;
    if (c->min_keys > c->max_keys) c->types &= (uint8_t)~T_OBJECT;
}

static conj *conj_and(wf_grammar *g, const conj *a, const conj *b)
{
    conj *c = grammar_take(g, sizeof *c);
    *c = *a;
    c->next = NULL;
    c->types &= b->types;
    number_both(g, &c->number, &b->number);
    c->pattern = re_and(g->pool, a->pattern, b->pattern);
    c->min_length = WF_MAX(a->min_length, b->min_length), c->max_length = WF_MIN(a->max_length, b->max_length);
    c->min_items = WF_MAX(a->min_items, b->min_items), c->max_items = WF_MIN(a->max_items, b->max_items);
    c->min_keys = WF_MAX(a->min_keys, b->min_keys), c->max_keys = WF_MIN(a->max_keys, b->max_keys);
    if (b->texts && a->texts) texts_both(g, c, b->texts, b->n_texts);
    else if (b->texts) c->texts = b->texts, c->n_texts = b->n_texts;
    c->arrays = JOIN(g, array_rule, a->arrays, b->arrays);
    c->items = JOIN(g, key_rule, a->items, b->items);
    c->contains = JOIN(g, contains_rule, a->contains, b->contains);
    c->unique = a->unique || b->unique;
    c->objects = JOIN(g, object_rule, a->objects, b->objects);
    c->keys = JOIN(g, key_rule, a->keys, b->keys);
    c->required = JOIN(g, required_list, a->required, b->required);
    c->names = re_and(g->pool, a->names, b->names);
    conj_tidy(g, c);
    return c;
}

conj_list conj_both(wf_grammar *g, conj_list a, conj_list b)
{
    conj_list out = NULL, *at = &out;
    size_t n = 0;
    for (conj_list x = a; x; x = x->next)
        for (conj_list y = b; y; y = y->next) {
            grammar_work(g, 20);
            conj *c = conj_and(g, x, y);
            if (!c->types) continue;
            if (++n > MAX_CONJS) grammar_fail(g, "it has too many combinations of alternatives");
            *at = c;
            at = (conj_list *)&c->next;
        }
    return out;
}

conj_list conj_either(wf_grammar *g, conj_list a, conj_list b)
{
    if (!a) return b;
    if (!b) return a;
    return JOIN(g, conj, a, b);
}

/* A schema that accepts equal lists or objects alone. */
static const wf_json *schema_of_constant(wf_grammar *g, const wf_json *v)
{
    wf_text t = {0};
    if (v->kind == WF_JSON_LIST) {
        wf_json_print(&t, "{'type':'array','items':false,'minItems':%u,'prefixItems':[", v->n);
        WF_JSON_EACH(one, v) {
            wf_json_comma(&t);
            wf_json_print(&t, "{'const':");
            wf_json_put(&t, one);
            wf_json_print(&t, "}");
        }
        wf_json_print(&t, "]}");
    } else {
        wf_json_print(&t, "{'type':'object','additionalProperties':false,'required':[");
        WF_JSON_EACH_MEMBER(m, v) {
            wf_json_comma(&t);
            wf_json_put(&t, &m->name);
        }
        wf_json_print(&t, "],'properties':{");
        WF_JSON_EACH_MEMBER(m, v) {
            wf_json_comma(&t);
            wf_json_put(&t, &m->name);
            wf_json_print(&t, ":{'const':");
            wf_json_put(&t, &m->value);
            wf_json_print(&t, "}");
        }
        wf_json_print(&t, "}}");
    }
    wf_json_error e;
    size_t steps = t.len / 16;
    wf_json *doc = t.failed ? NULL : wf_json_read(t.data, t.len, NULL, &e);
    free(t.data);
    if (!doc || !wf_grow(&g->docs, g->n_docs, &g->cap_docs, sizeof *g->docs)) {
        wf_json_free(doc);
        grammar_no_memory(g);
    }
    g->docs[g->n_docs++] = doc;
    grammar_work(g, steps);
    return doc;
}

conj_list texts_conj(wf_grammar *g, const wf_json *v)
{
    size_t n = 1;
    if (v->kind == WF_JSON_LIST) n = v->n, v = v->list;
    conj_list out = NULL;
    conj *base = conj_new(g, 0);
    text_list *texts = grammar_take(g, n * sizeof *texts);
    uint32_t used = 0, kept = 0;
    for (size_t i = 0; i < n; i++)
        if (v[i].kind == WF_JSON_STRING) texts[used++] = (text_list){v[i].text, v[i].n};
    qsort(texts, used, sizeof *texts, text_order);
    for (uint32_t i = 0; i < used; i++)
        if (!i || text_order(&texts[i], &texts[kept - 1])) texts[kept++] = texts[i];
    base->n_texts = kept;
    base->texts = texts;
    if (base->n_texts) base->types |= T_STRING;
    for (size_t i = 0; i < n; i++) {
        grammar_work(g, 1);
        if (v[i].kind == WF_JSON_NULL) base->types |= T_NULL;
        else if (v[i].kind == WF_JSON_BOOL) base->types |= v[i].b ? T_TRUE : T_FALSE;
        else if (wf_json_is_number(&v[i])) {
            conj *c = conj_new(g, T_INT | T_FRAC);
            dec d = dec_of_json(g, &v[i]);
            number_low(&c->number, &d, false), number_high(&c->number, &d, false);
            out = conj_either(g, c, out);
        } else if (v[i].kind != WF_JSON_STRING)
            out = conj_either(g, part_conjs(g, part_of(g, schema_of_constant(g, &v[i]), false)), out);
    }
    return base->types ? conj_either(g, base, out) : out;
}
