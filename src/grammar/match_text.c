/* Texts within answers byte by byte: strings and keys, with what they say and the escapes that they may have. */
#include "grammar/internal.h"

#include <ctype.h>
#include <string.h>

/* ---- texts of a list, keys of an object ----------------------------------------------------------------- */

/* Cuts first to last, which have depth bytes in common, to those with c behind them. */
static void narrow(const text_list *texts, size_t stride, uint32_t depth, unsigned char c, uint32_t *first,
                   uint32_t *last)
{
#define TEXT(i) ((const text_list *)((const char *)texts + (size_t)(i) * stride))
#define BEFORE(i, than) (TEXT(i)->n <= depth || (unsigned char)TEXT(i)->text[depth] < (than))
    for (int end = 0; end < 2; end++) {
        unsigned than = c + (unsigned)end;
        uint32_t a = *first, b = *last;
        while (a < b) {
            uint32_t mid = a + (b - a) / 2;
            if (BEFORE(mid, than)) a = mid + 1;
            else b = mid;
        }
        if (end) *last = a;
        else *first = a;
    }
#undef BEFORE
#undef TEXT
}

static bool key_seen(const frame *f, uint32_t i) { return f->seen[i / 64] >> (i % 64) & 1; }

static bool key_possible(wf_grammar *g, const frame *f, uint32_t i)
{
    const key_entry *k = &f->of->keys[i];
    if (key_seen(f, i) || f->count + f->required_left + !k->required > f->of->max) return false;
    return !cset_empty(g, k->value);
}

bool some_key_possible(wf_grammar *g, const frame *f, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i < last; i++)
        if (key_possible(g, f, i)) return true;
    return false;
}

/* Is a key possible that is not declared? */
bool other_key_possible(wf_grammar *g, const frame *f)
{
    if (f->count + f->required_left + 1 > f->of->max) return false;
    return f->others == RE_ALL || re_state(g->pool, f->others) >= 0;
}

static const int32_t *key_states(wf_grammar *g, const alternative *a)
{
    if (!a->n_patterns) return NULL;
    int32_t *s = grammar_hold(g, a->n_patterns * sizeof *s);
    for (uint32_t i = 0; i < a->n_patterns; i++) s[i] = re_state(g->pool, a->patterns[i].pattern);
    return s;
}

cset other_key_value(wf_grammar *g, const alternative *a, const bool *matches)
{
    part_list *all = NULL;
    for (uint32_t r = 0; r < a->n_rules; r++) {
        bool named = false;
        for (uint32_t i = 0; matches && i < a->n_patterns; i++) {
            if (a->patterns[i].rule != r || !matches[i]) continue;
            part_list *p = grammar_hold(g, sizeof *p);
            *p = (part_list){a->patterns[i].value, all};
            all = p, named = true;
        }
        if (named || a->additional_of[r] == PART_NONE) continue;
        part_list *p = grammar_hold(g, sizeof *p);
        *p = (part_list){a->additional_of[r], all};
        all = p;
    }
    return cset_of(g, all);
}

/* The value of a key that is not declared, which has ended. */
static cset ended_key_value(wf_grammar *g, const thread *t)
{
    if (!t->states) return other_key_value(g, t->of, NULL);
    bool *matches = grammar_hold(g, t->of->n_patterns * sizeof *matches);
    for (uint32_t i = 0; i < t->of->n_patterns; i++) matches[i] = re_accepts(g->pool, t->states[i]);
    return other_key_value(g, t->of, matches);
}

static void byte_keep(wf_grammar *g, thread *t, unsigned char c)
{
    char *key = grammar_hold(g, t->depth + 1);
    if (t->depth) memcpy(key, t->key, t->depth);
    key[t->depth] = (char)c;
    t->key = key;
}

static bool has_come(const frame *f, const thread *t)
{
    for (const extra_key *e = f->extras; e; e = e->before)
        if (e->n == t->depth && !memcmp(e->text, t->key, e->n)) return true;
    return false;
}

static void extra_add(wf_grammar *g, frame *f, const thread *t)
{
    extra_key *e = grammar_hold(g, sizeof *e);
    *e = (extra_key){t->key, t->depth, f->extras};
    f->extras = e;
}

static re text_left_out(wf_grammar *g, re of, const thread *t)
{
    return re_and(g->pool, of, re_texts_but(g->pool, re_literal(g->pool, t->key, t->depth)));
}

void key_begin(wf_grammar *g, const thread *t)
{
    const frame *f = t->up;
    thread k = {.at = AT_KEY, .up = f, .of = f->of, .last = f->of->n_keys, .key = "", .states = key_states(g, f->of)};
    k.open = other_key_possible(g, f);
    k.state = f->others == RE_ALL ? 0 : re_state(g->pool, f->others);
    if (k.open || some_key_possible(g, f, 0, k.last)) thread_emit(g, &k);
}

static bool key_byte(wf_grammar *g, thread *t, unsigned char c)
{
    const alternative *a = t->of;
    if (t->first < t->last) narrow(&a->keys->key, sizeof *a->keys, t->depth, c, &t->first, &t->last);
    if (t->open) {
        if (t->depth >= MAX_KEY) return false;
        byte_keep(g, t, c);
        if (t->states) {
            int32_t *s = grammar_hold(g, a->n_patterns * sizeof *s);
            for (uint32_t i = 0; i < a->n_patterns; i++) s[i] = re_step(g->pool, t->states[i], c);
            t->states = s;
        }
        if (t->up->others != RE_ALL) t->open = (t->state = re_step(g->pool, t->state, c)) >= 0;
    }
    t->depth++;
    return t->open || some_key_possible(g, t->up, t->first, t->last);
}

static void key_close(wf_grammar *g, const thread *t)
{
    const alternative *a = t->of;
    thread next = {.at = AT_COLON};
    frame *f = frame_new(g, t->up);
    f->count++;
    if (t->first < t->last && a->keys[t->first].key.n == t->depth) {
        if (!key_possible(g, t->up, t->first)) return;
        uint64_t *seen = grammar_hold(g, seen_words(a) * sizeof *seen);
        memcpy(seen, t->up->seen, seen_words(a) * sizeof *seen);
        seen[t->first / 64] |= 1ull << (t->first % 64);
        f->seen = seen;
        f->required_left -= a->keys[t->first].required;
        next.value = a->keys[t->first].value;
    } else {
        if (!t->open || (f->others != RE_ALL && !re_accepts(g->pool, t->state))) return;
        if (has_come(t->up, t)) return;
        next.value = ended_key_value(g, t);
        if (cset_empty(g, next.value)) return;
        extra_add(g, f, t);
        if (a->finite) f->others = text_left_out(g, f->others, t);
    }
    next.up = f;
    thread_emit(g, &next);
}

/* ---- strings -------------------------------------------------------------------------------------------- */

bool alternative_free(const alternative *a) { return !a->texts && a->pattern == RE_ALL; }

/* One byte of the text that a string says. */
static bool string_byte(wf_grammar *g, thread *t, unsigned char c)
{
    if (t->at == AT_KEY) return key_byte(g, t, c);
    const alternative *a = t->of;
    if (t->key) { /* an item that must be new */
        if (t->depth >= MAX_KEY) return false;
        byte_keep(g, t, c);
        t->depth++;
    }
    if (a->texts) {
        narrow(a->texts, sizeof *a->texts, t->depth++, c, &t->first, &t->last);
        return t->first < t->last;
    }
    if (a->pattern != RE_ALL) return (t->state = re_step(g->pool, t->state, c)) >= 0;
    if ((c & 0xC0) != 0x80) t->chars++;
    return t->chars <= a->max;
}

static bool string_bytes(wf_grammar *g, thread *t, const unsigned char *c, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (!string_byte(g, t, c[i])) return false;
    return true;
}

/* Can the text go on with a character from first to last? */
static bool string_char_possible(wf_grammar *g, const thread *t, uint32_t first, uint32_t last)
{
    if (t->at == AT_STRING && alternative_free(t->of)) return t->chars < t->of->max;
    if (t->at == AT_KEY && t->open && !t->states) return true;
    void *mark = grammar_mark(g);
    bool possible = false;
    for (uint32_t c = first; c <= last && !possible; c++) {
        unsigned char bytes[4];
        thread copy = *t;
        unsigned n = (unsigned)re_utf8(c, bytes);
        grammar_work(g, 1);
        if (c < 0x80 && isalnum((int)c)) continue; /* never escaped */
        if (!string_byte(g, &copy, bytes[0])) c |= n == 1 ? 0 : n == 2 ? 63 : n == 3 ? 4095 : 0x3FFFF; /* nor others */
        else possible = string_bytes(g, &copy, bytes + 1, n - 1);
    }
    grammar_release(g, mark);
    return possible;
}

/* Within \u: is any character left that begins with these digits? */
static bool escape_possible(wf_grammar *g, const thread *t)
{
    const string_lex *s = &t->lex;
    if (!s->escape) return true;
    if (s->escape <= 2 && !s->half) { /* behind \ or \u: any first byte */
        for (unsigned c = 0; c < 0xF5; c++) {
            if (c < 0x80 && isalnum((int)c)) continue;
            void *mark = grammar_mark(g);
            thread copy = *t;
            bool possible = string_byte(g, &copy, (unsigned char)c);
            grammar_release(g, mark);
            if (possible) return true;
        }
        return false;
    }
    unsigned left = s->escape == 6 || s->escape == 1 ? 4u : 6u - s->escape;
    uint32_t first = (uint32_t)s->code << (4 * left), last = first + (1u << (4 * left)) - 1;
    if (s->half) {
        uint32_t base = 0x10000 + (((uint32_t)s->half - 0xD800) << 10);
        first = WF_MAX(first, 0xDC00u), last = left == 4 ? 0xDFFF : WF_MIN(last, 0xDFFFu);
        return string_char_possible(g, t, base + first - 0xDC00, base + last - 0xDC00);
    }
    if (first <= 0xDBFF && last >= 0xD800 && string_char_possible(g, t, 0x10000, 0x10FFFF)) return true;
    if (first < 0xD800 && string_char_possible(g, t, first, WF_MIN(last, 0xD7FFu))) return true;
    return last > 0xDFFF && string_char_possible(g, t, WF_MAX(first, 0xE000u), last);
}

static void string_close(wf_grammar *g, const thread *t)
{
    if (t->at == AT_KEY) {
        key_close(g, t);
        return;
    }
    const alternative *a = t->of;
    bool ends = a->texts                ? a->texts[t->first].n == t->depth
                : a->pattern != RE_ALL ? re_accepts(g->pool, t->state)
                                       : t->chars >= a->min;
    if (!ends) return;
    thread next = thread_closed(t->up);
    if (t->key) {
        if (t->up->blind || has_come(t->up, t)) return;
        frame *f = frame_new(g, t->up);
        if (alternative_free(a)) extra_add(g, f, t);
        else f->others = text_left_out(g, f->others, t);
        next.up = f;
    }
    thread_emit(g, &next);
}

void step_string(wf_grammar *g, const thread *from, unsigned char c)
{
    unsigned char bytes[4];
    unsigned n;
    thread t = *from;
    switch (string_lex_byte(&t.lex, c, bytes, &n)) {
    case LEX_BAD: return;
    case LEX_QUOTE: string_close(g, &t); return;
    case LEX_BYTES:
        if (string_bytes(g, &t, bytes, n)) thread_emit(g, &t);
        return;
    case LEX_MORE:
        if (escape_possible(g, &t)) thread_emit(g, &t);
        return;
    }
}
