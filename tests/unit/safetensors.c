/* safetensors: files, folders and indexes, right and wrong. Each wrong one must give an error whose message names what
 * is wrong. */
#include "model/files/safetensors.h"
#include "support/bytes.h"
#include "tensor/tensor.h"
#include "support/folder.h"
#include "support/rows.h"

#include <sys/stat.h>

/* ---- one file ------------------------------------------------------------------------------------ */

#define T(name, type, shape, from, to)                                                                                 \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"
#define GOOD                                                                                                           \
    "{\"__metadata__\":{\"format\":\"pt\"}," T("b", "BF16", "[2,3]", "16", "28") "," T("a", "F32", "[4]", "0",         \
                                                                                       "16") "}   "

static void build(bytes *b, uint64_t len, const char *header, size_t data)
{
    bytes_u64(b, len);
    bytes_put(b, header, strlen(header));
    bytes_zero(b, data);
}

/* Opens a copy of exactly these bytes, so that a read behind the end shows up. */
static weft_status open_bytes(const bytes *b, wf_safetensors **out)
{
    uint8_t *copy = malloc(b->len ? b->len : 1);
    assert_non_null(copy);
    if (b->len) memcpy(copy, b->data, b->len);
    weft_status s = wf_safetensors_open_memory(copy, b->len, "test", out);
    if (s) free(copy);
    return s;
}

static void close_bytes(wf_safetensors *s)
{
    uint8_t *copy = (uint8_t *)s->maps[0].data;
    wf_safetensors_close(s);
    free(copy);
}

static void good(void **state)
{
    bytes b = {0};
    wf_safetensors *s;
    build(&b, strlen(GOOD), GOOD, 28);
    assert_ok(open_bytes(&b, &s));
    const wf_safetensor *t = wf_safetensors_find(s, "b");
    assert_int_equal(s->n_tensors, 2);
    assert_non_null(t);
    assert_string_equal(t->type, "BF16");
    assert_int_equal(t->dtype, WF_BF16);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->shape[0], 2);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(t->bytes, 12);
    assert_ptr_equal(t->data, s->maps[0].data + 8 + strlen(GOOD) + 16);
    assert_int_equal(t->offset, 8 + strlen(GOOD) + 16);
    assert_null(wf_safetensors_find(s, "c"));
    close_bytes(s);
    bytes_free(&b);
}

static void fails_with(const bytes *b, const char *message)
{
    wf_safetensors *s = NULL;
    assert_int_equal(open_bytes(b, &s), WEFT_ERR_FORMAT);
    assert_null(s);
    if (!strstr(wf_error(), message)) fail_msg("'%s' lacks '%s'", wf_error(), message);
}

static void wrong_header(char *const *column)
{
    bytes b = {0};
    if (strcmp(column[0], "header")) return;
    build(&b, strlen(column[1]), column[1], (size_t)atoi(column[3]));
    fails_with(&b, column[2]);
    bytes_free(&b);
}

static void headers(void **state)
{
    each_row("tests/unit/safetensors.txt", 4, wrong_header);
}

static void lengths(void **state)
{
    static const struct {
        uint64_t len;
        const char *message;
    } cases[] = {{UINT64_MAX, "at most"}, {1ull << 63, "at most"},     {(100u << 20) + 1, "at most"},
                 {100u << 20, "only"},    {strlen(GOOD) + 29, "only"}, {0, "'{'"},
                 {1, "bad JSON"}};
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        bytes b = {0};
        build(&b, cases[i].len, GOOD, 28);
        fails_with(&b, cases[i].message);
        bytes_free(&b);
    }
}

static void cut_anywhere(void **state)
{
    bytes b = {0};
    build(&b, strlen(GOOD), GOOD, 28);
    for (size_t n = 0; n < strlen(GOOD) + 36; n++) {
        bytes cut = {b.data, n, n};
        fails_with(&cut, "");
    }
    bytes_free(&b);
}

static void deep(void **state)
{
    enum { DEPTH = 100000 };
    static char header[5 + DEPTH + 1];
    memcpy(header, "{\"a\":", 5);
    memset(header + 5, '[', DEPTH);
    bytes b = {0};
    build(&b, strlen(header), header, 0);
    fails_with(&b, "nested deeper");
    bytes_free(&b);
}

/* Tensors without bytes or dimensions are part of the format. */
static void empty(void **state)
{
    bytes b = {0};
    wf_safetensors *s;
    const char *header = "{" T("z", "F32", "[0,4]", "0", "0") "," T("one", "I64", "[]", "0", "8") "}";
    build(&b, strlen(header), header, 8);
    assert_ok(open_bytes(&b, &s));
    assert_int_equal(wf_safetensors_find(s, "one")->dtype, -1);
    assert_int_equal(wf_safetensors_find(s, "z")->bytes, 0);
    close_bytes(s);
    bytes_free(&b);
}

/* ---- folders --------------------------------------------------------------------------------------- */

static void put_file(const char *name, const void *data, size_t len)
{
    write_file(in_folder(name), data, len);
}

static void write_tensors(const char *name, const char *header, size_t data)
{
    bytes b = {0};
    build(&b, strlen(header), header, data);
    put_file(name, b.data, b.len);
    bytes_free(&b);
}

static void put_text(const char *name, const char *text)
{
    put_file(name, text, strlen(text));
}

#define A "{" T("a", "F32", "[1]", "0", "4") "}"
#define B "{" T("b", "F16", "[1]", "0", "2") "}"
#define INDEX "model.safetensors.index.json"

static void two_shards(const char *index)
{
    write_tensors("model-00001-of-00002.safetensors", A, 4);
    write_tensors("model-00002-of-00002.safetensors", B, 2);
    put_text(INDEX, index);
}

#define MAP(a, b) "{\"metadata\":{\"total_size\":6},\"weight_map\":{\"a\":" a ",\"b\":" b "}}"
#define ONE "\"model-00001-of-00002.safetensors\""
#define TWO "\"model-00002-of-00002.safetensors\""

static void shards(void **state)
{
    wf_safetensors *s;
    two_shards(MAP(ONE, TWO));
    assert_ok(wf_safetensors_open(folder, &s));
    assert_int_equal(s->n_maps, 2);
    assert_int_equal(s->n_tensors, 2);
    assert_int_equal(wf_safetensors_find(s, "b")->dtype, WF_F16);
    wf_safetensors_close(s);
}

static void wrong_index(char *const *column)
{
    wf_safetensors *s;
    if (strcmp(column[0], "index")) return;
    two_shards(column[1]);
    assert_int_not_equal(wf_safetensors_open(folder, &s), WEFT_OK);
    if (!strstr(wf_error(), column[2])) fail_msg("'%s' lacks '%s'", wf_error(), column[2]);
}

static void indexes(void **state)
{
    each_row("tests/unit/safetensors.txt", 4, wrong_index);
}

static void twice(void **state)
{
    wf_safetensors *s;
    two_shards(MAP(ONE, TWO));
    write_tensors("model-00002-of-00002.safetensors",
                  "{" T("b", "F16", "[1]", "0", "2") "," T("a", "F16", "[1]", "2", "4") "}", 4);
    assert_error(wf_safetensors_open(folder, &s), WEFT_ERR_FORMAT, "tensor 'a' is in two files");
}

/* Hugging Face's cache: the snapshot's files are links to blobs elsewhere. */
static void links(void **state)
{
    wf_safetensors *s;
    const char *to = in_folder("snapshots"), *from = in_folder("snapshots/model.safetensors");
    mkdir(in_folder("blobs"), 0700), mkdir(to, 0700);
    write_tensors("blobs/0a1b", A, 4);
    assert_int_equal(symlink("../blobs/0a1b", from), 0);
    assert_ok(wf_safetensors_open(to, &s));
    assert_int_equal(s->n_tensors, 1);
    wf_safetensors_close(s);
    unlink(from);
    assert_int_equal(symlink("../blobs/gone", from), 0);
    assert_error(wf_safetensors_open(to, &s), WEFT_ERR_IO, "snapshots/model.safetensors");
}

static void not_files(void **state)
{
    const char *path = in_folder("model.safetensors");
    wf_safetensors *s;
    mkdir(path, 0700);
    assert_error(wf_safetensors_open(folder, &s), WEFT_ERR_IO, "a directory");
    rmdir(path);
    mkfifo(path, 0600);
    assert_error(wf_safetensors_open(folder, &s), WEFT_ERR_IO, "a FIFO");
}

static void other_formats(void **state)
{
    wf_safetensors *s;
    assert_ok(wf_safetensors_open(folder, &s)); /* a vocabulary alone */
    assert_int_equal(s->n_tensors, 0);
    wf_safetensors_close(s);
    put_text("pytorch_model.bin", "PK");
    assert_error(wf_safetensors_open(folder, &s), WEFT_ERR_UNSUPPORTED, "pytorch_model.bin");
}

/* The same rules as for other maps: what is written to while it is mapped is told. */
static void changed(void **state)
{
    wf_safetensors *s;
    write_tensors("model.safetensors", A, 4);
    assert_ok(wf_safetensors_open(folder, &s));
    assert_false(wf_map_broken(&s->maps[0]));
    write_tensors("model.safetensors", A, 4);
    assert_true(wf_map_broken(&s->maps[0]));
    wf_safetensors_close(s);
}

SUITE_EACH(safetensors, NULL, NULL, make_folder, remove_folder, CASE(good), CASE(headers), CASE(lengths),
           CASE(cut_anywhere), CASE(deep), CASE(empty), CASE(shards), CASE(indexes), CASE(twice), CASE(links),
           CASE(not_files), CASE(other_formats), CASE(changed))
