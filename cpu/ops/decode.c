/* Decodes rows of weights to F32 with vectors, for GEMMs that work on decoded panels. */
#include <string.h>

#include "cpu/ops/ops.h"
#include "cpu/ops/simd.h"
#include "tensor/quant/k_scales.h"

static void decode_f16(const uint16_t *src, float *dst, size_t n)
{
    size_t k = 0;
    for (; k + VL <= n; k += VL) v_store(dst + k, v_load_f16(src + k));
    wf_decode_f16(src + k, dst + k, n - k);
}

static void decode_bf16(const uint16_t *src, float *dst, size_t n)
{
    size_t k = 0;
    for (; k + VL <= n; k += VL) v_store(dst + k, v_load_bf16(src + k));
    wf_decode_bf16(src + k, dst + k, n - k);
}

static void decode_q8_0(const char *src, float *dst, size_t n)
{
    for (size_t b = 0; b < n / 32; b++, src += 34)
        q_expand(q_load(src + 2), 0, qf_half(src), qf_half(src), dst + 32 * b);
}

static void decode_q4_0(const char *src, float *dst, size_t n)
{
    for (size_t b = 0; b < n / 32; b++, src += 18)
        q_expand(q_nibbles(src + 2), 8, qf_half(src), qf_half(src), dst + 32 * b);
}

static void decode_q4_1(const char *src, float *dst, size_t n)
{
    for (size_t b = 0; b < n / 32; b++, src += 20, dst += 32) {
        uint16_t m;
        memcpy(&m, src + 2, sizeof m);
        q_expand(q_nibbles(src + 4), 0, qf_half(src), qf_half(src), dst);
        for (size_t k = 0; k < 32; k += VL) v_store(dst + k, v_add(v_load(dst + k), v_set(wf_half_to_float(m))));
    }
}

/* Q4_K and, with fifth bits, Q5_K. */
WF_INLINE void decode_mins(const char *src, float *dst, size_t n, const bool fifth)
{
    for (size_t s = 0; s < n / 256; s++, src += fifth ? 176 : 144) {
        uint8_t scale[8], min[8];
        uint16_t d[2];
        memcpy(d, src, sizeof d);
        wf_k_scales_unpack(src + 4, scale, min);
        WF_UNROLL(Q6K_UNROLL)
        for (uint32_t j = 0; j < 8; j++, dst += 32) {
            qf step = qf_set(wf_half_to_float(d[0]) * scale[j]);
            q_expand(fifth ? q_5k(src + 48, src + 16, j) : q_4k(src + 16, j), 0, step, step, dst);
            vf least = v_set(wf_half_to_float(d[1]) * min[j]);
            for (size_t k = 0; k < 32; k += VL) v_store(dst + k, v_sub(v_load(dst + k), least));
        }
    }
}

static void decode_q6_k(const char *src, float *dst, size_t n)
{
    for (size_t s = 0; s < n / 256; s++, src += 210) {
        float scale[16];
        q_scales(src + 192, qf_half(src + 208), scale);
        WF_UNROLL(Q6K_UNROLL)
        for (uint32_t j = 0; j < 8; j++)
            q_expand(q_6k(src, j), 32, qf_set(scale[2 * j]), qf_set(scale[2 * j + 1]), dst + 256 * s + 32 * j);
    }
}

void WF_SIMD(wf_cpu_decode)(uint8_t dtype, const void *src, float *dst, size_t n)
{
    switch (dtype) {
    case WF_F16: decode_f16(src, dst, n); break;
    case WF_BF16: decode_bf16(src, dst, n); break;
    case WF_Q8_0: decode_q8_0(src, dst, n); break;
    case WF_Q4_0: decode_q4_0(src, dst, n); break;
    case WF_Q4_1: decode_q4_1(src, dst, n); break;
    case WF_Q4_K: decode_mins(src, dst, n, false); break;
    case WF_Q5_K: decode_mins(src, dst, n, true); break;
    case WF_Q6_K: decode_q6_k(src, dst, n); break;
    default: wf_dtypes[dtype].decode(src, dst, n);
    }
}
