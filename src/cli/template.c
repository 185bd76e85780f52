/* template: prints what a chat template makes of a conversation; needs only a vocabulary, or none with --chat-template.
 */
#include "base/file.h"
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define JSON_MAX ((size_t)64 << 20)

static const wf_opt rows[] = {
    {0, "chat-template", "FILE", "Jinja chat template in a file (default: the model's); '?': say which there is",
     WF_OPT_TEXT, AT(chat_template)},
    {0, "messages", "FILE", "JSON file with a list of messages, as /save of a chat writes it; '-': standard input",
     WF_OPT_TEXT, AT(conversation.messages)},
    {0, "tools", "FILE", "JSON file with a list of tools", WF_OPT_TEXT, AT(conversation.tools)},
    {0, "kwargs", "JSON", "further variables of the template, e.g. '{\"enable_thinking\": false}'", WF_OPT_TEXT,
     AT(conversation.kwargs)},
    {0, "add-generation-prompt", NULL, "end with the start of the assistant's turn", WF_OPT_FLAG,
     AT(conversation.add_generation_prompt)},
};
static const WF_GROUP(template_group, "Conversation", rows);

/* Noon of that day. */
static int read_date(const wf_opts *o, int64_t *out)
{
    struct tm tm = {.tm_hour = 12, .tm_isdst = -1};
    const char *end = o->conversation.now ? strptime(o->conversation.now, "%Y-%m-%d", &tm) : "";
    if (!end || *end) return wf_usage(o->command, "$WEFT_NOW: '%s' is no date such as 2026-11-23", o->conversation.now);
    *out = o->conversation.now ? (int64_t)mktime(&tm) : 0;
    return 0;
}

static int read_json(const char *path, char **text)
{
    size_t len;
    if (!path) return 0;
    weft_status s = strcmp(path, "-") ? wf_read_file(path, JSON_MAX, text, &len)
                                      : wf_read_fd(0, "standard input", JSON_MAX, text, &len);
    return s ? wf_say_error(s) : 0;
}

static int cmd_template(const wf_opts *o)
{
    struct weft_model *m = NULL;
    struct weft_chat_params p = {.kwargs_json = o->conversation.kwargs,
                                 .bos = o->conversation.bos,
                                 .eos = o->conversation.eos,
                                 .no_generation_prompt = !o->conversation.add_generation_prompt};
    char *chat_template = NULL, *messages = NULL, *tools = NULL;
    if (wf_asks_template(o->chat_template)) return wf_explain_template(o);
    if (!o->conversation.messages)
        return wf_usage(o->command, "--messages FILE is missing: a JSON file with a list of messages");
    int rc = read_date(o, &p.now);
    if (!rc) rc = wf_read_template(o->chat_template, &chat_template);
    if (!rc) rc = read_json(o->conversation.messages, &messages);
    if (!rc) rc = read_json(o->conversation.tools, &tools);
    if (!rc && (o->model || !chat_template)) rc = wf_open_model(o, true, &m);
    p.chat_template = chat_template, p.messages_json = messages, p.tools_json = tools;
    if (!rc) {
        char *text = NULL;
        size_t len = 0;
        weft_status s = weft_chat_render(m, &p, &text, &len);
        if (!s) wf_out_shown(text, len);
        weft_free(text);
        rc = s ? wf_say_error(s) : 0;
    }
    weft_model_close(m);
    free(chat_template);
    free(messages);
    free(tools);
    return rc;
}

static const wf_opt_group *const groups[] = {&wf_group_model, &template_group, &wf_group_general, NULL};

const wf_command wf_cmd_template = {
    .name = "template",
    .usage = "[-m FILE] [--chat-template FILE] --messages FILE [options]",
    .summary = "Prints what a chat template makes of a conversation. A model file with only a vocabulary is enough, "
               "and none is needed with --chat-template.",
    .more = "Example:\n"
            "  echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' |\n"
            "    weft template -m model.gguf --messages - --add-generation-prompt\n",
    .groups = groups,
    .run = cmd_template,
};
