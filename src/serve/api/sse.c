/* sse: a response as a stream of server-sent events. Everything new goes into one event per choice, so a slow reader
 * gets fewer and longer ones, but of a limited length: the loop has other connections, too. The new parts are copied
 * under the lock and formatted outside it, so that JSON costs the engine no time. */
#include "serve/api/internal.h"

#include <stdlib.h>
#include <string.h>

#define ROWS  1024  /* tokens and alternatives that are formatted at once, in a few milliseconds */
#define TEXT_OF_ROW 16 /* bytes of a prompt that `echo` writes count as a token */

typedef struct part { /* the new part of a choice */
    char *text;
    size_t n_text;
    wf_token *tokens;
    size_t n_tokens;
    struct weft_logprob *top;
    bool done;
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
    return c->n_text > c->sent_text || c->n_tokens > c->sent_tokens || (c->done && !c->ended);
}

/* Takes tokens until *rows are enough, and their text; with the last ones what is left of it. */
static bool take(wf_choice *c, part *p, size_t *rows)
{
    size_t i = c->sent_tokens, n_top = 0, first = i < c->n_tokens ? c->tokens[i].top : 0, text = c->n_text;
    for (; i < c->n_tokens && *rows < ROWS; i++) {
        n_top += c->tokens[i].n_top;
        *rows += 1 + c->tokens[i].n_top;
    }
    p->n_tokens = i - c->sent_tokens;
    if (i < c->n_tokens) text = WF_MAX(c->sent_text, c->tokens[i - 1].text_end);
    p->n_text = text - c->sent_text;
    p->done = c->done && i == c->n_tokens;
    p->finish = c->end.finish;
    if (c->done) c->cached = c->end.n_cached;
    p->text = copy_of(c->text, c->sent_text, p->n_text, 1);
    p->tokens = copy_of(c->tokens, c->sent_tokens, p->n_tokens, sizeof *p->tokens);
    p->top = copy_of(c->top, first, n_top, sizeof *p->top);
    c->sent_text += p->n_text;
    c->sent_tokens += p->n_tokens;
    if (p->text && p->tokens && p->top) return true;
    free(p->text), free(p->tokens), free(p->top);
    *p = (part){0};
    return false;
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
        if (news && !full && j->params.echo && !c->opened) rows += wf_prompt_of(&j->params, k)->len / TEXT_OF_ROW;
        if (news && !full && !take(c, &parts[k], &rows)) j->lost = true;
        if (!full) next = (k + 1) % j->n_choices;
        ended &= c->done && (!news || parts[k].done);
    }
    j->first_choice = next;
    return ended;
}

/* ---- events ---------------------------------------------------------------------------------------------- */

/* An event with choices up to the bracket behind which they stand. */
static void begin_chunk(wf_job *j)
{
    wf_text_add(&j->out, "data: ", 6);
    wf_reply_head(j, true, &j->out);
    wf_json_print(&j->out, ",'choices':[");
}

/* last: it has only the usage. */
static void end_chunk(wf_job *j, bool last)
{
    wf_text_add(&j->out, "]", 1);
    if (j->params.include_usage) {
        wf_json_print(&j->out, ",'usage':");
        if (last || j->params.continuous_usage) wf_reply_usage(j, &j->out);
        else wf_text_add(&j->out, "null", 4);
    }
    wf_text_add(&j->out, "}\n\n", 3);
}

/* An event of one choice up to the place of its delta, or of its text. */
static void begin_choice(wf_job *j, const wf_choice *c)
{
    begin_chunk(j);
    wf_json_print(&j->out, j->params.chat ? "{'index':%u,'delta':" : "{'index':%u,'text':", c->index);
}

/* p NULL: there is only a text. */
static void end_choice(wf_job *j, wf_choice *c, const part *p)
{
    wf_json_print(&j->out, ",'logprobs':");
    if (p) wf_reply_logprobs(j, p->tokens, p->n_tokens, p->top, &c->place, &j->out);
    else wf_text_add(&j->out, "null", 4);
    if (p && p->done) wf_json_print(&j->out, ",'finish_reason':%s}", wf_reply_finish_of(p->finish, c->n_calls));
    else wf_json_print(&j->out, ",'finish_reason':null}");
    end_chunk(j, false);
}

/* text NULL: no text; p NULL: only the text. */
static void write_choice(wf_job *j, wf_choice *c, const char *text, size_t n, const part *p)
{
    begin_choice(j, c);
    if (j->params.chat && !text) {
        wf_text_add(&j->out, "{}", 2);
    } else {
        if (j->params.chat) wf_json_print(&j->out, p ? "{'content':" : "{'role':'assistant','content':");
        wf_json_put_string(&j->out, text, text ? n : 0);
        if (j->params.chat) wf_text_add(&j->out, "}", 1);
    }
    end_choice(j, c, p);
}

/* A chat starts with the role, echo with the prompt. */
static void open_choice(wf_job *j, wf_choice *c)
{
    c->place = wf_place_begin(j, c->index);
    c->n_tail = c->place.n_open;
    const wf_prompt *p = c->place.prompt;
    if (j->params.chat) write_choice(j, c, "", 0, NULL);
    else if (j->params.echo) write_choice(j, c, p->text, p->len - c->n_tail, NULL);
    c->opened = true;
}

/* ---- parts ----------------------------------------------------------------------------------------------- */

/* One of tool_calls, without what closes it. */
static void begin_call(const wf_block *b, wf_slice arguments, wf_text *out)
{
    wf_json_print(out, "{'id':%.*s,'type':'function','function':{'name':%.*s,'arguments':%.*s}", (int)b->id.n, b->id.p,
                  (int)b->name.n, b->name.p, (int)arguments.n, arguments.p);
}

static void put_call(const wf_choice *c, const wf_block *b, wf_text *out)
{
    (void)c;
    begin_call(b, b->text, out);
    wf_text_add(out, "}", 1);
}

/* The name first, then the arguments, as clients put them together. */
static void stream_call(wf_choice *c, const wf_block *b)
{
    wf_text *out = &c->job->out;
    if (b->kind != WF_BLOCK_CALL) return;
    begin_choice(c->job, c);
    wf_json_print(out, "{'tool_calls':[");
    begin_call(b, (wf_slice){"", 0}, out);
    wf_json_print(out, ",'index':%u}]}", c->n_calls);
    end_choice(c->job, c, NULL);
}

static void stream_delta(wf_choice *c, const wf_block *b, wf_slice text)
{
    wf_text *out = &c->job->out;
    int n = (int)text.n;
    begin_choice(c->job, c);
    if (b->kind == WF_BLOCK_TEXT) wf_json_print(out, "{'content':%.*s}", n, text.p);
    else if (b->kind == WF_BLOCK_THOUGHT)
        wf_json_print(out, "{'reasoning':%.*s,'reasoning_content':%.*s}", n, text.p, n, text.p);
    else wf_json_print(out, "{'tool_calls':[{'function':{'arguments':%.*s},'index':%u}]}", n, text.p, c->n_calls);
    end_choice(c->job, c, NULL);
}

static void write_part(wf_job *j, wf_choice *c, const part *p)
{
    if (!c->opened) open_choice(j, c);
    for (size_t i = 0; i < p->n_tokens; i++) c->generated += !p->tokens[i].prompt;
    wf_blocks_count(c, p->text, p->n_text, p->tokens, p->n_tokens);
    if (!p->n_text && !p->n_tokens && !p->done) return;
    if (j->route->api->put_reply || wf_params_in_parts(&j->params)) {
        /* The text goes where it belongs; what else the part has follows in an event of its own. */
        bool own = !j->route->api->put_reply;
        j->out.failed |= !wf_blocks_feed(c, p->text, p->n_text, p->done);
        if (own && (p->done || (j->params.chat_logprobs && p->n_tokens))) write_choice(j, c, NULL, 0, p);
        c->ended = p->done;
        return;
    }
    bool plain = !j->params.chat_logprobs && j->params.chat;
    if (!p->n_text && !p->done && plain) return; /* the text of these tokens is still held back */
    wf_text text = {0};
    if (c->n_tail && (p->n_text || p->done)) {
        wf_text_add(&text, c->place.prompt->text + c->place.prompt->len - c->n_tail, c->n_tail);
        wf_text_add(&text, p->text, p->n_text);
        j->out.failed |= text.failed;
        c->n_tail = 0;
    }
    if (text.len) write_choice(j, c, text.data, text.len, p);
    else write_choice(j, c, p->n_text || !p->done ? p->text : NULL, p->n_text, p);
    free(text.data);
    c->ended = p->done;
}

static void write_end(wf_choice *c, const wf_http_error *failed)
{
    wf_job *j = c->job;
    if (failed) {
        wf_text_add(&j->out, "data: ", 6);
        wf_refusal_put(&j->out, failed);
        wf_text_add(&j->out, "\n\n", 2);
    } else if (j->params.include_usage) {
        begin_chunk(j);
        end_chunk(j, true);
    }
    wf_text_add(&j->out, "data: [DONE]\n\n", 14);
}

/* Formats what is new into `out`. Where that is all, the next event wakes the request. */
static enum wf_httpd_more write_news(wf_job *j)
{
    wf_http_error failed = {0};
    bool news = false, more = false;
    part *parts = wf_calloc(j->n_choices, sizeof *parts);
    const wf_api *f = j->route->api;
    wf_choice *first = &j->choices[0];
    j->out.len = 0;
    if (f->put_reply && !first->opened && f->begin) f->begin(first);
    if (f->put_reply) first->opened = true;
    pthread_mutex_lock(&j->lock);
    if (!parts) j->lost = true;
    bool fail = wf_job_failed(j, &failed), ended = fail || take_all(j, parts);
    for (size_t i = 0; !fail && i < j->n_choices; i++) news |= parts[i].text != NULL, more |= has_news(&j->choices[i]);
    j->sleeps = !more && !ended && !j->lost;
    enum wf_httpd_more next = ended ? WF_HTTP_END : j->sleeps ? WF_HTTP_WAIT : WF_HTTP_MORE;
    pthread_mutex_unlock(&j->lock);
    for (size_t i = 0; news && i < j->n_choices; i++)
        if (parts[i].text) write_part(j, &j->choices[i], &parts[i]);
    for (size_t i = 0; parts && i < j->n_choices; i++) free(parts[i].text), free(parts[i].tokens), free(parts[i].top);
    free(parts);
    if (ended) f->end(first, fail ? &failed : NULL);
    return j->out.failed ? WF_HTTP_BREAK : next;
}

enum wf_httpd_more wf_sse_fill(void *job, wf_slice *part)
{
    wf_job *j = job;
    enum wf_httpd_more more = write_news(j);
    uint64_t now = wf_now_ns();
    bool silent = !j->out.len && more == WF_HTTP_WAIT && now - j->sent_ns >= j->server->limits.beat_s * 1000000000ull;
    const char *silence = j->route->api->silence;
    if (silent) wf_text_add(&j->out, silence, strlen(silence));
    if (j->out.len) j->sent_ns = now;
    *part = (wf_slice){j->out.data, j->out.len};
    return more;
}

const wf_api wf_api_openai = {.put_refusal = wf_refusal_put,
                              .put_block = put_call,
                              .stream_type = WF_SSE_TYPE,
                              .silence = ": waiting\n\n", /* a comment */
                              .block_begin = stream_call,
                              .delta = stream_delta,
                              .end = write_end};
