/* charmap: SentencePiece's table of replacements, which a tokenizer.json has as "precompiled_charsmap": the size of a
 * trie, the trie as a double array (Darts), and the texts, each with a zero byte behind it. Any bytes may stand in a
 * file, so no place is looked at that the table does not have. */
#include "text/steps.h"

#include <stdlib.h>
#include <string.h>

static uint32_t word_at(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

weft_status wf_charmap_check(const uint8_t *map, size_t n_map)
{
    size_t trie = n_map < 4 ? 0 : word_at(map);
    if (!trie || trie % 4 || trie > n_map - 4 || (n_map > 4 + trie && map[n_map - 1]))
        return wf_fail(WEFT_ERR_FORMAT, "'precompiled_charsmap' is no table of SentencePiece");
    return WEFT_OK;
}

weft_status wf_charmap_read(const char *base64, uint8_t **map, size_t *n_map)
{
    size_t len = strcspn(base64, "="), n = 0;
    uint32_t bits = 0;
    uint8_t *out = *map = wf_calloc(len / 4 * 3 + 4, 1);
    if (!out) return WEFT_ERR_NOMEM;
    for (size_t i = 0; i < len; i++) {
        char c = base64[i];
        static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        const char *at = c ? strchr(digits, c) : NULL;
        int d = at ? (int)(at - digits) : -1;
        bits = bits << 6 | (uint32_t)(d & 63);
        if (d < 0) len = n = 0; /* an empty one is refused */
        else if (i % 4) out[n++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    *n_map = n;
    weft_status s = wf_charmap_check(out, n);
    if (s) free(out), *map = NULL;
    return s;
}

/* The first, which is the shortest, beginning of the text that is in the trie. */
const char *wf_charmap_find(const wf_step *s, const char *text, size_t n, size_t *out_n)
{
    const uint8_t *trie = s->map + 4;
    size_t n_units = word_at(s->map) / 4, n_texts = s->n_map - 4 - 4 * n_units;
    const char *texts = (const char *)trie + 4 * n_units;
    uint32_t unit = word_at(trie), at = 0;
    for (size_t i = 0; i < n && text[i]; i++) {
        at ^= unit >> 10 << ((unit & 1u << 9) >> 6);
        at ^= (uint8_t)text[i];
        if (at >= n_units) return NULL;
        unit = word_at(trie + 4 * (size_t)at);
        if ((unit & (1u << 31 | 255)) != (uint8_t)text[i]) return NULL;
        if (!(unit >> 8 & 1)) continue;
        uint32_t leaf = at ^ unit >> 10 << ((unit & 1u << 9) >> 6);
        uint32_t to = leaf < n_units ? word_at(trie + 4 * (size_t)leaf) & ~(1u << 31) : UINT32_MAX;
        if (to >= n_texts) return NULL;
        *out_n = strlen(texts + to); /* the last of them ends, too */
        return texts + to;
    }
    return NULL;
}
