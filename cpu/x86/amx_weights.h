/* What gemm_amx_int8.c makes of weights: 16 rows by 256 k as fixed point in int16, split into two int8, by one
 * multiplication with the ratio of the scale of a block to the largest one of its row. The order of k is the cheapest
 * one for the format. */
#ifndef WF_CPU_X86_AMX_WEIGHTS_H
#define WF_CPU_X86_AMX_WEIGHTS_H

#include <string.h>

#include "cpu/x86/gemm_amx.h"

#define UNIT    64u            /* k of a tile */
#define UNITS   (PANEL / UNIT)
#define BLOCKS  (PANEL / 32)
#define TILE_BYTES   1024u          /* bytes of a tile */
#define Q8_0X16  255            /* in addition to dtypes: Q8_0 with 16 rows interleaved (layout.c) */

/* A panel of 16 rows, of weights or of activations. */
typedef struct panel {
    char tile[UNITS][2][TILE_BYTES];
    float scale[TILE];
    int32_t comp[TILE]; /* of activations: compensation for the mean of b */
} panel;

/* Stores int16 of even and of odd columns to a row of the hi and lo tiles. */
WF_INLINE void store_hi_lo(__m512i even, __m512i odd, char *to)
{
    const __mmask64 odds = 0xaaaaaaaaaaaaaaaau;
    _mm512_storeu_si512(to, _mm512_mask_blend_epi8(odds, _mm512_srli_epi16(even, 8), odd));
    _mm512_storeu_si512(to + TILE_BYTES, _mm512_mask_blend_epi8(odds, even, _mm512_slli_epi16(odd, 8)));
}

/* The lower half of each word of 32 bits in both halves. */
WF_INLINE __m512i twice(__m512i v)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaau, v, _mm512_slli_epi32(v, 16));
}

/* The 32 bits at w + at of each row. */
WF_INLINE __m512i gather(const char *w, const size_t step, const size_t at)
{
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_i32gather_epi32(_mm512_mullo_epi32(lane, _mm512_set1_epi32((int)step)), w + at, 1);
}

/* The scale of block b of each row. */
WF_INLINE __m512 scale_of(const uint8_t dtype, const char *w, const size_t step, const uint32_t b)
{
    if (dtype == Q8_0X16)
        return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(w + b / 2 * WF_Q8_0X16_GROUP + b % 2 * 32)));
    const __m512i v = gather(w, step, dtype == WF_IQ4_XS ? 0 : b * bytes_of(dtype));
    if (dtype == WF_MXFP4) return mxfp4_scales_16(_mm512_and_si512(v, _mm512_set1_epi32(255)));
    const __m512 d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
    return dtype == WF_IQ4_XS ? _mm512_mul_ps(iq4_xs_steps(v, gather(w, step, 4), b), d) : d;
}

/* Sets part[block][row] to the ratio of a block's scale to the largest one of its row, as fixed point in both halves of
 * a word. unit: what the weights are multiplied with before. */
WF_INLINE void parts_of(const uint8_t dtype, const char *w, size_t step, const float unit, panel *out,
                        int32_t part[BLOCKS][TILE])
{
    __m512i most = _mm512_setzero_si512();
    __m512 d[BLOCKS];
    for (uint32_t b = 0; b < BLOCKS; b++) {
        d[b] = scale_of(dtype, w, step, b);
        most = max_abs(most, d[b]);
    }
    __m512 top = _mm512_castsi512_ps(most);
    __mmask16 some = _mm512_cmp_ps_mask(top, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    __m512 factor = _mm512_maskz_div_ps(some, _mm512_set1_ps(32767), top);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        __m512i i = _mm512_cvtps_epi32(_mm512_mul_ps(d[b], factor));
        _mm512_storeu_si512(part[b], twice(i));
    }
    _mm512_storeu_ps(out->scale, _mm512_mul_ps(top, _mm512_set1_ps(32768.0f / 32767 / unit)));
}

WF_INLINE __m512i part_at(const int32_t *p, __m512i others, const __mmask16 lanes)
{
    return _mm512_castps_si512(
        _mm512_mask_broadcastss_ps(_mm512_castsi512_ps(others), lanes, _mm_load_ss((const float *)p)));
}

/* One panel of 16 rows of weights. */
typedef struct source {
    const char *w;
    size_t step;
    const char *next; /* prefetch address: `bytes` of each row of the next panel */
    size_t next_step, bytes;
    int32_t part[BLOCKS][TILE];
    char copy[TILE][ROW_MAX]; /* padded copy of incomplete rows */
    char transposed[TILE][UNIT];  /* of the interleaved layout: rows of a group */
} source;

/* Converts unit u of row r, two blocks. */
WF_INLINE void q8_0_unit(const source *s, __m512i q, uint32_t u, uint32_t r, panel *out)
{
    __m512i by = part_at(&s->part[2 * u + 1][r], _mm512_set1_epi32(s->part[2 * u][r]), 0xff00);
    __m512i even = _mm512_mulhrs_epi16(_mm512_slli_epi16(q, 8), by);
    __m512i odd = _mm512_mulhrs_epi16(_mm512_and_si512(q, _mm512_set1_epi16(-256)), by);
    store_hi_lo(even, odd, out->tile[u][0] + r * 64);
}

WF_INLINE void q8_0_row(const source *s, uint32_t r, panel *out)
{
    const char *p = s->w + r * s->step + 2;
    WF_UNROLL(4)
    for (uint32_t u = 0; u < UNITS; u++, p += 68) q8_0_unit(s, load_2x32(p, p + 34), u, r, out);
}

/* Converts a sixteenth of an interleaved panel: four rows of a unit, which is transposed with its first rows. */
WF_INLINE void q8_0x16_part(source *s, uint32_t part, panel *out)
{
    uint32_t u = part / 4, r = part % 4 * 4;
    if (r == 0) v_transpose((const float *)(s->w + u * WF_Q8_0X16_GROUP + 64), TILE, (float *)s->transposed, TILE);
    for (uint32_t end = r + 4; r < end; r++) q8_0_unit(s, _mm512_loadu_si512(s->transposed[r]), u, r, out);
}

/* Multiplies one of the four nibbles of each word, shifted to the top, by the part of its block. */
WF_INLINE __m512i nibbles(__m512i q, __m512i by)
{
    const __m512i mask = _mm512_set1_epi16((short)0xf000), eight = _mm512_set1_epi16((short)0x8000);
    return _mm512_mulhrs_epi16(_mm512_ternarylogic_epi32(q, mask, eight, 0x6a), by); /* (q & mask) ^ eight */
}

WF_INLINE void q4_0_row(const source *s, uint32_t r, panel *out)
{
    const char *p = s->w + r * s->step + 2;
    WF_UNROLL(2)
    for (uint32_t u = 0; u < UNITS; u += 2, p += 72) {
        const int32_t(*part)[TILE] = &s->part[2 * u];
        __m512i q = _mm512_castsi128_si512(load16(p)), by = _mm512_set1_epi32(part[0][r]);
        q = _mm512_inserti32x4(q, load16(p + 18), 1);
        q = _mm512_inserti32x4(q, load16(p + 36), 2);
        q = _mm512_inserti32x4(q, load16(p + 54), 3);
        by = part_at(&part[1][r], by, 0x00f0);
        by = part_at(&part[2][r], by, 0x0f00);
        by = part_at(&part[3][r], by, 0xf000);
        store_hi_lo(nibbles(_mm512_slli_epi16(q, 12), by), nibbles(_mm512_slli_epi16(q, 4), by),
                     out->tile[u][0] + r * 64);
        store_hi_lo(nibbles(_mm512_slli_epi16(q, 8), by), nibbles(q, by), out->tile[u + 1][0] + r * 64);
    }
}

/* Signed bytes, or as many bits as are left when they are shifted `up`, times parts: a row of a unit, k in their order.
 */
WF_INLINE void store_products(__m512i q, const int up, __m512i by, char *to)
{
    const __m512i odd = _mm512_and_si512(_mm512_slli_epi16(q, (unsigned)(up - 8)),
                                         _mm512_set1_epi16((short)(0x10000 - (1 << up))));
    store_hi_lo(_mm512_mulhrs_epi16(_mm512_slli_epi16(q, (unsigned)up), by), _mm512_mulhrs_epi16(odd, by), to);
}

/* Blocks b and b + 1, less their offset. */
WF_INLINE __m512i two_blocks(const uint8_t dtype, const char *p, const uint32_t b)
{
    const __m512i q = _mm512_inserti64x4(_mm512_castsi256_si512(block_of(dtype, p, b)), block_of(dtype, p, b + 1), 1);
    return offset_of(dtype) ? _mm512_sub_epi8(q, _mm512_set1_epi8((char)offset_of(dtype))) : q;
}

/* How far up the weights of a format go in a word: those of MXFP4, Q5_0 and IQ3_S have five bits, of other IQ2 and IQ3
 * seven. */
WF_INLINE int up_of(const uint8_t dtype)
{
    if (dtype == WF_MXFP4 || dtype == WF_Q5_0 || dtype == WF_IQ3_S) return 11;
    return is_grid(dtype) ? 9 : 8;
}

/* What signed_row() takes. */
WF_INLINE bool is_signed(const uint8_t dtype)
{
    return dtype == WF_Q5_0 || (values_of(dtype) && !in_halves(dtype));
}

WF_INLINE void signed_row(const source *s, const uint8_t dtype, uint32_t r, panel *out)
{
    const char *p = s->w + r * s->step;
    WF_UNROLL(4)
    for (uint32_t u = 0; u < UNITS; u++) {
        const __m512i by = part_at(&s->part[2 * u + 1][r], _mm512_set1_epi32(s->part[2 * u][r]), 0xff00);
        store_products(two_blocks(dtype, p, 2 * u), up_of(dtype), by, out->tile[u][0] + r * 64);
    }
}

/* The largest of 32 unsigned words. */
WF_INLINE uint32_t largest_word(__m512i v)
{
    __m256i a = _mm256_max_epu16(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    __m128i b = _mm_max_epu16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_minpos_epu16(_mm_xor_si128(b, _mm_set1_epi16(-1))); /* the minimum is the only such instruction */
    return 0xffffu ^ (uint32_t)_mm_extract_epi16(b, 0);
}

/* Scales by a power of two, which is exact except for values that are small compared to the largest one. */
WF_INLINE void f16_row(const source *s, uint32_t r, panel *out)
{
    const char *w = s->w + r * s->step;
    __m512i top = _mm512_setzero_si512();
    for (uint32_t i = 0; i < PANEL * 2; i += 64)
        top = _mm512_max_epu16(top, _mm512_and_si512(_mm512_loadu_si512(w + i), _mm512_set1_epi16(0x7fff)));
    uint32_t exponent = WF_MAX(largest_word(top) >> 10, 1u), shift = 29 - exponent;
    uint32_t scale = exponent < 31 ? (127 - shift) << 23 : 0x7fc00000; /* 2^-shift, or NaN */
    const __m512h by = _mm512_cvtepi16_ph(_mm512_set1_epi16((short)shift));
    WF_UNROLL(4)
    for (uint32_t u = 0; u < UNITS; u++, w += 128) {
        __m512h even = _mm512_scalef_ph(_mm512_loadu_ph(w), by), odd = _mm512_scalef_ph(_mm512_loadu_ph(w + 64), by);
        store_hi_lo(_mm512_cvtph_epi16(even), _mm512_cvtph_epi16(odd), out->tile[u][0] + r * 64);
    }
    memcpy(&out->scale[r], &scale, sizeof(scale));
}

/* The scales of the panel's sub-blocks of 16, relative to the largest, whose part of a weight that is shifted up goes
 * to *unit. */
WF_INLINE __m512i half_parts(const uint8_t dtype, const char *p, const int up, float *unit)
{
    __m512i scale = _mm512_cvtepi8_epi32(half_scale_bytes(dtype, p));
    int top = _mm512_reduce_max_epi32(_mm512_abs_epi32(scale));
    const __m512 factor = _mm512_set1_ps(top ? 32767.0f / (float)top : 0);
    __m512i by = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_cvtepi32_ps(scale), factor));
    *unit = _mm256_cvtss_f32(half_scales_unit(dtype, p)) * (float)top * (32768.0f / 32767) / (float)(1 << up);
    return twice(by);
}

/* For unit u, the parts of its four groups of 16. */
WF_INLINE __m512i four_parts(__m512i parts, const uint32_t u)
{
    const __m512i quarter = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    return _mm512_permutexvar_epi32(_mm512_add_epi32(quarter, _mm512_set1_epi32((int)(4 * u))), parts);
}

/* Is a weight a byte, times the scale of its superblock? */
WF_INLINE bool is_exact(const uint8_t dtype)
{
    return dtype == WF_Q3_K;
}

/* Numbers from -4 to 3 times scales from -32 to 31, negated, since -4 x -32 is no int8. */
WF_INLINE void exact_row(const source *s, const uint8_t dtype, uint32_t r, panel *out)
{
    const __mmask64 odds = 0xaaaaaaaaaaaaaaaau;
    const char *p = s->w + r * s->step;
    const __m512i scales = _mm512_cvtepi8_epi32(half_scale_bytes(dtype, p)),
                  parts = twice(_mm512_sub_epi32(_mm512_setzero_si512(), scales));
    out->scale[r] = _mm256_cvtss_f32(half_scales_unit(dtype, p)) / -256;
    WF_UNROLL(4)
    for (uint32_t u = 0; u < UNITS; u++) {
        const __m512i q = two_blocks(dtype, p, 2 * u), by = four_parts(parts, u);
        const __m512i even = _mm512_mullo_epi16(_mm512_slli_epi16(q, 8), by),
                      odd = _mm512_mullo_epi16(_mm512_and_si512(q, _mm512_set1_epi16(-256)), by);
        _mm512_storeu_si512(out->tile[u][0] + r * 64,
                            _mm512_mask_blend_epi8(odds, _mm512_srli_epi16(even, 8), odd));
    }
}

/* IQ2 and IQ3. */
WF_INLINE void halves_row(const source *s, const uint8_t dtype, uint32_t r, panel *out)
{
    char room[EXPANDED];
    const char *p = expanded(dtype, s->w + r * s->step, room);
    const __m512i parts = half_parts(dtype, p, up_of(dtype), &out->scale[r]);
    WF_UNROLL(4)
    for (uint32_t u = 0; u < UNITS; u++)
        store_products(two_blocks(dtype, p, 2 * u), up_of(dtype), four_parts(parts, u), out->tile[u][0] + r * 64);
}

WF_INLINE void q6_k_row(const source *s, uint32_t r, panel *out)
{
    const __m512i minus32 = _mm512_set1_epi16((short)0x8000), mask = _mm512_set1_epi16((short)0xfc00);
    const char *p = s->w + r * s->step;
    __m512i parts = half_parts(WF_Q6_K, p, 10, &out->scale[r]);
    WF_UNROLL(4)
    for (uint32_t u = 0; u < UNITS; u++) {
        __m512i q = q6_k_bytes(p, u);
        __m512i by = four_parts(parts, u);
        __m512i even = _mm512_xor_si512(_mm512_slli_epi16(q, 10), minus32);
        __m512i odd = _mm512_ternarylogic_epi32(_mm512_slli_epi16(q, 2), mask, minus32, 0x6a);
        store_hi_lo(_mm512_mulhrs_epi16(even, by), _mm512_mulhrs_epi16(odd, by), out->tile[u][0] + r * 64);
    }
}

/* Eight scales, then their minima, become fixed point in both halves of a word each: of scales what half of their
 * 2^bits numbers span, of minima what is left to subtract once the numbers are signed. No weight exceeds int16; its
 * last place goes to *unit. */
WF_INLINE __m512i min_parts(__m512 scales, const int bits, float *unit)
{
    const __m512 half = _mm512_set1_ps((float)(1 << (bits - 1)));
    __m512 v = _mm512_mask_mul_ps(scales, 0x00ff, scales, half);
    v = _mm512_mask_sub_ps(v, 0xff00, v, _mm512_shuffle_f32x4(v, v, 0x4e));
    __m512 size = _mm512_abs_ps(v);
    size = _mm512_add_ps(size, _mm512_shuffle_f32x4(size, size, 0x4e)); /* of a scale and its minimum */
    float top = max_of(max_abs(_mm512_setzero_si512(), size));
    __m512i parts = _mm512_cvtps_epi32(_mm512_mul_ps(v, _mm512_set1_ps(top > 0 ? 32767 / top : 0)));
    *unit = top / 32767;
    return twice(parts);
}

/* Multiplies the numbers at the top of each word, less half of their range, and subtracts the minima. */
WF_INLINE __m512i less_mins(__m512i q, const int bits, __m512i by, __m512i mins)
{
    const __m512i mask = _mm512_set1_epi16((short)(0x10000 - (1 << (16 - bits))));
    q = _mm512_ternarylogic_epi32(q, mask, _mm512_set1_epi16((short)0x8000), 0x6a); /* (q & mask) ^ half */
    return _mm512_subs_epi16(_mm512_mulhrs_epi16(q, by), mins);
}

/* 64 numbers, with the parts of their scales and minima, in their order. */
WF_INLINE void store_less_mins(__m512i q, const int bits, __m512i by, __m512i mins, char *to)
{
    store_hi_lo(less_mins(_mm512_slli_epi16(q, (unsigned)(16 - bits)), bits, by, mins),
                less_mins(_mm512_slli_epi16(q, (unsigned)(8 - bits)), bits, by, mins), to);
}

/* Half a superblock: its even blocks are one unit, its odd ones another. */
WF_INLINE void k_half(const uint8_t dtype, const char *p, uint32_t half, __m512i parts, uint32_t r, panel *out)
{
    const int bits = dtype == WF_Q4_K ? 4 : 5;
    const __m512i blocks = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi32(2), 1);
    __m512i low = _mm512_loadu_si512(p + (dtype == WF_Q4_K ? 16 : 48) + 64 * half);
    for (uint32_t odd = 0; odd < 2; odd++) {
        __m512i at = _mm512_add_epi32(blocks, _mm512_set1_epi32((int)(4 * half + odd)));
        __m512i by = _mm512_permutexvar_epi32(at, parts);
        __m512i mins = _mm512_permutexvar_epi32(_mm512_add_epi32(at, _mm512_set1_epi32(8)), parts);
        __m512i q = odd ? _mm512_srli_epi16(low, 4) : low;
        if (dtype == WF_Q5_K) q = with_fifth(q, p + 16, 4 * half + odd, 4 * half + odd + 2);
        store_less_mins(q, bits, by, mins, out->tile[2 * half + odd][0] + r * 64);
    }
}

WF_INLINE void k_row(const source *s, const uint8_t dtype, uint32_t r, panel *out)
{
    const char *p = s->w + r * s->step;
    __m512i parts = min_parts(k_scales(p), dtype == WF_Q4_K ? 4 : 5, &out->scale[r]);
    k_half(dtype, p, 0, parts, r, out);
    k_half(dtype, p, 1, parts, r, out);
}

/* The scales of the eight blocks of a panel of Q4_1 or Q5_1, then their minima, which are added. */
WF_INLINE __m512 pair_scales(const uint8_t dtype, const char *p)
{
    uint16_t half[2][BLOCKS];
    for (uint32_t b = 0; b < BLOCKS; b++) {
        memcpy(&half[0][b], p + b * bytes_of(dtype), 2);
        memcpy(&half[1][b], p + b * bytes_of(dtype) + 2, 2);
    }
    return _mm512_xor_ps(v_load_f16(half), _mm512_castsi512_ps(_mm512_inserti64x4(_mm512_setzero_si512(),
                                                                                  _mm256_set1_epi32(INT32_MIN), 1)));
}

WF_INLINE void pair_row(const source *s, const uint8_t dtype, uint32_t r, panel *out)
{
    const __m512i second = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi32(1), 1);
    const char *p = s->w + r * s->step;
    const int bits = has_fifth(dtype) ? 5 : 4;
    const __m512i parts = min_parts(pair_scales(dtype, p), bits, &out->scale[r]);
    WF_UNROLL(4)
    for (uint32_t u = 0; u < UNITS; u++) {
        const __m512i at = _mm512_add_epi32(second, _mm512_set1_epi32((int)(2 * u)));
        const __m512i mins = _mm512_permutexvar_epi32(_mm512_add_epi32(at, _mm512_set1_epi32(8)), parts);
        store_less_mins(two_blocks(dtype, p, 2 * u), bits, _mm512_permutexvar_epi32(at, parts), mins,
                        out->tile[u][0] + r * 64);
    }
}

/* 16 scales and minima, as fixed point of one unit as above: of which min_parts() takes the larger half. */
WF_INLINE void q2_k_row(const source *s, uint32_t r, panel *out)
{
    const char *p = s->w + r * s->step;
    const __m512 scale = _mm512_mul_ps(half_scales(WF_Q2_K, p), _mm512_set1_ps(2)),
                 min = _mm512_fmsub_ps(to_floats(q2_k_min_bytes(p)), half_at(p + 82), scale);
    const float top = max_of(max_abs(_mm512_setzero_si512(), _mm512_add_ps(_mm512_abs_ps(scale), _mm512_abs_ps(min))));
    const __m512 factor = _mm512_set1_ps(top > 0 ? 32767 / top : 0);
    const __m512i parts = twice(_mm512_cvtps_epi32(_mm512_mul_ps(scale, factor))),
                  mins = twice(_mm512_cvtps_epi32(_mm512_mul_ps(min, factor)));
    out->scale[r] = top / 32767;
    WF_UNROLL(4)
    for (uint32_t u = 0; u < UNITS; u++)
        store_less_mins(two_blocks(WF_Q2_K, p, 2 * u), 2, four_parts(parts, u), four_parts(mins, u),
                        out->tile[u][0] + r * 64);
}

#endif
