/* panel: Y = A + bias + residual, where A is of any weight format: what stands before and behind a product that
 * a library computes in F32 (ops/clblast.c). Operands are decoded into panels, and its result is finished from one.
 *
 * A work-item makes one element; neighbours make neighbours. A and Y may be parts of one buffer that do not meet,
 * residual and Y the same.
 */
#include "epilogue.clh"
#include "quant/f16.clh"

KERNEL void panel(IN(a), IN(bias), IN(res), OUT_ACT(y), uint M, uint N, ulong a_row_bytes, uint res_stride,
                  uint y_stride)
{
    FOR_EACH (m, n, M, N) {
        float x = w_load(IN_AT(uchar, a) + m * a_row_bytes, n);
        epilogue e = EPILOGUE(bias, res, y, res_stride, y_stride);
        finish(&e, m, n, x);
    }
}
