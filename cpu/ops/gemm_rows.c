/* GEMM for few rows with F32 activations. F32, F16 and BF16 weights are converted in registers. With more rows, except on AVX-512, and for
 * quantised weights, NROW weight rows at a time are decoded to scratch: on AVX2 those of F16 and BF16 by the first tile that meets them.
 */
#include "cpu/simd/simd.h"

#define IS_AVX2   (WF_LEVEL_ID == WF_LEVEL_IS_avx2)
#define IS_AVX512 (WF_LEVEL_ID == WF_LEVEL_IS_avx512)
#if WF_LEVEL_ID == WF_LEVEL_IS_avx2 /* twelve sums, three rows of W and one of X take its 16 registers */
#define NROW 3
#define MROW 4
#define UNIT 6 /* pairs for one row of X */
#endif
#include "cpu/ops/gemm.h"

/* From this many activation rows on, decoding F16 to scratch before they are multiplied pays. On AVX-512 it does not: the tile converts less than
 * it multiplies, and decoded rows of W would take the first cache from X. */
#define PANEL_ROWS (IS_AVX2 || IS_AVX512 ? UINT32_MAX : 6u)
/* With many rows of X, those that meet a chunk of W before the next ones do stay in the second cache, and chunks are larger. */
#define X_BYTES     (384u << 10)
#define MANY_CHUNKS 4u
#define LEAST_TURNS 4u /* chunks of a thread, so that none waits long for the others */

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

/* Rows that a tile has left in the order in which it reads them: VL weights of each in turn, the last ones padded with zeros. */
WF_INLINE vf load_kept(const char *w, size_t k)
{
    return v_load((const float *)w + k * NROW);
}

/* Loads n < VL weights and pads with zeros. */
WF_INLINE vf load_tail(load_fn load, size_t size, const char *w, size_t k, uint32_t n)
{
    char t[VL * 4] = {0};
    if (load == load_kept) return load(w, k);
    memcpy(t, w + k * size, n * size);
    return load(t, 0);
}

/* acc[] of a tile needs constant indices everywhere, or gcc for ARM, and any gcc with address sanitizer, keep it in memory: with the latter
 * products take more than twice as long. */
#define UNROLL WF_PRAGMA(GCC unroll 4)

/* What tiles do beside their sums. */
typedef struct beside {
    float *keep;      /* where to leave rows of W as load_kept() reads them, or NULL */
    const char *next; /* what to prefetch, `each` bytes with VL weights of a row */
    size_t each;      /* or 0 */
} beside;

WF_INLINE void keep_weights(float *keep, size_t k, const vf wv[NROW], const int nr)
{
    UNROLL
    for (int r = 0; keep && r < nr; r++) v_store(keep + k * NROW + r * VL, wv[r]);
}

WF_INLINE void tile(const gemm *g, load_fn load, size_t size, const char *w, size_t w_step,
                    uint32_t n, uint32_t m, const int nr, const int mr, beside also)
{
    const char *x = g->xp + m * g->x_step;
    uint32_t k = 0, whole = g->k / VL * VL;
    const bool fetch = nr > 1 && m == 0 && g->stream && !also.each;
    vf acc[NROW][MROW];
    UNROLL
    for (int r = 0; r < nr; r++) {
        UNROLL
        for (int i = 0; i < mr; i++) acc[r][i] = v_zero();
    }
    for (; k < whole; k += VL) {
        vf wv[NROW];
        if (fetch) fetch_next(w, w_step, k * size, VL * size, nr, false);
        if (also.each) __builtin_prefetch(also.next, 0, 2), also.next += also.each;
        UNROLL
        for (int r = 0; r < nr; r++) wv[r] = load(w + r * w_step, k);
        UNROLL
        for (int i = 0; i < mr; i++) {
            vf xv = v_load((const float *)(x + i * g->x_step) + k);
            UNROLL
            for (int r = 0; r < nr; r++) acc[r][i] = v_fma(wv[r], xv, acc[r][i]);
        }
        keep_weights(also.keep, k, wv, nr);
    }
    if (k < g->k) {
        vf wv[NROW];
        UNROLL
        for (int r = 0; r < nr; r++) wv[r] = load_tail(load, size, w + r * w_step, k, g->k - k);
        UNROLL
        for (int i = 0; i < mr; i++) {
            vf xv = v_load_n((const float *)(x + i * g->x_step) + k, g->k - k);
            UNROLL
            for (int r = 0; r < nr; r++) acc[r][i] = v_fma(wv[r], xv, acc[r][i]);
        }
        keep_weights(also.keep, k, wv, nr);
    }
    float sum[NROW][MROW];
    UNROLL
    for (int r = 0; r < nr; r++) {
        UNROLL
        for (int i = 0; i < mr; i++) sum[r][i] = v_reduce_add(acc[r][i]);
    }
    for (int i = 0; i < mr; i++)
        for (int r = 0; r < nr; r++) store_output(g, m + i, n + r, sum[r][i]);
}

/* Activation rows. */
typedef struct range {
    uint32_t begin, end;
} range;

/* Multiplies nr weight rows by the activation rows `of`. */
WF_INLINE void strip(const gemm *g, load_fn load, size_t size, const char *w, size_t w_step,
                     uint32_t n, range of, const int nr, beside also)
{
    const size_t share = g->k / VL * also.each;
    uint32_t m = of.begin;
    for (; m + MROW <= of.end; m += MROW, also.next += share) tile(g, load, size, w, w_step, n, m, nr, MROW, also);
    if (MROW > 2 && m + 2 <= of.end) {
        tile(g, load, size, w, w_step, n, m, nr, 2, also);
        m += 2, also.next += share;
    }
    for (; m < of.end; m++, also.next += share) tile(g, load, size, w, w_step, n, m, nr, 1, also);
}

/* The same with more rows than a tile has: the first tile leaves W decoded for the others. All prefetch a share of the next rows of W, for in one
 * tile they are more than memory delivers. */
WF_INLINE void strip_once(const gemm *g, load_fn load, size_t size, const char *w, uint32_t n, range of, float *keep)
{
    const uint32_t rows = of.end - of.begin, tiles = rows / MROW + rows % MROW / 2 + rows % 2;
    beside also = {keep, w + NROW * g->w_step, (NROW * VL * size + tiles - 1) / tiles};
    tile(g, load, size, w, g->w_step, n, of.begin, NROW, MROW, also);
    also.keep = NULL;
    also.next += g->k / VL * also.each;
    strip(g, load_kept, 0, (const char *)keep, VL * sizeof(float), n, (range){of.begin + MROW, of.end}, NROW, also);
}

/* Weight rows at a time for a single row of X: fewer are easier to prefetch. */
#define LONE 2

/* keep: room for decoded rows, or NULL. */
#define STRIPS(name, load, size)                                                                                  \
    static void name(const gemm *g, const char *w, size_t w_step, uint32_t n, uint32_t nr, range of, float *keep) \
    {                                                                                                             \
        const beside none = {NULL, w, 0};                                                                         \
        if (nr == LONE && g->m == 1) {                                                                            \
            strip(g, load, size, w, w_step, n, of, LONE, none);                                                   \
        } else if (IS_AVX2 && nr == NROW && keep && of.end - of.begin > MROW) {                                   \
            strip_once(g, load, size, w, n, of, keep);                                                            \
        } else if (nr == NROW) {                                                                                  \
            strip(g, load, size, w, w_step, n, of, NROW, none);                                                   \
        } else {                                                                                                  \
            for (uint32_t r = 0; r < nr; r++) strip(g, load, size, w + r * w_step, w_step, n + r, of, 1, none);   \
        }                                                                                                         \
    }
STRIPS(strips_f32, load_f32, 4)
STRIPS(strips_f16, load_f16, 2)
STRIPS(strips_bf16, load_bf16, 2)

static void prep_f32(const gemm *g, uint32_t m, void *dst)
{
    wf_dtypes[g->x->dtype].decode(wf_cpu_row(g->x, m), dst, g->k);
}

static bool is_half(uint8_t dtype)
{
    return dtype == WF_F16 || dtype == WF_BF16;
}

static bool direct(uint8_t dtype, uint32_t m)
{
    return dtype == WF_F32 || (is_half(dtype) && m < PANEL_ROWS);
}

static size_t rows_panel(const wf_call *c)
{
    const uint8_t dtype = c->in[WF_GEMM_W].dtype;
    if (direct(dtype, c->out[WF_GEMM_Y].rows) && !(IS_AVX2 && is_half(dtype))) return 0;
    return WF_UP((size_t)c->in[WF_GEMM_X].cols * 4, (size_t)64) * NROW;
}

wf_cpu_scratch_size WF_SIMD(wf_cpu_gemm_rows_scratch)(const wf_call *c)
{
    wf_cpu_scratch_size size = {0};
    if (c->in[WF_GEMM_X].dtype != WF_F32) size = prep_scratch(c, (size_t)c->in[WF_GEMM_X].cols * 4);
    size.per_thread = WF_UP(size.per_thread, (size_t)64) + rows_panel(c);
    return size;
}

/* Weight rows begin..end, read where they are, times the activation rows `of`. */
static void stream_columns(const gemm *g, uint32_t begin, uint32_t end, range of, char *panel)
{
    const uint32_t rows = g->m == 1 ? LONE : NROW;
    for (uint32_t n = begin; n < end; n += rows) {
        const uint32_t nr = WF_MIN(rows, end - n);
        const char *w = g->wp + n * g->w_step;
        if (g->w->dtype == WF_F32) strips_f32(g, w, g->w_step, n, nr, of, NULL);
        if (g->w->dtype == WF_F16) strips_f16(g, w, g->w_step, n, nr, of, (float *)panel);
        if (g->w->dtype == WF_BF16) strips_bf16(g, w, g->w_step, n, nr, of, (float *)panel);
    }
}

/* The same with decoded rows, and all activation rows, for which they are decoded once. */
static void decode_columns(const gemm *g, uint32_t begin, uint32_t end, char *panel)
{
    const size_t step = WF_UP((size_t)g->k * 4, (size_t)64);
    for (uint32_t n = begin; n < end; n += NROW) {
        const uint32_t nr = WF_MIN(NROW, end - n);
        for (uint32_t r = 0; r < nr; r++) WF_SIMD(wf_cpu_decode)
        (g->w->dtype, g->wp + (n + r) * g->w_step, (float *)(panel + r * step), g->k);
        strips_f32(g, panel, step, n, nr, (range){0, g->m}, NULL);
    }
}

static uint32_t block_of(const gemm *g)
{
    return WF_MAX((uint32_t)MROW, X_BYTES / (uint32_t)WF_MAX(g->x_step, 1u) / MROW * MROW);
}

/* With many rows of X, as many more as leave each thread some turns. */
static uint32_t chunk_for(const wf_cpu_work *work, const gemm *g)
{
    const uint32_t chunk = chunk_of(work, g), most = g->n / (work->n * LEAST_TURNS) / UNIT * UNIT;
    if (!g->stream || g->m <= block_of(g)) return chunk;
    return WF_MAX(chunk, WF_MIN(chunk * MANY_CHUNKS, most));
}

static void columns(const gemm *g, uint32_t begin, uint32_t end, char *panel)
{
    const uint32_t block = block_of(g);
    if (!g->stream) decode_columns(g, begin, end, panel);
    for (uint32_t m = 0; g->stream && m < g->m; m += block) stream_columns(g, begin, end, (range){m, WF_MIN(g->m, m + block)}, panel);
}

void WF_SIMD(wf_cpu_gemm_rows)(const wf_cpu_work *work)
{
    gemm g = gemm_of(work);
    wf_cpu_scratch_size size = WF_SIMD(wf_cpu_gemm_rows_scratch)(work->call);
    char *panel = (char *)work->per_thread + size.per_thread - rows_panel(work->call);
    uint32_t begin, end;

    g.stream = direct(g.w->dtype, g.m);
    g.xp = wf_cpu_at(g.x);
    g.x_step = (size_t)g.x->stride * 4;
    if (g.x->dtype != WF_F32) prepare(work, &g, (size_t)g.k * 4, prep_f32);
    while (wf_cpu_next(work, g.n, chunk_for(work, &g), &begin, &end)) columns(&g, begin, end, panel);
}
