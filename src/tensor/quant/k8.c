/* k8: 64 weights a block, x = scale * q + minimum with q in 0..255 and a scale and a minimum in F16 for each 32
 * weights. No file has it: it holds formats of up to eight bits in groups of 32, with or without minimums, so that a
 * device can keep matrices of several in one (joint.h). */
#include "tensor/joint.h"

#include <string.h>

struct block {
    uint16_t scale[2], min[2]; /* F16 */
    uint8_t q[64];
};
_Static_assert(sizeof(struct block) == 72, "K8 block");

void wf_put_k8(const wf_numbers64 *w, uint8_t *block)
{
    struct block b;
    memcpy(b.scale, w->scale, sizeof b.scale);
    memcpy(b.min, w->min, sizeof b.min);
    memcpy(b.q, w->q, sizeof b.q);
    memcpy(block, &b, sizeof b);
}

void wf_decode_k8(const void *src, float *dst, size_t n)
{
    wf_joint_decode(WF_K8, src, dst, n);
}

void wf_encode_k8(const float *src, void *dst, size_t n)
{
    wf_joint_encode(WF_K8, src, dst, n);
}
