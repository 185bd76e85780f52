/* grid: formats of two and three bits, whose weights come in fours or eights: x = d * (2 * scale + 1) * unit * level,
 * with a sign. The levels of four or of eight weights are an entry of a list that the format has (grids/<fmt>.def, of
 * which OpenCL C makes its own list), and a block names entries by their numbers. What a block says is the same in all
 * of these formats; where it says it is not. */
#ifndef WF_GRID_H
#define WF_GRID_H

#include "tensor/quant/fit.h"
#include "tensor/quant/grid_groups.h"

typedef struct wf_grid {
    const uint16_t *entries; /* 16 / width bits a weight, the first lowest */
    uint16_t n_entries;      /* at most 1024 */
    uint8_t width;           /* weights of an entry: 4 or 8 */
    uint8_t group;           /* weights that share a scale */
    uint8_t n_levels;
    const int8_t *levels;    /* ascending */
    float unit;
    bool even;               /* of eight weights an even number has a minus, so that seven signs tell the eighth */
} wf_grid;

/* A block of 256 weights. */
typedef struct wf_grid_block {
    uint16_t d; /* f16 */
    uint16_t entry[WF_SUPER / 4];
    uint8_t scale[WF_SUPER / 16];
    uint8_t signs[WF_SUPER / 8]; /* a bit a weight */
} wf_grid_block;

/* Of a group of 32, as some formats have it: seven signs of each eight weights, then four bits of scale. */
static inline void wf_grid_word_put(uint8_t scale, const uint8_t signs[4], uint8_t word[4])
{
    uint32_t w = (uint32_t)scale << 28;
    for (int i = 0; i < 4; i++) w |= (signs[i] & 127u) << 7 * i;
    memcpy(word, &w, sizeof w);
}

/* Scales of four bits, the even ones in the lower halves of bytes. */
static inline void wf_grid_halves_put(const uint8_t *scale, int n, uint8_t *bytes)
{
    for (int g = 0; g < n; g += 2) bytes[g / 2] = (uint8_t)(scale[g] | scale[g + 1] << 4);
}

/* Of weight i of an entry. */
static inline int wf_grid_level(const wf_grid *g, unsigned entry, int i)
{
    return g->levels[entry >> 16 / g->width * i & (g->width == 8 ? 3 : 7)];
}

typedef void wf_grid_put(const wf_grid_block *k, void *block);

void wf_grid_encode(const wf_grid *g, size_t bytes, wf_grid_put *put, const float *src, void *dst, size_t n);

/* A format's conversions, from its `grid`, `struct block` and put_block(). */
#define WF_GRID_CONVERSIONS(name, id)                                                              \
    void wf_decode_##name(const void *src, float *dst, size_t n)                                   \
    {                                                                                              \
        wf_grid_decode(WF_##id, src, dst, n);                                                      \
    }                                                                                              \
    void wf_encode_##name(const float *src, void *dst, size_t n)                                   \
    {                                                                                              \
        wf_grid_encode(&grid, sizeof(struct block), put_block, src, dst, n);                       \
    }

#endif
