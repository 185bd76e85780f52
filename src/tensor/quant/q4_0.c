/* q4_0: 32 weights a block, x = d * (q - 8) with q in 0..15. They lie as nibbles.h says.
 * d takes the sign that puts the largest weight at q = 0. */
#include "tensor/quant/fit.h"
#include "tensor/quant/nibbles.h"

#include <string.h>

#define BLOCK WF_NIBBLE_BLOCK

struct block {
    uint16_t d; /* f16 */
    uint8_t q[BLOCK / 2];
};
_Static_assert(sizeof(struct block) == 18, "Q4_0 block");

void wf_decode_q4_0(const void *src, float *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, dst += BLOCK) {
        struct block k;
        int q[BLOCK];
        memcpy(&k, (const uint8_t *)src + b * sizeof k, sizeof k);
        float d = wf_half_to_float(k.d);
        wf_nibbles_unpack(k.q, q);
        for (int i = 0; i < BLOCK; i++) dst[i] = d * (float)(q[i] - 8);
    }
}

void wf_encode_q4_0(const float *src, void *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, src += BLOCK) {
        struct block k;
        int q[BLOCK];
        float d = wf_fit_largest(src, BLOCK) / -8, inv = d != 0 ? 1 / d : 0;
        k.d = wf_float_to_half(d);
        for (int i = 0; i < BLOCK; i++) q[i] = wf_round_clamp(src[i] * inv + 8, 0, 15);
        wf_nibbles_pack(q, k.q);
        memcpy((uint8_t *)dst + b * sizeof k, &k, sizeof k);
    }
}
