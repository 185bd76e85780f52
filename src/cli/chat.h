/* chat: conversations on top of wf_generate. */
#ifndef WF_CLI_CHAT_H
#define WF_CLI_CHAT_H

#include "cli/cli.h"

/* Checks a template; NULL: the model's own. */
weft_status wf_chat_check(const struct weft_model *m, const char *chat_template);
/* Sends one message from -p or -f. Returns an exit code. */
int wf_chat_once(const wf_opts *o, const struct weft_model *m, struct weft_engine *e,
                 struct weft_request_params p, const char *chat_template, const char *text);
/* Reads lines until end of input and replies to each; without a template, continues each. */
int wf_chat_loop(const wf_opts *o, const struct weft_model *m, struct weft_engine *e,
                 struct weft_request_params p, const char *chat_template, bool has_template);

#endif
