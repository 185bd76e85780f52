/* chat: a conversation, whose template is applied again for each turn. See chat.h. */
#include "cli/chat.h"

#include "cli/generate.h"
#include "cli/line.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct chat {
    const wf_opts *o;
    const struct weft_model *m;
    struct weft_engine *e;
    const char *chat_template;    /* NULL: the model's */
    struct weft_request_params p; /* shared by all turns */
    struct weft_message *msgs;    /* owns the contents; roles are literals */
    size_t n, cap;
};

weft_status wf_chat_check(const struct weft_model *m, const char *chat_template)
{
    return wf_fail_param(weft_chat_check(m, chat_template), "--chat");
}

/* ---- messages ---------------------------------------------------------------------------------
 */

static weft_status add(struct chat *c, const char *role, const char *content)
{
    if (!wf_grow(&c->msgs, c->n, &c->cap, sizeof *c->msgs)) return WEFT_ERR_NOMEM;
    char *copy = wf_strdup(content);
    if (!copy) return WEFT_ERR_NOMEM;
    c->msgs[c->n++] = (struct weft_message){role, copy};
    return WEFT_OK;
}

static void drop(struct chat *c, size_t keep)
{
    while (c->n > keep) free((void *)c->msgs[--c->n].content);
}

static weft_status start(struct chat *c)
{
    drop(c, 0);
    return c->o->system ? add(c, "system", c->o->system) : WEFT_OK;
}

/* ---- turns ------------------------------------------------------------------------------------
 */

/* Generates a reply to ids. The caller frees its text in *a. */
static int answer_tokens(struct chat *c, const int32_t *ids, size_t n, wf_generation *a)
{
    struct weft_request_params p = c->p;
    p.tokens = ids;
    p.n_tokens = n;
    int rc = wf_generate(c->e, p, a);
    bool ends_line = a->len && a->text[a->len - 1] == '\n';
    bool answered = a->len || !rc; /* no empty line after a rejected turn */
    if (answered && !a->closed && !ends_line && !wf_out("\n", 1)) a->closed = true;
    if (!rc && !a->closed) wf_generate_report(c->o, c->e, a);
    return rc;
}

/* One turn of a formatted chat. A failed turn is removed from the conversation, so that the next one can work. */
static int turn(struct chat *c, const char *text, wf_generation *a)
{
    size_t before = c->n, n = 0;
    int32_t *ids = NULL;
    weft_status s = add(c, "user", text);
    struct weft_chat_params chat = {.chat_template = c->chat_template, .messages = c->msgs, .n_messages = c->n};
    if (!s) s = weft_chat_tokenize(c->m, &chat, &ids, &n);
    int rc = s ? wf_say_error(s) : answer_tokens(c, ids, n, a);
    weft_free(ids);
    if (!rc) rc = (s = add(c, "assistant", a->text ? a->text : "")) ? wf_say_error(s) : 0;
    if (rc) drop(c, before);
    return rc;
}

/* Without a chat template the model continues the line as plain text. */
static int continue_line(struct chat *c, const char *text, wf_generation *a)
{
    int32_t *ids = NULL;
    size_t n = 0;
    weft_status s = weft_tokenize(c->m, text, strlen(text), WEFT_TEXT_DEFAULT, &ids, &n);
    int rc = s ? wf_say_error(s) : answer_tokens(c, ids, n, a);
    weft_free(ids);
    return rc;
}

static void greet(const wf_opts *o, bool has_template)
{
    if (!isatty(STDIN_FILENO)) return;
    if (!has_template)
        wf_note(o, "the model has no chat template, so each line is continued as plain text; "
                   "set one with --chat-template FILE");
    wf_note(o, "Ctrl-C stops generation, /clear starts a new conversation, Ctrl-D exits");
}

/* A lost device ends the chat; after other failures the next line may work. */
static bool fatal(int rc)
{
    return rc == WF_EXIT_LOST || rc == WF_EXIT_DEVICE;
}

/* A line that is too long has been reported and does not end the chat. */
static int leave_out(const struct chat *c)
{
    size_t opening = c->o->system != NULL;
    wf_note(c->o, "the line is ignored%s", c->n > opening ? "; /clear starts a new conversation" : "");
    return 0;
}

static int loop(struct chat *c, wf_line *in, bool has_template)
{
    int rc = 0;
    for (const char *line; !fatal(rc) && (line = wf_line_read(in));) {
        if (!strcmp(line, "/clear")) {
            start(c);
            continue;
        }
        if (!*line) continue;
        /* Until now the line editor read Ctrl-C as a character. */
        wf_generate_catch_interrupts();
        wf_generation a = {0};
        rc = has_template ? turn(c, line, &a) : continue_line(c, line, &a);
        if (a.end.status == WEFT_ERR_FULL) rc = leave_out(c);
        free(a.text);
        if (a.closed) break;
    }
    return rc;
}

int wf_chat_loop(const wf_opts *o, const struct weft_model *m, struct weft_engine *e,
                 struct weft_request_params p, const char *chat_template, bool has_template)
{
    struct chat c = {.o = o, .m = m, .e = e, .chat_template = chat_template, .p = p};
    wf_line *in = NULL;
    weft_status s = start(&c);
    if (!s) s = wf_line_open(&in);
    int rc = s ? wf_say_error(s) : 0;
    if (!rc) {
        /* A signal that arrives just after generation must not end the program. */
        if (isatty(STDIN_FILENO)) signal(SIGINT, SIG_IGN);
        greet(o, has_template);
        rc = loop(&c, in, has_template);
        if (isatty(STDIN_FILENO)) fputc('\n', stderr); /* leave the prompt's line */
    }
    wf_line_close(in);
    drop(&c, 0);
    free(c.msgs);
    return rc;
}

int wf_chat_once(const wf_opts *o, const struct weft_model *m, struct weft_engine *e,
                 struct weft_request_params p, const char *chat_template, const char *text)
{
    struct chat c = {.o = o, .m = m, .e = e, .chat_template = chat_template, .p = p};
    wf_generation a = {0};
    wf_generate_catch_interrupts();
    weft_status s = start(&c);
    int rc = s ? wf_say_error(s) : turn(&c, text, &a);
    if (!rc && a.interrupted) rc = WF_EXIT_INTERRUPTED;
    free(a.text);
    drop(&c, 0);
    free(c.msgs);
    return rc;
}
