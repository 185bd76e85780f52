/* blocks: what products of integers need to know about each format: a weight is a whole number of eight bits or fewer,
 * less an offset of the format, times a scale, which 32 or 16 of them share, less a minimum of theirs. 256 weights, a
 * panel, are a superblock or eight blocks.
 *
 * All functions get the dtype as a constant.
 */
#ifndef WF_CPU_OPS_BLOCKS_H
#define WF_CPU_OPS_BLOCKS_H

#include "cpu/cpu.h"
#include "cpu/ops/simd.h"
#include "tensor/quant/grid_groups.h"
#include "tensor/quant/iq4_values.h"
#include "tensor/quant/mxfp4_values.h"

/* Bytes of a block. */
WF_INLINE uint32_t bytes_of(const uint8_t dtype)
{
    switch (dtype) {
#define X(id, name, ggml, block, bytes, ...)                                                       \
    case WF_##id:                                                                                  \
        return bytes;
#include "tensor/dtypes.def"
#undef X
    }
    return 0;
}

/* IQ2 and IQ3, of which kernels read what expanded() makes of a superblock. */
WF_INLINE bool is_grid(const uint8_t dtype)
{
    return dtype == WF_IQ2_XXS || dtype == WF_IQ2_XS || dtype == WF_IQ2_S || dtype == WF_IQ3_XXS || dtype == WF_IQ3_S;
}

/* A scale for each 16 weights. */
WF_INLINE bool in_halves(const uint8_t dtype)
{
    return dtype == WF_Q2_K || dtype == WF_Q3_K || dtype == WF_Q6_K || is_grid(dtype);
}

/* Where a superblock of those has the f16 that its scales are multiplied with; of IQ2 and IQ3 the float. */
WF_INLINE uint32_t half_scales_at(const uint8_t dtype)
{
    return is_grid(dtype) ? 272 : dtype == WF_Q2_K ? 80 : dtype == WF_Q3_K ? 108 : 208;
}

/* That, in all lanes. */
WF_INLINE qf half_scales_unit(const uint8_t dtype, const char *p)
{
    float unit;
    if (!is_grid(dtype)) return qf_half(p + half_scales_at(dtype));
    memcpy(&unit, p + half_scales_at(dtype), sizeof unit);
    return qf_set(unit);
}

/* The scales and minima of k_scales.h. */
WF_INLINE bool has_k_scales(const uint8_t dtype)
{
    return dtype == WF_Q4_K || dtype == WF_Q5_K;
}

/* A block is 256 weights. */
WF_INLINE bool in_supers(const uint8_t dtype)
{
    return in_halves(dtype) || has_k_scales(dtype) || dtype == WF_IQ4_XS;
}

WF_INLINE uint32_t bytes_of_panel(const uint8_t dtype)
{
    return bytes_of(dtype) * (in_supers(dtype) ? 1 : 8);
}

/* A minimum for each group of weights. */
WF_INLINE bool has_mins(const uint8_t dtype)
{
    return dtype == WF_Q4_1 || dtype == WF_Q5_1 || dtype == WF_Q2_K || has_k_scales(dtype);
}

WF_INLINE bool has_fifth(const uint8_t dtype)
{
    return dtype == WF_Q5_0 || dtype == WF_Q5_1;
}

/* What the codes of four bits stand for, or NULL: for themselves. */
WF_INLINE const int8_t *values_of(const uint8_t dtype)
{
    if (is_grid(dtype)) return wf_grid_values(dtype);
    return dtype == WF_MXFP4 ? wf_mxfp4_doubled : dtype == WF_IQ4_NL || dtype == WF_IQ4_XS ? wf_iq4_values : NULL;
}

/* What is added to the weights: block_of() has it. */
WF_INLINE int offset_of(const uint8_t dtype)
{
    return dtype == WF_Q4_0 ? 8 : dtype == WF_Q5_0 ? 16 : dtype == WF_Q3_K ? 4 : dtype == WF_Q6_K ? 32 : 0;
}

/* What is added to make them unsigned, by flipping the highest bit where block_of() has signed ones. */
WF_INLINE int unsigned_offset_of(const uint8_t dtype)
{
    return dtype == WF_Q8_0 || values_of(dtype) ? 128 : offset_of(dtype);
}

/* Where block b of 32 weights of the panel at p has its 16 bytes of nibbles, those of weights 0 to 15 being the low
 * ones; not of all formats. */
WF_INLINE const char *nibbles_at(const uint8_t dtype, const char *p, const uint32_t b)
{
    return dtype == WF_IQ4_XS ? p + 8 + 16 * b : p + bytes_of(dtype) * (b + 1) - 16;
}

/* The 32 fifth bits in front of them. */
WF_INLINE const char *fifth_at(const uint8_t dtype, const char *p, const uint32_t b)
{
    return nibbles_at(dtype, p, b) - 4;
}

/* The weights of block b of the panel at p as bytes, signed in Q8_0 and where codes stand for values. */
WF_INLINE q8 block_of(const uint8_t dtype, const char *p, const uint32_t b)
{
    if (dtype == WF_Q8_0) return q_load(p + 34 * b + 2);
    if (is_grid(dtype)) return q_load(p + 32 * b);
    if (dtype == WF_Q2_K) return q_2k(p + 16, b);
    if (dtype == WF_Q3_K) return q_3k(p + 32, p, b);
    if (dtype == WF_Q4_K) return q_4k(p + 16, b);
    if (dtype == WF_Q5_K) return q_5k(p + 48, p + 16, b);
    if (dtype == WF_Q6_K) return q_6k(p, b);
    const q8 q = q_nibbles(nibbles_at(dtype, p, b));
    if (has_fifth(dtype)) return q_fifth(q, fifth_at(dtype, p, b));
    return values_of(dtype) ? q_pick(q, values_of(dtype)) : q;
}

#define EXPANDED 288u /* bytes, and what is read past them */

/* A superblock of IQ2 or IQ3 at p as 256 signed bytes, 16 scales, also where 32 share one, and the float that these are
 * multiplied with. Of other formats p itself. */
WF_INLINE const char *expanded(const uint8_t dtype, const char *p, char room[EXPANDED])
{
    const uint8_t *block = (const uint8_t *)p;
    if (!is_grid(dtype)) return p;
    WF_UNROLL(8)
    for (uint32_t g = 0; g < 8; g++) {
        const wf_grid_group w = wf_grid_group_at(dtype, block, g);
        const q8 q = q_grid(w.levels, w.minus, wf_grid_has_eights(dtype), wf_grid_values(dtype));
        memcpy(room + 32 * g, &q, 32);
    }
    uint64_t scales[2];
    wf_grid_scales(dtype, block, scales);
    memcpy(room + 256, scales, sizeof scales);
    const float step = wf_grid_step(dtype, block);
    memcpy(room + half_scales_at(dtype), &step, sizeof step);
    return room;
}

#endif
