/* tensor: the table of storage formats, and the names and sizes of all GGUF tensor types. */
#include "tensor/tensor.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "blocks are read in place, little endian");

const wf_dtype_info wf_dtypes[WF_N_DTYPES] = {
#define X(id, name, ggml, block, bytes, decode, encode)                                           \
    [WF_##id] = {name, ggml, block, bytes, decode, encode},
#include "tensor/dtypes.def"
#undef X
};

/* Types that GGUF files may hold and weft has no dtype for (ggml.h, ggml-common.h). bytes 0: once
 * existed, and was taken out of the format. */
static const struct other {
    uint32_t ggml;
    const char *name;
    uint32_t block, bytes;
} others[] = {
    {3, "Q4_1", 32, 20},      {4, "Q4_2", 0, 0},         {5, "Q4_3", 0, 0},
    {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},       {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},    {12, "Q4_K", 256, 144},
    {13, "Q5_K", 256, 176},   {15, "Q8_K", 256, 292},    {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98},  {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},   {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},          {25, "I16", 1, 2},
    {27, "I64", 1, 8},        {28, "F64", 1, 8},         {29, "IQ1_M", 256, 56},
    {31, "Q4_0_4_4", 0, 0},   {32, "Q4_0_4_8", 0, 0},    {33, "Q4_0_8_8", 0, 0},
    {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},    {36, "IQ4_NL_4_4", 0, 0},
    {37, "IQ4_NL_4_8", 0, 0}, {38, "IQ4_NL_8_8", 0, 0},  {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},    {41, "Q1_0", 128, 18},     {42, "Q2_0", 64, 18},
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
        if (wf_dtypes[t].ggml == ggml) return t;
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
