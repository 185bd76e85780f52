/* AVX-512 helpers for quantised blocks: activations as fixed point in two int8, x = scale * (256 hi + lo) with one
 * scale per block of 32 or per panel of 256; loads of weights from the file's blocks. */
#ifndef WF_CPU_X86_HI_LO_H
#define WF_CPU_X86_HI_LO_H

#include <string.h>

#include "cpu/ops/blocks.h"
#include "cpu/ops/ops.h"
#include "cpu/ops/simd.h"

#define PANEL   256u /* k that share a scale of activations: int32 holds their sums */
#define ROW_MAX 512u /* most file bytes of one row of a panel */

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
        _mm_storeu_si128((__m128i *)(hi + 16 * i), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(whole)));
        _mm_storeu_si128((__m128i *)(lo + 16 * i), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(left)));
    }
    return top / 127 / 256;
}

/* Converts 32 F32 to fixed point in int16. */
WF_INLINE __m512i to_int16(const float *x, __m512 factor)
{
    __m512i low = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), factor));
    __m512i high = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16), factor));
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(low)), _mm512_cvtepi32_epi16(high), 1);
}

WF_INLINE __m512i bytes(__m512i low, __m512i high)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(low)), _mm512_cvtepi16_epi8(high), 1);
}

/* Splits fixed point, rounding: 64 hi and 64 lo. */
WF_INLINE void split_hi_lo(__m512i a, __m512i b, __m512i *hi, __m512i *lo)
{
    const __m512i half = _mm512_set1_epi16(128);
    *lo = bytes(a, b);
    *hi = bytes(_mm512_srai_epi16(_mm512_add_epi16(a, half), 8), _mm512_srai_epi16(_mm512_add_epi16(b, half), 8));
}

/* Loads 32 bytes from each address. */
WF_INLINE __m512i load_2x32(const char *low, const char *high)
{
    __m512i a = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)low));
    return _mm512_inserti64x4(a, _mm256_loadu_si256((const void *)high), 1);
}

/* Four bytes in all lanes. */
WF_INLINE __m512i four_bytes(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

/* The eight scales of the Q4_K or Q5_K superblock at p, then its eight minima. */
WF_INLINE __m512 k_scales(const char *p)
{
    int32_t halves;
    memcpy(&halves, p, sizeof halves); /* d and dmin */
    __m128i d = _mm_cvtsi32_si128(halves);
    __m256i both = _mm256_set_m128i(_mm_set1_epi16((short)_mm_extract_epi16(d, 1)), _mm_broadcastw_epi16(d));
    return _mm512_mul_ps(_mm512_cvtph_ps(both), _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(k_scale_bytes(p))));
}

/* ORs a bit of each of the 32 bytes at p above the low nibbles of q: bit `first` of its first 32 bytes, then bit
 * `second`. */
WF_INLINE __m512i with_fifth(__m512i q, const char *p, const uint32_t first, const uint32_t second)
{
    const __m512i by = _mm512_inserti64x4(_mm512_set1_epi16((short)first), _mm256_set1_epi16((short)second), 1);
    __m512i bits = _mm512_srlv_epi16(_mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)p)), by);
    bits = _mm512_slli_epi16(_mm512_and_si512(bits, _mm512_set1_epi8(1)), 4);
    return _mm512_ternarylogic_epi32(bits, q, _mm512_set1_epi8(15), 0xf8); /* bits | (q & 15) */
}

/* Unpacks 64 weights (0 to 63) of the Q6_K superblock at p, from weight 64 i on. */
WF_INLINE __m512i q6_k_bytes(const char *p, const uint32_t i)
{
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i by = _mm512_inserti64x4(_mm512_set1_epi16(4 * (i & 1)), _mm256_set1_epi16(4 * (i & 1) + 2), 1);
    __m512i ql = _mm512_loadu_si512(p + 64 * (i / 2));
    __m512i qh = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)(p + 128 + 32 * (i / 2))));
    __m512i high = _mm512_and_si512(_mm512_srlv_epi16(qh, by), _mm512_set1_epi8(3));
    ql = _mm512_and_si512(i & 1 ? _mm512_srli_epi16(ql, 4) : ql, low);
    return _mm512_or_si512(ql, _mm512_slli_epi16(high, 4));
}

/* The f16 at p in all lanes. */
WF_INLINE __m512 half_at(const char *p)
{
    int16_t h;
    memcpy(&h, p, sizeof h);
    return _mm512_cvtph_ps(_mm256_set1_epi16(h));
}

/* Signed bytes as floats. */
WF_INLINE __m512 to_floats(__m128i bytes)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

/* The scales of a superblock that has one for each 16 weights. */
WF_INLINE __m512 half_scales(const uint8_t dtype, const char *p)
{
    return _mm512_mul_ps(to_floats(half_scale_bytes(dtype, p)),
                         _mm512_broadcastss_ps(_mm256_castps256_ps128(half_scales_unit(dtype, p))));
}

/* values_of() with the highest bit flipped, for each quarter. */
WF_INLINE __m512i unsigned_values(const uint8_t dtype)
{
    return _mm512_xor_si512(_mm512_broadcast_i32x4(load16((const char *)values_of(dtype))), _mm512_set1_epi8(-128));
}

/* wf_mxfp4_scale() of 16 bytes in words. */
WF_INLINE __m512 mxfp4_scales_16(__m512i e)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(mxfp4_scales(_mm512_castsi512_si256(e))),
                              mxfp4_scales(_mm512_extracti64x4_epi64(e, 1)), 1);
}

/* Scale g of an IQ4_XS superblock in each lane, without d; first and second: its words of 32 bits. */
WF_INLINE __m512 iq4_xs_steps(__m512i first, __m512i second, const uint32_t g)
{
    const __m512i low = _mm512_and_si512(_mm512_srli_epi32(second, 4 * g), _mm512_set1_epi32(15));
    const __m512i high = _mm512_and_si512(_mm512_srli_epi32(first, 16 + 2 * g), _mm512_set1_epi32(3));
    return _mm512_cvtepi32_ps(
        _mm512_sub_epi32(_mm512_or_si512(low, _mm512_slli_epi32(high, 4)), _mm512_set1_epi32(32)));
}

/* How many words of blocks of `bytes`, a word of each, block_words() takes from a load. */
WF_INLINE uint32_t block_step(const uint32_t bytes)
{
    return bytes <= 20 ? 4 : 2;
}

/* Sets words from the at-th on to those at p and at the following blocks. It reads no more than those blocks have. */
WF_INLINE __m512i block_words(__m512i d, const uint32_t at, const uint32_t bytes, const char *p)
{
    const uint32_t step = block_step(bytes);
    const uint64_t second = bytes / 2, third = step == 4 ? bytes : 0,
                   fourth = step == 4 ? bytes * 3 / 2 : second; /* 51 is in word 25 */
    const __m512i lane = _mm512_set1_epi64((int64_t)(second << 16 | third << 32 | fourth << 48));
    const bool wide = step == 4 || bytes == 34;
    __m512i v = wide ? _mm512_loadu_si512(p) : _mm512_castsi256_si512(_mm256_loadu_si256((const void *)p));
    return _mm512_mask_permutexvar_epi16(d, ((1u << step) - 1) << at, lane, v);
}

#endif
