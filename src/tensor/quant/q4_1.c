/* q4_1: 32 weights a block, x = d * q + m with q in 0..15. Byte j holds weight j in its low half and
 * weight j + 16 in its high half. m is the least weight, so 15 steps reach the greatest. */
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

#define BLOCK 32

struct block {
    uint16_t d, m; /* f16 */
    uint8_t q[BLOCK / 2];
};
_Static_assert(sizeof(struct block) == 20, "Q4_1 block");

void wf_decode_q4_1(const void *src, float *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, dst += BLOCK) {
        struct block k;
        memcpy(&k, (const uint8_t *)src + b * sizeof k, sizeof k);
        float d = wf_half_to_float(k.d), m = wf_half_to_float(k.m);
        for (int i = 0; i < BLOCK / 2; i++) {
            dst[i] = d * (float)(k.q[i] & 15) + m;
            dst[i + BLOCK / 2] = d * (float)(k.q[i] >> 4) + m;
        }
    }
}

/* Halves go up, as in ggml. */
static int quant(float x, float inv)
{
    return wf_round_clamp(floorf(x * inv + 0.5f), 0, 15);
}

void wf_encode_q4_1(const float *src, void *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, src += BLOCK) {
        struct block k;
        float min = src[0], max = src[0];
        for (int i = 1; i < BLOCK; i++) min = fminf(min, src[i]), max = fmaxf(max, src[i]);
        float d = (max - min) / 15, inv = d != 0 ? 1 / d : 0;
        k.d = wf_float_to_half(d);
        k.m = wf_float_to_half(min);
        for (int i = 0; i < BLOCK / 2; i++)
            k.q[i] = (uint8_t)(quant(src[i] - min, inv) | quant(src[i + BLOCK / 2] - min, inv) << 4);
        memcpy((uint8_t *)dst + b * sizeof k, &k, sizeof k);
    }
}
