/* wordpiece: BERT's model of a tokenizer.json (tokenizers' models/wordpiece): from its beginning a word is cut into the
 * longest pieces that there are, of which those within it begin with a mark; a word that cannot be is unknown. */
#include "text/internal.h"

#include <stdlib.h>
#include <string.h>

/* The longest piece at the beginning of text, with that in front; -1: there is none. buf has room for both. */
static int32_t longest(const wf_tokenizer *t, const char *text, size_t len, const char *front, char *buf, size_t *used)
{
    size_t mark = strlen(front);
    memcpy(buf, front, mark);
    memcpy(buf + mark, text, len);
    for (*used = len; *used; --*used) {
        bool within = *used < len && ((unsigned char)text[*used] & 0xc0) == 0x80; /* a character is not cut */
        int32_t id = within ? -1 : wf_piece_find(t, buf, mark + *used);
        if (id >= 0) return id;
    }
    return -1;
}

weft_status wf_json_word_pieces(const wf_tokenizer *t, const char *word, size_t len, wf_ids *out)
{
    const wf_json_model *j = t->json;
    const char *begin = j->begin ? j->begin : "";
    size_t first = out->n, chars = 0, used, mark = WF_MAX(strlen(begin), strlen(j->inside));
    for (size_t i = 0; i < len; i += WF_MAX(wf_utf8_len(word + i, len - i), (size_t)1)) chars++;
    char *buf = chars > j->most_chars ? NULL : wf_calloc(mark + len + 1, 1);
    int32_t id = buf ? 0 : -1;
    weft_status s = !buf && chars <= j->most_chars ? WEFT_ERR_NOMEM : WEFT_OK;
    for (size_t at = 0; !s && id >= 0 && at < len; at += used) {
        id = longest(t, word + at, len - at, at ? j->inside : begin, buf, &used);
        if (id >= 0) s = wf_ids_push(out, id);
    }
    free(buf);
    if (s || id >= 0) return s;
    out->n = first;
    return t->unk >= 0 ? wf_ids_push(out, t->unk) : WEFT_OK;
}
