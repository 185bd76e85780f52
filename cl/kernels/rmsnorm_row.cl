/* rmsnorm for CPUs, one work-item for each of the G groups of K columns of a row: y = x / sqrt(mean(x^2) + eps) * w +
 * residual.
 *
 * 16 neighbouring elements are one vector, and their squares 16 sums. No barriers: where work-items of a group are a
 * loop on one core, each barrier ends it and stores all that they hold.
 */
#include "norm.clh"

#if ACT == 16
#define X16(k) vload_half16(0, x + (k))
#else
#define X16(k) vload16(0, x + (k))
#endif

float sum16(float16 v)
{
    float a = (v.s0 + v.s8) + (v.s4 + v.sc), b = (v.s1 + v.s9) + (v.s5 + v.sd);
    float c = (v.s2 + v.sa) + (v.s6 + v.se), d = (v.s3 + v.sb) + (v.s7 + v.sf);
    return (a + c) + (b + d);
}

KERNEL void rmsnorm_row(IN(x), IN(w), IN(res), OUT_ACT(y), uint M, uint G, uint K, uint x_stride, uint res_stride,
                        uint y_stride, float eps)
{
    const __global float *w = IN_AT(float, w);
    for (uint i = get_global_id(0); i < M * G; i += get_global_size(0)) {
        const __global act_t *x = IN_AT(act_t, x) + (ulong)(i / G) * x_stride + i % G * K;
        ulong to = (ulong)(i / G) * y_stride + i % G * K, more = (ulong)(i / G) * res_stride + i % G * K;
        uint whole = K / 16 * 16;
        float16 sums = 0;
        for (uint k = 0; k < whole; k += 16) {
            float16 v = X16(k);
            sums = MAD(v, v, sums);
        }
        float sum = sum16(sums);
        for (uint k = whole; k < K; k++) sum = MAD(ACT_LOAD(x, k), ACT_LOAD(x, k), sum);
        float r = rms_scale(sum, K, eps);
        for (uint k = 0; k < whole; k += 16) {
            float16 v = X16(k) * r * vload16(0, w + k);
            if (y_half) {
                if (HAS_RESIDUAL) v += vload_half16(0, IN_AT(half, res) + more + k);
                vstore_half16(v, 0, OUT_AT(half, y) + to + k);
            } else {
                if (HAS_RESIDUAL) v += vload16(0, IN_AT(float, res) + more + k);
                vstore16(v, 0, OUT_AT(float, y) + to + k);
            }
        }
        for (uint k = whole; k < K; k++) STORE(y, to + k, ADD_RESIDUAL(more + k, ACT_LOAD(x, k) * r * w[k]))
    }
}
