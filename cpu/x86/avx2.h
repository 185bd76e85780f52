/* AVX2 with FMA and F16C: 8 floats. */
#include <immintrin.h>
#include <string.h>

#define VL         8
#define VREGS      16
#define F16_ELEMS  16
#define Q6K_UNROLL 8
typedef __m256 vf;

#include "cpu/x86/avx_int8.h"

/* clang-format off: a table with one line per function, as far as they fit */
WF_INLINE vf v_zero(void) { return _mm256_setzero_ps(); }
WF_INLINE vf v_set(float x) { return _mm256_set1_ps(x); }
WF_INLINE vf v_load(const float *p) { return _mm256_loadu_ps(p); }
WF_INLINE void v_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
WF_INLINE vf v_add(vf a, vf b) { return _mm256_add_ps(a, b); }
WF_INLINE vf v_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
WF_INLINE vf v_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
WF_INLINE vf v_div(vf a, vf b) { return _mm256_div_ps(a, b); }
WF_INLINE vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
WF_INLINE vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }
WF_INLINE vf v_round(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT); }
WF_INLINE vf v_pow2i(vf n)
{
    __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
}
WF_INLINE float v_reduce_add(vf a) { return qf_sum(a); }
WF_INLINE float v_reduce_max(vf a)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
WF_INLINE vf v_load_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }
WF_INLINE void v_store_f16(void *p, vf a) { _mm_storeu_si128(p, _mm256_cvtps_ph(a, 0)); }
WF_INLINE vf v_load_i8(const void *p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p))); }
WF_INLINE vf v_load_i16(const void *p) { return _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_loadu_si128(p))); }
WF_INLINE void v_store_i8(void *p, vf a)
{
    __m256i n = _mm256_cvtps_epi32(a);
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));
    _mm_storel_epi64(p, _mm_packs_epi16(words, words));
}
WF_INLINE vf v_load_bf16(const void *p)
{
    __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}

WF_INLINE void v_transpose(const float *p, size_t step, float *out, size_t out_step)
{
    __m256 r[8], t[8];
    for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(p + i * step);
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            r[i + 2 * j] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0x44);
            r[i + 2 * j + 1] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0xee);
        }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(out + i * out_step, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(out + (i + 4) * out_step, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

/* Transposes 8 by 8 words of 16 bits in each half. */
WF_INLINE void v_transpose_f16(const uint16_t *const *rows, size_t at, uint16_t *out)
{
    __m256i r[8], t[8];
    for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_si256((const __m256i *)(rows[i] + at));
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_epi16(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi16(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            r[i + 2 * j] = _mm256_unpacklo_epi32(t[i + j], t[i + j + 2]);
            r[i + 2 * j + 1] = _mm256_unpackhi_epi32(t[i + j], t[i + j + 2]);
        }
    for (int i = 0; i < 8; i++) {
        __m256i row = i % 2 ? _mm256_unpackhi_epi64(r[i / 2], r[i / 2 + 4])
                            : _mm256_unpacklo_epi64(r[i / 2], r[i / 2 + 4]);
        _mm_storeu_si128((__m128i *)(out + i * VL), _mm256_castsi256_si128(row));
        _mm_storeu_si128((__m128i *)(out + (8 + i) * VL), _mm256_extracti128_si256(row, 1));
    }
}
