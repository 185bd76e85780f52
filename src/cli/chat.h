/* chat: conversations on top of wf_generate. */
#ifndef WF_CLI_CHAT_H
#define WF_CLI_CHAT_H

#include "cli/cli.h"

/* The template to use: --chat-template, or NULL for the model's own. WEFT_ERR_ARG with the known
 * names when there is none. */
weft_status wf_chat_check(const wf_opts *o, const struct weft_model *m);
/* One question of -p or -f, formatted as a chat. Exit code. */
int wf_chat_once(const wf_opts *o, const struct weft_model *m, struct weft_engine *e,
                 struct weft_request_params p, const char *text);
/* Reads lines until the end of input and answers each one; without a template, continues each. */
int wf_chat_loop(const wf_opts *o, const struct weft_model *m, struct weft_engine *e,
                 struct weft_request_params p, bool has_template);

#endif
