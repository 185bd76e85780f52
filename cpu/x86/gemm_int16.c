/* GEMM for few rows with quantised weights on AVX2: they are unpacked to int16 in registers (words.h).
 *
 * Where K is not a multiple of a panel, the last panel of a row is the one that ends with it, and the blocks that the
 * panel before has too are left out: so all that is read belongs to the row, without a copy. */
#include "cpu/ops/gemm.h"
#include "cpu/x86/words.h"

#define MOST_ROWS 4    /* rows of X of a tile */
#define FAR       3072u /* L2 prefetch distance in bytes */
#define NEAR      768u  /* L1 prefetch distance in bytes */

/* One row of W by up to MOST_ROWS rows of X. */
typedef struct tile {
    const x_panel *x[MOST_ROWS];
    __m256 acc[MOST_ROWS];
} tile;

/* Adds block b of panel p. */
WF_INLINE void add_block(const tile *t, const uint8_t dtype, const char *w, const scales *s, uint32_t p, uint32_t b,
                         const int mr, __m256 sum[MOST_ROWS])
{
    const words v = words_of(dtype, w, b);
    const __m256 d = scale_at(dtype, s, b);
    for (int m = 0; m < mr; m++) {
        const char *x = (const char *)(t->x[m][p].x + 32 * b);
        const __m256i dot = _mm256_add_epi32(_mm256_madd_epi16(v.a, q_load(x)), _mm256_madd_epi16(v.b, q_load(x + 32)));
        sum[m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), d, sum[m]);
    }
}

/* Adds the blocks of panel p, whose weights are at w, from `first` on. whole: that is 0. */
WF_INLINE void add_panel(tile *t, const uint8_t dtype, const char *w, uint32_t p, const bool whole, uint32_t first,
                         const int mr)
{
    char room[EXPANDED];
    w = expanded(dtype, w, room);
    const scales s = scales_of(dtype, w);
    __m256 sum[MOST_ROWS];
    for (int m = 0; m < mr; m++) {
        sum[m] = has_less(dtype) ? _mm256_mul_ps(s.less[0], _mm256_loadu_ps(t->x[m][p].minus_sum))
                                 : _mm256_setzero_ps();
        if (in_halves(dtype)) sum[m] = _mm256_fmadd_ps(s.less[1], _mm256_loadu_ps(t->x[m][p].minus_sum + 8), sum[m]);
    }
    if (whole) {
        WF_UNROLL(8)
        for (uint32_t b = 0; b < BLOCKS; b++) add_block(t, dtype, w, &s, p, b, mr, sum);
    } else {
        WF_UNROLL(1)
        for (uint32_t b = first; b < BLOCKS; b++) add_block(t, dtype, w, &s, p, b, mr, sum);
    }
    for (int m = 0; m < mr; m++) t->acc[m] = _mm256_fmadd_ps(sum[m], _mm256_set1_ps(t->x[m][p].scale), t->acc[m]);
}

WF_INLINE void fetch_ahead(const char *w, const size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(w + FAR + i, 0, 2);
        __builtin_prefetch(w + NEAR + i, 0, 3);
    }
}

/* How many blocks of panel p the panel before has too, or that do not exist: then it is the only one. */
WF_INLINE uint32_t first_of(uint32_t k)
{
    return k < PANEL ? 0 : (PANEL - k % PANEL) / 32;
}

WF_INLINE void tile_of(const gemm *g, const uint8_t dtype, uint32_t n, uint32_t m, const int mr)
{
    const char *w = g->wp + n * g->w_step;
    const size_t bytes = bytes_of_panel(dtype);
    char copy[ROW_MAX];
    uint32_t p = 0;
    tile t;
    for (int i = 0; i < mr; i++)
        t.x[i] = (const x_panel *)(g->xp + (m + i) * g->x_step), t.acc[i] = _mm256_setzero_ps();
    for (; (p + 1) * PANEL <= g->k; p++, w += bytes) {
        fetch_ahead(w, bytes);
        add_panel(&t, dtype, w, p, true, 0, mr);
    }
    if (!in_supers(dtype) && g->k % PANEL) {
        const uint32_t first = first_of(g->k);
        fetch_ahead(w, bytes / 2);
        w = p ? w - first * bytes_of(dtype) : padded(dtype, w, g->k, copy, ROW_MAX);
        add_panel(&t, dtype, w, p, false, first, mr);
    }
    for (int i = 0; i < mr; i++) store_output(g, m + i, n, qf_sum(t.acc[i]));
}

WF_INLINE void rows_of(const gemm *g, const uint8_t dtype, uint32_t begin, uint32_t end)
{
    for (uint32_t n = begin; n < end; n++) {
        uint32_t m = 0;
        for (; m + MOST_ROWS <= g->m; m += MOST_ROWS) tile_of(g, dtype, n, m, MOST_ROWS);
        for (; m < g->m; m++) tile_of(g, dtype, n, m, 1);
    }
}

EACH_FORMAT(rows_of)

static size_t row_step(uint32_t k)
{
    return (k + PANEL - 1) / PANEL * sizeof(x_panel);
}

static void prep_words(const gemm *g, uint32_t m, void *dst)
{
    const uint32_t whole = g->k / PANEL;
    x_panel *out = dst;
    for (uint32_t p = 0; p < whole; p++) round_part(g->x, g->w->dtype, m, p * PANEL, 0, PANEL, out + p);
    if (g->k % PANEL) round_part(g->x, g->w->dtype, m, whole * PANEL, first_of(g->k) * 32, g->k % PANEL, out + whole);
}

wf_cpu_scratch_size WF_SIMD(wf_cpu_gemm_int8_scratch)(const wf_call *c)
{
    return prep_scratch(c, row_step(c->in[WF_GEMM_X].cols));
}

void WF_SIMD(wf_cpu_gemm_int8)(const wf_cpu_work *work)
{
    gemm g = gemm_of(work);
    uint32_t begin, end;
    prepare(work, &g, row_step(g.k), prep_words);
    while (wf_cpu_next(work, g.n, chunk_of(work, &g), &begin, &end)) WITH_FORMAT(rows_of, &g, begin, end);
}
