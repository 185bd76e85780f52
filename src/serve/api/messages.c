/* messages: the conversation and the tools of a request, as JSON for the chat template. They go there whole, since templates differ in what
 * they read; what templates differ in how they want it (wf_chat_style) is said in one way by clients. All of it counts as data there, so
 * that nothing in it becomes a control token. */
#include "serve/api/internal.h"
#include "answers/tool_types.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TOOLS      512
#define MAX_TOOL_BYTES (1u << 20) /* of all together, as JSON */

/* The messages as they are written. */
typedef struct writer {
    const wf_chat_style *style;
    wf_text out;
    size_t bytes; /* of contents and arguments: what is certain to become tokens */
    wf_http_error *r;
} writer;

static void put_member(wf_text *t, const char *name, const json_t *v)
{
    wf_text_print(t, ",\"%s\":", name);
    wf_text_exact(t, v);
}

/* ---- contents -------------------------------------------------------------------------------------------- */

static bool add_part(const json_t *part, wf_text *out, wf_http_error *r)
{
    json_t *text = json_object_get(part, "text");
    const char *type = json_string_value(json_object_get(part, "type"));
    if (!type) return wf_refuse(r, 400, "messages", "a part of a message's content must be an object with a type");
    if (strcmp(type, "text")) return wf_refuse_unsupported(r, "messages", "content of type '%.40s' is not supported, only text: leave it out", type);
    if (!json_is_string(text)) return wf_refuse(r, 400, "messages", "a part of type text must have a text");
    wf_text_add(out, json_string_value(text), json_string_length(text));
    return true;
}

static bool put_parts(writer *w, const json_t *v)
{
    wf_text all = {0};
    bool ok = true;
    wf_text_add(&all, "", 0);
    for (size_t i = 0; ok && i < json_array_size(v); i++) ok = add_part(json_array_get(v, i), &all, w->r);
    json_t *text = all.failed ? NULL : json_stringn_nocheck(all.data, all.len);
    if (ok) put_member(&w->out, "content", text);
    w->bytes += all.len;
    json_decref(text);
    free(all.data);
    return ok;
}

/* A string, or a list of text parts, which are put together. */
static bool put_content(writer *w, const json_t *m)
{
    json_t *v = wf_field(m, "content");
    if (json_is_array(v)) return put_parts(w, v);
    if (v && !json_is_string(v)) return wf_refuse(w->r, 400, "messages", "content of a message must be a string or a list of parts");
    w->bytes += json_string_length(v);
    bool none = !v && w->style->null_content && wf_field(m, "tool_calls");
    if (v) put_member(&w->out, "content", v);
    else wf_text_print(&w->out, none ? ",\"content\":null" : ",\"content\":\"\"");
    return true;
}

/* ---- calls of earlier turns ------------------------------------------------------------------------------ */

/* Clients send the text of a JSON object. Most templates want the object, some the text. */
static bool put_arguments(writer *w, const json_t *v)
{
    const char *text = json_is_string(v) ? json_string_value(v) : NULL;
    size_t len = json_string_length(v);
    wf_text dumped = {0};
    if (text && !len) text = "{}", len = 2;
    if (json_is_object(v)) wf_text_exact(&dumped, v), text = dumped.data, len = dumped.len;
    bool good = text && text[strspn(text, " \t\r\n")] == '{' && wf_json_whole(text, len);
    json_t *string = good && w->style->string_arguments ? json_stringn_nocheck(text, len) : NULL;
    wf_text_print(&w->out, ",\"arguments\":");
    if (good && w->style->string_arguments) wf_text_exact(&w->out, string);
    else if (good) wf_text_add(&w->out, text, len);
    w->out.failed |= dumped.failed;
    w->bytes += len;
    json_decref(string);
    free(dumped.data);
    return good || w->out.failed || wf_refuse(w->r, 400, "messages", "arguments of a tool call must be the text of a JSON object");
}

static bool put_call(writer *w, const json_t *call, bool first)
{
    json_t *function = json_object_get(call, "function"), *name = json_object_get(function, "name"), *id = wf_field(call, "id"),
           *arguments = wf_field(function, "arguments"), *none = arguments ? NULL : json_string("");
    if (!json_is_string(name) || !json_string_length(name) || (id && !json_is_string(id))) {
        json_decref(none);
        return wf_refuse(w->r, 400, "messages", "each of tool_calls must be an object with an id, and a function with name and arguments");
    }
    wf_text_print(&w->out, "%s{\"type\":\"function\"", first ? "" : ",");
    if (id) put_member(&w->out, "id", id);
    wf_text_print(&w->out, ",\"function\":{\"name\":");
    wf_text_exact(&w->out, name);
    bool ok = put_arguments(w, arguments ? arguments : none);
    wf_text_print(&w->out, "}}");
    json_decref(none);
    return ok;
}

static bool put_calls(writer *w, const json_t *m)
{
    json_t *v = wf_field(m, "tool_calls");
    size_t n = json_array_size(v);
    bool ok = true;
    if (v && !json_is_array(v)) return wf_refuse(w->r, 400, "messages", "tool_calls of a message must be a list");
    if (!n) return true;
    wf_text_print(&w->out, ",\"tool_calls\":[");
    for (size_t i = 0; ok && i < n; i++) ok = put_call(w, json_array_get(v, i), !i);
    wf_text_print(&w->out, "]");
    return ok;
}

/* ---- messages -------------------------------------------------------------------------------------------- */

/* The role as templates call it; NULL: unknown. */
static const char *role_of(const writer *w, const char *role)
{
    static const char *const known[] = {"system", "user", "assistant", "tool"};
    if (!strcmp(role, "developer")) return w->style->developer ? "developer" : "system";
    if (!strcmp(role, "function")) return "tool"; /* its former name */
    for (size_t i = 0; i < WF_LEN(known); i++)
        if (!strcmp(role, known[i])) return known[i];
    return NULL;
}

static bool put_strings(writer *w, const json_t *m)
{
    static const char *const names[] = {"name", "tool_call_id", "reasoning_content"};
    for (size_t i = 0; i < WF_LEN(names); i++) {
        json_t *v = wf_field(m, names[i]);
        if (v && !json_is_string(v)) return wf_refuse(w->r, 400, "messages", "%s of a message must be a string", names[i]);
        if (v) put_member(&w->out, i == 2 ? w->style->thought_name : names[i], v);
    }
    return true;
}

static bool put_message(writer *w, const json_t *m)
{
    const char *sent = json_string_value(json_object_get(m, "role")), *role = sent ? role_of(w, sent) : NULL;
    if (!sent) return wf_refuse(w->r, 400, "messages", "each of messages must be an object with a role");
    if (!role) return wf_refuse(w->r, 400, "messages", "unknown role '%.40s'; want system, developer, user, assistant or tool", sent);
    wf_text_print(&w->out, "{\"role\":\"%s\"", role);
    bool ok = put_content(w, m) && put_strings(w, m) && put_calls(w, m);
    wf_text_print(&w->out, "}");
    return ok;
}

bool wf_messages_read(const json_t *body, const wf_chat_style *style, wf_text *out, size_t *bytes, wf_http_error *r)
{
    json_t *v = wf_field(body, "messages");
    writer w = {.style = style, .r = r};
    size_t n = json_array_size(v);
    bool ok = n > 0;
    if (!n) return wf_refuse(r, 400, "messages", "messages must be a list of at least one message");
    wf_text_add(&w.out, "[", 1);
    for (size_t i = 0; ok && i < n; i++) {
        if (i) wf_text_add(&w.out, ",", 1);
        ok = put_message(&w, json_array_get(v, i));
    }
    wf_text_add(&w.out, "]", 1);
    *out = w.out;
    *bytes = w.bytes;
    return ok && w.out.failed ? wf_refuse(r, 500, "", "out of memory") : ok;
}

/* ---- tools ----------------------------------------------------------------------------------------------- */

static bool check_tool(const json_t *tool, wf_http_error *r)
{
    json_t *type = json_object_get(tool, "type"), *function = json_object_get(tool, "function"), *name = json_object_get(function, "name"),
           *about = wf_field(function, "description"), *parameters = wf_field(function, "parameters");
    if (!json_is_string(type) || strcmp(json_string_value(type), "function") || !json_is_object(function))
        return wf_refuse(r, 400, "tools", "each of tools must be an object of type function, with a function");
    if (!json_is_string(name) || !wf_tool_name_good(json_string_value(name), json_string_length(name)))
        return wf_refuse(r, 400, "tools", "the name of a function must have 1 to %d letters, digits, '_', '-' or '.'", WF_TOOL_NAME_MAX);
    if (about && !json_is_string(about)) return wf_refuse(r, 400, "tools", "the description of %s must be a string", json_string_value(name));
    if (parameters && !json_is_object(parameters))
        return wf_refuse(r, 400, "tools", "the parameters of %s must be an object, as JSON Schema has it", json_string_value(name));
    return true;
}

static bool check_tools(const json_t *tools, wf_http_error *r)
{
    size_t n = json_array_size(tools);
    if (n > MAX_TOOLS) return wf_refuse(r, 400, "tools", "there are %zu tools, at most %d are possible", n, MAX_TOOLS);
    for (size_t i = 0; i < n; i++)
        if (!check_tool(json_array_get(tools, i), r)) return false;
    return true;
}

static bool has_tool(const json_t *tools, const char *name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const char *one = json_string_value(json_object_get(json_object_get(json_array_get(tools, i), "function"), "name"));
        if (one && name && !strcmp(one, name)) return true;
    }
    return false;
}

static bool check_named(const json_t *tools, const json_t *choice, wf_http_error *r)
{
    json_t *function = json_object_get(choice, "function");
    const char *type = json_string_value(json_object_get(choice, "type")), *name = json_string_value(json_object_get(function, "name"));
    if (!type || strcmp(type, "function") || !name)
        return wf_refuse(r, 400, "tool_choice", "tool_choice must be \"auto\", \"none\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": ...}}");
    if (!has_tool(tools, name)) return wf_refuse(r, 400, "tool_choice", "tool_choice names the function '%.64s', which is not in tools", name);
    return wf_refuse_unsupported(r, "tool_choice", "tool_choice with a function is not supported, since answers cannot be constrained: send \"auto\", and ask for the call in a message");
}

/* Whether the model shall know the tools. */
static bool check_choice(const json_t *body, const json_t *tools, bool *wanted, wf_http_error *r)
{
    json_t *v = wf_field(body, "tool_choice");
    const char *word = json_string_value(v);
    *wanted = json_array_size(tools) && !(word && !strcmp(word, "none"));
    if (!v || (word && (!strcmp(word, "auto") || !strcmp(word, "none")))) return true;
    if (!word || strcmp(word, "required")) return check_named(tools, v, r);
    if (!json_array_size(tools)) return wf_refuse(r, 400, "tool_choice", "tool_choice \"required\" needs tools");
    return wf_refuse_unsupported(r, "tool_choice", "tool_choice \"required\" is not supported, since answers cannot be constrained: send \"auto\", and ask for a call in a message");
}

bool wf_tools_read(const json_t *body, const wf_chat_style *style, wf_params *p, wf_text *out, wf_http_error *r)
{
    json_t *tools = wf_field(body, "tools"), *parallel = wf_field(body, "parallel_tool_calls");
    if (tools && !json_is_array(tools)) return wf_refuse(r, 400, "tools", "tools must be a list");
    if (parallel && !json_is_boolean(parallel)) return wf_refuse(r, 400, "parallel_tool_calls", "parallel_tool_calls must be true or false");
    if (!check_tools(tools, r) || !check_choice(body, tools, &p->tools, r)) return false;
    p->one_call = json_is_false(parallel);
    if (!p->tools) return true;
    if (style->calls) p->calls = style;
    if (!style->tools)
        return wf_refuse_unsupported(r, "tools", "the chat template of this model does not tell it about tools: leave tools out, send tool_choice \"none\", or start the "
                         "server with a --chat-template that does");
    wf_text_exact(out, tools);
    wf_tool_types_add(&p->tool_types, tools);
    if (out->failed || p->tool_types.failed) return wf_refuse(r, 500, "", "out of memory");
    if (out->len > MAX_TOOL_BYTES) return wf_refuse(r, 400, "tools", "tools have %zu bytes, at most %u are possible", out->len, MAX_TOOL_BYTES);
    return true;
}
