/* GEMM on AMX with int8 products, for F16 and quantised weights (blocks.h).
 *
 * Weights and activations are converted to fixed point in int16, with one scale per row and panel of 256 k, and split
 * into two int8: 256 hi + lo. Three of the four products are summed exactly in int32, and scales are applied at the end
 * of each panel. lo x lo is omitted, except for the mean of the weights' lo. Weights of Q3_K are bytes, times the scale
 * of their superblock: they have no b, and their products are exact.
 *
 *   weights      w = 256 a + b, b unsigned      tile of 16 rows x 64 k
 *   activations  x = 256 c + e, both signed     tile of 16 groups of 4 k x 16 rows of X
 *   sums         256 (a c) + (a e + b c + 128 e)
 *
 * Weights are converted one panel at a time, from the file's blocks, by one multiplication with the ratio of the
 * block's scale to the largest one. The order of k within a panel is the cheapest one for the format; activations are
 * packed in the same order.
 */
#include <string.h>

#include "cpu/x86/amx_weights.h"

#define NB_MAX  192u /* output columns at a time, at most: with the sums of MB rows, a quarter of an L2 cache */
#define FEW     256u /* rows of X up to which AMX multiplies while vectors unpack; panels of more do not stay in L2 */
#define NB_FEW  32u            /* output columns at a time for so few rows */

typedef struct amx_int8 {
    const wf_view *x, *w;
    uint32_t m, n, k;
    uint32_t m_tiles, panels, nb;
    size_t w_step, w_bytes; /* of a row, and of a panel in it */
    panel *xp;              /* [panels][m_tiles] */
    panel *wp;              /* [nb / TILE], or 2 */
    float *sums;            /* [nb / TILE][tiles of a block of X][TILE][TILE] */
} amx_int8;

static amx_int8 amx_int8_of(const wf_call *c)
{
    amx_int8 a = {&c->in[WF_GEMM_X], &c->in[WF_GEMM_W]};
    a.m = c->out[WF_GEMM_Y].rows;
    a.n = c->out[WF_GEMM_Y].cols;
    a.k = a.x->cols;
    a.m_tiles = WF_UP(a.m, TILE) / TILE;
    a.panels = WF_UP(a.k, PANEL) / PANEL;
    a.nb = a.m <= FEW ? NB_FEW : NB_MAX;
    a.w_step = (size_t)((char *)wf_cpu_row(a.w, 1) - (char *)wf_cpu_at(a.w));
    a.w_bytes = wf_dtype_bytes(a.w->dtype, PANEL);
    if (a.w->layout) a.w_step = wf_q8_0x16_bytes(a.k) / TILE;
    return a;
}

wf_cpu_scratch_size wf_cpu_gemm_amx_int8_scratch(const wf_call *c)
{
    amx_int8 a = amx_int8_of(c);
    size_t sums = (size_t)WF_MIN(a.m_tiles * TILE, MB) * a.nb * sizeof(float);
    return (wf_cpu_scratch_size){.shared = (size_t)a.m_tiles * a.panels * sizeof(panel),
                         .per_thread = WF_MAX(2u, a.nb / TILE) * sizeof(panel) + sums};
}

/* ---- activations ----------------------------------------------------------------------------- */

/* Permutes 128 bytes of activations to the order of k that the weight format yields. */
WF_INLINE void arrange(const uint8_t dtype, __m512i v[2])
{
    __m512i a = v[0], b = v[1];
    if (dtype == WF_Q4_0) { /* first halves of four blocks, then second halves */
        v[0] = _mm512_shuffle_i32x4(a, b, 0x88);
        v[1] = _mm512_shuffle_i32x4(a, b, 0xdd);
    } else if (has_k_scales(dtype)) { /* even blocks, then odd ones */
        v[0] = _mm512_shuffle_i32x4(a, b, 0x44);
        v[1] = _mm512_shuffle_i32x4(a, b, 0xee);
    } else if (dtype == WF_F16) { /* k and k + 32 alternate */
        for (int i = 0; i < 2; i++) {
            __m512i odd = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(v[i], 1));
            __m512i even = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(v[i]));
            v[i] = _mm512_or_si512(even, _mm512_slli_epi16(odd, 8));
        }
    }
}

/* Converts one row of a panel and stores it in row r of each tile. */
static void round_row(const uint8_t dtype, const float *x, panel *out, uint32_t r)
{
    __m512i top = _mm512_setzero_si512(), sum = top;
    for (uint32_t i = 0; i < PANEL; i += 16) top = max_abs(top, _mm512_loadu_ps(x + i));
    float most = max_of(top);
    const __m512 factor = _mm512_set1_ps(most > 0 ? 127 * 256 / most : 0);
    for (uint32_t i = 0; i < PANEL; i += 2 * UNIT) {
        __m512i hi[2], lo[2];
        for (uint32_t u = 0; u < 2; u++) {
            __m512i a = to_int16(x + i + UNIT * u, factor), b = to_int16(x + i + UNIT * u + 32, factor);
            split_hi_lo(a, b, &hi[u], &lo[u]);
            sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), lo[u]);
        }
        arrange(dtype, hi);
        arrange(dtype, lo);
        for (uint32_t u = 0; u < 2; u++) {
            _mm512_storeu_si512(out->tile[i / UNIT + u][0] + r * 64, hi[u]);
            _mm512_storeu_si512(out->tile[i / UNIT + u][1] + r * 64, lo[u]);
        }
    }
    out->scale[r] = most / (127 * 256) * 256;
    out->comp[r] = (_mm512_reduce_add_epi32(sum) + 1) >> 1;
}

/* Converts row by row, then transposes so that groups of 4 k come first; pads with zeros. */
static void pack_x(const amx_int8 *a, uint32_t t, uint32_t p, panel *out)
{
    const wf_dtype_info *in = &wf_dtypes[a->x->dtype];
    uint32_t rows = WF_MIN(TILE, a->m - t * TILE), n = WF_MIN(PANEL, a->k - p * PANEL);
    panel plain;
    if (rows < TILE) memset(&plain, 0, sizeof(plain));
    for (uint32_t r = 0; r < rows; r++) {
        const char *src = (char *)wf_cpu_row(a->x, t * TILE + r) + (size_t)p * PANEL * in->block_bytes;
        float copy[PANEL];
        bool whole_panel = a->x->dtype == WF_F32 && n == PANEL;
        if (!whole_panel) {
            in->decode(src, copy, n);
            memset(copy + n, 0, (PANEL - n) * sizeof(float));
        }
        round_row(a->w->dtype, whole_panel ? (const float *)src : copy, &plain, r);
    }
    memcpy(out->scale, plain.scale, sizeof(plain.scale));
    memcpy(out->comp, plain.comp, sizeof(plain.comp));
    for (uint32_t u = 0; u < UNITS; u++)
        for (uint32_t s = 0; s < 2; s++)
            v_transpose((const float *)plain.tile[u][s], TILE, (float *)out->tile[u][s], TILE);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Prepares a panel of the interleaved layout, which has all 16 rows, padded with zeros. */
WF_INLINE void open_q8_0x16(const amx_int8 *a, uint32_t n, uint32_t p, uint32_t k, source *s)
{
    const size_t step = wf_q8_0x16_bytes(a->k), panel_bytes = wf_q8_0x16_bytes(PANEL),
                 here = n < a->n ? wf_q8_0x16_bytes(k) : 0;
    s->w = (const char *)wf_cpu_at(a->w) + n / TILE * step + p * panel_bytes;
    s->next = p + 1 < a->panels ? s->w + panel_bytes : s->w + a->nb / TILE * step - p * panel_bytes;
    s->next_step = s->bytes;
    if (here == panel_bytes) return;
    memset(s->copy, 0, sizeof(s->copy));
    memcpy(s->copy, s->w, here);
    s->w = s->copy[0];
}

/* Prepares panel p of 16 weight rows from n on, padded with zeros. */
WF_INLINE void open_panel(const amx_int8 *a, const uint8_t dtype, uint32_t n, uint32_t p, source *s, panel *out)
{
    const char *w = (const char *)wf_cpu_at(a->w) + n * a->w_step;
    uint32_t rows = n < a->n ? WF_MIN(TILE, a->n - n) : 0, k = WF_MIN(PANEL, a->k - p * PANEL);
    s->bytes = a->w_bytes;
    s->next = p + 1 < a->panels ? w + (p + 1) * s->bytes : w + a->nb * a->w_step;
    s->next_step = a->w_step;
    s->w = w + p * s->bytes;
    s->step = a->w_step;
    if (dtype == Q8_0X16) {
        open_q8_0x16(a, n, p, k, s);
        parts_of(dtype, s->w, 0, 256, out, s->part);
        return;
    }
    if (rows < TILE || k < PANEL) {
        memset(s->copy, 0, sizeof(s->copy));
        for (uint32_t r = 0; r < rows; r++) memcpy(s->copy[r], s->w + r * s->step, wf_dtype_bytes(dtype, k));
        s->w = s->copy[0];
        s->step = ROW_MAX;
    }
    if (dtype == WF_Q4_0) parts_of(dtype, s->w, s->step, 4096, out, s->part);
    if (dtype == WF_Q8_0 || is_signed(dtype)) parts_of(dtype, s->w, s->step, (float)(1 << up_of(dtype)), out, s->part);
}

WF_INLINE void unpack_row(source *s, const uint8_t dtype, uint32_t r, panel *out)
{
    const char *next = s->next + r * s->next_step;
    for (size_t i = 0; i < s->bytes; i += 64) /* F16 rows are too long for L1 */
        if (dtype == WF_F16)
            __builtin_prefetch(next + i, 0, 2);
        else
            __builtin_prefetch(next + i, 0, 3);
    if (dtype == WF_F16) f16_row(s, r, out);
    if (dtype == WF_Q8_0) q8_0_row(s, r, out);
    if (dtype == Q8_0X16) q8_0x16_part(s, r, out);
    if (dtype == WF_Q4_0) q4_0_row(s, r, out);
    if (is_signed(dtype)) signed_row(s, dtype, r, out);
    if (dtype == WF_Q4_1 || dtype == WF_Q5_1) pair_row(s, dtype, r, out);
    if (dtype == WF_Q2_K) q2_k_row(s, r, out);
    if (is_exact(dtype)) exact_row(s, dtype, r, out);
    if (is_grid(dtype)) halves_row(s, dtype, r, out);
    if (dtype == WF_Q6_K) q6_k_row(s, r, out);
    if (has_k_scales(dtype)) k_row(s, dtype, r, out);
}

/* ---- the products ---------------------------------------------------------------------------- */

/* Tiles 0 and 1: accumulators (a c, the rest) of one tile of X, 2 and 3 of another; 4 and 5: weights; 6 and 7:
 * activations. */
WF_INLINE void begin_sums(const panel *x, const bool exact, const bool two_x)
{
    TILES_SEE_MEMORY();
    _tile_zero(0);
    if (exact) _tile_zero(1);
    else _tile_loadd(1, x->comp, 0); /* stride 0: the same for each row */
    if (!two_x) return;
    _tile_zero(2);
    if (exact) _tile_zero(3);
    else _tile_loadd(3, x[1].comp, 0);
}

/* A quarter of the work on unit u. */
WF_INLINE void add_quarter(const panel *w, const panel *x, const bool exact, const bool two_x, uint32_t u,
                           const uint32_t quarter)
{
    if (quarter == 0) {
        _tile_loadd(4, w->tile[u][0], 64);
        _tile_loadd(6, x->tile[u][0], 64);
        _tile_dpbssd(0, 4, 6);
    } else if (quarter == 1) {
        _tile_loadd(7, x->tile[u][1], 64);
        _tile_dpbssd(1, 4, 7);
    } else if (quarter == 2 && !exact) {
        _tile_loadd(5, w->tile[u][1], 64);
        _tile_dpbusd(1, 5, 6);
    }
    if (!two_x) return;
    if (quarter == 2) {
        _tile_loadd(6, x[1].tile[u][0], 64);
        _tile_dpbssd(2, 4, 6);
    } else if (quarter == 3) {
        if (!exact) _tile_dpbusd(3, 5, 6);
        _tile_loadd(7, x[1].tile[u][1], 64);
        _tile_dpbssd(3, 4, 7);
    }
}

/* Scales a panel's sums of one tile of X and adds them to the earlier ones. */
WF_INLINE void scale_tile(const panel *w, const panel *x, const int32_t *high, const int32_t *low, bool first,
                          float *sum)
{
    const __m512 by = _mm512_loadu_ps(x->scale);
    WF_UNROLL(16)
    for (uint32_t r = 0; r < TILE; r++) {
        __m512i h = _mm512_slli_epi32(_mm512_loadu_si512(high + TILE * r), 8);
        __m512 v = _mm512_cvtepi32_ps(_mm512_add_epi32(h, _mm512_loadu_si512(low + TILE * r)));
        v = _mm512_mul_ps(v, _mm512_mul_ps(by, _mm512_set1_ps(w->scale[r])));
        if (!first) v = _mm512_add_ps(v, _mm512_loadu_ps(sum + TILE * r));
        _mm512_storeu_ps(sum + TILE * r, v);
    }
}

WF_INLINE void end_sums(const panel *w, const panel *x, const bool two_x, bool first, float *sum)
{
    int32_t stage[4][TILE * TILE];
    _tile_stored(0, stage[0], 64);
    _tile_stored(1, stage[1], 64);
    if (two_x) {
        _tile_stored(2, stage[2], 64);
        _tile_stored(3, stage[3], 64);
    }
    TILES_SEE_MEMORY();
    scale_tile(w, x, stage[0], stage[1], first, sum);
    if (two_x) scale_tile(w, x + 1, stage[2], stage[3], first, sum + TILE * TILE);
}

WF_INLINE void multiply_panel(const panel *w, const panel *x, const bool exact, const bool two_x, bool first,
                              float *sum)
{
    begin_sums(x, exact, two_x);
    for (uint32_t u = 0; u < UNITS; u++)
        for (uint32_t i = 0; i < 4; i++) add_quarter(w, x, exact, two_x, u, i);
    end_sums(w, x, two_x, first, sum);
}

/* ---- many rows of X: unpack a wide panel, then multiply it ------------------------------------- */

/* Multiplies panel p by m_tiles tiles of X from m_tile on. */
WF_INLINE void multiply_tiles(const amx_int8 *a, const bool exact, uint32_t m_tile, uint32_t m_tiles, uint32_t p)
{
    for (uint32_t m = 0; m < m_tiles; m += 2) {
        const panel *x = a->xp + (size_t)p * a->m_tiles + m_tile + m;
        for (uint32_t n = 0; n < a->nb / TILE; n++) {
            float *sum = a->sums + ((size_t)n * m_tiles + m) * TILE * TILE;
            if (m + 1 < m_tiles)
                multiply_panel(&a->wp[n], x, exact, true, p == 0, sum);
            else
                multiply_panel(&a->wp[n], x, exact, false, p == 0, sum);
        }
    }
}

static void multiply_many(const amx_int8 *a, uint32_t m_tile, uint32_t m_tiles, uint32_t p)
{
    if (is_exact(a->w->dtype)) multiply_tiles(a, true, m_tile, m_tiles, p);
    else multiply_tiles(a, false, m_tile, m_tiles, p);
}

WF_INLINE void gemm_many(const wf_call *c, const amx_int8 *a, const uint8_t dtype, uint32_t begin)
{
    source s;
    for (uint32_t m = 0; m < a->m_tiles; m += MB / TILE) {
        uint32_t m_tiles = WF_MIN(MB / TILE, a->m_tiles - m);
        for (uint32_t p = 0; p < a->panels; p++) {
            for (uint32_t n = 0; n < a->nb / TILE; n++) {
                open_panel(a, dtype, begin + n * TILE, p, &s, &a->wp[n]);
                for (uint32_t r = 0; r < TILE; r++) unpack_row(&s, dtype, r, &a->wp[n]);
            }
            multiply_many(a, m, m_tiles, p);
        }
        store_sums(c, begin, a->nb, m, m_tiles, a->sums);
    }
}

/* ---- few rows: AMX multiplies one panel while vectors unpack the next ------------------------ */

WF_INLINE void multiply_and_unpack(const panel *w, const panel *x, const bool two_x, bool first, float *sum, source *s,
                    const uint8_t dtype, panel *next)
{
    begin_sums(x, is_exact(dtype), two_x);
    for (uint32_t u = 0; u < UNITS; u++) {
        WF_UNROLL(4)
        for (uint32_t i = 0; i < 4; i++) {
            add_quarter(w, x, is_exact(dtype), two_x, u, i);
            unpack_row(s, dtype, 4 * u + i, next);
        }
    }
    end_sums(w, x, two_x, first, sum);
}

/* Computes output columns begin..end. A panel of X stays in L1, or with many rows in L2, for all of them. After the
 * last panel of weights the first one is unpacked again, but not used. */
WF_INLINE void gemm_few(const wf_call *c, const amx_int8 *a, const uint8_t dtype, uint32_t begin, uint32_t end)
{
    source s;
    uint32_t strips = (end - begin + TILE - 1) / TILE, at = 0;
    open_panel(a, dtype, begin, 0, &s, &a->wp[0]);
    for (uint32_t r = 0; r < TILE; r++) unpack_row(&s, dtype, r, &a->wp[0]);
    for (uint32_t p = 0; p < a->panels; p++)
        for (uint32_t n = 0; n < strips; n++, at ^= 1) {
            const panel *x = a->xp + (size_t)p * a->m_tiles, *w = &a->wp[at];
            float *sum = a->sums + (size_t)n * a->m_tiles * TILE * TILE;
            uint32_t next = (n + 1) % strips, next_p = (p + (next == 0)) % a->panels;
            open_panel(a, dtype, begin + next * TILE, next_p, &s, &a->wp[at ^ 1]);
            if (a->m_tiles == 1)
                multiply_and_unpack(w, x, false, p == 0, sum, &s, dtype, &a->wp[at ^ 1]);
            else
                multiply_and_unpack(w, x, true, p == 0, sum, &s, dtype, &a->wp[at ^ 1]);
            for (uint32_t m = 2; m < a->m_tiles; m += 2)
                if (m + 1 < a->m_tiles)
                    multiply_panel(w, x + m, is_exact(dtype), true, p == 0, sum + m * TILE * TILE);
                else
                    multiply_panel(w, x + m, is_exact(dtype), false, p == 0, sum + m * TILE * TILE);
        }
    store_sums(c, begin, strips * TILE, 0, a->m_tiles, a->sums);
}

#define EACH(name, dtype)                                                                          \
    static void name(const wf_call *c, const amx_int8 *a, uint32_t begin, uint32_t end)            \
    {                                                                                              \
        if (a->m <= FEW)                                                                           \
            gemm_few(c, a, dtype, begin, end);                                                     \
        else                                                                                       \
            gemm_many(c, a, dtype, begin);                                                         \
    }
EACH(gemm_f16, WF_F16)
#define GEMM_FORMAT(id, ...) EACH(gemm_##id, WF_##id)
WF_CPU_INTEGER_FORMATS(GEMM_FORMAT, )
EACH(gemm_q8_0x16, Q8_0X16)

void wf_cpu_gemm_amx_int8(const wf_cpu_work *work)
{
    amx_int8 a = amx_int8_of(work->call);
    uint32_t begin, end;
    a.nb = wf_cpu_chunk(work, a.n, TILE, a.nb);
    a.xp = work->shared;
    a.wp = work->per_thread;
    a.sums = (float *)(a.wp + WF_MAX(2u, a.nb / TILE));
    wf_cpu_part(work, a.m_tiles * a.panels, 1, &begin, &end);
    for (uint32_t i = begin; i < end; i++) pack_x(&a, i % a.m_tiles, i / a.m_tiles, &a.xp[i]);
    wf_cpu_barrier(work);
    configure();
    while (wf_cpu_next(work, a.n, a.nb, &begin, &end)) {
#define RUN_FORMAT(id, ...)                                                                        \
    if (a.w->dtype == WF_##id && !a.w->layout) gemm_##id(work->call, &a, begin, end);
        WF_CPU_INTEGER_FORMATS(RUN_FORMAT, )
        if (a.w->dtype == WF_F16) gemm_f16(work->call, &a, begin, end);
        if (a.w->layout) gemm_q8_0x16(work->call, &a, begin, end);
    }
    _tile_release();
}
