/* gguf: reads GGUF v2 and v3 (github.com/ggml-org/ggml, docs/gguf.md), memory-mapped.
 *
 * Every length is checked against the bytes that remain before anything is allocated or read. Strings and arrays point
 * into the map and are not NUL-terminated. Read-only after opening, so any thread may use it. */
#ifndef WF_GGUF_H
#define WF_GGUF_H

#include "base/base.h"
#include "base/file.h"
#include "tensor/tensor.h"

enum wf_gguf_type { /* the file's own numbers */
    WF_GGUF_U8, WF_GGUF_I8, WF_GGUF_U16, WF_GGUF_I16, WF_GGUF_U32, WF_GGUF_I32, WF_GGUF_F32, WF_GGUF_BOOL,
    WF_GGUF_STRING, WF_GGUF_ARRAY, WF_GGUF_U64, WF_GGUF_I64, WF_GGUF_F64, WF_GGUF_N_TYPES
};

typedef struct wf_str {
    const char *data;
    size_t len;
} wf_str;

typedef struct wf_gguf_kv {
    wf_str key;
    enum wf_gguf_type type, item; /* item: of an array */
    uint64_t count;               /* elements of an array; otherwise 1 */
    /* The value, little endian, unaligned; of a string its characters; strings of arrays as in the file (u64 length
     * before each). */
    const uint8_t *data;
    uint64_t bytes;               /* of data */
} wf_gguf_kv;

typedef struct wf_gguf_tensor {
    wf_str name;
    uint32_t n_dims;
    uint64_t dims[4];    /* GGUF order: dims[0] is the contiguous one (K), dims[1] the rows (N); unused: 1 */
    uint32_t ggml_type;  /* as in the file; weft may not support it */
    int dtype;           /* enum wf_dtype, or -1 */
    const uint8_t *data; /* into the map; NULL if the type's size is unknown */
    uint64_t bytes, offset;
} wf_gguf_tensor;

typedef struct wf_gguf {
    wf_map *maps; /* the files whose bytes the tensors are */
    size_t n_maps;
    char *path;
    uint32_t version;
    uint64_t alignment;
    size_t n_kv, n_tensors;
    wf_gguf_kv *kv;
    wf_gguf_tensor *tensors;
    void *index; /* private: name lookup */
    struct wf_folder *folder; /* NULL: a GGUF file; otherwise what folder.h says */
    uint64_t random; /* no file: matrices have no bytes, and this is the seed of random ones (shape.h); 0: a file */
} wf_gguf;

/* Also a model in several files, by the name of the first (gguf_split.h). */
weft_status wf_gguf_open(const char *path, wf_gguf **out);
/* The same from memory that outlives the object (the built-in model, fuzzing); name is for messages. */
weft_status wf_gguf_open_memory(const void *data, size_t size, const char *name, wf_gguf **out);
void wf_gguf_close(wf_gguf *);
/* An object without content, for another reader to fill; then wf_gguf_index, which fails on names that appear twice. */
weft_status wf_gguf_new(const char *name, wf_gguf **out);
weft_status wf_gguf_index(wf_gguf *);

uint64_t wf_gguf_bytes(const wf_gguf *);    /* of all its files */
bool wf_gguf_broken(const wf_gguf *);       /* wf_map_broken of any of them */
bool wf_gguf_is_file(const wf_gguf *);      /* on disk, not in memory */

const wf_gguf_kv *wf_gguf_find(const wf_gguf *, const char *key);
const wf_gguf_tensor *wf_gguf_tensor_find(const wf_gguf *, const char *name);

/* Typed access. If the key is absent and not required, *out does not change and the result is WEFT_OK. A wrong type or
 * a value out of range is WEFT_ERR_FORMAT with the key's name. u32 accepts any integer type whose value fits. */
weft_status wf_gguf_u32(const wf_gguf *, const char *key, bool required, uint32_t *out);
weft_status wf_gguf_f32(const wf_gguf *, const char *key, bool required, float *out);
weft_status wf_gguf_bool(const wf_gguf *, const char *key, bool required, bool *out);
weft_status wf_gguf_str(const wf_gguf *, const char *key, bool required, wf_str *out);
/* Array of strings: calls fn for each, in order. */
weft_status wf_gguf_strings(const wf_gguf *, const char *key, bool required, uint64_t *count,
                            weft_status (*fn)(void *user, uint64_t i, wf_str s), void *user);
/* An element of a numeric array. */
int64_t wf_gguf_int_at(const wf_gguf_kv *kv, uint64_t i);
double wf_gguf_num_at(const wf_gguf_kv *kv, uint64_t i);
const char *wf_gguf_type_name(enum wf_gguf_type); /* "u32" */
size_t wf_gguf_type_size(enum wf_gguf_type);      /* bytes; 0 for strings and arrays */
/* Text from a file, for messages: control bytes become '?', text that is too long ends in "..." (cap >= 5). */
const char *wf_str_show(char *buf, size_t cap, wf_str s);
#define WF_SHOW(s) wf_str_show((char[68]){0}, 68, s)
/* The value as readable text; long arrays and strings are abbreviated. */
void wf_gguf_print(const wf_gguf_kv *kv, char *buf, size_t cap);

#endif
