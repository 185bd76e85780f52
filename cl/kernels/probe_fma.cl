/* probe_fma: n rounds of CHAINS independent chains of 16 multiply-adds a work-item, for the ceiling of F32
 * arithmetic. mad() may round as it likes: this asks for speed.
 */
#include "common.clh"
#ifndef CHAINS
#define CHAINS 4
#endif

KERNEL void probe_fma(OUT(y), uint n, float a, float b)
{
    float16 c[CHAINS];
#pragma unroll
    for (int i = 0; i < CHAINS; i++) c[i] = (float16)((float)(get_local_id(0) + i));
    for (uint r = 0; r < n; r++) {
#pragma unroll
        for (int i = 0; i < CHAINS; i++) c[i] = mad(c[i], (float16)(a), (float16)(b));
    }
#pragma unroll
    for (int i = 1; i < CHAINS; i++) c[0] += c[i];
    float8 e = c[0].lo + c[0].hi;
    float4 q = e.lo + e.hi;
    float sum = q.x + q.y + q.z + q.w;
    if (sum == 0.5f) *OUT_AT(float, y) = sum; /* so that nothing can be left out */
}
