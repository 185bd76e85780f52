/* sse: a response as a stream of server-sent events. Everything new goes into one event per choice, so a slow reader gets fewer
 * and longer ones, but of a limited length: the loop has other connections, too. The new parts are copied under the lock and
 * formatted outside it, so that JSON costs the engine no time. */
#include "serve/api/internal.h"
#include "answers/answer.h"

#include <stdlib.h>
#include <string.h>

#define ARGUMENTS 1024 /* bytes of a call's arguments per event */
#define ROWS  1024  /* tokens and alternatives that are formatted at once, in a few milliseconds */

typedef struct part { /* the new part of a choice */
    char *text;
    size_t n_text;
    wf_token *tokens;
    size_t n_tokens;
    struct weft_logprob *top;
    bool done, cut;
    enum weft_finish finish;
} part;

/* ---- from the job, under its lock ------------------------------------------------------------------------ */

/* A copy of elements [first, first + n); p may be NULL if n is 0. */
static void *copy_of(const void *p, size_t first, size_t n, size_t size)
{
    void *copy = wf_calloc(n + 1, size);
    if (copy && n) memcpy(copy, (const char *)p + first * size, n * size);
    return copy;
}

static bool has_news(const wf_choice *c)
{
    return c->n_text > c->sent_text || c->n_tokens > c->sent_tokens || (c->done && !c->ended) ||
           !c->opened;
}

static void part_free(part *p)
{
    free(p->text);
    free(p->tokens);
    free(p->top);
}

/* Takes tokens until *rows are enough, and their text; with the last ones what is left of it. */
static bool take(wf_choice *c, part *p, size_t *rows)
{
    size_t i = c->sent_tokens, n_top = 0, first = i < c->n_tokens ? c->tokens[i].top : 0, text = c->n_text;
    for (; i < c->n_tokens && *rows < ROWS; i++) {
        n_top += c->tokens[i].n_top;
        *rows += 1 + c->tokens[i].n_top;
        c->generated += !c->tokens[i].prompt;
    }
    p->n_tokens = i - c->sent_tokens;
    if (i < c->n_tokens) text = WF_MAX(c->sent_text, c->tokens[i - 1].text_end);
    p->n_text = text - c->sent_text;
    p->done = c->done && i == c->n_tokens;
    p->finish = c->end.finish;
    p->cut = wf_reply_is_cut(&c->end);
    if (c->done) c->cached = c->end.n_cached;
    p->text = copy_of(c->text, c->sent_text, p->n_text, 1);
    p->tokens = copy_of(c->tokens, c->sent_tokens, p->n_tokens, sizeof *p->tokens);
    p->top = copy_of(c->top, first, n_top, sizeof *p->top);
    c->sent_text += p->n_text;
    c->sent_tokens += p->n_tokens;
    return p->text && p->tokens && p->top;
}

/* Takes what is new in the choices, by turns as far as ROWS go. Returns whether nothing is left, nor will be. */
static bool take_all(wf_job *j, part *parts)
{
    size_t rows = 0, next = j->first_choice;
    bool ended = true;
    for (size_t i = 0; i < j->n_choices; i++) {
        size_t k = (j->first_choice + i) % j->n_choices;
        wf_choice *c = &j->choices[k];
        bool news = has_news(c), full = rows >= ROWS;
        if (news && !full && !take(c, &parts[k], &rows)) j->lost = true;
        if (!full) next = (k + 1) % j->n_choices;
        ended &= c->done && (!news || parts[k].done);
    }
    j->first_choice = next;
    return ended;
}

/* ---- events ---------------------------------------------------------------------------------------------- */

static void write_event(wf_job *j, json_t *event)
{
    wf_text_add(&j->out, "data: ", 6);
    wf_text_json(&j->out, event);
    wf_text_add(&j->out, "\n\n", 2);
    json_decref(event);
}

/* choices takes over its reference. last: it has only the usage. */
static void write_chunk(wf_job *j, json_t *choices, bool last)
{
    json_t *event = wf_reply_head(j, true);
    json_t *usage = last || j->params.continuous_usage ? wf_reply_usage(j) : json_null();
    bool bad = json_object_set_new(event, "choices", choices) != 0;
    if (j->params.include_usage)
        bad |= json_object_set_new(event, "usage", usage) != 0;
    else
        json_decref(usage);
    if (bad) json_decref(event), event = NULL;
    write_event(j, event);
}

static json_t *finish_json(const wf_choice *c, const part *p)
{
    return p && p->done ? json_string(wf_reply_finish_of(p->finish, c->n_calls)) : json_null();
}

/* text NULL: no text; p NULL: only the text. */
static json_t *chunk_delta(const char *text, size_t n, const part *p)
{
    if (!text) return json_object();
    json_t *content = wf_json_string(text, n);
    return p ? json_pack("{s:o}", "content", content) : json_pack("{s:s,s:o}", "role", "assistant", "content", content);
}

/* content: its delta, or its text; takes over the reference. */
static void write_content(wf_job *j, wf_choice *c, json_t *content, const part *p)
{
    json_t *logprobs = p ? wf_reply_logprobs(j, p->tokens, p->n_tokens, p->top, &c->offset) : json_null();
    write_chunk(j, json_pack("[{s:i,s:o,s:o,s:o}]", "index", (int)c->index, j->params.chat ? "delta" : "text", content, "logprobs", logprobs, "finish_reason",
                             finish_json(c, p)), false);
}

static void write_choice(wf_job *j, wf_choice *c, const char *text, size_t n, const part *p)
{
    write_content(j, c, j->params.chat ? chunk_delta(text, n, p) : wf_json_string(text ? text : "", text ? n : 0), p);
}

/* A chat starts with the role, echo with the prompt. */
static void open_choice(wf_job *j, wf_choice *c)
{
    const wf_prompt *p = &j->params.prompts[c->index / (size_t)j->params.n];
    if (j->params.chat)
        write_choice(j, c, "", 0, NULL);
    else if (j->params.echo)
        write_choice(j, c, p->text, p->len, NULL);
    c->opened = true;
}

/* ---- calls of tools -------------------------------------------------------------------------------------- */

typedef struct stream { /* where the parts of an answer go */
    wf_job *job;
    wf_choice *choice;
} stream;

static void on_text(void *user, const char *text, size_t len)
{
    const stream *s = user;
    write_content(s->job, s->choice, json_pack("{s:o}", "content", wf_json_string(text, len)), NULL);
}

static void on_thought(void *user, const char *text, size_t len)
{
    const stream *s = user;
    write_content(s->job, s->choice, json_pack("{s:o}", "reasoning_content", wf_json_string(text, len)), NULL);
}

/* call: one of tool_calls, or what comes to it; takes over the reference. */
static void write_call(const stream *s, json_t *call)
{
    if (json_object_set_new(call, "index", json_integer((json_int_t)s->choice->n_calls))) json_decref(call), call = NULL;
    write_content(s->job, s->choice, json_pack("{s:[o]}", "tool_calls", call), NULL);
}

/* At most ARGUMENTS bytes, in whole characters. */
static size_t piece_of(wf_slice s)
{
    size_t n = WF_MIN(s.n, (size_t)ARGUMENTS);
    while (n < s.n && n > 1 && ((unsigned char)s.p[n] & 0xC0) == 0x80) n--;
    return n;
}

/* The name first, then the arguments, as clients put them together. */
static void on_call(void *user, wf_slice id, wf_slice name, wf_slice arguments)
{
    const stream *s = user;
    if (s->job->params.one_call && s->choice->n_calls) return;
    write_call(s, wf_reply_call(s->job, id, name, (wf_slice){"", 0}));
    for (size_t n; arguments.n; arguments.p += n, arguments.n -= n) {
        n = piece_of(arguments);
        write_call(s, json_pack("{s:{s:o}}", "function", "arguments", wf_json_string(arguments.p, n)));
    }
    s->choice->n_calls++;
}

/* The text goes where it belongs; what else the part has follows in an event of its own. */
static void write_in_parts(wf_job *j, wf_choice *c, const part *p)
{
    stream s = {j, c};
    wf_call_out out = {on_text, on_thought, on_call, &s};
    if (!c->answer) c->answer = wf_params_answer(&j->params);
    bool ok = c->answer && wf_answer_feed(c->answer, p->text, p->n_text, &out);
    if (p->done) ok = ok && wf_answer_end(c->answer, p->cut, &out);
    if (p->done || (j->params.chat_logprobs && p->n_tokens)) write_content(j, c, json_object(), p);
    j->out.failed |= !ok;
    c->ended = p->done;
}

static void write_part(wf_job *j, wf_choice *c, const part *p)
{
    if (!c->opened) open_choice(j, c);
    if (!p->n_text && !p->n_tokens && !p->done) return;
    if (wf_params_in_parts(&j->params)) {
        write_in_parts(j, c, p);
        return;
    }
    bool plain = !j->params.chat_logprobs && j->params.chat;
    if (!p->n_text && !p->done && plain) return; /* the text of these tokens is still held back */
    write_choice(j, c, p->n_text || !p->done ? p->text : NULL, p->n_text, p);
    c->ended = p->done;
}

static void write_end(wf_job *j, const wf_http_error *failed)
{
    if (failed)
        write_event(j, wf_refusal_json(failed));
    else if (j->params.include_usage)
        write_chunk(j, json_array(), true);
    wf_text_add(&j->out, "data: [DONE]\n\n", 14);
}

/* Formats what is new into `out`. Where that is all, the next event wakes the request. */
static enum wf_httpd_more write_news(wf_job *j)
{
    wf_http_error failed = {0};
    bool news = false, more = false;
    part *parts = wf_calloc(j->n_choices, sizeof *parts);
    j->out.len = 0;
    pthread_mutex_lock(&j->lock);
    if (!parts) j->lost = true;
    bool fail = wf_job_failed(j, &failed), ended = fail || take_all(j, parts);
    for (size_t i = 0; !fail && i < j->n_choices; i++) news |= parts[i].text != NULL, more |= has_news(&j->choices[i]);
    j->sleeps = !more && !ended && !j->lost;
    enum wf_httpd_more next = ended ? WF_HTTP_END : j->sleeps ? WF_HTTP_WAIT : WF_HTTP_MORE;
    pthread_mutex_unlock(&j->lock);
    for (size_t i = 0; news && i < j->n_choices; i++)
        if (parts[i].text) write_part(j, &j->choices[i], &parts[i]);
    for (size_t i = 0; parts && i < j->n_choices; i++) part_free(&parts[i]);
    free(parts);
    if (ended) write_end(j, fail ? &failed : NULL);
    return j->out.failed ? WF_HTTP_BREAK : next;
}

void wf_sse_begin(wf_job *j)
{
    j->more = write_news(j);
    j->begun = true;
}

enum wf_httpd_more wf_sse_fill(void *job, wf_slice *part)
{
    wf_job *j = job;
    if (!j->begun) j->more = write_news(j);
    j->begun = false;
    *part = (wf_slice){j->out.data, j->out.len};
    return j->more;
}
