/* q2_k: 256 weights a block in 16 groups of 16, x = d * scale * q - dmin * min with q in 0..3; a byte holds a group's
 * scale in its low and its minimum in its high half. Run r of half h (of 32 weights and 128) has bits 2 r of q[32 h
 * ..]. */
#include "tensor/quant/fit.h"

#include <string.h>

enum { BLOCK = WF_SUPER, GROUP = 16 };

struct block {
    uint8_t scales[BLOCK / GROUP];
    uint8_t q[BLOCK / 4];
    uint16_t d, dmin; /* f16 */
};
_Static_assert(sizeof(struct block) == 84, "Q2_K block");

void wf_decode_q2_k(const void *src, float *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, dst += BLOCK) {
        struct block k;
        memcpy(&k, (const uint8_t *)src + b * sizeof k, sizeof k);
        float d = wf_half_to_float(k.d), dmin = wf_half_to_float(k.dmin);
        for (int i = 0; i < BLOCK; i++) {
            int q = k.q[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3, s = k.scales[i / GROUP];
            dst[i] = d * (float)(s & 15) * (float)q - dmin * (float)(s >> 4);
        }
    }
}

void wf_encode_q2_k(const float *src, void *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, src += BLOCK) {
        wf_fit_mins f;
        wf_fit_groups_mins(src, GROUP, 3, 15, &f);
        struct block k = {.d = f.d, .dmin = f.dmin};
        for (int g = 0; g < BLOCK / GROUP; g++) k.scales[g] = (uint8_t)(f.scale[g] | f.min[g] << 4);
        for (int i = 0; i < BLOCK; i++) k.q[i / 128 * 32 + i % 32] |= (uint8_t)(f.q[i] << i / 32 % 4 * 2);
        memcpy((uint8_t *)dst + b * sizeof k, &k, sizeof k);
    }
}
