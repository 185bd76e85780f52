/* States: a derivative each, with the states behind all bytes. From no state that is kept does every text fail. */
#include "grammar/internal.h"
#include "grammar/regex_pool.h"

#include <string.h>

enum { MAX_CALLS = 100 };
/* Cuts all bytes into classes that no set in the first position of a tells apart: class_of, and one byte of each. And
 * the rules that are called there. */
typedef struct byte_classes {
    uint8_t class_of[256], one[256];
    unsigned n, n_calls;
    uint32_t calls[MAX_CALLS];
} byte_classes;

static void calls_add(re_pool *p, byte_classes *k, uint32_t rule)
{
    unsigned i = 0;
    while (i < k->n_calls && k->calls[i] != rule) i++;
    if (i == MAX_CALLS) grammar_fail(p->grammar, "more than %d rules may come in one place", MAX_CALLS);
    k->calls[i] = rule;
    k->n_calls = WF_MAX(k->n_calls, i + 1);
}

static void classes_cut(byte_classes *k, const re_set *set)
{
    uint8_t fresh[256][2]; /* the new number of a class, without and with */
    bool met[256][2] = {{0}};
    unsigned n = 0;
    for (unsigned c = 0; c < 256; c++) {
        bool in = set->bits[c >> 6] >> (c & 63) & 1;
        unsigned old = k->class_of[c];
        if (!met[old][in]) met[old][in] = true, fresh[old][in] = (uint8_t)n, k->one[n++] = (uint8_t)c;
        k->class_of[c] = fresh[old][in];
    }
    k->n = n;
}

static void classes_of(re_pool *p, re a, byte_classes *k)
{
    grammar_deeper(p->grammar);
    for (;;) {
        const re_node *n = &p->nodes[a];
        if (n->kind == RE_K_SET) classes_cut(k, &p->sets[n->a]);
        if (n->kind == RE_K_CALL) calls_add(p, k, n->a);
        if (n->kind == RE_K_SET || n->kind == RE_K_CALL || n->kind <= RE_K_EMPTY) break;
        if (n->kind == RE_K_NOT || n->kind == RE_K_REPEAT) {
            a = n->a;
            continue;
        }
        classes_of(p, n->a, k);
        n = &p->nodes[a];
        if (n->kind == RE_K_CAT && !p->nodes[n->a].nullable) break;
        a = n->b;
    }
    grammar_shallower(p->grammar);
}

static void classes_begin(re_pool *p, re a, byte_classes *k)
{
    memset(k->class_of, 0, sizeof k->class_of);
    k->n = 1, k->n_calls = 0, k->one[0] = 0;
    classes_of(p, a, k);
}

/* Walks what can be derived from a until some text ends; all that was met is dead if none does. */
bool re_some(re_pool *p, re a)
{
    if (p->nodes[a].nullable) return true;
    if (p->nodes[a].alive != RE_UNKNOWN) return p->nodes[a].alive == RE_ALIVE;
    size_t n = 0;
    bool found = false;
    re_grow(p, &p->queue, n, &p->cap_queue, sizeof *p->queue);
    p->queue[n++] = a;
    p->nodes[a].alive = RE_DEAD; /* for now: met */
    for (size_t i = 0; i < n && !found; i++) {
        byte_classes k;
        classes_begin(p, p->queue[i], &k);
        for (unsigned c = 0; c < k.n && !found; c++) {
            re to = re_derive(p, p->queue[i], k.one[c]);
            if (p->nodes[to].nullable || p->nodes[to].alive == RE_ALIVE) found = true;
            if (p->nodes[to].alive != RE_UNKNOWN) continue;
            p->nodes[to].alive = RE_DEAD;
            re_grow(p, &p->queue, n, &p->cap_queue, sizeof *p->queue);
            p->queue[n++] = to;
        }
        if (n > 20000) grammar_fail(p->grammar, "a pattern has too many states");
    }
    if (found)
        for (size_t i = 0; i < n; i++) p->nodes[p->queue[i]].alive = RE_UNKNOWN;
    p->nodes[a].alive = found ? RE_ALIVE : RE_DEAD;
    return found;
}

int32_t re_state(re_pool *p, re a)
{
    if (p->nodes[a].state != -2) return p->nodes[a].state;
    bool some = re_some(p, a);
    if (!some) return p->nodes[a].state = -1;
    bool accepts = re_nullable(p, re_derive(p, a, RE_END));
    if (p->n_states == RE_MAX_STATES) grammar_fail(p->grammar, "a pattern has too many states");
    re_grow(p, &p->states, p->n_states, &p->cap_states, sizeof *p->states);
    re_dfa *s = &p->states[p->n_states];
    s->node = a;
    s->accepts = accepts;
    s->calls = NULL;
    for (int c = 0; c < 256; c++) s->next[c] = -2;
    return p->nodes[a].state = (int32_t)p->n_states++;
}

const re_called *re_calls(re_pool *p, int32_t state, size_t *n)
{
    if (!p->states[state].calls) {
        byte_classes k;
        re a = p->states[state].node;
        classes_begin(p, a, &k);
        re_called *calls = grammar_take(p->grammar, k.n_calls * sizeof *calls);
        for (unsigned i = 0; i < k.n_calls; i++)
            calls[i] = (re_called){k.calls[i], re_state(p, re_derive(p, a, RE_CALL + k.calls[i]))};
        p->states[state].calls = calls, p->states[state].n_calls = k.n_calls;
    }
    *n = p->states[state].n_calls;
    return p->states[state].calls;
}

bool re_accepts(re_pool *p, int32_t state) { return state >= 0 && p->states[state].accepts; }

int32_t re_step(re_pool *p, int32_t state, unsigned char c)
{
    if (state < 0) return -1;
    if (p->states[state].next[c] != -2) return p->states[state].next[c];
    byte_classes k;
    re a = p->states[state].node;
    classes_begin(p, a, &k);
    for (unsigned i = 0; i < k.n; i++) {
        int32_t to = k.one[i] >= RE_START ? -1 : re_state(p, re_derive(p, a, k.one[i]));
        for (unsigned b = 0; b < 256; b++)
            if (k.class_of[b] == i) p->states[state].next[b] = b >= RE_START ? -1 : to;
    }
    return p->states[state].next[c];
}

/* No state comes again behind itself. More than so many states are taken to be endless. */
static bool finite_from(re_pool *p, int32_t state, uint8_t *colour, unsigned *left)
{
    enum { OPEN = 1, DONE };
    if (colour[state] || !*left) return colour[state] == DONE;
    colour[state] = OPEN;
    --*left;
    for (unsigned c = 0; c < RE_START; c++) {
        int32_t to = re_step(p, state, (unsigned char)c);
        if (to >= 0 && !finite_from(p, to, colour, left)) return false;
    }
    colour[state] = DONE;
    return true;
}

bool re_finite(re_pool *p, re a)
{
    int32_t state = re_state(p, a);
    unsigned left = 300;
    uint8_t *colour = grammar_hold(p->grammar, RE_MAX_STATES);
    bool finite = state < 0 || finite_from(p, state, colour, &left);
    grammar_release(p->grammar, colour);
    return finite;
}
