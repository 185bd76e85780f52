/* bpe: byte-level BPE, tokenizer.ggml.model = "gpt2".
 *
 * The text is split into words by patterns (pretokenize.c); within a word, bytes merge by the rank of the pair in
 * tokenizer.ggml.merges, lowest rank first. The vocabulary writes each byte as a printable character (GPT-2's
 * bytes_to_unicode): bytes that are printable in Latin-1 as themselves, the other 68 as U+0100 and up. */
#include "text/internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void wf_byte_chars(uint16_t out[256])
{
    uint16_t next = 256;
    for (int b = 0; b < 256; b++) {
        bool same = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        out[b] = same ? (uint16_t)b : next++;
    }
}

void wf_bpe_bytes(wf_tokenizer *t)
{
    wf_byte_chars(t->byte_char);
    memset(t->char_byte, -1, sizeof t->char_byte);
    for (int b = 0; b < 256; b++) {
        uint8_t buf[4];
        utf8proc_ssize_t n = utf8proc_encode_char(t->byte_char[b], buf);
        int32_t id = wf_piece_find(t, (const char *)buf, (size_t)n);
        /* A user-defined token is raw text: U+00F8 there is the letter, not the byte F8. */
        bool letter = n > 1 && id >= 0 && t->tokens[id].type == WF_TOKEN_USER;
        if (!letter) t->byte_id[b] = id;
        t->char_byte[t->byte_char[b]] = (int16_t)b;
    }
}

/* ---- merges ---------------------------------------------------------------------------------- */

static wf_bpe_pair *pair_slot(const wf_tokenizer *t, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint32_t i = (uint32_t)wf_random(t->hash_seed, key) & t->pair_mask;
    while (t->pairs[i].key != UINT64_MAX && t->pairs[i].key != key) i = (i + 1) & t->pair_mask;
    return &t->pairs[i];
}

wf_vocab_merge wf_merge_of(const char *text, size_t len)
{
    const char *space = len > 2 ? memchr(text + 1, ' ', len - 2) : NULL;
    if (!space) return (wf_vocab_merge){text, NULL, (uint32_t)len, 0};
    return (wf_vocab_merge){text, space + 1, (uint32_t)(space - text), (uint32_t)(text + len - space - 1)};
}

/* A merge whose texts are not in the vocabulary can never apply and is left out. */
static weft_status add_merge(wf_tokenizer *t, const wf_vocab_merge *m, uint32_t rank, char *joined, bool *used)
{
    if (!m->right)
        return wf_fail(WEFT_ERR_FORMAT,
                       "tokenizer.ggml.merges: entry %u ('%.*s') is not two texts with a space between", rank,
                       (int)WF_MIN(m->n_left, 40), m->left);
    memcpy(joined, m->left, m->n_left);
    memcpy(joined + m->n_left, m->right, m->n_right);
    int32_t l = wf_piece_find(t, m->left, m->n_left), r = wf_piece_find(t, m->right, m->n_right);
    int32_t id = wf_piece_find(t, joined, (size_t)m->n_left + m->n_right);
    *used = l >= 0 && r >= 0 && id >= 0;
    if (!*used) return WEFT_OK;
    wf_bpe_pair *p = pair_slot(t, l, r);
    if (p->key == UINT64_MAX) *p = (wf_bpe_pair){(uint64_t)(uint32_t)l << 32 | (uint32_t)r, rank, id};
    return WEFT_OK;
}

weft_status wf_bpe_merges(wf_tokenizer *t, const wf_vocab_src *src)
{
    size_t size = 16, longest = 0;
    while (size < (size_t)src->n_merges * 2) size *= 2;
    for (uint32_t i = 0; i < src->n_merges; i++)
        longest = WF_MAX(longest, (size_t)src->merges[i].n_left + src->merges[i].n_right);
    t->pairs = wf_calloc(size, sizeof *t->pairs);
    char *joined = wf_calloc(longest, 1);
    weft_status s = t->pairs && joined ? WEFT_OK : WEFT_ERR_NOMEM;
    for (size_t i = 0; !s && i < size; i++) t->pairs[i].key = UINT64_MAX;
    t->pair_mask = (uint32_t)(size - 1);
    uint32_t dead = 0;
    for (uint32_t i = 0; !s && i < src->n_merges; i++) {
        bool used = true;
        s = add_merge(t, &src->merges[i], i, joined, &used);
        dead += !used;
    }
    if (!s && dead)
        wf_log(WEFT_LOG_INFO, "tokenizer.ggml.merges: %u of %u join texts that tokenizer.ggml.tokens lacks", dead,
               src->n_merges);
    free(joined);
    return s;
}

static weft_status bpe_init(wf_tokenizer *t, const wf_vocab_src *src)
{
    const wf_pre *pre;
    WF_TRY(wf_pre_find(src->pre ? src->pre : "", &pre));
    WF_TRY(wf_pre_steps(pre, &t->pre));
    t->ignore_merges = src->ignore_merges < 0 ? pre->ignore_merges : src->ignore_merges;
    if (src->add_bos < 0 && t->bos >= 0) t->add_bos = pre->add_bos;
    wf_bpe_bytes(t);
    return wf_bpe_merges(t, src);
}

/* ---- text to ids ----------------------------------------------------------------------------- */

bool wf_bpe_pair_of(const wf_merger *m, const wf_symbol *l, const wf_symbol *r, uint32_t *priority, int32_t *id)
{
    if (l->id < 0 || r->id < 0) return false;
    const wf_bpe_pair *p = pair_slot(m->tok, l->id, r->id);
    if (p->key == UINT64_MAX) return false;
    *priority = p->rank;
    *id = p->id;
    return true;
}

/* Id of a whole word, for vocabularies that prefer it to merges (Llama 3); -1: none. */
static int32_t whole_word(const wf_tokenizer *t, const char *text, size_t len)
{
    char buf[1024]; /* twice the longest known token */
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (n + 4 > sizeof buf) return -1;
        n += (size_t)utf8proc_encode_char(t->byte_char[(uint8_t)text[i]], (uint8_t *)buf + n);
    }
    return wf_piece_find(t, buf, n);
}

static weft_status encode_word(wf_merger *m, const char *text, size_t len, wf_ids *out)
{
    const wf_tokenizer *t = m->tok;
    int32_t id = t->ignore_merges ? whole_word(t, text, len) : -1;
    if (id >= 0) return wf_ids_push(out, id);
    m->text = text;
    for (size_t i = 0; i < len; i++) WF_TRY(wf_merger_add(m, 1, t->byte_id[(uint8_t)text[i]]));
    return wf_merger_run(m, out);
}

static weft_status bpe_encode(const wf_tokenizer *t, const char *text, size_t len, unsigned where, wf_ids *out)
{
    (void)where;
    char *spaced = NULL;
    if (t->add_space_prefix) {
        if (!(spaced = wf_calloc(len + 1, 1))) return WEFT_ERR_NOMEM;
        spaced[0] = ' ';
        memcpy(spaced + 1, text, len++);
        text = spaced;
    }
    wf_pieces words;
    wf_merger m = {.tok = t, .pair = wf_bpe_pair_of};
    weft_status s = wf_pretokenise(&t->pre, text, len, 0, &words);
    for (size_t i = 0; !s && i < words.n; i++)
        s = encode_word(&m, words.text.data + words.v[i].begin, words.v[i].end - words.v[i].begin, out);
    wf_merger_free(&m);
    wf_pieces_free(&words);
    free(spaced);
    return s;
}

/* ---- ids to text ----------------------------------------------------------------------------- */

static size_t bpe_piece(const wf_tokenizer *t, const wf_vocab_token *tok, char *buf, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; i < tok->len;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t used = utf8proc_iterate((const uint8_t *)tok->text + i, (utf8proc_ssize_t)(tok->len - i), &c);
        bool byte = used > 0 && (size_t)c < WF_LEN(t->char_byte) && t->char_byte[c] >= 0;
        size_t out = byte || used <= 0 ? 1 : (size_t)used; /* a character that stands for no byte is copied */
        for (size_t k = 0; k < out; k++, n++)
            if (n < cap) buf[n] = byte ? (char)t->char_byte[c] : tok->text[i + k];
        i += used > 0 ? (size_t)used : 1;
    }
    return n;
}

const wf_text_kind wf_text_bpe = {
    .model = "gpt2",
    .plain = 1u << WF_TOKEN_NORMAL | 1u << WF_TOKEN_USER | 1u << WF_TOKEN_UNUSED | 1u << WF_TOKEN_BYTE,
    .init = bpe_init,
    .encode = bpe_encode,
    .piece = bpe_piece,
};
