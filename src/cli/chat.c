/* chat: a conversation, whose template is applied again for each turn. See chat.h. */
#include "cli/chat.h"

#include "base/options.h"
#include "cli/generate.h"
#include "cli/line.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

weft_status wf_chat_check(const struct weft_model *m, const char *chat_template)
{
    weft_status s = weft_chat_check(m, chat_template);
    if (!s || s == WEFT_ERR_NOMEM) return s;
    return wf_fail(WEFT_ERR_ARG, "%s%s", wf_last_error(),
                   weft_model_info(m)->chat_template ? "; --chat-template FILE sets another one" : "");
}

/* ---- messages -------------------------------------------------------------------------------- */

weft_status wf_chat_add(wf_chat *c, const char *role, const char *content)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    size_t r = 0;
    while (r < WF_LEN(roles) && strcmp(role, roles[r])) r++;
    if (r == WF_LEN(roles))
        return wf_fail(WEFT_ERR_ARG, "'%.32s' is no role of a message: expected system, user, assistant or tool", role);
    if (!wf_grow(&c->msgs, c->n, &c->cap, sizeof *c->msgs)) return WEFT_ERR_NOMEM;
    char *copy = wf_strdup(content);
    if (!copy) return WEFT_ERR_NOMEM;
    c->msgs[c->n++] = (struct weft_message){roles[r], copy};
    return WEFT_OK;
}

void wf_chat_drop(wf_chat *c, size_t keep)
{
    while (c->n > keep) free((void *)c->msgs[--c->n].content);
}

static void remove_messages(wf_chat *c, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) free((void *)c->msgs[i].content);
    memmove(c->msgs + from, c->msgs + to, (c->n - to) * sizeof *c->msgs);
    c->n -= to - from;
}

bool wf_chat_has_system(const wf_chat *c) { return c->n && !strcmp(c->msgs[0].role, "system"); }

weft_status wf_chat_set_system(wf_chat *c, const char *text)
{
    if (wf_chat_has_system(c)) remove_messages(c, 0, 1);
    if (!text) return WEFT_OK;
    WF_TRY(wf_chat_add(c, "system", text));
    struct weft_message added = c->msgs[c->n - 1];
    memmove(c->msgs + 1, c->msgs, (c->n - 1) * sizeof *c->msgs);
    c->msgs[0] = added;
    return WEFT_OK;
}

/* ---- turns ----------------------------------------------------------------------------------- */

weft_status wf_chat_tokens(const wf_chat *c, int32_t **ids, size_t *n)
{
    struct weft_chat_params chat = {.chat_template = c->chat_template, .messages = c->msgs, .n_messages = c->n};
    const char *last = c->n ? c->msgs[c->n - 1].content : "";
    return c->plain ? wf_prompt_tokens(c->m, c->e, last, strlen(last), ids, n)
                    : weft_chat_tokenize(c->m, &chat, ids, n);
}

/* Tokens of a prompt that leave room for an answer: a quarter of the context, or as many as -n wants. */
static size_t prompt_room(const wf_chat *c)
{
    uint32_t context = weft_engine_context(c->e), answer = context / 4;
    if (c->p.max_tokens) answer = WF_MIN(answer, c->p.max_tokens);
    return context - answer;
}

/* Where the turns behind the oldest one begin: the conversation can be cut there. Returns their number; the caller
 * frees *cuts. */
static size_t find_cuts(const wf_chat *c, size_t **cuts)
{
    size_t n = 0;
    if (!(*cuts = wf_calloc(c->n + 1, sizeof **cuts))) return 0;
    for (size_t i = wf_chat_has_system(c) + (size_t)1; i < c->n; i++)
        if (!strcmp(c->msgs[i].role, "user")) (*cuts)[n++] = i;
    return n;
}

/* The first cut behind which the rest fits, or else the last one, and the tokens of that rest: fewer turns have fewer
 * tokens. */
static weft_status search_cut(const wf_chat *c, const size_t *cuts, size_t n_cuts, size_t *at, int32_t **ids, size_t *n)
{
    size_t low = 0, high = n_cuts - 1;
    for (;;) {
        size_t mid = low + (high - low) / 2;
        if (wf_generate_interrupted()) return WEFT_ERR_CANCELLED;
        /* The tokens of the conversation without the messages from the first behind the system message up to `from`. */
        size_t from = cuts[mid];
        size_t first = wf_chat_has_system(c);
        wf_chat rest = *c;
        rest.msgs = wf_calloc(c->n, sizeof *c->msgs);
        if (!rest.msgs) return WEFT_ERR_NOMEM;
        rest.n = first + c->n - from;
        memcpy(rest.msgs, c->msgs, first * sizeof *c->msgs);
        memcpy(rest.msgs + first, c->msgs + from, (c->n - from) * sizeof *c->msgs);
        weft_status s = wf_chat_tokens(&rest, ids, n);
        free(rest.msgs);
        WF_TRY(s);
        *at = cuts[mid];
        if (low == high) return WEFT_OK;
        if (*n <= prompt_room(c)) high = mid;
        else low = mid + 1;
        weft_free(*ids);
        *ids = NULL;
    }
}

/* The oldest turns go until what is left fits. If even the last message alone does not, nothing is dropped. */
static weft_status drop_oldest(wf_chat *c, int32_t **ids, size_t *n)
{
    size_t *cuts, n_cuts = find_cuts(c, &cuts), from = 0, n_rest = 0;
    int32_t *rest = NULL;
    weft_status s = !cuts ? WEFT_ERR_NOMEM : n_cuts ? search_cut(c, cuts, n_cuts, &from, &rest, &n_rest) : WEFT_OK;
    free(cuts);
    if (s || !rest || n_rest >= weft_engine_context(c->e)) return weft_free(rest), s;
    weft_free(*ids);
    *ids = rest, *n = n_rest;
    size_t first = wf_chat_has_system(c);
    remove_messages(c, first, from);
    wf_note(
        &c->o,
        "the context of %u tokens is full: the oldest %zu messages are left out from here on; -c makes a larger one",
        weft_engine_context(c->e), from - first);
    return WEFT_OK;
}

/* The conversation's tokens, without the oldest turns if it is too long. */
static weft_status fit_context(wf_chat *c, int32_t **ids, size_t *n)
{
    bool off = c->plain || (c->o.context_shift && !strcmp(c->o.context_shift, "off"));
    WF_TRY(wf_chat_tokens(c, ids, n));
    return off || *n <= prompt_room(c) ? WEFT_OK : drop_oldest(c, ids, n);
}

/* Generates a reply to ids. The caller frees *a. */
static int answer_tokens(wf_chat *c, const int32_t *ids, size_t n, wf_generation *a)
{
    const wf_answer_style style = {.thoughts = c->thoughts,
                                   .thinking = c->thoughts && wf_thoughts_opened(c->thoughts, c->m, ids, n)};
    struct weft_request_params p = c->p;
    p.tokens = ids;
    p.n_tokens = n;
    p.show_ids = c->shown.ids;
    p.n_show_ids = c->shown.n;
    p.grammar_after = style.thinking ? c->thoughts->close : NULL;
    int rc = wf_generate(&c->o, c->e, p, c->thoughts ? &style : NULL, a);
    if (!rc && !a->printer.last && !a->printer.closed && !wf_out("\n", 1))
        a->printer.closed = true; /* an empty answer is seen as such */
    if (!rc && !a->printer.closed) wf_generate_report(&c->o, c->e, a, "");
    return rc;
}

/* An answer may end inside a character, at the limit of its length, or have bytes that are no character; templates and
 * files take UTF-8. */
static weft_status add_answer(wf_chat *c, const wf_generation *a)
{
    size_t len;
    const wf_text *answer = &a->printer.answer;
    char *text = wf_utf8_clean(answer->len ? answer->data : "", answer->len, &len);
    weft_status s = text ? wf_chat_add(c, "assistant", text) : WEFT_ERR_NOMEM;
    free(text);
    return s;
}

/* By Ctrl-C, before there was anything of an answer. */
static bool stopped_before(const wf_generation *a) { return a->interrupted && !a->printer.answer.len; }

/* One turn of a chat. A failed turn, or one that Ctrl-C stopped in the prompt, is removed from the conversation, so
 * that the next one can work. */
static int run_turn(wf_chat *c, const char *text, wf_generation *a)
{
    size_t n = 0;
    int32_t *ids = NULL;
    weft_status s = wf_chat_add(c, "user", text);
    if (s) return wf_say_error(s);
    wf_generate_prepare(&c->o, c->once);
    s = fit_context(c, &ids, &n);
    a->interrupted = wf_generate_prepared();
    int rc = a->interrupted ? 0 : s ? wf_say_error(s) : answer_tokens(c, ids, n, a);
    weft_free(ids);
    bool nothing = stopped_before(a);
    if (!rc && !nothing && (s = add_answer(c, a))) rc = wf_say_error(s);
    if (rc || nothing) wf_chat_drop(c, c->n - 1);
    return rc;
}

/* The last message of the user again, with another seed. What there was from it on comes back if that gives nothing;
 * there is room for it. */
static int retry_turn(wf_chat *c, wf_generation *a)
{
    size_t at = c->n;
    while (strcmp(c->msgs[at - 1].role, "user")) at--; /* there is one: /retry has looked */
    wf_chat old = {.n = c->n - (at - 1)};
    if (!(old.msgs = wf_calloc(old.n, sizeof *old.msgs))) return wf_say_error(WEFT_ERR_NOMEM);
    memcpy(old.msgs, c->msgs + at - 1, old.n * sizeof *old.msgs);
    c->n = at - 1;
    if (c->p.sampling.temperature > 0) c->p.sampling.seed = wf_new_seed(&c->o);
    else wf_note(&c->o, "greedy sampling gives the same answer again; /set temp 0.8 changes that");
    int rc = run_turn(c, old.msgs[0].content, a);
    if (rc || stopped_before(a)) memcpy(c->msgs + c->n, old.msgs, old.n * sizeof *old.msgs), c->n += old.n, old.n = 0;
    wf_chat_drop(&old, 0);
    free(old.msgs);
    return rc;
}

static void greet_user(const wf_chat *c)
{
    if (!isatty(STDIN_FILENO)) return;
    if (c->plain && !weft_model_info(c->m)->chat_template)
        wf_note(&c->o, "the model has no chat template, so each line is continued as plain text; set one with "
                       "--chat-template FILE");
    else if (c->plain && weft_chat_check(c->m, NULL))
        wf_note(&c->o,
                "the chat template cannot be used (%s), so each line is continued as plain text; set another one with "
                "--chat-template FILE",
                wf_last_error());
    wf_note(&c->o, "Ctrl-C stops generation, /help lists commands, Ctrl-D exits");
}

/* A lost device ends the chat; after other failures the next line may work. */
static bool is_fatal(int rc) { return rc == WF_EXIT_LOST || rc == WF_EXIT_DEVICE; }

static int run_turns(wf_chat *c, wf_line *in)
{
    int rc = 0, failed = 0;
    for (const char *line; !is_fatal(rc) && (line = wf_line_read(in));) {
        bool command = *line == '/' && line[1] != '/';
        enum wf_chat_next next = command ? wf_chat_command(c, line) : WF_CHAT_GO_ON;
        if (next == WF_CHAT_END) break;
        if (next == WF_CHAT_FAILED && !failed) failed = WF_EXIT_RUNTIME;
        if (!*line || (command && next != WF_CHAT_RETRY)) continue;
        wf_chat_command_hint(c, line);
        /* Until now the line editor read Ctrl-C as a character. */
        wf_generate_catch_interrupts();
        wf_generation a = {0};
        rc = next == WF_CHAT_RETRY ? retry_turn(c, &a) : run_turn(c, line + (*line == '/'), &a);
        if (a.end.status == WEFT_ERR_FULL)
            wf_note(&c->o, "the line is ignored%s",
                    c->n > wf_chat_has_system(c) ? "; /clear starts a new conversation" : "");
        if (!failed) failed = rc;
        if (!rc && stopped_before(&a))
            wf_note(&c->o,
                    next == WF_CHAT_RETRY ? "the old answer stays" : "the message is left out of the conversation");
        bool closed = a.printer.closed;
        wf_printer_free(&a.printer);
        if (closed) break;
    }
    /* Who types has seen which messages and commands failed. Who pipes them goes by the exit code, which is that of the
     * first. */
    if (isatty(STDIN_FILENO) && !is_fatal(rc)) return WF_EXIT_OK;
    return failed ? failed : wf_line_lost(in) ? WF_EXIT_RUNTIME : WF_EXIT_OK;
}

static weft_status start_chat(wf_chat *c, const wf_opts *o, const struct weft_model *m, struct weft_engine *e,
                              const char *chat_template, bool plain)
{
    *c = (wf_chat){
        .o = *o, .m = m, .e = e, .chat_template = chat_template, .plain = plain, .p = wf_request_params(o, m, !plain)};
    if (!plain) {
        /* Answers of models that think are taken apart, so that thoughts can be shown as such and later turns are
         * without them. */
        const char *text = c->chat_template ? c->chat_template : weft_model_info(c->m)->chat_template;
        c->thoughts = text ? wf_thought_kind_of(text) : NULL;
        if (c->thoughts) wf_thoughts_show(c->thoughts, c->m, &c->shown);
    }
    if (c->p.grammar && c->thoughts && c->thoughts->channels)
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "a format of the answer is not supported for models that answer in channels");
    return wf_chat_set_system(c, o->system);
}

static void end_chat(wf_chat *c)
{
    wf_chat_drop(c, 0);
    free(c->msgs);
}

int wf_chat_loop(const wf_opts *o, const struct weft_model *m, struct weft_engine *e, const char *chat_template,
                 bool has_template)
{
    wf_chat c;
    wf_line *in = NULL;
    weft_status s = start_chat(&c, o, m, e, chat_template, !has_template);
    if (!s) s = wf_line_open(&in);
    int rc = s ? wf_say_error(s) : 0;
    if (!rc) {
        /* A signal that arrives just after generation must not end the program. */
        if (isatty(STDIN_FILENO)) signal(SIGINT, SIG_IGN);
        greet_user(&c);
        rc = run_turns(&c, in);
    }
    wf_line_close(in);
    end_chat(&c);
    return rc;
}

int wf_chat_once(const wf_opts *o, const struct weft_model *m, struct weft_engine *e, const char *chat_template,
                 const char *text, size_t len)
{
    wf_chat c;
    wf_generation a = {0};
    wf_generate_catch_interrupts();
    weft_status s = start_chat(&c, o, m, e, chat_template, false);
    c.once = true;
    if (!s && strlen(text) != len)
        s = wf_fail(WEFT_ERR_ARG, "the message has a zero byte behind %zu others: messages of a chat are text",
                    strlen(text));
    int rc = s ? wf_say_error(s) : run_turn(&c, text, &a);
    if (!rc && a.interrupted) rc = WF_EXIT_INTERRUPTED;
    wf_printer_free(&a.printer);
    end_chat(&c);
    return rc;
}
