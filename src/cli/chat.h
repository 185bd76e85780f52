/* chat: conversations on top of wf_generate. */
#ifndef WF_CLI_CHAT_H
#define WF_CLI_CHAT_H

#include "cli/cli.h"

/* Checks --chat-template, or the model's own template without it. WEFT_ERR_ARG lists the known names. */
weft_status wf_chat_check(const wf_opts *o, const struct weft_model *m);
/* Sends one message from -p or -f. Returns an exit code. */
int wf_chat_once(const wf_opts *o, const struct weft_model *m, struct weft_engine *e,
                 struct weft_request_params p, const char *text);
/* Reads lines until end of input and replies to each; without a template, continues each. */
int wf_chat_loop(const wf_opts *o, const struct weft_model *m, struct weft_engine *e,
                 struct weft_request_params p, bool has_template);

#endif
