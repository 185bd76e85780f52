/* layernorm, one work-item a row: y = (x - mean) / sqrt(mean((x - mean)^2) + eps) * w + b. Serial over the row. */
#include "common.clh"

KERNEL void layernorm_naive(IN(x), IN(w), IN(b), OUT_ACT(y), uint M, uint K, uint x_stride, uint y_stride, float eps)
{
    const __global float *w = IN_AT(float, w), *b = IN_AT(float, b);
    for (uint m = get_global_id(0); m < M; m += get_global_size(0)) {
        const __global act_t *x = IN_AT(act_t, x) + (ulong)m * x_stride;
        float sum = 0, squares = 0;
        for (uint k = 0; k < K; k++) sum += ACT_LOAD(x, k);
        float mean = sum / K;
        for (uint k = 0; k < K; k++) squares = MAD(ACT_LOAD(x, k) - mean, ACT_LOAD(x, k) - mean, squares);
        float r = 1.0f / sqrt(squares / K + eps);
        for (uint k = 0; k < K; k++) STORE(y, (ulong)m * y_stride + k, MAD((ACT_LOAD(x, k) - mean) * r, w[k], b[k]))
    }
}
