/* tool_types: see the header. Parameters whose schema does not say that they are strings are left to what the model writes. */
#include "answers/tool_types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TYPES (1u << 20) /* bytes; what is within parameters is left out beyond */

static bool is_word(const json_t *v, const char *word)
{
    const char *s = json_string_value(v);
    return s && !strcmp(s, word);
}

/* A list of types, or of schemas that have a type each: strings, or also null. */
static bool all_strings(const json_t *list)
{
    bool any = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *v = json_array_get(list, i), *type = json_is_object(v) ? json_object_get(v, "type") : v;
        if (is_word(type, "null")) continue;
        if (!is_word(type, "string")) return false;
        any = true;
    }
    return any;
}

static bool is_string(const json_t *schema)
{
    static const char *const names[] = {"type", "anyOf", "oneOf"};
    const json_t *type = NULL;
    for (size_t i = 0; !type && i < WF_LEN(names); i++) type = json_object_get(schema, names[i]);
    return json_is_array(type) ? all_strings(type) : is_word(type, "string");
}

static void add_word(wf_text *types, const char *word)
{
    wf_text_add(types, word, strlen(word) + 1);
}

/* n: of its tool so far. */
static void add_string(wf_text *types, unsigned *n, const char *path)
{
    if (*n < WF_TOOL_STRINGS_MAX) add_word(types, path), ++*n;
}

static void add_within(wf_text *types, unsigned *n, const char *path, const json_t *schema);

static void add_schema(wf_text *types, unsigned *n, const char *path, const json_t *schema)
{
    if (strlen(path) >= WF_TOOL_PATH_MAX) return;
    if (is_string(schema)) add_string(types, n, path);
    add_within(types, n, path, schema);
}

/* Of the members or items of a value. */
static void add_within(wf_text *types, unsigned *n, const char *path, const json_t *schema)
{
    char inner[WF_TOOL_PATH_MAX + 1];
    const json_t *items = json_object_get(schema, "items"), *of;
    const char *name;
    if (types->len > MAX_TYPES) return;
    snprintf(inner, sizeof inner, "%s" WF_TOOL_WITHIN "item", path);
    if (json_is_object(items)) add_schema(types, n, inner, items);
    json_object_foreach(json_object_get(schema, "properties"), name, of) {
        snprintf(inner, sizeof inner, "%s" WF_TOOL_WITHIN "%s", path, name);
        add_schema(types, n, inner, of);
    }
}

static void add_parameter(wf_text *types, unsigned *n, const char *name, const json_t *schema)
{
    if (is_string(schema)) add_string(types, n, name);
    if (strlen(name) < WF_TOOL_PATH_MAX) add_within(types, n, name, schema);
}

static void add_parameters(wf_text *types, const json_t *function)
{
    json_t *all = json_object_get(json_object_get(function, "parameters"), "properties"), *schema;
    const char *name;
    unsigned n = 0;
    json_object_foreach(all, name, schema)
        if (*name) add_parameter(types, &n, name, schema);
    add_word(types, "");
}

/* Names are looked up for each call in an answer, so that they can be gone through without what lies between. */
#define SIZE "%08zx"
enum { SIZE_BYTES = 8 + 1 };

static void add_tool(wf_text *types, const json_t *function)
{
    char size[SIZE_BYTES + 8];
    add_word(types, json_string_value(json_object_get(function, "name")));
    size_t at = types->len;
    add_word(types, "00000000");
    add_parameters(types, function);
    if (types->failed) return;
    snprintf(size, sizeof size, SIZE, types->len - at - SIZE_BYTES);
    memcpy(types->data + at, size, SIZE_BYTES - 1);
}

void wf_tool_types_add(wf_text *types, const json_t *tools)
{
    for (size_t i = 0; i < json_array_size(tools); i++) add_tool(types, json_object_get(json_array_get(tools, i), "function"));
}

static bool same(wf_slice a, const char *word)
{
    return a.n == strlen(word) && !memcmp(a.p, word, a.n);
}

const char *wf_tool_strings(const wf_text *types, wf_slice tool)
{
    size_t at = 0;
    while (!types->failed && at < types->len) {
        const char *name = types->data + at, *size = name + strlen(name) + 1, *strings = size + SIZE_BYTES;
        if (same(tool, name)) return strings;
        at = (size_t)(strings - types->data) + strtoul(size, NULL, 16);
    }
    return NULL;
}

bool wf_tool_string_in(const char *strings, wf_slice parameter)
{
    for (; strings && *strings; strings += strlen(strings) + 1)
        if (same(parameter, strings)) return true;
    return false;
}

bool wf_tool_name_good(const char *name, size_t len)
{
    static const char good[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
    bool all = len && len <= WF_TOOL_NAME_MAX;
    for (size_t i = 0; all && i < len; i++) all = name[i] && strchr(good, name[i]);
    return all;
}
