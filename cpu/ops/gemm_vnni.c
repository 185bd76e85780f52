/* GEMM for few rows with Q8_0, Q4_0, Q4_K, Q5_K and Q6_K weights and AVX-512 VNNI, 64 weights per instruction.
 *
 * Activations are quantised once per call to hi and lo int8 (hi_lo.h; gemm_int8.c explains why). A group of activations matches one or
 * two registers of weights, whose 16 lanes accumulate neighbouring products.
 *
 *   Q8_0  2 blocks, 8 lanes each          Q6_K  the same, 4 lanes for each of its 4 scales
 *   Q4_0  4 blocks, 4 lanes each: low nibbles in one register, high nibbles in the other
 *
 * Q4_K and Q5_K lie as Q8_0 once unpacked: low nibbles, then high ones. Their minima are multiplied with the sums of 32 activations.
 *
 * The instruction needs unsigned weights; comp holds the compensation for their offset. Scales are read for a span of 16 blocks at a
 * time and permuted to the lanes of each group.
 */
#include "cpu/ops/gemm.h"
#include "cpu/ops/hi_lo.h"

#define SPAN      16u /* blocks */
#define MOST_ROWS 4   /* activation rows of a tile */
#define PAIR      2 /* weight rows of a tile with several activation rows; otherwise 1 */
#define FAR       3072u /* L2 prefetch distance in bytes */
#define NEAR      768u  /* L1 prefetch distance in bytes */

typedef struct kind {
    uint8_t dtype;
    uint32_t blocks, regs; /* of a group: blocks of 32, and registers of weights */
    uint32_t units;        /* scales of a group */
    uint32_t bytes;        /* of a block of weights */
    int offset;            /* added to the weights */
} kind;

WF_INLINE kind kind_of(const uint8_t dtype)
{
    if (dtype == WF_Q8_0) return (kind){dtype, 2, 1, 2, 34, 128};
    if (dtype == WF_Q4_0) return (kind){dtype, 4, 2, 4, 18, 8};
    if (dtype == WF_Q4_K) return (kind){dtype, 2, 1, 2, 144, 0};
    if (dtype == WF_Q5_K) return (kind){dtype, 2, 1, 2, 176, 0};
    return (kind){dtype, 2, 1, 4, 210, 32};
}

/* Bytes of a prepared group: hi, lo, then the compensation. */
WF_INLINE uint32_t group_bytes(const kind t)
{
    return (2 * t.regs + 1) * 64;
}

static uint32_t groups_of(const kind t, uint32_t k)
{
    return (k / 32 + t.blocks - 1) / t.blocks;
}

/* Bytes of a prepared row: the groups, then the scales of whole spans, padded with zeros, and as many sums of x, negative. */
static size_t row_step(const kind t, uint32_t k)
{
    return (size_t)groups_of(t, k) * group_bytes(t) + 2 * WF_UP(k / 32, SPAN) * sizeof(float);
}

/* ---- activations ----------------------------------------------------------------------------- */

/* Offset of half a block, the group's `at`-th: 32 consecutive bytes, or for nibbles 16 in each register. */
static uint32_t place(const kind t, uint32_t at, uint32_t half)
{
    return t.regs == 1 ? 32 * at + 16 * half : 64 * half + 16 * at;
}

static void prep_group(const kind t, const float *x, uint32_t blocks, char *out, float *scale)
{
    const uint32_t hi_bytes = 64 * t.regs;
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i sum[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    memset(out, 0, group_bytes(t));
    for (uint32_t b = 0; b < blocks; b++) {
        int8_t q[2][32];
        scale[b] = round_block(x + 32 * b, q[0], q[1]);
        for (uint32_t p = 0; p < 2; p++)
            for (uint32_t half = 0; half < 2; half++)
                memcpy(out + p * hi_bytes + place(t, b, half), q[p] + 16 * half, 16);
    }
    for (uint32_t i = 0; i < 2 * t.regs; i++)
        sum[i / t.regs] =
            _mm512_dpbusd_epi32(sum[i / t.regs], ones, _mm512_loadu_si512(out + 64 * i));
    __m512i comp = _mm512_add_epi32(_mm512_slli_epi32(sum[0], 8), sum[1]);
    comp = _mm512_mullo_epi32(comp, _mm512_set1_epi32(-t.offset));
    _mm512_storeu_si512(out + 2 * hi_bytes, comp);
}

static float sum_of(const float *x)
{
    return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)));
}

static void prep(const gemm *g, uint32_t m, void *dst)
{
    const kind t = kind_of(g->w->dtype);
    const wf_dtype_info *in = &wf_dtypes[g->x->dtype];
    const char *row = wf_cpu_row(g->x, m);
    uint32_t blocks = g->k / 32, n = groups_of(t, g->k);
    float *scale = (float *)((char *)dst + (size_t)n * group_bytes(t)), x[128];
    float *minus_sum = scale + WF_UP(blocks, SPAN);
    memset(scale, 0, 2 * WF_UP(blocks, SPAN) * sizeof(float));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t b = i * t.blocks, here = WF_MIN(t.blocks, blocks - b);
        in->decode(row + (size_t)b * 32 * in->block_bytes, x, 32 * here);
        for (uint32_t k = 0; k < here; k++) minus_sum[b + k] = -sum_of(x + 32 * k);
        prep_group(t, x, here, (char *)dst + (size_t)i * group_bytes(t), scale + b);
    }
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Unpacks a group at p to unsigned bytes; Q6_K: pair i of 4 of the superblock at p; Q4_K, Q5_K: pair i of 8 of the two there. */
WF_INLINE void unpack(const uint8_t dtype, const char *p, const uint32_t i, __m512i *w)
{
    const __m512i low = _mm512_set1_epi8(15);
    if (dtype == WF_Q8_0) {
        w[0] = _mm512_xor_si512(load_2x32(p + 2, p + 36), _mm512_set1_epi8(-128));
    } else if (dtype == WF_Q4_0) {
        __m512i q = _mm512_castsi128_si512(load16(p + 2));
        q = _mm512_inserti32x4(q, load16(p + 20), 1);
        q = _mm512_inserti32x4(q, load16(p + 38), 2);
        q = _mm512_inserti32x4(q, load16(p + 56), 3);
        w[0] = _mm512_and_si512(q, low);
        w[1] = _mm512_and_si512(_mm512_srli_epi16(q, 4), low);
    } else if (has_mins(dtype)) {
        w[0] = k_bytes(dtype, p + i / 4 * kind_of(dtype).bytes, i % 4);
    } else {
        w[0] = q6_k_bytes(p, i);
    }
}

/* Dot product of one group of weights and one of activations. */
WF_INLINE __m512 dot(const kind t, const __m512i *w, const char *x)
{
    __m512i hi = _mm512_setzero_si512();
    __m512i lo = _mm512_loadu_si512(x + 128 * t.regs);
    for (uint32_t i = 0; i < t.regs; i++) {
        hi = _mm512_dpbusd_epi32(hi, w[i], _mm512_loadu_si512(x + 64 * i));
        lo = _mm512_dpbusd_epi32(lo, w[i], _mm512_loadu_si512(x + 64 * (t.regs + i)));
    }
    return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(hi, 8), lo));
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

/* Loads the scales of n blocks from p on; Q6_K: the 16 scales of a superblock. */
WF_INLINE __m512 scales(const kind t, const char *p, uint32_t n)
{
    if (t.dtype == WF_Q6_K) return q6_k_scales(p);
    const __m512i at = _mm512_mullo_epi32(_mm512_set1_epi32((int)t.bytes), lane_numbers());
    __mmask16 there = (__mmask16)((1u << n) - 1);
    __m512i d = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), there, at, p, 1);
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(d));
}

/* Loads the activation scales of span s; Q6_K has one scale per 16. */
WF_INLINE __m512 x_scales(const kind t, const float *scale, size_t s)
{
    if (t.dtype != WF_Q6_K) return _mm512_loadu_ps(scale + 16 * s);
    __m512 eight = _mm512_castps256_ps512(_mm256_loadu_ps(scale + 8 * s));
    return _mm512_permutexvar_ps(_mm512_srli_epi32(lane_numbers(), 1), eight);
}

/* ---- tiles ----------------------------------------------------------------------------------- */

typedef struct tile {
    const char *w[PAIR];
    const char *x[MOST_ROWS];
    const float *scale[MOST_ROWS], *minus_sum[MOST_ROWS];
    __m512 acc[PAIR][MOST_ROWS];
} tile;

/* Accumulates group i of span s, whose weights are at p. */
WF_INLINE void group(tile *a, const kind t, const char *p, size_t s, uint32_t i, const int r,
                     const int mr, const __m512 *scale)
{
    /* index of each lane's scale in the span */
    __m512i lanes = _mm512_srli_epi32(lane_numbers(), t.units == 2 ? 3 : 2);
    lanes = _mm512_add_epi32(lanes, _mm512_set1_epi32((int)(t.units * i)));
    size_t at = (s * (SPAN / t.units) + i) * group_bytes(t);
    __m512i w[2];
    unpack(t.dtype, p, i, w);
    for (int m = 0; m < mr; m++)
        a->acc[r][m] = _mm512_fmadd_ps(dot(t, w, a->x[m] + at),
                                       _mm512_permutexvar_ps(lanes, scale[m]), a->acc[r][m]);
}

/* Accumulates span s of n scales: SPAN, except at the end of a row. */
WF_INLINE void span(tile *a, const uint8_t dtype, size_t s, uint32_t n, const int nr, const int mr)
{
    const kind t = kind_of(dtype);
    const bool super = dtype == WF_Q6_K || has_mins(dtype); /* superblocks know the places of their groups */
    const size_t span_bytes = dtype == WF_Q6_K ? t.bytes : super ? 2 * t.bytes : SPAN * t.bytes;
    const size_t step = super ? 0 : t.units * t.bytes;
    __m512 scale[PAIR][MOST_ROWS];
    for (int r = 0; r < nr; r++)
        for (size_t i = 0; i < span_bytes; i += 64) {
            __builtin_prefetch(a->w[r] + s * span_bytes + FAR + i, 0, 2);
            __builtin_prefetch(a->w[r] + s * span_bytes + NEAR + i, 0, 3);
        }
    for (int r = 0; r < nr; r++) {
        __m512 mins, d = has_mins(dtype) ? k_span(t, a->w[r] + s * span_bytes, n, &mins) : scales(t, a->w[r] + s * span_bytes, n);
        for (int m = 0; m < mr && has_mins(dtype); m++) a->acc[r][m] = _mm512_fmadd_ps(mins, _mm512_loadu_ps(a->minus_sum[m] + 16 * s), a->acc[r][m]);
        for (int m = 0; m < mr; m++) scale[r][m] = _mm512_mul_ps(d, x_scales(t, a->scale[m], s));
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
        a.minus_sum[i] = a.scale[i] + WF_UP(g->k / 32, SPAN);
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
    while (wf_cpu_next(work, g.n, chunk_of(&g), &begin, &end)) WITH_FORMAT(rows_of, &g, begin, end);
}
