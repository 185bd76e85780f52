/* text: a text that grows, and a piece of another one. */
#ifndef WF_BASE_TEXT_H
#define WF_BASE_TEXT_H

#include "base/base.h"

typedef struct wf_slice {
    const char *p;
    size_t n;
} wf_slice;

typedef struct wf_text {
    char *data; /* NUL-terminated, malloc'ed; NULL: nothing was added */
    size_t len, cap;
    bool failed; /* out of memory: the text is cut, and nothing is added to it any more */
} wf_text;
void wf_text_add(wf_text *t, const char *data, size_t len);
void wf_text_print(wf_text *t, const char *fmt, ...) WF_PRINTF(2, 3); /* at most 1023 bytes */

#endif
