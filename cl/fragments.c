/* fragments: quantised weights, MMA-fragment-major (kernels/fragment_bytes.clh): which formats can lie so, and how
 * they are packed.
 *
 * Numbers, scales and minimums are what src/tensor/numbers.c makes of what the file holds; kernels see numbers of bits
 * alone. Pure functions of the host. */
#include "cl/cl.h"
#include "cl/kernels/fragment_bytes.clh"

#include <string.h>

enum { TILE = 16, K = 64 };

#define OF_EACH(x) ((x)*0x0101010101010101ull) /* the byte x eight times */

static const cl_fragments f16 = {.bits = 16, .group = 32};

const cl_fragments *wf_cl_fragments(enum wf_dtype dtype)
{
    return dtype == WF_F16 ? &f16 : wf_numbers_of(dtype);
}

uint32_t wf_cl_fragment_k(const cl_fragments *f)
{
    return FRAGMENT_K(f->bits);
}

uint32_t wf_cl_fragment_bytes(const cl_fragments *f)
{
    return FRAGMENT_BYTES(f->bits, f->group, f->min);
}

/* ---- packing ------------------------------------------------------------------------------------------------ */

/* A step of four lanes, a byte for each weight: 8 neighbours along K of two rows, and the 8 behind them. A lane has
 * two bytes of each: its pairs. */
typedef struct step {
    uint64_t pairs[4]; /* of row r, of row r + 8, and of both 8 further along K */
} step;

static step step_of(const wf_numbers64 *rows, uint32_t row, uint32_t i)
{
    step s;
    for (uint32_t p = 0; p < 4; p++) memcpy(&s.pairs[p], rows[row + p % 2 * 8].q + i * 16 + p / 2 * 8, 8);
    return s;
}

/* Each byte, with a zero behind it. */
static uint64_t apart(uint32_t bytes)
{
    uint64_t x = (bytes | (uint64_t)bytes << 16) & 0x0000ffff0000ffff;
    return (x | x << 8) & 0x00ff00ff00ff00ff;
}

/* The first weights of a lane's pairs have the lower half of a word, the second ones the upper half, and in each
 * `even` has the lower byte. The words of the four lanes go to `to`, `next` bytes apart. */
static void put_words(uint64_t even, uint64_t odd, uint32_t next, uint8_t *to)
{
    for (uint32_t i = 0; i < 2; i++, even >>= 32, odd >>= 32, to += 2 * next) {
        uint64_t words = apart((uint32_t)even) | apart((uint32_t)odd) << 8;
        uint32_t word[2] = {(uint32_t)words, (uint32_t)(words >> 32)};
        memcpy(to, &word[0], 4);
        memcpy(to + next, &word[1], 4);
    }
}

/* The low four bits of all pairs. */
static void put_nibbles(step s, uint8_t *to)
{
    const uint64_t low = OF_EACH(15), *p = s.pairs;
    put_words((p[0] & low) | (p[1] & low) << 4, (p[2] & low) | (p[3] & low) << 4, 16, to);
}

/* The `each` bits above the low four of pairs p and p + 1, side by side in a byte for each place. */
static uint64_t high_bits(step s, uint32_t p, uint32_t each)
{
    const uint64_t bits = OF_EACH(((1u << each) - 1) << 4);
    return (s.pairs[p] & bits) >> 4 | (s.pairs[p + 1] & bits) >> (4 - each);
}

/* The planes above the low four bits: steps stand side by side in a word. */
static void put_high_bits(const wf_numbers64 *rows, uint32_t row, uint32_t each, uint8_t *to)
{
    for (uint32_t word = 0, steps = 4 / each; word < each; word++) {
        uint64_t even = 0, odd = 0;
        for (uint32_t i = 0; i < steps; i++) {
            step s = step_of(rows, row, word * steps + i);
            even |= high_bits(s, 0, each) << i * 2 * each;
            odd |= high_bits(s, 2, each) << i * 2 * each;
        }
        put_words(even, odd, 4 * each, to + 4 * word);
    }
}

/* All eight bits: a word for each of the two rows. */
static void put_bytes(step s, uint8_t *to)
{
    put_words(s.pairs[0], s.pairs[2], 16, to);
    put_words(s.pairs[1], s.pairs[3], 16, to + 4);
}

/* All steps of the four lanes that have rows `row` and row + 8: bits of each weight go to the planes that have them. */
static void put_lanes(const cl_fragments *f, uint8_t *tile, const wf_numbers64 *rows, uint32_t row)
{
    uint8_t *low = tile + row * 64, *high = tile + 512 + row * 16 * (FRAGMENT_WORDS(f->bits) - 4);
    for (uint32_t i = 0; i < 4; i++) {
        step s = step_of(rows, row, i);
        if (f->bits == 8) put_bytes(s, (i < 2 ? low : high) + i % 2 * 8);
        else put_nibbles(s, low + i * 4);
    }
    if (f->bits == 5 || f->bits == 6) put_high_bits(rows, row, f->bits - 4u, high);
}

static void put_scales(const cl_fragments *f, uint8_t *tile, uint32_t row, const wf_numbers64 *w)
{
    uint32_t groups = K / f->group, each = 1 + f->min;
    uint8_t *to = tile + FRAGMENT_WORDS(f->bits) * 128 + row % 8 * FRAGMENT_SCALES(f->bits, f->group, f->min) * 4;
    for (uint32_t g = 0; g < groups; g++) {
        uint8_t *at = to + (row / 8 * groups + g) * each * 2;
        memcpy(at, &w->scale[g], 2);
        if (f->min) memcpy(at + 2, &w->min[g], 2);
    }
}

void wf_cl_fragments_pack(enum wf_dtype dtype, uint32_t rows, uint32_t cols, const uint8_t *src, uint8_t *dst)
{
    const cl_fragments *f = wf_cl_fragments(dtype);
    uint64_t row_bytes = wf_dtype_bytes(dtype, cols), tile_bytes = wf_cl_fragment_bytes(f);
    for (uint32_t first = 0; first < rows; first += TILE) {
        wf_numbers64 w[TILE] = {0}; /* rows that are missing are zeros */
        for (uint32_t k = 0; k < cols; k += K, dst += tile_bytes) {
            for (uint32_t row = 0; row < WF_MIN((uint32_t)TILE, rows - first); row++)
                f->take(src + (first + row) * row_bytes, k, &w[row]);
            memset(dst, 0, tile_bytes); /* also what nothing is put in */
            for (uint32_t row = 0; row < TILE / 2; row++) put_lanes(f, dst, w, row);
            for (uint32_t row = 0; row < TILE; row++) put_scales(f, dst, row, &w[row]);
        }
    }
}
