/* GEMM on AMX for F32 and BF16 weights: bf16 products, F32 sums.
 *
 * Every number is split into two bf16, hi and lo, of 8 bits each. Three of the four products are summed (lo x lo is
 * omitted), so that the result is as accurate as with F16 products. Each thread decodes a panel of weights for nb
 * output columns and kc elements of K; activations are split once per call.
 *
 *   weights      tile of 16 rows x 32 k, row-major                     A of the unit
 *   activations  tile of 16 pairs of k (i and i + 16) x 16 rows of X   B
 *   sums         tile of 16 output columns x 16 rows of X              C, transposed when it is stored
 *
 * The order of summation over K is fixed: results depend neither on other rows nor on the number of threads.
 */
#include <string.h>

#include "cpu/x86/gemm_amx.h"

#define TILE_K 32u         /* k of a tile */
#define TILE_BYTES 1024u
#define BOTH   (2 * TILE_BYTES) /* the hi tile, then the lo tile */
#define KC     256u        /* k of a panel */
#define NB_MAX 128u        /* output columns of a panel: with KC and the sums, about half an L2 cache */
#define FEW    64u         /* up to this many rows of X panels are narrow, because each is used only briefly */
#define NB_FEW 32u         /* the same for few rows of X */
#define KC_FEW 128u        /* with NB_FEW: the tiles of both panels stay in L1 */
#define AHEAD  4u          /* prefetch distance in weight rows */

typedef struct amx {
    const wf_view *x, *w, *y;
    uint32_t m, n, k;
    uint32_t m_tiles, k_tiles;
    uint32_t nb, kc; /* output columns and k of a panel */
    const char *xp;  /* [m_tiles][k_tiles] BOTH */
    char *panel;     /* [nb / TILE][kc / TILE_K] BOTH */
    float *sums;     /* [nb / TILE][tiles of a block of X][TILE][TILE] */
} amx;

static amx amx_of(const wf_call *c)
{
    amx a = {&c->in[WF_GEMM_X], &c->in[WF_GEMM_W], &c->out[WF_GEMM_Y]};
    a.m = a.y->rows;
    a.n = a.y->cols;
    a.k = a.x->cols;
    a.m_tiles = WF_UP(a.m, TILE) / TILE;
    a.k_tiles = WF_UP(a.k, TILE_K) / TILE_K;
    a.nb = a.m <= FEW ? NB_FEW : NB_MAX;
    a.kc = a.m <= FEW ? KC_FEW : KC;
    return a;
}

static size_t panel_bytes(const amx *a)
{
    return (size_t)a->nb * a->kc * 4;
}

wf_cpu_scratch_size wf_cpu_gemm_amx_scratch(const wf_call *c)
{
    amx a = amx_of(c);
    size_t rows = WF_MIN(a.m_tiles * TILE, MB);
    return (wf_cpu_scratch_size){.shared = (size_t)a.m_tiles * a.k_tiles * BOTH,
                         .per_thread = panel_bytes(&a) + rows * a.nb * sizeof(float)};
}

/* ---- splitting ------------------------------------------------------------------------------- */

/* Truncates 32 F32 to bf16 and interleaves a and b. Weights and activations use the same order of k, so no permutation
 * is needed. */
WF_INLINE __m512i upper_halves(__m512 a, __m512 b)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000);
    __m512i low = _mm512_srli_epi32(_mm512_castps_si512(a), 16);
    return _mm512_ternarylogic_epi32(high, _mm512_castps_si512(b), low, 0xea); /* (high & b) | low */
}

WF_INLINE __m512 low_part(__m512 a)
{
    __m512i hi = _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32((int)0xffff0000));
    return _mm512_sub_ps(a, _mm512_castsi512_ps(hi));
}

/* Splits 32 F32 into hi and lo of a tile row. */
WF_INLINE void split_hi_low(__m512 a, __m512 b, char *dst)
{
    _mm512_storeu_si512(dst, upper_halves(a, b));
    _mm512_storeu_si512(dst + TILE_BYTES, upper_halves(low_part(a), low_part(b)));
}

static void split_f32(const float *x, uint32_t n, char *out)
{
    for (uint32_t i = 0; i < n; i += TILE_K)
        split_hi_low(v_load(x + i), v_load(x + i + 16), out + (size_t)i / TILE_K * BOTH);
}

static const char *row_at(const wf_view *v, uint32_t row, uint32_t k)
{
    const wf_dtype_info *t = &wf_dtypes[v->dtype];
    return (const char *)wf_cpu_row(v, row) + (size_t)k / t->block * t->block_bytes;
}

/* Splits n elements of one row from k on, with tiles BOTH bytes apart; pads with zeros to a multiple of TILE_K. */
static void split_row(const wf_view *v, uint32_t row, uint32_t k, uint32_t n, char *out)
{
    const char *src = row_at(v, row, k);
    float floats[KC];
    if (n % TILE_K == 0 && v->dtype == WF_F32) {
        split_f32((const float *)src, n, out);
    } else {
        WF_SIMD(wf_cpu_decode)(v->dtype, src, floats, n);
        memset(floats + n, 0, (WF_UP(n, TILE_K) - n) * sizeof(float));
        split_f32(floats, n, out);
    }
}

/* Packs one tile of activations for one panel: splits row by row, then transposes so that pairs of k come first. */
static void pack_x(const amx *a, uint32_t tile, uint32_t k, char *out)
{
    uint32_t n = WF_MIN(KC, a->k - k), rows = WF_MIN(TILE, a->m - tile * TILE);
    char plain[KC / TILE_K][BOTH] __attribute__((aligned(64)));
    memset(plain, 0, sizeof(plain));
    for (uint32_t r = 0; r < rows; r++)
        split_row(a->x, tile * TILE + r, k, n, plain[0] + (size_t)r * 64);
    for (uint32_t i = 0; i < n; i += TILE_K)
        for (uint32_t p = 0; p < BOTH; p += TILE_BYTES)
            v_transpose((const float *)(plain[i / TILE_K] + p), TILE,
                        (float *)(out + (size_t)i / TILE_K * BOTH + p), TILE);
}

/* Packs weight rows begin..begin + nb, kc columns from k on; rows past n become zeros. */
static void pack_w(const amx *a, uint32_t begin, uint32_t k)
{
    uint32_t n = WF_MIN(a->kc, a->k - k);
    size_t bytes = wf_dtype_bytes(a->w->dtype, n);
    for (uint32_t r = 0; r < a->nb; r++) {
        char *out = a->panel + (size_t)(r / TILE) * (a->kc / TILE_K) * BOTH + r % TILE * 64;
        /* The hardware prefetcher cannot predict a jump to the next row; what it can is a part of the next columns, in
         * memory order. */
        const char *ahead = row_at(a->w, begin + r + AHEAD, k),
                   *next = row_at(a->w, begin + a->nb, 0) + (k / a->kc * a->nb + r) * bytes;
        for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(ahead + i);
        for (size_t i = 0; i < bytes && a->m <= FEW; i += 64) __builtin_prefetch(next + i, 0, 2);
        if (begin + r < a->n) {
            split_row(a->w, begin + r, k, n, out);
            continue;
        }
        const float zeros[KC] = {0};
        split_f32(zeros, n, out);
    }
}

/* ---- the products ---------------------------------------------------------------------------- */

/* Tiles 0 to 3: accumulators [2 column tiles][2 row tiles of X]; 4 and 5: weights; 6 and 7: activations. */
#define PRODUCTS(two)                                                                              \
    do {                                                                                           \
        _tile_dpbf16ps(0, 4, 6);                                                                   \
        _tile_dpbf16ps(2, 5, 6);                                                                   \
        if (two) {                                                                                 \
            _tile_dpbf16ps(1, 4, 7);                                                               \
            _tile_dpbf16ps(3, 5, 7);                                                               \
        }                                                                                          \
    } while (0)
#define LOAD_W(part)                                                                              \
    do {                                                                                           \
        _tile_loadd(4, w[0] + i * BOTH + (part), 64);                                             \
        _tile_loadd(5, w[1] + i * BOTH + (part), 64);                                             \
    } while (0)
#define LOAD_X(part, two)                                                                         \
    do {                                                                                           \
        _tile_loadd(6, x[0] + i * BOTH + (part), 64);                                             \
        if (two) _tile_loadd(7, x[1] + i * BOTH + (part), 64);                                    \
    } while (0)

/* Multiplies two tiles of weights by one or two of activations over `blocks` * TILE_K. */
WF_INLINE void multiply_tiles(const char *const w[2], const char *const x[2], uint32_t blocks,
                     float *const sum[4], bool first, const bool two)
{
    TILES_SEE_MEMORY();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (!first) {
        _tile_loadd(0, sum[0], 64);
        _tile_loadd(2, sum[2], 64);
        if (two) _tile_loadd(1, sum[1], 64);
        if (two) _tile_loadd(3, sum[3], 64);
    }
    for (size_t i = 0; i < blocks; i++) {
        LOAD_W(0);
        LOAD_X(TILE_BYTES, two);
        PRODUCTS(two);
        LOAD_X(0, two);
        PRODUCTS(two);
        LOAD_W(TILE_BYTES);
        PRODUCTS(two);
    }
    _tile_stored(0, sum[0], 64);
    _tile_stored(2, sum[2], 64);
    if (two) _tile_stored(1, sum[1], 64);
    if (two) _tile_stored(3, sum[3], 64);
    TILES_SEE_MEMORY();
}

/* Multiplies the panel at k by m_tiles row tiles of X from m_tile on. */
static void multiply_panel(const amx *a, uint32_t m_tile, uint32_t m_tiles, uint32_t k)
{
    uint32_t blocks = WF_UP(WF_MIN(a->kc, a->k - k), TILE_K) / TILE_K;
    for (uint32_t m = 0; m < m_tiles; m += 2) {
        const char *x[2];
        bool two = m + 1 < m_tiles;
        x[0] = a->xp + ((size_t)(m_tile + m) * a->k_tiles + k / TILE_K) * BOTH;
        x[1] = x[0] + (size_t)a->k_tiles * BOTH;
        for (uint32_t n = 0; n < a->nb / TILE; n += 2) {
            const char *w[2];
            float *at = a->sums + ((size_t)n * m_tiles + m) * TILE * TILE;
            float *sum[4] = {at, at + TILE * TILE};
            sum[2] = at + (size_t)m_tiles * TILE * TILE;
            sum[3] = sum[2] + TILE * TILE;
            w[0] = a->panel + (size_t)n * (a->kc / TILE_K) * BOTH;
            w[1] = w[0] + (size_t)a->kc / TILE_K * BOTH;
            if (two)
                multiply_tiles(w, x, blocks, sum, k == 0, true);
            else
                multiply_tiles(w, x, blocks, sum, k == 0, false);
        }
    }
}

/* Computes nb output columns from begin on. */
static void gemm_columns(const wf_call *c, const amx *a, uint32_t begin)
{
    for (uint32_t m = 0; m < a->m_tiles; m += MB / TILE) {
        uint32_t m_tiles = WF_MIN(MB / TILE, a->m_tiles - m);
        for (uint32_t k = 0; k < a->k; k += a->kc) {
            pack_w(a, begin, k);
            multiply_panel(a, m, m_tiles, k);
        }
        store_sums(c, begin, a->nb, m, m_tiles, a->sums);
    }
}

void wf_cpu_gemm_amx(const wf_cpu_work *work)
{
    amx a = amx_of(work->call);
    uint32_t begin, end, pieces = (a.k + KC - 1) / KC;
    a.nb = wf_cpu_chunk(work, a.n, 2 * TILE, a.nb);
    a.xp = work->shared;
    a.panel = work->per_thread;
    a.sums = (float *)(a.panel + panel_bytes(&a));
    wf_cpu_part(work, a.m_tiles * pieces, 1, &begin, &end);
    for (uint32_t i = begin; i < end; i++) {
        uint32_t tile = i / pieces, k = i % pieces * KC;
        pack_x(&a, tile, k, (char *)work->shared + ((size_t)tile * a.k_tiles + k / TILE_K) * BOTH);
    }
    wf_cpu_barrier(work);
    configure();
    while (wf_cpu_next(work, a.n, a.nb, &begin, &end)) gemm_columns(work->call, &a, begin);
    _tile_release();
}
