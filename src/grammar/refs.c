/* Where $ref leads: within the document, by pointer, anchor or the $id of one of its schemas. Nothing is fetched. */
#include "grammar/internal.h"

#include <stdlib.h>
#include <string.h>

/* A reference seen from a base (RFC 3986, 5.2, as far as schemas use it), without its fragment. */
static const char *uri_join(wf_grammar *g, const char *base, const char *ref, size_t n)
{
    const char *hash = memchr(ref, '#', n);
    if (hash) n = (size_t)(hash - ref);
    const char *colon = memchr(ref, ':', n), *slash = memchr(ref, '/', n);
    size_t keep = 0;
    if (!n) keep = strlen(base);
    else if (!colon || (slash && slash < colon)) {
        const char *authority = strstr(base, "://");
        const char *path = authority ? strchr(authority + 3, '/') : strchr(base, '/');
        const char *last = strrchr(base, '/');
        if (n && *ref == '/') keep = path ? (size_t)(path - base) : strlen(base);
        else keep = path && last ? (size_t)(last + 1 - base) : 0;
    }
    char *out = grammar_take(g, keep + n + 1);
    memcpy(out, base, keep);
    memcpy(out + keep, ref, n);
    return out;
}

static void id_add(wf_grammar *g, const char *uri, const wf_json *schema)
{
    grammar_grow(g, &g->ids, g->n_ids, &g->cap_ids, sizeof *g->ids);
    g->ids[g->n_ids++] = (struct doc_id){uri, schema};
}

static const char *with_fragment(wf_grammar *g, const char *base, const char *name, size_t n)
{
    size_t len = strlen(base);
    char *out = grammar_take(g, len + n + 2);
    memcpy(out, base, len);
    out[len] = '#';
    memcpy(out + len + 1, name, n);
    return out;
}

/* Notes for each object in v, in the order of addresses, which resource it is in. */
static void scopes_walk(wf_grammar *g, const wf_json *v, const char *base, const wf_json *root)
{
    grammar_deeper(g);
    grammar_work(g, 1);
    if (v->kind == WF_JSON_OBJECT) {
        const wf_json *id = wf_json_get(v, "$id"), *anchor = wf_json_get(v, "$anchor");
        if (!id && g->old_refs) id = wf_json_get(v, "id");
        if (wf_json_is(id, WF_JSON_STRING)) {
            if (id->text[0] == '#') id_add(g, with_fragment(g, base, id->text + 1, id->n - 1), v);
            else {
                base = uri_join(g, base, id->text, id->n), root = v;
                id_add(g, base, v);
            }
        }
        if (wf_json_is(anchor, WF_JSON_STRING)) id_add(g, with_fragment(g, base, anchor->text, anchor->n), v);
        grammar_grow(g, &g->scopes, g->n_scopes, &g->cap_scopes, sizeof *g->scopes);
        g->scopes[g->n_scopes++] = (struct scope_entry){v, base, root};
        WF_JSON_EACH_MEMBER(m, v)
            if (!(m->name.n == 4 && !memcmp(m->name.text, "enum", 4)) &&
                !(m->name.n == 5 && !memcmp(m->name.text, "const", 5)))
                scopes_walk(g, &m->value, base, root);
    }
    WF_JSON_EACH(one, v) scopes_walk(g, one, base, root);
    grammar_shallower(g);
}

static int scope_order(const void *a, const void *b)
{
    const struct scope_entry *x = a, *y = b;
    return (x->schema > y->schema) - (x->schema < y->schema);
}

void refs_begin(wf_grammar *g)
{
    const wf_json *root = g->docs[0];
    scopes_walk(g, root, "", root);
    if (g->n_scopes) qsort(g->scopes, g->n_scopes, sizeof *g->scopes, scope_order);
}

/* One token of a JSON pointer, decoded in place. */
static size_t pointer_token(char *t)
{
    static const char hex[] = "0123456789abcdef";
    size_t n = 0;
    for (size_t i = 0; t[i]; i++) {
        const char *a = t[i] == '%' && t[i + 1] ? strchr(hex, t[i + 1] | 32) : NULL;
        const char *b = a && t[i + 2] ? strchr(hex, t[i + 2] | 32) : NULL;
        if (a && b) t[n++] = (char)((a - hex) << 4 | (b - hex)), i += 2;
        else t[n++] = t[i];
    }
    t[n] = 0;
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        if (t[i] == '~' && (t[i + 1] == '0' || t[i + 1] == '1')) t[out++] = t[++i] == '0' ? '~' : '/';
        else t[out++] = t[i];
    }
    t[out] = 0;
    return out;
}

static const wf_json *pointer_follow(wf_grammar *g, const wf_json *at, const char *pointer, size_t n)
{
    char *copy = grammar_take(g, n + 1);
    memcpy(copy, pointer, n);
    for (char *next = copy; at && next && *next;) {
        char *token = next + 1, *slash = strchr(token, '/');
        if (slash) *slash = 0;
        next = slash;
        size_t len = pointer_token(token);
        if (slash) *slash = '/';
        at = at->kind == WF_JSON_LIST ? wf_json_at(at, (size_t)atoi(token)) : wf_json_find(at, token, len);
    }
    return at;
}

const wf_json *refs_find(wf_grammar *g, const wf_json *schema, const char *ref, size_t n)
{
    struct scope_entry key = {.schema = schema},
                       *scope = g->n_scopes ? bsearch(&key, g->scopes, g->n_scopes, sizeof key, scope_order) : NULL;
    const char *base = scope ? scope->base : "", *hash = memchr(ref, '#', n);
    const wf_json *root = scope ? scope->root : g->docs[0];
    grammar_work(g, g->n_ids / 16 + 1);
    if (hash != ref) {
        const char *uri = uri_join(g, base, ref, n);
        root = NULL;
        for (size_t i = 0; i < g->n_ids && !root; i++)
            if (!strcmp(g->ids[i].uri, uri)) root = g->ids[i].schema;
        base = uri;
        if (!root) grammar_fail(g, "$ref to another document, %.*s", (int)WF_MIN(n, 100u), ref);
    }
    const char *fragment = hash ? hash + 1 : ref + n;
    size_t len = (size_t)(ref + n - fragment);
    const wf_json *to = root;
    if (len && *fragment == '/') to = pointer_follow(g, root, fragment, len);
    else if (len) {
        const char *uri = with_fragment(g, base, fragment, len);
        to = NULL;
        for (size_t i = 0; i < g->n_ids && !to; i++)
            if (!strcmp(g->ids[i].uri, uri)) to = g->ids[i].schema;
    }
    if (!to) grammar_fail(g, "$ref to %.*s, which the schema does not have", (int)WF_MIN(n, 100u), ref);
    return to;
}
