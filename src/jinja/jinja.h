/* jinja: renders chat templates, which are programs in the part of Jinja that transformers runs them with: its
 * sandboxed environment with trim_blocks, lstrip_blocks, loop controls and its own tojson. The text equals that of
 * Python's jinja2.
 *
 * Templates come from strangers. A run has limits on steps, nesting and memory; all of its memory is freed at once at
 * its end. Strings know which of their bytes came with the data and which are the template's own, through all filters,
 * so that the caller can keep contents from becoming control tokens. */
#ifndef WF_JINJA_H
#define WF_JINJA_H

#include "base/base.h"

enum {
    WF_JINJA_MAX_TEMPLATE = 4 << 20, /* bytes */
    WF_JINJA_MAX_STEPS = 8000000,    /* nodes evaluated, and 64 bytes or 16 values touched */
    WF_JINJA_MAX_DEPTH = 300,        /* nested expressions, statements and calls of macros */
    WF_JINJA_MAX_RANGE = 100000,     /* as in jinja2's sandbox */
};
#define WF_JINJA_MAX_MEMORY ((size_t)96 << 20) /* bytes, and 16 for each of the data */

typedef struct wf_jinja_input {
    const char *name;     /* of the template, for messages */
    const char *text;     /* the template; UTF-8 */
    size_t len;
    const char *bos, *eos; /* values of bos_token and eos_token; NULL: "" */
    const char *messages;  /* JSON: a list of objects; NULL: the next two */
    const struct weft_message *turns;
    size_t n_turns;
    const char *tools, *documents; /* JSON lists; NULL: none */
    const char *kwargs;            /* JSON: an object with further variables; NULL: none */
    bool add_generation_prompt;
    bool continue_last;            /* the text ends with the content of the last message, without what follows that */
    int64_t now;                   /* seconds since 1970, of strftime_now; in local time */
    size_t max_steps;              /* 0: WF_JINJA_MAX_STEPS */
} wf_jinja_input;

typedef struct wf_jinja_output {
    char *text; /* NUL-terminated; wf_jinja_output_free frees it */
    size_t len;
    wf_text_span *data; /* the ranges that came with the data, in ascending order */
    size_t n_data;
} wf_jinja_output;

/* WEFT_ERR_UNSUPPORTED: the template cannot be parsed; the message has line and column. WEFT_ERR_ARG: the data is
 * malformed, or the template refuses it or fails on it; WEFT_ERR_FULL: a limit. Thread-safe. */
weft_status wf_jinja_render(const wf_jinja_input *in, wf_jinja_output *out);
void wf_jinja_output_free(wf_jinja_output *out);
/* Parses only. */
weft_status wf_jinja_check(const char *name, const char *text, size_t len);

#endif
