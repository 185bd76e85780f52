/* What gemm_panels.c adds on AVX-512 for few rows of X (int8x16-few): the sums of int8x16 bit for bit, so that both are
 * one invariance class, without unpacking W to panels, which a few rows do not pay for.
 *
 * Registers have neighbouring k of one row of W. What they add up to for each group, exact in int32, is transposed for
 * 16 rows at a time, so that lanes are rows, and scales are applied to that in the order of int8x16. */
#ifndef WF_CPU_X86_PANELS_FEW_H
#define WF_CPU_X86_PANELS_FEW_H

#include "cpu/x86/vnni.h"

#define FEW 4u /* rows of X at a time */

/* A row of X by 256 k, in the order in which registers have the weights. */
typedef struct x_regs {
    __m512i hi[4], lo[4];
} x_regs;

/* Registers of a half of a panel that are added up before the transposition: where low nibbles are the first half of a
 * block one has those. */
WF_INLINE uint32_t joined(const uint8_t dtype)
{
    return has_low_first(dtype) ? 2 : 1;
}

/* The order of k that unpack() leaves in the registers of a half of a panel. */
WF_INLINE void arrange(const uint8_t dtype, const int8_t *x, __m512i *out)
{
    const __m512i a = _mm512_loadu_si512(x), b = _mm512_loadu_si512(x + 64);
    out[0] = a, out[1] = b;
    if (has_low_first(dtype)) out[0] = _mm512_shuffle_i64x2(a, b, 0x88), out[1] = _mm512_shuffle_i64x2(a, b, 0xdd);
    if (has_k_scales(dtype)) out[0] = _mm512_shuffle_i64x2(a, b, 0x44), out[1] = _mm512_shuffle_i64x2(a, b, 0xee);
}

WF_INLINE x_regs x_regs_of(const uint8_t dtype, const x_panel *x)
{
    x_regs r;
    for (uint32_t h = 0; h < 2; h++)
        arrange(dtype, x->hi + 128 * h, r.hi + 2 * h), arrange(dtype, x->lo + 128 * h, r.lo + 2 * h);
    return r;
}

/* Half h of a panel of a row. */
WF_INLINE void unpack_half(const uint8_t dtype, const char *row, const uint32_t h, __m512i w[2])
{
    const char *blocks = row + 4 * bytes_of(dtype) * h;
    if (dtype == WF_Q8_0)
        unpack(dtype, blocks, 0, w), unpack(dtype, blocks + 68, 0, w + 1);
    else if (in_supers(dtype))
        unpack(dtype, row, h, w);
    else
        unpack(dtype, blocks, 0, w);
}

/* Adds up each quarter of four registers: a quarter of the result has those of all four. */
WF_INLINE __m512i add_quarters(const __m512i r[4])
{
    const __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(r[0], r[1]), _mm512_unpackhi_epi32(r[0], r[1]));
    const __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(r[2], r[3]), _mm512_unpackhi_epi32(r[2], r[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/* The sums of four groups that have a quarter each, of 16 rows, of which each register has four. */
WF_INLINE void quarters_to_groups(const __m512i q[4], __m512i out[4])
{
    const __m512i a = _mm512_shuffle_i32x4(q[0], q[1], 0x44), b = _mm512_shuffle_i32x4(q[2], q[3], 0x44);
    const __m512i c = _mm512_shuffle_i32x4(q[0], q[1], 0xee), d = _mm512_shuffle_i32x4(q[2], q[3], 0xee);
    out[0] = _mm512_shuffle_i32x4(a, b, 0x88), out[1] = _mm512_shuffle_i32x4(a, b, 0xdd);
    out[2] = _mm512_shuffle_i32x4(c, d, 0x88), out[3] = _mm512_shuffle_i32x4(c, d, 0xdd);
}

/* The same of two groups that have half a register each; the second is `apart` groups after the first. */
WF_INLINE void halves_to_groups(const __m512i q[4], const uint32_t apart, __m512i *out)
{
    const __m512i a = _mm512_add_epi32(_mm512_shuffle_i32x4(q[0], q[1], 0x88), _mm512_shuffle_i32x4(q[0], q[1], 0xdd));
    const __m512i b = _mm512_add_epi32(_mm512_shuffle_i32x4(q[2], q[3], 0x88), _mm512_shuffle_i32x4(q[2], q[3], 0xdd));
    out[0] = _mm512_shuffle_i32x4(a, b, 0x88), out[apart] = _mm512_shuffle_i32x4(a, b, 0xdd);
}

/* The sums of the groups of half h of a panel, each of 16 rows of W. later: what is prefetched; NULL: nothing. */
WF_INLINE void group_sums(const uint8_t dtype, const char *const row[VL], const char *later, const uint32_t h,
                          const x_regs *x, __m512i out[8])
{
    const uint32_t regs = joined(dtype), n = 2 / regs;
    __m512i quarter[2][4];
    WF_UNROLL(4)
    for (uint32_t q = 0; q < 4; q++) {
        __m512i sum[2][4], w[2];
        if (later) fetch_few(dtype, row, later, 8 * h + 2 * q, 2);
        WF_UNROLL(4)
        for (uint32_t r = 0; r < 4; r++) {
            unpack_half(dtype, row[4 * q + r], h, w);
            WF_UNROLL(2)
            for (uint32_t i = 0; i < n; i++) sum[i][r] = dot_hi_lo(w + i, x->hi + 2 * h + i, x->lo + 2 * h + i, regs);
        }
        for (uint32_t i = 0; i < n; i++) quarter[i][q] = add_quarters(sum[i]);
    }
    WF_UNROLL(2)
    for (uint32_t i = 0; i < n; i++) {
        if (has_low_first(dtype) || in_halves(dtype)) quarters_to_groups(quarter[i], out + 4 * i);
        if (dtype == WF_Q8_0) halves_to_groups(quarter[i], 1, out + 2 * i);
        if (has_k_scales(dtype)) halves_to_groups(quarter[i], 2, out + i);
    }
}

/* What int8x16 has as the sum of group i: high nibbles are 16 times as large here. */
WF_INLINE __m512 group_sum(const uint8_t dtype, __m512i sum, const __m512i *part, const x_panel *x, const uint32_t i)
{
    if (dtype == WF_Q4_K && i % 2) sum = _mm512_srai_epi32(sum, 4);
    if (unsigned_offset_of(dtype)) sum = _mm512_add_epi32(sum, _mm512_set1_epi32(x->comp[i]));
    if (in_halves(dtype)) sum = _mm512_mullo_epi32(sum, _mm512_srai_epi32(part[i], 16));
    return _mm512_cvtepi32_ps(sum);
}

/* The products of a panel of 16 rows with a row of X. part: the scales of formats in halves, which their sums take as
 * numbers. */
WF_INLINE __m512 few_panel(const uint8_t dtype, const char *const row[VL], const char *later, const w_panel *w,
                           const __m512i *part, const x_panel *x)
{
    const uint32_t half = groups_of(dtype) / 2;
    const x_regs r = x_regs_of(dtype, x);
    __m512 acc = _mm512_setzero_ps(), min = acc, *to = in_halves(dtype) ? &min : &acc;
    for (uint32_t h = 0; h < 2; h++) {
        __m512i sum[8];
        group_sums(dtype, row, later, h, &r, sum);
        WF_UNROLL(8)
        for (uint32_t j = 0; j < half; j++) {
            const uint32_t i = half * h + j;
            const __m512 v = group_sum(dtype, sum[j], part, x, i);
            acc = in_halves(dtype) ? _mm512_add_ps(acc, v) : _mm512_fmadd_ps(v, _mm512_loadu_ps(w->scale[i]), acc);
            if (has_mins(dtype))
                *to = _mm512_fmadd_ps(_mm512_loadu_ps(w->min[i]), _mm512_set1_ps(x->minus_sum[i]), *to);
        }
    }
    return _mm512_mul_ps(scaled(dtype, in_halves(dtype), w, acc, min), _mm512_set1_ps(x->scale));
}

/* Columns n to n + 15 of `rows` rows of X from m on. */
WF_INLINE void few_columns(const product *g, const uint8_t dtype, uint32_t n, uint32_t m, uint32_t rows)
{
    _Alignas(64) float sum[FEW][VL] = {{0}};
    char room[VL][EXPANDED];
    source s;
    w_panel *w = g->wp;
    __m512i part[16];
    for (uint32_t p = 0; p < g->panels; p++) {
        open_panel(g, n, p, &s);
        const char *later = later_of(g, n, p);
        for (uint32_t r = 0; r < VL; r++) s.row[r] = expanded(dtype, s.row[r], room[r]);
        if (in_halves(dtype)) half_panel_scales(dtype, s.row, part, w);
        if (has_k_scales(dtype)) k_panel_scales(false, s.row, part, w);
        if (dtype == WF_IQ4_XS) iq4_xs_panel_scales(s.row, w);
        if (!in_supers(dtype)) block_scales(dtype, s.row, w);
        for (uint32_t i = 0; i < rows; i++) {
            const vf v = few_panel(dtype, s.row, i ? NULL : later, w, part, g->xp + (size_t)p * g->g.m + m + i);
            v_store(sum[i], p ? v_add(v, v_load(sum[i])) : v);
        }
    }
    for (uint32_t i = 0; i < rows; i++) store_vector(&g->g, m + i, n, sum[i]);
}

WF_INLINE void few_of(const product *g, const uint8_t dtype, uint32_t begin, uint32_t end)
{
    for (uint32_t m = 0; m < g->g.m; m += FEW)
        for (uint32_t n = begin; n < end; n += VL) few_columns(g, dtype, n, m, WF_MIN(FEW, g->g.m - m));
}

#endif
