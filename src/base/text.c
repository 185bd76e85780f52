/* text: see the header. */
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void wf_text_add(wf_text *t, const char *data, size_t len)
{
    if (t->failed) return;
    if (t->len + len + 1 > t->cap) {
        size_t cap = WF_MAX(t->cap * 2, t->len + len + 256);
        char *grown = realloc(t->data, cap);
        if (!grown) {
            t->failed = true;
            return;
        }
        t->data = grown;
        t->cap = cap;
    }
    if (len) memcpy(t->data + t->len, data, len);
    t->data[t->len += len] = 0;
}

void wf_text_print(wf_text *t, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    wf_text_add(t, line, WF_MIN((size_t)WF_MAX(n, 0), sizeof line - 1));
}
