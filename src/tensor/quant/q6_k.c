/* q6_k: 256 weights a block, x = d * scale * (q - 32) with q in 0..63 and one scale for each 16
 * weights.
 *
 * Each half of the block (128 weights) is four runs of 32. Run r of half h keeps its low 4 bits in
 * lo[64 h + 32 (r & 1) ..], the low nibble for runs 0 and 1, the high one for 2 and 3; its upper 2
 * bits lie in hi[32 h ..] at bit 2 r. */
#include "tensor/quant/fit.h"

#include <string.h>

#define BLOCK WF_SUPER
#define GROUP 16 /* weights a scale */

struct block {
    uint8_t lo[BLOCK / 2];
    uint8_t hi[BLOCK / 4];
    int8_t scale[BLOCK / GROUP];
    uint16_t d; /* f16 */
};
_Static_assert(sizeof(struct block) == 210, "Q6_K block");

void wf_decode_q6_k(const void *src, float *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, dst += BLOCK) {
        struct block k;
        memcpy(&k, (const uint8_t *)src + b * sizeof k, sizeof k);
        float d = wf_half_to_float(k.d);
        for (int i = 0; i < BLOCK; i++) {
            int half = i / 128, run = i / 32 % 4, l = i % 32;
            int lo = k.lo[64 * half + 32 * (run & 1) + l] >> (run < 2 ? 0 : 4) & 15;
            int hi = k.hi[32 * half + l] >> 2 * run & 3;
            dst[i] = d * k.scale[i / GROUP] * (float)((lo | hi << 4) - 32);
        }
    }
}

void wf_encode_q6_k(const float *src, void *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, src += BLOCK) {
        struct block k = {0};
        float want[BLOCK / GROUP];
        int scale[BLOCK / GROUP];
        for (int g = 0; g < BLOCK / GROUP; g++) want[g] = wf_fit_scale(src + g * GROUP, GROUP, -32, 31);
        float d = wf_fit_common(want, BLOCK / GROUP, 128, &k.d, scale);
        for (int g = 0; g < BLOCK / GROUP; g++) k.scale[g] = (int8_t)scale[g];
        for (int i = 0; i < BLOCK; i++) {
            int half = i / 128, run = i / 32 % 4, l = i % 32;
            float step = d * k.scale[i / GROUP];
            int q = step != 0 ? wf_round_clamp(src[i] / step + 32, 0, 63) : 32;
            k.lo[64 * half + 32 * (run & 1) + l] |= (uint8_t)((q & 15) << (run < 2 ? 0 : 4));
            k.hi[32 * half + l] |= (uint8_t)(q >> 4 << 2 * run);
        }
        memcpy((uint8_t *)dst + b * sizeof k, &k, sizeof k);
    }
}
