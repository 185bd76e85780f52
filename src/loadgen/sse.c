/* sse: splits a byte stream into events. See sse.h. */
#include "loadgen/sse.h"

#include <stdlib.h>
#include <string.h>

/* Ignores comments (keep-alives) and fields other than data. */
static bool take_line(wf_sse *s, wf_sse_fn fn, void *user)
{
    size_t n = s->n;
    s->n = 0;
    if (n && s->line[n - 1] == '\r') n--;
    if (n < 5 || memcmp(s->line, "data:", 5)) return true;
    size_t from = n > 5 && s->line[5] == ' ' ? 6 : 5;
    s->n_events++;
    return fn(user, s->line + from, n - from);
}

bool wf_sse_add(wf_sse *s, const char *bytes, size_t len, wf_sse_fn fn, void *user)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == '\n') {
            if (!take_line(s, fn, user)) return false;
            continue;
        }
        if (s->n == WF_SSE_LINE || !wf_grow(&s->line, s->n, &s->cap, 1)) return false;
        s->line[s->n++] = bytes[i];
    }
    return true;
}

void wf_sse_free(wf_sse *s)
{
    free(s->line);
    *s = (wf_sse){0};
}
