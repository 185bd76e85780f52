/* tensor: storage formats. Layouts of the quantised blocks are GGUF's (ggml), little endian. */
#ifndef WF_TENSOR_H
#define WF_TENSOR_H

#include "base/base.h"

#define WF_NO_GGML UINT32_MAX /* the format is in no file */

enum wf_dtype {
#define X(id, ...) WF_##id,
#include "tensor/dtypes.def"
#undef X
    WF_N_DTYPES,
    WF_N_WEIGHT_DTYPES = WF_I32 /* the rows before it are formats of weights, from 0 on */
};

typedef struct wf_dtype_info {
    const char *name;
    uint32_t ggml;        /* type id in GGUF, or WF_NO_GGML */
    uint32_t block;       /* elements a block */
    uint32_t block_bytes;
    void (*decode)(const void *src, float *dst, size_t n); /* n: a multiple of block; src unaligned */
    void (*encode)(const float *src, void *dst, size_t n); /* reference, round to nearest */
} wf_dtype_info;

extern const wf_dtype_info wf_dtypes[WF_N_DTYPES];

extern const char *const wf_weight_dtype_names; /* "F32, F16, ...", for messages */

int wf_dtype_of_ggml(uint32_t ggml);          /* enum wf_dtype, or -1 */
const char *wf_ggml_type_name(uint32_t ggml); /* also of types that weft does not read; "unknown" if no such type */
/* Elements and bytes a block of any GGUF type; false for numbers without a type and for types since removed. */
bool wf_ggml_type_size(uint32_t ggml, uint32_t *block, uint32_t *bytes);
/* Bytes of n elements; n must be a multiple of the block. */
uint64_t wf_dtype_bytes(enum wf_dtype t, uint64_t n);
/* The other way round. */
uint64_t wf_dtype_elements(enum wf_dtype t, uint64_t bytes);

float wf_half_to_float(uint16_t h);
uint16_t wf_float_to_half(float f);           /* round to nearest even, overflow to infinity */
float wf_bf16_to_float(uint16_t h);
uint16_t wf_float_to_bf16(float f);

int wf_round_clamp(float x, int lo, int hi);   /* to nearest even; NaN gives lo */

/* The conversions named in dtypes.def. */
#define WF_DTYPES_CONVERTIBLE
#define X(id, name, ggml, block, bytes, decode, encode)                                           \
    void decode(const void *src, float *dst, size_t n);                                           \
    void encode(const float *src, void *dst, size_t n);
#include "tensor/dtypes.def"
#undef X
#undef WF_DTYPES_CONVERTIBLE

#endif
