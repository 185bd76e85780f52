/* weighted_sum: y = residual + the T parts of a row of x by their weights. A work-item a column.
 */
#include "common.clh"

KERNEL void weighted_sum(IN(x), IN(weights), IN(res), OUT_ACT(y), uint M, uint N, uint T, uint x_stride,
                         uint weights_stride, uint res_stride, uint y_stride)
{
    FOR_EACH (m, n, M, N) {
        const __global act_t *row = IN_AT(act_t, x) + (ulong)m * x_stride;
        const __global float *weight = IN_AT(float, weights) + (ulong)m * weights_stride;
        float sum = res_off != NONE ? LOAD_LIKE(y_half, IN_AT(uchar, res), (ulong)m * res_stride + n) : 0;
        for (uint t = 0; t < T; t++) sum = MAD(weight[t], ACT_LOAD(row, t * N + n), sum);
        STORE(y, (ulong)m * y_stride + n, sum)
    }
}
