/* reply: results of the engine as OpenAI's JSON. */
#include "serve/api/internal.h"
#include "answers/answer.h"

#include <stdlib.h>
#include <string.h>

bool wf_reply_is_cut(const struct weft_event *end) { return end->finish != WEFT_FINISH_STOP || end->id < 0; }

const char *wf_reply_finish_of(enum weft_finish f, unsigned n_calls)
{
    return f == WEFT_FINISH_STOP ? (n_calls ? "tool_calls" : "stop") : f == WEFT_FINISH_CANCEL ? "abort" : "length";
}

const char *wf_reply_model(const wf_job *j) { return *j->params.model ? j->params.model : j->served->name; }

void wf_reply_head(const wf_job *j, bool chunk, wf_text *out)
{
    bool chat = j->params.chat;
    const char *object = !chat ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
    wf_text_print(out, "{\"id\":\"%s%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", chat ? "chatcmpl-" : "cmpl-",
                  j->id, object, (long long)j->created);
    wf_json_print(out, "%s", wf_reply_model(j));
}

/* Each prompt counts once, whatever its number of choices. */
void wf_reply_usage(const wf_job *j, wf_text *out)
{
    size_t prompt = 0, completion = 0, cached = 0, reasoning = 0;
    for (size_t i = 0; i < j->params.n_prompts; i++) {
        prompt += j->params.prompts[i].n;
        cached += j->choices[i * (size_t)j->params.n].cached;
    }
    for (size_t i = 0; i < j->n_choices; i++)
        completion += j->choices[i].generated, reasoning += j->choices[i].reasoning;
    wf_json_print(out,
                  "{'prompt_tokens':%zu,'completion_tokens':%zu,'total_tokens':%zu,'prompt_tokens_details':{'cached_"
                  "tokens':%zu}",
                  prompt, completion, prompt + completion, cached);
    if (j->params.thoughts) wf_json_print(out, ",'completion_tokens_details':{'reasoning_tokens':%zu}", reasoning);
    wf_text_add(out, "}", 1);
}

/* ---- calls of tools -------------------------------------------------------------------------------------- */

wf_slice wf_reply_call_id(const wf_job *j, wf_slice id, char made[40])
{
    if (id.n) return id;
    /* As long as templates want it, which get it back. */
    enum wf_call_id kind = j->params.calls && j->params.calls->calls ? j->params.calls->calls->id : WF_ID_ANY;
    char hex[33];
    wf_random_hex(hex);
    if (kind == WF_ID_NINE) hex[9] = 0;
    wf_copy(made, 40, kind == WF_ID_NINE ? "" : "call_");
    wf_copy(made + strlen(made), 40 - strlen(made), hex);
    return (wf_slice){made, strlen(made)};
}

/* ---- whole answers --------------------------------------------------------------------------------------- */

/* Content is null where there are only calls. */
static void put_message_in_parts(wf_choice *c, wf_text *to)
{
    const wf_blocks *b = &c->blocks;
    bool ok = wf_blocks_feed(c, c->text ? c->text : "", c->n_text, true);
    wf_json_print(to, "{'role':'assistant','content':");
    if (c->n_calls && !b->text.len) wf_text_add(to, "null", 4);
    else wf_json_put_string(to, b->text.data, b->text.len);
    if (b->thoughts.len)
        wf_json_print(to, ",'reasoning':%.*s,'reasoning_content':%.*s", (int)b->thoughts.len, b->thoughts.data,
                      (int)b->thoughts.len, b->thoughts.data); /* what vLLM calls them, and what others do */
    if (c->n_calls)
        wf_json_print(to, ",'tool_calls':["), wf_text_add(to, b->done.data, b->done.len), wf_text_add(to, "]", 1);
    wf_text_add(to, "}", 1);
    to->failed |= !ok;
    wf_blocks_free(c);
}

/* The text, behind that of the prompt where echo asks for it: a character may lie in both. */
static void put_text(const wf_job *j, const wf_choice *c, wf_text *out)
{
    const wf_prompt *p = wf_prompt_of(&j->params, c->index);
    wf_text all = {0};
    if (j->params.echo) wf_text_add(&all, p->text, p->len);
    if (j->params.echo) wf_text_add(&all, c->text, c->n_text);
    if (j->params.echo) wf_json_put_string(out, all.data, all.len);
    else wf_json_put_string(out, c->text, c->n_text);
    out->failed |= all.failed;
    free(all.data);
}

bool wf_reply_has_room(wf_job *j, size_t made_of)
{
    pthread_mutex_lock(&j->lock);
    bool room = wf_budget_reply(j, made_of + j->out.len);
    pthread_mutex_unlock(&j->lock);
    if (!room) wf_budget_refuse_reply(j, &j->refusal);
    return room;
}

static void write_choices(wf_job *j)
{
    size_t made_of = j->reply_held;
    for (size_t i = 0; i < j->n_choices && !j->out.failed && wf_reply_has_room(j, made_of); i++) {
        wf_choice *c = &j->choices[i];
        for (size_t t = 0; t < c->n_tokens; t++) c->generated += !c->tokens[t].prompt;
        wf_blocks_count(c, c->text ? c->text : "", c->n_text, c->tokens, c->n_tokens);
        c->cached = c->end.n_cached;
        wf_json_comma(&j->out);
        if (!j->route->api->put_reply) {
            wf_place place = wf_place_begin(j, c->index);
            wf_json_print(&j->out, j->params.chat ? "{'index':%u,'message':" : "{'index':%u,'text':", c->index);
            if (wf_params_in_parts(&j->params)) {
                put_message_in_parts(c, &j->out);
            } else if (j->params.chat) {
                wf_json_print(&j->out, "{'role':'assistant','content':");
                put_text(j, c, &j->out);
                wf_text_add(&j->out, "}", 1);
            } else {
                put_text(j, c, &j->out);
            }
            wf_json_print(&j->out, ",'logprobs':");
            wf_reply_logprobs(j, c->tokens, c->n_tokens, c->top, &place, &j->out);
            wf_json_print(&j->out, ",'finish_reason':%s}", wf_reply_finish_of(c->end.finish, c->n_calls));
            continue;
        }
        j->out.failed |= !wf_blocks_feed(c, c->text ? c->text : "", c->n_text, true);
        j->route->api->put_reply(c, &j->out);
        wf_blocks_free(c);
    }
    if (!j->refusal.status) wf_reply_has_room(j, made_of);
}

void wf_reply_write(wf_job *j)
{
    j->written = true;
    if (j->route->api->write) {
        j->route->api->write(j);
        return;
    }
    if (j->route->api->put_reply) {
        write_choices(j);
        return;
    }
    wf_reply_head(j, false, &j->out);
    wf_json_print(&j->out, ",'choices':[");
    write_choices(j);
    wf_json_print(&j->out, "],'usage':");
    wf_reply_usage(j, &j->out);
    wf_text_add(&j->out, "}", 1);
}
