/* layout: the arrangements of weights that kernels read.
 *
 *   0  rows as in the file
 *   1  MMA-fragment-major. F16: a tile of 16 rows x 16 of K is 32 fragments of 16 bytes, one for each lane of a warp:
 *     operand A of
 *      NVIDIA's mma.m16n8k16, which a warp of wgmma.m64 has in registers, too. Lane l holds the pairs of elements
 *      (row l / 4, k 2 (l % 4)), the same 8 rows further, 8 of K further, and both. Tiles follow each other
 *      along K, then along the rows; missing rows are zeros. Quantised weights stay so, in tiles of 16 rows x 64 of K
 *        (fragments.c).
 *   2  planes (kernels/plane_bytes.clh): rows of quantised weights, for kernels without matrix units.
 *
 * So one warp reads a tile as 512 bytes in a row and multiplies it without touching local memory, for one row of
 * activations as for thousands. Pure functions of the host. */
#include "cl/cl.h"
#include "cl/kernels/plane_bytes.clh"

#include <string.h>

enum { TILE = 16, LANES = 32, MIN_K = 32 };

/* ---- planes ------------------------------------------------------------------------------------------------- */

/* The last block of a row takes as much room as the others, so that short rows would waste too much of it. */
static bool can_be_planes(enum wf_dtype dtype, uint32_t cols)
{
    bool exact = dtype != WF_MXFP4; /* of which F16 does not hold all scales */
    return exact && wf_numbers_of(dtype) && cols >= PLANES_K && cols % (PLANES_K / 2) == 0;
}

uint64_t wf_cl_plane_bytes(enum wf_dtype dtype, uint32_t cols)
{
    const wf_numbers *f = wf_numbers_of(dtype);
    return (uint64_t)((cols + PLANES_K - 1) / PLANES_K) * (uint64_t)PLANES_BYTES(f->bits, f->group, f->min, f->parts);
}

/* 32 weights, of which a byte of q has one. */
static void pack_low(const wf_numbers *f, const uint8_t *q, uint8_t *to)
{
    for (uint32_t i = 0; i < 32; i += 8, to += f->bits == 8 ? 8 : 4) {
        uint64_t eight;
        memcpy(&eight, q + i, 8);
        if (f->bits == 8) eight ^= 0x8080808080808080ull;
        else eight = (eight & 0x0f0f0f0f) | (eight >> 28 & 0xf0f0f0f0);
        memcpy(to, &eight, f->bits == 8 ? 8 : 4);
    }
}

static void pack_high(const wf_numbers *f, const uint8_t *q, uint8_t *to)
{
    uint32_t word[2] = {0}, each = f->bits - 4u, four;
    for (uint32_t i = 0; i < 8; i++) {
        memcpy(&four, q + 4 * i, 4);
        if (each == 1) word[0] |= (four >> 4 & 0x01010101) << i;
        else word[i / 4] |= (four >> 4 & 0x03030303) << i % 4 * 2;
    }
    memcpy(to, word, 4 * each);
}

/* The scales and minimums of 64 weights from k on. */
static void pack_scales(const wf_numbers *f, const wf_numbers64 *w, uint32_t k, uint8_t *block)
{
    const uint32_t n = 64 / f->group, at = k % PLANES_K / f->group, each = PLANES_SCALE_BYTES(f->parts);
    uint8_t *scales = block + PLANES_SCALES_AT(f->bits, f->parts) + at * each,
            *mins = block + PLANES_MINS_AT(f->bits, f->group, f->parts) + at * each;
    memcpy(scales, f->parts ? (const void *)w->part : w->scale, n * each);
    if (f->min) memcpy(mins, f->parts ? (const void *)w->min_part : w->min, n * each);
    if (!f->parts) return;
    memcpy(block + PLANES_STEPS_AT(f->bits), &w->step, 4);
    memcpy(block + PLANES_STEPS_AT(f->bits) + 4, &w->min_step, 4);
}

static void pack_planes(enum wf_dtype dtype, uint32_t cols, const uint8_t *src, uint8_t *dst)
{
    const wf_numbers *f = wf_numbers_of(dtype);
    for (uint32_t k = 0; k < cols; k += 64) {
        uint8_t *block = dst + k / PLANES_K * PLANES_BYTES(f->bits, f->group, f->min, f->parts);
        wf_numbers64 w = {0};
        f->take(src, k, &w);
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t at = k / 32 % 8 + half;
            pack_low(f, w.q + half * 32, block + at * PLANES_LOW(f->bits));
            if (PLANES_HIGH(f->bits))
                pack_high(f, w.q + half * 32, block + PLANES_HIGH_AT(f->bits) + at * PLANES_HIGH(f->bits));
        }
        pack_scales(f, &w, k, block);
    }
}

/* ---- MMA-fragment-major ------------------------------------------------------------------------------------- */

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
    if (!d->ref.caps.nv_mma || base->params.tier < WF_TIER_MATRIX)
        return can_be_planes(dtype, cols) ? WF_CL_PLANES : WF_CL_ROWS;
    return f && cols % whole_k(f) == 0 ? WF_CL_FRAGMENT_MAJOR : WF_CL_ROWS;
}

uint64_t wf_cl_weight_bytes(wf_dev *base, uint8_t layout, enum wf_dtype dtype, uint32_t rows, uint32_t cols)
{
    (void)base;
    if (layout == WF_CL_PLANES) return rows * wf_cl_plane_bytes(dtype, cols);
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
    if (layout == WF_CL_PLANES) {
        for (uint32_t r = 0; r < rows; r++)
            pack_planes(dtype, cols, (const uint8_t *)src + r * wf_dtype_bytes(dtype, cols),
                        (uint8_t *)dst + r * wf_cl_plane_bytes(dtype, cols));
        return;
    }
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
