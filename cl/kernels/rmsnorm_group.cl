/* rmsnorm, one work-group for each of the G groups of K columns of a row: y = x / sqrt(mean(x^2) + eps) * w +
 * residual.
 *
 * A work-item holds VEC neighbouring elements, then those VEC * WG further on, PER times: a group is read once.
 * The sums of the work-items are added as a tree in local memory. WG is a power of two.
 *
 * Knobs: VEC 4: K is a multiple of 4 and rows of x, w, residual and y are aligned to four elements; 1: any. PER parts
 * a work-item, PER * VEC * WG >= K.
 */
#include "norm.clh"
#ifndef VEC
#define VEC 1
#define PER 16
#endif

#if VEC == 4
typedef float4 vec_t;
#define LOAD(p, k)   (*(const __global float4 *)((p) + (k)))
#define X_LOAD(p, k) ACT_LOAD4(p, k)
#define MORE(i)      LOAD4_LIKE(y_half, IN_AT(uchar, res), i)
#define SQUARES(v)   SQUARES4(v)
#define STORE_VEC(i, v) STORE4(y, i, v)
#else
typedef float vec_t;
#define LOAD(p, k)      ((p)[k])
#define X_LOAD(p, k)    ACT_LOAD(p, k)
#define MORE(i)         LOAD_LIKE(y_half, IN_AT(uchar, res), i)
#define SQUARES(v)      ((v) * (v))
#define STORE_VEC(i, v) STORE(y, i, v)
#endif

KERNEL void rmsnorm_group(IN(x), IN(w), IN(res), OUT_ACT(y), uint M, uint G, uint K, uint x_stride,
                          uint res_stride, uint y_stride, float eps)
{
    __local float part[WG];
    const __global float *w = IN_AT(float, w);
    uint lid = get_local_id(0);
    for (uint at = get_group_id(0); at < M * G; at += get_num_groups(0)) {
        const __global act_t *x = IN_AT(act_t, x) + (ulong)(at / G) * x_stride + at % G * K;
        ulong to = (ulong)(at / G) * y_stride + at % G * K, more = (ulong)(at / G) * res_stride + at % G * K;
        vec_t v[PER], scale[PER];
        float sum = 0;
        for (int i = 0; i < PER; i++) {
            uint k = (lid + i * WG) * VEC;
            v[i] = scale[i] = (vec_t)(0);
            if (k < K) v[i] = X_LOAD(x, k), scale[i] = LOAD(w, k);
        }
        for (int i = 0; i < PER; i++) sum += SQUARES(v[i]);
        float r = rms_scale(sum_group(part, sum), K, eps);
        for (int i = 0; i < PER; i++) {
            uint k = (lid + i * WG) * VEC;
            if (k >= K) continue;
            vec_t out = v[i] * r * scale[i];
            if (HAS_RESIDUAL) out += MORE(more + k);
            STORE_VEC(to + k, out)
        }
    }
}
