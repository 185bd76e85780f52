/* q4_k: 256 weights a block in eight groups of 32, x = d * scale * q - dmin * min with q in 0..15; scales and minima
 * lie as k_scales.h says. Byte 32 c + l of q holds weight 64 c + l in its low and 64 c + 32 + l in its high half. */
#include "tensor/quant/fit.h"
#include "tensor/quant/k_scales.h"

#include <string.h>

enum { BLOCK = WF_SUPER, GROUP = 32 };

struct block {
    uint16_t d, dmin; /* f16 */
    uint8_t scales[12];
    uint8_t q[BLOCK / 2];
};
_Static_assert(sizeof(struct block) == 144, "Q4_K block");

void wf_decode_q4_k(const void *src, float *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, dst += BLOCK) {
        struct block k;
        uint8_t scale[8], min[8];
        memcpy(&k, (const uint8_t *)src + b * sizeof k, sizeof k);
        wf_k_scales_unpack(k.scales, scale, min);
        float d = wf_half_to_float(k.d), dmin = wf_half_to_float(k.dmin);
        for (int i = 0; i < BLOCK; i++) {
            int g = i / GROUP, q = k.q[i / 64 * 32 + i % 32] >> (g & 1 ? 4 : 0) & 15;
            dst[i] = d * scale[g] * (float)q - dmin * min[g];
        }
    }
}

void wf_encode_q4_k(const float *src, void *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, src += BLOCK) {
        wf_fit_mins f;
        wf_fit_groups_mins(src, GROUP, 15, 63, &f);
        struct block k = {.d = f.d, .dmin = f.dmin};
        wf_k_scales_pack(f.scale, f.min, k.scales);
        for (int i = 0; i < BLOCK; i++) k.q[i / 64 * 32 + i % 32] |= (uint8_t)(f.q[i] << (i / GROUP & 1 ? 4 : 0));
        memcpy((uint8_t *)dst + b * sizeof k, &k, sizeof k);
    }
}
