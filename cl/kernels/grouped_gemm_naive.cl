/* grouped_gemm_naive: Y[m, t] = X[m] W_e^T + bias_e with e = ids[m, t], one work-item an output, serial over K.
 *
 * The kernel that the faster ones are checked against on a device, and the last resort. x_part: columns of X from one of a token's
 * experts to the next; 0: all take the same.
 */
#include "epilogue.clh"
#include "quant/f16.clh"

KERNEL void grouped_gemm_naive(IN(x), IN(w), IN(ids), IN(bias), OUT_ACT(y), uint M, uint T, uint N, uint K, uint E, uint x_stride, uint x_part,
                               uint ids_stride, ulong w_row_bytes, uint y_stride)
{
    ulong n = (ulong)M * T * N;
    for (ulong i = get_global_id(0); i < n; i += get_global_size(0)) {
        uint m = i / N / T, t = i / N % T, col = i % N;
        int e = IN_AT(int, ids)[(ulong)m * ids_stride + t];
        const __global act_t *x = IN_AT(act_t, x) + (ulong)m * x_stride + t * x_part;
        float acc = NAN;
        if (e >= 0 && (uint)e < E) {
            ulong row = (ulong)e * N + col;
            const __global uchar *w = IN_AT(uchar, w) + row * w_row_bytes;
            acc = 0;
            for (uint k = 0; k < K; k++) acc = MAD(ACT_LOAD(x, k), w_load(w, k), acc);
            if (bias_off != NONE) acc += IN_AT(float, bias)[row];
        }
        STORE(y, (ulong)m * y_stride + t * N + col, acc)
    }
}
