/* sse: parses server-sent events from a byte stream that may be split anywhere. */
#ifndef WF_LOADGEN_SSE_H
#define WF_LOADGEN_SSE_H

#include "base/base.h"

#define WF_SSE_LINE ((size_t)1 << 20) /* longest line */

typedef struct wf_sse {
    char *line;
    size_t n, cap;
    size_t n_events;
} wf_sse;

/* Receives one `data:` line. OpenAI's events have one such line each, so every line counts as an event. Return false to
 * stop. */
typedef bool (*wf_sse_fn)(void *user, const char *data, size_t len);

/* Returns false if fn did, if a line is longer than WF_SSE_LINE, or without memory. */
bool wf_sse_add(wf_sse *s, const char *bytes, size_t len, wf_sse_fn fn, void *user);
void wf_sse_free(wf_sse *s);

#endif
