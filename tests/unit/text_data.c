/* text_data: the vocabularies of the test data: every input gives exactly the expected ids, and
 * they give the text back. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "support/skip.h"
#include "support/vocab.h"

#define SEPARATOR "\n__ggml_vocab_test__\n"
#define PLAIN     (WEFT_TEXT_NO_ADD_SPECIAL | WEFT_TEXT_NO_PARSE_SPECIAL)

static const char *const vocabs[] = {"llama-spm", "gpt-2", "deepseek-llm", "llama-bpe", "qwen2"};

static char *read_data(const char *name, size_t *len)
{
    char *text;
    if (wf_read_file(test_data(name), 1 << 20, &text, len)) fail_msg("%s", wf_error());
    return text;
}

static size_t read_ids(const char **line, int32_t *ids, size_t cap)
{
    size_t n = 0;
    for (char *end; **line && **line != '\n'; *line = end) {
        assert_true(n < cap);
        ids[n++] = (int32_t)strtol(*line, &end, 10);
        if (end == *line) n--, end++;
    }
    if (**line) ++*line;
    return n;
}

static void check_case(const wf_tokenizer *t, const char *text, size_t len, const int32_t *expected, size_t n_expected)
{
    int32_t *ids;
    size_t n, back_len;
    char *back;
    assert_int_equal(wf_tokenize(t, text, len, PLAIN, &ids, &n), WEFT_OK);
    assert_int_equal(n, n_expected);
    for (size_t i = 0; i < n; i++) assert_int_equal(ids[i], expected[i]);
    assert_int_equal(wf_detokenize(t, ids, n, 0, &back, &back_len), WEFT_OK);
    assert_int_equal(back_len, len);
    assert_memory_equal(back, text, len);
    free(back);
    free(ids);
}

static void run_cases(const char *name)
{
    char path[128];
    size_t len, out_len, cases = 0;
    int32_t ids[512];
    wf_tokenizer *t = open_vocab(name);
    snprintf(path, sizeof path, "vocab/%s.gguf.inp", name);
    char *inp = read_data(path, &len), *text = inp;
    snprintf(path, sizeof path, "vocab/%s.gguf.out", name);
    char *out = read_data(path, &out_len);
    const char *line = out;
    for (char *end; (end = strstr(text, SEPARATOR)); text = end + strlen(SEPARATOR), cases++) {
        size_t n = read_ids(&line, ids, WF_LEN(ids));
        check_case(t, text, (size_t)(end - text), ids, n);
    }
    assert_true(cases > 40);
    print_message("%s: %zu cases\n", name, cases);
    free(inp);
    free(out);
    wf_tokenizer_destroy(t);
}

static void expected_ids(void **state)
{
    for (size_t i = 0; i < WF_LEN(vocabs); i++) run_cases(vocabs[i]);
}

/* The story was generated from an empty prompt, so its first piece carries the space that no text had. */
static void story(void **state)
{
    size_t list_len, text_len, len, n = 0, n_again;
    int32_t ids[1024], *again;
    char *text;
    char *list = read_data("stories260K.tokens.txt", &list_len), *expected = read_data("stories260K.txt", &text_len);
    wf_tokenizer *t = open_vocab("stories260K.gguf");
    for (const char *p = list; *p;) n += read_ids(&p, ids + n, WF_LEN(ids) - n);
    while (text_len && expected[text_len - 1] == '\n') text_len--;
    assert_int_equal(wf_detokenize(t, ids, n, WEFT_TEXT_HIDE_SPECIAL, &text, &len), WEFT_OK);
    assert_true(len >= text_len);
    assert_memory_equal(text, expected, text_len);
    assert_int_equal(wf_tokenize(t, text, len, WEFT_TEXT_NO_ADD_SPECIAL, &again, &n_again), WEFT_OK);
    assert_int_equal(n_again, n);
    assert_memory_equal(again, ids, n * sizeof *ids);
    assert_true(wf_token_adds_space(t));
    free(again);
    free(text);
    free(list);
    free(expected);
    wf_tokenizer_destroy(t);
}

static void special_tokens(void **state)
{
    wf_tokenizer *spm = open_vocab("llama-spm"), *gpt = open_vocab("gpt-2"), *deep = open_vocab("deepseek-llm");
    EXPECT(spm, "Hello", 0, 1, 15043);
    EXPECT(spm, "Hello", WEFT_TEXT_NO_ADD_SPECIAL, 15043);
    EXPECT(spm, "</s>", WEFT_TEXT_NO_ADD_SPECIAL, 2);
    EXPECT(spm, "Hello</s>Hello", WEFT_TEXT_NO_ADD_SPECIAL, 15043, 2, 15043);
    EXPECT(gpt, "Hello<|endoftext|>", 0, 15496, 50256);
    EXPECT(gpt, "<|endoftext|>", PLAIN, 27, 91, 437, 1659, 5239, 91, 29);
    EXPECT(deep, "Hello", 0, 100000, 17464);
    EXPECT(deep, "\xc3\xb8", PLAIN, 100002); /* a user-defined token matches whatever the flags say */
    EXPECT(deep, "a[PAD100015]", PLAIN, 64, 100015);
    assert_int_equal(wf_token_bos(spm), 1);
    assert_int_equal(wf_token_eos(deep), 100001);
    assert_true(wf_token_adds_bos(spm) && wf_token_adds_bos(deep) && !wf_token_adds_bos(gpt));
    assert_true(wf_token_is_eog(spm, 2) && wf_token_is_eog(gpt, 50256) && wf_token_is_eog(deep, 100001));
    assert_false(wf_token_is_eog(spm, 1) || wf_token_is_eog(spm, -1) || wf_token_is_eog(spm, 32000));
    assert_true(wf_token_is_control(spm, 1) && !wf_token_is_control(spm, 15043));
    assert_int_equal(wf_token_count(deep), 102400);
    wf_tokenizer_destroy(spm);
    wf_tokenizer_destroy(gpt);
    wf_tokenizer_destroy(deep);
}

/* Byte tokens, one at a time, give the bytes of a character; a piece too long for its buffer is cut. */
static void pieces(void **state)
{
    wf_tokenizer *t = open_vocab("llama-spm");
    char buf[16], all[16] = "";
    int32_t *ids;
    size_t n, len = 0;
    assert_int_equal(wf_tokenize(t, "\xf0\x9f\xa6\x99", 4, PLAIN, &ids, &n), WEFT_OK);
    assert_int_equal(n, 5); /* the space and four bytes */
    for (size_t i = 1; i < n; i++) len += wf_token_piece(t, ids[i], 0, all + len, sizeof all - len);
    assert_int_equal(len, 4);
    assert_memory_equal(all, "\xf0\x9f\xa6\x99", 4);
    free(ids);
    assert_int_equal(wf_token_piece(t, 15043, 0, buf, sizeof buf), 6);
    assert_memory_equal(buf, " Hello", 6);
    memset(buf, '#', sizeof buf);
    assert_int_equal(wf_token_piece(t, 15043, 0, buf, 2), 6);
    assert_memory_equal(buf, " H##", 4);
    assert_int_equal(wf_token_piece(t, 15043, 0, NULL, 0), 6);
    assert_int_equal(wf_token_piece(t, 1, 0, buf, sizeof buf), 3);
    assert_int_equal(wf_token_piece(t, 1, WEFT_TEXT_HIDE_SPECIAL, buf, sizeof buf), 0);
    assert_int_equal(wf_token_piece(t, 32000, 0, buf, sizeof buf), 0);
    assert_int_equal(wf_token_piece(t, -1, 0, buf, sizeof buf), 0);
    wf_tokenizer_destroy(t);
}

/* Random bytes, most of them no UTF-8: never an error; where the vocabulary has all bytes, they come back. */
static void random_bytes(void **state)
{
    for (size_t v = 0; v < WF_LEN(vocabs); v++) {
        wf_tokenizer *t = open_vocab(vocabs[v]);
        for (uint64_t k = 0; k < 2000; k++) {
            char text[48], *back;
            int32_t *ids;
            size_t len = wf_random(v, k) % sizeof text, n, back_len;
            for (size_t i = 0; i < len; i++) text[i] = (char)wf_random(k, i);
            assert_int_equal(wf_tokenize(t, text, len, PLAIN, &ids, &n), WEFT_OK);
            assert_int_equal(wf_detokenize(t, ids, n, 0, &back, &back_len), WEFT_OK);
            if (strcmp(vocabs[v], "deepseek-llm")) { /* lacks the bytes that occur in no UTF-8 */
                assert_int_equal(back_len, len);
                assert_memory_equal(back, text, len);
            }
            free(back);
            free(ids);
        }
        wf_tokenizer_destroy(t);
    }
}

/* One tokenizer, several threads: each gets what one thread alone gets. */
typedef struct job {
    const wf_tokenizer *tok;
    pthread_t thread;
    size_t wrong;
} job;

#define JOB_TEXT "It's a   test: \xe4\xbd\xa0\xe5\xa5\xbd 12345 \xf0\x9f\x9a\x80\n\n</s><|endoftext|>"

static void *run_job(void *arg)
{
    job *j = arg;
    int32_t *first = NULL, *ids;
    size_t n_first = 0, n;
    for (int k = 0; k < 200; k++) {
        if (wf_tokenize(j->tok, JOB_TEXT, strlen(JOB_TEXT), 0, &ids, &n)) {
            j->wrong++;
            continue;
        }
        if (!first) first = ids, n_first = n;
        j->wrong += n != n_first || memcmp(ids, first, n * sizeof *ids);
        if (ids != first) free(ids);
    }
    free(first);
    return NULL;
}

static void threads(void **state)
{
    for (size_t v = 0; v < WF_LEN(vocabs); v++) {
        wf_tokenizer *t = open_vocab(vocabs[v]);
        job jobs[4];
        for (size_t i = 0; i < WF_LEN(jobs); i++) {
            jobs[i] = (job){.tok = t};
            assert_int_equal(pthread_create(&jobs[i].thread, NULL, run_job, &jobs[i]), 0);
        }
        for (size_t i = 0; i < WF_LEN(jobs); i++) {
            pthread_join(jobs[i].thread, NULL);
            assert_int_equal(jobs[i].wrong, 0);
        }
        wf_tokenizer_destroy(t);
    }
}

SUITE_MAIN(text_data)
{
    const struct CMUnitTest tests[] = {CASE(expected_ids), CASE(story), CASE(special_tokens), CASE(pieces),
        CASE(random_bytes), CASE(threads)};
    if (!test_data("vocab/llama-spm.gguf")) return skip_program(NO_TEST_DATA);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
