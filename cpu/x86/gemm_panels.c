/* GEMM of several rows with quantised weights (blocks.h), for processors without AMX: AVX-512 VNNI (int8x16; of many
 * rows with Q4_K and Q5_K int16x16) and AVX2 (int16x8).
 *
 * VL rows of W by 256 k, a panel, are unpacked and transposed: a line has 4 bytes of each row, so lanes are rows and no
 * sum is horizontal. Activations are fixed point with one scale per row and panel. panels_bytes.h and panels_words.h
 * have what differs.
 */
#include <string.h>

#include "cpu/ops/blocks.h"
#include "cpu/ops/gemm.h"

#define PAIR   2    /* strips (VL rows of W) of a tile */
#define STRIPS 4u   /* that meet the same rows of X while those are in the first cache */
#define MB     512u /* rows of X at a time */
#undef MROW
#define MROW 6 /* most rows of X of a tile; 4 and 1 are the others */

/* Of a tile and a panel. min: of minima, where the other sums are still to be multiplied. */
typedef struct sums {
    vf of[PAIR][MROW], min[PAIR][MROW];
} sums;

/* The f16 at w[r] + at of each row. */
WF_INLINE vf halves_of(const char *const w[VL], const size_t at)
{
    uint16_t half[VL];
    for (uint32_t r = 0; r < VL; r++) memcpy(&half[r], w[r] + at, sizeof half[r]);
    return v_load_f16(half);
}

/* What half_scales_unit() is of each row. */
WF_INLINE vf half_units(const uint8_t dtype, const char *const w[VL])
{
    float unit[VL];
    if (!is_grid(dtype)) return halves_of(w, half_scales_at(dtype));
    for (uint32_t r = 0; r < VL; r++) memcpy(&unit[r], w[r] + half_scales_at(dtype), sizeof unit[r]);
    return v_load(unit);
}

#if WF_LEVEL_ID == WF_LEVEL_IS_avx512
#include "cpu/x86/panels_bytes.h"
#else
#include "cpu/x86/panels_words.h"
#endif

typedef struct product {
    gemm g;
    void (*unpack)(const char *const w[VL], w_panel *out); /* 16 or 8 rows of a panel, in the format of W */
    uint32_t panels, mb; /* mb: most rows of X at a time */
    bool words;          /* lines of W are words, not bytes; always on AVX2 */
    size_t w_bytes;      /* of a panel in a row */
    x_panel *xp;         /* [panels][m] */
    w_panel *wp;         /* [STRIPS] */
    float *sums;         /* [STRIPS][mb][VL] */
} product;

static product product_of(const wf_call *c)
{
    const wf_cpu_work alone = {.call = c};
    product g = {.g = gemm_of(&alone)};
    g.mb = WF_MIN(g.g.m, MB);
    g.panels = WF_UP(g.g.k, PANEL) / PANEL;
    g.w_bytes = wf_dtype_bytes(g.g.w->dtype, PANEL);
    return g;
}

wf_cpu_scratch_size WF_SIMD(wf_cpu_gemm_panels_scratch)(const wf_call *c)
{
    product g = product_of(c);
    size_t sums = (size_t)STRIPS * g.mb * VL * sizeof(float);
    return (wf_cpu_scratch_size){.shared = (size_t)g.g.m * g.panels * sizeof(x_panel),
                                 .per_thread = STRIPS * sizeof(w_panel) + sums};
}

/* Where the rows of a panel are: in the file, or padded in a copy. */
typedef struct source {
    const char *row[VL];
    char copy[VL][ROW_MAX];
} source;

/* Rows past the last one repeat it. */
WF_INLINE void open_panel(const product *g, uint32_t n, uint32_t p, source *s)
{
    uint32_t k = WF_MIN(PANEL, g->g.k - p * PANEL);
    for (uint32_t r = 0; r < VL; r++) {
        s->row[r] = g->g.wp + WF_MIN(n + r, g->g.n - 1) * g->g.w_step + p * g->w_bytes;
        if (k == PANEL) continue;
        memset(s->copy[r], 0, ROW_MAX);
        memcpy(s->copy[r], s->row[r], wf_dtype_bytes(g->g.w->dtype, k));
        s->row[r] = s->copy[r];
    }
}

/* Rows of W that the next panel begins with. They are prefetched during the products, a few at a time: a burst would
 * fill the queue of misses, behind which the loads of unpacking wait. */
typedef struct ahead {
    const char *row;
    size_t step, bytes;
    uint32_t left, each; /* rows, and how many to prefetch with a group of a tile */
} ahead;

/* Panel p + 1 of the columns from n on, or the first one of the next columns. */
static ahead ahead_of(const product *g, uint32_t n, uint32_t p, uint32_t strips, uint32_t rows)
{
    const uint32_t tiles = strips / PAIR * WF_UP(rows, MROW) / MROW;
    ahead a = {.step = g->g.w_step, .bytes = g->w_bytes, .left = strips * VL};
    a.row = g->g.wp + n * g->g.w_step + (p + 1 < g->panels ? (p + 1) * g->w_bytes : a.left * g->g.w_step);
    a.each = WF_UP(a.left, tiles * 8) / (tiles * 8);
    return a;
}

WF_INLINE void fetch_rows(ahead *a)
{
    for (uint32_t r = 0; r < a->each && a->left; r++, a->left--, a->row += a->step)
        for (size_t i = 0; i < a->bytes; i += 64) __builtin_prefetch(a->row + i, 0, 3);
}

/* For few rows of X: W is prefetched twice, n of its VL rows at a time. What comes after these rows, as it lies in
 * memory, to the second cache, and the next panel of these rows to the first one, unless they are expanded copies. The
 * lines of VL rows in turn would be too many streams for memory. */
WF_INLINE void fetch_few(const uint8_t dtype, const char *const row[VL], const char *later, const uint32_t first,
                         const uint32_t n)
{
    const size_t bytes = bytes_of_panel(dtype);
    for (size_t i = 0; i < n * bytes; i += 64) __builtin_prefetch(later + first * bytes + i, 0, 2);
    for (uint32_t r = first; r < first + n && !is_grid(dtype); r++)
        for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(row[r] + bytes + i, 0, 3);
}

/* What lies behind the VL rows of W from n on, from panel p of theirs on; NULL: they are the last. */
static inline const char *later_of(const product *g, uint32_t n, uint32_t p)
{
    return n + VL < g->g.n ? g->g.wp + (n + VL) * g->g.w_step + p * VL * g->w_bytes : NULL;
}

/* Prefetches what comes with group i of mr rows of X. */
WF_INLINE void fetch_x(const uint8_t dtype, const x_panel *x, const int mr, uint32_t i)
{
    const size_t share = (size_t)mr * sizeof *x / groups_of(dtype);
    for (size_t b = 0; b < share; b += 64) __builtin_prefetch((const char *)x + i * share + b, 0, 3);
}

/* Adds a panel's products of two strips with mr rows of X, or begins the sums with them, which are `step` apart.
 * new_x: no tile has met these rows in this panel. */
WF_INLINE void panels_tile(const uint8_t dtype, const bool words, const w_panel *w, const x_panel *x, const int mr,
                           bool first, float *sum, size_t step, ahead *next, bool new_x)
{
    sums acc;
    for (int s = 0; s < PAIR; s++)
        for (int m = 0; m < mr; m++) acc.of[s][m] = acc.min[s][m] = v_zero();
    for (uint32_t i = 0; i < groups_of(dtype); i++) {
        fetch_rows(next);
        if (new_x) fetch_x(dtype, x + mr, mr, i);
        add_panel_group(dtype, words, w, x, i, mr, &acc);
    }
    for (int s = 0; s < PAIR; s++)
        for (int m = 0; m < mr; m++) {
            float *to = sum + s * step + (size_t)m * VL;
            vf v = v_mul(scaled(dtype, words, &w[s], acc.of[s][m], acc.min[s][m]), v_set(x[m].scale));
            v_store(to, first ? v : v_add(v, v_load(to)));
        }
}

/* Of `left` rows of X. Six are more sums at once than a multiplication has cycles until its result is there (5 on
 * Intel's, two of them a cycle); bytes have two sums a row. Eight are two tiles of four, not one of six and two of one.
 */
WF_INLINE uint32_t rows_of_tile(const bool words, uint32_t left)
{
    if (words && SIX_ROWS && left >= 6 && left != 8) return 6;
    return left >= 4 ? 4 : 1;
}

/* Multiplies panel p of strips `from` to `to` with `rows` rows of X from m on. */
WF_INLINE void multiply_strips(const product *g, const uint8_t dtype, const bool words, uint32_t p, uint32_t from,
                               uint32_t to, uint32_t m, uint32_t rows, ahead *next)
{
    const x_panel *x = g->xp + (size_t)p * g->g.m + m;
    const size_t step = (size_t)g->mb * VL;
    for (uint32_t r = 0, here; r < rows; r += here) {
        here = rows_of_tile(words, rows - r);
        for (uint32_t s = from; s < to; s += PAIR) {
            float *sum = g->sums + s * step + (size_t)r * VL;
            if (here == 6)
                panels_tile(dtype, words, &g->wp[s], x + r, 6, p == 0, sum, step, next, s == from);
            else if (here == 4)
                panels_tile(dtype, words, &g->wp[s], x + r, 4, p == 0, sum, step, next, s == from);
            else
                panels_tile(dtype, words, &g->wp[s], x + r, 1, p == 0, sum, step, next, s == from);
        }
    }
}

#define AHEAD 4u /* rows of outputs whose lines are fetched before they are stored */
/* Prefetches what store_rows() will touch. */
static void fetch_outputs(const gemm *g, uint32_t m, uint32_t begin, uint32_t end)
{
    const uint32_t bytes = g->y->dtype == WF_F32 ? 4 : 2;
    const char *y = (const char *)wf_cpu_row(g->y, m) + (size_t)begin * bytes;
    for (size_t b = 0; b < (size_t)(end - begin) * bytes; b += 64) __builtin_prefetch(y + b, 1, 3);
    if (!wf_cpu_has(g->residual)) return;
    const char *residual = (const char *)wf_cpu_row(g->residual, m) + (size_t)begin * bytes;
    for (size_t b = 0; b < (size_t)(end - begin) * bytes; b += 64) __builtin_prefetch(residual + b, 0, 3);
}

/* Stores columns begin..end of `rows` rows of X from m on. A row's are written together: the next row's are in another
 * page. */
static void store_rows(const product *g, uint32_t begin, uint32_t end, uint32_t m, uint32_t rows)
{
    for (uint32_t r = 0; r < rows; r++) {
        if (r + AHEAD < rows) fetch_outputs(&g->g, m + r + AHEAD, begin, end);
        for (uint32_t n = begin; n < end; n += VL)
            store_vector(&g->g, m + r, n, g->sums + (size_t)(n - begin) * g->mb + (size_t)r * VL);
    }
}

/* Computes columns begin..end for `rows` rows of X from m on. */
WF_INLINE void panel_columns(const product *g, const uint8_t dtype, const bool words, uint32_t begin, uint32_t end,
                             uint32_t m, uint32_t rows)
{
    const uint32_t strips = WF_UP(end - begin, PAIR * VL) / VL, at_once = STRIPS_AT_ONCE(words);
    source s;
    for (uint32_t p = 0; p < g->panels; p++) {
        for (uint32_t i = 0; i < strips; i++) {
            open_panel(g, begin + i * VL, p, &s);
            g->unpack(s.row, &g->wp[i]);
        }
        ahead next = ahead_of(g, begin, p, strips, rows);
        for (uint32_t i = 0; i < strips; i += at_once)
            multiply_strips(g, dtype, words, p, i, WF_MIN(strips, i + at_once), m, rows, &next);
    }
    store_rows(g, begin, end, m, rows);
}

/* Weights are unpacked by a function for each format, and then multiplied by one for all that look alike: the compiler
 * takes long for these. */
#define UNPACK(name, dtype, words)                                                                 \
    static void unpack_##name(const char *const w[VL], w_panel *out)                               \
    {                                                                                              \
        unpack_rows(dtype, words, w, out);                                                         \
    }
#define UNPACK_FORMAT(id, ...) UNPACK(id, WF_##id, in_halves(WF_##id))
WF_CPU_INTEGER_FORMATS(UNPACK_FORMAT, )

#define EACH(name, dtype, words)                                                                                       \
    static void columns_##name(const product *g, uint32_t begin, uint32_t end)                                         \
    {                                                                                                                  \
        for (uint32_t m = 0; m < g->g.m; m += MB)                                                                      \
            panel_columns(g, dtype, words, begin, end, m, WF_MIN(MB, g->g.m - m));                                     \
    }
EACH(offset, WF_Q4_0, false)
EACH(mins, WF_Q4_1, false)
EACH(halves, WF_Q6_K, true)
EACH(halves_mins, WF_Q2_K, true)
#if WF_LEVEL_ID == WF_LEVEL_IS_avx512
UNPACK(Q4_K_words, WF_Q4_K, true)
UNPACK(Q5_K_words, WF_Q5_K, true)
EACH(words_mins, WF_Q4_K, true)
#else
EACH(plain, WF_Q8_0, false) /* signed, with nothing to subtract */
#endif

typedef void (*columns_fn)(const product *, uint32_t begin, uint32_t end);

static columns_fn columns_of(uint8_t dtype)
{
    if (in_halves(dtype)) return has_mins(dtype) ? columns_halves_mins : columns_halves;
#if WF_LEVEL_ID != WF_LEVEL_IS_avx512
    if (!has_less(dtype)) return columns_plain;
#endif
    return has_mins(dtype) ? columns_mins : columns_offset;
}

static void run_panels(const wf_cpu_work *work, bool words, void (*unpack)(const char *const w[VL], w_panel *out),
                       columns_fn f)
{
    product g = product_of(work->call);
    uint32_t begin, end, chunk = wf_cpu_chunk(work, g.g.n, PAIR * VL, STRIPS * VL);
    g.words = words;
    g.unpack = unpack;
    g.xp = work->shared;
    g.wp = work->per_thread;
    g.sums = (float *)(g.wp + STRIPS);
    wf_cpu_part(work, g.g.m * g.panels, 1, &begin, &end);
    for (uint32_t i = begin, p; i < end; i++) {
        p = i / g.g.m;
        round_panel(g.g.x, g.g.w->dtype, words, i % g.g.m, p, WF_MIN(PANEL, g.g.k - p * PANEL), &g.xp[i]);
    }
    wf_cpu_barrier(work);
    while (wf_cpu_next(work, g.g.n, chunk, &begin, &end)) f(&g, begin, end);
}

void WF_SIMD(wf_cpu_gemm_panels)(const wf_cpu_work *work)
{
    const uint8_t dtype = work->call->in[WF_GEMM_W].dtype;
#define RUN_FORMAT(id, ...)                                                                        \
    if (dtype == WF_##id) run_panels(work, in_halves(WF_##id), unpack_##id, columns_of(WF_##id));
    WF_CPU_INTEGER_FORMATS(RUN_FORMAT, )
}

#if WF_LEVEL_ID == WF_LEVEL_IS_avx512
void WF_SIMD(wf_cpu_gemm_panels_int16)(const wf_cpu_work *work)
{
    run_panels(work, true, work->call->in[WF_GEMM_W].dtype == WF_Q4_K ? unpack_Q4_K_words : unpack_Q5_K_words,
               columns_words_mins);
}

#include "cpu/x86/panels_few.h"
#else
#include "cpu/x86/panels_words_few.h"
#endif

#define EACH_FEW(id, ...)                                                                          \
    static void few_##id(const product *g, uint32_t begin, uint32_t end)                           \
    {                                                                                              \
        few_of(g, WF_##id, begin, end);                                                            \
    }
WF_CPU_INTEGER_FORMATS(EACH_FEW, )

void WF_SIMD(wf_cpu_gemm_panels_few)(const wf_cpu_work *work)
{
    const uint8_t dtype = work->call->in[WF_GEMM_W].dtype;
#define RUN_FEW(id, ...)                                                                           \
    if (dtype == WF_##id) run_panels(work, false, NULL, few_##id);
    WF_CPU_INTEGER_FORMATS(RUN_FEW, )
}
