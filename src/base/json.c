/* json: reads JSON. One loop knows the grammar: it keeps what is open in a list of its own, so that nesting costs no
 * stack, and either builds a tree or only finds the end of a value. The values of what is open lie on one stack; when
 * its bracket closes they move together into the memory of the tree. Decoded strings are never longer than the text, so
 * they share one buffer that is taken at the start. */
#include "base/json.h"
#include "base/file.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INDEXED   8 /* members; more of them get a hash table, which lies behind them */
#define MAX_BLOCK (1u << 20)
#define END_DEPTH 64 /* of wf_json_end */

typedef struct block {
    struct block *next;
    size_t used, size;
    _Alignas(16) char data[];
} block;

typedef struct tree { /* the root comes first: it stands for the whole */
    wf_json root;
    char *strings;
    block *blocks;
} tree;

typedef struct reader {
    const char *begin, *p, *end;
    wf_json_rules rules;
    wf_json_error *e;
    struct {
        uint32_t first; /* on the stack */
        bool object;
    } open[WF_JSON_MAX_DEPTH];
    unsigned depth;
    tree *tree;     /* NULL: no tree is built */
    char *string;   /* where the next one goes */
    wf_json *stack; /* values, and the names of members before them */
    size_t n, cap, n_values;
} reader;

/* ---- errors ---------------------------------------------------------------------------------------- */

static bool fail_at(reader *r, int fault, const char *p, const char *fmt, ...) WF_PRINTF(4, 5);
static bool fail_at(reader *r, int fault, const char *p, const char *fmt, ...)
{
    if (!r->e) return false;
    *r->e = (wf_json_error){.fault = fault, .line = 1, .column = 1};
    for (const char *at = r->begin; at < p; at++, r->e->column++)
        if (*at == '\n') r->e->line++, r->e->column = 0;
    va_list ap;
    va_start(ap, fmt);
    wf_format(r->e->text, sizeof r->e->text, fmt, ap);
    va_end(ap);
    size_t behind =
        r->depth > 1 ? r->open[1].first : r->n; /* the name of the outermost member that is open, if there is one */
    if (r->tree && r->depth && r->open[0].object && behind > r->open[0].first && (behind - r->open[0].first) % 2)
        wf_copy(r->e->name, sizeof r->e->name, r->stack[behind - 1].text);
    return false;
}

static bool expected(reader *r, const char *what) { return fail_at(r, WF_JSON_SYNTAX, r->p, "expected %s", what); }

static bool no_memory(reader *r) { return fail_at(r, WF_JSON_NO_MEMORY, r->p, "out of memory"); }

/* ---- strings --------------------------------------------------------------------------------------- */

static int hex4(const char *p)
{
    int c = 0;
    for (int i = 0; i < 4; i++) {
        int digit = p[i] >= '0' && p[i] <= '9'                 ? p[i] - '0'
                    : (p[i] | 32) >= 'a' && (p[i] | 32) <= 'f' ? (p[i] | 32) - 'a' + 10
                                                               : -1;
        if (digit < 0) return -1;
        c = c << 4 | digit;
    }
    return c;
}

/* Behind the backslash at r->p. */
static bool pass_escape(reader *r)
{
    char c = r->end - r->p > 1 ? r->p[1] : 0;
    if (!c || !strchr("\"\\/bfnrtu", c)) return r->p++, expected(r, "an escape");
    r->p += 2;
    if (c != 'u') return true;
    int code = r->end - r->p >= 4 ? hex4(r->p) : -1;
    if (code < 0) return expected(r, "four hexadecimal digits");
    if (!code && !(r->rules.flags & WF_JSON_LOOSE))
        return fail_at(r, WF_JSON_ZERO, r->p, "\\u0000 is not allowed in strings");
    r->p += 4;
    return true;
}

/* Behind the quote at r->p up to the other one, behind which it goes on. *escapes: there are some. */
static bool pass_string(reader *r, wf_slice *inner, bool *escapes)
{
    inner->p = ++r->p;
    *escapes = false;
    for (size_t n;;) {
        const char *p = r->p;
        /* eight bytes at once: has one a sign below 0x20, a quote, a backslash, or a high bit? */
        while (r->end - p >= 8) {
            const uint64_t ones = 0x0101010101010101u, high = ones << 7;
            uint64_t w;
            memcpy(&w, p, 8);
            uint64_t quote = w ^ (ones * '"'), slash = w ^ (ones * '\\');
            if ((w | (w - ones * 0x20) | (quote - ones) | (slash - ones)) & high) break;
            p += 8;
        }
        while (p < r->end && (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x80 && *p != '"' && *p != '\\') p++;
        r->p = p;
        if (r->p == r->end) return expected(r, "\"");
        if (*r->p == '"') break;
        if (*r->p == '\\') {
            *escapes = true;
            if (!pass_escape(r)) return false;
        } else if ((unsigned char)*r->p < 0x20)
            return fail_at(r, WF_JSON_SYNTAX, r->p, "expected \"; control characters in strings need an escape");
        else if (!(n = wf_utf8_len(r->p, (size_t)(r->end - r->p))))
            return fail_at(r, WF_JSON_SYNTAX, r->p, "expected UTF-8");
        else r->p += n;
    }
    inner->n = (size_t)(r->p++ - inner->p);
    return true;
}

static size_t put_utf8(char *out, unsigned c)
{
    if (c < 0x80) return out[0] = (char)c, 1;
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0) | c);
    return n;
}

/* The escape behind a backslash, of a string that has been passed; false: half a pair of surrogates. */
static bool decode_escape(reader *r, const char **p, const char *end, char **out)
{
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (**p != 'u') {
        *(*out)++ = meant[strchr(names, *(*p)++) - names];
        return true;
    }
    unsigned c = (unsigned)hex4(*p + 1);
    *p += 5;
    if (c >= 0xD800 && c < 0xE000) {
        int low = c < 0xDC00 && end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u' ? hex4(*p + 2) : 0;
        bool pair = low >= 0xDC00 && low < 0xE000;
        if (!pair && !(r->rules.flags & WF_JSON_LOOSE))
            return fail_at(r, WF_JSON_SYNTAX, *p - 6, "half a pair of surrogates is no character");
        c = pair ? 0x10000 + ((c - 0xD800) << 10) + ((unsigned)low - 0xDC00) : 0xFFFD;
        *p += pair ? 6 : 0;
    }
    *out += put_utf8(*out, c);
    return true;
}

static bool push(reader *r, wf_json v)
{
    if (++r->n_values > r->rules.values)
        return fail_at(r, WF_JSON_TOO_MANY, r->p, "more than %zu names and values", r->rules.values);
    if (!r->tree) return true;
    if (r->n == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 64;
        wf_json *grown = realloc(r->stack, cap * sizeof *grown);
        if (!grown) return no_memory(r);
        r->stack = grown, r->cap = cap;
    }
    r->stack[r->n++] = v;
    return true;
}

static bool read_string(reader *r)
{
    wf_slice s = {0};
    bool escapes;
    if (!pass_string(r, &s, &escapes)) return false;
    if (!r->tree) return push(r, (wf_json){0});
    char *out = r->string;
    const char *p = s.p, *end = s.p + s.n;
    for (const char *slash; escapes && (slash = memchr(p, '\\', (size_t)(end - p)));) {
        memcpy(out, p, (size_t)(slash - p));
        out += slash - p, p = slash + 1;
        if (!decode_escape(r, &p, end, &out)) return false;
    }
    memcpy(out, p, (size_t)(end - p));
    out += end - p;
    *out = 0;
    wf_json v = {.kind = WF_JSON_STRING, .n = (uint32_t)(out - r->string), .text = r->string};
    r->string = out + 1;
    return push(r, v);
}

/* ---- numbers and words ----------------------------------------------------------------------------- */

/* A number that has been passed. Up to 19 digits, a few of them behind the point, are exact by one operation on
 * doubles; strtod does the rest. */
static bool real_of(reader *r, wf_slice s, uint64_t digits, bool exact, int scale, double *out)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (exact && digits <= 1ull << DBL_MANT_DIG && abs(scale) < (int)WF_LEN(powers)) {
        double x = scale < 0 ? (double)digits / powers[-scale] : (double)digits * powers[scale];
        *out = *s.p == '-' ? -x : x;
        return true;
    }
    char *copy = r->string, *point; /* there is room for it: it is shorter than the text from here on */
    memcpy(copy, s.p, s.n);
    copy[s.n] = 0;
    if ((point = strchr(copy, '.'))) *point = *localeconv()->decimal_point;
    *out = strtod(copy, NULL);
    return isfinite(*out) || (r->rules.flags & WF_JSON_LOOSE) ||
           fail_at(r, WF_JSON_TOO_LARGE, s.p, "the number is too large");
}

static bool pass_digits(reader *r, uint64_t *digits, bool *exact, size_t *n)
{
    const char *from = r->p;
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++) {
        unsigned d = (unsigned)(*r->p - '0');
        *exact &= *digits < UINT64_MAX / 10 || (*digits == UINT64_MAX / 10 && d <= UINT64_MAX % 10);
        *digits = *digits * 10 + d;
    }
    *n = (size_t)(r->p - from);
    return *n > 0;
}

static bool read_number(reader *r)
{
    const char *from = r->p, *first = from + (*from == '-');
    uint64_t digits = 0, exponent = 0;
    bool exact = true, exact_exponent = true, real = false, negative = false;
    size_t n, n_behind = 0;
    r->p = first;
    if (!pass_digits(r, &digits, &exact, &n) || (*first == '0' && n > 1)) return r->p = from, expected(r, "a value");
    if (r->p < r->end && *r->p == '.') {
        real = true, r->p++;
        if (!pass_digits(r, &digits, &exact, &n_behind)) return expected(r, "digits");
    }
    if (r->p < r->end && (*r->p | 32) == 'e') {
        real = true, r->p++;
        negative = r->p < r->end && *r->p == '-';
        if (negative || (r->p < r->end && *r->p == '+')) r->p++;
        if (!pass_digits(r, &exponent, &exact_exponent, &n)) return expected(r, "digits");
    }
    if (!r->tree) return push(r, (wf_json){0});
    wf_json v = {.kind = WF_JSON_REAL};
    bool minus = first > from;
    if (!real && exact && digits <= (uint64_t)INT64_MAX + minus)
        v.kind = WF_JSON_INT, v.i = (int64_t)(minus ? 0 - digits : digits);
    else if (!real && exact && !minus) v.kind = WF_JSON_UINT, v.u = digits;
    else {
        exact &= exact_exponent && exponent < 1000 && n_behind < 1000;
        int scale = exact ? (negative ? -(int)exponent : (int)exponent) - (int)n_behind : 0;
        if (!real_of(r, (wf_slice){from, (size_t)(r->p - from)}, digits, exact, scale, &v.real)) return false;
    }
    if (v.kind == WF_JSON_REAL && !real) { /* there is room for it, since what ends it is read, too */
        v = (wf_json){.kind = WF_JSON_BIG, .n = (uint32_t)(r->p - from), .text = r->string};
        memcpy(r->string, from, v.n);
        r->string[v.n] = 0;
        r->string += v.n + 1;
    }
    return push(r, v);
}

static bool read_scalar(reader *r, char c)
{
    static const struct {
        const char *text;
        size_t n;
        wf_json v;
    } words[] = {{"true", 4, {.kind = WF_JSON_BOOL, .b = true}},
                 {"false", 5, {.kind = WF_JSON_BOOL}},
                 {"null", 4, {.kind = WF_JSON_NULL}}};
    if (c == '"') return read_string(r);
    if (c == '-' || (c >= '0' && c <= '9')) return read_number(r);
    for (size_t i = 0; i < WF_LEN(words); i++)
        if ((size_t)(r->end - r->p) >= words[i].n && !memcmp(r->p, words[i].text, words[i].n))
            return r->p += words[i].n, push(r, words[i].v);
    return expected(r, "a value");
}

/* ---- lists and objects ----------------------------------------------------------------------------- */

static void *tree_alloc(tree *t, size_t size)
{
    block *b = t->blocks;
    size = WF_UP(size, 16);
    if (!b || b->size - b->used < size) {
        size_t room = WF_MAX(size, b ? WF_MIN(2 * b->size, (size_t)MAX_BLOCK) : 512);
        if (!(b = malloc(sizeof *b + room))) return NULL;
        *b = (block){.next = t->blocks, .size = room};
        t->blocks = b;
    }
    b->used += size;
    return b->data + b->used - size;
}

static size_t table_size(size_t n)
{
    size_t size = 2 * INDEXED;
    while (size < 2 * n) size *= 2;
    return size;
}

static bool same_name(const wf_json *a, const char *name, size_t len)
{
    return a->n == len && !memcmp(a->text, name, len);
}

/* The slot of a name: it is 0, or the number of the member from 1 on. */
static uint32_t *slot_of(uint32_t *table, size_t size, const wf_json_member *m, const char *name, size_t len)
{
    size_t at = wf_hash(name, len) & (size - 1);
    while (table[at] && !same_name(&m[table[at] - 1].name, name, len)) at = (at + 1) & (size - 1);
    return &table[at];
}

static bool close_object(reader *r, wf_json *v, const wf_json *from, size_t n)
{
    const wf_json *twice = NULL;
    size_t bytes = n * sizeof(wf_json_member), slots = n > INDEXED ? table_size(n) * sizeof(uint32_t) : 0;
    wf_json_member *m = tree_alloc(r->tree, bytes + slots);
    if (!m) return no_memory(r);
    if (n) memcpy(m, from, bytes);
    for (;;) {
        uint32_t *table = n > INDEXED ? (uint32_t *)(m + n) : NULL;
        if (table) memset(table, 0, table_size(n) * sizeof *table);
        /* Members without those that come again, whose last value counts; and their table, if they have one. */
        size_t kept = 0, size = table_size(n);
        for (size_t i = 0; i < n; i++) {
            const wf_json *name = &m[i].name;
            uint32_t *slot = table ? slot_of(table, size, m, name->text, name->n) : NULL;
            size_t k = slot ? *slot - 1u : 0;
            while (!slot && k < kept && !same_name(&m[k].name, name->text, name->n)) k++;
            if (slot ? !*slot : k == kept) {
                m[kept++] = m[i];
                if (slot) *slot = (uint32_t)kept;
                continue;
            }
            m[k].value = m[i].value;
            twice = &m[k].name;
        }
        if (twice && r->rules.flags & WF_JSON_UNIQUE)
            return fail_at(r, WF_JSON_SYNTAX, r->p - 1, "duplicate key '%.48s' in the object that ends here",
                           twice->text);
        v->n = (uint32_t)kept, v->members = m;
        if (kept == n) return true;
        n = kept; /* the table of fewer lies elsewhere */
    }
}

static bool close_bracket(reader *r)
{
    uint32_t first = r->open[r->depth - 1].first;
    bool object = r->open[r->depth - 1].object;
    if (!r->tree) return r->depth--, true;
    size_t n = r->n - first;
    wf_json v = {.kind = object ? WF_JSON_OBJECT : WF_JSON_LIST, .n = (uint32_t)n}, *list;
    if (object) {
        if (!close_object(r, &v, r->stack + first, n / 2)) return false;
    } else {
        if (!(list = tree_alloc(r->tree, n * sizeof *list))) return no_memory(r);
        if (n) memcpy(list, r->stack + first, n * sizeof *list);
        v.list = list;
    }
    r->depth--;
    r->n = first;
    r->stack[r->n++] = v; /* counted, and with room for it, since its bracket opened */
    return true;
}

/* ---- the grammar ----------------------------------------------------------------------------------- */

/* The next byte that is not blank; 0: none. */
static char next_byte(reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\t' || *r->p == '\r')) r->p++;
    return r->p < r->end ? *r->p : 0;
}

static bool open_bracket(reader *r, char c)
{
    if (r->depth == r->rules.depth)
        return fail_at(r, WF_JSON_TOO_DEEP, r->p, "nested deeper than %u levels", r->rules.depth);
    if (!push(r, (wf_json){0})) return false;
    if (r->tree) r->n--;
    r->open[r->depth].first = (uint32_t)r->n;
    r->open[r->depth++].object = c == '{';
    r->p++;
    return true;
}

static bool read_name(reader *r)
{
    if (next_byte(r) != '"') return expected(r, "a string");
    if (!read_string(r)) return false;
    if (next_byte(r) != ':') return expected(r, ":");
    r->p++;
    return true;
}

/* One value, which goes on the stack. */
static bool read_value(reader *r)
{
    do {
        char c = next_byte(r);
        bool opened = c == '{' || c == '[';
        if (!(opened ? open_bracket(r, c) : read_scalar(r, c))) return false;
        while (r->depth) { /* behind a value, or behind an opened bracket: up to the next value */
            bool object = r->open[r->depth - 1].object;
            c = next_byte(r);
            if (c == (object ? '}' : ']')) {
                r->p++;
                if (!close_bracket(r)) return false;
                opened = false;
                continue;
            }
            if (!opened && c != ',') return expected(r, object ? ", or }" : ", or ]");
            if (!opened) r->p++;
            if (object && !read_name(r)) return false;
            break;
        }
    } while (r->depth);
    return true;
}

wf_json *wf_json_read(const char *text, size_t len, const wf_json_rules *rules, wf_json_error *e)
{
    reader r = {.begin = text, .p = text, .end = text + len, .e = e};
    if (rules) r.rules = *rules;
    if (!r.rules.depth) r.rules.depth = WF_JSON_MAX_DEPTH;
    if (!r.rules.values) r.rules.values = UINT32_MAX;
    if (len >= UINT32_MAX) return fail_at(&r, WF_JSON_TOO_MANY, text, "longer than 4 GiB"), NULL;
    r.tree = calloc(1, sizeof *r.tree);
    if (r.tree) r.string = r.tree->strings = malloc(len + 1);
    bool ok = r.string || no_memory(&r);
    if (ok) ok = read_value(&r) && (!next_byte(&r) && r.p == r.end ? true : expected(&r, "nothing more"));
    if (ok) r.tree->root = r.stack[0];
    free(r.stack);
    if (ok) return &r.tree->root;
    if (r.tree) wf_json_free(&r.tree->root);
    return NULL;
}

void wf_json_free(wf_json *root)
{
    tree *t = (tree *)root;
    if (!t) return;
    for (block *b = t->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(t->strings);
    free(t);
}

weft_status wf_json_load(const char *text, size_t len, const char *name, unsigned flags, wf_json **out)
{
    wf_json_error e;
    *out = wf_json_read(text, len, &(wf_json_rules){.flags = flags}, &e);
    if (*out && (!(flags & WF_JSON_AN_OBJECT) || (*out)->kind == WF_JSON_OBJECT)) return WEFT_OK;
    if (*out) {
        wf_json_free(*out);
        *out = NULL;
        return wf_fail(WEFT_ERR_FORMAT, "%s is no JSON object", name);
    }
    if (e.fault == WF_JSON_NO_MEMORY)
        return wf_fail(WEFT_ERR_NOMEM, "%s: out of host memory for its JSON of %zu bytes", name, len);
    return wf_fail(WEFT_ERR_FORMAT, "%s: bad JSON in line %zu, column %zu: %s", name, e.line, e.column, e.text);
}

static weft_status load_file(const char *path, size_t max, unsigned flags, wf_json **out)
{
    char *text = NULL;
    size_t len;
    *out = NULL;
    WF_TRY(wf_need_regular(path));
    WF_TRY(wf_read_file(path, max, &text, &len));
    weft_status s = wf_json_load(text, len, path, WF_JSON_UNIQUE | flags, out);
    free(text);
    return s;
}

weft_status wf_json_load_file(const char *path, size_t max, wf_json **out)
{
    return load_file(path, max, WF_JSON_AN_OBJECT, out);
}

weft_status wf_json_load_of(const char *folder, const char *name, size_t max, unsigned flags, wf_json **out)
{
    char path[PATH_MAX];
    struct stat st;
    *out = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return lstat(path, &st) ? WEFT_OK : load_file(path, max, flags, out);
}

/* ---- values ---------------------------------------------------------------------------------------- */

double wf_json_number(const wf_json *v)
{
    if (!wf_json_is_number(v)) return 0;
    if (v->kind == WF_JSON_BIG) return strtod(v->text, NULL);
    return v->kind == WF_JSON_INT ? (double)v->i : v->kind == WF_JSON_UINT ? (double)v->u : v->real;
}

const wf_json *wf_json_find(const wf_json *v, const char *name, size_t len)
{
    if (!wf_json_is(v, WF_JSON_OBJECT)) return NULL;
    const wf_json_member *m = v->members;
    if (v->n > INDEXED) {
        uint32_t k = *slot_of((uint32_t *)(m + v->n), table_size(v->n), m, name, len);
        return k ? &m[k - 1].value : NULL;
    }
    for (size_t i = 0; i < v->n; i++)
        if (same_name(&m[i].name, name, len)) return &m[i].value;
    return NULL;
}

const wf_json *wf_json_get(const wf_json *v, const char *name)
{
    return name ? wf_json_find(v, name, strlen(name)) : NULL;
}

/* NULL where it is absent or null. */
static const wf_json *given(const wf_json *o, const char *key)
{
    const wf_json *v = wf_json_get(o, key);
    return wf_json_absent(v) ? NULL : v;
}

static weft_status not_a(const char *key, const char *what)
{
    return wf_fail(WEFT_ERR_FORMAT, "'%s' is not %s", key, what);
}

weft_status wf_json_u32(const wf_json *o, const char *key, uint32_t *out)
{
    const wf_json *v = given(o, key);
    if (v && (v->kind != WF_JSON_INT || v->i < 0 || v->i > UINT32_MAX))
        return not_a(key, "an integer of 0 to 2^32 - 1");
    if (v) *out = (uint32_t)v->i;
    return WEFT_OK;
}

weft_status wf_json_float(const wf_json *o, const char *key, float *out)
{
    const wf_json *v = given(o, key);
    if (v && !wf_json_is_number(v)) return not_a(key, "a number");
    if (v) *out = (float)wf_json_number(v);
    return WEFT_OK;
}

weft_status wf_json_bool(const wf_json *o, const char *key, bool *out)
{
    const wf_json *v = given(o, key);
    if (v && v->kind != WF_JSON_BOOL) return not_a(key, "true or false");
    if (v) *out = v->b;
    return WEFT_OK;
}

weft_status wf_json_str(const wf_json *o, const char *key, const char **out)
{
    const wf_json *v = given(o, key);
    if (v && v->kind != WF_JSON_STRING) return not_a(key, "a string");
    if (v) *out = v->text;
    return WEFT_OK;
}

weft_status wf_json_object(const wf_json *o, const char *key, const wf_json **out)
{
    *out = given(o, key);
    return *out && (*out)->kind != WF_JSON_OBJECT ? not_a(key, "an object") : WEFT_OK;
}

weft_status wf_json_array(const wf_json *o, const char *key, const wf_json **out)
{
    *out = given(o, key);
    return *out && (*out)->kind != WF_JSON_LIST ? not_a(key, "an array") : WEFT_OK;
}

/* ---- text that stays where it is ------------------------------------------------------------------- */

const char *wf_json_end(const char *p, const char *end)
{
    reader r = {.begin = p, .p = p, .end = end, .rules = {.depth = END_DEPTH, .values = SIZE_MAX}};
    return read_value(&r) ? r.p : NULL;
}

static const char *skip_blanks(const char *p, const char *end)
{
    reader r = {.p = p, .end = end};
    next_byte(&r);
    return r.p;
}

bool wf_json_whole(const char *p, size_t len)
{
    const char *end = wf_json_end(p, p + len);
    return end && skip_blanks(end, p + len) == p + len;
}

/* A value that is known to be valid. */
static wf_slice slice_value(const char **at, const char *end)
{
    const char *from = skip_blanks(*at, end);
    *at = wf_json_end(from, end);
    return (wf_slice){from, (size_t)(*at - from)};
}

bool wf_json_next(const char **at, const char *end, wf_slice *name, wf_slice *value)
{
    const char *p = skip_blanks(*at, end);
    if (p < end && *p == ',') p = skip_blanks(p + 1, end);
    *at = p;
    if (p == end || *p == ']' || *p == '}') return false;
    if (name) {
        *name = slice_value(at, end);
        *name = (wf_slice){name->p + 1, name->n - 2};
        *at = skip_blanks(*at, end) + 1;
    }
    *value = slice_value(at, end);
    return true;
}

bool wf_json_closes(wf_json_progress *s, char byte)
{
    if (s->in_string) {
        bool ends = byte == '"' && !s->escaped;
        s->escaped = byte == '\\' && !s->escaped;
        s->in_string = !ends;
        return ends && !s->depth;
    }
    s->in_string = byte == '"';
    s->depth += byte == '{' || byte == '[';
    return (byte == '}' || byte == ']') && !--s->depth;
}
