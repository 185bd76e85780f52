/* q4_0: 32 weights a block, x = d * (q - 8) with q in 0..15. Byte j holds weight j in its low half
 * and weight j + 16 in its high half. d takes the sign that puts the largest weight at q = 0. */
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

#define BLOCK 32

struct block {
    uint16_t d; /* f16 */
    uint8_t q[BLOCK / 2];
};
_Static_assert(sizeof(struct block) == 18, "Q4_0 block");

void wf_decode_q4_0(const void *src, float *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, dst += BLOCK) {
        struct block k;
        memcpy(&k, (const uint8_t *)src + b * sizeof k, sizeof k);
        float d = wf_half_to_float(k.d);
        for (int i = 0; i < BLOCK / 2; i++) {
            dst[i] = d * (float)((k.q[i] & 15) - 8);
            dst[i + BLOCK / 2] = d * (float)((k.q[i] >> 4) - 8);
        }
    }
}

static int quant(float x, float inv)
{
    return wf_round_clamp(x * inv + 8, 0, 15);
}

void wf_encode_q4_0(const float *src, void *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, src += BLOCK) {
        struct block k;
        float max = 0; /* the largest by magnitude, with its sign */
        for (int i = 0; i < BLOCK; i++)
            if (fabsf(src[i]) > fabsf(max)) max = src[i];
        float d = max / -8, inv = d != 0 ? 1 / d : 0;
        k.d = wf_float_to_half(d);
        for (int i = 0; i < BLOCK / 2; i++)
            k.q[i] = (uint8_t)(quant(src[i], inv) | quant(src[i + BLOCK / 2], inv) << 4);
        memcpy((uint8_t *)dst + b * sizeof k, &k, sizeof k);
    }
}
