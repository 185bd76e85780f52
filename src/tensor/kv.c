/* kv: see kv.h. */
#include "tensor/kv.h"

#include <math.h>
#include <string.h>

void wf_kv_load(enum wf_dtype t, const void *page, uint64_t cols, uint64_t at, float *out, uint32_t n)
{
    if (t == WF_F16) {
        wf_dtypes[t].decode((const uint16_t *)page + at, out, n);
        return;
    }
    const int8_t *q = (const int8_t *)page + at;
    const uint16_t *scales = wf_kv_scales(page, cols, at);
    for (uint32_t i = 0; i < n; i++) out[i] = wf_half_to_float(scales[i / WF_KV_BLOCK]) * q[i];
}

static void store_block(const float *x, int8_t *q, uint16_t *scale)
{
    float most = 0, nan = 0;
    for (uint32_t i = 0; i < WF_KV_BLOCK; i++) most = fmaxf(most, fabsf(x[i])), nan += 0 * x[i];
    float d = most / 127 + nan, inverse = d > 0 ? 1 / d : 0;
    *scale = wf_float_to_half(d);
    for (uint32_t i = 0; i < WF_KV_BLOCK; i++) q[i] = (int8_t)wf_round_clamp(x[i] * inverse, -127, 127);
}

void wf_kv_store(enum wf_dtype t, void *page, uint64_t cols, uint64_t at, const float *x, uint32_t n)
{
    if (t == WF_F16) {
        wf_dtypes[t].encode(x, (uint16_t *)page + at, n);
        return;
    }
    uint16_t *scales = wf_kv_scales(page, cols, at);
    for (uint32_t i = 0; i < n; i += WF_KV_BLOCK)
        store_block(x + i, (int8_t *)page + at + i, scales + i / WF_KV_BLOCK);
}

bool wf_kv_dtype_named(const char *name, enum wf_dtype *out)
{
    *out = name && !strcmp(name, "q8_0") ? WF_Q8_0 : WF_F16;
    return !name || *out == WF_Q8_0 || !strcmp(name, "f16") || !strcmp(name, "auto");
}
