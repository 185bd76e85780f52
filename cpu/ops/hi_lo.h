/* AVX-512 helpers for quantised blocks: activations as fixed point in two int8, x = scale * (256 hi + lo) with one scale per block of
 * 32, and loads of weights from the file's blocks. */
#ifndef WF_CPU_OPS_HI_LO_H
#define WF_CPU_OPS_HI_LO_H

#include "cpu/simd/simd.h"

/* Lane-wise maximum of absolute values. Compares bits, so that NaN is the largest and reaches the scale. */
WF_INLINE __m512i max_abs(__m512i top, __m512 v)
{
    return _mm512_max_epi32(top, _mm512_castps_si512(_mm512_abs_ps(v)));
}

WF_INLINE float max_of(__m512i sizes)
{
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(sizes))));
}

/* Quantises 32 numbers; returns the scale. */
static inline float round_block(const float *x, int8_t *hi, int8_t *lo)
{
    const __m512 bound = _mm512_set1_ps(127);
    __m512 v[2] = {_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)};
    float top = max_of(max_abs(max_abs(_mm512_setzero_si512(), v[0]), v[1]));
    __m512 factor = _mm512_set1_ps(top > 0 ? 127 / top : 0);
    for (int i = 0; i < 2; i++) {
        __m512 scaled = _mm512_mul_ps(v[i], factor), whole = v_round(scaled);
        __m512 left = _mm512_mul_ps(_mm512_sub_ps(scaled, whole), _mm512_set1_ps(256));
        left = _mm512_min_ps(left, bound); /* 128 becomes 127 */
        _mm_storeu_si128((__m128i *)(hi + 16 * i),
                         _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(whole)));
        _mm_storeu_si128((__m128i *)(lo + 16 * i),
                         _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(left)));
    }
    return top / 127 / 256;
}

/* Loads 32 bytes from each address. */
WF_INLINE __m512i load_2x32(const char *low, const char *high)
{
    __m512i a = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)low));
    return _mm512_inserti64x4(a, _mm256_loadu_si256((const void *)high), 1);
}

WF_INLINE __m128i load16(const char *p)
{
    return _mm_loadu_si128((const void *)p);
}

/* Unpacks 64 weights (0 to 63) of the Q6_K superblock at p, from weight 64 i on. */
WF_INLINE __m512i q6_k_bytes(const char *p, const uint32_t i)
{
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i by = _mm512_inserti64x4(_mm512_set1_epi16(4 * (i & 1)),
                                          _mm256_set1_epi16(4 * (i & 1) + 2), 1);
    __m512i ql = _mm512_loadu_si512(p + 64 * (i / 2));
    __m512i qh = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)(p + 128 + 32 * (i / 2))));
    __m512i high = _mm512_and_si512(_mm512_srlv_epi16(qh, by), _mm512_set1_epi8(3));
    ql = _mm512_and_si512(i & 1 ? _mm512_srli_epi16(ql, 4) : ql, low);
    return _mm512_or_si512(ql, _mm512_slli_epi16(high, 4));
}

#endif
