/* answer: what a model wrote, taken apart into thoughts, text and calls of tools, as its chat template shows them. */
#ifndef WF_ANSWER_H
#define WF_ANSWER_H

#include "answers/channels.h"
#include "answers/thoughts.h"

typedef struct wf_answer_style {
    const wf_call_kind *calls;       /* NULL: they stay text */
    const wf_thought_kind *thoughts; /* the same for what an answer begins with */
    bool thinking;                   /* the prompt has opened them */
    bool continues;                  /* the prompt has the beginning of the answer */
    bool required;                   /* it is a JSON list of calls, whatever the template shows */
    const wf_text *tool_types;       /* for calls, as tool_types.h has them; they stay the caller's */
} wf_answer_style;

typedef struct wf_answer wf_answer;
wf_answer *wf_answer_new(const wf_answer_style *s); /* NULL: no memory */
void wf_answer_free(wf_answer *a); /* NULL is allowed */
/* false: no memory, and the answer is incomplete from here on. */
bool wf_answer_feed(wf_answer *a, const char *text, size_t len, const wf_call_out *out);
bool wf_answer_thinks(const wf_answer *a); /* Is what comes next a thought? */
/* It has ended; cut: though the model would have gone on. false: as above. */
bool wf_answer_end(wf_answer *a, bool cut, const wf_call_out *out);

#endif
