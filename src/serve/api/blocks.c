/* blocks: the parts of an answer, as each interface writes them: thoughts, text and calls of tools, whole or in pieces
 * of a stream. */
#include "serve/api/internal.h"
#include "answers/answer.h"

#include <stdlib.h>

#define ARGUMENTS 1024 /* bytes of a call's arguments per event */

/* Is what has been written needed later? */
static bool is_kept(const wf_choice *c) { return !c->job->params.stream || c->job->route->api->keeps; }

static wf_text *text_of(wf_choice *c, enum wf_block_kind kind)
{
    return kind == WF_BLOCK_THOUGHT ? &c->blocks.thoughts : &c->blocks.text;
}

static void begin_block(wf_choice *c, const wf_block *b)
{
    const wf_api *f = c->job->route->api;
    if (c->job->params.stream && f->block_begin) f->block_begin(c, b);
}

static void end_block(wf_choice *c, const wf_block *b)
{
    const wf_api *f = c->job->route->api;
    if (c->job->params.stream && f->block_end) f->block_end(c, b);
    if (is_kept(c) && (f->apart || b->kind == WF_BLOCK_CALL))
        wf_json_comma(&c->blocks.done), f->put_block(c, b, &c->blocks.done);
    c->blocks.open.index++;
}

/* The one that goes on, if there is one. */
static void close_block(wf_choice *c)
{
    wf_block *b = &c->blocks.open;
    wf_text *text = text_of(c, b->kind);
    if (!b->kind) return;
    b->text = (wf_slice){text->data ? text->data : "", text->len};
    end_block(c, b);
    b->kind = WF_BLOCK_NONE;
    if (c->job->route->api->apart) text->len = 0;
}

static void add_text(wf_choice *c, enum wf_block_kind kind, const char *text, size_t len)
{
    wf_block *b = &c->blocks.open;
    if (b->kind != kind) {
        close_block(c);
        b->kind = kind;
        begin_block(c, b);
    }
    if (is_kept(c)) wf_text_add(text_of(c, kind), text, len);
    if (c->job->params.stream) c->job->route->api->delta(c, b, (wf_slice){text, len});
}

static void on_text(void *choice, const char *text, size_t len) { add_text(choice, WF_BLOCK_TEXT, text, len); }

static void on_thought(void *choice, const char *text, size_t len) { add_text(choice, WF_BLOCK_THOUGHT, text, len); }

/* At most ARGUMENTS bytes, in whole characters. */
static size_t piece_of(wf_slice s)
{
    size_t n = WF_MIN(s.n, (size_t)ARGUMENTS);
    while (n < s.n && n > 1 && ((unsigned char)s.p[n] & 0xC0) == 0x80) n--;
    return n;
}

static void on_call(void *choice, wf_slice id, wf_slice name, wf_slice arguments)
{
    wf_choice *c = choice;
    char made[40];
    if (c->job->params.one_call && c->n_calls) return;
    close_block(c);
    const wf_block b = {WF_BLOCK_CALL, c->blocks.open.index, arguments, wf_reply_call_id(c->job, id, made), name};
    begin_block(c, &b);
    for (size_t n = 0; c->job->params.stream && arguments.n; arguments.p += n, arguments.n -= n) {
        n = piece_of(arguments);
        c->job->route->api->delta(c, &b, (wf_slice){arguments.p, n});
    }
    end_block(c, &b);
    c->n_calls++;
}

static void ignore_text(void *user, const char *text, size_t len) { (void)user, (void)text, (void)len; }

static void ignore_call(void *user, wf_slice id, wf_slice name, wf_slice arguments)
{
    (void)user, (void)id, (void)name, (void)arguments;
}

/* By a reader of their own, since what is sent of them may be cut at any place. */
void wf_blocks_count(wf_choice *c, const char *text, size_t len, const wf_token *tokens, size_t n)
{
    const wf_call_out none = {ignore_text, ignore_text, ignore_call, NULL};
    const wf_params *p = &c->job->params;
    const wf_answer_style style = {.thoughts = p->thoughts, .thinking = p->thinking, .continues = p->continues};
    size_t at = 0;
    if (!p->thoughts) return;
    if (!c->counter) c->counter = wf_answer_new(&style);
    for (size_t i = 0; c->counter && i < n; i++) {
        size_t end = tokens[i].text_end > c->counted ? WF_MIN(tokens[i].text_end - c->counted, len) : 0;
        bool before = wf_answer_thinks(c->counter);
        if (tokens[i].prompt) continue;
        if (end > at) wf_answer_feed(c->counter, text + at, end - at, &none);
        at = WF_MAX(at, end);
        c->reasoning += before || wf_answer_thinks(c->counter);
    }
    if (c->counter && len > at) wf_answer_feed(c->counter, text + at, len - at, &none);
    c->counted += len;
}

bool wf_blocks_feed(wf_choice *c, const char *text, size_t len, bool last)
{
    const wf_call_out out = {on_text, on_thought, on_call, c};
    const wf_blocks *b = &c->blocks;
    if (!c->answer) c->answer = wf_params_answer(&c->job->params);
    bool ok = c->answer && wf_answer_feed(c->answer, text, len, &out);
    if (last) ok = ok && wf_answer_end(c->answer, wf_reply_is_cut(&c->end), &out);
    if (last) close_block(c);
    return ok && !b->text.failed && !b->thoughts.failed && !b->done.failed;
}

void wf_blocks_free(wf_choice *c)
{
    wf_answer_free(c->answer);
    wf_answer_free(c->counter);
    free(c->blocks.text.data);
    free(c->blocks.thoughts.data);
    free(c->blocks.done.data);
    c->answer = c->counter = NULL;
    c->blocks = (wf_blocks){0};
}
