/* fragments: quantised weights, MMA-fragment-major (kernels/fragment_bytes.clh): which formats can lie so, and how they are packed.
 *
 * What the file holds is taken apart into numbers q of few bits and, for each group of a row, a scale and a minimum in F16. A format that
 * has those is a row here and a function that takes 64 weights apart; kernels see numbers of bits alone. Pure functions of the host.
 */
#include "cl/cl.h"
#include "cl/kernels/fragment_bytes.clh"
#include "tensor/quant/k_scales.h"

#include <string.h>

enum { TILE = 16, K = 64, LANES = 32, MOST_GROUPS = 4 };

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

/* Blocks of 32 with scale, minimum where the format has one, fifth bits where it has them, and nibbles: their sizes tell which. */
static void take_32(const uint8_t *row, uint32_t k, bool min, bool fifth, weights64 *out)
{
    size_t bytes = 18 + 2 * min + 4 * fifth;
    for (int b = 0; b < 2; b++) {
        const uint8_t *block = row + (k / 32 + (uint32_t)b) * bytes, *high = block + 2 + 2 * min, *low = high + 4 * fifth;
        out->scale[b] = half_at(block);
        if (min) out->min[b] = half_at(block + 2);
        for (int i = 0; i < 32; i++) {
            out->q[b * 32 + i] = low[i % 16] >> i / 16 * 4 & 15;
            if (fifth) out->q[b * 32 + i] |= (uint8_t)((high[i / 8] >> i % 8 & 1) << 4);
        }
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
    uint8_t scale[8], min[8];
    float d = wf_half_to_float(half_at(block)), dmin = wf_half_to_float(half_at(block + 2));
    wf_k_scales_unpack(block + 4, scale, min);
    for (uint32_t b = 0; b < 2; b++) {
        uint32_t g = k % 256 / 32 + b;
        out->scale[b] = wf_float_to_half(d * scale[g]);
        out->min[b] = wf_float_to_half(-dmin * min[g]);
        for (uint32_t i = 0; i < 32; i++) {
            out->q[b * 32 + i] = low[i] >> b * 4 & 15;
            if (fifth) out->q[b * 32 + i] |= (uint8_t)((high[i] >> g & 1) << 4);
        }
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
        for (uint32_t i = 0; i < 32; i++) out->q[b * 32 + i] = (uint8_t)((low[i] >> (run / 2 * 4) & 15) | (high[i] >> 2 * run & 3) << 4);
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

/* Pair p of a step of a lane: two neighbours along K, a word's 16-bit half for each. Bits from `from` on, as many as the mask has, go to `bit`. */
static uint32_t pair_bits(const uint8_t *q, int from, uint32_t mask, uint32_t bit)
{
    return (q[0] >> from & mask) << bit | (q[1] >> from & mask) << (bit + 16);
}

/* The four pairs of a step, one behind the other, each of `bits` bits. q: where the lane's weights of the step begin in its two rows. */
static uint32_t step_bits(const uint8_t *const q[2], int from, uint32_t bits, uint32_t bit)
{
    uint32_t mask = (1u << bits) - 1, word = 0;
    for (uint32_t p = 0; p < 4; p++) word |= pair_bits(q[p % 2] + p / 2 * 8, from, mask, bit + p * bits);
    return word;
}

static void put_bytes(const uint8_t *const q[2], uint8_t *to)
{
    for (uint32_t p = 0; p < 4; p++) memcpy(to + p * 2, q[p % 2] + p / 2 * 8, 2);
}

/* All steps of a lane: bits of each weight go to the planes that have them. */
static void put_lane(const cl_fragments *f, uint8_t *tile, uint32_t lane, const weights64 *rows)
{
    uint32_t low[4] = {0}, high[4] = {0}, n_high = FRAGMENT_WORDS(f->bits) - 4;
    for (uint32_t step = 0; step < 4; step++) {
        uint32_t k = step * 16 + lane % 4 * 2;
        const uint8_t *const q[2] = {rows[lane / 4].q + k, rows[lane / 4 + 8].q + k};
        if (f->bits == 8) put_bytes(q, (uint8_t *)(step < 2 ? low : high) + step % 2 * 8);
        else low[step] = step_bits(q, 0, 4, 0);
        if (f->bits == 5) high[0] |= step_bits(q, 4, 1, step * 4);
        if (f->bits == 6) high[step / 2] |= step_bits(q, 4, 2, step % 2 * 8);
    }
    memcpy(tile + lane * 16, low, 16);
    memcpy(tile + 512 + lane * n_high * 4, high, n_high * 4);
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
    for (uint32_t lane = 0; lane < LANES; lane++) put_lane(f, tile, lane, rows);
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
