/* GEMM for few rows with quantised weights (blocks.h) and AVX-512 VNNI, 64 weights per instruction.
 *
 * Activations are quantised once per call to hi and lo int8 (hi_lo.h; gemm_int8.c explains why). A group of activations
 * matches one or two registers of weights, whose 16 lanes accumulate neighbouring products.
 *
 *   Q8_0  2 blocks, 8 lanes each
 *   Q4_0  4 blocks, 4 lanes each: low nibbles in one register, high nibbles in the other; so are all formats whose
 *         nibbles lie like that
 *   Q4_K  4 blocks, 8 lanes each: low nibbles, which are blocks 0 and 2, in one register, high ones in the other, with
 *         a sum each. The high ones stay where they are, 16 times as large, for the scales of their activations are
 *         divided by 16
 *   Q5_K  the same, but shifted
 *   Q6_K, Q3_K and Q2_K  4 blocks in their order, 4 lanes for each of 8 scales, with a sum for each register
 *
 * The instruction needs unsigned weights: their offset, or the minimum, is multiplied with the sums of the activations
 * of a scale. Scales are read for a span of 16 blocks at a time and permuted to the lanes of each group.
 */
#include "cpu/ops/gemm.h"
#include "cpu/x86/hi_lo.h"
#include "cpu/x86/vnni.h"

#define SPAN      16u /* blocks */
#define SPAN_MAX  576u /* most file bytes of a span, and what is read past them */
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
    const uint32_t blocks = dtype == WF_Q8_0 ? 2 : 4;
    return (kind){dtype,           blocks,
                  blocks / 2,      in_halves(dtype) ? 8 : blocks,
                  bytes_of(dtype), has_mins(dtype) ? 1 : unsigned_offset_of(dtype)};
}

/* Bytes of a prepared group: hi, then lo. */
WF_INLINE uint32_t group_bytes(const kind t)
{
    return 2 * t.regs * 64;
}

/* Blocks of whole spans: what is past k is zero. There are as many scales, and as many sums of x or twice as many. */
static uint32_t blocks_of(uint32_t k)
{
    return WF_UP(k / 32, SPAN);
}

static uint32_t groups_of(const kind t, uint32_t k)
{
    return blocks_of(k) / t.blocks;
}

/* Bytes of a prepared row: the groups, then the scales, then the sums of x times -offset. */
static size_t row_step(const kind t, uint32_t k)
{
    return (size_t)groups_of(t, k) * group_bytes(t) + 3 * blocks_of(k) * sizeof(float);
}

/* ---- activations ----------------------------------------------------------------------------- */

/* Offset of half a block, the group's `at`-th: 32 consecutive bytes, or where low nibbles are the first half 16 in each
 * register. */
static uint32_t place(const kind t, uint32_t at, uint32_t half)
{
    if (has_low_first(t.dtype)) return 64 * half + 16 * at;
    return (has_k_scales(t.dtype) ? 64 * (at % 2) + 32 * (at / 2) : 32 * at) + 16 * half;
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
        if (in_halves(t.dtype))
            for (uint32_t half = 0; half < 2; half++) minus_sum[2 * b + half] = unit * (float)sum[half];
        else
            minus_sum[b] = unit * (float)(sum[0] + sum[1]);
    }
}

static void prep_row(const gemm *g, uint32_t m, void *dst)
{
    const kind t = kind_of(g->w->dtype);
    const wf_dtype_info *in = &wf_dtypes[g->x->dtype];
    const char *row = wf_cpu_row(g->x, m);
    uint32_t blocks = g->k / 32, n = groups_of(t, g->k);
    float *scale = (float *)((char *)dst + (size_t)n * group_bytes(t)), x[128];
    float *minus_sum = scale + blocks_of(g->k);
    memset(scale, 0, 3 * blocks_of(g->k) * sizeof(float));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t b = i * t.blocks, here = b < blocks ? WF_MIN(t.blocks, blocks - b) : 0;
        in->decode(row + (size_t)b * 32 * in->block_bytes, x, 32 * here);
        prep_group(t, x, here, (char *)dst + (size_t)i * group_bytes(t), scale + b,
                   minus_sum + (in_halves(t.dtype) ? 2 : 1) * b);
    }
}

/* Dot products of registers of weights with hi and lo activations. */
WF_INLINE __m512 dot(const __m512i *w, const char *hi, const char *lo, const uint32_t regs)
{
    __m512i high[2], low[2];
    for (uint32_t i = 0; i < regs; i++)
        high[i] = _mm512_loadu_si512(hi + 64 * i), low[i] = _mm512_loadu_si512(lo + 64 * i);
    return _mm512_cvtepi32_ps(dot_hi_lo(w, high, low, regs));
}

static inline __m512i lane_numbers(void)
{
    return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
}

/* Of two superblocks of Q4_K or Q5_K from p on, the scales, and the minima. */
WF_INLINE __m512 k_span(const kind t, const char *p, __m512 *mins)
{
    __m512 a = k_scales(p), b = k_scales(p + t.bytes);
    *mins = _mm512_shuffle_f32x4(a, b, 0xee);
    return _mm512_shuffle_f32x4(a, b, 0x44);
}

/* A word of each block of a span. They are 9 or 17 words apart, say; gathering them takes longer than the span. */
WF_INLINE __m256i span_words(const kind t, const char *p)
{
    __m512i d = _mm512_setzero_si512();
    WF_UNROLL(8)
    for (uint32_t b = 0; b < SPAN; b += block_step(t.bytes)) d = block_words(d, b, t.bytes, p + b * t.bytes);
    return _mm512_castsi512_si256(d);
}

/* The scales of a span of blocks of 32, which in MXFP4 are a byte: of odd blocks the word's upper one. */
WF_INLINE __m512 block_scales(const kind t, const char *p)
{
    const __m256i v = span_words(t, p);
    if (t.dtype != WF_MXFP4) return _mm512_cvtph_ps(v);
    return mxfp4_scales_16(_mm512_cvtepu16_epi32(
        _mm256_mask_blend_epi16(0xaaaa, _mm256_and_si256(v, _mm256_set1_epi16(255)), _mm256_srli_epi16(v, 8))));
}

/* Of two superblocks of IQ4_XS. */
WF_INLINE __m512 iq4_xs_span(const kind t, const char *p)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(iq4_xs_scales(p)), iq4_xs_scales(p + t.bytes), 1);
}

/* Loads the scales of the span at p, and what their sums of x are multiplied with: minima, or the scales. */
WF_INLINE __m512 scales(const kind t, const char *p, __m512 *mins)
{
    if (has_k_scales(t.dtype)) return k_span(t, p, mins);
    const __m512 d = in_halves(t.dtype)     ? half_scales(t.dtype, p)
                     : t.dtype == WF_IQ4_XS ? iq4_xs_span(t, p)
                                            : block_scales(t, p);
    *mins = d;
    if (t.dtype == WF_Q2_K) *mins = _mm512_mul_ps(to_floats(q2_k_min_bytes(p)), half_at(p + 82));
    if (has_mins(t.dtype) && !in_supers(t.dtype))
        *mins = _mm512_xor_ps(block_scales(t, p + 2), _mm512_set1_ps(-0.0f)); /* added */
    return d;
}

/* Loads the activation scales of span s, which are of blocks. */
WF_INLINE __m512 x_scales(const kind t, const float *scale, size_t s)
{
    if (!in_halves(t.dtype)) return _mm512_loadu_ps(scale + 16 * s);
    __m512 eight = _mm512_castps256_ps512(_mm256_loadu_ps(scale + 8 * s));
    return _mm512_permutexvar_ps(_mm512_srli_epi32(lane_numbers(), 1), eight);
}

/* Index in the span of the scale of each lane of a sum of group i, which is of register r where each has one. */
WF_INLINE __m512i lanes_of(const kind t, const uint32_t i, const uint32_t r)
{
    const __m512i first = _mm512_set1_epi32((int)(t.units * i + (has_k_scales(t.dtype) ? r : 4 * r)));
    if (has_k_scales(t.dtype))
        return _mm512_add_epi32(first, _mm512_slli_epi32(_mm512_srli_epi32(lane_numbers(), 3), 1));
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
WF_INLINE void add_group(tile *a, const kind t, const char *p, size_t s, uint32_t i, const int r, const int mr,
                         const __m512 *scale)
{
    const uint32_t sums = has_low_first(t.dtype) ? 1 : t.regs, regs = t.regs / sums;
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

WF_INLINE size_t span_bytes_of(const kind t)
{
    return t.bytes * (in_halves(t.dtype) ? 1 : in_supers(t.dtype) ? 2 : SPAN);
}

/* Accumulates span s, whose weights are at w. */
WF_INLINE void add_span(tile *a, const kind t, const char *const w[PAIR], size_t s, const int nr, const int mr)
{
    const size_t step = in_supers(t.dtype) ? 0 : t.units * t.bytes; /* superblocks know the places of their groups */
    __m512 scale[PAIR][MOST_ROWS], mins;
    for (int r = 0; r < nr; r++) {
        const __m512 d = scales(t, w[r], &mins);
        for (int m = 0; m < mr; m++) {
            a->acc[r][m] = _mm512_fmadd_ps(mins, _mm512_loadu_ps(a->minus_sum[m] + 16 * s), a->acc[r][m]);
            scale[r][m] = _mm512_mul_ps(d, x_scales(t, a->scale[m], s));
        }
    }
    WF_UNROLL(8)
    for (uint32_t i = 0; i < SPAN / t.units; i++)
        for (int r = 0; r < nr; r++) add_group(a, t, w[r] + i * step, s, i, r, mr, scale[r]);
}

/* Fetches what follows. */
WF_INLINE void fetch_span(const char *w, const size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(w + FAR + i, 0, 2);
        __builtin_prefetch(w + NEAR + i, 0, 3);
    }
}

WF_INLINE void tile_of(const gemm *g, const uint8_t dtype, const char *w, uint32_t n, uint32_t m,
                       const int nr, const int mr)
{
    const kind t = kind_of(dtype);
    const size_t bytes = span_bytes_of(t), row_bytes = (size_t)g->k / (in_supers(dtype) ? 256 : 32) * t.bytes;
    char copy[PAIR][SPAN_MAX], room[PAIR][EXPANDED];
    tile a;
    for (int i = 0; i < mr; i++) {
        a.x[i] = g->xp + (m + i) * g->x_step;
        a.scale[i] = (const float *)(a.x[i] + (size_t)groups_of(t, g->k) * group_bytes(t));
        a.minus_sum[i] = a.scale[i] + blocks_of(g->k);
    }
    for (int r = 0; r < nr; r++) {
        a.w[r] = w + r * g->w_step;
        for (int i = 0; i < mr; i++) a.acc[r][i] = _mm512_setzero_ps();
    }
    for (size_t s = 0; s * bytes < row_bytes; s++) {
        const char *at[PAIR];
        const size_t left = row_bytes - s * bytes;
        for (int r = 0; r < nr; r++) {
            at[r] = a.w[r] + s * bytes;
            fetch_span(at[r], bytes);
            if (left < bytes) at[r] = padded(dtype, at[r], g->k % (SPAN * 32), copy[r], SPAN_MAX);
            at[r] = expanded(dtype, at[r], room[r]);
        }
        add_span(&a, t, at, s, nr, mr);
    }
    for (int r = 0; r < nr; r++)
        for (int i = 0; i < mr; i++) store_output(g, m + i, n + r, _mm512_reduce_add_ps(a.acc[r][i]));
}

/* Multiplies weight rows begin..end by all activation rows. With one activation row, weights are a plain stream, which
 * the hardware prefetches best. */
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

EACH_FORMAT(rows_of)

wf_cpu_scratch_size WF_SIMD(wf_cpu_gemm_int8_scratch)(const wf_call *c)
{
    return prep_scratch(c, WF_UP(row_step(kind_of(c->in[WF_GEMM_W].dtype), c->in[WF_GEMM_X].cols), (size_t)64));
}

void WF_SIMD(wf_cpu_gemm_int8)(const wf_cpu_work *work)
{
    gemm g = gemm_of(work);
    uint32_t begin, end;
    prepare(work, &g, WF_UP(row_step(kind_of(g.w->dtype), g.k), (size_t)64), prep_row);
    while (wf_cpu_next(work, g.n, chunk_of(work, &g), &begin, &end)) WITH_FORMAT(rows_of, &g, begin, end);
}
