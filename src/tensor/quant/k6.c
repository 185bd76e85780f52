/* k6: 64 weights a block, x = scale * q + minimum with q in 0..63 and a scale and a minimum in F16 for each 16 weights.
 * No file has it: it holds formats of up to six bits, groups of 16 or 32, with or without minimums, so that a device
 * can keep matrices of several in one (joint.h). */
#include "tensor/joint.h"

#include <string.h>

enum { BLOCK = 64, GROUP = 16, GROUPS = BLOCK / GROUP };

/* Element i has nibble i / 32 of low[i % 32], and bits 2 (i / 16) on of high[i % 16]. */
struct block {
    uint16_t scale[GROUPS], min[GROUPS]; /* F16 */
    uint8_t low[32], high[16];
};
_Static_assert(sizeof(struct block) == 64, "K6 block");

void wf_put_k6(const wf_numbers64 *w, uint8_t *block)
{
    struct block b = {0};
    memcpy(b.scale, w->scale, sizeof b.scale);
    memcpy(b.min, w->min, sizeof b.min);
    for (uint32_t i = 0; i < BLOCK; i++) {
        b.low[i % 32] |= (uint8_t)((w->q[i] & 15) << i / 32 * 4);
        b.high[i % 16] |= (uint8_t)(w->q[i] >> 4 << i / 16 * 2);
    }
    memcpy(block, &b, sizeof b);
}

void wf_decode_k6(const void *src, float *dst, size_t n)
{
    wf_joint_decode(WF_K6, src, dst, n);
}

void wf_encode_k6(const float *src, void *dst, size_t n)
{
    wf_joint_encode(WF_K6, src, dst, n);
}
