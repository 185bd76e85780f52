/* json_model: the kind of tokenizer that a tokenizer.json describes. Text is normalised, added tokens that say so are
 * found in the result, the rest is cut into pieces (steps.h), and each piece goes through the model: BPE over
 * characters, with bytes for those that the vocabulary lacks (tokenizers' models/bpe), Unigram, the most probable
 * cut (models/unigram; Kudo 2018), or WordPiece. Read by json_read.c. */
#include "text/internal.h"
#include "text/steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void wf_json_model_free(wf_json_model *j)
{
    if (!j) return;
    wf_steps_free(&j->normalisers);
    wf_steps_free(&j->pretokenizers);
    wf_specials_free(&j->pieces);
    wf_specials_free(&j->normal);
    wf_specials_free(&j->raw_user);
    wf_specials_free(&j->raw_all);
    for (uint32_t i = 0; i < j->n_normal; i++) free((char *)j->normal_tokens[i].text);
    free(j->normal_tokens);
    free(j->normal_ids);
    free(j->scores);
    free(j->begin);
    free(j->inside);
    free(j->rules);
    free(j);
}

/* ---- BPE ------------------------------------------------------------------------------------------ */

static bool has_bytes(const wf_tokenizer *t, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (t->byte_id[(uint8_t)p[i]] < 0) return false;
    return t->json->byte_fallback;
}

/* A character as a symbol; its bytes, or the unknown token, where the vocabulary lacks it. *unknown: that was the last
 * symbol. */
static weft_status add_char(wf_merger *m, const char *p, size_t n, bool *unknown)
{
    const wf_tokenizer *t = m->tok;
    int32_t id = wf_piece_find(t, p, n);
    bool bytes = id < 0 && has_bytes(t, p, n), fused = *unknown && t->json->fuse_unk;
    *unknown = id < 0 && !bytes && t->unk >= 0;
    if (id >= 0) return wf_merger_add(m, n, id);
    for (size_t i = 0; bytes && i < n; i++) WF_TRY(wf_merger_add(m, 1, t->byte_id[(uint8_t)p[i]]));
    return *unknown && !fused ? wf_merger_add(m, n, t->unk) : WEFT_OK;
}

static weft_status encode_bpe(wf_merger *m, const char *p, size_t len, bool ignore_merges, wf_ids *out)
{
    int32_t whole = ignore_merges ? wf_piece_find(m->tok, p, len) : -1;
    if (whole >= 0) return wf_ids_push(out, whole);
    bool unknown = false;
    for (size_t i = 0, n; i < len; i += n) {
        n = WF_MAX(wf_utf8_len(p + i, len - i), (size_t)1);
        WF_TRY(add_char(m, p + i, n, &unknown));
    }
    return wf_merger_run(m, out);
}

weft_status wf_json_bpe(const wf_tokenizer *t, const char *piece, size_t len, bool ignore_merges, wf_ids *out)
{
    wf_merger m = {.tok = t, .pair = wf_bpe_pair_of, .text = piece};
    weft_status s = encode_bpe(&m, piece, len, ignore_merges, out);
    wf_merger_free(&m);
    return s;
}

/* ---- Unigram ---------------------------------------------------------------------------------------- */

typedef struct best { /* the best cut of the text up to here */
    double score;
    uint32_t start; /* of its last piece */
    bool reached, unknown;
} best;

static void offer(best *b, double score, size_t start, bool unknown)
{
    if (!b->reached || score > b->score) *b = (best){score, (uint32_t)start, true, unknown};
}

/* The cut, from its end: `start` of each best becomes the end of its piece's successor. Unknown neighbours are one
 * piece. */
static weft_status push_cut(const wf_tokenizer *t, const char *p, size_t len, const best *b, wf_ids *out)
{
    wf_ids starts = {0};
    weft_status s = WEFT_OK;
    for (size_t end = len; end && !s; end = b[end].start) {
        size_t start = b[end].start;
        bool joined = t->unk >= 0 && b[end].unknown && start && b[start].unknown;
        if (!joined) s = wf_ids_push(&starts, (int32_t)start);
    }
    for (size_t i = starts.n; i-- > 0 && !s;) {
        uint32_t start = (uint32_t)starts.v[i];
        size_t n = (i ? (uint32_t)starts.v[i - 1] : len) - start;
        int32_t id = wf_piece_find(t, p + start, n);
        s = id >= 0 ? wf_ids_push(out, id) : wf_fallback(t, p + start, n, out);
    }
    free(starts.v);
    return s;
}

static weft_status encode_unigram(const wf_tokenizer *t, const char *p, size_t len, size_t *steps, wf_ids *out)
{
    best *b = wf_calloc(len + 1, sizeof *b);
    if (!b) return WEFT_ERR_NOMEM;
    weft_status s = WEFT_OK;
    for (size_t at = 0, n; at < len && !s; at += n) {
        n = WF_MAX(wf_utf8_len(p + at, len - at), (size_t)1);
        s = wf_stop_asked(steps);
        const wf_json_model *j = t->json;
        bool single = false;
        wf_walk w = {0};
        for (int32_t id; (id = wf_specials_next(&j->pieces, t->tokens, p + at, len - at, &w)) >= 0;) {
            if (j->rules[id] & WF_RULE_ADDED) continue;
            offer(&b[at + w.depth], b[at].score + j->scores[id], at, id == t->unk);
            single |= w.depth == n;
        }
        if (!single) offer(&b[at + n], b[at].score + j->unknown_score, at, true);
    }
    if (!s) s = push_cut(t, p, len, b, out);
    free(b);
    return s;
}

/* ---- WordPiece -------------------------------------------------------------------------------------------------- */

/* BERT's (models/wordpiece): from its beginning a word is cut into the longest pieces that there are, of which those
 * within it begin with a mark; a word that cannot be is unknown. */
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

/* Of one piece, which is a word. */
static weft_status encode_word(const wf_tokenizer *t, const char *text, size_t len, size_t *steps, wf_ids *out)
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

static weft_status encode_part(const wf_tokenizer *t, const char *text, size_t len, size_t head, wf_ids *out)
{
    wf_pieces pieces;
    wf_merger m = {.tok = t, .pair = wf_bpe_pair_of};
    weft_status s = wf_pretokenise(&t->json->pretokenizers, text, len, head, &pieces);
    for (size_t i = 0; i < pieces.n && !s; i++) {
        const char *p = m.text = pieces.text.data + pieces.v[i].begin;
        size_t n = pieces.v[i].end - pieces.v[i].begin;
        s = t->json->unigram  ? encode_unigram(t, p, n, &m.n_steps, out)
            : t->json->inside ? encode_word(t, p, n, &m.n_steps, out)
                              : encode_bpe(&m, p, n, t->ignore_merges, out);
    }
    wf_merger_free(&m);
    wf_pieces_free(&pieces);
    return s;
}

/* Normalised text, with the added tokens that are looked for in it. */
static weft_status encode_normal(const wf_tokenizer *t, const char *text, size_t len, size_t head, unsigned where,
                                 wf_ids *out)
{
    const wf_json_model *j = t->json;
    size_t start = 0, steps = 0;
    for (size_t i = 0, used = 0; i < len && j->n_normal && !(where & WF_ENCODE_NO_ADDED);) {
        WF_TRY(wf_stop_asked(&steps));
        int32_t k = wf_specials_match(&j->normal, j->normal_tokens, text + i, len - i, &used);
        wf_text_span found = {i, i + used};
        i += k < 0 ? 1 : used;
        if (k < 0 || !wf_special_fits(j->rules[j->normal_ids[k]], text, len, start, &found)) continue;
        if (found.begin > start)
            WF_TRY(encode_part(t, text + start, found.begin - start, head - WF_MIN(head, start), out));
        WF_TRY(wf_ids_push(out, j->normal_ids[k]));
        start = found.end;
    }
    return len > start ? encode_part(t, text + start, len - start, head - WF_MIN(head, start), out) : WEFT_OK;
}

static weft_status json_encode(const wf_tokenizer *t, const char *text, size_t len, unsigned where, wf_ids *out)
{
    char *normal;
    size_t n, head = where & WF_ENCODE_FIRST ? wf_head_of(text, len) : 0;
    if (!t->json->normalisers.n) return encode_normal(t, text, len, head, where, out);
    WF_TRY(wf_normalise(&t->json->normalisers, text, len, &normal, &n, &head));
    weft_status s = encode_normal(t, normal, n, head, where, out);
    free(normal);
    return s;
}

static size_t json_piece(const wf_tokenizer *t, const wf_vocab_token *tok, char *buf, size_t cap)
{
    return (t->json->byte_level ? wf_text_bpe : wf_text_spm).piece(t, tok, buf, cap);
}

/* ---- making -------------------------------------------------------------------------------------------- */

static weft_status json_init(wf_tokenizer *t, const wf_vocab_src *src)
{
    t->json = src->json;
    t->ignore_merges = src->ignore_merges > 0;
    if (t->json->byte_level) wf_bpe_bytes(t);
    for (uint32_t i = 0; i < t->n_tokens && !t->json->byte_level; i++) {
        int b = t->tokens[i].type == WF_TOKEN_BYTE ? wf_byte_token(t->tokens[i].text, t->tokens[i].len) : -1;
        if (b >= 0) t->byte_id[b] = (int32_t)i;
    }
    /* Token texts as they look in normalised text. */
    wf_json_model *j = t->json;
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_tokens; i++)
        n += t->tokens[i].type == WF_TOKEN_USER && j->rules[i] & WF_RULE_NORMALIZED;
    j->normal_tokens = wf_calloc(n, sizeof *j->normal_tokens);
    j->normal_ids = wf_calloc(n, sizeof *j->normal_ids);
    if (!j->normal_tokens || !j->normal_ids) return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < t->n_tokens && j->n_normal < n; i++) {
        char *text;
        size_t len, none = 0;
        if (t->tokens[i].type != WF_TOKEN_USER || !(j->rules[i] & WF_RULE_NORMALIZED)) continue;
        WF_TRY(wf_normalise(&j->normalisers, t->tokens[i].text, t->tokens[i].len, &text, &len, &none));
        j->normal_ids[j->n_normal] = (int32_t)i;
        j->normal_tokens[j->n_normal++] = (wf_vocab_token){.text = text, .len = (uint32_t)len, .type = WF_TOKEN_USER};
    }
    WF_TRY(wf_specials_init(&j->normal, j->normal_tokens, j->n_normal, 1u << WF_TOKEN_USER, NULL));
    if (t->json->unigram) return wf_specials_init(&t->json->pieces, t->tokens, t->n_tokens, wf_text_hf.plain, NULL);
    return t->json->inside ? WEFT_OK : wf_bpe_merges(t, src);
}

const wf_text_kind wf_text_hf = {
    .model = "tokenizer.json",
    .plain = 1u << WF_TOKEN_NORMAL | 1u << WF_TOKEN_USER | 1u << WF_TOKEN_BYTE,
    .init = json_init,
    .encode = json_encode,
    .piece = json_piece,
};
