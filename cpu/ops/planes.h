/* Activations as 15 bits in two int8, with AVX-512: x = scale * (256 first + second), a scale for
 * each block of 32. */
#ifndef WF_CPU_OPS_PLANES_H
#define WF_CPU_OPS_PLANES_H

#include "cpu/simd/simd.h"

/* Rounds 32 numbers; returns the scale. */
static inline float round_block(const float *x, int8_t *first, int8_t *second)
{
    const __m512 bound = _mm512_set1_ps(127);
    __m512 v[2] = {_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)};
    float top = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(v[0]), _mm512_abs_ps(v[1])));
    __m512 factor = _mm512_set1_ps(top > 0 ? 127 / top : 0);
    for (int i = 0; i < 2; i++) {
        __m512 scaled = _mm512_mul_ps(v[i], factor), whole = v_round(scaled);
        __m512 left = _mm512_mul_ps(_mm512_sub_ps(scaled, whole), _mm512_set1_ps(256));
        left = _mm512_min_ps(left, bound); /* 128 becomes 127 */
        _mm_storeu_si128((__m128i *)(first + 16 * i),
                         _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(whole)));
        _mm_storeu_si128((__m128i *)(second + 16 * i),
                         _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(left)));
    }
    return top / 127 / 256;
}

#endif
