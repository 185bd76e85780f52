/* wordpiece: BERT's model of a tokenizer.json (tokenizers' models/wordpiece): from its beginning a word is cut into the
 * longest pieces that there are, of which those within it begin with a mark; a word that cannot be is unknown. */
#include "text/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct word {
    const wf_tokenizer *t;
    const char *text;
    size_t len, *steps; /* steps: for wf_stop_asked */
    char *buf;          /* for a piece with its mark, which has t->max_len bytes at most */
} word;

static const char *begin_of(const wf_json_model *j) { return j->begin ? j->begin : ""; }

/* The longest piece at a place, with that in front: its id, -1: there is none; and how much of the word it is. */
static weft_status longest(word *w, size_t at, const char *front, int32_t *id, size_t *used)
{
    const char *text = w->text + at;
    size_t len = w->len - at, mark = strlen(front), room = w->t->max_len - WF_MIN(w->t->max_len, mark);
    *id = -1;
    if (!room) return WEFT_OK;
    memcpy(w->buf, front, mark);
    memcpy(w->buf + mark, text, WF_MIN(len, room));
    for (*used = WF_MIN(len, room); *used && *id < 0; *used -= *id < 0) {
        bool within = *used < len && ((unsigned char)text[*used] & 0xc0) == 0x80; /* a character is not cut */
        WF_TRY(wf_stop_asked(w->steps));
        *id = within ? -1 : wf_piece_find(w->t, w->buf, mark + *used);
    }
    return WEFT_OK;
}

/* Appends the pieces; *id -1: there are none. */
static weft_status cut_word(word *w, wf_ids *out, int32_t *id)
{
    const wf_json_model *j = w->t->json;
    for (size_t at = 0, used = 0; *id >= 0 && at < w->len; at += used) {
        WF_TRY(longest(w, at, at ? j->inside : begin_of(j), id, &used));
        if (*id >= 0) WF_TRY(wf_ids_push(out, *id));
    }
    return WEFT_OK;
}

weft_status wf_json_word_pieces(const wf_tokenizer *t, const char *text, size_t len, size_t *steps, wf_ids *out)
{
    word w = {t, text, len, steps, NULL};
    size_t first = out->n, chars = 0, mark = WF_MAX(strlen(begin_of(t->json)), strlen(t->json->inside));
    for (size_t i = 0; i < len && chars <= t->json->most_chars; chars++)
        i += WF_MAX(wf_utf8_len(text + i, len - i), (size_t)1);
    int32_t id = chars > t->json->most_chars ? -1 : 0;
    if (id >= 0 && !(w.buf = wf_calloc(WF_MIN(t->max_len, mark + len), 1))) return WEFT_ERR_NOMEM;
    weft_status s = cut_word(&w, out, &id);
    free(w.buf);
    if (s || id >= 0) return s;
    out->n = first;
    return t->unk >= 0 ? wf_ids_push(out, t->unk) : WEFT_OK;
}
