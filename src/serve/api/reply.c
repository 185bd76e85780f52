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

void wf_reply_head(const wf_job *j, bool chunk, wf_text *out)
{
    bool chat = j->params.chat;
    const char *object = !chat ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
    wf_text_print(out, "{\"id\":\"%s%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", chat ? "chatcmpl-" : "cmpl-",
                  j->id, object, (long long)j->created);
    wf_json_print(out, "%s", *j->params.model ? j->params.model : j->server->name);
}

/* Each prompt counts once, whatever its number of choices. */
void wf_reply_usage(const wf_job *j, wf_text *out)
{
    size_t prompt = 0, completion = 0, cached = 0;
    for (size_t i = 0; i < j->params.n_prompts; i++) {
        prompt += j->params.prompts[i].n;
        cached += j->choices[i * (size_t)j->params.n].cached;
    }
    for (size_t i = 0; i < j->n_choices; i++) completion += j->choices[i].generated;
    wf_json_print(out,
                  "{'prompt_tokens':%zu,'completion_tokens':%zu,'total_tokens':%zu,'prompt_tokens_details':{'cached_"
                  "tokens':%zu}}",
                  prompt, completion, prompt + completion, cached);
}

/* ---- calls of tools -------------------------------------------------------------------------------------- */

/* As long as templates want it, which get it back. */
static void new_id(enum wf_call_id kind, char out[40])
{
    char hex[33];
    wf_random_hex(hex);
    if (kind == WF_ID_NINE) hex[9] = 0;
    wf_copy(out, 40, kind == WF_ID_NINE ? "" : "call_");
    wf_copy(out + strlen(out), 40 - strlen(out), hex);
}

void wf_reply_call(const wf_job *j, wf_slice id, wf_slice name, wf_slice arguments, wf_text *out)
{
    char made[40];
    new_id(j->params.calls && j->params.calls->calls ? j->params.calls->calls->id : WF_ID_ANY, made);
    if (!id.n) id = (wf_slice){made, strlen(made)};
    wf_json_print(out, "{'id':%.*s,'type':'function','function':{'name':%.*s,'arguments':", (int)id.n, id.p,
                  (int)name.n, name.p);
    wf_json_put_string(out, arguments.p, arguments.n);
    wf_text_add(out, "}", 1);
}

/* ---- whole answers --------------------------------------------------------------------------------------- */

typedef struct said { /* an answer in its parts */
    const wf_job *job;
    wf_text text, thoughts, calls;
    unsigned n_calls;
} said;

static void on_text(void *user, const char *text, size_t len)
{
    said *s = user;
    wf_text_add(&s->text, text, len);
}

static void on_thought(void *user, const char *text, size_t len)
{
    said *s = user;
    wf_text_add(&s->thoughts, text, len);
}

static void on_call(void *user, wf_slice id, wf_slice name, wf_slice arguments)
{
    said *s = user;
    if (s->job->params.one_call && s->n_calls) return;
    if (s->n_calls++) wf_text_add(&s->calls, ",", 1);
    wf_reply_call(s->job, id, name, arguments, &s->calls);
    wf_text_add(&s->calls, "}", 1);
}

/* Content is null where there are only calls. Returns how many there are. */
static unsigned put_message_in_parts(const wf_job *j, const wf_choice *c, wf_text *to)
{
    said s = {.job = j};
    wf_answer *a = wf_params_answer(&j->params);
    wf_call_out out = {on_text, on_thought, on_call, &s};
    bool ok = a && wf_answer_feed(a, c->text ? c->text : "", c->n_text, &out) &&
              wf_answer_end(a, wf_reply_is_cut(&c->end), &out);
    wf_answer_free(a);
    wf_json_print(to, "{'role':'assistant','content':");
    if (s.n_calls && !s.text.len) wf_text_add(to, "null", 4);
    else wf_json_put_string(to, s.text.data, s.text.len);
    if (s.thoughts.len)
        wf_json_print(to, ",'reasoning':%.*s,'reasoning_content':%.*s", (int)s.thoughts.len, s.thoughts.data,
                      (int)s.thoughts.len, s.thoughts.data); /* what vLLM calls them, and what others do */
    if (s.n_calls)
        wf_json_print(to, ",'tool_calls':["), wf_text_add(to, s.calls.data, s.calls.len), wf_text_add(to, "]", 1);
    wf_text_add(to, "}", 1);
    to->failed |= !ok || s.text.failed || s.thoughts.failed || s.calls.failed;
    free(s.text.data);
    free(s.thoughts.data);
    free(s.calls.data);
    return s.n_calls;
}

/* The text, behind that of the prompt where echo asks for it: a character may lie in both. */
static void put_text(const wf_job *j, const wf_choice *c, wf_text *out)
{
    const wf_prompt *p = &j->params.prompts[c->index / (size_t)j->params.n];
    wf_text all = {0};
    if (j->params.echo) wf_text_add(&all, p->text, p->len);
    if (j->params.echo) wf_text_add(&all, c->text, c->n_text);
    if (j->params.echo) wf_json_put_string(out, all.data, all.len);
    else wf_json_put_string(out, c->text, c->n_text);
    out->failed |= all.failed;
    free(all.data);
}

static void put_choice(const wf_job *j, const wf_choice *c, wf_text *out)
{
    wf_place place = wf_place_begin(j, c->index);
    unsigned n_calls = 0;
    wf_json_print(out, j->params.chat ? "{'index':%u,'message':" : "{'index':%u,'text':", c->index);
    if (wf_params_in_parts(&j->params)) {
        n_calls = put_message_in_parts(j, c, out);
    } else if (j->params.chat) {
        wf_json_print(out, "{'role':'assistant','content':");
        put_text(j, c, out);
        wf_text_add(out, "}", 1);
    } else {
        put_text(j, c, out);
    }
    wf_json_print(out, ",'logprobs':");
    wf_reply_logprobs(j, c->tokens, c->n_tokens, c->top, &place, out);
    wf_json_print(out, ",'finish_reason':%s}", wf_reply_finish_of(c->end.finish, n_calls));
}

/* May the reply have what has been written, besides what it is made of? */
static bool has_room(wf_job *j, size_t made_of)
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
    for (size_t i = 0; i < j->n_choices && !j->out.failed && has_room(j, made_of); i++) {
        wf_choice *c = &j->choices[i];
        for (size_t t = 0; t < c->n_tokens; t++) c->generated += !c->tokens[t].prompt;
        c->cached = c->end.n_cached;
        wf_json_comma(&j->out);
        put_choice(j, c, &j->out);
    }
    if (!j->refusal.status) has_room(j, made_of);
}

void wf_reply_write(wf_job *j)
{
    wf_reply_head(j, false, &j->out);
    wf_json_print(&j->out, ",'choices':[");
    write_choices(j);
    wf_json_print(&j->out, "],'usage':");
    wf_reply_usage(j, &j->out);
    wf_text_add(&j->out, "}", 1);
    j->written = true;
}
