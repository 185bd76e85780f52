/* constraint: keeps the answer of a request to its grammar: which tokens may come, and what those that came say. */
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t tokens_lock = PTHREAD_MUTEX_INITIALIZER; /* of the tokens of all models */

/* The tokens of a vocabulary, made at the first request that needs them. */
static weft_status constraint_tokens(const struct weft_model *model, const wf_token_trie **out)
{
    struct weft_model *m = (struct weft_model *)model; /* const means the model, not what is made from it */
    weft_status s = WEFT_OK;
    pthread_mutex_lock(&tokens_lock);
    if (!m->tokens) {
        uint32_t n = wf_token_count(m->tokenizer);
        size_t most = 0, at = 0;
        for (uint32_t i = 0; i < n; i++) most += wf_token_piece(m->tokenizer, (int32_t)i, 0, NULL, 0);
        char *text = malloc(most + 1);
        wf_slice *all = wf_calloc(n + 1, sizeof *all);
        for (uint32_t i = 0; text && all && i < n; i++) {
            if (wf_token_is_control(m->tokenizer, (int32_t)i)) continue;
            size_t len = wf_token_piece(m->tokenizer, (int32_t)i, 0, text + at, most - at);
            all[i] = (wf_slice){text + at, len};
            at += len;
        }
        s = text && all ? wf_token_trie_new(all, n, &m->tokens)
                        : wf_fail(WEFT_ERR_NOMEM, "out of host memory for tokens");
        free(all);
        free(text);
    }
    *out = m->tokens;
    pthread_mutex_unlock(&tokens_lock);
    return s;
}

weft_status wf_constraint_init(wf_constraint *c, const struct weft_model *m, const struct weft_request_params *p)
{
    if (p->grammar == WEFT_GRAMMAR_NONE) return WEFT_OK;
    if (!p->grammar_text && p->grammar != WEFT_GRAMMAR_OBJECT)
        return wf_fail(WEFT_ERR_ARG, "grammar_text must not be NULL");
    size_t n = p->grammar_len || !p->grammar_text ? p->grammar_len : strlen(p->grammar_text);
    WF_TRY(wf_grammar_compile(p->grammar, p->grammar_text, n, &c->grammar));
    WF_TRY(wf_match_new(c->grammar, &c->match));
    WF_TRY(constraint_tokens(m, &c->tokens));
    if (p->grammar_after && *p->grammar_after && !(c->after = wf_strdup(p->grammar_after))) return WEFT_ERR_NOMEM;
    if (p->grammar_unless && *p->grammar_unless && !(c->unless = wf_strdup(p->grammar_unless))) return WEFT_ERR_NOMEM;
    c->n_vocab = m->hp.n_vocab;
    c->tokenizer = m->tokenizer;
    c->allowed = wf_calloc(c->n_vocab / 32 + 1, sizeof *c->allowed);
    for (uint32_t i = 0; c->allowed && i < wf_token_count(m->tokenizer); i++) {
        if (!wf_token_is_eog(m->tokenizer, (int32_t)i)) continue;
        if (!wf_grow(&c->ends, c->n_ends, &c->cap_ends, sizeof *c->ends)) return WEFT_ERR_NOMEM;
        c->ends[c->n_ends++] = i;
    }
    return c->allowed ? WEFT_OK : WEFT_ERR_NOMEM;
}

void wf_constraint_free(wf_constraint *c)
{
    wf_match_free(c->match);
    wf_grammar_free(c->grammar);
    free(c->allowed);
    free(c->ends);
    free(c->after);
    free(c->unless);
}

static const char blanks[] = " \n\t\r";
static bool is_blank(char c) { return c && strchr(blanks, c); }

/* What a token says, in buf, or in memory that is to be freed; NULL: there is none. */
static char *constraint_piece(const wf_constraint *c, int32_t id, char buf[256], size_t *n)
{
    char *piece = buf;
    *n = wf_token_piece(c->tokenizer, id, 0, buf, 256);
    if (*n > 256 && (piece = malloc(*n))) wf_token_piece(c->tokenizer, id, 0, piece, *n);
    return piece;
}

/* Tokens with which an answer may still become one that is free, control tokens among them. */
static void allow_unless(wf_constraint *c)
{
    const char *rest = c->unless + c->n_unless;
    size_t len = strlen(rest);
    for (uint32_t i = 0; i < wf_token_count(c->tokenizer); i++) {
        char buf[256];
        size_t n = wf_token_piece(c->tokenizer, (int32_t)i, 0, buf, sizeof buf), at = 0;
        while (!c->n_unless && at < WF_MIN(n, sizeof buf) && is_blank(buf[at])) at++;
        if (n <= sizeof buf && at < n && !memcmp(buf + at, rest, WF_MIN(n - at, len)))
            c->allowed[i / 32] |= 1u << (i % 32);
    }
}

static weft_status constraint_allow(wf_constraint *c)
{
    if (c->only_unless) memset(c->allowed, 0, (c->n_vocab / 32 + 1) * sizeof *c->allowed);
    else WF_TRY(wf_match_mask(c->match, c->tokens, c->allowed));
    if (!c->only_unless && wf_match_may_end(c->match))
        for (size_t i = 0; i < c->n_ends; i++) c->allowed[c->ends[i] / 32] |= 1u << (c->ends[i] % 32);
    if (c->unless) allow_unless(c);
    for (uint32_t i = 0; i < (c->n_vocab + 31) / 32; i++)
        if (c->allowed[i]) return WEFT_OK;
    return wf_fail(WEFT_ERR_UNSUPPORTED, "the vocabulary has no token with which the answer can go on");
}

weft_status wf_constraint_mask(wf_constraint *c)
{
    if (!c->masked && (c->status = constraint_allow(c))) wf_copy(c->message, sizeof c->message, wf_error());
    c->masked = true;
    return c->status ? wf_fail(c->status, "%s", c->message) : WEFT_OK;
}

/* What a token says before the grammar begins; *n bytes of it are left for the grammar. */
static const char *constraint_wait(wf_constraint *c, const char *piece, size_t *n)
{
    size_t len = strlen(c->after);
    for (size_t i = 0; i < *n; i++) {
        while (c->n_after && (c->after[c->n_after] != piece[i])) {
            size_t k = c->n_after; /* the longest beginning that is also an end of what has come */
            while (--k && memcmp(c->after, c->after + c->n_after - k, k) != 0) {}
            c->n_after = k;
        }
        c->n_after += c->after[c->n_after] == piece[i];
        if (c->n_after < len) continue;
        free(c->after);
        c->after = NULL;
        *n -= i + 1;
        return piece + i + 1;
    }
    *n = 0;
    return piece;
}

/* Bytes of an answer that may be free: it is, or cannot be any more, or more of them tell. */
static void constraint_unless(wf_constraint *c, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n && c->unless && !c->is_free; i++) {
        if (!c->n_unless && is_blank(bytes[i])) continue;
        if (bytes[i] == c->unless[c->n_unless]) c->is_free = !c->unless[++c->n_unless];
        else free(c->unless), c->unless = NULL;
    }
}

weft_status wf_constraint_token(wf_constraint *c, int32_t id)
{
    char buf[256];
    size_t n;
    if (c->is_free) return WEFT_OK;
    c->masked = false;
    char *piece = constraint_piece(c, id, buf, &n);
    if (!piece) return wf_fail(WEFT_ERR_NOMEM, "out of host memory for a token");
    bool waits = c->after;
    const char *rest = waits ? constraint_wait(c, piece, &n) : piece;
    for (; waits && n && is_blank(*rest); rest++) n--; /* what ends the line of the thoughts */
    constraint_unless(c, rest, n);
    weft_status s = n && !c->is_free && !c->only_unless ? wf_match_read(c->match, rest, n) : WEFT_OK;
    if (s == WEFT_ERR_ARG && c->unless && c->n_unless) c->only_unless = true, s = WEFT_OK;
    if (piece != buf) free(piece);
    return s;
}
