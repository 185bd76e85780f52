/* iq4_xs: 256 weights a block in eight groups of 32, x = d * scale * value[code] (iq4_values.h) with scale in -32..31. Each group's codes
 * lie as nibbles.h says. Of scale + 32 the lower four bits are halves of low, the upper two bits 2 g of high. */
#include "tensor/quant/fit.h"
#include "tensor/quant/iq4_values.h"
#include "tensor/quant/nibbles.h"

#include <string.h>

enum { BLOCK = WF_SUPER, GROUP = WF_NIBBLE_BLOCK, GROUPS = BLOCK / GROUP };

struct block {
    uint16_t d; /* f16 */
    uint16_t high;
    uint8_t low[GROUPS / 2];
    uint8_t q[BLOCK / 2];
};
_Static_assert(sizeof(struct block) == 136, "IQ4_XS block");

void wf_decode_iq4_xs(const void *src, float *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++) {
        struct block k;
        memcpy(&k, (const uint8_t *)src + b * sizeof k, sizeof k);
        for (int g = 0; g < GROUPS; g++, dst += GROUP) {
            int q[GROUP], scale = (k.low[g / 2] >> g % 2 * 4 & 15) + (k.high >> 2 * g & 3) * 16 - 32;
            float step = wf_half_to_float(k.d) * (float)scale;
            wf_nibbles_unpack(k.q + g * GROUP / 2, q);
            for (int i = 0; i < GROUP; i++) dst[i] = step * wf_iq4_values[q[i]];
        }
    }
}

void wf_encode_iq4_xs(const float *src, void *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++) {
        struct block k = {0};
        float want[GROUPS];
        int scale[GROUPS], q[GROUP];
        for (int g = 0; g < GROUPS; g++) want[g] = wf_fit_scale_values(src + g * GROUP, GROUP, wf_iq4_values);
        float d = wf_fit_common(want, GROUPS, 32, &k.d, scale);
        for (int g = 0; g < GROUPS; g++, src += GROUP) {
            float step = d * (float)scale[g], inv = step != 0 ? 1 / step : 0;
            k.low[g / 2] |= (uint8_t)((scale[g] + 32) % 16 << g % 2 * 4);
            k.high |= (uint16_t)((scale[g] + 32) / 16 << 2 * g);
            for (int i = 0; i < GROUP; i++) q[i] = wf_nearest_value(src[i] * inv, wf_iq4_values);
            wf_nibbles_pack(q, k.q + g * GROUP / 2);
        }
        memcpy((uint8_t *)dst + b * sizeof k, &k, sizeof k);
    }
}
