/* GEMM for few rows: weights are read straight from the file's blocks, once, and each piece is used
 * for all activation rows while it is in the cache. Every output is one chain of sums over K in the
 * same order whatever the tile, the number of rows or of threads: one invariance class a level.
 *
 * rows  activations in F32; F32, F16 and BF16 weights are converted in registers, for many rows and
 *       for quantised weights NROW weight rows at a time in scratch memory.
 * int8  activations rounded once a call, in blocks of 32, to int8 and a second int8 for what the first
 *       left out; Q8_0, Q4_0 and Q6_K weights. One int8 alone puts an error of 1 to 2 % of the logits'
 *       range into a small model; the second takes it below 0.1 % for one more dot product.
 */
#include <math.h>
#include <string.h>

#include "cpu/ops/ops.h"
#include "cpu/simd/simd.h"

#define NROW        4                     /* weight rows of a tile */
#define MROW        (VREGS >= 32 ? 4 : 2) /* activation rows of a tile */
#define SMALL_PREP  16384u /* elements that each thread converts itself: cheaper than a barrier */
#define PANEL_ROWS  6u     /* activation rows from which F16 is worth a decoded copy */
#define CHUNK_BYTES (128u << 10) /* of weights handed to a thread at a time */

/* ---- what both share: operands, prepared activations, output --------------------------------- */

typedef struct gemm {
    const wf_view *x, *w, *bias, *residual, *y;
    uint32_t m, n, k;
    const char *xp; /* prepared activations */
    size_t x_step;  /* bytes a row there */
    const char *wp;
    size_t w_step;
    bool stream; /* tiles read wp itself */
} gemm;

static gemm gemm_of(const wf_cpu_work *work)
{
    const wf_call *c = work->call;
    gemm g = {&c->in[0], &c->in[1], &c->in[2], &c->in[3], &c->out[0]};
    g.m = g.y->rows;
    g.n = g.y->cols;
    g.k = g.x->cols;
    g.wp = wf_cpu_at(g.w);
    g.w_step = (size_t)((char *)wf_cpu_row(g.w, 1) - g.wp);
    g.stream = true;
    return g;
}

/* Fetches what the tile of the next NROW rows reads first while this one is `done` bytes into each
 * row and reads `bytes` of each: rows are too short for the processor to see a stream in them.
 * `near` is for the small ones, which do not push this tile's own data out of the first-level
 * cache. */
WF_INLINE void fetch_next(const char *w, size_t w_step, size_t done, size_t bytes, const bool near)
{
    const char *next = w + NROW * (w_step + done);
    for (size_t i = 0; i < NROW * bytes; i += 64)
        if (near)
            __builtin_prefetch(next + i, 0, 3);
        else
            __builtin_prefetch(next + i, 0, 2);
}

static void put(const gemm *g, uint32_t m, uint32_t n, float v)
{
    if (wf_cpu_has(g->bias)) v += ((const float *)wf_cpu_at(g->bias))[n];
    if (wf_cpu_has(g->residual)) v += ((const float *)wf_cpu_row(g->residual, m))[n];
    wf_cpu_put(g->y, wf_cpu_row(g->y, m), n, v);
}

static uint32_t chunk_of(const gemm *g)
{
    return WF_MAX(NROW, CHUNK_BYTES / (uint32_t)WF_MAX(g->w_step, 1u) / NROW * NROW);
}

/* Calls prep for every activation row; small ones are done by each thread in its own memory. */
static void prepare(const wf_cpu_work *work, gemm *g, size_t step,
                    void (*prep)(const gemm *, uint32_t m, void *dst))
{
    bool own = (uint64_t)g->m * g->k <= SMALL_PREP;
    char *dst = own ? work->own : work->shared;
    uint32_t begin = 0, end = g->m;
    if (!own) wf_cpu_part(work, g->m, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++) prep(g, m, dst + m * step);
    if (!own) wf_cpu_barrier(work);
    g->xp = dst;
    g->x_step = step;
}

static wf_cpu_need prep_need(const wf_call *c, size_t step)
{
    bool own = (uint64_t)c->out[0].rows * c->in[0].cols <= SMALL_PREP;
    size_t size = step * c->out[0].rows;
    return own ? (wf_cpu_need){.own = size} : (wf_cpu_need){.shared = size};
}

/* ---- rows: F32 activations ------------------------------------------------------------------- */

typedef vf (*load_fn)(const char *w, size_t k);

WF_INLINE vf load_f32(const char *w, size_t k)
{
    return v_load((const float *)w + k);
}
WF_INLINE vf load_f16(const char *w, size_t k)
{
    return v_load_f16((const uint16_t *)w + k);
}
WF_INLINE vf load_bf16(const char *w, size_t k)
{
    return v_load_bf16((const uint16_t *)w + k);
}

/* A vector of n < VL weights, the rest zero. */
WF_INLINE vf load_tail(load_fn load, size_t size, const char *w, size_t k, uint32_t n)
{
    char t[VL * 4] = {0};
    memcpy(t, w + k * size, n * size);
    return load(t, 0);
}

WF_INLINE void tile(const gemm *g, load_fn load, size_t size, const char *w, size_t w_step,
                    uint32_t n, uint32_t m, const int nr, const int mr)
{
    const char *x = g->xp + m * g->x_step;
    uint32_t k = 0, whole = g->k / VL * VL;
    const bool fetch = nr == NROW && m == 0 && g->stream;
    vf acc[NROW][4];
    for (int r = 0; r < nr; r++)
        for (int i = 0; i < mr; i++) acc[r][i] = v_zero();
    for (; k < whole; k += VL) {
        vf wv[NROW];
        if (fetch) fetch_next(w, w_step, k * size, VL * size, false);
        for (int r = 0; r < nr; r++) wv[r] = load(w + r * w_step, k);
        for (int i = 0; i < mr; i++) {
            vf xv = v_load((const float *)(x + i * g->x_step) + k);
            for (int r = 0; r < nr; r++) acc[r][i] = v_fma(wv[r], xv, acc[r][i]);
        }
    }
    if (k < g->k)
        for (int i = 0; i < mr; i++) {
            vf xv = v_load_n((const float *)(x + i * g->x_step) + k, g->k - k);
            for (int r = 0; r < nr; r++)
                acc[r][i] =
                    v_fma(load_tail(load, size, w + r * w_step, k, g->k - k), xv, acc[r][i]);
        }
    for (int i = 0; i < mr; i++)
        for (int r = 0; r < nr; r++) put(g, m + i, n + r, v_sum(acc[r][i]));
}

/* All activation rows against nr weight rows. */
WF_INLINE void strip(const gemm *g, load_fn load, size_t size, const char *w, size_t w_step,
                     uint32_t n, const int nr)
{
    uint32_t m = 0;
    for (; m + MROW <= g->m; m += MROW) tile(g, load, size, w, w_step, n, m, nr, MROW);
    if (MROW > 2 && m + 2 <= g->m) {
        tile(g, load, size, w, w_step, n, m, nr, 2);
        m += 2;
    }
    for (; m < g->m; m++) tile(g, load, size, w, w_step, n, m, nr, 1);
}

#define STRIPS(name, load, size)                                                                   \
    static void name(const gemm *g, const char *w, size_t w_step, uint32_t n, uint32_t nr)         \
    {                                                                                              \
        if (nr == NROW) {                                                                          \
            strip(g, load, size, w, w_step, n, NROW);                                              \
            return;                                                                                \
        }                                                                                          \
        for (uint32_t r = 0; r < nr; r++) strip(g, load, size, w + r * w_step, w_step, n + r, 1);  \
    }
STRIPS(strips_f32, load_f32, 4)
STRIPS(strips_f16, load_f16, 2)
STRIPS(strips_bf16, load_bf16, 2)

static void prep_f32(const gemm *g, uint32_t m, void *dst)
{
    wf_dtypes[g->x->dtype].decode(wf_cpu_row(g->x, m), dst, g->k);
}

static bool direct(uint8_t dtype, uint32_t m)
{
    return dtype == WF_F32 || ((dtype == WF_F16 || dtype == WF_BF16) && m < PANEL_ROWS);
}

static size_t rows_panel(const wf_call *c)
{
    if (direct(c->in[1].dtype, c->out[0].rows)) return 0;
    return WF_UP((size_t)c->in[0].cols * 4, (size_t)64) * NROW;
}

wf_cpu_need WF_SIMD(wf_cpu_gemm_rows_need)(const wf_call *c)
{
    wf_cpu_need need = {0};
    if (c->in[0].dtype != WF_F32) need = prep_need(c, (size_t)c->in[0].cols * 4);
    need.own = WF_UP(need.own, (size_t)64) + rows_panel(c);
    return need;
}

void WF_SIMD(wf_cpu_gemm_rows)(const wf_cpu_work *work)
{
    gemm g = gemm_of(work);
    wf_cpu_need need = WF_SIMD(wf_cpu_gemm_rows_need)(work->call);
    size_t step = WF_UP((size_t)g.k * 4, (size_t)64);
    char *panel = (char *)work->own + need.own - rows_panel(work->call);
    uint32_t begin, end;

    g.stream = direct(g.w->dtype, g.m);
    g.xp = wf_cpu_at(g.x);
    g.x_step = (size_t)g.x->stride * 4;
    if (g.x->dtype != WF_F32) prepare(work, &g, (size_t)g.k * 4, prep_f32);
    while (wf_cpu_next(work, g.n, chunk_of(&g), &begin, &end))
        for (uint32_t n = begin; n < end; n += NROW) {
            uint32_t nr = WF_MIN(NROW, end - n);
            const char *w = g.wp + n * g.w_step;
            if (g.stream) {
                if (g.w->dtype == WF_F32) strips_f32(&g, w, g.w_step, n, nr);
                if (g.w->dtype == WF_F16) strips_f16(&g, w, g.w_step, n, nr);
                if (g.w->dtype == WF_BF16) strips_bf16(&g, w, g.w_step, n, nr);
                continue;
            }
            for (uint32_t r = 0; r < nr; r++) WF_SIMD(wf_cpu_decode)
            (g.w->dtype, w + r * g.w_step, (float *)(panel + r * step), g.k);
            strips_f32(&g, panel, step, n, nr);
        }
}

/* ---- int8 ------------------------------------------------------------------------------------ */

/* A prepared row: two planes of K int8, each followed by K/4 int32 (what makes up for unsigned weights,
 * for each 4); then the K/32 scales. x = scale * (first + second * FINE). */
#define FINE (1.0f / 254)

static size_t int8_step(uint32_t k)
{
    return WF_UP((size_t)k * 4 + k / 8, (size_t)64);
}

/* Rounds 32 numbers; what is left of each stays in x. */
static void round_block(float *x, float factor, int offset, int8_t *q, int32_t *fix)
{
    for (int i = 0; i < 32; i++) {
        float scaled = x[i] * factor, whole = rintf(scaled);
        q[i] = (int8_t)whole;
        x[i] = scaled - whole;
    }
    for (int i = 0; i < 8; i++)
        fix[i] = -offset * (q[4 * i] + q[4 * i + 1] + q[4 * i + 2] + q[4 * i + 3]);
}

typedef struct xq {
    const int8_t *q[2];
    const int32_t *fix[2];
    const float *scale;
} xq;

static xq xq_at(const void *row, uint32_t k)
{
    const int8_t *q = row;
    xq x = {.q = {q, q + 2 * (size_t)k}};
    for (int plane = 0; plane < 2; plane++) x.fix[plane] = (const int32_t *)(x.q[plane] + k);
    x.scale = (const float *)(x.fix[1] + k / 4);
    return x;
}

static void prep_int8(const gemm *g, uint32_t m, void *dst)
{
    const int offset = g->w->dtype == WF_Q8_0 ? 128 : g->w->dtype == WF_Q4_0 ? 8 : 32;
    const char *row = wf_cpu_row(g->x, m);
    const size_t bytes = 32 * (size_t)wf_dtypes[g->x->dtype].block_bytes;
    xq to = xq_at(dst, g->k);
    for (uint32_t b = 0; b < g->k / 32; b++) {
        float x[32], top = 0;
        wf_dtypes[g->x->dtype].decode(row + b * bytes, x, 32);
        for (int i = 0; i < 32; i++) top = WF_MAX(top, fabsf(x[i]));
        for (int p = 0; p < 2; p++)
            round_block(x, p ? 1 / FINE : top > 0 ? 127 / top : 0, offset, (int8_t *)to.q[p] + 32 * b,
                        (int32_t *)to.fix[p] + 8 * b);
        ((float *)to.scale)[b] = top / 127;
    }
}

WF_INLINE void xq_rows(const gemm *g, uint32_t m, const int mr, xq *x)
{
    for (int i = 0; i < mr; i++) x[i] = xq_at(g->xp + (m + i) * g->x_step, g->k);
}

/* Both planes of block b times w. */
WF_INLINE qf dot_block(q8 w, const xq *x, uint32_t b, const bool is_signed)
{
    qf dot[2];
    for (int p = 0; p < 2; p++) {
        const int8_t *q = x->q[p] + 32 * b;
        const int32_t *fix = x->fix[p] + 8 * b;
        dot[p] = is_signed ? q_dot_signed(w, q, fix) : q_dot(w, q, fix);
    }
    return qf_fma(dot[1], qf_set(FINE), dot[0]);
}

/* One block of Q8_0 or Q4_0 of nr rows times mr rows. */
WF_INLINE void block32(const uint8_t dtype, const char *w, size_t w_step, uint32_t b, const xq *x,
                       const int nr, const int mr, const bool fetch, qf acc[NROW][4])
{
    const size_t bytes = dtype == WF_Q8_0 ? 34 : 18;
    if (fetch) fetch_next(w, w_step, b * bytes, bytes, dtype != WF_Q8_0);
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

/* One superblock of Q6_K: 16 scales, each of 16 elements. */
WF_INLINE void block256(const char *w, size_t w_step, uint32_t s, const xq *x, const int nr,
                        const int mr, const bool fetch, qf acc[NROW][4])
{
    if (fetch) fetch_next(w, w_step, (size_t)s * 210, 210, true);
    for (int r = 0; r < nr; r++) {
        const char *p = w + r * w_step + (size_t)s * 210;
        float scale[16];
        q_scales(p + 192, qf_half(p + 208), scale);
        WF_UNROLL(8)
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
    if (dtype == WF_Q6_K)
        for (uint32_t s = 0; s < g->k / 256; s++) block256(w, g->w_step, s, x, nr, mr, fetch, acc);
    else
        for (uint32_t b = 0; b < g->k / 32; b++)
            block32(dtype, w, g->w_step, b, x, nr, mr, fetch, acc);
    for (int i = 0; i < mr; i++)
        for (int r = 0; r < nr; r++) put(g, m + i, n + r, qf_sum(acc[r][i]));
}

WF_INLINE void int8_strip(const gemm *g, const uint8_t dtype, const char *w, uint32_t n,
                          const int nr)
{
    uint32_t m = 0;
    for (; m + MROW <= g->m; m += MROW) int8_tile(g, dtype, w, n, m, nr, MROW);
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
INT8_STRIPS(strips_q6_k, WF_Q6_K)

wf_cpu_need WF_SIMD(wf_cpu_gemm_int8_need)(const wf_call *c)
{
    return prep_need(c, int8_step(c->in[0].cols));
}

void WF_SIMD(wf_cpu_gemm_int8)(const wf_cpu_work *work)
{
    gemm g = gemm_of(work);
    uint32_t begin, end;
    prepare(work, &g, int8_step(g.k), prep_int8);
    while (wf_cpu_next(work, g.n, chunk_of(&g), &begin, &end))
        for (uint32_t n = begin; n < end; n += NROW) {
            uint32_t nr = WF_MIN(NROW, end - n);
            const char *w = g.wp + n * g.w_step;
            if (g.w->dtype == WF_Q8_0) strips_q8_0(&g, w, n, nr);
            if (g.w->dtype == WF_Q4_0) strips_q4_0(&g, w, n, nr);
            if (g.w->dtype == WF_Q6_K) strips_q6_k(&g, w, n, nr);
        }
}
