/* tool_kinds: the ways in which models write calls, and which one a chat template shows. */
#include "answers/tool_calls.h"

#include <string.h>

#define DEEPSEEK_WRAP {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"}
#define DSML          "｜DSML｜"
#define DSML_CALL(around)                                                                                              \
    .open = "<" DSML "invoke name=\"", .behind_name = "\">", .close = "</" DSML "invoke>",                             \
    .wrap = {"<" DSML around ">", "</" DSML around ">"},                                                               \
    .tags = {.key = "<" DSML "parameter name=\"",                                                                      \
             .behind_key = "\" string=\"",                                                                             \
             .string = "true",                                                                                         \
             .value = "\">",                                                                                           \
             .end = "</" DSML "parameter>"}
#define MINIMAX "]<]minimax[>["

/* The first row whose signs a template has: where two kinds share a marker, the one that has more stands first. */
static const wf_call_kind kinds[] = {
    {.name = "qwen3_coder", .signs = {"<function="}, .open = "<function=", .behind_name = ">",
     .tags = {.key = "<parameter=", .behind_key = ">", .end = "</parameter>", .lines = true}, .close = "</function>",
     .wrap = {"<tool_call>", "</tool_call>"}},
    {.name = "deepseek_v32", .signs = {DSML, "function_calls>"}, DSML_CALL("function_calls")},
    {.name = "deepseek_v4", .signs = {DSML}, DSML_CALL("tool_calls")},
    {.name = "muse_glimmer", .signs = {"<atem:invoke name="}, .open = "<atem:invoke name=\"", .behind_name = "\">",
     .tags = {.key = "<atem:parameter name=\"", .behind_key = "\">", .end = "</atem:parameter>"},
     .close = "</atem:invoke>", .wrap = {"<atem:function_calls>", "</atem:function_calls>"}},
    {.name = "hy_v3", .signs = {":opensource", "<tool_sep"}, .open = "<tool_call:opensource>",
     .behind_name = "<tool_sep:opensource>",
     .tags = {.key = "<arg_key:opensource>", .behind_key = "</arg_key:opensource>", .value = "<arg_value:opensource>",
              .end = "</arg_value:opensource>"},
     .close = "</tool_call:opensource>", .wrap = {"<tool_calls:opensource>", "</tool_calls:opensource>"}},
    {.name = "minimax_m3", .signs = {MINIMAX}, .open = MINIMAX "<invoke name=\"", .form = wf_form_minimax,
     .may_lack = true, .close = MINIMAX "</invoke>", .wrap = {MINIMAX "<tool_call>", MINIMAX "</tool_call>"}},
    {.name = "kimi_k3", .signs = {"<|open|>"}, .open = "<|open|>call tool=\"", .form = wf_form_kimi, .may_lack = true,
     .close = "<|close|>call<|sep|>", .wrap = {"<|open|>tools<|sep|>", "<|close|>tools<|sep|>"}},
    {.name = "gemma4", .signs = {"<|tool_call>call:"}, .open = "<|tool_call>call:", .form = wf_form_gemma,
     .close = "<tool_call|>", .quote = "<|\"|>"},
    {.name = "lfm2", .signs = {"List of tools: ["}, .open = "<|tool_call_start|>", .form = wf_form_python,
     .close = "<|tool_call_end|>"},
    {.name = "apertus", .signs = {"<|tools_prefix|>"}, .open = "<|tools_prefix|>", .keyed = true,
     .close = "<|tools_suffix|>"},
    {.name = "solar_open", .signs = {"<|tool_call:args|>"}, .open = "<|tool_call:begin|>",
     .behind_id = "<|tool_call:name|>", .behind_name = "<|tool_call:args|>", .close = "<|tool_call:end|>",
     .wrap = {"<|tool_calls|>", "<|calls|>"}, .id = WF_ID_OWN},
    {.name = "gigachat3", .signs = {"'role': 'function call'"}, .open = "function call<|role_sep|>",
     .close = "<|message_sep|>", .wrap = {"<|message_sep|>", NULL}},
    {.name = "gigachat31", .signs = {"<|function_call|>"}, .open = "<|function_call|>"},
    {.name = "functionary_v3", .signs = {">>>all"}, .open = ">>>", .behind_name = "\n"},
    {.name = "minimax_m2", .signs = {"<invoke name=", "<parameter name="}, .open = "<invoke name=\"",
     .behind_name = "\">", .tags = {.key = "<parameter name=\"", .behind_key = "\">", .end = "</parameter>"},
     .close = "</invoke>", .wrap = {"<minimax:tool_call>", "</minimax:tool_call>"}},
    {.name = "glm45", .signs = {"<arg_key>"}, .open = "<tool_call>",
     .tags = {.key = "<arg_key>", .behind_key = "</arg_key>", .value = "<arg_value>", .end = "</arg_value>"},
     .close = "</tool_call>"},
    {.name = "minicpm5", .signs = {"<function name"}, .open = "<function name=\"", .behind_name = "\">",
     .tags = {.key = "<param name=\"", .behind_key = "\">", .end = "</param>", .raw = {"<![CDATA[", "]]>"}},
     .close = "</function>"},
    {.name = "openai", .signs = {"<|channel|>analysis"}, .channels = true},
    {.name = "kimi_k2", .signs = {"<|tool_call_argument_begin|>"}, .open = "<|tool_call_begin|>",
     .behind_name = "<|tool_call_argument_begin|>", .close = "<|tool_call_end|>",
     .wrap = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"}, .id = WF_ID_OWN},
    {.name = "deepseek_v3", .signs = {"<｜tool▁call▁begin｜>", "```json"},
     .open = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", .behind_name = "\n```json\n", .close = "\n```<｜tool▁call▁end｜>",
     .wrap = DEEPSEEK_WRAP},
    {.name = "deepseek_v31", .signs = {"<｜tool▁call▁begin｜>"}, .open = "<｜tool▁call▁begin｜>",
     .behind_name = "<｜tool▁sep｜>", .close = "<｜tool▁call▁end｜>", .wrap = DEEPSEEK_WRAP},
    {.name = "mistral", .signs = {"[TOOL_CALLS]"}, .open = "[TOOL_CALLS]", .behind_name = "[ARGS]", .id = WF_ID_NINE},
    {.name = "nemotron", .signs = {"<TOOLCALL>"}, .open = "<TOOLCALL>", .close = "</TOOLCALL>"},
    {.name = "apriel", .signs = {"<tool_calls>["}, .open = "<tool_calls>", .close = "</tool_calls>"},
    {.name = "phi4_mini_json", .signs = {"<|/tool_call|>"}, .open = "<|tool_call|>", .close = "<|/tool_call|>"},
    {.name = "granite", .signs = {"<|tool_call|>"}, .open = "<|tool_call|>"},
    {.name = "firefunction", .signs = {"functools["}, .open = "functools"},
    {.name = "cohere", .signs = {"<|START_ACTION|>"}, .open = "<|START_ACTION|>", .close = "<|END_ACTION|>"},
    {.name = "command_r", .signs = {"Action:\\n```json\\n"}, .open = "Action:", .behind_open = "```json",
     .close = "```", .only_tools = true},
    {.name = "hermes", .signs = {"<tool_call>"}, .open = "<tool_call>", .close = "</tool_call>",
     .bare = "\"name\""}, /* Qwen 2.5 */
    {.name = "llama3_json", .signs = {"{\"name\": function name, \"parameters\":"}, .open = "<|python_tag|>",
     .only_tools = true, .bare = ""},
};

void wf_call_markers(const wf_call_kind *k, const char *out[WF_CALL_MARKERS + 1])
{
    const char *const all[WF_CALL_MARKERS] = {
        k->open,    k->behind_open, k->behind_id,       k->behind_name, k->close,    k->wrap[0],
        k->wrap[1], k->tags.key,    k->tags.behind_key, k->tags.value,  k->tags.end, k->quote};
    size_t n = 0;
    for (size_t i = 0; i < WF_CALL_MARKERS; i++)
        if (all[i]) out[n++] = all[i];
    out[n] = NULL;
}

const char *wf_call_begin(const wf_call_kind *k)
{
    return k->channels || (k->bare && !*k->bare) ? NULL : k->wrap[0] ? k->wrap[0] : k->open;
}

const wf_call_kind *wf_call_kind_named(const char *name)
{
    for (size_t i = 0; i < WF_LEN(kinds); i++)
        if (!strcmp(kinds[i].name, name)) return &kinds[i];
    return NULL;
}

void wf_call_kinds_list(char *out, size_t cap)
{
    *out = 0;
    for (size_t i = 0; i < WF_LEN(kinds); i++) wf_list_name(out, cap, kinds[i].name);
}

const wf_call_kind *wf_call_kind_of(const char *chat_template)
{
    for (size_t i = 0; i < WF_LEN(kinds); i++) {
        const char *const *s = kinds[i].signs;
        if (strstr(chat_template, s[0]) && (!s[1] || strstr(chat_template, s[1]))) return &kinds[i];
    }
    return NULL;
}
