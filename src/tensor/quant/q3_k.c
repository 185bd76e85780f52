/* q3_k: 256 weights a block in 16 groups of 16, x = d * scale * q with scale in -32..31 and q in -4..3.
 *
 * The lower two bits of q + 4 lie as in Q2_K; the upper one is bit i / 32 of high[i % 32]. The scales lie as k_scales.h
 * says. */
#include "tensor/quant/fit.h"
#include "tensor/quant/k_scales.h"

#include <string.h>

enum { BLOCK = WF_SUPER, GROUP = 16 };

struct block {
    uint8_t high[BLOCK / 8];
    uint8_t q[BLOCK / 4];
    uint8_t scales[12];
    uint16_t d; /* f16 */
};
_Static_assert(sizeof(struct block) == 110, "Q3_K block");

void wf_decode_q3_k(const void *src, float *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, dst += BLOCK) {
        struct block k;
        memcpy(&k, (const uint8_t *)src + b * sizeof k, sizeof k);
        float d = wf_half_to_float(k.d);
        for (int i = 0; i < BLOCK; i++) {
            int q = (k.q[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3) + (k.high[i % 32] >> i / 32 & 1) * 4 - 4;
            dst[i] = d * (float)wf_q3_k_scale_at(k.scales, (uint32_t)i / GROUP) * (float)q;
        }
    }
}

void wf_encode_q3_k(const float *src, void *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, src += BLOCK) {
        struct block k = {0};
        float want[BLOCK / GROUP];
        int scale[BLOCK / GROUP];
        for (int g = 0; g < BLOCK / GROUP; g++) want[g] = wf_fit_scale(src + g * GROUP, GROUP, -4, 3);
        float d = wf_fit_common(want, BLOCK / GROUP, 32, &k.d, scale);
        for (int g = 0; g < BLOCK / GROUP; g++) {
            k.scales[g % 8] |= (uint8_t)((scale[g] + 32) % 16 << g / 8 * 4);
            k.scales[8 + g % 4] |= (uint8_t)((scale[g] + 32) / 16 << g / 4 * 2);
        }
        for (int i = 0; i < BLOCK; i++) {
            float step = d * (float)scale[i / GROUP];
            int q = step != 0 ? wf_round_clamp(src[i] / step, -4, 3) + 4 : 4;
            k.q[i / 128 * 32 + i % 32] |= (uint8_t)(q % 4 << i / 32 % 4 * 2);
            k.high[i % 32] |= (uint8_t)(q / 4 << i / 32);
        }
        memcpy((uint8_t *)dst + b * sizeof k, &k, sizeof k);
    }
}
