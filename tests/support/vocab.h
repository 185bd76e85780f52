/* vocab: the vocabularies of the test data, and what a tokenizer makes of texts. */
#ifndef WF_TEST_VOCAB_H
#define WF_TEST_VOCAB_H

#include "model/files/gguf.h"
#include "support/data.h"
#include "support/suite.h"
#include "text/text.h"

/* Of a file's name, or of the name of a vocabulary. */
static inline wf_tokenizer *open_vocab(const char *name)
{
    wf_gguf *file;
    wf_tokenizer *t;
    char path[128];
    snprintf(path, sizeof path, strchr(name, '.') ? "%s" : "vocab/%s.gguf", name);
    if (wf_gguf_open(test_data(path), &file) || wf_tokenizer_from_gguf(file, &t)) fail_msg("%s", wf_error());
    wf_gguf_close(file);
    return t;
}

static inline void expect_ids(const wf_tokenizer *t, const char *text, unsigned flags, size_t n,
                              const int32_t *expected)
{
    int32_t *ids;
    size_t got;
    assert_int_equal(wf_tokenize(t, text, strlen(text), flags, &ids, &got), WEFT_OK);
    assert_int_equal(got, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(ids[i], expected[i]);
    free(ids);
}
#define EXPECT(t, text, flags, ...)                                                                                    \
    expect_ids(t, text, flags, WF_LEN(((int32_t[]){__VA_ARGS__})), (int32_t[]){__VA_ARGS__})

/* What a vocabulary of tests does not say. */
#define NO_IDS .bos = -1, .eos = -1, .unk = -1, .eot = -1, .eom = -1

#endif
