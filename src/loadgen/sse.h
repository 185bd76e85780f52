/* sse: server-sent events out of bytes as they come, cut anywhere. */
#ifndef WF_LOADGEN_SSE_H
#define WF_LOADGEN_SSE_H

#include "base/base.h"

#define WF_SSE_LINE ((size_t)1 << 20) /* longest line */

typedef struct wf_sse {
    char *line;
    size_t n, cap;
    size_t n_events;
} wf_sse;

/* One `data:` line. Each event of OpenAI's API has one, so a second one counts as an event of its
 * own. False: stop reading. */
typedef bool (*wf_sse_fn)(void *user, const char *data, size_t len);

/* False when fn said so, or when a line is longer than WF_SSE_LINE or than memory. */
bool wf_sse_add(wf_sse *s, const char *bytes, size_t len, wf_sse_fn fn, void *user);
void wf_sse_free(wf_sse *s);

#endif
