/* run: completes a prompt, or chats. */
#include "cli/generate.h"
#include "cli/chat.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define AT(field) offsetof(wf_opts, field)

static const wf_opt generation_rows[] = {
    {'n', "n-predict", "N",
     "tokens to generate (default -1: until end of text or a full context)", WF_OPT_I32,
     AT(n_predict), -1, 2147483647.0},
    {0, "ignore-eos", NULL, "ignore end-of-text tokens", WF_OPT_FLAG, AT(ignore_eos)},
};
static const WF_GROUP(generation_group, "Generation", generation_rows);

static const wf_opt chat_rows[] = {
    {0, "chat", NULL, "apply the chat template to -p, -f or each line of standard input", WF_OPT_FLAG,
     AT(chat)},
    {0, "system", "TEXT", "system message (implies --chat)", WF_OPT_TEXT, AT(system)},
    {0, "chat-template", "FILE",
     "Jinja chat template in a file (implies --chat; default: the model's)", WF_OPT_TEXT,
     AT(chat_template)},
};
static const WF_GROUP(chat_group, "Chat", chat_rows);

/* The parameters that all requests share. A random seed is printed, so that the text can be reproduced. */
static struct weft_request_params request_params(const wf_opts *o)
{
    struct weft_request_params p = {
        .sampling = o->sampling,
        .ignore_eos = o->ignore_eos,
        .max_tokens = o->n_predict > 0 ? (uint32_t)o->n_predict : 0,
        .prefill_only = wf_opts_has(o, "n-predict") && o->n_predict == 0,
    };
    if (p.sampling.temperature > 0 && !wf_opts_has(o, "seed")) {
        p.sampling.seed = wf_random((uint64_t)time(NULL), wf_now_ns()) >> 32;
        wf_note(o, "seed %llu", (unsigned long long)p.sampling.seed);
    }
    return p;
}

/* Continues the text, or starts from BOS if it is empty. */
static int complete(const wf_opts *o, const struct weft_model *m, struct weft_engine *e,
                    struct weft_request_params p, const char *text, size_t len)
{
    int32_t *ids = NULL;
    wf_generation a = {0};
    wf_generate_catch_interrupts();
    weft_status s =
        len ? weft_tokenize(m, text, len, WEFT_TEXT_DEFAULT, &ids, &p.n_tokens) : WEFT_OK;
    p.tokens = ids;
    int rc = s ? wf_say_error(s) : wf_generate(e, p, &a);
    bool ends_line = a.len && a.text[a.len - 1] == '\n';
    if (a.len && !a.closed && !ends_line && isatty(STDOUT_FILENO)) wf_out("\n", 1);
    if (!rc && !a.closed) wf_generate_report(o, e, &a);
    if (!rc && a.interrupted) rc = WF_EXIT_INTERRUPTED;
    weft_free(ids);
    free(a.text);
    return rc;
}

enum mode { COMPLETE, CHAT_ONCE, CHAT_LOOP, PLAIN_LOOP };

static int choose_mode(const wf_opts *o, const struct weft_model *m, const char *chat_template, enum mode *mode)
{
    bool has_text = o->prompt || o->file;
    bool wants_chat = o->chat || o->system || o->chat_template;
    if (!wants_chat && (has_text || !isatty(STDIN_FILENO))) return *mode = COMPLETE, 0;
    weft_status s = wf_chat_check(m, chat_template);
    if (s && wants_chat) return wf_say_error(s);
    *mode = s ? PLAIN_LOOP : has_text ? CHAT_ONCE : CHAT_LOOP;
    return 0;
}

static int write_text(const wf_opts *o, const struct weft_model *m, struct weft_engine *e,
                      enum mode mode, const char *chat_template, const char *text, size_t len)
{
    struct weft_request_params p = request_params(o);
    switch (mode) {
    case CHAT_ONCE:
        return wf_chat_once(o, m, e, p, chat_template, text);
    case CHAT_LOOP:
        return wf_chat_loop(o, m, e, p, chat_template, true);
    case PLAIN_LOOP:
        return wf_chat_loop(o, m, e, p, NULL, false);
    default:
        return complete(o, m, e, p, text, len);
    }
}

static int cmd_run(const wf_opts *o)
{
    struct weft_model *m = NULL;
    struct weft_engine *e = NULL;
    char *text = NULL, *chat_template = NULL;
    size_t len = 0;
    enum mode mode = COMPLETE;
    int rc = o->prompt || o->file ? wf_read_text(o, false, &text, &len) : 0;
    /* Editors end a file with a newline that is not part of the prompt. */
    if (!rc && o->file && len && text[len - 1] == '\n') text[--len] = 0;
    if (!rc) rc = wf_read_template(o->chat_template, &chat_template);
    if (!rc) rc = wf_open_model(o, false, &m);
    if (!rc) rc = choose_mode(o, m, chat_template, &mode);
    if (!rc) rc = wf_open_engine(o, m, o->engine, &e);
    if (!rc) rc = write_text(o, m, e, mode, chat_template, text ? text : "", len);
    weft_engine_close(e);
    weft_model_close(m);
    free(chat_template);
    free(text);
    return rc;
}

static const wf_opt_group *const groups[] = {
    &wf_group_model,   &wf_group_text,   &generation_group,     &wf_group_sampling, &chat_group,
    &wf_group_context, &wf_group_device, &wf_group_kernels, &wf_group_testing, &wf_group_general,  NULL,
};

const wf_command wf_cmd_run = {
    .name = "run",
    .usage = "[-m FILE] [-p TEXT | -f FILE] [options]",
    .summary =
        "Completes a prompt, or chats. Prints the text to standard output and everything else to "
        "standard error.",
    .more = "Without -p and -f it chats on a terminal; a model without a chat template then\n"
            "continues each line as plain text. If standard input is not a terminal, or with\n"
            "-p '', generation starts from BOS. A final newline in the file of -f is removed.\n"
            "Ctrl-C stops generation.\n\n"
            "Example:\n  weft run -p \"Once upon a time\" -n 60\n",
    .groups = groups,
    .run = cmd_run,
};
