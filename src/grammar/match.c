/* Answers byte by byte: a set of threads, each a way to read the answer so far. Where a schema has alternatives, all
 * that are still possible are threads; a thread from which no answer can come ends at once. */
#include "grammar/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- sets of threads ------------------------------------------------------------------------------------ */

static bool same_extras(const extra_key *a, const extra_key *b)
{
    for (; a != b; a = a->before, b = b->before)
        if (!a || !b || a->n != b->n || memcmp(a->text, b->text, a->n) != 0) return false;
    return true;
}

static bool same_frames(const frame *a, const frame *b)
{
    for (; a != b; a = a->up, b = b->up) {
        if (!a || !b || a->of != b->of || a->count != b->count || a->required_left != b->required_left ||
            a->others != b->others || a->counted != b->counted || a->blind != b->blind ||
            !same_extras(a->extras, b->extras))
            return false;
        if (a->of && a->of->type == T_OBJECT && a->of->n_keys &&
            memcmp(a->seen, b->seen, seen_words(a->of) * sizeof *a->seen) != 0)
            return false;
    }
    return true;
}

static bool same_thread(const thread *a, const thread *b)
{
    if (a->at != b->at || a->of != b->of || a->value != b->value || a->depth != b->depth || a->state != b->state ||
        a->chars != b->chars || a->n_number != b->n_number || memcmp(&a->lex, &b->lex, sizeof a->lex) != 0)
        return false;
    if (a->blanks != b->blanks || a->first != b->first || a->last != b->last || a->word != b->word) return false;
    if (memcmp(a->number, b->number, a->n_number) != 0 || a->open != b->open) return false;
    if ((a->at != AT_KEY || a->open) && a->key && b->key && a->depth && memcmp(a->key, b->key, a->depth) != 0)
        return false;
    return same_frames(a->up, b->up);
}

void thread_emit(wf_grammar *g, const thread *t)
{
    grammar_work(g, g->n_scratch / 8);
    for (size_t i = 0; i < g->n_scratch; i++)
        if (same_thread(&g->scratch[i], t)) return;
    if (g->n_scratch == MAX_THREADS) grammar_fail(g, "an answer that can be read in too many ways");
    g->scratch[g->n_scratch++] = *t;
}

/* ---- brackets ------------------------------------------------------------------------------------------- */

/* A value has ended. */
thread thread_closed(const frame *up)
{
    return (thread){.at = !up ? AT_END : up->of->type == T_ARRAY ? AT_LIST_NEXT : AT_MEMBER_NEXT, .up = up};
}

frame *frame_new(wf_grammar *g, const frame *like)
{
    frame *f = grammar_hold(g, sizeof *f);
    *f = *like;
    return f;
}

static cset item_of(const frame *f, bool counts)
{
    const alternative *a = f->of;
    uint32_t i = WF_MIN(f->count, a->n_prefix);
    if (a->counted) return counts ? a->counted[i].of : a->counted[i].not_of;
    return i < a->n_prefix ? a->prefix[i] : a->items;
}

/* counts: as one that contains counts, of which no more are needed once there are enough. */
static bool item_possible(wf_grammar *g, const frame *f, bool counts)
{
    const alternative *a = f->of;
    if (f->count >= a->max || cset_empty(g, item_of(f, counts))) return false;
    if (a->unique && re_state(g->pool, f->others) < 0) return false;
    if (!a->counted) return true;
    if (counts && (f->counted >= a->max_counted || (a->max_counted == RE_MANY && f->counted >= a->min_counted)))
        return false;
    return array_ends(g, a, f->count + 1, f->counted + counts, cset_possible);
}

static bool list_may_close(const frame *f)
{
    const alternative *a = f->of;
    return f->count >= a->min && (!a->counted || (f->counted >= a->min_counted && f->counted <= a->max_counted));
}

/* ---- numbers and words ---------------------------------------------------------------------------------- */

static void step(wf_grammar *, const thread *, unsigned char);

/* Would c continue the digits so far (RFC 8259, 6)? */
static bool number_takes(const char *text, int n, unsigned char c)
{
    bool point = memchr(text, '.', (size_t)n), e = memchr(text, 'e', (size_t)n) || memchr(text, 'E', (size_t)n);
    bool digit = n && text[n - 1] >= '0' && text[n - 1] <= '9';
    if (c >= '0' && c <= '9') return true;
    if (c == '-' && !n) return true;
    if (c == '.') return digit && !point && !e;
    if (c == 'e' || c == 'E') return digit && !e;
    return (c == '-' || c == '+') && n && (text[n - 1] | 32) == 'e';
}

static void step_number(wf_grammar *g, const thread *from, unsigned char c)
{
    bool whole = from->of->type == T_INT;
    if (from->n_number && !number_takes(from->number, from->n_number, c)) {
        if (!number_complete(&from->of->number, whole, from->number, from->n_number)) return;
        thread next = thread_closed(from->up);
        step(g, &next, c);
        return;
    }
    if (from->n_number >= NUMBER_MAX - 1 || !number_takes(from->number, from->n_number, c)) return;
    thread t = *from;
    t.number[t.n_number++] = (char)c;
    grammar_work(g, from->of->bounded ? 10 : 0);
    if (number_may_go_on(&t.of->number, whole, t.number, t.n_number)) thread_emit(g, &t);
}

/* ---- rules ---------------------------------------------------------------------------------------------- */

/* Goes on with c from a state of a rule, or in a rule that is called there; c -1: where it is. */
static void raw_enter(wf_grammar *g, uint32_t rule, int32_t state, const frame *up, int c)
{
    thread t = {.at = AT_RAW, .value = rule, .state = state, .up = up};
    size_t n;
    if (c >= 0) t.state = re_step(g->pool, state, (unsigned char)c);
    if (t.state >= 0) thread_emit(g, &t);
    const re_called *calls = re_calls(g->pool, state, &n);
    grammar_deeper(g);
    for (size_t i = 0; i < n; i++) {
        const gbnf_rule *r = &g->rules[calls[i].rule];
        if (c >= 0 && !(r->first.bits[c >> 6] >> (c & 63) & 1)) continue;
        const frame *back = up;
        grammar_work(g, 1);
        if (calls[i].to != g->raw_end) /* else nothing to come back to */
            back = frame_new(g, &(frame){.state = calls[i].to, .rule = rule, .up = up});
        raw_enter(g, calls[i].rule, r->state, back, c);
    }
    grammar_shallower(g);
}

/* The same, also behind the rule where it may end. */
static void raw_step(wf_grammar *g, const thread *t, int c)
{
    uint32_t rule = t->value;
    int32_t state = t->state;
    for (const frame *up = t->up;; up = up->up) {
        raw_enter(g, rule, state, up, c);
        if (!up || !re_accepts(g->pool, state)) return;
        state = up->state, rule = up->rule;
        grammar_work(g, 1);
    }
}

static bool raw_may_end(wf_grammar *g, const thread *t)
{
    int32_t state = t->state;
    for (const frame *up = t->up; re_accepts(g->pool, state); up = up->up) {
        if (!up) return true;
        state = up->state;
    }
    return false;
}

static void value_begin(wf_grammar *g, const thread *t, unsigned char c)
{
    const alternative *unique = t->up ? t->up->of->unique : NULL;
    if (unique) {
        thread in = {.at = AT_STRING, .of = unique, .up = t->up, .key = ""};
        in.state = alternative_free(unique) ? 0 : re_state(g->pool, t->up->others);
        if (c == '"') thread_emit(g, &in);
        return;
    }
    for (node a = cset_node(g, t->value); a; a = a->next) {
        thread in = {.of = a, .up = t->up};
        bool digit = c == '-' || (c >= '0' && c <= '9');
        const char *word = a->type == T_NULL    ? "null"
                           : a->type == T_TRUE  ? "true"
                           : a->type == T_FALSE ? "false"
                                                : NULL;
        if (word && *word == (char)c) {
            in.at = AT_WORD, in.word = word + 1, in.of = NULL;
            thread_emit(g, &in);
        } else if ((a->type == T_INT || a->type == T_FRAC) && digit) {
            in.at = AT_NUMBER;
            step_number(g, &in, c);
        } else if (a->type == T_STRING && c == '"') {
            in.at = AT_STRING, in.last = a->n_texts;
            in.state = a->pattern == RE_ALL ? 0 : re_state(g->pool, a->pattern);
            thread_emit(g, &in);
        } else if ((a->type == T_ARRAY && c == '[') || (a->type == T_OBJECT && c == '{')) {
            frame *f = frame_new(
                g, &(frame){.of = a, .up = t->up, .required_left = a->n_required, .others = a->others});
            if (a->type == T_OBJECT) f->seen = grammar_hold(g, (seen_words(a) + 1) * sizeof *f->seen);
            in.at = c == '[' ? AT_LIST_FIRST : AT_KEY_FIRST, in.up = f, in.of = NULL;
            thread_emit(g, &in);
        }
    }
}

static void list_step(wf_grammar *g, const thread *t, unsigned char c)
{
    const frame *f = t->up;
    if (c == ']') {
        thread next = thread_closed(f->up);
        if (list_may_close(f)) thread_emit(g, &next);
        return;
    }
    if (t->at == AT_LIST_FIRST ? c == ',' : c != ',' || t->blanks) return;
    for (int counts = 0; counts <= (f->of->counted != NULL); counts++) {
        if (!item_possible(g, f, counts)) continue;
        frame *in = frame_new(g, f);
        in->count++, in->counted += counts;
        thread next = (thread){.at = AT_VALUE, .up = in, .value = item_of(f, counts)};
        if (t->at == AT_LIST_FIRST) value_begin(g, &next, c);
        else thread_emit(g, &next);
    }
}

static void member_step(wf_grammar *g, const thread *t, unsigned char c)
{
    const frame *f = t->up;
    if (c == '}' && t->at != AT_KEY_NEXT && !f->required_left && f->count >= f->of->min) {
        thread next = thread_closed(f->up);
        thread_emit(g, &next);
    } else if (c == '"' && t->at != AT_MEMBER_NEXT) key_begin(g, t);
    else if (c == ',' && t->at == AT_MEMBER_NEXT && !t->blanks) {
        thread next = {.at = AT_KEY_NEXT, .up = f};
        if (some_key_possible(g, f, 0, f->of->n_keys) || other_key_possible(g, f)) thread_emit(g, &next);
    }
}

/* White space as printers of JSON write it, so that no answer is lost in it: a blank, or a line end and the blanks that
 * indent the next line; not before a comma or a colon. Before an answer any two. */
static bool blank_possible(const thread *t, unsigned char c, uint8_t *blanks)
{
    bool next = t->at == AT_LIST_NEXT || t->at == AT_MEMBER_NEXT; /* then only the bracket may come */
    if (t->at == AT_COLON || (next && (t->up->required_left || !list_may_close(t->up)))) return false;
    if (t->at == AT_VALUE && !t->up) return (*blanks)++ < 2;
    if (t->blanks == 0) *blanks = c == '\n' ? AFTER_LINE : 1;
    else ++*blanks;
    return t->blanks == 0 || (c != '\n' && t->blanks >= AFTER_LINE && t->blanks < MAX_BLANKS);
}

static void step(wf_grammar *g, const thread *t, unsigned char c)
{
    thread next = *t;
    switch (t->at) {
    case AT_STRING:
    case AT_KEY: step_string(g, t, c); return;
    case AT_NUMBER: step_number(g, t, c); return;
    case AT_WORD:
        if (*t->word != (char)c) return;
        if (*++next.word == 0) next = thread_closed(t->up);
        thread_emit(g, &next);
        return;
    case AT_RAW: raw_step(g, t, c); return;
    case AT_END: return;
    default: break;
    }
    if (c == ' ' || c == '\n' || c == '\t') {
        if (blank_possible(t, c, &next.blanks)) thread_emit(g, &next);
        return;
    }
    switch (t->at) {
    case AT_VALUE: value_begin(g, t, c); return;
    case AT_COLON:
        if (c != ':') return;
        next.at = AT_VALUE, next.blanks = 0;
        thread_emit(g, &next);
        return;
    case AT_LIST_FIRST:
    case AT_LIST_NEXT: list_step(g, t, c); return;
    default: member_step(g, t, c); return;
    }
}

thread thread_begin(wf_grammar *g)
{
    if (g->raw) return (thread){.at = AT_RAW, .state = g->raw_begin, .value = g->raw_root};
    return (thread){.at = AT_VALUE, .value = 1};
}

size_t threads_step(wf_grammar *g, const thread *t, size_t n, unsigned char c)
{
    g->n_scratch = 0;
    grammar_work(g, n);
    for (size_t i = 0; i < n; i++) step(g, &t[i], c);
    return g->n_scratch;
}

size_t threads_reach(wf_grammar *g, const thread *t, size_t n)
{
    g->n_scratch = 0;
    for (size_t i = 0; i < n; i++) raw_step(g, &t[i], -1);
    return g->n_scratch;
}

bool threads_may_end(wf_grammar *g, const thread *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (t[i].at == AT_END || (t[i].at == AT_RAW && raw_may_end(g, &t[i]))) return true;
        if (t[i].at == AT_NUMBER && !t[i].up &&
            number_complete(&t[i].of->number, t[i].of->type == T_INT, t[i].number, t[i].n_number))
            return true;
    }
    return false;
}

weft_status wf_match_new(wf_grammar *g, wf_match **out)
{
    wf_match *m = *out = wf_calloc(1, sizeof *m);
    if (!m) return WEFT_ERR_NOMEM;
    m->grammar = g;
    m->now[0] = thread_begin(g);
    m->n = 1;
    return WEFT_OK;
}

void wf_match_free(wf_match *m) { free(m); }

weft_status wf_match_read(wf_match *m, const char *bytes, size_t n)
{
    wf_grammar *g = m->grammar;
    volatile size_t at = 0;
    GRAMMAR_ENTER(g, {
        for (; at < n && m->n; at++) {
            g->work = 0;
            m->n = threads_step(g, m->now, m->n, (unsigned char)bytes[at]);
            memcpy(m->now, g->scratch, m->n * sizeof *m->now);
        }
    });
    if (g->status != WEFT_OK) return wf_fail(g->status, "%s", g->message);
    if (!m->n) return wf_fail(WEFT_ERR_ARG, "no answer goes on with byte %zu of %zu", (size_t)at, n);
    return WEFT_OK;
}

bool wf_match_may_end(const wf_match *m) { return threads_may_end(m->grammar, m->now, m->n); }

bool wf_match_over(const wf_match *m)
{
    for (size_t i = 0; i < m->n; i++) {
        const thread *t = &m->now[i];
        if (t->at != AT_END && !(t->at == AT_RAW && !t->up && t->state == m->grammar->raw_end)) return false;
    }
    return m->n > 0;
}
