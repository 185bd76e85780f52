/* chat: conversations on top of wf_generate. */
#ifndef WF_CLI_CHAT_H
#define WF_CLI_CHAT_H

#include "answers/thoughts.h"
#include "cli/cli.h"

/* A conversation. Without a chat template (plain) the model continues each message as text, and the rest of the
 * conversation is only kept for /save and /retry. */
typedef struct wf_chat {
    wf_opts o; /* a copy, which /set changes; it owns nothing */
    const struct weft_model *m;
    struct weft_engine *e;
    const char *chat_template; /* NULL: the model's */
    bool plain;
    bool once; /* one message is all, so that Ctrl-C ends the program */
    struct weft_request_params p; /* shared by all turns */
    const wf_thought_kind *thoughts; /* as the template shows them; NULL: all is the answer */
    wf_shown shown;                  /* what marks them */
    struct weft_message *msgs;    /* owns the contents; roles are literals */
    size_t n, cap;
} wf_chat;

/* Checks a template; NULL: the model's own. */
weft_status wf_chat_check(const struct weft_model *m, const char *chat_template);
/* Sends one message from -p or -f. Returns an exit code. */
int wf_chat_once(const wf_opts *o, const struct weft_model *m, struct weft_engine *e, const char *chat_template,
                 const char *text, size_t len);
/* Reads lines until end of input and replies to each; without a template, continues each. */
int wf_chat_loop(const wf_opts *o, const struct weft_model *m, struct weft_engine *e, const char *chat_template,
                 bool has_template);

/* ---- the conversation: chat.c ---------------------------------------------------------------- */

/* role: "system", "user", "assistant" or "tool"; WEFT_ERR_ARG for another one. */
weft_status wf_chat_add(wf_chat *c, const char *role, const char *content);
void wf_chat_drop(wf_chat *c, size_t keep); /* drops all messages but the first ones */
/* NULL: none. */
weft_status wf_chat_set_system(wf_chat *c, const char *text);
bool wf_chat_has_system(const wf_chat *c);
/* The token ids of the conversation as it stands. */
weft_status wf_chat_tokens(const wf_chat *c, int32_t **ids, size_t *n);

/* ---- slash commands: chat_commands.c --------------------------------------------------------- */

enum wf_chat_next { WF_CHAT_GO_ON, WF_CHAT_FAILED, WF_CHAT_END, WF_CHAT_RETRY }; /* FAILED: it goes on, too */
/* Runs a line that begins with one slash; two stand for the slash of a message. Unknown ones are said, and never reach
 * the model. */
enum wf_chat_next wf_chat_command(wf_chat *c, const char *line);
/* Says of a message that is a command's name alone, as other programs have it, that it is a message. */
void wf_chat_command_hint(const wf_chat *c, const char *line);

#endif
