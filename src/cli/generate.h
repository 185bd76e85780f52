/* generate: runs one request and prints its text to stdout as it arrives. The engine's thread only appends to a buffer,
 * which the caller of wf_generate prints: a slow reader of stdout never blocks the engine, and a closed one cancels.
 *
 * Ctrl-C ends a request within half a second. A step of a long prompt may take longer on a CPU: then the request is
 * abandoned, and ends by itself while the person types on or the program exits. */
#ifndef WF_CLI_GENERATE_H
#define WF_CLI_GENERATE_H

#include "cli/printer.h"

typedef struct wf_generation {
    struct weft_event end; /* the DONE event; message is in `message` */
    char message[512];
    wf_printer printer; /* what was printed, and the answer in it; wf_printer_free frees it */
    uint32_t n_prefilled; /* tokens of the prompt computed, or found in the prefix cache, by whole steps */
    bool interrupted; /* by Ctrl-C */
    bool abandoned;   /* so, and its last step still runs: `end` is empty, and closing the engine would wait for it */
} wf_generation;

/* The parameters that all requests share. A random seed is printed, so that the text can be reproduced. */
struct weft_request_params wf_request_params(const wf_opts *o, const struct weft_model *m, bool chat);
uint64_t wf_new_seed(const wf_opts *o);
/* Redirects Ctrl-C to the next wf_generate: the first one cancels it, even before generation starts, and more within
 * the turn change nothing. Call it once per wf_generate, as soon as the input is complete; wf_generate restores the
 * handler. */
void wf_generate_catch_interrupts(void);
/* The tokens of a text. One that cannot fit the context, however it is cut, is refused before the work. */
weft_status wf_prompt_tokens(const struct weft_model *m, const struct weft_engine *e, const char *text, size_t len,
                             int32_t **ids, size_t *n);
/* Work before a request that may take long, such as tokens of a long text: Ctrl-C is answered at once while it runs.
 * exits: it also ends the program half a second later. */
void wf_generate_prepare(const wf_opts *o, bool exits);
bool wf_generate_prepared(void); /* ends that, with the handler from before; true: Ctrl-C came, so no request */
bool wf_generate_interrupted(void);
/* Submits p (on_event and user are set here) and prints until DONE, and a newline if the text has none. style: what the
 * answer is taken apart by; NULL: it is text. Returns 0, or an exit code after printing a message. */
int wf_generate(const wf_opts *o, struct weft_engine *e, struct weft_request_params p, const wf_answer_style *style,
                wf_generation *out);
bool wf_generate_pending(void); /* does an abandoned request still run? Closing the engine then waits for its step */
/* Prints "weft: prompt ... tokens/s", and why the text ended if it was cut, or is none; hint: what may help then. */
void wf_generate_report(const wf_opts *o, const struct weft_engine *e, const wf_generation *a, const char *hint);

#endif
