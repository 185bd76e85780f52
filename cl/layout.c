/* layout: the arrangements of weights that kernels read.
 *
 *   0  rows as in the file
 *   1  MMA-fragment-major. F16: a tile of 16 rows x 16 of K is 32 fragments of 16 bytes, one for each lane of a warp:
 *     operand A of
 *      NVIDIA's mma.m16n8k16, which a warp of wgmma.m64 has in registers, too. Lane l holds the pairs of elements
 *      (row l / 4, k 2 (l % 4)), the same 8 rows further, 8 of K further, and both. Tiles follow each other
 *      along K, then along the rows; missing rows are zeros. Quantised weights stay so, in tiles of 16 rows x 64 of K
 *        (fragments.c).
 *
 * So one warp reads a tile as 512 bytes in a row and multiplies it without touching local memory, for one row of
 * activations as for thousands. Pure functions of the host. */
#include "cl/cl.h"

#include <string.h>

enum { TILE = 16, LANES = 32, MIN_K = 32 };

/* Of K, of which rows of W are whole multiples. */
static uint32_t whole_k(const cl_fragments *f)
{
    return WF_MAX((uint32_t)MIN_K, wf_cl_fragment_k(f));
}

uint8_t wf_cl_weight_layout(wf_dev *base, enum wf_dtype dtype, uint32_t rows, uint32_t cols)
{
    const cl_dev *d = (const cl_dev *)base;
    const cl_fragments *f = wf_cl_fragments(dtype);
    (void)rows;
    if (!d->ref.caps.nv_mma || base->params.tier < WF_TIER_MATRIX) return WF_CL_ROWS;
    return f && cols % whole_k(f) == 0 ? WF_CL_FRAGMENT_MAJOR : WF_CL_ROWS;
}

uint64_t wf_cl_weight_bytes(wf_dev *base, uint8_t layout, enum wf_dtype dtype, uint32_t rows, uint32_t cols)
{
    (void)base;
    if (layout != WF_CL_FRAGMENT_MAJOR) return (uint64_t)rows * wf_dtype_bytes(dtype, cols);
    const cl_fragments *f = wf_cl_fragments(dtype);
    return (uint64_t)((rows + TILE - 1) / TILE) * (cols / wf_cl_fragment_k(f)) * wf_cl_fragment_bytes(f);
}

/* One tile; pairs are copied as they are. */
static void pack_tile(const uint16_t *src, uint32_t rows, uint32_t cols, uint16_t *dst)
{
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t pair = 0; pair < 4; pair++, dst += 2) {
            uint32_t row = lane / 4 + pair % 2 * 8, k = lane % 4 * 2 + pair / 2 * 8;
            if (row < rows) memcpy(dst, src + (size_t)row * cols + k, 4);
            else memset(dst, 0, 4);
        }
}

void wf_cl_weight_pack(wf_dev *base, uint8_t layout, enum wf_dtype dtype, uint32_t rows, uint32_t cols, const void *src,
                       void *dst)
{
    (void)base;
    if (layout != WF_CL_FRAGMENT_MAJOR) {
        memcpy(dst, src, (size_t)rows * wf_dtype_bytes(dtype, cols));
        return;
    }
    if (dtype != WF_F16) {
        wf_cl_fragments_pack(dtype, rows, cols, src, dst);
        return;
    }
    uint16_t *out = dst;
    for (uint32_t row = 0; row < rows; row += TILE)
        for (uint32_t k = 0; k < cols; k += TILE, out += TILE * TILE)
            pack_tile((const uint16_t *)src + (size_t)row * cols + k, rows - row, cols, out);
}
