/* json: text to JSON. The parser (jansson) recurses, and takes up to a hundred times the memory of the text, so the text is looked
 * through before: its brackets and commas tell how deep and how many the values are. */
#include "serve/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH      64
#define MAX_CONTAINERS 65536     /* objects and lists; each takes about 300 bytes when it is empty */
#define MAX_VALUES     (1 << 20) /* names and values; each takes about 50 bytes */

/* What brackets, commas and strings alone tell about len bytes of JSON. */
typedef struct outline {
    size_t deepest;       /* nesting depth */
    size_t n_containers;  /* objects and lists */
    size_t n_values;      /* names and values, at most one per list or object too many */
    size_t name, n_name;  /* of the last string in the outermost object: the name of the member that the bytes end in,
                             unless they end behind a string */
} outline;

static outline outline_of(const char *text, size_t len)
{
    outline o = {0};
    size_t depth = 0, begin = 0;
    bool string = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (string && c == '\\')
            i++;
        else if (c == '"') {
            if (!string) begin = i + 1;
            if (string && depth == 1) o.name = begin, o.n_name = i - begin;
            string = !string;
        } else if (string)
            continue;
        else if (c == '{' || c == '[')
            depth++, o.n_containers++, o.deepest = WF_MAX(o.deepest, depth);
        else if ((c == '}' || c == ']') && depth)
            depth--;
        else
            o.n_values += c == ',' || c == ':';
    }
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

/* Seeds have 64 bits, and the reader's integers a sign. If the number that ends at `end` is the seed and fits, a copy of the text
 * has it as the signed number of the same bits; false: it is another field, or too large. */
static bool wrap_seed(const char *text, size_t len, size_t end, wf_text *out)
{
    char number[24];
    outline o = outline_of(text, WF_MIN(len, end));
    size_t begin = end = WF_MIN(len, end);
    while (begin && text[begin - 1] >= '0' && text[begin - 1] <= '9') begin--;
    size_t digits = end - begin;
    bool seed = o.n_name == 4 && !memcmp(text + o.name, "seed", 4);
    if (!seed || digits < 19 || digits > 20 || text[begin - 1] == '-') return false;
    snprintf(number, sizeof number, "%.*s", (int)digits, text + begin);
    errno = 0;
    uint64_t bits = strtoull(number, NULL, 10);
    if (errno) return false;
    wf_text_add(out, text, begin);
    wf_text_print(out, "%lld", (long long)(int64_t)bits);
    wf_text_add(out, text + end, len - end);
    return !out->failed;
}

static json_t *load(const char *text, size_t len, json_error_t *e)
{
    wf_text wrapped = {0};
    json_t *j = wf_reader_load(text, len, e);
    if (!j && json_error_code(e) == json_error_numeric_overflow && wrap_seed(text, len, (size_t)e->position, &wrapped))
        j = wf_reader_load(wrapped.data, wrapped.len, e);
    free(wrapped.data);
    return j;
}

json_t *wf_json_parse(const char *text, size_t len, wf_http_error *r)
{
    json_error_t e = {0}; /* the reader may fail before it sets this */
    if (!len) return wf_refuse(r, 400, "", "the request has no body: send a JSON object"), NULL;
    outline o = outline_of(text, len);
    if (!check_outline(&o, r)) return NULL;
    if (!wf_reader_begin(len, o.n_values, o.n_containers)) return wf_refuse(r, 500, "", "out of memory for the request"), NULL;
    json_t *j = load(text, len, &e);
    if (j && json_is_object(j)) return j;
    if (j)
        wf_refuse(r, 400, "", "the body must be a JSON object");
    else
        refuse_syntax(text, len, &e, r);
    wf_json_free(j);
    return NULL;
}

void wf_json_free(json_t *json)
{
    json_decref(json);
    wf_reader_end();
}
