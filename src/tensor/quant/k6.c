/* k6: 64 weights a block, x = scale * q + minimum with q in 0..63 and a scale and a minimum in F16 for each 16 weights. No file has it: it holds
 * formats of up to six bits, groups of 16 or 32, with or without minimums, so that a device can keep matrices of several in one. */
#include "tensor/numbers.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 64, GROUP = 16, GROUPS = BLOCK / GROUP, MOST = 63 };

/* Element i has nibble i / 32 of low[i % 32], and bits 2 (i / 16) on of high[i % 16]. */
struct block {
    uint16_t scale[GROUPS], min[GROUPS]; /* F16 */
    uint8_t low[32], high[16];
};
_Static_assert(sizeof(struct block) == 64, "K6 block");

static void put(struct block *b, uint32_t i, uint8_t q)
{
    b->low[i % 32] |= (uint8_t)((q & 15) << i / 32 * 4);
    b->high[i % 16] |= (uint8_t)(q >> 4 << i / 16 * 2);
}

void wf_decode_k6(const void *src, float *dst, size_t n)
{
    const wf_numbers *f = wf_numbers_of(WF_K6);
    for (size_t k = 0; k < n; k += BLOCK) {
        wf_numbers64 w;
        f->take(src, 0, &w);
        for (uint32_t i = 0; i < BLOCK; i++) dst[k + i] = wf_half_to_float(w.scale[i / GROUP]) * w.q[i] + wf_half_to_float(w.min[i / GROUP]);
        src = (const uint8_t *)src + sizeof(struct block);
    }
}

static void encode_group(const float *x, struct block *b, uint32_t g)
{
    float min = x[0], max = x[0];
    for (int i = 1; i < GROUP; i++) min = fminf(min, x[i]), max = fmaxf(max, x[i]);
    b->min[g] = wf_float_to_half(min);
    b->scale[g] = wf_float_to_half((max - min) / MOST);
    float scale = wf_half_to_float(b->scale[g]), inverse = scale > 0 ? 1 / scale : 0;
    for (uint32_t i = 0; i < GROUP; i++) put(b, g * GROUP + i, (uint8_t)wf_round_clamp((x[i] - wf_half_to_float(b->min[g])) * inverse, 0, MOST));
}

void wf_encode_k6(const float *src, void *dst, size_t n)
{
    for (size_t k = 0; k < n; k += BLOCK) {
        struct block b = {0};
        for (uint32_t g = 0; g < GROUPS; g++) encode_group(src + k + g * GROUP, &b, g);
        memcpy((uint8_t *)dst + k, &b, sizeof b);
    }
}

bool wf_k6_holds(enum wf_dtype dtype)
{
    const wf_numbers *f = wf_numbers_of(dtype);
    return f && f->bits <= 6 && dtype != WF_K6;
}

/* scale * (q - zero) is scale * q - scale * zero, which F16 has exactly: zero is a power of two. */
static uint16_t minimum(const wf_numbers *f, const wf_numbers64 *w, uint32_t g)
{
    return f->min ? w->min[g] : wf_float_to_half(-(float)f->zero * wf_half_to_float(w->scale[g]));
}

void wf_k6_from(enum wf_dtype dtype, const uint8_t *src, uint8_t *dst, uint64_t n)
{
    const wf_numbers *f = wf_numbers_of(dtype);
    for (uint64_t k = 0; k < n; k += BLOCK) {
        struct block b = {0};
        wf_numbers64 w;
        f->take(src, (uint32_t)k, &w);
        for (uint32_t g = 0; g < GROUPS; g++) {
            uint32_t from = g * GROUP / f->group;
            b.scale[g] = w.scale[from], b.min[g] = minimum(f, &w, from);
        }
        for (uint32_t i = 0; i < BLOCK; i++) put(&b, i, w.q[i]);
        memcpy(dst + k, &b, sizeof b);
    }
}
