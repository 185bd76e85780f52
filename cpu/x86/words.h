/* Shared by the AVX2 kernels for quantised weights, which multiply int16: an instruction multiplies and adds pairs, and
 * converting both sides costs less than int8 products whose pairs may saturate and whose activations take two int8 to
 * be exact.
 *
 * Activations are fixed point with one scale per row and panel of 256 k. The order of k in a block of 32 is the one
 * that unpacking yields: even k, then odd ones where bytes are split in words. */
#ifndef WF_CPU_X86_WORDS_H
#define WF_CPU_X86_WORDS_H

#include <string.h>

#include "cpu/ops/blocks.h"
#include "cpu/ops/ops.h"
#include "cpu/ops/simd.h"

#define PANEL   256u
#define BLOCKS  (PANEL / 32)
#define ROW_MAX 320u /* most file bytes of one row of a panel, and what is read past them */

/* A row of X by 256 k. */
typedef struct x_panel {
    _Alignas(64) int16_t x[PANEL];
    float minus_sum[16]; /* what minima, or the offset of unsigned weights, are multiplied with, for each scale */
    float scale;
} x_panel;

/* Two vectors of 16 weights. */
typedef struct words {
    __m256i a, b;
} words;

/* The scales of a row of a panel: of blocks 0 to 7, or of their halves; and what is multiplied with minus_sum. */
typedef struct scales {
    __m256 of[2], less[2];
} scales;

WF_INLINE bool has_less(const uint8_t dtype)
{
    return has_mins(dtype) || offset_of(dtype);
}

/* Words of a block have k in order, for they come of bytes that are widened, not of the halves of words. */
WF_INLINE bool in_order(const uint8_t dtype)
{
    return dtype == WF_Q8_0 || dtype == WF_Q4_0 || dtype == WF_Q4_1;
}

/* The largest size of X as fixed point. With scales of 16 the panels' kernel multiplies the weights by them, which
 * takes bits: 64 products of Q6_K, up to 32 by 128, or of a grid's, up to 43 by 31, fit int32 with so many. Those of
 * Q2_K and Q3_K are small. */
WF_INLINE float most_of(const uint8_t dtype)
{
    return in_halves(dtype) && dtype != WF_Q2_K && dtype != WF_Q3_K ? 8128 : 32512;
}

/* ---- activations ----------------------------------------------------------------------------- */

/* The largest size in a panel. Compares bits, so that NaN is the largest. */
static inline float panel_size(const float *x)
{
    __m256i top = _mm256_setzero_si256();
    for (uint32_t i = 0; i < PANEL; i += 8)
        top = _mm256_max_epi32(
            top, _mm256_and_si256(_mm256_loadu_si256((const void *)(x + i)), _mm256_set1_epi32(0x7fffffff)));
    __m128i most = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    most = _mm_max_epi32(most, _mm_unpackhi_epi64(most, most));
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epi32(most, _mm_shuffle_epi32(most, 1))));
}

/* Rounds a panel. The scale carries NaN and infinity. */
static inline void round_floats(const uint8_t dtype, const float x[PANEL], x_panel *out)
{
    int16_t natural[PANEL];
    const float most = panel_size(x), unit = most > 0 ? most_of(dtype) / most : 0;
    for (uint32_t i = 0; i < PANEL; i += 16) {
        __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(unit)));
        __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i + 8), _mm256_set1_ps(unit)));
        _mm256_storeu_si256((void *)(natural + i), _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8));
    }
    for (uint32_t k = 0; k < PANEL; k++)
        out->x[in_order(dtype) ? k : k / 32 * 32 + k % 32 / 2 + k % 2 * 16] = natural[k];
    const uint32_t size = in_halves(dtype) ? 16 : 32;
    for (uint32_t g = 0; g < PANEL / size; g++) {
        int32_t sum = 0;
        for (uint32_t k = 0; k < size; k++) sum += natural[g * size + k];
        out->minus_sum[g] = (float)(-sum * (has_mins(dtype) ? 1 : offset_of(dtype)));
    }
    out->scale = most / most_of(dtype);
}

/* Rounds n elements of a row of X from k on, after as many zeros as `first` says and before zeros. */
static inline void round_part(const wf_view *view, const uint8_t dtype, uint32_t m, uint32_t k, uint32_t first,
                              uint32_t n, x_panel *out)
{
    const wf_dtype_info *in = &wf_dtypes[view->dtype];
    float x[PANEL] = {0};
    in->decode((char *)wf_cpu_row(view, m) + (size_t)k * in->block_bytes, x + first, n);
    round_floats(dtype, x, out);
}

/* Rounds a panel of n elements of a row of X. words: panels_bytes.h has the other way. */
static inline void round_panel(const wf_view *view, const uint8_t dtype, const bool words, uint32_t m, uint32_t p,
                               uint32_t n, x_panel *out)
{
    (void)words;
    round_part(view, dtype, m, p * PANEL, 0, n, out);
}

/* ---- weights --------------------------------------------------------------------------------- */

WF_INLINE __m256 eight_floats(__m128i bytes)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

/* A word of each of eight blocks of `bytes`. */
WF_INLINE __m128i block_words(const char *p, const size_t bytes)
{
    uint16_t d[BLOCKS];
    __m128i v = _mm_setzero_si128();
    for (uint32_t b = 0; b < BLOCKS; b++) memcpy(&d[b], p + b * bytes, sizeof d[b]);
    v = _mm_insert_epi16(v, d[0], 0), v = _mm_insert_epi16(v, d[1], 1), v = _mm_insert_epi16(v, d[2], 2),
    v = _mm_insert_epi16(v, d[3], 3);
    v = _mm_insert_epi16(v, d[4], 4), v = _mm_insert_epi16(v, d[5], 5), v = _mm_insert_epi16(v, d[6], 6),
    v = _mm_insert_epi16(v, d[7], 7);
    return v;
}

/* Of blocks of 32. */
WF_INLINE scales block_scales(const uint8_t dtype, const char *p)
{
    const __m128i v = block_words(p, bytes_of(dtype));
    scales s;
    if (dtype == WF_MXFP4)
        s.of[0] = mxfp4_scales(_mm256_and_si256(_mm256_cvtepu16_epi32(v), _mm256_set1_epi32(255)));
    else
        s.of[0] = _mm256_cvtph_ps(v);
    s.less[0] = s.of[0];
    if (has_mins(dtype))
        s.less[0] = _mm256_xor_ps(_mm256_cvtph_ps(block_words(p + 2, bytes_of(dtype))),
                                  _mm256_set1_ps(-0.0f)); /* added */
    return s;
}

/* Of a superblock with a scale for each 16. */
WF_INLINE scales half_scales(const uint8_t dtype, const char *p)
{
    const __m256 d = half_scales_unit(dtype, p);
    __m128i both = half_scale_bytes(dtype, p);
    scales s = {
        .of = {_mm256_mul_ps(eight_floats(both), d), _mm256_mul_ps(eight_floats(_mm_unpackhi_epi64(both, both)), d)}};
    s.less[0] = s.of[0], s.less[1] = s.of[1];
    if (dtype != WF_Q2_K) return s;
    both = q2_k_min_bytes(p);
    s.less[0] = _mm256_mul_ps(eight_floats(both), qf_half(p + 82)),
    s.less[1] = _mm256_mul_ps(eight_floats(_mm_unpackhi_epi64(both, both)), qf_half(p + 82));
    return s;
}

WF_INLINE scales k_scales(const char *p)
{
    const __m128i both = k_scale_bytes(p);
    return (scales){.of = {_mm256_mul_ps(eight_floats(both), qf_half(p))},
                    .less = {_mm256_mul_ps(eight_floats(_mm_unpackhi_epi64(both, both)), qf_half(p + 2))}};
}

WF_INLINE scales scales_of(const uint8_t dtype, const char *p)
{
    if (has_k_scales(dtype)) return k_scales(p);
    if (in_halves(dtype)) return half_scales(dtype, p);
    return dtype == WF_IQ4_XS ? (scales){.of = {iq4_xs_scales(p)}} : block_scales(dtype, p);
}

/* The scale of block b in all lanes; of its halves, in those of words' lower and upper ones. From memory costs fewer
 * instructions, but waits for the scales, which those of Q4_K take long to make. */
WF_INLINE __m256 scale_at(const uint8_t dtype, const scales *s, const uint32_t b)
{
    if (has_k_scales(dtype)) return _mm256_permutevar8x32_ps(s->of[0], _mm256_set1_epi32((int)b));
    if (!in_halves(dtype)) return _mm256_broadcast_ss((const float *)&s->of[0] + b);
    const int at = 2 * (int)(b % 4);
    return _mm256_permutevar8x32_ps(s->of[b / 4], _mm256_setr_epi32(at, at, at, at, at + 1, at + 1, at + 1, at + 1));
}

/* Bytes to words, even ones, then odd ones. */
WF_INLINE words split_bytes(q8 v)
{
    return (words){_mm256_and_si256(v, _mm256_set1_epi16(255)), _mm256_srli_epi16(v, 8)};
}

/* The same of those that values_of() makes, which have a sign, or of others. */
WF_INLINE words split_block(const uint8_t dtype, q8 v)
{
    return values_of(dtype) ? (words){_mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8), _mm256_srai_epi16(v, 8)}
                            : split_bytes(v);
}

/* The same for the low nibbles of bytes, or the high ones. */
WF_INLINE words split_nibbles(q8 v, const bool high)
{
    const __m256i low = _mm256_set1_epi16(15);
    if (high) return (words){_mm256_and_si256(_mm256_srli_epi16(v, 4), low), _mm256_srli_epi16(v, 12)};
    return (words){_mm256_and_si256(v, low), _mm256_and_si256(_mm256_srli_epi16(v, 8), low)};
}

/* Block b of a row of a panel. */
WF_INLINE words words_of(const uint8_t dtype, const char *p, const uint32_t b)
{
    if (dtype == WF_Q8_0)
        return (words){_mm256_cvtepi8_epi16(load16(p + 34 * b + 2)), _mm256_cvtepi8_epi16(load16(p + 34 * b + 18))};
    if (dtype == WF_Q4_K) return split_nibbles(q_load(p + 16 + 32 * (b / 2)), b % 2);
    if (!in_order(dtype)) return split_block(dtype, block_of(dtype, p, b));
    __m256i v = _mm256_cvtepu8_epi16(load16(nibbles_at(dtype, p, b)));
    return (words){_mm256_and_si256(v, _mm256_set1_epi16(15)), _mm256_srli_epi16(v, 4)};
}

#endif
