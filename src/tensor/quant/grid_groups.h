/* grid_groups: blocks of the formats of two and three bits (grid.h), a group of 32 weights at a time: what their
 * decoders, the numbers that devices hold, and the kernels of CPUs read them by. The files of the formats say how
 * blocks lie, and write what is read here.
 *
 * A weight is a code of four bits, which stands for one of the 16 values of its format: the lower three are the level,
 * the upper one is its minus.
 */
#ifndef WF_GRID_GROUPS_H
#define WF_GRID_GROUPS_H

#include "tensor/tensor.h"

#include <string.h>

extern const uint16_t wf_iq2_xxs_entries[256], wf_iq2_xs_entries[512], wf_iq2_s_entries[1024], wf_iq3_xxs_entries[256],
    wf_iq3_s_entries[512];

static const int8_t wf_iq2_values[16] = {8, 25, 43, 0, 0, 0, 0, 0, -8, -25, -43};
static const int8_t wf_iq3_xxs_values[16] = {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62};
static const int8_t wf_iq3_s_values[16] = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15};

/* 32 weights. */
typedef struct wf_grid_group {
    /* The entries, 16 bits each, the first lowest: of eight weights, four of them, or of four weights. */
    uint64_t levels[2];
    uint32_t minus;     /* a bit a weight */
} wf_grid_group;

/* Whether entries are of eight weights, of two bits each, or of four, of four bits each. */
static inline bool wf_grid_has_eights(enum wf_dtype dtype)
{
    return dtype == WF_IQ2_XXS || dtype == WF_IQ2_XS || dtype == WF_IQ2_S;
}

/* Whether 16 weights share a scale, or 32. */
static inline bool wf_grid_in_halves(enum wf_dtype dtype)
{
    return dtype == WF_IQ2_XS || dtype == WF_IQ2_S;
}

static inline const int8_t *wf_grid_values(enum wf_dtype dtype)
{
    return wf_grid_has_eights(dtype) ? wf_iq2_values : dtype == WF_IQ3_S ? wf_iq3_s_values
                                                                         : wf_iq3_xxs_values;
}

static inline uint32_t wf_grid_word(const uint8_t *p)
{
    uint32_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

/* Signs of four times eight weights, of which the lower seven are given: with the eighth, the number of minuses is
 * even. */
static inline uint32_t wf_grid_even(uint32_t sevens)
{
    uint32_t parity = sevens ^ sevens >> 4;
    parity ^= parity >> 2;
    return sevens | ((parity ^ parity >> 1) & 0x01010101u) << 7;
}

/* The same where they lie side by side, in the lower 28 bits of a word. */
static inline uint32_t wf_grid_word_signs(uint32_t w)
{
    return wf_grid_even((w & 0x7f) | (w << 1 & 0x7f00) | (w << 2 & 0x7f0000) | (w << 3 & 0x7f000000));
}

static inline uint64_t wf_grid_four(const uint16_t *entries, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    return entries[a] | (uint32_t)entries[b] << 16 | (uint64_t)entries[c] << 32 | (uint64_t)entries[d] << 48;
}

static inline wf_grid_group wf_iq2_xxs_group(const uint8_t *block, uint32_t g)
{
    const uint8_t *q = block + 2 + 8 * g;
    return (wf_grid_group){{wf_grid_four(wf_iq2_xxs_entries, q[0], q[1], q[2], q[3])},
                           wf_grid_word_signs(wf_grid_word(q + 4))};
}

static inline wf_grid_group wf_iq2_xs_group(const uint8_t *block, uint32_t g)
{
    uint64_t q;
    memcpy(&q, block + 2 + 8 * g, sizeof q);
    uint32_t sevens = (uint32_t)((q >> 9 & 0x7f) | (q >> 17 & 0x7f00) | (q >> 25 & 0x7f0000) | (q >> 33 & 0x7f000000));
    return (wf_grid_group){{wf_grid_four(wf_iq2_xs_entries, q & 511, q >> 16 & 511, q >> 32 & 511, q >> 48 & 511)},
                           wf_grid_even(sevens)};
}

static inline wf_grid_group wf_iq2_s_group(const uint8_t *block, uint32_t g)
{
    const uint8_t *q = block + 2 + 4 * g;
    uint32_t high = (uint32_t)block[66 + g] << 8;
    uint64_t four = wf_grid_four(wf_iq2_s_entries, q[0] | (high & 768), q[1] | (high >> 2 & 768),
                                 q[2] | (high >> 4 & 768), q[3] | (high >> 6 & 768));
    return (wf_grid_group){{four}, wf_grid_word(block + 34 + 4 * g)};
}

static inline wf_grid_group wf_iq3_xxs_group(const uint8_t *block, uint32_t g)
{
    const uint8_t *q = block + 2 + 8 * g;
    const uint16_t *e = wf_iq3_xxs_entries;
    return (wf_grid_group){{wf_grid_four(e, q[0], q[1], q[2], q[3]), wf_grid_four(e, q[4], q[5], q[6], q[7])},
                           wf_grid_word_signs(wf_grid_word(block + 66 + 4 * g))};
}

static inline wf_grid_group wf_iq3_s_group(const uint8_t *block, uint32_t g)
{
    const uint8_t *q = block + 2 + 8 * g;
    const uint16_t *e = wf_iq3_s_entries;
    uint32_t high = (uint32_t)block[66 + g] << 8;
    uint64_t first = wf_grid_four(e, q[0] | (high & 256), q[1] | (high >> 1 & 256), q[2] | (high >> 2 & 256),
                                  q[3] | (high >> 3 & 256));
    uint64_t second = wf_grid_four(e, q[4] | (high >> 4 & 256), q[5] | (high >> 5 & 256), q[6] | (high >> 6 & 256),
                                   q[7] | (high >> 7 & 256));
    return (wf_grid_group){{first, second}, wf_grid_word(block + 74 + 4 * g)};
}

/* Group g of the eight of a block. */
static inline wf_grid_group wf_grid_group_at(enum wf_dtype dtype, const uint8_t *block, uint32_t g)
{
    switch (dtype) {
    case WF_IQ2_XXS: return wf_iq2_xxs_group(block, g);
    case WF_IQ2_XS: return wf_iq2_xs_group(block, g);
    case WF_IQ2_S: return wf_iq2_s_group(block, g);
    case WF_IQ3_XXS: return wf_iq3_xxs_group(block, g);
    default: return wf_iq3_s_group(block, g);
    }
}

/* Eight halves of bytes, a byte each. */
static inline uint64_t wf_spread_halves(uint32_t halves)
{
    uint64_t x = (halves | (uint64_t)halves << 16) & 0x0000ffff0000ffff;
    x = (x | x << 8) & 0x00ff00ff00ff00ff;
    return (x | x << 4) & 0x0f0f0f0f0f0f0f0f;
}

/* The scales of a block's eight 32, halves of bytes. */
static inline uint32_t wf_grid_halves(enum wf_dtype dtype, const uint8_t *block)
{
    uint32_t halves = 0;
    if (dtype == WF_IQ3_S) return wf_grid_word(block + 106);
    for (uint32_t g = 0; g < 8; g++)
        halves |= wf_grid_word(block + (dtype == WF_IQ2_XXS ? 6 + 8 * g : 66 + 4 * g)) >> 28 << 4 * g;
    return halves;
}

/* What values are multiplied with in each 16 weights of a block, a byte each, of which d and the format's unit are
 * factors, too: odd, 1 to 31. */
static inline void wf_grid_scales(enum wf_dtype dtype, const uint8_t *block, uint64_t scales[2])
{
    const uint64_t each = 0x0101010101010101;
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t x;
        if (wf_grid_in_halves(dtype)) {
            x = wf_spread_halves(wf_grid_word(block + (dtype == WF_IQ2_XS ? 66 : 74) + 4 * i));
        } else { /* each twice */
            x = wf_spread_halves(wf_grid_halves(dtype, block) >> 16 * i & 0xffff);
            x = (x | x << 16) & 0x0000ffff0000ffff;
            x = ((x | x << 8) & 0x00ff00ff00ff00ff) * 0x0101;
        }
        scales[i] = x << 1 | each;
    }
}

static inline float wf_grid_scale(const uint64_t scales[2], uint32_t i)
{
    return (float)(scales[i / 8] >> i % 8 * 8 & 255);
}

/* d with the unit. */
static inline float wf_grid_step(enum wf_dtype dtype, const uint8_t *block)
{
    uint16_t d;
    memcpy(&d, block, sizeof d);
    return wf_half_to_float(d) * (wf_grid_has_eights(dtype) ? 0.125f : dtype == WF_IQ3_S ? 1
                                                                                         : 0.25f);
}

/* The eight bits of a byte, each in a byte of its own. */
static inline uint64_t wf_spread_bits(uint8_t bits)
{
    const uint64_t each = 0x0101010101010101;
    uint64_t one_each = bits * each & 0x8040201008040201;
    return (one_each + 0x7f * each) >> 7 & each; /* what is not zero carries into the highest bit */
}

/* Weights 8 i to 8 i + 7 of a group as codes, a byte each. */
static inline uint64_t wf_grid_codes(enum wf_dtype dtype, const wf_grid_group *w, uint32_t i)
{
    uint64_t x, minus = wf_spread_bits((uint8_t)(w->minus >> 8 * i)) << 3;
    if (wf_grid_has_eights(dtype)) {
        x = w->levels[0] >> 16 * i & 0xffff;
        x = (x | x << 24) & 0x000000ff000000ff;
        x = (x | x << 12) & 0x000f000f000f000f;
        return ((x | x << 6) & 0x0303030303030303) | minus;
    }
    return (wf_spread_halves((uint32_t)(w->levels[i / 2] >> i % 2 * 32)) & 0x0707070707070707) | minus;
}

/* Here, so that each format gets a loop of its own. */
static inline void wf_grid_decode(enum wf_dtype dtype, const void *src, float *dst, size_t n)
{
    const uint8_t *block = src;
    for (size_t b = 0; b < n / 256; b++, block += wf_dtypes[dtype].block_bytes) {
        uint64_t scales[2];
        wf_grid_scales(dtype, block, scales);
        for (uint32_t g = 0; g < 8; g++) {
            const wf_grid_group w = wf_grid_group_at(dtype, block, g);
            for (uint32_t i = 0; i < 4; i++, dst += 8) {
                const float step = wf_grid_step(dtype, block) * wf_grid_scale(scales, 2 * g + i / 2);
                const uint64_t codes = wf_grid_codes(dtype, &w, i);
                for (uint32_t j = 0; j < 8; j++) dst[j] = step * wf_grid_values(dtype)[codes >> 8 * j & 15];
            }
        }
    }
}

#endif
