/* generate: one request whose text goes to stdout as it comes.
 *
 * The engine's thread only appends to a buffer; the thread that called wf_generate prints. So a slow
 * reader of stdout never holds up the engine, and a reader that went away cancels the request.
 */
#ifndef WF_CLI_GENERATE_H
#define WF_CLI_GENERATE_H

#include "cli/cli.h"

typedef struct wf_generation {
    struct weft_event end; /* the DONE event; message is in `message` */
    char message[512];
    char *text; /* all that was printed, NUL-terminated; free it */
    size_t len;
    bool interrupted; /* Ctrl-C ended it */
    bool closed;      /* stdout went away */
} wf_generation;

/* From here on Ctrl-C belongs to the next generate: the first one cancels it, even when it comes before
 * the answer begins, and the second one ends the program. Call it as soon as the user has asked, once
 * for each wf_generate, which gives Ctrl-C back when it ends. */
void wf_generate_catch_interrupts(void);
/* Submits *p (on_event and user are set here), prints until DONE. 0 when the request could be
 * submitted and did not fail; otherwise an exit code after a message. */
int wf_generate(struct weft_engine *e, struct weft_request_params p, wf_generation *out);
/* "weft: prompt ... tokens/s", and why the text ended when that is no plain end. */
void wf_generate_report(const wf_opts *o, const struct weft_engine *e, const wf_generation *a);

#endif
