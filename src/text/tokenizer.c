/* tokenizer: the table of kinds, and what all kinds share: the tables of a vocabulary, special tokens, tokens that end
 * generation, and conversion from text to ids and back, except for the kind's own part. */
#include "text/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const wf_text_kind *const kinds[] = {&wf_text_spm, &wf_text_bpe};

/* ---- small helpers of the folder ------------------------------------------------------------- */

weft_status wf_ids_push(wf_ids *a, int32_t id)
{
    if (!wf_grow(&a->v, a->n, &a->cap, sizeof *a->v)) return WEFT_ERR_NOMEM;
    a->v[a->n++] = id;
    return WEFT_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

int wf_byte_token(const char *text, size_t len)
{
    if (len != 6 || memcmp(text, "<0x", 3) || text[5] != '>') return -1;
    int hi = hex_digit(text[3]), lo = hex_digit(text[4]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

static uint32_t *slot_of(const wf_tokenizer *t, const char *text, size_t len)
{
    uint32_t i = (uint32_t)wf_hash(text, len) & t->slot_mask;
    for (; t->slots[i]; i = (i + 1) & t->slot_mask) {
        const wf_vocab_token *tok = &t->tokens[t->slots[i] - 1];
        if (tok->len == len && !memcmp(tok->text, text, len)) break;
    }
    return &t->slots[i];
}

int32_t wf_piece_find(const wf_tokenizer *t, const char *text, size_t len)
{
    return len > t->max_len ? -1 : (int32_t)*slot_of(t, text, len) - 1;
}

/* The token of what has no other; -1: it is dropped, as llama.cpp and tokenizers do with bytes that a byte-level
 * vocabulary lacks, whatever its unknown token is for. */
static int32_t unknown_of(const wf_tokenizer *t) { return t->kind == &wf_text_bpe ? -1 : t->unk; }

weft_status wf_fallback(const wf_tokenizer *t, const char *text, size_t len, wf_ids *out)
{
    bool bytes = !t->json || t->json->byte_fallback;
    for (size_t i = 0; i < len; i++) bytes = bytes && t->byte_id[(uint8_t)text[i]] >= 0;
    int32_t unknown = unknown_of(t);
    if (!bytes) return unknown < 0 ? WEFT_OK : wf_ids_push(out, unknown);
    for (size_t i = 0; i < len; i++) WF_TRY(wf_ids_push(out, t->byte_id[(uint8_t)text[i]]));
    return WEFT_OK;
}

/* ---- tokens that end generation -------------------------------------------------------------- */

/* Found by text, because files often give the id of only one of them (the list follows llama.cpp's
 * src/llama-vocab.cpp). A normal token with such a text is plain text. A user-defined one becomes a control token, so
 * that a prompt cannot inject it. */
static const char *const enders[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>",
    "<|end_of_text|>", "<|end_of_turn|>", "<EOT>", "_<EOT>", "\xe2\x96\x81<EOT>", "<|EOT|>", "<end_of_utterance>",
    "[EOT]", "[EOS]", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>",
    ("<\xef\xbd\x9c" "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>")};
/* As user-defined tokens these are HTML (Gemma). */
static const char *const control_enders[] = {"</s>", "<eos>"};

static bool has_text(const wf_vocab_token *tok, const char *text)
{
    return strlen(text) == tok->len && !memcmp(text, tok->text, tok->len);
}

static bool ends_generation(const wf_vocab_token *tok)
{
    bool control = tok->type == WF_TOKEN_CONTROL, found = false;
    if (!control && tok->type != WF_TOKEN_USER) return false;
    for (size_t i = 0; i < WF_LEN(enders); i++) found = found || has_text(tok, enders[i]);
    for (size_t i = 0; control && i < WF_LEN(control_enders); i++) found = found || has_text(tok, control_enders[i]);
    return found;
}

static int32_t ender_named(const wf_tokenizer *t, const char *text)
{
    for (uint32_t i = 0; i < t->n_tokens; i++)
        if (t->eog[i] && has_text(&t->tokens[i], text)) return (int32_t)i;
    return -1;
}

/* ---- making a tokenizer ---------------------------------------------------------------------- */

static weft_status check_ids(const wf_vocab_src *src)
{
    const struct {
        const char *key;
        int32_t id;
    } ids[] = {{"bos", src->bos}, {"eos", src->eos}, {"unknown", src->unk}, {"eot", src->eot}, {"eom", src->eom}};
    for (size_t i = 0; i < WF_LEN(ids); i++)
        if (ids[i].id < -1 || (ids[i].id >= 0 && (uint32_t)ids[i].id >= src->n_tokens))
            return wf_fail(WEFT_ERR_FORMAT, "tokenizer.ggml.%s_token_id is %d, outside of the vocabulary of %u tokens",
                           ids[i].key, ids[i].id, src->n_tokens);
    if (src->add_bos > 0 && src->bos < 0)
        return wf_fail(WEFT_ERR_FORMAT,
                       "tokenizer.ggml.add_bos_token is true but there is no tokenizer.ggml.bos_token_id");
    if (src->add_eos > 0 && src->eos < 0)
        return wf_fail(WEFT_ERR_FORMAT,
                       "tokenizer.ggml.add_eos_token is true but there is no tokenizer.ggml.eos_token_id");
    return WEFT_OK;
}

static weft_status copy_tokens(wf_tokenizer *t, const wf_vocab_src *src)
{
    t->n_tokens = src->n_tokens;
    size_t bytes = 0;
    for (uint32_t i = 0; i < t->n_tokens; i++) bytes += src->tokens[i].len;
    t->tokens = wf_calloc(t->n_tokens, sizeof *t->tokens);
    t->eog = wf_calloc(t->n_tokens, 1);
    t->texts = wf_calloc(bytes, 1);
    if (!t->tokens || !t->eog || !t->texts) return WEFT_ERR_NOMEM;
    char *text = t->texts;
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        wf_vocab_token *tok = &t->tokens[i];
        *tok = src->tokens[i];
        if (tok->len) tok->text = memcpy(text, src->tokens[i].text, tok->len);
        text += tok->len;
        if (tok->type < WF_TOKEN_NORMAL || tok->type > WF_TOKEN_BYTE) tok->type = WF_TOKEN_NORMAL;
        if (isnan(tok->score)) tok->score = -INFINITY;
    }
    return WEFT_OK;
}

static weft_status fill(wf_tokenizer *t, const wf_vocab_src *src)
{
    const unsigned user = 1u << WF_TOKEN_USER, all = user | 1u << WF_TOKEN_CONTROL | 1u << WF_TOKEN_UNKNOWN;
    t->bos = src->bos, t->eos = src->eos, t->unk = src->unk;
    t->add_bos = src->add_bos < 0 ? t->kind->add_bos && src->bos >= 0 : src->add_bos;
    t->add_eos = src->add_eos > 0;
    t->between = WF_MAX(src->between, (uint8_t)1), t->one_type = src->one_type;
    t->add_space_prefix = src->add_space_prefix < 0 ? t->kind->add_space_prefix : src->add_space_prefix;
    t->prepend = src->prepend;
    memset(t->byte_id, -1, sizeof t->byte_id);
    WF_TRY(copy_tokens(t, src));
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        if (!ends_generation(&t->tokens[i])) continue;
        t->eog[i] = 1;
        t->tokens[i].type = WF_TOKEN_CONTROL;
    }
    /* In the harmony format <|end|> ends a message; <|return|> or <|call|> end the answer. */
    int32_t end = ender_named(t, "<|end|>");
    if (end >= 0 && ender_named(t, "<|return|>") >= 0 && ender_named(t, "<|call|>") >= 0) t->eog[end] = 0;
    const int32_t named[] = {src->eos, src->eot, src->eom};
    for (size_t i = 0; i < WF_LEN(named); i++)
        if (named[i] >= 0) t->eog[named[i]] = 1;
    for (uint32_t i = 0; i < src->n_enders; i++) t->eog[src->enders[i]] = 1;
    /* Of several tokens with the same text the last one is used. */
    size_t size = 16;
    while (size < (size_t)t->n_tokens * 2) size *= 2;
    t->slots = wf_calloc(size, sizeof *t->slots);
    if (!t->slots) return WEFT_ERR_NOMEM;
    t->slot_mask = (uint32_t)(size - 1);
    t->hash_seed = wf_hash_seed();
    size_t asked = 0;
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        const wf_vocab_token *tok = &t->tokens[i];
        WF_TRY(wf_stop_asked(&asked));
        bool added = t->json && t->json->rules[i] & WF_RULE_ADDED;
        if (!tok->len || added || !(t->kind->plain >> tok->type & 1)) continue;
        *slot_of(t, tok->text, tok->len) = i + 1;
        t->max_len = WF_MAX(t->max_len, tok->len);
    }
    WF_TRY(wf_specials_init(&t->user, t->tokens, t->n_tokens, user, NULL));
    WF_TRY(wf_specials_init(&t->all, t->tokens, t->n_tokens, all, NULL));
    if (t->json) WF_TRY(wf_specials_init(&t->json->raw_user, t->tokens, t->n_tokens, user, t->json->rules));
    if (t->json) WF_TRY(wf_specials_init(&t->json->raw_all, t->tokens, t->n_tokens, all, t->json->rules));
    return t->kind->init(t, src);
}

weft_status wf_tokenizer_create(const wf_vocab_src *src, wf_tokenizer **out)
{
    for (size_t i = 0; i < WF_LEN(kinds); i++)
        if (src->model && !strcmp(kinds[i]->model, src->model)) return wf_tokenizer_of_kind(kinds[i], src, out);
    return wf_fail(WEFT_ERR_UNSUPPORTED,
                   "tokenizer.ggml.model is '%.64s'; weft reads 'llama' (SentencePiece), 'gpt2' (byte-level BPE), "
                   "'gemma4' (BPE with SentencePiece's spaces), 'bert' (WordPiece) and 't5' (Unigram)",
                   src->model ? src->model : "");
}

weft_status wf_tokenizer_of_kind(const wf_text_kind *kind, const wf_vocab_src *src, wf_tokenizer **out)
{
    wf_tokenizer *t = wf_calloc(1, sizeof *t);
    if (!t) return wf_json_model_free(src->json), WEFT_ERR_NOMEM;
    t->kind = kind;
    t->json = src->json;
    weft_status s = !src->n_tokens || src->n_tokens > INT32_MAX
                        ? wf_fail(WEFT_ERR_FORMAT, "tokenizer.ggml.tokens has %u entries", src->n_tokens)
                        : WEFT_OK;
    if (!s) s = check_ids(src);
    if (!s) s = fill(t, src);
    if (s) return wf_tokenizer_destroy(t), s;
    *out = t;
    return WEFT_OK;
}

void wf_tokenizer_destroy(wf_tokenizer *t)
{
    if (!t) return;
    wf_steps_free(&t->pre);
    wf_json_model_free(t->json);
    wf_specials_free(&t->user);
    wf_specials_free(&t->all);
    free(t->tokens);
    free(t->texts);
    free(t->eog);
    free(t->slots);
    free(t->pairs);
    free(t);
}

/* ---- text to ids ----------------------------------------------------------------------------- */

typedef struct encoder {
    const wf_tokenizer *t;
    const char *text;
    size_t len;
    const wf_text_span *plain, *plain_end; /* those that end behind the current position */
    const wf_specials *user, *specials; /* to find in them; outside of them */
    uint8_t *marks; /* bits of the special tokens found there; NULL: there are no plain ranges */
} encoder;

static bool in_plain(encoder *e, size_t i)
{
    while (e->plain < e->plain_end && e->plain->end <= i) e->plain++;
    return e->plain < e->plain_end && e->plain->begin <= i;
}

static bool is_blank(const wf_vocab_token *tok)
{
    for (uint32_t i = 0; i < tok->len; i++)
        if (!strchr(" \t\r\n", tok->text[i])) return false;
    return true;
}

/* A user-defined token at i, which may cross the ends of ranges. Not one that marks turns: text of others cannot have
 * it. */
static int32_t match_user(const encoder *e, size_t i, bool plain, size_t *used)
{
    int32_t id = wf_specials_match(e->user, e->t->tokens, e->text + i, e->len - i, used);
    bool mark = id >= 0 && plain && e->marks[id / 8] >> id % 8 & 1;
    return mark && !is_blank(&e->t->tokens[id]) ? -1 : id;
}

static uint8_t rules_of(const encoder *e, int32_t id) { return e->t->json ? e->t->json->rules[id] : 0; }

/* The special token at i and its length; -1: none. */
static int32_t match(encoder *e, size_t i, size_t *used)
{
    size_t own = 0;
    bool plain = in_plain(e, i);
    int32_t user = match_user(e, i, plain, used);
    if (plain) return user;
    size_t len = (e->plain < e->plain_end ? e->plain->begin : e->len) - i;
    int32_t id = wf_specials_match(e->specials, e->t->tokens, e->text + i, len, &own);
    if (id < 0 || (user >= 0 && own < *used)) return user;
    *used = own;
    return id;
}

/* Marks the special tokens in the text around the plain ranges. */
static weft_status find_marks(encoder *e)
{
    e->marks = wf_calloc(e->t->n_tokens / 8 + 1, 1);
    if (!e->marks) return WEFT_ERR_NOMEM;
    const wf_text_span *first = e->plain;
    size_t steps = 0;
    for (size_t i = 0, used = 0; i < e->len; i += used) {
        WF_TRY(wf_stop_asked(&steps));
        int32_t id = in_plain(e, i) ? -1 : match(e, i, &used);
        if (id >= 0) e->marks[id / 8] |= (uint8_t)(1 << id % 8);
        else used = in_plain(e, i) ? e->plain->end - i : 1;
    }
    e->plain = first;
    return WEFT_OK;
}

/* Special tokens become their ids, the text between them goes through the kind. */
static weft_status encode(encoder *e, wf_ids *out)
{
    const wf_tokenizer *t = e->t;
    unsigned added = e->marks ? WF_ENCODE_NO_ADDED : 0;
    size_t start = 0, steps = 0;
    for (size_t i = 0, used = 0; i < e->len;) {
        WF_TRY(wf_stop_asked(&steps));
        int32_t id = match(e, i, &used);
        wf_text_span found = {i, i + used};
        i += id < 0 ? 1 : used;
        if (id < 0 || !wf_special_fits(rules_of(e, id), e->text, e->len, start, &found)) continue;
        if (found.begin > start)
            WF_TRY(
                t->kind->encode(t, e->text + start, found.begin - start, added | (start ? 0 : WF_ENCODE_FIRST), out));
        WF_TRY(wf_ids_push(out, id));
        start = found.end;
    }
    return e->len > start
               ? t->kind->encode(t, e->text + start, e->len - start, added | (start ? 0 : WF_ENCODE_FIRST), out)
               : WEFT_OK;
}

weft_status wf_tokenize_around(const wf_tokenizer *t, const char *text, size_t len, const wf_text_span *plain,
                               size_t n_plain, unsigned flags, int32_t **ids, size_t *n)
{
    if (len > WF_TEXT_MAX)
        return wf_fail(WEFT_ERR_ARG, "text of %zu bytes is too long to tokenise; the limit is %zu", len, WF_TEXT_MAX);
    wf_ids out = {0};
    /* Normalised text is searched later, by the kind; but not across plain ranges, whose ends it does not know. */
    bool later = t->json && !n_plain;
    encoder e = {t,
                 text,
                 len,
                 plain,
                 n_plain ? plain + n_plain : plain,
                 later ? &t->json->raw_user : &t->user,
                 later ? &t->json->raw_all : &t->all,
                 NULL};
    if (flags & WEFT_TEXT_NO_PARSE_SPECIAL) e.specials = e.user;
    bool add = !(flags & WEFT_TEXT_NO_ADD_SPECIAL);
    weft_status s = wf_grow(&out.v, 0, &out.cap, sizeof *out.v) ? WEFT_OK : WEFT_ERR_NOMEM;
    if (!s && add && t->add_bos) s = wf_ids_push(&out, t->bos);
    if (!s && n_plain) s = find_marks(&e);
    if (!s) s = encode(&e, &out);
    if (!s && add && t->add_eos) s = wf_ids_push(&out, t->eos);
    free(e.marks);
    if (s) return free(out.v), s;
    *ids = out.v;
    *n = out.n;
    return WEFT_OK;
}

weft_status wf_tokenize(const wf_tokenizer *t, const char *text, size_t len, unsigned flags, int32_t **ids, size_t *n)
{
    return wf_tokenize_around(t, text, len, (const wf_text_span[1]){{0}}, 0, flags, ids, n);
}

weft_status wf_tokenize_pair(const wf_tokenizer *t, const char *first, size_t first_len, const char *text, size_t len,
                             int32_t **ids, size_t *n, size_t *second)
{
    const struct {
        const char *text;
        size_t len;
        uint8_t ends;
    } parts[] = {{first, first_len, t->between}, {text, len, 1}};
    wf_ids all = {0};
    *ids = NULL, *n = 0;
    if (!t->add_eos)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "the tokenizer of this model has no token for the end of a text, which "
                       "would part two of them");
    if (t->between == WF_NO_PAIRS)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "the tokenizer of this model makes pairs of texts that weft does not: "
                       "'pair' of its post-processor is not '[BOS] $A EOS... $B EOS'; take a model with such pairs");
    weft_status s = t->add_bos ? wf_ids_push(&all, t->bos) : WEFT_OK;
    for (size_t i = 0; i < WF_LEN(parts) && !s; i++) {
        int32_t *part = NULL;
        size_t m = 0;
        *second = t->one_type ? 0 : all.n;
        s = wf_tokenize(t, parts[i].text, parts[i].len, WEFT_TEXT_NO_ADD_SPECIAL, &part, &m);
        for (size_t k = 0; k < m && !s; k++) s = wf_ids_push(&all, part[k]);
        for (uint8_t k = 0; k < parts[i].ends && !s; k++) s = wf_ids_push(&all, t->eos);
        free(part);
    }
    if (s) free(all.v);
    else *ids = all.v, *n = all.n;
    return s;
}

/* ---- ids to text ----------------------------------------------------------------------------- */

static bool is_special(const wf_vocab_token *tok)
{
    return tok->type == WF_TOKEN_CONTROL || tok->type == WF_TOKEN_UNKNOWN || tok->type == WF_TOKEN_USER;
}

size_t wf_token_piece(const wf_tokenizer *t, int32_t id, unsigned flags, char *buf, size_t cap)
{
    if (id < 0 || (uint32_t)id >= t->n_tokens) return 0;
    const wf_vocab_token *tok = &t->tokens[id];
    if (tok->type == WF_TOKEN_UNUSED) return 0; /* what fills up a vocabulary, "[PAD262]" */
    /* The decoder of a tokenizer.json writes spaces in added tokens too, such as Gemma's runs of them. */
    bool spaced = tok->type == WF_TOKEN_USER && t->json && !t->json->byte_level;
    if (is_special(tok) && !spaced) {
        if (flags & WEFT_TEXT_HIDE_SPECIAL && tok->type != WF_TOKEN_USER) return 0;
        if (cap) memcpy(buf, tok->text, WF_MIN(tok->len, cap));
        return tok->len;
    }
    int byte = tok->type == WF_TOKEN_BYTE ? wf_byte_token(tok->text, tok->len) : -1;
    if (byte < 0) return t->kind->piece(t, tok, buf, cap);
    if (cap) *buf = (char)byte;
    return 1;
}

/* Length of the text without the spaces that tokenisation added; also writes the text if buf is not NULL. */
static size_t decode(const wf_tokenizer *t, const int32_t *ids, size_t n, unsigned flags, char *buf, size_t cap)
{
    size_t len = 0;
    bool prefix = t->add_space_prefix;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= t->n_tokens) continue;
        char first = 0;
        bool special = is_special(&t->tokens[ids[i]]);
        size_t size = wf_token_piece(t, ids[i], flags, &first, 1);
        bool cut = prefix && !special && size && first == ' ';
        if (buf) {
            size = wf_token_piece(t, ids[i], flags, buf + len, cap - len);
            if (cut) memmove(buf + len, buf + len + 1, size - 1);
        }
        len += size - cut;
        /* did tokenisation put a space behind this one? */
        prefix = special && t->add_space_prefix && (t->prepend != WF_PREPEND_FIRST || (i == 0 && ids[i] == t->bos));
    }
    return len;
}

weft_status wf_detokenize(const wf_tokenizer *t, const int32_t *ids, size_t n, unsigned flags, char **text, size_t *len)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= t->n_tokens)
            return wf_fail(WEFT_ERR_ARG, "token id %d at position %zu is outside of the vocabulary of %u tokens",
                           ids[i], i, t->n_tokens);
    size_t need = decode(t, ids, n, flags, NULL, 0);
    char *buf = wf_calloc(need + 2, 1); /* one for a space that is dropped, one for the NUL */
    if (!buf) return WEFT_ERR_NOMEM;
    *len = decode(t, ids, n, flags, buf, need + 1);
    buf[*len] = 0;
    *text = buf;
    return WEFT_OK;
}

/* ---- properties ------------------------------------------------------------------------------ */

bool wf_token_is_eog(const wf_tokenizer *t, int32_t id) { return id >= 0 && (uint32_t)id < t->n_tokens && t->eog[id]; }

bool wf_token_is_control(const wf_tokenizer *t, int32_t id)
{
    return id >= 0 && (uint32_t)id < t->n_tokens && t->tokens[id].type == WF_TOKEN_CONTROL;
}

int32_t wf_token_bos(const wf_tokenizer *t) { return t->bos; }

int32_t wf_token_eos(const wf_tokenizer *t) { return t->eos; }

bool wf_token_adds_bos(const wf_tokenizer *t) { return t->add_bos; }

bool wf_token_adds_space(const wf_tokenizer *t) { return t->add_space_prefix; }

uint32_t wf_token_count(const wf_tokenizer *t) { return t->n_tokens; }

uint32_t wf_token_longest(const wf_tokenizer *t)
{
    uint32_t longest = 4; /* the unknown token stands for a character */
    const wf_json_model *j = t->json; /* an unknown token of encoders' kinds stands for a word, or for neighbours */
    if (j && (j->shrinks || j->fuse_unk || j->unigram || j->inside)) return 0;
    for (int b = 0; b < 256; b++)
        if (t->byte_id[b] < 0 && unknown_of(t) < 0) return 0;
    for (uint32_t i = 0; i < t->n_tokens; i++) longest = WF_MAX(longest, t->tokens[i].len);
    return longest;
}
