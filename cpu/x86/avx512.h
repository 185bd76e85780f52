/* AVX-512 (F, BW, DQ, VL, VNNI): 16 floats. */
#include <immintrin.h>
#include <string.h>

#define VL         16
#define VREGS      32
#define F16_ELEMS  16
#define Q6K_UNROLL 8
typedef __m512 vf;

/* clang-format off: a table with one line per function, as far as they fit */
WF_INLINE vf v_zero(void) { return _mm512_setzero_ps(); }
WF_INLINE vf v_set(float x) { return _mm512_set1_ps(x); }
WF_INLINE vf v_load(const float *p) { return _mm512_loadu_ps(p); }
WF_INLINE void v_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
WF_INLINE vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
WF_INLINE vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
WF_INLINE vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
WF_INLINE vf v_div(vf a, vf b) { return _mm512_div_ps(a, b); }
WF_INLINE vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
WF_INLINE vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
WF_INLINE vf v_round(vf a) { return _mm512_roundscale_ps(a, 0); }
WF_INLINE vf v_pow2i(vf n)
{
    __m512i e = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(e, 23));
}
WF_INLINE float v_reduce_add(vf a) { return _mm512_reduce_add_ps(a); }
WF_INLINE float v_reduce_max(vf a) { return _mm512_reduce_max_ps(a); }
WF_INLINE vf v_load_f16(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }
WF_INLINE void v_store_f16(void *p, vf a) { _mm256_storeu_si256(p, _mm512_cvtps_ph(a, 0)); }
WF_INLINE vf v_load_i8(const void *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p))); }
WF_INLINE vf v_load_i16(const void *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm256_loadu_si256(p))); }
WF_INLINE void v_store_i8(void *p, vf a) { _mm_storeu_si128(p, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a))); }
WF_INLINE vf v_load_bf16(const void *p)
{
    __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}

/* Transposes pairs, then groups of four, then the four 128-bit quarters. */
WF_INLINE void v_transpose(const float *p, size_t step, float *out, size_t out_step)
{
    __m512 r[16], t[16];
    for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_ps(p + i * step);
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + j + 2]);
            r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        _mm512_storeu_ps(out + i * out_step, _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88));
        _mm512_storeu_ps(out + (i + 8) * out_step, _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd));
    }
}

/* In each quarter, transposes 8 by 8 words of 16 bits. */
WF_INLINE void transpose_8x8(__m512i r[8])
{
    __m512i t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm512_unpacklo_epi16(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi16(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            r[i + 2 * j] = _mm512_unpacklo_epi32(t[i + j], t[i + j + 2]);
            r[i + 2 * j + 1] = _mm512_unpackhi_epi32(t[i + j], t[i + j + 2]);
        }
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm512_unpacklo_epi64(r[i], r[i + 4]);
        t[2 * i + 1] = _mm512_unpackhi_epi64(r[i], r[i + 4]);
    }
    for (int i = 0; i < 8; i++) r[i] = t[i];
}

/* Quarters: 8 elements of rows i and i + 8, then the next 8 of both. */
WF_INLINE void v_transpose_f16(const uint16_t *const *rows, size_t at, uint16_t *out)
{
    const __m512i quarters = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    __m512i r[8];
    for (int i = 0; i < 8; i++) {
        __m256i row = _mm256_loadu_si256((const void *)(rows[i] + at)),
                other = _mm256_loadu_si256((const void *)(rows[i + 8] + at));
        r[i] = _mm512_permutex2var_epi64(_mm512_castsi256_si512(row), quarters, _mm512_castsi256_si512(other));
    }
    transpose_8x8(r);
    for (int i = 0; i < 8; i++) {
        _mm256_storeu_si256((void *)(out + i * VL), _mm512_castsi512_si256(r[i]));
        _mm256_storeu_si256((void *)(out + (8 + i) * VL), _mm512_extracti64x4_epi64(r[i], 1));
    }
}

/* Transposes 4 by 4 words of 32 bits in each quarter: quarter q of r[i] is row i of its block. */
WF_INLINE void transpose_4x4(const __m512i r[4], __m512i out[4])
{
    __m512i a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]);
    __m512i c = _mm512_unpacklo_epi32(r[2], r[3]), d = _mm512_unpackhi_epi32(r[2], r[3]);
    out[0] = _mm512_unpacklo_epi64(a, c);
    out[1] = _mm512_unpackhi_epi64(a, c);
    out[2] = _mm512_unpacklo_epi64(b, d);
    out[3] = _mm512_unpackhi_epi64(b, d);
}

#define QI_BYTES 64
typedef __m512i qi;

WF_INLINE qi qi_set(int8_t x) { return _mm512_set1_epi8(x); }
WF_INLINE qi qi_dot(qi sum, qi a, qi b)
{
    sum = _mm512_dpbusd_epi32(sum, a, b);
    __asm__ volatile("" : "+v"(sum));
    return sum;
}
WF_INLINE int32_t qi_sum(qi a) { return _mm512_reduce_add_epi32(_mm512_srai_epi32(a, 8)); }

#include "cpu/x86/avx_int8.h"
