/* iq4_nl: 32 weights a block, x = d * value[code] (iq4_values.h). The codes lie as nibbles.h says. */
#include "tensor/quant/fit.h"
#include "tensor/quant/iq4_values.h"
#include "tensor/quant/nibbles.h"

#include <string.h>

#define BLOCK WF_NIBBLE_BLOCK

struct block {
    uint16_t d; /* f16 */
    uint8_t q[BLOCK / 2];
};
_Static_assert(sizeof(struct block) == 18, "IQ4_NL block");

void wf_decode_iq4_nl(const void *src, float *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, dst += BLOCK) {
        struct block k;
        int q[BLOCK];
        memcpy(&k, (const uint8_t *)src + b * sizeof k, sizeof k);
        float d = wf_half_to_float(k.d);
        wf_nibbles_unpack(k.q, q);
        for (int i = 0; i < BLOCK; i++) dst[i] = d * wf_iq4_values[q[i]];
    }
}

void wf_encode_iq4_nl(const float *src, void *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, src += BLOCK) {
        struct block k = {.d = wf_float_to_half(wf_fit_scale_values(src, BLOCK, wf_iq4_values))};
        int q[BLOCK];
        float d = wf_half_to_float(k.d), inv = d != 0 ? 1 / d : 0;
        for (int i = 0; i < BLOCK; i++) q[i] = wf_nearest_value(src[i] * inv, wf_iq4_values);
        wf_nibbles_pack(q, k.q);
        memcpy((uint8_t *)dst + b * sizeof k, &k, sizeof k);
    }
}
