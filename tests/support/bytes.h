/* bytes: builds GGUF files in memory, right and wrong ones alike: nothing is checked here. */
#ifndef TEST_BYTES_H
#define TEST_BYTES_H

#include <stddef.h>
#include <stdint.h>

typedef struct bytes {
    uint8_t *data;
    size_t len, cap;
} bytes;

void bytes_put(bytes *b, const void *p, size_t n);
void bytes_zero(bytes *b, size_t n);
void bytes_align(bytes *b, size_t to);
void bytes_u8(bytes *b, uint8_t v);
void bytes_u32(bytes *b, uint32_t v);
void bytes_u64(bytes *b, uint64_t v);
void bytes_str(bytes *b, const char *s); /* u64 length, characters */
void bytes_free(bytes *b);

/* Pieces of a GGUF file in their order. */
void gguf_head(bytes *b, uint32_t version, uint64_t n_tensors, uint64_t n_kv);
void gguf_key(bytes *b, const char *key, uint32_t type); /* the value comes next */
void gguf_kv_u32(bytes *b, const char *key, uint32_t v);
void gguf_kv_str(bytes *b, const char *key, const char *v);
void gguf_array(bytes *b, const char *key, uint32_t item, uint64_t count); /* the elements come next */
void gguf_tensor(bytes *b, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type, uint64_t offset);

/* A good file: metadata of several types, alignment 64, tensors "a" (10 F32) and "b" (Q4_0 [2,
 * 32]); it ends with the last byte of "b". */
void gguf_good(bytes *b);

#endif
