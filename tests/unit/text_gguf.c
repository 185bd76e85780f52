/* text_gguf: vocabularies in GGUF files written in memory: what is read, and every way to break them. */
#include <stdlib.h>
#include <string.h>

#include "support/vocab.h"

#define SP "\xe2\x96\x81"

typedef struct file {
    char data[8192];
    size_t len;
    uint64_t n_kv;
} file;

static void put(file *f, const void *p, size_t n)
{
    assert_true(f->len + n <= sizeof f->data);
    if (n) memcpy(f->data + f->len, p, n);
    f->len += n;
}

static void put_u32(file *f, uint32_t v) { put(f, &v, 4); }

static void put_str(file *f, const char *s)
{
    uint64_t n = strlen(s);
    put(f, &n, 8);
    put(f, s, n);
}

static void key(file *f, const char *name, enum wf_gguf_type type)
{
    put_str(f, name);
    put_u32(f, type);
    f->n_kv++;
}

static void key_str(file *f, const char *name, const char *value)
{
    key(f, name, WF_GGUF_STRING);
    put_str(f, value);
}

static void key_u32(file *f, const char *name, enum wf_gguf_type type, uint32_t v)
{
    key(f, name, type);
    put_u32(f, v);
}

static void key_array(file *f, const char *name, enum wf_gguf_type item, uint64_t n)
{
    key(f, name, WF_GGUF_ARRAY);
    put_u32(f, item);
    put(f, &n, 8);
}

/* Of a file that is whole. */
static void write_head(file *f)
{
    const uint32_t head[] = {0x46554747, 3, 0, 0};
    memcpy(f->data, head, 16);
    memcpy(f->data + 16, &f->n_kv, 8);
}

/* What to leave out or break in the file of a good vocabulary of four tokens. */
enum fault {
    PREPEND_FIRST = -1, /* as good as GOOD */
    GOOD, NO_MODEL, MODEL_RWKV, MODEL_LONG, MODEL_U32, NO_TOKENS, EMPTY, TOKENS_U32, SHORT_SCORES, SCORES_STR,
    SHORT_TYPES, TYPES_F32, BOS_HIGH, EOS_STR, BOS_BOOL_U32, NO_MERGES, MERGES_U32, MERGE_BAD, PRE_UNKNOWN,
    PREPEND_UNKNOWN, N_FAULTS
};

static void write_arrays(file *f, enum fault fault)
{
    static const char *const texts[] = {"<unk>", "<s>", "</s>", SP "a"};
    const float scores[] = {0, 0, 0, -1};
    const int32_t types[] = {2, 3, 3, 1};
    if (fault == TOKENS_U32) key_array(f, "tokenizer.ggml.tokens", WF_GGUF_U32, 4), put(f, types, 16);
    else if (fault != NO_TOKENS) {
        key_array(f, "tokenizer.ggml.tokens", WF_GGUF_STRING, fault == EMPTY ? 0 : 4);
        for (int i = 0; i < 4 && fault != EMPTY; i++) put_str(f, texts[i]);
    }
    uint64_t n_scores = fault == SHORT_SCORES ? 3 : 4, n_types = fault == SHORT_TYPES ? 3 : 4;
    if (fault == SCORES_STR) key_str(f, "tokenizer.ggml.scores", "0");
    else key_array(f, "tokenizer.ggml.scores", WF_GGUF_F32, n_scores), put(f, scores, 4 * n_scores);
    key_array(f, "tokenizer.ggml.token_type", fault == TYPES_F32 ? WF_GGUF_F32 : WF_GGUF_I32, n_types);
    put(f, types, 4 * n_types);
    if (fault == MERGES_U32) key_array(f, "tokenizer.ggml.merges", WF_GGUF_U32, 4), put(f, types, 16);
    else if (fault != NO_MERGES) {
        key_array(f, "tokenizer.ggml.merges", WF_GGUF_STRING, 1);
        put_str(f, fault == MERGE_BAD ? "ab" : "a b");
    }
}

static void write_vocab(file *f, const char *model, enum fault fault)
{
    char name[100];
    memset(name, 'm', sizeof name);
    name[99] = 0;
    *f = (file){.len = 24};
    if (fault == MODEL_U32) key_u32(f, "tokenizer.ggml.model", WF_GGUF_U32, 1);
    else if (fault != NO_MODEL)
        key_str(f, "tokenizer.ggml.model", fault == MODEL_RWKV ? "rwkv" : fault == MODEL_LONG ? name : model);
    key_str(f, "tokenizer.ggml.pre", fault == PRE_UNKNOWN ? "klingon" : "default");
    write_arrays(f, fault);
    key_u32(f, "tokenizer.ggml.bos_token_id", WF_GGUF_U32, fault == BOS_HIGH ? 4 : 1);
    if (fault == EOS_STR) key_str(f, "tokenizer.ggml.eos_token_id", "2");
    else key_u32(f, "tokenizer.ggml.eos_token_id", WF_GGUF_I32, 2);
    if (fault == BOS_BOOL_U32) key_u32(f, "tokenizer.ggml.add_bos_token", WF_GGUF_U32, 1);
    else key(f, "tokenizer.ggml.add_bos_token", WF_GGUF_BOOL), put(f, "", 1);
    if (fault == PREPEND_FIRST || fault == PREPEND_UNKNOWN)
        key_str(f, "tokenizer.ggml.prepend_scheme", fault == PREPEND_FIRST ? "first" : "never");
    write_head(f);
}

static weft_status open_broken(const char *model, enum fault fault, wf_gguf **g, wf_tokenizer **t, file *f)
{
    *t = NULL;
    write_vocab(f, model, fault);
    if (wf_gguf_open_memory(f->data, f->len, "test.gguf", g)) fail_msg("%s", wf_error());
    return wf_tokenizer_from_gguf(*g, t);
}

static void gguf_good(void **state)
{
    static file f;
    wf_gguf *g;
    wf_tokenizer *t;
    if (open_broken("llama", GOOD, &g, &t, &f)) fail_msg("%s", wf_error());
    EXPECT(t, "a", 0, 3);     /* add_bos_token is false there */
    EXPECT(t, "<unk>", 0, 0); /* a file of this kind need not name it */
    assert_int_equal(wf_token_eos(t), 2);
    wf_tokenizer_destroy(t);
    wf_gguf_close(g);
    if (open_broken("llama", PREPEND_FIRST, &g, &t, &f)) fail_msg("%s", wf_error());
    EXPECT(t, "a", 0, 3);
    EXPECT(t, " a", 0, 3);
    wf_tokenizer_destroy(t);
    wf_gguf_close(g);
    for (int i = 0; i < 3; i++) {
        if (open_broken((const char *[]){"gpt2", "bert", "t5"}[i], GOOD, &g, &t, &f)) fail_msg("%s", wf_error());
        assert_int_equal(wf_token_longest(t), 0); /* what has no token is dropped, or one token for all of it */
        wf_tokenizer_destroy(t);
        wf_gguf_close(g);
    }
}

static void gguf_errors(void **state)
{
    static const struct {
        const char *word;
        weft_status status; /* 0: WEFT_ERR_FORMAT */
        const char *model;  /* NULL: llama */
    } expected[N_FAULTS] = {
        [NO_MODEL] = {"tokenizer.ggml.model"}, [MODEL_RWKV] = {"'rwkv'", WEFT_ERR_UNSUPPORTED},
        [MODEL_LONG] = {"tokenizer.ggml.model", WEFT_ERR_UNSUPPORTED}, [MODEL_U32] = {"tokenizer.ggml.model"},
        [NO_TOKENS] = {"tokenizer.ggml.tokens"}, [EMPTY] = {"tokenizer.ggml.tokens"},
        [TOKENS_U32] = {"tokenizer.ggml.tokens"}, [SHORT_SCORES] = {"tokenizer.ggml.scores"},
        [SCORES_STR] = {"tokenizer.ggml.scores"}, [SHORT_TYPES] = {"tokenizer.ggml.token_type"},
        [TYPES_F32] = {"tokenizer.ggml.token_type"}, [BOS_HIGH] = {"tokenizer.ggml.bos_token_id"},
        [EOS_STR] = {"tokenizer.ggml.eos_token_id"}, [BOS_BOOL_U32] = {"tokenizer.ggml.add_bos_token"},
        [NO_MERGES] = {"tokenizer.ggml.merges", 0, "gpt2"}, [MERGES_U32] = {"tokenizer.ggml.merges", 0, "gpt2"},
        [MERGE_BAD] = {"tokenizer.ggml.merges", 0, "gpt2"},
        [PRE_UNKNOWN] = {"tokenizer.ggml.pre", WEFT_ERR_UNSUPPORTED, "gpt2"},
        [PREPEND_UNKNOWN] = {"tokenizer.ggml.prepend_scheme is 'never'", WEFT_ERR_UNSUPPORTED},
    };
    for (enum fault i = NO_MODEL; i < N_FAULTS; i++) {
        static file f;
        wf_gguf *g;
        wf_tokenizer *t;
        weft_status s = open_broken(expected[i].model ? expected[i].model : "llama", i, &g, &t, &f);
        if (s != (expected[i].status ? expected[i].status : WEFT_ERR_FORMAT))
            fail_msg("fault %d gives %s: %s", i, weft_status_name(s), wf_error());
        assert_null(t);
        if (!strstr(wf_error(), expected[i].word)) fail_msg("no '%s' in: %s", expected[i].word, wf_error());
        wf_gguf_close(g);
    }
}

/* Gemma 4's kind: merges by rank, also of line ends, with U+2581 for spaces and bytes for what has no token. BOS is put
 * before text although the file says otherwise, and a byte token without a byte is none. */
static void gemma4(void **state)
{
    static const char *const texts[] = {"<unk>", "<bos>", "<eos>", SP, "a", "b", SP "a", "\n", "\n\n", "<0x63>", "byte"},
                             *const merges[] = {SP " a", "\n \n"};
    static const int32_t types[] = {2, 3, 3, 1, 1, 1, 1, 1, 1, 6, 6};
    static file f;
    wf_gguf *g;
    wf_tokenizer *t;
    f = (file){.len = 24};
    key_str(&f, "tokenizer.ggml.model", "gemma4");
    key_array(&f, "tokenizer.ggml.tokens", WF_GGUF_STRING, WF_LEN(texts));
    for (size_t i = 0; i < WF_LEN(texts); i++) put_str(&f, texts[i]);
    key_array(&f, "tokenizer.ggml.merges", WF_GGUF_STRING, WF_LEN(merges));
    for (size_t i = 0; i < WF_LEN(merges); i++) put_str(&f, merges[i]);
    key_array(&f, "tokenizer.ggml.token_type", WF_GGUF_I32, WF_LEN(types)), put(&f, types, sizeof types);
    key_u32(&f, "tokenizer.ggml.bos_token_id", WF_GGUF_U32, 1);
    key_u32(&f, "tokenizer.ggml.unknown_token_id", WF_GGUF_U32, 0);
    key(&f, "tokenizer.ggml.add_bos_token", WF_GGUF_BOOL), put(&f, "", 1);
    write_head(&f);
    if (wf_gguf_open_memory(f.data, f.len, "test.gguf", &g) || wf_tokenizer_from_gguf(g, &t)) fail_msg("%s", wf_error());
    EXPECT(t, "a a b", 0, 1, 4, 6, 3, 5);
    EXPECT(t, SP "a\n\n\nc", 0, 1, 6, 8, 7, 9);
    EXPECT(t, "a<eos> a", 0, 1, 4, 2, 6);
    EXPECT(t, "dd", 0, 1, 0);
    char buf[8];
    assert_int_equal(wf_token_piece(t, 6, 0, buf, sizeof buf), 2);
    assert_memory_equal(buf, " a", 2);
    wf_tokenizer_destroy(t);
    wf_gguf_close(g);
}

SUITE(text_gguf, NULL, NULL, CASE(gguf_good), CASE(gguf_errors), CASE(gemma4))
