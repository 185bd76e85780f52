/* thoughts: what a model writes before its answer, between two markers. Only what an answer begins with counts; white
 * space around it does not. Models that write messages with a frame around each may think before any of them, and the
 * frames are no part of the answer. Text comes in pieces of any length, and what is made of it does not depend on where
 * they are cut. */
#ifndef WF_THOUGHTS_H
#define WF_THOUGHTS_H

#include "answers/tool_calls.h"

/* Control tokens that mark parts of answers. They are else not in the text, so requests have to ask for them. */
typedef struct wf_shown { /* as show_ids of requests has them */
    int32_t ids[WEFT_MAX_SHOWN];
    size_t n;
} wf_shown;
/* Those of these markers: NULL behind the last one. */
void wf_shown_add(wf_shown *s, const struct weft_model *m, const char *const *markers);

typedef struct wf_thought_kind {
    const char *name; /* as --reasoning-parser has it: vLLM's name, if it has one */
    const char *sign; /* a template that has this marks thoughts so */
    bool channels;            /* channels.h says how; there are no markers */
    const char *open, *close; /* NULL: no thoughts, but frames */
    const char *until;        /* ends them, too, and belongs to the answer; NULL: nothing does */
    const char *begins;       /* what the prompt has of the first frame, put before the answer; NULL: nothing */
    const char *frames[5];    /* around and between messages; '*' stands for a name. Up to NULL */
} wf_thought_kind;

const wf_thought_kind *wf_thought_kind_named(const char *name); /* NULL: there is none of this name */
void wf_thought_kinds_list(char *out, size_t cap);
const wf_thought_kind *wf_thought_kind_of(const char *chat_template); /* NULL: none */

typedef struct wf_thoughts {
    const wf_thought_kind *kind;
    bool inside; /* the prompt has opened them */
    enum { WF_BEFORE, WF_INSIDE, WF_BEHIND, WF_ANSWER } state;
    bool any, begun;
    size_t put_in; /* bytes of kind->begins in what comes first, unless it was a frame: the model did not write them */
    wf_text held;
} wf_thoughts;
/* t: begins as {kind, inside}; free t->held.data. They hand on to out->thought and out->text. false: no memory. */
bool wf_thoughts_feed(wf_thoughts *t, const char *text, size_t len, const wf_call_out *out);
void wf_thoughts_end(wf_thoughts *t, const wf_call_out *out);
/* The tokens that mark them. */
void wf_thoughts_show(const wf_thought_kind *k, const struct weft_model *m, wf_shown *out);
/* Do these tokens of a prompt end in what opens them? */
bool wf_thoughts_opened(const wf_thought_kind *k, const struct weft_model *m, const int32_t *ids, size_t n);

#endif
