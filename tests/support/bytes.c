/* bytes: see bytes.h. Out of memory ends the test program. */
#include "support/bytes.h"

#include <stdlib.h>
#include <string.h>

void bytes_zero(bytes *b, size_t n)
{
    if (n == 0) return;
    if (b->len + n > b->cap) {
        b->cap = (b->len + n) * 2;
        b->data = realloc(b->data, b->cap);
        if (!b->data) abort();
    }
    memset(b->data + b->len, 0, n);
    b->len += n;
}

void bytes_put(bytes *b, const void *p, size_t n)
{
    bytes_zero(b, n);
    if (n) memcpy(b->data + b->len - n, p, n);
}

void bytes_align(bytes *b, size_t to)
{
    bytes_zero(b, (to - b->len % to) % to);
}

void bytes_u8(bytes *b, uint8_t v)
{
    bytes_put(b, &v, 1);
}

void bytes_u32(bytes *b, uint32_t v)
{
    bytes_put(b, &v, 4);
}

void bytes_u64(bytes *b, uint64_t v)
{
    bytes_put(b, &v, 8);
}

void bytes_str(bytes *b, const char *s)
{
    bytes_u64(b, strlen(s));
    bytes_put(b, s, strlen(s));
}

void bytes_free(bytes *b)
{
    free(b->data);
    *b = (bytes){0};
}

void gguf_head(bytes *b, uint32_t version, uint64_t n_tensors, uint64_t n_kv)
{
    bytes_put(b, "GGUF", 4);
    bytes_u32(b, version);
    bytes_u64(b, n_tensors);
    bytes_u64(b, n_kv);
}

void gguf_key(bytes *b, const char *key, uint32_t type)
{
    bytes_str(b, key);
    bytes_u32(b, type);
}

void gguf_kv_u32(bytes *b, const char *key, uint32_t v)
{
    gguf_key(b, key, 4);
    bytes_u32(b, v);
}

void gguf_kv_str(bytes *b, const char *key, const char *v)
{
    gguf_key(b, key, 8);
    bytes_str(b, v);
}

void gguf_array(bytes *b, const char *key, uint32_t item, uint64_t count)
{
    gguf_key(b, key, 9);
    bytes_u32(b, item);
    bytes_u64(b, count);
}

void gguf_tensor(bytes *b, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type, uint64_t offset)
{
    bytes_str(b, name);
    bytes_u32(b, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) bytes_u64(b, dims[i]);
    bytes_u32(b, type);
    bytes_u64(b, offset);
}

void gguf_good(bytes *b)
{
    gguf_head(b, 3, 2, 5);
    gguf_kv_str(b, "general.architecture", "llama");
    gguf_kv_u32(b, "general.alignment", 64);
    gguf_array(b, "list.numbers", 6, 3);
    bytes_zero(b, 12);
    gguf_array(b, "list.strings", 8, 2);
    bytes_str(b, "one");
    bytes_str(b, "");
    gguf_key(b, "flag", 7);
    bytes_u8(b, 1);
    gguf_tensor(b, "a", 1, (uint64_t[]){10}, 0, 0);
    gguf_tensor(b, "b", 2, (uint64_t[]){32, 2}, 2, 64);
    bytes_align(b, 64);
    bytes_zero(b, 64 + 36);
}
