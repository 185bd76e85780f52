/* Patterns of ECMA 262 with the flag u, as JSON Schema names them. What is not regular (references back, word
 * boundaries, looks behind) is refused by name. */
#include "grammar/internal.h"
#include "grammar/regex_parse.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static re parse_alternatives(parser *s);

bool take(parser *s, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, text, n) != 0) return false;
    s->p += n;
    return true;
}

uint32_t take_char(parser *s)
{
    size_t n = s->p < s->end ? wf_utf8_len(s->p, (size_t)(s->end - s->p)) : 0;
    if (!n) grammar_fail(s->g, "it ends too early");
    const unsigned char *u = (const unsigned char *)s->p;
    s->p += n;
    if (n == 1) return u[0];
    uint32_t c = u[0] & (0xFF >> (n + 1));
    for (size_t i = 1; i < n; i++) c = c << 6 | (u[i] & 63);
    return c;
}

/* ---- classes of characters ------------------------------------------------------------------------------ */

void class_add(parser *s, char_class *k, uint32_t first, uint32_t last)
{
    if (k->n && k->r[k->n - 1].last + 1 == first) {
        k->r[k->n - 1].last = last;
        return;
    }
    if (k->n == MAX_RANGES) grammar_fail(s->g, "a class has too many ranges");
    k->r[k->n++] = (re_range){first, last};
}

static int range_order(const void *a, const void *b)
{
    const re_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

void class_invert(parser *s, char_class *k)
{
    char_class out = {.n = 0};
    uint32_t next = 0;
    qsort(k->r, k->n, sizeof *k->r, range_order);
    for (size_t i = 0; i < k->n; i++) {
        if (k->r[i].first > next) class_add(s, &out, next, k->r[i].first - 1);
        next = WF_MAX(next, k->r[i].last + 1);
    }
    if (next <= 0x10FFFF) class_add(s, &out, next, 0x10FFFF);
    *k = out;
}

static const re_range digits[] = {{'0', '9'}}, words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                      blanks[] = {{9, 13}, {32, 32}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                                  {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

/* \d \w \s and their complements, behind the backslash; false: it is none. */
static bool class_named(parser *s, char_class *k)
{
    static const struct {
        char name;
        const re_range *r;
        size_t n;
    } all[] = {{'d', digits, WF_LEN(digits)}, {'w', words, WF_LEN(words)}, {'s', blanks, WF_LEN(blanks)}};
    for (size_t i = 0; i < WF_LEN(all); i++) {
        bool upper = *s->p == all[i].name - 32;
        if (!upper && *s->p != all[i].name) continue;
        s->p++;
        k->n = 0;
        for (size_t j = 0; j < all[i].n; j++) class_add(s, k, all[i].r[j].first, all[i].r[j].last);
        if (upper) class_invert(s, k);
        return true;
    }
    return false;
}

/* \p{Lu}, \p{L}, \p{General_Category=L}, and \P: by general category alone. */
static bool class_property(parser *s, char_class *k)
{
    bool negative = s->p < s->end && *s->p == 'P';
    if (!take(s, "p{") && !take(s, "P{")) return false;
    const char *close = memchr(s->p, '}', (size_t)(s->end - s->p));
    if (!close) grammar_fail(s->g, "a pattern ends within \\p{");
    const char *eq = memchr(s->p, '=', (size_t)(close - s->p)), *name = eq ? eq + 1 : s->p;
    size_t n = (size_t)(close - name);
    static const char *const known[][2] = {{"Letter", "L"}, {"Alphabetic", "L"}, {"Number", "N"}, {"digit", "Nd"},
                                           {"Uppercase_Letter", "Lu"}, {"Lowercase_Letter", "Ll"},
                                           {"Punctuation", "P"}, {"Symbol", "S"}, {"Mark", "M"}};
    char cat[3] = {0};
    for (size_t i = 0; i < WF_LEN(known); i++)
        if (strlen(known[i][0]) == n && !memcmp(known[i][0], name, n)) memcpy(cat, known[i][1], 2);
    if (!*cat && n >= 1 && n <= 2) memcpy(cat, name, n);
    if (!*cat || !strchr("LMNPSZC", *cat)) grammar_fail(s->g, "the property \\p{%.*s}", (int)n, name);
    s->p = close + 1;
    k->n = 0;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        const char *of = utf8proc_category_string((utf8proc_int32_t)c);
        if (of[0] != cat[0] || (cat[1] && of[1] != cat[1])) continue;
        uint32_t first = c;
        while (c < 0x10FFFF) {
            of = utf8proc_category_string((utf8proc_int32_t)c + 1);
            if (of[0] != cat[0] || (cat[1] && of[1] != cat[1])) break;
            c++;
        }
        class_add(s, k, first, c);
    }
    grammar_work(s->g, 100000);
    if (negative) class_invert(s, k);
    return true;
}

uint32_t take_hex(parser *s, int n)
{
    uint32_t c = 0;
    for (; n > 0; n--) {
        static const char hex[] = "0123456789abcdef";
        const char *at = s->p < s->end && *s->p ? strchr(hex, *s->p | 32) : NULL;
        if (!at) grammar_fail(s->g, "a bad escape");
        c = c << 4 | (uint32_t)(at - hex);
        s->p++;
    }
    return c;
}

/* A character behind a backslash. */
uint32_t escaped_char(parser *s)
{
    static const char from[] = "nrtvf0", to[] = "\n\r\t\v\f";
    if (take(s, "u{")) {
        uint32_t c = 0;
        while (s->p < s->end && *s->p != '}' && c <= 0x10FFFF) c = c << 4 | take_hex(s, 1);
        if (!take(s, "}") || c > 0x10FFFF) grammar_fail(s->g, "a bad escape");
        return c;
    }
    if (take(s, "u")) {
        uint32_t c = take_hex(s, 4);
        if (c >= 0xD800 && c < 0xDC00 && take(s, "\\u"))
            return 0x10000 + ((c - 0xD800) << 10) + (take_hex(s, 4) & 0x3FF);
        return c;
    }
    if (take(s, "x")) return take_hex(s, 2);
    if (take(s, "c")) return take_char(s) & 31;
    uint32_t c = take_char(s);
    const char *at = c < 128 && c ? strchr(from, (int)c) : NULL;
    return at ? (unsigned char)to[at - from] : c;
}

static bool class_escape(parser *s, char_class *k)
{
    if (s->p == s->end) grammar_fail(s->g, "a pattern ends with a backslash");
    return class_named(s, k) || class_property(s, k);
}

/* Behind "[". */
static re parse_class(parser *s)
{
    char_class *k = grammar_hold(s->g, sizeof *k), *part = grammar_hold(s->g, sizeof *part);
    k->n = 0;
    bool negative = take(s, "^");
    while (!take(s, "]")) {
        if (s->p == s->end) grammar_fail(s->g, "a pattern ends within a class");
        if (take(s, "\\")) {
            if (class_escape(s, part)) {
                for (size_t i = 0; i < part->n; i++) class_add(s, k, part->r[i].first, part->r[i].last);
                continue;
            }
            if (*s->p == 'b') s->p++, part->r[0].first = '\b';
            else part->r[0].first = escaped_char(s);
        } else part->r[0].first = take_char(s);
        uint32_t first = part->r[0].first, last = first;
        if (s->end - s->p >= 2 && s->p[0] == '-' && s->p[1] != ']') {
            const char *dash = s->p++;
            if (take(s, "\\")) {
                if (class_escape(s, part)) { /* [a-\d]: the dash is one of them */
                    s->p = dash;
                    class_add(s, k, first, first);
                    class_add(s, k, '-', '-');
                    s->p++;
                    continue;
                }
                last = escaped_char(s);
            } else last = take_char(s);
            if (last < first) grammar_fail(s->g, "a class with its range the wrong way round");
        }
        class_add(s, k, first, last);
    }
    if (negative) class_invert(s, k);
    return re_chars(s->pool, k->r, k->n);
}

static re parse_group(parser *s)
{
    bool look = false, negative = false;
    if (take(s, "?")) {
        if (take(s, "=")) look = true;
        else if (take(s, "!")) look = negative = true;
        else if (take(s, "<=") || take(s, "<!")) grammar_fail(s->g, "a pattern that looks behind");
        else if (take(s, "<") || take(s, "P<")) {
            while (s->p < s->end && *s->p != '>') s->p++;
            if (!take(s, ">")) grammar_fail(s->g, "a pattern ends within the name of a group");
        } else if (!take(s, ":")) grammar_fail(s->g, "a pattern with an unknown group (?");
    }
    grammar_deeper(s->g);
    s->looking += look;
    re inner = parse_alternatives(s);
    s->looking -= look;
    grammar_shallower(s->g);
    if (!take(s, ")")) grammar_fail(s->g, "a pattern ends within a group");
    return look ? re_look(s->pool, inner, negative) : inner;
}

static re parse_atom(parser *s)
{
    static const re_range dot[] = {{0, 9}, {11, 12}, {14, 0x2027}, {0x202A, 0x10FFFF}};
    if (take(s, "(")) return parse_group(s);
    if (take(s, "[")) return parse_class(s);
    if (take(s, ".")) return re_chars(s->pool, dot, WF_LEN(dot));
    if (take(s, "^")) {
        if (s->looking) grammar_fail(s->g, "a pattern that looks ahead for its beginning");
        return re_byte(s->pool, RE_START);
    }
    if (take(s, "$")) return re_dollar(s->pool);
    if (s->p < s->end && strchr("*+?", *s->p) && *s->p) grammar_fail(s->g, "a pattern repeats nothing");
    if (take(s, "\\")) {
        char_class *k = grammar_hold(s->g, sizeof *k);
        if (class_escape(s, k)) return re_chars(s->pool, k->r, k->n);
        if (*s->p == 'b' || *s->p == 'B') grammar_fail(s->g, "a pattern with a word boundary");
        if (*s->p == 'A') return s->p++, re_byte(s->pool, RE_START);
        if (*s->p == 'Z' || *s->p == 'z') return s->p++, re_dollar(s->pool);
        if ((*s->p >= '1' && *s->p <= '9') || *s->p == 'k') grammar_fail(s->g, "a pattern that refers to a group");
        uint32_t c = escaped_char(s);
        return re_chars(s->pool, &(re_range){c, c}, 1);
    }
    uint32_t c = take_char(s);
    return re_chars(s->pool, &(re_range){c, c}, 1);
}

bool take_number(parser *s, uint32_t *out)
{
    const char *at = s->p;
    uint32_t v = 0;
    for (; s->p < s->end && *s->p >= '0' && *s->p <= '9'; s->p++) v = WF_MIN(v * 10 + (uint32_t)(*s->p - '0'), 100000u);
    *out = v;
    return s->p > at;
}

/* {2}, {2,} or {2,5}; false: the brace stands for itself. */
static bool take_counts(parser *s, uint32_t *min, uint32_t *max)
{
    const char *at = s->p;
    *max = RE_MANY;
    if (take(s, "{") && take_number(s, min)) {
        bool comma = take(s, ",");
        if (!comma) *max = *min;
        else if (s->p < s->end && *s->p != '}' && !take_number(s, max)) goto none;
        if (take(s, "}")) return true;
    }
none:
    s->p = at;
    return false;
}

static re parse_repeated(parser *s)
{
    re atom = parse_atom(s);
    for (;;) {
        uint32_t min = 0, max = RE_MANY;
        if (take(s, "*")) min = 0;
        else if (take(s, "+")) min = 1;
        else if (take(s, "?")) max = 1;
        else if (!take_counts(s, &min, &max)) return atom;
        if (max < min) grammar_fail(s->g, "a pattern with counts the wrong way round");
        if (max != RE_MANY ? max > 50000 : min > 50000) grammar_fail(s->g, "a pattern that counts above 50000");
        take(s, "?"); /* as few as possible: the same texts */
        atom = re_repeat(s->pool, atom, min, max);
    }
}

static re parse_sequence(parser *s)
{
    re parts[512];
    size_t n = 0;
    re out = RE_EMPTY;
    while (s->p < s->end && *s->p != '|' && *s->p != ')') {
        if (n == WF_LEN(parts)) grammar_fail(s->g, "a pattern is too long");
        parts[n++] = parse_repeated(s);
    }
    while (n-- > 0) out = re_cat(s->pool, parts[n], out);
    return out;
}

static re parse_alternatives(parser *s)
{
    re out = parse_sequence(s);
    while (take(s, "|")) out = re_alt(s->pool, out, parse_sequence(s));
    return out;
}

re re_parse(re_pool *p, const char *pattern, size_t n, bool whole)
{
    wf_grammar *g = grammar_of(p);
    if (wf_utf8_valid(pattern, n) != n) grammar_fail(g, "a pattern is not valid UTF-8");
    parser s = {g, p, pattern, pattern + n, 0};
    void *mark = grammar_mark(g);
    re body = parse_alternatives(&s);
    grammar_release(g, mark);
    if (s.p != s.end) grammar_fail(g, "a pattern with a closing bracket too many");
    re any = re_repeat(p, re_any_char(p), 0, RE_MANY), end = re_byte(p, RE_END), start = re_byte(p, RE_START);
    re from = whole ? start : re_cat(p, re_repeat(p, start, 0, 1), any);
    /* A pattern without ^ begins anywhere; one with ^ reads the start itself. */
    re rest = re_before(p, body, whole ? end : re_cat(p, any, end));
    re all = whole ? re_alt(p, re_cat(p, from, rest), rest) : re_alt(p, re_cat(p, from, rest), rest);
    return re_drop_start(p, re_derive(p, all, RE_START));
}
