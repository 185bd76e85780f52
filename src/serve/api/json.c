/* json: text to JSON. The parser (jansson) recurses, and takes up to a hundred times the memory of the text, so the text is looked
 * through before: its brackets and commas tell how deep and how many the values are. */
#include "serve/api/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH      64
#define MAX_CONTAINERS 65536     /* objects and lists; each takes about 300 bytes when it is empty */
#define MAX_VALUES     (1 << 20) /* names and values; each takes about 50 bytes */

/* What brackets, commas and strings alone tell about bytes of JSON. */
typedef struct outline {
    size_t depth, deepest; /* nesting depth */
    size_t n_containers;   /* objects and lists */
    size_t n_values;       /* names and values, at most one per list or object too many */
    size_t name, n_name;   /* of the last string in the outermost object: the name of the member that the bytes end in,
                              unless they end behind a string */
    size_t begin;          /* of the last string */
    bool string;           /* the bytes end in it */
} outline;

/* Takes the byte at i into account; returns where the next one is. */
static size_t look(outline *o, const char *text, size_t i)
{
    char c = text[i];
    if (o->string && c == '\\') return i + 2;
    if (c == '"') {
        if (!o->string) o->begin = i + 1;
        if (o->string && o->depth == 1) o->name = o->begin, o->n_name = i - o->begin;
        o->string = !o->string;
    } else if (o->string)
        return i + 1;
    else if (c == '{' || c == '[')
        o->depth++, o->n_containers++, o->deepest = WF_MAX(o->deepest, o->depth);
    else if ((c == '}' || c == ']') && o->depth)
        o->depth--;
    else
        o->n_values += c == ',' || c == ':';
    return i + 1;
}

static outline outline_of(const char *text, size_t len)
{
    outline o = {0};
    for (size_t i = 0; i < len;) i = look(&o, text, i);
    o.n_values += o.n_containers;
    return o;
}

static bool check_outline(const outline *o, wf_http_error *r)
{
    if (o->deepest > MAX_DEPTH)
        return wf_refuse(r, 400, "", "the JSON is nested deeper than %d levels", MAX_DEPTH);
    if (o->n_containers > MAX_CONTAINERS)
        return wf_refuse(r, 400, "", "the JSON has %zu objects and lists, at most %d are possible", o->n_containers, MAX_CONTAINERS);
    if (o->n_values > MAX_VALUES)
        return wf_refuse(r, 400, "", "the JSON has %zu names and values, at most %d are possible", o->n_values, MAX_VALUES);
    return true;
}

static void refuse_syntax(const char *text, size_t len, const json_error_t *e, wf_http_error *r)
{
    char name[48];
    if (json_error_code(e) != json_error_numeric_overflow) {
        wf_refuse(r, 400, "", "the body is not valid JSON: %s (line %d, column %d)", e->text, e->line, e->column);
        return;
    }
    outline o = outline_of(text, WF_MIN(len, (size_t)e->position)); /* as far as the number */
    snprintf(name, sizeof name, "%.*s", (int)WF_MIN(o.n_name, sizeof name - 1), text + o.name);
    wf_refuse(r, 400, name, "%s holds a number that is too large (line %d, column %d)", *name ? name : "the body", e->line, e->column);
}

/* ---- whole numbers of any size ---------------------------------------------------------------------------- */

static size_t number_len(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && text[n] && strchr("+-.0123456789eE", text[n])) n++;
    return n;
}

/* Is it whole, and too large for 64 bits with a sign? */
static bool is_large(const char *number, size_t n)
{
    char text[24];
    size_t sign = *number == '-';
    for (size_t i = sign; i < n; i++)
        if (number[i] < '0' || number[i] > '9') return false;
    if (n >= sizeof text) return true;
    snprintf(text, sizeof text, "%.*s", (int)n, number);
    errno = 0;
    strtoll(text, NULL, 10);
    return n > sign && errno == ERANGE;
}

/* Does a large number fit 64 bits without a sign? */
static bool fits_unsigned(const char *number, size_t n, uint64_t *bits)
{
    char text[24];
    if (*number == '-' || n >= sizeof text) return false;
    snprintf(text, sizeof text, "%.*s", (int)n, number);
    errno = 0;
    *bits = strtoull(text, NULL, 10);
    return !errno;
}

/* As the reader can take it: a real, that fields find too large. A seed has 64 bits: it becomes the signed number of the same bits. */
static void put_large(wf_text *out, const outline *o, const char *text, const char *number, size_t n)
{
    uint64_t bits;
    bool seed = o->depth == 1 && o->n_name == 4 && !memcmp(text + o->name, "seed", 4);
    if (seed && fits_unsigned(number, n, &bits)) wf_text_print(out, "%lld", (long long)(int64_t)bits);
    else wf_text_add(out, number, n), wf_text_add(out, "e0", 2);
}

/* A copy of the text, in which the reader's integers hold all that is written as one. */
static wf_text with_reals(const char *text, size_t len)
{
    wf_text out = {0};
    outline o = {0};
    size_t copied = 0, n;
    for (size_t i = 0; i < len; i = n ? i + n : look(&o, text, i)) {
        n = o.string ? 0 : number_len(text + i, len - i);
        if (n && is_large(text + i, n)) {
            wf_text_add(&out, text + copied, i - copied);
            put_large(&out, &o, text, text + i, n);
            copied = i + n;
        }
    }
    wf_text_add(&out, text + copied, len - copied);
    return out;
}

static json_t *load(const char *text, size_t len, wf_http_error *r)
{
    json_error_t e = {0}; /* the reader may fail before it sets this */
    wf_text copy = {0};
    json_t *j = wf_reader_load(text, len, &e);
    if (!j && json_error_code(&e) == json_error_numeric_overflow && !(copy = with_reals(text, len)).failed)
        text = copy.data, len = copy.len, j = wf_reader_load(text, len, &e);
    if (copy.failed) wf_refuse(r, 500, "", "out of memory for the request");
    else if (!j) refuse_syntax(text, len, &e, r);
    free(copy.data);
    return j;
}

json_t *wf_json_parse(const char *text, size_t len, wf_http_error *r)
{
    if (!len) return wf_refuse(r, 400, "", "the request has no body: send a JSON object"), NULL;
    outline o = outline_of(text, len);
    if (!check_outline(&o, r)) return NULL;
    if (!wf_reader_begin(len, o.n_values, o.n_containers)) return wf_refuse(r, 500, "", "out of memory for the request"), NULL;
    json_t *j = load(text, len, r);
    if (j && json_is_object(j)) return j;
    if (j) wf_refuse(r, 400, "", "the body must be a JSON object");
    wf_json_free(j);
    return NULL;
}

void wf_json_free(json_t *json)
{
    json_decref(json);
    wf_reader_end();
}
