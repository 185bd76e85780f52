/* fragments: quantised weights, MMA-fragment-major (kernels/fragment_bytes.clh): which formats can lie so, and how they are packed.
 *
 * What the file holds is taken apart into numbers q of few bits and, for each group of a row, a scale and a minimum in F16. A format that
 * has those is a row here and a function that takes 64 weights apart; kernels see numbers of bits alone. Pure functions of the host.
 */
#include "cl/cl.h"
#include "cl/kernels/fragment_bytes.clh"
#include "tensor/quant/k_scales.h"

#include <string.h>

enum { TILE = 16, K = 64, MOST_GROUPS = 4 };

#define OF_EACH(x) ((x)*0x0101010101010101ull) /* the byte x eight times */

/* 64 neighbours of a row. */
typedef struct weights64 {
    uint8_t q[K];
    uint16_t scale[MOST_GROUPS], min[MOST_GROUPS]; /* F16 */
} weights64;

static uint16_t half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

/* ---- formats ---------------------------------------------------------------------------------------------- */

/* The weights from `k` on of the row whose blocks begin at `row`, one function for each format (src/tensor/quant has their layouts). */
typedef void take_fn(const uint8_t *row, uint32_t k, weights64 *out);

/* Of each of eight bytes, the bits from `from` on that the mask has. */
static uint64_t bits_of(const uint8_t *bytes, uint32_t from, uint64_t mask)
{
    uint64_t x;
    memcpy(&x, bytes, 8);
    return x >> from & OF_EACH(mask);
}

/* The eight bits of a byte, each in a byte of its own. */
static uint64_t spread_bits(uint8_t bits)
{
    uint64_t one_each = OF_EACH(bits) & 0x8040201008040201;
    return (one_each + OF_EACH(0x7f)) >> 7 & OF_EACH(1); /* what is not zero carries into the highest bit */
}

static void put_eight(uint8_t *q, uint64_t eight)
{
    memcpy(q, &eight, 8);
}

/* Blocks of 32 with scale, minimum where the format has one, fifth bits where it has them, and nibbles: their sizes tell which. */
static void take_32(const uint8_t *row, uint32_t k, bool min, bool fifth, weights64 *out)
{
    size_t bytes = 18 + 2 * min + 4 * fifth;
    for (int b = 0; b < 2; b++) {
        const uint8_t *block = row + (k / 32 + (uint32_t)b) * bytes, *high = block + 2 + 2 * min, *low = high + 4 * fifth;
        out->scale[b] = half_at(block);
        if (min) out->min[b] = half_at(block + 2);
        for (uint32_t i = 0; i < 32; i += 8) put_eight(out->q + b * 32 + i, bits_of(low + i % 16, i / 16 * 4, 15) | (fifth ? spread_bits(high[i / 8]) << 4 : 0));
    }
}

static void take_q4_0(const uint8_t *row, uint32_t k, weights64 *out)
{
    take_32(row, k, false, false, out);
}

static void take_q4_1(const uint8_t *row, uint32_t k, weights64 *out)
{
    take_32(row, k, true, false, out);
}

static void take_q5_0(const uint8_t *row, uint32_t k, weights64 *out)
{
    take_32(row, k, false, true, out);
}

static void take_q5_1(const uint8_t *row, uint32_t k, weights64 *out)
{
    take_32(row, k, true, true, out);
}

/* Super-blocks of eight groups of 32; the fifth bits of Q5_K lie in front of the nibbles. */
static void take_k(const uint8_t *block, uint32_t k, bool fifth, weights64 *out)
{
    const uint8_t *high = block + 16, *low = high + (fifth ? 32 : 0) + k % 256 / 2;
    float d = wf_half_to_float(half_at(block)), dmin = wf_half_to_float(half_at(block + 2));
    for (uint32_t b = 0; b < 2; b++) {
        uint8_t scale, min;
        uint32_t g = k % 256 / 32 + b;
        wf_k_scale_at(block + 4, g, &scale, &min);
        out->scale[b] = wf_float_to_half(d * scale);
        out->min[b] = wf_float_to_half(-dmin * min);
        for (uint32_t i = 0; i < 32; i += 8) put_eight(out->q + b * 32 + i, bits_of(low + i, b * 4, 15) | (fifth ? bits_of(high + i, g, 1) << 4 : 0));
    }
}

static void take_q4_k(const uint8_t *row, uint32_t k, weights64 *out)
{
    take_k(row + (size_t)(k / 256) * 144, k, false, out);
}

static void take_q5_k(const uint8_t *row, uint32_t k, weights64 *out)
{
    take_k(row + (size_t)(k / 256) * 176, k, true, out);
}

static void take_q8_0(const uint8_t *row, uint32_t k, weights64 *out)
{
    for (int b = 0; b < 2; b++) {
        const uint8_t *block = row + (size_t)(k / 32 + b) * 34;
        out->scale[b] = half_at(block);
        for (int i = 0; i < 32; i++) out->q[b * 32 + i] = block[2 + i] ^ 0x80; /* q + 128 */
    }
}

static void take_q6_k(const uint8_t *row, uint32_t k, weights64 *out)
{
    const uint8_t *block = row + (size_t)(k / 256) * 210;
    float d = wf_half_to_float(half_at(block + 208));
    for (uint32_t b = 0; b < 2; b++) {
        uint32_t run = k % 128 / 32 + b, half = k % 256 / 128;
        const uint8_t *low = block + 64 * half + 32 * (run & 1), *high = block + 128 + 32 * half;
        for (uint32_t i = 0; i < 32; i += 8) put_eight(out->q + b * 32 + i, bits_of(low + i, run / 2 * 4, 15) | bits_of(high + i, 2 * run, 3) << 4);
    }
    for (uint32_t g = 0; g < 4; g++) out->scale[g] = wf_float_to_half(d * (float)(int8_t)block[192 + k % 256 / 16 + g]);
}

static const struct row {
    enum wf_dtype dtype;
    cl_fragments f;
    take_fn *take;
} formats[] = {
    {WF_F16, {16, 32, 0, 0}, NULL},
    {WF_Q4_0, {4, 32, 0, 8}, take_q4_0},
    {WF_Q4_1, {4, 32, 1, 0}, take_q4_1},
    {WF_Q5_0, {5, 32, 0, 16}, take_q5_0},
    {WF_Q5_1, {5, 32, 1, 0}, take_q5_1},
    {WF_Q8_0, {8, 32, 0, 128}, take_q8_0},
    {WF_Q4_K, {4, 32, 1, 0}, take_q4_k},
    {WF_Q5_K, {5, 32, 1, 0}, take_q5_k},
    {WF_Q6_K, {6, 16, 0, 32}, take_q6_k},
};

static const struct row *row_of(enum wf_dtype dtype)
{
    for (size_t i = 0; i < WF_LEN(formats); i++)
        if (formats[i].dtype == dtype) return &formats[i];
    return NULL;
}

const cl_fragments *wf_cl_fragments(enum wf_dtype dtype)
{
    const struct row *r = row_of(dtype);
    return r ? &r->f : NULL;
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

/* A step of four lanes, a byte for each weight: 8 neighbours along K of two rows, and the 8 behind them. A lane has two bytes of each: its pairs. */
typedef struct step {
    uint64_t pairs[4]; /* of row r, of row r + 8, and of both 8 further along K */
} step;

static step step_of(const weights64 *rows, uint32_t row, uint32_t i)
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

/* The first weights of a lane's pairs have the lower half of a word, the second ones the upper half, and in each `even` has the lower byte. The
 * words of the four lanes go to `to`, `next` bytes apart. */
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

/* The fifth bits of the pairs, a byte for each place. */
static uint64_t fifths(step s)
{
    const uint64_t bit = OF_EACH(16), *p = s.pairs;
    return (p[0] & bit) >> 4 | (p[1] & bit) >> 3 | (p[2] & bit) >> 2 | (p[3] & bit) >> 1;
}

static void put_fifths(const weights64 *rows, uint32_t row, uint8_t *to)
{
    uint64_t of[4];
    for (uint32_t i = 0; i < 4; i++) of[i] = fifths(step_of(rows, row, i));
    put_words(of[0] | of[1] << 4, of[2] | of[3] << 4, 4, to);
}

/* The fifth and sixth bits. */
static uint64_t sixths(step s)
{
    const uint64_t bits = OF_EACH(48), *p = s.pairs;
    return (p[0] & bits) >> 4 | (p[1] & bits) >> 2 | (p[2] & bits) | (p[3] & bits) << 2;
}

static void put_bytes(step s, uint8_t *to)
{
    for (uint32_t lane = 0; lane < 4; lane++)
        for (uint32_t p = 0; p < 4; p++) memcpy(to + lane * 16 + p * 2, (const uint8_t *)&s.pairs[p] + lane * 2, 2);
}

/* All steps of the four lanes that have rows `row` and row + 8: bits of each weight go to the planes that have them. */
static void put_lanes(const cl_fragments *f, uint8_t *tile, const weights64 *rows, uint32_t row)
{
    uint8_t *low = tile + row * 64, *high = tile + 512 + row * 16 * (FRAGMENT_WORDS(f->bits) - 4);
    for (uint32_t i = 0; i < 4; i++) {
        step s = step_of(rows, row, i);
        if (f->bits == 8) put_bytes(s, (i < 2 ? low : high) + i % 2 * 8);
        else put_nibbles(s, low + i * 4);
    }
    if (f->bits == 5) put_fifths(rows, row, high);
    for (uint32_t i = 0; f->bits == 6 && i < 2; i++) put_words(sixths(step_of(rows, row, 2 * i)), sixths(step_of(rows, row, 2 * i + 1)), 8, high + i * 4);
}

static void put_scales(const cl_fragments *f, uint8_t *tile, uint32_t row, const weights64 *w)
{
    uint32_t groups = K / f->group, each = 1 + f->min;
    uint8_t *to = tile + FRAGMENT_WORDS(f->bits) * 128 + row % 8 * FRAGMENT_SCALES(f->bits, f->group, f->min) * 4;
    for (uint32_t g = 0; g < groups; g++) {
        uint8_t *at = to + (row / 8 * groups + g) * each * 2;
        memcpy(at, &w->scale[g], 2);
        if (f->min) memcpy(at + 2, &w->min[g], 2);
    }
}

/* Rows that are missing are zeros. */
static void put_tile(const cl_fragments *f, uint8_t *tile, const weights64 rows[TILE])
{
    memset(tile, 0, wf_cl_fragment_bytes(f)); /* also what nothing is put in */
    for (uint32_t row = 0; row < TILE / 2; row++) put_lanes(f, tile, rows, row);
    for (uint32_t row = 0; row < TILE; row++) put_scales(f, tile, row, &rows[row]);
}

void wf_cl_fragments_pack(enum wf_dtype dtype, uint32_t rows, uint32_t cols, const uint8_t *src, uint8_t *dst)
{
    const struct row *r = row_of(dtype);
    uint64_t row_bytes = wf_dtype_bytes(dtype, cols), tile_bytes = wf_cl_fragment_bytes(&r->f);
    for (uint32_t first = 0; first < rows; first += TILE) {
        weights64 w[TILE] = {0};
        for (uint32_t k = 0; k < cols; k += K, dst += tile_bytes) {
            for (uint32_t row = 0; row < WF_MIN((uint32_t)TILE, rows - first); row++) r->take(src + (first + row) * row_bytes, k, &w[row]);
            put_tile(&r->f, dst, w);
        }
    }
}
