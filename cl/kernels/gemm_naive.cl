/* gemm_naive: Y = X W^T + bias + residual, one work-item an output, serial over K.
 *
 * The kernel that the faster ones are checked against on a device, and the last resort: no local
 * memory, no barrier, any M, N, K. Neighbours share a row of X and read different rows of W.
 *
 * Knob FRAG 1: W is F16, MMA-fragment-major (layout.c).
 */
#include "epilogue.clh"
#include "quant/f16.clh"

#ifndef FRAG
#define FRAG 0
#endif

#if FRAG
float w_at(const __global half *w, uint row, uint k, uint K)
{
    uint lane = row % 8 * 4 + k % 8 / 2, part = row / 8 % 2 + k / 8 % 2 * 2;
    return vload_half((((ulong)(row / 16) * (K / 16) + k / 16) * 32 + lane) * 8 + part * 2 + k % 2, w);
}
#endif

KERNEL void gemm_naive(IN(x), IN(w), IN(bias), IN(res), OUT_ACT(y), uint M, uint N, uint K,
                       uint x_stride, ulong w_row_bytes, uint res_stride, uint y_stride)
{
    ulong n = (ulong)M * N;
    for (ulong i = get_global_id(0); i < n; i += get_global_size(0)) {
        uint m = i / N, col = i % N;
        const __global act_t *x = IN_AT(act_t, x) + (ulong)m * x_stride;
        float acc = 0;
#if FRAG
        for (uint k = 0; k < K; k++) acc = MAD(ACT_LOAD(x, k), w_at(IN_AT(half, w), col, k, K), acc);
#else
        const __global uchar *w = IN_AT(uchar, w) + col * w_row_bytes;
        for (uint k = 0; k < K; k++) acc = MAD(ACT_LOAD(x, k), w_load(w, k), acc);
#endif
        epilogue e = EPILOGUE(bias, res, y, res_stride, y_stride);
        finish(&e, m, col, acc);
    }
}
