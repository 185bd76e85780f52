/* Shared by the AMX kernels: tile configuration and storing results. */
#ifndef WF_CPU_X86_GEMM_AMX_H
#define WF_CPU_X86_GEMM_AMX_H

#include "cpu/x86/hi_lo.h"

#define TILE 16u   /* rows of every tile, and columns of an accumulator */
#define MB   512u  /* rows of X at a time */

/* Compilers do not know which memory AMX reads and writes. */
#define TILES_SEE_MEMORY() __asm__ volatile("" ::: "memory")

/* All tiles are 16 rows of 64 bytes. */
static inline void configure(void)
{
    struct {
        uint8_t palette, start, zero[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = 64;
        c.rows[i] = TILE;
    }
    TILES_SEE_MEMORY();
    _tile_loadconfig(&c);
}

/* Stores 16 outputs of row m from column n on. */
static inline void store_row(const wf_call *c, uint32_t m, uint32_t n, const float *sum)
{
    const wf_view *y = &c->out[WF_GEMM_Y];
    uint32_t count = WF_MIN(TILE, y->cols - n);
    const float *bias = wf_cpu_has(&c->in[WF_GEMM_BIAS]) ? (const float *)wf_cpu_at(&c->in[WF_GEMM_BIAS]) + n : NULL;
    const wf_view *more = &c->in[WF_GEMM_RESIDUAL];
    const char *res = wf_cpu_has(more)
                          ? (const char *)wf_cpu_row(more, m) + (size_t)n * wf_dtypes[more->dtype].block_bytes
                          : NULL;
    const __mmask16 some = (__mmask16)((1u << count) - 1);
    vf v = v_load(sum);
    if (bias) v = v_add(v, count == TILE ? v_load(bias) : v_load_n(bias, count));
    if (res)
        v = v_add(v, y->dtype == WF_F32 ? _mm512_maskz_loadu_ps(some, res)
                                        : _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(some, res)));
    char *to = (char *)wf_cpu_row(y, m) + (size_t)n * wf_dtypes[y->dtype].block_bytes;
    if (y->dtype == WF_F32)
        _mm512_mask_storeu_ps(to, some, v);
    else
        _mm256_mask_storeu_epi16(to, some, _mm512_cvtps_ph(v, 0));
}

/* Stores `width` output columns from n on for m_tiles row tiles of X, from sums [width / TILE][m_tiles][TILE][TILE]. */
static inline void store_sums(const wf_call *c, uint32_t n, uint32_t width, uint32_t m_tile, uint32_t m_tiles,
                            const float *sums)
{
    float transposed[TILE * TILE];
    uint32_t rows = c->out[WF_GEMM_Y].rows;
    for (uint32_t end = WF_MIN(n + width, c->out[WF_GEMM_Y].cols); n < end; n += TILE)
        for (uint32_t t = 0; t < m_tiles; t++, sums += TILE * TILE) {
            uint32_t first = (m_tile + t) * TILE;
            v_transpose(sums, TILE, transposed, TILE);
            for (uint32_t r = 0; r < TILE && first + r < rows; r++)
                store_row(c, first + r, n, transposed + r * TILE);
        }
}

#endif
