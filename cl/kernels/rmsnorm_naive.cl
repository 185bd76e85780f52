/* rmsnorm, one work-item a row: y = x / sqrt(mean(x^2) + eps) * w. Serial over the row. */
#ifndef WF_COMMON
#include "common.clh"
#endif

KERNEL void rmsnorm_naive(IN(x), IN(w), OUT_ACT(y), uint M, uint K, uint x_stride, uint y_stride,
                          float eps)
{
    const __global float *w = IN_AT(float, w);
    for (uint m = get_global_id(0); m < M; m += get_global_size(0)) {
        const __global float *x = IN_AT(float, x) + (ulong)m * x_stride;
        float sum = 0;
        for (uint k = 0; k < K; k++) sum = MAD(x[k], x[k], sum);
        float r = 1.0f / sqrt(sum / K + eps);
        for (uint k = 0; k < K; k++) STORE(y, (ulong)m * y_stride + k, x[k] * r * w[k])
    }
}
