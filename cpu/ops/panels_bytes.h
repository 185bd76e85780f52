/* What gemm_panels.c needs of AVX-512 VNNI: weights as unsigned bytes, a line has 4 k of each of 16 rows; activations as two int8 (hi_lo.h),
 * of which the instruction broadcasts 4 k. Sums of a group of k that shares a scale of W are exact in int32. */
#ifndef WF_CPU_OPS_PANELS_BYTES_H
#define WF_CPU_OPS_PANELS_BYTES_H

#include "cpu/ops/hi_lo.h"

/* A row of X by 256 k. */
typedef struct x_panel {
    _Alignas(64) int8_t hi[PANEL];
    int8_t lo[PANEL];
    int32_t comp[16]; /* of each group: compensation for the offset of W */
    float minus_sum[8]; /* or what its minimum is multiplied with */
    float scale;
} x_panel;

/* 16 rows of W by 256 k. With minima, the first half of the scales is followed by them. */
typedef struct w_panel {
    char line[PANEL / 4][64];
    float scale[16][VL]; /* [group][row] */
} w_panel;

WF_INLINE uint32_t groups_of(const uint8_t dtype)
{
    return dtype == WF_Q6_K ? 16 : 8;
}

/* What is added to the weights to make them unsigned. */
WF_INLINE int offset_of(const uint8_t dtype)
{
    return dtype == WF_Q8_0 ? 128 : dtype == WF_Q4_0 ? 8 : dtype == WF_Q6_K ? 32 : 0;
}

/* ---- activations ----------------------------------------------------------------------------- */

/* sum: of each four k. */
static void set_sums(const uint8_t dtype, const int32_t sum[PANEL / 4], x_panel *out)
{
    const uint32_t each = PANEL / 4 / groups_of(dtype);
    for (uint32_t g = 0; g < groups_of(dtype); g++) {
        int32_t all = 0;
        for (uint32_t i = 0; i < each; i++) all += sum[g * each + i];
        out->comp[g] = -offset_of(dtype) * all;
        if (g < 8) out->minus_sum[g] = (float)-all;
    }
}

/* Rounds a panel of n elements of a row of X; pads with zeros. */
static void round_panel(const wf_view *view, const uint8_t dtype, uint32_t m, uint32_t p, uint32_t n, x_panel *out)
{
    const __m512i ones = _mm512_set1_epi8(1), zero = _mm512_setzero_si512();
    __m512i top = zero;
    const wf_dtype_info *in = &wf_dtypes[view->dtype];
    int32_t sum[PANEL / 4];
    float x[PANEL] = {0};
    in->decode((char *)wf_cpu_row(view, m) + (size_t)p * PANEL * in->block_bytes, x, n);
    for (uint32_t i = 0; i < PANEL; i += 16) top = max_abs(top, _mm512_loadu_ps(x + i));
    float most = max_of(top);
    const __m512 factor = _mm512_set1_ps(most > 0 ? 127 * 256 / most : 0);
    for (uint32_t i = 0; i < PANEL; i += 64) {
        __m512i hi, lo;
        split_hi_lo(to_int16(x + i, factor), to_int16(x + i + 32, factor), &hi, &lo);
        _mm512_storeu_si512(out->hi + i, hi);
        _mm512_storeu_si512(out->lo + i, lo);
        __m512i high = _mm512_slli_epi32(_mm512_dpbusd_epi32(zero, ones, hi), 8);
        _mm512_storeu_si512(sum + i / 4, _mm512_dpbusd_epi32(high, ones, lo));
    }
    set_sums(dtype, sum, out);
    out->scale = most / (127 * 256);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* The f16 scales of eight blocks. */
WF_INLINE __m512 block_scales(const char *p, const int bytes)
{
    const __m256i at = _mm256_mullo_epi32(_mm256_set1_epi32(bytes), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
    __m256i d = _mm256_i32gather_epi32((const int *)p, at, 1);
    return _mm512_cvtph_ps(_mm256_zextsi128_si256(_mm256_cvtepi32_epi16(d)));
}

/* The scales of a row of a panel, and minima. */
WF_INLINE __m512 scales_of(const uint8_t dtype, const char *p)
{
    if (dtype == WF_Q8_0) return block_scales(p, 34);
    if (dtype == WF_Q4_0) return block_scales(p, 18);
    if (has_mins(dtype)) return k_scales(p);
    return q6_k_scales(p);
}

WF_INLINE __m512i q4_0_bytes(const char *a, const char *b)
{
    const __m512i by = _mm512_set_epi64(0x0004000400040004, 0x0004000400040004, 0, 0, 0x0004000400040004, 0x0004000400040004, 0, 0);
    __m512i q = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_broadcastsi128_si256(load16(a))), _mm256_broadcastsi128_si256(load16(b)), 1);
    return _mm512_and_si512(_mm512_srlv_epi16(q, by), _mm512_set1_epi8(15));
}

/* Weights 64 u to 64 u + 63 of a row of a panel, in their order. */
WF_INLINE __m512i unit_of(const uint8_t dtype, const char *p, const uint32_t u)
{
    if (dtype == WF_Q8_0) return _mm512_xor_si512(load_2x32(p + 68 * u + 2, p + 68 * u + 36), _mm512_set1_epi8(-128));
    if (dtype == WF_Q4_0) return q4_0_bytes(p + 36 * u + 2, p + 36 * u + 20);
    if (has_mins(dtype)) return k_bytes(dtype, p, u);
    return q6_k_bytes(p, u);
}

/* Unpacks 16 rows. */
WF_INLINE void unpack_rows(const uint8_t dtype, const char *const w[VL], w_panel *out)
{
    float scale[VL][16];
    char row[VL][64];
    for (uint32_t r = 0; r < VL; r++) _mm512_storeu_ps(scale[r], scales_of(dtype, w[r]));
    v_transpose(scale[0], 16, out->scale[0], VL);
    WF_UNROLL(4)
    for (uint32_t u = 0; u < PANEL / 64; u++) {
        for (uint32_t r = 0; r < VL; r++) _mm512_storeu_si512(row[r], unit_of(dtype, w[r], u));
        v_transpose((const float *)row[0], 16, (float *)out->line[16 * u], 16);
    }
}

/* ---- products -------------------------------------------------------------------------------- */

typedef struct sums {
    vf of[PAIR][MROW];
} sums;

WF_INLINE __m512i four(const int8_t *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

/* Adds the products of group i. */
WF_INLINE void group(const uint8_t dtype, const w_panel *w, const x_panel *x, const uint32_t i, const int mr, sums *acc)
{
    const uint32_t lines = PANEL / 4 / groups_of(dtype);
    __m512i hi[PAIR][MROW], lo[PAIR][MROW];
    for (int m = 0; m < mr; m++)
        for (int s = 0; s < PAIR; s++) {
            hi[s][m] = _mm512_setzero_si512();
            lo[s][m] = offset_of(dtype) ? _mm512_set1_epi32(x[m].comp[i]) : hi[s][m];
        }
    WF_UNROLL(8)
    for (uint32_t l = 0; l < lines; l++) {
        const uint32_t at = i * lines + l;
        const __m512i q[PAIR] = {_mm512_loadu_si512(w[0].line[at]), _mm512_loadu_si512(w[1].line[at])};
        WF_UNROLL(MROW)
        for (int m = 0; m < mr; m++) {
            const __m512i high = four(x[m].hi + 4 * at), low = four(x[m].lo + 4 * at);
            for (int s = 0; s < PAIR; s++) {
                hi[s][m] = _mm512_dpbusd_epi32(hi[s][m], q[s], high);
                lo[s][m] = _mm512_dpbusd_epi32(lo[s][m], q[s], low);
            }
        }
    }
    for (int s = 0; s < PAIR; s++)
        for (int m = 0; m < mr; m++) {
            __m512 sum = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(hi[s][m], 8), lo[s][m])), *to = &acc->of[s][m];
            *to = _mm512_fmadd_ps(sum, _mm512_loadu_ps(w[s].scale[i]), *to);
            if (has_mins(dtype)) *to = _mm512_fmadd_ps(_mm512_loadu_ps(w[s].scale[8 + i]), _mm512_set1_ps(x[m].minus_sum[i]), *to);
        }
}

#endif
