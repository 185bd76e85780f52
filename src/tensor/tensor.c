/* tensor: the table of storage formats, and the names and sizes of all GGUF tensor types. */
#include "tensor/tensor.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "blocks are read in place, little endian");

const wf_dtype_info wf_dtypes[WF_N_DTYPES] = {
#define X(id, name, ggml, block, bytes, decode, encode)                                           \
    [WF_##id] = {name, ggml, block, bytes, decode, encode},
#include "tensor/dtypes.def"
#undef X
};

static const char formats[] =
#define WF_DTYPES_CONVERTIBLE
#define WF_DTYPES_OF_FILES
#define X(id, name, ...) ", " name
#include "tensor/dtypes.def"
#undef X
#undef WF_DTYPES_OF_FILES
#undef WF_DTYPES_CONVERTIBLE
    ;
const char *const wf_weight_dtype_names = formats + 2;

static const struct other {
    uint32_t ggml;
    const char *name;
    uint32_t block, bytes;
} others[] = {
#define UNREAD(...) {__VA_ARGS__},
#include "tensor/dtypes.def"
#undef UNREAD
};

static const struct other *other_of(uint32_t ggml)
{
    for (size_t i = 0; i < WF_LEN(others); i++)
        if (others[i].ggml == ggml) return &others[i];
    return NULL;
}

int wf_dtype_of_ggml(uint32_t ggml)
{
    for (int t = 0; t < WF_N_DTYPES; t++)
        if (ggml != WF_NO_GGML && wf_dtypes[t].ggml == ggml) return t;
    return -1;
}

const char *wf_ggml_type_name(uint32_t ggml)
{
    int t = wf_dtype_of_ggml(ggml);
    if (t >= 0) return wf_dtypes[t].name;
    const struct other *o = other_of(ggml);
    return o ? o->name : "unknown";
}

bool wf_ggml_type_size(uint32_t ggml, uint32_t *block, uint32_t *bytes)
{
    int t = wf_dtype_of_ggml(ggml);
    const struct other *o = other_of(ggml);
    *block = t >= 0 ? wf_dtypes[t].block : o ? o->block : 0;
    *bytes = t >= 0 ? wf_dtypes[t].block_bytes : o ? o->bytes : 0;
    return *bytes > 0;
}

uint64_t wf_dtype_bytes(enum wf_dtype t, uint64_t n)
{
    return n / wf_dtypes[t].block * wf_dtypes[t].block_bytes;
}

uint64_t wf_dtype_elements(enum wf_dtype t, uint64_t bytes)
{
    return bytes / wf_dtypes[t].block_bytes * wf_dtypes[t].block;
}
