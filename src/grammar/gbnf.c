/* Grammars in GBNF, as llama.cpp has them: rules over characters, of which `root` is the answer. A line may also begin
 * with what goes on with a rule, since a rule begins with a name and ::=.
 *
 * A rule becomes an expression (regex.h). One that contains itself is called where it is used, and the stack of a
 * thread says where that goes on; others stand there in place, as far as they are short. Each knows which bytes may
 * come first in it and behind it, so that few tokens have to be read by stacks (mask.c). */
#include "grammar/internal.h"
#include "grammar/regex_parse.h"

#include <stdio.h>
#include <string.h>

enum { MOST_IN_PLACE = 300, MOST_TIMES = 50000 };

typedef struct gbnf_item { /* `is`, min to max times */
    enum { IS_CHARS, IS_RULE, IS_GROUP } is;
    uint32_t min, max;
    re chars;
    uint32_t rule;
    const gbnf_choice *group;
    const char *at;
    struct gbnf_item *next;
} gbnf_item;
struct gbnf_choice { /* one of these */
    gbnf_item *items;
    struct gbnf_choice *next;
};

/* ---- reading -------------------------------------------------------------------------------------------- */

static gbnf_choice *read_choices(parser *);

/* Blanks, line ends and comments. */
static void skip_blanks(parser *s)
{
    for (; s->p < s->end && *s->p && strchr(" \t\r\n#", *s->p); s->p++)
        if (*s->p == '#')
            while (s->p + 1 < s->end && s->p[1] != '\n') s->p++;
}

static bool take_word(parser *s, const char *word)
{
    skip_blanks(s);
    return take(s, word);
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static text_list take_name(parser *s)
{
    skip_blanks(s);
    text_list name = {s->p, 0};
    while (s->p < s->end && is_name(*s->p)) s->p++;
    name.n = (uint32_t)(s->p - name.text);
    return name;
}

static uint32_t rule_named(wf_grammar *g, text_list name)
{
    grammar_work(g, g->n_rules / 16 + 1);
    for (uint32_t i = 0; i < g->n_rules; i++)
        if (g->rules[i].name.n == name.n && !memcmp(g->rules[i].name.text, name.text, name.n)) return i;
    grammar_grow(g, &g->rules, g->n_rules, &g->cap_rules, sizeof *g->rules);
    g->rules[g->n_rules++] = (gbnf_rule){.name = name};
    return (uint32_t)g->n_rules - 1;
}

#define NAME(r) (int)WF_MIN((r)->name.n, 60u), (r)->name.text

static uint32_t literal_char(parser *s)
{
    if (!take(s, "\\")) return take_char(s);
    if (s->p < s->end && is_name(*s->p) && !strchr("nrtxuU-", *s->p))
        grammar_fail(s->g, "an escape \\%c, which is unknown", *s->p);
    if (!take(s, "U")) return escaped_char(s);
    uint32_t c = take_hex(s, 8);
    if (c > 0x10FFFF) grammar_fail(s->g, "an escape above \\U0010FFFF");
    return c;
}

/* Behind the quote. */
static re read_literal(parser *s)
{
    re chars[256], out = RE_EMPTY;
    size_t n = 0;
    while (n < WF_LEN(chars) && !take(s, "\"")) {
        uint32_t c = literal_char(s);
        chars[n++] = re_chars(s->pool, &(re_range){c, c}, 1);
    }
    grammar_deeper(s->g);
    if (n == WF_LEN(chars)) out = read_literal(s);
    grammar_shallower(s->g);
    while (n-- > 0) out = re_cat(s->pool, chars[n], out);
    return out;
}

static gbnf_item *item_new(parser *s, gbnf_item like)
{
    gbnf_item *item = grammar_take(s->g, sizeof *item);
    *item = like;
    item->min = item->max = 1, item->at = s->p;
    return item;
}

/* NULL: none begins here. */
static gbnf_item *read_single(parser *s)
{
    skip_blanks(s);
    if (s->p == s->end) return NULL;
    gbnf_item *item = item_new(s, (gbnf_item){0});
    if (take(s, "\"")) item->chars = read_literal(s);
    else if (take(s, "[")) {
        /* Behind "[". */
        char_class *k = grammar_take(s->g, sizeof *k);
        bool negative = take(s, "^");
        while (!take(s, "]")) {
            uint32_t first = literal_char(s), last = first;
            if (s->end - s->p >= 2 && s->p[0] == '-' && s->p[1] != ']') s->p++, last = literal_char(s);
            if (last < first) grammar_fail(s->g, "a class with its range the wrong way round");
            class_add(s, k, first, last);
        }
        if (!k->n) grammar_fail(s->g, "a class without a character");
        if (negative) class_invert(s, k);
        item->chars = re_chars(s->pool, k->r, k->n);
    } else if (take(s, ".")) item->chars = re_any_char(s->pool);
    else if (take(s, "(")) {
        item->is = IS_GROUP, item->group = read_choices(s);
        if (!take_word(s, ")")) grammar_fail(s->g, "expected ) of the bracket");
    } else if (is_name(*s->p)) {
        text_list name = take_name(s);
        const char *behind = s->p;
        if (take_word(s, "::=")) { /* the next rule */
            s->p = name.text;
            return NULL;
        }
        s->p = behind;
        item->is = IS_RULE, item->rule = rule_named(s->g, name);
    } else if (*s->p == '<' || *s->p == '!')
        grammar_fail(s->g, "tokens (<...>) are not supported: write their text in quotes");
    else return NULL;
    return item;
}

static bool take_times(parser *s, uint32_t *min, uint32_t *max)
{
    *min = 0, *max = RE_MANY;
    if (take_word(s, "*")) return true;
    if (take(s, "+")) return *min = 1, true;
    if (take(s, "?")) return *max = 1, true;
    if (!take(s, "{")) return false;
    skip_blanks(s);
    if (!take_number(s, min)) grammar_fail(s->g, "expected a number of times");
    *max = *min;
    if (take_word(s, ",")) {
        skip_blanks(s);
        if (!take_number(s, max)) *max = RE_MANY;
    }
    if (!take_word(s, "}")) grammar_fail(s->g, "expected } of the number of times");
    if (*max < *min) grammar_fail(s->g, "the most times are fewer than the fewest");
    if (*min > MOST_TIMES || (*max != RE_MANY && *max > MOST_TIMES))
        grammar_fail(s->g, "more than %d times", MOST_TIMES);
    return true;
}

static gbnf_choice *choice_new(parser *s, gbnf_item *items)
{
    gbnf_choice *c = grammar_take(s->g, sizeof *c);
    c->items = items;
    return c;
}

static gbnf_item *read_items(parser *s)
{
    enum { MOST_AGAIN = 8 }; /* each is a group around the one before, into which others descend */
    gbnf_item *first = NULL, **at = &first, *item;
    uint32_t min, max;
    while ((item = read_single(s))) {
        for (int again = 0; take_times(s, &min, &max); again++) {
            if (again > MOST_AGAIN) grammar_fail(s->g, "too many repetitions of a repetition");
            if (again) item = item_new(s, (gbnf_item){.is = IS_GROUP, .group = choice_new(s, item)});
            item->min = min, item->max = max;
        }
        *at = item;
        at = &item->next;
    }
    if (s->p < s->end && strchr("*+?{", *s->p) && *s->p) grammar_fail(s->g, "nothing stands before %c", *s->p);
    return first;
}

static gbnf_choice *read_choices(parser *s)
{
    gbnf_choice *first = NULL, **at = &first;
    grammar_deeper(s->g);
    do {
        *at = choice_new(s, read_items(s));
        at = &(*at)->next;
    } while (take_word(s, "|"));
    grammar_shallower(s->g);
    return first;
}

static void read_rules(parser *s)
{
    size_t valid = wf_utf8_valid(s->p, (size_t)(s->end - s->p));
    if (s->p + valid != s->end) {
        s->p += valid;
        grammar_fail(s->g, "it is not valid UTF-8");
    }
    for (skip_blanks(s); s->p < s->end; skip_blanks(s)) {
        text_list name = take_name(s);
        if (!name.n) grammar_fail(s->g, "expected a rule's name");
        uint32_t i = rule_named(s->g, name);
        if (s->g->rules[i].body) {
            s->p = name.text;
            grammar_fail(s->g, "the rule %.*s is there twice", NAME(&s->g->rules[i]));
        }
        if (!take_word(s, "::=")) grammar_fail(s->g, "expected ::= behind the rule's name");
        const gbnf_choice *body = read_choices(s);
        s->g->rules[i].body = body;
        if (s->p < s->end && !is_name(*s->p))
            grammar_fail(s->g, "expected a rule, or what goes on with %.*s", NAME(&s->g->rules[i]));
    }
}

/* ---- what rules are ------------------------------------------------------------------------------------- */

/* Can they be no text, and can they end? By what is known so far. */
static void choices_know(wf_grammar *g, const gbnf_choice *c, bool *empty, bool *ends)
{
    *empty = *ends = false;
    for (; c; c = c->next) {
        bool all_empty = true, all_end = true;
        for (const gbnf_item *i = c->items; i; i = i->next) {
            bool e = i->min == 0, f = e;
            grammar_work(g, 1);
            if (i->is == IS_CHARS) e |= re_nullable(g->pool, i->chars), f |= i->chars != RE_NONE;
            else if (i->is == IS_RULE) e |= g->rules[i->rule].nullable, f |= g->rules[i->rule].ends;
            else {
                bool e_in, f_in;
                choices_know(g, i->group, &e_in, &f_in);
                e |= e_in, f |= f_in;
            }
            all_empty &= e, all_end &= f;
        }
        *empty |= all_empty, *ends |= all_end;
    }
}

static bool items_nullable(wf_grammar *g, gbnf_item *i)
{
    bool empty, ends;
    choices_know(g, &(gbnf_choice){i, NULL}, &empty, &ends);
    return empty;
}

static bool item_nullable(wf_grammar *g, const gbnf_item *i)
{
    gbnf_item alone = *i;
    alone.next = NULL;
    return items_nullable(g, &alone);
}

/* For an error that is found when all is read. */
static void reader_return(parser *s, const char *at)
{
    s->p = at;
    s->g->reader = s;
}

static void unite(re_set *to, const re_set *more)
{
    for (int w = 0; w < 4; w++) to->bits[w] |= more->bits[w];
}

/* The bytes with which each rule begins. None may begin with itself: it would be called again and again. */
static void rule_begins(parser *, gbnf_rule *);

static void choices_begin(parser *s, const gbnf_choice *c, re_set *out)
{
    grammar_deeper(s->g);
    for (; c; c = c->next)
        for (const gbnf_item *i = c->items; i; i = i->next) {
            grammar_work(s->g, 1);
            if (i->is == IS_CHARS) re_first_bytes(s->pool, i->chars, out);
            else if (i->is == IS_GROUP) choices_begin(s, i->group, out);
            else {
                gbnf_rule *r = &s->g->rules[i->rule];
                if (r->met == RULE_OPEN) {
                    reader_return(s, i->at);
                    grammar_fail(s->g, "the rule %.*s begins with itself: write its begin, and what follows with *",
                                 NAME(r));
                }
                rule_begins(s, r);
                unite(out, &r->first);
            }
            if (!item_nullable(s->g, i)) break;
        }
    grammar_shallower(s->g);
}

static void rule_begins(parser *s, gbnf_rule *r)
{
    if (r->met) return;
    r->met = RULE_OPEN;
    choices_begin(s, r->body, &r->first);
    r->met = RULE_DONE;
}

/* Adds to rules that stand in choices what may come behind them there. */
static void choices_follow(parser *s, const gbnf_choice *c, const re_set *behind, bool *more)
{
    grammar_deeper(s->g);
    for (; c; c = c->next) {
        for (const gbnf_item *i = c->items; i; i = i->next) {
            gbnf_item alone = *i;
            re_set after = {0};
            alone.next = NULL;
            if (i->max > 1) choices_begin(s, &(gbnf_choice){&alone, NULL}, &after);
            choices_begin(s, &(gbnf_choice){i->next, NULL}, &after);
            if (items_nullable(s->g, i->next)) unite(&after, behind);
            if (i->is == IS_GROUP) choices_follow(s, i->group, &after, more);
            if (i->is != IS_RULE) continue;
            re_set *behind_rule = &s->g->rules[i->rule].behind, was = *behind_rule;
            unite(behind_rule, &after);
            *more |= memcmp(&was, behind_rule, sizeof was) != 0;
        }
    }
    grammar_shallower(s->g);
}

/* Which rules are called: those that contain themselves, found where the way leads back to one, and long ones. */
static void rule_measure(wf_grammar *, uint32_t rule);

static uint32_t choices_measure(wf_grammar *g, const gbnf_choice *c)
{
    uint32_t size = 0;
    grammar_deeper(g);
    for (; c; c = c->next)
        for (const gbnf_item *i = c->items; i; i = i->next) {
            uint32_t own = 1;
            grammar_work(g, 1);
            if (i->is == IS_GROUP) own = choices_measure(g, i->group);
            else if (i->is == IS_RULE) {
                gbnf_rule *r = &g->rules[i->rule];
                if (r->met == RULE_OPEN) r->called = true;
                else rule_measure(g, i->rule);
                if (!r->called) own = r->size;
            }
            size = WF_MIN(size + own, MOST_IN_PLACE + 1u);
        }
    grammar_shallower(g);
    return size;
}

static void rule_measure(wf_grammar *g, uint32_t rule)
{
    gbnf_rule *r = &g->rules[rule];
    if (r->met == RULE_MEASURED) return;
    r->met = RULE_OPEN;
    r->size = choices_measure(g, r->body);
    r->called |= r->size > MOST_IN_PLACE;
    r->met = RULE_MEASURED;
}

/* ---- expressions ---------------------------------------------------------------------------------------- */

static re choices_build(wf_grammar *, const gbnf_choice *);

static re items_build(wf_grammar *g, const gbnf_item *i)
{
    re out = RE_EMPTY;
    size_t n = 0;
    for (const gbnf_item *x = i; x; x = x->next) n++;
    re *parts = grammar_take(g, n * sizeof *parts);
    for (size_t k = 0; i; i = i->next, k++) {
        re what = RE_NONE;
        const gbnf_rule *r = &g->rules[i->rule];
        if (i->is == IS_CHARS) what = i->chars;
        else if (i->is == IS_GROUP) what = choices_build(g, i->group);
        else if (r->ends) what = r->called ? re_call(g->pool, i->rule, r->nullable) : choices_build(g, r->body);
        parts[k] = re_repeat(g->pool, what, i->min, i->max);
    }
    while (n-- > 0) out = re_cat(g->pool, parts[n], out);
    return out;
}

static re choices_build(wf_grammar *g, const gbnf_choice *c)
{
    re out = RE_NONE;
    grammar_deeper(g);
    for (; c; c = c->next) out = re_alt(g->pool, out, items_build(g, c->items));
    grammar_shallower(g);
    return out;
}

static void gbnf_compile(wf_grammar *g, const char *text, size_t n)
{
    parser *s = grammar_take(g, sizeof *s);
    *s = (parser){g, g->pool, text, text + n, 0};
    g->reader = s;
    read_rules(s);
    g->reader = NULL;
    uint32_t root = rule_named(g, (text_list){"root", 4});
    if (!g->rules[root].body) grammar_fail(g, "it has no rule root");
    for (size_t i = 0; i < g->n_rules; i++)
        if (!g->rules[i].body) {
            reader_return(s, g->rules[i].name.text);
            grammar_fail(g, "there is no rule %.*s", NAME(&g->rules[i]));
        }
    for (bool more = true, back = false; more; back = !back) {
        more = false;
        for (size_t k = 0; k < g->n_rules; k++) {
            gbnf_rule *r = &g->rules[back ? g->n_rules - 1 - k : k];
            bool empty, ends;
            choices_know(g, r->body, &empty, &ends);
            more |= empty != r->nullable || ends != r->ends;
            r->nullable = empty, r->ends = ends;
        }
    }
    if (!g->rules[root].ends) grammar_fail(g, "the rule root is never complete");
    for (size_t i = 0; i < g->n_rules; i++) rule_begins(s, &g->rules[i]);
    rule_measure(g, root);
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < g->n_rules; i++) choices_follow(s, g->rules[i].body, &g->rules[i].behind, &more);
    }
    g->rules[root].called = true;
    g->raw_end = re_state(g->pool, re_byte(g->pool, RE_END));
    for (size_t i = 0; i < g->n_rules; i++) {
        gbnf_rule *r = &g->rules[i];
        if (r->called && r->ends)
            r->state = re_state(g->pool, re_cat(g->pool, choices_build(g, r->body), re_byte(g->pool, RE_END)));
    }
    g->raw_begin = g->rules[root].state, g->raw_root = root;
}

weft_status wf_grammar_gbnf(const char *text, size_t n, wf_grammar **out)
{
    wf_grammar *g;
    *out = NULL;
    WF_TRY(grammar_new(&g));
    GRAMMAR_ENTER(g, {
        raw_begin(g);
        gbnf_compile(g, text, n);
    });
    if (g->status != WEFT_OK && g->reader) { /* says where */
        size_t line = 1, column = 1;
        char message[sizeof g->message];
        wf_copy(message, sizeof message, g->message);
        for (const char *p = text; p < g->reader->p; p++)
            if (*p == '\n') line++, column = 1;
            else column += (*p & 0xC0) != 0x80;
        snprintf(g->message, sizeof g->message, "line %zu, column %zu: %.200s", line, column, message);
    }
    return grammar_made(g, "the grammar", out);
}
