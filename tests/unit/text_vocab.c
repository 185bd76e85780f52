/* text_vocab: small vocabularies made here: the rules of both kinds that the models at hand do not
 * show, and the errors of a broken vocabulary. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/vocab.h"

/* ---- vocabularies in memory ------------------------------------------------------------------ */

typedef struct entry {
    const char *text;
    float score;
    int type;
} entry;

typedef struct vocab {
    wf_vocab_src src;
    wf_vocab_token tokens[64];
    wf_vocab_merge merges[32];
} vocab;

static vocab make(const char *model, const char *pre, const entry *e, size_t n, const char *const *merges)
{
    vocab v = {.src = {.model = model, .pre = pre, .n_tokens = (uint32_t)n, NO_IDS, .add_bos = -1, .add_eos = -1,
                       .add_space_prefix = -1, .ignore_merges = -1}};
    for (size_t i = 0; i < n; i++)
        v.tokens[i] = (wf_vocab_token){e[i].text, (uint32_t)strlen(e[i].text), e[i].score,
                                       (uint8_t)(e[i].type ? e[i].type : WF_TOKEN_NORMAL)};
    for (; merges && merges[v.src.n_merges]; v.src.n_merges++)
        v.merges[v.src.n_merges] = wf_merge_of(merges[v.src.n_merges], strlen(merges[v.src.n_merges]));
    return v;
}

static wf_tokenizer *create(vocab *v)
{
    wf_tokenizer *t = NULL;
    v->src.tokens = v->tokens;
    v->src.merges = v->merges;
    if (wf_tokenizer_create(&v->src, &t)) fail_msg("%s", wf_error());
    return t;
}

static void expect_text(const wf_tokenizer *t, unsigned flags, const char *expected, size_t n, const int32_t *ids)
{
    char *text;
    size_t len;
    assert_int_equal(wf_detokenize(t, ids, n, flags, &text, &len), WEFT_OK);
    assert_string_equal(text, expected);
    assert_int_equal(len, strlen(expected));
    free(text);
}
#define TEXT(t, flags, expected, ...)                                                              \
    expect_text(t, flags, expected, WF_LEN(((int32_t[]){__VA_ARGS__})), (int32_t[]){__VA_ARGS__})

#define SP       "\xe2\x96\x81"
#define NO_ADD   WEFT_TEXT_NO_ADD_SPECIAL
#define NO_PARSE WEFT_TEXT_NO_PARSE_SPECIAL

static const entry spm_entries[] = {
    {"<unk>", 0, WF_TOKEN_UNKNOWN}, {"<s>", 0, WF_TOKEN_CONTROL}, {"</s>", 0, WF_TOKEN_CONTROL},
    {SP, -10}, {"a", -11}, {"b", -12}, {"ab", -1}, {"ba", -1}, {SP "a", -5}, {"aba", -20}, /* 3 to 9 */
    {"<", -30}, {"s", -31}, {">", -32}, {"<s", -1}, {"<tool>", 0, WF_TOKEN_USER}, /* 10 to 14 */
    {"<0x63>", 0, WF_TOKEN_BYTE}, {"<0xC3>", 0, WF_TOKEN_BYTE}, {"<0xA9>", 0, WF_TOKEN_BYTE}, /* c, e acute: to 17 */
    {"<tool>_long", 0, WF_TOKEN_USER}};

static vocab spm(void)
{
    vocab v = make("llama", "", spm_entries, WF_LEN(spm_entries), NULL);
    v.src.bos = 1;
    v.src.eos = 2;
    v.src.unk = 0;
    return v;
}

static void spm_rules(void **state)
{
    vocab v = spm();
    wf_tokenizer *t = create(&v);
    EXPECT(t, "aba", NO_ADD, 3, 9); /* of equal scores the left pair merges first: not 8, 7 */
    EXPECT(t, "a", 0, 1, 8);        /* BOS and the space prefix are the defaults */
    EXPECT(t, " a", NO_ADD, 3, 8);
    EXPECT(t, "c\xc3\xa9", NO_ADD, 3, 15, 16, 17); /* bytes of what is no token */
    EXPECT(t,
           "\xc3"
           "c",
           NO_ADD, 3, 16, 15);               /* half a character: its byte */
    EXPECT(t, "a\xff", NO_ADD, 8, 0);        /* a byte without a token: unknown */
    EXPECT(t, "z\xc3\xb6", NO_ADD, 3, 0, 0); /* one unknown token a character */
    EXPECT(t, "<s>a", NO_ADD, 1, 8);         /* behind a special token the space prefix again */
    EXPECT(t, "<s>", NO_ADD | NO_PARSE, 3, 13, 12);
    EXPECT(t, "<unk>", NO_ADD, 0);
    EXPECT(t, "a<tool>a", NO_ADD | NO_PARSE, 8, 14, 8);
    EXPECT(t, "<tool>_lon<tool>_long", NO_ADD | NO_PARSE, 14, 3, 0, 0, 0, 0, 18); /* the longest one counts */
    TEXT(t, 0, "aba", 3, 6, 4);
    TEXT(t, 0, " a", 3, 8);
    TEXT(t, 0, "<s>a</s>", 1, 8, 2);
    TEXT(t, WEFT_TEXT_HIDE_SPECIAL, "a<tool>a", 1, 8, 14, 8, 2);
    TEXT(t, 0, "\xc3\xa9", 3, 16, 17);
    expect_ids(t, "", NO_ADD, 0, NULL);
    EXPECT(t, "", 0, 1);
    expect_text(t, 0, "", 0, NULL);
    wf_tokenizer_destroy(t);
}

/* Control and byte tokens never come out of merges of plain text, whatever their score. */
static void plain_text_makes_no_control_tokens(void **state)
{
    const entry e[] = {
        {"<s>", 100, WF_TOKEN_CONTROL}, {"<s", 1}, {">", 1}, {"<", 1}, {"s", 1}, {"<0x41>", 9, WF_TOKEN_BYTE},
        {"<0x41", 1}, {"<0x4", 1}, {"<0x", 1}, {"<0", 1}, {"0", 1}, {"x", 1}, {"4", 1}, {"1", 1}};
    vocab v = make("llama", "", e, WF_LEN(e), NULL);
    v.src.add_space_prefix = 0;
    wf_tokenizer *t = create(&v);
    EXPECT(t, "<s>", NO_PARSE, 1, 2);
    EXPECT(t, "<s>", 0, 0);
    EXPECT(t, "<0x41>", 0, 6, 2);
    EXPECT(t, "A", 0, 5);
    wf_tokenizer_destroy(t);
}

static void spm_flags(void **state)
{
    vocab v = spm();
    v.src.add_bos = 0;
    v.src.add_eos = 1;
    v.src.add_space_prefix = 0;
    wf_tokenizer *t = create(&v);
    EXPECT(t, "a", 0, 4, 2);
    EXPECT(t, "a", NO_ADD, 4);
    TEXT(t, 0, " a", 8); /* no prefix was added, so none is taken away */
    assert_false(wf_token_adds_space(t));
    wf_tokenizer_destroy(t);
    v = spm();
    v.src.bos = -1; /* the default of adding BOS needs one */
    t = create(&v);
    assert_false(wf_token_adds_bos(t));
    EXPECT(t, "a", 0, 8);
    wf_tokenizer_destroy(t);
}

/* A space before what begins with none: every part, or the first one, of the text between special tokens. */
static void spm_prepend(void **state)
{
    vocab v = spm();
    v.src.add_bos = 0;
    v.src.prepend = WF_PREPEND_ALWAYS;
    wf_tokenizer *t = create(&v);
    EXPECT(t, "a", 0, 8);
    EXPECT(t, " a", 0, 8);
    EXPECT(t, SP "a", 0, 8);
    EXPECT(t, "</s>a</s> a", 0, 2, 8, 2, 8);
    TEXT(t, 0, "a</s>a", 8, 2, 8);
    wf_tokenizer_destroy(t);
    v.src.prepend = WF_PREPEND_FIRST;
    t = create(&v);
    EXPECT(t, "a</s>a</s> a", 0, 8, 2, 4, 2, 8);
    EXPECT(t, " a", 0, 8);
    EXPECT(t, "</s>a", 0, 2, 4);
    TEXT(t, 0, "a</s> a", 8, 2, 8);
    TEXT(t, 0, "<s>a</s> a", 1, 8, 2, 8);
    wf_tokenizer_destroy(t);
    v.src.add_space_prefix = 0;
    t = create(&v);
    EXPECT(t, "a", 0, 4);
    wf_tokenizer_destroy(t);
}

/* Without byte tokens and without an unknown token, what is no token is dropped. */
static void nothing_to_fall_back_on(void **state)
{
    const entry e[] = {{"a"}, {""}, {"a"}, {"b", NAN}, {"ab", NAN}};
    const char *const no_merges[] = {NULL};
    vocab v = make("llama", "", e, WF_LEN(e), NULL);
    wf_tokenizer *t = create(&v);
    EXPECT(t, "zaz\xff", 0, 2); /* of equal texts the last one counts */
    EXPECT(t, "ab", 0, 4);
    assert_int_equal(wf_token_longest(t), 0); /* any length may have no token at all */
    wf_tokenizer_destroy(t);
    v = make("llama", "", e, WF_LEN(e), NULL);
    v.src.unk = 0;
    t = create(&v);
    assert_int_equal(wf_token_longest(t), 4); /* the unknown token's character */
    wf_tokenizer_destroy(t);
    v = make("gpt2", "gpt-2", e, WF_LEN(e), no_merges);
    t = create(&v);
    EXPECT(t, "z a\xff", 0, 2);
    expect_ids(t, "zzz", 0, 0, NULL);
    wf_tokenizer_destroy(t);
    v = make("gpt2", "gpt-2", e, WF_LEN(e), no_merges);
    v.src.unk = 0; /* SmolLM2's is <|endoftext|> */
    t = create(&v);
    EXPECT(t, "a\x04" "a\xff", 0, 2, 2);
    assert_int_equal(wf_token_longest(t), 0);
    wf_tokenizer_destroy(t);
}

/* "G" with a dot above (U+0120) is a space, U+010A a newline, U+00C3 U+00A9 the bytes of e acute. */
#define G "\xc4\xa0"
static const entry bpe_entries[] = {
    {"a"}, {"b"}, {"c"}, {G}, {"ab"}, {"bc"}, {G "a"}, {"abc"}, {"\xc4\x8a"}, {"\xc3\x83"}, {"\xc2\xa9"}, /* 0 to 10 */
    {"<|x|>", 0, WF_TOKEN_CONTROL}, {"  ", 0, WF_TOKEN_USER}, {"<|im_end|>", 0, WF_TOKEN_CONTROL}, /* 11 to 13 */
    {"\xe4\xbd\xa0"}}; /* 14: no bytes */
static const char *const bpe_merges[] = {"b c", "a b", "ab c", G " a", "b c", "q r", NULL};

static void bpe_rules(void **state)
{
    vocab v = make("gpt2", "gpt-2", bpe_entries, WF_LEN(bpe_entries), bpe_merges);
    wf_tokenizer *t = create(&v);
    EXPECT(t, "abc", 0, 0, 5); /* by rank: b c first, and then a bc is no merge */
    EXPECT(t, "ab a", 0, 4, 6);
    EXPECT(t, "\xc3\xa9\n", 0, 9, 10, 8);
    EXPECT(t, "a  b", 0, 0, 12, 1); /* user-defined */
    EXPECT(t, "a<|x|>b", 0, 0, 11, 1);
    expect_ids(t, "<|x|>", NO_PARSE, 0, NULL); /* none of its bytes is a token */
    TEXT(t, 0, "a\xc3\xa9\n  <|x|>", 0, 9, 10, 8, 12, 11);
    TEXT(t, WEFT_TEXT_HIDE_SPECIAL, "a  ", 0, 12, 11);
    TEXT(t, 0, "\xe4\xbd\xa0", 14);
    assert_false(wf_token_adds_bos(t) || wf_token_adds_space(t));
    wf_tokenizer_destroy(t);
    v.src.add_space_prefix = 1;
    t = create(&v);
    EXPECT(t, "ab", 0, 3, 4);
    TEXT(t, 0, "ab", 3, 4);
    wf_tokenizer_destroy(t);
}

/* Llama 3's names bring BOS and whole words before merges; the file's own flags come first. */
static void pre_tokenizer_defaults(void **state)
{
    vocab v = make("gpt2", "llama-bpe", bpe_entries, WF_LEN(bpe_entries), bpe_merges);
    v.src.bos = 11;
    wf_tokenizer *t = create(&v);
    EXPECT(t, "abc", 0, 11, 7);
    EXPECT(t, "abcb", 0, 11, 0, 5, 1);
    wf_tokenizer_destroy(t);
    v.src.ignore_merges = 0;
    v.src.add_bos = 0;
    t = create(&v);
    EXPECT(t, "abc", 0, 0, 5);
    wf_tokenizer_destroy(t);
}

/* ---- tokens that end a generation ------------------------------------------------------------ */

static void ends_of_generation(void **state)
{
    const entry e[] = {
        {"<|eot_id|>", 0, WF_TOKEN_CONTROL}, {"<|im_end|>", 0, WF_TOKEN_USER}, {"<end_of_turn>", 0, WF_TOKEN_NORMAL},
        {"</s>", 0, WF_TOKEN_USER},          {"<|end|>", 0, WF_TOKEN_CONTROL}, {"a", 0, WF_TOKEN_NORMAL},
        {"b", 0, WF_TOKEN_NORMAL},           {"c", 0, WF_TOKEN_NORMAL},        {"<|return|>", 0, WF_TOKEN_CONTROL},
        {"<|call|>", 0, WF_TOKEN_CONTROL},
    };
    const bool expected[] = {true, true, false, false, true, true, true, true, true, true};
    vocab v = make("llama", "", e, 8, NULL);
    v.src.eos = 5;
    v.src.eot = 6;
    v.src.eom = 7;
    wf_tokenizer *t = create(&v);
    for (int32_t i = 0; i < 8; i++) assert_int_equal(wf_token_is_eog(t, i), expected[i]);
    assert_true(wf_token_is_control(t, 1)); /* so that a prompt cannot end a turn unparsed */
    assert_false(wf_token_is_control(t, 3));
    wf_tokenizer_destroy(t);
    v = make("llama", "", e, 10, NULL); /* the harmony format: <|end|> only ends a message */
    t = create(&v);
    assert_false(wf_token_is_eog(t, 4));
    assert_true(wf_token_is_eog(t, 8) && wf_token_is_eog(t, 9));
    wf_tokenizer_destroy(t);
}

/* ---- errors of the table --------------------------------------------------------------------- */

static void expect_error(vocab *v, weft_status status, const char *word)
{
    wf_tokenizer *t = NULL;
    v->src.tokens = v->tokens;
    v->src.merges = v->merges;
    assert_int_equal(wf_tokenizer_create(&v->src, &t), status);
    assert_null(t);
    if (!strstr(wf_error(), word)) fail_msg("no '%s' in: %s", word, wf_error());
}

static void table_errors(void **state)
{
    vocab v = spm();
    v.src.model = "bert";
    expect_error(&v, WEFT_ERR_UNSUPPORTED, "'bert'");
    expect_error(&v, WEFT_ERR_UNSUPPORTED, "gpt2");
    v.src.model = NULL;
    expect_error(&v, WEFT_ERR_UNSUPPORTED, "tokenizer.ggml.model");
    v = spm();
    v.src.n_tokens = 0;
    expect_error(&v, WEFT_ERR_FORMAT, "tokenizer.ggml.tokens");
    const struct {
        size_t at;
        const char *key;
    } ids[] = {{offsetof(wf_vocab_src, bos), "bos_token_id"},
               {offsetof(wf_vocab_src, eos), "eos_token_id"},
               {offsetof(wf_vocab_src, unk), "unknown_token_id"},
               {offsetof(wf_vocab_src, eot), "eot_token_id"},
               {offsetof(wf_vocab_src, eom), "eom_token_id"}};
    for (size_t i = 0; i < WF_LEN(ids); i++) {
        v = spm();
        int32_t *id = (int32_t *)((char *)&v.src + ids[i].at);
        *id = (int32_t)WF_LEN(spm_entries);
        expect_error(&v, WEFT_ERR_FORMAT, ids[i].key);
        *id = -2;
        expect_error(&v, WEFT_ERR_FORMAT, ids[i].key);
    }
    v = spm();
    v.src.add_eos = 1;
    v.src.eos = -1;
    expect_error(&v, WEFT_ERR_FORMAT, "eos_token_id");
    v.src.add_bos = 1;
    v.src.bos = -1;
    expect_error(&v, WEFT_ERR_FORMAT, "bos_token_id");
    static const char *const bad[] = {"ab", " ", "", "a ", " b", "a"};
    for (size_t i = 0; i < WF_LEN(bad); i++) {
        const char *const merges[] = {"a b", bad[i], NULL};
        v = make("gpt2", "gpt-2", bpe_entries, WF_LEN(bpe_entries), merges);
        expect_error(&v, WEFT_ERR_FORMAT, "tokenizer.ggml.merges: entry 1");
    }
    v = make("gpt2", "klingon", bpe_entries, WF_LEN(bpe_entries), bpe_merges);
    expect_error(&v, WEFT_ERR_UNSUPPORTED, "klingon");
}

static void id_errors(void **state)
{
    vocab v = spm();
    wf_tokenizer *t = create(&v);
    char *text;
    size_t len;
    const int32_t high[] = {3, (int32_t)WF_LEN(spm_entries)}, low[] = {-1};
    assert_error(wf_detokenize(t, high, 2, 0, &text, &len), WEFT_ERR_ARG, "position 1");
    assert_int_equal(wf_detokenize(t, low, 1, 0, &text, &len), WEFT_ERR_ARG);
    wf_tokenizer_destroy(t);
    wf_tokenizer_destroy(NULL);
}

SUITE(text_vocab, NULL, NULL, CASE(spm_rules), CASE(plain_text_makes_no_control_tokens), CASE(spm_flags),
      CASE(nothing_to_fall_back_on), CASE(spm_prepend), CASE(bpe_rules), CASE(pre_tokenizer_defaults),
      CASE(ends_of_generation), CASE(table_errors), CASE(id_errors))
