/* probe_mma: n rounds of 8 independent mma.sync m16n8k16 (f16 in, f32 sums) a warp, for the ceiling of
 * NVIDIA's matrix units as inline PTX reaches them; wgmma goes beyond it.
 */
#include "common.clh"

KERNEL void probe_mma(OUT(y), uint n, float a, float b)
{
    float c[8][4];
    uint x = as_uint(a) + get_local_id(0), z = as_uint(b);
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) c[i][j] = 0;
    for (uint r = 0; r < n; r++) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%4,%5}, {%4,%5}, "
                         "{%0,%1,%2,%3};"
                         : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
                         : "r"(x), "r"(z));
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) sum += c[i][0] + c[i][1] + c[i][2] + c[i][3];
    if (sum == 0.5f) *OUT_AT(float, y) = sum; /* so that nothing can be left out */
}
