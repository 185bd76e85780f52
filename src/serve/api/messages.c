/* messages: the conversation and the tools of a request, as JSON for the chat template. They go there whole, since
 * templates differ in what they read; what templates differ in how they want it (wf_chat_style) is said in one way by
 * clients. All of it counts as data there, so that nothing in it becomes a control token. */
#include "serve/api/internal.h"
#include "answers/tool_types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOOLS      512
#define MAX_TOOL_BYTES (1u << 20) /* of all together, as JSON */

/* The messages as they are written. */
typedef struct writer {
    const wf_chat_style *style;
    wf_text out;
    wf_text system;  /* what the first system message gets, too */
    bool text_calls; /* calls and their results are texts */
    wf_text user;    /* what goes before the next text of the user, or stands for one */
    size_t bytes;    /* of contents and arguments: what is certain to become tokens */
    unsigned n_function_calls; /* in their former form, which has no ids: they are counted */
    wf_http_error *r;
} writer;

/* ---- contents -------------------------------------------------------------------------------------------- */

static bool add_part(const wf_json *part, wf_text *out, wf_http_error *r)
{
    const wf_json *text = wf_json_get(part, "text");
    const char *type = wf_json_text(wf_json_get(part, "type"));
    if (!type) return wf_refuse(r, 400, "messages", "a part of a message's content must be an object with a type");
    if (strcmp(type, "text"))
        return wf_refuse(r, WF_UNSUPPORTED, "messages",
                         "content of type '%.40s' is not supported, only text: leave it out", type);
    if (!wf_json_is(text, WF_JSON_STRING)) return wf_refuse(r, 400, "messages", "a part of type text must have a text");
    wf_text_add(out, wf_json_text(text), wf_json_bytes(text));
    return true;
}

/* A string, or a list of text parts, which are put together. */
static bool add_content(writer *w, const wf_json *m, wf_text *out)
{
    const wf_json *v = wf_field(m, "content");
    size_t before = out->len;
    bool ok = !v || wf_json_is(v, WF_JSON_STRING) || wf_json_is(v, WF_JSON_LIST);
    if (!ok) return wf_refuse(w->r, 400, "messages", "content of a message must be a string or a list of parts");
    for (size_t i = 0; ok && i < wf_json_count(v); i++) ok = add_part(wf_json_at(v, i), out, w->r);
    if (wf_json_bytes(v)) wf_text_add(out, wf_json_text(v), wf_json_bytes(v));
    w->bytes += out->len - before;
    return ok;
}

/* Moves what waits to another text. */
static void add_waiting(wf_text *out, wf_text *waits, const char *behind)
{
    if (waits->len && out->len) wf_text_add(out, "\n\n", 2);
    if (waits->len) wf_text_add(out, waits->data, waits->len), wf_text_add(out, behind, strlen(behind));
    out->failed |= waits->failed;
    free(waits->data);
    *waits = (wf_text){0};
}

static bool put_calls(writer *w, const wf_json *m, wf_text *text);

static bool put_content(writer *w, const wf_json *m, const char *role)
{
    wf_text all = {0};
    bool calls = wf_field(m, "tool_calls") || wf_field(m, "function_call");
    bool none = !w->text_calls && !wf_field(m, "content") && w->style->null_content && calls;
    if (!strcmp(role, "user")) add_waiting(&all, &w->user, "\n\n");
    bool ok = add_content(w, m, &all);
    if (!strcmp(role, "system")) add_waiting(&all, &w->system, "");
    if (ok && w->text_calls) ok = put_calls(w, m, &all);
    wf_json_print(&w->out, ",'content':");
    if (none) wf_text_add(&w->out, "null", 4);
    else wf_json_put_string(&w->out, all.data ? all.data : "", all.len);
    w->out.failed |= all.failed;
    free(all.data);
    return ok;
}

/* ---- calls of earlier turns ------------------------------------------------------------------------------ */

static bool put_call(writer *w, const wf_json *function, const wf_json *id, bool bare)
{
    static const wf_json none = {.kind = WF_JSON_STRING, .text = ""};
    const wf_json *name = wf_json_get(function, "name"), *arguments = wf_field(function, "arguments");
    if (!wf_json_bytes(name) || (id && !wf_json_is(id, WF_JSON_STRING)))
        return wf_refuse(w->r, 400, "messages",
                         "each of tool_calls must be an object with an id, and a function with name and arguments");
    wf_json_comma(&w->out);
    if (!bare) wf_text_print(&w->out, "{\"type\":\"function\"");
    if (id && !bare) wf_json_put_member(&w->out, "id", id);
    wf_text_print(&w->out, bare ? "{\"name\":" : ",\"function\":{\"name\":");
    wf_json_put(&w->out, name);
    /* Clients send the text of a JSON object. Most templates want the object, some the text. */
    const wf_json *v = arguments ? arguments : &none;
    const char *text = wf_json_is(v, WF_JSON_STRING) ? wf_json_text(v) : NULL;
    size_t len = wf_json_bytes(v);
    wf_text dumped = {0};
    if (text && !len) text = "{}", len = 2;
    if (wf_json_is(v, WF_JSON_OBJECT)) wf_json_put(&dumped, v), text = dumped.data, len = dumped.len;
    bool good = text && text[strspn(text, " \t\r\n")] == '{' && wf_json_whole(text, len);
    wf_text_print(&w->out, ",\"arguments\":");
    if (good && w->style->string_arguments) wf_json_put_string(&w->out, text, len);
    else if (good) wf_text_add(&w->out, text, len);
    w->out.failed |= dumped.failed;
    w->bytes += len;
    free(dumped.data);
    bool ok = good || w->out.failed ||
              wf_refuse(w->r, 400, "messages", "arguments of a tool call must be the text of a JSON object");
    wf_text_print(&w->out, bare ? "}" : "}}");
    return ok;
}

/* As text, for a template that knows none. */
static bool add_call(writer *w, const wf_json *function, const wf_json *id, wf_text *out)
{
    static const wf_chat_style objects = {0};
    writer one = {.style = &objects, .r = w->r};
    bool ok = put_call(&one, function, id, true);
    wf_text_print(out, "%s<tool_call>\n", out->len ? "\n" : "");
    if (one.out.len) wf_text_add(out, one.out.data, one.out.len);
    wf_text_print(out, "\n</tool_call>");
    w->bytes += one.bytes;
    out->failed |= one.out.failed;
    free(one.out.data);
    return ok;
}

/* The id of the last call in the former form, of as many letters as templates want. */
static wf_json function_id(const writer *w, char text[10])
{
    snprintf(text, 10, "call%05u", w->n_function_calls % 100000);
    return (wf_json){.kind = WF_JSON_STRING, .n = 9, .text = text};
}

/* text: where they go as text; NULL: they stay calls. */
static bool put_calls(writer *w, const wf_json *m, wf_text *text)
{
    const wf_json *v = wf_field(m, "tool_calls"), *former = wf_field(m, "function_call");
    bool ok = true;
    char number[10];
    if (former && v)
        return wf_refuse(w->r, 400, "messages", "function_call is the former name of tool_calls: send one of them");
    if (v && !wf_json_is(v, WF_JSON_LIST))
        return wf_refuse(w->r, 400, "messages", "tool_calls of a message must be a list");
    size_t n = former ? 1 : wf_json_count(v);
    if (!n) return true;
    w->n_function_calls += former != NULL;
    const wf_json of_former = function_id(w, number);
    if (!text) wf_text_print(&w->out, ",\"tool_calls\":[");
    for (size_t i = 0; ok && i < n; i++) {
        const wf_json *call = wf_json_at(v, i), *function = former ? former : wf_json_get(call, "function"),
                      *id = former ? &of_former : wf_field(call, "id");
        ok = text ? add_call(w, function, id, text) : put_call(w, function, id, false);
    }
    if (!text) wf_text_print(&w->out, "]");
    return ok;
}

/* ---- templates without tools, or without system messages --------------------------------------------------- */

/* What Hermes' models are told, whose calls are read back. */
static void tell_tools(wf_text *out, const wf_json *tools)
{
    wf_text_print(out, "You may call functions to help the user. They are described here by JSON schemas:\n<tools>\n");
    WF_JSON_EACH(tool, tools) wf_json_put(out, tool), wf_text_add(out, "\n", 1);
    wf_text_print(out, "</tools>\nTo call one, write a JSON object with its name and arguments between tags:\n"
                       "<tool_call>\n{\"name\": NAME, \"arguments\": OBJECT}\n</tool_call>");
}

static void put_text(writer *w, const char *role, wf_text *text)
{
    w->out.failed |= text->failed;
    if (!text->len) return;
    wf_text all = {0};
    wf_json_comma(&w->out);
    add_waiting(&all, text, "");
    wf_json_print(&w->out, "{'role':%s,'content':%.*s}", role, (int)all.len, all.data ? all.data : "");
    w->out.failed |= all.failed;
    free(all.data);
}

static bool put_strings(writer *w, const wf_json *m, bool function)
{
    static const char *const names[] = {"name", "tool_call_id", "reasoning", "reasoning_content"};
    const wf_json *all[WF_LEN(names)];
    char text[10];
    const wf_json id = function_id(w, text);
    for (size_t i = 0; i < WF_LEN(names); i++) {
        all[i] = wf_field(m, names[i]);
        if (all[i] && !wf_json_is(all[i], WF_JSON_STRING))
            return wf_refuse(w->r, 400, "messages", "%s of a message must be a string", names[i]);
    }
    if (!all[1] && function && w->n_function_calls) all[1] = &id;
    for (size_t i = 0; i < 2; i++)
        if (all[i]) wf_json_put_member(&w->out, names[i], all[i]);
    const wf_json *thoughts = wf_json_bytes(all[2]) || !all[3] ? all[2] : all[3];
    if (thoughts) wf_json_put_member(&w->out, w->style->thought_name, thoughts);
    return true;
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

static bool put_message(writer *w, const wf_json *m)
{
    const char *sent = wf_json_text(wf_json_get(m, "role")), *role = sent ? role_of(w, sent) : NULL;
    if (!sent) return wf_refuse(w->r, 400, "messages", "each of messages must be an object with a role");
    if (!role)
        return wf_refuse(w->r, 400, "messages", "unknown role '%.40s'; want system, developer, user, assistant or tool",
                         sent);
    bool system = !strcmp(role, "system"), tool = !strcmp(role, "tool");
    if ((system && w->style->no_system) || (tool && w->text_calls)) {
        /* What becomes a part of the user's next text: where a template would refuse or drop it. */
        if (w->user.len) wf_text_add(&w->user, "\n\n", 2);
        if (tool) wf_text_print(&w->user, "<tool_response>\n");
        size_t before = w->out.len;
        bool good = add_content(w, m, &w->user) && put_strings(w, m, false); /* which are checked, */
        w->out.len = before; /* but have no place there */
        if (tool) wf_text_print(&w->user, "\n</tool_response>");
        return good;
    }
    if (!system) put_text(w, "system", &w->system);
    if (strcmp(role, "user")) put_text(w, "user", &w->user);
    wf_json_comma(&w->out);
    wf_text_print(&w->out, "{\"role\":\"%s\"", role);
    bool ok = put_content(w, m, role) && put_strings(w, m, !strcmp(sent, "function")) &&
              (w->text_calls || put_calls(w, m, NULL));
    wf_text_print(&w->out, "}");
    return ok;
}

/* NULL is allowed. */
static bool check_switch(const wf_json *v, const char *name, wf_http_error *r)
{
    return !v || wf_json_is(v, WF_JSON_BOOL) || wf_refuse(r, 400, name, "%s must be true or false", name);
}

/* Does the answer go on with the last message? With an assistant's it does, as in llama.cpp, unless vLLM's fields say
 * that a new one follows; they, and DeepSeek's `prefix` of the message, may ask for it. */
static bool read_continues(const wf_json *body, const wf_json *messages, wf_params *p, wf_http_error *r)
{
    const wf_json *last = wf_json_at(messages, wf_json_count(messages) - 1), *content = wf_field(last, "content"),
                  *wanted = wf_field(body, "continue_final_message"), *opens = wf_field(body, "add_generation_prompt");
    const char *role = wf_json_text(wf_json_get(last, "role"));
    bool own = role && !strcmp(role, "assistant"), prefix = false;
    bool calls = wf_json_count(wf_field(last, "tool_calls")) || wf_field(last, "function_call");
    bool thoughts = wf_json_bytes(wf_field(last, "reasoning")) || wf_json_bytes(wf_field(last, "reasoning_content"));
    if (!check_switch(wanted, "continue_final_message", r) || !check_switch(opens, "add_generation_prompt", r))
        return false;
    WF_JSON_EACH(m, messages) {
        if (prefix) return wf_refuse(r, 400, "messages", "prefix is for the last message only");
        prefix = wf_json_is_true(wf_field(m, "prefix"));
    }
    p->told = wf_json_is_true(wanted) || prefix;
    if (p->told && wf_json_is_true(opens))
        return wf_refuse(r, 400, "add_generation_prompt", "an answer that continues a message opens none: send one of "
                                                          "add_generation_prompt and continue_final_message");
    bool only_thoughts = thoughts && !wf_json_bytes(content) && !wf_json_count(content);
    p->continues = p->told || (own && !calls && !only_thoughts && !wanted && !p->closed && !wf_json_is_true(opens));
    if (p->continues && (!own || calls || only_thoughts))
        return wf_refuse(r, 400, "messages", "only an assistant's message with content and without calls, at the end, "
                                             "can be continued");
    return p->continues || p->closed || !opens || opens->b ||
           wf_refuse(r, WF_UNSUPPORTED, "add_generation_prompt",
                     "add_generation_prompt false is for answers that continue an assistant's message: leave it out");
}

bool wf_messages_read(const wf_json *body, const wf_chat_style *style, wf_params *p, wf_text *out, size_t *bytes,
                      wf_http_error *r)
{
    const wf_json *v = wf_field(body, "messages");
    bool generic = style->generic && p->tools;
    writer w = {.style = style, .text_calls = generic || style->text_calls, .r = r};
    size_t n = wf_json_count(v);
    bool ok = n > 0;
    if (!n) return wf_refuse(r, 400, "messages", "messages must be a list of at least one message");
    if (generic) tell_tools(style->no_system ? &w.user : &w.system, wf_field(body, "tools"));
    wf_text_add(&w.out, "[", 1);
    for (size_t i = 0; ok && i < n; i++) ok = put_message(&w, wf_json_at(v, i));
    if (ok) put_text(&w, "user", &w.user);
    wf_text_add(&w.out, "]", 1);
    free(w.user.data);
    free(w.system.data);
    *out = w.out;
    *bytes = w.bytes;
    if (ok && w.out.failed) return wf_refuse(r, 500, "", "out of memory");
    return ok && read_continues(body, v, p, r);
}

/* ---- as chats of ours have it ---------------------------------------------------------------------------- */

bool wf_has_type(const wf_json *v, const char *type)
{
    const char *is = wf_json_text(wf_json_get(v, "type"));
    return is && !strcmp(is, type);
}

void wf_chat_put_call(const wf_json *call, const char *id, const char *arguments, wf_text *out)
{
    wf_json_comma(out);
    wf_json_print(out, "{'type':'function'");
    wf_json_put_member(out, "id", wf_json_get(call, id));
    wf_json_print(out, ",'function':{");
    wf_json_put_member(out, "name", wf_json_get(call, "name"));
    wf_json_put_member(out, "arguments", wf_json_get(call, arguments));
    wf_text_add(out, "}}", 2);
}

void wf_chat_put_tool(const wf_json *tool, const char *parameters, wf_text *out)
{
    const char *const names[][2] = {
        {"name", "name"}, {"description", "description"}, {parameters, "parameters"}, {"strict", "strict"}};
    wf_json_comma(out);
    wf_json_print(out, "{'type':'function','function':{");
    for (size_t i = 0; i < WF_LEN(names); i++)
        if (wf_field(tool, names[i][0])) wf_json_put_member(out, names[i][1], wf_field(tool, names[i][0]));
    wf_text_add(out, "}}", 2);
}

void wf_chat_put_choice(const wf_json *choice, wf_text *out)
{
    wf_json_put_name(out, "tool_choice");
    wf_json_print(out, "{'type':'function','function':{");
    wf_json_put_member(out, "name", wf_json_get(choice, "name"));
    wf_text_add(out, "}}", 2);
}

/* ---- tools ----------------------------------------------------------------------------------------------- */

static bool check_tool(const wf_json *tool, wf_http_error *r)
{
    const wf_json *type = wf_json_get(tool, "type"), *function = wf_json_get(tool, "function"),
                  *name = wf_json_get(function, "name"), *about = wf_field(function, "description"),
                  *parameters = wf_field(function, "parameters");
    if (!wf_json_is(type, WF_JSON_STRING) || strcmp(wf_json_text(type), "function") ||
        !wf_json_is(function, WF_JSON_OBJECT))
        return wf_refuse(r, 400, "tools", "each of tools must be an object of type function, with a function");
    if (!wf_json_is(name, WF_JSON_STRING) || !wf_tool_name_good(wf_json_text(name), wf_json_bytes(name)))
        return wf_refuse(r, 400, "tools", "the name of a function must have 1 to %d letters, digits, '_', '-' or '.'",
                         WF_TOOL_NAME_MAX);
    if (about && !wf_json_is(about, WF_JSON_STRING))
        return wf_refuse(r, 400, "tools", "the description of %s must be a string", wf_json_text(name));
    if (parameters && !wf_json_is(parameters, WF_JSON_OBJECT))
        return wf_refuse(r, 400, "tools", "the parameters of %s must be an object, as JSON Schema has it",
                         wf_json_text(name));
    return true;
}

static bool check_tools(const wf_json *tools, wf_http_error *r)
{
    size_t n = wf_json_count(tools);
    if (n > MAX_TOOLS) return wf_refuse(r, 400, "tools", "there are %zu tools, at most %d are possible", n, MAX_TOOLS);
    for (size_t i = 0; i < n; i++)
        if (!check_tool(wf_json_at(tools, i), r)) return false;
    return true;
}

static bool has_tool(const wf_json *tools, const char *name)
{
    for (size_t i = 0; i < wf_json_count(tools); i++) {
        const char *one = wf_json_text(wf_json_get(wf_json_get(wf_json_at(tools, i), "function"), "name"));
        if (one && name && !strcmp(one, name)) return true;
    }
    return false;
}

static bool check_named(const wf_json *tools, const wf_json *choice, wf_http_error *r)
{
    const wf_json *function = wf_json_get(choice, "function");
    const char *type = wf_json_text(wf_json_get(choice, "type")), *name = wf_json_text(wf_json_get(function, "name"));
    if (!type || strcmp(type, "function") || !name)
        return wf_refuse(r, 400, "tool_choice",
                         "tool_choice must be \"auto\", \"none\", \"required\" or {\"type\": \"function\", "
                         "\"function\": {\"name\": ...}}");
    if (!has_tool(tools, name))
        return wf_refuse(r, 400, "tool_choice", "tool_choice names the function '%.64s', which is not in tools", name);
    return true;
}

/* Whether the model shall know the tools, and whether it has to call one. */
static bool read_choice(const wf_json *body, const wf_json *tools, wf_params *p, wf_http_error *r)
{
    const wf_json *v = wf_field(body, "tool_choice");
    const char *word = wf_json_text(v);
    p->tools = wf_json_count(tools) && !(word && !strcmp(word, "none"));
    if (!v || (word && (!strcmp(word, "auto") || !strcmp(word, "none")))) return true;
    if (!word || (strcmp(word, "required") && strcmp(word, "any")))
        return check_named(tools, v, r) &&
               wf_format_calls(tools, wf_json_text(wf_json_get(wf_json_get(v, "function"), "name")), p, r);
    if (!wf_json_count(tools)) return wf_refuse(r, 400, "tool_choice", "tool_choice \"%s\" needs tools", word);
    return wf_format_calls(tools, NULL, p, r);
}

bool wf_tools_read(const wf_json *body, const wf_chat_style *style, wf_params *p, wf_text *out, wf_http_error *r)
{
    const wf_json *tools = wf_field(body, "tools"), *parallel = wf_field(body, "parallel_tool_calls");
    if (tools && !wf_json_is(tools, WF_JSON_LIST)) return wf_refuse(r, 400, "tools", "tools must be a list");
    if (parallel && !wf_json_is(parallel, WF_JSON_BOOL))
        return wf_refuse(r, 400, "parallel_tool_calls", "parallel_tool_calls must be true or false");
    p->one_call = parallel && !parallel->b;
    if (!check_tools(tools, r) || !read_choice(body, tools, p, r)) return false;
    if (!p->tools) return true;
    if (style->calls) p->calls = style;
    wf_json_put(out, tools);
    wf_tool_types_add(&p->tool_types, tools);
    if (out->failed || p->tool_types.failed) return wf_refuse(r, 500, "", "out of memory");
    if (out->len > MAX_TOOL_BYTES)
        return wf_refuse(r, 400, "tools", "tools have %zu bytes, at most %u are possible", out->len, MAX_TOOL_BYTES);
    return true;
}
