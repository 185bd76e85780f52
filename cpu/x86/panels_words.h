/* What gemm_panels.c needs of AVX2: weights and activations as int16 (words.h), a line has 2 k of each of 8 rows. Sums
 * of a group of k that shares a scale of W are exact in int32. Weights with a scale for each 16 are multiplied by it
 * while they are unpacked, so that all of a row share one: 64 k of 32 * 128 by 8128 fit. */
#ifndef WF_CPU_X86_PANELS_WORDS_H
#define WF_CPU_X86_PANELS_WORDS_H

#include "cpu/x86/words.h"

#define SIX_ROWS false /* of X, in a tile: there are 16 registers */
#define STRIPS_AT_ONCE(words) STRIPS

/* 8 rows of W by 256 k. All are words here, whatever `words` says. */
typedef struct w_panel {
    _Alignas(64) int32_t line[PANEL / 2][VL];
    float scale[8][VL]; /* [group][row]; with scales of 16 [0][row] */
    float less[16][VL]; /* what is multiplied with minus_sum */
} w_panel;

WF_INLINE uint32_t groups_of(const uint8_t dtype)
{
    return in_halves(dtype) ? 4 : 8;
}

WF_INLINE void store_words(words v, w_panel *out, uint32_t line)
{
    _mm256_storeu_si256((void *)out->line[line], v.a);
    _mm256_storeu_si256((void *)out->line[line + 8], v.b);
}

/* Blocks are transposed as bytes, those of Q4_K two at a time. */
WF_INLINE void unpack_bytes(const uint8_t dtype, const char *const w[VL], w_panel *out)
{
    WF_UNROLL(8)
    for (uint32_t b = 0; b < BLOCKS; b += dtype == WF_Q4_K ? 2 : 1) {
        int32_t row[VL][VL], line[VL][VL];
        for (uint32_t r = 0; r < VL; r++)
            _mm256_storeu_si256((void *)row[r],
                                dtype == WF_Q4_K ? q_load(w[r] + 16 + 16 * b) : block_of(dtype, w[r], b));
        v_transpose((const float *)row[0], VL, (float *)line[0], VL);
        for (uint32_t i = 0; i < VL; i++) {
            const q8 v = q_load(line[i]);
            store_words(dtype == WF_Q4_K ? split_nibbles(v, false) : split_block(dtype, v), out, 16 * b + i);
            if (dtype == WF_Q4_K) store_words(split_nibbles(v, true), out, 16 * b + 16 + i);
        }
    }
}

/* 16 bytes of each row, transposed, as words. */
WF_INLINE void transpose_bytes(const __m128i of[VL], int32_t out[16][VL])
{
    int32_t wide[2][VL][VL];
    for (uint32_t r = 0; r < VL; r++) {
        _mm256_storeu_si256((void *)wide[0][r], _mm256_cvtepi8_epi32(of[r]));
        _mm256_storeu_si256((void *)wide[1][r], _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(of[r], of[r])));
    }
    for (uint32_t h = 0; h < 2; h++) v_transpose((const float *)wide[h][0], VL, (float *)out[8 * h], VL);
}

/* The scales of 16 groups of each row, in both halves of a word. */
WF_INLINE void half_parts(const uint8_t dtype, const char *const w[VL], int32_t part[16][VL])
{
    __m128i of[VL];
    for (uint32_t r = 0; r < VL; r++) of[r] = half_scale_bytes(dtype, w[r]);
    transpose_bytes(of, part);
    for (uint32_t g = 0; g < 16; g++) {
        q8 s = q_load(part[g]);
        _mm256_storeu_si256((void *)part[g], _mm256_blend_epi16(s, _mm256_slli_epi32(s, 16), 0xaa));
    }
}

WF_INLINE void q2_k_mins(const char *const w[VL], w_panel *out)
{
    const __m256 d = halves_of(w, 82);
    __m128i of[VL];
    int32_t min[16][VL];
    for (uint32_t r = 0; r < VL; r++) of[r] = q2_k_min_bytes(w[r]);
    transpose_bytes(of, min);
    for (uint32_t g = 0; g < 16; g++) v_store(out->less[g], _mm256_mul_ps(_mm256_cvtepi32_ps(q_load(min[g])), d));
}

WF_INLINE void unpack_halves(const uint8_t dtype, const char *const w[VL], w_panel *out)
{
    const __m256i offset = _mm256_set1_epi16((short)offset_of(dtype));
    int32_t part[16][VL];
    half_parts(dtype, w, part);
    v_store(out->scale[0], half_units(dtype, w));
    if (dtype == WF_Q2_K) q2_k_mins(w, out);
    WF_UNROLL(8)
    for (uint32_t b = 0; b < BLOCKS; b++) {
        int32_t row[VL][VL], line[VL][VL];
        for (uint32_t r = 0; r < VL; r++) _mm256_storeu_si256((void *)row[r], block_of(dtype, w[r], b));
        v_transpose((const float *)row[0], VL, (float *)line[0], VL);
        for (uint32_t i = 0; i < VL; i++) {
            const q8 by = q_load(part[2 * b + i / 4]);
            words v = split_block(dtype, q_load(line[i]));
            v.a = _mm256_mullo_epi16(_mm256_sub_epi16(v.a, offset), by);
            v.b = _mm256_mullo_epi16(_mm256_sub_epi16(v.b, offset), by);
            store_words(v, out, 16 * b + i);
        }
    }
}

/* Blocks whose words are in order. */
WF_INLINE void unpack_blocks(const uint8_t dtype, const char *const w[VL], w_panel *out)
{
    WF_UNROLL(8)
    for (uint32_t b = 0; b < BLOCKS; b++) {
        words row[VL];
        for (uint32_t r = 0; r < VL; r++) row[r] = words_of(dtype, w[r], b);
        v_transpose((const float *)&row[0].a, 16, (float *)out->line[16 * b], VL);
        v_transpose((const float *)&row[0].b, 16, (float *)out->line[16 * b + 8], VL);
    }
}

/* The first 16 bytes of each row, d and 12 bytes of scales and minima, with a row in a lane: a register has the same 4
 * bytes of all. */
WF_INLINE void k_headers(const char *const w[VL], __m256i out[4])
{
    __m256i r[4];
    for (uint32_t i = 0; i < 4; i++)
        r[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(load16(w[i])), load16(w[i + 4]), 1);
    const __m256i a = _mm256_unpacklo_epi32(r[0], r[1]), b = _mm256_unpacklo_epi32(r[2], r[3]);
    const __m256i c = _mm256_unpackhi_epi32(r[0], r[1]), d = _mm256_unpackhi_epi32(r[2], r[3]);
    out[0] = _mm256_unpacklo_epi64(a, b), out[1] = _mm256_unpackhi_epi64(a, b);
    out[2] = _mm256_unpacklo_epi64(c, d), out[3] = _mm256_unpackhi_epi64(c, d);
}

/* Each byte of the lanes times d. */
WF_INLINE void scale_bytes(__m256i v, __m256 d, float out[4][VL])
{
    for (uint32_t j = 0; j < 4; j++, v = _mm256_srli_epi32(v, 8))
        v_store(out[j], _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_and_si256(v, _mm256_set1_epi32(255))), d));
}

/* Of 8 rows what k_scales() makes of each: six bits of the first four and, of the others, four bits and two that are
 * left there. */
WF_INLINE void k_panel_scales(const char *const w[VL], w_panel *out)
{
    const __m256i four = _mm256_set1_epi8(15), six = _mm256_set1_epi8(63), top = _mm256_set1_epi8(48);
    __m256i h[4];
    k_headers(w, h);
    const __m256i halves = _mm256_permute4x64_epi64(
        _mm256_packus_epi32(_mm256_and_si256(h[0], _mm256_set1_epi32(0xffff)), _mm256_srli_epi32(h[0], 16)), 0xd8);
    const __m256 d = _mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
                 least = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
    const __m256i scale = _mm256_or_si256(_mm256_and_si256(h[3], four),
                                          _mm256_and_si256(_mm256_srli_epi16(h[1], 2), top));
    const __m256i min = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(h[3], 4), four),
                                        _mm256_and_si256(_mm256_srli_epi16(h[2], 2), top));
    scale_bytes(_mm256_and_si256(h[1], six), d, out->scale);
    scale_bytes(scale, d, out->scale + 4);
    scale_bytes(_mm256_and_si256(h[2], six), least, out->less);
    scale_bytes(min, least, out->less + 4);
}

WF_INLINE void unpack_scales(const uint8_t dtype, const char *const w[VL], w_panel *out)
{
    float scale[VL][VL], less[VL][VL];
    if (has_k_scales(dtype)) {
        k_panel_scales(w, out);
        return;
    }
    for (uint32_t r = 0; r < VL; r++) {
        const scales s = scales_of(dtype, w[r]);
        v_store(scale[r], s.of[0]);
        v_store(less[r], s.less[0]);
    }
    v_transpose(scale[0], VL, out->scale[0], VL);
    v_transpose(less[0], VL, out->less[0], VL);
}

/* Unpacks 8 rows. */
WF_INLINE void unpack_rows(const uint8_t dtype, const bool words, const char *const w[VL], w_panel *out)
{
    const char *row[VL];
    char room[VL][EXPANDED];
    (void)words;
    if (in_halves(dtype)) {
        for (uint32_t r = 0; r < VL; r++) row[r] = expanded(dtype, w[r], room[r]);
        unpack_halves(dtype, row, out);
        return;
    }
    unpack_scales(dtype, w, out);
    if (in_order(dtype))
        unpack_blocks(dtype, w, out);
    else
        unpack_bytes(dtype, w, out);
}

WF_INLINE __m256i two(const int16_t *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

/* Opaque to the compiler, which would multiply far ahead of the sums and run out of registers. */
WF_INLINE __m256i add_pairs(__m256i sum, __m256i a, __m256i b)
{
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
    __asm__("" : "+x"(sum));
    return sum;
}

/* Adds what group i has added up to for a row of X, and its minima or offsets. */
WF_INLINE vf add_group(const uint8_t dtype, const w_panel *w, const x_panel *x, const uint32_t i, __m256i sum, vf acc)
{
    const uint32_t less = !has_less(dtype) || dtype == WF_Q3_K || dtype == WF_Q6_K ? 0 : in_halves(dtype) ? 4 : 1;
    acc = v_fma(_mm256_cvtepi32_ps(sum), v_load(w->scale[in_halves(dtype) ? 0 : i]), acc);
    for (uint32_t l = less * i; l < less * (i + 1); l++) acc = v_fma(v_load(w->less[l]), v_set(x->minus_sum[l]), acc);
    return acc;
}

/* Adds the products of group i. */
WF_INLINE void add_panel_group(const uint8_t dtype, const bool words, const w_panel *w, const x_panel *x,
                               const uint32_t i, const int mr, sums *acc)
{
    __m256i sum[PAIR][MROW];
    for (int s = 0; s < PAIR; s++)
        for (int m = 0; m < mr; m++) sum[s][m] = _mm256_setzero_si256();
    const uint32_t lines = PANEL / 2 / groups_of(dtype);
    (void)words;
    WF_UNROLL(16)
    for (uint32_t l = 0; l < lines; l++) {
        const uint32_t at = i * lines + l;
        const __m256i v[PAIR] = {q_load(w[0].line[at]), q_load(w[1].line[at])};
        WF_UNROLL(MROW)
        for (int m = 0; m < mr; m++) {
            const __m256i both = two(x[m].x + 2 * at);
            for (int s = 0; s < PAIR; s++) sum[s][m] = add_pairs(sum[s][m], v[s], both);
        }
    }
    for (int s = 0; s < PAIR; s++)
        for (int m = 0; m < mr; m++) acc->of[s][m] = add_group(dtype, &w[s], &x[m], i, sum[s][m], acc->of[s][m]);
}

/* A sum of all groups: their scales are in it. */
WF_INLINE vf scaled(const uint8_t dtype, const bool words, const w_panel *w, vf sum, vf min)
{
    (void)dtype, (void)words, (void)w, (void)min;
    return sum;
}

#endif
