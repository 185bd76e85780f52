/* GEMM for few rows of X and 16-row interleaved Q8_0 weights (layout.c), with AVX-512 VNNI: a register holds four
 * columns of 16 weight rows and is multiplied with four columns of X, broadcast to all lanes. X is quantised as in
 * gemm_vnni.c.
 *
 * With one row of X the kernel is bound by memory. It reads several strips (groups of 16 interleaved rows) at a time,
 * because a core reaches more bandwidth from several streams than from one (two threads, 11264 x 2048, huge pages: 23
 * GB/s row by row, 23 with one strip, 27 with four).
 */
#include <string.h>

#include "cpu/ops/gemm.h"
#include "cpu/x86/gemm_amx.h"
#include "cpu/x86/hi_lo.h"

#define MOST  4u    /* strips and rows of X in a tile */
#define FETCH 2048u /* prefetch distance in bytes */

/* A prepared row: hi and lo of each block of 32, then the compensation for unsigned weights, then the scales. */
static size_t row_step(uint32_t k)
{
    return WF_UP((size_t)k * 2 + k / 32 * (sizeof(int32_t) + sizeof(float)), (size_t)64);
}

static void prep_row(const gemm *g, uint32_t m, void *dst)
{
    const wf_dtype_info *in = &wf_dtypes[g->x->dtype];
    const char *row = wf_cpu_row(g->x, m);
    uint32_t blocks = g->k / 32;
    int8_t *q = dst;
    int32_t *comp = (int32_t *)(q + 2 * (size_t)g->k);
    float *scale = (float *)(comp + blocks), x[32];
    for (uint32_t b = 0; b < blocks; b++, q += 64) {
        int32_t hi = 0, lo = 0;
        in->decode(row + (size_t)b * 32 * in->block_bytes, x, 32);
        scale[b] = round_block(x, q, q + 32);
        for (int i = 0; i < 32; i++) hi += q[i], lo += q[32 + i];
        comp[b] = -128 * (256 * hi + lo);
    }
}

typedef struct tile {
    const char *x[MOST];
    const int32_t *comp[MOST];
    const float *scale[MOST];
    __m512 acc[MOST][MOST]; /* [strip][row of X] */
} tile;

/* Multiplies block b, whose lines and scales in strip s start at these. */
WF_INLINE void block(tile *t, const char *line, const char *scales, uint32_t b, const int s, const int mr)
{
    const __m512i flip = _mm512_set1_epi8(-128);
    __m512i hi[MOST], lo[MOST];
    for (int m = 0; m < mr; m++) {
        hi[m] = _mm512_setzero_si512();
        lo[m] = _mm512_set1_epi32(t->comp[m][b]);
    }
    WF_UNROLL(8)
    for (uint32_t i = 0; i < 8; i++) {
        const __m512i w = _mm512_xor_si512(_mm512_loadu_si512(line + 64 * i), flip);
        for (int m = 0; m < mr; m++) {
            const char *x = t->x[m] + (size_t)b * 64 + 4 * i;
            hi[m] = _mm512_dpbusd_epi32(hi[m], w, four_bytes(x));
            lo[m] = _mm512_dpbusd_epi32(lo[m], w, four_bytes(x + 32));
        }
    }
    const __m512 d = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)scales));
    for (int m = 0; m < mr; m++) {
        __m512 sum = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(hi[m], 8), lo[m]));
        t->acc[s][m] = _mm512_fmadd_ps(sum, _mm512_mul_ps(d, _mm512_set1_ps(t->scale[m][b])), t->acc[s][m]);
    }
}

/* Multiplies ns strips from `strip` on by mr rows of X from m on. */
WF_INLINE void tile_of(const gemm *g, const wf_call *c, uint32_t strip, uint32_t m, const int ns, const int mr)
{
    const size_t step = wf_q8_0x16_bytes(g->k);
    const char *w = g->wp + strip * step;
    tile t;
    for (int i = 0; i < mr; i++) {
        t.x[i] = g->xp + (m + i) * g->x_step;
        t.comp[i] = (const int32_t *)(t.x[i] + 2 * (size_t)g->k);
        t.scale[i] = (const float *)(t.comp[i] + g->k / 32);
        for (int s = 0; s < ns; s++) t.acc[s][i] = _mm512_setzero_ps();
    }
    for (uint32_t b = 0; b < g->k / 32; b += 2, w += WF_Q8_0X16_GROUP)
        for (int s = 0; s < ns; s++) {
            const char *p = w + s * step;
            for (uint32_t i = 0; i < WF_Q8_0X16_GROUP; i += 64) __builtin_prefetch(p + FETCH + i, 0, 3);
            block(&t, p + 64, p, b, s, mr);
            block(&t, p + 64 + 512, p + 32, b + 1, s, mr);
        }
    for (int s = 0; s < ns; s++)
        for (int i = 0; i < mr; i++) {
            float sum[TILE];
            _mm512_storeu_ps(sum, t.acc[s][i]);
            store_row(c, m + i, (strip + s) * TILE, sum);
        }
}

/* Multiplies ns strips by all rows of X. */
WF_INLINE void gemm_strips(const gemm *g, const wf_call *c, uint32_t strip, const int ns)
{
    uint32_t m = 0;
    for (; m + MOST <= g->m; m += MOST) tile_of(g, c, strip, m, ns, MOST);
    for (; m < g->m; m++) tile_of(g, c, strip, m, ns, 1);
}

wf_cpu_scratch_size wf_cpu_gemm_q8_0x16_scratch(const wf_call *c)
{
    return prep_scratch(c, row_step(c->in[WF_GEMM_X].cols));
}

void wf_cpu_gemm_q8_0x16(const wf_cpu_work *work)
{
    gemm g = gemm_of(work);
    const uint32_t strips = WF_UP(g.n, TILE) / TILE, chunk = wf_cpu_chunk(work, strips, 1, MOST);
    uint32_t begin, end;
    prepare(work, &g, row_step(g.k), prep_row);
    while (wf_cpu_next(work, strips, chunk, &begin, &end)) {
        uint32_t strip = begin;
        if (g.m == 1 && end - begin == MOST) gemm_strips(&g, work->call, strip, MOST), strip = end;
        for (; strip < end; strip++) gemm_strips(&g, work->call, strip, 1);
    }
}
