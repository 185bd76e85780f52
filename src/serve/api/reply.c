/* reply: results of the engine as OpenAI's JSON. */
#include "serve/api/internal.h"
#include "answers/answer.h"

#include <stdlib.h>
#include <string.h>

bool wf_reply_is_cut(const struct weft_event *end)
{
    return end->finish != WEFT_FINISH_STOP || end->id < 0;
}

const char *wf_reply_finish_of(enum weft_finish f, unsigned n_calls)
{
    return f == WEFT_FINISH_STOP ? (n_calls ? "tool_calls" : "stop") : f == WEFT_FINISH_CANCEL ? "abort" : "length";
}

json_t *wf_reply_head(const wf_job *j, bool chunk)
{
    char id[48];
    bool chat = j->params.chat;
    wf_copy(id, sizeof id, chat ? "chatcmpl-" : "cmpl-");
    wf_copy(id + strlen(id), sizeof id - strlen(id), j->id);
    const char *object = !chat   ? "text_completion"
                         : chunk ? "chat.completion.chunk"
                                 : "chat.completion";
    return json_pack("{s:s,s:s,s:I,s:s}", "id", id, "object", object, "created",
                     (json_int_t)j->created, "model", j->server->name);
}

/* Each prompt counts once, whatever its number of choices. */
json_t *wf_reply_usage(const wf_job *j)
{
    json_int_t prompt = 0, completion = 0, cached = 0;
    for (size_t i = 0; i < j->params.n_prompts; i++) {
        prompt += (json_int_t)j->params.prompts[i].n;
        cached += (json_int_t)j->choices[i * (size_t)j->params.n].cached;
    }
    for (size_t i = 0; i < j->n_choices; i++)
        completion += (json_int_t)j->choices[i].generated;
    return json_pack("{s:I,s:I,s:I,s:{s:I}}", "prompt_tokens", prompt, "completion_tokens",
                     completion, "total_tokens", prompt + completion, "prompt_tokens_details",
                     "cached_tokens", cached);
}

/* Lists and objects that miss a member, for want of memory, become NULL: an answer is whole or there is none. */
static void append(json_t **list, json_t *value)
{
    if (json_array_append_new(*list, value)) json_decref(*list), *list = NULL;
}

static void put(json_t **object, const char *key, json_t *value)
{
    if (json_object_set_new_nocheck(*object, key, value)) json_decref(*object), *object = NULL;
}

/* ---- logprobs -------------------------------------------------------------------------------------------- */

static size_t piece(const wf_job *j, int32_t id, unsigned flags, char *buf, size_t cap)
{
    return WF_MIN(weft_token_text(j->server->model, id, flags, buf, cap), cap);
}

/* For chat: text, bytes and logprob. */
static json_t *chat_token(const wf_job *j, int32_t id, float logprob)
{
    char buf[256];
    size_t n = piece(j, id, WEFT_TEXT_DEFAULT, buf, sizeof buf);
    json_t *bytes = json_array();
    for (size_t i = 0; i < n; i++)
        append(&bytes, json_integer((unsigned char)buf[i]));
    return json_pack("{s:o,s:f,s:o}", "token", wf_json_string(buf, n), "logprob", (double)logprob,
                     "bytes", bytes);
}

static json_t *chat_logprobs(const wf_job *j, const wf_token *tokens, size_t n,
                             const struct weft_logprob *top)
{
    json_t *content = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *token = chat_token(j, tokens[i].id, tokens[i].logprob), *list = json_array();
        for (uint32_t k = 0; k < tokens[i].n_top; k++, top++)
            append(&list, chat_token(j, top->id, top->logprob));
        put(&token, "top_logprobs", list);
        append(&content, token);
    }
    return json_pack("{s:o}", "content", content);
}

static json_t *top_object(const wf_job *j, const struct weft_logprob *top, uint32_t n)
{
    char buf[256];
    json_t *out = json_object();
    for (uint32_t k = 0; k < n; k++) {
        json_t *key = wf_json_string(buf, piece(j, top[k].id, WEFT_TEXT_DEFAULT, buf, sizeof buf));
        const char *text = json_string_value(key);
        if (!text)
            json_decref(out), out = NULL;
        else if (!json_object_get(out, text))
            put(&out, text, json_real(top[k].logprob));
        json_decref(key);
    }
    return out;
}

/* Bytes of a token in the delivered text. The text does not start with the space that the tokenizer added. */
static size_t shown(const wf_job *j, const wf_token *t, size_t offset)
{
    char buf[256];
    size_t n =
        piece(j, t->id, j->params.skip_special ? WEFT_TEXT_HIDE_SPECIAL : 0, buf, sizeof buf);
    bool cut = !offset && t->prompt && n && buf[0] == ' ' && j->params.prompts[0].text[0] != ' ';
    return n - cut;
}

/* For completions: four parallel lists. */
static json_t *text_logprobs(const wf_job *j, const wf_token *tokens, size_t n,
                             const struct weft_logprob *top, size_t *offset)
{
    json_t *texts = json_array(), *values = json_array(), *tops = json_array(),
           *offsets = json_array();
    for (size_t i = 0; i < n; i++) {
        char buf[256];
        bool first = tokens[i].prompt && !tokens[i].n_top &&
                     tokens[i].logprob == 0; /* the first token has none */
        append(&texts, wf_json_string(buf, piece(j, tokens[i].id, WEFT_TEXT_DEFAULT, buf, sizeof buf)));
        append(&values, first ? json_null() : json_real(tokens[i].logprob));
        append(&tops, first ? json_null() : top_object(j, top, tokens[i].n_top));
        append(&offsets, json_integer((json_int_t)*offset));
        *offset += shown(j, &tokens[i], *offset);
        top += tokens[i].n_top;
    }
    return json_pack("{s:o,s:o,s:o,s:o}", "tokens", texts, "token_logprobs", values, "top_logprobs",
                     tops, "text_offset", offsets);
}

json_t *wf_reply_logprobs(const wf_job *j, const wf_token *tokens, size_t n,
                          const struct weft_logprob *top, size_t *offset)
{
    bool wanted =
        j->params.chat ? j->params.chat_logprobs : wf_params_request(&j->params, 0).logprobs;
    if (!wanted) return json_null();
    return j->params.chat ? chat_logprobs(j, tokens, n, top)
                          : text_logprobs(j, tokens, n, top, offset);
}

/* ---- whole answers --------------------------------------------------------------------------------------- */

static json_t *choice_text(const wf_job *j, const wf_choice *c)
{
    wf_text all = {0};
    const wf_prompt *p = &j->params.prompts[c->index / (size_t)j->params.n];
    if (j->params.echo) wf_text_add(&all, p->text, p->len);
    wf_text_add(&all, c->text ? c->text : "", c->n_text);
    json_t *out = all.failed ? NULL : wf_json_string(all.data, all.len);
    free(all.data);
    return out;
}

static json_t *message(json_t *content)
{
    return json_pack("{s:s,s:o}", "role", "assistant", "content", content);
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

json_t *wf_reply_call(const wf_job *j, wf_slice id, wf_slice name, wf_slice arguments)
{
    char made[40];
    new_id(j->params.calls->calls->id, made);
    if (!id.n) id = (wf_slice){made, strlen(made)};
    return json_pack("{s:o,s:s,s:{s:o,s:o}}", "id", wf_json_string(id.p, id.n), "type", "function", "function", "name", wf_json_string(name.p, name.n), "arguments",
                     wf_json_string(arguments.p, arguments.n));
}

typedef struct said { /* a whole answer */
    const wf_job *job;
    wf_text text, thoughts;
    json_t *calls; /* NULL: no memory */
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
    if (s->job->params.one_call && json_array_size(s->calls)) return;
    append(&s->calls, wf_reply_call(s->job, id, name, arguments));
}

/* false: no memory. */
static bool read_answer(const wf_job *j, const wf_choice *c, said *s)
{
    wf_answer *a = wf_params_answer(&j->params);
    wf_call_out out = {on_text, on_thought, on_call, s};
    bool ok = a && wf_answer_feed(a, c->text ? c->text : "", c->n_text, &out) && wf_answer_end(a, wf_reply_is_cut(&c->end), &out);
    wf_answer_free(a);
    return ok && s->calls && !s->text.failed && !s->thoughts.failed;
}

/* Content is null where there are only calls. */
static json_t *message_in_parts(const wf_job *j, const wf_choice *c, unsigned *n_calls)
{
    said s = {.job = j, .calls = json_array()};
    bool ok = read_answer(j, c, &s);
    *n_calls = (unsigned)json_array_size(s.calls);
    json_t *out = ok ? message(*n_calls && !s.text.len ? json_null() : wf_json_string(s.text.data ? s.text.data : "", s.text.len)) : NULL;
    if (s.thoughts.len) put(&out, "reasoning_content", wf_json_string(s.thoughts.data, s.thoughts.len));
    if (*n_calls) put(&out, "tool_calls", s.calls);
    else json_decref(s.calls);
    free(s.text.data);
    free(s.thoughts.data);
    return out;
}

static json_t *whole_choice(const wf_job *j, const wf_choice *c)
{
    size_t offset = 0;
    json_t *logprobs = wf_reply_logprobs(j, c->tokens, c->n_tokens, c->top, &offset);
    unsigned n_calls = 0;
    json_t *said = wf_params_in_parts(&j->params) ? message_in_parts(j, c, &n_calls) : j->params.chat ? message(choice_text(j, c)) : choice_text(j, c);
    return json_pack("{s:i,s:o,s:o,s:s}", "index", (int)c->index, j->params.chat ? "message" : "text", said, "logprobs", logprobs, "finish_reason",
                     wf_reply_finish_of(c->end.finish, n_calls));
}

/* Appends JSON, and frees it. */
static void write_json(wf_job *j, json_t *json)
{
    wf_text_json(&j->out, json);
    json_decref(json);
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

/* Each choice by itself: as a tree the whole reply would take ten times the memory of its text. */
static void write_choices(wf_job *j)
{
    size_t made_of = j->reply_held;
    for (size_t i = 0; i < j->n_choices && !j->out.failed && has_room(j, made_of); i++) {
        wf_choice *c = &j->choices[i];
        for (size_t t = 0; t < c->n_tokens; t++) c->generated += !c->tokens[t].prompt;
        c->cached = c->end.n_cached;
        if (i) wf_text_add(&j->out, ",", 1);
        write_json(j, whole_choice(j, c));
    }
    if (!j->refusal.status) has_room(j, made_of);
}

void wf_reply_write(wf_job *j)
{
    write_json(j, wf_reply_head(j, false));
    if (!j->out.failed) j->out.len--; /* the brace at its end */
    wf_text_print(&j->out, ",\"choices\":[");
    write_choices(j);
    wf_text_print(&j->out, "],\"usage\":");
    write_json(j, wf_reply_usage(j));
    wf_text_add(&j->out, "}", 1);
    j->written = true;
}
