/* GEMM for few rows with quantised weights (blocks.h). Activations are quantised once per call, in blocks of 32, to a
 * hi int8 and a lo int8 for the remainder. With hi alone, logits of a small model have errors of 1 to 2 % of their
 * range; lo reduces that below 0.1 % for one more dot product. gemm_vnni.c and gemm_int16.c are the versions for x86.
 */
#include <math.h>
#include <string.h>

#include "cpu/ops/blocks.h"
#include "cpu/ops/gemm.h"
#include "tensor/quant/k_scales.h"

#define PANEL   256u
#define BLOCKS  (PANEL / 32)
#define ROW_MAX 320u /* most file bytes of one row of a panel, and what is read past them */
/* Activation rows of a tile; the sums stay in registers. */
#define INT8_MROW (VREGS * sizeof(vf) / sizeof(qf) >= 32 ? 4 : 2)

/* 256 k of a row of X: x = scale * (q[0] + q[1] * FINE). */
typedef struct x_panel {
    int8_t q[2][PANEL];
    int32_t comp[2][PANEL / 4]; /* compensation for the offset of the weights, for each four k */
    float scale[BLOCKS];
    float minus_sum[PANEL / 16]; /* what minima are multiplied with: sums of 16 or 32 k */
} x_panel;
#define FINE (1.0f / 254)

static uint32_t panels_of(uint32_t k)
{
    return WF_UP(k, PANEL) / PANEL;
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

static float sum_of(const float *x, uint32_t n)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += x[i];
    return sum;
}

/* Block b of a panel; x is overwritten. */
static void round_to(const uint8_t dtype, float *x, uint32_t b, x_panel *to)
{
    uint32_t most = 0, bits;
    float top; /* the largest size; NaN counts as the largest */
    for (int i = 0; i < 32; i++) memcpy(&bits, &x[i], sizeof bits), most = WF_MAX(most, bits & 0x7fffffffu);
    memcpy(&top, &most, sizeof top);
    if (in_halves(dtype)) to->minus_sum[2 * b] = -sum_of(x, 16), to->minus_sum[2 * b + 1] = -sum_of(x + 16, 16);
    else to->minus_sum[b] = -sum_of(x, 32);
    if (!isfinite(top)) memset(x, 0, 32 * sizeof *x); /* the scale carries the NaN or infinity */
    round_block(x, top > 0 ? 127 / top : 0, offset_of(dtype), to->q[0] + 32 * b, to->comp[0] + 8 * b);
    round_block(x, 1 / FINE, offset_of(dtype), to->q[1] + 32 * b, to->comp[1] + 8 * b);
    to->scale[b] = top / 127;
}

/* A row, padded with zeros to whole panels. */
static void prep_int8(const gemm *g, uint32_t m, void *dst)
{
    const char *row = wf_cpu_row(g->x, m);
    const size_t bytes = 32 * (size_t)wf_dtypes[g->x->dtype].block_bytes;
    for (uint32_t b = 0; b < panels_of(g->k) * BLOCKS; b++) {
        float x[32] = {0};
        if (b < g->k / 32) wf_dtypes[g->x->dtype].decode(row + b * bytes, x, 32);
        round_to(g->w->dtype, x, b % BLOCKS, (x_panel *)dst + b / BLOCKS);
    }
}

/* hi and lo of block b times w. */
WF_INLINE qf dot_block(q8 w, const x_panel *x, uint32_t b)
{
    qf hi = q_dot(w, x->q[0] + 32 * b, x->comp[0] + 8 * b), lo = q_dot(w, x->q[1] + 32 * b, x->comp[1] + 8 * b);
    return qf_fma(lo, qf_set(FINE), hi);
}

/* ---- scales: of each group of a panel of W, and its minimum ------------------------------------ */

/* Eight f16, `step` bytes apart. */
WF_INLINE void halves_at(const char *p, const size_t step, float *out)
{
    uint16_t half[BLOCKS];
    for (uint32_t b = 0; b < BLOCKS; b++) memcpy(&half[b], p + b * step, sizeof half[b]);
    for (uint32_t b = 0; b < BLOCKS; b += VL) v_store(out + b, v_load_f16(half + b));
}

WF_INLINE void block_scales(const uint8_t dtype, const char *p, float *scale, float *min)
{
    const size_t bytes = bytes_of(dtype);
    for (uint32_t b = 0; b < BLOCKS && dtype == WF_MXFP4; b++)
        scale[b] = wf_mxfp4_scale(((const uint8_t *)p)[b * bytes]);
    if (dtype != WF_MXFP4) halves_at(p, bytes, scale);
    if (!has_mins(dtype)) return;
    halves_at(p + 2, bytes, min);
    for (uint32_t b = 0; b < BLOCKS; b++) min[b] = -min[b]; /* these are added */
}

WF_INLINE void k_scales(const char *p, float *scale, float *min)
{
    uint8_t s[8], m[8];
    uint16_t d[2];
    memcpy(d, p, sizeof d);
    wf_k_scales_unpack(p + 4, s, m);
    for (int j = 0; j < 8; j++) scale[j] = wf_half_to_float(d[0]) * s[j], min[j] = wf_half_to_float(d[1]) * m[j];
}

WF_INLINE void q2_k_scales(const char *p, float *scale, float *min)
{
    uint8_t s[16], m[16];
    for (int j = 0; j < 16; j++) s[j] = (uint8_t)p[j] & 15, m[j] = (uint8_t)p[j] >> 4;
    q_scales(s, qf_half(p + half_scales_at(WF_Q2_K)), scale);
    q_scales(m, qf_half(p + 82), min);
}

/* Scales with a sign, of Q3_K or IQ4_XS. */
WF_INLINE void signed_scales(const uint8_t dtype, const char *p, float *scale)
{
    const uint8_t *of = (const uint8_t *)p;
    int8_t s[16] = {0};
    for (uint32_t g = 0; g < (in_halves(dtype) ? 16 : 8); g++)
        s[g] = (int8_t)(dtype == WF_Q3_K ? wf_q3_k_scale_at(of + 96, g) : wf_iq4_xs_scale_at(of + 2, g));
    q_scales(s, qf_half(p + (dtype == WF_Q3_K ? half_scales_at(dtype) : 0)), scale);
}

WF_INLINE void scales_of(const uint8_t dtype, const char *p, float *scale, float *min)
{
    if (!in_supers(dtype)) block_scales(dtype, p, scale, min);
    if (has_k_scales(dtype)) k_scales(p, scale, min);
    if (dtype == WF_Q2_K) q2_k_scales(p, scale, min);
    if (dtype == WF_Q3_K || dtype == WF_IQ4_XS) signed_scales(dtype, p, scale);
    if (dtype == WF_Q6_K || is_grid(dtype))
        q_scales(p + (is_grid(dtype) ? 256 : 192), half_scales_unit(dtype, p), scale);
}

/* ---- tiles ------------------------------------------------------------------------------------- */

/* A panel of one row, at w, times mr rows: the minima times the sums of x, then eight blocks. */
WF_INLINE void add_panel(const uint8_t dtype, const char *w, const x_panel *const x[4], uint32_t p, const int mr,
                         qf acc[4])
{
    float scale[16], min[16];
    char room[EXPANDED];
    w = expanded(dtype, w, room);
    scales_of(dtype, w, scale, min);
    for (uint32_t j = 0; j < (in_halves(dtype) ? 16 : 8) && has_mins(dtype); j += 8)
        for (int i = 0; i < mr; i++) acc[i] = qf_fma(qf_load(min + j), qf_load(x[i][p].minus_sum + j), acc[i]);
    WF_UNROLL(Q6K_UNROLL)
    for (uint32_t b = 0; b < BLOCKS; b++) {
        const q8 v = block_of(dtype, w, b);
        const qf d = in_halves(dtype) ? qf_pair(scale + 2 * b) : qf_set(scale[b]);
        for (int i = 0; i < mr; i++)
            acc[i] = qf_fma(dot_block(v, &x[i][p], b), qf_mul(d, qf_set(x[i][p].scale[b])), acc[i]);
    }
}

typedef void (*panel_fn)(const char *w, const x_panel *const x[4], uint32_t p, int mr, qf acc[4]);

/* A function for each format, not for each tile, which would take the compiler minutes. */
#define PANEL_OF(id, ...)                                                                          \
    static void panel_##id(const char *w, const x_panel *const x[4], uint32_t p, int mr, qf acc[4]) \
    {                                                                                              \
        if (mr == 1)                                                                               \
            add_panel(WF_##id, w, x, p, 1, acc);                                                       \
        else                                                                                       \
            add_panel(WF_##id, w, x, p, INT8_MROW, acc);                                               \
    }
WF_CPU_INTEGER_FORMATS(PANEL_OF, )

typedef struct int8_gemm {
    gemm g;
    panel_fn panel;
    size_t bytes; /* of a panel of W */
} int8_gemm;

static void int8_tile(const int8_gemm *a, uint32_t n, uint32_t m, int nr, int mr)
{
    const gemm *g = &a->g;
    const x_panel *x[4];
    char copy[ROW_MAX];
    qf acc[NROW][4];
    for (int i = 0; i < mr; i++) x[i] = (const x_panel *)(g->xp + (m + i) * g->x_step);
    for (int r = 0; r < nr; r++)
        for (int i = 0; i < mr; i++) acc[r][i] = qf_zero();
    for (uint32_t p = 0; p < panels_of(g->k); p++) {
        const char *w = g->wp + n * g->w_step + p * a->bytes;
        const bool whole = (p + 1) * PANEL <= g->k;
        if (nr == NROW && m == 0) fetch_next(w, g->w_step, 0, a->bytes, NROW, g->w->dtype != WF_Q8_0);
        for (int r = 0; r < nr; r++, w += g->w_step)
            a->panel(whole ? w : padded(g->w->dtype, w, g->k % PANEL, copy, ROW_MAX), x, p, mr, acc[r]);
    }
    for (int i = 0; i < mr; i++)
        for (int r = 0; r < nr; r++) store_output(g, m + i, n + r, qf_sum(acc[r][i]));
}

/* Rows n to n + nr of W by all of X. */
static void int8_strip(const int8_gemm *a, uint32_t n, int nr)
{
    uint32_t m = 0;
    for (; m + INT8_MROW <= a->g.m; m += INT8_MROW) int8_tile(a, n, m, nr, INT8_MROW);
    for (; m < a->g.m; m++) int8_tile(a, n, m, nr, 1);
}

wf_cpu_scratch_size WF_SIMD(wf_cpu_gemm_int8_scratch)(const wf_call *c)
{
    return prep_scratch(c, panels_of(c->in[WF_GEMM_X].cols) * sizeof(x_panel));
}

void WF_SIMD(wf_cpu_gemm_int8)(const wf_cpu_work *work)
{
    int8_gemm a = {.g = gemm_of(work)};
    uint32_t begin, end;
#define IF_DTYPE(id, ...)                                                                          \
    if (a.g.w->dtype == WF_##id) a.panel = panel_##id;
    WF_CPU_INTEGER_FORMATS(IF_DTYPE, )
    a.bytes = wf_dtype_bytes(a.g.w->dtype, PANEL);
    prepare(work, &a.g, panels_of(a.g.k) * sizeof(x_panel), prep_int8);
    while (wf_cpu_next(work, a.g.n, chunk_of(work, &a.g), &begin, &end)) {
        uint32_t n = begin;
        for (; n + NROW <= end; n += NROW) int8_strip(&a, n, NROW);
        for (; n < end; n++) int8_strip(&a, n, 1);
    }
}
