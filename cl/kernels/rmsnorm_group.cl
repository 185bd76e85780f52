/* rmsnorm, one work-group a row: y = x / sqrt(mean(x^2) + eps) * w.
 *
 * Work-item i sums elements i, i + WG, ...; the WG sums are added as a tree in local memory.
 * WG is a power of two.
 */
#ifndef WF_COMMON
#include "common.clh"
#endif

KERNEL void rmsnorm_group(IN(x), IN(w), OUT_ACT(y), uint M, uint K, uint x_stride, uint y_stride,
                          float eps)
{
    __local float part[WG];
    const __global float *w = IN_AT(float, w);
    uint lid = get_local_id(0);
    for (uint m = get_group_id(0); m < M; m += get_num_groups(0)) {
        const __global float *x = IN_AT(float, x) + (ulong)m * x_stride;
        float sum = 0;
        for (uint k = lid; k < K; k += WG) sum = MAD(x[k], x[k], sum);
        part[lid] = sum;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint half_ = WG / 2; half_ > 0; half_ /= 2) {
            if (lid < half_) part[lid] += part[lid + half_];
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        float r = 1.0f / sqrt(part[0] / K + eps);
        for (uint k = lid; k < K; k += WG) STORE(y, (ulong)m * y_stride + k, x[k] * r * w[k])
        barrier(CLK_LOCAL_MEM_FENCE); /* part is written again */
    }
}
