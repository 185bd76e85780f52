/* tool_types: see the header. Parameters whose schema does not say that they are strings are left to what the model
 * writes. */
#include "answers/tool_types.h"
#include "answers/markers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TYPES (1u << 20) /* bytes; what is within parameters is left out beyond */

static bool is_word(const wf_json *v, const char *word)
{
    const char *s = wf_json_text(v);
    return s && !strcmp(s, word);
}

/* A list of types, or of schemas that have a type each: strings, or also null. */
static bool all_strings(const wf_json *list)
{
    bool any = false;
    WF_JSON_EACH(v, list) {
        const wf_json *type = v->kind == WF_JSON_OBJECT ? wf_json_get(v, "type") : v;
        if (is_word(type, "null")) continue;
        if (!is_word(type, "string")) return false;
        any = true;
    }
    return any;
}

static bool is_string(const wf_json *schema)
{
    static const char *const names[] = {"type", "anyOf", "oneOf"};
    const wf_json *type = NULL;
    for (size_t i = 0; !type && i < WF_LEN(names); i++) type = wf_json_get(schema, names[i]);
    return wf_json_is(type, WF_JSON_LIST) ? all_strings(type) : is_word(type, "string");
}

static void add_word(wf_text *types, const char *word) { wf_text_add(types, word, strlen(word) + 1); }

/* n: of its tool so far. */
static void add_string(wf_text *types, unsigned *n, const char *path)
{
    if (*n < WF_TOOL_STRINGS_MAX) add_word(types, path), ++*n;
}

static void add_within(wf_text *types, unsigned *n, const char *path, const wf_json *schema);

static void add_schema(wf_text *types, unsigned *n, const char *path, const wf_json *schema)
{
    if (strlen(path) >= WF_TOOL_PATH_MAX) return;
    if (is_string(schema)) add_string(types, n, path);
    add_within(types, n, path, schema);
}

/* Of the members or items of a value. */
static void add_within(wf_text *types, unsigned *n, const char *path, const wf_json *schema)
{
    char inner[WF_TOOL_PATH_MAX + 1];
    const wf_json *items = wf_json_get(schema, "items"), *all = wf_json_get(schema, "properties");
    if (types->len > MAX_TYPES) return;
    snprintf(inner, sizeof inner, "%s" WF_TOOL_WITHIN "item", path);
    if (wf_json_is(items, WF_JSON_OBJECT)) add_schema(types, n, inner, items);
    WF_JSON_EACH_MEMBER(m, all) {
        snprintf(inner, sizeof inner, "%s" WF_TOOL_WITHIN "%s", path, m->name.text);
        add_schema(types, n, inner, &m->value);
    }
}

static void add_parameter(wf_text *types, unsigned *n, const char *name, const wf_json *schema)
{
    bool string = is_string(schema);
    if (!string && *n < WF_TOOL_STRINGS_MAX) wf_text_add(types, WF_TOOL_OTHER, 1);
    add_string(types, n, name);
    if (strlen(name) < WF_TOOL_PATH_MAX) add_within(types, n, name, schema);
}

/* Names are looked up for each call in an answer, so that they can be gone through without what lies between. */
#define SIZE "%08zx"
enum { SIZE_BYTES = 8 + 1 };

static void add_tool(wf_text *types, const wf_json *function)
{
    char size[SIZE_BYTES + 8];
    add_word(types, wf_json_text(wf_json_get(function, "name")));
    size_t at = types->len;
    add_word(types, "00000000");
    const wf_json *all = wf_json_get(wf_json_get(function, "parameters"), "properties");
    unsigned n = 0;
    WF_JSON_EACH_MEMBER(m, all)
        if (m->name.n) add_parameter(types, &n, m->name.text, &m->value);
    add_word(types, "");
    if (types->failed) return;
    snprintf(size, sizeof size, SIZE, types->len - at - SIZE_BYTES);
    memcpy(types->data + at, size, SIZE_BYTES - 1);
}

void wf_tool_types_add(wf_text *types, const wf_json *tools)
{
    WF_JSON_EACH(one, tools) add_tool(types, wf_json_get(one, "function"));
}

const char *wf_tool_strings(const wf_text *types, wf_slice tool)
{
    size_t at = 0;
    while (!types->failed && at < types->len) {
        const char *name = types->data + at, *size = name + strlen(name) + 1, *strings = size + SIZE_BYTES;
        if (wf_slice_is(tool, name)) return strings;
        at = (size_t)(strings - types->data) + strtoul(size, NULL, 16);
    }
    return NULL;
}

bool wf_tool_string_in(const char *strings, wf_slice parameter)
{
    for (; strings && *strings; strings += strlen(strings) + 1)
        if (wf_slice_is(parameter, strings)) return true;
    return false;
}

bool wf_tool_declares(const char *strings, wf_slice parameter)
{
    for (; strings && *strings; strings += strlen(strings) + 1)
        if (wf_slice_is(parameter, strings + (*strings == *WF_TOOL_OTHER))) return true;
    return false;
}

bool wf_tool_name_good(const char *name, size_t len)
{
    static const char good[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
    bool all = len && len <= WF_TOOL_NAME_MAX;
    for (size_t i = 0; all && i < len; i++) all = name[i] && strchr(good, name[i]);
    return all;
}
