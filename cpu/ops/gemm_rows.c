/* GEMM for few rows with F32 activations. F32, F16 and BF16 weights are converted in registers. With more rows, and for
 * quantised weights, NROW weight rows at a time are decoded to scratch: those of F16 and BF16 by the first tile that
 * meets them, on AVX2 and AVX-512. On AVX-512 several rows of X are taken some columns at a time, which stay in the
 * first cache.
 */
#include "cpu/ops/simd.h"

#define IS_AVX2   (WF_LEVEL_ID == WF_LEVEL_IS_avx2)
#define IS_AVX512 (WF_LEVEL_ID == WF_LEVEL_IS_avx512)
#define KEEPS     (IS_AVX2 || IS_AVX512)
#if WF_LEVEL_ID == WF_LEVEL_IS_avx2 /* twelve sums, three rows of W and one of X take its 16 registers */
#define NROW 3
#define MROW 4
#define UNIT 6 /* pairs for one row of X */
#endif
#include "cpu/ops/gemm.h"

/* From this many activation rows on, decoding F16 to scratch before they are multiplied pays where tiles keep nothing.
 */
#define PANEL_ROWS (KEEPS ? UINT32_MAX : 6u)
/* With many rows of X, those that meet a chunk of W before the next ones do stay in the second cache, and chunks are
 * larger. */
#define X_BYTES     (384u << 10)
#define MANY_CHUNKS 4u
/* Blocks of X that stay in the first cache: with 32 KB of its 48 rows of W have no room, with 16 there are more sums to
 * keep. */
#define BLOCK_BYTES (24u << 10)
#define BLOCK_ROWS  16u
#define CHUNK_ROWS  (IS_AVX512 ? 128u : UINT32_MAX) /* of W, at most: sums of all of them are kept */
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

/* Rows that a tile has left in the order in which it reads them: VL weights of each in turn, the last ones padded with
 * zeros. */
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

/* acc[] of a tile needs constant indices everywhere, or gcc for ARM, and any gcc with address sanitizer, keep it in
 * memory: with the latter products take more than twice as long. */
#define UNROLL WF_PRAGMA(GCC unroll 4)

typedef struct range {
    uint32_t begin, end;
} range;

/* The columns of a tile, and what it does beside its sums. */
typedef struct pass {
    range k;
    /* Where those of earlier columns are, VL for each, and where to leave these unless they are the last columns. */
    float *sums;
    float *keep;      /* where to leave rows of W as load_kept() reads them, or NULL */
    const char *next; /* what to prefetch, or NULL: as many rows of W as the tile has, or if `each` is not 0, */
    size_t each;      /* that many bytes with VL weights of a row */
} pass;

/* Prefetches the line that the weights `at` bytes on lie in, of each of the rows once. */
WF_INLINE void fetch_rows(const char *next, size_t w_step, size_t at, const size_t bytes, const int nr)
{
    const int turns = 64 / bytes, turn = at / bytes % turns;
    for (int r = turn; r < nr; r += turns) __builtin_prefetch(next + r * w_step + at, 0, 2);
}

WF_INLINE void keep_weights(float *keep, size_t k, const vf wv[NROW], const int nr)
{
    UNROLL
    for (int r = 0; keep && r < nr; r++) v_store(keep + k * NROW + r * VL, wv[r]);
}

WF_INLINE void begin_sums(vf acc[NROW][MROW], const float *before, const int nr, const int mr)
{
    UNROLL
    for (int r = 0; r < nr; r++) {
        UNROLL
        for (int i = 0; i < mr; i++) acc[r][i] = before ? v_load(before + (r * mr + i) * VL) : v_zero();
    }
}

WF_INLINE void leave_sums(vf acc[NROW][MROW], float *sums, const int nr, const int mr)
{
    UNROLL
    for (int r = 0; r < nr; r++) {
        UNROLL
        for (int i = 0; i < mr; i++) v_store(sums + (r * mr + i) * VL, acc[r][i]);
    }
}

WF_INLINE void end_sums(const gemm *g, vf acc[NROW][MROW], uint32_t n, uint32_t m, const int nr, const int mr)
{
    float sum[NROW][MROW];
    UNROLL
    for (int r = 0; r < nr; r++) {
        UNROLL
        for (int i = 0; i < mr; i++) sum[r][i] = v_reduce_add(acc[r][i]);
    }
    for (int i = 0; i < mr; i++)
        for (int r = 0; r < nr; r++) store_output(g, m + i, n + r, sum[r][i]);
}

WF_INLINE void rows_tile(const gemm *g, load_fn load, size_t size, const char *w, size_t w_step,
                    uint32_t n, uint32_t m, const int nr, const int mr, pass also)
{
    const char *x = g->xp + m * g->x_step;
    uint32_t k = also.k.begin, whole = also.k.end / VL * VL;
    vf acc[NROW][MROW];
    begin_sums(acc, k ? also.sums : NULL, nr, mr);
    for (; k < whole; k += VL) {
        vf wv[NROW];
        if (also.each) __builtin_prefetch(also.next, 0, 2), also.next += also.each;
        else if (also.next && nr > 1) fetch_rows(also.next, w_step, (k - also.k.begin) * size, VL * size, nr);
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
    if (k < also.k.end) {
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
    if (also.k.end < g->k) leave_sums(acc, also.sums, nr, mr);
    else end_sums(g, acc, n, m, nr, mr);
}

/* What follows a tile of nr x mr. */
WF_INLINE pass after_tile(pass p, const gemm *g, const int nr, const int mr)
{
    if (p.sums) p.sums += nr * mr * VL;
    p.next = p.each ? p.next + g->k / VL * p.each : NULL;
    return p;
}

/* Multiplies nr weight rows by the activation rows `of`. */
WF_INLINE void rows_strip(const gemm *g, load_fn load, size_t size, const char *w, size_t w_step,
                     uint32_t n, range of, const int nr, pass p)
{
    uint32_t m = of.begin;
    for (; m + MROW <= of.end; m += MROW, p = after_tile(p, g, nr, MROW))
        rows_tile(g, load, size, w, w_step, n, m, nr, MROW, p);
    if (MROW > 2 && m + 2 <= of.end) {
        rows_tile(g, load, size, w, w_step, n, m, nr, 2, p);
        m += 2, p = after_tile(p, g, nr, 2);
    }
    for (; m < of.end; m++, p = after_tile(p, g, nr, 1)) rows_tile(g, load, size, w, w_step, n, m, nr, 1, p);
}

/* The same with more rows than a tile has: the first tile leaves W decoded for the others. All prefetch a share of the
 * next rows of W, for in one tile they are more than memory delivers. */
WF_INLINE void strip_once(const gemm *g, load_fn load, size_t size, const char *w, uint32_t n, range of, pass p)
{
    const uint32_t rows = of.end - of.begin, tiles = rows / MROW + rows % MROW / 2 + rows % 2;
    const char *keep = (const char *)p.keep;
    p.each = IS_AVX2 && p.next ? (NROW * VL * size + tiles - 1) / tiles : 0;
    rows_tile(g, load, size, w, g->w_step, n, of.begin, NROW, MROW, p);
    p = after_tile(p, g, NROW, MROW);
    p.keep = NULL;
    rows_strip(g, load_kept, 0, keep, VL * sizeof(float), n, (range){of.begin + MROW, of.end}, NROW, p);
}

/* Weight rows at a time for a single row of X: fewer are easier to prefetch. */
#define LONE 2

#define STRIPS(name, load, size)                                                                             \
    static void name(const gemm *g, const char *w, size_t w_step, uint32_t n, uint32_t nr, range of, pass p) \
    {                                                                                                        \
        if (KEEPS && nr == NROW && p.keep && of.end - of.begin > MROW) {                                     \
            strip_once(g, load, size, w, n, of, p);                                                          \
            return;                                                                                          \
        }                                                                                                    \
        p.keep = NULL;                                                                                       \
        if (nr == LONE && g->m == 1) {                                                                       \
            rows_strip(g, load, size, w, w_step, n, of, LONE, p);                                                 \
        } else if (nr == NROW) {                                                                             \
            rows_strip(g, load, size, w, w_step, n, of, NROW, p);                                                 \
        } else {                                                                                             \
            for (uint32_t r = 0; r < nr; r++, p.sums += p.sums ? (of.end - of.begin) * VL : 0)               \
                rows_strip(g, load, size, w + r * w_step, w_step, n + r, of, 1, p);                               \
        }                                                                                                    \
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

static bool reads_directly(uint8_t dtype, uint32_t m)
{
    return dtype == WF_F32 || (is_half(dtype) && m < PANEL_ROWS);
}

/* Columns at a time for this many rows of X: with more than a tile has, as many as stay in the first cache while all
 * rows of W of a chunk meet them. */
static uint32_t columns_for(uint32_t m, uint32_t k)
{
    return IS_AVX512 && m > MROW ? WF_MIN(k, BLOCK_BYTES / 4 / WF_MIN(m, BLOCK_ROWS) / VL * VL) : k;
}

/* Bytes from one prepared row of X to the next. Sixteen rows a page apart would share the same few lines of the first
 * cache. */
static size_t x_step_of(uint32_t m, uint32_t k)
{
    const size_t bytes = (size_t)k * 4;
    return columns_for(m, k) < k ? WF_UP(bytes, (size_t)4096) + 4096 / BLOCK_ROWS : bytes;
}

static bool is_prepared(const wf_view *x, uint32_t m)
{
    return x->dtype != WF_F32 || columns_for(m, x->cols) < x->cols;
}

/* Bytes of a thread for decoded rows of W. */
static size_t decoded_bytes(const wf_call *c)
{
    const uint8_t dtype = c->in[WF_GEMM_W].dtype;
    if (reads_directly(dtype, c->out[WF_GEMM_Y].rows) && !(KEEPS && is_half(dtype))) return 0;
    return WF_UP((size_t)c->in[WF_GEMM_X].cols * 4, (size_t)64) * NROW;
}

/* And for the sums of a part of the columns. */
static size_t sums_bytes(const wf_call *c)
{
    const uint32_t m = c->out[WF_GEMM_Y].rows, k = c->in[WF_GEMM_X].cols;
    return reads_directly(c->in[WF_GEMM_W].dtype, m) && columns_for(m, k) < k ? (size_t)BLOCK_ROWS * CHUNK_ROWS * VL * 4
                                                                              : 0;
}

wf_cpu_scratch_size WF_SIMD(wf_cpu_gemm_rows_scratch)(const wf_call *c)
{
    wf_cpu_scratch_size size = {0};
    const wf_view *x = &c->in[WF_GEMM_X];
    const uint32_t m = c->out[WF_GEMM_Y].rows;
    if (is_prepared(x, m)) size = prep_scratch(c, x_step_of(m, x->cols));
    size.per_thread = WF_UP(size.per_thread, (size_t)64) + decoded_bytes(c) + sums_bytes(c);
    return size;
}

/* Some columns of weight rows begin..end, read where they are, times the activation rows `of`. */
static void stream_columns(const gemm *g, uint32_t begin, uint32_t end, range of, range k, float *keep, float *sums)
{
    const uint32_t rows = g->m == 1 ? LONE : NROW, size = (uint32_t)wf_dtypes[g->w->dtype].block_bytes;
    const char *next = k.end < g->k ? g->wp + begin * g->w_step + k.end * size : g->wp + end * g->w_step;
    for (uint32_t n = begin; n < end; n += rows) {
        const uint32_t nr = WF_MIN(rows, end - n);
        const char *w = g->wp + n * g->w_step;
        pass p = {k, sums ? sums + (n - begin) * (of.end - of.begin) * VL : NULL, keep,
                  n + rows < end ? w + rows * g->w_step + k.begin * size : next};
        if (of.begin) p.next = NULL; /* read before, with other rows of X */
        if (g->w->dtype == WF_F32) p.keep = NULL, strips_f32(g, w, g->w_step, n, nr, of, p);
        if (g->w->dtype == WF_F16) strips_f16(g, w, g->w_step, n, nr, of, p);
        if (g->w->dtype == WF_BF16) strips_bf16(g, w, g->w_step, n, nr, of, p);
    }
}

/* The same with decoded rows, and all activation rows, for which they are decoded once. */
static void decode_columns(const gemm *g, uint32_t begin, uint32_t end, char *panel)
{
    const size_t step = WF_UP((size_t)g->k * 4, (size_t)64);
    for (uint32_t n = begin; n < end; n += NROW) {
        const uint32_t nr = WF_MIN(NROW, end - n);
        for (uint32_t r = 0; r < nr; r++)
            WF_SIMD(wf_cpu_decode)(g->w->dtype, g->wp + (n + r) * g->w_step, (float *)(panel + r * step), g->k);
        strips_f32(g, panel, step, n, nr, (range){0, g->m}, (pass){{0, g->k}});
    }
}

static uint32_t block_of(const gemm *g)
{
    if (IS_AVX512 && g->m > MROW) return BLOCK_ROWS;
    return WF_MAX((uint32_t)MROW, X_BYTES / (uint32_t)WF_MAX(g->x_step, 1u) / MROW * MROW);
}

/* With many rows of X, as many more as leave each thread some turns. */
static uint32_t chunk_for(const wf_cpu_work *work, const gemm *g)
{
    const uint32_t chunk = WF_MIN(chunk_of(work, g), CHUNK_ROWS), most = g->n / (work->n * LEAST_TURNS) / UNIT * UNIT;
    if (!g->stream || g->m <= block_of(g)) return chunk;
    return WF_MAX(chunk, WF_MIN(WF_MIN(chunk * MANY_CHUNKS, CHUNK_ROWS), most));
}

void WF_SIMD(wf_cpu_gemm_rows)(const wf_cpu_work *work)
{
    gemm g = gemm_of(work);
    const size_t size = WF_SIMD(wf_cpu_gemm_rows_scratch)(work->call).per_thread, sums = sums_bytes(work->call);
    char *kept = (char *)work->per_thread + size - sums, *panel = kept - decoded_bytes(work->call);
    uint32_t begin, end;

    g.stream = reads_directly(g.w->dtype, g.m);
    g.xp = wf_cpu_at(g.x);
    g.x_step = (size_t)g.x->stride * 4;
    if (is_prepared(g.x, g.m)) prepare(work, &g, x_step_of(g.m, g.k), prep_f32);
    /* A block of rows of X at a time, and of it some columns: the sums of each output are added up in the same order as
     * in one go. */
    const uint32_t block = block_of(&g), most = columns_for(g.m, g.k);
    while (wf_cpu_next(work, g.n, chunk_for(work, &g), &begin, &end)) {
        if (!g.stream) decode_columns(&g, begin, end, panel);
        for (uint32_t m = 0; g.stream && m < g.m; m += block)
            for (range k = {0, most}; k.begin < g.k; k = (range){k.end, WF_MIN(g.k, k.end + most)})
                stream_columns(&g, begin, end, (range){m, WF_MIN(g.m, m + block)}, k, (float *)panel,
                               sums ? (float *)kept : NULL);
    }
}
