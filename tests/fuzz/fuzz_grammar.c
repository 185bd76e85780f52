/* fuzz_grammar: a JSON schema, a line end, and an instance. An odd first byte: a pattern and a text; one that is 2 more
 * than a multiple of 4: rules in GBNF, where ; is a line end, and a text. Each token that the mask allows reads on; of
 * patterns and rules none that it does not allow does. */
#include "grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x) ((x) ? (void)0 : abort())

static const wf_slice tokens[] = {{"{", 1},   {"\"", 1},  {"a", 1},    {"\":", 2}, {"1", 1},      {"-", 1},     {"0.5", 3},
                                  {"[", 1},   {"]", 1},   {"}", 1},    {",", 1},   {"true", 4},   {"\\u00", 4}, {"\\", 1},
                                  {"null", 4}, {" ", 1},  {"\xC3", 1}, {"\xA9", 1}, {"b\",\"", 4}, {"e+", 2},    {"ab", 2}};

/* Compares a mask with what can be read; n bytes of the instance have been. */
static void check_mask(wf_grammar *g, wf_match *m, const wf_token_trie *trie, const char *text, size_t n, bool exact)
{
    uint32_t bits = 0;
    if (wf_match_mask(m, trie, &bits) != WEFT_OK) return;
    for (size_t i = 0; i < WF_LEN(tokens); i++) {
        bool may = bits >> i & 1;
        if (!may && !exact) continue;
        wf_match *again;
        CHECK(wf_match_new(g, &again) == WEFT_OK);
        weft_status s = wf_match_read(again, text, n);
        if (s == WEFT_OK) s = wf_match_read(again, tokens[i].p, tokens[i].n);
        CHECK(s == (may ? WEFT_OK : WEFT_ERR_ARG) || s == WEFT_ERR_UNSUPPORTED);
        wf_match_free(again);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static wf_token_trie *trie;
    if (!trie) CHECK(wf_token_trie_new(tokens, WF_LEN(tokens), &trie) == WEFT_OK);
    const char *schema = (const char *)data + 1, *end = size ? memchr(schema, '\n', size - 1) : NULL;
    if (!end) return 0;
    wf_grammar *g;
    size_t n = (size_t)(end - schema);
    bool rules = data[0] % 4 == 2, exact = rules || data[0] % 2;
    char *lines = malloc(n + 1);
    CHECK(lines);
    for (size_t i = 0; i < n; i++) lines[i] = schema[i] == ';' ? '\n' : schema[i];
    weft_status s = rules ? wf_grammar_gbnf(lines, n, &g) : exact ? wf_grammar_regex(schema, n, &g) : wf_grammar_schema(schema, n, data[0] & 4, &g);
    free(lines);
    if (s != WEFT_OK) return 0;
    const char *text = end + 1;
    size_t len = WF_MIN(size - 2 - n, 64u);
    wf_match *m;
    CHECK(wf_match_new(g, &m) == WEFT_OK);
    for (size_t i = 0; i <= len; i++) {
        if (i % 8 == 0) check_mask(g, m, trie, text, i, exact);
        if (i == len || wf_match_read(m, text + i, 1) != WEFT_OK) break;
        if (wf_match_may_end(m) && !exact) CHECK(wf_json_whole(text, i + 1));
    }
    wf_match_free(m);
    wf_grammar_free(g);
    return 0;
}
