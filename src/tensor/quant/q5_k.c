/* q5_k: as Q4_K with a fifth bit: weight 32 g + l has bit g of high[l] above the four in q. */
#include "tensor/quant/fit.h"
#include "tensor/quant/k_scales.h"

#include <string.h>

enum { BLOCK = WF_SUPER, GROUP = 32 };

struct block {
    uint16_t d, dmin; /* f16 */
    uint8_t scales[12];
    uint8_t high[GROUP];
    uint8_t q[BLOCK / 2];
};
_Static_assert(sizeof(struct block) == 176, "Q5_K block");

void wf_decode_q5_k(const void *src, float *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, dst += BLOCK) {
        struct block k;
        uint8_t scale[8], min[8];
        memcpy(&k, (const uint8_t *)src + b * sizeof k, sizeof k);
        wf_k_scales_unpack(k.scales, scale, min);
        float d = wf_half_to_float(k.d), dmin = wf_half_to_float(k.dmin);
        for (int i = 0; i < BLOCK; i++) {
            int g = i / GROUP, q = k.q[i / 64 * 32 + i % 32] >> (g & 1 ? 4 : 0) & 15;
            q |= (k.high[i % GROUP] >> g & 1) << 4;
            dst[i] = d * scale[g] * (float)q - dmin * min[g];
        }
    }
}

void wf_encode_q5_k(const float *src, void *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, src += BLOCK) {
        wf_fit_mins f;
        wf_fit_groups_mins(src, GROUP, 31, 63, &f);
        struct block k = {.d = f.d, .dmin = f.dmin};
        wf_k_scales_pack(f.scale, f.min, k.scales);
        for (int i = 0; i < BLOCK; i++) {
            k.q[i / 64 * 32 + i % 32] |= (uint8_t)((f.q[i] & 15) << (i / GROUP & 1 ? 4 : 0));
            k.high[i % GROUP] |= (uint8_t)(f.q[i] >> 4 << i / GROUP);
        }
        memcpy((uint8_t *)dst + b * sizeof k, &k, sizeof k);
    }
}
