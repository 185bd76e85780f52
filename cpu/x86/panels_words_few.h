/* What gemm_panels.c adds on AVX2 for few rows of X (int16x8-few): the sums of int16x8 bit for bit, so that both are
 * one invariance class, without unpacking W to panels, which a few rows do not pay for.
 *
 * Registers have neighbouring k of one row of W. What they add up to for each group, exact in int32, is transposed for
 * 8 rows at a time, so that lanes are rows, and scales are applied to that in the order of int16x8. Q4_K, of which 32
 * bytes have two groups, is transposed first. */
#ifndef WF_CPU_X86_PANELS_WORDS_FEW_H
#define WF_CPU_X86_PANELS_WORDS_FEW_H

#include "cpu/x86/panels_words.h"

#define FEW 4 /* rows of X at a time */

/* The lanes of each register added up: lane r of the result has those of register r. */
WF_INLINE __m256i add_lanes(const __m256i r[VL])
{
    const __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(r[0], r[1]), _mm256_hadd_epi32(r[2], r[3]));
    const __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(r[4], r[5]), _mm256_hadd_epi32(r[6], r[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

/* The 16 scales of a superblock of formats in halves, as words: the even ones in the lower half. */
WF_INLINE __m256i parts_of(const uint8_t dtype, const char *p)
{
    const __m128i even_odd = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    return _mm256_cvtepi8_epi16(_mm_shuffle_epi8(half_scale_bytes(dtype, p), even_odd));
}

/* Block b of a row times its two scales: words 0 to 7 are of its first half, the others of its second. */
WF_INLINE words times_parts(const uint8_t dtype, words v, __m256i parts, const uint32_t b)
{
    const __m256i offset = _mm256_set1_epi16((short)offset_of(dtype));
    const __m256i by = _mm256_shuffle_epi8(parts, _mm256_set1_epi16((short)((2 * b + 1) << 8 | 2 * b)));
    v.a = _mm256_mullo_epi16(_mm256_sub_epi16(v.a, offset), by);
    v.b = _mm256_mullo_epi16(_mm256_sub_epi16(v.b, offset), by);
    return v;
}

/* What group i of row r of W adds up to with mr rows of X, in lanes of which each has a part. */
WF_INLINE void row_sums(const uint8_t dtype, const char *row, __m256i parts, const x_panel *x, const uint32_t i,
                        const int mr, __m256i (*out)[VL], const uint32_t r)
{
    const uint32_t n = BLOCKS / groups_of(dtype);
    for (uint32_t b = i * n; b < (i + 1) * n; b++) {
        words v = words_of(dtype, row, b);
        if (in_halves(dtype)) v = times_parts(dtype, v, parts, b);
        for (int m = 0; m < mr; m++) {
            const char *xs = (const char *)(x[m].x + 32 * b);
            const __m256i dot = _mm256_add_epi32(_mm256_madd_epi16(v.a, q_load(xs)),
                                                 _mm256_madd_epi16(v.b, q_load(xs + 32)));
            out[m][r] = b > i * n ? _mm256_add_epi32(out[m][r], dot) : dot;
        }
    }
}

/* What group i of 8 rows of W adds up to with mr rows of X. The sums stay in registers where that is not too much code.
 */
WF_INLINE void group_sums(const uint8_t dtype, const char *const row[VL], const __m256i parts[VL], const x_panel *x,
                          const uint32_t i, const int mr, __m256i out[FEW])
{
    __m256i sum[FEW][VL];
    if (mr <= 2 && !in_halves(dtype)) {
        WF_UNROLL(8)
        for (uint32_t r = 0; r < VL; r++) row_sums(dtype, row[r], parts[r], x, i, mr, sum, r);
    } else {
        WF_UNROLL(1)
        for (uint32_t r = 0; r < VL; r++) row_sums(dtype, row[r], parts[r], x, i, mr, sum, r);
    }
    for (int m = 0; m < mr; m++) out[m] = add_lanes(sum[m]);
}

/* What groups i and i + 1 of 8 rows of Q4_K, which share 32 bytes, add up to with mr rows of X. Transposed before they
 * are multiplied, rows are lanes from the start. High nibbles are 16 times as large until all are added up, which fits
 * int32. */
WF_INLINE void nibble_sums(const char *const row[VL], const x_panel *x, const uint32_t i, const int mr,
                           __m256i out[2][FEW])
{
    const __m256i low = _mm256_set1_epi16(15), high = _mm256_set1_epi16(0xf0);
    int32_t bytes[VL][VL], line[VL][VL];
    for (uint32_t r = 0; r < VL; r++) _mm256_storeu_si256((void *)bytes[r], q_load(row[r] + 16 + 16 * i));
    v_transpose((const float *)bytes[0], VL, (float *)line[0], VL);
    for (int m = 0; m < mr; m++) out[0][m] = out[1][m] = _mm256_setzero_si256();
    WF_UNROLL(8)
    for (uint32_t l = 0; l < VL; l++) {
        const __m256i even = q_load(line[l]), odd = _mm256_srli_epi16(even, 8);
        for (int m = 0; m < mr; m++) {
            const int16_t *at = x[m].x + 32 * i + 2 * l;
            out[0][m] = add_pairs(add_pairs(out[0][m], _mm256_and_si256(even, low), two(at)),
                                  _mm256_and_si256(odd, low), two(at + 16));
            out[1][m] = add_pairs(add_pairs(out[1][m], _mm256_and_si256(even, high), two(at + 32)),
                                  _mm256_and_si256(odd, high), two(at + 48));
        }
    }
    for (int m = 0; m < mr; m++) out[1][m] = _mm256_srai_epi32(out[1][m], 4);
}

/* The scales of a panel, its minima, and the parts that formats in halves have as numbers. */
WF_INLINE void panel_scales(const uint8_t dtype, const char *const row[VL], __m256i parts[VL], w_panel *w)
{
    if (!in_halves(dtype)) {
        unpack_scales(dtype, row, w);
        return;
    }
    v_store(w->scale[0], half_units(dtype, row));
    if (dtype == WF_Q2_K) q2_k_mins(row, w);
    for (uint32_t r = 0; r < VL; r++) parts[r] = parts_of(dtype, row[r]);
}

/* Adds the products of panel p of 8 rows of W, or begins the sums with them. */
WF_INLINE void few_panel(const product *g, const uint8_t dtype, uint32_t n, uint32_t p, const x_panel *x, const int mr,
                         float sum[FEW][VL])
{
    const uint32_t each = VL / groups_of(dtype);
    const char *later = later_of(g, n, p);
    char room[VL][EXPANDED];
    const char *row[VL];
    __m256i parts[VL] = {_mm256_setzero_si256()}, group[2][FEW];
    vf acc[FEW];
    source s;
    open_panel(g, n, p, &s);
    for (uint32_t r = 0; r < VL; r++) row[r] = expanded(dtype, s.row[r], room[r]);
    panel_scales(dtype, row, parts, g->wp);
    for (int m = 0; m < mr; m++) acc[m] = v_zero();
    WF_UNROLL(8)
    for (uint32_t i = 0; i < groups_of(dtype); i++) {
        if (later) fetch_few(dtype, s.row, later, each * i, each);
        if (dtype != WF_Q4_K) group_sums(dtype, row, parts, x, i, mr, group[i % 2]);
        else if (i % 2 == 0) nibble_sums(row, x, i, mr, group);
        for (int m = 0; m < mr; m++) acc[m] = add_group(dtype, g->wp, &x[m], i, group[i % 2][m], acc[m]);
    }
    for (int m = 0; m < mr; m++) {
        const vf v = v_mul(acc[m], v_set(x[m].scale));
        v_store(sum[m], p ? v_add(v, v_load(sum[m])) : v);
    }
}

/* Columns n to n + 7 of mr rows of X from m on. */
WF_INLINE void few_columns(const product *g, const uint8_t dtype, uint32_t n, uint32_t m, const int mr)
{
    _Alignas(32) float sum[FEW][VL] = {{0}};
    for (uint32_t p = 0; p < g->panels; p++) few_panel(g, dtype, n, p, g->xp + (size_t)p * g->g.m + m, mr, sum);
    for (int i = 0; i < mr; i++) store_vector(&g->g, m + (uint32_t)i, n, sum[i]);
}

WF_INLINE void few_of(const product *g, const uint8_t dtype, uint32_t begin, uint32_t end)
{
    for (uint32_t n = begin; n < end; n += VL) {
        uint32_t m = 0;
        for (; m + FEW <= g->g.m; m += FEW) few_columns(g, dtype, n, m, FEW);
        for (; m + 2 <= g->g.m; m += 2) few_columns(g, dtype, n, m, 2);
        for (; m < g->g.m; m++) few_columns(g, dtype, n, m, 1);
    }
}

#endif
