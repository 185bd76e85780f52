/* run: chats, or completes a text. */
#include "cli/generate.h"
#include "cli/chat.h"

#include "base/file.h"
#include "base/options.h"
#include "grammar/grammar.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEP_MS    200       /* of a prompt: Ctrl-C waits for one step */
#define FORMAT_MAX (8 << 20) /* bytes */

static const wf_opt generation_rows[] = {
    {'n', "n-predict", "N", "tokens to generate (default -1: until end of text or a full context)", WF_OPT_I32,
     AT(n_predict), -1, MANY},
    {0, "ignore-eos", NULL, "ignore end-of-text tokens", WF_OPT_FLAG, AT(ignore_eos)},
};
static const WF_GROUP(generation_group, "Generation", generation_rows);

static const wf_opt format_rows[] = {
    {0, "json-schema", "FILE", "keep answers, behind their thoughts, to the JSON schema in a file", WF_OPT_TEXT,
     AT(format.schema)},
    {0, "grammar", "FILE", "the same with a grammar in GBNF, as llama.cpp has it", WF_OPT_TEXT, AT(format.grammar)},
    {0, "regex", "PATTERN", "the same with a pattern of ECMA 262, of the whole answer", WF_OPT_TEXT, AT(format.regex)},
};
static const WF_GROUP(format_group, "Format of answers", format_rows);

static const wf_opt chat_rows[] = {
    {0, "raw", NULL, "continue the text as it is, without the model's chat template", WF_OPT_FLAG, AT(raw)},
    {0, "chat", NULL, "chat, or fail where there is no template; each line of standard input is a message",
     WF_OPT_FLAG, AT(chat)},
    {0, "system", "TEXT", "system message", WF_OPT_TEXT, AT(system)},
    {0, "chat-template", "FILE",
     "Jinja chat template in a file (default: the model's); '?': say which there is", WF_OPT_TEXT,
     AT(chat_template)},
    {0, "hide-thoughts", NULL, "leave out what a reasoning model thinks before its answer", WF_OPT_FLAG,
     AT(hide_thoughts)},
    {0, "context-shift", "on|off",
     "when the context is full: drop the oldest turns of the chat, or refuse the message (default on)", WF_OPT_CHOICE,
     AT(context_shift)},
};
static const WF_GROUP(chat_group, "Chat", chat_rows);

/* What may help where a text that was not put into a chat template ends at once. */
static const char *empty_hint(const wf_opts *o, const struct weft_model *m)
{
    if (!weft_model_info(m)->chat_template) return "it has no chat template, so the text was only continued";
    return o->raw ? "without --raw it would chat" : "its chat template cannot be used, so the text was only continued";
}

/* Continues the text, or starts from BOS if it is empty. */
static int complete_text(const wf_opts *o, const struct weft_model *m, struct weft_engine *e, const char *text,
                         size_t len)
{
    wf_generate_catch_interrupts();
    struct weft_request_params p = wf_request_params(o, m, false);
    int32_t *ids = NULL;
    wf_generation a = {0};
    if (!len && !o->prompt) wf_note(o, "%s is empty: generation starts from BOS", o->file ? o->file : "standard input");
    wf_generate_prepare(o, true);
    weft_status s = len ? wf_prompt_tokens(m, e, text, len, &ids, &p.n_tokens) : WEFT_OK;
    p.tokens = ids;
    bool stopped = wf_generate_prepared();
    int rc = stopped ? WF_EXIT_INTERRUPTED : s ? wf_say_error(s) : wf_generate(o, e, p, NULL, &a);
    if (!rc && !a.printer.closed) wf_generate_report(o, e, &a, empty_hint(o, m));
    if (!rc && a.interrupted) rc = WF_EXIT_INTERRUPTED;
    weft_free(ids);
    wf_printer_free(&a.printer);
    return rc;
}

enum mode { COMPLETE, CHAT_ONCE, CHAT_LOOP, PLAIN_LOOP };

static bool wants_chat(const wf_opts *o) { return o->chat || o->system || o->chat_template; }

static int choose_mode(const wf_opts *o, const struct weft_model *m, const char *chat_template, const char *text,
                       enum mode *mode)
{
    weft_status s = o->raw ? WEFT_ERR_ARG : wf_chat_check(m, chat_template);
    if (s && wants_chat(o)) return wf_say_error(s);
    if (!s && text && !*text && !o->prompt)
        return wf_usage(o->command, "%s is empty, so there is nothing to answer; --raw generates from BOS",
                        o->file ? o->file : "standard input");
    if (s && text && !o->raw && weft_model_info(m)->chat_template)
        wf_note(o, "the text is continued as it is, without a chat: %s", wf_last_error());
    if (s) *mode = text ? COMPLETE : PLAIN_LOOP;
    else *mode = text ? CHAT_ONCE : CHAT_LOOP;
    return 0;
}

/* The text of -p or -f, or all of standard input if nobody types there; NULL: there will be lines. */
static int read_prompt(const wf_opts *o, char **text, size_t *len)
{
    if (!o->prompt && !o->file && (o->chat || isatty(STDIN_FILENO))) return 0;
    int rc = wf_read_text(o, text, len);
    /* Editors and echo end a text with a newline that is not part of the prompt. */
    if (!rc && !o->prompt && *len && (*text)[*len - 1] == '\n') (*text)[--*len] = 0;
    return rc;
}

/* Reads what answers are kept to. One that cannot be kept to is refused before any model is opened. */
static int read_format(wf_opts *o)
{
    const struct {
        const char *option, *file, *text;
        enum weft_grammar kind;
    } ways[] = {{"--json-schema", o->format.schema, NULL, WEFT_GRAMMAR_SCHEMA},
                {"--grammar", o->format.grammar, NULL, WEFT_GRAMMAR_GBNF},
                {"--regex", NULL, o->format.regex, WEFT_GRAMMAR_REGEX}};
    size_t i = 0;
    while (i < WF_LEN(ways) && !ways[i].file && !ways[i].text) i++;
    if (i == WF_LEN(ways)) return 0;
    wf_grammar *g = NULL;
    weft_status s = WEFT_OK;
    if (ways[i].file) s = wf_read_file(ways[i].file, FORMAT_MAX, &o->format.text, &o->format.len);
    else if (!(o->format.text = wf_strdup(ways[i].text))) s = WEFT_ERR_NOMEM;
    else o->format.len = strlen(o->format.text);
    o->format.kind = ways[i].kind;
    if (!s && (s = wf_grammar_compile(o->format.kind, o->format.text, o->format.len, &g)) && ways[i].file)
        s = wf_fail_context(s, "%s", ways[i].file);
    wf_grammar_free(g);
    return s ? wf_say_error(wf_fail_param(s, ways[i].option)) : 0;
}

static int write_text(const wf_opts *o, const struct weft_model *m, struct weft_engine *e,
                      enum mode mode, const char *chat_template, const char *text, size_t len)
{
    switch (mode) {
    case CHAT_ONCE: return wf_chat_once(o, m, e, chat_template, text, len);
    case CHAT_LOOP: return wf_chat_loop(o, m, e, chat_template, true);
    case PLAIN_LOOP: return wf_chat_loop(o, m, e, NULL, false);
    default: return complete_text(o, m, e, text, len);
    }
}

/* Words, or between commas. */
static bool several_adapters(const wf_words *adapters)
{
    const char *comma = adapters->n ? strchr(adapters->v[0], ',') : NULL;
    return adapters->n > 1 || (comma && comma[1]);
}

static int cmd_run(const wf_opts *options)
{
    wf_opts with_format = *options, *o = &with_format;
    struct weft_model *m = NULL;
    struct weft_engine *e = NULL;
    char *text = NULL, *chat_template = NULL;
    size_t len = 0;
    enum mode mode = COMPLETE;
    if (wf_asks_template(o->chat_template)) return wf_explain_template(o);
    if (several_adapters(&o->adapters))
        return wf_usage(o->command, "--lora: a text has one adapter; `weft serve` has several");
    int rc = read_prompt(o, &text, &len);
    if (!rc) rc = wf_read_template(o->chat_template, &chat_template);
    if (!rc) rc = read_format(o);
    if (!rc) rc = wf_open_model(o, false, &m);
    if (!rc) rc = choose_mode(o, m, chat_template, text, &mode);
    struct weft_engine_params p = o->engine;
    p.step_ms = STEP_MS;
    if (!rc) rc = wf_open_engine(o, m, p, &e);
    if (!rc) rc = write_text(o, m, e, mode, chat_template, text ? text : "", len);
    if (wf_generate_pending()) wf_exit_now(rc); /* closing would wait for its step */
    weft_engine_close(e);
    weft_model_close(m);
    free(o->format.text);
    free(chat_template);
    free(text);
    return rc;
}

static const wf_opt_group *const groups[] = {
    &wf_group_model,   &wf_group_text,    &generation_group, &format_group,     &wf_group_sampling, &chat_group,
    &wf_group_draft,   &wf_group_adapters, &wf_group_context, &wf_group_device, &wf_group_parallel, &wf_group_kernels,
    &wf_group_testing, &wf_group_general, NULL,
};

const wf_command wf_cmd_run = {
    .name = "run",
    .usage = "[MODEL] [TEXT] [options]",
    .summary = "Chats, or completes a text. Prints the text to standard output and everything else to "
               "standard error.",
    .more = "MODEL and TEXT are the same as -m MODEL and -p TEXT. A model with a chat\n"
            "template answers the text; --raw, and a model without one, continues it. Without\n"
            "a text it chats on a terminal, line by line. Standard input that is no terminal\n"
            "is the text itself, or with --chat the lines of a chat. A final newline of\n"
            "standard input and of -f FILE is removed. Raw generation starts from BOS if the\n"
            "text is empty. Ctrl-C stops generation, and /help in a chat lists its commands.\n\n"
            "Examples:\n"
            "  weft run -p \"Once upon a time\" -n 60\n"
            "  weft run model.gguf \"What is the capital of France?\"\n"
            "  head -c 2000 story.txt | weft run model.gguf --raw\n",
    .words = {"model", "prompt"},
    .groups = groups,
    .reads_stdin = true,
    .run = cmd_run,
};
