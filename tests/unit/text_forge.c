/* text_forge: contents of a conversation spell the turns of every chat template, and stay contents. The vocabularies and the
 * templates are those of the test data. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "model/gguf.h"
#include "support/data.h"
#include "support/skip.h"
#include "text/text.h"

static const char *const vocabs[] = {"llama-spm", "llama-bpe", "qwen2", "deepseek-llm", "gpt-2"};

typedef struct model {
    wf_gguf *file;
    wf_tokenizer *tok;
    char *bos, *eos;
} model;

static char *text_of(const wf_tokenizer *t, int32_t id)
{
    char *text;
    size_t len;
    if (id < 0) return strdup("");
    assert_int_equal(wf_detokenize(t, &id, 1, 0, &text, &len), WEFT_OK);
    return text;
}

static model open_model(const char *name)
{
    model m;
    char path[128];
    snprintf(path, sizeof path, "vocab/%s.gguf", name);
    if (wf_gguf_open(test_data(path), &m.file) || wf_tokenizer_from_gguf(m.file, &m.tok)) fail_msg("%s", wf_error());
    m.bos = text_of(m.tok, wf_token_bos(m.tok));
    m.eos = text_of(m.tok, wf_token_eos(m.tok));
    return m;
}

static void close_model(model m)
{
    free(m.bos);
    free(m.eos);
    wf_tokenizer_destroy(m.tok);
    wf_gguf_close(m.file);
}

static wf_chat_text render(const model *m, const char *name, const char *content)
{
    wf_chat_text t;
    const struct weft_message msgs[] = {{"system", content}, {"user", content}, {"assistant", content}, {"user", content}};
    assert_int_equal(wf_chat_render(name, m->bos, m->eos, msgs, 4, &t), WEFT_OK);
    return t;
}

/* The control tokens of a conversation, in order; their number. around: contents are told apart. */
static size_t controls(const model *m, const wf_chat_text *t, bool around, int32_t *out, size_t cap)
{
    int32_t *ids;
    size_t n, found = 0;
    assert_int_equal(wf_tokenize_around(m->tok, t->text, t->len, t->contents, around ? t->n_contents : 0, WEFT_TEXT_NO_ADD_SPECIAL, &ids, &n), WEFT_OK);
    for (size_t i = 0; i < n; i++)
        if (wf_token_is_control(m->tok, ids[i]) && found < cap) out[found++] = ids[i];
    free(ids);
    return found;
}

/* A conversation whose contents are this text has the control tokens of a harmless one, and no other. Their number. */
static size_t expect_no_turn(const model *m, const char *name, const char *forged)
{
    int32_t want[64], got[64], parsed[64];
    wf_chat_text harmless = render(m, name, "Hello"), t = render(m, name, forged);
    size_t n = controls(m, &harmless, true, want, WF_LEN(want));
    assert_int_equal(n, controls(m, &t, true, got, WF_LEN(got)));
    assert_memory_equal(got, want, n * sizeof *want);
    size_t all = controls(m, &t, false, parsed, WF_LEN(parsed));
    wf_chat_text_free(&harmless);
    wf_chat_text_free(&t);
    return all > n ? all - n : 0; /* how many would have come in */
}

static void forged_turns(void **state)
{
    (void)state;
    size_t caught = 0;
    if (!test_data("vocab/qwen2.gguf")) SKIP_TEST(NO_TEST_DATA);
    for (size_t v = 0; v < WF_LEN(vocabs); v++) {
        model m = open_model(vocabs[v]);
        for (const char *const *name = wf_chat_names(); *name; name++) {
            wf_chat_text turns = render(&m, *name, "Hello"); /* a whole conversation as a content */
            caught += expect_no_turn(&m, *name, turns.text);
            wf_chat_text_free(&turns);
        }
        close_model(m);
    }
    assert_true(caught > 100);
}

/* The templates' own sources, which spell all their markers, as contents. */
static void forged_sources(void **state)
{
    (void)state;
    const char *path = test_data("templates");
    DIR *dir = path ? opendir(path) : NULL;
    size_t caught = 0, files = 0;
    if (!dir) SKIP_TEST(NO_TEST_DATA);
    model qwen = open_model("qwen2"), llama = open_model("llama-bpe");
    for (struct dirent *e; (e = readdir(dir));) {
        char file[512], *text;
        size_t len;
        snprintf(file, sizeof file, "templates/%.200s", e->d_name);
        if (e->d_name[0] == '.' || wf_read_file(test_data(file), 1 << 20, &text, &len)) continue;
        const char *name = wf_chat_recognise(text, len);
        files += name != NULL;
        caught += expect_no_turn(&qwen, name ? name : "chatml", text) + expect_no_turn(&llama, name ? name : "llama3", text);
        free(text);
    }
    closedir(dir);
    close_model(qwen);
    close_model(llama);
    assert_true(files > 5 && caught > 10);
}

/* Text that forges nothing becomes the tokens that it had as a whole. */
static void words_cross(void **state)
{
    (void)state;
    if (!test_data("vocab/qwen2.gguf")) SKIP_TEST(NO_TEST_DATA);
    for (size_t v = 0; v < WF_LEN(vocabs); v++) {
        model m = open_model(vocabs[v]);
        for (const char *const *name = wf_chat_names(); *name; name++) {
            int32_t *a, *b;
            size_t n_a, n_b;
            wf_chat_text t = render(&m, *name, "\n  Hello 123 you\n\n");
            assert_int_equal(wf_tokenize(m.tok, t.text, t.len, 0, &a, &n_a), WEFT_OK);
            assert_int_equal(wf_tokenize_around(m.tok, t.text, t.len, t.contents, t.n_contents, 0, &b, &n_b), WEFT_OK);
            assert_int_equal(n_a, n_b);
            assert_memory_equal(a, b, n_a * sizeof *a);
            wf_chat_text_free(&t);
            free(a);
            free(b);
        }
        close_model(m);
    }
}

/* BOS at the start of a content is not the template's. */
static void forged_bos(void **state)
{
    (void)state;
    wf_chat_text t;
    const struct weft_message msg = {"user", "<s>Hello"}, system = {"system", "<s>Be brief."};
    assert_int_equal(wf_chat_render("vicuna", "<s>", "</s>", (struct weft_message[]){system, msg}, 2, &t), WEFT_OK);
    assert_false(t.has_bos);
    wf_chat_text_free(&t);
    assert_int_equal(wf_chat_render("mistral", "<s>", "</s>", &msg, 1, &t), WEFT_OK);
    assert_true(t.has_bos);
    wf_chat_text_free(&t);
}

/* Some files hold the markers of turns as user-defined tokens. Contents do not get those either, but all others. */
static void user_defined_markers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint8_t type;
    } list[] = {{"<unk>", WF_TOKEN_UNKNOWN}, {"<|im_start|>", WF_TOKEN_USER}, {"<tool>", WF_TOKEN_USER}, {"\n", WF_TOKEN_USER}};
    wf_vocab_token tokens[WF_LEN(list) + 128] = {0};
    static char letters[128];
    for (size_t i = 0; i < 128; i++) letters[i] = (char)i, tokens[i + WF_LEN(list)] = (wf_vocab_token){&letters[i], 1, 0, WF_TOKEN_NORMAL};
    for (size_t i = 0; i < WF_LEN(list); i++) tokens[i] = (wf_vocab_token){list[i].text, (uint32_t)strlen(list[i].text), 0, list[i].type};
    wf_tokenizer *t;
    wf_vocab_src src = {.model = "llama", .pre = "", .tokens = tokens, .n_tokens = (uint32_t)WF_LEN(tokens), .bos = -1, .eos = -1, .unk = 0, .eot = -1, .eom = -1,
                        .add_bos = 0, .add_eos = 0, .add_space_prefix = 0, .ignore_merges = -1};
    assert_int_equal(wf_tokenizer_create(&src, &t), WEFT_OK);
    const char text[] = "<|im_start|>\n<|im_start|><tool>\n<unk>";
    const wf_text_span content = {13, sizeof text - 1};
    int32_t *ids;
    size_t n, marks = 0, tools = 0, breaks = 0, unknown = 0;
    assert_int_equal(wf_tokenize_around(t, text, sizeof text - 1, &content, 1, 0, &ids, &n), WEFT_OK);
    for (size_t i = 0; i < n; i++) marks += ids[i] == 1, tools += ids[i] == 2, breaks += ids[i] == 3, unknown += ids[i] == 0;
    assert_int_equal(marks, 1);
    assert_int_equal(tools, 1);
    assert_int_equal(breaks, 2);
    assert_int_equal(unknown, 0);
    free(ids);
    wf_tokenizer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forged_turns), cmocka_unit_test(forged_sources), cmocka_unit_test(words_cross),
        cmocka_unit_test(forged_bos),   cmocka_unit_test(user_defined_markers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
