/* responses: OpenAI's Responses API, of which nothing is kept: a request has the whole conversation. Items of thoughts,
 * text and calls that follow each other are one message of a chat's assistant. */
#include "serve/api/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- requests -------------------------------------------------------------------------------------------- */

typedef struct writer { /* of messages; the texts are those of an assistant's that goes on */
    wf_text *out, content, thoughts, calls;
    wf_http_error *r;
} writer;

static void responses_put_list(wf_text *out, const char *name, wf_text *list)
{
    if (!list->len) return;
    wf_json_put_name(out, name);
    wf_text_add(out, "[", 1);
    wf_text_add(out, list->data, list->len);
    wf_text_add(out, "]", 1);
}

/* Writes the assistant's message, if one goes on. */
static void responses_flush(writer *w)
{
    wf_text *all[] = {&w->content, &w->thoughts, &w->calls};
    if (w->content.len || w->thoughts.len || w->calls.len) {
        wf_json_comma(w->out);
        wf_json_print(w->out, "{'role':'assistant'");
        responses_put_list(w->out, "content", &w->content);
        if (w->thoughts.len)
            wf_json_print(w->out, ",'reasoning_content':%.*s", (int)w->thoughts.len, w->thoughts.data);
        responses_put_list(w->out, "tool_calls", &w->calls);
        wf_text_add(w->out, "}", 1);
    }
    for (size_t i = 0; i < WF_LEN(all); i++) {
        w->out->failed |= all[i]->failed;
        free(all[i]->data);
        *all[i] = (wf_text){0};
    }
}

/* Parts of content, without brackets: another type than text is refused where contents are read. */
static void responses_put_parts(const wf_json *content, wf_text *out)
{
    if (wf_json_is(content, WF_JSON_STRING)) {
        wf_json_comma(out);
        wf_json_print(out, "{'type':'text','text':%s}", content->text);
    }
    WF_JSON_EACH(part, content) {
        wf_json_comma(out);
        if (wf_has_type(part, "input_text") || wf_has_type(part, "output_text")) {
            wf_json_print(out, "{'type':'text'");
            wf_json_put_member(out, "text", wf_json_get(part, "text"));
            wf_text_add(out, "}", 1);
        } else wf_json_put(out, part);
    }
}

static bool responses_put_item(writer *w, const wf_json *item)
{
    const char *type = wf_json_text(wf_json_get(item, "type"));
    if (!type && !wf_json_get(item, "role"))
        return wf_refuse(w->r, 400, "input", "each item of input must be an object with a type, or a role");
    if (!type || !strcmp(type, "message")) {
        const wf_json *role = wf_json_get(item, "role"), *content = wf_field(item, "content");
        if (content && !wf_json_is(content, WF_JSON_STRING) && !wf_json_is(content, WF_JSON_LIST))
            return wf_refuse(w->r, 400, "input", "content of a message must be a string or a list of parts");
        bool assistant = wf_json_text(role) && !strcmp(wf_json_text(role), "assistant");
        if (!assistant || w->content.len || w->calls.len) responses_flush(w);
        if (assistant) {
            responses_put_parts(content, &w->content);
            return true;
        }
        wf_json_comma(w->out);
        wf_text_add(w->out, "{", 1);
        wf_json_put_member(w->out, "role", role);
        wf_json_print(w->out, ",'content':[");
        responses_put_parts(content, w->out);
        wf_text_add(w->out, "]}", 2);
        return true;
    }
    if (!strcmp(type, "function_call")) wf_chat_put_call(item, "call_id", "arguments", &w->calls);
    else if (!strcmp(type, "function_call_output")) {
        responses_flush(w);
        wf_json_comma(w->out);
        wf_json_print(w->out, "{'role':'tool'");
        wf_json_put_member(w->out, "tool_call_id", wf_json_get(item, "call_id"));
        wf_json_print(w->out, ",'content':[");
        responses_put_parts(wf_json_get(item, "output"), w->out);
        wf_text_add(w->out, "]}", 2);
    } else if (!strcmp(type, "reasoning")) {
        /* Their text or, where there is none, its summary. */
        const wf_json *content = wf_field(item, "content"), *list = content ? content : wf_field(item, "summary");
        if (w->content.len || w->calls.len) responses_flush(w);
        WF_JSON_EACH(part, list) {
            const wf_json *text = wf_json_get(part, "text");
            if (wf_json_bytes(text)) wf_text_add(&w->thoughts, text->text, text->n);
        }
    } else
        return wf_refuse(w->r, WF_UNSUPPORTED, "input",
                         "items of type '%.40s' are not supported, only message, reasoning, function_call and "
                         "function_call_output: leave it out",
                         type);
    return true;
}

static bool responses_put_tools(const wf_json *body, wf_text *out, wf_http_error *r)
{
    const wf_json *tools = wf_field(body, "tools"), *choice = wf_field(body, "tool_choice");
    if (tools && !wf_json_is(tools, WF_JSON_LIST)) return wf_refuse(r, 400, "tools", "tools must be a list");
    if (tools) wf_json_put_name(out, "tools"), wf_text_add(out, "[", 1);
    WF_JSON_EACH(tool, tools) {
        const char *type = wf_json_text(wf_json_get(tool, "type"));
        if (!type || strcmp(type, "function"))
            return wf_refuse(r, WF_UNSUPPORTED, "tools",
                             "tools of type '%.40s' are not supported, only function: this server runs none",
                             type ? type : "");
        wf_chat_put_tool(tool, "parameters", out);
    }
    if (tools) wf_text_add(out, "]", 1);
    if (wf_has_type(choice, "function")) wf_chat_put_choice(choice, out);
    else if (wf_json_is(choice, WF_JSON_STRING)) wf_json_put_member(out, "tool_choice", choice);
    else if (choice)
        return wf_refuse(r, WF_UNSUPPORTED, "tool_choice",
                         "tool_choice must be auto, none, required, or an object of type function with a name");
    return true;
}

/* Objects whose members are fields of chats. */
static bool responses_put_members(const wf_json *body, wf_text *out, wf_http_error *r)
{
    static const struct {
        const char *object, *member, *as; /* as NULL: it changes no answer */
    } known[] = {{"text", "format", "response_format"}, {"text", "verbosity", "verbosity"},
                 {"reasoning", "effort", "reasoning_effort"}, {"reasoning", "summary", NULL},
                 {"reasoning", "generate_summary", NULL}};
    static const char *const objects[] = {"text", "reasoning"};
    for (size_t k = 0; k < WF_LEN(objects); k++) {
        const wf_json *v = wf_field(body, objects[k]);
        if (v && !wf_json_is(v, WF_JSON_OBJECT))
            return wf_refuse(r, 400, objects[k], "%s must be an object", objects[k]);
        WF_JSON_EACH_MEMBER(m, v) {
            size_t i = 0;
            if (wf_json_absent(&m->value)) continue;
            while (i < WF_LEN(known) && (strcmp(known[i].object, objects[k]) || strcmp(known[i].member, m->name.text)))
                i++;
            if (i == WF_LEN(known))
                return wf_refuse(r, WF_UNSUPPORTED, objects[k], "%s with %.40s is not supported: leave it out",
                                 objects[k], m->name.text);
            if (known[i].as) wf_json_put_member(out, known[i].as, &m->value);
        }
    }
    return true;
}

/* It comes back with each state of the response: as much as OpenAI's API takes. */
static bool responses_check_metadata(const wf_json *v, wf_http_error *r)
{
    enum { MOST = 16, NAME = 64, VALUE = 512 };
    bool fits = !v || (wf_json_is(v, WF_JSON_OBJECT) && v->n <= MOST);
    if (fits)
        WF_JSON_EACH_MEMBER(m, v) fits &= m->name.n <= NAME && wf_json_text(&m->value) && m->value.n <= VALUE;
    return fits || wf_refuse(r, 400, "metadata",
                             "metadata must be an object of at most %d strings of %d bytes, with names of %d", MOST,
                             VALUE, NAME);
}

static bool responses_translate(wf_job *j, const wf_json *body, wf_text *out)
{
    wf_http_error *r = &j->refusal;
    if (!wf_fields_pass(body, WF_OF_RESPONSES, out, r)) return false;
    if (!responses_check_metadata(wf_field(body, "metadata"), r)) return false;
    WF_JSON_EACH(one, wf_field(body, "include"))
        if (!wf_json_text(one) || strcmp(one->text, "reasoning.encrypted_content"))
            return wf_refuse(r, WF_UNSUPPORTED, "include",
                             "include with '%.40s' is not supported: leave it out; thoughts come as they are",
                             wf_json_text(one) ? one->text : "");
    if (!responses_put_members(body, out, r) || !responses_put_tools(body, out, r)) return false;
    const wf_json *input = wf_field(body, "input"), *system = wf_field(body, "instructions");
    writer w = {.out = out, .r = r};
    bool ok = true;
    if (!wf_json_is(input, WF_JSON_STRING) && !wf_json_count(input))
        return wf_refuse(r, 400, "input", "input must be a string, or a list of at least one item");
    if (system && !wf_json_is(system, WF_JSON_STRING))
        return wf_refuse(r, 400, "instructions", "instructions must be a string");
    wf_json_put_name(out, "add_generation_prompt");
    wf_json_print(out, "true,'messages':[");
    if (system) wf_json_print(out, "{'role':'system','content':%s}", system->text);
    if (wf_json_is(input, WF_JSON_STRING)) wf_json_comma(out);
    if (wf_json_is(input, WF_JSON_STRING)) wf_json_print(out, "{'role':'user','content':%s}", input->text);
    for (size_t i = 0; ok && i < wf_json_count(input); i++) ok = responses_put_item(&w, wf_json_at(input, i));
    responses_flush(&w);
    wf_text_add(out, "]", 1);
    if (!ok) return false;
    static const char *const members[][2] = {
        {"instructions", "null"}, {"max_output_tokens", "null"}, {"metadata", "{}"}, {"tool_choice", "\"auto\""},
        {"tools", "[]"}};
    for (size_t i = 0; i < WF_LEN(members); i++) {
        const wf_json *v = wf_field(body, members[i][0]);
        wf_text_print(&j->params.echoed, ",\"%s\":", members[i][0]);
        if (v) wf_json_put(&j->params.echoed, v);
        else wf_text_add(&j->params.echoed, members[i][1], strlen(members[i][1]));
    }
    return !j->params.echoed.failed || wf_refuse(r, 500, "", "out of memory for the request");
}

/* ---- replies --------------------------------------------------------------------------------------------- */

/* An item without its content or arguments, and without what closes it. */
static void responses_put_item_head(const wf_choice *c, const wf_block *b, const char *status, wf_text *out)
{
    static const char *const kinds[][2] = {[WF_BLOCK_TEXT] = {"msg", "message"},
                                           [WF_BLOCK_THOUGHT] = {"rs", "reasoning"},
                                           [WF_BLOCK_CALL] = {"fc", "function_call"}};
    wf_text_print(out, "{\"id\":\"%s_%s%u\",\"type\":\"%s\",\"status\":\"%s\"", kinds[b->kind][0], c->job->id, b->index,
                  kinds[b->kind][1], status);
    if (b->kind == WF_BLOCK_TEXT) wf_json_print(out, ",'role':'assistant'");
    if (b->kind == WF_BLOCK_THOUGHT) wf_json_print(out, ",'summary':[]");
    if (b->kind == WF_BLOCK_CALL)
        wf_json_print(out, ",'call_id':%.*s,'name':%.*s", (int)b->id.n, b->id.p, (int)b->name.n, b->name.p);
}

static void responses_put_part(const wf_block *b, wf_slice text, wf_text *out)
{
    if (b->kind == WF_BLOCK_TEXT)
        wf_json_print(out, "{'type':'output_text','annotations':[],'logprobs':[],'text':%.*s}", (int)text.n, text.p);
    else wf_json_print(out, "{'type':'reasoning_text','text':%.*s}", (int)text.n, text.p);
}

static void responses_put_block(const wf_choice *c, const wf_block *b, wf_text *out)
{
    responses_put_item_head(c, b, "completed", out);
    if (b->kind == WF_BLOCK_CALL) {
        wf_json_print(out, ",'arguments':%.*s}", (int)b->text.n, b->text.p);
        return;
    }
    wf_json_print(out, ",'content':[");
    responses_put_part(b, b->text, out);
    wf_text_add(out, "]}", 2);
}

/* status NULL: as it has ended. */
static void responses_put_response(const wf_choice *c, const char *status, const wf_http_error *failed, wf_text *out)
{
    const wf_job *j = c->job;
    const wf_params *p = &j->params;
    bool ended = !status, cut = ended && c->end.finish != WEFT_FINISH_STOP;
    wf_text_print(out, "{\"id\":\"resp_%s\"", j->id);
    wf_json_print(out, ",'object':'response','created_at':%lld,'status':%s,'model':%s,'error':", (long long)j->created,
                  ended ? cut ? "incomplete" : "completed" : status, *p->model ? p->model : j->served->name);
    if (failed) wf_json_print(out, "{'code':'server_error','message':%s}", failed->message);
    else wf_text_add(out, "null", 4);
    wf_json_print(out, ",'incomplete_details':");
    if (cut) wf_json_print(out, "{'reason':'max_output_tokens'}");
    else wf_text_add(out, "null", 4);
    wf_text_add(out, p->echoed.data, p->echoed.len);
    wf_json_print(out, ",'parallel_tool_calls':%hhd,'previous_response_id':null,'store':false,'temperature':%.6g,"
                  "'top_p':%.6g,'output':[",
                  (bool)!p->one_call, (double)p->sampling.temperature, (double)p->sampling.top_p);
    wf_text_add(out, c->blocks.done.data, c->blocks.done.len);
    wf_json_print(out, "],'usage':");
    if (ended) {
        size_t input = c->job->params.prompts[0].n;
        wf_json_print(out,
                      "{'input_tokens':%zu,'input_tokens_details':{'cached_tokens':%zu},'output_tokens':%zu,"
                      "'output_tokens_details':{'reasoning_tokens':%zu},'total_tokens':%zu}",
                      input, c->cached, c->generated, c->reasoning, input + c->generated);
    } else wf_text_add(out, "null", 4);
    wf_text_add(out, "}", 1);
}

static void responses_put_reply(const wf_choice *c, wf_text *out) { responses_put_response(c, NULL, NULL, out); }

/* ---- streams --------------------------------------------------------------------------------------------- */

static wf_text *responses_begin_event(wf_choice *c, const char *type)
{
    wf_text *out = &c->job->out;
    wf_text_print(out, "event: response.%s\ndata: {\"type\":\"response.%s\",\"sequence_number\":%u", type, type,
                  c->blocks.n_events++);
    return out;
}

static void responses_end_event(wf_text *out) { wf_text_add(out, "}\n\n", 3); }

/* One of the whole response. */
static void responses_put_state(wf_choice *c, const char *type, const char *status, const wf_http_error *failed)
{
    wf_text *out = responses_begin_event(c, type);
    wf_json_put_name(out, "response");
    responses_put_response(c, status, failed, out);
    responses_end_event(out);
}

static void responses_stream_begin(wf_choice *c)
{
    responses_put_state(c, "created", "in_progress", NULL);
    responses_put_state(c, "in_progress", "in_progress", NULL);
}

/* One of an item, up to what is new; of its only part, unless it is a call. */
static wf_text *responses_begin_part(wf_choice *c, const wf_block *b, const char *type)
{
    static const char *const ids[] = {[WF_BLOCK_TEXT] = "msg", [WF_BLOCK_THOUGHT] = "rs", [WF_BLOCK_CALL] = "fc"};
    wf_text *out = responses_begin_event(c, type);
    wf_text_print(out, ",\"item_id\":\"%s_%s%u\",\"output_index\":%u", ids[b->kind], c->job->id, b->index, b->index);
    if (b->kind != WF_BLOCK_CALL) wf_json_print(out, ",'content_index':0");
    return out;
}

static void responses_stream_block_begin(wf_choice *c, const wf_block *b)
{
    wf_text *out = responses_begin_event(c, "output_item.added");
    wf_json_print(out, ",'output_index':%u,'item':", b->index);
    responses_put_item_head(c, b, "in_progress", out);
    wf_json_print(out, b->kind == WF_BLOCK_CALL ? ",'arguments':''}" : ",'content':[]}");
    responses_end_event(out);
    if (b->kind == WF_BLOCK_CALL) return;
    responses_begin_part(c, b, "content_part.added");
    wf_json_put_name(out, "part");
    responses_put_part(b, (wf_slice){"", 0}, out);
    responses_end_event(out);
}

static void responses_stream_delta(wf_choice *c, const wf_block *b, wf_slice text)
{
    wf_text *out = responses_begin_part(c, b,
                              b->kind == WF_BLOCK_TEXT      ? "output_text.delta"
                              : b->kind == WF_BLOCK_THOUGHT ? "reasoning_text.delta"
                                                            : "function_call_arguments.delta");
    if (b->kind == WF_BLOCK_TEXT) wf_json_print(out, ",'logprobs':[]");
    wf_json_print(out, ",'delta':%.*s", (int)text.n, text.p);
    responses_end_event(out);
}

static void responses_stream_block_end(wf_choice *c, const wf_block *b)
{
    bool text = b->kind == WF_BLOCK_TEXT, call = b->kind == WF_BLOCK_CALL;
    const char *type = text ? "output_text.done" : call ? "function_call_arguments.done" : "reasoning_text.done";
    wf_text *out = responses_begin_part(c, b, type);
    if (text) wf_json_print(out, ",'logprobs':[]");
    if (call) wf_json_print(out, ",'name':%.*s", (int)b->name.n, b->name.p);
    wf_json_put_name(out, call ? "arguments" : "text");
    wf_json_put_string(out, b->text.p, b->text.n);
    responses_end_event(out);
    if (!call) {
        responses_begin_part(c, b, "content_part.done");
        wf_json_put_name(out, "part");
        responses_put_part(b, b->text, out);
        responses_end_event(out);
    }
    responses_begin_event(c, "output_item.done");
    wf_json_print(out, ",'output_index':%u,'item':", b->index);
    responses_put_block(c, b, out);
    responses_end_event(out);
}

static void responses_stream_end(wf_choice *c, const wf_http_error *failed)
{
    bool cut = !failed && c->end.finish != WEFT_FINISH_STOP;
    responses_put_state(c, failed ? "failed" : cut ? "incomplete" : "completed", failed ? "failed" : NULL, failed);
}

const wf_api wf_api_responses = {.translate = responses_translate,
                                 .put_refusal = wf_refusal_put,
                                 .apart = true,
                                 .keeps = true,
                                 .put_block = responses_put_block,
                                 .put_reply = responses_put_reply,
                                 .stream_type = WF_SSE_TYPE,
                                 .silence = ": waiting\n\n",
                                 .begin = responses_stream_begin,
                                 .block_begin = responses_stream_block_begin,
                                 .delta = responses_stream_delta,
                                 .block_end = responses_stream_block_end,
                                 .end = responses_stream_end};
