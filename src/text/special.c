/* special: finds special tokens in text, the longest one at each position.
 *
 * The tokens are sorted by text. Each further byte of the text narrows the range of tokens that can still match, by binary
 * search. So the work at a position depends on the length of the match, and hardly on the number of special tokens.
 */
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

static bool chosen(const wf_vocab_token *t, unsigned types)
{
    return t->len && types >> t->type & 1;
}

weft_status wf_specials_init(wf_specials *s, const wf_vocab_token *tokens, uint32_t n,
                             unsigned types)
{
    for (uint32_t i = 0; i < n; i++) s->n += chosen(&tokens[i], types);
    entry *list = wf_calloc(s->n, sizeof *list);
    s->ids = wf_calloc(s->n, sizeof *s->ids);
    if (!list || !s->ids) return free(list), WEFT_ERR_NOMEM;
    for (uint32_t i = 0, k = 0; i < n; i++)
        if (chosen(&tokens[i], types)) list[k++] = (entry){&tokens[i], (int32_t)i};
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
static uint32_t lower(const wf_specials *s, const wf_vocab_token *tokens, uint32_t lo, uint32_t hi,
                      size_t depth, int b)
{
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if ((uint8_t)tokens[s->ids[mid]].text[depth] < b)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int32_t wf_specials_match(const wf_specials *s, const wf_vocab_token *tokens, const char *text,
                          size_t len, size_t *used)
{
    int32_t best = -1;
    uint32_t lo = s->first[(uint8_t)text[0]], hi = s->first[(uint8_t)text[0] + 1];
    for (size_t depth = 1; lo < hi; depth++) {
        /* Texts in [lo, hi) share the first depth bytes; those that end here come first. Of equal
         * ones the last counts, as in wf_piece_find. */
        for (; lo < hi && tokens[s->ids[lo]].len == depth; lo++) {
            best = s->ids[lo];
            *used = depth;
        }
        if (depth == len) break;
        int b = (uint8_t)text[depth];
        lo = lower(s, tokens, lo, hi, depth, b);
        hi = lower(s, tokens, lo, hi, depth, b + 1);
    }
    return best;
}
