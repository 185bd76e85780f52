/* sse: splits a byte stream into events. See sse.h. */
#include "loadgen/sse.h"

#include <stdlib.h>
#include <string.h>

bool wf_sse_add(wf_sse *s, const char *bytes, size_t len, wf_sse_fn fn, void *user)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == '\n') {
            /* Ignores comments (keep-alives) and fields other than data. */
            size_t n = s->n;
            s->n = 0;
            if (n && s->line[n - 1] == '\r') n--;
            if (n >= 5 && !memcmp(s->line, "data:", 5)) {
                size_t from = n > 5 && s->line[5] == ' ' ? 6 : 5;
                s->n_events++;
                if (!fn(user, s->line + from, n - from)) return false;
            }
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
