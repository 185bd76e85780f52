/* Which tokens may come next: a walk through all tokens as a trie, and short cuts for what does not change: within a
 * string that is free, and in each state of a pattern or a rule. */
#include "grammar/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- tries ---------------------------------------------------------------------------------------------- */

typedef struct trie_text {
    const unsigned char *p;
    uint32_t n, id;
} trie_text;
typedef struct trie_node {
    uint32_t behind;         /* the next node that does not begin with this one */
    uint32_t first, n_ids;   /* of the tokens that end here */
    uint16_t depth;          /* bytes; from 1 on */
    uint8_t byte;
} trie_node;
typedef struct trie {
    trie_node *nodes;
    uint32_t *ids;
    size_t n, cap, n_ids;
} trie;

struct wf_token_trie {
    trie all, quoted; /* quoted: what tokens have behind the quote that ends a free string */
    uint32_t *inside;  /* bits of the tokens that stay within a free string */
    uint32_t *escaped; /* of those that end one behind an escape */
    uint16_t *chars;   /* characters of the string that begin in each of all these */
    size_t n_tokens;
    uint32_t longest;
};

static int trie_order(const void *a, const void *b)
{
    const trie_text *x = a, *y = b;
    int c = memcmp(x->p, y->p, WF_MIN(x->n, y->n));
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

static void trie_free(trie *t)
{
    free(t->nodes);
    free(t->ids);
}

enum { LONGEST = 4096 }; /* bytes of a token; a longer one is never allowed */

/* The root has no node; tokens of no bytes stand before the first. */
static bool trie_build(trie *t, trie_text *texts, size_t n)
{
    uint32_t path[LONGEST];
    uint32_t depth = 0;
    if (n) qsort(texts, n, sizeof *texts, trie_order);
    if (!(t->ids = malloc((n + 1) * sizeof *t->ids))) return false;
    t->n_ids = n;
    for (size_t i = 0; i < n; i++) {
        t->ids[i] = texts[i].id;
        uint32_t same = 0;
        if (i)
            while (same < texts[i].n && same < texts[i - 1].n && texts[i].p[same] == texts[i - 1].p[same]) same++;
        while (depth > same) t->nodes[path[--depth]].behind = (uint32_t)t->n;
        for (; depth < texts[i].n; depth++) {
            if (!wf_grow(&t->nodes, t->n, &t->cap, sizeof *t->nodes)) return false;
            path[depth] = (uint32_t)t->n;
            t->nodes[t->n++] =
                (trie_node){.byte = texts[i].p[depth], .depth = (uint16_t)(depth + 1), .first = (uint32_t)i};
        }
        if (depth) t->nodes[path[depth - 1]].n_ids++;
    }
    while (depth > 0) t->nodes[path[--depth]].behind = (uint32_t)t->n;
    return true;
}

/* Where the string ends in a token: behind the quote; 0: nowhere. *stays: the token is within the string to its end. */
static uint32_t quote_in(const wf_slice *token, bool *stays, bool *escapes, uint16_t *chars)
{
    string_lex lex = {0};
    unsigned char out[4];
    unsigned n;
    for (uint32_t i = 0; i < token->n; i++) {
        enum lexed l = string_lex_byte(&lex, (unsigned char)token->p[i], out, &n);
        if (l == LEX_QUOTE) return i + 1;
        if (l == LEX_BAD) return 0;
        *escapes |= l == LEX_MORE;
        *chars += l == LEX_BYTES && (*out & 0xC0) != 0x80;
    }
    *chars += lex.escape || lex.half;
    *stays = token->n > 0;
    return 0;
}

weft_status wf_token_trie_new(const wf_slice *tokens, size_t n, wf_token_trie **out)
{
    wf_token_trie *t = *out = wf_calloc(1, sizeof *t);
    trie_text *all = malloc((n + 1) * sizeof *all), *quoted = malloc((n + 1) * sizeof *quoted);
    size_t n_all = 0, n_quoted = 0;
    bool ok = t && all && quoted && (t->inside = calloc(n / 32 + 1, sizeof *t->inside)) &&
              (t->escaped = calloc(n / 32 + 1, sizeof *t->escaped)) && (t->chars = calloc(n + 1, sizeof *t->chars));
    for (size_t i = 0; ok && i < n; i++) {
        bool stays = false, escapes = false;
        if (!tokens[i].n || tokens[i].n > LONGEST) continue;
        const unsigned char *p = (const unsigned char *)tokens[i].p;
        uint32_t len = (uint32_t)tokens[i].n, quote = quote_in(&tokens[i], &stays, &escapes, &t->chars[i]);
        all[n_all++] = (trie_text){p, len, (uint32_t)i};
        if (quote) quoted[n_quoted++] = (trie_text){p + quote, len - quote, (uint32_t)i};
        if (quote && escapes) t->escaped[i / 32] |= 1u << (i % 32);
        if (stays) t->inside[i / 32] |= 1u << (i % 32);
        t->longest = WF_MAX(t->longest, len);
    }
    ok = ok && trie_build(&t->all, all, n_all) && trie_build(&t->quoted, quoted, n_quoted);
    free(all);
    free(quoted);
    if (ok) {
        t->n_tokens = n;
        return WEFT_OK;
    }
    wf_token_trie_free(t);
    *out = NULL;
    return wf_fail(WEFT_ERR_NOMEM, "out of host memory for the tokens of a grammar");
}

void wf_token_trie_free(wf_token_trie *t)
{
    if (!t) return;
    trie_free(&t->all);
    trie_free(&t->quoted);
    free(t->inside);
    free(t->escaped);
    free(t->chars);
    free(t);
}

/* ---- walks ---------------------------------------------------------------------------------------------- */

static void allow(const trie *t, uint32_t first, uint32_t n, uint32_t *bits)
{
    for (uint32_t i = first; i < first + n; i++) bits[t->ids[i] / 32] |= 1u << (t->ids[i] % 32);
}

/* Allows all tokens from node begin up to node end that the threads can read; base: depth of the threads. */
static void walk(wf_grammar *g, const trie *t, uint32_t begin, uint32_t end, unsigned base, const thread *from,
                 size_t n, uint32_t *bits)
{
    enum { LEVELS = 512 };
    const thread *sets[LEVELS];
    size_t counts[LEVELS];
    void *marks[LEVELS];
    unsigned top = 0;
    sets[0] = from, counts[0] = n;
    marks[0] = grammar_mark(g);
    for (uint32_t i = begin; i < end;) {
        const trie_node *node = &t->nodes[i];
        unsigned level = node->depth - base; /* from 1 on */
        while (top >= level) grammar_release(g, marks[top--]);
        grammar_work(g, 1);
        size_t m = level < LEVELS ? threads_step(g, sets[level - 1], counts[level - 1], node->byte) : 0;
        if (!m) {
            i = node->behind;
            continue;
        }
        allow(t, node->first, node->n_ids, bits);
        if (node->behind > i + 1) {
            thread *set = grammar_hold(g, m * sizeof *set);
            memcpy(set, g->scratch, m * sizeof *set);
            top = level;
            sets[level] = set, counts[level] = m, marks[level] = set;
        }
        i++;
    }
    grammar_release(g, marks[0]);
}

/* ---- states of patterns --------------------------------------------------------------------------------- */

/* What a state of a pattern allows within its string or its rule, and where in the trie the string has ended, or the
 * rule may end or call another one. */
typedef struct mask_exit {
    uint32_t node;
    int32_t state; /* there, of a rule */
} mask_exit;
typedef struct mask_entry {
    const wf_token_trie *trie;
    int32_t state;
    uint32_t rule, under; /* the node behind which tokens begin; TRIE_ALL: none */
    uint32_t *bits;
    mask_exit *exits;
    size_t n_exits, cap_exits;
} mask_entry;
#define TRIE_ALL UINT32_MAX
enum { MASKS = 128, FEW_NODES = 100, MAX_EXITS = 16384 /* of a rule; with more all is walked */ };

void masks_free(wf_grammar *g)
{
    for (size_t i = 0; g->masks && i < MASKS; i++) {
        free(g->masks[i].bits);
        free(g->masks[i].exits);
    }
    free(g->masks);
}

static void exit_add(wf_grammar *g, mask_entry *e, uint32_t node, int32_t state)
{
    grammar_grow(g, &e->exits, e->n_exits, &e->cap_exits, sizeof *e->exits);
    e->exits[e->n_exits++] = (mask_exit){node, state};
}

/* Can a token go on from this node outside the rule's own text? The bytes may be more than those that really can. */
static bool rule_exits(wf_grammar *g, const trie *t, uint32_t node, uint32_t rule, int32_t state)
{
    size_t n;
    re_set may = {0};
    const re_called *calls = g->n_rules ? re_calls(g->pool, state, &n) : NULL;
    if (!calls) return false;
    grammar_work(g, n / 8);
    if (re_accepts(g->pool, state)) may = g->rules[rule].behind;
    for (size_t i = 0; i < n; i++)
        for (int w = 0; w < 4; w++) may.bits[w] |= g->rules[calls[i].rule].first.bits[w];
    for (uint32_t i = node + 1; i < t->nodes[node].behind; i = t->nodes[i].behind)
        if (may.bits[t->nodes[i].byte >> 6] >> (t->nodes[i].byte & 63) & 1) return true;
    return false;
}

static void entry_fill(wf_grammar *g, const wf_token_trie *tokens, mask_entry *e)
{
    enum { LEVELS = 512 };
    struct {
        int32_t state;
        string_lex lex;
    } at[LEVELS];
    const trie *t = &tokens->all;
    const trie_node *under = e->under == TRIE_ALL ? NULL : &t->nodes[e->under];
    uint32_t end = under ? under->behind : (uint32_t)t->n;
    at[0].state = e->state, at[0].lex = (string_lex){0};
    for (uint32_t i = under ? e->under + 1 : 0; i < end;) {
        const trie_node *node = &t->nodes[i];
        if (i % 8 == 0) grammar_work(g, 1);
        unsigned char out[4];
        unsigned n = 0, level = node->depth - (under ? under->depth : 0u);
        bool goes = level < LEVELS;
        if (goes && g->raw) {
            goes = (at[level].state = re_step(g->pool, at[level - 1].state, node->byte)) >= 0;
            if (goes) allow(t, node->first, node->n_ids, e->bits);
            if (goes && e->n_exits <= MAX_EXITS && rule_exits(g, t, i, e->rule, at[level].state))
                exit_add(g, e, i, at[level].state);
        } else if (goes) {
            at[level] = at[level - 1];
            enum lexed l = string_lex_byte(&at[level].lex, node->byte, out, &n);
            if (l == LEX_QUOTE && re_accepts(g->pool, at[level].state)) exit_add(g, e, i, -1);
            /* a token that ends within an escape is left to the walk that knows which can follow */
            goes = l == LEX_BYTES || (l == LEX_MORE && node->behind > i + 1);
            for (unsigned k = 0; goes && l == LEX_BYTES && k < n; k++)
                goes = (at[level].state = re_step(g->pool, at[level].state, out[k])) >= 0;
            if (goes && l == LEX_BYTES) allow(t, node->first, node->n_ids, e->bits);
        }
        i = goes ? i + 1 : node->behind;
    }
}

static mask_entry *entry_of(wf_grammar *g, const wf_token_trie *t, uint32_t rule, int32_t state, uint32_t under)
{
    if (!g->masks && !(g->masks = calloc(MASKS, sizeof *g->masks))) grammar_no_memory(g);
    mask_entry *e = &g->masks[((uint32_t)state + (under + 1) * 37) % MASKS];
    if (e->bits && e->state == state && e->rule == rule && e->under == under && e->trie == t) return e;
    size_t words = (t->n_tokens + 31) / 32;
    if (!e->bits) grammar_count(g, words * sizeof *e->bits);
    if (!e->bits && !(e->bits = malloc(words * sizeof *e->bits))) grammar_no_memory(g);
    memset(e->bits, 0, words * sizeof *e->bits);
    e->trie = t, e->state = state, e->rule = rule, e->under = under, e->n_exits = 0;
    entry_fill(g, t, e);
    return e;
}

/* ---- masks ---------------------------------------------------------------------------------------------- */

/* The node of the texts that begin so, below a node and its depth; UINT32_MAX: there is none. */
static uint32_t trie_find(const trie *t, const char *text, size_t n)
{
    uint32_t begin = 0, end = (uint32_t)t->n, found = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        for (found = begin; found < end && t->nodes[found].byte != (uint8_t)text[i];) found = t->nodes[found].behind;
        if (found >= end) return UINT32_MAX;
        begin = found + 1, end = t->nodes[found].behind;
    }
    return found;
}

/* Tokens that begin with the quote that ends a string, and go on behind it. */
static void mask_quote(wf_grammar *g, const trie *t, uint32_t quote, const thread *from, size_t n, uint32_t *bits)
{
    if (quote == UINT32_MAX || !n) return;
    const trie_node *node = &t->nodes[quote];
    thread *set = grammar_hold(g, n * sizeof *set);
    memcpy(set, from, n * sizeof *set);
    allow(t, node->first, node->n_ids, bits);
    walk(g, t, quote + 1, node->behind, node->depth, set, n, bits);
}

static void mask_free_string(wf_grammar *g, const wf_token_trie *t, const thread *from, const thread *after,
                             uint32_t *bits)
{
    size_t words = (t->n_tokens + 31) / 32;
    bool text = from->at == AT_STRING;
    uint32_t left = text && from->of->max != RE_MANY ? from->of->max - from->chars : RE_MANY;
    uint32_t need = text && from->chars < from->of->min ? from->of->min - from->chars : 0;
    for (size_t i = 0; i < words; i++) bits[i] |= t->inside[i];
    if (need <= t->longest) {
        allow(&t->quoted, 0, t->quoted.n ? t->quoted.nodes[0].first : (uint32_t)t->quoted.n_ids, bits);
        walk(g, &t->quoted, 0, (uint32_t)t->quoted.n, 0, after, 1, bits);
    }
    if (left >= t->longest && !need) return;
    for (size_t i = 0; i < t->n_tokens; i++) {
        uint32_t *word = &bits[i / 32], bit = 1u << (i % 32);
        bool ends = !(t->inside[i / 32] & bit);
        if (*word & bit && (t->chars[i] > left || (ends && t->chars[i] < need))) *word &= ~bit;
    }
}

static void mask_pattern(wf_grammar *g, const wf_token_trie *t, int32_t state, const thread *after, uint32_t *bits)
{
    size_t words = (t->n_tokens + 31) / 32;
    mask_entry *e = entry_of(g, t, 0, state, TRIE_ALL);
    for (size_t i = 0; i < words; i++) bits[i] |= e->bits[i];
    for (size_t i = 0; i < e->n_exits; i++) mask_quote(g, &t->all, e->exits[i].node, after, 1, bits);
}

/* Clears all tokens that begin with a node. */
static void forbid(const trie *t, uint32_t at, uint32_t *bits)
{
    const trie_node *node = &t->nodes[at];
    uint32_t last = node->behind < t->n ? t->nodes[node->behind].first : (uint32_t)t->n_ids;
    for (uint32_t k = node->first; k < last; k++) bits[t->ids[k] / 32] &= ~(1u << (t->ids[k] % 32));
}

/* Keys that are not declared are those of one pattern. */
static bool keys_of_pattern(const alternative *a)
{
    return a->n_patterns == 1 && a->others == a->patterns[0].pattern && !a->finite;
}

/* Of a key or an item that has come already, or a key that is declared, the tokens that end it are not those of others.
 * Which text ends behind an escape is not seen here: no token that does is allowed. */
static void mask_known(wf_grammar *g, const wf_token_trie *t, const thread *from, uint32_t *own)
{
    size_t words = (t->n_tokens + 31) / 32;
    for (size_t i = 0; i < words; i++) own[i] &= ~t->escaped[i];
    const extra_key *extra = from->up->extras;
    for (uint32_t i = from->first; i < from->last || extra;) {
        text_list key;
        bool declared = i < from->last;
        if (declared) key = from->of->keys[i++].key;
        else key = (text_list){extra->text, extra->n}, extra = extra->before;
        if (key.n < from->depth || (from->depth && memcmp(key.text, from->key, from->depth) != 0)) continue;
        char *rest = grammar_hold(g, key.n + 1);
        size_t len = key.n - from->depth;
        memcpy(rest, key.text + from->depth, len);
        rest[len] = '"';
        uint32_t at = trie_find(&t->all, rest, len + 1);
        if (at == UINT32_MAX) continue;
        forbid(&t->all, at, own);
        thread end = *from;
        size_t n = 1;
        for (size_t k = 0; k <= len && n; k++) {
            n = threads_step(g, &end, 1, (unsigned char)rest[k]);
            end = g->scratch[0];
        }
        mask_quote(g, &t->all, at, g->scratch, n, own);
    }
}

/* A key that is not declared: as the text of a string, but for the tokens that end it as a key that has a pattern, is
 * declared, or was before. */
static void mask_open_key(wf_grammar *g, const wf_token_trie *t, const thread *from, uint32_t *bits)
{
    size_t words = (t->n_tokens + 31) / 32;
    uint32_t *own = grammar_hold(g, words * sizeof *own);
    frame *up = grammar_hold(g, sizeof *up);
    *up = *from->up;
    up->count++;
    thread after = {.at = AT_COLON, .up = up};
    if (keys_of_pattern(from->of)) {
        after.value = other_key_value(g, from->of, &(bool){true});
        mask_pattern(g, t, from->states[0], &after, own);
        thread declared = *from;
        declared.open = false, declared.states = NULL;
        walk(g, &t->all, 0, (uint32_t)t->all.n, 0, &declared, 1, bits);
    } else {
        after.value = other_key_value(g, from->of, NULL);
        mask_free_string(g, t, from, &after, own);
        uint32_t *met = grammar_hold(g, (t->all.n / 32 + 1) * sizeof *met);
        for (uint32_t i = 0; from->states && i < from->of->n_patterns; i++)
            if (from->states[i] >= 0) {
                /* The tokens that end a key that has pattern i, where others are masked already. Those that end it
                 * where it has another pattern too, which some token before has done, are not needed. */
                const alternative *a = from->of;
                bool *matches = grammar_hold(g, a->n_patterns * sizeof *matches);
                matches[i] = true;
                after.value = other_key_value(g, a, matches);
                mask_entry *e = entry_of(g, t, 0, from->states[i], TRIE_ALL);
                for (size_t k = 0; k < e->n_exits; k++) {
                    uint32_t at = e->exits[k].node, *word = &met[at / 32], bit = 1u << (at % 32);
                    forbid(&t->all, at, own);
                    if (!(*word & bit) && !cset_empty(g, after.value)) mask_quote(g, &t->all, at, &after, 1, own);
                    *word |= bit;
                }
            }
        /* at a quote that comes next it is known which patterns the key has */
        uint32_t quote = from->states ? trie_find(&t->all, "\"", 1) : UINT32_MAX;
        if (quote != UINT32_MAX) {
            forbid(&t->all, quote, own);
            size_t n = threads_step(g, from, 1, '"');
            mask_quote(g, &t->all, quote, g->scratch, n, own);
        }
    }
    mask_known(g, t, from, own);
    for (size_t i = 0; i < words; i++) bits[i] |= own[i];
}

static void mask_rules(wf_grammar *, const wf_token_trie *, const thread *, size_t n, uint32_t under, uint32_t *bits);

/* What is allowed behind an exit of a rule: few tokens by a walk. */
static void mask_exit_rules(wf_grammar *g, const wf_token_trie *tokens, const thread *at, uint32_t exit, uint32_t *bits)
{
    const trie *t = &tokens->all;
    const trie_node *node = &t->nodes[exit];
    void *mark = grammar_mark(g);
    size_t n = threads_reach(g, at, 1) - 1; /* the first is in the rule */
    thread *out = grammar_hold(g, n * sizeof *out);
    memcpy(out, g->scratch + 1, n * sizeof *out);
    if (node->behind - exit > FEW_NODES) mask_rules(g, tokens, out, n, exit, bits);
    else walk(g, t, exit + 1, node->behind, node->depth, out, n, bits);
    grammar_release(g, mark);
}

/* The tokens behind a node with which rules go on, each of them read from a state of its own. */
static void mask_rules(wf_grammar *g, const wf_token_trie *t, const thread *from, size_t n, uint32_t under,
                       uint32_t *bits)
{
    grammar_deeper(g);
    for (size_t i = 0; i < n; i++) {
        mask_entry *e = entry_of(g, t, from[i].value, from[i].state, under);
        size_t n_exits = e->n_exits;
        if (n_exits > MAX_EXITS) {
            const trie_node *node = under == TRIE_ALL ? NULL : &t->all.nodes[under];
            uint32_t end = node ? node->behind : (uint32_t)t->all.n;
            walk(g, &t->all, under + 1, end, node ? node->depth : 0, &from[i], 1, bits);
            continue;
        }
        for (size_t k = 0; k < (t->n_tokens + 31) / 32; k++) bits[k] |= e->bits[k];
        mask_exit *exits = grammar_hold(g, n_exits * sizeof *exits); /* others may take the entry's place */
        if (n_exits) memcpy(exits, e->exits, n_exits * sizeof *exits);
        for (size_t k = 0; k < n_exits; k++) {
            thread at = {.at = AT_RAW, .value = from[i].value, .state = exits[k].state, .up = from[i].up};
            mask_exit_rules(g, t, &at, exits[k].node, bits);
        }
    }
    grammar_shallower(g);
}

static void mask(wf_match *m, const wf_token_trie *t, uint32_t *bits)
{
    wf_grammar *g = m->grammar;
    void *mark = grammar_mark(g);
    if (g->raw) {
        size_t n = threads_reach(g, m->now, m->n);
        thread *all = grammar_hold(g, n * sizeof *all);
        memcpy(all, g->scratch, n * sizeof *all);
        mask_rules(g, t, all, n, TRIE_ALL, bits);
        grammar_release(g, mark);
        return;
    }
    enum { FEW = 8 }; /* patterns whose masks are worth keeping */
    thread *rest = grammar_hold(g, m->n * sizeof *rest);
    size_t n = 0, n_patterns = 0;
    for (size_t i = 0; i < m->n; i++) {
        const thread *one = &m->now[i];
        bool clean = string_lex_clean(&one->lex), text = clean && one->at == AT_STRING;
        thread after = thread_closed(one->up);
        if (text && alternative_free(one->of) && (!one->key || one->depth + t->longest < MAX_KEY)) {
            uint32_t *own = grammar_hold(g, (t->n_tokens + 31) / 32 * sizeof *own);
            if (one->key) {
                frame *up = grammar_hold(g, sizeof *up);
                *up = *one->up;
                up->blind = true;
                after.up = up;
            }
            mask_free_string(g, t, one, &after, own);
            if (one->key) mask_known(g, t, one, own);
            for (size_t k = 0; k < (t->n_tokens + 31) / 32; k++) bits[k] |= own[k];
        } else if (text && !one->of->texts && !one->key && n_patterns++ < FEW)
            mask_pattern(g, t, one->state, &after, bits);
        else if (clean && one->at == AT_KEY && one->open && one->depth + t->longest < MAX_KEY &&
                 (one->of->others == RE_ALL || keys_of_pattern(one->of)))
            mask_open_key(g, t, one, bits);
        else rest[n++] = *one;
    }
    bool some = false;
    for (size_t i = 0; i < (t->n_tokens + 31) / 32 && !some; i++) some = bits[i];
    if (n) walk(g, &t->all, 0, (uint32_t)t->all.n, 0, rest, n, bits);
    else if (!some) walk(g, &t->all, 0, (uint32_t)t->all.n, 0, m->now, m->n, bits); /* such as an escape alone */
    grammar_release(g, mark);
}

weft_status wf_match_mask(wf_match *m, const wf_token_trie *t, uint32_t *bits)
{
    wf_grammar *g = m->grammar;
    memset(bits, 0, (t->n_tokens + 31) / 32 * sizeof *bits);
    GRAMMAR_ENTER(g, mask(m, t, bits));
    return g->status == WEFT_OK ? WEFT_OK : wf_fail(g->status, "%s", g->message);
}
