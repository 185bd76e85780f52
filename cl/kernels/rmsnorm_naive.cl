/* rmsnorm, one work-item for each of the G groups of K columns of a row: y = x / sqrt(mean(x^2) + eps) * w + residual.
 * Serial over the group. */
#include "norm.clh"

KERNEL void rmsnorm_naive(IN(x), IN(w), IN(res), OUT_ACT(y), uint M, uint G, uint K, uint x_stride, uint res_stride,
                          uint y_stride, float eps)
{
    const __global float *w = IN_AT(float, w);
    for (uint i = get_global_id(0); i < M * G; i += get_global_size(0)) {
        const __global act_t *x = IN_AT(act_t, x) + (ulong)(i / G) * x_stride + i % G * K;
        ulong to = (ulong)(i / G) * y_stride + i % G * K, more = (ulong)(i / G) * res_stride + i % G * K;
        float sum = 0;
        for (uint k = 0; k < K; k++) sum = MAD(ACT_LOAD(x, k), ACT_LOAD(x, k), sum);
        float r = rms_scale(sum, K, eps);
        for (uint k = 0; k < K; k++) STORE(y, to + k, ADD_RESIDUAL(more + k, ACT_LOAD(x, k) * r * w[k]))
    }
}
