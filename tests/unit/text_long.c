/* text_long: a megabyte of one thing, for every kind and every pattern. Prints the time; what would
 * take quadratic time runs into the test's time limit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/skip.h"
#include "support/vocab.h"
#include "text/internal.h"

#define SIZE ((size_t)1 << 20)

#define PART (SIZE / 4) /* for each of all patterns; quadratic time would still be minutes */

/* Texts of a unit repeated, with something else at the end where that is the hard case. */
static const struct {
    const char *name, *unit, *end;
} texts[] = {
    {"a", "a", ""}, {"A", "A", ""}, {"spaces", " ", ""}, {"spaces, then x", " ", "x"},
    {"spaces, then a CJK character", " ", "\xe4\xb8\xad"}, {"newlines", "\n", ""}, {"newlines, then x", "\n", "x"},
    {"space newline", " \n", ""}, {"tab space", "\t ", "x"}, {"digits", "7", ""}, {"ab", "ab", ""},
    {"a and space", "a ", ""}, {"aB", "aB", ""}, {"emoji", "\xf0\x9f\x98\x80", ""}, {"CJK", "\xe4\xbd\xa0", ""},
    {"combining", "\xcc\x81", "a"}, {"exclamation", "!", "\n"}, {"apostrophes", "'", ""},
    {"< of special tokens", "<|", ""}, {"half of BOS", "<s", ""}, {"invalid UTF-8", "\xff", ""},
    {"random bytes", NULL, ""}};

static size_t fill(char *text, size_t i, size_t size)
{
    size_t end = strlen(texts[i].end), n = 0;
    if (!texts[i].unit)
        for (; n < size; n++) text[n] = (char)wf_random(1, n);
    else
        for (size_t u = strlen(texts[i].unit); n + u + end <= size; n += u) memcpy(text + n, texts[i].unit, u);
    memcpy(text + n, texts[i].end, end);
    return n + end;
}

static double ms_since(uint64_t start) { return (double)(wf_now_ns() - start) * 1e-6; }

static void tokenise_all(const char *name, const wf_tokenizer *tok, bool all_bytes)
{
    char *text = malloc(SIZE), *back;
    assert_non_null(text);
    for (size_t i = 0; i < WF_LEN(texts); i++) {
        int32_t *ids;
        size_t n, len = fill(text, i, SIZE), back_len;
        uint64_t start = wf_now_ns();
        assert_int_equal(wf_tokenize(tok, text, len, WEFT_TEXT_NO_ADD_SPECIAL, &ids, &n), WEFT_OK);
        print_message("%-12s %-30s %8.1f ms, %zu tokens\n", name, texts[i].name, ms_since(start), n);
        assert_int_equal(wf_detokenize(tok, ids, n, 0, &back, &back_len), WEFT_OK);
        if (all_bytes || texts[i].unit) {
            if (!all_bytes && (uint8_t)texts[i].unit[0] == 0xff) assert_int_equal(n, 0);
            else {
                assert_int_equal(back_len, len);
                assert_memory_equal(back, text, len);
            }
        }
        free(back);
        free(ids);
    }
    free(text);
}

static void vocabularies(void **state)
{
    static const char *const names[] = {"llama-spm", "gpt-2", "deepseek-llm"};
    for (size_t i = 0; i < WF_LEN(names); i++) {
        wf_tokenizer *tok = open_vocab(names[i]);
        tokenise_all(names[i], tok, i < 2); /* deepseek-llm lacks the bytes that occur in no UTF-8 */
        wf_tokenizer_destroy(tok);
    }
}

/* Counts questions, and says yes to the one of this number. */
typedef struct stopper {
    size_t n, at;
} stopper;

static bool stop_at(void *user)
{
    stopper *s = user;
    return ++s->n == s->at;
}

static weft_status tokenise_until(const wf_tokenizer *tok, const char *text, size_t len, stopper *s)
{
    int32_t *ids = NULL;
    size_t n;
    wf_stop_by(stop_at, s);
    weft_status st = wf_tokenize(tok, text, len, 0, &ids, &n);
    wf_stop_by(NULL, NULL);
    free(ids);
    return st;
}

/* Whatever the text, it is asked all the time whether the work is to stop, and after a yes nothing more is done. */
static void stop(void **state)
{
    char *text = malloc(PART);
    assert_non_null(text);
    for (int k = 0; k < 2; k++) {
        wf_tokenizer *tok = open_vocab(k ? "gpt-2" : "llama-spm");
        for (size_t i = 0; i < WF_LEN(texts); i++) {
            size_t len = fill(text, i, PART);
            stopper whole = {0};
            assert_int_equal(tokenise_until(tok, text, len, &whole), WEFT_OK);
            assert_in_range(whole.n, 2 * (len / 4 / 4096), SIZE_MAX); /* twice for each character of 4 bytes */
            for (size_t at = 1; at <= whole.n; at += 1 + whole.n / 3) {
                stopper some = {.at = at};
                assert_int_equal(tokenise_until(tok, text, len, &some), WEFT_ERR_CANCELLED);
                assert_int_equal(some.n, at);
            }
        }
        wf_tokenizer_destroy(tok);
    }
    free(text);
}

static void every_pattern(void **state)
{
    char *text = malloc(PART);
    assert_non_null(text);
    for (size_t k = 0; wf_pre_at(k); k++) {
        wf_steps steps = {0};
        double worst = 0;
        size_t at = 0;
        assert_int_equal(wf_pre_steps(wf_pre_at(k), &steps), WEFT_OK);
        for (size_t i = 0; i < WF_LEN(texts); i++) {
            wf_pieces pieces;
            size_t len = fill(text, i, PART);
            uint64_t start = wf_now_ns();
            assert_int_equal(wf_pretokenise(&steps, text, len, 0, &pieces), WEFT_OK);
            assert_int_equal(pieces.v[pieces.n - 1].end, len);
            wf_pieces_free(&pieces);
            if (ms_since(start) > worst) worst = ms_since(start), at = i;
        }
        print_message("%-18s worst %8.1f ms: %s\n", wf_pre_at(k)->name, worst, texts[at].name);
        wf_steps_free(&steps);
    }
    free(text);
}

/* Two thousand special tokens that begin alike, and a text that keeps almost matching them. */
static void many_specials(void **state)
{
    enum { N = 2000 };
    char(*names)[32] = calloc(N, sizeof *names), *text = malloc(SIZE), *back;
    wf_vocab_token *tokens = calloc(N + 256, sizeof *tokens);
    assert_true(names && text && tokens);
    for (int i = 0; i < N; i++) {
        int len = i < 256 ? snprintf(names[i], 32, "<0x%02X>", i)
                          : snprintf(names[i], 32, "<|reserved_special_token_%04d", i);
        tokens[i] = (wf_vocab_token){names[i], (uint32_t)len, 0, i < 256 ? WF_TOKEN_BYTE : WF_TOKEN_USER};
    }
    wf_vocab_src src = {.model = "llama", .tokens = tokens, .n_tokens = N, NO_IDS, .add_bos = -1, .add_eos = -1,
                        .ignore_merges = -1};
    wf_tokenizer *tok;
    assert_int_equal(wf_tokenizer_create(&src, &tok), WEFT_OK);
    static const char almost[] = "<|reserved_special_token_";
    for (size_t i = 0; i < SIZE; i++) text[i] = almost[i % (sizeof almost - 1)];
    int32_t *ids;
    size_t n, len;
    uint64_t start = wf_now_ns();
    assert_int_equal(wf_tokenize(tok, text, SIZE, 0, &ids, &n), WEFT_OK);
    print_message("%d special tokens: %.1f ms\n", N - 256, ms_since(start));
    assert_int_equal(n, SIZE);
    assert_int_equal(wf_detokenize(tok, ids, n, 0, &back, &len), WEFT_OK);
    assert_int_equal(len, SIZE);
    assert_memory_equal(back, text, SIZE);
    free(back);
    free(ids);
    wf_tokenizer_destroy(tok);
    free(names);
    free(text);
    free(tokens);
}

SUITE_MAIN(text_long)
{
    const struct CMUnitTest tests[] = {CASE(every_pattern), CASE(many_specials), CASE(vocabularies), CASE(stop)};
    if (!test_data("vocab/llama-spm.gguf")) return skip_program(NO_TEST_DATA);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
