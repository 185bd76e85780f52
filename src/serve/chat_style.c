/* chat_style: how a chat template wants conversations with tools. Nothing says so but the template itself, so it is tried at the start of the
 * server with a tool and with a call whose names stand nowhere else. */
#include "serve/internal.h"

#include <stdlib.h>
#include <string.h>

#define FUNCTION "probe_of_tools"
#define ARGUMENT "probe_of_arguments"
#define TOOL     "[{\"type\":\"function\",\"function\":{\"name\":\"" FUNCTION "\",\"description\":\"It does.\",\"parameters\":{\"type\":\"object\"," \
                 "\"properties\":{\"" ARGUMENT "\":{\"type\":\"string\",\"description\":\"It is.\"}},\"required\":[\"" ARGUMENT "\"]}}}]"
#define USER     "{\"role\":\"user\",\"content\":\"Hi\"}"

/* What the template makes of it; NULL: it fails. Free it with weft_free. */
static char *render(const wf_server *s, const char *messages, const char *tools)
{
    char *text = NULL;
    size_t len;
    struct weft_chat_params p = {.chat_template = s->p.chat_template, .messages_json = messages, .tools_json = tools};
    return weft_chat_render(s->model, &p, &text, &len) ? NULL : text;
}

static bool writes_tools(const wf_server *s)
{
    char *text = render(s, "[" USER "]", TOOL);
    bool known = text && strstr(text, FUNCTION);
    weft_free(text);
    return known;
}

/* Is a call written so, with its arguments as JSON or in words of the template, but not as Python shows a dictionary? */
static bool writes_call(const wf_server *s, bool string, bool null)
{
    wf_text m = {0};
    wf_text_print(&m, "[" USER ",{\"role\":\"assistant\",\"content\":%s,\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":\"function\",\"function\":{\"name\":\"" FUNCTION
                  "\",\"arguments\":%s}}]},{\"role\":\"tool\",\"tool_call_id\":\"abcdefghi\",\"name\":\"" FUNCTION "\",\"content\":\"{}\"}]",
                  null ? "null" : "\"\"", string ? "\"{\\\"" ARGUMENT "\\\": \\\"1\\\"}\"" : "{\"" ARGUMENT "\":\"1\"}");
    char *text = m.failed ? NULL : render(s, m.data, NULL);
    bool good = text && strstr(text, FUNCTION) && strstr(text, ARGUMENT) && !strstr(text, "'" ARGUMENT "'") && !strstr(text, "\\\"" ARGUMENT);
    weft_free(text);
    free(m.data);
    return good;
}

void wf_chat_style_find(wf_server *s)
{
    wf_chat_style *c = &s->chat;
    const char *text = s->p.chat_template ? s->p.chat_template : weft_model_info(s->model)->chat_template;
    *c = (wf_chat_style){0};
    if (!text) return;
    c->developer = strstr(text, "developer");
    c->tools = writes_tools(s);
    for (unsigned way = 0; way < 4; way++) {
        if (!writes_call(s, way & 1, way & 2)) continue;
        c->string_arguments = way & 1;
        c->null_content = way & 2;
        return;
    }
}
