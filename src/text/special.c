/* special: finds special tokens in text, the longest one at each position.
 *
 * The tokens are sorted by text. Each further byte of the text narrows the range of tokens that can still match, by
 * binary search. So the work at a position depends on the length of the match, and hardly on the number of special
 * tokens. */
#include "text/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    const wf_vocab_token *tok;
    int32_t id;
} entry;

static int by_text(const void *pa, const void *pb)
{
    const entry *a = pa, *b = pb;
    int c = memcmp(a->tok->text, b->tok->text, WF_MIN(a->tok->len, b->tok->len));
    if (c) return c;
    if (a->tok->len != b->tok->len) return a->tok->len < b->tok->len ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static bool chosen(const wf_vocab_token *t, unsigned types, uint8_t rules)
{
    bool later = t->type == WF_TOKEN_USER && rules & WF_RULE_NORMALIZED;
    return t->len && types >> t->type & 1 && !later;
}

weft_status wf_specials_init(wf_specials *s, const wf_vocab_token *tokens, uint32_t n,
                             unsigned types, const uint8_t *rules)
{
    for (uint32_t i = 0; i < n; i++) s->n += chosen(&tokens[i], types, rules ? rules[i] : 0);
    entry *list = wf_calloc(s->n, sizeof *list);
    s->ids = wf_calloc(s->n, sizeof *s->ids);
    if (!list || !s->ids) return free(list), WEFT_ERR_NOMEM;
    for (uint32_t i = 0, k = 0; i < n; i++)
        if (chosen(&tokens[i], types, rules ? rules[i] : 0)) list[k++] = (entry){&tokens[i], (int32_t)i};
    qsort(list, s->n, sizeof *list, by_text);
    for (uint32_t k = 0; k < s->n; k++) {
        s->ids[k] = list[k].id;
        s->first[(uint8_t)list[k].tok->text[0] + 1]++;
    }
    for (int b = 0; b < 256; b++) s->first[b + 1] += s->first[b];
    free(list);
    return WEFT_OK;
}

void wf_specials_free(wf_specials *s)
{
    free(s->ids);
    s->ids = NULL;
}

/* First index in [lo, hi) whose byte at depth is at least b. All of them are longer than depth. */
static uint32_t lower(const wf_specials *s, const wf_vocab_token *tokens, uint32_t lo, uint32_t hi, size_t depth, int b)
{
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if ((uint8_t)tokens[s->ids[mid]].text[depth] < b) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

int32_t wf_specials_next(const wf_specials *s, const wf_vocab_token *tokens, const char *text, size_t len, wf_walk *w)
{
    if (!w->depth && len) *w = (wf_walk){s->first[(uint8_t)text[0]], s->first[(uint8_t)text[0] + 1], 1};
    for (; w->lo < w->hi; w->depth++) {
        /* Texts in [lo, hi) share the first depth bytes; those that end here come first. */
        if (tokens[s->ids[w->lo]].len == w->depth) return s->ids[w->lo++];
        if (w->depth == len) break;
        int b = (uint8_t)text[w->depth];
        w->lo = lower(s, tokens, w->lo, w->hi, w->depth, b);
        w->hi = lower(s, tokens, w->lo, w->hi, w->depth, b + 1);
    }
    return -1;
}

int32_t wf_specials_match(const wf_specials *s, const wf_vocab_token *tokens, const char *text,
                          size_t len, size_t *used)
{
    int32_t best = -1;
    wf_walk w = {0};
    if (!len || s->first[(uint8_t)*text] == s->first[(uint8_t)*text + 1]) return -1; /* as at most places */
    /* Of equal ones the last counts, as in wf_piece_find. */
    for (int32_t id; (id = wf_specials_next(s, tokens, text, len, &w)) >= 0; best = id) *used = w.depth;
    return best;
}

/* A word ends where its neighbours are no part of one (tokenizers' added_vocabulary.rs). */
bool wf_special_fits(uint8_t rules, const char *text, size_t len, size_t start, wf_text_span *found)
{
    size_t n;
    bool single = rules & WF_RULE_SINGLE_WORD;
    if (single && (wf_word_before(text, found->begin) || wf_word_at(text + found->end, len - found->end))) return false;
    while (rules & WF_RULE_LSTRIP && found->begin > start && (n = wf_space_before(text + start, found->begin - start)))
        found->begin -= n;
    while (rules & WF_RULE_RSTRIP && found->end < len && (n = wf_space_at(text + found->end, len - found->end)))
        found->end += n;
    return true;
}
