/* Expressions and their derivatives: each is stored once, in a normal form that keeps derivatives few. */
#include "grammar/internal.h"
#include "grammar/regex_pool.h"

#include <stdlib.h>
#include <string.h>

re_pool *re_pool_new(wf_grammar *g)
{
    re_pool *p = wf_calloc(1, sizeof *p);
    if (!p) return NULL;
    p->grammar = g;
    return p;
}

void re_pool_free(re_pool *p)
{
    if (!p) return;
    free(p->nodes);
    free(p->sets);
    free(p->table);
    free(p->memo);
    free(p->states);
    free(p->queue);
    free(p);
}

void re_grow(re_pool *p, void *array, size_t n, size_t *cap, size_t size)
{
    if (n >= RE_MAX_NODES) grammar_fail(p->grammar, "a pattern has too many states");
    grammar_grow(p->grammar, array, n, cap, size);
}

static uint64_t node_hash(const re_node *n)
{
    uint64_t h = n->kind;
    h = (h * 0x9E3779B97F4A7C15u) ^ n->a;
    h = (h * 0x9E3779B97F4A7C15u) ^ n->b;
    h = (h * 0x9E3779B97F4A7C15u) ^ n->min;
    h = (h * 0x9E3779B97F4A7C15u) ^ n->max;
    return h ^ h >> 29;
}

/* The number of a node, which is added if it is new. */
static re node_put(re_pool *p, re_node n)
{
    grammar_work(p->grammar, 1);
    if (p->n_nodes * 2 >= p->table_cap) {
        size_t cap = WF_MAX(1024u, p->table_cap * 2);
        grammar_count(p->grammar, (cap - p->table_cap) * sizeof(uint32_t));
        uint32_t *table = calloc(cap, sizeof *table);
        if (!table) grammar_no_memory(p->grammar);
        for (size_t i = 0; i < p->n_nodes; i++) {
            size_t place = node_hash(&p->nodes[i]) & (cap - 1);
            while (table[place]) place = (place + 1) & (cap - 1);
            table[place] = (uint32_t)i + 1;
        }
        free(p->table);
        p->table = table, p->table_cap = cap;
    }
    size_t at = node_hash(&n) & (p->table_cap - 1);
    for (; p->table[at]; at = (at + 1) & (p->table_cap - 1)) {
        const re_node *o = &p->nodes[p->table[at] - 1];
        if (o->kind == n.kind && o->a == n.a && o->b == n.b && o->min == n.min && o->max == n.max)
            return p->table[at] - 1;
    }
    re_grow(p, &p->nodes, p->n_nodes, &p->cap_nodes, sizeof *p->nodes);
    n.state = -2;
    p->nodes[p->n_nodes++] = n;
    p->table[at] = (uint32_t)p->n_nodes;
    return (re)p->n_nodes - 1;
}

void re_begin(re_pool *p)
{
    node_put(p, (re_node){.kind = RE_K_NONE, .alive = RE_DEAD});
    node_put(p, (re_node){.kind = RE_K_EMPTY, .nullable = true, .alive = RE_ALIVE});
    node_put(p, (re_node){.kind = RE_K_NOT, .a = RE_NONE, .nullable = true, .alive = RE_ALIVE});
}

bool re_nullable(re_pool *p, re a) { return p->nodes[a].nullable; }

re re_of_set(re_pool *p, re_set set)
{
    if (!(set.bits[0] | set.bits[1] | set.bits[2] | set.bits[3])) return RE_NONE;
    uint32_t i = 0;
    grammar_work(p->grammar, p->n_sets / 16);
    while (i < p->n_sets && memcmp(&p->sets[i], &set, sizeof set) != 0) i++;
    if (i == p->n_sets) {
        re_grow(p, &p->sets, p->n_sets, &p->cap_sets, sizeof *p->sets);
        p->sets[p->n_sets++] = set;
    }
    return node_put(p, (re_node){.kind = RE_K_SET, .a = i, .alive = RE_ALIVE});
}

re re_byte(re_pool *p, unsigned char c)
{
    re_set s = {0};
    s.bits[c >> 6] = 1ull << (c & 63);
    return re_of_set(p, s);
}

static bool has_look(const re_pool *p, re a) { return p->nodes[a].look; }
static uint8_t both_alive(const re_pool *p, re a, re b)
{
    return p->nodes[a].alive == RE_ALIVE && p->nodes[b].alive == RE_ALIVE ? RE_ALIVE : RE_UNKNOWN;
}

re re_cat(re_pool *p, re a, re b)
{
    if (a == RE_NONE || b == RE_NONE) return RE_NONE;
    if (a == RE_EMPTY) return b;
    if (b == RE_EMPTY) return a;
    if (p->nodes[a].kind == RE_K_CAT) { /* to the right, without recursion: chains are long */
        size_t n = 1, i = 0;
        for (re x = a; p->nodes[x].kind == RE_K_CAT; x = p->nodes[x].b) n++;
        re *parts = grammar_hold(p->grammar, n * sizeof *parts), x = a;
        for (; p->nodes[x].kind == RE_K_CAT; x = p->nodes[x].b) parts[i++] = p->nodes[x].a;
        parts[i] = x;
        grammar_work(p->grammar, n);
        for (i = n; i-- > 0;) b = re_cat(p, parts[i], b);
        grammar_release(p->grammar, parts);
        return b;
    }
    return node_put(p, (re_node){.kind = RE_K_CAT, .a = a, .b = b,
                                 .nullable = re_nullable(p, a) && re_nullable(p, b),
                                 .look = has_look(p, a) || has_look(p, b), .alive = both_alive(p, a, b)});
}

/* The first of a list that is nested to the right, and what is behind it (*rest: RE_NONE for alternatives, RE_ALL for
 * intersections: nothing). */
static re list_head(const re_pool *p, re a, uint8_t kind, re nothing, re *rest)
{
    if (p->nodes[a].kind != kind) {
        *rest = nothing;
        return a;
    }
    *rest = p->nodes[a].b;
    return p->nodes[a].a;
}

/* Alternatives that are one byte become one set, which takes its place in the order. */
static size_t list_unite_sets(re_pool *p, re *list, size_t n)
{
    re_set all = {0};
    size_t sets = 0, kept = 0;
    for (size_t i = 0; i < n; i++)
        if (p->nodes[list[i]].kind == RE_K_SET) sets++;
    if (sets < 2) return n;
    for (size_t i = 0; i < n; i++) {
        if (p->nodes[list[i]].kind != RE_K_SET) list[kept++] = list[i];
        else
            for (int w = 0; w < 4; w++) all.bits[w] |= p->sets[p->nodes[list[i]].a].bits[w];
    }
    re set = re_of_set(p, all);
    size_t at = kept;
    for (; at > 0 && list[at - 1] > set; at--) list[at] = list[at - 1];
    list[at] = set;
    return kept + 1;
}

/* Unites two lists, which are sorted, into one. */
static re list_merge(re_pool *p, uint8_t kind, re nothing, re a, re b)
{
    re out[RE_MAX_LIST], ra = nothing, rb = nothing;
    size_t n = 0;
    grammar_work(p->grammar, 1);
    while (a != nothing || b != nothing) {
        re x = a != nothing ? list_head(p, a, kind, nothing, &ra) : UINT32_MAX;
        re y = b != nothing ? list_head(p, b, kind, nothing, &rb) : UINT32_MAX;
        if (n == RE_MAX_LIST) grammar_fail(p->grammar, "a pattern has too many alternatives");
        out[n++] = WF_MIN(x, y);
        if (x <= y) a = ra;
        if (y <= x) b = rb;
    }
    bool alt = kind == RE_K_ALT;
    if (alt) n = list_unite_sets(p, out, n);
    re rest = out[n - 1];
    for (size_t i = n - 1; i-- > 0;) {
        bool x = re_nullable(p, out[i]), y = re_nullable(p, rest);
        bool alive = alt && (p->nodes[out[i]].alive == RE_ALIVE || p->nodes[rest].alive == RE_ALIVE);
        rest = node_put(p, (re_node){.kind = kind, .a = out[i], .b = rest, .nullable = alt ? x || y : x && y,
                                     .look = has_look(p, out[i]) || has_look(p, rest),
                                     .alive = alive ? RE_ALIVE : RE_UNKNOWN});
    }
    return rest;
}

re re_alt(re_pool *p, re a, re b)
{
    if (a == b || b == RE_NONE) return a;
    if (a == RE_NONE) return b;
    if (a == RE_ALL || b == RE_ALL) return RE_ALL;
    return list_merge(p, RE_K_ALT, RE_NONE, a, b);
}

re re_and(re_pool *p, re a, re b)
{
    if (a == b || b == RE_ALL) return a;
    if (a == RE_ALL) return b;
    if (a == RE_NONE || b == RE_NONE) return RE_NONE;
    return list_merge(p, RE_K_AND, RE_ALL, a, b);
}

re re_not(re_pool *p, re a)
{
    if (p->nodes[a].kind == RE_K_NOT) return p->nodes[a].a;
    return node_put(p, (re_node){.kind = RE_K_NOT, .a = a, .nullable = !re_nullable(p, a), .look = has_look(p, a)});
}

re re_repeat(re_pool *p, re a, uint32_t min, uint32_t max)
{
    if (a == RE_NONE) return min ? RE_NONE : RE_EMPTY;
    if (a == RE_EMPTY || !max) return RE_EMPTY;
    if (min == 1 && max == 1) return a;
    if (p->nodes[a].kind == RE_K_REPEAT && p->nodes[a].min == 0 && p->nodes[a].max == RE_MANY) return a;
    return node_put(p, (re_node){.kind = RE_K_REPEAT, .a = a, .min = min, .max = max,
                                 .nullable = !min || re_nullable(p, a), .look = has_look(p, a),
                                 .alive = p->nodes[a].alive == RE_ALIVE || !min ? RE_ALIVE : RE_UNKNOWN});
}

re re_look(re_pool *p, re what, bool negative)
{
    return node_put(p, (re_node){.kind = RE_K_LOOK, .a = what, .b = negative, .look = true});
}

re re_call(re_pool *p, uint32_t rule, bool nullable)
{
    return node_put(p, (re_node){.kind = RE_K_CALL, .a = rule, .nullable = nullable, .alive = RE_ALIVE});
}

void re_first_bytes(re_pool *p, re a, re_set *out)
{
    for (;;) {
        const re_node *n = &p->nodes[a];
        if (n->kind == RE_K_SET)
            for (int w = 0; w < 4; w++) out->bits[w] |= p->sets[n->a].bits[w];
        if (n->kind == RE_K_CAT || n->kind == RE_K_ALT) re_first_bytes(p, n->a, out);
        bool more = n->kind == RE_K_ALT || (n->kind == RE_K_CAT && p->nodes[n->a].nullable);
        if (!more && n->kind != RE_K_REPEAT) return;
        a = more ? n->b : n->a;
    }
}

re re_dollar(re_pool *p) { return node_put(p, (re_node){.kind = RE_K_DOLLAR, .look = true}); }

static re before(re_pool *p, const re_node *n, re rest)
{
    switch (n->kind) {
    case RE_K_CAT: return re_before(p, n->a, re_before(p, n->b, rest));
    case RE_K_ALT: return re_alt(p, re_before(p, n->a, rest), re_before(p, n->b, rest));
    case RE_K_DOLLAR: return re_nullable(p, re_derive(p, rest, RE_END)) ? re_byte(p, RE_END) : RE_NONE;
    case RE_K_LOOK: {
        re what = re_before(p, n->a, RE_ALL);
        return re_and(p, n->b ? re_not(p, what) : what, rest);
    }
    case RE_K_REPEAT:
        if (n->min == 0 && n->max == 1) return re_alt(p, re_before(p, n->a, rest), rest);
        break;
    default: break;
    }
    grammar_fail(p->grammar, "a pattern repeats an anchor or a look ahead");
}

re re_before(re_pool *p, re first, re rest)
{
    if (!has_look(p, first)) return re_cat(p, first, rest);
    re_node n = p->nodes[first];
    grammar_deeper(p->grammar);
    re out = before(p, &n, rest);
    grammar_shallower(p->grammar);
    return out;
}

re re_drop_start(re_pool *p, re a)
{
    re_node n = p->nodes[a];
    grammar_deeper(p->grammar);
    re out = a;
    switch (n.kind) {
    case RE_K_SET:
        if (p->sets[n.a].bits[RE_START >> 6] >> (RE_START & 63) & 1) {
            re_set s = p->sets[n.a];
            s.bits[RE_START >> 6] &= ~(1ull << (RE_START & 63));
            out = re_of_set(p, s);
        }
        break;
    case RE_K_CAT: {
        re head = re_drop_start(p, n.a);
        out = head == RE_NONE ? RE_NONE : re_cat(p, head, re_drop_start(p, n.b));
        break;
    }
    case RE_K_ALT:
        out = re_drop_start(p, n.a);
        for (re x = n.b; x != RE_NONE;) {
            bool more = p->nodes[x].kind == RE_K_ALT;
            re next = more ? p->nodes[x].b : RE_NONE;
            out = re_alt(p, out, re_drop_start(p, more ? p->nodes[x].a : x));
            x = next;
        }
        break;
    case RE_K_AND: out = re_and(p, re_drop_start(p, n.a), re_drop_start(p, n.b)); break;
    case RE_K_NOT: out = a == RE_ALL ? a : re_not(p, re_drop_start(p, n.a)); break;
    case RE_K_REPEAT: out = re_repeat(p, re_drop_start(p, n.a), n.min, n.max); break;
    default: break;
    }
    grammar_shallower(p->grammar);
    return out;
}

/* ---- derivatives ---------------------------------------------------------------------------------------- */

static re derive(re_pool *p, re a, uint32_t c)
{
    re_node n = p->nodes[a];
    switch (n.kind) {
    case RE_K_SET: return c < RE_CALL && p->sets[n.a].bits[c >> 6] >> (c & 63) & 1 ? RE_EMPTY : RE_NONE;
    case RE_K_CALL: return c == RE_CALL + n.a ? RE_EMPTY : RE_NONE;
    case RE_K_CAT: {
        re out = re_cat(p, re_derive(p, n.a, c), n.b);
        return re_nullable(p, n.a) ? re_alt(p, out, re_derive(p, n.b, c)) : out;
    }
    case RE_K_ALT: {
        re out = re_derive(p, n.a, c), x = n.b;
        for (; p->nodes[x].kind == RE_K_ALT; x = p->nodes[x].b) out = re_alt(p, out, re_derive(p, p->nodes[x].a, c));
        return re_alt(p, out, re_derive(p, x, c));
    }
    case RE_K_AND: {
        re out = re_derive(p, n.a, c), x = n.b;
        for (; p->nodes[x].kind == RE_K_AND; x = p->nodes[x].b) out = re_and(p, out, re_derive(p, p->nodes[x].a, c));
        return re_and(p, out, re_derive(p, x, c));
    }
    case RE_K_NOT: return re_not(p, re_derive(p, n.a, c));
    case RE_K_REPEAT:
        return re_cat(p, re_derive(p, n.a, c),
                      re_repeat(p, n.a, n.min ? n.min - 1 : 0, n.max == RE_MANY ? RE_MANY : n.max - 1));
    default: return RE_NONE;
    }
}

/* Derivatives are remembered in a table in which a newer one takes an older one's place. */
re re_derive(re_pool *p, re a, uint32_t c)
{
    if (p->nodes[a].kind == RE_K_SET || a <= RE_ALL) return a == RE_ALL ? a : derive(p, a, c);
    if (!p->memo && !(p->memo = calloc(RE_MEMO, sizeof *p->memo))) grammar_no_memory(p->grammar);
    uint64_t key = (uint64_t)a << 32 | c;
    re_memo *m = &p->memo[(key * 0x9E3779B97F4A7C15u) >> 48 & (RE_MEMO - 1)];
    if (m->key == key) return m->value;
    grammar_work(p->grammar, 1);
    grammar_deeper(p->grammar);
    re value = derive(p, a, c);
    grammar_shallower(p->grammar);
    *m = (re_memo){key, value};
    return value;
}

/* ---- whole texts ---------------------------------------------------------------------------------------- */

re re_literal(re_pool *p, const char *text, size_t n)
{
    re out = re_byte(p, RE_END);
    while (n-- > 0) out = re_cat(p, re_byte(p, (unsigned char)text[n]), out);
    return out;
}

re re_lengths(re_pool *p, uint32_t min, uint32_t max)
{
    return re_cat(p, re_repeat(p, re_any_char(p), min, max), re_byte(p, RE_END));
}

re re_texts_but(re_pool *p, re what) { return re_and(p, re_not(p, what), re_lengths(p, 0, RE_MANY)); }

/* ---- characters as bytes -------------------------------------------------------------------------------- */

static size_t utf8_put(uint32_t c, unsigned char out[4])
{
    if (c < 0x80) return out[0] = (unsigned char)c, 1;
    if (c < 0x800) return out[0] = 0xC0 | c >> 6, out[1] = 0x80 | (c & 63), 2;
    if (c < 0x10000) return out[0] = 0xE0 | c >> 12, out[1] = 0x80 | (c >> 6 & 63), out[2] = 0x80 | (c & 63), 3;
    out[0] = 0xF0 | c >> 18, out[1] = 0x80 | (c >> 12 & 63), out[2] = 0x80 | (c >> 6 & 63), out[3] = 0x80 | (c & 63);
    return 4;
}
size_t re_utf8(uint32_t c, unsigned char out[4]) { return utf8_put(c, out); }

static re byte_range(re_pool *p, unsigned a, unsigned b)
{
    re_set s = {0};
    for (unsigned c = a; c <= b; c++) s.bits[c >> 6] |= 1ull << (c & 63);
    return re_of_set(p, s);
}

/* Sequences of n bytes from a to b, of which all before the first difference are equal, and all behind are free where
 * the one before is strictly between. */
static re byte_sequences(re_pool *p, const unsigned char *a, const unsigned char *b, size_t n)
{
    if (n == 1) return byte_range(p, *a, *b);
    static const unsigned char low[3] = {0x80, 0x80, 0x80}, high[3] = {0xBF, 0xBF, 0xBF};
    if (*a == *b) return re_cat(p, re_byte(p, *a), byte_sequences(p, a + 1, b + 1, n - 1));
    unsigned from = *a, to = *b;
    re out = RE_NONE;
    if (memcmp(a + 1, low, n - 1) != 0)
        out = re_cat(p, re_byte(p, (unsigned char)from++), byte_sequences(p, a + 1, high, n - 1));
    if (memcmp(b + 1, high, n - 1) != 0)
        out = re_alt(p, out, re_cat(p, re_byte(p, (unsigned char)to--), byte_sequences(p, low, b + 1, n - 1)));
    if (from <= to) out = re_alt(p, out, re_cat(p, byte_range(p, from, to), byte_sequences(p, low, high, n - 1)));
    return out;
}

re re_chars(re_pool *p, const re_range *r, size_t n)
{
    static const re_range parts[] = {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}};
    re out = RE_NONE;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < WF_LEN(parts); k++) {
            uint32_t first = WF_MAX(r[i].first, parts[k].first), last = WF_MIN(r[i].last, parts[k].last);
            if (first > last) continue;
            unsigned char a[4], b[4];
            size_t len = utf8_put(first, a);
            utf8_put(last, b);
            out = re_alt(p, out, byte_sequences(p, a, b, len));
        }
    return out;
}

re re_any_char(re_pool *p)
{
    if (!p->any) p->any = re_chars(p, &(re_range){0, 0x10FFFF}, 1);
    return p->any;
}
