/* regex: patterns that split text, through PCRE2. The table of pretokenize.c brings its own, tokenizer.json files
 * theirs. */
#ifndef WF_TEXT_REGEX_H
#define WF_TEXT_REGEX_H

#include "base/base.h"

typedef struct wf_regex wf_regex;

/* A pattern of ours, in PCRE2's syntax. It takes linear time on any text, so nothing limits it. */
weft_status wf_regex_open(const char *pattern, wf_regex **out);
/* A pattern of a stranger, in Oniguruma's syntax, which Hugging Face's tokenizers use. What PCRE2 would read
 * differently is refused. Its matches in a text may take only so many steps together. */
weft_status wf_regex_open_foreign(const char *pattern, wf_regex **out);
void wf_regex_close(wf_regex *);

typedef struct wf_matcher { /* of one pattern, and of one thread */
    const wf_regex *regex;
    void *ctx, *data;
    size_t steps, at; /* that a stranger's pattern may still take; where in the text its last one was */
} wf_matcher;
weft_status wf_matcher_open(wf_matcher *, const wf_regex *, size_t len); /* len: of the text that it is for */
void wf_matcher_close(wf_matcher *);

/* A copy of the text for matching, of the same length; any bytes become what PCRE2 accepts. The caller frees it; NULL:
 * no memory. */
char *wf_regex_subject(const char *text, size_t len);
/* The next match in a subject from offset on. *found: there is one; it may be empty. */
weft_status wf_regex_next(wf_matcher *, const char *text, size_t len, size_t offset, bool *found, size_t *start,
                          size_t *end);

#endif
