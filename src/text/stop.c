/* stop: texts that end generation. A stop text may span several tokens and begin anywhere in one. So the end of the
 * text that could be the start of a stop text is held back until that is decided: no part of a stop text is ever
 * delivered. */
#include "text/stream.h"

#include <stdlib.h>
#include <string.h>

weft_status wf_stop_init(wf_stop *s, const char *const *texts, size_t n, bool include)
{
    *s = (wf_stop){.include = include};
    if (!n) return WEFT_OK;
    s->texts = wf_calloc(n, sizeof *s->texts);
    if (!s->texts) return WEFT_ERR_NOMEM;
    for (; s->n < n; s->n++) {
        if (!texts[s->n] || !texts[s->n][0]) return wf_fail(WEFT_ERR_ARG, "stop text %zu is empty: leave it out", s->n);
        if (!(s->texts[s->n] = wf_strdup(texts[s->n]))) return WEFT_ERR_NOMEM;
    }
    return WEFT_OK;
}

void wf_stop_free(wf_stop *s)
{
    for (size_t i = 0; i < s->n; i++) free(s->texts[i]);
    free(s->texts);
    free(s->held.data);
}

/* The number, from 1 on, of the stop text that begins first, and of these the longest. 0: none is complete. */
static size_t find(const wf_stop *s, size_t *at, size_t *len)
{
    size_t found = 0;
    for (size_t i = 0; i < s->n && s->held.len; i++) {
        size_t n = strlen(s->texts[i]);
        const char *hit = memmem(s->held.data, s->held.len, s->texts[i], n);
        size_t pos = hit ? (size_t)(hit - s->held.data) : 0;
        if (!hit || (found && (pos > *at || (pos == *at && n <= *len)))) continue;
        found = i + 1, *at = pos, *len = n;
    }
    return found;
}

/* Bytes at the end that could be the start of a stop text. */
static size_t open_tail(const wf_stop *s)
{
    size_t longest = 0;
    for (size_t i = 0; i < s->n; i++) {
        size_t n = WF_MIN(strlen(s->texts[i]) - 1, s->held.len);
        while (n > longest && memcmp(s->held.data + s->held.len - n, s->texts[i], n)) n--;
        longest = WF_MAX(longest, n);
    }
    return longest;
}

weft_status wf_stop_add(wf_stop *s, bool armed, const char *text, size_t len, const char **out, size_t *out_len)
{
    size_t at = 0, n = 0;
    *out = text, *out_len = len;
    if (!s->n) return WEFT_OK;
    s->held.len -= s->n_shown; /* what the last call delivered */
    if (s->n_shown) memmove(s->held.data, s->held.data + s->n_shown, s->held.len);
    s->n_shown = 0;
    wf_text_add(&s->held, text, len);
    if (s->held.failed) return wf_fail(WEFT_ERR_NOMEM, "out of host memory for text");
    if (armed) s->found = find(s, &at, &n);
    if (s->found) s->held.len = at + (s->include ? n : 0); /* the rest is never delivered */
    s->n_shown = s->held.len - (s->found || !armed ? 0 : open_tail(s));
    *out = s->held.data;
    *out_len = s->n_shown;
    return WEFT_OK;
}

size_t wf_stop_end(wf_stop *s, const char **out)
{
    size_t n = s->held.len - s->n_shown;
    *out = s->held.data ? s->held.data + s->n_shown : "";
    s->n_shown = s->held.len;
    return n;
}
