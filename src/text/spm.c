/* spm: SentencePiece's BPE, tokenizer.ggml.model = "llama".
 *
 * Spaces become U+2581. Characters merge by the score of the token that the pair forms, the highest first, and the
 * leftmost among equal scores (Kudo and Richardson 2018, sentencepiece's bpe_model.cc). A character that is not a token
 * becomes its bytes (byte fallback). */
#include "text/internal.h"

#include <stdlib.h>
#include <string.h>

#define SPACE "\xe2\x96\x81" /* U+2581 */

static bool spm_pair(const wf_merger *m, const wf_symbol *l, const wf_symbol *r, uint32_t *priority, int32_t *id)
{
    *id = wf_piece_find(m->tok, m->text + l->start, (size_t)l->len + r->len);
    if (*id < 0) return false;
    /* Higher scores give lower priorities. Maps the bits of a float to an unsigned integer of the reverse order. */
    float score = m->tok->tokens[*id].score;
    uint32_t u;
    score += 0.0f; /* -0 becomes 0 */
    memcpy(&u, &score, sizeof u);
    *priority = u >> 31 ? u : ~(u | 0x80000000u);
    return true;
}

static weft_status merge_text(const wf_tokenizer *t, const char *text, size_t len, wf_ids *out)
{
    wf_merger m = {.tok = t, .text = text, .pair = spm_pair};
    weft_status s = WEFT_OK;
    for (size_t i = 0, n; !s && i < len; i += n) {
        n = wf_utf8_len(text + i, len - i);
        n = WF_MAX(n, 1); /* a byte of invalid UTF-8 is a symbol of its own */
        s = wf_merger_add(&m, n, wf_piece_find(t, text + i, n));
    }
    if (!s) s = wf_merger_run(&m, out);
    wf_merger_free(&m);
    return s;
}

static bool puts_space(const wf_tokenizer *t, const char *text, size_t len, unsigned where)
{
    if (!t->add_space_prefix || t->prepend == WF_PREPEND_EVERY) return t->add_space_prefix;
    bool spaced = *text == ' ' || (len >= 3 && !memcmp(text, SPACE, 3));
    return !spaced && (t->prepend == WF_PREPEND_ALWAYS || where & WF_ENCODE_FIRST);
}

static weft_status spm_encode(const wf_tokenizer *t, const char *text, size_t len, unsigned where, wf_ids *out)
{
    bool prefix = puts_space(t, text, len, where);
    size_t spaces = prefix;
    for (size_t i = 0; i < len; i++) spaces += text[i] == ' ';
    char *buf = wf_calloc(len + 3 * spaces, 1), *p = buf;
    if (!buf) return WEFT_ERR_NOMEM;
    if (prefix) p = (char *)memcpy(p, SPACE, 3) + 3;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == ' ') p = (char *)memcpy(p, SPACE, 3) + 3;
        else *p++ = text[i];
    }
    weft_status s = merge_text(t, buf, (size_t)(p - buf), out);
    free(buf);
    return s;
}

static size_t spm_piece(const wf_tokenizer *t, const wf_vocab_token *tok, char *buf, size_t cap)
{
    (void)t;
    size_t n = 0;
    for (size_t i = 0; i < tok->len; n++) {
        bool space = tok->len - i >= 3 && !memcmp(tok->text + i, SPACE, 3);
        if (n < cap) buf[n] = space ? ' ' : tok->text[i];
        i += space ? 3 : 1;
    }
    return n;
}

static weft_status spm_init(wf_tokenizer *t, const wf_vocab_src *src)
{
    (void)src;
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        int b = wf_byte_token(t->tokens[i].text, t->tokens[i].len);
        if (b >= 0 && (t->byte_id[b] < 0 || t->tokens[i].type == WF_TOKEN_BYTE)) t->byte_id[b] = (int32_t)i;
    }
    return WEFT_OK;
}

const wf_text_kind wf_text_spm = {
    .model = "llama",
    .plain = 1u << WF_TOKEN_NORMAL | 1u << WF_TOKEN_USER | 1u << WF_TOKEN_UNUSED,
    .add_bos = true,
    .add_space_prefix = true,
    .init = spm_init,
    .encode = spm_encode,
    .piece = spm_piece,
};
