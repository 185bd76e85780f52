/* gguf_read: good files — values, typed access, printing, tensors, and a real model. */
#include "model/files/gguf.h"
#include "support/bytes.h"
#include "support/skip.h"
#include "support/suite.h"

#include <fcntl.h>
#include <math.h>

static void key(bytes *b, const char *name, uint32_t type, const void *v, size_t n)
{
    gguf_key(b, name, type);
    bytes_put(b, v, n);
}
#define KEY(b, name, type, T, v) key(b, name, type, &(T){v}, sizeof(T))

static wf_gguf *open_values(bytes *b)
{
    wf_gguf *g = NULL;
    gguf_head(b, 3, 0, 21);
    KEY(b, "u8", WF_GGUF_U8, uint8_t, 200);
    KEY(b, "i8", WF_GGUF_I8, int8_t, -5);
    KEY(b, "u16", WF_GGUF_U16, uint16_t, 60000);
    KEY(b, "i16", WF_GGUF_I16, int16_t, 300);
    KEY(b, "u32", WF_GGUF_U32, uint32_t, 4000000000u);
    KEY(b, "i32", WF_GGUF_I32, int32_t, -1);
    KEY(b, "f32", WF_GGUF_F32, float, 0.5f);
    KEY(b, "true", WF_GGUF_BOOL, uint8_t, 1);
    KEY(b, "false", WF_GGUF_BOOL, uint8_t, 0);
    gguf_kv_str(b, "str", "text\n");
    KEY(b, "u64", WF_GGUF_U64, uint64_t, UINT64_MAX);
    KEY(b, "small64", WF_GGUF_U64, uint64_t, 7);
    KEY(b, "over32", WF_GGUF_I64, int64_t, 4294967296);
    KEY(b, "f64", WF_GGUF_F64, double, 1e-5);
    KEY(b, "big", WF_GGUF_F64, double, 1e300);
    KEY(b, "nan", WF_GGUF_F32, float, NAN);
    KEY(b, "inf", WF_GGUF_F32, float, INFINITY);
    gguf_array(b, "ints", WF_GGUF_I16, 8);
    for (int16_t i = 0; i < 8; i++) bytes_put(b, &(int16_t){(int16_t)(i * -100)}, 2);
    gguf_array(b, "strs", WF_GGUF_STRING, 3);
    bytes_str(b, "one");
    bytes_str(b, "");
    bytes_str(b, "three");
    gguf_array(b, "none", WF_GGUF_STRING, 0);
    gguf_kv_str(b, "empty", "");
    assert_ok(wf_gguf_open_memory(b->data, b->len, "values", &g));
    return g;
}

static void u32_values(void **state)
{
    static const struct {
        const char *key;
        weft_status status;
        uint32_t value;
    } rows[] = {
        {"u8", WEFT_OK, 200},        {"i8", WEFT_ERR_FORMAT, 0},   {"u16", WEFT_OK, 60000},
        {"i16", WEFT_OK, 300},       {"u32", WEFT_OK, 4000000000}, {"i32", WEFT_ERR_FORMAT, 0},
        {"f32", WEFT_ERR_FORMAT, 0}, {"true", WEFT_ERR_FORMAT, 0}, {"str", WEFT_ERR_FORMAT, 0},
        {"u64", WEFT_ERR_FORMAT, 0}, {"small64", WEFT_OK, 7},      {"over32", WEFT_ERR_FORMAT, 0},
        {"f64", WEFT_ERR_FORMAT, 0}, {"ints", WEFT_ERR_FORMAT, 0}, {"strs", WEFT_ERR_FORMAT, 0},
    };
    bytes b = {0};
    wf_gguf *g = open_values(&b);
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        uint32_t v = 0;
        assert_int_equal(wf_gguf_u32(g, rows[i].key, true, &v), rows[i].status);
        assert_int_equal(v, rows[i].value);
        if (rows[i].status) assert_says(rows[i].key);
    }
    uint32_t v = 42;
    assert_ok(wf_gguf_u32(g, "absent", false, &v));
    assert_int_equal(v, 42);
    assert_error(wf_gguf_u32(g, "absent", true, &v), WEFT_ERR_FORMAT, "'absent' is missing");
    assert_error(wf_gguf_u32(g, "u64", true, &v), WEFT_ERR_FORMAT, "18446744073709551615");
    wf_gguf_close(g);
    bytes_free(&b);
}

static void other_values(void **state)
{
    bytes b = {0};
    wf_gguf *g = open_values(&b);
    float f = 0;
    bool yes = false;
    wf_str s = {0};
    assert_ok(wf_gguf_f32(g, "f32", true, &f));
    assert_true(f == 0.5f);
    assert_ok(wf_gguf_f32(g, "f64", true, &f));
    assert_true(f == 1e-5f);
    static const char *const no_float[] = {"big", "nan", "inf", "u32", "str", "true", "ints"};
    for (size_t i = 0; i < WF_LEN(no_float); i++)
        assert_error(wf_gguf_f32(g, no_float[i], false, &f), WEFT_ERR_FORMAT, no_float[i]);
    assert_true(f == 1e-5f);
    assert_ok(wf_gguf_f32(g, "absent", false, &f));
    assert_ok(wf_gguf_bool(g, "absent", false, &yes));
    assert_ok(wf_gguf_str(g, "absent", false, &s));
    assert_true(f == 1e-5f && !yes && !s.data);
    assert_ok(wf_gguf_bool(g, "true", true, &yes));
    assert_true(yes);
    assert_ok(wf_gguf_bool(g, "false", true, &yes));
    assert_false(yes);
    assert_int_equal(wf_gguf_bool(g, "u8", true, &yes), WEFT_ERR_FORMAT);
    assert_ok(wf_gguf_str(g, "str", true, &s));
    assert_int_equal(s.len, 5);
    assert_memory_equal(s.data, "text\n", 5);
    assert_ok(wf_gguf_str(g, "empty", true, &s));
    assert_int_equal(s.len, 0);
    assert_int_equal(wf_gguf_str(g, "strs", true, &s), WEFT_ERR_FORMAT);
    assert_int_equal(wf_gguf_int_at(wf_gguf_find(g, "ints"), 7), -700);
    assert_int_equal(wf_gguf_int_at(wf_gguf_find(g, "ints"), 8), 0); /* outside */
    assert_int_equal(wf_gguf_int_at(wf_gguf_find(g, "strs"), 0), 0); /* no number */
    assert_true(wf_gguf_num_at(wf_gguf_find(g, "f32"), 1) == 0);
    assert_true(wf_gguf_num_at(wf_gguf_find(g, "strs"), 0) == 0);
    assert_true(wf_gguf_num_at(wf_gguf_find(g, "u64"), 0) == 18446744073709551615.0);
    assert_null(wf_gguf_find(g, "str "));
    assert_null(wf_gguf_find(g, ""));
    assert_null(wf_gguf_tensor_find(g, "u8"));
    wf_gguf_close(g);
    bytes_free(&b);
}

static weft_status join(void *user, uint64_t i, wf_str s)
{
    char *out = user;
    sprintf(out + strlen(out), "%d=%.*s;", (int)i, (int)s.len, s.data);
    return i == 9 ? WEFT_ERR_INTERNAL : WEFT_OK;
}

static weft_status stop(void *user, uint64_t i, wf_str s)
{
    ++*(int *)user;
    return i == 1 ? wf_fail(WEFT_ERR_CANCELLED, "enough") : WEFT_OK;
}

static void string_arrays(void **state)
{
    bytes b = {0};
    wf_gguf *g = open_values(&b);
    char text[64] = "";
    uint64_t n = 0;
    int calls = 0;
    assert_ok(wf_gguf_strings(g, "strs", true, &n, join, text));
    assert_int_equal(n, 3);
    assert_string_equal(text, "0=one;1=;2=three;");
    assert_int_equal(wf_gguf_strings(g, "strs", true, &n, stop, &calls), WEFT_ERR_CANCELLED);
    assert_int_equal(calls, 2);
    assert_ok(wf_gguf_strings(g, "none", true, &n, join, text));
    assert_int_equal(n, 0);
    assert_int_equal(wf_gguf_strings(g, "ints", true, &n, join, text), WEFT_ERR_FORMAT);
    assert_int_equal(wf_gguf_strings(g, "str", true, &n, join, text), WEFT_ERR_FORMAT);
    assert_ok(wf_gguf_strings(g, "absent", false, &n, join, text));
    assert_int_equal(wf_gguf_strings(g, "absent", true, &n, join, text), WEFT_ERR_FORMAT);
    /* The file is written to after it was checked: lengths that now point outside. */
    static const struct {
        size_t at;
        uint64_t len;
    } later[] = {{0, UINT64_MAX}, {0, 20}, {19, 6}};
    uint8_t *data = (uint8_t *)wf_gguf_find(g, "strs")->data, saved[32];
    memcpy(saved, data, sizeof saved);
    for (size_t i = 0; i < WF_LEN(later); i++) {
        memcpy(data, saved, sizeof saved);
        memcpy(data + later[i].at, &later[i].len, 8);
        calls = -10;
        assert_int_equal(wf_gguf_strings(g, "strs", true, &n, stop, &calls),
                         later[i].at ? WEFT_ERR_CANCELLED : WEFT_ERR_IO);
        text[0] = 0;
        assert_error(wf_gguf_strings(g, "strs", true, &n, join, text), WEFT_ERR_IO, "'strs' changed");
    }
    wf_gguf_close(g);
    bytes_free(&b);
}

static void printing(void **state)
{
    static const char *const rows[][2] = {
        {"u8", "200"},
        {"i8", "-5"},
        {"u32", "4000000000"},
        {"i32", "-1"},
        {"f32", "0.5"},
        {"true", "true"},
        {"str", "text?"},
        {"u64", "18446744073709551615"},
        {"f64", "1e-05"},
        {"nan", "nan"},
        {"ints", "[0, -100, -200, -300, -400, -500, ... 8 in all]"},
        {"strs", "[\"one\", \"\", \"three\"]"},
        {"none", "[]"},
        {"empty", ""},
    };
    bytes b = {0};
    wf_gguf *g = open_values(&b);
    char text[80];
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        wf_gguf_print(wf_gguf_find(g, rows[i][0]), text, sizeof text);
        assert_string_equal(text, rows[i][1]);
        for (size_t cap = 0; cap < 60; cap++) { /* stays inside, ends in NUL */
            memset(text, 'x', sizeof text);
            wf_gguf_print(wf_gguf_find(g, rows[i][0]), text, cap);
            for (size_t k = cap; k < sizeof text; k++) assert_int_equal(text[k], 'x');
            if (cap) assert_non_null(memchr(text, 0, cap));
        }
    }
    char cut[9];
    assert_string_equal(wf_str_show(cut, sizeof cut, (wf_str){"abcdefgh", 8}), "abcde...");
    assert_string_equal(wf_str_show(cut, sizeof cut, (wf_str){"abcd\xC3\xA4z", 7}), "abcd..."); /* whole letters */
    assert_string_equal(wf_str_show(cut, sizeof cut, (wf_str){"abcde", 5}), "abcde");
    wf_gguf_close(g);
    bytes_free(&b);
}

/* Types that weft does not read are listed with their sizes, so that the loader can name them. */
static void unread_types(void **state)
{
    bytes b = {0};
    gguf_head(&b, 2, 2, 0);
    gguf_tensor(&b, "tq1_0", 2, (uint64_t[]){512, 3}, 34, 0);
    gguf_tensor(&b, "f32", 3, (uint64_t[]){2, 3, 5}, 0, 352);
    bytes_align(&b, 32);
    bytes_zero(&b, 352 + 120);
    wf_gguf *g = NULL;
    assert_ok(wf_gguf_open_memory(b.data, b.len, "types", &g));
    const wf_gguf_tensor *q = wf_gguf_tensor_find(g, "tq1_0"), *f = wf_gguf_tensor_find(g, "f32");
    assert_int_equal(q->dtype, -1);
    assert_int_equal(q->bytes, 512 * 3 / 256 * 54);
    assert_string_equal(wf_ggml_type_name(q->ggml_type), "TQ1_0");
    assert_int_equal(f->dtype, WF_F32);
    assert_int_equal(f->bytes, 120);
    assert_int_equal(f->dims[2], 5);
    assert_int_equal(f->dims[3], 1);
    assert_ptr_equal(f->data - q->data, 352);
    wf_gguf_close(g);
    bytes_free(&b);
}

/* Only metadata: no padding has to follow (vocabulary files). */
static void long_template(void **state)
{
    const size_t n = 10 << 20;
    bytes b = {0};
    wf_gguf *g = NULL;
    wf_str s = {0};
    char text[64];
    gguf_head(&b, 3, 0, 1);
    gguf_key(&b, "tokenizer.chat_template", WF_GGUF_STRING);
    bytes_u64(&b, n);
    bytes_zero(&b, n);
    memset(b.data + b.len - n, 'x', n);
    assert_ok(wf_gguf_open_memory(b.data, b.len, "template", &g));
    assert_ok(wf_gguf_str(g, "tokenizer.chat_template", true, &s));
    assert_int_equal(s.len, n);
    wf_gguf_print(&g->kv[0], text, sizeof text);
    assert_int_equal(strlen(text), 63);
    wf_gguf_close(g);
    bytes_free(&b);
}

/* The file shrinks between opening and reading: zeros and an error, no crash. */
static void shortened_file(void **state)
{
    char path[] = "/tmp/weft-test-XXXXXX";
    const size_t n = 1 << 20;
    bytes b = {0};
    gguf_head(&b, 3, 1, 1);
    gguf_array(&b, "strs", WF_GGUF_STRING, 2);
    bytes_str(&b, "one");
    bytes_str(&b, "two");
    gguf_tensor(&b, "t", 1, (uint64_t[]){n / 4}, 0, 0);
    bytes_align(&b, 32);
    bytes_zero(&b, n);
    memset(b.data + b.len - n, 1, n);
    int fd = mkstemp(path);
    assert_int_equal(write(fd, b.data, b.len), (ssize_t)b.len);
    wf_gguf *g = NULL;
    assert_ok(wf_gguf_open(path, &g));
    assert_false(wf_gguf_broken(g));
    assert_int_equal(ftruncate(fd, 0), 0);
    size_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += g->tensors[0].data[i];
    assert_true(sum < n);
    char text[64] = "";
    uint64_t count = 0;
    /* Names are zeros too now. */
    assert_error(wf_gguf_strings(g, "strs", true, &count, join, text), WEFT_ERR_IO, "changed while");
    assert_true(wf_gguf_broken(g));
    wf_gguf_close(g);
    close(fd);
    unlink(path);
    bytes_free(&b);
}

static void real_model(void **state)
{
    const char *dir = getenv("WEFT_TEST_DATA");
    char path[4096];
    snprintf(path, sizeof path, "%s/stories260K.gguf", dir ? dir : "../shared/data");
    if (access(path, R_OK)) SKIP_TEST("stories260K.gguf is missing: set WEFT_TEST_DATA");
    wf_gguf *g = NULL;
    uint32_t width = 0, layers = 0;
    wf_str arch = {0};
    uint64_t n = 0;
    assert_ok(wf_gguf_open(path, &g));
    assert_ok(wf_gguf_u32(g, "llama.embedding_length", true, &width));
    assert_ok(wf_gguf_u32(g, "llama.block_count", true, &layers));
    assert_ok(wf_gguf_str(g, "general.architecture", true, &arch));
    assert_ok(wf_gguf_strings(g, "tokenizer.ggml.tokens", true, &n, NULL, NULL));
    assert_int_equal(width, 64);
    assert_int_equal(layers, 5);
    assert_memory_equal(arch.data, "llama", 5);
    assert_int_equal(n, 512);
    assert_int_equal(g->n_tensors, 47);
    const wf_gguf_tensor *t = wf_gguf_tensor_find(g, "blk.4.ffn_down.weight");
    assert_non_null(t);
    assert_int_equal(t->dims[0], 172);
    assert_int_equal(t->dims[1], 64);
    assert_false(wf_gguf_broken(g));
    wf_gguf_close(g);
}

SUITE(gguf_read, NULL, NULL, CASE(u32_values), CASE(other_values), CASE(string_arrays), CASE(printing),
      CASE(unread_types), CASE(long_template), CASE(shortened_file), CASE(real_model))
