/* answer: what a model wrote, taken apart into thoughts, text and calls of tools, as the chat style of its template says. */
#ifndef WF_ANSWER_H
#define WF_ANSWER_H

#include "serve/channels.h"
#include "serve/thoughts.h"

typedef struct wf_answer wf_answer;
/* How answers to these params are read; they stay the caller's. NULL: no memory. */
wf_answer *wf_answer_new(const wf_params *p);
void wf_answer_free(wf_answer *a); /* NULL is allowed */
/* false: no memory, and the answer is incomplete from here on. */
bool wf_answer_feed(wf_answer *a, const char *text, size_t len, const wf_call_out *out);
/* It has ended; cut: though the model would have gone on. false: as above. */
bool wf_answer_end(wf_answer *a, bool cut, const wf_call_out *out);

#endif
