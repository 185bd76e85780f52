/* gguf_check: see gguf_check.h. */
#include "support/gguf_check.h"
#include "support/suite.h"

weft_status gguf_open_copy(const uint8_t *data, size_t n, wf_gguf **out, uint8_t **copy)
{
    *copy = malloc(n ? n : 1);
    assert_non_null(*copy);
    if (n) memcpy(*copy, data, n);
    return wf_gguf_open_memory(n ? *copy : NULL, n, "memory.gguf", out);
}

void gguf_good_opens(void)
{
    bytes b = {0};
    wf_gguf *g = NULL;
    gguf_good(&b);
    assert_int_equal(wf_gguf_open_memory(b.data, b.len, "good.gguf", &g), WEFT_OK);
    assert_int_equal(g->n_kv, 5);
    assert_int_equal(g->n_tensors, 2);
    assert_ptr_equal(wf_gguf_tensor_find(g, "b")->data, b.data + b.len - 36);
    wf_gguf_close(g);
    bytes_free(&b);
}
