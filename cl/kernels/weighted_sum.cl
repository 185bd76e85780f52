/* weighted_sum: y = residual + the T parts of a row of x by their weights, or without. One work-item VEC elements.
 *
 * Knobs: VEC 4: N is a multiple of 4 and rows are aligned to four elements; 1: any.
 */
#include "common.clh"
#ifndef VEC
#define VEC 1
#endif

#if VEC == 1
#define NUMBERS float
#define PART(p, i) ACT_LOAD(p, i)
#define RESIDUAL(p, i) LOAD_LIKE(y_half, p, i)
#define GIVE(i, v) STORE(y, i, v)
#else
#define NUMBERS float4
#define PART(p, i) ACT_LOAD4(p, i)
#define RESIDUAL(p, i) LOAD4_LIKE(y_half, p, i)
#define GIVE(i, v) STORE4(y, i, v)
#endif

KERNEL void weighted_sum(IN(x), IN(weights), IN(res), OUT_ACT(y), uint M, uint N, uint T, uint x_stride,
                         uint weights_stride, uint res_stride, uint y_stride)
{
    FOR_EACH (m, part, M, N / VEC) {
        uint n = part * VEC;
        const __global act_t *row = IN_AT(act_t, x) + (ulong)m * x_stride;
        const __global float *weight = IN_AT(float, weights) + (ulong)m * weights_stride;
        NUMBERS sum = 0;
        if (res_off != NONE) sum = RESIDUAL(IN_AT(uchar, res), (ulong)m * res_stride + n);
        for (uint t = 0; t < T; t++) {
            NUMBERS by = weights_off != NONE ? weight[t] : 1;
            sum = MAD(by, PART(row, t * N + n), sum);
        }
        GIVE((ulong)m * y_stride + n, sum)
    }
}
