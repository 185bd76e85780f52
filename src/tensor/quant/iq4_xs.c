/* iq4_xs: 256 weights a block in eight groups of 32, x = d * scale * value[code] (iq4_values.h) with scale in -32..31.
 * Each group's codes lie as nibbles.h says, the scales as k_scales.h. */
#include "tensor/quant/fit.h"
#include "tensor/quant/iq4_values.h"
#include "tensor/quant/k_scales.h"
#include "tensor/quant/nibbles.h"

#include <string.h>

enum { BLOCK = WF_SUPER, GROUP = WF_NIBBLE_BLOCK, GROUPS = BLOCK / GROUP };

struct block {
    uint16_t d; /* f16 */
    uint8_t scales[6];
    uint8_t q[BLOCK / 2];
};
_Static_assert(sizeof(struct block) == 136, "IQ4_XS block");

void wf_decode_iq4_xs(const void *src, float *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++) {
        struct block k;
        memcpy(&k, (const uint8_t *)src + b * sizeof k, sizeof k);
        for (int g = 0; g < GROUPS; g++, dst += GROUP) {
            int q[GROUP], scale = wf_iq4_xs_scale_at(k.scales, (uint32_t)g);
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
            k.scales[2 + g / 2] |= (uint8_t)((scale[g] + 32) % 16 << g % 2 * 4);
            k.scales[g / 4] |= (uint8_t)((scale[g] + 32) / 16 << g % 4 * 2);
            for (int i = 0; i < GROUP; i++) q[i] = wf_nearest_value(src[i] * inv, wf_iq4_values);
            wf_nibbles_pack(q, k.q + g * GROUP / 2);
        }
        memcpy((uint8_t *)dst + b * sizeof k, &k, sizeof k);
    }
}
