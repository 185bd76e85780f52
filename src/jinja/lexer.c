/* lexer: a template to tokens, with the white space that tags strip. As jinja2's with trim_blocks and lstrip_blocks:
 * the first line end behind a block is dropped, and so is white space in front of a block that begins a line; "-"
 * strips all white space, "+" none. */
#include "jinja/internal.h"

#include <errno.h>
#include <stdlib.h>

static bool at_text(const wf_jlexer *l, const char *s)
{
    size_t n = strlen(s);
    return l->r->len - l->at >= n && !memcmp(l->r->src + l->at, s, n);
}

static wf_jstr source(const wf_jlexer *l, size_t begin, size_t end)
{
    return (wf_jstr){.p = l->r->src + begin, .len = end - begin};
}

static _Noreturn void syntax(wf_jlexer *l, size_t at, const char *what)
{
    l->r->at = at;
    wf_jfail(l->r, WEFT_ERR_UNSUPPORTED, "%s", what);
}

static void skip_space(wf_jlexer *l)
{
    size_t n;
    while (l->at < l->r->len && wf_jspace(wf_jchar(l->r->src + l->at, &n))) l->at += n;
}

/* ---- text ------------------------------------------------------------------------------------------------ */

static size_t next_tag(const wf_jlexer *l)
{
    for (size_t i = l->at; i + 1 < l->r->len; i++)
        if (l->r->src[i] == '{' && strchr("{%#", l->r->src[i + 1]) && l->r->src[i + 1]) return i;
    return l->r->len;
}

/* White space in front of the tag at the end of the text. */
static wf_jstr strip_end(const wf_jlexer *l, wf_jstr text, size_t tag)
{
    char sign = tag + 2 < l->r->len ? l->r->src[tag + 2] : 0;
    if (tag == l->r->len) return text;
    if (sign == '-') return wf_jstr_strip(NULL, text, NULL, 2);
    if (sign == '+' || l->r->src[tag + 1] == '{') return text;
    const char *line = memrchr(text.p, '\n', text.len);
    size_t from = line ? (size_t)(line - text.p) + 1 : 0;
    bool whole = from || l->line_starts;
    bool blank = !wf_jstr_strip(NULL, wf_jstr_sub(text, from, text.len), NULL, 1).len;
    return whole && blank ? wf_jstr_sub(text, 0, from) : text;
}

/* Behind the end of a block or comment. */
static void end_tag(wf_jlexer *l, char sign)
{
    if (sign == '-') skip_space(l);
    else if (sign != '+' && at_text(l, "\n")) l->at++;
    l->line_starts = l->at && l->r->src[l->at - 1] == '\n';
}

static void skip_comment(wf_jlexer *l)
{
    size_t begin = l->at;
    const char *end = memmem(l->r->src + begin + 2, l->r->len - begin - 2, "#}", 2);
    if (!end) syntax(l, begin, "a comment has no end: expected '#}'");
    l->at = (size_t)(end - l->r->src) + 2;
    end_tag(l, end > l->r->src + begin + 2 ? end[-1] : 0);
}

/* Is this block, with its tag at l->at, {% word %}? Its end and the signs of both tags' ends. */
static bool word_block(const wf_jlexer *l, size_t at, const char *word, size_t *end, char *sign)
{
    wf_jlexer x = *l;
    x.at = at + 2;
    if (at_text(&x, "-") || at_text(&x, "+")) x.at++;
    skip_space(&x);
    if (!at_text(&x, word)) return false;
    x.at += strlen(word);
    skip_space(&x);
    *sign = x.at < x.r->len && (x.r->src[x.at] == '-' || x.r->src[x.at] == '+') ? x.r->src[x.at++] : 0;
    *end = x.at + 2;
    return at_text(&x, "%}");
}

/* {% raw %}: the text up to {% endraw %}. */
static bool lex_raw(wf_jlexer *l, wf_jtoken *t)
{
    size_t end;
    char sign, end_sign;
    if (!word_block(l, l->at, "raw", &end, &sign)) return false;
    size_t begin = l->at = end, at = begin;
    if (sign == '-') skip_space(l), begin = l->at;
    for (at = begin; at < l->r->len; at++)
        if (l->r->src[at] == '{' && at + 1 < l->r->len && l->r->src[at + 1] == '%' &&
            word_block(l, at, "endraw", &end, &end_sign))
            break;
    if (at >= l->r->len) syntax(l, t->at, "{% raw %} has no {% endraw %}");
    l->line_starts = false;
    t->text = strip_end(l, source(l, begin, at), at);
    l->at = end;
    end_tag(l, end_sign);
    return true;
}

static wf_jtoken lex_text(wf_jlexer *l)
{
    size_t tag = next_tag(l);
    wf_jtoken t = {WF_JT_TEXT, l->at, strip_end(l, source(l, l->at, tag), tag), 0, 0};
    l->at = tag;
    if (t.text.len) {
        l->line_starts = tag && l->r->src[tag - 1] == '\n';
        return t;
    }
    t.at = tag;
    if (tag == l->r->len) return t.kind = WF_JT_END, t;
    char kind = l->r->src[tag + 1];
    if (kind == '#') return skip_comment(l), t;
    if (kind == '%' && lex_raw(l, &t)) return t;
    l->at += 2;
    if (at_text(l, "-") || (kind == '%' && at_text(l, "+"))) l->at++;
    t.kind = kind == '{' ? WF_JT_PRINT : WF_JT_BLOCK;
    l->state = kind == '{' ? WF_JIN_PRINT : WF_JIN_BLOCK;
    l->brackets = 0;
    return t;
}

/* ---- tags -------------------------------------------------------------------------------------------------- */

static bool close_tag(wf_jlexer *l)
{
    const char *end = l->state == WF_JIN_PRINT ? "}}" : "%}";
    size_t at = l->at;
    char sign = at_text(l, "-") || (at_text(l, "+") && l->state == WF_JIN_BLOCK) ? l->r->src[l->at++] : 0;
    if (l->brackets || !at_text(l, end)) return l->at = at, false;
    l->at += 2;
    if (l->state == WF_JIN_BLOCK) {
        end_tag(l, sign);
    } else {
        if (sign == '-') skip_space(l);
        l->line_starts = l->r->src[l->at - 1] == '\n';
    }
    l->state = WF_JIN_TEXT;
    return true;
}

static bool in_name(char c)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (uint8_t)c >= 0x80;
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : 99;
}

/* Digits with underscores between them; copied to text without. */
static size_t digits(wf_jlexer *l, int base, char *text, size_t n, size_t cap)
{
    const char *s = l->r->src;
    while (l->at < l->r->len &&
           (digit_of(s[l->at]) < base || (s[l->at] == '_' && l->at + 1 < l->r->len && digit_of(s[l->at + 1]) < base))) {
        if (s[l->at] != '_' && n < cap - 1) text[n++] = s[l->at];
        l->at++;
    }
    return text[n] = 0, n;
}

static bool digit_behind(const wf_jlexer *l, size_t n)
{
    return l->at + n < l->r->len && digit_of(l->r->src[l->at + n]) < 10;
}

static void lex_number(wf_jlexer *l, wf_jtoken *t)
{
    char text[128];
    static const struct {
        const char *p;
        int base;
    } prefixes[] = {{"0x", 16}, {"0X", 16}, {"0o", 8}, {"0O", 8}, {"0b", 2}, {"0B", 2}};
    int base = 10;
    for (size_t i = 0; i < WF_LEN(prefixes); i++)
        if (at_text(l, prefixes[i].p)) base = prefixes[i].base;
    if (base != 10) l->at += 2;
    size_t n = digits(l, base, text, 0, sizeof text - 16);
    t->kind = WF_JT_INT;
    if (base == 10 && at_text(l, ".") && digit_behind(l, 1)) {
        t->kind = WF_JT_FLOAT;
        text[n++] = l->r->src[l->at++];
        n = digits(l, 10, text, n, sizeof text - 12);
    }
    bool exponent = base == 10 && (at_text(l, "e") || at_text(l, "E"));
    bool sign = exponent && l->at + 1 < l->r->len && strchr("+-", l->r->src[l->at + 1]) && l->r->src[l->at + 1];
    if (exponent && digit_behind(l, 1 + sign)) {
        t->kind = WF_JT_FLOAT;
        for (int i = 0; i <= sign; i++) text[n++] = l->r->src[l->at++];
        n = digits(l, 10, text, n, sizeof text);
    }
    errno = 0;
    if (t->kind == WF_JT_FLOAT) t->f = strtod(text, NULL);
    else t->i = strtoll(text, NULL, base);
    if ((t->kind == WF_JT_INT && errno) || !n || n >= sizeof text - 17) syntax(l, t->at, "the number is too long");
}

/* ---- string literals ------------------------------------------------------------------------------------------ */

static uint32_t code(wf_jlexer *l, int base, int most, bool exact)
{
    uint32_t c = 0;
    int n = 0;
    for (; n < most && l->at < l->r->len && digit_of(l->r->src[l->at]) < base; n++)
        c = c * (uint32_t)base + (uint32_t)digit_of(l->r->src[l->at++]);
    if (exact && n < most) syntax(l, l->at, "a truncated escape in a string");
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) syntax(l, l->at, "an escape in a string is no character");
    return c;
}

static void lex_string(wf_jlexer *l, wf_jtoken *t)
{
    char quote = l->r->src[l->at++];
    wf_jbuf b = {.r = l->r};
    t->kind = WF_JT_STRING;
    for (;;) {
        size_t from = l->at;
        while (l->at < l->r->len && l->r->src[l->at] != quote && l->r->src[l->at] != '\\') l->at++;
        wf_jbuf_add(&b, l->r->src + from, l->at - from, false);
        if (l->at + 1 > l->r->len || (l->r->src[l->at] == '\\' && l->at + 2 > l->r->len))
            syntax(l, t->at, "a string has no end");
        if (l->r->src[l->at++] == quote) break;
        /* Behind a backslash. What Python does not know stays with its backslash. */
        static const char names[] = "\\'\"abfnrtv", meant[] = "\\'\"\a\b\f\n\r\t\v";
        char c = l->r->src[l->at++], text[4];
        const char *at = c ? strchr(names, c) : NULL;
        if (c != '\n') {
            if (at) wf_jbuf_add(&b, &meant[at - names], 1, false);
            else if (c == 'x' || c == 'u' || c == 'U')
                wf_jbuf_add(&b, text, wf_jchar_put(code(l, 16, c == 'x' ? 2 : c == 'u' ? 4 : 8, true), text), false);
            else if (c >= '0' && c <= '7')
                l->at--, wf_jbuf_add(&b, text, wf_jchar_put(code(l, 8, 3, false), text), false);
            else wf_jbuf_add(&b, (char[]){'\\', c}, 2, false);
        }
    }
    t->text = wf_jbuf_take(&b);
}

/* ---- operators -------------------------------------------------------------------------------------------------- */

static void lex_operator(wf_jlexer *l, wf_jtoken *t)
{
    static const char *const known[] = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<",
                                        ">",  "=",  "(",  ")",  "[",  "]",  "{", "}", ",", ".", ":", "|", ";"};
    size_t i = 0;
    while (i < WF_LEN(known) && !at_text(l, known[i])) i++;
    if (i == WF_LEN(known)) syntax(l, t->at, "an unexpected character");
    l->at += strlen(known[i]);
    if (strchr("([{", *known[i])) l->brackets++;
    if (strchr(")]}", *known[i])) {
        if (!l->brackets) syntax(l, t->at, "a bracket closes what is not open");
        l->brackets--;
    }
    t->kind = WF_JT_OP;
    t->text = source(l, t->at, l->at);
}

wf_jtoken wf_jlex(wf_jlexer *l)
{
    wf_jstep(l->r, 0);
    if (l->state == WF_JIN_TEXT) return lex_text(l);
    skip_space(l);
    wf_jtoken t = {.kind = WF_JT_CLOSE, .at = l->at, .text = wf_jstr_of("")};
    if (l->at == l->r->len)
        syntax(l, l->at,
               l->state == WF_JIN_PRINT ? "the template ends inside of {{ }}" : "the template ends inside of {% %}");
    if (close_tag(l)) return t;
    char c = l->r->src[l->at];
    if (c == '"' || c == '\'') return lex_string(l, &t), t;
    if (c >= '0' && c <= '9') return lex_number(l, &t), t;
    if (!in_name(c)) return lex_operator(l, &t), t;
    while (l->at < l->r->len && in_name(l->r->src[l->at])) l->at++;
    t.kind = WF_JT_NAME;
    t.text = source(l, t.at, l->at);
    return t;
}
