/* gguf_split: models in several files, whole ones and ones with a part that is missing, of another model, or not the
 * first. */
#include "model/files/gguf.h"
#include "support/bytes.h"
#include "support/folder.h"

enum { PARTS = 3 };

typedef struct part {
    const char *file, *tensor; /* tensor: its only one, eight F32 of `value` */
    uint32_t no, count, total;
    float value;
} part;

static void write_part(const part *p)
{
    bytes b = {0};
    gguf_head(&b, 3, 1, p->no ? 3 : 4);
    gguf_kv_u32(&b, "split.no", p->no);
    gguf_kv_u32(&b, "split.count", p->count);
    gguf_kv_u32(&b, "split.tensors.count", p->total);
    if (!p->no) gguf_kv_str(&b, "general.architecture", "llama");
    gguf_tensor(&b, p->tensor, 1, (uint64_t[]){8}, 0, 0);
    bytes_align(&b, 32);
    for (int i = 0; i < 8; i++) bytes_put(&b, &p->value, sizeof p->value);
    write_file(in_folder(p->file), b.data, b.len);
    bytes_free(&b);
}

static const part good[PARTS] = {
    {"m-00001-of-00003.gguf", "c", 0, 3, 3, 1},
    {"m-00002-of-00003.gguf", "a", 1, 3, 3, 2},
    {"m-00003-of-00003.gguf", "b", 2, 3, 3, 3},
};

static void write_good(void)
{
    for (int i = 0; i < PARTS; i++) write_part(&good[i]);
}

static void fails(const char *file, weft_status want, const char *words)
{
    wf_gguf *g = NULL;
    assert_int_equal(wf_gguf_open(in_folder(file), &g), want);
    assert_null(g);
    if (!strstr(wf_error(), words)) fail_msg("'%s' does not say '%s'", wf_error(), words);
}

static void whole(void **state)
{
    wf_gguf *g = NULL;
    uint64_t size = 0;
    write_good();
    assert_ok(wf_gguf_open(in_folder(good[0].file), &g));
    assert_int_equal(g->n_tensors, PARTS);
    assert_int_equal(g->n_maps, PARTS);
    for (int i = 0; i < PARTS; i++) {
        const wf_gguf_tensor *t = wf_gguf_tensor_find(g, good[i].tensor);
        assert_non_null(t);
        for (int k = 0; k < 8; k++) assert_memory_equal(t->data + 4 * k, &good[i].value, 4);
        size += g->maps[i].size;
    }
    assert_int_equal(wf_gguf_bytes(g), size);
    assert_non_null(wf_gguf_find(g, "general.architecture"));
    wf_gguf_close(g);
}

static void missing(void **state)
{
    write_good();
    unlink(in_folder(good[2].file));
    fails(good[0].file, WEFT_ERR_IO, "part 3 of 3: cannot open");
    fails(good[0].file, WEFT_ERR_IO, good[2].file);
}

static void not_the_first(void **state)
{
    write_good();
    fails(good[1].file, WEFT_ERR_ARG, "name the first one, whose name ends in -00001-of-00003.gguf");
}

static void another_name(void **state)
{
    part p = good[0];
    p.file = "other.gguf";
    write_part(&p);
    fails("other.gguf", WEFT_ERR_UNSUPPORTED, "end in -00001-of-00003.gguf");
}

/* What stands in a part in place of the third one. */
static void wrong_parts(void **state)
{
    static const struct {
        part p;
        const char *words;
    } wrong[] = {
        {{"m-00003-of-00003.gguf", "b", 1, 3, 3, 3}, "says that it is part 2 of 3"},
        {{"m-00003-of-00003.gguf", "b", 2, 4, 3, 3}, "says that it is part 3 of 4"},
        {{"m-00003-of-00003.gguf", "a", 2, 3, 3, 3}, "'a' appears twice"},
    };
    for (size_t i = 0; i < WF_LEN(wrong); i++) {
        write_good();
        write_part(&wrong[i].p);
        fails(good[0].file, WEFT_ERR_FORMAT, wrong[i].words);
    }
}

static void another_total(void **state)
{
    part p = good[0];
    write_good();
    p.total = 4;
    write_part(&p);
    fails(good[0].file, WEFT_ERR_FORMAT, "have 3 tensors, not the 4");
}

SUITE(gguf_split, make_folder, remove_folder, CASE(whole), CASE(missing), CASE(not_the_first), CASE(another_name),
      CASE(wrong_parts), CASE(another_total))
