/* q5_1: 32 weights a block, x = d * q + m with q in 0..31, whose bits lie as those of Q5_0.
 * m is the least weight, so 31 steps reach the greatest. */
#include "tensor/quant/nibbles.h"
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

#define BLOCK WF_NIBBLE_BLOCK

struct block {
    uint16_t d, m;    /* f16 */
    uint16_t high[2]; /* 32 bits, lowest first */
    uint8_t q[BLOCK / 2];
};
_Static_assert(sizeof(struct block) == 24, "Q5_1 block");

void wf_decode_q5_1(const void *src, float *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, dst += BLOCK) {
        struct block k;
        int q[BLOCK];
        memcpy(&k, (const uint8_t *)src + b * sizeof k, sizeof k);
        float d = wf_half_to_float(k.d), m = wf_half_to_float(k.m);
        wf_nibbles_unpack(k.q, q);
        for (int i = 0; i < BLOCK; i++) dst[i] = d * (float)(q[i] + (k.high[i / 16] >> i % 16 & 1) * 16) + m;
    }
}

void wf_encode_q5_1(const float *src, void *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, src += BLOCK) {
        struct block k = {0};
        int q[BLOCK];
        float min = src[0], max = src[0];
        for (int i = 1; i < BLOCK; i++) min = fminf(min, src[i]), max = fmaxf(max, src[i]);
        float d = (max - min) / 31, inv = d != 0 ? 1 / d : 0;
        k.d = wf_float_to_half(d);
        k.m = wf_float_to_half(min);
        for (int i = 0; i < BLOCK; i++) {
            int five = wf_round_clamp(floorf((src[i] - min) * inv + 0.5f), 0, 31); /* halves go up, as in ggml */
            q[i] = five & 15;
            k.high[i / 16] |= (uint16_t)(five >> 4 << i % 16);
        }
        wf_nibbles_pack(q, k.q);
        memcpy((uint8_t *)dst + b * sizeof k, &k, sizeof k);
    }
}
