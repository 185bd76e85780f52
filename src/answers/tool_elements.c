/* tool_elements: calls whose arguments stand in elements: MiniMax's, which are nested and have a marker before each
 * tag, and Kimi's, which have a type each, or one element for all arguments as JSON. */
#include "answers/tool_forms.h"
#include "answers/tool_tags.h"
#include "answers/tool_types.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 64
#define MARK      "]<]minimax[>["

typedef struct reader {
    wf_slice in;
    size_t at;
    unsigned depth;
    const char *strings; /* as tool_types.h has them */
    wf_text *out;
} reader;

static void put(reader *r, const char *text) { wf_text_add(r->out, text, strlen(text)); }

static bool pass(reader *r, const char *marker) { return wf_pass(r->in, &r->at, marker) == WF_YES; }

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

static bool name(reader *r, const wf_text *types, const char *behind)
{
    wf_slice s = up_to(r, behind);
    if (!s.p || !wf_tool_name_good(s.p, s.n)) return false;
    r->strings = wf_tool_strings(types, s);
    wf_json_print(r->out, "{'name': %.*s, 'arguments': ", (int)s.n, s.p);
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

static bool element(reader *r, const path *p, bool list, wf_slice tag)
{
    path inner = within(p, tag);
    if (!list) wf_json_print(r->out, "%.*s: ", (int)tag.n, tag.p);
    if (!content(r, &inner) || !pass(r, MARK "</")) return false;
    wf_slice end = up_to(r, ">");
    return end.p && end.n == tag.n && !memcmp(end.p, tag.p, tag.n);
}

/* As an object; as a list if the first one is an item. */
static bool elements(reader *r, const path *p, bool top)
{
    bool any = false, list = false;
    unsigned n = 0;
    if (++r->depth > MAX_DEPTH) return false;
    for (; at_tag(r); any = true) {
        pass(r, MARK "<");
        wf_slice tag = up_to(r, ">");
        bool item = !top && wf_slice_is(tag, "item");
        if (!tag.n || tag.n > WF_TOOL_PATH_MAX || (list && !item) || (top && ++n > WF_MAX_PARAMETERS)) return false;
        if (!any) list = item;
        put(r, any ? ", " : list ? "[" : "{");
        if (!element(r, p, list, tag)) return false;
    }
    put(r, !any ? "{}" : list ? "]" : "}");
    r->depth--;
    return true;
}

enum wf_found wf_form_minimax(wf_slice call, const wf_text *types, wf_text *json)
{
    reader r = {.in = call, .out = json};
    const path none = {.n = 0};
    bool good = name(&r, types, "\">") && elements(&r, &none, true);
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
    for (unsigned n = 0; pass(r, "<|open|>argument key=\""); n++) {
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
    bool good = name(&r, types, "\"") && up_to(&r, "<|sep|>").p;
    if (good) good = pass(&r, "<|open|>json type=\"object\"<|sep|>") ? json_arguments(&r) : arguments(&r);
    put(&r, "}");
    return wf_form_found(call, r.at, good);
}
