/* GEMM on AMX for some activation rows, a batch of sequences that decode: Q8_0 and Q4_0 weights go
 * into the unit as the bytes they are, so that nothing is decoded for so few uses. Activations are
 * 15 bits in two int8 (planes.h), one product for each.
 *
 * 16 weight rows meet 16 rows of X, block by block of 32 k: sums of int32 for each plane are taken
 * out of the unit, put together, scaled and added to F32 sums, which stay in registers, one for
 * each weight row. While one block is scaled the unit works on the next. The order of sums is
 * fixed.
 */
#include "cpu/ops/gemm.h"
#include "cpu/ops/planes.h"

#define TILE  16u
#define PLANE 512u              /* bytes of a block of 16 rows of X: [8][16 rows][4] */
#define BLOCK (2 * PLANE + 64u) /* both planes, then 16 scales */
#define DEPTH 2u                /* blocks in flight */

/* ---- activations ----------------------------------------------------------------------------- */

/* Blocks begin..end of tile t of X; rows that X does not have stay zero. */
static void pack_x(const gemm *g, uint32_t t, uint32_t begin, uint32_t end, char *out)
{
    const wf_dtype_info *in = &wf_dtypes[g->x->dtype];
    memset(out + (size_t)begin * BLOCK, 0, (size_t)(end - begin) * BLOCK);
    for (uint32_t r = 0; r < TILE && t * TILE + r < g->m; r++) {
        const char *row = wf_cpu_row(g->x, t * TILE + r);
        for (uint32_t b = begin; b < end; b++) {
            char *to = out + (size_t)b * BLOCK;
            int8_t q[2][32];
            float x[32];
            in->decode(row + (size_t)b * 32 * in->block_bytes, x, 32);
            ((float *)(to + 2 * PLANE))[r] = round_block(x, q[0], q[1]);
            for (uint32_t i = 0; i < 8; i++) {
                memcpy(to + 64 * i + 4 * r, q[0] + 4 * i, 4);
                memcpy(to + PLANE + 64 * i + 4 * r, q[1] + 4 * i, 4);
            }
        }
    }
}

/* ---- one strip ------------------------------------------------------------------------------- */

typedef struct strip {
    const char *w; /* 16 rows of weights */
    size_t step;
    const char *x;
    uint32_t blocks;
    __m512i rows; /* byte offsets of the 16 rows */
} strip;

/* What is between a block's products and its scaling. */
typedef struct stage {
    int32_t sum[2][TILE * TILE];
    float scale[TILE]; /* of the weight rows */
    int8_t w[TILE * 32];
} stage;

static void configure(void)
{
    struct {
        uint8_t palette, start, zero[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } c = {.palette = 1};
    for (int i = 0; i < 7; i++) { /* sums 0, 1; weights 4; activations 5, 6 */
        c.row_bytes[i] = i == 4 ? 32 : 64;
        c.rows[i] = i > 4 ? 8 : TILE;
    }
    __asm__ volatile("" ::: "memory"); /* compilers do not know what the unit reads */
    _tile_loadconfig(&c);
}

/* Low nibbles, then high ones, minus 8. */
WF_INLINE void unpack(const strip *s, const char *block, int8_t *out)
{
    for (uint32_t r = 0; r < TILE; r++) {
        __m128i b = _mm_loadu_si128((const void *)(block + r * s->step + 2));
        __m256i q = _mm256_set_m128i(_mm_srli_epi16(b, 4), b);
        q = _mm256_and_si256(q, _mm256_set1_epi8(15));
        _mm256_storeu_si256((void *)(out + 32 * r), _mm256_sub_epi8(q, _mm256_set1_epi8(8)));
    }
}

WF_INLINE void multiply(const strip *s, const uint8_t dtype, uint32_t b, stage *to)
{
    const size_t bytes = dtype == WF_Q8_0 ? 34 : 18;
    const char *block = s->w + b * bytes, *x = s->x + (size_t)b * BLOCK;
    __m512i d = _mm512_i32gather_epi32(s->rows, block, 1);
    _mm512_storeu_ps(to->scale, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(d)));
    if (dtype == WF_Q4_0) unpack(s, block, to->w);
    __asm__ volatile("" ::: "memory");
    _tile_zero(0);
    _tile_zero(1);
    if (dtype == WF_Q4_0)
        _tile_loadd(4, to->w, 32);
    else
        _tile_loadd(4, block + 2, s->step);
    _tile_loadd(5, x, 64);
    _tile_dpbssd(0, 4, 5);
    _tile_loadd(6, x + PLANE, 64);
    _tile_dpbssd(1, 4, 6);
    _tile_stored(0, to->sum[0], 64);
    _tile_stored(1, to->sum[1], 64);
    __asm__ volatile("" ::: "memory");
}

WF_INLINE void scale(const strip *s, uint32_t b, const stage *from, __m512 *acc)
{
    __m512 xs = _mm512_loadu_ps(s->x + (size_t)b * BLOCK + 2 * PLANE);
    WF_UNROLL(16)
    for (uint32_t r = 0; r < TILE; r++) {
        __m512i first = _mm512_slli_epi32(_mm512_loadu_si512(from->sum[0] + TILE * r), 8);
        __m512i both = _mm512_add_epi32(first, _mm512_loadu_si512(from->sum[1] + TILE * r));
        __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(both), xs);
        acc[r] = _mm512_fmadd_ps(x, _mm512_set1_ps(from->scale[r]), acc[r]);
    }
}

/* What the next strip begins with, a block's share at a time. */
WF_INLINE void fetch(const strip *s, const size_t bytes, uint32_t b)
{
    for (size_t i = 0; i < TILE * bytes; i += 64)
        __builtin_prefetch(s->w + TILE * (s->step + b * bytes) + i, 0, 2);
}

/* sum[weight row][row of X] */
WF_INLINE void run(const strip *s, const uint8_t dtype, bool first, float *sum)
{
    stage stages[DEPTH];
    __m512 acc[TILE];
    for (uint32_t r = 0; r < TILE; r++) acc[r] = _mm512_setzero_ps();
    multiply(s, dtype, 0, &stages[0]);
    for (uint32_t b = 0; b < s->blocks; b++) {
        if (first) fetch(s, dtype == WF_Q8_0 ? 34 : 18, b);
        if (b + 1 < s->blocks) multiply(s, dtype, b + 1, &stages[(b + 1) % DEPTH]);
        scale(s, b, &stages[b % DEPTH], acc);
    }
    for (uint32_t r = 0; r < TILE; r++) _mm512_storeu_ps(sum + TILE * r, acc[r]);
}

/* Weight rows begin..end, at most 16; where fewer are left the tile begins with earlier ones. */
static void strip_of(const gemm *g, uint32_t begin, uint32_t end)
{
    uint32_t n = WF_MIN(begin, g->n - TILE);
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    strip s = {g->wp + n * g->w_step, g->w_step, g->xp, g->k / 32};
    s.rows = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int)g->w_step));
    for (uint32_t m = 0; m < g->m; m += TILE, s.x += (size_t)s.blocks * BLOCK) {
        float sum[TILE * TILE];
        if (g->w->dtype == WF_Q8_0)
            run(&s, WF_Q8_0, m == 0, sum);
        else
            run(&s, WF_Q4_0, m == 0, sum);
        for (uint32_t r = begin - n; r < end - n; r++)
            for (uint32_t i = 0; i < TILE && m + i < g->m; i++)
                put(g, m + i, n + r, sum[TILE * r + i]);
    }
}

wf_cpu_need wf_cpu_gemm_amx8_need(const wf_call *c)
{
    size_t tiles = WF_UP((size_t)c->out[0].rows, (size_t)TILE) / TILE;
    return (wf_cpu_need){.shared = tiles * (c->in[0].cols / 32) * BLOCK};
}

void wf_cpu_gemm_amx8(const wf_cpu_work *work)
{
    gemm g = gemm_of(work);
    uint32_t begin, end, blocks = g.k / 32;
    for (uint32_t t = 0; t * TILE < g.m; t++) {
        wf_cpu_part(work, blocks, 1, &begin, &end);
        pack_x(&g, t, begin, end, (char *)work->shared + (size_t)t * blocks * BLOCK);
    }
    wf_cpu_barrier(work);
    g.xp = work->shared;
    configure();
    while (wf_cpu_next(work, g.n, 2 * TILE, &begin, &end))
        for (uint32_t n = begin; n < end; n += TILE) strip_of(&g, n, WF_MIN(n + TILE, end));
    _tile_release();
}
