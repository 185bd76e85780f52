/* probe_read: reads n chunks of 16 bytes once and keeps their exclusive or, for the ceiling of memory-bound
 * kernels. A step is DEPTH * WG chunks that lie together, DEPTH loads of each work-item in flight. OWN 0:
 * work-groups take steps in turn, as GPUs like it; 1: each has a part of its own, as CPUs like it.
 */
#include "common.clh"
#ifndef DEPTH
#define DEPTH 8
#endif
#ifndef OWN
#define OWN 0
#endif

KERNEL void probe_read(IN(x), OUT(y), uint n)
{
    const __global uint4 *x = IN_AT(uint4, x);
    uint4 sum[DEPTH];
#pragma unroll
    for (int i = 0; i < DEPTH; i++) sum[i] = (uint4)(0);
    ulong step = DEPTH * WG, part = n / get_num_groups(0), g = get_group_id(0);
    ulong at = (OWN ? g * part : g * step) + get_local_id(0), end = OWN ? (g + 1) * part : n;
    for (; at + (DEPTH - 1) * WG < end; at += OWN ? step : get_num_groups(0) * step) {
#pragma unroll
        for (int i = 0; i < DEPTH; i++) sum[i] ^= x[at + i * WG];
    }
#pragma unroll
    for (int i = 1; i < DEPTH; i++) sum[0] ^= sum[i];
    uint all = sum[0].x ^ sum[0].y ^ sum[0].z ^ sum[0].w;
    if (all == 0x5eed5eed) *OUT_AT(uint, y) = all; /* so that no load can be left out */
}
