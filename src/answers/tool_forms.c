/* tool_forms: calls in Python's syntax, and in Gemma's, whose strings stand between markers and whose keys are bare;
 * and calls whose arguments stand in elements: MiniMax's, which are nested and have a marker before each tag, and
 * Kimi's, which have a type each, or one element for all arguments as JSON. Models write strings as their templates do,
 * some without escapes: a quote ends one only where the value may end. */
#include "answers/tool_forms.h"
#include "answers/tool_tags.h"
#include "answers/tool_types.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define MAX_DEPTH 64
#define QUOTE     "<|\"|>"
#define MARK      "]<]minimax[>["

typedef struct reader {
    wf_slice in;
    size_t at;
    unsigned depth;
    bool gemma;
    const char *strings; /* as tool_types.h has them; of elements */
    wf_text *out;
} reader;

static void put(reader *r, const char *text) { wf_text_add(r->out, text, strlen(text)); }

/* Up to the marker, behind which r->at moves; p is NULL: it is missing, and r->at is at the end. */
static wf_slice up_to(reader *r, const char *marker)
{
    size_t from = r->at;
    while (r->at < r->in.n && wf_look(r->in, r->at, marker) != WF_YES) r->at++;
    if (r->at == r->in.n) return (wf_slice){0};
    wf_slice s = {r->in.p + from, r->at - from};
    r->at += strlen(marker);
    return s;
}

static void put_name(reader *r, wf_slice name)
{
    wf_json_print(r->out, "{'name': %.*s, 'arguments': ", (int)name.n, name.p);
}

static bool value(reader *r);

/* The next byte that is not blank; 0: there is none. */
static char peek(reader *r)
{
    r->at = wf_skip_blanks(r->in, r->at);
    return r->at < r->in.n ? r->in.p[r->at] : 0;
}

static bool pass(reader *r, char c)
{
    bool there = peek(r) == c && c;
    r->at += there;
    return there;
}

/* ---- strings --------------------------------------------------------------------------------------------- */

/* Between its markers. */
static bool marked_string(reader *r)
{
    r->at += strlen(QUOTE);
    wf_slice s = up_to(r, QUOTE);
    if (s.p) wf_json_put_string(r->out, s.p, s.n);
    return s.p;
}

/* Does a string end with these quotes there? PARTLY: another string follows, and which quotes are part of the text
 * cannot be known. */
static enum wf_found ends_string(const reader *r, size_t at, const char *quotes)
{
    if (r->in.p[at] != *quotes || wf_look(r->in, at, quotes) != WF_YES) return WF_NO;
    size_t next = wf_skip_blanks(r->in, at + strlen(quotes));
    char c = next < r->in.n ? r->in.p[next] : ',';
    return !c ? WF_NO : strchr(",)]}:", c) ? WF_YES : c == '\'' || c == '"' ? WF_PARTLY : WF_NO;
}

/* The number of that many hexadecimal digits, behind the letter at `at`. */
static bool read_code(wf_slice in, size_t at, size_t digits, unsigned long *code)
{
    char hex[9] = {0};
    if (in.n - at <= digits) return false;
    memcpy(hex, in.p + at + 1, digits);
    *code = strtoul(hex, NULL, 16);
    return strspn(hex, "0123456789abcdefABCDEF") == digits;
}

/* Makes one code of two surrogates, the second of which is behind the first; else of a surrogate U+FFFD. Returns the
 * bytes of the second. */
static size_t join_surrogates(wf_slice in, size_t at, unsigned long *code)
{
    unsigned long low;
    if (*code >> 11 != 0xD800 >> 11) return 0;
    bool pair = *code < 0xDC00 && wf_look(in, at, "\\u") == WF_YES && read_code(in, at + 1, 4, &low) &&
                low >> 10 == 0xDC00 >> 10;
    *code = pair ? 0x10000 + ((*code & 0x3FF) << 10) + (low & 0x3FF) : 0xFFFD;
    return pair ? 6 : 0;
}

/* The character of that number. Returns the bytes behind the letter, or 0. */
static size_t add_code(wf_slice in, size_t at, size_t digits, wf_text *s)
{
    unsigned char utf8[4];
    unsigned long code;
    if (!read_code(in, at, digits, &code)) return 0;
    size_t n = digits + join_surrogates(in, at + 1 + digits, &code);
    wf_text_add(s, (const char *)utf8, (size_t)utf8proc_encode_char((utf8proc_int32_t)WF_MIN(code, 0x10FFFFul), utf8));
    return n;
}

/* Behind a backslash. Returns its bytes. */
static size_t escape(wf_slice in, size_t at, wf_text *s)
{
    static const char from[] = "\\'\"abfnrtv/", to[] = "\\'\"\a\b\f\n\r\t\v/";
    char c = at < in.n ? in.p[at] : 0;
    const char *known = c ? strchr(from, c) : NULL;
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0, n = digits ? add_code(in, at, digits, s) : 0;
    if (n) return 1 + n;
    if (c == '\n') return 1;
    wf_text_add(s, known ? &to[known - from] : "\\", 1);
    return known ? 1 : 0;
}

/* Between single quotes, or three and three. */
static bool python_string(reader *r)
{
    wf_text s = {0};
    size_t from = r->at;
    const char q = r->in.p[from], one[] = {q, 0}, three[] = {q, q, q, 0},
               *quotes = wf_look(r->in, from, three) == WF_YES ? three : one;
    r->at += strlen(quotes);
    /* What stands up to the quotes that end a string. */
    enum wf_found f = WF_NO;
    while (r->at < r->in.n && (f = ends_string(r, r->at, quotes)) == WF_NO) {
        if (r->in.p[r->at] == '\\') r->at += 1 + escape(r->in, r->at + 1, &s);
        else wf_text_add(&s, r->in.p + r->at++, 1);
    }
    r->at += f == WF_YES ? strlen(quotes) : 0;
    bool good = f == WF_YES;
    if (good && wf_json_whole(r->in.p + from, r->at - from)) wf_text_add(r->out, r->in.p + from, r->at - from);
    else if (good) wf_json_put_string(r->out, s.data ? s.data : "", s.len);
    r->out->failed |= s.failed;
    free(s.data);
    return good;
}

/* As JSON has it, in a Gemma call. */
static bool quoted_string(reader *r)
{
    size_t from = r->at, at = from + 1;
    while (at < r->in.n && r->in.p[at] != '"') at += r->in.p[at] == '\\' ? 2 : 1;
    bool whole = at < r->in.n;
    r->at = whole ? at + 1 : r->in.n;
    if (!whole || !wf_json_whole(r->in.p + from, r->at - from)) return false;
    wf_text_add(r->out, r->in.p + from, r->at - from);
    return true;
}

/* ---- values ---------------------------------------------------------------------------------------------- */

static bool is_string(reader *r)
{
    char c = peek(r);
    return c == '"' || (r->gemma ? wf_look(r->in, r->at, QUOTE) == WF_YES && c : c == '\'');
}

static bool string(reader *r)
{
    if (!r->gemma) return python_string(r);
    return r->in.p[r->at] == '"' ? quoted_string(r) : marked_string(r);
}

/* Without the blanks around it. Quotes are no part of one: a key in quotes of another language would be another
 * parameter. */
static bool bare_key(reader *r)
{
    size_t from = r->at;
    while (r->at < r->in.n && !strchr(":,{}[]'\"`", r->in.p[r->at])) r->at++;
    wf_slice key = wf_trim((wf_slice){r->in.p + from, r->at - from});
    wf_json_put_string(r->out, key.p, key.n);
    return key.n && r->at < r->in.n && r->in.p[r->at] == ':';
}

/* Up to the bracket that closes what one begins to read; a comma may stand before it. */
static bool series(reader *r, char close, bool (*one)(reader *))
{
    for (bool any = false; !pass(r, close); any = true) {
        if (any && !pass(r, ',')) return false;
        if (any && pass(r, close)) break;
        if (any) put(r, ", ");
        if (!one(r)) return false;
    }
    return true;
}

static bool member(reader *r)
{
    if (!(is_string(r) ? string(r) : r->gemma && bare_key(r)) || !pass(r, ':')) return false;
    put(r, ": ");
    return value(r);
}

/* A number, or a word of Python's or of JSON's. */
static bool word(reader *r)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    size_t from = r->at;
    while (r->at < r->in.n && !wf_is_blank(r->in.p[r->at]) && !strchr(",)]}", r->in.p[r->at])) r->at++;
    size_t n = r->at - from;
    for (size_t i = 0; i < WF_LEN(words); i++)
        if (wf_slice_is((wf_slice){r->in.p + from, n}, words[i][0])) return put(r, words[i][1]), true;
    if (!wf_json_whole(r->in.p + from, n)) return false;
    wf_text_add(r->out, r->in.p + from, n);
    return true;
}

static bool value(reader *r)
{
    char c = peek(r);
    if (is_string(r)) return string(r);
    if (c != '{' && c != '[' && c != '(') return c && word(r);
    if (++r->depth > MAX_DEPTH || (r->gemma && c == '(')) return false;
    r->at++;
    put(r, c == '{' ? "{" : "[");
    if (!(c == '{' ? series(r, '}', member) : series(r, c == '[' ? ']' : ')', value))) return false;
    put(r, c == '{' ? "}" : "]");
    r->depth--;
    return true;
}

bool wf_python_json(wf_slice literal, wf_text *out)
{
    reader r = {.in = literal, .out = out};
    size_t len = out->len;
    if (value(&r) && !peek(&r) && r.at == r.in.n) return true;
    out->len = len;
    return false;
}

/* ---- calls ----------------------------------------------------------------------------------------------- */

static bool bare_name(reader *r)
{
    size_t from = (peek(r), r->at);
    while (r->at < r->in.n && wf_tool_name_good(r->in.p + from, r->at + 1 - from)) r->at++;
    put_name(r, (wf_slice){r->in.p + from, r->at - from});
    return r->at > from;
}

static bool python_argument(reader *r)
{
    size_t from = (peek(r), r->at);
    while (r->at < r->in.n && !wf_is_blank(r->in.p[r->at]) && !strchr("=,()[]{}'\"", r->in.p[r->at])) r->at++;
    wf_json_print(r->out, "%.*s: ", (int)(r->at - from), r->in.p + from);
    return r->at > from && pass(r, '=') && value(r);
}

/* f(a=1, b='x') */
static bool python_call(reader *r)
{
    if (!bare_name(r) || !pass(r, '(')) return false;
    put(r, "{");
    if (!series(r, ')', python_argument)) return false;
    put(r, "}}");
    return true;
}

enum wf_found wf_form_python(wf_slice call, const wf_text *types, wf_text *json)
{
    reader r = {.in = call, .at = wf_skip_blanks(call, 0), .out = json};
    wf_slice text = {call.p + r.at, call.n - r.at};
    (void)types;
    if (wf_json_whole(text.p, text.n))
        return wf_text_add(json, text.p, text.n), WF_YES; /* these models may be told to write JSON */
    put(&r, "[");
    bool good = pass(&r, '[') && series(&r, ']', python_call);
    put(&r, "]");
    return wf_form_found(call, r.at, good);
}

enum wf_found wf_form_gemma(wf_slice call, const wf_text *types, wf_text *json)
{
    reader r = {.in = call, .gemma = true, .out = json};
    (void)types;
    bool good = bare_name(&r) && peek(&r) == '{' && value(&r);
    put(&r, "}");
    return wf_form_found(call, r.at, good);
}

/* ---- elements -------------------------------------------------------------------------------------------- */

static bool pass_marker(reader *r, const char *marker) { return wf_pass(r->in, &r->at, marker) == WF_YES; }

static bool marked_name(reader *r, const wf_text *types, const char *behind)
{
    wf_slice s = up_to(r, behind);
    if (!s.p || !wf_tool_name_good(s.p, s.n)) return false;
    r->strings = wf_tool_strings(types, s);
    put_name(r, s);
    return true;
}

/* ---- MiniMax --------------------------------------------------------------------------------------------- */

typedef struct path { /* names from the parameter on; too long ones have none */
    char text[WF_TOOL_PATH_MAX + 1];
    size_t n;
} path;

static path within(const path *p, wf_slice tag)
{
    path inner = *p;
    size_t mark = p->n ? strlen(WF_TOOL_WITHIN) : 0;
    if (p->n + mark + tag.n >= sizeof inner.text) return inner.n = 0, inner;
    memcpy(inner.text + p->n, WF_TOOL_WITHIN, mark);
    memcpy(inner.text + p->n + mark, tag.p, tag.n);
    inner.n += mark + tag.n;
    return inner;
}

static bool elements(reader *r, const path *p, bool top);

/* Does an element begin there? */
static bool at_tag(const reader *r)
{
    size_t at = r->at;
    return wf_pass(r->in, &at, MARK "<") == WF_YES && at < r->in.n && r->in.p[at] != '/';
}

/* What stands between two tags. */
static bool content(reader *r, const path *p)
{
    if (at_tag(r)) return elements(r, p, false);
    size_t from = r->at;
    while (r->at < r->in.n && wf_look(r->in, r->at, MARK) != WF_YES) r->at++;
    wf_tag_value((wf_slice){r->in.p + from, r->at - from}, wf_tool_string_in(r->strings, (wf_slice){p->text, p->n}),
                 r->out);
    return r->at < r->in.n;
}

/* As an object; as a list if the first one is an item. */
static bool elements(reader *r, const path *p, bool top)
{
    bool any = false, list = false;
    unsigned n = 0;
    if (++r->depth > MAX_DEPTH) return false;
    for (; at_tag(r); any = true) {
        pass_marker(r, MARK "<");
        wf_slice tag = up_to(r, ">");
        bool item = !top && wf_slice_is(tag, "item");
        if (!tag.n || tag.n > WF_TOOL_PATH_MAX || (list && !item) || (top && ++n > WF_MAX_PARAMETERS)) return false;
        if (!any) list = item;
        put(r, any ? ", " : list ? "[" : "{");
        path inner = within(p, tag);
        if (!list) wf_json_print(r->out, "%.*s: ", (int)tag.n, tag.p);
        if (!content(r, &inner) || !pass_marker(r, MARK "</")) return false;
        wf_slice end = up_to(r, ">");
        if (!end.p || end.n != tag.n || memcmp(end.p, tag.p, tag.n)) return false;
    }
    put(r, !any ? "{}" : list ? "]" : "}");
    r->depth--;
    return true;
}

enum wf_found wf_form_minimax(wf_slice call, const wf_text *types, wf_text *json)
{
    reader r = {.in = call, .out = json};
    const path none = {.n = 0};
    bool good = marked_name(&r, types, "\">") && elements(&r, &none, true);
    put(&r, "}");
    return wf_form_found(call, r.at, good);
}

/* ---- Kimi ------------------------------------------------------------------------------------------------ */

/* Of an attribute: with its escapes undone. */
static void put_key(reader *r, wf_slice s)
{
    static const char *const escapes[][2] = {{"&quot;", "\""}, {"&amp;", "&"}};
    wf_text key = {0};
    for (size_t at = 0; at < s.n;) {
        size_t k = 0;
        while (k < WF_LEN(escapes) && wf_look(s, at, escapes[k][0]) != WF_YES) k++;
        wf_text_add(&key, k < WF_LEN(escapes) ? escapes[k][1] : s.p + at, 1);
        at += k < WF_LEN(escapes) ? strlen(escapes[k][0]) : 1;
    }
    wf_json_put_string(r->out, key.data ? key.data : "", key.len);
    r->out->failed |= key.failed;
    free(key.data);
}

/* Behind what opens it: K" type="T"<|sep|>V<|close|>argument<|sep|> */
static bool argument(reader *r)
{
    wf_slice key = up_to(r, "\" type=\""), type = up_to(r, "\"<|sep|>"), text = up_to(r, "<|close|>argument<|sep|>");
    if (!text.p || !key.n) return false;
    put_key(r, key);
    put(r, ": ");
    wf_tag_value(text, wf_slice_is(type, "string"), r->out);
    return true;
}

static bool arguments(reader *r)
{
    put(r, "{");
    for (unsigned n = 0; pass_marker(r, "<|open|>argument key=\""); n++) {
        if (n) put(r, ", ");
        if (n == WF_MAX_PARAMETERS || !argument(r)) return false;
    }
    put(r, "}");
    return true;
}

static bool json_arguments(reader *r)
{
    wf_slice json = up_to(r, "<|close|>json<|sep|>");
    if (!json.p || !wf_json_whole(json.p, json.n)) return false;
    wf_text_add(r->out, json.p, json.n);
    return true;
}

enum wf_found wf_form_kimi(wf_slice call, const wf_text *types, wf_text *json)
{
    reader r = {.in = call, .out = json};
    bool good = marked_name(&r, types, "\"") && up_to(&r, "<|sep|>").p;
    if (good) good = pass_marker(&r, "<|open|>json type=\"object\"<|sep|>") ? json_arguments(&r) : arguments(&r);
    put(&r, "}");
    return wf_form_found(call, r.at, good);
}
