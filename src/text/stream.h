/* stream: generated tokens as text, while they come. */
#ifndef WF_STREAM_H
#define WF_STREAM_H

#include "base/text.h"
#include "text/text.h"

/* detokenizer.c: incremental detokenization. It never delivers an incomplete UTF-8 character. */
typedef struct wf_detokenizer {
    const wf_tokenizer *tokenizer;
    unsigned flags;
    int32_t shown[WEFT_MAX_SHOWN];
    size_t n_shown;
    bool drop_space; /* drop the first space, which the tokenizer added at the start of the text */
    char held[8];    /* start of an incomplete character */
    size_t n_held;
    char *text;      /* what the last call delivered */
    size_t cap;
} wf_detokenizer;
void wf_detokenizer_init(wf_detokenizer *s, const wf_tokenizer *t, unsigned flags);
/* These are in the text even if flags hide them: at most WEFT_MAX_SHOWN, which are copied. */
weft_status wf_detokenizer_show(wf_detokenizer *s, const int32_t *ids, size_t n);
/* The text that id completes. *out is valid until the next call. */
weft_status wf_detokenizer_add(wf_detokenizer *s, int32_t id, const char **out, size_t *len);
/* The rest at the end: the bytes of an incomplete character. */
size_t wf_detokenizer_end(wf_detokenizer *s, const char **out);
void wf_detokenizer_free(wf_detokenizer *s);

/* stop.c: finds stop texts in a growing text, and holds back what may become one. */
typedef struct wf_stop {
    char **texts; /* copies */
    size_t n;
    bool include;
    wf_text held;
    size_t n_shown; /* leading bytes of `held` that the last call delivered */
    size_t found;   /* the number of the text that is complete, from 1 on; 0: none is */
} wf_stop;
weft_status wf_stop_init(wf_stop *s, const char *const *texts, size_t n, bool include);
/* Appends text and sets *out to the text that may be delivered, valid until the next call. Once a
 * stop text is complete, `found` says which, and *out ends before it, or after it if `include`. armed false: nothing
 * stops, and all text is delivered. */
weft_status wf_stop_add(wf_stop *s, bool armed, const char *text, size_t len, const char **out, size_t *out_len);
size_t wf_stop_end(wf_stop *s, const char **out); /* the text held back; then nothing is */
void wf_stop_free(wf_stop *s);

#endif
