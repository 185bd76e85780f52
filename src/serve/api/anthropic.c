/* anthropic: Anthropic's Messages API. Blocks of content become what OpenAI's chats have in other places: system
 * prompts and results of tools are messages, calls and thoughts members of the assistant's. */
#include "serve/api/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- requests -------------------------------------------------------------------------------------------- */

static void anthropic_put_result(const wf_json *block, wf_text *out)
{
    const wf_json *content = wf_field(block, "content"), *id = wf_field(block, "tool_use_id");
    wf_json_comma(out);
    wf_json_print(out, "{'role':'tool'");
    if (id) wf_json_put_member(out, "tool_call_id", id);
    if (content) wf_json_put_member(out, "content", content);
    wf_text_add(out, "}", 1);
}

/* What a message has of thoughts and of calls, besides its content. */
static bool anthropic_put_parts(const wf_json *content, wf_text *out, wf_http_error *r)
{
    wf_text thoughts = {0}, calls = {0};
    bool ok = true;
    WF_JSON_EACH(block, content) {
        const wf_json *thought = wf_json_get(block, "thinking");
        if (wf_has_type(block, "tool_use")) wf_chat_put_call(block, "id", "input", &calls);
        if (!wf_has_type(block, "thinking")) continue;
        if (!wf_json_is(thought, WF_JSON_STRING))
            ok = wf_refuse(r, 400, "messages", "a block of type thinking must have its text as thinking");
        else wf_text_add(&thoughts, thought->text, thought->n);
    }
    if (thoughts.len) wf_json_print(out, ",'reasoning_content':%.*s", (int)thoughts.len, thoughts.data);
    if (calls.len) wf_json_print(out, ",'tool_calls':["), wf_text_add(out, calls.data, calls.len);
    if (calls.len) wf_text_add(out, "]", 1);
    out->failed |= thoughts.failed || calls.failed;
    free(thoughts.data);
    free(calls.data);
    return ok;
}

/* Results of tools are messages of their own, before what else the message has. */
static bool anthropic_put_message(const wf_json *m, wf_text *out, wf_http_error *r)
{
    const wf_json *content = wf_json_get(m, "content");
    size_t n_results = 0;
    if (!wf_json_is(content, WF_JSON_LIST)) {
        wf_json_comma(out);
        wf_json_put(out, m);
        return true;
    }
    WF_JSON_EACH(block, content)
        if (wf_has_type(block, "tool_result")) anthropic_put_result(block, out), n_results++;
    if (n_results && n_results == content->n) return true;
    wf_json_comma(out);
    wf_text_add(out, "{", 1);
    wf_json_put_member(out, "role", wf_json_get(m, "role"));
    wf_json_print(out, ",'content':[");
    WF_JSON_EACH(block, content) {
        if (wf_has_type(block, "tool_result") || wf_has_type(block, "tool_use") || wf_has_type(block, "thinking"))
            continue;
        wf_json_comma(out);
        wf_json_put(out, block); /* another type than text is refused where contents are read */
    }
    wf_text_add(out, "]", 1);
    bool ok = anthropic_put_parts(content, out, r);
    wf_text_add(out, "}", 1);
    return ok;
}

static bool anthropic_put_messages(const wf_json *body, wf_text *out, wf_http_error *r)
{
    const wf_json *messages = wf_field(body, "messages"), *system = wf_field(body, "system");
    bool ok = true;
    if (!wf_json_count(messages))
        return wf_refuse(r, 400, "messages", "messages must be a list of at least one message");
    wf_json_put_name(out, "messages");
    wf_text_add(out, "[", 1);
    if (system && !wf_json_is(system, WF_JSON_STRING) && !wf_json_is(system, WF_JSON_LIST))
        return wf_refuse(r, 400, "system", "system must be a string or a list of blocks of type text");
    if (wf_json_bytes(system) || wf_json_count(system)) {
        wf_json_print(out, "{'role':'system'");
        wf_json_put_member(out, "content", system);
        wf_text_add(out, "}", 1);
    }
    for (size_t i = 0; ok && i < wf_json_count(messages); i++)
        ok = anthropic_put_message(wf_json_at(messages, i), out, r);
    wf_text_add(out, "]", 1);
    return ok;
}

static bool anthropic_put_tool(const wf_json *tool, wf_text *out, wf_http_error *r)
{
    const char *type = wf_json_text(wf_json_get(tool, "type"));
    if (type && strcmp(type, "custom"))
        return wf_refuse(r, WF_UNSUPPORTED, "tools",
                         "tools of type '%.40s' are not supported: this server runs none, so send those of your own, "
                         "with an input_schema",
                         type);
    if (wf_json_count(wf_json_get(tool, "input_examples")) || wf_json_is_true(wf_json_get(tool, "defer_loading")))
        return wf_refuse(r, WF_UNSUPPORTED, "tools",
                         "input_examples and defer_loading of tools are not supported: leave them out");
    if (!wf_json_is(wf_json_get(tool, "input_schema"), WF_JSON_OBJECT))
        return wf_refuse(r, 400, "tools", "each of tools must be an object with a name and an input_schema");
    wf_chat_put_tool(tool, "input_schema", out);
    return true;
}

static bool anthropic_put_choice(const wf_json *choice, wf_text *out, wf_http_error *r)
{
    static const char *const words[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    const wf_json *single = wf_field(choice, "disable_parallel_tool_use");
    if (single && !wf_json_is(single, WF_JSON_BOOL))
        return wf_refuse(r, 400, "tool_choice", "disable_parallel_tool_use must be true or false");
    if (single) wf_json_print(out, ",'parallel_tool_calls':%hhd", (bool)!single->b);
    if (wf_has_type(choice, "tool")) {
        wf_chat_put_choice(choice, out);
        return true;
    }
    for (size_t i = 0; i < WF_LEN(words); i++) {
        if (!wf_has_type(choice, words[i][0])) continue;
        wf_json_print(out, ",'tool_choice':%s", words[i][1]);
        return true;
    }
    return wf_refuse(r, 400, "tool_choice", "tool_choice must be an object of type auto, any, tool or none");
}

static bool anthropic_put_tools(const wf_json *body, wf_text *out, wf_http_error *r)
{
    const wf_json *tools = wf_field(body, "tools"), *choice = wf_field(body, "tool_choice");
    bool ok = true;
    if (tools && !wf_json_is(tools, WF_JSON_LIST)) return wf_refuse(r, 400, "tools", "tools must be a list");
    if (tools) wf_json_put_name(out, "tools"), wf_text_add(out, "[", 1);
    for (size_t i = 0; ok && i < wf_json_count(tools); i++) ok = anthropic_put_tool(wf_json_at(tools, i), out, r);
    if (tools) wf_text_add(out, "]", 1);
    return ok && (!choice || anthropic_put_choice(choice, out, r));
}

/* A budget of thoughts is a part of max_tokens, which bounds them and the answer; a summary of them is all of them. */
static void anthropic_put_thinking(const wf_json *thinking, wf_text *out)
{
    if (!wf_json_is(thinking, WF_JSON_OBJECT)) {
        wf_json_put_member(out, "thinking", thinking);
        return;
    }
    wf_json_put_name(out, "thinking");
    wf_text_add(out, "{", 1);
    WF_JSON_EACH_MEMBER(m, thinking) {
        const char *text = wf_json_text(&m->value);
        if (!strcmp(m->name.text, "budget_tokens") ||
            (!strcmp(m->name.text, "display") && text && !strcmp(text, "summarized")))
            continue;
        wf_json_put_member(out, m->name.text, &m->value);
    }
    wf_text_add(out, "}", 1);
}

static bool anthropic_translate(wf_job *j, const wf_json *body, wf_text *out)
{
    wf_http_error *r = &j->refusal;
    const wf_json *stop = wf_field(body, "stop_sequences"), *thinking = wf_field(body, "thinking");
    bool counts = j->route->answer;
    if (!wf_fields_pass(body, WF_OF_MESSAGES, out, r)) return false;
    if (!counts && !wf_field(body, "max_tokens")) return wf_refuse(r, 400, "max_tokens", "max_tokens is missing");
    if (stop && !wf_json_is(stop, WF_JSON_LIST))
        return wf_refuse(r, 400, "stop_sequences", "stop_sequences must be a list of strings");
    if (stop) wf_json_put_member(out, "stop", stop);
    if (thinking) anthropic_put_thinking(thinking, out);
    if (!anthropic_put_messages(body, out, r) || !anthropic_put_tools(body, out, r)) return false;
    const wf_json *config = wf_field(body, "output_config"), *effort = wf_field(config, "effort"),
                  *format = wf_field(body, "output_format");
    if (config && !wf_json_is(config, WF_JSON_OBJECT))
        return wf_refuse(r, 400, "output_config", "output_config must be an object with a format or an effort");
    if (effort) wf_json_put_member(out, "reasoning_effort", effort);
    if (!format) format = wf_field(config, "format");
    if (format) wf_json_put_member(out, "response_format", format);
    return true;
}

/* ---- replies --------------------------------------------------------------------------------------------- */

static void anthropic_put_refusal(wf_text *out, const wf_http_error *r)
{
    static const struct {
        int status;
        const char *type;
    } types[] = {{401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
                 {413, "request_too_large"},    {503, "overloaded_error"}, {504, "timeout_error"}};
    const char *type = r->status < 500 ? "invalid_request_error" : "api_error";
    for (size_t i = 0; i < WF_LEN(types); i++)
        if (types[i].status == r->status) type = types[i].type;
    wf_json_print(out, "{'type':'error','error':{'type':%s,'message':%s}}", type, r->message);
}

/* Tokens from the prefix cache are counted apart. */
static void anthropic_put_usage(const wf_choice *c, wf_text *out)
{
    wf_json_print(out,
                  "{'input_tokens':%zu,'cache_creation_input_tokens':0,'cache_read_input_tokens':%zu,"
                  "'output_tokens':%zu}",
                  c->job->params.prompts[0].n - c->cached, c->cached, c->generated);
}

static void anthropic_put_end(const wf_choice *c, wf_text *out)
{
    uint32_t stop = c->end.stop_text;
    const char *reason = c->end.finish == WEFT_FINISH_CONTEXT ? "model_context_window_exceeded" : "max_tokens";
    if (c->end.finish == WEFT_FINISH_STOP) reason = c->n_calls ? "tool_use" : stop ? "stop_sequence" : "end_turn";
    wf_json_print(out, "'stop_reason':%s,'stop_sequence':%s", reason,
                  stop && !c->n_calls ? c->job->params.stop[stop - 1] : NULL);
}

static void anthropic_put_head(const wf_job *j, wf_text *out)
{
    wf_text_print(out, "{\"id\":\"msg_%s\"", j->id);
    wf_json_print(out, ",'type':'message','role':'assistant','model':%s,'content':[",
                  *j->params.model ? j->params.model : j->served->name);
}

static void anthropic_put_block(const wf_choice *c, const wf_block *b, wf_text *out)
{
    int n = (int)b->text.n;
    (void)c;
    if (b->kind == WF_BLOCK_TEXT) wf_json_print(out, "{'type':'text','text':%.*s}", n, b->text.p);
    else if (b->kind == WF_BLOCK_THOUGHT)
        wf_json_print(out, "{'type':'thinking','thinking':%.*s,'signature':''}", n, b->text.p);
    else {
        wf_json_print(out, "{'type':'tool_use','id':%.*s,'name':%.*s,'input':", (int)b->id.n, b->id.p, (int)b->name.n,
                      b->name.p);
        wf_text_add(out, b->text.p, b->text.n);
        wf_text_add(out, "}", 1);
    }
}

static void anthropic_put_reply(const wf_choice *c, wf_text *out)
{
    anthropic_put_head(c->job, out);
    wf_text_add(out, c->blocks.done.data, c->blocks.done.len);
    wf_text_add(out, "],", 2);
    anthropic_put_end(c, out);
    wf_json_print(out, ",'usage':");
    anthropic_put_usage(c, out);
    wf_text_add(out, "}", 1);
}

/* ---- streams --------------------------------------------------------------------------------------------- */

static wf_text *anthropic_begin_event(wf_choice *c, const char *type)
{
    wf_text *out = &c->job->out;
    wf_text_print(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
    return out;
}

static void anthropic_end_event(wf_text *out) { wf_text_add(out, "}\n\n", 3); }

static void anthropic_stream_begin(wf_choice *c)
{
    wf_text *out = anthropic_begin_event(c, "message_start");
    wf_json_print(out, ",'message':");
    anthropic_put_head(c->job, out);
    wf_json_print(out, "],'stop_reason':null,'stop_sequence':null,'usage':");
    anthropic_put_usage(c, out);
    wf_text_add(out, "}", 1);
    anthropic_end_event(out);
}

static void anthropic_stream_block_begin(wf_choice *c, const wf_block *b)
{
    wf_block empty = *b;
    wf_text *out = anthropic_begin_event(c, "content_block_start");
    empty.text = b->kind == WF_BLOCK_CALL ? (wf_slice){"{}", 2} : (wf_slice){"", 0};
    wf_json_print(out, ",'index':%u,'content_block':", b->index);
    anthropic_put_block(c, &empty, out);
    anthropic_end_event(out);
}

static void anthropic_stream_delta(wf_choice *c, const wf_block *b, wf_slice text)
{
    wf_text *out = anthropic_begin_event(c, "content_block_delta");
    int n = (int)text.n;
    wf_json_print(out, ",'index':%u,'delta':", b->index);
    if (b->kind == WF_BLOCK_TEXT) wf_json_print(out, "{'type':'text_delta','text':%.*s}", n, text.p);
    else if (b->kind == WF_BLOCK_THOUGHT)
        wf_json_print(out, "{'type':'thinking_delta','thinking':%.*s}", n, text.p);
    else wf_json_print(out, "{'type':'input_json_delta','partial_json':%.*s}", n, text.p);
    anthropic_end_event(out);
}

static void anthropic_stream_block_end(wf_choice *c, const wf_block *b)
{
    wf_text *out = anthropic_begin_event(c, "content_block_stop");
    wf_json_print(out, ",'index':%u", b->index);
    anthropic_end_event(out);
}

static void anthropic_stream_end(wf_choice *c, const wf_http_error *failed)
{
    wf_text *out = &c->job->out;
    if (failed) {
        wf_text_print(out, "event: error\ndata: ");
        anthropic_put_refusal(out, failed);
        wf_text_add(out, "\n\n", 2);
        return;
    }
    anthropic_begin_event(c, "message_delta");
    wf_json_print(out, ",'delta':{");
    anthropic_put_end(c, out);
    wf_json_print(out, "},'usage':");
    anthropic_put_usage(c, out);
    anthropic_end_event(out);
    anthropic_begin_event(c, "message_stop");
    anthropic_end_event(out);
}

const wf_api wf_api_anthropic = {.translate = anthropic_translate,
                                 .put_refusal = anthropic_put_refusal,
                                 .apart = true,
                                 .put_block = anthropic_put_block,
                                 .put_reply = anthropic_put_reply,
                                 .stream_type = WF_SSE_TYPE,
                                 .silence = "event: ping\ndata: {\"type\":\"ping\"}\n\n",
                                 .begin = anthropic_stream_begin,
                                 .block_begin = anthropic_stream_block_begin,
                                 .delta = anthropic_stream_delta,
                                 .block_end = anthropic_stream_block_end,
                                 .end = anthropic_stream_end};

bool wf_anthropic_count(wf_job *j, wf_text *out)
{
    wf_json_print(out, "{'input_tokens':%zu}", j->params.prompts[0].n);
    return true;
}
