/* q8_0: 32 weights a block, x = d * q with q in -127..127. */
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

#define BLOCK 32

struct block {
    uint16_t d; /* f16 */
    int8_t q[BLOCK];
};
_Static_assert(sizeof(struct block) == 34, "Q8_0 block");

void wf_decode_q8_0(const void *src, float *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, dst += BLOCK) {
        struct block k;
        memcpy(&k, (const uint8_t *)src + b * sizeof k, sizeof k);
        float d = wf_half_to_float(k.d);
        for (int i = 0; i < BLOCK; i++) dst[i] = d * k.q[i];
    }
}

void wf_encode_q8_0(const float *src, void *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, src += BLOCK) {
        struct block k;
        float max = 0;
        for (int i = 0; i < BLOCK; i++) max = fmaxf(max, fabsf(src[i]));
        float d = max / 127, inv = d > 0 ? 1 / d : 0;
        k.d = wf_float_to_half(d);
        for (int i = 0; i < BLOCK; i++) k.q[i] = (int8_t)wf_round_clamp(src[i] * inv, -127, 127);
        memcpy((uint8_t *)dst + b * sizeof k, &k, sizeof k);
    }
}
