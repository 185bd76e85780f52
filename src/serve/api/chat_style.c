/* chat_style: how a chat template wants conversations with tools. Nothing says so but the template itself, so it is
 * tried at the start of the server with a tool and with a call whose names stand nowhere else. */
#include "serve/api/internal.h"
#include "answers/answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTION "probe_of_tools"
#define ARGUMENT "probe_of_arguments"
#define TOOL                                                                                                           \
    "[{\"type\":\"function\",\"function\":{\"name\":\"" FUNCTION                                                       \
    "\",\"description\":\"It does.\",\"parameters\":{\"type\":\"object\","                                             \
    "\"properties\":{\"" ARGUMENT "\":{\"type\":\"string\",\"description\":\"It is.\"}},\"required\":[\"" ARGUMENT     \
    "\"]}}}]"
#define USER     "{\"role\":\"user\",\"content\":\"Hi\"}"

/* What the template makes of it; NULL: it fails. Free it with weft_free. */
static char *render(const wf_served *s, const char *messages, const char *tools, const char *kwargs)
{
    char *text = NULL;
    size_t len;
    struct weft_chat_params p = {.chat_template = s->server->p.chat_template,
                                 .messages_json = messages,
                                 .tools_json = tools,
                                 .kwargs_json = kwargs,
                                 .now = 1}; /* two texts are compared */
    return weft_chat_render(s->model, &p, &text, &len) ? NULL : text;
}

bool wf_chat_reads(const wf_served *s, const char *variable, const char *one, const char *other)
{
    char kwargs[2][96], *text[2];
    for (int i = 0; i < 2; i++) {
        snprintf(kwargs[i], sizeof kwargs[i], "{\"%s\":%s}", variable, i ? other : one);
        text[i] = render(s, "[" USER "]", NULL, kwargs[i]);
    }
    bool differ = text[0] && text[1] && strcmp(text[0], text[1]);
    weft_free(text[0]);
    weft_free(text[1]);
    return differ;
}

/* A template of its own for conversations with tools, which calls are found by; NULL: there is one for all. */
static const char *tool_template(const wf_served *s)
{
    return s->server->p.chat_template ? NULL : weft_model_info(s->model)->tool_template;
}

static bool writes_tools(const wf_served *s)
{
    char *text = render(s, "[" USER "]", TOOL, NULL);
    bool known = text && strstr(text, FUNCTION);
    weft_free(text);
    return known;
}

/* Gemma's first templates refuse them, others pass over them. */
static bool lacks_system(const wf_served *s)
{
    char *without = render(s, "[" USER "]", NULL, NULL),
         *text = render(s, "[{\"role\":\"system\",\"content\":\"" FUNCTION "\"}," USER "]", NULL, NULL);
    bool lacks = without && !(text && strstr(text, FUNCTION));
    weft_free(without);
    weft_free(text);
    return lacks;
}

/* Is a call written so, with its arguments as JSON or in words of the template, but not as Python shows a dictionary?
 */
static bool writes_call(const wf_served *s, bool string, bool null)
{
    wf_text m = {0};
    wf_text_print(&m,
                  "[" USER ",{\"role\":\"assistant\",\"content\":%s,\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":"
                           "\"function\",\"function\":{\"name\":\"" FUNCTION
                  "\",\"arguments\":%s}}]},{\"role\":\"tool\",\"tool_call_id\":\"abcdefghi\",\"name\":\"" FUNCTION
                  "\",\"content\":\"{}\"}]",
                  null ? "null" : "\"\"",
                  string ? "\"{\\\"" ARGUMENT "\\\": \\\"1\\\"}\"" : "{\"" ARGUMENT "\":\"1\"}");
    char *text = m.failed ? NULL : render(s, m.data, tool_template(s) ? TOOL : NULL, NULL);
    bool good = text && strstr(text, FUNCTION) && strstr(text, ARGUMENT) && !strstr(text, "'" ARGUMENT "'") &&
                !strstr(text, "\\\"" ARGUMENT);
    weft_free(text);
    free(m.data);
    return good;
}

/* ---- calls in answers ------------------------------------------------------------------------------------ */

static bool is_auto(const char *name) { return !name || !strcmp(name, "auto"); }

static bool check_parser(const char *option, const char *name, bool known, void (*list_kinds)(char *out, size_t size))
{
    char list[512];
    if (known || is_auto(name) || !strcmp(name, "none")) return true;
    list_kinds(list, sizeof list);
    return !wf_fail(WEFT_ERR_ARG, "%s %s: want auto, none, or one of %s", option, name, list);
}

bool wf_chat_style_check(const wf_server *s)
{
    const char *calls = s->p.tool_call_parser, *thoughts = s->p.reasoning_parser;
    return check_parser("--tool-call-parser", calls, calls && wf_call_kind_named(calls), wf_call_kinds_list) &&
           check_parser("--reasoning-parser", thoughts, thoughts && wf_thought_kind_named(thoughts),
                        wf_thought_kinds_list);
}

static void find_thoughts(const wf_served *s, wf_chat_style *c, const char *text)
{
    const char *name = s->server->p.reasoning_parser;
    c->thought_name = !strstr(text, "reasoning_content") && strstr(text, ".thinking") ? "thinking"
                                                                                      : "reasoning_content";
    c->thoughts = is_auto(name) ? wf_thought_kind_of(text) : wf_thought_kind_named(name);
    if (c->thoughts) wf_thoughts_show(c->thoughts, s->model, &c->show);
    c->n_show_thoughts = c->show.n;
}

void wf_chat_style_find(wf_served *s)
{
    wf_chat_style *c = &s->chat;
    const char *own = s->server->p.chat_template, *for_tools = tool_template(s),
               *text = own ? own : weft_model_info(s->model)->chat_template;
    *c = (wf_chat_style){.usable = !weft_chat_check(s->model, own)};
    if (!c->usable) return;
    c->developer = strstr(text, "developer");
    c->tools = writes_tools(s);
    c->generic = !c->tools;
    c->no_system = lacks_system(s);
    find_thoughts(s, c, text);
    const char *markers[WF_CALL_MARKERS + 1] = {NULL}, *name = s->server->p.tool_call_parser;
    c->calls = is_auto(name) ? wf_call_kind_of(for_tools ? for_tools : text) : wf_call_kind_named(name);
    if (is_auto(name) && c->generic) c->calls = wf_call_kind_named("hermes");
    if (c->calls) wf_call_markers(c->calls, markers);
    wf_shown_add(&c->show, s->model, c->calls && c->calls->channels ? wf_channel_markers : markers);
    wf_thinking_find(s);
    for (unsigned way = 0; way < 4; way++) {
        if (!writes_call(s, way & 1, way & 2)) continue;
        c->string_arguments = way & 1;
        c->null_content = way & 2;
        return;
    }
    c->text_calls = c->generic;
}
