/* detokenizer: incremental detokenization. A byte-level token may end inside a UTF-8 character; its bytes are held back
 * until the character is complete. */
#include "text/stream.h"

#include <stdlib.h>
#include <string.h>

void wf_detokenizer_init(wf_detokenizer *s, const wf_tokenizer *t, unsigned flags)
{
    *s = (wf_detokenizer){.tokenizer = t, .flags = flags};
}

weft_status wf_detokenizer_show(wf_detokenizer *s, const int32_t *ids, size_t n)
{
    if (n > WEFT_MAX_SHOWN) return wf_fail(WEFT_ERR_ARG, "n_show_ids %zu is too many: at most %d", n, WEFT_MAX_SHOWN);
    for (size_t i = 0; i < n; i++) s->shown[i] = ids[i];
    s->n_shown = n;
    return WEFT_OK;
}

static unsigned flags_of(const wf_detokenizer *s, int32_t id)
{
    for (size_t i = 0; i < s->n_shown; i++)
        if (s->shown[i] == id) return s->flags & ~(unsigned)WEFT_TEXT_HIDE_SPECIAL;
    return s->flags;
}

void wf_detokenizer_free(wf_detokenizer *s) { free(s->text); }

/* Bytes at the end of the text that start an incomplete character: 0 to 3. */
static size_t open_tail(const char *text, size_t len)
{
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        unsigned char c = (unsigned char)text[len - back];
        if (c < 0x80) return 0;
        if (c < 0xC0) continue; /* a continuation byte: look further back */
        size_t need = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
        return need > back && c < 0xF8 ? back : 0;
    }
    return 0;
}

weft_status wf_detokenizer_add(wf_detokenizer *s, int32_t id, const char **out, size_t *len)
{
    unsigned flags = flags_of(s, id);
    size_t n = wf_token_piece(s->tokenizer, id, flags, NULL, 0), need = s->n_held + n + 1;
    if (need > s->cap) {
        char *grown = realloc(s->text, need * 2);
        if (!grown) return wf_fail(WEFT_ERR_NOMEM, "out of host memory for text");
        s->text = grown;
        s->cap = need * 2;
    }
    memcpy(s->text, s->held, s->n_held);
    n = wf_token_piece(s->tokenizer, id, flags, s->text + s->n_held, s->cap - s->n_held) + s->n_held;
    s->n_held = open_tail(s->text, n);
    memcpy(s->held, s->text + n - s->n_held, s->n_held);
    size_t skip = s->drop_space && n > s->n_held && s->text[0] == ' ';
    s->drop_space &= n == s->n_held;
    *out = s->text + skip;
    *len = n - s->n_held - skip;
    return WEFT_OK;
}

size_t wf_detokenizer_end(wf_detokenizer *s, const char **out)
{
    size_t n = s->n_held;
    s->n_held = 0;
    *out = s->held;
    return n;
}
