/* q5_0: 32 weights a block, x = d * (q - 16) with q in 0..31. The lower four bits lie as nibbles.h says; bit i of high
 * is the fifth of weight i. d takes the sign that puts the largest weight at q = 0. */
#include "tensor/quant/fit.h"
#include "tensor/quant/nibbles.h"

#include <math.h>
#include <string.h>

#define BLOCK WF_NIBBLE_BLOCK

struct block {
    uint16_t d;       /* f16 */
    uint16_t high[2]; /* 32 bits, lowest first */
    uint8_t q[BLOCK / 2];
};
_Static_assert(sizeof(struct block) == 22, "Q5_0 block");

void wf_decode_q5_0(const void *src, float *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, dst += BLOCK) {
        struct block k;
        int q[BLOCK];
        memcpy(&k, (const uint8_t *)src + b * sizeof k, sizeof k);
        float d = wf_half_to_float(k.d);
        wf_nibbles_unpack(k.q, q);
        for (int i = 0; i < BLOCK; i++) dst[i] = d * (float)(q[i] + (k.high[i / 16] >> i % 16 & 1) * 16 - 16);
    }
}

void wf_encode_q5_0(const float *src, void *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, src += BLOCK) {
        struct block k = {0};
        int q[BLOCK];
        float d = wf_fit_largest(src, BLOCK) / -16, inv = d != 0 ? 1 / d : 0;
        k.d = wf_float_to_half(d);
        for (int i = 0; i < BLOCK; i++) {
            int five = wf_round_clamp(floorf(src[i] * inv + 16.5f), 0, 31); /* halves go up, as in ggml */
            q[i] = five & 15;
            k.high[i / 16] |= (uint16_t)(five >> 4 << i % 16);
        }
        wf_nibbles_pack(q, k.q);
        memcpy((uint8_t *)dst + b * sizeof k, &k, sizeof k);
    }
}
