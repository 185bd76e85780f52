/* mxfp4: 32 weights a block, x = 2^(e - 127) * v, where v is a float of four bits (mxfp4_values.h), lying as nibbles.h
 * says. Blocks have 17 bytes: nothing in them is aligned. */
#include "tensor/quant/mxfp4_values.h"
#include "tensor/quant/nibbles.h"
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

#define BLOCK WF_NIBBLE_BLOCK
#define TOP   2 /* exponent of the largest v */

struct block {
    uint8_t e;
    uint8_t q[BLOCK / 2];
};
_Static_assert(sizeof(struct block) == 17, "MXFP4 block");

void wf_decode_mxfp4(const void *src, float *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, dst += BLOCK) {
        struct block k;
        int q[BLOCK];
        memcpy(&k, (const uint8_t *)src + b * sizeof k, sizeof k);
        float d = wf_mxfp4_scale(k.e);
        wf_nibbles_unpack(k.q, q);
        for (int i = 0; i < BLOCK; i++) dst[i] = d * wf_mxfp4_doubled[q[i]];
    }
}

/* For x = 2 v; of two that are as near, the smaller, as in ggml. */
static int nearest_code(float x)
{
    int i = 0;
    while (i < 7 && fabsf(x) > 0.5f * (float)(wf_mxfp4_doubled[i] + wf_mxfp4_doubled[i + 1])) i++;
    return i && x < 0 ? i + 8 : i;
}

void wf_encode_mxfp4(const float *src, void *dst, size_t n)
{
    for (size_t b = 0; b < n / BLOCK; b++, src += BLOCK) {
        struct block k = {0};
        float max = 0;
        int q[BLOCK], e = 0;
        for (int i = 0; i < BLOCK; i++) max = fmaxf(max, fabsf(src[i]));
        if (max > 0)
            frexpf(fminf(max, 0x1p127f), &e), k.e = (uint8_t)wf_round_clamp((float)(e - 1 - TOP + 127), 0, 254);
        float inv = ldexpf(1, 128 - k.e);
        for (int i = 0; i < BLOCK; i++) q[i] = nearest_code(src[i] * inv);
        wf_nibbles_pack(q, k.q);
        memcpy((uint8_t *)dst + b * sizeof k, &k, sizeof k);
    }
}
