/* get_rows: y[m] = table[ids[m]] * gain + add[m], in F32 or F16. Embedding lookup; picking the rows that want logits.
 *
 * A work-item copies one element; neighbours copy neighbours. An id outside the table gives NaN, so
 * that a wrong id shows instead of reading elsewhere.
 */
#include "common.clh"
#include "quant/f16.clh"

KERNEL void get_rows(IN(table), IN(ids), IN(add), OUT_ACT(y), uint M, uint V, uint K, ulong row_bytes,
                 uint y_stride, uint add_stride, float gain)
{
    const __global int *ids = IN_AT(int, ids);
    FOR_EACH (m, k, M, K) {
        int id = ids[m];
        bool ok = id >= 0 && (uint)id < V;
        const __global uchar *row = IN_AT(uchar, table) + (ok ? (ulong)id : 0) * row_bytes;
        float v = ok ? w_load(row, k) * gain : NAN;
        if (add_off != NONE) v += IN_AT(float, add)[(ulong)m * add_stride + k];
        STORE(y, (ulong)m * y_stride + k, v)
    }
}
