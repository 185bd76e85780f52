/* numbers: quantised weights taken apart into numbers of few bits, scales and minimums; a row here and a function for
 * each format that has those (quant/ has their layouts). Scales become F16, which rounds those of formats with scales
 * of scales. */
#include "tensor/numbers.h"

#include "tensor/quant/grid_groups.h"
#include "tensor/quant/k_scales.h"

#include <math.h>
#include <string.h>

#define OF_EACH(x) ((x)*0x0101010101010101ull) /* the byte x eight times */

static uint16_t half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

/* Of each of eight bytes, the bits from `from` on that the mask has. */
static uint64_t bits_of(const uint8_t *bytes, uint32_t from, uint64_t mask)
{
    uint64_t x;
    memcpy(&x, bytes, 8);
    return x >> from & OF_EACH(mask);
}

static void put_eight(uint8_t *q, uint64_t eight)
{
    memcpy(q, &eight, 8);
}

static void put_scale(wf_numbers64 *out, uint32_t g, float step, int32_t part)
{
    out->step = step;
    out->part[g] = (int8_t)part;
    out->scale[g] = wf_float_to_half(step * (float)part);
}

static void put_min(wf_numbers64 *out, uint32_t g, float step, uint8_t part)
{
    out->min_step = step;
    out->min_part[g] = part;
    out->min[g] = wf_float_to_half(step * (float)part);
}

/* Blocks of 32 with scale, minimum where the format has one, fifth bits where it has them, and nibbles: their sizes
 * tell which. */
static void take_32(const uint8_t *row, uint32_t k, bool min, bool fifth, wf_numbers64 *out)
{
    size_t bytes = 18 + 2 * min + 4 * fifth;
    for (int b = 0; b < 2; b++) {
        const uint8_t *block = row + (k / 32 + (uint32_t)b) * bytes, *high = block + 2 + 2 * min,
                      *low = high + 4 * fifth;
        out->scale[b] = half_at(block);
        if (min) out->min[b] = half_at(block + 2);
        for (uint32_t i = 0; i < 32; i += 8)
            put_eight(out->q + b * 32 + i,
                      bits_of(low + i % 16, i / 16 * 4, 15) | (fifth ? wf_spread_bits(high[i / 8]) << 4 : 0));
    }
}

/* The numbers of a block of 32 that are nibbles and no more. */
static void take_nibbles(const uint8_t *low, uint8_t *q)
{
    for (uint32_t i = 0; i < 32; i += 8) put_eight(q + i, bits_of(low + i % 16, i / 16 * 4, 15));
}

#define TAKE_32(name, min, fifth)                                                                  \
    static void take_##name(const uint8_t *row, uint32_t k, wf_numbers64 *out)                     \
    {                                                                                              \
        take_32(row, k, min, fifth, out);                                                          \
    }
TAKE_32(q4_0, false, false)
TAKE_32(q4_1, true, false)
TAKE_32(q5_0, false, true)
TAKE_32(q5_1, true, true)

/* Super-blocks of eight groups of 32; the fifth bits of Q5_K lie in front of the nibbles. */
static void take_k(const uint8_t *row, uint32_t k, bool fifth, wf_numbers64 *out)
{
    const uint8_t *block = row + (size_t)(k / 256) * (fifth ? 176 : 144);
    const uint8_t *high = block + 16, *low = high + (fifth ? 32 : 0) + k % 256 / 2;
    float d = wf_half_to_float(half_at(block)), dmin = wf_half_to_float(half_at(block + 2));
    for (uint32_t b = 0; b < 2; b++) {
        uint8_t scale, min;
        uint32_t g = k % 256 / 32 + b;
        wf_k_scale_at(block + 4, g, &scale, &min);
        put_scale(out, b, d, scale);
        put_min(out, b, -dmin, min);
        for (uint32_t i = 0; i < 32; i += 8)
            put_eight(out->q + b * 32 + i, bits_of(low + i, b * 4, 15) | (fifth ? bits_of(high + i, g, 1) << 4 : 0));
    }
}

static void take_q4_k(const uint8_t *row, uint32_t k, wf_numbers64 *out)
{
    take_k(row, k, false, out);
}

static void take_q5_k(const uint8_t *row, uint32_t k, wf_numbers64 *out)
{
    take_k(row, k, true, out);
}

static void take_q8_0(const uint8_t *row, uint32_t k, wf_numbers64 *out)
{
    for (int b = 0; b < 2; b++) {
        const uint8_t *block = row + (size_t)(k / 32 + b) * 34;
        out->scale[b] = half_at(block);
        for (int i = 0; i < 32; i++) out->q[b * 32 + i] = block[2 + i] ^ 0x80; /* q + 128 */
    }
}

static void take_q2_k(const uint8_t *row, uint32_t k, wf_numbers64 *out)
{
    const uint8_t *block = row + (size_t)(k / 256) * 84, *low = block + 16 + k % 256 / 128 * 32;
    float d = wf_half_to_float(half_at(block + 80)), dmin = wf_half_to_float(half_at(block + 82));
    for (uint32_t b = 0; b < 2; b++)
        for (uint32_t i = 0; i < 32; i += 8)
            put_eight(out->q + b * 32 + i, bits_of(low + i, (k % 128 / 32 + b) * 2, 3));
    for (uint32_t g = 0; g < 4; g++) {
        uint8_t both = block[k % 256 / 16 + g];
        put_scale(out, g, d, both & 15);
        put_min(out, g, -dmin, both >> 4);
    }
}

static void take_q3_k(const uint8_t *row, uint32_t k, wf_numbers64 *out)
{
    const uint8_t *block = row + (size_t)(k / 256) * 110, *low = block + 32 + k % 256 / 128 * 32;
    float d = wf_half_to_float(half_at(block + 108));
    for (uint32_t b = 0; b < 2; b++) {
        uint32_t run = k % 256 / 32 + b;
        for (uint32_t i = 0; i < 32; i += 8)
            put_eight(out->q + b * 32 + i, bits_of(low + i, run % 4 * 2, 3) | bits_of(block + i, run, 1) << 2);
    }
    for (uint32_t g = 0; g < 4; g++) put_scale(out, g, d, wf_q3_k_scale_at(block + 96, k % 256 / 16 + g));
}

static void take_q6_k(const uint8_t *row, uint32_t k, wf_numbers64 *out)
{
    const uint8_t *block = row + (size_t)(k / 256) * 210;
    float d = wf_half_to_float(half_at(block + 208));
    for (uint32_t b = 0; b < 2; b++) {
        uint32_t run = k % 128 / 32 + b, half = k % 256 / 128;
        const uint8_t *low = block + 64 * half + 32 * (run & 1), *high = block + 128 + 32 * half;
        for (uint32_t i = 0; i < 32; i += 8)
            put_eight(out->q + b * 32 + i, bits_of(low + i, run / 2 * 4, 15) | bits_of(high + i, 2 * run, 3) << 4);
    }
    for (uint32_t g = 0; g < 4; g++) put_scale(out, g, d, (int8_t)block[192 + k % 256 / 16 + g]);
}

/* The table has twice the values. Weights beyond F16 are infinite, as they would be there; scales below 2^-24 are zero.
 */
static void take_mxfp4(const uint8_t *row, uint32_t k, wf_numbers64 *out)
{
    for (uint32_t b = 0; b < 2; b++) {
        const uint8_t *block = row + (size_t)(k / 32 + b) * 17;
        out->scale[b] = wf_float_to_half(ldexpf(1, block[0] - 128));
        take_nibbles(block + 1, out->q + b * 32);
    }
}

static void take_iq4_xs(const uint8_t *row, uint32_t k, wf_numbers64 *out)
{
    const uint8_t *block = row + (size_t)(k / 256) * 136;
    float d = wf_half_to_float(half_at(block));
    for (uint32_t b = 0; b < 2; b++) {
        uint32_t g = k % 256 / 32 + b;
        put_scale(out, b, d, wf_iq4_xs_scale_at(block + 2, g));
        take_nibbles(block + 8 + g * 16, out->q + b * 32);
    }
}

/* Formats of two and three bits: codes, with a scale for each 16 or 32. */
static inline void take_grid(enum wf_dtype dtype, const uint8_t *row, uint32_t k, wf_numbers64 *out)
{
    const uint8_t *block = row + (size_t)(k / 256) * wf_dtypes[dtype].block_bytes;
    const uint32_t n = wf_grid_in_halves(dtype) ? 4 : 2;
    uint64_t scales[2];
    wf_grid_scales(dtype, block, scales);
    for (uint32_t b = 0; b < 2; b++) {
        const wf_grid_group w = wf_grid_group_at(dtype, block, k % 256 / 32 + b);
        for (uint32_t i = 0; i < 4; i++) put_eight(out->q + b * 32 + i * 8, wf_grid_codes(dtype, &w, i));
    }
    for (uint32_t g = 0; g < n; g++)
        put_scale(out, g, wf_grid_step(dtype, block), (int32_t)wf_grid_scale(scales, k % 256 / 16 + g * 4 / n));
}

#define TAKE_GRID(name, dtype)                                                                     \
    static void take_##name(const uint8_t *row, uint32_t k, wf_numbers64 *out)                     \
    {                                                                                              \
        take_grid(dtype, row, k, out);                                                             \
    }
TAKE_GRID(iq2_xxs, WF_IQ2_XXS)
TAKE_GRID(iq2_xs, WF_IQ2_XS)
TAKE_GRID(iq2_s, WF_IQ2_S)
TAKE_GRID(iq3_xxs, WF_IQ3_XXS)
TAKE_GRID(iq3_s, WF_IQ3_S)

static void take_k6(const uint8_t *row, uint32_t k, wf_numbers64 *out)
{
    const uint8_t *block = row + k;
    memcpy(out->scale, block, sizeof out->scale);
    memcpy(out->min, block + 8, sizeof out->min);
    for (uint32_t i = 0; i < 64; i += 8)
        put_eight(out->q + i, bits_of(block + 16 + i % 32, i / 32 * 4, 15) | bits_of(block + 48 + i % 16, i / 16 * 2, 3)
                                                                                 << 4);
}

static void take_k8(const uint8_t *row, uint32_t k, wf_numbers64 *out)
{
    const uint8_t *block = row + (size_t)(k / 64) * 72;
    memcpy(out->scale, block, 4);
    memcpy(out->min, block + 4, 4);
    memcpy(out->q, block + 8, 64);
}

static const struct row {
    enum wf_dtype dtype;
    wf_numbers n;
} rows[] = {
    {WF_Q4_0, {4, 32, 0, 8, take_q4_0}},
    {WF_Q4_1, {4, 32, 1, 0, take_q4_1}},
    {WF_Q5_0, {5, 32, 0, 16, take_q5_0}},
    {WF_Q5_1, {5, 32, 1, 0, take_q5_1}},
    {WF_Q8_0, {8, 32, 0, 128, take_q8_0}},
    {WF_Q2_K, {4, 16, 1, 0, take_q2_k, .parts = true}},
    {WF_Q3_K, {4, 16, 0, 4, take_q3_k, .parts = true}},
    {WF_Q4_K, {4, 32, 1, 0, take_q4_k, .parts = true}},
    {WF_Q5_K, {5, 32, 1, 0, take_q5_k, .parts = true}},
    {WF_Q6_K, {6, 16, 0, 32, take_q6_k, .parts = true}},
    {WF_MXFP4, {4, 32, 0, 128, take_mxfp4, WF_CODES_MXFP4}},
    {WF_IQ4_NL, {4, 32, 0, 128, take_q4_0, WF_CODES_IQ4}},
    {WF_IQ4_XS, {4, 32, 0, 128, take_iq4_xs, WF_CODES_IQ4, .parts = true}},
    {WF_IQ2_XXS, {4, 32, 0, 128, take_iq2_xxs, WF_CODES_IQ2, .parts = true}},
    {WF_IQ2_XS, {4, 16, 0, 128, take_iq2_xs, WF_CODES_IQ2, .parts = true}},
    {WF_IQ2_S, {4, 16, 0, 128, take_iq2_s, WF_CODES_IQ2, .parts = true}},
    {WF_IQ3_XXS, {4, 32, 0, 128, take_iq3_xxs, WF_CODES_IQ3_XXS, .parts = true}},
    {WF_IQ3_S, {4, 32, 0, 128, take_iq3_s, WF_CODES_IQ3_S, .parts = true}},
    {WF_K6, {6, 16, 1, 0, take_k6}},
    {WF_K8, {8, 32, 1, 0, take_k8}},
};

const wf_numbers *wf_numbers_of(enum wf_dtype dtype)
{
    for (size_t i = 0; i < WF_LEN(rows); i++)
        if (rows[i].dtype == dtype) return &rows[i].n;
    return NULL;
}
