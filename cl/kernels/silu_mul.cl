/* silu_mul: y = gate / (1 + exp(-gate)) * up, where a row of gu is gate [F] then up [F]. One work-item
 * an element. */
#ifndef WF_COMMON
#include "common.clh"
#endif

KERNEL void silu_mul(IN(gu), OUT_ACT(y), uint M, uint F, uint gu_stride, uint y_stride)
{
    FOR_EACH (m, f, M, F) {
        const __global act_t *gu = IN_AT(act_t, gu) + (ulong)m * gu_stride;
        float g = ACT_LOAD(gu, f), u = ACT_LOAD(gu, F + f);
        STORE(y, (ulong)m * y_stride + f, g / (1.0f + exp(-g)) * u)
    }
}
