/* generate: runs one request and prints its text to stdout as it arrives.
 *
 * The engine's thread only appends to a buffer; the caller of wf_generate prints it. A slow reader of stdout therefore
 * never blocks the engine, and a closed stdout cancels the request.
 */
#ifndef WF_CLI_GENERATE_H
#define WF_CLI_GENERATE_H

#include "cli/cli.h"

typedef struct wf_generation {
    struct weft_event end; /* the DONE event; message is in `message` */
    char message[512];
    char *text; /* everything printed, NUL-terminated; free it */
    size_t len;
    bool interrupted; /* by Ctrl-C */
    bool closed;      /* stdout is closed */
} wf_generation;

/* Redirects Ctrl-C to the next wf_generate: the first one cancels it, even before generation starts, and the second one ends
 * the program. Call it once per wf_generate, as soon as the input is complete; wf_generate restores the handler. */
void wf_generate_catch_interrupts(void);
/* Submits p (on_event and user are set here) and prints until DONE. Returns 0, or an exit code after printing a message. */
int wf_generate(struct weft_engine *e, struct weft_request_params p, wf_generation *out);
/* Prints "weft: prompt ... tokens/s", and why the text ended if it was cut. */
void wf_generate_report(const wf_opts *o, const struct weft_engine *e, const wf_generation *a);

#endif
