/* GEMM for few rows with Q8_0, Q4_0, Q4_K, Q5_K and Q6_K weights. Activations are quantised once per call, in blocks of 32, to a hi int8 and a lo
 * int8 for the remainder. With hi alone, logits of a small model have errors of 1 to 2 % of their range; lo reduces that below 0.1 %
 * for one more dot product. gemm_vnni.c is the version for AVX-512.
 */
#include <math.h>
#include <string.h>

#include "cpu/ops/gemm.h"
#include "tensor/quant/k_scales.h"

/* A prepared row: K hi int8, then K lo int8, each followed by K/4 int32 of compensation for unsigned weights; then K/32 scales, and as
 * many sums of x, negative, for formats that subtract a minimum. x = scale * (hi + lo * FINE). */
#define FINE (1.0f / 254)
/* Activation rows of a tile; the sums stay in registers. */
#define INT8_MROW (VREGS * sizeof(vf) / sizeof(qf) >= 32 ? 4 : 2)

static size_t int8_step(uint32_t k)
{
    return WF_UP((size_t)k * 4 + k / 4, (size_t)64);
}

/* Rounds 32 numbers; x keeps the remainders. */
static void round_block(float *x, float factor, int offset, int8_t *q, int32_t *comp)
{
    for (int i = 0; i < 32; i++) {
        float scaled = x[i] * factor, whole = rintf(scaled);
        q[i] = (int8_t)whole;
        x[i] = scaled - whole;
    }
    for (int i = 0; i < 8; i++)
        comp[i] = -offset * (q[4 * i] + q[4 * i + 1] + q[4 * i + 2] + q[4 * i + 3]);
}

/* Largest absolute value of 32 numbers; NaN counts as the largest. */
static float max_abs(const float *x)
{
    uint32_t top = 0, bits;
    float size;
    for (int i = 0; i < 32; i++) {
        memcpy(&bits, &x[i], sizeof bits);
        top = WF_MAX(top, bits & 0x7fffffffu);
    }
    memcpy(&size, &top, sizeof size);
    return size;
}

typedef struct xq {
    const int8_t *q[2];
    const int32_t *comp[2];
    const float *scale, *minus_sum;
} xq;

static xq xq_at(const void *row, uint32_t k)
{
    const int8_t *q = row;
    xq x = {.q = {q, q + 2 * (size_t)k}};
    for (int part = 0; part < 2; part++) x.comp[part] = (const int32_t *)(x.q[part] + k);
    x.scale = (const float *)(x.comp[1] + k / 4);
    x.minus_sum = x.scale + k / 32;
    return x;
}

/* What is added to the weights to make them unsigned. */
static int offset_of(uint8_t dtype)
{
    return dtype == WF_Q8_0 ? 128 : dtype == WF_Q4_0 ? 8 : dtype == WF_Q6_K ? 32 : 0;
}

static float sum_of(const float *x)
{
    float sum = 0;
    for (int i = 0; i < 32; i++) sum += x[i];
    return sum;
}

static void prep_int8(const gemm *g, uint32_t m, void *dst)
{
    const int offset = offset_of(g->w->dtype);
    const char *row = wf_cpu_row(g->x, m);
    const size_t bytes = 32 * (size_t)wf_dtypes[g->x->dtype].block_bytes;
    xq to = xq_at(dst, g->k);
    for (uint32_t b = 0; b < g->k / 32; b++) {
        float x[32];
        wf_dtypes[g->x->dtype].decode(row + b * bytes, x, 32);
        const float top = max_abs(x);
        ((float *)to.minus_sum)[b] = -sum_of(x);
        if (!isfinite(top)) memset(x, 0, sizeof x); /* the scale carries the NaN or infinity */
        for (int p = 0; p < 2; p++)
            round_block(x,
                        p         ? 1 / FINE
                        : top > 0 ? 127 / top
                                  : 0,
                        offset, (int8_t *)to.q[p] + 32 * b, (int32_t *)to.comp[p] + 8 * b);
        ((float *)to.scale)[b] = top / 127;
    }
}

WF_INLINE void xq_rows(const gemm *g, uint32_t m, const int mr, xq *x)
{
    for (int i = 0; i < mr; i++) x[i] = xq_at(g->xp + (m + i) * g->x_step, g->k);
}

/* hi and lo of block b times w. */
WF_INLINE qf dot_block(q8 w, const xq *x, uint32_t b, const bool is_signed)
{
    qf dot[2];
    for (int p = 0; p < 2; p++) {
        const int8_t *q = x->q[p] + 32 * b;
        const int32_t *comp = x->comp[p] + 8 * b;
        dot[p] = is_signed ? q_dot_signed(w, q, comp) : q_dot(w, q, comp);
    }
    return qf_fma(dot[1], qf_set(FINE), dot[0]);
}

/* One block of Q8_0 or Q4_0 of nr rows times mr rows. */
WF_INLINE void block32(const uint8_t dtype, const char *w, size_t w_step, uint32_t b, const xq *x,
                       const int nr, const int mr, const bool fetch, qf acc[NROW][4])
{
    const size_t bytes = dtype == WF_Q8_0 ? 34 : 18;
    if (fetch) fetch_next(w, w_step, b * bytes, bytes, NROW, dtype != WF_Q8_0);
    for (int r = 0; r < nr; r++) {
        const char *p = w + r * w_step + b * bytes;
        q8 wv = dtype == WF_Q8_0 ? q_load(p + 2) : q_nibbles(p + 2);
        qf d = qf_half(p);
        for (int i = 0; i < mr; i++) {
            qf dot = dot_block(wv, &x[i], b, dtype == WF_Q8_0);
            acc[r][i] = qf_fma(dot, qf_mul(d, qf_set(x[i].scale[b])), acc[r][i]);
        }
    }
}

/* The eight scales and minima of a superblock of Q4_K or Q5_K. */
WF_INLINE void k_scales(const char *p, float scale[8], float min[8])
{
    uint8_t s[8], m[8];
    uint16_t d[2];
    memcpy(d, p, sizeof d);
    wf_k_scales_unpack(p + 4, s, m);
    for (int j = 0; j < 8; j++) scale[j] = wf_half_to_float(d[0]) * s[j], min[j] = wf_half_to_float(d[1]) * m[j];
}

/* One superblock of Q4_K or Q5_K: the minima times the sums of x, then eight blocks. */
WF_INLINE void block_mins(const uint8_t dtype, const char *w, size_t w_step, uint32_t s, const xq *x, const int nr, const int mr, const bool fetch,
                          qf acc[NROW][4])
{
    const size_t bytes = dtype == WF_Q4_K ? 144 : 176;
    if (fetch) fetch_next(w, w_step, s * bytes, bytes, NROW, true);
    for (int r = 0; r < nr; r++) {
        const char *p = w + r * w_step + s * bytes;
        float scale[8], min[8];
        k_scales(p, scale, min);
        for (int i = 0; i < mr; i++) acc[r][i] = qf_fma(qf_load(min), qf_load(x[i].minus_sum + 8 * s), acc[r][i]);
        WF_UNROLL(Q6K_UNROLL)
        for (uint32_t j = 0; j < 8; j++) {
            q8 wv = dtype == WF_Q4_K ? q_4k(p + 16, j) : q_5k(p + 48, p + 16, j);
            uint32_t b = 8 * s + j;
            for (int i = 0; i < mr; i++)
                acc[r][i] = qf_fma(dot_block(wv, &x[i], b, false), qf_set(scale[j] * x[i].scale[b]), acc[r][i]);
        }
    }
}

/* One superblock of Q6_K: 16 scales, each of 16 elements. */
WF_INLINE void block256(const char *w, size_t w_step, uint32_t s, const xq *x, const int nr,
                        const int mr, const bool fetch, qf acc[NROW][4])
{
    if (fetch) fetch_next(w, w_step, (size_t)s * 210, 210, NROW, true);
    for (int r = 0; r < nr; r++) {
        const char *p = w + r * w_step + (size_t)s * 210;
        float scale[16];
        q_scales(p + 192, qf_half(p + 208), scale);
        WF_UNROLL(Q6K_UNROLL)
        for (uint32_t j = 0; j < 8; j++) {
            q8 wv = q_6k(p, j);
            qf sv = qf_pair(scale + 2 * j);
            uint32_t b = 8 * s + j;
            for (int i = 0; i < mr; i++) {
                qf dot = dot_block(wv, &x[i], b, false);
                acc[r][i] = qf_fma(dot, qf_mul(sv, qf_set(x[i].scale[b])), acc[r][i]);
            }
        }
    }
}

WF_INLINE void int8_tile(const gemm *g, const uint8_t dtype, const char *w, uint32_t n, uint32_t m,
                         const int nr, const int mr)
{
    const bool fetch = nr == NROW && m == 0;
    xq x[4];
    qf acc[NROW][4];
    xq_rows(g, m, mr, x);
    for (int r = 0; r < nr; r++)
        for (int i = 0; i < mr; i++) acc[r][i] = qf_zero();
    if (dtype == WF_Q4_K || dtype == WF_Q5_K)
        for (uint32_t s = 0; s < g->k / 256; s++) block_mins(dtype, w, g->w_step, s, x, nr, mr, fetch, acc);
    else if (dtype == WF_Q6_K)
        for (uint32_t s = 0; s < g->k / 256; s++) block256(w, g->w_step, s, x, nr, mr, fetch, acc);
    else
        for (uint32_t b = 0; b < g->k / 32; b++)
            block32(dtype, w, g->w_step, b, x, nr, mr, fetch, acc);
    for (int i = 0; i < mr; i++)
        for (int r = 0; r < nr; r++) store_output(g, m + i, n + r, qf_sum(acc[r][i]));
}

WF_INLINE void int8_strip(const gemm *g, const uint8_t dtype, const char *w, uint32_t n,
                          const int nr)
{
    uint32_t m = 0;
    for (; m + INT8_MROW <= g->m; m += INT8_MROW) int8_tile(g, dtype, w, n, m, nr, INT8_MROW);
    for (; m < g->m; m++) int8_tile(g, dtype, w, n, m, nr, 1);
}

#define INT8_STRIPS(name, dtype)                                                                   \
    static void name(const gemm *g, const char *w, uint32_t n, uint32_t nr)                        \
    {                                                                                              \
        if (nr == NROW) {                                                                          \
            int8_strip(g, dtype, w, n, NROW);                                                      \
            return;                                                                                \
        }                                                                                          \
        for (uint32_t r = 0; r < nr; r++) int8_strip(g, dtype, w + r * g->w_step, n + r, 1);       \
    }
INT8_STRIPS(strips_q8_0, WF_Q8_0)
INT8_STRIPS(strips_q4_0, WF_Q4_0)
INT8_STRIPS(strips_q4_k, WF_Q4_K)
INT8_STRIPS(strips_q5_k, WF_Q5_K)
INT8_STRIPS(strips_q6_k, WF_Q6_K)

wf_cpu_scratch_size WF_SIMD(wf_cpu_gemm_int8_scratch)(const wf_call *c)
{
    return prep_scratch(c, int8_step(c->in[WF_GEMM_X].cols));
}

void WF_SIMD(wf_cpu_gemm_int8)(const wf_cpu_work *work)
{
    gemm g = gemm_of(work);
    uint32_t begin, end;
    prepare(work, &g, int8_step(g.k), prep_int8);
    while (wf_cpu_next(work, g.n, chunk_of(work, &g), &begin, &end))
        for (uint32_t n = begin; n < end; n += NROW) {
            uint32_t nr = WF_MIN(NROW, end - n);
            const char *w = g.wp + n * g.w_step;
            if (g.w->dtype == WF_Q8_0) strips_q8_0(&g, w, n, nr);
            if (g.w->dtype == WF_Q4_0) strips_q4_0(&g, w, n, nr);
            if (g.w->dtype == WF_Q4_K) strips_q4_k(&g, w, n, nr);
            if (g.w->dtype == WF_Q5_K) strips_q5_k(&g, w, n, nr);
            if (g.w->dtype == WF_Q6_K) strips_q6_k(&g, w, n, nr);
        }
}
