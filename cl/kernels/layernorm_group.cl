/* layernorm, one work-group a row: y = (x - mean) / sqrt(mean((x - mean)^2) + eps) * w + b.
 *
 * A work-item holds every WG-th element, PER of them, so that a row is read once. Two sums, of the elements and of
 * their squared distances from the mean, each as a tree in local memory. WG is a power of two.
 *
 * Knobs: PER elements a work-item, PER * WG >= K.
 */
#include "norm.clh"
#ifndef PER
#define PER 16
#endif

KERNEL void layernorm_group(IN(x), IN(w), IN(b), OUT_ACT(y), uint M, uint K, uint x_stride, uint y_stride, float eps)
{
    __local float part[WG];
    const __global float *w = IN_AT(float, w), *b = IN_AT(float, b);
    uint lid = get_local_id(0);
    for (uint m = get_group_id(0); m < M; m += get_num_groups(0)) {
        const __global act_t *x = IN_AT(act_t, x) + (ulong)m * x_stride;
        float v[PER], sum = 0, squares = 0;
        for (uint i = 0; i < PER; i++) {
            v[i] = lid + i * WG < K ? ACT_LOAD(x, lid + i * WG) : 0;
            sum += v[i];
        }
        float mean = sum_group(part, sum) / K;
        for (uint i = 0; i < PER; i++)
            if (lid + i * WG < K) squares = MAD(v[i] - mean, v[i] - mean, squares);
        float r = 1.0f / sqrt(sum_group(part, squares) / K + eps);
        for (uint i = 0; i < PER; i++) {
            uint k = lid + i * WG;
            if (k < K) STORE(y, (ulong)m * y_stride + k, MAD((v[i] - mean) * r, w[k], b[k]))
        }
    }
}
