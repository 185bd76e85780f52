/* GEMM for few rows with Q8_0, Q4_0, Q4_K, Q5_K and Q6_K weights and AVX-512 VNNI, 64 weights per instruction.
 *
 * Activations are quantised once per call to hi and lo int8 (hi_lo.h; gemm_int8.c explains why). A group of activations matches one or
 * two registers of weights, whose 16 lanes accumulate neighbouring products.
 *
 *   Q8_0  2 blocks, 8 lanes each
 *   Q4_0  4 blocks, 4 lanes each: low nibbles in one register, high nibbles in the other
 *   Q4_K  4 blocks, 8 lanes each: low nibbles, which are blocks 0 and 2, in one register, high ones in the other, with a sum each. The
 *         high ones stay where they are, 16 times as large, for the scales of their activations are divided by 16
 *   Q5_K  the same, but shifted
 *   Q6_K  4 blocks in their order, 4 lanes for each of 8 scales, with a sum for each register
 *
 * The instruction needs unsigned weights: their offset, or the minimum, is multiplied with the sums of the activations of a scale. Scales
 * are read for a span of 16 blocks at a time and permuted to the lanes of each group.
 */
#include "cpu/ops/gemm.h"
#include "cpu/ops/hi_lo.h"
#include "cpu/ops/vnni.h"

#define SPAN      16u /* blocks */
#define MOST_ROWS 4   /* activation rows of a tile */
#define PAIR      2 /* weight rows of a tile with several activation rows; otherwise 1 */
#define FAR       8192u /* L2 prefetch distance in bytes */
#define NEAR      1024u /* L1 prefetch distance in bytes */

typedef struct kind {
    uint8_t dtype;
    uint32_t blocks, regs; /* of a group: blocks of 32, and registers of weights */
    uint32_t units;        /* scales of a group */
    uint32_t bytes;        /* of a block of weights */
    int offset;            /* added to the weights; or 1: what the minima are multiplied with */
} kind;

WF_INLINE kind kind_of(const uint8_t dtype)
{
    if (dtype == WF_Q8_0) return (kind){dtype, 2, 1, 2, 34, 128};
    if (dtype == WF_Q4_0) return (kind){dtype, 4, 2, 4, 18, 8};
    if (dtype == WF_Q4_K) return (kind){dtype, 4, 2, 4, 144, 1};
    if (dtype == WF_Q5_K) return (kind){dtype, 4, 2, 4, 176, 1};
    return (kind){dtype, 4, 2, 8, 210, 32};
}

/* Bytes of a prepared group: hi, then lo. */
WF_INLINE uint32_t group_bytes(const kind t)
{
    return 2 * t.regs * 64;
}

static uint32_t groups_of(const kind t, uint32_t k)
{
    return (k / 32 + t.blocks - 1) / t.blocks;
}

/* Scales of whole spans, and as many sums of x, or twice as many; padded with zeros. */
static uint32_t scales_of(uint32_t k)
{
    return WF_UP(k / 32, SPAN);
}

/* Bytes of a prepared row: the groups, then the scales, then the sums of x times -offset. */
static size_t row_step(const kind t, uint32_t k)
{
    return (size_t)groups_of(t, k) * group_bytes(t) + 3 * scales_of(k) * sizeof(float);
}

/* ---- activations ----------------------------------------------------------------------------- */

/* Offset of half a block, the group's `at`-th: 32 consecutive bytes, or for Q4_0's nibbles 16 in each register. */
static uint32_t place(const kind t, uint32_t at, uint32_t half)
{
    if (t.dtype == WF_Q4_0) return 64 * half + 16 * at;
    return (has_mins(t.dtype) ? 64 * (at % 2) + 32 * (at / 2) : 32 * at) + 16 * half;
}

static int32_t sum_of(const int8_t *q)
{
    return _mm512_reduce_add_epi32(_mm512_cvtepi8_epi32(load16((const char *)q)));
}

static void prep_group(const kind t, const float *x, uint32_t blocks, char *out, float *scale, float *minus_sum)
{
    memset(out, 0, group_bytes(t));
    for (uint32_t b = 0; b < blocks; b++) {
        int8_t q[2][32];
        int32_t sum[2];
        const float unit = round_block(x + 32 * b, q[0], q[1]);
        scale[b] = t.dtype == WF_Q4_K && b % 2 ? unit / 16 : unit;
        for (uint32_t half = 0; half < 2; half++) {
            memcpy(out + place(t, b, half), q[0] + 16 * half, 16);
            memcpy(out + 64 * t.regs + place(t, b, half), q[1] + 16 * half, 16);
            sum[half] = -t.offset * (256 * sum_of(q[0] + 16 * half) + sum_of(q[1] + 16 * half));
        }
        if (t.dtype == WF_Q6_K)
            for (uint32_t half = 0; half < 2; half++) minus_sum[2 * b + half] = unit * (float)sum[half];
        else
            minus_sum[b] = unit * (float)(sum[0] + sum[1]);
    }
}

static void prep(const gemm *g, uint32_t m, void *dst)
{
    const kind t = kind_of(g->w->dtype);
    const wf_dtype_info *in = &wf_dtypes[g->x->dtype];
    const char *row = wf_cpu_row(g->x, m);
    uint32_t blocks = g->k / 32, n = groups_of(t, g->k);
    float *scale = (float *)((char *)dst + (size_t)n * group_bytes(t)), x[128];
    float *minus_sum = scale + scales_of(g->k);
    memset(scale, 0, 3 * scales_of(g->k) * sizeof(float));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t b = i * t.blocks, here = WF_MIN(t.blocks, blocks - b);
        in->decode(row + (size_t)b * 32 * in->block_bytes, x, 32 * here);
        prep_group(t, x, here, (char *)dst + (size_t)i * group_bytes(t), scale + b, minus_sum + (t.dtype == WF_Q6_K ? 2 : 1) * b);
    }
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Dot products of registers of weights with hi and lo activations. */
WF_INLINE __m512 dot(const __m512i *w, const char *hi, const char *lo, const uint32_t regs)
{
    __m512i high[2], low[2];
    for (uint32_t i = 0; i < regs; i++) high[i] = _mm512_loadu_si512(hi + 64 * i), low[i] = _mm512_loadu_si512(lo + 64 * i);
    return _mm512_cvtepi32_ps(dot_hi_lo(w, high, low, regs));
}

static inline __m512i lane_numbers(void)
{
    return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
}

/* Of n / 8 superblocks of Q4_K or Q5_K from p on, the scales, and the minima. */
WF_INLINE __m512 k_span(const kind t, const char *p, uint32_t n, __m512 *mins)
{
    __m512 a = k_scales(p), b = n > 8 ? k_scales(p + t.bytes) : _mm512_setzero_ps();
    *mins = _mm512_shuffle_f32x4(a, b, 0xee);
    return _mm512_shuffle_f32x4(a, b, 0x44);
}

/* Loads the scales of n blocks of 18 or 34 bytes from p on. They are 9 or 17 words apart; gathering them takes longer than the span. */
WF_INLINE __m512 block_scales(const kind t, const char *p, uint32_t n)
{
    const uint32_t each = t.dtype == WF_Q4_0 ? 4 : 2; /* scales of a load */
    const __m256i lane = _mm256_set1_epi64x(t.dtype == WF_Q4_0 ? 0x001b001200090000 : 0x0011000000110000);
    __m512i d = _mm512_setzero_si512();
    if (n < SPAN) {
        uint16_t part[SPAN] = {0};
        for (uint32_t b = 0; b < n; b++) memcpy(&part[b], p + b * t.bytes, sizeof part[b]);
        return v_load_f16(part);
    }
    WF_UNROLL(8)
    for (uint32_t b = 0; b < SPAN; b += each)
        d = _mm512_mask_permutexvar_epi16(d, ((1u << each) - 1) << b, _mm512_castsi256_si512(lane), _mm512_loadu_si512(p + b * t.bytes));
    return _mm512_cvtph_ps(_mm512_castsi512_si256(d));
}

/* Loads the scales of span p, and what their sums of x are multiplied with. Q6_K: of a superblock. */
WF_INLINE __m512 scales(const kind t, const char *p, uint32_t n, __m512 *mins)
{
    if (has_mins(t.dtype)) return k_span(t, p, n, mins);
    return *mins = t.dtype == WF_Q6_K ? q6_k_scales(p) : block_scales(t, p, n);
}

/* Loads the activation scales of span s; Q6_K has one scale per 16. */
WF_INLINE __m512 x_scales(const kind t, const float *scale, size_t s)
{
    if (t.dtype != WF_Q6_K) return _mm512_loadu_ps(scale + 16 * s);
    __m512 eight = _mm512_castps256_ps512(_mm256_loadu_ps(scale + 8 * s));
    return _mm512_permutexvar_ps(_mm512_srli_epi32(lane_numbers(), 1), eight);
}

/* Index in the span of the scale of each lane of a sum of group i, which is of register r where each has one. */
WF_INLINE __m512i lanes_of(const kind t, const uint32_t i, const uint32_t r)
{
    const __m512i first = _mm512_set1_epi32((int)(t.units * i + (has_mins(t.dtype) ? r : 4 * r)));
    if (has_mins(t.dtype)) return _mm512_add_epi32(first, _mm512_slli_epi32(_mm512_srli_epi32(lane_numbers(), 3), 1));
    return _mm512_add_epi32(first, _mm512_srli_epi32(lane_numbers(), t.dtype == WF_Q8_0 ? 3 : 2));
}

/* ---- tiles ----------------------------------------------------------------------------------- */

typedef struct tile {
    const char *w[PAIR];
    const char *x[MOST_ROWS];
    const float *scale[MOST_ROWS], *minus_sum[MOST_ROWS];
    __m512 acc[PAIR][MOST_ROWS];
} tile;

/* Accumulates group i of span s, whose weights are at p. */
WF_INLINE void group(tile *a, const kind t, const char *p, size_t s, uint32_t i, const int r, const int mr, const __m512 *scale)
{
    const uint32_t sums = t.dtype == WF_Q4_0 ? 1 : t.regs, regs = t.regs / sums;
    size_t at = (s * (SPAN / t.units) + i) * group_bytes(t);
    __m512i w[2];
    unpack(t.dtype, p, i, w);
    for (uint32_t k = 0; k < sums; k++)
        for (int m = 0; m < mr; m++) {
            const char *x = a->x[m] + at + 64 * k;
            const __m512 by = _mm512_permutexvar_ps(lanes_of(t, i, k), scale[m]);
            a->acc[r][m] = _mm512_fmadd_ps(dot(w + k, x, x + 64 * t.regs, regs), by, a->acc[r][m]);
        }
}

/* Accumulates span s of n scales: SPAN, except at the end of a row. */
WF_INLINE void span(tile *a, const uint8_t dtype, size_t s, uint32_t n, const int nr, const int mr)
{
    const kind t = kind_of(dtype);
    const bool super = dtype == WF_Q6_K || has_mins(dtype); /* superblocks know the places of their groups */
    const size_t span_bytes = dtype == WF_Q6_K ? t.bytes : super ? 2 * t.bytes : SPAN * t.bytes;
    const size_t step = super ? 0 : t.units * t.bytes;
    __m512 scale[PAIR][MOST_ROWS], mins;
    for (int r = 0; r < nr; r++)
        for (size_t i = 0; i < span_bytes; i += 64) {
            __builtin_prefetch(a->w[r] + s * span_bytes + FAR + i, 0, 2);
            __builtin_prefetch(a->w[r] + s * span_bytes + NEAR + i, 0, 3);
        }
    for (int r = 0; r < nr; r++) {
        const __m512 d = scales(t, a->w[r] + s * span_bytes, n, &mins);
        for (int m = 0; m < mr; m++) {
            a->acc[r][m] = _mm512_fmadd_ps(mins, _mm512_loadu_ps(a->minus_sum[m] + 16 * s), a->acc[r][m]);
            scale[r][m] = _mm512_mul_ps(d, x_scales(t, a->scale[m], s));
        }
    }
    WF_UNROLL(8)
    for (uint32_t i = 0; i < n / t.units; i++)
        for (int r = 0; r < nr; r++) {
            const char *p = a->w[r] + s * span_bytes + i * step;
            group(a, t, p, s, i, r, mr, scale[r]);
        }
    if (super || n % t.units == 0) return;
    for (int r = 0; r < nr; r++) { /* an incomplete last group */
        char last[4 * 34] = {0};
        uint32_t i = n / t.units;
        memcpy(last, a->w[r] + s * span_bytes + i * step, n % t.units * t.bytes);
        group(a, t, last, s, i, r, mr, scale[r]);
    }
}

WF_INLINE void tile_of(const gemm *g, const uint8_t dtype, const char *w, uint32_t n, uint32_t m,
                       const int nr, const int mr)
{
    const kind t = kind_of(dtype);
    uint32_t units = dtype == WF_Q6_K ? g->k / 16 : g->k / 32;
    tile a;
    for (int i = 0; i < mr; i++) {
        a.x[i] = g->xp + (m + i) * g->x_step;
        a.scale[i] = (const float *)(a.x[i] + (size_t)groups_of(t, g->k) * group_bytes(t));
        a.minus_sum[i] = a.scale[i] + scales_of(g->k);
    }
    for (int r = 0; r < nr; r++) {
        a.w[r] = w + r * g->w_step;
        for (int i = 0; i < mr; i++) a.acc[r][i] = _mm512_setzero_ps();
    }
    size_t s = 0;
    for (; s < units / SPAN; s++) span(&a, dtype, s, SPAN, nr, mr);
    if (units % SPAN) span(&a, dtype, s, units % SPAN, nr, mr);
    for (int r = 0; r < nr; r++)
        for (int i = 0; i < mr; i++) store_output(g, m + i, n + r, _mm512_reduce_add_ps(a.acc[r][i]));
}

/* Multiplies weight rows begin..end by all activation rows. With one activation row, weights are a plain stream, which the hardware
 * prefetches best. */
WF_INLINE void rows_of(const gemm *g, const uint8_t dtype, uint32_t begin, uint32_t end)
{
    uint32_t n = begin;
    for (; g->m > 1 && n + PAIR <= end; n += PAIR) {
        const char *w = g->wp + n * g->w_step;
        uint32_t m = 0;
        for (; m + MOST_ROWS <= g->m; m += MOST_ROWS) tile_of(g, dtype, w, n, m, PAIR, MOST_ROWS);
        for (; m < g->m; m++) tile_of(g, dtype, w, n, m, PAIR, 1);
    }
    for (; n < end; n++)
        for (uint32_t m = 0; m < g->m; m++) tile_of(g, dtype, g->wp + n * g->w_step, n, m, 1, 1);
}

wf_cpu_scratch_size WF_SIMD(wf_cpu_gemm_int8_scratch)(const wf_call *c)
{
    return prep_scratch(c, WF_UP(row_step(kind_of(c->in[WF_GEMM_W].dtype), c->in[WF_GEMM_X].cols), (size_t)64));
}

void WF_SIMD(wf_cpu_gemm_int8)(const wf_cpu_work *work)
{
    gemm g = gemm_of(work);
    uint32_t begin, end;
    prepare(work, &g, WF_UP(row_step(kind_of(g.w->dtype), g.k), (size_t)64), prep);
    while (wf_cpu_next(work, g.n, chunk_of(work, &g), &begin, &end)) WITH_FORMAT(rows_of, &g, begin, end);
}
